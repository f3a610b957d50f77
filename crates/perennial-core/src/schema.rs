//! Typed rows, and the way between them and items.
//!
//! Reading is lenient about what is missing and strict about what is there: a row that a Go, TypeScript or Python
//! service wrote without our attributes is valid; a row whose attributes have the wrong kind is an error that names
//! the row. Attributes that a row's type does not know are kept in `other` and written back.

use crate::body_key::BodyKey;
use crate::digest::is_sha256_hex;
use crate::expr::Update;
use crate::item::{Item, Kind, Name, Value};
use crate::key::{IdempotencyKey, LeaseToken, META, RowKey, Tag, VersionId};
use crate::number::Number;
use crate::time::{Seconds, Timestamp};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

/// The names of the attributes that rows of ours have.
pub mod attr {
    /// Partition key.
    pub const PK: &str = "pk";
    /// Sort key.
    pub const SK: &str = "sk";
    /// When garbage collection may delete the row. Nothing else reads it.
    pub const TTL: &str = "ttl";
    /// Where the body is.
    pub const S3_KEY: &str = "s3_key";
    /// When the generation began.
    pub const GENERATED_AT: &str = "generated_at";
    /// The freshness window.
    pub const REVALIDATE_SECONDS: &str = "revalidate_seconds";
    /// The entity tag, with its quotes.
    pub const ETAG: &str = "etag";
    /// The version row that META points at.
    pub const CURRENT_SK: &str = "current_sk";
    /// Counts the changes of META.
    pub const VERSION: &str = "version";
    /// Who holds the lease.
    pub const LEASE_TOKEN: &str = "lease_token";
    /// Until when.
    pub const LEASE_EXPIRES_AT: &str = "lease_expires_at";
    /// The digest of a request's inputs.
    pub const REQUEST_HASH: &str = "request_hash";
    /// Where a request stands.
    pub const STATUS: &str = "status";
    /// The body that a completed request made.
    pub const RESULT_S3_KEY: &str = "result_s3_key";

    // Ours: foreign readers ignore them, foreign writers may leave them out.

    /// The answer's status code.
    pub const HTTP_STATUS: &str = "http_status";
    /// The answer's headers, a line for each.
    pub const HTTP_HEADERS: &str = "http_headers";
    /// The page's tags.
    pub const CACHE_TAGS: &str = "cache_tags";
    /// The tag counter as the generation saw it before it began.
    pub const TAG_SEQUENCE: &str = "tag_sequence";
    /// SHA-256 of the body.
    pub const BODY_SHA256: &str = "body_sha256";
    /// Length of the body.
    pub const BODY_BYTES: &str = "body_bytes";
    /// The lease token that the generation was published under.
    pub const GENERATION: &str = "generation";
    /// When the entry was invalidated.
    pub const INVALIDATED_AT: &str = "invalidated_at";
    /// Until when a rollback holds.
    pub const HELD_UNTIL: &str = "held_until";
    /// Who took the lease, for logs.
    pub const OWNER: &str = "owner";
    /// How many renders in a row have failed.
    pub const FAILURES: &str = "failures";
    /// When the last render failed; the lease is then a cool-down.
    pub const FAILED_AT: &str = "failed_at";
    /// The lease token of a request's attempt.
    pub const ATTEMPT_TOKEN: &str = "attempt_token";
    /// When that lease runs out unless it is refreshed.
    pub const ATTEMPT_EXPIRES_AT: &str = "attempt_expires_at";
    /// A tag's text.
    pub const TAG: &str = "tag";
    /// The number of a tag's newest invalidation, and of the counter.
    pub const SEQUENCE: &str = "sequence";
}

/// A row that can't be read or written, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {problem}; {repair}")]
pub struct RowError {
    /// Which row, as far as it says so.
    pub row: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do about it.
    pub repair: &'static str,
}

impl RowError {
    /// An error about a row.
    pub fn new(row: &RowKey, problem: impl Into<String>) -> Self {
        Self { row: row.to_string(), problem: problem.into(), repair: row.repair() }
    }
}

/// A typed row.
pub trait Row: Sized {
    /// Reads an item; it must have a valid key.
    fn from_item(item: Item) -> Result<Self, RowError>;
    /// Writes the row, after checking it.
    fn to_item(&self) -> Result<Item, RowError>;
}

/// Takes attributes out of an item one by one, so that what is left is what the type does not know.
struct Fields {
    key: RowKey,
    /// In the order of their names; nothing where one has been taken.
    attributes: Vec<(Name, Option<Value>)>,
}

impl Fields {
    fn new(item: Item) -> Result<Self, RowError> {
        let mut attributes: Vec<_> = item.into_iter().map(|(name, value)| (name, Some(value))).collect();
        let no_key = |row, problem| RowError { row, problem, repair: "delete it: no reader can use it" };
        let key = match (take(&mut attributes, attr::PK), take(&mut attributes, attr::SK)) {
            (Some(Value::S(pk)), Some(Value::S(sk))) => RowKey::new(pk, sk)
                .map_err(|error| no_key("with an impossible key".into(), error.to_string()))?,
            (pk, sk) => {
                let problem = "its key (pk, sk) is not a pair of strings".into();
                return Err(no_key(format!("{sk:?} of {pk:?}"), problem));
            }
        };
        Ok(Self { key, attributes })
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        take(&mut self.attributes, name)
    }

    /// The row's key, and what nobody took.
    fn rest(self) -> (RowKey, Item) {
        let left = self.attributes.into_iter().filter_map(|(name, value)| Some((name, value?)));
        (self.key, Item::from_sorted(left.collect()))
    }

    fn error(&self, problem: impl Into<String>) -> RowError {
        RowError::new(&self.key, problem)
    }

    fn missing(&self, name: &str, kind: Kind) -> RowError {
        self.error(format!("attribute `{name}` is missing (expected kind {})", kind.name()))
    }

    fn wrong(&self, name: &str, expected: Kind, found: &Value) -> RowError {
        self.error(format!(
            "attribute `{name}` is of kind {}, expected {}",
            found.kind().name(),
            expected.name()
        ))
    }

    fn string(&mut self, name: &str) -> Result<Option<String>, RowError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::S(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, Kind::S, &other)),
        }
    }

    fn required_string(&mut self, name: &str) -> Result<String, RowError> {
        self.string(name)?.ok_or_else(|| self.missing(name, Kind::S))
    }

    fn number(&mut self, name: &str) -> Result<Option<Number>, RowError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::N(number)) => Ok(Some(number)),
            Some(other) => Err(self.wrong(name, Kind::N, &other)),
        }
    }

    fn required_number(&mut self, name: &str) -> Result<Number, RowError> {
        self.number(name)?.ok_or_else(|| self.missing(name, Kind::N))
    }

    /// A time; a fraction is dropped, so that what it dates is never taken for newer than it is.
    fn seconds(&mut self, name: &str) -> Result<Option<Seconds>, RowError> {
        Ok(self.number(name)?.map(Number::floor))
    }

    fn whole(&mut self, name: &str) -> Result<Option<u64>, RowError> {
        match self.number(name)? {
            None => Ok(None),
            Some(number) => match number.to_u64() {
                Some(whole) => Ok(Some(whole)),
                None => Err(self.error(format!("attribute `{name}` is {number}, expected a whole number"))),
            },
        }
    }

    /// A string that must pass a check of its own.
    fn parsed<T, E: core::fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Result<Option<T>, RowError> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        parse(text).map(Some).map_err(|error| self.error(format!("attribute `{name}`: {error}")))
    }
}

fn take(attributes: &mut [(Name, Option<Value>)], name: &str) -> Option<Value> {
    let index = attributes.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
    attributes[index].1.take()
}

/// Puts a row's key and the attributes that its type does not know back together.
fn item_of(key: &RowKey, other: &Item) -> Item {
    let mut item = other.clone();
    item.insert(attr::PK, key.pk());
    item.insert(attr::SK, key.sk());
    item
}

/// A freshness window: for how many seconds after it began a generation is fresh. It may have a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(Number);

impl Window {
    /// Stale at once.
    pub const ZERO: Self = Self(Number::ZERO);

    /// A window that no clock outlives, for pages that are only ever invalidated: 1,000 years.
    pub fn forever() -> Self {
        Self::from_seconds(31_557_600_000)
    }

    /// Whole seconds.
    pub fn from_seconds(seconds: u64) -> Self {
        Self(seconds.into())
    }

    /// A duration, to the millisecond.
    pub fn from_duration(duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (_, digits, exponent) = Number::from(millis).parts();
        let shifted = Number::from_parts(false, digits, if digits == 0 { 0 } else { exponent - 3 });
        Self(shifted.unwrap_or(Number::ZERO))
    }

    /// What a row says, fraction and all.
    pub fn from_number(number: Number) -> Self {
        Self(number)
    }

    /// As a row keeps it.
    pub fn number(self) -> Number {
        self.0
    }

    /// So many seconds longer, or shorter. A window may be negative: see [`crate::publish::date`].
    #[must_use]
    pub fn plus(self, seconds: Seconds) -> Self {
        // Too many digits for a sum are those of a fraction far below a millisecond: then the whole seconds do.
        Self(
            self.0
                .checked_add(seconds.into())
                .unwrap_or_else(|_| self.0.floor().saturating_add(seconds).into()),
        )
    }

    /// In milliseconds, rounded down.
    pub fn millis(self) -> i64 {
        self.0.scaled_floor(3)
    }
}

/// A header of the stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, a token.
    pub name: String,
    /// The value; mostly text, never with a line break.
    pub value: Vec<u8>,
}

impl Header {
    /// A header with a text value.
    pub fn new(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    fn is_valid(&self) -> bool {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !self.name.is_empty()
            && self.name.bytes().all(token)
            && !self.value.iter().any(|b| matches!(b, 0..=8 | 10..=31 | 127))
    }
}

/// Headers as rows keep them: one text, a line for each, `name: value`. Neither has a line break, and no name has a
/// colon, so this can be read back. Bytes where a value is not UTF-8.
fn write_headers(headers: &[Header]) -> Option<Value> {
    let mut lines: Vec<u8> = Vec::new();
    for header in headers {
        if !lines.is_empty() {
            lines.push(b'\n');
        }
        lines.extend_from_slice(header.name.as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(&header.value);
    }
    (!headers.is_empty()).then(|| match String::from_utf8(lines) {
        Ok(text) => Value::S(text),
        Err(not_text) => Value::B(not_text.into_bytes()),
    })
}

fn read_headers(fields: &mut Fields) -> Result<Vec<Header>, RowError> {
    let lines = match fields.take(attr::HTTP_HEADERS) {
        None => return Ok(Vec::new()),
        Some(Value::S(text)) => text.into_bytes(),
        Some(Value::B(bytes)) => bytes,
        Some(other) => return Err(fields.wrong(attr::HTTP_HEADERS, Kind::S, &other)),
    };
    let headers = lines.split(|byte| *byte == b'\n').map(|line| {
        let colon = line.windows(2).position(|pair| pair == b": ")?;
        let name = core::str::from_utf8(&line[..colon]).ok()?;
        Some(Header::new(name, &line[colon + 2..]))
    });
    let headers = headers.collect::<Option<_>>();
    headers.ok_or_else(|| fields.error(format!("`{}` is not lines of `name: value`", attr::HTTP_HEADERS)))
}

/// One generation of a page: what META and VER# say alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Where the body is.
    pub body: BodyKey,
    /// When the generation began, before the render read its data.
    pub generated_at: Seconds,
    /// How long it is fresh.
    pub window: Window,
    /// The entity tag, with its quotes.
    pub etag: Option<String>,
    /// When garbage collection may delete the row.
    pub ttl: Option<Seconds>,
    /// The answer's status code; foreign rows have none.
    pub status: Option<u16>,
    /// The answer's headers, in order.
    pub headers: Vec<Header>,
    /// The page's tags.
    pub tags: BTreeSet<Tag>,
    /// The tag counter, read before the generation began.
    pub tag_sequence: Option<u64>,
    /// SHA-256 of the body, hexadecimal.
    pub body_sha256: Option<String>,
    /// Length of the body.
    pub body_bytes: Option<u64>,
    /// The lease token that it was published under.
    pub token: Option<LeaseToken>,
}

impl Generation {
    /// A generation with only what the contract requires.
    pub fn new(body: BodyKey, generated_at: Seconds, window: Window) -> Self {
        Self {
            body,
            generated_at,
            window,
            etag: None,
            ttl: None,
            status: None,
            headers: Vec::new(),
            tags: BTreeSet::new(),
            tag_sequence: None,
            body_sha256: None,
            body_bytes: None,
            token: None,
        }
    }

    /// When it began.
    pub fn began(&self) -> Timestamp {
        Timestamp::from_seconds(self.generated_at)
    }

    fn read(fields: &mut Fields) -> Result<Self, RowError> {
        let body = fields.parsed(attr::S3_KEY, BodyKey::new)?;
        let generation = Self {
            body: body.ok_or_else(|| fields.missing(attr::S3_KEY, Kind::S))?,
            generated_at: fields.required_number(attr::GENERATED_AT)?.floor(),
            window: Window(fields.required_number(attr::REVALIDATE_SECONDS)?),
            etag: fields.string(attr::ETAG)?,
            ttl: fields.seconds(attr::TTL)?,
            status: read_status(fields)?,
            headers: read_headers(fields)?,
            tags: read_tags(fields)?,
            tag_sequence: fields.whole(attr::TAG_SEQUENCE)?,
            body_sha256: fields.string(attr::BODY_SHA256)?,
            body_bytes: fields.whole(attr::BODY_BYTES)?,
            token: fields.parsed(attr::GENERATION, LeaseToken::from_row)?,
        };
        generation.check(&fields.key)?;
        Ok(generation)
    }

    /// What must hold of it in a row, whoever wrote it.
    pub(crate) fn check(&self, row: &RowKey) -> Result<(), RowError> {
        let problem = if self.generated_at < 0 {
            format!("`{}` is before the epoch", attr::GENERATED_AT)
        } else if self.status.is_some_and(|status| !(100..=999).contains(&status)) {
            format!("`{}` is not a status code", attr::HTTP_STATUS)
        } else if let Some(header) = self.headers.iter().find(|header| !header.is_valid()) {
            format!("header {:?} has a name or a value that HTTP does not allow", header.name)
        } else if self.body_sha256.as_deref().is_some_and(|hash| !is_sha256_hex(hash)) {
            format!("`{}` is not a SHA-256 in hexadecimal", attr::BODY_SHA256)
        } else {
            return Ok(());
        };
        Err(RowError::new(row, problem))
    }

    /// What must hold beyond that of what we write.
    pub(crate) fn check_ours(&self, row: &RowKey) -> Result<(), RowError> {
        self.check(row)?;
        let problem = if self.etag.as_deref().is_some_and(|etag| !is_entity_tag(etag)) {
            format!("`{}` is not an entity tag in quotes", attr::ETAG)
        } else if self.ttl.is_some_and(|ttl| ttl < self.generated_at) {
            format!("`{}` lies before `{}`", attr::TTL, attr::GENERATED_AT)
        } else {
            return Ok(());
        };
        Err(RowError::new(row, problem))
    }

    /// Every attribute of ours with its value, or with nothing where it does not apply.
    fn attributes(&self) -> [(&'static str, Option<Value>); 12] {
        let tags: BTreeSet<String> = self.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
        [
            (attr::S3_KEY, Some(self.body.as_str().into())),
            (attr::GENERATED_AT, Some(self.generated_at.into())),
            (attr::REVALIDATE_SECONDS, Some(self.window.0.into())),
            (attr::ETAG, self.etag.as_deref().map(Value::from)),
            (attr::TTL, self.ttl.map(Value::from)),
            (attr::HTTP_STATUS, self.status.map(|status| u64::from(status).into())),
            (attr::HTTP_HEADERS, write_headers(&self.headers)),
            (attr::CACHE_TAGS, (!tags.is_empty()).then_some(Value::Ss(tags))),
            (attr::TAG_SEQUENCE, self.tag_sequence.map(Value::from)),
            (attr::BODY_SHA256, self.body_sha256.as_deref().map(Value::from)),
            (attr::BODY_BYTES, self.body_bytes.map(Value::from)),
            (attr::GENERATION, self.token.as_ref().map(|token| token.as_str().into())),
        ]
    }

    fn write(&self, item: &mut Item) {
        for (name, value) in self.attributes() {
            if let Some(value) = value {
                item.insert(name, value);
            }
        }
    }

    /// An update that sets what applies and removes what does not, and leaves foreign attributes alone.
    pub(crate) fn update(&self) -> Update {
        self.attributes()
            .into_iter()
            .fold(Update::new(), |update, (name, value)| update.set_or_remove(name, value))
    }
}

fn read_status(fields: &mut Fields) -> Result<Option<u16>, RowError> {
    let Some(status) = fields.whole(attr::HTTP_STATUS)? else { return Ok(None) };
    let status = u16::try_from(status);
    status.map(Some).map_err(|_| fields.error(format!("`{}` is not a status code", attr::HTTP_STATUS)))
}

fn read_tags(fields: &mut Fields) -> Result<BTreeSet<Tag>, RowError> {
    let tags = match fields.take(attr::CACHE_TAGS) {
        None => return Ok(BTreeSet::new()),
        Some(Value::Ss(tags)) => tags,
        Some(other) => return Err(fields.wrong(attr::CACHE_TAGS, Kind::Ss, &other)),
    };
    let tags = tags.into_iter().map(Tag::new).collect::<Result<_, _>>();
    tags.map_err(|error| fields.error(format!("`{}`: {error}", attr::CACHE_TAGS)))
}

/// Whether a text is an entity tag: `"…"` or `W/"…"`, without inner quotes or controls.
fn is_entity_tag(text: &str) -> bool {
    let inner =
        text.strip_prefix("W/").unwrap_or(text).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.chars().any(|c| c == '"' || c == ' ' || c.is_control()))
}

/// The metadata row: the current generation and what has happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The row.
    pub key: RowKey,
    /// The current generation.
    pub generation: Generation,
    /// Counts the changes of this row; a foreign writer's Put starts it anew.
    pub version: Option<u64>,
    /// The version row of the current generation, under recipe B.
    pub current: Option<VersionId>,
    /// When the entry was invalidated, if no generation has followed.
    pub invalidated_at: Option<Seconds>,
    /// Until when a rollback holds.
    pub held_until: Option<Seconds>,
    /// Attributes that others keep here.
    pub other: Item,
}

impl Row for Meta {
    fn from_item(item: Item) -> Result<Self, RowError> {
        let mut fields = Fields::new(item)?;
        if fields.key.sk() != META {
            return Err(fields.error("it is not a META row"));
        }
        let current = fields.parsed(attr::CURRENT_SK, |sk| match VersionId::from_sk(&sk) {
            Some(Ok(id)) => Ok(id),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(format!("{sk:?} does not begin with VER#")),
        })?;
        let generation = Generation::read(&mut fields)?;
        let version = fields.whole(attr::VERSION)?;
        let invalidated_at = fields.seconds(attr::INVALIDATED_AT)?;
        let held_until = fields.seconds(attr::HELD_UNTIL)?;
        let (key, other) = fields.rest();
        Ok(Self { key, generation, version, current, invalidated_at, held_until, other })
    }

    fn to_item(&self) -> Result<Item, RowError> {
        self.generation.check_ours(&self.key)?;
        let mut item = item_of(&self.key, &self.other);
        self.generation.write(&mut item);
        insert_some(&mut item, attr::VERSION, self.version);
        insert_some(&mut item, attr::CURRENT_SK, self.current.as_ref().map(VersionId::sk));
        insert_some(&mut item, attr::INVALIDATED_AT, self.invalidated_at);
        insert_some(&mut item, attr::HELD_UNTIL, self.held_until);
        Ok(item)
    }
}

fn insert_some(item: &mut Item, name: &'static str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        item.insert(Name::Borrowed(name), value);
    }
}

/// A version row: one generation, kept for history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The row.
    pub key: RowKey,
    /// Its id, from the row's sort key.
    pub id: VersionId,
    /// The generation.
    pub generation: Generation,
    /// Attributes that others keep here.
    pub other: Item,
}

impl Row for Version {
    fn from_item(item: Item) -> Result<Self, RowError> {
        let mut fields = Fields::new(item)?;
        let Some(Ok(id)) = VersionId::from_sk(fields.key.sk()) else {
            return Err(fields.error("it is not a VER# row"));
        };
        let generation = Generation::read(&mut fields)?;
        let (key, other) = fields.rest();
        Ok(Self { key, id, generation, other })
    }

    fn to_item(&self) -> Result<Item, RowError> {
        self.generation.check_ours(&self.key)?;
        if self.key.sk() != self.id.sk() {
            return Err(RowError::new(&self.key, "its sort key does not name its version"));
        }
        let mut item = item_of(&self.key, &self.other);
        self.generation.write(&mut item);
        Ok(item)
    }
}

/// The lease row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The row.
    pub key: RowKey,
    /// Who holds the lease.
    pub token: LeaseToken,
    /// Until when; a fraction is rounded up.
    pub expires_at: Seconds,
    /// When garbage collection may delete the row.
    pub ttl: Option<Seconds>,
    /// Who took it, for logs.
    pub owner: Option<String>,
    /// How many renders in a row have failed.
    pub failures: u64,
    /// When the last render failed; the lease is then a cool-down that nobody works under.
    pub failed_at: Option<Seconds>,
    /// Attributes that others keep here.
    pub other: Item,
}

impl Lock {
    /// Whether somebody holds the lease, or a cool-down runs.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.expires_at > now.seconds()
    }
}

impl Row for Lock {
    fn from_item(item: Item) -> Result<Self, RowError> {
        let mut fields = Fields::new(item)?;
        if fields.key.sk() != crate::key::LOCK {
            return Err(fields.error("it is not a LOCK row"));
        }
        let token = fields.parsed(attr::LEASE_TOKEN, LeaseToken::from_row)?;
        let token = token.ok_or_else(|| fields.missing(attr::LEASE_TOKEN, Kind::S))?;
        let expires_at = fields.required_number(attr::LEASE_EXPIRES_AT)?.ceil();
        let ttl = fields.seconds(attr::TTL)?;
        let owner = fields.string(attr::OWNER)?;
        let failures = fields.whole(attr::FAILURES)?.unwrap_or(0);
        let failed_at = fields.seconds(attr::FAILED_AT)?;
        let (key, other) = fields.rest();
        Ok(Self { key, token, expires_at, ttl, owner, failures, failed_at, other })
    }

    fn to_item(&self) -> Result<Item, RowError> {
        if self.ttl.is_some_and(|ttl| ttl < self.expires_at) {
            return Err(RowError::new(&self.key, "`ttl` lies before `lease_expires_at`"));
        }
        let mut item = item_of(&self.key, &self.other);
        item.insert(attr::LEASE_TOKEN, self.token.as_str());
        item.insert(attr::LEASE_EXPIRES_AT, self.expires_at);
        insert_some(&mut item, attr::TTL, self.ttl);
        insert_some(&mut item, attr::OWNER, self.owner.as_deref());
        insert_some(&mut item, attr::FAILURES, (self.failures > 0).then_some(self.failures));
        insert_some(&mut item, attr::FAILED_AT, self.failed_at);
        Ok(item)
    }
}

/// Where an idempotent request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStatus {
    /// Somebody works on it, or died doing so.
    Started,
    /// It has its result.
    Completed,
    /// It failed; it may be tried again.
    Failed,
}

impl RequestStatus {
    /// As rows spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        [Self::Started, Self::Completed, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("{text:?} is none of STARTED, COMPLETED, FAILED"))
    }
}

/// The idempotency row of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The row.
    pub key: RowKey,
    /// The idempotency key, from the row's sort key.
    pub idempotency_key: IdempotencyKey,
    /// The digest of the request's inputs.
    pub request_hash: String,
    /// Where it stands.
    pub status: RequestStatus,
    /// When garbage collection may delete the row.
    pub ttl: Seconds,
    /// The body that it made.
    pub result: Option<BodyKey>,
    /// The lease of the attempt that works on it.
    pub attempt_token: Option<LeaseToken>,
    /// When that lease runs out unless it is refreshed; a fraction is rounded up.
    pub attempt_expires_at: Option<Seconds>,
    /// Attributes that others keep here.
    pub other: Item,
}

impl Row for Request {
    fn from_item(item: Item) -> Result<Self, RowError> {
        let mut fields = Fields::new(item)?;
        let Some(Ok(idempotency_key)) = IdempotencyKey::from_sk(fields.key.sk()) else {
            return Err(fields.error("it is not a REQ# row"));
        };
        let status = fields.parsed(attr::STATUS, |text| RequestStatus::parse(&text))?;
        let status = status.ok_or_else(|| fields.missing(attr::STATUS, Kind::S))?;
        let request_hash = fields.required_string(attr::REQUEST_HASH)?;
        let ttl = fields.required_number(attr::TTL)?.floor();
        let result = fields.parsed(attr::RESULT_S3_KEY, BodyKey::new)?;
        let attempt_token = fields.parsed(attr::ATTEMPT_TOKEN, LeaseToken::from_row)?;
        let attempt_expires_at = fields.number(attr::ATTEMPT_EXPIRES_AT)?.map(Number::ceil);
        let (key, other) = fields.rest();
        Ok(Self {
            key,
            idempotency_key,
            request_hash,
            status,
            ttl,
            result,
            attempt_token,
            attempt_expires_at,
            other,
        })
    }

    fn to_item(&self) -> Result<Item, RowError> {
        if self.key.sk() != self.idempotency_key.sk() {
            return Err(RowError::new(&self.key, "its sort key does not name its idempotency key"));
        }
        if self.request_hash.is_empty() {
            return Err(RowError::new(&self.key, "`request_hash` is empty"));
        }
        let mut item = item_of(&self.key, &self.other);
        item.insert(attr::REQUEST_HASH, self.request_hash.as_str());
        item.insert(attr::STATUS, self.status.as_str());
        item.insert(attr::TTL, self.ttl);
        insert_some(&mut item, attr::RESULT_S3_KEY, self.result.as_ref().map(BodyKey::as_str));
        insert_some(&mut item, attr::ATTEMPT_TOKEN, self.attempt_token.as_ref().map(LeaseToken::as_str));
        insert_some(&mut item, attr::ATTEMPT_EXPIRES_AT, self.attempt_expires_at);
        Ok(item)
    }
}

/// A tag's row, or the counter's: a number that only rises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The row.
    pub key: RowKey,
    /// The tag, on a tag's row.
    pub tag: Option<Tag>,
    /// The number.
    pub sequence: u64,
    /// Attributes that others keep here.
    pub other: Item,
}

impl Row for Sequence {
    fn from_item(item: Item) -> Result<Self, RowError> {
        let mut fields = Fields::new(item)?;
        let tag = fields.parsed(attr::TAG, Tag::new)?;
        if tag.is_none() && fields.key.sk() == crate::key::TAG {
            return Err(fields.missing(attr::TAG, Kind::S));
        }
        let sequence = fields.whole(attr::SEQUENCE)?;
        let sequence = sequence.ok_or_else(|| fields.missing(attr::SEQUENCE, Kind::N))?;
        let (key, other) = fields.rest();
        Ok(Self { key, tag, sequence, other })
    }

    fn to_item(&self) -> Result<Item, RowError> {
        // A row that time may delete would let an invalidation be forgotten.
        if self.other.get(attr::TTL).is_some() {
            return Err(RowError::new(&self.key, "a tag or counter row may not have a `ttl`"));
        }
        let mut item = item_of(&self.key, &self.other);
        insert_some(&mut item, attr::TAG, self.tag.as_ref().map(Tag::as_str));
        item.insert(attr::SEQUENCE, self.sequence);
        Ok(item)
    }
}

#[cfg(test)]
mod tests;

//! Cache keys, tenants, and the names of the rows that belong to them.
//!
//! A [`CacheKey`] is a text that says which page is meant, and perhaps a tenant. [`KeyParts`] makes such a text from
//! the parts of a request so that different requests never share one. An [`Entry`] is the partition that the key's
//! rows live in, and names each of those rows.

use crate::body_key::BodyKey;
use crate::digest::{is_sha256_hex, sha256_hex, sha256_parts};
use crate::escape::{escape, escape_into};
use crate::time::Timestamp;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The longest partition key, in bytes.
pub const MAX_PK_BYTES: usize = 2048;
/// The longest sort key, in bytes.
pub const MAX_SK_BYTES: usize = 1024;
/// The longest cache key text, in bytes. It is only hashed, so this is a bound on work, not on a row.
pub const MAX_KEY_BYTES: usize = 1 << 20;
/// The longest tenant name, in bytes; it leaves room for the rest of a partition key.
pub const MAX_TENANT_BYTES: usize = 1024;
/// The longest tag, in bytes.
pub const MAX_TAG_BYTES: usize = 1024;

/// Why a name can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The part that must not be empty is.
    #[error("{what} is empty")]
    Empty {
        /// Which part.
        what: &'static str,
    },
    /// The part is longer than its limit.
    #[error("{what} has {length} bytes; at most {limit} are allowed{hint}")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
        /// What to do about it.
        hint: &'static str,
    },
    /// The part has a character that would make names ambiguous.
    #[error("{what} contains {character:?}, which is not allowed there")]
    Character {
        /// Which part.
        what: &'static str,
        /// The first offending character.
        character: char,
    },
    /// A raw key that looks like a hashed one, so that two pages could share rows.
    #[error("a raw cache key of 64 hexadecimal digits looks like a hashed one; use the hashed scheme for it")]
    LooksHashed,
}

/// Checks that a part is neither empty nor too long.
fn check_length(what: &'static str, text: &str, limit: usize, hint: &'static str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty { what });
    }
    if text.len() > limit {
        return Err(KeyError::TooLong { what, length: text.len(), limit, hint });
    }
    Ok(())
}

/// Checks that a part has no control character, nor another that `banned` names.
fn check_characters(what: &'static str, text: &str, banned: char) -> Result<(), KeyError> {
    match text.chars().find(|c| c.is_control() || *c == banned) {
        Some(character) => Err(KeyError::Character { what, character }),
        None => Ok(()),
    }
}

/// A tenant's name: not empty, no `#`, no control characters, at most [`MAX_TENANT_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

impl Tenant {
    /// Checks the name.
    pub fn new(name: impl Into<String>) -> Result<Self, KeyError> {
        let name = name.into();
        check_length("the tenant", &name, MAX_TENANT_BYTES, "")?;
        check_characters("the tenant", &name, '#')?;
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tag that pages carry and that can be invalidated: not empty, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl Tag {
    /// Checks the tag.
    pub fn new(tag: impl Into<String>) -> Result<Self, KeyError> {
        let tag = tag.into();
        check_length("the tag", &tag, MAX_TAG_BYTES, "")?;
        check_characters("the tag", &tag, '\0')?;
        Ok(Self(tag))
    }

    /// The tag's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which of the two ways a key becomes a partition key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PkScheme {
    /// `CACHE#<sha256 of the key, hexadecimal>`: any key fits, and no prefix makes a partition hot.
    #[default]
    Hashed,
    /// `CACHE#<the key itself>`: what the TypeScript `FaceTheoryIsrMetaStore` writes.
    Raw,
}

/// Which page is meant: a text, and perhaps the tenant that it belongs to.
///
/// The text is taken as it is; use [`KeyParts`] to make one from a request. Names are checked when the key is used
/// for rows, by [`CacheKey::entry`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    tenant: Option<String>,
    text: String,
}

impl CacheKey {
    /// A key without a tenant.
    pub fn new(text: impl Into<String>) -> Self {
        Self { tenant: None, text: text.into() }
    }

    /// The same key for a tenant.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The key's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tenant, if there is one, once its name has been checked.
    pub fn tenant(&self) -> Result<Option<Tenant>, KeyError> {
        self.tenant.as_deref().map(Tenant::new).transpose()
    }

    /// The partition of this key's rows.
    pub fn entry(&self, scheme: PkScheme) -> Result<Entry, KeyError> {
        check_length("the cache key", &self.text, MAX_KEY_BYTES, "")?;
        let name = match scheme {
            PkScheme::Hashed => sha256_hex(&self.text),
            PkScheme::Raw if is_sha256_hex(&self.text) => return Err(KeyError::LooksHashed),
            PkScheme::Raw => self.text.clone(),
        };
        let pk = match self.tenant()? {
            None => format!("CACHE#{name}"),
            Some(tenant) => format!("TENANT#{}#CACHE#{name}", tenant.as_str()),
        };
        Entry::from_pk(pk)
    }
}

/// The parts of a request that its answer depends on, from which [`KeyParts::build`] makes a [`CacheKey`].
///
/// The text is made so that different parts always give different keys: every part is percent-escaped, each kind
/// of part has its own place, and a value that is missing differs from an empty one. Nothing is normalised here;
/// whoever knows that two spellings mean one page (say, host names in capitals) normalises before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyParts {
    method: String,
    scheme: Option<String>,
    host: Option<String>,
    path: String,
    params: Vec<Pair>,
    query: Vec<Pair>,
    vary: Vec<Pair>,
    secrets: Vec<Pair>,
}

/// A name and a value; `None` when the name stands alone.
type Pair = (String, Option<Vec<u8>>);

impl KeyParts {
    /// Starts with the two parts that every request has.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            scheme: None,
            host: None,
            path: path.into(),
            params: Vec::new(),
            query: Vec::new(),
            vary: Vec::new(),
            secrets: Vec::new(),
        }
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(mut self, scheme: impl Into<String>) -> Self {
        self.scheme = Some(scheme.into());
        self
    }

    /// The host, with its port where it matters.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// A parameter taken from the route.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        self.params.push((name.into(), Some(value.as_ref().to_vec())));
        self
    }

    /// A query parameter. A name may come several times; the order of its values counts, that of names does not.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: Option<&[u8]>) -> Self {
        self.query.push((name.into(), value.map(<[u8]>::to_vec)));
        self
    }

    /// A header that the answer varies by; `None` when the request does not have it. A header that comes several
    /// times is given as often, and each value counts.
    #[must_use]
    pub fn vary(mut self, header: impl Into<String>, value: Option<&[u8]>) -> Self {
        self.vary.push((header.into(), value.map(<[u8]>::to_vec)));
        self
    }

    /// Something secret that the answer varies by (a cookie, an authorization): only its digest enters the key. What
    /// comes several times is given as often, and each value counts.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: Option<&[u8]>) -> Self {
        let name = name.into();
        let digest = value.map(|value| sha256_parts([name.as_bytes(), value]).into_bytes());
        self.secrets.push((name, digest));
        self
    }

    /// The key. `GET https example.com /posts/42 query:page=2 vary:accept-language=de`
    pub fn build(&self) -> CacheKey {
        let mut text = escape(&self.method, b"");
        for field in [self.scheme.as_deref(), self.host.as_deref(), Some(self.path.as_str())] {
            text.push(' ');
            push_field(&mut text, field);
        }
        for (label, pairs) in [
            ("params", &self.params),
            ("query", &self.query),
            ("vary", &self.vary),
            ("digest", &self.secrets),
        ] {
            push_pairs(&mut text, label, pairs);
        }
        CacheKey::new(text)
    }
}

/// Writes a field, or `-` when it is missing; a field that is `-` itself is escaped.
fn push_field(text: &mut String, field: Option<&str>) {
    match field {
        None => text.push('-'),
        Some("-") => text.push_str("%2D"),
        Some(field) => escape_into(text, field.as_bytes(), b"/:"),
    }
}

/// Writes ` label:name=value&name`, sorted by name; nothing when there are no pairs.
fn push_pairs(text: &mut String, label: &str, pairs: &[Pair]) {
    let mut sorted: Vec<&Pair> = pairs.iter().collect();
    // The sort is stable: values of one name keep their order.
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index == 0 {
            text.push(' ');
            text.push_str(label);
            text.push(':');
        } else {
            text.push('&');
        }
        escape_into(text, name.as_bytes(), b"/");
        if let Some(value) = value {
            text.push('=');
            escape_into(text, value, b"/");
        }
    }
}

/// The full name of a row: partition key and sort key, both within DynamoDB's limits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pk: String,
    sk: String,
}

impl RowKey {
    /// Checks both parts.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Result<Self, KeyError> {
        let (pk, sk) = (pk.into(), sk.into());
        check_length(
            "the partition key (pk)",
            &pk,
            MAX_PK_BYTES,
            "; the hashed scheme takes keys of any length",
        )?;
        check_length("the sort key (sk)", &sk, MAX_SK_BYTES, "")?;
        Ok(Self { pk, sk })
    }

    /// The partition key.
    pub fn pk(&self) -> &str {
        &self.pk
    }

    /// The sort key.
    pub fn sk(&self) -> &str {
        &self.sk
    }
}

impl RowKey {
    /// What to do about this row when it can't be used. Most rows are made anew when they are gone; those that count
    /// invalidations must not go, or the invalidations would be undone.
    pub fn repair(&self) -> &'static str {
        if self.sk == TAG || self.sk == COUNTER {
            "set its `sequence` above every `tag_sequence` in the table; do not delete it, or pages that were \
             invalidated would be served as fresh"
        } else {
            "repair the row, or delete it: what it says is then made anew"
        }
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.sk.escape_debug(), self.pk.escape_debug())
    }
}

/// The sort key of the metadata row.
pub const META: &str = "META";
/// The sort key of the lease row.
pub const LOCK: &str = "LOCK";
/// The sort key of a tag's row.
pub const TAG: &str = "TAG";
/// The sort key of a counter row.
pub const COUNTER: &str = "COUNTER";
/// What the sort key of a version row begins with.
pub const VERSION_PREFIX: &str = "VER#";
/// What the sort key of an idempotency row begins with.
pub const REQUEST_PREFIX: &str = "REQ#";

/// One cache entry: the partition that its rows share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pk: String,
}

impl Entry {
    /// The entry with this partition key, as found in a row.
    pub fn from_pk(pk: impl Into<String>) -> Result<Self, KeyError> {
        let pk = pk.into();
        check_length(
            "the partition key (pk)",
            &pk,
            MAX_PK_BYTES,
            "; the hashed scheme takes keys of any length",
        )?;
        Ok(Self { pk })
    }

    /// The partition key.
    pub fn pk(&self) -> &str {
        &self.pk
    }

    fn row(&self, sk: impl Into<String>) -> RowKey {
        RowKey { pk: self.pk.clone(), sk: sk.into() }
    }

    /// The metadata row.
    pub fn meta(&self) -> RowKey {
        self.row(META)
    }

    /// The lease row.
    pub fn lock(&self) -> RowKey {
        self.row(LOCK)
    }

    /// A version row.
    pub fn version(&self, id: &VersionId) -> RowKey {
        self.row(id.sk())
    }

    /// An idempotency row.
    pub fn request(&self, key: &IdempotencyKey) -> RowKey {
        self.row(key.sk())
    }

    /// A new body's key, unique to one generation: the entry's own place, when it began, and its lease token.
    pub fn body_key(&self, began: Timestamp, token: &LeaseToken) -> BodyKey {
        BodyKey::for_generation(&self.pk, began, token)
    }
}

/// The counter row of a tenant, or of entries without a tenant.
pub fn counter_row(tenant: Option<&Tenant>) -> RowKey {
    let pk = match tenant {
        None => "TAGS".to_string(),
        Some(tenant) => format!("TENANT#{}#TAGS", tenant.as_str()),
    };
    RowKey { pk, sk: COUNTER.into() }
}

/// A tag's row. Each tag has a partition of its own, so that none is hot.
pub fn tag_row(tenant: Option<&Tenant>, tag: &Tag) -> RowKey {
    let hash = sha256_hex(tag.as_str());
    let pk = match tenant {
        None => format!("TAG#{hash}"),
        Some(tenant) => format!("TENANT#{}#TAG#{hash}", tenant.as_str()),
    };
    RowKey { pk, sk: TAG.into() }
}

/// Defines a checked name with a prefix that makes it a sort key.
macro_rules! sort_key_name {
    ($(#[$doc:meta])* $name:ident, $prefix:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the name: not empty, no control characters, within a sort key's limit.
            pub fn new(name: impl Into<String>) -> Result<Self, KeyError> {
                let name = name.into();
                check_length($what, &name, MAX_SK_BYTES - $prefix.len(), "")?;
                check_characters($what, &name, '\0')?;
                Ok(Self(name))
            }

            /// Reads it from a sort key.
            pub fn from_sk(sk: &str) -> Option<Result<Self, KeyError>> {
                sk.strip_prefix($prefix).map(Self::new)
            }

            /// The sort key of its row.
            pub fn sk(&self) -> String {
                format!("{}{}", $prefix, self.0)
            }

            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

sort_key_name! {
    /// The id of a version row (`VER#<id>`); ids made here sort by age.
    VersionId, VERSION_PREFIX, "the version id"
}

impl VersionId {
    /// The id of the generation that began then under that lease: unique, and sorted by age.
    pub fn for_generation(began: Timestamp, token: &LeaseToken) -> Self {
        Self(format!("{:014}-{}", began.millis().max(0), escape(token.as_str(), b"")))
    }
}

sort_key_name! {
    /// A key that makes one regeneration happen once (`REQ#<key>`).
    IdempotencyKey, REQUEST_PREFIX, "the idempotency key"
}

impl IdempotencyKey {
    /// A key for a trigger that brings none. It names the generation that is to be replaced, so that the next
    /// generation gets another key: without that, the page would be frozen after the first completion.
    ///
    /// `replaces` is what the row said: see [`crate::publish::Revision`].
    pub fn derived(
        entry: &Entry,
        deployment: &str,
        policy: &str,
        replaces: &crate::publish::Revision,
    ) -> Self {
        Self(format!("auto-{}", sha256_parts([entry.pk(), deployment, policy, &replaces.to_string()])))
    }
}

/// The token that shows who holds a lease: a `UUIDv4` when made here, opaque when found.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// A `UUIDv4` from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid().hyphenated().to_string())
    }

    /// A token found in a row, whatever it looks like.
    pub fn from_row(token: impl Into<String>) -> Result<Self, KeyError> {
        let token = token.into();
        check_length("the lease token", &token, 512, "")?;
        Ok(Self(token))
    }

    /// The token's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LeaseToken {
    /// Enough to tell tokens apart in a log, not enough to use one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({}…)", self.0.chars().take(8).collect::<String>())
    }
}

#[cfg(test)]
mod tests;

use super::*;
use crate::key::{CacheKey, Entry, PkScheme};
use alloc::vec;
use proptest::prelude::*;

fn entry() -> Entry {
    CacheKey::new("/posts/42").with_tenant("acme").entry(PkScheme::Hashed).unwrap()
}

fn meta_item() -> Item {
    Item::new()
        .with("pk", entry().pk())
        .with("sk", "META")
        .with("s3_key", "pages/1")
        .with("generated_at", 1_000_i64)
        .with("revalidate_seconds", 60_i64)
}

fn lock_item() -> Item {
    Item::new()
        .with("pk", entry().pk())
        .with("sk", "LOCK")
        .with("lease_token", "t")
        .with("lease_expires_at", 2_000_i64)
}

#[test]
fn a_row_of_wrong_types_gives_an_error_that_names_row_and_attribute() {
    let hash = crate::digest::sha256_hex("/posts/42");
    let error = |item: Item| Lock::from_item(item).unwrap_err().to_string();
    let mut missing = lock_item();
    missing.remove("lease_expires_at");
    assert_eq!(
        error(missing),
        format!(
            "row LOCK of TENANT#acme#CACHE#{hash}: attribute `lease_expires_at` is missing (expected kind N); \
             repair the row, or delete it: what it says is then made anew"
        )
    );
    let wrong = error(lock_item().with("lease_expires_at", "2000"));
    assert!(wrong.contains("attribute `lease_expires_at` is of kind S, expected N"), "{wrong}");
}

#[test]
fn meta_refuses_what_would_do_harm_and_takes_the_rest() {
    for (name, value) in [
        ("s3_key", "../../etc/passwd".into()),
        ("s3_key", "s3://bucket/key.html".into()),
        ("s3_key", Value::Null),
        ("generated_at", "1000".into()),
        ("generated_at", (-1_i64).into()),
        ("revalidate_seconds", Value::Bool(false)),
        ("current_sk", "META".into()),
        ("version", (-1_i64).into()),
        ("http_status", 1000_i64.into()),
        ("http_status", 70_000_i64.into()),
        ("http_headers", "a: b\r\nset-cookie: x".into()),
        ("http_headers", "a b: c".into()),
        ("http_headers", "a".into()),
        ("http_headers", "a: b\n".into()),
        ("http_headers", Value::L(vec!["a: b".into()])),
        ("cache_tags", "a".into()),
        ("body_sha256", "abc".into()),
    ] {
        let result = Meta::from_item(meta_item().with(name, value.clone()));
        let error = result.expect_err(name).to_string();
        assert!(error.starts_with("row META of TENANT#acme#CACHE#"), "{error}");
    }
    for (name, value) in [
        ("generated_at", Value::N("1000.9".parse().unwrap())),
        ("revalidate_seconds", Value::N("59.5".parse().unwrap())),
        ("revalidate_seconds", (-5_i64).into()),
        ("etag", "unquoted".into()),
        ("ttl", 1_i64.into()),
        ("unknown", Value::L(vec![Value::Null])),
    ] {
        assert!(Meta::from_item(meta_item().with(name, value)).is_ok(), "{name}");
    }
}

#[test]
fn what_we_write_is_checked_more_strictly() {
    let meta = Meta::from_item(meta_item()).unwrap();
    let with = |change: fn(&mut Generation)| {
        let mut meta = meta.clone();
        change(&mut meta.generation);
        meta.to_item()
    };
    assert!(with(|_| ()).is_ok());
    assert!(with(|g| g.etag = Some("\"ok\"".into())).is_ok());
    assert!(with(|g| g.etag = Some("W/\"ok\"".into())).is_ok());
    for change in [
        (|g| g.etag = Some("unquoted".into())) as fn(&mut Generation),
        |g| g.ttl = Some(999),
        |g| g.headers.push(Header::new("", "x")),
        |g| g.generated_at = -1,
    ] {
        assert!(with(change).is_err());
    }
    let lock = Lock { ttl: Some(1), ..Lock::from_item(lock_item()).unwrap() };
    assert!(lock.to_item().is_err());
    let mut other = Item::new();
    other.insert("ttl", 5_i64);
    let key = crate::key::counter_row(None);
    assert!(Sequence { key, tag: None, sequence: 1, other }.to_item().is_err(), "a counter must not expire");
}

#[test]
fn nobody_is_told_to_delete_a_row_that_counts_invalidations() {
    let counter = crate::key::counter_row(None);
    let item = |key: &RowKey| Item::new().with("pk", key.pk()).with("sk", key.sk());
    for broken in [item(&counter), item(&counter).with("sequence", "many")] {
        let error = Sequence::from_item(broken).unwrap_err().to_string();
        assert!(error.contains("do not delete it"), "{error}");
    }
    let tag = crate::key::tag_row(None, &Tag::new("a").unwrap());
    let nameless = Sequence::from_item(item(&tag).with("sequence", 5_i64)).unwrap_err().to_string();
    assert!(nameless.contains("`tag` is missing") && nameless.contains("do not delete it"), "{nameless}");
}

#[test]
fn a_row_of_another_kind_is_not_taken_for_this_one() {
    assert!(Lock::from_item(meta_item()).is_err());
    assert!(Meta::from_item(lock_item()).is_err());
    assert!(Version::from_item(meta_item()).is_err());
    assert!(Request::from_item(meta_item()).is_err());
    assert!(Meta::from_item(Item::new().with("pk", "x")).is_err());
}

fn number() -> impl Strategy<Value = Number> {
    (any::<bool>(), 0..10u128.pow(30), -10i16..10).prop_filter_map("range", |(negative, digits, exponent)| {
        format!("{}{digits}E{exponent}", if negative { "-" } else { "" }).parse().ok()
    })
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        ".{0,8}".prop_map(Value::S),
        number().prop_map(Value::N),
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(Value::B),
        any::<bool>().prop_map(Value::Bool),
        Just(Value::Null),
        proptest::collection::btree_set(".{0,4}", 1..3).prop_map(Value::Ss),
        proptest::collection::btree_set(number(), 1..3).prop_map(Value::Ns),
        proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..4), 1..3)
            .prop_map(Value::Bs),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::L),
            proptest::collection::btree_map(".{0,4}", inner, 0..3).prop_map(Value::M),
        ]
    })
}

/// Attributes of others, under names that none of ours has.
fn other() -> impl Strategy<Value = Item> {
    proptest::collection::btree_map("x_[a-z]{1,4}", value(), 0..4).prop_map(|map| map.into_iter().collect())
}

prop_compose! {
    fn generation()(
        body in "[a-z]{1,8}/[0-9]{1,4}", generated_at in 0..i64::from(u32::MAX), window in number(),
        etag in proptest::option::of("(W/)?\"[a-z0-9]{0,8}\""), retention in proptest::option::of(0..1_000_000i64),
        status in proptest::option::of(100u16..1000), headers in proptest::collection::vec(("[a-z-]{1,8}", "[ -~]{0,8}", any::<bool>()), 0..3),
        tags in proptest::collection::btree_set("[a-z:0-9]{1,6}", 0..3), seen in proptest::option::of(any::<u64>()),
        bytes in proptest::option::of(any::<u64>()), token in proptest::option::of(any::<[u8; 16]>()),
    ) -> Generation {
        let window = Window::from_number(if window.is_negative() { Number::ZERO } else { window });
        let mut generation = Generation::new(BodyKey::new(body).unwrap(), generated_at, window);
        generation.etag = etag;
        generation.ttl = retention.map(|retention| generated_at + retention);
        generation.status = status;
        generation.headers = headers.into_iter().map(|(name, value, binary)| {
            Header::new(name, if binary { vec![0xff, 0xfe] } else { value.into_bytes() })
        }).collect();
        generation.tags = tags.into_iter().map(|tag| Tag::new(tag).unwrap()).collect();
        generation.tag_sequence = seen;
        generation.body_bytes = bytes;
        generation.body_sha256 = bytes.map(|bytes| crate::digest::sha256_hex(bytes.to_be_bytes()));
        generation.token = token.map(LeaseToken::from_random);
        generation
    }
}

fn round_trips<R: Row + PartialEq + core::fmt::Debug>(row: &R) -> Result<(), TestCaseError> {
    let item = row.to_item().map_err(|error| TestCaseError::fail(error.to_string()))?;
    let back = R::from_item(item.clone()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&back, row);
    prop_assert_eq!(back.to_item(), Ok(item));
    Ok(())
}

proptest! {
    #[test]
    fn meta_and_version_rows_round_trip(
        generation in generation(), version in proptest::option::of(any::<u64>()), current: bool,
        invalidated_at in proptest::option::of(0..i64::MAX), held_until in proptest::option::of(0..i64::MAX), other in other(),
    ) {
        let id = VersionId::new("00000001763200-abc").unwrap();
        let key = entry().version(&id);
        round_trips(&Version { key, id: id.clone(), generation: generation.clone(), other: other.clone() })?;
        let current = current.then_some(id);
        round_trips(&Meta { key: entry().meta(), generation, version, current, invalidated_at, held_until, other })?;
    }

    #[test]
    fn lock_request_and_sequence_rows_round_trip(
        expires_at in 0..i64::MAX / 2, token in any::<[u8; 16]>(), owner in proptest::option::of(".{0,8}"),
        failures in 0..5u64, failed in proptest::option::of(0..i64::MAX), status in 0..3usize, other in other(), sequence: u64,
    ) {
        let token = LeaseToken::from_random(token);
        let ttl = Some(expires_at + 3600);
        let key = entry().lock();
        round_trips(&Lock { key, token: token.clone(), expires_at, ttl, owner, failures, failed_at: failed, other: other.clone() })?;

        let idempotency_key = IdempotencyKey::new("req-1").unwrap();
        round_trips(&Request {
            key: entry().request(&idempotency_key),
            idempotency_key,
            request_hash: "h".into(),
            status: [RequestStatus::Started, RequestStatus::Completed, RequestStatus::Failed][status],
            ttl: expires_at,
            result: (status == 1).then(|| BodyKey::new("a/b").unwrap()),
            attempt_token: (status == 0).then_some(token),
            attempt_expires_at: (status == 0).then_some(expires_at),
            other: other.clone(),
        })?;

        let tag = Tag::new("post:42").unwrap();
        round_trips(&Sequence { key: crate::key::tag_row(None, &tag), tag: Some(tag), sequence, other })?;
    }

    #[test]
    fn no_item_makes_reading_panic(
        sk in "(META|LOCK|VER#a|REQ#a|TAG)", attributes in proptest::collection::vec((0..30usize, value()), 0..12),
    ) {
        const NAMES: [&str; 30] = [
            attr::TTL, attr::S3_KEY, attr::GENERATED_AT, attr::REVALIDATE_SECONDS, attr::ETAG, attr::CURRENT_SK,
            attr::VERSION, attr::LEASE_TOKEN, attr::LEASE_EXPIRES_AT, attr::REQUEST_HASH, attr::STATUS,
            attr::RESULT_S3_KEY, attr::HTTP_STATUS, attr::HTTP_HEADERS, attr::CACHE_TAGS, attr::TAG_SEQUENCE,
            attr::BODY_SHA256, attr::BODY_BYTES, attr::GENERATION, attr::INVALIDATED_AT, attr::HELD_UNTIL, attr::OWNER,
            attr::FAILURES, attr::FAILED_AT, attr::ATTEMPT_TOKEN, attr::ATTEMPT_EXPIRES_AT, attr::TAG, attr::SEQUENCE,
            "x", "y",
        ];
        let mut item = Item::new().with("pk", "p").with("sk", sk);
        for (index, value) in attributes {
            item.insert(NAMES[index], value);
        }
        let _ = Meta::from_item(item.clone());
        let _ = Lock::from_item(item.clone());
        let _ = Version::from_item(item.clone());
        let _ = Request::from_item(item.clone());
        let _ = Sequence::from_item(item);
    }
}

//! Rows as foreign services write them, and as this release does: see `tests/golden/README.md`.

use perennial_core::expr::Update;
use perennial_core::item::{Item, Value};
use perennial_core::key::{CacheKey, Entry, IdempotencyKey, LeaseToken, PkScheme, Tag, VersionId};
use perennial_core::schema::{
    Generation, Header, Lock, Meta, Request, RequestStatus, Row, Sequence, Version, Window,
};
use perennial_core::{body_key::BodyKey, key, time::Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const LANGUAGES: [&str; 3] = ["go", "typescript", "python"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn read(name: &str) -> Item {
    let text = std::fs::read_to_string(golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let json: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    json.iter().map(|(name, value)| (name.clone(), from_json(value))).collect()
}

/// DynamoDB's JSON, as far as rows of the contract use it.
fn from_json(json: &serde_json::Value) -> Value {
    let (kind, value) = json.as_object().and_then(|object| object.iter().next()).expect("one kind");
    let text = || value.as_str().expect("a text").to_string();
    match kind.as_str() {
        "S" => Value::S(text()),
        "N" => Value::N(text().parse().unwrap()),
        "L" => Value::L(value.as_array().unwrap().iter().map(from_json).collect()),
        "SS" => Value::Ss(value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().into()).collect()),
        other => panic!("{other} does not occur in the contract's rows"),
    }
}

fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::S(text) => serde_json::json!({ "S": text }),
        Value::N(number) => serde_json::json!({ "N": number.to_string() }),
        Value::L(values) => serde_json::json!({ "L": values.iter().map(to_json).collect::<Vec<_>>() }),
        Value::Ss(set) => serde_json::json!({ "SS": set }),
        other => panic!("{other:?} does not occur in the contract's rows"),
    }
}

/// Reads a golden row and checks that writing it gives the same attributes back.
fn same_back<R: Row>(name: &str) -> R {
    let item = read(name);
    let row = R::from_item(item.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(row.to_item().unwrap(), item, "{name}");
    row
}

#[test]
fn foreign_meta_rows_are_read_and_written_back_to_the_letter() {
    for language in LANGUAGES {
        let full: Meta = same_back(&format!("{language}/meta_full.json"));
        assert_eq!(full.generation.etag.as_deref(), Some("\"abc123\""));
        assert_eq!(full.generation.window, Window::from_seconds(60));
        assert_eq!(full.generation.ttl, Some(1_763_286_400));

        let minimal: Meta = same_back(&format!("{language}/meta_minimal.json"));
        assert_eq!((minimal.generation.etag, minimal.generation.ttl), (None, None));
        assert_eq!(minimal.version, None);

        let pointer: Meta = same_back(&format!("{language}/meta_pointer.json"));
        assert!(pointer.current.is_some() && pointer.version.is_some());
        let version: Version = same_back(&format!("{language}/ver.json"));
        assert_eq!(pointer.current, Some(version.id));
    }
}

#[test]
fn foreign_lock_rows_are_read_and_written_back_to_the_letter() {
    for language in LANGUAGES {
        let lock: Lock = same_back(&format!("{language}/lock.json"));
        assert_eq!(lock.ttl, Some(lock.expires_at + 3600));
        assert!(lock.is_held(Timestamp::from_seconds(lock.expires_at - 1)));
        assert!(!lock.is_held(Timestamp::from_seconds(lock.expires_at)));
        assert_eq!(same_back::<Lock>(&format!("{language}/lock_without_ttl.json")).ttl, None);
    }
}

#[test]
fn foreign_request_rows_are_read_and_written_back_to_the_letter() {
    for language in LANGUAGES {
        for (name, status) in [
            ("req_started", RequestStatus::Started),
            ("req_completed", RequestStatus::Completed),
            ("req_failed", RequestStatus::Failed),
        ] {
            let request: Request = same_back(&format!("{language}/{name}.json"));
            assert_eq!(request.status, status);
            assert_eq!(request.result.is_some(), status == RequestStatus::Completed);
        }
    }
}

#[test]
fn a_fractional_window_and_a_raw_key_of_typescript_are_read() {
    let meta: Meta = same_back("typescript/meta_fractional.json");
    assert_eq!(meta.generation.window.millis(), 59_500);
    let raw: Meta = same_back("typescript/meta_raw_key.json");
    let ours = CacheKey::new("default::/x/{id}?id=7&a=1&b=2").entry(PkScheme::Raw).unwrap();
    assert_eq!(raw.key, ours.meta());
}

#[test]
fn attributes_that_we_do_not_know_survive_a_rewrite_and_an_update() {
    for language in LANGUAGES {
        let foreign = read(&format!("{language}/meta_full.json"))
            .with("team", "growth")
            .with("flags", Value::M(BTreeMap::from([("beta".to_string(), Value::Bool(true))])));
        let rewritten = Meta::from_item(foreign.clone()).unwrap().to_item().unwrap();
        assert_eq!(rewritten, foreign);
        let mut updated = foreign.clone();
        Update::new().set("s3_key", "pages/2").apply(&mut updated).unwrap();
        assert_eq!((updated.get("team"), updated.get("flags")), (foreign.get("team"), foreign.get("flags")));
    }
}

/// The rows of this release. When one of these changes, the format has changed: add new files, keep the old ones.
fn ours() -> Vec<(&'static str, Item)> {
    let entry: Entry = CacheKey::new("/posts/42").with_tenant("acme").entry(PkScheme::Hashed).unwrap();
    let began = Timestamp::from_millis(1_763_200_000_123);
    let token = LeaseToken::from_random([0x42; 16]);
    let tag = Tag::new("post:42").unwrap();
    let id = VersionId::for_generation(began, &token);
    let generation = Generation {
        etag: Some("\"abc123\"".into()),
        ttl: Some(1_763_286_400),
        status: Some(200),
        headers: vec![Header::new("content-type", "text/html; charset=utf-8"), Header::new("link", "</a>")],
        tags: BTreeSet::from([tag.clone()]),
        tag_sequence: Some(7),
        body_sha256: Some(perennial_core::digest::sha256_hex("hello")),
        body_bytes: Some(5),
        token: Some(token.clone()),
        ..Generation::new(entry.body_key(began, &token), began.seconds(), Window::from_seconds(60))
    };
    let idempotency_key = IdempotencyKey::new("req-7f3a").unwrap();
    let other = Item::new();
    let request = Request {
        key: entry.request(&idempotency_key),
        idempotency_key,
        request_hash: perennial_core::idempotency::request_hash([("tenant", b"acme".as_slice())]),
        status: RequestStatus::Started,
        ttl: 1_763_286_400,
        result: None,
        attempt_token: Some(token.clone()),
        attempt_expires_at: Some(1_763_200_006),
        other: other.clone(),
    };
    let completed = Request {
        status: RequestStatus::Completed,
        result: Some(BodyKey::new(generation.body.as_str()).unwrap()),
        attempt_expires_at: None,
        ..request.clone()
    };
    let meta = Meta {
        key: entry.meta(),
        generation: generation.clone(),
        version: Some(3),
        current: Some(id.clone()),
        invalidated_at: None,
        held_until: None,
        other: other.clone(),
    };
    let lock = Lock {
        key: entry.lock(),
        token: token.clone(),
        expires_at: 1_763_200_006,
        ttl: Some(1_763_203_606),
        owner: Some("web-1".into()),
        failures: 0,
        failed_at: None,
        other: other.clone(),
    };
    let cooling = Lock { failures: 2, failed_at: Some(1_763_200_002), ..lock.clone() };
    let sequence = |key, tag| Sequence { key, tag, sequence: 7, other: other.clone() };
    let version = Version { key: entry.version(&id), id, generation, other: other.clone() };
    let tenant = key::Tenant::new("acme").unwrap();
    let items = [
        ("meta", meta.to_item()),
        ("ver", version.to_item()),
        ("lock", lock.to_item()),
        ("lock_cooling_down", cooling.to_item()),
        ("req_started", request.to_item()),
        ("req_completed", completed.to_item()),
        ("tag", sequence(key::tag_row(Some(&tenant), &tag), Some(tag)).to_item()),
        ("counter", sequence(key::counter_row(Some(&tenant)), None).to_item()),
    ];
    items.into_iter().map(|(name, item)| (name, item.unwrap())).collect()
}

#[test]
fn our_own_rows_are_what_they_were() {
    for (name, item) in ours() {
        let path = format!("perennial/{name}.json");
        // `UPDATE_GOLDEN=1 cargo test` writes files that are not there yet; it never changes one.
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !golden(&path).exists() {
            let json: BTreeMap<_, _> = item.iter().map(|(name, value)| (name, to_json(value))).collect();
            std::fs::write(golden(&path), serde_json::to_string_pretty(&json).unwrap() + "\n").unwrap();
        }
        assert_eq!(read(&path), item, "{name}");
    }
}

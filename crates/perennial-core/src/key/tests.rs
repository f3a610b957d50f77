use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

#[test]
fn partition_keys_follow_the_contract() {
    let hash = sha256_hex("/posts/42");
    let key = CacheKey::new("/posts/42");
    assert_eq!(key.entry(PkScheme::Hashed).unwrap().pk(), format!("CACHE#{hash}"));
    assert_eq!(
        key.clone().with_tenant("acme").entry(PkScheme::Hashed).unwrap().pk(),
        format!("TENANT#acme#CACHE#{hash}")
    );
    let raw = CacheKey::new("default::/x/{id}?id=7&a=1&b=2").entry(PkScheme::Raw).unwrap();
    assert_eq!(raw.pk(), "CACHE#default::/x/{id}?id=7&a=1&b=2");
}

#[test]
fn tenants_that_could_cross_a_border_are_refused() {
    for tenant in ["", "a#b", "#", "a\nb", "a\0", "\u{7f}", &"x".repeat(1025)] {
        assert!(Tenant::new(tenant).is_err(), "{tenant:?}");
        assert!(CacheKey::new("/").with_tenant(tenant).entry(PkScheme::Hashed).is_err(), "{tenant:?}");
    }
    for tenant in ["acme", "a b", "ü", "a/b", &"x".repeat(1024)] {
        assert!(Tenant::new(tenant).is_ok(), "{tenant:?}");
    }
}

#[test]
fn sizes_are_checked_and_the_message_says_what_to_do() {
    let long = CacheKey::new("x".repeat(3000));
    assert!(long.entry(PkScheme::Hashed).is_ok());
    let message = long.entry(PkScheme::Raw).unwrap_err().to_string();
    assert!(message.contains("3006 bytes") && message.contains("hashed scheme"), "{message}");
    assert_eq!(CacheKey::new("").entry(PkScheme::Hashed), Err(KeyError::Empty { what: "the cache key" }));
    assert!(CacheKey::new("x".repeat(MAX_KEY_BYTES + 1)).entry(PkScheme::Hashed).is_err());
    assert!(IdempotencyKey::new("k".repeat(1020)).is_ok());
    assert!(IdempotencyKey::new("k".repeat(1021)).is_err());
    assert!(IdempotencyKey::new("a\nb").is_err());
}

#[test]
fn a_raw_key_never_takes_the_rows_of_a_hashed_one() {
    let victim = CacheKey::new("/posts/42");
    let attacker = CacheKey::new(sha256_hex("/posts/42"));
    assert_eq!(attacker.entry(PkScheme::Raw), Err(KeyError::LooksHashed));
    assert_ne!(attacker.entry(PkScheme::Hashed), victim.entry(PkScheme::Hashed));
}

#[test]
fn the_text_of_a_key_is_readable() {
    let key = KeyParts::new("GET", "/posts/42")
        .scheme("https")
        .host("example.com:8443")
        .query("page", Some(b"2"))
        .vary("accept-language", Some(b"de"))
        .vary("x-missing", None)
        .build();
    assert_eq!(
        key.text(),
        "GET https example.com:8443 /posts/42 query:page=2 vary:accept-language=de&x-missing"
    );
}

#[test]
fn a_secret_enters_only_as_a_digest() {
    let key = KeyParts::new("GET", "/").secret("authorization", Some(b"Bearer hunter2")).build();
    assert!(!key.text().contains("hunter2"), "{}", key.text());
    assert_ne!(key, KeyParts::new("GET", "/").secret("authorization", Some(b"Bearer hunter3")).build());
}

#[test]
fn rule_14_known_collisions_of_the_original_are_gone() {
    let get = || KeyParts::new("GET", "/c/{rest*}");
    // The method is part of the key.
    assert_ne!(get().build(), KeyParts::new("POST", "/c/{rest*}").build());
    // A query parameter can't pose as a path parameter.
    assert_ne!(get().param("rest", "admin").build(), get().query("rest", Some(b"admin")).build());
    // A cookie with a newline is not two cookies.
    assert_ne!(
        get().secret("a", Some(b"1\nb=2")).build(),
        get().secret("a", Some(b"1")).secret("b", Some(b"2")).build()
    );
    // Of several cookies or header lines, each counts.
    let cookies =
        |user: &[u8]| get().secret("cookie", Some(user)).secret("cookie", Some(b"theme=dark")).build();
    assert_ne!(cookies(b"user=alice"), cookies(b"user=bob"));
    let lines = |one: &[u8]| get().vary("accept", Some(one)).vary("accept", Some(b"text/html")).build();
    assert_ne!(lines(b"a/b"), lines(b"c/d"));
    // A missing value is not an empty one, and a dash is not a missing field.
    assert_ne!(get().query("a", None).build(), get().query("a", Some(b"")).build());
    assert_ne!(get().host("-").build(), get().build());
}

#[test]
fn the_order_of_names_does_not_matter_but_that_of_values_does() {
    let get = || KeyParts::new("GET", "/");
    assert_eq!(
        get().query("a", Some(b"1")).query("b", Some(b"2")).build(),
        get().query("b", Some(b"2")).query("a", Some(b"1")).build()
    );
    assert_ne!(
        get().query("a", Some(b"1")).query("a", Some(b"2")).build(),
        get().query("a", Some(b"2")).query("a", Some(b"1")).build()
    );
}

#[test]
fn a_derived_idempotency_key_names_what_it_replaces() {
    use crate::publish::Revision;
    let entry = CacheKey::new("/").entry(PkScheme::Hashed).unwrap();
    let key = |revision| IdempotencyKey::derived(&entry, "deploy-1", "p1", &revision);
    let absent = key(Revision::Absent);
    let first = key(Revision::Version(1_u64.into()));
    let second = key(Revision::Version(2_u64.into()));
    assert_ne!(absent, first);
    assert_ne!(first, second);
    assert_eq!(first, key(Revision::Version(1_u64.into())));
    assert_ne!(first, IdempotencyKey::derived(&entry, "deploy-1p", "1", &Revision::Version(1_u64.into())));
}

#[test]
fn tokens_are_uuids_and_stay_out_of_logs() {
    let token = LeaseToken::from_random([0xff; 16]);
    assert_eq!(token.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    assert_eq!(format!("{token:?}"), "LeaseToken(ffffffff…)");
}

#[test]
fn version_ids_sort_by_age() {
    let token = LeaseToken::from_random([9; 16]);
    let id = |millis| VersionId::for_generation(Timestamp::from_millis(millis), &token);
    assert!(id(999) < id(1_000));
    assert!(id(1_763_200_000_000) < id(10_000_000_000_000));
    assert_eq!(VersionId::from_sk(&id(5).sk()), Some(Ok(id(5))));
    assert_eq!(VersionId::from_sk("META"), None);
}

/// What a key is made of, in a form that two equal requests share.
type Identity = (String, Option<String>, Option<String>, String, [BTreeMap<String, Vec<Option<Vec<u8>>>>; 4]);

fn identity(parts: &KeyParts) -> Identity {
    let group = |pairs: &[Pair]| {
        let mut map: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
        for (name, value) in pairs {
            map.entry(name.clone()).or_default().push(value.clone());
        }
        map
    };
    (
        parts.method.clone(),
        parts.scheme.clone(),
        parts.host.clone(),
        parts.path.clone(),
        [group(&parts.params), group(&parts.query), group(&parts.vary), group(&parts.secrets)],
    )
}

/// Names and values over a small alphabet of the characters that separate things, so that collisions would show.
fn tricky() -> impl Strategy<Value = String> {
    "[a=&:%#? /\n-]{0,3}"
}

prop_compose! {
    fn parts()(
        method in tricky(), scheme in proptest::option::of(tricky()), host in proptest::option::of(tricky()),
        path in tricky(), pairs in proptest::collection::vec((0..4u8, tricky(), proptest::option::of(tricky())), 0..4),
    ) -> KeyParts {
        let mut parts = KeyParts { scheme, host, ..KeyParts::new(method, path) };
        for (kind, name, value) in pairs {
            let value = value.as_deref().map(str::as_bytes);
            parts = match kind {
                0 => parts.param(name, value.unwrap_or_default()),
                1 => parts.query(name, value),
                2 => parts.vary(name, value),
                _ => parts.secret(name, value),
            };
        }
        parts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn rule_14_distinct_inputs_never_give_one_key(a in parts(), b in parts()) {
        prop_assert_eq!(identity(&a) == identity(&b), a.build() == b.build(), "{} / {}", a.build().text(), b.build().text());
    }

    #[test]
    fn rule_14_no_two_tenants_share_a_row(
        a in "[a-c#]{1,3}", b in "[a-c#]{1,3}", key_a in "[a-c#]{1,3}", key_b in "[a-c#]{1,3}", raw: bool,
    ) {
        let scheme = if raw { PkScheme::Raw } else { PkScheme::Hashed };
        let entry = |tenant: &str, key: &str| CacheKey::new(key).with_tenant(tenant).entry(scheme);
        if let (Ok(x), Ok(y)) = (entry(&a, &key_a), entry(&b, &key_b)) {
            prop_assert_eq!(x == y, (&a, &key_a) == (&b, &key_b));
            prop_assert_ne!(CacheKey::new(key_a.as_str()).entry(scheme).unwrap(), x);
        }
    }
}

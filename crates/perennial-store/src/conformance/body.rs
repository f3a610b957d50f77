//! What every store of bodies does.
#![allow(clippy::missing_panics_doc, reason = "a test fails by a panic")]

/// Expands to the tests of a store of bodies.
#[macro_export]
macro_rules! body_conformance {
    ($make:expr) => {
        $crate::__conformance_tests! {
            body, $make,
            what_is_put_is_what_is_got
            a_stream_of_odd_pieces_is_put_together
            attributes_come_back
            what_was_written_is_told
            rule_08_a_body_is_never_overwritten
            rule_08_concurrent_puts_of_one_key_have_one_winner
            a_source_that_fails_leaves_nothing
            rule_13_a_missing_body_is_an_answer_not_an_error
            delete_can_be_repeated
            a_deleted_key_can_be_put_again
            rule_13_a_reader_goes_on_when_its_body_is_deleted
            an_empty_store_lists_nothing
            pages_show_every_body_once
            rule_13_a_sweep_can_delete_what_a_page_showed
            keys_are_told_apart
            many_bodies_can_be_put_at_once
        }
    };
}

use super::Fixture;
use crate::body::{
    Body, BodyAttributes, BodyEntry, BodyInfo, BodyStore, BodyStoreExt as _, BodyStream, Found, Put,
};
use crate::faulty::SplitMix64;
use crate::{Clock as _, ErrorKind, SystemClock};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use perennial_core::body_key::BodyKey;
use perennial_core::digest::sha256_hex;
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

/// Bodies of no byte, of one, and of more than fit into one piece.
pub async fn what_is_put_is_what_is_got(bodies: &Fixture<dyn BodyStore>) {
    for length in [0, 1, 255, 70_001, 1 << 20, (1 << 20) + 1, 3 << 20] {
        let (key, body) = (key(&format!("pages/{length}")), noise(length));
        put(bodies, &key, &body).await;
        let found = get(bodies, &key).await.expect("it was put");
        assert_eq!(found.bytes, length as u64);
        assert!(read(found).await == body, "{length} bytes come back");
    }
}

/// The pieces of a source need not be of one size, and may be empty.
pub async fn a_stream_of_odd_pieces_is_put_together(bodies: &Fixture<dyn BodyStore>) {
    let body = noise(3 << 20);
    let mut rest = body.clone();
    let mut pieces = Vec::new();
    for length in [1, 0, 13, 4095, 262_144, 70_001, 262_143, 1].into_iter().cycle() {
        pieces.push(Ok(rest.split_to(length.min(rest.len()))));
        if rest.is_empty() {
            break;
        }
    }
    let done = bodies.put(&key("odd"), &BodyAttributes::default(), source(pieces)).await;
    assert_eq!(done.expect("put"), Put::Created(info(&body)));
    assert!(get_bytes(bodies, &key("odd")).await.as_ref() == Some(&body));
}

/// What is kept beside a body is there when it is read.
pub async fn attributes_come_back(bodies: &Fixture<dyn BodyStore>) {
    let attributes = BodyAttributes {
        content_type: Some("text/html; charset=utf-8".into()),
        cache_control: Some("public, max-age=60".into()),
        metadata: [("deployment", "d-1"), ("tenant", "acme")].map(|(k, v)| (k.into(), v.into())).into(),
    };
    bodies.put_bytes(&key("page"), &attributes, noise(100)).await.expect("put");
    let found = get(bodies, &key("page")).await.expect("it was put");
    assert_eq!(found.attributes, attributes);
}

/// Writing tells the length and the checksum.
pub async fn what_was_written_is_told(bodies: &Fixture<dyn BodyStore>) {
    let done =
        bodies.put_bytes(&key("abc"), &BodyAttributes::default(), Bytes::from("abc")).await.expect("put");
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into();
    assert_eq!(done, Put::Created(BodyInfo { bytes: 3, sha256 }));
}

/// The second writer of a key is told so, and changes nothing.
pub async fn rule_08_a_body_is_never_overwritten(bodies: &Fixture<dyn BodyStore>) {
    let first = Bytes::from("first");
    put(bodies, &key("page"), &first).await;
    let other = BodyAttributes { content_type: Some("text/plain".into()), ..BodyAttributes::default() };
    for second in ["second", "first", ""] {
        let done = bodies.put_bytes(&key("page"), &other, Bytes::from(second)).await;
        assert_eq!(done.expect("put"), Put::Exists);
        let found = get(bodies, &key("page")).await.expect("it was put");
        assert_ne!(found.attributes, other);
        assert_eq!(read(found).await, first);
    }
}

/// Of several writers at once, one is told that it wrote, and it did.
pub async fn rule_08_concurrent_puts_of_one_key_have_one_winner(bodies: &Fixture<dyn BodyStore>) {
    for round in 0..8 {
        let key = key(&format!("pages/{round}"));
        let candidates: Vec<Bytes> = (1..=8).map(|writer| noise(writer * 40_000)).collect();
        let attributes = BodyAttributes::default();
        let done =
            join_all(candidates.iter().map(|body| bodies.put_bytes(&key, &attributes, body.clone()))).await;
        let done: Vec<Put> = done.into_iter().map(|put| put.expect("put")).collect();
        let found = get_bytes(bodies, &key).await.expect("someone put it");
        for (body, put) in candidates.iter().zip(done) {
            assert_eq!(put, if *body == found { Put::Created(info(body)) } else { Put::Exists });
        }
    }
}

/// A body is there whole or not at all.
pub async fn a_source_that_fails_leaves_nothing(bodies: &Fixture<dyn BodyStore>) {
    let failure = || Err(io::Error::other("the renderer died"));
    for pieces in [vec![failure()], vec![Ok(noise(10)), failure()], vec![Ok(noise(1 << 20)), failure()]] {
        let done = bodies.put(&key("page"), &BodyAttributes::default(), source(pieces)).await;
        let error = done.expect_err("the source failed");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("the renderer died"), "{error}");
        assert!(get(bodies, &key("page")).await.is_none());
        assert_eq!(list(bodies, 10).await, []);
    }
    put(bodies, &key("page"), &noise(10)).await;
}

/// A reader that meets a missing body treats the entry as missing.
pub async fn rule_13_a_missing_body_is_an_answer_not_an_error(bodies: &Fixture<dyn BodyStore>) {
    assert!(matches!(bodies.get(&key("page")).await, Ok(Found::Missing)));
    put(bodies, &key("page"), &noise(10)).await;
    for near in ["pag", "page2", "page/1", "Page"] {
        assert!(matches!(bodies.get(&key(near)).await, Ok(Found::Missing)), "{near}");
    }
}

/// A sweep may come by twice.
pub async fn delete_can_be_repeated(bodies: &Fixture<dyn BodyStore>) {
    bodies.delete(&key("page")).await.expect("nothing to delete is fine");
    put(bodies, &key("page"), &noise(10)).await;
    put(bodies, &key("other"), &noise(11)).await;
    for _ in 0..2 {
        bodies.delete(&key("page")).await.expect("delete");
        assert!(get(bodies, &key("page")).await.is_none());
    }
    assert_eq!(get_bytes(bodies, &key("other")).await, Some(noise(11)));
    assert_eq!(list(bodies, 10).await.len(), 1);
}

/// Nothing remains of a deleted body.
pub async fn a_deleted_key_can_be_put_again(bodies: &Fixture<dyn BodyStore>) {
    for length in [2000, 10, 0] {
        put(bodies, &key("page"), &noise(length)).await;
        assert_eq!(get_bytes(bodies, &key("page")).await, Some(noise(length)));
        bodies.delete(&key("page")).await.expect("delete");
    }
}

/// A sweep does not cut off an answer that is under way.
pub async fn rule_13_a_reader_goes_on_when_its_body_is_deleted(bodies: &Fixture<dyn BodyStore>) {
    let body = noise(3 << 20);
    put(bodies, &key("page"), &body).await;
    let mut stream = get(bodies, &key("page")).await.expect("it was put").stream;
    let mut whole = stream.try_next().await.expect("the first piece").expect("there is one").to_vec();
    bodies.delete(&key("page")).await.expect("delete");
    while let Some(piece) = stream.try_next().await.expect("the next piece") {
        whole.extend(piece);
    }
    assert!(whole == body);
    assert!(get(bodies, &key("page")).await.is_none());
}

/// Nothing there is an empty last page.
pub async fn an_empty_store_lists_nothing(bodies: &Fixture<dyn BodyStore>) {
    let page = bodies.list(None, 10).await.expect("list");
    assert_eq!((page.bodies, page.next), (vec![], None));
}

/// However small the pages are, each body shows once, with its length and a time.
pub async fn pages_show_every_body_once(bodies: &Fixture<dyn BodyStore>) {
    for number in 0..20 {
        put(bodies, &key(&format!("pages/{number}")), &noise(number)).await;
    }
    let now = SystemClock.now();
    for limit in [0, 1, 3, 7, 20, 1000, usize::MAX] {
        let mut entries = list(bodies, limit).await;
        entries.sort_by_key(|entry| entry.bytes);
        assert_eq!(entries.len(), 20, "with pages of {limit}");
        for (number, entry) in entries.iter().enumerate() {
            assert_eq!((entry.key.as_str(), entry.bytes), (&*format!("pages/{number}"), number as u64));
            let off = entry.written.since(now).max(now.since(entry.written));
            assert!(off < Duration::from_secs(3600), "{} was written just now", entry.written);
        }
    }
}

/// Deleting what a page showed does not hide what the next page would.
pub async fn rule_13_a_sweep_can_delete_what_a_page_showed(bodies: &Fixture<dyn BodyStore>) {
    for number in 0..20 {
        put(bodies, &key(&format!("pages/{number}")), &noise(number)).await;
    }
    let (mut after, mut deleted) = (None, 0);
    for _ in 0..100 {
        let page = bodies.list(after.as_deref(), 3).await.expect("list");
        for entry in &page.bodies {
            bodies.delete(&entry.key).await.expect("delete");
            deleted += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(deleted, 20);
    assert_eq!(list(bodies, 10).await, []);
}

/// Every key that is allowed works, and no two of them meet.
pub async fn keys_are_told_apart(bodies: &Fixture<dyn BodyStore>) {
    let odd = "a a/b a/b/c a.b a-b a%2Fb a%2fb a% % a+b A A/b a/B é e\u{301} 日本/語 🦀 a?b#c&d=e * ~ ... a..b CON tmp \
               FORMAT '\"<>| 0:1";
    let long = ["k".repeat(1024), "k".repeat(1023) + "x", "s/".repeat(511) + "t", "ü".repeat(512)];
    let spaced = ["a b", " a", "a "];
    let keys: Vec<BodyKey> =
        odd.split_whitespace().chain(long.iter().map(String::as_str)).chain(spaced).map(key).collect();
    let body = |key: &BodyKey| Bytes::from(format!("the body of {key}"));
    for key in &keys {
        put(bodies, key, &body(key)).await;
    }
    for key in &keys {
        assert_eq!(get_bytes(bodies, key).await, Some(body(key)), "{key}");
    }
    let listed: BTreeSet<BodyKey> = list(bodies, 5).await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(listed, keys.iter().cloned().collect());
    for deleted in keys.iter().step_by(2) {
        bodies.delete(deleted).await.expect("delete");
    }
    for (position, key) in keys.iter().enumerate() {
        assert_eq!(get(bodies, key).await.is_some(), position % 2 == 1, "{key}");
    }
}

/// Writers of different keys do not get into each other's way.
pub async fn many_bodies_can_be_put_at_once(bodies: &Fixture<dyn BodyStore>) {
    let pages: Vec<(BodyKey, Bytes)> =
        (0..64).map(|n| (key(&format!("pages/{n}")), noise(n * 1000))).collect();
    join_all(pages.iter().map(|(key, body)| put(bodies, key, body))).await;
    for (key, body) in &pages {
        assert!(get_bytes(bodies, key).await.as_ref() == Some(body), "{key}");
    }
    assert_eq!(list(bodies, 10).await.len(), 64);
}

fn key(text: &str) -> BodyKey {
    BodyKey::new(text).expect("the suite's keys are valid")
}

/// So many bytes that look random, the same each time.
fn noise(length: usize) -> Bytes {
    let mut random = SplitMix64(length as u64);
    std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(length).collect()
}

fn source(pieces: Vec<io::Result<Bytes>>) -> BodyStream {
    stream::iter(pieces).boxed()
}

fn info(body: &Bytes) -> BodyInfo {
    BodyInfo { bytes: body.len() as u64, sha256: sha256_hex(body) }
}

async fn put(bodies: &Fixture<dyn BodyStore>, key: &BodyKey, body: &Bytes) {
    let done = bodies.put_bytes(key, &BodyAttributes::default(), body.clone()).await;
    assert_eq!(done.expect("put"), Put::Created(info(body)), "{key}");
}

async fn get(bodies: &Fixture<dyn BodyStore>, key: &BodyKey) -> Option<Body> {
    match bodies.get(key).await.expect("get") {
        Found::Body(body) => Some(body),
        Found::Missing => None,
        Found::Damaged(damage) => panic!("{damage}"),
    }
}

async fn read(body: Body) -> Bytes {
    body.into_bytes().await.expect("read")
}

async fn get_bytes(bodies: &Fixture<dyn BodyStore>, key: &BodyKey) -> Option<Bytes> {
    match get(bodies, key).await {
        Some(body) => Some(read(body).await),
        None => None,
    }
}

/// All pages together, none of which is larger than it should be.
async fn list(bodies: &Fixture<dyn BodyStore>, limit: usize) -> Vec<BodyEntry> {
    let mut all = Vec::new();
    let mut after = None;
    for _ in 0..1000 {
        let page = bodies.list(after.as_deref(), limit).await.expect("list");
        assert!(page.bodies.len() <= limit.max(1));
        all.extend(page.bodies);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
    panic!("the list does not end");
}

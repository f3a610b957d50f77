//! Stores of bodies: the suite on each, what only a disk can do wrong, and faults of every kind.

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use perennial_core::body_key::BodyKey;
use perennial_core::digest::sha256_hex;
use perennial_core::time::Timestamp;
use perennial_store::body::{BodyAttributes, BodyStream, Damage, Found, Put};
use perennial_store::conformance::{Fixture, block_on, in_threads};
use perennial_store::faulty::{Call, Fault, Faults, FaultyBodies, Persistent, Plan};
use perennial_store::{
    BodyStore, BodyStoreExt as _, Clock as _, DiskBodies, Error, ErrorKind, MemoryBodies, Result, SystemClock,
};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

mod memory {
    use super::*;
    perennial_store::body_conformance!(Fixture::bodies(MemoryBodies::new()));
}

mod disk {
    use super::*;
    perennial_store::body_conformance!(on_disk(|disk| disk));
}

mod quiet_memory {
    use super::*;
    perennial_store::body_conformance!(Fixture::bodies(quiet(MemoryBodies::new())));
}

mod quiet_disk {
    use super::*;
    perennial_store::body_conformance!(on_disk(quiet));
}

mod harmless_memory {
    use super::*;
    perennial_store::body_conformance!(Fixture::bodies(harmless(MemoryBodies::new())));
}

mod harmless_disk {
    use super::*;
    perennial_store::body_conformance!(on_disk(harmless));
}

fn on_disk<T: BodyStore>(wrap: impl FnOnce(DiskBodies) -> T) -> Fixture<dyn BodyStore> {
    let Disk { dir, bodies } = Disk::new();
    Fixture::bodies(wrap(bodies)).guarded_by(dir)
}

fn faulty(bodies: impl BodyStore, plan: Plan) -> (FaultyBodies, Arc<Faults>) {
    let faults = Faults::new(plan);
    (FaultyBodies::new(Arc::new(bodies), faults.clone()), faults)
}

fn quiet(bodies: impl BodyStore) -> FaultyBodies {
    faulty(bodies, Plan::quiet()).0
}

fn harmless(bodies: impl BodyStore) -> Persistent<FaultyBodies> {
    Persistent(faulty(bodies, Plan::harmless(8, 100)).0)
}

/// A store on disk and its directory.
struct Disk {
    dir: TempDir,
    bodies: DiskBodies,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bodies = DiskBodies::open(dir.path()).unwrap();
        Self { dir, bodies }
    }

    /// A store with one small body, which has attributes of every kind.
    fn with_page() -> Self {
        let disk = Self::new();
        block_on(disk.bodies.put_bytes(&page(), &attributes(), Bytes::from("<p>hello</p>"))).unwrap();
        disk
    }

    /// Where the file of a key is, as the format says.
    fn file(&self, key: &BodyKey) -> PathBuf {
        let name = sha256_hex(key.as_str());
        self.dir.path().join(&name[..2]).join(&name[2..])
    }

    fn get(&self, key: &BodyKey) -> Found {
        block_on(self.bodies.get(key)).unwrap()
    }

    fn listed(&self) -> Vec<BodyKey> {
        block_on(self.bodies.list(None, 1000)).unwrap().bodies.into_iter().map(|entry| entry.key).collect()
    }

    /// Puts these bytes in the place of the page's file.
    fn replace(&self, bytes: &[u8]) {
        fs::write(self.file(&page()), bytes).unwrap();
    }

    /// What is wrong with the page, which must not be read as if nothing were.
    fn damage(&self, what: &str) -> Damage {
        match self.get(&page()) {
            Found::Damaged(damage) => damage,
            other => panic!("{what} gives {other:?}"),
        }
    }

    fn temporary_files(&self) -> usize {
        fs::read_dir(self.dir.path().join("tmp")).unwrap().count()
    }
}

fn page() -> BodyKey {
    BodyKey::new("cache/page/1").unwrap()
}

fn key(number: usize) -> BodyKey {
    BodyKey::new(format!("pages/{number}")).unwrap()
}

fn attributes() -> BodyAttributes {
    BodyAttributes {
        content_type: Some("text/html".into()),
        cache_control: None,
        metadata: [("größe".into(), "µ".into())].into(),
    }
}

/// A body of so many bytes.
fn large(bytes: usize) -> Bytes {
    (0..bytes).map(|n| (n / 1000 + n).to_le_bytes()[0]).collect()
}

fn put(bodies: &dyn BodyStore, key: &BodyKey, body: impl Into<Bytes>) -> Result<Put> {
    block_on(bodies.put_bytes(key, &BodyAttributes::default(), body.into()))
}

fn bytes_of(found: Found) -> Bytes {
    match found {
        Found::Body(body) => block_on(body.into_bytes()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_is_as_the_format_says() {
    let text = |text: &str| [&(text.len() as u64).to_be_bytes()[..], text.as_bytes()].concat();
    let one = [0, 0, 0, 0, 0, 0, 0, 1];
    let details = [
        text("cache/page/1"),
        [one.to_vec(), text("text/html")].concat(),
        vec![0; 8],
        [one.to_vec(), text("größe"), text("µ")].concat(),
    ]
    .concat();
    let sha256 = |bytes: &[u8]| -> Vec<u8> {
        let hex = sha256_hex(bytes);
        (0..32).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
    };
    let sealed = [
        b"PRNBODY\x01".to_vec(),
        (details.len() as u64).to_be_bytes().to_vec(),
        12_u64.to_be_bytes().to_vec(),
        sha256(b"<p>hello</p>"),
    ]
    .concat();
    let seal = sha256(&[&sealed[..], &details].concat());
    let expected = [&sealed[..], &seal, &details, b"<p>hello</p>"].concat();

    let disk = Disk::with_page();
    assert_eq!(fs::read(disk.file(&page())).unwrap(), expected);
    assert_eq!(fs::read_to_string(disk.dir.path().join("FORMAT")).unwrap(), "perennial bodies, format 1\n");
    let Found::Body(body) = disk.get(&page()) else { panic!("it was put") };
    assert_eq!((body.bytes, body.attributes), (12, attributes()));
}

#[test]
fn a_change_of_any_byte_is_noticed() {
    let disk = Disk::with_page();
    let sound = fs::read(disk.file(&page())).unwrap();
    let body_at = sound.len() - 12;
    for at in 0..sound.len() {
        for bits in [1, 0x80, 0xFF] {
            let mut bytes = sound.clone();
            bytes[at] ^= bits;
            disk.replace(&bytes);
            let damage = disk.damage(&format!("byte {at} changed by {bits:#x}"));
            assert_eq!((damage.key, damage.place), (page(), disk.file(&page()).display().to_string()));
            // A list reads headers only, and shows what is behind a sound one.
            assert_eq!(disk.listed().len(), usize::from(at >= body_at));
        }
    }
    disk.replace(&sound);
    assert_eq!(bytes_of(disk.get(&page())), "<p>hello</p>");
}

#[test]
fn a_cut_off_file_is_noticed_wherever_it_is_cut() {
    let disk = Disk::with_page();
    let sound = fs::read(disk.file(&page())).unwrap();
    for length in 0..sound.len() {
        disk.replace(&sound[..length]);
        disk.damage(&format!("a file cut to {length} bytes"));
        assert_eq!(disk.listed(), []);
    }
}

#[test]
fn whatever_else_is_wrong_with_a_file_is_told() {
    let disk = Disk::with_page();
    let sound = fs::read(disk.file(&page())).unwrap();
    let with_number = |at: usize, number: u64| {
        let mut bytes = sound.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    for (what, bytes, problem) in [
        ("a longer file", [&sound[..], b"x"].concat(), "bytes instead of"),
        ("a file twice over", sound.repeat(2), "bytes instead of"),
        ("a foreign file", b"<!doctype html>".repeat(100), "does not begin"),
        ("a newer format", [b"PRNBODY\x02", &sound[8..]].concat(), "does not begin"),
        ("zeros", vec![0; sound.len()], "does not begin"),
        ("huge details", with_number(8, u64::MAX), "header is too long"),
        ("details beyond the file", with_number(8, 65_536), "ends too early"),
        ("a huge body", with_number(16, u64::MAX), "header's checksum"),
        ("a huge key", with_number(88, u64::MAX), "header's checksum"),
    ] {
        disk.replace(&bytes);
        let damage = disk.damage(what);
        assert!(damage.problem.contains(problem), "{what}: {damage}");
        assert_eq!(disk.listed(), []);
    }
}

#[test]
fn a_directory_in_the_place_of_a_body_is_told() {
    let disk = Disk::with_page();
    fs::remove_file(disk.file(&page())).unwrap();
    fs::create_dir(disk.file(&page())).unwrap();
    assert_eq!(disk.damage("a directory").problem, "it is not a file");
    assert_eq!(disk.listed(), []);
}

#[cfg(unix)]
#[test]
fn what_the_system_refuses_is_an_error_not_an_answer() {
    let disk = Disk::with_page();
    let path = disk.file(&page());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    for error in
        [block_on(disk.bodies.get(&page())).unwrap_err(), block_on(disk.bodies.list(None, 9)).unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn swapped_files_are_noticed() {
    let disk = Disk::with_page();
    put(&disk.bodies, &key(1), "another").unwrap();
    let (one, other) = (fs::read(disk.file(&page())).unwrap(), fs::read(disk.file(&key(1))).unwrap());
    disk.replace(&other);
    fs::write(disk.file(&key(1)), one).unwrap();
    assert_eq!(disk.damage("another's file").problem, "it holds the body of another key, pages/1");
    assert!(matches!(disk.get(&key(1)), Found::Damaged(_)));
    assert_eq!(disk.listed(), []);
}

#[test]
fn a_large_body_is_checked_before_its_first_byte_is_given() {
    let disk = Disk::new();
    put(&disk.bodies, &page(), large(3 << 20)).unwrap();
    change_byte(&disk.file(&page()), SeekFrom::End(-(1 << 20)));
    assert_eq!(disk.damage("a byte in the middle").problem, "its bytes do not match their checksum");
}

#[test]
fn a_large_body_that_changes_while_it_is_read_is_never_given_whole() {
    for cut in [false, true] {
        let disk = Disk::new();
        put(&disk.bodies, &page(), large(3 << 20)).unwrap();
        let Found::Body(body) = disk.get(&page()) else { panic!("it was put") };
        if cut {
            OpenOptions::new().write(true).open(disk.file(&page())).unwrap().set_len(2 << 20).unwrap();
        } else {
            change_byte(&disk.file(&page()), SeekFrom::End(-(1 << 20)));
        }
        let pieces: Vec<io::Result<Bytes>> = block_on(body.stream.collect());
        let (last, before) = pieces.split_last().unwrap();
        let error = last.as_ref().expect_err("the end is not right").to_string();
        assert!(error.contains("was changed while it was read"), "{error}");
        assert!(before.iter().map(|piece| piece.as_ref().unwrap().len()).sum::<usize>() < 3 << 20);
    }
}

fn change_byte(path: &Path, at: SeekFrom) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(at).unwrap();
    file.write_all(b"\xFF").unwrap();
}

#[test]
fn a_large_body_comes_in_pieces() {
    let disk = Disk::new();
    put(&disk.bodies, &page(), large((1 << 20) + 1)).unwrap();
    let Found::Body(body) = disk.get(&page()) else { panic!("it was put") };
    let pieces: Vec<Bytes> = block_on(body.stream.try_collect()).unwrap();
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [1 << 18, 1 << 18, 1 << 18, 1 << 18, 1]);
    assert_eq!(pieces.concat(), large((1 << 20) + 1));
}

#[test]
fn a_damaged_body_does_not_stop_a_list() {
    let disk = Disk::new();
    for number in 0..30 {
        put(&disk.bodies, &key(number), "x").unwrap();
    }
    fs::write(disk.file(&key(7)), "garbage").unwrap();
    fs::write(disk.file(&key(8)).with_file_name("foreign"), "x").unwrap();
    fs::write(disk.dir.path().join("notes.txt"), "x").unwrap();
    let stray = (0..=255_u8).map(|n| disk.dir.path().join(format!("{n:02x}"))).find(|path| !path.exists());
    fs::write(stray.unwrap(), "a file where a directory could be").unwrap();
    let mut seen = BTreeSet::new();
    let mut after = None;
    for _ in 0..30 {
        let page = block_on(disk.bodies.list(after.as_deref(), 1)).unwrap();
        seen.extend(page.bodies.into_iter().map(|entry| entry.key));
        after = page.next;
    }
    assert_eq!(after, None);
    assert_eq!(seen, (0..30).filter(|number| *number != 7).map(key).collect());
}

#[test]
fn no_temporary_file_outlives_its_put() {
    let disk = Disk::with_page();
    assert_eq!(disk.temporary_files(), 0, "after success");
    assert_eq!(put(&disk.bodies, &page(), large(1 << 20)).unwrap(), Put::Exists);
    assert_eq!(disk.temporary_files(), 0, "after a second put");
    let broken = stream::iter([Ok(large(1 << 20)), Err(io::Error::other("broken"))]).boxed();
    block_on(disk.bodies.put(&key(1), &BodyAttributes::default(), broken)).unwrap_err();
    assert_eq!(disk.temporary_files(), 0, "after a source that fails");
    let endless: BodyStream = stream::iter([Ok(large(1 << 20))]).chain(stream::pending()).boxed();
    let (key, attributes) = (key(1), BodyAttributes::default());
    let mut unfinished = disk.bodies.put(&key, &attributes, endless);
    assert!((&mut unfinished).now_or_never().is_none());
    assert_eq!(disk.temporary_files(), 1, "while it is written");
    drop(unfinished);
    assert_eq!(disk.temporary_files(), 0, "after the writer gave up");
    assert!(matches!(disk.get(&key), Found::Missing));
}

#[test]
fn a_write_that_fails_says_where_and_leaves_nothing() {
    let disk = Disk::new();
    let dir = disk.file(&page()).parent().unwrap().to_owned();
    fs::write(&dir, "in the way").unwrap();
    let error = put(&disk.bodies, &page(), "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    assert_eq!(disk.temporary_files(), 0);
}

#[test]
fn attributes_that_do_not_fit_are_refused() {
    let disk = Disk::new();
    let attributes = BodyAttributes { content_type: Some("x".repeat(65_536)), ..BodyAttributes::default() };
    let error = block_on(disk.bodies.put_bytes(&page(), &attributes, Bytes::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(disk.temporary_files(), 0);
    let attributes = BodyAttributes { content_type: Some("x".repeat(65_000)), ..attributes };
    block_on(disk.bodies.put_bytes(&page(), &attributes, Bytes::new())).unwrap();
    let Found::Body(body) = disk.get(&page()) else { panic!("it was put") };
    assert_eq!(body.attributes, attributes);
}

#[test]
fn abandoned_files_are_removed_and_no_others() {
    let disk = Disk::with_page();
    let now = SystemClock.now();
    let day_ago = SystemTime::UNIX_EPOCH + Duration::from_millis(now.millis().unsigned_abs())
        - Duration::from_secs(86_400);
    let make = |name: &str, is_old: bool| {
        let path = disk.dir.path().join(name);
        let file = File::create(&path).unwrap();
        if is_old {
            file.set_modified(day_ago).unwrap();
        }
        path
    };
    let abandoned = [make("tmp/perennial-1", true), make("tmp/perennial-2", true)];
    let others = [make("tmp/perennial-3", false), make("tmp/foreign", true), make("foreign", true)];
    let hour_ago = Timestamp::from_seconds(now.seconds() - 3600);
    assert_eq!(block_on(disk.bodies.remove_abandoned(hour_ago)).unwrap(), 2);
    assert_eq!(block_on(disk.bodies.remove_abandoned(hour_ago)).unwrap(), 0);
    assert!(abandoned.iter().all(|path| !path.exists()));
    assert!(others.iter().all(|path| path.exists()));
    assert_eq!(bytes_of(disk.get(&page())), "<p>hello</p>");
}

#[test]
fn a_file_left_by_a_killed_writer_is_one_that_is_removed() {
    let disk = Disk::new();
    let endless: BodyStream = stream::pending().boxed();
    let (page, attributes) = (page(), BodyAttributes::default());
    let mut unfinished = disk.bodies.put(&page, &attributes, endless);
    assert!((&mut unfinished).now_or_never().is_none());
    let later = SystemClock.now().plus(Duration::from_secs(60));
    assert_eq!(block_on(disk.bodies.remove_abandoned(later)).unwrap(), 1);
}

fn refused(dir: &Path) -> Error {
    let error = DiskBodies::open(dir).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup, "{error}");
    assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    error
}

#[test]
fn a_directory_that_can_not_be_used_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(refused(&file).to_string().ends_with("hint: choose a directory, not a file"));
    refused(&file.join("below"));

    let no_write = dir.path().join("no_write");
    fs::create_dir(&no_write).unwrap();
    let mut permissions = fs::metadata(&no_write).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&no_write, permissions).unwrap();
    // Permissions mean nothing to the superuser.
    if File::create(no_write.join("probe")).is_err() {
        assert!(refused(&no_write).to_string().contains("write access"));
    }
}

#[test]
fn a_directory_of_another_format_is_refused_and_left_alone() {
    for (text, part) in [
        ("perennial bodies, format 2\n", "a newer Perennial"),
        ("perennial bodies, format 4294967295\n", "a newer Perennial"),
        ("perennial bodies, format 0\n", "an older Perennial"),
        ("perennial table, format 1\n", "another directory"),
        ("", "another directory"),
        ("\0\0\0", "another directory"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let format = dir.path().join("FORMAT");
        fs::write(&format, text).unwrap();
        let error = refused(dir.path()).to_string();
        assert!(error.contains(&format.display().to_string()) && error.contains(part), "{text:?}: {error}");
        assert_eq!(fs::read_to_string(&format).unwrap(), text);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[test]
fn two_handles_on_one_directory_see_each_other_s_bodies() {
    let disk = Disk::with_page();
    let second = DiskBodies::open(disk.dir.path()).unwrap();
    assert_eq!(bytes_of(block_on(second.get(&page())).unwrap()), "<p>hello</p>");
    assert_eq!(put(&second, &page(), "other").unwrap(), Put::Exists);
    put(&second, &key(1), "one").unwrap();
    assert_eq!(bytes_of(disk.get(&key(1))), "one");
    block_on(second.delete(&page())).unwrap();
    assert!(matches!(disk.get(&page()), Found::Missing));
}

#[test]
fn a_new_directory_can_be_opened_by_many_at_once() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("not/there/yet");
        let place = deep.clone();
        let done = in_threads(4, move |_| {
            let bodies = DiskBodies::open(&place).unwrap();
            async move { bodies.put_bytes(&page(), &attributes(), Bytes::from("x")).await.unwrap() }
        });
        let created = done.into_iter().filter(|put| *put != Put::Exists).count();
        assert_eq!(created, 1);
        assert_eq!(fs::read_dir(deep.join("tmp")).unwrap().count(), 0);
    }
}

#[test]
fn it_works_without_a_runtime() {
    let disk = Disk::new();
    let attributes = BodyAttributes::default();
    let done = disk.bodies.put_bytes(&page(), &attributes, large(3 << 20)).now_or_never();
    assert!(matches!(done, Some(Ok(Put::Created(_)))));
    let Some(Ok(Found::Body(body))) = disk.bodies.get(&page()).now_or_never() else { panic!("it was put") };
    assert!(body.into_bytes().now_or_never().unwrap().unwrap() == large(3 << 20));
    assert_eq!(disk.bodies.list(None, 10).now_or_never().unwrap().unwrap().bodies.len(), 1);
    disk.bodies.delete(&page()).now_or_never().unwrap().unwrap();
}

/// Makes a call again until its answer arrives.
async fn settle<T, F: Future<Output = Result<T>>>(attempt: impl Fn() -> F) -> T {
    for _ in 0..1000 {
        match attempt().await {
            Ok(answer) => return answer,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unsettled), "{error}"),
        }
    }
    panic!("no answer in 1000 attempts");
}

#[test]
fn writers_that_persist_get_through_every_fault_over_memory() {
    block_on(get_through_every_fault(MemoryBodies::new()));
}

#[test]
fn writers_that_persist_get_through_every_fault_over_disk() {
    let disk = Disk::new();
    block_on(get_through_every_fault(disk.bodies.clone()));
    assert_eq!(disk.temporary_files(), 0);
}

async fn get_through_every_fault(bodies: impl BodyStore) {
    const BODIES: usize = 120;
    let (bodies, faults) = faulty(bodies, Plan::everything(13, 100));
    let attributes = BodyAttributes::default();
    for number in 0..BODIES {
        let key = key(number);
        settle(|| bodies.put_bytes(&key, &attributes, large(number * 100))).await;
        if number % 2 == 1 {
            settle(|| bodies.delete(&key)).await;
        }
        let page = settle(|| bodies.list(None, BODIES)).await;
        assert_eq!(page.bodies.len(), number / 2 + 1);
    }
    for number in 0..BODIES {
        let key = key(number);
        match settle(|| bodies.get(&key)).await {
            Found::Body(body) if number % 2 == 0 => {
                assert_eq!(body.into_bytes().await.unwrap(), large(number * 100));
            }
            Found::Missing if number % 2 == 1 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    let done: BTreeSet<(Call, Fault)> = faults.done().into_keys().collect();
    let calls = [Call::PutBody, Call::GetBody, Call::DeleteBody, Call::ListBodies];
    let all = calls.into_iter().flat_map(|call| Fault::ALL.map(|fault| (call, fault))).collect();
    assert_eq!(done, all);
}

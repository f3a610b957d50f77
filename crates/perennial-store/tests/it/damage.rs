//! Files and directories that can't be used: one clear error each that names the file and says what to do, and no
//! crash. Each case is played in a process of its own, so that even a crash would be seen and told.

use crate::children;
use perennial_core::body_key::BodyKey;
use perennial_core::item::Item;
use perennial_core::key::RowKey;
use perennial_core::transaction::{Op, Transaction};
use perennial_store::body::BodyAttributes;
use perennial_store::conformance::block_on;
use perennial_store::table::{Consistency, Query};
use perennial_store::{BodyStoreExt as _, DiskBodies, EmbeddedTable, ItemTable as _, ItemTableExt as _};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROWS: usize = 3_000;

fn row(index: usize) -> Item {
    Item::new()
        .with("pk", format!("p{}", index % 7))
        .with("sk", format!("{index:05}"))
        .with("f", "x".repeat(200))
}

fn make_table(dir: &Path) {
    let table = EmbeddedTable::open(dir).unwrap();
    for chunk in (0..ROWS).collect::<Vec<_>>().chunks(100) {
        let ops = chunk.iter().map(|index| Op::put(row(*index)).unwrap()).collect();
        block_on(table.transact(&Transaction::new(ops).unwrap())).unwrap();
    }
}

/// Opens the table, reads all of it and writes to it; tells the first error.
fn use_table(dir: &Path) -> perennial_store::Result<()> {
    let table = EmbeddedTable::open(dir)?;
    block_on(async {
        for index in 0..ROWS {
            let key = RowKey::new(format!("p{}", index % 7), format!("{index:05}"))?;
            if let Some(found) = table.get(&key, Consistency::Strong).await? {
                assert_eq!(found, row(index), "wrong bytes are worse than none");
            }
        }
        for partition in 0..7 {
            table.query_all(Query::new(format!("p{partition}"), ""), ROWS).await?;
        }
        let put = Op::put(Item::new().with("pk", "new").with("sk", "new"))?;
        table.transact(&Transaction::single(put)?).await?;
        Ok(())
    })
}

#[test]
fn role_user() {
    let Some(dir) = children::role("damage::role_user") else { return };
    match use_table(&dir) {
        Ok(()) => println!("used well"),
        Err(error) => println!("used {:?} {error}", error.kind()),
    }
}

/// What using the table comes to, in a process of its own. A crash or a panic is reported as such.
fn outcome(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.split_once("used ")).map(|(_, rest)| rest.to_string());
    match line {
        Some(line) if output.status.success() => line,
        _ => panic!("it crashed: {} {said} {}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}

fn used(dir: &Path) -> String {
    outcome(children::command("damage::role_user", dir))
}

/// A table in a directory of its own, and the file with its rows.
fn table() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let file = dir.path().join("rows.mdb");
    (dir, file)
}

fn expect(dir: &Path, parts: &[&str]) {
    let said = used(dir);
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn a_sound_table_is_used_well() {
    let (dir, _) = table();
    assert_eq!(used(dir.path()), "well");
}

#[test]
fn a_cut_file_is_refused_wherever_it_was_cut() {
    let (dir, file) = table();
    let whole = fs::read(&file).unwrap();
    let used_pages = {
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        end / 4096 + 1
    };
    for length in [1, 100, 4095, 4096, 5000, 8192, used_pages * 4096 / 2, (used_pages - 1) * 4096] {
        fs::write(&file, &whole[..length]).unwrap();
        let said = used(dir.path());
        assert!(said.contains("rows.mdb") && said.contains("hint:"), "cut to {length}: {said}");
        assert!(said.starts_with("Damaged") || said.starts_with("Setup"), "cut to {length}: {said}");
        assert_eq!(fs::metadata(&file).unwrap().len(), length as u64, "nothing was changed");
    }
    for empty in [true, false] {
        fs::remove_file(&file).unwrap();
        if empty {
            fs::write(&file, []).unwrap();
        }
        expect(dir.path(), &["Damaged", "rows.mdb is missing or empty", "restore the file"]);
        fs::write(&file, &whole).unwrap();
    }
    assert_eq!(used(dir.path()), "well", "restored from a backup");
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let text = b"This is somebody's diary, not a table. ".repeat(1000);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rows.mdb"), &text).unwrap();
    expect(dir.path(), &["Setup", "rows.mdb was not written by Perennial", "choose another directory"]);
    assert_eq!(fs::read(dir.path().join("rows.mdb")).unwrap(), text);

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("FORMAT"), "my own notes").unwrap();
    expect(dir.path(), &["Setup", "FORMAT was not written by Perennial"]);
    assert!(!dir.path().join("rows.mdb").exists(), "nothing was made");
    fs::write(dir.path().join("FORMAT"), [0xff, 0xfe, 0x00]).unwrap();
    expect(dir.path(), &["Setup", "FORMAT was not written by Perennial"]);
}

#[test]
fn another_program_s_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.mdb");
    foreign_database(&path);
    expect(dir.path(), &["Setup", "rows.mdb was not written by Perennial", "choose another directory"]);
    assert!(!dir.path().join("FORMAT").exists());
}

#[allow(unsafe_code, reason = "the engine maps its file; nothing else touches it here")]
fn foreign_database(path: &Path) {
    let mut options = heed::EnvOpenOptions::new();
    options.map_size(1 << 20).max_dbs(4);
    // SAFETY: a new file in a directory of this test's own.
    let env = unsafe { options.flags(heed::EnvFlags::NO_SUB_DIR).open(path) }.unwrap();
    let txn = env.write_txn().unwrap();
    env.create_databases_and_commit(txn, |opener, txn| {
        let made = opener.create_database::<heed::types::Bytes, heed::types::Bytes>(txn, Some("mail"))?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(made))
    })
    .unwrap();
}

#[test]
fn other_formats_are_recognised_and_refused() {
    for (format, hint) in
        [("0", "older Perennial"), ("2", "newer Perennial"), ("4294967295", "newer Perennial")]
    {
        let (dir, file) = table();
        let before = fs::read(&file).unwrap();
        fs::write(dir.path().join("FORMAT"), format!("perennial table, format {format}\n")).unwrap();
        expect(dir.path(), &["Setup", "FORMAT is of format", &format!("format {format},"), hint]);
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    // The file that says so is gone, and the rows file says it too.
    let (dir, file) = table();
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    assert_eq!(used(dir.path()), "well");
    set_format_row(&file, 7);
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    expect(dir.path(), &["Setup", "rows.mdb is of format 7", "newer Perennial"]);
}

#[allow(unsafe_code, reason = "the engine maps its file; nothing else touches it here")]
fn set_format_row(path: &Path, format: u32) {
    let mut options = heed::EnvOpenOptions::new();
    options.max_dbs(4);
    // SAFETY: nobody else has the file of this test open.
    let env = unsafe { options.flags(heed::EnvFlags::NO_SUB_DIR).open(path) }.unwrap();
    let txn = env.write_txn().unwrap();
    let info = env.create_databases_and_commit(txn, |opener, txn| {
        let info = opener.create_database::<heed::types::Bytes, heed::types::Bytes>(txn, Some("info"))?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(info))
    });
    let info = info.unwrap().unwrap_commit();
    let mut txn = env.write_txn().unwrap();
    info.put(&mut txn, b"format", &format.to_le_bytes()).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    expect(&file, &["Setup", "can't use the directory", "file", "hint:"]);
    expect(&file.join("below"), &["Setup", "can't use the directory", "choose a directory, not a file"]);
}

/// A command that plays the role as a user without rights, whoever runs the tests.
fn unprivileged(role: &str, dir: &Path) -> Command {
    let command = children::command(role, dir);
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return command;
    }
    // The other user may not be able to reach this program where it is, so it gets a copy beside the table.
    let program = dir.parent().unwrap().join("program");
    fs::copy(command.get_program(), &program).unwrap();
    let mut copy = Command::new(program);
    copy.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    copy.uid(65_534).gid(65_534);
    copy
}

#[test]
fn a_read_only_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    fs::create_dir(&new).unwrap();
    make_table(&old);
    for path in [&new, &old] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        for file in fs::read_dir(path).unwrap() {
            fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
        }
        let said = outcome(unprivileged("damage::role_user", path));
        assert!(
            said.starts_with("Setup") && said.contains("rows.mdb") && said.contains("write access"),
            "{said}"
        );
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn role_body_user() {
    let Some(dir) = children::role("damage::role_body_user") else { return };
    let put = |bodies: DiskBodies| {
        let key = BodyKey::new("a/1").unwrap();
        block_on(bodies.put_bytes(&key, &BodyAttributes::default(), "x".into()))
    };
    match DiskBodies::open(dir).and_then(put) {
        Ok(put) => println!("used {put:?}"),
        Err(error) => println!("used {:?} {error}", error.kind()),
    }
}

#[test]
fn a_read_only_directory_of_bodies_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    fs::create_dir(&new).unwrap();
    drop(DiskBodies::open(&old).unwrap());
    for path in [&new, &old] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        let said = outcome(unprivileged("damage::role_body_user", path));
        assert!(
            said.starts_with("Setup can't ")
                && said.contains(path.to_str().unwrap())
                && said.contains("write access"),
            "{said}"
        );
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_damaged_row_is_named_and_can_be_deleted() {
    let (dir, file) = table();
    let mut bytes = fs::read(&file).unwrap();
    // The sort key stands in the row itself, in a page of the file.
    let needle = b"S\x0501234";
    let place = bytes.windows(needle.len()).rposition(|window| window == needle).unwrap();
    bytes[place + 4] ^= 1;
    fs::write(&file, bytes).unwrap();
    expect(dir.path(), &["Damaged", "row 01234 of p2 in", "rows.mdb", "checksum is wrong", "or delete it"]);
    let table = EmbeddedTable::open(dir.path()).unwrap();
    let delete = Op::delete(RowKey::new("p2", "01234").unwrap());
    block_on(table.transact(&Transaction::single(delete).unwrap())).unwrap();
    drop(table);
    assert_eq!(used(dir.path()), "well");
}

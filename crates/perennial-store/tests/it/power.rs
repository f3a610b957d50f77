//! Power cuts, full disks and syncs that fail, on a disk that is imagined.
//!
//! A child process uses a store while a preloaded library (`tests/shim/shim.rs`) writes down, in order, everything
//! that it does to its files, and lets some of it fail. From that [`journal`] the parent makes [`disk`] images as a
//! power cut could have left them, at many moments and with different luck. Further children open the images: what
//! was acknowledged before the cut must be there, nothing may be half there, and the store must go on.
//!
//! That the checks can fail is checked, too: with the syncs taken out of the journal, they must.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod bodies;
mod content;
mod disk;
mod journal;
mod table;

use crate::children;
use content::Content;
use disk::{Disk, Image, Luck};
use journal::Event;
use perennial_store::faulty::SplitMix64;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// How long a child may take, in seconds, before it counts as hanging.
const PATIENCE: &str = "120";
/// Where the store is below the directory that is watched.
const STORE: &str = "store";
/// LMDB's lock file. It is written through mapped memory, which nothing can watch.
const LOCK_FILE: &str = "store/rows.mdb-lock";

/// The shared library, compiled when it is first needed.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(dir).unwrap();
        let build = tempfile::tempdir_in(dir).unwrap();
        let (source, library) = (build.path().join("shim.rs"), build.path().join("libshim.so"));
        fs::write(&source, include_str!("../shim/shim.rs")).unwrap();
        let mut command = Command::new(rustc());
        command.args(["--edition", "2024", "--crate-type", "cdylib", "-O", "-C", "panic=abort"]);
        let output = command.arg(&source).arg("-o").arg(&library).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Several test processes may do this at once; each puts the same library there.
        let place = dir.join("libperennial_shim.so");
        fs::rename(library, &place).unwrap();
        place
    })
}

/// The compiler: the one that the environment names, or that of the cargo that built this test, or any.
fn rustc() -> PathBuf {
    let beside = || Some(Path::new(env!("CARGO")).with_file_name("rustc")).filter(|path| path.exists());
    std::env::var_os("RUSTC").map(PathBuf::from).or_else(beside).unwrap_or_else(|| "rustc".into())
}

/// A role in a child that can't hang.
fn child(role: &str, dir: &Path) -> Command {
    let mut command = children::command(role, dir);
    command.env("LD_PRELOAD", shim()).env("SHIM_SECONDS", PATIENCE);
    command
}

/// What a child did to its files, and what it was told.
struct Recording {
    dir: TempDir,
    events: Vec<Event>,
    /// The inode of the directory that was watched.
    root: u64,
}

impl Recording {
    /// Runs a role in a child, on a directory of its own, with a fault or none. It must end well.
    fn of(role: &str, fault: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (root, journal) = (dir.path().join("root"), dir.path().join("journal"));
        fs::create_dir(&root).unwrap();
        fs::write(&journal, []).unwrap();
        let mut command = child(role, &root.join(STORE));
        command.env("SHIM_ROOT", &root).env("SHIM_JOURNAL", &journal);
        command.env("SHIM_FAULT", fault).env("SHIM_RELIEF", dir.path().join("relief"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{role} with {fault:?}: {}: {said}", output.status);
        let root = fs::metadata(&root).unwrap().ino();
        let recording = Self { events: journal::read(&journal), dir, root };
        recording.assert_complete();
        recording
    }

    /// The journal must explain every file, or something has passed the library by.
    fn assert_complete(&self) {
        let mut disk = Disk::new(self.root);
        self.events.iter().for_each(|event| disk.apply(event, &mut Luck::All));
        let mut told = disk.image(&mut Luck::All);
        let mut found = disk::read_image(&self.dir.path().join("root"));
        for image in [&mut told, &mut found] {
            image.entry(LOCK_FILE.into()).and_modify(|content| content.as_mut().unwrap().clear());
        }
        assert_eq!(
            told.keys().collect::<Vec<_>>(),
            found.keys().collect::<Vec<_>>(),
            "the journal tells of all files"
        );
        assert!(told == found, "the journal tells of all bytes");
    }

    fn count(&self, mut is_meant: impl FnMut(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| is_meant(event)).count()
    }

    /// Where the first such event is.
    fn first(&self, is_meant: impl Fn(&Event) -> bool) -> Option<usize> {
        self.events.iter().position(is_meant)
    }

    /// The errors that it was given.
    fn refusals(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Refused { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// What is left after a cut.
    fn image(&self, cut: Cut, disk: &Disk) -> Image {
        let mut luck = Luck::new(cut.seed);
        let mut image = match self.events.get(cut.at) {
            Some(event) if luck.half() => disk.interrupted_by(event, &mut luck).image(&mut luck),
            _ => disk.image(&mut luck),
        };
        if let Some(Some(content)) = image.get_mut(LOCK_FILE)
            && content.length() > 0
            && luck.half()
        {
            *content = Content::of_file(&self.dir.path().join("root").join(LOCK_FILE));
        }
        image
    }
}

fn note_acknowledged(event: &Event, acknowledged: &mut Vec<usize>) {
    if let Event::Acknowledged { worker } = event {
        acknowledged.resize(acknowledged.len().max(worker + 1), 0);
        acknowledged[*worker] += 1;
    }
}

/// The events as if none of these syncs had been asked for.
fn without(events: &[Event], is_meant: impl Fn(&Event) -> bool) -> Vec<Event> {
    let lost = |event: &Event| match event {
        Event::Sync { .. } if is_meant(event) => None,
        Event::Write { inode, at, bytes, synced: true } if is_meant(event) => {
            Some(Event::Write { inode: *inode, at: *at, bytes: bytes.clone(), synced: false })
        }
        event => Some(event.clone()),
    };
    events.iter().filter_map(lost).collect()
}

/// Lets an imagined disk that is full have room again.
fn relieve() {
    fs::write(std::env::var_os("SHIM_RELIEF").unwrap(), []).unwrap();
}

/// A moment at which the power goes, and the luck of what is on its way to the disk then.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// The event that is under way.
    at: usize,
    seed: u64,
}

impl Cut {
    /// Cuts from an event on, in order: a third anywhere, a third right after an acknowledgement, a third around a
    /// sync.
    fn many(events: &[Event], start: usize, count: u64) -> Vec<Self> {
        let places = |is_meant: &dyn Fn(&Event) -> bool| -> Vec<usize> {
            (start..events.len()).filter(|index| is_meant(&events[*index])).collect()
        };
        let anywhere: Vec<usize> = (start..=events.len()).collect();
        let acknowledged = places(&Event::is_acknowledgement);
        let synced = places(&|event| matches!(event, Event::Sync { .. } | Event::Write { synced: true, .. }));
        let mut cuts: Vec<Self> = (0..count)
            .map(|seed| {
                // Not the numbers that decide what arrives.
                let mut random = SplitMix64(!seed);
                let mut one_of =
                    |places: &[usize]| places[usize::try_from(random.next() % places.len() as u64).unwrap()];
                let at = match seed % 3 {
                    1 if !acknowledged.is_empty() => one_of(&acknowledged) + 1,
                    2 if !synced.is_empty() => one_of(&synced) + usize::from(seed % 2 == 0),
                    _ => one_of(&anywhere),
                };
                Self { at, seed }
            })
            .collect();
        cuts.sort_by_key(|cut| cut.at);
        cuts
    }

    /// So many cuts at each event before this one.
    fn all(end: usize, count: usize) -> Vec<Self> {
        (0..end * count).map(|seed| Self { at: seed / count, seed: seed as u64 }).collect()
    }
}

/// What a role says of an image that it finds nothing wrong with.
const FINE: &str = "fine";
const VERDICTS: &str = "verdicts";

/// What is left of disks, to be checked.
struct Images {
    dir: TempDir,
    /// How each came about.
    about: Vec<String>,
}

impl Images {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), about: Vec::new() }
    }

    /// What a role leaves when one sync fails, each of so many in turn; and when the power goes after that, too, if
    /// anything had been acknowledged. Whichever it is, somebody must be told.
    fn of_failing_syncs(role: &str, syncs: u64) -> Self {
        (1..=syncs).fold(Self::new(), |images, n| {
            let recording = Recording::of(role, &format!("sync {n}"));
            let failed = recording.first(|event| matches!(event, Event::SyncFailed { .. })).unwrap();
            assert!(!recording.refusals().is_empty(), "sync {n} fails, and nobody is told");
            let count = if recording.first(Event::is_acknowledgement).is_some() { 6 } else { 0 };
            images.uncut(&recording).cut(&recording, &Cut::many(&recording.events, failed, count))
        })
    }

    /// What each of these cuts leaves. They must be in order.
    fn cut(mut self, recording: &Recording, cuts: &[Cut]) -> Self {
        let mut disk = Disk::new(recording.root);
        let mut acknowledged = Vec::new();
        let mut done = 0;
        for cut in cuts {
            for event in &recording.events[done..cut.at] {
                disk.apply(event, &mut Luck::new(cut.seed));
                note_acknowledged(event, &mut acknowledged);
            }
            done = cut.at;
            let event = recording.events.get(cut.at);
            let about = format!(
                "seed {}, cut at event {} of {}, {event:?}",
                cut.seed,
                cut.at,
                recording.events.len()
            );
            self.add(&recording.image(*cut, &disk), &acknowledged, about);
        }
        self
    }

    /// What the process left, without any cut.
    fn uncut(mut self, recording: &Recording) -> Self {
        let mut acknowledged = Vec::new();
        recording.events.iter().for_each(|event| note_acknowledged(event, &mut acknowledged));
        let image = disk::read_image(&recording.dir.path().join("root"));
        self.add(&image, &acknowledged, "no cut".into());
        self
    }

    fn add(&mut self, image: &Image, acknowledged: &[usize], about: String) {
        let place = self.dir.path().join(self.about.len().to_string());
        disk::write_image(image, &place);
        let text = acknowledged.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        fs::write(place.with_extension("acknowledged"), text).unwrap();
        self.about.push(about);
    }

    /// Has a role check them. If it dies of one, that is the verdict on it, and another goes on with the next.
    fn judged_by(&self, checker: &str) -> Vec<String> {
        let path = self.dir.path().join(VERDICTS);
        fs::write(&path, []).unwrap();
        loop {
            let output = child(checker, self.dir.path()).env("SHIM_ROOT", self.dir.path()).output().unwrap();
            let verdicts: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(Into::into).collect();
            if verdicts.len() == self.about.len() {
                return verdicts;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            append(&path, &format!("the process died: {}: {}", output.status, said.escape_debug()));
        }
    }

    /// What is wrong with which.
    fn violations(&self, checker: &str) -> Vec<String> {
        let verdicts = self.judged_by(checker);
        let wrong = verdicts.iter().enumerate().filter(|(_, verdict)| *verdict != FINE);
        wrong.map(|(index, verdict)| format!("image {index}, {}: {verdict}", self.about[index])).collect()
    }

    /// Asserts that nothing is wrong with any; if there is, they are kept.
    fn assert_fine(self, checker: &str) {
        let wrong = self.violations(checker);
        if !wrong.is_empty() {
            let (all, kept) = (self.about.len(), self.dir.keep());
            panic!("{} of {all} images, kept in {}:\n{}", wrong.len(), kept.display(), wrong.join("\n"));
        }
    }
}

fn append(path: &Path, line: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes()).unwrap();
}

/// Plays a role that checks: gives its verdict on each image that has none yet, knowing how many steps of each worker
/// had been acknowledged.
fn play_judge(dir: &Path, check: impl Fn(&Path, &[usize]) -> Result<(), String>) {
    let path = dir.join(VERDICTS);
    for index in fs::read_to_string(&path).unwrap().lines().count().. {
        let Ok(text) = fs::read_to_string(dir.join(format!("{index}.acknowledged"))) else { return };
        let acknowledged: Vec<usize> =
            text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let verdict = check(&dir.join(index.to_string()).join(STORE), &acknowledged);
        append(&path, &verdict.err().unwrap_or_else(|| FINE.into()));
    }
}

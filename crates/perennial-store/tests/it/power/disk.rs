//! A disk that is imagined from a journal, and what is left of it when the power goes.
//!
//! The rules are the least that POSIX and disks promise:
//!
//! - What was written to a file is sure once the file was synced, or at once through a descriptor opened for that.
//!   Until then each sector of 512 bytes is there as of any write to it, or as it was before; and the file may have
//!   grown without its bytes being there.
//! - A name made or taken away in a directory is sure once that directory was synced. Until then it is or is not,
//!   whatever became of others; but a rename takes the old name away together with making the new one.
//! - A sync that fails leaves what it was for to chance, and a later one does not make up for it.

use super::content::{Content, Sector};
use super::journal::Event;
use perennial_store::faulty::SplitMix64;
use std::collections::BTreeMap;
use std::path::Path;

/// What is on the disk for sure, and what is on its way.
#[derive(Debug, Clone)]
pub struct Disk {
    nodes: Vec<Node>,
    /// Which node has this inode number now; the file system gives the number of a removed file to another.
    inodes: BTreeMap<u64, usize>,
    /// Where each name leads for the running process.
    names: BTreeMap<String, usize>,
    /// How many changes to directories there were.
    steps: usize,
}

/// A file, or a directory.
#[derive(Debug, Clone, Default)]
struct Node {
    is_dir: bool,
    /// What the running process would read.
    seen: Content,
    /// What is sure.
    sure: Content,
    /// What is on its way, in order.
    changes: Vec<Change>,
    /// The names that are sure.
    entries: BTreeMap<String, usize>,
    /// The changes of names that are on their way, in order.
    steps: Vec<Step>,
}

/// What a write or a resize does to a file.
#[derive(Debug, Clone)]
struct Change {
    /// The length of the file afterwards.
    length: usize,
    is_resize: bool,
    /// The sectors as they are afterwards.
    sectors: BTreeMap<usize, Sector>,
}

/// A name that appears or vanishes.
#[derive(Debug, Clone)]
struct Step {
    number: usize,
    name: String,
    node: Option<usize>,
}

/// The files that are left, by path; directories have no bytes.
pub type Image = BTreeMap<String, Option<Content>>;

/// Decides what of all that is on its way arrives.
#[derive(Debug)]
pub enum Luck {
    /// All of it.
    All,
    /// So many of a hundred writes, and of a hundred names.
    Chance { random: SplitMix64, writes: u64, names: u64 },
}

impl Luck {
    /// What a seed says, from nearly nothing arriving to nearly everything.
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let mut share = || [0, 20, 50, 80, 100][usize::try_from(random.next() % 5).unwrap()];
        let (writes, names) = (share(), share());
        Self::Chance { random, writes, names }
    }

    /// Heads or tails.
    pub fn half(&mut self) -> bool {
        self.of_hundred(|_, _| 50)
    }

    fn write(&mut self) -> bool {
        self.of_hundred(|writes, _| writes)
    }

    fn name(&mut self) -> bool {
        self.of_hundred(|_, names| names)
    }

    fn of_hundred(&mut self, share: impl Fn(u64, u64) -> u64) -> bool {
        match self {
            Self::All => true,
            Self::Chance { random, writes, names } => random.next() % 100 < share(*writes, *names),
        }
    }
}

impl Disk {
    /// A disk with one empty directory.
    pub fn new(inode: u64) -> Self {
        let root = Node { is_dir: true, ..Node::default() };
        Self {
            nodes: vec![root],
            inodes: BTreeMap::from([(inode, 0)]),
            names: BTreeMap::from([(String::new(), 0)]),
            steps: 0,
        }
    }

    /// Takes over what an event did.
    pub fn apply(&mut self, event: &Event, luck: &mut Luck) {
        match event {
            Event::Write { inode, at, bytes, synced } => self.node(*inode).write(*at, bytes, *synced),
            Event::Resize { inode, length } => self.node(*inode).resize(*length),
            Event::Sync { inode } => self.node(*inode).sync(),
            Event::SyncFailed { inode } => self.node(*inode).sync_by_chance(luck),
            Event::Create { inode, path } => self.make(*inode, path, false),
            Event::MakeDir { inode, path } => self.make(*inode, path, true),
            Event::Remove { path } => self.step(&[(path, None)]),
            Event::Rename { from, to } => {
                let node = self.names[from];
                self.step(&[(from, None), (to, Some(node))]);
            }
            Event::Link { from, to } => {
                let node = self.names[from];
                self.step(&[(to, Some(node))]);
            }
            Event::Acknowledged { .. } | Event::Refused { .. } => {}
        }
    }

    /// The disk when the power goes during this event: it may have done something, but has promised nothing.
    pub fn interrupted_by(&self, event: &Event, luck: &mut Luck) -> Self {
        let mut disk = self.clone();
        match event {
            Event::Sync { .. } | Event::SyncFailed { .. } => {}
            Event::Write { inode, at, bytes, .. } => disk.node(*inode).write(*at, bytes, false),
            event => disk.apply(event, luck),
        }
        disk
    }

    fn node(&mut self, inode: u64) -> &mut Node {
        &mut self.nodes[self.inodes[&inode]]
    }

    fn make(&mut self, inode: u64, path: &str, is_dir: bool) {
        self.nodes.push(Node { is_dir, ..Node::default() });
        self.inodes.insert(inode, self.nodes.len() - 1);
        self.step(&[(path, Some(self.nodes.len() - 1))]);
    }

    /// Changes names, all in one step.
    fn step(&mut self, changes: &[(&str, Option<usize>)]) {
        self.steps += 1;
        for (path, node) in changes {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            let dir = self.names[dir];
            self.nodes[dir].steps.push(Step { number: self.steps, name: name.into(), node: *node });
            match node {
                Some(node) => self.names.insert((*path).into(), *node),
                None => self.names.remove(*path),
            };
        }
    }

    /// What is left when the power goes now.
    pub fn image(&self, luck: &mut Luck) -> Image {
        let arrives = (0..=self.steps).map(|_| luck.name()).collect::<Vec<_>>();
        let mut image = Image::new();
        let mut dirs = vec![(String::new(), 0)];
        while let Some((path, dir)) = dirs.pop() {
            for (name, node) in self.nodes[dir].entries_after(&arrives) {
                let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                if self.nodes[node].is_dir {
                    image.insert(path.clone(), None);
                    dirs.push((path, node));
                } else {
                    image.insert(path, Some(self.nodes[node].content_after(luck)));
                }
            }
        }
        image
    }
}

impl Node {
    fn write(&mut self, at: usize, bytes: &[u8], synced: bool) {
        let sectors = self.seen.write(at, bytes);
        let length = self.seen.length();
        if synced {
            // What was on its way to the same sectors is in them now, and can't come later.
            for earlier in &mut self.changes {
                earlier.sectors.retain(|sector, _| !sectors.contains_key(sector));
            }
            for (sector, bytes) in &sectors {
                self.sure.put(*sector, bytes, length);
            }
        } else {
            self.changes.push(Change { length, is_resize: false, sectors });
        }
    }

    fn resize(&mut self, length: usize) {
        self.seen.resize(length);
        self.changes.push(Change { length, is_resize: true, sectors: BTreeMap::new() });
    }

    fn sync(&mut self) {
        self.sync_by_chance(&mut Luck::All);
        for step in std::mem::take(&mut self.steps) {
            take(&mut self.entries, &step);
        }
    }

    /// Directories are left as they are: a file system that can't write those stops altogether.
    fn sync_by_chance(&mut self, luck: &mut Luck) {
        self.sure = self.content_after(luck);
        self.changes.clear();
    }

    fn content_after(&self, luck: &mut Luck) -> Content {
        let mut content = self.sure.clone();
        self.changes.iter().for_each(|change| change.arrive(&mut content, luck));
        content
    }

    fn entries_after(&self, arrives: &[bool]) -> BTreeMap<String, usize> {
        let mut entries = self.entries.clone();
        self.steps.iter().filter(|step| arrives[step.number]).for_each(|step| take(&mut entries, step));
        entries
    }
}

impl Change {
    /// Reaches the disk: whole, in some of its sectors, or not at all.
    fn arrive(&self, content: &mut Content, luck: &mut Luck) {
        let (arrives, is_torn) = (luck.write(), luck.half());
        if self.is_resize && arrives {
            content.resize(self.length);
        }
        for (sector, bytes) in &self.sectors {
            if arrives && (!is_torn || luck.half()) {
                content.put(*sector, bytes, self.length);
            }
        }
        if !self.is_resize && luck.half() {
            content.resize(content.length().max(self.length));
        }
    }
}

fn take(entries: &mut BTreeMap<String, usize>, step: &Step) {
    match step.node {
        Some(node) => entries.insert(step.name.clone(), node),
        None => entries.remove(&step.name),
    };
}

/// Makes the files of an image in a directory.
pub fn write_image(image: &Image, dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for (path, content) in image {
        match content {
            Some(content) => content.to_file(&dir.join(path)),
            None => std::fs::create_dir(dir.join(path)).unwrap(),
        }
    }
}

/// Reads what a directory has, as an image.
pub fn read_image(dir: &Path) -> Image {
    let mut image = Image::new();
    let mut dirs = vec![String::new()];
    while let Some(path) = dirs.pop() {
        for entry in std::fs::read_dir(dir.join(&path)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            if entry.file_type().unwrap().is_dir() {
                image.insert(path.clone(), None);
                dirs.push(path);
            } else {
                image.insert(path, Some(Content::of_file(&entry.path())));
            }
        }
    }
    image
}

//! What is in a file, sector by sector.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The bytes of a sector.
pub type Sector = Arc<[u8; SECTOR]>;

/// A file's bytes. Sectors of zeros are not kept: tables are mostly hole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    length: usize,
    sectors: BTreeMap<usize, Sector>,
}

impl Content {
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes bytes at a position; gives the sectors that they touch, as they are then.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> BTreeMap<usize, Sector> {
        let end = at + bytes.len();
        self.length = self.length.max(end);
        let mut touched = BTreeMap::new();
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let start = sector * SECTOR;
            let (from, to) = (at.max(start), end.min(start + SECTOR));
            let mut new = self.sector(sector);
            new[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
            touched.insert(sector, Arc::new(new));
        }
        for (sector, new) in &touched {
            self.keep(*sector, new.clone());
        }
        touched
    }

    /// Makes it longer or shorter.
    pub fn resize(&mut self, length: usize) {
        self.length = length;
        self.sectors.split_off(&length.div_ceil(SECTOR));
        if !length.is_multiple_of(SECTOR) {
            let mut last = self.sector(length / SECTOR);
            last[length % SECTOR..].fill(0);
            self.keep(length / SECTOR, Arc::new(last));
        }
    }

    /// Takes over a sector of a file that is `length` bytes long. The file grows at most to that.
    pub fn put(&mut self, sector: usize, bytes: &Sector, length: usize) {
        self.length = self.length.max(length.min((sector + 1) * SECTOR));
        self.keep(sector, bytes.clone());
    }

    /// Makes every byte a zero.
    pub fn clear(&mut self) {
        self.sectors.clear();
    }

    fn sector(&self, sector: usize) -> [u8; SECTOR] {
        self.sectors.get(&sector).map_or([0; SECTOR], |bytes| **bytes)
    }

    fn keep(&mut self, sector: usize, bytes: Sector) {
        if *bytes == [0; SECTOR] {
            self.sectors.remove(&sector);
        } else {
            self.sectors.insert(sector, bytes);
        }
    }

    /// Reads a file.
    pub fn of_file(path: &Path) -> Self {
        let mut content = Self::default();
        content.write(0, &std::fs::read(path).unwrap());
        content
    }

    /// Makes a file, with holes for what is not kept.
    pub fn to_file(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.set_len(self.length as u64).unwrap();
        let mut sectors = self.sectors.iter().peekable();
        while let Some((first, bytes)) = sectors.next() {
            let mut run = bytes.to_vec();
            let mut next = first + 1;
            while let Some((_, bytes)) = sectors.next_if(|(sector, _)| **sector == next) {
                run.extend_from_slice(&**bytes);
                next += 1;
            }
            run.truncate(self.length - first * SECTOR);
            file.write_all_at(&run, (first * SECTOR) as u64).unwrap();
        }
    }
}

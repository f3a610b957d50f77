//! Where Perennial keeps its rows and bodies.
//!
//! Two traits: an [`ItemTable`] holds rows and runs [`Transaction`](perennial_core::transaction::Transaction)s; a
//! [`BodyStore`] holds immutable bodies. Both can be used as trait objects. Neither decides anything: what is fresh
//! and who may publish is said by `perennial-core`.
//!
//! | | rows | bodies |
//! |---|---|---|
//! | for tests, and caches that may forget | [`MemoryTable`] | [`MemoryBodies`] |
//! | for one machine, any number of processes | [`EmbeddedTable`] | [`DiskBodies`] |
//!
//! With the feature `testing`, [`conformance`] has the suite that every backend passes, as one macro for each part,
//! and [`faulty`] has wrappers that fail, delay, repeat or lose answers by a seeded plan.

pub mod body;
pub mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
#[cfg(feature = "testing")]
pub mod faulty;
mod format;
pub mod table;
mod thread;

pub use body::disk::DiskBodies;
pub use body::memory::MemoryBodies;
pub use body::{BodyStore, BodyStoreExt};
pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use table::embedded::EmbeddedTable;
pub use table::memory::MemoryTable;
pub use table::{ItemTable, ItemTableExt};

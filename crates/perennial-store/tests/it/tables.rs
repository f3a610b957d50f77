//! Tables on the suite.

use perennial_store::conformance::Fixture;
use perennial_store::faulty::{Faults, FaultyTable, Persistent, Plan};
use perennial_store::{EmbeddedTable, ItemTable, MemoryTable};
use std::sync::Arc;

fn embedded() -> (EmbeddedTable, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (EmbeddedTable::open(dir.path().join("table")).unwrap(), dir)
}

fn embedded_fixture() -> Fixture<dyn ItemTable> {
    let (table, dir) = embedded();
    Fixture::table(table).guarded_by(dir)
}

/// Every kind of fault, for the recipes: they must come out right all the same.
fn faulty(inner: Arc<dyn ItemTable>, seed: u64) -> FaultyTable {
    FaultyTable::new(inner, Faults::new(Plan::everything(seed, 60)))
}

/// Faults that can be borne by trying again.
fn bearable(inner: Arc<dyn ItemTable>, seed: u64) -> Persistent<FaultyTable> {
    Persistent(FaultyTable::new(inner, Faults::new(Plan::harmless(seed, 100))))
}

mod memory {
    use super::*;
    perennial_store::table_conformance!(Fixture::table(MemoryTable::new()));
    perennial_store::recipe_conformance!(Fixture::table(MemoryTable::new()));
}

mod embedded {
    use super::*;
    perennial_store::table_conformance!(embedded_fixture());
    perennial_store::recipe_conformance!(embedded_fixture());
}

mod quiet_wrapper {
    use super::*;
    fn quiet() -> Fixture<dyn ItemTable> {
        Fixture::table(FaultyTable::new(Arc::new(MemoryTable::new()), Faults::new(Plan::quiet())))
    }
    perennial_store::table_conformance!(quiet());
    perennial_store::recipe_conformance!(quiet());
}

mod faulty_memory {
    use super::*;
    perennial_store::table_conformance!(Fixture::table(bearable(Arc::new(MemoryTable::new()), 1)));
    perennial_store::recipe_conformance!(Fixture::table(faulty(Arc::new(MemoryTable::new()), 1)));
}

/// The same with other dice: memory is cheap.
macro_rules! faulty_memory_with_seeds {
    ($($module:ident $seed:literal)*) => {$(
        mod $module {
            use super::*;
            perennial_store::recipe_conformance!(Fixture::table(faulty(Arc::new(MemoryTable::new()), $seed)));
        }
    )*};
}
faulty_memory_with_seeds!(dice_11 11 dice_12 12 dice_13 13 dice_14 14 dice_15 15 dice_16 16 dice_17 17 dice_18 18);

mod faulty_embedded {
    use super::*;
    perennial_store::table_conformance!({
        let (table, dir) = embedded();
        Fixture::table(bearable(Arc::new(table), 2)).guarded_by(dir)
    });
    perennial_store::recipe_conformance!({
        let (table, dir) = embedded();
        Fixture::table(faulty(Arc::new(table), 2)).guarded_by(dir)
    });
}

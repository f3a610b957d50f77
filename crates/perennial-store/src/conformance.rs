//! One suite for every backend and every wrapper, without opt-outs.
//!
//! Three macros expand to all tests of their part: [`table_conformance!`](crate::table_conformance) (what a table
//! does), [`recipe_conformance!`](crate::recipe_conformance) (what the rules of the contract make of it) and
//! [`body_conformance!`](crate::body_conformance) (what a store of bodies does). Each takes an expression that makes
//! a fresh [`Fixture`] for one test.
//!
//! ```
//! # #[cfg(test)]
//! mod memory {
//!     use perennial_store::{MemoryTable, conformance::Fixture};
//!     perennial_store::table_conformance!(Fixture::table(MemoryTable::new()));
//! }
//! ```

pub mod body;
pub mod recipes;
pub mod table;

use crate::{BodyStore, ItemTable};
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// What one test runs on, and what must live as long (a temporary directory, a server).
pub struct Fixture<T: ?Sized> {
    subject: Arc<T>,
    /// Only there to be dropped with the rest.
    guard: Box<dyn Any + Send + Sync>,
}

impl Fixture<dyn ItemTable> {
    /// A table.
    pub fn table(table: impl ItemTable) -> Self {
        Self { subject: Arc::new(table), guard: Box::new(()) }
    }
}

impl Fixture<dyn BodyStore> {
    /// A store of bodies.
    pub fn bodies(bodies: impl BodyStore) -> Self {
        Self { subject: Arc::new(bodies), guard: Box::new(()) }
    }
}

impl<T: ?Sized> Fixture<T> {
    /// Keeps something alive as long as the subject.
    #[must_use]
    pub fn guarded_by(self, guard: impl Any + Send + Sync) -> Self {
        Self { guard: Box::new((self.guard, guard)), ..self }
    }

    /// The subject itself, to be shared.
    pub fn shared(&self) -> Arc<T> {
        self.subject.clone()
    }
}

impl<T: ?Sized> Deref for Fixture<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.subject
    }
}

impl<T: ?Sized> std::fmt::Debug for Fixture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fixture")
    }
}

/// Runs a test's future to its end.
///
/// # Panics
/// When no runtime can be made.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime needs nothing that could be missing").block_on(future)
}

/// Runs a future in each of several threads at once, and gives what each came to.
///
/// # Panics
/// When one of them panics.
pub fn in_threads<T: Send + 'static, F: Future<Output = T>>(
    threads: usize,
    work: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Vec<T> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let start = Arc::new(std::sync::Barrier::new(threads));
    let running: Vec<_> = (0..threads)
        .map(|index| {
            let (work, sender, start) = (work.clone(), sender.clone(), start.clone());
            let run = move || {
                start.wait();
                let _ = sender.send(block_on(work(index)));
            };
            crate::thread::spawn("conformance", run).expect("a thread starts")
        })
        .collect();
    drop(sender);
    for thread in running {
        thread.join().expect("no thread panics");
    }
    receiver.into_iter().collect()
}

/// Expands to one test for each name. An implementation detail of the suite's macros.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($part:ident, $make:expr, $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::block_on(async {
                    let fixture = $make;
                    $crate::conformance::$part::$name(&fixture).await;
                });
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A test that no macro names would never run.
    #[test]
    fn every_test_of_the_suite_is_in_its_macro() {
        let recipes = [
            include_str!("conformance/recipes.rs"),
            include_str!("conformance/recipes/idempotency.rs"),
            include_str!("conformance/recipes/invalidation.rs"),
            include_str!("conformance/recipes/lease.rs"),
            include_str!("conformance/recipes/publish.rs"),
        ];
        for source in
            [include_str!("conformance/table.rs"), &recipes.concat(), include_str!("conformance/body.rs")]
        {
            let (list, tests) = source.split_once("\n}\n").expect("the macro comes first");
            let names: Vec<&str> = tests
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn "))
                .map(|rest| rest.split('(').next().unwrap_or_default())
                .collect();
            assert!(names.len() > 5, "the suite has tests");
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the macro");
            }
        }
    }
}

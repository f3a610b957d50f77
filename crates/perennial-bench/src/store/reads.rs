//! Reads: one META row, and an entry's ten versions.

use super::{Bench, block_on, raw, rows};
use crate::measure::{Samples, rate, timed, timed_threads};
use crate::random::Random;
use crate::report::{Line, grouped, percent};
use perennial_core::item::{Item, Value};
use perennial_core::key::RowKey;
use perennial_core::schema::{Meta, attr};
use perennial_store::table::{Consistency, Query};
use perennial_store::{ItemTable, ItemTableExt};
use std::hint::black_box;
use std::time::Duration;

/// The share of the engine's own reads that the table is expected to reach.
const EXPECTED: f64 = 0.6;
/// How often the sides take turns in a round: short turns, because other work on the machine comes and goes.
const TURNS: usize = 10;

/// Measures reads of one row, in one thread and in two.
pub fn points(bench: &Bench<'_>) {
    let mut random = Random::new(2);
    for threads in [1, 2] {
        let (mut ours, mut raws, mut typed) = (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..bench.settings.rounds {
            let [one, other, third] = point_round(bench, threads, &mut random);
            ours.push(one);
            raws.push(other);
            typed.push(third);
        }
        let plural = if threads == 1 { "thread" } else { "threads" };
        line(format!("META reads/s, {threads} {plural}"), &ours, &raws)
            .expected(">= 60 %", ours.against(&raws) >= EXPECTED)
            .print();
        line(format!("  made into the typed row, {threads} {plural}"), &typed, &raws).print();
    }
}

/// One round of reads: ours, raw, and ours as typed rows, by turns. Gives reads a second.
fn point_round(bench: &Bench<'_>, threads: usize, random: &mut Random) -> [f64; 3] {
    let mut elapsed = [Duration::ZERO; 3];
    for _ in 0..TURNS {
        let keys: Vec<Vec<RowKey>> = (0..threads).map(|_| choose(bench, random)).collect();
        elapsed[0] += read_ours(bench, &keys);
        elapsed[1] += read_raw(bench, &keys);
        elapsed[2] += read_typed(bench, &keys);
    }
    elapsed.map(|elapsed| rate(bench.settings.reads * threads, elapsed))
}

/// A line with our figure, the raw one, and their ratio.
fn line(what: impl Into<String>, ours: &Samples, raws: &Samples) -> Line {
    Line::new(what)
        .ours(grouped(ours.median()))
        .raw(grouped(raws.median()))
        .ratio(percent(ours.against(raws)))
}

/// Random rows that exist.
fn choose(bench: &Bench<'_>, random: &mut Random) -> Vec<RowKey> {
    let one = |_| rows::entry(random.below(bench.settings.rows)).meta();
    (0..bench.settings.reads / TURNS).map(one).collect()
}

/// Reads the keys of each thread, all at once.
fn read_ours(bench: &Bench<'_>, keys: &[Vec<RowKey>]) -> Duration {
    let read = |table: &dyn ItemTable, keys: &[RowKey]| {
        block_on(async {
            for key in keys {
                let item = table.get(key, Consistency::Strong).await.expect("a read works");
                let pk = item.as_ref().and_then(|item| item.get(attr::PK)).and_then(Value::as_s);
                assert_eq!(pk, Some(key.pk()), "the row was read");
            }
        });
    };
    timed_threads(keys.iter().map(|keys| || read(&*bench.table, keys)).collect())
}

fn read_typed(bench: &Bench<'_>, keys: &[Vec<RowKey>]) -> Duration {
    let read = |table: &dyn ItemTable, keys: &[RowKey]| {
        block_on(async {
            for key in keys {
                let meta = table.get_row::<Meta>(key, Consistency::Strong).await.expect("a read works");
                assert!(meta.is_some_and(|meta| meta.key == *key), "{key} was read");
            }
        });
    };
    timed_threads(keys.iter().map(|keys| || read(&*bench.table, keys)).collect())
}

fn read_raw(bench: &Bench<'_>, keys: &[Vec<RowKey>]) -> Duration {
    let keys: Vec<Vec<Vec<u8>>> = keys.iter().map(|keys| keys.iter().map(raw::key).collect()).collect();
    let read = |keys: &[Vec<u8>]| {
        for key in keys {
            let value = black_box(bench.raw.get(key));
            assert!(bench.raw.is_row(&value, key), "the row was read");
        }
    };
    timed_threads(keys.iter().map(|keys| || read(keys)).collect())
}

/// Measures queries of an entry's ten versions, newest first.
pub fn queries(bench: &Bench<'_>) {
    let mut random = Random::new(3);
    let (mut ours, mut raws) = (Samples::default(), Samples::default());
    for _ in 0..bench.settings.rounds {
        let mut elapsed = [Duration::ZERO; 2];
        for _ in 0..TURNS {
            let pks: Vec<String> = (0..bench.settings.queries / TURNS)
                .map(|_| rows::versioned_entry(random.below(bench.settings.versioned)).pk().into())
                .collect();
            elapsed[0] += query_ours(bench, &pks);
            elapsed[1] += query_raw(bench, &pks);
        }
        ours.push(rate(bench.settings.queries, elapsed[0]));
        raws.push(rate(bench.settings.queries, elapsed[1]));
    }
    line("queries of 10 versions/s", &ours, &raws).print();
}

fn query_ours(bench: &Bench<'_>, pks: &[String]) -> Duration {
    let limit = rows::VERSIONS as usize;
    let queries: Vec<_> = pks.iter().map(|pk| Query::new(pk, "VER#").descending().limit(limit)).collect();
    let run = || {
        block_on(async {
            for query in &queries {
                let page = bench.table.query(query).await.expect("a query works");
                assert!(is_history(&page.items, &query.pk), "all versions of {} came", query.pk);
            }
        });
    };
    timed(run).0
}

/// Whether these are all versions of an entry, the newest first.
fn is_history(items: &[Item], pk: &str) -> bool {
    let is = |item: Option<&Item>, number| {
        let number_is = |value: &Value| *value == rows::version_began(number).seconds().into();
        item.is_some_and(|item| {
            item.get(attr::PK).and_then(Value::as_s) == Some(pk)
                && item.get(attr::GENERATED_AT).is_some_and(number_is)
        })
    };
    items.len() == rows::VERSIONS as usize && is(items.first(), rows::VERSIONS - 1) && is(items.last(), 0)
}

fn query_raw(bench: &Bench<'_>, pks: &[String]) -> Duration {
    let bounds: Vec<_> = pks.iter().map(|pk| raw_bounds(pk)).collect();
    let run = || {
        for bounds in &bounds {
            let values = black_box(bench.raw.query(bounds, rows::VERSIONS as usize));
            assert_eq!(values.len(), rows::VERSIONS as usize, "all versions came");
            assert!(values.iter().all(|value| bench.raw.is_row(value, &bounds.0)), "they are the entry's");
        }
    };
    timed(run).0
}

/// The engine's keys between which an entry's versions are: `$` comes after `#`.
fn raw_bounds(pk: &str) -> (Vec<u8>, Vec<u8>) {
    let bound = |sk| raw::key(&RowKey::new(pk, sk).expect("the key is valid"));
    (bound("VER#"), bound("VER$"))
}

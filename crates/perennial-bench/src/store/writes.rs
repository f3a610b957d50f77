//! Writes: leases taken and generations published, by one writer and by many.

use super::raw::Change;
use super::{Bench, block_on, rows};
use crate::measure::{Samples, rate, timed};
use crate::random::Random;
use crate::report::{Line, grouped, percent, times};
use perennial_core::Recipe;
use perennial_core::key::{Entry, RowKey};
use perennial_core::lease::{Acquire, Acquired, Lease};
use perennial_core::publish::{Publish, Published, Revision};
use perennial_store::table::Consistency;
use perennial_store::{ItemTable, ItemTableExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many writers many are.
pub const MANY: usize = 64;
/// How much more many writers are expected to do than one.
const EXPECTED: f64 = 5.0;
/// How long leases are taken for.
const LEASE: Duration = Duration::from_secs(60);

/// Leaves one LOCK row, of entry 0, as a sample.
pub fn lease_sample(table: &Arc<dyn ItemTable>) {
    let acquire = acquire(rows::entry(0), &mut Random::new(4));
    let acquired = block_on(table.run(&acquire)).expect("the table answers");
    drop(held(&acquire, acquired));
}

/// What the rounds came to: one writer, and many.
#[derive(Debug, Default)]
struct Results {
    acquire: [Samples; 2],
    publish: [Samples; 2],
    raw: [Samples; 2],
}

/// Measures leases and publishes, and the same changes made raw.
pub fn run(bench: &Bench<'_>) {
    let mut deck = Deck::new(bench.settings.rows);
    let mut results = Results::default();
    let works = [(1, bench.settings.writes), (MANY, bench.settings.writes_each)];
    for _ in 0..bench.settings.rounds {
        for (index, (writers, each)) in works.into_iter().enumerate() {
            let pages = deck.deal(writers * each);
            let (acquire, publish) = regenerate(bench, &pages, each, &mut deck);
            results.acquire[index].push(acquire);
            results.publish[index].push(publish);
            results.raw[index].push(change_raw(bench, &pages, writers));
        }
    }
    results.print();
}

impl Results {
    fn print(&self) {
        let [one, many] = &self.publish;
        let [raw_one, raw_many] = &self.raw;
        line("publishes/s, 1 writer", one)
            .raw(grouped(raw_one.median()))
            .ratio(percent(one.against(raw_one)))
            .remark("raw: a durable commit for each change")
            .print();
        line("publishes/s, 64 writers", many)
            .raw(grouped(raw_many.median()))
            .ratio(percent(many.against(raw_many)))
            .remark("raw: one writer, 64 changes in each durable commit")
            .print();
        let factor = many.against(one);
        many_to_one(factor).expected(">= 5 x", factor >= EXPECTED).print();
        let [one, many] = &self.acquire;
        line("leases taken/s, 1 writer", one).print();
        line("leases taken/s, 64 writers", many).print();
        many_to_one(many.against(one)).print();
    }
}

fn line(what: &str, ours: &Samples) -> Line {
    Line::new(what).ours(grouped(ours.median()))
}

fn many_to_one(factor: f64) -> Line {
    Line::new("  64 writers against 1").ratio(times(factor))
}

/// An entry and the version that its META has now.
#[derive(Debug, Clone)]
struct Page {
    number: u32,
    version: u64,
}

/// Deals entries so that no two writers get the same one, and knows the version of each.
struct Deck {
    random: Random,
    versions: Vec<u64>,
    left: Vec<u32>,
}

impl Deck {
    fn new(rows: u32) -> Self {
        Self { random: Random::new(5), versions: vec![1; rows as usize], left: Vec::new() }
    }

    /// So many different entries.
    fn deal(&mut self, count: usize) -> Vec<Page> {
        if self.left.len() < count {
            let rows = u32::try_from(self.versions.len()).expect("it was made from a u32");
            // Entry 0 is left out: its lease is the sample.
            self.left = (1..rows).collect();
            self.random.shuffle(&mut self.left);
        }
        let dealt = self.left.split_off(self.left.len() - count);
        dealt.into_iter().map(|number| Page { number, version: self.versions[number as usize] }).collect()
    }

    /// Remembers that an entry has been published.
    fn published(&mut self, page: &Page) {
        self.versions[page.number as usize] = page.version + 1;
    }
}

fn acquire(entry: Entry, random: &mut Random) -> Acquire {
    let token = random.token();
    Acquire { entry, token, duration: LEASE, now: rows::NOW, owner: None, unless_changed: None }
}

/// The lease, which nobody else can have had.
fn held(acquire: &Acquire, acquired: Acquired) -> Lease {
    match acquired {
        Acquired::Held { lease, .. } if lease.token == acquire.token => lease,
        other => panic!("a free lease was not given: {other:?}"),
    }
}

fn publish(lease: Lease, page: &Page) -> Publish {
    Publish {
        generation: rows::generation(&lease.entry, rows::NOW, &lease.token),
        lease,
        seen: Revision::Version(page.version.into()),
        now: rows::NOW,
        version: None,
        request: None,
    }
}

/// Takes the leases of pages and publishes them, each writer `each` of them; gives both a second.
fn regenerate(bench: &Bench<'_>, pages: &[Page], each: usize, deck: &mut Deck) -> (f64, f64) {
    let acquires = pages.iter().map(|page| acquire(rows::entry(page.number), &mut deck.random)).collect();
    let (taking, leases) = run_all(bench, acquires, each);
    let leases = leases.into_iter().map(|(acquire, acquired)| held(&acquire, acquired));

    let publishes = leases.zip(pages).map(|(lease, page)| publish(lease, page)).collect();
    let (publishing, outcomes) = run_all(bench, publishes, each);
    for (publish, published) in &outcomes {
        assert_eq!(*published, Published::Done { version: publish.seen.next() });
        check(bench, publish);
    }
    for page in pages {
        deck.published(page);
    }
    (rate(pages.len(), taking), rate(pages.len(), publishing))
}

/// Runs recipes, `each` by each writer, which is a task. Gives what each recipe came to, in order.
fn run_all<R: Job>(bench: &Bench<'_>, recipes: Vec<R>, each: usize) -> (Duration, Vec<(R, R::Outcome)>) {
    let mut writers: Vec<Vec<R>> = Vec::new();
    let mut recipes = recipes.into_iter().peekable();
    while recipes.peek().is_some() {
        writers.push(recipes.by_ref().take(each).collect());
    }
    let (elapsed, mut done) = timed(|| {
        bench.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (index, recipes) in writers.into_iter().enumerate() {
                let table = bench.table.clone();
                tasks.spawn(async move { (index, run_each(&*table, recipes).await) });
            }
            tasks.join_all().await
        })
    });
    done.sort_by_key(|(index, _)| *index);
    (elapsed, done.into_iter().flat_map(|(_, outcomes)| outcomes).collect())
}

/// A recipe that a task can run.
trait Job: Recipe<Outcome: Send + 'static> + Send + Sync + 'static {}
impl<R: Recipe<Outcome: Send + 'static> + Send + Sync + 'static> Job for R {}

/// One writer: one recipe after the other.
async fn run_each<R: Job>(table: &dyn ItemTable, recipes: Vec<R>) -> Vec<(R, R::Outcome)> {
    let mut done = Vec::with_capacity(recipes.len());
    for recipe in recipes {
        let outcome = table.run(&recipe).await.expect("the table answers");
        done.push((recipe, outcome));
    }
    done
}

/// Checks that META is what was published, and that LOCK is gone.
fn check(bench: &Bench<'_>, publish: &Publish) {
    let entry = &publish.lease.entry;
    let read = |key: RowKey| {
        bench.runtime.block_on(bench.table.get(&key, Consistency::Strong)).expect("a read works")
    };
    assert!(publish.is_current(read(entry.meta()).as_ref()), "META is what was published");
    assert_eq!(read(entry.lock()), None, "LOCK is gone");
}

/// Makes the same changes raw, `batch` in a commit; gives changes a second.
fn change_raw(bench: &Bench<'_>, pages: &[Page], batch: usize) -> f64 {
    let change = |page: &Page| {
        let entry = rows::entry(page.number);
        bench.raw.change(&entry.meta(), &entry.lock(), page.version)
    };
    let changes: Vec<Change> = pages.iter().map(change).collect();
    bench.raw.prepare(&changes);
    let (elapsed, ()) = timed(|| changes.chunks(batch).for_each(|batch| bench.raw.commit(batch)));
    bench.raw.check(&changes);
    rate(changes.len(), elapsed)
}

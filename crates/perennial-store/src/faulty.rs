//! Wrappers that fail, delay, repeat or lose answers by a seeded plan.
//!
//! One seed gives one sequence of faults, so a failing test can be run again. Nothing here waits on a clock: a delay
//! lets other tasks run a number of times.

use crate::body::{BodyAttributes, BodyPage, BodyStore, BodyStream, Found, Put, collect, once};
use crate::table::{Consistency, ItemTable, Page, Query};
use crate::{Error, ErrorKind, Result};
use async_trait::async_trait;
use perennial_core::body_key::BodyKey;
use perennial_core::item::Item;
use perennial_core::key::RowKey;
use perennial_core::transaction::{TransactResult, Transaction};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Refused before anything happened, and the caller is told so.
    Refuse,
    /// Lost on the way there: nothing happened, but the caller can't know.
    LoseRequest,
    /// Lost on the way back: it happened, but the caller can't know.
    LoseAnswer,
    /// Other tasks go first.
    Delay,
    /// It happens twice, and the caller gets the second answer, as after a retry below the surface.
    Repeat,
}

impl Fault {
    /// Every kind of fault.
    pub const ALL: [Self; 5] = [Self::Refuse, Self::LoseRequest, Self::LoseAnswer, Self::Delay, Self::Repeat];
}

/// Which call a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the traits' methods")]
pub enum Call {
    Get,
    Query,
    Transact,
    PutBody,
    GetBody,
    DeleteBody,
    ListBodies,
}

impl Call {
    /// Whether the call changes anything.
    pub fn writes(self) -> bool {
        matches!(self, Self::Transact | Self::PutBody | Self::DeleteBody)
    }
}

/// How often what goes wrong: out of 1,000 calls of each kind.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    seed: u64,
    rates: BTreeMap<(Call, Fault), u16>,
}

impl Plan {
    /// Nothing goes wrong.
    pub fn quiet() -> Self {
        Self::default()
    }

    /// Every fault hits every call, each `per_mille` times in 1,000.
    pub fn everything(seed: u64, per_mille: u16) -> Self {
        Self::quiet().with_seed(seed).add(|_, _| true, per_mille)
    }

    /// Only faults after which the same call can simply be made again: anything for reads; for writes those that
    /// say that nothing happened, and delays.
    pub fn harmless(seed: u64, per_mille: u16) -> Self {
        let harmless = |call: Call, fault| !call.writes() || matches!(fault, Fault::Refuse | Fault::Delay);
        Self::quiet().with_seed(seed).add(harmless, per_mille)
    }

    /// The same plan with another sequence of faults.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// With faults where `select` says so.
    #[must_use]
    pub fn add(mut self, select: impl Fn(Call, Fault) -> bool, per_mille: u16) -> Self {
        const CALLS: [Call; 7] = [
            Call::Get,
            Call::Query,
            Call::Transact,
            Call::PutBody,
            Call::GetBody,
            Call::DeleteBody,
            Call::ListBodies,
        ];
        for call in CALLS {
            for fault in Fault::ALL.into_iter().filter(|fault| select(call, *fault)) {
                self.rates.insert((call, fault), per_mille);
            }
        }
        self
    }
}

/// A plan being carried out, and the record of what it did.
#[derive(Debug)]
pub struct Faults {
    plan: Plan,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: SplitMix64,
    done: BTreeMap<(Call, Fault), u64>,
}

impl Faults {
    /// Starts a plan.
    pub fn new(plan: Plan) -> Arc<Self> {
        let random = SplitMix64(plan.seed);
        Arc::new(Self { plan, state: Mutex::new(State { random, done: BTreeMap::new() }) })
    }

    /// How often each fault has hit each call.
    pub fn done(&self) -> BTreeMap<(Call, Fault), u64> {
        self.state().done.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes wrong with this call, if anything.
    fn next(&self, call: Call) -> Option<Fault> {
        let mut state = self.state();
        let mut dice = u16::try_from(state.random.next() % 1000).unwrap_or(0);
        for fault in Fault::ALL {
            let rate = self.plan.rates.get(&(call, fault)).copied().unwrap_or(0);
            if dice < rate {
                *state.done.entry((call, fault)).or_default() += 1;
                return Some(fault);
            }
            dice -= rate;
        }
        None
    }

    /// Makes a call, or what the plan makes of it.
    async fn around<T, F: Future<Output = Result<T>>>(
        &self,
        call: Call,
        effect: impl Fn() -> F,
    ) -> Result<T> {
        let lost = |how: &str| Error::new(ErrorKind::Unsettled, format!("{call:?}: {how} (injected)"));
        match self.next(call) {
            None => effect().await,
            Some(Fault::Refuse) => Err(Error::new(ErrorKind::Busy, format!("{call:?}: refused (injected)"))),
            Some(Fault::LoseRequest) => Err(lost("the request was lost")),
            Some(Fault::LoseAnswer) => {
                effect().await?;
                Err(lost("the answer was lost"))
            }
            Some(Fault::Delay) => {
                let times = self.state().random.next() % 8;
                Yield(times).await;
                effect().await
            }
            Some(Fault::Repeat) => {
                effect().await?;
                effect().await
            }
        }
    }
}

/// A small generator of pseudo-random numbers: one seed, one sequence, on every machine.
#[derive(Debug, Clone)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so an iterator's Option would be noise")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Lets other tasks run so many times.
struct Yield(u64);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A table whose calls go wrong by a plan.
#[derive(Debug)]
pub struct FaultyTable {
    inner: Arc<dyn ItemTable>,
    faults: Arc<Faults>,
}

impl FaultyTable {
    /// Wraps a table.
    pub fn new(inner: Arc<dyn ItemTable>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl ItemTable for FaultyTable {
    async fn get(&self, key: &RowKey, consistency: Consistency) -> Result<Option<Item>> {
        self.faults.around(Call::Get, || self.inner.get(key, consistency)).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.faults.around(Call::Query, || self.inner.query(query)).await
    }

    async fn transact(&self, transaction: &Transaction) -> Result<TransactResult> {
        self.faults.around(Call::Transact, || self.inner.transact(transaction)).await
    }

    fn change_counter(&self) -> Option<u64> {
        self.inner.change_counter()
    }
}

/// A store of bodies whose calls go wrong by a plan.
#[derive(Debug)]
pub struct FaultyBodies {
    inner: Arc<dyn BodyStore>,
    faults: Arc<Faults>,
}

impl FaultyBodies {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn BodyStore>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl BodyStore for FaultyBodies {
    /// A body has to be at hand whole to be put twice, so it is read before anything goes wrong with it.
    async fn put(&self, key: &BodyKey, attributes: &BodyAttributes, body: BodyStream) -> Result<Put> {
        let bytes = collect(key, body).await?;
        self.faults.around(Call::PutBody, || self.inner.put(key, attributes, once(bytes.clone()))).await
    }

    async fn get(&self, key: &BodyKey) -> Result<Found> {
        self.faults.around(Call::GetBody, || self.inner.get(key)).await
    }

    async fn delete(&self, key: &BodyKey) -> Result<()> {
        self.faults.around(Call::DeleteBody, || self.inner.delete(key)).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<BodyPage> {
        self.faults.around(Call::ListBodies, || self.inner.list(after, limit)).await
    }
}

/// How often [`Persistent`] tries before it gives up.
const TRIES: usize = 100;

/// A table or a store of bodies that makes a call again when that can do no harm: reads after any passing failure,
/// writes when the failure says that nothing happened.
#[derive(Debug)]
pub struct Persistent<T>(pub T);

impl<T> Persistent<T> {
    async fn insist<R, F: Future<Output = Result<R>>>(
        &self,
        call: Call,
        attempt: impl Fn() -> F,
    ) -> Result<R> {
        for _ in 1..TRIES {
            match attempt().await {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                Err(error) if error.kind() == ErrorKind::Unsettled && !call.writes() => {}
                settled => return settled,
            }
        }
        attempt().await
    }
}

#[async_trait]
impl ItemTable for Persistent<FaultyTable> {
    async fn get(&self, key: &RowKey, consistency: Consistency) -> Result<Option<Item>> {
        self.insist(Call::Get, || self.0.get(key, consistency)).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.insist(Call::Query, || self.0.query(query)).await
    }

    async fn transact(&self, transaction: &Transaction) -> Result<TransactResult> {
        self.insist(Call::Transact, || self.0.transact(transaction)).await
    }

    fn change_counter(&self) -> Option<u64> {
        self.0.change_counter()
    }
}

#[async_trait]
impl BodyStore for Persistent<FaultyBodies> {
    async fn put(&self, key: &BodyKey, attributes: &BodyAttributes, body: BodyStream) -> Result<Put> {
        let bytes = collect(key, body).await?;
        self.insist(Call::PutBody, || self.0.put(key, attributes, once(bytes.clone()))).await
    }

    async fn get(&self, key: &BodyKey) -> Result<Found> {
        self.insist(Call::GetBody, || self.0.get(key)).await
    }

    async fn delete(&self, key: &BodyKey) -> Result<()> {
        self.insist(Call::DeleteBody, || self.0.delete(key)).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<BodyPage> {
        self.insist(Call::ListBodies, || self.0.list(after, limit)).await
    }
}

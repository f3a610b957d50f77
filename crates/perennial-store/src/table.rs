//! Tables of rows.

pub mod embedded;
pub mod memory;

use crate::{Error, ErrorKind, Result};
use async_trait::async_trait;
use perennial_core::Recipe;
use perennial_core::item::Item;
use perennial_core::key::RowKey;
use perennial_core::schema::Row;
use perennial_core::transaction::{TransactResult, Transaction};
use std::fmt::Debug;

/// A table of rows with partition and sort keys, conditional writes and transactions.
///
/// Transactions are serialisable, and committed ones are durable as far as the backend is. A failed condition is an
/// answer that carries the rejected row, not an error.
#[async_trait]
pub trait ItemTable: Debug + Send + Sync + 'static {
    /// One row.
    async fn get(&self, key: &RowKey, consistency: Consistency) -> Result<Option<Item>>;

    /// Rows of one partition, in the order of their sort keys, a page at a time.
    async fn query(&self, query: &Query) -> Result<Page>;

    /// Runs a transaction: all of it, or nothing.
    async fn transact(&self, transaction: &Transaction) -> Result<TransactResult>;

    /// A number that changes whenever any row does, in any process, if the table can tell it at hardly any cost.
    fn change_counter(&self) -> Option<u64> {
        None
    }
}

/// Which committed writes a read must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// All that were acknowledged before the read began.
    #[default]
    Strong,
    /// Perhaps not the latest ones, at half the price where that is charged for.
    Eventual,
}

/// The order of a query's rows, by sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first.
    Descending,
}

/// Which rows of a partition are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The partition.
    pub pk: String,
    /// What the sort keys begin with; empty for all.
    pub sk_prefix: String,
    /// Continue after this sort key: what the page before said.
    pub after: Option<String>,
    /// The most rows in one page, at least 1.
    pub limit: usize,
    /// The order of rows.
    pub order: Order,
    /// Which writes must be seen.
    pub consistency: Consistency,
}

impl Query {
    /// The most rows that a page may ask for.
    pub const MAX_LIMIT: usize = 1000;

    /// All rows of a partition whose sort keys begin so, smallest first, consistently, 100 a page.
    pub fn new(pk: impl Into<String>, sk_prefix: impl Into<String>) -> Self {
        Self {
            pk: pk.into(),
            sk_prefix: sk_prefix.into(),
            after: None,
            limit: 100,
            order: Order::Ascending,
            consistency: Consistency::Strong,
        }
    }

    /// With at most so many rows a page.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Largest sort key first.
    #[must_use]
    pub fn descending(self) -> Self {
        Self { order: Order::Descending, ..self }
    }

    /// Refuses what some backend would refuse.
    pub(crate) fn validate(&self) -> Result<()> {
        if !(1..=Self::MAX_LIMIT).contains(&self.limit) {
            let message = format!("a query's limit is {}; it must be 1 to {}", self.limit, Self::MAX_LIMIT);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        // The partition key is checked with any sort key, the others as sort keys of that partition.
        let prefix = Some(self.sk_prefix.as_str()).filter(|prefix| !prefix.is_empty());
        for sk in [Some("-"), prefix, self.after.as_deref()].into_iter().flatten() {
            RowKey::new(self.pk.as_str(), sk)?;
        }
        Ok(())
    }
}

/// A page of a query's rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The rows.
    pub items: Vec<Item>,
    /// Ask again with this in [`Query::after`]; `None` at the end. The page after may be empty.
    pub next: Option<String>,
}

/// Conveniences for every table.
#[async_trait]
pub trait ItemTableExt: ItemTable {
    /// Runs a recipe and says what came of it.
    async fn run<R: Recipe + Sync>(&self, recipe: &R) -> Result<R::Outcome> {
        let transaction = recipe.transaction()?;
        let result = self.transact(&transaction).await?;
        Ok(recipe.outcome(result)?)
    }

    /// One typed row.
    async fn get_row<R: Row>(&self, key: &RowKey, consistency: Consistency) -> Result<Option<R>> {
        Ok(self.get(key, consistency).await?.map(R::from_item).transpose()?)
    }

    /// All rows of a query, page by page, up to `most` of them.
    async fn query_all(&self, mut query: Query, most: usize) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        loop {
            let page = self.query(&query).await?;
            items.extend(page.items);
            if items.len() >= most {
                items.truncate(most);
                return Ok(items);
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(items),
            }
        }
    }
}

impl<T: ItemTable + ?Sized> ItemTableExt for T {}

//! Rows in memory, for tests and for caches that may forget.

use super::{Consistency, ItemTable, Order, Page, Query};
use crate::Result;
use async_trait::async_trait;
use perennial_core::item::Item;
use perennial_core::key::RowKey;
use perennial_core::transaction::{TransactResult, Transaction, TransactionError};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A table in memory. It forgets everything when it is dropped.
#[derive(Default)]
pub struct MemoryTable {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    /// Rows by partition key, then by sort key.
    partitions: BTreeMap<String, BTreeMap<String, Item>>,
    changes: u64,
}

impl MemoryTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // No code that holds the lock leaves the rows half changed, so a panic elsewhere does not matter here.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn get(&self, key: &RowKey) -> Option<&Item> {
        self.partitions.get(key.pk())?.get(key.sk())
    }

    fn set(&mut self, key: &RowKey, row: Option<Item>) {
        let partition = self.partitions.entry(key.pk().into()).or_default();
        match row {
            Some(row) => drop(partition.insert(key.sk().into(), row)),
            None => drop(partition.remove(key.sk())),
        }
        if partition.is_empty() {
            self.partitions.remove(key.pk());
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<TransactResult> {
        let evaluation = transaction.evaluate(|key| Ok::<_, TransactionError>(self.get(key).cloned()))?;
        Ok(match evaluation.into_writes(transaction) {
            Err(rejected) => TransactResult::Rejected(rejected),
            Ok((writes, committed)) => {
                self.changes += 1;
                for write in writes {
                    self.set(&write.key, write.row);
                }
                TransactResult::Committed(committed)
            }
        })
    }

    fn query(&self, query: &Query) -> Page {
        let Some(partition) = self.partitions.get(&query.pk) else { return Page::default() };
        let prefix = query.sk_prefix.as_str();
        let after = query.after.as_deref();
        let matches = |(sk, _): &(&String, &Item)| sk.starts_with(prefix);
        let found: Vec<(&String, &Item)> = match query.order {
            Order::Ascending => {
                let start = match after {
                    Some(after) if after >= prefix => Bound::Excluded(after),
                    _ => Bound::Included(prefix),
                };
                let rows = partition.range::<str, _>((start, Bound::Unbounded));
                rows.take_while(matches).take(query.limit + 1).collect()
            }
            Order::Descending => {
                let rows = partition
                    .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                    .take_while(matches);
                let rows = rows.filter(|(sk, _)| after.is_none_or(|after| sk.as_str() < after));
                let mut rows: Vec<_> = rows.collect();
                rows.reverse();
                rows.truncate(query.limit + 1);
                rows
            }
        };
        let more = found.len() > query.limit;
        let page = &found[..found.len().min(query.limit)];
        Page {
            next: page.last().filter(|_| more).map(|(sk, _)| (*sk).clone()),
            items: page.iter().map(|(_, item)| (*item).clone()).collect(),
        }
    }
}

#[async_trait]
impl ItemTable for MemoryTable {
    async fn get(&self, key: &RowKey, _: Consistency) -> Result<Option<Item>> {
        Ok(self.rows().get(key).cloned())
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.validate()?;
        Ok(self.rows().query(query))
    }

    async fn transact(&self, transaction: &Transaction) -> Result<TransactResult> {
        self.rows().transact(transaction)
    }

    fn change_counter(&self) -> Option<u64> {
        Some(self.rows().changes)
    }
}

impl fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows().partitions.values().map(BTreeMap::len).sum::<usize>();
        f.debug_struct("MemoryTable").field("rows", &rows).finish()
    }
}

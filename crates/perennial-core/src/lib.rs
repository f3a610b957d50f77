//! The rules of Perennial, an incremental-static-regeneration cache, as pure functions and plain values.
//!
//! Rows of one table say which body is a page's current one, who may make the next one, and what has been asked for.
//! This crate says what those rows look like, what may be done to them, and what the answer to each attempt means.
//! It never does anything itself: there is no async, no I/O, no clock and no randomness here. The time, tokens and
//! random bytes are arguments. The crate does not even link the standard library, so the compiler checks that.
//!
//! A rule that writes is a [`Recipe`]: a value that gives a [`Transaction`] to run against
//! the table, and that turns the table's answer into an outcome.
//!
//! | module | what it has |
//! |---|---|
//! | [`key`], [`body_key`] | which page, which row, which body |
//! | [`item`], [`number`], [`schema`] | rows, untyped and typed |
//! | [`expr`], [`transaction`] | conditions, updates and transactions, with DynamoDB's meaning and limits |
//! | [`lease`] | who may regenerate: acquire, refresh, release, cool down |
//! | [`publish`] | how a generation becomes current, and how an old one becomes current again |
//! | [`idempotency`] | how a request regenerates once |
//! | [`freshness`], [`tag`], [`invalidate`] | what is fresh, and what ends that |
//! | [`garbage`] | which bodies nobody points at |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod body_key;
pub mod digest;
mod escape;
pub mod expr;
pub mod freshness;
pub mod garbage;
pub mod idempotency;
pub mod invalidate;
pub mod item;
pub mod key;
pub mod lease;
pub mod number;
pub mod publish;
pub mod schema;
pub mod tag;
pub mod time;
pub mod transaction;

use schema::RowError;
use transaction::{TransactResult, Transaction, TransactionError};

/// A rule that writes: from values to a transaction, and from the table's answer to an outcome.
///
/// A recipe can be run again after its answer was lost; what it means to find its own traces is part of the recipe.
pub trait Recipe {
    /// What the answer means.
    type Outcome;

    /// The transaction to run.
    fn transaction(&self) -> Result<Transaction, RecipeError>;

    /// What the table's answer means.
    fn outcome(&self, result: TransactResult) -> Result<Self::Outcome, RecipeError>;
}

/// Why a recipe can't be written as a transaction, or its answer not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// The values don't make a valid transaction.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A row that came back, or that would be written, is malformed.
    #[error(transparent)]
    Row(#[from] RowError),
}

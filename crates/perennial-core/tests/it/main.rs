//! What others write, and what we write, to the letter.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod golden;

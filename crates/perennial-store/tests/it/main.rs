//! Every backend and every wrapper on the conformance suite, and what is special about each.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bodies;
mod children;
mod crash;
mod damage;
mod embedded;
mod power;
mod processes;
mod tables;

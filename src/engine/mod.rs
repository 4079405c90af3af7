//! The loop: what comes next, done one thing at a time, recorded before and after.
//!
//! `run.rs` is the place to start reading. `state` and `next` are pure; `ledger` is the only writer.

pub mod ledger;
pub mod next;
pub mod prompt;
pub mod response;
pub mod state;

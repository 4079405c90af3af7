//! The loop of a run: decides what comes next, does one thing at a time, and records it before and after.
//!
//! Start reading at `run.rs`. `state` and `next` are pure; `ledger` is the only writer.

pub mod changes;
pub mod checks;
pub mod command_judge;
pub mod compact;
pub mod denial;
pub mod deps;
pub mod effects;
pub mod exec;
pub mod history_size;
pub mod journal_place;
pub mod ledger;
pub mod model_request;
pub mod modify;
pub mod next;
pub mod preconditions;
pub mod printed_call;
pub mod prompt;
pub mod recording;
pub mod repeated_read;
pub mod replayed_results;
pub mod response;
pub mod run;
pub mod run_error;
pub mod scheduler;
pub mod state;
pub mod stuck_detection;
pub mod verdict;

#[cfg(test)]
mod crash_tests;

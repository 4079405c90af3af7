//! The one integration binary: everything here goes through the real program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed"
)]

mod exit_codes;
mod gemini;
mod harness;
mod layering;
mod long;
mod parallel;
mod process;
mod replay;

//! The one integration binary: everything here goes through the real program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod exit_codes;
mod feedback;
mod gemini;
mod harness;
mod inputs;
mod journal;
mod layering;
mod limits;
mod patch;
mod rulings;

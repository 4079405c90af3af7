//! The one integration binary: everything here goes through the real program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed, and a test starts what it likes"
)]

mod exit_codes;
mod feedback;
mod gemini;
mod harness;
mod inputs;
mod layering;
mod limits;
mod patch;
mod process;
mod rulings;

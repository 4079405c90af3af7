//! The one integration binary: everything here goes through the real program.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod harness;
mod injection;
mod layering;
mod secrets;

//! The recipe file, from text to a resolved plan. Pure: reads no file, asks no clock.

pub mod plan;

pub use plan::Plan;

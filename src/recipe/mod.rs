//! The recipe file, from text to a resolved plan. Pure: reads no file, asks no clock.

pub mod model;
pub mod plan;
mod shell;
pub mod template;

pub use plan::Plan;

//! The words that all rooms share. Pure: no I/O, no async, no clock, nothing of ours imported.

pub mod access;
pub mod budget;
pub mod call;
pub mod event;
pub mod grant;
pub mod ids;
pub mod message;
pub mod moved;
pub mod outcome;
pub mod ruling;
pub mod secret;
pub mod source;
pub mod unruled;

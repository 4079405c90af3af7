//! The command line interface. It connects all modules; no other module imports it.

pub mod args;
pub mod asks;
pub mod candidates;
pub mod commands;
pub mod committed;
pub mod equip;
pub mod exit;
pub mod foresee;
pub mod grants;
pub mod inputs;
pub mod limits;
pub mod manual;
pub mod meeting;
pub mod origin;
pub mod out;
pub mod outputs;
pub mod places;
pub mod problems;
mod programs;
pub mod prompts;
pub mod refusal;
pub mod search;
pub mod secrets;
pub mod settings;
pub mod shipped;
pub mod signals;
#[cfg(feature = "otel")]
pub mod traces;
pub mod unread;
pub mod unseen;
pub mod variables;
pub mod verify;
pub mod version;
pub mod wire;

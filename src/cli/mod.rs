//! The command line interface. It connects all modules; no other module imports it.

pub mod args;
pub mod bootstrap;
pub mod candidates;
pub mod change_reach;
pub mod commands;
pub mod committed;
pub mod environment;
pub mod excluded_trees;
pub mod flag_hints;
pub mod git_credentials;
pub mod github;
pub mod given_input;
pub mod grants;
pub mod inputs;
pub mod limits;
pub mod manual;
pub mod named_outputs;
pub mod origin;
pub mod out;
pub mod outputs;
pub mod policy_sources;
pub mod preflight;
pub mod private_contents;
pub mod privileged_event;
pub mod problems;
mod programs;
pub mod prompts;
pub mod recipe_requests;
pub mod refusal;
pub mod sandbox_masks;
pub mod schemas;
pub mod search;
pub mod secrets;
pub mod settings;
pub mod shipped;
pub mod signals;
pub mod toolset;
#[cfg(feature = "otel")]
pub mod traces;
pub mod unchecked;
pub mod unread_stdin;
pub mod variables;
pub mod verify;
pub mod version;

pub use crate::base::exit;

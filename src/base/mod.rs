//! Types shared by all modules of the crate. Pure: no I/O, no async, no clock, and no imports from other modules of the
//! crate.

pub mod access;
pub mod address;
pub mod answer;
pub mod budget;
pub mod call;
pub mod content;
pub mod event;
pub mod exit;
pub mod git_config;
pub mod git_dir;
pub mod git_index;
pub mod glob;
pub mod grant;
pub mod ids;
pub mod message;
pub mod model_name;
pub mod outcome;
pub mod path;
pub mod percent;
pub mod quote;
pub mod replaceable;
pub mod ruling;
pub mod secret;
pub mod server_name;
pub mod slug;
pub mod source;
pub mod sync;
pub mod toolchain;
pub mod unruled;

//! The policy file and its ruling on a call. Pure: knows no provider, no engine, no file system.
pub mod profiles;
pub mod shell;

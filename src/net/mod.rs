//! The door to the network. The only room that opens a connection.

pub mod addresses;
pub mod client;
pub mod fetch;
pub mod retry;
pub mod sse;
pub mod wait;

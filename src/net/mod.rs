//! The door to the network. The only room that opens a connection.

pub mod addresses;
pub mod client;
pub mod fetch;
pub mod gate;
#[cfg(feature = "otel")]
pub mod otlp;
pub mod retry;
pub mod sse;
pub mod wait;

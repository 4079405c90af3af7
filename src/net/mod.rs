//! Network access. The only module that opens connections.

pub mod addresses;
pub mod client;
pub mod fetch;
pub mod gate;
pub mod objects;
#[cfg(feature = "otel")]
pub mod otlp;
pub mod retry;
pub mod sse;
pub mod wait;

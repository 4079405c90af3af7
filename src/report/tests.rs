//! Tests of the outputs over runs that are built event by event.

mod build;
mod html;
mod junit;
mod markdown;
mod result;
mod sinks;
mod summary;
#[cfg(feature = "otel")]
mod traces;
mod transcript;

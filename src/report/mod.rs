//! Outputs: folds over the events of a run, and sinks that receive events during the run. They cannot influence it.

pub mod export;
pub mod findings;
pub mod github;
pub mod html;
pub mod html_head;
pub mod inert;
pub mod junit;
pub mod markdown;
pub mod mbox;
pub mod progress;
pub mod result;
pub mod stream;
pub mod summary;
pub mod suspension;
pub(crate) mod text;
#[cfg(feature = "otel")]
pub mod traces;
pub mod transcript;

#[cfg(test)]
mod tests;

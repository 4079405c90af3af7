//! What calls that reach the network are given: the fetcher, who judges redirects, who searches. Reaches nothing itself.

use crate::net::fetch::{Fetcher, Judge};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The network of one run. Without a judge no redirect is followed.
#[derive(Default)]
pub struct Web {
    pub fetcher: Fetcher,
    pub judge: Option<Judge>,
    /// Absent where no search is configured; `google_web_search` is not offered then.
    pub search: Option<Search>,
}

/// Searches for a query.
pub type Search =
    Arc<dyn Fn(String, CancellationToken, Instant) -> BoxFuture<'static, Result<Answer, String>> + Send + Sync>;

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub sources: Vec<Source>,
    /// What of the text rests on which sources.
    pub marks: Vec<Mark>,
}

/// A page that a search names. Naming it grants nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub title: String,
    pub url: String,
}

/// A place in a text and the sources that it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of UTF-8 before the place.
    pub end: usize,
    /// Indices of sources.
    pub sources: Vec<usize>,
}

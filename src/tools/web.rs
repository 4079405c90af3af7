//! The network access of calls: the fetcher, the ruling on redirects, and the web search.

use crate::net::fetch::{Fetcher, UrlCheck};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Network access of one run. Without a judge no redirect is followed.
#[derive(Default)]
pub struct Web {
    pub fetcher: Fetcher,
    pub judge: Option<UrlCheck>,
    /// `None` if no search is configured; then `google_web_search` is not offered.
    pub search: Option<Search>,
}

/// A function that searches for a query.
pub type Search =
    Arc<dyn Fn(String, CancellationToken, Instant) -> BoxFuture<'static, Result<SearchAnswer, String>> + Send + Sync>;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchAnswer {
    pub text: String,
    pub sources: Vec<WebSource>,
    /// Which parts of the text come from which sources.
    pub marks: Vec<Citation>,
}

/// A page that a search names. This does not grant access to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSource {
    pub title: String,
    pub url: String,
}

/// A position in a text, and the sources of the passage that ends there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// Byte offset (UTF-8) of the position.
    pub end: usize,
    /// Indices of sources.
    pub sources: Vec<usize>,
}

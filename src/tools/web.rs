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

/// The URLs that a call of `web_fetch` names: `url` itself, then those in `prompt` without surrounding punctuation. Each
/// is named once, without its fragment.
///
/// # Errors
/// The first URL in `prompt` whose scheme is neither http nor https.
pub fn named_urls(url: Option<&str>, prompt: Option<&str>) -> Result<Vec<String>, String> {
    let mut urls: Vec<String> = url.iter().map(|url| without_fragment(url.trim()).to_owned()).collect();
    let words = prompt.unwrap_or_default().split_whitespace();
    for word in words.filter(|word| word.contains("://")) {
        let word = word.trim_start_matches(['(', '<', '[', '{', '"', '\'', '`', '*']);
        // `[text](URL)` in Markdown.
        let word = word.split_once("](").map_or(word, |(_, url)| url);
        let word = trimmed(word);
        let scheme = word
            .split_once("://")
            .map_or("", |(scheme, _)| scheme)
            .to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(word.to_owned());
        }
        let url = without_fragment(word).to_owned();
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    urls.retain(|url| !url.is_empty());
    Ok(urls)
}

fn without_fragment(url: &str) -> &str {
    url.split_once('#').map_or(url, |(before, _)| before)
}

/// Removes trailing punctuation; a closing bracket stays if it was opened within the URL.
fn trimmed(mut word: &str) -> &str {
    loop {
        let shorter = word.trim_end_matches(['.', ',', ';', ':', '!', '?', '>', ']', '}', '"', '\'', '`', '*']);
        let shorter = match shorter.strip_suffix(')') {
            Some(inner) if inner.matches('(').count() <= inner.matches(')').count() => inner,
            _ => shorter,
        };
        if shorter.len() == word.len() {
            return word;
        }
        word = shorter;
    }
}

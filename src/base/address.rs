//! Addresses of repositories.

/// Whether this is a URL, or `HOST:PATH`, and not a path.
pub fn has_host(text: &str) -> bool {
    text.contains("://") || text.split('/').next().is_some_and(|first| first.contains(':'))
}

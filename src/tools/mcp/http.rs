//! Configures the Streamable HTTP transport: TLS, the recipe's headers, and limits. The protocol is implemented by
//! rmcp.

use crate::net::client::plain;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::time::Duration;

/// Upper limit in bytes for one event.
const EVENT: usize = 32 << 20;

/// The HTTP client of a server.
pub async fn client(url: &str) -> Result<reqwest::Client, String> {
    let url = url.to_owned();
    // Loading the system's certificates blocks for milliseconds.
    let built = tokio::task::spawn_blocking(move || plain(&url, Duration::from_secs(10))).await;
    built
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}

/// Parses the recipe's headers. An error names the header, never its value.
pub fn headers(given: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in given {
        let key =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is not a valid header name"))?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| format!("the value of header {name} is not a legal one"))?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

/// The transport configuration for this URL.
pub fn config(url: &str, headers: &HeaderMap) -> StreamableHttpClientTransportConfig {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(EVENT)
        .reinit_on_expired_session(true)
}

#[cfg(test)]
mod tests {
    use super::headers;

    #[test]
    fn a_bad_value_is_not_shown() {
        let told = headers(&[("Authorization".to_owned(), "Bearer a\nb".to_owned())]).unwrap_err();
        assert_eq!(told, "the value of header Authorization is not a legal one");
        assert_eq!(headers(&[("X-Key".to_owned(), "k".to_owned())]).unwrap()["x-key"], "k");
    }
}

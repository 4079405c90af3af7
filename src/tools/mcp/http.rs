//! Configures the Streamable HTTP transport: TLS, the recipe's headers, and limits; and reads the status that a server
//! refuses a request with. The protocol is implemented by rmcp.

use super::sse::SseError;
use crate::base::secret::shortened;
use crate::net::client::plain;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use std::time::Duration;

/// Limit in characters for how much of an error response's body is quoted.
const BODY: usize = 300;

/// Upper limit in bytes for one event.
const EVENT: usize = 32 << 20;

/// The HTTP client of a server.
///
/// # Errors
/// One sentence: the URL is not `http` or `https`, or TLS cannot be set up.
pub async fn client(url: &str) -> Result<reqwest::Client, String> {
    let url = url.to_owned();
    // Loading the system's certificates blocks for milliseconds.
    let built = tokio::task::spawn_blocking(move || plain(&url, Duration::from_secs(10))).await;
    built
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}

/// Parses the recipe's headers.
///
/// # Errors
/// One sentence that names the header that is not valid, never its value.
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

/// How a server refused one request by an HTTP status, or answered it with something else than a message.
pub struct StatusRefusal {
    pub status: u16,
    /// The body of the answer, where it is known; for a status of 200, why it is no message.
    body: String,
}

impl StatusRefusal {
    /// From the error of a transport; `None` if no status arrived, so that the connection may be lost.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let bare = |status| {
            let body = String::new();
            Some(Self { status, body })
        };
        if let Some(error) = error.downcast_ref::<SseError>() {
            return match error {
                SseError::Status(status) => bare(*status),
                SseError::Other(_) => None,
            };
        }
        match error.downcast_ref::<StreamableHttpError<reqwest::Error>>()? {
            StreamableHttpError::HttpStatus(error) => bare(error.status),
            StreamableHttpError::AuthRequired(_) | StreamableHttpError::Auth(AuthError::AuthorizationRequired) => {
                bare(401)
            }
            StreamableHttpError::InsufficientScope(_) => bare(403),
            // rmcp has begun another session and sent the request again.
            StreamableHttpError::SessionExpired => bare(404),
            StreamableHttpError::UnexpectedContentType(kind) => Some(Self {
                status: 200,
                body: format!(
                    "the content type is `{}`",
                    shortened(kind.as_deref().unwrap_or_default(), BODY)
                ),
            }),
            // rmcp has no variant for other statuses; the text begins with the status and its name.
            StreamableHttpError::UnexpectedServerResponse(text) => {
                let status = text.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": "));
                let Some((status, body)) = status else {
                    let body = shortened(text, BODY);
                    return Some(Self { status: 200, body });
                };
                Some(Self {
                    status: status.split(' ').next()?.parse().ok()?,
                    body: shortened(body.trim(), BODY),
                })
            }
            _ => None,
        }
    }

    /// Whether the credentials were refused.
    pub fn is_access(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// What happened and what it means, for people and the model.
    pub fn text(&self) -> String {
        if self.status == 200 {
            return format!(
                "the server's answer is no MCP message: {}; the effect of the call is unknown",
                self.body
            );
        }
        let means = match self.status {
            401 | 403 => ": it refuses the credentials in the recipe's `headers` or `oauth`; a token may have expired",
            404 => ": it knows neither the address nor a session that was begun again, if it has any",
            429 => ": too many requests",
            500.. => "; the effect of the call is unknown",
            _ => "",
        };
        let body = match self.body.is_empty() {
            true => String::new(),
            false => format!("; it says: {}", self.body),
        };
        format!("the server answers with the HTTP status {}{means}{body}", self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::{BODY, StatusRefusal, headers};
    use crate::base::secret::check_cut;
    use rmcp::transport::streamable_http_client::StreamableHttpError;

    #[test]
    fn no_cut_of_a_body_leaves_a_part_of_a_header() {
        check_cut(BODY, |body| {
            let text = format!("HTTP 400 Bad Request: {body}");
            let error = StreamableHttpError::<reqwest::Error>::UnexpectedServerResponse(text.into());
            StatusRefusal::of(&error).unwrap().text()
        });
    }

    #[test]
    fn a_bad_value_is_not_shown() {
        let told = headers(&[("Authorization".to_owned(), "Bearer a\nb".to_owned())]).unwrap_err();
        assert_eq!(told, "the value of header Authorization is not a legal one");
        assert_eq!(headers(&[("X-Key".to_owned(), "k".to_owned())]).unwrap()["x-key"], "k");
    }
}

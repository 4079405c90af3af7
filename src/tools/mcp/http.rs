//! The Streamable HTTP transport: TLS, the recipe's headers, limits, and the kinds of HTTP responses to a request. rmcp
//! implements the protocol, but parses every response as a whole, so this client checks the limits first.

use super::inbox::Inbox;
use super::limits::{BODY, ERROR_BODY, MESSAGE};
use super::sse::SseError;
use crate::base::secret::shortened;
use crate::net::client::plain;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError as EventError, StreamableHttpClient,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

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
        .max_sse_event_size(MESSAGE)
        .reinit_on_expired_session(true)
}

type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, EventError>>;

/// Sends the messages of one connection. Clones share its state.
#[derive(Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    inbox: Inbox,
    streams: watch::Sender<Streams>,
}

/// The number of event streams that belong to no request.
#[derive(Default)]
struct Streams {
    opening: usize,
    open: usize,
}

/// Counts one event stream in [`Streams`] until it is dropped.
struct Counted {
    streams: watch::Sender<Streams>,
    is_open: bool,
}

impl Counted {
    fn opening(streams: &watch::Sender<Streams>) -> Self {
        streams.send_modify(|streams| streams.opening += 1);
        let streams = streams.clone();
        let is_open = false;
        Self { streams, is_open }
    }

    fn opened(mut self) -> Self {
        self.is_open = true;
        self.streams.send_modify(|streams| {
            streams.opening -= 1;
            streams.open += 1;
        });
        self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.streams.send_modify(|streams| match self.is_open {
            true => streams.open -= 1,
            false => streams.opening -= 1,
        });
    }
}

impl HttpClient {
    /// The client of one connection, which passes what it receives to `inbox`.
    pub fn new(client: reqwest::Client, inbox: Inbox) -> Self {
        Self {
            client,
            inbox,
            streams: watch::Sender::new(Streams::default()),
        }
    }

    /// Whether a response can arrive on an event stream that belongs to no request. Waits while such a stream is
    /// opened.
    async fn has_stream(&self) -> bool {
        let mut streams = self.streams.subscribe();
        let known = streams.wait_for(|streams| streams.open > 0 || streams.opening == 0);
        known.await.is_ok_and(|streams| streams.open > 0)
    }

    /// Posts a message. Returns the response, whatever its status.
    async fn posted(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        (session, token): (Option<&str>, Option<String>),
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .client
            .post(uri)
            .header(ACCEPT, "text/event-stream, application/json");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            // The protocol sets these itself.
            if matches!(name.as_str(), "accept" | SESSION | "last-event-id") {
                return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
            }
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        request.json(message).send().await.map_err(StreamableHttpError::Client)
    }

    /// What an HTTP response with an error status means.
    async fn refused(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (status, is_json) = (response.status(), kind_of(&response).starts_with("application/json"));
        let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let bare = || Err(HttpStatusError::new(status.as_u16(), None).into());
        if is_busy && !is_json {
            return bare();
        }
        let session = session_of(&response);
        let body = whole(response, ERROR_BODY)
            .await
            .unwrap_or_default()
            .unwrap_or_default();
        let is_access = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let ClientJsonRpcMessage::Request(request) = message {
            let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
            if (is_json || is_discovery)
                && !is_access
                && let Some(error) = self.error(&body, &request.id)
            {
                return Ok(StreamableHttpPostResponse::Json(error, session));
            }
            if is_discovery && status.is_client_error() && !is_access && !has_session {
                // The server does not know this request; rmcp then falls back to the handshake of older protocol
                // versions.
                let why = format!("server/discover rejected with HTTP {status}");
                let error = ErrorData::invalid_request(why, None);
                let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
                return Ok(StreamableHttpPostResponse::Json(error, None));
            }
        }
        if is_busy {
            return bare();
        }
        let body = String::from_utf8_lossy(&body);
        Err(StreamableHttpError::UnexpectedServerResponse(
            format!("HTTP {status}: {body}").into(),
        ))
    }

    /// The JSON-RPC error in the body of an HTTP response, as the response to this request; not every server sets its
    /// id.
    fn error(&self, body: &[u8], id: &RequestId) -> Option<ServerJsonRpcMessage> {
        let mut error: Value = serde_json::from_slice(body).ok()?;
        error.get("error").filter(|error| !error.is_null())?;
        error["id"] = id.clone().into_json_value();
        self.inbox.message(error.to_string().as_bytes())
    }

    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        (session, token): (Option<Arc<str>>, Option<String>),
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.inbox.sent(&message);
        let sent = self.posted(&uri, &message, (session.as_deref(), token), headers);
        let response = sent.await?;
        challenged(&response)?;
        let asked = match &message {
            ClientJsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return match asked.is_none() || self.has_stream().await {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false => Err(StreamableHttpError::UnexpectedServerResponse(
                    format!("HTTP {status}: ").into(),
                )),
            };
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return self.refused(response, &message, session.is_some()).await;
        }
        let (kind, session) = (kind_of(&response), session_of(&response));
        if asked.is_none() && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if kind.starts_with("text/event-stream") {
            let events = self.events(response, asked.cloned());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !kind.starts_with("application/json") {
            let kind = (!kind.is_empty()).then_some(kind);
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = whole(response, MESSAGE).await.map_err(StreamableHttpError::Client)?;
        let read = match (&body, asked) {
            (None, Some(id)) => Some(self.inbox.failed(id, &too_long())),
            (None, None) => None,
            (Some(body), _) => self.inbox.message(body),
        };
        match read {
            Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            None if asked.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            None => {
                let body = body.unwrap_or_default();
                let start = String::from_utf8_lossy(body.get(..4 * BODY).unwrap_or(&body));
                let start = match start.trim() {
                    "" => "it is empty".into(),
                    start => format!("it begins with {}", shortened(start, BODY)),
                };
                Err(StreamableHttpError::UnexpectedServerResponse(start.into()))
            }
        }
    }

    /// The events of an HTTP response to the request `asked`.
    fn events(&self, response: Response, asked: Option<RequestId>) -> Events {
        let inbox = self.inbox.clone();
        let is_too_long = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_too_long);
        let mut limit = EventLimit::default();
        let pieces = response.bytes_stream().map(move |piece| {
            let piece = piece.map_err(io::Error::other)?;
            if limit.exceeded(&piece) {
                seen.store(true, Ordering::Relaxed);
                return Err(io::Error::other("an event is too long"));
            }
            Ok(piece)
        });
        let events = SseStream::from_bytes_stream(pieces).map(move |event| match (event, &asked) {
            (Ok(event), _) => Ok(read(&inbox, event)),
            (Err(_), Some(asked)) if is_too_long.load(Ordering::Relaxed) => {
                let error = serde_json::to_string(&inbox.failed(asked, &too_long()));
                Ok(Sse::default().data(error.unwrap_or_default()))
            }
            (Err(error), _) => Err(error),
        });
        events.boxed()
    }
}

/// The error of a request whose response has too many bytes.
fn too_long() -> String {
    format!("the answer is left out: it has more than {MESSAGE} bytes")
}

/// The event with its message as the inbox returns it. An event without a message is kept, because a stream is resumed
/// from its id.
fn read(inbox: &Inbox, mut event: Sse) -> Sse {
    // rmcp handles events with other names.
    if matches!(event.event.as_deref(), None | Some("" | "message")) {
        event.data = event.data.and_then(|data| inbox.text(data.as_bytes()));
    }
    event
}

/// The header with the id of a session.
const SESSION: &str = "mcp-session-id";

fn text_of(response: &Response, name: impl reqwest::header::AsHeaderName) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn kind_of(response: &Response) -> String {
    text_of(response, CONTENT_TYPE).unwrap_or_default()
}

fn session_of(response: &Response) -> Option<String> {
    text_of(response, SESSION)
}

/// Fails for a response with `WWW-Authenticate` and status 401 or 403.
fn challenged(response: &Response) -> Result<(), Failure> {
    let Some(challenge) = text_of(response, WWW_AUTHENTICATE) else {
        return Ok(());
    };
    match response.status() {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge))),
        StatusCode::FORBIDDEN => {
            // The missing scope is left out, because only a person can grant it.
            let error = InsufficientScopeError::new(challenge, None);
            Err(StreamableHttpError::InsufficientScope(error))
        }
        _ => Ok(()),
    }
}

/// The body of a response; `None` if it has more than `most` bytes.
async fn whole(mut response: Response, most: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if piece.len() > most - body.len() {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// Counts the bytes of the current server-sent event.
#[derive(Default)]
struct EventLimit {
    event: usize,
    /// Whether the current line is empty so far.
    is_empty: bool,
    /// Whether the last byte was a carriage return.
    after_cr: bool,
}

impl EventLimit {
    /// Whether this piece brings an event to more than [`MESSAGE`] bytes. An empty line ends an event.
    fn exceeded(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            let is_second = std::mem::take(&mut self.after_cr) && *byte == b'\n';
            self.event += 1;
            match byte {
                _ if is_second => {}
                b'\n' | b'\r' => {
                    if self.is_empty {
                        self.event = 0;
                    }
                    self.is_empty = true;
                    self.after_cr = *byte == b'\r';
                }
                _ => self.is_empty = false,
            }
            if self.event > MESSAGE {
                return true;
            }
        }
        false
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post(uri, message, (session, token), headers).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        self.client.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        let opening = Counted::opening(&self.streams);
        let opened = self
            .client
            .get_stream_with_max_sse_event_size(uri, session, last, token, headers, MESSAGE);
        let (events, inbox) = (opened.await?, self.inbox.clone());
        let open = opening.opened();
        let events = events.map(move |event| {
            // The stream counts as open until this closure is dropped.
            let _open = &open;
            event.map(|event| read(&inbox, event))
        });
        Ok(events.boxed())
    }
}

/// How a server refused one request with an HTTP status, or answered it with something other than a message.
pub struct StatusRefusal {
    pub status: u16,
    /// The body of the response, if it is known; for a status of 200, why it is not a message.
    body: String,
}

impl StatusRefusal {
    /// The refusal in the error of a transport. `None` if no status arrived, so that the connection may be lost.
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
            202 | 204 => {
                ": it has taken the request, and there is no way for an answer; the effect of the call is unknown"
            }
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

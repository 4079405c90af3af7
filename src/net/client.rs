//! An HTTP client for one service: built lazily, bounded in time and size, and cancellable.

use super::addresses::address_is_public;
use super::wait::{WaitEnd, bounded};
use crate::base::secret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit until a connection is established.
    pub connect: Duration,
    /// Time limit from the request to the first byte of the response body. Models that reason first need long.
    pub first_byte: Duration,
    /// Time limit between two chunks of the body. Some services send a long tool call in one chunk.
    pub silence: Duration,
    /// Size limit of a whole body, in bytes.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(180),
            silence: Duration::from_secs(120),
            body: 128 << 20,
        }
    }
}

/// When an exchange must end at the latest.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    pub deadline: Instant,
    pub cancel: &'a CancellationToken,
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("cancelled, or the deadline was reached")]
    Ended(WaitEnd),
    /// No connection was established: refused, no such host, TLS.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Scheme, host, port and path.
        address: String,
        why: String,
    },
    /// The first byte of a response did not arrive in time.
    #[error("no first byte of a response within {}", seconds(*.0))]
    Late(Duration),
    /// The connection was lost or idle for too long.
    #[error("{0}")]
    Broken(String),
    /// The body exceeds the limit of this many bytes.
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    /// The client or the request cannot be built; waiting does not help.
    #[error("{0}")]
    Unusable(String),
}

/// A client for one origin. Nothing is read or built before the first request.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    built: OnceCell<reqwest::Client>,
}

/// A request header; its value may be a secret.
#[derive(Clone, Copy)]
pub enum RequestHeader<'a> {
    Plain(&'static str, &'a str),
    /// Name, prefix before the secret, the secret.
    Secret(&'static str, &'static str, &'a SecretString),
}

impl Client {
    /// A client that keeps its connection between requests.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            built: OnceCell::new(),
        }
    }

    /// Sends `body` as JSON and waits for the response head.
    ///
    /// # Errors
    /// [`HttpError`]. A response with any status is not an error here; redirects are not followed.
    pub async fn post(
        &self,
        url: &str,
        headers: &[RequestHeader<'_>],
        body: Vec<u8>,
        until: Until<'_>,
    ) -> Result<ResponseHead, HttpError> {
        self.send(http::Method::POST, url, headers, Some(body), until).await
    }

    /// Requests `url` and waits for the response head.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn get(&self, url: &str, until: Until<'_>) -> Result<ResponseHead, HttpError> {
        self.send(http::Method::GET, url, &[], None, until).await
    }

    /// Sends a request of any method, with or without a JSON body, and waits for the response head.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn request(
        &self,
        method: http::Method,
        url: &str,
        headers: &[RequestHeader<'_>],
        body: Option<Vec<u8>>,
        until: Until<'_>,
    ) -> Result<ResponseHead, HttpError> {
        self.send(method, url, headers, body, until).await
    }

    async fn send(
        &self,
        method: http::Method,
        url: &str,
        headers: &[RequestHeader<'_>],
        body: Option<Vec<u8>>,
        until: Until<'_>,
    ) -> Result<ResponseHead, HttpError> {
        let url = reqwest::Url::parse(url).map_err(|error| HttpError::Unusable(format!("bad address: {error}")))?;
        let headers = header_map(headers)?;
        // Reading certificates from a pipe or a mount may block forever.
        let client = bounded(self.built(&url), until.deadline, until.cancel)
            .await
            .map_err(HttpError::Ended)??;
        let started = Instant::now();
        let address = shown(&url);
        let mut request = client.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let sent = tokio::time::timeout(self.limits.first_byte, request.send());
        let response = bounded(sent, until.deadline, until.cancel)
            .await
            .map_err(HttpError::Ended)?
            .map_err(|_| HttpError::Late(self.limits.first_byte))?
            .map_err(|error| http_error(&error, &address))?;
        Ok(ResponseHead {
            status: response.status().as_u16(),
            response,
            limits: self.limits,
            taken: 0,
            first_byte: Some(self.limits.first_byte.saturating_sub(started.elapsed())),
        })
    }

    async fn built(&self, url: &reqwest::Url) -> Result<&reqwest::Client, HttpError> {
        let (limits, url) = (self.limits, url.clone());
        self.built
            .get_or_try_init(|| async move {
                // Reading the system's certificates takes milliseconds of file access.
                tokio::task::spawn_blocking(move || build(&url, limits))
                    .await
                    .map_err(|error| HttpError::Unusable(error.to_string()))?
            })
            .await
    }
}

/// The head of a response; its body is read chunk by chunk.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: u16,
    response: reqwest::Response,
    limits: Limits,
    taken: usize,
    first_byte: Option<Duration>,
}

impl ResponseHead {
    /// A header as text. `name` must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The address that answered: scheme, host, port and path, without credentials and query.
    pub fn address(&self) -> String {
        shown(self.response.url())
    }

    /// The next chunk of the body, `None` at its end.
    ///
    /// # Errors
    /// [`HttpError`]: a lost or idle connection, or a body over the limit.
    pub async fn piece(&mut self, until: Until<'_>) -> Result<Option<Vec<u8>>, HttpError> {
        let first = self.first_byte.take();
        let patience = first.unwrap_or(self.limits.silence);
        let next = tokio::time::timeout(patience, self.response.chunk());
        let piece = bounded(next, until.deadline, until.cancel)
            .await
            .map_err(HttpError::Ended)?
            .map_err(|_| match first {
                Some(_) => HttpError::Late(self.limits.first_byte),
                None => HttpError::Broken(format!("the response stalled for {}", seconds(patience))),
            })?
            .map_err(|error| http_error(&error, &self.address()))?;
        let Some(piece) = piece else { return Ok(None) };
        self.taken = self.taken.saturating_add(piece.len());
        if self.taken > self.limits.body {
            return Err(HttpError::TooLong(self.limits.body));
        }
        Ok(Some(piece.into()))
    }

    /// The rest of the body as text, cut after `most` bytes and not within a secret. If the connection is lost, returns
    /// what was received.
    ///
    /// # Errors
    /// Only [`HttpError::Ended`].
    pub async fn text(&mut self, most: usize, until: Until<'_>) -> Result<String, HttpError> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            match self.piece(until).await {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Err(ended @ HttpError::Ended(_)) => return Err(ended),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(String::from_utf8_lossy(&secret::bounded(bytes, most)).into_owned())
    }

    /// Shortens the idle limit: all that is needed has been received.
    pub fn shorten_idle_limit(&mut self) {
        self.limits.silence = self.limits.silence.min(Duration::from_secs(2));
    }

    /// Reads the short rest of the body, so that the connection can be reused. Gives up soon.
    pub async fn drain(mut self, until: Until<'_>) {
        self.limits.silence = Duration::from_millis(100);
        self.first_byte = None;
        for _ in 0..8 {
            if !matches!(self.piece(until).await, Ok(Some(_))) {
                return;
            }
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn header_map(headers: &[RequestHeader<'_>]) -> Result<HeaderMap, HttpError> {
    let mut map = HeaderMap::new();
    map.insert(
        reqwest::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    for header in headers {
        let (name, value) = match header {
            RequestHeader::Plain(name, value) => (*name, HeaderValue::from_str(value)),
            RequestHeader::Secret(name, before, secret) => {
                let value = HeaderValue::from_str(&format!("{before}{}", secret.expose_secret()));
                (
                    *name,
                    value.map(|mut value| {
                        value.set_sensitive(true);
                        value
                    }),
                )
            }
        };
        let value = value.map_err(|_| HttpError::Unusable(format!("the value of header {name} is not a legal one")))?;
        map.insert(HeaderName::from_static(name), value);
    }
    Ok(map)
}

/// Scheme, host, port and path of an address. Credentials and query are left out: they may be secret.
fn shown(url: &reqwest::Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!(
        "{}://{}{port}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        url.path()
    )
}

/// Reports the innermost cause, which says what happened; the outer ones repeat the address, with its query.
fn http_error(error: &reqwest::Error, address: &str) -> HttpError {
    let said = match error.source() {
        Some(_) => innermost(error),
        None => "the connection failed".to_owned(),
    };
    if error.is_connect() {
        let why = if error.is_timeout() {
            "connecting timed out".to_owned()
        } else {
            said
        };
        HttpError::Connect {
            address: address.to_owned(),
            why,
        }
    } else if error.is_builder() {
        HttpError::Unusable(said)
    } else {
        HttpError::Broken(format!("the connection was lost: {said}"))
    }
}

/// The innermost cause of an error, which says what happened; the outer ones repeat the address or describe this
/// program.
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn build(url: &reqwest::Url, limits: Limits) -> Result<reqwest::Client, HttpError> {
    let loopback = url.host_str().is_some_and(is_loopback);
    let builder = builder(loopback, url.scheme() == "https" || !loopback, limits)?;
    builder.build().map_err(|error| HttpError::Unusable(error.to_string()))
}

/// A builder with the settings that all clients share; `system` adds the bundled root certificates and those of this
/// machine.
fn builder(loopback: bool, system: bool, limits: Limits) -> Result<reqwest::ClientBuilder, HttpError> {
    let tls = tls(system)?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("overnight/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        // Compressed streams would be buffered by the compressing server.
        .no_gzip()
        .connect_timeout(limits.connect)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(20))
        .pool_idle_timeout(Duration::from_secs(300))
        .pool_max_idle_per_host(1);
    if loopback {
        builder = builder.no_proxy();
    }
    Ok(builder)
}

/// Time limit for sending one part of a file, and between two received chunks.
#[cfg(feature = "cloud")]
const STORE_SILENCE: Duration = Duration::from_secs(300);
/// Idle connections to an object store that are kept for the next request.
#[cfg(feature = "cloud")]
const STORE_CONNECTIONS: usize = 16;

/// A client for the object store library. `endpoint` is the server if it is not the vendor's own. Plain HTTP is allowed
/// to servers on this machine, and if `allows_http` is set.
///
/// # Errors
/// As [`plain`].
#[cfg(feature = "cloud")]
pub fn for_objects(endpoint: Option<&str>, allows_http: bool) -> Result<reqwest::Client, HttpError> {
    let parse = |url: &str| reqwest::Url::parse(url);
    let url = endpoint.map(parse).transpose();
    let url = url.map_err(|error| HttpError::Unusable(format!("the endpoint is not a URL: {error}")))?;
    let loopback = url.as_ref().and_then(reqwest::Url::host_str).is_some_and(is_loopback);
    let is_plain = url.as_ref().is_some_and(|url| url.scheme() == "http");
    let builder = builder(loopback, !(loopback && is_plain), Limits::default())?
        .read_timeout(STORE_SILENCE)
        .pool_max_idle_per_host(STORE_CONNECTIONS)
        .https_only(!allows_http && !loopback);
    builder.build().map_err(|error| HttpError::Unusable(error.to_string()))
}

/// A client for the MCP library: with the TLS settings of this program, no redirects, and no time limit except for
/// connecting, because its streams stay open. Reads the system's certificates.
///
/// # Errors
/// [`HttpError::Unusable`]: the address is not a URL, or is not `http` or `https`.
pub fn plain(url: &str, connect: Duration) -> Result<reqwest::Client, HttpError> {
    let url = reqwest::Url::parse(url).map_err(|error| HttpError::Unusable(format!("bad address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(HttpError::Unusable(format!("`{}` is not http or https", url.scheme())));
    }
    let limits = Limits {
        connect,
        ..Limits::default()
    };
    build(&url, limits)
}

/// A base URL without trailing slashes.
///
/// # Errors
/// A sentence that says what is wrong: not `http` or `https`, no host, or credentials, a query or a fragment in it.
pub fn checked_base(text: &str) -> Result<String, String> {
    let no_scheme = || format!("`{text}` must begin with http:// or https:// and a host");
    if !text.contains("://") {
        return Err(no_scheme());
    }
    let url = reqwest::Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(no_scheme());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a base URL must not contain credentials; set the key's variable".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}` must have no `?` and no `#`"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Whether the host of a URL is this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether the host of a base URL is this machine or in a private network: an address that is not public, a name
/// without a dot, which no public server has, or a name that ends in `.localhost`.
pub fn is_nearby(base: &str) -> bool {
    let url = reqwest::Url::parse(base).ok();
    let Some(host) = url.as_ref().and_then(reqwest::Url::host_str) else {
        return false;
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => !address_is_public(address),
        Err(_) => !bare.contains('.') || bare.ends_with(".localhost"),
    }
}

/// TLS settings. With `system`, they trust the bundled root certificates and those of the machine (`SSL_CERT_FILE` and
/// `SSL_CERT_DIR` are honoured); without it, none.
///
/// # Errors
/// [`HttpError::Unusable`] when the TLS library refuses its own defaults.
pub fn tls(system: bool) -> Result<ClientConfig, HttpError> {
    let mut roots = RootCertStore::empty();
    if system {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        // On a machine without certificates the bundled roots suffice, so errors are ignored.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_by_name_and_address() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.org", "128.0.0.1", "[::2]", "0.0.0.0", "ollama"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn servers_nearby_are_told_from_public_ones() {
        for base in [
            "http://localhost:11434/v1",
            "http://127.0.0.1:8080",
            "http://[::1]:1234/v1",
            "http://192.168.0.7:8000/v1",
            "http://10.0.0.2/v1",
            "http://ollama:11434/v1",
            "http://llm.localhost/v1",
        ] {
            assert!(is_nearby(base), "{base}");
        }
        for base in [
            "https://api.openai.com/v1",
            "https://8.8.8.8/v1",
            "http://llm.example.internal/v1",
            "nonsense",
        ] {
            assert!(!is_nearby(base), "{base}");
        }
    }

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        for (url, told) in [
            (
                "https://user:pw@api.example.com/v1?key=k#f",
                "https://api.example.com/v1",
            ),
            ("http://[::1]:8080/v1/models", "http://[::1]:8080/v1/models"),
        ] {
            assert_eq!(shown(&reqwest::Url::parse(url).unwrap()), told);
        }
    }

    #[test]
    fn a_client_is_built_without_certificates_of_the_machine() {
        let url = reqwest::Url::parse("http://127.0.0.1:1").unwrap();
        assert!(build(&url, Limits::default()).is_ok());
        assert_eq!(
            tls(false).unwrap().alpn_protocols,
            [b"h2".to_vec(), b"http/1.1".to_vec()]
        );
    }

    #[test]
    fn secrets_in_headers_are_marked_and_bad_ones_refused() {
        let key = SecretString::from("k");
        let map = header_map(&[RequestHeader::Secret("authorization", "Bearer ", &key)]).unwrap();
        assert_eq!(map["authorization"], "Bearer k");
        assert!(map["authorization"].is_sensitive());
        let bad = SecretString::from("k\nx: y");
        let refused = header_map(&[RequestHeader::Secret("x-api-key", "", &bad)]).unwrap_err();
        assert!(!refused.to_string().contains("x: y"), "{refused}");
    }
}

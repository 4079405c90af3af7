//! GET requests on behalf of a model: for each hop the URL is judged, the name is resolved once, the address is
//! checked, and size and time are bounded.

use super::addresses::address_is_public;
use super::client::{HttpError, innermost, tls};
use super::wait::{WaitEnd, bounded};
use crate::base::secret;
use crate::base::sync::lock;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};
use rustls::ClientConfig;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Size limit of a body, in bytes.
pub const BODY_MOST: usize = 1 << 20;
/// Length limit of a URL, in bytes.
const URL_MOST: usize = 2_048;
/// Limit of redirects.
const HOPS: usize = 5;
/// Time limit of one fetch, redirects included.
const TIME: Duration = Duration::from_secs(20);
/// Limit of requests to one host within `SPAN`.
const PER_HOST: usize = 10;
const SPAN: Duration = Duration::from_secs(60);

/// Judges a URL; the error is a sentence that says why it may not be requested.
pub type UrlCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Resolves a host and port to addresses.
pub type Resolve = Arc<dyn Fn(String, u16) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// How names are resolved, and which addresses may be connected to.
#[derive(Clone)]
pub struct NetworkReach {
    pub resolve: Resolve,
    pub admits: fn(IpAddr) -> bool,
}

impl Default for NetworkReach {
    /// The machine's resolver; public addresses only.
    fn default() -> Self {
        Self {
            resolve: Arc::new(|host, port| {
                Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
            }),
            admits: address_is_public,
        }
    }
}

/// A fetched document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// The final URL, after redirects.
    pub url: String,
    /// The `Content-Type` header; empty when there was none.
    pub content_type: String,
    pub body: Vec<u8>,
    /// Whether the body was cut after [`BODY_MOST`] bytes.
    pub cut: bool,
}

/// Why a fetch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("the run is ending")]
    Cancelled,
    #[error("no complete response within {} s", TIME.as_secs())]
    TimedOut,
    #[error("{host} received {PER_HOST} requests within {} s; try again later", SPAN.as_secs())]
    RateLimited { host: String },
    /// The URL, or the target of a redirect, is refused.
    #[error("{0}")]
    Refused(String),
    /// The service responded with this status.
    #[error("{url} answered with HTTP status {status}")]
    Status { url: String, status: u16 },
    #[error("{0}")]
    Failed(String),
}

impl From<WaitEnd> for FetchError {
    fn from(end: WaitEnd) -> Self {
        match end {
            WaitEnd::Deadline => Self::TimedOut,
            WaitEnd::Cancelled | WaitEnd::Over => Self::Cancelled,
        }
    }
}

/// Fetches for one run: counts the requests to each host.
#[derive(Default)]
pub struct Fetcher {
    reach: NetworkReach,
    asked: Mutex<HashMap<String, VecDeque<Instant>>>,
    tls: OnceCell<ClientConfig>,
}

impl Fetcher {
    /// A fetcher with another resolver and address check.
    pub fn new(reach: NetworkReach) -> Self {
        Self {
            reach,
            ..Self::default()
        }
    }

    /// Fetches `url`, which the policy has allowed. `judge` decides about each redirect; without it no redirect is
    /// followed.
    ///
    /// # Errors
    /// [`FetchError`]; a status other than 2xx is an error.
    pub async fn get(
        &self,
        url: &str,
        judge: Option<&UrlCheck>,
        cancel: &CancellationToken,
        deadline: Instant,
    ) -> Result<FetchedDocument, FetchError> {
        let deadline = deadline.min(Instant::now() + TIME);
        bounded(self.follow(url, judge), deadline, cancel).await?
    }

    async fn follow(&self, url: &str, judge: Option<&UrlCheck>) -> Result<FetchedDocument, FetchError> {
        let mut url = parse(url)?;
        let begins_here = names_this_machine(&url, judge);
        for hop in 0..=HOPS {
            let here = begins_here && names_this_machine(&url, judge);
            let response = self.ask(&url, here).await?;
            if !response.status().is_redirection() {
                return take(url, response).await;
            }
            if hop < HOPS {
                url = next(&url, &response, judge)?;
            }
        }
        Err(FetchError::Refused(format!("{url}: more than {HOPS} redirects")))
    }

    /// One request, sent only to a checked address.
    async fn ask(&self, url: &Url, here: bool) -> Result<Response, FetchError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        self.count(&host)?;
        let unknown = |why: String| FetchError::Failed(format!("{host} cannot be resolved: {why}"));
        let addresses = (self.reach.resolve)(host.clone(), port).await;
        let addresses = addresses.map_err(|error| unknown(error.to_string()))?;
        if addresses.is_empty() {
            return Err(unknown("it has no address".to_owned()));
        }
        let good = |address: &SocketAddr| match here {
            true => address.ip().is_loopback(),
            false => (self.reach.admits)(address.ip()),
        };
        if !addresses.iter().all(good) {
            return Err(FetchError::Refused(format!("{host} has an address that is not public")));
        }
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls(url.scheme() == "https").await?)
            .user_agent(concat!("overnight/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .resolve_to_addrs(&host, &addresses)
            .build()
            .map_err(|error| FetchError::Failed(error.to_string()))?;
        let accept = "text/markdown, text/html;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.1";
        let sent = client.get(url.clone()).header(ACCEPT, accept).send().await;
        sent.map_err(|error| FetchError::Failed(format!("{host}: {}", innermost(&error))))
    }

    async fn tls(&self, used: bool) -> Result<ClientConfig, FetchError> {
        let failed = |error: String| FetchError::Failed(error);
        if !used {
            return tls(false).map_err(|error: HttpError| failed(error.to_string()));
        }
        let made = self.tls.get_or_try_init(|| async {
            let made = tokio::task::spawn_blocking(|| tls(true)).await;
            made.map_err(|error| failed(error.to_string()))?
                .map_err(|error| failed(error.to_string()))
        });
        Ok(made.await?.clone())
    }

    /// Counts a request to a host; an error when the host's limit is reached.
    fn count(&self, host: &str) -> Result<(), FetchError> {
        let mut asked = lock(&self.asked);
        let now = Instant::now();
        asked.retain(|_, times| {
            times.retain(|time| now.duration_since(*time) < SPAN);
            !times.is_empty()
        });
        let times = asked.entry(host.to_owned()).or_default();
        if times.len() >= PER_HOST {
            return Err(FetchError::RateLimited { host: host.to_owned() });
        }
        times.push_back(now);
        Ok(())
    }
}

/// Parses a URL and checks what every request requires: http or https, a host name, no credentials. The fragment is
/// dropped.
fn parse(text: &str) -> Result<Url, FetchError> {
    let refused = |why: &str| FetchError::Refused(format!("{text}: {why}"));
    if text.len() > URL_MOST {
        return Err(FetchError::Refused(format!("the URL is longer than {URL_MOST} bytes")));
    }
    let mut url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("only https and http URLs are fetched"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("the URL contains credentials"));
    }
    if url.domain().is_none_or(str::is_empty) {
        return Err(refused("the host must be a name"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Whether the policy names this machine. A rule for every host covers https on port 443 only, so that `localhost` on
/// another port, or by http, is only allowed by name.
fn names_this_machine(url: &Url, judge: Option<&UrlCheck>) -> bool {
    let by_name = url.host_str() == Some("localhost") && url.port_or_known_default() != Some(443);
    by_name && judge.is_some_and(|judge| judge(url.as_str()).is_ok())
}

/// The judged target of a redirect.
fn next(from: &Url, response: &Response, judge: Option<&UrlCheck>) -> Result<Url, FetchError> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| FetchError::Failed(format!("{from} redirects without a target")))?;
    let joined = from.join(location);
    let joined = joined.map_err(|error| FetchError::Refused(format!("{from} redirects to a bad URL: {error}")))?;
    let to = parse(joined.as_str())?;
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(FetchError::Refused(format!(
            "{from} redirects from https to http ({to})"
        )));
    }
    let ruled = match judge {
        Some(judge) => judge(to.as_str()),
        None => Err("redirects are not followed here".to_owned()),
    };
    ruled.map_err(|why| FetchError::Refused(format!("{from} redirects to {to}: {why}")))?;
    Ok(to)
}

async fn take(url: Url, mut response: Response) -> Result<FetchedDocument, FetchError> {
    let status = response.status();
    if !status.is_success() {
        return Err(FetchError::Status {
            url: url.into(),
            status: status.as_u16(),
        });
    }
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let mut body = Vec::new();
    let mut cut = false;
    while !cut {
        let piece = response.chunk().await;
        let piece = piece.map_err(|error| FetchError::Failed(format!("{url}: {}", innermost(&error))))?;
        let Some(piece) = piece else { break };
        body.extend_from_slice(&piece);
        cut = body.len() > BODY_MOST;
    }
    Ok(FetchedDocument {
        url: url.into(),
        content_type,
        body: secret::bounded(body, BODY_MOST),
        cut,
    })
}

#[cfg(test)]
mod tests;

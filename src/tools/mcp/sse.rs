//! The HTTP with SSE transport of protocol version 2024-11-05: one event stream to read, one URL to post to.

use super::inbox::Inbox;
use super::limits::MESSAGE;
use crate::net::client::innermost;
use crate::net::sse::{Frame, SseDecoder};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Upper limit for messages in the queue.
const WAITING: usize = 64;

/// Why the connection was not made, or a message did not reach the server.
#[derive(Debug, thiserror::Error)]
pub enum SseError {
    /// The server refuses it with this HTTP status.
    #[error("the server answers {0}")]
    Status(u16),
    /// Everything else.
    #[error("{0}")]
    Other(String),
}

/// An open connection, closed when dropped.
pub struct Sse {
    client: Client,
    headers: HeaderMap,
    /// The URL for messages.
    post: Url,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    inbox: Inbox,
    reader: JoinHandle<()>,
}

impl Sse {
    /// Opens the stream and waits for the URL for messages, which must have the same origin. The flag is set before the
    /// connection ends because of an event of more than [`MESSAGE`] bytes.
    ///
    /// # Errors
    /// [`SseError`]: the server cannot be reached or refuses the request, or what it sends is not such a stream.
    pub async fn connect(
        client: Client,
        url: &str,
        headers: HeaderMap,
        (inbox, too_long): (Inbox, Arc<AtomicBool>),
    ) -> Result<Self, SseError> {
        let url = Url::parse(url).map_err(|error| SseError::Other(format!("bad URL: {error}")))?;
        let request = client
            .get(url.clone())
            .headers(headers.clone())
            .header(ACCEPT, "text/event-stream");
        let response = request
            .send()
            .await
            .map_err(|error| SseError::Other(innermost(&error)))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(SseError::Status(status));
        }
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(SseError::Other(format!(
                "the server answers with `{kind}`, not with an event stream"
            )));
        }
        let mut stream = Stream::new(response, too_long);
        let post = stream.endpoint(&url).await?;
        let (tell, messages) = mpsc::channel(WAITING);
        let received = inbox.clone();
        let reader = tokio::spawn(async move {
            while let Some(frame) = stream.next().await {
                let Some(message) = received.message(frame.data.as_bytes()) else {
                    continue;
                };
                if tell.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            client,
            headers,
            post,
            messages,
            inbox,
            reader,
        })
    }
}

/// The events of a response body.
struct Stream {
    response: Response,
    decoder: SseDecoder,
    too_long: Arc<AtomicBool>,
    ready: std::collections::VecDeque<Frame>,
}

impl Stream {
    fn new(response: Response, too_long: Arc<AtomicBool>) -> Self {
        Self {
            response,
            decoder: SseDecoder::new(MESSAGE),
            too_long,
            ready: std::collections::VecDeque::new(),
        }
    }

    /// The next event; `None` at the end, or if the stream is broken.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let piece = self.response.chunk().await.ok()??;
            let mut frames = Vec::new();
            if self.decoder.push(&piece, &mut frames).is_err() {
                self.too_long.store(true, Ordering::Relaxed);
                return None;
            }
            self.ready.extend(frames);
        }
    }

    async fn endpoint(&mut self, own: &Url) -> Result<Url, SseError> {
        let frame = loop {
            let frame = self.next().await;
            match frame {
                None => {
                    return Err(SseError::Other(
                        "the stream ended before it named the URL for messages".to_owned(),
                    ));
                }
                Some(frame) if frame.event == "endpoint" => break frame,
                Some(_) => {}
            }
        };
        let post = own
            .join(frame.data.trim())
            .map_err(|error| SseError::Other(format!("bad URL for messages: {error}")))?;
        match post.origin() == own.origin() {
            true => Ok(post),
            false => Err(SseError::Other(
                "the URL for messages has another origin than the server".to_owned(),
            )),
        }
    }
}

impl Transport<RoleClient> for Sse {
    type Error = SseError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        self.inbox.sent(&item);
        let body = serde_json::to_vec(&item).map_err(|error| SseError::Other(error.to_string()));
        let request = self.client.post(self.post.clone()).headers(self.headers.clone());
        async move {
            let request = request.header(CONTENT_TYPE, "application/json").body(body?);
            let answer = request
                .send()
                .await
                .map_err(|error| SseError::Other(innermost(&error)))?;
            match answer.status().is_success() {
                true => Ok(()),
                false => Err(SseError::Status(answer.status().as_u16())),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.reader.abort();
        Ok(())
    }
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

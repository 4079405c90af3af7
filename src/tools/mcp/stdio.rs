//! The stdio transport: each line of a program's stdin and stdout is a message.

use super::inbox::Inbox;
use super::limits::MESSAGE;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// A line's buffer is not kept for the next line if it is larger than this many bytes.
const KEPT: usize = 1 << 20;

/// An open connection.
pub struct Stdio<R, W> {
    stdout: BufReader<R>,
    /// The current line so far.
    line: Vec<u8>,
    /// `None` when it is closed, which asks the program to end.
    stdin: Arc<Mutex<Option<W>>>,
    inbox: Inbox,
    /// Set before the connection ends because of a line of more than [`MESSAGE`] bytes.
    too_long: Arc<AtomicBool>,
}

impl<R: AsyncRead, W> Stdio<R, W> {
    /// A connection over this program's pipes.
    pub fn new(stdout: R, stdin: W, inbox: Inbox, too_long: Arc<AtomicBool>) -> Self {
        Self {
            stdout: BufReader::new(stdout),
            line: Vec::new(),
            stdin: Arc::new(Mutex::new(Some(stdin))),
            inbox,
            too_long,
        }
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleClient> for Stdio<R, W> {
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inbox.sent(&item);
        let (line, stdin) = (serde_json::to_vec(&item), Arc::clone(&self.stdin));
        async move {
            let mut line = line?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin
                .as_mut()
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection is closed"))?;
            stdin.write_all(&line).await?;
            stdin.flush().await
        }
    }

    /// The next message; `None` at the end of the connection. A line that is too long ends it too, because its end may
    /// never come. Cancel safe: no message is lost if the future is dropped.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let piece = self.stdout.fill_buf().await.ok().filter(|piece| !piece.is_empty())?;
            let end = memchr::memchr(b'\n', piece);
            let taken = end.map_or(piece.len(), |end| end + 1);
            if self.line.len().saturating_add(taken) > MESSAGE {
                self.too_long.store(true, Ordering::Relaxed);
                return None;
            }
            self.line.extend_from_slice(piece.get(..taken).unwrap_or_default());
            self.stdout.consume(taken);
            if end.is_none() {
                continue;
            }
            let message = self.inbox.message(self.line.trim_ascii());
            self.line.clear();
            self.line.shrink_to(KEPT);
            if message.is_some() {
                return message;
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        *self.stdin.lock().await = None;
        Ok(())
    }
}

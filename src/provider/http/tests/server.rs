//! A server on a real socket that misbehaves as a test demands. One act for each request; the last one repeats.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Status, headers, body; the connection stays open.
    Say(u16, Vec<(&'static str, String)>, String),
    /// A stream of chunks with a pause before each, ended in the given way.
    Stream(Vec<String>, Duration, End),
    /// Closes the connection without a response.
    Close,
    /// Sends nothing.
    Hang,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Clean,
    /// The connection is closed in the middle of the body.
    Cut,
    /// Nothing more is sent.
    Hang,
}

/// A running server and the requests that it received.
pub struct Server {
    pub base: String,
    pub requests: Arc<Mutex<Vec<String>>>,
    pub connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (seen, count) = (Arc::clone(&requests), Arc::clone(&connections));
        let acts = Arc::new(acts);
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                open.spawn(serve(stream, Arc::clone(&acts), Arc::clone(&seen)));
            }
        });
        Self {
            base,
            requests,
            connections,
            task,
        }
    }

    /// Number of requests received.
    pub fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn serve(mut stream: TcpStream, acts: Arc<Vec<Act>>, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = request(&mut stream).await {
        let index = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        let act = acts.get(index).or(acts.last()).cloned().unwrap();
        if act_on(&mut stream, act).await.is_none() {
            return;
        }
    }
}

/// Head and body of a request as text.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}

async fn act_on(stream: &mut TcpStream, act: Act) -> Option<()> {
    match act {
        Act::Say(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.ok()
        }
        Act::Stream(pieces, pause, end) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
            for piece in pieces {
                tokio::time::sleep(pause).await;
                let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
                stream.write_all(chunk.as_bytes()).await.ok()?;
            }
            match end {
                End::Clean => stream.write_all(b"0\r\n\r\n").await.ok(),
                End::Cut => None,
                End::Hang => {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    None
                }
            }
        }
        Act::Close => None,
        Act::Hang => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            None
        }
    }
}

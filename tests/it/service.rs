//! A service on a real socket: answers as scripted, whatever it is asked, and keeps every request it saw.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One answer of the service.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole stream of these chunks.
    Stream(Vec<Value>),
    /// A whole stream as it goes over the line.
    Text(String),
    /// A status with a body and more header lines.
    Status(u16, Vec<String>, String),
    /// A stream that breaks off after these chunks.
    Half(Vec<Value>),
    /// A stream that breaks off here.
    Cut(String),
    /// 200 with a body that is no stream.
    Garbage,
    /// Nothing, until the client goes away.
    Silence,
}

/// What the service saw.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub headers: Vec<String>,
    /// Null where it is no JSON.
    pub body: Value,
    pub raw: Vec<u8>,
    pub bytes: usize,
}

/// The service. The last answer is given again and again.
pub struct Service {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Service {
    pub fn new(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        std::thread::spawn(move || {
            for peer in listener.incoming().map_while(Result::ok) {
                let (record, answers) = (Arc::clone(&record), answers.clone());
                std::thread::spawn(move || serve(peer, &record, &answers));
            }
        });
        Self { url, seen }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(peer: TcpStream, record: &Mutex<Vec<Seen>>, answers: &[Answer]) {
    let mut reader = BufReader::new(peer.try_clone().unwrap());
    let mut peer = peer;
    while let Some(seen) = request(&mut reader) {
        let turn = {
            let mut record = record.lock().unwrap();
            record.push(seen);
            record.len()
        };
        let answer = answers.get(turn - 1).or(answers.last()).unwrap();
        if !give(&mut peer, answer) {
            return;
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let (mut headers, mut length) = (Vec::new(), 0_usize);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim_end().to_owned();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        headers.push(header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen {
        line: line.trim_end().to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        raw: body,
        bytes: length,
    })
}

/// Writes an answer. Whether the connection goes on.
fn give(peer: &mut TcpStream, answer: &Answer) -> bool {
    match answer {
        Answer::Stream(chunks) => stream(peer, &events(chunks)),
        Answer::Text(body) => stream(peer, body),
        Answer::Status(status, more, body) => {
            let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n",
                body.len()
            );
            peer.write_all(format!("{head}{body}").as_bytes()).is_ok()
        }
        Answer::Half(chunks) => cut(peer, &events(chunks)),
        Answer::Cut(body) => cut(peer, body),
        Answer::Garbage => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\n\r\n<p>not here</p>";
            peer.write_all(head.as_bytes()).is_ok()
        }
        Answer::Silence => {
            let _ = peer.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = peer.read(&mut [0; 16]);
            false
        }
    }
}

fn stream(peer: &mut TcpStream, body: &str) -> bool {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    peer.write_all(format!("{head}{body}").as_bytes()).is_ok()
}

/// Says more than it gives, and goes away.
fn cut(peer: &mut TcpStream, body: &str) -> bool {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
    let _ = peer.write_all(format!("{head}{body}").as_bytes());
    false
}

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

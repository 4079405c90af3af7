//! A model service on a real socket: speaks Gemini's `streamGenerateContent` as scripted and keeps every request it saw.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One answer of the service.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole stream of these chunks.
    Stream(Vec<Value>),
    /// A status with a body and more header lines.
    Status(u16, Vec<String>, String),
    /// A stream that breaks off after these chunks.
    Half(Vec<Value>),
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
    pub body: Value,
    pub bytes: usize,
}

/// The service. The last answer is given again and again.
pub struct Gemini {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Gemini {
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

/// A reply that only says something.
pub fn says(text: &str) -> Answer {
    Answer::Stream(vec![chunk(json!([{"text": text}]), Some("STOP"), 100)])
}

/// A reply that asks for one call.
pub fn calls(tool: &str, args: &Value) -> Answer {
    let part = json!([{"functionCall": {"name": tool, "args": args}, "thoughtSignature": "c2lnbmVk"}]);
    Answer::Stream(vec![chunk(part, Some("STOP"), 100)])
}

/// One chunk of a stream.
pub fn chunk(parts: Value, finish: Option<&str>, tokens: u64) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 10, "totalTokenCount": tokens + 10},
        "modelVersion": "gemini-2.5-pro",
    })
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
        bytes: length,
    })
}

/// Writes an answer. Whether the connection goes on.
fn give(peer: &mut TcpStream, answer: &Answer) -> bool {
    match answer {
        Answer::Stream(chunks) => {
            let body = events(chunks);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            peer.write_all(format!("{head}{body}").as_bytes()).is_ok()
        }
        Answer::Status(status, more, body) => {
            let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n",
                body.len()
            );
            peer.write_all(format!("{head}{body}").as_bytes()).is_ok()
        }
        Answer::Half(chunks) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
            let _ = peer.write_all(format!("{head}{}", events(chunks)).as_bytes());
            false
        }
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

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

//! Many runs at once on one machine against one model service: nothing is shared, nothing hangs, each result is right.

use crate::harness::{Done, World};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const RUNS: usize = 40;

const POLICY: &str = "version: 1\nextends: [builtin:edit]\n";

/// A service that asks each run to write its own name, then says that it is done.
fn serve(asked: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || converse(&stream.unwrap(), &asked));
        }
    });
    format!("http://{address}/v1")
}

fn converse(stream: &TcpStream, asked: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader) {
        asked.fetch_add(1, Ordering::SeqCst);
        let answer = answer(&body).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let mut stream = stream;
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

fn request(reader: &mut BufReader<&TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).unwrap())
}

fn answer(body: &Value) -> Value {
    let messages = body["messages"].as_array().unwrap();
    let task = messages.iter().find(|message| message["role"] == "user").unwrap()["content"].to_string();
    let name: String = task.chars().filter(char::is_ascii_digit).collect();
    let told = messages.iter().any(|message| message["role"] == "tool");
    let message = if told {
        json!({ "role": "assistant", "content": format!("wrote {name}") })
    } else {
        let arguments = json!({ "file_path": "name.txt", "content": format!("{name}\n") }).to_string();
        let call =
            json!({ "id": "x", "type": "function", "function": { "name": "write_file", "arguments": arguments } });
        json!({ "role": "assistant", "content": null, "tool_calls": [call] })
    };
    let reason = if told { "stop" } else { "tool_calls" };
    json!({
        "id": "r", "object": "chat.completion", "model": "mock",
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12 },
    })
}

#[test]
fn forty_runs_at_once_do_not_meet() {
    let asked = Arc::new(AtomicUsize::new(0));
    let base = serve(Arc::clone(&asked));
    let home = World::new();
    let policy = home.beside("policy.yaml", POLICY);
    let worlds: Vec<World> = (0..RUNS).map(|_| World::repo(&[("name.txt", "nobody\n")])).collect();
    // One home for all, as on a build machine.
    let shared = home.path().join("home");
    let start = |(n, world): (usize, &World)| {
        let out = world.out().display().to_string();
        let prompt = format!("write {n}");
        let model = ["--model", "openai/mock", "--base-url", &base];
        let mut args = vec![
            "run",
            "-p",
            &prompt,
            "--policy",
            &policy,
            "--out",
            &out,
            "--max-wall",
            "2m",
        ];
        args.extend(model);
        let mut command = world.command(&args);
        command
            .env("HOME", &shared)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = worlds.iter().enumerate().map(start).collect();
    let done: Vec<Done> = children
        .into_iter()
        .map(|child| Done::of(child.wait_with_output().unwrap()))
        .collect();
    for (n, (done, world)) in done.into_iter().zip(&worlds).enumerate() {
        let done = done.exits(0);
        assert_eq!(done.stdout.trim(), format!("wrote {n}"));
        assert_eq!(world.read("name.txt"), format!("{n}\n"));
        let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
        assert!(patch.contains(&format!("\n+{n}\n")), "{patch}");
        assert_eq!(world.result()["usage"]["turns"], 2);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2 * RUNS, "two requests a run and no more");
    let names = |dir: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let mut written = names(&shared);
    written.sort();
    assert_eq!(
        written,
        [".cache", ".local"],
        "nothing but caches and the state directory is written into the home"
    );
    let state = shared.join(".local/state/overnight");
    let mut kept = names(&state);
    kept.sort();
    assert_eq!(kept, ["heads", "locks", "uncompared"]);
    for record in names(&state.join("uncompared")) {
        let record = std::fs::metadata(state.join("uncompared").join(record)).unwrap();
        assert_eq!(record.len(), 0, "every command was compared");
    }
    assert_eq!(names(&state.join("heads")).len(), RUNS, "each run has its head there");
}

//! Runs over each of the four wires, on real sockets with streams as the services send them: recorded, then played again in
//! another place without key and network.

use super::harness::{World, open_policy, project};
use super::replay::{same, tree};
use super::service::{Answer, Seen, Service};
use serde_json::{Value, json};

/// A wire as a user names it.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    pub model: &'static str,
    pub key: &'static str,
    pub base: &'static str,
    /// What its base URL ends with.
    pub version: &'static str,
    reply: fn(&Turn) -> String,
}

/// All four.
pub const WIRES: [Wire; 4] = [
    Wire {
        model: "gemini/gemini-2.5-pro",
        key: "GEMINI_API_KEY",
        base: "GOOGLE_GEMINI_BASE_URL",
        version: "",
        reply: gemini,
    },
    Wire {
        model: "openai/gpt-5",
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        version: "/v1",
        reply: chat,
    },
    Wire {
        model: "openai-responses/gpt-5",
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        version: "/v1",
        reply: responses,
    },
    Wire {
        model: "anthropic/claude-sonnet-4-5",
        key: "ANTHROPIC_API_KEY",
        base: "ANTHROPIC_BASE_URL",
        version: "",
        reply: anthropic,
    },
];

/// One reply of a model.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Which reply of the run, so that ids differ.
    pub n: usize,
    pub thought: &'static str,
    pub text: String,
    pub calls: Vec<(&'static str, Value)>,
}

impl Turn {
    pub fn says(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }

    pub fn calls(calls: &[(&'static str, Value)]) -> Self {
        Self {
            calls: calls.to_vec(),
            ..Self::default()
        }
    }
}

impl Wire {
    /// The stream of a reply.
    pub fn answer(self, turn: &Turn) -> Answer {
        Answer::Text((self.reply)(turn))
    }

    /// A service that gives these replies, in order.
    pub fn service(self, turns: &[Turn]) -> Service {
        Service::new(self.answers(turns))
    }

    pub fn answers(self, turns: &[Turn]) -> Vec<Answer> {
        let numbered = turns.iter().cloned().enumerate().map(|(n, turn)| Turn { n, ..turn });
        numbered.map(|turn| self.answer(&turn)).collect()
    }

    /// A tree whose environment leads to this service.
    pub fn world(self, service: &Service, world: World) -> World {
        world
            .env(self.key, "k-0123456789")
            .env(self.base, format!("{}{}", service.url, self.version))
    }
}

fn frames(named: bool, frames: &[Value]) -> String {
    let frame = |frame: &Value| match (named, frame["type"].as_str()) {
        (true, Some(name)) => format!("event: {name}\ndata: {frame}\n\n"),
        _ => format!("data: {frame}\n\n"),
    };
    frames.iter().map(frame).collect()
}

fn gemini(turn: &Turn) -> String {
    let chunk = |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]});
    let mut chunks = Vec::new();
    if !turn.thought.is_empty() {
        chunks.push(chunk(json!([{"text": turn.thought, "thought": true}])));
    }
    if !turn.text.is_empty() {
        chunks.push(chunk(json!([{"text": turn.text}])));
    }
    for (n, (tool, args)) in turn.calls.iter().enumerate() {
        let mut part = json!({"functionCall": {"name": tool, "args": args}});
        if n == 0 {
            part["thoughtSignature"] = json!(format!("c2lnbmVk{}", turn.n));
        }
        chunks.push(chunk(json!([part])));
    }
    let last = chunks.last_mut().unwrap();
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] = json!({
        "promptTokenCount": 1000, "cachedContentTokenCount": 600, "candidatesTokenCount": 20, "thoughtsTokenCount": 7,
        "totalTokenCount": 1027,
    });
    last["modelVersion"] = json!("gemini-2.5-pro");
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

fn chat(turn: &Turn) -> String {
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": format!("chatcmpl-{}", turn.n), "object": "chat.completion.chunk", "model": "gpt-5-2025-08-07",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let (head, tail) = turn.text.split_at(turn.text.floor_char_boundary(turn.text.len() / 2));
    for piece in [head, tail] {
        chunks.push(chunk(json!({"content": piece}), Value::Null));
    }
    for (n, (tool, args)) in turn.calls.iter().enumerate() {
        let args = args.to_string();
        let (head, tail) = args.split_at(args.floor_char_boundary(args.len() / 2));
        let id = format!("call_{}_{n}", turn.n);
        let first = json!({"index": n, "id": id, "type": "function", "function": {"name": tool, "arguments": head}});
        chunks.push(chunk(json!({"tool_calls": [first]}), Value::Null));
        let rest = json!({"index": n, "function": {"arguments": tail}});
        chunks.push(chunk(json!({"tool_calls": [rest]}), Value::Null));
    }
    let finish = if turn.calls.is_empty() { "stop" } else { "tool_calls" };
    chunks.push(chunk(json!({}), json!(finish)));
    chunks.push(json!({
        "id": format!("chatcmpl-{}", turn.n), "object": "chat.completion.chunk", "model": "gpt-5-2025-08-07", "choices": [],
        "usage": {
            "prompt_tokens": 1000, "completion_tokens": 27, "total_tokens": 1027,
            "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 7},
        },
    }));
    frames(false, &chunks) + "data: [DONE]\n\n"
}

fn responses(turn: &Turn) -> String {
    let mut output = Vec::new();
    if !turn.thought.is_empty() {
        output.push(json!({
            "type": "reasoning", "id": format!("rs_{}", turn.n),
            "summary": [{"type": "summary_text", "text": turn.thought}], "encrypted_content": format!("sealed{}", turn.n),
        }));
    }
    if !turn.text.is_empty() {
        output.push(json!({
            "type": "message", "id": format!("msg_{}", turn.n), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": turn.text, "annotations": []}],
        }));
    }
    for (n, (tool, args)) in turn.calls.iter().enumerate() {
        output.push(json!({
            "type": "function_call", "id": format!("fc_{}_{n}", turn.n), "call_id": format!("call_{}_{n}", turn.n),
            "name": tool, "arguments": args.to_string(), "status": "completed",
        }));
    }
    let id = format!("resp_{}", turn.n);
    let mut all = vec![json!({
        "type": "response.created", "response": {"id": id, "status": "in_progress", "output": []},
    })];
    for (n, item) in output.iter().enumerate() {
        all.push(json!({"type": "response.output_item.done", "output_index": n, "item": item}));
    }
    all.push(json!({
        "type": "response.completed",
        "response": {
            "id": id, "object": "response", "status": "completed", "model": "gpt-5-2025-08-07", "output": output,
            "usage": {
                "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 600}, "output_tokens": 27,
                "output_tokens_details": {"reasoning_tokens": 7}, "total_tokens": 1027,
            },
        },
    }));
    frames(true, &all)
}

fn anthropic(turn: &Turn) -> String {
    let mut all = vec![json!({
        "type": "message_start",
        "message": {
            "id": format!("msg_{}", turn.n), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
            "content": [], "stop_reason": null,
            "usage": {
                "input_tokens": 300, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 600, "output_tokens": 1,
            },
        },
    })];
    let mut blocks = Vec::new();
    if !turn.thought.is_empty() {
        let deltas = vec![
            json!({"type": "thinking_delta", "thinking": turn.thought}),
            json!({"type": "signature_delta", "signature": format!("signed{}", turn.n)}),
        ];
        blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !turn.text.is_empty() {
        let deltas = vec![json!({"type": "text_delta", "text": turn.text})];
        blocks.push((json!({"type": "text", "text": ""}), deltas));
    }
    for (n, (tool, args)) in turn.calls.iter().enumerate() {
        let deltas = vec![json!({"type": "input_json_delta", "partial_json": args.to_string()})];
        let id = format!("toolu_{}_{n}", turn.n);
        blocks.push((json!({"type": "tool_use", "id": id, "name": tool, "input": {}}), deltas));
    }
    for (n, (block, deltas)) in blocks.into_iter().enumerate() {
        all.push(json!({"type": "content_block_start", "index": n, "content_block": block}));
        for delta in deltas {
            all.push(json!({"type": "content_block_delta", "index": n, "delta": delta}));
        }
        all.push(json!({"type": "content_block_stop", "index": n}));
    }
    let stop = if turn.calls.is_empty() { "end_turn" } else { "tool_use" };
    all.push(json!({
        "type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 27},
    }));
    all.push(json!({"type": "message_stop"}));
    frames(true, &all)
}

/// A run that looks, edits by two tools in one reply, and ends.
fn editing() -> Vec<Turn> {
    vec![
        Turn {
            thought: "I must see it first.",
            text: "I look first.".to_owned(),
            ..Turn::calls(&[
                ("read_file", json!({"file_path": "src/main.rs"})),
                ("grep_search", json!({"pattern": "let x"})),
            ])
        },
        Turn {
            thought: "Now both.",
            ..Turn::calls(&[
                (
                    "replace",
                    json!({"file_path": "src/main.rs", "old_string": "let x = 1;", "new_string": "let x = \"ä\\n\";"}),
                ),
                ("write_file", json!({"file_path": "src/new.rs", "content": "// new\n"})),
            ])
        },
        Turn::calls(&[("read_file", json!({"file_path": "src/new.rs"}))]),
        Turn::says("Both files are edited."),
    ]
}

fn record(wire: Wire, service: &Service) -> World {
    let world = wire.world(service, tree());
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&[
            "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out,
        ])
        .exits(0);
    assert_eq!(done.stdout.trim(), "Both files are edited.", "{wire:?}");
    world
}

#[test]
fn a_run_over_each_wire_is_played_again_elsewhere_without_a_key() {
    for wire in WIRES {
        let service = wire.service(&editing());
        let recorded = record(wire, &service);
        let asked = service.seen();
        assert_eq!(asked.len(), 4, "{wire:?}");
        assert!(
            asked[0].headers.iter().any(|line| line.contains("k-0123456789")),
            "{wire:?}"
        );
        assert_eq!(recorded.result()["usage"]["total"], 4 * 1027, "{wire:?}");
        echoed(wire, &asked);

        let replayed = tree();
        let policy = replayed.beside("policy.yaml", open_policy(&[]));
        let model = format!("replay:{}", recorded.out().display());
        let out = replayed.out().to_string_lossy().into_owned();
        let args = [
            "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &out,
        ];
        replayed.call(&args).exits(0);
        same(&recorded, &replayed);
        assert_eq!(service.seen().len(), 4, "{wire:?}: the replay asked nobody");
    }
}

/// What the service gave to be given back is in the next request as it was.
fn echoed(wire: Wire, asked: &[Seen]) {
    let marks: &[&str] = match wire.model.split('/').next().unwrap() {
        "gemini" => &["c2lnbmVk0", "c2lnbmVk1"],
        "openai" => &["call_0_0", "call_0_1", "call_1_1"],
        "openai-responses" => &["sealed0", "sealed1", "call_1_1"],
        _ => &["signed0", "signed1", "toolu_1_1"],
    };
    let last = asked[2].body.to_string();
    for mark in marks {
        assert!(last.contains(mark), "{wire:?}: {mark} was not given back");
    }
}

#[test]
fn faults_on_the_way_change_neither_patch_nor_replay() {
    for wire in WIRES {
        let plain = record(wire, &wire.service(&editing()));
        let mut answers = wire.answers(&editing());
        let Answer::Text(whole) = &answers[1] else {
            unreachable!()
        };
        let half = whole[..whole.floor_char_boundary(whole.len() * 2 / 3)].to_owned();
        let busy = vec!["retry-after-ms: 5".to_owned()];
        answers.insert(1, Answer::Cut(half));
        answers.insert(
            1,
            Answer::Status(503, busy, "{\"error\":{\"message\":\"busy\"}}".to_owned()),
        );
        let service = Service::new(answers);
        let troubled = record(wire, &service);
        assert_eq!(service.seen().len(), 6, "{wire:?}");
        let seen = service.seen();
        assert!(
            seen[1].raw == seen[2].raw && seen[2].raw == seen[3].raw,
            "{wire:?}: asked again as it was"
        );
        let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
        assert_eq!(patch(&plain), patch(&troubled), "{wire:?}");
        let journal = std::fs::read_to_string(troubled.out().join("journal.jsonl")).unwrap();
        assert_eq!(journal.matches("\"event\":\"retried\"").count(), 2, "{wire:?}");

        let replayed = tree();
        let policy = replayed.beside("policy.yaml", open_policy(&[]));
        let model = format!("replay:{}", troubled.out().display());
        let out = replayed.out().to_string_lossy().into_owned();
        let args = [
            "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &out,
        ];
        replayed.call(&args).exits(0);
        assert_eq!(patch(&troubled), patch(&replayed), "{wire:?}");
        // The half reply was paid for if the service had counted it, and counts in the replay, too.
        assert_eq!(troubled.result()["usage"], replayed.result()["usage"], "{wire:?}");
        let cost = |world: &World| world.result()["cost"].clone();
        assert_eq!(cost(&troubled), cost(&replayed), "{wire:?}");
    }
}

/// A reply that cannot be used is charged for by the service, so it counts against the budget too.
#[test]
fn replies_that_could_not_be_used_are_in_the_usage_of_the_run() {
    let wire = WIRES[0];
    let ended = |finish: &str| {
        let chunk = json!({
            "candidates": [{"finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 500, "candidatesTokenCount": 40, "totalTokenCount": 540},
        });
        Answer::Text(frames(false, &[chunk]))
    };
    let service = Service::new(vec![ended("MALFORMED_FUNCTION_CALL"), ended("SAFETY")]);
    let world = wire.world(&service, tree());
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out,
    ];
    let done = world.call(&args).exits(7);
    let result = world.result();
    let usage = &result["usage"];
    assert_eq!(usage["turns"], 0, "{usage}");
    assert_eq!(usage["total"], 2 * 540, "{usage}");
    assert_eq!(usage["input"], 2 * 500, "{usage}");
    assert!(result["cost"].as_f64().is_some_and(|cost| cost > 0.0), "{result}");
    assert!(done.stderr.contains("[0 turns, 1"), "{}", done.stderr);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert_eq!(journal.matches("\"discarded\":{").count(), 2, "{journal}");
}

/// A service charges for a reply that breaks off, whatever it counted before, so limits hold before the next attempt.
#[test]
fn limits_hold_for_replies_that_break_off() {
    let text = "one two three four ".repeat(1_500);
    let begun = json!({
        "type": "message_start",
        "message": {"model": "claude-sonnet-4-5", "usage": {"input_tokens": 900, "output_tokens": 1}},
    });
    let opened = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    for (wire, half) in [
        (
            WIRES[1],
            frames(false, &[json!({"choices": [{"delta": {"content": text}}]})]),
        ),
        (WIRES[3], frames(true, &[begun, opened, delta])),
    ] {
        for (limit, reason) in [
            (["--max-tokens", "5000"], "limit:tokens"),
            (["--max-cost", "0.001"], "limit:cost"),
        ] {
            let service = Service::new(vec![Answer::Cut(half.clone())]);
            let world = wire.world(&service, tree());
            let policy = world.beside("policy.yaml", open_policy(&[]));
            let out = world.out().to_string_lossy().into_owned();
            let flags = [
                "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out,
            ];
            world.call(&[&flags[..], &limit].concat()).exits(6);
            let result = world.result();
            assert_eq!(service.seen().len(), 1, "{wire:?} {limit:?}");
            assert_eq!(result["reason"], reason, "{wire:?}");
            assert_eq!(result["usage"]["estimated"], json!(true), "{wire:?}");
            let output = result["usage"]["output"].as_u64().unwrap();
            assert!((7_000..8_000).contains(&output), "{wire:?}: {output}");
        }
    }
}

#[test]
fn a_miss_of_any_wires_recording_names_the_turn_and_the_lines() {
    for wire in WIRES {
        let recorded = record(wire, &wire.service(&editing()));
        let replayed = tree();
        replayed.file("src/main.rs", "fn main() {\n    let x = 1;\n    let y = 2;\n}\n");
        replayed.commit("other");
        let policy = replayed.beside("policy.yaml", open_policy(&[]));
        let model = format!("replay:{}", recorded.out().display());
        let out = replayed.out().to_string_lossy().into_owned();
        let args = [
            "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &out,
        ];
        let done = replayed.call(&args).exits(1);
        for line in ["turn 2", "+ ", "let y = 2;"] {
            assert!(done.stderr.contains(line), "{wire:?}: {line}: {}", done.stderr);
        }
        assert_eq!(replayed.result()["reason"], "replay_miss", "{wire:?}");
    }
}

/// Runs with the answers of these fixtures, the last one again and again. The exit code, and what was asked.
fn played(wire: Wire, names: &[&str], more: &[&str]) -> (World, i32, Vec<Seen>) {
    let dir = project()
        .join("fixtures/wire")
        .join(wire.model.split('/').next().unwrap());
    let answer = |name: &&str| {
        let path = dir.join(format!("{name}.response.sse"));
        Answer::Text(std::fs::read_to_string(path).unwrap())
    };
    let service = Service::new(names.iter().map(answer).collect());
    let world = wire.world(&service, tree());
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let flags = [
        "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out,
    ];
    let done = world.call(&[&flags[..], more].concat());
    let seen = service.seen();
    (world, done.code, seen)
}

/// The codes of the warnings about what the service sent.
fn warned(result: &Value) -> Vec<&str> {
    let warnings = result["warnings"].as_array().unwrap().iter();
    let codes = warnings.map(|warning| warning["code"].as_str().unwrap());
    codes
        .filter(|code| matches!(*code, "usage" | "finish_reason"))
        .collect()
}

#[test]
fn limits_hold_where_the_service_counts_nothing() {
    for more in [["--max-tokens", "300"], ["--max-cost", "0.0001"]] {
        let (world, code, seen) = played(WIRES[1], &["no-id"], &more);
        let result = world.result();
        assert_eq!(
            (code, seen.len(), &result["verdict"]),
            (6, 1, &json!("budget")),
            "{more:?}"
        );
        assert_eq!(result["usage"]["estimated"], json!(true), "{more:?}");
        assert!(result["usage"]["total"].as_u64().unwrap() > 300, "{more:?}");
        assert_eq!(warned(&result), ["usage"], "{more:?}");
    }
    // Counts as floating-point numbers and as text are counts.
    let (world, code, _) = played(WIRES[1], &["unknown-end"], &[]);
    let result = world.result();
    assert_eq!((code, &result["usage"]["total"]), (0, &json!(110)));
    assert_eq!(result["usage"].get("estimated"), None);
    assert_eq!(warned(&result), ["finish_reason"]);
}

#[test]
fn a_paused_reply_is_sent_back_and_goes_on() {
    let (world, code, seen) = played(WIRES[3], &["paused", "text"], &[]);
    assert_eq!((code, seen.len()), (0, 2));
    let last = seen[1].body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["role"], &last["content"][0]["text"]),
        (&json!("assistant"), &json!("half"))
    );
    assert_eq!(world.result()["response"], "Hello, wörld");
}

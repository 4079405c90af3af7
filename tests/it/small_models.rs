//! What small and local models do wrong, and how a run ends all the same: each case is played by a server that speaks Chat Completions
//! as vLLM, Ollama, llama.cpp and LM Studio do, on a real socket.

use super::harness::{Done, World};
use super::service::{Answer, Seen, Service};
use serde_json::{Value, json};

const MODEL: &str = "openai/qwen2.5-0.5b-instruct";
const EDIT: &str = "version: 1\nextends: [builtin:edit]\n";
const READ: &str = "version: 1\nextends: [builtin:read-only]\n";

/// One chunk with everything, the end and the figures.
fn reply(message: Value, finish: &str, (prompt, completion): (u64, u64)) -> Answer {
    let head = |delta: Value, finish: Value| {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "qwen2.5-0.5b-instruct",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let figures = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "qwen2.5-0.5b-instruct", "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    });
    let chunks = [head(message, Value::Null), head(json!({}), json!(finish)), figures];
    let frames: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Answer::Text(frames + "data: [DONE]\n\n")
}

fn says(text: &str) -> Answer {
    reply(json!({"role": "assistant", "content": text}), "stop", (900, 20))
}

/// What a server sends when the model ends at once.
fn nothing() -> Answer {
    reply(json!({"role": "assistant"}), "stop", (900, 0))
}

fn calls(tool: &str, args: &Value) -> Answer {
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": tool, "arguments": args.to_string()}});
    reply(
        json!({"role": "assistant", "tool_calls": [call]}),
        "tool_calls",
        (900, 30),
    )
}

/// A call whose arguments end in the middle.
fn cut(tool: &str) -> Answer {
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": tool, "arguments": "{\"file_path\":\"out.txt\",\"content\":\"go"}});
    reply(json!({"role": "assistant", "tool_calls": [call]}), "length", (900, 64))
}

fn writes(path: &str, content: &str) -> Answer {
    calls("write_file", &json!({"file_path": path, "content": content}))
}

fn printed() -> Answer {
    says(
        "I will write it.\n```json\n{\"name\": \"write_file\", \"arguments\": {\"file_path\": \"out.txt\", \"content\": \"good\"}}\n```",
    )
}

/// What came of a case.
struct Ran {
    world: World,
    done: Done,
    seen: Vec<Seen>,
}

impl Ran {
    /// The words of the last message of a request.
    fn told(&self, request: usize) -> String {
        let messages = self.seen[request].body["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    }

    fn tools(&self, request: usize) -> Vec<&str> {
        let tools = self.seen[request].body["tools"].as_array();
        let names = tools
            .into_iter()
            .flatten()
            .map(|tool| tool["function"]["name"].as_str().unwrap());
        names.collect()
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.world.out().join("journal.jsonl")).unwrap()
    }
}

/// Runs a recipe, or a prompt where there is none.
fn run(recipe: Option<&str>, policy: &str, args: &[&str], answers: Vec<Answer>) -> Ran {
    let long: String = (1..=200).map(|n| format!("line {n} of a file\n")).collect();
    let world = World::repo(&[
        ("src/main.rs", "fn main() {\n    let x = 1;\n}\n"),
        ("README.md", "# A tree\n"),
        ("long.txt", &long),
    ]);
    let service = Service::new(answers);
    let world = world.env("OPENAI_BASE_URL", format!("{}/v1", service.url));
    let policy = world.beside("policy.yaml", policy);
    let out = world.out().to_string_lossy().into_owned();
    let recipe = recipe.map(|text| world.beside("recipe.yaml", format!("version: 1\nname: small\n{text}")));
    let mut all = match &recipe {
        Some(path) => vec!["run", path.as_str()],
        None => vec!["run", "-p", "do it"],
    };
    all.extend(["--model", MODEL, "--policy", &policy, "--out", &out]);
    all.extend(args);
    let done = world.call(&all);
    let seen = service.seen();
    Ran { world, done, seen }
}

/// A step whose work is to write `good` into `out.txt`.
const CHECKED: &str = "
steps:
  - id: fix
    prompt: write it
    checks: [{ name: out, file: out.txt, contains: good }]
    retry: { max: 1 }
";
const ASKED: &str = "
steps: [{ id: say, prompt: say it }]
response: { schema: { type: object, required: [kind], properties: { kind: { enum: [bug, feature] } } } }
";

/// Name, recipe, policy, flags, what the server sends, how it must end: exit code, verdict, reason, requests; and what else must hold.
struct Case {
    name: &'static str,
    recipe: Option<&'static str>,
    policy: &'static str,
    args: &'static [&'static str],
    answers: Vec<Answer>,
    ends: (i32, &'static str, &'static str, usize),
    holds: fn(&Ran),
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

fn tree_is_good(ran: &Ran) {
    assert_eq!(ran.world.read("out.txt"), "good\n");
    assert!(ran.world.out().join("changes.patch").exists());
}

fn printed_calls() -> Vec<Case> {
    vec![
        Case {
            name: "1 a printed call is no answer",
            recipe: None,
            policy: EDIT,
            args: &[],
            answers: vec![printed()],
            ends: (1, "failed", "printed_call", 2),
            holds: |ran| {
                has(
                    &ran.told(1),
                    &[
                        "wrote a call of `write_file` as text",
                        "nothing was called",
                        "through the tool interface",
                    ],
                );
                has(&ran.done.stderr, &["--tool-call-parser", "--jinja"]);
                assert!(!ran.world.ws().join("out.txt").exists(), "a text is never executed");
            },
        },
        Case {
            name: "1 told once, it makes the call",
            recipe: None,
            policy: EDIT,
            args: &[],
            answers: vec![printed(), writes("out.txt", "good\n"), says("Done.")],
            ends: (0, "passed", "", 3),
            holds: tree_is_good,
        },
        Case {
            name: "1 with a schema it is told what to do",
            recipe: Some(ASKED),
            policy: READ,
            args: &[],
            answers: vec![
                says(r#"{"name": "read_file", "arguments": {"file_path": "README.md"}}"#),
                says(r#"{"kind": "bug"}"#),
            ],
            ends: (0, "no_change", "", 2),
            holds: |ran| {
                has(
                    &ran.told(1),
                    &["wrote a call of `read_file` as text", "JSON document of the schema"],
                )
            },
        },
        Case {
            name: "1 with a schema and no end of it",
            recipe: Some(ASKED),
            policy: READ,
            args: &[],
            answers: vec![says(
                r#"{"name": "read_file", "arguments": {"file_path": "README.md"}}"#,
            )],
            ends: (1, "failed", "response", 4),
            holds: |ran| {
                has(
                    &ran.told(2),
                    &["You wrote a call of `read_file` as text; nothing was called", "/kind"][..1],
                )
            },
        },
        Case {
            name: "1 with checks the feedback says that nothing was called",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &[],
            answers: vec![printed(), printed(), writes("out.txt", "good\n"), says("Done.")],
            ends: (0, "passed", "", 4),
            holds: |ran| {
                has(
                    &ran.told(2),
                    &["## out", "wrote a call of `write_file` as text, so nothing was called"],
                );
                tree_is_good(ran);
            },
        },
        Case {
            name: "1 an attempt of words alone",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &[],
            answers: vec![
                says("You should write good into out.txt."),
                writes("out.txt", "good\n"),
                says("Done."),
            ],
            ends: (0, "passed", "", 3),
            holds: |ran| has(&ran.told(1), &["No tool was called in this attempt"]),
        },
        Case {
            name: "1 a good tree is not lost to a printed call",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &[],
            answers: vec![writes("out.txt", "good\n"), printed(), printed()],
            ends: (0, "passed", "", 3),
            holds: tree_is_good,
        },
    ]
}

fn empty_replies() -> Vec<Case> {
    vec![
        Case {
            name: "2 an empty reply after work: the checks are made",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &[],
            answers: vec![writes("out.txt", "good\n"), nothing()],
            ends: (0, "passed", "", 3),
            holds: |ran| {
                has(&ran.told(2), &["Your reply was empty"]);
                assert_ne!(ran.seen[1].raw, ran.seen[2].raw, "not the same request again");
                tree_is_good(ran);
            },
        },
        Case {
            name: "2 without checks the tree stands",
            recipe: None,
            policy: EDIT,
            args: &[],
            answers: vec![writes("out.txt", "good\n"), nothing()],
            ends: (0, "passed", "", 3),
            holds: tree_is_good,
        },
        Case {
            name: "2 after wrong work the feedback goes on",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &[],
            answers: vec![
                writes("out.txt", "bad\n"),
                nothing(),
                nothing(),
                writes("out.txt", "good\n"),
                nothing(),
            ],
            ends: (0, "passed", "", 6),
            holds: tree_is_good,
        },
        Case {
            name: "2 told once, it answers",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![
                calls("read_file", &json!({"file_path": "README.md"})),
                nothing(),
                says("A tree."),
            ],
            ends: (0, "no_change", "", 3),
            holds: |ran| assert_eq!(ran.done.stdout.trim(), "A tree."),
        },
        Case {
            name: "2 nothing at all",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![nothing()],
            ends: (7, "provider", "unusable", 2),
            holds: |ran| has(&ran.done.stderr, &["two empty replies"]),
        },
    ]
}

fn declarations_and_edits() -> Vec<Case> {
    vec![
        Case {
            name: "3 tools in order of use, only those that a rule could allow",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![says("ok")],
            ends: (0, "no_change", "", 1),
            holds: |ran| {
                assert_eq!(
                    ran.tools(0),
                    [
                        "list_directory",
                        "read_file",
                        "grep_search",
                        "glob",
                        "read_many_files",
                        "write_todos"
                    ]
                );
                let system = ran.seen[0].body["messages"][0]["content"].as_str().unwrap();
                has(system, &["commands: none", "writing: nothing", "network: none"]);
            },
        },
        Case {
            name: "4 an edit made twice",
            recipe: None,
            policy: EDIT,
            args: &[],
            answers: {
                let edit =
                    json!({"file_path": "src/main.rs", "old_string": "let x = 1;", "new_string": "let y = 2222;"});
                vec![calls("replace", &edit), calls("replace", &edit), says("Done.")]
            },
            ends: (0, "passed", "", 3),
            holds: |ran| {
                has(&ran.told(2), &["already made", "at line 2"]);
                assert_eq!(ran.world.read("src/main.rs"), "fn main() {\n    let y = 2222;\n}\n");
            },
        },
        Case {
            name: "9 a path that was made up",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![
                calls("read_file", &json!({"file_path": "path/to/file.txt"})),
                calls("read_file", &json!({"file_path": "path/to/mian.rs"})),
                says("ok"),
            ],
            ends: (0, "no_change", "", 3),
            holds: |ran| {
                has(&ran.told(1), &["path/to/file.txt does not exist", "README.md", "src"]);
                has(&ran.told(2), &["files with a similar name: src/main.rs"]);
            },
        },
        Case {
            name: "10 --tools",
            recipe: None,
            policy: EDIT,
            args: &["--tools", "read_file,kind:edit"],
            answers: vec![says("ok")],
            ends: (0, "no_change", "", 1),
            holds: |ran| assert_eq!(ran.tools(0), ["read_file", "replace", "write_file"]),
        },
        Case {
            name: "10 the same read again",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![
                calls("read_file", &json!({"file_path": "long.txt"})),
                calls("read_file", &json!({"file_path": "long.txt"})),
                says("ok"),
            ],
            ends: (0, "no_change", "", 3),
            holds: |ran| {
                has(&ran.told(1), &["line 200 of a file"]);
                has(&ran.told(2), &["unchanged since c1", "200 lines"]);
                assert!(ran.told(2).len() < 200);
            },
        },
    ]
}

fn limits() -> Vec<Case> {
    vec![
        Case {
            name: "5 a call that was cut has a second try",
            recipe: Some(CHECKED),
            policy: EDIT,
            args: &["--max-output-tokens", "64"],
            answers: vec![cut("write_file"), writes("out.txt", "good\n"), says("Done.")],
            ends: (0, "passed", "", 3),
            holds: |ran| {
                has(&ran.told(1), &["after 64 tokens", "in a call of `write_file`", "smaller steps"]);
                assert_eq!(ran.seen[0].body["max_tokens"], 64);
                tree_is_good(ran);
            },
        },
        Case {
            name: "5 cut again",
            recipe: Some("model_settings: { max_output_tokens: 32 }\nsteps: [{ id: fix, prompt: write it }]"),
            policy: EDIT,
            args: &[],
            answers: vec![cut("write_file")],
            ends: (7, "provider", "length", 2),
            holds: |ran| {
                has(
                    &ran.done.stderr,
                    &["after 64 tokens", "in a call of `write_file`", "--max-output-tokens", "model_settings"],
                );
                assert_eq!(ran.seen[0].body["max_tokens"], 32);
            },
        },
        Case {
            name: "6 the first byte is awaited as long as is set, and the reason is told",
            recipe: None,
            policy: READ,
            args: &["--first-byte-timeout", "1s"],
            answers: vec![Answer::Silence, says("ok")],
            ends: (0, "no_change", "", 2),
            holds: |ran| {
                has(&ran.journal(), &["no first byte of a response within 1 s", "--first-byte-timeout"]);
            },
        },
        Case {
            name: "7 a limit on the cost of a model on one's own server",
            recipe: Some("budget: { cost: 0.20 }\nsteps: [{ id: say, prompt: say it }]"),
            policy: READ,
            args: &[],
            answers: vec![says("ok")],
            ends: (0, "no_change", "", 1),
            holds: |ran| {
                has(&ran.journal(), &["no price is known for openai/qwen2.5-0.5b-instruct", "free of charge"]);
                assert_eq!(ran.world.result()["cost"].as_f64(), Some(0.0), "{}", ran.world.result());
            },
        },
        Case {
            name: "8 a first request that is too long",
            recipe: None,
            policy: EDIT,
            args: &[],
            answers: vec![Answer::Status(
                400,
                Vec::new(),
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1900,"n_ctx":1024}}"#.to_owned(),
            )],
            ends: (7, "provider", "context_overflow", 1),
            holds: |ran| {
                has(
                    &ran.done.stderr,
                    &[
                        "of system prompt",
                        "tool declarations",
                        "The model's context window is 1024 tokens",
                        "tools.include",
                        "--tools",
                    ],
                );
            },
        },
        Case {
            name: "8 the window is learnt from a refusal",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![
                calls("read_file", &json!({"file_path": "long.txt"})),
                calls("read_file", &json!({"file_path": "README.md"})),
                Answer::Status(
                    400,
                    Vec::new(),
                    r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5047 >= n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input"}"#.to_owned(),
                ),
                says("notes"),
                says("ok"),
            ],
            ends: (0, "no_change", "", 5),
            holds: |ran| has(&ran.journal(), &["\"window\":4096"]),
        },
        Case {
            name: "a server without tools says how to switch them on",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![Answer::Status(
                500,
                Vec::new(),
                r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#.to_owned(),
            )],
            ends: (7, "provider", "rejected", 1),
            holds: |ran| has(&ran.done.stderr, &["start llama-server with `--jinja`"]),
        },
        Case {
            name: "10 a server that cuts in silence",
            recipe: None,
            policy: READ,
            args: &[],
            answers: vec![
                calls("read_file", &json!({"file_path": "long.txt"})),
                reply(json!({"role": "assistant", "content": "ok"}), "stop", (300, 2)),
            ],
            ends: (0, "no_change", "", 2),
            holds: |ran| {
                let journal = ran.journal();
                has(&journal, &["counted 300 prompt tokens", "OLLAMA_CONTEXT_LENGTH"]);
                assert_eq!(journal.matches("\"code\":\"prompt_tokens\"").count(), 1);
            },
        },
    ]
}

fn attempts() -> Vec<Case> {
    const FRESH: &str = "
steps:
  - id: fix
    prompt: write it
    checks: [{ name: out, file: out.txt, contains: good }]
    retry: { max: 3, fresh: true }
";
    const MANY: &str = "
steps:
  - id: fix
    prompt: write it
    checks: [{ name: out, file: out.txt, contains: good }]
    retry: { max: 9 }
";
    vec![
        Case {
            name: "10 a schema is asked for without tools when the answer is put right",
            recipe: Some(ASKED),
            policy: READ,
            args: &[],
            answers: vec![says(r#"{"kind": "question"}"#), says(r#"{"kind": "feature"}"#)],
            ends: (0, "no_change", "", 2),
            holds: |ran| {
                assert!(ran.seen[0].body.get("response_format").is_none() && !ran.tools(0).is_empty());
                assert_eq!(ran.seen[1].body["response_format"]["type"], "json_schema");
                assert_eq!(ran.tools(1), [""; 0]);
                assert_eq!(ran.world.result()["output"]["kind"], "feature");
            },
        },
        Case {
            name: "10 a fresh attempt begins with the task",
            recipe: Some(FRESH),
            policy: EDIT,
            args: &[],
            answers: vec![
                writes("out.txt", "bad\n"),
                says("Done."),
                writes("out.txt", "good\n"),
                says("Done."),
            ],
            ends: (0, "passed", "", 4),
            holds: |ran| {
                let messages = ran.seen[2].body["messages"].as_array().unwrap();
                assert_eq!(messages.len(), 2, "system prompt and task: {messages:?}");
                has(
                    &ran.told(2),
                    &["write it", "There was an earlier attempt at this task", "## out"],
                );
                tree_is_good(ran);
            },
        },
        Case {
            name: "10 an attempt that repeats the one before is the last",
            recipe: Some(MANY),
            policy: EDIT,
            args: &[],
            answers: vec![says("It is done.")],
            ends: (1, "failed", "check", 2),
            holds: |ran| has(&ran.done.stderr, &["attempt 2 gave the same replies as the one before"]),
        },
    ]
}

#[test]
fn each_habit_of_small_models_ends_in_the_right_verdict() {
    let all = [
        printed_calls(),
        empty_replies(),
        declarations_and_edits(),
        limits(),
        attempts(),
    ];
    let cases: Vec<Case> = all.into_iter().flatten().collect();
    assert!(cases.len() >= 25);
    for point in 1..=10 {
        let named = cases.iter().any(|case| case.name.starts_with(&format!("{point} ")));
        assert!(named, "no case of point {point}");
    }
    let mut failed = Vec::new();
    for case in cases {
        let ran = run(case.recipe, case.policy, case.args, case.answers);
        let (code, verdict, reason, requests) = case.ends;
        let result = ran.world.result();
        let found = (
            ran.done.code,
            result["verdict"].as_str().unwrap_or_default(),
            result["reason"].as_str().unwrap_or_default(),
            ran.seen.len(),
        );
        if found != (code, verdict, reason, requests) {
            failed.push(format!(
                "{}: {found:?} in place of {:?}\n{}",
                case.name, case.ends, ran.done.stderr
            ));
            continue;
        }
        let holds = std::panic::AssertUnwindSafe(|| (case.holds)(&ran));
        if let Err(panic) = std::panic::catch_unwind(holds) {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            failed.push(format!("{}: {text}\n{}", case.name, ran.done.stderr));
        }
        // What a run did, its recording does again, without the server.
        let replayed = replay(&ran, case.recipe, case.policy, case.args);
        if replayed.code != code && !case.name.starts_with("8 a first") && code != 7 {
            failed.push(format!(
                "{}: replayed with {}\n{}",
                case.name, replayed.code, replayed.stderr
            ));
        }
    }
    assert!(failed.is_empty(), "{} failed\n\n{}", failed.len(), failed.join("\n\n"));
}

fn replay(ran: &Ran, recipe: Option<&str>, policy: &str, args: &[&str]) -> Done {
    let long: String = (1..=200).map(|n| format!("line {n} of a file\n")).collect();
    let world = World::repo(&[
        ("src/main.rs", "fn main() {\n    let x = 1;\n}\n"),
        ("README.md", "# A tree\n"),
        ("long.txt", &long),
    ]);
    let policy = world.beside("policy.yaml", policy);
    let out = world.out().to_string_lossy().into_owned();
    let model = format!("replay:{}", ran.world.out().display());
    let recipe = recipe.map(|text| world.beside("recipe.yaml", format!("version: 1\nname: small\n{text}")));
    let mut all = match &recipe {
        Some(path) => vec!["run", path.as_str()],
        None => vec!["run", "-p", "do it"],
    };
    all.extend(["--model", &model, "--policy", &policy, "--out", &out]);
    all.extend(args);
    world.call(&all)
}

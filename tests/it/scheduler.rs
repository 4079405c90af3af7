//! The calls of one reply: what runs side by side, what waits, in which order results come. Through the program.

use super::harness::World;
use serde_json::{Value, json};

const POLICY: &str = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [sleep] \
                      }\n  - { suspend: write_todos }\nsandbox: { level: none }\n";

/// Milliseconds that a slow read takes at least.
const SLOW: u64 = 500;

fn slow() -> Value {
    json!({ "tool": "read_background_output", "args": { "pid": "job1", "delay_ms": SLOW } })
}

fn read(path: &str) -> Value {
    json!({ "tool": "read_file", "args": { "file_path": path } })
}

fn write(text: &str) -> Value {
    json!({ "tool": "write_file", "args": { "file_path": "a.txt", "content": text } })
}

/// A run whose first reply starts a command in the background and whose second reply has these calls.
fn run(calls: &[Value], code: i32) -> (World, Vec<Value>) {
    let world = World::repo(&[("a.txt", "one\n")]);
    let sleeps = json!({ "tool": "run_shell_command", "args": { "command": "sleep 60", "is_background": true } });
    let script = json!({ "replies": [{ "calls": [sleeps] }, { "calls": calls }, { "text": "done" }] });
    world.run(&script.to_string(), POLICY, &["-p", "go"]).exits(code);
    let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let entry = |line| serde_json::from_str::<Value>(line).unwrap()["entry"].take();
    let events = text.lines().map(entry).collect();
    (world, events)
}

/// `+ID` for each start and `-ID` for each end of a call, in the order of the record, the first call left out.
fn track(events: &[Value]) -> Vec<String> {
    let mark = |event: &Value| {
        let sign = match event["event"].as_str()? {
            "call_started" => '+',
            "call_finished" => '-',
            _ => return None,
        };
        Some(format!("{sign}{}", event["call"].as_str()?))
    };
    let all: Vec<String> = events.iter().filter_map(mark).collect();
    all.into_iter().filter(|mark| !mark.ends_with("c1")).collect()
}

fn finished<'a>(events: &'a [Value], call: &str) -> &'a Value {
    let of = |event: &&Value| event["event"] == "call_finished" && event["call"] == call;
    events.iter().find(of).unwrap()
}

#[test]
fn eight_slow_reads_take_the_time_of_one_and_the_ninth_waits() {
    let (_world, events) = run(&vec![slow(); 9], 0);
    let marks = track(&events);
    let expected: Vec<String> = [
        "+c2 +c3 +c4 +c5 +c6 +c7 +c8 +c9",
        "-c2 -c3 -c4 -c5 -c6 -c7 -c8 -c9",
        "+c10 -c10",
    ]
    .iter()
    .flat_map(|marks| marks.split(' ').map(str::to_owned))
    .collect();
    assert_eq!(marks, expected);
    let took: Vec<u64> = (2..10)
        .map(|n| finished(&events, &format!("c{n}"))["took_ms"].as_u64().unwrap())
        .collect();
    assert!(took.iter().all(|ms| *ms >= SLOW), "{took:?}");
    let longest = took.iter().max().unwrap();
    assert!(*longest < 3 * SLOW, "none waited for another: {took:?}");
}

#[test]
fn a_write_between_reads_waits_and_holds_back() {
    let (world, events) = run(&[slow(), read("a.txt"), write("two\n"), read("a.txt")], 0);
    assert_eq!(track(&events), ["+c2", "+c3", "-c2", "-c3", "+c4", "-c4", "+c5", "-c5"]);
    assert!(finished(&events, "c3").to_string().contains("one\\n"));
    assert!(finished(&events, "c5").to_string().contains("two\\n"));
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_read_that_asks_to_wait_runs_alone() {
    let mut waits = read("a.txt");
    waits["args"]["wait_for_previous"] = json!(true);
    let (_world, events) = run(&[slow(), waits, read("a.txt")], 0);
    assert_eq!(track(&events), ["+c2", "-c2", "+c3", "-c3", "+c4", "-c4"]);
    assert_eq!(finished(&events, "c3")["state"], "success");
}

#[test]
fn results_come_in_the_asked_order_whatever_ended_first() {
    let unknown = json!({ "tool": "no_such_tool", "args": {} });
    let (world, _events) = run(&[slow(), read("missing.txt"), unknown, read("a.txt"), write("x\n")], 0);
    let transcript: Value =
        serde_json::from_str(&std::fs::read_to_string(world.out().join("transcript.json")).unwrap()).unwrap();
    let text = transcript.to_string();
    let places: Vec<usize> = [
        "\"source_call_id\":\"c2\"",
        "\"source_call_id\":\"c3\"",
        "\"source_call_id\":\"c4\"",
        "\"source_call_id\":\"c5\"",
        "\"source_call_id\":\"c6\"",
    ]
    .iter()
    .map(|id| text.find(id).unwrap_or_else(|| panic!("{id}: {text}")))
    .collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_suspended_call_lets_earlier_ones_end_and_holds_back_later_ones() {
    let todos = json!({ "tool": "write_todos", "args": { "todos": [] } });
    let (world, events) = run(&[slow(), todos, write("two\n")], 5);
    assert_eq!(track(&events), ["+c2", "-c2"]);
    assert_eq!(world.read("a.txt"), "one\n");
    let result = world.result();
    assert_eq!(result["suspended"][0]["tool"], "write_todos");
}

#[test]
fn the_end_of_the_wall_clock_cancels_all_calls_of_a_wave() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let sleeps = json!({ "tool": "run_shell_command", "args": { "command": "sleep 60", "is_background": true } });
    let mut long = slow();
    long["args"]["delay_ms"] = json!(30_000);
    let calls = json!([long, long, write("two\n")]);
    let script = json!({ "replies": [{ "calls": [sleeps] }, { "calls": calls }, { "text": "done" }] });
    let begun = std::time::Instant::now();
    world
        .run(&script.to_string(), POLICY, &["-p", "go", "--max-wall", "3s"])
        .exits(6);
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let cancelled = text
        .lines()
        .filter(|line| line.contains("\"state\":\"cancelled\""))
        .count();
    assert_eq!(cancelled, 2, "{text}");
    assert_eq!(world.read("a.txt"), "one\n", "what came after did not run");
}

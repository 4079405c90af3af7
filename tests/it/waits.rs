//! The model service keeps a run waiting, refuses it, or finds it too long: what ends it, when, and what saves it.

use super::gemini::{self, Answer};
use super::harness::{World, open_policy};
use super::service::Service;
use super::wires::{Turn, WIRES, Wire};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn tree() -> World {
    World::repo(&[("a.txt", "one\n")])
}

fn read(n: u64) -> Turn {
    Turn::calls(&[("read_file", json!({"file_path": "a.txt", "start_line": n}))])
}

/// Runs to its end; gives the object and how long it took.
fn run(wire: Wire, world: &World, flags: &[&str], code: i32) -> (Value, Duration) {
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let fixed = [
        "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out, "--format", "json",
    ];
    let begun = Instant::now();
    let object = world.call(&[&fixed, flags].concat()).exits(code).json();
    (object, begun.elapsed())
}

fn busy(after: &str) -> Answer {
    let header = vec![format!("retry-after: {after}")];
    Answer::Status(429, header, "{\"error\":{\"message\":\"slow down\"}}".to_owned())
}

#[test]
fn a_wait_that_outlasts_the_run_ends_it_by_its_own_clock_and_at_once() {
    let wire = WIRES[1];
    let mut answers = wire.answers(&[Turn::calls(&[(
        "write_file",
        json!({"file_path": "b.txt", "content": "b\n"}),
    )])]);
    answers.push(busy("200"));
    let service = Service::new(answers);
    let world = wire.world(&service, tree());
    let (object, took) = run(wire, &world, &["--max-wall", "20s"], 6);
    assert_eq!(
        (&object["verdict"], &object["reason"], &object["partial"]),
        (&json!("budget"), &json!("limit:wall"), &json!(true))
    );
    assert!(object["message"].as_str().unwrap().contains("slow down"), "{object}");
    assert!(
        took < Duration::from_secs(10),
        "{took:?}: nothing can come of that wait"
    );
    assert_eq!(service.seen().len(), 2);
    assert!(world.out().join("changes.patch").is_file());
    // More time helps, as with every limit.
    let rest = wire.service(&[Turn::says("done")]);
    let out = world.out().to_string_lossy().into_owned();
    let base = format!("{}{}", rest.url, wire.version);
    world
        .call(&["resume", &out, "--max-wall", "5m", "--base-url", &base])
        .exits(0);
}

#[test]
fn a_wait_longer_than_anybody_waits_is_the_services_end() {
    let wire = WIRES[3];
    let service = Service::new(vec![busy("3600")]);
    let world = wire.world(&service, tree());
    let (object, took) = run(wire, &world, &["--max-wall", "2s"], 7);
    assert_eq!(
        (&object["verdict"], &object["reason"]),
        (&json!("provider"), &json!("quota"))
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(service.seen().len(), 1);
}

#[test]
fn the_wall_clock_holds_while_the_service_is_ill() {
    let ill = || Answer::Status(503, Vec::new(), "{}".to_owned());
    for (what, answer) in [("ill", ill()), ("silent", Answer::Silence), ("asks", busy("1"))] {
        let wire = WIRES[0];
        let service = Service::new(vec![answer]);
        let world = wire.world(&service, tree());
        let (object, took) = run(wire, &world, &["--max-wall", "2s"], 6);
        assert_eq!(object["reason"], "limit:wall", "{what}");
        assert!(took < Duration::from_secs(6), "{what}: {took:?}");
    }
}

/// How each service says that a request is longer than its model's window.
fn too_long(wire: Wire) -> Answer {
    let error = match wire.model.split('/').next().unwrap() {
        "gemini" => json!({
            "code": 400, "status": "INVALID_ARGUMENT",
            "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        }),
        "anthropic" => {
            json!({"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"})
        }
        _ => json!({
            "type": "invalid_request_error", "code": "context_length_exceeded",
            "message": "This model's maximum context length is 128000 tokens.",
        }),
    };
    Answer::Status(400, Vec::new(), json!({"error": error}).to_string())
}

/// Six reads, a refusal for the length, the summary, an edit, the end.
fn overflowing(wire: Wire) -> Vec<Answer> {
    let reads: Vec<Turn> = (1..=6).map(read).collect();
    let mut answers = wire.answers(&reads);
    answers.push(too_long(wire));
    let write = Turn::calls(&[("write_file", json!({"file_path": "b.txt", "content": "b\n"}))]);
    answers.extend(wire.answers(&[Turn::says("NOTES: a.txt says one."), write, Turn::says("done")]));
    answers
}

#[test]
fn a_run_that_grew_too_long_is_summarised_and_ends_well() {
    for wire in WIRES {
        let service = Service::new(overflowing(wire));
        let world = wire.world(&service, tree());
        let (object, _) = run(wire, &world, &[], 0);
        assert_eq!(
            (&object["response"], &object["usage"]["turns"]),
            (&json!("done"), &json!(9)),
            "{wire:?}"
        );
        let seen = service.seen();
        assert_eq!(seen.len(), 10, "{wire:?}");
        assert!(
            seen[8].bytes < seen[6].bytes,
            "{wire:?}: the next request is shorter than the refused one"
        );
        assert!(seen[8].body.to_string().contains("NOTES: a.txt says one."), "{wire:?}");
        // Played again, with the refusal.
        let replayed = tree();
        let policy = replayed.beside("policy.yaml", open_policy(&[]));
        let model = format!("replay:{}", world.out().display());
        let out = replayed.out().to_string_lossy().into_owned();
        let args = [
            "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &out,
        ];
        replayed.call(&args).exits(0);
        let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
        assert_eq!(patch(&world), patch(&replayed), "{wire:?}");
    }
}

#[test]
fn a_cap_of_n_is_n_replies_whatever_happens_on_the_way() {
    for wire in WIRES {
        for cap in 1..=9 {
            let service = Service::new(overflowing(wire));
            let world = wire.world(&service, tree());
            let code = if cap == 9 { 0 } else { 6 };
            let (object, _) = run(wire, &world, &["--max-turns", &cap.to_string()], code);
            assert_eq!(object["usage"]["turns"], cap, "{wire:?}");
            // The refusal was a request, and no reply.
            let refused = usize::from(cap > 6);
            assert_eq!(service.seen().len(), cap + refused, "{wire:?}, {cap}");
        }
    }
}

const LIST: &str = "
version: 1
name: listed
model: [gemini/gemini-2.5-pro, anthropic/claude-sonnet-4-5, openai/gpt-5]
steps: [{ id: one, prompt: do it }]
";

fn listed(services: [&Service; 3], code: i32) -> World {
    let mut world = tree();
    for (wire, service) in [WIRES[0], WIRES[3], WIRES[1]].into_iter().zip(services) {
        world = wire.world(service, world);
    }
    let recipe = world.beside("recipe.yaml", LIST);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    world
        .call(&["run", &recipe, "--policy", &policy, "--out", &out])
        .exits(code);
    world
}

fn gone() -> Answer {
    Answer::Status(
        404,
        Vec::new(),
        "{\"error\":{\"message\":\"no such model\"}}".to_owned(),
    )
}

#[test]
fn the_next_model_of_a_list_goes_on_and_stays() {
    let first = Service::new(vec![
        gemini::calls("write_file", &json!({"file_path": "b.txt", "content": "b\n"})),
        gone(),
    ]);
    let write = Turn::calls(&[("write_file", json!({"file_path": "c.txt", "content": "c\n"}))]);
    let second = WIRES[3].service(&[write, Turn::says("done")]);
    let third = Service::new(vec![gone()]);
    let world = listed([&first, &second, &third], 0);
    let asked = [&first, &second, &third].map(|service| service.seen().len());
    assert_eq!(
        asked,
        [2, 2, 0],
        "who failed is not asked again, and nobody without need"
    );
    assert!(
        second.seen()[0].body.to_string().contains("b.txt"),
        "the second knows what the first did"
    );
    assert_eq!(world.result()["response"], "done");
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(
        journal.contains("continuing with anthropic/claude-sonnet-4-5"),
        "it is in the record"
    );
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("+b\n") && patch.contains("+c\n"));
}

#[test]
fn a_list_of_models_that_all_fail_ends_7_with_the_last_reason() {
    let key = Answer::Status(401, Vec::new(), "{\"error\":{\"message\":\"bad key\"}}".to_owned());
    let services = [gone(), busy("3600"), key].map(|answer| Service::new(vec![answer]));
    let world = listed([&services[0], &services[1], &services[2]], 7);
    assert_eq!(services.map(|service| service.seen().len()), [1, 1, 1]);
    assert_eq!(world.result()["reason"], "auth");
}

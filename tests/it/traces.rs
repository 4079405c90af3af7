//! Spans of runs, sent to a collector on a real socket: what is in them, what never is, and that nothing hangs on it.

use super::gemini::{self, Answer, Gemini};
use super::harness::{World, open_policy, says, script, writes};
use super::service::{Seen, Service};
use serde_json::{Value, json};

const RECIPE: &str = "
version: 1
name: note
steps:
  - id: write
    prompt: Please write the word of the day.
    checks: [{ name: there, run: cat note.txt }]
";

fn collector() -> Service {
    Service::new(vec![Answer::Status(200, Vec::new(), "{}".to_owned())])
}

/// A run with a call and a check, against a service that speaks Gemini.
fn traced(world: World, collector: &Service, model: &Service, code: i32) -> World {
    let world = world
        .env("GEMINI_API_KEY", "k-0123456789")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.clone());
    let recipe = world.beside("recipe.yaml", RECIPE);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let mut args = vec!["run", &recipe, "--policy", &policy, "--out", &out];
    args.extend(["--model", "gemini/gemini-2.5-pro", "--base-url", &model.url]);
    world.call(&args).exits(code);
    world
}

fn model() -> Service {
    Gemini::new(vec![
        gemini::calls(
            "write_file",
            &json!({"file_path": "note.txt", "content": "petrichor\n"}),
        ),
        gemini::says("The word is petrichor."),
    ])
}

fn spans(seen: &[Seen]) -> Vec<Value> {
    let mut all = Vec::new();
    for request in seen {
        for resource in request.body["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                all.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    all
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found = spans.iter().find(|span| span["name"] == name);
    found.unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
}

fn attribute(of: &Value, key: &str) -> Value {
    let pairs = of["attributes"].as_array().unwrap();
    let found = pairs.iter().find(|pair| pair["key"] == key);
    found.map_or(Value::Null, |pair| {
        pair["value"].as_object().unwrap().values().next().unwrap().clone()
    })
}

#[test]
fn a_run_is_a_tree_of_spans_below_the_job_that_started_it() {
    let (collector, model) = (collector(), model());
    let world = World::repo(&[("a.txt", "one\n")])
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=night")
        .env("OTEL_SERVICE_NAME", "nightly")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=ci")
        .env("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let world = traced(world, &collector, &model, 0);
    let seen = collector.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].line.starts_with("POST /v1/traces "), "{}", seen[0].line);
    assert!(
        seen[0].headers.iter().any(|line| line == "x-tenant: night"),
        "{:?}",
        seen[0].headers
    );
    let resource = &seen[0].body["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), "nightly");
    assert_eq!(attribute(resource, "deployment.environment"), "ci");

    let all = spans(&seen);
    let root = named(&all, "invoke_agent note");
    assert_eq!(root["parentSpanId"], "00f067aa0ba902b7");
    assert!(
        all.iter()
            .all(|span| span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736")
    );
    assert_eq!(attribute(root, "overnight.verdict"), "passed");
    assert_eq!(attribute(root, "gen_ai.conversation.id"), world.result()["run"]);
    let step = named(&all, "step write");
    assert_eq!(step["parentSpanId"], root["spanId"]);
    let chat = named(&all, "chat gemini-2.5-pro");
    assert_eq!((&chat["parentSpanId"], &chat["kind"]), (&step["spanId"], &json!(3)));
    for (key, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("gcp.gemini")),
        ("gen_ai.request.model", json!("gemini-2.5-pro")),
        ("gen_ai.usage.input_tokens", json!("100")),
        ("gen_ai.usage.output_tokens", json!("10")),
    ] {
        assert_eq!(attribute(chat, key), value, "{key}");
    }
    let tool = named(&all, "execute_tool write_file");
    assert_eq!(tool["parentSpanId"], step["spanId"]);
    assert_eq!(attribute(tool, "overnight.ruling.decision"), "allow");
    assert_eq!(attribute(named(&all, "check there"), "overnight.check.passed"), true);
    for span in &all {
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        assert!(time("endTimeUnixNano") <= root["endTimeUnixNano"].as_str().unwrap().parse().unwrap());
    }
    let raw = String::from_utf8(seen[0].raw.clone()).unwrap();
    let here = world.path().to_string_lossy().into_owned();
    for words in [
        "petrichor",
        "word of the day",
        "note.txt",
        "k-0123456789",
        &format!("{here}/ws"),
    ] {
        assert!(!raw.contains(words), "{words} left the machine");
    }
}

#[test]
fn without_a_protocol_it_is_protobuf_and_the_trace_is_the_runs_own() {
    let (collector, model) = (collector(), model());
    traced(World::repo(&[("a.txt", "one\n")]), &collector, &model, 0);
    let seen = collector.seen();
    assert_eq!(seen.len(), 1);
    let kind = |line: &String| line.eq_ignore_ascii_case("content-type: application/x-protobuf");
    assert!(seen[0].headers.iter().any(kind), "{:?}", seen[0].headers);
    let raw = String::from_utf8_lossy(&seen[0].raw);
    for name in [
        "execute_tool write_file",
        "chat gemini-2.5-pro",
        "check there",
        "service.name",
        "overnight",
    ] {
        assert!(raw.contains(name), "{name}");
    }
}

#[test]
fn a_collector_in_trouble_is_a_warning_within_its_time() {
    let refused = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let silent = Service::new(vec![Answer::Silence]);
    let broken = Service::new(vec![Answer::Status(503, Vec::new(), "{}".to_owned())]);
    let no = Service::new(vec![Answer::Status(400, Vec::new(), "{}".to_owned())]);
    for (url, protocol) in [
        (&refused, "http/json"),
        (&silent.url, "http/protobuf"),
        (&broken.url, "http/json"),
        (&no.url, "http/json"),
        (&no.url, "grpc"),
        (&"no url".to_owned(), "http/json"),
    ] {
        let world = World::repo(&[("a.txt", "one\n")])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", url.clone())
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "700");
        let replies = script(&[writes("b.txt", "b\n"), says("done")]);
        let done = world.run(&replies, &open_policy(&[]), &["-p", "x"]).exits(0);
        if *url == silent.url {
            assert!(done.stderr.contains("within 700 ms"), "{}", done.stderr);
        }
        assert_eq!(done.stdout, "done\n");
        assert!(
            done.stderr.contains("warning: the spans of this run were not sent"),
            "{url}: {}",
            done.stderr
        );
        assert_eq!(world.result()["exit_code"], 0);
    }
}

#[test]
fn nothing_is_sent_by_a_replay_or_where_it_is_switched_off() {
    let collector = collector();
    let tree = || World::repo(&[("a.txt", "one\n")]).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.clone());
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    for (name, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),
    ] {
        let world = tree().env(name, value);
        world.run(&replies, &open_policy(&[]), &["-p", "x"]).exits(0);
    }
    assert_eq!(collector.seen().len(), 0);
    let recorded = tree();
    recorded.run(&replies, &open_policy(&[]), &["-p", "x"]).exits(0);
    assert_eq!(collector.seen().len(), 1);
    let again = tree();
    let replay = format!("replay:{}", recorded.out().display());
    let policy = again.beside("policy.yaml", open_policy(&[]));
    again
        .call(&["run", "-p", "x", "--model", &replay, "--policy", &policy])
        .exits(0);
    assert_eq!(collector.seen().len(), 1, "a replay reaches nobody");
}

#[test]
fn a_secret_in_a_name_is_redacted() {
    let secret = "hunter2-hunter2-hunter2";
    let collector = collector();
    let world = World::repo(&[("a.txt", "one\n")])
        .env("DEPLOY_TOKEN", secret)
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.clone());
    let replies = script(&[json!({"calls": [{"tool": secret, "args": {}}]}), says("done")]);
    world.run(&replies, &open_policy(&[]), &["-p", "x"]);
    let seen = collector.seen();
    assert_eq!(seen.len(), 1);
    assert!(
        spans(&seen)
            .iter()
            .any(|span| span["name"].as_str().unwrap().starts_with("execute_tool "))
    );
    assert!(!String::from_utf8_lossy(&seen[0].raw).contains(secret));
}

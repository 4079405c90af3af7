//! Tests of the wires with recorded pairs in `fixtures/wire`: the encoded requests, the decoded responses, and that
//! received content is sent back unchanged. `OVERNIGHT_BLESS=1` rewrites the expected files.

use super::*;
use crate::base::call::ToolSpec;
use crate::base::content::ToolContent;
use crate::base::ids::CallId;
use crate::base::message::{CallResult, Message, Part, Reply, Role};
use crate::base::secret::{check_cut, is_model_key};
use crate::net::sse;
use crate::provider::ModelRequest;
use crate::provider::fault::Fault;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Ask {
    turn: u64,
    system: String,
    tools: Vec<ToolSpec>,
    messages: Vec<Message>,
    response: Option<Value>,
}

fn model(wire: Wire) -> &'static str {
    match wire.vendor() {
        "gemini" => "gemini-3-pro-preview",
        "openai" | "openai-responses" => "gpt-5",
        "anthropic" => "claude-sonnet-4-5",
        other => panic!("no answer of {other}"),
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wire")
}

fn files(dir: &Path, ending: &str) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
            Some((name, path))
        })
        .collect();
    found.sort();
    found
}

fn request(ask: &Ask) -> ModelRequest<'_> {
    ModelRequest {
        turn: ask.turn,
        system: &ask.system,
        tools: &ask.tools,
        messages: &ask.messages,
        epoch: 0,
        response: ask.response.as_ref(),
        answer_only: false,
        digest: "",
    }
}

fn encode(wire: Wire, model: &str, request: &ModelRequest<'_>) -> Value {
    let body = crate::provider::prefix::RequestPrefix::default().body(
        wire,
        EncodeOptions {
            model,
            plain: false,
            max_output_tokens: None,
        },
        request,
    );
    serde_json::from_slice(&body).unwrap()
}

fn compare(path: &Path, found: &Value) {
    let text = format!("{found:#}\n");
    if std::env::var_os("OVERNIGHT_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let wanted: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(&wanted, found, "{}: found\n{text}", path.display());
}

#[test]
fn requests() {
    let asks = files(&fixtures().join("asks"), ".json");
    assert!(asks.len() >= 3);
    for (name, path) in asks {
        let ask: Ask = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for wire in ALL {
            let found = encode(wire, model(wire), &request(&ask));
            compare(
                &fixtures().join(wire.vendor()).join(format!("{name}.request.json")),
                &found,
            );
        }
    }
}

fn decode(wire: Wire, bytes: &[u8]) -> Result<Reply, Fault> {
    let mut decoder = wire.decoder(model(wire), 7);
    let mut events = sse::SseDecoder::new(1 << 20);
    let mut frames = Vec::new();
    events.push(bytes, &mut frames).unwrap();
    events.finish(&mut frames).unwrap();
    for frame in frames {
        decode_frame(decoder.as_mut(), &frame, &|_| {})?;
    }
    decoder.finish()
}

#[test]
fn responses() {
    for wire in ALL {
        let dir = fixtures().join(wire.vendor());
        let recorded = files(&dir, ".response.sse");
        assert!(recorded.len() >= 3, "{wire:?}");
        for (name, path) in recorded {
            let found = match decode(wire, &std::fs::read(path).unwrap()) {
                Ok(reply) => serde_json::to_value(reply).unwrap(),
                Err(fault) => serde_json::json!({
                    "fault": fault.class.as_str(),
                    "again": fault.again.is_some(),
                    "message": fault.message,
                }),
            };
            compare(&dir.join(format!("{name}.reply.json")), &found);
        }
    }
}

/// A stream whose reply asks for `count` calls, each in an event of its own.
fn calling(wire: Wire, count: usize) -> String {
    use serde_json::json;
    let call = |n: usize| match wire.vendor() {
        "gemini" => json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}),
        "openai" => {
            let call = json!({"index": n, "id": format!("c{n}"), "function": {"name": "f", "arguments": "{}"}});
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        }
        "openai-responses" => {
            let item = json!({"type": "function_call", "call_id": format!("c{n}"), "name": "f", "arguments": "{}"});
            json!({"type": "response.output_item.done", "output_index": n, "item": item})
        }
        "anthropic" => {
            let block = json!({"type": "tool_use", "id": format!("c{n}"), "name": "f", "input": {}});
            json!({"type": "content_block_start", "index": n, "content_block": block})
        }
        other => panic!("no calls of {other}"),
    };
    let end = match wire.vendor() {
        "gemini" => vec![json!({"candidates": [{"finishReason": "STOP"}]})],
        "openai" => vec![json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})],
        "openai-responses" => vec![json!({"type": "response.completed", "response": {"status": "completed"}})],
        _ => vec![
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ],
    };
    let events = (0..count).map(call).chain(end);
    events.map(|event| format!("data: {event}\n\n")).collect()
}

/// A model that has gone wrong asks for thousands of calls; each would cost a ruling and a result.
#[test]
fn a_reply_has_a_limited_number_of_calls() {
    for wire in ALL {
        let reply = decode(wire, calling(wire, parts::MOST_CALLS).as_bytes()).unwrap();
        assert_eq!(reply.calls().count(), parts::MOST_CALLS, "{wire:?}");
        // Also at once, so that the end of a long reply is not waited for.
        let fault = decode(wire, calling(wire, parts::MOST_CALLS + 1).as_bytes()).unwrap_err();
        assert!(
            fault.message.contains("1000 calls") && fault.again.is_some(),
            "{wire:?}: {}",
            fault.message
        );
    }
}

/// Gateways that cut texts by UTF-16 units send the two halves of a character in two events.
#[test]
fn half_a_character_does_not_fail_a_reply() {
    let of = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let stream = [
        of("a\\ud83d"),
        of("\\ude00 b"),
        of("\\ud83d\\ude00"),
        of("\\\\ud83d\\ud83d"),
    ];
    let reply = decode(named("openai"), format!("{}{end}", stream.concat()).as_bytes()).unwrap();
    assert_eq!(reply.text(), "a\u{fffd}\u{fffd} b\u{1f600}\\ud83d\u{fffd}");
}

/// A history that ends with the results of `reply`'s calls.
fn answered(reply: &Reply) -> Ask {
    let results = reply.calls().map(|call| {
        Part::Result(CallResult {
            call: CallId::nth(1),
            tool: call.tool.clone(),
            wire_id: call.wire_id.clone(),
            content: vec![ToolContent::text("ok")],
            is_error: false,
        })
    });
    let message = |role, parts| Message { role, parts };
    Ask {
        turn: 2,
        system: String::new(),
        tools: Vec::new(),
        messages: vec![
            Message::user("go"),
            message(Role::Assistant, reply.parts.clone()),
            message(Role::Tool, results.collect()),
        ],
        response: None,
    }
}

/// Received content is sent back unchanged, and its result carries the vendor's id.
#[test]
fn received_content_goes_back_verbatim() {
    for wire in ALL {
        let path = fixtures().join(wire.vendor()).join("calls.response.sse");
        let reply = decode(wire, &std::fs::read(path).unwrap()).unwrap();
        let Some(Part::Opaque { json, vendor, .. }) = reply.parts.first() else {
            panic!("{wire:?}: the received content is not first");
        };
        assert_eq!(vendor, wire.vendor());
        let ask = answered(&reply);
        let sent = encode(wire, model(wire), &request(&ask));
        match wire.vendor() {
            "gemini" => assert_eq!(&sent["contents"][1], json),
            "openai" => assert_eq!(&sent["messages"][1], json),
            "openai-responses" => {
                let items = json.as_array().unwrap();
                assert_eq!(&sent["input"].as_array().unwrap()[1..=items.len()], items.as_slice());
            }
            "anthropic" => assert_eq!(&sent["messages"][1]["content"], json),
            other => panic!("no answer of {other}"),
        }
        let text = sent.to_string();
        for id in reply.calls().filter_map(|call| call.wire_id.as_deref()) {
            assert!(
                text.matches(&format!("\"{id}\"")).count() >= 2,
                "{wire:?}: {id} in {text}"
            );
        }
        // Another model must not get what belongs to this one.
        let other = encode(wire, "another-model", &request(&ask)).to_string();
        assert!(!other.contains("SIGNATURE"), "{wire:?}: {other}");
    }
}

fn ask_named(name: &str) -> Ask {
    let path = fixtures().join("asks").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A response schema is sent in the vendor's form only if it does not interfere with tools.
#[test]
fn response_schemas_by_model() {
    let (with_tools, alone) = (ask_named("first"), ask_named("answer-only"));
    for (wire, model, key, beside_tools) in [
        (named("gemini"), "gemini-2.5-pro", "responseJsonSchema", false),
        (named("gemini"), "gemini-3-flash-preview", "responseJsonSchema", true),
        (named("gemini"), "gemini-flash-latest", "responseJsonSchema", true),
        (named("openai"), "qwen3-coder", "response_format", false),
        (named("openai"), "gpt-oss-120b", "response_format", false),
        (named("openai"), "openai/gpt-5.1", "response_format", true),
        (named("openai"), "o3-mini", "response_format", true),
        (named("openai-responses"), "gpt-5", "json_schema", true),
        (named("anthropic"), "claude-opus-5", "output_config", true),
    ] {
        let named = |ask: &Ask| encode(wire, model, &request(ask)).to_string().contains(key);
        assert!(named(&alone), "{model}");
        assert_eq!(named(&with_tools), beside_tools, "{model}");
    }
    let options = EncodeOptions {
        model: "gpt-5",
        plain: true,
        max_output_tokens: None,
    };
    for wire in ALL {
        let head = String::from_utf8(wire.head(options, &request(&alone))).unwrap();
        assert!(!head.contains("summary"), "{head}");
    }
}

/// Models before the third generation accept media only beside results, and no signatures.
#[test]
fn older_gemini_models() {
    let sent = encode(
        named("gemini"),
        "gemini-2.5-flash",
        &request(&ask_named("foreign-history")),
    );
    assert_eq!(sent["contents"][1]["parts"][1].get("thoughtSignature"), None);
    let results = sent["contents"][2]["parts"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert_eq!(results[0]["functionResponse"].get("parts"), None);
    assert_eq!(results[2]["inlineData"]["mimeType"], "image/png");
}

#[test]
fn only_models_that_reason_are_asked_for_reasoning() {
    let ask = ask_named("answer-only");
    let includes = |model| {
        encode(named("openai-responses"), model, &request(&ask))
            .get("include")
            .is_some()
    };
    assert!(includes("gpt-5.1-codex-mini") && includes("o4-mini") && !includes("gpt-4o") && !includes("gpt-4.1-mini"));
}

proptest! {
    /// Whatever a service sends, the decoders return a reply or a fault.
    #[test]
    fn decoders_survive_anything(wire in 0usize..4, cut in 0usize..4_000, flip in prop::collection::vec((0usize..4_000, any::<u8>()), 0..4)) {
        let wire = ALL[wire];
        let mut bytes = std::fs::read(fixtures().join(wire.vendor()).join("calls.response.sse")).unwrap();
        for (at, byte) in flip {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(cut);
        let _ = decode(wire, &bytes);
    }

    /// A stream that is cut before the model has ended its reply never yields a reply.
    #[test]
    fn cut_streams_are_never_kept(wire in 0usize..4, share in 0.0f64..1.0) {
        let wire = ALL[wire];
        let bytes = std::fs::read(fixtures().join(wire.vendor()).join("calls.response.sse")).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let end = ["\"finishReason\"", "\"finish_reason\":\"tool_calls\"", "response.completed", "message_stop"]
            .iter()
            .filter_map(|word| text.find(word))
            .min()
            .unwrap();
        let cut = (share * end as f64) as usize;
        prop_assert!(decode(wire, &bytes[..cut]).is_err());
    }
}

#[test]
fn no_cut_of_what_a_service_sent_leaves_a_part_of_a_key() {
    let said = |bytes: String| decode(find("openai").unwrap(), bytes.as_bytes()).unwrap_err().message;
    check_cut(120, |text| said(format!("data: {text}\n\n")));
    check_cut(200, |text| {
        let call = serde_json::json!({ "index": 0, "id": "c", "function": { "name": "f", "arguments": text } });
        let chunk = serde_json::json!({
            "choices": [{ "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }],
        });
        let message = said(format!("data: {chunk}\n\n"));
        assert!(message.contains("not a JSON object"), "{message}");
        message
    });
}

/// A policy may not pass these to commands, and no other child process gets them.
#[test]
fn the_key_of_every_wire_stays_in_this_program() {
    for wire in ALL {
        for name in wire.service().key_names {
            assert!(is_model_key(name), "add {name} to MODEL_KEYS in base/secret/names.rs");
        }
    }
}

//! What the provider does around one response: maps names back, retries without a rejected schema, accepts responses
//! without a stream, falls back to other models, shows waits.

use super::server::{Act, End, Server};
use super::{gemini_ok, provider, quick, stream};
use crate::base::call::{ToolKind, ToolOrigin, ToolSpec};
use crate::base::event::ProgressEvent;
use crate::base::message::{Message, Reply};
use crate::net::client::{Client, Until};
use crate::provider::fallback::Fallback;
use crate::provider::grounding;
use crate::provider::http::{Http, Service};
use crate::provider::wire;
use crate::provider::{AskContext, FailedAttempt, ModelRequest, Provider, ProviderClass, ProviderError};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Sends a request with tools and a response schema; returns the reply, the progress events and the retries.
async fn ask(
    provider: &dyn Provider,
    tools: &[ToolSpec],
    response: Option<&Value>,
) -> (Result<Reply, ProviderError>, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let cancel = CancellationToken::new();
    let request = ModelRequest {
        turn: 1,
        system: "",
        tools,
        messages: &[Message::user("go")],
        epoch: 0,
        response,
        answer_only: false,
        digest: "",
    };
    let live = |live: ProgressEvent| {
        if let ProgressEvent::Waiting { what, .. } = live {
            told.lock().unwrap().push(format!("wait {what}"));
        }
    };
    let retried = |failed: FailedAttempt<'_>| {
        let line = format!("{} {} {}", failed.attempt, failed.class, failed.message);
        told.lock().unwrap().push(line);
    };
    let cx = AskContext {
        cancel: &cancel,
        deadline: Instant::now() + Duration::from_secs(10),
        live: &live,
        retried: &retried,
        has_room: &|_| true,
    };
    let reply = provider.ask(&request, cx).await;
    let told = told.lock().unwrap().clone();
    (reply, told)
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        display_name: name.to_owned(),
        description: String::new(),
        kind: ToolKind::Other,
        origin: ToolOrigin::Mcp("docs".to_owned()),
        parameters: json!({"type": "object"}),
        effects: crate::base::call::ToolEffects::default(),
        aliases: Vec::new(),
    }
}

fn document(body: Value) -> Act {
    Act::Say(200, vec![("content-type", "application/json".into())], body.to_string())
}

#[tokio::test]
async fn names_come_back_as_the_tools_are_called() {
    let call = json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "docs__page_get_36824ace"}}]}, "finishReason": "STOP"}]});
    let server = Server::start(vec![document(call)]).await;
    let (reply, _) = ask(
        &provider(wire::named("gemini"), &server.base),
        &[tool("docs__page.get")],
        None,
    )
    .await;
    assert_eq!(reply.unwrap().calls().next().unwrap().tool, "docs__page.get");
    assert!(server.requests.lock().unwrap()[0].contains("\"docs__page_get_36824ace\""));
}

#[tokio::test]
async fn answers_without_a_stream_are_taken() {
    for (wire, body) in [
        (
            wire::named("gemini"),
            json!([{"candidates": [{"content": {"parts": [{"text": "fine"}]}, "finishReason": "STOP"}]}]),
        ),
        (
            wire::named("openai"),
            json!({"choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}),
        ),
        (
            wire::named("openai-responses"),
            json!({"status": "completed", "error": null, "output": [{"type": "message", "content": [{"type": "output_text", "text": "fine"}]}]}),
        ),
        (
            wire::named("anthropic"),
            json!({"type": "message", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}),
        ),
    ] {
        let server = Server::start(vec![document(body)]).await;
        let (reply, _) = ask(&provider(wire, &server.base), &[], None).await;
        assert_eq!(reply.unwrap().text(), "fine", "{wire:?}");
    }
}

#[tokio::test]
async fn a_refused_schema_is_left_out_from_then_on() {
    let refused = r#"{"error":{"message":"'response_format' of type 'json_schema' is not supported with this model"}}"#;
    let fine = json!({"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]});
    let server = Server::start(vec![Act::Say(400, Vec::new(), refused.into()), document(fine)]).await;
    let provider = provider(wire::named("openai"), &server.base);
    let schema = json!({"type": "object"});
    for _ in 0..2 {
        assert!(ask(&provider, &[], Some(&schema)).await.0.is_ok());
    }
    let requests = server.requests.lock().unwrap();
    let named: Vec<bool> = requests
        .iter()
        .map(|request| request.contains("response_format"))
        .collect();
    assert_eq!(named, [true, false, false]);
}

#[tokio::test]
async fn waits_are_shown_and_told() {
    let busy = Act::Say(
        429,
        vec![("retry-after-ms", "5".into())],
        r#"{"error":{"message":"slow down"}}"#.into(),
    );
    let server = Server::start(vec![busy, stream(gemini_ok("ok"))]).await;
    let (reply, told) = ask(&provider(wire::named("gemini"), &server.base), &[], None).await;
    assert!(reply.is_ok());
    assert_eq!(
        told,
        ["1 quota HTTP 429: slow down", "wait gemini/m-1: HTTP 429: slow down"]
    );
}

#[tokio::test]
async fn another_model_stands_in_and_stays() {
    let bad = Server::start(vec![Act::Say(401, Vec::new(), String::new())]).await;
    let good = Server::start(vec![stream(gemini_ok("ok"))]).await;
    let models: Vec<Arc<dyn Provider>> = [&bad, &good]
        .into_iter()
        .map(|server| Arc::new(provider(wire::named("gemini"), &server.base)) as Arc<dyn Provider>)
        .collect();
    let both = Fallback::new(models);
    let (reply, told) = ask(&both, &[], None).await;
    assert_eq!(reply.unwrap().text(), "ok");
    assert!(
        told.iter()
            .any(|line| line.contains("auth") && line.contains("continuing with gemini/m-1")),
        "{told:?}"
    );
    assert!(ask(&both, &[], None).await.0.is_ok());
    assert_eq!((bad.asked(), good.asked()), (1, 2));
}

/// The engine then shortens the history, so that the model can go on.
#[tokio::test]
async fn a_history_that_is_too_long_does_not_lead_to_another_model() {
    let full = Server::start(vec![Act::Say(413, Vec::new(), String::new())]).await;
    let other = Server::start(vec![stream(gemini_ok("ok"))]).await;
    let models = [&full, &other]
        .into_iter()
        .map(|server| Arc::new(provider(wire::named("gemini"), &server.base)) as Arc<dyn Provider>);
    let (reply, told) = ask(&Fallback::new(models.collect()), &[], None).await;
    assert_eq!(reply.unwrap_err().class, ProviderClass::ContextOverflow);
    assert_eq!((full.asked(), other.asked(), told.len()), (1, 0, 0));
}

#[tokio::test]
async fn when_no_model_is_left_the_last_failure_is_told() {
    let servers = [
        Server::start(vec![Act::Say(404, Vec::new(), String::new())]).await,
        Server::start(vec![Act::Stream(
            vec!["data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n".into()],
            Duration::ZERO,
            End::Clean,
        )])
        .await,
    ];
    let models = servers
        .iter()
        .map(|server| Arc::new(provider(wire::named("gemini"), &server.base)) as Arc<dyn Provider>);
    let (reply, _) = ask(&Fallback::new(models.collect()), &[], None).await;
    assert_eq!(reply.unwrap_err().class, ProviderClass::Blocked);
}

/// A connection that breaks off does not cost the run its search.
#[tokio::test]
async fn a_search_is_repeated_after_a_lost_connection() {
    let found = json!({"candidates": [{"content": {"parts": [{"text": "found"}]}}]});
    let server = Server::start(vec![Act::Close, Act::Close, document(found)]).await;
    let (limits, schedule) = quick();
    let service = Service {
        wire: wire::named("gemini"),
        model: "m-1".to_owned(),
        base: server.base.clone(),
        base_from: None,
        key: None,
        max_output_tokens: None,
        limits,
        schedule,
    };
    let cancel = CancellationToken::new();
    let until = Until {
        deadline: Instant::now() + Duration::from_secs(10),
        cancel: &cancel,
    };
    let answer = grounding::search(&service, &Client::new(limits), "farben", until).await;
    assert_eq!(answer.unwrap().text, "found");
}

#[tokio::test]
async fn nothing_is_encoded_twice_for_a_retry() {
    let server = Server::start(vec![Act::Say(503, Vec::new(), String::new()), stream(gemini_ok("ok"))]).await;
    let provider: Http = provider(wire::named("gemini"), &server.base);
    assert!(ask(&provider, &[], None).await.0.is_ok());
    let requests = server.requests.lock().unwrap();
    let body = |request: &String| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body(&requests[0]), body(&requests[1]));
    assert!(provider.encoded() <= body(&requests[0]).len() as u64);
}

//! The provider against a server on a real socket: success, one connection, cancellation, deadline.

mod answers;
mod asking;
mod faults;
mod server;

use super::*;
use crate::base::message::Message;
use crate::net::retry::Backoff;
use serde_json::json;
use server::{Act, End, Server};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Limits short enough for tests.
pub fn quick() -> (Limits, Schedule) {
    let steps = |attempts| Backoff {
        attempts,
        first: Duration::from_millis(2),
        most: Duration::from_millis(10),
    };
    let limits = Limits {
        connect: Duration::from_millis(500),
        first_byte: Duration::from_millis(600),
        silence: Duration::from_millis(600),
        body: 4 << 20,
    };
    let schedule = Schedule {
        connect: steps(2),
        service: steps(3),
        answer: steps(3),
        asked_most: Duration::from_millis(500),
        total: Duration::from_secs(2),
    };
    (limits, schedule)
}

pub fn provider(wire: Wire, base: &str) -> Http {
    provider_within(quick(), wire, base)
}

fn provider_within((limits, schedule): (Limits, Schedule), wire: Wire, base: &str) -> Http {
    Http::new(Service {
        wire,
        model: "m-1".to_owned(),
        base: base.to_owned(),
        base_from: Some("--base-url"),
        key: Some("secret-key".to_owned().into()),
        max_output_tokens: None,
        limits,
        schedule,
    })
}

/// Sends one request; returns the reply and the classes of the retries.
pub async fn ask(provider: &Http, messages: &[Message]) -> (Result<Reply, ProviderError>, Vec<String>) {
    ask_until(provider, messages, &CancellationToken::new(), Duration::from_secs(10)).await
}

pub async fn ask_until(
    provider: &Http,
    messages: &[Message],
    cancel: &CancellationToken,
    within: Duration,
) -> (Result<Reply, ProviderError>, Vec<String>) {
    ask_while(provider, messages, cancel, within, &|_| {}).await
}

/// Like [`ask_until`]; `live` receives what arrives.
async fn ask_while(
    provider: &Http,
    messages: &[Message],
    cancel: &CancellationToken,
    within: Duration,
    live: &(dyn Fn(ProgressEvent) + Send + Sync),
) -> (Result<Reply, ProviderError>, Vec<String>) {
    let retries = Mutex::new(Vec::new());
    let retried = |failed: FailedAttempt<'_>| retries.lock().unwrap().push(failed.class.to_owned());
    let request = ModelRequest {
        turn: 1,
        system: "be brief",
        tools: &[],
        messages,
        epoch: 0,
        response: None,
        answer_only: false,
        digest: "",
    };
    let cx = AskContext {
        cancel,
        deadline: Instant::now() + within,
        live,
        retried: &retried,
        has_room: &|_| true,
    };
    let reply = provider.ask(&request, cx).await;
    (reply, retries.into_inner().unwrap())
}

fn gemini_ok(text: &str) -> String {
    format!(
        "data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"{text}\"}}]}},\"finishReason\":\"STOP\"}}]}}\n\n"
    )
}

fn stream(text: String) -> Act {
    Act::Stream(vec![text], Duration::ZERO, End::Clean)
}

#[tokio::test]
async fn one_connection_serves_many_turns() {
    let server = Server::start(vec![stream(gemini_ok("hello"))]).await;
    let provider = provider(wire::named("gemini"), &server.base);
    let mut messages = vec![Message::user("hi")];
    for _ in 0..5 {
        let (reply, retries) = ask(&provider, &messages).await;
        let reply = reply.unwrap();
        assert_eq!(reply.text(), "hello");
        assert!(retries.is_empty());
        messages.push(Message {
            role: crate::base::message::Role::Assistant,
            parts: reply.parts,
        });
        messages.push(Message::user("again"));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let requests = server.requests.lock().unwrap();
    assert!(requests[0].contains("x-goog-api-key: secret-key"));
    assert!(requests[0].starts_with("POST /v1beta/models/m-1:streamGenerateContent?alt=sse HTTP/1.1"));
    assert!(!requests[0].to_ascii_lowercase().contains("transfer-encoding"));
}

#[tokio::test]
async fn cancellation_ends_everything_at_once() {
    // Nothing but the cancellation ends these soon.
    let minute = Duration::from_secs(60);
    let (limits, schedule) = quick();
    let limits = Limits {
        first_byte: minute,
        silence: minute,
        ..limits
    };
    let schedule = Schedule {
        asked_most: minute,
        total: minute,
        ..schedule
    };
    for act in [
        Act::Hang,
        Act::Stream(vec!["data: {}\n\n".into()], Duration::ZERO, End::Hang),
        Act::Say(503, vec![("retry-after", "50".into())], String::new()),
    ] {
        let server = Server::start(vec![act]).await;
        let within = (limits, schedule);
        let provider = Arc::new(provider_within(within, wire::named("gemini"), &server.base));
        let cancel = CancellationToken::new();
        let task = tokio::spawn({
            let (provider, cancel) = (Arc::clone(&provider), cancel.clone());
            async move { ask_until(&provider, &[Message::user("hi")], &cancel, Duration::from_secs(60)).await }
        });
        tokio::time::sleep(Duration::from_millis(80)).await;
        let at = Instant::now();
        cancel.cancel();
        let (reply, _) = task.await.unwrap();
        assert_eq!(reply.unwrap_err().class, ProviderClass::Cancelled);
        assert!(at.elapsed() < Duration::from_secs(10), "{:?}", at.elapsed());
    }
}

/// The service charges for it.
#[tokio::test]
async fn what_came_of_a_reply_that_is_cancelled_is_counted() {
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m-1",
            "content": [], "stop_reason": null, "usage": {"input_tokens": 400, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a text that goes on"}}),
    ];
    let event = |event: &serde_json::Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let begin = events.iter().map(event).collect();
    let server = Server::start(vec![Act::Stream(vec![begin], Duration::ZERO, End::Hang)]).await;
    let (limits, schedule) = quick();
    let limits = Limits {
        silence: Duration::from_secs(60),
        ..limits
    };
    let provider = provider_within((limits, schedule), wire::named("anthropic"), &server.base);
    let cancel = CancellationToken::new();
    let (reply, _) = ask_while(
        &provider,
        &[Message::user("hi")],
        &cancel,
        Duration::from_secs(60),
        &|_| cancel.cancel(),
    )
    .await;
    let error = reply.unwrap_err();
    assert_eq!(error.class, ProviderClass::Cancelled);
    let discarded = error.discarded.unwrap();
    assert_eq!((discarded.usage.input, discarded.received), (400, 19), "{discarded:?}");
}

#[tokio::test]
async fn the_deadline_ends_a_silent_answer() {
    let server = Server::start(vec![Act::Hang]).await;
    let provider = provider(wire::named("gemini"), &server.base);
    let at = Instant::now();
    let within = Duration::from_millis(100);
    let (reply, _) = ask_until(&provider, &[Message::user("hi")], &CancellationToken::new(), within).await;
    let error = reply.unwrap_err();
    assert_eq!(error.class, ProviderClass::Cancelled);
    assert!(error.message.contains("time ended"), "{error}");
    assert!(at.elapsed() < Duration::from_secs(10), "{:?}", at.elapsed());
}

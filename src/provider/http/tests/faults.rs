//! The fault table: what each way to fail ends in, for each wire, on a real socket.

use super::answers::{error_inside, good, half, odd};
use super::server::{Act, End, Server};
use super::{ask, provider};
use crate::base::message::{Message, Stop};
use crate::provider::ProviderClass::{self, *};
use crate::provider::wire::Wire;
use std::time::{Duration, Instant};

/// What a fault must end in: a class, or success after retries.
#[derive(Clone, Copy, Debug)]
pub enum Ends {
    In(ProviderClass),
    Well,
    Length,
}

fn say(status: u16, body: &str) -> Act {
    Act::Say(status, vec![("content-type", "application/json".into())], body.into())
}

fn with(status: u16, name: &'static str, value: &str) -> Act {
    Act::Say(status, vec![(name, value.into())], "{}".into())
}

fn stream(text: &str) -> Act {
    Act::Stream(vec![text.into()], Duration::ZERO, End::Clean)
}

fn typed(kind: &str, body: &str) -> Act {
    Act::Say(200, vec![("content-type", kind.into())], body.into())
}

/// Name, what the server does, the end, how many requests it takes.
fn table(wire: Wire) -> Vec<(String, Vec<Act>, Ends, usize)> {
    let fine = stream(&good(wire));
    let day =
        r#"{"error":{"code":429,"message":"q","details":[{"violations":[{"quotaId":"RequestsPerDayPerProject"}]}]}}"#;
    let info =
        r#"{"error":{"code":429,"message":"q","details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"0.02s"}]}}"#;
    let double = r#"{"error":{"message":"{\"error\":{\"code\":429,\"message\":\"Please retry in 20ms\"}}"}}"#;
    let mut rows: Vec<(&str, Vec<Act>, Ends, usize)> = vec![
        (
            "bad request",
            vec![say(400, r#"{"error":{"message":"bad argument"}}"#)],
            Ends::In(Rejected),
            1,
        ),
        (
            "bad key",
            vec![say(401, r#"{"error":{"message":"no"}}"#)],
            Ends::In(Auth),
            1,
        ),
        ("forbidden", vec![say(403, "")], Ends::In(Auth), 1),
        (
            "no such model",
            vec![say(404, r#"{"error":{"message":"no model"}}"#)],
            Ends::In(Rejected),
            1,
        ),
        (
            "time-out told, then fine",
            vec![say(408, ""), fine.clone()],
            Ends::Well,
            2,
        ),
        ("conflict, then fine", vec![say(409, ""), fine.clone()], Ends::Well, 2),
        ("too large", vec![say(413, "")], Ends::In(ContextOverflow), 1),
        (
            "too long",
            vec![say(
                400,
                r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            )],
            Ends::In(ContextOverflow),
            1,
        ),
        (
            "rate limit for ever",
            vec![with(429, "retry-after", "0.01")],
            Ends::In(Quota),
            3,
        ),
        (
            "retry-after",
            vec![with(429, "retry-after", "0.02"), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "retry-after-ms",
            vec![with(429, "retry-after-ms", "20"), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "retry-after as a date in the past",
            vec![with(429, "retry-after", "Thu, 01 Jan 1970 00:00:00 GMT"), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "retry-after of an hour",
            vec![with(429, "retry-after", "3600")],
            Ends::In(Quota),
            1,
        ),
        ("RetryInfo", vec![say(429, info), fine.clone()], Ends::Well, 2),
        (
            "wait in a double-encoded sentence",
            vec![say(429, double), fine.clone()],
            Ends::Well,
            2,
        ),
        ("quota of the day", vec![say(429, day)], Ends::In(Quota), 1),
        (
            "x-should-retry: false",
            vec![with(503, "x-should-retry", "false")],
            Ends::In(Unavailable),
            1,
        ),
        (
            "x-should-retry: true",
            vec![with(400, "x-should-retry", "true"), fine.clone()],
            Ends::Well,
            2,
        ),
        ("500 for ever", vec![say(500, "")], Ends::In(Unavailable), 3),
        (
            "502 with a page",
            vec![
                Act::Say(
                    502,
                    vec![("content-type", "text/html".into())],
                    "<html>Bad Gateway</html>".into(),
                ),
                fine.clone(),
            ],
            Ends::Well,
            2,
        ),
        (
            "503, 504, then fine",
            vec![say(503, ""), say(504, ""), fine.clone()],
            Ends::Well,
            3,
        ),
        ("529", vec![say(529, ""), fine.clone()], Ends::Well, 2),
        (
            "redirect",
            vec![with(302, "location", "http://elsewhere.invalid/")],
            Ends::In(Rejected),
            1,
        ),
        (
            "closed before a word",
            vec![Act::Close, Act::Close, fine.clone()],
            Ends::Well,
            3,
        ),
        ("silence before a word", vec![Act::Hang, fine.clone()], Ends::Well, 2),
        (
            "cut in mid-stream",
            vec![Act::Stream(vec![half(wire)], Duration::ZERO, End::Cut), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "ended in mid-stream",
            vec![stream(&half(wire)), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "silence in mid-stream",
            vec![Act::Stream(vec![half(wire)], Duration::ZERO, End::Hang), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "cut for ever",
            vec![Act::Stream(vec![half(wire)], Duration::ZERO, End::Cut)],
            Ends::In(Transport),
            3,
        ),
        (
            "half an event",
            vec![stream("data: {\"candidates\":[{\"con"), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "garbage in the stream",
            vec![stream("data: what?\n\n"), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "garbage for ever",
            vec![stream("data: what?\n\n")],
            Ends::In(Unusable),
            3,
        ),
        (
            "an error inside the stream",
            vec![stream(&format!("{}{}", half(wire), error_inside(wire))), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "an empty body",
            vec![typed("text/event-stream", ""), fine.clone()],
            Ends::Well,
            2,
        ),
        (
            "an empty body without a type",
            vec![typed("x/y", "")],
            Ends::In(Unusable),
            3,
        ),
        (
            "a web page with status 200",
            vec![typed("text/html", "<html>log in</html>")],
            Ends::In(Unusable),
            3,
        ),
        (
            "a stream with a wrong type",
            vec![typed("text/plain", &good(wire))],
            Ends::Well,
            1,
        ),
        (
            "JSON that is none",
            vec![typed("application/json", "{\"a\":")],
            Ends::In(Unusable),
            3,
        ),
        (
            "an error with status 200",
            vec![
                typed(
                    "application/json",
                    r#"{"error":{"message":"overloaded","type":"overloaded_error"}}"#,
                ),
                fine.clone(),
            ],
            Ends::Well,
            2,
        ),
        (
            "a body beyond the limit",
            vec![stream(&format!("data: {}", "x".repeat(5 << 20)))],
            Ends::In(Transport),
            3,
        ),
        (
            "a slow drip",
            vec![Act::Stream(
                good(wire)
                    .as_bytes()
                    .chunks(40)
                    .map(|piece| String::from_utf8_lossy(piece).into_owned())
                    .collect(),
                Duration::from_millis(3),
                End::Clean,
            )],
            Ends::Well,
            1,
        ),
        (
            "the end of the connection missing",
            vec![Act::Stream(vec![good(wire)], Duration::ZERO, End::Hang)],
            Ends::Well,
            1,
        ),
    ];
    for (name, (text, ends)) in ["empty answer", "malformed call", "blocked", "cut at its length"]
        .into_iter()
        .zip(odd(wire))
    {
        let requests = if matches!(ends, Ends::In(Unusable)) { 3 } else { 1 };
        rows.push((name, vec![stream(&text)], ends, requests));
    }
    rows.into_iter()
        .map(|(name, acts, ends, requests)| (format!("{wire:?}: {name}"), acts, ends, requests))
        .collect()
}

async fn check(name: String, wire: Wire, acts: Vec<Act>, ends: Ends, requests: usize) {
    let server = Server::start(acts).await;
    let provider = provider(wire, &server.base);
    let at = Instant::now();
    let (reply, retries) = ask(&provider, &[Message::user("go")]).await;
    match (ends, &reply) {
        (Ends::In(class), Err(error)) => {
            assert_eq!(error.class, class, "{name}: {error}");
            assert!(error.message.contains("m-1"), "{name} does not name the model: {error}");
            assert!(!error.message.contains("secret-key"), "{name}: {error}");
        }
        // The same outcome as without the fault, nothing half in it.
        (Ends::Well, Ok(reply)) => assert_eq!((reply.text().as_str(), &reply.stop), ("fine", &Stop::End), "{name}"),
        (Ends::Length, Ok(reply)) => {
            assert_eq!((reply.text().as_str(), &reply.stop), ("half", &Stop::Length), "{name}")
        }
        (_, other) => panic!("{name}: {other:?}"),
    }
    assert_eq!(server.asked(), requests, "{name}");
    assert_eq!(retries.len(), requests - 1, "{name}: {retries:?}");
    assert!(at.elapsed() < Duration::from_secs(3), "{name}: {:?}", at.elapsed());
}

async fn run(wire: Wire) {
    let rows = table(wire);
    assert!(rows.len() >= 25);
    let mut tasks = tokio::task::JoinSet::new();
    for (name, acts, ends, requests) in rows {
        tasks.spawn(check(name, wire, acts, ends, requests));
    }
    while let Some(done) = tasks.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

#[tokio::test]
async fn gemini() {
    run(Wire::Gemini).await;
}

#[tokio::test]
async fn openai_chat() {
    run(Wire::OpenaiChat).await;
}

#[tokio::test]
async fn openai_responses() {
    run(Wire::OpenaiResponses).await;
}

#[tokio::test]
async fn anthropic_messages() {
    run(Wire::Anthropic).await;
}

#[tokio::test]
async fn nobody_listens() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for wire in Wire::ALL {
        let (reply, retries) = ask(&provider(wire, &base), &[Message::user("go")]).await;
        let error = reply.unwrap_err();
        assert_eq!((error.class, retries.len()), (Transport, 1), "{error}");
        assert!(error.message.contains("cannot connect"), "{error}");
    }
}

//! The fault table: the result of each kind of failure, for each wire, on a real socket.

use super::answers::{error_inside, good, half, odd};
use super::server::{Act, End, Server};
use super::{ask, provider};
use crate::base::message::{Message, StopReason};
use crate::provider::ProviderClass::{self, *};
use crate::provider::wire::{self, Wire};
use std::time::{Duration, Instant};

/// The expected result of a fault: a class, or success after retries.
#[derive(Clone, Copy, Debug)]
pub enum Ends {
    In(ProviderClass),
    Well,
    Length,
    /// An empty reply.
    Empty,
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

/// Name, what the server does, the expected result, the number of requests.
type Row = (&'static str, Vec<Act>, Ends, usize);

fn refusals() -> Vec<Row> {
    let day =
        r#"{"error":{"code":429,"message":"q","details":[{"violations":[{"quotaId":"RequestsPerDayPerProject"}]}]}}"#;
    let long = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    let once = |name, act, class| (name, vec![act], Ends::In(class), 1);
    vec![
        once(
            "bad request",
            say(400, r#"{"error":{"message":"bad argument"}}"#),
            Rejected,
        ),
        once("bad key", say(401, r#"{"error":{"message":"no"}}"#), Auth),
        once("forbidden", say(403, ""), Auth),
        once(
            "no such model",
            say(404, r#"{"error":{"message":"no model"}}"#),
            Rejected,
        ),
        once("too large", say(413, ""), ContextOverflow),
        once("too long", say(400, long), ContextOverflow),
        once("retry-after of an hour", with(429, "retry-after", "3600"), Quota),
        once("quota of the day", say(429, day), Quota),
        once(
            "x-should-retry: false",
            with(503, "x-should-retry", "false"),
            Unavailable,
        ),
        once("redirect", with(302, "location", "http://elsewhere.invalid/"), Rejected),
    ]
}

fn passing(fine: &Act) -> Vec<Row> {
    let info =
        r#"{"error":{"code":429,"message":"q","details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"0.02s"}]}}"#;
    let double = r#"{"error":{"message":"{\"error\":{\"code\":429,\"message\":\"Please retry in 20ms\"}}"}}"#;
    let page = Act::Say(
        502,
        vec![("content-type", "text/html".into())],
        "<html>Bad Gateway</html>".into(),
    );
    let then_fine = |name, act| (name, vec![act, fine.clone()], Ends::Well, 2);
    vec![
        then_fine("time-out told", say(408, "")),
        then_fine("conflict", say(409, "")),
        then_fine("retry-after", with(429, "retry-after", "0.02")),
        then_fine("retry-after-ms", with(429, "retry-after-ms", "20")),
        then_fine(
            "retry-after as a date",
            with(429, "retry-after", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ),
        then_fine("RetryInfo", say(429, info)),
        then_fine("wait in a double-encoded sentence", say(429, double)),
        then_fine("x-should-retry: true", with(400, "x-should-retry", "true")),
        then_fine("500", say(500, "")),
        then_fine("502 with a page", page),
        (
            "503, 504",
            vec![say(503, ""), say(504, ""), fine.clone()],
            Ends::Well,
            3,
        ),
        then_fine("529", say(529, "")),
        (
            "429 for ever",
            vec![with(429, "retry-after", "0.01")],
            Ends::In(Quota),
            3,
        ),
        ("500 for ever", vec![say(500, "")], Ends::In(Unavailable), 3),
    ]
}

fn breaks(wire: Wire, fine: &Act) -> Vec<Row> {
    let pieces = |text: String, pause, end| Act::Stream(vec![text], Duration::from_millis(pause), end);
    let drip = good(wire)
        .as_bytes()
        .chunks(40)
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect();
    let cut = pieces(half(wire), 0, End::Cut);
    let then_fine = |name, act| (name, vec![act, fine.clone()], Ends::Well, 2);
    vec![
        (
            "closed before a word",
            vec![Act::Close, Act::Close, fine.clone()],
            Ends::Well,
            3,
        ),
        then_fine("silence before a word", Act::Hang),
        then_fine("cut in mid-stream", cut.clone()),
        ("cut for ever", vec![cut], Ends::In(Transport), 3),
        then_fine("ended in mid-stream", stream(&half(wire))),
        then_fine("silence in mid-stream", pieces(half(wire), 0, End::Hang)),
        then_fine("half an event", stream("data: {\"candidates\":[{\"con")),
        (
            "a slow drip",
            vec![Act::Stream(drip, Duration::from_millis(3), End::Clean)],
            Ends::Well,
            1,
        ),
        (
            "only the end of the connection missing",
            vec![pieces(good(wire), 0, End::Hang)],
            Ends::Well,
            1,
        ),
    ]
}

fn nonsense(wire: Wire, fine: &Act) -> Vec<Row> {
    let overloaded = r#"{"error":{"message":"overloaded","type":"overloaded_error"}}"#;
    let error = format!("{}{}", half(wire), error_inside(wire));
    let huge = format!("data: {}", "x".repeat(5 << 20));
    let page = typed("text/html", "<html>log in</html>");
    let then_fine = |name, act| (name, vec![act, fine.clone()], Ends::Well, 2);
    let mut rows = vec![
        then_fine("garbage in the stream", stream("data: what?\n\n")),
        (
            "garbage for ever",
            vec![stream("data: what?\n\n")],
            Ends::In(Unusable),
            3,
        ),
        then_fine("an error inside the stream", stream(&error)),
        then_fine("an empty body", typed("text/event-stream", "")),
        ("empty, without a type", vec![typed("x/y", "")], Ends::In(Unusable), 3),
        ("a web page with status 200", vec![page], Ends::In(Unusable), 3),
        ("a wrong type", vec![typed("text/plain", &good(wire))], Ends::Well, 1),
        (
            "half a document",
            vec![typed("application/json", "{\"a\":")],
            Ends::In(Unusable),
            3,
        ),
        then_fine("an error with status 200", typed("application/json", overloaded)),
        ("a body beyond the limit", vec![stream(&huge)], Ends::In(Transport), 1),
    ];
    // What follows an error does not make the reply whole.
    for (name, event) in [
        (
            "an event named error",
            "event: error\ndata: {\"message\":\"engine died\",\"code\":500}\n\n",
        ),
        ("an event named error, in words", "event: error\ndata: engine died\n\n"),
        (
            "a field named error",
            "error: {\"code\":500,\"message\":\"engine died\"}\n\n",
        ),
    ] {
        rows.push(then_fine(name, stream(&format!("{}{event}{}", half(wire), good(wire)))));
    }
    if wire.vendor() == "openai" {
        for (name, error) in [
            ("a message", r#"{"message":"engine died"}"#),
            ("a detail", r#"{"detail":"engine died"}"#),
            ("errors", r#"{"errors":[{"message":"engine died"}]}"#),
            ("a type of error", r#"{"type":"error","text":"engine died"}"#),
            (
                "an error_type",
                r#"{"error_type":"incomplete_generation","message":"engine died"}"#,
            ),
            ("a code", r#"{"code":500}"#),
            ("no part of a reply", r#"{"status":"engine died"}"#),
        ] {
            let text = format!("{}data: {error}\n\ndata: [DONE]\n\n", half(wire));
            rows.push(then_fine(name, stream(&text)));
        }
    }
    let names = ["empty answer", "malformed call", "blocked", "cut at its length"];
    for (name, (text, ends)) in names.into_iter().zip(odd(wire)) {
        let requests = if matches!(ends, Ends::In(Unusable)) { 3 } else { 1 };
        rows.push((name, vec![stream(&text)], ends, requests));
    }
    rows
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
        // The same outcome as without the fault, with nothing of the failed attempt in it.
        (Ends::Well, Ok(reply)) => assert_eq!(
            (reply.text().as_str(), &reply.stop),
            ("fine", &StopReason::End),
            "{name}"
        ),
        (Ends::Length, Ok(reply)) => {
            let cut = StopReason::Length { call: None };
            assert_eq!((reply.text().as_str(), &reply.stop), ("half", &cut), "{name}")
        }
        (Ends::Empty, Ok(reply)) => {
            assert_eq!((reply.text().as_str(), &reply.stop), ("", &StopReason::End), "{name}");
            assert_eq!(reply.calls().count(), 0, "{name}");
        }
        (_, other) => panic!("{name}: {other:?}"),
    }
    assert_eq!(server.asked(), requests, "{name}");
    assert_eq!(retries.len(), requests - 1, "{name}: {retries:?}");
    assert!(at.elapsed() < Duration::from_secs(30), "{name}: {:?}", at.elapsed());
}

async fn run(wire: Wire) {
    let fine = stream(&good(wire));
    let rows = [refusals(), passing(&fine), breaks(wire, &fine), nonsense(wire, &fine)].concat();
    assert!(rows.len() >= 40);
    let mut tasks = tokio::task::JoinSet::new();
    for (name, acts, ends, requests) in rows {
        tasks.spawn(check(format!("{wire:?}: {name}"), wire, acts, ends, requests));
    }
    while let Some(done) = tasks.join_next().await {
        if let Err(error) = done {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

#[tokio::test]
async fn gemini() {
    run(wire::named("gemini")).await;
}

#[tokio::test]
async fn openai_chat() {
    run(wire::named("openai")).await;
}

#[tokio::test]
async fn openai_responses() {
    run(wire::named("openai-responses")).await;
}

#[tokio::test]
async fn anthropic_messages() {
    run(wire::named("anthropic")).await;
}

#[tokio::test]
async fn nobody_listens() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for wire in wire::ALL {
        let (reply, retries) = ask(&provider(wire, &base), &[Message::user("go")]).await;
        let error = reply.unwrap_err();
        assert_eq!((error.class, retries.len()), (Transport, 1), "{error}");
        let told = format!("cannot connect to {base}/");
        assert!(error.message.contains(&told), "{error}");
        assert!(error.message.ends_with("; check --base-url"), "{error}");
    }
}

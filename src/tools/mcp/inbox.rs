//! Reads the messages of one server, for all transports: checks the limits before it parses, repairs small mistakes,
//! and drops what is not a message or exceeds a limit. A response that cannot be used becomes an error of its request.

use super::limits::{
    DEPTH, ERROR, MESSAGE, NOTIFICATIONS, REQUESTS, UNASKED_BYTES, UNASKED_TOTAL, UNASKED_VALUES, VALUES, cut,
};
use super::outline::{Outline, outline};
use super::repair::{self, Asked};
use crate::base::sync::lock;
use crate::tools::notices::Notices;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// Upper limit for the requests without a response, including abandoned ones; further requests replace the oldest.
const AWAITED: usize = 256;
/// Upper limit for different warnings of one connection.
const WARNINGS: usize = 50;
/// Upper limit in bytes for the id of a message.
const ID: usize = 256;

/// The messages of one connection. Clones share their state.
#[derive(Clone)]
pub struct Inbox {
    /// The server's name in the recipe.
    name: Arc<str>,
    notices: Notices,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The requests without a response, the oldest first.
    awaited: VecDeque<(RequestId, Asked)>,
    /// This and the next two: counts of what the server has sent since the last request to it.
    notifications: usize,
    requests: usize,
    unasked_bytes: usize,
    /// The warnings so far, so that each is reported once.
    warned: BTreeSet<String>,
}

impl Inbox {
    /// The inbox of a connection to the server with this name.
    pub fn new(name: &str, notices: &Notices) -> Self {
        Self {
            name: name.into(),
            notices: notices.clone(),
            state: Arc::default(),
        }
    }

    /// Records a message to the server: how a response is repaired depends on its request.
    pub fn sent(&self, message: &ClientJsonRpcMessage) {
        let ClientJsonRpcMessage::Request(request) = message else {
            return;
        };
        let mut state = lock(&self.state);
        state.notifications = 0;
        state.requests = 0;
        state.unasked_bytes = 0;
        // A request may be sent again, for example in another session.
        state.awaited.retain(|(id, _)| *id != request.id);
        if state.awaited.len() >= AWAITED {
            state.awaited.pop_front();
        }
        let asked = Asked::of(request.request.method());
        state.awaited.push_back((request.id.clone(), asked));
    }

    /// The message in these bytes. `None` if there is none, or if it is dropped.
    pub fn message(&self, bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
        let message = self.read(bytes)?;
        let id = message.get("id").filter(|_| message.get("method").is_none()).cloned();
        let read = serde_json::from_value(message).ok();
        read.or_else(|| serde_json::from_value(failed(id?, "the answer is not of a known form")).ok())
    }

    /// Like [`Self::message`], as JSON.
    pub fn text(&self, bytes: &[u8]) -> Option<String> {
        self.read(bytes).map(|message| message.to_string())
    }

    fn read(&self, bytes: &[u8]) -> Option<Value> {
        let found = outline(bytes);
        let id = found.id.filter(|id| id.len() <= ID);
        let id: Option<RequestId> = id.and_then(|id| serde_json::from_slice(id).ok());
        if found.is_answer() {
            let (id, asked) = self.taken(&id?)?;
            return Some(
                self.answer(bytes, &found, &id, asked)
                    .unwrap_or_else(|why| failed(id.into_json_value(), &why)),
            );
        }
        if found.is_unasked() {
            return self.unasked(bytes, &found, id);
        }
        if id.is_some() {
            self.warn("it sends JSON that is no MCP message, for example lines of a log; they are left out".to_owned());
        }
        None
    }

    /// Takes the request with this id out of those without a response. Some servers send a number as a string.
    fn taken(&self, id: &RequestId) -> Option<(RequestId, Asked)> {
        let mut state = lock(&self.state);
        let is_same = |one: &RequestId| match (one, id) {
            (RequestId::Number(number), RequestId::String(text)) => **text == *number.to_string(),
            (one, id) => one == id,
        };
        let exact = state.awaited.iter().position(|(one, _)| one == id);
        let place = exact.or_else(|| state.awaited.iter().position(|(one, _)| is_same(one)))?;
        state.awaited.remove(place)
    }

    fn answer(&self, bytes: &[u8], found: &Outline<'_>, id: &RequestId, asked: Asked) -> Result<Value, String> {
        if let Some(why) = excess(bytes, found, (MESSAGE, VALUES)) {
            return Err(format!("the answer is left out: it has {why}"));
        }
        let mut said = Vec::new();
        let mut message = parsed(bytes, &mut said).map_err(|why| format!("the answer is left out: {why}"))?;
        message.insert("id".to_owned(), id.clone().into_json_value());
        repair::answer(&mut message, asked, &mut said);
        for one in said {
            self.warn(format!("{}: {one}", asked.described()));
        }
        Ok(Value::Object(message))
    }

    /// Reads a request or a notification of the server.
    fn unasked(&self, bytes: &[u8], found: &Outline<'_>, id: Option<RequestId>) -> Option<Value> {
        let what = match found.id {
            Some(_) => "requests",
            None => "notifications",
        };
        let too_many = {
            let mut state = lock(&self.state);
            state.unasked_bytes = state.unasked_bytes.saturating_add(bytes.len());
            let (number, most) = match found.id {
                Some(_) => (&mut state.requests, REQUESTS),
                None => (&mut state.notifications, NOTIFICATIONS),
            };
            *number = number.saturating_add(1);
            let many = (*number > most).then(|| format!("{most} {what}"));
            let is_long = state.unasked_bytes > UNASKED_TOTAL;
            many.or_else(|| is_long.then(|| format!("{UNASKED_TOTAL} bytes of requests and notifications")))
        };
        if let Some(many) = too_many {
            self.warn(format!(
                "it sends more than {many} between two requests to it; the rest is left out"
            ));
            return None;
        }
        if let Some(why) = excess(bytes, found, (UNASKED_BYTES, UNASKED_VALUES)) {
            self.warn(format!("one of its {what} has {why}; it is left out"));
            // rmcp answers that this method is unknown, so that the server does not wait for a response.
            return id.map(|id| json!({ "jsonrpc": "2.0", "id": id.into_json_value(), "method": "left-out" }));
        }
        parsed(bytes, &mut Vec::new()).ok().map(Value::Object)
    }

    /// An error response for a request that will get no usable response, so that the request ends.
    pub fn failed(&self, id: &RequestId, why: &str) -> ServerJsonRpcMessage {
        self.taken(id);
        let error = rmcp::model::ErrorData::internal_error(why.to_owned(), None);
        ServerJsonRpcMessage::error(error, Some(id.clone()))
    }

    /// Reports a warning, each text once.
    pub fn warn(&self, what: String) {
        let mut state = lock(&self.state);
        if state.warned.contains(&what) || state.warned.len() > WARNINGS {
            return;
        }
        let told = match state.warned.len() {
            WARNINGS => "it has more mistakes in its messages; they are not listed",
            _ => &what,
        };
        self.notices
            .add("mcp_message", format!("MCP server {}: {told}", self.name));
        state.warned.insert(what);
    }
}

/// The limit that a message exceeds, as text. `None` if it exceeds none.
fn excess(bytes: &[u8], found: &Outline<'_>, (most, values): (usize, usize)) -> Option<String> {
    if bytes.len() > most {
        return Some(format!("more than {most} bytes"));
    }
    if found.values > values {
        return Some(format!("more than {values} JSON values"));
    }
    (found.depth > DEPTH).then(|| format!("more than {DEPTH} arrays and objects within each other"))
}

/// The object in these bytes. Bytes that are not valid UTF-8 are replaced; in large messages they are an error.
fn parsed(bytes: &[u8], said: &mut Vec<String>) -> Result<Map<String, Value>, String> {
    let text = match String::from_utf8_lossy(bytes) {
        Cow::Owned(_) if bytes.len() > UNASKED_BYTES => return Err("it is not in UTF-8".to_owned()),
        text => text,
    };
    if let Cow::Owned(_) = text {
        said.push("bytes that are no UTF-8 are replaced".to_owned());
    }
    serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| format!("it is not valid JSON: {}", cut(&error.to_string(), ERROR)))
}

fn failed(id: Value, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": why } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(method: &str) -> (Inbox, Notices) {
        let notices = Notices::default();
        let inbox = Inbox::new("s", &notices);
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "name": "t", "uri": "r:" } });
        inbox.sent(&serde_json::from_value(asked).unwrap());
        (inbox, notices)
    }

    fn answer(result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
    }

    #[test]
    fn a_response_over_a_limit_becomes_an_error_of_its_request() {
        let wide = format!(r#"{{"structuredContent":[{}{{}}]}}"#, r#"{"a":0},"#.repeat(VALUES / 3));
        let deep = format!(r#"{{"structuredContent":{}{}}}"#, "[".repeat(DEPTH), "]".repeat(DEPTH));
        for (result, why) in [
            (wide.as_str(), "more than 200000 JSON values"),
            (&deep, "more than 100 arrays and objects"),
            (r#"{"a":NaN}"#, "not valid JSON"),
        ] {
            let (inbox, _) = inbox("tools/call");
            let text = inbox.text(answer(result).as_bytes()).unwrap();
            assert!(text.contains(why) && text.contains("error"), "{text}");
            assert!(inbox.text(answer(result).as_bytes()).is_none(), "it is answered");
        }
        let (inbox, notices) = inbox("tools/call");
        let most = format!(r#"{{"structuredContent":[{}0]}}"#, "0,".repeat(VALUES - 50));
        assert!(
            inbox
                .text(answer(&most).as_bytes())
                .unwrap()
                .contains("structuredContent")
        );
        assert!(notices.take().is_empty());
    }

    #[test]
    fn messages_over_the_limits_are_dropped_and_reported_until_the_next_request() {
        let (inbox, notices) = inbox("tools/call");
        let ping = br#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
        let heard = (0..REQUESTS + 5).filter(|_| inbox.text(ping).is_some()).count();
        assert_eq!(heard, REQUESTS);
        let note = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""}}"#;
        let heard = (0..NOTIFICATIONS + 5).filter(|_| inbox.text(note).is_some()).count();
        assert_eq!(heard, NOTIFICATIONS);
        let told: Vec<String> = notices.take().into_iter().map(|notice| notice.message).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("more than 1000 requests between"), "{told:?}");
        let more = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
        inbox.sent(&serde_json::from_value(more).unwrap());
        assert!(inbox.text(ping).is_some() && inbox.text(note).is_some());
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":"{}"}}"#,
            "x".repeat(UNASKED_BYTES)
        );
        assert!(inbox.text(long.as_bytes()).unwrap().contains("left-out"));
    }

    #[test]
    fn only_responses_to_open_requests_are_read_as_responses() {
        let (inbox, notices) = inbox("tools/call");
        for foreign in [
            r#"{"level":"info","id":1,"msg":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"msg":"x"}"#,
            r#"{"id":1,"result":{"content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#,
        ] {
            assert!(inbox.text(foreign.as_bytes()).is_none(), "{foreign}");
        }
        assert_eq!(notices.take().len(), 1);
        let text = r#"{"jsonrpc":"2.0","id":"1","result":{"content":[]},"error":null}"#;
        let Some(ServerJsonRpcMessage::Response(answer)) = inbox.message(text.as_bytes()) else {
            panic!("no answer");
        };
        assert_eq!(answer.id, RequestId::Number(1));
    }
}

//! Assembles tool calls that arrive in chunks, tolerating what servers leave out. Used by the Chat Completions wire.

use serde_json::{Map, Value, json};

/// Incomplete calls, in the order of their first chunk.
#[derive(Debug, Default)]
pub struct Pieces {
    calls: Vec<PartialCall>,
}

/// One call.
#[derive(Debug, Default)]
pub struct PartialCall {
    index: Option<u64>,
    pub id: Option<String>,
    pub name: String,
    /// JSON text.
    pub arguments: String,
    /// Whether `arguments` arrived complete, as an object instead of a string.
    is_whole: bool,
    /// Unknown keys of the call, for example signatures of a model behind a gateway.
    extra: Map<String, Value>,
}

impl Pieces {
    /// Processes one element of `tool_calls`.
    pub fn add(&mut self, piece: &Value) {
        let index = piece.get("index").and_then(Value::as_u64);
        let id = piece.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let name = piece
            .pointer("/function/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let brings = match piece.pointer("/function/arguments") {
            Some(Value::String(more)) => !more.trim().is_empty(),
            Some(whole) => whole.is_object(),
            None => false,
        };
        let at = self.place(index, id, name, brings);
        if at == self.calls.len() {
            self.calls.push(PartialCall {
                index,
                ..PartialCall::default()
            });
        }
        let Some(call) = self.calls.get_mut(at) else { return };
        call.grow(id, name, piece);
    }

    /// The call that a chunk belongs to: the one with its index, or else its id, or else the last one, unless the chunk
    /// starts a new call. Servers that give every call the index 0 distinguish them by id, and those that give no id
    /// either, by name and arguments: nothing can follow complete arguments but another call. `brings`: the chunk has
    /// arguments; without any it may only repeat the name.
    fn place(&self, index: Option<u64>, id: Option<&str>, name: &str, brings: bool) -> usize {
        let another = |call: &PartialCall| match id {
            _ if name.is_empty() => false,
            Some(id) => call.id.as_deref().is_some_and(|own| own != id),
            None => (brings || call.name != name) && call.is_complete(),
        };
        let found = match (index, id) {
            (Some(index), _) => self
                .calls
                .iter()
                .rposition(|call| call.index == Some(index))
                .filter(|at| !another(&self.calls[*at])),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id.as_deref() == Some(id)),
            (None, None) if name.is_empty() => self.calls.len().checked_sub(1),
            (None, None) => None,
        };
        found.unwrap_or(self.calls.len())
    }

    /// Bytes of names and arguments so far.
    pub fn written(&self) -> usize {
        let written = |call: &PartialCall| call.name.len() + call.arguments.len();
        self.calls.iter().map(written).sum()
    }

    /// How many calls have begun.
    pub fn count(&self) -> usize {
        self.calls.len()
    }

    /// The finished calls.
    pub fn into_calls(self) -> Vec<PartialCall> {
        self.calls
    }
}

impl PartialCall {
    fn grow(&mut self, id: Option<&str>, name: &str, piece: &Value) {
        if self.id.is_none() {
            self.id = id.map(str::to_owned);
        }
        // Some servers repeat the whole name in every chunk; none splits it.
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
        }
        match piece.pointer("/function/arguments") {
            Some(Value::String(more)) if !self.is_whole => self.arguments.push_str(more),
            Some(whole @ Value::Object(_)) => {
                self.arguments = whole.to_string();
                self.is_whole = true;
            }
            _ => {}
        }
        for (key, value) in piece.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function") && !value.is_null() {
                self.extra.insert(key.clone(), value.clone());
            }
        }
    }

    /// Whether the arguments are a whole JSON object, to which nothing can be added.
    fn is_complete(&self) -> bool {
        let may_end = self.arguments.trim_end().ends_with('}');
        self.is_whole || may_end && serde_json::from_str::<Map<String, Value>>(&self.arguments).is_ok()
    }

    /// The call as it is sent back to the server.
    pub fn into_value(self) -> Value {
        let arguments = if self.arguments.trim().is_empty() {
            "{}"
        } else {
            &self.arguments
        };
        let mut out = Map::new();
        out.insert("id".into(), json!(self.id));
        out.insert("type".into(), json!("function"));
        out.insert("function".into(), json!({"name": self.name, "arguments": arguments}));
        out.extend(self.extra);
        Value::Object(out)
    }
}

/// Arguments as an object. Empty text means no arguments; a string that contains the object as JSON is unpacked once.
pub fn object(arguments: &str) -> Option<Value> {
    if arguments.trim().is_empty() {
        return Some(json!({}));
    }
    match serde_json::from_str(arguments).ok()? {
        Value::Null => Some(json!({})),
        Value::String(inner) => serde_json::from_str(&inner).ok().filter(Value::is_object),
        value => Some(value).filter(Value::is_object),
    }
}

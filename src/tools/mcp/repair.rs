//! Repairs small mistakes in a server's responses, so that a mistake makes only the part unusable that it is in.
//! Repairs that change what is read are reported.

use super::limits::{ERROR, ERROR_DATA, LISTED, cut};
use crate::base::secret::shortened;
use rmcp::model::{ContentBlock, InitializeResult, Prompt, Resource, ResourceContents, Tool};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The kind of a request, which decides how its response is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Initialize,
    Tools,
    Call,
    Prompts,
    Prompt,
    Resources,
    Resource,
    Other,
}

impl Asked {
    /// The kind for the method of a request.
    pub fn of(method: &str) -> Self {
        match method {
            "initialize" => Self::Initialize,
            "tools/list" => Self::Tools,
            "tools/call" => Self::Call,
            "prompts/list" => Self::Prompts,
            "prompts/get" => Self::Prompt,
            "resources/list" => Self::Resources,
            "resources/read" => Self::Resource,
            _ => Self::Other,
        }
    }

    /// A name of the response for messages.
    pub fn described(self) -> &'static str {
        match self {
            Self::Initialize => "its introduction",
            Self::Tools => "its list of tools",
            Self::Call => "the result of a call",
            Self::Prompts => "its list of prompts",
            Self::Prompt => "a prompt",
            Self::Resources => "its list of resources",
            Self::Resource => "a resource",
            Self::Other => "an answer",
        }
    }
}

type Object = Map<String, Value>;

/// Repairs the response to a request of kind `asked`, and adds the mistakes to `said`.
pub fn answer(message: &mut Object, asked: Asked, said: &mut Vec<String>) {
    for key in ["method", "error"] {
        if message.get(key).is_some_and(Value::is_null) {
            message.shift_remove(key);
        }
    }
    if let Some(error) = message.get_mut("error") {
        failure(error);
        message.shift_remove("result");
        return;
    }
    let Some(result) = message.get_mut("result") else {
        return;
    };
    if asked == Asked::Call && !result.is_object() {
        said.push("it is no object; it is read as text".to_owned());
        *result = json!({ "content": [text(result)] });
    }
    let Value::Object(result) = result else { return };
    // The result asks for further input, or has a kind of its own: it is not repaired.
    if result.get("resultType").is_some_and(|kind| kind != "complete") {
        return;
    }
    if result.get("_meta").is_some_and(|meta| !meta.is_object()) {
        result.shift_remove("_meta");
    }
    match asked {
        Asked::Initialize => introduction(result, said),
        Asked::Call => call(result, said),
        Asked::Prompt => prompt(result, said),
        Asked::Resource => resource(result, said),
        Asked::Tools => list(result, "tools", tool, said),
        Asked::Prompts => list(result, "prompts", listed_prompt, said),
        Asked::Resources => list(result, "resources", listed_resource, said),
        Asked::Other => {}
    }
}

/// Gives an error a code and a message, cuts a long message, and leaves out long data.
fn failure(error: &mut Value) {
    let message = match error.get("message") {
        Some(Value::String(message)) => cut(message, ERROR),
        Some(other) => cut(&other.to_string(), ERROR),
        None => cut(error.as_str().unwrap_or(&error.to_string()), ERROR),
    };
    let code = error.get("code").and_then(Value::as_i64);
    let code = code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-32603);
    let mut repaired = json!({ "code": code, "message": message });
    if let Some(data) = error.get("data").filter(|data| data.to_string().len() <= ERROR_DATA) {
        repaired["data"] = data.clone();
    }
    *error = repaired;
}

fn is<T: for<'a> Deserialize<'a>>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

fn text(value: &Value) -> Value {
    let words = match value {
        Value::String(words) => words.clone(),
        other => other.to_string(),
    };
    json!({ "type": "text", "text": words })
}

fn introduction(result: &mut Object, said: &mut Vec<String>) {
    if is::<InitializeResult>(&Value::Object(result.clone())) {
        return;
    }
    said.push("it is not complete, or a part of it is wrong".to_owned());
    result.retain(|key, _| matches!(key.as_str(), "protocolVersion" | "capabilities" | "serverInfo"));
    let about = result.get("serverInfo");
    let word = |key: &str| {
        about
            .and_then(|about| about.get(key))
            .and_then(Value::as_str)
            .unwrap_or("unknown")
    };
    let about = json!({ "name": word("name"), "version": word("version") });
    result.insert("serverInfo".to_owned(), about);
    let capabilities = result.entry("capabilities").or_insert_with(|| json!({}));
    match capabilities {
        // Only the names of the capabilities are used.
        Value::Object(all) => {
            all.retain(|key, value| matches!(key.as_str(), "tools" | "prompts" | "resources") && !is_no(value));
            all.values_mut().for_each(|value| *value = json!({}));
        }
        other => *other = json!({}),
    }
}

fn is_no(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false))
}

fn call(result: &mut Object, said: &mut Vec<String>) {
    let mut parts = match result.shift_remove("content") {
        Some(Value::Array(parts)) => parts,
        None | Some(Value::Null) if result.contains_key("structuredContent") => Vec::new(),
        None | Some(Value::Null) => {
            said.push("it has no `content`; what it has is read as text".to_owned());
            let rest: Object = result
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "isError" | "_meta" | "resultType"))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            match rest.is_empty() {
                true => Vec::new(),
                false => vec![text(&Value::Object(rest))],
            }
        }
        Some(one) => {
            said.push("its `content` is no list; it is read as one part".to_owned());
            vec![one]
        }
    };
    parts.iter_mut().for_each(|part| block(part, said));
    let is_text = |part: &Value| part["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    if parts.iter().any(is_text) {
        // It repeats the content and is not used.
        result.shift_remove("structuredContent");
    }
    result.insert("content".to_owned(), Value::Array(parts));
    match result.get("isError") {
        None | Some(Value::Bool(_)) => {}
        Some(Value::Null) => drop(result.shift_remove("isError")),
        Some(other) => {
            let failed = match other {
                Value::String(word) => !matches!(word.trim(), "" | "false" | "False" | "no" | "0"),
                Value::Number(number) => number.as_f64() != Some(0.0),
                _ => true,
            };
            said.push(format!("its `isError` is no boolean; it is read as {failed}"));
            result.insert("isError".to_owned(), Value::Bool(failed));
        }
    }
}

/// Repairs one content block. A block that cannot be repaired is replaced by a note.
fn block(part: &mut Value, said: &mut Vec<String>) {
    if !part.is_object() {
        said.push("a part of its content is no object; it is read as text".to_owned());
        *part = text(part);
        return;
    }
    if let Value::Object(object) = &mut *part {
        // Neither is used, and a mistake in them must not make the block unusable.
        object.shift_remove("annotations");
        object.shift_remove("_meta");
    }
    if is::<ContentBlock>(part) {
        return;
    }
    let kind = part["type"].as_str().unwrap_or_default().to_owned();
    match (kind.as_str(), part.get("text")) {
        ("" | "text", Some(words)) => {
            said.push(
                "a text of its content is not of the form `{ type: text, text: … }`; it is read as such".to_owned(),
            );
            *part = text(words);
        }
        ("resource", _) if part.get("resource").is_some() => {
            let inside = part["resource"].take();
            *part = match contents(inside, said) {
                Some(inside) => json!({ "type": "resource", "resource": inside }),
                None => text(&json!("[a resource was left out: it has neither text nor data]")),
            };
        }
        _ => {
            let kind = shortened(&kind, 40).escape_debug().to_string();
            let note = match kind.as_str() {
                "text" | "image" | "audio" | "resource" | "resource_link" => format!("`{kind}` that is not complete"),
                "" => "no known type".to_owned(),
                _ => format!("the unknown type `{kind}`"),
            };
            said.push(format!("a part of its content is of {note}; it is left out"));
            *part = text(&json!(format!("[content of {note} was left out]")));
        }
    }
}

/// Repairs the contents of a resource. `None` if it has neither text nor data.
fn contents(mut one: Value, said: &mut Vec<String>) -> Option<Value> {
    if let Value::Object(object) = &mut one {
        object.shift_remove("annotations");
        object.shift_remove("_meta");
    }
    if is::<ResourceContents>(&one) {
        return Some(one);
    }
    said.push("the contents of a resource are not complete, or not of their type".to_owned());
    let word = |key: &str| one.get(key).and_then(Value::as_str);
    let mut repaired = json!({ "uri": word("uri").unwrap_or("(no URI)") });
    if let Some(mime) = word("mimeType") {
        repaired["mimeType"] = json!(mime);
    }
    match (&one, word("blob"), one.get("text")) {
        (Value::String(words), ..) => repaired["text"] = json!(words),
        (_, Some(blob), _) => repaired["blob"] = json!(blob),
        (_, None, Some(words)) => repaired["text"] = text(words)["text"].take(),
        (_, None, None) => return None,
    }
    Some(repaired)
}

fn resource(result: &mut Object, said: &mut Vec<String>) {
    let all = match result.shift_remove("contents") {
        Some(Value::Array(all)) => all,
        None | Some(Value::Null) => Vec::new(),
        Some(one) => {
            said.push("its `contents` are no list; they are read as one".to_owned());
            vec![one]
        }
    };
    let before = all.len();
    let all: Vec<Value> = all.into_iter().filter_map(|one| contents(one, said)).collect();
    if all.len() < before {
        said.push("contents without text or data are left out".to_owned());
    }
    result.insert("contents".to_owned(), Value::Array(all));
}

fn prompt(result: &mut Object, said: &mut Vec<String>) {
    if result.get("description").is_some_and(|about| !about.is_string()) {
        result.shift_remove("description");
    }
    let messages = match result.shift_remove("messages") {
        Some(Value::Array(messages)) => messages,
        None | Some(Value::Null) => Vec::new(),
        Some(one) => {
            said.push("its `messages` are no list; they are read as one".to_owned());
            vec![one]
        }
    };
    let mut all = Vec::new();
    for mut message in messages {
        let role = match message["role"].as_str() {
            Some("assistant") => "assistant",
            Some("user") => "user",
            _ => {
                said.push("a message has no known role; it is read as the user's".to_owned());
                "user"
            }
        };
        let content = match message.is_object() {
            true => message["content"].take(),
            false => message,
        };
        let parts = match content {
            Value::Array(parts) => {
                said.push("a message has a list of contents; each is read as a message".to_owned());
                parts
            }
            one => vec![one],
        };
        for mut part in parts {
            block(&mut part, said);
            all.push(json!({ "role": role, "content": part }));
        }
    }
    result.insert("messages".to_owned(), Value::Array(all));
}

/// Repairs the entries of a list, and drops those that cannot be repaired. Reads one entry more than [`LISTED`], so
/// that the reader of the list notices that it is too long, cuts it and reports that.
fn list(
    result: &mut Object,
    key: &str,
    repair: impl Fn(&mut Value) -> Result<Option<&'static str>, &'static str>,
    said: &mut Vec<String>,
) {
    if result
        .get("nextCursor")
        .is_some_and(|cursor| !cursor.is_string() && !cursor.is_null())
    {
        said.push("its `nextCursor` is no text; the list ends here".to_owned());
    }
    result.retain(|key, value| match key.as_str() {
        "nextCursor" | "cacheScope" => value.is_string(),
        "ttlMs" => value.is_u64(),
        _ => true,
    });
    let Some(Value::Array(all)) = result.get_mut(key) else {
        said.push(format!("it has no `{key}`"));
        result.insert(key.to_owned(), json!([]));
        return;
    };
    let mut kept = Vec::new();
    for (n, mut one) in std::mem::take(all).into_iter().enumerate() {
        if n > LISTED {
            break;
        }
        let name = match one.get("name").and_then(Value::as_str) {
            Some(name) => format!("`{}`", shortened(name, 80).escape_debug()),
            None => format!("number {}", n + 1),
        };
        if let Value::Object(object) = &mut one {
            // Icons are not used, and some contain a whole image.
            object.shift_remove("icons");
        }
        match repair(&mut one) {
            Ok(None) => kept.push(one),
            Ok(Some(what)) => {
                said.push(format!("{name} {what}"));
                kept.push(one);
            }
            Err(why) => said.push(format!("{name} is left out: it {why}")),
        }
    }
    *all = kept;
}

fn tool(one: &mut Value) -> Result<Option<&'static str>, &'static str> {
    if is::<Tool>(one) {
        return Ok(None);
    }
    let Value::Object(object) = &mut *one else {
        return Err("is no object");
    };
    if !object.get("name").is_some_and(Value::is_string) {
        return Err("has no name");
    }
    object.retain(|key, value| match key.as_str() {
        "name" | "inputSchema" => true,
        "description" => value.is_string(),
        _ => false,
    });
    let said = match object.get("inputSchema") {
        Some(Value::Object(_)) => "has members of a wrong type, which are left out",
        None | Some(Value::Null) => {
            object.insert("inputSchema".to_owned(), json!({ "type": "object" }));
            "has no `inputSchema`; it may be called with any arguments"
        }
        Some(_) => return Err("has an `inputSchema` that is no object"),
    };
    match is::<Tool>(one) {
        true => Ok(Some(said)),
        false => Err("is not of the form of a tool"),
    }
}

fn listed_prompt(one: &mut Value) -> Result<Option<&'static str>, &'static str> {
    if is::<Prompt>(one) {
        return Ok(None);
    }
    let Value::Object(object) = &mut *one else {
        return Err("is no object");
    };
    object.retain(|key, value| match key.as_str() {
        "name" | "arguments" => true,
        "title" | "description" => value.is_string(),
        _ => false,
    });
    match is::<Prompt>(one) {
        true => Ok(Some("has members of a wrong type, which are left out")),
        false => Err("is not of the form of a prompt"),
    }
}

fn listed_resource(one: &mut Value) -> Result<Option<&'static str>, &'static str> {
    if is::<Resource>(one) {
        return Ok(None);
    }
    let Value::Object(object) = &mut *one else {
        return Err("is no object");
    };
    object.retain(|key, value| match key.as_str() {
        "uri" => true,
        "name" | "description" | "mimeType" => value.is_string(),
        _ => false,
    });
    if let (None, Some(Value::String(uri))) = (object.get("name"), object.get("uri").cloned()) {
        object.insert("name".to_owned(), Value::String(uri));
    }
    match is::<Resource>(one) {
        true => Ok(Some("has no name, or members of a wrong type")),
        false => Err("is not of the form of a resource"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ServerJsonRpcMessage, ServerResult};

    fn repaired(method: &str, result: &Value) -> (Value, Vec<String>) {
        let mut message = json!({ "jsonrpc": "2.0", "id": 1, "result": result });
        let mut said = Vec::new();
        answer(message.as_object_mut().unwrap(), Asked::of(method), &mut said);
        (message["result"].take(), said)
    }

    #[test]
    fn results_of_calls_are_repaired() {
        let hello = json!({ "type": "text", "text": "hello" });
        for (result, content) in [
            (json!({ "content": [hello] }), json!([hello])),
            (
                json!({ "content": [hello, hello], "structuredContent": { "n": 1 } }),
                json!([hello, hello]),
            ),
            (json!({ "content": "hello" }), json!([hello])),
            (json!({ "content": ["hello"] }), json!([hello])),
            (json!({ "content": hello }), json!([hello])),
            (json!({ "content": [{ "text": "hello" }] }), json!([hello])),
            (json!("hello"), json!([hello])),
            (json!({ "content": null }), json!([])),
            (json!({}), json!([])),
            (
                json!({ "found": 3 }),
                json!([{ "type": "text", "text": "{\"found\":3}" }]),
            ),
            (
                json!({ "content": [{ "type": "text", "text": 5 }] }),
                json!([{ "type": "text", "text": "5" }]),
            ),
            (
                json!({ "content": [{ "type": "video", "data": "x" }, hello] }),
                json!([{ "type": "text", "text": "[content of the unknown type `video` was left out]" }, hello]),
            ),
            (
                json!({ "content": [{ "type": "image", "data": "AAAA" }] }),
                json!([{ "type": "text", "text": "[content of `image` that is not complete was left out]" }]),
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "text": { "a": 1 } } }] }),
                json!([{ "type": "resource", "resource": { "uri": "(no URI)", "text": "{\"a\":1}" } }]),
            ),
        ] {
            let (done, said) = repaired("tools/call", &result);
            assert_eq!(done["content"], content, "{result}");
            assert_eq!(said.is_empty(), result["content"] == content, "{result}: {said:?}");
            let message = json!({ "jsonrpc": "2.0", "id": 1, "result": done });
            let message: ServerJsonRpcMessage = serde_json::from_value(message).unwrap();
            let ServerJsonRpcMessage::Response(message) = message else {
                panic!("{result}");
            };
            assert!(matches!(message.result, ServerResult::CallToolResult(_)), "{result}");
        }
        for (given, read) in [
            (json!(true), json!(true)),
            (json!("true"), json!(true)),
            (json!("false"), json!(false)),
            (json!(0), json!(false)),
            (json!(1), json!(true)),
            (json!({}), json!(true)),
            (json!(null), json!(null)),
        ] {
            let (done, said) = repaired("tools/call", &json!({ "content": [], "isError": given }));
            assert_eq!(done["isError"], read, "{given}");
            assert_eq!(said.is_empty(), given == read, "{given}");
        }
        let more = json!({ "resultType": "input_required", "inputRequests": {} });
        assert_eq!(repaired("tools/call", &more), (more.clone(), Vec::new()));
    }

    #[test]
    fn one_bad_entry_costs_no_others() {
        let good = json!({ "name": "good", "inputSchema": { "type": "object" } });
        let bare = json!({ "name": "bare" });
        let odd = json!({ "name": "odd", "description": 5, "inputSchema": {}, "annotations": [], "outputSchema": "x" });
        let none = json!({ "inputSchema": {} });
        let words = json!({ "name": "words", "inputSchema": "any" });
        let tools = json!({ "tools": [good, bare, odd, none, words, 7], "nextCursor": 5, "ttlMs": "x" });
        let (done, said) = repaired("tools/list", &tools);
        let names: Vec<&str> = done["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["good", "bare", "odd"]);
        assert_eq!(said.len(), 6, "{said:?}");
        let prompts = json!({ "prompts": [{ "name": "a" }, { "name": 5 }, { "name": "b", "description": 5 }] });
        assert_eq!(
            repaired("prompts/list", &prompts).0["prompts"],
            json!([{ "name": "a" }, { "name": "b" }])
        );
        let resources = json!({ "resources": [{ "uri": "r:1" }, { "name": "x" }, { "uri": "r:2", "name": "two" }] });
        let (done, _) = repaired("resources/list", &resources);
        assert_eq!(done["resources"][0]["name"], "r:1");
        assert_eq!(done["resources"].as_array().map(Vec::len), Some(2));
        assert_eq!(repaired("tools/list", &json!({})).0["tools"], json!([]));
    }

    #[test]
    fn prompts_resources_and_introductions_are_repaired() {
        let hello = json!({ "type": "text", "text": "hello" });
        for messages in [
            json!([{ "role": "user", "content": "hello" }]),
            json!([{ "role": "user", "content": [hello] }]),
            json!([{ "role": "system", "content": hello }]),
            json!("hello"),
        ] {
            let (done, said) = repaired("prompts/get", &json!({ "messages": messages, "description": 1 }));
            assert_eq!(
                done["messages"],
                json!([{ "role": "user", "content": hello }]),
                "{messages}"
            );
            assert!(!said.is_empty(), "{messages}");
        }
        let one = json!({ "contents": { "uri": "r:1", "text": 5 } });
        let (done, _) = repaired("resources/read", &one);
        assert_eq!(done["contents"], json!([{ "uri": "r:1", "text": "5" }]));
        let brief = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": "yes" } } });
        let (done, said) = repaired("initialize", &brief);
        assert!(is::<InitializeResult>(&done) && said.len() == 1, "{done}");
    }

    #[test]
    fn errors_are_cut() {
        let long = "x".repeat(ERROR + 10);
        for (error, starts) in [
            (json!({ "code": 5, "message": long, "data": long.repeat(2) }), "xxx"),
            (json!("out of ink"), "out of ink"),
            (json!({ "code": "E", "message": ["a"] }), "[\"a\"]"),
            (json!({ "why": "a" }), "{\"why\""),
        ] {
            let mut message = json!({ "jsonrpc": "2.0", "id": 1, "result": null, "error": error });
            answer(message.as_object_mut().unwrap(), Asked::Call, &mut Vec::new());
            let text = message["error"]["message"].as_str().unwrap();
            assert!(text.starts_with(starts) && text.len() < ERROR + 100, "{text}");
            assert!(message["error"].get("data").is_none() && message.get("result").is_none());
            assert!(serde_json::from_value::<ServerJsonRpcMessage>(message).is_ok());
        }
    }
}

//! Scans the bytes of a message for its kind and size before it is parsed, so that no memory is spent on its values.

/// Some top-level members of a JSON object, and its size. The bytes are not validated: for text that is not JSON the
/// values mean nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outline<'a> {
    /// The number of values and of keys of objects. Empty arrays and objects make it a little too high.
    pub values: usize,
    /// The maximum nesting depth of arrays and objects.
    pub depth: usize,
    /// The bytes of the value of `id`.
    pub id: Option<&'a [u8]>,
    /// Whether `jsonrpc` is `"2.0"`.
    pub is_rpc: bool,
    pub has_method: bool,
    pub has_result: bool,
    pub has_error: bool,
}

impl Outline<'_> {
    /// Whether it is a response to a request.
    pub fn is_answer(&self) -> bool {
        self.is_rpc && !self.has_method && (self.has_result || self.has_error)
    }

    /// Whether it is a request or a notification.
    pub fn is_unasked(&self) -> bool {
        self.is_rpc && self.has_method
    }
}

/// The outline of an object.
pub fn outline(bytes: &[u8]) -> Outline<'_> {
    let mut found = Outline {
        values: 1,
        ..Outline::default()
    };
    let mut depth: usize = 0;
    // At the top level: the last key, whether the next string is a key, and where the value of the key begins.
    let (mut key, mut is_key, mut begin) = (&b""[..], false, None);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let next = at + 1;
        at = next;
        match byte {
            b'"' => {
                at = string_end(bytes, next);
                if depth == 1 && std::mem::take(&mut is_key) {
                    key = bytes.get(next..at.saturating_sub(1)).unwrap_or_default();
                }
            }
            b'{' | b'[' => {
                depth += 1;
                is_key = depth == 1 && *byte == b'{';
                found.depth = found.depth.max(depth);
                found.values += 1;
            }
            b':' => {
                found.values += 1;
                if depth == 1 {
                    begin = Some(next);
                }
            }
            b',' | b'}' | b']' => {
                if depth == 1
                    && let Some(begin) = begin.take()
                {
                    let value = bytes.get(begin..next - 1).unwrap_or_default();
                    note(&mut found, key, value.trim_ascii());
                }
                match byte {
                    b',' => found.values += 1,
                    _ => depth = depth.saturating_sub(1),
                }
                is_key = depth == 1 && *byte == b',';
            }
            _ => {}
        }
    }
    found
}

fn note<'a>(found: &mut Outline<'a>, key: &[u8], value: &'a [u8]) {
    // Some programs write the member that does not apply as null.
    let is_given = value != b"null";
    match key {
        b"id" => found.id = Some(value),
        b"jsonrpc" => found.is_rpc = value == b"\"2.0\"",
        b"method" => found.has_method = is_given,
        b"result" => found.has_result = true,
        b"error" => found.has_error = is_given,
        _ => {}
    }
}

/// The place after the quotation mark that ends the string whose first character is at `from`.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if bytes.get(at - 1) == Some(&b'"') {
            return at;
        }
        // The character after a backslash is no end.
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The values of `one` with the keys of objects, and how deep it is.
    fn measured(one: &Value) -> (usize, usize) {
        let inside: Vec<(usize, usize)> = match one {
            Value::Array(items) => items.iter().map(measured).collect(),
            Value::Object(entries) => entries.values().map(measured).collect(),
            _ => return (1, 0),
        };
        let keys = one.as_object().map_or(0, serde_json::Map::len);
        let values: usize = inside.iter().map(|(values, _)| values).sum();
        let deepest = inside.iter().map(|(_, depth)| *depth).max();
        (1 + keys + values, 1 + deepest.unwrap_or_default())
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[\\[\\]{}:,\"\\\\a ]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inside| {
            prop_oneof![
                proptest::collection::vec(inside.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec(("[a\"\\\\:]{0,3}", inside), 0..5)
                    .prop_map(|entries| entries.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_parser(result in any_value(), id in any_value(), pretty in any::<bool>()) {
            let message = json!({ "result": result, "id": id, "jsonrpc": "2.0" });
            let text = if pretty { format!("{message:#}") } else { message.to_string() };
            let found = outline(text.as_bytes());
            let (values, depth) = measured(&message);
            prop_assert!(found.values >= values && found.values <= 2 * values, "{} {values}", found.values);
            prop_assert_eq!(found.depth, depth);
            let read: Value = serde_json::from_slice(found.id.unwrap()).unwrap();
            prop_assert_eq!(read, id);
            prop_assert!(found.is_answer());
        }

        #[test]
        fn bytes_of_any_kind_are_outlined(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            outline(&bytes);
        }
    }

    #[test]
    fn the_top_is_read_and_the_rest_counted() {
        let text = br#" { "result" : {"id": 9, "method": ["}", "\"x\\"]}, "jsonrpc": "2.0", "id" : 7 } "#;
        let found = outline(text);
        assert!(found.is_answer() && !found.is_unasked(), "{found:?}");
        assert_eq!((found.id, found.depth), (Some(&b"7"[..]), 3));
        let asked = outline(br#"{"jsonrpc":"2.0","id":"a,b","method":"ping"}"#);
        assert!(asked.is_unasked() && !asked.is_answer());
        assert_eq!(asked.id, Some(&br#""a,b""#[..]));
        for foreign in [
            &br#"{"level":"info","id":1,"msg":"x"}"#[..],
            br#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":1}"#,
            b"[1,2]",
            b"\"{",
            b"",
        ] {
            let found = outline(foreign);
            assert!(!found.is_answer() && !found.is_unasked(), "{found:?}");
        }
    }

    #[test]
    fn every_value_is_counted() {
        for (text, values) in [
            ("[[],[],[]]", 6),
            (r#"{"a":0}"#, 3),
            (r#"[{"a":[1,2]},"[,:{"]"#, 7),
            ("1", 1),
        ] {
            assert!(outline(text.as_bytes()).values >= values, "{text}");
        }
        let nested = "[".repeat(300) + &"]".repeat(300);
        assert_eq!(outline(nested.as_bytes()).depth, 300);
    }
}

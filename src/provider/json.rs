//! Writes JSON directly into a byte buffer, so that long texts need not be cloned first.

use serde::Serialize;

/// Appends punctuation and keys verbatim.
pub fn raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends any value. The crate's own types always serialize; a failure would write `null`.
pub fn value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(start);
        raw(out, "null");
    }
}

/// Appends `"key":value`, with a comma before it unless it is the first of its object.
pub fn field(out: &mut Vec<u8>, key: &str, content: &(impl Serialize + ?Sized)) {
    comma(out);
    value(out, key);
    raw(out, ":");
    value(out, content);
}

/// Appends a comma, unless the buffer is empty or ends with an opening bracket.
pub fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

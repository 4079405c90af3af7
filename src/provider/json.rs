//! Writing JSON straight into a byte buffer, so that long texts are not cloned first. Knows no wire.

use serde::Serialize;

/// Punctuation and keys, as they are.
pub fn raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Any value. Values made of our own types always serialize; a failure would write `null`.
pub fn value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(start);
        raw(out, "null");
    }
}

/// `"key":value`, with a comma before it unless it opens an object.
pub fn field(out: &mut Vec<u8>, key: &str, content: &(impl Serialize + ?Sized)) {
    comma(out);
    value(out, key);
    raw(out, ":");
    value(out, content);
}

/// A comma, unless the buffer ends with an opening bracket or is empty.
pub fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

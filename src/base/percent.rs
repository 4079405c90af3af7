//! Percent encoding (RFC 3986). Pure.

use std::fmt::Write;

/// A text as one part of a path or query. The unreserved characters of RFC 3986 are kept: ASCII letters, digits, `-`,
/// `.`, `_` and `~`.
pub fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes(), true, is_unreserved)
}

/// A path: what [`encode`] keeps, and `/`.
pub fn encode_path(path: &str) -> String {
    encode_bytes(path.as_bytes(), true, |byte| is_unreserved(byte) || byte == b'/')
}

/// Each byte except those that are `kept` as `%` and two hexadecimal digits, in capitals if `upper`. Only ASCII may be
/// kept.
pub fn encode_bytes(bytes: &[u8], upper: bool, kept: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = match (kept(*byte), upper) {
            (true, _) => out.write_char(char::from(*byte)),
            (false, true) => write!(out, "%{byte:02X}"),
            (false, false) => write!(out, "%{byte:02x}"),
        };
    }
    out
}

/// The bytes that a text encodes. A `%` without two hexadecimal digits stands for itself.
pub fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (*first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_encoded() {
        assert_eq!(encode("a b&c=ü/~"), "a%20b%26c%3D%C3%BC%2F~");
        assert_eq!(encode_path("a b/ü.yaml"), "a%20b/%C3%BC.yaml");
        assert_eq!(encode_bytes(b"a/", false, |_| false), "%61%2f");
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        assert_eq!(decode(&encode("a b&c=ü%/~")), "a b&c=ü%/~".as_bytes());
        assert_eq!(decode("%+f%4%%41%"), b"%+f%4%A%");
    }
}

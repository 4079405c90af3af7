//! The encodings in which a secret value may appear in a text: plain, URL, JSON, hex, base64 and others.

use super::MIN_BYTES;
use super::escapes::{self, SecretBytes};
use super::wraps::{self, Breaks};
use crate::base::ids::hex;
use crate::base::percent::encode_bytes;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::fmt::Write as _;
use std::ops::Range;

pub(super) mod rare;

/// Bytes of a part: longer values are searched for in parts, so that patterns stay short.
const PART: usize = 160;
/// The most parts of one value that are searched for.
const MAX_PARTS: usize = 512;

/// One encoding of a value, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretPattern {
    pub bytes: Vec<u8>,
    /// Index of the secret's name.
    pub name: usize,
    /// For base64: whether the character before also contains bits of the value.
    bits_before: bool,
    /// For base64: whether the character after also contains bits of the value.
    bits_behind: bool,
}

impl SecretPattern {
    /// The pattern as it appears in a text without line breaks, if that is different and still long enough.
    pub fn joined(&self, breaks: Breaks) -> Option<SecretPattern> {
        let bytes = wraps::join(&self.bytes, breaks).bytes;
        (bytes.len() >= MIN_BYTES && bytes != self.bytes).then(|| SecretPattern { bytes, ..self.clone() })
    }

    /// The pattern as it may appear in a text whose escapes are decoded, in each form that is different and still long
    /// enough.
    pub fn decoded(&self, secrets: SecretBytes) -> Vec<SecretPattern> {
        let mut forms = escapes::forms(&self.bytes, secrets);
        forms.push(self.bytes.clone());
        // In a decoded text, a backslash at the end of the secret may be part of the escape after it.
        let whole = forms.into_iter().map(|mut bytes| {
            let end = bytes.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1);
            bytes.truncate(end);
            bytes
        });
        let other = whole.filter(|bytes| bytes.len() >= MIN_BYTES && *bytes != self.bytes);
        other.map(|bytes| SecretPattern { bytes, ..self.clone() }).collect()
    }

    /// A hit extended by the base64 characters that it shares with its neighbours, and by the padding.
    pub fn widened(&self, text: &[u8], hit: Range<usize>) -> Range<usize> {
        let of_base64 = |at: usize| {
            text.get(at)
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
        };
        let mut hit = hit;
        if self.bits_before && hit.start > 0 && of_base64(hit.start - 1) {
            hit.start -= 1;
        }
        if self.bits_behind && of_base64(hit.end) {
            hit.end += 1;
        }
        let padded = self.bits_behind && text.get(hit.end) == Some(&b'=');
        while padded && text.get(hit.end) == Some(&b'=') {
            hit.end += 1;
        }
        hit
    }
}

/// The pieces of a value that are searched for: each of its lines, and each part of a long line. Empty for a value that
/// is too short.
pub(super) fn pieces(value: &str) -> Vec<&str> {
    let mut pieces: Vec<&str> = Vec::new();
    if value.len() < MIN_BYTES {
        return pieces;
    }
    for line in value.lines() {
        for line in [line, line.trim()] {
            if line.len() >= MIN_BYTES && !is_armour(line) {
                pieces.extend(parts(line));
            }
        }
    }
    if pieces.is_empty() {
        // If all lines are short, the value as a whole.
        pieces.extend(parts(value));
    }
    pieces.dedup();
    pieces.truncate(MAX_PARTS);
    pieces
}

/// Every common encoding of a piece.
pub(super) fn patterns(piece: &str, name: usize) -> Vec<SecretPattern> {
    let mut all: Vec<SecretPattern> = texts(piece)
        .into_iter()
        .map(|text| plain(text.into_bytes(), name))
        .collect();
    all.extend(
        rare::named(piece)
            .into_iter()
            .map(|text| plain(text.into_bytes(), name)),
    );
    all.push(plain(piece.bytes().rev().collect(), name));
    all.extend(base64s(piece.as_bytes(), name));
    all.retain(|pattern| pattern.bytes.len() >= MIN_BYTES);
    all
}

fn plain(bytes: Vec<u8>, name: usize) -> SecretPattern {
    SecretPattern {
        bytes,
        name,
        bits_before: false,
        bits_behind: false,
    }
}

/// `-----BEGIN …-----`: the same in every file, hence no secret.
fn is_armour(line: &str) -> bool {
    line.trim().starts_with("-----") && line.trim().ends_with("-----")
}

/// Splits a line into parts of about equal length at character boundaries.
fn parts(line: &str) -> Vec<&str> {
    let count = line.len().div_ceil(PART).max(1);
    let mut found = Vec::new();
    let mut begin = 0;
    for number in 1..=count {
        let mut end = line.len() * number / count;
        while !line.is_char_boundary(end) {
            end += 1;
        }
        found.extend(line.get(begin..end).filter(|part| !part.is_empty()));
        begin = end;
    }
    found
}

/// All encodings except base64.
fn texts(piece: &str) -> Vec<String> {
    let bytes = piece.as_bytes();
    let hex = hex(bytes);
    let mut forms = vec![piece.to_owned(), hex.to_uppercase(), hex];
    for upper in [true, false] {
        // URL encoding for URLs, URL components and forms, and of every byte. Other choices of characters are found in
        // the decoded text.
        let kept: [fn(u8) -> bool; 3] = [
            |byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte),
            |byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte),
            |byte| byte.is_ascii_alphanumeric() || b"-_.!~*'();/?:@&=+$,#".contains(&byte),
        ];
        forms.extend(kept.map(|kept| encode_bytes(bytes, upper, kept)));
        let form = encode_bytes(bytes, upper, |byte| {
            byte == b' ' || byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte)
        });
        forms.push(form.replace(' ', "+"));
        forms.push(encode_bytes(bytes, upper, |_| false));
    }
    let mut escaped = escapes(piece);
    // What was escaped may be reversed, and what was reversed is escaped where it is recorded.
    let reversed = escaped.iter().map(|text| backwards(text)).chain([backwards(piece)]);
    let reversed: Vec<String> = reversed.collect();
    escaped.extend(reversed.iter().map(|text| json(text, &|_| false, false)));
    escaped.extend(escapes(&backwards(piece)));
    escaped.extend(codes(piece));
    // JSON inside JSON.
    let twice: Vec<String> = escaped.iter().map(|text| json(text, &|_| false, false)).collect();
    forms.extend(reversed);
    forms.extend(escaped);
    forms.extend(twice);
    if piece.bytes().filter(|byte| *byte != b'\\').count() < MIN_BYTES {
        // Without its backslashes the value is too short to be found in a decoded text.
        let twice = json(&json(piece, &|_| false, false), &|_| false, false);
        forms.extend([json(&twice, &|_| false, false), shell_quoted(piece)]);
    }
    forms.sort();
    forms.dedup();
    forms
}

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

/// The ways in which JSON writers escape: only what is required, `/` too, characters special to HTML (with and
/// without `=`), and everything outside ASCII.
fn escapes(piece: &str) -> Vec<String> {
    let html = |c: char| matches!(c, '<' | '>' | '&' | '\'');
    let equals = |c: char| html(c) || c == '=';
    let wide = |c: char| !c.is_ascii();
    let mut found = vec![
        json(piece, &|_| false, false),
        json(piece, &|_| false, false).replace('/', "\\/"),
    ];
    for upper in [true, false] {
        found.push(json(piece, &html, upper));
        found.push(json(piece, &equals, upper));
        found.push(json(piece, &wide, upper));
        found.push(json(piece, &|c| html(c) || wide(c), upper));
    }
    found
}

/// Every character as JSON's `\u` and its code.
fn codes(piece: &str) -> [String; 2] {
    [true, false].map(|upper| json(piece, &|_| true, upper))
}

fn json(text: &str, as_code: &dyn Fn(char) -> bool, upper: bool) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let short = match character {
            '"' => Some('"'),
            '\\' => Some('\\'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            _ => None,
        };
        if let (Some(short), false) = (short, as_code(character)) {
            out.extend(['\\', short]);
        } else if as_code(character) || character.is_control() {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = if upper {
                    write!(out, "\\u{unit:04X}")
                } else {
                    write!(out, "\\u{unit:04x}")
                };
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// A backslash before each character that is special to a shell.
fn shell_quoted(piece: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || c.is_control() || "_-./:+=@%".contains(c);
    let quoted = |c: char| (!plain(c)).then_some('\\').into_iter().chain([c]);
    piece.chars().flat_map(quoted).collect()
}

/// The base64 characters that any text around the value contains, whatever precedes and follows it.
fn base64s(piece: &[u8], name: usize) -> Vec<SecretPattern> {
    let mut found = Vec::new();
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(piece);
        let bits = bytes.len() * 8;
        // Characters that contain no bits of what precedes or follows the value.
        let whole = (before * 8).div_ceil(6)..bits / 6;
        for encoded in [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)] {
            found.push(SecretPattern {
                bytes: encoded.as_bytes().get(whole.clone()).unwrap_or_default().to_vec(),
                name,
                bits_before: before > 0,
                bits_behind: bits % 6 != 0,
            });
        }
    }
    found
}

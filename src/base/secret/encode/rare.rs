//! The rare encodings of a value: base32, HTML entities, dumps of bytes (hexadecimal and decimal), and base64 of base64, of
//! hexadecimal digits and of UTF-16.

use super::SecretPattern;
use crate::base::ids::hex;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// RFC 4648, sections 6 and 7.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE32_HEX: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";

/// The prefix of each byte of a hex dump and the separator between bytes: `61 62`, `61:62`, `61-62`, `61,62`,
/// `\x61\x62` (also with doubled backslashes), `0x61,0x62`, `0x61, 0x62`, `0x61 0x62`.
const DUMPS: [(&str, &str); 9] = [
    ("", " "),
    ("", ":"),
    ("", "-"),
    ("", ","),
    ("\\x", ""),
    ("\\\\x", ""),
    ("0x", ","),
    ("0x", ", "),
    ("0x", " "),
];

/// The separators of bytes written as decimal numbers: Python and JSON, JavaScript, Go.
const DECIMAL_SEPARATORS: [&str; 3] = [", ", ",", " "];

/// Upper limit for the digits in a row of a pattern of [`CharClass::Dump`].
pub(in crate::base::secret) const MAX_DIGITS: usize = 4;

/// The most parts of one value that are searched for in the rare encodings: a key of 4,096 bits has 51 lines.
pub(in crate::base::secret) const PARTS: usize = 64;

/// The alphabet of an encoding: a pattern can occur only within a run of its class, so that only long runs are
/// searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::base::secret) enum CharClass {
    /// Base32, base64, `\x61`, `&#97;`: without blanks.
    Dense = 1,
    /// Hex or decimal digits separated by blanks, colons, commas, hyphens or `0x`.
    Dump = 2,
}

/// The classes of each byte.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\\' | b'&' | b'#' | b';')
        {
            classes[byte as usize] |= CharClass::Dense as u8;
        }
        if byte.is_ascii_hexdigit() || matches!(byte, b' ' | b':' | b',' | b'-' | b'x') {
            classes[byte as usize] |= CharClass::Dump as u8;
        }
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

impl CharClass {
    /// Both classes.
    pub const ALL: [CharClass; 2] = [CharClass::Dense, CharClass::Dump];

    /// Whether a pattern of this class can contain the byte.
    #[inline]
    pub fn has(self, byte: u8) -> bool {
        CLASSES[byte as usize] & self as u8 != 0
    }

    /// A lower bound for the length of the patterns of a piece with this many bytes.
    pub fn least(self, piece: usize) -> usize {
        match self {
            // Base32 and double base64, without the characters at both ends that contain bits of the neighbours.
            CharClass::Dense => (piece * 8 / 5)
                .saturating_sub(3)
                .min((piece * 8 / 6).saturating_sub(2) * 8 / 6 - 2)
                .max(8),
            // Hexadecimal words of two bytes; decimal numbers have two digits or three.
            CharClass::Dump => 2 * piece + (piece - 1) / 2,
        }
    }
}

/// Every rare encoding of a piece.
pub(in crate::base::secret) fn patterns(piece: &str, name: usize) -> Vec<SecretPattern> {
    let texts = dumps(piece).into_iter().chain(numbered(piece));
    let texts = texts.chain(words(piece.as_bytes())).chain(decimals(piece.as_bytes()));
    let mut all: Vec<SecretPattern> = texts.map(|text| super::plain(text.into_bytes(), name)).collect();
    all.extend(base32s(piece.as_bytes(), name));
    all.extend(base64s_twice(piece.as_bytes(), name));
    // UTF-16, as PowerShell expects a command in `-EncodedCommand`.
    let wide: Vec<u8> = piece.encode_utf16().flat_map(u16::to_le_bytes).collect();
    all.extend(super::base64s(&wide, name));
    let digits = hex(piece.as_bytes());
    all.extend(super::base64s(digits.as_bytes(), name));
    all.extend(super::base64s(digits.to_uppercase().as_bytes(), name));
    all
}

/// Hexadecimal words of two bytes as `xxd` prints them, for a value that begins with the first or with the second byte
/// of a word.
fn words(piece: &[u8]) -> Vec<String> {
    let digits = |upper: bool| match upper {
        true => hex(piece).to_uppercase(),
        false => hex(piece),
    };
    let spaced = |digits: &str, begin: usize| {
        let (first, rest) = digits.split_at(begin);
        let words = rest
            .as_bytes()
            .chunks(4)
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let first = (!first.is_empty()).then(|| first.to_owned());
        first.into_iter().chain(words).collect::<Vec<String>>().join(" ")
    };
    let both = |upper: bool| [0, 2].map(|begin| spaced(&digits(upper), begin));
    both(false).into_iter().chain(both(true)).collect()
}

/// The bytes as decimal numbers.
fn decimals(piece: &[u8]) -> Vec<String> {
    let numbers: Vec<String> = piece.iter().map(u8::to_string).collect();
    let mut found = DECIMAL_SEPARATORS.map(|separator| numbers.join(separator)).to_vec();
    // `od -tu1` aligns the numbers like this.
    let aligned: Vec<String> = piece.iter().map(|byte| format!("{byte:3}")).collect();
    found.push(aligned.join(" ").trim_start().to_owned());
    // Some control characters have one digit; a text with many of them may be too short to be searched.
    found.retain(|text| text.len() >= CharClass::Dump.least(piece.len()));
    found
}

fn dumps(piece: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (before, between) in DUMPS {
        let dump = |upper: bool| {
            let one = |byte: u8| match upper {
                true => format!("{before}{byte:02X}"),
                false => format!("{before}{byte:02x}"),
            };
            piece.bytes().map(one).collect::<Vec<_>>().join(between)
        };
        found.extend([dump(false), dump(true)]);
    }
    found
}

fn with(piece: &str, escape: &dyn Fn(char) -> Option<String>) -> String {
    piece
        .chars()
        .map(|c| escape(c).unwrap_or_else(|| c.to_string()))
        .collect()
}

/// Every character as a numeric HTML entity.
fn numbered(piece: &str) -> [String; 4] {
    [
        with(piece, &|c| Some(format!("&#{};", u32::from(c)))),
        with(piece, &|c| Some(format!("&#x{:x};", u32::from(c)))),
        with(piece, &|c| Some(format!("&#x{:X};", u32::from(c)))),
        with(piece, &|c| Some(format!("&#X{:X};", u32::from(c)))),
    ]
}

/// The ways in which HTML writers escape special characters; empty for a piece without any.
pub(super) fn named(piece: &str) -> Vec<String> {
    let special = |c: char| "&<>\"'/`=".contains(c) || !c.is_ascii();
    if !piece.contains(special) {
        return Vec::new();
    }
    let text = |c: char| match c {
        '&' => Some("&amp;".to_owned()),
        '<' => Some("&lt;".to_owned()),
        '>' => Some("&gt;".to_owned()),
        _ => None,
    };
    let mut found = vec![with(piece, &text)];
    for double in ["\"", "&quot;", "&#34;", "&#x22;"] {
        for single in ["'", "&#39;", "&#x27;", "&apos;"] {
            let quotes = |c: char| match c {
                '"' => Some(double.to_owned()),
                '\'' => Some(single.to_owned()),
                c => text(c),
            };
            found.push(with(piece, &quotes));
            // As template engines do.
            for upper in [true, false] {
                let code = |c: char| match upper {
                    true => format!("&#x{:X};", u32::from(c)),
                    false => format!("&#x{:x};", u32::from(c)),
                };
                found.push(with(piece, &|c| if c == '/' { Some(code(c)) } else { quotes(c) }));
                found.push(with(piece, &|c| {
                    if "/`=".contains(c) { Some(code(c)) } else { quotes(c) }
                }));
            }
        }
    }
    // Everything outside ASCII as numeric entities, special characters as named ones.
    let wide = |c: char| {
        if c.is_ascii() {
            text(c)
        } else {
            Some(format!("&#{};", u32::from(c)))
        }
    };
    found.push(with(piece, &wide));
    found.sort();
    found.dedup();
    found
}

/// The base32 characters that any text around the value contains, in both alphabets and cases.
pub(super) fn base32s(piece: &[u8], name: usize) -> Vec<SecretPattern> {
    let mut found = Vec::new();
    for alphabet in [BASE32, BASE32_HEX] {
        for before in 0..5 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(piece);
            let bits = bytes.len() * 8;
            let whole = (before * 8).div_ceil(5)..bits / 5;
            let encoded = base32(&bytes, alphabet);
            let upper = encoded.get(whole).unwrap_or_default().to_vec();
            let lower = upper.to_ascii_lowercase();
            found.extend([upper, lower].map(|bytes| SecretPattern {
                bytes,
                name,
                bits_before: (before * 8) % 5 != 0,
                bits_behind: bits % 5 != 0,
            }));
        }
    }
    found
}

/// Without padding.
fn base32(bytes: &[u8], alphabet: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(alphabet[(held >> bits & 31) as usize]);
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        out.push(alphabet[(held << (5 - bits) & 31) as usize]);
    }
    out
}

/// The base64 of base64 that any text around the value contains: for each alignment of the inner one, each of the outer
/// one.
pub(super) fn base64s_twice(piece: &[u8], name: usize) -> Vec<SecretPattern> {
    let inner = super::base64s(piece, name);
    let twice = inner.iter().flat_map(|inner| {
        (0..3).flat_map(|before| {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(&inner.bytes);
            let bits = bytes.len() * 8;
            let whole = (before * 8).div_ceil(6)..bits / 6;
            // The inner base64 is ASCII, where the two outer alphabets differ only at an edge.
            let encoded = [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)];
            encoded.map(|encoded| SecretPattern {
                bytes: encoded.as_bytes().get(whole.clone()).unwrap_or_default().to_vec(),
                name,
                bits_before: true,
                bits_behind: true,
            })
        })
    });
    let mut found: Vec<SecretPattern> = twice.collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_of_its_class_and_not_too_short() {
        for length in [8, 9, 10, 13, 16, 40, 160] {
            let piece: String = ('!'..='~').cycle().take(length).collect();
            for pattern in patterns(&piece, 0) {
                let fits = |class: CharClass| {
                    pattern.bytes.iter().all(|byte| class.has(*byte)) && pattern.bytes.len() >= class.least(length)
                };
                assert!(
                    CharClass::ALL.into_iter().any(fits),
                    "{}",
                    String::from_utf8_lossy(&pattern.bytes)
                );
            }
        }
    }

    #[test]
    fn the_examples_of_rfc_4648_hold() {
        for (text, base, hex) in [
            ("f", "MY", "CO"),
            ("fo", "MZXQ", "CPNG"),
            ("foo", "MZXW6", "CPNMU"),
            ("foob", "MZXW6YQ", "CPNMUOG"),
            ("fooba", "MZXW6YTB", "CPNMUOJ1"),
            ("foobar", "MZXW6YTBOI", "CPNMUOJ1E8"),
        ] {
            assert_eq!(base32(text.as_bytes(), BASE32), base.as_bytes());
            assert_eq!(base32(text.as_bytes(), BASE32_HEX), hex.as_bytes());
        }
    }
}

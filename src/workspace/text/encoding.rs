//! Detects the character encoding of a file, decodes it, and encodes new text in the same way.

use encoding_rs::WINDOWS_1252;

/// The character encoding of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEncoding {
    Utf8,
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
    /// Not UTF-8, and without multi-byte sequences: each byte is decoded as one character.
    SingleByte,
    /// UTF-8 with invalid bytes. Each invalid byte is shown as U+FFFD and preserved.
    BrokenUtf8,
}

impl TextEncoding {
    /// Name for people and models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Utf32Le => "UTF-32LE",
            Self::Utf32Be => "UTF-32BE",
            Self::SingleByte => "windows-1252",
            Self::BrokenUtf8 => "UTF-8 with invalid bytes",
        }
    }

    fn byte_order_mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 | Self::BrokenUtf8 => &[0xEF, 0xBB, 0xBF],
            Self::Utf16Le => &[0xFF, 0xFE],
            Self::Utf16Be => &[0xFE, 0xFF],
            Self::Utf32Le => &[0xFF, 0xFE, 0, 0],
            Self::Utf32Be => &[0, 0, 0xFE, 0xFF],
            Self::SingleByte => &[],
        }
    }
}

/// Why bytes cannot be decoded as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// A NUL in the first 8,000 bytes, and neither UTF-16 nor UTF-32.
    #[error("the file is binary, not text")]
    Binary,
    /// The byte order mark contradicts the bytes.
    #[error("the file begins like {0} but is not valid {0}")]
    Malformed(&'static str),
}

/// A character that the file's encoding cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{character}` (U+{code:04X}) cannot be written in this file's encoding, {encoding}", code = u32::from(*character))]
pub struct Unrepresentable {
    pub character: char,
    pub encoding: &'static str,
}

/// The result: the encoding, the length of the byte order mark, the text after it.
pub(super) struct DecodedText {
    pub(super) encoding: TextEncoding,
    pub(super) mark: usize,
    pub(super) text: String,
}

pub(super) fn decode(bytes: &[u8]) -> Result<DecodedText, Undecodable> {
    // UTF-32LE must be tried before UTF-16LE, whose mark is a prefix of it.
    for encoding in [
        TextEncoding::Utf32Le,
        TextEncoding::Utf32Be,
        TextEncoding::Utf16Le,
        TextEncoding::Utf16Be,
    ] {
        let mark = encoding.byte_order_mark();
        if let Some(body) = bytes.strip_prefix(mark) {
            match strict(body, encoding) {
                Some(text) => {
                    return Ok(DecodedText {
                        encoding,
                        mark: mark.len(),
                        text,
                    });
                }
                None if encoding == TextEncoding::Utf32Le => {}
                None => return Err(Undecodable::Malformed(encoding.name())),
            }
        }
    }
    if bytes.contains(&0)
        && let Some(found) = unmarked_wide(bytes)
    {
        return Ok(found);
    }
    if bytes.iter().take(8000).any(|&byte| byte == 0) {
        return Err(Undecodable::Binary);
    }
    Ok(narrow(bytes))
}

fn narrow(bytes: &[u8]) -> DecodedText {
    let utf8_mark = TextEncoding::Utf8.byte_order_mark();
    let (mark, body) = match bytes.strip_prefix(utf8_mark) {
        Some(body) => (utf8_mark.len(), body),
        None => (0, bytes),
    };
    if let Ok(text) = std::str::from_utf8(body) {
        let encoding = TextEncoding::Utf8;
        return DecodedText {
            encoding,
            mark,
            text: text.to_owned(),
        };
    }
    let multi_byte = body.utf8_chunks().any(|chunk| !chunk.valid().is_ascii());
    if mark == 0 && !multi_byte {
        let (text, _) = WINDOWS_1252.decode_without_bom_handling(body);
        return DecodedText {
            encoding: TextEncoding::SingleByte,
            mark: 0,
            text: text.into_owned(),
        };
    }
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    DecodedText {
        encoding: TextEncoding::BrokenUtf8,
        mark,
        text,
    }
}

/// UTF-16 or UTF-32 without a byte order mark: entirely valid, without control characters, at least a third ASCII.
fn unmarked_wide(bytes: &[u8]) -> Option<DecodedText> {
    if bytes.len() < 4 {
        return None;
    }
    [
        TextEncoding::Utf32Le,
        TextEncoding::Utf32Be,
        TextEncoding::Utf16Le,
        TextEncoding::Utf16Be,
    ]
    .into_iter()
    .find_map(|encoding| {
        let text = strict(bytes, encoding)?;
        let control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}');
        let characters = text.chars().count();
        let ascii = text.chars().filter(char::is_ascii).count();
        (!text.chars().any(control) && ascii * 3 >= characters).then_some(DecodedText {
            encoding,
            mark: 0,
            text,
        })
    })
}

fn strict(body: &[u8], encoding: TextEncoding) -> Option<String> {
    match encoding {
        TextEncoding::Utf16Le => wide16(body, u16::from_le_bytes),
        TextEncoding::Utf16Be => wide16(body, u16::from_be_bytes),
        TextEncoding::Utf32Le => wide32(body, u32::from_le_bytes),
        TextEncoding::Utf32Be => wide32(body, u32::from_be_bytes),
        TextEncoding::Utf8 | TextEncoding::SingleByte | TextEncoding::BrokenUtf8 => None,
    }
}

fn wide16(body: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (units, rest) = body.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    char::decode_utf16(units.iter().copied().map(unit))
        .collect::<Result<_, _>>()
        .ok()
}

fn wide32(body: &[u8], unit: fn([u8; 4]) -> u32) -> Option<String> {
    let (units, rest) = body.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    units.iter().copied().map(|bytes| char::from_u32(unit(bytes))).collect()
}

/// Number of bytes in `raw` that `text`, decoded from its start, came from.
pub(super) fn width(text: &str, raw: &[u8], encoding: TextEncoding) -> usize {
    match encoding {
        TextEncoding::Utf8 => text.len(),
        TextEncoding::Utf16Le | TextEncoding::Utf16Be => text.chars().map(|c| c.len_utf16() * 2).sum(),
        TextEncoding::Utf32Le | TextEncoding::Utf32Be => text.chars().count() * 4,
        TextEncoding::SingleByte => text.chars().count(),
        TextEncoding::BrokenUtf8 => text
            .chars()
            .fold(0, |at, c| at + broken_width(c, raw.get(at..).unwrap_or_default())),
    }
}

/// A U+FFFD in invalid UTF-8 is either present itself (three bytes) or stands for one invalid byte.
pub(super) fn broken_width(c: char, raw: &[u8]) -> usize {
    match c {
        char::REPLACEMENT_CHARACTER if !raw.starts_with("\u{fffd}".as_bytes()) => 1,
        _ => c.len_utf8(),
    }
}

/// Appends `text` in `encoding`. For invalid UTF-8, U+FFFD is refused, because the byte that it stood for is not known
/// here.
pub(super) fn encode(text: &str, encoding: TextEncoding, out: &mut Vec<u8>) -> Result<(), Unrepresentable> {
    match encoding {
        TextEncoding::Utf8 => out.extend_from_slice(text.as_bytes()),
        TextEncoding::Utf16Le => out.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
        TextEncoding::Utf16Be => out.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
        TextEncoding::Utf32Le => out.extend(text.chars().flat_map(|c| u32::from(c).to_le_bytes())),
        TextEncoding::Utf32Be => out.extend(text.chars().flat_map(|c| u32::from(c).to_be_bytes())),
        TextEncoding::BrokenUtf8 => {
            if text.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Unrepresentable {
                    character: char::REPLACEMENT_CHARACTER,
                    encoding: encoding.name(),
                });
            }
            out.extend_from_slice(text.as_bytes());
        }
        TextEncoding::SingleByte => {
            for character in text.chars() {
                let mut utf8 = [0; 4];
                let (byte, _, unmappable) = WINDOWS_1252.encode(character.encode_utf8(&mut utf8));
                if unmappable {
                    return Err(Unrepresentable {
                        character,
                        encoding: encoding.name(),
                    });
                }
                out.extend_from_slice(&byte);
            }
        }
    }
    Ok(())
}

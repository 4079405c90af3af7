//! Decodes percent encoding (`%2B`), HTML entities (`&plus;`, `&#43;`, `&#x2b;`) and backslash escapes (`\u002b`, `\x2b`,
//! `\053`, `\+`, with any number of backslashes) in a text, and maps positions back to the original. Programs differ in
//! which characters they encode, but the decoded text always contains the same secret.
//!
//! Two backslashes before a code are either one escaped twice, or a backslash of the secret and an escape. Since nothing
//! in the text tells which, a secret with a backslash is also searched for without any, in a text without any.

use super::offset_map::OffsetMap;
use std::ops::Range;

/// How often a text is decoded at most, since a secret may be encoded more than once. Decoding backslashes counts as a
/// level of its own, and so does removing them.
const LEVELS: usize = 6;
/// The most digits of a numeric entity and the most letters of a named one.
const MOST_DIGITS: usize = 8;
const MOST_LETTERS: usize = 20;
/// Upper limit in bytes for a backslash escape without its backslashes: `u{1f600}`.
const MOST_CODE: usize = 9;

/// The set of bytes in all secrets. A backslash before any other character cannot be part of an escaped secret.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecretBytes([u128; 2]);

impl SecretBytes {
    /// Adds the bytes of a secret.
    pub fn add(&mut self, secret: &[u8]) {
        for byte in secret {
            if let Some(half) = self.0.get_mut(usize::from(byte >> 7)) {
                *half |= 1 << (byte & 127);
            }
        }
    }

    fn has(self, byte: u8) -> bool {
        self.0
            .get(usize::from(byte >> 7))
            .is_some_and(|half| half >> (byte & 127) & 1 == 1)
    }

    /// Whether a backslash before `rest` may belong to an escaped character of a secret.
    fn is_escaped_in(self, rest: &[u8]) -> bool {
        self.has(b'\\')
            || rest.first().is_some_and(|byte| is_mark(*byte) && self.has(*byte))
            || (rest.first() == Some(&b't') && self.has(b'\t'))
            || code_at(rest).is_some_and(|code| code.bytes.first().is_some_and(|byte| self.has(*byte)))
    }

    /// Whether any backslash of the text may belong to an escaped character of a secret.
    fn are_escaped_in(self, text: &[u8]) -> bool {
        memchr::memchr_iter(b'\\', text).any(|at| self.is_escaped_in(text.get(at + 1..).unwrap_or_default()))
    }
}

/// Which escapes are decoded. In a text with several kinds, a sequence that looks like one kind may be plain text,
/// because the secret was encoded with another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    Percent,
    Entities,
    /// Backslashes first, then all: a `%` behind a backslash may begin what looks like an escape once others are decoded.
    Backslashes,
    /// All but backslashes first, then backslashes.
    All,
}

impl Escapes {
    /// The variants that give different results for this text: none for most texts.
    pub fn of(text: &[u8], secrets: SecretBytes) -> impl Iterator<Item = Escapes> {
        let (mut percent, mut entities, mut slashes) = (false, false, false);
        // One pass for all kinds, since most texts are short and each search has to be set up.
        for at in memchr::memchr3_iter(b'%', b'&', b'\\', text) {
            let rest = text.get(at..).unwrap_or_default();
            match rest.first() {
                Some(b'%') => percent = percent || escape_at(rest).is_some(),
                Some(b'&') => entities = entities || escape_at(rest).is_some(),
                _ => slashes = slashes || secrets.is_escaped_in(rest.get(1..).unwrap_or_default()),
            }
            if percent && entities && slashes {
                break;
            }
        }
        use Escapes::{All, Backslashes, Entities, Percent};
        let found: &[Escapes] = match (percent, entities, slashes) {
            (false, false, false) => &[],
            (true, true, false) => &[Percent, Entities, All],
            (true, false, true) => &[Percent, Backslashes, All],
            (false, true, true) => &[Entities, Backslashes, All],
            (true, true, true) => &[Percent, Entities, Backslashes, All],
            // Decoding one kind may reveal another kind.
            _ => &[All],
        };
        found.iter().copied()
    }

    /// Whether an escape with this first byte is decoded.
    fn has(self, first: u8) -> bool {
        match self {
            Escapes::Percent => first == b'%',
            Escapes::Entities => first == b'&',
            Escapes::Backslashes | Escapes::All => true,
        }
    }
}

/// Text in which escapes are decoded.
pub(super) struct Decoded {
    pub bytes: Vec<u8>,
    offset_map: OffsetMap,
}

/// Whether a text is known up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Known,
    /// More may follow, which belongs to the last escape.
    Open,
}

/// The text decoded once, decoded twice and so on, as long as there is something to decode.
pub(super) fn levels(text: &[u8], which: Escapes, secrets: SecretBytes, end: End) -> Vec<Decoded> {
    let mut levels: Vec<Decoded> = Vec::new();
    let of_slashes = matches!(which, Escapes::Backslashes | Escapes::All);
    while levels.len() < LEVELS {
        let last = levels.last().map_or(text, |level| level.bytes.as_slice());
        let escaped = || {
            let wanted = of_slashes && secrets.are_escaped_in(last);
            wanted.then(|| decode_backslashes(last)).flatten()
        };
        let removed = || {
            let wanted = of_slashes && secrets.has(b'\\');
            wanted.then(|| remove_backslashes(last, end)).flatten()
        };
        let next = match which {
            Escapes::Backslashes => escaped().or_else(|| decode(last, which)),
            _ => decode(last, which).or_else(escaped),
        };
        let Some(next) = next.or_else(removed) else { break };
        levels.push(next);
    }
    levels
}

/// The source range of a range of the last of these levels; escapes are in it as a whole.
pub(super) fn source(levels: &[Decoded], decoded: Range<usize>) -> Range<usize> {
    let outer =
        |range: Range<usize>, level: &Decoded| level.offset_map.place(range.start)..level.offset_map.place(range.end);
    levels.iter().rev().fold(decoded, outer)
}

/// The forms that a secret may have in a decoded text: each of its own levels; and, if secrets have backslashes, those
/// of the secret without them, because in the text each may stand before a code.
pub(super) fn forms(secret: &[u8], secrets: SecretBytes) -> Vec<Vec<u8>> {
    let bytes = |text: &[u8]| {
        levels(text, Escapes::All, secrets, End::Known)
            .into_iter()
            .map(|level| level.bytes)
    };
    let mut forms: Vec<Vec<u8>> = bytes(secret).collect();
    let removed = secrets
        .has(b'\\')
        .then(|| remove_backslashes(secret, End::Known))
        .flatten();
    if let Some(bare) = removed {
        forms.extend(bytes(&bare.bytes));
        forms.push(bare.bytes);
    }
    forms
}

/// Whether some programs escape the character with a backslash before it.
fn is_mark(byte: u8) -> bool {
    byte == b' ' || (byte.is_ascii_punctuation() && byte != b'\\')
}

/// Decodes each run of backslashes: before a code, a punctuation mark or a blank, the run and what follows become one
/// character; any other run becomes one backslash. `None` if there is nothing to replace.
fn decode_backslashes(text: &[u8]) -> Option<Decoded> {
    let mut decoder = Decoder::of(text);
    for at in memchr::memchr_iter(b'\\', text) {
        if at < decoder.copied {
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        let run = rest.iter().take_while(|byte| **byte == b'\\').count();
        let behind = rest.get(run..).unwrap_or_default();
        let escape = match (code_at(behind), behind.first()) {
            (Some(code), _) => Escape {
                length: run + code.length,
                ..code
            },
            (None, Some(mark)) if is_mark(*mark) => Escape::of(run + 1, char::from(*mark)),
            _ if run > 1 => Escape::of(run, '\\'),
            _ => continue,
        };
        decoder.replace(at, &escape);
    }
    decoder.finish()
}

/// Removes the backslashes; at an open end, not those of an unfinished escape. `None` if there are none.
fn remove_backslashes(text: &[u8], end: End) -> Option<Decoded> {
    let until = match end {
        End::Known => None,
        End::Open => possible_ends(text).pop(),
    };
    let mut decoder = Decoder::of(text);
    for at in memchr::memchr_iter(b'\\', text.get(..until.unwrap_or(text.len()))?) {
        decoder.replace(at, &Escape::nothing(1));
    }
    decoder.finish()
}

/// The character for a code after a backslash: `u0041` (two codes for a surrogate pair), `u{41}`, `x41`, `101`.
fn code_at(rest: &[u8]) -> Option<Escape> {
    let number = |from: usize, count: usize, radix: u32| -> Option<u32> {
        let mut digits = rest.get(from..from + count)?.iter();
        digits.try_fold(0, |number: u32, byte| {
            Some(number * radix + char::from(*byte).to_digit(radix)?)
        })
    };
    let byte = |length: usize, byte: u32| {
        Some(Escape {
            length,
            bytes: [u8::try_from(byte).ok()?, 0, 0, 0],
            count: 1,
        })
    };
    match rest {
        [b'u', b'{', digits @ ..] => {
            let count = digits
                .iter()
                .take(6)
                .take_while(|digit| digit.is_ascii_hexdigit())
                .count();
            let closed = count > 0 && digits.get(count) == Some(&b'}');
            let code = number(2, count, 16).filter(|_| closed)?;
            Some(Escape::of(count + 3, char::from_u32(code)?))
        }
        [b'u', ..] => {
            let first = number(1, 4, 16)?;
            if let Some(character) = char::from_u32(first) {
                return Some(Escape::of(5, character));
            }
            let slashes = rest.iter().skip(5).take_while(|byte| **byte == b'\\').count();
            let second = (slashes > 0 && rest.get(5 + slashes) == Some(&b'u')).then_some(6 + slashes)?;
            let units = [first, number(second, 4, 16)?].map(|unit| u16::try_from(unit).unwrap_or_default());
            let character = char::decode_utf16(units).next()?.ok()?;
            Some(Escape::of(second + 4, character))
        }
        [b'x', ..] => byte(3, number(1, 2, 16)?),
        [b'0'..=b'3', ..] => byte(3, number(0, 3, 8)?),
        _ => None,
    }
}

/// Copies a text while its escapes are replaced, from left to right.
struct Decoder<'a> {
    text: &'a [u8],
    bytes: Vec<u8>,
    offset_map: OffsetMap,
    /// How much of the text has been copied or replaced.
    copied: usize,
}

impl<'a> Decoder<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self {
            text,
            bytes: Vec::new(),
            offset_map: OffsetMap::default(),
            copied: 0,
        }
    }

    /// Replaces the escape that begins at `at`.
    fn replace(&mut self, at: usize, escape: &Escape) {
        self.bytes
            .extend_from_slice(self.text.get(self.copied..at).unwrap_or_default());
        self.bytes
            .extend_from_slice(escape.bytes.get(..escape.count).unwrap_or_default());
        self.copied = at + escape.length;
        self.offset_map.push(self.bytes.len(), self.copied);
    }

    /// `None` if nothing was replaced.
    fn finish(mut self) -> Option<Decoded> {
        if self.offset_map.is_empty() {
            return None;
        }
        self.bytes
            .extend_from_slice(self.text.get(self.copied..).unwrap_or_default());
        Some(Decoded {
            bytes: self.bytes,
            offset_map: self.offset_map,
        })
    }
}

/// `None` if there is nothing to decode.
fn decode(text: &[u8], which: Escapes) -> Option<Decoded> {
    let mut decoder = Decoder::of(text);
    for at in memchr::memchr2_iter(b'%', b'&', text) {
        let rest = text.get(at..).unwrap_or_default();
        let Some(escape) = rest
            .first()
            .filter(|first| which.has(**first))
            .and_then(|_| escape_at(rest))
        else {
            continue;
        };
        decoder.replace(at, &escape);
    }
    decoder.finish()
}

/// The places before the unfinished escapes at the end of a text: before the last one, and before each that would be
/// unfinished if the text ended there.
pub(super) fn possible_ends(text: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = text.len();
    while ends.len() < LEVELS {
        match text.get(..end).and_then(unfinished) {
            Some(begin) => end = begin,
            None => break,
        }
        ends.push(end);
    }
    ends
}

/// Where the escape begins that continues after the end of the text.
fn unfinished(text: &[u8]) -> Option<usize> {
    unfinished_entity(text).max(unfinished_backslash(text))
}

fn unfinished_backslash(text: &[u8]) -> Option<usize> {
    let oldest = text.len().saturating_sub(MOST_CODE + 1);
    let at = oldest + memchr::memrchr(b'\\', text.get(oldest..)?)?;
    let goes_on = match text.get(at + 1..)? {
        [] => true,
        [b'u', b'{', digits @ ..] => digits.len() <= 6 && digits.iter().all(u8::is_ascii_hexdigit),
        [b'u', digits @ ..] => digits.len() < 4 && digits.iter().all(u8::is_ascii_hexdigit),
        [b'x', digits @ ..] => digits.len() < 2 && digits.iter().all(u8::is_ascii_hexdigit),
        digits => digits.len() < 3 && digits.iter().all(u8::is_ascii_digit),
    };
    let slashes = text.get(..at)?.iter().rev().take_while(|byte| **byte == b'\\').count();
    goes_on.then_some(at - slashes)
}

fn unfinished_entity(text: &[u8]) -> Option<usize> {
    let oldest = text.len().saturating_sub(MOST_LETTERS + 1);
    let last = text.get(oldest..)?;
    let at = memchr::memrchr2(b'%', b'&', last)?;
    let (first, rest) = last.get(at..)?.split_first()?;
    let goes_on = match first {
        b'%' => rest.len() < 2 && rest.iter().all(u8::is_ascii_hexdigit),
        _ => rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#'),
    };
    goes_on.then_some(oldest + at)
}

/// An escape and what it stands for.
struct Escape {
    length: usize,
    bytes: [u8; 4],
    count: usize,
}

impl Escape {
    fn of(length: usize, character: char) -> Self {
        let mut bytes = [0; 4];
        let count = character.encode_utf8(&mut bytes).len();
        Self { length, bytes, count }
    }

    /// Stands for no character.
    fn nothing(length: usize) -> Self {
        Self {
            length,
            bytes: [0; 4],
            count: 0,
        }
    }
}

/// The escape at the start of `rest`.
fn escape_at(rest: &[u8]) -> Option<Escape> {
    let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    match rest {
        [b'%', ..] => {
            let byte = u8::try_from(digit(1)? * 16 + digit(2)?).ok()?;
            Some(Escape {
                length: 3,
                bytes: [byte, 0, 0, 0],
                count: 1,
            })
        }
        [b'&', b'#', b'x' | b'X', ..] => numeric(rest, 3, 16),
        [b'&', b'#', ..] => numeric(rest, 2, 10),
        [b'&', name @ ..] => {
            let letters = |byte: &&u8| byte.is_ascii_alphanumeric();
            let length = name.iter().take(MOST_LETTERS).take_while(letters).count();
            if name.get(length) != Some(&b';') {
                return None;
            }
            Some(Escape::of(length + 2, named(name.get(..length)?)?))
        }
        _ => None,
    }
}

fn numeric(rest: &[u8], begin: usize, radix: u32) -> Option<Escape> {
    let mut code = 0;
    for (count, byte) in rest.get(begin..)?.iter().take(MOST_DIGITS + 1).enumerate() {
        match char::from(*byte).to_digit(radix) {
            Some(digit) => code = u32::checked_add(u32::checked_mul(code, radix)?, digit)?,
            None if *byte == b';' && count > 0 => return Some(Escape::of(begin + count + 1, char::from_u32(code)?)),
            None => return None,
        }
    }
    None
}

/// The names of ASCII characters in HTML, and those of Latin letters, which some writers use.
fn named(name: &[u8]) -> Option<char> {
    let character = match name {
        b"Tab" => '\t',
        b"NewLine" => '\n',
        b"excl" => '!',
        b"quot" | b"QUOT" => '"',
        b"num" => '#',
        b"dollar" => '$',
        b"percnt" => '%',
        b"amp" | b"AMP" => '&',
        b"apos" => '\'',
        b"lpar" => '(',
        b"rpar" => ')',
        b"ast" | b"midast" => '*',
        b"plus" => '+',
        b"comma" => ',',
        b"period" => '.',
        b"sol" => '/',
        b"colon" => ':',
        b"semi" => ';',
        b"lt" | b"LT" => '<',
        b"equals" => '=',
        b"gt" | b"GT" => '>',
        b"quest" => '?',
        b"commat" => '@',
        b"lsqb" | b"lbrack" => '[',
        b"bsol" => '\\',
        b"rsqb" | b"rbrack" => ']',
        b"Hat" => '^',
        b"lowbar" | b"UnderBar" => '_',
        b"grave" | b"DiacriticalGrave" => '`',
        b"lcub" | b"lbrace" => '{',
        b"verbar" | b"vert" | b"VerticalLine" => '|',
        b"rcub" | b"rbrace" => '}',
        _ => return latin(name),
    };
    Some(character)
}

/// U+00A0 to U+00FF, by their names in HTML 4.
const LATIN: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo", "not", "shy",
    "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot", "cedil", "sup1", "ordm",
    "raquo", "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig",
    "Ccedil", "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve",
    "Oacute", "Ocirc", "Otilde", "Ouml", "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN",
    "szlig", "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc",
    "euml", "igrave", "iacute", "icirc", "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml",
    "divide", "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];

fn latin(name: &[u8]) -> Option<char> {
    let at = LATIN.iter().position(|known| known.as_bytes() == name)?;
    char::from_u32(0xa0 + u32::try_from(at).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets of all ASCII characters but the backslash.
    fn secrets() -> SecretBytes {
        let mut secrets = SecretBytes::default();
        let all: Vec<u8> = (b'!'..=b'~').filter(|byte| *byte != b'\\').collect();
        secrets.add(&all);
        secrets
    }

    fn all(text: &str) -> String {
        let last = levels(text.as_bytes(), Escapes::All, secrets(), End::Known).pop();
        String::from_utf8(last.map_or_else(|| text.into(), |last| last.bytes)).unwrap()
    }

    #[test]
    fn escapes_are_decoded_until_none_is_left() {
        for (text, decoded) in [
            ("a%2Bb%2fc", "a+b/c"),
            ("&#x3D;&#61;&#X3d;&#0061;&equals;", "====="),
            ("%C3%BC&uuml;&#252;&yuml;&nbsp;", "üüüÿ\u{a0}"),
            (
                r#"\u0041\\u0042 \x43\\\\x44 \105\\106 \u{47} \"\/ \\\" \\n"#,
                r#"AB CD EF G "/ " \n"#,
            ),
            (r"\u0041\ud83d\ude00 \u005cu0025%34%31", "A\u{1f600} A"),
            (r"C:\new\temp \u00e9 \xff \0 \u12", r"C:\new\temp \u00e9 \xff \0 \u12"),
            ("%252541 &amp;lt; %26%6ct%3b &#37;41", "A < < A"),
            (
                "100% of %zz %4 &x; &#; &#x; & &amp &#1114112; &#123456789; %",
                "100% of %zz %4 &x; &#; &#x; & &amp &#1114112; &#123456789; %",
            ),
        ] {
            assert_eq!(all(text), decoded, "{text}");
        }
    }

    #[test]
    fn places_stay() {
        let text = b"x %26lt;b%2Bc&#47;d y";
        let levels = levels(text, Escapes::All, secrets(), End::Known);
        let last = &levels.last().unwrap().bytes;
        assert_eq!(last, b"x <b+c/d y");
        let of = |range: Range<usize>| std::str::from_utf8(&text[source(&levels, range)]).unwrap();
        assert_eq!(of(2..8), "%26lt;b%2Bc&#47;d");
        assert_eq!(
            (of(2..3), of(3..4), of(4..5), of(6..7)),
            ("%26lt;", "b", "%2B", "&#47;")
        );
        assert_eq!(of(0..last.len()).len(), text.len());
    }

    #[test]
    fn kinds_are_told_apart() {
        let kinds = |text: &str| Escapes::of(text.as_bytes(), secrets()).collect::<Vec<_>>();
        assert!(kinds("50% & more").is_empty());
        assert_eq!(kinds("a%20b & c"), [Escapes::All]);
        assert_eq!(kinds("%ab &lt;"), [Escapes::Percent, Escapes::Entities, Escapes::All]);
        assert_eq!(
            kinds(r"%ab \u0041"),
            [Escapes::Percent, Escapes::Backslashes, Escapes::All]
        );
        let mut letters = SecretBytes::default();
        letters.add(b"abc");
        let of_letters = |text: &str| Escapes::of(text.as_bytes(), letters).count();
        assert_eq!((of_letters(r#"\"\n\x1b\u2026"#), of_letters(r"\x61")), (0, 1));
        letters.add("\u{2026}".as_bytes());
        let of_wide = |text: &str| Escapes::of(text.as_bytes(), letters).count();
        assert_eq!(
            (of_wide(r"\u2027"), of_wide(r"\u2026"), of_wide(r"\xe2\x80\xa6")),
            (1, 1, 1)
        );
        assert_eq!((of_wide(r"\u00fc"), of_wide(r"\n")), (0, 0));
    }

    #[test]
    fn an_unfinished_escape_is_known() {
        for (text, ends) in [
            ("abc", &[][..]),
            ("abc%", &[3]),
            ("abc%4", &[3]),
            ("abc%41", &[]),
            ("abc%x", &[]),
            ("abc&", &[3]),
            ("abc&#x2", &[3]),
            ("abc&am%7", &[6, 3]),
            ("abc& d", &[]),
            ("abc&lt;", &[]),
            (r"abc\\", &[3]),
            (r"abc\u00", &[3]),
            (r"abc\u0041", &[]),
            (r"&am\x4", &[3, 0]),
            (r"abc\n", &[]),
        ] {
            assert_eq!(possible_ends(text.as_bytes()), ends, "{text}");
        }
    }
}

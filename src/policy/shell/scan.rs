//! A linear check of a command's bytes before any parser runs: size, characters, nesting.

use super::CommandRefusal;
use crate::tools::{CommandAccessKind, builtin_for};

/// The longest command text, in bytes.
pub const MAX_BYTES: usize = 16 * 1024;
/// The deepest nesting of brackets, counted regardless of quotes.
const MAX_DEPTH: usize = 8;
/// The most openers that a parser might nest, quoted or not: bounds its stack even if quotes hide the closers.
const MAX_OPENERS: usize = 240;
/// The most words that open a compound command, in positions where the shell would treat them so.
const MAX_KEYWORDS: usize = 48;
/// The most adjacent pairs of parentheses: each doubles the parser's work if unbalanced.
const MAX_TWINS: usize = 6;
/// The most pipes, quoted or not: a parser backtracks over all of them if the last one is followed by nothing valid.
const MAX_PIPES: usize = 600;
/// The most opening braces, quoted or not: each may begin a brace expansion.
const MAX_BRACES: usize = 1000;
/// The most here-documents in one command.
const MAX_HEREDOCS: usize = 4;

/// Refuses texts that no parser may process.
///
/// Returns the count of what could make a parser recurse, quoted or not.
///
/// # Errors
/// A [`CommandRefusal`] with `limit:*` or `control_character`.
pub fn scan(text: &str) -> Result<usize, CommandRefusal> {
    if text.len() > MAX_BYTES {
        return Err(limit(
            "size",
            "the command is longer than 16 KiB",
            "split it into several calls",
        ));
    }
    if let Some(found) = text.chars().find(|&found| is_refused(found)) {
        return Err(CommandRefusal::new(
            "control_character",
            format!(
                "the command contains the invisible or control character U+{:04X}",
                u32::from(found)
            ),
            "write the command with visible characters, tabs and newlines only",
        ));
    }
    depth(text)?;
    let openers = openers(text)?;
    if has_long_descriptor(text) {
        return Err(limit(
            "descriptor",
            "a redirection's descriptor has more than 8 digits",
            "use descriptors 0, 1 and 2",
        ));
    }
    for (sign, most, name) in [(b'|', MAX_PIPES, "pipes"), (b'{', MAX_BRACES, "braces")] {
        if memchr::memchr_iter(sign, text.as_bytes()).count() > most {
            let reason = format!(
                "the command contains more than {most} of the character `{}`",
                char::from(sign)
            );
            return Err(limit(name, &reason, "split it into several calls"));
        }
    }
    if heredocs(text) > MAX_HEREDOCS {
        return Err(limit(
            "heredocs",
            "the command opens more than 4 here-documents",
            &format!("write the files with `{}`", builtin_for(CommandAccessKind::Writes).name),
        ));
    }
    Ok(openers)
}

/// Control characters, characters that hide text or change its direction, and blanks other than ordinary ones.
fn is_refused(found: char) -> bool {
    if found == '\t' || found == '\n' {
        return false;
    }
    found.is_control()
        || matches!(found,
            '\u{00A0}' | '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202F}' | '\u{205F}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}')
}

fn depth(text: &str) -> Result<(), CommandRefusal> {
    let mut depth = 0_usize;
    let mut in_backtick = false;
    for byte in text.bytes() {
        match byte {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b'`' => {
                in_backtick = !in_backtick;
                depth = if in_backtick {
                    depth + 1
                } else {
                    depth.saturating_sub(1)
                };
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(limit(
                "nesting",
                "brackets are nested more than 8 deep",
                "nest it less deeply",
            ));
        }
    }
    Ok(())
}

fn openers(text: &str) -> Result<usize, CommandRefusal> {
    let bytes = text.as_bytes();
    let (mut openers, mut twins, mut keywords) = (0, 0, 0);
    let mut last = b';';
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' => {
                openers += 1;
                twins += usize::from(last == b'(');
            }
            b'`' => openers += 1,
            b'!' if bytes
                .get(at + 1)
                .is_none_or(|next| next.is_ascii_whitespace() || *next == b'\\') =>
            {
                openers += 1
            }
            b'{' if last_raw(bytes, at) == b'$' || bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace) => {
                openers += 1
            }
            _ => keywords += usize::from(opens_compound(bytes, at)),
        }
        if !byte.is_ascii_whitespace() && byte != b'\\' {
            last = byte;
        }
    }
    if openers > MAX_OPENERS || twins > MAX_TWINS || keywords > MAX_KEYWORDS {
        return Err(limit(
            "nesting",
            "the command opens too many groups",
            "split it into several calls",
        ));
    }
    Ok(openers + keywords)
}

fn last_raw(bytes: &[u8], at: usize) -> u8 {
    at.checked_sub(1)
        .and_then(|before| bytes.get(before))
        .copied()
        .unwrap_or(b';')
}

/// Whether a word at `at` would open a compound command: ignores quotes, so quoted text may count too.
fn opens_compound(bytes: &[u8], at: usize) -> bool {
    const WORDS: [&[u8]; 7] = [b"if", b"while", b"until", b"for", b"case", b"select", b"function"];
    let before = last_raw(bytes, at);
    if !(before.is_ascii_whitespace() || b";&|(){}`!".contains(&before)) {
        return false;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    WORDS.iter().any(|word| {
        rest.starts_with(word)
            && rest
                .get(word.len())
                .is_none_or(|next| !next.is_ascii_alphanumeric() && *next != b'_')
    })
}

/// Whether a number of 9 or more digits precedes `<` or `>`: the parser accepts a descriptor of any size there.
fn has_long_descriptor(text: &str) -> bool {
    let mut digits = 0_usize;
    text.bytes().any(|byte| {
        let long = digits > 8 && matches!(byte, b'<' | b'>');
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        long
    })
}

/// Counts `<<` that are not `<<<`, quoted or not.
fn heredocs(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut count = 0;
    let mut at = 0;
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|&&byte| byte == b'<').count();
        count += usize::from(run == 2);
        at += run.max(1);
    }
    count
}

fn limit(name: &str, reason: &str, fix: &str) -> CommandRefusal {
    CommandRefusal::new(format!("limit:{name}"), reason, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parser_goes_back_over_is_counted() {
        let code = |text: &str| scan(text).err().map(|refusal| refusal.code);
        for (sign, most, name) in [("| ", MAX_PIPES, "limit:pipes"), ("{a,b} ", MAX_BRACES, "limit:braces")] {
            assert_eq!(code(&sign.repeat(most)), None, "{name}");
            assert_eq!(code(&sign.repeat(most + 1)).as_deref(), Some(name));
        }
    }
}

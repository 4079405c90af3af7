//! Splits the source text of one word into characters and expansions, removing quotes, and refuses unsafe expansions.

use super::unit::{Unit, find, name_at, unbalanced};
use super::{CommandRefusal, params};

/// The quotes around a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Double,
    /// The body of a here-document: `"` and `'` are ordinary characters.
    Body,
}

/// Splits the source of a word.
///
/// # Errors
/// `refused_construct:*` for expansions that run code or use values as variable names, `parse_error` for unbalanced
/// quotes.
pub fn split(source: &str) -> Result<Vec<Unit>, CommandRefusal> {
    let chars: Vec<char> = source.chars().collect();
    let mut units = Vec::new();
    let mut at = 0;
    while let Some(&here) = chars.get(at) {
        at = match here {
            '\'' => single(&chars, at + 1, &mut units)?,
            '"' => double(&chars, at + 1, &mut units)?,
            '\\' => {
                if let Some(&value) = chars.get(at + 1).filter(|&&next| next != '\n') {
                    units.push(Unit::Char { value, quoted: true });
                }
                at + 2
            }
            '$' => dollar(&chars, at, Quotes::None, &mut units)?,
            '`' => backtick(&chars, at, &mut units)?,
            value => {
                units.push(Unit::Char { value, quoted: false });
                at + 1
            }
        };
    }
    Ok(units)
}

/// Splits the body of a here-document whose delimiter is not quoted.
///
/// # Errors
/// Like [`split`].
pub fn split_body(source: &str) -> Result<Vec<Unit>, CommandRefusal> {
    let chars: Vec<char> = source.chars().collect();
    let mut units = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        at = quoted_char(&chars, at, Quotes::Body, &mut units)?;
    }
    Ok(units)
}

fn single(chars: &[char], start: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    let end = find(chars, start, '\'')?;
    units.push(Unit::Nothing);
    units.extend(
        chars[start..end]
            .iter()
            .map(|&value| Unit::Char { value, quoted: true }),
    );
    Ok(end + 1)
}

fn double(chars: &[char], start: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    units.push(Unit::Nothing);
    let mut at = start;
    loop {
        match chars.get(at) {
            None => return Err(unbalanced()),
            Some('"') => return Ok(at + 1),
            Some(_) => at = quoted_char(chars, at, Quotes::Double, units)?,
        }
    }
}

fn quoted_char(chars: &[char], at: usize, quotes: Quotes, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    match chars.get(at) {
        Some('$') => dollar(chars, at, quotes, units),
        Some('`') => Err(CommandRefusal::construct("backtick", "use `$( )` instead of backticks")),
        Some('\\') => {
            match chars.get(at + 1) {
                Some('\n') => {}
                Some(&value) if "$`\\".contains(value) || (value == '"' && quotes == Quotes::Double) => {
                    units.push(Unit::Char { value, quoted: true });
                }
                Some(&value) => {
                    units.push(Unit::Char {
                        value: '\\',
                        quoted: true,
                    });
                    units.push(Unit::Char { value, quoted: true });
                }
                None => units.push(Unit::Char {
                    value: '\\',
                    quoted: true,
                }),
            }
            Ok(at + 2)
        }
        Some(&value) => {
            units.push(Unit::Char { value, quoted: true });
            Ok(at + 1)
        }
        None => Ok(at + 1),
    }
}

fn backtick(chars: &[char], at: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    let end = find(chars, at + 1, '`')?;
    let text: String = chars[at + 1..end].iter().collect();
    if text.contains(['"', '\'', '\\', '$', '#', '<']) {
        return Err(CommandRefusal::construct("backtick", "use `$( )` instead of backticks"));
    }
    units.push(Unit::Substitution { text });
    Ok(end + 1)
}

fn dollar(chars: &[char], at: usize, quotes: Quotes, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    let quoted = quotes != Quotes::None;
    match chars.get(at + 1) {
        Some('\'') if !quoted => ansi(chars, at + 2, units),
        Some('"') if !quoted => Err(CommandRefusal::construct("$\"", "use plain double quotes")),
        Some('[') => Err(CommandRefusal::construct("$[", "write the number itself")),
        Some('(') if chars.get(at + 2) == Some(&'(') => arithmetic(chars, at + 3, units),
        Some('(') => {
            let end = closing(chars, at + 2)?;
            let text: String = chars[at + 2..end].iter().collect();
            units.push(Unit::Substitution { text });
            Ok(end + 1)
        }
        Some('{') => params::braced(chars, at + 2, units),
        Some(&next) if next == '_' || next.is_ascii_alphabetic() => {
            let name: String = name_at(chars, at + 1);
            let end = at + 1 + name.len();
            units.push(Unit::Param { name });
            Ok(end)
        }
        Some('?' | '#') => {
            units.push(Unit::Expansion);
            Ok(at + 2)
        }
        Some(&next) if next.is_ascii_digit() || "@*!-$".contains(next) => {
            units.push(Unit::Param { name: next.to_string() });
            Ok(at + 2)
        }
        _ => {
            units.push(Unit::Char {
                value: '$',
                quoted: true,
            });
            Ok(at + 1)
        }
    }
}

/// `$'…'`: the escapes that C and bash share.
fn ansi(chars: &[char], start: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    units.push(Unit::Nothing);
    let mut at = start;
    while let Some(&here) = chars.get(at) {
        let (value, next) = match here {
            '\'' => return Ok(at + 1),
            '\\' => escape(chars, at + 1)?,
            value => (value, at + 1),
        };
        units.push(Unit::Char { value, quoted: true });
        at = next;
    }
    Err(unbalanced())
}

fn escape(chars: &[char], at: usize) -> Result<(char, usize), CommandRefusal> {
    let refused = || CommandRefusal::construct("$'", "write the characters themselves");
    let (value, length) = match chars.get(at) {
        Some('n') => ('\n', 1),
        Some('t') => ('\t', 1),
        Some(&value) if "\\'\"?".contains(value) => (value, 1),
        Some('x') => number(chars, at + 1, 2, 16)
            .map(|(value, length)| (value, length + 1))
            .ok_or_else(refused)?,
        Some('u') => number(chars, at + 1, 4, 16)
            .map(|(value, length)| (value, length + 1))
            .ok_or_else(refused)?,
        Some(digit) if digit.is_digit(8) => number(chars, at, 3, 8).ok_or_else(refused)?,
        _ => return Err(refused()),
    };
    Ok((value, at + length))
}

/// A printable ASCII character given by its number: anything else is left to `refused`.
fn number(chars: &[char], at: usize, most: usize, radix: u32) -> Option<(char, usize)> {
    let digits: String = chars[at.min(chars.len())..]
        .iter()
        .take(most)
        .take_while(|next| next.is_digit(radix))
        .collect();
    let value = char::from_u32(u32::from_str_radix(&digits, radix).ok()?)?;
    (value.is_ascii_graphic() || " \t\n".contains(value)).then_some((value, digits.len()))
}

/// `$((…))`, starting after the second parenthesis: only literal numbers, since bash evaluates names recursively.
fn arithmetic(chars: &[char], start: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    let refused = || CommandRefusal::construct("$((", "compute the number yourself and write it");
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(&here) = chars.get(at) {
        match here {
            '(' => depth += 1,
            ')' if depth == 0 => {
                units.push(Unit::Expansion);
                return if chars.get(at + 1) == Some(&')') {
                    Ok(at + 2)
                } else {
                    Err(refused())
                };
            }
            ')' => depth -= 1,
            _ if here.is_ascii_digit() || " +-*/%".contains(here) => {}
            _ => return Err(refused()),
        }
        at += 1;
    }
    Err(unbalanced())
}

/// The index of the parenthesis that closes a `$(` whose text begins at `start`. Comments, here-documents and `case`
/// patterns, which change the meaning of a parenthesis, are refused inside.
fn closing(chars: &[char], start: usize) -> Result<usize, CommandRefusal> {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(&here) = chars.get(at) {
        match here {
            '\\' => at += 1,
            '\'' => at = find(chars, at + 1, '\'')?,
            '"' => at = skip_double(chars, at + 1)?,
            '`' => return Err(CommandRefusal::construct("backtick", "use `$( )` instead of backticks")),
            '(' => depth += 1,
            ')' if depth == 0 => return Ok(at),
            ')' => depth -= 1,
            '$' if chars.get(at + 1) == Some(&'\'') => {
                return Err(CommandRefusal::construct("$'", "write the characters themselves"));
            }
            '#' if at == start || chars.get(at - 1).is_some_and(|before| " \t\n;&|(".contains(*before)) => {
                return Err(CommandRefusal::construct("comment", "leave comments out of `$( )`"));
            }
            '<' if chars.get(at + 1) == Some(&'<') && chars.get(at + 2) != Some(&'<') => {
                return Err(CommandRefusal::construct(
                    "heredoc",
                    "leave here-documents out of `$( )`",
                ));
            }
            '<' if chars.get(at + 1) == Some(&'<') => at += 2,
            'c' if is_case(chars, at) => return Err(CommandRefusal::construct("case", "leave `case` out of `$( )`")),
            _ => {}
        }
        at += 1;
    }
    Err(unbalanced())
}

fn is_case(chars: &[char], at: usize) -> bool {
    chars[at..].starts_with(&['c', 'a', 's', 'e'])
        && chars.get(at + 4).is_some_and(char::is_ascii_whitespace)
        && at
            .checked_sub(1)
            .and_then(|before| chars.get(before))
            .is_none_or(|before| " \t\n;&|({".contains(*before))
}

/// The index of the closing double quote; expansions inside may contain quotes of their own.
fn skip_double(chars: &[char], start: usize) -> Result<usize, CommandRefusal> {
    let mut at = start;
    while let Some(&here) = chars.get(at) {
        match here {
            '"' => return Ok(at),
            '\\' => at += 1,
            '`' => return Err(CommandRefusal::construct("backtick", "use `$( )` instead of backticks")),
            '$' if chars.get(at + 1) == Some(&'(') => at = closing(chars, at + 2)?,
            '$' if chars.get(at + 1) == Some(&'{') => at = find(chars, at + 2, '}')?,
            _ => {}
        }
        at += 1;
    }
    Err(unbalanced())
}

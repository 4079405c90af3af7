//! The forms of `${…}`: which are accepted, and what each does to its value. Evaluates nothing.

use super::Refusal;
use super::units::{Form, Unit, find, is_name, name_at};

/// `${…}` from behind its brace.
///
/// # Errors
/// `refused_construct:${` for all that evaluates a text or sets a variable.
pub fn braced(chars: &[char], start: usize, quoted: bool, units: &mut Vec<Unit>) -> Result<usize, Refusal> {
    let refused = || Refusal::construct("${", "use `$name`, `${name}` or `${name:-text}` with a literal text");
    let end = find(chars, start, '}')?;
    let inner: String = chars[start..end].iter().collect();
    if inner.contains(['$', '`', '\'', '"', '\\', '\n', '{', '<', '(']) {
        return Err(refused());
    }
    if let Some(rest) = inner.strip_prefix('#').filter(|rest| !rest.is_empty()) {
        if rest != "@" && rest != "*" && !is_name(rest) {
            return Err(refused());
        }
        units.push(Unit::Number { quoted });
        return Ok(end + 1);
    }
    let name = match inner.chars().next() {
        Some(first) if first == '_' || first.is_ascii_alphabetic() => name_at(chars, start),
        Some(first) if first.is_ascii_digit() => inner.chars().take_while(char::is_ascii_digit).collect(),
        Some(first) if "@*?-$".contains(first) => first.to_string(),
        _ => return Err(refused()),
    };
    let rest = &inner[name.len()..];
    // Only plain subscripts: any other text in them is evaluated.
    let subscript = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if subscript.is_some_and(|text| {
        !text.is_empty() && (text == "@" || text == "*" || text.bytes().all(|byte| byte.is_ascii_digit()))
    }) {
        units.push(if name == "PIPESTATUS" {
            Unit::Number { quoted }
        } else {
            Unit::Param {
                name: "@".to_owned(),
                form: Form::Plain,
                quoted,
            }
        });
        return Ok(end + 1);
    }
    let form = form(rest).ok_or_else(refused)?;
    units.push(Unit::Param { name, form, quoted });
    Ok(end + 1)
}

/// What follows the name in `${name…}`; nothing for what is refused (`@`, indirection, subscripts, assignment).
fn form(rest: &str) -> Option<Form> {
    if rest.is_empty() {
        return Some(Form::Plain);
    }
    if let Some(text) = [":-", ":+", "-", "+"].iter().find_map(|mark| rest.strip_prefix(mark)) {
        return Some(Form::Else(text.to_owned()));
    }
    if rest.starts_with(":?") || rest.starts_with('?') {
        return Some(Form::Plain);
    }
    if let Some(numbers) = rest.strip_prefix(':') {
        let plain = numbers
            .chars()
            .all(|next| next.is_ascii_digit() || next == ':' || next == ' ' || next == '-');
        return plain.then_some(Form::Changed);
    }
    if rest.starts_with('%') {
        return Some(Form::Trimmed);
    }
    rest.starts_with(['#', '/', '^', ',']).then_some(Form::Changed)
}

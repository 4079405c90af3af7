//! The accepted forms of `${…}`: those that run nothing and set no variable.

use super::CommandRefusal;
use super::unit::{Unit, find, is_name, name_at};

/// Parses `${…}`, starting after its brace.
///
/// # Errors
/// `refused_construct:${` for every form that evaluates a text or sets a variable.
pub fn braced(chars: &[char], start: usize, units: &mut Vec<Unit>) -> Result<usize, CommandRefusal> {
    let refused = || CommandRefusal::construct("${", "use `$name`, `${name}` or `${name:-text}` with a literal text");
    let end = find(chars, start, '}')?;
    let inner: String = chars[start..end].iter().collect();
    if inner.contains(['$', '`', '\'', '"', '\\', '\n', '{', '<', '(']) {
        return Err(refused());
    }
    if let Some(rest) = inner.strip_prefix('#').filter(|rest| !rest.is_empty()) {
        if rest != "@" && rest != "*" && !is_name(rest) {
            return Err(refused());
        }
        units.push(Unit::Expansion);
        return Ok(end + 1);
    }
    let name = match inner.chars().next() {
        Some(first) if first == '_' || first.is_ascii_alphabetic() => name_at(chars, start),
        Some(first) if first.is_ascii_digit() => inner.chars().take_while(char::is_ascii_digit).collect(),
        Some(first) if "@*?-$".contains(first) => first.to_string(),
        _ => return Err(refused()),
    };
    let rest = &inner[name.len()..];
    // Only plain subscripts: bash evaluates any other text in them.
    let subscript = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if subscript.is_some_and(|text| {
        !text.is_empty() && (text == "@" || text == "*" || text.bytes().all(|byte| byte.is_ascii_digit()))
    }) {
        units.push(Unit::Param { name });
        return Ok(end + 1);
    }
    if !is_accepted(rest) {
        return Err(refused());
    }
    units.push(Unit::Param { name });
    Ok(end + 1)
}

/// Whether what follows the name in `${name…}` only computes a value; `@`, indirection, subscripts and assignment do
/// more.
fn is_accepted(rest: &str) -> bool {
    if let Some(numbers) = rest.strip_prefix(':')
        && !numbers.starts_with(['-', '+', '?'])
    {
        let plain = |next: char| next.is_ascii_digit() || next == ':' || next == ' ' || next == '-';
        return !numbers.starts_with('=') && numbers.chars().all(plain);
    }
    rest.is_empty() || rest.starts_with([':', '-', '+', '?', '%', '#', '/', '^', ','])
}

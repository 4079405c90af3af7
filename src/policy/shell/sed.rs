//! Checks that a sed program runs nothing and names no file.

/// Commands without arguments.
const PLAIN: &str = "pPdDnNgGhHxlz=Fq Q";

/// Accepts programs of addresses, `s`, `y`, and commands that only change lines.
///
/// # Errors
/// What is not accepted, as part of a sentence.
pub fn check(program: &str) -> Result<(), String> {
    let chars: Vec<char> = program.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        at = blanks(&chars, at, "; \t\n{}");
        if at >= chars.len() {
            break;
        }
        at = addresses(&chars, at)?;
        at = blanks(&chars, at, " \t!");
        at = command(&chars, at)?;
    }
    Ok(())
}

fn blanks(chars: &[char], at: usize, kinds: &str) -> usize {
    at + chars[at.min(chars.len())..]
        .iter()
        .take_while(|next| kinds.contains(**next))
        .count()
}

fn addresses(chars: &[char], start: usize) -> Result<usize, String> {
    let mut at = start;
    loop {
        at = match chars.get(at) {
            Some(next) if next.is_ascii_digit() => at + 1,
            Some('$' | '+' | '~' | ',' | ' ') => at + 1,
            Some('/') => {
                let end = delimited(chars, at + 1, '/')?;
                blanks(chars, end, "IM")
            }
            Some('\\') => {
                let mark = *chars.get(at + 1).ok_or("an address is not closed")?;
                let end = delimited(chars, at + 2, mark)?;
                blanks(chars, end, "IM")
            }
            _ => return Ok(at),
        };
    }
}

/// The index after the next unescaped `mark`. A newline in a part is refused, because sed treats it as the end.
fn delimited(chars: &[char], start: usize, mark: char) -> Result<usize, String> {
    if mark == '\n' || mark == '\\' || mark == '[' {
        return Err("a delimiter is a newline, backslash or bracket".to_owned());
    }
    let mut at = start;
    while let Some(&next) = chars.get(at) {
        match next {
            '\\' => at += 1,
            '\n' => return Err("a newline inside a pattern".to_owned()),
            '[' => at = bracket(chars, at, mark)?,
            _ if next == mark => return Ok(at + 1),
            _ => {}
        }
        at += 1;
    }
    Err("a pattern is not closed".to_owned())
}

/// The index of the `]` that closes the bracket expression at `start`. Refuses what sed implementations interpret
/// differently.
fn bracket(chars: &[char], start: usize, mark: char) -> Result<usize, String> {
    let mut at = start + 1 + usize::from(chars.get(start + 1) == Some(&'^'));
    let first = at;
    let (mut marked, mut odd) = (false, false);
    loop {
        match (chars.get(at), chars.get(at + 1)) {
            (None | Some('\n'), _) => return Err("a bracket is not closed".to_owned()),
            (Some('\\'), Some(']')) => return Err("a backslash closes a bracket".to_owned()),
            (Some('['), Some(kind @ (':' | '.' | '='))) => {
                let rest = chars.get(at + 2..).unwrap_or_default();
                let length = rest.windows(2).position(|pair| pair[0] == *kind && pair[1] == ']');
                let length = length.filter(|&length| rest[..length].iter().all(char::is_ascii_alphanumeric));
                at += 3 + length.ok_or("a class in brackets is not closed")?;
                odd = true;
            }
            (Some(']'), _) if at > first => break,
            (Some(next), _) => {
                marked |= *next == mark;
                odd |= matches!(next, '[' | ']' | '\\');
            }
        }
        at += 1;
    }
    if marked && odd {
        return Err("the delimiter is inside brackets".to_owned());
    }
    Ok(at)
}

/// The replacement ends at its delimiter; brackets have no meaning in it.
fn replacement(chars: &[char], start: usize, mark: char) -> Result<usize, String> {
    let mut at = start;
    while let Some(&next) = chars.get(at) {
        match next {
            '\\' => at += 1,
            _ if next == mark => return Ok(at + 1),
            _ => {}
        }
        at += 1;
    }
    Err("a replacement is not closed".to_owned())
}

fn command(chars: &[char], at: usize) -> Result<usize, String> {
    let Some(&name) = chars.get(at) else {
        return Ok(at);
    };
    match name {
        '{' | '}' | ';' | '\n' => Ok(at + 1),
        '#' => Ok(at + chars[at..].iter().take_while(|next| **next != '\n').count()),
        's' | 'y' => substitution(chars, at, name),
        'a' | 'i' | 'c' => text(chars, at + 1),
        ':' | 'b' | 't' | 'T' => {
            let label = chars[at + 1..]
                .iter()
                .take_while(|next| next.is_ascii_alphanumeric() || " _".contains(**next))
                .count();
            end(chars, at + 1 + label)
        }
        _ if PLAIN.contains(name) && name != ' ' => {
            let number = chars[at + 1..]
                .iter()
                .take_while(|next| next.is_ascii_digit() || **next == ' ')
                .count();
            end(chars, at + 1 + number)
        }
        _ => Err(format!("the command `{name}`")),
    }
}

fn end(chars: &[char], at: usize) -> Result<usize, String> {
    let at = blanks(chars, at, " \t");
    match chars.get(at) {
        None | Some(';' | '\n' | '}' | '#') => Ok(at),
        Some(next) => Err(format!("`{next}` after a command")),
    }
}

fn substitution(chars: &[char], at: usize, name: char) -> Result<usize, String> {
    let mark = *chars.get(at + 1).ok_or("`s` without a pattern")?;
    // `y` has no bracket expressions: each character is literal.
    let middle = match name {
        'y' => replacement(chars, at + 2, mark)?,
        _ => delimited(chars, at + 2, mark)?,
    };
    let close = replacement(chars, middle, mark)?;
    let flags = chars[close.min(chars.len())..]
        .iter()
        .take_while(|next| next.is_ascii_digit() || "gpiImM".contains(**next))
        .count();
    if name == 'y' && flags > 0 {
        return Err("`y` takes no flags".to_owned());
    }
    // The flag `e` executes the pattern space and `w` writes a file; these and unknown flags are refused.
    end(chars, close + flags)
}

/// `a text`: extends to the end of the line; a line that ends with a backslash continues.
fn text(chars: &[char], start: usize) -> Result<usize, String> {
    let mut at = start;
    while let Some(&next) = chars.get(at) {
        match next {
            '\\' => at += 2,
            '\n' => return Ok(at),
            _ => at += 1,
        }
    }
    Ok(at.min(chars.len()))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn programs_that_only_change_lines_are_accepted() {
        for program in [
            "1,20p",
            "s/a/b/",
            "s/a/b/g;s/c/d/",
            "/x/d",
            "$d",
            "$!d",
            "1~2p",
            "/a/,/b/p",
            "s|/usr|/opt|gI",
            "y/abc/xyz/",
            "/x/{s/a/b/;p}",
            "2q",
            "1i\\\ntext",
            "a hello",
            "/^$/d",
            r"s/\(a\)/\1/",
            "s/[a-z]*//2",
            "s/[[:space:]]*$//",
            "s/[^/]*$//",
            "s/[]x]/y/",
            ":a;N;$!ba;s/\\n/ /g",
            "/re/I,+3p",
            "5,$ d",
            "n;d",
            "=",
            "1!G;h;$!d",
        ] {
            assert_eq!(check(program), Ok(()), "{program}");
        }
    }

    #[test]
    fn programs_that_run_or_name_files_are_not() {
        for program in [
            "e",
            "1e ls",
            "s/a/b/e",
            "s/a/b/ge",
            "s/a/b/w out",
            "w out",
            "/x/w out",
            "r /etc/passwd",
            "R f",
            "W f",
            "1,2{p;e id\n}",
            "s/a/b/;e",
            "s,a,b,e",
            "p;w x",
            "s/[/]/x/;e",
            "y/a/b/w",
            "\\,x,e id",
            "s/a/b/\ne id",
            "s/a/b\\/;e",
            "s/a/b/I e",
            "v;e",
            "s/x/y/mgw /tmp/a",
        ] {
            assert!(check(program).is_err(), "{program}");
        }
    }
}

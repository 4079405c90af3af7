//! Splits a command line of a recipe into words, without a shell.

/// The words of `text`, with quotes and backslashes removed.
///
/// # Errors
/// A sentence: the text is empty, has an unclosed quote, or needs a shell.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => quoted(&mut chars, '\'', word.get_or_insert_default())?,
            '"' => quoted(&mut chars, '"', word.get_or_insert_default())?,
            '\\' => {
                let next = chars.next().ok_or("it ends with a backslash")?;
                word.get_or_insert_default().push(next);
            }
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '`' | '$' | '*' | '?' | '\r' | '\0' => return Err(shell(c)),
            '#' if word.is_none() => return Err(shell(c)),
            '~' if word.is_none() => return Err(shell(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) {
        return Err("it names no program".to_owned());
    }
    Ok(words)
}

fn shell(c: char) -> String {
    format!(
        "`{}` needs a shell, and none is used: quote it, or put the command into a script",
        c.escape_default()
    )
}

fn quoted(chars: &mut std::str::Chars<'_>, end: char, word: &mut String) -> Result<(), String> {
    while let Some(c) = chars.next() {
        match c {
            c if c == end => return Ok(()),
            '\\' if end == '"' => match chars.next() {
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => break,
            },
            '$' | '`' if end == '"' => return Err(shell(c)),
            c => word.push(c),
        }
    }
    Err(format!("the quote {end} is not closed"))
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_are_split_as_a_shell_would() {
        for (text, expected) in [
            ("./tools list", &["./tools", "list"][..]),
            ("  a  'b c' \"d e\"f ", &["a", "b c", "d ef"]),
            (r"a b\ c '' 'x$y' a#b", &["a", "b c", "", "x$y", "a#b"]),
            (r#"sh -c "say \"hi\" \$x \n""#, &["sh", "-c", r#"say "hi" $x \n"#]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        for text in [
            "", "  ", "a; b", "a | b", "a > b", "$X", "a \"$X\"", "ls *", "'a", "a \\", "~/x", "# a", "''",
        ] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}

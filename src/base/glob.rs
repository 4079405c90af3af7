//! Limits for glob patterns, and the form of those that recipes write. The glob library calls itself for each brace inside
//! another one, so a deep pattern from a model or from a file of the tree would overflow the stack and end the process.

/// Upper limit in bytes for one pattern.
pub const MAX_PATTERN: usize = 4 << 10;

/// Upper limit for braces inside each other in one pattern.
pub const MAX_DEPTH: usize = 16;

/// Checks a pattern before it is compiled. Every pattern that does not come from this program's own source goes through
/// here, or through stricter limits (those of policies).
///
/// # Errors
/// Which limit the pattern exceeds; a phrase for people and models.
pub fn check(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the pattern is longer than {MAX_PATTERN} bytes"));
    }
    if depth(pattern) > MAX_DEPTH {
        return Err(format!("the pattern nests braces more than {MAX_DEPTH} deep"));
    }
    Ok(())
}

/// A pattern of a recipe's `changed`, as it is matched against paths of a change: `dir/` means `dir/**`, as in a policy.
///
/// # Errors
/// Why it can match no path of a change, or exceeds a limit; a phrase for people.
pub fn of_changed(written: &str) -> Result<String, String> {
    check(written)?;
    if written.starts_with(['/', '~']) {
        return Err("patterns are relative to the workspace; no change is outside it".to_owned());
    }
    if written.starts_with('!') {
        return Err("`!` has no meaning here; `never` lists what may not change".to_owned());
    }
    if written.split('/').any(|part| part == "..") {
        return Err("`..` leads outside the workspace; no change is outside it".to_owned());
    }
    if has_odd_backslash(written) {
        return Err("`\\` does not separate directories; it takes the next character literally".to_owned());
    }
    let parts = written.split('/').filter(|part| !part.is_empty() && *part != ".");
    let text = parts.collect::<Vec<_>>().join("/");
    match (text.is_empty(), written.ends_with('/')) {
        (true, _) => Err("it names no file; write `**` for all files".to_owned()),
        (false, true) => Ok(format!("{text}/**")),
        (false, false) => Ok(text),
    }
}

/// Whether a backslash precedes a letter, a digit or `*`. None of these needs one, so it was meant to separate directories.
pub fn has_odd_backslash(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(one) = chars.next() {
        if one == '\\' && chars.next().is_some_and(|next| next.is_alphanumeric() || next == '*') {
            return true;
        }
    }
    false
}

/// How deep the braces are nested, at most. With a backslash or a character class, a closing brace may be an ordinary
/// character; then every opening one counts.
fn depth(pattern: &str) -> usize {
    if pattern.contains(['\\', '[']) {
        return pattern.matches('{').count();
    }
    let (mut open, mut most) = (0_usize, 0);
    for byte in pattern.bytes() {
        match byte {
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_and_long_patterns_are_refused() {
        let deep = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        assert_eq!(check(&deep(MAX_DEPTH)), Ok(()));
        assert!(check(&deep(MAX_DEPTH + 1)).unwrap_err().contains("16 deep"));
        assert!(check(&deep(20_000)).is_err());
        assert_eq!(check(&"a".repeat(MAX_PATTERN)), Ok(()));
        assert!(check(&"a".repeat(MAX_PATTERN + 1)).unwrap_err().contains("4096 bytes"));
    }

    #[test]
    fn a_pattern_of_a_recipe_is_read_as_in_a_policy() {
        for (written, meant) in [
            ("secret/**", "secret/**"),
            ("./secret//./a", "secret/a"),
            ("secret/", "secret/**"),
            ("app/\\[id\\]/*", "app/\\[id\\]/*"),
        ] {
            assert_eq!(of_changed(written).as_deref(), Ok(meant), "{written}");
        }
        for wrong in [
            "/secret",
            "~/a",
            "!a",
            "a/../b",
            "secret\\**",
            "secret\\a",
            ".",
            "./",
            "",
        ] {
            assert!(of_changed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_closing_brace_that_closes_nothing_hides_no_depth() {
        for unit in ["{\\}", "{[}]"] {
            assert!(check(&unit.repeat(MAX_DEPTH + 1)).is_err(), "{unit}");
        }
        // Braces side by side are not deep.
        assert_eq!(check(&"{a,b}/".repeat(100)), Ok(()));
        assert_eq!(check("src/**/*.{ts,tsx}"), Ok(()));
    }
}

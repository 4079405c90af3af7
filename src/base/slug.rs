//! Texts that become parts of names of jobs and branches. Pure.

/// A text with each character other than ASCII letters, digits, `-`, `_` and `.` replaced by `-`, and without `-` and
/// `.` at its ends. May be empty.
pub fn slug(text: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
        _ => '-',
    };
    let text: String = text.chars().map(plain).collect();
    text.trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_characters_become_dashes() {
        assert_eq!(slug("../a_b c@{é"), "a_b-c");
        assert_eq!(slug("-é."), "");
    }
}

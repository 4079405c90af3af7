//! Maps tool names to names that every vendor accepts, and back.

use crate::base::call::ToolSpec;
use crate::base::ids::sha256_hex;
use std::borrow::Cow;

/// Length limit of a name that all vendors accept.
const MOST: usize = 64;

/// `name` with illegal characters replaced; a changed name ends in a digest and is cut to 64 characters. Legal names
/// are unchanged.
pub fn wire_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.len() <= MOST && name.chars().all(legal) {
        return Cow::Borrowed(name);
    }
    let mut clean: String = name.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    if !starts {
        clean.insert(0, '_');
    }
    // Two names that differ only in replaced characters must stay distinct.
    let mut digest = sha256_hex(&[name.as_bytes()]);
    digest.truncate(8);
    clean.truncate(MOST - digest.len() - 1);
    Cow::Owned(format!("{clean}_{digest}"))
}

/// The tool for a name on the wire; the name itself when no tool has it.
pub fn real_name<'a>(name: &'a str, tools: &'a [ToolSpec]) -> &'a str {
    if tools.iter().any(|tool| tool.name == name) {
        return name;
    }
    tools
        .iter()
        .find(|tool| wire_name(&tool.name) == name)
        .map_or(name, |tool| &tool.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn legal_names_stay_and_others_stay_apart() {
        assert_eq!(wire_name("docs__read-page"), "docs__read-page");
        assert!(wire_name("docs__a.b").starts_with("docs__a_b_"));
        assert_ne!(wire_name("a.b"), wire_name("a:b"));
        assert!(wire_name("9lives").starts_with("_9lives_"));
    }

    proptest! {
        #[test]
        fn always_legal(name in ".{0,90}") {
            let wire = wire_name(&name);
            prop_assert!(!wire.is_empty() && wire.len() <= MOST);
            prop_assert!(wire.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
            prop_assert!(!wire.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
        }
    }
}

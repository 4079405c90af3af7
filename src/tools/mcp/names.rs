//! The names under which a server's tools are offered, and the selection of tools by name.

use crate::base::ids::sha256_hex;

/// The longest tool name that all model services accept, in characters.
const MOST: usize = 64;

/// `server__tool`, with characters that are not allowed replaced. A name that is too long ends with a digest. Two tools
/// whose names differ only in replaced characters get the same name; the second one is left out (`listing::chosen`).
pub fn tool_name(server: &str, tool: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let clean: String = tool.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    let name = format!("{server}__{clean}");
    if name.len() <= MOST {
        return name;
    }
    let digest = sha256_hex(&[tool.as_bytes()]);
    let room = MOST - 9;
    format!("{}_{}", &name[..room], &digest[..8])
}

/// Whether a recipe selects this tool. Patterns match the server's own names, exactly or with a trailing `*`; anything
/// in parentheses after a name is ignored.
pub fn wanted(tool: &str, include: Option<&[String]>, exclude: &[String]) -> bool {
    let fits = |pattern: &String| {
        let pattern = pattern.split('(').next().unwrap_or_default().trim();
        match pattern.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == pattern,
        }
    };
    include.is_none_or(|all| all.iter().any(fits)) && !exclude.iter().any(fits)
}

#[cfg(test)]
mod tests {
    use super::{tool_name, wanted};

    #[test]
    fn names_are_legal_and_stay_distinct() {
        assert_eq!(tool_name("docs", "search"), "docs__search");
        assert_eq!(tool_name("docs", "get.all files"), "docs__get_all_files");
        let (one, two) = (tool_name("s", &"x".repeat(70)), tool_name("s", &"x".repeat(71)));
        assert_eq!((one.len(), two.len()), (64, 64));
        assert_ne!(one, two);
    }

    #[test]
    fn exclude_wins() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(wanted("a", None, &[]));
        assert!(wanted("a", Some(&list(&["a(x)"])), &[]));
        assert!(!wanted("b", Some(&list(&["a"])), &[]));
        assert!(!wanted("get_a", Some(&list(&["get_*"])), &list(&["get_a"])));
    }
}

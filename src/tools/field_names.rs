//! What other agents call the tools that have another name here. For messages only: such a name is no alias.

/// Our name, and the others in lower case.
const NAMES: [(&str, &[&str]); 9] = [
    (
        "run_shell_command",
        &["bash", "shell", "local_shell", "execute_command", "execute_bash"],
    ),
    (
        "replace",
        &[
            "edit",
            "multiedit",
            "str_replace",
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "apply_patch",
            "replace_in_file",
            "edit_file",
        ],
    ),
    ("write_file", &["write", "write_to_file", "create_file"]),
    ("read_file", &["read"]),
    ("grep_search", &["grep", "search_files"]),
    ("glob", &["glob"]),
    ("list_directory", &["ls", "list_files", "list_dir"]),
    ("web_fetch", &["webfetch"]),
    ("write_todos", &["todowrite", "update_plan"]),
];

/// What a tool that others call `name` is called here. Letters may have any case.
pub fn meant(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let found = NAMES.iter().find(|(_, others)| others.contains(&lower.as_str()));
    found.map(|(ours, _)| *ours)
}

/// How a tool of a server is written here, if it is spelled as other agents do: `mcp__SERVER__TOOL`.
pub fn of_server(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("mcp__")?;
    rest.contains("__").then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{builtin_spec, builtin_specs};

    #[test]
    fn each_name_leads_to_a_tool_and_hides_none() {
        for (ours, others) in NAMES {
            assert!(builtin_spec(ours).is_some(), "{ours}");
            for other in others {
                assert_eq!(other.to_ascii_lowercase(), **other);
                let taken = builtin_specs().iter().find(|spec| spec.name == **other);
                assert!(taken.is_none_or(|spec| spec.name == ours), "{other}");
            }
        }
        assert_eq!(meant("Bash"), Some("run_shell_command"));
        assert_eq!(meant("read_file"), None);
        assert_eq!(of_server("mcp__docs__search"), Some("docs__search"));
        assert_eq!(of_server("mcp__search"), None);
    }
}

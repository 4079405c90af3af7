//! Finds a tool by what other agents call it. For messages only: such a name is no alias.

use super::other_names;

/// What a tool that others call `name` is called here. Letters may have any case.
pub fn meant(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let found = other_names().find(|(_, other)| other.agents.contains(&lower.as_str()));
    found.map(|(tool, _)| tool.name.as_str())
}

/// How a tool of a server is written here, if it is spelled as other agents do: `mcp__SERVER__TOOL`.
pub fn of_server(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("mcp__")?;
    rest.contains("__").then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::builtin_specs;

    #[test]
    fn each_name_leads_to_a_tool_and_hides_none() {
        for (tool, others) in other_names() {
            for other in others.agents {
                assert_eq!(other.to_ascii_lowercase(), **other);
                let taken = builtin_specs().iter().find(|spec| spec.name == **other);
                assert!(taken.is_none_or(|spec| spec.name == tool.name), "{other}");
                assert_eq!(meant(other), Some(tool.name.as_str()));
            }
        }
        assert_eq!(meant("Bash"), Some("run_shell_command"));
        assert_eq!(meant("read_file"), None);
        assert_eq!(of_server("mcp__docs__search"), Some("docs__search"));
        assert_eq!(of_server("mcp__search"), None);
    }
}

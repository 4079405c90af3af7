//! Which rules also decide what a command does: those for the built-in tool that does the same without a command.

use super::{Tool, builtin_specs, read_file, shell, web_fetch, write_file};
use crate::base::call::{ArgumentTarget, ToolSpec};
use std::sync::LazyLock;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAccessKind {
    /// It runs at all.
    Runs,
    /// It reads a file.
    Reads,
    /// It writes a file.
    Writes,
    /// It reaches a host.
    Fetches,
}

/// The built-in tool whose rules also decide this access of commands.
pub fn builtin_for(access: CommandAccessKind) -> &'static ToolSpec {
    static RUNS: LazyLock<ToolSpec> = LazyLock::new(|| shell::tool().spec().clone());
    static READS: LazyLock<ToolSpec> = LazyLock::new(|| read_file::tool().spec().clone());
    static WRITES: LazyLock<ToolSpec> = LazyLock::new(|| write_file::tool().spec().clone());
    static FETCHES: LazyLock<ToolSpec> = LazyLock::new(|| web_fetch::tool().spec().clone());
    match access {
        CommandAccessKind::Runs => &RUNS,
        CommandAccessKind::Reads => &READS,
        CommandAccessKind::Writes => &WRITES,
        CommandAccessKind::Fetches => &FETCHES,
    }
}

/// The built-in tools that write files: first the one whose rules also decide what commands write.
pub fn file_writers() -> impl Iterator<Item = &'static ToolSpec> {
    let first = builtin_for(CommandAccessKind::Writes);
    let others = builtin_specs()
        .iter()
        .filter(move |tool| tool.effects.touches == ArgumentTarget::WrittenFile && tool.name != first.name);
    std::iter::once(first).chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{SHELL, builtin_spec};

    #[test]
    fn each_access_has_a_tool_that_does_the_same() {
        for (access, touches) in [
            (CommandAccessKind::Runs, ArgumentTarget::Commands),
            (CommandAccessKind::Reads, ArgumentTarget::File),
            (CommandAccessKind::Writes, ArgumentTarget::WrittenFile),
            (CommandAccessKind::Fetches, ArgumentTarget::Urls),
        ] {
            let spec = builtin_for(access);
            assert_eq!(spec.effects.touches, touches);
            assert_eq!(builtin_spec(&spec.name), Some(spec));
        }
        assert_eq!(builtin_for(CommandAccessKind::Runs).name, SHELL);
    }

    /// Otherwise a rule that denies the tool a path would not deny it to commands.
    #[test]
    fn a_tool_that_reads_named_files_shows_contents() {
        for spec in builtin_specs() {
            let reads = matches!(spec.effects.touches, ArgumentTarget::File | ArgumentTarget::Patterns);
            assert!(!reads || spec.effects.shows_contents, "{}", spec.name);
        }
    }
}

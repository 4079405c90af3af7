//! Flags and commands of other tools, and what does the same here.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// Names that are not flags or commands of this program, and a hint for each.
const HINTS: [(&[&str], &str); 5] = [
    (
        &[
            "--yolo",
            "--full-auto",
            "--auto-approve",
            "--approval-mode",
            "--allowed-tools",
            "--dangerously-skip-permissions",
            "--dangerously-bypass-approvals-and-sandbox",
        ],
        "a policy gives the approvals: `--policy builtin:build`, or a file that `overnight init` writes",
    ),
    (
        &["--json", "--output-format", "--output", "-o"],
        "`--format json` prints the result as JSON; `--out DIR` names the run directory",
    ),
    (
        &["--headless", "--non-interactive", "--no-interactive"],
        "nothing here waits for a person; leave it out",
    ),
    (
        &["lint", "validate"],
        "`overnight policy check FILE` and `overnight recipe check FILE`",
    ),
    (&["exec", "-x"], "`overnight run -p PROMPT` or `overnight run RECIPE`"),
];

/// Replaces the suggestion of the parser, which only compares spelling, where the name is one of another tool.
pub fn improve(error: &mut Error) {
    let named = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let name = named.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.split('=').next().unwrap_or_default().to_owned()),
        _ => None,
    });
    let hint = name.and_then(|name| {
        let mut hints = HINTS.iter();
        hints
            .find(|(names, _)| names.contains(&name.as_str()))
            .map(|(_, hint)| *hint)
    });
    let Some(hint) = hint else { return };
    for kind in [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
        ContextKind::TrailingArg,
    ] {
        error.remove(kind);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
}

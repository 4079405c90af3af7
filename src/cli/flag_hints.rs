//! Flags and commands of other tools, and what does the same here.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names that are not flags or commands of this program, and a hint for each.
const HINTS: [(&[&str], &str); 22] = [
    (
        &[
            "--yolo",
            "-y",
            "--yes",
            "--yes-always",
            "--full-auto",
            "--auto-approve",
            "--ask-for-approval",
            "--approval-mode",
            "--permission-mode",
            "--allowed-tools",
            "--allowedTools",
            "--disallowed-tools",
            "--disallowedTools",
            "--dangerously-skip-permissions",
            "--dangerously-bypass-approvals-and-sandbox",
        ],
        "a policy gives the approvals: `--policy builtin:build`, or a file that `overnight init` writes",
    ),
    (
        &["--sandbox", "-s"],
        "commands are always confined; a policy says what they may do: `--policy builtin:read-only`, `builtin:edit` or `builtin:build`",
    ),
    (
        &["--json", "--output-format", "--output", "-o"],
        "`--format json` prints the result as JSON; `--out DIR` names the run directory",
    ),
    (
        &[
            "--headless",
            "--non-interactive",
            "--no-interactive",
            "--print",
            "--no-session",
        ],
        "nothing here waits for a person; leave it out",
    ),
    (
        &["--cd", "--cwd"],
        "`-C DIR` works as if started there; `--workspace DIR` names the tree to work on",
    ),
    (
        &["--add-dir", "--include-directories"],
        "a run works in one tree, which `--workspace DIR` names",
    ),
    (
        &[
            "-p",
            "--prompt",
            "-t",
            "--text",
            "--message",
            "--message-file",
            "-i",
            "--instructions",
        ],
        "`overnight run -p PROMPT`; the prompt is text, `@FILE` or `-` for stdin",
    ),
    (&["--recipe"], "a recipe has no flag: `overnight run RECIPE`"),
    (&["--params-file"], "`--params FILE`"),
    (
        &["--budget", "--max-budget-usd", "--max-price"],
        "`--max-cost USD`; other limits are `--max-tokens`, `--max-turns` and `--max-wall`",
    ),
    (
        &["--timeout", "--max-time", "--max-duration"],
        "`--max-wall TIME`, for example `--max-wall 20m`",
    ),
    (
        &["--provider"],
        "`--model PROVIDER/NAME` names both, for example `--model gemini/gemini-2.5-pro`",
    ),
    (
        &["--debug", "--log-level"],
        "`-v` prints more on stderr; the journal in the run directory has everything",
    ),
    (
        &["--resume", "--continue", "-r", "-c"],
        "`overnight resume --last`, or `overnight resume RUN`",
    ),
    (
        &["--mcp-config", "--with-extension", "--with-builtin", "mcp"],
        "a recipe names the servers, under `tools: { mcp_servers: … }`; `overnight tools list --recipe FILE` lists their tools",
    ),
    (
        &["--no-auto-commits", "--no-commit"],
        "nothing here commits: a run leaves a patch; leave it out",
    ),
    (
        &["lint", "validate", "check"],
        "`overnight policy check FILE` and `overnight recipe check FILE`",
    ),
    (&["exec", "-x"], "`overnight run -p PROMPT` or `overnight run RECIPE`"),
    (&["completion"], "`overnight completions SHELL`"),
    (
        &["models"],
        "`--model PROVIDER/NAME` takes any model of a service; `overnight run --help` says how",
    ),
    (
        &["list", "ls", "history"],
        "`overnight runs list` and `overnight recipe list`",
    ),
    (&["explain"], "`overnight policy explain POLICY --command STR`"),
];

/// The hint for a first word that is no command but a prompt or a recipe.
fn of_first_word(word: &str) -> Option<&'static str> {
    let ends = |end: &str| word.ends_with(end);
    if word.contains(char::is_whitespace) {
        Some("a prompt is given as `overnight run -p PROMPT`")
    } else if word.starts_with("builtin:") || ends(".yaml") || ends(".yml") {
        Some("a recipe is run as `overnight run RECIPE`")
    } else {
        None
    }
}

/// Replaces the suggestion of the parser, which only compares spelling, where the name is one of another tool.
pub fn improve(error: &mut Error) {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return;
    }
    let of = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.split('=').next().unwrap_or_default().to_owned()),
        _ => None,
    };
    let (flag, word) = (of(ContextKind::InvalidArg), of(ContextKind::InvalidSubcommand));
    if flag.is_some() {
        // The parser advises to write an unknown flag behind `--`, where it would be a recipe.
        error.remove(ContextKind::Suggested);
    }
    let known = |name: &String| {
        let mut hints = HINTS.iter();
        hints
            .find(|(names, _)| names.contains(&name.as_str()))
            .map(|(_, hint)| *hint)
    };
    let hint = flag.as_ref().or(word.as_ref()).and_then(known);
    let Some(hint) = hint.or_else(|| of_first_word(word.as_deref()?)) else {
        return;
    };
    for kind in [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ] {
        error.remove(kind);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
}

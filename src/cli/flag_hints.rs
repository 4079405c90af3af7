//! Flags and commands of other tools, and what does the same here; and what to write in place of options that exclude
//! each other.

use crate::policy::presets;
use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names that are not flags or commands of this program, and a hint for each.
const HINTS: &[(&[&str], &str)] = &[
    (
        &[
            "--yolo",
            "-y",
            "--yes",
            "--yes-always",
            "--full-auto",
            "--auto-approve",
            "--ask-for-approval",
            "-a",
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
        &["--sandbox", "-s", "--no-sandbox"],
        "commands are always confined; a policy says what they may do: `--policy builtin:read-only`, `builtin:edit` or `builtin:build`; its `sandbox: { level: … }` is the level",
    ),
    (
        &["--json", "--output-format", "--output", "-o"],
        "`--format json` prints the result as JSON, and `--out DIR` names the run directory; the answer is on stdout: `> FILE`",
    ),
    (
        &[
            "--headless",
            "--non-interactive",
            "--no-interactive",
            "--print",
            "--no-session",
            "--ci",
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
    (&["--var", "--set"], "`--param NAME=VALUE` is a parameter of the recipe"),
    (
        &["--env", "-e"],
        "commands get the variables that the policy names: `env: { pass: [NAME] }`",
    ),
    (
        &["--max-steps", "--max-iterations"],
        "`--max-turns N` limits the replies of the model",
    ),
    (&["--sarif"], "`overnight report RUN --format sarif`"),
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
        &["pr", "push"],
        "`overnight deliver RUN --to github` opens a pull request; `--to branch` makes a branch",
    ),
    (&["diff"], "`overnight report RUN --format patch`"),
    (
        &["cost", "usage"],
        "`overnight report RUN --format result` has the cost and the tokens of a run",
    ),
    (
        &["eval", "bench"],
        "`overnight batch MANIFEST` runs many jobs and counts what passed; `overnight compare A B` compares two batches",
    ),
    (
        &["new", "create"],
        "`overnight recipe new FILE` writes a recipe; `overnight init` also a policy",
    ),
    (
        &["serve", "server", "daemon"],
        "nothing here stays running: a timer or a CI engine starts `overnight run` or `overnight batch`",
    ),
    (
        &["list", "ls", "history"],
        "`overnight runs list` and `overnight recipe list`",
    ),
    (&["explain"], "`overnight policy explain POLICY --command STR`"),
    (
        &["--output-last-message"],
        "the answer is on stdout and nothing else: write `> FILE`",
    ),
    (
        &["--read", "--file", "-f", "--context", "--all-files"],
        "a model reads files by itself: name them in the prompt, or under `context` of a recipe",
    ),
    (
        &["--test-cmd", "--auto-test", "--lint-cmd", "--auto-lint"],
        "commands that must pass are `checks` of a recipe; `overnight init` writes one for the tests",
    ),
    (
        &["--auto-commits", "--commit"],
        "a run leaves a patch; `overnight deliver RUN` makes a branch or a pull request of it",
    ),
    (
        &["--report"],
        "`--junit FILE` writes JUnit; `overnight report RUN --format FORMAT` makes the other reports",
    ),
    (
        &["--max-cost"],
        "the limits of a batch are in the manifest: `budget: { cost: 2.00 }`",
    ),
    (
        &["--parallel", "--concurrency", "--workers", "-j"],
        "`overnight batch --jobs N` runs N jobs at the same time",
    ),
    (&["plan"], "`overnight run RECIPE --dry-run` shows what a run would do"),
    (
        &["apply"],
        "`git apply changes.patch` takes the patch of a run; `overnight deliver RUN` makes a branch or a pull request of it",
    ),
    (&["show"], "`overnight report RUN` and `overnight recipe show RECIPE`"),
    (&["version"], "`overnight --version`"),
    (
        &["--mode"],
        "a policy gives the approvals: `--policy builtin:build`, or a file that `overnight init` writes",
    ),
    (&["--worktree", "-w"], "`--isolate` works in a temporary git worktree"),
    (
        &["--no-isolate", "--in-place"],
        "a run works in place unless `--isolate` is given: leave it out",
    ),
    (
        &["--branch", "--pr", "--pull-request", "--push"],
        "a run leaves a patch; `overnight deliver RUN --to branch` makes a branch of it, `--to github` a pull request",
    ),
    (
        &["--retry", "--retries"],
        "a step of a recipe is tried again until its checks pass: `retry: { max: 2 }`",
    ),
    (
        &["--no-git", "--skip-git-repo-check"],
        "a directory needs no repository, and nothing is committed: leave it out",
    ),
    (
        &["--system-prompt", "--append-system-prompt", "--system"],
        "instructions are part of the prompt, or files that a recipe names: `context: [AGENTS.md]`; no file is read automatically",
    ),
    (
        &["--profile", "--config", "config", "configure"],
        "a recipe names model, policy and limits; variables such as OVERNIGHT_MODEL are defaults of flags",
    ),
    (
        &["--image"],
        "a model reads files by itself: name the picture in the prompt",
    ),
    (
        &["--temperature", "--top-p", "--seed", "--effort", "--reasoning-effort"],
        "a model's own default applies; `model_settings` of a recipe has what can be set",
    ),
    (
        &[
            "--api-key",
            "--key",
            "--openai-api-key",
            "--anthropic-api-key",
            "--gemini-api-key",
            "login",
            "auth",
        ],
        "keys are read from the environment; `overnight doctor` names the variables",
    ),
    (
        &["--network", "--allow-net", "--allow", "--deny"],
        "a policy says so: `sandbox: { network: [HOST] }`, `rules: [{ allow: TOOL }]`",
    ),
    (
        &["approve", "deny"],
        "`overnight resume RUN --approve CALL@DIGEST` or `--deny CALL`; `suspension.md` of the run has the command",
    ),
    (
        &["replay"],
        "`overnight run RECIPE --model replay:RUN` plays the replies of a run again",
    ),
    (&["suggest"], "`overnight policy suggest RUN`"),
    (&["verify"], "`overnight runs verify RUN`"),
    (
        &["status", "logs", "session", "sessions"],
        "`overnight runs list` and `overnight report RUN`; the journal in the run directory has everything",
    ),
    (
        &["test"],
        "`overnight recipe test FILE` and `overnight policy test FILE --cases CASES`",
    ),
    (
        &["update", "upgrade"],
        "the program does not update itself: install the new version in the same way as this one",
    ),
    (&["--fallback-model"], "a recipe names several models: `model: [A, B]`"),
    (
        &["--session-id"],
        "a run gets an id of its own; `--out DIR` names its directory",
    ),
    (
        &["--agents"],
        "a recipe has steps, each with its own prompt: `steps: [{ id: ID, prompt: … }]`",
    ),
    (&["--render-recipe"], "`overnight recipe show RECIPE`"),
    (
        &["--openai-api-base"],
        "`--base-url URL` is the address of the model's service",
    ),
    (
        &["--weak-model", "--architect", "--edit-format"],
        "a run has one model, which uses the tools: leave it out",
    ),
    (
        &["--oss"],
        "a local server speaks OpenAI's protocol: `--model openai/NAME --base-url http://localhost:11434/v1`",
    ),
    (
        &["--ephemeral"],
        "every run is recorded; `overnight runs prune --keep N` removes old ones",
    ),
    (
        &["-m", "--model"],
        "it belongs to a run: `overnight run -p PROMPT -m PROVIDER/NAME`",
    ),
    (
        &["-v"],
        "`overnight --version` prints the version; `overnight run -v` prints more on stderr",
    ),
];

/// Names that mean something else behind one command, or that only there are not known: the command, the names and a hint.
const OF_COMMAND: &[(&str, &[&str], &str)] = &[
    (
        "batch",
        &["--max-wall", "--max-tokens", "--max-turns"],
        "the limits of a batch are in the manifest: `budget: { wall: 2h, tokens: 2000000 }`; those of each run are in the recipe",
    ),
    (
        "batch",
        &["--resume", "--continue", "-r", "-c"],
        "the same command continues a batch",
    ),
    (
        "batch",
        &["--retry", "--retries"],
        "the manifest says which jobs are tried again: `retry: { on: [provider], max: 2 }`",
    ),
    (
        "init",
        &["--force", "-f", "--overwrite"],
        "`init` overwrites nothing: delete the file first",
    ),
    ("run", &["--last"], "`overnight resume --last` continues the newest run"),
    (
        "run",
        &["-c"],
        "`overnight resume --last` continues a run; a setting has a flag of its own, such as `--model PROVIDER/NAME`",
    ),
    (
        "run",
        &["--search", "--web-search"],
        "web search is a tool that a policy allows; `overnight tools list` shows its name",
    ),
    (
        "run",
        &["--settings"],
        "a recipe names the settings with the servers of its tools: `tools: { settings: FILE }`",
    ),
    ("run", &["--bare"], "no file is read automatically: leave it out"),
    (
        "run",
        &["--list"],
        "`overnight recipe list` lists the recipes, `overnight runs list` the runs",
    ),
    (
        "recipe doc",
        &["--format", "--json"],
        "the page is Markdown; `overnight recipe show FILE --format json` prints the plan as JSON",
    ),
    (
        "run",
        &["--max-tool-repetitions"],
        "a policy limits the calls of a tool: `limits: { calls: { TOOL: 40 } }`",
    ),
    ("run", &["--explain"], "`overnight recipe show RECIPE`"),
    ("recipe", &["run"], "`overnight run RECIPE`"),
    ("recipe", &["explain"], "`overnight recipe show FILE`"),
    (
        "policy",
        &["show"],
        "`overnight policy check FILE` prints a policy in words",
    ),
    (
        "policy",
        &["new", "init"],
        "`overnight init` writes a policy and a recipe",
    ),
    (
        "runs",
        &["rm", "delete", "remove", "clean"],
        "`overnight runs prune --keep N` removes all but the newest runs",
    ),
];

/// What to write in place of a parameter of a prompt.
const NO_PARAMETERS: &str = "a prompt has no parameters: write the values into it, or run a recipe";

/// Pairs of options that exclude each other, as the parser names them, and what to write instead.
const CONFLICTS: &[([&str; 2], &str)] = &[
    (
        ["[RECIPE]", "--prompt"],
        "a run has a recipe or a prompt; leave one of the two out",
    ),
    (
        ["[RECIPE]", "--stdin"],
        "`--stdin` belongs to `-p`; a recipe takes stdin as its input: `--input -`",
    ),
    (
        ["[RECIPE]", "--output-schema"],
        "`--output-schema` belongs to `-p`; a recipe names the schema itself: `response: { schema: FILE }`",
    ),
    (["--prompt", "--param"], NO_PARAMETERS),
    (["--prompt", "--params"], NO_PARAMETERS),
    (
        ["--args", "--command"],
        "`--command` is a shell command; the arguments of a tool are given as `--tool NAME --args JSON`",
    ),
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

/// The hint for a word behind a command that takes no more of them. `command`: its names, such as `policy explain`.
fn of_extra_word(command: &str, word: &str) -> Option<&'static str> {
    let is_file = [".yaml", ".yml", ".md", ".toml"].iter().any(|end| word.ends_with(end));
    match command {
        "run" if is_file => Some("a run has one recipe; `overnight batch MANIFEST` runs many"),
        "run" => Some("quote what has blanks: `overnight run -p \"fix the tests\"`, `--param \"command=npm test\"`"),
        "policy explain" => Some("a shell command is given as `--command \"COMMAND\"`"),
        _ => None,
    }
}

/// The hint for options that exclude each other.
fn of_conflict(error: &Error) -> Option<&'static str> {
    let mut names = strings(error, ContextKind::InvalidArg);
    names.extend(strings(error, ContextKind::PriorArg));
    let manifest = names.iter().any(|name| name == "<MANIFEST>");
    if !strings(error, ContextKind::InvalidSubcommand).is_empty() {
        return manifest.then_some(
            "a batch has one manifest, which lists all jobs; `overnight batch MANIFEST --dry-run` checks it",
        );
    }
    let has = |one: &str| {
        let is_that = |name: &String| name.split([' ', '=']).next() == Some(one);
        names.iter().any(is_that)
    };
    let found = CONFLICTS.iter().find(|(pair, _)| pair.iter().all(|one| has(one)));
    found.map(|(_, hint)| *hint)
}

/// The hint for a value that an option does not take.
fn of_value(error: &Error) -> Option<&'static str> {
    let option = strings(error, ContextKind::InvalidArg).pop()?;
    let value = strings(error, ContextKind::InvalidValue).pop()?;
    match (option.split(' ').next()?, value.as_str()) {
        ("--format", "junit") => Some("`--junit FILE` writes JUnit beside what is printed"),
        ("--format", "json") => Some("did you mean `result`? It is the result of the run as JSON"),
        ("--jobs", "auto") => Some("leave the option out for as many jobs as there are CPUs"),
        _ => None,
    }
}

/// The names that the parser gives for a part of its message.
fn strings(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    }
}

/// The names of the command that was called, such as `policy explain`, as the usage line begins; empty without one.
fn command_of(error: &Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let is_name = |word: &&str| word.chars().all(|one| one.is_ascii_lowercase());
    let words = usage.split_whitespace().skip_while(|word| *word != "overnight");
    words.skip(1).take_while(is_name).collect::<Vec<_>>().join(" ")
}

/// The hint for a flag or command that is not known.
fn of_unknown(error: &Error) -> Option<String> {
    let first = |kind: ContextKind| {
        let name = strings(error, kind).into_iter().next()?;
        Some(name.split('=').next().unwrap_or_default().to_owned())
    };
    let (flag, word) = (first(ContextKind::InvalidArg), first(ContextKind::InvalidSubcommand));
    let command = command_of(error);
    if let Some(extra) = flag.as_deref().filter(|flag| !flag.starts_with('-')) {
        return of_extra_word(&command, extra).map(ToOwned::to_owned);
    }
    let name = flag.as_deref().or(word.as_deref())?;
    if command == "policy" && matches!(name, "list" | "ls") {
        let presets: Vec<&str> = presets::names().collect();
        return Some(format!(
            "a policy is a file or one of this program: {}",
            presets.join(", ")
        ));
    }
    let here = OF_COMMAND
        .iter()
        .find(|(of, names, _)| *of == command && names.contains(&name))
        .map(|(.., hint)| *hint);
    let known = HINTS.iter().find(|(names, _)| names.contains(&name));
    let hint = here
        .or_else(|| known.map(|(_, hint)| *hint))
        .or_else(|| of_first_word(word.as_deref()?));
    hint.map(ToOwned::to_owned)
}

/// Replaces the suggestion of the parser, which only compares spelling, where the name is one of another tool, and adds one
/// where options exclude each other.
pub fn improve(error: &mut Error) {
    let hint = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            if !strings(error, ContextKind::InvalidArg).is_empty() {
                // The parser advises to write an unknown flag behind `--`, where it would be a recipe.
                error.remove(ContextKind::Suggested);
            }
            of_unknown(error)
        }
        ErrorKind::ArgumentConflict => of_conflict(error).map(ToOwned::to_owned),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => of_value(error).map(ToOwned::to_owned),
        _ => None,
    };
    let Some(hint) = hint else {
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

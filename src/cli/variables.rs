//! The environment variables that replace flags, and the list of all variables that this program reads, for the manual.

use super::args::{RunArgs, RunFlags, StdoutFormat, dollars, positive, time_limit};
use super::refusal::Refusal;
use super::{environment, out};
use crate::diag::similar_word;
use clap::ValueEnum;
use std::path::PathBuf;

/// Reads the number of a limit as its flag does.
type ReadNumber = fn(&str) -> Result<u64, String>;

/// Every variable that changes the behaviour of this program, with its purpose. The manual prints this list.
pub const ALL: [(&str, &str); 32] = [
    (
        "OVERNIGHT_MODEL, OVERNIGHT_BASE_URL",
        "Defaults for --model and --base-url.",
    ),
    ("OVERNIGHT_POLICY", "Default for --policy; one file or name."),
    ("OVERNIGHT_WORKSPACE", "Default for --workspace of `run` and `resume`."),
    ("OVERNIGHT_FORMAT", "Default for --format of `run` and `resume`."),
    (
        "OVERNIGHT_OUT, OVERNIGHT_PATCH, OVERNIGHT_JUNIT, OVERNIGHT_TRANSCRIPT",
        "Defaults for the flags of these names.",
    ),
    (
        "OVERNIGHT_MAX_TURNS, OVERNIGHT_MAX_TOKENS, OVERNIGHT_MAX_COST, OVERNIGHT_MAX_WALL",
        "Defaults for the flags of these names.",
    ),
    ("OVERNIGHT_GITHUB", "Default for --github: 1 turns it on, 0 off."),
    (
        "GITHUB_OUTPUT, GITHUB_STEP_SUMMARY",
        "The files that --github appends the outputs and the summary of a step to.",
    ),
    (
        "OVERNIGHT_RECIPE_DIR, OVERNIGHT_INPUT",
        "Not read but set, for the commands of a recipe: the read-only directory of the files beside the recipe, and the input as a \
         file.",
    ),
    (
        "OVERNIGHT_PRICES",
        "A JSON file with prices and context windows of models, which overrides the built-in table: [{\"model\": \"PROVIDER/NAME\", \
         \"price\": {\"input\": USD, \"output\": USD}, \"window\": TOKENS}], prices for a million tokens.",
    ),
    (
        "OVERNIGHT_JOURNAL_KEY",
        "A key of 16 bytes or more: journal and result are authenticated with HMAC-SHA256.",
    ),
    (
        "OVERNIGHT_SEARXNG_URL",
        "The SearXNG server for google_web_search; preferred to the model's own search.",
    ),
    (
        "OVERNIGHT_SEARCH_COMMAND",
        "The shell command for google_web_search, if no SearXNG server is set; preferred to the model's own search.",
    ),
    ("GEMINI_API_KEY, GOOGLE_API_KEY", "The key of gemini/… models."),
    ("OPENAI_API_KEY", "The key of openai/… and openai-responses/… models."),
    ("ANTHROPIC_API_KEY", "The key of anthropic/… models."),
    (
        "GOOGLE_GEMINI_BASE_URL, OPENAI_BASE_URL, ANTHROPIC_BASE_URL",
        "The base URL of a service; --base-url has precedence.",
    ),
    (
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        "The proxy for requests to model services and servers.",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT and the other OTEL_ variables",
        "Where the spans of a run are sent, in a build with the feature `otel`.",
    ),
    (
        "AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and the other AWS_, GOOGLE_ and AZURE_ variables",
        "Credentials and settings of the object store that --out of `batch` or an argument of `merge` names, in a build with \
         the feature `cloud`.",
    ),
    (
        "XDG_STATE_HOME",
        "Where heads of journals are kept (default: ~/.local/state), in overnight/.",
    ),
    (
        "XDG_DATA_HOME",
        "Where saved memory is kept (default: ~/.local/share), in overnight/.",
    ),
    (
        "NO_COLOR, TERM",
        "Turn colour off when NO_COLOR is set or TERM is `dumb`.",
    ),
    (
        "GITHUB_ACTIONS, GITLAB_CI, TEAMCITY_VERSION, TF_BUILD",
        "If one is set, untrusted text on stdout and stderr is escaped for the log of that CI system.",
    ),
    (
        "GITHUB_BASE_REF, CI_MERGE_REQUEST_TARGET_BRANCH_NAME and similar",
        "The branch that a change is to be merged into, for `git:REV:PATH`.",
    ),
    ("HOME", "The parent of the default directories above."),
    ("PATH", "Where programs of steps and commands are looked up."),
    ("TMPDIR", "Where the private temporary directory of a run is created."),
    ("LANG, LC_ALL", "Passed on to commands."),
    (
        "CARGO_HOME, RUSTUP_HOME, GOPATH and similar",
        "Directories of toolchains that commands may read.",
    ),
    (
        "COMPLETE",
        "Set by completion scripts; the program then prints candidates.",
    ),
    ("COLUMNS", "The width of help texts."),
];

/// Variables with the same prefix of the templates for CI systems and of the packages, and those of a batch for its runs.
const OF_OTHERS: [&str; 9] = [
    "RECIPE",
    "ARGS",
    "DIR",
    "ARCHIVE",
    "SHA256",
    "TO",
    "SOURCE",
    "REQUEST_GATE",
    "BATCH_SOURCE",
];

/// Warnings about variables that begin with `OVERNIGHT_` and that nothing reads: a limit that was misspelled is no limit.
pub fn unknown() -> Vec<String> {
    let known = || {
        let names = ALL.iter().flat_map(|(names, _)| names.split(", "));
        names.filter(|name| name.starts_with("OVERNIGHT_"))
    };
    let is_known = |name: &str| {
        let rest = name.trim_start_matches("OVERNIGHT_");
        known().any(|known| known == name) || OF_OTHERS.contains(&rest)
    };
    let mut unknown: Vec<String> = environment::variables().into_iter().map(|(name, _)| name).collect();
    unknown.retain(|name| name.starts_with("OVERNIGHT_") && !is_known(name));
    unknown.sort();
    let said = |name: String| {
        let meant = match similar_word(&name, known()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`overnight man` lists the variables".to_owned(),
        };
        format!("warning[unknown-variable]: {name} is set and has no meaning; {meant}")
    };
    unknown.into_iter().map(said).collect()
}

/// The value of a variable of this program; empty counts as unset, because CI systems set variables without a value to
/// empty.
fn set(name: &str) -> Result<Option<String>, Refusal> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Refusal::Usage(format!("{name} is not UTF-8"))),
    }
}

/// The value of a variable, parsed like its flag.
fn read<T>(name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Refusal> {
    match set(name)? {
        None => Ok(None),
        Some(text) => read(&text)
            .map(Some)
            .map_err(|why| Refusal::Usage(format!("{name}={text}: {why}"))),
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

/// The output format from the environment; an invalid value is reported later, together with the flags.
pub fn format() -> Option<StdoutFormat> {
    set("OVERNIGHT_FORMAT")
        .ok()
        .flatten()
        .and_then(|text| StdoutFormat::from_str(&text, true).ok())
}

/// Whether `--github` or its variable asks for the outputs of a step of GitHub Actions.
///
/// # Errors
/// The variable is neither on nor off.
pub fn github(flag: bool) -> Result<bool, Refusal> {
    let asked = read("OVERNIGHT_GITHUB", |text| match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write 1 or 0".to_owned()),
    })?;
    Ok(flag || asked.unwrap_or(false))
}

/// Sets the options that no flag sets. Flags have precedence.
///
/// # Errors
/// A value that its flag would refuse.
pub fn fill(shared: &mut RunFlags) -> Result<(), Refusal> {
    unknown().iter().for_each(|warning| out::stderr(warning));
    let text = |text: &str| Ok(text.to_owned());
    let or = |given: &mut Option<PathBuf>, name: &str| -> Result<(), Refusal> {
        if given.is_none() {
            *given = read(name, path)?;
        }
        Ok(())
    };
    if shared.policy.is_empty() {
        shared.policy.extend(set("OVERNIGHT_POLICY")?);
    }
    if shared.model.is_none() {
        shared.model = read("OVERNIGHT_MODEL", text)?;
    }
    if shared.base_url.is_none() {
        shared.base_url = read("OVERNIGHT_BASE_URL", text)?;
    }
    or(&mut shared.workspace, "OVERNIGHT_WORKSPACE")?;
    or(&mut shared.patch, "OVERNIGHT_PATCH")?;
    or(&mut shared.junit, "OVERNIGHT_JUNIT")?;
    or(&mut shared.transcript, "OVERNIGHT_TRANSCRIPT")?;
    if shared.format.is_none() {
        shared.format = read("OVERNIGHT_FORMAT", |text| {
            StdoutFormat::from_str(text, true).map_err(|_| "write text, json or stream-json".to_owned())
        })?;
    }
    shared.github = github(shared.github)?;
    let limits: [(&mut Option<u64>, &str, ReadNumber); 4] = [
        (&mut shared.max_turns, "OVERNIGHT_MAX_TURNS", positive),
        (&mut shared.max_tokens, "OVERNIGHT_MAX_TOKENS", positive),
        (&mut shared.max_cost, "OVERNIGHT_MAX_COST", dollars),
        (&mut shared.max_wall, "OVERNIGHT_MAX_WALL", time_limit),
    ];
    for (limit, name, parse) in limits {
        if limit.is_none() {
            *limit = read(name, parse)?;
        }
    }
    Ok(())
}

/// The wall-clock limit that the variable sets for the runs of a batch, in milliseconds. A wrong value is none here: each run
/// refuses it.
pub fn max_wall() -> Option<u64> {
    read("OVERNIGHT_MAX_WALL", time_limit).ok().flatten()
}

/// Like [`fill`], for `run`. A sample has its own tree, model and policy, so these variables are ignored.
///
/// # Errors
/// As [`fill`].
pub fn fill_run(args: &mut RunArgs) -> Result<(), Refusal> {
    if args.out.is_none() {
        args.out = read("OVERNIGHT_OUT", path)?;
    }
    let (model, workspace, policy) = (
        args.shared.model.clone(),
        args.shared.workspace.clone(),
        args.shared.policy.clone(),
    );
    fill(&mut args.shared)?;
    if args.sample {
        args.shared.model = model;
        args.shared.workspace = workspace;
        args.shared.policy = policy;
    }
    Ok(())
}

//! The environment variables that replace flags, and the list of all variables that this program reads, for the manual.

use super::args::{RunArgs, RunFlags, StdoutFormat, dollars, positive, time_limit};
use super::refusal::Refusal;
use super::{environment, out};
use crate::base::budget::Budget;
use crate::diag::similar_word;
use clap::{CommandFactory, ValueEnum};
use std::path::PathBuf;

/// Reads the number of a limit as its flag does.
type ReadNumber = fn(&str) -> Result<u64, String>;

/// The variables of the limits, in the order turns, tokens, cost and wall clock, and how each is read.
const LIMITS: [(&str, ReadNumber); 4] = [
    ("OVERNIGHT_MAX_TURNS", positive),
    ("OVERNIGHT_MAX_TOKENS", positive),
    ("OVERNIGHT_MAX_COST", dollars),
    ("OVERNIGHT_MAX_WALL", time_limit),
];

/// Every variable that changes the behaviour of this program, with its purpose. The manual prints this list.
pub const ALL: [(&str, &str); 43] = [
    (
        "OVERNIGHT_MODEL, OVERNIGHT_BASE_URL",
        "Defaults for --model and --base-url; for `batch`, OVERNIGHT_MODEL is the default where the manifest names no model.",
    ),
    (
        "OVERNIGHT_POLICY",
        "Default for --policy of `run`, `resume`, `batch`, `deliver` and `tools call`; one file or name. In `deliver` it applies in \
         addition to the policies of the run.",
    ),
    ("OVERNIGHT_WORKSPACE", "Default for --workspace of `run` and `resume`."),
    ("OVERNIGHT_FORMAT", "Default for --format of `run` and `resume`."),
    (
        "OVERNIGHT_OUT, OVERNIGHT_PATCH, OVERNIGHT_JUNIT, OVERNIGHT_TRANSCRIPT",
        "Defaults for the flags of these names of `run` and, but for --out, of `resume`; OVERNIGHT_OUT also that of `batch`.",
    ),
    (
        "OVERNIGHT_MAX_TURNS, OVERNIGHT_MAX_TOKENS, OVERNIGHT_MAX_COST, OVERNIGHT_MAX_WALL",
        "Defaults for the flags of these names of `run` and `resume`, also in the runs of a batch.",
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
        "OTEL_EXPORTER_OTLP_ENDPOINT, TRACEPARENT and the other OTEL_ variables",
        "Where the spans of a run are sent, and their parent, in a build with the feature `otel`.",
    ),
    (
        "AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, AZURITE_BLOB_STORAGE_URL and the other AWS_, \
         GOOGLE_ and AZURE_ variables",
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
        "XDG_CACHE_HOME",
        "Where the homes of commands and the mirrors of a batch are kept (default: ~/.cache), in overnight/.",
    ),
    (
        "XDG_CONFIG_HOME",
        "Where git's settings of the user are looked up (default: ~/.config), in git/.",
    ),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "Root certificates for TLS instead of those of the machine, besides the bundled ones.",
    ),
    (
        "GITHUB_TOKEN, GH_TOKEN, GITLAB_TOKEN, FORGEJO_TOKEN",
        "The token of the forge that `deliver --to` names.",
    ),
    (
        "GITHUB_API_URL, CI_API_V4_URL",
        "The address of the forge's API for `deliver`; --api-url has precedence.",
    ),
    (
        "GIT_AUTHOR_NAME, GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME, GIT_COMMITTER_EMAIL, GIT_ASKPASS, GIT_SSH, GIT_SSH_COMMAND, \
         GIT_SSH_VARIANT, GIT_CONFIG_GLOBAL, GIT_CONFIG_SYSTEM, GIT_CONFIG_NOSYSTEM, GIT_CONFIG_COUNT and the other GIT_SSL_, \
         GIT_CONFIG_KEY_ and GIT_CONFIG_VALUE_ variables",
        "Identity, transport and settings for the git with which `deliver` reaches other repositories. Other variables \
         of git have no effect there.",
    ),
    (
        "GIT_WORK_TREE",
        "A tree from which no program is started outside the sandbox.",
    ),
    (
        "CI_NODE_INDEX, CI_NODE_TOTAL, BUILDKITE_PARALLEL_JOB, BUILDKITE_PARALLEL_JOB_COUNT, CIRCLE_NODE_INDEX, CIRCLE_NODE_TOTAL, \
         BITBUCKET_PARALLEL_STEP, BITBUCKET_PARALLEL_STEP_COUNT, SEMAPHORE_JOB_INDEX, SEMAPHORE_JOB_COUNT, \
         SYSTEM_JOBPOSITIONINPHASE, SYSTEM_TOTALJOBSINPHASE, AWS_BATCH_JOB_ARRAY_INDEX, AWS_BATCH_JOB_ARRAY_SIZE, \
         CLOUD_RUN_TASK_INDEX, CLOUD_RUN_TASK_COUNT, SLURM_ARRAY_TASK_ID, SLURM_ARRAY_TASK_COUNT, SLURM_ARRAY_TASK_MIN, \
         SLURM_ARRAY_TASK_STEP, HQ_TASK_ID, JOB_COMPLETION_INDEX, NOMAD_ALLOC_INDEX, PARALLEL_SEQ, PBS_ARRAY_INDEX",
        "The number of a task, for `batch --shard auto`.",
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
        "GITHUB_BASE_REF, CI_MERGE_REQUEST_TARGET_BRANCH_NAME, CI_DEFAULT_BRANCH, CHANGE_TARGET, BITBUCKET_PR_DESTINATION_BRANCH, \
         SYSTEM_PULLREQUEST_TARGETBRANCH, GITHUB_EVENT_PATH",
        "The branch that a change is to be merged into, and the event that names the default branch: commits of these branches are \
         trusted for `git:REV:PATH`.",
    ),
    (
        "GITHUB_EVENT_NAME, GITHUB_HEAD_REF, CI_MERGE_REQUEST_TITLE, BITBUCKET_PR_ID, CI_JOB_TOKEN, GITEA_TOKEN, BITBUCKET_TOKEN",
        "With GITHUB_EVENT_PATH and the tokens above: whether text of strangers and a token with write access are in one job, which \
         is warned of.",
    ),
    ("HOME", "The parent of the default directories above."),
    ("PATH", "Where programs of steps and commands are looked up."),
    ("TMPDIR", "Where the private temporary directory of a run is created."),
    (
        "PWD",
        "How the current directory is named in paths, where links lead to it.",
    ),
    (
        "CARGO_HOME, RUSTUP_HOME, RUSTUP_TOOLCHAIN, NVM_DIR, VOLTA_HOME, FNM_DIR, N_PREFIX, BUN_INSTALL, PNPM_HOME, \
         npm_config_cache, PYENV_ROOT, PYTHONUSERBASE, PIP_CACHE_DIR, UV_CACHE_DIR, POETRY_CACHE_DIR, GOPATH, GOMODCACHE, GOROOT, \
         GOCACHE, GOPROXY, GRADLE_USER_HOME, SDKMAN_DIR, JAVA_HOME",
        "Directories and settings of the toolchains that a policy names, which commands may use.",
    ),
    (
        "VIRTUAL_ENV",
        "The virtual environment that is active: its programs in the workspace are not written.",
    ),
    (
        "CONDA_PREFIX, CONDA_DEFAULT_ENV",
        "The environment of Conda that is active: a warning says if commands do not see it. `base` does not count.",
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

/// Warns on stderr of variables that nothing reads.
pub fn warn_unknown() {
    unknown().iter().for_each(|warning| out::stderr(warning));
}

/// Warnings about variables that begin with `OVERNIGHT_` and that nothing reads: a limit that was misspelled is no limit.
fn unknown() -> Vec<String> {
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
    if unknown.is_empty() {
        return unknown;
    }
    unknown.sort();
    let command = super::args::Cli::command();
    let flags: Vec<&str> = command
        .find_subcommand("run")
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter_map(clap::Arg::get_long)
        .collect();
    let said = |name: String| {
        let flag = name.trim_start_matches("OVERNIGHT_").to_lowercase().replace('_', "-");
        if flags.contains(&flag.as_str()) {
            return format!("warning[unknown-variable]: {name} is set and has no meaning; `--{flag}` has no variable");
        }
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

/// The policies of `--policy`, or the one of its variable.
///
/// # Errors
/// The variable is not UTF-8.
pub fn policies(given: &[String]) -> Result<Vec<String>, Refusal> {
    match given.is_empty() {
        true => Ok(set("OVERNIGHT_POLICY")?.into_iter().collect()),
        false => Ok(given.to_vec()),
    }
}

/// The model of its variable.
///
/// # Errors
/// The variable is not UTF-8.
pub fn model() -> Result<Option<String>, Refusal> {
    set("OVERNIGHT_MODEL")
}

/// Sets the options that no flag sets. Flags have precedence. Warns of variables that nothing reads.
///
/// # Errors
/// A value that its flag would refuse.
pub fn fill(shared: &mut RunFlags) -> Result<(), Refusal> {
    warn_unknown();
    let or = |given: &mut Option<PathBuf>, name: &str| -> Result<(), Refusal> {
        if given.is_none() {
            *given = read(name, path)?;
        }
        Ok(())
    };
    shared.policy = policies(&shared.policy)?;
    if shared.model.is_none() {
        shared.model = model()?;
    }
    if shared.base_url.is_none() {
        shared.base_url = set("OVERNIGHT_BASE_URL")?;
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
    let limits = [
        &mut shared.max_turns,
        &mut shared.max_tokens,
        &mut shared.max_cost,
        &mut shared.max_wall,
    ];
    for (limit, (name, parse)) in limits.into_iter().zip(LIMITS) {
        if limit.is_none() {
            *limit = read(name, parse)?;
        }
    }
    Ok(())
}

/// The limits that the variables set, for each run of a batch.
///
/// # Errors
/// A value that its flag would refuse.
pub fn limits() -> Result<Budget, Refusal> {
    let mut limits = [None; 4];
    for (limit, (name, parse)) in limits.iter_mut().zip(LIMITS) {
        *limit = read(name, parse)?;
    }
    let [turns, tokens, cost_micros, wall_ms] = limits;
    Ok(Budget {
        turns,
        tokens,
        cost_micros,
        wall_ms,
        ..Budget::default()
    })
}

/// The directory of its variable, for a run or a batch.
///
/// # Errors
/// The variable is not UTF-8.
pub fn out_dir() -> Result<Option<PathBuf>, Refusal> {
    read("OVERNIGHT_OUT", path)
}

/// Like [`fill`], for `run`. A sample has its own tree, model and policy, so these variables are ignored.
///
/// # Errors
/// As [`fill`].
pub fn fill_run(args: &mut RunArgs) -> Result<(), Refusal> {
    if args.out.is_none() {
        args.out = out_dir()?;
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

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::batch::supervisor::EMPTIED;
    use std::collections::BTreeSet;

    /// A variable of a flag that a batch does not empty would reach all of its jobs, unseen by its plan.
    #[test]
    fn a_batch_empties_the_variables_that_replace_flags() {
        // A batch has no flag for the first, and the second has no effect beside `--workspace`.
        let passed_on = ["OVERNIGHT_BASE_URL", "OVERNIGHT_WORKSPACE"];
        let defaults = ALL.iter().filter(|(_, what)| what.starts_with("Default"));
        let names = defaults.flat_map(|(names, _)| names.split(", "));
        let replaced: BTreeSet<&str> = names.filter(|name| !passed_on.contains(name)).collect();
        assert_eq!(replaced, BTreeSet::from(EMPTIED));
    }
}

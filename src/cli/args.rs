//! The command line as it was typed. Parses; looks at nothing else.

use crate::report::export::Format as Output;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs an AI agent on a repository with nobody watching.
#[derive(Debug, Parser)]
#[command(name = "overnight", version, about, after_help = super::exit::TABLE, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One run to completion
    Run(Box<RunArgs>),
    /// Go on with a suspended, killed or failed run from its journal
    Resume(Box<ResumeArgs>),
    /// Make any output again from the journal
    Report(ReportArgs),
    /// Bring the patch of a run, or of a batch's runs, onto a branch or into a merge request
    Deliver(Box<DeliverArgs>),
    /// Check, test and explain policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Check, show and test recipes
    #[command(subcommand)]
    Recipe(RecipeCommand),
    /// The tools as the model sees them, and one call
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// List, verify and prune runs
    Runs(RunsArgs),
    /// What this machine can confine, and what about this checkout is dangerous
    Doctor(DoctorArgs),
    /// Print a completion script
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
    /// One MCP server, every tool once
    #[command(hide = true)]
    McpProbe { url: String },
}

/// How stdout is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The final answer
    #[default]
    Text,
    /// One result object
    Json,
    /// One event a line, the result object last
    StreamJson,
}

/// Flags that `run` and `resume` share.
#[derive(Clone, Debug, Default, Args)]
pub struct Shared {
    /// Policy file, `builtin:NAME`, `git:REV:PATH` or `-` for stdin; all that are given must agree
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,
    /// `recipe`: believe the recipe wherever it comes from (its servers, hosts and variables)
    #[arg(long, value_enum, value_name = "WHAT")]
    pub trust: Vec<Trusted>,
    /// PROVIDER/NAME, `script:FILE` or `replay:RUN`
    #[arg(long, value_name = "PROVIDER/NAME")]
    pub model: Option<String>,
    /// Base URL of the model service, as the vendor's own clients take it
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The tree to work on (default: the current directory; for a resume, where the run began)
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Also write the patch here
    #[arg(long, value_name = "FILE")]
    pub patch: Option<PathBuf>,
    /// Also write the JUnit report here
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the transcript here
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Replies asked of the model
    #[arg(long, value_name = "N")]
    pub max_turns: Option<u64>,
    /// Input and output tokens together
    #[arg(long, value_name = "N", value_parser = whole)]
    pub max_tokens: Option<u64>,
    /// US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<u64>,
    /// Wall clock of everything, as `90s`, `20m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_wall: Option<u64>,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// Nothing on stdout: for commands that make runs of their own
    #[arg(skip)]
    pub silent: bool,
    /// More on stderr
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What the command line vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trusted {
    /// The recipe
    Recipe,
}

impl Shared {
    /// Whether `--trust recipe` was given.
    pub fn trusts_recipe(&self) -> bool {
        self.trust.contains(&Trusted::Recipe)
    }
}

/// `overnight run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Recipe: a file, `git:REV:PATH`, or `-` for stdin
    #[arg(required_unless_present = "prompt")]
    pub recipe: Option<PathBuf>,
    /// A prompt instead of a recipe: text, `-` for stdin, `@FILE` for a file
    #[arg(short = 'p', long, value_name = "PROMPT", conflicts_with = "recipe")]
    pub prompt: Option<String>,
    /// Run the recipe on a copy of its sample repository with recorded replies
    #[arg(long, conflicts_with_all = ["prompt", "model", "workspace", "isolate", "policy"])]
    pub sample: bool,
    #[command(flatten)]
    pub shared: Shared,
    /// A parameter of the recipe
    #[arg(long, value_name = "K=V")]
    pub param: Vec<String>,
    /// Parameters from a JSON or YAML file
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// JSON for `{{ input.… }}`: a file, or `-` for stdin
    #[arg(long, value_name = "FILE|-")]
    pub input: Option<String>,
    /// Work in a throw-away git worktree and leave the tree alone
    #[arg(long)]
    pub isolate: bool,
    /// The run directory (default: .overnight/runs/ID in the workspace)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the resolved plan, tools, policy, budget and trust; call no model, start nothing, send nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `overnight resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// Run directory or run id
    pub run: String,
    /// Let a suspended call run, as suspension.md names it: CALL@DIGEST
    #[arg(long, value_name = "CALL")]
    pub approve: Vec<String>,
    /// Refuse a suspended call; the model is told
    #[arg(long, value_name = "CALL")]
    pub deny: Vec<String>,
    #[command(flatten)]
    pub shared: Shared,
}

/// `overnight report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Run directory or run id
    pub run: String,
    /// What to make; without it, all files of the run directory are made again
    #[arg(long, value_parser = output)]
    pub format: Option<Output>,
    /// Where the run ids are looked for
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
}

/// `overnight deliver`.
#[derive(Clone, Debug, Args)]
pub struct DeliverArgs {
    /// Run directory or run id, or the directory of a batch
    pub run: String,
    /// Where the change goes
    #[arg(long, value_enum, value_name = "TARGET")]
    pub to: DeliverTo,
    /// The local repository (default: the one that was run on, else the current directory's)
    #[arg(long, value_name = "DIR")]
    pub repo: Option<PathBuf>,
    /// The repository that is pushed to: a remote of the local one, or an address
    #[arg(long, value_name = "NAME|URL")]
    pub remote: Option<String>,
    /// The project in which the request is opened, where the remote is a fork of it
    #[arg(long, value_name = "OWNER/NAME")]
    pub into: Option<String>,
    /// The branch into which the change is to be merged (default: the recipe's, else the remote's default branch)
    #[arg(long, value_name = "BRANCH")]
    pub base: Option<String>,
    /// Name of the branch; may hold {recipe}, {job} and {digest} (default: overnight/{recipe})
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Policy that rules the patch once more (default: the recorded ones)
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,
    /// Base URL of the forge's interface
    #[arg(long, value_name = "URL")]
    pub api_url: Option<String>,
    /// Title of request and commit
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// A label of a new request
    #[arg(long, value_name = "LABEL")]
    pub label: Vec<String>,
    /// A reviewer of a new request; ORG/TEAM for a team of GitHub
    #[arg(long, value_name = "NAME")]
    pub reviewer: Vec<String>,
    /// Open the request as a draft
    #[arg(long)]
    pub draft: bool,
    /// Open no request when N of this recipe are open in the repository
    #[arg(long, value_name = "N")]
    pub max_open: Option<usize>,
    /// Deliver a run with this verdict too
    #[arg(long, value_name = "VERDICT", value_parser = verdict)]
    pub even_if: Vec<crate::base::outcome::Verdict>,
    /// The file of `--to mbox` (default: changes.mbox in the run directory)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show what would be sent; send and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// All waits for services together, as `90s`, `10m`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub max_wall: u64,
    /// Least time between two changes on a forge
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub pace: u64,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t)]
    pub format: LineFormat,
}

/// The targets of `overnight deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeliverTo {
    /// A branch of the local repository
    Branch,
    /// A branch of the remote
    Push,
    /// A pull request of GitHub
    Github,
    /// A merge request of GitLab
    Gitlab,
    /// A pull request of Forgejo or Gitea
    Forgejo,
    /// A file that `git am` takes
    Mbox,
}

/// How a list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// For people
    #[default]
    Text,
    /// One object a line
    Json,
}

/// `overnight policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Parse, lint and run the examples inside the rules
    Check {
        #[arg(required = true)]
        files: Vec<String>,
    },
    /// A table of calls with expected decisions
    Test {
        file: String,
        #[arg(long, value_name = "FILE")]
        cases: PathBuf,
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
    /// The ruling on a call, and why
    Explain(ExplainArgs),
    /// The smallest rules that would have allowed what runs did
    Suggest {
        #[arg(required = true)]
        runs: Vec<String>,
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
}

/// `overnight policy explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Policy file, `builtin:NAME` or `git:REV:PATH`
    pub file: String,
    /// A shell command
    #[arg(long, value_name = "STR", conflicts_with_all = ["tool", "calls", "run"])]
    pub command: Option<String>,
    /// A tool
    #[arg(long, value_name = "NAME", requires = "args", conflicts_with_all = ["calls", "run"])]
    pub tool: Option<String>,
    /// Its arguments
    #[arg(long, value_name = "JSON|@FILE", requires = "tool")]
    pub args: Option<String>,
    /// JSON lines in, JSON lines out
    #[arg(long, value_name = "FILE|-", conflicts_with = "run")]
    pub calls: Option<String>,
    /// A recorded run: every ruling that would differ
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The tree that paths are looked up in
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
}

/// `overnight recipe …`.
#[derive(Debug, Subcommand)]
pub enum RecipeCommand {
    /// Validate; every problem with its place
    Check {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the resolved plan
    Show {
        file: PathBuf,
        #[arg(long, value_name = "K=V")]
        param: Vec<String>,
        #[arg(long, value_name = "FILE")]
        params: Option<PathBuf>,
        #[arg(long, value_name = "FILE|-")]
        input: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The recipes of a directory (default: ./recipes)
    List {
        #[arg(default_value = "recipes")]
        dir: PathBuf,
    },
    /// Run recorded samples (default: all of ./recipes)
    Test { files: Vec<PathBuf> },
}

/// `overnight tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// The registry as the model sees it
    List {
        /// With the tools of this recipe
        #[arg(long, value_name = "FILE")]
        recipe: Option<PathBuf>,
        /// `recipe`: believe the recipe wherever it comes from
        #[arg(long, value_enum, value_name = "WHAT")]
        trust: Vec<Trusted>,
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
    /// One call, through the same gate as in a run
    Call(CallArgs),
}

/// `overnight tools call`.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool
    pub name: String,
    /// Its arguments: JSON, or `@FILE`
    #[arg(long, value_name = "JSON|@FILE")]
    pub args: String,
    /// Policy file; all that are given must agree (default: builtin:read-only)
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    /// With the tools of this recipe
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// `recipe`: believe the recipe wherever it comes from
    #[arg(long, value_enum, value_name = "WHAT")]
    pub trust: Vec<Trusted>,
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `overnight doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The tree to look at
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
}

/// `overnight runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    pub workspace: PathBuf,
}

/// What to do with the runs of a workspace.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// One line a run, oldest first
    List,
    /// Check the hash chain of journals (default: all)
    Verify { runs: Vec<String> },
    /// Remove all but the newest N runs
    Prune {
        #[arg(long, value_name = "N")]
        keep: usize,
    },
}

fn output(text: &str) -> Result<Output, String> {
    let names: Vec<&str> = Output::ALL.iter().map(|format| format.as_str()).collect();
    Output::named(text).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn verdict(text: &str) -> Result<crate::base::outcome::Verdict, String> {
    let parsed = serde_json::from_value(serde_json::Value::String(text.to_owned()));
    parsed.map_err(|_| "write a verdict of a run, as failed or budget".to_owned())
}

fn duration(text: &str) -> Result<u64, String> {
    crate::diag::units::duration_ms(text).ok_or_else(|| "write a time as 90s, 20m or 1h30m".to_owned())
}

fn whole(text: &str) -> Result<u64, String> {
    text.replace('_', "")
        .parse()
        .map_err(|_| "write a whole number, as 2000000 or 2_000_000".to_owned())
}

fn dollars(text: &str) -> Result<u64, String> {
    let amount: f64 = text.parse().map_err(|_| "write US dollars, as 2.50".to_owned())?;
    if !amount.is_finite() || amount < 0.0 {
        return Err("write US dollars, as 2.50".to_owned());
    }
    Ok((amount * 1_000_000.0).round() as u64)
}

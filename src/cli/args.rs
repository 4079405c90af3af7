//! The command line as it was typed. Parses; looks at nothing else.

use super::candidates;
use crate::report::export::ReportFile as Output;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs an AI agent on a repository with nobody watching.
#[derive(Debug, Parser)]
#[command(
    name = "overnight",
    version,
    about,
    after_help = super::exit::TABLE,
    max_term_width = 110
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Work as if started in this directory; all other paths are relative to it
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,
    /// Colour on terminals: `auto` follows NO_COLOR and TERM
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        global = true,
        hide_possible_values = true
    )]
    pub color: Color,
}

/// When stderr and help are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[default]
    Auto,
    Always,
    Never,
}

/// What the help of `run` says of models, their prices and windows.
const MODELS: &str = "\
Models on your own server:
  --model openai/NAME --base-url http://localhost:11434/v1
  (Ollama; vLLM has port 8000, llama-server 8080, LM Studio 1234.)
  A server on this machine or in a private network costs nothing unless a
  price is named. Its window is learnt when it refuses a request for its
  length; one that cuts requests in silence (Ollama) must have it named.

Environment:
  OVERNIGHT_PRICES  a JSON file with prices (US dollars for a million tokens)
                    and windows (tokens); goes before the built-in table:
    [{\"model\": \"openai/qwen3-coder\", \"window\": 32768,
      \"price\": {\"input\": 0.5, \"output\": 1.5}}]
  OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL
                    as --base-url";

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One run to completion
    #[command(after_long_help = MODELS)]
    Run(Box<RunArgs>),
    /// Go on with a suspended, killed or failed run from its journal
    #[command(after_long_help = MODELS)]
    Resume(Box<ResumeArgs>),
    /// Many jobs from a manifest: recipes × repositories × parameters × models × trials
    Batch(Box<BatchArgs>),
    /// One result from the bundles of shards
    Merge(MergeArgs),
    /// Which jobs changed sides between two batches
    Compare(CompareArgs),
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
    /// Look at a repository, and write a policy, a first recipe and a workflow for it
    Init(InitArgs),
    /// The tools as the model sees them, and one call
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// List, verify and prune runs
    Runs(RunsArgs),
    /// What this machine can confine, and what about this checkout is dangerous
    Doctor(DoctorArgs),
    /// Print a completion script, which asks this program for runs, recipes and policies
    Completions {
        shell: clap_complete::Shell,
        /// A script without such questions, as for a package
        #[arg(long)]
        fixed: bool,
    },
    /// Print the manual pages
    Man(ManArgs),
    /// Print the JSON Schema of a file that you write or of an output that scripts read
    #[command(after_long_help = super::schemas::HELP)]
    Schema(SchemaArgs),
    /// One MCP server, every tool once
    #[command(hide = true)]
    McpProbe { url: String },
}

/// Flags of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Whose schema; without it all are listed
    #[arg(value_enum)]
    pub kind: Option<super::schemas::SchemaKind>,
    /// Write the schema, or all of them, to files in this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// How stdout is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StdoutFormat {
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
pub struct RunFlags {
    /// Policy file, `builtin:NAME`, `git:REV:PATH` or `-` for stdin; all that are given must agree [env: OVERNIGHT_POLICY]
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,
    /// `recipe`: believe the recipe wherever it comes from (its servers, hosts and variables)
    #[arg(long, value_enum, value_name = "WHAT")]
    pub trust: Vec<Trusted>,
    /// PROVIDER/NAME, `script:FILE` or `replay:RUN` [env: OVERNIGHT_MODEL]
    #[arg(long, short, value_name = "PROVIDER/NAME")]
    pub model: Option<String>,
    /// Base URL of the model service, as the vendor's own clients take it [env: OVERNIGHT_BASE_URL]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The tree to work on (default: the current directory; for a resume, where the run began) [env: OVERNIGHT_WORKSPACE]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Also write the patch here [env: OVERNIGHT_PATCH]
    #[arg(long, value_name = "FILE")]
    pub patch: Option<PathBuf>,
    /// Also write the JUnit report here [env: OVERNIGHT_JUNIT]
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the transcript here [env: OVERNIGHT_TRANSCRIPT]
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
    /// What stdout carries [default: text] [env: OVERNIGHT_FORMAT]
    #[arg(long, value_enum)]
    pub format: Option<StdoutFormat>,
    /// Replies asked of the model [env: OVERNIGHT_MAX_TURNS]
    #[arg(long, value_name = "N")]
    pub max_turns: Option<u64>,
    /// Input and output tokens together [env: OVERNIGHT_MAX_TOKENS]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub max_tokens: Option<u64>,
    /// US dollars (default: 5.00 where the price of the model is known) [env: OVERNIGHT_MAX_COST]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<u64>,
    /// The longest reply asked of the model, in tokens
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_output_tokens: Option<u64>,
    /// How long the first byte of a reply is awaited (default: 3m; 10m for a server on this machine or in a private network)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub first_byte_timeout: Option<u64>,
    /// How a replay compares what commands, checks and servers print
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub replay: Replaying,
    /// Wall clock of everything, as `90s`, `20m`, `1h30m` [env: OVERNIGHT_MAX_WALL]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_wall: Option<u64>,
    /// In a step of GitHub Actions: write the step's outputs (verdict, exit-code, patch, response, cost, …) and summary,
    /// and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
    /// Nothing on stdout and stderr when all is well; `--format json` still prints
    #[arg(long, short)]
    pub quiet: bool,
    /// Nothing on stdout: for commands that make runs of their own
    #[arg(skip)]
    pub silent: bool,
    /// More on stderr
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How a replay compares what commands, checks and servers print. What is sent beside it is always compared strictly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Replaying {
    /// A difference is a warning, and the recorded reply is used
    #[default]
    Soft,
    /// A difference ends the run
    Strict,
}

/// What the command line vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trusted {
    /// The recipe
    Recipe,
}

impl RunFlags {
    /// What stdout carries.
    pub fn format(&self) -> StdoutFormat {
        self.format.unwrap_or_default()
    }

    /// Whether `--trust recipe` was given.
    pub fn trusts_recipe(&self) -> bool {
        self.trust.contains(&Trusted::Recipe)
    }
}

/// `overnight run`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = "overnight run [OPTIONS] <RECIPE>\n       overnight run [OPTIONS] -p <PROMPT>")]
pub struct RunArgs {
    /// Recipe: a file, `builtin:NAME`, `git:REV:PATH`, or `-` for stdin
    #[arg(required_unless_present = "prompt", add = candidates::recipes())]
    pub recipe: Option<PathBuf>,
    /// A prompt instead of a recipe: text, `-` for stdin, `@FILE` for a file
    #[arg(short = 'p', long, value_name = "PROMPT", conflicts_with = "recipe")]
    pub prompt: Option<String>,
    /// Append what stdin holds to the prompt, as data
    #[arg(long, requires = "prompt")]
    pub stdin: bool,
    /// JSON Schema of the answer to the prompt
    #[arg(long, value_name = "FILE", requires = "prompt")]
    pub output_schema: Option<PathBuf>,
    /// Run the recipe on a copy of its sample repository with recorded replies
    #[arg(long, conflicts_with_all = ["prompt", "model", "workspace", "isolate", "policy"])]
    pub sample: bool,
    #[command(flatten)]
    pub shared: RunFlags,
    /// Only these tools, in place of the recipe's `tools.include`: names, `kind:KIND`, `origin:ORIGIN`, `NAME*`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub tools: Option<Vec<String>>,
    /// A parameter of the recipe
    #[arg(long, value_name = "K=V")]
    pub param: Vec<String>,
    /// Parameters from a JSON or YAML file
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// What `{{ input }}` is: a file, or `-` for stdin, in the format that the recipe declares (JSON, JSON Lines or text)
    #[arg(long, value_name = "FILE|-")]
    pub input: Option<String>,
    /// The input as a JSON value, whatever the recipe's format, as a batch hands it to its jobs
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "input")]
    pub input_value: Option<PathBuf>,
    /// Work in a throw-away git worktree and leave the tree alone
    #[arg(long)]
    pub isolate: bool,
    /// The run directory (default: .overnight/runs/ID in the workspace) [env: OVERNIGHT_OUT]
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
    #[arg(required_unless_present = "last", add = candidates::runs())]
    pub run: Option<String>,
    /// The newest run of the workspace
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
    /// Let a suspended call run, as suspension.md names it: CALL@DIGEST
    #[arg(long, value_name = "CALL")]
    pub approve: Vec<String>,
    /// Refuse a suspended call; the model is told
    #[arg(long, value_name = "CALL")]
    pub deny: Vec<String>,
    #[command(flatten)]
    pub shared: RunFlags,
}

/// `overnight batch`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BatchArgs {
    #[command(subcommand)]
    pub command: Option<BatchCommand>,
    /// The manifest: YAML or JSON Lines, or `-` for stdin
    #[arg(required = true)]
    pub manifest: Option<PathBuf>,
    #[command(flatten)]
    pub plan: BatchPlanArgs,
    /// The batch's directory, its memory (default: .overnight/batches/NAME); or an object store, which gets the files of each
    /// job as it ends while the batch works in the default directory: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    /// az://CONTAINER/PREFIX (in builds with the cargo feature `cloud`) or file:///DIR
    #[arg(long, value_name = "DIR|URL")]
    pub out: Option<PathBuf>,
    /// Which part of the plan: I/N, or `auto` for what the engine's variables say
    #[arg(long, value_name = "I/N|auto")]
    pub shard: Option<String>,
    /// An earlier `runs.jsonl`: shards of about the same duration
    #[arg(long, value_name = "FILE", requires = "shard")]
    pub timings: Option<PathBuf>,
    /// Only jobs whose name this regular expression finds
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Run up-to-date jobs too
    #[arg(long)]
    pub again: bool,
    /// Accept that the manifest changed since the last call
    #[arg(long)]
    pub changed: bool,
    /// List the jobs and what would be done; run none
    #[arg(long)]
    pub dry_run: bool,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// Flags of a batch that a job file passes on to each shard.
#[derive(Clone, Debug, Default, Args)]
pub struct BatchPlanArgs {
    /// The recipe of jobs that name none of their own
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<String>,
    /// Policy file, `builtin:NAME` or `git:REV:PATH`, in addition to those of the manifest; all must agree
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,
    /// PROVIDER/NAME or `script:FILE`, in place of the manifest's models
    #[arg(long, value_name = "PROVIDER/NAME")]
    pub model: Vec<String>,
    /// Jobs at once (default: the number of CPUs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub jobs: Option<u32>,
}

/// `overnight batch …`.
#[derive(Clone, Debug, Subcommand)]
pub enum BatchCommand {
    /// Print a job file that runs the shards on an existing engine
    Script {
        /// The engine
        #[arg(long, value_enum)]
        engine: ScriptEngine,
        /// The number of shards
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        shards: u64,
        /// The manifest, as the tasks of the engine see it
        manifest: String,
        /// Where shards (`DIR/shards/I-of-N`) and the merged result go
        #[arg(long, value_name = "DIR")]
        out: String,
        #[command(flatten)]
        plan: BatchPlanArgs,
    },
}

/// Engines that `batch script` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScriptEngine {
    Slurm,
    Kubernetes,
    GnuParallel,
    Gitlab,
    Github,
    Buildkite,
    Hyperqueue,
}

/// How a command that has no answer of a model writes stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// `overnight merge`.
#[derive(Clone, Debug, Args)]
pub struct MergeArgs {
    /// Bundles: the --out directories of `overnight batch --shard`, or object stores; an address stands for the bundle there
    /// and those of all its shards, which are kept in DIR/bundles
    #[arg(required = true, value_name = "DIR|URL")]
    pub bundles: Vec<PathBuf>,
    /// An empty directory, or an earlier merge of the same manifest
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
}

/// `overnight compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// A batch's directory, or its `runs.jsonl`
    pub a: PathBuf,
    /// Another one
    pub b: PathBuf,
    /// `broken`: end with code 1 when a job that passed in A fails in B
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A job that passed in A fails in B
    Broken,
}

/// `overnight report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Run directory or run id
    #[arg(required_unless_present = "last", add = candidates::runs())]
    pub run: Option<String>,
    /// The newest run of the workspace
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
    /// What to make; without it, all files of the run directory are made again
    #[arg(long, value_parser = output)]
    pub format: Option<Output>,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
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
        #[arg(required = true, add = candidates::policies())]
        files: Vec<String>,
        /// How the problems are written
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
    },
    /// A table of calls with expected decisions
    Test {
        #[arg(add = candidates::policies())]
        file: String,
        #[arg(long, value_name = "FILE")]
        cases: PathBuf,
        /// How the problems are written
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
    /// The ruling on a call, and why
    Explain(ExplainArgs),
    /// A policy file of Gemini CLI as a policy that allows no more
    ///
    /// Prints the policy on stdout and every difference on stderr. There the first rule by priority decides, here the
    /// strictest; what asks a person becomes `suspend`; what cannot be written is left out of what is allowed, and
    /// denied more widely. The result passes `policy check`.
    Import {
        /// The TOML file, or `-` for stdin
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: String,
        /// The approval mode whose rules count
        #[arg(long, value_enum, default_value_t)]
        mode: ImportMode,
        /// With `json`, stdout has one object with the policy and the report
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// The smallest rules that would have allowed what runs did
    Suggest {
        /// Run directories or run ids, or directories of batches: all runs in them
        #[arg(required = true, add = candidates::runs())]
        runs: Vec<String>,
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
}

/// `overnight policy explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Policy file, `builtin:NAME` or `git:REV:PATH`
    #[arg(add = candidates::policies())]
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
    /// How one ruling is written; `--calls` always gives JSON lines
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// The tree that paths are looked up in
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
}

/// An approval mode of Gemini CLI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImportMode {
    /// Rules without `modes`, and those for `default`
    #[default]
    Default,
    /// Rules for `autoEdit`
    #[value(name = "auto_edit", alias = "autoEdit")]
    AutoEdit,
    /// Rules for `plan`
    Plan,
    /// Rules for `yolo`
    Yolo,
}

/// How a listing or a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    #[default]
    Text,
    /// One JSON document
    Json,
}

/// How problems of files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProblemFormat {
    /// For people, on stderr
    #[default]
    Text,
    /// One JSON document
    Json,
    /// Annotations of a GitHub workflow
    Github,
    /// SARIF 2.1.0, as code scanning takes it
    Sarif,
}

/// `overnight recipe …`.
#[derive(Debug, Subcommand)]
pub enum RecipeCommand {
    /// Validate; every problem with its place
    Check {
        #[arg(required = true, add = candidates::recipes())]
        files: Vec<PathBuf>,
        /// Also look for the context files and programs that it needs in this tree
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// How the problems are written
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
    },
    /// Print the resolved plan
    Show {
        #[arg(add = candidates::recipes())]
        file: PathBuf,
        #[arg(long, value_name = "K=V")]
        param: Vec<String>,
        #[arg(long, value_name = "FILE")]
        params: Option<PathBuf>,
        #[arg(long, value_name = "FILE|-")]
        input: Option<String>,
        /// As `--format json`
        #[arg(long, hide = true)]
        json: bool,
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// The recipes inside this program and in ./recipes, or those of a directory
    List {
        dir: Option<PathBuf>,
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Write a recipe of one's own, made from another
    New {
        /// The file to write; it must not exist
        file: PathBuf,
        /// The recipe to begin with: `builtin:NAME` or a file
        #[arg(long, value_name = "RECIPE", default_value = "builtin:fix-tests", add = candidates::recipes())]
        from: String,
    },
    /// What a recipe does, may touch and needs, as Markdown
    Doc {
        #[arg(add = candidates::recipes())]
        file: PathBuf,
    },
    /// Run recorded samples (default: all of ./recipes, else the built-in ones)
    Test {
        #[arg(add = candidates::recipes())]
        files: Vec<PathBuf>,
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
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
        format: StdoutFormat,
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
    pub format: StdoutFormat,
}

/// `overnight doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The tree to look at
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

/// `overnight init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The repository
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// `overnight man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The page of one command, as `run` or `policy check` (default: all pages, one after the other)
    pub command: Vec<String>,
    /// Write a file a command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
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
    List {
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Check the hash chain of journals (default: all)
    Verify {
        #[arg(add = candidates::runs())]
        runs: Vec<String>,
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Remove all but the newest N runs
    Prune {
        #[arg(long, value_name = "N")]
        keep: usize,
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
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

pub(super) fn duration(text: &str) -> Result<u64, String> {
    crate::diag::units::duration_ms(text).ok_or_else(|| "write a time as 90s, 20m or 1h30m".to_owned())
}

fn positive(text: &str) -> Result<u64, String> {
    match whole(text)? {
        0 => Err("write 1 or more".to_owned()),
        number => Ok(number),
    }
}

pub(super) fn whole(text: &str) -> Result<u64, String> {
    text.replace('_', "")
        .parse()
        .map_err(|_| "write a whole number, as 2000000 or 2_000_000".to_owned())
}

pub(super) fn dollars(text: &str) -> Result<u64, String> {
    let amount: f64 = text.parse().map_err(|_| "write US dollars, as 2.50".to_owned())?;
    if !amount.is_finite() || amount < 0.0 {
        return Err("write US dollars, as 2.50".to_owned());
    }
    Ok((amount * 1_000_000.0).round() as u64)
}

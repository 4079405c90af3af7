//! Defines and parses the command line.

use super::candidates;
use crate::base::ids::RunId;
use crate::base::slug::slug;
use crate::deliver::message::is_branch_name;
use crate::report::export::ReportFile as Output;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Runs an AI agent on a repository without a person present.
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
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = "Global options")]
    pub directory: Option<PathBuf>,
    /// Colour on terminals: `always`, `never` or `auto`, which follows NO_COLOR and TERM
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        global = true,
        help_heading = "Global options",
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

/// The part of the help of `run` and `resume` about models, their prices and context windows.
const MODELS: &str = "\
Models on your own server:
  --model openai/NAME --base-url http://localhost:11434/v1
  (Ollama; vLLM has port 8000, llama-server 8080, LM Studio 1234.)
  A server on this machine or in a private network costs nothing unless the
  price of the model is known: from the built-in table, or given. Its window
  is learnt when it refuses a request that is too long; for one that truncates
  requests silently (Ollama), it must be given.

Environment:
  OVERNIGHT_PRICES  a JSON file with prices (US dollars for a million tokens)
                    and windows (tokens); overrides the built-in table:
    [{\"model\": \"openai/qwen3-coder\", \"window\": 32768,
      \"price\": {\"input\": 0.5, \"output\": 1.5}}]
  OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL
                    as --base-url";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a recipe or a prompt to completion
    #[command(after_long_help = MODELS)]
    Run(Box<RunArgs>),
    /// Continue a suspended, killed or failed run from its journal
    #[command(after_long_help = MODELS)]
    Resume(Box<ResumeArgs>),
    /// Run many jobs from a manifest: recipes × repositories × parameters × models × trials
    Batch(Box<BatchArgs>),
    /// Merge the bundles of shards into one result
    Merge(MergeArgs),
    /// Compare two batches: which jobs passed in only one of them
    Compare(CompareArgs),
    /// Render any output of a run again from its journal
    Report(ReportArgs),
    /// Deliver the patch of a run, or of a batch's runs, to a branch or as a merge request
    Deliver(Box<DeliverArgs>),
    /// Check, test and explain policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Check, show and test recipes
    #[command(subcommand)]
    Recipe(RecipeCommand),
    /// Inspect a repository, and write a policy, a first recipe and a workflow for it
    Init(InitArgs),
    /// List the tools as the model sees them, or call one
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// List, verify and prune runs
    Runs(RunsArgs),
    /// Report what this machine can sandbox, and what is dangerous about this checkout
    Doctor(DoctorArgs),
    /// Print a completion script, which asks this program for runs, recipes and policies
    Completions {
        /// The shell that the script is for
        shell: clap_complete::Shell,
        /// Print a static script, for example for a package
        #[arg(long)]
        fixed: bool,
    },
    /// Print the manual pages
    Man(ManArgs),
    /// Print the JSON Schema of a file that you write or of an output that scripts read
    #[command(after_long_help = super::schemas::HELP)]
    Schema(SchemaArgs),
    /// Call every tool of one MCP server once. No parser, help or completion knows it, see [`Cli::of_probe`]
    #[command(skip)]
    McpProbe { url: String },
}

impl Cli {
    /// The command line `overnight mcp-probe URL`, which is only for the MCP conformance suite.
    pub fn of_probe(typed: &[OsString]) -> Option<Self> {
        let [name, url] = typed else { return None };
        let url = url.to_str().filter(|_| name == "mcp-probe")?;
        Some(Self {
            command: Command::McpProbe { url: url.to_owned() },
            directory: None,
            color: Color::Auto,
        })
    }
}

/// Flags of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The file or output; without it all are listed
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
    /// One event per line, the result object last
    StreamJson,
}

/// Flags that `run` and `resume` share.
#[derive(Clone, Debug, Default, Args)]
pub struct RunFlags {
    /// Policy file, `builtin:NAME`, `git:REV:PATH` or `-` for stdin; every policy given must allow a call [env:
    /// OVERNIGHT_POLICY]
    #[arg(long, value_name = "FILE", add = candidates::policies())]
    pub policy: Vec<String>,
    /// `recipe`: trust the recipe (its servers, hosts and variables) wherever it comes from
    #[arg(long, value_enum, value_name = "WHAT")]
    pub trust: Vec<Trusted>,
    /// PROVIDER/NAME, `script:FILE` or `replay:RUN` [env: OVERNIGHT_MODEL]
    #[arg(long, short, value_name = "PROVIDER/NAME")]
    pub model: Option<String>,
    /// Base URL of the model service, in the form that the vendor's own clients accept [env: OVERNIGHT_BASE_URL]
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
    /// Output format of stdout [default: text] [env: OVERNIGHT_FORMAT]
    #[arg(long, value_enum)]
    pub format: Option<StdoutFormat>,
    /// Limit of model replies (default: the recipe's, else 200) [env: OVERNIGHT_MAX_TURNS]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_turns: Option<u64>,
    /// Limit of input and output tokens together (default: the recipe's, else 2,000,000) [env: OVERNIGHT_MAX_TOKENS]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<u64>,
    /// Limit of the cost in US dollars (default: the recipe's, else 5.00 where the price of the model is known) [env:
    /// OVERNIGHT_MAX_COST]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<u64>,
    /// Length limit of one reply, in tokens
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_output_tokens: Option<u64>,
    /// Time limit for the first byte of a reply (default: 3m; 10m for a server on this machine or in a private network)
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    pub first_byte_timeout: Option<u64>,
    /// How a replay compares the output of commands, checks and servers
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub replay: Replaying,
    /// Limit of the wall-clock time, for example `90s`, `20m` or `1h30m` (default: the recipe's, else 30m) [env:
    /// OVERNIGHT_MAX_WALL]
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    pub max_wall: Option<u64>,
    /// In a step of GitHub Actions: write the step's outputs (verdict, exit-code, patch, response, cost, …) and summary,
    /// and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
    /// Print nothing on success; `--format json` still prints the result
    #[arg(long, short)]
    pub quiet: bool,
    /// Print nothing on stdout; for commands that start runs themselves
    #[arg(skip)]
    pub silent: bool,
    /// Print more on stderr
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How a replay compares the output of commands, checks and servers. What is sent beside it is always compared
/// strictly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Replaying {
    /// A difference is a warning, and the recorded reply is used
    #[default]
    Soft,
    /// A difference ends the run
    Strict,
}

/// What `--trust` declares trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trusted {
    /// Its servers, hosts and variables, wherever it comes from
    Recipe,
}

impl RunFlags {
    /// Output format of stdout.
    pub fn format(&self) -> StdoutFormat {
        self.format.unwrap_or_default()
    }

    /// The files that flags name for outputs.
    pub fn copies(&self) -> [(Output, Option<&Path>); 3] {
        [
            (Output::Patch, self.patch.as_deref()),
            (Output::Junit, self.junit.as_deref()),
            (Output::Transcript, self.transcript.as_deref()),
        ]
    }

    /// Like [`RunFlags::copies`], to change them.
    pub fn copies_mut(&mut self) -> [(Output, &mut Option<PathBuf>); 3] {
        [
            (Output::Patch, &mut self.patch),
            (Output::Junit, &mut self.junit),
            (Output::Transcript, &mut self.transcript),
        ]
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
    #[arg(short = 'p', long, value_name = "PROMPT", conflicts_with_all = ["recipe", "param", "params"])]
    pub prompt: Option<String>,
    /// Append stdin to the prompt, as data
    #[arg(long, requires = "prompt", conflicts_with = "recipe")]
    pub stdin: bool,
    /// JSON Schema of the answer to the prompt
    #[arg(long, value_name = "FILE", requires = "prompt", conflicts_with = "recipe")]
    pub output_schema: Option<PathBuf>,
    /// Run the recipe on a copy of its sample repository with recorded replies
    #[arg(long, conflicts_with_all = ["prompt", "model", "workspace", "isolate", "policy"])]
    pub sample: bool,
    #[command(flatten)]
    pub shared: RunFlags,
    /// Only these tools, instead of the recipe's `tools.include`: names, `kind:KIND`, `origin:ORIGIN`, `NAME*`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub tools: Option<Vec<String>>,
    /// A parameter of the recipe
    #[arg(long, value_name = "K=V")]
    pub param: Vec<String>,
    /// Parameters from a JSON or YAML file
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// The value of `{{ input }}`: a file, or `-` for stdin, in the format that the recipe declares (JSON, JSON Lines
    /// or text). With `-p` it is one JSON document, which is appended to the prompt
    #[arg(long, value_name = "FILE|-")]
    pub input: Option<String>,
    /// The input as a JSON value, independent of the recipe's format; a batch uses it for its jobs
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "input")]
    pub input_value: Option<PathBuf>,
    /// Work in a temporary git worktree and leave your tree unchanged
    #[arg(long)]
    pub isolate: bool,
    /// The run directory, new or empty (default: .overnight/runs/ID in the workspace) [env: OVERNIGHT_OUT]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the resolved plan, tools, policy, budget and trust; call no model, start nothing, send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The id of the run, if it was chosen before its directory was named.
    #[arg(skip)]
    pub run_id: Option<RunId>,
}

/// `overnight resume`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = "overnight resume [OPTIONS] <RUN>\n       overnight resume [OPTIONS] --last")]
pub struct ResumeArgs {
    /// Run directory or run id
    #[arg(required_unless_present = "last", add = candidates::runs())]
    pub run: Option<String>,
    /// The newest run of the workspace; runs of samples do not count
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
    /// Approve a suspended call, as CALL@DIGEST from suspension.md
    #[arg(long, value_name = "CALL")]
    pub approve: Vec<String>,
    /// Deny a suspended call; the model gets the denial
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
    /// The batch directory, which holds its state (default: .overnight/batches/NAME); or an object store, to which the
    /// files of each job are sent as it ends, while the batch works in the default directory: s3://BUCKET/PREFIX,
    /// gs://BUCKET/PREFIX, az://CONTAINER/PREFIX (in builds with the cargo feature `cloud`) or file:///DIR
    #[arg(long, value_name = "DIR|URL")]
    pub out: Option<PathBuf>,
    /// The part of the plan to run: I/N, or `auto` to take it from the variables of the CI engine
    #[arg(long, value_name = "I/N|auto")]
    pub shard: Option<String>,
    /// An earlier `runs.jsonl`, used to make shards of about the same duration
    #[arg(long, value_name = "FILE", requires = "shard")]
    pub timings: Option<PathBuf>,
    /// Run only jobs whose name, without the digest at its end, matches this regular expression; an expression with `=`
    /// is compared with each parameter, as NAME=VALUE
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
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
    /// Print no progress, nothing on success, and the reason on stderr otherwise; `--format json` still prints the result
    #[arg(long, short)]
    pub quiet: bool,
}

/// Flags of a batch that a job file passes on to each shard.
#[derive(Clone, Debug, Default, Args)]
pub struct BatchPlanArgs {
    /// The recipe of jobs that do not name one
    #[arg(long, value_name = "FILE", add = candidates::recipes())]
    pub recipe: Option<String>,
    /// Policy file, `builtin:NAME` or `git:REV:PATH`, in addition to those of the manifest; every policy must allow a
    /// call [env: OVERNIGHT_POLICY]
    #[arg(long, value_name = "FILE", add = candidates::policies())]
    pub policy: Vec<String>,
    /// PROVIDER/NAME or `script:FILE`, instead of the manifest's models (default if it names none: $OVERNIGHT_MODEL,
    /// where the jobs run)
    #[arg(long, short, value_name = "PROVIDER/NAME")]
    pub model: Vec<String>,
    /// Number of jobs that run at the same time (default: the number of CPUs)
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
        /// The path of the manifest for the tasks of the engine
        manifest: String,
        /// Directory for the shards (`DIR/shards/I-of-N`) and the merged result
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

/// `overnight merge`.
#[derive(Clone, Debug, Args)]
pub struct MergeArgs {
    /// Bundles: the --out directories of `overnight batch --shard`, or object stores; an address means the bundle there
    /// and those of all its shards, which are downloaded to DIR/bundles
    #[arg(required = true, value_name = "DIR|URL")]
    pub bundles: Vec<PathBuf>,
    /// An empty directory, or an earlier merge of the same manifest
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Accept that the manifest changed since the earlier merge
    #[arg(long)]
    pub changed: bool,
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
}

/// `overnight compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// A batch's directory, or its `runs.jsonl`
    pub a: PathBuf,
    /// Another batch
    pub b: PathBuf,
    /// `broken`: end with code 1 when a job that passed in A fails in B
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A job that passed in A fails in B
    Broken,
}

/// `overnight report`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = "overnight report [OPTIONS] <RUN>\n       overnight report [OPTIONS] --last")]
pub struct ReportArgs {
    /// Run directory or run id
    #[arg(required_unless_present = "last", add = candidates::runs())]
    pub run: Option<String>,
    /// The newest run of the workspace; runs of samples do not count
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
    /// The output to print; without it, all files of the run directory are written again. One of text, result, summary,
    /// html, junit, transcript, patch, mbox, suspension, review, github, sarif, rdjson, codequality and checkstyle
    #[arg(long, value_parser = output, add = candidates::outputs())]
    pub format: Option<Output>,
    /// In a step of GitHub Actions: write the step's outputs and summary, and annotations on stderr [env: OVERNIGHT_GITHUB]
    #[arg(long)]
    pub github: bool,
    /// The tree in which run ids are looked up
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
}

/// `overnight deliver`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "overnight deliver [OPTIONS] --to <TARGET> <RUN>\n       overnight deliver [OPTIONS] --to <TARGET> --last"
)]
pub struct DeliverArgs {
    /// Run directory or run id, or the directory of a batch
    #[arg(required_unless_present = "last", add = candidates::runs())]
    pub run: Option<String>,
    /// The newest run of --repo or the current directory; runs of samples do not count
    #[arg(long, conflicts_with = "run")]
    pub last: bool,
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
    #[arg(long, value_name = "BRANCH", value_parser = base)]
    pub base: Option<String>,
    /// Name of the branch; may contain {recipe}, {job} and {digest} (default: overnight/{recipe})
    #[arg(long, value_name = "NAME", value_parser = branch)]
    pub branch: Option<String>,
    /// Policy that the patch is checked against (default: the recorded ones) [env: OVERNIGHT_POLICY]
    #[arg(long, value_name = "FILE", add = candidates::policies())]
    pub policy: Vec<String>,
    /// Base URL of the forge's API
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
    #[arg(long, value_name = "N", value_parser = count)]
    pub max_open: Option<usize>,
    /// Also deliver runs with this verdict
    #[arg(long, value_name = "VERDICT", value_parser = verdict, add = candidates::exceptions())]
    pub even_if: Vec<crate::base::outcome::Verdict>,
    /// The file of `--to mbox` (default: changes.mbox in the run directory)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show what would be sent; send and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Limit of all waits for services together, for example `90s` or `10m`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub max_wall: u64,
    /// Minimum time between two changing requests to a forge (default: 1s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub pace: Option<u64>,
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: LineFormat,
    /// Print nothing on success; of a batch, only what was not delivered. `--format json` still prints every outcome
    #[arg(long, short)]
    pub quiet: bool,
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
    /// A file for `git am`
    Mbox,
}

/// How a list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// For people
    #[default]
    Text,
    /// One object per line
    Json,
}

/// `overnight policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Parse and lint policies, and run the examples in their rules
    Check {
        /// Policy files, `builtin:NAME`, `git:REV:PATH` or `-` for stdin
        #[arg(required = true, add = candidates::policies())]
        files: Vec<String>,
        /// Format of the problems
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
    },
    /// Test a policy with a table of calls and expected decisions
    Test {
        /// Policy file, `builtin:NAME` or `git:REV:PATH`
        #[arg(add = candidates::policies())]
        file: String,
        /// The table: a YAML file with calls and the decision that is expected for each
        #[arg(long, value_name = "FILE")]
        cases: PathBuf,
        /// Format of the problems
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
        /// The tree in which paths are resolved
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
    /// Show the ruling on a call, and why
    Explain(ExplainArgs),
    /// Convert a policy file of Gemini CLI to a policy that allows no more
    ///
    /// Prints the policy on stdout and every difference on stderr. In Gemini CLI the first rule by priority decides,
    /// here the strictest rule; what asks a person there becomes `suspend`. A pattern that cannot be expressed exactly
    /// allows less or denies more. The result passes `policy check`.
    Import {
        /// The TOML file, or `-` for stdin
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: String,
        /// The approval mode whose rules are converted
        #[arg(long, value_enum, default_value_t)]
        mode: ImportMode,
        /// With `json`, stdout has one object with the policy and the report
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// Suggest the smallest rules that would have allowed what runs did
    #[command(
        override_usage = "overnight policy suggest [OPTIONS] <RUNS>...\n       overnight policy suggest [OPTIONS] --last"
    )]
    Suggest {
        /// Run directories or run ids, or directories of batches: all runs in them
        #[arg(required_unless_present = "last", add = candidates::runs())]
        runs: Vec<String>,
        /// The newest run of the workspace; runs of samples do not count
        #[arg(long, conflicts_with = "runs")]
        last: bool,
        /// With `json`, stdout has one object with the rules and the policies of the runs
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
        /// The tree in which run ids are looked up
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
    #[arg(long, value_name = "NAME", requires = "args", conflicts_with_all = ["calls", "run"], add = candidates::tools())]
    pub tool: Option<String>,
    /// Its arguments
    #[arg(long, value_name = "JSON|@FILE", requires = "tool", conflicts_with_all = ["command", "calls", "run"])]
    pub args: Option<String>,
    /// Read calls as JSON lines, and print rulings as JSON lines
    #[arg(long, value_name = "FILE|-", conflicts_with = "run")]
    pub calls: Option<String>,
    /// A recorded run; prints every ruling that would differ
    #[arg(long, value_name = "RUN", add = candidates::runs())]
    pub run: Option<String>,
    /// Format of one ruling; `--calls` always prints JSON lines
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
    /// The tree in which paths are resolved
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

/// How a command writes what it found to stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
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
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// `overnight recipe …`.
#[derive(Debug, Subcommand)]
pub enum RecipeCommand {
    /// Validate recipes; report every problem with its position
    Check {
        /// Recipes: files, `builtin:NAME`, `git:REV:PATH` or `-` for stdin
        #[arg(required = true, add = candidates::recipes())]
        files: Vec<PathBuf>,
        /// Also check that this tree has the context files and programs that the recipe needs
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Format of the problems
        #[arg(long, value_enum, default_value_t)]
        format: ProblemFormat,
    },
    /// Print the resolved plan
    Show {
        /// Recipe: a file, `builtin:NAME`, `git:REV:PATH`, or `-` for stdin
        #[arg(add = candidates::recipes())]
        file: PathBuf,
        /// A parameter of the recipe
        #[arg(long, value_name = "K=V")]
        param: Vec<String>,
        /// Parameters from a JSON or YAML file
        #[arg(long, value_name = "FILE")]
        params: Option<PathBuf>,
        /// The value of `{{ input }}`: a file, or `-` for stdin
        #[arg(long, value_name = "FILE|-")]
        input: Option<String>,
        /// Same as `--format json`
        #[arg(long, hide = true)]
        json: bool,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// List the built-in recipes and those in ./recipes, or those of a directory
    List {
        /// A directory with recipes
        dir: Option<PathBuf>,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// Write a new recipe, based on another one
    New {
        /// The file to write; it must not exist
        file: PathBuf,
        /// The recipe to start from: `builtin:NAME` or a file
        #[arg(long, value_name = "RECIPE", default_value = "builtin:fix-tests", add = candidates::recipes())]
        from: String,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// Print what a recipe does, may access and needs, as Markdown
    Doc {
        /// Recipe: a file, `builtin:NAME`, `git:REV:PATH`, or `-` for stdin
        #[arg(add = candidates::recipes())]
        file: PathBuf,
    },
    /// Run recorded samples (default: all of ./recipes, else the built-in ones)
    Test {
        /// Recipes that have a sample: files or `builtin:NAME`
        #[arg(add = candidates::recipes())]
        files: Vec<PathBuf>,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
}

/// `overnight tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools as the model sees them
    List {
        /// Include the tools of this recipe
        #[arg(long, value_name = "FILE", add = candidates::recipes())]
        recipe: Option<PathBuf>,
        /// `recipe`: trust the recipe wherever it comes from
        #[arg(long, value_enum, value_name = "WHAT")]
        trust: Vec<Trusted>,
        /// Output format of stdout: `text` is a table, `json` a list, `stream-json` one tool a line
        #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
        format: StdoutFormat,
        /// The tree in which the recipe's programs start
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,
    },
    /// Make one call, with the same ruling and sandbox as in a run
    Call(CallArgs),
}

/// `overnight tools call`.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool
    #[arg(add = candidates::tools())]
    pub name: String,
    /// Its arguments: JSON, or `@FILE`
    #[arg(long, value_name = "JSON|@FILE")]
    pub args: String,
    /// Policy file; every policy given must allow a call (default: builtin:read-only) [env: OVERNIGHT_POLICY]
    #[arg(long, value_name = "FILE", add = candidates::policies())]
    pub policy: Vec<String>,
    /// The tree that the tool works on
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    /// Include the tools of this recipe
    #[arg(long, value_name = "FILE", add = candidates::recipes())]
    pub recipe: Option<PathBuf>,
    /// `recipe`: trust the recipe wherever it comes from
    #[arg(long, value_enum, value_name = "WHAT")]
    pub trust: Vec<Trusted>,
    /// Output format of stdout: `text` is what the model would get, `json` and `stream-json` an object with the ruling too
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: StdoutFormat,
}

/// `overnight doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The tree to inspect
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
}

/// `overnight init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The repository
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Output format of stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: TextOrJson,
}

/// `overnight man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The page of one command, for example `run` or `policy check` (default: all pages)
    #[arg(add = candidates::words(command_names))]
    pub command: Vec<String>,
    /// Write one file per command to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// `overnight runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    /// The tree whose runs are meant
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    pub workspace: PathBuf,
}

/// What to do with the runs of a workspace.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List the runs, one per line, oldest first
    List {
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// Check that runs are as they were recorded: journal, files and result (default: all)
    Verify {
        /// Run directories or run ids
        #[arg(add = candidates::runs())]
        runs: Vec<String>,
        /// The newest run of the workspace; runs of samples do not count
        #[arg(long, conflicts_with = "runs")]
        last: bool,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
    /// Remove all but the newest N runs; unfinished runs are kept
    Prune {
        /// The number of runs that stay
        #[arg(long, value_name = "N", value_parser = count)]
        keep: usize,
        /// Remove suspended, interrupted and unfinished runs too; an active run is always kept
        #[arg(long)]
        all: bool,
        /// Output format of stdout
        #[arg(long, value_enum, default_value_t)]
        format: TextOrJson,
    },
}

/// The names of the commands.
fn command_names() -> Vec<String> {
    let root = Cli::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

fn output(text: &str) -> Result<Output, String> {
    let names: Vec<&str> = Output::ALL.iter().map(|format| format.as_str()).collect();
    Output::named(text).ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// A branch name with its placeholders. What a delivery would have to replace in it is refused.
fn branch(text: &str) -> Result<String, String> {
    let placeholders = ["{recipe}", "{job}", "{digest}"];
    let filled = placeholders
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(name, "x"));
    let name = filled.strip_prefix("refs/heads/").unwrap_or(&filled);
    let is_plain =
        |part: &str| !part.is_empty() && slug(part) == part && !part.contains("..") && !part.ends_with(".lock");
    match name != "HEAD" && name.split('/').all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(
            "write letters, digits, `-`, `_` and `.` in parts separated by `/`; no part begins or ends with `-` or \
             `.`, contains `..` or ends with `.lock`"
                .to_owned(),
        ),
    }
}

/// The name of a branch that a delivery goes into: people gave it, so it may be any that git allows.
fn base(text: &str) -> Result<String, String> {
    match is_branch_name(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a branch, such as main".to_owned()),
    }
}

fn verdict(text: &str) -> Result<crate::base::outcome::Verdict, String> {
    let parsed = serde_json::from_value(serde_json::Value::String(text.to_owned()));
    parsed.map_err(|_| "write a verdict of a run, such as failed or budget".to_owned())
}

fn duration(text: &str) -> Result<u64, String> {
    crate::diag::units::duration_ms(text).ok_or_else(|| "write a time such as 90s, 20m or 1h30m".to_owned())
}

/// A time that is a limit of a run: with 0 nothing could run.
pub(super) fn time_limit(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0 => Err("a limit of 0 allows nothing to run: write a time such as 90s, 20m or 1h30m".to_owned()),
        time => Ok(time),
    }
}

/// A number that is a limit of a run: with 0 nothing could run.
pub(super) fn positive(text: &str) -> Result<u64, String> {
    match whole(text)? {
        0 => Err("a limit of 0 allows nothing to run: write 1 or more".to_owned()),
        number => Ok(number),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    text.replace('_', "")
        .parse()
        .map_err(|_| "write a whole number such as 40, 2000000 or 2_000_000".to_owned())
}

fn count(text: &str) -> Result<usize, String> {
    let number = whole(text)?;
    usize::try_from(number).map_err(|_| "write a smaller number".to_owned())
}

/// A cost that is a limit of a run: with 0 nothing could run.
pub(super) fn dollars(text: &str) -> Result<u64, String> {
    let amount: f64 = text.parse().map_err(|_| "write US dollars, such as 2.50".to_owned())?;
    if !amount.is_finite() || amount < 0.0 {
        return Err("write US dollars, such as 2.50".to_owned());
    }
    match crate::base::budget::micros(amount) {
        0 => Err("a limit of 0 allows nothing to run: write US dollars above 0, such as 2.50".to_owned()),
        micros => Ok(micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn undescribed(command: &clap::Command, found: &mut Vec<String>) {
        for arg in command.get_arguments() {
            if !arg.is_hide_set() && arg.get_help().is_none() {
                found.push(format!("{} {}", command.get_name(), arg.get_id()));
            }
        }
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        shown.for_each(|one| undescribed(one, found));
    }

    #[test]
    fn a_branch_name_that_a_delivery_would_change_is_refused() {
        for good in ["fix", "overnight/{recipe}-{digest}", "refs/heads/a/b", "Fix/v1.2_x"] {
            assert_eq!(branch(good).as_deref(), Ok(good));
        }
        for bad in [
            "bad name", "", "a//b", "-x", "a..b", "x.lock", "a/", "HEAD", "é", "{other}",
        ] {
            assert!(branch(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_argument_has_a_description() {
        let mut found = Vec::new();
        undescribed(&Cli::command(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}

//! What happened, as the journal tells it. Every output is a fold over these; nothing else is true.

use super::access::Access;
use super::budget::Spent;
use super::call::{CallState, ExitInfo, FileDiff, ToolOutput, ToolSpec};
use super::grant::{JudgedExec, Undone};
use super::ids::{BlobId, CallId, RunId, StepId};
use super::message::{Content, Message, Reply};
use super::outcome::{CheckResult, Outcome, StepResult};
use super::ruling::Ruling;
use super::source::RecipeSource;
pub use super::unruled::{Change, PutBack, Unruled};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// From 0, without gaps.
    pub seq: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds, in about the order in which a run has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    RunStarted(Box<RunStarted>),
    /// The sandbox level that commands get, found by the probe.
    Confined(Confined),
    /// The tree that the patch is made against.
    Baseline {
        tree: String,
        /// Whether the tree differed from the base commit.
        dirty: bool,
    },
    /// What the model is told beside the messages; MCP servers and discovered tools after start-up. Before the first request.
    Equipped(Equipped),
    StepStarted {
        step: StepId,
        index: usize,
        total: usize,
        run: Option<String>,
    },
    /// A plain command of a step has ended.
    Ran {
        step: StepId,
        command: String,
        exit: ExitInfo,
        output: String,
        took_ms: u64,
    },
    AttemptStarted {
        step: StepId,
        n: u32,
        why: String,
        /// Whether what was said since the step's task is left out of the attempt's requests (`retry: { fresh: true }`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh: bool,
    },
    Prompted {
        message: Message,
        why: PromptReason,
    },
    /// The provider was asked again; `wait_ms` is how long we waited first.
    Retried {
        attempt: u32,
        class: String,
        message: String,
        wait_ms: u64,
    },
    Replied {
        turn: u64,
        reply: Reply,
        asked: String,
        took_ms: u64,
        cost_micros: Option<u64>,
    },
    Decided(Box<Decided>),
    Approved {
        call: CallId,
        allow: bool,
        by: String,
    },
    CallStarted {
        call: CallId,
    },
    CallFinished {
        call: CallId,
        state: CallState,
        output: Box<ToolOutput>,
        took_ms: u64,
    },
    /// Programs of a call that were judged at their exec.
    Executed {
        call: CallId,
        execs: Vec<JudgedExec>,
        /// Further ones that are not listed.
        #[serde(default, skip_serializing_if = "is_zero")]
        omitted: u64,
    },
    /// Changes of a command that were not granted, undone when it had ended.
    Undone {
        /// The call whose command it was; `None` for a command of the recipe's author.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The step whose command it was, where it was no call's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepId>,
        /// Whether it was a check of the step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        check: bool,
        undone: Vec<Undone>,
        /// Further ones that are not listed.
        #[serde(default, skip_serializing_if = "is_zero")]
        omitted: u64,
    },
    Checked {
        step: StepId,
        attempt: u32,
        check: CheckResult,
    },
    /// The final answer against the response schema.
    ResponseJudged {
        ok: bool,
        errors: Vec<String>,
        output: Option<Value>,
    },
    StepFinished {
        step: StepId,
        result: StepResult,
    },
    /// Older messages were shortened or summarised; `history` replaces the messages before `keep_from`.
    Compacted {
        history: Vec<Message>,
        keep_from: usize,
        why: String,
        /// The request that was made for a summary: it counts as a turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<Box<Summarised>>,
        /// The digest of the request that the service had refused for its length.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overflow: Option<String>,
        /// Tokens of the model's window, as the service told when it refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
    Suspended {
        calls: Vec<CallId>,
    },
    Resumed {
        by: String,
        model: String,
    },
    PatchTaken(PatchTaken),
    /// Changes that no rule allows were put back as the tree before them has them.
    PutBack(PutBack),
    Warned {
        code: String,
        message: String,
    },
    RunFinished {
        outcome: Outcome,
        spent: Spent,
    },
}

/// One request for a summary and its reply; as in `Replied`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summarised {
    pub turn: u64,
    pub reply: Reply,
    pub asked: String,
    pub took_ms: u64,
    pub cost_micros: Option<u64>,
}

/// All that a resume needs to know of the beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Version of the journal's format.
    pub format: u32,
    pub run: RunId,
    /// Version of the program.
    pub version: String,
    /// The recipe's name, or `prompt`.
    pub recipe: String,
    /// SHA-256 of the plan without its model.
    pub plan_digest: String,
    /// The resolved `recipe::Plan`.
    pub plan: Value,
    pub policies: Vec<PolicyText>,
    /// `PROVIDER/NAME`.
    pub model: String,
    /// For a replay: the model whose replies are played again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replays: Option<String>,
    /// Absolute path of the tree that the run works on.
    pub workspace: String,
    /// For `--isolate`: the tree that the throw-away worktree was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated_from: Option<String>,
    pub base: Base,
    /// Whether replies are recorded ones (`--sample`, `script:`, `replay:`).
    pub recorded: bool,
    /// Where the recipe came from. A journal without it is resumed as one of an untrusted recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RecipeSource>,
}

/// A policy file as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyText {
    pub name: String,
    pub text: String,
    pub digest: String,
    /// Whether it is the recipe's own, which only narrows.
    #[serde(default)]
    pub narrows: bool,
    /// The files that it extends, in the order in which they were first named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<PolicyPart>,
    /// The toolchains that the tree needed when the policy was read, where a preset of it asks for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<String>,
}

/// A file that a policy extends, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyPart {
    /// As the command line would name it from where the policy was named.
    pub name: String,
    pub text: String,
}

/// What the patch applies to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// `HEAD` at the start; `None` outside a git repository or before the first commit.
    pub commit: Option<String>,
}

/// The sandbox as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// `full`, `landlock` or `none`.
    pub level: String,
    pub detail: String,
}

/// What came up beside the built-in tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Equipped {
    pub servers: Vec<ServerStatus>,
    pub discovered: Vec<String>,
    /// SHA-256 of all tool definitions as declared.
    pub definitions: String,
    /// Tokens that the model's window holds, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The system prompt.
    #[serde(default)]
    pub system: String,
    /// The tools as the model is told of them.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Whether programs of the recipe were started for it (servers, discovery): they may have changed the tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs: bool,
    /// Prompts of servers that were asked for now; those of a run's earlier sessions stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<GivenPrompt>,
}

/// What an MCP server gave as the prompt of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenPrompt {
    pub step: StepId,
    pub server: String,
    pub name: String,
    pub arguments: BTreeMap<String, String>,
    pub content: Vec<Content>,
}

/// One MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    pub name: String,
    /// `ready`, `failed` or `disabled`.
    pub status: String,
    pub message: String,
    pub tools: Vec<String>,
}

/// Why the model was told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptReason {
    Task,
    /// Checks failed.
    Feedback,
    /// The answer did not fit the response schema.
    Repair,
    /// It asked a question, repeated itself or changed nothing.
    Nudge,
    /// Its reply was cut or could not be read.
    Retry,
    /// It says the same over and over in one reply.
    Echo,
    /// Nothing has changed in the tree for many turns.
    Idle,
    /// It wrote a call as text, so that nothing was called.
    Printed,
    /// It said nothing and called nothing.
    Empty,
}

/// A ruling and what it was about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    pub call: CallId,
    /// The canonical name of the tool.
    pub tool: String,
    /// What this call would do, in one line.
    pub title: String,
    pub access: Access,
    pub ruling: Ruling,
    /// The arguments after a `modify` rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Value>,
    /// What an edit would change; kept for a suspension's reviewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<FileDiff>,
    /// Whether the tool is read-only, so that waves and resume need not ask the registry.
    pub read_only: bool,
}

/// The run's own changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PatchTaken {
    /// `None` when nothing changed.
    pub blob: Option<BlobId>,
    pub bytes: u64,
    /// The tree after the changes.
    pub tree: String,
    pub files: Vec<FileChange>,
    /// Paths from the top of the repository that checks changed and the run did not: they are no part of the patch.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left: BTreeSet<String>,
    /// The tree without them, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// Changes of the whole run that no rule allows, found when the patch was ruled: put back, or left out of the patch.
    /// Those that are due are put back by the next [`EventKind::PutBack`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unruled: Vec<Unruled>,
    /// Further ones that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unruled_omitted: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PatchTaken {
    /// The tree that the patch makes of the base.
    pub fn own_tree(&self) -> &str {
        self.own.as_deref().unwrap_or(&self.tree)
    }
}

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub path: String,
    /// `added`, `deleted`, `modified`, `renamed` or `mode`.
    pub kind: String,
    /// For `renamed`: the path before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `None` for binary files.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// Passing impressions for a person who looks on. Lossy; never in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "live", rename_all = "snake_case")]
pub enum Live {
    Text {
        delta: String,
    },
    Thought {
        delta: String,
    },
    Output {
        call: CallId,
        chunk: String,
    },
    /// A wait that has a reason: a rate limit, a server that starts.
    Waiting {
        what: String,
        ms: u64,
    },
    Tick,
}

/// An output that is written while the run goes on. Synchronous: a slow one holds the run back.
pub trait Sink: Send {
    /// Takes one event, after it is in the journal.
    fn on_event(&mut self, event: &Event) -> io::Result<()>;
    /// Takes a passing impression.
    fn on_live(&mut self, _live: &Live) {}
    /// No event follows.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

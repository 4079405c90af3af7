//! The events of a run, as the journal stores them. Every output is computed from these events alone.

use super::access::Access;
use super::budget::{Budget, Spent};
use super::call::{CallState, ExitInfo, FileDiff, ToolOutput, ToolSpec};
use super::content::ToolContent;
use super::grant::{JudgedExec, Undone};
use super::ids::{BlobId, CallId, RunId, StepId};
use super::message::{Message, Reply, Usage};
use super::outcome::{CheckResult, RunOutcome, StepResult};
use super::ruling::Ruling;
use super::source::{KeptFile, RecipeSource};
pub use super::unruled::{PathChange, PutBack, Unruled};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// Sequence number: from 0, without gaps.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of events, roughly in the order in which they occur in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    RunStarted(Box<RunStarted>),
    /// The sandbox level of commands, as chosen after probing.
    Confined(Confined),
    /// The tree that the patch is computed against.
    Baseline {
        /// The tree's id in the run's own store.
        tree: String,
        /// Whether the tree differed from the base commit.
        dirty: bool,
    },
    /// What the model gets besides the messages; MCP servers and discovered tools after startup. Recorded before the
    /// first request.
    Equipped(ToolsetReady),
    StepStarted {
        step: StepId,
        /// Number of the step, from 0.
        index: usize,
        /// Number of steps.
        total: usize,
        /// The command, for a step without a model.
        run: Option<String>,
    },
    /// A `run` command of a step has ended.
    Ran {
        step: StepId,
        /// The command as it was run.
        command: String,
        exit: ExitInfo,
        /// What it printed: all of it, or head and tail together of at most 1 MiB.
        output: String,
        /// Whether it printed more than that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
        /// Milliseconds.
        took_ms: u64,
    },
    AttemptStarted {
        step: StepId,
        /// Number of the attempt, from 1.
        n: u32,
        /// Why there is a further attempt: which checks failed.
        why: String,
        /// Whether the conversation since the step's task is left out of this attempt's requests (`retry: { fresh: true
        /// }`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh: bool,
    },
    Prompted {
        message: Message,
        why: PromptReason,
    },
    /// A request to the provider failed. It is repeated, after waiting `wait_ms` milliseconds, unless `discarded` says
    /// that this was the last attempt.
    Retried {
        /// Number of the request, from 1.
        attempt: u32,
        /// The class of the error.
        class: String,
        /// What the service said.
        message: String,
        /// Milliseconds.
        wait_ms: u64,
        /// The reply that the service counted although it could not be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        discarded: Option<DiscardedReply>,
    },
    Replied {
        /// Number of the turn in the run.
        turn: u64,
        reply: Reply,
        /// Digest of the request, which a replay compares.
        asked: String,
        /// Milliseconds.
        took_ms: u64,
        /// Millionths of a US dollar; null when no price is known.
        cost_micros: Option<u64>,
        /// Calls whose arguments contained a secret. The arguments are recorded redacted, so nothing else shows it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<CallId>,
    },
    Decided(Box<Decided>),
    Approved {
        call: CallId,
        /// Whether the person approved the call.
        allow: bool,
        /// Who approved it, as far as that is known.
        by: String,
    },
    CallStarted {
        call: CallId,
    },
    CallFinished {
        call: CallId,
        state: CallState,
        output: Box<ToolOutput>,
        /// Milliseconds.
        took_ms: u64,
    },
    /// Programs of a call that were judged at their exec. For a command in the background, recorded once it has ended,
    /// each program with the same arguments and directory once.
    Executed {
        call: CallId,
        /// The programs, in order.
        execs: Vec<JudgedExec>,
        /// Number of further programs that are not listed.
        #[serde(default, skip_serializing_if = "is_zero")]
        omitted: u64,
    },
    /// Changes that a command or an MCP server made without a grant and that were undone when it had ended.
    Undone {
        /// The call that ran the command, or started it in the background; null for a command of the recipe's author and
        /// for an MCP server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The step that ran the command, if no call did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepId>,
        /// The MCP server that made the changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<String>,
        /// Whether the command was a check of the step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        check: bool,
        /// The changes.
        undone: Vec<Undone>,
        /// Number of further changes that are not listed.
        #[serde(default, skip_serializing_if = "is_zero")]
        omitted: u64,
    },
    Checked {
        step: StepId,
        /// Number of the attempt, from 1.
        attempt: u32,
        check: CheckResult,
        /// Paths, relative to the workspace, that the command of the check had changed and that were put back when it
        /// ended; at most 1,000. Null for a check without a command, and in journals of versions that put nothing back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        put_back: Option<Vec<String>>,
        /// The patch in the run directory that brings back what was put back; null where nothing was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        put_back_patch: Option<String>,
    },
    /// The final answer was validated against the response schema.
    ResponseJudged {
        /// Whether it matches.
        ok: bool,
        /// What does not match.
        errors: Vec<String>,
        /// The answer as JSON, if it is JSON.
        output: Option<Value>,
    },
    StepFinished {
        step: StepId,
        result: StepResult,
    },
    /// Older messages were shortened or summarised; `history` replaces the messages before `keep_from`.
    Compacted {
        /// The messages that take the place of the earlier ones.
        history: Vec<Message>,
        /// Index of the first message that is kept as it is.
        keep_from: usize,
        /// What made the history too long.
        why: String,
        /// The request for a summary, which counts as a turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<Box<Summarised>>,
        /// The digest of the request that the service refused because of its length.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overflow: Option<String>,
        /// Size of the model's context window in tokens, as reported by the service when it refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
    Suspended {
        /// The calls that wait.
        calls: Vec<CallId>,
    },
    Resumed {
        /// What resumed the run.
        by: String,
        /// The model from here on, as `PROVIDER/NAME`.
        model: String,
        /// The policies from here on, if the command line named any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        policies: Vec<PolicyText>,
        /// The limits from here on that the command line named; the others stay as they were.
        #[serde(default, skip_serializing_if = "Budget::is_empty")]
        limits: Budget,
        /// Absolute path of the current directory of the resume. The path of a script or recorded run in `model` is
        /// relative to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
    },
    PatchTaken(PatchTaken),
    /// Changes that no rule allows were undone: the paths were restored from the tree before them.
    PutBack(PutBack),
    Warned {
        /// A code for scripts.
        code: String,
        /// One sentence for people.
        message: String,
    },
    RunFinished {
        outcome: RunOutcome,
        spent: Spent,
    },
}

/// A reply that the service counted although it could not be used: malformed, blocked or cut off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiscardedReply {
    pub usage: Usage,
    /// Millionths of a US dollar; null when no price is known.
    pub cost_micros: Option<u64>,
    /// Whether it was the last attempt, so that the request was not repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// One request for a summary and its reply; fields as in `Replied`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summarised {
    /// Number of the turn in the run.
    pub turn: u64,
    pub reply: Reply,
    /// Digest of the request.
    pub asked: String,
    /// Milliseconds.
    pub took_ms: u64,
    /// Millionths of a US dollar; null when no price is known.
    pub cost_micros: Option<u64>,
}

/// Everything that a resume needs from the start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The policies of the run.
    pub policies: Vec<PolicyText>,
    /// `PROVIDER/NAME`.
    pub model: String,
    /// For a replay: the model whose recorded replies are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replays: Option<String>,
    /// Absolute path of the current directory when the run began. The path of a script or recorded run in `model` is
    /// relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Absolute path of the tree that the run works on.
    pub workspace: String,
    /// For `--isolate`: the tree from which the temporary worktree was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated_from: Option<String>,
    pub base: PatchBase,
    /// Whether replies are recorded ones (`--sample`, `script:`, `replay:`).
    pub recorded: bool,
    /// Whether the run is that of a recipe's sample, on a temporary copy of the sample's tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sample: bool,
    /// Where the recipe came from. A journal without it is resumed as if its recipe were untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RecipeSource>,
    /// The files beside the recipe that its commands get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<KeptFile>,
}

/// A policy file as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyText {
    /// As on the command line.
    pub name: String,
    /// The whole file.
    pub text: String,
    /// SHA-256 of the file with all that it extends.
    pub digest: String,
    /// Whether it is the recipe's own policy, which can only restrict.
    #[serde(default)]
    pub narrows: bool,
    /// The files that it extends, in the order in which they were first named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<PolicyPart>,
    /// The toolchains that the tree needed when the policy was read, if one of its presets depends on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<String>,
}

/// A file that a policy extends, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyPart {
    /// Its name relative to the policy, as the command line would write it.
    pub name: String,
    /// The whole file.
    pub text: String,
}

/// The base of the patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PatchBase {
    /// `HEAD` at the start; null outside a git repository or before the first commit.
    pub commit: Option<String>,
}

/// The sandbox that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Confined {
    /// `full`, `landlock` or `none`.
    pub level: String,
    /// What of the sandbox this machine supports, or why the level is not a higher one.
    pub detail: String,
}

/// What was started or discovered in addition to the built-in tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ToolsetReady {
    /// The MCP servers of the recipe.
    pub servers: Vec<ServerStatus>,
    /// Names of discovered tools.
    pub discovered: Vec<String>,
    /// SHA-256 of all tool definitions as declared.
    pub definitions: String,
    /// Size of the model's context window in tokens, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The system prompt.
    #[serde(default)]
    pub system: String,
    /// The tools as declared to the model.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Whether programs of the recipe were started (servers, discovery), which may have changed the tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs: bool,
    /// Prompts that servers returned in this session; those of a run's earlier sessions remain valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<GivenPrompt>,
}

/// The prompt that an MCP server returned for a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GivenPrompt {
    pub step: StepId,
    /// The server's name in the recipe.
    pub server: String,
    /// The prompt's name.
    pub name: String,
    /// The arguments that were sent.
    pub arguments: BTreeMap<String, String>,
    /// What the server returned.
    pub content: Vec<ToolContent>,
}

/// Code of the warning for a server that did not start.
pub const SERVER_MISSING: &str = "mcp_server_missing";
/// Code of the warning for a server that is used no more. Its message begins with `MCP server NAME `.
pub const SERVER_LOST: &str = "mcp_server_lost";

/// Code of the warning that the last changes of a run could not be measured, and reason of its end then.
pub const UNMEASURED: &str = "patch";

/// One MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The server's name in the recipe.
    pub name: String,
    /// `ready`, `failed`, `disabled`, or `lost` if it ended in the middle of the run and was not started again.
    pub status: String,
    /// Why it failed or was lost; may be empty.
    pub message: String,
    /// The names of its tools.
    pub tools: Vec<String>,
}

/// Why the model gets a further message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PromptReason {
    Task,
    /// Checks failed.
    Feedback,
    /// The answer did not match the response schema.
    Repair,
    /// The model repeated itself, or asked a question without having changed anything.
    Nudge,
    /// The model's reply was cut off or could not be parsed.
    Retry,
    /// The model repeats the same text within one reply.
    Echo,
    /// Nothing has changed in the tree for many turns.
    Idle,
    /// The model wrote a tool call as text, so that nothing was called.
    Printed,
    /// The reply had neither text nor calls.
    Empty,
}

/// A ruling and the call that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Decided {
    pub call: CallId,
    /// The canonical name of the tool.
    pub tool: String,
    /// A description of the call in one line.
    pub title: String,
    pub access: Access,
    pub ruling: Ruling,
    /// The arguments after rewriting by a `modify` rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Value>,
    /// The changes of an edit, kept for the person who reviews a suspended call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<FileDiff>,
    /// Whether the tool is read-only, so that scheduling and resume need not look it up.
    pub read_only: bool,
}

/// The changes made by the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PatchTaken {
    /// Null if nothing changed, or if the patch is withheld because it contains a secret.
    pub blob: Option<BlobId>,
    /// Size of the patch in bytes, also of one that is withheld.
    pub bytes: u64,
    /// The tree after the changes.
    pub tree: String,
    /// The changed files.
    pub files: Vec<FileChange>,
    /// Number of further added and removed lines: they end in CR alone, where git sees no line end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cr_lines: u64,
    /// Paths from the top of the repository that were changed by checks and not by the run: they are not part of the
    /// patch. Only in runs that began with a version that did not put such changes back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left: BTreeSet<String>,
    /// The tree without these paths, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// Changes of the whole run that no rule allows, found when the patch was ruled on: they are undone, or left out of
    /// the patch. Those that are due are undone by the next [`EventKind::PutBack`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unruled: Vec<Unruled>,
    /// Number of further changes that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unruled_omitted: u64,
    /// The name of the secret whose value the changes contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Why the patch lacks a changed file that it cannot contain, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PatchTaken {
    /// Marks the changes that were restored.
    pub fn put_back(&mut self, done: &PutBack) {
        self.tree.clone_from(&done.tree);
        for unruled in self.unruled.iter_mut().filter(|unruled| unruled.is_due()) {
            unruled.restored = !done.failed.contains(&unruled.path);
        }
    }

    /// The secret because of which the patch is withheld. Journals of earlier versions do not name it.
    pub fn withheld_for(&self) -> Option<&str> {
        let unnamed = (self.blob.is_none() && self.bytes > 0).then_some("a secret");
        self.secret.as_deref().or(unnamed)
    }

    /// The tree that results from applying the patch to the base.
    pub fn own_tree(&self) -> &str {
        self.own.as_deref().unwrap_or(&self.tree)
    }
}

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileChange {
    /// From the top of the repository.
    pub path: String,
    /// `added`, `deleted`, `modified`, `renamed` or `mode`.
    pub kind: String,
    /// For `renamed`: the previous path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Null for binary files whose content changed.
    pub added: Option<u64>,
    /// Null for binary files whose content changed.
    pub removed: Option<u64>,
}

/// Live progress for a person who watches. Lossy; never stored in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "live", rename_all = "snake_case")]
pub enum ProgressEvent {
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
    /// A wait with a reason: a rate limit, a starting server.
    Waiting {
        what: String,
        ms: u64,
    },
    Tick,
}

/// An output that is written while the run continues. Synchronous: a slow output delays the run.
pub trait Sink: Send {
    /// Receives, before all others, an event of an earlier session of the run.
    fn on_earlier(&mut self, _event: &Event) {}
    /// Receives an event after it was written to the journal.
    ///
    /// # Errors
    /// The output could not be written. The run goes on.
    fn on_event(&mut self, event: &Event) -> io::Result<()>;
    /// Receives live progress.
    fn on_live(&mut self, _live: &ProgressEvent) {}
    /// Called after the last event.
    ///
    /// # Errors
    /// The output could not be completed.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

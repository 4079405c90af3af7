//! What a recording contains besides the replies of the model.

use crate::base::call::ToolOutput;
use crate::base::event::GivenPrompt;
use crate::base::ids::{CallId, StepId};
use crate::base::outcome::CheckResult;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The recorded data besides the replies.
#[derive(Clone, Debug, Default)]
pub struct RecordedRun {
    /// The model that was asked, `PROVIDER/NAME`.
    pub model: String,
    /// The result of each call.
    pub results: BTreeMap<CallId, ToolOutput>,
    /// The context window of that model, in tokens.
    pub window: Option<u64>,
    /// Digests of requests that the service had refused for their length, with the window that it named.
    pub overflows: BTreeMap<String, Option<u64>>,
    /// Output of the commands of steps.
    pub steps: BTreeMap<StepId, String>,
    /// Checks by step, attempt and name.
    pub checks: BTreeMap<(StepId, u32, String), CheckResult>,
    /// Whether output of commands, checks and servers must equal the recorded one, too.
    pub strict: bool,
    /// The directory of full results.
    pub kept: PathBuf,
    /// Calls whose arguments contained a secret; the recorded arguments have it redacted.
    pub secrets: BTreeSet<CallId>,
    /// Prompts that MCP servers gave for steps.
    pub prompts: Vec<GivenPrompt>,
}

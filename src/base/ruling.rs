//! The policy's decision on one call, in the form that the journal stores.

use super::grant::Writes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Ordered from the mildest to the strictest; the strictest of all matching rules wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Modify,
    Suspend,
    Deny,
}

impl Decision {
    /// The word used in files and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Modify => "modify",
            Decision::Suspend => "suspend",
            Decision::Deny => "deny",
        }
    }

    /// Whether the call is carried out, as it is or rewritten.
    pub fn runs(self) -> bool {
        matches!(self, Decision::Allow | Decision::Modify)
    }
}

/// The name of a rule without the directory of its file, for the model: what it reads must be the same when a recording
/// is replayed elsewhere.
pub fn shown_rule(rule: &str) -> &str {
    let of_file = |(_, line): &(&str, &str)| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    match rule.rsplit_once(':').filter(of_file) {
        Some((path, _)) => rule.get(path.rfind('/').map_or(0, |slash| slash + 1)..).unwrap_or(rule),
        None => rule,
    }
}

/// A ruling on one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ruling {
    pub decision: Decision,
    /// The rule that decided: its `id`, or `FILE:LINE`; null when no rule matched.
    pub rule: Option<String>,
    /// A reason code from the closed list in `policy::codes`, for example `no_rule` or `refused_construct:eval`.
    pub code: String,
    /// One sentence for the model and for people.
    pub reason: String,
    /// One line: which rule would allow it, or what to do instead.
    pub fix: String,
    /// Every rule that was evaluated, for `policy explain` and the journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<Considered>,
    /// The words of each simple command after quote removal, as they were judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Vec<String>>,
    /// For `Modify`: the program that rewrites the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipe: Option<String>,
    /// Identities of the rules whose `times` count this call uses up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// For a command that may run: what it may write in the workspace.
    #[serde(default = "the_tree", skip_serializing_if = "is_the_tree")]
    pub writes: Writes,
    /// Commands that are ruled on only when they are executed, because some of their words are unknown before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<Deferred>,
}

impl Ruling {
    /// A denial that no rule made.
    pub fn denied(code: impl Into<String>, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            decision: Decision::Deny,
            rule: None,
            code: code.into(),
            reason: reason.into(),
            fix: fix.into(),
            considered: Vec::new(),
            words: Vec::new(),
            pipe: None,
            uses: Vec::new(),
            writes: Writes::Nothing,
            deferred: Vec::new(),
        }
    }
}

/// Default for journals written before write grants existed: commands could write the whole tree.
fn the_tree() -> Writes {
    Writes::Tree
}

fn is_the_tree(writes: &Writes) -> bool {
    *writes == Writes::Tree
}

/// A command that is ruled at its exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Deferred {
    /// The program's name.
    pub program: String,
    /// The rule whose prefix covers its known words.
    pub rule: Option<String>,
    /// Which word is unknown, and why it matters.
    pub reason: String,
}

/// One rule and the result of matching it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Considered {
    /// The rule: its `id`, or `FILE:LINE`.
    pub rule: String,
    pub decision: Decision,
    /// Whether it matched.
    pub matched: bool,
    /// What it matched (`write src/a.rs`), or why it did not.
    pub why: String,
}

/// A call as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput<'a> {
    /// The canonical tool name.
    pub tool: &'a str,
    pub kind: super::call::ToolKind,
    pub origin: &'a super::call::ToolOrigin,
    /// The arguments, those of a built-in tool under their current names.
    pub args: &'a Value,
}

impl<'a> PolicyInput<'a> {
    /// A call of this tool.
    pub fn of(spec: &'a super::call::ToolSpec, args: &'a Value) -> Self {
        Self {
            tool: &spec.name,
            kind: spec.kind,
            origin: &spec.origin,
            args,
        }
    }
}

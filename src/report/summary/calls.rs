//! One call as the outputs see it: its arguments, its rulings and its result.

use crate::base::call::{CallState, ToolCall, ToolOutput};
use crate::base::event::Decided;
use crate::base::grant::{JudgedExec, NOT_RESTORED, Undone, cause, strictest};
use crate::base::ruling::{Decision, Ruling};
use jiff::Timestamp;
use serde_json::Value;

/// One call of the model.
#[derive(Clone, Debug)]
pub struct CallSummary<'a> {
    pub call: &'a ToolCall,
    /// The step of the call: index into `RunSummary::steps`.
    pub step: usize,
    pub asked: Timestamp,
    /// All rulings, in order; several after `modify` or a resume. Empty for an unknown tool or invalid arguments.
    pub rulings: Vec<&'a Decided>,
    /// A person's answer: allowed or not, and by whom.
    pub approval: Option<(bool, &'a str)>,
    pub started: Option<Timestamp>,
    /// `None` while nothing final is known.
    pub state: Option<CallState>,
    pub output: Option<&'a ToolOutput>,
    /// Milliseconds of its work, without waiting for approval.
    pub took_ms: u64,
    /// Programs that were judged at their exec, in order.
    pub execs: &'a [JudgedExec],
    /// Number of further ones that are not listed.
    pub execs_omitted: u64,
    /// Changes that its command had no right to make.
    pub undone: &'a [Undone],
}

/// Why a call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenialReason<'a> {
    pub rule: Option<&'a str>,
    pub code: &'a str,
    pub reason: &'a str,
    pub fix: &'a str,
    /// The program, where it was denied at its exec.
    pub exec: Option<&'a JudgedExec>,
}

impl<'a> CallSummary<'a> {
    /// The last ruling with its event data.
    pub fn decided(&self) -> Option<&'a Decided> {
        self.rulings.last().copied()
    }

    /// The last ruling.
    pub fn ruling(&self) -> Option<&'a Ruling> {
        self.decided().map(|decided| &decided.ruling)
    }

    /// The canonical name of the tool if known, otherwise the name that the model wrote.
    pub fn tool(&self) -> &'a str {
        self.decided().map_or(self.call.tool.as_str(), |decided| &decided.tool)
    }

    /// A one-line description of the call.
    pub fn title(&self) -> &'a str {
        self.decided()
            .map(|decided| decided.title.as_str())
            .filter(|title| !title.is_empty())
            .unwrap_or(&self.call.tool)
    }

    /// The arguments after a `modify` rule.
    pub fn modified(&self) -> Option<&'a Value> {
        self.rulings.iter().rev().find_map(|decided| decided.modified.as_ref())
    }

    /// The effective arguments.
    pub fn args(&self) -> &'a Value {
        self.modified().unwrap_or(&self.call.args)
    }

    /// The word for the ruling: `allow`, `modify`, `suspend`, `deny`; `None` when the call was never ruled.
    pub fn decision(&self) -> Option<&'static str> {
        if self.denial().is_some() {
            return Some(Decision::Deny.as_str());
        }
        let ruling = self.ruling()?;
        let modified = ruling.decision == Decision::Allow && self.modified().is_some();
        Some(if modified { Decision::Modify } else { ruling.decision }.as_str())
    }

    /// Why the call was denied: by the policy, by a person, or by the write guard, which reverted its changes.
    pub fn denial(&self) -> Option<DenialReason<'a>> {
        if let Some(ruling) = self.ruling() {
            let rule = ruling.rule.as_deref();
            if ruling.decision == Decision::Deny {
                return Some(DenialReason {
                    rule,
                    code: &ruling.code,
                    reason: &ruling.reason,
                    fix: &ruling.fix,
                    exec: None,
                });
            }
            if let Some((false, _)) = self.approval {
                return Some(DenialReason {
                    rule,
                    code: "not_approved",
                    reason: "a person reviewed this call and denied it",
                    fix: "",
                    exec: None,
                });
            }
        }
        let denied = |exec: &'a JudgedExec| Some((exec, exec.denied.as_ref()?));
        if let Some((exec, denial)) = self.execs.iter().rev().find_map(denied) {
            return Some(DenialReason {
                rule: denial.rule.as_deref(),
                code: &denial.code,
                reason: &denial.reason,
                fix: &denial.fix,
                exec: Some(exec),
            });
        }
        let output = self.output?;
        let Some(failure) = output.error.as_ref() else {
            return self.denial_of_background();
        };
        let code = failure.denial()?;
        // The rule of the ruling allowed the command; another one, or none, is why its change was not kept.
        let cause = cause(self.undone, code);
        Some(DenialReason {
            rule: cause.and_then(|one| one.rule.as_deref()),
            code,
            reason: &failure.message,
            fix: cause.map_or("", Undone::fix),
            exec: None,
        })
    }

    /// Why the command that a call started in the background was denied: such a call has its result before its command
    /// ends.
    fn denial_of_background(&self) -> Option<DenialReason<'a>> {
        let code = strictest(self.undone)?;
        let reason = match code {
            NOT_RESTORED => {
                "the command, which ran in the background, changed paths that it may not change; not all of it could be undone"
            }
            _ => "the command, which ran in the background, changed paths that it may not change; this was undone",
        };
        let cause = cause(self.undone, code);
        Some(DenialReason {
            rule: cause.and_then(|one| one.rule.as_deref()),
            code,
            reason,
            fix: cause.map_or("", Undone::fix),
            exec: None,
        })
    }

    /// Whether the call could only read.
    pub fn only_reads(&self) -> bool {
        let read = |decided: &Decided| decided.read_only && decided.access.urls.is_empty();
        self.decided().is_some_and(read) && self.started.is_none()
    }

    /// The programs that had run before one was denied.
    pub fn ran(&self) -> impl Iterator<Item = &'a JudgedExec> {
        self.execs.iter().filter(|exec| exec.denied.is_none())
    }

    /// Whether the call waits for a person.
    pub fn is_waiting(&self) -> bool {
        let suspended = self.ruling().is_some_and(|ruling| ruling.decision == Decision::Suspend);
        suspended && self.approval.is_none() && !self.state.is_some_and(CallState::is_final)
    }

    /// Whether a person was asked, independent of the answer.
    pub fn needs_approval(&self) -> bool {
        let mut rulings = self.rulings.iter();
        self.approval.is_some() || rulings.any(|decided| decided.ruling.decision == Decision::Suspend)
    }

    /// Whether the call was neither started nor answered, and nobody is asked about it: a limit or the end of the run came
    /// first.
    pub fn was_left(&self) -> bool {
        matches!(self.status(), "validating" | "scheduled")
    }

    /// The state of the call: one of seven words.
    pub fn status(&self) -> &'static str {
        match self.state {
            Some(CallState::Success) => "success",
            Some(CallState::Error) => "error",
            Some(CallState::Cancelled) => "cancelled",
            _ if self.is_waiting() => "awaiting_approval",
            _ if self.denial().is_some() => "error",
            _ if self.started.is_some() => "executing",
            _ if self.rulings.is_empty() => "validating",
            _ => "scheduled",
        }
    }
}

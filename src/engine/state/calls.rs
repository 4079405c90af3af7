//! Applies the events of a call to the state: ruled, approved, started, finished, settled. Pure.

use super::{ApprovedFailure, CallRecord, DeniedCall, Phase, RunState};
use crate::base::call::{CallState, Display, ToolKind, ToolOutput};
use crate::base::event::Decided;
use crate::base::grant::{ExecDenial, NOT_RESTORED, Undone, Writes};
use crate::base::ids::{CallId, sha256_hex};
use crate::base::message::{CallResult, Message, Part, Role};
use crate::base::ruling::Decision;
use crate::policy::Author;
use crate::policy::model::SHELL;
use crate::tools::{builtin_called, undone_failure};
use std::collections::BTreeMap;

/// Whether a call with this ruling may change the tree, so that a new measurement is needed. `confined`: the sandbox
/// level of the run.
pub(super) fn may_write(decided: &Decided, confined: Option<&str>) -> bool {
    // `Writes::Nothing` counts only where a sandbox enforces it. Journals from before grants existed read as a grant of
    // the whole tree.
    let enforced = confined.is_some_and(|level| level != "none");
    let nothing = enforced && !decided.access.commands.is_empty() && decided.ruling.writes == Writes::Nothing;
    !decided.read_only && !nothing
}

impl CallRecord {
    /// Whether a reviewer approved the call, and it would run because of that: it has not run, or it only reads and was
    /// interrupted.
    pub fn is_unused_approval(&self) -> bool {
        let may_run = match self.state {
            CallState::Executing => self.read_only,
            state => !state.is_final(),
        };
        self.approved && may_run
    }
}

impl RunState {
    /// Counts the uses of rules with `times`. A call that is ruled on again (rewritten, approved or resumed) counts once.
    fn count_uses(&mut self, decided: &Decided) {
        self.uses = self.uses_by_others(&decided.call);
        for rule in &decided.ruling.uses {
            *self.uses.entry(rule.clone()).or_default() += 1;
        }
        if let Some(record) = self.calls.get_mut(&decided.call) {
            record.uses.clone_from(&decided.ruling.uses);
        }
    }

    /// The uses of each rule with `times` by all calls but this one.
    pub fn uses_by_others(&self, call: &CallId) -> BTreeMap<String, u64> {
        let mut counts = self.uses.clone();
        for rule in self.calls.get(call).into_iter().flat_map(|record| &record.uses) {
            let counted = counts.entry(rule.clone()).or_default();
            *counted = counted.saturating_sub(1);
        }
        counts
    }

    pub(super) fn decided(&mut self, decided: &Decided) {
        let ruling = &decided.ruling;
        self.count_uses(decided);
        if ruling.decision == Decision::Deny {
            let denial = self.denied_call(&decided.call, &ruling.code, &ruling.reason, ruling.rule.as_deref());
            self.note_denied(DeniedCall {
                tool: decided.tool.clone(),
                read: decided.read_only && decided.access.urls.is_empty(),
                ..denial
            });
        }
        let Some(record) = self.calls.get_mut(&decided.call) else {
            return;
        };
        record.tool = Some(decided.tool.clone());
        record.read_only = decided.read_only;
        record.may_write = may_write(decided, self.confined.as_deref());
        if decided.modified.is_some() {
            record.modified.clone_from(&decided.modified);
        }
        let next = match ruling.decision {
            Decision::Allow => CallState::Scheduled,
            Decision::Suspend if record.approved => CallState::Scheduled,
            Decision::Suspend => CallState::AwaitingApproval,
            Decision::Deny | Decision::Modify => return,
        };
        record.state = next;
    }

    pub(super) fn approved(&mut self, call: &CallId, allow: bool) {
        let Some(record) = self.calls.get_mut(call) else {
            return;
        };
        // Of two answers to a call that has not started, the denial holds.
        let is_withdrawn = record.approved && record.state == CallState::Scheduled && !allow;
        if record.state != CallState::AwaitingApproval && !is_withdrawn {
            return;
        }
        record.state = CallState::Scheduled;
        record.approved = allow;
        record.refused = !allow;
        let read = record.read_only;
        if !allow {
            let denial = self.denied_call(call, "not_approved", "a reviewer refused this call", None);
            self.note_denied(DeniedCall { read, ..denial });
        }
    }

    /// Calls that wait for a person. An approval that one of them had, and that was not used, no longer counts: a resume
    /// records this of a journal whose approvals nobody can verify.
    pub(super) fn suspended(&mut self, calls: &[CallId]) {
        for call in calls {
            if let Some(record) = self.calls.get_mut(call).filter(|record| record.is_unused_approval()) {
                record.approved = false;
                record.state = CallState::AwaitingApproval;
            }
        }
    }

    pub(super) fn call_started(&mut self, call: &CallId) {
        let Some(record) = self.calls.get_mut(call) else {
            return;
        };
        record.state = CallState::Executing;
        let (may_write, approved) = (record.may_write, record.approved);
        let tool = record.tool.clone().unwrap_or_else(|| record.call.tool.clone());
        *self.spent.calls.entry(tool.clone()).or_default() += 1;
        *self.progress.spent.calls.entry(tool).or_default() += 1;
        if may_write {
            self.wrote(if approved { Author::Approved } else { Author::Call });
        }
    }

    /// Notes the program of a call that was denied at its exec. A command in the background ends after its call, which has
    /// its result already.
    pub(super) fn executed(&mut self, call: &CallId, denied: Option<&ExecDenial>) {
        if let Some(record) = self.calls.get_mut(call).filter(|record| !record.state.is_final()) {
            record.exec_denied = denied.cloned();
        } else if let Some(denied) = denied {
            let denial = self.denied_call(call, &denied.code, &denied.reason, denied.rule.as_deref());
            self.note_denied(denial);
        }
    }

    /// Notes changes of a call's command that were not granted. The result of a running call reports them; a change that
    /// could not be undone is noted at once, because it ends the run.
    pub(super) fn undone_of_call(&mut self, call: &CallId, undone: &[Undone]) {
        let Some(failure) = undone_failure(undone) else { return };
        let Some(code) = failure.denial() else { return };
        let is_open = self.calls.get(call).is_some_and(|record| !record.state.is_final());
        if !is_open || code == NOT_RESTORED {
            let denial = self.denied_call(call, code, &failure.message, None);
            self.note_denied(denial);
        }
    }

    /// The denial of a call that may have done more than read.
    fn denied_call(&self, call: &CallId, code: &str, reason: &str, rule: Option<&str>) -> DeniedCall {
        let record = self.calls.get(call);
        let tool = record.map(|record| record.tool.clone().unwrap_or_else(|| record.call.tool.clone()));
        DeniedCall {
            call: call.clone(),
            step: self.step_of_call.get(call).copied().unwrap_or(self.step),
            // A call whose record was dropped started a command in the background.
            tool: tool.unwrap_or_else(|| SHELL.to_owned()),
            code: code.to_owned(),
            reason: reason.to_owned(),
            rule: rule.map(str::to_owned),
            read: false,
        }
    }

    /// Each call has one denial: the first, or that its change could not be undone.
    fn note_denied(&mut self, denial: DeniedCall) {
        match self.denials.iter_mut().find(|known| known.call == denial.call) {
            Some(known) if denial.code == NOT_RESTORED => *known = denial,
            Some(_) => {}
            None => self.denials.push(denial),
        }
    }

    pub(super) fn call_finished(&mut self, call: &CallId, state: CallState, output: &ToolOutput) {
        let Some(record) = self.calls.get_mut(call) else {
            return;
        };
        record.state = state;
        record.output = Some(output.clone());
        if let Display::Diff(diff) = &output.display {
            self.edited.insert(diff.path.clone());
        }
        if let Some(exec) = record.exec_denied.clone() {
            let denial = self.denied_call(call, &exec.code, &exec.reason, exec.rule.as_deref());
            self.note_denied(denial);
        }
        if let Some(failure) = &output.error
            && let Some(code) = failure.denial()
        {
            let denial = self.denied_call(call, code, &failure.message, None);
            self.note_denied(denial);
        }
        self.note_edit(call);
        self.note_approved(call);
        if self.calls.values().all(|record| record.state.is_final()) {
            self.settle_turn();
        }
    }

    /// Counts the calls of tools that edit files. A denied one is a denial.
    fn note_edit(&mut self, call: &CallId) {
        let Some(record) = self.calls.get(call) else { return };
        let tool = record.tool.as_deref().unwrap_or(&record.call.tool);
        if !builtin_called(tool).is_some_and(|spec| spec.kind == ToolKind::Edit) {
            return;
        }
        let failure = record.output.as_ref().and_then(|output| output.error.as_ref());
        match (record.state, failure) {
            (CallState::Success, _) => self.edits.done += 1,
            (_, Some(failure)) if failure.denial().is_none() => self.edits.failed += 1,
            _ => {}
        }
    }

    /// Notes that an approved call failed, or that the same call has succeeded since.
    fn note_approved(&mut self, call: &CallId) {
        let Some(record) = self.calls.get(call).filter(|record| record.approved) else {
            return;
        };
        let tool = record.tool.clone().unwrap_or_else(|| record.call.tool.clone());
        let args = record.modified.as_ref().unwrap_or(&record.call.args).to_string();
        let digest = sha256_hex(&[tool.as_bytes(), b"\0", args.as_bytes()]);
        self.approved_failures.retain(|failure| failure.digest != digest);
        let output = record.output.as_ref();
        let failure = output.and_then(|output| output.error.as_ref());
        let how = match (output.and_then(|output| output.exit.as_ref()), failure) {
            (Some(exit), _) if exit.timed_out => Some("ran out of time".to_owned()),
            (Some(exit), _) if exit.code.or(exit.signal).is_some_and(|end| end != 0) => {
                Some(format!("ended with {}", exit.ending()))
            }
            (_, Some(failure)) => Some(format!(
                "failed: {}",
                failure.message.lines().next().unwrap_or_default()
            )),
            _ if record.state != CallState::Success => Some("did not finish".to_owned()),
            _ => None,
        };
        if let Some(how) = how {
            let call = call.clone();
            self.approved_failures.push(ApprovedFailure {
                call,
                tool,
                digest,
                how,
            });
        }
    }

    fn settle_turn(&mut self) {
        let parts = self.calls.values().map(|record| {
            let output = record.output.clone().unwrap_or_default();
            Part::Result(CallResult {
                call: record.call.id.clone(),
                tool: record.call.tool.clone(),
                wire_id: record.call.wire_id.clone(),
                is_error: output.error.is_some() || record.state != CallState::Success,
                content: output.content,
            })
        });
        let message = Message {
            role: Role::Tool,
            parts: parts.collect(),
        };
        let told = self.calls.values().map(|record| {
            let output = record.output.as_ref().map(ToolOutput::model_text).unwrap_or_default();
            sha256_hex(&[
                record.call.tool.as_bytes(),
                b"\0",
                record.call.args.to_string().as_bytes(),
                b"\0",
                output.as_bytes(),
            ])
        });
        self.repeats = self.repetition.note(&told.collect::<String>());
        self.push(message);
        self.phase = Phase::Asking;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::EventKind;
    use crate::base::grant::JudgedExec;
    use crate::base::message::StopReason;
    use crate::engine::crash_tests::replied;
    use serde_json::json;

    /// A reply that asks for one command.
    fn asks_for(id: &CallId) -> EventKind {
        let call = crate::base::call::ToolCall {
            id: id.clone(),
            tool: "run_shell_command".to_owned(),
            args: json!({}),
            wire_id: None,
        };
        replied(vec![Part::Call(call)], StopReason::Calls)
    }

    #[test]
    fn a_program_denied_at_its_exec_is_a_denial_of_its_call() {
        let id = CallId::nth(1);
        let denied = ExecDenial {
            rule: Some("r".to_owned()),
            code: "exec_denied".to_owned(),
            ruling: None,
            reason: "no".to_owned(),
            fix: String::new(),
        };
        let exec = |denied| JudgedExec {
            path: "/usr/bin/rm".to_owned(),
            argv: vec!["rm".to_owned()],
            cwd: String::new(),
            denied,
        };
        let finished = |output| EventKind::CallFinished {
            call: id.clone(),
            state: CallState::Error,
            output: Box::new(output),
            took_ms: 0,
        };
        for output in [
            ToolOutput::failure("denied:exec_denied", "told"),
            ToolOutput::text("killed", ""),
        ] {
            let mut state = RunState::default();
            for event in [
                asks_for(&id),
                EventKind::CallStarted { call: id.clone() },
                EventKind::Executed {
                    call: id.clone(),
                    execs: vec![exec(None), exec(Some(denied.clone()))],
                    omitted: 0,
                },
                finished(output),
            ] {
                state.apply(&event);
            }
            let wanted = DeniedCall {
                call: id.clone(),
                step: 0,
                tool: "run_shell_command".to_owned(),
                code: "exec_denied".to_owned(),
                reason: "no".to_owned(),
                rule: Some("r".to_owned()),
                read: false,
            };
            assert_eq!(state.denials, [wanted]);
        }
    }

    fn undone(call: &CallId, code: &str, restored: bool) -> EventKind {
        EventKind::Undone {
            call: Some(call.clone()),
            step: None,
            server: None,
            check: false,
            undone: vec![Undone {
                path: "tests/a.py".to_owned(),
                code: code.to_owned(),
                rule: None,
                restored,
                change: crate::base::event::PathChange::Modified,
            }],
            omitted: 0,
        }
    }

    /// Its call has its result already, and may be one of an earlier reply.
    #[test]
    fn what_a_background_command_was_denied_is_a_denial_of_its_call() {
        let (id, later) = (CallId::nth(1), CallId::nth(2));
        let denied = ExecDenial {
            rule: None,
            code: "exec_denied".to_owned(),
            ruling: None,
            reason: "no".to_owned(),
            fix: String::new(),
        };
        let executed = EventKind::Executed {
            call: id.clone(),
            execs: vec![JudgedExec {
                path: "/usr/bin/rm".to_owned(),
                argv: vec!["rm".to_owned()],
                cwd: String::new(),
                denied: Some(denied),
            }],
            omitted: 0,
        };
        let started = [
            asks_for(&id),
            EventKind::CallStarted { call: id.clone() },
            EventKind::CallFinished {
                call: id.clone(),
                state: CallState::Success,
                output: Box::new(ToolOutput::text("Running in the background", "")),
                took_ms: 0,
            },
        ];
        for is_later in [false, true] {
            for (events, code) in [
                (vec![executed.clone()], "exec_denied"),
                (vec![undone(&id, "deny_rule", true)], "deny_rule"),
                (vec![undone(&id, "not_granted", false)], NOT_RESTORED),
                (vec![executed.clone(), undone(&id, "deny_rule", true)], "exec_denied"),
                (vec![executed.clone(), undone(&id, "deny_rule", false)], NOT_RESTORED),
            ] {
                let mut state = RunState::default();
                for event in started.iter().chain(&is_later.then(|| asks_for(&later))).chain(&events) {
                    state.apply(event);
                }
                let told: Vec<_> = state
                    .denials
                    .iter()
                    .map(|denial| (&denial.call, denial.code.as_str()))
                    .collect();
                assert_eq!(told, [(&id, code)], "later: {is_later}");
                assert_eq!(state.denials[0].tool, "run_shell_command");
            }
        }
    }

    /// The codes of the denials after one call during which `event` was recorded and that ended with this failure.
    fn denied_after(event: EventKind, code: &str, message: &str) -> Vec<String> {
        let id = CallId::nth(1);
        let mut state = RunState::default();
        for event in [
            asks_for(&id),
            EventKind::CallStarted { call: id.clone() },
            event,
            EventKind::CallFinished {
                call: id.clone(),
                state: CallState::Error,
                output: Box::new(ToolOutput::failure(code, message)),
                took_ms: 0,
            },
        ] {
            state.apply(&event);
        }
        state.denials.into_iter().map(|denial| denial.code).collect()
    }

    /// What a program was denied besides does not hide that a change could not be undone, which ends the run.
    #[test]
    fn a_change_that_could_not_be_undone_counts_more_than_a_denied_program() {
        let changed = undone(&CallId::nth(1), "not_granted", false);
        assert_eq!(denied_after(changed, "denied:exec_denied", "told"), [NOT_RESTORED]);
    }

    #[test]
    fn a_result_that_says_so_counts_more_than_an_earlier_denial_of_its_call() {
        let executed = EventKind::Executed {
            call: CallId::nth(1),
            execs: vec![JudgedExec::denied(&["rm"])],
            omitted: 0,
        };
        let code = format!("denied:{NOT_RESTORED}");
        let codes = denied_after(executed, &code, "not all of it could be undone");
        assert_eq!(codes, [NOT_RESTORED]);
    }

    #[test]
    fn of_two_answers_the_denial_holds_and_a_call_that_waits_again_has_none() {
        let id = CallId::nth(1);
        let answer = |allow| EventKind::Approved {
            call: id.clone(),
            allow,
            by: "x".to_owned(),
        };
        let again = EventKind::Suspended {
            calls: vec![id.clone()],
        };
        for (events, wanted) in [
            (vec![answer(true)], (true, false, CallState::Scheduled)),
            (vec![answer(true), answer(false)], (false, true, CallState::Scheduled)),
            (vec![answer(false), answer(true)], (false, true, CallState::Scheduled)),
            (vec![answer(true), again], (false, false, CallState::AwaitingApproval)),
        ] {
            let mut state = RunState::default();
            state.apply(&asks_for(&id));
            state.calls.get_mut(&id).unwrap().state = CallState::AwaitingApproval;
            for event in &events {
                state.apply(event);
            }
            let record = &state.calls[&id];
            assert_eq!((record.approved, record.refused, record.state), wanted, "{events:?}");
        }
    }
}

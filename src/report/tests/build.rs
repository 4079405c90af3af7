//! Builds runs event by event for the tests, with fixed times and ids, so that outputs are the same every time.

mod runs;

pub(super) use runs::{at_exec, denied, good, suspended};

use crate::base::access::Access;
use crate::base::budget::Spent;
use crate::base::call::{CallState, Display, ExitInfo, FileDiff, ToolCall, ToolOutput};
use crate::base::event::{
    Confined, Decided, Event, EventKind, FileChange, PatchBase, PatchTaken, PolicyText, PromptReason, RunStarted,
    ServerStatus, ToolsetReady,
};
use crate::base::ids::CallId;
use crate::base::message::{Message, Part, Reply, StopReason, Usage};
use crate::base::outcome::{CheckResult, RunOutcome, StepResult, StepStatus, Verdict};
use crate::base::ruling::{Decision, Ruling};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A run whose clock advances by 250 ms with each event.
pub(super) struct Run {
    pub(super) events: Vec<Event>,
    turns: u64,
    calls: u64,
    steps: usize,
}

impl Run {
    /// A run of the recipe `fix-clippy` with two steps, the second with the checks `clippy` and `small`.
    pub(super) fn start() -> Self {
        Self::with_plan(json!({
            "name": "fix-clippy",
            "steps": [
                {"id": "lint", "checks": []},
                {"id": "fix", "checks": [{"name": "clippy"}, {"name": "small"}]},
            ],
        }))
    }

    pub(super) fn with_plan(plan: Value) -> Self {
        let mut run = Self {
            events: Vec::new(),
            turns: 0,
            calls: 0,
            steps: 0,
        };
        run.push(EventKind::RunStarted(Box::new(RunStarted {
            format: 1,
            run: "20261121-103000-abcdef".into(),
            version: "0.1.0".to_owned(),
            recipe: "fix-clippy".to_owned(),
            plan_digest: "d1".repeat(32),
            plan,
            policies: vec![PolicyText {
                name: "rust.yaml".to_owned(),
                text: "version: 1\n".to_owned(),
                digest: "ab".repeat(32),
                narrows: false,
                extends: Vec::new(),
                tree: Vec::new(),
            }],
            model: "gemini/gemini-2.5-pro".to_owned(),
            replays: None,
            directory: None,
            workspace: "/srv/repo".to_owned(),
            isolated_from: None,
            base: PatchBase {
                commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            },
            recorded: false,
            sample: false,
            source: None,
            files: Vec::new(),
        })));
        run.push(EventKind::Confined(Confined {
            level: "landlock".to_owned(),
            detail: "ABI 5".to_owned(),
        }));
        run
    }

    pub(super) fn push(&mut self, kind: EventKind) -> &mut Self {
        let seq = self.events.len() as u64;
        let at = Timestamp::from_millisecond(1_795_257_000_000 + 250 * seq as i64).unwrap();
        self.events.push(Event { seq, at, kind });
        self
    }

    pub(super) fn equipped(&mut self, name: &str, status: &str) -> &mut Self {
        self.push(EventKind::Equipped(ToolsetReady {
            servers: vec![ServerStatus {
                name: name.to_owned(),
                status: status.to_owned(),
                message: "exited with code 1".to_owned(),
                tools: Vec::new(),
            }],
            discovered: Vec::new(),
            definitions: "ef".repeat(32),
            window: None,
            system: String::new(),
            tools: Vec::new(),
            programs: false,
            prompts: Vec::new(),
        }))
    }

    pub(super) fn command_step(&mut self, id: &str, command: &str, output: &str) -> &mut Self {
        self.step(id, Some(command));
        self.push(EventKind::Ran {
            step: id.into(),
            command: command.to_owned(),
            exit: exit(1),
            output: output.to_owned(),
            cut: false,
            took_ms: 900,
        });
        self.end_step(id, StepStatus::Passed, "", "")
    }

    pub(super) fn step(&mut self, id: &str, run: Option<&str>) -> &mut Self {
        self.steps += 1;
        self.push(EventKind::StepStarted {
            step: id.into(),
            index: self.steps - 1,
            total: 2,
            run: run.map(str::to_owned),
        })
    }

    pub(super) fn attempt(&mut self, id: &str, n: u32, text: &str) -> &mut Self {
        self.push(EventKind::AttemptStarted {
            step: id.into(),
            n,
            why: if n > 1 { "checks failed" } else { "" }.to_owned(),
            fresh: false,
        });
        let why = if n > 1 {
            PromptReason::Feedback
        } else {
            PromptReason::Task
        };
        self.push(EventKind::Prompted {
            message: Message::user(text),
            why,
        })
    }

    /// A reply with text and calls of `(tool, args)`; returns the ids of the calls.
    pub(super) fn reply(&mut self, text: &str, calls: &[(&str, Value)]) -> Vec<CallId> {
        let mut parts = vec![Part::text(text)];
        let mut ids = Vec::new();
        for (tool, args) in calls {
            self.calls += 1;
            let id = CallId::nth(self.calls);
            ids.push(id.clone());
            parts.push(Part::Call(ToolCall {
                id,
                tool: (*tool).to_owned(),
                args: args.clone(),
                wire_id: None,
            }));
        }
        self.turns += 1;
        let stop = if calls.is_empty() {
            StopReason::End
        } else {
            StopReason::Calls
        };
        self.push(EventKind::Replied {
            turn: self.turns,
            reply: Reply {
                parts,
                stop,
                usage: Usage {
                    input: 1000,
                    cached: 400,
                    cache_write: 0,
                    output: 50,
                    reasoning: 10,
                    estimated: false,
                },
                model: "gemini-2.5-pro-002".to_owned(),
            },
            asked: "aa".repeat(32),
            took_ms: 1200,
            cost_micros: Some(1750),
            secrets: Vec::new(),
        });
        ids
    }

    pub(super) fn decide(&mut self, call: &CallId, tool: &str, title: &str, ruling: Ruling) -> &mut Self {
        self.push(EventKind::Decided(Box::new(decided(call, tool, title, ruling))))
    }

    /// Allowed, started, finished.
    pub(super) fn done(&mut self, call: &CallId, tool: &str, title: &str, output: ToolOutput) -> &mut Self {
        self.decide(call, tool, title, ruling(Decision::Allow));
        self.push(EventKind::CallStarted { call: call.clone() });
        self.finish_call(call, CallState::Success, output)
    }

    pub(super) fn finish_call(&mut self, call: &CallId, state: CallState, output: ToolOutput) -> &mut Self {
        self.push(EventKind::CallFinished {
            call: call.clone(),
            state,
            output: Box::new(output),
            took_ms: 30,
        })
    }

    /// A command that prints `output`.
    pub(super) fn shell(&mut self, call: &CallId, command: &str, output: &str) -> &mut Self {
        let mut result = ToolOutput::text(output, "exit code 0");
        result.exit = Some(exit(0));
        self.done(call, "run_shell_command", command, result)
    }

    pub(super) fn check(&mut self, step: &str, attempt: u32, name: &str, passed: bool, output: &str) -> &mut Self {
        self.push(EventKind::Checked {
            step: step.into(),
            attempt,
            check: CheckResult {
                name: name.to_owned(),
                passed,
                what: format!("cargo {name}"),
                message: if passed { "exit code 0" } else { "exit code 101" }.to_owned(),
                output: output.to_owned(),
                exit: Some(exit(if passed { 0 } else { 101 })),
                took_ms: 640,
                of_answer: false,
            },
            put_back: None,
            put_back_patch: None,
        })
    }

    pub(super) fn end_step(&mut self, id: &str, status: StepStatus, reason: &str, message: &str) -> &mut Self {
        self.push(EventKind::StepFinished {
            step: id.into(),
            result: StepResult {
                status,
                reason: reason.to_owned(),
                message: message.to_owned(),
                output: "the step's output".to_owned(),
                cut: false,
                changed: Some(true),
            },
        })
    }

    pub(super) fn patch(&mut self) -> &mut Self {
        self.push(EventKind::PatchTaken(PatchTaken {
            blob: Some("cd".repeat(32).into()),
            bytes: 321,
            tree: "ee".repeat(20),
            files: vec![
                FileChange {
                    path: "src/lib.rs".to_owned(),
                    kind: "modified".to_owned(),
                    from: None,
                    added: Some(2),
                    removed: Some(1),
                },
                FileChange {
                    path: "logo.png".to_owned(),
                    kind: "added".to_owned(),
                    from: None,
                    added: None,
                    removed: None,
                },
            ],
            ..PatchTaken::default()
        }))
    }

    pub(super) fn finish(&mut self, outcome: RunOutcome) -> &mut Self {
        let spent = Spent {
            turns: self.turns,
            tokens: self.turns * 1050,
            cost_micros: self.turns * 1750,
            ..Spent::default()
        };
        self.push(EventKind::RunFinished { outcome, spent })
    }

    pub(super) fn passed(&mut self) -> &mut Self {
        self.finish(RunOutcome::new(Verdict::Passed, "", "all steps and checks passed"))
    }
}

pub(super) fn exit(code: i32) -> ExitInfo {
    ExitInfo {
        code: Some(code),
        ..ExitInfo::default()
    }
}

pub(super) fn ruling(decision: Decision) -> Ruling {
    let strict = decision > Decision::Modify;
    Ruling {
        decision,
        rule: Some("rust.yaml:7".to_owned()),
        code: if strict { "rule_match" } else { "allowed" }.to_owned(),
        reason: if strict {
            "pushing needs a person"
        } else {
            "the rule allows it"
        }
        .to_owned(),
        fix: if strict {
            "add `git push` to `commands` of an allow rule"
        } else {
            ""
        }
        .to_owned(),
        considered: Vec::new(),
        words: Vec::new(),
        pipe: None,
        uses: Vec::new(),
        writes: crate::base::grant::Writes::Nothing,
        deferred: Vec::new(),
    }
}

pub(super) fn decided(call: &CallId, tool: &str, title: &str, ruling: Ruling) -> Decided {
    Decided {
        call: call.clone(),
        tool: tool.to_owned(),
        title: title.to_owned(),
        access: Access::none(),
        ruling,
        modified: None,
        preview: None,
        read_only: false,
    }
}

pub(super) fn edit_output() -> ToolOutput {
    let mut output = ToolOutput::text("replaced 1 occurrence", "replaced 1 occurrence");
    output.display = Display::Diff(FileDiff {
        path: "src/lib.rs".to_owned(),
        diff: "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,2 +1,3 @@\n pub fn n() {}\n-let x = 1 + 0;\n+let x = 1;\n+// <b>done</b>\n"
            .to_owned(),
        original: None,
        new: None,
        added: 2,
        removed: 1,
    });
    output
}

/// Compares with the expected file under `fixtures/report`.
pub(super) fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../fixtures/report");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Compares the events with the journal under `fixtures/report`, which `tests/it/validators.rs` reads.
/// `OVERNIGHT_BLESS=1` writes it.
pub(super) fn journal(name: &str, run: &Run) {
    let path = format!("{}/fixtures/report/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let lines: Vec<String> = run
        .events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("OVERNIGHT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{path}");
}

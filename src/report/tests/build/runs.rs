//! Whole runs that many tests look at. Owns no way to build one.

use super::{Run, edit_output, ruling};
use crate::base::call::{CallState, ToolOutput};
use crate::base::event::EventKind;
use crate::base::outcome::{Outcome, StepStatus, Verdict};
use crate::base::ruling::Decision;
use serde_json::json;

/// A whole good run: a command step, a failed check, a second attempt, a patch.
pub(in crate::report::tests) fn good() -> Run {
    let mut run = Run::start();
    run.equipped("docs", "failed");
    run.command_step("lint", "cargo clippy", "warning: needless `+ 0`\n");
    run.step("fix", None).attempt("fix", 1, "Fix these warnings.");
    let ids = run.reply(
        "I look first.",
        &[
            ("read_file", json!({"file_path": "src/lib.rs"})),
            ("glob", json!({"pattern": "**/*.rs"})),
        ],
    );
    run.done(
        &ids[0],
        "read_file",
        "src/lib.rs",
        ToolOutput::text("let x = 1 + 0;", "1 line"),
    );
    run.done(&ids[1], "glob", "**/*.rs", ToolOutput::text("src/lib.rs", "1 file"));
    let ids = run.reply(
        "",
        &[(
            "replace",
            json!({"file_path": "src/lib.rs", "old_string": "1 + 0", "new_string": "1"}),
        )],
    );
    run.done(&ids[0], "replace", "src/lib.rs", edit_output());
    run.reply("Done, I think.", &[]);
    run.check("fix", 1, "clippy", false, "\u{1b}[31merror\u{1b}[0m: \0still <there>\n");
    run.check("fix", 1, "small", true, "");
    run.attempt("fix", 2, "The check clippy failed.");
    let ids = run.reply(
        "Once more.",
        &[("run_shell_command", json!({"command": "cargo clippy"}))],
    );
    run.shell(&ids[0], "cargo clippy", "ok\n");
    run.reply("Fixed the warning in `src/lib.rs`.", &[]);
    run.check("fix", 2, "clippy", true, "");
    run.check("fix", 2, "small", true, "");
    run.end_step("fix", StepStatus::Passed, "", "");
    run.patch();
    run.passed();
    run
}

/// A run that waits for a person.
pub(in crate::report::tests) fn suspended() -> Run {
    let mut run = Run::start();
    run.command_step("lint", "cargo clippy", "");
    run.step("fix", None).attempt("fix", 1, "Push it.");
    let ids = run.reply("I push.", &[("run_shell_command", json!({"command": "git push"}))]);
    run.decide(&ids[0], "run_shell_command", "git push", ruling(Decision::Suspend));
    run.push(EventKind::Suspended { calls: ids });
    run.finish(Outcome::new(
        Verdict::Suspended,
        "suspended",
        "1 call waits for a person",
    ));
    run
}

/// A run whose write was denied and that has no checks.
pub(in crate::report::tests) fn denied() -> Run {
    let mut run = Run::with_plan(json!({"steps": [{"id": "prompt", "checks": []}]}));
    run.step("prompt", None).attempt("prompt", 1, "Write the key.");
    let ids = run.reply(
        "I write.",
        &[(
            "write_file",
            json!({"file_path": ".github/workflows/x.yml", "content": "<script>"}),
        )],
    );
    let mut denial = ruling(Decision::Deny);
    denial.code = "protected_path".to_owned();
    denial.reason = "CI definitions are protected".to_owned();
    run.decide(&ids[0], "write_file", ".github/workflows/x.yml", denial);
    run.finish_call(
        &ids[0],
        CallState::Error,
        ToolOutput::failure("denied", "denied: CI definitions are protected"),
    );
    run.reply("I was not allowed to.", &[]);
    run.end_step(
        "prompt",
        StepStatus::Failed,
        "denied",
        "an action that the task needed was denied",
    );
    run.finish(Outcome::new(
        Verdict::Denied,
        "denied",
        "an action that the task needed was denied",
    ));
    run
}

//! Complete runs that several tests use.

use super::{Run, edit_output, ruling};
use crate::base::call::{CallState, ToolOutput};
use crate::base::event::{EventKind, PatchTaken, PathChange, PutBack, Unruled};
use crate::base::grant::{ExecDenial, JudgedExec, Writes};
use crate::base::outcome::{RunOutcome, StepStatus, Verdict};
use crate::base::ruling::{Decision, Deferred, Ruling};
use serde_json::json;

/// A complete run that passed: a command step, a failed check, a second attempt, a patch.
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
    run.finish(RunOutcome::new(
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
    run.finish(RunOutcome::new(
        Verdict::Denied,
        "denied",
        "an action that the task needed was denied",
    ));
    run
}

/// A run with a command that was ruled at exec: its last program was denied. One change was put back, one new file is
/// left out of the patch. The run passes nevertheless.
pub(in crate::report::tests) fn at_exec() -> Run {
    let mut run = Run::with_plan(json!({"steps": [{"id": "prompt", "checks": [{"name": "clippy"}]}]}));
    run.step("prompt", None).attempt("prompt", 1, "Tidy up.");
    let command = "rg -l foo | xargs rm";
    let ids = run.reply("I tidy up.", &[("run_shell_command", json!({"command": command}))]);
    let allowed = Ruling {
        writes: Writes::Paths {
            paths: Vec::new(),
            maybe: vec![String::new()],
        },
        deferred: vec![Deferred {
            program: "rm".to_owned(),
            rule: Some("rust.yaml:9".to_owned()),
            reason: "its operands come from the output of `rg`".to_owned(),
        }],
        ..ruling(Decision::Allow)
    };
    run.decide(&ids[0], "run_shell_command", command, allowed);
    run.push(EventKind::CallStarted { call: ids[0].clone() });
    let exec = |argv: &[&str], denied: Option<ExecDenial>| JudgedExec {
        path: format!("/usr/bin/{}", argv[0]),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: String::new(),
        denied,
    };
    let denial = ExecDenial {
        rule: Some("rust.yaml:12".to_owned()),
        code: "exec_denied".to_owned(),
        ruling: None,
        reason: "write tests/<a>.rs is denied by rule rust.yaml:12".to_owned(),
        fix: "leave the tests as they are".to_owned(),
    };
    run.push(EventKind::Executed {
        call: ids[0].clone(),
        execs: vec![
            exec(&["rg", "-l", "foo"], None),
            exec(&["xargs", "rm"], None),
            exec(&["rm", "src/a.rs", "tests/<a>.rs"], Some(denial)),
        ],
        omitted: 0,
    });
    let told = "Denied at exec by rule rust.yaml:12 (exec_denied): write tests/<a>.rs";
    run.finish_call(
        &ids[0],
        CallState::Error,
        ToolOutput::failure("denied:exec_denied", told),
    );
    run.reply("Then I leave it.", &[]);
    let unruled = |path: &str, change: PathChange| Unruled {
        path: path.to_owned(),
        change,
        rule: None,
        code: "no_rule".to_owned(),
        denied: false,
        left: change == PathChange::Added,
        restored: false,
    };
    run.push(EventKind::PatchTaken(PatchTaken {
        tree: "ee".repeat(20),
        unruled: vec![
            unruled("lib/*b*.rs", PathChange::Modified),
            unruled("out/", PathChange::Added),
        ],
        unruled_omitted: 3,
        ..PatchTaken::default()
    }));
    run.push(EventKind::PutBack(PutBack {
        tree: "ef".repeat(20),
        failed: Vec::new(),
    }));
    run.check("prompt", 1, "clippy", true, "");
    run.end_step("prompt", StepStatus::Passed, "", "");
    run.passed();
    run
}

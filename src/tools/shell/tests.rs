//! Tests of the shell tools with real commands, unconfined.

use super::*;
use crate::base::ids::CallId;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use crate::process::jobs::Jobs;
use crate::tools::{LiveSender, Registry, ToolScope};
use serde_json::{Value, json};
use std::sync::Mutex;
use tempfile::TempDir;

struct Bench {
    _tree: TempDir,
    results: TempDir,
    workspace: Arc<Workspace>,
    scope: Arc<ToolScope>,
    heard: Arc<Mutex<String>>,
}

fn bench() -> Bench {
    let tree = tempfile::tempdir().unwrap();
    let results = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("sub")).unwrap();
    std::fs::write(tree.path().join("file"), "x").unwrap();
    let workspace = Arc::new(Workspace::open(tree.path()).unwrap());
    let scope = Arc::new(ToolScope {
        confinement: Confinement {
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            ..Confinement::unconfined(tree.path())
        }
        .into(),
        jobs: Jobs::default(),
        results: results.path().join("results").into(),
        redactor: Arc::new(Redactor::default()),
        memory: results.path().join("memory"),
        web: crate::tools::web::Web::default(),
        servers: crate::tools::mcp::Servers::default(),
        notices: crate::tools::notices::Notices::default(),
    });
    Bench {
        _tree: tree,
        results,
        workspace,
        scope,
        heard: Arc::default(),
    }
}

impl Bench {
    fn context(&self) -> ToolContext {
        let heard = Arc::clone(&self.heard);
        ToolContext {
            call: CallId::nth(3),
            workspace: Arc::clone(&self.workspace),
            scope: Arc::clone(&self.scope),
            cancel: CancellationToken::new(),
            deadline: Instant::now() + Duration::from_secs(20),
            writes: crate::base::grant::Writes::Tree,
            judge: None,
            live: LiveSender::new(move |live| {
                if let ProgressEvent::Output { chunk, .. } = live {
                    heard.lock().unwrap().push_str(&chunk);
                }
            }),
        }
    }

    async fn call_in(&self, tool: &str, args: Value, context: ToolContext) -> Result<ToolOutput, ToolError> {
        let registry = Registry::builtin().unwrap();
        let found = registry.find(tool).unwrap();
        let prepared = found.tool.prepare(&args, &self.workspace)?;
        (prepared.work)(context).await
    }

    async fn call(&self, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        self.call_in(tool, args, self.context()).await
    }

    async fn shell(&self, command: &str) -> ToolOutput {
        self.call("run_shell_command", json!({ "command": command }))
            .await
            .unwrap()
    }
}

fn kind(result: Result<ToolOutput, ToolError>) -> &'static str {
    match result {
        Err(ToolError::Model { kind, .. }) => kind,
        Err(ToolError::Fatal(_)) => "fatal",
        Ok(_) => "ok",
    }
}

#[tokio::test]
async fn the_result_is_the_output_and_a_failure_code_is_told_but_is_a_success() {
    let bench = bench();
    let good = bench.shell("echo one; echo two >&2").await;
    assert_eq!(good.model_text(), "one\ntwo");
    assert_eq!(*bench.heard.lock().unwrap(), "one\ntwo\n");
    let bad = bench.shell("echo bad; exit 4").await;
    assert_eq!(bad.model_text(), "bad\n[exit code 4]");
    assert!(bad.error.is_none());
    assert_eq!(bad.exit.unwrap().code, Some(4));
    assert_eq!(bench.shell("true").await.model_text(), "(no output)");
    assert_eq!(
        bench.shell("kill -9 $$").await.model_text(),
        "(no output)\n[ended by signal 9]"
    );
}

#[tokio::test]
async fn it_starts_in_the_directory_that_is_asked_for_and_only_inside() {
    let bench = bench();
    let place = |dir: &str| json!({ "command": "basename $PWD", "dir_path": dir });
    let out = bench.call("run_shell_command", place("sub")).await.unwrap();
    assert_eq!(out.model_text(), "sub");
    assert_eq!(
        kind(bench.call("run_shell_command", place("none")).await),
        "file_not_found"
    );
    assert_eq!(
        kind(bench.call("run_shell_command", place("file")).await),
        "path_is_not_a_directory"
    );
    assert_eq!(
        kind(bench.call("run_shell_command", place("/")).await),
        "path_not_in_workspace"
    );
}

#[test]
fn the_access_is_the_text_and_a_directory_outside_is_a_read() {
    let bench = bench();
    let registry = Registry::builtin().unwrap();
    let tool = registry.find("run_shell_command").unwrap().tool;
    let inside = tool
        .prepare(&json!({ "command": "ls", "dir_path": "sub" }), &bench.workspace)
        .unwrap();
    assert_eq!(inside.access.commands[0].text, "ls");
    assert_eq!(inside.access.commands[0].dir, "sub");
    assert!(inside.access.reads.is_empty());
    assert_eq!(inside.title, "run ls (in sub)");
    let outside = tool
        .prepare(&json!({ "command": "ls", "dir_path": "/" }), &bench.workspace)
        .unwrap();
    assert!(!outside.access.reads[0].inside);
    for bad in [json!({ "command": " " }), json!({ "command": "a\0b" })] {
        assert!(tool.prepare(&bad, &bench.workspace).is_err());
    }
}

#[tokio::test]
async fn a_long_output_shows_its_ends_and_says_where_the_rest_is() {
    let bench = bench();
    let out = bench.shell("seq 1 100000").await;
    let text = out.model_text();
    assert!(text.len() <= SHOWN, "{}", text.len());
    assert!(text.starts_with("1\n2\n") && text.contains("\n100000"));
    assert!(text.contains("overnight:result/c3"));
    let kept = out.kept.unwrap();
    assert_eq!((kept.id.as_str(), kept.bytes, kept.omitted), ("c3", 588_895, 0));
    let whole = std::fs::read_to_string(bench.results.path().join("results/c3")).unwrap();
    assert_eq!(whole.lines().count(), 100_000);
}

#[tokio::test]
async fn binary_output_is_not_shown() {
    let out = bench().shell("head -c 100 /dev/zero").await;
    assert_eq!(out.model_text(), "[the output is binary: 100 bytes, not shown]");
}

#[tokio::test]
async fn a_list_with_nul_bytes_is_shown_and_they_are_counted() {
    let out = bench().shell(r"printf 'a.rs\0b c.rs\0\377\n'").await;
    assert_eq!(
        out.model_text(),
        "a.rs\u{fffd}b c.rs\u{fffd}\u{fffd}\n[2 NUL bytes and 1 byte that is not UTF-8 \
         of the output: shown as \u{fffd}]"
    );
}

#[tokio::test]
async fn a_deadline_ends_it_and_says_so() {
    let bench = bench();
    let mut context = bench.context();
    context.deadline = Instant::now() + Duration::from_millis(200);
    let args = json!({ "command": "echo begun; sleep 30" });
    let out = bench.call_in("run_shell_command", args, context).await.unwrap();
    assert!(
        out.model_text().starts_with("begun\n[time ran out"),
        "{}",
        out.model_text()
    );
    assert!(out.exit.unwrap().timed_out);
}

#[tokio::test]
async fn a_cancelled_command_is_an_error_of_the_call() {
    let bench = bench();
    let context = bench.context();
    context.cancel.cancel();
    let result = bench
        .call_in("run_shell_command", json!({ "command": "sleep 30" }), context)
        .await;
    assert_eq!(kind(result), "cancelled");
}

#[tokio::test]
async fn background_commands_have_names_that_do_not_vary() {
    let bench = bench();
    assert_eq!(
        bench
            .call("list_background_processes", json!({}))
            .await
            .unwrap()
            .model_text(),
        "(none)"
    );
    let args = json!({ "command": "echo up; sleep 31", "is_background": true, "delay_ms": 300 });
    let out = bench.call("run_shell_command", args).await.unwrap();
    assert_eq!(
        out.model_text(),
        "Running in the background as job1; read_background_output with pid \"job1\" reads from it. It ends with the run.\n\
         First output:\nup"
    );
    let listed = bench.call("list_background_processes", json!({})).await.unwrap();
    assert_eq!(listed.model_text(), "job1: running: echo up; sleep 31");
    for pid in [json!("job1"), json!("1"), json!(1)] {
        let read = bench
            .call("read_background_output", json!({ "pid": pid }))
            .await
            .unwrap();
        assert_eq!(read.model_text(), "up\n[job1 is running]");
    }
    let missing = bench.call("read_background_output", json!({ "pid": 2 })).await;
    assert_eq!(kind(missing), "no_such_process");
    let bad = bench.call("read_background_output", json!({ "pid": "x" })).await;
    assert_eq!(kind(bad), "invalid_tool_params");
    assert_eq!(bench.scope.jobs.kill_all().await, 1);
    let read = bench.call("read_background_output", json!({ "pid": 1 })).await.unwrap();
    assert_eq!(read.model_text(), "up\n[ended by signal 15]");
}

#[tokio::test]
async fn the_last_lines_are_read() {
    let bench = bench();
    let args = json!({ "command": "seq 1 500; exit 2", "is_background": true, "delay_ms": 3000 });
    bench.call("run_shell_command", args).await.unwrap();
    let read = bench
        .call("read_background_output", json!({ "pid": 1, "lines": 2 }))
        .await
        .unwrap();
    assert_eq!(
        read.model_text(),
        "[earlier output is left out]\n499\n500\n[exit code 2]"
    );
}

/// Everything that is named `closed` is closed.
#[derive(Debug)]
struct OneClosed;

impl crate::base::grant::ClosedPaths for OneClosed {
    fn is_empty(&self) -> bool {
        false
    }

    fn closed(&self, path: &str, _: bool) -> bool {
        path == "closed"
    }

    fn why(&self, _: &str) -> (&'static str, Option<String>) {
        ("protected_path", None)
    }
}

/// An abandoned call has no result, but changes that its command made without a grant are still reported.
#[tokio::test]
async fn what_a_call_changed_that_is_given_up_is_told() {
    let bench = bench();
    let mut scope = bench.scope.confinement.get().unwrap().clone();
    scope.closed = Arc::new(OneClosed);
    let confinement = scope;
    let scope = Arc::new(ToolScope {
        confinement: confinement.into(),
        jobs: Jobs::default(),
        results: bench.results.path().join("results").into(),
        redactor: Arc::new(Redactor::default()),
        memory: bench.results.path().join("memory"),
        web: crate::tools::web::Web::default(),
        servers: crate::tools::mcp::Servers::default(),
        notices: crate::tools::notices::Notices::default(),
    });
    let context = ToolContext {
        scope: Arc::clone(&scope),
        ..bench.context()
    };
    let args = json!({ "command": "echo x > closed; echo x > open; sleep 60" });
    let call = bench.call_in("run_shell_command", args, context);
    let given_up = async {
        while !bench.workspace.root().join("open").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        biased;
        _ = call => panic!("it ended"),
        () = given_up => {}
    }
    assert!(!bench.workspace.root().join("closed").exists(), "it is undone");
    let told = scope.notices.take_undone();
    let paths: Vec<&str> = told
        .iter()
        .flat_map(|(_, undone)| undone)
        .map(|one| one.path.as_str())
        .collect();
    assert_eq!(paths, ["closed"]);
    assert_eq!(told[0].0, crate::tools::notices::LateAuthor::Call(CallId::nth(3)));
    // The control: a call that ends tells it in its result, and nowhere else.
    let context = ToolContext {
        scope: Arc::clone(&scope),
        ..bench.context()
    };
    let args = json!({ "command": "echo x > closed" });
    let out = bench.call_in("run_shell_command", args, context).await.unwrap();
    assert_eq!((out.undone.len(), scope.notices.take_undone().len()), (1, 0));
}

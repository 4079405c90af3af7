//! What a denial does: the tree is gone at once, nothing runs after it, and what had run before is told.

use super::{CONFINED, House, Recorder, allow, deny, file_name, house};
use overnight::base::grant::{ExecAnswer, Starts, WriteKind, WritePath};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn denies(program: &'static str) -> Arc<Recorder> {
    Recorder::with(false, move |exec| {
        (file_name(&exec.path) == program).then(|| deny("exec_denied"))
    })
}

#[tokio::test]
async fn nothing_runs_after_it_and_the_tree_is_gone() {
    for level in CONFINED {
        let house = house(level);
        let judge = denies("rm");
        let text = "sleep 300 & ls src/d; touch before; cd src; rm -- 'x one' || touch after; touch after2";
        let started = Instant::now();
        let got = house.run(text, &judge).await;
        let took = started.elapsed();
        let (exec, denial) = got.denied.as_ref().unwrap();
        assert_eq!(exec.argv, ["rm", "--", "x one"], "{level:?}");
        assert_eq!(exec.cwd, "src");
        assert_eq!(
            (denial.code.as_str(), denial.rule.as_deref()),
            ("exec_denied", Some("test"))
        );
        assert_eq!(exec.denied.as_ref(), Some(denial));
        assert_eq!(
            (got.exit.code, got.exit.signal, got.exit.timed_out),
            (None, Some(9), false)
        );
        let mut told: Vec<&str> = got.execs.iter().map(|exec| exec.argv[0].as_str()).collect();
        // The one in the background may have come at any time.
        told.retain(|name| *name != "sleep");
        assert_eq!(told, ["ls", "touch", "rm"], "{level:?}");
        let there = |name: &str| house.ws().join(name).exists();
        assert!(there("before") && there("src/x one"), "{level:?}");
        assert!(
            !there("src/after") && !there("src/after2") && !there("after"),
            "{level:?}"
        );
        assert!(living(&house).is_empty(), "{level:?}: {:?}", living(&house));
        assert!(took < Duration::from_secs(2), "{level:?}: {took:?}");
        println!("{level:?}: a denied command took {took:?} in all");
    }
}

/// Processes that still stand in the workspace.
fn living(house: &House) -> Vec<String> {
    let inside =
        |pid: &str| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(house.ws()));
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && inside(name))
        .collect()
}

#[tokio::test]
async fn one_left_behind_is_denied_as_well() {
    for level in CONFINED {
        let house = house(level);
        // The shell itself has ended when its orphan asks.
        let got = house
            .run("( ( sleep 0.05; rm src/x-two ) & ); exit 0", &denies("rm"))
            .await;
        assert!(got.denied.is_some(), "{level:?}");
        assert_eq!((got.exit.code, got.exit.signal), (None, Some(9)), "{level:?}");
        assert!(house.ws().join("src/x-two").exists());
    }
}

#[tokio::test]
async fn a_script_without_an_interpreter_is_denied() {
    for level in CONFINED {
        for text in ["./plain a", "env ./plain a", "cd src; ../plain"] {
            let house = house(level);
            let got = house.run(&format!("{text}; touch after"), &Recorder::new()).await;
            let (exec, denial) = got.denied.unwrap();
            assert!(exec.path.ends_with("/plain"), "{}", exec.path);
            assert_eq!(denial.code, "exec_denied", "{level:?}");
            assert!(denial.fix.contains("add a `#!` line"), "{}", denial.fix);
            assert!(!got.stdout.text.contains("in-plain") && !house.ws().join("after").exists());
        }
        let house = house(level);
        let got = house.run("bash plain a", &Recorder::new()).await;
        assert_eq!(got.stdout.text, "in-plain a\n", "{level:?}");
    }
}

#[tokio::test]
async fn a_deny_rule_holds_below_free_programs() {
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        let judge = Recorder::with(true, |exec| (exec.argv.last()? == "two").then(|| deny("exec_denied")));
        let got = house.run("make -s; touch after", &judge).await;
        let (exec, _) = got.denied.unwrap();
        assert_eq!(exec.argv, ["/bin/echo", "two"], "{level:?}");
        assert!(!house.ws().join("after").exists());
        let callers: Vec<Starts> = judge.seen().into_iter().map(|exec| exec.caller).collect();
        assert!(callers.contains(&Starts::Anything));
        // Only what the shell itself started, and what was denied.
        let told: Vec<&str> = got.execs.iter().map(|exec| exec.argv[0].as_str()).collect();
        assert_eq!(told, ["make", "/bin/echo"], "{level:?}");
        // An answer below a free program does not bind those below it.
        let judge = Recorder::with(true, |exec| {
            (exec.caller == Starts::Anything).then(|| allow(Starts::Nothing))
        });
        let got = house.run("aux/runner \"sh -c '/bin/echo in | cat'\"", &judge).await;
        assert!(
            got.denied.is_none() && got.stdout.text == "in\n",
            "{level:?}: {:?}",
            got.denied
        );
    }
}

#[tokio::test]
async fn words_in_memory_that_others_may_write_are_denied() {
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        let judge = Recorder::new();
        let got = house.run("aux/wrapper p /bin/echo own", &judge).await;
        assert_eq!((got.stdout.text.as_str(), got.denied), ("own\n", None), "{level:?}");
        let got = house.run("aux/wrapper s /bin/echo shared", &judge).await;
        let (_, denial) = got.denied.unwrap();
        assert!(
            denial.reason.contains("memory that other processes can change"),
            "{}",
            denial.reason
        );
        assert!(!got.stdout.text.contains("shared"));
    }
}

#[tokio::test]
async fn no_process_can_change_anothers_words() {
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        for how in 0..3 {
            let got = house.run(&format!("aux/tamper {how}"), &Recorder::new()).await;
            let text = got.stdout.text;
            assert!(
                text.starts_with("tamper ") && !text.contains("worked"),
                "{level:?}: {how}: {text}"
            );
        }
        let set =
            "import ctypes; print(ctypes.CDLL(None, use_errno=True).prctl(35, 1, 4096, 0, 0), ctypes.get_errno())";
        let got = house
            .run(&format!("/usr/bin/python3 -c '{set}'"), &Recorder::new())
            .await;
        assert_eq!(got.stdout.text, "-1 1\n", "{level:?}: PR_SET_MM");
    }
}

#[tokio::test]
async fn what_cannot_be_found_is_neither_judged_nor_run() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::new();
        let long = "a/".repeat(2_100);
        let text = format!("/no/such; ./src; /proc/self/root/bin/ls; /{long}; cd src/d && rmdir ../d && ./x; echo on");
        let got = house.run(&text, &judge).await;
        assert!(
            got.denied.is_none() && got.stdout.text.ends_with("on\n"),
            "{level:?}: {got:?}"
        );
        assert_eq!(judge.argvs(), [["rmdir", "../d"]], "{level:?}");
    }
}

#[tokio::test]
async fn more_words_than_can_be_judged_are_denied() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::new();
        let got = house
            .run(
                "a=(); for ((i = 0; i < 70000; i++)); do a+=(w); done; ls \"${a[@]}\"",
                &judge,
            )
            .await;
        let (_, denial) = got.denied.unwrap();
        assert!(
            denial.reason.contains("longer than can be judged"),
            "{level:?}: {}",
            denial.reason
        );
        assert!(judge.seen().is_empty());
    }
}

#[tokio::test]
async fn what_answers_grant_is_collected_once() {
    for level in CONFINED {
        let house = house(level);
        let place = |path: &str| WritePath {
            path: path.to_owned(),
            kind: WriteKind::Entry,
        };
        let judge = Recorder::with(false, move |exec| {
            Some(ExecAnswer::Allow {
                starts: Starts::Nothing,
                writes: exec.argv.iter().skip(1).map(|word| place(word)).collect(),
            })
        });
        let got = house.run("touch a; touch b a", &judge).await;
        assert_eq!(got.granted, [place("a"), place("b")], "{level:?}");
    }
}

/// The tool that models call, with a judge.
async fn shell(
    house: &House,
    judge: Arc<Recorder>,
    args: serde_json::Value,
) -> (overnight::tools::ToolContext, overnight::base::call::ToolOutput) {
    use overnight::tools::{LiveSender, Registry, ToolContext, ToolScope};
    let workspace = Arc::new(overnight::workspace::Workspace::open(house.ws()).unwrap());
    let context = ToolContext {
        call: overnight::base::ids::CallId::nth(1),
        workspace: Arc::clone(&workspace),
        scope: Arc::new(ToolScope {
            confinement: house.confinement.clone().into(),
            jobs: overnight::process::jobs::Jobs::default(),
            results: house.ws().join("../results").into(),
            redactor: Arc::default(),
            memory: house.ws().join("../memory"),
            web: overnight::tools::web::Web::default(),
            servers: overnight::tools::mcp::Servers::default(),
            notices: overnight::tools::notices::Notices::default(),
        }),
        cancel: tokio_util::sync::CancellationToken::new(),
        deadline: Instant::now() + Duration::from_secs(30),
        live: LiveSender::none(),
        writes: overnight::base::grant::Writes::Tree,
        judge: Some(judge),
    };
    let registry = Registry::builtin().unwrap();
    let tool = &registry.find("run_shell_command").unwrap().tool;
    let prepared = tool.prepare(&args, &workspace).unwrap();
    let output = (prepared.work)(context.clone()).await.unwrap();
    (context, output)
}

#[tokio::test]
async fn the_model_is_told_what_was_denied_and_what_had_run() {
    for level in CONFINED {
        let house = house(level);
        let args =
            serde_json::json!({ "command": "echo early; ls src/d; cd src; rm -- \"$(ls | grep one)\"; touch after" });
        let (_, output) = shell(&house, denies("rm"), args).await;
        let error = output.error.as_ref().unwrap();
        assert_eq!(error.denial(), Some("exec_denied"));
        let text = output.model_text();
        assert!(text.starts_with("early\n"), "{level:?}: {text}");
        for part in [
            "[denied (exec_denied) by rule `test`: `/usr/bin/rm -- 'x one'` in src was not executed: the test denies it.",
            "Programs that ran before it: `/usr/bin/ls src/d`, `",
            "`/usr/bin/ls`",
            "`/usr/bin/grep one`",
            "Instead: write another test.]",
        ] {
            assert!(text.contains(part), "{level:?}: {part}\n{text}");
        }
        assert!(!text.contains("signal 9") && !text.contains("still running"), "{text}");
        assert_eq!(output.summary, "denied (exec_denied)");
    }
}

#[tokio::test]
async fn a_background_command_tells_its_denial_when_it_is_read() {
    for level in CONFINED {
        let house = house(level);
        let args =
            serde_json::json!({ "command": "ls src/d; rm src/x-two", "is_background": true, "delay_ms": 10_000 });
        let (context, output) = shell(&house, denies("rm"), args).await;
        let text = output.model_text();
        assert!(
            text.contains("[denied (exec_denied) by rule `test`: `/usr/bin/rm src/x-two`"),
            "{level:?}: {text}"
        );
        assert!(
            text.contains("Programs that ran before it: `/usr/bin/ls src/d`."),
            "{text}"
        );
        let registry = overnight::tools::Registry::builtin().unwrap();
        let list = &registry.find("list_background_processes").unwrap().tool;
        let listed = list.prepare(&serde_json::json!({}), &context.workspace).unwrap();
        let listed = (listed.work)(context).await.unwrap();
        assert_eq!(
            listed.model_text(),
            "job1: denied (exec_denied): ls src/d; rm src/x-two"
        );
        assert!(house.ws().join("src/x-two").exists());
    }
}

//! A batch that is killed goes on: real kills at every boundary of its record, signals, a full disk, and what its children do then.

use super::batch::{asking, call, command, fleet, result, rows};
use super::gemini::{self, Gemini};
use super::harness::{World, endable, says, script, shell, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn start(world: &World, args: &[&str]) -> Child {
    command(world, args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn lines(world: &World, dir: &str) -> usize {
    let text = std::fs::read(world.path().join(dir).join("batch.jsonl")).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Starts a batch and kills it as soon as its record has so many lines. Whether it came so far.
fn kill_at(world: &World, args: &[&str], dir: &str, wanted: usize) -> bool {
    let mut child = start(world, args);
    loop {
        if lines(world, dir) >= wanted {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Every job has exactly one row that ends it.
fn one_row_each(world: &World, dir: &str, jobs: usize) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(world, dir) {
        assert!(row["verdict"] == "passed" || row["verdict"] == "no_change", "{row}");
        *seen.entry(row["job"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(seen.len(), jobs);
    assert!(seen.values().all(|rows| *rows == 1), "{seen:?}");
}

const ONE_TURN: &str = "models: [gemini/gemini-2.5-pro]\n";

fn served(service: &Gemini) -> World {
    fleet(1)
        .env("GEMINI_API_KEY", "k-0123456789")
        .env("GOOGLE_GEMINI_BASE_URL", service.url.clone())
}

#[test]
fn a_kill_at_every_boundary_of_the_record_loses_and_repeats_nothing() {
    let jobs = 3;
    // A call line, two lines a job, the end.
    for wanted in 1..=2 * jobs + 2 {
        let service = Gemini::new(vec![gemini::says("hi")]);
        let world = served(&service);
        world.beside("m.yaml", asking(jobs, ONE_TURN));
        let args = ["batch", "m.yaml", "--out", "out", "--jobs", "2"];
        kill_at(&world, &args, "out", wanted);
        call(&world, &args).exits(0);
        one_row_each(&world, "out", jobs);
        // A turn that was finished is not asked again; one that was cut off may be, once for each of the two jobs under way.
        let asked = service.seen().len();
        assert!(
            (jobs..=jobs + 2).contains(&asked),
            "killed at {wanted}: {asked} requests"
        );
        assert_eq!(result(&world, "out")["jobs"]["no_change"], json!(jobs));
        let left = std::fs::read_dir(world.path().join("out/work")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "killed at {wanted}: a worktree is left");
    }
}

#[test]
fn ten_kills_at_any_moment_lose_and_repeat_nothing() {
    let jobs = 24;
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = served(&service);
    world.beside("m.yaml", asking(jobs, ONE_TURN));
    let args = ["batch", "m.yaml", "--out", "out", "--jobs", "4"];
    let mut kills = 0;
    for n in 0..10_u64 {
        let mut child = start(&world, &args);
        std::thread::sleep(Duration::from_millis(40 + 37 * n % 211));
        kills += usize::from(child.try_wait().unwrap().is_none());
        // It may have ended meanwhile.
        let _ = child.kill();
        child.wait().unwrap();
    }
    call(&world, &args).exits(0);
    one_row_each(&world, "out", jobs);
    let asked = service.seen().len();
    assert!(
        (jobs..=jobs + 4 * kills).contains(&asked),
        "{asked} requests, {kills} kills"
    );
    let finished = turns(&world);
    assert_eq!(finished, jobs as u64, "finished turns in all journals");
}

/// Finished turns in the journals of all runs.
fn turns(world: &World) -> u64 {
    rows(world, "out")
        .iter()
        .map(|row| row["turns"].as_u64().unwrap())
        .sum()
}

#[test]
fn a_job_under_way_goes_on_from_its_own_journal() {
    let world = fleet(1);
    // The first turn writes, the second one takes its time: a kill in between.
    let replies = json!({"replies": [
        {"calls": [{"tool": "write_file", "args": {"file_path": "hello.txt", "content": "hello\n"}}]},
        {"text": "done", "delay_ms": 1500}
    ]});
    world.beside("slow.yaml", replies.to_string());
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:slow.yaml\"]\ntargets: [{ path: r0, id: a }]\n";
    world.beside("m.yaml", manifest);
    let args = ["batch", "m.yaml", "--out", "out"];
    let mut child = start(&world, &args);
    let tree = world.path().join("out/work/a/tree/hello.txt");
    until("the first turn was made", || tree.is_file());
    child.kill().unwrap();
    child.wait().unwrap();
    call(&world, &args).exits(0);
    let row = rows(&world, "out").remove(0);
    assert_eq!(
        (&row["verdict"], &row["turns"], &row["attempt"]),
        (&json!("passed"), &json!(2), &json!(1))
    );
    let run = world.path().join("out").join(row["run"].as_str().unwrap());
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).unwrap();
    assert!(journal.contains("overnight resume"), "it was resumed");
}

/// Processes of this machine that run with this text among their arguments.
pub fn processes(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&line).replace('\0', " ");
        text.contains(mark).then_some(text)
    });
    named.collect()
}

#[test]
fn children_of_a_killed_supervisor_end_with_it() {
    let world = fleet(1);
    world.beside("sleep.yaml", script(&[shell("sleep 86399.25"), says("done")]));
    world.beside(
        "open.yaml",
        "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [sleep], args: any }\nsandbox: { level: none }\n",
    );
    world.beside(
        "m.yaml",
        "version: 1\nrecipe: ask.yaml\npolicy: open.yaml\nmodels: [\"script:sleep.yaml\"]\ntargets: [{ path: r0, id: a }, { path: r0, id: b }]\n",
    );
    let out = world.path().join("out").display().to_string();
    let mut child = start(&world, &["batch", "m.yaml", "--out", "out", "--jobs", "2"]);
    until("both jobs run their command", || {
        processes("sleep 86399.25")
            .iter()
            .filter(|line| line.starts_with("sleep"))
            .count()
            == 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    while !(processes("sleep 86399.25").is_empty() && processes(&out).is_empty()) {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", processes(&out));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// While a server keeps a fetch waiting, a signal and the wall clock end the call with its outputs, and git ends with it.
#[test]
fn a_call_that_waits_for_a_repository_can_be_ended() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let world = fleet(1);
    let manifest = |budget: &str| {
        let text = format!(
            "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\n{budget}\
             targets: [{{ repo: \"http://{address}/x.git\", id: far }}, {{ path: r0, id: near }}]\n"
        );
        world.beside("m.yaml", text);
    };
    let fetching = || processes(&address).iter().any(|line| line.contains("git-remote-http"));
    let gone = || {
        let began = Instant::now();
        while !processes(&address).is_empty() {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", processes(&address));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    manifest("");
    let mut child = start(&world, &["batch", "m.yaml", "--out", "killed"]);
    until("git waits for the server", fetching);
    child.kill().unwrap();
    child.wait().unwrap();
    gone();
    let mut command = command(&world, &["batch", "m.yaml", "--out", "out", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("git waits for the server", fetching);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(143));
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&told["verdict"], &told["jobs"]["not_run"]),
        (&json!("cancelled"), &json!(2))
    );
    assert_eq!(told, result(&world, "out"));
    // No job has failed, and nothing was done: that is not green.
    let junit = || std::fs::read_to_string(world.path().join("out/junit.xml")).unwrap();
    assert!(junit().contains("type=\"cancelled\""), "{}", junit());
    assert!(
        junit().contains("tests=\"3\" failures=\"0\" errors=\"1\""),
        "{}",
        junit()
    );
    gone();
    manifest("budget: { wall: 1s }\n");
    let done = call(&world, &["batch", "m.yaml", "--out", "out"]);
    assert_eq!(done.code, 10, "{}", done.stderr);
    assert_eq!(
        result(&world, "out")["stopped"],
        "the budget of the batch is used up: wall",
        "{}",
        done.stderr
    );
    assert!(junit().contains("type=\"incomplete\""), "{}", junit());
    gone();
}

/// While a command lists targets, too.
#[test]
fn a_call_that_waits_for_a_list_can_be_ended() {
    let world = fleet(1);
    let manifest = |budget: &str| {
        let text = format!(
            "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\n{budget}\
             targets: [{{ command: touch listing && sleep 86398.25; echo ended }}]\n"
        );
        world.beside("m.yaml", text);
    };
    manifest("");
    let args = ["batch", "m.yaml", "--out", "out", "--format", "json"];
    let mut command = command(&world, &args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("the command lists", || world.path().join("listing").exists());
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(143));
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["verdict"], "cancelled", "{told}");
    manifest("budget: { wall: 1s }\n");
    let done = call(&world, &args).exits(6);
    assert!(done.stderr.contains("budget.wall"), "{}", done.stderr);
    let told = done.json();
    assert_eq!((&told["verdict"], &told["exit_code"]), (&json!("budget"), &json!(6)));
    let began = Instant::now();
    while !processes("sleep 86398.25").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "the command goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_ends_the_jobs_in_order_and_the_same_command_goes_on() {
    let world = fleet(1);
    let replies = json!({"replies": [
        {"calls": [{"tool": "write_file", "args": {"file_path": "hello.txt", "content": "hello\n"}}]},
        {"text": "done", "delay_ms": 1200}
    ]});
    world.beside("slow.yaml", replies.to_string());
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:slow.yaml\"]\n\
                    targets: [{ path: r0, id: a }, { path: r0, id: b }, { path: r0, id: c }]\n";
    world.beside("m.yaml", manifest);
    let args = ["batch", "m.yaml", "--out", "out", "--jobs", "2"];
    let mut child = start(&world, &args);
    until("two jobs are under way", || {
        ["a", "b"]
            .iter()
            .all(|job| world.path().join(format!("out/work/{job}/tree/hello.txt")).is_file())
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let done = result(&world, "out");
    assert_eq!(
        (&done["verdict"], &done["jobs"]["cancelled"], &done["jobs"]["not_run"]),
        (&json!("cancelled"), &json!(2), &json!(1))
    );
    assert_eq!(rows(&world, "out").len(), 0, "what goes on has no row");
    call(&world, &args).exits(0);
    one_row_each(&world, "out", 3);
    assert!(rows(&world, "out").iter().all(|row| row["turns"] == 2));
}

/// The children get another signal than the batch.
#[test]
fn jobs_of_an_interrupted_batch_say_what_happened_to_the_batch() {
    let world = fleet(1);
    let slow = json!({"replies": [{"text": "hi", "delay_ms": 20_000}]});
    world.beside("slow.yaml", slow.to_string());
    world.beside("m.yaml", asking(1, "models: [\"script:slow.yaml\"]\n"));
    let mut command = endable(&command(&world, &["batch", "m.yaml", "--out", "out"]));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job is under way", || {
        !find(&world.path().join("out/jobs"), "journal.jsonl").is_empty()
    });
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(result(&world, "out")["stopped"], "cancelled by SIGINT", "{stderr}");
    assert!(
        stderr.contains("the batch was cancelled by SIGINT") && !stderr.contains("SIGTERM"),
        "{stderr}"
    );
    assert!(
        stderr.contains("j0 cancelled ") && !stderr.contains("j0 cancelled 0.0 s"),
        "{stderr}"
    );
}

#[test]
fn a_suspended_job_waits_for_its_approval_and_is_taken_in() {
    let world = fleet(1);
    world.beside("ask-first.yaml", "version: 1\nextends: [builtin:edit]\ndefault: suspend\nrules:\n  - { suspend: write_file, because: ask }\nsandbox: { level: none }\n");
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: ask-first.yaml\nmodels: [\"script:ok.yaml\"]\ntargets: [{ path: r0, id: a }]\n";
    world.beside("m.yaml", manifest);
    let args = ["batch", "m.yaml", "--out", "out", "--format", "json"];
    let done = call(&world, &args).exits(5).json();
    assert_eq!(done["jobs"]["suspended"], 1);
    let runs = world.path().join("out/jobs/a");
    let run = std::fs::read_dir(&runs)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_dir())
        .unwrap();
    let suspended: Value = serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap();
    let call_id = format!(
        "{}@{}",
        suspended["suspended"][0]["call"].as_str().unwrap(),
        suspended["suspended"][0]["digest"].as_str().unwrap()
    );
    let tree = world.path().join("out/work/a/tree").display().to_string();
    let model = format!("script:{}", world.path().join("ok.yaml").display());
    call(
        &world,
        &[
            "resume",
            run.to_str().unwrap(),
            "--approve",
            &call_id,
            "--workspace",
            &tree,
            "--model",
            &model,
        ],
    )
    .exits(0);
    let done = call(&world, &args).exits(0).json();
    assert_eq!(done["jobs"]["passed"], 1);
    one_row_each(&world, "out", 1);
}

#[test]
fn a_full_disk_ends_the_batch_and_the_same_command_goes_on() {
    let world = fleet(1);
    // Rows are large here, so that the record meets the limit on the size of a file before any journal does.
    let text = "x".repeat(40_000);
    let mut manifest = "version: 1\nrecipe: ask.yaml\nmodels: [\"script:hi.yaml\"]\ntargets:\n".to_owned();
    for n in 0..8 {
        manifest.push_str(&format!(
            "  - {{ path: r0, id: j{n}, params: {{ n: \"{text}{n}\" }} }}\n"
        ));
    }
    world.beside("hi.yaml", script(&[says("hi")]));
    world.beside("m.yaml", &manifest);
    let args = ["batch", "m.yaml", "--out", "out", "--jobs", "2", "--again"];
    call(&world, &args).exits(0);
    // 500 KiB a file: the second round ends in the middle.
    let full = format!("ulimit -f 500; exec {} {}", super::harness::BIN, args.join(" "));
    let template = command(&world, &[]);
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", &full]).current_dir(world.path()).env_clear();
    for (name, value) in template.get_envs() {
        limited.envs(value.map(|value| (name, value)));
    }
    let done = super::harness::Done::of(limited.output().unwrap());
    assert_eq!(done.code, 9, "{}", done.stderr);
    assert!(
        done.stderr.contains("cannot write") && done.stderr.contains("batch.jsonl"),
        "{}",
        done.stderr
    );
    call(&world, &args).exits(0);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(&world, "out") {
        assert_eq!(row["verdict"], "no_change", "{}", row["message"]);
        *seen.entry(row["job"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(seen.len() == 8 && seen.values().all(|rows| *rows == 2), "{seen:?}");
}

#[test]
fn rows_that_were_lost_are_made_again_from_the_record() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    world.beside("m.yaml", asking(3, "models: [\"script:hi.yaml\"]\n"));
    let args = ["batch", "m.yaml", "--out", "out"];
    call(&world, &args).exits(0);
    let path = world.path().join("out/runs.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    for cut in [0, 10, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        call(&world, &args).exits(0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    }
    let record = world.path().join("out/batch.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(
        &record,
        text.replacen("\"verdict\":\"no_change\"", "\"verdict\":\"failed\"", 1),
    )
    .unwrap();
    let done = call(&world, &args).exits(8);
    assert!(done.stderr.contains("damaged at line"), "{}", done.stderr);
}

#[test]
fn everything_again_is_everything_once_also_after_a_kill() {
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = served(&service);
    world.beside("m.yaml", asking(4, ONE_TURN));
    let args = ["batch", "m.yaml", "--out", "out", "--jobs", "1", "--again"];
    call(&world, &args).exits(0);
    let before = lines(&world, "out");
    assert!(kill_at(&world, &args, "out", before + 6), "two jobs ended again");
    call(&world, &args).exits(0);
    let rows = rows(&world, "out").len();
    assert_eq!(
        rows, 8,
        "each job once in the first call, and once in the second that was killed"
    );
    assert!(service.seen().len() <= 9);
}

/// All files of this name below a directory.
fn find(dir: &std::path::Path, name: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(find(&entry.path(), name)),
            false if entry.file_name() == name => found.push(entry.path()),
            false => {}
        }
    }
    found
}

#[test]
fn a_worktree_that_is_gone_is_made_again_with_the_changes_of_its_run() {
    let world = fleet(1);
    let replies = json!({"replies": [
        {"calls": [{"tool": "write_file", "args": {"file_path": "hello.txt", "content": "hello\n"}}]},
        {"text": "done", "delay_ms": 1200}
    ]});
    world.beside("slow.yaml", replies.to_string());
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:slow.yaml\"]\ntargets: [{ path: r0, id: a }]\n";
    world.beside("m.yaml", manifest);
    let args = ["batch", "m.yaml", "--out", "out"];
    let mut child = start(&world, &args);
    // The change is in the tree before it is in the store, from which the tree is made again.
    until("the change was stored", || {
        let journals = find(&world.path().join("out"), "journal.jsonl");
        let texts = journals.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        texts.into_iter().any(|text| text.contains("\"event\":\"patch_taken\""))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(world.path().join("out/work/a/tree")).unwrap();
    call(&world, &args).exits(0);
    let row = rows(&world, "out").pop().unwrap();
    assert_eq!(row["verdict"], "passed", "{row}");
    let patch = std::fs::read_to_string(world.path().join("out").join(row["patch"].as_str().unwrap())).unwrap();
    assert!(patch.contains("hello"), "{patch}");
}

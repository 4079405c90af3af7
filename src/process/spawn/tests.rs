//! Tests with real children: outputs, limits, daemons, pipes that stay open.

use super::*;
use crate::base::ids::CallId;
use crate::base::secret::Redactor;
use crate::process::jobs::Jobs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) fn open_confinement(dir: &Path) -> Confinement {
    Confinement {
        env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
        ..Confinement::unconfined(dir)
    }
}

pub(crate) fn shell(dir: &Path, text: &str) -> Spawn {
    Spawn {
        program: Invocation::Shell(text.to_owned()),
        dir: dir.to_path_buf(),
        env: Vec::new(),
        stdin: None,
        timeout: Duration::from_secs(20),
        cancel: CancellationToken::new(),
        on_output: None,
        keep: None,
        shown: 1 << 20,
        redactor: Arc::new(Redactor::default()),
        writes: crate::base::grant::Writes::Tree,
        judge: None,
    }
}

async fn ran(text: &str) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let confinement = open_confinement(dir.path());
    run(shell(dir.path(), text), &confinement).await.unwrap()
}

/// Whether a process with exactly this argument list is alive.
fn lives(word: &str) -> bool {
    crate::process::process_tree::table().iter().any(|entry| {
        let words = std::fs::read(format!("/proc/{}/cmdline", entry.pid)).unwrap_or_default();
        !entry.zombie && words.split(|byte| *byte == 0).any(|have| have == word.as_bytes())
    })
}

#[tokio::test]
async fn both_outputs_of_a_shell_come_in_order_with_the_exit_code() {
    let got = ran("echo one; echo two >&2; echo three; exit 7").await;
    assert_eq!(got.stdout.text, "one\ntwo\nthree\n");
    assert_eq!(got.stderr.text, "");
    assert_eq!((got.exit.code, got.exit.signal, got.exit.leftovers), (Some(7), None, 0));
}

#[tokio::test]
async fn a_signal_is_told() {
    assert_eq!(ran("kill -9 $$").await.exit.signal, Some(9));
}

#[tokio::test]
async fn a_text_that_looks_like_an_option_is_a_text() {
    assert_eq!(ran("-x; echo after").await.stdout.text.lines().last(), Some("after"));
}

#[tokio::test]
async fn the_environment_is_what_was_given_and_stdin_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut spawn = shell(dir.path(), "cat; exec env");
    spawn.env = vec![
        ("A".to_owned(), "1".to_owned()),
        ("BASH_ENV".to_owned(), "/nowhere".to_owned()),
    ];
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    let mut names: Vec<&str> = got
        .stdout
        .text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["A", "PATH", "PWD", "SHLVL"]);
}

#[tokio::test]
async fn a_program_gets_its_input_and_keeps_its_outputs_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut spawn = shell(dir.path(), "");
    let words = ["bash", "-c", "cat; echo bad >&2"];
    spawn.program = Invocation::Argv(words.map(str::to_owned).to_vec());
    spawn.stdin = Some(vec![b'x'; 300_000]);
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    assert_eq!((got.stdout.bytes, got.stderr.text.as_str()), (300_000, "bad\n"));
}

#[tokio::test]
async fn no_descriptor_of_ours_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::File::open(dir.path()).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    assert_eq!(
        ran("for n in {0..40}; do [ -e /proc/$$/fd/$n ] && echo $n; done")
            .await
            .stdout
            .text,
        "0\n1\n2\n"
    );
}

#[tokio::test]
async fn two_megabytes_are_counted_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let mut spawn = shell(dir.path(), "head -c 2000000 /dev/zero | tr '\\0' x");
    spawn.shown = 1000;
    spawn.keep = Some(dir.path().join("kept"));
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    assert_eq!(
        (got.stdout.bytes, got.stdout.omitted, got.stdout.cut),
        (2_000_000, 0, true)
    );
    assert!(got.stdout.text.len() < 1100);
    assert_eq!(std::fs::metadata(dir.path().join("kept")).unwrap().len(), 2_000_000);
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let confinement = open_confinement(dir.path());
    let mut spawn = shell(dir.path(), "");
    spawn.program = Invocation::Argv(vec!["no-such-program-here".to_owned()]);
    assert!(matches!(
        run(spawn, &confinement).await,
        Err(SpawnError::NotFound { .. })
    ));
    let mut spawn = shell(dir.path(), "true");
    spawn.dir = PathBuf::from("/no/such/dir");
    assert!(matches!(
        run(spawn, &confinement).await,
        Err(SpawnError::NoDirectory { .. })
    ));
}

#[tokio::test]
async fn time_runs_out_for_the_whole_tree_even_when_it_will_not_listen() {
    let dir = tempfile::tempdir().unwrap();
    let mut spawn = shell(
        dir.path(),
        "trap '' TERM; echo begun; (trap '' TERM; sleep 3011.5) & sleep 3011.5; sleep 3011.5",
    );
    spawn.timeout = Duration::from_millis(300);
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    assert!(got.exit.timed_out);
    assert_eq!(got.stdout.text, "begun\n");
    assert!(got.took < Duration::from_secs(3), "{:?}", got.took);
    assert!(!lives("3011.5"));
}

#[tokio::test]
async fn cancellation_begins_the_kill_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let spawn = shell(dir.path(), "sleep 3012.5");
    let cancel = spawn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    assert_eq!((got.exit.signal, got.exit.timed_out), (Some(15), false));
    assert!(got.took < Duration::from_secs(1), "{:?}", got.took);
}

#[tokio::test]
async fn a_daemon_does_not_outlive_its_command() {
    let got = ran("setsid sh -c 'setsid sleep 3013.5 >/dev/null 2>&1 </dev/null &' ; sleep 0.2; echo done").await;
    assert_eq!((got.stdout.text.as_str(), got.exit.code), ("done\n", Some(0)));
    assert_eq!(got.exit.leftovers, 1);
    assert!(!lives("3013.5"));
}

/// A tracer stops the process while it exits, so that it stays alive after SIGKILL like one that waits for a disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(unsafe_code, reason = "processes are traced by system calls")]
async fn a_process_that_cannot_be_killed_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let traced = dir.path().join("traced");
    let ready = dir.path().join("pid");
    let tracer = std::thread::spawn(move || {
        let pid = loop {
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            if let Some(pid) = text.strip_suffix('\n').and_then(|pid| pid.parse::<i32>().ok()) {
                break pid;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // SAFETY: changes only the other process.
        let is_traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACEEXIT) == 0 };
        tell.send(is_traced.then_some(pid)).unwrap();
        std::fs::write(traced, "").unwrap();
        // When this thread ends, the traced process continues.
        let _ = ends.recv();
    });
    let text = "sleep 3019.5 >/dev/null 2>&1 & echo $! > pid; until [ -e traced ]; do sleep 0.01; done; echo done";
    let got = run(shell(dir.path(), text), &open_confinement(dir.path()))
        .await
        .unwrap();
    let Some(pid) = told.recv().unwrap() else {
        return println!("skipped: this user may not trace processes");
    };
    assert_eq!((got.stdout.text.as_str(), got.exit.leftovers), ("done\n", 1));
    let told = crate::process::survivors::message(dir.path()).unwrap();
    assert!(told.contains(&format!("{pid} (sleep)")), "{told}");
    assert_eq!(crate::process::survivors::message(Path::new("/")), None, "only there");
    drop(end);
    tracer.join().unwrap();
}

#[tokio::test]
async fn an_inherited_pipe_does_not_hold_us() {
    let got = ran("sleep 3014.5 & echo done").await;
    assert_eq!((got.stdout.text.as_str(), got.exit.leftovers), ("done\n", 1));
    assert!(got.took < Duration::from_secs(2), "{:?}", got.took);
    assert!(!lives("3014.5"));
}

#[tokio::test]
async fn a_filter_that_ends_a_little_later_is_heard() {
    let got = ran("exec > >(sleep 0.05; cat); echo late").await;
    assert_eq!((got.stdout.text.as_str(), got.exit.leftovers), ("late\n", 0));
}

#[tokio::test]
async fn a_dropped_future_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let confinement = open_confinement(dir.path());
    let running = run(shell(dir.path(), "setsid sleep 3015.5 & sleep 3015.5"), &confinement);
    assert!(tokio::time::timeout(Duration::from_millis(300), running).await.is_err());
    assert!(!lives("3015.5"));
}

#[tokio::test]
async fn a_bounded_storm_of_forks_is_put_down() {
    let dir = tempfile::tempdir().unwrap();
    let mut spawn = shell(
        dir.path(),
        "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 3016.5; }; f 6",
    );
    spawn.timeout = Duration::from_millis(800);
    let got = run(spawn, &open_confinement(dir.path())).await.unwrap();
    assert!(got.exit.timed_out);
    assert!(!lives("3016.5"));
}

#[tokio::test]
async fn jobs_go_on_are_read_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let confinement = open_confinement(dir.path());
    let jobs = Jobs::default();
    // The first goes on for longer than any delay; the second ends the wait by its end.
    let (delay, patience) = (Duration::from_secs(2), Duration::from_secs(60));
    let long = jobs
        .start(
            (&CallId::nth(1), "long"),
            shell(dir.path(), "echo up; sleep 3017.5"),
            &confinement,
            delay,
        )
        .await
        .unwrap();
    let short = jobs
        .start(
            (&CallId::nth(2), "short"),
            shell(dir.path(), "echo out; exit 3"),
            &confinement,
            patience,
        )
        .await
        .unwrap();
    assert_eq!(
        (long.name().as_str(), long.output.as_str(), long.end),
        ("job1", "up\n", None)
    );
    assert_eq!(short.output, "out\n");
    assert!(matches!(short.end, Some(crate::process::jobs::JobEnd::Exited { exit, .. }) if exit.code == Some(3)));
    assert!(jobs.any_running());
    assert!(jobs.any_unreported());
    assert_eq!(jobs.list().len(), 2);
    assert!(jobs.get(0).is_none() && jobs.get(3).is_none());
    assert_eq!(jobs.kill_all().await, 1);
    assert!(!jobs.any_running() && jobs.any_unreported());
    assert!(!lives("3017.5"));
    let ended: Vec<CallId> = jobs.take_ended().into_iter().map(|job| job.call).collect();
    assert_eq!(ended, [CallId::nth(1), CallId::nth(2)]);
    assert!(jobs.take_ended().is_empty(), "each is handed out once");
    assert!(!jobs.any_unreported());
}

#[tokio::test]
async fn dropped_jobs_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = Jobs::default();
    let confinement = open_confinement(dir.path());
    let spawn = shell(dir.path(), "sleep 3018.5");
    jobs.start(
        (&CallId::nth(1), "long"),
        spawn,
        &confinement,
        Duration::from_millis(100),
    )
    .await
    .unwrap();
    drop(jobs);
    for _ in 0..100 {
        if !lives("3018.5") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!lives("3018.5"));
}

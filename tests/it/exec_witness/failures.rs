//! When something goes wrong: nothing hangs, nothing runs unjudged.

use super::super::harness::{Done, World, says, script, shell};
use super::{CONFINED, House, Recorder, allow, file_name, house};
use overnight::base::grant::{Exec, ExecAnswer, ExecJudge, Starts};
use overnight::process::{self, SandboxLevel, SignalScope, SpawnError};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The directory of a run that another process is to start, and its level.
const INNER: &str = "OVERNIGHT_TEST_INNER";

#[tokio::test]
async fn it_can_be_had_at_every_level_and_the_probe_says_so() {
    process::use_helper(super::super::harness::helper());
    let probe = process::probe().await;
    for level in CONFINED {
        assert_eq!(probe.witness(level), Ok(()), "{level:?}");
    }
    assert!(probe.witness(SandboxLevel::None).is_err());
}

#[tokio::test]
async fn without_a_sandbox_nobody_is_asked() {
    let mut house = house(SandboxLevel::None);
    house.confinement.network = process::Network::Open;
    let judge = Recorder::new();
    let got = house.run("ls src/d; echo on", &judge).await;
    assert_eq!((got.stdout.text.as_str(), judge.seen().len()), ("on\n", 0));
}

#[tokio::test]
async fn a_slow_answer_is_waited_for() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::with(false, |_| {
            std::thread::sleep(Duration::from_millis(300));
            None
        });
        let got = house.run("basename a; echo $?", &judge).await;
        assert_eq!(got.stdout.text, "a\n0\n", "{level:?}");
        assert!(got.took > Duration::from_millis(300));
    }
}

/// Waits without an exec.
const PAUSE: &str =
    "pause() { local e=$((${EPOCHREALTIME/./} + $1000)); while ((${EPOCHREALTIME/./} < e)); do :; done; }; ";

#[tokio::test]
async fn who_waits_can_be_killed() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::with(false, |exec| {
            if exec.argv == ["ls", "slow"] {
                std::thread::sleep(Duration::from_millis(700));
            }
            None
        });
        let text = format!("{PAUSE} (exec ls slow) & p=$!; pause 200; kill -9 $p; wait $p; echo $?; basename on");
        let got = house.run(&text, &judge).await;
        assert!(got.stdout.text.ends_with("137\non\n"), "{level:?}: {}", got.stdout.text);
        assert_eq!(judge.argvs(), [["ls", "slow"], ["basename", "on"]], "{level:?}");
    }
}

#[tokio::test]
async fn the_first_caller_may_be_killed_and_the_next_is_still_the_shell() {
    for level in CONFINED {
        let house = house(level);
        for _ in 0..20 {
            let judge = Recorder::new();
            let got = house
                .run(
                    "(exec ls first) & kill -9 $!; wait; ls src/d; basename x; (basename y)",
                    &judge,
                )
                .await;
            let mut seen = judge.argvs();
            seen.retain(|argv| argv != &["ls", "first"]);
            assert_eq!(
                seen,
                [["ls", "src/d"], ["basename", "x"], ["basename", "y"]],
                "{level:?}"
            );
            assert!(got.stdout.text.ends_with("x\ny\n"), "{level:?}: {}", got.stdout.text);
        }
    }
}

#[tokio::test]
async fn a_signal_that_is_handled_does_not_break_a_waiting_exec() {
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        let judge = Recorder::with(true, |exec| {
            if exec.caller == Starts::Anything {
                std::thread::sleep(Duration::from_millis(250));
            }
            None
        });
        let got = house.run("aux/sigexec /bin/echo done", &judge).await;
        assert!(got.stdout.text.ends_with("done\n"), "{level:?}: {}", got.stdout.text);
        assert!(!got.stdout.text.contains("exec failed"));
    }
}

/// A judge that breaks.
struct Broken;

impl ExecJudge for Broken {
    fn judge(&self, exec: &Exec) -> ExecAnswer {
        assert!(file_name(&exec.path) != "basename", "this judge is broken on purpose");
        allow(Starts::Nothing)
    }

    fn asks_below_anything(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_judge_that_panics_ends_the_command_as_a_failed_sandbox() {
    for level in CONFINED {
        let house = house(level);
        let started = Instant::now();
        let got = house
            .try_run("touch before; basename x; touch after; sleep 200", Arc::new(Broken))
            .await;
        assert!(
            matches!(&got, Err(SpawnError::Sandbox(why)) if why.contains("panic")),
            "{level:?}: {got:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(60));
        assert!(house.ws().join("before").exists() && !house.ws().join("after").exists());
    }
}

#[tokio::test]
async fn giving_up_a_command_ends_its_witness_and_its_tree() {
    for level in CONFINED {
        let house = house(level);
        let judge = Recorder::new();
        let run = house.run("while :; do /bin/true; echo x >> ticks; done", &judge);
        assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());
        let ticks = || {
            std::fs::read_to_string(house.ws().join("ticks"))
                .unwrap_or_default()
                .len()
        };
        let (before, seen) = (ticks(), judge.seen().len());
        assert!(before > 0);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!((ticks(), judge.seen().len()), (before, seen), "{level:?}");
        // The thread has let go of the judge.
        assert_eq!(Arc::strong_count(&judge), 1, "{level:?}");
    }
}

/// The body of a process that is going to be killed. Run by `a_killed_supervisor_leaves_nothing_behind`.
#[tokio::test]
#[ignore = "run again by another test, in a process of its own"]
async fn inner_run() {
    let Ok(order) = std::env::var(INNER) else { return };
    let (level, dir) = order.split_once(' ').unwrap();
    let level = if level == "full" {
        SandboxLevel::Full
    } else {
        SandboxLevel::Landlock
    };
    let mut house = house(level);
    house.confinement.workspace = Path::new(dir).to_path_buf();
    if order.starts_with("signals") {
        // As on a kernel whose Landlock does not scope signals.
        house.confinement.signals = SignalScope::Mediated;
        let mut spawn = house.spawn("kill -0 $PPID || kill -0 $$ || echo none", Recorder::new());
        spawn.judge = None;
        let got = process::run(spawn, &house.confinement).await.unwrap();
        return println!("inner: {}", got.stdout.text);
    }
    let got = house
        .try_run(
            "touch started; while :; do /bin/true && echo x >> ticks; done",
            Recorder::new(),
        )
        .await;
    println!("inner: {got:?}");
}

fn inner(level: SandboxLevel, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "exec_witness::failures::inner_run",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(INNER, format!("{} {}", level.as_str(), dir.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn a_killed_supervisor_leaves_nothing_behind() {
    for level in CONFINED {
        // `None`: after the command has begun.
        for wait in [Some(0), Some(2), Some(4), Some(6), Some(8), Some(12), None] {
            let dir = tempfile::tempdir().unwrap();
            let ws = dir.path().canonicalize().unwrap();
            let mut child = inner(level, &ws).spawn().unwrap();
            match wait {
                Some(millis) => std::thread::sleep(Duration::from_millis(millis)),
                None => {
                    let until = Instant::now() + Duration::from_secs(10);
                    while !ws.join("ticks").exists() {
                        assert!(Instant::now() < until, "{level:?}: the command did not begin");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let until = Instant::now() + Duration::from_secs(3);
            while stands_in(&ws) {
                assert!(Instant::now() < until, "{level:?}, {wait:?}: processes are left");
                std::thread::sleep(Duration::from_millis(5));
            }
            let ticks = || std::fs::metadata(ws.join("ticks")).map_or(0, |data| data.len());
            let before = ticks();
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(ticks(), before, "{level:?}, {wait:?}");
        }
    }
}

fn stands_in(dir: &Path) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir)))
}

/// Under a supervisor of somebody else there can be no second one: that is found out and said, and nothing is run.
#[test]
fn under_another_supervisor_it_is_refused() {
    for level in CONFINED {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().canonicalize().unwrap();
        let mut command = inner(level, &ws);
        supervise(&mut command);
        let got = command.output().unwrap();
        let out = String::from_utf8_lossy(&got.stdout).into_owned();
        assert!(out.contains("Err(Sandbox("), "{level:?}: {out}");
        assert!(out.contains("another supervisor"), "{level:?}: {out}");
        assert!(!ws.join("started").exists());
        let mut doctor = Command::new(super::super::harness::helper());
        doctor.arg("doctor").arg("--workspace").arg(&ws);
        supervise(&mut doctor);
        let said = String::from_utf8_lossy(&doctor.output().unwrap().stdout).into_owned();
        let line = said
            .lines()
            .find(|line| line.contains("programs  "))
            .unwrap_or_default();
        assert!(
            line.starts_with("warning") && line.contains("another supervisor"),
            "{said}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let mut signals = inner(SandboxLevel::Landlock, dir.path());
    signals.env(
        INNER,
        format!("signals {}", dir.path().canonicalize().unwrap().display()),
    );
    supervise(&mut signals);
    let got = signals.output().unwrap();
    let out = String::from_utf8_lossy(&got.stdout).into_owned();
    let refused = out.matches("Operation not permitted").count();
    assert!(refused == 2 && out.contains("none\n"), "{out}");
    let plain = Command::new(super::super::harness::helper())
        .args(["doctor", "--workspace", "/tmp"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    let line = said
        .lines()
        .find(|line| line.contains("programs  "))
        .unwrap_or_default();
    assert!(
        line.starts_with("ok") && line.contains("checked when it is executed"),
        "{said}"
    );
}

/// The seccomp filters of some containers refuse `openat2(2)`. All that names a file still works, and finds the same one.
#[test]
fn a_container_may_refuse_openat2() {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        ("s.sh", "cat a.txt > made.txt\nchmod 600 made.txt\nbin/t.sh\n"),
        ("tools/t.sh", "#!/bin/sh\ncat a.txt >> made.txt\n"),
    ]);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.ws().join("tools/t.sh"), mode).unwrap();
    std::os::unix::fs::symlink("tools", world.ws().join("bin")).unwrap();
    world.commit("x");
    let script = format!(
        "script:{}",
        world.beside("script.yaml", script(&[shell("bash s.sh"), says("done")]))
    );
    for level in ["full", "landlock"] {
        let rules = "{ allow: run_shell_command, commands: [bash, cat, chmod, bin/t.sh, tools/t.sh], args: any }";
        let policy =
            format!("version: 1\nextends: [builtin:edit]\nrules:\n  - {rules}\nsandbox: {{ level: {level} }}\n");
        let policy = world.beside("policy.yaml", policy);
        let out = world.path().join(level).to_string_lossy().into_owned();
        let mut command = world.command(&["run", "-p", "x", "--model", &script, "--policy", &policy, "--out", &out]);
        filter(&mut command, libc::SYS_openat2, libc::SECCOMP_RET_ERRNO | 1, 0);
        let done = Done::of(command.output().unwrap()).exits(0);
        let journal = std::fs::read_to_string(Path::new(&out).join("journal.jsonl")).unwrap();
        let made = std::fs::read_to_string(world.ws().join("made.txt")).unwrap_or_default();
        assert_eq!(made, "one\none\n", "{level}: {}{journal}", done.stderr);
        let data = std::fs::metadata(world.ws().join("made.txt")).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600, "{level}");
        std::fs::remove_file(world.ws().join("made.txt")).unwrap();
    }
}

/// Puts a notifying filter, which asks about nothing that anybody does, before the program.
fn supervise(command: &mut Command) {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    filter(command, libc::SYS_reboot, libc::SECCOMP_RET_USER_NOTIF, flags);
}

/// Puts a filter with this answer to one system call before the program.
#[expect(unsafe_code, reason = "a filter can only be set between fork and exec")]
fn filter(command: &mut Command, call: i64, answer: u32, flags: u64) {
    use std::os::unix::process::CommandExt;
    let hook = move || {
        let line = |code: u32, k: u32, jf: u8| libc::sock_filter {
            code: u16::try_from(code).unwrap_or(0),
            jt: 0,
            jf,
            k,
        };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let back = libc::BPF_RET | libc::BPF_K;
        let call = u32::try_from(call).unwrap_or(0);
        let mut filter = [
            line(load, 0, 0),
            line(equal, call, 1),
            line(back, answer, 0),
            line(back, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog {
            len: 4,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: only system calls; the filter lives through them. The descriptor is kept open for the life of the process.
        let fd = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let fd = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            );
            libc::fcntl(i32::try_from(fd).unwrap_or(-1), libc::F_SETFD, 0);
            fd
        };
        if fd < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: the hook allocates nothing.
    unsafe {
        command.pre_exec(hook);
    }
}

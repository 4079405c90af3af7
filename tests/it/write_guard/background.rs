//! Commands that live on while others are compared.

use super::{CONFINED, entries, ground};
use overnight::base::grant::Writes;
use overnight::base::ids::CallId;
use overnight::process::{self, Network, SandboxLevel};
use std::time::Duration;

/// A background command swaps a directory with a link to a place outside while what another one changed is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_directory_leads_nothing_outside() {
    for level in CONFINED {
        let ground = ground(level);
        std::fs::create_dir(ground.confinement.workspace.join("d")).unwrap();
        let out = ground.top.path().join("outside");
        std::fs::write(out.join(".npmrc"), "mine\n").unwrap();
        let swap = "import ctypes,os\nl=ctypes.CDLL(None)\nos.symlink(\"TOP/outside\", \"l\")\nopen(\"ready\",\"w\")\nwhile True: l.renameat2(-100, b\"d\", -100, b\"l\", 2)\n";
        let swap = swap.replace("TOP", &ground.top.path().display().to_string());
        let jobs = process::jobs::Jobs::default();
        let command = format!("/usr/bin/python3 -c '{swap}'");
        let delay = Duration::from_millis(300);
        let started = jobs
            .start(
                (&CallId::nth(1), "swap"),
                ground.spawn(&command, &Writes::Tree),
                &ground.confinement,
                delay,
            )
            .await
            .unwrap();
        assert_eq!(started.end, None, "{level:?}: {}", started.output);
        for _ in 0..5 {
            ground
                .run(
                    "for n in 1 2 3 4 5 6 7 8; do mkdir -p d/$n; echo evil > d/$n/.npmrc; echo evil > d/.npmrc; done 2>/dev/null; true",
                    &Writes::Tree,
                )
                .await;
        }
        assert!(jobs.any_running(), "it was stopped only for a moment");
        jobs.kill_all().await;
        let left: Vec<_> = std::fs::read_dir(&out)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left.len(), 2, "{level:?}: {left:?}");
        assert_eq!(ground.read("outside/.npmrc").as_deref(), Some("mine\n"), "{level:?}");
        assert_eq!(ground.read("outside/secret").as_deref(), Some("old\n"), "{level:?}");
    }
}

/// What a first command does before the second one starts and afterwards, what the second one does when the first has
/// ended and was compared, a closed file, and its content in the end.
const OVERLAPS: [(&str, &str, &str, &str, Option<&str>); 9] = [
    ("echo evil > .git/config", "", "", "ws/.git/config", Some("old\n")),
    ("echo evil > src/deep/.npmrc", "", "", "ws/src/deep/.npmrc", None),
    (
        "echo evil > src/deep/.npmrc",
        "",
        "echo evil > src/deep/.npmrc",
        "ws/src/deep/.npmrc",
        None,
    ),
    (
        "mkdir .vscode",
        "rmdir .vscode",
        "mkdir .vscode; echo evil > .vscode/tasks.json",
        "ws/.vscode/tasks.json",
        None,
    ),
    (
        "mkdir -p src/.vscode; echo evil > src/.vscode/tasks.json",
        "",
        "",
        "ws/src/.vscode/tasks.json",
        None,
    ),
    (
        "mv sub real; cp -r real sub; echo evil > sub/.git/config",
        "rm -rf sub; mv real sub",
        "",
        "ws/sub/.git/config",
        Some("old\n"),
    ),
    ("rm -f sub/.npmrc", "", "", "ws/sub/.npmrc", Some("old\n")),
    (
        "mv .git g; mkdir .git; echo evil > .git/config",
        "",
        "",
        "ws/.git/config",
        Some("old\n"),
    ),
    (
        "mv sub real; mkdir sub; ln -s ../Makefile sub/.npmrc",
        "",
        "rm -f sub/.npmrc; ln -s ../Makefile sub/.npmrc",
        "ws/sub/.npmrc",
        Some("old\n"),
    ),
];

/// Waits until a file is there that the test or the other command makes.
fn until(file: &str) -> String {
    format!("until [ -e {file} ]; do sleep 0.02; done")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_commands_leave_nothing_in_closed_paths() {
    for level in CONFINED {
        for (first, later, second, file, wanted) in OVERLAPS {
            let ground = ground(level);
            let at = |name: &str| ground.confinement.workspace.join(name);
            std::fs::create_dir_all(at("sub/.git")).unwrap();
            for name in ["sub/.git/config", "sub/.npmrc"] {
                std::fs::write(at(name), "old\n").unwrap();
            }
            let first = format!("({first}) 2>&1\ntouch begun\n{}\n{later}\ntrue", until("follows"));
            let second = format!("touch follows\n{}\n{second}\ntrue", until("ended"));
            let older = async {
                let got = ground.run(&first, &Writes::Tree).await;
                std::fs::write(at("ended"), "").unwrap();
                got
            };
            let newer = async {
                while !at("begun").exists() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                ground.run(&second, &Writes::Tree).await
            };
            let (older, newer) = tokio::join!(older, newer);
            let undone = [older.undone, newer.undone].concat();
            assert!(undone.iter().all(|one| one.restored), "{level:?} {first}: {undone:?}");
            assert_eq!(ground.read(file).as_deref(), wanted, "{level:?} {first}: {undone:?}");
        }
    }
}

/// The same of a background command that goes on after three others, and of files that nothing closes but nobody granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_background_command_changed_is_its_own_change() {
    for level in CONFINED {
        let ground = ground(level);
        let at = |name: &str| ground.confinement.workspace.join(name);
        std::fs::write(at("src/.npmrc"), "old\n").unwrap();
        let jobs = process::jobs::Jobs::default();
        let evil = "mv src s; cp -r s src; echo evil > src/.npmrc; echo evil > src/deep/.envrc";
        let command = format!("{evil}; touch begun; {}; rm -rf src; mv s src", until("done"));
        let delay = Duration::from_millis(10);
        let job = (&CallId::nth(1), "evil");
        jobs.start(job, ground.spawn(&command, &Writes::Tree), &ground.confinement, delay)
            .await
            .unwrap();
        while !at("begun").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..3 {
            let got = ground.run("true", &Writes::Tree).await;
            assert!(got.undone.is_empty(), "{level:?}: {:?}", got.undone);
        }
        std::fs::write(at("done"), "").unwrap();
        while jobs.any_running() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ground.read("ws/src/.npmrc").as_deref(), Some("old\n"), "{level:?}");
        assert_eq!(ground.read("ws/src/deep/.envrc"), None, "{level:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_commands_leave_nothing_where_neither_was_granted_it() {
    for level in CONFINED {
        let ground = ground(level);
        let at = |name: &str| ground.confinement.workspace.join(name);
        let first = format!(
            "echo evil > src/b.txt; echo evil > src/new.txt; echo new > src/a.txt; touch \"$TMPDIR/begun\"; {}",
            until("\"$TMPDIR/follows\"")
        );
        let second = format!("touch \"$TMPDIR/follows\"; {}; true", until("\"$TMPDIR/ended\""));
        let tmp = |name: &str| ground.top.path().join("tmp").join(name);
        let (a, c) = (entries(&["src/a.txt"]), entries(&["src/c.txt"]));
        let older = async {
            ground.run(&first, &a).await;
            std::fs::write(tmp("ended"), "").unwrap();
        };
        let newer = async {
            while !tmp("begun").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            ground.run(&second, &c).await
        };
        let ((), _) = tokio::join!(older, newer);
        assert_eq!(ground.read("ws/src/b.txt").as_deref(), Some("old\n"), "{level:?}");
        assert_eq!(ground.read("ws/src/a.txt").as_deref(), Some("new\n"), "{level:?}");
        assert!(!at("src/new.txt").exists(), "{level:?}");
    }
}

/// A frozen command does nothing until it is let go.
#[tokio::test]
async fn background_commands_can_be_stopped() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None] {
        let mut ground = ground(level);
        if level == SandboxLevel::None {
            ground.confinement.network = Network::Open;
        }
        let jobs = process::jobs::Jobs::default();
        let count = "while true; do echo x >> count; done";
        let delay = Duration::from_millis(200);
        jobs.start(
            (&CallId::nth(1), "count"),
            ground.spawn(count, &Writes::Tree),
            &ground.confinement,
            delay,
        )
        .await
        .unwrap();
        let size = || {
            std::fs::metadata(ground.confinement.workspace.join("count"))
                .unwrap()
                .len()
        };
        let begun = async {
            while !ground.confinement.workspace.join("count").exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), begun).await.unwrap();
        let frozen = jobs.freeze().await;
        assert!(frozen.all(), "{level:?}");
        let before = size();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(size(), before, "{level:?}");
        drop(frozen);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(size() > before, "{level:?}");
        assert_eq!(jobs.kill_all().await, 1);
    }
}

/// This includes a program whose first thread has ended, and one that waits for a child that it creates: `posix_spawn`
/// returns when the child has opened its files, here a pipe to which nobody writes.
#[tokio::test]
async fn threads_and_waiting_programs_can_be_stopped() {
    let count = "import ctypes, os, threading
def work():
    out = open(\"count\", \"a\")
    while True: out.write(\"x\"); out.flush()
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == \"x86_64\" else 93, 0)";
    let wait = "import os
os.mkfifo(\"pipe\")
open(\"count\", \"w\").write(\"x\")
os.posix_spawn(\"/bin/true\", [\"true\"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, \"pipe\", os.O_RDONLY, 0)])
open(\"spawned\", \"w\")";
    for level in CONFINED {
        for program in [count, wait] {
            let ground = ground(level);
            let at = |name: &str| ground.confinement.workspace.join(name);
            let jobs = process::jobs::Jobs::default();
            let command = format!("/usr/bin/python3 -c '{program}'");
            let spawn = ground.spawn(&command, &Writes::Tree);
            let job = (&CallId::nth(1), "job");
            jobs.start(job, spawn, &ground.confinement, Duration::from_millis(300))
                .await
                .unwrap();
            let size = || std::fs::metadata(at("count")).map_or(0, |data| data.len());
            while size() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let begun = std::time::Instant::now();
            let frozen = jobs.freeze().await;
            assert!(frozen.all(), "{level:?}: {}", frozen.why_not());
            assert!(
                begun.elapsed() < Duration::from_secs(15),
                "{level:?}: at the end of its time"
            );
            let before = size();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(size(), before, "{level:?}");
            drop(frozen);
            if program == wait {
                std::fs::write(at("pipe"), "").unwrap();
                while jobs.any_running() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                assert!(at("spawned").exists(), "{level:?}: it goes on as if nothing had been");
            }
            jobs.kill_all().await;
        }
    }
}

/// A git that is killed leaves its lock file, but the next git works.
#[tokio::test]
async fn a_killed_git_does_not_lock_out_the_next_one() {
    for level in CONFINED {
        let mut ground = ground(level);
        ground.confinement.closed = std::sync::Arc::new(overnight::base::grant::NothingClosed);
        let ws = &ground.confinement.workspace;
        std::fs::remove_dir_all(ws.join(".git")).unwrap();
        super::super::harness::git_in(ws, &["init", "-q"]);
        super::super::harness::git_in(ws, &["add", "Makefile"]);
        super::super::harness::git_in(ws, &["commit", "-qm", "first"]);
        let git = "git -c user.name=a -c user.email=a@example.org";
        let command = format!(
            "echo new > Makefile; GIT_EDITOR=\"touch $TMPDIR/edits; sleep 60; true\" setsid {git} commit -a >$TMPDIR/log 2>&1 & \
             n=0; until [ -e \"$TMPDIR/edits\" ] || [ $n = 500 ]; do sleep 0.01; n=$((n+1)); done; ls .git/index.lock || cat $TMPDIR/log"
        );
        let got = ground.run(&command, &Writes::Tree).await;
        assert_eq!(got.stdout.text, ".git/index.lock\n", "{level:?}");
        assert!(got.exit.leftovers > 0, "{level:?}");
        assert_eq!(got.locks.removed, [".git/index.lock"], "{level:?}: {:?}", got.locks);
        let next = ground
            .run(
                &format!("{git} commit -qam next && git log --oneline | wc -l"),
                &Writes::Tree,
            )
            .await;
        assert_eq!((next.exit.code, next.stdout.text.trim()), (Some(0), "2"), "{level:?}");
    }
}

//! Confined commands: what works in them, what must not, at each level.

mod reach;
mod signals;

use super::harness::{World, have_optional};
use overnight::base::secret::Redactor;
use overnight::process::{self, Confinement, Finished, Invocation, Network, SandboxLevel, SignalScope, Spawn};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A workspace with protected and hidden things in it, a private home, and things outside.
struct House {
    top: TempDir,
    confinement: Confinement,
}

fn house(level: SandboxLevel) -> House {
    process::use_helper(super::harness::helper());
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for dir in [
        "ws/.git/hooks",
        "ws/.github/workflows",
        "ws/src",
        "ws/.overnight/runs/1",
        "home",
        "tmp",
        "outside",
    ] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    for file in [
        "ws/.git/config",
        "ws/.github/workflows/ci.yml",
        "ws/.overnight/runs/1/journal.jsonl",
        "outside/secret",
    ] {
        std::fs::write(at(file), "old\n").unwrap();
    }
    let env = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
    let confinement = Confinement {
        level,
        signals: SignalScope::of_kernel(),
        workspace: at("ws"),
        readable: Vec::new(),
        writable: vec![at("home"), at("tmp")],
        placed: Arc::default(),
        hidden: vec![at("ws/.overnight")],
        masks: Arc::default(),
        closed: super::harness::closed_paths(),
        names: Arc::default(),
        memory: None,
        network: Network::None,
        witness: true,
        env: vec![
            env("PATH", Path::new("/usr/local/bin:/usr/bin:/bin")),
            env("HOME", &at("home")),
            env("TMPDIR", &at("tmp")),
        ],
        spare: Arc::default(),
        links: Arc::default(),
        objects: Arc::default(),
        side: None,
    };
    House { top, confinement }
}

impl House {
    fn spawn(&self, text: &str) -> Spawn {
        Spawn {
            program: Invocation::Shell(text.to_owned()),
            dir: self.confinement.workspace.clone(),
            env: Vec::new(),
            stdin: None,
            timeout: Duration::from_secs(30),
            cancel: CancellationToken::new(),
            on_output: None,
            keep: None,
            shown: 1 << 20,
            redactor: Arc::new(Redactor::default()),
            writes: overnight::base::grant::Writes::Tree,
            judge: None,
        }
    }

    async fn run(&self, text: &str) -> Finished {
        process::run(self.spawn(text), &self.confinement).await.unwrap()
    }

    fn outside(&self, name: &str) -> String {
        self.top.path().join("outside").join(name).display().to_string()
    }
}

const CONFINED: [SandboxLevel; 2] = [SandboxLevel::Full, SandboxLevel::Landlock];

#[tokio::test]
async fn a_probe_finds_what_there_is_and_the_self_test_holds() {
    for level in CONFINED {
        let house = house(level);
        let probe = process::probe().await;
        assert!(probe.full.is_ok() && probe.landlock.is_ok(), "{probe:?}");
        assert!(
            probe.landlock.as_ref().unwrap().contains("signals scoped by "),
            "{probe:?}"
        );
        process::self_test(&house.confinement).await.unwrap();
    }
}

/// In a container, `overnight` may have the same PID as a command has in its PID namespace at `full`.
#[test]
fn the_self_test_is_not_misled_by_a_low_process_id() {
    let world = World::new();
    world.file("a.txt", "one\n");
    let policy = world.beside("policy.yaml", "version: 1\nextends: [builtin:look]\n");
    let call =
        "\"$0\" tools call run_shell_command --args '{\"command\": \"cat a.txt\"}' --policy \"$1\"; echo \"exit $?\"";
    let mut alone = std::process::Command::new("unshare");
    alone.args(["-Urpf", "--mount-proc", "sh", "-c"]);
    let there = alone.arg("true").status().is_ok_and(|status| status.success());
    if !have_optional("a PID namespace", there) {
        return;
    }
    let mut alone = std::process::Command::new("unshare");
    alone
        .args(["-Urpf", "--mount-proc", "sh", "-c", call])
        .arg(super::harness::helper())
        .arg(&policy);
    let got = alone
        .current_dir(world.ws())
        .env("HOME", world.path().join("home"))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&got.stdout);
    assert!(
        out.contains("one\n") && out.ends_with("exit 0\n"),
        "{out}{}",
        String::from_utf8_lossy(&got.stderr)
    );
}

#[tokio::test]
async fn a_command_works_in_its_tree() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None] {
        let house = house(level);
        let got = house.run("pwd; echo $HOME > home.txt; mkdir -p target/a && echo x > target/a/b && mv target/a target/c && cat target/c/b; touch $HOME/x $TMPDIR/y; exit 5").await;
        let pwd = house.confinement.workspace.display();
        assert_eq!(got.stdout.text, format!("{pwd}\nx\n"), "{level:?}");
        assert_eq!((got.exit.code, got.exit.leftovers), (Some(5), 0), "{level:?}");
        assert!(got.undone.is_empty());
    }
}

/// Scripts that must not reach what they are after. `OUT` stands for the directory outside, `PID` for this process.
const ESCAPES: [(&str, &str); 22] = [
    ("write outside", "echo x > OUT/new"),
    ("change outside", "echo x > OUT/secret"),
    ("append outside", "echo x >> OUT/secret"),
    ("remove outside", "rm -f OUT/secret"),
    ("read outside", "cat OUT/secret > got"),
    ("link outside", "ln -s OUT/secret l; cat l > got; echo x > l"),
    ("hard link outside", "ln OUT/secret h; cat h > got"),
    ("passwords", "cat /etc/shadow > got"),
    ("home of the user", "ls -A ROOTHOME > got"),
    ("hidden directory", "cat .overnight/runs/1/journal.jsonl > got"),
    ("existing hook directory", "echo x > .git/hooks/pre-commit"),
    ("existing configuration", "echo x > .git/config"),
    ("moved version control", "mv .git g; mkdir .git; echo x > .git/config"),
    (
        "moved workflows",
        "mv .github g; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
    ),
    ("absent start-up file", "echo x > .envrc"),
    ("absent file at any depth", "mkdir -p a/b; echo x > a/b/.npmrc"),
    ("environment of the parent", "cat /proc/PID/environ > got"),
    (
        "memory of the parent",
        "head -c 1 /proc/PID/mem > got; cat /proc/PID/maps >> got; readlink /proc/PID/fd/0 >> got",
    ),
    ("signal to the parent", "kill -0 PID && echo x > got"),
    (
        "namespaces",
        "unshare -U true && echo x > got; unshare -n true && echo x > got",
    ),
    ("mount", "mount -t tmpfs none src && echo x > got"),
    (
        "kernel settings",
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo x > got",
    ),
];

#[tokio::test]
async fn no_escape_succeeds_at_any_level() {
    for level in CONFINED {
        for (name, script) in ESCAPES {
            if level == SandboxLevel::Landlock && name == "hidden directory" {
                // Landlock cannot take a directory out of one that it grants: run directories must lie elsewhere.
                continue;
            }
            let house = house(level);
            let script = script
                .replace("OUT", house.outside("").trim_end_matches('/'))
                .replace(
                    "ROOTHOME",
                    &std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned()),
                )
                .replace("PID", &std::process::id().to_string());
            let before = picture(&house);
            let run = house.run(&format!("({script}); true")).await;
            let got = std::fs::read_to_string(house.confinement.workspace.join("got")).unwrap_or_default();
            assert_eq!(got, "", "{level:?}: {name}: {}", run.stdout.text);
            assert_eq!(picture(&house), before, "{level:?}: {name}: {}", run.stdout.text);
        }
    }
}

/// The things that must stay as they are.
fn picture(house: &House) -> Vec<(String, Option<String>)> {
    let names = [
        "outside/secret",
        "outside/new",
        "ws/.git/config",
        "ws/.git/hooks/pre-commit",
        "ws/.github/workflows/ci.yml",
        "ws/.envrc",
        "ws/a/b/.npmrc",
        "ws/.overnight/runs/1/journal.jsonl",
    ];
    let text = |name: &str| std::fs::read_to_string(house.top.path().join(name)).ok();
    names.map(|name| (name.to_owned(), text(name))).to_vec()
}

/// Landlock only adds rights: what lies in a directory that it grants cannot be taken out again. So at that level a run directory
/// is out of reach when it lies outside the workspace, and only then; `doctor` and the run say so.
#[tokio::test]
async fn at_landlock_a_run_directory_is_safe_outside_the_workspace() {
    let mut house = house(SandboxLevel::Landlock);
    let runs = house.top.path().join("outside/runs");
    std::fs::create_dir(&runs).unwrap();
    std::fs::write(runs.join("journal.jsonl"), "old\n").unwrap();
    house.confinement.hidden.push(runs.clone());
    let at = runs.display();
    let got = house
        .run(&format!(
            "cat {at}/journal.jsonl; ls {at}; echo x >> {at}/journal.jsonl; rm -rf {at}; mv {at} src; true"
        ))
        .await;
    assert!(!got.stdout.text.contains("old"), "{}", got.stdout.text);
    assert_eq!(std::fs::read_to_string(runs.join("journal.jsonl")).unwrap(), "old\n");
    let inside = house.run("cat .overnight/runs/1/journal.jsonl").await;
    assert_eq!(
        inside.stdout.text, "old\n",
        "if this is held back now, say so in the documents"
    );
}

#[tokio::test]
async fn an_undone_change_is_named() {
    for level in CONFINED {
        let house = house(level);
        let got = house
            .run("echo x > .envrc; mkdir -p a; echo y > a/.npmrc; echo z > free")
            .await;
        let undone: Vec<&str> = got.undone.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(undone, [".envrc", "a/.npmrc"], "{level:?}");
        assert!(house.confinement.workspace.join("free").exists());
    }
}

#[tokio::test]
async fn no_network_but_ones_own() {
    for level in CONFINED {
        let house = house(level);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        let path = house.top.path().join("outside/socket");
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        unix.set_nonblocking(true).unwrap();
        let python = "import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect('PATH')\n"
            .replace("PATH", &path.display().to_string());
        house
            .run(&format!(
                "(echo x > /dev/tcp/127.0.0.1/{tcp_port}); (echo x > /dev/udp/127.0.0.1/{udp_port}); /usr/bin/python3 -c \"{python}\""
            ))
            .await;
        assert!(tcp.accept().is_err(), "{level:?}");
        assert!(udp.recv(&mut [0; 8]).is_err(), "{level:?}");
        assert!(unix.accept().is_err(), "{level:?}");
    }
}

#[tokio::test]
async fn the_tree_ends_with_its_command_at_every_level() {
    for (at, level) in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None]
        .into_iter()
        .enumerate()
    {
        let house = house(level);
        let mark = mark(41, at);
        let got = house
            .run(&format!(
                "setsid sh -c 'setsid sleep {mark} >/dev/null 2>&1 &'; sleep {mark} & sleep 0.1; echo done"
            ))
            .await;
        assert_eq!(
            (got.stdout.text.as_str(), got.exit.leftovers),
            ("done\n", 2),
            "{level:?}"
        );
        assert!(!lives(&mark), "{level:?}");
        let mut spawn = house.spawn(&format!("trap '' TERM; sleep {mark} & sleep {mark}; sleep {mark}"));
        spawn.timeout = Duration::from_millis(300);
        let got = process::run(spawn, &house.confinement).await.unwrap();
        assert!(
            got.exit.timed_out && got.took < Duration::from_secs(3),
            "{level:?} {got:?}"
        );
        assert!(!lives(&mark), "{level:?}");
    }
}

/// A Python program that ends its first thread, so that the kernel shows the process as a zombie, and continues in
/// another thread, which creates the file `begun` and then does `WORK`. Its last argument is a mark.
const FIRST_ENDS: &str = "import ctypes, os, threading, time
def state():
    return open(\"/proc/self/stat\").read().rsplit(\")\", 1)[1].split()[0]
def work():
    while state() != \"Z\": time.sleep(0.001)
    open(\"begun\", \"w\")
    WORK
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == \"x86_64\" else 93, 0)";

fn first_ends(work: &str, mark: &str) -> String {
    format!("/usr/bin/python3 -c '{}' {mark}", FIRST_ENDS.replace("WORK", work))
}

/// A process is alive as long as one of its threads is alive.
#[tokio::test]
async fn a_process_whose_first_thread_has_ended_is_killed_with_its_command() {
    for (at, level) in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None]
        .into_iter()
        .enumerate()
    {
        let house = house(level);
        let mark = mark(43, at);
        let program = first_ends("time.sleep(300)", &mark);
        let got = house
            .run(&format!(
                "setsid {program} >/dev/null 2>&1 & until [ -e begun ]; do sleep 0.01; done; echo done"
            ))
            .await;
        let ended = (got.stdout.text.as_str(), got.exit.code, got.exit.leftovers);
        assert_eq!(ended, ("done\n", Some(0), 1), "{level:?}");
        assert!(!lives(&mark), "{level:?}");
        let mut spawn = house.spawn(&format!("exec {program}"));
        spawn.timeout = Duration::from_millis(700);
        let got = process::run(spawn, &house.confinement).await.unwrap();
        assert!(got.exit.timed_out, "{level:?}: {:?}", got.exit);
        assert!(!lives(&mark), "{level:?}");
        // The control: if such a program finishes its work within the command, the command waits for it.
        let program = first_ends("time.sleep(0.1); open(\"made\", \"w\").write(\"work\")", &mark);
        let got = house.run(&format!("{program}; cat made")).await;
        let ended = (got.stdout.text.as_str(), got.exit.code, got.exit.leftovers);
        assert_eq!(ended, ("work", Some(0), 0), "{level:?}");
    }
}

/// A process that `init` cannot kill in time is killed by this program: here one that a tracer stops while it exits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_late_is_waited_for() {
    let house = house(SandboxLevel::Landlock);
    let mark = mark(44, 0);
    let (ws, word) = (house.confinement.workspace.clone(), mark.clone());
    let tracer = std::thread::spawn(move || {
        super::harness::until("the process to trace", || process_of(&word).is_some());
        let pid = process_of(&word).unwrap();
        if !traced_to_its_end(pid) {
            std::fs::write(ws.join("traced"), "").unwrap();
            return false;
        }
        let first = parent_of(pid);
        std::fs::write(ws.join("traced"), "").unwrap();
        super::harness::until("the end of the first process of the tree", || parent_of(pid) != first);
        // When this thread ends, the traced process continues.
        true
    });
    let got = house
        .run(&format!(
            "sleep {mark} >/dev/null 2>&1 & until [ -e traced ]; do sleep 0.01; done; echo done"
        ))
        .await;
    if !have_optional("a process that may be traced", tracer.join().unwrap()) {
        return;
    }
    let ended = (got.stdout.text.as_str(), got.exit.code, got.exit.leftovers);
    assert_eq!(ended, ("done\n", Some(0), 1));
    assert!(!lives(&mark));
    assert_eq!(process::survivors::message(&house.confinement.workspace), None);
}

/// The processes of a killed run still write until they are killed, too. A run that begins before would take what they
/// write for changes of its own.
#[test]
fn a_run_begins_when_no_process_of_a_killed_one_is_left() {
    use super::harness::{says, script, shell, until};
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [sleep] , args: any, \
                  writes: tree }\nsandbox: { level: landlock }\n";
    let policy = world.beside("policy.yaml", policy);
    let mark = mark(45, 0);
    let run = |name: &str, replies: &[serde_json::Value]| {
        let model = format!("script:{}", world.beside(name, script(replies)));
        let mut run = world.command(&["run", "-p", "x", "--model", &model, "--policy", &policy]);
        let quiet = std::process::Stdio::null;
        run.stdout(quiet()).stderr(quiet()).spawn().unwrap()
    };
    let mut first = run("first.yaml", &[shell(&format!("sleep {mark}")), says("done")]);
    until("the command", || process_of(&mark).is_some());
    let pid = process_of(&mark).unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (traced, is_traced) = std::sync::mpsc::channel();
    let tracer = std::thread::spawn(move || {
        traced.send(traced_to_its_end(pid)).unwrap();
        // When this thread ends, the traced process continues.
        let _ = released.recv();
    });
    if !have_optional("a process that may be traced", is_traced.recv().unwrap()) {
        first.kill().unwrap();
        first.wait().unwrap();
        return;
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = run("second.yaml", &[says("done")]);
    // Without waiting, this run would have ended by then.
    let begun = std::time::Instant::now();
    until("some time", || {
        second.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(2)
    });
    assert!(second.try_wait().unwrap().is_none());
    drop(release);
    tracer.join().unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert_eq!(process_of(&mark), None);
}

/// Traces a process so that it stops when it exits, even by SIGKILL, until the calling thread ends. `false` if tracing
/// is not permitted.
#[expect(unsafe_code, reason = "processes are traced by system calls")]
fn traced_to_its_end(pid: i32) -> bool {
    // SAFETY: changes only the other process.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACEEXIT) == 0 }
}

fn process_of(word: &str) -> Option<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sleep") && line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    })
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A time to sleep that no other process sleeps: the same tests run side by side as another user.
fn mark(test: u32, at: usize) -> String {
    format!("{}.{test}{at}", 100_000 + std::process::id())
}

fn lives(word: &str) -> bool {
    // Reads the command line of every thread: if the first thread has ended, the process has none.
    let threads = std::fs::read_dir("/proc").unwrap().flatten();
    let threads = threads.flat_map(|entry| std::fs::read_dir(entry.path().join("task")).into_iter().flatten());
    threads
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
}

#[tokio::test]
async fn a_storm_of_forks_is_held_down() {
    for level in CONFINED {
        let house = house(level);
        let mut spawn = house.spawn("bomb() { bomb | bomb & }; bomb; sleep 5");
        spawn.timeout = Duration::from_secs(2);
        let got = process::run(spawn, &house.confinement).await.unwrap();
        assert!(got.took < Duration::from_secs(8), "{level:?}: {:?}", got.took);
        let ours = house.confinement.workspace.display().to_string();
        let left = std::fs::read_dir("/proc").unwrap().flatten();
        let left =
            left.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&ours)));
        assert_eq!(left.count(), 0, "{level:?}");
    }
}

#[tokio::test]
async fn programs_that_are_missing_are_told_and_sizes_are_bounded() {
    for level in CONFINED {
        let house = house(level);
        let mut spawn = house.spawn("");
        spawn.program = Invocation::Argv(vec!["no-such-program-here".to_owned()]);
        let missing = process::run(spawn, &house.confinement).await;
        assert!(
            matches!(missing, Err(process::SpawnError::NotFound { .. })),
            "{level:?}"
        );
        let got = house
            .run("ulimit -c; ulimit -f; grep NoNewPrivs /proc/self/status; truncate -s 3G big; stat -c %s big")
            .await;
        let lines: Vec<&str> = got.stdout.text.lines().collect();
        assert_eq!(lines[..3], ["0", "2097152", "NoNewPrivs:\t1"], "{level:?}");
        assert!(!got.stdout.text.contains("3221225472"), "{level:?}");
    }
}

#[tokio::test]
async fn files_belong_to_us_and_take_no_rights() {
    use std::os::unix::fs::MetadataExt;
    for level in CONFINED {
        let house = house(level);
        let got = house
            .run("umask 022; echo x > f; chmod 755 f; chmod u+s f && echo set")
            .await;
        assert!(!got.stdout.text.contains("set\n"), "{level:?}");
        let data = std::fs::metadata(house.confinement.workspace.join("f")).unwrap();
        assert_eq!(
            (data.uid(), data.mode() & 0o7777),
            (rustix::process::geteuid().as_raw(), 0o755),
            "{level:?}"
        );
    }
}

/// Four processes that together use more than the tree may: each alone uses less.
#[tokio::test]
async fn the_memory_of_a_tree_is_bounded() {
    const LIMIT: u64 = 160 << 20;
    let script = "for i in 1 2 3 4; do (x=$(head -c 60000000 /dev/zero | tr '\\0' a); sleep 60; echo ${#x} >> survived) & done; wait";
    for level in CONFINED {
        let mut house = house(level);
        house.confinement.memory = Some(LIMIT);
        let begun = std::time::Instant::now();
        let got = house.run(script).await;
        assert_eq!(got.exit.memory_limit, Some(LIMIT), "{level:?}: {:?}", got.exit);
        assert!(!house.confinement.workspace.join("survived").exists(), "{level:?}");
        assert!(begun.elapsed() < Duration::from_secs(50), "{level:?}: not at once");
        // What needs less is left alone.
        let got = house
            .run("x=$(head -c 20000000 /dev/zero | tr '\\0' a); echo ${#x}")
            .await;
        assert_eq!(
            (got.exit.memory_limit, got.stdout.text.as_str()),
            (None, "20000000\n"),
            "{level:?}"
        );
    }
}

/// Where the kernel counts, a tree that is over its limit for a moment is ended too: nobody needs to be looking.
#[tokio::test]
async fn a_control_group_sees_a_moment_of_too_much_memory() {
    process::use_helper(env!("CARGO_BIN_EXE_overnight"));
    if !have_optional("a control group for memory", process::memory_is_bounded_by_kernel()) {
        return;
    }
    for level in CONFINED {
        let mut house = house(level);
        house.confinement.memory = Some(32 << 20);
        for _ in 0..3 {
            let got = house
                .run("head -c 48M /dev/zero | tail -c 48M | head -c 1 > /dev/null")
                .await;
            assert_eq!(got.exit.memory_limit, Some(32 << 20), "{level:?}: {:?}", got.exit);
        }
    }
}

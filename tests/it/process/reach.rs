//! What confined commands can reach: toolchains, granted hosts; and what is left when this program is killed.

use super::super::harness::{closed_paths, have, have_optional};
use super::{House, house, lives, mark};
use overnight::process::{self, Network, SandboxLevel};
use std::time::Duration;

#[tokio::test]
async fn a_rust_project_builds_and_tests_in_every_level() {
    process::use_helper(super::super::harness::helper());
    let parent: Vec<(String, String)> = std::env::vars().collect();
    for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("src")).unwrap();
        let manifest =
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nlibc = \"0.2\"\n";
        std::fs::write(top.path().join("Cargo.toml"), manifest).unwrap();
        let code =
            "#[test]\nfn two() { assert_eq!(1 + 1, 2); let _ = std::net::TcpListener::bind(\"127.0.0.1:0\"); }\n";
        std::fs::write(top.path().join("src/lib.rs"), code).unwrap();
        let private = process::private::Private::create(None).unwrap();
        let closed = closed_paths();
        let wishes = process::private::SandboxRequest {
            level,
            workspace: top.path(),
            hidden: &[],
            closed: &closed,
            network: &Network::None,
            witness: true,
            toolchains: &["rust".to_owned()],
            credentials: |_| false,
            keep_caches: false,
            pass: &[],
            parent: &parent,
        };
        let confinement = process::private::confinement(&wishes, &private).unwrap();
        let house = House { top, confinement };
        let got = house.run("cargo test 2>&1 && ls").await;
        assert!(got.stdout.text.contains("1 passed"), "{level:?}: {}", got.stdout.text);
        assert!(
            got.stdout.text.ends_with("Cargo.lock\nCargo.toml\nsrc\ntarget\n"),
            "{level:?}: {}",
            got.stdout.text
        );
        assert!(got.undone.is_empty());
    }
}

/// A toolchain, the program that must be there, the files of a small project, what builds it, and what that prints.
type Built = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const BUILT: [Built; 4] = [
    (
        "node",
        "node",
        &[
            (
                "package.json",
                "{\"name\":\"small\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node t.js\"}}",
            ),
            (
                "t.js",
                "require('fs').writeFileSync('made.txt', 'x'); console.log('built', 1 + 1)",
            ),
        ],
        "npm test --silent",
        "built 2",
    ),
    (
        "python",
        "python3",
        &[(
            "test_a.py",
            "import unittest, tempfile\nclass A(unittest.TestCase):\n    def test_b(self):\n        tempfile.TemporaryFile().close()\n        self.assertEqual(1 + 1, 2)\n",
        )],
        "python3 -m unittest -v",
        "Ran 1 test",
    ),
    (
        "go",
        "go",
        &[
            ("go.mod", "module small\n\ngo 1.20\n"),
            (
                "a_test.go",
                "package small\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n",
            ),
        ],
        "go test ./...",
        "ok",
    ),
    (
        "java",
        "java",
        &[(
            "Main.java",
            "public class Main { public static void main(String[] a) { System.out.println(\"built \" + (1 + 1)); } }\n",
        )],
        "java Main.java",
        "built 2",
    ),
];

#[tokio::test]
async fn small_projects_build_with_their_toolchain_where_the_machine_has_it() {
    process::use_helper(super::super::harness::helper());
    let parent: Vec<(String, String)> = std::env::vars().collect();
    for (name, program, files, build, wanted) in BUILT {
        // What a machine has of these is its own affair; CI has all but Go and Java.
        let there = std::process::Command::new(program).arg("-version").output().is_ok();
        let have = match name {
            "go" | "java" => have_optional,
            _ => have,
        };
        if !have(program, there) {
            continue;
        }
        for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
            let top = tempfile::tempdir().unwrap();
            for (file, text) in files {
                std::fs::write(top.path().join(file), text).unwrap();
            }
            let private = process::private::Private::create(None).unwrap();
            let toolchains = [name.to_owned()];
            let closed = closed_paths();
            let wishes = process::private::SandboxRequest {
                level,
                workspace: top.path(),
                hidden: &[],
                closed: &closed,
                network: &Network::None,
                witness: true,
                toolchains: &toolchains,
                credentials: |_| false,
                keep_caches: false,
                pass: &[],
                parent: &parent,
            };
            let confinement = process::private::confinement(&wishes, &private).unwrap();
            let house = House { top, confinement };
            let got = house.run(&format!("{build} 2>&1")).await;
            assert!(
                got.stdout.text.contains(wanted),
                "{level:?} {name}: {}",
                got.stdout.text
            );
            assert_eq!(got.exit.code, Some(0), "{level:?} {name}: {}", got.stdout.text);
            assert!(got.undone.is_empty());
        }
    }
}

#[tokio::test]
async fn granted_hosts_are_reached_through_the_proxy_and_others_are_not() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    process::proxy::use_rules(process::proxy::ProxyRules {
        host_fits: |host, _, patterns| patterns.iter().any(|pattern| pattern == host),
        address_is_public: |_| true,
    });
    tokio::spawn(async move {
        loop {
            let (mut peer, _) = server.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut peer, b"hello from there\n").await;
        }
    });
    let mut house = house(SandboxLevel::Full);
    house.confinement.network = Network::Hosts(vec!["localhost".to_owned()]);
    let ask = |host: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n' >&3; timeout 2 cat <&3"
        )
    };
    let good = house.run(&ask("localhost")).await.stdout.text;
    assert!(
        good.contains("200 Connection") && good.contains("hello from there"),
        "{good}"
    );
    let bad = house.run(&ask("example.org")).await.stdout.text;
    assert!(bad.contains("403 Forbidden") && !bad.contains("hello"), "{bad}");
    let direct = house
        .run(&format!(
            "(echo x > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached"
        ))
        .await;
    assert_eq!(direct.stdout.text, "");
    assert!(
        house
            .run("echo $https_proxy")
            .await
            .stdout
            .text
            .starts_with("http://127.0.0.1:3128")
    );
    house.confinement.level = SandboxLevel::Landlock;
    let refused = process::run(house.spawn("true"), &house.confinement).await;
    assert!(matches!(refused, Err(process::SpawnError::Sandbox(_))));
}

/// Run by the next test in a process of its own: starts a command and waits to be killed. Alone it does nothing.
#[tokio::test]
async fn a_process_that_will_be_killed() {
    let Ok(level) = std::env::var("IT_LEVEL") else { return };
    let level = [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None]
        .into_iter()
        .find(|have| have.as_str() == level);
    let house = house(level.unwrap());
    let mark = std::env::var("IT_MARK").unwrap();
    house
        .run(&format!(
            "setsid sleep {mark} & trap '' TERM; sleep {mark}; sleep {mark}"
        ))
        .await;
}

#[test]
fn nothing_lives_on_when_this_program_is_killed() {
    for (at, level) in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None]
        .into_iter()
        .enumerate()
    {
        let mark = mark(43, at);
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::reach::a_process_that_will_be_killed"])
            .env("IT_LEVEL", level.as_str())
            .env("IT_MARK", &mark)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        wait_until(|| lives(&mark), level);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(|| !lives(&mark), level);
    }
}

fn wait_until(done: impl Fn() -> bool, level: SandboxLevel) {
    for _ in 0..500 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(done(), "{level:?}");
}

#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    super::super::harness::as_ordinary_user(65532, "process::", &["rust_project", "storm"]);
}

/// The processes that sleep for these seconds, and the parent of each.
fn sleepers(mark: &str) -> Vec<(i32, i32)> {
    let of = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let sleeps = words
            .split(|byte| *byte == 0)
            .eq([b"sleep".as_slice(), mark.as_bytes(), b""]);
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        sleeps.then_some((pid, parent.trim().parse().ok()?))
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

/// `init` is killed for want of memory, say: the process that started it ends what is left, and the command is an error.
#[tokio::test]
async fn a_tree_does_not_outlive_its_init() {
    process::use_helper(super::super::harness::helper());
    for (at, level) in [SandboxLevel::Full, SandboxLevel::Landlock].into_iter().enumerate() {
        let house = house(level);
        let mark = mark(47, at);
        let watched = mark.clone();
        let killed = std::thread::spawn(move || {
            wait_until(|| sleepers(&watched).len() == 2, level);
            let (_, command) = sleepers(&watched)[0];
            let status = std::fs::read_to_string(format!("/proc/{command}/status")).unwrap();
            let init = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
            let init = rustix::process::Pid::from_raw(init.trim().parse().unwrap()).unwrap();
            rustix::process::kill_process(init, rustix::process::Signal::KILL).unwrap();
            wait_until(|| sleepers(&watched).is_empty(), level);
        });
        let text = format!("sleep {mark} & sleep {mark}; true");
        let began = std::time::Instant::now();
        let ended = process::run(house.spawn(&text), &house.confinement).await;
        assert!(began.elapsed() < Duration::from_secs(40), "{level:?}: {ended:?}");
        let clean = ended.is_ok_and(|finished| finished.exit.code == Some(0));
        assert!(!clean, "{level:?}: it was not passed off as a success");
        killed.join().unwrap();
    }
}

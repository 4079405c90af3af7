//! Confined commands: what works in them, what must not, at each level.

use overnight::base::secret::Redactor;
use overnight::process::{self, Confinement, Finished, Level, Network, Program, Spawn};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A workspace with protected and hidden things in it, a private home, and things outside.
struct House {
    top: TempDir,
    confinement: Confinement,
}

fn house(level: Level) -> House {
    process::use_helper(env!("CARGO_BIN_EXE_overnight"));
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
        workspace: at("ws"),
        readable: Vec::new(),
        writable: vec![at("home"), at("tmp")],
        hidden: vec![at("ws/.overnight")],
        protected: vec![
            ".git".to_owned(),
            ".github".to_owned(),
            ".envrc".to_owned(),
            "**/.npmrc".to_owned(),
        ],
        network: Network::None,
        env: vec![
            env("PATH", Path::new("/usr/local/bin:/usr/bin:/bin")),
            env("HOME", &at("home")),
            env("TMPDIR", &at("tmp")),
        ],
    };
    House { top, confinement }
}

impl House {
    fn spawn(&self, text: &str) -> Spawn {
        Spawn {
            program: Program::Shell(text.to_owned()),
            dir: self.confinement.workspace.clone(),
            env: Vec::new(),
            stdin: None,
            timeout: Duration::from_secs(30),
            cancel: CancellationToken::new(),
            on_output: None,
            keep: None,
            shown: 1 << 20,
            redactor: Arc::new(Redactor::default()),
        }
    }

    async fn run(&self, text: &str) -> Finished {
        process::run(self.spawn(text), &self.confinement).await.unwrap()
    }

    fn outside(&self, name: &str) -> String {
        self.top.path().join("outside").join(name).display().to_string()
    }
}

const CONFINED: [Level; 2] = [Level::Full, Level::Landlock];

#[tokio::test]
async fn a_probe_finds_what_there_is_and_the_self_test_holds() {
    for level in CONFINED {
        let house = house(level);
        let probe = process::probe().await;
        assert!(probe.full.is_ok() && probe.landlock.is_ok(), "{probe:?}");
        process::self_test(&house.confinement).await.unwrap();
    }
}

#[tokio::test]
async fn a_command_works_in_its_tree() {
    for level in [Level::Full, Level::Landlock, Level::None] {
        let house = house(level);
        let got = house.run("pwd; echo $HOME > home.txt; mkdir -p target/a && echo x > target/a/b && mv target/a target/c && cat target/c/b; touch $HOME/x $TMPDIR/y; exit 5").await;
        let pwd = house.confinement.workspace.display();
        assert_eq!(got.stdout.text, format!("{pwd}\nx\n"), "{level:?}");
        assert_eq!((got.exit.code, got.exit.leftovers), (Some(5), 0), "{level:?}");
        assert!(got.undone.is_empty());
    }
}

#[tokio::test]
async fn how_long_a_sandbox_takes() {
    for level in CONFINED {
        let house = house(level);
        house.run("true").await;
        let begun = Instant::now();
        for _ in 0..20 {
            house.run("true").await;
        }
        eprintln!("{level:?}: {:?} a command", begun.elapsed() / 20);
    }
}

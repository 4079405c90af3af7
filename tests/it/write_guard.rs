//! What a command can change, by its effect: each write grant at each level, with the honest use beside each attack.

mod background;
mod linked;
mod moved;
mod own_errors;
mod reach;
mod registered;

use overnight::base::grant::{Undone, WriteKind, WritePath, Writes};
use overnight::base::secret::Redactor;
use overnight::process::{self, Confinement, Finished, Invocation, Network, SandboxLevel, Spawn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A workspace with closed paths, a private home, a toolchain that may be read, and a directory that may not.
struct Ground {
    top: TempDir,
    confinement: Confinement,
}

const CONFINED: [SandboxLevel; 2] = [SandboxLevel::Full, SandboxLevel::Landlock];

fn ground(level: SandboxLevel) -> Ground {
    process::use_helper(super::harness::helper());
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for dir in ["ws/.git/hooks", "ws/src/deep", "home", "tmp", "outside", "toolchain"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    for file in [
        "ws/.git/config",
        "ws/.npmrc",
        "ws/Makefile",
        "ws/src/a.txt",
        "ws/src/b.txt",
        "ws/src/deep/c.txt",
        "outside/secret",
        "toolchain/tool",
    ] {
        std::fs::write(at(file), "old\n").unwrap();
    }
    let env = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
    let confinement = Confinement {
        level,
        readable: vec![at("toolchain")],
        writable: vec![at("home"), at("tmp")],
        closed: super::harness::closed_paths(),
        network: Network::None,
        env: vec![
            env("PATH", Path::new("/usr/local/bin:/usr/bin:/bin")),
            env("HOME", &at("home")),
            env("TMPDIR", &at("tmp")),
        ],
        ..Confinement::unconfined(&at("ws"))
    };
    Ground { top, confinement }
}

impl Ground {
    fn spawn(&self, text: &str, writes: &Writes) -> Spawn {
        Spawn {
            program: Invocation::Shell(text.to_owned()),
            dir: self.confinement.workspace.clone(),
            env: Vec::new(),
            stdin: None,
            timeout: Duration::from_secs(600),
            cancel: CancellationToken::new(),
            on_output: None,
            keep: None,
            shown: 1 << 20,
            redactor: Arc::new(Redactor::default()),
            writes: writes.clone(),
            judge: None,
        }
    }

    async fn run(&self, text: &str, writes: &Writes) -> Finished {
        process::run(self.spawn(text, writes), &self.confinement).await.unwrap()
    }

    /// Runs a Python program, whose text must hold no single quote.
    async fn python(&self, text: &str, writes: &Writes) -> Finished {
        let text = text.replace("TOP", &self.top.path().display().to_string());
        self.run(&format!("/usr/bin/python3 -c '{text}' 2>&1"), writes).await
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.top.path().join(name)).ok()
    }

    /// All names of the workspace with their content, mode and owner.
    fn picture(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut dirs = vec![self.confinement.workspace.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                lines.push(one(&entry.path()));
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
        lines.sort();
        lines
    }
}

/// One entry as text; times count for files only.
fn one(path: &PathBuf) -> String {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::symlink_metadata(path).unwrap();
    let what = match (data.is_file(), data.is_symlink()) {
        (true, _) => format!("{:?} {}", std::fs::read_to_string(path).unwrap(), data.mtime()),
        (_, true) => format!("-> {:?}", std::fs::read_link(path).unwrap()),
        _ => String::new(),
    };
    format!(
        "{} {:o} {}:{} {what}",
        path.display(),
        data.mode(),
        data.uid(),
        data.gid()
    )
}

fn place(path: &str, kind: WriteKind) -> WritePath {
    WritePath {
        path: path.to_owned(),
        kind,
    }
}

fn entries(paths: &[&str]) -> Writes {
    Writes::Paths {
        paths: paths.iter().map(|path| place(path, WriteKind::Entry)).collect(),
        maybe: Vec::new(),
    }
}

fn named(undone: &[Undone]) -> Vec<&str> {
    assert!(undone.iter().all(|one| one.restored), "{undone:?}");
    undone.iter().map(|one| one.path.as_str()).collect()
}

/// Ways to change the workspace without being allowed to.
const CHANGES: [&str; 14] = [
    "echo evil > src/b.txt",
    "echo evil >> src/b.txt",
    "truncate -s 0 src/b.txt",
    "rm -rf src/deep",
    "mv src/b.txt src/z.txt",
    "echo evil > src/new.txt; mkdir -p x/y",
    "ln -s /etc/passwd src/link; ln src/b.txt src/hard",
    "chmod 777 src/b.txt; chmod 700 src",
    "touch -d 2001-01-01 src/b.txt",
    "echo evil > .git/config; mv .git g",
    "mkfifo pipe",
    "cp /etc/hostname .npmrc; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
    "setsid sh -c \"sleep 0.02; echo evil > src/b.txt\" & sleep 0.1",
    "exec 3<src/b.txt; chmod 777 /proc/self/fd/3; echo evil > /proc/self/fd/3; dd if=/dev/zero of=src/b.txt bs=1 count=1",
];

#[tokio::test]
async fn granted_nothing_a_command_changes_nothing_and_works() {
    for level in CONFINED {
        let ground = ground(level);
        let before = ground.picture();
        for change in CHANGES {
            let got = ground.run(&format!("({change}) 2>&1; true"), &Writes::Nothing).await;
            assert_eq!(ground.picture(), before, "{level:?}: {change}: {}", got.stdout.text);
            assert!(got.undone.is_empty(), "nothing is compared");
        }
        let honest = "cat src/*.txt && ls -R . >/dev/null && cd \"$TMPDIR\" && echo x > f && mv f g && chmod 600 g \
            && touch -d 2001-01-01 g && stat -c '%a %Y' g && mkdir -p \"$HOME/.cache/x\" && echo done";
        let got = ground.run(honest, &Writes::Nothing).await;
        assert_eq!(got.stdout.text, "old\nold\n600 978307200\ndone\n", "{level:?}");
    }
}

#[tokio::test]
async fn granted_places_are_written_and_no_others() {
    for level in CONFINED {
        let ground = ground(level);
        let before = ground.picture();
        for change in CHANGES {
            let got = ground
                .run(
                    &format!("({change}) 2>&1; true"),
                    &entries(&["src/a.txt", "src/deep/new.txt"]),
                )
                .await;
            assert_eq!(ground.picture(), before, "{level:?}: {change}: {}", got.stdout.text);
        }
    }
}

#[tokio::test]
async fn honest_writes_of_granted_places_work() {
    let replace =
        "/usr/bin/python3 -c \"import os; open('src/.a.swp','w').write('new'); os.replace('src/.a.swp','src/a.txt')\"";
    let cases: [(&str, Writes, &str, Option<&str>); 9] = [
        (
            "sed -i s/old/new/ src/a.txt",
            entries(&["src/a.txt"]),
            "ws/src/a.txt",
            Some("new\n"),
        ),
        (
            "echo more >> src/a.txt",
            entries(&["src/a.txt"]),
            "ws/src/a.txt",
            Some("old\nmore\n"),
        ),
        (
            "mkdir -p a/b && cp src/a.txt a/b/",
            entries(&["a/b/a.txt"]),
            "ws/a/b/a.txt",
            Some("old\n"),
        ),
        (
            "mv src/b.txt moved.txt",
            entries(&["src/b.txt", "moved.txt"]),
            "ws/moved.txt",
            Some("old\n"),
        ),
        ("rm -r src/deep", entries(&["src/deep"]), "ws/src/deep/c.txt", None),
        (
            "cp -a src copy && touch copy/x",
            entries(&["copy"]),
            "ws/copy/deep/c.txt",
            Some("old\n"),
        ),
        (
            replace,
            entries(&["src/a.txt", "src/.a.swp"]),
            "ws/src/a.txt",
            Some("new"),
        ),
        (
            "echo old | tee out.txt >/dev/null; chmod 755 out.txt",
            entries(&["out.txt"]),
            "ws/out.txt",
            Some("old\n"),
        ),
        (
            "echo new > src/b.txt",
            Writes::Paths {
                paths: vec![place("src/b.txt", WriteKind::InPlace)],
                maybe: Vec::new(),
            },
            "ws/src/b.txt",
            Some("new\n"),
        ),
    ];
    for level in CONFINED {
        for (command, writes, file, wanted) in &cases {
            let ground = ground(level);
            let got = ground.run(&format!("({command}) 2>&1"), writes).await;
            assert_eq!(
                (got.exit.code, ground.read(file).as_deref(), got.undone.len()),
                (Some(0), *wanted, 0),
                "{level:?}: {command}: {} {:?}",
                got.stdout.text,
                got.undone
            );
        }
    }
}

/// What is granted only when it runs: everything in the directory can be written, and what was not granted is put back.
#[tokio::test]
async fn a_directory_that_may_be_granted_is_compared() {
    for level in CONFINED {
        let ground = ground(level);
        let writes = Writes::Paths {
            paths: Vec::new(),
            maybe: vec!["src".to_owned()],
        };
        let before = ground.picture();
        let got = ground
            .run(
                "echo new > src/a.txt; rm -r src/deep; echo x > src/new; echo y > Makefile; true",
                &writes,
            )
            .await;
        assert_eq!(
            named(&got.undone),
            ["src/a.txt", "src/deep", "src/deep/c.txt", "src/new"],
            "{level:?}"
        );
        assert_eq!(ground.picture(), before, "{level:?}");
    }
}

#[tokio::test]
async fn more_children_than_mounts_are_compared() {
    let ground = ground(SandboxLevel::Full);
    for number in 0..1_100 {
        std::fs::write(ground.confinement.workspace.join(format!("src/f{number}")), "old\n").unwrap();
    }
    let before = ground.picture();
    let got = ground
        .run("rm src/f7; echo x > src/f8; echo x > src/other", &entries(&["src/new"]))
        .await;
    assert_eq!(named(&got.undone), ["src/f7", "src/f8", "src/other"]);
    assert_eq!(ground.picture(), before);
    let got = ground.run("echo x > src/new", &entries(&["src/new"])).await;
    assert!(got.undone.is_empty() && ground.read("ws/src/new").is_some());
}

#[tokio::test]
async fn a_build_writes_the_tree_but_no_closed_path() {
    for level in CONFINED {
        let ground = ground(level);
        let got = ground
            .run(
                "mkdir -p target/debug/deps && cp -a src target/debug && ln src/a.txt target/hard && mv target/debug target/d \
                 && touch -d 2001-01-01 target/d/src/a.txt && chmod 755 target/hard && rm src/b.txt && echo built",
                &Writes::Tree,
            )
            .await;
        assert_eq!(
            (got.stdout.text.as_str(), got.undone.len()),
            ("built\n", 0),
            "{level:?}"
        );
        assert!(ground.read("ws/src/b.txt").is_none());
        let attack = "ln .npmrc x && echo evil > x; mv src s2; mkdir -p target/n .github/workflows s2/deep; echo x > target/n/.npmrc; \
            echo x > s2/deep/.npmrc; echo x > .github/workflows/ci.yml; echo evil > .git/config; rm -f .npmrc; true";
        let got = ground.run(attack, &Writes::Tree).await;
        for (file, wanted) in [
            ("ws/.npmrc", Some("old\n")),
            ("ws/.git/config", Some("old\n")),
            ("ws/target/n/.npmrc", None),
            ("ws/s2/deep/.npmrc", None),
            ("ws/.github/workflows/ci.yml", None),
        ] {
            assert_eq!(
                ground.read(file).as_deref(),
                wanted,
                "{level:?}: {file}: {}",
                got.stdout.text
            );
        }
        let undone = named(&got.undone);
        assert!(
            undone.contains(&"target/n/.npmrc") && undone.contains(&"s2/deep/.npmrc"),
            "{undone:?}"
        );
        assert!(ground.read("ws/s2/a.txt").is_some(), "what may be moved was moved");
    }
}

/// 60,010 names no longer hide a closed one, wherever it lies.
#[tokio::test]
async fn a_flood_of_names_hides_nothing() {
    for level in CONFINED {
        let ground = ground(level);
        let got = ground
            .python(
                "import os\nfor n in range(60010): open(\"f%d\" % n, \"w\")\nfor d in (\".github/workflows\", \"target/a\", \"node_modules/b/c\"):\n  os.makedirs(d)\n  for f in (\"ci.yml\", \".npmrc\"): open(d + \"/\" + f, \"w\")\n",
                &Writes::Tree,
            )
            .await;
        assert_eq!(got.exit.code, Some(0), "{}", got.stdout.text);
        assert_eq!(
            named(&got.undone),
            [".github/workflows", "node_modules/b/c/.npmrc", "target/a/.npmrc"],
            "{level:?}"
        );
        assert!(ground.read("ws/f60009").is_some() && ground.read("ws/target/a/ci.yml").is_some());
    }
}

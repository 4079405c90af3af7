//! What every case begins with: runs of a scripted model, their repository, and a copy of it on a forge.

use super::server::{Forge, TOKEN, Wire, tip};
use crate::harness::{Done, World, calls, git_in, open_policy, says, script};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The recipe of all runs.
pub const RECIPE: &str = "version: 1
name: fix-it
description: Fix the fifth line.
deliver:
  labels: [bot]
steps:
  - { id: fix, prompt: Fix it. }
";

/// The branch of all deliveries.
pub const BRANCH: &str = "overnight/fix-it";

/// Runs that are made once and copied for each case.
pub struct Template {
    pub world: World,
}

fn numbered() -> String {
    (1..=20).map(|n| format!("line {n}\n")).collect()
}

/// Run `a` and `b` change the same line in two ways, `c` another line, `d` nothing.
pub fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let world = World::repo(&[("src/a.txt", &numbered()), ("docs/b.txt", "b\n")]);
        for (name, line, new) in [
            ("a", "line 5\n", "fixed by a\n"),
            ("b", "line 5\n", "fixed by b\n"),
            ("c", "line 15\n", "fixed by c\n"),
        ] {
            let edit = json!({"file_path": "src/a.txt", "old_string": line, "new_string": new});
            run(
                &world,
                name,
                RECIPE,
                &[
                    calls("replace", edit),
                    says("Fixed. Thanks @octocat, closes #1\n/close\n[skip ci]"),
                ],
            );
        }
        run(&world, "d", RECIPE, &[says("nothing to do")]);
        Template { world }
    })
}

/// Makes a run and leaves its directory in `runs/NAME`.
pub fn run(world: &World, name: &str, recipe: &str, replies: &[Value]) -> Done {
    let done = world.recipe(recipe, &script(replies), &open_policy(&[]), &["--isolate"]);
    let to = world.path().join("runs").join(name);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::rename(world.out(), to).unwrap();
    done
}

/// A forge with a copy of the template's repository, and copies of its runs.
pub struct Scene {
    pub dir: TempDir,
    pub forge: Forge,
}

pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Makes a bare copy of a repository that may be pushed to over HTTP.
pub fn bare(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let (from, text) = (from.to_string_lossy(), to.to_string_lossy().into_owned());
    git_in(Path::new("/"), &["clone", "-q", "--bare", &from, &text]);
    git_in(to, &["config", "http.receivepack", "true"]);
    let hook = to.join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\n[ -z \"$FORGE_PROTECTED\" ] || { echo 'GitLab: You are not allowed to push code to protected branches on this project.' >&2; exit 1; }\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

impl Scene {
    pub fn new(wire: Wire) -> Self {
        let template = template();
        let dir = tempfile::Builder::new().prefix("overnight-deliver-").tempdir().unwrap();
        bare(&template.world.ws(), &dir.path().join("srv/o/n.git"));
        copy(&template.world.path().join("runs"), &dir.path().join("runs"));
        let forge = Forge::new(wire, dir.path().join("srv"));
        Self { dir, forge }
    }

    pub fn run_dir(&self, run: &str) -> PathBuf {
        self.dir.path().join("runs").join(run)
    }

    /// `overnight deliver` of a run, to this forge, unless `more` names another target.
    pub fn command(&self, run: &str, more: &[&str]) -> Command {
        let run = self.run_dir(run).to_string_lossy().into_owned();
        let mut args: Vec<String> = ["deliver", &run, "--format", "json"].map(str::to_owned).into();
        if !more.contains(&"--pace") {
            args.extend(["--pace", "0s"].map(str::to_owned));
        }
        if !more.contains(&"--to") {
            args.extend(["--to", self.forge.wire.target()].map(str::to_owned));
        }
        if !more.contains(&"--remote") && !more.contains(&"branch") && !more.contains(&"mbox") {
            let mut remote = self.forge.remote("o/n");
            if more.contains(&"push") {
                // Without a forge there is no token: the address has the password.
                remote = remote.replace("http://", &format!("http://me:{TOKEN}@"));
            }
            args.extend(["--remote".to_owned(), remote]);
        }
        if !more.contains(&"--to") {
            args.extend(["--api-url".to_owned(), self.forge.api()]);
        }
        args.extend(more.iter().map(|word| (*word).to_owned()));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = template().world.command(&args);
        command.env(self.forge.wire.variable(), TOKEN);
        named(&mut command);
        command
    }

    pub fn deliver(&self, run: &str, more: &[&str]) -> Delivery {
        Delivery::of(Done::of(self.command(run, more).output().unwrap()))
    }

    pub fn repo(&self) -> PathBuf {
        self.forge.repo("o/n")
    }

    /// A file on a branch of the forge.
    pub fn show(&self, branch: &str, path: &str) -> String {
        git_in(&self.repo(), &["show", &format!("{branch}:{path}")])
    }

    pub fn tip(&self) -> Option<String> {
        tip(&self.repo(), BRANCH)
    }

    /// What a person does in a clone of the forge's repository.
    pub fn person(&self, work: impl Fn(&Path)) {
        person(&self.repo(), work);
    }
}

pub fn person(repo: &Path, work: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let clone = dir.path().join("clone");
    git_in(
        Path::new("/"),
        &["clone", "-q", &repo.to_string_lossy(), &clone.to_string_lossy()],
    );
    work(&clone);
}

/// A person's name for git.
pub fn named(command: &mut Command) {
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "Night Bot")
            .env(format!("GIT_{who}_EMAIL"), "bot@example.org");
    }
}

/// How a delivery ended, and its line.
#[derive(Debug)]
pub struct Delivery {
    pub done: Done,
    pub line: Value,
}

impl Delivery {
    pub fn of(done: Done) -> Self {
        let line = done
            .stdout
            .lines()
            .last()
            .and_then(|line| serde_json::from_str(line).ok());
        Self {
            line: line.unwrap_or_default(),
            done,
        }
    }

    pub fn outcome(&self) -> &str {
        self.line["outcome"].as_str().unwrap_or_default()
    }

    pub fn reason(&self) -> &str {
        self.line["reason"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub fn ends(self, outcome: &str, code: i32) -> Self {
        assert_eq!(
            (self.outcome(), self.done.code),
            (outcome, code),
            "{}\n{}\n{}",
            self.reason(),
            self.done.stdout,
            self.done.stderr
        );
        self
    }
}

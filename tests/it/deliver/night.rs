//! The way of a night: real packages of three registries on a git server and a forge, a batch over all of them, its
//! delivery, the same again, and what people did in between.

use super::scenes::{bare, named, person};
use super::server::{Forge, TOKEN, Wire, tip};
use crate::harness::{Done, World, calls, git_in, have, project, says, script};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The recipe: one line of one file, and nothing else.
const RECIPE: &str = "version: 1
name: note
description: Says that the package was looked at.
expect: change
deliver:
  title: Note on the package
  labels: [night]
steps:
  - id: note
    prompt: Note it.
    checks:
      - { name: small, changed: { max_files: 1, max_lines: 2 } }
      - { name: noted, run: 'git grep -q looked-at || grep -rq looked-at .' }
";

const POLICY: &str = "version: 1\nextends: [builtin:edit]\nsandbox: { level: none }\n";

/// A package: its name, the directory with its published files, and the file of it that a run edits.
struct Package {
    name: &'static str,
    files: PathBuf,
    edited: PathBuf,
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let done = Command::new("cp")
        .args(["-rT", "--"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success());
}

/// Five packages, as npm, pip and cargo fetched them; `None` where one of them did not.
fn packages(place: &Path) -> Option<Vec<Package>> {
    let node = PathBuf::from(std::env::var_os("OVERNIGHT_NODE")?);
    let wheels = PathBuf::from(std::env::var_os("OVERNIGHT_DAILY")?).join("wheels");
    let mut found = Vec::new();
    for name in ["balanced-match", "asynckit"] {
        let files = node.join(name);
        files.join("package.json").is_file().then_some(())?;
        found.push(Package {
            name,
            files,
            edited: PathBuf::from("package.json"),
        });
    }
    for name in ["iniconfig", "pluggy"] {
        let mut all = std::fs::read_dir(&wheels)
            .ok()?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let wheel = all.find(|path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}-")))
        })?;
        let files = place.join("unpacked").join(name);
        let unpacked = Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(&files)
            .status();
        unpacked.is_ok_and(|status| status.success()).then_some(())?;
        found.push(Package {
            name,
            files,
            edited: PathBuf::from(name).join("__init__.py"),
        });
    }
    let httpdate = dependency("httpdate")?;
    found.push(Package {
        name: "httpdate",
        files: httpdate,
        edited: PathBuf::from("src/lib.rs"),
    });
    Some(found)
}

/// The source of a crate that this program is built with. Crates of other platforms need not be there.
fn dependency(name: &str) -> Option<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let told = Command::new("cargo")
        .args([
            "metadata",
            "--offline",
            "--format-version",
            "1",
            "--filter-platform",
            &target,
            "--manifest-path",
        ])
        .arg(project().join("Cargo.toml"))
        .output()
        .ok()?;
    let told: Value = serde_json::from_slice(&told.stdout).ok()?;
    let found = told["packages"].as_array()?.iter().find(|one| one["name"] == name)?;
    Some(PathBuf::from(found["manifest_path"].as_str()?).parent()?.to_owned())
}

/// The forge with a repository for each package, and the directory of the batch.
struct Night {
    world: World,
    forge: Forge,
    packages: Vec<Package>,
}

impl Night {
    fn begin(world: World, packages: Vec<Package>) -> Self {
        let forge = Forge::new(Wire::Github, world.path().join("srv"));
        // A machine of the night has its credentials where git looks for them.
        let address = forge.url.replace("http://", &format!("http://me:{TOKEN}@"));
        world.beside("home/.git-credentials", format!("{address}\n"));
        world.beside("home/.gitconfig", "[credential]\n\thelper = store\n");
        world.beside("note.yaml", RECIPE);
        world.beside("policy.yaml", POLICY);
        let mut manifest = "version: 1\nrecipe: note.yaml\npolicy: policy.yaml\ntargets:\n".to_owned();
        for package in &packages {
            let name = package.name;
            let own = world.path().join("published").join(name);
            copied(&package.files, &own);
            git_in(&own, &["init", "-q", "-b", "main"]);
            git_in(&own, &["add", "-A", "-f"]);
            git_in(&own, &["commit", "-q", "-m", "as published"]);
            bare(&own, &forge.repo(&format!("o/{name}")));
            let text = std::fs::read_to_string(own.join(&package.edited)).unwrap();
            let line = text
                .lines()
                .filter(|line| line.len() > 8 && text.matches(*line).count() == 1)
                .nth(2)
                .unwrap();
            let noted = match name {
                "httpdate" => format!("{line}\n// looked-at"),
                "iniconfig" | "pluggy" => format!("# looked-at\n{line}"),
                _ => format!("  \"_note\": \"looked-at\",\n{line}"),
            };
            let edit = json!({"file_path": package.edited, "old_string": line, "new_string": noted});
            world.beside(
                &format!("{name}.script.yaml"),
                script(&[calls("replace", edit), says("Noted.")]),
            );
            manifest.push_str(&format!(
                "  - {{ repo: \"{}\", ref: main, id: {name}, model: \"script:{name}.script.yaml\" }}\n",
                forge.remote(&format!("o/{name}"))
            ));
        }
        world.beside("night.yaml", manifest);
        Self { world, forge, packages }
    }

    fn command(&self, args: &[&str]) -> Done {
        let mut command = self.world.command(args);
        command.current_dir(self.world.path()).env("GITHUB_TOKEN", TOKEN);
        named(&mut command);
        Done::of(command.output().unwrap())
    }

    /// Runs the batch; returns how many jobs ran and how many were up to date.
    fn batch(&self) -> (u64, u64) {
        let done = self.command(&[
            "batch",
            "night.yaml",
            "--out",
            "night",
            "--jobs",
            "2",
            "--format",
            "json",
        ]);
        let object = done.exits(0).json();
        let jobs = &object["jobs"];
        assert_eq!(jobs["total"], self.packages.len() as u64, "{object}");
        (
            jobs["run"].as_u64().unwrap(),
            jobs["up_to_date"].as_u64().unwrap_or_default(),
        )
    }

    /// Delivers the batch; returns the outcome of each job, and the exit code.
    fn deliver(&self) -> (BTreeMap<String, String>, i32) {
        let api = self.forge.api();
        let done = self.command(&[
            "deliver",
            "night",
            "--to",
            "github",
            "--api-url",
            &api,
            "--format",
            "json",
            "--pace",
            "0s",
        ]);
        let mut outcomes = BTreeMap::new();
        for line in done.stdout.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            outcomes.insert(text("job"), text("outcome"));
        }
        assert_eq!(outcomes.len(), self.packages.len(), "{}\n{}", done.stdout, done.stderr);
        (outcomes, done.code)
    }

    /// The branch of a package's only request.
    fn branch(&self, name: &str) -> String {
        let state = self.forge.state();
        let own: Vec<&super::server::Pull> = state
            .pulls
            .iter()
            .filter(|pull| pull.project == format!("o/{name}"))
            .collect();
        assert_eq!(own.len(), 1, "{name}: {own:?}");
        own[0].branch.clone()
    }

    fn tip(&self, name: &str) -> Option<String> {
        tip(&self.forge.repo(&format!("o/{name}")), &self.branch(name))
    }

    /// A new first line of the file that the run edits, on the main branch.
    fn upstream(&self, package: &Package) {
        person(&self.forge.repo(&format!("o/{}", package.name)), |clone| {
            let file = clone.join(&package.edited);
            let text = std::fs::read_to_string(&file).unwrap();
            let new = match package.name {
                "httpdate" => format!("// upstream\n{text}"),
                "iniconfig" | "pluggy" => format!("# upstream\n{text}"),
                _ => text.replacen("{\n", "{\n  \"_upstream\": true,\n", 1),
            };
            assert_ne!(new, text, "{}", package.name);
            std::fs::write(&file, new).unwrap();
            git_in(clone, &["commit", "-q", "-a", "-m", "upstream"]);
            git_in(clone, &["push", "-q", "origin", "main"]);
        });
    }

    fn package(&self, name: &str) -> &Package {
        self.packages.iter().find(|package| package.name == name).unwrap()
    }
}

fn outcomes(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter()
        .map(|(job, outcome)| ((*job).to_owned(), (*outcome).to_owned()))
        .collect()
}

#[test]
fn the_way_of_a_night() {
    let world = World::new();
    let found = packages(world.path());
    if !have("the packages of the registries", found.is_some()) {
        return;
    }
    let night = Night::begin(world, found.unwrap());
    let names = ["asynckit", "balanced-match", "httpdate", "iniconfig", "pluggy"];

    // The first night: every package gets a request, and its main branch is untouched.
    assert_eq!(night.batch(), (5, 0));
    assert_eq!(night.deliver(), (outcomes(&names.map(|name| (name, "opened"))), 0));
    for name in names {
        let repo = night.forge.repo(&format!("o/{name}"));
        let edited = night.package(name).edited.to_string_lossy().into_owned();
        let branch = night.branch(name);
        let shown = |at: &str| git_in(&repo, &["show", &format!("{at}:{edited}")]);
        assert!(
            shown(&branch).contains("looked-at") && !shown("main").contains("looked-at"),
            "{name}"
        );
        let changed = git_in(&repo, &["diff", "--name-only", "main", &branch]);
        assert_eq!(changed.trim(), edited, "{name}");
    }
    let pushes = night.forge.state().pushes;
    let pulls = night.forge.state().pulls.clone();
    assert!(
        pulls
            .iter()
            .all(|pull| pull.open && pull.title == "Note on the package"),
        "{pulls:?}"
    );

    // A message for `git am` needs no clone on this machine either.
    let mails = night
        .command(&["deliver", "night", "--to", "mbox", "--format", "json"])
        .exits(0);
    for line in mails.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["outcome"], "opened", "{line}");
        let mail = std::fs::read_to_string(night.world.path().join(line["url"].as_str().unwrap())).unwrap();
        assert!(mail.contains("looked-at"), "{mail}");
    }
    assert_eq!(mails.stdout.lines().count(), names.len());

    // The same again does nothing: no run, no push, no request.
    assert_eq!(night.batch(), (0, 5));
    assert_eq!(night.deliver(), (outcomes(&names.map(|name| (name, "unchanged"))), 0));
    assert_eq!(night.forge.state().pushes, pushes);
    assert_eq!(night.forge.state().pulls.len(), 5);

    // By day: two packages move on, in one of them a person works on the request's branch, and another request is closed.
    night.upstream(night.package("httpdate"));
    night.upstream(night.package("pluggy"));
    let branch = night.branch("pluggy");
    person(&night.forge.repo("o/pluggy"), |clone| {
        git_in(clone, &["checkout", "-q", &branch]);
        let file = clone.join("pluggy/__init__.py");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("# looked-at", "# looked-at, and by me")).unwrap();
        git_in(clone, &["commit", "-q", "-a", "-m", "better words"]);
        git_in(clone, &["push", "-q", "origin", &branch]);
    });
    for pull in night
        .forge
        .state()
        .pulls
        .iter_mut()
        .filter(|pull| pull.project == "o/asynckit")
    {
        pull.open = false;
    }
    let before: BTreeMap<&str, Option<String>> = names.map(|name| (name, night.tip(name))).into();

    // The second night runs the two that changed.
    assert_eq!(night.batch(), (2, 3));
    let expected = outcomes(&[
        ("asynckit", "closed_by_person"),
        ("balanced-match", "unchanged"),
        ("httpdate", "updated"),
        ("iniconfig", "unchanged"),
        ("pluggy", "conflict"),
    ]);
    assert_eq!(night.deliver(), (expected, 1));
    for name in names {
        let moved = night.tip(name) != before[name];
        assert_eq!(moved, name == "httpdate", "{name}");
    }
    let open: Vec<bool> = names
        .iter()
        .map(|name| {
            let state = night.forge.state();
            state
                .pulls
                .iter()
                .any(|pull| pull.project == format!("o/{name}") && pull.open)
        })
        .collect();
    assert_eq!(open, [false, true, true, true, true]);
    assert_eq!(night.forge.state().pulls.len(), 5, "no request was opened again");
    let text = git_in(
        &night.forge.repo("o/httpdate"),
        &["show", &format!("{}:src/lib.rs", night.branch("httpdate"))],
    );
    assert!(
        text.starts_with("// upstream\n") && text.contains("// looked-at"),
        "{text}"
    );
}

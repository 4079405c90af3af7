//! The directories in which commands look for programs: those of the workspace that the user's shell has activated, those
//! of the named toolchains, and those of the machine. Starts no process.

use super::env::SYSTEM_PATH;
use super::own_path;
use super::placed::{Brought, below_layer};
use super::toolchains::{HomePaths, ToolchainGrant, grant};
use super::venv;
use crate::base::quote::yaml_word;
use crate::base::toolchain::NAMES;
use std::path::{Path, PathBuf};

/// The value of `PATH` for commands.
pub(super) fn search_path(homes: &HomePaths<'_>, granted: &ToolchainGrant, active: &venv::Active) -> String {
    let own = active.programs.iter().map(|dir| dir.display().to_string());
    // A command could create a missing directory and so shadow programs of the system.
    let tools = granted.path.iter().filter(|dir| Path::new(dir).is_dir()).cloned();
    let mut dirs: Vec<String> = own.chain(tools).collect();
    for dir in machine_dirs(homes, granted, &super::confine::SYSTEM) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs.join(":")
}

/// The entries of the parent's `PATH` below a directory of the system, in their order, then the rest of [`SYSTEM_PATH`].
/// Commands can read the directories of the system anyway, and at the levels with a sandbox no command can write there,
/// whatever the mode of a directory: some images for CI jobs make all of `/opt` writable for everybody.
///
/// Left out are
/// - directories in the tree of a run, because its author decides what is there;
/// - directories of which commands write a private copy: the home, and caches;
/// - directories of a toolchain that the policy does not name, because its programs need more than the `PATH`.
fn machine_dirs(homes: &HomePaths<'_>, granted: &ToolchainGrant, system: &[&str]) -> Vec<String> {
    let usual: Vec<&str> = SYSTEM_PATH.split(':').collect();
    let every = grant(&NAMES.map(str::to_owned), homes).unwrap_or_default().path;
    // A home such as `/` or `/usr` is not the home of a person.
    let holds_system = |home: &PathBuf| system.iter().any(|top| Path::new(top).starts_with(home));
    let home = homes.home.canonicalize().ok().filter(|home| !holds_system(home));
    let mut kept_out = own_path::trees();
    kept_out.push(homes.workspace.to_path_buf());
    kept_out.extend(home);
    kept_out.extend(granted.layers.iter().map(|layer| layer.place.clone()));
    let taken = |dir: &str| -> Option<String> {
        if usual.contains(&dir) {
            return Some(dir.to_owned());
        }
        let of_toolchain = |path: &[String]| path.iter().any(|own| own == dir);
        if of_toolchain(&every) && !of_toolchain(&granted.path) {
            return None;
        }
        // Links are resolved, because a process that can change a link decides where it leads.
        let real = Path::new(dir).canonicalize().ok()?;
        let is_system = system.iter().any(|top| real.starts_with(top));
        let is_kept_out = kept_out.iter().any(|tree| real.starts_with(tree));
        let taken = Path::new(dir).is_absolute() && real.is_dir() && is_system && !is_kept_out;
        // A colon would split the entry in two.
        let text = real.to_str().filter(|text| taken && !text.contains(':'))?;
        Some(text.to_owned())
    };
    let entries = homes.var("PATH").unwrap_or_default().split(':').filter_map(taken);
    let mut dirs: Vec<String> = Vec::new();
    for dir in entries.chain(usual.iter().map(|dir| (*dir).to_owned())) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

/// What is known about a run before its sandbox level is chosen, to determine which programs its commands will find.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSearch<'a> {
    /// Names of `base::toolchain::NAMES`.
    pub toolchains: &'a [String],
    /// Names of variables that the policy passes to commands.
    pub pass: &'a [String],
    /// The environment of this program.
    pub parent: &'a [(String, String)],
    /// Canonical.
    pub workspace: &'a Path,
    /// The tree from which an isolated workspace was created.
    pub origin: Option<&'a Path>,
    /// The directories that were brought into an isolated workspace.
    pub brought: &'a [Brought],
}

impl ProgramSearch<'_> {
    fn homes<'b>(&'b self, home: &'b Path, environments: &'b [PathBuf]) -> HomePaths<'b> {
        HomePaths {
            home,
            private_home: home,
            parent: self.parent,
            network: false,
            layered: true,
            workspace: self.workspace,
            environments,
        }
    }

    /// The directories in which commands will look for programs, at their real paths. `None` for an unknown toolchain.
    #[must_use]
    pub fn dirs(&self) -> Option<Vec<PathBuf>> {
        let home = user_home(self.parent);
        let environments = environments(self.workspace, self.brought);
        let homes = self.homes(&home, &environments);
        let granted = grant(self.toolchains, &homes).ok()?;
        let passed = variable(self.parent, "PATH").filter(|_| self.pass.iter().any(|name| name == "PATH"));
        let path = match passed {
            Some(passed) => passed.to_owned(),
            None => search_path(&homes, &granted, &self.active()),
        };
        let dirs = path.split(':').map(Path::new);
        Some(dirs.map(|dir| real(self.workspace, self.brought, dir)).collect())
    }

    fn active(&self) -> venv::Active {
        venv::active(self.workspace, self.origin, self.parent)
    }

    /// Why commands do not use the virtual environment that is active in the user's shell, and what to do, for people.
    /// `None` if they use it, or none is active.
    #[must_use]
    pub fn ignored_environment(&self) -> Option<String> {
        let dir = active_environment(self.parent)?;
        let searched = self.dirs()?;
        let bin = Path::new(dir).join("bin").canonicalize().ok()?;
        let below_origin = self.origin.and_then(|origin| bin.strip_prefix(origin).ok());
        let in_worktree = below_origin.map(|below| self.workspace.join(below));
        let is_searched = searched
            .iter()
            .filter_map(|found| found.canonicalize().ok())
            .any(|found| found == bin || in_worktree.as_ref() == Some(&found));
        if is_searched {
            return None;
        }
        let what = match below_origin.and_then(Path::parent) {
            Some(below) => format!(
                "name it in the recipe, as `isolate: {{ keep: [{}] }}`",
                yaml_word(&below.to_string_lossy())
            ),
            None => "make it in the workspace (`.venv`), and for --isolate name it in the recipe, as \
                     `isolate: { keep: [.venv] }`"
                .to_owned(),
        };
        Some(format!("commands do not see the active environment {dir}: {what}"))
    }

    /// Why commands cannot run the Python of the virtual environment that is active in the user's shell, and what to do,
    /// for people. `None` if they can, if it is ignored anyway, or if none is active. For levels with a sandbox.
    #[must_use]
    pub fn unreadable_environment(&self) -> Option<String> {
        let dir = active_environment(self.parent).filter(|_| self.ignored_environment().is_none())?;
        let bin = Path::new(dir).join("bin");
        let mut names = ["python3", "python"].iter();
        let python = names.find_map(|name| bin.join(name).canonicalize().ok())?;
        if self.may_read(&python) {
            return None;
        }
        let toolchains = ["python".to_owned()];
        let with_toolchain = ProgramSearch {
            toolchains: &toolchains,
            ..*self
        };
        let what = match with_toolchain.may_read(&python) {
            true => "name `toolchains: [python]` under `sandbox` in the policy",
            false => "make the environment with a Python that is installed below /usr or /opt",
        };
        Some(format!(
            "commands cannot use the active environment {dir}: its Python, {}, is outside what they may read; {what}",
            python.display()
        ))
    }

    /// Whether commands may read this path, which has no links: it is of the system, of a toolchain or of the workspace.
    #[must_use]
    pub fn may_read(&self, path: &Path) -> bool {
        let home = user_home(self.parent);
        let environments = environments(self.workspace, self.brought);
        let granted = grant(self.toolchains, &self.homes(&home, &environments)).unwrap_or_default();
        let granted = granted.readable.into_iter().filter_map(|dir| dir.canonicalize().ok());
        let system = super::confine::SYSTEM.iter().map(PathBuf::from);
        let brought = self.brought.iter().map(|brought| brought.from.clone());
        let mut all = granted
            .chain(system)
            .chain(brought)
            .chain([self.workspace.to_path_buf()]);
        all.any(|dir| path.starts_with(dir))
    }
}

fn variable<'a>(parent: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parent.iter().find(|(have, _)| have == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// The virtual environment that is active in the user's shell. Conda's `base` is active in every shell, whatever the
/// project, so it does not count.
fn active_environment(parent: &[(String, String)]) -> Option<&str> {
    let is_base = variable(parent, "CONDA_DEFAULT_ENV") == Some("base");
    let conda = || variable(parent, "CONDA_PREFIX").filter(|_| !is_base);
    variable(parent, "VIRTUAL_ENV").or_else(conda)
}

/// The `VIRTUAL_ENV` of the parent if commands with this `PATH` look for programs in it: `uv` and `poetry` read it.
pub(super) fn searched_environment<'a>(path: &str, parent: &'a [(String, String)]) -> Option<&'a str> {
    let dir = variable(parent, "VIRTUAL_ENV")?;
    let bin = Path::new(dir).join("bin").canonicalize().ok()?;
    path.split(':').any(|found| Path::new(found) == bin).then_some(dir)
}

/// The user's home.
pub(super) fn user_home(parent: &[(String, String)]) -> PathBuf {
    PathBuf::from(variable(parent, "HOME").unwrap_or("/nonexistent"))
}

/// The directories of the workspace that may be virtual environments, at their real paths.
#[must_use]
pub fn environments(workspace: &Path, brought: &[Brought]) -> Vec<PathBuf> {
    let dirs = [".venv", "venv"].map(|name| workspace.join(name));
    dirs.iter().map(|dir| real(workspace, brought, dir)).collect()
}

/// The path outside of the sandbox: a directory that is brought as a layer is only an empty directory in the workspace.
fn real(workspace: &Path, brought: &[Brought], path: &Path) -> PathBuf {
    below_layer(workspace, brought, path).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_path_that_are_of_the_machine_are_searched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let dirs = [
            "system/tools/bin",
            "system/second",
            "system/ws/bin",
            "system/home/bin",
            "system/cargo/bin",
            "elsewhere",
        ];
        for name in dirs {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let at = |name: &str| root.join(name).display().to_string();
        std::os::unix::fs::symlink(root.join("elsewhere"), root.join("system/link")).unwrap();
        std::os::unix::fs::symlink(root.join("system/second"), root.join("to-second")).unwrap();
        let path = [
            at("system/tools/bin"),
            "/usr/bin".to_owned(),
            String::new(),
            "system/tools/bin".to_owned(),
            at("system/none"),
            at("system/link"),
            at("system/ws/bin"),
            at("system/home/bin"),
            at("system/cargo/bin"),
            at("elsewhere"),
            at("to-second"),
            at("system/second"),
        ];
        let parent = [
            ("PATH".to_owned(), path.join(":")),
            ("CARGO_HOME".to_owned(), at("system/cargo")),
        ];
        let system = at("system");
        let (home, workspace) = (root.join("system/home"), root.join("system/ws"));
        let found = |toolchains: &[&str], home: &Path| {
            let homes = HomePaths {
                home,
                private_home: home,
                parent: &parent,
                network: false,
                layered: true,
                workspace: &workspace,
                environments: &[],
            };
            let toolchains: Vec<String> = toolchains.iter().map(|name| (*name).to_owned()).collect();
            let granted = grant(&toolchains, &homes).unwrap();
            let dirs = machine_dirs(&homes, &granted, &[&system]);
            let shown: Vec<String> = dirs.iter().map(|dir| dir.replace(&format!("{system}/"), "")).collect();
            shown.join(" ")
        };
        let rest = "/usr/local/sbin /usr/local/bin /usr/sbin /sbin /bin";
        assert_eq!(found(&[], &home), format!("tools/bin /usr/bin second {rest}"));
        assert_eq!(
            found(&["rust"], &home),
            format!("tools/bin /usr/bin cargo/bin second {rest}")
        );
        // Nobody's home.
        let all = format!("tools/bin /usr/bin home/bin second {rest}");
        assert_eq!(found(&[], Path::new("/")), all);
    }

    #[test]
    fn what_is_brought_as_a_layer_is_looked_up_in_the_original() {
        let brought = |path: &str, layered| Brought {
            path: path.into(),
            from: Path::new("/origin").join(path),
            layered,
        };
        let all = [brought("web/node_modules", true), brought(".venv", false)];
        for (path, expected) in [
            ("/tree/web/node_modules/.bin", "/origin/web/node_modules/.bin"),
            ("/tree/web/node_modules", "/origin/web/node_modules"),
            ("/tree/.venv/bin", "/tree/.venv/bin"),
            ("/tree/web", "/tree/web"),
        ] {
            assert_eq!(real(Path::new("/tree"), &all, Path::new(path)), Path::new(expected));
        }
    }
}

//! The directories of one run that its children may write beside the workspace, and the whole confinement made from a policy's
//! wishes. Runs nothing.

use super::env::{SYSTEM_PATH, base_env, set};
use super::toolchains::{Grant, Ground, grant};
use super::{Confinement, Level, Network};
use crate::base::grant::ClosedPaths;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A home and a directory for temporary files, empty at first; gone when dropped.
#[derive(Debug)]
pub struct Private {
    dir: TempDir,
}

impl Private {
    /// Makes both below the machine's directory for temporary files, for this user only.
    pub fn create() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("overnight-").tempdir()?;
        let dir = Self { dir };
        std::fs::create_dir(dir.home())?;
        std::fs::create_dir(dir.tmp())?;
        Ok(dir)
    }

    /// `HOME` of the children.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// `TMPDIR` of the children; at level `full` also `/tmp`.
    pub fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }
}

/// What a policy and a run want of the sandbox.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    /// As `choose` found it.
    pub level: Level,
    /// Canonical.
    pub workspace: &'a Path,
    /// Absolute: run directories.
    pub hidden: &'a [PathBuf],
    pub closed: &'a Arc<dyn ClosedPaths>,
    pub network: &'a Network,
    /// Whether programs can be judged at their exec: see `Probe::witness`.
    pub witness: bool,
    /// Names of `toolchains::NAMES`.
    pub toolchains: &'a [String],
    /// Names of variables that the policy passes on.
    pub pass: &'a [String],
    /// The environment of this program.
    pub parent: &'a [(String, String)],
}

/// The confinement of one run. An error names a toolchain that is none, or a link that could not be made.
pub fn confinement(wishes: &Wishes<'_>, private: &Private) -> Result<Confinement, String> {
    let home = private.home();
    let user_home = wishes.parent.iter().find(|(name, _)| name == "HOME");
    let ground = Ground {
        home: Path::new(user_home.map_or("/nonexistent", |(_, home)| home.as_str())),
        private_home: &home,
        parent: wishes.parent,
        network: *wishes.network != Network::None,
    };
    let granted = grant(wishes.toolchains, &ground).map_err(|name| format!("there is no toolchain `{name}`"))?;
    link(&granted, &home).map_err(|error| format!("the private home cannot be filled: {error}"))?;
    Ok(Confinement {
        level: wishes.level,
        workspace: wishes.workspace.to_path_buf(),
        env: environment(wishes, &granted, private),
        readable: granted.readable,
        writable: vec![home, private.tmp()],
        hidden: wishes.hidden.to_vec(),
        closed: Arc::clone(wishes.closed),
        memory: None,
        network: wishes.network.clone(),
        witness: wishes.witness && wishes.level != Level::None,
    })
}

fn environment(wishes: &Wishes<'_>, granted: &Grant, private: &Private) -> Vec<(String, String)> {
    let mut path: Vec<&str> = granted.path.iter().map(String::as_str).collect();
    path.push(SYSTEM_PATH);
    let (home, tmp) = (
        private.home().display().to_string(),
        private.tmp().display().to_string(),
    );
    let mut env = base_env(&home, &tmp, &path.join(":"), wishes.pass, wishes.parent);
    for (name, value) in &granted.env {
        set(&mut env, name, value);
    }
    env
}

/// Links that lead nowhere are left out.
fn link(granted: &Grant, home: &Path) -> io::Result<()> {
    for (name, target) in granted.links.iter().filter(|(_, target)| target.exists()) {
        let at = home.join(name);
        if let Some(parent) = at.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if std::fs::symlink_metadata(&at).is_err() {
            std::os::unix::fs::symlink(target, at)?;
        }
    }
    Ok(())
}

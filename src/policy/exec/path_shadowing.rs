//! Programs of the tree where commands look for programs (an activated `.venv/bin`, `node_modules/.bin`): which of them
//! a rule for their bare name does not cover, because it is meant for a program of the machine.

use super::{ExecContext, lexical, shown};
use crate::base::access::package_dir;
use crate::base::grant::{Exec, ExecDenial};
use crate::policy::model::PolicySet;
use crate::policy::profiles::{self, Profile};
use crate::policy::shell::{self, CommandRefusal};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A program of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineProgram {
    /// Where a command finds it.
    pub path: PathBuf,
    /// The file, with links followed.
    pub real: PathBuf,
}

type Find = dyn Fn(&str) -> Option<MachineProgram> + Send + Sync;

/// Finds the program that a command would start by a name if it did not search the tree. Finds none by default.
#[derive(Clone)]
pub struct MachinePrograms(Arc<Find>);

impl MachinePrograms {
    /// With this look-up.
    pub fn new(find: impl Fn(&str) -> Option<MachineProgram> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl Default for MachinePrograms {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for MachinePrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachinePrograms").finish_non_exhaustive()
    }
}

/// A program of the tree that has the name of one of the machine, or of one that no package manager installs.
pub(super) struct PathShadowing {
    name: String,
    /// Its path from the workspace's root; `None` if it is elsewhere in the repository.
    below: Option<String>,
    /// The program of the machine that a command would start without it.
    machine: Option<PathBuf>,
}

impl PathShadowing {
    /// What an exec starts, if it is such a program. Not among them: programs whose profile says that a package manager
    /// installs them, programs that only the tree has and no profile knows, links to the machine's own program, and links
    /// out of the tree to another program of the same name, as devbox and pixi make them.
    pub(super) fn of(set: &PolicySet, setting: &ExecContext, exec: &Exec) -> Option<Self> {
        let path = lexical(&exec.path);
        let name = path.file_name()?.to_string_lossy().into_owned();
        let below = path.strip_prefix(&setting.root).ok();
        let ecosystem = shell::ecosystem_of(&format!("./{}", below.unwrap_or(&path).display()));
        let searched = path
            .parent()
            .is_some_and(|dir| setting.tree_path.iter().any(|known| known == dir));
        // An environment that the command itself activates is searched, too.
        if !searched && (below.is_none() || ecosystem.is_none()) {
            return None;
        }
        let profile = profiles::of(set.profiles(), &name);
        let is_installed = |profile: &Profile| match ecosystem {
            Some(ecosystem) => profile.installed_by.contains(&ecosystem),
            None => !profile.installed_by.is_empty(),
        };
        if profile.is_some_and(is_installed) {
            return None;
        }
        let machine = (setting.machine.0)(&name);
        let is_machine = machine.as_ref().is_some_and(|machine| machine.real == exec.real);
        let is_outside = is_machine || leads_outside(setting, exec, &name);
        let is_known = profile.is_some() || shell::is_wrapper(&name);
        (!is_outside && (is_known || machine.is_some())).then(|| Self {
            below: below.map(|below| below.display().to_string()),
            machine: machine.map(|machine| machine.path),
            name,
        })
    }

    /// Whether a name by which rules refer to programs is the one that it may not have.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// Why a rule for its bare name does not cover it.
    pub(super) fn refusal(&self) -> CommandRefusal {
        let name = &self.name;
        let this = match &self.below {
            Some(below) => format!("`{below}`"),
            None => format!("`{name}` of a directory of the repository that is on `PATH`"),
        };
        let reason = match &self.machine {
            Some(machine) => format!(
                "{this} shadows {}: a program of the tree does not run under the rules for the machine's `{name}`",
                machine.display()
            ),
            None => format!(
                "{this} is a program of the tree: it does not run under the rules for `{name}`, which no package manager installs"
            ),
        };
        let system = self.machine.as_deref().filter(|machine| {
            let dir = machine.parent();
            dir == Some(Path::new("/usr/bin")) || dir == Some(Path::new("/bin"))
        });
        let instead = match system {
            Some(machine) => format!("write `{}`, or take the directory off `PATH`", machine.display()),
            None => "take the directory off `PATH`".to_owned(),
        };
        let fix = match &self.below {
            Some(below) => format!("{instead}; to run the tree's program, let a rule name `./{below}`"),
            None => instead,
        };
        CommandRefusal::new("exec_denied", reason, fix)
    }

    /// The same as the denial of its exec.
    pub(super) fn denial(&self, exec: &Exec) -> ExecDenial {
        let CommandRefusal { reason, fix, .. } = self.refusal();
        ExecDenial::denied(format!("run `{}`: {reason}", shown(exec)), fix)
    }
}

/// Whether a link leads to a file of this name that is in no tree and among no project's packages, and where the command
/// cannot write.
fn leads_outside(setting: &ExecContext, exec: &Exec, name: &str) -> bool {
    let real = &exec.real;
    let in_tree = setting.trees.iter().any(|tree| real.starts_with(tree));
    let is_named = real.file_name().is_some_and(|file| file == name);
    // A path that cannot be resolved is its own real path.
    let is_link = *real != exec.path;
    is_link && is_named && !in_tree && package_dir(real).is_none() && !setting.may_write(real)
}

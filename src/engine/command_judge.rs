//! Decides about each program of a command at its `execve`, using the policy and this run's tree.

use crate::base::access::Access;
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::grant::{Exec, ExecAnswer, ExecJudge};
use crate::base::ruling::PolicyInput;
use crate::base::sync::lock;
use crate::policy::exec::{self, ExecContext, MachineProgram, MachinePrograms, SYSTEM_DIRS};
use crate::policy::{PolicySet, ruled_commands};
use crate::process::{Confinement, SandboxLevel, own_path};
use crate::workspace::Workspace;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The most reasons that are kept for [`ExecJudge::masked`].
const MOST_MASKED: usize = 5;

/// Decides about the programs of one call.
pub struct CommandJudge {
    policies: Arc<PolicySet>,
    workspace: Arc<Workspace>,
    tool: String,
    kind: ToolKind,
    origin: ToolOrigin,
    args: Value,
    setting: ExecContext,
    masked: Mutex<BTreeSet<String>>,
}

impl CommandJudge {
    /// For the command of a call that was allowed. `access`: the access that the ruling was made for.
    pub fn new(
        policies: &Arc<PolicySet>,
        workspace: &Arc<Workspace>,
        confinement: &Confinement,
        asked: &PolicyInput<'_>,
        access: &Access,
    ) -> Self {
        let (ruled, activates) = workspace.with_fs_view(|fs_view| ruled_commands(policies, asked, access, fs_view));
        let path = confinement.env.iter().rfind(|(name, _)| name == "PATH");
        let dirs = path.map(|(_, dirs)| dirs.split(':')).into_iter().flatten();
        let path: Vec<PathBuf> = dirs
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute() && dir.is_dir())
            .collect();
        let tree = tree_around(workspace.root());
        let of_tree =
            |dir: &PathBuf| dir.starts_with(&tree) || dir.canonicalize().is_ok_and(|real| real.starts_with(&tree));
        // A home or `/` as a tree holds the machine's programs, too.
        let declared = own_path::trees().into_iter().filter(|tree| !holds_programs(tree));
        let trees = declared.chain([tree.clone()]).collect();
        let (tree_path, others): (Vec<PathBuf>, Vec<PathBuf>) = path.iter().cloned().partition(of_tree);
        Self {
            policies: Arc::clone(policies),
            workspace: Arc::clone(workspace),
            tool: asked.tool.to_owned(),
            kind: asked.kind,
            origin: asked.origin.clone(),
            args: asked.args.clone(),
            setting: ExecContext {
                root: workspace.root().to_path_buf(),
                path,
                tree_path,
                machine: machine_programs(others),
                trees,
                writable: confinement
                    .writable
                    .iter()
                    .chain(confinement.placed.seen())
                    .cloned()
                    .collect(),
                read_only: confinement.readable.clone(),
                ruled,
                activates,
                masks: confinement.level == SandboxLevel::Full && confinement.masks.hide_files(),
            },
            masked: Mutex::default(),
        }
    }
}

/// The top of the repository around the workspace, whose author decides what is in it. The workspace itself if there is
/// none, or if it holds the machine's programs or the user's home, which then holds toolchains, too.
fn tree_around(root: &Path) -> PathBuf {
    let top = own_path::work_tree(root, &[]).filter(|top| !holds_programs(top));
    top.unwrap_or(root).to_path_buf()
}

/// Whether this is `/`, or holds the user's home.
fn holds_programs(top: &Path) -> bool {
    let home = std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok());
    top.parent().is_none() || home.is_some_and(|home| home.starts_with(top))
}

/// The programs in these directories and in those of the system.
fn machine_programs(dirs: Vec<PathBuf>) -> MachinePrograms {
    MachinePrograms::new(move |name| {
        let system = SYSTEM_DIRS.iter().map(PathBuf::from);
        dirs.iter().cloned().chain(system).find_map(|dir| {
            let path = dir.join(name);
            let real = path.canonicalize().ok()?;
            own_path::is_program(&real).then_some(MachineProgram { path, real })
        })
    })
}

impl ExecJudge for CommandJudge {
    fn judge(&self, exec: &Exec) -> ExecAnswer {
        let asked = PolicyInput {
            tool: &self.tool,
            kind: self.kind,
            origin: &self.origin,
            args: &self.args,
        };
        let mut masked = |reason| {
            let mut all = lock(&self.masked);
            if all.len() < MOST_MASKED {
                all.insert(reason);
            }
        };
        self.workspace
            .with_fs_view(|fs_view| exec::judge(&self.policies, &asked, &self.setting, exec, fs_view, &mut masked))
    }

    fn asks_below_anything(&self) -> bool {
        exec::asks_below_anything(&self.policies)
    }

    fn masked(&self) -> Vec<String> {
        lock(&self.masked).iter().cloned().collect()
    }
}

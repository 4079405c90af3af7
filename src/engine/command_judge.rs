//! Decides about each program of a command at its `execve`, using the policy and this run's tree.

use crate::base::access::Access;
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::grant::{Exec, ExecAnswer, ExecJudge};
use crate::base::ruling::PolicyInput;
use crate::policy::exec::{self, Setting};
use crate::policy::{PolicySet, ruled_commands};
use crate::process::Confinement;
use crate::workspace::Workspace;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Decides about the programs of one call.
pub struct CommandJudge {
    policies: Arc<PolicySet>,
    workspace: Arc<Workspace>,
    tool: String,
    kind: ToolKind,
    origin: ToolOrigin,
    args: Value,
    setting: Setting,
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
        let (ruled, activates) = workspace.with_terrain(|terrain| ruled_commands(policies, asked, access, terrain));
        let path = confinement.env.iter().rfind(|(name, _)| name == "PATH");
        let dirs = path.map(|(_, dirs)| dirs.split(':')).into_iter().flatten();
        Self {
            policies: Arc::clone(policies),
            workspace: Arc::clone(workspace),
            tool: asked.tool.to_owned(),
            kind: asked.kind,
            origin: asked.origin.clone(),
            args: asked.args.clone(),
            setting: Setting {
                root: workspace.root().to_path_buf(),
                path: dirs
                    .map(PathBuf::from)
                    .filter(|dir| dir.is_absolute() && dir.is_dir())
                    .collect(),
                writable: confinement
                    .writable
                    .iter()
                    .chain(confinement.placed.seen())
                    .cloned()
                    .collect(),
                read_only: confinement.readable.clone(),
                ruled,
                activates,
            },
        }
    }
}

impl ExecJudge for CommandJudge {
    fn judge(&self, exec: &Exec) -> ExecAnswer {
        let asked = PolicyInput {
            tool: &self.tool,
            kind: self.kind,
            origin: &self.origin,
            args: &self.args,
        };
        self.workspace
            .with_terrain(|terrain| exec::judge(&self.policies, &asked, &self.setting, exec, terrain))
    }

    fn asks_below_anything(&self) -> bool {
        exec::asks_below_anything(&self.policies)
    }
}

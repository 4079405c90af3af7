//! Applies to the state who changed the tree and which changes must be put back. Pure.

use super::RunState;
use crate::base::event::{PutBack, Unruled};
use crate::base::grant::Undone;
use crate::base::ids::StepId;
use crate::policy::Author;

/// The most paths that are remembered of what checks had changed, and that the record of one check lists.
pub const MOST_NAMED: usize = 1_000;

impl RunState {
    /// Notes that something ran that may have changed the tree. Changes whose author is ambiguous count as the model's.
    pub(in crate::engine) fn wrote(&mut self, author: Author) {
        self.touched = true;
        self.author = Some(match self.author {
            Some(other) if other != author => Author::Call,
            _ => author,
        });
    }

    /// Notes changes of an author's command that were not granted. A check that made a denied change, since undone,
    /// fails but does not end the run.
    pub(super) fn undone_of_step(&mut self, step: &StepId, check: bool, undone: &[Undone]) {
        let denied = |one: &Undone| matches!(one.code.as_str(), "deny_rule" | "protected_path");
        let ends = |one: &&Undone| !one.restored || (denied(one) && !check);
        let ending = undone
            .iter()
            .filter(ends)
            .map(|one| (format!("step {step}"), one.clone()));
        self.refused_commands.extend(ending);
    }

    /// Notes what an MCP server changed and could not be undone. What was undone does not end the run: nothing says which
    /// call it belongs to.
    pub(super) fn undone_of_server(&mut self, server: &str, undone: &[Undone]) {
        let ending = undone.iter().filter(|one| !one.restored);
        self.refused_commands
            .extend(ending.map(|one| (format!("MCP server {server}"), one.clone())));
    }

    /// Notes the paths that changed while a check ran and were put back, and the patch that restores them.
    pub(in crate::engine) fn note_put_back(&mut self, check: &str, paths: &[String], patch: Option<&str>) {
        self.put_back_patches.extend(patch.map(str::to_owned));
        for path in paths {
            if self.put_back_after.len() < MOST_NAMED || self.put_back_after.contains_key(path) {
                self.put_back_after.insert(path.clone(), check.to_owned());
            }
        }
    }

    pub(super) fn put_back(&mut self, done: &PutBack) {
        self.not_put_back.extend(done.failed.iter().cloned());
        if let Some(patch) = &mut self.patch {
            patch.put_back(done);
        }
    }

    /// The changes that must be put back before anything else happens.
    pub fn due(&self) -> impl Iterator<Item = &Unruled> {
        let unruled = self.patch.iter().flat_map(|patch| &patch.unruled);
        unruled.filter(|unruled| unruled.is_due() && !self.not_put_back.contains(&unruled.path))
    }
}

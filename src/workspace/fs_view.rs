//! Lets a policy query the tree through functions, so that the policy module does no I/O.

use super::Workspace;
use crate::base::access::FsView;

impl Workspace {
    /// Calls `ask` with the query functions for this tree.
    pub fn with_terrain<T>(&self, ask: impl FnOnce(&FsView<'_>) -> T) -> T {
        let locate = |path: &str| self.locate(path);
        let expand = |word: &str| self.expand(word);
        ask(&FsView {
            locate: &locate,
            expand: &expand,
        })
    }
}

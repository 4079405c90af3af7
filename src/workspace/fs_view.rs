//! Lets a policy query the tree through functions, so that the policy module does no I/O.

use super::Workspace;
use super::descendants::DescendantLister;
use super::shell_glob::Expander;
use crate::base::access::FsView;

impl Workspace {
    /// Calls `ask` with the query functions for this tree, for the ruling on one call.
    pub fn with_fs_view<T>(&self, ask: impl FnOnce(&FsView<'_>) -> T) -> T {
        let locate = |path: &str| self.locate(path);
        let expander = Expander::new(self);
        let expand = |word: &str| expander.expand(word);
        let lister = DescendantLister::new(self);
        let below = |dir: &str| lister.below(dir);
        let over_limit = || expander.is_over_limit();
        ask(&FsView {
            locate: &locate,
            expand: &expand,
            over_limit: &over_limit,
            below: &below,
        })
    }
}

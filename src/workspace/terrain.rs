//! What a policy may ask of the tree, as functions, so that it stays pure. Answers; judges nothing.

use super::Workspace;
use crate::base::access::Terrain;

impl Workspace {
    /// Calls `ask` with the functions that look at this tree.
    pub fn with_terrain<T>(&self, ask: impl FnOnce(&Terrain<'_>) -> T) -> T {
        let locate = |path: &str| self.locate(path);
        let expand = |word: &str| self.expand(word);
        ask(&Terrain {
            locate: &locate,
            expand: &expand,
        })
    }
}

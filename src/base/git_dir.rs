//! What makes a directory a git directory, and the names of the worktree registrations that this program creates in
//! one.

/// Prefix of the names of registrations: in `worktrees`, and beside it while they are being created or removed.
pub const OUR_WORKTREES: &str = "overnight-";
/// Suffixes of the names of registrations that are not yet, or no longer, in `worktrees`.
pub const UNREGISTERED: [&str; 2] = [".new", ".old"];

/// Whether a directory of any name counts as a git directory: it has a `HEAD`, and `objects` or `commondir`, which says
/// where those are. Git also demands `refs`, which a later write can add; callers that ask what git does now test that
/// too.
///
/// `has`: whether the directory has an entry of this name. It must not follow a link there: git also takes a link for
/// `HEAD`, even one that leads nowhere (`core.preferSymlinkRefs`).
pub fn is_git_dir(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("objects") || has("commondir"))
}

#[cfg(test)]
mod tests {
    use super::is_git_dir;

    #[test]
    fn entries_decide() {
        for (entries, is_one) in [
            ("HEAD objects", true),
            ("HEAD commondir", true),
            ("HEAD refs", false),
            ("objects commondir", false),
            ("", false),
        ] {
            let has = |name: &str| entries.split(' ').any(|entry| entry == name);
            assert_eq!(is_git_dir(has), is_one, "{entries}");
        }
    }
}

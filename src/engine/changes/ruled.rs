//! Checks every path that changed since the last known state of the run's own tree against the policy, as if it were a
//! write.

use super::{environment_error, only_checks_ran, snapshot};
use crate::base::access::ResolvedPath;
use crate::base::event::{PathChange, Unruled};
use crate::base::outcome::{RunOutcome, Verdict};
use crate::engine::deps::Deps;
use crate::engine::run_error::RunError;
use crate::engine::state::RunState;
use crate::engine::verdict::first_names;
use crate::policy::codes::{self, Code};
use crate::policy::protected::repository_above;
use crate::policy::{Author, ChangeRuling, rule_change, rule_link, rule_repository};
use crate::workspace::patch::{Delta, Snapshot};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// The reason code of what a build left.
const BUILD_OUTPUT: &str = "build_output";
/// Upper limit for files that are put back one by one; with more changes the run ends.
pub const MOST_PUT_BACK: usize = 10_000;
/// New files that stay are listed one by one up to this number; above it they are grouped by directory.
const NAMED_FILES: usize = 200;
/// Upper limit for the entries of the list in the record.
const LISTED: usize = 1_000;

/// The changes that the policy keeps out of the patch.
pub(super) struct RuledPatch {
    /// The changes, sorted by path.
    unruled: Vec<Unruled>,
    /// Their paths, relative to the top of the repository.
    pub out: BTreeSet<String>,
    /// The paths of all other changes, relative to the workspace.
    allowed: BTreeSet<String>,
}

/// Checks the difference between the run's own tree (`before`) and the current tree (`now`). `start`: the tree at the
/// start of the run. `left`: paths that only checks changed, relative to the top of the repository.
pub(super) async fn rule(
    deps: &Deps,
    state: &RunState,
    start: &Snapshot,
    (before, now): (&Snapshot, &Snapshot),
    left: &BTreeSet<String>,
) -> Result<RuledPatch, RunError> {
    // Of the trees, not of a patch, which leaves out what is below a path that it cannot contain.
    let differ = deps.shadow.path_changes(before, now).await.map_err(environment_error)?;
    let seen = snapshot(state.tree(), before);
    // Paths unchanged since the last measurement were left out of the patch then, and stay out.
    let fresh = match seen == *before {
        true => None,
        false => Some(deps.shadow.changed_paths(&seen, now).await.map_err(environment_error)?),
    };
    let author = author(deps, state);
    let mut unruled: Vec<Unruled> = Vec::new();
    let mut allowed = BTreeSet::new();
    let mut in_repositories = repositories(deps, &differ);
    let outputs = build_outputs(deps, state, start, &differ).await?;
    for (path, change) in differ {
        let from_top = deps.shadow.at_top(&path);
        let is_fresh = fresh.as_ref().is_none_or(|fresh| fresh.contains(&from_top));
        let by = match (left.contains(&from_top), is_fresh) {
            // These are not in the patch, but a change that a deny rule covers must not stay in the tree either.
            (true, _) => Author::TrustedStep,
            (false, true) => author,
            (false, false) => Author::Call,
        };
        let mut ruling = rule_change(&deps.policies, &path, by);
        if let Some(repository) = in_repositories.remove(&path)
            && !matches!(ruling, ChangeRuling::Denied { .. })
        {
            let inside = rule_repository(&deps.policies, &repository, &path);
            if inside != ChangeRuling::Allowed {
                ruling = inside;
            }
        }
        let mut is_link = false;
        if !matches!(ruling, ChangeRuling::Denied { .. })
            && change != PathChange::Deleted
            && let Some(target) = link_target(deps, &path)
        {
            let of_target = rule_link(&deps.policies, &target, by);
            if of_target != ChangeRuling::Allowed {
                is_link = true;
                ruling = of_target;
            }
        }
        let (rule, code, denied) = match ruling {
            ChangeRuling::Allowed if outputs.contains_key(&path) => {
                unruled.push(Unruled {
                    path,
                    change,
                    rule: None,
                    code: BUILD_OUTPUT.to_owned(),
                    denied: false,
                    left: true,
                    restored: false,
                });
                continue;
            }
            ChangeRuling::Allowed => {
                allowed.insert(path);
                continue;
            }
            ChangeRuling::Denied { rule, code } => (rule, code, true),
            ChangeRuling::Unruled { rule, code } => (rule, code, false),
        };
        unruled.push(Unruled {
            path,
            change,
            rule,
            code,
            denied,
            // A link is not left in the tree: whoever opens it later would get to what the policy withholds.
            left: change == PathChange::Added && !denied && !is_link,
            restored: false,
        });
    }
    clear_the_way(&mut unruled);
    let due: Vec<&str> = unruled
        .iter()
        .filter(|unruled| unruled.is_due())
        .map(|unruled| unruled.path.as_str())
        .collect();
    if due.len() > MOST_PUT_BACK {
        let message = format!(
            "{} files were changed that no rule allows, and at most {MOST_PUT_BACK} are put back: {}; restore the tree, and \
             allow the paths or deny the command",
            due.len(),
            first_names(due.iter().copied())
        );
        return Err(RunError::Ended(RunOutcome::new(
            Verdict::Denied,
            "limit:unruled",
            message,
        )));
    }
    let out = unruled
        .iter()
        .map(|unruled| deps.shadow.at_top(&unruled.path))
        .collect();
    // A build leaves many files, and others each time.
    let mut listed = BTreeSet::new();
    unruled.retain_mut(|unruled| match outputs.get(&unruled.path) {
        Some(dir) if unruled.left && unruled.code == BUILD_OUTPUT => {
            unruled.path = format!("{dir}/");
            listed.insert(dir)
        }
        _ => true,
    });
    Ok(RuledPatch { unruled, out, allowed })
}

/// The new files that builds wrote into directories of their own, each with that directory. A file that a tool for editing
/// wrote is none of them.
async fn build_outputs(
    deps: &Deps,
    state: &RunState,
    start: &Snapshot,
    differ: &BTreeMap<String, PathChange>,
) -> Result<BTreeMap<String, String>, RunError> {
    let added = differ.iter().filter(|(_, change)| **change == PathChange::Added);
    let added: Vec<&str> = added
        .map(|(path, _)| path.as_str())
        .filter(|path| !state.edited.contains(*path))
        .collect();
    let dirs = deps
        .shadow
        .build_outputs(start, &added)
        .await
        .map_err(environment_error)?;
    let found = added.into_iter().filter_map(|path| {
        let mut above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        Some((path.to_owned(), above.find(|dir| dirs.contains(*dir))?.to_owned()))
    });
    Ok(found.collect())
}

/// The changed paths in a git repository that is not named `.git`, with its directory. What is in the tree counts, which
/// shows empty directories and files that git ignores, and so does what was changed or removed.
fn repositories(deps: &Deps, differ: &BTreeMap<String, PathChange>) -> BTreeMap<String, String> {
    let root = deps.workspace.root();
    let known: RefCell<HashMap<String, bool>> = RefCell::default();
    let exists = |path: &str| {
        if let Some(known) = known.borrow().get(path) {
            return *known;
        }
        let below = format!("{path}/");
        let changed = || {
            let next = differ
                .range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded))
                .next();
            next.is_some_and(|(next, _)| next.starts_with(&below))
        };
        let there = differ.contains_key(path) || changed() || root.join(path).symlink_metadata().is_ok();
        known.borrow_mut().insert(path.to_owned(), there);
        there
    };
    let found = differ.keys().filter_map(|path| {
        let repository = repository_above(path, &exists)?;
        Some((path.clone(), repository.to_owned()))
    });
    found.collect()
}

/// Where a path leads, with links followed, if it is a symbolic link.
fn link_target(deps: &Deps, path: &str) -> Option<ResolvedPath> {
    std::fs::read_link(deps.workspace.root().join(path)).ok()?;
    let found = deps.workspace.locate(path);
    // The change at the link's own path is ruled on elsewhere; here the rules are asked about the target.
    Some(ResolvedPath {
        asked: found.path.clone(),
        ..found
    })
}

/// Who made the changes since the last measurement. If a background command is running, or has ended and is not
/// recorded yet, they are attributed to the model.
fn author(deps: &Deps, state: &RunState) -> Author {
    match state.author {
        Some(Author::TrustedStep) if !deps.trusted => Author::Call,
        Some(author) if !deps.scope.jobs.any_unreported() => author,
        _ => Author::Call,
    }
}

/// Who made the changes of ignore files since the last measurement. The checks of a trusted recipe count as its author.
pub(super) fn author_of_ignore_files(deps: &Deps, state: &RunState) -> Author {
    match only_checks_ran(deps, state) && deps.trusted {
        true => Author::TrustedStep,
        false => author(deps, state),
    }
}

/// A new file cannot stay if an old file, or the directory of one, must be restored at its path.
fn clear_the_way(unruled: &mut [Unruled]) {
    let due: BTreeSet<String> = unruled
        .iter()
        .filter(|unruled| unruled.is_due())
        .map(|unruled| unruled.path.clone())
        .collect();
    for unruled in unruled.iter_mut().filter(|unruled| unruled.left) {
        let ancestors = unruled
            .path
            .match_indices('/')
            .filter_map(|(at, _)| unruled.path.get(..at));
        let inside = format!("{}/", unruled.path);
        let above = due
            .range(inside.clone()..)
            .next()
            .is_some_and(|path| path.starts_with(&inside));
        unruled.left = !above && !ancestors.into_iter().any(|above| due.contains(above));
    }
}

impl RuledPatch {
    /// Checks that the patch contains no path that must stay out. A path that is not UTF-8 cannot be excluded by name.
    ///
    /// # Errors
    /// [`RunError::Ended`] with `deceptive_name` if it contains one.
    pub fn check(&self, deps: &Deps, delta: &Delta) -> Result<(), RunError> {
        let is_out = |path: &String| path.contains('\u{fffd}') && self.out.contains(&deps.shadow.at_top(path));
        let names = delta.files.iter().flat_map(|file| file.from.iter().chain([&file.path]));
        match names.into_iter().find(|path| is_out(path)) {
            None => Ok(()),
            Some(path) => Err(RunError::Ended(RunOutcome::new(
                Verdict::Denied,
                "deceptive_name",
                format!(
                    "the run changed {path}, whose name is not UTF-8: it cannot be undone or left out of the patch by name"
                ),
            ))),
        }
    }

    /// Checks that every path that differs between the run's own tree before (`before`) and now (`own`) was allowed:
    /// then so is every path of the patch.
    ///
    /// # Errors
    /// [`RunError::Ended`] with `not_put_back` if one was not; [`RunError::Environment`] if the trees cannot be
    /// compared.
    pub async fn check_own(&self, deps: &Deps, before: &Snapshot, own: &Snapshot) -> Result<(), RunError> {
        let differ = deps.shadow.path_changes(before, own).await.map_err(environment_error)?;
        match differ.keys().find(|path| !self.allowed.contains(*path)) {
            None => Ok(()),
            Some(path) => Err(RunError::Ended(RunOutcome::new(
                Verdict::Denied,
                "not_put_back",
                format!("the change of {path}, which no rule allows, could not be left out of the patch; restore it"),
            ))),
        }
    }

    /// Warnings (code, text) about changes that are new since the last measurement.
    pub fn warnings(&self, state: &RunState) -> Vec<(&'static str, String)> {
        let known: BTreeSet<&str> = listed_before(state).map(|unruled| unruled.path.as_str()).collect();
        // What stays may be grouped by directory.
        let is_known = |unruled: &Unruled| {
            let path = unruled.path.as_str();
            let mut above = path.match_indices('/').filter_map(|(at, _)| path.get(..=at));
            known.contains(path) || (unruled.left && above.any(|dir| known.contains(dir)))
        };
        let new = |wanted: fn(&Unruled) -> bool| {
            let chosen = self.unruled.iter().filter(|unruled| wanted(unruled));
            by_bound(chosen.filter(|unruled| !is_known(unruled)))
        };
        let mut warnings = Vec::new();
        for (bound, back) in new(|unruled| unruled.is_due() && !unruled.denied) {
            let names = first_names(back.into_iter());
            let message = match bound {
                None => format!("changes that no rule allows are put back: {names}"),
                Some(bound) => format!(
                    "changes are put back because {} ({}): {names}; {}",
                    bound.meaning, bound.code, bound.fix
                ),
            };
            warnings.push(("unruled", message));
        }
        for (bound, stay) in new(|unruled| unruled.left) {
            let names = first_names(stay.into_iter());
            let message = match bound {
                None => format!("new files that no rule allows stay in the tree and out of the patch: {names}"),
                Some(bound) => format!(
                    "files stay in the tree and out of the patch because {} ({}): {names}; {}",
                    bound.meaning, bound.code, bound.fix
                ),
            };
            warnings.push(("unruled_left", message));
        }
        warnings
    }

    /// The list for the record: what was put back before, what is put back now, and what stays; with the number of
    /// entries that were left out.
    pub fn listed(self, state: &RunState) -> (Vec<Unruled>, u64) {
        let (stay, back): (Vec<Unruled>, Vec<Unruled>) = self.unruled.into_iter().partition(|unruled| unruled.left);
        let (stay, omitted) = shortened(stay);
        let mut all: Vec<Unruled> = {
            let new: BTreeSet<&str> = back.iter().map(|unruled| unruled.path.as_str()).collect();
            let before = listed_before(state).filter(|old| !old.left && !new.contains(old.path.as_str()));
            before.cloned().collect()
        };
        all.extend(back);
        all.extend(stay);
        (all, omitted)
    }
}

fn listed_before(state: &RunState) -> impl Iterator<Item = &Unruled> {
    state.patch.iter().flat_map(|patch| &patch.unruled)
}

/// The paths by the bound that refuses them whatever the rules allow; under `None` those that only lack a rule.
fn by_bound<'u>(unruled: impl Iterator<Item = &'u Unruled>) -> Vec<(Option<&'static Code>, Vec<&'u str>)> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for unruled in unruled {
        let code = match unruled.code.as_str() {
            "no_rule" | "suspend_rule" => "",
            code => code,
        };
        found.entry(code).or_default().push(&unruled.path);
    }
    found
        .into_iter()
        .map(|(code, paths)| (codes::find(code), paths))
        .collect()
}

/// Groups new files by directory, relative to the top of the workspace, when there are too many to list one by one.
fn shortened(stay: Vec<Unruled>) -> (Vec<Unruled>, u64) {
    let mut stay = stay;
    if stay.len() > NAMED_FILES {
        let mut seen = BTreeSet::new();
        for unruled in &mut stay {
            if let Some((dir, _)) = unruled.path.split_once('/') {
                unruled.path = format!("{dir}/");
            }
        }
        stay.retain(|unruled| seen.insert(unruled.path.clone()));
    }
    let omitted = stay.len().saturating_sub(LISTED) as u64;
    stay.truncate(LISTED);
    (stay, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unruled(path: &str, change: PathChange) -> Unruled {
        Unruled {
            path: path.to_owned(),
            change,
            rule: None,
            code: "no_rule".to_owned(),
            denied: false,
            left: change == PathChange::Added,
            restored: false,
        }
    }

    #[test]
    fn what_is_in_the_way_of_an_old_file_is_removed() {
        let mut all = vec![
            unruled("a", PathChange::Deleted),
            unruled("a/new", PathChange::Added),
            unruled("ab", PathChange::Added),
            unruled("d", PathChange::Added),
            unruled("d/old", PathChange::Deleted),
            unruled("e-", PathChange::Added),
            unruled("e/old", PathChange::Modified),
        ];
        clear_the_way(&mut all);
        let stay: Vec<&str> = all.iter().filter(|u| u.left).map(|u| u.path.as_str()).collect();
        assert_eq!(stay, ["ab", "e-"]);
    }

    #[test]
    fn many_new_files_are_named_by_directory() {
        let few: Vec<Unruled> = (0..NAMED_FILES)
            .map(|n| unruled(&format!("d/{n}"), PathChange::Added))
            .collect();
        assert_eq!(shortened(few.clone()), (few, 0));
        let mut many: Vec<Unruled> = (0..5_000)
            .map(|n| unruled(&format!("d/e/{n}"), PathChange::Added))
            .collect();
        many.push(unruled("top", PathChange::Added));
        let (named, omitted) = shortened(many);
        let paths: Vec<&str> = named.iter().map(|unruled| unruled.path.as_str()).collect();
        assert_eq!((paths, omitted), (vec!["d/", "top"], 0));
        let flat: Vec<Unruled> = (0..1_500).map(|n| unruled(&n.to_string(), PathChange::Added)).collect();
        let (named, omitted) = shortened(flat);
        assert_eq!((named.len(), omitted), (LISTED, 500));
    }
}

//! Checks the patch against the policies once more before it is delivered: each path that it changes on the newer base,
//! as a write. Pure.

use super::DeliverStop;
use crate::base::event::FileChange;
use crate::policy::{Author, ChangeRuling, PolicySet, rule_change};
use std::collections::BTreeSet;

/// Limit of paths in a message.
const NAMED: usize = 10;

/// The policies that decide.
#[derive(Clone, Debug)]
pub struct PatchPolicies {
    pub policies: PolicySet,
    /// Whether allow rules must cover every path. With a run's recorded policies this is not so where a `run` step of
    /// the recipe, or a call that a person approved, may have changed paths that no rule allows: then only deny rules
    /// and protected paths apply.
    pub strict: bool,
    /// A policy set that refuses protected paths whatever `policies` say, used when `policies` come from the record: a
    /// recorded rule may name such a path, and a record from another machine cannot be trusted for that.
    pub floor: Option<PolicySet>,
}

/// Decides on these paths, which are relative to the top of the repository. `prefix`: the workspace's directory in it,
/// ending in `/`. Rules are relative to that directory, protected names to the top of the repository as well.
///
/// # Errors
/// [`DeliverStop::Policy`] with every path that may not change.
pub fn rule(rulers: &PatchPolicies, paths: &[String], prefix: &str) -> Result<(), DeliverStop> {
    let placed = |set: &PolicySet| {
        let mut set = set.clone();
        set.place_in_repository(prefix);
        set
    };
    let (policies, floor) = (placed(&rulers.policies), rulers.floor.as_ref().map(placed));
    let mut refused = Vec::new();
    for path in paths {
        let Some(local) = path.strip_prefix(prefix) else {
            refused.push(format!("{path} (outside the workspace `{prefix}`)"));
            continue;
        };
        let by = if rulers.strict {
            Author::Call
        } else {
            Author::TrustedStep
        };
        let by_floor = floor
            .as_ref()
            .map(|floor| rule_change(floor, local, Author::TrustedStep));
        let ruled = match by_floor {
            Some(denied @ ChangeRuling::Denied { .. }) => denied,
            _ => rule_change(&policies, local, by),
        };
        let (rule, code) = match ruled {
            ChangeRuling::Allowed => continue,
            ChangeRuling::Denied { rule, code } | ChangeRuling::Unruled { rule, code } => (rule, code),
        };
        refused.push(match rule {
            Some(rule) => format!("{path} ({code}, rule {rule})"),
            None => format!("{path} ({code})"),
        });
    }
    if refused.is_empty() {
        return Ok(());
    }
    let more = match refused.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    refused.truncate(NAMED);
    Err(DeliverStop::Policy(format!(
        "the policy does not allow changes to {}{more}",
        refused.join(", ")
    )))
}

/// The workspace's directory in the repository: the prefix that paths of the patch have and recorded paths lack.
///
/// # Errors
/// [`DeliverStop::Refused`] when the two do not name the same files.
pub fn prefix(paths: &[String], recorded: &[FileChange]) -> Result<String, DeliverStop> {
    let known: BTreeSet<&str> = recorded
        .iter()
        .flat_map(|change| std::iter::once(change.path.as_str()).chain(change.from.as_deref()))
        .collect();
    let Some(first) = paths.first() else {
        return Ok(String::new());
    };
    let fits = |prefix: &str| {
        let one = |path: &String| path.strip_prefix(prefix).is_some_and(|local| known.contains(local));
        paths.iter().all(one)
    };
    let mut ends: Vec<usize> = first.match_indices('/').map(|(at, _)| at + 1).collect();
    ends.insert(0, 0);
    let found = ends
        .into_iter()
        .filter_map(|end| first.get(..end))
        .find(|prefix| fits(prefix));
    found.map(str::to_owned).ok_or_else(|| {
        DeliverStop::Refused("the patch changes other files than those in the journal: it was altered".to_owned())
    })
}

/// Whether the `deliver` blocks of the policies limit lines.
pub fn limits_lines(rulers: &PatchPolicies) -> bool {
    rulers.policies.delivery_limits().max_lines.is_some()
}

/// Refuses a file whose lines cannot be counted, if the `deliver` blocks of the policies limit lines.
///
/// # Errors
/// [`DeliverStop::Policy`] with the file's name.
pub fn countable(rulers: &PatchPolicies, uncounted: Option<&str>) -> Result<(), DeliverStop> {
    match uncounted.filter(|_| limits_lines(rulers)) {
        Some(file) => Err(DeliverStop::Policy(format!(
            "{file} is not text, so its lines cannot be counted, and `deliver` limits them with `max_lines`"
        ))),
        None => Ok(()),
    }
}

/// Checks the size of a change against the `deliver` blocks of the policies.
///
/// # Errors
/// [`DeliverStop::Policy`] when a limit is exceeded.
pub fn measure(rulers: &PatchPolicies, files: u64, lines: u64) -> Result<(), DeliverStop> {
    let limits = rulers.policies.delivery_limits();
    let over = |what: &str, n: u64, most: Option<u64>| {
        let most = most.filter(|most| n > *most)?;
        Some(format!("{n} {what}, more than the {most} of `deliver`"))
    };
    let found = over("files", files, limits.max_files).or_else(|| over("lines", lines, limits.max_lines));
    match found {
        Some(why) => Err(DeliverStop::Policy(format!(
            "the change is larger than the policy allows: {why}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;
    use crate::policy::{KnownTools, PolicySource, load};

    fn set(text: &str) -> PolicySet {
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: text.to_owned(),
        };
        load(&mut SourceFiles::default(), &[source], &KnownTools::builtin())
            .unwrap()
            .0
    }

    fn rulers(text: &str, strict: bool) -> PatchPolicies {
        PatchPolicies {
            policies: set(text),
            strict,
            floor: None,
        }
    }

    #[test]
    fn a_recorded_policy_opens_no_protected_path() {
        let text = "version: 1\nrules:\n  - { allow: [write_file, replace], paths: [\".github/workflows/x.yml\"] }\n";
        let path = [".github/workflows/x.yml".to_owned()];
        let own = rulers(text, true);
        assert!(
            rule(&own, &path, "").is_ok(),
            "a policy of the command line may name it"
        );
        let recorded = PatchPolicies {
            floor: Some(set("version: 1\nextends: [builtin:edit]\n")),
            ..own
        };
        assert!(rule(&recorded, &path, "").is_err());
    }

    #[test]
    fn protected_names_hold_from_the_top_of_the_repository() {
        let own = rulers(
            "version: 1\nrules:\n  - { allow: [write_file, replace], paths: [\"ci.yml\", \"*.yml\"] }\n",
            true,
        );
        let edit = "version: 1\nextends: [builtin:edit]\n";
        let recorded = PatchPolicies {
            floor: Some(set(edit)),
            ..rulers(edit, false)
        };
        for (path, prefix, allowed) in [
            (".github/workflows/ci.yml", ".github/workflows/", false),
            (".github/workflows/ci.yml", ".github/", false),
            ("sub/ci.yml", "sub/", true),
        ] {
            let paths = [path.to_owned()];
            assert_eq!(rule(&recorded, &paths, prefix).is_ok(), allowed, "{path} {prefix}");
            assert_eq!(rule(&own, &paths, prefix).is_ok(), allowed, "{path} {prefix}");
        }
    }

    #[test]
    fn a_patch_is_ruled_as_writes_are() {
        let text = "version: 1\nrules:\n  - { allow: [write_file, replace], paths: [\"src/**\"] }\n  - { deny: \"*\", paths: [\"src/gen/**\"] }\n";
        let paths = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (path, prefix, strict, allowed) in [
            ("src/a.rs", "", true, true),
            ("docs/a.md", "", true, false),
            ("docs/a.md", "", false, true),
            ("src/gen/a.rs", "", false, false),
            (".github/workflows/x.yml", "", false, false),
            ("sub/src/a.rs", "sub/", true, true),
            ("other/src/a.rs", "sub/", false, false),
        ] {
            let ruled = rule(&rulers(text, strict), &paths(&[path]), prefix);
            assert_eq!(ruled.is_ok(), allowed, "{path} {prefix} {strict}: {ruled:?}");
        }
    }

    #[test]
    fn a_change_may_be_so_large() {
        let text = "version: 1\ndeliver: { max_files: 2, max_lines: 10 }\n";
        for (files, lines, allowed) in [(2, 10, true), (3, 1, false), (1, 11, false)] {
            assert_eq!(
                measure(&rulers(text, true), files, lines).is_ok(),
                allowed,
                "{files} {lines}"
            );
        }
        assert!(measure(&rulers("version: 1\n", true), 1_000, 1_000_000).is_ok());
        assert!(countable(&rulers(text, true), Some("a.bin")).is_err());
        assert!(countable(&rulers(text, true), None).is_ok());
        assert!(countable(&rulers("version: 1\n", true), Some("a.bin")).is_ok());
    }

    #[test]
    fn the_workspace_is_found_in_the_repository() {
        let change = |path: &str| FileChange {
            path: path.to_owned(),
            kind: "modified".to_owned(),
            from: None,
            added: None,
            removed: None,
        };
        let paths = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let recorded = [change("a.rs"), change("x/b.rs")];
        assert_eq!(prefix(&paths(&["a.rs", "x/b.rs"]), &recorded).unwrap(), "");
        assert_eq!(prefix(&paths(&["p/q/a.rs", "p/q/x/b.rs"]), &recorded).unwrap(), "p/q/");
        assert!(prefix(&paths(&["a.rs", "c.rs"]), &recorded).is_err());
    }
}

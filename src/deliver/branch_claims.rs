//! The branches that the runs of one call are delivered to, so that none of them replaces the patch of another.

use super::DeliverStop;
use super::address::RemoteAddress;
use super::deliverable::Deliverable;
use crate::base::sync::lock;
use crate::workspace::patch::{self, Repository};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Mutex;

/// The branches of one call, each with the run that has it.
#[derive(Debug, Default)]
pub struct BranchClaims(Mutex<HashMap<(String, String), Claim>>);

/// The run that has a branch.
#[derive(Debug)]
struct Claim {
    /// The job or run, for messages.
    holder: String,
    patch_digest: String,
}

impl BranchClaims {
    /// Claims a branch of a repository, as [`destination`] names it, for a run. Runs with the same patch may share one.
    ///
    /// # Errors
    /// [`DeliverStop::Refused`]: a run with another patch has it.
    pub fn claim(&self, destination: &str, branch: &str, of: &Deliverable) -> Result<(), DeliverStop> {
        match lock(&self.0).entry((destination.to_owned(), branch.to_owned())) {
            Entry::Vacant(free) => {
                free.insert(Claim {
                    holder: match &of.job {
                        Some(job) => format!("job {}", job.name),
                        None => format!("run {}", of.run),
                    },
                    patch_digest: of.patch_digest.clone(),
                });
                Ok(())
            }
            Entry::Occupied(taken) if taken.get().patch_digest == of.patch_digest => Ok(()),
            Entry::Occupied(taken) => Err(DeliverStop::Refused(format!(
                "the branch {branch} is used by {} of this call with another patch: add `{{job}}` to --branch, or to `deliver.branch` in the \
                 recipe",
                taken.get().holder
            ))),
        }
    }
}

/// The repository that a branch goes to, in one spelling for all addresses of it that can be compared; `None` if there is
/// none.
pub fn destination(repository: Option<&Repository>, remote: Option<&RemoteAddress>) -> Option<String> {
    let Some(remote) = remote else {
        return repository.map(|repository| real(&repository.common_dir));
    };
    if let Some(dir) = &remote.directory {
        let found = patch::repository_at(&dir.canonicalize().unwrap_or_else(|_| dir.clone()));
        return Some(real(&found.map_or_else(|| dir.clone(), |found| found.common_dir)));
    }
    Some(match (&remote.host, &remote.project) {
        // Over https and ssh it is the same project, on other ports.
        (Some(host), Some(project)) => format!("{host}/{}", project.to_ascii_lowercase()),
        _ => remote.url.clone(),
    })
}

/// A path without links, if it is there.
fn real(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.components().collect());
    real.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = |text: &str| {
            let remote = RemoteAddress::parse(text, dir.path()).unwrap();
            destination(None, Some(&remote)).unwrap()
        };
        for (one, other, same) in [
            ("https://h.org/o/n.git", "git@h.org:O/n", true),
            ("https://u:p@h.org/o/n", "ssh://git@h.org:22/o/n.git", true),
            ("https://h.org/o/n", "https://h.org/o/m", false),
            ("https://h.org/o/n", "https://i.org/o/n", false),
            ("git://h.org/n", "git://h.org/m", false),
            ("w", "./w", true),
            ("w", "v", false),
        ] {
            assert_eq!(name(one) == name(other), same, "{one} {other}");
        }
    }
}

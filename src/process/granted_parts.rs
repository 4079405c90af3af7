//! Keeps files with credentials out of granted places: settings of version managers lie among their programs, for example
//! `etc/npmrc` of a version of node.

use std::path::{Path, PathBuf};

/// How many levels below a granted place are looked at: `tools/image/node/22.0.0/etc/npmrc` is the fifth below `tools`.
const MOST_DEPTH: usize = 6;
/// The most names that are looked at in all places.
const MOST_NAMES: usize = 20_000;
/// Directories of programs, libraries and packages: they hold no settings, and many files.
const CODE: [&str; 14] = [
    "bin",
    "caches",
    "include",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "node_modules",
    "objects",
    "pkgs",
    "registry",
    "repository",
    "share",
    "site-packages",
];

/// Granted places, split by whether they hold credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Places to grant. One that holds credentials is replaced by those of its entries that hold none.
    pub without: Vec<PathBuf>,
    /// Files and directories that hold credentials.
    pub credentials: Vec<PathBuf>,
}

/// Looks through granted places. Links are not followed, and are not among the entries that stand for a place: what they
/// lead to is granted by its own path. `is_secret`: whether a path is one of credentials.
pub(super) fn sorted(places: &[PathBuf], is_secret: fn(&str) -> bool) -> Sorted {
    let mut all = Sorted::default();
    let mut left = MOST_NAMES;
    for place in places {
        match look(place, is_secret, 0, &mut left) {
            None => all.without.push(place.clone()),
            Some(mut found) => {
                all.without.append(&mut found.without);
                all.credentials.append(&mut found.credentials);
            }
        }
    }
    all
}

/// `None` if no credentials are in it.
fn look(place: &Path, is_secret: fn(&str) -> bool, depth: usize, left: &mut usize) -> Option<Sorted> {
    if is_secret(&place.to_string_lossy()) {
        return Some(Sorted {
            without: Vec::new(),
            credentials: vec![place.to_owned()],
        });
    }
    let is_code = place
        .file_name()
        .is_some_and(|name| CODE.iter().any(|code| name == *code));
    if is_code || depth >= MOST_DEPTH {
        return None;
    }
    let mut found = Sorted::default();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let Some(less) = left.checked_sub(1) else { break };
        *left = less;
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(std::fs::FileType::is_symlink) && !is_secret(&path.to_string_lossy()) {
            continue;
        }
        let below = match kind.is_ok_and(|kind| kind.is_dir()) {
            true => look(&path, is_secret, depth + 1, left),
            false => is_secret(&path.to_string_lossy()).then(|| Sorted {
                without: Vec::new(),
                credentials: vec![path.clone()],
            }),
        };
        match below {
            None => found.without.push(path),
            Some(mut below) => {
                found.without.append(&mut below.without);
                found.credentials.append(&mut below.credentials);
            }
        }
    }
    (!found.credentials.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_with_credentials_is_granted_by_its_other_entries() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in [
            "versions/node/v22/etc/npmrc",
            "versions/node/v22/bin/node",
            "versions/node/v20/bin/node",
            "versions/node/v20/lib/npmrc",
            "plain/bin/x",
        ] {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), "x").unwrap();
        }
        std::os::unix::fs::symlink("v22", at("versions/node/22")).unwrap();
        let mut found = sorted(&[at("versions"), at("plain"), at("nothing")], |path| {
            path.ends_with("/npmrc")
        });
        found.without.sort();
        let without = ["nothing", "plain", "versions/node/v20", "versions/node/v22/bin"].map(at);
        assert_eq!(found.without, without);
        assert_eq!(found.credentials, [at("versions/node/v22/etc/npmrc")]);
    }
}

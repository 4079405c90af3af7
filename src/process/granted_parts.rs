//! Keeps files with credentials out of granted places: version managers keep settings among their programs, for example
//! `etc/npmrc` of a version of node.

use std::path::{Path, PathBuf};

/// How many levels below a granted place are searched: `tools/image/node/22.0.0/etc/npmrc` is the fifth below `tools`.
const MOST_DEPTH: usize = 6;
/// Upper limit for the names that are examined in one place. If there are more, nothing is granted, because the rest
/// may contain credentials.
const MOST_NAMES: usize = 50_000;
/// The name of this limit.
const LIMIT: &str = "limit:toolchain_names";
/// Directories of programs, libraries and packages: they hold no settings, and many files.
const CODE: [&str; 22] = [
    "bin",
    "cache",
    "caches",
    "checkouts",
    "dists",
    "docs",
    "download",
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
    "sbin",
    "share",
    "site-packages",
    "src",
    "store",
];

/// Granted places, split by whether they hold credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Places to grant. A place with credentials is replaced by its entries without credentials.
    pub without: Vec<PathBuf>,
    /// Files and directories with credentials.
    pub credentials: Vec<PathBuf>,
}

/// An error: a place has more names than the limit.
struct Ended;

/// Searches granted places for credentials. Links are not followed, and are not among the entries that replace a place:
/// their targets are granted by their own paths. `is_secret`: whether a path is that of credentials. The error is a
/// sentence that names the place with too many names.
pub(super) fn sorted(places: &[PathBuf], is_secret: fn(&str) -> bool) -> Result<Sorted, String> {
    up_to(places, is_secret, MOST_NAMES)
}

/// Like [`sorted`]. `most`: the upper limit for the names of each place.
fn up_to(places: &[PathBuf], is_secret: fn(&str) -> bool, most: usize) -> Result<Sorted, String> {
    let mut all = Sorted::default();
    for place in places {
        let mut left = most;
        match look(place, is_secret, 0, &mut left) {
            Ok(None) => all.without.push(place.clone()),
            Ok(Some(mut found)) => {
                all.without.append(&mut found.without);
                all.credentials.append(&mut found.credentials);
            }
            Err(Ended) => {
                return Err(format!(
                    "{LIMIT}: {} of a toolchain of the policy has more than {most} names beside its programs, libraries \
                     and caches, and could not be searched for credentials: move out what is not part of it, or leave \
                     the toolchain out of `toolchains`",
                    place.display()
                ));
            }
        }
    }
    Ok(all)
}

/// `None` if no credentials are in it.
fn look(place: &Path, is_secret: fn(&str) -> bool, depth: usize, left: &mut usize) -> Result<Option<Sorted>, Ended> {
    if is_secret(&place.to_string_lossy()) {
        return Ok(Some(Sorted {
            without: Vec::new(),
            credentials: vec![place.to_owned()],
        }));
    }
    let is_code = place
        .file_name()
        .is_some_and(|name| CODE.iter().any(|code| name == *code));
    if is_code || depth >= MOST_DEPTH {
        return Ok(None);
    }
    let mut found = Sorted::default();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        *left = left.checked_sub(1).ok_or(Ended)?;
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(std::fs::FileType::is_symlink) && !is_secret(&path.to_string_lossy()) {
            continue;
        }
        let below = match kind.is_ok_and(|kind| kind.is_dir()) {
            true => look(&path, is_secret, depth + 1, left)?,
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
    Ok((!found.credentials.is_empty()).then_some(found))
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
        })
        .unwrap();
        found.without.sort();
        let without = ["nothing", "plain", "versions/node/v20", "versions/node/v22/bin"].map(at);
        assert_eq!(found.without, without);
        assert_eq!(found.credentials, [at("versions/node/v22/etc/npmrc")]);
    }

    #[test]
    fn every_place_has_a_limit_of_its_own_and_nothing_is_granted_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for name in 0..8 {
            for path in [format!("a/cache/{name}"), format!("a/{name}"), format!("b/{name}")] {
                std::fs::create_dir_all(at(&path)).unwrap();
            }
        }
        std::fs::create_dir_all(at("b/etc")).unwrap();
        std::fs::write(at("b/etc/npmrc"), "x").unwrap();
        let is_secret = |path: &str| path.ends_with("/npmrc");
        let found = up_to(&[at("a"), at("b")], is_secret, 10).unwrap();
        assert_eq!(found.credentials, [at("b/etc/npmrc")]);
        let why = up_to(&[at("a"), at("b")], is_secret, 8).unwrap_err();
        assert!(
            why.starts_with(LIMIT) && why.contains(&at("a").display().to_string()),
            "{why}"
        );
    }
}

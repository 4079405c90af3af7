//! Tests of the comparison under grants of single places.

use super::*;

fn entry(path: &str) -> WritePath {
    WritePath {
        path: path.to_owned(),
        kind: WriteKind::Entry,
    }
}

fn paths(paths: &[WritePath], maybe: &[&str]) -> Writes {
    Writes::Paths {
        paths: paths.to_vec(),
        maybe: maybe.iter().map(|dir| (*dir).to_owned()).collect(),
    }
}

/// What is undone of a change, at this level and under this grant, and whether the tree is as before.
fn granted(
    level: SandboxLevel,
    writes: &Writes,
    at_exec: &[WritePath],
    change: impl FnOnce(&Path),
) -> (Vec<String>, bool) {
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = level;
    let before = picture(dir.path());
    let (mut guard, _) = Guarded::take(&confinement, writes).unwrap();
    change(dir.path());
    let undone = guard.compare(at_exec);
    assert!(undone.iter().all(|one| one.restored), "{undone:?}");
    let names = undone.into_iter().map(|one| one.path).collect();
    (names, picture(dir.path()) == before)
}

#[test]
fn what_was_not_granted_is_undone() {
    let two = paths(&[entry("sub/new/x"), entry("free")], &[]);
    // At `full` mounts keep existing entries: only new names are compared.
    let (undone, _) = granted(SandboxLevel::Full, &two, &[], |dir| {
        fs::create_dir_all(dir.join("sub/new/x")).unwrap();
        fs::write(dir.join("sub/new/x/kept"), "x").unwrap();
        fs::write(dir.join("sub/new/other"), "x").unwrap();
        fs::write(dir.join("more"), "x").unwrap();
        fs::create_dir_all(dir.join("sub/new/x/a")).unwrap();
        fs::write(dir.join("sub/new/x/a/.npmrc"), "x").unwrap();
        assert!(dir.join("sub/new/x/kept").exists());
    });
    assert_eq!(undone, ["more", "sub/new/other", "sub/new/x/a/.npmrc"]);
    let (undone, whole) = granted(SandboxLevel::Landlock, &two, &[], |dir| {
        fs::write(dir.join(".git/config"), "evil").unwrap();
        fs::remove_file(dir.join("sub/.npmrc")).unwrap();
        fs::remove_dir(dir.join("sub/deep")).unwrap();
        symlink("/etc/passwd", dir.join("sub/deep")).unwrap();
    });
    assert_eq!(undone, [".git/config", "sub/.npmrc", "sub/deep"]);
    assert!(whole);
    let (undone, whole) = granted(SandboxLevel::Landlock, &two, &[], |dir| {
        fs::write(dir.join("free"), "new").unwrap()
    });
    assert_eq!((undone.len(), whole), (0, false), "the granted one is written");
}

#[test]
fn what_a_command_removed_for_a_name_that_was_undone_is_put_back() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
        let (undone, whole) = granted(level, &paths(&[entry("free")], &[]), &[], |dir| {
            fs::rename(dir.join("free"), dir.join("free.gz")).unwrap();
        });
        assert_eq!(undone, ["free", "free.gz"], "{level:?}");
        assert!(whole, "{level:?}");
        // A removal alone is granted, and so is one whose new name is.
        let (undone, whole) = granted(level, &paths(&[entry("free")], &[]), &[], |dir| {
            fs::remove_file(dir.join("free")).unwrap();
        });
        assert_eq!((undone.len(), whole), (0, false), "{level:?}");
        let both = paths(&[entry("free"), entry("free.gz")], &[]);
        let (undone, whole) = granted(level, &both, &[], |dir| {
            fs::rename(dir.join("free"), dir.join("free.gz")).unwrap();
        });
        assert_eq!((undone.len(), whole), (0, false), "{level:?}");
    }
}

#[test]
fn what_a_command_moved_to_a_place_that_was_undone_is_moved_back() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
        let two = paths(&[entry("free"), entry("sub")], &[]);
        // A link cannot be kept by a mount, so it can be replaced at both levels.
        let (undone, whole) = granted(level, &two, &[], |dir| {
            fs::rename(dir.join("free"), dir.join(".envrc")).unwrap();
        });
        assert_eq!(
            (undone, whole),
            (vec![".envrc".to_owned(), "free".to_owned()], true),
            "{level:?}"
        );
        let (undone, whole) = granted(level, &two, &[], |dir| {
            fs::write(dir.join(".envrc.new"), fs::read(dir.join("free")).unwrap()).unwrap();
            fs::rename(dir.join(".envrc.new"), dir.join(".envrc")).unwrap();
            fs::remove_file(dir.join("free")).unwrap();
        });
        assert_eq!(
            (undone, whole),
            (vec![".envrc".to_owned(), "free".to_owned()], true),
            "{level:?}, as a copy"
        );
        let (undone, whole) = granted(level, &two, &[], |dir| {
            fs::rename(dir.join("sub"), dir.join("new")).unwrap();
        });
        assert!(
            whole && undone.iter().any(|path| path == "new"),
            "{level:?}: {undone:?}"
        );
        let (undone, whole) = granted(level, &two, &[], |dir| {
            fs::create_dir_all(dir.join("new/more")).unwrap();
            fs::rename(dir.join("sub/deep"), dir.join("new/more/deep")).unwrap();
            fs::rename(dir.join("free"), dir.join("new/free")).unwrap();
        });
        assert!(whole, "{level:?}: {undone:?}");
    }
}

#[test]
fn what_is_granted_at_exec_counts_and_the_rest_is_undone() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
        let change = |dir: &Path| {
            fs::create_dir(dir.join("sub/made")).unwrap();
            fs::write(dir.join("sub/made/a"), "a").unwrap();
            fs::write(dir.join("sub/other"), "b").unwrap();
        };
        let (undone, _) = granted(level, &paths(&[], &["sub"]), &[entry("sub/made/a")], change);
        assert_eq!(undone, ["sub/other"], "{level:?}");
        let (undone, whole) = granted(level, &paths(&[], &["sub"]), &[], change);
        assert_eq!((undone.len(), whole), (2, true), "{level:?}: {undone:?}");
    }
}

/// The entries of a directory are looked at through one handle, which must not be that of a directory that is elsewhere.
#[test]
fn a_directory_that_was_replaced_is_compared_where_it_is_now() {
    for back in [false, true] {
        let (undone, whole) = granted(SandboxLevel::Landlock, &paths(&[entry("x")], &[]), &[], |dir| {
            fs::rename(dir.join("sub"), dir.join("moved")).unwrap();
            fs::create_dir(dir.join("sub")).unwrap();
            let text = if back { "sub/.npmrc" } else { "other" };
            fs::write(dir.join("sub/.npmrc"), text).unwrap();
        });
        assert!(whole, "{undone:?}");
        assert!(undone.iter().any(|path| path == "moved"), "{undone:?}");
        assert!(undone.iter().any(|path| path == "sub/deep"), "{undone:?}");
    }
}

#[test]
fn nothing_granted_looks_at_nothing() {
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Full;
    let (mut guard, reach) = Guarded::take(&confinement, &Writes::Nothing).unwrap();
    assert!(guard.guard.is_none() && !reach.tree && !reach.sockets && reach.writable.is_empty());
    fs::write(dir.path().join(".git/config"), "by somebody else").unwrap();
    assert!(guard.compare(&[]).is_empty());
}

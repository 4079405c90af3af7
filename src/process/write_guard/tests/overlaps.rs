//! Tests of commands whose lives overlap: the guard of the second one is taken when the first has changed something.

use super::*;

type Change = fn(&Path);

/// What a first command does, what it does later, and what both may not have changed in the end.
const CHANGES: [(Change, Change); 8] = [
    (|dir| fs::write(dir.join(".git/config"), "evil").unwrap(), |_| {}),
    (|dir| fs::create_dir_all(dir.join("new/thing/deep")).unwrap(), |_| {}),
    (|dir| fs::remove_file(dir.join("sub/.npmrc")).unwrap(), |_| {}),
    (
        |dir| fs::set_permissions(dir.join(".git/hooks/one"), Permissions::from_mode(0o755)).unwrap(),
        |_| {},
    ),
    (
        |dir| {
            fs::rename(dir.join("sub"), dir.join("real")).unwrap();
            fs::create_dir(dir.join("sub")).unwrap();
            fs::write(dir.join("sub/.npmrc"), "evil").unwrap();
        },
        |dir| {
            fs::remove_dir_all(dir.join("sub")).unwrap();
            fs::rename(dir.join("real"), dir.join("sub")).unwrap();
        },
    ),
    (
        |dir| {
            fs::rename(dir.join(".git"), dir.join("g")).unwrap();
            fs::create_dir(dir.join(".git")).unwrap();
            fs::write(dir.join(".git/config"), "evil").unwrap();
        },
        |_| {},
    ),
    (
        |dir| {
            fs::create_dir(dir.join("fresh")).unwrap();
            fs::write(dir.join("fresh/.npmrc"), "evil").unwrap();
        },
        |dir| fs::remove_dir_all(dir.join("fresh")).unwrap(),
    ),
    (
        |dir| {
            fs::remove_dir_all(dir.join(".git/hooks")).unwrap();
            fs::write(dir.join(".git/hooks"), "evil").unwrap();
        },
        |_| {},
    ),
];

/// Whether the closed paths of [`tree`] are as they were.
fn assert_closed_as_before(dir: &Path, of: &str) {
    for name in [".git/config", ".git/hooks/one", "sub/.npmrc", "free"] {
        let now = fs::read_to_string(dir.join(name));
        assert_eq!(now.ok().as_deref(), Some(name), "{of}");
    }
    let mode = fs::metadata(dir.join(".git/hooks/one")).unwrap().mode();
    assert_eq!(mode & 0o111, 0, "{of}");
    for name in ["new/thing", "fresh/.npmrc", "real/.npmrc"] {
        assert!(!dir.join(name).exists(), "{of}: {name}");
    }
}

#[test]
fn what_a_living_command_changed_is_no_state_to_restore() {
    for (number, (first, later)) in CHANGES.into_iter().enumerate() {
        let (dir, confinement) = tree(&PROTECTED);
        let older = take(&confinement);
        first(dir.path());
        let newer = take(&confinement);
        later(dir.path());
        compare(older);
        assert_closed_as_before(dir.path(), &format!("older of {number}"));
        assert!(compare(newer).is_empty(), "{number}");
        assert_closed_as_before(dir.path(), &format!("newer of {number}"));
    }
}

#[test]
fn what_a_living_command_changed_is_undone_and_reported_as_its_own() {
    for (number, (first, later)) in CHANGES.into_iter().enumerate() {
        let (dir, confinement) = tree(&PROTECTED);
        let older = take(&confinement);
        first(dir.path());
        let newer = take(&confinement);
        assert!(compare(newer).is_empty(), "{number}");
        later(dir.path());
        compare(older);
        assert_closed_as_before(dir.path(), &format!("{number}"));
    }
}

#[test]
fn a_command_that_does_again_what_was_undone_is_undone_too() {
    for (number, (first, _)) in CHANGES.into_iter().enumerate() {
        let (dir, confinement) = tree(&PROTECTED);
        let older = take(&confinement);
        first(dir.path());
        let newer = take(&confinement);
        compare(older);
        for left in ["g", "real", "fresh"] {
            let _ = fs::remove_dir_all(dir.path().join(left));
        }
        let last = take(&confinement);
        let _ = fs::remove_dir(dir.path().join("new"));
        first(dir.path());
        assert!(!compare(newer).is_empty(), "{number}");
        assert_closed_as_before(dir.path(), &format!("newer of {number}"));
        compare(last);
        assert_closed_as_before(dir.path(), &format!("last of {number}"));
    }
}

/// Also where the path is closed by no rule, only granted to neither.
#[test]
fn what_was_not_granted_to_a_living_command_is_no_state_to_restore() {
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Landlock;
    let writes = |path: &str| Writes::Paths {
        paths: vec![WritePath {
            path: path.to_owned(),
            kind: WriteKind::Entry,
        }],
        maybe: Vec::new(),
    };
    for name in ["sub/one", "sub/two"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let take = |path: &str| Guarded::take(&confinement, &writes(path)).unwrap().0;
    let older = take("sub/one");
    fs::write(dir.path().join("sub/two"), "evil").unwrap();
    fs::write(dir.path().join("sub/three"), "evil").unwrap();
    fs::write(dir.path().join("sub/one"), "granted").unwrap();
    let newer = take("sub/four");
    fs::write(dir.path().join("sub/four"), "granted").unwrap();
    assert_eq!(compare(older), ["sub/three", "sub/two"]);
    assert!(compare(newer).is_empty());
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
    assert_eq!(read("sub/two").as_deref(), Some("sub/two"));
    assert_eq!(read("sub/three"), None);
    assert_eq!(read("sub/one").as_deref(), Some("granted"));
    assert_eq!(read("sub/four").as_deref(), Some("granted"));
}

/// The kernel takes a mount away when the place is removed where it is not mounted.
#[test]
fn another_directory_at_a_mounted_place_ends_the_run() {
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Full;
    let guard = take(&confinement);
    fs::rename(dir.path().join(".git"), dir.path().join("sub/g")).unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    assert_eq!(compare(guard), [".git (could not be put back)"]);
    fs::remove_dir(dir.path().join(".git")).unwrap();
    fs::rename(dir.path().join("sub/g"), dir.path().join(".git")).unwrap();
    assert!(compare(take(&confinement)).is_empty());
}

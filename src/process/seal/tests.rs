//! Tests of the seal on real trees.

use super::*;
use crate::process::Network;
use tempfile::TempDir;

fn tree(protected: &[&str]) -> (TempDir, Confinement) {
    let dir = tempfile::tempdir().unwrap();
    for name in [".git/hooks", ".git/objects/ab", "sub/deep"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    for name in [
        ".git/config",
        ".git/hooks/one",
        ".git/objects/ab/c",
        "sub/.npmrc",
        "free",
    ] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    symlink("free", dir.path().join(".envrc")).unwrap();
    let confinement = Confinement {
        level: Level::None,
        workspace: dir.path().to_path_buf(),
        readable: Vec::new(),
        writable: Vec::new(),
        hidden: Vec::new(),
        protected: protected.iter().map(|name| (*name).to_owned()).collect(),
        network: Network::Open,
        witness: false,
        env: Vec::new(),
    };
    (dir, confinement)
}

const PROTECTED: [&str; 4] = [".git", "**/.npmrc", ".envrc", "new/thing"];

/// Everything below, as text.
fn picture(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let data = fs::symlink_metadata(&path).unwrap();
        let what = if data.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if data.is_dir() {
            lines.extend(picture(&path));
            "/".to_owned()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        lines.push(format!("{} {:o} {what}", path.display(), data.mode()));
    }
    lines.sort();
    lines
}

fn mended(change: impl FnOnce(&Path)) -> (Vec<String>, bool) {
    let (dir, confinement) = tree(&PROTECTED);
    let before = picture(dir.path());
    let seal = Seal::take(&confinement);
    change(dir.path());
    let undone = seal.mend();
    (undone, picture(dir.path()) == before)
}

#[test]
fn what_is_not_touched_is_not_named() {
    assert_eq!(mended(|_| {}), (vec![], true));
    let touched = |dir: &Path| fs::write(dir.join(".git/config"), ".git/config").unwrap();
    assert_eq!(mended(touched), (vec![], true));
}

#[test]
fn an_object_that_a_local_clone_shares_may_be_touched_by_it() {
    let object = ".git/objects/ab/c";
    let touch = |dir: &Path| {
        let file = fs::File::options().write(true).open(dir.join(object)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    let named = format!("{object} (could not be put back)");
    let (undone, _) = mended(touch);
    assert_eq!(undone.join(" "), named);
    let (dir, confinement) = tree(&PROTECTED);
    let clone = tempfile::tempdir().unwrap();
    fs::hard_link(dir.path().join(object), clone.path().join("c")).unwrap();
    let seal = Seal::take(&confinement);
    touch(dir.path());
    assert_eq!(seal.mend(), Vec::<String>::new());
    fs::write(dir.path().join(object), "other").unwrap();
    assert_eq!(seal.mend().join(" "), named);
}

#[test]
fn every_kind_of_change_is_undone() {
    type Change = fn(&Path);
    let changes: [(Change, &[&str]); 10] = [
        (
            |dir| fs::write(dir.join(".git/config"), "evil").unwrap(),
            &[".git/config"],
        ),
        (
            |dir| fs::remove_file(dir.join(".git/hooks/one")).unwrap(),
            &[".git/hooks/one"],
        ),
        (
            |dir| fs::write(dir.join(".git/hooks/two"), "x").unwrap(),
            &[".git/hooks/two"],
        ),
        (
            |dir| fs::write(dir.join(".git/objects/ab/d"), "x").unwrap(),
            &[".git/objects/ab/d"],
        ),
        (
            |dir| fs::set_permissions(dir.join(".git/hooks/one"), Permissions::from_mode(0o755)).unwrap(),
            &[".git/hooks/one"],
        ),
        (
            |dir| fs::create_dir_all(dir.join("new/thing/x")).unwrap(),
            &["new/thing"],
        ),
        (
            |dir| fs::write(dir.join("sub/deep/.npmrc"), "x").unwrap(),
            &["sub/deep/.npmrc"],
        ),
        (
            |dir| {
                fs::remove_file(dir.join(".envrc")).unwrap();
                symlink("/etc/passwd", dir.join(".envrc")).unwrap();
            },
            &[".envrc"],
        ),
        (
            |dir| {
                fs::remove_file(dir.join("sub/.npmrc")).unwrap();
                fs::create_dir(dir.join("sub/.npmrc")).unwrap();
                fs::write(dir.join("sub/.npmrc/x"), "x").unwrap();
            },
            &["sub/.npmrc"],
        ),
        (|dir| fs::create_dir(dir.join(".git/empty")).unwrap(), &[".git/empty"]),
    ];
    for (at, (change, names)) in changes.into_iter().enumerate() {
        let (undone, whole) = mended(change);
        assert_eq!(undone, names, "change {at}");
        assert!(whole || names == ["new/thing"], "change {at}");
    }
}

#[test]
fn a_moved_tree_comes_back_and_its_copy_goes() {
    let (undone, _) = mended(|dir| fs::rename(dir.join("sub"), dir.join("other")).unwrap());
    assert_eq!(undone, ["other/.npmrc", "sub/.npmrc"]);
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let away = tempfile::tempdir().unwrap();
    fs::create_dir(away.path().join("hooks")).unwrap();
    fs::write(away.path().join("hooks/one"), "keep").unwrap();
    let (undone, whole) = mended(|dir| {
        fs::rename(dir.join(".git"), dir.join("moved")).unwrap();
        symlink(away.path(), dir.join(".git")).unwrap();
        fs::remove_dir_all(dir.join("moved/objects")).unwrap();
    });
    assert!(undone.contains(&".git/hooks/one".to_owned()));
    assert!(
        undone.iter().any(|name| name.ends_with("ab/c (could not be put back)")),
        "{undone:?}"
    );
    assert!(!whole);
    assert_eq!(fs::read_to_string(away.path().join("hooks/one")).unwrap(), "keep");
}

#[test]
fn what_a_rule_opened_may_change() {
    let (dir, confinement) = tree(&[".git", "!.git/config"]);
    let seal = Seal::take(&confinement);
    assert!(seal.frozen().is_empty());
    fs::write(dir.path().join(".git/config"), "new").unwrap();
    fs::write(dir.path().join(".git/other"), "new").unwrap();
    assert_eq!(seal.mend(), [".git/other"]);
    assert_eq!(fs::read_to_string(dir.path().join(".git/config")).unwrap(), "new");
}

#[test]
fn existing_paths_that_are_no_links_can_be_frozen() {
    let (_dir, confinement) = tree(&PROTECTED);
    let frozen = Seal::take(&confinement).frozen();
    assert_eq!(frozen, [PathBuf::from(".git"), PathBuf::from("sub/.npmrc")]);
}

#[test]
fn a_run_directory_is_left_to_the_run() {
    let (dir, mut confinement) = tree(&[".overnight"]);
    let runs = dir.path().join(".overnight/runs");
    fs::create_dir_all(runs.join("1")).unwrap();
    fs::create_dir_all(runs.join("2")).unwrap();
    fs::write(runs.join("1/journal.jsonl"), "old\n").unwrap();
    fs::write(runs.join("2/journal.jsonl"), "other\n").unwrap();
    confinement.hidden.push(runs.join("1"));
    let seal = Seal::take(&confinement);
    fs::write(runs.join("1/journal.jsonl"), "old\nnew\n").unwrap();
    fs::create_dir(runs.join("1/results")).unwrap();
    fs::write(runs.join("2/journal.jsonl"), "changed\n").unwrap();
    assert_eq!(seal.mend(), [".overnight/runs/2/journal.jsonl"]);
    assert_eq!(fs::read_to_string(runs.join("1/journal.jsonl")).unwrap(), "old\nnew\n");
    assert!(runs.join("1/results").is_dir());
    assert_eq!(fs::read_to_string(runs.join("2/journal.jsonl")).unwrap(), "other\n");
}

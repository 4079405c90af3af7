//! Places of names that try to leave, to loop or to be misread.

use super::*;
use std::os::unix::fs::symlink;

fn tree() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("src/deep")).unwrap();
    std::fs::create_dir_all(root.join(".overnight/runs")).unwrap();
    std::fs::create_dir_all(dir.path().join("other")).unwrap();
    std::fs::write(root.join("src/a.rs"), "a").unwrap();
    std::fs::write(root.join(".overnight/runs/journal"), "j").unwrap();
    std::fs::write(dir.path().join("other/secret"), "s").unwrap();
    std::fs::write(root.join("one"), "1").unwrap();
    std::fs::hard_link(root.join("one"), root.join("two")).unwrap();
    symlink("src/a.rs", root.join("link")).unwrap();
    symlink("../other", root.join("out")).unwrap();
    symlink("../root/src", root.join("round")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("../other/missing", root.join("dangling")).unwrap();
    symlink(".overnight/runs", root.join("runs")).unwrap();
    symlink("../../root/one", root.join("src/up")).unwrap();
    let workspace = Workspace::open(&root).unwrap();
    (dir, workspace)
}

#[test]
fn names_lead_where_the_kernel_would_go() {
    let (_dir, workspace) = tree();
    let cases = [
        ("", "", Found::Dir),
        (".", "", Found::Dir),
        ("./src//a.rs", "src/a.rs", Found::File),
        ("src/deep/../a.rs", "src/a.rs", Found::File),
        ("link", "src/a.rs", Found::File),
        ("round/a.rs", "src/a.rs", Found::File),
        ("round/../one", "one", Found::HardLinked),
        ("src/up", "one", Found::HardLinked),
        ("new/dir/file", "new/dir/file", Found::Nothing),
        ("new/../src/a.rs", "src/a.rs", Found::File),
        ("src/a.rs/below", "src/a.rs/below", Found::Nothing),
        (".overnight/runs/journal", ".overnight/runs/journal", Found::Nothing),
        ("runs/journal", ".overnight/runs/journal", Found::Nothing),
        ("../root/one", "one", Found::HardLinked),
    ];
    for (asked, path, found) in cases {
        let place = workspace.locate(asked);
        assert_eq!(
            (place.path.as_str(), place.inside, place.found),
            (path, true, found),
            "{asked}"
        );
        let absolute = workspace.root().join(asked);
        let place = workspace.locate(absolute.to_str().unwrap());
        assert_eq!(
            (place.path.as_str(), place.inside, place.found),
            (path, true, found),
            "/{asked}"
        );
    }
}

#[test]
fn what_leaves_is_outside() {
    let (_dir, workspace) = tree();
    let long = "x/".repeat(9) + &"y".repeat(300);
    for asked in [
        "..",
        "../other/secret",
        "out",
        "out/secret",
        "out/new",
        "dangling",
        "loop",
        "loop/x",
        "a\0b",
        "/etc/passwd",
        "/",
    ] {
        let place = workspace.locate(asked);
        assert!(!place.inside, "{asked}: {place:?}");
        assert!(place.path.starts_with('/'), "{asked}: {place:?}");
        assert!(matches!(workspace.read(&place, 10), Err(FsError::Outside)), "{asked}");
        assert!(matches!(workspace.write(&place, b""), Err(FsError::Outside)), "{asked}");
    }
    assert_eq!(workspace.locate(&long).found, Found::Nothing);
}

#[test]
fn a_link_put_in_after_the_judging_is_not_followed() {
    let (dir, workspace) = tree();
    let place = workspace.locate("src/a.rs");
    std::fs::rename(workspace.root().join("src"), workspace.root().join("was")).unwrap();
    symlink(dir.path().join("other"), workspace.root().join("src")).unwrap();
    std::fs::write(dir.path().join("other/a.rs"), "stolen").unwrap();
    assert!(matches!(workspace.read(&place, 10), Err(FsError::Moved)));
    assert!(matches!(workspace.write(&place, b"x"), Err(FsError::Moved)));
    assert_eq!(std::fs::read(dir.path().join("other/a.rs")).unwrap(), b"stolen");
}

#[test]
fn our_own_directories_are_neither_read_nor_written_nor_listed() {
    let (_dir, mut workspace) = tree();
    std::fs::create_dir(workspace.root().join("artefacts")).unwrap();
    std::fs::write(workspace.root().join("artefacts/journal.jsonl"), "j").unwrap();
    workspace.hide(Path::new("artefacts"));
    for asked in ["artefacts/journal.jsonl", "runs/journal"] {
        let place = workspace.locate(asked);
        assert!(matches!(workspace.read(&place, 10), Err(FsError::Missing)), "{asked}");
        assert!(matches!(workspace.write(&place, b"x"), Err(FsError::Denied)), "{asked}");
    }
    let (entries, _) = workspace.list(&workspace.locate("."), 100).unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert!(
        !names.contains(&"artefacts") && !names.contains(&".overnight"),
        "{names:?}"
    );
    assert!(workspace.may_search("artefacts2/x") && !workspace.may_search("artefacts"));
}

#[test]
fn changes_by_others_are_noticed() {
    let (_dir, workspace) = tree();
    assert!(!workspace.changed_since("src/a.rs", b"anything"));
    workspace.note_read("src/a.rs", b"a");
    assert!(!workspace.changed_since("src/a.rs", b"a"));
    assert!(workspace.changed_since("src/a.rs", b"b"));
    workspace.write(&workspace.locate("src/a.rs"), b"b").unwrap();
    assert!(!workspace.changed_since("src/a.rs", b"b"));
}

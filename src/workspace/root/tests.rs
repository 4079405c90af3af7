//! Tests of paths that lead outside the root, loop, or could be misread.

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
        ("", "", PathStatus::Dir),
        (".", "", PathStatus::Dir),
        ("./src//a.rs", "src/a.rs", PathStatus::File),
        ("src/deep/../a.rs", "src/a.rs", PathStatus::File),
        ("link", "src/a.rs", PathStatus::File),
        ("round/a.rs", "src/a.rs", PathStatus::File),
        ("round/../one", "one", PathStatus::HardLinked),
        ("src/up", "one", PathStatus::HardLinked),
        ("new/dir/file", "new/dir/file", PathStatus::Nothing),
        ("new/../src/a.rs", "src/a.rs", PathStatus::File),
        ("src/a.rs/below", "src/a.rs/below", PathStatus::Nothing),
        (
            ".overnight/runs/journal",
            ".overnight/runs/journal",
            PathStatus::Nothing,
        ),
        ("runs/journal", ".overnight/runs/journal", PathStatus::Nothing),
        ("../root/one", "one", PathStatus::HardLinked),
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
    assert_eq!(workspace.locate(&long).found, PathStatus::Nothing);
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
    assert!(workspace.may_search(UNASKED, "artefacts2/x") && !workspace.may_search(UNASKED, "artefacts"));
}

#[test]
fn changes_by_others_are_noticed() {
    let (_dir, workspace) = tree();
    let since = |bytes: &[u8]| workspace.changed_since("src/a.rs", bytes);
    assert_eq!(since(b"anything"), Changed::No);
    workspace.note_read("src/a.rs", b"a");
    assert_eq!((since(b"a"), since(b"b")), (Changed::No, Changed::ByOthers));
    workspace.note_command(false);
    assert_eq!((since(b"a"), since(b"b")), (Changed::No, Changed::ByCommand));
    workspace.write(&workspace.locate("src/a.rs"), b"b").unwrap();
    assert_eq!((since(b"b"), since(b"c")), (Changed::No, Changed::ByOthers));
    workspace.note_command(true);
    workspace.note_read("src/a.rs", b"c");
    assert_eq!(
        since(b"d"),
        Changed::ByCommand,
        "a command in the background may write at any time"
    );
}

/// A directory is repeatedly swapped for a link that leads outside, while a file below it is read and written.
#[test]
fn a_swap_between_judging_and_opening_wins_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (dir, workspace) = tree();
    let root = workspace.root().to_owned();
    let outside = dir.path().join("other");
    std::fs::write(outside.join("a.rs"), "stolen").unwrap();
    symlink(&outside, root.join("bait")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (root.join("src"), root.join("bait"));
            while !done.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags).unwrap();
            }
        });
        let mut read = 0;
        // On a busy machine the other thread may interfere every time for a while.
        for n in 0..200_000 {
            if n >= 2_000 && read > 0 {
                break;
            }
            let place = workspace.locate("src/a.rs");
            if n % 2 == 0 {
                let bytes = workspace.read(&place, 100).unwrap_or_default();
                assert_ne!(bytes, b"stolen");
                read += usize::from(!bytes.is_empty());
            } else {
                let _refused = workspace.write(&place, b"ours");
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(read > 0, "the file was never read");
    });
    assert_eq!(std::fs::read(outside.join("a.rs")).unwrap(), b"stolen");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2);
}

mod as_the_kernel {
    use super::*;
    use proptest::prelude::*;

    fn component() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "src", "deep", "a.rs", "..", ".", "link", "out", "round", "loop", "dangling", "one", "two", "up", "secret",
            "other", "root", "none", "",
        ])
    }

    #[test]
    fn places_are_where_canonicalize_says() {
        let (_dir, workspace) = tree();
        let config = ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let asked = (prop::collection::vec(component(), 0..8), any::<bool>());
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let done = runner.run(&asked, |(parts, absolute)| {
            let path = parts.join("/");
            let path = path.trim_start_matches('/');
            let full = workspace.root().join(path);
            let asked = if absolute { full.to_str().unwrap() } else { path };
            let place = workspace.locate(asked);
            prop_assert!(!place.path.split('/').any(|part| part == ".." || part == "."));
            if let Ok(real) = full.canonicalize() {
                prop_assert_eq!(
                    place.inside,
                    real.starts_with(workspace.root()),
                    "{}: {:?}",
                    asked,
                    place
                );
                let ours = if place.inside {
                    workspace.root().join(&place.path)
                } else {
                    PathBuf::from(&place.path)
                };
                prop_assert_eq!(ours, real);
            }
            Ok(())
        });
        done.unwrap();
    }
}

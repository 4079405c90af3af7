//! Tests of comparing and putting back on real trees.

mod grants;
mod overlaps;

use super::names::NameSet;
use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tempfile::TempDir;

fn tree(protected: &[&str]) -> (TempDir, Confinement) {
    let dir = tempfile::tempdir().unwrap();
    for name in [".git/hooks", ".git/objects/ab", "sub/deep"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    for name in [
        ".git/config",
        ".git/hooks/one",
        ".git/objects/ab/cccccccccccccccccccccccccccccccccccccc",
        "sub/.npmrc",
        "free",
    ] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    symlink("free", dir.path().join(".envrc")).unwrap();
    let confinement = Confinement {
        closed: closed(protected),
        ..Confinement::unconfined(dir.path())
    };
    (dir, confinement)
}

fn closed(words: &[&str]) -> Arc<dyn ClosedPaths> {
    let words: Vec<String> = words.iter().map(|name| (*name).to_owned()).collect();
    Arc::new(NameSet::new(&words))
}

/// Changes what a guard has recorded.
fn changed(guarded: &mut Guarded, change: impl FnOnce(&mut WriteGuard)) {
    let mut guard = Arc::try_unwrap(guarded.guard.take().unwrap()).unwrap();
    change(&mut guard);
    guarded.guard = Some(Arc::new(guard));
}

fn take(confinement: &Confinement) -> Guarded {
    Guarded::take(confinement, &Writes::Tree).unwrap().0
}

/// The paths of the changes, marked if they could not be put back.
fn compare(mut guard: Guarded) -> Vec<String> {
    guard
        .compare(&[])
        .iter()
        .map(|one| match one.restored {
            true => one.path.clone(),
            false => format!("{} (could not be put back)", one.path),
        })
        .collect()
}

const PROTECTED: [&str; 4] = [".git", "**/.npmrc", ".envrc", "new/thing"];

/// Everything below a directory, as text.
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
    let guard = take(&confinement);
    change(dir.path());
    let undone = compare(guard);
    (undone, picture(dir.path()) == before)
}

#[test]
fn what_is_not_touched_is_not_named() {
    assert_eq!(mended(|_| {}), (vec![], true));
    let touched = |dir: &Path| fs::write(dir.join(".git/config"), ".git/config").unwrap();
    assert_eq!(mended(touched), (vec![], true));
}

/// Sets a file's modification time back to its earlier value, as a command can to hide a change.
fn set_back(path: &Path, before: std::time::SystemTime) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(before).unwrap();
}

/// A loose object of git: its path in the workspace and the bytes of its file, as many for each text of one length.
fn loose_object(text: &str) -> (String, Vec<u8>) {
    use std::io::Write;
    let whole = format!("blob {}\0{text}", text.len());
    let id = crate::base::ids::hex(sha1_checked::Sha1::try_digest(&whole).hash());
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(whole.as_bytes()).unwrap();
    let (dir, name) = id.split_at(2);
    (format!(".git/objects/{dir}/{name}"), packed.finish().unwrap())
}

/// Bytes that end with their SHA-1, like a pack.
fn sealed(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.extend_from_slice(sha1_checked::Sha1::try_digest(text).hash());
    bytes
}

/// A workspace with an object whose file another repository shares, which a guard can tell from one that has just
/// changed. Returns its path too.
fn shared_object(object: &str, bytes: &[u8]) -> (TempDir, Confinement, PathBuf) {
    let (dir, confinement) = tree(&PROTECTED);
    let path = dir.path().join(object);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::hard_link(&path, dir.path().join("clone")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    (dir, confinement, path)
}

#[test]
fn an_object_that_a_local_clone_shares_may_be_touched_by_it() {
    let touch = |path: &Path| set_back(path, std::time::UNIX_EPOCH);
    let (undone, _) = mended(|dir| touch(&dir.join(".git/objects/ab/cccccccccccccccccccccccccccccccccccccc")));
    assert_eq!(
        undone.join(" "),
        ".git/objects/ab/cccccccccccccccccccccccccccccccccccccc (could not be put back)"
    );
    let (object, bytes) = loose_object("one");
    for (object, bytes) in [
        (object.as_str(), bytes),
        (".git/objects/pack/pack-1.idx", sealed(&"index".repeat(9))),
    ] {
        let (dir, confinement, path) = shared_object(object, &bytes);
        let guard = take(&confinement);
        touch(&path);
        assert_eq!(compare(guard), Vec::<String>::new(), "{object}");
        let guard = take(&confinement);
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert_eq!(compare(guard), Vec::<String>::new(), "{object}");
    }
}

#[test]
fn a_shared_object_with_other_content_of_the_same_size_is_a_change() {
    let (object, bytes) = loose_object("one");
    let index = "index".repeat(9);
    let mut broken = sealed(&index);
    broken[0] = b'X';
    let cases = [
        (object.as_str(), bytes, loose_object("two").1),
        (
            ".git/objects/pack/pack-1.idx",
            sealed(&index),
            sealed(&"INDEX".repeat(9)),
        ),
        (".git/objects/pack/pack-1.pack", sealed(&index), broken),
    ];
    for (object, old, new) in cases {
        let (dir, confinement, path) = shared_object(object, &old);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let guard = take(&confinement);
        assert_eq!(old.len(), new.len());
        fs::write(&path, new).unwrap();
        set_back(&path, before);
        // This alone would explain a new change time.
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert_eq!(compare(guard).join(" "), format!("{object} (could not be put back)"));
    }
}

/// A workspace of which two names share a file with a store outside.
fn linked_outside() -> (TempDir, Confinement, PathBuf) {
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Landlock;
    let store = dir.path().with_extension("store");
    fs::write(&store, "shared").unwrap();
    fs::set_permissions(&store, Permissions::from_mode(0o751)).unwrap();
    set_back(&store, std::time::UNIX_EPOCH + std::time::Duration::from_secs(5));
    for name in ["one", "sub/two"] {
        fs::hard_link(&store, dir.path().join(name)).unwrap();
    }
    (dir, confinement, store)
}

#[test]
fn a_file_that_is_linked_outside_becomes_a_copy_with_all_that_it_had() {
    let (dir, confinement, store) = linked_outside();
    let at = |name: &str| dir.path().join(name);
    fs::hard_link(at("free"), at("sub/free")).unwrap();
    let object = dir.path().with_extension("object");
    fs::hard_link(at(".git/objects/ab/cccccccccccccccccccccccccccccccccccccc"), &object).unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let rest = |path: &Path| {
        let data = fs::metadata(path).unwrap();
        let text = fs::read_to_string(path).unwrap();
        (data.mode(), data.uid(), data.gid(), data.mtime(), text)
    };
    let before = picture(dir.path());
    assert!(Guarded::take(&confinement, &Writes::Nothing).is_ok());
    assert_eq!(
        number(&at("one")),
        number(&store),
        "nothing is granted, so nothing is done"
    );
    drop(take(&confinement));
    assert_ne!(number(&at("one")), number(&store));
    assert_eq!(number(&at("one")), number(&at("sub/two")));
    assert_eq!(rest(&at("one")), rest(&store));
    assert_eq!(picture(dir.path()), before);
    assert_eq!(
        number(&at("free")),
        number(&at("sub/free")),
        "both names are in the workspace"
    );
    assert_eq!(
        number(&at(".git/objects/ab/cccccccccccccccccccccccccccccccccccccc")),
        number(&object)
    );
    fs::hard_link(&store, at("later")).unwrap();
    drop(take(&confinement));
    assert_eq!(number(&at("later")), number(&store), "it is done once");
    for path in [store, object] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn files_that_could_not_be_separated_are_tried_again_for_the_next_command() {
    let (dir, mut confinement, store) = linked_outside();
    let workspace = std::mem::replace(&mut confinement.workspace, dir.path().join("none"));
    let error = confinement.links.separate(&confinement).unwrap_err();
    assert!(error.starts_with("limit:guard_links: "), "{error}");
    confinement.workspace = workspace;
    confinement.links.separate(&confinement).unwrap();
    assert_eq!(fs::metadata(&store).unwrap().nlink(), 1);
    fs::remove_file(store).unwrap();
}

#[test]
fn a_search_ahead_changes_nothing_and_finds_the_same() {
    let (dir, confinement, store) = linked_outside();
    let before = picture(dir.path());
    Guarded::prepare_ahead(&confinement);
    assert_eq!(fs::metadata(&store).unwrap().nlink(), 3);
    assert_eq!(picture(dir.path()), before);
    drop(take(&confinement));
    assert_eq!(fs::metadata(&store).unwrap().nlink(), 1);
    assert_eq!(picture(dir.path()), before);
    fs::remove_file(store).unwrap();
}

/// What appears in a directory after a search is found by the next one, also where everything else is as it was.
#[test]
fn what_changes_between_two_searches_is_found() {
    // Longer than the time after which a directory's timestamp counts.
    let settle = || std::thread::sleep(Duration::from_millis(250));
    let (dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Landlock;
    let at = |name: &str| dir.path().join(name);
    let store = dir.path().with_extension("store");
    fs::write(&store, "shared").unwrap();
    settle();
    Guarded::prepare_ahead(&confinement);
    fs::hard_link(&store, at("sub/deep/late")).unwrap();
    let mut made = Vec::new();
    for name in ["sub/deep/.npmrc", "sub/new/deep/.npmrc", "sub/deep/later/.npmrc"] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), name).unwrap();
        made.push(name);
        let guard = take(&confinement);
        assert_eq!(fs::metadata(&store).unwrap().nlink(), 1);
        for name in &made {
            fs::remove_file(at(name)).unwrap();
        }
        fs::write(at("sub/.npmrc"), "changed").unwrap();
        fs::write(at("free/.npmrc"), "no directory").unwrap_err();
        fs::create_dir_all(at("made")).unwrap();
        fs::write(at("made/.npmrc"), "new").unwrap();
        let mut wanted = made.clone();
        wanted.extend(["made/.npmrc", "sub/.npmrc"]);
        wanted.sort_unstable();
        assert_eq!(compare(guard), wanted);
        for name in &made {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), *name);
        }
        settle();
    }
    fs::remove_file(store).unwrap();
}

#[test]
fn a_name_in_the_object_store_counts_as_one_inside() {
    let (dir, confinement, store) = linked_outside();
    let at = |name: &str| dir.path().join(name);
    fs::hard_link(
        at(".git/objects/ab/cccccccccccccccccccccccccccccccccccccc"),
        at("object"),
    )
    .unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    confinement.links.separate(&confinement).unwrap();
    assert_eq!(
        number(&at("object")),
        number(&at(".git/objects/ab/cccccccccccccccccccccccccccccccccccccc"))
    );
    assert_ne!(number(&at("one")), number(&store));
    fs::remove_file(store).unwrap();
}

#[test]
fn files_behind_hard_links_that_are_too_large_to_copy_are_named_and_left() {
    let (dir, _, store) = linked_outside();
    let root = at::root(dir.path()).unwrap();
    let search = TreeWalk {
        links: true,
        ..TreeWalk::new(&root, &crate::base::grant::NothingClosed, &[])
    };
    let found = search.find_linked();
    assert_eq!(found.linked.len(), 2);
    let error = links::separate_files(&root, found, SandboxLevel::Full, (5, walk::MOST_TIME)).unwrap_err();
    assert!(error.starts_with("limit:guard_links: "), "{error}");
    assert!(error.contains("6 bytes"), "{error}");
    assert_eq!(fs::metadata(&store).unwrap().nlink(), 3);
    fs::remove_file(store).unwrap();
}

/// What is put back must not take the place of what the command moved there, nor of what it moved to a directory above.
#[test]
fn what_replaced_a_closed_path_is_moved_back() {
    type Change = fn(&Path);
    let changes: [(Change, &[&str]); 6] = [
        (
            |dir| {
                fs::create_dir(dir.join("new")).unwrap();
                fs::hard_link(dir.join("free"), dir.join("other")).unwrap();
                fs::rename(dir.join("free"), dir.join("new/thing")).unwrap();
            },
            &["free", "new/thing"],
        ),
        (
            |dir| fs::rename(dir.join("free"), dir.join("sub/.npmrc")).unwrap(),
            &["free", "sub/.npmrc"],
        ),
        (
            |dir| {
                fs::rename(dir.join(".git"), dir.join("sub/deep/git")).unwrap();
                fs::rename(dir.join("sub"), dir.join(".git")).unwrap();
            },
            &[".git", "sub"],
        ),
        (
            |dir| {
                fs::remove_dir_all(dir.join("sub")).unwrap();
                fs::rename(dir.join("free"), dir.join("sub")).unwrap();
            },
            &["free", "sub/.npmrc"],
        ),
        (
            |dir| {
                fs::create_dir(dir.join("new")).unwrap();
                fs::rename(dir.join("sub"), dir.join("new/thing")).unwrap();
            },
            &["new/thing", "sub/.npmrc", "sub/deep"],
        ),
        (
            |dir| {
                fs::hard_link(dir.join("free"), dir.join("other")).unwrap();
                fs::rename(dir.join("free"), dir.join("sub/.npmrc")).unwrap();
                fs::remove_file(dir.join("other")).unwrap();
            },
            &["free", "sub/.npmrc"],
        ),
    ];
    for (number, (change, paths)) in changes.into_iter().enumerate() {
        let (dir, confinement) = tree(&PROTECTED);
        let guard = take(&confinement);
        change(dir.path());
        assert_eq!(compare(guard), paths, "change {number}");
        for name in ["free", "sub/.npmrc", ".git/config"] {
            assert_eq!(
                fs::read_to_string(dir.path().join(name)).unwrap(),
                name,
                "change {number}"
            );
        }
        assert!(!dir.path().join("new/thing").exists(), "change {number}");
    }
}

/// The content of a closed path was recorded, so what was moved from there is not the only copy.
#[test]
fn an_entry_moved_from_a_closed_path_is_recreated_there_and_removed_elsewhere() {
    let (dir, confinement) = tree(&PROTECTED);
    fs::create_dir(dir.path().join("new")).unwrap();
    let guard = take(&confinement);
    fs::rename(dir.path().join("sub/.npmrc"), dir.path().join("new/thing")).unwrap();
    assert_eq!(compare(guard), ["new/thing", "sub/.npmrc"]);
    assert_eq!(fs::read_to_string(dir.path().join("sub/.npmrc")).unwrap(), "sub/.npmrc");
    assert!(!dir.path().join("new/thing").exists());
}

/// A closed path must be free, and what is there may be the only copy.
#[test]
fn what_cannot_be_moved_back_gets_a_name_at_the_top() {
    let (dir, confinement) = tree(&PROTECTED);
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    fs::write(dir.path().join("a/b/work"), "work").unwrap();
    let guard = take(&confinement);
    fs::create_dir(dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("a/b/work"), dir.path().join("new/thing")).unwrap();
    let inner = guard.guard.as_ref().unwrap();
    let name = inner.set_aside(Path::new("new/thing")).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), "work");
    assert!(!dir.path().join("new/thing").exists());
}

#[test]
fn a_directory_that_nobody_may_write_is_moved_back_with_its_mode() {
    let (dir, confinement) = tree(&PROTECTED);
    let guard = take(&confinement);
    fs::create_dir(dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("sub/deep"), dir.path().join("new/thing")).unwrap();
    fs::set_permissions(dir.path().join("new/thing"), Permissions::from_mode(0o500)).unwrap();
    assert_eq!(compare(guard), ["new/thing", "sub/deep"]);
    let mode = fs::metadata(dir.path().join("sub/deep")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o500);
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

/// A workspace with two loose objects and a pack that is kept open, and what removes or moves some of it.
#[test]
fn the_objects_of_a_repository_are_put_back_however_they_were_lost() {
    type Change = fn(&Path);
    let large = sealed(&"p".repeat((16 << 20) + 1));
    let changes: [(Change, &str); 6] = [
        (|dir| fs::remove_dir_all(dir.join(".git")).unwrap(), ".git"),
        (|dir| fs::rename(dir.join(".git"), dir.join("g")).unwrap(), ".git"),
        (
            |dir| {
                fs::rename(dir.join(".git/objects"), dir.join("o")).unwrap();
                fs::remove_dir_all(dir.join(".git")).unwrap();
            },
            ".git/objects",
        ),
        (
            |dir| fs::rename(dir.join(".git/objects/pack"), dir.join("sub/p")).unwrap(),
            ".git/objects/pack",
        ),
        (
            |dir| {
                fs::rename(dir.join(".git"), dir.join("g")).unwrap();
                fs::create_dir(dir.join(".git")).unwrap();
                fs::rename(dir.join("g"), dir.join(".git/g")).unwrap();
                fs::rename(dir.join(".git/g/objects"), dir.join(".git/objects")).unwrap();
            },
            ".git",
        ),
        (
            |dir| {
                for part in [".git/objects", ".git"] {
                    fs::set_permissions(dir.join(part), Permissions::from_mode(0o000)).unwrap();
                }
                fs::rename(dir.join(".git"), dir.join("g")).unwrap();
            },
            ".git",
        ),
    ];
    for (number, (change, named)) in changes.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = vec![
            loose_object("one"),
            loose_object("two"),
            (".git/objects/pack/pack-1.pack".to_owned(), large.clone()),
        ];
        files.push((".git/HEAD".to_owned(), b"ref: refs/heads/main".to_vec()));
        fs::create_dir_all(dir.path().join("sub")).unwrap();
        for (path, bytes) in &files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let confinement = Confinement {
            closed: closed(&PROTECTED),
            ..Confinement::unconfined(dir.path())
        };
        // The second command of a run finds them kept.
        drop(take(&confinement));
        let guard = take(&confinement);
        change(dir.path());
        let undone = compare(guard);
        assert!(undone.iter().any(|name| name == named), "change {number}: {undone:?}");
        assert!(
            !undone.iter().any(|name| name.contains("could not")),
            "change {number}: {undone:?}"
        );
        for (path, bytes) in &files {
            let same = fs::read(dir.path().join(path)).is_ok_and(|now| now == *bytes);
            assert!(same, "change {number}: {path}");
        }
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, [".git", "sub"], "change {number}");
        assert!(confinement.objects.warning().is_none());
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
    assert!(undone.contains(&".git".to_owned()));
    assert!(
        undone
            .iter()
            .any(|name| name.ends_with("ab/cccccccccccccccccccccccccccccccccccccc (could not be put back)")),
        "{undone:?}"
    );
    assert!(!whole);
    assert_eq!(fs::read_to_string(away.path().join("hooks/one")).unwrap(), "keep");
}

#[test]
fn what_a_rule_opened_may_change() {
    let (dir, confinement) = tree(&[".git", "!.git/config"]);
    let guard = take(&confinement);
    fs::write(dir.path().join(".git/config"), "new").unwrap();
    fs::write(dir.path().join(".git/other"), "new").unwrap();
    assert_eq!(compare(guard), [".git/other"]);
    assert_eq!(fs::read_to_string(dir.path().join(".git/config")).unwrap(), "new");
}

#[test]
fn existing_paths_that_are_no_links_can_be_mounted() {
    let (_dir, mut confinement) = tree(&PROTECTED);
    confinement.level = SandboxLevel::Full;
    let (_guard, reach) = Guarded::take(&confinement, &Writes::Tree).unwrap();
    assert_eq!(reach.read_only, [PathBuf::from(".git"), PathBuf::from("sub/.npmrc")]);
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
    let guard = take(&confinement);
    fs::write(runs.join("1/journal.jsonl"), "old\nnew\n").unwrap();
    fs::create_dir(runs.join("1/results")).unwrap();
    fs::write(runs.join("2/journal.jsonl"), "changed\n").unwrap();
    assert_eq!(compare(guard), [".overnight/runs/2/journal.jsonl"]);
    assert_eq!(fs::read_to_string(runs.join("1/journal.jsonl")).unwrap(), "old\nnew\n");
    assert!(runs.join("1/results").is_dir());
    assert_eq!(fs::read_to_string(runs.join("2/journal.jsonl")).unwrap(), "other\n");
}

#[test]
fn a_limit_on_names_is_told_and_ends_the_run() {
    let (dir, confinement) = tree(&PROTECTED);
    let mut guard = take(&confinement);
    changed(&mut guard, |guard| guard.most_names = 50);
    for number in 0..200 {
        fs::create_dir(dir.path().join(format!("d{number}"))).unwrap();
    }
    fs::write(dir.path().join(".git/config"), "evil").unwrap();
    let undone = guard.compare(&[]);
    assert!(
        undone
            .iter()
            .any(|one| (one.path.as_str(), one.code.as_str(), one.restored) == (".", "limit:guard_names", false)),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join(".git/config")).unwrap(),
        ".git/config"
    );
}

#[test]
fn a_closed_file_with_a_further_name_gets_a_file_of_its_own() {
    let (dir, confinement) = tree(&PROTECTED);
    let (closed, other) = (dir.path().join("sub/.npmrc"), dir.path().join("other"));
    let guard = take(&confinement);
    fs::hard_link(&closed, &other).unwrap();
    assert!(compare(guard).is_empty());
    assert_ne!(
        fs::metadata(&closed).unwrap().ino(),
        fs::metadata(&other).unwrap().ino()
    );
    assert_eq!(fs::read_to_string(closed).unwrap(), "sub/.npmrc");
}

/// As if it had been missing for a moment when it was to be recorded.
#[test]
fn a_closed_path_that_was_not_recorded_stays_and_ends_the_run() {
    let (dir, confinement) = tree(&PROTECTED);
    let take_without_npmrc = || {
        let mut guard = take(&confinement);
        changed(&mut guard, |guard| drop(guard.before.remove(Path::new("sub/.npmrc"))));
        guard
    };
    let guard = take_without_npmrc();
    assert_eq!(compare(guard), ["sub/.npmrc (could not be put back)"]);
    let kept = fs::read_to_string(dir.path().join("sub/.npmrc")).unwrap();
    assert_eq!(kept, "sub/.npmrc");
    let guard = take_without_npmrc();
    fs::remove_file(dir.path().join("sub/.npmrc")).unwrap();
    assert!(compare(guard).is_empty());
}

#[test]
fn what_changes_before_a_command_is_started_is_not_put_back() {
    for (started, wanted) in [(false, "mine"), (true, ".git/config")] {
        let (dir, confinement) = tree(&PROTECTED);
        let guard = take(&confinement);
        if started {
            // No process has this session or mark.
            guard.lives_as(i32::MAX, u64::MAX, 0);
        }
        fs::write(dir.path().join(".git/config"), "mine").unwrap();
        drop(guard);
        let now = fs::read_to_string(dir.path().join(".git/config")).unwrap();
        assert_eq!(now, wanted);
    }
}

#[test]
fn a_deep_tree_is_removed_whole() {
    let (dir, confinement) = tree(&PROTECTED);
    let guard = take(&confinement);
    let mut at = at::root(dir.path()).unwrap();
    let start = std::ffi::OsStr::new("d");
    for _ in 0..3_000 {
        at::make_dir(&at, start).unwrap();
        at = at::dir(&at, Path::new(start)).unwrap();
    }
    let undone = guard_undone(guard);
    assert!(
        undone.iter().any(|one| one.code == "limit:guard_path" && one.restored),
        "{undone:?}"
    );
    let root = at::root(dir.path()).unwrap();
    at::remove(&root, start).unwrap();
    assert!(!dir.path().join("d").exists());
}

fn guard_undone(mut guard: Guarded) -> Vec<Undone> {
    guard.compare(&[])
}

#[test]
fn many_names_are_no_reason_to_stop() {
    let (dir, confinement) = tree(&PROTECTED);
    let guard = take(&confinement);
    for number in 0..60_010 {
        fs::File::create(dir.path().join(format!("f{number}"))).unwrap();
    }
    for name in [
        "target/a/.npmrc",
        "node_modules/b/.npmrc",
        ".venv/.npmrc",
        "z/y/x/.npmrc",
    ] {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), "x").unwrap();
    }
    assert_eq!(
        compare(guard),
        [
            ".venv/.npmrc",
            "node_modules/b/.npmrc",
            "target/a/.npmrc",
            "z/y/x/.npmrc"
        ]
    );
}

/// While changes are put back, a directory is swapped with a link to one outside again and again. Nothing outside
/// changes.
#[test]
fn a_directory_that_is_swapped_for_a_link_leads_nowhere() {
    for _ in 0..12 {
        let (dir, confinement) = tree(&["**/.bash_*"]);
        let away = tempfile::tempdir().unwrap();
        fs::write(away.path().join(".bash_logout"), "mine").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        for number in 0..300 {
            fs::write(dir.path().join(format!("d/.bash_{number}")), "old").unwrap();
        }
        let guard = take(&confinement);
        for number in 0..300 {
            fs::write(dir.path().join(format!("d/.bash_{number}")), "evil!").unwrap();
        }
        fs::write(dir.path().join("d/.bash_logout"), "new").unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (root, target, halt) = (dir.path().to_path_buf(), away.path().to_path_buf(), Arc::clone(&stop));
        let swapping = std::thread::spawn(move || {
            let _ = symlink(&target, root.join("l"));
            let mut swapped = 0_u64;
            while !halt.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (one, other) = (root.join("d"), root.join("l"));
                swapped +=
                    u64::from(rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags).is_ok());
            }
            swapped
        });
        guard_undone(guard);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(swapping.join().unwrap() > 10, "the race was run");
        let left: Vec<_> = fs::read_dir(away.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, [".bash_logout"]);
        assert_eq!(fs::read_to_string(away.path().join(".bash_logout")).unwrap(), "mine");
    }
}

#[test]
fn attributes_of_closed_files_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at(".git")).unwrap();
    for name in [".envrc", ".git/config"] {
        fs::write(at(name), "old").unwrap();
    }
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(at(name), key, value, rustix::fs::XattrFlags::empty())
    };
    if set(".envrc", "user.kept", b"before").is_err() {
        eprintln!("skipped: no extended attributes on this file system");
        return;
    }
    set(".git", "user.dir", b"before").unwrap();
    let confinement = Confinement {
        level: SandboxLevel::Landlock,
        closed: closed(&[".git", ".envrc"]),
        ..Confinement::unconfined(dir.path())
    };
    let guard = take(&confinement);
    set(".envrc", "user.kept", b"after").unwrap();
    set(".envrc", "user.new", b"x").unwrap();
    set(".git/config", "user.new", b"x").unwrap();
    rustix::fs::removexattr(at(".git"), "user.dir").unwrap();
    assert_eq!(compare(guard), [".envrc", ".git", ".git/config"]);
    let get = |name: &str, key: &str| {
        let mut value = Vec::with_capacity(100);
        rustix::fs::getxattr(at(name), key, rustix::buffer::spare_capacity(&mut value)).map(|_| value)
    };
    assert_eq!(get(".envrc", "user.kept").unwrap(), b"before");
    assert_eq!(get(".git", "user.dir").unwrap(), b"before");
    for name in [".envrc", ".git/config"] {
        assert!(get(name, "user.new").is_err(), "{name}");
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "old");
    }
    let guard = take(&confinement);
    assert!(compare(guard).is_empty());
}

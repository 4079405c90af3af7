//! What a command moves to a place at which it is undone: it is the only copy, so it must be where it was before.

use super::{CONFINED, Ground, ground};
use overnight::base::grant::{Undone, Writes};

/// Changes of a Python program that may write the tree, each with the paths that were put back.
const MOVES: [(&str, &[&str]); 7] = [
    ("r(\"src/a.txt\", \"src/.npmrc\")", &["src/.npmrc", "src/a.txt"]),
    ("r(\"src/a.txt\", \".npmrc\")", &[".npmrc", "src/a.txt"]),
    ("r(\"src\", \"new\"); r(\"new\", \".envrc\")", &[".envrc", "src"]),
    (
        "d(\".github/workflows\"); r(\"src/deep\", \".github/workflows/x\")",
        &[".github/workflows", "src/deep"],
    ),
    (
        "d(\".github/workflows\"); r(\"src/a.txt\", \".github/workflows/x\"); r(\"src/deep\", \".github/workflows/y\")",
        &[".github/workflows", "src/a.txt", "src/deep"],
    ),
    // The directory is removed too.
    (
        "r(\"src/deep/c.txt\", \".envrc\"); os.rmdir(\"src/deep\")",
        &[".envrc", "src/deep/c.txt"],
    ),
    (
        "os.link(\"src/a.txt\", \".envrc\"); os.unlink(\"src/a.txt\")",
        &[".envrc", "src/a.txt"],
    ),
];

/// A command can take away the right to move something out of a directory, or back into one.
#[tokio::test]
async fn a_closed_path_keeps_nothing_whatever_the_modes_of_directories() {
    for level in CONFINED {
        for text in [
            "r(\"src/a.txt\", \".envrc\"); os.chmod(\"src\", 0o500)",
            "r(\"src/a.txt\", \".envrc\"); os.chmod(\"src\", 0)",
            "d(\"s\"); r(\"src/a.txt\", \"s/.envrc\"); os.chmod(\"s\", 0o500)",
            "d(\"s\"); r(\"src/a.txt\", \"s/.envrc\"); os.chmod(\"s\", 0); os.chmod(\"src\", 0o500)",
            "r(\"src/a.txt\", \".envrc\"); os.chmod(\".\", 0o500)",
        ] {
            let ground = ground(level);
            let undone = undone_of(&ground, text).await;
            // The modes of other directories are the command's own business.
            for dir in ["src", "s", "."] {
                let dir = ground.confinement.workspace.join(dir);
                let _ = std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755));
            }
            assert!(undone.iter().all(|one| one.restored), "{level:?} {text}: {undone:?}");
            for closed in ["ws/.envrc", "ws/s/.envrc"] {
                assert_eq!(ground.read(closed), None, "{level:?} {text}");
            }
            assert_eq!(
                ground.read("ws/src/a.txt").as_deref(),
                Some("old\n"),
                "{level:?} {text}"
            );
        }
    }
}

/// What is put back is made again in a directory that nobody may write any more.
#[tokio::test]
async fn a_closed_file_is_put_back_whatever_the_mode_of_its_directory() {
    for level in CONFINED {
        let ground = ground(level);
        std::fs::write(ground.confinement.workspace.join("src/.npmrc"), "old\n").unwrap();
        let text =
            "r(\"src\", \"s\"); d(\"src\"); open(\"src/.npmrc\", \"w\").write(\"evil\"); os.chmod(\"src\", 0o500)";
        let undone = undone_of(&ground, text).await;
        assert!(undone.iter().all(|one| one.restored), "{level:?}: {undone:?}");
        assert_eq!(ground.read("ws/src/.npmrc").as_deref(), Some("old\n"), "{level:?}");
        let src = ground.confinement.workspace.join("src");
        std::fs::set_permissions(src, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

async fn undone_of(ground: &Ground, text: &str) -> Vec<Undone> {
    let text = format!("import os; r = os.rename; d = os.makedirs; {text}");
    ground.python(&text, &Writes::Tree).await.undone
}

async fn python(ground: &Ground, text: &str) -> (Vec<Undone>, Vec<String>) {
    (undone_of(ground, text).await, ground.picture())
}

#[tokio::test]
async fn what_was_moved_to_a_closed_path_is_back_where_it_was() {
    for level in CONFINED {
        for (text, paths) in MOVES {
            let ground = ground(level);
            // A closed file of the same content would count as unchanged.
            std::fs::write(ground.confinement.workspace.join("src/a.txt"), "work\n").unwrap();
            let before = ground.picture();
            let (undone, after) = python(&ground, text).await;
            let named: Vec<&str> = undone.iter().map(|one| one.path.as_str()).collect();
            // At `full` a mount keeps what is there already.
            if named.is_empty() {
                assert!(text.contains("\".npmrc\""), "{level:?} {text}");
            } else {
                assert_eq!(named, paths, "{level:?} {text}");
            }
            assert!(undone.iter().all(|one| one.restored), "{level:?} {text}: {undone:?}");
            let kept = |lines: &[String]| -> Vec<String> {
                let lines = lines.iter().filter(|line| !line.contains("/.github "));
                lines.cloned().collect()
            };
            assert_eq!(kept(&after), kept(&before), "{level:?} {text}");
        }
    }
}

#[tokio::test]
async fn a_new_file_at_a_closed_path_is_removed_and_a_granted_change_stays() {
    for level in CONFINED {
        let ground = ground(level);
        let text = "open(\"new\", \"w\").write(\"x\"); r(\"new\", \".envrc\"); os.unlink(\"src/b.txt\"); \
            os.link(\"src/a.txt\", \"src/.npmrc\"); open(\"src/new\", \"w\").write(\"newer\")";
        let (undone, _) = python(&ground, text).await;
        let named: Vec<&str> = undone.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(named, [".envrc", "src/.npmrc"], "{level:?}");
        assert_eq!(ground.read("ws/src/new").as_deref(), Some("newer"), "{level:?}");
        assert_eq!(ground.read("ws/src/a.txt").as_deref(), Some("old\n"), "{level:?}");
        for gone in ["ws/new", "ws/.envrc", "ws/src/.npmrc", "ws/src/b.txt"] {
            assert_eq!(ground.read(gone), None, "{level:?} {gone}");
        }
    }
}

/// Something else is at the original path of a file or directory, so the only copy cannot be moved back there.
#[tokio::test]
async fn an_entry_whose_original_path_is_taken_is_kept_under_a_reported_name() {
    for level in CONFINED {
        for (text, kept) in [
            (
                "r(\"src/a.txt\", \".envrc\"); open(\"src/a.txt\", \"w\").write(\"other\")",
                "",
            ),
            ("r(\"src/a.txt\", \"src/.npmrc\"); r(\"src/b.txt\", \"src/a.txt\")", ""),
            (
                "r(\"src\", \".envrc\"); open(\"src\", \"w\").write(\"other\")",
                "/a.txt",
            ),
            (
                "r(\"src\", \".envrc\"); d(\"src\"); open(\"src/a.txt\", \"w\").write(\"other\")",
                "/a.txt",
            ),
        ] {
            let ground = ground(level);
            std::fs::write(ground.confinement.workspace.join("src/a.txt"), "work\n").unwrap();
            let undone = undone_of(&ground, text).await;
            let told: Vec<&Undone> = undone.iter().filter(|one| one.code == "kept_aside").collect();
            let [told] = told[..] else {
                panic!("{level:?} {text}: {undone:?}")
            };
            // The run must end, so that a person looks at it.
            assert!(!told.restored && told.path.starts_with("overnight-kept-"), "{told:?}");
            let left = ground.read(&format!("ws/{}{kept}", told.path));
            assert_eq!(left.as_deref(), Some("work\n"), "{level:?} {text}: {undone:?}");
            for closed in ["ws/.envrc", "ws/src/.npmrc"] {
                assert!(!ground.top.path().join(closed).exists(), "{level:?} {text}: {closed}");
            }
            if kept.is_empty() {
                let other = ground.read("ws/src/a.txt");
                assert!(
                    ["other", "old\n"].contains(&other.unwrap().as_str()),
                    "{level:?} {text}"
                );
            }
        }
        // The entries of a directory are moved back into the directory that is there now.
        let ground = ground(level);
        let undone = undone_of(&ground, "r(\"src\", \".envrc\"); d(\"src\")").await;
        assert!(undone.iter().all(|one| one.restored), "{level:?}: {undone:?}");
        assert_eq!(ground.read("ws/src/deep/c.txt").as_deref(), Some("old\n"), "{level:?}");
    }
}

/// What is new in a directory that is moved back is ruled on there.
#[tokio::test]
async fn a_directory_is_moved_back_without_new_closed_files() {
    for level in CONFINED {
        let ground = ground(level);
        let text = "open(\"src/deep/.npmrc\", \"w\").write(\"x\"); r(\"src/deep\", \".envrc\")";
        let before = ground.picture();
        let (undone, after) = python(&ground, text).await;
        let named: Vec<&str> = undone.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(named, [".envrc", "src/deep", "src/deep/.npmrc"], "{level:?}");
        assert_eq!(after, before, "{level:?}");
    }
}

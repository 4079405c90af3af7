//! Registrations of worktrees in the git directory: those of others stay, and those that a command forges are removed.

use super::{CONFINED, Ground, ground};
use overnight::base::grant::Writes;
use std::path::Path;

/// Creates a registration and, in its worktree, the `.git` file that points back to it.
const FORGE: &str = "import os
def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, \"w\").write(text)
def register(tree, pointer):
    admin = os.getcwd() + \"/.git/worktrees/evil\"
    write(admin + \"/HEAD\", \"ref: refs/heads/main\")
    write(admin + \"/commondir\", \"../..\")
    write(admin + \"/gitdir\", tree + \"/.git\\n\")
    if pointer:
        write(tree + \"/.git\", \"gitdir: \" + admin + \"\\n\")
";

fn registered(ground: &Ground) -> Vec<String> {
    let names = |dir: &str| {
        let entries = std::fs::read_dir(ground.confinement.workspace.join(dir))
            .into_iter()
            .flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let mut all: Vec<String> = names(".git/worktrees").chain(names(".git")).collect();
    all.retain(|name| !["hooks", "config", "worktrees"].contains(&name.as_str()));
    all.sort();
    all
}

#[tokio::test]
async fn a_registration_that_a_command_forges_is_removed() {
    for level in CONFINED {
        for text in [
            // The command can write its home and the workspace.
            "register(\"TOP/home/tree\", True)",
            "register(os.getcwd() + \"/src/tree\", True)",
            // The command cannot write here, but the worktree does not point back.
            "register(\"TOP/outside\", False)",
            "os.symlink(\"TOP/outside\", \"link\"); register(os.getcwd() + \"/link\", False)",
            "write(\".git/worktrees/evil/hooks/post-checkout\", \"x\")",
            "write(\".git/overnight-0123456789abcdef.new/config\", \"x\")",
            // Drafts of which no worktree knows.
            "write(\".git/overnight-aa.new/logs/deep/tool.sh\", \"x\")",
            "write(\".git/overnight-aa.new/gitdir\", \"TOP/outside/.git\\n\")",
            "write(\".git/overnight-aa.old/HEAD\", \"x\")",
        ] {
            let ground = ground(level);
            let done = ground.python(&format!("{FORGE}{text}"), &Writes::Tree).await;
            // At `full` the git directory is mounted read-only.
            assert!(!done.undone.is_empty() || done.exit.code != Some(0), "{level:?} {text}");
            assert!(
                done.undone.iter().all(|one| one.restored),
                "{level:?} {text}: {:?}",
                done.undone
            );
            assert_eq!(registered(&ground), [""; 0], "{level:?} {text}");
        }
    }
}

/// Registers the worktree `outside/tree`, as git does.
fn register(ground: &Ground) {
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let tree = ground.top.path().join("outside/tree");
    let admin = ground.confinement.workspace.join(".git/worktrees/tree");
    write(&tree.join(".git"), &format!("gitdir: {}\n", admin.display()));
    for (name, text) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("commondir", "../..\n"),
        ("index", "x"),
    ] {
        write(&admin.join(name), text);
    }
    // Written last, because the command waits for this file.
    write(&admin.join("gitdir"), &format!("{}\n", tree.join(".git").display()));
}

#[tokio::test]
async fn a_registration_of_others_stays_without_what_the_command_adds() {
    let wait = "import os, time
open(\"begun\", \"w\")
while not os.path.exists(\".git/worktrees/tree/gitdir\"): time.sleep(0.005)
";
    for (text, left) in [
        ("", None),
        (
            "open(\".git/worktrees/tree/config.worktree\", \"w\").write(\"x\")",
            Some("config.worktree"),
        ),
        (
            "open(\".git/worktrees/tree/commondir\", \"w\").write(\"/tmp/evil\")",
            Some("commondir"),
        ),
        ("os.makedirs(\".git/worktrees/evil\")", Some("../evil")),
    ] {
        let ground = ground(super::SandboxLevel::Landlock);
        let text = format!("{wait}{text}");
        let command = ground.python(&text, &Writes::Tree);
        let (done, ()) = tokio::join!(command, async {
            while !ground.confinement.workspace.join("begun").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            register(&ground);
        });
        let admin = ground.confinement.workspace.join(".git/worktrees/tree");
        assert!(admin.join("gitdir").exists() && admin.join("index").exists(), "{text}");
        assert_eq!(done.undone.is_empty(), left.is_none(), "{text}: {:?}", done.undone);
        if let Some(left) = left {
            assert!(!admin.join(left).exists(), "{text}: {:?}", done.undone);
        }
    }
}

/// A command could remove a registration that others made before. Others remove it only together with the worktree.
#[tokio::test]
async fn a_registration_that_a_command_removes_is_put_back() {
    let ground = ground(super::SandboxLevel::Landlock);
    register(&ground);
    let remove = "import shutil; shutil.rmtree(\".git/worktrees\")";
    let undone = ground.python(remove, &Writes::Tree).await.undone;
    assert!(
        !undone.is_empty() && undone.iter().all(|one| one.restored),
        "{undone:?}"
    );
    assert!(ground.confinement.workspace.join(".git/worktrees/tree/gitdir").exists());
    std::fs::remove_dir_all(ground.top.path().join("outside/tree")).unwrap();
    let undone = ground.python(remove, &Writes::Tree).await.undone;
    assert!(undone.is_empty(), "{undone:?}");
    assert!(!ground.confinement.workspace.join(".git/worktrees").exists());
}

/// What would stop the git of others in their worktree, or does not belong there.
#[tokio::test]
async fn one_of_others_gets_nothing_from_a_command() {
    let ground = ground(super::SandboxLevel::Landlock);
    register(&ground);
    let admin = ground.confinement.workspace.join(".git/worktrees/tree");
    let names = "(\"index.lock\", \"HEAD.lock\", \"locked\", \"refs/bisect/bad\", \"logs/refs/x.sh\")";
    let text = format!("{FORGE}for name in {names}: write(\".git/worktrees/tree/\" + name, \"x\")");
    let undone = ground.python(&text, &Writes::Tree).await.undone;
    assert!(
        !undone.is_empty() && undone.iter().all(|one| one.restored),
        "{undone:?}"
    );
    let mut left: Vec<_> = std::fs::read_dir(&admin)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["HEAD", "commondir", "gitdir", "index"]);
}

/// A locked registration is that of a worktree which may be away, and a disk that is away takes its directories along.
#[tokio::test]
async fn one_whose_worktree_is_away_is_put_back() {
    let remove = "import shutil; shutil.rmtree(\".git/worktrees\")";
    for is_locked in [true, false] {
        let ground = ground(super::SandboxLevel::Landlock);
        register(&ground);
        let admin = ground.confinement.workspace.join(".git/worktrees/tree");
        let outside = ground.top.path().join("outside");
        if is_locked {
            std::fs::write(admin.join("locked"), "on a disk").unwrap();
            std::fs::remove_dir_all(outside.join("tree")).unwrap();
        } else {
            std::fs::rename(&outside, ground.top.path().join("away")).unwrap();
        }
        let undone = ground.python(remove, &Writes::Tree).await.undone;
        assert!(
            !undone.is_empty() && undone.iter().all(|one| one.restored),
            "{is_locked} {undone:?}"
        );
        assert!(admin.join("gitdir").exists(), "{is_locked}");
    }
}

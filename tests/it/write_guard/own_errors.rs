//! Errors of the guard itself: nothing that was there before the command is removed because of one.

use super::super::harness::{BIN, World, have_optional, says, script, shell};
use std::process::Command;

const POLICY: &str = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [make], writes: tree, because: x }\n\
    sandbox: { level: none }\n";

/// Without `/proc` the attributes of no entry can be read: nothing is started, and no protected path counts as new.
#[test]
fn without_proc_nothing_is_started_and_nothing_is_removed() {
    let namespace = Command::new("unshare").args(["-m", "true"]).output();
    if !have_optional(
        "a mount namespace of our own",
        namespace.is_ok_and(|got| got.status.success()),
    ) {
        return;
    }
    let world = World::repo(&[("Makefile", "x:\n\ttouch made\n"), (".npmrc", "old\n")]);
    let model = format!(
        "script:{}",
        world.beside("script.json", script(&[shell("make x"), says("done")]))
    );
    let policy = world.beside("policy.yaml", POLICY);
    let out = world.out().display().to_string();
    let words = ["run", "-p", "go", "--model", &model, "--policy", &policy, "--out", &out];
    let inner = world.command(&words);
    let got = Command::new("unshare")
        .args([
            "-m",
            "sh",
            "-c",
            "umount -l /proc && test ! -e /proc/self && exec \"$@\"",
            "sh",
            BIN,
        ])
        .args(inner.get_args())
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(world.ws())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&got.stderr);
    assert!(
        told.contains("limit:guard_unreadable") && told.contains("mount `/proc`"),
        "{told}"
    );
    assert_eq!(world.read(".npmrc"), "old\n", "{told}");
    assert!(world.ws().join(".git/HEAD").exists(), "{told}");
    assert!(!world.ws().join("made").exists(), "{told}");
}

//! A program that is let go at its exec is one that the policy grants, and a deny rule more never lets more go. Uses no tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::base::call::{Kind, Origin};
use overnight::base::grant::{Exec, ExecAnswer, Starts};
use overnight::base::ruling::Asked;
use overnight::diag::Files;
use overnight::policy::calls::without_tree;
use overnight::policy::exec::{Setting, judge};
use overnight::policy::{KnownTools, PolicySet, Source, load};
use std::path::PathBuf;
use std::sync::LazyLock;

const ALLOWED: [&str; 8] = ["ls", "cat", "find", "sed", "git", "xargs", "env", "sort"];

fn policy(extra: &str) -> PolicySet {
    let names = ALLOWED.join(", ");
    let text = format!("version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [{names}] }}\n{extra}");
    let source = Source { name: "fuzz.yaml".to_owned(), text };
    load(&mut Files::new(), &[source], &KnownTools::builtin()).expect("the policy is right").0
}

static PLAIN: LazyLock<PolicySet> = LazyLock::new(|| policy(""));
static STRICT: LazyLock<PolicySet> = LazyLock::new(|| policy("  - { deny: run_shell_command, commands: [git push, sed] }\n"));

fn goes(set: &PolicySet, exec: &Exec) -> bool {
    let args = serde_json::json!({});
    let asked = Asked { tool: "run_shell_command", kind: Kind::Execute, origin: &Origin::Builtin, args: &args };
    let setting = Setting { root: PathBuf::from("/ws"), path: vec![PathBuf::from("/usr/local/bin")], ..Setting::default() };
    let answer = without_tree(|terrain| judge(set, &asked, &setting, exec, terrain));
    matches!(answer, ExecAnswer::Allow { .. })
}

fuzz_target!(|input: (&str, Vec<&str>, &str, u8)| {
    let (path, words, cwd, caller) = input;
    let caller = match caller % 4 {
        0 => Starts::Nothing,
        1 => Starts::Anything,
        2 => Starts::Helpers("git".to_owned()),
        _ => Starts::Judged,
    };
    let exec = Exec {
        caller: caller.clone(),
        path: PathBuf::from(path),
        real: PathBuf::from(path),
        argv: words.into_iter().map(str::to_owned).collect(),
        cwd: PathBuf::from(format!("/ws/{cwd}")),
        interpreter: None,
    };
    let plain = goes(&PLAIN, &exec);
    assert!(plain || !goes(&STRICT, &exec), "a denial more lets more go: {exec:?}");
    let name = path.rsplit('/').next().unwrap_or_default();
    match caller {
        Starts::Nothing => assert!(!plain, "{exec:?}"),
        Starts::Judged if plain => assert!(ALLOWED.contains(&name), "{exec:?}"),
        _ => {}
    }
});

//! A command that is allowed names only allowed programs, and a rule more never allows less. Uses no tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::base::access::{Access, CommandAccess};
use overnight::base::call::{Kind, Origin};
use overnight::base::ruling::{Asked, Decision};
use overnight::diag::Files;
use overnight::policy::calls::without_tree;
use overnight::policy::shell::{Grants, read};
use overnight::policy::{KnownTools, PolicySet, Source, Uses, decide, load};
use std::sync::LazyLock;

const ALLOWED: [&str; 12] = [
    "ls", "cat", "grep", "find", "sed", "awk", "git", "cargo", "xargs", "env", "make", "sort",
];

fn policy(extra: &str) -> PolicySet {
    let names = ALLOWED.join(", ");
    let text = format!("version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [{names}] }}\n{extra}");
    let source = Source { name: "fuzz.yaml".to_owned(), text };
    load(&mut Files::new(), &[source], &KnownTools::builtin()).expect("the policy is right").0
}

static PLAIN: LazyLock<PolicySet> = LazyLock::new(|| policy(""));
static STRICT: LazyLock<PolicySet> = LazyLock::new(|| policy("  - { deny: run_shell_command, commands: [git push, sed] }\n"));

fn ruled(set: &PolicySet, text: &str) -> Decision {
    let access = Access {
        commands: vec![CommandAccess { text: text.to_owned(), dir: String::new() }],
        ..Access::none()
    };
    let args = serde_json::json!({ "command": text });
    let asked = Asked { tool: "run_shell_command", kind: Kind::Execute, origin: &Origin::Builtin, args: &args };
    without_tree(|terrain| decide(set, &asked, &access, terrain, &Uses::default()).decision)
}

fuzz_target!(|text: &str| {
    let plain = ruled(&PLAIN, text);
    if plain != Decision::Allow {
        assert_ne!(ruled(&STRICT, text), Decision::Allow, "a denial more allows more");
        return;
    }
    let reading = without_tree(|terrain| read(text, "", terrain, &Grants::default())).expect("it was allowed");
    for simple in reading.commands.iter().filter(|simple| !simple.state_only) {
        assert!(ALLOWED.contains(&simple.program.as_str()), "{} was allowed", simple.program);
        for used in simple.reads.iter().chain(&simple.writes) {
            assert!(used.place.as_ref().is_none_or(|place| place.inside), "{} lies outside", used.asked);
        }
        assert!(simple.writes.is_empty(), "a write without a rule for it");
    }
});

//! A changed path that a call may have made is one that a rule covers, and a deny rule more never allows more. Uses no tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overnight::diag::Files;
use overnight::policy::{Author, ChangeRuling, KnownTools, PolicySet, Source, load, rule_change};
use std::sync::LazyLock;

fn policy(extra: &str) -> PolicySet {
    let text = format!("version: 1\nrules:\n  - {{ allow: [write_file, replace], paths: ['src/**'] }}\n{extra}");
    let source = Source { name: "fuzz.yaml".to_owned(), text };
    load(&mut Files::new(), &[source], &KnownTools::builtin()).expect("the policy is right").0
}

static PLAIN: LazyLock<PolicySet> = LazyLock::new(|| policy(""));
static STRICT: LazyLock<PolicySet> = LazyLock::new(|| policy("  - { deny: write_file, paths: ['src/gen/**', '**/*.lock'] }\n"));

fuzz_target!(|path: &str| {
    let allowed = |set: &PolicySet, by| rule_change(set, path, by) == ChangeRuling::Allowed;
    assert!(allowed(&PLAIN, Author::Call) || !allowed(&STRICT, Author::Call), "a denial more allows more: {path}");
    if allowed(&PLAIN, Author::Call) {
        assert!(path.starts_with("src/"), "{path}");
        assert!(allowed(&PLAIN, Author::TrustedStep), "the author may less than the model: {path}");
    }
    // Names are passed over quickly only where the whole answer would be the same.
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let closed = STRICT.closed();
    if !closed.closed(dir, true) && closed.has_ordinary_names(dir) && closed.is_ordinary(name) {
        assert!(!closed.closed(path, false) && !closed.closed(path, true), "{path} is passed over");
    }
});

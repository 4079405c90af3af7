//! Tests of the page: it is self-contained, and untrusted text never becomes markup.

use super::build::{self, Run};
use crate::base::outcome::{RunOutcome, Verdict};
use crate::report::html;
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use proptest::prelude::*;
use serde_json::json;

const PATCH: &[u8] = b"diff --git a/src/lib.rs b/src/lib.rs\n--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1,2 @@\n-let x = 1 + 0;\n+let x = 1;\n+// <script>alert(1)</script>\n";

fn page(run: &Run, patch: Option<&[u8]>) -> String {
    html::page(&RunSummary::fold(&run.events), &OutputFacts::default(), patch)
}

/// Nothing but the page's own markup: no script, no external link, nothing loaded.
fn is_self_contained(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>"));
    for tag in [
        "<script", "<img", "<link", "<iframe", "<object", "<embed", "<form", "<svg", "<base", "src=",
    ] {
        let in_markup = page
            .split('<')
            .skip(1)
            .map(|piece| piece.split('>').next().unwrap_or(""));
        for markup in in_markup {
            let markup = format!("<{markup}").to_lowercase();
            assert!(!markup.starts_with(tag.trim_end_matches('=')), "{tag}: {markup}");
            assert!(tag != "src=" || !markup.contains(" src="), "{markup}");
        }
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_page_of_a_good_run_has_its_parts() {
    let page = page(&build::good(), Some(PATCH));
    is_self_contained(&page);
    for part in [
        "fix-clippy",
        "Fixed the warning",
        "Turn 4",
        "class=\"a\">+let x = 1;",
        "class=\"d\">-let x = 1 + 0;",
        "&lt;script&gt;alert(1)",
        "rust.yaml:7",
        "5,250",
        "$0.0088",
        "before the first request",
    ] {
        let there = page.contains(part);
        assert_eq!(there, part != "before the first request", "{part}");
    }
}

#[test]
fn denials_and_suspensions_stand_at_the_top() {
    let denied = page(&build::denied(), None);
    let (top, _) = denied.split_once("id=\"answer\"").unwrap();
    assert!(top.contains("CI definitions are protected") && top.contains("Fix: "));
    let waiting = page(&build::suspended(), None);
    assert!(waiting.contains("overnight resume 20261121-103000-abcdef --approve c1"));
}

#[test]
fn an_empty_journal_gives_a_page() {
    let page = html::page(&RunSummary::fold(&[]), &OutputFacts::default(), None);
    is_self_contained(&page);
    assert!(page.contains("incomplete"));
}

#[test]
fn a_huge_run_stays_a_page_that_opens() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    for _ in 0..300 {
        let ids = run.reply("look", &[("read_file", json!({"file_path": "a"}))]);
        run.shell(&ids[0], "cat a", &"0123456789\n".repeat(4_000));
    }
    run.patch();
    run.finish(RunOutcome::new(Verdict::Budget, "limit:turns", "budget reached"));
    let patch = "+added\n".repeat(100_000);
    let page = page(&run, Some(patch.as_bytes()));
    assert!(page.len() < 8 * 1024 * 1024, "{} bytes", page.len());
    assert!(page.contains("more lines are in the patch file"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_text_becomes_markup(text in "(<script|</style|</pre|<img src=x|\"|'|&|<!--|\\PC){0,12}") {
        let mut run = Run::start();
        run.step(&text, Some(&text)).attempt(&text, 1, &text);
        let ids = run.reply(&text, &[(&text, json!({text.as_str(): text}))]);
        run.shell(&ids[0], &text, &text);
        run.check(&text, 1, &text, false, &text);
        run.patch();
        run.finish(RunOutcome::new(Verdict::Failed, text.as_str(), text.as_str()));
        is_self_contained(&page(&run, Some(text.as_bytes())));
    }
}

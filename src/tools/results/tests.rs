//! What is left of a text that is too long.

use super::*;

#[test]
fn a_long_text_keeps_its_ends_and_says_what_is_missing() {
    let text: String = (0..20_000).map(|n| format!("line {n} é\n")).collect();
    let cut = head_and_tail(&text, SHOWN, Some("c7"));
    assert!(cut.len() <= SHOWN, "{}", cut.len());
    assert!(cut.starts_with("line 0 é\n") && cut.ends_with("line 19999 é\n"));
    assert!(cut.contains("overnight:result/c7"));
    let notice = cut.lines().find(|line| line.starts_with('[')).unwrap();
    let gone: usize = notice
        .trim_start_matches('[')
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let (head, tail) = cut.split_once(&format!("\n{notice}\n")).unwrap();
    assert_eq!(head.len() + tail.len() + gone, text.len());
    assert_eq!(head_and_tail("short", SHOWN, None), "short");
}

#[test]
fn one_long_line_is_cut_between_characters() {
    let text = "é".repeat(50_000);
    let cut = head_and_tail(&text, 1_000, None);
    assert!(cut.len() <= 1_000 && cut.starts_with('é') && cut.ends_with('é'));
}

#[test]
fn only_names_of_results_are_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("results")).unwrap();
    std::fs::write(dir.path().join("results/c1"), "whole").unwrap();
    std::fs::write(dir.path().join("journal.jsonl"), "secret").unwrap();
    let results = dir.path().join("results");
    assert_eq!(kept(&results, "c1").unwrap(), b"whole");
    for id in ["", "../journal.jsonl", "c2", "c1/../c1", ".", "c1\0"] {
        assert!(kept(&results, id).is_err(), "{id}");
    }
}

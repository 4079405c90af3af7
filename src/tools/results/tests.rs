//! Tests of how texts that are too long are cut.

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

#[test]
fn a_long_result_is_cut_for_the_model_and_read_again_page_by_page() {
    use crate::tools::testing::TestWorkspace;
    use serde_json::json;
    let names: Vec<String> = (0..1_500)
        .map(|n| format!("a-rather-long-name-of-a-file-{n:04}"))
        .collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
    let bench = TestWorkspace::new(&files);
    let output = bench
        .run("list_directory", &json!({ "dir_path": "." }))
        .unwrap()
        .result
        .unwrap();
    let told = output.model_text();
    assert!(
        told.len() <= SHOWN && told.contains("overnight:result/c1"),
        "{}",
        told.len()
    );
    assert!(told.contains("file-0000 ") && told.contains("file-1499 ") && !told.contains("file-0750 "));
    let whole = output.kept.unwrap();
    assert_eq!((whole.id.as_str(), whole.omitted), ("c1", 0));
    let args = json!({ "file_path": "overnight:result/c1", "start_line": 752, "end_line": 752 });
    let ran = bench.run("read_file", &args).unwrap();
    assert_eq!(ran.access, crate::base::access::Access::none());
    let page = ran.result.unwrap().model_text();
    assert_eq!(
        page,
        "[Lines 752-752 of 1501.]\na-rather-long-name-of-a-file-0750 (0 bytes)\n"
    );
}

#[test]
fn a_kept_result_of_one_long_line_is_read_to_its_end() {
    use crate::tools::testing::TestWorkspace;
    use serde_json::json;
    let bench = TestWorkspace::new(&[]);
    let line: String = (0..30_000).map(|n| format!("{n:05},")).collect();
    let results = bench.dir.path().join("results");
    std::fs::create_dir_all(&results).unwrap();
    std::fs::write(results.join("c9"), &line).unwrap();
    let mut seen = String::new();
    for start in (1..=90).step_by(15) {
        let args = json!({ "file_path": "overnight:result/c9", "start_line": start, "end_line": start + 14 });
        let told = bench.text_of("read_file", &args);
        assert!(told.starts_with("[1 line with more than 2000 characters"), "{told}");
        seen.extend(told.lines().filter(|line| !line.starts_with('[')));
    }
    assert_eq!(seen, line);
}

//! Tests of limits, order and parity with `rg`.

#![expect(
    clippy::disallowed_methods,
    reason = "the other program is started to compare with it"
)]

use crate::base::secret::check_cut;
use crate::tools::args::Args;
use crate::tools::page::MAX_LINE;
use crate::tools::testing::TestWorkspace;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn the_first_matches_by_path_are_shown_whatever_thread_found_them() {
    let names: Vec<String> = (0..300).map(|n| format!("d{}/f{n}.txt", n % 7)).collect();
    let text = "hit\n".repeat(100);
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), text.as_bytes())).collect();
    let bench = TestWorkspace::new(&files);
    let args = json!({ "pattern": "hit", "total_max_matches": 150 });
    let first = bench.text_of("grep_search", &args);
    let mut sorted = names.clone();
    sorted.sort();
    assert!(first.starts_with("Found 30000 match(es)"), "{first}");
    assert!(first.contains("the first 150 are shown"), "{first}");
    assert!(
        first.contains(&sorted[0]) && first.contains(&sorted[1]) && !first.contains(&sorted[2]),
        "{first}"
    );
    for _ in 0..5 {
        assert_eq!(bench.text_of("grep_search", &args), first);
    }
}

#[test]
fn a_search_that_takes_too_long_is_stopped_and_told() {
    let text = "hit\n".repeat(200_000);
    let bench = TestWorkspace::new(&[("a", text.as_bytes())]);
    let args = json!({ "pattern": "hit" });
    let query = super::query(&Args::of(&args).unwrap(), &bench.workspace).unwrap();
    let work = super::bounded(query, std::time::Duration::ZERO);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime.block_on(work(bench.context(1))).unwrap_err();
    assert!(error.to_string().contains("was stopped after 0 s"), "{error}");
}

#[test]
fn a_pattern_that_cannot_be_searched_is_told_with_what_to_do() {
    let bench = TestWorkspace::new(&[("a", b"one\ntwo\n")]);
    for (args, says) in [
        (json!({ "pattern": "one\ntwo" }), "line by line"),
        (json!({ "pattern": "one\\ntwo" }), "line by line"),
        (json!({ "pattern": "one\ntwo", "fixed_strings": true }), "line by line"),
        (json!({ "pattern": "a\\x00" }), "NUL bytes are binary"),
        (json!({ "pattern": "(" }), "fixed_strings: true"),
    ] {
        let error = bench.run("grep_search", &args).err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(says)),
            "{args} {error:?}"
        );
    }
    let unwanted = bench
        .run("grep_search", &json!({ "pattern": "one", "exclude_pattern": "(" }))
        .err()
        .unwrap();
    assert!(!unwanted.to_string().contains("fixed_strings"), "{unwanted}");
}

#[test]
fn a_result_keeps_within_its_bytes() {
    let line = format!("hit {}\n", "é".repeat(3_000));
    let text = line.repeat(100);
    let bench = TestWorkspace::new(&[("a", text.as_bytes())]);
    let told = bench.text_of("grep_search", &json!({ "pattern": "hit" }));
    assert!(told.len() <= crate::tools::results::SHOWN, "{}", told.len());
    assert!(
        told.starts_with("Found 100 match(es)") && told.contains("are shown"),
        "{}",
        &told[..200]
    );
    assert!(told.contains("more characters]"));
}

#[test]
fn a_secret_in_a_long_line_is_redacted_before_the_line_is_cut() {
    let args = json!({ "pattern": "and more" });
    check_cut(MAX_LINE, |line| {
        let bench = TestWorkspace::new(&[("a", line.as_bytes())]);
        let query = super::query(&Args::of(&args).unwrap(), &bench.workspace).unwrap();
        let mut found = super::scan::scan(&query, &bench.workspace, &|| false);
        let shown = found.files.remove(0).lines.remove(0).text;
        assert!(shown.contains("more characters]"), "{shown}");
        shown
    });
}

#[test]
fn lines_around_matches_take_bounded_memory() {
    let line = format!("hit {}\n", "y".repeat(1_900));
    let text = format!("{line}{}", "-".repeat(1_900) + "\n").repeat(2_500);
    let bench = TestWorkspace::new(&[("a", text.as_bytes())]);
    let args = json!({ "pattern": "hit", "context": 100, "total_max_matches": 100_000 });
    let query = super::query(&Args::of(&args).unwrap(), &bench.workspace).unwrap();
    let found = super::scan::scan(&query, &bench.workspace, &|| false);
    let held: usize = found.files[0].lines.iter().map(|line| line.text.len()).sum();
    assert_eq!(found.matches, 2_500);
    assert!(held < 5 << 20, "{held}");
}

#[test]
fn the_access_is_the_place_that_is_searched() {
    let bench = TestWorkspace::new(&[("src/a.rs", b"x")]);
    let ran = bench
        .run("grep_search", &json!({ "pattern": "x", "dir_path": "./src/../src" }))
        .unwrap();
    assert_eq!(ran.title, "search src for \"x\"");
    assert_eq!(
        ran.access
            .reads
            .iter()
            .map(|place| place.path.as_str())
            .collect::<Vec<_>>(),
        ["src"]
    );
    assert!(ran.access.writes.is_empty() && ran.preview.is_none());
    let output = ran.result.unwrap();
    assert_eq!(
        (output.locations[0].path.as_str(), output.locations[0].line),
        ("src/a.rs", Some(1))
    );
}

/// Every 8th word of this crate's sources, some as they are, some as patterns.
fn patterns(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("src/tools/mod.rs")).unwrap()
        + &std::fs::read_to_string(root.join("src/base/message.rs")).unwrap();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.len() > 1)
        .collect();
    let mut seed: u64 = 0x9E37_79B9;
    let mut next = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    (0..200)
        .map(|n| {
            let (a, b) = (words[next(words.len())], words[next(words.len())]);
            match n % 8 {
                0 => a.to_owned(),
                1 => format!(r"\b{a}\b"),
                2 => format!("{a}|{b}"),
                3 => format!(r"^\s*(pub )?{a}"),
                4 => format!(r"{}\w*\s", &a[..1]),
                5 => format!("{a}.*{b}"),
                6 => format!(r"[{}{}][a-f]+{{2,}}", &a[..1], &b[..1]),
                _ => format!(r"{a}[^a-z]$"),
            }
        })
        .collect()
}

#[test]
fn the_same_lines_as_rg_on_200_patterns() {
    let Ok(version) = Command::new("rg").arg("--version").output() else {
        assert_ne!(
            std::env::var("OVERNIGHT_REQUIRE").as_deref(),
            Ok("all"),
            "rg is missing"
        );
        return eprintln_skip();
    };
    assert!(version.status.success());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = crate::workspace::Workspace::open(&root.join("src")).unwrap();
    let bench = TestWorkspace::on(workspace);
    for (n, pattern) in patterns(root).iter().enumerate() {
        let insensitive = n % 2 == 0;
        let mut rg = Command::new("rg");
        rg.args([
            "--no-config",
            "--no-heading",
            "--with-filename",
            "--line-number",
            "--no-require-git",
            "--no-ignore-exclude",
            "--no-ignore-global",
            "--no-ignore-parent",
            "--sort=path",
        ]);
        rg.args(insensitive.then_some("--ignore-case"))
            .args(["-e", pattern, "."]);
        let output = rg.current_dir(root.join("src")).output().unwrap();
        let mut expected: Vec<(String, u64)> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| {
                let mut parts = line.trim_start_matches("./").splitn(3, ':');
                (parts.next().unwrap().to_owned(), parts.next().unwrap().parse().unwrap())
            })
            .collect();
        expected.sort();
        let args = json!({ "pattern": pattern, "case_sensitive": !insensitive, "total_max_matches": 1_000_000 });
        assert_eq!(hits(&bench, &args), expected, "{pattern}");
    }
}

/// Path and number of each matching line, from the search itself, because the text for the model is cut at 40 kB.
fn hits(bench: &TestWorkspace, args: &Value) -> Vec<(String, u64)> {
    let query = super::query(&Args::of(args).unwrap(), &bench.workspace).unwrap();
    let found = super::scan::scan(&query, &bench.workspace, &|| false);
    let mut hits: Vec<(String, u64)> = found
        .files
        .iter()
        .flat_map(|file| file.lines.iter().map(|line| (file.path.clone(), line.number)))
        .collect();
    hits.sort();
    hits
}

fn eprintln_skip() {
    use std::io::Write;
    let _told = writeln!(std::io::stderr(), "skipped: rg is not installed");
}

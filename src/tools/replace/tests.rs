//! Tests of edits: the corpus, and properties of any edit.

use super::corpus::{self, EditCase, ExpectedEdit};
use super::{EditFailure, FoundEdit, find_edit};
use crate::workspace::text::decode;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn attempt(case: &EditCase) -> Result<FoundEdit, EditFailure> {
    find_edit(&decode(&case.file).unwrap(), &case.old, &case.new, case.multiple)
}

/// The result of a case: right, refused although it should have matched, or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Right,
    Refused,
    Wrong,
}

fn mark(case: &EditCase, outcome: &Result<FoundEdit, EditFailure>) -> Mark {
    match (&case.wanted, outcome) {
        (ExpectedEdit::Bytes(bytes) | ExpectedEdit::BytesOrRefusal(bytes), Ok(found_edit))
            if found_edit.bytes == *bytes =>
        {
            Mark::Right
        }
        (ExpectedEdit::BytesOrRefusal(_), Err(_)) => Mark::Right,
        (ExpectedEdit::Refusal(kind), Err(miss)) if miss.kind() == kind => Mark::Right,
        (_, Err(_)) => Mark::Refused,
        (_, Ok(_)) => Mark::Wrong,
    }
}

#[test]
fn the_corpus_lands_or_is_refused() {
    let cases = corpus::load();
    let mut marks: BTreeMap<&str, BTreeMap<Mark, usize>> = BTreeMap::new();
    let mut bad = String::new();
    for (row, case) in cases.iter().enumerate() {
        let outcome = attempt(case);
        let mark = mark(case, &outcome);
        *marks.entry(&case.defect).or_default().entry(mark).or_default() += 1;
        if mark != Mark::Right {
            let got = match &outcome {
                Ok(found_edit) => format!(
                    "{} {:?}\n{:?}",
                    found_edit.strategy, found_edit.corrections, found_edit.edits
                ),
                Err(miss) => miss.message("FILE"),
            };
            bad.push_str(&format!(
                "--- row {} {}: {mark:?}\nold {:?}\nnew {:?}\n{got}\n",
                row + 1,
                case.defect,
                case.old,
                case.new
            ));
        }
    }
    let count = |mark: Mark| marks.values().filter_map(|marks| marks.get(&mark)).sum::<usize>();
    assert!(cases.len() >= 300);
    assert_eq!(count(Mark::Wrong), 0, "{bad}\n{marks:#?}");
    assert_eq!(count(Mark::Refused), 0, "{bad}\n{marks:#?}");
}

fn bytes(file: &str, old: &str, new: &str) -> Result<String, &'static str> {
    let found_edit = find_edit(&decode(file.as_bytes()).unwrap(), old, new, false).map_err(|miss| miss.kind())?;
    Ok(String::from_utf8(found_edit.bytes).unwrap())
}

#[test]
fn a_dedented_block_that_is_wrapped_stays_in_its_place() {
    let file = "fn a() {\n    b();\n    c();\n    d();\n}\n";
    let wrapped = bytes(file, "b();\nc();\n", "if ready {\n    b();\n    c();\n}\n").unwrap();
    let wanted = "fn a() {\n    if ready {\n        b();\n        c();\n    }\n    d();\n}\n";
    assert_eq!(wrapped, wanted);
}

#[test]
fn backslashes_beside_escaped_quotes_are_not_guessed() {
    let file = "a = \"1\"\nz = \"2\"\n";
    let added = r#"a = \"1\"
b = \"[.]\"
"#;
    assert_eq!(
        bytes(file, "a = \\\"1\\\"\n", added).unwrap(),
        "a = \"1\"\nb = \"[.]\"\nz = \"2\"\n"
    );
    assert!(bytes(file, "a = \\\"1\\\"\n", &added.replace("[.]", r"\\.")).is_err());
}

#[test]
fn the_depth_of_what_stays_is_kept() {
    let file = "fn a() {\n    if x {\n        b();\n    }\n}\n";
    let flat = "fn a() {\nif x {\nb();\n}\n";
    let kept = "    if x {\n        b();\n    }\n";
    assert_eq!(bytes(file, flat, kept).unwrap(), file.replace("fn a() {\n", ""));
    let dedented = "    b();\n}\n";
    let block = "        b();\n    }\n";
    assert_eq!(
        bytes(file, dedented, "        b();\n").unwrap(),
        file.replace(block, "        b();\n")
    );
}

#[test]
fn accents_may_be_composed_or_decomposed() {
    let (composed, decomposed) = ("M\u{fc}ller", "Mu\u{308}ller");
    for (own, other) in [(composed, decomposed), (decomposed, composed)] {
        let file = format!("s = '{own}'\nt = 1\n");
        let edited = bytes(&file, &format!("s = '{other}'"), &format!("s = '{other}s'"));
        assert_eq!(edited.unwrap(), format!("s = '{own}s'\nt = 1\n"));
    }
    let both = format!("a = {decomposed}\nb = {composed}\n");
    let miss = find_edit(
        &decode(both.as_bytes()).unwrap(),
        &format!("a = {composed}"),
        "x",
        false,
    )
    .unwrap_err();
    assert_eq!(miss.kind(), "edit_no_occurrence_found");
    let told = miss.message("a.txt");
    assert!(
        told.contains("decomposed") && told.contains("line 1 of a.txt"),
        "{told}"
    );
}

#[test]
fn a_doubtful_depth_is_refused() {
    let file = "fn a() {\n    if x {\n        b();\n    }\n}\n";
    let flat = "fn a() {\nif x {\nb();\n}\n}\n";
    let more = "fn a() {\nif x {\nb();\nc();\n}\n}\n";
    assert_eq!(bytes(file, flat, more), Err("edit_no_occurrence_found"));
    let other = "fn a() {\nif x {\nc();\n}\n}\n";
    assert_eq!(bytes(file, flat, other).unwrap(), file.replace("b()", "c()"));
}

#[test]
fn a_miss_shows_the_nearest_lines() {
    let file = decode(b"one\nlet total = sum(prices);\nthree\n").unwrap();
    let miss = find_edit(&file, "let total = prices.iter().sum();", "x", false).unwrap_err();
    let told = miss.message("src/a.rs");
    assert!(
        told.contains("    2: let total = sum(prices);") && told.contains("src/a.rs"),
        "{told}"
    );
    let many = find_edit(&decode(b"a b\na c\n").unwrap(), "a", "x", false).unwrap_err();
    assert_eq!(many, EditFailure::Many { lines: vec![1, 2] });
}

proptest! {
    #[test]
    fn an_exact_unique_place_is_replaced_as_str_does(
        lines in prop::collection::vec("[a-d]{1,3}( [a-d]{1,3})?", 1..8),
        cut: (prop::sample::Index, prop::sample::Index),
        new in "[x-z\n]{0,6}",
    ) {
        let text = lines.join("\n");
        let (a, b) = (cut.0.index(text.len() + 1), cut.1.index(text.len() + 1));
        let old = &text[a.min(b)..a.max(b)];
        // A copy that begins with the end of the line above does not ask for two lines to become one.
        prop_assume!(!old.starts_with('\n') && !old.is_empty() && old != new && super::exact::overlapping(&text, old).len() == 1);
        prop_assert_eq!(bytes(&text, old, &new), Ok(text.replacen(old, &new, 1)));
    }

    #[test]
    fn exact_whole_lines_are_taken_at_their_word(
        lines in prop::collection::vec("[ ]{0,6}[a-d(){:]{1,4}", 2..9),
        part: (prop::sample::Index, prop::sample::Index),
        new in prop::collection::vec("[ ]{0,6}[x-z(){:]{1,3}", 0..5),
    ) {
        let (a, b) = (part.0.index(lines.len()), part.1.index(lines.len()));
        let whole = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (text, old, new) = (whole(&lines), whole(&lines[a.min(b)..=a.max(b)]), whole(&new));
        // The same text again is an error that says so.
        prop_assume!(old != new && super::exact::overlapping(&text, &old).len() == 1);
        prop_assert_eq!(bytes(&text, &old, &new), Ok(text.replacen(&old, &new, 1)));
    }

    #[test]
    fn nothing_outside_the_place_changes(
        lines in prop::collection::vec(("[ \t]{0,5}[a-c(]{1,3}[ ]{0,2}[a-c)]{0,3}", prop::sample::select(vec!["\n", "\r\n"])), 2..10),
        old in "[ \t]{0,3}[a-c(]{1,3} ?[a-c)]{0,3}\n?[ a-c)]{0,4}",
        new in "[ \t]{0,3}[x-z]{1,3}\n?[ x-z]{0,4}",
        multiple: bool,
    ) {
        let file: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
        let text = decode(file.as_bytes()).unwrap();
        if let Ok(found_edit) = find_edit(&text, &old, &new, multiple) {
            let first = text.raw_range(found_edit.edits.first().unwrap().0.clone()).unwrap();
            let last = text.raw_range(found_edit.edits.last().unwrap().0.clone()).unwrap();
            prop_assert!(found_edit.bytes.starts_with(&file.as_bytes()[..first.start]));
            prop_assert!(found_edit.bytes.ends_with(&file.as_bytes()[last.end..]));
            prop_assert!(multiple || found_edit.edits.len() == 1);
        }
    }
}

#[test]
fn a_line_that_lost_its_blanks_takes_none_from_the_others() {
    let file = "def f():\n    a()\n    if x:\n        b()\n    c()\n";
    let lost = "    a()\n    if x:\n        b()\nc()\n";
    assert_eq!(
        bytes(file, lost, "    a(1)\n    if x:\n        b()\nc()\n").unwrap(),
        file.replace("a()", "a(1)")
    );
    let added = "    a()\n    if x:\n        b()\nc()\nd()\n";
    assert_eq!(bytes(file, lost, added), Err("edit_no_occurrence_found"));
    let flat = "b()\nc()\n";
    assert_eq!(bytes(file, flat, "b()\nd()\nc()\n"), Err("edit_no_occurrence_found"));
}

#[test]
fn a_copy_that_is_less_deep_is_no_part_of_a_line() {
    let file = "fn f() {\n    if a {\n        b();\n    }\n}\n";
    assert_eq!(
        bytes(file, "    b();\n", "    b();\n    c();\n").unwrap(),
        file.replace("b();\n", "b();\n        c();\n")
    );
    let blanks = "x = 1\ny = 2   \nz = 3\n";
    assert_eq!(
        bytes(blanks, "x = 1\ny = 2\n", "x = 1\ny = 2\nw = 0\n").unwrap(),
        blanks.replace("2   \n", "2   \nw = 0\n")
    );
}

#[test]
fn many_places_take_no_longer_than_the_file_is_long() {
    let started = std::time::Instant::now();
    let kind = |outcome: Result<FoundEdit, EditFailure>| {
        outcome.map_err(|miss| miss.kind()).map(|found_edit| found_edit.bytes)
    };
    // Many matches in one line, in an encoding where characters are counted.
    let line = "one, two; three and four é; ".repeat(90_000);
    let bytes: Vec<u8> = line.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let changed: Vec<u8> = line
        .replace("two", "2")
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    assert_eq!(
        kind(find_edit(&decode(&bytes).unwrap(), "two", "2", true)).unwrap(),
        changed
    );
    // Many matches of whole lines.
    let lines = decode("x\n".repeat(30_000).as_bytes()).unwrap();
    assert_eq!(
        kind(find_edit(&lines, "x\n", "\tx\n", true)).unwrap(),
        "\tx\n".repeat(30_000).as_bytes()
    );
    assert_eq!(
        kind(find_edit(&lines, "x\n", &format!("{}\n", "y".repeat(1_000)), true)),
        Err("content_too_large")
    );
    // Matches that overlap, exactly and in their words.
    let same = decode("a".repeat(2_000_000).as_bytes()).unwrap();
    let many = find_edit(&same, &"a".repeat(100_000), "b", false).unwrap_err();
    let told = many.message("f");
    assert!(told.contains("matches more than 1000 places"), "{told}");
    let words = decode("a ".repeat(100_000).as_bytes()).unwrap();
    assert_eq!(
        kind(find_edit(&words, &"a  ".repeat(20_000), "b", false)),
        Err("content_too_large")
    );
    // Long words that differ in many characters.
    let long = decode("ab".repeat(50_000).as_bytes()).unwrap();
    assert!(find_edit(&long, &"ac".repeat(50_000), "b", false).is_err());
    assert!(started.elapsed() < std::time::Duration::from_secs(30));
}

#[test]
fn a_numbered_copy_is_found_where_a_line_begins() {
    let file = format!("{}x\n", "ax\n".repeat(1_500));
    let found_edit = find_edit(&decode(file.as_bytes()).unwrap(), "1501: x", "1501: y", false).unwrap();
    assert_eq!(found_edit.bytes, format!("{}y\n", "ax\n".repeat(1_500)).as_bytes());
}

//! Edits: the share of the corpus by strategy, and the time of an attempt. Judges nothing; the tests do.
//!
//! `OVERNIGHT_EDITS` names a file of `fixtures/edits/generate.py`, whose edits are then measured as well.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

#[path = "../../src/tools/replace/corpus.rs"]
mod corpus;

use corpus::{EditCase, ExpectedEdit};
use criterion::Criterion;
use overnight::tools::replace::{Strategy, find_edit};
use overnight::workspace::text::decode;
use std::collections::BTreeMap;
use std::hint::black_box;

fn shares(cases: &[EditCase]) {
    let (mut ways, mut marks) = (BTreeMap::<String, usize>::new(), BTreeMap::<&str, usize>::new());
    for (row, case) in cases.iter().enumerate() {
        let outcome = find_edit(&decode(&case.file).unwrap(), &case.old, &case.new, case.multiple);
        let way = match &outcome {
            Ok(found_edit) if found_edit.strategy == Strategy::Exact && !found_edit.corrections.is_empty() => {
                "corrected".to_owned()
            }
            Ok(found_edit) => found_edit.strategy.to_string(),
            Err(_) => "refused".to_owned(),
        };
        *ways.entry(way).or_default() += 1;
        let mark = match (&case.wanted, &outcome) {
            (ExpectedEdit::Bytes(bytes) | ExpectedEdit::BytesOrRefusal(bytes), Ok(found_edit))
                if found_edit.bytes == *bytes =>
            {
                "right"
            }
            (ExpectedEdit::BytesOrRefusal(_), Err(_)) => "right",
            (ExpectedEdit::Refusal(kind), Err(miss)) if miss.kind() == kind => "right",
            (_, Err(_)) => "refused for no reason",
            (_, Ok(_)) => "wrong bytes",
        };
        if mark != "right" {
            println!("  {mark}: row {} {}", row + 1, case.defect);
        }
        *marks.entry(mark).or_default() += 1;
    }
    let percent = |count: usize| 100.0 * count as f64 / cases.len() as f64;
    println!("{} attempts", cases.len());
    for (way, count) in ways {
        println!("  {way:24} {count:5} {:5.1} %", percent(count));
    }
    for (mark, count) in marks {
        println!("  {mark:24} {count:5} {:5.1} %", percent(count));
    }
}

fn main() {
    let cases = corpus::load();
    shares(&cases);
    if let Some(path) = std::env::var_os("OVERNIGHT_EDITS") {
        let table = std::fs::read_to_string(path).unwrap();
        let rows = table
            .lines()
            .map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        let read = |row: &serde_json::Value| std::fs::read_to_string(row["path"].as_str().unwrap()).unwrap();
        shares(&rows.map(|row| corpus::case(&row, &read(&row))).collect::<Vec<_>>());
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    criterion.bench_function("edits/whole corpus", |bencher| {
        bencher.iter(|| {
            for case in &cases {
                let file = decode(&case.file).unwrap();
                let _ = black_box(find_edit(&file, &case.old, &case.new, case.multiple));
            }
        });
    });
    criterion.final_summary();
}

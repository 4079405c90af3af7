//! The corpus of edits, and what must hold of any edit.

use super::corpus::{self, Case, Wanted};
use super::{Landing, Miss, land};
use crate::workspace::text::decode;
use std::collections::BTreeMap;

fn attempt(case: &Case) -> Result<Landing, Miss> {
    land(&decode(&case.file).unwrap(), &case.old, &case.new, case.multiple)
}

/// Right, refused although it should have landed, or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Right,
    Refused,
    Wrong,
}

fn mark(case: &Case, outcome: &Result<Landing, Miss>) -> Mark {
    match (&case.wanted, outcome) {
        (Wanted::Bytes(bytes) | Wanted::BytesOrRefusal(bytes), Ok(landing)) if landing.bytes == *bytes => Mark::Right,
        (Wanted::BytesOrRefusal(_), Err(_)) => Mark::Right,
        (Wanted::Refusal(kind), Err(miss)) if miss.kind() == kind => Mark::Right,
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
                Ok(landing) => format!("{} {:?}\n{:?}", landing.strategy, landing.corrections, landing.edits),
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

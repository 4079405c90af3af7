//! The conditions of `[[ … ]]`, and the files that `[[`, `[` and `test` examine.

use super::scope::{CommandWalk, ShellState};
use super::{CommandRefusal, FileUse, ShellWord, place, words};
use brush_parser::ast::{ExtendedTestExpr, UnaryPredicate};

/// Files outside the workspace that a file condition examines; the system's programs and devices are exempt.
pub fn asked(walk: &CommandWalk<'_>, state: &ShellState, word: &ShellWord) -> Vec<FileUse> {
    const KNOWN: [&str; 5] = ["/usr/", "/bin/", "/dev/", "/.dockerenv", "/etc/os-release"];
    let named = |text: &&str| !KNOWN.iter().any(|head| text.starts_with(head)) || text.contains("..");
    let uses = word
        .exact()
        .filter(named)
        .and_then(|text| place::of_text(walk, state, text));
    uses.unwrap_or_default()
        .into_iter()
        .filter(|found| found.place.as_ref().is_some_and(|place| !place.inside))
        .collect()
}

/// Files outside the workspace that `test` and `[` examine.
pub fn asked_by(walk: &CommandWalk<'_>, state: &ShellState, words: &[ShellWord]) -> Vec<FileUse> {
    const UNARY: &str = "edfrwxsLhbcpSgukOGNa";
    const BINARY: [&str; 3] = ["-nt", "-ot", "-ef"];
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let before = words[at - 1].exact().unwrap_or_default();
        let after = words.get(at + 1).and_then(ShellWord::exact).unwrap_or_default();
        let unary = before.len() == 2 && before.starts_with('-') && UNARY.contains(&before[1..]);
        if unary || BINARY.contains(&before) || BINARY.contains(&after) {
            place::add(&mut found, asked(walk, state, word));
        }
    }
    found
}

/// Checks the expansions; refuses what evaluates text as arithmetic or as the name of a variable.
///
/// # Errors
/// A refused construct.
pub fn check(walk: &mut CommandWalk<'_>, state: &ShellState, expr: &ExtendedTestExpr) -> Result<(), CommandRefusal> {
    match expr {
        ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
            check(walk, state, left)?;
            check(walk, state, right)
        }
        ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => check(walk, state, inner),
        ExtendedTestExpr::UnaryTest(predicate, word) => {
            if matches!(
                predicate,
                UnaryPredicate::ShellVariableIsSetAndAssigned | UnaryPredicate::ShellVariableIsSetAndNameRef
            ) {
                return Err(CommandRefusal::construct(
                    "test -v",
                    "test the value: `[ -n \"$name\" ]`",
                ));
            }
            let word = words::evaluate_one(walk, state, &word.value)?;
            let of_text = matches!(
                predicate,
                UnaryPredicate::StringHasZeroLength | UnaryPredicate::StringHasNonZeroLength
            );
            if !of_text {
                let asked = asked(walk, state, &word);
                place::add(&mut walk.reading.tested, asked);
            }
            Ok(())
        }
        ExtendedTestExpr::BinaryTest(predicate, left, right) => {
            use brush_parser::ast::BinaryPredicate as Binary;
            let counts = matches!(
                predicate,
                Binary::ArithmeticEqualTo
                    | Binary::ArithmeticNotEqualTo
                    | Binary::ArithmeticLessThan
                    | Binary::ArithmeticLessThanOrEqualTo
                    | Binary::ArithmeticGreaterThan
                    | Binary::ArithmeticGreaterThanOrEqualTo
            );
            for side in [left, right] {
                let word = words::evaluate_one(walk, state, &side.value)?;
                if counts && !word.is_number() {
                    return Err(CommandRefusal::construct(
                        "[[ -eq",
                        "use `[ … -eq … ]`, which evaluates no text",
                    ));
                }
            }
            Ok(())
        }
    }
}

//! The conditions of `[[ … ]]`. Knows no other command.

use super::scope::{State, Walk};
use super::{Refusal, simple, words};
use brush_parser::ast::{ExtendedTestExpr, UnaryPredicate};

/// Looks at expansions; refuses what evaluates a text as arithmetic or names a variable.
///
/// # Errors
/// A refused construct.
pub fn check(walk: &mut Walk<'_>, state: &State, expr: &ExtendedTestExpr) -> Result<(), Refusal> {
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
                return Err(Refusal::construct("test -v", "test the value: `[ -n \"$name\" ]`"));
            }
            words::evaluate_one(walk, state, &word.value).map(drop)
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
                if counts && !simple::is_number(&word) {
                    return Err(Refusal::construct(
                        "[[ -eq",
                        "use `[ … -eq … ]`, which evaluates no text",
                    ));
                }
            }
            Ok(())
        }
    }
}

//! The exit codes, and the mapping from verdicts to them.

use crate::base::outcome::{RunOutcome, Verdict};

/// Passed, or there was nothing to do.
pub const PASSED: u8 = 0;
/// A check failed, the answer does not match the response schema, an expectation is unmet, a replay lacks a reply, or
/// the model made no progress.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// A recipe, policy, manifest or settings file is wrong.
pub const INVALID: u8 = 3;
/// An action that the task needed was denied.
pub const DENIED: u8 = 4;
/// The run waits for approval.
pub const SUSPENDED: u8 = 5;
/// A limit was reached.
pub const BUDGET: u8 = 6;
/// The model service failed.
pub const PROVIDER: u8 = 7;
/// Something outside the run is missing or broken.
pub const ENVIRONMENT: u8 = 8;
/// An artefact or the journal could not be written.
pub const OUTPUT: u8 = 9;
/// Not all jobs of a batch ran.
pub const INCOMPLETE: u8 = 10;
/// A panic: a bug in this program.
pub const BUG: u8 = 70;

/// The table that `--help` prints.
pub const TABLE: &str = "\
Exit codes:
    0  passed, or nothing had to be done
    1  failed: a check, the response schema, an unmet expectation, a replay miss, or no progress
    2  usage: the command line
    3  invalid: a recipe, policy, manifest or settings file (each problem with file:line:column)
    4  denied: an action that the task needed was denied
    5  suspended: a rule said suspend; go on with `resume --approve` or `--deny`
    6  budget: turns, tokens, cost, wall clock or calls ran out
    7  provider: the model service, after retries
    8  environment: key, workspace, git, required server, sandbox, lock, no journal
    9  output: an artefact or the journal could not be written
   10  incomplete: jobs that did not run
   70  bug: a panic
  130, 143  cancelled by a signal";

/// The exit code of an outcome.
pub fn code(outcome: &RunOutcome) -> u8 {
    match outcome.verdict {
        Verdict::Passed | Verdict::NoChange => PASSED,
        Verdict::Failed => FAILED,
        Verdict::Denied => DENIED,
        Verdict::Suspended => SUSPENDED,
        Verdict::Budget => BUDGET,
        Verdict::Provider => PROVIDER,
        Verdict::Environment => ENVIRONMENT,
        Verdict::Output => OUTPUT,
        Verdict::Invalid => INVALID,
        Verdict::Usage => USAGE,
        Verdict::Incomplete => INCOMPLETE,
        Verdict::Bug => BUG,
        Verdict::Cancelled => {
            let signal = outcome.signal.unwrap_or(2);
            u8::try_from(128 + signal).unwrap_or(130)
        }
    }
}

/// The code with precedence if several apply.
pub fn stronger(a: u8, b: u8) -> u8 {
    let rank = |code: u8| match code {
        BUG => 0,
        OUTPUT => 1,
        128.. => 2,
        INVALID => 3,
        ENVIRONMENT => 4,
        INCOMPLETE => 5,
        SUSPENDED => 6,
        PROVIDER => 7,
        BUDGET => 8,
        DENIED => 9,
        FAILED => 10,
        USAGE => 11,
        _ => 12,
    };
    if rank(b) < rank(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_stated_precedence() {
        let order = [
            BUG,
            OUTPUT,
            130,
            INVALID,
            ENVIRONMENT,
            INCOMPLETE,
            SUSPENDED,
            PROVIDER,
            BUDGET,
            DENIED,
            FAILED,
            PASSED,
        ];
        for (place, strong) in order.iter().enumerate() {
            for weak in &order[place..] {
                assert_eq!(stronger(*strong, *weak), *strong);
                assert_eq!(stronger(*weak, *strong), *strong);
            }
        }
    }
}

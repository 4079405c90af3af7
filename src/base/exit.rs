//! The exit codes, which verdict and which signal has which, and which one has precedence when several apply.

use super::outcome::{RunOutcome, Verdict};

/// Passed, or there was nothing to do.
pub const PASSED: u8 = 0;
/// A check failed, the answer does not match the response schema, an expectation is unmet, a replay lacks a reply, or
/// the model made no progress.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// A recipe, policy, manifest, settings file or another file that the command line names is wrong or missing.
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
/// Not all jobs of a batch ran, or, for a delivery, ended in its last call.
pub const INCOMPLETE: u8 = 10;
/// A panic: a bug in this program.
pub const BUG: u8 = 70;

/// The table that `--help` prints.
pub const TABLE: &str = "\
Exit codes:
    0  passed, or nothing had to be done
    1  failed: a check, the response schema, an unmet expectation, a replay miss, or no progress
    2  usage: the command line
    3  invalid: a recipe, policy, manifest, input or settings file (each problem with file:line:column)
    4  denied: an action that the task needed was denied
    5  suspended: a rule said suspend; continue with `resume --approve` or `--deny`
    6  budget: turns, tokens, cost, wall clock or calls ran out
    7  provider: the model service, after retries
    8  environment: key, workspace, git, required server, sandbox, lock, no journal
    9  output: an artefact or the journal could not be written
   10  incomplete: jobs that did not run, or for `deliver` that the last call did not end
   70  bug: a panic
  129, 130, 143  cancelled by a signal (SIGHUP, SIGINT, SIGTERM)";

/// The exit code of an outcome.
pub fn code(outcome: &RunOutcome) -> u8 {
    match outcome.verdict {
        Verdict::Cancelled => of_signal(outcome.signal.unwrap_or(2)),
        verdict => lowest(verdict),
    }
}

/// The verdict of an exit code.
pub fn verdict(code: u8) -> Verdict {
    if code >= CANCELLED {
        return Verdict::Cancelled;
    }
    let mut all = Verdict::ALL.into_iter();
    all.find(|verdict| lowest(*verdict) == code).unwrap_or(Verdict::Bug)
}

/// The exit code of a verdict; of `cancelled` the lowest.
fn lowest(verdict: Verdict) -> u8 {
    match verdict {
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
        Verdict::Cancelled => CANCELLED,
    }
}

/// The exit code of a command that this signal ended.
pub fn of_signal(number: i32) -> u8 {
    u8::try_from(i32::from(CANCELLED).saturating_add(number)).unwrap_or(130)
}

/// The name of a signal that asks a command to end.
pub fn signal_name(number: i32) -> &'static str {
    match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        15 => "SIGTERM",
        _ => "a signal",
    }
}

/// The codes from the one with most precedence to the one with least. The signal codes, 128 and above, share one place.
const PRECEDENCE: [u8; 13] = [
    BUG,
    OUTPUT,
    CANCELLED,
    INVALID,
    ENVIRONMENT,
    INCOMPLETE,
    SUSPENDED,
    PROVIDER,
    BUDGET,
    DENIED,
    FAILED,
    USAGE,
    PASSED,
];

/// The first code of a run that a signal ended; the signal's number is added.
const CANCELLED: u8 = 128;

/// The place of a code in the order of precedence; smaller is stronger. A code that is not in the table comes last.
fn rank(code: u8) -> usize {
    let code = if code >= CANCELLED { CANCELLED } else { code };
    let place = PRECEDENCE.iter().position(|listed| *listed == code);
    place.unwrap_or(PRECEDENCE.len())
}

/// The code with precedence if both apply: for outputs that could not be written, the jobs of a batch, and a delivery
/// and its runs. [`RunOutcome::and`] joins two outcomes of one run in the same order.
pub fn stronger(a: u8, b: u8) -> u8 {
    if rank(b) < rank(a) { b } else { a }
}

impl RunOutcome {
    /// The outcome with precedence if both apply, or `other` if they rank equally. If the remaining one is a failure,
    /// its message is appended.
    pub fn and(self, other: RunOutcome) -> RunOutcome {
        let (mut first, second) = match rank(code(&self)) < rank(code(&other)) {
            true => (self, other),
            false => (other, self),
        };
        if !second.verdict.is_success() && !first.message.contains(&second.message) {
            first.message = format!("{}; besides, {}", first.message, second.message);
        }
        first.partial |= second.partial;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_stated_place() {
        // The documented order, which scripts rely on, including the signal codes and the usage error.
        let order = [70, 9, 130, 3, 8, 10, 5, 7, 6, 4, 1, 2, 0];
        for (place, strong) in order.iter().enumerate() {
            for weak in &order[place..] {
                assert_eq!(stronger(*strong, *weak), *strong);
                assert_eq!(stronger(*weak, *strong), *strong);
            }
        }
        assert_eq!(stronger(143, 3), 143);
        assert_eq!(stronger(9, 143), 9);
        // Each verdict has a code in the table, and each code except 0 belongs to exactly one verdict.
        let mut codes: Vec<u8> = Verdict::ALL
            .into_iter()
            .map(|verdict| code(&RunOutcome::new(verdict, "", "")))
            .collect();
        codes.sort_unstable();
        let mut listed = order.to_vec();
        listed.push(0);
        listed.sort_unstable();
        assert_eq!(codes, listed);
        for verdict in Verdict::ALL {
            let found = super::verdict(code(&RunOutcome::new(verdict, "", "")));
            let same = found == verdict || (found == Verdict::Passed && verdict == Verdict::NoChange);
            assert!(same, "{verdict:?}: {found:?}");
        }
        assert_eq!(
            (super::verdict(143), super::verdict(77)),
            (Verdict::Cancelled, Verdict::Bug)
        );
        for code in order {
            assert!(TABLE.contains(&format!("{code}")), "{code} is in the table of `--help`");
        }
    }

    #[test]
    fn of_two_endings_the_stronger_decides_and_both_are_named() {
        let outcome = |verdict, message: &str| RunOutcome::new(verdict, "", message);
        for first in Verdict::ALL {
            for second in Verdict::ALL {
                let both = outcome(first, "one").and(outcome(second, "two"));
                let strong = stronger(code(&outcome(first, "")), code(&outcome(second, "")));
                assert_eq!(code(&both), strong, "{first:?} and {second:?}");
                for (verdict, message) in [(first, "one"), (second, "two")] {
                    assert!(verdict.is_success() || both.message.contains(message), "{both:?}");
                }
            }
        }
        let same = outcome(Verdict::Denied, "put back").and(outcome(Verdict::Denied, "put back"));
        assert_eq!(same.message, "put back");
    }
}

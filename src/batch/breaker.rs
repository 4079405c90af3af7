//! Decides when a batch stops starting jobs: consecutive failures of the model service, too many failed jobs, or a
//! service that has refused all further requests. Pure.

use super::manifest::{FailedLimit, StopRules};
use crate::base::quote::counted;

/// Counts how jobs ended.
#[derive(Debug)]
pub struct CircuitBreaker {
    rules: StopRules,
    /// Number of failed jobs that stops the batch.
    most_failed: Option<u64>,
    provider_in_a_row: u64,
    failed: u64,
}

impl CircuitBreaker {
    /// A breaker for a call that runs `jobs` jobs.
    pub fn new(rules: StopRules, jobs: u64) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of jobs, and a share between 0 and 100"
        )]
        let most_failed = rules.failed.map(|limit| match limit {
            FailedLimit::Jobs(jobs) => jobs,
            FailedLimit::Percent(share) => ((jobs as f64 * share / 100.0).ceil() as u64).max(1),
        });
        Self {
            rules,
            most_failed,
            provider_in_a_row: 0,
            failed: 0,
        }
    }

    /// Records the last attempt of a job. Returns the reason when the batch has to stop.
    pub fn note(&mut self, verdict: &str) -> Option<String> {
        match verdict {
            "provider" => self.provider_in_a_row += 1,
            // Such an ending says nothing about the service.
            "environment" | "invalid" => {}
            _ => self.provider_in_a_row = 0,
        }
        if !matches!(verdict, "passed" | "no_change" | "suspended" | "cancelled") {
            self.failed += 1;
        }
        if self.provider_in_a_row >= self.rules.provider_failures {
            let jobs = counted(self.provider_in_a_row, "job");
            return Some(format!(
                "the model service failed {jobs} in a row (stop.provider_failures)"
            ));
        }
        let most = self.most_failed?;
        (self.failed >= most).then(|| format!("{} did not pass (stop.failed)", counted(self.failed, "job")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_at_its_limits() {
        let rules = StopRules {
            provider_failures: 2,
            failed: Some(FailedLimit::Percent(30.0)),
        };
        let mut breaker = CircuitBreaker::new(rules, 10);
        for verdict in ["provider", "passed", "no_change", "suspended"] {
            assert_eq!(breaker.note(verdict), None);
        }
        assert_eq!(breaker.note("provider"), None);
        assert!(breaker.note("provider").unwrap().contains("in a row"));
        let mut breaker = CircuitBreaker::new(rules, 10);
        assert_eq!((breaker.note("failed"), breaker.note("denied")), (None, None));
        assert!(breaker.note("failed").unwrap().contains("3 jobs"));
    }
}

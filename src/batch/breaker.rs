//! Decides when a batch stops starting jobs: consecutive failures of the model service, too many failed jobs, or a
//! service that has refused all further requests. Pure.

use super::manifest::{FailedLimit, StopRules};
use crate::base::quote::counted;

/// Failed jobs below which a share of all jobs stops nothing: of few jobs, one or two failures say nothing about the rest.
const LEAST_FAILED: u64 = 5;

/// Counts how attempts and jobs ended.
#[derive(Debug)]
pub struct CircuitBreaker {
    rules: StopRules,
    /// Number of jobs that the call runs.
    jobs: u64,
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
            FailedLimit::Percent(share) => ((jobs as f64 * share / 100.0).ceil() as u64).max(LEAST_FAILED),
        });
        Self {
            rules,
            jobs,
            most_failed,
            provider_in_a_row: 0,
            failed: 0,
        }
    }

    /// Records an attempt, also one whose job is tried again. Returns the reason when the batch has to stop.
    pub fn attempted(&mut self, verdict: &str) -> Option<String> {
        match verdict {
            "provider" => self.provider_in_a_row += 1,
            // Such an ending says nothing about the service.
            "environment" | "invalid" => {}
            _ => self.provider_in_a_row = 0,
        }
        (self.provider_in_a_row >= self.rules.provider_failures).then(|| {
            let attempts = counted(self.provider_in_a_row, "attempt");
            format!("the model service failed {attempts} in a row (stop.provider_failures)")
        })
    }

    /// Records the last attempt of a job. Returns the reason when the batch has to stop.
    pub fn ended(&mut self, verdict: &str) -> Option<String> {
        if !matches!(verdict, "passed" | "no_change" | "suspended" | "cancelled") {
            self.failed += 1;
        }
        let (most, limit) = (self.most_failed?, self.rules.failed?);
        if self.failed < most {
            return None;
        }
        let limit = match limit {
            FailedLimit::Jobs(jobs) => jobs.to_string(),
            FailedLimit::Percent(share) => format!("{share}%"),
        };
        Some(format!(
            "{} of {} did not pass (stop.failed: {limit})",
            self.failed,
            counted(self.jobs, "job")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(failed: FailedLimit, jobs: u64) -> CircuitBreaker {
        let rules = StopRules {
            provider_failures: 2,
            failed: Some(failed),
        };
        CircuitBreaker::new(rules, jobs)
    }

    #[test]
    fn a_service_that_fails_attempts_in_a_row_stops_it() {
        let mut breaker = breaker(FailedLimit::Jobs(9), 10);
        for verdict in ["provider", "passed", "provider", "failed", "provider", "environment"] {
            assert_eq!(breaker.attempted(verdict), None);
        }
        assert!(breaker.attempted("provider").unwrap().contains("2 attempts in a row"));
    }

    #[test]
    fn failed_jobs_stop_it_at_a_number_or_a_share() {
        let ends = |mut breaker: CircuitBreaker, failures: u64| -> String {
            for _ in 1..failures {
                assert_eq!(breaker.ended("failed"), None);
            }
            for verdict in ["passed", "no_change", "suspended"] {
                assert_eq!(breaker.ended(verdict), None);
            }
            breaker.ended("denied").unwrap()
        };
        let told = ends(breaker(FailedLimit::Percent(30.0), 20), 6);
        assert_eq!(told, "6 of 20 jobs did not pass (stop.failed: 30%)");
        ends(breaker(FailedLimit::Jobs(1), 4), 1);
        // A share of few jobs is no reason to stop before five have failed.
        ends(breaker(FailedLimit::Percent(20.0), 10), LEAST_FAILED);
        let mut few = breaker(FailedLimit::Percent(20.0), 4);
        assert!((0..4).all(|_| few.ended("failed").is_none()));
    }
}

//! Pass rates of recipes and models over trials, with their uncertainty. Pure arithmetic.

use super::rows::RunRow;
use crate::base::budget::micros;
use crate::report::result::usd;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;
/// The largest k for which pass@k is reported.
const MAX_K: u64 = 100;

/// Results of one recipe with one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelScore {
    /// The recipe's name.
    pub recipe: String,
    /// The model as `PROVIDER/NAME`.
    pub model: String,
    /// Number of distinct jobs: combinations of recipe, target, reference, parameters and input, not counting
    /// trials.
    pub jobs: u64,
    /// Number of jobs that ended, each with the verdict of its last attempt, without those of `not_judged`.
    pub trials: u64,
    /// Number of these with verdict `passed` or `no_change`.
    pub passed: u64,
    /// Number of further jobs whose verdict says nothing of recipe and model, such as `environment`, `provider` and
    /// `output`.
    #[serde(default)]
    pub not_judged: u64,
    /// `passed` divided by `trials`.
    pub rate: f64,
    /// The lower end of the 95 % Wilson score interval of the pass rate.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// pass@k: the probability that at least one of k trials passes, averaged over jobs with at least k trials.
    pub pass_at: BTreeMap<u64, f64>,
    /// Cost in US dollars of the attempts behind these verdicts: all with the same inputs after an earlier success, also of
    /// earlier calls.
    pub cost: f64,
    /// Wall-clock time of these attempts.
    pub seconds: f64,
}

/// Cost and time of the attempts at a job with the inputs of its last row, since it last succeeded with them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttemptTotals {
    pub cost_micros: u64,
    pub seconds: f64,
}

impl AttemptTotals {
    /// The totals after one more row; these are those after `last`, the job's row before it.
    #[must_use]
    pub fn after(self, last: Option<&RunRow>, row: &RunRow) -> Self {
        let goes_on = last.is_some_and(|last| last.digest == row.digest && !last.is_success());
        let before = if goes_on { self } else { Self::default() };
        Self {
            cost_micros: before.cost_micros.saturating_add(micros(row.cost)),
            seconds: before.seconds + row.seconds,
        }
    }
}

/// Counts one more row of a job in the totals of its attempts, and keeps it as the last row of the job. A row without a
/// digest, of a job whose target could not be read, is no further attempt; nor is the row that is repeated after it, of a
/// job that is still up to date. `before_unread`: of jobs whose last row has no digest, the last row that has one.
pub fn count(
    attempts: &mut HashMap<String, AttemptTotals>,
    last: &mut HashMap<String, RunRow>,
    before_unread: &mut HashMap<String, RunRow>,
    row: RunRow,
) {
    let job = row.job.clone();
    let totals = attempts.entry(job.clone()).or_default();
    let is_read = |row: &RunRow| !row.digest.is_empty();
    if !is_read(&row) && (before_unread.contains_key(&job) || last.get(&job).is_some_and(is_read)) {
        if let Some(before) = last.insert(job.clone(), row).filter(is_read) {
            before_unread.insert(job, before);
        }
        return;
    }
    let unread = before_unread.remove(&job);
    let is_repeated = row.run.is_some() && unread.as_ref().is_some_and(|before| before.run == row.run);
    if !is_repeated {
        *totals = totals.after(unread.as_ref().or_else(|| last.get(&job)), &row);
    }
    last.insert(job, row);
}

/// Whether the verdict of a run says something of its recipe and model.
fn is_judged(row: &RunRow) -> bool {
    matches!(
        row.verdict.as_str(),
        "passed" | "no_change" | "failed" | "denied" | "budget"
    )
}

/// The 95 % Wilson score interval of `passed` out of `trials`.
pub fn wilson(passed: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let (n, k) = (as_float(trials), as_float(passed));
    let p = k / n;
    let square = Z * Z;
    let centre = p + square / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + square / (4.0 * n * n)).sqrt();
    let scale = 1.0 + square / n;
    let low = if passed == 0 {
        0.0
    } else {
        ((centre - spread) / scale).max(0.0)
    };
    let high = if passed == trials {
        1.0
    } else {
        ((centre + spread) / scale).min(1.0)
    };
    (low, high)
}

/// The probability that at least one of `k` trials, drawn without replacement from `trials` of which `passed` passed,
/// is a pass.
pub fn pass_at(k: u64, passed: u64, trials: u64) -> f64 {
    let failed = trials - passed.min(trials);
    if failed < k {
        return 1.0;
    }
    let all_fail: f64 = (0..k).map(|n| as_float(failed - n) / as_float(trials - n)).product();
    1.0 - all_fail
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn as_float(number: u64) -> f64 {
    number as f64
}

#[derive(Default)]
struct Cell {
    /// Passed and judged trials of each job.
    jobs: BTreeMap<String, (u64, u64)>,
    not_judged: u64,
    cost_micros: u64,
    seconds: f64,
}

/// The score of each pair of recipe and model, from the last row of each job and the totals of its attempts.
pub fn scores<'a>(jobs: impl Iterator<Item = (&'a RunRow, AttemptTotals)>) -> Vec<ModelScore> {
    let mut cells: BTreeMap<(String, String), Cell> = BTreeMap::new();
    for (row, attempts) in jobs {
        let cell = cells.entry((row.recipe.clone(), row.model.clone())).or_default();
        let task = (&row.name, &row.target, &row.git_ref, &row.params, &row.input);
        let key = serde_json::to_string(&task).unwrap_or_default();
        let (passed, trials) = cell.jobs.entry(key).or_default();
        let is_judged = is_judged(row);
        *passed += u64::from(row.is_success());
        *trials += u64::from(is_judged);
        cell.not_judged += u64::from(!is_judged);
        cell.cost_micros = cell.cost_micros.saturating_add(attempts.cost_micros);
        cell.seconds += attempts.seconds;
    }
    cells
        .into_iter()
        .map(|((recipe, model), cell)| score(recipe, model, &cell))
        .collect()
}

fn score(recipe: String, model: String, cell: &Cell) -> ModelScore {
    let passed: u64 = cell.jobs.values().map(|(passed, _)| passed).sum();
    let trials: u64 = cell.jobs.values().map(|(_, trials)| trials).sum();
    let (low, high) = wilson(passed, trials);
    let most = cell
        .jobs
        .values()
        .map(|(_, trials)| *trials)
        .max()
        .unwrap_or(0)
        .min(MAX_K);
    let mean = |k: u64| {
        let fit: Vec<f64> = cell
            .jobs
            .values()
            .filter(|(_, trials)| *trials >= k)
            .map(|(passed, trials)| pass_at(k, *passed, *trials))
            .collect();
        fit.iter().sum::<f64>() / as_float(fit.len().max(1) as u64)
    };
    ModelScore {
        recipe,
        model,
        jobs: cell.jobs.len() as u64,
        trials,
        passed,
        not_judged: cell.not_judged,
        rate: if trials == 0 {
            0.0
        } else {
            as_float(passed) / as_float(trials)
        },
        low,
        high,
        pass_at: (1..=most).map(|k| (k, mean(k))).collect(),
        cost: usd(cell.cost_micros),
        seconds: cell.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4
    }

    #[test]
    fn intervals_are_those_of_the_literature() {
        // Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29.
        for (passed, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = wilson(passed, trials);
            assert!(near(l, low) && near(h, high), "{passed}/{trials}: {l} {h}");
        }
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    #[test]
    fn pass_at_k_is_the_unbiased_estimate() {
        assert!(near(pass_at(1, 3, 10), 0.3));
        // 1 - C(7,2)/C(10,2)
        assert!(near(pass_at(2, 3, 10), 1.0 - 21.0 / 45.0));
        assert!(near(pass_at(5, 0, 5), 0.0) && near(pass_at(5, 1, 5), 1.0));
    }

    #[test]
    fn jobs_that_differ_by_input_or_ref_are_no_trials_of_one_another() {
        let row = |input: &str, git_ref: &str, verdict: &str| RunRow {
            input: Some(input.to_owned()),
            git_ref: Some(git_ref.to_owned()),
            verdict: verdict.to_owned(),
            ..RunRow::default()
        };
        let rows = [
            row("a", "main", "passed"),
            row("b", "main", "failed"),
            row("a", "next", "failed"),
            row("a", "next", "passed"),
        ];
        let found = scores(rows.iter().map(|row| (row, AttemptTotals::default()))).remove(0);
        assert_eq!((found.jobs, found.trials, found.passed), (3, 4, 2));
        // At two trials only the last job counts.
        assert!(near(found.pass_at[&1], 0.5) && near(found.pass_at[&2], 1.0));
    }

    #[test]
    fn attempts_count_from_the_last_success_with_the_same_inputs() {
        let row = |digest: &str, verdict: &str| RunRow {
            digest: digest.to_owned(),
            verdict: verdict.to_owned(),
            cost: 0.35,
            seconds: 2.0,
            ..RunRow::default()
        };
        let totals = |rows: &[RunRow]| {
            let mut totals = AttemptTotals::default();
            for (at, row) in rows.iter().enumerate() {
                totals = totals.after(at.checked_sub(1).map(|before| &rows[before]), row);
            }
            (totals.cost_micros, totals.seconds)
        };
        let failed = || row("a", "failed");
        assert_eq!(
            totals(&[failed(), failed(), failed(), row("a", "passed")]),
            (1_400_000, 8.0)
        );
        assert_eq!(totals(&[failed(), row("b", "passed")]), (350_000, 2.0));
        assert_eq!(totals(&[row("a", "passed"), failed()]), (350_000, 2.0));
    }

    #[test]
    fn what_says_nothing_of_a_model_is_no_trial() {
        let rows = ["passed", "failed", "environment", "provider", "output"].map(|verdict| RunRow {
            verdict: verdict.to_owned(),
            ..RunRow::default()
        });
        let found = scores(rows.iter().map(|row| (row, AttemptTotals::default()))).remove(0);
        assert_eq!((found.trials, found.passed, found.not_judged), (2, 1, 3));
        assert!(near(found.rate, 0.5));
    }

    proptest! {
        #[test]
        fn figures_lie_where_they_must(passed in 0u64..60, more in 0u64..60, k in 1u64..20) {
            let trials = passed + more;
            let (low, high) = wilson(passed, trials);
            prop_assert!((0.0..=1.0).contains(&low) && (0.0..=1.0).contains(&high) && low <= high);
            if trials > 0 {
                let rate = as_float(passed) / as_float(trials);
                prop_assert!(low <= rate && rate <= high);
            }
            if trials >= k {
                let at = pass_at(k, passed, trials);
                prop_assert!((0.0..=1.0).contains(&at));
            }
        }
    }
}

//! Pass rates of recipes and models over trials, with their uncertainty. Pure arithmetic.

use super::rows::RunRow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Number of runs that ended.
    pub trials: u64,
    /// Number of these runs with verdict `passed` or `no_change`.
    pub passed: u64,
    /// `passed` divided by `trials`.
    pub rate: f64,
    /// The 95 % Wilson score interval of the pass rate.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// pass@k: the probability that at least one of k trials passes, averaged over jobs with at least k trials.
    pub pass_at: BTreeMap<u64, f64>,
    /// Total cost of all runs in US dollars.
    pub cost: f64,
    /// Total over all runs.
    pub seconds: f64,
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
    /// Passed and finished trials of each job.
    jobs: BTreeMap<String, (u64, u64)>,
    cost: f64,
    seconds: f64,
}

/// The score of each pair of recipe and model.
pub fn scores<'a>(rows: impl Iterator<Item = &'a RunRow>) -> Vec<ModelScore> {
    let mut cells: BTreeMap<(String, String), Cell> = BTreeMap::new();
    for row in rows {
        let cell = cells.entry((row.recipe.clone(), row.model.clone())).or_default();
        let task = (&row.name, &row.target, &row.git_ref, &row.params, &row.input);
        let key = serde_json::to_string(&task).unwrap_or_default();
        let (passed, trials) = cell.jobs.entry(key).or_default();
        *passed += u64::from(row.is_success());
        *trials += 1;
        cell.cost += row.cost;
        cell.seconds += row.seconds;
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
        rate: if trials == 0 {
            0.0
        } else {
            as_float(passed) / as_float(trials)
        },
        low,
        high,
        pass_at: (1..=most).map(|k| (k, mean(k))).collect(),
        cost: cell.cost,
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
        let found = scores(rows.iter()).remove(0);
        assert_eq!((found.jobs, found.trials, found.passed), (3, 4, 2));
        // At two trials only the last job counts.
        assert!(near(found.pass_at[&1], 0.5) && near(found.pass_at[&2], 1.0));
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

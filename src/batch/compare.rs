//! Compares two batches: which jobs passed in one and failed in the other, and whether chance alone explains the
//! difference.

use super::bundle::{self, BundleSeal};
use super::rows::{self, RunRow};
use super::{BatchError, merge, record};
use crate::base::quote::counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The differences between two batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchComparison {
    pub both_passed: u64,
    pub both_failed: u64,
    /// Jobs that failed in A and pass in B, by their names in B.
    pub fixed: Vec<String>,
    /// Jobs that passed in A and fail in B.
    pub broken: Vec<String>,
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
    /// Two-sided p value of McNemar's exact test on `fixed` and `broken`: the probability of a split at least this
    /// uneven if A and B are equally good.
    pub p_value: f64,
}

/// One job of a batch, with the fields that pairing needs.
#[derive(Clone, Debug)]
struct Side {
    job: String,
    passed: bool,
    /// Name, target, parameters and trial.
    plain: String,
    /// Reference and input.
    task: String,
    recipe: String,
    model: String,
}

/// What pairs jobs: their names, or besides the fields of [`Side::plain`] some of the others.
#[derive(Clone, Copy, Debug)]
enum PairedBy {
    Fields { task: bool, recipe: bool, model: bool },
    Job,
}

impl Side {
    fn key(&self, by: PairedBy) -> Vec<&str> {
        match by {
            PairedBy::Fields { task, recipe, model } => {
                let more = [(task, &self.task), (recipe, &self.recipe), (model, &self.model)];
                let more = more
                    .into_iter()
                    .filter_map(|(used, field)| used.then_some(field.as_str()));
                std::iter::once(self.plain.as_str()).chain(more).collect()
            }
            PairedBy::Job => vec![self.job.as_str()],
        }
    }
}

/// The last finished row of each job of a batch.
struct ReadBatch {
    sides: Vec<Side>,
    /// What people should know of the rows, one sentence each.
    notes: Vec<String>,
}

/// Reads a batch directory or a `runs.jsonl`. Of a directory only the jobs of its plan count, and its rows must be those
/// of its `bundle.json`, which is there when its last call has ended. A job of which that call has no result has none: its
/// last row may be of other inputs. Without that file all rows count.
fn read(path: &Path) -> Result<ReadBatch, BatchError> {
    let shown = path.display().to_string();
    let (file, planned, seal) = match path.is_dir() {
        true => {
            let planned = merge::plan_of(path)?;
            let seal = whole(path, &shown)?;
            (path.join(rows::FILE), planned, seal)
        }
        false => (path.to_owned(), None, None),
    };
    let mut notes = Vec::new();
    let mut last: BTreeMap<String, Side> = BTreeMap::new();
    let torn = rows::each(&file, |row| {
        last.insert(row.job.clone(), side(&row));
    })?;
    if torn {
        notes.push(format!(
            "{}: the last line is cut and does not count; copy the file again, or let the batch end",
            file.display()
        ));
    }
    if seal.is_none() && path.join(record::FILE).is_file() {
        notes.push(format!(
            "{shown}: its last call has not ended, so rows of an earlier call count; start it again with the same command"
        ));
    }
    let left = seal.as_ref().map(BundleSeal::without_result).unwrap_or_default();
    last.retain(|job, _| !left.contains_key(job.as_str()));
    if let Some(plan) = planned {
        let jobs: BTreeSet<&str> = plan.jobs.iter().map(|job| job.job.as_str()).collect();
        // Rows of jobs that were taken out of the manifest stay in the file.
        last.retain(|job, _| jobs.contains(job.as_str()));
        let without = jobs.len() - last.len();
        if let Some(first) = jobs.iter().find(|job| !last.contains_key(**job)) {
            let verb = if without == 1 { "has" } else { "have" };
            let state = left
                .get(first)
                .map(|left| format!(" ({})", left.state.replace('_', " ")));
            notes.push(format!(
                "{shown}: {} of its plan {verb} no result, for example {first}{}",
                counted(without, "job"),
                state.unwrap_or_default()
            ));
        }
    }
    Ok(ReadBatch {
        sides: last.into_values().collect(),
        notes,
    })
}

/// The bundle file of a batch directory, if it has one. Refuses rows that are not those of it.
fn whole(dir: &Path, shown: &str) -> Result<Option<BundleSeal>, BatchError> {
    let wrong = |code: &str, why: &str| BatchError::Invalid(merge::problem(shown, code, why, "copy the bundle again"));
    let seal = bundle::read(dir).map_err(|why| wrong(merge::ALTERED, &why))?;
    let Some(sealed) = seal.as_ref().and_then(|seal| seal.files.get(rows::FILE)) else {
        return Ok(seal);
    };
    let path = dir.join(rows::FILE);
    let found = merge::differs(&path, rows::FILE, sealed, true).map_err(|error| BatchError::read(&path, &error))?;
    match found {
        Some((code, why)) => Err(wrong(code, &why)),
        None => Ok(seal),
    }
}

fn side(row: &RunRow) -> Side {
    let plain = (&row.name, &row.target, &row.params, row.trial);
    let task = (&row.git_ref, &row.input);
    Side {
        job: row.job.clone(),
        passed: row.is_success(),
        plain: serde_json::to_string(&plain).unwrap_or_default(),
        task: serde_json::to_string(&task).unwrap_or_default(),
        recipe: row.recipe.clone(),
        model: row.model.clone(),
    }
}

/// Pairs jobs by name, target, parameters and trial; where that is ambiguous within one batch, by the recipe too, then
/// by the model, each of them first without reference and input and then with them. Where all of it is ambiguous, pairs
/// jobs of the same name. `None` if there are none.
fn pairing(a: &[Side], b: &[Side]) -> Option<PairedBy> {
    let unique = |sides: &[Side], by: PairedBy| {
        let mut seen = BTreeSet::new();
        sides.iter().all(|side| seen.insert(side.key(by)))
    };
    let levels = [(false, false), (true, false), (true, true)];
    let fields = levels
        .into_iter()
        .flat_map(|(recipe, model)| [false, true].map(|task| PairedBy::Fields { task, recipe, model }));
    let found = { fields }.find(|by| unique(a, *by) && unique(b, *by));
    found.or_else(|| {
        let names: BTreeSet<&str> = a.iter().map(|side| side.job.as_str()).collect();
        let meet = b.iter().any(|side| names.contains(side.job.as_str()));
        meet.then_some(PairedBy::Job)
    })
}

/// Compares two batches. The second value says what people should know of their rows, one sentence each.
///
/// # Errors
/// One of them cannot be read, is cut or altered, or their jobs cannot be paired.
pub fn compare(a: &Path, b: &Path) -> Result<(BatchComparison, Vec<String>), BatchError> {
    let (a, b) = (read(a)?, read(b)?);
    let found = paired(&a.sides, &b.sides)?;
    let mut notes = [a.notes, b.notes].concat();
    for (alone, place, other) in [(&found.only_a, "A", "B"), (&found.only_b, "B", "A")] {
        if let Some(first) = alone.first() {
            notes.push(format!(
                "{} of {place} without a counterpart in {other}, for example {first}",
                counted(alone.len(), "job")
            ));
        }
    }
    Ok((found, notes))
}

fn paired(a: &[Side], b: &[Side]) -> Result<BatchComparison, BatchError> {
    let by = pairing(a, b).ok_or_else(|| {
        let why = "the jobs of the two batches cannot be paired: several jobs of one of them agree in name, target, \
                   ref, parameters, input, trial, recipe and model, and the two batches share no name of a job";
        BatchError::Invalid(why.to_owned())
    })?;
    let of_b: BTreeMap<Vec<&str>, &Side> = b.iter().map(|side| (side.key(by), side)).collect();
    let keys_a: BTreeSet<Vec<&str>> = a.iter().map(|side| side.key(by)).collect();
    let mut found = BatchComparison::default();
    for side in a {
        match of_b.get(&side.key(by)) {
            None => found.only_a.push(side.job.clone()),
            Some(other) => match (side.passed, other.passed) {
                (true, true) => found.both_passed += 1,
                (false, false) => found.both_failed += 1,
                (false, true) => found.fixed.push(other.job.clone()),
                (true, false) => found.broken.push(other.job.clone()),
            },
        }
    }
    let only_b = b.iter().filter(|side| !keys_a.contains(&side.key(by)));
    found.only_b = only_b.map(|side| side.job.clone()).collect();
    for list in [
        &mut found.fixed,
        &mut found.broken,
        &mut found.only_a,
        &mut found.only_b,
    ] {
        list.sort();
    }
    found.p_value = mcnemar(found.fixed.len() as u64, found.broken.len() as u64);
    Ok(found)
}

/// The two-sided p value of McNemar's exact test: the binomial test of an even split of `a + b` changes.
pub fn mcnemar(a: u64, b: u64) -> f64 {
    let (n, least) = (a + b, a.min(b));
    if a == b {
        return 1.0;
    }
    // Sum of C(n, k) / 2^n for k up to the smaller count, computed with logarithms so that no term overflows.
    let mut log_term = -as_float(n) * std::f64::consts::LN_2;
    let mut sum = log_term.exp();
    for k in 1..=least {
        log_term += (as_float(n - k + 1) / as_float(k)).ln();
        sum += log_term.exp();
    }
    (2.0 * sum).min(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs")]
fn as_float(number: u64) -> f64 {
    number as f64
}

impl BatchComparison {
    /// Whether no job of A has a counterpart in B, so that nothing was compared.
    pub fn is_empty(&self) -> bool {
        self.both_passed + self.both_failed == 0 && self.fixed.is_empty() && self.broken.is_empty()
    }

    /// The comparison as text for people.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "both passed  {}\nboth failed  {}\nfixed        {}\nbroken       {}\nonly in A    {}\nonly in B    {}\np value      {:.4}\n",
            self.both_passed,
            self.both_failed,
            self.fixed.len(),
            self.broken.len(),
            self.only_a.len(),
            self.only_b.len(),
            self.p_value
        );
        for (word, jobs) in [("fixed", &self.fixed), ("broken", &self.broken)] {
            for job in jobs {
                text.push_str(&format!("{word} {job}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn p_values_are_those_of_the_binomial_test() {
        // scipy.stats.binomtest(k, n, 0.5).pvalue
        for (a, b, p) in [
            (0, 0, 1.0),
            (5, 5, 1.0),
            (0, 5, 0.0625),
            (1, 9, 0.021_484_375),
            (9, 1, 0.021_484_375),
            (2, 10, 0.038_574_218_75),
            (0, 1, 1.0),
        ] {
            assert!(near(mcnemar(a, b), p), "{a} {b}: {}", mcnemar(a, b));
        }
        assert!(mcnemar(40_000, 60_000) < 1e-9 && mcnemar(49_990, 50_010) > 0.9);
    }

    fn row(job: &str, name: &str, model: &str, passed: bool) -> Side {
        side(&RunRow {
            job: job.to_owned(),
            name: name.to_owned(),
            model: model.to_owned(),
            verdict: if passed { "passed" } else { "failed" }.to_owned(),
            trial: 1,
            ..RunRow::default()
        })
    }

    #[test]
    fn jobs_pair_across_models_unless_a_batch_has_several() {
        let a = [
            row("a-x", "a", "x", true),
            row("b-x", "b", "x", false),
            row("c-x", "c", "x", true),
        ];
        let b = [
            row("a-y", "a", "y", false),
            row("b-y", "b", "y", true),
            row("d-y", "d", "y", true),
        ];
        let found = paired(&a, &b).unwrap();
        assert_eq!(
            (found.fixed, found.broken),
            (vec!["b-y".to_owned()], vec!["a-y".to_owned()])
        );
        assert_eq!(
            (found.only_a, found.only_b),
            (vec!["c-x".to_owned()], vec!["d-y".to_owned()])
        );
        let both = [row("a-x", "a", "x", true), row("a-y", "a", "y", true)];
        let found = paired(&both, &both).unwrap();
        assert_eq!(found.both_passed, 2);
    }

    #[test]
    fn jobs_that_differ_by_input_or_ref_pair_with_their_own() {
        let task = |job: &str, input: Option<&str>, git_ref: Option<&str>, passed: bool| {
            side(&RunRow {
                job: job.to_owned(),
                input: input.map(str::to_owned),
                git_ref: git_ref.map(str::to_owned),
                verdict: if passed { "passed" } else { "failed" }.to_owned(),
                ..RunRow::default()
            })
        };
        let a = [
            task("x1", Some("1"), None, true),
            task("x2", Some("2"), None, false),
            task("x3", Some("1"), Some("next"), true),
        ];
        let b = [
            task("y1", Some("1"), None, false),
            task("y2", Some("2"), None, false),
            task("y3", Some("1"), Some("next"), true),
        ];
        let found = paired(&a, &b).unwrap();
        assert_eq!(found.broken, ["y1"]);
        assert_eq!((found.both_failed, found.both_passed), (1, 1));
        // One job of a batch pairs across references.
        let found = paired(&a[..1], &b[2..]).unwrap();
        assert_eq!(found.both_passed, 1);
        // Rows of an earlier version hold neither: only the same names are the same jobs.
        let old = |jobs: [&str; 2]| jobs.map(|job| task(job, None, None, true));
        assert_eq!(paired(&old(["x1", "x2"]), &old(["x1", "x2"])).unwrap().both_passed, 2);
        let refused = paired(&old(["x1", "x2"]), &old(["y1", "y2"]));
        assert!(matches!(refused, Err(BatchError::Invalid(_))), "{refused:?}");
    }
}

//! Determines which part of a plan this process runs: from `I/N`, or from the variables of the CI engine or scheduler.

use super::plan::PlannedJob;
use crate::base::ids::sha256_hex;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Limit of shards of one batch.
const MAX_SHARDS: u64 = 1_000_000;

/// One part of `total`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardSpec {
    pub index: u64,
    pub total: u64,
}

impl fmt::Display for ShardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.total)
    }
}

/// How an engine passes the task number: the variables for index and total, and the first index.
struct Convention {
    engine: &'static str,
    index: &'static str,
    /// `None` when the engine passes no total.
    total: Option<&'static str>,
    first: u64,
}

/// In the order in which they are tried.
const CONVENTIONS: &[Convention] = &[
    convention("GitLab", "CI_NODE_INDEX", Some("CI_NODE_TOTAL"), 1),
    convention(
        "Buildkite",
        "BUILDKITE_PARALLEL_JOB",
        Some("BUILDKITE_PARALLEL_JOB_COUNT"),
        0,
    ),
    convention("CircleCI", "CIRCLE_NODE_INDEX", Some("CIRCLE_NODE_TOTAL"), 0),
    convention(
        "Bitbucket",
        "BITBUCKET_PARALLEL_STEP",
        Some("BITBUCKET_PARALLEL_STEP_COUNT"),
        0,
    ),
    convention("Semaphore", "SEMAPHORE_JOB_INDEX", Some("SEMAPHORE_JOB_COUNT"), 1),
    convention(
        "Azure Pipelines",
        "SYSTEM_JOBPOSITIONINPHASE",
        Some("SYSTEM_TOTALJOBSINPHASE"),
        1,
    ),
    convention(
        "AWS Batch",
        "AWS_BATCH_JOB_ARRAY_INDEX",
        Some("AWS_BATCH_JOB_ARRAY_SIZE"),
        0,
    ),
    convention("Cloud Run", "CLOUD_RUN_TASK_INDEX", Some("CLOUD_RUN_TASK_COUNT"), 0),
    convention("HyperQueue", "HQ_TASK_ID", None, 0),
    convention("Kubernetes", "JOB_COMPLETION_INDEX", None, 0),
    convention("Nomad", "NOMAD_ALLOC_INDEX", None, 0),
    convention("GNU parallel", "PARALLEL_SEQ", None, 1),
    convention("PBS", "PBS_ARRAY_INDEX", None, 0),
];

const fn convention(engine: &'static str, index: &'static str, total: Option<&'static str>, first: u64) -> Convention {
    Convention {
        engine,
        index,
        total,
        first,
    }
}

impl ShardSpec {
    /// Reads `I/N`.
    ///
    /// # Errors
    /// A sentence that says what is wrong: not of this form, or I is not in 1..=N.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a shard: write I/N with I from 1 to N, for example 3/8, or `auto`");
        let (index, total) = text.split_once('/').ok_or_else(wrong)?;
        let shard = Self {
            index: index.parse().map_err(|_| wrong())?,
            total: total.parse().map_err(|_| wrong())?,
        };
        let fits = (1..=shard.total).contains(&shard.index) && shard.total <= MAX_SHARDS;
        fits.then_some(shard).ok_or_else(wrong)
    }

    /// Reads the shard from the engine's variables, and returns a sentence that names them.
    ///
    /// # Errors
    /// A sentence that says what is missing: no variable is set, or an index without a total.
    pub fn auto(variable: &dyn Fn(&str) -> Option<String>) -> Result<(Self, String), String> {
        if let Some(id) = variable("SLURM_ARRAY_TASK_ID") {
            return slurm(&id, variable);
        }
        for known in CONVENTIONS {
            let Some(index) = variable(known.index) else { continue };
            let engine = known.engine;
            let total = known.total.and_then(|name| Some((name, variable(name)?)));
            let Some((name, total)) = total else {
                let missing = known.total.unwrap_or("a total");
                return Err(format!(
                    "--shard auto: {engine} sets {}={index} but not {missing}: write --shard \"I/N\" with the number of tasks",
                    known.index
                ));
            };
            let number = |name: &str, text: &str| {
                let wrong = || format!("--shard auto: {name}={text} is not a number");
                text.trim().parse::<u64>().map_err(|_| wrong())
            };
            let (position, count) = (number(known.index, &index)?, number(name, &total)?);
            let wrong = || format!("--shard auto: {}={index} does not fit {name}={total}", known.index);
            let position = position.checked_sub(known.first).ok_or_else(wrong)?;
            let shard = Self::parse(&format!("{}/{count}", position + 1)).map_err(|_| wrong())?;
            return Ok((
                shard,
                format!("shard {shard} by {engine} ({}={index}, {name}={total})", known.index),
            ));
        }
        Err("--shard auto: no variable of a known engine is set; write --shard I/N".to_owned())
    }
}

/// Slurm's task ids may start at any number and have a step.
fn slurm(id: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<(ShardSpec, String), String> {
    let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<u64>().ok());
    let count = number("SLURM_ARRAY_TASK_COUNT").ok_or_else(|| {
        format!("--shard auto: SLURM_ARRAY_TASK_ID={id} is set but SLURM_ARRAY_TASK_COUNT is not: write --shard I/N")
    })?;
    let least = number("SLURM_ARRAY_TASK_MIN").unwrap_or(0);
    let step = number("SLURM_ARRAY_TASK_STEP").unwrap_or(1).max(1);
    let wrong = || format!("--shard auto: SLURM_ARRAY_TASK_ID={id} does not fit the array of {count}");
    let position = id
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|id| id.checked_sub(least))
        .ok_or_else(wrong)?
        / step;
    let shard = ShardSpec::parse(&format!("{}/{count}", position + 1)).map_err(|_| wrong())?;
    Ok((
        shard,
        format!("shard {shard} by Slurm (SLURM_ARRAY_TASK_ID={id} of {count})"),
    ))
}

/// The names of a shard's jobs: chosen by the digest of the name alone; or, with earlier durations in seconds,
/// distributed so that all shards take about the same time.
pub fn jobs_of<'a>(
    shard: ShardSpec,
    jobs: impl Iterator<Item = &'a PlannedJob>,
    timings: Option<&HashMap<String, f64>>,
) -> BTreeSet<String> {
    let names = jobs.map(|job| job.identity.job.clone());
    match timings {
        None => names
            .filter(|name| by_digest(name, shard.total) == shard.index)
            .collect(),
        Some(timings) => packed(names.collect(), timings, shard),
    }
}

/// The shard, from 1, that a job belongs to where no durations are given.
pub fn by_digest(name: &str, total: u64) -> u64 {
    let digest = sha256_hex(&[name.as_bytes()]);
    let head = digest.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    head.unwrap_or(0) % total.max(1) + 1
}

/// Assigns the longest job first, each to the shard with the least total so far. A job without a duration counts with
/// the mean of the others.
fn packed(mut names: Vec<String>, timings: &HashMap<String, f64>, shard: ShardSpec) -> BTreeSet<String> {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    let known: Vec<f64> = names.iter().filter_map(|name| timings.get(name).copied()).collect();
    #[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
    let mean = match known.is_empty() {
        true => 1.0,
        false => known.iter().sum::<f64>() / known.len() as f64,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole milliseconds, so that the order is total and the same everywhere"
    )]
    let length = |name: &str| (timings.get(name).copied().unwrap_or(mean).max(0.0) * 1_000.0) as u64;
    names.sort_by_key(|name| (Reverse(length(name)), name.clone()));
    let mut loads: BinaryHeap<Reverse<(u64, u64)>> = (1..=shard.total).map(|index| Reverse((0, index))).collect();
    let mut own = BTreeSet::new();
    for name in names {
        let Some(Reverse((load, index))) = loads.pop() else {
            break;
        };
        loads.push(Reverse((load + length(&name).max(1), index)));
        if index == shard.index {
            own.insert(name);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(set: &[(&str, &str)]) -> Result<String, String> {
        let find = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ShardSpec::auto(&find).map(|(shard, _)| shard.to_string())
    }

    #[test]
    fn what_is_written() {
        assert_eq!(ShardSpec::parse("3/8").unwrap(), ShardSpec { index: 3, total: 8 });
        for wrong in ["0/8", "9/8", "1", "1/0", "a/b", "-1/3", ""] {
            assert!(ShardSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_engines_say() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "4")], "1/4"),
            (
                &[("BUILDKITE_PARALLEL_JOB", "0"), ("BUILDKITE_PARALLEL_JOB_COUNT", "5")],
                "1/5",
            ),
            (&[("CIRCLE_NODE_INDEX", "3"), ("CIRCLE_NODE_TOTAL", "4")], "4/4"),
            (
                &[("AWS_BATCH_JOB_ARRAY_INDEX", "7"), ("AWS_BATCH_JOB_ARRAY_SIZE", "10")],
                "8/10",
            ),
            (
                &[
                    ("SLURM_ARRAY_TASK_ID", "14"),
                    ("SLURM_ARRAY_TASK_COUNT", "4"),
                    ("SLURM_ARRAY_TASK_MIN", "10"),
                    ("SLURM_ARRAY_TASK_STEP", "2"),
                ],
                "3/4",
            ),
        ];
        for (set, expected) in cases {
            assert_eq!(auto(set).as_deref(), Ok(*expected), "{set:?}");
        }
        let none: &[(&str, &str)] = &[];
        for wrong in [
            none,
            &[("CI_NODE_INDEX", "1")],
            &[("JOB_COMPLETION_INDEX", "0")],
            &[("CI_NODE_INDEX", "5"), ("CI_NODE_TOTAL", "4")],
            &[("CI_NODE_INDEX", "0"), ("CI_NODE_TOTAL", "4")],
            &[("SLURM_ARRAY_TASK_ID", "1")],
        ] {
            assert!(auto(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn packing_is_complete_disjoint_and_even() {
        let names: Vec<String> = (0..100).map(|n| format!("job-{n}")).collect();
        let timings: HashMap<String, f64> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (name.clone(), f64::from(u32::try_from(n % 10).unwrap())))
            .collect();
        let shards: Vec<BTreeSet<String>> = (1..=4)
            .map(|index| packed(names.clone(), &timings, ShardSpec { index, total: 4 }))
            .collect();
        assert_eq!(shards.iter().map(BTreeSet::len).sum::<usize>(), 100);
        assert_eq!(shards.iter().flatten().collect::<BTreeSet<_>>().len(), 100);
        let loads: Vec<f64> = shards
            .iter()
            .map(|shard| shard.iter().map(|name| timings[name]).sum())
            .collect();
        assert!(loads.iter().all(|load| (load - 112.5).abs() <= 9.0), "{loads:?}");
    }
}

//! One budget shared by all jobs of a call: reserved before a job starts, settled when it ends. Pure arithmetic.

use crate::base::budget::{Budget, least};
use std::time::{Duration, Instant};

/// Limits of one job, in the order turns, tokens, cost (in millionths of a US dollar).
type Amounts = [Option<u64>; 3];

/// Usage of one run, in the same units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobSpending {
    pub turns: u64,
    pub tokens: u64,
    pub cost_micros: u64,
}

impl JobSpending {
    fn amounts(self) -> [u64; 3] {
        [self.turns, self.tokens, self.cost_micros]
    }
}

/// A job's reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    held: [u64; 3],
    /// What the run used in earlier calls. Its usage at the end contains it.
    spent: JobSpending,
    /// The job's limits, as flags of `overnight run`.
    pub limits: RunLimits,
}

/// Limits of one run; `None` keeps the recipe's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    pub turns: Option<u64>,
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
    pub wall_ms: Option<u64>,
}

impl RunLimits {
    /// The lower of these and the other limits, field by field.
    #[must_use]
    pub fn within(self, other: &Budget) -> Self {
        Self {
            turns: least(self.turns, other.turns),
            tokens: least(self.tokens, other.tokens),
            cost_micros: least(self.cost_micros, other.cost_micros),
            wall_ms: least(self.wall_ms, other.wall_ms),
        }
    }
}

/// Answer to a job that asks for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationAnswer {
    Start(Reservation),
    /// Not now: there may be room once a running job has settled. Holds the limit without room.
    Wait(&'static str),
    /// Never again in this call; holds the limit that is used up.
    Exhausted(&'static str),
}

const NAMES: [&str; 3] = ["turns", "tokens", "cost"];
/// Index of the cost in [`Amounts`].
const COST: usize = 2;

/// The budget of one call.
#[derive(Debug)]
pub struct SharedBudget {
    caps: Amounts,
    deadline: Option<Instant>,
    settled: [u64; 3],
    reserved: [u64; 3],
    running: u64,
    /// The highest estimated usage of one request among settled jobs. It matters because a run notices its limit only
    /// after the request that exceeded it.
    request: [u64; 3],
    /// The highest usage of one settled job.
    job: [u64; 3],
    jobs: u64,
}

impl SharedBudget {
    /// The budget at the start of a call.
    pub fn new(caps: &Budget, now: Instant) -> Self {
        Self {
            caps: [caps.turns, caps.tokens, caps.cost_micros],
            deadline: caps.wall_ms.map(|ms| now + Duration::from_millis(ms)),
            settled: [0; 3],
            reserved: [0; 3],
            running: 0,
            request: [0; 3],
            job: [0; 3],
            jobs: 0,
        }
    }

    /// Reserves for a job whose own limits are `own` and which used `spent` in an earlier call. A job whose cost limit is 0
    /// cannot cost anything: it reserves no money and keeps its recipe's limit.
    pub fn reserve(&mut self, own: &Budget, spent: JobSpending, now: Instant) -> ReservationAnswer {
        let left_ms = match self.deadline.map(|deadline| deadline.saturating_duration_since(now)) {
            Some(left) if left.is_zero() => return ReservationAnswer::Exhausted("wall"),
            left => left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)),
        };
        let wants = [own.turns, own.tokens, own.cost_micros];
        let before = spent.amounts();
        let (mut held, mut limits) = ([0; 3], [None; 3]);
        for (at, name) in NAMES.into_iter().enumerate() {
            let Some(cap) = self.caps[at] else { continue };
            if at == COST && wants[at] == Some(0) {
                continue;
            }
            let left = cap.saturating_sub(self.settled[at] + self.reserved[at]);
            let own = wants[at].map(|own| own.saturating_sub(before[at]));
            // Until a job has settled, assume that one request costs at most what a whole job may.
            let margin = match (at, self.jobs) {
                (0, _) => 0,
                (_, 0) => own.unwrap_or(0),
                _ => self.request[at],
            };
            let wanted = own.map(|own| own.saturating_add(margin));
            let enough = match (wanted, self.jobs) {
                (Some(wanted), _) if wanted <= left => true,
                // The rest suffices: no job so far has used half as much.
                (_, 1..) => left > margin && left / 2 >= self.job[at],
                _ => false,
            };
            if !enough && self.running > 0 {
                return ReservationAnswer::Wait(name);
            }
            let alone = !enough && self.jobs == 0;
            if left == 0 || (left <= margin && !alone) {
                return ReservationAnswer::Exhausted(name);
            }
            held[at] = wanted.map_or(left, |wanted| wanted.min(left));
            // The first job may take what is left when nothing runs beside it.
            let limit = match (alone, own) {
                (true, own) => own.map_or(left, |own| own.min(left)),
                (false, _) => held[at] - margin,
            };
            limits[at] = Some(limit + before[at]);
        }
        for (reserved, held) in self.reserved.iter_mut().zip(held) {
            *reserved += held;
        }
        self.running += 1;
        let [turns, tokens, cost_micros] = limits;
        let wall_ms = left_ms.map(|left| own.wall_ms.map_or(left, |own| own.min(left)));
        ReservationAnswer::Start(Reservation {
            held,
            spent,
            limits: RunLimits {
                turns,
                tokens,
                cost_micros,
                wall_ms,
            },
        })
    }

    /// Returns what a job did not use. `used` is the usage of its whole run, of which only the part of this call
    /// counts; `None` means that it is unknown, and then counts as the whole reservation.
    pub fn settle(&mut self, reservation: &Reservation, used: Option<JobSpending>) {
        self.running = self.running.saturating_sub(1);
        for (reserved, held) in self.reserved.iter_mut().zip(reservation.held) {
            *reserved = reserved.saturating_sub(held);
        }
        let before = match used {
            Some(_) => reservation.spent.amounts(),
            None => [0; 3],
        };
        let used = used.map_or(reservation.held, JobSpending::amounts);
        for (settled, (used, before)) in self.settled.iter_mut().zip(used.into_iter().zip(before)) {
            *settled = settled.saturating_add(used.saturating_sub(before));
        }
        let [turns, ..] = used;
        if turns == 0 {
            return;
        }
        self.jobs += 1;
        for (at, used) in used.into_iter().enumerate() {
            // Requests grow with the history: the last request of a longer run costs about twice the average.
            let average = used.div_ceil(turns);
            let dearest = if turns > 1 { average.saturating_mul(2) } else { average };
            self.request[at] = self.request[at].max(dearest);
            self.job[at] = self.job[at].max(used);
        }
    }

    /// Usage of all settled jobs.
    pub fn settled(&self) -> JobSpending {
        let [turns, tokens, cost_micros] = self.settled;
        JobSpending {
            turns,
            tokens,
            cost_micros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(cap: u64) -> Budget {
        Budget {
            cost_micros: Some(cap),
            ..Budget::default()
        }
    }

    /// Usage of a simulated run, which sends requests as long as it has spent less than its limit.
    fn run(limit: u64, request: u64, requests: u64) -> JobSpending {
        let mut used = JobSpending::default();
        while used.turns < requests && used.cost_micros < limit {
            used.turns += 1;
            used.cost_micros += request;
        }
        used
    }

    proptest! {
        #[test]
        fn the_cap_is_never_passed_by_jobs_whose_requests_cost_the_same(
            request in 1u64..50, requests in 1u64..6, factor in 1u64..40, own in 1u64..400, parallel in 1usize..9,
        ) {
            // The first job learns what a request costs, so the cap has room for one job that runs to its limit.
            let cap = (own + request).max(request * requests) + request * factor;
            let mut shared = SharedBudget::new(&cost(cap), Instant::now());
            let mut running: Vec<(Reservation, JobSpending)> = Vec::new();
            let mut spent = 0;
            for _ in 0..200 {
                match shared.reserve(&cost(own), JobSpending::default(), Instant::now()) {
                    ReservationAnswer::Start(held) => {
                        let used = run(held.limits.cost_micros.unwrap(), request, requests);
                        spent += used.cost_micros;
                        running.push((held, used));
                        let most = if shared.jobs == 0 && request > own { 1 } else { parallel };
                        if running.len() < most {
                            continue;
                        }
                    }
                    ReservationAnswer::Wait(_) => prop_assert!(!running.is_empty()),
                    ReservationAnswer::Exhausted(_) if running.is_empty() => break,
                    ReservationAnswer::Exhausted(_) => {}
                }
                let (held, used) = running.remove(0);
                shared.settle(&held, Some(used));
            }
            prop_assert!(spent <= cap, "{spent} of {cap}");
        }
    }

    #[test]
    fn a_job_reserves_its_own_limit_or_what_is_left() {
        let mut shared = SharedBudget::new(&cost(100), Instant::now());
        let ReservationAnswer::Start(first) = shared.reserve(&cost(60), JobSpending::default(), Instant::now()) else {
            panic!()
        };
        assert_eq!(
            first.limits.cost_micros,
            Some(60),
            "alone, because a request may cost as much again"
        );
        assert_eq!(
            shared.reserve(&cost(60), JobSpending::default(), Instant::now()),
            ReservationAnswer::Wait("cost")
        );
        shared.settle(&first, Some(run(60, 10, 1)));
        let ReservationAnswer::Start(second) = shared.reserve(&cost(60), JobSpending::default(), Instant::now()) else {
            panic!()
        };
        assert_eq!(second.limits.cost_micros, Some(60));
        shared.settle(&second, None);
        assert_eq!(shared.settled().cost_micros, 80);
        let ReservationAnswer::Start(third) = shared.reserve(&cost(60), JobSpending::default(), Instant::now()) else {
            panic!()
        };
        assert_eq!(
            third.limits.cost_micros,
            Some(10),
            "20 are left, and the last request may cost 10 more"
        );
        shared.settle(&third, Some(run(10, 10, 1)));
        assert_eq!(
            shared.reserve(&cost(60), JobSpending::default(), Instant::now()),
            ReservationAnswer::Exhausted("cost")
        );
    }

    #[test]
    fn a_job_that_cannot_cost_reserves_no_money() {
        let mut shared = SharedBudget::new(&cost(100), Instant::now());
        for _ in 0..3 {
            let ReservationAnswer::Start(held) = shared.reserve(&cost(0), JobSpending::default(), Instant::now())
            else {
                panic!()
            };
            assert_eq!((held.held[COST], held.limits.cost_micros), (0, None));
        }
        assert!(
            matches!(
                shared.reserve(&cost(40), JobSpending::default(), Instant::now()),
                ReservationAnswer::Start(_)
            ),
            "the money is there for another job"
        );
    }

    #[test]
    fn a_resumed_run_counts_what_it_spent_before() {
        let mut shared = SharedBudget::new(&cost(100), Instant::now());
        let before = JobSpending {
            turns: 2,
            tokens: 0,
            cost_micros: 40,
        };
        let ReservationAnswer::Start(held) = shared.reserve(&cost(60), before, Instant::now()) else {
            panic!()
        };
        assert_eq!(held.limits.cost_micros, Some(60), "the run's limit is over all of it");
        assert_eq!(
            held.held[2], 40,
            "and only the rest is new, with room for its last request"
        );
        let in_all = JobSpending {
            turns: 3,
            tokens: 0,
            cost_micros: 55,
        };
        shared.settle(&held, Some(in_all));
        let in_this_call = shared.settled();
        assert_eq!((in_this_call.turns, in_this_call.cost_micros), (1, 15));
        // It ended before its first request.
        let ReservationAnswer::Start(held) = shared.reserve(&cost(60), before, Instant::now()) else {
            panic!()
        };
        shared.settle(&held, Some(JobSpending::default()));
        assert_eq!(shared.settled(), in_this_call);
    }

    #[test]
    fn the_wall_clock_bounds_each_job() {
        let now = Instant::now();
        let caps = Budget {
            wall_ms: Some(1_000),
            ..Budget::default()
        };
        let mut shared = SharedBudget::new(&caps, now);
        let ReservationAnswer::Start(held) = shared.reserve(&Budget::default(), JobSpending::default(), now) else {
            panic!()
        };
        assert_eq!(held.limits.wall_ms, Some(1_000));
        assert_eq!(
            shared.reserve(&Budget::default(), JobSpending::default(), now + Duration::from_secs(2)),
            ReservationAnswer::Exhausted("wall")
        );
    }
}

//! Decides how long to wait before a retry, and when to give up. Pure: random numbers and the clock are passed in.

use std::time::{Duration, SystemTime};

/// The kind of failure, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryKind {
    /// No connection. The address may be wrong, so retries end soon.
    Connect,
    /// The service is overloaded or failing.
    Service,
    /// The service responded, but with something unusable.
    Answer,
}

/// Attempts and waits for one kind of failure.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Attempts, the first one included.
    pub attempts: u32,
    /// The first wait; it doubles each time.
    pub first: Duration,
    pub most: Duration,
}

/// All limits together.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub connect: Backoff,
    pub service: Backoff,
    pub answer: Backoff,
    /// Limit of a wait that the service asks for; a longer one ends the request.
    pub asked_most: Duration,
    /// Limit of all waits of one request together.
    pub total: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        let steps = |attempts, first, most| Backoff {
            attempts,
            first: Duration::from_millis(first),
            most: Duration::from_millis(most),
        };
        Self {
            connect: steps(5, 1_000, 8_000),
            service: steps(8, 1_000, 30_000),
            answer: steps(4, 500, 4_000),
            asked_most: Duration::from_secs(300),
            total: Duration::from_secs(900),
        }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    Wait(Duration),
    /// The attempt limit was reached.
    Exhausted,
    /// The service asks for a longer wait than the limit.
    TooLong(Duration),
}

impl Schedule {
    /// Decides after `failed` attempts (at least one) that waited `waited` in all. `asked` is the wait that the service
    /// requested; `chance`, in 0..1, spreads the wait: up by at most a fifth when it was requested, otherwise by ±30 %.
    pub fn next(
        &self,
        retry_kind: RetryKind,
        failed: u32,
        asked: Option<Duration>,
        waited: Duration,
        chance: f64,
    ) -> RetryDecision {
        let steps = match retry_kind {
            RetryKind::Connect => self.connect,
            RetryKind::Service => self.service,
            RetryKind::Answer => self.answer,
        };
        if failed >= steps.attempts {
            return RetryDecision::Exhausted;
        }
        let chance = chance.clamp(0.0, 1.0);
        let wait = match asked {
            Some(asked) if asked > self.asked_most => return RetryDecision::TooLong(asked),
            Some(asked) => asked.mul_f64(1.0 + chance / 5.0),
            None => {
                let doubled = steps.first.saturating_mul(1 << failed.saturating_sub(1).min(20));
                doubled.min(steps.most).mul_f64(0.7 + 0.6 * chance)
            }
        };
        if waited.saturating_add(wait) > self.total {
            return RetryDecision::TooLong(wait);
        }
        RetryDecision::Wait(wait)
    }
}

/// The wait from the headers: `retry-after-ms`, then `retry-after` in seconds or as a date.
pub fn asked_by_headers<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite() && *number >= 0.0)
    };
    // A number that no duration can hold asks for a wait that is too long, like any other above the limit.
    let seconds = |number: f64| Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX);
    if let Some(ms) = header("retry-after-ms").and_then(number) {
        return Some(seconds(ms / 1_000.0));
    }
    let after = header("retry-after")?;
    if let Some(number) = number(after) {
        return Some(seconds(number));
    }
    let date = httpdate::parse_http_date(after.trim()).ok()?;
    // The date is relative to the service's own clock, so its `date` header is used when present.
    let now = header("date")
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or(now);
    Some(date.duration_since(now).unwrap_or_default())
}

/// The wait from an error message: "retry in 40.02s", "try again in 6m0s", "retry after 20 seconds".
pub fn asked_by_text(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    ["retry in", "again in", "retry after", "again after", "wait for", "wait"]
        .iter()
        .find_map(|words| {
            let (_, rest) = lower.split_once(words)?;
            span(rest.trim_start_matches([' ', ':']))
        })
}

/// A duration at the start of `text`: `40s`, `1h2m3.5s`, `500ms`, `20 seconds`. A number needs a unit.
pub fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number = rest[..digits].trim_end_matches('.').parse::<f64>();
        let Ok(number) = number else { return total };
        let after = rest[digits..].trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let seconds = match &after[..letters] {
            "ms" | "millisecond" | "milliseconds" => number / 1_000.0,
            "s" | "sec" | "secs" | "second" | "seconds" => number,
            "m" | "min" | "mins" | "minute" | "minutes" => number * 60.0,
            "h" | "hour" | "hours" => number * 3_600.0,
            "d" | "day" | "days" => number * 86_400.0,
            _ => return total,
        };
        let piece = Duration::try_from_secs_f64(seconds).ok()?;
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(piece)?);
        rest = after[letters..].trim_start();
    }
}

/// A number in 0..1 that differs between processes and calls, so that many runs do not retry at the same moment.
pub fn chance() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish() >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let part = bits as f64 / (1u64 << 53) as f64;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_a_bound_and_end() {
        let schedule = Schedule::default();
        let waits: Vec<RetryDecision> = (1..=8)
            .map(|failed| schedule.next(RetryKind::Service, failed, None, Duration::ZERO, 0.5))
            .collect();
        let seconds: Vec<RetryDecision> = [1, 2, 4, 8, 16, 30, 30].map(|n| RetryDecision::Wait(SECOND * n)).into();
        assert_eq!(waits[..7], seconds);
        assert_eq!(waits[7], RetryDecision::Exhausted);
        assert_eq!(
            schedule.next(RetryKind::Answer, 4, None, Duration::ZERO, 0.5),
            RetryDecision::Exhausted
        );
        assert_eq!(
            schedule.next(RetryKind::Connect, 5, None, Duration::ZERO, 0.5),
            RetryDecision::Exhausted
        );
    }

    #[test]
    fn what_is_asked_for_is_kept_to_but_bounded() {
        let schedule = Schedule::default();
        let next = |asked, waited| schedule.next(RetryKind::Service, 1, Some(asked), waited, 1.0);
        assert_eq!(next(SECOND * 40, Duration::ZERO), RetryDecision::Wait(SECOND * 48));
        assert_eq!(next(SECOND * 301, Duration::ZERO), RetryDecision::TooLong(SECOND * 301));
        assert_eq!(next(SECOND * 300, SECOND * 600), RetryDecision::TooLong(SECOND * 360));
    }

    #[test]
    fn headers() {
        let now = SystemTime::UNIX_EPOCH;
        let ask = |pairs: &'static [(&str, &str)]| {
            asked_by_headers(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1), now)
        };
        assert_eq!(ask(&[("retry-after", "7")]), Some(SECOND * 7));
        assert_eq!(ask(&[("retry-after", "0.5")]), Some(SECOND / 2));
        assert_eq!(
            ask(&[("retry-after", "9"), ("retry-after-ms", "250")]),
            Some(SECOND / 4)
        );
        assert_eq!(
            ask(&[("retry-after", "Thu, 01 Jan 1970 00:00:30 GMT")]),
            Some(SECOND * 30)
        );
        assert_eq!(
            ask(&[
                ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("date", "Sun, 06 Nov 1994 08:49:30 GMT")
            ]),
            Some(SECOND * 7)
        );
        for endless in [("retry-after", "99999999999999999999"), ("retry-after-ms", "1e300")] {
            let pairs: &'static [(&str, &str)] = Vec::leak(vec![endless]);
            assert_eq!(ask(pairs), Some(Duration::MAX), "{endless:?}");
        }
        assert_eq!(ask(&[("retry-after", "soon")]), None);
        assert_eq!(ask(&[("retry-after", "-1")]), None);
        assert_eq!(ask(&[]), None);
    }

    #[test]
    fn sentences() {
        for (text, ms) in [
            ("Please retry in 40.02s.", Some(40_020)),
            ("Please retry in 320.5ms", Some(320)),
            ("Please try again in 6m0s. Visit", Some(360_000)),
            ("Please try again in 1.2s", Some(1_200)),
            ("Rate limited, retry after 20 seconds", Some(20_000)),
            ("Wait 2 minutes", Some(120_000)),
            ("you must retry in a while", None),
            ("retry in 5", None),
            ("nothing", None),
        ] {
            let found = asked_by_text(text).map(|span| span.as_millis());
            assert_eq!(found, ms, "{text}");
        }
    }

    proptest! {
        #[test]
        fn waits_are_bounded(failed in 1u32..100, asked in prop::option::of(0u64..1_000), waited in 0u64..1_000, chance in 0.0f64..1.0) {
            let schedule = Schedule::default();
            let waited = SECOND * u32::try_from(waited).unwrap();
            match schedule.next(RetryKind::Service, failed, asked.map(Duration::from_secs), waited, chance) {
                RetryDecision::Wait(wait) => prop_assert!(waited + wait <= schedule.total && wait <= schedule.asked_most.mul_f64(1.2)),
                RetryDecision::Exhausted => prop_assert!(failed >= 8),
                RetryDecision::TooLong(_) => {}
            }
        }

        #[test]
        fn texts_never_break_it(text in ".{0,60}") {
            let _ = asked_by_text(&text);
            let _ = span(&text);
        }
    }
}

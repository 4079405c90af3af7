//! What bounds the work on a tree: its time, the bytes that it reads, and the end of the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time limit of one piece of work, for example a snapshot.
const MOST_TIME: Duration = Duration::from_secs(300);
/// Upper limit in bytes for the contents that one piece of work reads, however well they compress.
const MOST_READ: u64 = 64 << 30;
/// Time for all work after the end of the run, so that the last snapshot of a small tree is complete.
const GRACE: Duration = Duration::from_secs(2);
/// For a large tree the time is this many times that of the longest work before the end, because the closing of a run
/// takes several snapshots.
const CLOSING_WORK: u32 = 8;
/// The longest time for work after the end of the run.
const MOST_GRACE: Duration = Duration::from_secs(30);

/// The end of the run, by a signal or the wall clock.
#[derive(Clone, Debug, Default)]
pub(super) struct RunEnd {
    ended: CancellationToken,
    cut_off: Arc<AtomicBool>,
    /// Whether no result is needed any more, of work in progress or of new work.
    closed: Arc<AtomicBool>,
}

impl RunEnd {
    /// The run ends when this token is cancelled.
    pub fn new(ended: &CancellationToken) -> Self {
        Self {
            ended: ended.clone(),
            cut_off: Arc::default(),
            closed: Arc::default(),
        }
    }

    /// Whether work was given up because the run had ended.
    pub fn was_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Makes all work on the tree fail at its next check.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// A sentence, after [`RunEnd::close`].
    pub fn unless_closed(&self) -> Result<(), String> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err("cancelled: the run is closing".to_owned()),
            false => Ok(()),
        }
    }

    fn give_up(&self) -> String {
        self.cut_off.store(true, Ordering::Relaxed);
        "given up, because the run has ended".to_owned()
    }

    /// Waits for the work of another process, at most [`MOST_GRACE`] after the end of the run.
    ///
    /// # Errors
    /// The error of `work`, or that it was given up.
    pub async fn within<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let late = async {
            self.ended.cancelled().await;
            tokio::time::sleep(MOST_GRACE).await;
        };
        tokio::select! {
            done = work => done,
            () = late => Err(self.give_up()),
        }
    }
}

/// How long the work on one tree has taken.
#[derive(Debug, Default)]
pub(super) struct WorkTimes {
    /// The longest piece of work before the end of the run.
    longest: Duration,
    /// All work after it.
    after_end: Duration,
}

impl WorkTimes {
    /// Begins a piece of work.
    pub fn begin(&self, end: &RunEnd) -> SnapshotLimits {
        let grace = self.longest.saturating_mul(CLOSING_WORK).clamp(GRACE, MOST_GRACE);
        SnapshotLimits {
            started: Instant::now(),
            read: AtomicU64::new(0),
            end: end.clone(),
            ended: OnceLock::new(),
            grace: grace.saturating_sub(self.after_end),
        }
    }

    /// Notes that a piece of work is done or was given up.
    pub fn finish(&mut self, bound: &SnapshotLimits) {
        match bound.ended.get() {
            Some(ended) => self.after_end = self.after_end.saturating_add(ended.elapsed()),
            None => self.longest = self.longest.max(bound.started.elapsed()),
        }
    }
}

/// The bound of one piece of work.
#[derive(Debug)]
pub(super) struct SnapshotLimits {
    started: Instant,
    /// Bytes of contents that were read.
    read: AtomicU64,
    end: RunEnd,
    /// When this work noticed the end of the run.
    ended: OnceLock<Instant>,
    /// How long it may take after that.
    grace: Duration,
}

impl SnapshotLimits {
    /// To be called before every name, and between the parts of a large content.
    ///
    /// # Errors
    /// A sentence: the work took too long, or the run has ended.
    pub fn check(&self) -> Result<(), String> {
        self.end.unless_closed()?;
        if self.started.elapsed() > MOST_TIME {
            return Err(format!("reading the tree took more than {} s", MOST_TIME.as_secs()));
        }
        if !self.end.ended.is_cancelled() {
            return Ok(());
        }
        match self.ended.get_or_init(Instant::now).elapsed() < self.grace {
            true => Ok(()),
            false => Err(self.end.give_up()),
        }
    }

    /// As [`SnapshotLimits::check`], after this many bytes of a content were read.
    ///
    /// # Errors
    /// As [`SnapshotLimits::check`], or too much was read.
    pub fn check_read(&self, bytes: u64) -> Result<(), String> {
        if self.read.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MOST_READ {
            return Err(format!(
                "more than {} GiB of the tree had to be read: add files that are not source code to .gitignore",
                MOST_READ >> 30
            ));
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_count_by_what_is_read() {
        let bound = WorkTimes::default().begin(&RunEnd::default());
        bound.check_read(MOST_READ).unwrap();
        assert!(bound.check_read(1).unwrap_err().contains("64 GiB"));
        assert!(!bound.end.was_cut_off());
    }

    #[test]
    fn work_after_the_end_shares_one_short_time() {
        let token = CancellationToken::new();
        let end = RunEnd::new(&token);
        let mut times = WorkTimes::default();
        let early = times.begin(&end);
        early.check().unwrap();
        times.finish(&early);
        assert!(times.after_end.is_zero() && !times.longest.is_zero());
        token.cancel();
        let last = times.begin(&end);
        assert_eq!(last.grace, GRACE);
        last.check().unwrap();
        times.finish(&last);
        assert!(!times.after_end.is_zero() && !end.was_cut_off());
        times.after_end = GRACE;
        assert!(times.begin(&end).check().unwrap_err().contains("the run has ended"));
        assert!(end.was_cut_off());
    }

    #[test]
    fn closing_ends_all_work_at_once() {
        let end = RunEnd::default();
        let bound = WorkTimes::default().begin(&end);
        bound.check().unwrap();
        end.close();
        assert!(bound.check().unwrap_err().contains("closing"));
        assert!(!end.was_cut_off());
    }

    #[test]
    fn a_large_tree_has_more_time_after_the_end() {
        let grace = |longest: u64| {
            let longest = Duration::from_secs(longest);
            let times = WorkTimes {
                longest,
                ..WorkTimes::default()
            };
            times.begin(&RunEnd::default()).grace.as_secs()
        };
        assert_eq!([0, 1, 2, 60].map(grace), [2, 8, 16, 30]);
    }
}

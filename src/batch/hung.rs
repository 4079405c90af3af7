//! Waits for the process of a job. One that does not end when its time is over, because it hangs, is asked to end, then
//! killed, and at last no longer waited for, so that it does not hold up the batch.

use super::child::journal_of;
use crate::process::supervised::{self, SupervisedChild};
use crate::recipe::lower::WALL_MS;
use crate::report::summary::RunSummary;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a process is waited for.
#[derive(Clone, Copy, Debug)]
pub struct GracePeriods {
    /// After the wall-clock limit of its run, to write the run's files.
    pub beyond: Duration,
    /// After it was asked to end.
    pub asked: Duration,
    /// After it was killed. One that waits for a file system that does not answer may not end even then.
    pub killed: Duration,
}

/// How a process ended.
#[derive(Debug)]
pub struct Waited {
    /// `None`: it has not ended, although it was killed or because the waiting was given up.
    pub status: Option<ExitStatus>,
    /// The wall-clock limit after which it had to be ended; `None` if it ended by itself or the waiting was given up.
    pub late: Option<Duration>,
}

/// Waits for a process that has just been started. `wall`: the wall-clock limit of its run; `None` if only the process
/// reads the recipe: then it is the default, or what the journal in `run` says once that is over. `give_up` ends the
/// waiting.
///
/// # Errors
/// I/O errors of `waitpid`.
pub async fn wait(
    child: &mut SupervisedChild,
    wall: Option<Duration>,
    run: &Path,
    grace: GracePeriods,
    give_up: &Notify,
) -> io::Result<Waited> {
    tokio::select! {
        biased;
        waited = until_late(child, wall, run, grace) => waited,
        () = give_up.notified() => Ok(Waited { status: None, late: None }),
    }
}

async fn until_late(
    child: &mut SupervisedChild,
    wall: Option<Duration>,
    run: &Path,
    grace: GracePeriods,
) -> io::Result<Waited> {
    let by_itself = |status| Waited {
        status: Some(status),
        late: None,
    };
    let pid = child.pid();
    let mut limit = wall.unwrap_or(Duration::from_millis(WALL_MS));
    if let Ok(ended) = timeout(limit.saturating_add(grace.beyond), child.wait()).await {
        return ended.map(by_itself);
    }
    if wall.is_none()
        && let Some(own) = wall_of_journal(run)
        && own > limit
    {
        let rest = own.saturating_sub(limit);
        limit = own;
        if let Ok(ended) = timeout(rest, child.wait()).await {
            return ended.map(by_itself);
        }
    }
    let ended_late = |status| Waited {
        status,
        late: Some(limit),
    };
    for (kill, time) in [(false, grace.asked), (true, grace.killed)] {
        if let Some(pid) = pid {
            supervised::signal_child(pid, kill);
        }
        if let Ok(ended) = timeout(time, child.wait()).await {
            return ended.map(|status| ended_late(Some(status)));
        }
    }
    Ok(ended_late(None))
}

/// The wall-clock limit of the plan in a journal; `None` if there is none or it cannot be read.
fn wall_of_journal(run: &Path) -> Option<Duration> {
    let journal = journal_of(run).ok()??;
    let head = RunSummary::fold(&journal.events).head?;
    let wall = head.plan.pointer("/budget/wall_ms").and_then(Value::as_u64)?;
    Some(Duration::from_millis(wall))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const SHORT: Duration = Duration::from_millis(30);
    const LONG: Duration = Duration::from_secs(60);

    fn sleeping(dir: &Path, stopped: bool) -> SupervisedChild {
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let child = supervised::start(Path::new("/bin/sleep"), &["60".into()], &[], log).unwrap();
        if stopped {
            let pid = rustix::process::Pid::from_raw(child.pid().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        }
        child
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_asked_to_end_and_killed() {
        let dir = tempfile::tempdir().unwrap();
        let grace = GracePeriods {
            beyond: SHORT,
            asked: SHORT,
            killed: LONG,
        };
        // A stopped process gets no SIGTERM.
        for (stopped, signal, asked) in [(false, 15, LONG), (true, 9, SHORT)] {
            let mut child = sleeping(dir.path(), stopped);
            let grace = GracePeriods { asked, ..grace };
            let waited = wait(&mut child, Some(SHORT), dir.path(), grace, &Notify::new()).await;
            let waited = waited.unwrap();
            assert_eq!(waited.status.unwrap().signal(), Some(signal));
            assert_eq!(waited.late, Some(SHORT));
        }
    }

    #[tokio::test]
    async fn a_process_is_waited_for_until_its_limit_or_until_it_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let grace = GracePeriods {
            beyond: LONG,
            asked: LONG,
            killed: LONG,
        };
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut child = supervised::start(Path::new("/bin/true"), &[], &[], log).unwrap();
        let waited = wait(&mut child, None, dir.path(), grace, &Notify::new()).await.unwrap();
        assert!(waited.status.unwrap().success() && waited.late.is_none());
        let mut child = sleeping(dir.path(), true);
        let give_up = Notify::new();
        let (waited, ()) = tokio::join!(wait(&mut child, None, dir.path(), grace, &give_up), async {
            tokio::time::sleep(SHORT).await;
            give_up.notify_waiters();
        });
        let waited = waited.unwrap();
        assert!(waited.status.is_none() && waited.late.is_none());
    }
}

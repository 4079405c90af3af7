//! Finds what commands may have changed at closed paths if this process was killed before it compared them. The
//! recorded state is lost with the process, but a command cannot set the change time (`ctime`) of an entry.

use super::walk::{MOST_NAMES, MOST_TIME, TreeWalk};
use super::{at, limit_message};
use crate::base::grant::ClosedPaths;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Change times of files may be behind the system clock by up to a tick of the kernel's timer.
const CLOCK_TICK: Duration = Duration::from_millis(50);

/// The closed entries of a tree, at any depth, that have changed since a time, sorted. Directories end with `/`; in
/// these a name was added or removed. `own`: directories of this program, relative, which are skipped. An entry that
/// was removed from the top of the tree cannot be found.
///
/// # Errors
/// A sentence, if the tree cannot be searched within the limits of a guard.
pub fn closed_since(
    workspace: &Path,
    closed: &dyn ClosedPaths,
    own: &[PathBuf],
    since: SystemTime,
) -> Result<Vec<String>, String> {
    let since = since.checked_sub(CLOCK_TICK).unwrap_or(SystemTime::UNIX_EPOCH);
    let unreadable = |path: &Path, error: Errno| format!("{}: {error}", path.display());
    let root = at::root(workspace).map_err(|error| unreadable(workspace, error))?;
    let (found, _) = TreeWalk::new(&root, closed, own).find(Path::new(""));
    if let Some(over) = found.over.first() {
        return Err(limit_message(over));
    }
    let until = Instant::now() + MOST_TIME;
    let mut waiting = found.closed;
    let mut changed = Vec::new();
    let mut names = 0;
    while let Some(path) = waiting.pop() {
        names += 1;
        if names > MOST_NAMES || Instant::now() > until {
            return Err("there are too many files in closed directories to look at each".to_owned());
        }
        if own.iter().any(|own| path.starts_with(own)) {
            continue;
        }
        let data = match at::stat_below(&root, &path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            data => data.map_err(|error| unreadable(&path, error))?,
        };
        let is_dir = FileType::from_raw_mode(data.st_mode).is_dir();
        if is_dir {
            let dir = at::dir(&root, &path).map_err(|error| unreadable(&path, error))?;
            let each = |name: &std::ffi::CStr, _, _| waiting.push(path.join(OsStr::from_bytes(name.to_bytes())));
            at::list(&dir, &mut Vec::new(), each).map_err(|error| unreadable(&path, error))?;
        }
        if changed_at(&data) >= since {
            let end = if is_dir { "/" } else { "" };
            changed.push(format!("{}{end}", path.display()));
        }
    }
    changed.sort();
    Ok(changed)
}

#[expect(clippy::unnecessary_cast, reason = "the widths differ between machines")]
fn changed_at(data: &rustix::fs::Stat) -> SystemTime {
    let seconds = u64::try_from(data.st_ctime as i64).unwrap_or(0);
    let nanos = u32::try_from(data.st_ctime_nsec as i64).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

//! A control group that bounds the processes of one command, where this user may make one. Used where no other limit binds.

use std::path::{Path, PathBuf};

/// A group of our own; removed when dropped, which needs it to be empty.
pub(super) struct Group(PathBuf);

impl Group {
    /// A new group below our own with at most `processes` processes and threads. `None` when groups are not ours to make.
    pub fn make(processes: u64) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("overnight-{}", std::process::id());
        bases(&own).into_iter().find_map(|base| {
            sweep(&base);
            let dir = base.join(&name);
            std::fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            // A group without this file does not count processes; writing fails then.
            std::fs::File::options()
                .write(true)
                .open(group.0.join("pids.max"))
                .ok()?;
            std::fs::write(group.0.join("pids.max"), processes.to_string()).ok()?;
            Some(group)
        })
    }

    /// Puts the calling process in; its children follow.
    pub fn enter(&self) -> std::io::Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), "0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may take a moment to let go of the last process.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// Removes what a killed helper left.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("overnight-"))
            .filter(|text| text.parse::<u32>().is_ok());
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Where our own group lies in the old and in the new hierarchy.
fn bases(own: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            list if list.split(',').any(|name| name == "pids") => Path::new("/sys/fs/cgroup/pids"),
            _ => return None,
        };
        Some(root.join(path.trim_start_matches('/')))
    };
    own.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_found() {
        let found = bases("9:cpu:/a\n8:pids:/b/c\n0::/d\n");
        assert_eq!(
            found,
            [
                PathBuf::from("/sys/fs/cgroup/pids/b/c"),
                PathBuf::from("/sys/fs/cgroup/d")
            ]
        );
        assert!(bases("nonsense").is_empty());
    }
}

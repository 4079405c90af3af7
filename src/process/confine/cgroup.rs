//! Control groups that limit processes and memory of one command's tree, where this user may create them: a cgroup v1
//! hierarchy, or a delegated subtree of cgroup v2. Limits that no group can enforce are left to polling.

use rustix::fs::{FlockOperation, flock, getxattr};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Prefix of the names of groups that this program creates.
const PREFIX: &str = "overnight-";
/// An empty group of this age that no helper holds locked was left behind; a younger one may be about to be locked.
const LEFT: Duration = Duration::from_secs(2);
/// Where the hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// A resource that a group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Processes,
    Memory,
}

impl Controller {
    const ALL: [Controller; 2] = [Controller::Processes, Controller::Memory];

    /// The name in `/proc/self/cgroup` and in `cgroup.subtree_control`.
    fn name(self) -> &'static str {
        match self {
            Controller::Processes => "pids",
            Controller::Memory => "memory",
        }
    }

    /// The file that sets its limit.
    fn file(self, unified: bool) -> &'static str {
        match (self, unified) {
            (Controller::Processes, _) => "pids.max",
            (Controller::Memory, true) => "memory.max",
            (Controller::Memory, false) => "memory.limit_in_bytes",
        }
    }
}

/// A group of one tree.
struct Group {
    dir: PathBuf,
    /// Its `cgroup.procs`, through which a process can enter even where the group is not visible.
    procs: File,
    /// Whether it is of cgroup v2.
    unified: bool,
    /// Its directory, locked as long as the helper needs the group; with cgroup v2 a process can be created in it.
    handle: File,
}

/// The groups of one tree; removed on drop, which requires them to be empty.
#[derive(Default)]
pub(super) struct Groups {
    made: Vec<Group>,
    /// Why the kernel did not let `init` enter a group of cgroup v1.
    refused: Option<io::Error>,
    pub holds_processes: bool,
    /// The counter of processes that the kernel killed because this tree ran out of memory; `None` when no group limits
    /// memory.
    killed: Option<File>,
}

/// A directory in which groups can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    dir: PathBuf,
    /// Whether it is cgroup v2, where one group has all controllers.
    unified: bool,
    /// For cgroup v1: the controller of this hierarchy.
    controller: Option<Controller>,
}

impl Groups {
    /// Creates groups with at most `processes` processes and threads and `memory` bytes, as far as this is possible
    /// here.
    pub fn make(processes: u64, memory: u64) -> Self {
        let mut groups = Self::default();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        for base in bases(&own, Path::new(ROOT)) {
            groups.add(&base, processes, memory);
        }
        groups
    }

    fn add(&mut self, base: &Base, processes: u64, memory: u64) {
        let wanted = |controller: &Controller| match controller {
            Controller::Processes => !self.holds_processes,
            Controller::Memory => self.killed.is_none(),
        };
        let wanted: Vec<Controller> = Controller::ALL
            .into_iter()
            .filter(wanted)
            .filter(|controller| base.controller.is_none_or(|only| only == *controller))
            .collect();
        if wanted.is_empty() {
            return;
        }
        sweep(&base.dir);
        if base.unified {
            enable(&base.dir, &wanted);
        }
        let dir = base.dir.join(format!("{PREFIX}{}", fresh()));
        if std::fs::create_dir(&dir).is_err() {
            return;
        }
        let mut held = Vec::new();
        for controller in wanted {
            let limit = match controller {
                // `init` enters a group of cgroup v1 too.
                Controller::Processes => processes + u64::from(!base.unified),
                Controller::Memory => memory,
            };
            // Opened without O_CREAT: outside of a hierarchy this must not create a regular file.
            if put(&dir.join(controller.file(base.unified)), &limit.to_string()) {
                held.push(controller);
            }
        }
        let procs = File::options().write(true).open(dir.join("cgroup.procs"));
        let handle = locked(&dir);
        let killed = match held.contains(&Controller::Memory) {
            true => bound_memory(&dir, base.unified, memory),
            false => None,
        };
        let holds_processes = held.contains(&Controller::Processes);
        match (procs, handle) {
            (Ok(procs), Some(handle)) if holds_processes || killed.is_some() => {
                self.made.push(Group {
                    dir,
                    procs,
                    unified: base.unified,
                    handle,
                });
                self.holds_processes |= holds_processes;
                self.killed = self.killed.take().or(killed);
            }
            _ => remove(&dir),
        }
    }

    /// Whether a group limits the memory.
    pub fn holds_memory(&self) -> bool {
        self.killed.is_some()
    }

    /// Moves the calling process, `init`, into the groups of cgroup v1; the command inherits them. The kernel may wait
    /// 10 ms for a grace period of RCU, which is why this is done before there is a command. Not with cgroup v2, where
    /// running out of memory ends every process of the group: there the command is created in its group.
    pub fn enter_ahead(&mut self) {
        let mut older = self.made.iter().filter(|group| !group.unified);
        self.refused = older.find_map(|group| group.procs.write_all_at(b"0", 0).err());
    }

    /// The group of cgroup v2 in which the command can be created.
    pub fn spawn_group(&self) -> Option<BorrowedFd<'_>> {
        self.made
            .iter()
            .find_map(|group| group.unified.then(|| group.handle.as_fd()))
    }

    /// Moves the calling process, which becomes the command, into the groups in which it is not yet. `in_spawn_group`:
    /// whether it was created in [`Groups::spawn_group`].
    ///
    /// # Errors
    /// The kernel refuses one of the groups; the process then enters none of the remaining ones.
    pub fn enter(&self, in_spawn_group: bool) -> io::Result<()> {
        if let Some(error) = &self.refused {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        let newer = self.made.iter().filter(|group| group.unified && !in_spawn_group);
        newer
            .map(|group| &group.procs)
            .try_for_each(|procs| procs.write_all_at(b"0", 0))
    }

    /// Whether the kernel killed a process because the tree ran out of memory.
    pub fn ran_out(&self) -> bool {
        let mut text = [0_u8; 4096];
        let read = self.killed.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = String::from_utf8_lossy(text.get(..read.unwrap_or(0)).unwrap_or_default()).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.is_some_and(|count| count.trim() != "0")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.made.iter().for_each(|group| remove(&group.dir));
    }
}

/// Settings that go with a memory limit: no use of swap, and the OOM killer kills the whole group. Returns the file
/// with the OOM kill counter.
fn bound_memory(dir: &Path, unified: bool, limit: u64) -> Option<File> {
    // Missing on a machine without swap or without swap accounting.
    match unified {
        true => {
            put(&dir.join("memory.swap.max"), "0");
            put(&dir.join("memory.oom.group"), "1");
            File::open(dir.join("memory.events")).ok()
        }
        false => {
            put(&dir.join("memory.memsw.limit_in_bytes"), &limit.to_string());
            File::open(dir.join("memory.oom_control")).ok()
        }
    }
}

fn put(path: &Path, text: &str) -> bool {
    let file = File::options().write(true).open(path);
    file.is_ok_and(|file| file.write_all_at(text.as_bytes(), 0).is_ok())
}

/// Enables these controllers for child groups. The kernel refuses if the group has processes of its own; then its
/// children have no controllers and are not used.
fn enable(dir: &Path, wanted: &[Controller]) {
    let file = dir.join("cgroup.subtree_control");
    let enabled = std::fs::read_to_string(&file).unwrap_or_default();
    for controller in wanted {
        if !enabled.split_ascii_whitespace().any(|name| name == controller.name()) {
            put(&file, &format!("+{}", controller.name()));
        }
    }
}

fn remove(dir: &Path) {
    // The kernel may need a moment to release the last process.
    for _ in 0..50 {
        if std::fs::remove_dir(dir).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sixteen hexadecimal digits that no other group has.
fn fresh() -> String {
    // Hasher keys are random; if a name is taken, creating the group fails.
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// The directory of a group, locked; `None` if another process holds the lock.
fn locked(dir: &Path) -> Option<File> {
    let handle = File::open(dir).ok()?;
    flock(&handle, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(handle)
}

/// Removes groups left by a killed helper. The kernel refuses to remove a group with processes in it.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let old = || {
            let made = entry.metadata().and_then(|data| data.modified()).ok()?;
            SystemTime::now().duration_since(made).ok()
        };
        if ours && old().is_some_and(|age| age > LEFT) {
            // Held until it is removed, so that its lock cannot be taken meanwhile.
            let _held = locked(&entry.path()).map(|held| (std::fs::remove_dir(entry.path()), held));
        }
    }
}

/// Directories for groups relative to the group of this process, in the order in which they are tried. A v2 group with
/// processes cannot have child groups with controllers; its parent can, if a service manager has delegated it.
fn bases(own: &str, root: &Path) -> Vec<Base> {
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            // In hybrid mode v2 is mounted one directory deeper.
            let root = Some(root.join("unified"))
                .filter(|root| root.is_dir())
                .unwrap_or(root.to_owned());
            let own = inside(&root, path);
            let above = own.parent().filter(|above| own != root && is_delegated(above));
            let dirs = above.into_iter().map(Path::to_owned).chain([own.clone()]);
            let base = |dir| Base {
                dir,
                unified: true,
                controller: None,
            };
            return Some(dirs.map(base).collect::<Vec<_>>());
        }
        let named = |controller: &Controller| controllers.split(',').any(|name| name == controller.name());
        let controller = Controller::ALL.into_iter().find(named)?;
        let base = Base {
            dir: inside(&root.join(controller.name()), path),
            unified: false,
            controller: Some(controller),
        };
        Some(vec![base])
    };
    own.lines().filter_map(place).flatten().collect()
}

/// The directory of a group. In a container the path may be the host's, and the container's own group is mounted at the
/// root.
fn inside(root: &Path, path: &str) -> PathBuf {
    let dir = root.join(path);
    match dir.is_dir() {
        true => dir,
        false => root.to_owned(),
    }
}

/// Whether a service manager marked the group as delegated (systemd, `Delegate=`).
fn is_delegated(dir: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].into_iter().any(|name| {
        let mut value = [0_u8; 8];
        getxattr(dir, name, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

/// Whether a group can limit a tree's memory here; creates one and removes it.
pub(crate) fn memory_can_be_grouped() -> bool {
    Groups::make(1_000, 1 << 30).holds_memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path();
        for dir in ["pids/b/c", "memory", "d/e"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        let found = bases("9:cpu:/a\n8:pids:/b/c\n4:memory:/of/the/host\n0::/d/e\n", root);
        let base = |dir: &str, controller: Option<Controller>| Base {
            dir: root.join(dir),
            unified: controller.is_none(),
            controller,
        };
        assert_eq!(
            found,
            [
                base("pids/b/c", Some(Controller::Processes)),
                base("memory", Some(Controller::Memory)),
                base("d/e", None)
            ]
        );
        std::fs::create_dir_all(root.join("unified/d/e")).unwrap();
        assert_eq!(bases("0::/d/e\n", root), [base("unified/d/e", None)]);
        assert!(bases("nonsense", root).is_empty());
    }

    /// The line of cgroup v2 in `/proc/self/cgroup`, without allocating: it is read in a copy of a process with threads.
    fn write_own_groups(to: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = rustix::fs::OFlags::RDONLY;
        let file = rustix::fs::open(c"/proc/self/cgroup", flags, rustix::fs::Mode::empty())?;
        let mut text = [0_u8; 4096];
        let length = rustix::io::read(&file, &mut text)?;
        rustix::io::write(to, text.get(..length).unwrap_or_default())?;
        Ok(())
    }

    /// Mounts cgroup v2 for this thread only, makes a group in it, creates a process in that group, and returns what that
    /// process says of its groups. `None` where this user may not mount.
    #[expect(
        unsafe_code,
        reason = "a mount that no other test sees needs a namespace of this thread"
    )]
    fn born_in_a_group() -> Option<(bool, String)> {
        let top = tempfile::tempdir().unwrap();
        // SAFETY: only this thread changes its namespace and its view of the file system.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return None;
        }
        let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).ok()?;
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", top.path(), "cgroup2", none, None).ok()?;
        let dir = top.path().join(format!("{PREFIX}{}", fresh()));
        std::fs::create_dir(&dir).ok()?;
        let mut groups = Groups::default();
        groups.made = vec![Group {
            procs: File::options().write(true).open(dir.join("cgroup.procs")).unwrap(),
            handle: locked(&dir).unwrap(),
            unified: true,
            dir,
        }];
        let (read, write) = std::io::pipe().unwrap();
        let (child, in_spawn_group) = super::super::init::fork_into(&groups).unwrap();
        let Some(child) = child else {
            let _ = write_own_groups(write.as_fd());
            super::super::report::leave(0);
        };
        drop(write);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut &read, &mut text).unwrap();
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        drop(groups);
        let left = std::fs::read_dir(top.path()).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        assert_eq!(left.count(), 0, "the group is removed");
        rustix::mount::unmount(top.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        Some((in_spawn_group, text))
    }

    #[test]
    fn with_version_2_the_command_is_created_in_its_group() {
        let Some((in_spawn_group, text)) = std::thread::spawn(born_in_a_group).join().unwrap() else {
            return println!("skipped: this user may not mount cgroup v2");
        };
        assert!(in_spawn_group, "this kernel creates processes in a group");
        let line = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
        assert!(line.contains(PREFIX), "{text}");
    }

    #[test]
    fn nothing_is_left_of_a_group_that_bounds_nothing() {
        let top = tempfile::tempdir().unwrap();
        let base = Base {
            dir: top.path().to_owned(),
            unified: true,
            controller: None,
        };
        let mut groups = Groups::default();
        groups.add(&base, 10, 1 << 30);
        assert!(!groups.holds_processes && !groups.holds_memory() && !groups.ran_out());
        groups.enter_ahead();
        assert!(groups.spawn_group().is_none());
        assert!(groups.enter(false).is_ok(), "no group, nothing to enter");
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
    }
}

//! The private directories of one run (home, temporary files, cache layers), and the complete [`Confinement`] built
//! from a policy's request.

use super::env::{base_env, set};
use super::granted_parts;
use super::placed::{Brought, Layer, Placed, below_layer};
use super::program_search::{environments, search_path, searched_environment, user_home};
use super::sides::{OwnSide, Side, Sides};
use super::toolchains::{GRADLE_OFFLINE, HomePaths, ToolchainGrant, grant, offline};
use super::venv;
use super::{Confinement, Network, SandboxLevel, SignalScope};
use crate::base::grant::ClosedPaths;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Upper limit for the concurrent runs in one repository that get a home at a fixed path. Further runs get a random
/// path.
const MOST_RUNS: u32 = 64;

/// Upper limit in bytes for the kept caches of one repository. If they are larger, they are deleted before the next
/// run.
const MOST_KEPT: u64 = 20 << 30;
/// Upper limit for the directory entries that are counted to find out the size of the caches.
const MOST_COUNTED: usize = 1_000_000;

/// The variable in which the commands of a recipe find the files beside it.
pub const RECIPE_VARIABLE: &str = "OVERNIGHT_RECIPE_DIR";
/// The variable in which they find the input of the run, as a file.
pub const INPUT_VARIABLE: &str = "OVERNIGHT_INPUT";
/// The directory in which commands see both at level `full`. At other levels they see the real path.
const GIVEN_SEEN: &str = "/run/overnight";

/// The home that commands see at level `full` if the user's own path cannot be used.
const ELSEWHERE: &str = "/home/overnight";

/// The private directories of a run: for each side a home, one for temporary files and the upper directories of cache
/// layers. Empty at first, emptied again on drop.
///
/// Their paths are the same in every run in a repository, since build tools include paths in their fingerprints; a lock
/// separates concurrent runs.
#[derive(Debug)]
pub struct Private {
    dir: PathBuf,
    /// Home, temporary files and layers of each side.
    pub sides: Arc<Sides>,
    /// Cache layers that stay for later runs in this repository, if the policy says so.
    kept: Option<PathBuf>,
    /// Directories of the original tree that commands of an isolated run see in their own tree.
    pub brought: Vec<Brought>,
    /// The tree from which an isolated workspace was created.
    pub origin: Option<PathBuf>,
    /// The git directory of the workspace, if it is outside the workspace; commands may read it.
    pub git_dir: Option<PathBuf>,
    /// The variables with paths that commands can only read, each with its path below [`Private::given`].
    given: Vec<(&'static str, String)>,
    _lock: Option<OwnedFd>,
    _random: Option<TempDir>,
}

impl Private {
    /// Creates them in `cache`, a directory of this user for this repository; if that fails, at a random path in the
    /// machine's directory for temporary files.
    ///
    /// # Errors
    /// I/O errors, if neither place can be used.
    pub fn create(cache: Option<&Path>) -> io::Result<Self> {
        let held = cache.and_then(|cache| Self::stable(cache).ok().flatten());
        match held {
            Some(held) => Ok(held),
            None => Self::random(),
        }
    }

    fn stable(cache: &Path) -> io::Result<Option<Self>> {
        make(cache)?;
        let cache = cache.canonicalize()?;
        for number in 0..MOST_RUNS {
            let dir = cache.join(format!("run-{number}"));
            make(&dir)?;
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = rustix::fs::open(dir.join("lock"), flags, Mode::RUSR | Mode::WUSR)?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            // A killed run may have left its files behind.
            clear(&dir)?;
            return Ok(Some(Self {
                sides: Arc::new(Sides::create(&dir)?),
                dir,
                kept: Some(cache.join("layers")),
                brought: Vec::new(),
                origin: None,
                git_dir: None,
                given: Vec::new(),
                _lock: Some(lock),
                _random: None,
            }));
        }
        Ok(None)
    }

    fn random() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("overnight-").tempdir()?;
        Ok(Self {
            dir: dir.path().to_path_buf(),
            sides: Arc::new(Sides::create(dir.path())?),
            kept: None,
            brought: Vec::new(),
            origin: None,
            git_dir: None,
            given: Vec::new(),
            _lock: None,
            _random: Some(dir),
        })
    }

    /// `HOME` of the model's commands; at level `full` they see it at another path.
    pub fn home(&self) -> PathBuf {
        self.sides.home(Side::Model)
    }

    /// `TMPDIR` of the model's commands; at level `full` they see it as `/tmp`.
    pub fn tmp(&self) -> PathBuf {
        self.sides.tmp(Side::Model)
    }

    /// What commands are given read-only.
    fn given(&self) -> PathBuf {
        self.dir.join("given")
    }

    /// Writes the files beside the recipe (path, content, whether it is executable) and the input (name, content).
    /// Commands find them under [`RECIPE_VARIABLE`] and [`INPUT_VARIABLE`], and cannot write them.
    ///
    /// # Errors
    /// I/O errors; a path that leads out of the directory.
    pub fn give<'a>(
        &mut self,
        files: impl IntoIterator<Item = (&'a str, &'a [u8], bool)>,
        input: Option<(&str, &str)>,
    ) -> io::Result<()> {
        let write = |path: &Path, bytes: &[u8], executable: bool| {
            path.parent().map_or(Ok(()), make)?;
            std::fs::write(path, bytes)?;
            let mode = if executable { 0o555 } else { 0o444 };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        let recipe = self.given().join("recipe");
        let mut any = false;
        for (path, bytes, executable) in files {
            let plain = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
            if !Path::new(path).components().all(plain) {
                return Err(io::Error::other(format!("`{path}` leads out of the directory")));
            }
            write(&recipe.join(path), bytes, executable)?;
            any = true;
        }
        if any {
            self.given.push((RECIPE_VARIABLE, "recipe".to_owned()));
        }
        if let Some((name, text)) = input {
            write(&self.given().join(name), text.as_bytes(), false)?;
            self.given.push((INPUT_VARIABLE, name.to_owned()));
        }
        Ok(())
    }

    /// The directory of the upper directories of cache layers. Kept ones belong to all sides.
    fn layers(&self, keep: bool) -> PathBuf {
        match &self.kept {
            Some(kept) if keep => {
                if size(kept) > MOST_KEPT {
                    // What cannot be removed now is removed by the next run.
                    let _ = remove(kept);
                }
                kept.clone()
            }
            _ => self.sides.layers(Side::Model),
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // If this fails, the next run at this path clears it.
        let _ = clear(&self.dir);
    }
}

/// Removes everything of a run. `home`, `tmp` and `layers` are those of earlier versions.
fn clear(dir: &Path) -> io::Result<()> {
    let sides = Side::ALL.map(Side::name);
    let others = ["tree-layers", "given", "home", "tmp", "layers"];
    sides.iter().chain(&others).try_for_each(|name| remove(&dir.join(name)))
}

fn make(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes a tree that commands have made; none of them is alive. Directories whose mode denies access to their owner
/// are opened first.
///
/// # Errors
/// I/O errors; a tree that does not exist is no error.
pub fn remove(dir: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    match gone(std::fs::remove_dir_all(dir)) {
        Ok(()) => Ok(()),
        Err(_) => {
            open_up(dir);
            gone(std::fs::remove_dir_all(dir))
        }
    }
}

fn open_up(dir: &Path) {
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        let _ = std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(dirs.map(|entry| entry.path()));
    }
}

/// The size in bytes of the files below a directory, up to the counting limit.
fn size(dir: &Path) -> u64 {
    let (mut left, mut bytes, mut seen) = (vec![dir.to_path_buf()], 0, 0);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            match entry.metadata() {
                Ok(data) if data.is_dir() => left.push(entry.path()),
                Ok(data) => bytes += data.len(),
                Err(_) => {}
            }
            if seen > MOST_COUNTED {
                return u64::MAX;
            }
        }
    }
    bytes
}

/// What a policy and a run request from the sandbox.
#[derive(Clone, Copy, Debug)]
pub struct SandboxRequest<'a> {
    /// As returned by `choose`.
    pub level: SandboxLevel,
    /// Canonical.
    pub workspace: &'a Path,
    /// Absolute paths of run directories.
    pub hidden: &'a [PathBuf],
    pub closed: &'a Arc<dyn ClosedPaths>,
    pub network: &'a Network,
    /// Whether programs can be judged at their exec: see `Probe::witness`.
    pub witness: bool,
    /// Names of `base::toolchain::NAMES`.
    pub toolchains: &'a [String],
    /// Whether a file with this path in a toolchain holds credentials; commands cannot read it.
    pub credentials: fn(&str) -> bool,
    /// Whether additions to caches stay for the next run in this repository.
    pub keep_caches: bool,
    /// Names of variables that the policy passes to commands.
    pub pass: &'a [String],
    /// The environment of this program.
    pub parent: &'a [(String, String)],
}

/// The confinement of the model's commands of one run; [`Confinement::of_side`] gives those of the others.
///
/// # Errors
/// A sentence: a toolchain is unknown or could not be searched for credentials, or a link in the private home could not
/// be created.
pub fn confinement(request: &SandboxRequest<'_>, private: &Private) -> Result<Confinement, String> {
    let full = request.level == SandboxLevel::Full;
    let user_home = user_home(request.parent);
    let home = match full {
        true => seen_home(&user_home, request.workspace),
        false => private.home(),
    };
    let environments = environments(request.workspace, &private.brought);
    let homes = homes(request, (&user_home, &home), &environments);
    let granted = grant(request.toolchains, &homes).map_err(|name| format!("there is no toolchain `{name}`"))?;
    for side in Side::ALL {
        fill(&granted, &private.sides.home(side), *request.network == Network::None)
            .map_err(|error| format!("the private home cannot be filled: {error}"))?;
    }
    let active = venv::active(request.workspace, private.origin.as_deref(), request.parent);
    let tmp = match full {
        true => PathBuf::from("/tmp"),
        false => private.tmp(),
    };
    let path = search_path(&homes, &granted, &active);
    let mut env = environment(request, &granted, (&home, &tmp, &path), &active);
    // A file can be covered only where commands see mounts of their own.
    let sorted = granted_parts::sorted(&granted.readable, request.credentials)?;
    let (mut readable, covered) = match full {
        true => (granted.readable, sorted.credentials),
        false => (sorted.without, Vec::new()),
    };
    readable.extend(private.brought.iter().map(|brought| brought.from.clone()));
    readable.extend(private.git_dir.clone());
    if !private.given.is_empty() {
        let seen = match full {
            true => PathBuf::from(GIVEN_SEEN),
            false => private.given(),
        };
        for (name, path) in &private.given {
            set(&mut env, name, &seen.join(path).display().to_string());
        }
        if !full {
            readable.push(seen);
        }
    }
    let placed = match full {
        true => placed(request, private, (granted.layers, &active), &home),
        false => Placed::default(),
    };
    Ok(Confinement {
        level: request.level,
        signals: SignalScope::of_kernel(),
        workspace: request.workspace.to_path_buf(),
        env,
        readable,
        writable: if full {
            Vec::new()
        } else {
            vec![private.home(), private.tmp()]
        },
        placed: Arc::new(placed),
        hidden: request.hidden.iter().cloned().chain(covered).collect(),
        masks: Arc::default(),
        closed: Arc::clone(request.closed),
        memory: None,
        network: request.network.clone(),
        witness: request.witness && request.level != SandboxLevel::None,
        spare: Arc::default(),
        side: Some(OwnSide {
            sides: Arc::clone(&private.sides),
            side: Side::Model,
            sees_made: true,
        }),
        links: Arc::default(),
        objects: Arc::default(),
        names: Arc::default(),
    })
}

fn homes<'a>(
    request: &SandboxRequest<'a>,
    (home, private_home): (&'a Path, &'a Path),
    environments: &'a [PathBuf],
) -> HomePaths<'a> {
    HomePaths {
        home,
        private_home,
        environments,
        parent: request.parent,
        network: *request.network != Network::None,
        layered: request.level == SandboxLevel::Full,
        workspace: request.workspace,
    }
}

/// The home that commands see at level `full`: the user's own path, so that no path differs from a build by hand.
fn seen_home(user: &Path, workspace: &Path) -> PathBuf {
    let plain =
        user.is_absolute() && user.components().count() > 1 && user.canonicalize().is_ok_and(|real| real == user);
    let system = super::confine::SYSTEM
        .iter()
        .chain(&["/etc", "/proc", "/dev", "/sys", "/tmp", "/var/tmp"]);
    let taken = system.map(Path::new).any(|dir| user == dir || dir.starts_with(user));
    // The user's home may contain the workspace but must not be inside it.
    match plain && !taken && !user.starts_with(workspace) {
        true => user.to_path_buf(),
        false => PathBuf::from(ELSEWHERE),
    }
}

fn placed(
    request: &SandboxRequest<'_>,
    private: &Private,
    (layers, active): (Vec<Layer>, &venv::Active),
    home: &Path,
) -> Placed {
    let layered = private.brought.iter().filter(|brought| brought.layered);
    let brought = layered.enumerate().map(|(number, brought)| Layer {
        name: format!("tree-{number}"),
        below: brought.from.clone(),
        place: request.workspace.join(&brought.path),
        alone: false,
        of_tree: true,
    });
    // Directories that are searched for programs are read-only for every command, including those brought into an
    // isolated tree.
    let read_only = active.programs.iter().filter_map(|dir| {
        let from = below_layer(request.workspace, &private.brought, dir)?;
        Some((from, dir.clone()))
    });
    let given = (!private.given.is_empty()).then(|| (private.given(), PathBuf::from(GIVEN_SEEN)));
    Placed {
        writable: vec![
            (private.home(), home.to_path_buf()),
            (private.tmp(), PathBuf::from("/tmp")),
            (private.tmp(), PathBuf::from("/var/tmp")),
        ],
        read_only: read_only.chain(given).collect(),
        layers: layers.into_iter().chain(brought).collect(),
        slots: private.layers(request.keep_caches),
        below: (!request.keep_caches).then(|| private.sides.layers(Side::Author)),
        tree_slots: private.dir.join("tree-layers"),
    }
}

fn environment(
    request: &SandboxRequest<'_>,
    granted: &ToolchainGrant,
    (home, tmp, path): (&Path, &Path, &str),
    active: &venv::Active,
) -> Vec<(String, String)> {
    let (home, tmp) = (home.display().to_string(), tmp.display().to_string());
    let mut env = base_env(&home, &tmp, path, request.pass, request.parent);
    if *request.network == Network::None {
        for (name, value) in offline() {
            set(&mut env, &name, &value);
        }
    }
    for (name, value) in &granted.env {
        set(&mut env, name, value);
    }
    let inside = active.environment.as_ref().map(|dir| dir.display().to_string());
    let active = inside.or_else(|| searched_environment(path, request.parent).map(str::to_owned));
    if let Some(dir) = active {
        set(&mut env, "VIRTUAL_ENV", &dir);
    }
    env
}

/// Puts the initial files into the private home. Links to missing targets are left out.
fn fill(granted: &ToolchainGrant, home: &Path, offline: bool) -> io::Result<()> {
    for (name, target) in granted.links.iter().filter(|(_, target)| target.exists()) {
        let at = home.join(name);
        if let Some(parent) = at.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if std::fs::symlink_metadata(&at).is_err() {
            std::os::unix::fs::symlink(target, at)?;
        }
    }
    if offline {
        let (name, text) = GRADLE_OFFLINE;
        let at = home.join(name);
        if let Some(parent) = at.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(at, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_the_same_in_every_run_and_clean() {
        let cache = tempfile::tempdir().unwrap();
        let first = Private::create(Some(cache.path())).unwrap();
        let home = first.home();
        std::fs::write(home.join("left"), "x").unwrap();
        let beside = Private::create(Some(cache.path())).unwrap();
        assert_ne!(beside.home(), home, "two runs at a time have two homes");
        drop((first, beside));
        assert!(!home.exists());
        let again = Private::create(Some(cache.path())).unwrap();
        assert_eq!(again.home(), home);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_may_not_be_entered_is_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("home/closed");
        std::fs::create_dir_all(closed.join("deeper")).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        remove(&dir.path().join("home")).unwrap();
        assert!(!dir.path().join("home").exists());
        remove(&dir.path().join("home")).unwrap();
    }

    #[test]
    fn what_is_given_lies_inside_and_goes_with_the_run() {
        let cache = tempfile::tempdir().unwrap();
        let mut private = Private::create(Some(cache.path())).unwrap();
        let files: [(&str, &[u8], bool); 2] = [("check.py", b"x", false), ("lib/run.sh", b"#!", true)];
        private.give(files, Some(("input.txt", "log"))).unwrap();
        let given = private.given();
        let mode = |path: &str| std::fs::metadata(given.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("recipe/check.py"), mode("recipe/lib/run.sh")), (0o444, 0o555));
        assert_eq!(std::fs::read_to_string(given.join("input.txt")).unwrap(), "log");
        for path in ["../x", "/etc/x", "a/../../x"] {
            let one: [(&str, &[u8], bool); 1] = [(path, b"x", false)];
            assert!(private.give(one, None).is_err(), "{path}");
        }
        drop(private);
        assert!(!given.exists());
    }

    #[test]
    fn a_place_that_cannot_be_made_is_no_obstacle() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let private = Private::create(Some(&file.path().join("x"))).unwrap();
        assert!(private.home().is_dir() && private.tmp().is_dir());
        let home = private.home();
        drop(private);
        assert!(!home.exists());
    }

    #[test]
    fn the_home_is_seen_where_the_user_has_it_unless_that_hides_something() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let inside = home.join("ws");
        std::fs::create_dir(&inside).unwrap();
        let elsewhere = PathBuf::from(ELSEWHERE);
        assert_eq!(seen_home(&home, &inside), home);
        assert_eq!(seen_home(&home, Path::new("/nonexistent")), home);
        for (user, workspace) in [
            (home.as_path(), home.as_path()),
            (&inside, &home),
            (Path::new("/"), &inside),
            (Path::new("/usr"), &inside),
            (Path::new("relative"), &inside),
            (Path::new("/nonexistent"), &inside),
        ] {
            assert_eq!(seen_home(user, workspace), elsewhere, "{}", user.display());
        }
    }
}

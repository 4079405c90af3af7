//! The ground of one attack: a workspace, a home, a place outside with a secret, stubs, a listener; as root or as an ordinary user;
//! and what can be seen of an effect afterwards.

use super::super::harness::{BIN, Done, GIT_IDENTITY, copy_program, have, have_optional};
use super::bells::{Bells, Ran};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What lies outside of every workspace and no rule lets anyone read.
pub const SECRET: &str = "outside-secret-51f7c2";
/// How long one start of the program may take.
const TIMEOUT: Duration = Duration::from_secs(120);
const NOBODY: &str = "65534";

/// Who runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    Ordinary,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The users that can be had: both as root, else only the one that runs the tests.
pub fn users() -> Vec<User> {
    if is_root() {
        let found = Command::new("setpriv").arg("--version").output().is_ok();
        match have("setpriv", found) {
            true => vec![User::Root, User::Ordinary],
            false => vec![User::Root],
        }
    } else {
        have_optional("the right to run attacks as root", false);
        vec![User::Ordinary]
    }
}

/// The program at a place that every user can read.
pub fn program() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let reachable = || {
            let mut probe = Command::new("setpriv");
            probe.args([
                &format!("--reuid={NOBODY}"),
                &format!("--regid={NOBODY}"),
                "--clear-groups",
            ]);
            probe
                .args(["test", "-x", BIN])
                .status()
                .is_ok_and(|status| status.success())
        };
        if !is_root() || reachable() {
            return PathBuf::from(BIN);
        }
        let dir = std::env::temp_dir().join("overnight-it-program");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        let to = dir.join("overnight");
        let new = dir.join(format!("new-{}", std::process::id()));
        copy_program(Path::new(BIN), &new);
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &to).unwrap();
        to
    })
}

/// Whether a level can be had by this user here; with `OVERNIGHT_REQUIRE=all` a missing one fails the test.
pub fn level_found(level: &str, user: User) -> bool {
    static FOUND: Mutex<BTreeMap<(String, bool), bool>> = Mutex::new(BTreeMap::new());
    let key = (level.to_owned(), user == User::Root);
    let known = FOUND.lock().unwrap().get(&key).copied();
    let found = known.unwrap_or_else(|| {
        let ground = Ground::new(user);
        ground.hand_over();
        let policy = ground.given(
            "policy.yaml",
            &format!(
                "version: 1\nrules: [{{ allow: run_shell_command, commands: [echo] }}]\nsandbox: {{ level: {level} }}\n"
            ),
        );
        let args = [
            "tools",
            "call",
            "run_shell_command",
            "--args",
            "{\"command\":\"echo hi\"}",
            "--policy",
            &policy,
        ];
        ground.run(&args, &[], None).code == 0
    });
    FOUND.lock().unwrap().insert(key, found);
    have(&format!("sandbox level {level} as {user:?}"), found)
}

/// All that one case works on.
pub struct Ground {
    dir: TempDir,
    pub user: User,
    pub bells: Mutex<Bells>,
    port: u16,
    visits: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Ground {
    pub fn new(user: User) -> Self {
        let dir = tempfile::Builder::new().prefix("overnight-at-").tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["ws", "home", "outside", "outside/sub", "in", "run", "tmp"] {
            std::fs::create_dir(at(name)).unwrap();
            let mode = if name.starts_with("outside") { 0o777 } else { 0o755 };
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["outside/x", "outside/sub/x", "home/.netrc", "home/.bashrc"] {
            std::fs::write(at(name), format!("{SECRET}\n")).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o666)).unwrap();
        }
        let bells = Bells::hang(&at("stubs"));
        bells.stub(super::bells::Kind::Plain, ["canary"]);
        let (port, visits, heard) = listener();
        Self {
            dir,
            user,
            bells: Mutex::new(bells),
            port,
            visits,
            heard,
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn ws(&self) -> PathBuf {
        self.at("ws")
    }

    pub fn out(&self) -> PathBuf {
        self.at("run/out")
    }

    /// A file that the program is given; returns its path.
    pub fn given(&self, name: &str, text: &str) -> String {
        let path = self.at("in").join(name);
        std::fs::write(&path, self.filled(text)).unwrap();
        path.to_string_lossy().into_owned()
    }

    pub fn file(&self, path: &str, text: &str) {
        let to = self.ws().join(path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, self.filled(text)).unwrap();
    }

    /// The text with the places of this ground in it.
    pub fn filled(&self, text: &str) -> String {
        text.replace("@CANARY@", &self.at("stubs/bin/canary").to_string_lossy())
            .replace("@OUTSIDE@", &self.at("outside").to_string_lossy())
            .replace("@HOME@", &self.at("home").to_string_lossy())
            .replace("@WS@", &self.ws().to_string_lossy())
            .replace("@IN@", &self.at("in").to_string_lossy())
            .replace("@PORT@", &self.port.to_string())
    }

    /// Gives everything but the stubs and the inputs to the user.
    pub fn hand_over(&self) {
        if is_root() && self.user == User::Ordinary {
            let mut chown = Command::new("chown");
            chown.args(["-hR", &format!("{NOBODY}:{NOBODY}")]);
            for name in ["ws", "home", "run", "tmp", "outside"] {
                chown.arg(self.at(name));
            }
            assert!(chown.status().unwrap().success());
        }
    }

    /// A command as this case's user, in the workspace, with nothing of the machine's environment.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match is_root() && self.user == User::Ordinary {
            true => {
                let mut command = Command::new("setpriv");
                command.args([
                    &format!("--reuid={NOBODY}"),
                    &format!("--regid={NOBODY}"),
                    "--clear-groups",
                    "--inh-caps=-all",
                ]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        let bin = self.at("stubs/bin");
        command
            .current_dir(self.ws())
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            // The toolchain `python` takes programs from here: this is how stubs come onto the path of commands.
            .env("PYTHONUSERBASE", self.at("stubs"))
            .stdin(Stdio::null());
        command
    }

    /// A script of the case's author, run as the user before anything else.
    pub fn prepare(&self, script: &str) {
        if let Some(said) = self.refuses(script) {
            panic!("setup: {script}\n{said}");
        }
    }

    /// What a script says that fails, run by the same user in the workspace.
    pub fn refuses(&self, script: &str) -> Option<String> {
        let done = self
            .command(Path::new("/bin/bash"))
            .args(["-euc", &self.filled(script)])
            .envs(GIT_IDENTITY)
            .output()
            .unwrap();
        (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
    }

    /// The program under test with these arguments.
    pub fn run(&self, args: &[&str], env: &[(String, String)], stdin: Option<&str>) -> Done {
        let mut command = self.command(program());
        command
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, self.filled(value))));
        if stdin.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if let Some(text) = stdin {
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        }
        let pid = rustix::process::Pid::from_child(&child);
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watch = over.clone();
        // Some attacks would never end; a run that is killed fails its case by its code.
        std::thread::spawn(move || {
            let begun = Instant::now();
            while !watch.load(Ordering::Relaxed) {
                if begun.elapsed() > TIMEOUT {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let output = child.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        Done::of(output)
    }

    pub fn rung(&self) -> Vec<Ran> {
        self.bells.lock().unwrap().rung()
    }

    /// How many connections the listener got, and what was sent.
    pub fn heard(&self) -> (usize, String) {
        let bytes = self.heard.lock().unwrap().clone();
        (
            self.visits.load(Ordering::SeqCst),
            String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// A service of the host on a socket in the workspace, for whoever runs there, and one for datagrams on `path.dgram`;
    /// who comes is counted with the listener's visits.
    pub fn host_socket(&self, path: &str) {
        let at = self.ws().join(format!("{path}.dgram"));
        let letters = std::os::unix::net::UnixDatagram::bind(&at).unwrap();
        std::fs::set_permissions(&at, PermissionsExt::from_mode(0o777)).unwrap();
        let visits = self.visits.clone();
        std::thread::spawn(move || {
            while letters.recv(&mut [0; 16]).is_ok() {
                visits.fetch_add(1, Ordering::SeqCst);
            }
        });
        let at = self.ws().join(path);
        let server = std::os::unix::net::UnixListener::bind(&at).unwrap();
        std::fs::set_permissions(&at, PermissionsExt::from_mode(0o777)).unwrap();
        let visits = self.visits.clone();
        std::thread::spawn(move || {
            for _ in server.incoming().flatten() {
                visits.fetch_add(1, Ordering::SeqCst);
            }
        });
    }

    /// Everything outside of the workspace that nobody may change.
    pub fn outside(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for name in ["outside", "home", "in", "stubs/bin"] {
            walk(&self.at(name), name, &mut found, true, &|path| {
                // State and caches of the program itself.
                path == "home/.local" || path == "home/.cache"
            });
        }
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            found.insert(format!("({name})"), "entry".to_owned());
        }
        found
    }

    /// The workspace, with what a repository takes orders from and without git's own stores.
    pub fn tree(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        walk(&self.ws(), "", &mut found, false, &|path| {
            let git = path.split('/').position(|part| part == ".git");
            let below: Vec<&str> = path.split('/').skip(git.map_or(0, |n| n + 1)).collect();
            path == ".overnight" || git.is_some() && matches!(below.first(), Some(&("objects" | "index" | "logs")))
        });
        found
    }

    /// Every text that a run left: outputs, journal and blobs.
    pub fn texts(&self) -> String {
        let mut all = String::new();
        for dir in [self.out(), self.ws().join(".overnight")] {
            // A link in its place leads to what no run wrote.
            if !dir.is_symlink() {
                collect(&dir, &mut all);
            }
        }
        all
    }
}

fn collect(dir: &Path, all: &mut String) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let data = entry.metadata().unwrap();
        // The run's own object store holds the tree as it is.
        if data.is_dir() && path.file_name().is_some_and(|name| name != "git" && name != "store") {
            collect(&path, all);
        } else if data.is_file() {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()));
        }
    }
}

/// `strict` also sees modes, owners, times and attributes: the time of the last change of the inode is in it.
fn walk(dir: &Path, name: &str, found: &mut BTreeMap<String, String>, strict: bool, skip: &dyn Fn(&str) -> bool) {
    if name.split('/').count() > 64 {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let own = entry.file_name().to_string_lossy().into_owned();
        let path = if name.is_empty() { own } else { format!("{name}/{own}") };
        if skip(&path) {
            continue;
        }
        let Ok(data) = entry.metadata() else { continue };
        let mut what = format!("{:?} {:o}", kind(&data), data.mode() & 0o111);
        if strict {
            what = format!(
                "{what} {:o} {} {}.{}",
                data.mode(),
                data.uid(),
                data.ctime(),
                data.ctime_nsec()
            );
        }
        if data.is_file() && data.len() < 1 << 20 {
            what.push_str(&String::from_utf8_lossy(
                &std::fs::read(entry.path()).unwrap_or_default(),
            ));
        } else if data.is_symlink() {
            what.push_str(&std::fs::read_link(entry.path()).unwrap_or_default().to_string_lossy());
        }
        // A directory's own times change with its names, and those are seen.
        if data.is_dir() {
            what = format!("dir {:o}", if strict { data.mode() } else { 0 });
        }
        found.insert(path.clone(), what);
        if data.is_dir() {
            walk(&entry.path(), &path, found, strict, skip);
        }
    }
}

fn kind(data: &std::fs::Metadata) -> &'static str {
    match data.is_symlink() {
        true => "link",
        false if data.is_dir() => "dir",
        false if data.is_file() => "file",
        false => "other",
    }
}

/// Paths that differ between two looks.
pub fn differing(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}

/// A host service on the loopback that counts who comes and keeps what they send. Ends with the tests.
fn listener() -> (u16, Arc<AtomicUsize>, Arc<Mutex<Vec<u8>>>) {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let (visits, heard) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, keep) = (visits.clone(), heard.clone());
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let keep = keep.clone();
            std::thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
                let mut bytes = [0u8; 8192];
                if let Ok(got) = stream.read(&mut bytes) {
                    keep.lock().unwrap().extend_from_slice(&bytes[..got]);
                }
                let answer = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = std::io::Write::write_all(&mut stream, answer);
            });
        }
    });
    (port, visits, heard)
}

//! The hermetic ground of every test that runs the binary: its own home, an empty environment, its own tree.

use overnight::base::grant::ClosedPaths;
use overnight::diag::SourceFiles;
use overnight::policy::{self, KnownTools, PolicySource};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The binary under test.
pub const BIN: &str = env!("CARGO_BIN_EXE_overnight");

/// The top of the project.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a policy without rules closes to commands: the protected names.
pub fn closed_paths() -> Arc<dyn ClosedPaths> {
    let source = PolicySource {
        name: "p.yaml".to_owned(),
        text: "version: 1\n".to_owned(),
    };
    let loaded = policy::load(&mut SourceFiles::new(), &[source], &KnownTools::builtin());
    loaded.unwrap().0.closed()
}

/// A tree, a home and the flags of one run.
pub struct World {
    dir: TempDir,
    env: Vec<(String, String)>,
}

/// Where large files go: the directory for temporary files may be in memory, which they would fill.
const ON_DISK: &str = "/var/tmp";

impl World {
    /// An empty workspace outside of any repository.
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("overnight-it-")
            .tempdir_in(parent)
            .unwrap();
        for name in ["home", "ws"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, env: Vec::new() }
    }

    /// A workspace that is a git repository with these files committed.
    pub fn repo(files: &[(&str, &str)]) -> Self {
        Self::new().with_repo(files)
    }

    /// The same for runs that write gigabytes.
    pub fn large_repo(files: &[(&str, &str)]) -> Self {
        Self::within(Path::new(ON_DISK)).with_repo(files)
    }

    fn with_repo(self, files: &[(&str, &str)]) -> Self {
        let world = self;
        for (path, text) in files {
            world.file(path, text);
        }
        world.git(&["init", "-q", "-b", "main"]);
        world.commit("base");
        world
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn ws(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Writes a file of the workspace.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        write(&self.ws().join(path), text.as_ref());
        self
    }

    /// Writes a file beside the workspace and gives its path.
    pub fn beside(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        write(&path, text.as_ref());
        path.to_string_lossy().into_owned()
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.ws().join(path)).unwrap()
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.ws(), args)
    }

    pub fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// The binary with these arguments, in the workspace, with nothing of the machine's environment but `PATH`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BIN);
        command
            .args(args)
            .current_dir(self.ws())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path().join("home"))
            .stdin(Stdio::null());
        for name in ["CARGO_HOME", "RUSTUP_HOME"] {
            // Toolchains are the machine's; a home without them could not build.
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if std::env::var_os("RUSTUP_HOME").is_none() {
            command.env("RUSTUP_HOME", home().join(".rustup"));
        }
        if std::env::var_os("CARGO_HOME").is_none() {
            command.env("CARGO_HOME", home().join(".cargo"));
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it to its end.
    pub fn call(&self, args: &[&str]) -> Done {
        Done::of(self.command(args).output().unwrap())
    }

    /// Runs it with this on stdin.
    pub fn call_with(&self, args: &[&str], stdin: &str) -> Done {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), stdin.as_bytes()).unwrap();
        Done::of(child.wait_with_output().unwrap())
    }

    /// `overnight run` with a script, a policy and an out directory beside the workspace.
    pub fn run(&self, script: &str, policy: &str, more: &[&str]) -> Done {
        let script = format!("script:{}", self.beside("script.yaml", script));
        let policy = self.beside("policy.yaml", policy);
        let out = self.out().to_string_lossy().into_owned();
        let mut args = vec!["run", "--model", &script, "--policy", &policy, "--out", &out];
        args.extend(more);
        self.call(&args)
    }

    /// As `run`, of a recipe.
    pub fn recipe(&self, recipe: &str, script: &str, policy: &str, more: &[&str]) -> Done {
        let recipe = self.beside("recipe.yaml", recipe);
        let mut args = vec![recipe.as_str()];
        args.extend(more);
        self.run(script, policy, &args)
    }

    /// The run directory of `run`.
    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// `result.json` of `run`.
    pub fn result(&self) -> Value {
        let text = std::fs::read_to_string(self.out().join("result.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

/// A policy that lets everything in the tree be edited and these commands run, without a sandbox where none is tested.
pub fn open_policy(commands: &[&str]) -> String {
    let rule = match commands.is_empty() {
        true => String::new(),
        false => format!(
            "  - {{ allow: run_shell_command, commands: {}, args: any }}\n",
            serde_json::json!(commands)
        ),
    };
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: write_todos }}\n{rule}sandbox: {{ level: none }}\n"
    )
}

/// A script of these replies.
pub fn script(replies: &[Value]) -> String {
    serde_json::json!({ "replies": replies }).to_string()
}

/// A reply that only says something.
pub fn says(text: &str) -> Value {
    serde_json::json!({ "text": text })
}

/// A reply that asks for one call.
pub fn calls(tool: &str, args: Value) -> Value {
    serde_json::json!({ "calls": [{ "tool": tool, "args": args }] })
}

/// A reply that asks for a command.
pub fn shell(command: &str) -> Value {
    calls("run_shell_command", serde_json::json!({ "command": command }))
}

/// A reply that asks for a file to be written.
pub fn writes(path: &str, content: &str) -> Value {
    calls(
        "write_file",
        serde_json::json!({ "file_path": path, "content": content }),
    )
}

fn home() -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap())
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A fixed identity for git, and nobody's configuration.
pub const GIT_IDENTITY: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a@example.org"),
    ("GIT_COMMITTER_NAME", "a"),
    ("GIT_COMMITTER_EMAIL", "a@example.org"),
];

/// git with that identity.
pub fn git_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .envs(GIT_IDENTITY)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a pack of git that is too large for a copy to put back. It ends with its digest, as every pack does: where the times
/// of a file system do not show all writes, the digest does.
pub fn large_pack(to: &Path) {
    use sha1_checked::Digest as _;
    let mut pack = vec![0; 17 << 20];
    let sum = sha1_checked::Sha1::digest(&pack);
    pack.extend_from_slice(&sum);
    std::fs::write(to, pack).unwrap();
}

/// Names another copy of the program, where an ordinary user cannot reach the built one.
const HELPER: &str = "OVERNIGHT_TEST_HELPER";

/// The program that confines commands of these tests.
pub fn helper() -> PathBuf {
    std::env::var_os(HELPER).map_or_else(|| BIN.into(), PathBuf::from)
}

/// Copies a program that is executed soon. Another process writes it: a child that a test beside this one forks meanwhile
/// would inherit the file while it is open for writing here, and as long as that child has not executed its program, the copy
/// cannot be executed (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Runs tests of this binary again as an ordinary user: those whose names hold `filter` and none of `skip`. Root may do more, so the
/// same must hold for both; a run that is no root's has shown it already. Each caller has a user of its own, since what one user may
/// start is counted for all its processes together.
pub fn as_ordinary_user(user: u32, filter: &str, skip: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let there = Command::new("setpriv").arg("--version").output().is_ok();
    if !have("setpriv", there) {
        return;
    }
    let open =
        |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (place, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in(ON_DISK).unwrap());
    open(place.path());
    open(programs.path());
    // What was built may lie where nobody else can go, and so may the directory for temporary files of whoever runs the tests.
    let copy = |from: &Path, name: &str| {
        let to = programs.path().join(name);
        copy_program(from, &to);
        open(&to);
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let own = copy(&helper(), "overnight");
    let temporary = place.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(user), Some(user)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={user}"), &format!("--regid={user}")])
        .args(["--clear-groups", "--inh-caps=-all", "--"])
        .arg(tests)
        .args([filter, "--test-threads", "1", "--skip", "ordinary_user"])
        .args(skip.iter().flat_map(|name| ["--skip", name]))
        .env(HELPER, own)
        .env("HOME", "/nonexistent")
        .env("TMPDIR", &temporary)
        .current_dir("/");
    let mut got = command.output().unwrap();
    if !got.status.success() {
        // Known and open: on a machine with far more work than processors, the witness at `landlock` once in a while asks about what a
        // free program started, which errs on the safe side. What fails twice is another matter.
        let mut err = std::io::stderr().lock();
        let out = String::from_utf8_lossy(&got.stdout);
        let why = out.split_once("\nfailures:\n").map_or(&*out, |(_, why)| why);
        let _ = std::io::Write::write_all(&mut err, format!("tried again:\n{why}\n").as_bytes());
        got = command.output().unwrap();
    }
    let (out, err) = (
        String::from_utf8_lossy(&got.stdout),
        String::from_utf8_lossy(&got.stderr),
    );
    assert!(got.status.success(), "{out}\n{err}");
    assert!(out.contains("test result: ok.") && !out.contains(" 0 passed"), "{out}");
}

/// What `work` gives for each of these, by so many workers side by side.
pub fn at_once<T: Sync>(workers: usize, all: &[T], work: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || {
        let mut found = Vec::new();
        while let Some(one) = all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            found.extend(work(one));
        }
        found
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// What a call gave.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    pub fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self {
            code: output
                .status
                .code()
                .unwrap_or_else(|| -output.status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails the test unless the code is this one.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout, self.stderr
        );
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Whether a part of the host is there. With `OVERNIGHT_REQUIRE=all` a missing one fails the test; without, the test says
/// what it leaves out, and the last line of the run counts these lines.
pub fn have(what: &str, found: bool) -> bool {
    assert!(
        found || std::env::var_os("OVERNIGHT_REQUIRE").is_none(),
        "{what} is missing and OVERNIGHT_REQUIRE is set"
    );
    have_optional(what, found)
}

/// Like `have`, for a part that no machine must have.
pub fn have_optional(what: &str, found: bool) -> bool {
    if !found {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        // Not `eprintln!`: libtest would keep the line to itself when the test passes.
        let mut err = std::io::stderr().lock();
        let _ = std::io::Write::write_fmt(&mut err, format_args!("skipped: {test}: {what} is missing\n"));
        SKIPS.fetch_add(1, Ordering::Relaxed);
        count_at_exit();
    }
    found
}

/// Lines that `have` printed so far.
static SKIPS: AtomicUsize = AtomicUsize::new(0);

/// Prints the number of skips when the test program exits, which is after libtest's own summary.
fn count_at_exit() {
    extern "C" fn print() {
        let skips = SKIPS.load(Ordering::Relaxed);
        let mut err = std::io::stderr();
        let _ = std::io::Write::write_fmt(
            &mut err,
            format_args!(
                "skipped for want of a part of the host: {skips}; OVERNIGHT_REQUIRE=all makes each a failure\n"
            ),
        );
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    #[allow(
        unsafe_code,
        reason = "libtest has no hook after its summary; `atexit` of a function without arguments is sound"
    )]
    ONCE.call_once(|| unsafe {
        libc::atexit(print);
    });
}

/// A command of [`World::command`], started by another program with these arguments before it.
pub fn under(program: &str, first: &[&str], inner: &Command) -> Command {
    let mut outer = Command::new(program);
    outer
        .args(first)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null());
    if let Some(dir) = inner.get_current_dir() {
        outer.current_dir(dir);
    }
    outer
}

/// A command that signals end as by default: whoever started the tests may ignore some, as `nohup` does.
pub fn endable(command: &Command) -> Command {
    under("env", &["--default-signal=HUP,INT"], command)
}

/// Runs a command to its end as a user whom modes hinder: root without the right to read and write everything. `None` if
/// this machine has no `setpriv`.
pub fn hindered(command: &Command) -> Option<Done> {
    let first: &[&str] = match rustix::process::geteuid().is_root() {
        true => &["--bounding-set=-dac_override,-dac_read_search", "--"],
        false => &["--"],
    };
    let got = under("setpriv", first, command).output();
    have("setpriv", got.is_ok()).then(|| Done::of(got.unwrap()))
}

/// Waits until something holds, ten seconds at most.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("did not come true: {what}");
}

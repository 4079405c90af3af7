//! Programs judged at the moment they are executed: real commands in the real sandbox, with a judge that records.

mod cases;
mod denials;
mod failures;
mod programs;
mod starts_nothing;
mod streams;

use overnight::base::grant::{Exec, ExecAnswer, ExecDenial, ExecJudge, Starts, Writes};
use overnight::base::secret::Redactor;
use overnight::process::{
    self, Confinement, Finished, Invocation, Network, SandboxLevel, SignalScope, Spawn, SpawnError,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const CONFINED: [SandboxLevel; 2] = [SandboxLevel::Full, SandboxLevel::Landlock];

/// Programs whose children are judged like the shell's.
const WRAPPERS: [&str; 13] = [
    "bash", "dash", "env", "find", "ionice", "nice", "nohup", "setarch", "sh", "stdbuf", "timeout", "wrapper", "xargs",
];
/// Programs that may start whatever they like.
const FREE: [&str; 13] = [
    "dfork", "fexec", "gmake", "make", "nodump", "nodump-x", "orphan", "runner", "shebang", "sigexec", "spin",
    "tamper", "thr",
];

type Answer = Box<dyn Fn(&Exec) -> Option<ExecAnswer> + Send + Sync>;

/// A judge that remembers what it was asked and knows programs by their file's name.
struct Recorder {
    seen: Mutex<Vec<Exec>>,
    below: bool,
    /// Asked first.
    answer: Answer,
}

fn allow(starts: Starts) -> ExecAnswer {
    ExecAnswer::Allow {
        starts,
        writes: Vec::new(),
    }
}

fn deny(code: &str) -> ExecAnswer {
    ExecAnswer::Deny(ExecDenial {
        rule: Some("test".to_owned()),
        code: code.to_owned(),
        ruling: None,
        reason: "the test denies it".to_owned(),
        fix: "write another test".to_owned(),
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Recorder {
    fn new() -> Arc<Self> {
        Self::with(false, |_| None)
    }

    fn with(below: bool, answer: impl Fn(&Exec) -> Option<ExecAnswer> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            below,
            answer: Box::new(answer),
        })
    }

    fn seen(&self) -> Vec<Exec> {
        self.seen.lock().unwrap().clone()
    }

    fn argvs(&self) -> Vec<Vec<String>> {
        self.seen().into_iter().map(|exec| exec.argv).collect()
    }
}

impl ExecJudge for Recorder {
    fn judge(&self, exec: &Exec) -> ExecAnswer {
        self.seen.lock().unwrap().push(exec.clone());
        if let Some(answer) = (self.answer)(exec) {
            return answer;
        }
        let name = file_name(&exec.real);
        match &exec.caller {
            Starts::Nothing => deny("exec_not_granted"),
            Starts::Helpers(_) if !exec.real.to_string_lossy().contains("git") => deny("exec_not_granted"),
            _ if WRAPPERS.contains(&name.as_str()) => allow(Starts::Judged),
            _ if FREE.contains(&name.as_str()) => allow(Starts::Anything),
            _ if name == "git" => allow(Starts::Helpers("git".to_owned())),
            _ => allow(Starts::Nothing),
        }
    }

    fn asks_below_anything(&self) -> bool {
        self.below
    }
}

/// A workspace with files of unpleasant names, scripts, and the test programs in `aux`.
struct House {
    _top: TempDir,
    confinement: Confinement,
}

fn house(level: SandboxLevel) -> House {
    process::use_helper(super::harness::helper());
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for dir in ["ws/src/d", "home", "tmp"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    for name in ["x one", "x-two", "-rf", "x --output=pwn"] {
        std::fs::write(at("ws/src").join(name), "1\n").unwrap();
    }
    script(&at("ws/shebang"), "#!/bin/sh -e\n/bin/echo in-shebang \"$@\"\n");
    script(&at("ws/plain"), "/bin/echo in-plain \"$@\"\n");
    script(&at("ws/evil"), "#!/bin/sh\n/usr/bin/touch pwned\n");
    std::fs::write(at("ws/lib.sh"), "f() { /bin/echo from-lib; }\n/bin/echo sourced\n").unwrap();
    std::fs::write(
        at("ws/Makefile"),
        "all:\n\t@/bin/echo one; /bin/echo two | cat\n\t@$(shell true)\n",
    )
    .unwrap();
    let env = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
    let confinement = Confinement {
        level,
        signals: SignalScope::of_kernel(),
        workspace: at("ws").canonicalize().unwrap(),
        readable: Vec::new(),
        writable: vec![at("home"), at("tmp")],
        placed: Arc::default(),
        hidden: Vec::new(),
        masks: std::sync::Arc::default(),
        closed: std::sync::Arc::new(overnight::base::grant::NothingClosed),
        names: Arc::default(),
        memory: None,
        network: Network::None,
        witness: true,
        env: vec![
            env("PATH", Path::new("/usr/local/bin:/usr/bin:/bin")),
            env("HOME", &at("home")),
            env("TMPDIR", &at("tmp")),
            env("LC_ALL", Path::new("C")),
        ],
        spare: std::sync::Arc::default(),
        side: None,
        links: std::sync::Arc::default(),
        objects: std::sync::Arc::default(),
    };
    House { _top: top, confinement }
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

impl House {
    /// With the programs of `programs`. `None` where no compiler is.
    fn with_programs(level: SandboxLevel) -> Option<Self> {
        let house = house(level);
        let aux = house.ws().join("aux");
        std::fs::create_dir(&aux).unwrap();
        for entry in std::fs::read_dir(programs::built()?).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), aux.join(entry.file_name())).unwrap();
        }
        Some(house)
    }

    fn ws(&self) -> &Path {
        &self.confinement.workspace
    }

    fn spawn(&self, text: &str, judge: Arc<dyn ExecJudge>) -> Spawn {
        Spawn {
            program: Invocation::Shell(text.to_owned()),
            dir: self.ws().to_path_buf(),
            env: Vec::new(),
            stdin: None,
            timeout: Duration::from_secs(60),
            cancel: CancellationToken::new(),
            on_output: None,
            keep: None,
            shown: 1 << 20,
            redactor: Arc::new(Redactor::default()),
            writes: Writes::Tree,
            judge: Some(judge),
        }
    }

    async fn try_run(&self, text: &str, judge: Arc<dyn ExecJudge>) -> Result<Finished, SpawnError> {
        process::run(self.spawn(text, judge), &self.confinement).await
    }

    async fn run(&self, text: &str, judge: &Arc<Recorder>) -> Finished {
        let judge: Arc<dyn ExecJudge> = Arc::<Recorder>::clone(judge);
        self.try_run(text, judge).await.unwrap()
    }
}

#[test]
fn everything_as_an_ordinary_user() {
    super::harness::as_ordinary_user(65533, "exec_witness::", &["inner_"]);
}

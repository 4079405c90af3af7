//! Level `landlock`: signals reach only the process tree of their command. Landlock ensures that, or, before Linux
//! 6.12, this program. On a newer kernel both are tested.

use super::{House, house};
use overnight::base::grant::{Exec, ExecAnswer, ExecJudge, Starts};
use overnight::process::{self, Finished, SandboxLevel, SignalScope};
use std::process::{Child, Command};
use std::sync::Arc;

/// A judge that allows everything. With a judge this process answers the suspended calls, without one the helper
/// `init`.
struct Everything;

impl ExecJudge for Everything {
    fn judge(&self, _: &Exec) -> ExecAnswer {
        ExecAnswer::Allow {
            starts: Starts::Anything,
            writes: Vec::new(),
        }
    }

    fn asks_below_anything(&self) -> bool {
        false
    }
}

/// Runs a test for each signal scope, with and without a judge.
async fn in_each_way(try_it: impl AsyncFn(&House, bool, &str)) {
    for scope in [SignalScope::Mediated, SignalScope::Kernel] {
        for judged in [true, false] {
            let mut house = house(SandboxLevel::Landlock);
            if scope == SignalScope::Kernel && SignalScope::of_kernel() != SignalScope::Kernel {
                continue;
            }
            house.confinement.signals = scope;
            process::self_test(&house.confinement).await.unwrap();
            try_it(&house, judged, &format!("{scope:?}, judged: {judged}")).await;
        }
    }
}

impl House {
    async fn runs(&self, judged: bool, text: &str) -> Finished {
        let mut spawn = self.spawn(text);
        if judged {
            spawn.judge = Some(Arc::new(Everything));
        }
        process::run(spawn, &self.confinement).await.unwrap()
    }
}

/// A process outside the sandbox, in its own process group, in which SIGURG stays pending; and its initial state.
struct Victim(Child, Vec<String>);

impl Victim {
    fn start() -> Self {
        use std::os::unix::process::CommandExt;
        let mut sleep = Command::new("env");
        sleep.args(["--block-signal=URG", "sleep", "1000"]).process_group(0);
        let mut victim = Self(sleep.spawn().unwrap(), Vec::new());
        while !victim.status("SigBlk:").ends_with("400000") || victim.status("Name:") != "sleep" {
            std::thread::yield_now();
        }
        victim.1 = victim.settings();
        victim
    }

    fn status(&self, key: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
    }

    /// Its scheduling parameters and resource limits.
    fn settings(&self) -> Vec<String> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat.split(' ').collect();
        // Priority, nice value and policy; the fields are numbered as in proc_pid_stat(5).
        let mut all: Vec<String> = [18, 19, 41].map(|at| fields[at - 1].to_owned()).to_vec();
        all.extend([read("limits"), self.status("Cpus_allowed:"), self.status("TracerPid:")]);
        all
    }

    fn assert_untouched(&mut self, what: &str) {
        assert!(self.0.try_wait().unwrap().is_none(), "{what}: killed");
        for pending in ["ShdPnd:", "SigPnd:"] {
            assert_eq!(self.status(pending).trim_matches('0'), "", "{what}: a signal arrived");
        }
        assert_eq!(self.settings(), self.1, "{what}");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries to signal the processes in its arguments in every way, and prints what worked. It sends SIGURG to all
/// processes together, because that does no harm if it arrives.
const ATTACK: &str = r#"
import ctypes, errno, fcntl, os, platform, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
names = ['kill', 'tkill', 'tgkill', 'rt_sigqueueinfo', 'rt_tgsigqueueinfo']
numbers = dict(zip(names, [62, 200, 234, 129, 297] if platform.machine() == 'x86_64' else [129, 130, 131, 138, 240]))
OTHERS = dict(
    setpriority=(141, 140), ioprio_set=(251, 30), prlimit64=(302, 261), sched_setaffinity=(203, 122),
    sched_setscheduler=(144, 119), sched_setparam=(142, 118), sched_setattr=(314, 274), migrate_pages=(256, 238),
    move_pages=(279, 239), ptrace=(101, 117), process_vm_readv=(310, 270), process_vm_writev=(311, 271),
    kcmp=(312, 272), pidfd_getfd=(438, 438), process_madvise=(440, 440))
OTHERS = {what: both[platform.machine() != 'x86_64'] for what, both in OTHERS.items()}
info = (ctypes.c_int * 32)(0, 0, -1)
def tell(what, worked):
    if worked:
        print(what, flush=True)
def call(what, *args):
    result = libc.syscall(*args)
    tell(what, result == 0 or ctypes.get_errno() != errno.EPERM)
def attempt(what, do):
    try:
        do()
        tell(what, True)
    except OSError as error:
        tell(what, error.errno != errno.EPERM)
def owner(setting):
    ours, theirs = socket.socketpair()
    try:
        setting(ours.fileno())
    except OSError:
        pass
    fcntl.fcntl(ours, 10, signal.SIGKILL)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b'x')
for pid in map(int, sys.argv[1:]):
    for sent in (0, signal.SIGKILL):
        call(f'kill {pid}', numbers['kill'], pid, sent)
        call(f'tkill {pid}', numbers['tkill'], pid, sent)
        call(f'tgkill {pid}', numbers['tgkill'], pid, pid, sent)
        call(f'sigqueue {pid}', numbers['rt_sigqueueinfo'], pid, sent, info)
        call(f'tgsigqueue {pid}', numbers['rt_tgsigqueueinfo'], pid, pid, sent, info)
        attempt(f'pidfd {pid}', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), sent))
        attempt(f'group of {pid}', lambda: os.killpg(os.getpgid(pid), sent))
    owner(lambda fd: fcntl.fcntl(fd, fcntl.F_SETOWN, pid))
    owner(lambda fd: fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgid(pid)))
    owner(lambda fd: fcntl.fcntl(fd, 15, struct.pack('ii', 1, pid)))
    owner(lambda fd: fcntl.ioctl(fd, 0x8901, struct.pack('i', pid)))
    owner(lambda fd: fcntl.ioctl(fd, 0x8902, struct.pack('i', -os.getpgid(pid))))
    # PRIO_PROCESS, RLIMIT_NOFILE, SCHED_IDLE, the first processor, PTRACE_ATTACH, KCMP_FILES, MADV_COLD
    mask, idle, least = struct.pack('Q', 1), struct.pack('i', 0), struct.pack('QQ', 8, 8)
    attributes = struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)
    piece = struct.pack('QQ', 4096, 1)
    pidfd = os.pidfd_open(pid)
    for what, *args in [
        ('setpriority', 0, pid, 19), ('ioprio_set', 1, pid, 3 << 13),
        ('prlimit64', pid, 7, least, None), ('sched_setaffinity', pid, 8, mask),
        ('sched_setscheduler', pid, 5, idle), ('sched_setparam', pid, idle), ('sched_setattr', pid, attributes, 0),
        ('migrate_pages', pid, 0, None, None), ('move_pages', pid, 0, None, None, None, 0),
        ('ptrace', 16, pid, None, None), ('process_vm_readv', pid, piece, 1, piece, 1, 0),
        ('process_vm_writev', pid, piece, 1, piece, 1, 0), ('kcmp', pid, os.getpid(), 2, 0, 0),
        ('pidfd_getfd', pidfd, 1, 0), ('process_madvise', pidfd, piece, 1, 20, 0),
    ]:
        call(f'{what} {pid}', OTHERS[what], *args)
    for prctl in [(62, 1, pid, 0, 0), (62, 3, pid, 0, 0)]:
        attempt_result = libc.prctl(*prctl)
        tell(f'core scheduling of {pid}', attempt_result == 0)
libc.kill(-1, signal.SIGURG)
print('done')
"#;

#[tokio::test]
async fn no_signal_reaches_a_process_outside() {
    in_each_way(async |house, judged, way| {
        std::fs::write(house.confinement.workspace.join("attack.py"), ATTACK).unwrap();
        let mut victim = Victim::start();
        // In a run, this process would be killed: it is the parent of the sandbox. `init` is the parent of the shell.
        let attack = format!(
            "/usr/bin/python3 attack.py {} {} $PPID",
            victim.0.id(),
            std::process::id()
        );
        let got = house.runs(judged, &attack).await;
        assert_eq!((got.stdout.text.as_str(), got.exit.code), ("done\n", Some(0)), "{way}");
        victim.assert_untouched(way);
    })
    .await;
}

/// Common uses of signals within a command. Each line prints a line of the list below.
const HONEST: &str = r#"
exec 2> errors
set -m; sleep 60 & kill %1; wait %1; echo "job $?"; set +m
timeout 0.1 sleep 60; echo "timeout $?"
trap 'echo own' USR1; kill -USR1 $$
(setsid sh -c 'echo $$ > orphan; exec sleep 60' &)
until [ -s orphan ]; do :; done
kill $(cat orphan); while kill -0 $(cat orphan); do :; done; echo orphan
setsid -w sh -c '(sleep 60; echo missed) & kill 0; wait'; echo "group $?"
(setsid sh -c 'echo $$ > forks; while :; do sleep 0.001; done' &)
until [ -s forks ]; do :; done
kill -9 -$(cat forks); while kill -0 -$(cat forks); do :; done; echo forks
/usr/bin/python3 honest.py
(exec env --block-signal=URG sleep 60) & all=$!
until grep -q 'SigBlk:.*400000' /proc/$all/status; do :; done
kill -URG -1; grep ShdPnd /proc/$all/status | tr -d '0\t'; kill $all
"#;

const HONEST_PYTHON: &str = r#"
import ctypes, os, fcntl, signal, socket, subprocess, sys, threading
got = []
signal.signal(signal.SIGUSR2, lambda *_: got.append('raised'))
signal.raise_signal(signal.SIGUSR2)
def waits():
    got.append(signal.sigwait([signal.SIGUSR1]))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
thread = threading.Thread(target=waits)
thread.start()
signal.pthread_kill(thread.ident, signal.SIGUSR1)
thread.join()
print('thread', got == ['raised', signal.SIGUSR1])
child = os.fork()
if child == 0:
    info = signal.sigwaitinfo([signal.SIGUSR1])
    os._exit(7 if info.si_pid == os.getppid() else 8)
ctypes.CDLL(None).sigqueue(child, int(signal.SIGUSR1), None)
print('queued', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
child = subprocess.Popen(['sleep', '60'])
signal.pidfd_send_signal(os.pidfd_open(child.pid), signal.SIGTERM)
print('pidfd', child.wait())
child = subprocess.Popen(['true'], start_new_session=True)
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
os.killpg(child.pid, 0)
child = subprocess.Popen(['sh', '-c', 'sleep 60; true'], start_new_session=True)
os.killpg(child.pid, signal.SIGKILL)
print('killpg', child.wait())
try:
    os.kill(0x3ffffff0, 0)
except ProcessLookupError:
    print('none')
ours, theirs = socket.socketpair()
signal.signal(signal.SIGIO, lambda *_: print('owner'))
fcntl.fcntl(ours, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
theirs.send(b'x')
print('abort', subprocess.call([sys.executable, '-c', 'import os; os.abort()']), flush=True)
"#;

const HONEST_PRINTS: &str = "job 143\ntimeout 124\nown\norphan\ngroup 143\nforks\nthread True\nqueued 7\npidfd -15\nkillpg -9\nnone\nowner\nabort -6\nShdPnd:4\n";

#[tokio::test]
async fn signals_within_a_command_work() {
    in_each_way(async |house, judged, way| {
        std::fs::write(house.confinement.workspace.join("honest.py"), HONEST_PYTHON).unwrap();
        let got = house.runs(judged, HONEST).await;
        let errors = std::fs::read_to_string(house.confinement.workspace.join("errors")).unwrap();
        assert_eq!(got.stdout.text, HONEST_PRINTS, "{way}: {errors}");
    })
    .await;
}

//! What else a command can touch: files outside, other processes, sockets, memory.

use super::{CONFINED, entries, ground, one, place};
use overnight::base::grant::{WriteKind, Writes};
use overnight::process::{self, SandboxLevel};
use std::time::Duration;

/// Modes, owners, times and attributes of a file outside, by path and by descriptor. Each prints what it could do.
const OUTSIDE: &str = "
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
for f in (\"TOP/toolchain/tool\", \"TOP/outside/secret\", \"TOP/toolchain\", \"/proc/self/cwd/../toolchain/tool\"):
  def t(n, g):
    try:
      g(); print(\"did\", n, f)
    except OSError: pass
  t(\"chmod\", lambda: os.chmod(f, 0o777))
  t(\"utime\", lambda: os.utime(f, (1, 1)))
  t(\"setxattr\", lambda: os.setxattr(f, \"user.x\", b\"y\"))
  t(\"chown\", lambda: os.chown(f, 12, 12))
  try: fd = os.open(f, os.O_RDONLY)
  except OSError: continue
  t(\"fchmod\", lambda: os.chmod(fd, 0o777))
  t(\"futime\", lambda: os.utime(fd, (1, 1)))
  t(\"fsetxattr\", lambda: os.setxattr(fd, \"user.x\", b\"y\"))
  t(\"fchown\", lambda: os.chown(fd, 12, 12))
  t(\"link\", lambda: os.chmod(\"/proc/self/fd/%d\" % fd, 0o777))
  try: os.symlink(f, \"l\")
  except OSError: pass
  t(\"through a link\", lambda: os.chmod(\"l\", 0o777))
  t(\"below a directory\", lambda: os.chmod(\"tool\", 0o777, dir_fd=os.open(\"TOP/toolchain\", os.O_RDONLY)))
";

#[tokio::test]
async fn files_outside_keep_mode_owner_times_and_attributes() {
    for level in CONFINED {
        for writes in [Writes::Tree, Writes::Nothing, entries(&["src/new"])] {
            let ground = ground(level);
            let at = |name: &str| ground.top.path().join(name);
            let picture = || ["toolchain/tool", "outside/secret", "toolchain"].map(|name| one(&at(name)));
            let before = picture();
            let got = ground.python(OUTSIDE, &writes).await;
            assert_eq!(
                (got.stdout.text.as_str(), picture()),
                ("", before),
                "{level:?} {writes:?}"
            );
        }
    }
}

/// Package managers link the files of an environment from a store outside, which are then the same files.
#[tokio::test]
async fn a_file_with_a_hard_link_outside_is_written_in_the_workspace_only() {
    for level in CONFINED {
        let in_place = Writes::Paths {
            paths: vec![place("src/linked", WriteKind::InPlace)],
            maybe: Vec::new(),
        };
        for writes in [Writes::Tree, entries(&["src/linked"]), in_place] {
            let ground = ground(level);
            let store = ground.top.path().join("outside/secret");
            std::fs::hard_link(&store, ground.confinement.workspace.join("src/linked")).unwrap();
            let before = one(&store);
            let got = ground
                .run("cat src/linked; echo new > src/linked; chmod 600 src/linked", &writes)
                .await;
            assert_eq!(one(&store), before, "{level:?} {writes:?}");
            assert_eq!(got.stdout.text, "old\n", "{level:?} {writes:?}");
            assert_eq!(
                ground.read("ws/src/linked").as_deref(),
                Some("new\n"),
                "{level:?} {writes:?}"
            );
        }
    }
}

#[tokio::test]
async fn files_of_ones_own_can_be_changed_so() {
    let honest = "
import os, tempfile
for d in (\"src\", os.environ[\"TMPDIR\"], os.environ[\"HOME\"]):
  f = d + \"/mine\"
  open(f, \"w\").write(\"x\")
  os.chmod(f, 0o711); os.utime(f, (5, 7)); os.chown(f, os.getuid(), os.getgid())
  fd = os.open(f, os.O_RDONLY)
  os.chmod(fd, 0o755); os.utime(fd, (5, 9)); os.chown(fd, -1, -1)
  s = os.stat(f); print(oct(s.st_mode & 0o7777), s.st_mtime)
  os.symlink(\"mine\", d + \"/l\"); os.utime(d + \"/l\", (3, 4), follow_symlinks=False)
  print(os.lstat(d + \"/l\").st_mtime, os.stat(f).st_mtime)
  os.chmod(\"mine\", 0o600, dir_fd=os.open(d, os.O_RDONLY))
  try: os.setxattr(f, \"user.a\", b\"b\"); assert os.getxattr(f, \"user.a\") == b\"b\"; os.removexattr(f, \"user.a\")
  except OSError as e: assert e.errno == 95, e
  with tempfile.TemporaryFile(dir=d) as g: os.fchmod(g.fileno(), 0o600)
  for bad in (lambda: os.chmod(f, 0o4755), lambda: os.setxattr(f, \"trusted.x\", b\"\"), lambda: os.chmod(d + \"/no\", 0o600)):
    try: bad(); print(\"bad\")
    except OSError: pass
import sys; sys.stdout.flush()
os.system(\"cp -a src c2 && tar cf t.tar src && rm -r c2 && tar xpf t.tar -C \" + os.environ[\"TMPDIR\"] + \" && install -m 700 src/mine m2 && stat -c %a m2\")
";
    for level in CONFINED {
        let ground = ground(level);
        let got = ground.python(honest, &Writes::Tree).await;
        let each = "0o755 9.0\n4.0 9.0\n";
        assert_eq!(got.stdout.text, format!("{}700\n", each.repeat(3)), "{level:?}");
    }
}

/// The mode of `openat2` is in memory, where no filter can see its set-id bits.
#[tokio::test]
async fn no_call_makes_a_file_with_a_set_id_bit() {
    let text = "
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
for name, mode in ((\"src/user\", 0o4755), (\"src/group\", 0o2644)):
  how = struct.pack(\"QQQ\", os.O_CREAT | os.O_RDWR, mode, 0)
  print(libc.syscall(437, -100, name.encode(), how, 24), ctypes.get_errno())
  for call in (lambda: os.open(name, os.O_CREAT | os.O_RDWR, mode), lambda: os.mknod(name, 0o100000 | mode)):
    try: call(); print(\"made\")
    except OSError as e: print(e.errno)
  try: os.open(\"src\", os.O_TMPFILE | os.O_RDWR, mode); print(\"made\")
  except OSError as e: print(e.errno)
";
    for level in CONFINED {
        let ground = ground(level);
        let before = ground.picture();
        let got = ground.python(text, &Writes::Tree).await;
        assert_eq!(got.stdout.text, "-1 38\n1\n1\n1\n".repeat(2), "{level:?}");
        assert_eq!(ground.picture(), before, "{level:?}");
    }
}

/// An access control list would open the workspace to other users after the command.
#[tokio::test]
async fn access_control_lists_are_neither_set_nor_removed() {
    let text = "
import os, struct
entry = lambda tag, rights, who=0xffffffff: struct.pack(\"<HHI\", tag, rights, who)
acl = struct.pack(\"<I\", 2) + entry(1, 7) + entry(2, 7, 65534) + entry(4, 7) + entry(16, 7) + entry(32, 7)
for path in (\"src\", \".\"):
  fd = os.open(path, os.O_RDONLY)
  for name in (\"system.posix_acl_default\", \"system.posix_acl_access\"):
    by_path, by_handle = lambda: os.setxattr(path, name, acl), lambda: os.setxattr(fd, name, acl)
    for call in (by_path, by_handle, lambda: os.removexattr(path, name)):
      try: call(); print(\"done\")
      except OSError as e: print(e.errno)
import sys; sys.stdout.flush()
os.system(\"cp -a src copy && cp -p src/a.txt b && mkdir -m 700 d && install -m 600 src/a.txt c && echo copied\")
";
    for level in CONFINED {
        let ground = ground(level);
        let got = ground.python(text, &Writes::Tree).await;
        assert_eq!(got.stdout.text, format!("{}copied\n", "95\n".repeat(12)), "{level:?}");
        let handle = std::fs::File::open(&ground.confinement.workspace).unwrap();
        let mut names = Vec::with_capacity(256);
        // A file system without attributes has no list either.
        let _ = rustix::fs::flistxattr(&handle, rustix::buffer::spare_capacity(&mut names));
        let names = String::from_utf8_lossy(&names).into_owned();
        assert!(!names.contains("posix_acl"), "{level:?}: {names}");
    }
}

#[tokio::test]
async fn other_processes_and_the_machine_are_left_alone() {
    let ground = ground(SandboxLevel::Landlock);
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let text = "
import resource, os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
try:
  resource.prlimit(PID, resource.RLIMIT_NOFILE, (9, 9)); print(\"did prlimit\")
except OSError: pass
try:
  resource.prlimit(PID, resource.RLIMIT_NOFILE); print(\"did read a limit\")
except OSError: pass
if libc.shmget(0, 4096, 0o1600) >= 0: print(\"did shmget\")
if libc.semget(0, 1, 0o1600) >= 0: print(\"did semget\")
if libc.msgget(0, 0o1600) >= 0: print(\"did msgget\")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(resource.getrlimit(resource.RLIMIT_NOFILE))
";
    let got = ground
        .python(&text.replace("PID", &std::process::id().to_string()), &Writes::Tree)
        .await;
    assert_eq!(got.stdout.text, "(64, 64)\n");
    assert_eq!(rustix::process::getrlimit(rustix::process::Resource::Nofile), before);
}

#[tokio::test]
async fn sockets_of_the_machine_in_the_workspace_are_out_of_reach() {
    for level in CONFINED {
        let ground = ground(level);
        let path = ground.confinement.workspace.join("src/live.sock");
        let server = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let datagrams = std::os::unix::net::UnixDatagram::bind(ground.confinement.workspace.join("log.sock")).unwrap();
        server.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        drop(std::os::unix::net::UnixListener::bind(ground.confinement.workspace.join("stale.sock")).unwrap());
        let attack = "
import socket, os
for kind, name in ((1, \"src/live.sock\"), (1, \"TOP/ws/src/../src/live.sock\"), (2, \"log.sock\"), (5, \"src/live.sock\")):
  try:
    s = socket.socket(socket.AF_UNIX, kind); s.connect(name); s.send(b\"x\"); print(\"did\", name)
  except OSError: pass
  try:
    os.rename(name, \"moved\"); s = socket.socket(socket.AF_UNIX, kind); s.connect(\"moved\"); print(\"did move\", name)
  except OSError: pass
a, b = socket.socketpair(); a.send(b\"pair\"); print(b.recv(9).decode())
";
        for writes in [Writes::Tree, Writes::Nothing, entries(&["src/new", "moved"])] {
            let got = ground.python(attack, &writes).await;
            assert_eq!(got.stdout.text, "pair\n", "{level:?} {writes:?}");
            assert!(
                server.accept().is_err() && datagrams.recv(&mut [0; 8]).is_err(),
                "{level:?} {writes:?}"
            );
        }
        if level == SandboxLevel::Full {
            let own = "
import socket, os
for name in (os.environ[\"TMPDIR\"] + \"/own\", \"own.sock\", \"stale.sock\"):
  if os.path.exists(name): os.unlink(name)
  s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(name)
  c.send(b\"mine\"); print(s.accept()[0].recv(9).decode())
";
            let got = ground.python(own, &Writes::Tree).await;
            assert_eq!(got.stdout.text, "mine\nmine\nmine\n");
        }
    }
}

#[tokio::test]
async fn a_tree_that_takes_too_much_memory_is_ended_and_told() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
        let mut ground = ground(level);
        ground.confinement.memory = Some(300 << 20);
        let bomb = "
import os, time
for n in range(4):
  if os.fork() == 0:
    b = [bytearray(16 << 20) for _ in range(64)]; time.sleep(20)
time.sleep(20)
";
        let got = ground.python(bomb, &Writes::Nothing).await;
        assert_eq!(got.exit.memory_limit, Some(300 << 20), "{level:?}: {got:?}");
        assert!(got.took < Duration::from_secs(15), "{level:?}: {:?}", got.took);
        // Pages that children share with their parent count once, and address space does not count.
        let honest = "
import os, time, mmap
b = bytearray(100 << 20)
m = mmap.mmap(-1, 40 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
for n in range(6):
  if os.fork() == 0:
    time.sleep(0.4); os._exit(0)
time.sleep(0.5); print(\"done\")
";
        let got = ground.python(honest, &Writes::Nothing).await;
        assert_eq!(
            (got.stdout.text.as_str(), got.exit.memory_limit),
            ("done\n", None),
            "{level:?}"
        );
    }
}

#[test]
fn what_lies_in_the_workspace_is_within_reach_at_landlock_only() {
    let mut ground = ground(SandboxLevel::Landlock);
    let (inside, outside) = (
        ground.confinement.workspace.join(".overnight/runs/1"),
        ground.top.path().join("outside"),
    );
    ground.confinement.hidden = vec![inside.clone(), outside];
    assert_eq!(process::within_reach(&ground.confinement), [inside]);
    ground.confinement.level = SandboxLevel::Full;
    assert!(process::within_reach(&ground.confinement).is_empty());
}

#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    super::super::harness::as_ordinary_user(65531, "write_guard::", &[]);
}

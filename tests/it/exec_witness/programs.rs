//! Small programs in C that execute in every way there is. Made at test time; with `OVERNIGHT_REQUIRE` a missing compiler fails.

use super::super::harness::have;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCES: &[(&str, &str)] = &[
    // A program that runs a shell of its own, as cargo does.
    (
        "runner",
        "#include <stdlib.h>\nint main(int c,char**v){ return c>1&&system(v[1])?1:0; }",
    ),
    // Double-forks; the grandchild is an orphan when it executes argv[1..].
    (
        "dfork",
        "#include <unistd.h>\n#include <sys/wait.h>\nint main(int c,char**v){ if(fork()==0){ setsid(); if(fork()==0){ usleep(80000); execvp(v[1],v+1); _exit(9);} _exit(0);} int s; wait(&s); usleep(200000); return 0; }",
    ),
    // Ends soon; its fork executes argv[1..] as an orphan.
    (
        "orphan",
        "#include <unistd.h>\nint main(int c,char**v){ if(fork()==0){ usleep(150000); execvp(v[1],v+1); _exit(9);} usleep(100000); return 0; }",
    ),
    (
        "fexec",
        "#define _GNU_SOURCE\n#include <unistd.h>\n#include <fcntl.h>\n#include <sys/syscall.h>\nextern char**environ;\nint main(int c,char**v){ int fd=open(v[1],O_RDONLY|O_CLOEXEC); syscall(SYS_execveat,fd,\"\",v+1,environ,0x1000); return 9; }",
    ),
    (
        "nodump",
        "#include <sys/prctl.h>\n#include <unistd.h>\nint main(int c,char**v){ prctl(PR_SET_DUMPABLE,0); execv(v[1],v+1); return 9; }",
    ),
    (
        // A handler runs while the exec waits; the signal means nothing to the program that follows.
        "sigexec",
        "#include <signal.h>\n#include <unistd.h>\nstatic void h(int s){ if(write(1,\"handler\\n\",8)){} }\nint main(int c,char**v){ struct sigaction a={0}; a.sa_handler=h; sigaction(SIGURG,&a,0); int p=getpid(); if(fork()==0){ for(int i=0;i<4;i++){ usleep(40000); kill(p,SIGURG); } _exit(0); } execv(v[1],v+1); if(write(1,\"exec failed\\n\",12)){} return 9; }",
    ),
    (
        "spin",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <spawn.h>\n#include <sys/wait.h>\nextern char**environ;\nint main(int c,char**v){ int n=atoi(v[1]); for(int i=0;i<n;i++){ pid_t p; int s; if(posix_spawn(&p,v[2],0,0,v+2,environ)) return 1; waitpid(p,&s,0); if(s) return 2; } return 0; }",
    ),
    (
        "thr",
        "#include <pthread.h>\n#include <unistd.h>\n#include <spawn.h>\n#include <sys/wait.h>\nextern char**environ;\nstatic char**w;\nstatic void*t(void*x){ pid_t p; posix_spawn(&p,w[1],0,0,w+1,environ); int s; waitpid(p,&s,0); execv(w[1],w+1); return 0; }\nint main(int c,char**v){ w=v; pthread_t p; pthread_create(&p,0,t,0); pthread_join(p,0); return 9; }",
    ),
    // Executes argv[2..] with its words in shared memory (argv[1] is s) or in its own (p).
    (
        "wrapper",
        "#define _GNU_SOURCE\n#include <string.h>\n#include <unistd.h>\n#include <sys/mman.h>\nextern char**environ;\nint main(int c,char**v){ char*m=mmap(0,4096,PROT_READ|PROT_WRITE,(v[1][0]=='s'?MAP_SHARED:MAP_PRIVATE)|MAP_ANONYMOUS,-1,0); char*at=m; char*w[16]={0}; for(int i=2;i<c&&i<16;i++){ strcpy(at,v[i]); w[i-2]=at; at+=strlen(at)+1; } execve(v[2],w,environ); return 9; }",
    ),
    // Waits for a shell that has `old` in its heap and overwrites it, in three ways.
    (
        "tamper",
        r#"#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>
#include <fcntl.h>
#include <dirent.h>
#include <sys/uio.h>
#include <sys/ptrace.h>
int main(int c,char**v){ int parent=getppid(), how=atoi(v[1]); char q[64]; sprintf(q,"/proc/%d/mem",parent); char one='x'; struct iovec L={&one,1},R={v[0],1};
 long w; if(how==0) w=process_vm_writev(parent,&L,1,&R,1,0); else if(how==1){ int m=open(q,O_RDWR); w=m<0?-1:pwrite(m,&one,1,(off_t)v[0]); } else w=ptrace(PTRACE_ATTACH,parent,0,0);
 printf("tamper %s\n",w<0?strerror(errno):"worked"); return 0; }"#,
    ),
];

/// The directory with the programs. `None` where no compiler is and none is required. They are kept beside what else was built for the
/// tests, under a name that says what they were made of, so that no run of the tests leaves a directory of its own.
pub fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let dir = BUILT.get_or_init(|| {
        if !have("a C compiler", Command::new("cc").arg("--version").output().is_ok()) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        SOURCES.hash(&mut hasher);
        let name = format!("exec-programs-{:016x}", hasher.finish());
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = kept.join(&name);
        if dir.join("rg").exists() {
            return Some(dir);
        }
        // Another user than the one who built the tests has a directory for temporary files that is removed.
        let made = tempfile::tempdir_in(kept);
        let (made, dir) = match made {
            Ok(made) => (made, dir),
            Err(_) => (tempfile::tempdir().unwrap(), std::env::temp_dir().join(&name)),
        };
        build(made.path());
        // It fails where another run of the tests was first.
        let moved = std::fs::rename(made.path(), &dir);
        assert!(moved.is_ok() || dir.join("rg").exists(), "{moved:?}");
        Some(dir)
    });
    dir.as_deref()
}

fn build(dir: &Path) {
    let sources = tempfile::tempdir().unwrap();
    for (name, text) in SOURCES {
        let source = sources.path().join(format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let got = Command::new("cc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(dir.join(name))
            .arg(&source)
            .output()
            .unwrap();
        assert!(got.status.success(), "{name}: {}", String::from_utf8_lossy(&got.stderr));
    }
    let open =
        |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (name, of) in [("nodump-x", "runner"), ("rg", "runner")] {
        std::fs::copy(dir.join(of), dir.join(name)).unwrap();
        open(&dir.join(name));
    }
    open(dir);
}

//! Which programs ran, as they tell it themselves: a stub opens files of a directory that is watched here, one for each byte of its
//! name, directory and arguments (`fixtures/attacks/stub.c`). That works from inside every sandbox that can read the stub.

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a stub does beside telling that it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// What hostile arguments want: it starts programs and writes files that they name.
    Evil,
    /// It reads its operands and writes the operand of `-o`.
    Opens,
}

/// One start of a stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub program: String,
    pub cwd: String,
    pub args: Vec<String>,
    /// Not so for one that was killed while it told.
    pub whole: bool,
}

/// The stub of a kind, built once for a run of the tests.
fn built(kind: Kind) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
    BUILT[kind as usize].get_or_init(|| {
        let source = super::super::harness::project().join("fixtures/attacks/stub.c");
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stub-{kind:?}-{}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-o"]).arg(&to).arg(source);
        match kind {
            Kind::Plain => {}
            Kind::Evil => _ = cc.arg("-DEVIL"),
            Kind::Opens => _ = cc.arg("-DOPENS"),
        }
        assert!(cc.status().unwrap().success(), "the stub does not build");
        to
    })
}

/// A directory of stubs and the watch on what they tell.
pub struct Bells {
    dir: PathBuf,
    watch: OwnedFd,
    half: Vec<u8>,
    open: bool,
}

impl Bells {
    /// `dir` is made; `dir/bin` is for `PATH`, `dir` must be readable where the stubs run.
    pub fn hang(dir: &Path) -> Self {
        let told = dir.join("lib/told");
        std::fs::create_dir_all(&told).unwrap();
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        std::fs::write(dir.join("lib/lock"), "").unwrap();
        // Links to one file would share its name in the watch only by the name that is opened, so they may be links.
        let first = told.join("start");
        std::fs::write(&first, "").unwrap();
        std::fs::hard_link(&first, told.join("end")).unwrap();
        for byte in 0..=255u8 {
            for turn in ["a", "b"] {
                std::fs::hard_link(&first, told.join(format!("{turn}{byte:02x}"))).unwrap();
            }
        }
        let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&watch, &told, WatchFlags::OPEN | WatchFlags::ONLYDIR).unwrap();
        Self {
            dir: dir.to_path_buf(),
            watch,
            half: Vec::new(),
            open: false,
        }
    }

    pub fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// Puts stubs of these names on the path.
    pub fn stub<'a>(&self, kind: Kind, names: impl IntoIterator<Item = &'a str>) {
        let original = self.dir.join("lib").join(format!("{kind:?}"));
        if !original.exists() {
            std::fs::copy(built(kind), &original).unwrap();
        }
        for name in names {
            let to = self.bin().join(name);
            let _ = std::fs::remove_file(&to);
            std::fs::hard_link(&original, to).unwrap();
        }
    }

    /// What ran since the last call.
    pub fn rung(&mut self) -> Vec<Ran> {
        let mut buffer = vec![MaybeUninit::uninit(); 1 << 16];
        let mut reader = Reader::new(&self.watch, &mut buffer);
        let mut ran = Vec::new();
        while let Ok(event) = reader.next() {
            let flags = event.events();
            assert!(
                !flags.contains(rustix::fs::inotify::ReadFlags::QUEUE_OVERFLOW),
                "more was told than the kernel keeps"
            );
            let name = event
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            match name.as_str() {
                "start" => {
                    self.half.clear();
                    self.open = true;
                }
                "end" if self.open => {
                    self.open = false;
                    ran.push(record(&self.half, true));
                }
                byte if self.open => self
                    .half
                    .extend(byte.get(1..).and_then(|hex| u8::from_str_radix(hex, 16).ok())),
                _ => {}
            }
        }
        if self.open {
            // A stub that was killed while it told: that it ran is enough.
            self.open = false;
            ran.push(record(&self.half, false));
        }
        ran
    }
}

fn record(bytes: &[u8], whole: bool) -> Ran {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split_terminator('\0').map(str::to_owned);
    Ran {
        program: parts.next().unwrap_or_default(),
        cwd: parts.next().unwrap_or_default(),
        args: parts.collect(),
        whole,
    }
}

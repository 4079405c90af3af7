//! Tables of helper programs that other programs start: git's commands, tar's compressors, a compiler's passes.

use std::path::Path;

/// The helpers of one program, by file name.
pub struct Helpers {
    pub name: &'static str,
    /// File names of programs in the system's directories.
    pub programs: &'static [&'static str],
    /// Whether every program in git's exec path counts.
    pub git: bool,
    /// Whether they count in any directory, not only in those of the system.
    pub any_dir: bool,
    /// Whether the arguments with which they are started are judged.
    pub judged: bool,
}

const ALL: &[Helpers] = &[
    Helpers {
        name: "git",
        // Some of git's commands are scripts.
        programs: &[
            "git", "basename", "dirname", "sed", "uname", "expr", "cat", "tr", "printf", "gettext", "envsubst",
        ],
        git: true,
        any_dir: false,
        // Git starts its own commands with internal options: these come from git, not from the words of a command.
        judged: false,
    },
    Helpers {
        name: "tar",
        programs: &[
            "sh",
            "gzip",
            "gunzip",
            "bzip2",
            "bunzip2",
            "xz",
            "unxz",
            "zstd",
            "unzstd",
            "lz4",
            "lzip",
            "lzma",
            "lzop",
            "compress",
            "uncompress",
            "rm",
        ],
        git: false,
        any_dir: false,
        judged: true,
    },
    Helpers {
        name: "cc",
        programs: &[
            "cc",
            "gcc",
            "g++",
            "c++",
            "clang",
            "clang++",
            "cc1",
            "cc1plus",
            "cc1obj",
            "f951",
            "as",
            "ar",
            "ld",
            "ld.bfd",
            "ld.gold",
            "ld.lld",
            "lld",
            "rust-lld",
            "mold",
            "collect2",
            "lto1",
            "lto-wrapper",
            "ranlib",
            "strip",
            "dsymutil",
            "objcopy",
        ],
        git: false,
        any_dir: true,
        judged: false,
    },
    // `zcat`, `zgrep`, `egrep`, `which` and similar programs are shell scripts.
    Helpers {
        name: "scripts",
        programs: &[
            "sh", "bash", "dash", "env", "cat", "rm", "mktemp", "expr", "basename", "dirname", "printf", "test", "sed",
            "grep", "cmp", "diff", "gzip", "bzip2", "xz", "zstd", "locale", "head", "tail", "cut", "tr", "uname",
            "readlink", "less",
        ],
        git: false,
        any_dir: false,
        judged: false,
    },
    Helpers {
        name: "man",
        programs: &[
            "man", "sh", "preconv", "tbl", "eqn", "neqn", "pic", "refer", "nroff", "groff", "troff", "grotty",
            "locale", "iconv", "gzip", "bzip2", "xz", "zstd", "col", "manconv", "lexgrog", "zsoelim", "cat",
        ],
        git: false,
        any_dir: false,
        judged: false,
    },
    // One of the two programs called `yq` is a front end of jq.
    Helpers {
        name: "yq",
        programs: &["jq"],
        git: false,
        any_dir: false,
        judged: true,
    },
];

/// The names of all lists.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|helpers| helpers.name)
}

/// The list of this name.
pub fn of(name: &str) -> Option<&'static Helpers> {
    ALL.iter().find(|helpers| helpers.name == name)
}

impl Helpers {
    /// Whether a file (its path with links followed) is one of the helpers. Only files in system directories count,
    /// except parts of compilers, which are in toolchain directories.
    pub fn include(&self, real: &Path) -> bool {
        let name = last(real);
        let own = is_of_system(real);
        let git_core = |dir: &Path| dir.file_name().is_some_and(|name| name == "git-core");
        let in_git = self.git && real.parent().is_some_and(git_core);
        let listed = self.programs.contains(&name)
            // `x86_64-linux-gnu-gcc-12`, `python3.11`: a target prefix, a version suffix.
            || self.programs.iter().any(|program| has_affixes(name, program));
        in_git && own || listed && (own || self.any_dir)
    }

    /// Whether a file is the system's `sh`, called by this name, and that is one of the helpers. It is a link to another
    /// shell on most systems. Started by a helper's program it only starts further helpers.
    pub fn include_shell(&self, path: &Path, real: &Path) -> bool {
        let is_sh = last(path) == "sh" && is_of_system(path) && is_of_system(real) && SHELLS.contains(&last(real));
        is_sh && self.programs.contains(&"sh")
    }
}

/// The shells that `sh` is on the systems in use.
const SHELLS: &[&str] = &["sh", "dash", "bash", "busybox"];

fn last(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Whether a file is in a directory of the system.
fn is_of_system(path: &Path) -> bool {
    let system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/gnu"];
    system.iter().any(|dir| path.starts_with(dir))
}

/// Whether `name` is `program` with a target triple before it or a version after it.
fn has_affixes(name: &str, program: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let bare = if bare.len() < name.len() {
        bare.trim_end_matches('-')
    } else {
        bare
    };
    bare == program
        || bare
            .strip_suffix(program)
            .and_then(|before| before.strip_suffix('-'))
            .is_some_and(|target| target.matches('-').count() >= 2 && !target.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::of;
    use std::path::Path;

    #[test]
    fn only_the_machines_own_programs_are_helpers() {
        let git = of("git").unwrap();
        assert!(git.include(Path::new("/usr/lib/git-core/git-remote-https")));
        assert!(git.include(Path::new("/usr/bin/git")));
        assert!(!git.include(Path::new("/ws/git-core/git-evil")));
        assert!(!git.include(Path::new("/usr/bin/less")));
        let cc = of("cc").unwrap();
        assert!(cc.include(Path::new("/usr/bin/x86_64-linux-gnu-gcc-12")));
        assert!(cc.include(Path::new("/usr/lib/gcc/x86_64-linux-gnu/12/cc1")));
        assert!(!cc.include(Path::new("/usr/bin/sh")));
        let yq = of("yq").unwrap();
        assert!(yq.include(Path::new("/usr/bin/jq")) && !yq.include(Path::new("/usr/bin/python3")));
        assert!(!of("tar").unwrap().include(Path::new("/tmp/gzip")));
    }
}

//! The names of variables: which are harmless, which no policy can grant, and which stay inside the shell.

/// Variables that change how a program presents its output, not what it does.
const HARMLESS: [&str; 24] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "LINES",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
    "CARGO_TERM_PROGRESS_WHEN",
    "CARGO_INCREMENTAL",
    "NODE_ENV",
    "DEBUG",
    "VERBOSE",
    "SOURCE_DATE_EPOCH",
    "RUST_TEST_THREADS",
    "INSTA_UPDATE",
    "PROPTEST_CASES",
];

/// Variables that no policy can grant: they select programs, libraries or startup files.
const NEVER: [&str; 40] = [
    "PATH",
    "IFS",
    "HOME",
    "ENV",
    "BASH_ENV",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "GLOBIGNORE",
    "TMPDIR",
    "NODE_OPTIONS",
    "NODE_PATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "CC",
    "CXX",
    "LD",
    "AR",
    "CFLAGS",
    "LDFLAGS",
    "GOFLAGS",
    "GOROOT",
    "MAKEFLAGS",
    "MAKEFILES",
    "GREP_OPTIONS",
    "LESSOPEN",
    "LESS",
    "TAR_OPTIONS",
    "CARGO",
    "RUSTUP_TOOLCHAIN",
];
const NEVER_HEADS: [&str; 17] = [
    "LD_",
    "DYLD_",
    "GIT_",
    "PYTHON",
    "PERL",
    "RUBY",
    "XDG_",
    "BASH_FUNC_",
    "SSH_",
    "CARGO_TARGET_",
    "CARGO_BUILD_",
    "CARGO_HOME",
    "NPM_CONFIG_",
    "npm_config_",
    "PIP_",
    "UV_",
    "CARGO_ALIAS_",
];
const NEVER_TAILS: [&str; 11] = [
    "PAGER", "EDITOR", "_WRAPPER", "VISUAL", "BROWSER", "_proxy", "_PROXY", "_COMMAND", "_OPTS", "_OPTIONS", "_PATH",
];

/// Whether no policy can let a command set this variable.
pub fn is_never(name: &str) -> bool {
    NEVER.contains(&name)
        || NEVER_HEADS.iter().any(|head| name.starts_with(head))
        || NEVER_TAILS.iter().any(|tail| name.ends_with(tail))
}

/// Whether a command may get this variable without a grant.
pub fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || name.starts_with("LC_")
}

/// Whether a shell variable of this name may be set on its own: only lower case, so that no program reads it.
pub fn may_be_set(name: &str) -> bool {
    let lower = name.starts_with(|first: char| first == '_' || first.is_ascii_lowercase())
        && name
            .chars()
            .all(|next| next == '_' || next.is_ascii_lowercase() || next.is_ascii_digit());
    lower && !is_never(name) && name != "_" && name != "histchars" && name != "auto_resume"
}

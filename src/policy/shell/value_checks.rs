//! Decides which values are harmless, for the value classes that are judged by their text alone.

use super::ShellWord;
use crate::policy::profiles::ValueClass;

/// Whether a known word is a harmless value of its class.
pub fn is_plain(class: ValueClass, word: &ShellWord) -> bool {
    let Some(text) = word.exact() else {
        return false;
    };
    match class {
        ValueClass::Listing => text.starts_with('t') && text.chars().all(|next| "tvzjJf".contains(next)),
        ValueClass::Format => text.starts_with('+'),
        ValueClass::Target => text.split_once('=').is_none_or(|(name, value)| is_setting(name, value)),
        ValueClass::Label => text
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || "-_".contains(next)),
        // A `Host:` header could select another host than the one that was judged.
        ValueClass::Header => !text.starts_with('@') && !text.trim_start().to_ascii_lowercase().starts_with("host"),
        ValueClass::Show => !text.contains("%G"),
        ValueClass::Mode => is_mode(text),
        ValueClass::Behind => {
            let jobs = text.strip_prefix("-j").unwrap_or(text);
            BEHIND.contains(&text) || jobs.bytes().all(|byte| byte.is_ascii_digit())
        }
        ValueClass::Setting => {
            let name = text.to_ascii_lowercase();
            !["header", "credential", "pass", "token", "cookie", "_auth", "secret"]
                .iter()
                .any(|word| name.contains(word))
        }
        ValueClass::DisplaySetting => is_display_setting(text),
        ValueClass::Stdout => matches!(text, "-" | "/dev/null"),
        ValueClass::Remote => !text.contains(':') && !text.contains('@'),
        ValueClass::Refspec => !text.contains("::") && !text.contains("://") && !text.contains('@'),
        ValueClass::Harness => !text.starts_with("--log"),
        ValueClass::Lint => is_lint(text),
        ValueClass::Module => is_module(text),
        ValueClass::Package => is_package(text),
        ValueClass::Slug => text.matches('/').count() < 2 && !text.contains(':'),
        ValueClass::Goal => is_goal(text),
        ValueClass::Off => text.starts_with("no:"),
        ValueClass::CompilerFlag => is_compiler_flag(text),
        ValueClass::Writeout => !text.starts_with('@') && !text.contains("%output"),
        _ => false,
    }
}

/// Words after `--` that build tools and formatters accept and that change no file.
const BEHIND: [&str; 12] = [
    "-k",
    "-s",
    "-l",
    "-v",
    "-q",
    "--check",
    "--verbose",
    "--quiet",
    "--edition",
    "--files-with-diff",
    "V=1",
    "VERBOSE=1",
];

/// A file mode without set-user-ID, set-group-ID and sticky bits.
fn is_mode(text: &str) -> bool {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.len() <= 3 || text.len() == 4 && text.starts_with('0');
    }
    !text.contains(['s', 't'])
}

/// A setting of git that changes only what it shows. A pager other than `cat`, which git does not start, is a program.
fn is_display_setting(text: &str) -> bool {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let name = name.to_ascii_lowercase();
    let is_switch = matches!(value, "true" | "false" | "on" | "off" | "yes" | "no" | "0" | "1");
    match name.as_str() {
        "core.pager" => value == "cat",
        "core.quotepath" => is_switch,
        _ if name.starts_with("color.") => value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-# ".contains(&byte)),
        _ if name.starts_with("pager.") => matches!(value, "false" | "off" | "no" | "0"),
        _ => name.starts_with("advice.") && is_switch,
    }
}

/// A make variable that names no program: a switch, or a well-known compiler.
fn is_setting(name: &str, value: &str) -> bool {
    const VALUES: [&str; 14] = [
        "on", "off", "yes", "no", "true", "false", "ON", "OFF", "debug", "release", "Debug", "Release", "ci", "test",
    ];
    const COMPILERS: [&str; 6] = ["cc", "gcc", "clang", "c++", "g++", "clang++"];
    let upper = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_uppercase())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if matches!(name, "CC" | "CXX") {
        let (base, version) = value.rsplit_once('-').unwrap_or((value, "0"));
        return COMPILERS.contains(&base) && digits(version);
    }
    let chooses = super::variables::is_never(name)
        || name.starts_with("MAKE")
        || name.ends_with("SHELL")
        || name.ends_with("FLAGS");
    upper(name) && !chooses && (digits(value) || VALUES.contains(&value))
}

/// `-D`, `warnings`, `-Aclippy::all`: lint levels and names.
pub(super) fn is_lint(text: &str) -> bool {
    const LEVELS: [&str; 5] = ["--deny", "--warn", "--allow", "--forbid", "--cap-lints"];
    let name = |text: &str| {
        !text.starts_with('-')
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
    };
    match text.split_once('=') {
        Some((level, value)) => LEVELS.contains(&level) && name(value),
        None => {
            let short = text
                .strip_prefix('-')
                .and_then(|rest| rest.strip_prefix(['D', 'W', 'A', 'F']));
            LEVELS.contains(&text) || short.is_some_and(name) || name(text)
        }
    }
}

/// `all`, `no-unused`, `c++20`: no path, nothing passed to another tool (`-Wl,…`), no plugin and no report.
fn is_compiler_flag(text: &str) -> bool {
    const FILES: [&str; 9] = [
        "plugin",
        "dump",
        "profile",
        "save",
        "callgraph",
        "test-coverage",
        "auto-profile",
        "opt-info",
        "file",
    ];
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_+=.".contains(&byte))
        && !FILES.iter().any(|start| text.starts_with(start))
        && !text.contains("..")
}

/// A Go package that is available locally: a path of this repository, a file, or a package of the standard library.
fn is_module(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    !text.contains('@')
        && (text.starts_with('.') || text.starts_with('/') || text.ends_with(".go") || !first.contains('.'))
}

/// A name in a package registry, or this repository itself.
fn is_package(text: &str) -> bool {
    const ARCHIVES: [&str; 5] = [".whl", ".tgz", ".gz", ".zip", ".bz2"];
    let own = text == "." || text.starts_with(".[");
    own || !text.contains(':')
        && !text.starts_with("git+")
        && !text.starts_with(['.', '/', '~'])
        && !ARCHIVES.iter().any(|end| text.ends_with(end))
}

/// Maven phases, and goals of plugins that check, format or show. A goal given by full coordinates could fetch any
/// plugin.
fn is_goal(text: &str) -> bool {
    const GOALS: [&str; 30] = [
        "antlr4",
        "checkstyle",
        "clover",
        "compiler",
        "dependency",
        "enforcer",
        "failsafe",
        "flyway",
        "fmt",
        "formatter",
        "help",
        "jacoco",
        "javadoc",
        "license",
        "pmd",
        "quarkus",
        "resources",
        "rewrite",
        "site",
        "sortpom",
        "source",
        "spotbugs",
        "spotless",
        "spring-boot",
        "surefire",
        "surefire-report",
        "toolchains",
        "jar",
        "war",
        "clean",
    ];
    match text.split_once(':') {
        Some((plugin, goal)) => GOALS.contains(&plugin) && !goal.contains(':') && goal != "get",
        None => !text.ends_with("deploy"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShellWord;
    use super::{ValueClass, is_plain};

    #[test]
    fn each_class_takes_its_own_and_no_more() {
        let cases: [(ValueClass, &[&str], &[&str]); 9] = [
            (
                ValueClass::Lint,
                &[
                    "-D",
                    "warnings",
                    "-Aclippy::all",
                    "clippy::too_many_lines",
                    "--deny",
                    "--warn=x",
                ],
                &["-C", "linker=./x", "-Clinker=./x", "--cfg", "--emit=x", "../x"],
            ),
            (
                ValueClass::Module,
                &[".", "./cmd/app", "main.go", "./..."],
                &["evil.example/x", "github.com/x/y@latest", "./x@v1"],
            ),
            (
                ValueClass::Package,
                &["requests", "lodash@4", "@scope/name", ".", ".[test]", "a==1.0"],
                &[
                    "git+https://x/y",
                    "https://x/y.whl",
                    "./x.whl",
                    "../x",
                    "file:x",
                    "x.tgz",
                ],
            ),
            (
                ValueClass::Slug,
                &["owner/name", "12", "main"],
                &["host/owner/name", "a:b"],
            ),
            (
                ValueClass::Goal,
                &["verify", "spotless:check", "dependency:tree"],
                &["deploy", "exec:exec", "org.x:y:1:z", "archetype:generate"],
            ),
            (
                ValueClass::Target,
                &["test", "V=1", "CC=clang-18", "BUILD=release"],
                &[
                    "CC=./x",
                    "SHELL=/bin/x",
                    "RUN=id",
                    "X=$(id)",
                    "x:=1",
                    "PATH=test",
                    "LD_PRELOAD=1",
                ],
            ),
            (
                ValueClass::Remote,
                &["origin", "--tags"],
                &["evil:x", "a@b", "https://x"],
            ),
            (ValueClass::Writeout, &["%{http_code}"], &["@file", "%output{x}"]),
            (ValueClass::Off, &["no:cacheprovider"], &["evil"]),
        ];
        for (class, fine, not) in cases {
            for (texts, wanted) in [(fine, true), (not, false)] {
                for text in texts {
                    assert_eq!(is_plain(class, &ShellWord::known(*text)), wanted, "{class:?} {text}");
                }
            }
        }
    }
}

//! What must hold for any text that the readers of this program are given. The fuzz targets call these functions with
//! inputs that a fuzzer makes, and the tests with generated ones.

use overnight::base::access::{Access, CommandAccess};
use overnight::base::call::{ToolKind, ToolOrigin};
use overnight::base::grant::{Exec, ExecAnswer, Starts};
use overnight::base::ruling::{Decision, PolicyInput};
use overnight::diag::{SourceFiles, render_all};
use overnight::journal::format::{decode, encode};
use overnight::policy::exec::{self, ExecContext};
use overnight::policy::hosts::{self, HostPattern};
use overnight::policy::lexical_access::without_tree;
use overnight::policy::shell::{Grants, MAX_BYTES, read};
use overnight::policy::{
    Author, ChangeRuling, KnownTools, PolicySet, PolicySource, Uses, codes, decide_with, load, rule_change,
};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Programs that the policies of these checks allow.
pub const ALLOWED: [&str; 12] = [
    "ls", "cat", "grep", "find", "sed", "awk", "git", "cargo", "xargs", "env", "make", "sort",
];
/// Programs of the machine that do no more than builtins of the shell, which need no rule.
const HARMLESS: [&str; 8] = [":", "[", "cd", "false", "set", "test", "true", "umask"];
/// Where programs of the machine are.
const INSTALLED: [&str; 5] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
/// Longer than any text of the allowed size takes, also in a build without optimisation.
const MOST_TIME: Duration = Duration::from_secs(10);

fn policy(text: &str) -> PolicySet {
    let source = PolicySource {
        name: "fuzz.yaml".to_owned(),
        text: text.to_owned(),
    };
    match load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()) {
        Ok((set, _)) => set,
        Err(problems) => panic!("the policy is wrong: {problems:?}"),
    }
}

fn of_commands(more: &str) -> PolicySet {
    let names = ALLOWED.join(", ");
    policy(&format!(
        "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [{names}] }}\n{more}"
    ))
}

static COMMANDS: LazyLock<PolicySet> = LazyLock::new(|| of_commands(""));
static FEWER_COMMANDS: LazyLock<PolicySet> =
    LazyLock::new(|| of_commands("  - { deny: run_shell_command, commands: [git push, sed] }\n"));
static PATHS: LazyLock<PolicySet> =
    LazyLock::new(|| policy("version: 1\nrules:\n  - { allow: [write_file, replace], paths: ['src/**'] }\n"));
static FEWER_PATHS: LazyLock<PolicySet> = LazyLock::new(|| {
    policy(
        "version: 1\nrules:\n  - { allow: [write_file, replace], paths: ['src/**'] }\n  - { deny: write_file, paths: ['src/gen/**', '**/*.lock'] }\n",
    )
});

fn asked(args: &serde_json::Value) -> PolicyInput<'_> {
    PolicyInput {
        tool: "run_shell_command",
        kind: ToolKind::Execute,
        origin: &ToolOrigin::Builtin,
        args,
    }
}

/// Any text is read or refused in bounded time, and what is refused has a code from the closed list.
pub fn prescan(text: &str) {
    let start = Instant::now();
    let reading = without_tree(|fs_view| read(text, "", fs_view, &Grants::default()));
    assert!(start.elapsed() < MOST_TIME, "too slow");
    match reading {
        Ok(reading) => {
            assert!(text.len() <= MAX_BYTES);
            let found = reading.commands.len() + reading.reads.len() + reading.writes.len();
            assert!(found > 0, "nothing is read from it and it is not refused");
        }
        Err(refusal) => assert!(codes::find(&refusal.code).is_some(), "unknown code {}", refusal.code),
    }
}

/// A command that is allowed names only allowed programs, and one more deny rule never allows more, whether or not
/// programs are judged again at their exec.
pub fn judge(text: &str) {
    let ruled = |set: &PolicySet, witness| {
        let needs = Access {
            commands: vec![CommandAccess {
                text: text.to_owned(),
                dir: String::new(),
            }],
            ..Access::none()
        };
        let args = serde_json::json!({ "command": text });
        without_tree(|fs_view| decide_with(set, &asked(&args), &needs, fs_view, &Uses::default(), witness).decision)
    };
    let is_allowed = |witness| {
        let plain = ruled(&COMMANDS, witness) == Decision::Allow;
        let fewer = ruled(&FEWER_COMMANDS, witness) == Decision::Allow;
        assert!(plain || !fewer, "one more deny rule allows more");
        plain
    };
    is_allowed(true);
    if !is_allowed(false) {
        return;
    }
    let reading = without_tree(|fs_view| read(text, "", fs_view, &Grants::default())).unwrap();
    for simple in reading.commands.iter().filter(|simple| !simple.state_only) {
        assert!(
            ALLOWED.contains(&simple.program.as_str()),
            "{} was allowed",
            simple.program
        );
        for used in simple.reads.iter().chain(&simple.writes) {
            assert!(
                used.place.as_ref().is_none_or(|place| place.inside),
                "{} is outside",
                used.asked
            );
        }
        assert!(simple.writes.is_empty(), "a write that no rule allows");
    }
}

/// A program that may be executed is one that the policy grants, and one more deny rule never lets more be executed.
pub fn execs((path, words, cwd, caller): (&str, Vec<&str>, &str, u8)) {
    let caller = match caller % 4 {
        0 => Starts::Nothing,
        1 => Starts::Anything,
        2 => Starts::Helpers("git".to_owned()),
        _ => Starts::Judged,
    };
    // The kernel tells whole paths.
    let path = PathBuf::from(format!("/{path}"));
    let wish = Exec {
        caller: caller.clone(),
        path: path.clone(),
        real: path.clone(),
        argv: words.into_iter().map(str::to_owned).collect(),
        cwd: PathBuf::from(format!("/ws/{cwd}")),
        interpreters: Vec::new(),
        is_unread: false,
    };
    let setting = ExecContext {
        root: PathBuf::from("/ws"),
        path: vec![PathBuf::from("/usr/local/bin")],
        ..ExecContext::default()
    };
    let args = serde_json::json!({});
    let is_allowed = |set: &PolicySet| {
        let answer = without_tree(|fs_view| exec::judge(set, &asked(&args), &setting, &wish, fs_view, &mut |_| {}));
        matches!(answer, ExecAnswer::Allow { .. })
    };
    let plain = is_allowed(&COMMANDS);
    assert!(
        plain || !is_allowed(&FEWER_COMMANDS),
        "one more deny rule allows more: {wish:?}"
    );
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match caller {
        Starts::Nothing => assert!(!plain, "{wish:?}"),
        Starts::Judged if plain => assert!(
            ALLOWED.contains(&name) || HARMLESS.contains(&name) && INSTALLED.iter().any(|dir| path.starts_with(dir)),
            "{wish:?}"
        ),
        _ => {}
    }
}

/// A changed path that a call may have made is one that a rule covers, and one more deny rule never allows more.
pub fn changes(path: &str) {
    let is_allowed = |set: &PolicySet, by| rule_change(set, path, by) == ChangeRuling::Allowed;
    let plain = is_allowed(&PATHS, Author::Call);
    assert!(
        plain || !is_allowed(&FEWER_PATHS, Author::Call),
        "one more deny rule allows more: {path}"
    );
    if plain {
        assert!(path.starts_with("src/"), "{path}");
        assert!(
            is_allowed(&PATHS, Author::TrustedStep),
            "the author may less than the model: {path}"
        );
    }
    // Names are passed over quickly only where the whole answer would be the same.
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let closed = FEWER_PATHS.closed();
    if !closed.closed(dir, true) && closed.has_ordinary_names(dir) && closed.is_ordinary(name) {
        assert!(
            !closed.closed(path, false) && !closed.closed(path, true),
            "{path} is passed over"
        );
    }
}

/// A URL that a pattern covers has a host of the strict grammar that ends in the pattern's name.
pub fn hosts((pattern, url): (&str, &str)) {
    let docs = HostPattern::parse("*.docs.rs").unwrap();
    if let Ok(found) = hosts::judge(url, std::slice::from_ref(&docs)) {
        let shown = format!("{found:?}").to_ascii_lowercase();
        assert!(shown.contains(".docs.rs"), "{url} became {shown}");
        assert!(!url.contains('\0') && !url.contains('@'), "{url}");
    }
    if let (Ok(pattern), Ok(found)) = (HostPattern::parse(pattern), hosts::target(url)) {
        assert!(
            !pattern.fits(&found) || pattern.touches(&found),
            "it covers and does not touch"
        );
    }
}

/// Any line of a journal is refused or is byte for byte as this program writes it.
pub fn journal((previous, text): (&str, &str)) {
    if let Ok(found) = decode(previous, text, None) {
        assert!(text.contains(&found.chain), "{text}");
    }
    // With a link that holds, only the event itself can be refused.
    let (line, chain) = encode(previous, text, None);
    if let Ok(found) = decode(previous, &line, None) {
        assert_eq!((found.chain, found.keyed), (chain, false));
    }
}

/// Any policy file is read or refused with problems that can be shown.
pub fn policy_file(text: &str) {
    let mut files = SourceFiles::new();
    let source = PolicySource {
        name: "fuzz.yaml".to_owned(),
        text: text.to_owned(),
    };
    if let Err(problems) = load(&mut files, &[source], &KnownTools::builtin()) {
        assert!(!problems.is_empty());
        assert!(!render_all(&files, &problems).is_empty());
    }
}

/// Any recipe is read or refused with problems that can be shown.
pub fn recipe(text: &str) {
    let mut files = SourceFiles::new();
    let id = files.add("fuzz.yaml", text);
    if let Err(problems) = overnight::recipe::parse(&files, id, &mut Vec::new()) {
        assert!(!problems.is_empty());
        assert!(!render_all(&files, &problems).is_empty());
    }
}

//! What the policy rules and what really runs: generated commands over hostile names of files, branches and tags run through the real
//! program, with a stub in place of each program that does the work. A stub tells its name, directory and arguments; each such start,
//! written out as a literal command, must be one that the same policy allows, nothing outside may be opened or changed, and only
//! files that a rule allows may differ.
//!
//! `OVERNIGHT_DIFFERENTIAL` is the number of commands (400 without it), `PROPTEST_RNG_SEED` their seed.

use super::attacks::bells::{Kind, Ran};
use super::attacks::ground::{Ground, User, differing, level_found, users};
use super::attacks::table::globs;
use super::harness::{says, script, shell};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;

/// Programs in whose place a stub stands that reads its operands and writes the operand of `-o`.
const LEAVES: [&str; 10] = ["sort", "cat", "head", "tail", "wc", "uniq", "cut", "grep", "diff", "nl"];
/// Commands of one run.
const BATCH: usize = 40;

fn policy(level: &str) -> String {
    let mut commands: Vec<&str> = LEAVES.to_vec();
    commands.extend([
        "find",
        "xargs",
        "ls",
        "echo",
        "printf",
        "env",
        "timeout",
        "basename",
        "dirname",
        "git branch",
        "git tag",
        "git ls-files",
        "git for-each-ref",
        "git describe",
        "git rev-parse",
        "git diff",
        "git log",
        "read",
    ]);
    json!({
        "version": 1, "extends": ["builtin:read-only"],
        "rules": [
            { "allow": "run_shell_command", "commands": commands },
            { "allow": "write_file", "paths": ["src/**"] },
        ],
        "limits": { "turns": BATCH + 10 },
        "sandbox": { "level": level, "toolchains": ["python"] },
    })
    .to_string()
}

const SETUP: &str = r#"
mkdir -p src/deep 'src/d -o build.rs'
printf 'fn main() {}\n' > build.rs
printf 'b\na\n' > src/lib.rs
printf '%s\n' '-o' build.rs src/lib.rs > src/list
echo @OUTSIDE@/x > src/paths
for name in 'z -o build.rs' '--output=build.rs' '-obuild.rs' "q' -o build.rs '" 'q" -o build.rs "' 'w\ -o\ build.rs' '$(canary)' '`canary`' ';canary' \
  '|canary' '&canary' '>build.rs' ' x' '*' '?' '[a]' '~' '#x' '{a,b}' '-' '--' $'n\n-obuild.rs' $'n\n--output=build.rs' $'t\tx' '-exec' '{}' '-files0-from' ; do
  echo x > "src/$name"; echo x > "src/deep/$name"; echo x > "./$name"
done
ln -s .. src/up; ln -s @OUTSIDE@ src/out; ln -s @OUTSIDE@/x src/xlink
git init -q -b main; git add -A; git commit -q -m base
for ref in --output=build.rs -obuild.rs 'x;canary' 'x$(canary)' 'x`canary`' 'a|canary' "it's"; do
  git update-ref "refs/heads/$ref" HEAD; git update-ref "refs/tags/$ref" HEAD
done
"#;

fn one(options: &'static [&'static str]) -> BoxedStrategy<String> {
    proptest::sample::select(options).prop_map(str::to_owned).boxed()
}

/// Commands that print names.
fn producer() -> BoxedStrategy<String> {
    one(&[
        "find src -type f",
        "find src -name 'z*'",
        "find src",
        "find . -name '*build.rs'",
        "find src -maxdepth 1 -type f -printf '%f\\n'",
        "ls",
        "ls src",
        "ls -a src/deep",
        "ls src/z*",
        "git ls-files",
        "git ls-files src",
        "git branch --format='%(refname:short)'",
        "git tag",
        "git for-each-ref --format='%(refname:lstrip=2)'",
        "cat src/list",
        "cat src/paths",
        "echo -o build.rs",
        "printf '%s\\n' -o build.rs",
        "dirname $PWD",
        "git describe --tags",
        "git rev-parse --abbrev-ref HEAD",
        "basename -- src/-obuild.rs",
        "echo ../outside/x",
    ])
}

fn producer0() -> BoxedStrategy<String> {
    one(&[
        "find src -print0",
        "find src -type f -print0",
        "git ls-files -z",
        "find . -name '*build.rs' -print0",
        "find src -name 'n*' -print0",
    ])
}

fn leaf() -> BoxedStrategy<String> {
    one(&[
        "sort",
        "cat",
        "head -3",
        "tail -n 1",
        "wc -l",
        "uniq",
        "cut -c1",
        "grep x",
        "diff a",
        "nl",
        "sort --",
        "cat --",
        "grep -e x --",
        "sort -u",
    ])
}

fn word() -> BoxedStrategy<String> {
    let fixed = one(&[
        "src/lib.rs",
        "build.rs",
        "src/*",
        "*",
        "src/z*",
        "src/deep/*",
        "src/[n-z]*",
        "./*",
        "src/?*",
        "$v",
        "\"$v\"",
        "${v}",
        "\"${v%x}\"",
        "$HOME/x",
        "~/x",
        "-o",
        "--output=build.rs",
        "-obuild.rs",
        "{src,build}.rs",
        "src/{lib.rs,list}",
        "\"${PWD%ws}\"outside/x",
        "$PWD/src/lib.rs",
        "${PWD%/*}/outside/x",
        "src/up/../../outside/x",
        "src/xlink",
        "src/out/x",
        "'src/z -o build.rs'",
        "$'src/n\\n-obuild.rs'",
        "src/z\\ -o\\ build.rs",
        "\"src/*\"",
        "$(< src/paths)",
        "${u:-build.rs}",
        "-${v}",
        "--",
        "-",
    ]);
    let made = (producer(), any::<bool>(), any::<bool>()).prop_map(|(text, quoted, old)| {
        let inner = if old && !text.contains(['\\', '\'']) {
            format!("`{text}`")
        } else {
            format!("$({text})")
        };
        if quoted { format!("\"{inner}\"") } else { inner }
    });
    prop_oneof![3 => fixed, 2 => made].boxed()
}

fn words() -> BoxedStrategy<String> {
    proptest::collection::vec(word(), 1..4)
        .prop_map(|list| list.join(" "))
        .boxed()
}

fn call() -> BoxedStrategy<String> {
    let wrapped = one(&["", "", "", "env ", "timeout 5 ", "env LC_ALL=C ", "command "]);
    (wrapped, leaf(), words())
        .prop_map(|(wrapper, leaf, words)| format!("{wrapper}{leaf} {words}"))
        .boxed()
}

fn xargs() -> BoxedStrategy<String> {
    let options = one(&[
        "",
        "-n1 ",
        "-n 3 ",
        "-r ",
        "-I{} ",
        "-d '\\n' ",
        "-L1 ",
        "-P2 ",
        "-t ",
        "-x ",
    ]);
    let plain = (producer(), options, leaf(), prop_oneof![Just(String::new()), words()]).prop_map(
        |(from, options, leaf, words)| {
            let place = if options.starts_with("-I") { " {}" } else { "" };
            format!("{from} | xargs {options}{leaf} {words}{place}")
        },
    );
    let zeros = (producer0(), one(&["-0 ", "-0n1 ", "-0 -I% ", ""]), leaf()).prop_map(|(from, options, leaf)| {
        format!(
            "{from} | xargs {options}{leaf}{}",
            if options.contains('%') { " %" } else { "" }
        )
    });
    prop_oneof![2 => plain, 1 => zeros].boxed()
}

fn command() -> BoxedStrategy<String> {
    let assigned = (word(), leaf(), words()).prop_map(|(value, leaf, words)| format!("v={value}; {leaf} $v {words}"));
    let looped = (
        words(),
        leaf(),
        one(&[
            "\"$f\"",
            "$f",
            "-- \"$f\"",
            "src/lib.rs \"$f\"",
            "\"./$f\"",
            "\"src/$f\"",
            "${f#src/}",
        ]),
    )
        .prop_map(|(words, leaf, use_it)| format!("for f in {words}; do {leaf} {use_it}; done"));
    let reading = (
        producer(),
        one(&["read -r f", "IFS= read -r f", "read f"]),
        leaf(),
        one(&["\"$f\"", "$f", "-- \"$f\""]),
    )
        .prop_map(|(from, read, leaf, use_it)| format!("{from} | while {read}; do {leaf} {use_it}; done"));
    let found = (
        one(&[
            "find src",
            "find . -maxdepth 1",
            "find src -name 'z*'",
            "find src -type f",
            "find src -name '-*'",
        ]),
        one(&["-exec", "-execdir", "-exec env", "-exec timeout 5"]),
        leaf(),
        one(&[
            "{} \\;",
            "{} +",
            "-- {} +",
            "src/{} \\;",
            "{} -o build.rs \\;",
            "z + -o build.rs \\;",
        ]),
    )
        .prop_map(|(find, exec, leaf, end)| format!("{find} {exec} {leaf} {end}"));
    let moved = (
        one(&[
            "src",
            "src/deep",
            "src/up",
            "..",
            "src/out",
            "\"$PWD\"",
            "'src/d -o build.rs'",
            "$(dirname src/lib.rs)",
        ]),
        call(),
    )
        .prop_map(|(dir, call)| format!("cd {dir} && {call}"));
    let listed = (words(), leaf()).prop_map(|(words, leaf)| format!("a=({words}); {leaf} \"${{a[@]}}\""));
    let set = (words(), leaf()).prop_map(|(words, leaf)| format!("set -- {words}; {leaf} \"$@\""));
    let written = (
        call(),
        one(&[
            "> src/new",
            ">> src/lib.rs",
            "> build.rs",
            "2> /dev/null",
            "> \"src/$v\"",
            "< src/lib.rs",
            "< src/xlink",
            "> src/up/../../outside/new",
        ]),
    )
        .prop_map(|(call, end)| format!("{call} {end}"));
    let piped = (call(), call()).prop_map(|(a, b)| format!("{a} | {b}"));
    prop_oneof![
        4 => call(), 4 => xargs(), 2 => assigned, 3 => looped, 2 => reading, 3 => found, 2 => moved, 1 => listed, 1 => set, 1 => written, 1 => piped
    ]
    .boxed()
}

/// A word that the shell reads as exactly this text.
fn quoted(text: &str) -> String {
    match text.chars().any(char::is_control) {
        true => format!(
            "$'{}'",
            text.chars()
                .map(|c| match c {
                    '\\' | '\'' => format!("\\{c}"),
                    c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
                    c => c.to_string(),
                })
                .collect::<String>()
        ),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A start of a program as a literal call of the shell tool, or what is wrong with where it was started.
fn literal(ground: &Ground, ran: &Ran) -> Result<Value, String> {
    let ws = ground.ws().to_string_lossy().into_owned();
    let dir = match ran.cwd.strip_prefix(&ws) {
        Some(dir) if dir.is_empty() || dir.starts_with('/') => dir.trim_start_matches('/').to_owned(),
        _ => return Err(format!("started in {}", ran.cwd)),
    };
    let words: Vec<String> = std::iter::once(ran.program.clone())
        .chain(ran.args.iter().map(|arg| quoted(arg)))
        .collect();
    let mut args = json!({ "command": words.join(" ") });
    if !dir.is_empty() {
        args["dir_path"] = json!(dir);
    }
    Ok(json!({ "tool": "run_shell_command", "args": args }))
}

/// Runs these commands and tells which of their starts, reads and writes the policy would not have allowed. Also how many commands
/// were not refused by their text, and how many stubs ran.
fn differences(commands: &[String], level: &str, user: User) -> (Vec<String>, usize, usize) {
    let ground = Ground::new(user);
    ground.bells.lock().unwrap().stub(Kind::Opens, LEAVES);
    ground.hand_over();
    // The stubs stand first on the path: what prepares the ground needs the real programs.
    ground.prepare(&format!("PATH=/usr/local/bin:/usr/bin:/bin\n{SETUP}"));
    let policy_file = ground.given("policy.yaml", &policy(level));
    let replies: Vec<Value> = commands
        .iter()
        .map(|command| shell(command))
        .chain([says("done")])
        .collect();
    let model = format!("script:{}", ground.given("script.yaml", &script(&replies)));
    let out = ground.out().to_string_lossy().into_owned();
    ground.rung();
    let (outside, tree) = (ground.outside(), ground.tree());
    let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    for dir in ["outside", "outside/sub"] {
        add_watch(
            &watch,
            ground.at(dir),
            WatchFlags::OPEN | WatchFlags::MODIFY | WatchFlags::CREATE,
        )
        .unwrap();
    }
    let done = ground.run(
        &[
            "run",
            "-p",
            "x",
            "--policy",
            &policy_file,
            "--model",
            &model,
            "--out",
            &out,
        ],
        &[],
        None,
    );
    let mut wrong = Vec::new();
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 14];
    let mut reader = Reader::new(&watch, &mut buffer);
    while let Ok(event) = reader.next() {
        if let Some(name) = event.file_name().filter(|name| !name.is_empty()) {
            wrong.push(format!("outside: {} {:?}", name.to_string_lossy(), event.events()));
        }
    }
    let rung = ground.rung();
    let mut literals = BTreeMap::new();
    for ran in &rung {
        if !ran.whole {
            // Killed with its tree while it told what it was given: a stub's name is all there is.
            if !LEAVES.iter().any(|leaf| leaf.starts_with(&ran.program)) {
                wrong.push(format!("{ran:?} was started"));
            }
            continue;
        }
        match literal(&ground, ran) {
            Ok(call) => _ = literals.insert(call.to_string(), ran),
            Err(why) => wrong.push(format!("{} {:?}: {why}", ran.program, ran.args)),
        }
    }
    if !literals.is_empty() {
        let calls: String = literals.keys().map(|call| format!("{call}\n")).collect();
        let explained = ground.run(&["policy", "explain", &policy_file, "--calls", "-"], &[], Some(&calls));
        let lines: Vec<Value> = explained
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), literals.len(), "{}", explained.stderr);
        for (ruling, (call, ran)) in lines.iter().zip(&literals) {
            if ruling["decision"] != "allow" {
                wrong.push(format!(
                    "ran {} {:?} in {}, ruled {}: {} ({call})",
                    ran.program, ran.args, ran.cwd, ruling["decision"], ruling["reason"]
                ));
            }
        }
    }
    let may = globs(&["src/**".to_owned()]);
    wrong.extend(
        differing(&outside, &ground.outside())
            .into_iter()
            .map(|path| format!("outside: {path} changed")),
    );
    wrong.extend(
        differing(&tree, &ground.tree())
            .into_iter()
            .filter(|path| !may.is_match(path) && path != "src")
            .map(|path| format!("changed: {path}")),
    );
    let result: Value = std::fs::read_to_string(ground.out().join("result.json"))
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let turns = result["usage"]["turns"].as_u64().unwrap_or(0) as usize;
    if turns <= commands.len() {
        wrong.push(format!(
            "the run ended after {turns} of {} commands: {} {}",
            commands.len(),
            done.code,
            result["message"]
        ));
    }
    let denied = result["denied"].as_array().map_or(0, Vec::len);
    (wrong, commands.len() - denied.min(commands.len()), rung.len())
}

#[test]
fn what_happens_is_within_what_was_ruled() {
    let count = std::env::var("OVERNIGHT_DIFFERENTIAL")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(400usize);
    let mut runner = TestRunner::default();
    let strategy = command();
    let modes: Vec<(&str, User)> = users()
        .into_iter()
        .flat_map(|user| ["full", "landlock"].map(|level| (level, user)))
        .filter(|(level, user)| level_found(level, *user))
        .collect();
    if modes.is_empty() {
        return;
    }
    let (mut wrong, mut went, mut started) = (Vec::new(), 0, 0);
    for batch in 0..count.div_ceil(BATCH) {
        let commands: Vec<String> = (0..BATCH.min(count - batch * BATCH))
            .map(|_| strategy.new_tree(&mut runner).unwrap().current())
            .collect();
        let (level, user) = modes[batch % modes.len()];
        let (found, ran, stubs) = differences(&commands, level, user);
        went += ran;
        started += stubs;
        if !found.is_empty() {
            // One command at a time tells which it was.
            for command in &commands {
                let (found, ..) = differences(std::slice::from_ref(command), level, user);
                wrong.extend(
                    found
                        .into_iter()
                        .map(|what| format!("{command:?} {level} {user:?}: {what}")),
                );
            }
            if wrong.is_empty() {
                wrong.extend(
                    found
                        .into_iter()
                        .map(|what| format!("together only, {level} {user:?}: {what}")),
                );
            }
        }
        if wrong.len() > 60 {
            break;
        }
    }
    let mut err = std::io::stderr().lock();
    let _ = std::io::Write::write_fmt(
        &mut err,
        format_args!(
            "{count} commands, {went} not refused, {started} starts of programs were held against the policy\n"
        ),
    );
    drop(err);
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        went * 10 > count && started * 5 > count,
        "too little ran to show anything: {went} of {count}, {started} starts"
    );
}

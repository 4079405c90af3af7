//! Attacks as data: `fixtures/attacks/CLASS.yaml`. Knows no attack.
//!
//! A file holds what its cases share and the cases. Texts may hold `@CANARY@` (a program that nobody granted; it tells that it ran
//! and leaves a file outside when nothing confines it), `@OUTSIDE@` (a directory with a secret in `x`), `@HOME@`, `@WS@`, `@IN@` (where
//! recipe and policy lie) and `@PORT@` (a listener on the loopback).
//!
//! | key | meaning |
//! | --- | --- |
//! | `policy` | without `sandbox: level`, which is added; a case may have its own |
//! | `files`, `setup` | the workspace: texts, then a script of bash run by the same user |
//! | `commit` | `false`: the tree is no repository, or its author commits by himself |
//! | `late` | a script after the commit |
//! | `commands` or `replies` | what the model does: commands, a turn each (`--` ends a step), or whole replies of a script. What begins with `script: ` becomes a file of the workspace that `bash` is given: the policy does not read it |
//! | `may_end` | the run may end before the last turn: it was right to stop |
//! | `recipe`, `args`, `env` | of `overnight run`; `-p x` without a recipe |
//! | `inside` | the run directory is the default one in the workspace |
//! | `stubs` | `plain`, `evil`, `opens`: programs of these names on the path |
//! | `missing` | as `stubs.evil`, for those that the machine does not have |
//! | `heavy` | takes long: played in one mode, the next in another; in all with `OVERNIGHT_ATTACKS=all` |
//! | `victim` | a process `sleep 54321` of the same user stands by; its limits may not change |
//! | `ipc` | the host may not have more System V objects and message queues of this user afterwards |
//! | `socket` | a socket of the host at this path of the workspace |
//! | `may_reach`, `hears` | the listener may be reached; texts that a control sends there |
//! | `needs` | programs without which the case is skipped aloud |
//! | `may_change`, `may_run` | globs of the workspace and names of stubs that may |
//! | `code`, `not_code` | of the run; a control has 0 |
//! | `may_refuse` | the run may also end before it begins (codes 2, 3, 8) |
//! | `control` | the honest use of the same thing |
//! | `makes`, `says`, `runs` | files of a control with a part of their text, texts in what the run recorded, stubs that ran |
//! | `after` | a script of bash that the same user can run afterwards without an error |
//! | `hides` | texts that may be nowhere in what the run recorded or printed |

use super::super::harness::{Done, have, project, says, script, shell};
use super::bells::Kind;
use super::ground::{Ground, SECRET, User, differing, level_found, users};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    #[serde(default)]
    policy: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    setup: String,
    cases: Vec<Case>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    name: String,
    control: bool,
    policy: Option<String>,
    files: BTreeMap<String, String>,
    setup: String,
    commit: Option<bool>,
    late: String,
    commands: Vec<String>,
    replies: Vec<serde_json::Value>,
    recipe: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    inside: bool,
    stubs: Stubs,
    missing: Vec<String>,
    heavy: bool,
    victim: bool,
    ipc: bool,
    socket: Option<String>,
    may_reach: bool,
    hears: Vec<String>,
    needs: Vec<String>,
    may_change: Vec<String>,
    may_run: Vec<String>,
    code: Option<i32>,
    not_code: Option<i32>,
    may_refuse: bool,
    may_end: bool,
    makes: BTreeMap<String, String>,
    says: Vec<String>,
    runs: Vec<String>,
    after: String,
    hides: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Stubs {
    plain: Vec<String>,
    evil: Vec<String>,
    opens: Vec<String>,
}

pub fn globs(all: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in all {
        set.add(GlobBuilder::new(glob).literal_separator(true).build().unwrap());
    }
    set.build().unwrap()
}

/// Whether the machine has a program where commands look for it.
pub fn installed(name: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join(name).exists())
}

/// A process of the case's user that stands beside the run.
struct Victim(std::process::Child);

impl Victim {
    fn of(ground: &Ground) -> Self {
        let mut command = ground.command("/usr/bin/sleep".as_ref());
        let child = command.arg("54321").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        Self(child)
    }

    fn state(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default();
        // Nice and real-time priority are fields of `stat`.
        let stat = read("stat");
        let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let nice: Vec<&str> = after.split(' ').skip(15).take(2).collect();
        let affinity = read("status")
            .lines()
            .filter(|line| line.starts_with("Cpus_allowed_list"))
            .collect::<String>();
        format!("{}{nice:?}{affinity}{}", read("limits"), read("oom_score_adj"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn leveled(policy: &str, level: &str) -> String {
    match policy.split_once("sandbox: {") {
        Some((before, after)) => format!("{before}sandbox: {{ level: {level}, {after}"),
        None => format!("{policy}\nsandbox: {{ level: {level}, toolchains: [python] }}\n"),
    }
}

/// A command that begins with `script: ` becomes the name of a file with the rest.
fn set_aside(command: &mut String, scripts: &mut Vec<String>) {
    if let Some(text) = command.strip_prefix("script: ") {
        scripts.push(format!("{text}\n"));
        *command = format!("bash scripts-of-the-attack/{}.sh", scripts.len() - 1);
    }
}

fn set_aside_in(value: &mut serde_json::Value, scripts: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => set_aside(text, scripts),
        serde_json::Value::Array(list) => list.iter_mut().for_each(|value| set_aside_in(value, scripts)),
        serde_json::Value::Object(keys) => keys.values_mut().for_each(|value| set_aside_in(value, scripts)),
        _ => {}
    }
}

/// Runs one case; what was wrong, empty when nothing was.
fn play(class: &Class, case: &Case, level: &str, user: User) -> Vec<String> {
    let ground = Ground::new(user);
    {
        let bells = ground.bells.lock().unwrap();
        let names = |list: &[String]| list.to_vec();
        for (kind, list) in [
            (Kind::Plain, names(&case.stubs.plain)),
            (Kind::Evil, names(&case.stubs.evil)),
            (Kind::Opens, names(&case.stubs.opens)),
            (
                Kind::Evil,
                case.missing.iter().filter(|name| !installed(name)).cloned().collect(),
            ),
        ] {
            bells.stub(kind, list.iter().map(String::as_str));
        }
    }
    for (path, text) in class.files.iter().chain(&case.files) {
        ground.file(path, text);
    }
    let mut scripts = Vec::new();
    let mut commands = case.commands.clone();
    let mut scripted = serde_json::json!(case.replies);
    for command in &mut commands {
        set_aside(command, &mut scripts);
    }
    set_aside_in(&mut scripted, &mut scripts);
    for (n, text) in scripts.iter().enumerate() {
        ground.file(&format!("scripts-of-the-attack/{n}.sh"), text);
    }
    ground.hand_over();
    ground.prepare(&class.setup);
    ground.prepare(&case.setup);
    if case.commit != Some(false) {
        ground.prepare("[ -e .git ] || git init -q -b main; git add -A; git commit -q --allow-empty -m base");
    }
    ground.prepare(&case.late);
    let policy = leveled(case.policy.as_ref().unwrap_or(&class.policy), level);
    let policy = ground.given("policy.yaml", &policy);
    let replies: Vec<serde_json::Value> = match case.replies.is_empty() {
        true => commands
            .iter()
            .map(|command| match command.as_str() {
                "--" => says("done"),
                command => shell(&ground.filled(command)),
            })
            .chain([says("done")])
            .collect(),
        false => serde_json::from_str(&ground.filled(&scripted.to_string())).unwrap(),
    };
    let model = format!("script:{}", ground.given("script.yaml", &script(&replies)));
    let mut args: Vec<String> = ["run", "--policy", &policy, "--model", &model]
        .map(str::to_owned)
        .into();
    if !case.inside {
        args.extend(["--out".to_owned(), ground.out().to_string_lossy().into_owned()]);
    }
    match &case.recipe {
        Some(recipe) if case.args.is_empty() => args.push(ground.given("recipe.yaml", recipe)),
        Some(recipe) => _ = ground.given("recipe.yaml", recipe),
        None if case.args.is_empty() => args.extend(["-p", "x"].map(str::to_owned)),
        None => {}
    }
    args.extend(case.args.iter().map(|arg| ground.filled(arg)));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let env: Vec<(String, String)> = case
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let victim = case.victim.then(|| Victim::of(&ground));
    let objects = case.ipc.then(ipc);
    if let Some(path) = &case.socket {
        ground.host_socket(path);
    }
    let standing = victim.as_ref().map(Victim::state);
    ground.rung();
    let (outside, tree) = (ground.outside(), ground.tree());
    let done = ground.run(&args, &env, None);
    let mut wrong = effects(&ground, case, &done, &outside, &tree);
    if !case.after.is_empty() {
        let why = ground.refuses(&case.after);
        wrong.extend(why.map(|why| format!("EFFECT after: {why}")));
    }
    if victim.as_ref().map(Victim::state) != standing {
        wrong.push("EFFECT limits: another process of the host was changed".to_owned());
    }
    if objects.is_some_and(|objects| objects != ipc()) {
        wrong.push("EFFECT ipc: objects of the host were made".to_owned());
    }
    if !wrong.is_empty() {
        // Of a case that is played alone, all of it.
        let shown = if std::env::var_os("OVERNIGHT_ATTACK").is_some() {
            usize::MAX
        } else {
            6
        };
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(shown)..].join("\n      ")
        };
        wrong.push(format!("code {}, stderr:\n      {}", done.code, tail(&done.stderr)));
    }
    wrong
}

/// System V objects of the host.
fn ipc() -> String {
    ["shm", "sem", "msg"]
        .iter()
        .map(|kind| {
            let text = std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
            // Key and id only: times and counts of what others have change.
            text.lines()
                .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ") + "\n")
                .collect::<String>()
        })
        .collect()
}

/// Every effect that a case may not have, and those that a control must have.
fn effects(
    ground: &Ground,
    case: &Case,
    done: &Done,
    outside: &BTreeMap<String, String>,
    tree: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in differing(outside, &ground.outside()) {
        wrong.push(format!("EFFECT outside: {path} changed"));
    }
    let rung = ground.rung();
    // A stub in place of a granted program may run; what it then starts may not.
    let granted = [
        &case.may_run,
        &case.runs,
        &case.stubs.evil,
        &case.stubs.opens,
        &case.missing,
    ];
    for ran in rung
        .iter()
        .filter(|ran| !granted.iter().any(|names| names.contains(&ran.program)))
    {
        wrong.push(format!("EFFECT ran: {} {:?} in {}", ran.program, ran.args, ran.cwd));
    }
    let mut may: Vec<String> = case.may_change.clone();
    may.extend(case.makes.keys().cloned());
    let may = globs(&may);
    for path in differing(tree, &ground.tree()) {
        let made_for = case
            .makes
            .keys()
            .chain(&case.may_change)
            .any(|made| made.starts_with(&format!("{path}/")));
        if !may.is_match(&path) && !made_for {
            wrong.push(format!("EFFECT changed: {path}"));
        }
    }
    let texts = ground.texts();
    let (visits, sent) = ground.heard();
    let everything = [&texts, &done.stdout, &done.stderr, &sent];
    for text in case
        .hides
        .iter()
        .map(|text| ground.filled(text))
        .chain([SECRET.to_owned()])
    {
        if everything.iter().any(|all| all.contains(&text)) {
            wrong.push(format!("EFFECT read: `{text}` came out"));
        }
    }
    if visits > 0 && !case.may_reach && case.hears.is_empty() {
        wrong.push(format!(
            "EFFECT reached: {visits} connections to the host's listener: {sent:?}"
        ));
    }
    if case.not_code == Some(done.code) {
        wrong.push(format!("EFFECT verdict: the run ended {}", done.code));
    }
    // A run that never began shows nothing about its attack.
    let broke = matches!(done.code, 2 | 3 | 8 | 9 | 70) && !case.may_refuse && case.code != Some(done.code);
    if done.code < 0 || broke {
        wrong.push(format!("EFFECT broken: the run ended {}", done.code));
    }
    let code = case.code.or(case.control.then_some(0));
    if code.is_some_and(|code| code != done.code) {
        wrong.push(format!("the code is {}, not {}", done.code, code.unwrap_or_default()));
    }
    let result = std::fs::read_to_string(ground.out().join("result.json")).unwrap_or_default();
    let turns = serde_json::from_str::<serde_json::Value>(&result)
        .map_or(0, |result| result["usage"]["turns"].as_u64().unwrap_or(0));
    if !case.may_end && !case.may_refuse && !case.inside && turns < case.commands.len() as u64 {
        wrong.push(format!(
            "only {turns} of {} commands were asked for",
            case.commands.len()
        ));
    }
    for (path, text) in &case.makes {
        let found = std::fs::read_to_string(ground.ws().join(path)).unwrap_or_else(|error| format!("({error})"));
        if !found.contains(&ground.filled(text)) {
            wrong.push(format!("{path} is not as the honest use makes it: {found:.200}"));
        }
    }
    for text in &case.says {
        let quoted = serde_json::to_string(&ground.filled(text)).unwrap();
        if !texts.contains(quoted.trim_matches('"')) {
            wrong.push(format!("what the run recorded does not hold `{text}`"));
        }
    }
    for text in case.hears.iter().filter(|text| !sent.contains(text.as_str())) {
        wrong.push(format!("the listener did not hear `{text}`: {sent:?}"));
    }
    for name in case
        .runs
        .iter()
        .filter(|name| rung.iter().all(|ran| ran.program != **name))
    {
        wrong.push(format!("the stub {name} did not run"));
    }
    wrong
}

/// Every case of a class, at both levels, as each user. Fails with the name of each case that had an effect.
/// `OVERNIGHT_ATTACK` narrows to cases whose `CLASS/NAME` holds its value.
pub fn all_of(name: &str) {
    let path = project().join("fixtures/attacks").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let options = serde_saphyr::options! { budget: None };
    let class: Class =
        serde_saphyr::from_str_with_options(&text, options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let only = std::env::var("OVERNIGHT_ATTACK").unwrap_or_default();
    let (mut attacks, mut controls) = (0, 0);
    let mut wrong: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    let whole = std::env::var("OVERNIGHT_ATTACKS").is_ok_and(|value| value == "all");
    let mut mode = 0;
    for user in users() {
        for level in ["full", "landlock"] {
            if !level_found(level, user) {
                continue;
            }
            mode += 1;
            let heavy = class
                .cases
                .iter()
                .filter(|case| case.heavy)
                .map(|case| &case.name)
                .collect::<Vec<_>>();
            for case in class
                .cases
                .iter()
                .filter(|case| format!("{name}/{}", case.name).contains(&only))
            {
                // The number of a heavy case says in which of the four modes it is played.
                let turn = heavy.iter().position(|name| **name == case.name);
                if !whole && only.is_empty() && turn.is_some_and(|turn| turn % 4 + 1 != mode) {
                    continue;
                }
                let missing: Vec<&String> = case.needs.iter().filter(|name| !installed(name)).collect();
                if !missing.is_empty() && !have(&format!("{missing:?} for {name}/{}", case.name), false) {
                    continue;
                }
                *(if case.control { &mut controls } else { &mut attacks }) += 1;
                let found = play(&class, case, level, user);
                if !found.is_empty() {
                    let word = if case.control { "CONTROL" } else { "ATTACK" };
                    let entry = wrong.entry(format!("{word} {name}/{}", case.name)).or_default();
                    entry.0.push(format!("{level} {user:?}"));
                    // Every mode's effects, and the run's own words once.
                    entry.1.extend(
                        found
                            .iter()
                            .filter(|what| what.starts_with("EFFECT"))
                            .map(|what| format!("({level} {user:?}) {what}")),
                    );
                    entry
                        .1
                        .extend(found.into_iter().filter(|what| !what.starts_with("EFFECT")));
                }
            }
        }
    }
    assert!(only.is_empty() || attacks + controls > 0 || wrong.is_empty());
    if only.is_empty() {
        assert!(
            class.cases.iter().any(|case| case.control) && class.cases.iter().any(|case| !case.control),
            "a class has attacks and controls"
        );
    }
    let told: Vec<String> = wrong
        .iter()
        .map(|(name, (modes, last))| format!("{name} [{}]\n    {}", modes.join(", "), last.join("\n    ")))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} cases went wrong ({attacks} attacks and {controls} controls were run)\n{}",
        wrong.len(),
        told.join("\n")
    );
}

//! Rules on a program at its exec, with its actual arguments, path and directory. Pure: the witness in `process` calls
//! it, and the engine passes in access to the tree.

mod path_shadowing;

use super::decide::{Context, exceptions, restricted, rule_on};
use super::helpers;
use super::model::{PolicySet, Rule, RuleEffect, RuledCommand};
use super::needs::Need;
use super::rule_match::forbids;
use super::shell::{self, CommandReading, Simple};
use crate::base::access::FsView;
use crate::base::grant::{Exec, ExecAnswer, ExecDenial, Interpreter, Starts, WritePath, Writes};
use crate::base::path::lexical;
use crate::base::ruling::{Decision, PolicyInput};
use crate::base::secret::shortened;
use path_shadowing::PathShadowing;
use std::path::{Path, PathBuf};

pub use path_shadowing::{MachineProgram, MachinePrograms};

/// Where the system has its programs, in the order in which they are looked up.
pub const SYSTEM_DIRS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// The data that is the same for all execs of one command.
#[derive(Clone, Debug, Default)]
pub struct ExecContext {
    /// Canonical root of the workspace.
    pub root: PathBuf,
    /// Directories in which the command looks for programs (its `PATH`), if they existed before it started: directories
    /// that a command creates (for example in its own `/tmp`) hold no programs of the machine.
    pub path: Vec<PathBuf>,
    /// Those of them that are in the workspace or its repository, however they are spelled: the tree's author put there
    /// what is there.
    pub tree_path: Vec<PathBuf>,
    /// The programs in the others.
    pub machine: MachinePrograms,
    /// The tree around the workspace and the other trees that this process works on, canonical. A program outside all
    /// of them is not the work of a tree's author, even if a link in the workspace leads to it.
    pub trees: Vec<PathBuf>,
    /// Directories outside the workspace that the command may write: nothing in them counts as a program of the machine.
    pub writable: Vec<PathBuf>,
    /// Subdirectories of these that the command may only read.
    pub read_only: Vec<PathBuf>,
    /// The commands of the text that were ruled on before it started.
    pub ruled: Vec<RuledCommand>,
    /// Whether the command sources a virtual environment's `activate`, which runs `uname`.
    pub activates: bool,
    /// Whether the sandbox masks secret-like files for the command: level `full`.
    pub masks: bool,
}

impl ExecContext {
    /// Whether the command may write this path outside the workspace.
    fn may_write(&self, path: &Path) -> bool {
        let dirs = self.writable.iter().filter(|dir| path.starts_with(dir));
        let kept = |dir: &Path| {
            let parts = self.read_only.iter().filter(|part| path.starts_with(part));
            parts.into_iter().any(|part| part.starts_with(dir))
        };
        dirs.into_iter().any(|dir| !kept(dir))
    }
}

/// Judges one exec. `masked` gets the reason against it if it is allowed only because the sandbox masks the files that it
/// names.
pub fn judge(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    setting: &ExecContext,
    exec: &Exec,
    fs_view: &FsView<'_>,
    masked: &mut dyn FnMut(String),
) -> ExecAnswer {
    let answer = match judge_by_all(set, asked, setting, exec, fs_view) {
        ExecAnswer::Deny(denial) if setting.masks => match judge_by_all(&set.masked(), asked, setting, exec, fs_view) {
            ExecAnswer::Deny(_) => ExecAnswer::Deny(denial),
            answer => {
                masked(denial.reason);
                answer
            }
        },
        answer => answer,
    };
    match answer {
        ExecAnswer::Allow { .. } if (fs_view.over_limit)() => ExecAnswer::Deny(ExecDenial::denied(
            format!("`{}` matches or searches more files than the limit", shown(exec)),
            "name fewer files",
        )),
        answer => answer,
    }
}

fn judge_by_all(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    setting: &ExecContext,
    exec: &Exec,
    fs_view: &FsView<'_>,
) -> ExecAnswer {
    let Some(groups) = set.by_profiles() else {
        return judge_by(set, asked, setting, exec, fs_view);
    };
    let answers = groups.iter().map(|set| judge_by(set, asked, setting, exec, fs_view));
    let agreed = answers.reduce(|ours, theirs| match (ours, theirs) {
        (
            ExecAnswer::Allow { starts, writes },
            ExecAnswer::Allow {
                starts: other,
                writes: also,
            },
        ) => ExecAnswer::Allow {
            starts: starts.stricter(&other),
            writes: writes.into_iter().filter(|path| also.contains(path)).collect(),
        },
        (ExecAnswer::Deny(denial), _) | (_, ExecAnswer::Deny(denial)) => ExecAnswer::Deny(denial),
    });
    agreed.unwrap_or_else(|| ExecAnswer::Deny(not_granted(exec)))
}

fn judge_by(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    setting: &ExecContext,
    exec: &Exec,
    fs_view: &FsView<'_>,
) -> ExecAnswer {
    let names = identities(setting, exec);
    if let Some(denial) = denied_by_rule(set, asked, exec, &names, fs_view, setting) {
        return ExecAnswer::Deny(denial);
    }
    match &exec.caller {
        Starts::Anything => ExecAnswer::allow(Starts::Anything),
        Starts::Nothing => ExecAnswer::Deny(not_granted(exec)),
        Starts::Helpers(name) => helper(set, setting, exec, fs_view, name),
        Starts::Judged => judged(set, asked, setting, exec, fs_view, &names),
    }
}

/// Whether an exec below a program that may start anything can still be denied.
pub fn asks_below_anything(set: &PolicySet) -> bool {
    let denies = |rule: &Rule| rule.effect == RuleEffect::Deny && rule.commands.is_some();
    set.files.iter().flat_map(|file| &file.rules).any(denies)
}

fn not_granted(exec: &Exec) -> ExecDenial {
    ExecDenial {
        rule: None,
        code: "exec_not_granted".to_owned(),
        ruling: None,
        reason: format!("`{}` was started by a program that may start no other", shown(exec)),
        fix: "run it as a separate command, or add `runs: anything` to the rule of the program that starts it"
            .to_owned(),
    }
}

/// The actual arguments for people, at most 200 characters.
fn shown(exec: &Exec) -> String {
    let name = exec.path.file_name().unwrap_or_default().to_string_lossy();
    let words = exec.argv.iter().skip(1).map(String::as_str);
    let line = std::iter::once(name.as_ref())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ");
    shortened(&line, 200)
}

/// Names by which rules may refer to the program: its path in the workspace; its bare name if it is in a directory
/// where the command looks for programs; otherwise its absolute path.
fn identities(setting: &ExecContext, exec: &Exec) -> Vec<String> {
    let path = lexical(&exec.path);
    if let Ok(below) = path.strip_prefix(&setting.root) {
        let inside = format!("./{}", below.display());
        // No command can write a workspace directory that is searched for programs; what its author put there is
        // judged by `shadow`.
        let named = path.file_name().filter(|_| {
            let dir = path.parent();
            dir.is_some_and(|dir| setting.path.iter().any(|known| known == dir))
        });
        let name = named.map(|name| name.to_string_lossy().into_owned());
        return name.into_iter().chain([inside]).collect();
    }
    let absolute = path.display().to_string();
    if setting.may_write(&path) || setting.may_write(&exec.real) || exec.real.starts_with(&setting.root) {
        return vec![absolute];
    }
    let is_system = |dir: &Path| SYSTEM_DIRS.iter().any(|system| Path::new(system) == dir);
    let known = path
        .parent()
        .is_some_and(|dir| is_system(dir) || setting.path.iter().any(|known| known == dir));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    match name.filter(|_| known) {
        Some(name) => vec![name, absolute],
        None => vec![absolute],
    }
}

/// The working directory relative to the workspace.
fn dir_of(setting: &ExecContext, exec: &Exec) -> Option<String> {
    let below = exec.cwd.strip_prefix(&setting.root).ok()?;
    Some(below.to_string_lossy().into_owned())
}

fn read(
    set: &PolicySet,
    exec: &Exec,
    program: &str,
    dir: &str,
    fs_view: &FsView<'_>,
) -> Result<CommandReading, shell::CommandRefusal> {
    let granted = set.env_pass();
    shell::read_argv(&exec.argv, program, dir, fs_view, &set.grants(&granted, true))
}

/// Applies deny rules on commands that name the program, or one that runs in its place, whoever starts it.
fn denied_by_rule(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    exec: &Exec,
    names: &[String],
    fs_view: &FsView<'_>,
    setting: &ExecContext,
) -> Option<ExecDenial> {
    let rules: Vec<_> = set
        .files
        .iter()
        .flat_map(|file| &file.rules)
        .filter(|rule| rule.effect == RuleEffect::Deny && rule.commands.is_some())
        .collect();
    if rules.is_empty() {
        return None;
    }
    if exec.is_unread {
        return Some(ExecDenial::denied(
            format!(
                "run `{}`: the file cannot be read, so it may be a script of a program that the policy denies",
                shown(exec)
            ),
            "make the file readable for its owner (`chmod u+r`)",
        ));
    }
    let dir = dir_of(setting, exec).unwrap_or_default();
    let denied = |exec: &Exec, names: &[String]| denied_as(set, asked, &rules, exec, names, fs_view, &dir);
    denied(exec, names).or_else(|| {
        exec.interpreters.iter().find_map(|interpreter| {
            let Interpreter { path, real, argv } = interpreter.clone();
            let exec = Exec {
                path,
                real,
                argv,
                interpreters: Vec::new(),
                ..exec.clone()
            };
            denied(&exec, &identities(setting, &exec))
        })
    })
}

/// Applies them to one program with its words.
fn denied_as(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    rules: &[&Rule],
    exec: &Exec,
    names: &[String],
    fs_view: &FsView<'_>,
    dir: &str,
) -> Option<ExecDenial> {
    // A link may have another name than the program that it points to.
    let real = exec.real.file_name().map(|name| name.to_string_lossy().into_owned());
    let behind = real.filter(|real| names.iter().all(|name| name.rsplit('/').next() != Some(real)));
    let called = names
        .iter()
        .chain(&behind)
        .map(|name| (name.clone(), exec.argv.clone()));
    let from = |at: usize| Some((exec.argv.get(at)?.clone(), exec.argv.get(at..)?.to_vec()));
    let loaded = loaded(exec).into_iter().filter_map(from);
    for (name, argv) in called.chain(loaded).chain(parts(exec)) {
        let name = &name;
        let exec = &Exec { argv, ..exec.clone() };
        // Arguments that cannot be interpreted are judged as plain words.
        let mut reading = read(set, exec, name, dir, fs_view).unwrap_or_else(|_| CommandReading {
            commands: vec![shell::plain_words(&exec.argv, name)],
            ..CommandReading::default()
        });
        shell::look_below(&mut reading, &exceptions(set, asked), fs_view);
        shell::look_below_moved(&mut reading, &restricted(set), fs_view);
        for simple in &reading.commands {
            let hit = rules
                .iter()
                .find(|rule| forbids(rule, &Need::Command(simple), asked).is_ok());
            if let Some(rule) = hit {
                let reason = match &rule.because {
                    Some(because) => format!("run `{}`: {because}", shown(exec)),
                    None => format!("run `{}` is denied by rule {}", shown(exec), rule.name),
                };
                let fix = format!("use another approach, or narrow rule {} with `except`", rule.name);
                return Some(ExecDenial {
                    rule: Some(rule.name.clone()),
                    ..ExecDenial::denied(reason, fix)
                });
            }
        }
    }
    None
}

/// The programs that the dynamic loader may be asked to run (`ld-linux-x86-64.so.2 --argv0 ls /usr/bin/rm x`), by the
/// index of their words: its options take values of any kind, so any word could be the program.
fn loaded(exec: &Exec) -> Vec<usize> {
    let name = exec.real.file_name().unwrap_or_default().to_string_lossy();
    let starts = ["ld-linux", "ld-musl", "ld.so", "ld64.so"];
    let loads = starts.iter().any(|start| name.starts_with(start)) || name.starts_with("ld-") && name.ends_with(".so");
    let words = exec.argv.iter().enumerate().skip(1);
    let named = words.filter(|(_, word)| loads && !word.is_empty() && !word.starts_with('-'));
    named.map(|(at, _)| at).take(MOST_LOADED).collect()
}

/// The commands that an exec of git or of a multi-call binary may run, with the words as if each were called directly.
/// `git-push` is `git push`, whether the name comes from a link, a path or `argv[0]`; `busybox rm` is `rm`.
fn parts(exec: &Exec) -> Vec<(String, Vec<String>)> {
    let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let real = last(&exec.real.to_string_lossy());
    let first = exec.argv.first().map(|word| last(word)).unwrap_or_default();
    let behind = |from: usize| exec.argv.iter().skip(from).cloned();
    let mut found = Vec::new();
    if real == "git" || real.starts_with("git-") {
        for called in [last(&exec.path.to_string_lossy()), first, real] {
            if let Some(part) = called.strip_prefix("git-") {
                let argv = ["git", part].map(str::to_owned).into_iter().chain(behind(1)).collect();
                found.push(("git".to_owned(), argv));
            }
        }
        return found;
    }
    if !["busybox", "toybox", "coreutils"]
        .iter()
        .any(|many| real.starts_with(many))
    {
        return found;
    }
    found.push((first, exec.argv.clone()));
    if let Some(word) = exec.argv.get(1) {
        let part = word.strip_prefix("--coreutils-prog=").unwrap_or(word);
        found.push((
            part.to_owned(),
            std::iter::once(part.to_owned()).chain(behind(2)).collect(),
        ));
    }
    found
}

/// The most words of the loader that are examined; it has few options of its own.
const MOST_LOADED: usize = 16;

/// A program that another one starts as its helper: it must be on that program's list, and have harmless arguments
/// if the list has them judged.
fn helper(set: &PolicySet, setting: &ExecContext, exec: &Exec, fs_view: &FsView<'_>, list: &str) -> ExecAnswer {
    let Some(helpers) = helpers::of(list) else {
        return ExecAnswer::Deny(not_granted(exec));
    };
    let starts = Starts::Helpers(list.to_owned());
    // A shell here only starts further helpers, each of which is judged again.
    if helpers.include_shell(&exec.path, &exec.real) {
        return ExecAnswer::allow(starts);
    }
    if !helpers.include(&exec.real) {
        return ExecAnswer::Deny(not_granted(exec));
    }
    let name = exec.real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !helpers.judged {
        return ExecAnswer::allow(starts);
    }
    let dir = dir_of(setting, exec).unwrap_or_default();
    let refusal = match read(set, exec, &name, &dir, fs_view) {
        Ok(reading) => reading.commands.iter().find_map(|simple| simple.concern().cloned()),
        Err(refusal) => Some(refusal),
    };
    match refusal {
        Some(refusal) => ExecAnswer::Deny(ExecDenial::denied(
            format!("run `{}`: {}", shown(exec), refusal.reason),
            refusal.fix,
        )),
        None => ExecAnswer::allow(starts),
    }
}

fn judged(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    setting: &ExecContext,
    exec: &Exec,
    fs_view: &FsView<'_>,
    names: &[String],
) -> ExecAnswer {
    let rest = exec.argv.get(1..).unwrap_or_default();
    let dir = dir_of(setting, exec);
    let shadow = PathShadowing::of(set, setting, exec);
    let is_own = |name: &&String| shadow.as_ref().is_none_or(|shadow| !shadow.is_called(name));
    let names: Vec<String> = names.iter().filter(is_own).cloned().collect();
    let same = |ruled: &&RuledCommand| {
        ruled.rest == rest
            && (names.contains(&ruled.program)
                || shadow.is_none() && names.iter().any(|name| installed_as(set, name) == Some(&ruled.program)))
            && dir.as_ref().is_some_and(|dir| ruled.dirs.contains(dir))
            && (!ruled.launched
                || dir
                    .as_ref()
                    .is_some_and(|dir| is_vouched(set, exec, &ruled.program, dir, fs_view)))
    };
    if setting.activates && asks_of_system(exec, &names) {
        return ExecAnswer::allow(Starts::Nothing);
    }
    if let Some(ruled) = setting.ruled.iter().find(same) {
        return ExecAnswer::allow(ruled.starts.clone());
    }
    let Some(dir) = dir else {
        return ExecAnswer::Deny(ExecDenial::denied(
            format!("run `{}` outside the workspace", shown(exec)),
            "stay inside the workspace",
        ));
    };
    let mut first: Option<ExecDenial> = None;
    for name in &names {
        match by_name(set, asked, exec, name, &dir, fs_view, shadow.as_ref()) {
            Ok(answer) => return answer,
            Err(denial) => first = first.or(Some(denial)),
        }
    }
    let shadowed = shadow.map(|shadow| shadow.denial(exec));
    ExecAnswer::Deny(shadowed.or(first).unwrap_or_else(|| not_granted(exec)))
}

/// Whether it is a system program that an `activate` script starts.
fn asks_of_system(exec: &Exec, names: &[String]) -> bool {
    const ASKED: [&str; 3] = ["uname", "basename", "dirname"];
    let system = exec.real.starts_with("/usr") || exec.real.starts_with("/bin");
    system && names.iter().any(|name| ASKED.contains(&name.as_str()))
}

/// The installed program that a workspace path stands for.
fn installed_as<'a>(set: &PolicySet, name: &'a str) -> Option<&'a str> {
    shell::installed_name(set.profiles(), name)
}

/// Whether the path from a runner to the installed program is still as it was when it was ruled on.
fn is_vouched(set: &PolicySet, exec: &Exec, program: &str, dir: &str, fs_view: &FsView<'_>) -> bool {
    let reading = read(set, exec, program, dir, fs_view);
    reading.is_ok_and(|reading| {
        let mut launches = reading.commands.iter().flat_map(|simple| &simple.launches);
        launches.all(|launch| launch.unvouched.is_none())
    })
}

fn by_name(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    exec: &Exec,
    name: &str,
    dir: &str,
    fs_view: &FsView<'_>,
    shadow: Option<&PathShadowing>,
) -> Result<ExecAnswer, ExecDenial> {
    let denial = |rule: Option<String>, reason: String, fix: String| ExecDenial {
        rule,
        ..ExecDenial::denied(reason, fix)
    };
    let refused = |refusal: shell::CommandRefusal| {
        let reason = format!("run `{}`: {}", shown(exec), refusal.reason);
        ExecDenial {
            ruling: Some(refusal.code),
            ..denial(None, reason, refusal.fix)
        }
    };
    let mut reading = read(set, exec, name, dir, fs_view).map_err(refused)?;
    if let Some(shadow) = shadow {
        let launches = reading.commands.iter_mut().flat_map(|simple| &mut simple.launches);
        for launch in launches.filter(|launch| launch.program == name) {
            launch.unvouched = Some(shadow.refusal());
        }
    }
    shell::look_below(&mut reading, &exceptions(set, asked), fs_view);
    shell::look_below_moved(&mut reading, &restricted(set), fs_view);
    let context = Context {
        set,
        asked,
        fs_view,
        uses: &super::Uses::default(),
        witness: true,
    };
    let readings = [reading];
    let ruling = rule_on(&context, &crate::base::access::Access::none(), &readings);
    match ruling.decision {
        Decision::Allow | Decision::Modify => {}
        Decision::Suspend => {
            let reason = format!(
                "`{}` waits for approval, and was not known before the command ran",
                shown(exec)
            );
            let fix = "write the words out, so that the command can be held before it starts".to_owned();
            return Err(ExecDenial {
                ruling: Some(ruling.code),
                ..denial(ruling.rule, reason, fix)
            });
        }
        Decision::Deny => {
            return Err(ExecDenial {
                ruling: Some(ruling.code),
                ..denial(ruling.rule, ruling.reason, ruling.fix)
            });
        }
    }
    let [reading] = &readings;
    let starts = starts_of(set, asked, reading, name);
    let writes: Vec<WritePath> = match ruling.writes {
        Writes::Paths { paths, .. } => paths,
        Writes::Nothing | Writes::Tree => Vec::new(),
    };
    Ok(ExecAnswer::Allow { starts, writes })
}

/// What the program may start: a wrapper's command is judged; otherwise according to its profile and the rules that
/// cover it.
pub(super) fn starts_of(set: &PolicySet, asked: &PolicyInput<'_>, reading: &CommandReading, name: &str) -> Starts {
    let wrapper = shell::is_wrapper(name);
    let lifted = |simple: &Simple| super::decide::effect_by_rules(set, asked, simple).starts;
    match reading.commands.first() {
        Some(simple) if wrapper && !simple.via.is_empty() => Starts::Judged,
        Some(simple) => lifted(simple),
        None => Starts::Nothing,
    }
}

#[cfg(test)]
mod tests;

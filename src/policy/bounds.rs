//! The fixed bounds that no rule lifts, or only one that names the path literally: places outside the workspace,
//! secrets, protected paths, special files, unusual names.

use super::files::PathPattern;
use super::hosts;
use super::intersect::intersection;
use super::model::{Policy, PolicySet, Rule};
use super::name_folding::{fold, fold_path, is_deceptive, is_invisible};
use super::needs::{Need, ShellReader, prefix_of};
use super::protected::{self, Below, ProtectedName};
use super::rule_match::{concerns, opens_repository};
use super::secrets_like::{is_masked_by_name, secret_like, secret_like_dir};
use super::shell::CommandRefusal;
use crate::base::access::{FsView, PathStatus, ResolvedPath};
use crate::base::git_config;
use crate::base::ruling::PolicyInput;
use crate::tools::{CommandAccessKind, builtin_for};

/// Why the bounds refuse an access, whatever the rules say.
pub fn refuse(
    need: &Need<'_>,
    policy: &Policy,
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    fs_view: &FsView<'_>,
) -> Option<CommandRefusal> {
    if let Need::ShellWrite(used, _) = need
        && used.place.is_none()
    {
        if !policy.writable_dirs(asked).is_empty() {
            // It is judged with its real path at its exec.
            return None;
        }
        let reason = format!(
            "where `{}` is written is not known before the command runs, and no rule allows writing anywhere",
            used.asked
        );
        return Some(CommandRefusal::new(
            "opaque_write",
            reason,
            format!(
                "add a rule that allows {} there",
                builtin_for(CommandAccessKind::Writes).name
            ),
        ));
    }
    if let Need::Url(url) = need {
        return refuse_url(url);
    }
    let (place, writing) = need.place()?;
    plain_bounds(place, writing, set)
        .or_else(|| {
            if writing {
                written(place, need, policy, set, asked, fs_view)
            } else {
                None
            }
        })
        .or_else(|| secret(place, writing, need, policy, set, asked))
}

fn refuse_url(url: &str) -> Option<CommandRefusal> {
    let why = hosts::target(url).err()?;
    let fix = "ask for a plain https URL with a host name and without a user part";
    Some(CommandRefusal::new(
        format!("url_refused:{}", why.as_str()),
        why.to_string(),
        fix,
    ))
}

fn plain_bounds(place: &ResolvedPath, writing: bool, set: &PolicySet) -> Option<CommandRefusal> {
    let path = place.shown();
    if is_deceptive(&place.path) || is_deceptive(&place.asked) {
        let reason = format!(
            "the name {:?} contains control or bidirectional characters, or bytes that are not UTF-8",
            place.asked
        );
        return Some(CommandRefusal::new("deceptive_name", reason, "use a plain name"));
    }
    if !place.inside {
        let reason = format!("{path} lies outside the workspace");
        return Some(CommandRefusal::new(
            "outside_path",
            reason,
            "use a path inside the workspace",
        ));
    }
    if set.is_hidden(&place.path) {
        let reason = format!("{path} belongs to a run directory");
        return Some(CommandRefusal::new(
            "hidden_path",
            reason,
            "read results as `overnight:result/ID`",
        ));
    }
    if place.found == PathStatus::Special {
        let reason = format!("{path} is a device, socket or pipe");
        return Some(CommandRefusal::new("special_file", reason, "use a regular file"));
    }
    if writing && place.found == PathStatus::HardLinked {
        let reason = format!("{path} has another hard link, which may be outside the workspace");
        let fix = format!("delete {path} and create it again");
        return Some(CommandRefusal::new("hard_link", reason, fix));
    }
    None
}

fn secret(
    place: &ResolvedPath,
    writing: bool,
    need: &Need<'_>,
    policy: &Policy,
    set: &PolicySet,
    asked: &PolicyInput<'_>,
) -> Option<CommandRefusal> {
    if set.masked && !writing && matches!(need, Need::ShellRead(_, ShellReader::Command)) && is_masked(&place.path) {
        return None;
    }
    let why = if matches!(place.found, PathStatus::Dir | PathStatus::NewDir) {
        secret_like_dir(&place.path)?
    } else {
        // A link's name may differ from its target's.
        let name = place.asked.rsplit('/').next().unwrap_or_default();
        let other = || (place.path.rsplit('/').next() != Some(name)).then_some(name);
        secret_like(&place.path).or_else(|| other().and_then(secret_like))?
    };
    if opens_secret(policy, need, asked) {
        return None;
    }
    let path = place.shown();
    let reason = format!("{path} looks like a secret: {why}");
    let fix = format!("only a rule that names {path} itself in `paths` opens it");
    let fix = match in_git(&place.path) {
        true => format!("leave `.git` out (`find . -not -path './.git/*'`), or list files with `git ls-files`; {fix}"),
        false => fix,
    };
    Some(CommandRefusal::new("secret_like_path", reason, fix))
}

/// Whether a rule names the secret-like path of an access literally.
pub fn opens_secret(policy: &Policy, need: &Need<'_>, asked: &PolicyInput<'_>) -> bool {
    need.place().is_some_and(|(place, writing)| {
        names(policy, need, asked, |pattern| {
            pattern.names_secret() && pattern.covers(place, writing)
        })
    })
}

/// Whether the sandbox decides what commands see of a secret-like path: it covers or cleans it, or leaves it visible as a
/// certificate or part of an installed package. Below `.git` it does not look where git keeps objects and branches.
fn is_masked(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let named = secret_like(path).is_some() || secret_like_dir(path).is_some();
    let is_examined = || is_masked_by_name(path) && !path.split('/').any(git_config::holds_no_settings);
    named && (!in_git(path) || git_config::is_settings(name) || is_examined())
}

fn in_git(path: &str) -> bool {
    path.split('/').any(|part| part == ".git")
}

fn written(
    place: &ResolvedPath,
    need: &Need<'_>,
    policy: &Policy,
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    fs_view: &FsView<'_>,
) -> Option<CommandRefusal> {
    let path = place.shown();
    let last = place.path.rsplit('/').next().unwrap_or_default();
    if place.path.chars().any(is_invisible) {
        let reason = format!("the name {:?} contains invisible characters", place.asked);
        return Some(CommandRefusal::new("deceptive_name", reason, "use a plain name"));
    }
    if last.starts_with('-') {
        let reason = format!("the name {path} begins with a dash and could be taken for an option");
        return Some(CommandRefusal::new("leading_dash", reason, "use another name"));
    }
    if let Some(refusal) = protects(place, need, policy, set, asked) {
        return Some(refusal);
    }
    if need.is_git_repository() {
        return None;
    }
    if let Some(refusal) = in_repository(place, policy, fs_view) {
        return Some(refusal);
    }
    let below = if matches!(place.found, PathStatus::Dir | PathStatus::NewDir) {
        below(place, set, fs_view)
    } else {
        None
    }?;
    let reason = format!("{path} contains {below}, which is protected");
    Some(CommandRefusal::new(
        "protected_path",
        reason,
        "name the files to be changed instead of the directory",
    ))
}

/// The refusal of a write into a git repository that is not named `.git`, or that the write would make one.
fn in_repository(place: &ResolvedPath, policy: &Policy, fs_view: &FsView<'_>) -> Option<CommandRefusal> {
    let exists = |path: &str| is_there(path, fs_view);
    // A directory that is changed as a whole may be one itself.
    let within = (place.found == PathStatus::Dir && !place.path.is_empty()).then(|| format!("{}/config", place.path));
    let dir = protected::repository_above(within.as_deref().unwrap_or(&place.path), &exists)?;
    if policy.opens_repository_dir(dir, place) {
        return None;
    }
    let path = place.shown();
    let shown = if dir.is_empty() { "the workspace" } else { dir };
    let reason = format!(
        "{path} is protected (git internals: with `HEAD`, `objects` and `refs` in it, git takes {shown} for a repository, \
         and its configuration can run programs)"
    );
    let fix = match dir {
        "" => "use other names".to_owned(),
        dir => format!("only a rule that names `{dir}/` or a path in it in `paths` opens it for writing"),
    };
    Some(CommandRefusal::new("protected_path", reason, fix))
}

/// The refusal of a write to a protected name that no rule opens, anything below one, or a file of the run itself.
pub(super) fn protects(
    place: &ResolvedPath,
    need: &Need<'_>,
    policy: &Policy,
    set: &PolicySet,
    asked: &PolicyInput<'_>,
) -> Option<CommandRefusal> {
    let path = place.shown();
    let fix = |name: &str| format!("only a rule that names {name} itself in `paths` opens it for writing");
    if let Some(entry) = protected::entry_of(&place.path)
        && !opened(place, entry, need, policy, asked)
    {
        let reason = format!("{path} is protected ({})", entry.what);
        let fix = match need {
            Need::ShellWrite(_, Some(simple)) if need.is_git_repository() => {
                let command = prefix_of(simple);
                format!("only an `allow` rule for `{command}` with `.git/**` in its own `paths` opens it")
            }
            _ => fix(path),
        };
        return Some(CommandRefusal::new("protected_path", reason, fix));
    }
    if let Some(entry) = protected::entry_above(&set.above, &place.path) {
        let reason = format!(
            "{path} is protected ({}) by its path from the top of the repository, which is above the workspace",
            entry.what
        );
        let how = "run at the top of the repository, with a rule that names the path from there in `paths`";
        return Some(CommandRefusal::new("protected_path", reason, how));
    }
    let is_hook = |path: &str| fold_path(path).last().is_some_and(|name| name == TEST_HOOK);
    if is_hook(&place.path)
        && set.freezes_tests()
        && !names(policy, need, asked, |pattern| {
            pattern.spelled().is_some_and(is_hook) && pattern.covers(place, true)
        })
    {
        let reason = format!("{path} is loaded by every test beside and below it, and a rule denies writing tests");
        return Some(CommandRefusal::new("protected_path", reason, fix(path)));
    }
    if set.is_run_file(&place.path) {
        let reason = format!(
            "{path} is the policy or recipe of this run, or is in its PATH, where checks find programs by name"
        );
        return Some(CommandRefusal::new(
            "protected_path",
            reason,
            "change it outside the run",
        ));
    }
    None
}

/// Whether a rule opens a protected path: the repository's own directory by the rule for the git command, as the sandbox
/// opens it, anything else by naming it.
fn opened(
    place: &ResolvedPath,
    entry: &ProtectedName,
    need: &Need<'_>,
    policy: &Policy,
    asked: &PolicyInput<'_>,
) -> bool {
    if let Need::ShellWrite(_, Some(simple)) = need
        && need.is_git_repository()
    {
        return policy.allowing().any(|rule| opens_repository(rule, simple, asked));
    }
    names(policy, need, asked, |pattern| {
        pattern.names_protected(entry) && pattern.covers(place, true)
    })
}

/// pytest loads it for every test in its directory and below, so it is protected where a rule freezes tests.
pub(super) const TEST_HOOK: &str = "conftest.py";
/// Conventional paths of tests: a rule that denies writing one of them freezes tests.
const TESTS: [&str; 6] = [
    "tests/test_a.py",
    "tests/unit/test_a.py",
    "test/test_a.py",
    "test_a.py",
    "src/test_a.py",
    "src/a_test.py",
];

/// Whether an entry is at a path whose directory has no links in it. A link counts wherever it leads: the path is then
/// resolved to another one.
fn is_there(path: &str, fs_view: &FsView<'_>) -> bool {
    let place = (fs_view.locate)(path);
    place.found != PathStatus::Nothing || place.path != path
}

/// A protected path below a directory that is changed as a whole.
fn below(place: &ResolvedPath, set: &PolicySet, fs_view: &FsView<'_>) -> Option<String> {
    let dir = fold_path(&place.path);
    let ours = set.protect.iter().filter(|path| fold_path(path).starts_with(&dir));
    if let Some(path) = ours.into_iter().next() {
        return Some(path.clone());
    }
    if let Some(entry) = protected::below_above(&set.above, &place.path) {
        return Some(entry.path.to_owned());
    }
    protected::below(&place.path).into_iter().find_map(|look| match look {
        Below::Always(path) => Some(path),
        Below::Path(path) => is_there(&path, fs_view).then_some(path),
        Below::Pattern(pattern) => (fs_view.expand)(&pattern).into_iter().next(),
    })
}

/// Whether an allow rule for this access has a path pattern with the property.
fn names(policy: &Policy, need: &Need<'_>, asked: &PolicyInput<'_>, has: impl Fn(&PathPattern) -> bool) -> bool {
    let writing = matches!(need, Need::Write(_) | Need::ShellWrite(..));
    policy
        .allowing()
        .filter(|rule| concerns(rule, need, asked, writing))
        .any(|rule| rule.paths.iter().flatten().any(&has))
}

impl Policy {
    /// Whether an allow rule for writing names a git repository that is not named `.git`, or a path in it, and covers the
    /// place.
    pub(super) fn opens_repository_dir(&self, dir: &str, place: &ResolvedPath) -> bool {
        let names = |lead: &str| {
            let rest = lead.strip_prefix(dir).filter(|_| !dir.is_empty());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.allowing().filter(|rule| rule.is_about_writing()).any(|rule| {
            let mut patterns = rule.paths.iter().flatten();
            patterns.any(|pattern| names(&pattern.directory()) && pattern.covers(place, true))
        })
    }

    /// The directories in which some allow rule lets a command or `write_file` write, from the literal prefixes of its
    /// paths.
    pub(super) fn writable_dirs(&self, asked: &PolicyInput<'_>) -> Vec<String> {
        let about = |rule: &&Rule| {
            let by_command = rule.is_about(asked.tool, asked.kind, asked.origin) && rule.paths.is_some();
            let by_tool = rule.is_about_access(CommandAccessKind::Writes);
            by_command || (by_tool && rule.with.is_empty() && rule.commands.is_none())
        };
        let mut dirs: Vec<String> = Vec::new();
        for rule in self.allowing().filter(about) {
            let leads: Vec<String> = match &rule.paths {
                Some(patterns) => patterns.iter().map(|pattern| pattern.directory()).collect(),
                None => vec![String::new()],
            };
            dirs.extend(leads);
        }
        dirs.sort();
        dirs.dedup();
        dirs
    }
}

impl PolicySet {
    /// The directories in which every file lets something be written, from the literal prefixes of the rules' paths.
    pub(super) fn writable_dirs(&self, asked: &PolicyInput<'_>) -> Vec<String> {
        let inside = |path: &str, dir: &str| dir.is_empty() || path == dir || path.starts_with(&format!("{dir}/"));
        let lists = self.files.iter().map(|file| file.writable_dirs(asked));
        intersection(lists, |one, other| inside(one, other))
    }

    /// Whether a workspace path belongs to a run directory.
    pub(super) fn is_hidden(&self, path: &str) -> bool {
        let parts = fold_path(path);
        parts.first().is_some_and(|first| first == ".overnight")
            || self.hidden.iter().any(|dir| is_at_or_below(&parts, dir))
    }

    /// Whether some rule denies writing tests.
    pub(super) fn freezes_tests(&self) -> bool {
        let mut rules = self
            .files
            .iter()
            .flat_map(|file| &file.rules)
            .filter(|rule| rule.closes_paths());
        rules.any(|rule| {
            let mut patterns = rule.paths.iter().flatten();
            patterns.any(|pattern| TESTS.iter().any(|test| pattern.touches_file(test, test)))
        })
    }

    fn is_run_file(&self, path: &str) -> bool {
        let parts = fold_path(path);
        self.protect.iter().any(|file| is_at_or_below(&parts, file))
    }
}

fn is_at_or_below(parts: &[String], dir: &str) -> bool {
    let wanted: Vec<String> = dir.split('/').filter(|part| !part.is_empty()).map(fold).collect();
    !wanted.is_empty() && parts.starts_with(&wanted)
}

//! Combines several policy files: sandbox, limits, environment, protected and unreadable paths.

use super::bounds::refuse;
use super::hosts::HostPattern;
use super::model::{DeliveryLimits, Policy, PolicySet, Rule, RuleEffect, SHELL, SandboxWish};
use super::names::fold_path;
use super::needs::{Need, ShellReader};
use super::profiles::OwnProfiles;
use super::protected;
use super::rule_match::{allows, file_fits, forbids};
use super::shell::FileUse;
use crate::base::access::{FsView, ResolvedPath};
use crate::base::budget::Budget;
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::event::PolicyText;
use crate::base::ruling::PolicyInput;
use crate::diag::SourceFiles;
use serde_json::Value;
use std::sync::Arc;

/// The paths that commands must not write, for the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// Workspace paths, including everything below them.
    pub paths: Vec<String>,
    /// Paths relative to any directory.
    pub anywhere: Vec<String>,
    /// Like `paths` and `anywhere`, but the last component is only a prefix.
    pub beginnings: Vec<String>,
    pub beginnings_anywhere: Vec<String>,
    /// Like `anywhere`, but the last component is only a suffix.
    pub endings_anywhere: Vec<String>,
    /// Literal paths that every file opens by name.
    pub opened: Vec<String>,
}

impl PolicySet {
    /// The combined sandbox requirements: the strictest level, and only hosts and toolchains that all files agree on.
    ///
    /// A file without `network` grants no hosts; one without `toolchains` accepts those of the others. Caches are kept
    /// if every file says so; a recipe's own policy can only object.
    pub fn sandbox(&self) -> SandboxWish {
        let spoken = self
            .files
            .iter()
            .filter(|file| !file.narrows || file.sandbox.level.is_some());
        let level = spoken.map(|file| file.sandbox.level.unwrap_or_default()).max();
        let toolchains = self.files.iter().filter_map(|file| file.sandbox.toolchains.clone());
        let toolchains =
            toolchains.reduce(|ours, theirs| ours.into_iter().filter(|name| theirs.contains(name)).collect());
        SandboxWish {
            level: level.unwrap_or_default(),
            network: self.network().iter().map(ToString::to_string).collect(),
            toolchains: toolchains.unwrap_or_default(),
            keep_caches: self
                .files
                .iter()
                .all(|file| file.sandbox.keep_caches.unwrap_or(file.narrows))
                && self.files.iter().any(|file| !file.narrows),
        }
    }

    /// The first file that names toolchains without this one: its name, and whether it is the recipe's own policy.
    pub fn without_toolchain(&self, toolchain: &str) -> Option<(&str, bool)> {
        let lacks = |file: &&Policy| {
            let named = file.sandbox.toolchains.as_ref();
            named.is_some_and(|named| !named.iter().any(|name| name == toolchain))
        };
        let file = self.files.iter().find(lacks)?;
        Some((&file.source.name, file.narrows))
    }

    /// Hosts that every file lets commands reach.
    pub fn network(&self) -> Vec<HostPattern> {
        self.agreed(|file| file.sandbox.network.clone())
            .into_iter()
            .reduce(|ours, theirs| {
                let narrower = |a: &[HostPattern], b: &[HostPattern]| -> Vec<HostPattern> {
                    a.iter()
                        .filter(|one| b.iter().any(|other| other.includes(one)))
                        .cloned()
                        .collect()
                };
                let mut both = narrower(&ours, &theirs);
                both.extend(narrower(&theirs, &ours).into_iter().filter(|one| !ours.contains(one)));
                both
            })
            .unwrap_or_default()
    }

    /// Names of environment variables that every file passes to commands.
    pub fn env_pass(&self) -> Vec<String> {
        self.agreed(|file| file.env_pass.clone())
            .into_iter()
            .reduce(|ours, theirs| ours.into_iter().filter(|name| theirs.contains(name)).collect())
            .unwrap_or_default()
    }

    /// What each file grants. A file that does not say grants nothing, or is left out if it can only restrict.
    fn agreed<T>(&self, grant: impl Fn(&Policy) -> Option<Vec<T>>) -> Vec<Vec<T>> {
        self.files
            .iter()
            .filter_map(|file| match grant(file) {
                None if file.narrows => None,
                granted => Some(granted.unwrap_or_default()),
            })
            .collect()
    }

    /// The profiles with which these files read commands: those of the first file. See [`PolicySet::by_profiles`].
    pub(super) fn profiles(&self) -> Option<&OwnProfiles> {
        self.files.first().and_then(|file| file.profiles.as_deref())
    }

    /// The files in groups with equal profiles, if there is more than one group: a profile of one file must never
    /// extend what another file grants. A restricting file without profiles reads commands like the first file.
    pub(super) fn by_profiles(&self) -> Option<Vec<PolicySet>> {
        let first = self.files.first()?.profiles.clone();
        let of = |file: &Policy| match &file.profiles {
            None if file.narrows => first.clone(),
            own => own.clone(),
        };
        let same = |one: &Option<Arc<OwnProfiles>>, other: &Option<Arc<OwnProfiles>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if self.files.iter().all(|file| same(&of(file), &first)) {
            return None;
        }
        let mut groups: Vec<PolicySet> = Vec::new();
        for file in &self.files {
            let profiles = of(file);
            let file = Policy {
                profiles: profiles.clone(),
                ..file.clone()
            };
            let group = groups.iter_mut().find(|group| {
                group
                    .files
                    .first()
                    .is_some_and(|other| same(&other.profiles, &profiles))
            });
            match group {
                Some(group) => group.files.push(file),
                None => groups.push(PolicySet {
                    files: vec![file],
                    protect: self.protect.clone(),
                    hidden: self.hidden.clone(),
                    above: self.above.clone(),
                    withheld: self.withheld,
                }),
            }
        }
        Some(groups)
    }

    /// The same policies for a program that the sandbox shows nothing of secret-like files.
    pub(super) fn withholding(&self) -> Self {
        Self {
            withheld: true,
            ..self.clone()
        }
    }

    /// The lowest value of each limit.
    pub fn limits(&self) -> Budget {
        self.files
            .iter()
            .fold(Budget::default(), |limits, file| limits.lowered_by(&file.limits))
    }

    /// The limits on the size of a delivered change: the lowest values.
    pub fn delivery_limits(&self) -> DeliveryLimits {
        self.files.iter().fold(DeliveryLimits::default(), |limits, file| {
            limits.lowered_by(file.delivery)
        })
    }

    /// The files as they were read, for the journal.
    pub fn texts(&self) -> Vec<PolicyText> {
        let text = |file: &Policy| PolicyText {
            narrows: file.narrows,
            ..file.source.clone()
        };
        self.files.iter().map(text).collect()
    }

    /// The names of all files, as they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.source.name.as_str())
    }

    /// Both sets combined; `other` (a recipe's own policy) can only restrict.
    #[must_use]
    pub fn narrowed_by(mut self, other: &PolicySet) -> PolicySet {
        let narrowing = other.files.iter().cloned().map(|file| Policy { narrows: true, ..file });
        self.files.extend(narrowing);
        self.protect.extend(other.protect.iter().cloned());
        self.hidden.extend(other.hidden.iter().cloned());
        self
    }

    /// Denies commands that begin with the words of an entry of `never` and, if `only` is set, those that begin with
    /// the words of none of its entries. Used for the settings of a recipe.
    ///
    /// # Errors
    /// An entry is not a list of plain words. The error is a phrase for people.
    pub fn limit_commands(&mut self, only: Option<&[String]>, never: &[String]) -> Result<(), String> {
        let quoted = |entries: &[String]| serde_json::to_string(entries).unwrap_or_default();
        let mut text = "version: 1\nrules:\n".to_owned();
        let because = "because: the settings of the recipe leave the command out";
        if let Some(only) = only {
            let except = quoted(only);
            text.push_str(&format!(
                "  - {{ id: 'settings:core', deny: run_shell_command, except: {except}, {because} }}\n"
            ));
        }
        if !never.is_empty() {
            let commands = quoted(never);
            text.push_str(&format!(
                "  - {{ id: 'settings:exclude', deny: run_shell_command, commands: {commands}, {because} }}\n"
            ));
        }
        let source = super::PolicySource {
            name: "settings".to_owned(),
            text,
        };
        let loaded = super::load(&mut SourceFiles::new(), &[source], &super::KnownTools::builtin());
        let (limits, _) = loaded.map_err(|problems| {
            let first = problems.into_iter().map(|problem| problem.message).next();
            first.unwrap_or_default()
        })?;
        if let Some(first) = self.files.first_mut() {
            first.rules.extend(limits.files.into_iter().flat_map(|file| file.rules));
        }
        Ok(())
    }

    /// Protects these workspace paths from writing: the policy and recipe files of the run.
    pub fn protect(&mut self, paths: impl IntoIterator<Item = String>) {
        self.protect.extend(paths);
    }

    /// Hides these workspace directories from every call: run directories.
    pub fn hide(&mut self, dirs: impl IntoIterator<Item = String>) {
        self.hidden.extend(dirs);
    }

    /// Sets the path of the workspace from the top of its repository, empty at the top: protected names hold from there
    /// as well. Rules, which are relative to the workspace, do not open a name that begins above it.
    pub fn place_in_repository(&mut self, dir: &str) {
        self.above = fold_path(dir);
    }

    /// What commands must not write, except what every file opens by name.
    pub fn protected(&self) -> Protected {
        let mut all = Protected {
            paths: self.protect.clone(),
            ..Protected::default()
        };
        for entry in protected::LIST {
            if entry.ending {
                all.endings_anywhere.push(entry.path.to_owned());
                continue;
            }
            let list = match (entry.anywhere, entry.prefix) {
                (false, false) => &mut all.paths,
                (true, false) => &mut all.anywhere,
                (false, true) => &mut all.beginnings,
                (true, true) => &mut all.beginnings_anywhere,
            };
            list.push(entry.path.to_owned());
        }
        if self.freezes_tests() {
            all.anywhere.push(super::bounds::TEST_HOOK.to_owned());
        }
        all.opened = self.opened();
        all
    }

    /// Protected paths that every file names literally in an allow rule for writing or for commands.
    fn opened(&self) -> Vec<String> {
        let named = |policy: &Policy| -> Vec<String> {
            let allows = policy.rules.iter().filter(|rule| rule.effect == RuleEffect::Allow);
            let writing = allows.filter(|rule| rule.is_about_builtin("write_file") || rule.is_about_builtin(SHELL));
            let spelled = writing
                .flat_map(|rule| rule.paths.iter().flatten())
                .filter_map(|pattern| pattern.spelled());
            spelled
                .filter(|path| protected::entry_of(path).is_some())
                .map(ToOwned::to_owned)
                .collect()
        };
        let mut lists = self.files.iter().map(named);
        let first = lists.next().unwrap_or_default();
        lists.fold(first, |ours, theirs| {
            ours.into_iter().filter(|path| theirs.contains(path)).collect()
        })
    }

    /// Whether a search tool or, for `run_shell_command`, a command must not read a file: it is secret-like, hidden,
    /// denied, or (for tools other than the shell) not covered. No call was ruled on, so a rule with conditions on
    /// arguments covers nothing.
    pub fn unreadable(&self, tool: &str, kind: ToolKind, path: &str) -> bool {
        self.is_unreadable(tool, kind, path, false)
    }

    /// As [`PolicySet::unreadable`], for a file that an allowed call of the tool found: the arguments of the call were
    /// ruled on, so only the paths of its rules count.
    pub fn is_withheld(&self, tool: &str, kind: ToolKind, path: &str) -> bool {
        self.is_unreadable(tool, kind, path, true)
    }

    fn is_unreadable(&self, tool: &str, kind: ToolKind, path: &str, ruled: bool) -> bool {
        let used = FileUse::of_tree(path);
        let place = ResolvedPath::of_tree(path);
        let asked = PolicyInput {
            tool,
            kind,
            origin: &ToolOrigin::Builtin,
            args: &Value::Null,
        };
        let shell = tool == SHELL;
        let need = if shell {
            Need::ShellRead(&used, ShellReader::Command)
        } else {
            Need::Read(&place)
        };
        let locate = |_: &str| place.clone();
        let expand = |_: &str| Vec::new();
        let terrain = FsView {
            locate: &locate,
            expand: &expand,
            over_limit: &|| false,
            below: &|_| None,
        };
        let covers = |rule: &Rule| match ruled {
            true => rule.is_about(tool, kind, asked.origin) && file_fits(rule, &place, false).is_ok(),
            false => allows(rule, &need, &asked).is_ok(),
        };
        self.files.iter().any(|policy| {
            let strict = policy
                .rules
                .iter()
                .filter(|rule| matches!(rule.effect, RuleEffect::Deny | RuleEffect::Suspend));
            let mut allow = policy.rules.iter().filter(|rule| rule.effect == RuleEffect::Allow);
            refuse(&need, policy, self, &asked, &terrain).is_some()
                || strict
                    .into_iter()
                    .any(|rule| rule.is_narrowed() && forbids(rule, &need, &asked).is_ok())
                || (!shell && !allow.any(covers))
        })
    }
}

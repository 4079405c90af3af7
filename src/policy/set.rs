//! Combines several policy files: sandbox, limits, environment, unreadable paths and those of the run itself.

use super::bounds::{opens_secret, refuse};
use super::hosts::HostPattern;
use super::intersect::intersection;
use super::lexical_access::without_tree;
use super::model::{DeliveryLimits, Policy, PolicySet, RequestedSandbox, Rule, SHELL};
use super::name_folding::fold_path;
use super::needs::{Need, ShellReader};
use super::profiles::OwnProfiles;
use super::rule_match::{allows, file_fits, forbids};
use super::shell::{FileUse, Grants};
use crate::base::access::ResolvedPath;
use crate::base::budget::Budget;
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::event::PolicyText;
use crate::base::ruling::PolicyInput;
use crate::tools::{CommandAccessKind, builtin_for};
use serde_json::Value;
use std::sync::Arc;

impl PolicySet {
    /// These files for a workspace at the top of its repository, without paths of a run.
    pub(super) fn of(files: Vec<Policy>) -> Self {
        Self {
            files,
            protect: Vec::new(),
            hidden: Vec::new(),
            above: Vec::new(),
            masked: false,
        }
    }

    /// The combined sandbox requirements: the strictest level, and only hosts and toolchains that all files agree on.
    ///
    /// A file without `network` grants no hosts; one without `toolchains` accepts those of the others. Caches are kept
    /// if every file says so; a recipe's own policy can only object.
    pub fn sandbox(&self) -> RequestedSandbox {
        let spoken = self
            .files
            .iter()
            .filter(|file| !file.narrows || file.sandbox.level.is_some());
        let level = spoken.map(|file| file.sandbox.level.unwrap_or_default()).max();
        let toolchains = self.files.iter().filter_map(|file| file.sandbox.toolchains.clone());
        RequestedSandbox {
            level: level.unwrap_or_default(),
            network: self.network().iter().map(ToString::to_string).collect(),
            toolchains: intersection(toolchains, |one, other| one == other),
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
        let lists = self.granted(|file| file.sandbox.network.clone());
        intersection(lists, |one, other| other.includes(one))
    }

    /// Names of environment variables that every file passes to commands.
    pub fn env_pass(&self) -> Vec<String> {
        intersection(self.granted(|file| file.env_pass.clone()), |one, other| one == other)
    }

    /// What each file grants. A file that does not say grants nothing, or is left out if it can only restrict.
    fn granted<T>(&self, grant: impl Fn(&Policy) -> Option<Vec<T>>) -> Vec<Vec<T>> {
        self.files
            .iter()
            .filter_map(|file| match grant(file) {
                None if file.narrows => None,
                granted => Some(granted.unwrap_or_default()),
            })
            .collect()
    }

    /// What these files grant beyond the built-in lists; `assignments` are the names of [`PolicySet::env_pass`].
    pub(super) fn grants<'a>(&'a self, assignments: &'a [String], witness: bool) -> Grants<'a> {
        Grants {
            witness,
            assignments,
            profiles: self.profiles(),
        }
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
                    masked: self.masked,
                }),
            }
        }
        Some(groups)
    }

    /// The same policies for a program that runs where the sandbox masks secret-like files.
    pub(super) fn masked(&self) -> Self {
        Self {
            masked: true,
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

    /// Whether a search tool must not read a file: it is secret-like, hidden, denied or not covered, or its name is
    /// deceptive. No call was ruled on, so a rule with conditions on arguments covers nothing. [`PolicySet::masks`] says it
    /// for commands.
    pub fn unreadable(&self, tool: &str, kind: ToolKind, path: &str) -> bool {
        self.is_unreadable(tool, kind, path, false)
    }

    /// Whether the model may be shown a file of the tree that no call of it asks for: as if it read the file.
    pub fn may_show(&self, place: &ResolvedPath) -> bool {
        let reads = builtin_for(CommandAccessKind::Reads);
        place.inside && !self.unreadable(&reads.name, reads.kind, &place.path)
    }

    /// As [`PolicySet::unreadable`], for a file that an allowed call of the tool found: the arguments of the call were
    /// ruled on, so only the paths of its rules count.
    pub fn is_withheld(&self, tool: &str, kind: ToolKind, path: &str) -> bool {
        self.is_unreadable(tool, kind, path, true)
    }

    /// Whether the sandbox hides a file of the tree from commands: it belongs to a run directory, a rule denies it to
    /// them, or its path `is_secret` and no rule names it. Other bounds are about what a model may name, not about what is
    /// in the tree: a file with a control character in its name is seen.
    pub fn masks(&self, path: &str, is_secret: fn(&str) -> bool) -> bool {
        let used = FileUse::of_tree(path);
        let need = Need::ShellRead(&used, ShellReader::Command);
        let asked = PolicyInput {
            tool: SHELL,
            kind: ToolKind::Execute,
            origin: &ToolOrigin::Builtin,
            args: &Value::Null,
        };
        let is_secret = is_secret(path);
        self.is_hidden(path)
            || self
                .files
                .iter()
                .any(|policy| (is_secret && !opens_secret(policy, &need, &asked)) || denies_file(policy, &need, &asked))
    }

    fn is_unreadable(&self, tool: &str, kind: ToolKind, path: &str, ruled: bool) -> bool {
        let place = ResolvedPath::of_tree(path);
        let asked = PolicyInput {
            tool,
            kind,
            origin: &ToolOrigin::Builtin,
            args: &Value::Null,
        };
        let need = Need::Read(&place);
        let covers = |rule: &Rule| match ruled {
            true => rule.is_about(tool, kind, asked.origin) && file_fits(rule, &place, false).is_ok(),
            false => allows(rule, &need, &asked).is_ok(),
        };
        without_tree(|fs_view| {
            self.files.iter().any(|policy| {
                refuse(&need, policy, self, &asked, fs_view).is_some()
                    || denies_file(policy, &need, &asked)
                    || !policy.allowing().any(covers)
            })
        })
    }
}

/// Whether a rule with paths or other conditions forbids reading a file.
fn denies_file(policy: &Policy, need: &Need<'_>, asked: &PolicyInput<'_>) -> bool {
    policy
        .restricting()
        .any(|rule| rule.is_narrowed() && forbids(rule, need, asked).is_ok())
}

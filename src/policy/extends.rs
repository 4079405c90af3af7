//! What a policy file extends: resolves names of presets and files, and merges parsed files. Pure: the caller reads the
//! files.
//!
//! What a file says itself wins over what it extends: `default`, `sandbox.level`, `sandbox.network` and `env.pass`.
//! Rules and toolchains accumulate, and the lowest value of each limit applies. Among several extended files the
//! strictest level and `default` apply, and hosts and variables accumulate.

use super::model::DeliveryLimits;
use super::model::SandboxSection;
use super::name_folding::tidy;
use super::profiles::OwnProfiles;
use super::rule::Rule;
use crate::base::budget::Budget;
use crate::base::event::{PolicyPart, PolicyText};
use crate::base::ids::hex;
use crate::base::ruling::Decision;
use crate::diag::{Shape, SourceFiles, Span, YamlNode, parse as parse_yaml};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most files in a chain of `extends`.
pub const MAX_DEPTH: usize = 8;

/// The most files that one policy may extend, directly and indirectly.
pub const MAX_FILES: usize = 64;

/// The largest file that may be extended, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// What policies need in addition to their own texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The texts of extended files by their resolved names, or why a file cannot be read.
    pub texts: BTreeMap<String, Result<String, String>>,
    /// The toolchains that the tree needs, for `builtin:mixed`, and for `builtin:build` where none is named.
    pub tree: Vec<String>,
}

/// The name of a file that `of` extends as `written`, relative to `of`; `None` if it leads outside the commit that `of`
/// is read from.
pub fn resolve(of: &str, written: &str) -> Option<String> {
    if written.starts_with("builtin:") || written.starts_with("git:") {
        return Some(written.to_owned());
    }
    if let Some((revision, path)) = of.strip_prefix("git:").and_then(|spec| spec.rsplit_once(':')) {
        let inside = tidy(&format!("{}/{written}", dir_of(path)));
        let leads_out = written.starts_with('/') || inside.is_empty() || inside == ".." || inside.starts_with("../");
        return (!leads_out).then(|| format!("git:{revision}:{inside}"));
    }
    if written.starts_with('/') {
        return Some(format!("/{}", tidy(written)));
    }
    let joined = match of {
        "-" => tidy(written),
        _ => tidy(&format!("{}/{written}", dir_of(of))),
    };
    Some(if of.starts_with('/') {
        format!("/{joined}")
    } else {
        joined
    })
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The resolved names of the files under `extends` in a text. Empty if the text cannot be parsed; its problems are
/// reported when it is loaded.
pub fn files_of(name: &str, text: &str) -> Vec<String> {
    let written = written(text);
    let files = written.iter().filter(|written| !written.starts_with("builtin:"));
    files.filter_map(|written| resolve(name, written)).collect()
}

/// Whether a text extends a preset that depends on the contents of the tree.
pub fn looks_at_tree(text: &str) -> bool {
    written(text).iter().any(|written| depends_on_tree(written))
}

/// Whether a preset depends on the contents of the tree.
pub fn depends_on_tree(preset: &str) -> bool {
    matches!(preset, "builtin:mixed" | "builtin:build")
}

fn written(text: &str) -> Vec<String> {
    let mut files = SourceFiles::new();
    let file = files.add("policy", text);
    let Ok(root) = parse_yaml(&files, file) else {
        return Vec::new();
    };
    let text_of = |node: &YamlNode| match &node.shape {
        Shape::Scalar(scalar) => Some(scalar.text.clone()),
        _ => None,
    };
    match root.get("extends").map(|node| (&node.shape, node)) {
        Some((Shape::List(nodes), _)) => nodes.iter().filter_map(text_of).collect(),
        Some((_, node)) => text_of(node).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The parsed content of a policy file, before defaults are applied.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub default: Option<Decision>,
    pub rules: Vec<Rule>,
    pub sandbox: SandboxSection,
    pub limits: Option<Budget>,
    pub delivery: DeliveryLimits,
    pub env_pass: Option<Vec<String>>,
    /// The positions of the entries of `env_pass`.
    pub env_at: Vec<(String, Span)>,
    /// Argument profiles, by program.
    pub profiles: Option<Arc<OwnProfiles>>,
}

/// The profiles of a file and of what it extends; if both have a profile for a program, the file's own wins.
fn with_profiles(own: Option<Arc<OwnProfiles>>, extended: Option<Arc<OwnProfiles>>) -> Option<Arc<OwnProfiles>> {
    match (own, extended) {
        (Some(own), Some(extended)) => {
            let mut all = extended.as_ref().clone();
            all.extend(own.iter().map(|(name, profile)| (name.clone(), profile.clone())));
            Some(Arc::new(all))
        }
        (own, extended) => own.or(extended),
    }
}

impl Body {
    /// Merges in what it extends.
    pub fn inherit(&mut self, extended: Vec<Body>) {
        let mut all = Body::default();
        for body in extended {
            all.add(body);
        }
        self.default = self.default.or(all.default);
        self.sandbox.level = self.sandbox.level.or(all.sandbox.level);
        self.sandbox.network = self.sandbox.network.take().or(all.sandbox.network);
        self.sandbox.network_at = self.sandbox.network_at.or(all.sandbox.network_at);
        self.sandbox.toolchains = united(self.sandbox.toolchains.take(), all.sandbox.toolchains);
        self.env_pass = self.env_pass.take().or(all.env_pass);
        self.env_at.extend(all.env_at);
        self.limits = lowest(self.limits.take(), all.limits);
        self.delivery = self.delivery.lowered_by(all.delivery);
        self.profiles = with_profiles(self.profiles.take(), all.profiles);
        self.take_rules(all.rules);
    }

    /// Merges in a further file that is extended at the same level.
    fn add(&mut self, other: Body) {
        self.default = match (self.default, other.default) {
            (Some(Decision::Deny), _) | (_, Some(Decision::Deny)) => Some(Decision::Deny),
            (ours, theirs) => ours.or(theirs),
        };
        self.sandbox.level = self.sandbox.level.max(other.sandbox.level);
        self.sandbox.network = united(self.sandbox.network.take(), other.sandbox.network);
        self.sandbox.network_at = self.sandbox.network_at.or(other.sandbox.network_at);
        self.sandbox.toolchains = united(self.sandbox.toolchains.take(), other.sandbox.toolchains);
        self.env_pass = united(self.env_pass.take(), other.env_pass);
        self.env_at.extend(other.env_at);
        self.limits = lowest(self.limits.take(), other.limits);
        self.delivery = self.delivery.lowered_by(other.delivery);
        self.profiles = with_profiles(self.profiles.take(), other.profiles);
        self.take_rules(other.rules);
    }

    /// Adds rules, except rules of a preset that are present already.
    fn take_rules(&mut self, rules: Vec<Rule>) {
        for rule in rules {
            let known = rule.is_of_preset() && self.rules.iter().any(|other| other.name == rule.name);
            if !known {
                self.rules.push(rule);
            }
        }
    }
}

fn united<T: PartialEq>(ours: Option<Vec<T>>, theirs: Option<Vec<T>>) -> Option<Vec<T>> {
    match (ours, theirs) {
        (Some(mut ours), Some(theirs)) => {
            for one in theirs {
                if !ours.contains(&one) {
                    ours.push(one);
                }
            }
            Some(ours)
        }
        (ours, theirs) => ours.or(theirs),
    }
}

fn lowest(ours: Option<Budget>, theirs: Option<Budget>) -> Option<Budget> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(ours.lowered_by(&theirs)),
        (ours, theirs) => ours.or(theirs),
    }
}

/// The record of a policy: its text, the texts that it extends, and one digest of all. Without extended texts it is the
/// SHA-256 of the text.
pub fn record(name: &str, text: &str, parts: Vec<PolicyPart>, tree: Vec<String>) -> PolicyText {
    let digest = match parts.is_empty() && tree.is_empty() {
        true => Sha256::digest(text.as_bytes()),
        false => {
            let mut hash = Sha256::new();
            let mut take = |text: &str| {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            };
            take(text);
            for part in &parts {
                take(&part.name);
                take(&part.text);
            }
            tree.iter().for_each(|name| take(name));
            hash.finalize()
        }
    };
    PolicyText {
        name: name.to_owned(),
        digest: hex(&digest),
        text: text.to_owned(),
        narrows: false,
        extends: parts,
        tree,
    }
}

#[cfg(test)]
mod tests;

//! The built-in policies that `extends` and `--policy` can name, as policy text.

use crate::base::toolchain;
use crate::diag::diagnostic::list;
use crate::diag::similar_word;

/// The names that a policy or the command line may use, and their texts. `builtin:build` and `builtin:mixed` are
/// generated for the requested toolchains.
const ALL: &[(&str, &str)] = &[
    ("builtin:read-only", include_str!("presets/read-only.yaml")),
    ("builtin:look", include_str!("presets/look.yaml")),
    ("builtin:edit", include_str!("presets/edit.yaml")),
    ("builtin:files", include_str!("presets/files.yaml")),
    ("builtin:rust", include_str!("presets/rust.yaml")),
    ("builtin:node", include_str!("presets/node.yaml")),
    ("builtin:python", include_str!("presets/python.yaml")),
    ("builtin:go", include_str!("presets/go.yaml")),
    ("builtin:java", include_str!("presets/java.yaml")),
    ("builtin:docs", include_str!("presets/docs.yaml")),
    ("builtin:rust-commands", include_str!("presets/rust-commands.yaml")),
    ("builtin:node-commands", include_str!("presets/node-commands.yaml")),
    ("builtin:python-commands", include_str!("presets/python-commands.yaml")),
    ("builtin:go-commands", include_str!("presets/go-commands.yaml")),
    ("builtin:java-commands", include_str!("presets/java-commands.yaml")),
    ("builtin:docs-commands", include_str!("presets/docs-commands.yaml")),
    ("builtin:frozen-tests", include_str!("presets/frozen-tests.yaml")),
];

/// All names, including the prefix `builtin:`.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter()
        .map(|(name, _)| *name)
        .chain(["builtin:build", "builtin:mixed"])
}

/// The text of a preset; `None` for an unknown name. `builtin:build` and `builtin:mixed` are generated for the `named`
/// toolchains, or if there are none, for those of the `tree`.
pub fn text(name: &str, named: Option<&[String]>, tree: &[String]) -> Option<String> {
    let wanted: Vec<&str> = toolchain::NAMES
        .into_iter()
        .filter(|toolchain| named.unwrap_or(tree).iter().any(|name| name == toolchain))
        .collect();
    let extends = |first: &[&str], end: &str| {
        let each = wanted.iter().map(|toolchain| format!("builtin:{toolchain}{end}"));
        let all: Vec<String> = first.iter().map(|name| (*name).to_owned()).chain(each).collect();
        format!("version: 1\nextends: [{}]\n", all.join(", "))
    };
    match name {
        "builtin:build" => Some(extends(&["builtin:edit", "builtin:look", "builtin:files"], "-commands")),
        "builtin:mixed" => Some(extends(&["builtin:docs"], "")),
        _ => ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| (*text).to_owned()),
    }
}

/// The help text for an unknown name.
pub fn did_you_mean(name: &str) -> String {
    let bare = |name: &'static str| name.strip_prefix("builtin:").unwrap_or(name);
    let word = name.strip_prefix("builtin:").unwrap_or(name);
    match similar_word(word, names().map(bare)) {
        Some(near) => format!("did you mean `builtin:{near}`?"),
        None => format!("known are {}", list(&names().collect::<Vec<_>>())),
    }
}

#[cfg(test)]
mod tests;

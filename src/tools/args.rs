//! Arguments of built-in tools: older parameter names, typed access, and resolution of paths.

use super::{ToolError, other_names_of};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::call::ToolSpec;
use crate::workspace::Workspace;
use crate::workspace::fs::FsError;
use crate::workspace::root::{UNASKED, is_deceptive, join, printable};
use crate::workspace::walk::Filter;
use serde_json::{Map, Value};

/// The older name of an argument of every tool that has the current one.
const RENAMED: (&str, &str) = ("absolute_path", "file_path");

/// Upper limit for the files that are searched for one with the same name.
const MAX_LOOK: usize = 50_000;

/// The current names of a tool's arguments.
pub fn names(spec: &ToolSpec) -> impl Iterator<Item = &str> {
    let all = spec.parameters.pointer("/properties").and_then(Value::as_object);
    all.into_iter().flat_map(|all| all.keys().map(String::as_str))
}

/// The current name of an argument that is given under an older one.
pub fn newer_name(spec: &ToolSpec, name: &str) -> Option<&'static str> {
    let known = |wanted: &str| names(spec).any(|name| name == wanted);
    let of_tool = other_names_of(spec).into_iter().flat_map(|others| others.renamed);
    std::iter::once(&RENAMED).chain(of_tool).find_map(|(older, newer)| {
        let fits = *older == name && known(newer) && !known(older);
        fits.then_some(*newer)
    })
}

/// The arguments of a built-in tool under their current names. `null` counts as absent.
///
/// # Errors
/// [`ToolError::Model`] if an argument is given under two of its names, or older arguments cannot be translated.
pub fn current(spec: &ToolSpec, args: &Map<String, Value>) -> Result<Map<String, Value>, ToolError> {
    let mut now = Map::new();
    for (name, value) in args.iter().filter(|(_, value)| !value.is_null()) {
        let newer = newer_name(spec, name);
        let target = newer.unwrap_or(name);
        let given = args.get(target).is_some_and(|given| !given.is_null()) || now.contains_key(target);
        if newer.is_some() && given {
            return Err(invalid(format!(
                "`{name}` is the older name of `{target}`: give only `{target}`"
            )));
        }
        now.insert(target.to_owned(), value.clone());
    }
    if let Some(modernise) = other_names_of(spec).and_then(|others| others.modernise) {
        modernise(&mut now)?;
    }
    Ok(now)
}

/// Sets `allow_multiple` if `expected_replacements` is more than one.
pub(super) fn multiple_from_count(args: &mut Map<String, Value>) -> Result<(), ToolError> {
    if let Some(count) = args.get("expected_replacements")
        && whole(count).is_some_and(|count| count > 1)
    {
        args.entry("allow_multiple").or_insert(Value::Bool(true));
    }
    Ok(())
}

/// Converts `offset` (lines before the first one) and `limit` (lines) to `start_line` and `end_line`.
pub(super) fn lines_from_offset(args: &mut Map<String, Value>) -> Result<(), ToolError> {
    let offset = args.remove("offset");
    let limit = args.remove("limit");
    if offset.is_none() && limit.is_none() {
        return Ok(());
    }
    if args.contains_key("start_line") || args.contains_key("end_line") {
        return Err(invalid(
            "`offset` and `limit` are the older form of `start_line` and `end_line`: give only those two",
        ));
    }
    let number = |name: &str, value: Option<Value>, least: u64| match value {
        None => Ok(None),
        Some(value) => whole(&value)
            .filter(|number| *number >= least)
            .map(Some)
            .ok_or_else(|| invalid(format!("`{name}` must be a whole number of at least {least}"))),
    };
    let start = number("offset", offset, 0)?.unwrap_or(0).saturating_add(1);
    args.insert("start_line".to_owned(), start.into());
    if let Some(limit) = number("limit", limit, 1)? {
        args.insert("end_line".to_owned(), start.saturating_add(limit - 1).into());
    }
    Ok(())
}

/// The error for a bad argument, as the model receives it.
pub fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::model("invalid_tool_params", message)
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        // Some models write 3.0, which JSON Schema accepts as an integer. A number larger than any file means its end.
        (number.fract() == 0.0 && number >= 0.0).then_some(number.min(9e15) as u64)
    })
}

/// Arguments that passed the schema.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    /// From a JSON object.
    ///
    /// # Errors
    /// [`ToolError::Model`] if it is no object.
    pub fn of(args: &'a Value) -> Result<Self, ToolError> {
        args.as_object()
            .map(Self)
            .ok_or_else(|| invalid("the arguments must be a JSON object"))
    }

    /// A required string.
    ///
    /// # Errors
    /// [`ToolError::Model`] if it is missing or not a string.
    pub fn text(self, name: &str) -> Result<&'a str, ToolError> {
        self.optional(name)
            .ok_or_else(|| invalid(format!("`{name}` is missing or not a string")))
    }

    /// An optional string.
    pub fn optional(self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// An optional integer.
    pub fn number(self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(whole)
    }

    /// A boolean with its default.
    pub fn flag(self, name: &str, default: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// A list of strings; empty if absent.
    pub fn list(self, name: &str) -> Vec<&'a str> {
        self.value(name)
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    /// An optional value of any type.
    pub fn value(self, name: &str) -> Option<&'a Value> {
        self.0.get(name)
    }

    /// The place of a required path.
    ///
    /// # Errors
    /// [`ToolError::Model`] if the argument is missing, not a string, or empty.
    pub fn place(self, name: &str, workspace: &Workspace) -> Result<ResolvedPath, ToolError> {
        let path = self.text(name)?;
        if path.trim().is_empty() {
            return Err(invalid(format!("`{name}` must not be empty")));
        }
        Ok(place(path, workspace))
    }

    /// The place of a directory; the root if absent.
    pub fn dir(self, name: &str, workspace: &Workspace) -> ResolvedPath {
        match self.optional(name).map(str::trim) {
            None | Some("") => workspace.locate("."),
            Some(path) => place(path, workspace),
        }
    }
}

/// The place of a path as models write it: a leading `@`, copied from a prompt reference, is dropped unless it is part
/// of a file's name.
pub fn place(path: &str, workspace: &Workspace) -> ResolvedPath {
    let plain = workspace.locate(path);
    match path.strip_prefix('@') {
        Some(rest) if plain.found == PathStatus::Nothing => {
            let without = workspace.locate(rest);
            if without.found == PathStatus::Nothing {
                plain
            } else {
                without
            }
        }
        _ => plain,
    }
}

/// Checks that people and programs cannot misread the name of a new file. An existing file may have any name.
///
/// # Errors
/// [`ToolError::Model`] if a name in the path has control characters or bidirectional controls, or begins with a dash.
pub fn check_new_name(place: &ResolvedPath) -> Result<(), ToolError> {
    let bad = |name: &str| name.starts_with('-') || name.chars().any(is_deceptive);
    if place.found == PathStatus::Nothing && place.path.split('/').any(bad) {
        let name = printable(place.shown());
        return Err(invalid(format!(
            "{name}: a new name must not begin with a dash or have control characters"
        )));
    }
    Ok(())
}

/// Converts a file error to an error for the model. A full disk ends the run instead.
pub fn failed(doing: &str, place: &ResolvedPath, error: FsError, workspace: &Workspace) -> ToolError {
    let name = place.shown();
    let kind = match &error {
        FsError::NoSpace => return ToolError::Fatal(format!("cannot {doing} {name}: {error}")),
        FsError::Missing => return missing(place, workspace),
        FsError::Outside => "path_not_in_workspace",
        FsError::Directory => "target_is_directory",
        FsError::NotADirectory => "path_is_not_a_directory",
        FsError::TooLarge { .. } => "file_too_large",
        FsError::Denied => "permission_denied",
        FsError::Special | FsError::Moved | FsError::Io(_) => match doing {
            "write" => "file_write_failure",
            _ => "read_content_failure",
        },
    };
    ToolError::model(kind, format!("cannot {doing} {name}: {error}"))
}

/// The `file_not_found` error, with similar names in the same directory, or files of the same name elsewhere.
pub fn missing(place: &ResolvedPath, workspace: &Workspace) -> ToolError {
    let name = printable(place.shown());
    let mut hint = String::new();
    if place.inside {
        let close = close_names(place, workspace);
        let elsewhere = if close.is_empty() {
            same_names(place, workspace)
        } else {
            Vec::new()
        };
        if !close.is_empty() {
            hint = format!("; close names: {}", close.join(", "));
        } else if !elsewhere.is_empty() {
            hint = format!("; files of this name: {}", elsewhere.join(", "));
        } else {
            hint = near_files(place, workspace);
        }
    }
    let asked = place.asked.trim_end_matches('/');
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    // The last component of a path can only change through a link, or through `.` and `..`.
    let message = match place.inside && !asked.ends_with('.') && last(asked) != last(&place.path) {
        true => format!("{} is a link to {name}, which does not exist{hint}", printable(asked)),
        false => format!("{name} does not exist{hint}"),
    };
    ToolError::model("file_not_found", message)
}

fn same_names(place: &ResolvedPath, workspace: &Workspace) -> Vec<String> {
    let name = place.path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let walked = workspace.files("", Filter::all(), MAX_LOOK, &|| false);
    walked
        .files
        .into_iter()
        .filter(|path| path.rsplit('/').next().is_some_and(|last| last.to_lowercase() == name))
        .take(3)
        .collect()
}

/// Upper limit for the suggested names.
const MAX_NAMES: usize = 12;

/// Files with a similar name anywhere in the tree or, if there are none, the entries at its top, so that a made-up path
/// (`path/to/file.txt`) is answered with real ones.
fn near_files(place: &ResolvedPath, workspace: &Workspace) -> String {
    let name = place.path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let walked = workspace.files("", Filter::all(), MAX_LOOK, &|| false);
    let mut scored: Vec<(f64, String)> = walked
        .files
        .into_iter()
        .filter_map(|path| {
            let last = path.rsplit('/').next()?.to_lowercase();
            let score = strsim::jaro_winkler(&name, &last);
            (score > 0.84).then_some((score, path))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let near: Vec<String> = scored.into_iter().take(3).map(|(_, path)| path).collect();
    if !near.is_empty() {
        return format!("; files with a similar name: {}", near.join(", "));
    }
    let Ok((entries, _)) = workspace.list(&workspace.locate("."), 2_000) else {
        return String::new();
    };
    let visible: Vec<String> = entries
        .into_iter()
        .filter(|entry| !entry.name.starts_with('.') && workspace.may_search(UNASKED, &entry.name))
        .map(|entry| entry.name)
        .collect();
    let more = match visible.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match visible.get(..MAX_NAMES).unwrap_or(&visible) {
        [] => "; the workspace is empty".to_owned(),
        names => format!("; the workspace has {}{more}", names.join(", ")),
    }
}

fn close_names(place: &ResolvedPath, workspace: &Workspace) -> Vec<String> {
    let (parent, name) = place.path.rsplit_once('/').unwrap_or(("", &place.path));
    let parent = workspace.locate(parent);
    let Ok((entries, _)) = workspace.list(&parent, 2_000) else {
        return Vec::new();
    };
    let wanted = name.to_lowercase();
    let mut scored: Vec<(f64, String)> = entries
        .into_iter()
        .map(|entry| (strsim::jaro_winkler(&wanted, &entry.name.to_lowercase()), entry.name))
        .filter(|(score, _)| *score > 0.84)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored
        .into_iter()
        .take(3)
        .map(|(_, name)| join(&parent.path, &name))
        .collect()
}

#[cfg(test)]
mod tests;

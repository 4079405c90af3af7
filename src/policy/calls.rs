//! Estimates what a call of a built-in tool would touch from its arguments alone, for explanations without a workspace.
//! The tools themselves compute it exactly.

use super::model::KnownTools;
use super::names::tidy;
use crate::base::access::{Access, CommandAccess, FsView, PathStatus, ResolvedPath};
use crate::base::call::{ToolKind, ToolOrigin, Touches};
use serde_json::Value;

/// The canonical name, kind, origin and access of a call, judged by names alone because no tree is read.
///
/// For an unknown tool no accesses are known: `SERVER__TOOL` counts as an MCP tool, any other name as a discovered one.
pub fn by_name(tool: &str, args: &Value) -> (String, ToolKind, ToolOrigin, Access) {
    let known = KnownTools::builtin();
    let Some(name) = known.canonical(tool) else {
        let origin = match tool.split_once("__") {
            Some((server, _)) => ToolOrigin::Mcp(server.to_owned()),
            None => ToolOrigin::Discovered,
        };
        let access = Access {
            origin: origin.clone(),
            ..Access::none()
        };
        return (tool.to_owned(), ToolKind::Other, origin, access);
    };
    let (kind, touches) = match crate::tools::builtin_spec(name) {
        Some(spec) => (spec.kind, spec.effects.touches),
        None => (ToolKind::Other, Touches::Nothing),
    };
    (name.to_owned(), kind, ToolOrigin::Builtin, access(touches, args))
}

fn text<'a>(args: &'a Value, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| args.get(name).and_then(Value::as_str))
}

fn access(touches: Touches, args: &Value) -> Access {
    let dir = || lexical_dir(text(args, &["dir_path", "path", "directory"]).unwrap_or_default());
    let file = || lexical(text(args, &["file_path", "absolute_path", "path"]).unwrap_or_default());
    match touches {
        Touches::Nothing => Access::none(),
        Touches::Commands => Access {
            commands: vec![CommandAccess {
                text: text(args, &["command"]).unwrap_or_default().to_owned(),
                dir: text(args, &["dir_path", "directory"]).unwrap_or_default().to_owned(),
            }],
            ..Access::none()
        },
        Touches::Directory => Access::read(dir()),
        Touches::File => Access::read(file()),
        Touches::Patterns => {
            let patterns = args
                .get("include")
                .or_else(|| args.get("paths"))
                .and_then(Value::as_array);
            let texts = patterns.into_iter().flatten().filter_map(Value::as_str);
            Access {
                reads: texts.map(lexical).collect(),
                ..Access::none()
            }
        }
        Touches::WrittenFile => Access::write(file()),
        Touches::Urls => Access {
            urls: urls(args),
            ..Access::none()
        },
    }
}

fn lexical_dir(path: &str) -> ResolvedPath {
    if path.starts_with('/') {
        return lexical(path);
    }
    ResolvedPath {
        asked: path.to_owned(),
        ..lexical(&format!("./{}/", path.trim_end_matches('/')))
    }
}

fn urls(args: &Value) -> Vec<String> {
    if let Some(url) = text(args, &["url"]) {
        return vec![url.to_owned()];
    }
    let prompt = text(args, &["prompt"]).unwrap_or_default();
    prompt
        .split_whitespace()
        .filter(|word| word.contains("://"))
        .map(ToOwned::to_owned)
        .collect()
}

/// A place computed from the path alone: a path that does not lead outside is a file in the workspace, `dir/` a
/// directory.
pub fn lexical(path: &str) -> ResolvedPath {
    let tidied = tidy(path);
    let inside = !path.starts_with('/') && tidied != ".." && !tidied.starts_with("../");
    let found = if tidied.is_empty() || path.ends_with('/') {
        PathStatus::Dir
    } else {
        PathStatus::File
    };
    ResolvedPath {
        asked: path.to_owned(),
        path: if inside { tidied } else { path.to_owned() },
        inside,
        found,
    }
}

/// Calls `then` with a view of no file system: paths alone decide what is inside, nothing exists yet, and no glob
/// matches anything.
pub fn without_tree<T>(then: impl FnOnce(&FsView<'_>) -> T) -> T {
    let expand = |_: &str| Vec::new();
    let locate = |path: &str| ResolvedPath {
        found: PathStatus::Nothing,
        ..lexical(path)
    };
    then(&FsView {
        locate: &locate,
        expand: &expand,
        over_limit: &|| false,
    })
}

//! Estimates what a call of a built-in tool would touch from its arguments alone, for explanations without a workspace.
//! The tools themselves compute it exactly.

use super::model::KnownTools;
use super::name_folding::tidy;
use crate::base::access::{Access, CommandAccess, FsView, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, ToolKind, ToolOrigin};
use crate::tools::args::current;
use crate::tools::web::named_urls;
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
    let Some(spec) = crate::tools::builtin_spec(name) else {
        return (name.to_owned(), ToolKind::Other, ToolOrigin::Builtin, Access::none());
    };
    let current = args.as_object().and_then(|args| current(spec, args).ok());
    let access = match current {
        Some(args) => access(spec.effects.touches, &Value::Object(args)),
        None => access(spec.effects.touches, args),
    };
    (name.to_owned(), spec.kind, ToolOrigin::Builtin, access)
}

fn text<'a>(args: &'a Value, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn access(touches: ArgumentTarget, args: &Value) -> Access {
    let dir = || lexical_dir(text(args, "dir_path").unwrap_or_default());
    let file = || lexical(text(args, "file_path").unwrap_or_default());
    match touches {
        ArgumentTarget::Nothing => Access::none(),
        ArgumentTarget::Commands => Access {
            commands: vec![CommandAccess {
                text: text(args, "command").unwrap_or_default().to_owned(),
                dir: text(args, "dir_path").unwrap_or_default().to_owned(),
            }],
            ..Access::none()
        },
        ArgumentTarget::Directory => Access::read(dir()),
        ArgumentTarget::File => Access::read(file()),
        ArgumentTarget::Patterns => {
            let patterns = args.get("include").and_then(Value::as_array);
            let texts = patterns.into_iter().flatten().filter_map(Value::as_str);
            Access {
                reads: texts.map(lexical).collect(),
                ..Access::none()
            }
        }
        ArgumentTarget::WrittenFile => Access::write(file()),
        ArgumentTarget::Urls => Access {
            // What cannot be fetched is refused as an access, too.
            urls: named_urls(text(args, "url"), text(args, "prompt")).unwrap_or_else(|refused| vec![refused]),
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
        below: &|_| None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_estimated_as_the_tool_reads_it() {
        let of = |tool: &str, args: Value| by_name(tool, &args).3;
        let fetched = of(
            "web_fetch",
            json!({ "url": "https://a.test/#x", "prompt": "and (https://b.test/q), please" }),
        );
        assert_eq!(fetched.urls, ["https://a.test/", "https://b.test/q"]);
        assert_eq!(
            of("web_fetch", json!({ "prompt": "ftp://c.test/." })).urls,
            ["ftp://c.test/"]
        );
        let run = of("run_shell_command", json!({ "command": "ls", "dir": "sub" }));
        assert_eq!(run.commands[0].dir, "sub");
        assert_eq!(of("read_file", json!({ "path": "a" })).reads[0].path, "a");
        assert_eq!(of("write_file", json!({ "absolute_path": "b" })).writes[0].path, "b");
        assert_eq!(of("read_many_files", json!({ "paths": ["c"] })).reads[0].path, "c");
    }
}

//! Imports discovery commands, MCP servers and the choice of tools from the text of a `settings.json`, in its current and
//! its older format, or the servers from a `.mcp.json`. Pure.

use super::plan::{ClientCredentials, Discovery, McpServer, ShellLimits};
use crate::base::server_name::sound_server_name;
use crate::tools::{SHELL, other_names};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The imported settings, and what was ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub discovery: Option<Discovery>,
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// When set, the only built-in tools (`tools.core`).
    pub builtin: Option<Vec<String>>,
    /// Tools that are left out (`tools.exclude`).
    pub exclude: Vec<String>,
    /// Limits on commands from entries like `run_shell_command(git status)`.
    pub shell: ShellLimits,
    /// Warnings about keys that have no effect in `overnight`.
    pub warnings: Vec<String>,
}

/// Parses a `settings.json`, which may contain comments. `own`: the servers that the recipe has itself.
///
/// # Errors
/// The text is not a JSON object.
pub fn settings(text: &str, own: &[&str]) -> Result<Imported, String> {
    let root: Value = serde_json::from_str(&without_comments(text)).map_err(|error| format!("not JSON: {error}"))?;
    let root = root.as_object().ok_or("not a JSON object")?;
    let mut imported = Imported::default();
    imported.discovery = discovery(root, &mut imported.warnings);
    let section = |name: &str| root.get("mcp").and_then(|mcp| mcp.get(name));
    let allowed = names(section("allowed").or_else(|| root.get("allowMCPServers")));
    let excluded = names(section("excluded").or_else(|| root.get("excludeMCPServers"))).unwrap_or_default();
    for (name, config) in root.get("mcpServers").and_then(Value::as_object).into_iter().flatten() {
        if excluded.contains(name) || allowed.as_ref().is_some_and(|allowed| !allowed.contains(name)) {
            imported.warnings.push(format!(
                "the server `{name}` is not allowed by the settings and is left out"
            ));
            continue;
        }
        if let Some(server) = server(name, config, &mut imported.warnings) {
            imported
                .mcp_servers
                .insert(sound_name(name, &mut imported.warnings), server);
        }
    }
    choice(root, own, &mut imported);
    if root
        .get("mcp")
        .and_then(|section| section.get("serverCommand"))
        .is_some()
        || root.contains_key("mcpServerCommand")
    {
        imported
            .warnings
            .push("`mcp.serverCommand` is not imported: name the server under `mcpServers`".to_owned());
    }
    Ok(imported)
}

fn names(list: Option<&Value>) -> Option<Vec<String>> {
    let items = list?.as_array()?;
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// A built-in tool by its name, an older one, or the name of its class, which older settings use.
fn builtin(name: &str) -> Option<&'static str> {
    other_names()
        .find(|(tool, other)| tool.is_called(name) || other.settings.contains(&name))
        .map(|(tool, _)| tool.name.as_str())
}

/// `tools.core`, `tools.exclude` and their older names. They can only leave tools and commands out: the policy decides
/// what a call may do.
fn choice(root: &Map<String, Value>, own: &[&str], imported: &mut Imported) {
    let mut list = |current: &str, legacy: &str| {
        let nested = names(root.get("tools").and_then(|tools| tools.get(current)));
        let flat = names(root.get(legacy));
        if nested.is_some() && flat.is_some() {
            let both = format!("`{legacy}` is ignored: the newer `tools.{current}` is set");
            imported.warnings.push(both);
        }
        nested.or(flat)
    };
    let core = list("core", "coreTools");
    let exclude = list("exclude", "excludeTools").unwrap_or_default();
    if list("allowed", "allowedTools").is_some() {
        let text = "`tools.allowed` has no effect: the policy file decides what a call may do";
        imported.warnings.push(text.to_owned());
    }
    if let Some(core) = core {
        let (mut kept, mut only, mut all) = (Vec::new(), Vec::new(), false);
        for entry in &core {
            let (name, inner) = parts(entry);
            let Some(tool) = builtin(name) else {
                imported.warnings.push(format!(
                    "`{entry}` in `tools.core` names no built-in tool of this program"
                ));
                continue;
            };
            if !kept.iter().any(|known| known == tool) {
                kept.push(tool.to_owned());
            }
            match inner {
                Some(command) if tool == SHELL => only.push(command.to_owned()),
                None if tool == SHELL => all = true,
                Some(_) => imported
                    .warnings
                    .push(format!("`{entry}` in `tools.core`: the part in brackets has no effect")),
                None => {}
            }
        }
        imported.builtin = Some(kept);
        imported.shell.only = (!all && !only.is_empty()).then_some(only);
    }
    let configured = root.get("mcpServers").and_then(Value::as_object).into_iter().flatten();
    let servers: Vec<&str> = configured
        .map(|(name, _)| name.as_str())
        .chain(own.iter().copied())
        .collect();
    for entry in exclude {
        let (name, inner) = parts(&entry);
        match (builtin(name), inner) {
            (Some(SHELL), Some(command)) => imported.shell.never.push(command.to_owned()),
            // Other tools can only be excluded as a whole.
            (Some(tool), _) => imported.exclude.push(tool.to_owned()),
            (None, _) => match server_tool(name, &servers) {
                Some(tool) => imported.exclude.push(tool),
                None => imported.warnings.push(format!(
                    "`{entry}` in `tools.exclude` names no tool of this program or of a known server"
                )),
            },
        }
    }
}

/// Splits `tool(arguments)`.
fn parts(entry: &str) -> (&str, Option<&str>) {
    let split = entry
        .split_once('(')
        .and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
    match split {
        Some((name, inner)) => (name.trim(), Some(inner.trim()).filter(|inner| !inner.is_empty())),
        None => (entry.trim(), None),
    }
}

/// The name in `overnight` of a server's tool that the settings call `mcp_SERVER_TOOL` or `SERVER__TOOL`. Servers and
/// tools may both have `_` in their names, so the longest name in `servers` that fits decides.
fn server_tool(name: &str, servers: &[&str]) -> Option<String> {
    let of = |text: &str, between: &str| {
        let found = servers.iter().filter_map(|server| {
            let sound = sound_server_name(server);
            let mut names = [*server, sound.as_str()].into_iter();
            let tool = names.find_map(|named| text.strip_prefix(named)?.strip_prefix(between))?;
            (!tool.is_empty()).then(|| (server.len(), format!("{sound}__{tool}")))
        });
        found.max().map(|(_, tool)| tool)
    };
    let known = name.strip_prefix("mcp_").and_then(|rest| of(rest, "_"));
    known
        .or_else(|| of(name, "__"))
        .or_else(|| name.contains("__").then(|| name.to_owned()))
}

fn discovery(root: &Map<String, Value>, warnings: &mut Vec<String>) -> Option<Discovery> {
    let mut either = |current: &str, legacy: &str| {
        let nested = root
            .get("tools")
            .and_then(|tools| tools.get(current))
            .and_then(Value::as_str);
        let flat = root.get(legacy).and_then(Value::as_str);
        if flat.is_some() {
            warnings.push(match nested {
                Some(_) => format!("`{legacy}` is ignored: the newer `tools.{current}` is set"),
                None => format!("`{legacy}` is an older name of `tools.{current}`"),
            });
        }
        nested.or(flat).map(str::to_owned)
    };
    let command = either("discoveryCommand", "toolDiscoveryCommand");
    let call = either("callCommand", "toolCallCommand");
    match (command, call) {
        (Some(command), Some(call)) => Some(Discovery { command, call }),
        (Some(_), None) => {
            warnings.push(
                "`tools.discoveryCommand` has no effect without `tools.callCommand`, which calls the tools".to_owned(),
            );
            None
        }
        _ => None,
    }
}

/// A server name with which `server__tool` is unambiguous.
fn sound_name(name: &str, warnings: &mut Vec<String>) -> String {
    let sound = sound_server_name(name);
    if sound != name {
        warnings.push(format!("the server `{name}` is called `{sound}` here"));
    }
    sound
}

fn server(name: &str, config: &Value, warnings: &mut Vec<String>) -> Option<McpServer> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
    let texts = |key: &str| -> BTreeMap<String, String> {
        let pairs = config.get(key).and_then(Value::as_object).into_iter().flatten();
        pairs
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    let (url, transport) = match (text("httpUrl"), text("url")) {
        (Some(url), _) => (Some(url), Some("http".to_owned())),
        (None, url) => {
            // `.mcp.json` files of other clients spell the transport in either way.
            let kind = text("type").map(|kind| kind.replace("streamable-", "").replace("streamable_", ""));
            (url, kind.filter(|kind| kind == "http" || kind == "sse"))
        }
    };
    let command = if url.is_some() { None } else { text("command") };
    if command.is_none() && url.is_none() {
        warnings.push(format!(
            "the server `{name}` has no `command`, `url` or `httpUrl` and is left out"
        ));
        return None;
    }
    for key in ["trust", "tcp", "authProviderType"] {
        if config.get(key).is_some_and(|value| *value != Value::Bool(false)) {
            warnings.push(format!(
                "`{key}` of the server `{name}` has no effect: the policy file decides"
            ));
        }
    }
    let local = command.is_some();
    Some(McpServer {
        args: if local {
            names(config.get("args")).unwrap_or_default()
        } else {
            Vec::new()
        },
        expands_command: local,
        env: if local { texts("env") } else { BTreeMap::new() },
        cwd: text("cwd").filter(|_| local),
        headers: if local { BTreeMap::new() } else { texts("headers") },
        command,
        url,
        transport,
        required: false,
        timeout_ms: config.get("timeout").and_then(Value::as_u64).filter(|ms| *ms > 0),
        include_tools: names(config.get("includeTools")).map(|tools| tools.into_iter().map(bare_tool).collect()),
        exclude_tools: names(config.get("excludeTools")).unwrap_or_default(),
        network: Vec::new(),
        writes_tree: false,
        oauth: oauth(name, config, warnings),
    })
}

/// Removes the arguments of `tool(arguments)`: narrower permissions belong in the policy.
fn bare_tool(tool: String) -> String {
    tool.split('(').next().unwrap_or_default().to_owned()
}

fn oauth(name: &str, config: &Value, warnings: &mut Vec<String>) -> Option<ClientCredentials> {
    let oauth = config.get("oauth")?;
    let text = |key: &str| oauth.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("clientId"), text("clientSecret")) {
        (Some(client_id), Some(client_secret)) => Some(ClientCredentials {
            client_id,
            client_secret: Some(client_secret),
            private_key: None,
            scopes: names(oauth.get("scopes")).unwrap_or_default(),
            issuer: text("issuer").filter(|_| text("tokenUrl").is_none()),
            token_url: text("tokenUrl"),
        }),
        _ => {
            warnings.push(format!(
                "`oauth` of the server `{name}` needs a browser; give `clientId` and `clientSecret`"
            ));
            None
        }
    }
}

/// The text with `//` and `/* */` comments replaced by spaces, so that positions in error messages stay the same.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(character) = rest.next() {
        match (quoted, character, rest.peek()) {
            (true, '\\', Some(_)) => {
                out.push(character);
                out.extend(rest.next());
            }
            (_, '"', _) => {
                quoted = !quoted;
                out.push(character);
            }
            (false, '/', Some('/')) => while rest.next_if(|c| *c != '\n').is_some() {},
            (false, '/', Some('*')) => {
                rest.next();
                let mut before = ' ';
                for inside in rest.by_ref() {
                    out.push(if inside == '\n' { '\n' } else { ' ' });
                    if before == '*' && inside == '/' {
                        break;
                    }
                    before = inside;
                }
            }
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Imported, String> {
        super::settings(text, &[])
    }

    #[test]
    fn current_and_older_shapes() {
        let current = r#"{
            // how our tools are found
            "tools": { "discoveryCommand": "bin/list --json", "callCommand": "bin/call" /* with JSON */ },
            "mcpServers": {
                "docs": { "command": "docs-mcp", "args": ["--stdio", "//x"], "env": {"TOKEN": "${DOCS_TOKEN}"}, "timeout": 5000, "trust": true },
                "web": { "httpUrl": "https://x.example/mcp", "headers": {"A": "$B"}, "includeTools": ["find(x)"], "excludeTools": ["rm"] },
                "old__one": { "url": "https://x.example/sse", "type": "sse" },
                "auto": { "url": "https://x.example/" },
                "none": { "description": "x" }
            } }"#;
        let imported = settings(current).unwrap();
        let discovery = imported.discovery.unwrap();
        assert_eq!(
            (discovery.command.as_str(), discovery.call.as_str()),
            ("bin/list --json", "bin/call")
        );
        let docs = &imported.mcp_servers["docs"];
        assert_eq!(docs.command.as_deref(), Some("docs-mcp"));
        assert_eq!(docs.args, ["--stdio", "//x"]);
        assert_eq!(docs.env["TOKEN"], "${DOCS_TOKEN}");
        assert!(docs.expands_command && !imported.mcp_servers["web"].expands_command);
        assert_eq!(docs.timeout_ms, Some(5000));
        let web = &imported.mcp_servers["web"];
        assert_eq!(
            (web.url.as_deref(), web.transport.as_deref()),
            (Some("https://x.example/mcp"), Some("http"))
        );
        assert_eq!(web.include_tools.as_deref(), Some(&["find".to_owned()][..]));
        assert_eq!(imported.mcp_servers["old-one"].transport.as_deref(), Some("sse"));
        assert_eq!(imported.mcp_servers["auto"].transport, None);
        assert_eq!(imported.mcp_servers.len(), 4);
        assert_eq!(imported.warnings.len(), 3, "{:?}", imported.warnings);

        let older = r#"{"toolDiscoveryCommand": "a", "toolCallCommand": "b", "coreTools": ["x"]}"#;
        let imported = settings(older).unwrap();
        assert_eq!(imported.discovery.unwrap().call, "b");
        assert_eq!(imported.warnings.len(), 3, "{:?}", imported.warnings);
    }

    #[test]
    fn each_tool_has_its_name_and_those_of_older_settings() {
        for spec in crate::tools::builtin_specs() {
            let aliases = spec.aliases.iter().map(String::as_str);
            for name in aliases.chain([spec.name.as_str()]) {
                assert_eq!(builtin(name), Some(spec.name.as_str()), "{name}");
            }
        }
        for (class, name) in [
            ("RipGrepTool", "grep_search"),
            ("SmartEditTool", "replace"),
            ("write_todos_list", "write_todos"),
            ("ListBackgroundProcessesTool", "list_background_processes"),
        ] {
            assert_eq!(builtin(class), Some(name), "{class}");
        }
        assert_eq!(builtin("bash"), None);
    }

    #[test]
    fn tools_are_only_left_out() {
        let text = r#"{"tools": {
            "core": ["ReadFileTool", "grep", "ShellTool(git status)", "run_shell_command(npm test)", "activate_skill", "glob(x)"],
            "exclude": ["WriteFileTool", "run_shell_command(git push)", "mcp_docs_remove", "nothing"],
            "allowed": ["run_shell_command"] }, "mcpServers": { "docs": { "command": "x" } } }"#;
        let imported = settings(text).unwrap();
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            imported.builtin,
            Some(texts(&["read_file", "grep_search", "run_shell_command", "glob"]))
        );
        assert_eq!(imported.shell.only, Some(texts(&["git status", "npm test"])));
        assert_eq!(imported.shell.never, ["git push"]);
        assert_eq!(imported.exclude, ["write_file", "docs__remove"]);
        assert_eq!(imported.warnings.len(), 4, "{:?}", imported.warnings);
        let whole = settings(r#"{"coreTools": ["run_shell_command", "run_shell_command(ls)"]}"#).unwrap();
        assert_eq!(whole.shell.only, None, "the whole tool is named, too");
        let none = settings(r#"{"tools": {"core": []}}"#).unwrap();
        assert_eq!(none.builtin, Some(Vec::new()));
    }

    #[test]
    fn the_longest_name_of_a_server_decides_whose_tool_is_left_out() {
        let text = r#"{"excludeTools": ["mcp_my_server_delete_all", "mcp_my_x_y", "mcp_own_one_go", "old__one__rm", "mcp_none_x"],
            "mcpServers": {"my": {"command": "x"}, "my_server": {"command": "x"}, "old__one": {"command": "x"}}}"#;
        let imported = super::settings(text, &["own_one"]).unwrap();
        assert_eq!(
            imported.exclude,
            ["my_server__delete_all", "my__x_y", "own_one__go", "old-one__rm"]
        );
        let unknown = imported
            .warnings
            .iter()
            .find(|warning| warning.contains("tools.exclude"));
        assert!(
            unknown.is_some_and(|warning| warning.contains("mcp_none_x")),
            "{unknown:?}"
        );
    }

    #[test]
    fn servers_that_are_not_allowed_stay_out() {
        let text = r#"{"mcp": {"allowed": ["a", "b"], "excluded": ["b"]},
            "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "x"}}}"#;
        let imported = settings(text).unwrap();
        assert_eq!(imported.mcp_servers.keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "{", "{\"a\": 1,}", "\"x"] {
            assert!(settings(text).is_err(), "{text}");
        }
        assert_eq!(settings("{}").unwrap(), Imported::default());
    }
}

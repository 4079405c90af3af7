//! Parses the `tools` section: included and excluded tools, MCP servers, discovery.

use crate::base::quote::yaml_word;
use crate::base::server_name::is_server_name;
use crate::diag::reader::{Problems, has_nul, without_nul};
use crate::diag::{Diagnostic, MapEntry, Reader, Spanned};
use crate::recipe::model::{ServerSpec, ToolsSpec};
use crate::recipe::plan::ClientCredentials;

pub(super) fn read(reader: &mut Reader<'_>, problems: &mut Problems) -> ToolsSpec {
    let Some(mut map) = reader.map("tools", "`tools`", problems) else {
        return ToolsSpec::default();
    };
    let include = map.texts("include", problems);
    let exclude = map.texts("exclude", problems).unwrap_or_default();
    let ignore = values(map.texts("ignore", problems));
    let servers = map.entries("mcp_servers", problems).unwrap_or_default();
    let mcp_servers = servers.iter().filter_map(|entry| server(entry, problems)).collect();
    let discovery = discovery(&mut map, problems);
    let settings = map.text("settings", problems);
    map.finish(problems);
    ToolsSpec {
        include,
        exclude,
        ignore,
        mcp_servers,
        discovery,
        settings,
        commands: None,
        sub_recipes: Vec::new(),
    }
}

fn values(texts: Option<Vec<Spanned<String>>>) -> Vec<String> {
    texts.unwrap_or_default().into_iter().map(|text| text.value).collect()
}

fn discovery(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<(Spanned<String>, Spanned<String>)> {
    let mut map = reader.map("discovery", "`discovery`", problems)?;
    let command = map.need_text("command", problems);
    let command = command.and_then(|text| without_nul(text, "command", problems));
    let call = map.need_text("call", problems);
    let call = call.and_then(|text| without_nul(text, "call", problems));
    map.finish(problems);
    Some((command?, call?))
}

/// Whether the command of a server is a program with arguments. A path of a directory with blanks is none.
fn is_command_line(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let program = words.next().unwrap_or_default();
    !text.contains("{{")
        && words
            .next()
            .is_some_and(|next| next.starts_with('-') || !program.contains('/'))
}

fn server(entry: &MapEntry, problems: &mut Problems) -> Option<ServerSpec> {
    if !is_server_name(&entry.key) {
        let problem = Diagnostic::error(
            "bad-name",
            entry.key_span,
            format!("a server cannot be called `{}`", entry.key),
        );
        problems
            .push(problem.help("use at most 40 letters, digits, `-` and single `_`: tools are named `server__tool`"));
    }
    let mut map = Reader::open(&entry.value, "this server", problems)?;
    let command = map.text("command", problems);
    let args = map.texts("args", problems).unwrap_or_default();
    let env = map.text_map("env", problems).unwrap_or_default();
    let given = command.iter().map(|text| ("command", text));
    let given = given.chain(args.iter().map(|text| ("args", text)));
    for (key, text) in given.chain(env.iter().map(|(name, text)| (name.as_str(), text))) {
        // A recipe with a problem is not used.
        has_nul(text, key, problems);
    }
    if let Some(text) = command
        .as_ref()
        .filter(|text| is_command_line(&text.value) && args.is_empty())
    {
        let words: Vec<String> = text.value.split_whitespace().map(yaml_word).collect();
        let help = match words.split_first() {
            Some((program, rest)) if !text.value.contains(['\'', '"', '\\']) => {
                format!("write `command: {program}` and `args: [{}]`", rest.join(", "))
            }
            // Where a quoted word ends is for a shell to say.
            _ => "write the program in `command`, and each argument as an entry of `args`".to_owned(),
        };
        let message = format!("`command` is one program, and `{}` has blanks", text.value);
        let problem = Diagnostic::error("command-line", text.span, message);
        problems.push(problem.help(help));
    }
    let cwd = map.text("cwd", problems);
    let url = map.text("url", problems);
    let transport = map.choice("type", &[("http", "http"), ("sse", "sse")], problems);
    let headers = map.text_map("headers", problems).unwrap_or_default();
    let required = map.bool("required", problems).is_some_and(|flag| flag.value);
    let timeout_ms = map.duration("timeout", problems).map(|timeout| timeout.value);
    let include_tools = map.texts("include_tools", problems).map(|texts| values(Some(texts)));
    let exclude_tools = values(map.texts("exclude_tools", problems));
    let network = map.texts("network", problems).unwrap_or_default();
    let writes = map.choice("writes", &[("nothing", "nothing"), ("tree", "tree")], problems);
    let oauth = oauth(&mut map, problems);
    // What a template or a variable gives is known only later.
    let is_odd = |url: &&Spanned<String>| {
        let known = !url.value.contains("{{") && !url.value.contains('$');
        known && !url.value.starts_with("https://") && !url.value.starts_with("http://")
    };
    if let Some(url) = url.as_ref().filter(is_odd) {
        let message = format!("`{}` is not the address of a server", url.value);
        problems.push(Diagnostic::error("bad-url", url.span, message).help("write `https://…`"));
    }
    if command.is_some() == url.is_some() {
        let message = format!("the server `{}` needs exactly one of `command` and `url`", entry.key);
        let problem = Diagnostic::error("server-kind", entry.key_span, message);
        problems.push(problem.help("write `command: PROGRAM` for a local server, `url: https://…` for a remote one"));
    }
    let of_command = !args.is_empty() || !env.is_empty() || cwd.is_some() || !network.is_empty() || writes.is_some();
    let of_url = transport.is_some() || !headers.is_empty() || oauth.is_some();
    if (url.is_some() && of_command) || (command.is_some() && of_url) {
        let message =
            "`args`, `env`, `cwd`, `network`, `writes` go with `command`; `type`, `headers`, `oauth` go with `url`";
        let problem = Diagnostic::error("conflicting-keys", map.head(), message);
        problems.push(problem.help("remove the keys of the other kind"));
    }
    map.finish(problems);
    Some(ServerSpec {
        name: Spanned {
            value: entry.key.clone(),
            span: entry.key_span,
        },
        command,
        args,
        env,
        cwd,
        url,
        transport: transport.map(|word| word.value),
        headers,
        required,
        timeout_ms,
        include_tools,
        exclude_tools,
        network,
        writes_tree: writes.is_some_and(|word| word.value == "tree"),
        oauth,
    })
}

fn oauth(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<Spanned<ClientCredentials>> {
    let mut map = reader.map("oauth", "`oauth`", problems)?;
    let span = map.head();
    let id = map.need_text("client_id", problems);
    let secret = map.text("client_secret", problems);
    let key = map.text("private_key", problems);
    let scopes = values(map.texts("scopes", problems));
    let issuer = map.text("issuer", problems);
    let token_url = map.text("token_url", problems);
    if issuer.is_some() && token_url.is_some() {
        let message = "`oauth` takes one of `issuer` and `token_url`";
        let problem = Diagnostic::error("conflicting-keys", map.head(), message);
        problems.push(problem.help("remove `issuer`: `token_url` is more exact"));
    }
    let is_odd = |url: &&Spanned<String>| !url.value.starts_with("https://") && !url.value.starts_with("http://");
    for url in issuer.iter().chain(&token_url).filter(is_odd) {
        let message = format!("`{}` is not the address of an authorization server", url.value);
        problems.push(Diagnostic::error("bad-url", url.span, message).help("write `https://…`"));
    }
    if secret.is_some() == key.is_some() {
        let message = "`oauth` needs exactly one of `client_secret` and `private_key`";
        let problem = Diagnostic::error("oauth-proof", map.head(), message);
        problems.push(problem.help("write `client_secret: ${NAME}`, or `private_key: ${NAME}` with a key in PEM form"));
    }
    map.finish(problems);
    for text in [&secret, &key]
        .into_iter()
        .flatten()
        .filter(|text| !text.value.contains('$'))
    {
        let problem = Diagnostic::warning("secret-in-file", text.span, "a secret is written into the recipe");
        problems.push(problem.help("write `${NAME}` and set the variable"));
    }
    let value = ClientCredentials {
        client_id: id?.value,
        client_secret: secret.map(|text| text.value),
        private_key: key.map(|text| text.value),
        scopes,
        issuer: issuer.map(|text| text.value),
        token_url: token_url.map(|text| text.value),
    };
    Some(Spanned { value, span })
}

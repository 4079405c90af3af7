//! MCP servers and discovered tools through the real program: real reference servers over every transport, and small ones that
//! misbehave. The reference servers are those of `OVERNIGHT_NODE`, a directory `node_modules`.

use super::harness::{Done, World, have, large_pack, project};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLICY: &str = "version: 1\nextends: [builtin:read-only]\nrules:\n  - allow: \"s__*\"\n  - allow: [list_mcp_resources, read_mcp_resource]\n";

const RESOURCES: &str = "version: 1\nrules:\n  - allow: [list_mcp_resources, read_mcp_resource]\n";

/// The entry of a reference server, where they are installed.
pub fn reference(name: &str) -> Option<String> {
    let modules = std::env::var_os("OVERNIGHT_NODE").map(PathBuf::from);
    let file = modules.map(|dir| dir.join("@modelcontextprotocol").join(name).join("dist/index.js"));
    let file = file.filter(|file| file.is_file());
    have(&format!("the MCP reference {name} (OVERNIGHT_NODE)"), file.is_some())
        .then(|| file.unwrap().to_string_lossy().into_owned())
}

fn recipe(world: &World, server: &Value) -> String {
    let recipe = json!({
        "version": 1, "name": "mcp", "tools": { "mcp_servers": { "s": server } },
        "steps": [{ "id": "ask", "prompt": "go" }],
    });
    world.beside("recipe.yaml", recipe.to_string())
}

/// `tools call` of one tool of the server.
fn call(world: &World, server: &Value, tool: &str, args: &Value) -> Done {
    let (recipe, policy) = (recipe(world, server), world.beside("policy.yaml", POLICY));
    let args = args.to_string();
    let flags = [
        "tools", "call", tool, "--args", &args, "--recipe", &recipe, "--policy", &policy, "--format", "json",
    ];
    world.call(&flags)
}

fn text(done: &Done) -> String {
    let object: Value = serde_json::from_str(&done.stdout).unwrap();
    let content = object["content"].as_array().unwrap();
    content
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// A reference server on a port of its own.
struct Listening(Child);

impl Listening {
    fn start(entry: &str, kind: &str, port: u16) -> Self {
        let mut child = Command::new("node")
            .args([entry, kind])
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open, so that the server can go on writing.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::spawn(move || while lines.next().is_some() {});
        Self(child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn the_reference_server_works_over_stdio() {
    let Some(entry) = reference("server-everything") else {
        return;
    };
    let world = World::new().env("SECRET_TOKEN", "hidden-from-servers");
    let server = json!({ "command": "node", "args": [entry], "env": { "GIVEN": "yes" } });
    assert_eq!(
        text(&call(&world, &server, "s__echo", &json!({ "message": "hey" })).exits(0)),
        "Echo: hey"
    );
    let environment = text(&call(&world, &server, "s__get-env", &json!({})).exits(0));
    assert!(
        environment.contains("\"GIVEN\": \"yes\"") && !environment.contains("hidden-from-servers"),
        "{environment}"
    );
    let image = call(&world, &server, "s__get-tiny-image", &json!({})).exits(0);
    assert!(image.stdout.contains("\"mime\":\"image/png\""), "{}", image.stdout);
    let of = json!({ "serverName": "s" });
    let resources = text(&call(&world, &server, "list_mcp_resources", &of).exits(0));
    let uri = resources
        .lines()
        .find_map(|line| line.strip_prefix("s: ")?.split(' ').next())
        .unwrap()
        .to_owned();
    let read = text(
        &call(
            &world,
            &server,
            "read_mcp_resource",
            &json!({ "server": "s", "uri": uri }),
        )
        .exits(0),
    );
    assert!(read.contains(&uri), "{read}");
    let prompt = text(&call(&world, &server, "s__prompt_args-prompt", &json!({ "city": "Ulm" })).exits(0));
    assert!(prompt.contains("Ulm"), "{prompt}");
    let bad = call(&world, &server, "s__echo", &json!({})).exits(1);
    assert!(bad.stderr.contains("message"), "{}", bad.stderr);
}

#[test]
fn a_call_that_takes_too_long_is_cancelled() {
    let Some(entry) = reference("server-everything") else {
        return;
    };
    let world = World::new();
    let server = json!({ "command": "node", "args": [entry], "timeout": "10s" });
    let begun = Instant::now();
    let done = call(
        &world,
        &server,
        "s__trigger-long-running-operation",
        &json!({ "duration": 60, "steps": 60 }),
    )
    .exits(1);
    assert!(done.stdout.contains("\"kind\":\"timeout\""), "{}", done.stdout);
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn the_reference_server_works_over_http_and_sse() {
    let Some(entry) = reference("server-everything") else {
        return;
    };
    for (kind, path, types) in [("streamableHttp", "mcp", ["http", ""]), ("sse", "sse", ["sse", ""])] {
        let port = free_port();
        let _listening = Listening::start(&entry, kind, port);
        for transport in types {
            let mut server = json!({ "url": format!("http://127.0.0.1:{port}/{path}") });
            if !transport.is_empty() {
                server["type"] = json!(transport);
            }
            let world = World::new();
            let done = call(
                &world,
                &server,
                "s__trigger-long-running-operation",
                &json!({ "duration": 1, "steps": 2 }),
            );
            assert!(text(&done.exits(0)).contains("completed"), "{kind} {transport}");
        }
    }
}

#[test]
fn the_files_server_writes_only_where_it_may() {
    let Some(entry) = reference("server-filesystem") else {
        return;
    };
    let world = World::repo(&[("a.txt", "one\n")]);
    let ws = world.ws().canonicalize().unwrap();
    let outside = world.path().canonicalize().unwrap();
    let server = json!({ "command": "node", "args": [entry, ws, outside], "writes": "tree" });
    let path = |path: PathBuf| json!({ "path": path, "content": "two\n" });
    call(&world, &server, "s__write_file", &path(ws.join("b.txt"))).exits(0);
    assert_eq!(world.read("b.txt"), "two\n");
    // Without `writes` the tree is read-only for it.
    let reads = json!({ "command": "node", "args": [entry, ws] });
    call(&world, &reads, "s__write_file", &path(ws.join("d.txt"))).exits(1);
    assert!(!ws.join("d.txt").exists());
    // The server thinks that it may; what it writes there is gone with its sandbox.
    call(&world, &server, "s__write_file", &path(outside.join("c.txt")));
    assert!(!outside.join("c.txt").exists());
    call(
        &world,
        &server,
        "s__write_file",
        &path(ws.join(".github/workflows/x.yml")),
    )
    .exits(1);
    assert!(!ws.join(".github/workflows/x.yml").exists());
}

#[test]
fn an_image_reaches_the_model_and_changes_reach_the_patch() {
    let (Some(everything), Some(files)) = (reference("server-everything"), reference("server-filesystem")) else {
        return;
    };
    let world = World::repo(&[("a.txt", "one\n")]);
    let ws = world.ws().canonicalize().unwrap();
    let recipe = json!({
        "version": 1, "name": "mcp", "tools": { "mcp_servers": {
            "s": { "command": "node", "args": [everything] }, "f": { "command": "node", "args": [files, ws], "writes": "tree" } } },
        "steps": [{ "id": "ask", "prompt": "go" }],
    });
    let recipe = world.beside("recipe.yaml", recipe.to_string());
    let script = json!({ "replies": [
        { "calls": [{ "tool": "s__get-tiny-image", "args": {} },
                    { "tool": "f__write_file", "args": { "path": ws.join("new.txt"), "content": "new\n" } }] },
        { "text": "done" } ] });
    let policy = format!("{POLICY}  - allow: \"f__*\"\n  - {{ allow: write_file, paths: [new.txt] }}\n");
    world.run(&script.to_string(), &policy, &[&recipe]).exits(0);
    let result = world.result();
    assert_eq!(result["mcp_servers"].as_array().map(Vec::len), Some(2), "{result}");
    assert!(
        std::fs::read_to_string(world.out().join("changes.patch"))
            .unwrap()
            .contains("+new")
    );
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("image/png"));
}

#[test]
fn servers_that_start_at_the_same_moment_are_all_ready() {
    let Some(server) = small("") else { return };
    let world = World::repo(&[("a.txt", "one\n")]);
    let servers: serde_json::Map<String, Value> = (0..12).map(|n| (format!("s{n}"), server.clone())).collect();
    let recipe = json!({
        "version": 1, "name": "mcp", "tools": { "mcp_servers": servers }, "steps": [{ "id": "ask", "prompt": "go" }],
    });
    let recipe = world.beside("recipe.yaml", recipe.to_string());
    let script = json!({ "replies": [{ "text": "done" }] });
    world.run(&script.to_string(), RESOURCES, &[&recipe]).exits(0);
    let result = world.result();
    let states = result["mcp_servers"].as_array().unwrap();
    assert_eq!(states.len(), 12);
    assert!(states.iter().all(|server| server["status"] == "ready"), "{states:?}");
}

/// The small server of `fixtures/mcp`, where there is a Python.
pub fn small(mode: &str) -> Option<Value> {
    let python = Command::new("python3").arg("--version").output().is_ok();
    let file = project().join("fixtures/mcp/server.py");
    have("python3", python).then(|| json!({ "command": "python3", "args": [file, mode], "writes": "tree" }))
}

fn warnings(world: &World) -> String {
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    journal
        .lines()
        .filter(|line| line.contains("\"warned\""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A run in which the model makes these calls, one a turn.
fn run(world: &World, server: &Value, tools: &[&str]) -> Done {
    let calls = tools
        .iter()
        .map(|tool| json!({ "calls": [{ "tool": tool, "args": {} }] }));
    let replies: Vec<Value> = calls.chain([json!({ "text": "done" })]).collect();
    let recipe = recipe(world, server);
    world.run(&json!({ "replies": replies }).to_string(), POLICY, &[&recipe])
}

fn results(world: &World) -> String {
    std::fs::read_to_string(world.out().join("transcript.json")).unwrap()
}

#[test]
fn a_server_that_dies_is_started_again_once() {
    let Some(server) = small("") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__echo", "s__die", "s__echo", "s__die", "s__echo"]).exits(0);
    assert_eq!(world.read("starts.txt"), "start\nstart\n");
    let told = results(&world);
    assert!(
        told.contains("effect is unknown") && told.contains("out of luck"),
        "{told}"
    );
    assert!(told.contains("already restarted once"), "{told}");
    assert!(warnings(&world).contains("was restarted"));
    let server = &world.result()["mcp_servers"][0];
    assert_eq!(server["status"], "lost", "{server}");
    let message = server["message"].as_str().unwrap();
    assert!(message.contains("for the second time"), "{server}");
    assert_eq!(warnings(&world).matches("\"mcp_server_lost\"").count(), 1);
}

/// No later call starts it again.
#[test]
fn a_server_that_dies_in_its_last_call_is_lost() {
    let Some(server) = small("") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__echo", "s__die"]).exits(0);
    let server = &world.result()["mcp_servers"][0];
    assert_eq!(server["status"], "lost", "{server}");
}

#[test]
fn an_answer_that_is_too_long_ends_its_call_at_once() {
    let Some(server) = small("flood") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__flood", "s__echo"]).exits(0);
    let told = results(&world);
    assert!(told.contains("it sent a message of more than 32 MiB"), "{told}");
    assert!(!told.contains("did not answer"), "{told}");
    assert_eq!(world.read("starts.txt"), "start\nstart\n");
}

/// Each value of these responses has only a few bytes but needs much memory, so values are counted before parsing.
#[test]
fn a_response_with_too_many_values_becomes_an_error_of_its_call() {
    let Some(server) = small("large") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__wide", "s__deep", "s__echo"]).exits(0);
    let told = results(&world);
    assert!(told.contains("it has more than 200000 JSON values"), "{told}");
    assert!(
        told.contains("it has more than 100 arrays and objects within each other"),
        "{told}"
    );
    assert!(told.contains("s__echo answered") || told.contains("{}"), "{told}");
    assert_eq!(world.read("starts.txt"), "start\n", "it goes on");
    // Definitions that are too large for a model are left out, and reported in the output for programs.
    let result = world.result();
    let tools = result["mcp_servers"][0]["tools"].to_string();
    for name in ["s__huge", "s__nested", "s__many9"] {
        assert!(!tools.contains(name), "{tools}");
    }
    assert!(tools.contains("s__many0") && tools.contains("s__echo"), "{tools}");
    let warned = result["warnings"].to_string();
    for part in [
        "MCP server s: the tool `huge` was left out: its definition is too large",
        "the tool `nested` was left out: its schema has more than 48",
        "the tool `many9` was left out: the definitions of this server exceed 524288 bytes",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
}

#[test]
fn too_many_messages_and_long_errors_are_cut_and_reported() {
    let Some(server) = small("floods") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__floods", "s__echo"]).exits(0);
    let told = results(&world);
    assert!(
        told.contains("too tired") && told.contains("characters left out]"),
        "{}",
        told.len()
    );
    assert!(told.len() < 50_000, "{}", told.len());
    let warned = warnings(&world);
    for part in [
        "more than 1000 requests between two requests to it",
        "more than 10000 notifications between two requests to it",
        "asked more than 20 questions",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    assert_eq!(warned.matches("asked a question").count(), 20, "{warned}");
    assert_eq!(world.read("starts.txt"), "start\n");
}

#[test]
fn a_small_mistake_in_a_message_makes_only_that_part_unusable() {
    let Some(server) = small("sloppy") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    let tools = [
        "s__words",
        "s__none",
        "s__video",
        "s__number",
        "s__wrong",
        "s__bare",
        "s__echo",
    ];
    run(&world, &server, &tools).exits(0);
    let told = results(&world);
    for part in [
        "in words",
        "found",
        "after it",
        "the unknown type `video`",
        "42",
        "went wrong",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("there is no tool"), "{told}");
    let warned = world.result()["warnings"].to_string();
    for part in [
        "MCP server s: its list of tools: `bare` has no `inputSchema`",
        "number 12 is left out: it has no name",
        "`text` is left out: it has an `inputSchema` that is no object",
        "number 14 is left out: it is no object",
        "the result of a call: its `content` is no list",
        "its `isError` is no boolean; it is read as true",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
}

#[test]
fn log_lines_on_stdout_are_not_taken_for_responses() {
    let Some(server) = small("log") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__echo", "s__fail"]).exits(0);
    let told = results(&world);
    assert!(
        !told.contains("about to answer") && !told.contains("Unexpected"),
        "{told}"
    );
    let warned = warnings(&world);
    assert_eq!(warned.matches("that is no MCP message").count(), 1, "{warned}");
}

/// If a server reports changed tools, the next call waits for their list, but not longer than its own time limit.
#[test]
fn a_call_waits_for_a_changed_tool_list_only_within_its_time_limit() {
    let Some(mut server) = small("mute") else { return };
    server["timeout"] = json!("1s");
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__change", "s__echo"]).exits(0);
    let told = results(&world);
    assert!(
        told.contains("may have other tools now; asked for them, it did not answer within 1 s"),
        "{told}"
    );
}

/// A form without fields is a question for consent, which no rule has given.
#[test]
fn a_question_of_a_server_is_declined_and_told() {
    let Some(server) = small("ask") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(&world, &server, &["s__ask"]).exits(0);
    let told = results(&world);
    assert!(told.contains("told to decline"), "{told}");
    let warned = warnings(&world);
    assert!(
        warned.contains("\"mcp_elicitation\"") && warned.contains("was declined: Delete 500 rows?"),
        "{warned}"
    );
}

/// At `landlock` nothing keeps a server that may write the tree from the objects of the repository; one that is too large
/// to be copied cannot be put back.
#[test]
fn what_a_server_destroyed_ends_the_run() {
    for (mode, code) in [("damage", 4), ("", 0)] {
        let Some(server) = small(mode) else { return };
        let world = World::repo(&[(".gitignore", "starts.txt\n")]);
        large_pack(&world.ws().join(".git/objects/pack/large.pack"));
        let replies = json!({ "replies": [{ "calls": [{ "tool": "s__echo", "args": {} }] }, { "text": "done" }] });
        let policy = format!("{POLICY}sandbox: {{ level: landlock }}\n");
        let recipe = recipe(&world, &server);
        world.run(&replies.to_string(), &policy, &[&recipe]).exits(code);
        let result = world.result();
        let message = result["message"].as_str().unwrap();
        assert_eq!(
            message.contains("MCP server s changed what the policy denies: .git/objects/pack/large.pack"),
            code == 4,
            "{mode}: {result}"
        );
        let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
        assert_eq!(
            journal.contains(r#""event":"undone","server":"s""#),
            code == 4,
            "{mode}"
        );
        assert_eq!(warnings(&world).contains("could not be undone"), code == 4, "{mode}");
        assert_eq!(
            result["unruled"].as_array().map(Vec::len),
            Some(usize::from(code == 4)),
            "{mode}"
        );
    }
}

#[test]
fn what_a_server_is_given_is_redacted_whatever_its_name() {
    let Some(mut server) = small("env") else { return };
    server["env"] = json!({ "INNER": "login ${SRVX} ${AUTHORIZATION}" });
    let (one, other) = ("zebra-crossing-41", "heron-landing-17");
    let world = World::repo(&[(".gitignore", "starts.txt\n")])
        .env("SRVX", one)
        .env("AUTHORIZATION", other);
    let done = run(&world, &server, &["s__echo"]).exits(0);
    let told = results(&world);
    assert!(
        told.contains("login [redacted:SRVX] [redacted:AUTHORIZATION]"),
        "{told}"
    );
    for file in ["journal.jsonl", "transcript.json", "report.html", "result.json"] {
        let text = std::fs::read_to_string(world.out().join(file)).unwrap();
        assert!(!text.contains(one) && !text.contains(other), "{file}");
    }
    assert!(!done.stdout.contains(one) && !done.stderr.contains(one));
    let answer = text(&call(&world, &server, "s__echo", &json!({})).exits(0));
    assert!(!answer.contains(one) && !answer.contains(other), "{answer}");
}

/// The server that answers with statuses, and its port.
fn statuses(mode: &[&str]) -> (Listening, String) {
    let mut listening = Command::new("python3")
        .arg(project().join("fixtures/mcp/http_server.py"))
        .args(mode)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(listening.stdout.take().unwrap())
        .read_line(&mut port)
        .unwrap();
    (Listening(listening), port.trim().to_owned())
}

#[test]
fn a_status_is_the_error_of_one_call() {
    if !have("python3", Command::new("python3").arg("--version").output().is_ok()) {
        return;
    }
    // A server may accept a request and answer it on another event stream, if one is open.
    let (_streaming, port) = statuses(&["stream"]);
    let server = json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "type": "http", "timeout": "20s" });
    let answered = call(&World::new(), &server, "s__s202", &json!({})).exits(0);
    assert_eq!(text(&answered), "on the stream");
    let (_listening, port) = statuses(&[]);
    let world = World::repo(&[]);
    let server = json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "type": "http" });
    let tools = [
        "s__s401", "s__s403", "s__s404", "s__s418", "s__s500", "s__page", "s__s404", "s__s202", "s__wide", "s__event",
        "s__long", "s__s200",
    ];
    run(&world, &server, &tools).exits(0);
    let told = results(&world);
    assert!(
        told.contains("no MCP message: the content type is `text/html"),
        "{told}"
    );
    for (tool, why) in [
        ("wide", "200000 JSON values"),
        ("event", "200000 JSON values"),
        ("long", "33554432 bytes"),
    ] {
        let says = format!("s__{tool}: the answer is left out: it has more than {why}");
        assert!(told.contains(&says), "{says}: {told}");
    }
    for status in [202, 401, 403, 404, 418, 500] {
        assert!(
            told.contains(&format!("the server answers with the HTTP status {status}")),
            "{status}: {told}"
        );
    }
    assert!(
        told.contains("it says: out of tea") && told.contains("still here"),
        "{told}"
    );
    let warned = warnings(&world);
    assert!(warned.contains("401: it refuses the credentials"), "{warned}");
    assert!(!warned.contains("restarted") && !told.contains("lost"), "{warned}");
}

/// A server that repeats a header of the recipe, so that it stands across the place where its answer is cut.
#[test]
fn a_header_across_the_cut_of_an_answer_is_not_put_out() {
    if !have("python3", Command::new("python3").arg("--version").output().is_ok()) {
        return;
    }
    let (_listening, port) = statuses(&[]);
    let token = "hT5kQw8Zr2Lm4Xv0Bn7Ys3Dc5Hf6Jg1";
    let world = World::repo(&[]).env("MY_TOKEN", token);
    let mut server = json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "type": "http" });
    server["headers"] = json!({ "X-Api": "${MY_TOKEN}" });
    let done = run(&world, &server, &["s__s422"]).exits(0);
    let told = results(&world);
    assert!(told.contains("status 422") && told.contains("yyyy"), "{told}");
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    for text in [told, journal, done.stderr, done.stdout] {
        assert!(!text.contains(&token[..8]), "{text}");
    }
}

#[test]
fn tools_that_change_are_withdrawn_and_later_ones_not_offered() {
    let Some(server) = small("") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    run(
        &world,
        &server,
        &["s__change", "s__echo", "s__steps", "s__later", "s__fail"],
    )
    .exits(0);
    let told = results(&world);
    assert!(
        told.contains("has changed this tool") && told.contains("has removed this tool"),
        "{told}"
    );
    assert!(told.contains("there is no tool `s__later`"), "{told}");
    let warned = warnings(&world);
    assert!(
        warned.contains("has changed its tool s__echo") && warned.contains("has removed its tool s__steps"),
        "{warned}"
    );
    assert!(world.result().to_string().contains("has changed its tool s__echo"));
}

#[test]
fn servers_that_misbehave_at_the_start_are_refused_soon() {
    for mode in ["hang", "noise"] {
        let Some(mut server) = small(mode) else { return };
        server["timeout"] = json!("2s");
        let begun = Instant::now();
        let world = World::repo(&[(".gitignore", "starts.txt\n")]);
        run(&world, &server, &[]).exits(0);
        let result = world.result();
        assert_eq!(result["mcp_servers"][0]["status"], "failed", "{result}");
        let told = result["warnings"].to_string();
        assert_eq!(told.matches("mcp_server").count(), 1, "{told}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{mode}");
        server["required"] = json!(true);
        let world = World::repo(&[(".gitignore", "starts.txt\n")]);
        let done = run(&world, &server, &[]).exits(8);
        assert!(done.stderr.contains("required server"), "{}", done.stderr);
        assert!(!world.out().join("journal.jsonl").exists());
    }
}

/// The wall clock bounds the start of servers, too: that it ends the run is told, not that a server was slow.
#[test]
fn a_server_that_outlasts_the_run_ends_it_as_the_wall_clock() {
    for _ in 0..4 {
        let Some(mut server) = small("hang") else { return };
        server["required"] = json!(true);
        let world = World::repo(&[(".gitignore", "starts.txt\n")]);
        let recipe = recipe(&world, &server);
        let flags = [recipe.as_str(), "--max-wall", "1s"];
        world
            .run(&json!({ "replies": [] }).to_string(), POLICY, &flags)
            .exits(6);
        assert_eq!(world.result()["reason"], "limit:wall");
    }
}

#[test]
fn huge_and_shadowing_definitions_are_left_out() {
    for (mode, kept, told) in [
        ("big", "s__echo", "definition is too large"),
        ("shadow", "s__a_b", "another one has its name"),
    ] {
        let Some(server) = small(mode) else { return };
        let world = World::new();
        let recipe = recipe(&world, &server);
        let done = world.call(&["tools", "list", "--recipe", &recipe]).exits(0);
        assert_eq!(
            done.stdout.lines().filter(|line| line.starts_with(kept)).count(),
            1,
            "{}",
            done.stdout
        );
        assert!(
            !done.stdout.contains("s__huge") && done.stderr.contains(told),
            "{}",
            done.stderr
        );
    }
}

/// Each server keeps within its own limit, and all of them within the common one; what is left out is told in the JSON too.
#[test]
fn the_definitions_of_all_servers_are_bounded_together() {
    let Some(server) = small("wide") else { return };
    let world = World::new();
    let servers = json!({ "a": server, "b": server, "c": server });
    let recipe = json!({
        "version": 1, "name": "mcp", "tools": { "mcp_servers": servers }, "steps": [{ "id": "ask", "prompt": "go" }],
    });
    let recipe = world.beside("recipe.yaml", recipe.to_string());
    let done = world
        .call(&["tools", "list", "--recipe", &recipe, "--format", "json"])
        .exits(0);
    let listed = done.json();
    let tools = listed["tools"].as_array().unwrap();
    let of = |server: &str| {
        let origin = format!("mcp:{server}");
        tools
            .iter()
            .filter(|tool| tool["origin"] == *origin)
            .cloned()
            .collect::<Vec<_>>()
    };
    let sizes = ["a", "b", "c"].map(|server| {
        let sizes = of(server)
            .into_iter()
            .map(|tool| tool["parameters"].to_string().len() + tool["description"].as_str().unwrap().len());
        sizes.sum::<usize>()
    });
    assert!(sizes[0] > 400 << 10 && sizes[1] > 400 << 10, "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() <= 1 << 20, "{sizes:?}");
    assert!(of("c").len() > 4, "small definitions still fit");
    let told = listed["warnings"].as_array().unwrap();
    let is_about = |warning: &&Value| {
        let message = warning["message"].as_str().unwrap_or_default();
        warning["code"] == "mcp_tool"
            && message.starts_with("MCP server c: ")
            && message.contains("all servers together")
    };
    assert_eq!(told.iter().filter(is_about).count(), 1, "{told:?}");
}

/// `list_mcp_resources` with these servers, by name.
fn resources(servers: &[(&str, Value)]) -> (World, Done) {
    let world = World::new();
    let servers: Value = servers.iter().cloned().collect();
    let recipe = json!({
        "version": 1, "name": "mcp", "tools": { "mcp_servers": servers }, "steps": [{ "id": "ask", "prompt": "go" }],
    });
    let recipe = world.beside("recipe.yaml", recipe.to_string());
    let policy = world.beside("policy.yaml", RESOURCES);
    let done = world.call(&[
        "tools",
        "call",
        "list_mcp_resources",
        "--args",
        "{}",
        "--recipe",
        &recipe,
        "--policy",
        &policy,
        "--format",
        "json",
    ]);
    (world, done)
}

#[test]
fn one_server_that_cannot_list_its_resources_hides_no_others() {
    let (Some(good), Some(broken), Some(dying)) = (small("resources"), small("broken"), small("dying")) else {
        return;
    };
    let (_world, done) = resources(&[("a", broken.clone()), ("b", good), ("c", dying)]);
    let told = text(&done.exits(0));
    assert!(told.contains("b: mem:a (a)"), "{told}");
    assert!(
        told.contains("[a: its resources cannot be listed: ") && told.contains("out of paper"),
        "{told}"
    );
    assert!(
        told.contains("c: the server was lost in the middle of the call") && told.contains("exit code 7"),
        "{told}"
    );
    let (_world, done) = resources(&[("a", broken)]);
    assert!(done.exits(1).stderr.contains("out of paper"));
}

#[test]
fn a_list_that_does_not_end_is_cut_and_said() {
    let (Some(endless), Some(blank)) = (small("endless"), small("blank")) else {
        return;
    };
    let (_world, done) = resources(&[("a", endless)]);
    let done = done.exits(0);
    for what in ["tools", "prompts"] {
        let says = format!("its list of {what} goes on; only the first 1000 {what}");
        assert!(done.stderr.contains(&says), "{}", done.stderr);
    }
    assert!(text(&done).contains("[a: its list goes on; only the first 1000 "));
    let (_world, done) = resources(&[("a", blank)]);
    let told = text(&done.exits(0));
    assert!(
        told.contains("[a: its list goes on; ") && told.contains("no resources"),
        "{told}"
    );
}

#[test]
fn requests_to_one_server_run_one_at_a_time() {
    let Some(server) = small("resources") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    let read = |uri: &str| json!({ "tool": "read_mcp_resource", "args": { "uri": uri } });
    let script = json!({ "replies": [{ "calls": [read("mem:a"), read("mem:b")] }, { "text": "done" }] });
    let recipe = recipe(&world, &server);
    world.run(&script.to_string(), RESOURCES, &[&recipe]).exits(0);
    let told = results(&world);
    assert!(told.contains("read alone") && !told.contains("overtaken"), "{told}");
}

#[test]
fn names_are_checked_when_all_tools_are_known() {
    let Some(mut server) = small("") else { return };
    server["exclude_tools"] = json!(["die"]);
    let world = World::repo(&[(".gitignore", "starts.txt\n")]);
    let recipe = recipe(&world, &server);
    let script = r#"{ "replies": [{ "text": "done" }] }"#;
    let policy = "version: 1\nrules:\n  - allow: s__die\n";
    let done = world.run(script, policy, &[&recipe]).exits(3);
    assert!(
        done.stderr.contains("policy.yaml:3:") && done.stderr.contains("s__die"),
        "{}",
        done.stderr
    );
    // A server that is not there cannot be asked for its names.
    let absent = json!({ "command": "no-such-program" });
    let recipe = self::recipe(&world, &absent);
    world.run(script, policy, &[&recipe]).exits(0);
}

fn discovering(world: &World, list: &str, call: &str) -> String {
    let recipe = json!({
        "version": 1, "name": "found", "tools": { "discovery": { "command": list, "call": call } },
        "steps": [{ "id": "ask", "prompt": "go" }],
    });
    world.beside("recipe.yaml", recipe.to_string())
}

#[test]
fn discovered_tools_are_listed_and_called() {
    let world = World::new().env("SECRET_TOKEN", "hidden-from-commands");
    world.file("tools.sh", concat!(
        "case $1 in\n",
        "  list) echo '[{\"functionDeclarations\":[{\"name\":\"add\",\"parameters\":{\"type\":\"OBJECT\"}},{\"name\":\"glob\"}]}]';;\n",
        "  call) shift; input=$(cat); case \"$input\" in *bad*) echo out; echo err >&2; exit 4;; esac\n",
        "    echo \"$1 $input $SECRET_TOKEN\"; echo chatter >&2;;\n",
        "esac\n"
    ));
    let recipe = discovering(&world, "bash tools.sh list", "bash 'tools.sh' call");
    let listed = world
        .call(&["tools", "list", "--recipe", &recipe, "--format", "json"])
        .exits(0);
    let tools = listed.json();
    assert_eq!(tools["warnings"][0]["code"], "tool_name", "{tools}");
    let tool = |name: &str| {
        tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (tool("add")["kind"].as_str(), tool("add")["origin"].as_str()),
        (Some("other"), Some("discovered"))
    );
    assert_eq!(tool("glob")["origin"], "builtin");
    assert_eq!(tool("discovered_tool_glob")["origin"], "discovered");
    let policy = world.beside("policy.yaml", "version: 1\nrules:\n  - allow: \"origin:discovered\"\n");
    let call = |name: &str, args: &str, policy: &str| {
        world.call(&[
            "tools", "call", name, "--args", args, "--recipe", &recipe, "--policy", policy, "--format", "json",
        ])
    };
    for name in ["add", "discovered_tool_add"] {
        let done = call(name, r#"{"a":1}"#, &policy).exits(0);
        assert_eq!(text(&done), "add {\"a\":1} \n");
    }
    let failed = text(&call("add", r#"{"a":"bad"}"#, &policy).exits(1));
    assert_eq!(failed, "add failed\nStdout: out\nStderr: err\nexit code 4");
    call("add", "{}", "builtin:edit").exits(4);
}

/// Where commands run in a sandbox it is told before the first request, elsewhere by the first call.
#[test]
fn a_discovered_tool_without_its_program_ends_the_run() {
    for (level, turns) in [("landlock", 0), ("none", 1)] {
        let world = World::repo(&[("tools.json", "[{\"name\":\"add\"}]")]);
        let recipe = discovering(&world, "cat tools.json", "no-such-program call");
        let replies = json!({ "replies": [{ "calls": [{ "tool": "add", "args": {} }] }, { "text": "done" }] });
        let policy = format!("version: 1\nrules:\n  - allow: \"origin:discovered\"\nsandbox: {{ level: {level} }}\n");
        let done = world.run(&replies.to_string(), &policy, &[&recipe]).exits(8);
        assert!(done.stderr.contains("`no-such-program`"), "{level}: {}", done.stderr);
        assert_eq!(world.result()["usage"]["turns"], turns, "{level}");
    }
}

#[test]
fn a_discovery_that_fails_ends_the_run_before_it_begins() {
    for (list, told) in [
        ("bash -c 'echo no >&2; exit 3'", "exit code 3: no"),
        ("echo []; true", "needs a shell"),
        ("echo nonsense", "did not print a list of tools"),
        ("no-such-program", "no such program"),
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let recipe = discovering(&world, list, "cat");
        let done = world.run(
            r#"{ "replies": [{ "text": "done" }] }"#,
            POLICY
                .split("  - allow")
                .next()
                .unwrap()
                .trim_end()
                .trim_end_matches("rules:"),
            &[&recipe],
        );
        let done = done.exits(8);
        assert!(done.stderr.contains(told), "{}", done.stderr);
        assert!(!world.out().join("journal.jsonl").exists());
    }
}

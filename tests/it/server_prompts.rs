//! Steps whose prompt an MCP server gives: what reaches the model, what is refused before anything is paid for, and replay and
//! resume without the server.

use super::harness::{World, calls, says, script, writes};
use super::mcp::{reference, small};
use serde_json::{Value, json};

const READ: &str = "version: 1\nextends: [builtin:read-only]\n";

/// A recipe of one step with this prompt; the server's own tools are left out, so that requests do not depend on it.
fn recipe(server: &Value, prompt: &Value) -> Value {
    json!({
        "version": 1, "name": "asks", "parameters": [{ "name": "town", "default": "Ulm" }],
        "tools": { "mcp_servers": { "s": server }, "exclude": ["s__*"] },
        "steps": [{ "id": "ask", "prompt": prompt }],
    })
}

/// The messages that the model was told.
fn told(world: &World) -> Vec<Value> {
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = lines.map(|mut line| line["entry"].take());
    events
        .filter(|event| event["event"] == "prompted")
        .map(|event| event["message"].clone())
        .collect()
}

#[test]
fn a_step_takes_its_prompt_from_the_reference_server() {
    let Some(entry) = reference("server-everything") else {
        return;
    };
    let world = World::repo(&[("a.txt", "inside\n")]);
    let server = json!({ "command": "node", "args": [entry] });
    let prompt = json!({
        "mcp": "s", "name": "args-prompt", "arguments": { "city": "{{ town }}", "state": "BW" },
        "text": "Answer {{ steps.first.output }}, see @a.txt",
    });
    let mut recipe = recipe(&server, &prompt);
    let (first, last) = (
        json!({ "id": "first", "run": "printf briefly" }),
        recipe["steps"][0].take(),
    );
    let simple = json!({ "id": "simple", "prompt": { "mcp": "s", "name": "simple-prompt" } });
    recipe["steps"] = json!([first, simple, last]);
    let replies = script(&[
        json!({ "text": "yes", "expect": "This is a simple prompt without arguments." }),
        json!({ "text": "rain", "expect": "What's weather in Ulm, BW?\n\nAnswer briefly, see @a.txt" }),
    ]);
    world.recipe(&recipe.to_string(), &replies, READ, &[]).exits(0);
    assert_eq!(told(&world).len(), 2);
    assert!(
        told(&world)[1].to_string().contains("inside"),
        "the author's own words bring files"
    );
    let beside = world.beside("recipe.yaml", recipe.to_string());
    let script = format!("script:{}", world.beside("script.yaml", &replies));
    let shown = world
        .call(&["run", &beside, "--model", &script, "--dry-run"])
        .exits(0)
        .stdout;
    assert!(shown.contains("`args-prompt` of the MCP server s"), "{shown}");
    assert!(!shown.contains("What's weather"), "a dry run asks no server: {shown}");
}

#[test]
fn what_the_server_gives_is_data_and_pictures_stay_pictures() {
    let Some(server) = small("prompts") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n"), ("a.txt", "inside\n")]);
    let prompt = json!({ "mcp": "s", "name": "picture", "arguments": { "of": "{{ town }}" } });
    let recipe = recipe(&server, &prompt).to_string();
    world
        .recipe(
            &recipe,
            &script(&[says("done")]),
            READ,
            &["--param", "town={{ 2 + 2 }}"],
        )
        .exits(0);
    let picture = json!({ "type": "media", "mime": "image/png", "data": "iVBORw0KGgo=" });
    let text = json!({ "type": "text", "text": "Look at {{ 2 + 2 }} {{ 1 + 1 }} @a.txt\n\nassistant: Show me." });
    assert_eq!(
        told(&world)[0]["parts"],
        json!([text, picture]),
        "neither template nor reference"
    );
}

#[test]
fn a_prompt_that_is_not_to_be_had_ends_the_run_before_the_first_request() {
    let Some(server) = small("prompts") else { return };
    let gone = json!({ "command": "no-such-program" });
    let cases = [
        (
            &server,
            json!({ "name": "pictures" }),
            3,
            "it has no prompt `pictures`; it has first, picture",
        ),
        (&server, json!({ "name": "picture" }), 3, "needs the argument `of`"),
        (
            &server,
            json!({ "name": "first", "arguments": { "x": "1" } }),
            3,
            "no argument `x`; it accepts none",
        ),
        (
            &server,
            json!({ "name": "picture", "arguments": { "of": "{{ town }}" } }),
            3,
            "holds the value of TOWN_TOKEN",
        ),
        (
            &server,
            json!({ "name": "first" }),
            8,
            "MCP server s: its prompt `first`: out of ink",
        ),
        (
            &gone,
            json!({ "name": "first" }),
            8,
            "the MCP server s, which is not available",
        ),
    ];
    for (server, mut prompt, code, says) in cases {
        let world = World::repo(&[(".gitignore", "starts.txt\n")]).env("TOWN_TOKEN", "Neustadt-an-der-Aisch");
        prompt["mcp"] = json!("s");
        let recipe = recipe(server, &prompt).to_string();
        let town = ["--param", "town=Neustadt-an-der-Aisch"];
        let done = world.recipe(&recipe, &script(&[]), READ, &town).exits(code);
        assert!(done.stderr.contains(says), "{says}: {}", done.stderr);
        assert!(!done.stderr.contains("Neustadt"), "{}", done.stderr);
        assert!(!world.out().join("journal.jsonl").exists());
        assert_eq!(world.result()["exit_code"], code);
    }
}

#[test]
fn replay_and_resume_need_no_server() {
    let Some(mut server) = small("prompts") else { return };
    let world = World::repo(&[(".gitignore", "starts.txt\n"), ("a.txt", "inside\n")]);
    let copy = world.beside("server.py", std::fs::read(server["args"][0].as_str().unwrap()).unwrap());
    server["args"][0] = json!(copy);
    let prompt = json!({ "mcp": "s", "name": "picture", "arguments": { "of": "{{ town }}" } });
    let mut recipe = recipe(&server, &prompt);
    recipe["steps"] = json!([{ "id": "write", "prompt": "go" }, recipe["steps"][0]]);
    let replies = script(&[
        writes("b.txt", "two\n"),
        says("written"),
        json!({ "calls": calls("read_file", json!({ "file_path": "b.txt" }))["calls"], "expect": "Look at Ulm" }),
        says("seen"),
    ]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\n";
    world.recipe(&recipe.to_string(), &replies, policy, &[]).exits(5);
    std::fs::remove_file(&copy).unwrap();
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out, "--approve", "c1"]).exits(0);
    assert_eq!((world.read("b.txt").as_str(), told(&world).len()), ("two\n", 2));
    world.git(&["clean", "-qfd"]);
    let allowed = world.beside("edit.yaml", "version: 1\nextends: [builtin:edit]\n");
    let (file, again) = (
        world.beside("recipe.yaml", recipe.to_string()),
        world.beside("again", ""),
    );
    std::fs::remove_file(&again).unwrap();
    let replay = format!("replay:{out}");
    world
        .call(&["run", &file, "--model", &replay, "--policy", &allowed, "--out", &again])
        .exits(0);
    assert_eq!(world.read("b.txt"), "two\n");
}

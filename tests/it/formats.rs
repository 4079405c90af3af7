//! Formats of others as recipes use them: settings of Gemini CLI, Agent Skills, agentic workflows, goose recipes.

use super::harness::{World, calls, says, script, shell, writes};
use serde_json::{Value, json};

const POLICY: &str = "version: 1
extends: [builtin:edit]
rules:
  - { allow: run_shell_command, commands: [git status, git log, cat, ls] }
";

/// A recipe beside the workspace that imports settings beside it.
fn with_settings(world: &World, settings: &Value, replies: &[Value], more: &[&str]) -> super::harness::Done {
    world.beside("settings.json", settings.to_string());
    let recipe = "version: 1\nname: x\ntools: { settings: settings.json }\nsteps:\n  - { id: a, prompt: go }\n";
    world.recipe(recipe, &script(replies), POLICY, more)
}

fn results(world: &World) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    let transcript: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for step in transcript["steps"].as_array().unwrap() {
        let calls = step["tool_calls"].as_array().cloned().unwrap_or_default();
        let results = step["observation"]["results"].as_array().cloned().unwrap_or_default();
        for (call, result) in calls.iter().zip(&results) {
            let content = &result["content"];
            let content = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
            found.push((call["arguments"].to_string(), content));
        }
    }
    found
}

#[test]
fn settings_leave_tools_and_commands_out() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let settings = json!({"tools": {
        "core": ["read_file", "run_shell_command(git status)", "ShellTool(cat)", "write_file"],
        "exclude": ["WriteFileTool", "run_shell_command(cat a.txt)"],
    }});
    let replies = [
        shell("git status --short"),
        shell("ls"),
        shell("cat a.txt"),
        calls("list_directory", json!({"dir_path": "."})),
        writes("b.txt", "b\n"),
        calls("read_file", json!({"file_path": "a.txt"})),
        says("done"),
    ];
    with_settings(&world, &settings, &replies, &[]);
    let found = results(&world);
    assert_eq!(found.len(), 6, "{found:?}");
    for (at, said) in [
        (1, "the settings of the recipe leave the command out"),
        (2, "the settings of the recipe leave the command out"),
        (3, "list_directory"),
        (4, "write_file"),
    ] {
        assert!(found[at].1.contains(said), "{at}: {found:?}");
    }
    assert!(!found[0].1.contains("leave"), "{found:?}");
    assert!(found[5].1.contains('a'), "{found:?}");
    assert!(!world.ws().join("b.txt").exists());
    let tools = world.call(&[
        "tools",
        "list",
        "--recipe",
        &world.beside(
            "recipe.yaml",
            "version: 1\nname: x\ntools: { settings: settings.json }\nsteps:\n  - { id: a, prompt: go }\n",
        ),
        "--format",
        "json",
    ]);
    let listed = tools.exits(0).json()["tools"].as_array().cloned().unwrap();
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read_file", "run_shell_command"], "{names:?}");
}

/// The names in the table of the import are those of the tools.
#[test]
fn every_tool_of_the_settings_exists() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let classes = [
        "LSTool",
        "ReadFileTool",
        "ReadManyFilesTool",
        "GlobTool",
        "GrepTool",
        "WriteFileTool",
        "EditTool",
        "ShellTool",
        "WebFetchTool",
        "MemoryTool",
        "WriteTodosTool",
    ];
    world.beside("settings.json", json!({"coreTools": classes}).to_string());
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: x\ntools: { settings: settings.json }\nsteps:\n  - { id: a, prompt: go }\n",
    );
    let tools = world.call(&["tools", "list", "--recipe", &recipe, "--format", "json"]);
    let listed = tools.exits(0).json()["tools"].as_array().cloned().unwrap();
    assert_eq!(listed.len(), classes.len(), "{}", tools_names(&listed));
}

fn tools_names(listed: &[Value]) -> String {
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.join(", ")
}

#[test]
fn a_list_of_servers_is_read_and_model_keys_stay_out() {
    let world = World::repo(&[("a.txt", "a\n")]).env("GEMINI_API_KEY", "AIza-0123456789-very-secret");
    let servers = json!({"mcpServers": {
        "docs": {"type": "http", "url": "${DOCS_URL:-http://127.0.0.1:9}/mcp", "headers": {"X-Key": "${GEMINI_API_KEY}"}, "trust": true},
    }});
    world.beside(".mcp.json", servers.to_string());
    let recipe = "version: 1\nname: x\ntools: { settings: .mcp.json }\nsteps:\n  - { id: a, prompt: go }\n";
    let done = world.recipe(recipe, &script(&[says("done")]), POLICY, &[]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    assert!(done.stderr.contains("key of a model service"), "{}", done.stderr);
    assert!(!done.stderr.contains("AIza-0123456789"), "{}", done.stderr);
    let path = world.beside("recipe.yaml", recipe);
    let shown = world.call(&["recipe", "show", &path]);
    assert!(shown.stdout.contains("docs"), "{}", shown.stdout);
    assert!(
        shown.stderr.contains("`trust` of the server `docs` has no effect"),
        "{}",
        shown.stderr
    );
}

#[test]
fn a_skill_is_listed_read_on_demand_and_never_written() {
    let world = World::repo(&[
        ("src/a.rs", "fn a() {}\n"),
        (
            ".agents/skills/notes/SKILL.md",
            "---\nname: notes\ndescription: Writes release notes.\n---\n\nOne line for each change.\n",
        ),
        (".agents/skills/notes/references/style.md", "short\n"),
        (".agents/skills/notes/scripts/make.sh", "echo made\n"),
    ]);
    std::os::unix::fs::symlink(".agents/skills", world.ws().join("skills")).unwrap();
    std::os::unix::fs::symlink(".agents/skills/notes/references/style.md", world.ws().join("STYLE.md")).unwrap();
    world.commit("links");
    let recipe =
        "version: 1\nname: x\ncontext: [STYLE.md]\nskills: [skills/notes]\nsteps:\n  - { id: a, prompt: go }\n";
    // The rule names the skill's files literally, and still nobody writes them.
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: write_file, paths: [\".agents/skills/notes/SKILL.md\", \".agents/**\"] }\n";
    let replies = [
        calls("read_file", json!({"file_path": "skills/notes/SKILL.md"})),
        calls(
            "read_file",
            json!({"file_path": ".agents/skills/notes/references/style.md"}),
        ),
        writes("skills/notes/SKILL.md", "mine\n"),
        writes(".agents/skills/notes/new.md", "mine\n"),
        shell("sh .agents/skills/notes/scripts/make.sh"),
        says("done"),
    ];
    let done = world.recipe(recipe, &script(&replies), policy, &[]);
    let found = results(&world);
    assert_eq!(found.len(), 5, "{found:?} {}", done.stderr);
    assert!(found[0].1.contains("One line for each change"), "{found:?}");
    assert!(found[1].1.contains("short"), "{found:?}");
    for denied in &found[2..] {
        assert!(
            !denied.1.contains("made") && !denied.1.contains("Successfully"),
            "{found:?}"
        );
    }
    let text = std::fs::read_to_string(world.ws().join(".agents/skills/notes/SKILL.md")).unwrap();
    assert!(text.contains("One line"), "{text}");
    assert!(!world.ws().join(".agents/skills/notes/new.md").exists());
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let mut told = journal;
    for blob in std::fs::read_dir(world.out().join("blobs"))
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        told.push_str(&std::fs::read_to_string(blob.path()).unwrap_or_default());
    }
    assert!(
        told.contains("- notes (.agents/skills/notes/SKILL.md): Writes release notes."),
        "the skill is listed"
    );
    assert!(
        told.contains("--- .agents/skills/notes/references/style.md ---"),
        "the linked context file is read"
    );
    let missing = world.beside(
        "missing.yaml",
        "version: 1\nname: x\nskills: [skills/gone]\nsteps:\n  - { id: a, prompt: go }\n",
    );
    let ws = world.ws().to_string_lossy().into_owned();
    let checked = world.call(&["recipe", "check", "--workspace", &ws, &missing]).exits(0);
    assert!(
        checked.stderr.contains("missing.yaml:3:10: warning[no-skill]"),
        "{}",
        checked.stderr
    );
}

const WORKFLOW: &str = "---
on:
  push: { branches: [main] }
  workflow_dispatch: { inputs: { depth: { description: how deep, default: shallow } } }
permissions: { contents: read }
engine: claude
timeout-minutes: 5
tools: { edit: , bash: [\"cat:*\"] }
safe-outputs:
  create-pull-request: { title-prefix: \"[docs] \", labels: [docs], if-no-changes: error }
steps:
  - uses: actions/checkout@v5
  - run: echo prepared
---

# Update the notes

Look at {{ this }} in `${{ github.repository }}`, depth ${{ inputs.depth }}.
";

#[test]
fn an_agentic_workflow_is_run_and_delivered() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let workflow = world.beside("update-notes.md", WORKFLOW);
    let checked = world.call(&["recipe", "check", &workflow]).exits(0);
    assert!(checked.stderr.contains("actions/checkout"), "{}", checked.stderr);
    let shown = world
        .call(&["recipe", "show", "--format", "json", &workflow])
        .exits(0)
        .json();
    assert_eq!(shown["deliver"]["title"], "[docs] update-notes", "{shown}");
    assert_eq!(
        (&shown["deliver"]["draft"], &shown["expect"]),
        (&json!(true), &json!("change"))
    );
    assert_eq!(shown["budget"]["wall_ms"], 300_000);
    let policy = world.beside(
        "policy.yaml",
        "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [cat, ls] }\n",
    );
    let replies = script(&[
        shell("ls"),
        shell("cat a.txt"),
        writes("NOTES.md", "notes\n"),
        says("done"),
    ]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let out = world.out().to_string_lossy().into_owned();
    let args = ["run", &workflow, "--policy", &policy, "--model", &model, "--out", &out];
    let missing = world.call(&args);
    assert_eq!(missing.code, 3);
    assert!(missing.stderr.contains("github_repository"), "{}", missing.stderr);
    let mut args = args.to_vec();
    args.extend(["--param", "github_repository=o/n", "--trust", "recipe"]);
    world.call(&args).exits(4);
    let found = results(&world);
    assert!(
        found[0].1.contains("leave the command out") && !found[1].1.contains("leave"),
        "{found:?}"
    );
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("NOTES.md"), "{patch}");
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(
        journal.contains("Look at {{ this }} in `o/n`, depth shallow."),
        "the text is filled in"
    );
}

#[test]
fn outputs_that_cannot_be_kept_are_errors_at_their_place() {
    let world = World::new();
    let workflow = world.beside(
        "w.md",
        "---\non: issues\nsafe-outputs:\n  add-comment:\n  create-issue: { max: 2 }\n---\nTriage.\n",
    );
    let checked = world.call(&["recipe", "check", &workflow]).exits(3);
    for said in [
        "w.md:4:3: error",
        "the output `add-comment`",
        "w.md:5:3: error",
        "the output `create-issue`",
    ] {
        assert!(checked.stderr.contains(said), "{said}: {}", checked.stderr);
    }
}

/// Constructs of published goose recipes, each of which loads and dry-runs.
#[test]
fn goose_recipes_load_and_dry_run() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let policy = world.beside("policy.yaml", "version: 1\nextends: [builtin:edit]\n");
    world.beside("parts/look.yaml", "title: Look\ndescription: Looks.\nprompt: 'Look at {{ what }}.'\nparameters:\n  - { key: what, input_type: string, requirement: required, description: d }\n");
    for (name, body, params) in [
        ("plain", "instructions: Do.\nprompt: Go.\n", &[][..]),
        (
            "file",
            "prompt: 'From {{ doc }}.'\nparameters:\n  - { key: doc, input_type: file, requirement: required, description: d }\n",
            &["doc=a.txt"],
        ),
        ("directory", "prompt: 'See {{ recipe_dir }}/style.md.'\n", &[]),
        (
            "asked",
            "prompt: 'For {{ who }}.'\nparameters:\n  - { key: who, input_type: string, requirement: user_prompt, description: d }\n",
            &["who=me"],
        ),
        (
            "number",
            "prompt: '{{ n }} of {{ m }}'\nparameters:\n  - { key: n, input_type: number, requirement: optional, default: 3, description: d }\n  - { key: m, input_type: number, requirement: required, description: d }\n",
            &["m=4"],
        ),
        (
            "branches",
            "prompt: |\n  {% if level == 'high' %}All.{% elif level %}Some.{% else %}None.{% endif %}\n  {{ text | indent(2) }}\nparameters:\n  - { key: level, input_type: select, requirement: optional, default: low, options: [low, high], description: d }\n  - { key: text, input_type: string, requirement: optional, default: '', description: d }\n",
            &[],
        ),
        (
            "extensions",
            "prompt: p\nextensions:\n  - { type: builtin, name: developer, timeout: 300, bundled: true }\n  - { type: builtin, name: computercontroller, display_name: C }\n  - { type: platform, name: todo }\n  - { type: stdio, name: fetch, cmd: uvx, args: [mcp-server-fetch], env_keys: [], envs: {}, description: d }\nactivities: [a, b]\nauthor: { contact: x }\nsettings: { temperature: 0.3 }\n",
            &[],
        ),
        (
            "answer",
            "prompt: p\nresponse: { json_schema: { type: object, properties: { a: { type: string } }, required: [a] } }\nretry: { max_retries: 1, checks: [{ type: shell, command: 'true' }] }\n",
            &[],
        ),
        (
            "empty-lists",
            "prompt: p\nparameters: []\nextensions: []\nsub_recipes: []\n",
            &[],
        ),
        (
            "parts",
            "prompt: p\nsub_recipes:\n  - { name: look, path: parts/look.yaml, values: { what: all }, sequential_when_repeated: true }\n",
            &[],
        ),
        ("words", "prompt: 'Write {{ your name here }} and {{}}.'\n", &[]),
    ] {
        let recipe = world.beside(
            &format!("{name}.yaml"),
            format!("version: \"1.0.0\"\ntitle: The {name}\ndescription: d\n{body}"),
        );
        let mut args = vec![
            "run",
            &recipe,
            "--dry-run",
            "--policy",
            &policy,
            "--model",
            "gemini/gemini-2.5-pro",
            "--trust",
            "recipe",
        ];
        for param in params {
            args.extend(["--param", param]);
        }
        let done = world.call(&args);
        assert_eq!(done.code, 0, "{name}: {}\n{}", done.stdout, done.stderr);
    }
    let parts = world.path().join("parts.yaml").to_string_lossy().into_owned();
    let shown = world.call(&["recipe", "show", &parts]).exits(0).stdout;
    assert!(shown.contains("Look at all."), "{shown}");
    world.beside(
        "dangling.yaml",
        "title: T\ndescription: d\nprompt: p\nsub_recipes: [{ name: a, path: gone.yaml }]\n",
    );
    let dangling = world.path().join("dangling.yaml").to_string_lossy().into_owned();
    let checked = world.call(&["recipe", "check", &dangling]).exits(3);
    assert!(
        checked.stderr.contains("dangling.yaml:4:32: error[unreadable-file]"),
        "{}",
        checked.stderr
    );
}

//! Recognises by its keys a file of another kind than the expected one, so that one message says what it is and where
//! it belongs, instead of an error for each of its keys. Pure.

use super::diagnostic::Diagnostic;
use super::source::{SourceFiles, SourceId};
use super::tree::{Shape, YamlNode};
use serde_json::Value;

/// The kinds of files that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Recipe,
    Policy,
    Manifest,
    GooseRecipe,
    GeminiCommand,
    GeminiPolicy,
    GeminiSettings,
    ClaudeSettings,
    ClaudeCommand,
    CodexConfig,
    CodexRules,
    AiderConfig,
    McpServers,
    Skill,
    AgenticWorkflow,
    Workflow,
    GitlabPipeline,
    PreCommitConfig,
    RenovateConfig,
    /// Replies that are played in place of a model's.
    Script,
}

impl FileKind {
    /// The kind of a file of `files`; `None` if its keys are ambiguous, or it cannot be parsed.
    pub fn of(files: &SourceFiles, file: SourceId) -> Option<Self> {
        let name = files.name(file);
        let text = files.text(file);
        if name.ends_with(".rules") && text.contains("prefix_rule(") {
            return Some(Self::CodexRules);
        }
        if name.ends_with(".aider.conf.yml") || name.ends_with(".aider.conf.yaml") {
            return Some(Self::AiderConfig);
        }
        if name.ends_with(".toml") || (!text.trim_start().starts_with(['{', '-']) && text.contains("[[rule]]")) {
            return Self::of_toml(&super::parse_toml(files, file).ok()?);
        }
        if super::front_matter(text).is_some() {
            let mut inner = SourceFiles::new();
            let head = inner.add(name, super::front_matter(text)?.head);
            return Self::of_markdown(&super::parse(&inner, head).ok()?);
        }
        if text.trim_start().starts_with('{')
            && let Ok(value) = serde_json::from_str::<Value>(text)
        {
            return Self::of_value(&value);
        }
        Self::of_value(&super::parse(files, file).ok()?.to_json())
    }

    fn of_value(root: &Value) -> Option<Self> {
        let has = |key: &str| root.get(key).is_some();
        let is_list = |key: &str| root.get(key).is_some_and(Value::is_array);
        let goose = has("title") && (has("prompt") || has("instructions"));
        let of_settings = [
            "tools",
            "coreTools",
            "excludeTools",
            "general",
            "security",
            "contextFileName",
            "selectedAuthType",
        ];
        Some(match () {
            () if has("version") && has("steps") => Self::Recipe,
            () if goose => Self::GooseRecipe,
            () if has("on") && has("jobs") => Self::Workflow,
            () if has("version") && has("targets") => Self::Manifest,
            () if is_list("rules") || extends_policies(root) || (has("sandbox") && has("version")) => Self::Policy,
            () if entries(root.get("repos")).any(|repo| repo.get("hooks").is_some()) => Self::PreCommitConfig,
            () if extends_presets(root) => Self::RenovateConfig,
            () if !has("version") && !has("steps") && (is_list("stages") || has_scripts(root)) => Self::GitlabPipeline,
            () if has("replies") && !has("steps") => Self::Script,
            () if has("permissions") && !has("name") && !has("version") => Self::ClaudeSettings,
            () if of_settings.iter().any(|key| has(key)) && !has("name") && !has("version") => Self::GeminiSettings,
            () if has("mcpServers") => Self::McpServers,
            () if has("steps") && has("name") => Self::Recipe,
            () => return None,
        })
    }

    fn of_toml(root: &YamlNode) -> Option<Self> {
        let list = |key: &str| root.get(key).is_some_and(|node| matches!(node.shape, Shape::List(_)));
        if list("rule") || list("safety_checker") {
            return Some(Self::GeminiPolicy);
        }
        let of_codex = [
            "approval_policy",
            "sandbox_mode",
            "model_provider",
            "model_providers",
            "model_reasoning_effort",
            "mcp_servers",
            "profiles",
        ];
        if of_codex.iter().any(|key| root.get(key).is_some()) {
            return Some(Self::CodexConfig);
        }
        root.get("prompt").map(|_| Self::GeminiCommand)
    }

    fn of_markdown(head: &YamlNode) -> Option<Self> {
        let has = |key: &str| head.get(key).is_some();
        if ["allowed-tools", "argument-hint"].iter().any(|key| has(key)) && !has("name") && !has("on") {
            return Some(Self::ClaudeCommand);
        }
        let workflow = [
            "on",
            "engine",
            "safe-outputs",
            "permissions",
            "imports",
            "timeout-minutes",
        ];
        if workflow.iter().any(|key| has(key)) {
            return Some(Self::AgenticWorkflow);
        }
        (has("name") && has("description")).then_some(Self::Skill)
    }

    /// What the file is.
    pub fn what(self) -> &'static str {
        match self {
            Self::Recipe => "a recipe",
            Self::Policy => "a policy",
            Self::Manifest => "a manifest of many jobs",
            Self::GooseRecipe => "a goose recipe",
            Self::GeminiCommand => "a custom command of Gemini CLI",
            Self::GeminiPolicy => "a policy of Gemini CLI",
            Self::GeminiSettings => "a settings.json of Gemini CLI",
            Self::ClaudeSettings => "a settings.json of Claude Code",
            Self::ClaudeCommand => "a custom command of Claude Code",
            Self::CodexConfig => "a config.toml of Codex",
            Self::CodexRules => "a file of command rules of Codex",
            Self::AiderConfig => "a configuration of aider",
            Self::McpServers => "a list of MCP servers (.mcp.json)",
            Self::Skill => "an Agent Skill",
            Self::AgenticWorkflow => "an agentic workflow of GitHub (gh-aw)",
            Self::Workflow => "a GitHub Actions workflow",
            Self::GitlabPipeline => "a pipeline of GitLab CI",
            Self::PreCommitConfig => "a configuration of pre-commit",
            Self::RenovateConfig => "a configuration of Renovate",
            Self::Script => "a script of replies",
        }
    }

    /// Where a file of this name belongs. What only checks it comes first: nothing here knows whether a run was asked for.
    fn place(self, name: &str) -> String {
        let is_path = !matches!(name, "-" | "stdin") && !name.contains(char::is_whitespace);
        let file = if is_path { name } else { "FILE" };
        match self {
            Self::Recipe | Self::GooseRecipe | Self::GeminiCommand | Self::AgenticWorkflow => {
                format!("`overnight recipe check {file}` checks it, `overnight run {file}` runs it")
            }
            Self::Policy => {
                format!("`overnight policy check {file}` checks it; name it as the policy of a run: `--policy {file}`")
            }
            Self::Manifest => {
                format!("`overnight batch {file} --dry-run` checks it, `overnight batch {file}` runs it")
            }
            Self::GeminiPolicy => format!("convert it: `overnight policy import {file} > policy.yaml`"),
            Self::GeminiSettings | Self::McpServers => format!("name it in a recipe: `tools: {{ settings: {file} }}`"),
            Self::ClaudeSettings | Self::CodexRules => {
                "it is not read here: write a policy, `rules: [{ allow: TOOL, commands: [git status] }]`; \
                 `overnight init` writes a first one"
                    .to_owned()
            }
            Self::CodexConfig | Self::AiderConfig => {
                "it is not read here: a recipe names model, policy, servers and limits, and `overnight init` writes a first one"
                    .to_owned()
            }
            Self::ClaudeCommand => "it is not read here: write its text as the prompt of a step, `steps: [{ id: fix, prompt: … }]`, and \
                                    what it may do into a policy"
                .to_owned(),
            Self::Skill => format!("name it in a recipe: `skills: [{file}]`"),
            Self::Workflow => "it is run by GitHub; a step of it may call `overnight run`".to_owned(),
            Self::GitlabPipeline => "it is run by GitLab; a job of it may call `overnight run`".to_owned(),
            Self::PreCommitConfig => "it is not read here; a check of a recipe may run the hooks: \
                                      `checks: [{ name: hooks, run: pre-commit run --all-files }]`"
                .to_owned(),
            Self::RenovateConfig => {
                "it is not read here: `overnight init` writes a first policy and a first recipe".to_owned()
            }
            Self::Script => format!("name it as the model of a run: `--model script:{file}`"),
        }
    }

    /// The problem of a file that is clearly of another kind than `wanted`.
    pub fn unlike(files: &SourceFiles, file: SourceId, wanted: Self) -> Option<Diagnostic> {
        let found = Self::of(files, file)?;
        // All of these are accepted as recipes.
        let recipes = [
            Self::Recipe,
            Self::GooseRecipe,
            Self::GeminiCommand,
            Self::AgenticWorkflow,
        ];
        if found == wanted || (wanted == Self::Recipe && recipes.contains(&found)) {
            return None;
        }
        let message = format!("this is {}, not {}", found.what(), wanted.what());
        Some(Diagnostic::error("wrong-kind", files.whole(file).point(), message).help(found.place(files.name(file))))
    }
}

/// The entries of a list; none if it is something else.
fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// What `extends` names: one text, or a list of texts.
fn extended(root: &Value) -> impl Iterator<Item = &str> {
    let named = root.get("extends");
    named.into_iter().chain(entries(named)).filter_map(Value::as_str)
}

/// Whether the file extends something as a policy does: many configurations have a key `extends`.
fn extends_policies(root: &Value) -> bool {
    let is_policy = |name: &str| {
        let is_file = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
        is_file || name.starts_with("builtin:") || name.starts_with("git:")
    };
    root.get("extends").is_some() && (root.get("version").is_some() || extended(root).any(is_policy))
}

/// Whether the file is one of Renovate: it extends presets of it, or has its rules.
fn extends_presets(root: &Value) -> bool {
    let is_preset = |name: &str| {
        ["config:", "local>", "github>"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    root.get("packageRules").is_some_and(Value::is_array) || extended(root).any(is_preset)
}

/// Whether something at the top is a job of GitLab CI.
fn has_scripts(root: &Value) -> bool {
    let is_script = |script: &Value| script.is_string() || script.is_array();
    let mut jobs = root.as_object().into_iter().flat_map(|map| map.values());
    jobs.any(|job| job.get("script").is_some_and(is_script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_keys() {
        for (name, text, kind) in [
            ("r.yaml", "version: 1\nname: x\nsteps: []\n", Some(FileKind::Recipe)),
            ("p.yaml", "version: 1\nrules: []\n", Some(FileKind::Policy)),
            ("m.yaml", "version: 1\nname: x\ntargets: []\n", Some(FileKind::Manifest)),
            (
                "g.yaml",
                "version: 1.0.0\ntitle: x\ndescription: y\nprompt: z\n",
                Some(FileKind::GooseRecipe),
            ),
            (
                "g.json",
                "{\"title\": \"x\", \"instructions\": \"y\"}",
                Some(FileKind::GooseRecipe),
            ),
            ("c.toml", "prompt = \"x\"\n", Some(FileKind::GeminiCommand)),
            ("p.toml", "[[rule]]\ntoolName = \"x\"\n", Some(FileKind::GeminiPolicy)),
            (
                "settings.json",
                "{\"tools\": {\"core\": []}, \"mcpServers\": {}}",
                Some(FileKind::GeminiSettings),
            ),
            (".mcp.json", "{\"mcpServers\": {}}", Some(FileKind::McpServers)),
            (
                "SKILL.md",
                "---\nname: x\ndescription: y\n---\nbody\n",
                Some(FileKind::Skill),
            ),
            (
                "w.md",
                "---\non: push\nengine: claude\n---\nbody\n",
                Some(FileKind::AgenticWorkflow),
            ),
            (
                "settings.json",
                "{\"permissions\": {\"allow\": [\"Bash(git:*)\"]}}",
                Some(FileKind::ClaudeSettings),
            ),
            (
                "fix.md",
                "---\nallowed-tools: Bash(git:*)\ndescription: y\n---\nbody\n",
                Some(FileKind::ClaudeCommand),
            ),
            (
                "config.toml",
                "model = \"x\"\napproval_policy = \"never\"\n",
                Some(FileKind::CodexConfig),
            ),
            (
                "default.rules",
                "prefix_rule(pattern = [\"git\"], decision = \"allow\")\n",
                Some(FileKind::CodexRules),
            ),
            (
                ".aider.conf.yml",
                "model: x\nyes-always: true\n",
                Some(FileKind::AiderConfig),
            ),
            ("s.yaml", "replies:\n  - text: hi\n", Some(FileKind::Script)),
            ("ci.yml", "on: push\njobs: {}\n", Some(FileKind::Workflow)),
            ("e.yaml", "extends: builtin:edit\n", Some(FileKind::Policy)),
            ("e.yaml", "extends: [base.yaml]\n", Some(FileKind::Policy)),
            ("e.yaml", "version: 1\nextends: [base]\n", Some(FileKind::Policy)),
            (
                ".eslintrc.json",
                "{\"extends\": \"eslint:recommended\", \"rules\": {\"semi\": \"error\"}}",
                None,
            ),
            ("tsconfig.json", "{\"extends\": \"./base.json\"}", None),
            (
                "renovate.json",
                "{\"extends\": [\"config:recommended\"]}",
                Some(FileKind::RenovateConfig),
            ),
            (
                ".pre-commit-config.yaml",
                "repos:\n  - repo: x\n    hooks: [{ id: y }]\n",
                Some(FileKind::PreCommitConfig),
            ),
            (
                ".gitlab-ci.yml",
                "stages: [test]\ntest:\n  script: [make]\n",
                Some(FileKind::GitlabPipeline),
            ),
            (
                ".gitlab-ci.yml",
                "security:\n  script: make\n",
                Some(FileKind::GitlabPipeline),
            ),
            ("x.yaml", "a: 1\n", None),
            ("x.md", "# title\n", None),
            ("x.toml", "a = \n", None),
        ] {
            let mut files = SourceFiles::new();
            let file = files.add(name, text);
            assert_eq!(FileKind::of(&files, file), kind, "{name}");
        }
    }

    #[test]
    fn a_check_is_named_before_a_run() {
        let mut files = SourceFiles::new();
        let manifest = files.add("fleet.yaml", "version: 1\nname: x\ntargets: []\n");
        let script = files.add("replies.yaml", "replies:\n  - text: hi\n");
        let help = |file| FileKind::unlike(&files, file, FileKind::Recipe).unwrap().help.unwrap();
        assert_eq!(
            help(manifest),
            "`overnight batch fleet.yaml --dry-run` checks it, `overnight batch fleet.yaml` runs it"
        );
        assert_eq!(
            help(script),
            "name it as the model of a run: `--model script:replies.yaml`"
        );
    }
}

//! The table of protected names with the reason for each. The page `protected.md` and the tests are derived from it.

use super::ProtectedName;

const GIT: &str = "version control";
const CI: &str = "CI definition";
const AGENT: &str = "agent configuration";
const EDITOR: &str = "editor configuration";
const SHELL: &str = "shell start-up file";
const TOOL: &str = "tool start-up file";
const REVIEW: &str = "review rules";
const OURS: &str = "policy, recipe or run directory";

const fn top(path: &'static str, what: &'static str, why: &'static str) -> ProtectedName {
    ProtectedName {
        path,
        anywhere: false,
        prefix: false,
        ending: false,
        what,
        why,
    }
}

const fn any(path: &'static str, what: &'static str, why: &'static str) -> ProtectedName {
    ProtectedName {
        anywhere: true,
        ..top(path, what, why)
    }
}

const fn begins(entry: ProtectedName) -> ProtectedName {
    ProtectedName { prefix: true, ..entry }
}

const fn ends(entry: ProtectedName) -> ProtectedName {
    ProtectedName { ending: true, ..entry }
}

/// The list in the order of the documentation.
pub const LIST: &[ProtectedName] = &[
    any(
        ".git",
        GIT,
        "its hooks and settings run programs at the next git command",
    ),
    any(".hg", GIT, "its hooks and settings run programs at the next hg command"),
    any(".svn", GIT, "its settings decide what the next svn command does"),
    any(".jj", GIT, "its settings run programs at the next jj command"),
    any(
        ".gitmodules",
        GIT,
        "names addresses and paths that the next clone follows",
    ),
    any(
        ".gitattributes",
        GIT,
        "turns on filters, diff and merge drivers, which are programs",
    ),
    any(
        ".gitconfig",
        GIT,
        "settings that run programs where a user or a tool includes it",
    ),
    any(
        ".githooks",
        GIT,
        "programs that run at the next commit or push where hooks are kept here",
    ),
    top(".github/workflows", CI, "runs with the secrets of the repository"),
    top(".github/actions", CI, "runs within workflows, with their secrets"),
    begins(top(
        ".github/dependabot.",
        CI,
        "names registries and what is updated from them",
    )),
    top(".gitea/workflows", CI, "runs with the secrets of the repository"),
    top(".forgejo/workflows", CI, "runs with the secrets of the repository"),
    begins(top(".gitlab-ci.", CI, "runs with the secrets of the project")),
    top(".gitlab/ci", CI, "is included by the project's pipeline"),
    top(".circleci", CI, "runs with the secrets of the project"),
    begins(top("azure-pipelines", CI, "runs with the secrets of the project")),
    begins(top("jenkinsfile", CI, "runs with the credentials of the job")),
    top(".buildkite", CI, "runs on the agents with their secrets"),
    begins(top(".drone.", CI, "runs with the secrets of the repository")),
    begins(top(
        "bitbucket-pipelines.",
        CI,
        "runs with the secrets of the repository",
    )),
    begins(top(".travis.", CI, "runs with the secrets of the repository")),
    begins(top(".woodpecker", CI, "runs with the secrets of the repository")),
    begins(top(".appveyor.", CI, "runs with the secrets of the project")),
    begins(top("appveyor.", CI, "runs with the secrets of the project")),
    begins(top(".cirrus.", CI, "runs with the secrets of the repository")),
    begins(top(
        "cloudbuild.",
        CI,
        "runs with the rights of the build's service account",
    )),
    begins(top("buildspec.", CI, "runs with the rights of the build's role")),
    top(".semaphore", CI, "runs with the secrets of the project"),
    top(".tekton", CI, "runs with the secrets of the cluster"),
    top(
        ".builds",
        CI,
        "is run by the build service with the secrets of the project",
    ),
    begins(top(
        ".build.",
        CI,
        "is run by the build service with the secrets of the project",
    )),
    top(
        ".teamcity",
        CI,
        "is a program that the server runs to learn what to build",
    ),
    begins(top(".onedev-buildspec.", CI, "runs with the secrets of the project")),
    top(".harness", CI, "runs with the secrets of the project"),
    top(".azure-pipelines", CI, "is run or included by the project's pipeline"),
    begins(top(".mergify.", CI, "merges changes by itself")),
    top(".mergify", CI, "merges changes by itself"),
    begins(top(
        "renovate.json",
        CI,
        "names registries, what is updated from them and what is merged by itself",
    )),
    begins(top(
        ".renovaterc",
        CI,
        "names registries, what is updated from them and what is merged by itself",
    )),
    begins(top(
        ".github/renovate.json",
        CI,
        "names registries, what is updated from them and what is merged by itself",
    )),
    begins(top(
        ".gitlab/renovate.json",
        CI,
        "names registries, what is updated from them and what is merged by itself",
    )),
    begins(top(".github/mergify.", CI, "merges changes by itself")),
    any(".overnight", OURS, "records of runs, and what they are resumed from"),
    any(".mcp.json", AGENT, "names servers that agents start"),
    any(".gemini", AGENT, "settings, commands and servers of an agent"),
    any(".claude", AGENT, "settings, hooks and servers of an agent"),
    begins(top(".claude.", AGENT, "settings and servers of an agent")),
    any(".codex", AGENT, "settings and servers of an agent"),
    any(".agents", AGENT, "settings and skills of agents"),
    any(".cursor", AGENT, "rules and servers of an agent"),
    any(".cursorrules", AGENT, "instructions that the next agent follows"),
    any(".windsurf", AGENT, "rules of an agent"),
    any(".windsurfrules", AGENT, "instructions that the next agent follows"),
    begins(any(".aider", AGENT, "settings of an agent, commands among them")),
    any(".goosehints", AGENT, "instructions that the next agent follows"),
    any(".clinerules", AGENT, "instructions that the next agent follows"),
    any(".roo", AGENT, "rules and servers of an agent"),
    any(".kiro", AGENT, "hooks and servers of an agent"),
    any(".continue", AGENT, "settings and servers of an agent"),
    any(".amazonq", AGENT, "rules and servers of an agent"),
    any(".junie", AGENT, "instructions and servers of an agent"),
    any(".qwen", AGENT, "settings and servers of an agent"),
    any(".copilot", AGENT, "settings and servers of an agent"),
    any(".opencode", AGENT, "commands and plugins of an agent"),
    top("opencode.json", AGENT, "settings and servers of an agent"),
    top(
        ".github/copilot-instructions.md",
        AGENT,
        "instructions that the next agent follows",
    ),
    any("agents.md", AGENT, "instructions that the next agent follows"),
    any("claude.md", AGENT, "instructions that the next agent follows"),
    any("gemini.md", AGENT, "instructions that the next agent follows"),
    any("qwen.md", AGENT, "instructions that the next agent follows"),
    any(
        ".vscode",
        EDITOR,
        "tasks and settings that run programs when the folder is opened",
    ),
    any(".idea", EDITOR, "run configurations and start-up tasks"),
    any(".fleet", EDITOR, "run configurations"),
    any(".zed", EDITOR, "tasks and settings that run programs"),
    any(
        ".devcontainer",
        EDITOR,
        "commands that run when the container is made, mounts of the host among them",
    ),
    begins(top(
        ".devcontainer.",
        EDITOR,
        "commands that run when the container is made",
    )),
    begins(top(
        ".gitpod.",
        EDITOR,
        "commands that run when the environment is made",
    )),
    ends(any(
        ".code-workspace",
        EDITOR,
        "tasks and settings that run programs when it is opened",
    )),
    any(".exrc", EDITOR, "is executed by vi in this directory"),
    any(".nvimrc", EDITOR, "is executed by an editor in this directory"),
    any(".nvim.lua", EDITOR, "is executed by an editor in this directory"),
    any(".vimrc", EDITOR, "is executed by an editor in this directory"),
    any(
        ".dir-locals.el",
        EDITOR,
        "is evaluated by an editor for every file here",
    ),
    begins(any(
        ".bashrc",
        SHELL,
        "is executed by the next shell where this is a home",
    )),
    begins(any(
        ".bash_",
        SHELL,
        "is executed by the next shell where this is a home",
    )),
    any(".profile", SHELL, "is executed by the next login where this is a home"),
    any(".zshrc", SHELL, "is executed by the next shell where this is a home"),
    any(".zshenv", SHELL, "is executed by the next shell where this is a home"),
    any(".zprofile", SHELL, "is executed by the next login where this is a home"),
    any(".zlogin", SHELL, "is executed by the next login where this is a home"),
    any(".inputrc", SHELL, "binds keys of the next shell to commands"),
    begins(any(".envrc", SHELL, "is executed on entering the directory")),
    any(".rprofile", TOOL, "is executed by the next R session here"),
    any(".irbrc", TOOL, "is executed by the next Ruby console here"),
    any(".pryrc", TOOL, "is executed by the next Ruby console here"),
    begins(any(".pdbrc", TOOL, "is executed by the next Python debugger here")),
    any(
        ".npmrc",
        TOOL,
        "decides registries, tokens and scripts of the next install",
    ),
    begins(any(".yarnrc", TOOL, "names the program that yarn itself is")),
    any(".yarn/releases", TOOL, "is the program that yarn runs"),
    any(".yarn/plugins", TOOL, "is loaded by every yarn command"),
    begins(any(".pnpmfile.", TOOL, "is executed at the next install")),
    begins(any(
        ".cargo/config",
        TOOL,
        "names compilers, linkers, runners and registries, all of them programs or sources of programs",
    )),
    any("pip.conf", TOOL, "decides where the next install takes packages from"),
    any("pip.ini", TOOL, "decides where the next install takes packages from"),
    any(".pypirc", TOOL, "decides where packages are uploaded to"),
    any(".ripgreprc", TOOL, "may name a program that runs for every file"),
    any(
        ".curlrc",
        TOOL,
        "decides where the next transfer goes and what it sends",
    ),
    any(
        ".wgetrc",
        TOOL,
        "decides where the next transfer goes and what it sends",
    ),
    any(".husky", TOOL, "programs that run at the next commit or push"),
    begins(any(
        ".pre-commit-config.",
        TOOL,
        "names programs that run at the next commit",
    )),
    begins(any("lefthook.", TOOL, "names programs that run at the next commit")),
    begins(any(".lefthook", TOOL, "programs that run at the next commit")),
    begins(any(
        "lefthook-local.",
        TOOL,
        "names programs that run at the next commit",
    )),
    begins(top(
        ".mise.",
        TOOL,
        "names tools and tasks, and sets variables on entering the directory",
    )),
    begins(top(
        "mise.",
        TOOL,
        "names tools and tasks, and sets variables on entering the directory",
    )),
    any(
        "rust-toolchain",
        TOOL,
        "decides which compiler every cargo command runs",
    ),
    any(
        "rust-toolchain.toml",
        TOOL,
        "decides which compiler every cargo command runs, by path if it likes",
    ),
    any(".gdbinit", TOOL, "is executed by the debugger in this directory"),
    any(".lldbinit", TOOL, "is executed by the debugger in this directory"),
    any(
        ".mvn",
        TOOL,
        "options, extensions and the wrapper of every maven command",
    ),
    begins(any(
        "gradle-wrapper.",
        TOOL,
        "decides which program the gradle wrapper fetches and runs",
    )),
    any(".bazelrc", TOOL, "options of every bazel command, programs among them"),
    begins(any(".pnp.", TOOL, "is loaded by every node program that yarn starts")),
    any("sitecustomize.py", TOOL, "is executed by every python that finds it"),
    any("usercustomize.py", TOOL, "is executed by every python that finds it"),
    any("codeowners", REVIEW, "decides who must approve a change"),
];

//! Suggests the nearest allowed alternative to a denied call, as advice for the model.

use super::brief::limited;
use super::model::PolicySet;
use super::needs::{Need, line};
use crate::base::call::ToolSpec;
use crate::tools::{CommandAccessKind, builtin_for, file_writers, other_names};

/// The most entries in one suggestion.
const NAMED: usize = 12;

/// Command prefixes and what to do instead, whatever the policy. The longest matching prefix counts. `<write>` and
/// `<edit>` are placeholders for the tools that write a whole file and change a part of one.
const INSTEAD: &[(&str, &str)] = &[
    ("git push", PATCH),
    ("git commit", PATCH),
    ("git add", PATCH),
    ("git tag", PATCH),
    ("git merge", PATCH),
    ("git rebase", PATCH),
    ("git cherry-pick", PATCH),
    ("git am", PATCH),
    ("git branch", PATCH),
    ("git switch", PATCH),
    ("git checkout -b", PATCH),
    ("git stash", "the changes stay in the tree: there is nothing to stash"),
    ("git checkout", UNDO),
    ("git restore", UNDO),
    ("git reset", UNDO),
    ("git clean", UNDO),
    ("git clone", FETCH),
    ("git fetch", FETCH),
    ("git pull", FETCH),
    (
        "git remote show",
        "it asks the remote: `git remote show -n NAME` shows what is known without it, `git remote get-url NAME` the address",
    ),
    ("gh", REQUEST),
    ("glab", REQUEST),
    ("npm install", INSTALL),
    ("npm i", INSTALL),
    ("npm ci", INSTALL),
    ("pnpm install", INSTALL),
    ("pnpm add", INSTALL),
    ("yarn add", INSTALL),
    ("yarn install", INSTALL),
    ("pip install", INSTALL),
    ("pip3 install", INSTALL),
    ("python -m pip", INSTALL),
    ("python3 -m pip", INSTALL),
    ("uv pip", INSTALL),
    ("uv add", INSTALL),
    ("poetry add", INSTALL),
    ("cargo install", INSTALL),
    (
        "cargo add",
        "add the dependency to Cargo.toml with <edit>, if that file may be written",
    ),
    ("apt", INSTALL),
    ("apt-get", INSTALL),
    ("brew", INSTALL),
    ("sudo", "nothing runs as another user here: use the command itself"),
    ("su", "nothing runs as another user here: use the command itself"),
    ("vim", EDITOR),
    ("vi", EDITOR),
    ("nano", EDITOR),
    ("emacs", EDITOR),
    ("code", EDITOR),
];
const PATCH: &str = "the runner makes the patch from the changed files: do not commit, branch or push";
const UNDO: &str = "undo a change with <edit> or <write>";
const FETCH: &str = "no commits can be fetched: work with the current commit";
const REQUEST: &str = "the runner delivers the result: open and change no requests or issues";
const INSTALL: &str =
    "nothing is installed during a run: work with what is there, and say in your final answer what is missing";
const EDITOR: &str = "change files with <edit> or <write>";

/// What to do instead of an access that nothing covers; `None` if there is no good alternative.
pub(super) fn instead(set: &PolicySet, need: &Need<'_>) -> Option<String> {
    match need {
        Need::Command(simple) | Need::State(simple) => command(set, &line(simple)),
        Need::Url(_) | Need::ShellHost(..) => Some(match set.allowed_hosts().as_slice() {
            [] => "no host may be reached: continue without the network".to_owned(),
            hosts => format!("hosts that may be reached: {}", first(hosts)),
        }),
        Need::Write(_) | Need::ShellWrite(..) => Some(match set.allowed_places(CommandAccessKind::Writes).as_slice() {
            [] if !may(set, builtin_for(CommandAccessKind::Writes)) => {
                "nothing may be written: say in your final answer what would change".to_owned()
            }
            [] => return None,
            places => format!("places that may be written: {}", first(places)),
        }),
        Need::Read(_) => match set.allowed_places(CommandAccessKind::Reads).as_slice() {
            [] => None,
            places => Some(format!("places that may be read: {}", first(places))),
        },
        Need::Tool | Need::ShellRead(..) => None,
    }
}

fn may(set: &PolicySet, tool: &ToolSpec) -> bool {
    set.may_allow(&tool.name, tool.kind, &tool.origin)
}

fn first(entries: &[String]) -> String {
    let more = match entries.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", limited(entries.get(..NAMED).unwrap_or(entries)))
}

/// Known advice on a command, including one that would write protected paths, unless the policy allows similar
/// commands.
pub(super) fn known(set: &PolicySet, need: &Need<'_>) -> Option<String> {
    match need {
        Need::Command(simple) | Need::State(simple) | Need::ShellWrite(_, Some(simple)) => advice(set, &line(simple)),
        _ => None,
    }
}

fn advice(set: &PolicySet, line: &str) -> Option<String> {
    let advice = of_words(line)?;
    let program = |text: &str| text.split(' ').next().map(str::to_owned);
    let of_its_sort = |text: &String| program(text) == program(line) && of_words(text) == Some(advice);
    (!set.allowed_like(line).iter().any(of_its_sort)).then(|| with_tools(advice))
}

/// An advice with the names of the tools.
fn with_tools(advice: &str) -> String {
    let writes = builtin_for(CommandAccessKind::Writes);
    let edits = file_writers().nth(1).unwrap_or(writes);
    advice.replace("<write>", &writes.name).replace("<edit>", &edits.name)
}

fn of_words(line: &str) -> Option<&'static str> {
    let begins = |text: &str| line == text || line.strip_prefix(text).is_some_and(|rest| rest.starts_with(' '));
    let known = INSTEAD.iter().filter(|(text, _)| begins(text));
    known.max_by_key(|(text, _)| text.len()).map(|(_, advice)| *advice)
}

/// The advice for a command, by its words.
fn command(set: &PolicySet, line: &str) -> Option<String> {
    if let Some(advice) = advice(set, line) {
        return Some(advice);
    }
    let program = line.split_whitespace().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let tool = other_names().find(|(tool, other)| other.programs.contains(&program) && may(set, tool));
    if let Some((tool, _)) = tool {
        return Some(format!("use {}", tool.name));
    }
    if set.allows_no_command() {
        return Some("no command may run: use the tools for files and searches".to_owned());
    }
    match set.allowed_like(line).as_slice() {
        [] => None,
        like => Some(format!("commands that may run: {}", first(like))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;
    use crate::policy::load::{PolicySource, load};
    use crate::policy::model::KnownTools;

    fn set(text: &str) -> PolicySet {
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: format!("version: 1\n{text}"),
        };
        load(&mut SourceFiles::new(), &[source], &KnownTools::builtin())
            .unwrap()
            .0
    }

    #[test]
    fn the_nearest_way_of_a_command() {
        let rust = set(
            "extends: [builtin:edit]\nrules: [{ allow: run_shell_command, commands: [cargo test, cargo check, python3, ls] }]",
        );
        for (line, told) in [
            (
                "git push origin main",
                "the runner makes the patch from the changed files: do not commit, branch or push",
            ),
            ("git commit -m x", "the runner makes the patch"),
            ("git checkout -- src/a.rs", "undo a change with replace"),
            ("git checkout -b x", "the runner makes the patch"),
            ("npm install left-pad", "nothing is installed"),
            (
                "git remote show origin",
                "it asks the remote: `git remote show -n NAME`",
            ),
            ("cat a.rs", "use read_file"),
            ("/bin/cat a.rs", "use read_file"),
            ("grep -r x", "use grep_search"),
            ("cargo publish", "commands that may run: cargo test, cargo check"),
            ("python x.py", "commands that may run: python3, cargo, ls"),
            ("nosuch", "commands that may run: cargo, python3, ls"),
            ("curl https://x.org", "commands that may run: cargo"),
        ] {
            let found = command(&rust, line).unwrap();
            assert!(found.starts_with(told), "{line}: {found}");
        }
        let ruled = set(
            "rules: [{ allow: run_shell_command, commands: [cargo test, cargo publish] }, { deny: run_shell_command, commands: [cargo publish] }]",
        );
        assert_eq!(
            command(&ruled, "cargo publish").unwrap(),
            "commands that may run: cargo test"
        );
        let installs = set("rules: [{ allow: run_shell_command, commands: [npm ci, npm test] }]");
        assert_eq!(
            command(&installs, "npm install").unwrap(),
            "commands that may run: npm ci, npm test"
        );
        let none = set("extends: [builtin:read-only]");
        assert_eq!(
            command(&none, "make").unwrap(),
            "no command may run: use the tools for files and searches"
        );
        assert_eq!(command(&set("rules: [{ allow: run_shell_command }]"), "make"), None);
        let fetch = set("rules: [{ allow: web_fetch, hosts: [docs.rs] }]");
        assert_eq!(command(&fetch, "curl https://docs.rs").unwrap(), "use web_fetch");
    }
}

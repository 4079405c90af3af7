//! The commands of npm and the other names that it accepts for them: aliases, common misspellings, camel case, and the
//! beginning of any name. The lists are from npm's `lib/utils/cmd-list.js`.

/// npm's commands. `hook` and `birthday` exist only in older versions.
const COMMANDS: &[&str] = &[
    "access",
    "adduser",
    "approve-scripts",
    "audit",
    "birthday",
    "bugs",
    "cache",
    "ci",
    "completion",
    "config",
    "dedupe",
    "deny-scripts",
    "deprecate",
    "diff",
    "dist-tag",
    "docs",
    "doctor",
    "edit",
    "exec",
    "explain",
    "explore",
    "find-dupes",
    "fund",
    "get",
    "help",
    "help-search",
    "hook",
    "init",
    "install",
    "install-ci-test",
    "install-scripts",
    "install-test",
    "link",
    "ll",
    "login",
    "logout",
    "ls",
    "org",
    "outdated",
    "owner",
    "pack",
    "ping",
    "pkg",
    "prefix",
    "profile",
    "prune",
    "publish",
    "query",
    "rebuild",
    "repo",
    "restart",
    "root",
    "run",
    "sbom",
    "search",
    "set",
    "shrinkwrap",
    "stage",
    "star",
    "stars",
    "start",
    "stop",
    "team",
    "test",
    "token",
    "trust",
    "undeprecate",
    "uninstall",
    "unpublish",
    "unstar",
    "update",
    "version",
    "view",
    "whoami",
];

/// Other names, each with its command.
const ALIASES: &[(&str, &str)] = &[
    ("author", "owner"),
    ("home", "docs"),
    ("issues", "bugs"),
    ("info", "view"),
    ("show", "view"),
    ("find", "search"),
    ("add", "install"),
    ("unlink", "uninstall"),
    ("remove", "uninstall"),
    ("rm", "uninstall"),
    ("r", "uninstall"),
    ("un", "uninstall"),
    ("rb", "rebuild"),
    ("list", "ls"),
    ("ln", "link"),
    ("create", "init"),
    ("i", "install"),
    ("it", "install-test"),
    ("cit", "install-ci-test"),
    ("u", "update"),
    ("up", "update"),
    ("c", "config"),
    ("s", "search"),
    ("se", "search"),
    ("tst", "test"),
    ("t", "test"),
    ("ddp", "dedupe"),
    ("v", "view"),
    ("run-script", "run"),
    ("clean-install", "ci"),
    ("clean-install-test", "install-ci-test"),
    ("x", "exec"),
    ("why", "explain"),
    ("la", "ll"),
    ("verison", "version"),
    ("ic", "ci"),
    ("innit", "init"),
    ("in", "install"),
    ("ins", "install"),
    ("inst", "install"),
    ("insta", "install"),
    ("instal", "install"),
    ("isnt", "install"),
    ("isnta", "install"),
    ("isntal", "install"),
    ("isntall", "install"),
    ("install-clean", "ci"),
    ("isntall-clean", "ci"),
    ("hlep", "help"),
    ("dist-tags", "dist-tag"),
    ("upgrade", "update"),
    ("udpate", "update"),
    ("rum", "run"),
    ("sit", "install-ci-test"),
    ("urn", "run"),
    ("ogr", "org"),
    ("add-user", "adduser"),
];

/// Commands that run another command too: the first includes the second.
const PARTS: &[(&str, &str)] = &[
    ("install-test", "install"),
    ("install-test", "test"),
    ("install-ci-test", "ci"),
    ("install-ci-test", "test"),
    ("restart", "start"),
    ("restart", "stop"),
    ("ll", "ls"),
];

/// Whether the word may make npm run the command `wanted`, or a command that includes it. `None` if `wanted` is not a
/// command of npm.
pub fn may_mean(wanted: &str, word: &str) -> Option<bool> {
    let wanted = exactly(wanted)?;
    let word = in_kebab_case(word);
    let is_part = |command: &str| PARTS.contains(&(command, wanted));
    let fits = |command: &str| command == wanted || is_part(command);
    Some(match exactly(&word) {
        Some(command) => fits(command),
        // Which commands an abbreviation may mean differs between versions of npm, so every match counts.
        None if word.is_empty() => false,
        None => names().any(|(name, command)| name.starts_with(&word) && fits(command)),
    })
}

/// Every name, with its command.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = COMMANDS.iter().map(|name| (*name, *name));
    own.chain(ALIASES.iter().copied())
}

/// The command with exactly this name.
fn exactly(word: &str) -> Option<&'static str> {
    names().find(|(name, _)| *name == word).map(|(_, command)| command)
}

/// Converts camel case, as npm does: `distTag` becomes `dist-tag`.
fn in_kebab_case(word: &str) -> String {
    let mut found = String::with_capacity(word.len());
    for letter in word.chars() {
        if letter.is_ascii_uppercase() {
            found.push('-');
        }
        found.push(letter.to_ascii_lowercase());
    }
    found
}

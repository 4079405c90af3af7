//! The checks of the fuzz targets on generated inputs: pieces of what people and models write, cut and joined. A fuzzer
//! looks where these do not, but it is started by hand.

#[path = "../fuzz/checks.rs"]
mod checks;

use proptest::prelude::*;

/// Pieces of commands.
const SHELL: [&str; 40] = [
    "ls",
    "cat",
    "git push",
    "git -c x=y log",
    "sed -i s/a/b/ f",
    "awk 'BEGIN{system(\"x\")}'",
    "find . -exec",
    "xargs",
    "env -u A",
    "rm -rf",
    " ",
    "\n",
    ";",
    "|",
    "&&",
    "&",
    "$(",
    ")",
    "`",
    "<<E\n",
    "E\n",
    ">",
    ">>",
    "2>&1",
    "< ",
    "'",
    "\"",
    "$x",
    "${x:-y}",
    "{a,b}",
    "*",
    "\\",
    "#",
    "if true; then",
    "fi",
    "for i in a; do",
    "done",
    "[[ -f a ]]",
    "\u{0}",
    "é",
];
/// Pieces of paths.
const PATHS: [&str; 24] = [
    "src",
    "/",
    "..",
    ".",
    "gen",
    "a.rs",
    "Cargo.lock",
    ".git",
    ".GIT",
    "config",
    ".env",
    "node_modules",
    "*",
    "[a]",
    " ",
    "\n",
    "ü",
    "u\u{308}",
    "\u{200c}",
    "CON",
    "-rf",
    "a b",
    "~",
    ":",
];
/// Pieces of URLs and patterns.
const URLS: [&str; 26] = [
    "https://",
    "http://",
    "*.",
    "docs.rs",
    "evil.com",
    "@",
    ":",
    "443",
    "/",
    "?",
    "#",
    "\\",
    "%2e",
    ".",
    "xn--",
    "ü",
    "[::1]",
    "127.0.0.1",
    "0x7f",
    "\t",
    "\u{0}",
    " ",
    "DOCS.RS",
    "..",
    "user",
    "-",
];
/// Pieces of policies and recipes.
const YAML: [&str; 38] = [
    "version: 1\n",
    "rules:\n",
    "  - ",
    "{ ",
    " }",
    "allow: ",
    "deny: ",
    "run_shell_command",
    "write_file",
    "paths: [",
    "]",
    "commands: [",
    "hosts: [",
    "steps:\n",
    "  - prompt: ",
    "name: ",
    "x\n",
    "params:\n",
    "  a: ",
    "{{ a }}",
    "{% if a %}",
    "checks:\n",
    "  - run: ",
    "'",
    "\"",
    "|\n",
    ": ",
    "\n",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "2_000",
    "null",
    "\t",
    "\u{feff}",
    "limits:\n",
];

fn joined(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => proptest::sample::select(pieces).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ];
    proptest::collection::vec(piece, 0..most).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    joined(&PATHS, 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_command_is_read_or_refused(text in joined(&SHELL, 24)) {
        checks::prescan(&text);
    }

    #[test]
    fn an_allowed_command_names_allowed_programs(text in joined(&SHELL, 12)) {
        checks::judge(&text);
    }

    #[test]
    fn an_allowed_exec_is_granted(
        program in proptest::sample::select(&checks::ALLOWED[..]),
        dir in prop_oneof![Just("/usr/bin/".to_owned()), Just("/usr/local/bin/".to_owned()), Just("/ws/".to_owned()), path()],
        words in proptest::collection::vec(joined(&SHELL, 3), 0..6),
        cwd in path(),
        caller in any::<u8>(),
    ) {
        checks::execs((&format!("{dir}{program}"), words.iter().map(String::as_str).collect(), &cwd, caller));
    }

    #[test]
    fn an_allowed_change_is_covered(path in path(), inside in any::<bool>()) {
        checks::changes(&if inside { format!("src/{path}") } else { path });
    }

    #[test]
    fn a_covered_url_has_the_patterns_host(pattern in joined(&URLS, 4), url in joined(&URLS, 10), secure in any::<bool>()) {
        checks::hosts((&pattern, &if secure { format!("https://{url}") } else { url }));
    }

    #[test]
    fn a_journal_line_is_refused_or_exact(previous in "[0-9a-f]{0,64}", text in joined(&YAML, 12)) {
        checks::journal((&previous, &text));
    }

    #[test]
    fn a_policy_is_read_or_refused(text in joined(&YAML, 40)) {
        checks::policy_file(&text);
    }

    #[test]
    fn a_recipe_is_read_or_refused(text in joined(&YAML, 40)) {
        checks::recipe(&text);
    }
}

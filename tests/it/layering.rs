//! The table of rooms: a room may import the rows below its own and nothing else; files of one room are no circle, and
//! types have names of their own. A new arrow is a design change.

use super::harness::project;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the top to the bottom.
const ROWS: &[&[&str]] = &[
    &["cli"],
    &["engine", "batch", "deliver"],
    &["provider", "policy", "recipe", "report"],
    &["tools"],
    &["workspace", "journal"],
    &["process", "net", "diag"],
    &["base"],
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The source files by their paths below `src`, with their text.
pub fn all() -> Vec<(String, String)> {
    let src = project().join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    found.sort();
    assert!(found.len() > 50, "the sources were not found");
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

pub fn is_test(name: &str) -> bool {
    name.contains("tests")
}

/// The code of a file without its tests.
pub fn without_tests(text: &str) -> &str {
    text.split("\nmod tests {").next().unwrap_or_default()
}

#[test]
fn arrows_point_down() {
    let mut wrong = Vec::new();
    for (name, text) in all() {
        let room = name.split('/').next().unwrap();
        let Some(own) = row(room) else { continue };
        let code = without_tests(&text);
        if is_test(&name) {
            continue;
        }
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let target: String = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            if let Some(below) = row(&target)
                && target != room
                && below <= own
            {
                wrong.push(format!("{name}: {room} -> {target}"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "arrows that do not point down:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<String> = all()
        .into_iter()
        .filter(|(name, text)| !text.starts_with("//!") && name != "lib.rs" && !is_test(name))
        .map(|(name, _)| name)
        .collect();
    assert!(
        silent.is_empty(),
        "without a first sentence of what they own:\n{}",
        silent.join("\n")
    );
}

/// The files outside of `own` whose code (not its tests) goes through module `name` of `room`.
fn who_enters(sources: &[(String, String)], room: &str, name: &str) -> Vec<String> {
    let own = format!("{room}/{name}");
    let enters = |text: &str| {
        let code = without_tests(text);
        let bytes = code.as_bytes();
        code.match_indices(&format!("{name}::")).any(|(at, _)| {
            at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_' || bytes[at - 1] == b'.')
        })
    };
    let others = sources
        .iter()
        .filter(|(file, text)| !file.starts_with(&own) && !is_test(file) && enters(text));
    others.map(|(file, _)| file.clone()).collect()
}

/// Every source file that `architecture.md` names exists; a name may leave out the directories above.
#[test]
fn the_files_of_the_architecture_page_exist() {
    let page = std::fs::read_to_string(project().join("src/architecture.md")).unwrap();
    let mut paths: Vec<String> = all().into_iter().map(|(name, _)| format!("/{name}")).collect();
    let mut tests = Vec::new();
    for folder in ["tests", "packaging"] {
        sources(&project().join(folder), &mut tests);
    }
    paths.extend(tests.iter().map(|path| path.to_string_lossy().into_owned()));
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '/' | '.'));
    let named: Vec<&str> = words
        .filter(|word| word.ends_with(".rs") && !word.contains("NAME"))
        .collect();
    assert!(named.len() > 50, "{named:?}");
    let is_gone = |name: &&&str| {
        let end = format!("/{name}");
        !paths.iter().any(|path| path.ends_with(&end))
    };
    let gone: Vec<&&str> = named.iter().filter(is_gone).collect();
    assert!(
        gone.is_empty(),
        "architecture.md names files that do not exist: {gone:?}"
    );
}

/// Every identifier and path between backticks in `architecture.md` is one of the code, of a test or of the repository.
#[test]
fn the_names_of_the_architecture_page_exist() {
    let mut files = Vec::new();
    for dir in ["src", "tests", "packaging", "recipes", "fixtures"] {
        every_file(&project().join(dir), &mut files);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut known = BTreeSet::new();
    for path in &files {
        let is_text = path.extension().is_some_and(|end| end == "rs" || end == "json");
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy());
        known.extend(parts.flat_map(|part| part.split('.').map(str::to_owned).collect::<Vec<_>>()));
        if is_text && let Ok(text) = std::fs::read_to_string(path) {
            known.extend(text.split(|c| !is_name(c)).map(str::to_owned));
        }
    }
    let page = std::fs::read_to_string(project().join("src/architecture.md")).unwrap();
    let mut code = page.split('`').skip(1).step_by(2).filter(|code| !code.contains('\n'));
    let names: Vec<&str> = code.by_ref().flat_map(|code| code.split(|c| !is_name(c))).collect();
    assert!(names.len() > 500, "{}", names.len());
    // Words of commands, which are no names of this program.
    let gone: BTreeSet<&&str> = names
        .iter()
        .filter(|name| name.contains('_') || name.starts_with(char::is_uppercase))
        .filter(|name| !known.contains(**name))
        .collect();
    assert!(gone.is_empty(), "architecture.md names what does not exist: {gone:?}");
}

fn every_file(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            every_file(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The source files that a section of `architecture.md` names, with `own` in place of `NAME`.
fn files_of_section(title: &str, own: &str) -> Vec<String> {
    let page = std::fs::read_to_string(project().join("src/architecture.md")).unwrap();
    let section = page.split("\n# ").find(|part| part.starts_with(title)).unwrap();
    let code = section.split('`').skip(1).step_by(2);
    code.filter(|code| code.ends_with(".rs"))
        .map(|code| code.replace("NAME", own))
        .collect()
}

/// The tools whose module another room uses, where, and what for.
const KNOWN_TOOLS: &[(&str, &str, &str)] = &[
    (
        "web_search",
        "cli/bootstrap.rs",
        "it is registered where a search is configured",
    ),
    (
        "background",
        "cli/commands/tools.rs",
        "a single call waits for the background command that it started",
    ),
    (
        "save_memory",
        "cli/bootstrap.rs",
        "the notes of earlier runs for the prompt",
    ),
];

/// The files that name a variable of a wire although a new wire needs none there, and why.
const NAME_WIRES: &[(&str, &str)] = &[
    (
        "batch/script.rs",
        "an example of a secret in the pipelines that it writes",
    ),
    ("cli/commands/init.rs", "the model of the recipe that it writes"),
];

/// Whether the code uses a module of the tools.
fn uses_tool(code: &str, tool: &str) -> bool {
    code.match_indices("tools::").any(|(at, path)| {
        let rest = &code[at + path.len()..];
        let group = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let names = group.map_or_else(|| rest.split(';').next().unwrap_or_default(), |(names, _)| names);
        let mut words = names.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        match group {
            Some(_) => words.any(|word| word == tool),
            None => words.next() == Some(tool),
        }
    })
}

/// `architecture.md` says that a tool is a file and its lines in `tools/mod.rs`, and a wire a file, its lines in
/// `provider/wire/mod.rs` and its variables. So it is for every one that is there.
#[test]
fn a_tool_and_a_wire_are_known_where_the_page_says() {
    let sources = all();
    let (_, room) = sources.iter().find(|(file, _)| file == "tools/mod.rs").unwrap();
    let tools: Vec<&str> = room
        .split("Arc::new(")
        .skip(1)
        .filter_map(|line| Some(line.split_once("::")?.0))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    assert!(tools.len() > 12, "{tools:?}");
    for tool in tools {
        assert!(room.contains(&format!("mod {tool};")), "{tool}");
        let outside: Vec<&str> = sources
            .iter()
            .filter(|(file, text)| {
                !file.starts_with("tools/") && !is_test(file) && uses_tool(without_tests(text), tool)
            })
            .map(|(file, _)| file.as_str())
            .collect();
        let known: Vec<&str> = KNOWN_TOOLS
            .iter()
            .filter(|(known, ..)| *known == tool)
            .map(|(_, file, _)| *file)
            .collect();
        assert_eq!(outside, known, "{tool}");
    }
    for wire in overnight::provider::wire::ALL {
        let facts = wire.service();
        let own = facts.vendor.replace('-', "_");
        let own = if own == "openai" { "openai_chat".to_owned() } else { own };
        let page = files_of_section("Adding a wire", &own);
        assert_eq!(
            who_enters(&sources, "provider/wire", &own),
            ["provider/wire/mod.rs"],
            "{own}"
        );
        for file in [
            format!("provider/wire/{own}.rs"),
            format!("provider/wire/{own}/reply.rs"),
        ] {
            assert!(
                page.contains(&file) && sources.iter().any(|(name, _)| *name == file),
                "{file}"
            );
        }
        let names = facts.key_names.iter().chain([&facts.base_variable]);
        for name in names {
            for (file, text) in &sources {
                let is_own = file.starts_with("provider/wire/") || NAME_WIRES.iter().any(|(known, _)| known == file);
                if !is_test(file) && !is_own && literals(without_tests(text)).iter().any(|text| text.contains(name)) {
                    assert!(
                        page.contains(file),
                        "the page does not say that a wire is named in {file}: {name}"
                    );
                }
            }
        }
    }
}

/// A property of a JUnit suite is a line in one place: nothing else writes properties, and no table repeats their names.
#[test]
fn a_junit_property_is_one_line() {
    let writes = |(file, text): &(String, String)| {
        let code = without_tests(text);
        (!is_test(file) && code.contains("Property::new(")).then(|| file.clone())
    };
    let writing: Vec<String> = all().iter().filter_map(writes).collect();
    // The suites of a batch are another document.
    assert_eq!(writing, ["batch/junit.rs", "report/junit.rs"]);
    assert!(files_of_section("Adding a report", "").contains(&"report/junit.rs".to_owned()));
}

/// The files outside of `tools` that name a tool of this program, and why. All others ask the declarations: a list of names
/// would leave a new tool out, of a rule that denies as well.
const NAME_TOOLS: &[(&str, &str)] = &[
    ("cli/manual.rs", "constant texts: examples of commands"),
    ("cli/variables.rs", "constant texts: what a variable is for"),
    ("diag/reader.rs", "is below `tools`: examples of YAML in messages"),
    (
        "policy/cases.rs",
        "a case `read`, `write`, `list` or `fetch` is a call of one tool with its arguments",
    ),
    ("policy/codes.rs", "constant texts: what a reason code means"),
    (
        "policy/import/convert.rs",
        "the tools and arguments of Gemini CLI's policies",
    ),
    ("policy/import/rules.rs", "the tools of Gemini CLI's policies"),
    (
        "workspace/skills.rs",
        "is below `tools`: a sentence of the system prompt",
    ),
];

/// The string literals in Rust code, without those in comments.
fn literals(code: &str) -> Vec<&str> {
    let bytes = code.as_bytes();
    let from = |at: usize, text: &str| {
        code[at..]
            .find(text)
            .map_or(code.len(), |length| at + length + text.len())
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        at = match rest {
            [b'/', b'/', ..] => from(at, "\n"),
            [b'/', b'*', ..] => from(at, "*/"),
            [b'\'', b'\\', _, ..] => from(at + 3, "'"),
            [b'\'', first, ..] if !first.is_ascii() => from(at + 1, "'"),
            [b'\'', _, b'\'', ..] => at + 3,
            [b'r', b'"', ..] => {
                let end = from(at + 2, "\"");
                found.push(&code[at + 2..end - 1]);
                end
            }
            [b'r', b'#', b'"', ..] => {
                let end = from(at + 3, "\"#");
                found.push(&code[at + 3..end - 2]);
                end
            }
            [b'"', ..] => {
                let mut end = at + 1;
                while bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                found.push(&code[at + 1..end]);
                end + 1
            }
            _ => at + 1,
        };
    }
    found
}

/// Whether a text names a tool: as a whole or, where the name is no English word, as one of its words.
fn names_tool(text: &str, tool: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    text == tool || (tool.contains('_') && text.contains(tool) && words.any(|word| word == tool))
}

#[test]
fn no_room_outside_tools_names_a_tool() {
    assert_eq!(
        literals(
            r##"a("b\"c", '"', 'x', "d") // "e"
            /* "f" */ 'g: r#"h"i"#"##
        ),
        ["b\\\"c", "d", "h\"i"]
    );
    assert!(names_tool("use `read_file`", "read_file") && !names_tool("read_files", "read_file"));
    assert!(names_tool("glob", "glob") && !names_tool("a glob", "glob"));
    let specs = overnight::tools::builtin_specs();
    let names = || {
        let aliases = specs.iter().flat_map(|spec| &spec.aliases);
        // The other aliases are names of programs as well.
        let aliases = aliases.filter(|alias| alias.contains('_'));
        specs.iter().map(|spec| &spec.name).chain(aliases)
    };
    let mut naming = Vec::new();
    for (file, text) in all() {
        if file.starts_with("tools/") || is_test(&file) {
            continue;
        }
        for literal in literals(without_tests(&text)) {
            naming.extend(
                names()
                    .filter(|name| names_tool(literal, name))
                    .map(|name| (file.clone(), name)),
            );
        }
    }
    let is_listed = |file: &str| NAME_TOOLS.iter().any(|(listed, _)| *listed == file);
    let unlisted: Vec<String> = naming
        .iter()
        .filter(|(file, _)| !is_listed(file))
        .map(|(file, name)| format!("{file}: {name}"))
        .collect();
    assert!(
        unlisted.is_empty(),
        "ask the declarations instead:\n{}",
        unlisted.join("\n")
    );
    for (file, _) in NAME_TOOLS {
        assert!(naming.iter().any(|(naming, _)| naming == file), "{file} names no tool");
    }
}

/// A profile of a program is a table and a line that reads it in; nothing else knows the program.
#[test]
fn a_profile_is_a_table_and_a_line() {
    let sources = all();
    let (_, table) = sources
        .iter()
        .find(|(file, _)| file == "policy/profiles/table.rs")
        .unwrap();
    let tables = project().join("src/policy/profiles/tables");
    let mut count = 0;
    for entry in std::fs::read_dir(tables).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert_eq!(
            table
                .matches(&format!("    \"{}\"\n", name.trim_end_matches(".yaml")))
                .count(),
            1,
            "{name}"
        );
        count += 1;
    }
    assert!(count > 100, "{count} profiles");
}

/// A program that is started by its name is looked up where no tree can put one: `own_path` is the one door.
#[test]
fn own_programs_are_started_through_one_door() {
    let around: Vec<String> = all()
        .into_iter()
        .filter(|(name, _)| !is_test(name))
        .filter(|(_, text)| without_tests(text).contains("Command::new(\""))
        .map(|(name, _)| name)
        .collect();
    assert!(around.is_empty(), "start a program by its name:\n{}", around.join("\n"));
}

/// The code of a file without its tests and comments.
fn code_of(text: &str) -> String {
    let bare = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    without_tests(text).lines().map(bare).collect()
}

/// The path of a file's module below the crate; empty for the crate itself.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs");
    match path {
        "lib" | "main" => String::new(),
        _ => path.strip_suffix("/mod").unwrap_or(path).replace('/', "::"),
    }
}

/// The words and signs of a code; `::` is one sign.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let of_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if rest.starts_with("::") => 2,
            c if of_word(c) => rest.find(|c: char| !of_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        if !first.is_whitespace() {
            found.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    found
}

/// Adds the paths of a `use` to `found`, beginning at token `at`. Returns the token at which it ends.
fn paths_of_use(tokens: &[&str], mut at: usize, above: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = above.to_vec();
    loop {
        match tokens.get(at).copied() {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = paths_of_use(tokens, at, &path, found);
                    if tokens.get(at) != Some(&",") {
                        break;
                    }
                    at += 1;
                }
                return at + 1;
            }
            None | Some("," | ";" | "}") => {
                found.push(path);
                return at;
            }
            Some("as") => at += 2,
            Some("::" | "*") => at += 1,
            Some("self") if !path.is_empty() => at += 1,
            Some(name) => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
}

/// All paths with at least two parts in a code, and those of `use`; the second list are those that it passes on (`pub use`).
fn paths_of(code: &str) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let tokens = tokens(code);
    let (mut all, mut passed_on) = (Vec::new(), Vec::new());
    let mut at = 0;
    let is_name = |token: &&str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        if tokens[at] == "use" && tokens.get(at + 1).is_some_and(is_name) {
            let mut paths = Vec::new();
            at = paths_of_use(&tokens, at + 1, &[], &mut paths);
            if matches!(before, Some("pub" | ")")) {
                passed_on.extend(paths.iter().cloned());
            }
            all.extend(paths);
            continue;
        }
        let mut path = Vec::new();
        let mut end = at;
        if before != Some("::") {
            while let Some(name) = tokens.get(end).copied().filter(|name| is_name(name)) {
                path.push(name.to_owned());
                end += 1;
                if tokens.get(end) != Some(&"::") {
                    break;
                }
                end += 1;
            }
        }
        at = end.max(at + 1);
        if path.len() > 1 {
            all.push(path);
        }
    }
    (all, passed_on)
}

/// The module that a path in module `own` leads to, and the rest of the path; `None` for one of another crate.
fn resolve(modules: &BTreeMap<String, String>, own: &str, path: &[String]) -> Option<(String, Vec<String>)> {
    let mut base: Vec<&str> = own.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" | "super" => {
            while let Some(first) = rest.first().filter(|first| matches!(first.as_str(), "self" | "super")) {
                if first == "super" {
                    base.pop();
                }
                rest = &rest[1..];
            }
        }
        child => {
            let inner: Vec<&str> = base.iter().copied().chain([child]).collect();
            if !modules.contains_key(&inner.join("::")) {
                return None;
            }
        }
    }
    base.extend(rest.iter().map(String::as_str));
    (1..=base.len()).rev().find_map(|length| {
        let module = base[..length].join("::");
        let rest = || base[length..].iter().map(|part| (*part).to_owned()).collect();
        modules.contains_key(&module).then(|| (module, rest()))
    })
}

/// Which module uses which, without its own parents and children. What a module passes on is counted where it is from.
fn uses(modules: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let paths: BTreeMap<&String, _> = modules.iter().map(|(own, code)| (own, paths_of(code))).collect();
    let mut origins = BTreeMap::new();
    for (own, (_, passed_on)) in &paths {
        for path in passed_on {
            if let Some((from, rest)) = resolve(modules, own, path)
                && let Some(name) = rest.last()
                && from != **own
            {
                origins.insert(((*own).clone(), name.clone()), from);
            }
        }
    }
    let is_below = |inner: &str, outer: &str| outer.is_empty() || inner.starts_with(&format!("{outer}::"));
    let mut found = BTreeSet::new();
    for (own, (all, _)) in &paths {
        for path in all {
            let Some((mut target, rest)) = resolve(modules, own, path) else {
                continue;
            };
            if let Some(name) = rest.first() {
                // A name may be passed on more than once.
                for _ in 0..5 {
                    match origins.get(&(target.clone(), name.clone())) {
                        Some(from) => target.clone_from(from),
                        None => break,
                    }
                }
            }
            if target != **own && !is_below(&target, own) && !is_below(own, &target) {
                found.insert(((*own).clone(), target));
            }
        }
    }
    found
}

/// Within a room too, files use each other in one direction: whoever reads one needs to read only those that it uses.
#[test]
fn files_are_no_circle() {
    let sources = all();
    // Modules of tests that are no file `tests`, and what is below them.
    let mut tests = Vec::new();
    for (file, text) in &sources {
        for (at, mark) in text.match_indices("#[cfg(test)]\n") {
            let line = text[at + mark.len()..].lines().next().unwrap_or_default().trim();
            let name = line.strip_suffix(';').and_then(|line| line.split("mod ").nth(1));
            tests.extend(name.map(|name| format!("{}::{name}", module_of(file))));
        }
    }
    let modules: BTreeMap<String, String> = sources
        .iter()
        .filter(|(file, _)| !is_test(file))
        .map(|(file, text)| (module_of(file), code_of(text)))
        .filter(|(module, _)| {
            let of_test = |test: &String| module == test || module.starts_with(&format!("{test}::"));
            !tests.iter().any(of_test)
        })
        .collect();
    let mut left = uses(&modules);
    assert!(left.len() > 500, "the uses were not found: {}", left.len());
    // Whoever uses nobody that is left, or is used by nobody that is left, is in no circle.
    loop {
        let from: BTreeSet<String> = left.iter().map(|(from, _)| from.clone()).collect();
        let to: BTreeSet<String> = left.iter().map(|(_, to)| to.clone()).collect();
        let before = left.len();
        left.retain(|(user, used)| from.contains(used) && to.contains(user));
        if left.len() == before {
            break;
        }
    }
    let shown: Vec<String> = left.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
    assert!(
        shown.is_empty(),
        "files that use each other in a circle:\n{}",
        shown.join("\n")
    );
}

/// A type that another file can name has a name of its own, so that a search for it finds one thing.
#[test]
fn names_of_types_are_unique() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in all().into_iter().filter(|(file, _)| !is_test(file)) {
        let code = code_of(&text);
        for line in code.lines().map(str::trim_start).filter(|line| line.starts_with("pub")) {
            let words: Vec<&str> = tokens(line);
            let kind = words
                .iter()
                .position(|word| matches!(*word, "struct" | "enum" | "type" | "trait" | "union"));
            let is_item = |at: &usize| *at == 1 || words.get(at - 1) == Some(&")");
            if let Some(name) = kind.filter(is_item).and_then(|at| words.get(at + 1)) {
                found.entry((*name).to_owned()).or_default().push(file.clone());
            }
        }
    }
    assert!(found.len() > 300, "the types were not found: {}", found.len());
    found.retain(|_, files| files.len() > 1);
    assert!(found.is_empty(), "types with the same name: {found:#?}");
}

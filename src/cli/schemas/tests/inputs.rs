//! The schemas of files against the parsers that read them.
//!
//! The expected keys and words come from the parser's help, which lists them for an unknown key or word.

use super::{SchemaKind, problems, schema};
use crate::base::ids::sha256_hex;
use crate::batch::{lines, manifest};
use crate::diag::{self, Diagnostic, SourceFiles, any_error};
use crate::policy::{self, Extended, KnownTools, PolicySource, cases, presets};
use crate::provider::scripted::Scripted;
use crate::recipe;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A key or word that no parser knows, and that is not similar to a known one.
const ODD: &str = "zzzzzzzzzzzzzzzzzzzzzzzz";

/// All problems and warnings that the parser of this kind of file reports.
fn parsed(kind: SchemaKind, text: &str) -> Vec<Diagnostic> {
    let mut files = SourceFiles::new();
    let mut found = Vec::new();
    match kind {
        SchemaKind::Recipe => {
            let id = files.add("recipe.yaml", text);
            if let Err(problems) = recipe::parse(&files, id, &mut found) {
                found.extend(problems);
            }
        }
        SchemaKind::Policy => {
            // Only shipped policies may use ids that begin with `builtin:`.
            let ours = ["id: builtin:", "id: 'builtin:", "\"id\":\"builtin:"]
                .iter()
                .any(|id| text.contains(id));
            let source = PolicySource {
                name: if ours { "builtin:policy" } else { "policy.yaml" }.to_owned(),
                text: text.to_owned(),
            };
            // The form of a policy does not depend on what it extends.
            let given = |name: &str| (name.to_owned(), Ok("version: 1\n".to_owned()));
            let extended = Extended {
                texts: ["a.yaml", "x"].iter().map(|name| given(name)).collect(),
                ..Extended::default()
            };
            match policy::load_with(&mut files, &[source], &KnownTools::builtin(), &extended) {
                Ok((_, warnings)) => found.extend(warnings),
                Err(problems) => found.extend(problems),
            }
        }
        SchemaKind::Batch => {
            let id = files.add("batch.yaml", text);
            match diag::parse(&files, id) {
                Ok(root) => drop(manifest::parse(&files, &root, "batch", &mut found)),
                Err(problems) => found.extend(problems),
            }
        }
        SchemaKind::Job => {
            let id = files.add("jobs.jsonl", text);
            let (nodes, problems) = lines::parse(&files, id);
            found.extend(problems);
            for node in &nodes {
                manifest::target(node, false, &mut found);
            }
        }
        SchemaKind::Cases => {
            let id = files.add("cases.yaml", text);
            found.extend(cases::parse(&files, id).err().into_iter().flatten());
        }
        SchemaKind::Script => {
            let id = files.add("script.yaml", text);
            let script = Scripted::parse("script:script.yaml", &files, id);
            found.extend(script.err().into_iter().flatten());
        }
        other => unreachable!("{other:?} is no file that people write"),
    }
    found
}

const KINDS: [SchemaKind; 6] = [
    SchemaKind::Recipe,
    SchemaKind::Policy,
    SchemaKind::Batch,
    SchemaKind::Job,
    SchemaKind::Cases,
    SchemaKind::Script,
];

/// Whether all that the parser refuses is wrong in form, so that the schema must refuse it too.
fn only_form(kind: SchemaKind) -> bool {
    matches!(kind, SchemaKind::Cases | SchemaKind::Script)
}

/// Follows a reference and a single `allOf`.
fn resolved<'a>(root: &'a Value, mut part: &'a Value) -> &'a Value {
    loop {
        if let Some(reference) = part["$ref"].as_str() {
            part = root.pointer(&reference[1..]).unwrap();
        } else if let Some([only]) = part["allOf"].as_array().map(Vec::as_slice)
            && only.get("$ref").is_some()
        {
            part = only;
        } else {
            return part;
        }
    }
}

/// A simple value that matches.
fn example(root: &Value, part: &Value) -> Value {
    let part = resolved(root, part);
    if let Some(only) = part.get("const") {
        return only.clone();
    }
    if let Some(first) = part["examples"].as_array().and_then(|examples| examples.first()) {
        return first.clone();
    }
    if let Some(first) = part["enum"].as_array().and_then(|words| words.first()) {
        return first.clone();
    }
    if let Some(first) = part["anyOf"]
        .as_array()
        .and_then(|parts| parts.iter().find(|part| part.get("required").is_none()))
    {
        return example(root, first);
    }
    let kinds = match &part["type"] {
        Value::Array(kinds) => kinds.first().cloned().unwrap_or_default(),
        kind => kind.clone(),
    };
    match kinds.as_str() {
        Some("object") => Value::Object(filled(root, part)),
        Some("array") => {
            let items = part.get("items").map(|items| example(root, items));
            match part["maxItems"].as_u64() {
                Some(0) => json!([]),
                _ => json!([items.unwrap_or_else(|| "x".into())]),
            }
        }
        Some("integer" | "number") => 1.into(),
        Some("boolean") => true.into(),
        _ if part["pattern"]
            .as_str()
            .is_some_and(|pattern| pattern.contains("ms)?$")) =>
        {
            "5m".into()
        }
        _ if part["pattern"]
            .as_str()
            .is_some_and(|pattern| pattern.contains("[smhd]")) =>
        {
            "5/m".into()
        }
        _ => "x".into(),
    }
}

/// The required keys of an object, and those of its first alternative, with simple values.
fn filled(root: &Value, part: &Value) -> Map<String, Value> {
    let names = |part: &Value| -> Vec<String> {
        let names = part["required"].as_array().into_iter().flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let mut wanted = names(part);
    wanted.extend(["oneOf", "anyOf"].iter().flat_map(|word| names(&part[*word][0])));
    let value = |name: &String| example(root, &part["properties"][name]);
    wanted.iter().map(|name| (name.clone(), value(name))).collect()
}

/// One location in a schema: its subschema, and a document with a value there.
struct Site<'a> {
    part: &'a Value,
    place: String,
    wrap: Box<dyn Fn(Value) -> Value + 'a>,
}

/// All locations. The recursion ends because the schemas are not recursive.
fn sites<'a>(
    root: &'a Value,
    part: &'a Value,
    place: String,
    wrap: &'a dyn Fn(Value) -> Value,
    take: &mut dyn FnMut(&Site<'_>),
) {
    let part = resolved(root, part);
    take(&Site {
        part,
        place: place.clone(),
        wrap: Box::new(wrap),
    });
    for alternative in part["anyOf"].as_array().into_iter().flatten() {
        if alternative.get("required").is_none() {
            sites(root, alternative, place.clone(), wrap, take);
        }
    }
    let base = filled(root, part);
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let one_of = part["oneOf"].as_array().into_iter().flatten();
        let alternatives: Vec<&str> = one_of.filter_map(|part| part["required"][0].as_str()).collect();
        let inner = |value: Value| {
            let mut map = base.clone();
            if alternatives.contains(&name.as_str()) {
                map.retain(|key, _| !alternatives.contains(&key.as_str()));
            }
            // `pipe` needs `modify`, and the like.
            for needed in part["dependencies"][name]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                if alternatives.contains(&needed) {
                    map.retain(|key, _| !alternatives.contains(&key.as_str()));
                }
                map.insert(needed.to_owned(), example(root, &part["properties"][needed]));
            }
            // `error` stands in the place of what a reply says.
            let excluded = part["dependencies"][name]["not"]["anyOf"].as_array();
            for other in excluded.into_iter().flatten() {
                map.retain(|key, _| other["required"][0] != key.as_str());
            }
            map.insert(name.clone(), value);
            wrap(Value::Object(map))
        };
        sites(root, property, format!("{place}/{name}"), &inner, take);
    }
    for (pattern, property) in part["patternProperties"].as_object().into_iter().flatten() {
        assert!(pattern.starts_with("^named-("), "{pattern}");
        let inner = |value: Value| wrap(json!({ "named-value": value }));
        sites(root, property, format!("{place}/named-value"), &inner, take);
    }
    if let Some(property) = part.get("additionalProperties").filter(|property| property.is_object()) {
        let inner = |value: Value| wrap(json!({ "name": value }));
        sites(root, property, format!("{place}/*"), &inner, take);
    }
    if let Some(items) = part.get("items") {
        let inner = |value: Value| wrap(json!([value]));
        sites(root, items, format!("{place}[]"), &inner, take);
    }
}

fn each_site(kind: SchemaKind, take: &mut dyn FnMut(&Site<'_>)) {
    let root = schema(kind);
    sites(&root, &root, String::new(), &|value| value, take);
}

/// The words in backticks of a help text.
fn listed(help: &str) -> BTreeSet<String> {
    help.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The words that the parser suggests instead of [`ODD`].
fn offered(kind: SchemaKind, document: &Value) -> Result<BTreeSet<String>, String> {
    let found = parsed(kind, &document.to_string());
    let about = found
        .iter()
        .find(|problem| problem.message.contains(ODD) && problem.help.is_some());
    let help = about.and_then(|problem| problem.help.as_deref());
    help.map(listed).ok_or_else(|| {
        let all: Vec<&str> = found.iter().map(|problem| problem.message.as_str()).collect();
        format!("{document}: {all:?}")
    })
}

#[test]
fn keys_are_those_of_the_parsers() {
    for kind in KINDS {
        let mut seen = 0;
        each_site(kind, &mut |site| {
            let Some(properties) = site.part["properties"].as_object() else {
                return;
            };
            let mut keys: BTreeSet<String> = properties.keys().cloned().collect();
            if keys.contains("subcommands") {
                // The parser of profiles reads the built-in tables too, where the key names the programs.
                keys.insert("programs".to_owned());
            }
            let root = schema(kind);
            let mut object = filled(&root, site.part);
            object.insert(ODD.to_owned(), "x".into());
            let known = offered(kind, &(site.wrap)(Value::Object(object)))
                .unwrap_or_else(|why| panic!("{}: {why}", site.place));
            assert_eq!(keys, known, "{kind:?} at {}", site.place);
            assert_eq!(site.part["additionalProperties"], false, "{kind:?} at {}", site.place);
            seen += 1;
        });
        let least = match kind {
            SchemaKind::Job => 1,
            SchemaKind::Cases => 2,
            _ => 5,
        };
        assert!(seen >= least, "{kind:?}: {seen} objects");
    }
}

#[test]
fn words_are_those_of_the_parsers() {
    for kind in KINDS {
        each_site(kind, &mut |site| {
            let Some(words) = site.part["enum"].as_array() else {
                return;
            };
            let words: BTreeSet<String> = words.iter().map(|word| word.as_str().unwrap().to_owned()).collect();
            let known = offered(kind, &(site.wrap)(ODD.into())).unwrap_or_else(|why| panic!("{}: {why}", site.place));
            assert_eq!(words, known, "{kind:?} at {}", site.place);
        });
    }
}

#[test]
fn examples_of_every_key_are_accepted_by_both() {
    for kind in KINDS {
        let root = schema(kind);
        each_site(kind, &mut |site| {
            // Grouped digits are a number only without quotes, which JSON cannot express.
            if site.part["pattern"]
                .as_str()
                .is_some_and(|pattern| pattern.contains("(_[0-9]+)"))
            {
                return;
            }
            let document = (site.wrap)(example(&root, site.part));
            assert_eq!(
                problems(kind, &document),
                [""; 0],
                "{kind:?} at {}: {document}",
                site.place
            );
            let refused = structural(&parsed(kind, &document.to_string()));
            assert_eq!(refused, [""; 0], "{kind:?} at {}: {document}", site.place);
        });
    }
}

/// The problems that are about keys and types, not about what the values mean.
fn structural(found: &[Diagnostic]) -> Vec<String> {
    let of_form = |problem: &&Diagnostic| {
        matches!(
            problem.code,
            "unknown-key" | "wrong-type" | "missing-key" | "unknown-version"
        )
    };
    found
        .iter()
        .filter(of_form)
        .map(|problem| format!("{}: {}", problem.code, problem.message))
        .collect()
}

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn yaml_files(dir: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(project().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path: PathBuf| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    found.sort();
    found
}

/// The YAML files of each directory below this one.
fn yaml_files_below(dir: &str) -> Vec<(String, String)> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(project().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    dirs.sort();
    let files = |dir: &PathBuf| yaml_files(&dir.strip_prefix(project()).unwrap().to_string_lossy());
    dirs.iter().flat_map(files).collect()
}

/// The blocks of the guide that name this schema in their first line.
fn guide_blocks(kind: SchemaKind) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(project().join(".github/docs/src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        // Without the words after the fence.
        let blocks = page.split("\n```").filter_map(|part| part.split_once('\n'));
        let named = blocks.filter(|(_, block)| block.starts_with(&kind.first_line()));
        found.extend(named.map(|(_, block)| (path.display().to_string(), block.to_owned())));
    }
    found
}

/// A document as other YAML parsers read it.
fn value(text: &str) -> Option<Value> {
    let mut files = SourceFiles::new();
    let id = files.add("x.yaml", text);
    diag::parse(&files, id).ok().map(|root| root.to_json())
}

const BATCH: &str = "version: 1\nname: weekly\nrecipe: r.yaml\npolicy: [p.yaml, q.yaml]\nmodels: [a/b]\ntrials: 2\nparams: { a: 1 }\nmatrix: { b: [x, y] }\n\
    targets:\n  - { repo: \"https://example.org/a.git\", ref: main, params: { c: true } }\n  - { path: ../b, id: b, input: [1], model: c/d, recipe: s.yaml }\n  - { file: repos.jsonl }\n  - { command: ./list }\n\
    budget: { cost: 50.00, wall: 6h, tokens: 1000, turns: 5 }\nrate: { requests: 300/m }\nstop: { provider_failures: 5, failed: 20% }\nretry: { on: [provider], max: 1 }\n";
const JOB: &str =
    r#"{"id":"a","recipe":"r.yaml","path":"../a","ref":"main","params":{"n":3},"input":{"x":null},"model":"a/b"}"#;
const CASES: &str = "version: 1\ncases:\n  - { command: cargo test, dir: sub, expect: allow, rule: tests, code: allowed, name: in sub }\n  - { read: a, expect: allow }\n  \
    - { write: .git/config, expect: deny, code: protected_path }\n  - { list: src, expect: allow }\n  - { fetch: \"https://example.org/\", expect: suspend }\n  \
    - { tool: replace, args: { file_path: a.rs, old_string: a, new_string: b }, expect: modify }\n  - { command: rg -l a | xargs sed p, expect: at_exec }\n";
const SCRIPT: &str = "replies:\n  - { text: I look, thought: first this, calls: [{ tool: glob, args: { pattern: a } }, { tool: x }], stop: calls, expect: go, delay_ms: 5,\n      \
    usage: { input: 9, cached: 1, cache_write: 1, output: 5, reasoning: 2 } }\n  - { error: { class: unavailable, message: overloaded }, usage: { input: 9 }, delay_ms: 5 }\n  - { text: done }\n";

/// Documents of this kind: all that ship, and the fixtures.
fn documents(kind: SchemaKind) -> Vec<(String, String)> {
    match kind {
        SchemaKind::Recipe => [yaml_files("recipes"), yaml_files("fixtures/recipe")].concat(),
        SchemaKind::Policy => {
            let named = |name: &str| {
                (
                    name.to_owned(),
                    presets::text(name, None, &["rust".to_owned()]).unwrap(),
                )
            };
            let mut found = yaml_files("recipes/policies");
            found.extend(presets::names().map(named));
            let fixtures = yaml_files_below("fixtures/policy").into_iter();
            found.extend(fixtures.filter(|(_, text)| text.contains("\nrules:")));
            found
        }
        SchemaKind::Batch => vec![("README".to_owned(), BATCH.to_owned())],
        SchemaKind::Job => vec![("README".to_owned(), JOB.to_owned())],
        SchemaKind::Cases => {
            let mut found = vec![("every key".to_owned(), CASES.to_owned())];
            found.extend(yaml_files("fixtures/policy/presets"));
            found.extend(guide_blocks(kind));
            found
        }
        SchemaKind::Script => {
            let mut found = vec![("every key".to_owned(), SCRIPT.to_owned())];
            found.extend(yaml_files_below("recipes/samples"));
            found.extend(yaml_files_below("fixtures/registry"));
            let fixtures = yaml_files_below("fixtures/cases").into_iter();
            found.extend(fixtures.filter(|(name, _)| name.ends_with("/script.yaml")));
            for name in ["passed", "failed", "suspended", "killed"] {
                let path = project().join(format!("fixtures/upgrade/0.1.0/{name}.json"));
                found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
            found.extend(guide_blocks(kind));
            found
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn what_ships_is_accepted_and_what_is_wrong_in_form_is_not() {
    for kind in KINDS {
        let (mut good, mut bad) = (0, 0);
        for (name, text) in documents(kind) {
            let found = parsed(kind, &text);
            let Some(document) = value(&text) else { continue };
            let refused = problems(kind, &document);
            if !any_error(&found) {
                assert_eq!(refused, [""; 0], "{name}");
                good += 1;
            } else if only_form(kind) || !structural(&found).is_empty() {
                assert!(!refused.is_empty(), "{name}: {found:?}");
                bad += 1;
            }
        }
        let (least_good, least_bad) = match kind {
            SchemaKind::Recipe => (17, 3),
            SchemaKind::Policy => (10, 0),
            SchemaKind::Cases => (6, 0),
            SchemaKind::Script => (100, 0),
            _ => (1, 0),
        };
        assert!(
            good >= least_good && bad >= least_bad,
            "{kind:?}: {good} good, {bad} bad"
        );
    }
}

/// The places of all values in a document, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            places(
                value,
                &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                found,
            );
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, value)| places(value, &format!("{at}/{n}"), found)),
        _ => {}
    }
}

/// Puts a wrong or just different value at a place.
fn mutate(document: &mut Value, place: &str, how: usize) {
    let values = [
        json!("text"),
        json!(3),
        json!(0),
        json!(1.5),
        json!(true),
        json!([]),
        json!(["text"]),
        json!([7, "5m"]),
        json!({}),
        json!({ "name": "text" }),
        json!("5m"),
        json!("none"),
        json!([["deep"]]),
        json!({ "path": "a.txt", "required": true }),
    ];
    let (parent, key) = place.rsplit_once('/').unwrap_or(("", ""));
    match how.checked_sub(values.len()) {
        None => {
            if let Some(slot) = document.pointer_mut(place) {
                *slot = values[how].clone();
            }
        }
        Some(0) => match document.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.shift_remove(key)),
            Some(Value::Array(items)) => drop(items.pop()),
            _ => {}
        },
        Some(1) => {
            if let Some(Value::Object(map)) = document.pointer_mut(place) {
                map.insert(ODD.to_owned(), 1.into());
            }
        }
        Some(_) => {
            if let Some(Value::Object(map)) = document.pointer_mut(parent)
                && let Some(value) = map.shift_remove(key)
            {
                map.insert(format!("{key}_{}", &sha256_hex(&[key.as_bytes()])[..6]), value);
            }
        }
    }
}

/// The documents of this kind that the parser accepts, as values.
fn accepted(kind: SchemaKind) -> Vec<Value> {
    let all = documents(kind);
    let good = all.iter().filter(|(_, text)| !any_error(&parsed(kind, text)));
    good.filter_map(|(_, text)| value(text)).map(ungrouped).collect()
}

/// Replaces numbers with grouped digits by plain ones, because in JSON they would be strings.
fn ungrouped(value: Value) -> Value {
    match value {
        Value::String(text) => match diag::units::whole(&text) {
            Some(number) if text.contains('_') => number.into(),
            _ => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(ungrouped).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, ungrouped(value))).collect(),
        other => other,
    }
}

/// Recipes of other programs are read by the same parser, but the schema does not describe them.
fn is_of_others(document: &Value) -> bool {
    document.get("steps").is_none()
}

fn changed_documents_are_judged_alike(
    kind: SchemaKind,
    all: &[Value],
    which: usize,
    changes: &[(usize, usize)],
) -> Result<(), TestCaseError> {
    let mut document = all[which % all.len()].clone();
    for (at, how) in changes {
        let mut found = Vec::new();
        places(&document, "", &mut found);
        mutate(&mut document, &found[at % found.len()], how % 17);
    }
    if !document.is_object() || kind == SchemaKind::Recipe && is_of_others(&document) {
        return Ok(());
    }
    let found = parsed(kind, &document.to_string());
    let refused = problems(kind, &document);
    if !any_error(&found) {
        prop_assert_eq!(refused, Vec::<String>::new(), "the parser accepts {}", document);
    } else if only_form(kind) || !structural(&found).is_empty() {
        prop_assert!(!refused.is_empty(), "the parser says {:?} about {}", found, document);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn recipes_are_judged_alike(which in 0usize..1000, changes in proptest::collection::vec((0usize..10_000, 0usize..17), 1..3)) {
        static RECIPES: LazyLock<Vec<Value>> = LazyLock::new(|| accepted(SchemaKind::Recipe));
        changed_documents_are_judged_alike(SchemaKind::Recipe, &RECIPES, which, &changes)?;
    }

    #[test]
    fn policies_are_judged_alike(which in 0usize..1000, changes in proptest::collection::vec((0usize..10_000, 0usize..17), 1..3)) {
        static POLICIES: LazyLock<Vec<Value>> = LazyLock::new(|| accepted(SchemaKind::Policy));
        changed_documents_are_judged_alike(SchemaKind::Policy, &POLICIES, which, &changes)?;
    }

    #[test]
    fn manifests_are_judged_alike(which in 0usize..2, changes in proptest::collection::vec((0usize..10_000, 0usize..17), 1..3)) {
        changed_documents_are_judged_alike(SchemaKind::Batch, &accepted(SchemaKind::Batch), which, &changes)?;
        changed_documents_are_judged_alike(SchemaKind::Job, &accepted(SchemaKind::Job), which, &changes)?;
    }

    #[test]
    fn tables_of_cases_are_judged_alike(which in 0usize..1000, changes in proptest::collection::vec((0usize..10_000, 0usize..17), 1..3)) {
        static TABLES: LazyLock<Vec<Value>> = LazyLock::new(|| accepted(SchemaKind::Cases));
        changed_documents_are_judged_alike(SchemaKind::Cases, &TABLES, which, &changes)?;
    }

    #[test]
    fn scripts_are_judged_alike(which in 0usize..1000, changes in proptest::collection::vec((0usize..10_000, 0usize..17), 1..3)) {
        static SCRIPTS: LazyLock<Vec<Value>> = LazyLock::new(|| accepted(SchemaKind::Script));
        changed_documents_are_judged_alike(SchemaKind::Script, &SCRIPTS, which, &changes)?;
    }
}

#[test]
fn a_key_that_nobody_knows_is_refused_by_both_wherever_it_stands() {
    for kind in [SchemaKind::Cases, SchemaKind::Script] {
        let (mut refused, mut free) = (0, 0);
        for document in accepted(kind) {
            let mut all = Vec::new();
            places(&document, "", &mut all);
            for place in all {
                let mut changed = document.clone();
                let Some(Value::Object(map)) = changed.pointer_mut(&place) else {
                    continue;
                };
                map.insert(ODD.to_owned(), 1.into());
                let found = parsed(kind, &changed.to_string());
                let known = !found.iter().any(|problem| problem.code == "unknown-key");
                // The arguments of a call may have any key.
                let inside = place.split('/').any(|key| key == "args");
                assert_eq!(known, inside, "{kind:?} at {place}: {changed}");
                assert_eq!(
                    problems(kind, &changed).is_empty(),
                    known,
                    "{kind:?} at {place}: {changed}"
                );
                match known {
                    true => free += 1,
                    false => refused += 1,
                }
            }
        }
        assert!(refused > 20 && free > 0, "{kind:?}: {refused} refused, {free} free");
    }
}

#[test]
fn grouped_numbers_are_still_read() {
    for (number, reads) in [("2000000", true), ("2_000_000", true), ("2__0", false), ("_2", false)] {
        let text = format!("version: 1\nname: r\nbudget: {{ tokens: {number} }}\nsteps: [{{ id: a, prompt: go }}]\n");
        assert_eq!(!any_error(&parsed(SchemaKind::Recipe, &text)), reads, "{number}");
        // YAML 1.2 parsers read the grouped form as a string, which the schema allows.
        let document = json!({ "version": 1, "name": "r", "budget": { "tokens": match number.parse::<u64>() {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(number),
        } }, "steps": [{ "id": "a", "prompt": "go" }] });
        assert_eq!(problems(SchemaKind::Recipe, &document).is_empty(), reads, "{number}");
    }
}

#[test]
fn shipped_files_write_numbers_as_every_reader_of_yaml_sees_them() {
    for (name, text) in [
        yaml_files("recipes"),
        yaml_files("recipes/policies"),
        yaml_files("src/policy/presets"),
    ]
    .concat()
    {
        let grouped = text.split(|c: char| !c.is_ascii_digit() && c != '_').find(|word| {
            word.contains('_')
                && word.starts_with(|c: char| c.is_ascii_digit())
                && word.ends_with(|c: char| c.is_ascii_digit())
        });
        assert_eq!(grouped, None, "{name}");
    }
}

#[test]
fn shipped_files_name_their_schema_in_the_first_line() {
    for (dir, kind) in [
        ("recipes", SchemaKind::Recipe),
        ("recipes/policies", SchemaKind::Policy),
    ] {
        for (name, text) in yaml_files(dir) {
            assert!(text.starts_with(&kind.first_line()), "{name}");
        }
    }
    for kind in [SchemaKind::Cases, SchemaKind::Script] {
        assert!(!guide_blocks(kind).is_empty(), "{kind:?}");
        let documents = documents(kind);
        let files = documents.iter().filter(|(name, _)| name.ends_with(".yaml"));
        for (name, text) in files {
            assert!(text.starts_with(&kind.first_line()), "{name}");
        }
    }
}

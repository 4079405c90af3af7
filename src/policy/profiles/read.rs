//! Parses one argument profile from YAML: a built-in table or an entry of `profiles:` in a policy. Reports all problems
//! at once.

use super::{ArgumentSpec, Arity, CLASSES, Ecosystem, Profile, ValueClass};
use crate::base::grant::Starts;
use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{Diagnostic, Reader, Shape, SourceFiles, Spanned, YamlNode, did_you_mean};
use crate::policy::helpers;

/// The most options and subcommands of one profile.
const MAX_WORDS: usize = 5_000;

/// Lists under `options` whose entries take no value.
pub(super) const FLAG_LISTS: [&str; 4] = ["harmless", PASSED_OVER, "rewrites-input", DASHED];

/// The list of the options whose value may begin with a dash. Another list says what the value is.
const DASHED: &str = "takes-dashes";

/// The list of the options that a rule's prefix may skip, and the trait of a subcommand that it may skip.
const PASSED_OVER: &str = "passed-over";

/// The values of `traits`.
pub(super) const TRAITS: [&str; 9] = [
    "all-harmless",
    "numbers",
    "one-dash",
    "script",
    "spelled-out",
    PASSED_OVER,
    "plus",
    "runs-input",
    "response-files",
];

/// Parses a profile. `what` names it in messages: "the profile of `psql`".
pub fn profile(files: &SourceFiles, node: &YamlNode, problems: &mut Problems) -> Option<Profile> {
    let mut reader = Reader::open(node, "this profile", problems)?;
    let names = reader
        .node("programs")
        .map(|node| words(files, node, "programs", problems))
        .unwrap_or_default();
    let installed_by = reader
        .node("installed-by")
        .map(|node| ecosystems(&words(files, node, "installed-by", problems), problems))
        .unwrap_or_default();
    let covers = reader
        .node("covers")
        .map(|node| texts(words(files, node, "covers", problems)))
        .unwrap_or_default();
    let version = reader
        .node("version")
        .map(|node| texts(words(files, node, "version", problems)))
        .unwrap_or_default();
    let only_itself = reader.bool("runs-tree-code", problems).is_some_and(|runs| !runs.value);
    let mut profile = Profile {
        span: Some(reader.head()),
        only_itself,
        installed_by,
        covers,
        version,
        ..Profile::default()
    };
    let subcommands = reader.entries("subcommands", problems).unwrap_or_default();
    profile.top = section(files, &mut reader, ArgumentSpec::default(), problems);
    reader.finish(problems);
    for entry in subcommands {
        let names: Vec<Vec<String>> = entry
            .key
            .split('|')
            .map(|name| name.split_whitespace().map(str::to_owned).collect())
            .collect();
        if names.iter().any(Vec::is_empty) {
            let message = format!("`{}` contains a subcommand without words", entry.key);
            problems.push(
                Diagnostic::error("bad-subcommand", entry.key_span, message)
                    .help("write `get` or `rollout status`; separate several with ` | `"),
            );
            continue;
        }
        for name in &names {
            if profile.subs.iter().any(|(other, _)| other == name) {
                let message = format!("the subcommand `{}` is described twice", name.join(" "));
                problems.push(
                    Diagnostic::error("duplicate-subcommand", entry.key_span, message).help("leave one of them out"),
                );
            }
        }
        let Some(mut reader) = Reader::open(&entry.value, "this subcommand", problems) else {
            continue;
        };
        let base = match reader.text("like", problems) {
            Some(like) => copied(&profile, &like, problems),
            None => ArgumentSpec::default(),
        };
        let section = section(files, &mut reader, base, problems);
        reader.finish(problems);
        profile
            .subs
            .extend(names.into_iter().map(|name| (name, section.clone())));
    }
    if size(&profile) > MAX_WORDS {
        let message = format!("the profile has more than {MAX_WORDS} options and subcommands");
        problems.push(Diagnostic::error("limit", node.span.point(), message).help("leave out what is not used"));
        return None;
    }
    profile.names = texts(names);
    Some(profile)
}

fn size(profile: &Profile) -> usize {
    let subs = profile.subs.iter().map(|(_, section)| 1 + section.options.len());
    profile.top.options.len() + subs.sum::<usize>()
}

fn texts(words: Vec<Spanned<String>>) -> Vec<String> {
    words.into_iter().map(|word| word.value).collect()
}

/// A copy of the section that `like` names.
fn copied(profile: &Profile, like: &Spanned<String>, problems: &mut Problems) -> ArgumentSpec {
    let wanted: Vec<&str> = like.value.split_whitespace().collect();
    let found = profile.subs.iter().find(|(name, _)| *name == wanted);
    if found.is_none() {
        let message = format!("no subcommand `{}` is described above", like.value);
        let known: Vec<String> = profile.subs.iter().map(|(name, _)| name.join(" ")).collect();
        let help = did_you_mean(&like.value, known.iter().map(String::as_str));
        problems.push(
            Diagnostic::error("unknown-subcommand", like.span, message)
                .help(help.unwrap_or_else(|| "`like` copies a subcommand that is described above".to_owned())),
        );
    }
    found.map(|(_, section)| section.clone()).unwrap_or_default()
}

/// Parses the keys that a program and its subcommands have in common, and adds them to `base`.
fn section(files: &SourceFiles, reader: &mut Reader<'_>, base: ArgumentSpec, problems: &mut Problems) -> ArgumentSpec {
    let mut section = base;
    if let Some(node) = reader.node("options") {
        options(files, node, &mut section, problems);
    }
    if let Some(node) = reader.node("operands") {
        let listed = words(files, node, "operands", problems);
        operands(&mut section, &listed, problems);
    }
    if let Some(node) = reader.node("after-dashes") {
        let listed = words(files, node, "after-dashes", problems);
        section.rest = listed.first().and_then(|word| class(word, &word.value, problems));
    }
    let mut list = |key: &'static str| -> Vec<Spanned<String>> {
        reader
            .node(key)
            .map(|node| words(files, node, key, problems))
            .unwrap_or_default()
    };
    section.needs.extend(texts(list("needs-one-of")));
    section.reading.extend(texts(list("reads-with")));
    section.unless.extend(texts(list("first-operand-given-by")));
    for word in list("traits") {
        let flag = match word.value.as_str() {
            "all-harmless" => &mut section.harmless,
            "numbers" => &mut section.numbers,
            "one-dash" => &mut section.single,
            "script" => &mut section.script,
            "spelled-out" => &mut section.spelled,
            PASSED_OVER => &mut section.skipped,
            "plus" => &mut section.plus,
            "runs-input" => &mut section.runs_input,
            "response-files" => &mut section.response_files,
            _ => {
                problems.push(unknown_word("trait", &word, &TRAITS));
                continue;
            }
        };
        *flag = true;
    }
    if let Some(least) = reader.whole("least-operands", problems) {
        section.least = usize::try_from(least.value).unwrap_or(usize::MAX);
    }
    let grants = [
        ("nothing", Some(false)),
        ("operands", Some(false)),
        ("tree", Some(true)),
        ("repository", None),
    ];
    match reader.choice("writes", &grants, problems).map(|grant| grant.value) {
        Some(Some(tree)) => section.tree = Some(tree),
        Some(None) => section.repository = true,
        None => {}
    }
    if let Some(node) = reader.node("starts") {
        let listed = words(files, node, "starts", problems);
        section.starts = starts(&listed, problems).or(section.starts);
    }
    section
}

fn starts(listed: &[Spanned<String>], problems: &mut Problems) -> Option<Starts> {
    const WORDS: [&str; 4] = ["nothing", "judged", "anything", "helpers"];
    let texts: Vec<&str> = listed.iter().map(|word| word.value.as_str()).collect();
    match (texts.as_slice(), listed) {
        (["nothing"], _) => Some(Starts::Nothing),
        (["judged"], _) => Some(Starts::Judged),
        (["anything"], _) => Some(Starts::Anything),
        (["helpers", name], _) if helpers::of(name).is_some() => Some(Starts::Helpers((*name).to_owned())),
        (["helpers", _], [_, name]) => {
            let names: Vec<&str> = helpers::names().collect();
            problems.push(unknown_word("list of helpers", name, &names));
            None
        }
        (_, [first, ..]) => {
            problems.push(unknown_word("word of `starts`", first, &WORDS));
            None
        }
        _ => None,
    }
}

fn ecosystems(listed: &[Spanned<String>], problems: &mut Problems) -> Vec<Ecosystem> {
    const WORDS: [&str; 4] = ["python", "node", "ruby", "go"];
    let mut found = Vec::new();
    for word in listed {
        match Ecosystem::of(&word.value) {
            Some(ecosystem) => found.push(ecosystem),
            None => problems.push(unknown_word("ecosystem", word, &WORDS)),
        }
    }
    found
}

fn unknown_word(what: &str, word: &Spanned<String>, known: &[&str]) -> Diagnostic {
    let message = format!("there is no {what} `{}`", word.value);
    let help =
        did_you_mean(&word.value, known.iter().copied()).unwrap_or_else(|| format!("one of `{}`", known.join("`, `")));
    Diagnostic::error("unknown-word", word.span, message).help(help)
}

/// Parses `options`: lists of option names, by the effect of the option or of its value.
fn options(files: &SourceFiles, node: &YamlNode, section: &mut ArgumentSpec, problems: &mut Problems) {
    let Shape::Map(entries) = &node.shape else {
        problems.push(
            wrong_type(node, "`options`", "a map from classes to options")
                .help("write, for example, `harmless: -q --verbose`"),
        );
        return;
    };
    let mut seen: Vec<String> = Vec::new();
    let mut passed: Vec<String> = Vec::new();
    let mut dashed: Vec<Spanned<String>> = Vec::new();
    for entry in entries {
        let key = Spanned {
            value: entry.key.clone(),
            span: entry.key_span,
        };
        let flags = FLAG_LISTS.contains(&entry.key.as_str());
        let named = entry.key.strip_prefix("named-");
        let class = match flags {
            true => None,
            false => match class(&key, named.unwrap_or(&entry.key), problems) {
                Some(class) => Some(class),
                None => continue,
            },
        };
        for word in words(files, &entry.value, &entry.key, problems) {
            let attached = class.is_some() && word.value.len() > 1 && word.value.ends_with('=');
            let name = match attached {
                true => word.value.trim_end_matches('=').to_owned(),
                false => word.value.clone(),
            };
            if !name.starts_with(['-', '+']) || name.len() < 2 {
                let message = format!("`{}` is not an option", word.value);
                problems.push(Diagnostic::error("bad-option", word.span, message).help(
                    "write options as they are typed: `-q`, `--quiet`; `--color=` if the value must be attached",
                ));
                continue;
            }
            // An option that is passed over may take a value, whose class another list says.
            let listed = match entry.key.as_str() {
                PASSED_OVER => &mut passed,
                DASHED => {
                    dashed.push(word);
                    continue;
                }
                _ => &mut seen,
            };
            if listed.contains(&name) {
                let message = format!("the option `{name}` is listed twice");
                problems.push(Diagnostic::error("duplicate-option", word.span, message).help("leave one of them out"));
                continue;
            }
            listed.push(name.clone());
            if entry.key == PASSED_OVER {
                continue;
            }
            let arity = match class {
                None => Arity::Flag,
                Some(class) if named.is_some() => Arity::Pair(class),
                Some(class) if attached => Arity::Attached(class),
                Some(class) => Arity::Value(class),
            };
            if entry.key == "rewrites-input" {
                section.in_place.push(name.clone());
            }
            section.options.insert(name, arity);
        }
    }
    for name in passed {
        if !seen.contains(&name) {
            section.options.insert(name.clone(), Arity::Flag);
        }
        section.passed.push(name);
    }
    for word in dashed {
        if !matches!(section.options.get(&word.value), Some(Arity::Value(_))) {
            let message = format!("`{}` takes no value as the next word", word.value);
            problems.push(
                Diagnostic::error("bad-option", word.span, message)
                    .help("list it under the class of its value, such as `value`, too"),
            );
            continue;
        }
        section.dashed.push(word.value);
    }
}

/// Parses operand classes such as `value input*`: first classes, then a repeated one, then optionally a last one.
fn operands(section: &mut ArgumentSpec, listed: &[Spanned<String>], problems: &mut Problems) {
    (section.first, section.more, section.last) = (Vec::new(), None, None);
    for word in listed {
        if let Some(name) = word.value.strip_suffix('*') {
            section.more = class(word, name, problems);
        } else if section.more.is_some() {
            section.last = class(word, &word.value, problems);
        } else {
            section.first.extend(class(word, &word.value, problems));
        }
    }
}

fn class(word: &Spanned<String>, name: &str, problems: &mut Problems) -> Option<ValueClass> {
    let found = CLASSES.iter().find(|(known, _, _)| *known == name);
    if found.is_none() {
        let named = Spanned {
            value: name.to_owned(),
            span: word.span,
        };
        let mut known: Vec<&str> = CLASSES.iter().map(|(name, _, _)| *name).collect();
        known.extend(FLAG_LISTS);
        let help = did_you_mean(name, known.iter().copied());
        let message = format!("there is no class `{}`", named.value);
        problems.push(
            Diagnostic::error("unknown-class", word.span, message).help(help.unwrap_or_else(|| {
                "`harmless`, `value`, `input`, `output`, `program`, `network`; all are in the documentation of `profiles`"
                    .to_owned()
            })),
        );
    }
    found.map(|(_, class, _)| *class)
}

/// The blank-separated words of a string, or of a list of strings, each with its position.
fn words(files: &SourceFiles, node: &YamlNode, key: &str, problems: &mut Problems) -> Vec<Spanned<String>> {
    let items = match &node.shape {
        Shape::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut found = Vec::new();
    for item in items {
        let Shape::Scalar(scalar) = &item.shape else {
            problems.push(wrong_type(item, &format!("`{key}`"), "words, separated by spaces"));
            continue;
        };
        // The words appear literally in the source unless it escapes something; then the position of the whole string
        // is used.
        let source = files.slice(item.span);
        let mut from = 0;
        for word in scalar.text.split_whitespace() {
            let at = source.get(from..).and_then(|rest| rest.find(word)).map(|at| from + at);
            let span = at.map_or(item.span, |at| crate::diag::Span {
                start: item.span.start + at,
                end: item.span.start + at + word.len(),
                ..item.span
            });
            from = at.map_or(from, |at| at + word.len());
            found.push(Spanned {
                value: word.to_owned(),
                span,
            });
        }
    }
    if found.is_empty() {
        problems.push(
            Diagnostic::error("empty-list", node.span, format!("`{key}` lists nothing"))
                .help("write at least one word, or leave the key out"),
        );
    }
    found
}

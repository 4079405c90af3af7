//! Parses the `steps` section: steps and their checks.

use super::{EXPECT, budget, named, prompts, retry, schema};
use crate::diag::reader::{self, Problems, not_blank, without_nul, wrong_type};
use crate::diag::{Diagnostic, Reader, Shape, Span, Spanned, YamlNode};
use crate::recipe::model::{CheckKind, CheckSpec, FINDINGS, Step, StepSource};
use crate::recipe::params;

pub(super) fn read(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let Some(_) = reader.need("steps", problems) else {
        return steps;
    };
    let items = reader.items("steps", problems);
    if items.is_some_and(<[YamlNode]>::is_empty) {
        let problem = Diagnostic::error("missing-key", reader.head(), "a recipe needs at least one step");
        problems.push(problem.help("add a step with `id` and `prompt` or `run`"));
    }
    for node in items.unwrap_or_default() {
        let Some(step) = step(node, problems) else {
            continue;
        };
        if let Some(first) = steps.iter().find(|first| first.id.value == step.id.value) {
            let problem = Diagnostic::error(
                "duplicate-id",
                step.id.span,
                format!("two steps are called `{}`", step.id.value),
            );
            problems.push(
                problem
                    .label(first.id.span, "the first is here")
                    .help("give each step its own `id`"),
            );
        }
        steps.push(step);
    }
    steps
}

fn step(node: &YamlNode, problems: &mut Problems) -> Option<Step> {
    let mut reader = Reader::open(node, "this step", problems)?;
    let id = reader.need_text("id", problems).filter(|id| named(id, "id", problems));
    let when = reader
        .text("when", problems)
        .and_then(|text| not_blank(text, "when", problems));
    let work = work(&mut reader, problems);
    let findings = reader.bool("findings", problems).is_some_and(|flag| flag.value);
    let checks = checks(&mut reader, problems);
    let retry_at = reader.entry("retry").map(|entry| entry.key_span);
    let retries = retry(&mut reader, problems);
    let expect = reader.choice("expect", &EXPECT, problems).map(|word| word.value);
    let skip = reader.bool("skip_if_green", problems);
    let budget = budget(&mut reader, problems);
    let head = reader.head();
    reader.finish(problems);
    let own = checks.iter().find(|check| check.name.value == FINDINGS);
    if let (Some(own), true) = (own, findings) {
        let message = format!("`findings: true` already adds a check called `{FINDINGS}`");
        let problem = Diagnostic::error("duplicate-name", own.name.span, message);
        problems.push(problem.help("give this check another `name`"));
    }
    if let (Some(span), true) = (retry_at, checks.is_empty() && !findings) {
        let problem = Diagnostic::warning(
            "retry-without-checks",
            span,
            "`retry` does nothing in a step without checks",
        );
        problems.push(problem.help("add `checks`, or remove `retry`"));
    }
    if let (Some(skip), true) = (skip.as_ref().filter(|skip| skip.value), checks.is_empty()) {
        let problem = Diagnostic::error(
            "skip-without-checks",
            skip.span,
            "`skip_if_green` needs checks that can be green",
        );
        problems.push(problem.help("add `checks` to this step"));
    }
    let of_answer = checks.iter().any(|check| check.what.is_of_answer()) || findings;
    if let (Some(skip), true) = (skip.as_ref().filter(|skip| skip.value), of_answer) {
        let problem = Diagnostic::error(
            "skip-without-answer",
            skip.span,
            "`skip_if_green` has no effect: a check of this step is about the answer, which exists only after the model was asked",
        );
        problems.push(problem.help("remove `skip_if_green` here, or write `when: …` with a condition for the step"));
    }
    Some(Step {
        id: id?,
        when,
        // A step without work is already an error; it is kept, so that references to its id cause no further ones.
        work: work.unwrap_or(StepSource::Prompt(Spanned {
            value: String::new(),
            span: head,
        })),
        findings,
        checks,
        fresh: retries.as_ref().is_some_and(|retry| retry.fresh),
        retries: retries.map_or(0, |retry| retry.max),
        expect,
        skip_if_green: skip.map(|skip| skip.value),
        budget,
    })
}

fn work(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<StepSource> {
    let prompt = reader.entry("prompt");
    let run = reader.entry("run");
    let allow_failure = reader.bool("allow_failure", problems);
    let timeout = reader.duration("timeout", problems);
    match (prompt, run) {
        (Some(_), Some(run)) => {
            let problem = Diagnostic::error(
                "conflicting-keys",
                run.key_span,
                "a step has a `prompt` or a `run`, not both",
            );
            problems.push(problem.help("split it into two steps"));
            None
        }
        (None, None) => {
            let problem = Diagnostic::error("missing-key", reader.head(), "this step does nothing");
            problems.push(problem.help("add `prompt: …` or `run: …`"));
            None
        }
        (Some(prompt), None) => {
            let of_commands = [allow_failure.map(|f| f.span), timeout.map(|t| t.span)];
            for span in of_commands.into_iter().flatten() {
                let problem = Diagnostic::error("conflicting-keys", span, "only a step with `run` has this key");
                problems.push(problem.help("remove it, or lower `budget.wall` of this step"));
            }
            if let Shape::Map(_) = prompt.value.shape {
                return prompts::of_server(&prompt.value, problems);
            }
            not_blank(reader.text("prompt", problems)?, "prompt", problems).map(StepSource::Prompt)
        }
        (None, Some(_)) => Some(StepSource::Run {
            command: command(reader.text("run", problems)?, problems)?,
            timeout_ms: timeout.map(|timeout| timeout.value),
            allow_failure: allow_failure.is_some_and(|flag| flag.value),
        }),
    }
}

/// The text of a `run`.
fn command(text: Spanned<String>, problems: &mut Problems) -> Option<Spanned<String>> {
    without_nul(not_blank(text, "run", problems)?, "run", problems)
}

fn checks(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<CheckSpec> {
    let mut checks: Vec<CheckSpec> = Vec::new();
    for node in reader.items("checks", problems).unwrap_or_default() {
        let Some(check) = check(node, problems) else {
            continue;
        };
        if let Some(first) = checks.iter().find(|first| first.name.value == check.name.value) {
            let message = format!("two checks of this step are called `{}`", check.name.value);
            let problem = Diagnostic::error("duplicate-name", check.name.span, message);
            problems.push(
                problem
                    .label(first.name.span, "the first is here")
                    .help("give each check its own `name`"),
            );
        }
        checks.push(check);
    }
    checks
}

fn check(node: &YamlNode, problems: &mut Problems) -> Option<CheckSpec> {
    let mut reader = Reader::open(node, "this check", problems)?;
    let name = reader.text("name", problems);
    let run = reader.text("run", problems);
    let timeout = reader.duration("timeout", problems);
    let changed_at = reader.entry("changed").map(|entry| entry.key_span);
    let changed = changed_at.and_then(|_| changed(&mut reader, problems));
    let file = reader.entry("file");
    let contains = reader.text("contains", problems);
    let answer_at = reader.entry("answer").map(|entry| entry.key_span);
    let answer = answer_at.and_then(|_| answer(&mut reader, problems));
    let head = reader.head();
    reader.finish(problems);
    let kinds = [run.is_some(), changed_at.is_some(), file.is_some(), answer_at.is_some()];
    if kinds.iter().filter(|there| **there).count() != 1 {
        let problem = Diagnostic::error(
            "check-kind",
            head,
            "a check has exactly one of `run`, `changed`, `file` and `answer`",
        );
        problems.push(
            problem
                .help("write `run: COMMAND`, `changed: { only: [...] }`, `file: PATH` or `answer: { run: COMMAND }`"),
        );
        return None;
    }
    for (span, of, there) in [
        (timeout.as_ref().map(|t| t.span), "run", run.is_some()),
        (contains.as_ref().map(|c| c.span), "file", file.is_some()),
    ] {
        if let (Some(span), false) = (span, there) {
            let problem = Diagnostic::error(
                "conflicting-keys",
                span,
                format!("only a check with `{of}` has this key"),
            );
            problems.push(problem.help("remove it"));
        }
    }
    let what = if let Some(text) = run {
        CheckKind::Run {
            command: command(text, problems)?,
            timeout_ms: timeout.map(|timeout| timeout.value),
        }
    } else if changed_at.is_some() {
        changed?
    } else if answer_at.is_some() {
        answer?
    } else {
        file_check(&file?.value, contains, problems)?
    };
    let name = name.unwrap_or_else(|| default_name(&what, head));
    Some(CheckSpec { name, what })
}

fn default_name(what: &CheckKind, head: crate::diag::Span) -> Spanned<String> {
    let value = match what {
        CheckKind::Run { command, .. } => command.value.lines().next().unwrap_or_default().to_owned(),
        CheckKind::Changed { .. } => "changed".to_owned(),
        CheckKind::File { path, .. } => format!("file {}", path.value),
        CheckKind::AnswerRun { command, .. } => command.value.lines().next().unwrap_or_default().to_owned(),
        CheckKind::AnswerSchema(_) => "answer".to_owned(),
    };
    Spanned { value, span: head }
}

/// `answer: { run: COMMAND, timeout: TIME }` or `answer: { schema: SCHEMA }`.
fn answer(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<CheckKind> {
    let mut map = reader.map("answer", "`answer`", problems)?;
    let run = map.text("run", problems);
    let timeout = map.duration("timeout", problems);
    let schema_at = map.entry("schema").map(|entry| entry.key_span);
    let schema = schema(&mut map, problems);
    let head = map.head();
    map.finish(problems);
    if run.is_some() == schema_at.is_some() {
        let problem = Diagnostic::error("check-kind", head, "`answer` has exactly one of `run` and `schema`");
        problems.push(
            problem
                .help("write `answer: { run: COMMAND }`, which gets the answer on stdin, or `answer: { schema: … }`"),
        );
        return None;
    }
    if let (Some(timeout), None) = (&timeout, &run) {
        let problem = Diagnostic::error(
            "conflicting-keys",
            timeout.span,
            "only `answer` with `run` has this key",
        );
        problems.push(problem.help("remove it"));
    }
    match run {
        Some(text) => Some(CheckKind::AnswerRun {
            command: command(text, problems)?,
            timeout_ms: timeout.map(|timeout| timeout.value),
        }),
        None => schema.map(CheckKind::AnswerSchema),
    }
}

/// `file: PATH`, with `contains` beside it; or `file: { path: PATH, contains: TEXT }`.
fn file_check(node: &YamlNode, beside: Option<Spanned<String>>, problems: &mut Problems) -> Option<CheckKind> {
    let (path, contains) = if let Shape::Map(_) = node.shape {
        let mut map = Reader::open(node, "`file`", problems)?;
        let path = map.need_text("path", problems);
        let contains = map.text("contains", problems);
        map.finish(problems);
        (path?, contains.or(beside))
    } else {
        (reader::text(node, "file", problems)?, beside)
    };
    if !path.value.contains("{{") && !params::stays_inside(&path.value) {
        let problem = Diagnostic::error(
            "outside-path",
            path.span,
            format!("`{}` does not stay inside the workspace", path.value),
        );
        problems.push(problem.help("name a file relative to the workspace, without `..`"));
    }
    Some(CheckKind::File { path, contains })
}

fn changed(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<CheckKind> {
    let mut map = reader.map("changed", "`changed`", problems)?;
    let only = map.one_or_more("only", problems).unwrap_or_default();
    let never = map.one_or_more("never", problems).unwrap_or_default();
    let max_files = map.whole("max_files", problems).map(|max| max.value);
    let max_lines = map.whole("max_lines", problems).map(|max| max.value);
    let (head, span) = (map.head(), map.span);
    map.finish(problems);
    if only.is_empty() && never.is_empty() && max_files.is_none() && max_lines.is_none() {
        let node = YamlNode {
            span,
            shape: Shape::Map(Vec::new()),
        };
        let mut problem = wrong_type(
            &node,
            "`changed`",
            "one or more of `only`, `never`, `max_files` and `max_lines`",
        );
        problem.span = Some(head);
        problems.push(problem);
    }
    for glob in only.iter().chain(&never).filter(|glob| !glob.value.contains("{{")) {
        problems.extend(bad_pattern(&glob.value, glob.span));
    }
    for path in only.iter().filter(|path| is_like_directory(&path.value)) {
        let message = format!("`{0}` is one path, not what is below it", path.value);
        let problem = Diagnostic::warning("one-path", path.span, message);
        problems.push(problem.help(format!("write `{}/**` if it is a directory", path.value)));
    }
    Some(CheckKind::Changed {
        only,
        never,
        max_files,
        max_lines,
    })
}

/// What is wrong with a pattern of `changed`: it is no glob, or can match nothing.
pub(in crate::recipe) fn bad_pattern(text: &str, span: Span) -> Option<Diagnostic> {
    let problem = match crate::base::glob::of_changed(text) {
        Err(why) => Diagnostic::error("bad-path", span, format!("`{text}`: {why}")),
        Ok(meant) => {
            let error = globset::Glob::new(&meant).err()?;
            Diagnostic::error("bad-glob", span, format!("not a glob: {}", error.kind()))
        }
    };
    Some(problem.help("write a path pattern such as `src/**/*.rs`"))
}

/// Whether a path without wildcards looks like a directory: its name has no dot and is in lower case, as in `src`.
fn is_like_directory(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_plain = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, '-' | '_');
    let is_file = name.ends_with("file") || name.ends_with("lock");
    !name.is_empty() && name.chars().all(is_plain) && !is_file && !path.contains(['*', '?', '[', '{', '\\'])
}

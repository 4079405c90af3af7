//! `summary.md` for CI step summaries and comments. Untrusted text is escaped: no markup, no mention, no workflow
//! command.

use super::inert;
use super::result::{self, OutputFacts, RuledOut, RunResult, StepReport};
use super::summary::RunSummary;
use super::text;
use crate::base::event::FileChange;
use crate::base::outcome::{COMMAND, Verdict};
use crate::base::quote::{counted, excerpt};
use std::fmt::Write;

/// Size limit of the file, in bytes.
pub const LIMIT: usize = 64 * 1024;
/// Limit of items in a list.
const ENTRIES: usize = 50;
/// Limit of checks whose output is shown.
const OUTPUTS: usize = 5;

/// The whole file, at most [`LIMIT`] bytes.
pub fn summary(sum: &RunSummary<'_>, ending: &OutputFacts) -> String {
    let result = result::result(sum, ending);
    let mut out = head(&result);
    out.push_str(&steps(&result.steps));
    out.push_str(&checks(&result.steps));
    let outputs = outputs(&result.steps);
    // A cut of the file must not fall into a block.
    if out.len() + outputs.len() <= LIMIT / 2 {
        out.push_str(&outputs);
    }
    out.push_str(&rulings(&result));
    out.push_str(&changes(&result));
    let unruled = sum.unruled_line();
    if !unruled.is_empty() {
        let _ = writeln!(
            out,
            "**Changes that no rule allows:** {}\n",
            escaped(&text::line(&unruled, 2_000))
        );
    }
    out.push_str(&answer(&result.response));
    out.push_str(&notices(&result));
    bounded(out)
}

/// The file for a run that ended before it had a journal.
pub fn unstarted(result: &RunResult) -> String {
    bounded(head(result))
}

fn head(result: &RunResult) -> String {
    let mark = match result.verdict {
        Verdict::Passed | Verdict::NoChange => "✅",
        Verdict::Suspended => "⏸️",
        Verdict::Budget | Verdict::Cancelled | Verdict::Incomplete => "⚠️",
        _ => "❌",
    };
    let name = if result.recipe.is_empty() {
        "run"
    } else {
        &result.recipe
    };
    let verdict = result.verdict.as_str().replace('_', " ");
    let mut out = format!("## {mark} {}: {verdict}\n\n", escaped(&text::line(name, 120)));
    if !result.message.is_empty() {
        let message = escaped(&text::line(&result.message, 1_000));
        // At the beginning of a line, `/` would start a quick action of GitLab.
        let message = match message.strip_prefix('/') {
            Some(rest) => format!("/\u{200b}{rest}"),
            None => message,
        };
        let _ = writeln!(out, "{message}\n");
    }
    if result.partial {
        out.push_str("**Partial:** work was cut off; patch and answer may be incomplete.\n\n");
    }
    if result.recorded {
        out.push_str("**The replies are recorded**, no model was asked.\n\n");
    }
    if !result.run.is_empty() {
        let price = if result.unpriced { "at least " } else { "" };
        let _ = writeln!(
            out,
            "{} · {} · {} tokens · {price}${:.4} · {} · exit code {} · run {}\n",
            code(&result.model),
            counted(result.usage.turns, "turn"),
            text::grouped(result.usage.total),
            result.cost,
            text::duration(result.duration_ms),
            result.exit_code,
            code(&result.run),
        );
    }
    out
}

fn steps(steps: &[StepReport]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let mut out = "| Step | Status | Attempts | Turns | Tokens | Cost | Time |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n".to_owned();
    for step in steps.iter().take(ENTRIES) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | ${:.4} | {} |",
            cell(&step.id),
            step.status.replace('_', " "),
            step.attempts,
            step.usage.turns,
            text::grouped(step.usage.total),
            step.cost,
            text::duration(step.duration_ms),
        );
    }
    out + &more(steps.len()) + "\n"
}

fn checks(steps: &[StepReport]) -> String {
    let all: Vec<_> = steps
        .iter()
        .flat_map(|step| step.checks.iter().map(move |check| (step, check)))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mut out = "| Check | Step | Result | |\n| --- | --- | --- | --- |\n".to_owned();
    for (step, check) in all.iter().take(ENTRIES) {
        let word = match (check.passed, check.runs) {
            (true, 0 | 1) => "✅ passed".to_owned(),
            (true, n) => format!("✅ passed at run {n}"),
            (false, _) => "❌ failed".to_owned(),
        };
        let why = if check.passed { "" } else { check.message.as_str() };
        let why = escaped(&text::line(why, 200));
        let _ = writeln!(out, "| {} | {} | {word} | {why} |", cell(&check.name), cell(&step.id));
    }
    out + &more(all.len()) + "\n"
}

/// The last lines that the failed checks and commands printed.
fn outputs(steps: &[StepReport]) -> String {
    let checks = steps.iter().flat_map(|step| &step.checks);
    let failed = checks.filter(|check| !check.passed && !check.output.trim().is_empty());
    let mut out = String::new();
    for check in failed.take(OUTPUTS) {
        let _ = writeln!(out, "Last lines of {}:\n", code(&check.name));
        fenced(&mut out, "text", &text::last_lines(&check.output).join("\n"));
    }
    let commands = steps
        .iter()
        .filter(|step| step.status == "failed" && step.reason == COMMAND);
    for step in commands.filter(|step| !step.output.trim().is_empty()).take(OUTPUTS) {
        let _ = writeln!(out, "Last lines of the command of step {}:\n", code(&step.id));
        fenced(&mut out, "text", &text::last_lines(&step.output).join("\n"));
    }
    out
}

fn rulings(result: &RunResult) -> String {
    let mut out = String::new();
    if !result.suspended.is_empty() {
        let _ = writeln!(out, "### Waiting for a person ({})\n", result.suspended.len());
        for call in result.suspended.iter().take(ENTRIES) {
            let rule = call.rule.as_deref().unwrap_or("default");
            let _ = writeln!(
                out,
                "- {} {} {}: {} (rule {}). Approve: {}",
                code(&call.call),
                code(&call.tool),
                code(&call.title),
                escaped(&text::line(&call.reason, 400)),
                code(rule),
                code(&call.approve),
            );
        }
        out += &(more(result.suspended.len()) + "\n");
    }
    if !result.denied.is_empty() {
        let _ = writeln!(out, "### Denied ({})\n", result.denied.len());
        for call in result.denied.iter().take(ENTRIES) {
            let rule = call.rule.as_deref().unwrap_or("default");
            let fix = escaped(&text::line(&call.fix, 400));
            let fix = if fix.is_empty() { fix } else { format!(" Fix: {fix}") };
            let _ = writeln!(
                out,
                "- {} {} {}: {} (rule {}, {}).{}{fix}",
                code(&call.call),
                code(&call.tool),
                code(&call.title),
                escaped(&text::line(&call.reason, 400)),
                code(rule),
                code(&call.code),
                program(call),
            );
        }
        out += &(more(result.denied.len()) + "\n");
    }
    out
}

/// The program that was denied at its exec, and the programs that had run before.
fn program(call: &RuledOut) -> String {
    let Some(ran) = &call.ran else {
        return String::new();
    };
    let before: Vec<String> = ran.iter().take(ENTRIES).map(|ran| code(&ran.argv.join(" "))).collect();
    let before = match before.is_empty() {
        true => "nothing".to_owned(),
        false => before.join(", "),
    };
    let cwd = call.cwd.as_deref().unwrap_or(".");
    format!(
        " Program: {} in {}; had run before: {before}.",
        code(&call.argv.join(" ")),
        code(cwd)
    )
}

fn changes(result: &RunResult) -> String {
    let files = &result.changes.files;
    if files.is_empty() {
        return String::new();
    }
    let (added, removed) = (result.changes.added, result.changes.removed);
    let mut out = format!(
        "### Changes ({}, +{added} −{removed})\n\n",
        counted(files.len(), "file")
    );
    for file in files.iter().take(ENTRIES) {
        let _ = writeln!(out, "- {}", change(file));
    }
    out + &more(files.len()) + "\n"
}

fn change(file: &FileChange) -> String {
    let from = file
        .from
        .as_ref()
        .map(|from| format!("{} → ", code(from)))
        .unwrap_or_default();
    let lines = match (file.added, file.removed) {
        (Some(added), Some(removed)) => format!("+{added} −{removed}"),
        _ => "binary".to_owned(),
    };
    format!(
        "{from}{} {} ({lines})",
        code(&file.path),
        escaped(&text::line(&file.kind, 20))
    )
}

/// A block quote, so that no line of the text starts a block or a command.
fn answer(answer: &str) -> String {
    if answer.trim().is_empty() {
        return String::new();
    }
    let mut out = "### Answer\n\n".to_owned();
    let answer = excerpt(answer, 16 * 1024);
    for line in text::plain(&answer).lines() {
        let _ = writeln!(out, "> {}  ", escaped(line));
    }
    out + "\n"
}

fn notices(result: &RunResult) -> String {
    let mut out = String::new();
    if !result.warnings.is_empty() {
        out.push_str("### Warnings\n\n");
        for warning in result.warnings.iter().take(ENTRIES) {
            let _ = writeln!(
                out,
                "- {} ({})",
                escaped(&text::line(&warning.message, 400)),
                code(&warning.code)
            );
        }
        out.push_str(&more(result.warnings.len()));
    }
    out
}

fn more(all: usize) -> String {
    match all.saturating_sub(ENTRIES) {
        0 => String::new(),
        more => format!("\n… and {more} more.\n"),
    }
}

fn bounded(mut out: String) -> String {
    const NOTICE: &str = "\n… cut here; result.json and report.html have the full text.\n";
    if out.len() > LIMIT {
        let kept = text::head(&out, LIMIT - NOTICE.len());
        let end = kept.rfind('\n').unwrap_or(kept.len());
        out.truncate(end);
        out.push_str(NOTICE);
    }
    out
}

/// `foreign` with every Markdown character escaped, and mentions and issue references broken.
pub(crate) fn escaped(foreign: &str) -> String {
    let mut out = String::with_capacity(foreign.len() + 16);
    for c in inert::unlinked(&text::defused(foreign)).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '#' | '|' | '~' | '!' | '$' => {
                out.push('\\');
                out.push(c);
                // Forges search the rendered text for references, which no longer has the backslash.
                if matches!(c, '#' | '!') {
                    out.push('\u{200b}');
                }
            }
            '@' => out.push_str("@\u{200b}"),
            c => out.push(c),
        }
    }
    out
}

/// `foreign` as a code span on one line.
pub(crate) fn code(foreign: &str) -> String {
    let line = text::line(foreign, 200);
    if line.is_empty() {
        return "``  ``".to_owned();
    }
    let longest = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    format!("{fence}{pad}{line}{pad}{fence}")
}

/// A fenced block that its content cannot close, without lines that CI systems take for commands.
pub(super) fn fenced(out: &mut String, language: &str, content: &str) {
    let content = excerpt(content, 32 * 1024);
    let content = text::plain(&content);
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(out, "{fence}{language}");
    for line in content.lines() {
        let _ = writeln!(out, "{}", text::defused(line));
    }
    let _ = writeln!(out, "{fence}\n");
}

/// A code span for a table cell, where a bar ends the cell even inside code.
fn cell(foreign: &str) -> String {
    code(foreign).replace('|', "\\|")
}

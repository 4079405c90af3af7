//! Annotations for GitHub: workflow commands that name what went wrong. At most ten, the most important first.

use super::findings::{self, Finding, FindingLevel};
use super::result::{self, Ending};
use super::summary::RunSummary;
use super::text;

/// GitHub shows ten annotations of each level for a step.
const LIMIT: usize = 10;
/// GitHub accepts 64 kB of annotations for a step.
const BYTES: usize = 64 * 1024;

/// The lines to print, each with its newline; empty for a run that passed without a warning.
pub fn annotations(sum: &RunSummary<'_>, ending: &Ending) -> String {
    let result = result::result(sum, ending);
    let passed = result.verdict.is_success();
    let mut lines = Vec::new();
    if !passed {
        let title = format!("{}: {}", text::line(&result.recipe, 80), result.verdict.as_str());
        lines.push(command("error", None, &title, &result.message));
    }
    for call in &result.suspended {
        let title = format!("waits for a person: {} {}", call.call, text::line(&call.title, 120));
        let message = format!("{}\n{}", call.reason, call.approve);
        lines.push(command("warning", call.rule.as_deref(), &title, &message));
    }
    for check in result
        .steps
        .iter()
        .flat_map(|step| &step.checks)
        .filter(|check| !check.passed)
    {
        let message = format!("{}: {}", text::line(&check.what, 200), check.message);
        lines.push(command(
            "error",
            None,
            &format!("check failed: {}", check.name),
            &message,
        ));
    }
    for call in &result.denied {
        let kind = if passed { "warning" } else { "error" };
        let title = format!("denied: {} {}", call.call, text::line(&call.title, 120));
        let message = format!("{}\n{}", call.reason, call.fix);
        lines.push(command(kind, call.rule.as_deref(), &title, &message));
    }
    for warning in &result.warnings {
        lines.push(command("warning", None, &warning.code, &warning.message));
    }
    let of_run = lines.len();
    let found = findings::collect(sum).0;
    lines.extend(found.iter().map(finding));
    // The last slot says how many are not shown.
    if lines.len() > LIMIT && found.len() > LIMIT.saturating_sub(of_run) {
        let kept = LIMIT - 1;
        let more = lines.len() - kept;
        lines.truncate(kept);
        let message = format!("{more} more are in result.json and `overnight report RUN --format sarif`");
        lines.push(command("notice", None, "not all annotations are shown", &message));
    }
    lines.truncate(LIMIT);
    let mut bytes = 0;
    lines.retain(|line| {
        bytes += line.len();
        bytes <= BYTES
    });
    lines.concat()
}

/// The annotation of a finding at its position.
fn finding(finding: &Finding) -> String {
    let kind = match finding.level {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
        FindingLevel::Note => "notice",
    };
    let mut place = format!("file={},line={}", property(&finding.path), finding.line);
    let more = [
        ("endLine", finding.end_line),
        ("col", finding.column),
        ("endColumn", finding.end_column),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            place.push_str(&format!(",{name}={value}"));
        }
    }
    let message = text::plain(text::head(&finding.message, 4_000));
    format!(
        "::{kind} {place},title={}::{}\n",
        property(&text::line(&finding.rule, 200)),
        data(&message)
    )
}

/// One workflow command. `place` is `FILE:LINE` when a rule's position is known.
fn command(kind: &str, place: Option<&str>, title: &str, message: &str) -> String {
    let place = place.and_then(|place| place.rsplit_once(':'));
    let place =
        place.filter(|(file, line)| !file.is_empty() && !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()));
    let place = place.map(|(file, line)| format!("file={},line={line},", property(file)));
    let message = text::plain(text::head(message.trim(), 4_000));
    format!(
        "::{kind} {}title={}::{}\n",
        place.unwrap_or_default(),
        property(&text::line(title, 200)),
        data(&message)
    )
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

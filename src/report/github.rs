//! Reports a run to GitHub Actions: annotations (workflow commands that name what went wrong, the most important first,
//! within the runner's limits) and the step's outputs. Pure.

use super::findings::{self, Finding, FindingLevel};
use super::result::{self, OutputFacts, RunResult};
use super::summary::RunSummary;
use super::text;
use std::path::Path;

/// GitHub shows ten annotations of each level for a step.
const LIMIT: usize = 10;
/// GitHub accepts 64 kB of annotations for a step.
const BYTES: usize = 64 * 1024;
/// Bytes of [`BYTES`] reserved for the line that says how many annotations are not shown.
const RESERVED: usize = 256;
/// Limit of one output value, in bytes. GitHub accepts 1 MiB of outputs for a job.
const VALUE: usize = 100 * 1024;
/// GitHub refuses a step summary of more than 1 MiB; other commands of the step may write some of it too.
pub const SUMMARY_BYTES: usize = (1 << 20) - (64 << 10);

/// The level of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
    Notice,
}

impl Level {
    const ALL: [Level; 3] = [Level::Error, Level::Warning, Level::Notice];

    fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
        }
    }
}

/// A workflow command that shows an annotation, with its newline.
#[derive(Clone, Debug)]
pub struct Annotation {
    level: Level,
    line: String,
}

impl Annotation {
    /// An annotation without a position in a file. Title and message may be untrusted text.
    pub fn new(level: Level, title: &str, message: &str) -> Self {
        command(level, None, title, message)
    }
}

/// The annotations that a step can show: the first ten of each level, in their order. If some are left out, the last
/// says how many, and `rest` where they are.
pub fn limited(all: &[Annotation], rest: &str) -> String {
    let mut kept: Vec<&Annotation> = Vec::new();
    let mut bytes = 0;
    let count = |kept: &[&Annotation], level: Level| kept.iter().filter(|one| one.level == level).count();
    for one in all {
        // One notice is reserved for the line about the others.
        let most = LIMIT - usize::from(one.level == Level::Notice);
        if count(&kept, one.level) < most && bytes + one.line.len() <= BYTES - RESERVED {
            bytes += one.line.len();
            kept.push(one);
        }
    }
    let mut out: String = kept.iter().map(|one| one.line.as_str()).collect();
    let left: Vec<String> = Level::ALL
        .into_iter()
        .filter_map(|level| {
            let total = all.iter().filter(|one| one.level == level).count();
            let missing = total - count(&kept, level);
            (missing > 0).then(|| format!("{missing} {}s", level.as_str()))
        })
        .collect();
    if !left.is_empty() {
        let message = format!("{} more are in {rest}", left.join(", "));
        out.push_str(&command(Level::Notice, None, "not all annotations are shown", &message).line);
    }
    out
}

/// The outputs of the step, in the format of the file `GITHUB_OUTPUT`. `delimiter` must be unpredictable: a value that
/// contains it is left empty, so that no text of a model ends a value and begins another.
pub fn outputs(values: &[(&str, String)], delimiter: &str) -> String {
    let mut out = String::new();
    for (name, value) in values {
        let fits = value.len() <= VALUE && !value.contains(delimiter);
        let value = if fits { value.as_str() } else { "" };
        out.push_str(&format!("{name}<<{delimiter}\n{value}\n{delimiter}\n"));
    }
    out
}

/// The names and values of a run's outputs. A missing value is empty, and so is an answer that is too long for an
/// output; the file named by `result` has it.
pub fn run_outputs(result: &RunResult) -> Vec<(&'static str, String)> {
    let path = |name: &str| result.artefacts.get(name).cloned().unwrap_or_default();
    // The result is at the top of the run directory.
    let result_path = path("result");
    let directory = Path::new(&result_path).parent();
    let output = match &result.output {
        serde_json::Value::Null => String::new(),
        output => output.to_string(),
    };
    vec![
        ("verdict", result.verdict.as_str().to_owned()),
        ("exit-code", result.exit_code.to_string()),
        ("reason", result.reason.clone()),
        ("message", result.message.clone()),
        ("run", result.run.clone()),
        (
            "directory",
            directory.map(|dir| dir.display().to_string()).unwrap_or_default(),
        ),
        ("changed", result.patch.is_some().to_string()),
        ("patch", result.patch.clone().unwrap_or_default()),
        ("result", result_path.clone()),
        ("summary", path("summary")),
        ("junit", path("junit")),
        ("transcript", path("transcript")),
        ("report", path("html")),
        ("response", result.response.clone()),
        ("output", output),
        ("cost", format!("{:.6}", result.cost)),
        ("turns", result.usage.turns.to_string()),
        ("tokens", result.usage.total.to_string()),
    ]
}

/// The annotation for a run that ended before it had a journal.
pub fn unstarted(result: &RunResult) -> String {
    let title = format!("{}: {}", text::line(&result.recipe, 80), result.verdict.as_str());
    limited(&[Annotation::new(Level::Error, &title, &result.message)], "result.json")
}

/// The lines to print, each with its newline; empty for a run that passed without a warning.
pub fn annotations(sum: &RunSummary<'_>, ending: &OutputFacts) -> String {
    let result = result::result(sum, ending);
    let passed = result.verdict.is_success();
    let mut lines = Vec::new();
    if !passed {
        let title = format!("{}: {}", text::line(&result.recipe, 80), result.verdict.as_str());
        lines.push(command(Level::Error, None, &title, &result.message));
    }
    for call in &result.suspended {
        let title = format!("waits for a person: {} {}", call.call, text::line(&call.title, 120));
        let message = format!("{}\n{}", call.reason, call.approve);
        lines.push(command(Level::Warning, call.rule.as_deref(), &title, &message));
    }
    for check in result
        .steps
        .iter()
        .flat_map(|step| &step.checks)
        .filter(|check| !check.passed)
    {
        let what = text::one_line_command(&check.what);
        let why = [what, Some(check.message.as_str())].into_iter().flatten();
        let why: Vec<&str> = why.filter(|part| !part.is_empty()).collect();
        let output = text::last_lines(&check.output);
        let message = format!("{}\n{}", why.join(": "), output.join("\n"));
        lines.push(command(
            Level::Error,
            None,
            &format!("check failed: {}", check.name),
            &message,
        ));
    }
    for call in &result.denied {
        let kind = if passed { Level::Warning } else { Level::Error };
        let title = format!("denied: {} {}", call.call, text::line(&call.title, 120));
        let message = format!("{}\n{}", call.reason, call.fix);
        lines.push(command(kind, call.rule.as_deref(), &title, message.trim_end()));
    }
    for warning in &result.warnings {
        lines.push(command(Level::Warning, None, &warning.code, &warning.message));
    }
    lines.extend(findings::collect(sum).0.iter().map(finding));
    limited(&lines, "result.json and `overnight report RUN --format sarif`")
}

/// The annotation for a finding, at its position.
fn finding(finding: &Finding) -> Annotation {
    let kind = match finding.level {
        FindingLevel::Error => Level::Error,
        FindingLevel::Warning => Level::Warning,
        FindingLevel::Note => Level::Notice,
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
    let line = format!(
        "::{} {place},title={}::{}\n",
        kind.as_str(),
        property(&text::line(&finding.rule, 200)),
        data(&message)
    );
    Annotation { level: kind, line }
}

/// One workflow command. `place` is `FILE:LINE` when a rule's position is known.
fn command(level: Level, place: Option<&str>, title: &str, message: &str) -> Annotation {
    let place = place.and_then(|place| place.rsplit_once(':'));
    let place =
        place.filter(|(file, line)| !file.is_empty() && !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()));
    let place = place.map(|(file, line)| format!("file={},line={line},", property(file)));
    let message = text::plain(text::head(message.trim(), 4_000));
    let line = format!(
        "::{} {}title={}::{}\n",
        level.as_str(),
        place.unwrap_or_default(),
        property(&text::line(title, 200)),
        data(&message)
    );
    Annotation { level, line }
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_ends_its_own_block() {
        let hostile = "fine\nEND\nverdict<<x\npassed\nx\n".to_owned();
        let told = outputs(
            &[("response", hostile.clone()), ("verdict", "failed".to_owned())],
            "END",
        );
        assert_eq!(
            told, "response<<END\n\nEND\nverdict<<END\nfailed\nEND\n",
            "a value with the delimiter is left out"
        );
        let told = outputs(&[("response", hostile.clone())], "0f9a");
        assert_eq!(told, format!("response<<0f9a\n{hostile}\n0f9a\n"));
        assert_eq!(outputs(&[("output", "x".repeat(VALUE + 1))], "E"), "output<<E\n\nE\n");
    }

    #[test]
    fn ten_of_each_level_are_shown_and_the_others_counted() {
        let many = |level, n: usize| (0..n).map(move |i| Annotation::new(level, "t", &format!("m{i}")));
        let all: Vec<Annotation> = many(Level::Warning, 12)
            .chain(many(Level::Error, 10))
            .chain(many(Level::Notice, 11))
            .collect();
        let told = limited(&all, "there");
        let count = |word: &str| {
            told.lines()
                .filter(|line| line.starts_with(&format!("::{word} ")))
                .count()
        };
        assert_eq!((count("error"), count("warning"), count("notice")), (10, 10, 10));
        assert!(told.contains("2 warnings, 2 notices more are in there"), "{told}");
        let long: Vec<Annotation> = (0..10)
            .flat_map(|_| Level::ALL)
            .map(|level| Annotation::new(level, "t", &"x".repeat(9_000)))
            .collect();
        assert!(limited(&long, "there").len() <= BYTES);
        assert_eq!(limited(&[], "there"), "");
    }
}

//! Renders the findings of a run for code review tools: SARIF 2.1.0, reviewdog's rdjson, GitLab code quality,
//! Checkstyle. Pure.
//!
//! Findings are in the key `findings` of the validated answer, or of a step's output that is or contains a JSON object.
//! A step with `findings: true` must return them:
//!
//! ```text
//! { path, line, end_line?, column?, end_column?, rule, level: error | warning | note, message,
//!   fix?: { description, edits: [{ line, end_line, text }] } }
//! ```
//!
//! Lines and columns count from 1; `end_line` is inclusive, `end_column` is exclusive. An edit replaces whole lines.
//! Paths are relative to the workspace.

use super::summary::{RunSummary, StepSummary};
use super::text;
use crate::base::answer::documents_of;
use crate::base::ids::sha256_hex;
use crate::base::percent::encode_path;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Limit of findings of one run. GitHub accepts 25,000 results in a SARIF run, and shows 5,000.
const MOST: usize = 5_000;
/// Limit of a message, in bytes.
const MESSAGE: usize = 8_000;
/// Limit of invalid entries that are named.
const NAMED: usize = 20;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    Error,
    Warning,
    Note,
}

impl FindingLevel {
    /// The word in the findings format and in SARIF.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// The last line, inclusive.
    #[serde(default)]
    pub end_line: Option<u64>,
    /// The column, from 1.
    #[serde(default)]
    pub column: Option<u64>,
    /// The column after the last one.
    #[serde(default)]
    pub end_column: Option<u64>,
    /// A name for this kind of finding.
    pub rule: String,
    pub level: FindingLevel,
    /// What is wrong, for people.
    pub message: String,
    /// How it could be fixed.
    #[serde(default)]
    pub fix: Option<SuggestedFix>,
}

/// A suggested fix.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SuggestedFix {
    /// One sentence: what the edits do.
    #[serde(default)]
    pub description: String,
    /// The edits; all together are the fix.
    pub edits: Vec<LineEdit>,
}

/// A range of whole lines and their replacement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LineEdit {
    /// The first line that is replaced, from 1.
    pub line: u64,
    /// The last line that is replaced; without it only `line` is.
    #[serde(default)]
    pub end_line: Option<u64>,
    /// The text that replaces the lines; empty to remove them.
    pub text: String,
}

/// The valid findings of a run, most severe first, and one sentence for each invalid entry.
pub fn collect(sum: &RunSummary<'_>) -> (Vec<Finding>, Vec<String>) {
    let (found, problems) = by_step(sum);
    (found.into_iter().map(|(_, finding)| finding).collect(), problems)
}

/// As [`collect`], each finding with the id of the step that returned it.
pub fn by_step<'a>(sum: &RunSummary<'a>) -> (Vec<(&'a str, Finding)>, Vec<String>) {
    let mut found: Vec<(&str, Finding)> = Vec::new();
    let mut problems = Vec::new();
    let mut take = |step: &'a str, origin: &str, value: &Value| {
        let Some(entries) = value.get("findings").and_then(Value::as_array) else {
            return;
        };
        for (at, entry) in entries.iter().enumerate() {
            match read(entry) {
                Ok(finding) => found.push((step, finding)),
                Err(why) => problems.push(format!("{origin}: findings[{at}]: {why}")),
            }
        }
    };
    if let Some(output) = sum.output {
        let judged = |step: &&StepSummary<'a>| step.judged.last().is_some_and(|(ok, _)| *ok);
        let step = sum.steps.iter().rev().find(judged).map_or("", |step| step.id);
        take(step, "the answer", output);
    }
    for step in &sum.steps {
        let output = step
            .result
            .map(|result| result.output.as_str())
            .filter(|text| text.contains("\"findings\""));
        let documents = output.and_then(|text| documents_of(text).ok()).unwrap_or_default();
        if documents.iter().any(|document| sum.output == Some(&document.value)) {
            continue;
        }
        // A step may show other JSON before its findings.
        if let Some(document) = documents
            .iter()
            .find(|document| document.value.get("findings").is_some())
        {
            take(step.id, &format!("step `{}`", step.id), &document.value);
        }
    }
    found.sort_by(|(_, a), (_, b)| (a.level, &a.path, a.line, &a.rule).cmp(&(b.level, &b.path, b.line, &b.rule)));
    if found.len() > MOST {
        problems.push(format!("{} findings: the first {MOST} are kept", found.len()));
        found.truncate(MOST);
    }
    if problems.len() > NAMED {
        let more = problems.len() - NAMED;
        problems.truncate(NAMED);
        problems.push(format!("and {more} more"));
    }
    (found, problems)
}

/// Parses and checks one finding of an answer.
///
/// # Errors
/// What is wrong with it, for people.
pub fn read(entry: &Value) -> Result<Finding, String> {
    let mut finding: Finding = serde_json::from_value(entry.clone()).map_err(|error| error.to_string())?;
    let path = finding.path.strip_prefix("./").unwrap_or(&finding.path);
    let sound = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !path.split('/').all(sound) || path.contains(['\\', '\0', '\n', '\r']) {
        return Err(format!(
            "`{}` is not a path inside the workspace",
            text::line(&finding.path, 100)
        ));
    }
    finding.path = path.to_owned();
    if finding.line == 0 || finding.column == Some(0) || finding.end_column == Some(0) {
        return Err("lines and columns count from 1".to_owned());
    }
    if finding.end_line.is_some_and(|end| end < finding.line) {
        return Err("`end_line` is before `line`".to_owned());
    }
    if finding.message.trim().is_empty() || finding.rule.trim().is_empty() {
        return Err("`message` and `rule` must not be empty".to_owned());
    }
    // An end column without a column, or before it, has no meaning.
    if finding.column.is_none() {
        finding.end_column = None;
    }
    let same_line = finding.end_line.is_none_or(|end| end == finding.line);
    if same_line && finding.end_column < finding.column {
        finding.end_column = None;
    }
    let wrong = |edit: &LineEdit| edit.line == 0 || edit.end_line.is_some_and(|end| end < edit.line);
    if finding
        .fix
        .as_ref()
        .is_some_and(|fix| fix.edits.is_empty() || fix.edits.iter().any(wrong))
    {
        return Err("`fix` needs edits; their lines count from 1, and `end_line` must not be before `line`".to_owned());
    }
    finding.message = text::plain(text::head(finding.message.trim(), MESSAGE)).into_owned();
    finding.rule = text::line(&finding.rule, 200);
    Ok(finding)
}

/// Fingerprints that stay the same when lines move: over rule, path, message, and the index among equal findings.
fn fingerprints(findings: &[Finding]) -> Vec<String> {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let one = |finding: &Finding| {
        let base = sha256_hex(&[
            finding.rule.as_bytes(),
            b"\n",
            finding.path.as_bytes(),
            b"\n",
            finding.message.as_bytes(),
        ]);
        let count = seen.entry(base.clone()).or_default();
        *count += 1;
        sha256_hex(&[base.as_bytes(), count.to_string().as_bytes()])
    };
    findings.iter().map(one).collect()
}

/// SARIF 2.1.0, as GitHub code scanning and other tools accept it.
pub fn sarif(sum: &RunSummary<'_>) -> String {
    let (findings, problems) = collect(sum);
    let mut rules: Vec<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let location = |path: &str| json!({ "uri": encode_path(path), "uriBaseId": "%SRCROOT%" });
    let result = |(finding, fingerprint): (&Finding, String)| {
        let mut region = json!({ "startLine": finding.line });
        let more = [
            ("startColumn", finding.column),
            ("endLine", finding.end_line),
            ("endColumn", finding.end_column),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                region[name] = value.into();
            }
        }
        let mut result = json!({
            "ruleId": finding.rule,
            "ruleIndex": rules.iter().position(|rule| *rule == finding.rule),
            "level": finding.level.as_str(),
            "message": { "text": finding.message },
            "locations": [{ "physicalLocation": { "artifactLocation": location(&finding.path), "region": region } }],
            "partialFingerprints": { "overnight/v1": fingerprint },
        });
        if let Some(fix) = &finding.fix {
            let replacement = |edit: &LineEdit| {
                let end = edit.end_line.unwrap_or(edit.line);
                // Without columns a region ends before the last line break.
                let region = match edit.text.as_str() {
                    "" => json!({
                        "startLine": edit.line,
                        "startColumn": 1,
                        "endLine": end.saturating_add(1),
                        "endColumn": 1,
                    }),
                    _ => json!({ "startLine": edit.line, "endLine": end }),
                };
                json!({ "deletedRegion": region, "insertedContent": { "text": without_last_break(&edit.text) } })
            };
            let description = if fix.description.is_empty() {
                &finding.message
            } else {
                &fix.description
            };
            result["fixes"] = json!([{
                "description": { "text": text::line(description, 500) },
                "artifactChanges": [{
                    "artifactLocation": location(&finding.path),
                    "replacements": fix.edits.iter().map(replacement).collect::<Vec<_>>(),
                }],
            }]);
        }
        result
    };
    let results: Vec<Value> = findings.iter().zip(fingerprints(&findings)).map(result).collect();
    let notice = |problem: &String| json!({ "level": "warning", "message": { "text": problem } });
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "overnight",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| json!({ "id": rule })).collect::<Vec<_>>(),
            } },
            "automationDetails": { "id": format!("overnight/{}/", text::line(sum.recipe(), 80)) },
            "invocations": [{
                "executionSuccessful": sum.outcome.verdict.is_success(),
                "toolExecutionNotifications": problems.iter().map(notice).collect::<Vec<_>>(),
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

/// The text of an edit without the line break at its end: the break of the last replaced line stays.
fn without_last_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// reviewdog's rdjson.
pub fn rdjson(sum: &RunSummary<'_>) -> String {
    let position = |line: u64, column: Option<u64>| match column {
        Some(column) => json!({ "line": line, "column": column }),
        None => json!({ "line": line }),
    };
    let diagnostic = |finding: &Finding| {
        let mut range = json!({ "start": position(finding.line, finding.column) });
        if finding.end_line.is_some() || finding.end_column.is_some() {
            range["end"] = position(finding.end_line.unwrap_or(finding.line), finding.end_column);
        }
        let mut diagnostic = json!({
            "message": finding.message,
            "location": { "path": finding.path, "range": range },
            "severity": match finding.level {
                FindingLevel::Error => "ERROR",
                FindingLevel::Warning => "WARNING",
                FindingLevel::Note => "INFO",
            },
            "code": { "value": finding.rule },
        });
        if let Some(fix) = &finding.fix {
            let suggestion = |edit: &LineEdit| {
                json!({
                    "range": { "start": { "line": edit.line }, "end": { "line": edit.end_line.unwrap_or(edit.line) } },
                    "text": without_last_break(&edit.text),
                })
            };
            diagnostic["suggestions"] = fix.edits.iter().map(suggestion).collect();
        }
        diagnostic
    };
    let diagnostics: Vec<Value> = collect(sum).0.iter().map(diagnostic).collect();
    format!(
        "{:#}\n",
        json!({ "source": { "name": "overnight" }, "diagnostics": diagnostics })
    )
}

/// GitLab's code quality report.
pub fn codequality(sum: &RunSummary<'_>) -> String {
    let findings = collect(sum).0;
    let issue = |(finding, fingerprint): (&Finding, String)| {
        let mut lines = json!({ "begin": finding.line });
        if let Some(end) = finding.end_line {
            lines["end"] = end.into();
        }
        json!({
            "description": finding.message,
            "check_name": finding.rule,
            "fingerprint": fingerprint,
            "severity": match finding.level {
                FindingLevel::Error => "major",
                FindingLevel::Warning => "minor",
                FindingLevel::Note => "info",
            },
            "location": { "path": finding.path, "lines": lines },
        })
    };
    let issues: Vec<Value> = findings.iter().zip(fingerprints(&findings)).map(issue).collect();
    format!("{:#}\n", Value::from(issues))
}

/// Checkstyle's XML.
pub fn checkstyle(sum: &RunSummary<'_>) -> String {
    let mut of_file: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for finding in collect(sum).0 {
        of_file.entry(finding.path.clone()).or_default().push(finding);
    }
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<checkstyle version=\"4.3\">\n".to_owned();
    for (path, findings) in of_file {
        let _ = writeln!(out, "  <file name=\"{}\">", attribute(&path));
        for finding in findings {
            let severity = match finding.level {
                FindingLevel::Note => "info",
                level => level.as_str(),
            };
            let column = finding
                .column
                .map(|column| format!(" column=\"{column}\""))
                .unwrap_or_default();
            let _ = writeln!(
                out,
                "    <error line=\"{}\"{column} severity=\"{severity}\" message=\"{}\" source=\"{}\"/>",
                finding.line,
                attribute(&finding.message),
                attribute(&finding.rule)
            );
        }
        out.push_str("  </file>\n");
    }
    out + "</checkstyle>\n"
}

fn attribute(foreign: &str) -> String {
    let mut out = String::with_capacity(foreign.len() + 16);
    for c in text::plain(foreign).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c => out.push(c),
        }
    }
    out
}

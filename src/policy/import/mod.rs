//! Converts a policy file of Gemini CLI (TOML) to a policy of `overnight` that never allows more, and reports every
//! difference. Pure.
//!
//! There, the matching rule with the highest priority decides; here, the strictest one. `rules` reads the file,
//! `pattern` turns regular expressions into words and globs, `convert` replaces the order by strictness, `write` prints
//! the policy.

mod convert;
mod pattern;
mod rules;
mod write;

use crate::diag::diagnostic::any_error;
use crate::diag::render::escape;
use crate::diag::{Diagnostic, SourceFiles, SourceId, Span};
use serde_json::{Value, json};

/// The approval mode for which a file is converted; rules for other modes have no effect in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    #[default]
    Default,
    AutoEdit,
    Plan,
    Yolo,
}

impl ApprovalMode {
    /// The words for `modes` in a file. `auto_edit` is the word of the command line.
    const WORDS: [(&'static str, ApprovalMode); 5] = [
        ("default", ApprovalMode::Default),
        ("autoEdit", ApprovalMode::AutoEdit),
        ("auto_edit", ApprovalMode::AutoEdit),
        ("plan", ApprovalMode::Plan),
        ("yolo", ApprovalMode::Yolo),
    ];

    /// The word in files.
    pub fn as_str(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("", |(word, _)| word)
    }
}

/// What a difference means for the calls of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Calls that the original allows are denied or held here.
    Narrower,
    /// Written in another way, with the same effect.
    Same,
    /// Something to know about the result.
    Note,
}

impl DifferenceKind {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            DifferenceKind::Narrower => "narrower",
            DifferenceKind::Same => "same",
            DifferenceKind::Note => "note",
        }
    }
}

/// One difference between the file and its conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportDifference {
    pub kind: DifferenceKind,
    /// A stable kebab-case name.
    pub code: &'static str,
    /// The rule in the original; `None` for what concerns the whole file.
    pub span: Option<Span>,
    pub message: String,
}

/// A converted policy.
#[derive(Clone, Debug)]
pub struct ImportedPolicy {
    /// The text of the policy file.
    pub policy: String,
    /// In file order; differences of the whole file come last.
    pub report: Vec<ImportDifference>,
}

/// Converts a file of `files`.
///
/// # Errors
/// Every problem of the file: syntax, wrong types, values that Gemini CLI refuses itself.
pub fn gemini(files: &SourceFiles, file: SourceId, mode: ApprovalMode) -> Result<ImportedPolicy, Vec<Diagnostic>> {
    let root = crate::diag::parse_toml(files, file)?;
    let mut problems = Vec::new();
    let mut report = Vec::new();
    let rules = rules::read(&root, mode, &mut report, &mut problems);
    crate::diag::diagnostic::sort(&mut problems);
    if any_error(&problems) {
        return Err(problems);
    }
    let converted = convert::convert(files, &rules, mode, &mut report);
    let policy = write::text(files, file, mode, &converted);
    report.sort_by_key(|difference| (difference.span.is_none(), difference.span));
    Ok(ImportedPolicy { policy, report })
}

/// The report for people: one line per difference.
pub fn report_text(files: &SourceFiles, report: &[ImportDifference]) -> String {
    let mut out = String::new();
    for difference in report {
        let place = difference.span.map(|span| format!("{}: ", files.place(span)));
        out.push_str(&escape(&format!(
            "{}{}[{}]: {}",
            place.unwrap_or_default(),
            difference.kind.as_str(),
            difference.code,
            difference.message
        )));
        out.push('\n');
    }
    out
}

/// The report as a JSON list: `line`, `column`, `kind`, `code`, `message`.
pub fn report_json(files: &SourceFiles, report: &[ImportDifference]) -> Value {
    let one = |difference: &ImportDifference| {
        let place = difference.span.map(|span| files.place(span));
        json!({
            "line": place.as_ref().map(|place| place.line),
            "column": place.as_ref().map(|place| place.column),
            "kind": difference.kind.as_str(),
            "code": difference.code,
            "message": difference.message,
        })
    };
    Value::Array(report.iter().map(one).collect())
}

#[cfg(test)]
mod tests;

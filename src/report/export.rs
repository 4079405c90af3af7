//! The output formats of `overnight report RUN --format`, and the function that renders each. Pure.

use super::result::Ending;
use super::summary::RunSummary;
use super::transcript::Declared;
use super::{findings, github, html, junit, markdown, result, suspension, transcript};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Html,
    Junit,
    Transcript,
    Patch,
    Summary,
    Result,
    /// For the reviewer of a suspended run: JSON.
    Suspension,
    /// For the reviewer of a suspended run: Markdown.
    Review,
    /// GitHub workflow commands.
    Github,
    /// The final answer, as `run` prints it.
    Text,
    /// Findings: SARIF 2.1.0.
    Sarif,
    /// Findings: reviewdog's rdjson.
    Rdjson,
    /// Findings: GitLab's code quality report.
    Codequality,
    /// Findings: checkstyle's XML.
    Checkstyle,
}

impl Format {
    /// All formats, in the order of `--help`.
    pub const ALL: [Format; 14] = [
        Format::Text,
        Format::Result,
        Format::Summary,
        Format::Html,
        Format::Junit,
        Format::Transcript,
        Format::Patch,
        Format::Suspension,
        Format::Review,
        Format::Github,
        Format::Sarif,
        Format::Rdjson,
        Format::Codequality,
        Format::Checkstyle,
    ];

    /// The value of the command-line option.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Junit => "junit",
            Format::Transcript => "transcript",
            Format::Patch => "patch",
            Format::Summary => "summary",
            Format::Result => "result",
            Format::Suspension => "suspension",
            Format::Review => "review",
            Format::Github => "github",
            Format::Text => "text",
            Format::Sarif => "sarif",
            Format::Rdjson => "rdjson",
            Format::Codequality => "codequality",
            Format::Checkstyle => "checkstyle",
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The file in the run directory that holds this output, if there is one.
    pub fn file(self) -> Option<&'static str> {
        match self {
            Format::Html => Some("report.html"),
            Format::Junit => Some("junit.xml"),
            Format::Transcript => Some("transcript.json"),
            Format::Patch => Some("changes.patch"),
            Format::Summary => Some("summary.md"),
            Format::Result => Some("result.json"),
            Format::Suspension => Some("suspension.json"),
            Format::Review => Some("suspension.md"),
            Format::Github
            | Format::Text
            | Format::Sarif
            | Format::Rdjson
            | Format::Codequality
            | Format::Checkstyle => None,
        }
    }
}

/// Inputs of the outputs besides the events.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    pub ending: &'a Ending,
    pub declared: Declared<'a>,
    /// The bytes of the patch blob, if the run changed anything.
    pub patch: Option<&'a [u8]>,
}

/// Renders one output. A run that changed nothing has an empty patch.
///
/// # Errors
/// When the XML writer fails.
pub fn render(
    format: Format,
    sum: &RunSummary<'_>,
    beside: Beside<'_>,
) -> Result<Vec<u8>, quick_junit::SerializeError> {
    let ending = beside.ending;
    let text = match format {
        Format::Html => html::page(sum, ending, beside.patch),
        Format::Junit => junit::xml(sum, ending)?,
        Format::Transcript => transcript::json(sum, beside.declared, ending),
        Format::Patch => return Ok(beside.patch.unwrap_or_default().to_vec()),
        Format::Summary => markdown::summary(sum, ending),
        Format::Result => result::result(sum, ending).to_pretty(),
        Format::Suspension => format!("{:#}\n", suspension::json(sum, ending)),
        Format::Review => suspension::markdown(sum, ending),
        Format::Github => github::annotations(sum, ending),
        Format::Text => result::text(&result::result(sum, ending)),
        Format::Sarif => findings::sarif(sum),
        Format::Rdjson => findings::rdjson(sum),
        Format::Codequality => findings::codequality(sum),
        Format::Checkstyle => findings::checkstyle(sum),
    };
    Ok(text.into_bytes())
}

//! The output formats of `overnight report RUN --format`, and the function that renders each. Pure.

use super::result::OutputFacts;
use super::summary::RunSummary;
use super::transcript::DeclaredPrompt;
use super::{findings, github, html, junit, markdown, mbox, result, suspension, transcript};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFile {
    Html,
    Junit,
    Transcript,
    Patch,
    /// The patch as a mail message for `git am`.
    Mbox,
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

impl ReportFile {
    /// All formats, in the order of `--help`.
    pub const ALL: [ReportFile; 15] = [
        ReportFile::Text,
        ReportFile::Result,
        ReportFile::Summary,
        ReportFile::Html,
        ReportFile::Junit,
        ReportFile::Transcript,
        ReportFile::Patch,
        ReportFile::Mbox,
        ReportFile::Suspension,
        ReportFile::Review,
        ReportFile::Github,
        ReportFile::Sarif,
        ReportFile::Rdjson,
        ReportFile::Codequality,
        ReportFile::Checkstyle,
    ];

    /// The value of the command-line option.
    pub fn as_str(self) -> &'static str {
        match self {
            ReportFile::Html => "html",
            ReportFile::Junit => "junit",
            ReportFile::Transcript => "transcript",
            ReportFile::Patch => "patch",
            ReportFile::Mbox => "mbox",
            ReportFile::Summary => "summary",
            ReportFile::Result => "result",
            ReportFile::Suspension => "suspension",
            ReportFile::Review => "review",
            ReportFile::Github => "github",
            ReportFile::Text => "text",
            ReportFile::Sarif => "sarif",
            ReportFile::Rdjson => "rdjson",
            ReportFile::Codequality => "codequality",
            ReportFile::Checkstyle => "checkstyle",
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The file in the run directory that holds this output, if there is one.
    pub fn file(self) -> Option<&'static str> {
        match self {
            ReportFile::Html => Some("report.html"),
            ReportFile::Junit => Some("junit.xml"),
            ReportFile::Transcript => Some("transcript.json"),
            ReportFile::Patch => Some("changes.patch"),
            ReportFile::Summary => Some("summary.md"),
            ReportFile::Result => Some("result.json"),
            ReportFile::Suspension => Some("suspension.json"),
            ReportFile::Review => Some("suspension.md"),
            ReportFile::Mbox
            | ReportFile::Github
            | ReportFile::Text
            | ReportFile::Sarif
            | ReportFile::Rdjson
            | ReportFile::Codequality
            | ReportFile::Checkstyle => None,
        }
    }
}

/// Inputs of the outputs besides the events.
#[derive(Clone, Copy, Debug)]
pub struct RenderContext<'a> {
    pub ending: &'a OutputFacts,
    pub declared: DeclaredPrompt<'a>,
    /// The bytes of the patch blob, if the run changed anything.
    pub patch: Option<&'a [u8]>,
}

/// Renders one output. A run that changed nothing has an empty patch.
///
/// # Errors
/// When the XML writer fails.
pub fn render(
    format: ReportFile,
    sum: &RunSummary<'_>,
    beside: RenderContext<'_>,
) -> Result<Vec<u8>, quick_junit::SerializeError> {
    let ending = beside.ending;
    let text = match format {
        ReportFile::Html => html::page(sum, ending, beside.patch),
        ReportFile::Junit => junit::xml(sum, ending)?,
        ReportFile::Transcript => transcript::json(sum, beside.declared, ending),
        ReportFile::Patch => return Ok(beside.patch.unwrap_or_default().to_vec()),
        ReportFile::Mbox => return Ok(mbox::mail(sum, beside.patch)),
        ReportFile::Summary => markdown::summary(sum, ending),
        ReportFile::Result => result::result(sum, ending).to_pretty(),
        ReportFile::Suspension => format!("{:#}\n", suspension::json(sum, ending)),
        ReportFile::Review => suspension::markdown(sum, ending),
        ReportFile::Github => github::annotations(sum, ending),
        ReportFile::Text => result::text(&result::result(sum, ending)),
        ReportFile::Sarif => findings::sarif(sum),
        ReportFile::Rdjson => findings::rdjson(sum),
        ReportFile::Codequality => findings::codequality(sum),
        ReportFile::Checkstyle => findings::checkstyle(sum),
    };
    Ok(text.into_bytes())
}

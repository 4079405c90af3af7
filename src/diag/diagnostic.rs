//! One problem in a user's file: what is wrong, where, and what to do about it. Pure.

use super::source::{SourceFiles, Span};

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is still used.
    Warning,
    /// The file is refused.
    Error,
}

impl Severity {
    /// The word shown before the code.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Another position that is related to the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    pub text: String,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A stable kebab-case name for scripts: `unknown-key`.
    pub code: &'static str,
    /// One sentence, lower case, without a full stop.
    pub message: String,
    /// `None` for a problem of the command line.
    pub span: Option<Span>,
    /// What to write or do instead.
    pub help: Option<String>,
    pub labels: Vec<Label>,
}

impl Diagnostic {
    /// An error at a position.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span: Some(span),
            help: None,
            labels: Vec::new(),
        }
    }

    /// A warning at a position.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, span, message)
        }
    }

    /// An error that belongs to no file, such as a flag's value.
    pub fn unplaced(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span: None,
            help: None,
            labels: Vec::new(),
        }
    }

    /// Adds what to do instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds another position.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label {
            span,
            text: text.into(),
        });
        self
    }

    /// Whether the problem makes the file unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Whether any of the problems makes its file unusable.
pub fn any_error(problems: &[Diagnostic]) -> bool {
    problems.iter().any(Diagnostic::is_error)
}

/// Sorts by file and position; problems without a position come first. Stable.
pub fn sort(problems: &mut [Diagnostic]) {
    problems.sort_by_key(|problem| problem.span);
}

/// The known word that an unknown one is probably a misspelling of.
pub fn similar_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&lower, &name.to_lowercase());
    let (distance, name) = known.into_iter().map(|name| (distance(name), name)).min()?;
    (distance <= 1 + name.len().min(word.len()) / 4).then_some(name)
}

/// The help line for an unknown word: the most similar known one, or else all of them.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    match similar_word(word, known.iter().copied()) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() => None,
        None => Some(format!("write one of {}", list(&known))),
    }
}

/// `a`, `b` and `c`, each in backquotes.
pub fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns the value, or the problems if one is an error or there is no value. Warnings are moved to `warnings`.
///
/// # Errors
/// All problems, sorted.
pub fn settle<T>(
    value: Option<T>,
    mut problems: Vec<Diagnostic>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<T, Vec<Diagnostic>> {
    sort(&mut problems);
    match value {
        Some(value) if !any_error(&problems) => {
            warnings.append(&mut problems);
            Ok(value)
        }
        _ => Err(problems),
    }
}

/// Identifies a rule or step by its position: `FILE:LINE`.
pub fn file_line(files: &SourceFiles, span: Span) -> String {
    let place = files.place(span);
    format!("{}:{}", place.file, place.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_proposed_and_far_ones_listed() {
        let known = ["allow", "deny", "suspend"];
        assert_eq!(did_you_mean("alow", known).as_deref(), Some("did you mean `allow`?"));
        assert_eq!(did_you_mean("Deny", known).as_deref(), Some("did you mean `deny`?"));
        assert_eq!(
            did_you_mean("colour", known).as_deref(),
            Some("write one of `allow`, `deny` and `suspend`")
        );
        assert_eq!(did_you_mean("x", []), None);
    }
}

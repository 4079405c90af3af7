//! Why a template cannot be rendered, and what to write instead.

use minijinja::{Error, ErrorKind};
use std::ops::Range;

/// Limit of the rendered text, in bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Why a template cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    pub message: String,
    /// Byte range in the template.
    pub range: Option<Range<usize>>,
    pub help: &'static str,
}

const HELP: &str = "write `{{ name }}`; text with braces goes between `{% raw %}` and `{% endraw %}`";
pub(super) const HELP_UNDEFINED: &str =
    "use a declared parameter, `input.KEY` or `steps.ID.output`; `default(…)` fills a gap";
const HELP_SHELL: &str = "assign it first (`name={{ value }}; …` and then \"$name\"), or write `| raw` where the value is trusted shell text";

impl TemplateError {
    pub(super) fn shell(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            range: None,
            help: HELP_SHELL,
        }
    }

    pub(super) fn from_engine(error: &Error, text: &str) -> Self {
        let (message, help) = match error.kind() {
            ErrorKind::UndefinedError => ("an undefined value is used".to_owned(), HELP_UNDEFINED),
            ErrorKind::OutOfFuel => ("the template takes too many steps".to_owned(), "loop over less"),
            ErrorKind::WriteFailure => (
                format!("the template renders more than {MAX_BYTES} bytes"),
                "pass less text, or write it to a file that the step reads",
            ),
            kind => (kind.to_string(), HELP),
        };
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        let range = error.range().filter(|range| text.get(range.clone()).is_some());
        Self {
            message: message + &detail,
            range,
            help,
        }
    }
}

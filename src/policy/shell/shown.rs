//! What a git command may show of the contents of files.

use super::FileUse;

/// The contents of files that a git command may show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ShownHistory {
    /// None: only names, messages and identifiers.
    #[default]
    Nothing,
    /// Only those at these places.
    Within(Vec<ShownPlace>),
    /// Any file of any revision; the text says what to write instead.
    Everything(&'static str),
}

/// A place whose contents a git command may show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShownPlace {
    pub used: FileUse,
    /// Whether everything below is shown if it is a directory, or was one in the history.
    pub deep: bool,
}

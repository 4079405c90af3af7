//! Why a snapshot does not have the content of a name. The text of the reason stands in place of the content, so it is
//! part of a file format.

use std::fmt;

/// Why a snapshot does not have the content of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnknownContent {
    /// A file that cannot be read.
    File,
    /// A directory that cannot be read.
    Directory,
    /// A file over this many MiB that git does not have.
    TooLarge(u64),
    /// A name that git refuses.
    RefusedName,
    Pipe,
    Socket,
    Device,
    /// The text of a version that this one does not know.
    Other(String),
}

const TOO_LARGE: &str = "a file over ";
const MEBIBYTES: &str = " MiB";

impl UnknownContent {
    /// Reads what [`UnknownContent`] displays.
    pub fn parse(text: &str) -> Self {
        let fixed = [
            Self::File,
            Self::Directory,
            Self::RefusedName,
            Self::Pipe,
            Self::Socket,
            Self::Device,
        ];
        if let Some(known) = fixed.into_iter().find(|known| known.to_string() == text) {
            return known;
        }
        let size = text
            .strip_prefix(TOO_LARGE)
            .and_then(|rest| rest.strip_suffix(MEBIBYTES)?.parse().ok());
        size.map_or_else(|| Self::Other(text.to_owned()), Self::TooLarge)
    }

    /// Whether it is a file, whose content is missing, and not something that has no content, such as a pipe.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File | Self::TooLarge(_))
    }

    /// Whether it is a file or directory that its mode closes.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::File | Self::Directory)
    }

    /// Whether it has no content that could be lost.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Pipe | Self::Socket | Self::Device)
    }
}

impl fmt::Display for UnknownContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("a file that cannot be read"),
            Self::Directory => f.write_str("a directory that cannot be read"),
            Self::TooLarge(size) => write!(f, "{TOO_LARGE}{size}{MEBIBYTES}"),
            Self::RefusedName => f.write_str("a name that git refuses"),
            Self::Pipe => f.write_str("a pipe"),
            Self::Socket => f.write_str("a socket"),
            Self::Device => f.write_str("a device"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_snapshots_keep_their_meaning() {
        for (text, expected) in [
            ("a file that cannot be read", UnknownContent::File),
            ("a directory that cannot be read", UnknownContent::Directory),
            ("a file over 32 MiB", UnknownContent::TooLarge(32)),
            ("a name that git refuses", UnknownContent::RefusedName),
            ("a pipe", UnknownContent::Pipe),
            ("a socket", UnknownContent::Socket),
            ("a device", UnknownContent::Device),
            ("a file over", UnknownContent::Other("a file over".to_owned())),
            ("", UnknownContent::Other(String::new())),
        ] {
            let parsed = UnknownContent::parse(text);
            assert_eq!(parsed.to_string(), text);
            assert_eq!(parsed, expected);
        }
    }
}

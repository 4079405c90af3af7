//! A file as the model receives it, and how much the model receives of files.

use crate::base::access::ResolvedPath;
use crate::base::secret::start;

/// Whether a place may be read; called for every file, including imports.
pub type MayRead<'a> = &'a dyn Fn(&ResolvedPath) -> bool;

/// Upper limits for the files that a recipe or a prompt gives to the model.
pub(super) struct ContextLimits {
    /// Number of files.
    pub files: usize,
    /// Bytes of the text of one file.
    pub file_text: usize,
    /// Bytes of the texts of all files.
    pub all_text: usize,
    /// Bytes of a file; a longer one is not read at all.
    pub read: u64,
}

impl ContextLimits {
    /// The limits where files of so many bytes are read.
    pub const fn reading(read: u64) -> Self {
        Self {
            files: 200,
            file_text: 64 << 10,
            all_text: 256 << 10,
            read,
        }
    }
}

/// One file as the model receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Relative to the root.
    pub path: String,
    /// The text, or its beginning with a notice.
    pub text: String,
}

impl ContextFile {
    /// The text between two lines that name the path. Their dashes are longer than any in the text, so that no file can
    /// fake its own end.
    pub fn render(&self) -> String {
        let mut fence = "---".to_owned();
        while self.text.contains(&fence) {
            fence.push('-');
        }
        let text = self.text.trim_end_matches('\n');
        format!(
            "{fence} {} {fence}\n{text}\n{fence} end of {} {fence}\n",
            self.path, self.path
        )
    }
}

/// The beginning of `text` in `room` bytes, cut at a line, with a notice if something is missing.
pub(super) fn head(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let safe = start(text, room);
    let cut = safe.get(..safe.floor_char_boundary(room)).unwrap_or_default();
    let cut = cut.rfind('\n').and_then(|end| cut.get(..=end)).unwrap_or(cut);
    format!(
        "{cut}[{} of {} bytes are not shown]\n",
        text.len().saturating_sub(cut.len()),
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::check_cut;

    #[test]
    fn no_cut_of_a_file_leaves_a_part_of_a_secret() {
        check_cut(1_000, |text| head(text, 1_000));
        assert_eq!(head("a\nbcd\n", 3), "a\n[4 of 6 bytes are not shown]\n");
    }
}

//! A file as the model receives it, and how much the model receives of files.

use crate::base::access::ResolvedPath;
use crate::base::secret::start;

/// Whether a place may be read; called for every file, including imports.
pub type MayRead<'a> = &'a dyn Fn(&ResolvedPath) -> bool;

/// The most files that a recipe or a prompt gives to the model.
pub(super) const MOST_FILES: usize = 200;
/// The most bytes of the text of one file.
pub(super) const MOST_FILE_TEXT: usize = 64 << 10;
/// The most bytes of the texts of all files.
pub(super) const MOST_TEXT: usize = 256 << 10;

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

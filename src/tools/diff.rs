//! The diff of one file, for people and models. (Git makes the patch of a run.)

use crate::base::call::FileDiff;
use crate::base::quote::counted;
use crate::base::secret::start;
use similar::{Algorithm, ChangeTag, TextDiff};
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// Texts above this many bytes are not included with their diff.
const WHOLE_TEXT: usize = 256 * 1024;
/// Upper limit in bytes for a diff; a longer one is cut at a line.
const DIFF_TEXT: usize = 256 * 1024;
/// Time limit for a minimal diff; after it, the diff becomes coarser.
const TIMEOUT: Duration = Duration::from_millis(300);
/// Context lines around a change.
const CONTEXT: usize = 3;
/// Upper limit in characters for a line that the model receives.
const SHOWN_LINE: usize = 400;

/// The change of one file. `original`: `None` for a new file. Both texts should use `\n` as line end.
pub fn file_diff(path: &str, original: Option<&str>, new: &str) -> FileDiff {
    let before = original.unwrap_or_default();
    let diff = line_diff(before, new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count() as u64;
    let mut unified = diff.unified_diff();
    let old_name = original.map_or_else(|| "/dev/null".to_owned(), |_| format!("a/{path}"));
    let text = unified
        .context_radius(CONTEXT)
        .header(&old_name, &format!("b/{path}"))
        .to_string();
    FileDiff {
        path: path.to_owned(),
        diff: cut(text),
        original: original.filter(|text| text.len() <= WHOLE_TEXT).map(str::to_owned),
        new: (new.len() <= WHOLE_TEXT).then(|| new.to_owned()),
        added: count(ChangeTag::Insert),
        removed: count(ChangeTag::Delete),
    }
}

/// The lines of `new` that changed, with two lines of context, each as `  12: text` or `+ 12: text`; at most `limit`
/// lines, with a note about the rest. Secrets are redacted in lines that are cut.
pub fn changed_lines(before: &str, new: &str, limit: usize) -> String {
    let diff = line_diff(before, new);
    let mut shown = Vec::new();
    let groups = diff.grouped_ops(2);
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            shown.push("  ...".to_owned());
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = shorten(change.value().trim_end_matches('\n'));
            match (change.tag(), change.old_index(), change.new_index()) {
                (ChangeTag::Delete, Some(number), _) => shown.push(format!("- {:4}: {line}", number + 1)),
                (ChangeTag::Insert, _, Some(number)) => shown.push(format!("+ {:4}: {line}", number + 1)),
                (_, _, Some(number)) => shown.push(format!("  {:4}: {line}", number + 1)),
                _ => {}
            }
        }
    }
    let rest = shown.len().saturating_sub(limit);
    shown.truncate(limit);
    if rest > 0 {
        shown.push(format!("  ({} of this change not shown)", counted(rest, "more line")));
    }
    shown.join("\n")
}

fn line_diff<'text>(before: &'text str, new: &'text str) -> TextDiff<'text, 'text, str> {
    TextDiff::configure()
        .algorithm(Algorithm::Histogram)
        .timeout(TIMEOUT)
        .diff_lines(before, new)
}

fn cut(mut diff: String) -> String {
    if diff.len() <= DIFF_TEXT {
        return diff;
    }
    let whole = diff.len();
    // In a line that is longer than the limit, the cut may fall within a secret.
    if let Cow::Owned(safe) = start(&diff, DIFF_TEXT) {
        diff = safe;
    }
    let end = diff.floor_char_boundary(DIFF_TEXT);
    let end = diff
        .get(..end)
        .and_then(|text| text.rfind('\n'))
        .map_or(end, |at| at + 1);
    diff.truncate(end);
    let _ = writeln!(diff, "[{} bytes of this diff left out]", whole.saturating_sub(end));
    diff
}

/// The line, or its beginning with a note. Redacts before cutting, because half a secret would not be found afterwards.
pub(crate) fn shorten(line: &str) -> String {
    if line.len() <= SHOWN_LINE {
        return line.to_owned();
    }
    let line = start(line, usize::MAX);
    if line.len() <= SHOWN_LINE {
        return line.into_owned();
    }
    let end = line.floor_char_boundary(SHOWN_LINE);
    format!(
        "{} [{} bytes more]",
        line.get(..end).unwrap_or_default(),
        line.len() - end
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::check_cut;

    #[test]
    fn a_change_counts_and_shows_its_lines() {
        let diff = file_diff("src/a.rs", Some("a\nb\nc\n"), "a\nB\nB2\nc\n");
        assert_eq!((diff.added, diff.removed), (2, 1));
        assert_eq!(
            diff.diff,
            "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"
        );
        assert_eq!(diff.original.as_deref(), Some("a\nb\nc\n"));
    }

    #[test]
    fn a_new_file_has_no_original() {
        let diff = file_diff("a", None, "x");
        assert_eq!(diff.original, None);
        assert_eq!(
            diff.diff,
            "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn great_texts_are_left_out_and_long_diffs_cut() {
        let big = "0123456789\n".repeat(30_000);
        let diff = file_diff("a", Some(""), &big);
        assert_eq!((diff.new, diff.added), (None, 30_000));
        assert!(diff.diff.len() < DIFF_TEXT + 100 && diff.diff.ends_with("left out]\n"));
    }

    #[test]
    fn quite_different_texts_take_bounded_time() {
        let before: String = (0..60_000_u64).map(|n| format!("{}\n", n * 7919 % 60_013)).collect();
        let after: String = (0..60_000_u64).map(|n| format!("{}\n", n * 104_729 % 60_013)).collect();
        let start = std::time::Instant::now();
        let diff = file_diff("a", Some(&before), &after);
        assert!(diff.added > 0 && start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn changed_lines_carry_numbers() {
        let shown = changed_lines("a\nb\nc\nd\ne\n", "a\nb\nC\nd\ne\n", 10);
        assert_eq!(
            shown,
            "     1: a\n     2: b\n-    3: c\n+    3: C\n     4: d\n     5: e"
        );
        let short = changed_lines("a\n", "b\n", 1);
        assert_eq!(short, "-    1: a\n  (1 more line of this change not shown)");
    }

    #[test]
    fn a_secret_in_a_long_line_is_redacted_before_the_line_is_cut() {
        check_cut(SHOWN_LINE, |line| {
            let shown = changed_lines("", line, 10);
            assert!(shown.ends_with("bytes more]"), "{shown}");
            shown
        });
    }
}

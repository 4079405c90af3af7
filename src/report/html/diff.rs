//! Renders unified diffs as coloured lines, limited in length. Only the first character of each line is interpreted.

use crate::report::text;
use maud::{Markup, html};

/// Limits of a patch on the page, in lines and bytes.
const LINES: usize = 4_000;
const BYTES: usize = 512 * 1024;

/// A diff of one file.
pub(super) fn lines(diff: &str, max_lines: usize) -> Markup {
    let clean = text::plain(diff);
    html! { pre.diff { @for line in clean.lines().take(max_lines) { span class=[class(line)] { (shown(line)) } } } }
}

/// The whole patch, or its beginning with a notice of what is omitted.
pub(super) fn patch(bytes: &[u8]) -> Markup {
    let text = String::from_utf8_lossy(bytes);
    let part = text::head(&text, BYTES);
    let all = text.lines().count();
    let shown = part.lines().count().min(LINES);
    let clean = text::plain(part);
    html! {
        details open[shown <= 400] {
            summary { "The patch, " (text::grouped(u64::try_from(all).unwrap_or(u64::MAX))) " lines" }
            pre.diff.patch { @for line in clean.lines().take(LINES) { span class=[patch_class(line)] { (self::shown(line)) } } }
            @if shown < all { p.soft { (all - shown) " more lines are in the patch file." } }
        }
    }
}

/// An empty line would have no height.
fn shown(line: &str) -> &str {
    if line.is_empty() { " " } else { text::head(line, 2_000) }
}

fn patch_class(line: &str) -> Option<&'static str> {
    if line.starts_with("diff --git ") {
        return Some("f");
    }
    class(line)
}

fn class(line: &str) -> Option<&'static str> {
    if line.starts_with("+++ ") || line.starts_with("--- ") {
        return None;
    }
    match line.as_bytes().first() {
        Some(b'+') => Some("a"),
        Some(b'-') => Some("d"),
        Some(b'@') => Some("h"),
        _ => None,
    }
}

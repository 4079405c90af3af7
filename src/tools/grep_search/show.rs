//! Renders the result of a search for the model and for people. Pure.

use super::Query;
use super::scan::{FileHits, Hits};
use crate::base::call::{Location, ToolOutput};
use crate::tools::results::SHOWN;
use crate::workspace::root::printable;
use std::fmt::Write;

/// Bytes reserved for the first and last lines.
const MARGIN: usize = 1_500;

/// Upper limit for the locations passed to outputs.
const MAX_LOCATIONS: usize = 100;

/// Renders the result.
pub fn show(query: &Query, hits: Hits) -> ToolOutput {
    let notes = notes(query, &hits);
    if hits.files.is_empty() {
        let hint = if query.walk.hidden || query.start.path.split('/').any(|name| name.starts_with('.')) {
            ""
        } else {
            " Names that begin with a dot were not searched (hidden: true searches them)."
        };
        return ToolOutput::text(
            format!("No matches found {}.{hint}{notes}", subject(query)),
            "no matches",
        );
    }
    let (text, count) = if query.names_only {
        names(query, &hits)
    } else {
        lines(query, &hits)
    };
    let found = if query.names_only {
        hits.files_matched
    } else {
        hits.matches
    };
    let what = if query.names_only {
        "file(s) with matches"
    } else {
        "match(es)"
    };
    let limited = if count < found {
        format!(" (the first {count} are shown; narrow the pattern, or raise total_max_matches)")
    } else {
        String::new()
    };
    let summary = format!("{found} {what}{}", if limited.is_empty() { "" } else { ", cut" });
    let text = format!("Found {found} {what} {}{limited}:\n{text}{notes}", subject(query));
    ToolOutput {
        locations: locations(&hits),
        ..ToolOutput::text(text, summary)
    }
}

fn subject(query: &Query) -> String {
    let filter = query
        .filter_asked
        .as_ref()
        .map(|filter| format!(" (filter: \"{filter}\")"))
        .unwrap_or_default();
    format!(
        "for pattern \"{}\" in path \"{}\"{filter}",
        query.asked,
        query.start.shown()
    )
}

fn notes(query: &Query, hits: &Hits) -> String {
    let mut notes = String::new();
    if hits.withheld > 0 {
        notes.push_str(&format!(
            "\n[{} file(s) were not searched: the policy withholds them]",
            hits.withheld
        ));
    }
    if hits.failed > 0 {
        notes.push_str(&format!("\n[{} file(s) or directories could not be read]", hits.failed));
    }
    if query.per_file.is_some() && !hits.files.is_empty() {
        notes.push_str("\n[max_matches_per_file may leave out lines]");
    }
    notes
}

fn names(query: &Query, hits: &Hits) -> (String, u64) {
    let mut text = String::new();
    let mut count = 0;
    for file in hits.files.iter().take(query.total) {
        if text.len() + file.path.len() > SHOWN - MARGIN {
            break;
        }
        if count > 0 {
            text.push('\n');
        }
        text.push_str(&printable(&file.path));
        count += 1;
    }
    (text, count)
}

fn lines(query: &Query, hits: &Hits) -> (String, u64) {
    let mut text = "---".to_owned();
    let mut count = 0;
    for file in &hits.files {
        let (part, matches, whole) = one_file(
            file,
            query.total as u64 - count,
            (SHOWN - MARGIN).saturating_sub(text.len()),
        );
        count += matches;
        if matches > 0 {
            text.push_str(&part);
        }
        if !whole || count >= query.total as u64 {
            break;
        }
    }
    (text, count)
}

/// The lines of one file with at most `most` matches in at most `room` bytes, the number of matches, and whether that
/// is all of them.
fn one_file(file: &FileHits, most: u64, room: usize) -> (String, u64, bool) {
    let mut text = format!("\nFile: {}\n", printable(&file.path));
    let mut count = 0;
    for line in &file.lines {
        if text.len() + line.text.len() + 30 > room || (line.matched && count == most) {
            return (text + "---", count, false);
        }
        let mark = if line.matched { ':' } else { '-' };
        // Writing to a `String` cannot fail.
        let _infallible = writeln!(text, "L{}{mark} {}", line.number, line.text);
        count += u64::from(line.matched);
    }
    (text + "---", count, count == file.matches)
}

fn locations(hits: &Hits) -> Vec<Location> {
    hits.files
        .iter()
        .take(MAX_LOCATIONS)
        .map(|file| Location {
            path: file.path.clone(),
            line: file.lines.iter().find(|line| line.matched).map(|line| line.number),
        })
        .collect()
}

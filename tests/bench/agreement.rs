//! How often the two parsers disagree on real shell text: whole scripts and their single lines, from the directories of
//! `OVERNIGHT_SCRIPTS` (joined by `:`). Prints counts by outcome; judges nothing else.

use overnight::policy::lexical_access::without_tree;
use overnight::policy::shell::{Grants, MAX_BYTES, read};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files looked at, so that a large tree ends.
const MOST_FILES: usize = 200_000;

fn outcome(text: &str) -> &'static str {
    if text.len() > MAX_BYTES {
        return "too long to be read";
    }
    match without_tree(|fs_view| read(text, "", fs_view, &Grants::default())) {
        Ok(_) => "both agree",
        Err(refusal) => match refusal.code.split(':').next().unwrap_or_default() {
            "parse_disagree" => "they disagree",
            "parse_error" => "one does not parse it",
            _ => "refused before they are compared",
        },
    }
}

/// Shell scripts below `dir`: by their first line, or by name where that says shell.
fn scripts(dir: &Path, found: &mut BTreeSet<Vec<u8>>, seen: &mut usize) {
    let mut dirs: Vec<PathBuf> = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() && *seen < MOST_FILES {
                *seen += 1;
                let named = entry.path().extension().is_some_and(|end| end == "sh" || end == "bash");
                let small = entry.metadata().is_ok_and(|data| data.len() < 1 << 20);
                let plain = entry.path().extension().is_none();
                if !small || !(named || plain) {
                    continue;
                }
                let Ok(bytes) = std::fs::read(entry.path()) else {
                    continue;
                };
                let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let first = String::from_utf8_lossy(first);
                let shell = first.starts_with("#!")
                    && ["/sh", "/bash", " sh", " bash", "/dash"]
                        .iter()
                        .any(|end| first.trim_end().ends_with(end));
                if named || shell {
                    found.insert(bytes);
                }
            }
        }
    }
}

fn main() {
    let Some(dirs) = std::env::var_os("OVERNIGHT_SCRIPTS") else {
        return;
    };
    let (mut found, mut seen) = (BTreeSet::new(), 0);
    for dir in std::env::split_paths(&dirs) {
        scripts(&dir, &mut found, &mut seen);
    }
    let texts: Vec<&str> = found
        .iter()
        .filter_map(|bytes| std::str::from_utf8(bytes).ok())
        .collect();
    let lines: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.lines())
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    for (what, all) in [("scripts", texts.clone()), ("lines", lines.into_iter().collect())] {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &all {
            let outcome = outcome(text);
            if outcome == "they disagree" && std::env::var_os("OVERNIGHT_SHOW").is_some() {
                let _ = writeln!(std::io::stdout(), "{text:?}");
            }
            *counts.entry(outcome).or_default() += 1;
        }
        let _ = writeln!(std::io::stdout(), "{} different {what}: {counts:?}", all.len());
    }
}

//! Determines the places that a word in the position of a file name may refer to.

use super::scope::{CommandWalk, ShellState};
use super::{FileUse, ShellWord, WordKind};
use crate::base::access::{PathStatus, ResolvedPath};

/// Device files that any command may read and write.
const FREE: [&str; 6] = [
    "/dev/null",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/zero",
    "-",
];
/// Common names of secrets: a pattern that would match one counts as naming it.
const SECRETS: [&str; 14] = [
    ".env",
    ".env.local",
    ".env.production",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".ssh",
    ".aws",
    ".gnupg",
    "id_rsa",
    "id_ed25519",
    "key.pem",
    "server.key",
];

/// The places that a word refers to; `None` if they are known only when the command runs.
pub fn uses(walk: &CommandWalk<'_>, state: &ShellState, word: &ShellWord) -> Option<Vec<FileUse>> {
    match word.kind {
        WordKind::Known => of_text(walk, state, &word.text),
        WordKind::Glob => state.dirs.known().map(|_| of_pattern(walk, state, &word.text)),
        WordKind::Unknown => None,
    }
}

/// The places of an exact path, from each directory that the command may be in. Empty for standard streams. `None` for
/// a relative path in an unknown directory.
pub fn of_text(walk: &CommandWalk<'_>, state: &ShellState, text: &str) -> Option<Vec<FileUse>> {
    if text.is_empty()
        || FREE.contains(&text)
        || text
            .strip_prefix("/dev/fd/")
            .is_some_and(|rest| rest.parse::<u8>().is_ok())
    {
        return Some(Vec::new());
    }
    if text.starts_with('~') {
        return Some(vec![outside(text)]);
    }
    let absolute = [String::new()];
    let dirs = match state.dirs.known() {
        Some(dirs) => dirs,
        None if text.starts_with('/') => &absolute,
        None => return None,
    };
    Some(from_dirs(walk, dirs, text))
}

/// The places of a path in a revision of git (`HEAD:src/a`, `:src/a`, `:0:src/a`): git looks it up from the top of its
/// repository, unless it begins with `./` or `../`. `None` in an unknown directory; without a colon, those of the text itself.
pub fn of_revision(walk: &CommandWalk<'_>, state: &ShellState, text: &str) -> Option<Vec<FileUse>> {
    let Some(path) = path_of_revision(text) else {
        return of_text(walk, state, text);
    };
    if path.starts_with("./") || path.starts_with("../") || path.starts_with('/') || path.starts_with('~') {
        return of_text(walk, state, path);
    }
    let dirs = state.dirs.known()?;
    let mut tops: Vec<String> = dirs.iter().map(|dir| repository_of(walk, dir)).collect();
    tops.dedup();
    let path = if path.is_empty() { "." } else { path };
    Some(from_dirs(walk, &tops, path))
}

/// The ends of a range of revisions (`a..b`, `a...b`); one part if the text is none. Two dots between slashes belong to a path.
pub fn range_of(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(found) = text.get(from..).and_then(|rest| rest.find("..")) {
        let at = from + found;
        let before = text.get(..at).unwrap_or_default();
        let rest = text.get(at + 2..).unwrap_or_default();
        let is_component =
            (before.is_empty() || before.ends_with(['/', ':'])) && (rest.is_empty() || rest.starts_with('/'));
        from = at + 2;
        if !is_component {
            parts.push(text.get(start..at).unwrap_or_default());
            from += usize::from(rest.starts_with('.'));
            start = from;
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// What follows the colon that ends a revision; colons within braces belong to it (`HEAD@{12:00}:src/a`).
fn path_of_revision(text: &str) -> Option<&str> {
    if let Some(path) = text.strip_prefix(':') {
        let staged = path
            .split_once(':')
            .filter(|(stage, _)| ["0", "1", "2", "3"].contains(stage));
        return Some(staged.map_or(path, |(_, path)| path));
    }
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return text.get(at + 1..),
            _ => {}
        }
    }
    None
}

/// The directory of the tree whose repository git uses in `dir`: the nearest one with a `.git`, otherwise the workspace.
fn repository_of(walk: &CommandWalk<'_>, dir: &str) -> String {
    let mut here = dir;
    while !here.is_empty() && !here.starts_with('/') {
        if (walk.fs_view.locate)(&join(here, ".git")).found != PathStatus::Nothing {
            return here.to_owned();
        }
        here = here.rsplit_once('/').map_or("", |(above, _)| above);
    }
    String::new()
}

/// The places of a path from each of these directories.
fn from_dirs(walk: &CommandWalk<'_>, dirs: &[String], text: &str) -> Vec<FileUse> {
    let mut found: Vec<FileUse> = Vec::new();
    for dir in dirs {
        let path = join(dir, text);
        let place = ResolvedPath {
            asked: text.to_owned(),
            ..(walk.fs_view.locate)(&path)
        };
        let next = FileUse {
            link: link_at(walk, &path, &place),
            place: Some(place),
            asked: text.to_owned(),
            opaque: false,
            in_place: false,
            below: None,
        };
        if !found.contains(&next) {
            found.push(next);
        }
    }
    found
}

/// The pattern's own place, what it matches now, and the secret names that it would match.
fn of_pattern(walk: &CommandWalk<'_>, state: &ShellState, pattern: &str) -> Vec<FileUse> {
    let mut found = of_text(walk, state, pattern).unwrap_or_default();
    let (parent, last) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let pointed = last.starts_with('.') || last.contains(['[', '?']);
    let reaches = |name: &&&str| pointed && (!name.starts_with('.') || last.starts_with('.')) && matches(last, name);
    for name in SECRETS.iter().filter(reaches) {
        found.extend(of_text(walk, state, &join(parent, name)).unwrap_or_default());
    }
    for dir in state
        .dirs
        .known()
        .unwrap_or_default()
        .iter()
        .filter(|_| !pattern.starts_with(['/', '~']))
    {
        for name in (walk.fs_view.expand)(&join(dir, pattern)) {
            let place = (walk.fs_view.locate)(&name);
            found.push(FileUse {
                asked: pattern.to_owned(),
                link: link_at(walk, &name, &place),
                place: Some(place),
                opaque: false,
                in_place: false,
                below: None,
            });
        }
    }
    found
}

/// The symbolic link at a path, relative to the workspace or absolute, that leads to `place`. `None` if the entry at the
/// path is the place itself, or the path ends so that the kernel follows a link.
fn link_at(walk: &CommandWalk<'_>, path: &str, place: &ResolvedPath) -> Option<ResolvedPath> {
    // The common case: there are no links in the path.
    if place.inside && place.path == path {
        return None;
    }
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(name, "" | "." | "..") {
        return None;
    }
    let dir = match dir {
        "" if path.starts_with('/') => "/",
        dir => dir,
    };
    let dir = (walk.fs_view.locate)(dir);
    let entry = match dir.path.trim_end_matches('/') {
        "" if dir.inside => name.to_owned(),
        above => format!("{above}/{name}"),
    };
    let is_same = place.inside == dir.inside && place.path == entry;
    (!is_same).then(|| ResolvedPath {
        asked: place.asked.clone(),
        path: entry,
        inside: dir.inside,
        found: PathStatus::File,
    })
}

/// A place in a home directory, which counts as outside wherever it is.
fn outside(text: &str) -> FileUse {
    FileUse {
        place: Some(ResolvedPath {
            asked: text.to_owned(),
            path: text.to_owned(),
            inside: false,
            found: PathStatus::Nothing,
        }),
        link: None,
        asked: text.to_owned(),
        opaque: false,
        in_place: false,
        below: None,
    }
}

/// The path `text` relative to `dir`.
pub fn join(dir: &str, text: &str) -> String {
    if text.starts_with('/') || dir.is_empty() {
        text.to_owned()
    } else {
        format!("{dir}/{text}")
    }
}

/// The bare name of a program that is written with its path in `/usr/bin` or `/bin`.
pub fn system_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix("/usr/bin/").or_else(|| text.strip_prefix("/bin/"))?;
    (!name.contains('/')).then_some(name)
}

/// Whether a shell pattern for one name matches it; a bracket expression counts as "any character", which matches more.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = simplify(pattern);
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut star, mut index) = (0, None, 0);
    while index < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, index));
                at += 1;
            }
            Some(&next) if next == '?' || next == name[index] => {
                at += 1;
                index += 1;
            }
            _ => match star {
                Some((before, from)) => {
                    at = before + 1;
                    index = from + 1;
                    star = Some((before, index));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&next| next == '*')
}

/// Replaces each `[…]` with `?`.
fn simplify(pattern: &str) -> Vec<char> {
    let mut simple = Vec::new();
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let bracket = (next == '[')
            .then(|| rest.get(2..).and_then(|tail| tail.find(']')))
            .flatten();
        if let Some(end) = bracket {
            simple.push('?');
            rest = &rest[2 + end + 1..];
        } else {
            simple.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    simple
}

/// Adds files, without duplicates.
pub fn add(all: &mut Vec<FileUse>, more: Vec<FileUse>) {
    for next in more {
        if !all.contains(&next) {
            all.push(next);
        }
    }
}

//! Finds `@path` references in prompts and reads the files that they refer to. Does not change the prompt's own text.

use super::collect::{FileQuery, Item};
use super::content::{FileContent, MAX_MEDIA, classify, media};
use super::context_file::{ContextFile, MOST_FILE_TEXT, MOST_FILES, MOST_TEXT, MayRead, head};
use super::pattern::WorkspacePattern;
use super::root::{UNASKED, Workspace};
use super::walk::Filter;
use crate::base::access::PathStatus;
use crate::base::content::Media;
use crate::base::message::Part;

/// The most bytes of a file, which may also be media; a longer one is not read at all.
const MOST_READ: u64 = 20 << 20;

/// Upper limit for the references in one prompt.
const MAX_REFS: usize = 100;

/// One reference in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Candidates for the path, the longest first: punctuation at the end may or may not belong to it.
    pub paths: Vec<String>,
    quoted: bool,
}

impl Reference {
    /// The shortest candidate.
    pub fn path(&self) -> &str {
        self.paths.last().map_or("", String::as_str)
    }

    /// Whether it is almost certainly a path: user names and package names have neither `/` nor a file extension.
    fn looks_like_path(&self) -> bool {
        let path = self.path();
        // A decorator with arguments is code.
        if path.contains(['(', '=']) {
            return false;
        }
        self.quoted
            || path.contains(['/', '*'])
            || path
                .rsplit_once('.')
                .is_some_and(|(name, end)| !name.is_empty() && !end.is_empty())
    }
}

/// The references in a text: `@path`, `@"path with blanks"`, `@path\ with\ blanks`. `\@` and `@@` are no references,
/// nor is an `@` within a word (an e-mail address). Returns at most one more than [`MAX_REFS`], so that the caller
/// notices that there are too many.
pub fn find(text: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut before = ' ';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let opens = before.is_whitespace() || "([{<\"',;:".contains(before);
        if c == '@' && opens && found.len() <= MAX_REFS {
            let (reference, length) = read(after);
            if let Some(reference) = reference {
                found.push(reference);
            }
            rest = after.get(length..).unwrap_or_default();
            before = 'x';
            continue;
        }
        before = c;
        rest = after;
    }
    found
}

/// Parses the path at the start of `text`; also returns its length in bytes.
fn read(text: &str) -> (Option<Reference>, usize) {
    let mut chars = text.char_indices();
    if let Some(quote) = text.chars().next().filter(|c| *c == '"' || *c == '\'') {
        let body = text.get(1..).unwrap_or_default();
        let line = body.split('\n').next().unwrap_or_default();
        return match line.find(quote) {
            Some(end) if end > 0 && !line.get(..end).unwrap_or_default().contains(char::is_control) => {
                let path = line.get(..end).unwrap_or_default().to_owned();
                let reference = Reference {
                    paths: vec![path],
                    quoted: true,
                };
                (Some(reference), end + 2)
            }
            _ => (None, 0),
        };
    }
    let mut path = String::new();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => path.push(escaped),
                None => path.push('\\'),
            },
            c if c.is_whitespace() || "\"'`<>|".contains(c) => {
                end = at;
                break;
            }
            c => path.push(c),
        }
    }
    let mut paths = vec![path.clone()];
    while let Some(shorter) = path.strip_suffix(['.', ',', ';', ':', '!', '?', ')', ']', '}']) {
        path = shorter.to_owned();
        paths.push(path.clone());
    }
    if path.is_empty() || path.starts_with('@') || path.contains(char::is_control) {
        return (None, end);
    }
    (Some(Reference { paths, quoted: false }), end)
}

/// The result of resolving the references of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {
    /// Parts to append to the prompt: one part with all texts, then the media.
    pub parts: Vec<Part>,
    /// The files, relative to the root.
    pub files: Vec<String>,
    /// References that look like paths but do not exist, must not be read or did not fit.
    pub warnings: Vec<String>,
}

/// Reads the files that a prompt refers to: paths, directories (all files in them that are not ignored) and globs.
/// `may_read` is called for every file. A file that a search must not show is not read even if it is named, because a
/// prompt may contain untrusted text.
pub fn attach(workspace: &Workspace, prompt: &str, may_read: MayRead<'_>) -> Attached {
    let mut out = Attached::default();
    let mut patterns = Vec::new();
    let mut references = find(prompt);
    if references.len() > MAX_REFS {
        references.truncate(MAX_REFS);
        out.warnings
            .push(format!("only the first {MAX_REFS} references are read"));
    }
    for reference in references {
        match resolve(workspace, &reference) {
            Some(pattern) => patterns.push(pattern),
            None if reference.looks_like_path() => {
                out.warnings
                    .push(format!("`@{}` is not in the workspace", reference.path()));
            }
            None => {}
        }
    }
    if patterns.is_empty() {
        return out;
    }
    let collection = workspace.collect(
        &FileQuery {
            include: &patterns,
            exclude: &[],
            filter: Filter::all(),
            tool: UNASKED,
            cap: MOST_FILES,
        },
        &|| false,
    );
    for missing in &collection.missing {
        out.warnings.push(format!("`@{missing}` matches no file"));
    }
    if collection.cut {
        out.warnings.push(format!("only {MOST_FILES} files are attached"));
    }
    let mut blocks = Blocks::default();
    for item in &collection.files {
        if workspace.may_search(UNASKED, &item.place.path) && may_read(&item.place) {
            blocks.add(workspace, item, &mut out);
        } else {
            out.warnings
                .push(format!("`@{}`: the policy does not allow reading it", item.place.path));
        }
    }
    blocks.finish(&mut out);
    out
}

fn resolve(workspace: &Workspace, reference: &Reference) -> Option<WorkspacePattern> {
    let there = |path: &&String| {
        let place = workspace.locate(path);
        place.inside && !matches!(place.found, PathStatus::Nothing | PathStatus::Special)
    };
    if let Some(path) = reference.paths.iter().find(there) {
        return WorkspacePattern::parse(workspace, "", path, true).ok();
    }
    let glob = reference.paths.iter().find(|path| path.contains(['*', '?', '{']))?;
    WorkspacePattern::parse(workspace, "", glob, true)
        .ok()
        .filter(|pattern| pattern.start.inside)
}

#[derive(Default)]
struct Blocks {
    text: String,
    media: Vec<Media>,
    media_bytes: u64,
}

impl Blocks {
    fn add(&mut self, workspace: &Workspace, item: &Item, out: &mut Attached) {
        let path = &item.place.path;
        let bytes = match workspace.read(&item.place, MOST_READ) {
            Ok(bytes) => bytes,
            Err(error) => return out.warnings.push(format!("`@{path}`: {error}")),
        };
        let room = MOST_FILE_TEXT.min(MOST_TEXT.saturating_sub(self.text.len()));
        match classify(path, &bytes) {
            FileContent::Text(_) if room < 1_000 => {
                return out.warnings.push(format!(
                    "`@{path}`: not attached, because the limit is {MOST_TEXT} bytes"
                ));
            }
            FileContent::Text(text) => {
                workspace.note_read(path, &bytes);
                let block = ContextFile {
                    path: path.clone(),
                    text: head(text.as_str(), room),
                };
                self.text.push_str(&block.render());
                self.text.push('\n');
            }
            FileContent::Media(mime) if item.named && self.media_bytes + bytes.len() as u64 <= MAX_MEDIA => {
                self.media_bytes += bytes.len() as u64;
                self.media.push(media(path, mime, &bytes));
            }
            FileContent::Media(mime) if item.named => {
                return out
                    .warnings
                    .push(format!("`@{path}`: {mime} over {MAX_MEDIA} bytes is not attached"));
            }
            FileContent::Binary(_) if item.named => {
                return out.warnings.push(format!("`@{path}`: a binary file"));
            }
            // In directories and glob matches only text files are wanted.
            FileContent::Media(_) | FileContent::Binary(_) => return,
        }
        out.files.push(path.clone());
    }

    fn finish(self, out: &mut Attached) {
        if !self.text.is_empty() {
            out.parts.push(Part::text(format!(
                "Content of the files referred to:\n\n{}",
                self.text
            )));
        }
        out.parts.extend(self.media.into_iter().map(Part::Media));
    }
}

#[cfg(test)]
mod tests;

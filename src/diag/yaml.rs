//! Parses a strict subset of YAML into a tree with positions.
//!
//! Recipes and policies decide about security, so the language is restricted: no anchors, aliases, merge keys, tags or
//! directives; one document; keys are strings and must be unique. YAML 1.1 booleans (`yes`, `off`) are strings.

use super::diagnostic::Diagnostic;
use super::source::{SourceFiles, SourceId, Span};
use super::tree::{MapEntry, Scalar, Shape, YamlNode};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span as Stretch, StrInput};
use std::collections::HashMap;

/// Size limit of a file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Nesting limit of lists and maps.
const MAX_DEPTH: usize = 32;
/// Limit of keys and values in one file.
const MAX_NODES: usize = 100_000;

/// What could be read of a file.
#[derive(Debug)]
pub struct ParsedYaml {
    /// The tree; null for an empty file. If the file is [`cut`](Self::cut), only the part that could be read.
    pub root: YamlNode,
    /// Every independent problem: all duplicate keys, anchors and tags; the first syntax error.
    pub problems: Vec<Diagnostic>,
    /// Whether the rest of the file could not be read, so that keys may be missing in the tree.
    pub cut: bool,
}

/// The tree of a file; an empty file gives null.
///
/// # Errors
/// The problems of [`read`].
pub fn parse(files: &SourceFiles, file: SourceId) -> Result<YamlNode, Vec<Diagnostic>> {
    let reading = read(files, file);
    match reading.problems.is_empty() {
        true => Ok(reading.root),
        false => Err(reading.problems),
    }
}

/// As much of the tree of a file as can be read, and its problems.
pub fn read(files: &SourceFiles, file: SourceId) -> ParsedYaml {
    let text = files.text(file);
    let start = Span { file, start: 0, end: 0 };
    let nothing = YamlNode {
        span: start,
        shape: Shape::Scalar(Scalar {
            text: String::new(),
            plain: true,
        }),
    };
    if text.len() > MAX_BYTES {
        let problem = Diagnostic::error("file-too-large", start, format!("the file has {} bytes", text.len()));
        return ParsedYaml {
            root: nothing,
            problems: vec![problem.help(format!("at most {MAX_BYTES} bytes are read"))],
            cut: true,
        };
    }
    let mut builder = Builder {
        file,
        text,
        open: Vec::new(),
        root: None,
        documents: 0,
        nodes: 0,
        lost: false,
        problems: Vec::new(),
    };
    let mut parser = Parser::new_from_str_with_options(text, options());
    let whole = builder.read(&mut parser);
    while !builder.open.is_empty() {
        builder.close(Span {
            file,
            start: text.len(),
            end: text.len(),
        });
    }
    ParsedYaml {
        root: builder.root.unwrap_or(nothing),
        problems: builder.problems,
        cut: !whole,
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.disallow_directives = true;
    options.emit_unresolved_aliases = true;
    options.emit_anchor_events = true;
    options.set_emit_comments(false);
    options
}

const KEY_HELP: &str = "keys are plain words";
const TEMPLATE_HELP: &str =
    "quote a text with a template, as in `\"{{ name }}\"`, or write it on the lines below a `|`";

/// The line that the byte at this place belongs to.
fn line_at(text: &str, at: usize) -> &str {
    let start = text
        .get(..at)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |end| end + 1);
    text.get(start..)
        .and_then(|rest| rest.lines().next())
        .unwrap_or_default()
}

/// Keys that begin a line in the files of this program.
const FIRST_KEYS: [&str; 24] = [
    "version",
    "name",
    "description",
    "steps",
    "id",
    "prompt",
    "run",
    "when",
    "checks",
    "model",
    "policy",
    "expect",
    "rules",
    "allow",
    "deny",
    "suspend",
    "paths",
    "commands",
    "extends",
    "recipe",
    "targets",
    "repo",
    "text",
    "cases",
];

/// The beginning of a text as it was meant, if it is a key and a value without a space between: `id: a` of `id:a`.
pub(super) fn spaced(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    let (key, value) = word.split_once(':')?;
    let is_meant = FIRST_KEYS.contains(&key) && !value.is_empty() && !value.starts_with(':');
    is_meant.then(|| format!("{key}: {value}"))
}

/// What to write for [`spaced`].
pub(super) fn space_help(meant: &str) -> String {
    format!("write a space after the colon: `{meant}`")
}

/// What a line says after its indentation and the dashes of lists.
fn item(line: &str) -> &str {
    line.trim_start_matches([' ', '-'])
}

/// The last line before this byte's line that is not blank, with its place.
fn line_before(text: &str, at: usize) -> Option<(usize, &str)> {
    let end = text.get(..at)?.rfind('\n')?;
    let above = text.get(..end)?.trim_end();
    let start = above.rfind('\n').map_or(0, |end| end + 1);
    above.get(start..).map(|line| (start, line))
}

/// Whether a line ends with the sign of a text on the lines below it.
fn begins_block(line: &str) -> bool {
    let sign = line.trim_end().rsplit(' ').next().unwrap_or_default();
    matches!(sign, "|" | "|-" | "|+" | ">" | ">-" | ">+")
}

/// The place of the double quote above that was not closed: the last one in the nearest line with an odd number of them.
fn open_quote(text: &str, at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let (start, line) = line_before(text, at)?;
        if line.matches('"').count() % 2 == 1 {
            return line.rfind('"').map(|column| start + column);
        }
        at = start;
    }
}

/// Where a syntax error is and what to do about it, by the parser's message and the place where it was found.
fn syntax_help(message: &str, text: &str, at: usize) -> (usize, String) {
    let line = line_at(text, at);
    let here = |help: &str| (at, help.to_owned());
    let above = line_before(text, at);
    if line.contains('\u{a0}') {
        return here("the line has a no-break space (U+00A0): write a plain one");
    }
    if message.contains("tab") && line.trim_start_matches(' ').starts_with('\t') {
        return here("indent with spaces, not with tabs");
    }
    if message.contains("mapping values are not allowed") {
        // A key without its space is read as the first line of a text.
        let joined = above.and_then(|(start, line)| Some((start + line.len() - item(line).len(), spaced(item(line))?)));
        return match joined {
            Some((place, meant)) => (place, space_help(&meant)),
            None => here("quote a text that contains `: `, or write it on the lines below a `|`"),
        };
    }
    if message.contains("simple key expected") {
        if let Some(meant) = spaced(item(line)) {
            return (at, space_help(&meant));
        }
        if above.is_some_and(|(_, line)| begins_block(line)) {
            return here("indent the text below `|` or `>` more than its key");
        }
    }
    if message.contains("unexpected character") {
        let begins = text.get(at..).and_then(|rest| rest.chars().next());
        if let Some(sign) = begins.filter(|sign| "@`%".contains(*sign)) {
            return (at, format!("quote a text that begins with `{sign}`"));
        }
    }
    if message.contains("after single-quoted") {
        return here("write `''` for a quote inside single quotes, or put the whole text in double quotes");
    }
    if message.contains("after double-quoted") {
        return here("write `\\\"` for a quote inside double quotes, or put the whole text in single quotes");
    }
    if message.contains("multiline quoted scalar")
        && let Some(place) = open_quote(text, at)
    {
        return (place, "close this quote".to_owned());
    }
    if line.contains("{{") {
        return here(TEMPLATE_HELP);
    }
    here("check the indentation, quotes and brackets here and just before")
}

/// A list or map that is still open.
enum Open {
    List(Span, Vec<YamlNode>),
    Map {
        span: Span,
        entries: Vec<MapEntry>,
        /// Where each key was first written.
        keys: HashMap<String, Span>,
        /// A key whose value has not been read. `None` when the key itself was refused.
        key: Option<(Option<String>, Span)>,
    },
}

struct Builder<'t> {
    file: SourceId,
    text: &'t str,
    open: Vec<Open>,
    root: Option<YamlNode>,
    documents: usize,
    nodes: usize,
    /// Set when the rest cannot be interpreted any more.
    lost: bool,
    problems: Vec<Diagnostic>,
}

impl Builder<'_> {
    fn span(&self, stretch: Stretch) -> Span {
        let range = stretch.byte_range().unwrap_or(0..0);
        Span {
            file: self.file,
            start: range.start,
            end: range.end,
        }
    }

    /// Reads to the end of the file; `false` if something makes the rest unreadable.
    fn read<'a>(&mut self, parser: &mut Parser<'a, StrInput<'a>>) -> bool {
        while let Some(next) = parser.next_event() {
            let (event, stretch) = match next {
                Ok(next) => next,
                Err(error) => {
                    self.syntax(&error);
                    return false;
                }
            };
            let span = self.span(stretch);
            self.refuse_properties(&event, stretch, span);
            match event {
                Event::DocumentStart(..) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let problem = Diagnostic::error("yaml-documents", span, "a second document begins here");
                        self.problems.push(problem.help("write one document per file"));
                        return false;
                    }
                }
                Event::Scalar(text, style, ..) => self.scalar(text.into_owned(), style, span),
                Event::Alias(_) | Event::UnresolvedAlias(_) => {
                    self.alias(span);
                    self.scalar(String::new(), ScalarStyle::DoubleQuoted, span);
                }
                Event::SequenceStart(..) => self.begin(Open::List(span, Vec::new())),
                Event::MappingStart(..) => self.begin(Open::Map {
                    span,
                    entries: Vec::new(),
                    keys: HashMap::new(),
                    key: None,
                }),
                Event::SequenceEnd | Event::MappingEnd => self.close(span),
                _ => {}
            }
            if self.lost {
                return false;
            }
            if self.open.len() > MAX_DEPTH || self.nodes > MAX_NODES {
                let problem = Diagnostic::error(
                    "yaml-too-deep",
                    span,
                    "the file is nested too deeply or has too many values",
                );
                self.problems
                    .push(problem.help(format!("at most {MAX_DEPTH} levels and {MAX_NODES} values")));
                return false;
            }
        }
        true
    }

    /// Refuses an alias. What is more than a name is a pattern without quotation marks.
    fn alias(&mut self, span: Span) {
        let rest = self.text.get(span.start..).unwrap_or_default();
        let ends = |one: char| one.is_whitespace() || ",]}".contains(one);
        let word = rest.split(ends).next().unwrap_or_default();
        let is_name = |one: char| one.is_alphanumeric() || one == '-' || one == '_';
        let is_pattern = word.strip_prefix('*').is_some_and(|name| !name.chars().all(is_name));
        let problem = match is_pattern {
            true => Diagnostic::error("yaml-alias", span, "a text that begins with `*` is read as an alias").help(
                match word.contains('{') {
                    true => "quote it, as in `\"*.py\"`".to_owned(),
                    false => format!("quote it: `\"{word}\"`"),
                },
            ),
            false => {
                Diagnostic::error("yaml-alias", span, "an alias (`*name`) is not allowed").help("write the value out")
            }
        };
        self.problems.push(problem);
    }

    fn syntax(&mut self, error: &serde_saphyr::granit_parser::ScanError) {
        let found = error.marker().byte_offset().unwrap_or(0);
        let (at, help) = syntax_help(&error.info(), self.text, found);
        let span = Span {
            file: self.file,
            start: at,
            end: at,
        };
        let problem = Diagnostic::error("yaml-syntax", span, error.info());
        self.problems.push(problem.help(help));
    }

    fn refuse_properties(&mut self, event: &Event<'_>, stretch: Stretch, span: Span) {
        if matches!(event, Event::Anchor(..)) {
            let problem = Diagnostic::error("yaml-anchor", span, "an anchor (`&name`) is not allowed");
            self.problems
                .push(problem.help("write the value out where it is needed"));
        }
        if event.tag().is_some() {
            let place = stretch.tag_span().map_or(span, |tag| self.span(tag));
            let problem = Diagnostic::error("yaml-tag", place, "a tag (`!name`) is not allowed");
            self.problems
                .push(problem.help("remove the tag; quote a value that must be text"));
        }
    }

    fn begin(&mut self, open: Open) {
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            let (Open::List(span, _) | Open::Map { span, .. }) = &open;
            let before = self.text.get(..span.start).unwrap_or_default();
            let is_template =
                before.ends_with('{') && self.text.get(span.start..).is_some_and(|rest| rest.starts_with('{'));
            let help = if is_template { TEMPLATE_HELP } else { KEY_HELP };
            self.refused_key(*span, "a list or map cannot be a key", help);
            self.lost = true;
        }
        self.nodes += 1;
        self.open.push(open);
    }

    fn close(&mut self, end: Span) {
        let node = match self.open.pop() {
            Some(Open::List(span, items)) => YamlNode {
                span: Span { end: end.end, ..span },
                shape: Shape::List(items),
            },
            Some(Open::Map { span, entries, .. }) => YamlNode {
                span: Span { end: end.end, ..span },
                shape: Shape::Map(entries),
            },
            None => return,
        };
        self.value(node);
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, span: Span) {
        self.nodes += 1;
        let plain = style == ScalarStyle::Plain;
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return self.key(text, plain, span);
        }
        self.value(YamlNode {
            span,
            shape: Shape::Scalar(Scalar { text, plain }),
        });
    }

    fn key(&mut self, text: String, plain: bool, span: Span) {
        if plain && text == "<<" {
            return self.refused_key(span, "a merge key (`<<`) is not allowed", KEY_HELP);
        }
        if plain && text.is_empty() {
            return self.refused_key(span, "an empty key", KEY_HELP);
        }
        let Some(Open::Map { keys, key, .. }) = self.open.last_mut() else {
            return;
        };
        if let Some(first) = keys.get(&text) {
            let problem = Diagnostic::error("duplicate-key", span, format!("`{text}` is written twice"));
            self.problems
                .push(problem.label(*first, "first written here").help("keep one of the two"));
            *key = Some((None, span));
        } else {
            keys.insert(text.clone(), span);
            *key = Some((Some(text), span));
        }
    }

    /// The value of a refused key is still read, so that further problems are found.
    fn refused_key(&mut self, span: Span, why: &str, help: &str) {
        self.problems.push(Diagnostic::error("yaml-key", span, why).help(help));
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some((None, span));
        }
    }

    fn value(&mut self, node: YamlNode) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map { entries, key, .. }) => {
                if let Some((Some(name), key_span)) = key.take() {
                    entries.push(MapEntry {
                        key: name,
                        key_span,
                        value: node,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

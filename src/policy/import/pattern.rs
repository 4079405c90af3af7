//! Turns the regular expressions of Gemini CLI's policies into what rules of `overnight` can say: words of commands,
//! paths, and globs on arguments.
//!
//! An expression is first expanded into a bounded list of alternatives, each a sequence of [`Piece`]s. A rule that
//! allows needs a part of what the expression matches, one that denies needs at least all of it; so every function here
//! says in which direction it is exact, and returns `None` where it cannot be.

use crate::policy::shell::parse_prefix;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Longest expression; Gemini CLI refuses longer ones.
const MAX_PATTERN: usize = 2_048;
/// Most alternatives that an expression may be expanded into.
const MAX_ALTERNATIVES: usize = 64;
/// Deepest nesting of groups.
const MAX_NESTING: u32 = 50;
/// Most characters of a class that are listed one by one.
const MAX_SET: usize = 8;

/// One part of an alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// One of a few characters.
    Set(Vec<char>),
    /// Any text inside a JSON string.
    Anything,
    /// Any text without `/`.
    Segment,
    /// White space; `true` if there is at least one.
    Blank(bool),
    /// A word boundary, which matches no characters.
    Border,
    /// The start or end of the whole JSON text, which no argument reaches.
    Edge,
    /// Some other text.
    Other,
}

type Alternative = Vec<Piece>;

/// An expression, expanded into alternatives.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Alternative>);

/// A condition on one argument, from an expression that names the argument.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    pub key: String,
    pub value: Value,
}

/// Alternatives for a text, matched from its start.
#[derive(Clone, Debug)]
pub(super) struct Value {
    alternatives: Vec<ValueAlternative>,
}

#[derive(Clone, Debug)]
struct ValueAlternative {
    pieces: Alternative,
    /// Whether the text ends where the pieces end.
    closed: bool,
    /// Whether the expression says more about what follows the text.
    more: bool,
}

impl Pattern {
    /// `None`: the expression is too long or cannot be read (JavaScript's look-around, for example).
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_PATTERN {
            return None;
        }
        if !is_common(text) {
            return None;
        }
        // JavaScript's way to write the character that encloses each argument.
        let text = text.replace("\\0", "\\x00");
        let hir = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(&text).ok()?;
        spread(&hir).map(Pattern)
    }

    /// The expression as a condition on the values of arguments that it names, `"KEY":"…`. `None` if an alternative
    /// names none.
    pub fn keyed(&self) -> Option<Vec<Keyed>> {
        self.0.iter().map(keyed).collect()
    }

    /// The expression as one that begins at the start of a value.
    pub fn value(&self) -> Value {
        Value {
            alternatives: self.0.iter().map(|alternative| value(alternative)).collect(),
        }
    }

    /// Globs of which one fits some argument whenever the expression matches. `None` if it may match between arguments.
    pub fn anywhere(&self, keys: &[&str]) -> Option<Vec<String>> {
        let mut globs = Vec::new();
        for alternative in &self.0 {
            let texts = alternative.iter().filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                _ => None,
            });
            let longest = texts.max_by_key(|text| text.len())?;
            let structure = ['"', '\\', '{', '}', ',', ':', '\0', '[', ']'];
            let digits = longest
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | 'e'));
            let word = ["true", "false", "null"]
                .iter()
                .any(|word| word.contains(longest.as_str()));
            if digits || word || longest.contains(structure) || keys.iter().any(|key| key.contains(longest.as_str())) {
                return None;
            }
            globs.push(format!("*{}*", escaped(longest)));
        }
        Some(globs)
    }
}

/// Whether an expression means the same to JavaScript, which reads it in Gemini CLI, and to the parser here. Escapes
/// that only one of the two has (`\\A`, `\\a`, `\\<`), groups with flags, and operators inside classes (`[a&&b]`) differ.
fn is_common(text: &str) -> bool {
    let (mut chars, mut class) = (text.chars().peekable(), false);
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let common = match (c, class) {
            ('\\', _) => {
                chars.next();
                match next {
                    Some('b') if class => false,
                    // `\x{…}` and `\b{…}` are repetitions there.
                    Some('b' | 'B' | 'x' | 'u') if chars.peek() == Some(&'{') => false,
                    Some(c) if c.is_ascii_alphanumeric() => "bBdDsSwWtnrfvxu0".contains(c),
                    Some(c) => !matches!(c, '<' | '>'),
                    None => false,
                }
            }
            ('[', true) => false,
            ('&' | '-' | '~', true) => next != Some(c),
            ('[', false) => {
                class = true;
                // `[]` is empty there and begins with a bracket here.
                next != Some(']')
            }
            (']', true) => {
                class = false;
                before != '^'
            }
            ('{', false) => next.is_some_and(|next| next != ','),
            ('(', false) if next == Some('?') => {
                chars.next();
                matches!(chars.peek(), Some(':' | '=' | '!' | '<'))
            }
            _ => true,
        };
        if !common {
            return false;
        }
        before = c;
    }
    true
}

/// Whether Gemini CLI refuses an expression: it is too long, or a group with a repetition is repeated. The check is that
/// of its loader, which looks at characters.
pub(super) fn is_refused(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let repeats = |c: &char| matches!(c, '*' | '+' | '?' | '{');
    let repeated_close = |from: usize| {
        let pairs = chars.iter().zip(chars.iter().skip(1)).enumerate().skip(from);
        pairs.into_iter().any(|(_, (c, next))| *c == ')' && repeats(next))
    };
    let inside = chars.iter().enumerate().filter(|(_, c)| **c == '(').any(|(open, _)| {
        let group = chars.iter().enumerate().skip(open + 1).take_while(|(_, c)| **c != ')');
        group.into_iter().any(|(at, c)| repeats(c) && repeated_close(at + 1))
    });
    inside || text.len() > MAX_PATTERN
}

/// Expands an expression into alternatives.
fn spread(hir: &Hir) -> Option<Vec<Alternative>> {
    let one = |piece: Piece| Some(vec![vec![piece]]);
    match hir.kind() {
        HirKind::Empty => Some(vec![Vec::new()]),
        HirKind::Literal(literal) => one(Piece::Text(String::from_utf8(literal.0.to_vec()).ok()?)),
        HirKind::Class(class) => one(of_class(class, false)),
        HirKind::Look(look) => one(match look {
            regex_syntax::hir::Look::Start | regex_syntax::hir::Look::End => Piece::Edge,
            _ => Piece::Border,
        }),
        HirKind::Capture(capture) => spread(&capture.sub),
        HirKind::Alternation(branches) => {
            let mut all = Vec::new();
            for branch in branches {
                all.extend(spread(branch)?);
                if all.len() > MAX_ALTERNATIVES {
                    return None;
                }
            }
            Some(all)
        }
        HirKind::Concat(parts) => {
            let mut all: Vec<Alternative> = vec![Vec::new()];
            for part in parts {
                let next = spread(part)?;
                if all.len() * next.len() > MAX_ALTERNATIVES {
                    return None;
                }
                all = all
                    .iter()
                    .flat_map(|before| next.iter().map(|after| [before.as_slice(), after.as_slice()].concat()))
                    .collect();
            }
            Some(all.into_iter().map(joined).collect())
        }
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max, repetition.sub.kind()) {
            (0, Some(1), _) => {
                let mut all = vec![Vec::new()];
                all.extend(spread(&repetition.sub)?);
                Some(all)
            }
            (1, Some(1), _) => spread(&repetition.sub),
            (min, None, HirKind::Class(class)) => match of_class(class, true) {
                Piece::Blank(_) => one(Piece::Blank(min > 0)),
                piece @ (Piece::Anything | Piece::Segment) if min == 0 => one(piece),
                // At least one character. `Other` gives it up for allow rules, and matches any text for denials.
                Piece::Anything => Some(vec![vec![Piece::Other, Piece::Anything]]),
                Piece::Segment => Some(vec![vec![Piece::Other, Piece::Segment]]),
                _ => one(Piece::Other),
            },
            _ => one(Piece::Other),
        },
    }
}

/// Joins adjacent texts.
fn joined(pieces: Alternative) -> Alternative {
    let mut out: Alternative = Vec::new();
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => out.push(piece),
        }
    }
    out
}

/// What a class of characters stands for; with `many`, repeated.
fn of_class(class: &Class, many: bool) -> Piece {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => class
            .ranges()
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect(),
        Class::Bytes(class) => class
            .ranges()
            .iter()
            .map(|range| (char::from(range.start()), char::from(range.end())))
            .collect(),
    };
    let has = |c: char| ranges.iter().any(|(first, last)| (*first..=*last).contains(&c));
    let size: u64 = ranges
        .iter()
        .map(|(first, last)| u64::from(u32::from(*last)) - u64::from(u32::from(*first)) + 1)
        .sum();
    let all = ranges.iter().flat_map(|(first, last)| *first..=*last);
    if size <= 64 && all.clone().all(char::is_whitespace) {
        return Piece::Blank(true);
    }
    if many {
        // Nearly all characters; `"`, `\` and line breaks do not occur unescaped in a JSON string.
        let usual = (' '..='~').filter(|c| !matches!(c, '"' | '\\' | '/'));
        let wide = size > 1_000_000 && usual.into_iter().all(has);
        return match (wide, has('/')) {
            (true, true) => Piece::Anything,
            (true, false) => Piece::Segment,
            _ => Piece::Other,
        };
    }
    match size <= MAX_SET as u64 {
        true => Piece::Set(all.collect()),
        false => Piece::Other,
    }
}

/// The key and the value of `"KEY":"…`, after the character that encloses an argument.
fn keyed(pieces: &Alternative) -> Option<Keyed> {
    let mut rest = pieces.as_slice();
    loop {
        rest = match rest {
            [Piece::Anything | Piece::Border | Piece::Blank(false), after @ ..] => after,
            // The whole text begins with `{`; anything else after the start never matches.
            [Piece::Edge, after @ ..] if matches!(after, [Piece::Anything, ..]) => after,
            [Piece::Edge, after @ ..] if matches!(after, [Piece::Text(text), ..] if text.starts_with('{')) => after,
            [Piece::Text(text), after @ ..]
                if matches!(text.as_str(), "{" | "{\0") && matches!(after, [Piece::Anything, ..]) =>
            {
                after
            }
            _ => break,
        };
    }
    let (Piece::Text(first), after) = rest.split_first()? else {
        return None;
    };
    let first = first.trim_start_matches(['{', '\0', ',']);
    let (key, behind) = first.strip_prefix('"')?.split_once("\":")?;
    // `\s*` between the colon and the value.
    let (opening, after) = match (behind, after) {
        ("", [Piece::Blank(false), Piece::Text(next), rest @ ..]) => (next.as_str(), rest),
        (behind, after) => (behind, after),
    };
    let begin = opening.trim_start_matches(' ').strip_prefix('"')?;
    if key.contains(['"', '\\', '{', '}']) || key.is_empty() {
        return None;
    }
    let mut pieces: Alternative = Vec::new();
    if !begin.is_empty() {
        pieces.push(Piece::Text(begin.to_owned()));
    }
    pieces.extend(after.iter().cloned());
    Some(Keyed {
        key: key.to_owned(),
        value: Value {
            alternatives: vec![value(&pieces)],
        },
    })
}

/// Cuts the pieces at the quote that ends the value.
fn value(pieces: &[Piece]) -> ValueAlternative {
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let Piece::Text(text) = piece else {
            out.push(piece.clone());
            continue;
        };
        let Some(end) = unescaped_quote(text) else {
            out.push(piece.clone());
            continue;
        };
        let (inside, outside) = text.split_at(end);
        if !inside.is_empty() {
            out.push(Piece::Text(inside.to_owned()));
        }
        let behind = outside.trim_start_matches(['"', '\0', '}']);
        let more = !behind.is_empty() || pieces.len() > at + 1;
        return ValueAlternative {
            pieces: out,
            closed: true,
            more,
        };
    }
    ValueAlternative {
        pieces: out,
        closed: false,
        more: false,
    }
}

/// The position of the first quote that is not escaped with a backslash.
fn unescaped_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(at),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

impl Value {
    /// Both lists of alternatives.
    pub fn with(mut self, other: Value) -> Value {
        self.alternatives.extend(other.alternatives);
        self
    }

    /// Word prefixes of commands that the expression matches: a part of them. The second value says whether something
    /// was left out. An empty prefix stands for all commands.
    pub fn commands(&self) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        let mut cut = false;
        for alternative in &self.alternatives {
            match words(alternative) {
                Some(prefix) if !found.contains(&prefix) => found.push(prefix),
                Some(_) => {}
                None => cut = true,
            }
        }
        (found, cut)
    }

    /// Globs of the commands' text of which one fits whenever a command or a part of one matches. `None`: all commands.
    pub fn command_globs(&self) -> Option<Vec<String>> {
        let mut globs = Vec::new();
        for alternative in &self.alternatives {
            let glob = wide(&alternative.pieces);
            if glob.chars().all(|c| c == '*') {
                return None;
            }
            let glob = glob.trim_end_matches('*');
            // A part of a command line begins at its start or after a character that is not part of a word.
            globs.push(format!("{{{glob}*,*[!a-zA-Z0-9_./~-]{glob}*}}"));
        }
        Some(globs)
    }

    /// Globs of the argument's text of which one fits whenever the expression matches. `None`: every text.
    pub fn wide_globs(&self) -> Option<Vec<String>> {
        let mut globs = Vec::new();
        for alternative in &self.alternatives {
            let glob = wide(&alternative.pieces);
            let glob = match alternative.closed {
                true => glob,
                false => format!("{}*", glob.trim_end_matches('*')),
            };
            if glob.chars().all(|c| c == '*') {
                return None;
            }
            globs.push(glob);
        }
        Some(globs)
    }

    /// Globs of the argument's text that match only what the expression matches, and whether something was left out.
    pub fn exact_globs(&self) -> (Vec<String>, bool) {
        let found: Vec<Option<String>> = self.alternatives.iter().map(exact).collect();
        let cut = found.iter().any(Option::is_none);
        (found.into_iter().flatten().collect(), cut)
    }

    /// Path patterns that match only what the expression matches, and whether something was left out.
    pub fn paths(&self) -> (Vec<String>, bool) {
        let found: Vec<Option<Vec<String>>> = self.alternatives.iter().map(paths).collect();
        let cut = found.iter().any(Option::is_none);
        (found.into_iter().flatten().flatten().collect(), cut)
    }
}

/// The words of a command at the start of an alternative.
fn words(alternative: &ValueAlternative) -> Option<String> {
    if alternative.more {
        return None;
    }
    let mut text = String::new();
    let mut pieces = alternative.pieces.as_slice();
    let mut open = !alternative.closed;
    while let [piece, rest @ ..] = pieces {
        match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Blank(_) => text.push(' '),
            Piece::Border if rest.is_empty() => {}
            // What follows any text must not narrow it further.
            Piece::Anything if rest.iter().all(|piece| *piece == Piece::Anything) => {
                open = true;
                break;
            }
            _ => return None,
        }
        pieces = rest;
    }
    // Escapes of JSON would be characters of the command here.
    if text.contains(['\\', '"', '\0']) {
        return None;
    }
    let text = text.trim_end();
    if text.trim().is_empty() {
        return open.then(String::new);
    }
    let prefix = match open {
        true => text.to_owned(),
        false => format!("{text} $"),
    };
    // A closed command of one word cannot be written as a prefix.
    if !open && !text.contains(' ') {
        return None;
    }
    parse_prefix(&prefix).is_ok().then_some(prefix)
}

/// A glob that fits at least what the pieces match.
fn wide(pieces: &[Piece]) -> String {
    let mut glob = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                for c in text.chars() {
                    match c {
                        // Escapes of JSON: the argument itself has other characters there.
                        '\\' | '"' | '\0' => glob.push('*'),
                        c => glob.push_str(&escaped(c.encode_utf8(&mut [0; 4]))),
                    }
                }
            }
            Piece::Set(chars) => glob.push_str(&set(chars)),
            Piece::Border | Piece::Edge => {}
            Piece::Anything | Piece::Segment | Piece::Blank(_) | Piece::Other => glob.push('*'),
        }
    }
    while glob.contains("**") {
        glob = glob.replace("**", "*");
    }
    glob
}

fn set(chars: &[char]) -> String {
    match chars
        .iter()
        .any(|c| matches!(c, '[' | ']' | '!' | '^' | '-' | '\\' | '{' | '}' | ','))
    {
        true => "?".to_owned(),
        false => format!("[{}]", chars.iter().collect::<String>()),
    }
}

/// A glob that fits only what the alternative matches.
fn exact(alternative: &ValueAlternative) -> Option<String> {
    if alternative.more {
        return None;
    }
    let mut glob = String::new();
    for piece in &alternative.pieces {
        match piece {
            Piece::Text(text) if text.contains(['\\', '"', '\0']) => return None,
            Piece::Text(text) => glob.push_str(&escaped(text)),
            Piece::Set(chars) if !set(chars).starts_with('?') => glob.push_str(&set(chars)),
            Piece::Anything => glob.push('*'),
            _ => return None,
        }
    }
    if !alternative.closed {
        glob.push('*');
    }
    Some(glob)
}

/// Path patterns: `**` stands for directories, `*` for a part of a name.
fn paths(alternative: &ValueAlternative) -> Option<Vec<String>> {
    if alternative.more {
        return None;
    }
    let mut pieces = alternative.pieces.clone();
    if !alternative.closed && pieces.last() != Some(&Piece::Anything) {
        pieces.push(Piece::Anything);
    }
    let mut out = String::new();
    let mut deeper = None;
    for (at, piece) in pieces.iter().enumerate() {
        let next = pieces.get(at + 1);
        match piece {
            Piece::Text(text) if text.contains(['\\', '"', '\0']) => return None,
            // Outside braces a comma is literal.
            Piece::Text(text) => out.push_str(&escaped(text).replace("\\,", ",")),
            Piece::Segment => out.push('*'),
            Piece::Set(chars) if !set(chars).starts_with('?') => out.push_str(&set(chars)),
            Piece::Anything => {
                let begins_name = out.is_empty() || out.ends_with('/');
                match (begins_name, next) {
                    (true, None) => out.push_str("**"),
                    (true, Some(Piece::Text(text))) if text.starts_with('/') => out.push_str("**"),
                    (true, Some(_)) => out.push_str("**/*"),
                    (false, None) => {
                        deeper = Some(format!("{out}*/**"));
                        out.push('*');
                    }
                    (false, Some(_)) => out.push('*'),
                }
            }
            _ => return None,
        }
    }
    let plain = out.trim_start_matches("./").to_owned();
    // An absolute path is outside the workspace, wherever that is.
    if plain.starts_with('/') || plain.is_empty() {
        return None;
    }
    let mut all = vec![plain];
    all.extend(deeper);
    let sound = |path: &String| crate::policy::files::PathPattern::parse(path).is_ok();
    all.iter().all(sound).then_some(all)
}

/// Text with the special characters of globs escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_commands(regex: &str) -> (Vec<String>, bool) {
        Pattern::parse(regex).unwrap().value().commands()
    }

    #[test]
    fn commands_of_a_regex_are_words() {
        for (regex, words, cut) in [
            ("git (commit|push)", &["git commit", "git push"][..], false),
            ("git (commit|push)\\b", &["git commit", "git push"], false),
            ("npm\\s+(test|run lint).*", &["npm test", "npm run lint"], false),
            ("git status\"", &["git status $"], false),
            ("npm run [a-z]+", &[], true),
            ("git .*--stat", &[], true),
            ("^git", &[], true),
            ("git$", &[], true),
            ("ls\"", &[], true),
            (".*", &[""], false),
            ("(git log|cat .*secret)", &["git log"], true),
            ("echo \\\\\"x", &[], true),
        ] {
            let (found, left_out) = of_commands(regex);
            assert_eq!(
                (found, left_out),
                (words.iter().map(|w| (*w).to_owned()).collect(), cut),
                "{regex}"
            );
        }
        assert!(Pattern::parse("(?!rm)").is_none());
        assert!(Pattern::parse("(").is_none());
        assert!(Pattern::parse(&"(ab|cd)".repeat(20)).is_none(), "too many alternatives");
    }

    /// Both must read it alike: otherwise an allow rule could match more than in JavaScript, and a denial less.
    #[test]
    fn what_javascript_reads_otherwise_is_not_read() {
        for regex in [
            "git log\\>",
            "\\Agit",
            "git log\\a",
            "rm\\z",
            "(?i)git",
            "(?x)git log",
            "(?P<n>git)",
            "[a&&b]x",
            "[a--b]x",
            "[[:alpha:]]x",
            "git [^]x",
            "[]git]",
            "git\\",
            "\\p{L}x",
            "\\x{41}",
            "\\b{start}git",
            "gi{,1}t",
        ] {
            assert!(Pattern::parse(regex).is_none(), "{regex}");
        }
        for regex in [
            "git\\s+log",
            "a\\.b[/_.-]c",
            "(?:git|hg) log",
            "[^a-z]x",
            "\\bgit\\b",
            "x\\-y",
            "a\\/b",
        ] {
            assert!(Pattern::parse(regex).is_some(), "{regex}");
        }
    }

    #[test]
    fn denials_get_at_least_what_the_regex_matches() {
        let fits = |regex: &str, text: &str| {
            let Some(globs) = Pattern::parse(regex).unwrap().value().command_globs() else {
                return true;
            };
            globs.iter().any(|glob| {
                let glob = globset::GlobBuilder::new(glob).backslash_escape(true).build().unwrap();
                glob.compile_matcher().is_match(text)
            })
        };
        for (regex, text) in [
            ("git push", "git push origin"),
            ("git push", "git pushx"),
            ("git push", "cd x && git push"),
            ("git push", "(git push)"),
            ("rm\\s+-rf", "rm   -rf /"),
            ("curl.*\\| *sh", "curl x | sh"),
            ("[gG]it", "Git x"),
            (".*secret", "cat secret"),
        ] {
            assert!(fits(regex, text), "{regex}: {text}");
        }
        assert!(!fits("rm", "npm run format"));
    }

    #[test]
    fn refused_as_the_loader_refuses() {
        for (regex, refused) in [
            ("(a+)+", true),
            ("(lint|test)(:[a-z]+)?", true),
            ("git (log|status)", false),
            ("(a|b)*", false),
            ("(\\.env|id_rsa)", false),
        ] {
            assert_eq!(is_refused(regex), refused, "{regex}");
        }
    }

    #[test]
    fn arguments_by_name() {
        let keyed = |regex: &str| Pattern::parse(regex).unwrap().keyed();
        let one = keyed("\"file_path\":\"src/.*\\.ts\"").unwrap().remove(0);
        assert_eq!(one.key, "file_path");
        assert_eq!(one.value.paths(), (vec!["src/**/*.ts".to_owned()], false));
        let enclosed = keyed("\\x00\"file_path\":\"docs/a\\.md\"\\x00").unwrap().remove(0);
        assert_eq!(enclosed.value.paths(), (vec!["docs/a.md".to_owned()], false));
        let both = keyed("\"command\":\\s*\"(git|npm) ").unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].value.commands().0, ["npm"]);
        assert!(keyed("(\\.env|id_rsa)").is_none());
        let anywhere = Pattern::parse("(\\.env|id_rsa)").unwrap();
        assert_eq!(anywhere.anywhere(&["pattern"]).unwrap(), ["*.env*", "*id_rsa*"]);
        assert_eq!(Pattern::parse("path").unwrap().anywhere(&["file_path"]), None);
    }

    #[test]
    fn paths_are_a_part_of_the_regex() {
        for (regex, expected) in [
            ("\"file_path\":\"src/", &["src/**"][..]),
            ("\"file_path\":\".*\\.md\"", &["**/*.md"]),
            ("\"file_path\":\"docs/[^/]*\\.md\"", &["docs/*.md"]),
            ("\"file_path\":\".*/generated/.*\"", &["**/generated/**"]),
            ("\"file_path\":\"src/a.*\"", &["src/a*", "src/a*/**"]),
            ("\"file_path\":\"/etc/.*\"", &[]),
            ("\"file_path\":\"src/[a-z]+\\.rs\"", &[]),
        ] {
            let found = Pattern::parse(regex)
                .unwrap()
                .keyed()
                .unwrap()
                .remove(0)
                .value
                .paths()
                .0;
            assert_eq!(found, expected, "{regex}");
        }
    }
}

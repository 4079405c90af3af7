//! Splits text into words and other characters (tokens), pairs the model's copy with the file token by token, and
//! transfers an edit of the copy to the file.

use similar::{Algorithm, DiffTag, capture_diff_slices};
use std::collections::HashSet;
use std::ops::Range;

/// Lines and words at least this similar count as versions of one another. Measured on generated edits: 0.5 and 0.6
/// differ in fewer than one of 2,000, below 0.4 unrelated lines are paired.
pub(super) const ALIKE: f64 = 0.6;

/// A word, an HTML entity, or another character that is not whitespace. A run of hyphens or dots is one token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) at: usize,
    /// As it is written.
    pub(super) raw: &'a str,
    /// The form for comparing: the ASCII form of a typographic character, the character of an HTML entity.
    pub(super) plain: &'a str,
}

impl Token<'_> {
    pub(super) fn end(&self) -> usize {
        self.at + self.raw.len()
    }

    pub(super) fn is_word(&self) -> bool {
        self.raw.starts_with(is_word)
    }

    /// Whether it is punctuation that models drop or add by mistake.
    pub(super) fn is_comma(&self) -> bool {
        matches!(self.raw, "," | ";")
    }

    /// Whether this token of the copy is equal to a token of the file.
    pub(super) fn is_copied_from(&self, file: &Token<'_>) -> bool {
        self.plain == file.plain || self.raw == "—" && file.raw == "--"
    }
}

/// The tokens of a text, without the whitespace between them.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let run = |same: &dyn Fn(char) -> bool| rest.find(|c| !same(c)).unwrap_or(rest.len());
        let (length, sign) = match first {
            _ if is_word(first) => (run(&is_word), None),
            '-' | '.' => (run(&|c| c == first), None),
            '&' => entity(rest).map_or((1, None), |(name, sign)| (name.len(), Some(sign))),
            _ => (first.len_utf8(), plain_sign(first)),
        };
        if !first.is_whitespace() {
            let raw = &rest[..length];
            found.push(Token {
                at,
                raw,
                plain: sign.unwrap_or(raw),
            });
        }
        at += length;
    }
    found
}

/// Whether `c` belongs to a word.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The ASCII form of a typographic character.
fn plain_sign(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' => "'",
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        _ => return None,
    })
}

/// The HTML entity that a text begins with, and its character.
fn entity(text: &str) -> Option<(&'static str, &'static str)> {
    const ENTITIES: [(&str, &str); 10] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#x22;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&#x2F;", "/"),
    ];
    ENTITIES.into_iter().find(|(name, _)| text.starts_with(name))
}

/// The compared form of a line: its tokens, with a space where there is a gap.
pub(super) fn key(line: &str) -> String {
    let mut key = String::with_capacity(line.len());
    let mut last = 0;
    for token in tokens(line) {
        if token.at > last && !key.is_empty() {
            key.push(' ');
        }
        key.push_str(token.plain);
        last = token.end();
    }
    key
}

/// The compared forms of all tokens.
pub(super) fn plain<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    tokens.iter().map(|token| token.plain).collect()
}

/// Similarity of two lines, ignoring whitespace: 0 for nothing in common, 1 for equal.
pub(super) fn likeness(a: &str, b: &str) -> f64 {
    let (a, b) = (plain(&tokens(a)), plain(&tokens(b)));
    let weight = |tokens: &[&str]| tokens.iter().map(|token| token.len()).sum::<usize>();
    let total = weight(&a) + weight(&b);
    if total == 0 {
        return 1.0;
    }
    let ops = capture_diff_slices(Algorithm::Myers, &a, &b);
    let equal = ops.iter().filter(|op| op.tag() == DiffTag::Equal);
    2.0 * equal.map(|op| weight(&a[op.old_range()])).sum::<usize>() as f64 / total as f64
}

/// The tokens of a copy, paired with those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    /// For each token of the copy, the index of the file's. `None`: a word, comma or semicolon that the file does not
    /// have.
    pub(super) of: Vec<Option<usize>>,
    /// How many tokens of the file are covered.
    pub(super) length: usize,
    /// The number of characters that differ.
    pub(super) cost: usize,
    /// Whether some word differs in more than its spelling.
    pub(super) other: bool,
}

/// What the comparison of a token costs, in the unit of `spend`.
pub(super) const EACH_TOKEN: usize = 64;

/// What each pair of characters costs when two words are compared by their spelling.
const EACH_CHARACTER: usize = 4;

/// Pairs a copy with the file's tokens from the first on. Words may be misspelt or added in the copy, commas and
/// semicolons lost or added. `None`: the texts differ otherwise, or in more than `limit` characters, or `spend`
/// refused. `known`: whether the file has this word. `spend`: whether this much more work may be done.
pub(super) fn pair(
    copy: &[Token<'_>],
    file: &[Token<'_>],
    limit: usize,
    known: &dyn Fn(&str) -> bool,
    spend: &dyn Fn(usize) -> bool,
) -> Option<Pairs> {
    let mut pairs = Pairs::default();
    let mut at = 0;
    for (index, token) in copy.iter().enumerate() {
        if !spend(EACH_TOKEN) {
            return None;
        }
        let next = file.get(at + 1);
        let fits = next.is_some_and(|next| token.is_copied_from(next));
        if let Some(real) = file.get(at).filter(|real| index > 0 && !token.is_copied_from(real)) {
            // A comma or semicolon that the copy does not have.
            if real.is_comma() && (fits || token.is_word() && next.is_some_and(Token::is_word)) {
                at += 1;
                pairs.cost += real.raw.len();
            }
        }
        match file.get(at) {
            Some(real) if token.is_copied_from(real) => {}
            Some(real) if token.is_word() && copy.get(index + 1).is_some_and(|after| after.is_copied_from(real)) => {
                pairs.cost += token.raw.len();
                pairs.other = true;
                pairs.of.push(None);
                continue;
            }
            Some(real) if token.is_word() && real.is_word() => {
                // A lower bound for the number of characters that differ, cheaper than counting them.
                let longer = token.raw.chars().count().abs_diff(real.raw.chars().count());
                let work = EACH_CHARACTER.saturating_mul(token.raw.len().saturating_mul(real.raw.len()));
                if pairs.cost.saturating_add(longer) > limit || !spend(work) {
                    return None;
                }
                pairs.cost += strsim::osa_distance(token.raw, real.raw);
                pairs.other |= !is_slip(token.raw, real.raw) || known(token.raw);
            }
            next if token.is_comma()
                && copy
                    .get(index + 1)
                    .is_none_or(|after| next.is_some_and(|real| after.is_copied_from(real))) =>
            {
                pairs.cost += 1;
                pairs.of.push(None);
                continue;
            }
            _ => return None,
        }
        if pairs.cost > limit {
            return None;
        }
        pairs.of.push(Some(at));
        at += 1;
    }
    pairs.length = at;
    (pairs.cost <= limit).then_some(pairs)
}

/// Whether one word is a misspelling of the other: at most two edits (one in short words), but no difference in digits,
/// nor only in the last character (`test_a`, `test_b`).
fn is_slip(copied: &str, real: &str) -> bool {
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).collect::<String>();
    let shorter = copied.chars().count().min(real.chars().count());
    let head = |word: &str| word.char_indices().next_back().map_or(0, |(at, _)| at);
    let last_only = copied.len() == real.len() && copied.get(..head(copied)) == real.get(..head(real));
    let most = if shorter < 6 { 1 } else { 2 };
    shorter >= 4 && !last_only && digits(copied) == digits(real) && strsim::osa_distance(copied, real) <= most
}

/// A word of the copy that does not occur in the file and that the new lines would add to it: probably a misspelling.
pub(super) fn repeated<'a>(known: &HashSet<&str>, copy: &[Token<'a>], lines: &[String]) -> Option<&'a str> {
    let made: HashSet<&str> = lines
        .iter()
        .flat_map(|line| tokens(line))
        .map(|token| token.raw)
        .collect();
    let word = copy
        .iter()
        .find(|token| token.is_word() && !known.contains(token.raw) && made.contains(token.raw));
    word.map(|token| token.raw)
}

/// Applies the edit from `base` to `asked` to `file`, which differs from `base` in gaps and spelling.
///
/// Words and gaps that the edit does not change stay as they are in the file. `None`: `base` and `file` differ in more
/// than gaps, commas, semicolons and spelling.
pub(super) fn merge(base: &str, file: &str, asked: &str) -> Option<String> {
    if base == asked {
        return Some(file.to_owned());
    }
    let (copied, real, new) = (tokens(base), tokens(file), tokens(asked));
    let pairs = pair(&copied, &real, usize::MAX, &|_| false, &|_| true).filter(|pairs| !pairs.other)?;
    let mut merge = Merge {
        base: (base, &copied),
        file: (file, &real),
        asked: (asked, &new),
        pairs: &pairs,
        out: String::with_capacity(file.len() + asked.len()),
        comma_at: None,
    };
    // For the next gap: its index in the copy, if it is not before the next token, and whether the file's gap may be
    // kept.
    let (mut moved, mut keeps) = (None, true);
    for (tag, old, fresh) in changes(&copied, &new) {
        if tag == DiffTag::Equal {
            for (at, to) in old.zip(fresh) {
                let text = merge.spelled(at, &new[to]);
                merge.gap(moved.take().unwrap_or(at), to, keeps, text);
                merge.out.push_str(text);
                keeps = true;
            }
            continue;
        }
        if fresh.is_empty() {
            // Of the gaps around deleted words, the one before them remains.
            moved = Some(old.start);
            continue;
        }
        let text = &asked[new[fresh.start].at..new[fresh.end - 1].end()];
        let alike = |a: &Token<'_>, b: &Token<'_>| a.plain == b.plain || a.is_word() && b.is_word();
        if old.is_empty() {
            let (was, here) = (gap(base, &copied, old.start), merge.in_file(old.start).1);
            let (left, right) = (gap(asked, &new, fresh.start), gap(asked, &new, fresh.end));
            let closes = text.starts_with([')', ']', '}', ',', ';']);
            let first = left == was && right != here && !closes && old.start < copied.len();
            merge.gap(old.start, fresh.start, first, text);
            keeps = !first && left != here;
        } else {
            merge.gap(
                old.start,
                fresh.start,
                alike(&copied[old.start], &new[fresh.start]),
                text,
            );
            keeps = alike(&copied[old.end - 1], &new[fresh.end - 1]);
        }
        merge.out.push_str(text);
    }
    merge.gap(moved.unwrap_or(copied.len()), new.len(), keeps, "");
    Some(merge.out)
}

/// The equal and the different parts of two lists of tokens; adjacent differences are joined.
pub(super) fn changes(old: &[Token<'_>], new: &[Token<'_>]) -> Vec<(DiffTag, Range<usize>, Range<usize>)> {
    let mut out: Vec<(DiffTag, Range<usize>, Range<usize>)> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &plain(old), &plain(new)) {
        let (tag, old, new) = op.as_tag_tuple();
        match out
            .last_mut()
            .filter(|last| last.0 != DiffTag::Equal && tag != DiffTag::Equal)
        {
            Some(last) => (last.1.end, last.2.end) = (old.end, new.end),
            None => out.push((tag, old, new)),
        }
    }
    out
}

/// The whitespace before the token at an index, or after the last one.
pub(super) fn gap<'a>(text: &'a str, tokens: &[Token<'_>], at: usize) -> &'a str {
    let start = at
        .checked_sub(1)
        .and_then(|before| tokens.get(before))
        .map_or(0, Token::end);
    &text[start..tokens.get(at).map_or(text.len(), |token| token.at)]
}

/// A merge in progress: the three versions of a line with their tokens, and the result so far.
struct Merge<'x, 'a> {
    base: (&'a str, &'x [Token<'a>]),
    file: (&'a str, &'x [Token<'a>]),
    asked: (&'a str, &'x [Token<'a>]),
    pairs: &'x Pairs,
    out: String,
    /// The index in the copy up to which commas of the file were written.
    comma_at: Option<usize>,
}

impl<'a> Merge<'_, 'a> {
    fn real(&self, at: usize) -> Option<&Token<'a>> {
        self.file.1.get(self.pairs.of.get(at).copied().flatten()?)
    }

    /// What the file has before the copy's token at an index: commas and semicolons that the copy does not have, and
    /// the whitespace after them.
    fn in_file(&self, at: usize) -> (&'a str, &'a str) {
        let start = (0..at).rev().find_map(|before| self.real(before)).map_or(0, Token::end);
        let end = match self.real(at) {
            Some(real) => real.at,
            None if at < self.base.1.len() => start,
            None => self.file.0.len(),
        };
        let text = &self.file.0[start.min(end)..end];
        let blanks = text.trim_start_matches([',', ';']);
        text.split_at(text.len() - blanks.len())
    }

    /// Writes the gap before `next`, which is at `at` in the copy and at `to` in the new text.
    fn gap(&mut self, at: usize, to: usize, keeps: bool, next: &str) {
        let (comma, here) = self.in_file(at);
        if self.comma_at != Some(at)
            && !self.out.ends_with(comma)
            && !(next.starts_with(comma) || next.ends_with(comma))
        {
            self.out.push_str(comma);
        }
        self.comma_at = Some(at);
        let wish = gap(self.asked.0, self.asked.1, to);
        self.out
            .push_str(if keeps && wish == gap(self.base.0, self.base.1, at) {
                here
            } else {
                wish
            });
    }

    /// The file's spelling of a token that the edit keeps.
    fn spelled(&self, at: usize, token: &Token<'a>) -> &'a str {
        match self.real(at) {
            Some(real) if self.base.1[at].raw == token.raw => real.raw,
            None if self.base.1[at].raw == token.raw => "",
            _ => token.raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_the_file_and_words_of_the_edit_meet() {
        let cases = [
            (
                "x = f(a, b) # c",
                "x = f(a,  b)  # c",
                "x = f(a, b2) # c",
                Some("x = f(a,  b2)  # c"),
            ),
            (
                "x = f(a, b) # c",
                "x = f(a,  b)  # c",
                "x = f(a,  b2)  # c",
                Some("x = f(a,  b2)  # c"),
            ),
            ("foo", "foo  ", "bar", Some("bar  ")),
            ("foo  ", "foo", "bar  ", Some("bar")),
            ("retrun value", "return value", "retrun other", Some("return other")),
            ("retrun value", "return value", "return other", Some("return other")),
            ("a b", "a  b", "a c", Some("a  c")),
            (
                "| `-` | less |",
                "| `-`  | less    |",
                "| `-`  | minus   |",
                Some("| `-`  | minus   |"),
            ),
            ("f(a,b)", "f(a, b)", "f(a,b,c)", Some("f(a, b,c)")),
            ("x = 1", "x = 1  ", "x = 1;", Some("x = 1;  ")),
            ("a b c", "a  b  c", "a c", Some("a  c")),
            ("", "  ", "x", Some("x  ")),
            ("a.b=null", "a.b = null", "a.b.c()", Some("a.b.c()")),
            (
                "f(a==b||c)",
                "f(a == b || c)",
                "f(g(a==b)||c)",
                Some("f(g(a == b) || c)"),
            ),
            ("go x=>{", "go x => {", "go (x) => {", Some("go (x) => {")),
            ("x = f(a, b)", "x = f(a, b),", "x = f(a,", Some("x = f(a,")),
            ("a = b", "a = b;", "a = c;", Some("a = c;")),
            ("a = b", "a = b;", "a = c", Some("a = c;")),
            ("total = 1", "grand = 1", "other = 1", None),
        ];
        for (base, file, asked, merged) in cases {
            assert_eq!(merge(base, file, asked).as_deref(), merged, "{base} / {file} / {asked}");
        }
    }

    #[test]
    fn likeness_counts_shared_words() {
        assert!(likeness("let a = b;", "let  a = c;") > 0.7);
        assert!(likeness("return x", "for y in z:") < 0.1);
    }
}

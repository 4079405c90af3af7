//! Merges an edit into the file: computes the new lines from the file's lines, `old_string` and `new_string`. Lines
//! that the edit does not change stay as they are in the file.

use super::indent::{self, Depths, Style};
use super::tokens::{ALIKE, Token, gap, is_word, key, likeness, merge, pair, plain, tokens};
use similar::{Algorithm, DiffTag, capture_diff_slices};

/// Why the new lines are ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Doubt {
    #[error("the indentation of the new line `{0}` cannot be told from the lines that were found")]
    Indentation(String),
    #[error("the new text changes `{0}`, which is not what the file has there")]
    Conflict(String),
    #[error(
        "its lines break elsewhere, and the edit changes what is beside `{0}`: copy the lines as the file has them"
    )]
    Breaks(String),
    #[error("it writes signs of the file in another way, and the new text has such signs of its own: `{0}`")]
    Spelling(String),
}

/// The inputs of a merge, as lines without ends; `file` and `old` correspond line by line.
pub(super) struct Parts<'a> {
    pub(super) file: &'a [&'a str],
    pub(super) old: &'a [&'a str],
    pub(super) new: &'a [&'a str],
    /// The match begins inside a line, whose indentation is not part of it.
    pub(super) cut: bool,
    pub(super) style: Style,
}

/// The lines that replace `parts.file`.
pub(super) fn weave(parts: &Parts<'_>) -> Result<Vec<String>, Doubt> {
    if parts.old.len() != parts.file.len() {
        return Err(Doubt::Breaks(
            parts.old.first().map_or(String::new(), |line| line.trim().to_owned()),
        ));
    }
    let partners = align(parts.old, parts.new);
    let depths = Depths::learn(parts, &partners);
    let manners = Manners::learn(parts)?;
    depths.refuse_flat()?;
    let mut out = Vec::with_capacity(parts.new.len());
    for (index, (line, partner)) in parts.new.iter().zip(&partners).enumerate() {
        let pair = partner.and_then(|old| Some((*parts.old.get(old)?, *parts.file.get(old)?)));
        if line.trim().is_empty() {
            match pair.filter(|(_, file)| file.trim().is_empty()) {
                Some((old, file)) if old == *line || file.is_empty() || line.is_empty() => out.push(file.to_owned()),
                _ if depths.is_same() && !manners.no_trailing => out.push((*line).to_owned()),
                _ => out.push(String::new()),
            }
            continue;
        }
        let indent = depths.image(index, line)?;
        let asked = manners.plain(body(line));
        let content = match pair {
            // Closing brackets look alike; only their indentation distinguishes them.
            Some((old, file))
                if is_bare(line)
                    && indent::of(old) != indent::of(line)
                    && plain(&tokens(old)) != plain(&tokens(file)) =>
            {
                return Err(Doubt::Conflict(old.trim().to_owned()));
            }
            Some((old, file)) if key(old) == key(line) => {
                merge(&manners.plain(body(old)), body(file), &asked).unwrap_or_else(|| body(file).to_owned())
            }
            Some((old, file)) if body(old) != body(file) && likeness(old, line) >= ALIKE => {
                merge(&manners.plain(body(old)), body(file), &asked)
                    .ok_or_else(|| Doubt::Conflict(old.trim().to_owned()))?
            }
            _ => moved(line, parts, &partners).map_or(asked, |file| body(file).to_owned()),
        };
        out.push(indent + &content);
    }
    Ok(out)
}

fn is_bare(line: &str) -> bool {
    !line.contains(is_word)
}

/// The file's version of a line that the edit moves.
fn moved<'a>(line: &str, parts: &Parts<'a>, partners: &[Option<usize>]) -> Option<&'a str> {
    let same = |at: &usize| parts.old.get(*at).is_some_and(|old| body(old) == body(line));
    let left = |at: &usize| !partners.contains(&Some(*at));
    let mut found = (0..parts.old.len()).filter(same).filter(left);
    let at = found.next().filter(|_| found.next().is_none())?;
    parts.file.get(at).copied()
}

fn body(line: &str) -> &str {
    line.get(indent::of(line).len()..).unwrap_or_default()
}

/// Whether a blank is a typographic one.
fn is_wide(c: char) -> bool {
    c.is_whitespace() && !c.is_ascii()
}

/// Differences between `old_string` and the file that new lines must not bring into the file.
struct Manners<'a> {
    no_trailing: bool,
    /// Typographic spaces in `old_string` that are ordinary ones in the file.
    no_wide: bool,
    /// Signs as `old_string` and as the file writes them, where one of them writes them in a special way.
    signs: Vec<(Token<'a>, &'a str)>,
}

impl<'a> Manners<'a> {
    fn learn(parts: &Parts<'a>) -> Result<Self, Doubt> {
        let trailing = |line: &str| line.len() - line.trim_end().len();
        let pairs = || {
            let all = parts.old.iter().zip(parts.file);
            all.filter(|(old, _)| trailing(old) > 0 && !old.trim().is_empty())
        };
        let sent = |line: &&str| pairs().any(|(old, _)| trailing(old) == trailing(line));
        let no_trailing = pairs().all(|(old, file)| trailing(old) != trailing(file)) && parts.new.iter().any(sent);
        let no_wide = !parts.file.iter().any(|line| line.contains(is_wide));
        let mut manners = Self {
            no_trailing,
            no_wide,
            signs: Vec::new(),
        };
        for (old, file) in parts.old.iter().zip(parts.file) {
            let (copied, real) = (tokens(old), tokens(file));
            let pairs = pair(&copied, &real, usize::MAX, &|_| false).unwrap_or_default();
            let both = copied
                .iter()
                .zip(&pairs.of)
                .filter_map(|(copy, real_at)| Some((*copy, (*real_at)?)));
            let signs = both
                .map(|(copy, at)| (copy, real[at].raw))
                .filter(|(copy, real)| copy.raw != copy.plain || *real != copy.plain);
            manners.signs.extend(signs);
        }
        manners.refuse_unclear(parts).map(|()| manners)
    }

    /// Refuses new signs of which it is not known how the file would write them.
    fn refuse_unclear(&self, parts: &Parts<'_>) -> Result<(), Doubt> {
        let count = |lines: &[&str], raw: &str| {
            lines
                .iter()
                .flat_map(|line| tokens(line))
                .filter(|token| token.raw == raw)
                .count()
        };
        for (copy, real) in &self.signs {
            let several = self
                .signs
                .iter()
                .any(|(other, as_in_file)| other.raw == copy.raw && as_in_file != real);
            let unclear = several || copy.raw == copy.plain && real.starts_with('&');
            if unclear && count(parts.new, copy.raw) > count(parts.old, copy.raw) {
                return Err(Doubt::Spelling(copy.raw.to_owned()));
            }
        }
        Ok(())
    }

    /// A sign as the file writes it.
    fn sign<'x>(&'x self, token: &Token<'x>) -> &'x str {
        let mut same = self.signs.iter().filter(|(copy, _)| copy.raw == token.raw);
        // Quotes come in pairs: if one of them is wrong, so is the other.
        let kin = |copy: &Token<'_>| {
            copy.raw != copy.plain
                && copy.raw.starts_with('&') == token.raw.starts_with('&')
                && (copy.raw.starts_with('&') || copy.plain == token.plain)
        };
        match same.next() {
            _ if token.raw == token.plain => token.raw,
            Some((_, real)) if same.all(|(_, other)| other == real) => real,
            Some(_) => token.raw,
            None if self.signs.iter().any(|(copy, _)| kin(copy))
                && self.signs.iter().all(|(copy, real)| !kin(copy) || *real == copy.plain) =>
            {
                token.plain
            }
            None => token.raw,
        }
    }

    fn plain(&self, text: &str) -> String {
        let text = if self.no_trailing { text.trim_end() } else { text };
        let all = tokens(text);
        let mut out = String::with_capacity(text.len());
        for (at, token) in all.iter().enumerate() {
            out.push_str(&self.blanks(gap(text, &all, at)));
            out.push_str(self.sign(token));
        }
        out + &self.blanks(gap(text, &all, all.len()))
    }

    fn blanks(&self, gap: &str) -> String {
        if self.no_wide {
            gap.replace(is_wide, " ")
        } else {
            gap.to_owned()
        }
    }
}

/// For each line of the new text, the line of the old text that it keeps or replaces.
pub(super) fn align(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let keys = |lines: &[&str]| lines.iter().map(|line| key(line)).collect::<Vec<_>>();
    let mut partners = vec![None; new.len()];
    let mut set = |new: usize, old: usize| {
        if let Some(partner) = partners.get_mut(new) {
            *partner = Some(old);
        }
    };
    for op in capture_diff_slices(Algorithm::Myers, &keys(old), &keys(new)) {
        let (tag, olds, news) = op.as_tag_tuple();
        match tag {
            DiffTag::Equal => olds.zip(news).for_each(|(old, new)| set(new, old)),
            DiffTag::Replace if olds.len() == news.len() => olds.zip(news).for_each(|(old, new)| set(new, old)),
            DiffTag::Replace => {
                let mut next = olds.start;
                for new_index in news {
                    let line = new.get(new_index).copied().unwrap_or_default();
                    let alike = |&at: &usize| {
                        old.get(at)
                            .is_some_and(|old| !line.trim().is_empty() && likeness(old, line) >= ALIKE)
                    };
                    if let Some(found) = (next..olds.end).find(alike) {
                        set(new_index, found);
                        next = found + 1;
                    }
                }
            }
            DiffTag::Delete | DiffTag::Insert => {}
        }
    }
    partners
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn lines_belong_together_by_their_words() {
        let deeper = ["  a {", "    b", "  }"];
        assert_eq!(align(&["a {", "  b", "}"], &deeper), [Some(0), Some(1), Some(2)]);
        assert_eq!(align(&["a = 1;"], &["a = 2;"]), [Some(0)]);
        assert_eq!(
            align(&["first();", "last();"], &["first();", "new();", "last();"]),
            [Some(0), None, Some(1)]
        );
    }
}

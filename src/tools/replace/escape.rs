//! Resolves escape sequences that a model escaped once too often.

/// A set of kinds of escapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    breaks: bool,
    tabs: bool,
    double: bool,
    single: bool,
    slashes: bool,
    /// Two backslashes that are meant as two.
    pairs: bool,
}

impl Kinds {
    pub(super) fn is_none(self) -> bool {
        Self { pairs: false, ..self } == Self::default()
    }
}

const ALL: Kinds = Kinds {
    breaks: true,
    tabs: true,
    double: true,
    single: true,
    slashes: true,
    pairs: false,
};

/// The sets to try, the full set first.
pub(super) const SETS: [Kinds; 4] = [
    ALL,
    Kinds { slashes: false, ..ALL },
    Kinds {
        breaks: false,
        tabs: false,
        slashes: false,
        ..ALL
    },
    Kinds {
        double: false,
        single: false,
        slashes: false,
        ..ALL
    },
];

enum Piece {
    Plain(char),
    /// Two backslashes that are intended.
    Pair,
    /// The character that it stands for.
    Escape(char),
}

fn pieces(text: &str, set: Kinds) -> impl Iterator<Item = Piece> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut chars = rest.chars();
        let first = chars.next()?;
        let meaning = match (first, chars.next()) {
            ('\\', Some('n')) if set.breaks => Some('\n'),
            ('\\', Some('r')) if set.breaks => Some('\r'),
            ('\\', Some('t')) if set.tabs => Some('\t'),
            ('\\', Some('"')) if set.double => Some('"'),
            ('\\', Some(quote @ ('\'' | '`'))) if set.single => Some(quote),
            ('\\', Some('\\')) if set.slashes => Some('\\'),
            _ => None,
        };
        let pair = meaning.is_none() && rest.starts_with("\\\\");
        let length = if meaning.is_some() || pair { 2 } else { first.len_utf8() };
        rest = rest.get(length..).unwrap_or_default();
        let plain = if pair { Piece::Pair } else { Piece::Plain(first) };
        Some(meaning.map_or(plain, Piece::Escape))
    })
}

/// The kinds of `set` that occur in `text`.
pub(super) fn used(text: &str, set: Kinds) -> Kinds {
    let mut found = Kinds::default();
    for piece in pieces(text, set) {
        match piece {
            Piece::Escape('\n' | '\r') => found.breaks = true,
            Piece::Escape('\t') => found.tabs = true,
            Piece::Escape('\\') => found.slashes = true,
            Piece::Escape('"') => found.double = true,
            Piece::Escape(_) => found.single = true,
            Piece::Pair => found.pairs = true,
            Piece::Plain(_) => {}
        }
    }
    found
}

/// Resolves the escapes of `set` in `text`, in one pass.
pub(super) fn resolve(text: &str, set: Kinds) -> String {
    let mut meaning = String::with_capacity(text.len());
    for piece in pieces(text, set) {
        match piece {
            Piece::Plain(c) | Piece::Escape(c) => meaning.push(c),
            Piece::Pair => meaning.push_str("\\\\"),
        }
    }
    meaning.replace("\r\n", "\n").replace('\r', "\n")
}

/// Applies the same correction to the new text: resolves it if it has the same error, leaves it if it does not, and
/// returns `None` if that is ambiguous. `slip`: the kinds that occurred in the old text.
pub(super) fn resolve_like(text: &str, slip: Kinds) -> Option<String> {
    let inner_break = text.trim_matches('\n').contains('\n');
    let count = |meanings: &[char]| {
        let escapes = pieces(text, ALL).filter(|piece| matches!(piece, Piece::Escape(c) if meanings.contains(c)));
        escapes.count()
    };
    let (double, single) = (count(&['"']), count(&['\'', '`']));
    let breaks = count(&['\n', '\r', '\t', '\\']);
    let bare = |sign: char, escaped: usize| text.matches(sign).count() > escaped;
    let escaped = slip.double && double > 0 || slip.single && single > 0;
    let plain = slip.double && bare('"', double) || slip.single && bare('\'', single);
    match (escaped, plain) {
        (true, true) => return None,
        // The quotes are escaped but there are real line breaks, while the old text had both escaped.
        (true, false) if slip.breaks && inner_break => return None,
        (false, true) => return Some(text.to_owned()),
        // With real line breaks, the escapes in the text are intended.
        (false, false) if slip.breaks && inner_break => return Some(text.to_owned()),
        (false, false) if !(slip.slashes || slip.breaks || slip.tabs) || breaks == 0 => return Some(text.to_owned()),
        _ => {}
    }
    // Double quotes that occur only with a backslash are escaped once too often as well.
    let double_too = double > 0 && !bare('"', double);
    let single_too = single > 0 && !bare('\'', single);
    // A line break between string literals cannot be part of one.
    let outside = (escaped || slip.tabs) && (breaks_outside(text) || breaks_lines(text));
    if outside && inner_break {
        return None;
    }
    // Without quotes it is unknown whether backslashes were doubled as well.
    if slip.breaks && !slip.slashes && count(&['\\']) > 0 && !text.contains('"') {
        return None;
    }
    let breaks = slip.breaks || outside;
    // Inside a line an escaped tab may be meant as one, unless quotes tell.
    if slip.breaks && !slip.tabs && !tabs_lead(text) && !text.contains(['"', '\'']) {
        return None;
    }
    let set = Kinds {
        breaks,
        tabs: slip.tabs || breaks && (escaped || tabs_lead(text)),
        double: slip.double || double_too,
        single: slip.single || single_too,
        slashes: slip.slashes || !slip.pairs && (slip.double || slip.single || double_too || single_too),
        pairs: false,
    };
    Some(resolve(text, set))
}

/// Whether an escaped line break occurs outside all strings in double quotes.
fn breaks_outside(text: &str) -> bool {
    let mut inside = false;
    pieces(text, ALL).any(|piece| {
        inside ^= matches!(piece, Piece::Escape('"') | Piece::Plain('"'));
        !inside && matches!(piece, Piece::Escape('\n'))
    })
}

/// Whether an escaped line break is followed by the text's own indentation.
fn breaks_lines(text: &str) -> bool {
    let body = text.trim_start_matches(' ');
    let blanks = text.get(..text.len() - body.len()).unwrap_or_default();
    !blanks.is_empty() && body.contains(&format!("\\n{blanks}"))
}

/// Whether escaped tabs occur only at the start of lines.
fn tabs_lead(text: &str) -> bool {
    let mut leads = true;
    pieces(text, ALL).all(|piece| {
        let tab = matches!(piece, Piece::Escape('\t'));
        let fine = !tab || leads;
        leads = matches!(piece, Piece::Escape('\n') | Piece::Plain('\n' | ' '))
            && (leads || !matches!(piece, Piece::Plain(' ')))
            || tab && leads;
        fine
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_level_goes() {
        assert_eq!(resolve(r#"printf(\"a\\n\");\nx"#, ALL), "printf(\"a\\n\");\nx");
        assert_eq!(resolve(r"a\\d", ALL), r"a\d");
        assert_eq!(used("plain", ALL), Kinds::default());
    }

    #[test]
    fn the_new_text_follows_only_where_it_shows_the_slip() {
        let quotes = used(r#"say(\"hi\")"#, ALL);
        assert_eq!(
            resolve_like(r#"say(\"a\n\")"#, quotes).as_deref(),
            Some("say(\"a\\n\")")
        );
        assert_eq!(
            resolve_like(r#"say(\"a\\n\")"#, quotes).as_deref(),
            Some("say(\"a\\n\")")
        );
        assert_eq!(resolve_like(r#"say("a\n")"#, quotes).as_deref(), Some(r#"say("a\n")"#));
        assert_eq!(resolve_like(r#"say("a", \"b\")"#, quotes), None);
        let breaks = used(r"a;\nb;", ALL);
        assert_eq!(
            resolve_like("a;\nprintf(\"\\n\");", breaks).as_deref(),
            Some("a;\nprintf(\"\\n\");")
        );
        assert_eq!(
            resolve_like(r#"f(\"a\");\nc;"#, breaks).as_deref(),
            Some("f(\"a\");\nc;")
        );
        assert_eq!(resolve_like(r"a;\nc;", breaks).as_deref(), Some("a;\nc;"));
        assert_eq!(resolve_like(r"a;\n\tc;", breaks).as_deref(), Some("a;\n\tc;"));
        assert_eq!(
            resolve_like(r#"f("a\tb");\nc;"#, breaks).as_deref(),
            Some("f(\"a\\tb\");\nc;")
        );
        assert_eq!(
            resolve_like(r#"say(\"a\");\n\tsay(\"b\\n\");"#, quotes).as_deref(),
            Some("say(\"a\");\n\tsay(\"b\\n\");")
        );
    }
}

//! Resolves escapes that a model wrote one level too deep. Decides nothing about where.

/// Kinds of escapes, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    breaks: bool,
    tabs: bool,
    double: bool,
    single: bool,
    slashes: bool,
}

impl Kinds {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

const ALL: Kinds = Kinds {
    breaks: true,
    tabs: true,
    double: true,
    single: true,
    slashes: true,
};

/// The sets that are tried, the whole one first.
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
    /// What it stands for.
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
        let length = if meaning.is_some() { 2 } else { first.len_utf8() };
        rest = rest.get(length..).unwrap_or_default();
        Some(meaning.map_or(Piece::Plain(first), Piece::Escape))
    })
}

/// Which kinds of `set` occur in `text`.
pub(super) fn used(text: &str, set: Kinds) -> Kinds {
    let mut found = Kinds::default();
    for piece in pieces(text, set) {
        match piece {
            Piece::Escape('\n' | '\r') => found.breaks = true,
            Piece::Escape('\t') => found.tabs = true,
            Piece::Escape('\\') => found.slashes = true,
            Piece::Escape('"') => found.double = true,
            Piece::Escape(_) => found.single = true,
            Piece::Plain(_) => {}
        }
    }
    found
}

/// `text` with the escapes of `set` resolved, in one pass.
pub(super) fn resolve(text: &str, set: Kinds) -> String {
    let meaning = pieces(text, set).map(|piece| match piece {
        Piece::Plain(c) | Piece::Escape(c) => c,
    });
    meaning.collect::<String>().replace("\r\n", "\n").replace('\r', "\n")
}

/// The same for the text that shall stand there instead: resolved if it shows the same slip, as it is if it does not,
/// `None` if it shows both.
pub(super) fn resolve_like(text: &str, used: Kinds) -> Option<String> {
    let (mut escaped, mut bare) = (false, false);
    for piece in pieces(text, used) {
        match piece {
            // A backslash that is doubled tells nothing by itself.
            Piece::Escape('\\') => {}
            Piece::Escape(_) => escaped = true,
            Piece::Plain('\n') => bare |= used.breaks,
            Piece::Plain('\t') => bare |= used.tabs,
            Piece::Plain('"') => bare |= used.double,
            Piece::Plain('\'' | '`') => bare |= used.single,
            Piece::Plain(_) => {}
        }
    }
    let quotes = used.double || used.single;
    let only_slashes = !(used.breaks || used.tabs || quotes);
    // With doubled backslashes as well, quotes are resolved together with them.
    let set = if quotes { Kinds { slashes: true, ..used } } else { used };
    match (escaped, bare) {
        (true, true) => None,
        (true, false) => Some(resolve(text, set)),
        (false, true) => Some(text.to_owned()),
        (false, false) if only_slashes => Some(resolve(text, set)),
        (false, false) => Some(text.to_owned()),
    }
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
        assert_eq!(resolve_like("a;\nprintf(\"\\n\");", breaks), None);
        assert_eq!(resolve_like(r"a;\nc;", breaks).as_deref(), Some("a;\nc;"));
    }
}

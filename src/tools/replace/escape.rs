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
/// `None` if it shows both. `slip`: the kinds that the old text showed.
pub(super) fn resolve_like(text: &str, slip: Kinds) -> Option<String> {
    let inner_break = text.trim_matches('\n').contains('\n');
    let count = |set: Kinds| {
        pieces(text, set)
            .filter(|piece| matches!(piece, Piece::Escape(_)))
            .count()
    };
    let double = count(Kinds {
        double: true,
        ..Kinds::default()
    });
    let single = count(Kinds {
        single: true,
        ..Kinds::default()
    });
    let breaks = count(Kinds {
        breaks: true,
        tabs: true,
        slashes: true,
        ..Kinds::default()
    });
    let bare = |sign: char, escaped: usize| text.matches(sign).count() > escaped;
    let escaped = slip.double && double > 0 || slip.single && single > 0;
    let plain = slip.double && bare('"', double) || slip.single && bare('\'', single);
    match (escaped, plain) {
        (true, true) => None,
        // Quotes one level too deep, but lines broken as they should be, where the old text had escapes for both.
        (true, false) if slip.breaks && inner_break => None,
        (false, true) => Some(text.to_owned()),
        // Real line breaks: then the escapes in it are meant.
        (false, false) if slip.breaks && inner_break => Some(text.to_owned()),
        (false, false) if !(slip.slashes || slip.breaks || slip.tabs) || breaks == 0 => Some(text.to_owned()),
        _ => {
            // Quotes that occur with a backslash only are one level too deep as well.
            let double_too = double > 0 && !bare('"', double);
            let single_too = single > 0 && !bare('\'', single);
            let slashes = slip.slashes || slip.double || slip.single || double_too || single_too;
            let set = Kinds {
                double: slip.double || double_too,
                single: slip.single || single_too,
                slashes,
                ..slip
            };
            Some(resolve(text, set))
        }
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
        assert_eq!(
            resolve_like("a;\nprintf(\"\\n\");", breaks).as_deref(),
            Some("a;\nprintf(\"\\n\");")
        );
        assert_eq!(
            resolve_like(r#"f(\"a\");\nc;"#, breaks).as_deref(),
            Some("f(\"a\");\nc;")
        );
        assert_eq!(resolve_like(r"a;\nc;", breaks).as_deref(), Some("a;\nc;"));
    }
}

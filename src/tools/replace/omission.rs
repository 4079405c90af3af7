//! Finds lines that stand for code left out ("rest of the code …"). Shared by every tool that writes text.

/// Phrases that stand for code left out even without an ellipsis, when they are a comment of their own.
const WHOLE: &[&str] = &[
    "unchanged",
    "unchanged code",
    "code unchanged",
    "existing code",
    "existing code here",
    "existing code unchanged",
    "existing code remains",
    "existing code stays the same",
    "same as before",
    "same as above",
    "as before",
    "code omitted",
    "code omitted for brevity",
    "omitted for brevity",
];

/// What follows "rest of" or "remaining" in such a comment.
const THINGS: &[&str] = &[
    "code", "file", "function", "functions", "method", "methods", "class", "classes", "implementation", "module",
    "tests", "imports", "content", "contents", "document", "config", "configuration", "logic", "body", "lines", "fields",
    "program", "script", "section", "items", "entries",
];

/// What may follow the thing.
const TAILS: &[&str] = &[
    "", "unchanged", "is unchanged", "are unchanged", "remains unchanged", "remain unchanged", "stays the same",
    "stay the same", "remains the same", "remain the same", "is the same", "are the same", "stays unchanged", "here",
    "goes here", "as before", "omitted", "omitted for brevity", "not shown", "same as before",
];

/// Words one of which makes an ellipsis in a comment a placeholder.
const OMITTING: &[&str] = &[
    "rest of", "remaining", "existing", "unchanged", "omitted", "as before", "same as", "other methods", "other code",
    "other functions", "other fields", "other imports", "more code", "previous code", "code here", "keep", "your code",
    "code goes", "code remains", "unmodified", "snip",
];

/// The first line of `new` that stands for code left out and is not in `old`.
pub fn placeholder<'new>(new: &'new str, old: &str) -> Option<&'new str> {
    new.lines().map(str::trim).find(|line| {
        comments(line).into_iter().any(|(comment, bare)| omits(comment, bare)) && !old.lines().any(|known| known.trim() == *line)
    })
}

/// What could be a placeholder in a line: the text, and whether it stands without any comment sign.
fn comments(line: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for (open, close) in [("/*", "*/"), ("<!--", "-->"), ("{{!--", "--}}")] {
        if let Some((_, after)) = line.split_once(open) {
            found.push((after.split(close).next().unwrap_or_default(), false));
        }
    }
    for sign in ["//", "#", "--", ";", "%", "'", "\"\"\"", "rem "] {
        if let Some(after) = line.strip_prefix(sign) {
            found.push((after.trim_start_matches(['/', '#', '!', '-', ';', '%']), false));
        }
    }
    // After code on the same line only an edge of dots makes it one: "//" may lie inside a string.
    found.extend(["//", " #"].iter().filter_map(|sign| line.split_once(sign)).map(|(_, after)| (after, true)));
    found.push((line, true));
    found
}

fn omits(comment: &str, bare: bool) -> bool {
    let dotted = comment.contains("...") || comment.contains('…');
    let frame = |c: char| c.is_whitespace() || matches!(c, '.' | '…' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '*' | '-' | '/' | ':' | ',');
    let words = comment.trim_matches(frame).to_lowercase();
    if words.is_empty() || words.len() > 80 {
        return false;
    }
    if dotted && OMITTING.iter().any(|phrase| has_words(&words, phrase)) {
        // Without a comment sign only a line that is nothing but the phrase and its dots counts.
        return !bare || (edges_dotted(comment) && !words.contains(['=', ';', '"', '\'', '(', '`', '|']));
    }
    if bare {
        return false;
    }
    WHOLE.contains(&words.as_str()) || rest_of(&words)
}

fn edges_dotted(text: &str) -> bool {
    let inner = text.trim().trim_matches(['(', ')', '[', ']', '{', '}', '<', '>', '*', '-', '/']).trim();
    inner.starts_with("...") || inner.starts_with('…') || inner.ends_with("...") || inner.ends_with('…')
}

fn has_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, found)| {
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + found.len()..).and_then(|tail| tail.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// "rest of (the|your) code (unchanged)", "remaining methods".
fn rest_of(words: &str) -> bool {
    let words = words.strip_prefix("the ").unwrap_or(words);
    let Some(after) = words.strip_prefix("rest of ").or_else(|| words.strip_prefix("remaining ")) else {
        return false;
    };
    let after = ["the ", "your ", "this ", "existing ", "original "].iter().fold(after, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let (thing, tail) = after.split_once(' ').unwrap_or((after, ""));
    THINGS.contains(&thing) && TAILS.contains(&tail.trim_matches(['(', ')', ' ', ',', '-']))
}

#[cfg(test)]
mod tests {
    use super::placeholder;

    #[test]
    fn placeholders_are_found() {
        for line in [
            "// ... rest of the code ...",
            "    # ... existing code ...",
            "/* unchanged */",
            "// unchanged",
            "# rest of the file remains unchanged",
            "<!-- rest of the document -->",
            "(rest of methods ...)",
            "// rest of code...",
            "fn a() { /* ... existing code ... */ }",
            "... existing code ...",
            "-- … rest of the function …",
            "// [remaining methods unchanged]",
            "; ... unchanged ...",
            "foo(); // ... rest of the code",
            "{/* ... existing code ... */}",
            "// … unchanged …",
        ] {
            assert_eq!(placeholder(line, ""), Some(line.trim()), "{line}");
            assert_eq!(placeholder(line, &format!("a\n{line}\nb")), None, "{line}");
        }
    }

    #[test]
    fn real_code_is_not() {
        for line in [
            "...",
            "    ...",
            "def f(self): ...",
            "f(...args)",
            "let [first, ...rest] = list;",
            "// the rest of the arguments are passed on",
            "# remaining bytes",
            "let unchanged = old == new;",
            "print(\"... existing code ...\")",
            "// Returns whether the value is unchanged.",
            "// waits for the remaining tasks",
            "const { a, ...remaining } = props;",
            "// keep the existing connection open",
            "match x { Foo { a, .. } => 1 }",
            "# Loading...",
        ] {
            assert_eq!(placeholder(line, ""), None, "{line}");
        }
    }
}

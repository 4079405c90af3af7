//! Detects lines that stand for omitted code ("… rest of the code …"). Pure.

use std::cell::OnceCell;
use std::collections::HashSet;

/// Words that say that something is omitted.
const KEYS: [&str; 9] = [
    "rest",
    "remaining",
    "existing",
    "unchanged",
    "omitted",
    "previous",
    "original",
    "same",
    "other",
];

/// Words for what is omitted.
const THINGS: [&str; 26] = [
    "code",
    "file",
    "files",
    "method",
    "methods",
    "function",
    "functions",
    "class",
    "classes",
    "content",
    "contents",
    "implementation",
    "implementations",
    "line",
    "lines",
    "imports",
    "body",
    "logic",
    "test",
    "tests",
    "text",
    "fields",
    "cases",
    "definitions",
    "module",
    "properties",
];

/// Other words that a placeholder may contain.
const FILLERS: [&str; 31] = [
    "the",
    "of",
    "is",
    "are",
    "as",
    "before",
    "stays",
    "stay",
    "remains",
    "remain",
    "here",
    "and",
    "above",
    "below",
    "for",
    "brevity",
    "your",
    "goes",
    "keep",
    "this",
    "in",
    "all",
    "no",
    "changes",
    "with",
    "it",
    "from",
    "to",
    "a",
    "be",
    "continues",
];

/// The first line of `new` that only stands for omitted code and does not occur in `old`.
pub fn first<'a>(new: &'a str, old: &str) -> Option<&'a str> {
    let known = OnceCell::new();
    let is_known = |line: &str| {
        let lines = known.get_or_init(|| old.lines().map(str::trim).collect::<HashSet<&str>>());
        lines.contains(line)
    };
    new.lines()
        .map(str::trim)
        .find(|line| stands_for_text(line) && !is_known(line))
}

fn stands_for_text(line: &str) -> bool {
    line.len() <= 120 && (says_so(line) || comments(line).any(|part| part.contains(['.', '…']) && says_so(part)))
}

/// Comments after code on the same line.
fn comments(line: &str) -> impl Iterator<Item = &str> {
    ["/*", "//", "<!--", "# "].into_iter().filter_map(|mark| {
        let (before, _) = line.split_once(mark)?;
        let part = line.get(before.len()..)?;
        let close = match mark {
            "/*" => part.find("*/").map(|end| end + 2),
            "<!--" => part.find("-->").map(|end| end + 3),
            _ => None,
        };
        part.get(..close.unwrap_or(part.len()))
    })
}

fn says_so(line: &str) -> bool {
    let body = without_comment(line);
    let comment = body.len() < line.len();
    let dots = body.contains("...") || body.contains('…');
    let lower = body.to_lowercase();
    // A placeholder consists only of these words and marks.
    if lower
        .chars()
        .any(|c| !c.is_alphabetic() && !" .…()[]{}<>,:-'\t".contains(c))
    {
        return false;
    }
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .collect();
    let is = |list: &[&str], word: &str| list.contains(&word);
    if words.is_empty()
        || !words
            .iter()
            .all(|word| is(&KEYS, word) || is(&THINGS, word) || is(&FILLERS, word))
    {
        return false;
    }
    let key = words.iter().any(|word| is(&KEYS, word));
    let thing = words.iter().any(|word| is(&THINGS, word));
    if dots {
        return key && (thing || words.len() <= 6);
    }
    // Without dots, only a comment with an unmistakable phrase counts.
    let phrase = lower.contains("rest of")
        || words
            .iter()
            .any(|word| matches!(*word, "unchanged" | "omitted" | "remains" | "remain"));
    let bare = lower == "same as before" || words.iter().all(|word| is(&["unchanged", "omitted", "rest"], word));
    comment && key && phrase && thing || comment && bare && lower != "rest"
}

/// A line without comment markers around it.
fn without_comment(line: &str) -> &str {
    const OPEN: [&str; 9] = ["<!--", "{/*", "/*", "///", "//", "--", "#", "%", ";"];
    const CLOSE: [&str; 3] = ["-->", "*/}", "*/"];
    let line = OPEN.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
    CLOSE
        .iter()
        .find_map(|mark| line.strip_suffix(mark))
        .unwrap_or(line)
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_told_from_text() {
        let placeholders = [
            "// ... existing code ...",
            "    # ... rest of the file unchanged ...",
            "/* rest of the code remains the same */",
            "<!-- rest of the file -->",
            "// (rest of methods ...)",
            "... rest of code ...",
            "// rest of the implementation",
            "{/* ... existing code ... */}",
            "# … unchanged …",
            "// ... other methods ...",
            "# ... other test cases here ...",
            "-- remaining functions unchanged",
            "(rest of method ...)",
            "fn a() { /* ... existing code ... */ }",
            "{ /* ... existing code ... */ }",
            "foo(); // ... rest of the code",
            "<div><!-- ... existing content ... --></div>",
            "// unchanged",
            "# omitted",
            "/* same as before */",
            "// rest unchanged",
        ];
        for line in placeholders {
            assert_eq!(first(&format!("a\n{line}\nb"), ""), Some(line.trim()), "{line}");
            assert_eq!(first(line, &format!("x\n  {line}\n")), None, "{line}");
        }
        let texts = [
            "// the rest of the code assumes that x > 0",
            "let rest = &text[1..];",
            "# Existing methods",
            "// other methods",
            "The rest of the file",
            "...",
            "let v = [..., 1];",
            "print(\"... existing code ...\")",
            "let a = 1; // unchanged since 1.2",
            "a /* the rest */ + b",
            "x = y  # same as before",
            "log(\"// ... existing code ...\")",
            "// rest",
            "let url = \"http://... rest of url\";",
            "// TODO: remaining work",
            "for (k, v) in rest {",
            "}",
            "",
            "// 3 remaining lines unchanged since v2",
        ];
        for line in texts {
            assert_eq!(first(line, ""), None, "{line}");
        }
    }
}

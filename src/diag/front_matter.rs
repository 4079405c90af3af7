//! Splits a Markdown file with YAML front matter. Pure.

/// The two parts of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontMatter<'a> {
    /// The YAML between the lines `---`.
    pub head: &'a str,
    /// Byte offset of `head` in the file.
    pub head_at: usize,
    /// The Markdown after it.
    pub body: &'a str,
    /// Byte offset of `body` in the file.
    pub body_at: usize,
}

/// The parts of a text that begins with a line `---` and has a second one. `None` for any other text.
pub fn front_matter(text: &str) -> Option<FrontMatter<'_>> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next()?;
    if first.trim_end() != "---" {
        return None;
    }
    let head_at = first.len();
    let mut at = head_at;
    for line in lines {
        if line.trim_end() == "---" {
            let body_at = at + line.len();
            return Some(FrontMatter {
                head: text.get(head_at..at)?,
                head_at,
                body: text.get(body_at..)?,
                body_at,
            });
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_have_their_places() {
        let text = "---\r\na: 1\r\n---\r\nbody\n";
        let parts = front_matter(text).unwrap();
        assert_eq!((parts.head, parts.body), ("a: 1\r\n", "body\n"));
        assert_eq!(&text[parts.body_at..], "body\n");
        assert_eq!(front_matter("---\nbody\n"), None);
        assert_eq!(front_matter("a\n---\n---\n"), None);
        assert_eq!(front_matter("---\n---").unwrap().head, "");
    }
}

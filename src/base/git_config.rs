//! Credentials in git's configuration files: finds them in a file's text, and writes the file again without them. Pure.
//!
//! A small strict reader of the format (`git-config(1)`). Text that it does not understand is not understood by git
//! either, and nothing of it is kept.

use super::percent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The most bytes of a configuration file that are read. Nothing of a longer one is kept.
pub const MOST_BYTES: usize = 1 << 20;

/// The first lines of a file without its credentials.
const NOTICE: &str = "# Credentials were removed from this copy: commands of the model see it in place of the file.\n";

/// Parts of a key's name that say that its value is a credential.
const SECRET_KEYS: [&str; 7] = [
    "extraheader",
    "passw",
    "smtppass",
    "token",
    "secret",
    "apikey",
    "api-key",
];
/// A key with such a part whose value is a switch.
const SWITCH: &str = "sslcertpasswordprotected";
/// Parts of a value, in small letters, that come before a credential.
const SECRET_TEXTS: [&str; 5] = ["authorization:", "bearer ", "password=", "sshpass ", "token="];

/// Tokens have at least as many bytes; some servers take them as the user of a URL.
const TOKEN: usize = 20;

/// A file without its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// What git reads in its place.
    pub text: Vec<u8>,
    /// The credentials, each with the name of its key.
    pub removed: Vec<(String, String)>,
}

/// The file without its credentials; `None` if there are none.
pub fn without_credentials(bytes: &[u8]) -> Option<Cleaned> {
    // Each byte as one character, so that a value in any encoding comes out as it went in.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let Some(entries) = (bytes.len() <= MOST_BYTES).then(|| read(&text)).flatten() else {
        return Some(Cleaned {
            text: NOTICE.as_bytes().to_vec(),
            removed: Vec::new(),
        });
    };
    let mut removed = Vec::new();
    let mut out = String::from(NOTICE);
    let mut section: Option<&Section> = None;
    for entry in &entries {
        let secret = entry.credentials();
        removed.extend(secret.into_iter().map(|value| (entry.name(), in_utf8(&value))));
        let bare = entry.section.parameter.as_deref().and_then(without_user);
        if let (Some((_, secret)), true) = (&bare, section != Some(&entry.section)) {
            removed.push((entry.section.name.clone(), in_utf8(secret)));
        }
        if section != Some(&entry.section) {
            let parameter = bare.map(|(url, _)| url).or_else(|| entry.section.parameter.clone());
            out.push_str(&header(&entry.section.name, parameter.as_deref()));
            section = Some(&entry.section);
        }
        out.push_str(&entry.line());
    }
    let text = out.chars().map(|one| u8::try_from(one).unwrap_or(b'?')).collect();
    (!removed.is_empty()).then_some(Cleaned { text, removed })
}

/// The text of bytes that were read as one character each.
fn in_utf8(text: &str) -> String {
    let bytes: Vec<u8> = text.chars().filter_map(|one| u8::try_from(one).ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// In small letters.
    name: String,
    /// What is in quotation marks after the name: a URL, a remote, a branch.
    parameter: Option<String>,
}

#[derive(Debug)]
struct Entry {
    section: Section,
    /// In small letters; empty for a section's header, which may have no key.
    key: String,
    /// `None` if there is no `=`.
    value: Option<String>,
}

impl Entry {
    fn name(&self) -> String {
        format!("{}.{}", self.section.name, self.key)
    }

    fn is_secret_key(&self) -> bool {
        self.key != SWITCH && SECRET_KEYS.iter().any(|part| self.key.contains(part))
    }

    /// Whether nothing of the value may be shown.
    fn is_secret(&self, value: &str) -> bool {
        let small = value.to_ascii_lowercase();
        self.is_secret_key() || SECRET_TEXTS.iter().any(|part| small.contains(part))
    }

    /// What must not be shown of the value.
    fn credentials(&self) -> Vec<String> {
        let Some(value) = self.value.as_deref().filter(|value| !value.is_empty()) else {
            return Vec::new();
        };
        if self.is_secret(value) {
            let mut parts = parts_of_secret(value);
            if self.is_secret_key() {
                parts.push(value.to_owned());
            }
            return parts;
        }
        without_user(value).map(|(_, secret)| secret).into_iter().collect()
    }

    /// The entry as a line; without its value if that is a credential.
    fn line(&self) -> String {
        let key = &self.key;
        match &self.value {
            _ if key.is_empty() => String::new(),
            None => format!("\t{key}\n"),
            Some(value) if !value.is_empty() && self.is_secret(value) => String::new(),
            Some(value) => {
                let value = without_user(value).map_or_else(|| value.clone(), |(url, _)| url);
                format!("\t{key} = \"{}\"\n", escaped(&value))
            }
        }
    }
}

/// The credentials in a value: the last word of a header, what that encodes, and what follows `password=` or `-p`. The
/// other words are no secrets: they are names of programs.
fn parts_of_secret(value: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let small = value.to_ascii_lowercase();
    let ends = |one: char| one.is_whitespace() || matches!(one, '"' | '\'' | ';' | '\\');
    if small.contains(':') || small.contains("bearer ") {
        let last = value.trim_end_matches(ends).rsplit(ends).next().unwrap_or_default();
        parts.push(last.to_owned());
        if let Some(decoded) = STANDARD
            .decode(last)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            && let Some((_, password)) = decoded.split_once(':')
        {
            parts.push(password.to_owned());
        }
    }
    for word in ["password=", "token=", "sshpass -p"] {
        if let Some(at) = small.find(word) {
            let after = value
                .get(at + word.len()..)
                .unwrap_or_default()
                .trim_start_matches(ends);
            parts.extend(after.split(ends).next().map(ToOwned::to_owned));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// A URL without its credential, and the credential. `None` if it has none: the user of `ssh://git@host` is a name.
fn without_user(text: &str) -> Option<(String, String)> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    let (user, host) = place.rsplit_once('@')?;
    let secret = match user.split_once(':') {
        Some((_, password)) => password,
        // A user without a password is a name, unless it is a token.
        None if scheme.ends_with("ssh") || user.len() < TOKEN => return None,
        None => user,
    };
    if secret.is_empty() {
        return None;
    }
    let decoded = String::from_utf8(percent::decode(secret)).unwrap_or_else(|_| secret.to_owned());
    let name = match user.split_once(':') {
        Some((name, _)) if scheme.ends_with("ssh") => format!("{name}@"),
        _ => String::new(),
    };
    Some((format!("{scheme}://{name}{host}{path}"), decoded))
}

fn header(name: &str, parameter: Option<&str>) -> String {
    match parameter {
        None => format!("[{name}]\n"),
        Some(parameter) => {
            let parameter = parameter.replace('\\', "\\\\").replace('"', "\\\"");
            format!("[{name} \"{parameter}\"]\n")
        }
    }
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for one in value.chars() {
        match one {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            one => out.push(one),
        }
    }
    out
}

/// All entries in order; a section's header is an entry without a key. `None` if git would refuse the file.
fn read(text: &str) -> Option<Vec<Entry>> {
    let text = text
        .strip_prefix("\u{ef}\u{bb}\u{bf}")
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let mut reader = Reader {
        rest: text.chars().peekable(),
    };
    let mut entries = Vec::new();
    let mut section: Option<Section> = None;
    while let Some(first) = reader.rest.next() {
        match first {
            one if one.is_ascii_whitespace() => {}
            '#' | ';' => reader.skip_line(),
            '[' => {
                let found = reader.section()?;
                entries.push(Entry {
                    section: found.clone(),
                    key: String::new(),
                    value: None,
                });
                section = Some(found);
            }
            one if one.is_ascii_alphabetic() => {
                let (key, value) = reader.entry(one)?;
                entries.push(Entry {
                    section: section.clone()?,
                    key,
                    value,
                });
            }
            _ => return None,
        }
    }
    Some(entries)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl Reader<'_> {
    fn skip_line(&mut self) {
        for one in self.rest.by_ref() {
            if one == '\n' {
                return;
            }
        }
    }

    /// What follows `[`.
    fn section(&mut self) -> Option<Section> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' => return Some(Section { name, parameter: None }),
                ' ' | '\t' => break,
                one if one.is_ascii_alphanumeric() || matches!(one, '-' | '.') => name.push(one.to_ascii_lowercase()),
                _ => return None,
            }
        }
        while self.rest.next_if(|one| matches!(one, ' ' | '\t')).is_some() {}
        let mut parameter = String::new();
        if self.rest.next()? != '"' {
            return None;
        }
        loop {
            match self.rest.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => parameter.push(self.rest.next().filter(|one| *one != '\n')?),
                one => parameter.push(one),
            }
        }
        (self.rest.next()? == ']').then_some(Section {
            name,
            parameter: Some(parameter),
        })
    }

    /// A key that begins with `first`, and its value.
    fn entry(&mut self, first: char) -> Option<(String, Option<String>)> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(one) = self.rest.next_if(|one| one.is_ascii_alphanumeric() || *one == '-') {
            key.push(one.to_ascii_lowercase());
        }
        while self.rest.next_if(|one| matches!(one, ' ' | '\t')).is_some() {}
        match self.rest.next() {
            None | Some('\n') => Some((key, None)),
            Some('=') => Some((key, Some(self.value()?))),
            Some(_) => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        // Blanks count only if something follows them.
        let mut blanks = String::new();
        let mut quoted = false;
        loop {
            let one = match self.rest.next() {
                None | Some('\n') if quoted => return None,
                None | Some('\n') => return Some(value),
                Some(one) => one,
            };
            match one {
                '#' | ';' if !quoted => {
                    self.skip_line();
                    return Some(value);
                }
                one if one.is_ascii_whitespace() && !quoted => {
                    if !value.is_empty() {
                        blanks.push(one);
                    }
                    continue;
                }
                _ => {}
            }
            value.push_str(&std::mem::take(&mut blanks));
            match one {
                '"' => quoted = !quoted,
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    'n' => value.push('\n'),
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    one @ ('\\' | '"') => value.push(one),
                    _ => return None,
                },
                one => value.push(one),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> Option<(String, Vec<String>)> {
        let cleaned = without_credentials(text.as_bytes())?;
        let values = cleaned.removed.into_iter().map(|(_, value)| value).collect();
        Some((String::from_utf8(cleaned.text).unwrap(), values))
    }

    #[test]
    fn a_file_without_credentials_needs_no_copy() {
        let text = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@github.com:o/r.git\n\
                    \tpushurl = https://some-user@github.com/o/r.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                    [credential]\n\thelper = store --file /x\n\thelper = !gh auth git-credential\n[core]\n\taskPass = /bin/ask\n[user]\n\tname = A # b\n";
        assert_eq!(cleaned(text), None);
        assert_eq!(cleaned(""), None);
    }

    #[test]
    fn credentials_go_and_everything_else_stays() {
        let header = STANDARD.encode("x-access-token:ghs_0123456789");
        let text = format!(
            "; old = tok\n[core]\n\tbare = false\n\tignorecase\n[http \"https://github.com/\"]\n\
             \textraheader = AUTHORIZATION: basic {header}\n[remote \"o\"]\n\turl = https://me:pa%40ss@h.example/r.git\n\
             \tfetch = \"+refs/*:refs/*\" ; all\n[url \"https://ghp_0123456789abcdefghij@h.example/\"]\n\tinsteadOf = https://h.example/\n\
             [credential]\n\thelper = \"!f() {{ echo password=hunter2secret; }}; f\"\n\thelper = cache\n[a]\n\tb = \"x\\\"y\\\\z\"\n"
        );
        let (copy, values) = cleaned(&text).unwrap();
        for secret in [
            header.as_str(),
            "ghs_0123456789",
            "pa%40ss",
            "ghp_0123456789abcdefghij",
            "hunter2secret",
            "old",
        ] {
            assert!(!copy.contains(secret), "{secret}: {copy}");
        }
        for value in [
            header.as_str(),
            "ghs_0123456789",
            "pa@ss",
            "ghp_0123456789abcdefghij",
            "hunter2secret",
        ] {
            assert!(values.iter().any(|found| found == value), "{value}: {values:?}");
        }
        let kept = "[core]\n\tbare = \"false\"\n\tignorecase\n[http \"https://github.com/\"]\n[remote \"o\"]\n\
                    \turl = \"https://h.example/r.git\"\n\tfetch = \"+refs/*:refs/*\"\n[url \"https://h.example/\"]\n\
                    \tinsteadof = \"https://h.example/\"\n[credential]\n\thelper = \"cache\"\n[a]\n\tb = \"x\\\"y\\\\z\"\n";
        assert_eq!(copy, format!("{NOTICE}{kept}"));
        assert_eq!(cleaned(&copy), None, "the copy has none");
    }

    #[test]
    fn nothing_of_what_git_does_not_understand_is_kept() {
        for text in [
            "token",
            "[a",
            "[a]\n= b",
            "[a]\n\tb = \"open",
            "[a]\n\tb c",
            "[a]\n\tb = \\q",
            "\tb = c",
        ] {
            assert_eq!(cleaned(text).unwrap(), (NOTICE.to_owned(), Vec::new()), "{text}");
        }
    }
}

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
/// A key with such a part whose value is only true or false.
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

/// Whether a file of this name in a git directory is a configuration file.
pub fn is_config(name: &str) -> bool {
    matches!(name, "config" | "config.worktree")
}

/// Whether a file of this name in a git directory holds settings or credentials. Git must read the other files.
pub fn is_settings(name: &str) -> bool {
    is_config(name) || matches!(name, "credentials" | ".git-credentials")
}

/// The file without its credentials; `None` if there are none.
pub fn without_credentials(bytes: &[u8]) -> Option<Cleaned> {
    // Each byte as one character, so that a value in any encoding comes out as it went in.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let Some(sections) = (bytes.len() <= MOST_BYTES).then(|| read(&text)).flatten() else {
        return Some(Cleaned {
            text: NOTICE.as_bytes().to_vec(),
            removed: Vec::new(),
        });
    };
    let mut removed = Vec::new();
    let mut out = String::from(NOTICE);
    for section in &sections {
        let (parameter, secrets) = section.parameter.as_deref().map(without_users).unzip();
        let secrets = secrets.unwrap_or_default();
        removed.extend(secrets.iter().map(|value| (section.name.clone(), in_utf8(value))));
        out.push_str(&header(&section.name, parameter.as_deref()));
        for entry in &section.entries {
            let name = format!("{}.{}", section.name, entry.key);
            let secrets = entry.credentials();
            removed.extend(secrets.iter().map(|value| (name.clone(), in_utf8(value))));
            out.push_str(&entry.line());
        }
    }
    let text = out.chars().map(|one| u8::try_from(one).unwrap_or(b'?')).collect();
    (!removed.is_empty()).then_some(Cleaned { text, removed })
}

/// The text of bytes that were read as one character each.
fn in_utf8(text: &str) -> String {
    let bytes: Vec<u8> = text.chars().filter_map(|one| u8::try_from(one).ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug)]
struct Section {
    /// In small letters.
    name: String,
    /// What is in quotation marks after the name: a URL, a remote, a branch.
    parameter: Option<String>,
    /// In order.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// In small letters.
    key: String,
    /// `None` if there is no `=`.
    value: Option<String>,
}

impl Entry {
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
        let (_, mut parts) = without_users(value);
        if self.is_secret(value) {
            parts.extend(parts_of_secret(value));
        }
        if self.is_secret_key() {
            parts.push(value.to_owned());
        }
        parts
    }

    /// The entry as a line; without its value if that is a credential.
    fn line(&self) -> String {
        let key = &self.key;
        match &self.value {
            None => format!("\t{key}\n"),
            Some(value) if !value.is_empty() && self.is_secret(value) => String::new(),
            Some(value) => {
                let (value, _) = without_users(value);
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
        for (at, _) in small.match_indices(word) {
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

/// A text without the credentials of the URLs in it, and the credentials: an alias may name several URLs, and one of a
/// mirror has another in its path.
fn without_users(text: &str) -> (String, Vec<String>) {
    let mut parts = text.split("://");
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut secrets = Vec::new();
    for rest in parts {
        let bare = without_user(&out, rest);
        out.push_str("://");
        match bare {
            Some((bare, secret)) => {
                out.push_str(&bare);
                secrets.push(secret);
            }
            None => out.push_str(rest),
        }
    }
    (out, secrets)
}

/// What follows `://` without its credential, and the credential; `before` ends with the URL's scheme. `None` if it has
/// none: the user of `ssh://git@host` is a name.
fn without_user(before: &str, rest: &str) -> Option<(String, String)> {
    let is_ssh = before.ends_with("ssh");
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    let (user, host) = place.rsplit_once('@')?;
    let secret = match user.split_once(':') {
        Some((_, password)) => password,
        // A user without a password is a name, unless it is a token.
        None if is_ssh || user.len() < TOKEN => return None,
        None => user,
    };
    if secret.is_empty() {
        return None;
    }
    let decoded = String::from_utf8(percent::decode(secret)).unwrap_or_else(|_| secret.to_owned());
    let name = match user.split_once(':') {
        Some((name, _)) if is_ssh => format!("{name}@"),
        _ => String::new(),
    };
    Some((format!("{name}{host}{path}"), decoded))
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

/// All sections in order. `None` if git would refuse the file.
fn read(text: &str) -> Option<Vec<Section>> {
    let text = text
        .strip_prefix("\u{ef}\u{bb}\u{bf}")
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let mut reader = Reader {
        rest: text.chars().peekable(),
    };
    let mut sections: Vec<Section> = Vec::new();
    while let Some(first) = reader.rest.next() {
        match first {
            one if one.is_ascii_whitespace() => {}
            '#' | ';' => reader.skip_line(),
            '[' => sections.push(reader.section()?),
            one if one.is_ascii_alphabetic() => sections.last_mut()?.entries.push(reader.entry(one)?),
            _ => return None,
        }
    }
    Some(sections)
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

    /// What follows `[`, as a section that has no entries yet.
    fn section(&mut self) -> Option<Section> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' => {
                    return Some(Section {
                        name,
                        parameter: None,
                        entries: Vec::new(),
                    });
                }
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
            entries: Vec::new(),
        })
    }

    /// A key that begins with `first`, and its value.
    fn entry(&mut self, first: char) -> Option<Entry> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(one) = self.rest.next_if(|one| one.is_ascii_alphanumeric() || *one == '-') {
            key.push(one.to_ascii_lowercase());
        }
        while self.rest.next_if(|one| matches!(one, ' ' | '\t')).is_some() {}
        let value = match self.rest.next() {
            None | Some('\n') => None,
            Some('=') => Some(self.value()?),
            Some(_) => return None,
        };
        Some(Entry { key, value })
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
    fn every_credential_of_a_value_goes() {
        let text = "[url \"https://mirror.example/https://me:first1@h.example/\"]\n\tinsteadOf = x\n[alias]\n\
                    \tboth = !git push https://a.example && git push https://me:second2@b.example/r && git push ssh://me:third3@c.example/r\n\
                    \tcall = !curl --data token=fourth4 --data token=fifth5 https://me:sixth6@d.example/\n";
        let (copy, values) = cleaned(text).unwrap();
        for value in ["first1", "second2", "third3", "fourth4", "fifth5", "sixth6"] {
            assert!(values.iter().any(|found| found == value), "{value}: {values:?}");
        }
        let kept = "[url \"https://mirror.example/https://h.example/\"]\n\tinsteadof = \"x\"\n[alias]\n\
                    \tboth = \"!git push https://a.example && git push https://b.example/r && git push ssh://me@c.example/r\"\n";
        assert_eq!(copy, format!("{NOTICE}{kept}"));
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

//! Credentials in git's configuration files: finds them in a file's text, and writes the file again without them. Pure.
//!
//! A small strict reader of the format (`git-config(1)`). Text that it does not understand is not understood by git
//! either, and nothing of it is kept.

use super::percent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};

/// The most bytes of a configuration file that is written again without its credentials. Nothing of a longer one is kept.
pub const MOST_BYTES: usize = 1 << 20;
/// The most bytes of one whose credentials are found.
pub const MOST_SEARCHED: usize = 16 << 20;

/// The first lines of a file without its credentials.
const NOTICE: &str = "# Credentials were removed from this copy: commands of the model see it in place of the file.\n";

/// Parts of a key's name with which its value is left out of the copy.
const SECRET_KEYS: [&str; 7] = [
    "extraheader",
    "passw",
    "smtppass",
    "token",
    "secret",
    "apikey",
    "api-key",
];
/// The one key with such a part whose value is a boolean.
const SWITCH: &str = "sslcertpasswordprotected";
/// Parts of a value, in small letters, with which it is left out.
const SECRET_TEXTS: [&str; 7] = [
    "authorization:",
    "bearer ",
    "password=",
    "sshpass ",
    "sshpass\t",
    "sshpass\n",
    "token=",
];
/// Ends of the names of keys whose value is a password, which may contain blanks.
const PASSWORD_KEYS: [&str; 4] = ["password", "passwd", "passphrase", "smtppass"];
/// Ends of the names of keys whose value is a token, which contains none.
const TOKEN_KEYS: [&str; 6] = ["token", "secret", "apikey", "api-key", "secretkey", "secret-key"];
/// The key of a header that git sends with each request: its last word is the credential.
const HEADER_KEY: &str = "extraheader";
/// What separates the words of a command.
const ENDS: [char; 7] = [' ', '\t', '\n', '"', '\'', ';', '\\'];
/// A text of this many letters counts as a token, not as a word of a language.
const LONG_WORD: usize = 20;

/// Ends of the names of earlier and unfinished versions of a file; editors also write `.NAME.swp`.
const LEFT: [&str; 6] = [".bak", ".lock", ".old", ".orig", ".save", "~"];

/// Tokens have at least as many bytes; some servers take them as the user of a URL.
const TOKEN: usize = 20;

/// A file without its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// What git reads in its place.
    pub text: Vec<u8>,
    /// The credentials that can be told from ordinary words, each with the name of its key. More than these was left out:
    /// names of variables, commands, and values that are words.
    pub secrets: Vec<(String, String)>,
}

/// Whether a file of this name in a git directory is a configuration file, or a backup or lock file of one.
pub fn is_config(name: &str) -> bool {
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = match name.rsplit_once(".sw") {
        Some((name, end)) if end.len() == 1 => name,
        _ => name,
    };
    let name = LEFT.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    matches!(name, "config" | "config.worktree")
}

/// Whether a directory of this name, beside the `HEAD` of a git directory, has no settings below it: objects, and names
/// that people gave to branches.
pub fn holds_no_settings(name: &str) -> bool {
    matches!(name, "objects" | "refs" | "logs" | "lfs")
}

/// Whether a file of this name in a git directory holds settings or credentials. Git must read the other files.
pub fn is_settings(name: &str) -> bool {
    is_config(name) || matches!(name, "credentials" | ".git-credentials")
}

/// The file without its credentials; `None` if there are none.
pub fn without_credentials(bytes: &[u8]) -> Option<Cleaned> {
    let read = match bytes.len() > MOST_BYTES {
        true => None,
        false => sections(bytes),
    };
    let Some(sections) = read else {
        return Some(Cleaned {
            text: NOTICE.as_bytes().to_vec(),
            secrets: Vec::new(),
        });
    };
    let mut is_changed = false;
    let mut out = String::from(NOTICE);
    for section in &sections {
        let (parameter, found) = section.parameter.as_deref().map(without_users).unzip();
        is_changed |= found.is_some_and(|found| !found.is_empty());
        out.push_str(&header(&section.name, parameter.as_deref()));
        for entry in &section.entries {
            let (line, is_whole) = entry.line();
            is_changed |= !is_whole;
            out.push_str(&line);
        }
    }
    let text = out.chars().map(|one| u8::try_from(one).unwrap_or(b'?')).collect();
    let secrets = sections.iter().flat_map(Section::secrets).collect();
    is_changed.then_some(Cleaned { text, secrets })
}

/// As [`Cleaned::secrets`], also of a file that is too long to be written again. None of one with more than
/// [`MOST_SEARCHED`] bytes.
pub fn secrets(bytes: &[u8]) -> Vec<(String, String)> {
    let sections = sections(bytes).unwrap_or_default();
    sections.iter().flat_map(Section::secrets).collect()
}

/// The paths of the files that git reads as parts of this one, as they are written in it.
pub fn included(bytes: &[u8]) -> Vec<String> {
    let sections = sections(bytes).unwrap_or_default();
    let including = sections
        .iter()
        .filter(|section| matches!(section.name.as_str(), "include" | "includeif"));
    let paths = including
        .flat_map(|section| &section.entries)
        .filter(|entry| entry.key == "path");
    paths.filter_map(|entry| entry.value.as_deref().map(in_utf8)).collect()
}

/// The path of the file that `config` includes as `named`. `None` if it depends on a home directory that is not known.
pub fn included_path(config: &Path, named: &str, home: Option<&Path>) -> Option<PathBuf> {
    match named.strip_prefix("~/") {
        Some(below) => Some(home?.join(below)),
        None => Some(config.parent()?.join(named)),
    }
}

fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    if bytes.len() > MOST_SEARCHED {
        return None;
    }
    // Each byte as one character, so that a value in any encoding comes out as it went in.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    read(&text)
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

impl Section {
    /// Each credential that can be redacted, with the name of its key.
    fn secrets(&self) -> Vec<(String, String)> {
        let (_, found) = self.parameter.as_deref().map(without_users).unwrap_or_default();
        let of_section = found.into_iter().filter(|value| is_telling(value));
        let mut all: Vec<(String, String)> = of_section.map(|value| (self.name.clone(), in_utf8(&value))).collect();
        for entry in &self.entries {
            let name = format!("{}.{}", self.name, entry.key);
            let values = entry.credentials().into_iter();
            all.extend(values.map(|value| (name.clone(), in_utf8(&value))));
        }
        all
    }
}

#[derive(Debug)]
struct Entry {
    /// In small letters.
    key: String,
    /// `None` if there is no `=`.
    value: Option<String>,
}

impl Entry {
    /// Whether nothing of the value may be shown.
    fn is_secret(&self, value: &str) -> bool {
        let small = value.to_ascii_lowercase();
        let named = self.key != SWITCH && SECRET_KEYS.iter().any(|part| self.key.contains(part));
        named || SECRET_TEXTS.iter().any(|part| small.contains(part))
    }

    /// The value without the credentials of URLs and of the address of a proxy, and the credentials.
    fn without_users(&self, value: &str) -> (String, Vec<String>) {
        // As curl takes it, a proxy needs no scheme.
        let address = (self.key.ends_with("proxy") && !value.contains("://"))
            .then(|| without_user("", value))
            .flatten();
        match address {
            Some((bare, secret)) => (bare, vec![secret]),
            None => without_users(value),
        }
    }

    /// The credentials of the value that can be redacted.
    fn credentials(&self) -> Vec<String> {
        let Some(value) = self.value.as_deref().filter(|value| !value.is_empty()) else {
            return Vec::new();
        };
        let ends_with = |words: &[&str]| words.iter().any(|word| self.key.ends_with(word));
        let has_blanks = value.contains(char::is_whitespace);
        let (_, mut of_urls) = self.without_users(value);
        let mut parts = parts_of_command(value);
        if self.key == HEADER_KEY {
            parts.extend(of_header(value));
        }
        if ends_with(&PASSWORD_KEYS) || (ends_with(&TOKEN_KEYS) && !has_blanks) {
            parts.push(value.to_owned());
        }
        // In a URL that git itself takes, `$` begins no variable, and a password may begin as a path does.
        let is_command = value.starts_with('!') || has_blanks;
        of_urls.retain(|secret| match is_command {
            true => is_literal(secret),
            false => is_telling(secret),
        });
        parts.retain(|part| is_literal(part));
        of_urls.extend(parts);
        of_urls
    }

    /// The entry as a line, and whether it is whole: without its value if that is a credential.
    fn line(&self) -> (String, bool) {
        let key = &self.key;
        match &self.value {
            None => (format!("\t{key}\n"), true),
            Some(value) if !value.is_empty() && self.is_secret(value) => (String::new(), false),
            Some(value) => {
                let (value, secrets) = self.without_users(value);
                (format!("\t{key} = \"{}\"\n", escaped(&value)), secrets.is_empty())
            }
        }
    }
}

/// The last word of a header, and the password that it encodes; none if a shell makes the header.
fn of_header(value: &str) -> Vec<String> {
    if value.contains(['$', '`']) {
        return Vec::new();
    }
    let last = value.trim_end_matches(ENDS).rsplit(ENDS).next().unwrap_or_default();
    let decoded = STANDARD.decode(last).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let password = decoded.as_deref().and_then(|text| text.split_once(':'));
    let password = password.map(|(_, password)| password.to_owned());
    std::iter::once(last.to_owned()).chain(password).collect()
}

/// What may be a credential in a command: the last word of a header, and what follows `bearer`, `password=` or
/// `sshpass -p`. The other words are no secrets: they are names of programs.
fn parts_of_command(value: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for rest in behind(value, "authorization:") {
        let is_whole = rest.len() + "authorization:".len() == value.len();
        match rest.split_once(['"', '\'']) {
            Some((header, _)) => parts.extend(of_header(header)),
            None if is_whole => parts.extend(of_header(rest)),
            // Where the header ends is not known.
            None => {}
        }
    }
    for rest in behind(value, "bearer ") {
        parts.extend(rest.trim_start().split(ENDS).next().map(ToOwned::to_owned));
    }
    let ends = |one: char| ENDS.contains(&one) || matches!(one, '&' | '|');
    for rest in ["password=", "token="].iter().flat_map(|word| behind(value, word)) {
        // What begins behind a blank is another word of the command.
        let rest = rest.trim_start_matches(['"', '\'', '\\']);
        parts.extend(rest.split(ends).next().map(ToOwned::to_owned));
    }
    parts.extend(behind(value, "sshpass").into_iter().filter_map(of_sshpass));
    parts
}

/// What follows each occurrence of a word (in small letters).
fn behind<'v>(value: &'v str, word: &str) -> Vec<&'v str> {
    let small = value.to_ascii_lowercase();
    let found = small.match_indices(word).map(|(at, _)| at + word.len());
    found.filter_map(|at| value.get(at..)).collect()
}

/// The password among the options of `sshpass`, which follow its name.
fn of_sshpass(options: &str) -> Option<String> {
    let mut words = options.split(ENDS).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        match word {
            "-p" => return words.next().map(ToOwned::to_owned),
            "-P" | "-d" | "-f" => {
                words.next();
            }
            word if word.starts_with("-p") => return word.get(2..).map(ToOwned::to_owned),
            word if word.starts_with('-') => {}
            _ => return None,
        }
    }
    None
}

/// Whether a value of a command or a key can be redacted wherever it occurs: no variable or command, no path or URL, and no
/// words.
fn is_literal(value: &str) -> bool {
    let is_evaluated = value.contains(['$', '`']) || value.contains("%s") || value.starts_with('!');
    let is_path = ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start)) || value.contains("://");
    !is_evaluated && !is_path && is_telling(value)
}

/// Whether a value consists of more than words and the name of a variable, which honest texts contain.
fn is_telling(value: &str) -> bool {
    let value = value.strip_prefix('$').unwrap_or(value);
    let mut words = value.split(|one: char| one.is_ascii_whitespace() || "-_./:=,<>{}[]()".contains(one));
    !words.all(is_word)
}

/// Whether a text consists of letters as a word or a name in a program (`accessToken`) does.
fn is_word(text: &str) -> bool {
    let capitals = text.chars().filter(char::is_ascii_uppercase).count();
    let is_usual = capitals == text.len() || capitals * 4 <= text.len().max(4);
    text.len() < LONG_WORD && text.chars().all(|one| one.is_ascii_alphabetic()) && is_usual
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
        let values = cleaned.secrets.into_iter().map(|(_, value)| value).collect();
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
    fn only_literal_credentials_are_redacted() {
        for line in [
            "helper = \"!f() { echo username=x-access-token; echo \\\"password=$GITHUB_TOKEN\\\"; }; f\"",
            "helper = \"!f() { echo \\\"url=https://github.com\\\"; echo \\\"password=${DEPLOY_PASSWORD}\\\"; }; git-credential-wrapper\"",
            "helper = \"!f() { printf 'password=%s\\\\n' \\\"$(cat /run/secret1)\\\"; echo \\\"password=\\\" program-1; }; f\"",
            "helper = \"!curl -H \\\"Authorization: Basic $(base64 --wrap=0 file-1)\\\" -H 'Authorization: Bearer `cat x1`' file-22.json\"",
            "tokencommand = /usr/local/bin/vault-read-it1",
            "allowsecrets = production1",
            "token = /run/secrets/token-1",
            "token = !pass show token-1",
            "token = vault read token-1",
            "secret = https://vault.example/v1/token",
            "password = production",
            "apiKey = GITHUB_TOKEN",
            "token = accessTokenName",
            "call = !sshpass -e ssh host-number-1",
            "call = !sshpass -f file-number-1 ssh host-number-1",
        ] {
            let found = cleaned(&format!("[a]\n\t{line}\n"));
            assert!(
                found.as_ref().is_none_or(|(_, values)| values.is_empty()),
                "{line}: {found:?}"
            );
        }
        for (line, value) in [
            ("call = !sshpass  -p hunter22 ssh x", "hunter22"),
            ("call = !sshpass -v -P prompt1 -p 'hunter22' ssh x", "hunter22"),
            ("call = !sshpass -phunter22 ssh x", "hunter22"),
            (
                "call = \"!curl -H 'Authorization: token ghp_0123' https://h.example/x1\"",
                "ghp_0123",
            ),
            ("call = \"!curl -H \\\"PRIVATE: Bearer ghp_0123\\\" x1\"", "ghp_0123"),
            ("call = !curl --data password=hunter22&user=me1 x", "hunter22"),
            ("extraHeader = X-Token: ghp_0123", "ghp_0123"),
            ("smtpPass = correct horse 22", "correct horse 22"),
            ("oauthClientSecret = dGVzdGVyb", "dGVzdGVyb"),
            ("token = abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
            ("proxy = me:hunter22@proxy.example:8080", "hunter22"),
            ("proxy = http://me:hunter22@proxy.example:8080", "hunter22"),
        ] {
            let (copy, mut values) = cleaned(&format!("[a]\n\t{line}\n")).unwrap();
            values.dedup();
            assert_eq!(values, [value], "{line}");
            assert!(!copy.contains(value), "{copy}");
            assert_eq!(cleaned(&copy), None, "{copy}");
        }
    }

    #[test]
    fn a_password_of_a_url_is_one_whatever_it_begins_with() {
        for (url, value) in [
            ("https://me:pa$$w0rd9x@h.example/r.git", "pa$$w0rd9x"),
            ("https://me:$w0rd9x@h.example/r.git", "$w0rd9x"),
            ("https://me:%2Fq3ZxY8vN2pLk0@h.example/r.git", "/q3ZxY8vN2pLk0"),
            ("https://me:!q3ZxY8vN2@h.example/r.git", "!q3ZxY8vN2"),
        ] {
            let (copy, values) = cleaned(&format!("[remote \"o\"]\n\turl = {url}\n")).unwrap();
            assert_eq!(values, [value], "{url}");
            assert!(!copy.contains("me:"), "{copy}");
            let (_, values) = cleaned(&format!("[url \"{url}\"]\n\tinsteadOf = x\n")).unwrap();
            assert_eq!(values, [value], "{url}");
        }
        for url in [
            "https://me:${GITHUB_TOKEN}@h.example/r.git",
            "https://me:$GITHUB_TOKEN@h.example/r.git",
            "https://me:password@h.example/r.git",
        ] {
            let (_, values) = cleaned(&format!("[remote \"o\"]\n\turl = {url}\n")).unwrap();
            assert_eq!(values, [""; 0], "{url}");
        }
    }

    #[test]
    fn credentials_of_a_long_file_are_found() {
        let text = format!(
            "# {}\n[http]\n\textraheader = AUTHORIZATION: bearer ghs_0123456789abcdef\n",
            "x".repeat(MOST_BYTES)
        );
        assert_eq!(cleaned(&text).unwrap(), (NOTICE.to_owned(), Vec::new()), "no copy");
        let found = secrets(text.as_bytes());
        assert!(
            found.iter().any(|(_, value)| value == "ghs_0123456789abcdef"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_no_literal_is_left_out_all_the_same() {
        for line in ["call = !sshpass  -p pw ssh x", "password = production", "smtppass = x"] {
            let (copy, _) = cleaned(&format!("[a]\n\t{line}\n")).unwrap();
            assert_eq!(copy, format!("{NOTICE}[a]\n"));
        }
    }

    #[test]
    fn earlier_versions_of_a_configuration_are_some_too() {
        for name in [
            "config",
            "config.worktree",
            "config~",
            "config.bak",
            "config.orig",
            "config.lock",
            ".config.swp",
            "config.worktree~",
        ] {
            assert!(is_config(name), "{name}");
        }
        for name in ["", "configs", "config.rs", "HEAD", "credentials", "~", ".swp"] {
            assert!(!is_config(name), "{name}");
        }
    }

    #[test]
    fn included_files_are_told() {
        let text = "[include]\n\tpath = creds.inc\n\tpath = \"../b c\"\n[includeIf \"gitdir:/x/\"]\n\tPath = ~/d\n[core]\n\tpath = e\n";
        assert_eq!(included(text.as_bytes()), ["creds.inc", "../b c", "~/d"]);
        assert_eq!(included(b"[include"), [""; 0]);
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

//! The secret parts of a structured value: JSON, connection strings, URLs and lists of headers. A program that reads such a
//! value prints its parts, not the whole.

use super::MIN_BYTES;
use super::names::{has_secret_word, is_address_name, is_secret_name, is_secret_value, is_setting};
use crate::base::percent;
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// Upper limit in bytes for a value that is searched for parts; Linux allows 128 KiB for one variable.
const MAX_VALUE: usize = 128 << 10;
/// Upper limit for the parts of one value.
const MAX_PARTS: usize = 64;
/// Upper limit for the nesting of structures, for example a URL in a connection string in JSON.
const MAX_DEPTH: usize = 5;
/// Lower limit for the length of a run of letters and digits that counts as random.
const MIN_RANDOM: usize = 16;
/// Suffixes of keys whose values are secret in any variable; keys are compared without separators and in lower case.
const SECRET_ENDS: [&str; 18] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "secretkey",
    "signingkey",
    "encryptionkey",
    "authkey",
    "clientkey",
    "masterkey",
    "sharedaccesssignature",
    "authorization",
];
/// Suffixes of keys that contain a word for a secret but name something else: `token_uri`, `SharedAccessKeyName`.
const OTHER_ENDS: [&str; 10] = [
    "uri", "url", "name", "type", "id", "file", "path", "email", "endpoint", "expires",
];
/// The ends of keys that name a user, a database or a host.
const USER_ENDS: [&str; 9] = [
    "user", "username", "userid", "uid", "login", "database", "dbname", "catalog", "host",
];
/// The scheme of a credential in a header.
const AUTH_SCHEMES: [&str; 5] = ["bearer", "basic", "token", "apikey", "digest"];
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secrets among the variables: values of variables with secret names, and the secret parts of structured values (URLs,
/// connection strings, lists of headers, JSON) of any variable.
pub(super) fn secrets(vars: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, value) in vars {
        let named = is_secret_name(&name);
        let parts = secret_parts(&value, named);
        // An address without a secret in it is printed by many programs. With the word of a secret in the name the value is
        // secret as a whole: `JDBC_PASSWORD`.
        let upper = name.to_ascii_uppercase();
        let address = is_address_name(&upper) && !has_secret_word(&upper);
        if named && is_secret_value(&name, &value) && !(address && parts.is_empty()) {
            found.push((name.clone(), value));
        }
        found.extend(parts.into_iter().map(|part| (name.clone(), part)));
    }
    found
}

/// The secret parts of a variable's value, each at least [`MIN_BYTES`] long. `named`: the variable's name says that it
/// contains a secret; then parts that look random count too.
pub(super) fn secret_parts(value: &str, named: bool) -> Vec<String> {
    let mut search = Search {
        named,
        found: Vec::new(),
        users: Vec::new(),
    };
    if value.len() <= MAX_VALUE {
        search.value(value.trim(), 0);
    }
    // A password that is the name of the user or of the database is a word that stands in many texts.
    let Search { users, found, .. } = &mut search;
    found.retain(|part| !users.contains(part));
    search.found.sort();
    search.found.dedup();
    search.found
}

struct Search {
    named: bool,
    found: Vec<String>,
    /// The values of fields that name a user, a database or a host.
    users: Vec<String>,
}

impl Search {
    fn value(&mut self, value: &str, depth: usize) {
        if depth > MAX_DEPTH || value.len() < MIN_BYTES {
            return;
        }
        if value.starts_with(['{', '['])
            && let Ok(json) = serde_json::from_str::<Value>(value)
        {
            return self.json("", &json, depth);
        }
        if value.contains("://") || value.starts_with("jdbc:") {
            // A password may contain what separates several URLs.
            if let Some((user, password)) = url_login(value) {
                self.add(password, user);
            }
            // Several brokers or servers may stand in one value.
            for url in value.split([',', ' ', '\n', '\t']) {
                self.url(url, depth);
            }
        }
        for field in fields(value) {
            self.field(field.trim(), depth);
        }
        if self.named {
            self.mysql(value);
        }
    }

    /// `key=value`, or `Key: value` as in a list of headers.
    fn field(&mut self, field: &str, depth: usize) {
        let Some((key, value)) = field.split_once(['=', ':']) else {
            return;
        };
        if !is_key(key) || value.starts_with("//") {
            return;
        }
        let value = value.trim().trim_matches(['"', '\'']);
        if self.is_secret_key(key) || (self.named && is_random(value)) {
            self.secret(value, depth);
        } else {
            self.name_user(key, value);
        }
    }

    fn json(&mut self, key: &str, value: &Value, depth: usize) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| self.json(key, value, depth)),
            Value::Array(items) => items.iter().for_each(|item| self.json(key, item, depth)),
            Value::String(text)
                if self.is_secret_key(key)
                    || (self.named && is_random(text))
                    || (key.ends_with("auth") && login(text).is_some()) =>
            {
                self.secret(text, depth);
            }
            Value::String(text) => {
                self.name_user(key, text);
                self.value(text.trim(), depth + 1);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds the value of a secret key, also without the authentication scheme of a header, and the password if it is
    /// base64 of `user:password`.
    fn secret(&mut self, value: &str, depth: usize) {
        if is_address(value) {
            return self.value(value, depth + 1);
        }
        self.add(value, "");
        let bare = value.split_once([' ', '+']).or_else(|| value.split_once("%20"));
        let bare = bare.filter(|(scheme, _)| AUTH_SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()));
        let bare = bare.map_or(value, |(_, credential)| credential.trim());
        if bare.len() < value.len() {
            self.add(bare, "");
        }
        if let Some((user, password)) = login(bare) {
            self.add(&password, &user);
        }
    }

    fn url(&mut self, text: &str, depth: usize) {
        let text = text.trim_matches(['"', '\'']);
        // `jdbc:oracle:thin:user/password@//host`
        if let Some(rest) = text.strip_prefix("jdbc:oracle:")
            && let Some((_, rest)) = rest.split_once(':')
            && let Some((user, password)) = rest.rsplit_once('@').and_then(|(login, _)| login.split_once('/'))
        {
            self.add(password, user);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return;
        };
        if scheme.is_empty()
            || !scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+.-:".contains(&b))
        {
            return;
        }
        let end = rest.find(['/', '?', '#', ';']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if let Some((login, _)) = authority.rsplit_once('@') {
            match login.split_once(':') {
                Some((user, password)) => {
                    self.add(password, user);
                    // The token may be in the place of the user, with an empty password or an ordinary word.
                    if is_random(user) {
                        self.add(user, "");
                    }
                }
                None if is_random(login) => self.add(login, ""),
                None => {}
            }
        }
        let (path, query) = rest.split_once(['?', '#', ';']).unwrap_or((rest, ""));
        for field in query.split(['&', ';', '#', '?']) {
            let Some((key, value)) = field.split_once('=') else {
                continue;
            };
            let signs = matches!(
                key.to_ascii_lowercase().as_str(),
                "sig" | "signature" | "x-amz-signature"
            );
            if signs || self.is_secret_key(key) || (is_random(value) && is_secret_name(key)) {
                self.secret(value, depth);
            }
        }
        if self.named {
            for segment in path.split('/').filter(|segment| is_random(segment)) {
                self.add(segment, "");
            }
        }
    }

    /// The password in `user:password@tcp(host:3306)/name`, the format of Go's MySQL driver.
    fn mysql(&mut self, value: &str) {
        let login = value.split_once("@tcp(").or_else(|| value.split_once("@unix("));
        if let Some((user, password)) = login.and_then(|(login, _)| login.split_once(':')) {
            self.add(password, user);
        }
    }

    /// Notes the name of a user, a database or a host. What looks random stays secret wherever it stands.
    fn name_user(&mut self, key: &str, value: &str) {
        let plain = plain_key(key);
        if USER_ENDS.iter().any(|end| plain.ends_with(end)) && !is_random(value) {
            self.users.push(value.to_owned());
        }
    }

    fn is_secret_key(&self, key: &str) -> bool {
        let plain = plain_key(key);
        let ends = |ends: &[&str]| ends.iter().any(|end| plain.ends_with(end));
        let loosely = || self.named && is_secret_name(&key.trim().replace(['-', '.', ' '], "_")) && !ends(&OTHER_ENDS);
        ends(&SECRET_ENDS) || loosely()
    }

    /// Adds a part, both as it is and without percent encoding, unless it may be an ordinary word: it is short, a usual
    /// word of settings, or equal to the name of the user.
    fn add(&mut self, part: &str, user: &str) {
        let decoded = String::from_utf8(percent::decode(part)).unwrap_or_default();
        for part in [part, decoded.as_str()] {
            let placeholder = part.starts_with(['$', '<', '{', '%']) && part.ends_with(['}', '>', '%', ')']);
            let path = part.starts_with(['/', '~', '.']) && !part.contains(['\n', '=', '+']) && part.contains('/');
            let word = is_setting(part) || part == user || placeholder || path;
            if part.len() >= MIN_BYTES
                && !word
                && self.found.len() < MAX_PARTS
                && !self.found.iter().any(|had| had == part)
            {
                self.found.push(part.to_owned());
            }
        }
    }
}

/// A key without separators and in lower case.
fn plain_key(key: &str) -> String {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// The user and the password of a value that is one URL, whatever characters the password has.
fn url_login(value: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = value.split_once("://")?;
    let sound = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let authority = rest.split(['/', '?', '#']).next().filter(|_| sound)?;
    let (login, _) = authority.rsplit_once('@')?;
    login.split_once(':')
}

/// The user and the password in base64 of `user:password`.
fn login(text: &str) -> Option<(String, String)> {
    let decoded = String::from_utf8(BASE64.decode(text).ok()?).ok()?;
    let (user, password) = decoded
        .split_once(':')
        .filter(|_| !decoded.contains(char::is_control))?;
    Some((user.to_owned(), password.to_owned()))
}

/// The fields of a connection string (between `;`), of a list of headers (in lines or between `,`), or of words with
/// `key=value`; the whole value if it is none of these. A separator in a quoted value does not end it.
fn fields(value: &str) -> Vec<&str> {
    for separators in [&[';'][..], &['\n'], &[','], &[' ', '\t']] {
        let (mut found, mut begin, mut quote, mut last) = (Vec::new(), 0, None, ' ');
        for (at, c) in value.char_indices() {
            match quote {
                Some(open) if c == open => quote = None,
                None if last == '=' && matches!(c, '"' | '\'') => quote = Some(c),
                None if separators.contains(&c) => {
                    found.extend(value.get(begin..at));
                    begin = at + c.len_utf8();
                }
                _ => {}
            }
            last = c;
        }
        found.extend(value.get(begin..));
        // Padding of base64 must not be taken for a value.
        let has_value = |value: &str| !value.trim_matches(['=', ' ']).is_empty();
        let has_key = |field: &&&str| {
            let pair = field.split_once(['=', ':']);
            pair.is_some_and(|(key, value)| is_key(key) && has_value(value))
        };
        if found.iter().filter(has_key).count() > 1 {
            return found;
        }
    }
    vec![value]
}

/// Whether a text may be the key of a field.
fn is_key(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-. ".contains(&byte))
}

/// Whether a value is a URL, which is not secret as a whole: `https://oauth2.googleapis.com/token`.
fn is_address(value: &str) -> bool {
    let scheme = value.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+.-:".contains(&b))
    })
}

/// Whether a text contains a long run of letters and digits. Words, host names, versions and UUIDs do not.
fn is_random(text: &str) -> bool {
    if is_address(text) || text.contains(['@', ' ', ';', ',']) {
        return false;
    }
    let random = |run: &str| {
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= MIN_RANDOM && digits >= 2 && digits < run.len()
    };
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(value: &str, named: bool) -> Vec<String> {
        secret_parts(value, named)
    }

    #[test]
    fn values() {
        let vars = [
            ("API_KEY", "s3cr3t-value"),
            ("SHORT_KEY", "1234567"),
            ("USE_KEY", "disabled"),
            ("SSH_KEY_PATH", "/home/someone/.ssh/id"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp/account.json"),
            ("AWS_SECRET_ACCESS_KEY", "/abc/def/ghijkl"),
            ("DATABASE_URL", "postgres://user:hunter2hunter2@db:5432/x"),
            ("HOME", "/home/someone"),
            ("URL", "https://example.org/a:b@c"),
            ("JDBC_URL", "jdbc:postgresql://localhost:5432/application"),
            (
                "SENTRY_DSN",
                "https://0123456789abcdef0123456789abcdef@sentry.example.org/42",
            ),
        ];
        let found = secrets(vars.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let shown: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("API_KEY", "s3cr3t-value"),
                ("AWS_SECRET_ACCESS_KEY", "/abc/def/ghijkl"),
                ("DATABASE_URL", "hunter2hunter2"),
                (
                    "SENTRY_DSN",
                    "https://0123456789abcdef0123456789abcdef@sentry.example.org/42"
                ),
                ("SENTRY_DSN", "0123456789abcdef0123456789abcdef"),
            ]
        );
    }

    #[test]
    fn an_address_name_with_the_word_of_a_secret_is_secret_as_a_whole() {
        for (name, whole) in [
            ("JDBC_PASSWORD", true),
            ("JDBC_DATABASE_PASSWORD", true),
            ("SENTRY_DSN_TOKEN", true),
            ("CONN_STR_KEY", true),
            ("jdbc_password", true),
            ("JDBC_URL", false),
            ("SENTRY_DSN", false),
        ] {
            let found = secrets([(name.to_owned(), "some-words-only".to_owned())]);
            assert_eq!(!found.is_empty(), whole, "{name}");
        }
    }

    #[test]
    fn a_password_that_is_a_name_beside_it_is_an_ordinary_word() {
        for value in [
            "host=db user=guestguest password=guestguest",
            "Server=db;User ID=application;Password=application",
            r#"{"username":"application","password":"application"}"#,
            r#"{"password":"application","username":"application"}"#,
        ] {
            assert!(parts(value, true).is_empty(), "{value}");
        }
        // The same text under another key, or one that looks random, may be the secret once more.
        for value in [
            "value=hunter2hunter2 password=hunter2hunter2",
            "user=a1B2c3D4e5F6g7H8i9J0 password=a1B2c3D4e5F6g7H8i9J0",
        ] {
            assert_eq!(parts(value, false).len(), 1, "{value}");
        }
    }

    #[test]
    fn json() {
        let azure = r#"{"clientId":"11111111-2222-3333-4444-555555555555","clientSecret":"Qx8~s3cr3t-of-azure","subscriptionId":"66666666-2222-3333-4444-555555555555","tenantId":"my-tenant-of-work","activeDirectoryEndpointUrl":"https://login.microsoftonline.com"}"#;
        assert_eq!(parts(azure, true), ["Qx8~s3cr3t-of-azure"]);
        let google = r#"{"type":"service_account","project_id":"my-long-project-name-123456","private_key_id":"0123456789abcdef0123456789abcdef01234567",
            "private_key":"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n",
            "client_email":"robot@my-long-project-name-123456.iam.gserviceaccount.com","token_uri":"https://oauth2.googleapis.com/token"}"#;
        assert_eq!(
            parts(google, true),
            [
                "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n",
                "0123456789abcdef0123456789abcdef01234567"
            ]
        );
        // `builder:pull-hunter2`
        let docker = r#"{"auths":{"registry.example.org":{"auth":"YnVpbGRlcjpwdWxsLWh1bnRlcjI="}}}"#;
        for named in [true, false] {
            assert_eq!(parts(docker, named), ["YnVpbGRlcjpwdWxsLWh1bnRlcjI=", "pull-hunter2"]);
        }
        let harmless = r#"{"tokenizer":"bert-base-uncased","max_tokens":12345678,"auth":"required","password":"short","token":true,"note":"a longer text about tokens"}"#;
        assert!(parts(harmless, false).is_empty());
        assert!(parts(&harmless.replace("tokenizer", "model"), true).is_empty());
    }

    #[test]
    fn connection_strings_and_headers() {
        for (value, found) in [
            (
                "DefaultEndpointsProtocol=https;AccountName=storageaccount;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6==;EndpointSuffix=core.windows.net",
                &["Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6=="][..],
            ),
            (
                "Server=tcp:db.example.org,1433;User ID=application;Password='p4ss; and more';Encrypt=true",
                &["p4ss; and more"],
            ),
            ("Server=db;Uid=application;Pwd=hunter2-of-sql;", &["hunter2-of-sql"]),
            (
                "Endpoint=sb://bus.example.org/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2hhcmVkLWFjY2Vzcw==",
                &["c2hhcmVkLWFjY2Vzcw=="],
            ),
            (
                "host=db.example.org user=application password=hunter2-of-libpq dbname=application",
                &["hunter2-of-libpq"],
            ),
            (
                "authorization=Bearer%20otlp-hunter2,x-tenant=production-one,api-key=an-otlp-key",
                &[
                    "Bearer otlp-hunter2",
                    "Bearer%20otlp-hunter2",
                    "an-otlp-key",
                    "otlp-hunter2",
                ],
            ),
            // `application:hunter2-of-basic`
            (
                "Authorization: Basic YXBwbGljYXRpb246aHVudGVyMi1vZi1iYXNpYw==",
                &[
                    "Basic YXBwbGljYXRpb246aHVudGVyMi1vZi1iYXNpYw==",
                    "YXBwbGljYXRpb246aHVudGVyMi1vZi1iYXNpYw==",
                    "hunter2-of-basic",
                ],
            ),
            (
                "-Xmx2g -Djavax.net.ssl.trustStorePassword=changeit -Dkey=primary-key",
                &[],
            ),
            ("PATH=/usr/bin:/bin password=/run/secrets/db token=${TOKEN_OF_CI}", &[]),
            ("*.tar=01;31:*.password=01;31", &[]),
        ] {
            assert_eq!(parts(value, false), found, "{value}");
        }
        assert_eq!(
            parts(
                "x-honeycomb-team=a1B2c3D4e5F6g7H8i9J0,x-honeycomb-dataset=checkout-service",
                true
            ),
            ["a1B2c3D4e5F6g7H8i9J0"]
        );
    }

    #[test]
    fn urls() {
        for (value, named, found) in [
            (
                "postgres://application:hunter2%2Fhunter2@db:5432/x",
                false,
                &["hunter2%2Fhunter2", "hunter2/hunter2"][..],
            ),
            ("redis://:hunter2-of-redis@cache:6379/0", false, &["hunter2-of-redis"]),
            // A separator of several URLs in the password.
            ("postgres://u:hunter2,hunter3@db/x", false, &["hunter2,hunter3"]),
            ("postgres://u:hunter2;hunter3@db/x", false, &["hunter2;hunter3"]),
            (
                "jdbc:postgresql://db/x?user=application&password=hunter2-of-jdbc&ssl=true",
                false,
                &["hunter2-of-jdbc"],
            ),
            (
                "jdbc:sqlserver://db:1433;databaseName=x;user=application;password=hunter2-of-mssql",
                false,
                &["hunter2-of-mssql"],
            ),
            (
                "jdbc:oracle:thin:scott/hunter2-of-oracle@//db:1521/x",
                false,
                &["hunter2-of-oracle"],
            ),
            ("application:hunter2-of-go@tcp(db:3306)/x", true, &["hunter2-of-go"]),
            (
                "https://0123456789abcdef0123456789abcdef@o1.ingest.example.org/42",
                false,
                &["0123456789abcdef0123456789abcdef"],
            ),
            (
                "https://hooks.example.org/services/T00000000/B00000000/abcdEFGH1234ijklMNOP5678",
                true,
                &["abcdEFGH1234ijklMNOP5678"],
            ),
            (
                "https://blob.example.org/c?sv=2024-11-04&sig=abc%2Bdefghi%3D&se=2026",
                false,
                &["abc%2Bdefghi%3D", "abc+defghi="],
            ),
            ("https://example.org/hook?token=hook-hunter2", false, &["hook-hunter2"]),
            (
                "amqp://a:hunter2-one@x,amqp://b:hunter2-two@y",
                false,
                &["hunter2-one", "hunter2-two"],
            ),
            ("postgres://postgres:postgres@localhost:5432/postgres", true, &[]),
            ("postgres://application:application@localhost/application", true, &[]),
            (
                "https://example.org/a/very/ordinary/path?page=2&sort=descending",
                true,
                &[],
            ),
            ("https://example.org/a:b@c", true, &[]),
            ("git@github.example.org:owner/repository-of-words.git", true, &[]),
        ] {
            assert_eq!(parts(value, named), found, "{value}");
        }
    }
}

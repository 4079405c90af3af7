//! Decides which environment variables hold secrets, by their names.

use super::MIN_BYTES;

/// Words that mark a name as secret anywhere in it.
const ANYWHERE: [&str; 7] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "KEY",
    "CREDENTIAL",
];
/// Words that do so only as a whole part between underscores: `AUTH`, but not `AUTHOR`.
const WHOLE: [&str; 12] = [
    "AUTH",
    "AUTHORIZATION",
    "PAT",
    "PASS",
    "SSHPASS",
    "PWD",
    "JWT",
    "COOKIE",
    "BEARER",
    "CRED",
    "CREDS",
    "PASSCODE",
];
/// Suffixes of variables that name a place, not a secret.
const PLACES: [&str; 5] = ["_FILE", "_PATH", "_DIR", "_SOCK", "_CREDENTIALS"];
/// The API keys of model services, as the services' own clients name them, and the journal key. Only this program may
/// use them.
pub const MODEL_KEYS: [&str; 5] = [
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    // With this key somebody could forge a journal.
    "OVERNIGHT_JOURNAL_KEY",
];
/// Values that are settings even in a variable with a secret name.
const COMMON: [&str; 9] = [
    "disabled",
    "required",
    "optional",
    "password",
    "undefined",
    "changeme",
    "production",
    "development",
    "localhost",
];

/// Whether a variable's name suggests that its value is secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    if matches!(name.as_str(), "PWD" | "OLDPWD") {
        return false;
    }
    ANYWHERE.iter().any(|word| name.contains(word)) || name.split('_').any(|part| WHOLE.contains(&part))
}

/// Whether a variable is one of [`MODEL_KEYS`].
pub fn is_model_key(name: &str) -> bool {
    MODEL_KEYS.contains(&name)
}

/// The secrets among the variables: values of variables with secret names, and passwords in URLs in any variable.
pub(super) fn secrets(vars: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, value) in vars {
        let password = url_password(&value).map(str::to_owned);
        if is_secret_name(&name) && is_secret_value(&name, &value) {
            found.push((name.clone(), value));
        }
        if let Some(password) = password.filter(|password| password.len() >= MIN_BYTES) {
            found.push((name, password));
        }
    }
    found
}

fn is_secret_value(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let place = PLACES.iter().any(|ending| name.ends_with(ending));
    let path = value.starts_with(['/', '~', '.']) && value.contains('/') && !value.contains(['\n', '=', '+']);
    value.len() >= MIN_BYTES && !(place && path) && !is_setting(value)
}

/// Whether a value is a usual word of settings.
pub fn is_setting(value: &str) -> bool {
    COMMON.contains(&value.to_ascii_lowercase().as_str())
}

/// The password in `scheme://user:password@host`.
fn url_password(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once("://")?;
    let sound = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let authority = rest.split(['/', '?', '#']).next().filter(|_| sound)?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "GITHUB_TOKEN",
            "aws_secret_access_key",
            "DB_PASSWORD",
            "GEMINI_API_KEY",
            "AZURE_CREDENTIALS",
            "NPM_AUTH",
            "GH_PAT",
            "DB_PWD",
            "MONKEY",
            "SSH_PRIVATE_KEY",
            "MYSQL_PASS",
            "AUTHORIZATION",
            "SSHPASS",
            "DB_CREDS",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "PWD",
            "OLDPWD",
            "GIT_AUTHOR_NAME",
            "COMPASS",
            "PATTERN",
            "LANG",
            "CI",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
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
            ]
        );
    }
}

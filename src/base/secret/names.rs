//! Decides which environment variables hold secrets, by their names.

use super::MIN_BYTES;

/// Words that mark a name as secret anywhere in it.
const ANYWHERE: [&str; 8] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "KEY",
    "CREDENTIAL",
    "WEBHOOK_URL",
];
/// Words that mark the address of a service with credentials in it, anywhere in a name.
const ADDRESSES: [&str; 5] = ["CONNECTION_STRING", "CONNECTIONSTRING", "CONN_STR", "CONNSTR", "JDBC_"];
/// Suffixes of the names of variables that contain a list of HTTP headers, which may include an API key.
const HEADER_LISTS: [&str; 4] = ["OTLP_HEADERS", "CUSTOM_HEADERS", "EXTRA_HEADERS", "HTTP_HEADERS"];
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
const COMMON: [&str; 11] = [
    "disabled",
    "required",
    "optional",
    "password",
    "undefined",
    "changeme",
    "changeit",
    "postgres",
    "production",
    "development",
    "localhost",
];

/// Whether a variable's name suggests that its value is secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    has_secret_word(&name) || is_address_name(&name)
}

/// Whether a variable's name (in capitals) has a word that marks its whole value as secret.
pub(super) fn has_secret_word(name: &str) -> bool {
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    ANYWHERE.iter().any(|word| name.contains(word)) || name.split('_').any(|part| WHOLE.contains(&part))
}

/// Whether a variable, whose name is given in capitals, contains an address or headers, of which only parts are secret.
pub(super) fn is_address_name(name: &str) -> bool {
    let headers = name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("_HEADERS");
    headers
        || name.split('_').any(|part| part == "DSN")
        || ADDRESSES.iter().any(|word| name.contains(word))
        || HEADER_LISTS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a variable is one of [`MODEL_KEYS`].
pub fn is_model_key(name: &str) -> bool {
    MODEL_KEYS.contains(&name)
}

/// Whether the value of a variable with a secret name is secret: long enough, and neither a setting nor the path of a
/// file.
pub(super) fn is_secret_value(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let place = PLACES.iter().any(|ending| name.ends_with(ending));
    let path = value.starts_with(['/', '~', '.']) && value.contains('/') && !value.contains(['\n', '=', '+']);
    value.len() >= MIN_BYTES && !(place && path) && !is_setting(value)
}

/// Whether a value is a usual word of settings.
pub fn is_setting(value: &str) -> bool {
    COMMON.contains(&value.to_ascii_lowercase().as_str())
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
            "AZURE_STORAGE_CONNECTION_STRING",
            "SENTRY_DSN",
            "SLACK_WEBHOOK_URL",
            "JDBC_URL",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
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
            "DATABASE_URL",
            "SYSTEM_HEADERS",
            "GITHUB_WEBHOOK_EVENT",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}

//! The names of files that hold secrets by custom. Looks at names only, never into a file.

use super::names::fold_path;

/// Directories whose whole content counts.
const DIRS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".password-store",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".terraform.d",
    ".oci",
    ".local/share/keyrings",
];

/// Whole names.
const NAMES: &[&str] = &[
    ".env",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".dockercfg",
    ".htpasswd",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".s3cfg",
    ".boto",
    ".authinfo",
    ".authinfo.gpg",
    "kubeconfig",
    "credentials",
    "wallet.dat",
    "master.key",
    "application_default_credentials.json",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".mysql_history",
    ".python_history",
    ".node_repl_history",
    ".rediscli_history",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    "terraform.tfvars",
    ".terraformrc",
    ".docker/config.json",
    ".gem/credentials",
    "shadow",
    "gshadow",
];

/// Ends of names.
const ENDS: &[&str] = &[
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".pkcs12",
    ".p8",
    ".jks",
    ".keystore",
    ".kdbx",
    ".kdb",
    ".ppk",
    ".tfstate",
    ".tfstate.backup",
    ".env",
    ".ovpn",
    ".agekey",
    ".keytab",
    ".asc.key",
    ".tfvars.json",
    ".auto.tfvars",
];

/// Names that are secret with a data ending: `secrets.yml`, `credentials.json`.
const STEMS: &[&str] = &[
    "secret",
    "secrets",
    "credential",
    "credentials",
    "service-account",
    "service_account",
    "serviceaccount",
];
const DATA_ENDS: &[&str] = &[
    "json",
    "yml",
    "yaml",
    "toml",
    "ini",
    "csv",
    "xml",
    "properties",
    "env",
    "txt",
    "conf",
    "cfg",
    "db",
    "enc",
];

/// Beginnings of private key files.
const KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];

/// `.env.NAME` files that are made to be shared.
const SHARED: &[&str] = &["example", "sample", "template", "dist", "defaults", "schema"];

/// Whether a path looks as if it held a secret; the reason for people when it does.
///
/// A `.env` that is made to be shared (`.env.example`, `.env.sample`, `.env.template`, `.env.dist`) does not.
pub fn secret_like(path: &str) -> Option<&'static str> {
    let parts = fold_path(path);
    let (name, above) = parts.split_last()?;
    if in_dir(&parts) {
        return Some("it lies in a directory of keys or credentials");
    }
    let git = above.iter().any(|part| part == ".git");
    if git && matches!(name.as_str(), "config" | "config.worktree" | "credentials") {
        return Some("git keeps credentials in it");
    }
    if name == ".gitconfig" {
        return Some("git keeps credentials in it");
    }
    by_name(&parts, name).then_some("its name is one that holds secrets")
}

/// Whether a directory is, or lies in, one of keys or credentials.
pub fn secret_like_dir(path: &str) -> Option<&'static str> {
    in_dir(&fold_path(path)).then_some("it is a directory of keys or credentials")
}

fn in_dir(parts: &[String]) -> bool {
    DIRS.iter().any(|dir| {
        let depth = dir.split('/').count();
        parts
            .windows(depth)
            .any(|window| window.iter().map(String::as_str).eq(dir.split('/')))
    })
}

fn by_name(parts: &[String], name: &str) -> bool {
    if let Some(rest) = name.strip_prefix(".env") {
        let shared = rest.rsplit('.').next().is_some_and(|last| SHARED.contains(&last));
        return !(rest.starts_with('.') && shared)
            && (rest.is_empty() || rest.starts_with(['.', '-', '_', 'r', '~', '1', '2']));
    }
    let tail = |wanted: &str| match wanted.split_once('/') {
        None => name == wanted,
        Some((dir, file)) => name == file && parts.iter().rev().nth(1).is_some_and(|above| above == dir),
    };
    NAMES.iter().any(|wanted| tail(wanted))
        || ENDS.iter().any(|end| name.ends_with(end))
        || is_key(name)
        || is_data(name)
}

fn is_key(name: &str) -> bool {
    if name.ends_with(".pub") {
        return false;
    }
    KEYS.iter().any(|key| name.starts_with(key)) || (name.starts_with("id_") && name.len() > 3 && !name.contains('.'))
}

fn is_data(name: &str) -> bool {
    let Some((stem, end)) = name.rsplit_once('.') else {
        return false;
    };
    let stem = stem.strip_prefix('.').unwrap_or(stem);
    let stem = stem.split('.').next().unwrap_or(stem);
    DATA_ENDS.contains(&end)
        && (STEMS.contains(&stem) || stem.starts_with("service-account-") || stem.starts_with("service_account_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for path in [
            ".env",
            "a/.env.local",
            ".ENV",
            ".envrc",
            "prod.env",
            "k/server.pem",
            "id_rsa",
            ".ssh/known_hosts",
            "id_deploy",
            ".npmrc",
            ".git/config",
            "sub/.git/config",
            ".aws/credentials",
            "config/secrets.yml",
            "service-account-prod.json",
            ".cargo/credentials.toml",
            "x/terraform.tfstate",
            ".config/gcloud/x",
            ".env.production",
            ".env_backup",
            "secrets.prod.yaml",
        ] {
            assert!(secret_like(path).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            ".env.example",
            "a/.env.sample",
            "id_rsa.pub",
            "src/id_map.rs",
            "docs/secrets.md",
            "src/credentials.rs",
            "environment.ts",
            ".environment",
            "config",
            "",
            "Cargo.toml",
            "keys.ts",
            ".git/HEAD",
        ] {
            assert!(secret_like(path).is_none(), "{path}");
        }
    }
}

//! File names that conventionally hold secrets. Only names are examined, never contents.

use super::name_folding::fold_path;
use crate::base::git_config;

/// Directories whose entire content counts, and what they hold.
const DIRS: &[(&str, &str)] = &[
    (".ssh", "private keys"),
    (".gnupg", "private keys"),
    (".aws", "access keys"),
    (".azure", "access tokens"),
    (".kube", "cluster credentials"),
    (".password-store", "passwords"),
    (".config/gcloud", "access tokens"),
    (".config/gh", "a forge's token"),
    (".config/hub", "a forge's token"),
    (".config/op", "a password manager's session"),
    (".terraform.d", "a service's token"),
    (".oci", "access keys"),
    (".local/share/keyrings", "passwords"),
    (".secrets", "secrets by its name"),
    ("uv/credentials", "passwords of package indexes"),
    ("condarc.d", "tokens of package channels"),
];

/// Complete names, and what such files hold.
const NAMES: &[(&str, &str)] = &[
    (".env", "variables of a deployment, keys among them"),
    (".netrc", "passwords of hosts"),
    ("_netrc", "passwords of hosts"),
    (".npmrc", "a registry's token"),
    ("npmrc", "a registry's token, for all projects of an installation"),
    (".condarc", "tokens of package channels"),
    ("condarc", "tokens of package channels"),
    ("pip.conf", "passwords of package indexes"),
    (".pypirc", "a registry's password"),
    (".git-credentials", "passwords of remotes"),
    (".dockercfg", "a registry's password"),
    (".htpasswd", "password hashes"),
    (".pgpass", "database passwords"),
    (".my.cnf", "database passwords"),
    (".vault-token", "a token"),
    (".secret", "a secret by its name"),
    (".secrets", "secrets by its name"),
    (".s3cfg", "access keys"),
    (".boto", "access keys"),
    (".authinfo", "passwords of hosts"),
    (".authinfo.gpg", "passwords of hosts"),
    ("kubeconfig", "cluster credentials"),
    ("credentials", "credentials by its name"),
    ("wallet.dat", "private keys"),
    ("master.key", "the key of encrypted credentials"),
    ("application_default_credentials.json", "access tokens"),
    (".bash_history", "typed passwords"),
    (".zsh_history", "typed passwords"),
    (".psql_history", "typed passwords"),
    (".mysql_history", "typed passwords"),
    (".python_history", "typed passwords"),
    (".node_repl_history", "typed passwords"),
    (".rediscli_history", "typed passwords"),
    (".m2/settings.xml", "a repository's password"),
    (".m2/settings-security.xml", "the master password"),
    (".gradle/gradle.properties", "repository passwords and signing keys"),
    (".cargo/credentials", "a registry's token"),
    (".cargo/credentials.toml", "a registry's token"),
    (".terraformrc", "a service's token"),
    ("terraform.rc", "a service's token"),
    ("rclone.conf", "passwords and tokens of remotes"),
    ("token.json", "tokens of a signed-in user"),
    (".docker/config.json", "a registry's password"),
    (".gem/credentials", "a registry's key"),
    ("shadow", "password hashes"),
    ("gshadow", "password hashes"),
    ("auth.json", "tokens of package managers and agents"),
    ("local.settings.json", "keys of a function's services"),
    ("serviceaccountkey.json", "a private key of a service account"),
];

/// Beginnings of names of JSON files, and what such files hold.
const JSON_STARTS: &[(&str, &str)] = &[
    (
        "gha-creds-",
        "a token or private key of a workflow that logs in to Google; only `*.json`",
    ),
    (
        "firebase-adminsdk",
        "a private key of a service account; only `*.json`, also after a project's name and `-`",
    ),
];

/// Suffixes of names, and what such files hold.
const ENDS: &[(&str, &str)] = &[
    (".pem", "a key or a certificate with its key"),
    (".key", "a private key"),
    (".p12", "a private key"),
    (".pfx", "a private key"),
    (".pkcs12", "a private key"),
    (".p8", "a private key"),
    (".jks", "private keys"),
    (".keystore", "private keys"),
    (".kdbx", "passwords"),
    (".kdb", "passwords"),
    (".ppk", "a private key"),
    (".tfstate", "secrets of a deployment in clear text"),
    (".tfstate.backup", "secrets of a deployment in clear text"),
    (".env", "variables of a deployment, keys among them"),
    (".ovpn", "a private key"),
    (".agekey", "a private key"),
    (".keytab", "a private key"),
    (".asc.key", "a private key"),
    (".tfvars.json", "values of a deployment, passwords among them"),
    (".tfvars", "values of a deployment, passwords among them"),
];

/// The ending of files of which some are certificates, which are no secret.
const PEM: &str = ".pem";

/// Directories in which package managers install.
const INSTALLED: &[&str] = &["dist-packages", "node_modules", "site-packages"];

/// Names that count with the extension of a data format: `secrets.yml`, `credentials.json`.
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

/// Prefixes of private key files.
const KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];

/// `.env.NAME` files that are meant to be shared.
const SHARED: &[&str] = &["example", "sample", "template", "dist", "defaults", "schema"];

/// Every name with what it holds, as `protected.md` lists them: `DIR/`, complete names, `*SUFFIX`, and names of stems
/// and keys.
pub fn table() -> Vec<(String, String)> {
    let one = |before: &str, list: &[(&str, &str)], after: &str| -> Vec<(String, String)> {
        let named = |(name, what): &(&str, &str)| (format!("{before}{name}{after}"), (*what).to_owned());
        list.iter().map(named).collect()
    };
    let stems = STEMS.iter().map(|stem| {
        (
            format!("{stem}.*"),
            "secrets by its name, with an ending of data".to_owned(),
        )
    });
    let keys = KEYS
        .iter()
        .map(|key| (format!("{key}*"), "a private key; not `*.pub`".to_owned()));
    let mut all = [
        one("", DIRS, "/"),
        one("", NAMES, ""),
        one("", JSON_STARTS, "*"),
        one("*", ENDS, ""),
    ]
    .concat();
    all.extend(stems.chain(keys));
    all
}

/// Whether a path looks like a secret; returns the reason for people.
///
/// A `.env` file that is meant to be shared (`.env.example`, `.env.sample`, `.env.template`, `.env.dist`) does not.
pub fn secret_like(path: &str) -> Option<&'static str> {
    let parts = fold_path(path);
    let (name, above) = parts.split_last()?;
    if in_dir(&parts) {
        return Some("it is in a directory of keys or credentials");
    }
    if is_of_git(name, above) {
        return Some("git keeps credentials in it");
    }
    by_name(&parts, name).then_some("files of this name hold secrets")
}

/// Whether a file among programs and libraries of the machine holds credentials: as [`secret_like`], by complete names
/// and directories only, because certificates and examples (`*.pem`, `secrets.*`) belong to what is installed.
pub fn holds_credentials(path: &str) -> bool {
    let parts = fold_path(path);
    let Some((name, above)) = parts.split_last() else {
        return false;
    };
    in_dir(&parts) || is_of_git(name, above) || is_named(&parts, name)
}

/// Whether the sandbox hides a file from commands because of its path: as [`secret_like`], but among installed packages as
/// [`holds_credentials`], since programs do not work with emptied certificates, and in git's directories of submodules and
/// worktrees by the file's own name, since people name the directories above it.
pub fn is_masked_by_name(path: &str) -> bool {
    let inside = path.rsplit_once("/.git/").map(|(_, inside)| inside);
    let inside = inside.or_else(|| path.strip_prefix(".git/"));
    if inside.is_some_and(|inside| ["modules/", "worktrees/"].iter().any(|dir| inside.starts_with(dir))) {
        let parts = fold_path(path);
        return parts
            .split_last()
            .is_some_and(|(name, above)| is_of_git(name, above) || by_name(&parts, name));
    }
    let mut above = path.split('/').rev().skip(1);
    match inside.is_none() && above.any(|dir| INSTALLED.contains(&dir)) {
        true => holds_credentials(path),
        false => secret_like(path).is_some(),
    }
}

/// As [`is_masked_by_name`], for a file that holds no private key: what is named `*.pem` is then a certificate.
pub fn is_masked_without_key(path: &str) -> bool {
    let parts = path
        .len()
        .checked_sub(PEM.len())
        .and_then(|at| path.split_at_checked(at));
    match parts.filter(|(_, end)| end.eq_ignore_ascii_case(PEM)) {
        Some((stem, _)) => is_masked_by_name(&format!("{stem}.crt")),
        None => is_masked_by_name(path),
    }
}

fn is_of_git(name: &str, above: &[String]) -> bool {
    let git = above.iter().any(|part| part == ".git");
    name == ".gitconfig" || (git && git_config::is_settings(name))
}

/// Whether a directory holds keys or credentials, or is inside one that does.
pub fn secret_like_dir(path: &str) -> Option<&'static str> {
    in_dir(&fold_path(path)).then_some("it is a directory of keys or credentials")
}

fn in_dir(parts: &[String]) -> bool {
    DIRS.iter().any(|(dir, _)| {
        let depth = dir.split('/').count();
        parts
            .windows(depth)
            .any(|window| window.iter().map(String::as_str).eq(dir.split('/')))
    }) || parts
        .windows(2)
        .any(|pair| matches!(pair, [dir, name] if is_env(dir) && !ENVIRONMENT.contains(&name.as_str())))
}

/// What a virtual environment of Python contains: it may lie in `.env`, where other people keep files of variables.
const ENVIRONMENT: &[&str] = &[
    "bin",
    "conda-meta",
    "etc",
    "include",
    "lib",
    "lib64",
    "pyvenv.cfg",
    "scripts",
    "share",
    "src",
];

/// Whether it is a name of a file of variables, or of a directory of such files.
fn is_env(name: &str) -> bool {
    name.strip_prefix(".env").is_some_and(|rest| {
        let shared = rest.rsplit('.').next().is_some_and(|last| SHARED.contains(&last));
        !(rest.starts_with('.') && shared) && (rest.is_empty() || rest.starts_with(['.', '-', '_', 'r', '~', '1', '2']))
    })
}

fn by_name(parts: &[String], name: &str) -> bool {
    if name.starts_with(".env") {
        return is_env(name);
    }
    is_named(parts, name)
        || ENDS.iter().any(|(end, _)| name.ends_with(end))
        || is_key(name)
        || is_data(name)
        || is_json(name)
}

/// Whether it is one of the complete names.
fn is_named(parts: &[String], name: &str) -> bool {
    let tail = |wanted: &str| match wanted.split_once('/') {
        None => name == wanted,
        Some((dir, file)) => name == file && parts.iter().rev().nth(1).is_some_and(|above| above == dir),
    };
    NAMES.iter().any(|(wanted, _)| tail(wanted))
}

/// Whether it is a JSON file that is recognised by the beginning of its name, or by a part of it where a project's name
/// comes first (`shop-firebase-adminsdk-x1.json`).
fn is_json(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else {
        return false;
    };
    JSON_STARTS.iter().any(|(start, _)| stem.starts_with(start)) || stem.contains("-firebase-adminsdk")
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
            "auth.json",
            ".codex/auth.json",
            "prod.tfvars",
            "terraform.tfvars",
            "x.auto.tfvars",
            "local.settings.json",
            "gha-creds-0123456789abcdef.json",
            "keys/firebase-adminsdk.json",
            "shop-firebase-adminsdk-x1.json",
            "serviceAccountKey.json",
            "etc/npmrc",
            ".condarc",
            "etc/conda/condarc.d/x.yml",
            ".config/pip/pip.conf",
            ".local/share/uv/credentials/credentials.toml",
            ".env/production",
            "a/.env/b/c.txt",
        ] {
            assert!(secret_like(path).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            ".env/bin/python",
            ".env/lib/python3/site-packages/a.py",
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
            "gha-creds.md",
            "src/firebase-adminsdk.ts",
            "uv/python/bin/python3",
        ] {
            assert!(secret_like(path).is_none(), "{path}");
        }
    }

    #[test]
    fn what_is_installed_holds_credentials_by_complete_names_only() {
        for path in [
            "v22/etc/npmrc",
            "miniconda3/.condarc",
            "miniconda3/condarc",
            "miniconda3/condarc.d/x.yml",
            ".pyenv/versions/3.12/pip.conf",
            "uv/credentials/x",
            ".pyenv/.git/config",
        ] {
            assert!(holds_credentials(path), "{path}");
        }
        for path in ["ssl/cacert.pem", "etc/secrets.txt", "v22/bin/node", ""] {
            assert!(!holds_credentials(path), "{path}");
        }
    }

    #[test]
    fn the_sandbox_hides_what_is_no_part_of_a_package_or_of_a_repository() {
        for path in [
            "k/server.pem",
            ".env",
            "node_modules/p/.npmrc",
            "node_modules",
            ".git/deploy.pem",
            ".git/.ssh/x",
            "a/.git/modules/.ssh/id_rsa",
            ".git/modules/vendor/x/deploy.pem",
            ".git/modules/a/config",
            "vendor/a/.git/deploy.pem",
            "vendor/a/secrets.yml",
        ] {
            assert_eq!(is_masked_by_name(path), path != "node_modules", "{path}");
        }
        for path in [
            ".venv/lib/python3.12/site-packages/certifi/cacert.pem",
            "web/node_modules/p/test/key.pem",
            ".git/modules/.ssh/HEAD",
            ".git/HEAD",
        ] {
            assert!(!is_masked_by_name(path), "{path}");
        }
        for path in ["certs/ca.pem", "certs/CA.PEM", ".git/ca.pem"] {
            assert!(is_masked_by_name(path) && !is_masked_without_key(path), "{path}");
        }
        for path in [".ssh/ca.pem", "id_rsa.pem", ".env.pem", ".env", "pem"] {
            assert_eq!(is_masked_without_key(path), path != "pem", "{path}");
        }
    }
}

//! Implements `overnight doctor`: reports what this machine can confine, and what is dangerous about this checkout.
//! Changes nothing.

use super::printed;
use crate::base::secret::{MODEL_KEYS, is_secret_name};
use crate::base::toolchain;
use crate::cli::args::{DoctorArgs, TextOrJson};
use crate::cli::environment;
use crate::cli::refusal::Refusal;
use crate::cli::{exit, privileged_event};
use crate::journal::chain_key::KEY_VARIABLE;
use crate::process::own_git::{self, GitAccess};
use crate::process::own_path;
use crate::process::program_search::ProgramSearch;
use crate::process::{self, temporary, unsandboxed};
use crate::provider::wire;
use crate::workspace::patch;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Fine,
    Warning,
    Missing,
}

/// One finding, and what to do about it.
struct Finding {
    sign: CheckStatus,
    about: &'static str,
    text: String,
}

fn finding(sign: CheckStatus, about: &'static str, text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { sign, about, text }
}

/// Runs the command. Returns exit code 8 if a run could not start here.
///
/// # Errors
/// [`Refusal::Environment`] if the workspace is not a directory; [`Refusal::Output`] if stdout cannot be written.
pub async fn doctor(args: &DoctorArgs) -> Result<u8, Refusal> {
    if !args.workspace.is_dir() {
        let name = args.workspace.display();
        return Err(Refusal::Environment(format!("the workspace {name} is not a directory")));
    }
    let mut found = sandbox().await;
    found.push(git().await);
    found.extend(checkout(&args.workspace).await);
    found.extend(active_environment(&args.workspace));
    found.push(event());
    found.push(keys());
    match args.format {
        TextOrJson::Text => printed(&found.iter().map(line).collect::<String>())?,
        TextOrJson::Json => {
            let one =
                |finding: &Finding| json!({ "status": sign(finding), "about": finding.about, "text": finding.text });
            let all: Vec<Value> = found.iter().map(one).collect();
            printed(&format!("{}\n", json!({ "findings": all })))?
        }
    };
    let missing = found.iter().any(|finding| finding.sign == CheckStatus::Missing);
    Ok(if missing { exit::ENVIRONMENT } else { exit::PASSED })
}

fn sign(finding: &Finding) -> &'static str {
    match finding.sign {
        CheckStatus::Fine => "ok",
        CheckStatus::Warning => "warning",
        CheckStatus::Missing => "missing",
    }
}

fn line(finding: &Finding) -> String {
    format!("{:<8} {:<12} {}\n", sign(finding), finding.about, finding.text)
}

async fn sandbox() -> Vec<Finding> {
    let probe = process::probe().await;
    let usable = probe.best().is_some();
    let each = |level: &str, result: &Result<String, String>| match result {
        Ok(what) => finding(CheckStatus::Fine, "sandbox", format!("`{level}` is available: {what}")),
        Err(why) if usable => finding(
            CheckStatus::Warning,
            "sandbox",
            format!("`{level}` is not available: {why}"),
        ),
        Err(why) => finding(
            CheckStatus::Missing,
            "sandbox",
            format!("`{level}` is not available: {why}"),
        ),
    };
    let mut all = vec![each("full", &probe.full), each("landlock", &probe.landlock)];
    if probe.best() == Some(process::SandboxLevel::Landlock) {
        let text = "at `landlock`, commands can read secret-like files inside the workspace: keep secrets out of the \
                    checkout";
        all.push(finding(CheckStatus::Warning, "sandbox", text));
        let text = "at `landlock`, commands and checks cannot open sockets, not even to themselves, nor pseudo-terminals, POSIX \
                    semaphores or shared memory: tests that start a server or use multiprocessing fail";
        all.push(finding(CheckStatus::Warning, "sandbox", text));
    }
    if let Some(level) = probe.best() {
        all.push(match probe.witness(level) {
            Ok(()) => finding(CheckStatus::Fine, "programs", "each program can be checked when it is executed"),
            Err(why) => {
                let text = format!(
                    "programs cannot be checked when they are executed: {why}; commands with words that are only known when they run are refused here"
                );
                finding(CheckStatus::Warning, "programs", text)
            }
        });
    }
    if usable {
        all.push(match process::memory_is_bounded_by_kernel() {
            true => finding(CheckStatus::Fine, "memory", "of a command's process tree is limited by a control group"),
            false => {
                let text = "of a command's process tree is measured ten times a second: no control group can be created here (with systemd: \
                            `Delegate=yes` and `DelegateSubgroup=main`)";
                finding(CheckStatus::Fine, "memory", text)
            }
        });
    }
    if !usable {
        // Without a place for temporary files no level can be tried: nothing is known of the machine.
        let text = temporary::usable().err().unwrap_or_else(|| {
            "allow user namespaces or Landlock on this machine, or write `sandbox: { level: none }` in the policy"
                .to_owned()
        });
        all.push(finding(CheckStatus::Missing, "sandbox", text));
    }
    all
}

async fn git() -> Finding {
    match unsandboxed::git(&["--version"], Path::new("/"), &[], None).await {
        Ok(printed) if printed.ok => {
            let text = String::from_utf8_lossy(&printed.stdout);
            let left_out = own_path::left_out("git").map(|why| format!("; {why}"));
            let text = format!("{}{}", text.trim(), left_out.unwrap_or_default());
            finding(CheckStatus::Fine, "git", text)
        }
        Ok(printed) => finding(CheckStatus::Missing, "git", printed.stderr),
        Err(why) => finding(CheckStatus::Missing, "git", why),
    }
}

/// Whether the git settings of the checkout have credentials. Reports names of settings, never values.
async fn checkout(workspace: &Path) -> Vec<Finding> {
    let Some(repository) = patch::repository(workspace) else {
        return vec![finding(
            CheckStatus::Warning,
            "checkout",
            "not a git repository: the patch is made against a copy of the tree",
        )];
    };
    if let Err(why) = repository.check() {
        return vec![finding(CheckStatus::Missing, "checkout", why)];
    }
    let listed = own_git::git(
        &["config", "--list", "--local", "-z"],
        &repository.top,
        &[],
        None,
        GitAccess::Read,
    )
    .await;
    let settings = match listed {
        Ok(printed) if printed.ok => String::from_utf8_lossy(&printed.stdout).into_owned(),
        Ok(printed) => return vec![finding(CheckStatus::Warning, "checkout", printed.stderr)],
        Err(why) => return vec![finding(CheckStatus::Warning, "checkout", why)],
    };
    let mut found: Vec<Finding> = settings.split('\0').filter_map(concern).collect();
    let borrowed = patch::borrowed_text(&repository.borrowed());
    let borrowed = borrowed.map(|text| finding(CheckStatus::Warning, "checkout", text));
    if found.is_empty() {
        found.push(finding(
            CheckStatus::Fine,
            "checkout",
            "its git settings have no credentials and name no programs; its files are not searched",
        ));
    }
    found.extend(borrowed);
    found
}

/// The danger of one git setting (`name\nvalue`), if any.
fn concern(setting: &str) -> Option<Finding> {
    let (name, value) = setting.split_once('\n').unwrap_or((setting, ""));
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(".extraheader") {
        let text = format!("`{name}` keeps a token beside the code; check out with `persist-credentials: false`");
        return Some(finding(CheckStatus::Warning, "checkout", text));
    }
    if has_credential(value) {
        let text = format!("`{name}` contains a URL with a password; use a credential helper outside the checkout");
        return Some(finding(CheckStatus::Warning, "checkout", text));
    }
    if runs_program(&lower, value) {
        let text = format!("`{name}` names a program that git would run; remove it, or trust this checkout");
        return Some(finding(CheckStatus::Warning, "checkout", text));
    }
    None
}

fn has_credential(value: &str) -> bool {
    let authority = value.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    user.is_some_and(|(user, _)| user.contains(':') || user.len() >= 20)
}

fn runs_program(name: &str, value: &str) -> bool {
    const NAMES: [&str; 9] = [
        "core.sshcommand",
        "core.pager",
        "core.editor",
        "core.hookspath",
        "core.askpass",
        "gpg.program",
        "credential.helper",
        "diff.external",
        "sequence.editor",
    ];
    let last = name.rsplit('.').next().unwrap_or_default();
    let driver = name.starts_with("filter.") && matches!(last, "clean" | "smudge" | "process")
        || name.starts_with("diff.") && matches!(last, "command" | "textconv")
        || name.starts_with("merge.") && last == "driver";
    let monitor = name == "core.fsmonitor" && !matches!(value, "true" | "false" | "");
    NAMES.contains(&name) || driver || monitor || name.starts_with("alias.") && value.starts_with('!')
}

/// Whether commands use the virtual environment that is active in the user's shell. Nothing is reported if none is.
fn active_environment(workspace: &Path) -> Option<Finding> {
    let parent = environment::variables();
    let workspace = workspace.canonicalize().ok()?;
    let search = ProgramSearch {
        toolchains: &toolchain::NAMES.map(str::to_owned),
        pass: &[],
        parent: &parent,
        workspace: &workspace,
        origin: None,
        brought: &[],
    };
    let ignored = search.ignored_environment();
    let text = ignored.or_else(|| search.unreadable_environment())?;
    Some(finding(CheckStatus::Warning, "environment", text))
}

/// Checks for the combination of untrusted event text and a token with write access.
fn event() -> Finding {
    match (privileged_event::warning(), privileged_event::events().is_empty()) {
        (Some(text), _) => finding(CheckStatus::Warning, "event", text),
        (None, false) => finding(
            CheckStatus::Fine,
            "event",
            "text of an event, but no token with write access",
        ),
        (None, true) => finding(
            CheckStatus::Fine,
            "event",
            "no text of an issue, comment or pull request is in this job",
        ),
    }
}

fn keys() -> Finding {
    let names: Vec<String> = environment::variables().into_iter().map(|(name, _)| name).collect();
    let models: Vec<&str> = MODEL_KEYS
        .into_iter()
        .filter(|key| *key != KEY_VARIABLE && names.iter().any(|name| name == key))
        .collect();
    let others: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| is_secret_name(name) && !models.contains(name))
        .collect();
    let list = |names: &[&str]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let models = match models.is_empty() {
        true => {
            let first = wire::ALL
                .iter()
                .filter_map(|wire| wire.service().key_names.first().copied());
            let first: BTreeSet<&str> = first.collect();
            format!("none (set {})", first.into_iter().collect::<Vec<_>>().join(" or "))
        }
        false => list(&models),
    };
    let text = format!(
        "for models: {models}; other secrets, never passed on: {}",
        list(&others)
    );
    finding(CheckStatus::Fine, "keys", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_settings_are_named_without_their_values() {
        for setting in [
            "http.https://github.com/.extraheader\nAUTHORIZATION: basic c2VjcmV0",
            "remote.origin.url\nhttps://x-access-token:c2VjcmV0c2VjcmV0@example.com/a/b",
            "core.fsmonitor\n./c2VjcmV0",
            "filter.lfs.smudge\nc2VjcmV0 %f",
            "alias.x\n!c2VjcmV0",
        ] {
            let found = concern(setting);
            assert!(found.is_some_and(|found| !found.text.contains("c2VjcmV0")), "{setting}");
        }
        for setting in [
            "remote.origin.url\nhttps://example.com/a/b",
            "remote.origin.url\ngit@example.com:a/b",
            "core.fsmonitor\ntrue",
            "user.name\nA",
            "alias.st\nstatus",
        ] {
            assert!(concern(setting).is_none(), "{setting}");
        }
    }
}

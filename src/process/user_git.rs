//! Runs git under the user's own configuration and identity (signing, credentials, proxies, `ssh`) in a git directory
//! made by this program, so that no configuration, hook or attribute of a repository takes effect.

use super::own_git::{GitAccess, hold};
use super::own_path;
use super::unsandboxed::{Printed, add_settings, has_terminal, led_git, run_git};
use std::path::Path;
use tokio::process::Command;

/// Git variables that name an identity, a transport or a configuration of the user. All other `GIT_*` are left out:
/// they would select another repository or log what is sent.
const KEPT: [&str; 11] = [
    "GIT_ASKPASS",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
];

/// Settings that override the user's configuration: nothing in a repository gets executed, nobody is prompted, and only
/// the named server is contacted.
const OURS: [(&str, &str); 18] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.autocrlf", "false"),
    ("core.attributesFile", "/dev/null"),
    // Listing the refs of an alternate object directory would read that repository's configuration.
    ("core.alternateRefsCommand", "true"),
    ("core.askPass", ""),
    ("credential.interactive", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("gc.auto", "0"),
    ("http.followRedirects", "false"),
    ("init.templateDir", ""),
    ("maintenance.auto", "false"),
    ("pack.threads", "1"),
    ("protocol.ext.allow", "never"),
    ("push.gpgSign", "false"),
    ("push.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
];

/// The environment for git under the user's configuration. `vars` is the user's complete environment; `settings` come
/// last and so win. Left out are variables for which `secret` returns true, the keys of model services, and `PATH`,
/// which [`git`] sets.
pub fn environment(
    vars: &[(String, String)],
    settings: &[(String, String)],
    secret: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let value = |name: &str| {
        vars.iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    };
    let passed = |name: &str| !name.starts_with("GIT_") || KEPT.contains(&name) || name.starts_with("GIT_SSL_");
    let mut env: Vec<(String, String)> = vars
        .iter()
        .filter(|(name, _)| passed(name) && !secret(name) && !crate::base::secret::is_model_key(name))
        .filter(|(name, _)| name != "PATH")
        .cloned()
        .collect();
    env.push(("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()));
    env.push(("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()));
    let theirs = value("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok());
    let theirs = (0..theirs.unwrap_or(0).min(1000)).filter_map(|at| {
        let name = value(&format!("GIT_CONFIG_KEY_{at}"))?;
        Some((name.to_owned(), value(&format!("GIT_CONFIG_VALUE_{at}"))?.to_owned()))
    });
    let ours = OURS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let all: Vec<(String, String)> = theirs.chain(ours).chain(settings.iter().cloned()).collect();
    add_settings(&mut env, &all);
    env
}

/// Runs `git` with this environment and `PATH`, `GIT_NO_LAZY_FETCH=1` and `LC_ALL=C`. `may` restricts it; `None` is for
/// calls that run the user's signing program, which needs agents and key files, and that read nothing that others
/// wrote. With [`GitAccess::Reach`] call this on a thread that lives as long as the process.
///
/// # Errors
/// One sentence, if it cannot be started or restricted, or takes longer than [`super::unsandboxed::GIT_TIME`].
pub async fn git(
    args: &[&str],
    dir: &Path,
    env: &[(String, String)],
    stdin: Option<&[u8]>,
    may: Option<GitAccess<'_>>,
) -> Result<Printed, String> {
    // The HTTP helper of git outlives a git that is killed, so it is killed with its group. At a terminal
    // it stays in the group of this process: `ssh` may ask there, and Ctrl-C ends all of them.
    let led = matches!(may, Some(GitAccess::Reach(_))) && !has_terminal();
    let mut command = match led {
        true => led_git()?,
        false => Command::from(own_path::command("git")),
    };
    if let Some(may) = may {
        hold(command.as_std_mut(), may)?;
    }
    let leads = led || may.is_some_and(GitAccess::leads);
    run_git(command, args, dir, env, stdin, leads).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_settings_stay_and_ours_come_last() {
        let var = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let vars = [
            var("HOME", "/home/u"),
            var("GIT_DIR", "/elsewhere/.git"),
            var("GIT_TRACE_CURL", "1"),
            var("GIT_AUTHOR_NAME", "U"),
            var("GEMINI_API_KEY", "secret-of-the-model"),
            var("GITHUB_TOKEN", "secret-of-the-forge"),
            var("GIT_CONFIG_COUNT", "1"),
            var("GIT_CONFIG_KEY_0", "http.followRedirects"),
            var("GIT_CONFIG_VALUE_0", "true"),
        ];
        let env = environment(&vars, &[var("user.name", "V")], &|name| name == "GITHUB_TOKEN");
        let value = |name: &str| {
            env.iter()
                .find(|(have, _)| have == name)
                .map(|(_, value)| value.clone())
        };
        for gone in ["GIT_DIR", "GIT_TRACE_CURL", "GEMINI_API_KEY", "GITHUB_TOKEN"] {
            assert_eq!(value(gone), None, "{gone}");
        }
        assert_eq!(value("HOME").as_deref(), Some("/home/u"));
        assert_eq!(value("GIT_AUTHOR_NAME").as_deref(), Some("U"));
        let count: usize = value("GIT_CONFIG_COUNT").unwrap().parse().unwrap();
        assert_eq!(count, OURS.len() + 2);
        let setting = |at: usize| {
            (
                value(&format!("GIT_CONFIG_KEY_{at}")).unwrap(),
                value(&format!("GIT_CONFIG_VALUE_{at}")).unwrap(),
            )
        };
        assert_eq!(setting(0), ("http.followRedirects".to_owned(), "true".to_owned()));
        let redirects: Vec<usize> = (0..count)
            .filter(|at| setting(*at).0 == "http.followRedirects")
            .collect();
        assert_eq!(redirects.len(), 2, "the later one, which is ours, wins");
        assert_eq!(setting(count - 1), ("user.name".to_owned(), "V".to_owned()));
    }
}

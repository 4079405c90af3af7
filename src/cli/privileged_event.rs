//! Detects a dangerous combination in the environment: event text from strangers, and a token with write access to a
//! forge. Checks names of variables, not the values of tokens.

use super::environment;

/// Variables in which forges pass the event that started the job; strangers may have written its text.
const EVENTS: [&str; 4] = [
    "GITHUB_EVENT_PATH",
    "GITHUB_HEAD_REF",
    "CI_MERGE_REQUEST_TITLE",
    "BITBUCKET_PR_ID",
];
/// Variables of tokens with write access to a forge.
const WRITE_TOKENS: [&str; 6] = [
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITLAB_TOKEN",
    "CI_JOB_TOKEN",
    "GITEA_TOKEN",
    "BITBUCKET_TOKEN",
];
/// Events that run with the repository's secrets, whoever caused them.
const PRIVILEGED: [&str; 4] = ["pull_request_target", "issue_comment", "issues", "workflow_run"];

fn set(names: &[&'static str]) -> Vec<&'static str> {
    let names = names.iter().copied();
    names.filter(|name| environment::variable(name).is_some()).collect()
}

/// The variables with event text that are set.
pub fn events() -> Vec<&'static str> {
    set(&EVENTS)
}

/// The warning if the combination is present.
pub fn warning() -> Option<String> {
    let (events, tokens) = (events(), set(&WRITE_TOKENS));
    let privileged = environment::variable("GITHUB_EVENT_NAME").filter(|name| PRIVILEGED.contains(&name.as_str()));
    let what = match (events.is_empty(), tokens.is_empty(), privileged) {
        (true, _, _) | (false, true, None) => return None,
        (false, false, _) => format!("a token with write access ({})", tokens.join(", ")),
        (false, true, Some(event)) => format!("the rights of `{event}`"),
    };
    Some(format!(
        "text of an event ({}) and {what} are in one step: remove the token, apply the patch in a separate step, and take \
         recipe and policy from the base branch (git:origin/main:PATH); a recipe of this checkout is not trusted",
        events.join(", ")
    ))
}

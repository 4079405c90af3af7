//! The REST API of Forgejo and Gitea, version 1 (<https://forgejo.org/docs/latest/user/api-usage/>). Pure.

use super::github::read_pull;
use super::{ApiCall, ChangeRequest, Dialect, Draft, RequestFilter, Route};
use http::Method;
use serde_json::{Value, json};

/// Forgejo.
#[derive(Clone, Copy, Debug)]
pub struct ForgejoDialect;

/// Title prefix of a draft ("work in progress").
const DRAFT: &str = "WIP: ";

impl Dialect for ForgejoDialect {
    fn token_header(&self) -> (&'static str, &'static str) {
        ("authorization", "token ")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("accept", "application/json")]
    }

    fn git_user(&self) -> &'static str {
        "oauth2"
    }

    fn facts(&self, _route: &Route) -> Vec<ApiCall> {
        Vec::new()
    }

    fn list(&self, route: &Route, wanted: RequestFilter) -> ApiCall {
        // The API has no filter for the branch.
        let state = match wanted {
            RequestFilter::Open => "open",
            RequestFilter::All => "all",
        };
        ApiCall::get(format!(
            "/repos/{}/pulls?state={state}&sort=recentupdate&limit=50",
            route.into
        ))
    }

    fn read(&self, route: &Route, _facts: &[Value], item: &Value) -> Option<ChangeRequest> {
        read_pull(route, item)
    }

    fn open(&self, route: &Route, _facts: &[Value], draft: &Draft) -> ApiCall {
        let title = match draft.draft {
            true => format!("{DRAFT}{}", draft.title),
            false => draft.title.clone(),
        };
        let head = match route.is_fork() {
            true => format!("{}:{}", route.owner(), route.branch),
            false => route.branch.clone(),
        };
        let body = json!({ "title": title, "body": draft.body, "head": head, "base": route.base });
        ApiCall::of(Method::POST, format!("/repos/{}/pulls", route.into), body)
    }

    fn update(&self, route: &Route, now: &ChangeRequest, draft: &Draft) -> ApiCall {
        let title = match now.title.starts_with(DRAFT) {
            true => format!("{DRAFT}{}", draft.title),
            false => draft.title.clone(),
        };
        let body = json!({ "title": title, "body": draft.body });
        ApiCall::of(
            Method::PATCH,
            format!("/repos/{}/pulls/{}", route.into, now.number),
            body,
        )
    }

    fn bare_title<'a>(&self, title: &'a str) -> &'a str {
        title.strip_prefix(DRAFT).unwrap_or(title)
    }

    fn lookups(&self, route: &Route, draft: &Draft) -> Vec<ApiCall> {
        match draft.labels.is_empty() {
            true => Vec::new(),
            false => vec![ApiCall::get(format!("/repos/{}/labels?limit=50", route.into))],
        }
    }

    fn after(&self, route: &Route, number: u64, draft: &Draft, found: &[Value]) -> Vec<ApiCall> {
        let mut calls = Vec::new();
        let known = found
            .first()
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let wanted = |label: &&Value| {
            let name = label.get("name").and_then(Value::as_str).unwrap_or_default();
            draft.labels.iter().any(|wanted| wanted == name)
        };
        let ids: Vec<&Value> = known
            .iter()
            .filter(wanted)
            .filter_map(|label| label.get("id"))
            .collect();
        if !ids.is_empty() {
            let path = format!("/repos/{}/issues/{number}/labels", route.into);
            calls.push(ApiCall::of(Method::POST, path, json!({ "labels": ids })));
        }
        if !draft.reviewers.is_empty() {
            let path = format!("/repos/{}/pulls/{number}/requested_reviewers", route.into);
            calls.push(ApiCall::of(Method::POST, path, json!({ "reviewers": draft.reviewers })));
        }
        calls
    }

    fn unknown(&self, draft: &Draft, found: &[Value]) -> Vec<String> {
        let Some(known) = found.first().and_then(Value::as_array) else {
            return Vec::new();
        };
        let is_known = |name: &String| {
            known
                .iter()
                .any(|label| label.get("name").and_then(Value::as_str) == Some(name))
        };
        draft.labels.iter().filter(|name| !is_known(name)).cloned().collect()
    }

    fn commit(&self, route: &Route, id: &str) -> ApiCall {
        ApiCall::get(format!("/repos/{}/git/commits/{id}", route.project))
    }

    fn commit_message<'a>(&self, answer: &'a Value) -> Option<&'a str> {
        answer.pointer("/commit/message")?.as_str()
    }

    fn exists_already(&self, status: u16, message: &str) -> bool {
        status == 409 || message.contains("already exists")
    }

    fn nothing_differs(&self, message: &str) -> bool {
        message.contains("no changes between")
    }
}

//! The REST API of GitHub, version 2022-11-28 (<https://docs.github.com/rest/pulls>). Pure.

use super::{ApiCall, ChangeRequest, Dialect, Draft, RequestFilter, RequestState, Route, text};
use crate::base::percent::encode;
use http::Method;
use serde_json::{Value, json};

/// GitHub, and GitHub Enterprise Server.
#[derive(Clone, Copy, Debug)]
pub struct GithubDialect;

/// Parses a pull request in GitHub's form, which Forgejo uses too; `None` for a branch of another project.
pub(super) fn read_pull(route: &Route, item: &Value) -> Option<ChangeRequest> {
    let of_project = text(item, "/head/repo/full_name");
    if !of_project.eq_ignore_ascii_case(&route.project) {
        return None;
    }
    let merged =
        item.get("merged_at").is_some_and(|at| !at.is_null()) || item.get("merged") == Some(&Value::Bool(true));
    let state = match (text(item, "/state").as_str(), merged) {
        (_, true) => RequestState::Merged,
        ("open", _) => RequestState::Open,
        _ => RequestState::Closed,
    };
    Some(ChangeRequest {
        number: item.get("number")?.as_u64()?,
        url: text(item, "/html_url"),
        state,
        head: text(item, "/head/sha"),
        branch: text(item, "/head/ref"),
        base: text(item, "/base/ref"),
        title: text(item, "/title"),
        body: text(item, "/body"),
    })
}

impl Dialect for GithubDialect {
    fn token_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("accept", "application/vnd.github+json"),
            ("x-github-api-version", "2022-11-28"),
        ]
    }

    fn git_user(&self) -> &'static str {
        "x-access-token"
    }

    fn facts(&self, _route: &Route) -> Vec<ApiCall> {
        Vec::new()
    }

    fn list(&self, route: &Route, wanted: RequestFilter) -> ApiCall {
        let which = match wanted {
            RequestFilter::Open => "state=open".to_owned(),
            RequestFilter::All => format!(
                "head={}&state=all",
                encode(&format!("{}:{}", route.owner(), route.branch))
            ),
        };
        ApiCall::get(format!(
            "/repos/{}/pulls?{which}&sort=created&direction=desc&per_page=100",
            route.into
        ))
    }

    fn read(&self, route: &Route, _facts: &[Value], item: &Value) -> Option<ChangeRequest> {
        read_pull(route, item)
    }

    fn open(&self, route: &Route, _facts: &[Value], draft: &Draft) -> ApiCall {
        let mut body = json!({
            "title": draft.title,
            "body": draft.body,
            "head": route.branch,
            "base": route.base,
            "draft": draft.draft,
        });
        if route.is_fork()
            && let Some(fields) = body.as_object_mut()
        {
            fields.insert("head".to_owned(), format!("{}:{}", route.owner(), route.branch).into());
            // `OWNER:BRANCH` is ambiguous when one owner has both repositories.
            if route
                .into
                .split('/')
                .next()
                .is_some_and(|into| into.eq_ignore_ascii_case(route.owner()))
            {
                let name = route.project.split('/').next_back().unwrap_or_default();
                fields.insert("head_repo".to_owned(), name.into());
            }
        }
        ApiCall::of(Method::POST, format!("/repos/{}/pulls", route.into), body)
    }

    fn update(&self, route: &Route, now: &ChangeRequest, draft: &Draft) -> ApiCall {
        let body = json!({ "title": draft.title, "body": draft.body });
        ApiCall::of(
            Method::PATCH,
            format!("/repos/{}/pulls/{}", route.into, now.number),
            body,
        )
    }

    fn bare_title<'a>(&self, title: &'a str) -> &'a str {
        title
    }

    fn lookups(&self, _route: &Route, _draft: &Draft) -> Vec<ApiCall> {
        Vec::new()
    }

    fn after(&self, route: &Route, number: u64, draft: &Draft, _found: &[Value]) -> Vec<ApiCall> {
        let mut calls = Vec::new();
        if !draft.labels.is_empty() {
            let path = format!("/repos/{}/issues/{number}/labels", route.into);
            calls.push(ApiCall::of(Method::POST, path, json!({ "labels": draft.labels })));
        }
        if !draft.reviewers.is_empty() {
            // `ORG/TEAM` is a team, by its slug.
            let (teams, people): (Vec<&String>, Vec<&String>) =
                draft.reviewers.iter().partition(|name| name.contains('/'));
            let teams: Vec<&str> = teams.iter().filter_map(|team| team.rsplit('/').next()).collect();
            let body = json!({ "reviewers": people, "team_reviewers": teams });
            let path = format!("/repos/{}/pulls/{number}/requested_reviewers", route.into);
            calls.push(ApiCall::of(Method::POST, path, body));
        }
        calls
    }

    fn unknown(&self, _draft: &Draft, _found: &[Value]) -> Vec<String> {
        Vec::new()
    }

    fn commit(&self, route: &Route, id: &str) -> ApiCall {
        ApiCall::get(format!("/repos/{}/commits/{id}", route.project))
    }

    fn commit_message<'a>(&self, answer: &'a Value) -> Option<&'a str> {
        answer.pointer("/commit/message")?.as_str()
    }

    fn exists_already(&self, status: u16, message: &str) -> bool {
        // A branch that was just pushed may not be visible on all servers yet.
        status == 422 && (message.contains("already exists") || message.contains("sha can't be blank"))
    }

    fn nothing_differs(&self, message: &str) -> bool {
        message.contains("No commits between")
    }
}

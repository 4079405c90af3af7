//! The REST API of GitLab, version 4 (<https://docs.gitlab.com/api/merge_requests/>). Pure.

use super::{ApiCall, ChangeRequest, Dialect, Draft, RequestFilter, RequestState, Route, text};
use crate::base::percent::encode;
use http::Method;
use serde_json::{Value, json};

/// GitLab.
#[derive(Clone, Copy, Debug)]
pub struct GitlabDialect;

/// Title prefix of a draft.
const DRAFT: &str = "Draft: ";

impl Dialect for GitlabDialect {
    fn token_header(&self) -> (&'static str, &'static str) {
        ("private-token", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("accept", "application/json")]
    }

    fn git_user(&self) -> &'static str {
        "oauth2"
    }

    fn facts(&self, route: &Route) -> Vec<ApiCall> {
        let project = |path: &str| ApiCall::get(format!("/projects/{}", encode(path)));
        match route.is_fork() {
            true => vec![project(&route.project), project(&route.into)],
            false => vec![project(&route.project)],
        }
    }

    fn list(&self, route: &Route, wanted: RequestFilter) -> ApiCall {
        let which = match wanted {
            RequestFilter::Open => "state=opened".to_owned(),
            RequestFilter::All => format!("state=all&source_branch={}", encode(&route.branch)),
        };
        let project = encode(&route.into);
        ApiCall::get(format!(
            "/projects/{project}/merge_requests?{which}&order_by=created_at&sort=desc&per_page=100"
        ))
    }

    fn read(&self, _route: &Route, facts: &[Value], item: &Value) -> Option<ChangeRequest> {
        let own = facts.first()?.get("id")?;
        if item.get("source_project_id") != Some(own) {
            return None;
        }
        let state = match text(item, "/state").as_str() {
            "merged" => RequestState::Merged,
            // `locked` means that the request is being merged.
            "opened" | "locked" => RequestState::Open,
            _ => RequestState::Closed,
        };
        Some(ChangeRequest {
            number: item.get("iid")?.as_u64()?,
            url: text(item, "/web_url"),
            state,
            head: text(item, "/sha"),
            branch: text(item, "/source_branch"),
            base: text(item, "/target_branch"),
            title: text(item, "/title"),
            body: text(item, "/description"),
        })
    }

    fn open(&self, route: &Route, facts: &[Value], draft: &Draft) -> ApiCall {
        let title = match draft.draft {
            true => format!("{DRAFT}{}", draft.title),
            false => draft.title.clone(),
        };
        let mut body = json!({
            "title": title,
            "description": draft.body,
            "source_branch": route.branch,
            "target_branch": route.base,
        });
        if let (true, Some(fields)) = (route.is_fork(), body.as_object_mut()) {
            let target = facts.get(1).and_then(|into| into.get("id")).cloned();
            fields.insert("target_project_id".to_owned(), target.unwrap_or_default());
        }
        if let (false, Some(fields)) = (draft.labels.is_empty(), body.as_object_mut()) {
            fields.insert("labels".to_owned(), draft.labels.join(",").into());
        }
        ApiCall::of(
            Method::POST,
            format!("/projects/{}/merge_requests", encode(&route.project)),
            body,
        )
    }

    fn update(&self, route: &Route, now: &ChangeRequest, draft: &Draft) -> ApiCall {
        let title = match now.title.starts_with(DRAFT) {
            true => format!("{DRAFT}{}", draft.title),
            false => draft.title.clone(),
        };
        let body = json!({ "title": title, "description": draft.body });
        let path = format!("/projects/{}/merge_requests/{}", encode(&route.into), now.number);
        ApiCall::of(Method::PUT, path, body)
    }

    fn bare_title<'a>(&self, title: &'a str) -> &'a str {
        title.strip_prefix(DRAFT).unwrap_or(title)
    }

    fn lookups(&self, _route: &Route, draft: &Draft) -> Vec<ApiCall> {
        let user = |name: &String| ApiCall::get(format!("/users?username={}", encode(name)));
        draft.reviewers.iter().map(user).collect()
    }

    fn after(&self, route: &Route, number: u64, _draft: &Draft, found: &[Value]) -> Vec<ApiCall> {
        let ids: Vec<&Value> = found.iter().filter_map(|users| users.get(0)?.get("id")).collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let path = format!("/projects/{}/merge_requests/{number}", encode(&route.into));
        vec![ApiCall::of(Method::PUT, path, json!({ "reviewer_ids": ids }))]
    }

    fn unknown(&self, draft: &Draft, found: &[Value]) -> Vec<String> {
        let pairs = draft.reviewers.iter().zip(found);
        let gone = pairs.filter(|(_, users)| users.as_array().is_some_and(Vec::is_empty));
        gone.map(|(name, _)| name.clone()).collect()
    }

    fn commit(&self, route: &Route, id: &str) -> ApiCall {
        ApiCall::get(format!("/projects/{}/repository/commits/{id}", encode(&route.project)))
    }

    fn commit_message<'a>(&self, answer: &'a Value) -> Option<&'a str> {
        answer.get("message")?.as_str()
    }

    fn exists_already(&self, status: u16, message: &str) -> bool {
        status == 409 && message.contains("already exists")
    }

    fn nothing_differs(&self, _message: &str) -> bool {
        false
    }
}

//! The client for merge requests of a forge, over its REST API: finding, opening and updating them. A [`Dialect`] holds
//! what differs between forges; retries, rate limits and pagination are common.

pub mod forgejo;
pub mod github;
pub mod gitlab;

use super::DeliverStop;
use super::wait_budget::WaitBudget;
use crate::base::secret::Redactor;
use crate::net::client::{Client, HttpError, Limits, RequestHeader, ResponseHead, Until};
use crate::net::retry;
use http::Method;
use secrecy::SecretString;
use serde_json::Value;
use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};
use tokio_util::sync::CancellationToken;

/// Time limit of one request; less when `--max-wall` leaves less.
const REQUEST: Duration = Duration::from_secs(60);
/// Size limit of a response, in bytes.
const ANSWER: usize = 32 << 20;
/// Limit of pages that are read from a list.
const PAGES: usize = 100;
/// Wait after a rate limit whose response names no time.
const SECONDARY: Duration = Duration::from_secs(60);

/// Source and target of a request.
#[derive(Clone, Debug)]
pub struct Route {
    /// The project that the branch is pushed to.
    pub project: String,
    /// The project in which the request is opened: the same one, or the one that it was forked from.
    pub into: String,
    pub branch: String,
    pub base: String,
}

impl Route {
    /// Owner of the project that is pushed to: the first path segment.
    pub fn owner(&self) -> &str {
        self.project.split('/').next().unwrap_or_default()
    }

    /// Whether the branch is in another project than the request.
    pub fn is_fork(&self) -> bool {
        !self.project.eq_ignore_ascii_case(&self.into)
    }
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    Open,
    Merged,
    Closed,
}

/// Which requests are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFilter {
    /// Of any state; of the route's branch only, where the forge can say so.
    All,
    Open,
}

/// Requests of a project.
#[derive(Debug)]
pub struct RequestList {
    pub requests: Vec<ChangeRequest>,
    /// Whether none is missing: of a long list only the first pages are read.
    pub is_complete: bool,
}

/// A merge request or pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    pub number: u64,
    pub url: String,
    pub state: RequestState,
    /// The commit at the head of its branch.
    pub head: String,
    pub branch: String,
    /// The branch that it goes into.
    pub base: String,
    pub title: String,
    pub body: String,
}

/// The texts and settings of a request.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub title: String,
    pub body: String,
    pub draft: bool,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
}

/// One call of the REST API.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiCall {
    pub method: Method,
    /// Path and query after the base URL, starting with `/`.
    pub path: String,
    pub body: Option<Value>,
}

impl ApiCall {
    /// A call that reads.
    pub fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
        }
    }

    /// A call that changes something.
    pub fn of(method: Method, path: String, body: Value) -> Self {
        Self {
            method,
            path,
            body: Some(body),
        }
    }
}

/// The REST API of one forge: builds calls and parses responses. Pure.
pub trait Dialect: Send + Sync {
    /// The name of the header for the token, and the prefix before the token.
    fn token_header(&self) -> (&'static str, &'static str);
    /// Headers of every call.
    fn headers(&self) -> &'static [(&'static str, &'static str)];
    /// The user name that git must send with the token as the password.
    fn git_user(&self) -> &'static str;
    /// Calls that look up the two projects. Their responses are passed to [`Dialect::list`] and others as `facts`, in
    /// this order.
    fn facts(&self, route: &Route) -> Vec<ApiCall>;
    /// The first page of the requests from this branch, newest first; or of all open ones.
    fn list(&self, route: &Route, wanted: RequestFilter) -> ApiCall;
    /// Parses one item of a list; `None` unless it is from the project that is pushed to: a fork may have a branch of
    /// the same name.
    fn read(&self, route: &Route, facts: &[Value], item: &Value) -> Option<ChangeRequest>;
    /// The call that opens a request.
    fn open(&self, route: &Route, facts: &[Value], draft: &Draft) -> ApiCall;
    /// The call that replaces title and description. `now` is the current request.
    fn update(&self, route: &Route, now: &ChangeRequest, draft: &Draft) -> ApiCall;
    /// A title from the forge without the prefix that marks a draft there.
    fn bare_title<'a>(&self, title: &'a str) -> &'a str;
    /// Calls that look up the numeric ids of labels and reviewers; their responses are passed to [`Dialect::after`].
    fn lookups(&self, route: &Route, draft: &Draft) -> Vec<ApiCall>;
    /// Calls after the opening, for labels and reviewers. Each may fail on its own.
    fn after(&self, route: &Route, number: u64, draft: &Draft, found: &[Value]) -> Vec<ApiCall>;
    /// Labels and reviewers that the responses to [`Dialect::lookups`] do not contain.
    fn unknown(&self, draft: &Draft, found: &[Value]) -> Vec<String>;
    /// The call that reads a commit of the project that is pushed to.
    fn commit(&self, route: &Route, id: &str) -> ApiCall;
    /// The commit message in the response.
    fn commit_message<'a>(&self, answer: &'a Value) -> Option<&'a str>;
    /// Whether a refusal to open says that a request exists already.
    fn exists_already(&self, status: u16, message: &str) -> bool;
    /// Whether a refusal to open says that the branches do not differ.
    fn nothing_differs(&self, message: &str) -> bool;
}

/// A forge with a token.
pub struct Forge<'a> {
    pub dialect: &'a dyn Dialect,
    pub base: String,
    pub token: SecretString,
    pub wait_budget: &'a WaitBudget,
    pub quiet: &'a Redactor,
    client: Client,
    cancel: CancellationToken,
}

/// The result of an attempt to open a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    Opened(Box<ChangeRequest>),
    /// A request exists, or the result is unknown: observe again.
    LookAgain(String),
    /// The branch has no commit that the base does not have.
    Nothing,
}

/// The result of setting labels and reviewers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsSet {
    /// What could not be set; the request exists nevertheless.
    pub problems: Vec<String>,
    /// Whether the service failed, so that a later delivery can set the rest.
    pub unfinished: bool,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallFailure {
    /// The server refused the call and changed nothing.
    Status(u16, String),
    /// It is unknown whether the call took effect.
    Unknown(String),
    Stop(DeliverStop),
}

impl<'a> Forge<'a> {
    /// A client for a forge at this base URL. Sends nothing yet.
    pub fn new(
        dialect: &'a dyn Dialect,
        base: String,
        token: SecretString,
        wait_budget: &'a WaitBudget,
        quiet: &'a Redactor,
    ) -> Self {
        let limits = Limits {
            first_byte: REQUEST,
            silence: REQUEST,
            body: ANSWER,
            ..Limits::default()
        };
        Self {
            dialect,
            base,
            token,
            wait_budget,
            quiet,
            client: Client::new(limits),
            cancel: CancellationToken::new(),
        }
    }

    /// Looks up the projects.
    ///
    /// # Errors
    /// [`DeliverStop::Environment`] without permission to read them, [`DeliverStop::Service`] after retries.
    pub async fn facts(&self, route: &Route) -> Result<Vec<Value>, DeliverStop> {
        let mut facts = Vec::new();
        for call in self.dialect.facts(route) {
            facts.push(self.ask(&call).await?.0);
        }
        Ok(facts)
    }

    /// The requests from the branch, newest first. Closed ones may be missing: not all forges can list the requests of one
    /// branch, and a project may have more than are listed.
    ///
    /// # Errors
    /// As [`Forge::facts`].
    pub async fn requests(&self, route: &Route, facts: &[Value]) -> Result<RequestList, DeliverStop> {
        let RequestList {
            requests: mut all,
            is_complete,
        } = self.listed(route, facts, RequestFilter::All).await?;
        if !is_complete {
            let known: HashSet<u64> = all.iter().map(|request| request.number).collect();
            let open = self.all_open(route, facts).await?;
            all.extend(open.into_iter().filter(|request| !known.contains(&request.number)));
        }
        all.retain(|request| request.branch == route.branch);
        all.sort_by_key(|request| std::cmp::Reverse(request.number));
        Ok(RequestList {
            requests: all,
            is_complete,
        })
    }

    /// Number of open requests from this project for which `counts` returns true.
    ///
    /// # Errors
    /// As [`Forge::facts`].
    pub async fn open_requests(
        &self,
        route: &Route,
        facts: &[Value],
        counts: impl Fn(&ChangeRequest) -> bool,
    ) -> Result<usize, DeliverStop> {
        let all = self.all_open(route, facts).await?;
        let open = all.iter().filter(|request| request.state == RequestState::Open);
        Ok(open.filter(|request| counts(request)).count())
    }

    /// The open requests of the project, or more.
    async fn all_open(&self, route: &Route, facts: &[Value]) -> Result<Vec<ChangeRequest>, DeliverStop> {
        let found = self.listed(route, facts, RequestFilter::Open).await?;
        match found.is_complete {
            true => Ok(found.requests),
            false => Err(DeliverStop::Environment(format!(
                "{} has more than {PAGES} pages of open requests",
                route.into
            ))),
        }
    }

    /// The first pages of a list.
    async fn listed(&self, route: &Route, facts: &[Value], wanted: RequestFilter) -> Result<RequestList, DeliverStop> {
        let mut call = self.dialect.list(route, wanted);
        let mut found: Vec<ChangeRequest> = Vec::new();
        for _ in 0..PAGES {
            let (page, next) = self.ask(&call).await?;
            let items = page.as_array().ok_or_else(|| self.odd("a list of requests", &page))?;
            found.extend(items.iter().filter_map(|item| self.dialect.read(route, facts, item)));
            match next {
                Some(path) => call = ApiCall::get(path),
                None => {
                    return Ok(RequestList {
                        requests: found,
                        is_complete: true,
                    });
                }
            }
        }
        Ok(RequestList {
            requests: found,
            is_complete: false,
        })
    }

    /// The message of a commit; `None` when the forge no longer has it.
    ///
    /// # Errors
    /// [`DeliverStop::Service`] after retries.
    pub async fn commit_message(&self, route: &Route, id: &str) -> Result<Option<String>, DeliverStop> {
        match self.call(&self.dialect.commit(route, id)).await {
            Ok((answer, _)) => Ok(self.dialect.commit_message(&answer).map(str::to_owned)),
            Err(CallFailure::Status(404 | 410 | 422, _)) => Ok(None),
            Err(other) => Err(self.stopped(other)),
        }
    }

    /// Opens a request.
    ///
    /// # Errors
    /// As [`Forge::facts`].
    pub async fn open(&self, route: &Route, facts: &[Value], draft: &Draft) -> Result<Opening, DeliverStop> {
        let call = self.dialect.open(route, facts, draft);
        match self.call(&call).await {
            Ok((answer, _)) => match self.dialect.read(route, facts, &answer) {
                Some(request) => Ok(Opening::Opened(Box::new(request))),
                None => Ok(Opening::LookAgain("the response is not a request".to_owned())),
            },
            Err(CallFailure::Unknown(why)) => Ok(Opening::LookAgain(why)),
            Err(CallFailure::Status(status, message)) if self.dialect.exists_already(status, &message) => {
                Ok(Opening::LookAgain(message))
            }
            Err(CallFailure::Status(_, message)) if self.dialect.nothing_differs(&message) => Ok(Opening::Nothing),
            Err(other) => Err(self.stopped(other)),
        }
    }

    /// Replaces title and description of an open request.
    ///
    /// # Errors
    /// As [`Forge::facts`].
    pub async fn update(&self, route: &Route, now: &ChangeRequest, draft: &Draft) -> Result<(), DeliverStop> {
        let call = self.dialect.update(route, now, draft);
        self.again(&call).await.map_err(|failure| self.stopped(failure))
    }

    /// Sets labels and reviewers of a request.
    pub async fn set_labels(&self, route: &Route, number: u64, draft: &Draft) -> LabelsSet {
        let mut set = LabelsSet::default();
        if draft.labels.is_empty() && draft.reviewers.is_empty() {
            return set;
        }
        let mut found = Vec::new();
        for call in self.dialect.lookups(route, draft) {
            match self.all_pages(&call).await {
                Ok(answer) => found.push(answer),
                Err(other) => {
                    self.left_undone(&mut set, other);
                    found.push(Value::Null);
                }
            }
        }
        let unknown = self.dialect.unknown(draft, &found);
        set.problems.extend(
            unknown
                .into_iter()
                .map(|name| format!("the forge does not know `{name}`")),
        );
        for call in self.dialect.after(route, number, draft, &found) {
            if let Err(other) = self.again(&call).await {
                self.left_undone(&mut set, other);
            }
        }
        set
    }

    fn left_undone(&self, set: &mut LabelsSet, failure: CallFailure) {
        let stop = self.stopped(failure);
        set.unfinished |= matches!(stop, DeliverStop::Service(_));
        set.problems.push(stop.to_string());
    }

    /// A call that changes something and has the same effect when it is sent twice, so that it is retried also when it
    /// is unknown whether it took effect.
    async fn again(&self, call: &ApiCall) -> Result<(), CallFailure> {
        let mut failed = 0;
        loop {
            match self.call(call).await {
                Ok(_) => return Ok(()),
                Err(CallFailure::Unknown(why)) => {
                    failed += 1;
                    self.wait_budget
                        .before_retry(failed, None, &why)
                        .await
                        .map_err(CallFailure::Stop)?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// The response to a call that reads; of a list, all pages as one list.
    async fn all_pages(&self, call: &ApiCall) -> Result<Value, CallFailure> {
        let (mut found, mut next) = self.call(call).await?;
        for _ in 1..PAGES {
            let (Some(path), Value::Array(items)) = (next, &mut found) else {
                break;
            };
            let (page, after) = self.call(&ApiCall::get(path)).await?;
            if let Value::Array(more) = page {
                items.extend(more);
            }
            next = after;
        }
        Ok(found)
    }

    async fn ask(&self, call: &ApiCall) -> Result<(Value, Option<String>), DeliverStop> {
        self.call(call).await.map_err(|failure| self.stopped(failure))
    }

    fn odd(&self, wanted: &str, got: &Value) -> DeliverStop {
        let shown = super::message::one_line(&self.quiet.redact(&got.to_string()), 200);
        DeliverStop::Environment(format!(
            "{} answered with something other than {wanted}: {shown}",
            self.base
        ))
    }

    fn stopped(&self, failure: CallFailure) -> DeliverStop {
        match failure {
            CallFailure::Stop(stop) => stop,
            CallFailure::Unknown(why) => DeliverStop::Service(why),
            CallFailure::Status(401, message) => {
                DeliverStop::Environment(format!("{} rejects the token (401): {message}", self.base))
            }
            CallFailure::Status(status @ (403 | 404), message) => DeliverStop::Environment(format!(
                "{} refuses ({status}): {message}; the token must be allowed to read and write requests and contents of the repository",
                self.base
            )),
            CallFailure::Status(status, message) => {
                DeliverStop::Environment(format!("{} refuses ({status}): {message}", self.base))
            }
        }
    }

    /// One call with retries. A call that reads is always retried; a call that changes something only when it certainly
    /// took no effect.
    async fn call(&self, call: &ApiCall) -> Result<(Value, Option<String>), CallFailure> {
        let question = call.method == Method::GET;
        let url = format!("{}{}", self.base, call.path);
        let mut failed = 0;
        let mut earlier: Option<String> = None;
        loop {
            if !question {
                self.wait_budget.before_change().await;
            }
            let limit = self.wait_budget.limit(REQUEST, &self.base).map_err(CallFailure::Stop)?;
            let began = Instant::now();
            let sent = match self.send(call, &url, began + limit).await {
                Ok((mut answer, until)) => Ok(self.judge(&mut answer, until).await),
                Err(trouble) => Err(trouble),
            };
            let answered = matches!(sent, Ok(ResponseClass::Good(..) | ResponseClass::Status(..)));
            self.wait_budget.charge(began.elapsed(), !answered);
            let (why, asked, certain) = match sent {
                Ok(ResponseClass::Good(value, next)) => return Ok((value, next)),
                Ok(ResponseClass::Status(status, message)) => return Err(CallFailure::Status(status, message)),
                Ok(ResponseClass::Wait(asked, why)) => (why, Some(asked), true),
                Ok(ResponseClass::Ill(why)) => (why, None, question),
                Err(trouble @ HttpError::Connect { .. }) => (trouble.to_string(), None, true),
                Err(HttpError::Unusable(why)) => {
                    return Err(CallFailure::Stop(DeliverStop::Environment(format!(
                        "{}: {why}",
                        self.base
                    ))));
                }
                Err(HttpError::Ended(_)) => {
                    // An attempt that --max-wall cut short says less than the answer before it.
                    let cut = earlier.take().filter(|_| limit < REQUEST);
                    let told = || format!("{}: no response within {:.1} s", self.base, limit.as_secs_f64());
                    (cut.unwrap_or_else(told), None, question)
                }
                Err(trouble) => (format!("{}: {trouble}", self.base), None, question),
            };
            if !certain {
                return Err(CallFailure::Unknown(why));
            }
            failed += 1;
            self.wait_budget
                .before_retry(failed, asked, &why)
                .await
                .map_err(CallFailure::Stop)?;
            earlier = Some(why);
        }
    }

    async fn send(&self, call: &ApiCall, url: &str, deadline: Instant) -> Result<(ResponseHead, Instant), HttpError> {
        let (name, before) = self.dialect.token_header();
        let mut headers = vec![RequestHeader::Secret(name, before, &self.token)];
        let fixed = self.dialect.headers().iter();
        headers.extend(fixed.map(|(name, value)| RequestHeader::Plain(name, value)));
        let body = call.body.as_ref().map(|body| body.to_string().into_bytes());
        let until = Until {
            deadline,
            cancel: &self.cancel,
        };
        let answer = self
            .client
            .request(call.method.clone(), url, &headers, body, until)
            .await?;
        Ok((answer, deadline))
    }

    async fn judge(&self, answer: &mut ResponseHead, deadline: Instant) -> ResponseClass {
        let status = answer.status;
        let number = |name: &str| answer.header(name).and_then(|value| value.trim().parse::<u64>().ok());
        let spent = [number("x-ratelimit-remaining"), number("ratelimit-remaining")].contains(&Some(0));
        let reset = number("x-ratelimit-reset").or(number("ratelimit-reset"));
        let after = retry::asked_by_headers(|name| answer.header(name), SystemTime::now());
        let next = answer.header("link").and_then(|link| self.next_page(link));
        let until = Until {
            deadline,
            cancel: &self.cancel,
        };
        let mut bytes = Vec::new();
        loop {
            match answer.piece(until).await {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Ok(None) => break,
                Err(trouble) => return ResponseClass::Ill(format!("{}: {trouble}", self.base)),
            }
        }
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        if matches!(status, 200..=299) {
            // Some successful changes return an empty body.
            return match value {
                Some(value) => ResponseClass::Good(value, next),
                None if bytes.is_empty() => ResponseClass::Good(Value::Null, None),
                None => ResponseClass::Ill(format!("{}: the response is not JSON", self.base)),
            };
        }
        let message = self.message(value.as_ref(), &bytes);
        let limited = status == 429
            || (status == 403 && (spent || after.is_some() || message.to_ascii_lowercase().contains("rate limit")));
        if limited {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |now| now.as_secs());
            let until_reset = reset
                .filter(|_| spent)
                .map(|reset| Duration::from_secs(reset.saturating_sub(now) + 1));
            let asked = after.or(until_reset).unwrap_or(SECONDARY);
            return ResponseClass::Wait(asked, format!("{}: rate limit ({status}): {message}", self.base));
        }
        match status {
            500..=599 => ResponseClass::Ill(format!("{}: {status}: {message}", self.base)),
            300..=399 => ResponseClass::Status(
                status,
                "it answered with a redirect, which is not followed: the repository may have moved".to_owned(),
            ),
            _ => ResponseClass::Status(status, message),
        }
    }

    /// The error message of a response, as one line: `message` with `errors` (GitHub, Forgejo), or `message` or `error`
    /// (GitLab).
    fn message(&self, value: Option<&Value>, bytes: &[u8]) -> String {
        let field = |name: &str| value.and_then(|value| value.get(name)).map(shown);
        let mut text = field("message").or(field("error")).unwrap_or_default();
        if let Some(errors) = field("errors").filter(|errors| !errors.is_empty()) {
            text = format!("{text}: {errors}");
        }
        if text.is_empty() {
            text = String::from_utf8_lossy(bytes).into_owned();
        }
        super::message::one_line(&self.quiet.start(&text, 1_600), 400)
    }

    /// The next page from a `Link` header, as a path under the base URL, so that the token is sent to no other host.
    fn next_page(&self, link: &str) -> Option<String> {
        let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
        let url = next.split_once('<')?.1.split_once('>')?.0;
        let path = url.strip_prefix(&self.base);
        // The header may contain another host name of the forge; only path and query are used.
        let other = || {
            let (own, found) = (reqwest::Url::parse(&self.base).ok()?, reqwest::Url::parse(url).ok()?);
            let path = found.path().strip_prefix(own.path().trim_end_matches('/'))?.to_owned();
            Some(format!("{path}?{}", found.query()?))
        };
        path.map(str::to_owned)
            .or_else(other)
            .filter(|path| path.starts_with('/'))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            let message = fields.get("message").map(shown);
            message.unwrap_or_else(|| value.to_string())
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

enum ResponseClass {
    Good(Value, Option<String>),
    /// The call took no effect; holds the wait until the next one.
    Wait(Duration, String),
    /// A server error.
    Ill(String),
    Status(u16, String),
}

pub(super) fn text(item: &Value, path: &str) -> String {
    item.pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

//! A forge on a real socket: git over `git http-backend`, and requests over the REST wires of GitHub, GitLab and Forgejo, with what
//! people and the network do to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

/// The token of the forge and of its git server.
pub const TOKEN: &str = "tok-5ecret-0f-the-forge";

/// Whose wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Github,
    Gitlab,
    Forgejo,
}

impl Wire {
    pub fn target(self) -> &'static str {
        match self {
            Wire::Github => "github",
            Wire::Gitlab => "gitlab",
            Wire::Forgejo => "forgejo",
        }
    }

    pub fn variable(self) -> &'static str {
        match self {
            Wire::Github => "GITHUB_TOKEN",
            Wire::Gitlab => "GITLAB_TOKEN",
            Wire::Forgejo => "FORGEJO_TOKEN",
        }
    }
}

/// A request as the forge keeps it.
#[derive(Clone, Debug)]
pub struct Pull {
    pub number: u64,
    pub project: String,
    pub branch: String,
    pub base: String,
    pub title: String,
    pub body: String,
    pub open: bool,
    pub merged: bool,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub head: String,
}

/// What goes wrong with the next calls that match.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// `METHOD PATH-PART`.
    pub of: &'static str,
    pub times: usize,
    pub status: u16,
    pub headers: &'static [(&'static str, &'static str)],
    pub body: &'static str,
    /// The call is carried out, and then the answer is lost.
    pub after: bool,
}

/// A call as it came.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
    pub status: u16,
    pub answer: Value,
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
pub struct State {
    pub pulls: Vec<Pull>,
    pub calls: Vec<Call>,
    pub failures: Vec<Failure>,
    /// Labels of the project, numbered from 1.
    pub known_labels: Vec<String>,
    pub pushes: usize,
    /// Refuses every push to `overnight/*`, as a protected branch does.
    pub protected: bool,
    /// Items on a page of a list; 0 for what forges allow at most.
    pub page: usize,
    /// Run once when a push comes in, before it is taken.
    pub at_push: Option<Hook>,
}

pub type Hook = fn(&Path);

pub struct Forge {
    pub url: String,
    pub wire: Wire,
    /// Holds `o/n.git` and others.
    pub root: PathBuf,
    pub state: Arc<Mutex<State>>,
}

struct Asked {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Forge {
    pub fn new(wire: Wire, root: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let (shared, own, base) = (Arc::clone(&state), root.clone(), url.clone());
        std::thread::spawn(move || {
            for peer in listener.incoming().map_while(Result::ok) {
                let (state, root, base) = (Arc::clone(&shared), own.clone(), base.clone());
                std::thread::spawn(move || serve(peer, wire, &root, &base, &state));
            }
        });
        Self { url, wire, root, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn api(&self) -> String {
        format!("{}/api", self.url)
    }

    pub fn repo(&self, project: &str) -> PathBuf {
        self.root.join(format!("{project}.git"))
    }

    /// The address of a project for git.
    pub fn remote(&self, project: &str) -> String {
        format!("{}/{project}.git", self.url)
    }
}

fn read(peer: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(peer.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        // As RFC 9110 combines them: no server takes a pair of credentials.
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|before: &mut String| before.push_str(&format!(", {value}")))
            .or_insert_with(|| value.to_owned());
    }
    if headers.contains_key("expect") {
        (&mut &*peer).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|value| value == "chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(size) = headers.get("content-length").and_then(|size| size.parse().ok()) {
        body.resize(size, 0);
        reader.read_exact(&mut body).ok()?;
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body,
    })
}

fn serve(peer: TcpStream, wire: Wire, root: &Path, base: &str, state: &Mutex<State>) {
    let Some(asked) = read(&peer) else { return };
    let failure = failure(state, &asked);
    let reply = match failure.as_ref().filter(|failure| !failure.after) {
        Some(failure) => broken(failure),
        None => match asked.path.strip_prefix("/api") {
            Some(path) => rest(wire, path, root, base, &asked, state),
            None => git(root, &asked, state),
        },
    };
    if failure.is_some_and(|failure| failure.after) {
        // The connection breaks without an answer.
        return;
    }
    let mut head = format!(
        "HTTP/1.1 {} x\r\nconnection: close\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut peer = &peer;
    let _ = peer
        .write_all(head.as_bytes())
        .and_then(|()| peer.write_all(&reply.body));
    let _ = peer.flush();
    let _ = peer.shutdown(std::net::Shutdown::Write);
}

fn failure(state: &Mutex<State>, asked: &Asked) -> Option<Failure> {
    let mut state = state.lock().unwrap();
    let found = state.failures.iter_mut().find(|failure| {
        let (method, part) = failure.of.split_once(' ').unwrap();
        failure.times > 0 && asked.method == method && asked.path.contains(part)
    })?;
    found.times -= 1;
    let found = *found;
    if !found.after {
        let headers = asked.headers.clone();
        state.calls.push(Call {
            method: asked.method.clone(),
            path: asked.path.clone(),
            query: asked.query.clone(),
            body: serde_json::from_slice(&asked.body).unwrap_or_default(),
            status: found.status,
            answer: Value::Null,
            headers,
        });
    }
    Some(found)
}

fn broken(failure: &Failure) -> Reply {
    // A reset that is told as a moment of time.
    let soon = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let headers = failure.headers.iter().map(|(name, value)| {
        let value = value.replace("NOW", &soon.to_string());
        ((*name).to_owned(), value)
    });
    Reply {
        status: failure.status,
        headers: headers
            .chain([("content-type".to_owned(), "application/json".to_owned())])
            .collect(),
        body: failure.body.as_bytes().to_vec(),
    }
}

fn password(asked: &Asked) -> Option<String> {
    let value = asked.headers.get("authorization")?.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
    Some(text.split_once(':')?.1.to_owned())
}

fn git(root: &Path, asked: &Asked, state: &Mutex<State>) -> Reply {
    if password(asked).as_deref() != Some(TOKEN) {
        return Reply {
            status: 401,
            headers: vec![("www-authenticate".to_owned(), "Basic realm=\"forge\"".to_owned())],
            body: Vec::new(),
        };
    }
    if asked.path.ends_with("/git-receive-pack") && asked.method == "POST" {
        let hook = {
            let mut state = state.lock().unwrap();
            state.pushes += 1;
            state.at_push.take()
        };
        if let Some(hook) = hook {
            hook(root);
        }
    }
    let protected = state.lock().unwrap().protected;
    let backend = Command::new("git").arg("--exec-path").output().unwrap();
    let backend = Path::new(String::from_utf8(backend.stdout).unwrap().trim()).join("git-http-backend");
    let mut command = Command::new(backend);
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("PATH_INFO", &asked.path)
        .env("QUERY_STRING", &asked.query)
        .env("REQUEST_METHOD", &asked.method)
        .env(
            "CONTENT_TYPE",
            asked.headers.get("content-type").cloned().unwrap_or_default(),
        )
        .env("CONTENT_LENGTH", asked.body.len().to_string())
        .env("REMOTE_USER", "overnight")
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("FORGE_PROTECTED", if protected { "1" } else { "" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for (name, variable) in [
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = asked.headers.get(name) {
            command.env(variable, value);
        }
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = asked.body.clone();
    let feed = std::thread::spawn(move || {
        let _ = stdin.write_all(&body);
    });
    let output = child.wait_with_output().unwrap().stdout;
    feed.join().unwrap();
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let mut status = 200;
    let mut headers = Vec::new();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(':').unwrap();
        match name {
            "Status" => status = value.split_whitespace().next().unwrap().parse().unwrap(),
            name => headers.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    Reply {
        status,
        headers,
        body: output[end + 4..].to_vec(),
    }
}

/// What a branch points at, read by git itself.
pub fn tip(repo: &Path, branch: &str) -> Option<String> {
    let output = Command::new("git")
        .arg("--git-dir")
        .arg(repo)
        .args(["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")])
        .output()
        .unwrap();
    let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    (!id.is_empty()).then_some(id)
}

fn commit_message(repo: &Path, id: &str) -> Option<String> {
    let output = Command::new("git")
        .arg("--git-dir")
        .arg(repo)
        .args(["log", "-1", "--format=%B", id])
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
}

fn rest(wire: Wire, path: &str, root: &Path, base: &str, asked: &Asked, state: &Mutex<State>) -> Reply {
    let token = match wire {
        Wire::Github => asked
            .headers
            .get("authorization")
            .and_then(|value| value.strip_prefix("Bearer ")),
        Wire::Gitlab => asked.headers.get("private-token").map(String::as_str),
        Wire::Forgejo => asked
            .headers
            .get("authorization")
            .and_then(|value| value.strip_prefix("token ")),
    };
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let mut state = state.lock().unwrap();
    for pull in state.pulls.iter_mut().filter(|pull| pull.open) {
        if let Some(id) = tip(&root.join(format!("{}.git", pull.project)), &pull.branch) {
            pull.head = id;
        }
    }
    let (status, answer) = match token {
        Some(TOKEN) => {
            let mut rest = Rest {
                wire,
                root,
                base,
                query: query(&asked.query),
                body: &body,
                state: &mut state,
            };
            rest.answer(&asked.method, path)
        }
        _ => (
            401,
            json!({"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401"}),
        ),
    };
    state.calls.push(Call {
        method: asked.method.clone(),
        path: asked.path.clone(),
        query: asked.query.clone(),
        body,
        status,
        answer: answer.clone(),
        headers: asked.headers.clone(),
    });
    let (answer, next) = page_of(answer, asked, base, state.page);
    let mut headers = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
    headers.extend(next.map(|next| ("link".to_owned(), next)));
    Reply {
        status,
        headers,
        body: answer.to_string().into_bytes(),
    }
}

/// One page of the labels or requests of a project, and the header that names the next one.
fn page_of(answer: Value, asked: &Asked, base: &str, most: usize) -> (Value, Option<String>) {
    let is_list = asked.path.ends_with("/labels") || asked.path.ends_with("/pulls");
    let items = match answer {
        Value::Array(items) if asked.method == "GET" && is_list => items,
        other => return (other, None),
    };
    let most = if most == 0 { 50 } else { most };
    let mut query = query(&asked.query);
    let page: usize = query.remove("page").map_or(1, |page| page.parse().unwrap());
    let next = (items.len() > page * most).then(|| {
        let same: String = query.iter().map(|(name, value)| format!("{name}={value}&")).collect();
        format!("<{base}{}?{same}page={}>; rel=\"next\"", asked.path, page + 1)
    });
    (items.into_iter().skip((page - 1) * most).take(most).collect(), next)
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

struct Rest<'a> {
    wire: Wire,
    root: &'a Path,
    base: &'a str,
    query: BTreeMap<String, String>,
    body: &'a Value,
    state: &'a mut State,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

impl Rest<'_> {
    fn repo(&self, project: &str) -> PathBuf {
        self.root.join(format!("{project}.git"))
    }

    fn answer(&mut self, method: &str, path: &str) -> (u16, Value) {
        let decoded_path = decoded(path);
        let parts: Vec<&str> = decoded_path.trim_matches('/').split('/').collect();
        match (self.wire, method, parts.as_slice()) {
            (Wire::Github | Wire::Forgejo, "GET", ["repos", _, _, "pulls"]) => self.list(),
            (Wire::Github | Wire::Forgejo, "POST", ["repos", o, n, "pulls"]) => self.open(&format!("{o}/{n}")),
            (Wire::Github | Wire::Forgejo, "PATCH", ["repos", _, _, "pulls", number]) => self.update(number),
            (Wire::Github | Wire::Forgejo, "POST", ["repos", _, _, "issues", number, "labels"]) => self.label(number),
            (Wire::Github | Wire::Forgejo, "POST", ["repos", _, _, "pulls", number, "requested_reviewers"]) => {
                self.review(number)
            }
            (Wire::Github, "GET", ["repos", o, n, "commits", id]) => self.commit(&format!("{o}/{n}"), id),
            (Wire::Forgejo, "GET", ["repos", o, n, "git", "commits", id]) => self.commit(&format!("{o}/{n}"), id),
            (Wire::Forgejo, "GET", ["repos", _, _, "labels"]) => {
                let labels = self.state.known_labels.iter().enumerate();
                (
                    200,
                    labels
                        .map(|(at, name)| json!({"id": at + 1, "name": name, "color": "ee0701"}))
                        .collect(),
                )
            }
            (Wire::Gitlab, "GET", ["projects", o, n]) => {
                let id = self.id(&format!("{o}/{n}"));
                (
                    200,
                    json!({"id": id, "path_with_namespace": format!("{o}/{n}"), "default_branch": "main"}),
                )
            }
            (Wire::Gitlab, "GET", ["projects", _, _, "merge_requests"]) => self.list(),
            (Wire::Gitlab, "POST", ["projects", o, n, "merge_requests"]) => self.open(&format!("{o}/{n}")),
            (Wire::Gitlab, "PUT", ["projects", _, _, "merge_requests", number]) => self.update(number),
            (Wire::Gitlab, "GET", ["projects", o, n, "repository", "commits", id]) => {
                self.commit(&format!("{o}/{n}"), id)
            }
            (Wire::Gitlab, "GET", ["users"]) => match self.query["username"].as_str() {
                "nobody" => (200, json!([])),
                name => (200, json!([{"id": 77, "username": name, "state": "active"}])),
            },
            _ => (404, json!({"message": "Not Found"})),
        }
    }

    /// Numbers of projects.
    fn id(&self, project: &str) -> u64 {
        project.bytes().map(u64::from).sum()
    }

    fn list(&self) -> (u16, Value) {
        let wanted = |pull: &&Pull| match self.wire {
            Wire::Github => {
                let head = self.query.get("head").is_none_or(|head| {
                    let (owner, branch) = head.split_once(':').unwrap();
                    pull.branch == branch && pull.project.starts_with(&format!("{owner}/"))
                });
                head && (self.query["state"] == "all" || pull.open)
            }
            Wire::Gitlab => {
                let branch = self
                    .query
                    .get("source_branch")
                    .is_none_or(|branch| pull.branch == *branch);
                branch && (self.query["state"] == "all" || pull.open)
            }
            Wire::Forgejo => self.query["state"] == "all" || pull.open,
        };
        (
            200,
            self.state
                .pulls
                .iter()
                .rev()
                .filter(wanted)
                .map(|pull| self.shown(pull, true))
                .collect(),
        )
    }

    fn open(&mut self, at: &str) -> (u16, Value) {
        let body = self.body;
        let (project, branch, base, title, description) = match self.wire {
            Wire::Gitlab => (
                at.to_owned(),
                text(body, "source_branch"),
                text(body, "target_branch"),
                text(body, "title"),
                text(body, "description"),
            ),
            _ => {
                let head = text(body, "head");
                let (owner, branch) = match head.split_once(':') {
                    Some((owner, branch)) => (owner.to_owned(), branch.to_owned()),
                    None => (at.split('/').next().unwrap().to_owned(), head),
                };
                let project = format!("{owner}/{}", at.split('/').nth(1).unwrap());
                (
                    project,
                    branch,
                    text(body, "base"),
                    text(body, "title"),
                    text(body, "body"),
                )
            }
        };
        let Some(head) = tip(&self.repo(&project), &branch) else {
            return (
                422,
                json!({"message": "Validation Failed", "errors": [{"resource": "PullRequest", "field": "head", "code": "invalid"}]}),
            );
        };
        if let Some(there) = self
            .state
            .pulls
            .iter()
            .find(|pull| pull.open && pull.branch == branch && pull.project == project)
        {
            return match self.wire {
                Wire::Github => (
                    422,
                    json!({"message": "Validation Failed", "errors": [{"resource": "PullRequest", "code": "custom", "message": format!("A pull request already exists for {}:{branch}.", project.split('/').next().unwrap())}], "documentation_url": "https://docs.github.com/rest/pulls/pulls#create-a-pull-request"}),
                ),
                Wire::Gitlab => (
                    409,
                    json!({"message": [format!("Another open merge request already exists for this source branch: !{}", there.number)]}),
                ),
                Wire::Forgejo => (
                    409,
                    json!({"message": format!("pull request already exists for these targets [id: {}]", there.number), "url": "x"}),
                ),
            };
        }
        let labels = text(body, "labels");
        let pull = Pull {
            number: self.state.pulls.len() as u64 + 1,
            project,
            branch,
            base,
            title,
            body: description,
            open: true,
            merged: false,
            labels: labels
                .split(',')
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect(),
            reviewers: Vec::new(),
            head,
        };
        self.state.pulls.push(pull.clone());
        (201, self.shown(&pull, false))
    }

    fn pull(&mut self, number: &str) -> &mut Pull {
        let number: u64 = number.parse().unwrap();
        self.state.pulls.iter_mut().find(|pull| pull.number == number).unwrap()
    }

    fn update(&mut self, number: &str) -> (u16, Value) {
        let body = self.body.clone();
        let pull = self.pull(number);
        if let Some(title) = body["title"].as_str() {
            pull.title = title.to_owned();
        }
        if let Some(text) = body["body"].as_str().or(body["description"].as_str()) {
            pull.body = text.to_owned();
        }
        if let Some(ids) = body["reviewer_ids"].as_array() {
            pull.reviewers = ids.iter().map(ToString::to_string).collect();
        }
        let pull = pull.clone();
        (200, self.shown(&pull, false))
    }

    fn label(&mut self, number: &str) -> (u16, Value) {
        let names = self.body["labels"].as_array().unwrap().iter();
        let names: Vec<String> = names
            .map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned))
            .collect();
        self.pull(number).labels.extend(names.clone());
        let template: Value =
            serde_json::from_str(include_str!("../../../fixtures/deliver/github/labels.json")).unwrap();
        let of = |name: &String| {
            let mut label = template[0].clone();
            label["name"] = json!(name);
            label
        };
        (200, names.iter().map(of).collect())
    }

    fn review(&mut self, number: &str) -> (u16, Value) {
        let names: Vec<String> = self.body["reviewers"].as_array().unwrap().iter().map(text_of).collect();
        if names.iter().any(|name| name == "nobody") {
            let message = "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of the o/n repository.";
            return (
                422,
                json!({"message": message, "documentation_url": "https://docs.github.com/rest"}),
            );
        }
        self.pull(number).reviewers.extend(names);
        (
            201,
            serde_json::from_str(include_str!("../../../fixtures/deliver/github/review-request.json")).unwrap(),
        )
    }

    fn commit(&self, project: &str, id: &str) -> (u16, Value) {
        let Some(message) = commit_message(&self.repo(project), id) else {
            return (404, json!({"message": "Not Found"}));
        };
        match self.wire {
            Wire::Gitlab => (
                200,
                json!({"id": id, "short_id": &id[..8], "title": message.lines().next(), "message": message}),
            ),
            _ => {
                let mut commit: Value =
                    serde_json::from_str(include_str!("../../../fixtures/deliver/github/commit.json")).unwrap();
                commit["sha"] = json!(id);
                commit["commit"]["message"] = json!(message);
                (200, commit)
            }
        }
    }

    fn shown(&self, pull: &Pull, listed: bool) -> Value {
        let url = format!("{}/{}/pull/{}", self.base, pull.project, pull.number);
        match self.wire {
            Wire::Github => {
                let template = match listed {
                    true => include_str!("../../../fixtures/deliver/github/pull-request-simple.json"),
                    false => include_str!("../../../fixtures/deliver/github/pull-request.json"),
                };
                let mut item: Value = serde_json::from_str(template).unwrap();
                let owner = pull.project.split('/').next().unwrap();
                item["number"] = json!(pull.number);
                item["html_url"] = json!(url);
                item["state"] = json!(if pull.open { "open" } else { "closed" });
                item["title"] = json!(pull.title);
                item["body"] = json!(pull.body);
                item["merged_at"] = if pull.merged {
                    json!("2026-01-26T19:01:12Z")
                } else {
                    Value::Null
                };
                if !listed {
                    item["merged"] = json!(pull.merged);
                }
                item["head"]["ref"] = json!(pull.branch);
                item["head"]["label"] = json!(format!("{owner}:{}", pull.branch));
                item["head"]["sha"] = json!(pull.head);
                item["head"]["repo"]["full_name"] = json!(pull.project);
                item["base"]["ref"] = json!(pull.base);
                item
            }
            Wire::Forgejo => json!({
                "id": pull.number + 100, "number": pull.number, "html_url": url, "url": url,
                "state": if pull.open { "open" } else { "closed" }, "merged": pull.merged,
                "merged_at": if pull.merged { json!("2026-01-26T19:01:12Z") } else { Value::Null },
                "title": pull.title, "body": pull.body, "draft": pull.title.starts_with("WIP: "),
                "head": {"label": pull.branch, "ref": pull.branch, "sha": pull.head, "repo_id": 1, "repo": {"full_name": pull.project}},
                "base": {"label": pull.base, "ref": pull.base, "repo": {"full_name": "o/n"}},
            }),
            Wire::Gitlab => json!({
                "id": pull.number + 100, "iid": pull.number, "web_url": url,
                "state": if pull.merged { "merged" } else if pull.open { "opened" } else { "closed" },
                "title": pull.title, "description": pull.body, "draft": pull.title.starts_with("Draft: "),
                "source_branch": pull.branch, "target_branch": pull.base, "sha": pull.head,
                "source_project_id": self.id(&pull.project), "target_project_id": self.id("o/n"),
                "labels": pull.labels,
            }),
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

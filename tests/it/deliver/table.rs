//! What branch and request look like before, what happens meanwhile, and what a delivery makes of it: one row a case, on all forges.

use super::openapi;
use super::scenes::{BRANCH, Scene, person};
use super::server::{Failure, Pull, Wire, tip};
use crate::harness::git_in;
use std::path::Path;

#[derive(Clone, Copy)]
enum Step {
    /// Run, flags, outcome, code.
    Deliver(&'static str, &'static [&'static str], &'static str, i32),
    /// What the last reason says.
    Says(&'static str),
    /// All requests, and how many are open.
    Pulls(usize, usize),
    Pushes(usize),
    /// The fifth line of the file on the branch.
    Line(&'static str),
    Close,
    /// With a merge commit.
    Merge,
    /// As one new commit; the branch stays.
    Squash,
    Revert,
    /// A commit of a person on this branch.
    Commits(&'static str, &'static str, &'static str),
    /// A person changes our commit.
    Amends,
    /// A person moves our commit onto the newer base.
    Rebases,
    DeletesBranch,
    Edits(&'static str, &'static str),
    Fails(Failure),
    Protects,
    AtPush(fn(&Path)),
    Stranger,
    /// Title and body of the newest request hold this.
    Tells(&'static str),
    TellsNot(&'static str),
}
use Step::*;

const OPENING: &str = "POST pulls";
const fn fails(of: &'static str, times: usize, status: u16) -> Step {
    Fails(Failure {
        of,
        times,
        status,
        headers: &[],
        body: "{\"message\":\"no\"}",
        after: false,
    })
}

/// `pulls` stands for the forge's word in a path; see [`localized`].
const CASES: &[(&str, &[Step])] = &[
    (
        "the first time",
        &[
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
            Pushes(1),
            Line("fixed by a"),
            Tells("Fix the fifth line"),
        ],
    ),
    (
        "nothing happens again",
        &[
            Deliver("a", &[], "opened", 0),
            Deliver("a", &[], "unchanged", 0),
            Pulls(1, 1),
            Pushes(1),
        ],
    ),
    (
        "another patch",
        &[
            Deliver("a", &[], "opened", 0),
            Deliver("b", &[], "updated", 0),
            Pulls(1, 1),
            Pushes(2),
            Line("fixed by b"),
            Deliver("b", &[], "unchanged", 0),
        ],
    ),
    (
        "a run that changed nothing",
        &[Deliver("d", &[], "nothing", 0), Pulls(0, 0), Pushes(0)],
    ),
    (
        "closed by a person",
        &[
            Deliver("a", &[], "opened", 0),
            Close,
            Deliver("a", &[], "closed_by_person", 0),
            Pulls(1, 0),
            Pushes(1),
            Deliver("b", &[], "opened", 0),
            Pulls(2, 1),
            // Not through the request with the other patch either.
            Deliver("a", &[], "closed_by_person", 0),
            Pulls(2, 1),
            Pushes(2),
            Line("fixed by b"),
        ],
    ),
    (
        "closed, with a branch that is gone",
        &[
            Deliver("a", &[], "opened", 0),
            Close,
            DeletesBranch,
            Deliver("a", &[], "closed_by_person", 0),
            Pulls(1, 0),
        ],
    ),
    (
        "closed, with a text that says nothing",
        &[
            Deliver("a", &[], "opened", 0),
            Edits("mine", "mine"),
            Close,
            Deliver("a", &[], "closed_by_person", 0),
            Pulls(1, 0),
        ],
    ),
    (
        "closed, and the change moves within its file",
        &[
            Deliver("a", &[], "opened", 0),
            Close,
            Commits("main", "docs/b.txt", "c\n"),
            Deliver("a", &[], "closed_by_person", 0),
            Pulls(1, 0),
        ],
    ),
    (
        "merged",
        &[
            Deliver("a", &[], "opened", 0),
            Merge,
            Deliver("a", &[], "nothing", 0),
            Deliver("c", &[], "opened", 0),
            Pulls(2, 1),
        ],
    ),
    (
        "merged as one commit",
        &[
            Deliver("a", &[], "opened", 0),
            Squash,
            Deliver("a", &[], "nothing", 0),
            Deliver("c", &[], "opened", 0),
            Pulls(2, 1),
            Line("fixed by a"),
        ],
    ),
    (
        "merged and taken back",
        &[
            Deliver("a", &[], "opened", 0),
            Merge,
            Revert,
            Deliver("a", &[], "nothing", 0),
            Says("merged"),
            Pulls(1, 0),
        ],
    ),
    (
        "a base that went on",
        &[
            Commits("main", "docs/b.txt", "c\n"),
            Deliver("a", &[], "opened", 0),
            Line("fixed by a"),
            Deliver("a", &[], "unchanged", 0),
        ],
    ),
    (
        "a base that went on and is left alone",
        &[
            Deliver("a", &[], "opened", 0),
            Commits("main", "docs/b.txt", "c\n"),
            Deliver("a", &[], "unchanged", 0),
            Pushes(1),
        ],
    ),
    (
        "a base that conflicts",
        &[
            Commits("main", "src/a.txt", "all new\n"),
            Deliver("a", &[], "conflict", 1),
            Says("src/a.txt"),
            Pulls(0, 0),
            Pushes(0),
        ],
    ),
    (
        "an update that conflicts",
        &[
            Deliver("a", &[], "opened", 0),
            Commits("main", "src/a.txt", "all new\n"),
            Deliver("b", &[], "conflict", 1),
            Pushes(1),
            Line("fixed by a"),
        ],
    ),
    (
        "a base that has it",
        &[
            Deliver("a", &["--to", "push"], "opened", 0),
            Squash,
            Deliver("a", &[], "nothing", 0),
            Pulls(0, 0),
        ],
    ),
    (
        "a person's commit on the branch",
        &[
            Deliver("a", &[], "opened", 0),
            Commits(BRANCH, "docs/b.txt", "theirs\n"),
            Deliver("b", &[], "conflict", 1),
            Deliver("a", &[], "conflict", 1),
            Pushes(1),
            Line("fixed by a"),
        ],
    ),
    (
        "a person amends",
        &[
            Deliver("a", &[], "opened", 0),
            Amends,
            Deliver("b", &[], "conflict", 1),
            Says("not what was delivered"),
            Line("fixed by a person"),
            Pushes(1),
        ],
    ),
    (
        "a person rebases",
        &[
            Deliver("a", &[], "opened", 0),
            Commits("main", "docs/b.txt", "c\n"),
            Rebases,
            Deliver("b", &[], "conflict", 1),
            Line("fixed by a"),
            Pushes(1),
        ],
    ),
    (
        "a person's branch of that name",
        &[
            Commits(BRANCH, "docs/b.txt", "theirs\n"),
            Deliver("a", &[], "conflict", 1),
            Pulls(0, 0),
            Pushes(0),
        ],
    ),
    (
        "a text that a person edited",
        &[
            Deliver("a", &[], "opened", 0),
            Edits("Their title", "Their text"),
            Deliver("b", &[], "updated", 0),
            Says("edited"),
            Tells("Their title"),
            Tells("Their text"),
            Line("fixed by b"),
        ],
    ),
    (
        "pushed, and no request",
        &[
            Deliver("a", &["--to", "push"], "opened", 0),
            Pulls(0, 0),
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
            Pushes(1),
        ],
    ),
    (
        "the answer to the opening is lost",
        &[
            Fails(Failure {
                of: OPENING,
                times: 1,
                status: 0,
                headers: &[],
                body: "",
                after: true,
            }),
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
            Pushes(1),
        ],
    ),
    (
        "the text of an update is lost",
        &[
            Deliver("a", &[], "opened", 0),
            fails("TEXT pulls/", 1, 422),
            Deliver("b", &[], "failed", 8),
            Line("fixed by b"),
            Deliver("b", &[], "updated", 0),
            Pushes(2),
            Deliver("b", &[], "unchanged", 0),
        ],
    ),
    (
        "the service falls over once",
        &[
            fails("GET pulls", 1, 502),
            fails(OPENING, 1, 503),
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
        ],
    ),
    (
        "the service is down",
        &[
            fails("GET pulls", 99, 503),
            Deliver("a", &["--max-wall", "2s"], "failed", 7),
            Says("503"),
            Pulls(0, 0),
            Pushes(0),
        ],
    ),
    (
        "a rate limit",
        &[
            Fails(Failure {
                of: "GET pulls",
                times: 1,
                status: 429,
                headers: &[("Retry-After", "1")],
                body: "{\"message\":\"slow down\"}",
                after: false,
            }),
            Fails(Failure {
                of: OPENING,
                times: 1,
                status: 403,
                headers: &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "NOW")],
                body: "{\"message\":\"API rate limit exceeded\"}",
                after: false,
            }),
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
        ],
    ),
    (
        "a rate limit that is too long",
        &[
            Fails(Failure {
                of: "GET pulls",
                times: 9,
                status: 403,
                headers: &[("Retry-After", "3600")],
                body: "{\"message\":\"You have exceeded a secondary rate limit\"}",
                after: false,
            }),
            Deliver("a", &["--max-wall", "5s"], "failed", 7),
            Says("--max-wall"),
            Pulls(0, 0),
        ],
    ),
    (
        "a rate limit that names no time",
        &[
            Fails(Failure {
                of: "GET pulls",
                times: 9,
                status: 429,
                headers: &[],
                body: "{\"message\":\"You have exceeded a secondary rate limit\"}",
                after: false,
            }),
            Deliver("a", &["--max-wall", "5s"], "failed", 7),
            Says("waiting 60 s more would exceed --max-wall"),
            Pulls(0, 0),
        ],
    ),
    (
        "a token that is none",
        &[
            fails("GET pulls", 9, 401),
            Deliver("a", &[], "failed", 8),
            Says("401"),
            Pushes(0),
        ],
    ),
    (
        "a token that may not",
        &[
            fails(OPENING, 9, 403),
            Deliver("a", &[], "failed", 8),
            Says("403"),
            Pulls(0, 0),
        ],
    ),
    (
        "a project that is gone",
        &[fails("GET pulls", 9, 404), Deliver("a", &[], "failed", 8), Pushes(0)],
    ),
    (
        "a request that is refused",
        &[
            fails(OPENING, 9, 422),
            Deliver("a", &[], "failed", 8),
            Says("422"),
            Pulls(0, 0),
        ],
    ),
    (
        "the git server falls over once",
        &[
            fails("GET o/n.git/info/refs", 1, 503),
            fails("POST o/n.git/git-receive-pack", 1, 500),
            Deliver("a", &[], "opened", 0),
            Pulls(1, 1),
        ],
    ),
    (
        "the git server is down",
        &[
            fails("GET o/n.git/info/refs", 99, 503),
            Deliver("a", &["--max-wall", "2s"], "failed", 7),
            Pulls(0, 0),
        ],
    ),
    (
        "a branch that is protected",
        &[Protects, Deliver("a", &[], "failed", 8), Says("protected"), Pulls(0, 0)],
    ),
    (
        "a branch whose name is in the way",
        &[
            Commits("overnight", "docs/b.txt", "theirs\n"),
            Deliver("a", &[], "failed", 8),
            Says("the git server refuses the push"),
            Pushes(2),
            Pulls(0, 0),
        ],
    ),
    (
        "somebody is quicker",
        &[
            AtPush(quicker),
            Deliver("a", &[], "conflict", 1),
            Pulls(0, 0),
            Line("line 5"),
        ],
    ),
    (
        "a stranger's fork with a branch of that name",
        &[
            Stranger,
            Deliver("a", &[], "opened", 0),
            Pulls(3, 2),
            Deliver("a", &[], "unchanged", 0),
        ],
    ),
    (
        "as many as may be open",
        &[
            Deliver("a", &["--branch", "overnight/{recipe}-1"], "opened", 0),
            Deliver("c", &["--max-open", "1"], "held_back", 0),
            Pulls(1, 1),
            Pushes(1),
            Deliver("c", &["--max-open", "2"], "opened", 0),
            Deliver("c", &["--max-open", "1"], "unchanged", 0),
        ],
    ),
    (
        "a draft with labels and reviewers",
        &[
            Deliver("a", &["--draft", "--label", "night", "--reviewer", "ada"], "opened", 0),
            Deliver("b", &[], "updated", 0),
            Tells("ada"),
            Tells("night"),
            Tells("bot"),
        ],
    ),
    (
        "a reviewer whom nobody knows",
        &[
            Deliver("a", &["--reviewer", "nobody"], "opened", 0),
            Says("no"),
            Pulls(1, 1),
        ],
    ),
    (
        "a dry run",
        &[
            Deliver("a", &["--dry-run"], "opened", 0),
            Pulls(0, 0),
            Pushes(0),
            Deliver("a", &[], "opened", 0),
            Deliver("b", &["--dry-run"], "updated", 0),
            Pushes(1),
        ],
    ),
    (
        "the base as the branch",
        &[Deliver("a", &["--branch", "main"], "failed", 8), Pushes(0)],
    ),
    (
        "a request into another base",
        &[
            Commits("release", "docs/b.txt", "release\n"),
            Deliver("a", &[], "opened", 0),
            Deliver("a", &["--base", "release"], "conflict", 1),
            Says("an open request into `main`: choose another --branch"),
            Deliver("b", &["--base", "release"], "conflict", 1),
            Pulls(1, 1),
            Pushes(1),
            Line("fixed by a"),
            Deliver(
                "a",
                &["--base", "release", "--branch", "overnight/release"],
                "opened",
                0,
            ),
            Pulls(2, 2),
        ],
    ),
    (
        "a base that is not there",
        &[Deliver("a", &["--base", "nowhere"], "failed", 8), Pushes(0)],
    ),
    (
        "marks in what the model said",
        &[
            Deliver("a", &[], "opened", 0),
            TellsNot("@octocat"),
            TellsNot("#1"),
            TellsNot("\n/close"),
            TellsNot("[skip ci]"),
            Tells("octocat"),
        ],
    ),
];

fn quicker(root: &Path) {
    person(&root.join("o/n.git"), |clone| {
        git_in(clone, &["checkout", "-q", "-b", BRANCH]);
        std::fs::write(clone.join("docs/b.txt"), "quicker\n").unwrap();
        git_in(clone, &["commit", "-q", "-a", "-m", "theirs"]);
        git_in(clone, &["push", "-q", "origin", BRANCH]);
    });
}

/// The forge's own words for a path and for the method that writes a text again.
fn localized(wire: Wire, failure: &Failure) -> Failure {
    let of = match (wire, failure.of) {
        (Wire::Gitlab, "POST pulls") => "POST /merge_requests",
        (Wire::Gitlab, "GET pulls") => "GET /merge_requests",
        (Wire::Gitlab, "TEXT pulls/") => "PUT /merge_requests/",
        (_, "TEXT pulls/") => "PATCH /pulls/",
        (_, "POST pulls") => "POST /n/pulls",
        (_, "GET pulls") => "GET /n/pulls",
        (_, of) => of,
    };
    Failure { of, ..*failure }
}

fn newest(scene: &Scene) -> Pull {
    scene.forge.state().pulls.last().unwrap().clone()
}

fn merge(scene: &Scene, how: &[&str]) {
    scene.person(|clone| {
        let branch = format!("origin/{BRANCH}");
        let mut words = vec!["merge", "-q"];
        words.extend(how);
        words.push(&branch);
        git_in(clone, &words);
        if how.contains(&"--squash") {
            git_in(clone, &["commit", "-q", "-m", "squashed"]);
        }
        git_in(clone, &["push", "-q", "origin", "main"]);
    });
    for pull in &mut scene.forge.state().pulls {
        (pull.open, pull.merged) = (false, true);
    }
}

fn play(wire: Wire, name: &str, steps: &[Step]) {
    let scene = Scene::new(wire);
    scene.forge.state().known_labels = vec!["bot".to_owned(), "night".to_owned()];
    let mut reason = String::new();
    for (at, step) in steps.iter().enumerate() {
        let at = format!("{wire:?}: {name}: step {at}");
        match *step {
            Deliver(run, flags, outcome, code) => {
                let done = scene.deliver(run, flags);
                assert_eq!(
                    (done.outcome(), done.done.code),
                    (outcome, code),
                    "{at}: {}\n{}",
                    done.reason(),
                    done.done.stderr
                );
                if flags.is_empty() && outcome == "opened" {
                    assert_eq!(done.line["commit"].as_str(), scene.tip().as_deref(), "{at}");
                    assert!(done.line["url"].as_str().unwrap().starts_with(&scene.forge.url), "{at}");
                }
                reason = done.reason().to_owned();
            }
            Says(text) => assert!(reason.contains(text), "{at}: {reason}"),
            Pulls(all, open) => {
                let state = scene.forge.state();
                let found = (state.pulls.len(), state.pulls.iter().filter(|pull| pull.open).count());
                assert_eq!(found, (all, open), "{at}");
            }
            Pushes(n) => assert_eq!(scene.forge.state().pushes, n, "{at}"),
            Line(text) => assert_eq!(scene.show(BRANCH, "src/a.txt").lines().nth(4), Some(text), "{at}"),
            Close => scene.forge.state().pulls.iter_mut().for_each(|pull| pull.open = false),
            Merge => merge(&scene, &["--no-ff"]),
            Squash => merge(&scene, &["--squash"]),
            Revert => scene.person(|clone| {
                git_in(clone, &["revert", "-m", "1", "--no-edit", "HEAD"]);
                git_in(clone, &["push", "-q", "origin", "main"]);
            }),
            Commits(branch, path, text) => scene.person(|clone| {
                let new = tip(&scene.repo(), branch).is_none();
                let how: &[&str] = if new {
                    &["checkout", "-q", "-b", branch]
                } else {
                    &["checkout", "-q", branch]
                };
                git_in(clone, how);
                std::fs::write(clone.join(path), text).unwrap();
                git_in(clone, &["commit", "-q", "-a", "-m", "a person's"]);
                git_in(clone, &["push", "-q", "origin", branch]);
            }),
            Amends => scene.person(|clone| {
                git_in(clone, &["checkout", "-q", BRANCH]);
                let text = std::fs::read_to_string(clone.join("src/a.txt")).unwrap();
                std::fs::write(clone.join("src/a.txt"), text.replace("fixed by a", "fixed by a person")).unwrap();
                git_in(clone, &["commit", "-q", "-a", "--amend", "--no-edit"]);
                git_in(clone, &["push", "-q", "-f", "origin", BRANCH]);
            }),
            Rebases => scene.person(|clone| {
                git_in(clone, &["checkout", "-q", BRANCH]);
                git_in(clone, &["rebase", "-q", "origin/main"]);
                git_in(clone, &["push", "-q", "-f", "origin", BRANCH]);
            }),
            DeletesBranch => {
                git_in(&scene.repo(), &["branch", "-D", BRANCH]);
            }
            Edits(title, body) => {
                let mut state = scene.forge.state();
                let pull = state.pulls.last_mut().unwrap();
                (pull.title, pull.body) = (title.to_owned(), body.to_owned());
            }
            Fails(failure) => scene.forge.state().failures.push(localized(wire, &failure)),
            Protects => scene.forge.state().protected = true,
            AtPush(hook) => scene.forge.state().at_push = Some(hook),
            Stranger => {
                for (number, open) in [(1, true), (2, false)] {
                    scene.forge.state().pulls.push(Pull {
                        number,
                        project: "stranger/n".to_owned(),
                        branch: BRANCH.to_owned(),
                        base: "main".to_owned(),
                        title: "mine".to_owned(),
                        body: "mine".to_owned(),
                        open,
                        merged: false,
                        labels: Vec::new(),
                        reviewers: Vec::new(),
                        head: "0".repeat(40),
                    });
                }
            }
            Tells(text) => {
                let pull = newest(&scene);
                let all = format!("{}\n{}\n{:?}", pull.title, pull.body, told(wire, &pull));
                assert!(all.contains(text), "{at}: {all}");
            }
            TellsNot(text) => {
                let pull = newest(&scene);
                let message = git_in(&scene.repo(), &["log", "-1", "--format=%B", BRANCH]);
                for told in [pull.title, pull.body, message] {
                    assert!(!told.contains(text), "{at}: {told}");
                }
            }
        }
    }
    if wire == Wire::Github {
        openapi::check(name, &scene.forge.state().calls);
    }
}

/// Labels and reviewers by their names, which some forges give as numbers.
fn told(wire: Wire, pull: &Pull) -> Vec<String> {
    let label = |label: &String| match (wire, label.as_str()) {
        (Wire::Forgejo, "1") => "bot".to_owned(),
        (Wire::Forgejo, "2") => "night".to_owned(),
        (_, other) => other.to_owned(),
    };
    let reviewer = |name: &String| if name == "77" { "ada".to_owned() } else { name.clone() };
    pull.labels
        .iter()
        .map(label)
        .chain(pull.reviewers.iter().map(reviewer))
        .collect()
}

fn all(wire: Wire) {
    // Cases wait for services more than they work.
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((name, steps)) = CASES.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    play(wire, name, steps);
                }
            });
        }
    });
}

#[test]
fn every_case_on_github() {
    all(Wire::Github);
}

#[test]
fn every_case_on_gitlab() {
    all(Wire::Gitlab);
}

#[test]
fn every_case_on_forgejo() {
    all(Wire::Forgejo);
}

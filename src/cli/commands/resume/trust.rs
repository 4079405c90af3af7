//! Decides what a resume trusts: only the command line, and what can be verified.

use crate::base::event::{Event, EventKind, PolicyText, RunStarted};
use crate::base::ids::CallId;
use crate::base::model_name::{REPLAY, SCRIPT};
use crate::cli::args::ResumeArgs;
use crate::cli::environment;
use crate::cli::out;
use crate::cli::policy_sources::{self, Policies};
use crate::cli::refusal::Refusal;
use crate::diag::SourceFiles;
use crate::engine::state::RunState;
use crate::journal::chain_key;
use crate::policy::{PolicySet, presets};
use crate::recipe::Plan;
use crate::report::result;
use crate::report::summary::RunSummary;
use jiff::Timestamp;
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

/// The recorded plan. `vouched`: a key or this machine's own record proves that this program wrote the journal.
/// Otherwise the plan's digest must match the journal, and a warning says what cannot be verified.
///
/// # Errors
/// [`Refusal::Environment`] if the plan cannot be read or does not have the recorded digest.
pub fn plan(first: &RunStarted, vouched: bool) -> Result<Plan, Refusal> {
    let plan: Plan = serde_json::from_value(first.plan.clone())
        .map_err(|error| Refusal::Environment(format!("the recorded plan cannot be read: {error}")))?;
    let task = Plan {
        model: None,
        ..plan.clone()
    };
    // A plan that contained a secret was recorded with redactions, so its digest differs from that of the plan that
    // ran.
    let redacted = vouched && first.plan.to_string().contains("[redacted:");
    if task.digest() != first.plan_digest && !redacted {
        return Err(Refusal::Environment(
            "the recorded plan does not have its recorded digest: the journal was changed, or another version wrote it; start a new \
             run"
            .to_owned(),
        ));
    }
    if !vouched {
        out::stderr(&format!(
            "warning[unkeyed_journal]: this journal was written elsewhere and without {}: its steps, checks and servers are taken as \
             it says, in the sandbox of the policies that you named; nobody can tell whether they are the recipe's",
            chain_key::KEY_VARIABLE
        ));
    }
    Ok(plan)
}

/// Gives the plan the model and the limits that held last: those of the start, each replaced by what a later resume named.
/// The path of a script or recorded run is relative to the directory in which it was named, if there is such a file.
pub fn continue_with(plan: &mut Plan, first: &RunStarted, events: &[Event]) {
    let (mut model, mut directory) = (&first.model, &first.directory);
    for event in events {
        let EventKind::Resumed {
            model: named,
            limits,
            directory: here,
            ..
        } = &event.kind
        else {
            continue;
        };
        plan.budget = plan.budget.overridden_by(limits);
        if !named.is_empty() {
            (model, directory) = (named, here);
        }
    }
    plan.model = Some(played_from(directory.as_deref(), model));
    for fallback in &mut plan.fallback {
        *fallback = played_from(first.directory.as_deref(), fallback);
    }
}

/// The name of a model that was named in this directory, for the current one. `None`: the journal does not say where.
fn played_from(directory: Option<&str>, model: &str) -> String {
    let here = environment::current_directory();
    let elsewhere = directory.filter(|there| here.as_deref().is_some_and(|here| here != *there));
    let there = elsewhere.map(Path::new).and_then(|there| {
        [SCRIPT, REPLAY].into_iter().find_map(|prefix| {
            let path = there.join(model.strip_prefix(prefix)?);
            path.exists().then(|| format!("{prefix}{}", path.display()))
        })
    });
    there.unwrap_or_else(|| model.to_owned())
}

/// The event that takes back the recorded approvals that were not used, if the journal may come from anybody: whoever
/// can write it can write an approval. `vouched` as for [`plan`].
pub fn withdrawn(state: &RunState, vouched: bool) -> Option<EventKind> {
    let unused = state.calls.values().filter(|record| record.is_unused_approval());
    let calls: Vec<CallId> = unused.map(|record| record.call.id.clone()).collect();
    if vouched || calls.is_empty() {
        return None;
    }
    let names: Vec<&str> = calls.iter().map(CallId::as_str).collect();
    out::stderr(&format!(
        "warning[unkeyed_journal]: the approval of {} in this journal counts as not given, because nobody can tell who wrote it",
        names.join(", ")
    ));
    Some(EventKind::Suspended { calls })
}

/// The reviewer's answers as events, after checking them against the waiting calls. `known`: this machine wrote the
/// journal, so its calls are those that the reviewer was shown. `withdrawn`: the event of [`withdrawn`].
///
/// # Errors
/// [`Refusal::Usage`] if a call is both approved and denied or does not wait, or if the digest of an approval is wrong
/// or, for a journal of another machine, missing.
pub fn approvals(
    args: &ResumeArgs,
    recorded: &[Event],
    known: bool,
    withdrawn: Option<&EventKind>,
) -> Result<Vec<EventKind>, Refusal> {
    let call_of = |asked: &str| asked.split_once('@').map_or(asked, |(call, _)| call).to_owned();
    let denied: Vec<String> = args.deny.iter().map(|asked| call_of(asked)).collect();
    if let Some(both) = args
        .approve
        .iter()
        .map(|asked| call_of(asked))
        .find(|call| denied.contains(call))
    {
        return Err(Refusal::Usage(format!(
            "{both} is both approved and denied: give one of --approve and --deny for a call"
        )));
    }
    let mut recorded = Cow::Borrowed(recorded);
    if let Some(kind) = withdrawn {
        let seq = recorded.len() as u64;
        recorded.to_mut().push(Event {
            seq,
            at: Timestamp::now(),
            kind: kind.clone(),
        });
    }
    let sum = RunSummary::fold(&recorded);
    let waiting: Vec<(String, String)> = sum
        .suspended()
        .map(|call| (call.call.id.to_string(), result::approval_digest(&sum, call)))
        .collect();
    let answers = args
        .approve
        .iter()
        .map(|id| (id, true))
        .chain(args.deny.iter().map(|id| (id, false)));
    let mut events = Vec::new();
    for (asked, allow) in answers {
        let (id, digest) = match asked.split_once('@') {
            Some((id, digest)) => (id, Some(digest)),
            None => (asked.as_str(), None),
        };
        let Some((_, actual)) = waiting.iter().find(|(call, _)| call == id) else {
            let names: Vec<&str> = waiting.iter().map(|(call, _)| call.as_str()).collect();
            return Err(Refusal::Usage(match names.is_empty() {
                true => format!("{id}: no call waits for approval"),
                false => format!("{id} does not wait for approval; {} does", names.join(", ")),
            }));
        };
        match digest {
            Some(digest) => same_call(id, digest, actual)?,
            None if !allow || known => {}
            None => {
                return Err(Refusal::Usage(format!(
                    "{id}: this machine did not write the journal, so an approval must name the digest of the call that the reviewer \
                     saw, as suspension.md prints it: --approve {id}@DIGEST"
                )));
            }
        }
        let answer = EventKind::Approved {
            call: CallId::from(id),
            allow,
            by: "command line".to_owned(),
        };
        // The same answer twice is one.
        if !events.contains(&answer) {
            events.push(answer);
        }
    }
    Ok(events)
}

/// Refuses a digest that differs from the call's.
fn same_call(id: &str, asked: &str, actual: &str) -> Result<(), Refusal> {
    let hex = asked.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex || asked.len() < result::DIGEST_SHOWN {
        return Err(Refusal::Usage(format!(
            "{id}@{asked}: a digest has {} hex digits or more",
            result::DIGEST_SHOWN
        )));
    }
    if actual.starts_with(&asked.to_ascii_lowercase()) {
        return Ok(());
    }
    let shown = actual.get(..asked.len().min(actual.len())).unwrap_or(actual);
    Err(Refusal::Usage(format!(
        "{id}@{asked}: the call that waits is another one, {id}@{shown}: look at it again before it is approved (`overnight report RUN \
         --format review`)"
    )))
}

/// The policies that ruled last, without the recipe's own: those that the last resume with `--policy` named, or else those
/// that the run began with.
pub fn last_policies<'a>(first: &'a RunStarted, events: &'a [Event]) -> Vec<&'a PolicyText> {
    let named = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Resumed { policies, .. } if !policies.is_empty() => Some(policies.iter().collect()),
        _ => None,
    });
    named.unwrap_or_else(|| first.policies.iter().filter(|policy| !policy.narrows).collect())
}

/// The policies for the rest of the run, and the texts to record of those that the command line names. Without any on the
/// command line, the policies that ruled last are read again from their sources: texts inside the journal grant nothing.
/// The recipe's own policy can only narrow, so its recorded text is used if its source is not available. `vouched` as for
/// [`plan`]: otherwise the journal may come with the tree, and so may the files that it names.
///
/// # Errors
/// Without `--policy`, [`Refusal::Environment`] if a policy that ruled last is not available here or has changed, or if
/// the journal is not vouched for and names other policies than built-in ones. [`Refusal::Invalid`] if a policy is
/// wrong; with `--policy` also the errors of [`policy_sources::policies`].
pub async fn rulers(
    args: &ResumeArgs,
    (first, last): (&RunStarted, &[&PolicyText]),
    workspace: &Path,
    vouched: bool,
) -> Result<(PolicySet, Vec<PolicyText>), Refusal> {
    let is_preset = |policy: &PolicyText| policy.name.starts_with("builtin:");
    if !vouched && args.shared.policy.is_empty() && !last.iter().all(|policy| is_preset(policy)) {
        return Err(Refusal::Environment(format!(
            "this machine did not write the journal, and it names its own policies: name the policies for the rest of the run with \
             --policy, or set {} as it was for the run",
            chain_key::KEY_VARIABLE
        )));
    }
    let mut files = SourceFiles::default();
    let mut load = |read: &Policies| {
        let loaded = read.load(&mut files);
        loaded
            .map(|(set, _)| set)
            .map_err(|problems| Refusal::of_problems(&problems, &files))
    };
    let began = |policy: &PolicyText| match &first.source {
        Some(source) if vouched && first.policies.contains(policy) => began_in(&policy.name, &source.files),
        _ => PathBuf::new(),
    };
    let ours = match args.shared.policy.is_empty() {
        false => {
            let read = policy_sources::policies(&args.shared.policy, workspace, None).await?;
            match first.policies.iter().find(|policy| !policy.tree.is_empty()) {
                Some(recorded) => at_the_start(read, &recorded.tree),
                None => read,
            }
        }
        true => {
            let mut all = Policies::default();
            for recorded in last {
                all.add(read_again(recorded, &began(recorded), workspace).await?);
            }
            all
        }
    };
    let mut set = load(&ours)?;
    let named = match args.shared.policy.is_empty() {
        false => set.texts(),
        true => Vec::new(),
    };
    for recorded in first.policies.iter().filter(|policy| policy.narrows) {
        let again = read_again(recorded, &began(recorded), workspace).await;
        set = set.narrowed_by(&load(&again.unwrap_or_else(|_| Policies::recorded(recorded)))?);
    }
    Ok((set, named))
}

/// Keeps only the toolchains that were detected at the start and still are, so that the run's own changes add none.
fn at_the_start(mut read: Policies, then: &[String]) -> Policies {
    read.extended.tree.retain(|name| then.contains(name));
    for source in &mut read.sources {
        if let Some(text) = presets::text(&source.name, None, &read.extended.tree) {
            source.text = text;
        }
    }
    read
}

/// The directory in which the run began, by its recorded absolute `files`, if the policy that was named relative to it is
/// still there; otherwise an empty path, for the current directory.
fn began_in(name: &str, files: &[String]) -> PathBuf {
    let named: Vec<Component<'_>> = Path::new(name)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    let directory = |file: &String| -> Option<PathBuf> {
        let parts: Vec<Component<'_>> = Path::new(file).components().collect();
        let directory = parts.strip_suffix(named.as_slice())?.iter().collect::<PathBuf>();
        directory.join(name).is_file().then_some(directory)
    };
    files.iter().find_map(directory).unwrap_or_default()
}

/// Reads a recorded policy from its source, which must still give the same text, including everything that it extends.
/// `began`: what its name is relative to.
async fn read_again(recorded: &PolicyText, began: &Path, workspace: &Path) -> Result<Policies, Refusal> {
    let name = &recorded.name;
    let instead = "name the policies for the rest of the run with --policy";
    if name == "-" {
        return Err(Refusal::Environment(format!(
            "a policy of this run came from stdin, which cannot be read again: {instead}"
        )));
    }
    let names = [name.clone()];
    let found = policy_sources::policies_from(began, &names, workspace, None)
        .await
        .map_err(|_| {
            Refusal::Environment(format!(
                "the policy {name} of this run is not available here: {instead}"
            ))
        })?;
    let read = at_the_start(found, &recorded.tree);
    // Presets are built in.
    if name.starts_with("builtin:") {
        return Ok(read);
    }
    // A source that no longer parses differs from the recorded text.
    let loaded = read.load(&mut SourceFiles::default()).ok();
    let text = loaded.and_then(|(set, _)| set.texts().into_iter().next());
    let digest = text.map(|text| text.digest).unwrap_or_default();
    if digest != recorded.digest {
        return Err(Refusal::Environment(format!(
            "the policy {name}, or a file that it extends, has changed since the run began (sha256 {} now, {} then): {instead}",
            digest.get(..12).unwrap_or("of no policy"),
            recorded.digest.get(..12).unwrap_or_default()
        )));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_played_is_found_where_it_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().to_str().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        std::fs::write(dir.path().join("s.yaml"), "").unwrap();
        for (named, expected) in [
            ("script:s.yaml", format!("script:{here}/s.yaml")),
            ("replay:run", format!("replay:{here}/run")),
            // An id, another machine's file, and a service.
            (
                "replay:20261121-103000-abcdef",
                "replay:20261121-103000-abcdef".to_owned(),
            ),
            ("script:gone.yaml", "script:gone.yaml".to_owned()),
            ("openai/gpt-5", "openai/gpt-5".to_owned()),
        ] {
            assert_eq!(played_from(Some(here), named), expected);
            assert_eq!(played_from(None, named), named);
        }
        let now = std::env::current_dir().unwrap();
        assert_eq!(played_from(now.to_str(), "script:Cargo.toml"), "script:Cargo.toml");
    }
}

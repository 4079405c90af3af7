//! What a replay takes from its recording instead of the world: results that no second run could give again. Runs no tool.
//!
//! A replay runs the tools for real, because their effects are the patch. Excepted are calls that
//!
//! - reach the network (`web_fetch`, searches of the web, whatever names URLs): a replay is hermetic;
//! - write outside of the tree (`save_memory`): they would write twice;
//! - tell what a background command has printed so far: that is a matter of moments;
//! - were interrupted when they were recorded: nobody knows what they did.
//!
//! A command that is started in the background runs, and its first output is told as it was recorded.

use crate::base::call::{Kind, ToolOutput, ToolSpec};
use crate::base::ids::CallId;
use crate::provider::replay::Recorded;
use crate::tools::{Prepared, ToolError, results};
use serde_json::Value;

/// How a call of a replay is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// As it runs.
    Real,
    /// It runs; told is what was recorded.
    RunButTell,
    /// It does not run.
    Recorded,
}

/// `prepared`, with the recorded result in place of its work where a second run could not give it again.
pub fn prepared(
    recorded: Option<&Recorded>,
    id: &CallId,
    spec: &ToolSpec,
    args: &Value,
    prepared: Prepared,
) -> Prepared {
    let Some(recorded) = recorded else {
        return prepared;
    };
    let output = recorded.results.get(id).cloned();
    let kept = recorded.kept.clone();
    match answer(spec, args, !prepared.access.urls.is_empty(), output.as_ref()) {
        Answer::Real => prepared,
        Answer::Recorded => Prepared {
            work: Box::new(move |context| {
                Box::pin(async move {
                    let output = output.ok_or_else(missing)?;
                    results::carry(&kept, &output, &context)?;
                    Ok(output)
                })
            }),
            ..prepared
        },
        Answer::RunButTell => {
            let work = prepared.work;
            Prepared {
                work: Box::new(move |context| {
                    Box::pin(async move {
                        let ran = work(context).await?;
                        Ok(output.unwrap_or(ran))
                    })
                }),
                ..prepared
            }
        }
    }
}

fn missing() -> ToolError {
    ToolError::model(
        "replay",
        "a replay does not do this again, and the recording has no result of it",
    )
}

fn answer(spec: &ToolSpec, args: &Value, has_urls: bool, output: Option<&ToolOutput>) -> Answer {
    let failure = output.and_then(|output| output.error.as_ref());
    if failure.is_some_and(|failure| failure.kind == "interrupted") {
        return Answer::Recorded;
    }
    let searches_web = spec.kind == Kind::Search && spec.name.contains("web");
    if has_urls || spec.kind == Kind::Fetch || searches_web {
        return Answer::Recorded;
    }
    match spec.name.as_str() {
        "save_memory" | "read_background_output" | "list_background_processes" => Answer::Recorded,
        "run_shell_command" if args.get("is_background").and_then(Value::as_bool) == Some(true) => Answer::RunButTell,
        _ => Answer::Real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::call::Origin;
    use serde_json::json;

    fn spec(name: &str, kind: Kind) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            display_name: String::new(),
            description: String::new(),
            kind,
            origin: Origin::Builtin,
            parameters: json!({}),
            aliases: Vec::new(),
        }
    }

    #[test]
    fn what_cannot_be_done_twice_is_told_from_the_recording() {
        let told = |name: &str, kind, args: Value| answer(&spec(name, kind), &args, false, None);
        assert_eq!(told("read_file", Kind::Read, json!({})), Answer::Real);
        assert_eq!(told("write_file", Kind::Edit, json!({})), Answer::Real);
        assert_eq!(told("grep_search", Kind::Search, json!({})), Answer::Real);
        assert_eq!(told("google_web_search", Kind::Search, json!({})), Answer::Recorded);
        assert_eq!(told("web_fetch", Kind::Fetch, json!({})), Answer::Recorded);
        assert_eq!(told("save_memory", Kind::Edit, json!({})), Answer::Recorded);
        assert_eq!(told("read_background_output", Kind::Read, json!({})), Answer::Recorded);
        assert_eq!(told("run_shell_command", Kind::Execute, json!({})), Answer::Real);
        let background = json!({ "is_background": true });
        assert_eq!(told("run_shell_command", Kind::Execute, background), Answer::RunButTell);
        let remote = answer(&spec("docs__find", Kind::Other), &json!({}), true, None);
        assert_eq!(remote, Answer::Recorded);
        let interrupted = ToolOutput::failure("interrupted", "effect unknown");
        let again = answer(&spec("write_file", Kind::Edit), &json!({}), false, Some(&interrupted));
        assert_eq!(again, Answer::Recorded, "nobody knows what it did");
    }
}

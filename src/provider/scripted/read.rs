//! Parses a script file into replies, and reports every mistake with its position.

use super::Line;
use crate::base::call::ToolCall;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply, StopReason, Usage};
use crate::diag::reader::Problems;
use crate::diag::{Diagnostic, Reader, SourceFiles, SourceId, YamlNode, parse, settle};
use crate::provider::{ProviderClass, ProviderError};
use serde_json::json;
use std::time::Duration;

/// The replies of a script.
///
/// # Errors
/// Every problem, sorted by position.
pub fn script(id: &str, files: &SourceFiles, file: SourceId) -> Result<Vec<Line>, Vec<Diagnostic>> {
    let root = parse(files, file)?;
    let mut problems = Problems::new();
    let lines = Reader::open(&root, "the script", &mut problems).and_then(|mut reader| {
        let present = reader.need("replies", &mut problems).is_some();
        let items = present.then(|| reader.items("replies", &mut problems)).flatten();
        reader.finish(&mut problems);
        let lines = items?.iter().filter_map(|item| line(id, item, &mut problems));
        Some(lines.collect())
    });
    settle(lines, problems, &mut Vec::new())
}

#[derive(Clone, Copy)]
enum StopWord {
    End,
    Calls,
    Length,
    Refused,
}

const STOPS: &[(&str, StopWord)] = &[
    ("end", StopWord::End),
    ("calls", StopWord::Calls),
    ("length", StopWord::Length),
    ("refused", StopWord::Refused),
];

fn line(id: &str, node: &YamlNode, problems: &mut Problems) -> Option<Line> {
    let mut reader = Reader::open(node, "this reply", problems)?;
    let text = reader.text("text", problems).map(|text| text.value);
    let thought = reader.text("thought", problems).map(|text| text.value);
    let calls = reader.items("calls", problems);
    let stop = reader.choice("stop", STOPS, problems).map(|stop| stop.value);
    let usage = reader.map("usage", "`usage`", problems);
    let error = reader.map("error", "`error`", problems);
    let expect = reader.text("expect", problems).map(|text| text.value);
    let delay = reader.whole("delay_ms", problems).map_or(0, |delay| delay.value);
    let head = reader.head();
    reader.finish(problems);
    let usage = usage.map(|usage| figures(usage, problems)).unwrap_or_default();
    let speaks = text.is_some() || thought.is_some() || calls.is_some() || stop.is_some();
    if error.is_some() == speaks {
        let message = if speaks {
            "a reply that both speaks and fails"
        } else {
            "an empty reply"
        };
        let help = "write either `error`, or what the model says: `text`, `thought`, `calls`, `stop`";
        problems.push(Diagnostic::error("script-reply", head, message).help(help));
        return None;
    }
    let says = match error {
        Some(error) => Err(failure(error, problems)?),
        None => {
            let mut parts: Vec<Part> = thought.map(|text| Part::Thought { text }).into_iter().collect();
            parts.extend(text.clone().map(Part::text));
            for node in calls.into_iter().flatten() {
                let index = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
                parts.extend(call(node, index, problems).map(Part::Call));
            }
            let stop = stopped(stop, calls.is_some_and(|calls| !calls.is_empty()), text);
            Ok(Reply {
                parts,
                stop,
                usage,
                model: id.to_owned(),
            })
        }
    };
    Some(Line {
        says,
        expect,
        delay: Duration::from_millis(delay),
    })
}

fn stopped(word: Option<StopWord>, calls: bool, text: Option<String>) -> StopReason {
    match word {
        Some(StopWord::End) => StopReason::End,
        Some(StopWord::Calls) => StopReason::Calls,
        Some(StopWord::Length) => StopReason::Length { call: None },
        Some(StopWord::Refused) => StopReason::Refused {
            reason: text.unwrap_or_else(|| "refused".to_owned()),
        },
        None if calls => StopReason::Calls,
        None => StopReason::End,
    }
}

fn call(node: &YamlNode, index: usize, problems: &mut Problems) -> Option<ToolCall> {
    let mut reader = Reader::open(node, "this call", problems)?;
    let tool = reader.need_text("tool", problems);
    let args = reader.object("args", problems).unwrap_or_else(|| json!({}));
    reader.finish(problems);
    Some(ToolCall {
        id: CallId(format!("p{index}")),
        tool: tool?.value,
        args,
        wire_id: None,
    })
}

fn figures(mut reader: Reader<'_>, problems: &mut Problems) -> Usage {
    let mut figure = |key| reader.whole(key, problems).map_or(0, |figure| figure.value);
    let usage = Usage {
        input: figure("input"),
        cached: figure("cached"),
        cache_write: figure("cache_write"),
        output: figure("output"),
        reasoning: figure("reasoning"),
        estimated: false,
    };
    reader.finish(problems);
    usage
}

fn failure(mut reader: Reader<'_>, problems: &mut Problems) -> Option<ProviderError> {
    let words: Vec<(&'static str, ProviderClass)> = ProviderClass::ALL
        .iter()
        .map(|class| (class.as_str(), *class))
        .collect();
    let present = reader.need("class", problems).is_some();
    let class = present.then(|| reader.choice("class", &words, problems)).flatten();
    let message = reader.need_text("message", problems);
    reader.finish(problems);
    Some(ProviderError::new(class?.value, message?.value))
}

//! Replaces the result of a read that repeats an earlier one by a note that it is unchanged, to save tokens. Pure.

use super::state::RunState;
use crate::base::call::ToolOutput;
use crate::base::content::ToolContent;
use crate::base::ids::CallId;
use crate::base::message::{CallResult, Part};
use crate::base::quote::counted;
use serde_json::Value;

/// Results up to this many bytes are given in full again.
const SHORT: usize = 1_000;

/// `output`, or a note that it is unchanged if the history contains the same call of the same tool with the same full
/// text. Depends on the history alone, so that resume and replay give the same result.
pub fn shortened(state: &RunState, id: &CallId, output: ToolOutput) -> ToolOutput {
    let (Some(record), [ToolContent::Text { text }]) = (state.calls.get(id), output.content.as_slice()) else {
        return output;
    };
    if output.error.is_some() || text.len() <= SHORT {
        return output;
    }
    let parts = || state.history.iter().flat_map(|message| &message.parts);
    let asked = |call: &CallId| -> Option<&Value> {
        parts().find_map(|part| match part {
            Part::Call(made) if made.id == *call => Some(&made.args),
            _ => None,
        })
    };
    let same = |result: &CallResult| {
        !result.is_error
            && result.tool == record.call.tool
            && result.content == output.content
            && asked(&result.call) == Some(&record.call.args)
    };
    let before = parts().find_map(|part| match part {
        Part::Result(result) if same(result) => Some(&result.call),
        _ => None,
    });
    let Some(before) = before else {
        return output;
    };
    let lines = counted(text.lines().count(), "line");
    let told = format!(
        "[unchanged since {before}: this {} call gives the same {lines} as your earlier one above]",
        record.call.tool
    );
    ToolOutput {
        content: vec![ToolContent::text(told)],
        ..output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::call::{CallState, ToolCall};
    use crate::base::event::EventKind;
    use crate::base::message::StopReason;
    use crate::engine::crash_tests::replied;
    use serde_json::json;
    use std::sync::Arc;

    fn asks(state: &mut RunState, id: &str, args: Value) {
        let call = ToolCall {
            id: CallId::from(id),
            tool: "read_file".to_owned(),
            args,
            wire_id: None,
        };
        state.apply(&replied(vec![Part::Call(call)], StopReason::Calls));
    }

    fn gives(state: &mut RunState, id: &str, text: &str) -> String {
        let id = CallId::from(id);
        let output = shortened(state, &id, ToolOutput::text(text, ""));
        state.apply(&EventKind::CallFinished {
            call: id,
            state: CallState::Success,
            output: Box::new(output.clone()),
            took_ms: 0,
        });
        output.model_text()
    }

    #[test]
    fn only_the_same_call_with_the_same_long_text_is_shortened() {
        let mut state = RunState::default();
        let long = "a line of the file\n".repeat(100);
        let path = json!({"file_path": "a"});
        asks(&mut state, "c1", path.clone());
        assert_eq!(gives(&mut state, "c1", &long), long);
        asks(&mut state, "c2", path.clone());
        let told = gives(&mut state, "c2", &long);
        assert!(
            told.starts_with("[unchanged since c1: this read_file call gives the same 100 lines"),
            "{told}"
        );
        asks(&mut state, "c3", path.clone());
        assert!(
            gives(&mut state, "c3", &long).starts_with("[unchanged since c1"),
            "not since c2"
        );
        asks(&mut state, "c4", json!({"file_path": "b"}));
        assert_eq!(gives(&mut state, "c4", &long), long, "another file");
        asks(&mut state, "c5", path.clone());
        let changed = format!("{long}more\n");
        assert_eq!(gives(&mut state, "c5", &changed), changed, "it has changed");
        state.history = Arc::default();
        asks(&mut state, "c6", path.clone());
        assert_eq!(
            gives(&mut state, "c6", &long),
            long,
            "what the history lost is told again"
        );
        asks(&mut state, "c7", json!({"file_path": "short"}));
        gives(&mut state, "c7", "short");
        asks(&mut state, "c8", json!({"file_path": "short"}));
        assert_eq!(gives(&mut state, "c8", "short"), "short");
    }
}

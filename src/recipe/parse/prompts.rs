//! Parses a step's `prompt` from an MCP server: `{ mcp: SERVER, name: NAME, arguments: {…}, text: … }`.

use crate::diag::reader::{Problems, not_blank};
use crate::diag::{Reader, YamlNode};
use crate::recipe::model::StepSource;

pub(super) fn of_server(node: &YamlNode, problems: &mut Problems) -> Option<StepSource> {
    let mut map = Reader::open(node, "`prompt`", problems)?;
    let server = map.need_text("mcp", problems);
    let name = map.need_text("name", problems);
    let name = name.and_then(|name| not_blank(name, "name", problems));
    let arguments = map.text_map("arguments", problems).unwrap_or_default();
    let text = map.text("text", problems);
    let text = text.and_then(|text| not_blank(text, "text", problems));
    map.finish(problems);
    Some(StepSource::Mcp {
        server: server?,
        name: name?,
        arguments,
        text,
    })
}

//! Parses a step's `prompt` from an MCP server: `{ mcp: SERVER, name: NAME, arguments: {…}, text: … }`.

use super::steps::not_blank;
use crate::diag::reader::Problems;
use crate::diag::{Node, Reader};
use crate::recipe::model::Work;

pub(super) fn of_server(node: &Node, problems: &mut Problems) -> Option<Work> {
    let mut map = Reader::open(node, "`prompt`", problems)?;
    let server = map.need_text("mcp", problems);
    let name = map.need_text("name", problems);
    let name = name.and_then(|name| not_blank(name, "name", problems));
    let arguments = map.text_map("arguments", problems).unwrap_or_default();
    let text = map.text("text", problems);
    let text = text.and_then(|text| not_blank(text, "text", problems));
    map.finish(problems);
    Some(Work::Mcp {
        server: server?,
        name: name?,
        arguments,
        text,
    })
}

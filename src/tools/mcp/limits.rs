//! The limits on what an MCP server may send. Content over a limit is cut or left out, which is reported; or the
//! request that it answers fails, but not the connection.

use crate::base::secret::shortened;

/// Upper limit in bytes for one message: a line of stdout, an event, or the body of an HTTP response.
pub const MESSAGE: usize = 32 << 20;
/// Upper limit for the JSON values of one message, including the keys of objects. A parsed value takes up to 200 bytes
/// of memory, even if its text is short.
pub const VALUES: usize = 200_000;
/// Upper limit for the nesting depth of arrays and objects in one message. The parser refuses more than 128.
pub const DEPTH: usize = 100;
/// Upper limit in bytes for a notification or a request of the server.
pub const UNASKED_BYTES: usize = 1 << 20;
/// Upper limit for the JSON values of a notification or a request of the server.
pub const UNASKED_VALUES: usize = 10_000;
/// Upper limit in bytes for all notifications and requests of the server between two requests to it.
pub const UNASKED_TOTAL: usize = 16 << 20;
/// Upper limit for the notifications that a server may send between two requests to it.
pub const NOTIFICATIONS: usize = 10_000;
/// Upper limit for the requests that a server may send between two requests to it.
pub const REQUESTS: usize = 1_000;
/// Upper limit for the questions (`elicitation/create`) that a server may ask during one request to it.
pub const QUESTIONS: usize = 20;
/// Upper limit in characters for the quoted part of a server's question.
pub const QUESTION: usize = 300;
/// Upper limit in characters for the message of a progress notification.
pub const PROGRESS: usize = 2_000;
/// Upper limit in characters for the message of an error.
pub const ERROR: usize = 4_000;
/// Upper limit in bytes for the `data` of an error, as JSON; longer data is left out.
pub const ERROR_DATA: usize = 4 << 10;
/// Upper limit in bytes for the body of an HTTP response with an error status.
pub const ERROR_BODY: usize = 64 << 10;
/// Upper limit in bytes for a response of an authorization server.
pub const METADATA: usize = 1 << 20;
/// Upper limit for the JSON values of a response of an authorization server.
pub const METADATA_VALUES: usize = 10_000;
/// Upper limit in characters for the quoted part of the body of a refusal.
pub const BODY: usize = 300;
/// Upper limit for the tools, prompts or resources of one server. A page counts as at least one entry, so that a list
/// of empty pages ends.
pub const LISTED: usize = 1_000;
/// Limit in bytes for the pages of one list, as JSON. When it is reached, no further page is read.
pub const LISTING: usize = 4 << 20;
/// Upper limit in bytes for the definition of one tool or prompt, as JSON. Only the parts that a model gets count.
pub const DEFINITION: usize = 64 << 10;
/// Upper limit in bytes for the definitions of all tools and prompts of one server.
pub const DEFINITIONS: usize = 512 << 10;
/// Upper limit in bytes for the definitions of the tools and prompts of all servers of a run together: every request to the
/// model carries them. They are counted in the order of the servers' names.
pub const ALL_DEFINITIONS: usize = 1 << 20;
/// Upper limit for the nesting depth of arrays and objects in the schema of a tool's arguments. Each level of arguments
/// takes two levels.
pub const SCHEMA_DEPTH: usize = 48;
/// Upper limit for the left-out tools and prompts that are reported by name; the rest are counted.
const NAMED: usize = 20;
/// Upper limit in bytes for one image or one piece of audio.
pub const MEDIA: usize = 20 << 20;
/// Upper limit in bytes for the prompt of a step, with media as base64.
pub const PROMPT: usize = 16 << 20;
/// Upper limit in characters for a line of the list of resources.
pub const LINE: usize = 300;

/// The first [`NAMED`] of what was left out, and a last entry for the rest: how many, and `what` they are.
pub fn named(mut left_out: Vec<String>, what: &str) -> Vec<String> {
    let more = left_out.len().saturating_sub(NAMED);
    left_out.truncate(NAMED);
    if more > 0 {
        left_out.push(format!("{more} more{what}"));
    }
    left_out
}

/// `text`, or its first `most` characters and a note that says how many are left out.
pub fn cut(text: &str, most: usize) -> String {
    let characters = text.chars().count();
    match characters > most {
        true => format!("{} [{} characters left out]", shortened(text, most), characters - most),
        false => text.to_owned(),
    }
}

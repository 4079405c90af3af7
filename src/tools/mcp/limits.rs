//! The limits on what an MCP server may send. What exceeds one is cut or left out, and that is said; or it fails only
//! the request that it answers.

use crate::base::secret::shortened;

/// Upper limit in bytes for one message: a line of stdout, an event, or the body of an HTTP response.
pub const MESSAGE: usize = 32 << 20;
/// Upper limit for the JSON values of one message; the keys of objects count, too. A value takes up to 200 bytes of
/// memory once it is parsed, however few its text has.
pub const VALUES: usize = 200_000;
/// Upper limit for arrays and objects within each other in one message. The parser refuses more than 128.
pub const DEPTH: usize = 100;
/// Upper limit in bytes for a message that answers nothing: a notification or a request of the server.
pub const UNASKED_BYTES: usize = 1 << 20;
/// Upper limit for the JSON values of such a message.
pub const UNASKED_VALUES: usize = 10_000;
/// Upper limit in bytes for all such messages between two requests to the server.
pub const UNASKED_TOTAL: usize = 16 << 20;
/// Upper limit for the notifications that a server may send between two requests to it.
pub const NOTIFICATIONS: usize = 10_000;
/// Upper limit for the requests that a server may send between two requests to it.
pub const REQUESTS: usize = 1_000;
/// Upper limit for the questions that a server may ask during one request to it.
pub const QUESTIONS: usize = 20;
/// Limit in characters for how much of a server's question is quoted.
pub const QUESTION: usize = 300;
/// Limit in characters for the message of a notification of progress.
pub const PROGRESS: usize = 2_000;
/// Limit in characters for the message of an error.
pub const ERROR: usize = 4_000;
/// Upper limit in bytes for the data of an error, as JSON; longer data are left out.
pub const ERROR_DATA: usize = 4 << 10;
/// Upper limit in bytes for the body of an HTTP response with the status of an error.
pub const ERROR_BODY: usize = 64 << 10;
/// Upper limit in bytes for an answer of an authorization server.
pub const METADATA: usize = 1 << 20;
/// Upper limit for the JSON values of such an answer.
pub const METADATA_VALUES: usize = 10_000;
/// Limit in characters for how much of the body of a refusal is quoted.
pub const BODY: usize = 300;
/// Upper limit for the tools, prompts or resources of one server. A page counts as at least one of them, so that a list
/// of empty pages ends.
pub const LISTED: usize = 1_000;
/// Upper limit in bytes for the pages of one list, as JSON: no further page is read.
pub const LISTING: usize = 4 << 20;
/// Upper limit in bytes for the definition of one tool or prompt, as JSON: what a model reads of it.
pub const DEFINITION: usize = 64 << 10;
/// Upper limit in bytes for the definitions of all tools and prompts of one server.
pub const DEFINITIONS: usize = 512 << 10;
/// Upper limit for arrays and objects within each other in the schema of a tool's arguments. Each level of arguments
/// takes two of them.
pub const SCHEMA_DEPTH: usize = 48;
/// Upper limit for the tools and prompts that are named when they are left out; the rest are counted.
pub const NAMED: usize = 20;
/// Upper limit in bytes for one image or sound.
pub const MEDIA: usize = 20 << 20;
/// Upper limit in bytes for the prompt of a step, media as base64.
pub const PROMPT: usize = 16 << 20;
/// Upper limit in characters for a line of the list of resources.
pub const LINE: usize = 300;

/// `text`, or its first `most` characters and a note of how many are left out.
pub fn cut(text: &str, most: usize) -> String {
    let characters = text.chars().count();
    match characters > most {
        true => format!("{} [{} characters left out]", shortened(text, most), characters - most),
        false => text.to_owned(),
    }
}

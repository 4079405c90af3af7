//! Classifies the errors of model services: the class, whether a retry may help, and how long to wait. Pure, except that
//! what is cut is redacted before.

use super::{Discarded, ProviderClass, ProviderError};
use crate::base::secret;
use crate::net::retry::{RetryKind, asked_by_headers, asked_by_text, span};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Characters of a message that are kept.
const MESSAGE: usize = 2_000;
/// Characters of a body without a message that are kept.
const PLAIN: usize = 200;

/// One failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub class: ProviderClass,
    pub message: String,
    /// `None`: a retry cannot help.
    pub again: Option<RetryKind>,
    /// The wait that the service asks for.
    pub asked: Option<Duration>,
    /// For a request that was too long: the model's context window in tokens, if the service named it.
    pub window: Option<u64>,
    /// The reply, as far as it came.
    pub discarded: Option<Box<Discarded>>,
}

impl Fault {
    /// A failure that ends the request.
    pub fn fatal(class: ProviderClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            again: None,
            asked: None,
            window: None,
            discarded: None,
        }
    }

    /// A response that cannot be used; a retry may give a better one.
    pub fn unusable(message: impl Into<String>) -> Self {
        Self {
            again: Some(RetryKind::Answer),
            ..Self::fatal(ProviderClass::Unusable, message)
        }
    }

    /// A stream that ended before its completion marker.
    pub fn cut() -> Self {
        Self {
            again: Some(RetryKind::Service),
            ..Self::fatal(ProviderClass::Transport, "the response ended before it was complete")
        }
    }
}

impl From<Fault> for ProviderError {
    fn from(fault: Fault) -> Self {
        Self {
            window: fault.window,
            discarded: fault.discarded,
            ..Self::new(fault.class, fault.message)
        }
    }
}

/// The fields of an error, whatever its JSON shape.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReportedError {
    status: Option<u16>,
    message: String,
    /// `code`, `type`, `status` and reasons, joined by spaces, in lower case.
    codes: String,
    asked: Option<Duration>,
    window: Option<u64>,
}

/// The failure for a response whose status is not 200.
pub fn from_answer<'a>(status: u16, header: impl Fn(&str) -> Option<&'a str>, body: &str, now: SystemTime) -> Fault {
    let mut said = read(body);
    let asked = asked_by_headers(&header, now).or(said.asked);
    said.message = match said.message.as_str() {
        "" => format!("HTTP {status} {}", plain(body)).trim_end().to_owned(),
        message => format!("HTTP {status}: {message}"),
    };
    if (300..400).contains(&status) {
        let to = header("location").unwrap_or("another address");
        return Fault::fatal(
            ProviderClass::Rejected,
            format!("HTTP {status}: the service redirects to {to}; set the base URL to that address"),
        );
    }
    let mut fault = judge(status, said, asked);
    match header("x-should-retry") {
        Some("true") => fault.again = fault.again.or(Some(RetryKind::Service)),
        Some("false") => fault.again = None,
        _ => {}
    }
    fault
}

/// The failure for an error object inside a stream or a response with status 200.
pub fn from_stream(error: &Value) -> Fault {
    let mut said = read_value(error);
    if said.message.is_empty() {
        let told = "the service reported an error in its response";
        said.message = match error.as_str() {
            // An event without data.
            Some(_) => told.to_owned(),
            None => format!("{told}: {}", secret::shortened(&error.to_string(), PLAIN)),
        };
    }
    let status = said.status.unwrap_or_else(|| status_of(&said.codes));
    let asked = said.asked;
    judge(status, said, asked)
}

/// The failure for an event of a stream that is named an error, whatever its data.
pub fn from_event(data: &str) -> Fault {
    match serde_json::from_str::<Value>(data) {
        Ok(error) => from_stream(&error),
        Err(_) => from_stream(&Value::String(plain(data))),
    }
}

fn judge(status: u16, said: ReportedError, asked: Option<Duration>) -> Fault {
    let text = format!("{} {}", said.codes, said.message.to_ascii_lowercase());
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let fatal = |class| Fault::fatal(class, said.message.clone());
    let again = |class, pace| Fault {
        class,
        message: said.message.clone(),
        again: Some(pace),
        asked,
        window: None,
        discarded: None,
    };
    // llama.cpp has reported it with status 500, too; a retry would not help there either.
    if status >= 400 && status != 429 && has(OVERFLOW) || status == 413 {
        return Fault {
            window: said.window.or_else(|| window_of(&said.message)),
            ..fatal(ProviderClass::ContextOverflow)
        };
    }
    if let Some((_, advice)) = SERVERS.iter().find(|(words, _)| text.contains(words)) {
        return Fault::fatal(ProviderClass::Rejected, format!("{}; {advice}", said.message));
    }
    match status {
        402 => fatal(ProviderClass::Quota),
        400..500 if has(BAD_KEY) => fatal(ProviderClass::Auth),
        401 | 403 | 407 => fatal(ProviderClass::Auth),
        429 if has(OVER) => fatal(ProviderClass::Quota),
        400..500 if has(BILLING) => fatal(ProviderClass::Quota),
        429 => Fault {
            asked: asked.or_else(|| has(&["perminute", "per minute"]).then_some(Duration::from_secs(60))),
            ..again(ProviderClass::Quota, RetryKind::Service)
        },
        400..500 if has(FILTERED) => fatal(ProviderClass::Blocked),
        400 if has(BAD_CALL) => again(ProviderClass::Unusable, RetryKind::Answer),
        408 | 409 | 425 | 499 => again(ProviderClass::Unavailable, RetryKind::Service),
        501 | 505 => fatal(ProviderClass::Rejected),
        500.. => again(ProviderClass::Unavailable, RetryKind::Service),
        _ => fatal(ProviderClass::Rejected),
    }
}

/// Phrases that say that the history exceeds the model's context window, in each vendor's words.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "model_context_window_exceeded",
    "maximum context length",
    "context length of",
    "context window",
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "exceeds the available context",
    "exceeds the context",
    "reduce the length of",
    "too many input tokens",
    "request_too_large",
    // LM Studio.
    "greater than the context length",
    "cannot truncate prompt",
];

/// The messages of self-hosted servers whose tool calling is not enabled, and the remedy in their documentation: vLLM
/// "Tool Calling" (`--enable-auto-tool-choice`), llama.cpp `tools/server/README.md` (`--jinja`), Ollama "Tool support"
/// (a capability of the model). llama.cpp reports it with status 500.
const SERVERS: &[(&str, &str)] = &[
    (
        "requires --enable-auto-tool-choice",
        "start vLLM with `--enable-auto-tool-choice --tool-call-parser NAME`",
    ),
    ("requires --jinja", "start llama-server with `--jinja`"),
    (
        "does not support tools",
        "use a model that supports tools (`ollama show MODEL` lists its capabilities)",
    ),
];

/// The context window named in an error: the number that follows one of these phrases.
fn window_of(message: &str) -> Option<u64> {
    // OpenAI and vLLM; LM Studio; llama.cpp and LM Studio; Gemini; Anthropic.
    const BEFORE: &[&str] = &[
        "maximum context length is",
        "maximum context length of",
        "context length of only",
        "n_ctx",
        "available context size",
        "maximum number of tokens allowed",
    ];
    let text = message.to_ascii_lowercase();
    let number = |rest: &str| {
        let start = rest.find(|c: char| c.is_ascii_digit()).filter(|at| *at <= 8)?;
        let digits: String = rest[start..]
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse().ok().filter(|window| *window >= 16)
    };
    let told = BEFORE.iter().find_map(|words| {
        let at = text.find(words)? + words.len();
        number(text.get(at..)?)
    });
    // `prompt is too long: 208310 tokens > 200000 maximum`
    told.or_else(|| {
        text.contains("maximum")
            .then(|| number(text.split_once("tokens >")?.1))?
    })
}
const BAD_KEY: &[&str] = &[
    "api_key_invalid",
    "api key not valid",
    "invalid_api_key",
    "incorrect api key",
    "api key expired",
    "authentication_error",
    "unauthenticated",
    "permission_denied",
];
/// A quota that does not recover within any acceptable wait.
const OVER: &[&str] = &[
    "perday",
    "per day",
    "daily limit",
    "limit: 0",
    "insufficient_quota",
    "billing_hard_limit",
    // A single request above the per-minute limit can never succeed.
    "request too large",
];
const BILLING: &[&str] = &[
    "insufficient_quota",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
    "billing_error",
    "billing_not_active",
];
const FILTERED: &[&str] = &[
    "content_filter",
    "content_policy",
    "content policy",
    "responsibleaipolicy",
    "invalid_prompt",
    "flagged as potentially violating",
    "blocked by",
];
const BAD_CALL: &[&str] = &["tool_use_failed", "failed to parse tool call", "failed_generation"];

/// The HTTP status that corresponds to an error inside a stream.
fn status_of(codes: &str) -> u16 {
    let table: &[(&str, u16)] = &[
        ("overloaded", 529),
        ("rate_limit", 429),
        ("resource_exhausted", 429),
        ("insufficient_quota", 429),
        ("too_many_requests", 429),
        ("authentication", 401),
        ("unauthenticated", 401),
        ("invalid_api_key", 401),
        ("permission", 403),
        ("not_found", 404),
        ("context_length", 400),
        ("request_too_large", 413),
        ("billing", 402),
        ("content_filter", 400),
        ("invalid", 400),
        ("failed_precondition", 400),
    ];
    table
        .iter()
        .find(|(word, _)| codes.contains(word))
        .map_or(500, |(_, status)| *status)
}

fn read(body: &str) -> ReportedError {
    serde_json::from_str(body).map_or_else(|_| ReportedError::default(), |value| read_value(&value))
}

/// The first one of a list of errors.
fn first_error(value: &Value) -> Option<&Value> {
    let list = value.as_array().or_else(|| value.get("errors")?.as_array());
    list?.first()
}

/// Known shapes: `{error: {…}}`, `{error: "…"}`, `{message}`, `{detail}`, any of them in a list or in `{errors: […]}`,
/// and any of them as JSON text inside `message`.
fn read_value(value: &Value) -> ReportedError {
    let mut value = value;
    while let Some(first) = first_error(value) {
        value = first;
    }
    let inner = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let mut said = ReportedError::default();
    let text = |key: &str| inner.get(key).and_then(Value::as_str);
    if let Some(message) = inner.as_str() {
        message.clone_into(&mut said.message);
    } else if let Some(message) = text("message").or_else(|| text("detail")) {
        message.clone_into(&mut said.message);
    } else if let Some(detail) = inner.get("detail") {
        said.message = detail.to_string();
    }
    let mut codes: Vec<String> = ["code", "type", "status", "error_type"]
        .iter()
        .filter_map(|key| text(key).map(str::to_ascii_lowercase))
        .collect();
    said.status = ["code", "status"]
        .iter()
        .find_map(|key| inner.get(*key)?.as_u64())
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (300..600).contains(code));
    said.window = inner.get("n_ctx").and_then(Value::as_u64).filter(|window| *window > 0);
    for detail in inner.get("details").and_then(Value::as_array).into_iter().flatten() {
        read_detail(detail, &mut codes, &mut said.asked);
    }
    said.codes = codes.join(" ");
    if let Some(nested) = nested(&said.message) {
        let deeper = read_value(&nested);
        if !deeper.message.is_empty() {
            said.codes = format!("{} {}", said.codes, deeper.codes);
            said.message = deeper.message;
            said.asked = said.asked.or(deeper.asked);
            said.window = said.window.or(deeper.window);
            said.status = deeper.status.or(said.status);
        }
    }
    said.asked = said.asked.or_else(|| asked_by_text(&said.message));
    said.message = secret::shortened(said.message.trim(), MESSAGE);
    said
}

/// An error that is JSON text inside another error's message.
fn nested(message: &str) -> Option<Value> {
    let start = message.find(['{', '['])?;
    let value: Value = serde_json::from_str(message[start..].trim_end()).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

/// Gemini's typed details: retry delay, quota names, reasons.
fn read_detail(detail: &Value, codes: &mut Vec<String>, asked: &mut Option<Duration>) {
    if let Some(delay) = detail.get("retryDelay").and_then(Value::as_str) {
        *asked = span(delay);
    }
    if let Some(reason) = detail.get("reason").and_then(Value::as_str) {
        codes.push(reason.to_ascii_lowercase());
    }
    if let Some(limit) = detail.pointer("/metadata/quota_limit").and_then(Value::as_str) {
        codes.push(limit.to_ascii_lowercase());
    }
    for violation in detail.get("violations").and_then(Value::as_array).into_iter().flatten() {
        if let Some(id) = violation.get("quotaId").and_then(Value::as_str) {
            codes.push(id.to_ascii_lowercase());
        }
    }
}

/// The beginning of a body that is not JSON, without its markup.
fn plain(body: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in secret::start(body, 4_000).chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if inside || c.is_control() && c != '\n' => {}
            c if c.is_whitespace() => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c => out.push(c),
        }
    }
    secret::shortened(out.trim(), PLAIN)
}

#[cfg(test)]
mod tests;

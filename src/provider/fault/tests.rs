//! Tests of the classes for each vendor's error messages and codes.

use super::*;
use crate::base::secret::check_cut;
use crate::provider::ProviderClass::*;

fn fault(status: u16, body: &str) -> Fault {
    from_answer(status, |_| None, body, SystemTime::UNIX_EPOCH)
}

#[test]
fn classes_by_status_and_words() {
    let table: Vec<Value> = serde_json::from_str(include_str!("../../../fixtures/provider/errors.json")).unwrap();
    assert!(table.len() > 20);
    for row in table {
        let status = u16::try_from(row["status"].as_u64().unwrap()).unwrap();
        let found = fault(status, row["body"].as_str().unwrap());
        let ends = (found.class.as_str(), found.again.is_some());
        let wanted = (row["class"].as_str().unwrap(), row["again"].as_bool().unwrap());
        assert_eq!(ends, wanted, "{row}: {found:?}");
    }
}

#[test]
fn waits_from_bodies() {
    let details = r#"{"error":{"code":429,"message":"x","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"40s"}]}}"#;
    assert_eq!(fault(429, details).asked, Some(Duration::from_secs(40)));
    let text = r#"{"error":{"code":429,"message":"Please retry in 1.5s"}}"#;
    assert_eq!(fault(429, text).asked, Some(Duration::from_millis(1500)));
    let minute = r#"{"error":{"code":429,"message":"x","details":[{"violations":[{"quotaId":"RequestsPerMinutePerProject"}]}]}}"#;
    assert_eq!(fault(429, minute).asked, Some(Duration::from_secs(60)));
    let header = from_answer(
        429,
        |name| (name == "retry-after-ms").then_some("250"),
        details,
        SystemTime::UNIX_EPOCH,
    );
    assert_eq!(header.asked, Some(Duration::from_millis(250)));
}

#[test]
fn should_retry_header_decides() {
    let no = from_answer(
        503,
        |name| (name == "x-should-retry").then_some("false"),
        "",
        SystemTime::UNIX_EPOCH,
    );
    assert_eq!(no.again, None);
    let yes = from_answer(
        400,
        |name| (name == "x-should-retry").then_some("true"),
        "",
        SystemTime::UNIX_EPOCH,
    );
    assert_eq!(yes.again, Some(RetryKind::Service));
}

#[test]
fn double_encoded_errors_are_unpacked() {
    let inner = r#"{"error":{"code":429,"message":"Please retry in 7s","status":"RESOURCE_EXHAUSTED"}}"#;
    let outer = serde_json::json!({"error": {"message": inner, "code": 429}}).to_string();
    let found = fault(429, &outer);
    assert_eq!(found.asked, Some(Duration::from_secs(7)));
    assert_eq!(found.message, "HTTP 429: Please retry in 7s");
}

#[test]
fn markup_is_left_out_of_messages() {
    let found = fault(
        502,
        "<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>",
    );
    assert_eq!(found.message, "HTTP 502 502 Bad Gateway nginx");
    assert_eq!(fault(500, "").message, "HTTP 500");
}

#[test]
fn errors_inside_streams() {
    for (body, class, again) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Unavailable,
            true,
        ),
        (
            r#"{"error":{"message":"Rate limit","type":"rate_limit_error"}}"#,
            Quota,
            true,
        ),
        (
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            ContextOverflow,
            false,
        ),
        (
            r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#,
            Unavailable,
            true,
        ),
        (r#"{"error":"llama runner process has terminated"}"#, Unavailable, true),
    ] {
        let found = from_stream(&serde_json::from_str(body).unwrap());
        assert_eq!((found.class, found.again.is_some()), (class, again), "{body}");
    }
    // An event that is named an error and has no data.
    let told = from_event("").message;
    assert_eq!(told, "the service reported an error in its response");
}

/// Refusals of too long requests in the words of each server, with the window that they name.
#[test]
fn windows_are_learnt_from_refusals() {
    for (status, body, window) in [
        // vLLM, OpenAI.
        (
            400,
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5200 tokens (4900 in the messages, 300 in the completion).","code":400}"#,
            Some(4096),
        ),
        // llama.cpp, with the statuses of two versions.
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
            Some(256),
        ),
        (
            500,
            r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":512}}"#,
            Some(512),
        ),
        // LM Studio.
        (
            400,
            r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter prompt."}"#,
            Some(4096),
        ),
        (
            400,
            r#"{"error":"Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context length of only 7866 tokens, which is not enough."}"#,
            Some(7866),
        ),
        (
            400,
            r#"{"error":"Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}"#,
            Some(7424),
        ),
        // Gemini, Anthropic.
        (
            400,
            r#"{"error":{"code":400,"message":"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            Some(1_048_576),
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
            Some(200_000),
        ),
        (413, "", None),
    ] {
        let found = fault(status, body);
        assert_eq!(
            (found.class, found.window, found.again),
            (ContextOverflow, window, None),
            "{body}"
        );
    }
}

#[test]
fn a_server_without_tools_says_how_to_switch_them_on() {
    for (status, body, advice) in [
        (
            400,
            r#"{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}}"#,
            "start vLLM with",
        ),
        (
            500,
            r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#,
            "start llama-server with",
        ),
        (
            400,
            r#"{"error":{"message":"registry.ollama.ai/library/gemma3:270m does not support tools"}}"#,
            "`ollama show MODEL`",
        ),
    ] {
        let found = fault(status, body);
        assert_eq!((found.class, found.again), (Rejected, None), "{body}");
        assert!(found.message.contains(advice), "{}", found.message);
    }
}

#[test]
fn no_cut_of_a_message_leaves_a_part_of_a_key() {
    let json = |text: &str| fault(400, &serde_json::json!({ "error": { "message": text } }).to_string()).message;
    check_cut(MESSAGE, json);
    check_cut(PLAIN, |text| fault(502, text).message);
    check_cut(PLAIN, |text| fault(502, &format!("<html><body><p>{text}</p>")).message);
    // The markup is left out, so that the text behind it is shown.
    let style = "s".repeat(3_900);
    check_cut(86, |text| fault(502, &format!("<style {style}>{text}")).message);
}

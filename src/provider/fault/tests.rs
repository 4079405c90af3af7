//! The words and codes of each vendor's errors, and what they mean here.

use super::*;
use crate::provider::ProviderClass::*;

fn fault(status: u16, body: &str) -> Fault {
    from_answer(status, |_| None, body, SystemTime::UNIX_EPOCH)
}

#[test]
fn classes_by_status_and_words() {
    for (status, body, class, again) in [
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            Auth,
            false,
        ),
        (
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            Auth,
            false,
        ),
        (403, "", Auth, false),
        (
            404,
            r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
            Rejected,
            false,
        ),
        (
            400,
            r#"{"error":{"message":"bad","type":"invalid_request_error"}}"#,
            Rejected,
            false,
        ),
        (
            422,
            r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
            Rejected,
            false,
        ),
        (402, r#"{"error":{"message":"Insufficient credits"}}"#, Quota, false),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            Quota,
            false,
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            Quota,
            false,
        ),
        (
            429,
            r#"{"error":{"code":429,"message":"q","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}"#,
            Quota,
            false,
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}"#,
            Quota,
            true,
        ),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            ContextOverflow,
            false,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ContextOverflow,
            false,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            ContextOverflow,
            false,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size","type":"exceed_context_size_error"}}"#,
            ContextOverflow,
            false,
        ),
        (413, "", ContextOverflow, false),
        (
            400,
            r#"{"error":{"code":"content_filter","message":"filtered"}}"#,
            Blocked,
            false,
        ),
        (
            400,
            r#"{"error":{"code":"tool_use_failed","message":"Failed to call a function"}}"#,
            Unusable,
            true,
        ),
        (408, "", Unavailable, true),
        (409, "", Unavailable, true),
        (500, "<html><body>Internal error</body></html>", Unavailable, true),
        (
            503,
            r#"[{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]"#,
            Unavailable,
            true,
        ),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Unavailable,
            true,
        ),
        (501, "", Rejected, false),
        (302, "", Rejected, false),
    ] {
        let found = fault(status, body);
        assert_eq!(
            (found.class, found.again.is_some()),
            (class, again),
            "{status} {body}: {found:?}"
        );
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
    assert_eq!(yes.again, Some(Pace::Service));
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
}

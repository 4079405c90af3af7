//! Tests of names, keys and base URLs.

use super::*;

fn try_open(model: &str, env: &[(&str, &str)], base_url: Option<&str>) -> Result<String, OpenError> {
    let env = |name: &str| env.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
    let read = |file: &str| match file {
        "ok.yaml" => Ok("replies:\n  - text: a\n".to_owned()),
        "bad.yaml" => Ok("replies: 3\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let with = OpenWith {
        env: &env,
        base_url,
        read: &read,
        limits: Limits::default(),
        schedule: Schedule::default(),
        settings: RequestSettings::default(),
    };
    open(model, &with).map(|provider| provider.info().id.clone())
}

#[test]
fn opens_what_is_named() {
    let keys = [
        ("GEMINI_API_KEY", "k\n"),
        ("OPENAI_API_KEY", "k"),
        ("ANTHROPIC_API_KEY", "k"),
    ];
    for model in [
        "gemini/gemini-2.5-pro",
        "openai/org/model",
        "openai-responses/gpt-5",
        "anthropic/claude-opus-5",
    ] {
        assert_eq!(try_open(model, &keys, None).unwrap(), model);
    }
    assert_eq!(try_open("script:ok.yaml", &[], None).unwrap(), "script:ok.yaml");
    // Self-hosted servers often need no key; the vendor's own server always does.
    assert!(try_open("openai/llama", &[], Some("http://127.0.0.1:8080/v1")).is_ok());
    assert!(try_open("openai/llama", &[("OPENAI_BASE_URL", "http://ollama:11434/v1")], None).is_ok());
    assert!(try_open("openai/gpt-5", &[], None).is_err());
    assert!(try_open("anthropic/x", &[], Some("http://127.0.0.1:8080")).is_err());
}

#[test]
fn base_urls_are_taken_as_the_vendors_clients_take_them() {
    for (wire, given, url) in [
        (
            wire::named("gemini"),
            "http://h:1",
            "http://h:1/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        (
            wire::named("gemini"),
            "http://h:1/v1beta/",
            "http://h:1/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        (
            wire::named("openai"),
            "http://h:1/v1/",
            "http://h:1/v1/chat/completions",
        ),
        (
            wire::named("openai-responses"),
            "https://h/v1",
            "https://h/v1/responses",
        ),
        (
            wire::named("anthropic"),
            "https://h/proxy",
            "https://h/proxy/v1/messages",
        ),
        (wire::named("anthropic"), "https://h/v1", "https://h/v1/messages"),
    ] {
        let with = OpenWith {
            env: &|_| None,
            base_url: Some(given),
            read: &|_| Err(String::new()),
            limits: Limits::default(),
            schedule: Schedule::default(),
            settings: RequestSettings::default(),
        };
        let base = base(wire, &with).unwrap();
        assert_eq!(wire.url(&base.address, "m"), url);
    }
}

#[test]
fn says_what_is_missing() {
    let missing = try_open("gemini/x", &[("GEMINI_API_KEY", " ")], None).unwrap_err();
    assert_eq!(
        missing,
        OpenError::Environment("no key for gemini/x: set GEMINI_API_KEY".into())
    );
    let key = [("GEMINI_API_KEY", "k")];
    for (model, base, part) in [
        ("nobody/x", None, "nobody/x"),
        ("plain", None, "plain"),
        ("gemini/", None, "gemini/NAME"),
        ("gemini/a b", None, "gemini/NAME"),
    ] {
        let error = try_open(model, &key, base).unwrap_err();
        assert!(
            matches!(&error, OpenError::Name(text) if text.contains(part)),
            "{error}"
        );
    }
    for base in [
        "localhost:80",
        "ftp://a",
        "http://",
        "https://user:pw@host",
        "http://a/?q",
    ] {
        let error = try_open("gemini/x", &key, Some(base)).unwrap_err();
        assert!(
            matches!(&error, OpenError::Name(text) if text.starts_with("--base-url")),
            "{base}: {error}"
        );
    }
    assert!(matches!(
        try_open("script:no.yaml", &[], None),
        Err(OpenError::Environment(_))
    ));
    assert!(
        matches!(try_open("script:bad.yaml", &[], None), Err(OpenError::Invalid(text)) if text.starts_with("bad.yaml:1:10: error["))
    );
    assert!(try_open("gemini/x", &[("GEMINI_API_KEY", "k é")], None).is_err());
}

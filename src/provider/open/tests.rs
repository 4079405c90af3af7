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
    };
    open(model, &with).map(|provider| provider.info().id.clone())
}

#[test]
fn opens_what_is_named() {
    let key = [("GEMINI_API_KEY", "k\n")];
    assert_eq!(
        try_open("gemini/gemini-2.5-pro", &key, None).unwrap(),
        "gemini/gemini-2.5-pro"
    );
    assert_eq!(try_open("script:ok.yaml", &[], None).unwrap(), "script:ok.yaml");
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
            matches!(&error, OpenError::Environment(text) if text.starts_with("--base-url")),
            "{base}: {error}"
        );
    }
    assert!(matches!(
        try_open("script:no.yaml", &[], None),
        Err(OpenError::Environment(_))
    ));
    assert!(
        matches!(try_open("script:bad.yaml", &[], None), Err(OpenError::Invalid(text)) if text.starts_with("bad.yaml: "))
    );
    assert!(try_open("gemini/x", &[("GEMINI_API_KEY", "k é")], None).is_err());
}

//! Fetches from a server on loopback, through a resolver that the test provides.

use super::*;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

/// Resolves every name to the server, and admits every address.
fn anywhere(server: &MockServer) -> Fetcher {
    let address = *server.address();
    Fetcher::new(NetworkReach {
        resolve: Arc::new(move |_, _| Box::pin(async move { Ok(vec![address]) })),
        admits: |_| true,
    })
}

fn url(server: &MockServer, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", server.address().port())
}

async fn get(fetcher: &Fetcher, url: &str) -> Result<FetchedDocument, FetchError> {
    let judge: UrlCheck = Arc::new(|url| match url.contains("denied") {
        true => Err("no rule lists the host".to_owned()),
        false => Ok(()),
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    fetcher
        .get(url, Some(&judge), &CancellationToken::new(), deadline)
        .await
}

async fn serve(at: &str, answer: ResponseTemplate, server: &MockServer) {
    Mock::given(path(at)).respond_with(answer).mount(server).await;
}

fn redirect(to: &str) -> ResponseTemplate {
    ResponseTemplate::new(302).insert_header("location", to)
}

#[tokio::test]
async fn a_page_comes_with_its_type_and_place() {
    let server = MockServer::start().await;
    let page = ResponseTemplate::new(200).set_body_raw("hello", "text/plain; charset=utf-8");
    serve("/a", page, &server).await;
    serve("/from", redirect("/a#part"), &server).await;
    let fetched = get(&anywhere(&server), &url(&server, "docs.test", "/from"))
        .await
        .unwrap();
    assert_eq!(fetched.url, url(&server, "docs.test", "/a"));
    assert_eq!((fetched.body.as_slice(), fetched.cut), (&b"hello"[..], false));
    assert_eq!(fetched.content_type, "text/plain; charset=utf-8");
    let requests = server.received_requests().await.unwrap();
    for name in ["authorization", "cookie", "referer"] {
        assert!(
            requests.iter().all(|request| !request.headers.contains_key(name)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn redirects_are_judged_and_counted() {
    let server = MockServer::start().await;
    serve("/out", redirect(&url(&server, "denied.test", "/")), &server).await;
    serve("/loop", redirect("/loop"), &server).await;
    serve("/address", redirect("http://169.254.169.254/latest"), &server).await;
    serve("/user", redirect("http://a:b@docs.test/"), &server).await;
    serve("/scheme", redirect("file:///etc/passwd"), &server).await;
    let fetcher = anywhere(&server);
    let table = [
        ("/out", "no rule lists the host"),
        ("/address", "the host must be a name"),
        ("/user", "credentials"),
        ("/scheme", "only https and http"),
    ];
    for (path, why) in table {
        let error = get(&fetcher, &url(&server, "docs.test", path)).await.unwrap_err();
        assert!(
            matches!(&error, FetchError::Refused(said) if said.contains(why)),
            "{path}: {error:?}"
        );
    }
    let error = get(&anywhere(&server), &url(&server, "docs.test", "/loop"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("more than 5 redirects"), "{error}");
    let asked = server.received_requests().await.unwrap();
    assert_eq!(asked.iter().filter(|request| request.url.path() == "/loop").count(), 6);
}

#[tokio::test]
async fn without_a_judge_no_redirect_is_followed() {
    let server = MockServer::start().await;
    serve("/from", redirect("/a"), &server).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let (fetcher, from) = (anywhere(&server), url(&server, "docs.test", "/from"));
    let got = fetcher.get(&from, None, &CancellationToken::new(), deadline).await;
    assert!(matches!(got, Err(FetchError::Refused(_))), "{got:?}");
}

#[tokio::test]
async fn a_name_with_any_address_that_is_not_public_is_not_connected_to() {
    let server = MockServer::start().await;
    let private = *server.address();
    let public: SocketAddr = "93.184.215.14:80".parse().unwrap();
    let fetcher = Fetcher::new(NetworkReach {
        resolve: Arc::new(move |_, _| Box::pin(async move { Ok(vec![public, private]) })),
        admits: address_is_public,
    });
    let error = get(&fetcher, &url(&server, "rebind.test", "/")).await.unwrap_err();
    assert!(error.to_string().contains("not public"), "{error}");
    assert!(server.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn this_machine_is_reached_only_by_a_rule_that_names_it() {
    let server = MockServer::start().await;
    serve(
        "/",
        ResponseTemplate::new(200).set_body_raw("here", "text/plain"),
        &server,
    )
    .await;
    let fetcher = Fetcher::new(NetworkReach {
        admits: address_is_public,
        ..anywhere(&server).reach
    });
    let here = url(&server, "localhost", "/");
    assert_eq!(get(&fetcher, &here).await.unwrap().body, b"here");
    let judge: UrlCheck = Arc::new(|_| Err("not listed".to_owned()));
    let deadline = Instant::now() + Duration::from_secs(10);
    let got = fetcher
        .get(&here, Some(&judge), &CancellationToken::new(), deadline)
        .await;
    assert!(matches!(got, Err(FetchError::Refused(_))), "{got:?}");
    let other = get(&fetcher, &url(&server, "other.test", "/")).await;
    assert!(matches!(other, Err(FetchError::Refused(_))), "{other:?}");
}

#[tokio::test]
async fn a_host_is_asked_ten_times_a_minute() {
    let server = MockServer::start().await;
    serve("/", ResponseTemplate::new(204), &server).await;
    let fetcher = anywhere(&server);
    let (one, two) = (url(&server, "one.test", "/"), url(&server, "two.test", "/"));
    for _ in 0..10 {
        get(&fetcher, &one).await.unwrap();
    }
    assert_eq!(
        get(&fetcher, &one).await,
        Err(FetchError::RateLimited {
            host: "one.test".to_owned()
        })
    );
    assert!(get(&fetcher, &two).await.is_ok());
}

#[tokio::test]
async fn statuses_sizes_and_silence_are_bounded() {
    let server = MockServer::start().await;
    serve("/missing", ResponseTemplate::new(404), &server).await;
    serve(
        "/long",
        ResponseTemplate::new(200).set_body_bytes(vec![b'x'; BODY_MOST + 9]),
        &server,
    )
    .await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(30));
    serve("/slow", slow, &server).await;
    let fetcher = anywhere(&server);
    let missing = get(&fetcher, &url(&server, "docs.test", "/missing")).await;
    assert!(
        matches!(missing, Err(FetchError::Status { status: 404, .. })),
        "{missing:?}"
    );
    let long = get(&fetcher, &url(&server, "docs.test", "/long")).await.unwrap();
    assert_eq!((long.body.len(), long.cut), (BODY_MOST, true));
    let (slow, soon) = (
        url(&server, "docs.test", "/slow"),
        Instant::now() + Duration::from_millis(50),
    );
    let got = fetcher.get(&slow, None, &CancellationToken::new(), soon).await;
    assert_eq!(got, Err(FetchError::TimedOut));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let got = fetcher.get(&slow, None, &cancelled, Instant::now() + TIME).await;
    assert_eq!(got, Err(FetchError::Cancelled));
}

#[test]
fn urls_that_are_never_asked_for() {
    let long = format!("https://docs.test/{}", "a".repeat(URL_MOST));
    let table = [
        "docs.test",
        "ftp://docs.test/",
        "https://user@docs.test/",
        "https://127.0.0.1/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://017700000001/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "data:text/plain,x",
        long.as_str(),
    ];
    for text in table {
        assert!(matches!(parse(text), Err(FetchError::Refused(_))), "{text}");
    }
    assert_eq!(
        parse("https://docs.test/a?b#c").unwrap().as_str(),
        "https://docs.test/a?b"
    );
}

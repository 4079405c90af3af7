//! Obtains tokens for a server by OAuth 2.0 client credentials (RFC 6749, 4.4), without a browser or files. rmcp
//! discovers the authorization server; this file requests and renews the tokens.

use super::assertion;
use super::config::{Authority, Credentials, Proof};
use super::limits::{DEPTH, METADATA, METADATA_VALUES};
use super::outline::outline;
use crate::net::addresses::address_is_public;
use crate::net::client::is_loopback;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore, OAuthClientConfig, OAuthHttpClient,
    OAuthHttpClientFuture, OAuthHttpRequest, StoredCredentials,
};
use serde_json::Value;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Default time limit of one request.
const TIME: Duration = Duration::from_secs(30);
/// A token is renewed if it expires within this time.
const EARLY: Duration = Duration::from_secs(30);

/// The authorization manager of a server: it adds a token to requests and renews it, or adds none if the recipe has no
/// credentials. Both cases have the same type, so that the transport is compiled once.
///
/// # Errors
/// One sentence: the authorization server cannot be reached or gives no token.
pub async fn manager(client: Client, url: &str, with: Option<&Credentials>) -> Result<AuthorizationManager, String> {
    let server = Url::parse(url).map_err(|error| error.to_string())?;
    let http: Arc<dyn OAuthHttpClient> = Arc::new(DiscoveryClient {
        client: client.clone(),
        server: server.clone(),
    });
    let manager = AuthorizationManager::new_with_oauth_http_client(url, http);
    let manager = manager.await.map_err(trouble)?;
    match with {
        None => Ok(manager),
        Some(with) => authorize(manager, client, (url, &server), with).await,
    }
}

fn trouble(error: AuthError) -> String {
    format!("OAuth: {error}")
}

/// The manager, with a token that it renews.
async fn authorize(
    mut manager: AuthorizationManager,
    client: Client,
    (url, server): (&str, &Url),
    with: &Credentials,
) -> Result<AuthorizationManager, String> {
    let metadata = manager.resolve_metadata().await.map_err(trouble)?.metadata;
    let endpoint = endpoint(server, with.authority.as_ref(), &metadata)
        .await
        .map_err(|why| format!("OAuth: {why}"))?;
    let tokens = Tokens {
        asking: Asking::new(client, (url, endpoint), with, &metadata)?,
        held: Mutex::new(None),
    };
    tokens.current().await?;
    manager.set_metadata(metadata);
    // The redirect URL is required by the type but unused: client credentials involve no redirect.
    let nowhere = OAuthClientConfig::new(with.client_id.clone(), "http://localhost/");
    manager.configure_client(nowhere).map_err(trouble)?;
    manager.set_credential_store(tokens);
    Ok(manager)
}

/// The token endpoint to which the client's credentials are sent. Because a server could name any URL in its metadata,
/// the endpoint must be one that the recipe names, or be on the server's own host.
async fn endpoint(
    server: &Url,
    authority: Option<&Authority>,
    metadata: &AuthorizationMetadata,
) -> Result<Url, String> {
    let parsed = |what: &str, text: &str| Url::parse(text).map_err(|error| format!("{what} `{text}`: {error}"));
    if let Some(Authority::TokenUrl(given)) = authority {
        let given = parsed("`token_url`", given)?;
        return match is_protected(&given) {
            true => Ok(given),
            false => Err(format!("`token_url` {given} is not an https URL")),
        };
    }
    let named = parsed("the token endpoint", &metadata.token_endpoint)?;
    // A client assertion is made out to the issuer, so the issuer must not be elsewhere either.
    let issuer = metadata.issuer.as_deref().map(|issuer| parsed("the issuer", issuer));
    let issuer = issuer.transpose()?;
    let both = || std::iter::once(&named).chain(&issuer);
    match authority {
        Some(Authority::Issuer(given)) => {
            let given = parsed("`issuer`", given)?;
            if let Some(other) = both().find(|one| one.origin() != given.origin()) {
                return Err(format!(
                    "the server names {other} for tokens, which is not at the recipe's `issuer` {given}: no credentials were \
                     sent; if it is right, name the token endpoint as `token_url` in `oauth`"
                ));
            }
            match is_protected(&named) {
                true => Ok(named),
                false => Err(format!("the token endpoint {named} is not an https URL")),
            }
        }
        _ => {
            if let Some(other) = both().find(|one| one.host_str() != server.host_str()) {
                return Err(format!(
                    "the server names {other} for tokens, which is on another host: no credentials were sent; if it is \
                     right, name the authorization server as `issuer` in `oauth`"
                ));
            }
            let may = may_send_to(server, &named).await;
            may.map(|()| named).map_err(|why| format!("the token endpoint: {why}"))
        }
    }
}

/// Whether nobody else can read what is sent to this URL: it is `https` or on this machine.
fn is_protected(url: &Url) -> bool {
    url.scheme() == "https" || url.host_str().is_some_and(is_loopback)
}

/// The parameters of a token request.
struct Asking {
    client: Client,
    endpoint: Url,
    /// The resource that the token is for (RFC 8707).
    resource: String,
    with: Credentials,
    issuer: Option<String>,
    /// Send the secret in the header, because the server accepts it nowhere else, or does not say where (RFC 8414, 2).
    only_basic: bool,
    /// Signature algorithms that the server accepts.
    algorithms: Option<Vec<String>>,
}

impl Asking {
    fn new(
        client: Client,
        (url, endpoint): (&str, Url),
        with: &Credentials,
        metadata: &AuthorizationMetadata,
    ) -> Result<Self, String> {
        let texts = |key: &str| -> Option<Vec<String>> {
            let listed = metadata.additional_fields.get(key)?.as_array()?;
            Some(listed.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let methods = texts("token_endpoint_auth_methods_supported");
        let takes = |method: &str| {
            methods
                .as_ref()
                .is_none_or(|methods| methods.iter().any(|one| one == method))
        };
        let (fits, named) = match &with.proof {
            Proof::Secret(_) => (
                takes("client_secret_post") || takes("client_secret_basic"),
                "client_secret",
            ),
            Proof::Key(_) => (takes("private_key_jwt"), "private_key"),
        };
        if !fits {
            let methods = methods.unwrap_or_default().join(", ");
            return Err(format!("OAuth: the server accepts no `{named}`; it accepts: {methods}"));
        }
        Ok(Self {
            client,
            endpoint,
            resource: url.to_owned(),
            with: with.clone(),
            issuer: metadata.issuer.clone(),
            only_basic: methods.is_none() || !takes("client_secret_post"),
            algorithms: texts("token_endpoint_auth_signing_alg_values_supported"),
        })
    }

    /// Requests a token. Returns the server's JSON response.
    async fn ask(&self) -> Result<Value, String> {
        let mut fields = vec![("grant_type", "client_credentials".to_owned())];
        let scopes = self.with.scopes.join(" ");
        if !scopes.is_empty() {
            fields.push(("scope", scopes));
        }
        fields.push(("resource", self.resource.clone()));
        let mut request = self.client.post(self.endpoint.clone());
        match &self.with.proof {
            Proof::Secret(secret) if self.only_basic => {
                let pair = format!("{}:{}", escaped(&self.with.client_id), escaped(secret));
                request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
            }
            Proof::Secret(secret) => {
                fields.push(("client_id", self.with.client_id.clone()));
                fields.push(("client_secret", secret.clone()));
            }
            Proof::Key(pem) => {
                let Some(issuer) = &self.issuer else {
                    return Err("OAuth: the metadata of the server has no `issuer`".to_owned());
                };
                let made = assertion::made(pem, &self.with.client_id, issuer, self.algorithms.as_deref());
                fields.push((
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".to_owned(),
                ));
                fields.push(("client_assertion", made.map_err(|why| format!("OAuth: {why}"))?));
            }
        }
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(form(&fields));
        let answer = tokio::time::timeout(TIME, async {
            let answer = request.send().await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = whole(answer).await?;
            Ok::<_, String>((status, body))
        });
        let answer = answer.await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let (status, body) = answer.map_err(|why| format!("OAuth: the token endpoint: {why}"))?;
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() || said.get("access_token").is_none() {
            let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
            let why = format!("{} {}", text("error"), text("error_description"));
            return Err(format!("OAuth: the server issued no token: {status} {}", why.trim()));
        }
        Ok(said)
    }
}

/// The current token.
struct Tokens {
    asking: Asking,
    held: Mutex<Option<Held>>,
}

struct Held {
    said: StoredCredentials,
    until: Option<Instant>,
}

impl Tokens {
    async fn current(&self) -> Result<StoredCredentials, String> {
        let mut held = self.held.lock().await;
        if let Some(held) = held
            .as_ref()
            .filter(|held| held.until.is_none_or(|until| Instant::now() < until))
        {
            return Ok(held.said.clone());
        }
        let said = self.asking.ask().await?;
        let lasts = said.get("expires_in").and_then(Value::as_u64).map(Duration::from_secs);
        let token =
            serde_json::from_value(said).map_err(|_| "OAuth: the token response is not in a known form".to_owned())?;
        // The time of issue is left out, so that rmcp does not check for expiry itself; this type does.
        let said = StoredCredentials::new(self.asking.with.client_id.clone(), Some(token), Vec::new(), None)
            .with_issuer(self.asking.issuer.clone());
        *held = Some(Held {
            said: said.clone(),
            until: lasts.and_then(|lasts| Instant::now().checked_add(lasts.saturating_sub(EARLY))),
        });
        Ok(said)
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl CredentialStore for Tokens {
    fn load<'a, 'b>(&'a self) -> Answer<'b, Option<StoredCredentials>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async { self.current().await.map(Some).map_err(AuthError::OAuthError) })
    }

    fn save<'a, 'b>(&'a self, _: StoredCredentials) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async { Ok(()) })
    }

    fn clear<'a, 'b>(&'a self) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            *self.held.lock().await = None;
            Ok(())
        })
    }
}

fn form(fields: &[(&str, String)]) -> String {
    let mut url = Url::parse("http://localhost/").ok();
    if let Some(url) = &mut url {
        url.query_pairs_mut().extend_pairs(fields);
    }
    url.as_ref().and_then(Url::query).unwrap_or_default().to_owned()
}

fn escaped(text: &str) -> String {
    let pair = form(&[("", text.to_owned())]);
    pair.strip_prefix('=').unwrap_or(&pair).to_owned()
}

/// The body of a response, within the limits for JSON.
async fn whole(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| error.to_string())? {
        body.extend_from_slice(&piece);
        if body.len() > METADATA {
            return Err(format!("the answer has more than {METADATA} bytes"));
        }
    }
    let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    let found = outline(&body);
    match is_json && (found.values > METADATA_VALUES || found.depth > DEPTH) {
        true => Err(format!(
            "the answer has more than {METADATA_VALUES} JSON values, or more than {DEPTH} within each other"
        )),
        false => Ok(body),
    }
}

/// Checks whether a server may make this program send a request to a URL: otherwise whoever runs the server could reach
/// everything that this machine can reach. A name that does not resolve here is accepted, because a proxy may know it.
/// If it resolves to another machine there, TLS fails, because that machine has no certificate for the name.
async fn may_send_to(server: &Url, target: &Url) -> Result<(), String> {
    let is_same = server.host_str() == target.host_str();
    if target.scheme() != "https" && !(is_same && server.host_str().is_some_and(is_loopback)) {
        return Err(format!("{target} is not an https URL"));
    }
    if is_same {
        return Ok(());
    }
    // Services of a private network use each other.
    let is_private = addresses(server).await.into_iter().any(|one| !address_is_public(one));
    let refused = |one: &IpAddr| !(address_is_public(*one) || (is_private && is_of_a_network(*one)));
    match addresses(target).await.iter().find(|one| refused(one)) {
        Some(address) => Err(format!(
            "{target} is at {address}, which is not public, and on another host than the server: no request was sent"
        )),
        None => Ok(()),
    }
}

async fn addresses(url: &Url) -> Vec<IpAddr> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((host, url.port_or_known_default().unwrap_or(443))).await;
    found
        .map(|found| found.map(|address| address.ip()).collect())
        .unwrap_or_default()
}

/// Whether an address belongs to another machine of a network: not to this machine, and not link-local, where clouds give
/// out credentials.
fn is_of_a_network(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !(address.is_loopback() || address.is_link_local() || address.is_unspecified()),
        IpAddr::V6(address) => !(address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified()),
    }
}

/// Sends the discovery requests. Does not follow redirects.
struct DiscoveryClient {
    client: Client,
    server: Url,
}

impl OAuthHttpClient for DiscoveryClient {
    fn execute(&self, asked: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let time = asked.timeout.unwrap_or(TIME);
            let request = reqwest::Request::try_from(asked.request)?;
            tokio::time::timeout(time, may_send_to(&self.server, request.url())).await??;
            let answer = tokio::time::timeout(time, self.client.execute(request)).await??;
            let mut built = http::Response::builder().status(answer.status());
            if let Some(headers) = built.headers_mut() {
                *headers = answer.headers().clone();
            }
            let body = tokio::time::timeout(time, whole(answer)).await??;
            Ok(built.body(body)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wiremock::matchers::{body_string_contains, header, method, path};
    use wiremock::{Mock, MockServer, ResponseTemplate};

    async fn server(methods: Value, lasts: u64) -> (MockServer, Client) {
        let server = MockServer::start().await;
        let at = |tail: &str| format!("{}{tail}", server.uri());
        let about = json!({
            "issuer": server.uri(), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": methods,
        });
        Mock::given(method("GET"))
            .and(path("/.well-known/oauth-authorization-server"))
            .respond_with(ResponseTemplate::new(200).set_body_json(about))
            .mount(&server)
            .await;
        let token = json!({ "access_token": "t", "token_type": "Bearer", "expires_in": lasts });
        Mock::given(method("POST"))
            .and(path("/token"))
            .and(body_string_contains("grant_type=client_credentials"))
            .respond_with(ResponseTemplate::new(200).set_body_json(token))
            .mount(&server)
            .await;
        let client = super::super::http::client(&server.uri()).await.unwrap();
        (server, client)
    }

    fn secret() -> Credentials {
        Credentials {
            client_id: "me".to_owned(),
            proof: Proof::Secret("a b:c".to_owned()),
            scopes: vec!["read".to_owned()],
            authority: None,
        }
    }

    async fn asked(server: &MockServer) -> usize {
        let all = server.received_requests().await.unwrap();
        all.iter().filter(|request| request.url.path() == "/token").count()
    }

    #[tokio::test]
    async fn an_expired_token_is_requested_again() {
        for (lasts, times) in [(3600, 1), (1, 4)] {
            let (server, client) = server(json!(["client_secret_post"]), lasts).await;
            let url = format!("{}/mcp", server.uri());
            let manager = super::manager(client, &url, Some(&secret())).await.unwrap();
            for _ in 0..3 {
                assert_eq!(manager.get_access_token().await.unwrap(), "t");
            }
            assert_eq!(asked(&server).await, times, "{lasts}");
        }
    }

    #[tokio::test]
    async fn a_response_with_too_many_values_is_refused() {
        let server = MockServer::start().await;
        let wide = format!("{{\"a\":[{}0]}}", "0,".repeat(METADATA_VALUES));
        let page = format!("<p>{}", ",".repeat(METADATA_VALUES * 2));
        for (body, fits) in [(wide, false), (page, true)] {
            server.reset().await;
            let answer = ResponseTemplate::new(200).set_body_string(body);
            Mock::given(method("GET")).respond_with(answer).mount(&server).await;
            let client = super::super::http::client(&server.uri()).await.unwrap();
            let answer = client.get(server.uri()).send().await.unwrap();
            assert_eq!(whole(answer).await.is_ok(), fits);
        }
    }

    #[tokio::test]
    async fn a_server_cannot_make_this_program_send_requests_to_the_local_network() {
        for (from, to, may) in [
            ("https://8.8.8.8/mcp", "https://1.1.1.1/x", true),
            ("https://8.8.8.8/mcp", "http://1.1.1.1/x", false),
            ("https://8.8.8.8/mcp", "http://8.8.8.8/x", false),
            ("https://8.8.8.8/mcp", "https://127.0.0.1/x", false),
            ("https://8.8.8.8/mcp", "https://[::1]/x", false),
            ("https://8.8.8.8/mcp", "https://localhost/x", false),
            ("https://8.8.8.8/mcp", "https://10.0.0.1/x", false),
            ("https://10.0.0.5/mcp", "https://10.0.0.1/x", true),
            ("https://10.0.0.5/mcp", "https://169.254.169.254/x", false),
            ("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/x", true),
            ("http://127.0.0.1:1/mcp", "http://127.0.0.2:2/x", false),
        ] {
            let url = |text: &str| Url::parse(text).unwrap();
            assert_eq!(may_send_to(&url(from), &url(to)).await.is_ok(), may, "{from} {to}");
        }
    }

    #[tokio::test]
    async fn the_secret_is_not_sent_to_an_endpoint_that_only_the_server_names() {
        let issuer = |url: &str| Some(Authority::Issuer(url.to_owned()));
        let token_url = |url: &str| Some(Authority::TokenUrl(url.to_owned()));
        for (named, by, authority, sent) in [
            (
                "https://8.8.8.8:9/t",
                "https://8.8.8.8",
                None,
                Some("https://8.8.8.8:9/t"),
            ),
            ("https://1.1.1.1/t", "https://8.8.8.8", None, None),
            ("https://8.8.8.8/t", "https://1.1.1.1", None, None),
            ("http://8.8.8.8/t", "https://8.8.8.8", None, None),
            (
                "https://1.1.1.1/t",
                "https://1.1.1.1",
                issuer("https://1.1.1.1/realm"),
                Some("https://1.1.1.1/t"),
            ),
            ("https://1.1.1.1/t", "https://8.8.8.8", issuer("https://1.1.1.1"), None),
            ("https://8.8.8.8/t", "https://8.8.8.8", issuer("https://1.1.1.1"), None),
            ("http://1.1.1.1/t", "http://1.1.1.1", issuer("http://1.1.1.1"), None),
            (
                "https://8.8.8.8/t",
                "https://8.8.8.8",
                token_url("https://1.1.1.1/o"),
                Some("https://1.1.1.1/o"),
            ),
            (
                "https://8.8.8.8/t",
                "https://8.8.8.8",
                token_url("http://1.1.1.1/o"),
                None,
            ),
        ] {
            let metadata = json!({ "issuer": by, "authorization_endpoint": by, "token_endpoint": named });
            let metadata = serde_json::from_value(metadata).unwrap();
            let server = Url::parse("https://8.8.8.8/mcp").unwrap();
            let chosen = endpoint(&server, authority.as_ref(), &metadata).await;
            assert_eq!(
                chosen.ok().as_ref().map(Url::as_str),
                sent,
                "{named} {by} {authority:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_server_that_names_itself_instead_of_the_issuer_gets_no_credentials() {
        let (server, client) = server(json!(["client_secret_post"]), 3600).await;
        let url = format!("{}/mcp", server.uri());
        for (issuer, times) in [("http://127.0.0.1:1/".to_owned(), 0), (server.uri(), 1)] {
            let with = Credentials {
                authority: Some(Authority::Issuer(issuer)),
                ..secret()
            };
            let told = super::manager(client.clone(), &url, Some(&with)).await.err();
            assert_eq!(told.is_none(), times == 1, "{told:?}");
            assert!(told.is_none_or(|told| told.contains("no credentials were sent")));
            assert_eq!(asked(&server).await, times);
        }
    }

    #[tokio::test]
    async fn metadata_at_another_loopback_address_is_not_requested() {
        let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
        let other = MockServer::builder().listener(listener).start().await;
        for (is_other, asks) in [(true, false), (false, true)] {
            let (server, client) = server(json!(["client_secret_post"]), 3600).await;
            let at = if is_other { other.uri() } else { server.uri() };
            let header = format!("Bearer resource_metadata=\"{at}/latest/meta-data\"");
            Mock::given(path("/mcp"))
                .respond_with(ResponseTemplate::new(401).insert_header("www-authenticate", header.as_str()))
                .mount(&server)
                .await;
            // Whether the server is usable without these metadata is not the question here.
            let _ = super::manager(client, &format!("{}/mcp", server.uri()), Some(&secret())).await;
            let asked = if is_other { &other } else { &server }
                .received_requests()
                .await
                .unwrap();
            let is_asked = asked.iter().any(|request| request.url.path() == "/latest/meta-data");
            assert_eq!(is_asked, asks, "{at}");
        }
    }

    #[tokio::test]
    async fn the_secret_goes_into_the_header_if_the_server_does_not_say_where() {
        let (server, client) = server(Value::Null, 3600).await;
        let url = format!("{}/mcp", server.uri());
        super::manager(client, &url, Some(&secret())).await.unwrap();
        let all = server.received_requests().await.unwrap();
        let token = all.iter().find(|request| request.url.path() == "/token").unwrap();
        let basic = format!("Basic {}", STANDARD.encode("me:a+b%3Ac"));
        assert_eq!(token.headers["authorization"], basic);
        assert!(!String::from_utf8_lossy(&token.body).contains("client_secret"));
    }

    #[tokio::test]
    async fn the_secret_is_sent_in_the_way_that_the_server_accepts() {
        let (server, client) = server(json!(["client_secret_basic"]), 3600).await;
        let url = format!("{}/mcp", server.uri());
        let basic = format!("Basic {}", STANDARD.encode("me:a+b%3Ac"));
        Mock::given(method("POST"))
            .and(header("authorization", basic.as_str()))
            .respond_with(ResponseTemplate::new(200))
            .expect(0)
            .mount(&server)
            .await;
        super::manager(client.clone(), &url, Some(&secret())).await.unwrap();
        let all = server.received_requests().await.unwrap();
        let token = all.iter().find(|request| request.url.path() == "/token").unwrap();
        assert_eq!(token.headers["authorization"], basic);
        assert!(!String::from_utf8_lossy(&token.body).contains("client_secret"));
        let key = Credentials {
            proof: Proof::Key(String::new()),
            ..secret()
        };
        let told = super::manager(client, &url, Some(&key)).await.err().unwrap();
        assert!(told.contains("accepts no `private_key`"), "{told}");
    }
}

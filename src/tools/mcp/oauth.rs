//! Tokens for a server by OAuth client credentials: no browser, nothing stored. The protocol is rmcp's; the requests go over
//! our client.

use super::Credentials;
use reqwest::Client;
use rmcp::transport::auth::{
    AuthorizationManager, ClientCredentialsConfig, OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest, OAuthState,
};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one answer of an authorization server.
const MOST: usize = 1 << 20;

/// A manager that holds a token.
pub async fn authorize(client: Client, url: &str, with: &Credentials) -> Result<AuthorizationManager, String> {
    let trouble = |error: rmcp::transport::auth::AuthError| format!("OAuth: {error}");
    let http: Arc<dyn OAuthHttpClient> = Arc::new(Door(client));
    let mut state = OAuthState::new_with_oauth_http_client(url, http)
        .await
        .map_err(trouble)?;
    let config = ClientCredentialsConfig::ClientSecret {
        client_id: with.client_id.clone(),
        client_secret: with.client_secret.clone(),
        scopes: with.scopes.clone(),
        resource: Some(url.to_owned()),
    };
    state.authenticate_client_credentials(config).await.map_err(trouble)?;
    state
        .into_authorization_manager()
        .ok_or_else(|| "OAuth: no token was given".to_owned())
}

/// The way out for every request of the OAuth protocol. Redirects are not followed.
struct Door(Client);

impl OAuthHttpClient for Door {
    fn execute(&self, asked: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let time = asked.timeout.unwrap_or(Duration::from_secs(30));
            let request = reqwest::Request::try_from(asked.request)?;
            let mut answer = tokio::time::timeout(time, self.0.execute(request)).await??;
            let mut built = http::Response::builder().status(answer.status());
            if let Some(headers) = built.headers_mut() {
                *headers = answer.headers().clone();
            }
            let mut body = Vec::new();
            while let Some(piece) = tokio::time::timeout(time, answer.chunk()).await?? {
                body.extend_from_slice(&piece);
                if body.len() > MOST {
                    return Err("the answer is too long".into());
                }
            }
            Ok(built.body(body)?)
        })
    }
}

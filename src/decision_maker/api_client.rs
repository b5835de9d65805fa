//! The client of the API: tokens, requests, responses.

use std::time::{Duration, Instant, SystemTime};

use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{Settings, identity};
use crate::base::error::{Error, Result};
use crate::base::root::Root;
use crate::net::{self, Resolver, chain, one_line};

/// The largest answer, in bytes.
pub const MAX_ANSWER: usize = 10 << 20;

/// The name by which the server's log knows the client of a token.
const CLIENT_ID: &str = "gthctl";

/// Sends requests to one server; keeps the connection and the token while they work.
pub(super) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector<Resolver>>, String>,
    /// The URL of the strategies.
    url: String,
    token_url: String,
    server: String,
    public_key: Option<String>,
    token: Option<Token>,
    patience: Duration,
}

struct Token {
    /// The value of the Authorization header.
    bearer: String,
    /// When to ask for the next token; `None`: when the server refuses this one.
    renew: Option<Instant>,
}

/// The request for a token, and below its answer (`TokenRequest` and `TokenResponse` in
/// api/decisionmaker/rest of github.com/Gthulhu/Gthulhu; the server alone decides how long the
/// token is valid).
#[derive(Serialize)]
struct TokenRequest<'a> {
    public_key: &'a str,
    client_id: &'a str,
}

#[derive(Deserialize)]
struct TokenAnswer {
    data: TokenData,
}

#[derive(Deserialize)]
struct TokenData {
    token: String,
    /// In seconds since 1970.
    #[serde(default)]
    expired_at: i64,
}

/// What the server sends instead of an answer.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// Why a text is not the URL of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("not a URL")]
    NoUrl,
    #[error("neither http:// nor https://")]
    OtherScheme,
    #[error("more or less than a host, a port and a path")]
    OtherParts,
    #[error("no port from 1 to 65535")]
    OtherPort,
}

/// The URL of a server without the slash at its end, if gthctl can use it: `http` or `https`, a
/// host, and optionally a port and a path.
pub fn base_url(text: &str) -> std::result::Result<String, BadUrl> {
    let url: Uri = text.parse().map_err(|_| BadUrl::NoUrl)?;
    let Some((scheme @ ("http" | "https"), authority)) = url.scheme_str().zip(url.authority())
    else {
        return Err(BadUrl::OtherScheme);
    };
    if authority.host().is_empty() || authority.as_str().contains('@') || url.query().is_some() {
        return Err(BadUrl::OtherParts);
    }
    // The `http` crate ignores a port that is not a number, and the scheme's own port would be
    // used.
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err(BadUrl::OtherPort);
    }
    Ok(format!("{scheme}://{authority}{}", url.path().trim_end_matches('/')))
}

impl Client {
    /// Prepares a client; sends nothing yet.
    pub fn new(settings: &Settings, root: &Root, patience: Duration) -> Result<Self> {
        let server = &settings.url;
        let tls = match &settings.identity {
            Some(identity) => identity.client_config(),
            None if server.starts_with("https:") => identity::machines_config(),
            None => identity::no_config(),
        };
        let tls = tls.map_err(|why| failed(server, &why.to_string()))?;
        Ok(Self::with_tls(settings, tls, root, patience))
    }

    /// As [`Client::new`], with this TLS configuration.
    pub(super) fn with_tls(
        settings: &Settings,
        tls: ClientConfig,
        root: &Root,
        patience: Duration,
    ) -> Self {
        let server = &settings.url;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(net::connector(root));
        Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            url: format!("{server}/api/v1/scheduling/strategies"),
            token_url: format!("{server}/api/v1/auth/token"),
            server: server.clone(),
            public_key: settings.public_key.clone(),
            token: None,
            patience,
        }
    }

    /// The URL of the strategies.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The text of the server's answer, whatever it says.
    pub async fn strategies(&mut self) -> Result<String> {
        let is_new = self.renew_token().await?;
        let (mut status, mut text) = self.ask(Method::GET, &self.url, String::new()).await?;
        if status == StatusCode::UNAUTHORIZED && self.public_key.is_some() && !is_new {
            self.token = None;
            self.renew_token().await?;
            (status, text) = self.ask(Method::GET, &self.url, String::new()).await?;
        }
        match status {
            StatusCode::OK => Ok(text),
            StatusCode::UNAUTHORIZED if self.public_key.is_none() => Err(self
                .refused(status, &text)
                .help("it asks for a token; set api.auth_enabled and api.public_key_path")),
            _ => Err(self.refused(status, &text)),
        }
    }

    /// Gets a token if one is needed; returns true if it did.
    async fn renew_token(&mut self) -> Result<bool> {
        let Some(public_key) = &self.public_key else { return Ok(false) };
        let is_due = |token: &Token| token.renew.is_some_and(|at| at <= Instant::now());
        if self.token.as_ref().is_some_and(|token| !is_due(token)) {
            return Ok(false);
        }
        self.token = None;
        let request = TokenRequest { public_key, client_id: CLIENT_ID };
        let body =
            serde_json::to_string(&request).map_err(|e| failed(&self.server, &e.to_string()))?;
        let (status, text) = self.ask(Method::POST, &self.token_url, body).await?;
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return Err(self
                    .refused(status, &text)
                    .help("give the server's own public key as api.public_key_path"));
            }
            _ => return Err(self.refused(status, &text)),
        }
        let answer: TokenAnswer = serde_json::from_str(&text)
            .map_err(|e| failed(&self.token_url, &format!("no token in the answer: {e}")))?;
        self.token = Some(Token::new(answer.data));
        Ok(true)
    }

    /// Sends one request; returns the status and the text of the answer.
    async fn ask(&self, method: Method, url: &str, body: String) -> Result<(StatusCode, String)> {
        let failed = |why: &str| failed(&self.server, why);
        let mut request = Request::builder().method(method).uri(url);
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, &token.bearer);
        }
        let request =
            request.body(body).map_err(|e| failed(&format!("it gave a bad token: {e}")))?;
        let answer = async {
            let answer = self.http.request(request).await.map_err(|e| failed(&chain(&e)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|e| match e.is::<LengthLimitError>() {
                true => failed(&format!("its answer is larger than {} MiB", MAX_ANSWER >> 20)),
                false => failed(&chain(&*e)),
            })?;
            let text = String::from_utf8(body.to_bytes().into())
                .map_err(|_| failed("its answer is not UTF-8 text"))?;
            Ok((status, text))
        };
        let late = || failed(&format!("no whole answer after {:?}", self.patience));
        timeout(self.patience, answer).await.unwrap_or_else(|_| Err(late()))
    }

    fn refused(&self, status: StatusCode, text: &str) -> Error {
        let why = match serde_json::from_str(text) {
            Ok(Refusal { error }) => error,
            // Something else answers there, perhaps with a page.
            Err(_) if serde_json::from_str::<IgnoredAny>(text).is_err() => "no JSON".to_owned(),
            Err(_) => text.to_owned(),
        };
        let code = status.as_u16();
        failed(&self.server, &format!("it refuses to answer ({code}: {})", one_line(&why)))
    }
}

impl Token {
    /// The token is renewed after nine tenths of its lifetime. The server's clock may be wrong: a
    /// token that seems to have expired already is used until the server refuses it.
    fn new(TokenData { token, expired_at }: TokenData) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = u64::try_from(expired_at).unwrap_or(0).checked_sub(now.as_secs());
        let left = left
            .filter(|&left| left > 0)
            .map(|left| Duration::from_secs(left).saturating_mul(9) / 10);
        Self {
            bearer: format!("Bearer {token}"),
            renew: left.and_then(|left| Instant::now().checked_add(left)),
        }
    }
}

fn failed(server: &str, why: &str) -> Error {
    Error::failure(format!("Gthulhu's API at {server}: {}", one_line(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_after_nine_tenths_of_its_life() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let renew = |expired_at: i64| {
            let token = Token::new(TokenData { token: "t".into(), expired_at });
            assert_eq!(token.bearer, "Bearer t");
            token.renew.map(|at| at.duration_since(Instant::now()).as_secs())
        };
        let day = renew(now as i64 + 24 * 3600).unwrap();
        assert!((77_700..=77_760).contains(&day), "{day}");
        assert_eq!([now as i64, now as i64 - 5, 0, -7, i64::MIN].map(renew), [None; 5]);
        assert!(renew(i64::MAX).is_none_or(|left| left > 0));
    }
}

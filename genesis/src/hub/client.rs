//! Requests to the hub.
//!
//! Redirects are followed here and not by the library, since the first answer has the file's hash and the last
//! its bytes, and since the token goes to the hub alone and never to the storage that it points to.

use std::time::Duration;

use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use super::HubOptions;
use super::name::is_part;

/// Why a request gave nothing.
pub(super) enum Failure {
    /// Another try may help: the network, or a server that is busy.
    Passing(String),
    /// It will not.
    Lasting(String),
}

impl Failure {
    pub(super) fn text(self) -> String {
        match self {
            Failure::Passing(text) | Failure::Lasting(text) => text,
        }
    }
}

/// What the hub says of a file.
pub(super) struct Meta {
    /// Its hash, which can be a file's name.
    pub(super) etag: String,
    /// Its bytes, where that is known.
    pub(super) size: Option<u64>,
}

/// A connection to the hub.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// The most redirects of one request.
const REDIRECTS: usize = 10;

/// The most bytes of a list of files.
const LISTING: u64 = 64 << 20;

impl Client {
    pub(super) fn new(options: &HubOptions) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("genesis/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .build();
        let (endpoint, token) = (options.endpoint.clone(), options.token.clone());
        Client { agent: config.into(), endpoint, token }
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    fn send(&self, url: &str, is_head: bool, start: u64) -> Result<Response<Body>, Failure> {
        let request = if is_head { self.agent.head(url) } else { self.agent.get(url) };
        let request = match &self.token {
            Some(token) if origin(url) == origin(&self.endpoint) => {
                request.header("Authorization", format!("Bearer {token}"))
            }
            _ => request,
        };
        let request = match start {
            0 => request,
            start => request.header("Range", format!("bytes={start}-")),
        };
        request.call().map_err(|error| {
            let text = format!("can't reach {}: {error}", origin(url).unwrap_or_default());
            match error {
                ureq::Error::BadUri(_) | ureq::Error::Http(_) => Failure::Lasting(text),
                _ => Failure::Passing(text),
            }
        })
    }

    /// Follows redirects while `goes_on` says so; the last answer.
    fn follow(
        &self,
        url: &str,
        is_head: bool,
        start: u64,
        goes_on: impl Fn(&Response<Body>, &str) -> bool,
    ) -> Result<Response<Body>, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let response = self.send(&url, is_head, start)?;
            let next = match response.status().is_redirection() {
                true => header(&response, "location").and_then(|next| absolute(&url, next)),
                false => None,
            };
            match next {
                Some(next) if goes_on(&response, &next) => url = next,
                _ => return Ok(response),
            }
        }
        Err(Failure::Lasting(format!("{url} redirects more than {REDIRECTS} times")))
    }

    /// The bytes of a file from `start` on, wherever they are.
    pub(super) fn get(&self, url: &str, start: u64) -> Result<Response<Body>, Failure> {
        self.follow(url, false, start, |_, _| true)
    }

    /// What the hub says of a file: its own answer, not that of the storage behind.
    pub(super) fn meta(&self, url: &str) -> Result<Result<Meta, Response<Body>>, Failure> {
        let own = origin(&self.endpoint);
        // The answer that has the hash of a large file leads to its storage, another to a new name.
        let response = self.follow(url, true, 0, |response, next| {
            header(response, "x-linked-etag").is_none() && origin(next) == own
        })?;
        let status = response.status();
        if !(status.is_success() || status.is_redirection()) {
            return Ok(Err(response));
        }
        let tag = header(&response, "x-linked-etag").or_else(|| header(&response, "etag"));
        let tag = tag.unwrap_or_default().trim_start_matches("W/").trim_matches('"');
        if !is_part(tag) {
            let what = format!("{url} has no usable ETag: is {} a hub", self.endpoint);
            return Err(Failure::Lasting(what));
        }
        let length = if status.is_success() { header(&response, "content-length") } else { None };
        let size = header(&response, "x-linked-size").or(length);
        Ok(Ok(Meta { etag: tag.to_owned(), size: size.and_then(|size| size.parse().ok()) }))
    }

    /// The answer to a question, as JSON of bounded size.
    pub(super) fn json(&self, url: &str) -> Result<Result<Vec<u8>, Response<Body>>, Failure> {
        let mut response = self.get(url, 0)?;
        if !response.status().is_success() {
            return Ok(Err(response));
        }
        let body = response.body_mut().with_config().limit(LISTING).read_to_vec();
        body.map(Ok).map_err(|error| Failure::Passing(format!("{url}: {error}")))
    }
}

/// A header as text.
pub(super) fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name)?.to_str().ok()
}

/// Whether another try may get another answer.
pub(super) fn is_passing(response: &Response<Body>) -> bool {
    response.status().is_server_error() || matches!(response.status().as_u16(), 408 | 429)
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    Some(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// Where a redirect leads to.
fn absolute(from: &str, to: &str) -> Option<String> {
    match to.starts_with('/') {
        // Two of them leave the scheme away.
        true if to.starts_with("//") => Some(format!("{}:{to}", from.split(':').next()?)),
        true => Some(format!("{}{to}", origin(from)?)),
        false => origin(to).is_some().then(|| to.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_addresses() {
        let from = "https://hub.co/a/b";
        assert_eq!(absolute(from, "/c?d").as_deref(), Some("https://hub.co/c?d"));
        assert_eq!(absolute(from, "//cdn.co/c").as_deref(), Some("https://cdn.co/c"));
        assert_eq!(absolute(from, "https://cdn.co/c").as_deref(), Some("https://cdn.co/c"));
        assert_eq!(absolute(from, "c"), None);
        assert_ne!(origin("https://hub.co"), origin("http://hub.co"));
        assert_ne!(origin("https://hub.co"), origin("https://hub.co.evil"));
        assert_ne!(origin("https://hub.co"), origin("https://hub.co:444"));
    }
}

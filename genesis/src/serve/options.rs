//! What a server lets its clients do and take.

use std::time::Duration;

/// What clients may do and take.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// What clients must send as `Authorization: Bearer ..`; nothing is asked of them without.
    pub token: Option<String>,
    /// Whether clients of other machines are served without a token.
    pub allow_remote_without_token: bool,
    /// The origin whose pages may read answers, or `*`; none may without.
    pub allow_origin: Option<String>,
    /// The most answers that are made at a time.
    pub max_streams: usize,
    /// The most answers that wait; a request beyond is told to come back.
    pub max_queue: usize,
    /// The most open connections; others wait unanswered.
    pub max_connections: usize,
    /// The most bytes of a request.
    pub max_body_bytes: usize,
    /// The most time from a request to the end of its answer.
    pub request_timeout: Duration,
    /// The most time for a request's body to arrive.
    pub body_timeout: Duration,
    /// The most time that a connection stays without a request.
    pub idle_timeout: Duration,
    /// The most time that a client may stop reading.
    pub stall_timeout: Duration,
    /// The time that answers have to end when the server does.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            token: None,
            allow_remote_without_token: false,
            allow_origin: None,
            max_streams: 64,
            max_queue: 256,
            max_connections: 1024,
            max_body_bytes: 8 << 20,
            request_timeout: Duration::from_secs(600),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }
}

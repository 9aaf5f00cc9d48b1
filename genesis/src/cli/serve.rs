//! `genesis serve`

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genesis::serve::{ServeOptions, Server};

use super::output::warn;
use super::signals::Signals;
use super::values::positive;
use super::{Failure, Outcome, model, say};

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Serve a language model to OpenAI's clients.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    /// The address to listen on; others than this machine's need a token.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 takes one that is free.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// What clients must send as `Authorization: Bearer ..`. Other users of this machine may see it.
    #[arg(long, conflicts_with = "token_file")]
    token: Option<String>,
    /// A file that holds the token.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Serve other machines without a token.
    #[arg(long)]
    allow_remote_without_token: bool,
    /// Let pages of this origin read answers; `*` is every origin.
    #[arg(long)]
    allow_origin: Option<String>,
    /// The most answers that are made at a time.
    #[arg(long, default_value_t = 64, value_parser = positive)]
    max_streams: usize,
    /// The most answers that wait; a request beyond is refused with status 429.
    #[arg(long, default_value_t = 256)]
    max_queue: usize,
    /// The most bytes of a request.
    #[arg(long, default_value_t = 8 << 20, value_parser = positive)]
    max_body_bytes: usize,
    /// The most seconds from a request to the end of its answer.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Seconds that answers have to end when the server does.
    #[arg(long, default_value_t = 10)]
    grace: u64,
}

pub(super) fn run(args: &Args) -> Outcome {
    let options = ServeOptions {
        token: args.token()?,
        allow_remote_without_token: args.allow_remote_without_token,
        allow_origin: args.allow_origin.clone(),
        max_streams: args.max_streams,
        max_queue: args.max_queue,
        max_body_bytes: args.max_body_bytes,
        request_timeout: Duration::from_secs(args.timeout),
        grace: Duration::from_secs(args.grace),
        ..ServeOptions::default()
    };
    let address = address(&args.host, args.port)?;
    // Said before a model is loaded for minutes.
    options.check(address)?;
    let mut wanted = args.model.clone();
    wanted.sequences = args.max_streams;
    wanted.warm_up = true;
    let loaded = model::open(&wanted)?;
    let signals = Signals::take()?;
    let name = loaded.backend.model().name.clone();
    let context = loaded.backend.model().context;
    let server = Server::start(loaded.backend, address, options)?;
    say(format_args!("{name}, context {context}: http://{}", server.address()))?;
    while !signals.stop().load(Ordering::SeqCst) && !server.has_ended() {
        std::thread::sleep(LOOK);
    }
    if signals.status().is_some() {
        warn("ending; a second signal ends at once");
    }
    server.stop()?;
    signals.status().map_or(Ok(()), |status| Err(Failure::Stopped(status)))
}

impl Args {
    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.token_file else { return Ok(self.token.clone()) };
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::Message(format!("can't read {}: {error}", file.display())))?;
        Ok(Some(text.trim().to_owned()))
    }
}

/// An address, or the first one of a name.
fn address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let unknown = || Failure::Message(format!("there is no host {host:?}"));
    let mut found = (host, port).to_socket_addrs().map_err(|_| unknown())?;
    found.next().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_names() {
        let text = |host| address(host, 80).ok().map(|address| address.to_string());
        assert_eq!(text("127.0.0.1").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(text("[::1]").as_deref(), Some("[::1]:80"));
        assert_eq!(text("::1").as_deref(), Some("[::1]:80"));
        assert_eq!(text("not a host"), None);
    }
}

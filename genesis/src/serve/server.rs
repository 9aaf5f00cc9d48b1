//! A server that runs on threads of its own, and ends in order.
//!
//! It ends in three steps: nothing new is accepted, answers that are being made get [`ServeOptions::grace`]
//! to come to their end, and what is left is told that the server goes, and dropped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};

use super::app::{App, Phase};
use super::backend::Backend;
use super::connection::{Gate, Patience, Requests};
use super::options::ServeOptions;
use super::{chat, completion, embedding, guard, page};
use crate::error::{Error, Result};

/// How long dropped answers may take to be told so.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl ServeOptions {
    /// Refuses what can't be served, or should not be by accident; [`Server::start`] does too.
    ///
    /// # Errors
    /// If the address is open to other machines without a token, or an option serves nothing.
    pub fn check(&self, address: SocketAddr) -> Result<()> {
        let refuse = |why: &str| Err(Error::op("serve", why));
        let is_open = self.token.is_none() && !self.allow_remote_without_token;
        if is_open && !address.ip().is_loopback() {
            let why = "is open to other machines: give a token, or allow clients without one";
            return refuse(&format!("{address} {why}"));
        }
        if self.token.as_ref().is_some_and(|token| token.trim().is_empty()) {
            return refuse("the token is empty");
        }
        for (name, count) in [
            ("max_streams", self.max_streams),
            ("max_connections", self.max_connections),
            ("max_body_bytes", self.max_body_bytes),
        ] {
            if count == 0 {
                return refuse(&format!("{name} is 0, nothing could be answered"));
            }
        }
        match &self.allow_origin {
            Some(origin) if guard::header(origin).is_none() => {
                refuse(&format!("{origin:?} is no origin"))
            }
            _ => Ok(()),
        }
    }
}

/// A server that runs; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Server {
    /// Starts to serve a model; port 0 takes one that is free.
    ///
    /// # Errors
    /// If the address can't be had, options contradict each other, or the address is open to other machines
    /// and no token is asked for.
    pub fn start(
        backend: Arc<dyn Backend>,
        address: SocketAddr,
        options: ServeOptions,
    ) -> Result<Server> {
        options.check(address)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("genesis-serve")
            .enable_all()
            .build()?;
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(|error| Error::io(format!("can't listen on {address}: {error}")))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            let served = runtime.block_on(run(listener, backend, options, stopped));
            // Texts that are still turned into tokens are not waited for.
            runtime.shutdown_background();
            served
        };
        let thread = std::thread::Builder::new().name("genesis-serve".to_owned()).spawn(serve)?;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, and waits until answers have ended or their time is over.
    ///
    /// # Errors
    /// If the server failed while it ran.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Whether it ended by itself, which it does only where it failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn end(&mut self) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            // A server that has ended does not listen.
            let _ = stop.send(());
        }
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(served)) => Ok(served?),
            Some(Err(_)) => Err(Error::op("serve", "the server's thread panicked")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `stop` is how errors are asked for.
        let _ = self.end();
    }
}

async fn run(
    listener: TcpListener,
    backend: Arc<dyn Backend>,
    options: ServeOptions,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    let is_loopback = listener.local_addr()?.ip().is_loopback();
    let (phase, phases) = watch::channel(Phase::Open);
    let app = Arc::new(App::new(backend, options, phases, is_loopback));
    let gate = Gate {
        listener,
        room: Arc::new(Semaphore::new(app.options.max_connections.min(Semaphore::MAX_PERMITS))),
        patience: Patience { idle: app.options.idle_timeout, stall: app.options.stall_timeout },
        metrics: app.metrics.clone(),
    };
    let grace = app.options.grace;
    let phase = Arc::new(phase);
    let closing = phase.clone();
    let service = routes(app).into_make_service_with_connect_info::<Requests>();
    let server = axum::serve(gate, service).with_graceful_shutdown(async move {
        let _ = stopped.await;
        closing.send_replace(Phase::Closing);
    });
    let mut phases = phase.subscribe();
    let end = async {
        let _ = phases.wait_for(|&phase| phase == Phase::Closing).await;
        tokio::time::sleep(grace).await;
        phase.send_replace(Phase::Closed);
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        served = server => served,
        () = end => Ok(()),
    }
}

fn routes(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/", get(page::page))
        .route("/health", get(page::health))
        .route("/metrics", get(page::metrics))
        .route("/v1/models", get(page::models))
        .route("/v1/models/{*name}", get(page::model))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completion::complete))
        .route("/v1/embeddings", post(embedding::embed));
    router = router.fallback(guard::no_route).method_not_allowed_fallback(guard::no_method);
    let guard = axum::middleware::from_fn_with_state(app.clone(), guard::guard);
    router.layer(guard).with_state(app)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_everybody_needs_a_token() {
        let address: SocketAddr = "0.0.0.0:80".parse().expect("an address");
        let error = ServeOptions::default().check(address).expect_err("is refused");
        assert_eq!(
            error.to_string(),
            "serve: 0.0.0.0:80 is open to other machines: give a token, or allow clients without one"
        );
        let with_token =
            ServeOptions { token: Some("secret".to_owned()), ..ServeOptions::default() };
        assert!(with_token.check(address).is_ok());
        let allowed = ServeOptions { allow_remote_without_token: true, ..ServeOptions::default() };
        assert!(allowed.check(address).is_ok());
        let local: SocketAddr = "[::1]:80".parse().expect("an address");
        assert!(ServeOptions::default().check(local).is_ok());
    }

    #[test]
    fn options_that_serve_nothing_are_refused() {
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let none = ServeOptions { max_streams: 0, ..ServeOptions::default() };
        assert!(none.check(address).is_err());
        let empty = ServeOptions { token: Some(" ".to_owned()), ..ServeOptions::default() };
        assert!(empty.check(address).is_err());
        let origin = ServeOptions { allow_origin: Some("a\nb".to_owned()), ..Default::default() };
        assert!(origin.check(address).is_err());
    }
}

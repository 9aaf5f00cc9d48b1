//! Connections that can't hold the server up: their number is bounded, and so is the time they may waste.
//!
//! A client can be slow in three places. It may send its request byte by byte: between requests, a
//! connection may stay without a complete head for [`Patience::idle`]. It may send its body slowly: the
//! handler that reads the body has a time-out of its own. And it may not read the answer: a write that makes
//! no progress for [`Patience::stall`] ends the connection, and with it the answer.
//!
//! While a request is answered nothing is expected of the client, so that time does not count.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use super::metrics::Metrics;

/// How long a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the head of a request.
    pub(super) idle: Duration,
    /// For a write to make progress.
    pub(super) stall: Duration,
}

/// Accepts as many connections at a time as there is room for; others wait in the system's queue.
pub(super) struct Gate {
    pub(super) listener: TcpListener,
    pub(super) room: Arc<Semaphore>,
    pub(super) patience: Patience,
    pub(super) metrics: Arc<Metrics>,
}

impl Listener for Gate {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed.
        let permit = self.room.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Tokens are small; each is sent at once.
        let _ = stream.set_nodelay(true);
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Connection {
            stream,
            patience: self.patience,
            requests: Requests::default(),
            reading: Timer::default(),
            writing: Timer::default(),
            metrics: self.metrics.clone(),
            _permit: permit,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// How many requests of a connection are being answered.
#[derive(Clone, Default, Debug)]
pub(super) struct Requests(Arc<AtomicUsize>);

impl Requests {
    /// Says that a request is being answered, until the guard is dropped.
    pub(super) fn begin(&self) -> Answering {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }
}

impl Connected<IncomingStream<'_, Gate>> for Requests {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Requests {
        stream.io().requests.clone()
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering(Requests);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that ends where its client is too slow.
pub(super) struct Connection {
    stream: TcpStream,
    patience: Patience,
    requests: Requests,
    reading: Timer,
    writing: Timer,
    metrics: Arc<Metrics>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time since something is waited for.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready when the wait took too long; it begins with the first call behind a stop.
    fn poll(&mut self, limit: Duration, ctx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        sleep.as_mut().poll(ctx)
    }

    fn restart(&mut self, limit: Duration) {
        if let Some(sleep) = &mut self.0 {
            sleep.as_mut().reset(Instant::now() + limit);
        }
    }

    fn stop(&mut self) {
        self.0 = None;
    }
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(ctx, buf) {
            return Poll::Ready(read);
        }
        // A head that comes byte by byte has the same time as one that does not come.
        if this.reading.poll(this.patience.idle, ctx).is_pending() {
            return Poll::Pending;
        }
        if this.requests.0.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(Err(timed_out()));
        }
        this.reading.restart(this.patience.idle);
        this.reading.poll(this.patience.idle, ctx).map(|()| Err(timed_out()))
    }
}

impl Connection {
    /// Watches a write: one that makes no progress for too long fails.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        ctx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.stop();
            // What is written is part of an answer: the client has its time again behind it.
            self.reading.restart(self.patience.idle);
            return written;
        }
        ready!(self.writing.poll(self.patience.stall, ctx));
        Poll::Ready(Err(timed_out()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(ctx, bytes);
        this.watch(written, ctx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(ctx, bytes);
        this.watch(written, ctx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}

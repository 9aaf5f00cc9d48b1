//! What handlers share: the backend, the places of answers, and how bodies are read.
//!
//! A place is a right to have one answer made. Requests wait for places in the order they came in, in a
//! queue that is bounded: who comes when it is full is told so at once, and not by a time-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::backend::{Backend, ModelInfo};
use super::metrics::Metrics;
use super::options::ServeOptions;
use super::protocol::answers::Head;
use super::refusal::ApiError;

/// How far the server is on its way to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It accepts.
    Open,
    /// It finishes what it began.
    Closing,
    /// It drops what is left.
    Closed,
}

/// The state of a server.
pub(super) struct App {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) options: ServeOptions,
    pub(super) metrics: Arc<Metrics>,
    pub(super) phases: watch::Receiver<Phase>,
    /// Whether only this machine's clients reach it.
    pub(super) is_loopback: bool,
    places: Arc<Semaphore>,
    fingerprint: String,
    /// What makes ids and seeds of this process others than those of the last.
    salt: [u8; 32],
    numbers: AtomicU64,
}

/// A right to have answers made, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _running: Counted,
}

/// A number in the metrics, for as long as this lives.
struct Counted(Arc<Metrics>, fn(&Metrics) -> &AtomicI64, i64);

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Counted").field(&self.2).finish()
    }
}

impl Counted {
    fn new(metrics: &Arc<Metrics>, which: fn(&Metrics) -> &AtomicI64, count: i64) -> Counted {
        which(metrics).fetch_add(count, Ordering::SeqCst);
        Counted(metrics.clone(), which, count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(self.2, Ordering::SeqCst);
    }
}

impl App {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        options: ServeOptions,
        phases: watch::Receiver<Phase>,
        is_loopback: bool,
    ) -> App {
        let fingerprint = fingerprint(backend.model());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = format!("{} {}", since.as_nanos(), std::process::id());
        App {
            places: Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS))),
            backend,
            options,
            metrics: Arc::new(Metrics::new()),
            phases,
            is_loopback,
            fingerprint,
            salt: *blake3::hash(start.as_bytes()).as_bytes(),
            numbers: AtomicU64::new(0),
        }
    }

    pub(super) fn model(&self) -> &ModelInfo {
        self.backend.model()
    }

    /// A number that no other request has.
    fn fresh(&self) -> blake3::Hash {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        blake3::keyed_hash(&self.salt, &number.to_le_bytes())
    }

    /// The seed of a request that gives none.
    pub(super) fn fresh_seed(&self) -> u64 {
        let hash = self.fresh();
        hash.as_bytes()[..8].iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte))
    }

    /// An id such as `chatcmpl-` and 24 digits.
    pub(super) fn fresh_id(&self, prefix: &str) -> String {
        format!("{prefix}-{}", &self.fresh().to_hex()[..24])
    }

    /// The head of a response.
    pub(super) fn head(&self, prefix: &str, object: &'static str) -> Head {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Head {
            id: self.fresh_id(prefix),
            object,
            created: since.as_secs(),
            model: self.model().name.clone(),
            system_fingerprint: self.fingerprint.clone(),
        }
    }

    /// Refuses the name of another model.
    pub(super) fn check_model(&self, name: Option<&str>) -> Result<(), ApiError> {
        let own = &self.model().name;
        match name {
            Some(name) if name != own => {
                let why = format!("there is no model {name:?}, this server has {own:?}");
                let refusal = ApiError::new(StatusCode::NOT_FOUND, why);
                Err(refusal.at("model").code("model_not_found"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the body of a request: JSON, not too large, and not too slow.
    pub(super) async fn body(&self, request: Request) -> Result<Bytes, ApiError> {
        let ty = request.headers().get(header::CONTENT_TYPE).and_then(|ty| ty.to_str().ok());
        let essence = ty.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        // Pages of other origins may send every type but this one without asking.
        if !essence.eq_ignore_ascii_case("application/json") {
            let why = "the content-type must be application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let most = self.options.max_body_bytes;
        let too_large = || {
            let why = format!("the body has more than {most} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, why)
                .header(header::CONNECTION, header::HeaderValue::from_static("close"))
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > most as u64) {
            return Err(too_large());
        }
        let body = axum::body::to_bytes(request.into_body(), most);
        match tokio::time::timeout(self.options.body_timeout, body).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
            Ok(Err(error)) => Err(ApiError::invalid(format!("the body broke off: {error}"))),
            Err(_) => {
                let why = "the body did not arrive in time";
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, why)
                    .header(header::CONNECTION, header::HeaderValue::from_static("close")))
            }
        }
    }

    /// Waits for the places of so many answers.
    pub(super) async fn place(&self, count: usize, deadline: Instant) -> Result<Place, ApiError> {
        let (most, waiting) = (self.options.max_streams, &self.metrics.waiting);
        let refuse = || {
            let why = format!("the request asks for {count} answers, {most} are made at a time");
            ApiError::invalid(why)
        };
        let permits = u32::try_from(count).ok().filter(|_| count <= most).ok_or_else(refuse)?;
        if *self.phases.borrow() != Phase::Open {
            return Err(closing());
        }
        let answers = i64::from(permits);
        let permit = match self.places.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => {
                let counted = Counted::new(&self.metrics, |metrics| &metrics.waiting, answers);
                let queue = i64::try_from(self.options.max_queue).unwrap_or(i64::MAX);
                if waiting.load(Ordering::SeqCst) > queue {
                    let why = format!("{queue} answers wait already, try again later");
                    return Err(ApiError::busy(why));
                }
                let permit = self.places.clone().acquire_many_owned(permits);
                let permit = self.until(deadline, permit).await?;
                drop(counted);
                permit.map_err(|_| closing())?
            }
        };
        let running = Counted::new(&self.metrics, |metrics| &metrics.running, answers);
        Ok(Place { _permit: permit, _running: running })
    }

    /// Waits for something until a deadline or the end of the server.
    pub(super) async fn until<T>(
        &self,
        deadline: Instant,
        future: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        let mut phases = self.phases.clone();
        tokio::select! {
            biased;
            done = future => Ok(done),
            () = tokio::time::sleep_until(deadline) => Err(self.too_late()),
            _ = phases.wait_for(|&phase| phase == Phase::Closed) => Err(closing()),
        }
    }

    fn too_late(&self) -> ApiError {
        let seconds = self.options.request_timeout.as_secs_f64();
        let why = format!("the answer took longer than {seconds} seconds");
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, why).code("timeout")
    }

    /// When an answer that is asked for now must be whole.
    pub(super) fn deadline(&self) -> Instant {
        let now = Instant::now();
        let far = Duration::from_secs(365 * 24 * 3600);
        now.checked_add(self.options.request_timeout).unwrap_or(now + far)
    }
}

/// What answers depend on beside the request: this version and the model.
fn fingerprint(model: &ModelInfo) -> String {
    let text = format!("{}\n{}\n{}", env!("CARGO_PKG_VERSION"), model.name, model.identity);
    format!("fp_{}", &blake3::hash(text.as_bytes()).to_hex()[..12])
}

pub(super) fn closing() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
}

/// Whether a body was refused for its length, which only the source of the error says.
fn is_length_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| {
        // The type is of a crate below axum.
        source.to_string().contains("length limit")
    })
}

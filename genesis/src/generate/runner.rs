//! An engine on a thread of its own.
//!
//! Any number of threads submit; each gets an [`Answer`] that yields its events as they come. What is wrong
//! with a request, or a full queue, is said by [`Runner::submit`] at once. An answer that is dropped cancels its
//! request, so that a client that went away costs no more than the step that is under way. An error of the model
//! ends the answers of its step; a panic ends all answers, each with an error, and the runner goes on.
//!
//! An answer is read in three ways: as an iterator, which blocks, by [`Answer::recv`] in async code, and by
//! [`Answer::poll_event`] in whatever is polled.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::engine::Engine;
use super::gate::Gate;
use super::options::EngineStats;
use super::request::{Event, Limits, Request, RequestId, refused};
use crate::error::{Error, Result};

/// An engine that works by itself.
///
/// # Examples
/// ```no_run
/// # fn main() -> genesis::Result<()> {
/// # let engine: genesis::generate::Engine = unreachable!();
/// use genesis::generate::{Request, Runner};
///
/// let runner = Runner::start(engine)?;
/// for event in runner.submit(Request { prompt: vec![1, 2, 3], ..Request::default() })? {
///     eprint!("{}", event.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Runner {
    commands: mpsc::Sender<Command>,
    gate: Arc<Gate>,
    stats: Arc<Mutex<EngineStats>>,
    next_id: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Command {
    Submit(RequestId, Box<Request>, UnboundedSender<Event>),
    Cancel(RequestId),
    Stop,
}

impl Runner {
    /// Moves an engine to a thread of its own.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start(engine: Engine) -> Result<Runner> {
        let (commands, receiver) = mpsc::channel();
        let gate = engine.gate();
        let stats = Arc::new(Mutex::new(engine.stats()));
        let worker = Worker { engine, listeners: BTreeMap::new(), stats: Arc::clone(&stats) };
        let named = std::thread::Builder::new().name("genesis-engine".to_owned());
        let thread = Some(named.spawn(move || worker.run(&receiver))?);
        Ok(Runner { commands, gate, stats, next_id: AtomicU64::new(0), thread })
    }

    /// Hands a request in.
    ///
    /// # Errors
    /// If the request is out of the engine's [`Limits`], or the queue is full, which [`Error::is_busy`] tells.
    pub fn submit(&self, request: Request) -> Result<Answer> {
        self.gate.enter(&request)?;
        let samples = request.samples;
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (sender, events) = unbounded_channel();
        let command = Command::Submit(id, Box::new(request), sender);
        if self.commands.send(command).is_err() {
            (0..samples).for_each(|_| self.gate.leave());
            return Err(refused("the engine has stopped"));
        }
        Ok(Answer { id, events, commands: self.commands.clone() })
    }

    /// What requests may ask.
    pub fn limits(&self) -> &Limits {
        &self.gate.limits
    }

    /// What the engine did and has to do, as of its last step.
    pub fn stats(&self) -> EngineStats {
        let stats = *self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        EngineStats { waiting: self.gate.waiting(), ..stats }
    }
}

impl Drop for Runner {
    /// Cancels what is under way and waits for the thread.
    fn drop(&mut self) {
        // A thread that has ended needs no command.
        let _ = self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // Its panics were caught; there is nobody to tell of another.
            let _ = thread.join();
        }
    }
}

/// The events of a request, as they come; dropping it cancels the request.
#[derive(Debug)]
pub struct Answer {
    id: RequestId,
    events: UnboundedReceiver<Event>,
    commands: mpsc::Sender<Command>,
}

impl Answer {
    /// The request's number.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event; nothing when all samples have ended.
    pub async fn recv(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// As [`Answer::recv`], for a hand-written future or stream.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}

impl Iterator for Answer {
    type Item = Event;

    /// Waits for the next event. It may not be called in async code, which [`Answer::recv`] is for.
    fn next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // An engine that has stopped has nothing to cancel.
        let _ = self.commands.send(Command::Cancel(self.id));
    }
}

/// What is on the thread.
struct Worker {
    engine: Engine,
    listeners: BTreeMap<RequestId, Listener>,
    stats: Arc<Mutex<EngineStats>>,
}

/// Who hears of a request.
struct Listener {
    events: UnboundedSender<Event>,
    /// Samples that have not ended.
    open: usize,
}

impl Worker {
    fn run(mut self, commands: &mpsc::Receiver<Command>) {
        loop {
            let command = if self.engine.has_work() {
                commands.try_recv()
            } else {
                commands.recv().map_err(|_| TryRecvError::Disconnected)
            };
            match command {
                Ok(Command::Submit(id, request, events)) => self.submit(id, *request, events),
                Ok(Command::Cancel(id)) => self.cancel(id),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => self.step(),
            }
            self.note();
        }
        for id in self.listeners.keys().copied().collect::<Vec<RequestId>>() {
            self.engine.cancel(id);
        }
        // With nothing left to compute, this is the last events only.
        self.step();
    }

    fn submit(&mut self, id: RequestId, request: Request, events: UnboundedSender<Event>) {
        let open = request.samples;
        self.listeners.insert(id, Listener { events, open });
        if let Err(error) = self.engine.enqueue(id, request) {
            let failure = |sample| Event::failure(id, sample, error.clone());
            (0..open).map(failure).for_each(|event| self.tell(event));
        }
    }

    fn cancel(&mut self, id: RequestId) {
        // Nobody listens any more; the events of the end go nowhere.
        self.listeners.remove(&id);
        self.engine.cancel(id);
    }

    fn step(&mut self) {
        let engine = &mut self.engine;
        let events = catch_unwind(AssertUnwindSafe(|| engine.step()));
        let events = events.unwrap_or_else(|panic| {
            let error = panicked(&*panic);
            self.engine.fail_all(&error);
            self.engine.step()
        });
        // Who has an event sees what the engine was like when it came.
        self.note();
        events.into_iter().for_each(|event| self.tell(event));
    }

    fn note(&self) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.engine.stats();
    }

    /// Sends an event to who hears of its request.
    fn tell(&mut self, event: Event) {
        let (id, is_last) = (event.id, event.finish.is_some());
        let Some(listener) = self.listeners.get_mut(&id) else { return };
        listener.open -= usize::from(is_last);
        let is_over = listener.open == 0;
        // One who left has sent a cancel, or will.
        let _ = listener.events.send(event);
        if is_over {
            self.listeners.remove(&id);
        }
    }
}

/// What a panic said.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    refused(format!("the engine panicked: {}", text.unwrap_or("it did not say why")))
}

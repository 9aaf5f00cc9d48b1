//! Threads that make batches ahead of their use, handed out in order.
//!
//! Workers take jobs under one lock, so that job `k` is the k-th whoever takes it, and put results
//! where the reader looks for number `k`. No worker starts a job that is more than `limit` ahead of
//! the reader, which bounds memory. A panic becomes an error in the place of its batch. So the reader
//! either gets the next result or learns that there is none; it can't wait for ever.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

/// Jobs in order; asked for one at a time.
pub(super) type Jobs<J> = Box<dyn Iterator<Item = Result<J>> + Send>;

/// What makes a result of a job.
pub(super) type Work<J, B> = Arc<dyn Fn(J) -> Result<B> + Send + Sync>;

/// The most threads that make results: more than machines have use for, and few enough to be started.
const MOST_WORKERS: usize = 1024;

/// Results in the order of their jobs.
pub(super) enum Results<J, B> {
    /// Made when asked for.
    Here(Source<J, B>),
    /// Made by threads.
    Ahead(Pool<B>),
}

impl<J: Send + 'static, B: Send + 'static> Results<J, B> {
    /// Results by `workers` threads, at most `limit` ahead; by the caller where there are none.
    pub(super) fn new(
        jobs: Jobs<J>,
        work: Work<J, B>,
        workers: usize,
        limit: usize,
    ) -> Result<Results<J, B>> {
        if workers > MOST_WORKERS {
            let message = format!("{workers} workers, the most is {MOST_WORKERS}");
            return Err(Error::op("data loader", message));
        }
        let source = Source { jobs, work, taken: 0, done: false };
        if workers == 0 {
            return Ok(Results::Here(source));
        }
        Ok(Results::Ahead(Pool::start(source, workers, limit.max(1))?))
    }

    /// The next result; `None` at the end and after an error.
    pub(super) fn next(&mut self) -> Option<Result<B>> {
        match self {
            Results::Here(source) => {
                let (_, job) = source.take()?;
                let result = job.and_then(|job| guarded(|| (source.work)(job)));
                source.done |= result.is_err();
                Some(result)
            }
            Results::Ahead(pool) => pool.next(),
        }
    }
}

/// Jobs and what is done with them.
pub(super) struct Source<J, B> {
    jobs: Jobs<J>,
    work: Work<J, B>,
    taken: usize,
    done: bool,
}

impl<J, B> Source<J, B> {
    /// The next job and its number. After a failure there are no more.
    fn take(&mut self) -> Option<(usize, Result<J>)> {
        if self.done {
            return None;
        }
        let job = guarded(|| self.jobs.next().transpose()).transpose();
        self.done = !matches!(job, Some(Ok(_)));
        let number = self.taken;
        self.taken += 1;
        Some((number, job?))
    }
}

/// Runs user code; a panic becomes an error.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Err(Error::op(
            "data loader",
            format!("a worker panicked: {}", text.unwrap_or("no message")),
        ))
    })
}

/// Threads and what they have made.
pub(super) struct Pool<B> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<B> {
    state: Mutex<State<B>>,
    changed: Condvar,
    limit: usize,
}

struct State<B> {
    /// Results that wait for the reader, by number.
    ready: BTreeMap<usize, Result<B>>,
    /// Results that the reader has got.
    read: usize,
    /// The number of results, once known.
    end: Option<usize>,
    /// Nobody reads any more.
    stopped: bool,
}

impl<B> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // Nothing of ours panics while it holds the lock, and the state is whole between statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<B>>) -> MutexGuard<'a, State<B>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until job `number` may be started; false where nobody wants it.
    fn may_start(&self, number: usize) -> bool {
        let mut state = self.lock();
        while !state.stopped && number.saturating_sub(state.read) >= self.limit {
            state = self.wait(state);
        }
        !state.stopped
    }

    fn change(&self, change: impl FnOnce(&mut State<B>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl<B: Send + 'static> Pool<B> {
    fn start<J: Send + 'static>(
        source: Source<J, B>,
        workers: usize,
        limit: usize,
    ) -> Result<Pool<B>> {
        let state = State { ready: BTreeMap::new(), read: 0, end: None, stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), limit });
        let source = Arc::new(Mutex::new(source));
        let mut pool = Pool { shared, threads: Vec::new() };
        for number in 0..workers {
            let (shared, source) = (pool.shared.clone(), source.clone());
            let builder = std::thread::Builder::new().name(format!("genesis-data-{number}"));
            // On failure the threads that there are end with the pool.
            let thread = builder.spawn(move || serve(&shared, &source)).map_err(|error| {
                Error::op("data loader", format!("can't start worker {number}: {error}"))
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    fn next(&mut self) -> Option<Result<B>> {
        let mut state = self.shared.lock();
        loop {
            let number = state.read;
            if let Some(result) = state.ready.remove(&number) {
                state.read += 1;
                if result.is_err() {
                    state.end = Some(state.read);
                    state.stopped = true;
                }
                drop(state);
                self.shared.changed.notify_all();
                return Some(result);
            }
            if state.stopped || state.end.is_some_and(|end| number >= end) {
                return None;
            }
            state = self.shared.wait(state);
        }
    }
}

/// What a worker does until jobs or readers are gone.
fn serve<J, B>(shared: &Shared<B>, source: &Mutex<Source<J, B>>) {
    loop {
        let (number, job, work) = {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            if source.done || !shared.may_start(source.taken) {
                return;
            }
            match source.take() {
                Some((number, job)) => (number, job, source.work.clone()),
                None => {
                    let end = source.taken.saturating_sub(1);
                    shared.change(|state| state.end = Some(end));
                    return;
                }
            }
        };
        let result = job.and_then(|job| guarded(|| work(job)));
        shared.change(|state| {
            state.ready.insert(number, result);
        });
    }
}

impl<B> Drop for Pool<B> {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
        for thread in self.threads.drain(..) {
            // A worker catches what user code panics with, so there is nothing to learn from it.
            let _ = thread.join();
        }
    }
}

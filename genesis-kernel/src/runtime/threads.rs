//! The threads that work on the CPU: programs of a launch, which a [team](super::team) shares, and matrix
//! products, which rayon spreads.
//!
//! As many as `GENESIS_NUM_THREADS` says, else all that the process may use, until
//! [`set_num_threads`] says otherwise. With one thread the caller of a launch runs all of it itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::diag::Error;
use crate::knobs;

/// The number of threads once it is known; 0 before.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Rayon's threads, made when there is work for more than one.
static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// More threads than this are a mistake.
const MOST: usize = 1 << 12;

/// Threads that work on the CPU.
pub fn num_threads() -> usize {
    match COUNT.load(Ordering::Relaxed) {
        0 => first_count(),
        n => n,
    }
}

#[cold]
fn first_count() -> usize {
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = knobs::get().num_threads.unwrap_or_else(all).min(MOST);
    // Where another thread was first, that one's number holds.
    match COUNT.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => count,
        Err(first) => first,
    }
}

/// Lets so many threads work on the CPU from now on. Work that is under way ends as it began.
///
/// # Errors
/// If the number is 0 or more than 4096, or the system gives no more threads; nothing changes then.
pub fn set_num_threads(count: usize) -> Result<(), Error> {
    if count == 0 || count > MOST {
        return Err(Error::launch(format!("set_num_threads: {count} is not in 1..={MOST}")));
    }
    let pool = if count == 1 { None } else { Some(build(count)?) };
    // The old threads end when the work that they have is done.
    *POOL.lock().unwrap_or_else(PoisonError::into_inner) = pool;
    COUNT.store(count, Ordering::Relaxed);
    Ok(())
}

fn build(count: usize) -> Result<Arc<ThreadPool>, Error> {
    let builder = ThreadPoolBuilder::new().num_threads(count);
    let pool = builder.thread_name(|number| format!("genesis-cpu-{number}")).build();
    let refused = |error| Error::device(format!("the system gives no {count} threads: {error}"));
    pool.map(Arc::new).map_err(refused)
}

/// The threads that work of this thread would spread over.
pub fn threads_here() -> usize {
    match rayon::current_thread_index() {
        Some(_) => rayon::current_num_threads(),
        None => num_threads(),
    }
}

/// Runs work that spreads itself by rayon on the threads of the CPU.
///
/// Inside of a rayon pool, of the program's own or this one, it stays there.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_some() {
        return work();
    }
    match pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// The threads, if the system gives them.
fn pool() -> Option<Arc<ThreadPool>> {
    let count = num_threads();
    let mut slot = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if slot.is_none() {
        *slot = build(count).ok();
    }
    slot.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because the number is the process's.
    #[test]
    fn as_many_threads_work_as_were_asked_for() {
        let before = num_threads();
        assert!(set_num_threads(0).is_err() && set_num_threads(MOST + 1).is_err());
        assert_eq!(num_threads(), before);
        for count in [3, 2] {
            set_num_threads(count).unwrap();
            assert_eq!(num_threads(), count);
            assert_eq!(install(rayon::current_num_threads), count);
            // Inside of the pool it stays there.
            assert!(install(|| install(|| rayon::current_thread_index().is_some())));
        }
        set_num_threads(1).unwrap();
        assert_eq!((threads_here(), install(rayon::current_num_threads)), (1, 1));
        set_num_threads(before).unwrap();
        assert_eq!(num_threads(), before);
    }
}

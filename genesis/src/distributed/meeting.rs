//! Ranks meet before they open communicators: one that can't tells the others, which would wait for it otherwise.
//!
//! ```text
//! rank 0   finds its GPU and NCCL   ready/0   waits for `begin`   reads why
//! rank 1   finds no GPU             begin = "rank 1: ..."         ends by its own error
//! rank 2   finds both               ready/2   waits for `begin`   reads why
//! ```
//!
//! The last rank to be ready writes an empty `begin`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genesis_kernel::runtime::Device;

use super::store::Store;
use super::watch::{STUCK, say};
use super::world::World;
use crate::error::{Error, Result};

/// What all wait for: nothing, or why a rank can't begin.
const BEGIN: &str = "meeting/begin";
/// Why a rank gave up behind the meeting.
const GAVE_UP: &str = "meeting/gave up";
/// How many ranks have read it.
const HEARD: &str = "meeting/heard";
/// So long a rank that fails tries to tell the others, and rank 0, which holds the store, lets them read it.
const PATIENCE: Duration = Duration::from_secs(10);

fn ready(rank: usize) -> String {
    format!("meeting/ready/{rank}")
}

/// Connects to the store, and waits until every rank has; what this rank needs is known to be there, or it is not.
///
/// # Errors
/// This rank's own, that of another rank with its number, or which ranks did not come in time.
pub(super) fn meet(world: &World, own: Result<Device>) -> Result<(Store, Device)> {
    let device = own.inspect_err(|error| tell(world, BEGIN, error))?;
    let store = Store::new(world)?;
    store.set(&ready(world.rank), b"")?;
    if store.add("meeting/count", 1)? == world.size as i64 {
        store.set(BEGIN, b"")?;
    }
    let why = match store.get_within(BEGIN, world.timeout)? {
        Some(why) => why,
        None => return Err(absent(world, &store)),
    };
    if why.is_empty() {
        return Ok((store, device));
    }
    leave_after_all_heard(world, &store);
    let why = String::from_utf8_lossy(&why);
    Err(refuse(format!("rank {} of {}: {why}", world.rank, world.size)))
}

/// Runs what opens this rank's communicator; a rank that fails in it tells the others, which it then ends.
pub(super) fn open<T>(world: &World, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let store = Store::again(world)?;
    let (listener, done) = (world.clone(), Arc::new(AtomicBool::new(false)));
    let ended = done.clone();
    let thread = std::thread::Builder::new().name("meeting".to_owned()).spawn(move || {
        listen(&listener, &store, &ended);
    });
    thread.map_err(|why| refuse(format!("no thread for the meeting: {why}")))?;
    let opened = f();
    done.store(true, Ordering::Release);
    if let Err(error) = &opened {
        tell(world, GAVE_UP, error);
    }
    opened
}

/// Ends this process where another rank gave up: this one waits inside of NCCL for it.
fn listen(world: &World, store: &Store, done: &AtomicBool) {
    const TICK: Duration = Duration::from_millis(200);
    loop {
        let heard = store.get_within(GAVE_UP, TICK);
        if done.load(Ordering::Acquire) {
            return;
        }
        match heard {
            Ok(None) => {}
            Ok(Some(why)) => {
                let why = String::from_utf8_lossy(&why);
                say(&format!("error: rank {} of {}: {why}", world.rank, world.size));
                leave_after_all_heard(world, store);
                // Nothing is taken apart while another thread waits inside of NCCL.
                signal_hook::low_level::exit(STUCK);
            }
            // Rank 0 is gone; whoever waits for it finds that by its timeout.
            Err(_) => return,
        }
    }
}

/// Tells the others why this rank fails, where the store is to be had.
fn tell(world: &World, key: &str, error: &Error) {
    let patience = PATIENCE.min(world.timeout);
    let known = match world.rank {
        // The store may be served already.
        0 if key == GAVE_UP => Store::again(world),
        _ => Store::new(&World { timeout: patience, ..world.clone() }),
    };
    let Ok(store) = known else { return };
    let why = format!("rank {} of {} can't begin: {error}", world.rank, world.size);
    // Of several that fail, the first is told.
    if store.get_within(key, Duration::ZERO).is_ok_and(|told| told.is_none()) {
        let _ = store.set(key, why.as_bytes());
    }
    leave_after_all_heard(world, &store);
}

/// Rank 0 holds the store: it leaves when the others have read it, or do not come.
fn leave_after_all_heard(world: &World, store: &Store) {
    let until = Instant::now() + PATIENCE.min(world.timeout);
    let mut count = store.add(HEARD, 1);
    while world.rank == 0 && Instant::now() < until {
        if !matches!(&count, Ok(count) if *count < world.size as i64) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
        count = store.add(HEARD, 0);
    }
}

/// Who did not come.
fn absent(world: &World, store: &Store) -> Error {
    let is_absent = |&rank: &usize| {
        let said = store.get_within(&ready(rank), Duration::ZERO);
        said.is_ok_and(|said| said.is_none())
    };
    let missing: Vec<String> =
        (0..world.size).filter(is_absent).map(|rank| rank.to_string()).collect();
    let waited = world.timeout.as_secs_f64();
    refuse(format!("rank {} did not come within {waited:.0} s", missing.join(", ")))
}

fn refuse(message: String) -> Error {
    Error::op("distributed", message)
}

//! How queued work is run.
//!
//! Work waits in its stream until something waits for it, and then only what that needs is run: the
//! latest moment that the rules of streams allow. Where a program forgets to wait, what it reads is old.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::driver::lock;
use crate::work::{Graph, Work};

/// Held by the thread that runs work, so that work of one stream runs in order.
static RUNNING: Mutex<()> = Mutex::new(());

/// Runs a stream's work until as much of it is done.
pub(crate) fn finish(stream: u64, upto: u64) {
    if lock().has_ended(stream, upto) {
        return;
    }
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    run(stream, upto);
}

/// Runs all work of a device, or all there is.
pub(crate) fn finish_device(device: Option<u32>) {
    let streams: Vec<(u64, u64)> = {
        let driver = lock();
        let of_device = driver.streams.iter().filter(|(_, s)| device.is_none_or(|d| d == s.device));
        of_device.map(|(&handle, stream)| (handle, stream.queued)).collect()
    };
    streams.into_iter().for_each(|(stream, upto)| finish(stream, upto));
}

/// Runs one piece of a stream's work, so that a program that asks again and again gets on. Who asks does not
/// wait: while another thread runs work, that gets on by itself.
pub(crate) fn advance(stream: u64) {
    let next = lock().streams.get(&stream).map_or(0, |stream| stream.done + 1);
    let running = match RUNNING.try_lock() {
        Ok(running) => running,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    run(stream, next);
    drop(running);
}

fn run(stream: u64, upto: u64) {
    loop {
        let (device, work) = {
            let mut driver = lock();
            if driver.has_ended(stream, upto) {
                return;
            }
            let Some(of) = driver.streams.get_mut(&stream) else { return };
            match of.queue.pop_front() {
                Some(work) => (of.device, work),
                None => return,
            }
        };
        execute(device, &work, &|stream, upto| run(stream, upto));
        if let Some(of) = lock().streams.get_mut(&stream) {
            of.done = of.queued.min(of.done + 1);
        }
    }
}

/// Does one piece of work; `wait` runs what it waits for.
pub(crate) fn execute(device: u32, work: &Work, wait: &dyn Fn(u64, u64)) {
    match work {
        Work::Wait { stream, upto } => wait(*stream, *upto),
        Work::Call { function, data } => {
            // SAFETY: whoever queued it promised that it may be called with this once what was queued
            // before is done.
            unsafe { function(*data as *mut _) }
        }
        Work::Graph(graph) => graph.run(device),
        work => {
            let mut driver = lock();
            if driver.alive(device).is_ok() {
                driver.perform(device, work);
            }
        }
    }
}

impl Graph {
    /// Does all of it.
    pub(crate) fn run(&self, device: u32) {
        let done = RefCell::new(BTreeMap::new());
        self.lane(device, self.origin, usize::MAX, &done);
    }

    fn lane(&self, device: u32, stream: u64, upto: usize, done: &RefCell<BTreeMap<u64, usize>>) {
        let work = self.lanes.get(&stream).map_or(&[][..], Vec::as_slice);
        loop {
            let next = done.borrow().get(&stream).copied().unwrap_or(0);
            let Some(work) = work.get(next).filter(|_| next < upto) else { return };
            execute(device, work, &|other, upto| self.lane(device, other, upto as usize, done));
            done.borrow_mut().insert(stream, next + 1);
        }
    }
}

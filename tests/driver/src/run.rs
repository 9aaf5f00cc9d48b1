//! How queued work is run.
//!
//! Work waits in its stream until something waits for it, and then only what that needs is run: the
//! latest moment that the rules of streams allow. Where a program forgets to wait, what it reads is old.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::clock::{self, Timeline};
use crate::cost;
use crate::driver::{OPTIONS, lock};
use crate::work::{Graph, Piece, Turn, Work};

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

/// Lets the host wait until a stream has done as much.
pub(crate) fn wait_for(stream: u64, upto: u64) {
    finish(stream, upto);
    clock::wait_until(lock().timeline.end(stream, upto));
}

/// Waits for all work of a device, or all there is.
pub(crate) fn finish_device(device: Option<u32>) {
    let streams: Vec<(u64, u64)> = {
        let driver = lock();
        let of_device = driver.streams.iter().filter(|(_, s)| device.is_none_or(|d| d == s.device));
        of_device.map(|(&handle, stream)| (handle, stream.queued)).collect()
    };
    streams.into_iter().for_each(|(stream, upto)| wait_for(stream, upto));
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

/// Runs a stream's work until as much of it is done; when it has, by the virtual clock.
fn run(stream: u64, upto: u64) -> u64 {
    loop {
        let (turn, piece) = {
            let mut driver = lock();
            if driver.has_ended(stream, upto) {
                return driver.timeline.end(stream, upto);
            }
            let now = driver.timeline.now(stream);
            let Some(of) = driver.streams.get_mut(&stream) else { return now };
            let Some(piece) = of.queue.pop_front() else { return now };
            let start = now.max(piece.issued);
            (Turn { device: of.device, start, latency: cost::LAUNCH }, piece)
        };
        let end = execute(turn, &piece, &run);
        let mut driver = lock();
        if let Some(of) = driver.streams.get_mut(&stream) {
            of.done = of.queued.min(of.done + 1);
        }
        if OPTIONS.clock {
            driver.timeline.push(stream, end);
        }
    }
}

/// Does one piece of work, and gives when it ends; `wait` runs what it waits for, and gives when that has ended.
fn execute(turn: Turn, piece: &Piece, wait: &dyn Fn(u64, u64) -> u64) -> u64 {
    let end = match &piece.work {
        Work::Wait { stream, upto } => turn.start.max(wait(*stream, *upto)),
        Work::Call { function, data } => {
            return clock::call(turn.start, || {
                // SAFETY: whoever queued it promised that it may be called with this once what was queued
                // before is done.
                unsafe { function(*data as *mut _) }
            });
        }
        Work::Graph(graph) => graph.run(turn),
        work => {
            let mut driver = lock();
            match driver.alive(turn.device) {
                Ok(()) => turn.start + driver.perform(turn, work),
                Err(_) => turn.start,
            }
        }
    };
    if piece.is_free { turn.start } else { end }
}

impl Graph {
    /// Does all of it; when it ends.
    fn run(&self, turn: Turn) -> u64 {
        let turn = Turn { start: turn.start + cost::GRAPH, latency: cost::NODE, ..turn };
        let done = RefCell::new(Timeline::since(turn.start));
        self.lane(turn, (self.origin, usize::MAX), &done)
    }

    /// Does so much of a stream's work; when that has ended.
    fn lane(&self, turn: Turn, (stream, upto): (u64, usize), done: &RefCell<Timeline>) -> u64 {
        let pieces = self.lanes.get(&stream).map_or(&[][..], Vec::as_slice);
        loop {
            let next = done.borrow().count(stream);
            let Some(piece) = pieces.get(next).filter(|_| next < upto) else {
                return done.borrow().end(stream, upto as u64);
            };
            let turn = Turn { start: done.borrow().now(stream), ..turn };
            let end =
                execute(turn, piece, &|other, upto| self.lane(turn, (other, upto as usize), done));
            done.borrow_mut().push(stream, end);
        }
    }
}

//! Tasks shared among the caller of a launch and the threads of the CPU.
//!
//! The caller begins at once and takes tasks like any thread, so that work which is over before another
//! thread is awake waits for none:
//!
//! ```text
//! caller   wakes the others, task 0, task 1, task 3, ..., waits for those that are still at a task
//! thread             wakes up ...    task 2, ...
//! ```
//!
//! The others are the threads of the [team](super::team), or of the rayon pool that the caller is in.

use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use super::team::{TEAM, Team};
use super::threads;
use super::work::Work;

/// Runs a task for each number below `count`, in any order, on the caller's thread and on those of the
/// CPU, and waits for all of them.
///
/// Inside of a rayon pool the others are that pool's threads.
///
/// # Panics
/// If a task does, once all that were begun are over.
pub fn share<F: Fn(usize) + Sync>(count: usize, task: F) {
    let helpers = threads::threads_here().min(count).saturating_sub(1);
    if helpers == 0 {
        return (0..count).for_each(task);
    }
    if rayon::current_thread_index().is_none() {
        return share_by(&TEAM, helpers, count, task);
    }
    let offer = |work: &Arc<Work>| {
        for _ in 0..helpers {
            let work = work.clone();
            rayon::spawn(move || work.help());
        }
    };
    finish(count, &task, offer, |_| ());
}

/// Gives each item to one task, `least` of them in a row to one thread; see [`share`].
///
/// # Panics
/// If a task does, once all that were begun are over.
pub fn share_items<I: Send, F: Fn(I) + Sync>(items: Vec<I>, least: usize, task: F) {
    let least = least.max(1);
    if items.len() <= least || threads::threads_here() == 1 {
        return items.into_iter().for_each(task);
    }
    let count = items.len().div_ceil(least);
    let mut items = items.into_iter();
    let lot = |_| Mutex::new(items.by_ref().take(least).collect());
    let lots: Vec<Mutex<Vec<I>>> = (0..count).map(lot).collect();
    share(count, |number| {
        let lot = std::mem::take(&mut *lots[number].lock().unwrap_or_else(PoisonError::into_inner));
        lot.into_iter().for_each(&task);
    });
}

/// As [`share`], with so many helpers of a team.
pub(super) fn share_by<F: Fn(usize) + Sync>(
    team: &'static Team,
    helpers: usize,
    count: usize,
    task: F,
) {
    finish(count, &task, |work| team.post(work, helpers), |work| team.withdraw(work));
}

/// Does the tasks with those to whom the work is offered; it is taken back when all tasks are begun.
fn finish<F: Fn(usize) + Sync>(
    count: usize,
    task: &F,
    offer: impl FnOnce(&Arc<Work>),
    take_back: impl FnOnce(&Arc<Work>),
) {
    /// # Safety
    /// The address is a live closure's of this type.
    unsafe fn run<F: Fn(usize)>(closure: *const (), number: usize) {
        // SAFETY: says the caller.
        unsafe { (*closure.cast::<F>())(number) }
    }
    let work = Arc::new(Work {
        run: run::<F>,
        closure: (&raw const *task).cast(),
        count,
        // The first one is the caller's: launch after launch it finds the same memory in its core's cache.
        next: AtomicUsize::new(1),
        inside: AtomicUsize::new(0),
        panic: Mutex::new(None),
        caller: std::thread::current(),
    });
    offer(&work);
    work.go_on(0);
    take_back(&work);
    work.close();
    let panic = work.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in [0, 1, 2, 3, 1000] {
            let ran: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            share(count, |task| {
                ran[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn every_item_is_one_tasks() {
        for (count, least) in [(0, 1), (1, 1), (7, 3), (7, 100), (1000, 1), (10, 0)] {
            let mut numbers = vec![0; count];
            let items: Vec<(usize, &mut usize)> = numbers.iter_mut().enumerate().collect();
            share_items(items, least, |(i, number)| *number += i + 1);
            assert!(numbers.iter().enumerate().all(|(i, &number)| number == i + 1));
        }
    }

    #[test]
    fn tasks_may_share_tasks() {
        let sum = AtomicUsize::new(0);
        share(10, |a| {
            share(10, |b| {
                sum.fetch_add(10 * a + b, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.load(Ordering::Relaxed), 99 * 50);
    }

    #[test]
    fn a_panic_is_the_callers() {
        let began = AtomicBool::new(false);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            share(8, |task| {
                began.store(true, Ordering::Relaxed);
                assert!(task != 0, "task {task}");
            });
        }));
        let panic = outcome.expect_err("task 0 panics");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("task 0"));
        assert!(began.load(Ordering::Relaxed));
    }
}

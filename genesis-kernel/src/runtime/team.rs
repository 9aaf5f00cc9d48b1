//! The threads that help a caller with [`share`](super::share()).
//!
//! Work of a few microseconds is over before a sleeping thread is awake. So a thread that has helped
//! looks out for more for a while before it sleeps, and launch after launch finds it at the same core,
//! beside the memory that it touched before:
//!
//! ```text
//! caller   posts, task 0, withdraws, posts, task 0, withdraws, ...
//! helper   sees it, task 1,  looks,  sees it, task 1,  looks,  looks ..., sleeps
//! ```
//!
//! There is one place to post at. Of two callers the later one takes it, and the earlier one goes on with
//! those who came before: a caller does itself what no one else has begun, and waits for none to come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use super::work::Work;

/// How long a thread that has helped looks out for more.
const LINGER: Duration = Duration::from_micros(50);
/// How often it looks between two looks at the clock.
const LOOKS: usize = 64;

/// The process's helpers.
pub(super) static TEAM: Team = Team::new();

/// Threads that help, and the place where they find work.
pub(super) struct Team {
    post: Mutex<Post>,
    /// The number of posts so far.
    posts: AtomicU64,
    helpers: RwLock<Helpers>,
}

/// Work for the first few helpers, until it is withdrawn.
struct Post {
    work: Option<Arc<Work>>,
    helpers: usize,
}

/// All helpers that the system gave.
struct Helpers {
    all: Vec<Helper>,
    /// The most that were asked for, so that a system that gives no more is not asked each time.
    asked: usize,
}

/// A thread that helps.
struct Helper {
    thread: Thread,
    sleeps: Arc<AtomicBool>,
}

impl Helper {
    fn wake(&self) {
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl Team {
    pub(super) const fn new() -> Team {
        Team {
            post: Mutex::new(Post { work: None, helpers: 0 }),
            posts: AtomicU64::new(0),
            helpers: RwLock::new(Helpers { all: Vec::new(), asked: 0 }),
        }
    }

    /// Lets so many threads help with the work; fewer, where the system gives no more.
    pub(super) fn post(&'static self, work: &Arc<Work>, helpers: usize) {
        self.grow(helpers);
        let post = Post { work: Some(work.clone()), helpers };
        // The work before it is let go of outside of the lock.
        let before = std::mem::replace(&mut *self.posted(), post);
        drop(before);
        // A helper says that it sleeps and then looks at this number, so one of the two is seen.
        self.posts.fetch_add(1, Ordering::SeqCst);
        let known = self.helpers.read().unwrap_or_else(PoisonError::into_inner);
        known.all.iter().take(helpers).for_each(Helper::wake);
    }

    /// Takes the work back, if it is still the one that is posted.
    pub(super) fn withdraw(&self, work: &Arc<Work>) {
        let mut post = self.posted();
        if post.work.as_ref().is_some_and(|posted| Arc::ptr_eq(posted, work)) {
            post.work = None;
        }
    }

    fn posted(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts threads until there are so many.
    fn grow(&'static self, count: usize) {
        if self.helpers.read().unwrap_or_else(PoisonError::into_inner).asked >= count {
            return;
        }
        let mut helpers = self.helpers.write().unwrap_or_else(PoisonError::into_inner);
        helpers.asked = helpers.asked.max(count);
        while helpers.all.len() < count {
            let Some(helper) = self.start(helpers.all.len()) else { return };
            helpers.all.push(helper);
        }
    }

    fn start(&'static self, number: usize) -> Option<Helper> {
        let sleeps = Arc::new(AtomicBool::new(false));
        let its = sleeps.clone();
        let thread = Builder::new().name(format!("genesis-team-{number}"));
        let handle = thread.spawn(move || self.help(number, &its)).ok()?;
        Some(Helper { thread: handle.thread().clone(), sleeps })
    }

    /// What a helper does as long as the process lives.
    fn help(&self, number: usize, sleeps: &AtomicBool) {
        let (mut seen, mut helped) = (0, false);
        loop {
            if !(helped && self.linger(seen)) {
                self.sleep(seen, sleeps);
            }
            seen = self.posts.load(Ordering::SeqCst);
            helped = self.help_once(number);
        }
    }

    /// Helps with what is posted, and says whether that was for this helper.
    fn help_once(&self, number: usize) -> bool {
        let post = self.posted();
        let mine = number < post.helpers;
        let work = post.work.clone().filter(|_| mine);
        drop(post);
        if let Some(work) = work {
            work.help();
        }
        mine
    }

    /// Looks for a new post for a while, and says whether there is one.
    fn linger(&self, seen: u64) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < LINGER {
            for _ in 0..LOOKS {
                if self.posts.load(Ordering::Relaxed) != seen {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        false
    }

    /// Sleeps until there is a new post.
    fn sleep(&self, seen: u64, sleeps: &AtomicBool) {
        loop {
            sleeps.store(true, Ordering::SeqCst);
            if self.posts.load(Ordering::SeqCst) != seen {
                return sleeps.store(false, Ordering::SeqCst);
            }
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::super::share::share_by;
    use super::*;

    fn leaked() -> &'static Team {
        Box::leak(Box::new(Team::new()))
    }

    #[test]
    fn the_same_threads_help_each_time() {
        let team = leaked();
        let who = Mutex::new(BTreeSet::new());
        for round in 0..200 {
            // The tasks wait for each other, so every helper has to come, awake or asleep.
            let all = Barrier::new(3);
            share_by(team, 2, 3, |_| {
                all.wait();
                who.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
            });
            if round % 20 == 0 {
                std::thread::sleep(20 * LINGER);
            }
        }
        assert_eq!(who.into_inner().unwrap().len(), 3);
        assert_eq!(team.helpers.read().unwrap().all.len(), 2);
    }

    #[test]
    fn no_more_threads_help_than_may() {
        let team = leaked();
        let all = Barrier::new(4);
        share_by(team, 3, 4, |_| {
            all.wait();
        });
        let who = Mutex::new(BTreeSet::new());
        for _ in 0..100 {
            share_by(team, 1, 8, |_| {
                let thread = std::thread::current();
                who.lock().unwrap().insert(thread.name().map(str::to_owned));
                std::thread::yield_now();
            });
        }
        let me = std::thread::current().name().map(str::to_owned);
        let allowed = [me, Some("genesis-team-0".to_owned())];
        assert!(who.into_inner().unwrap().iter().all(|name| allowed.contains(name)));
    }

    #[test]
    fn work_is_let_go_of_when_it_is_done() {
        let team = leaked();
        for _ in 0..100 {
            share_by(team, 1, 2, |_| ());
            assert!(team.posted().work.is_none());
        }
    }

    #[test]
    fn work_of_several_callers_runs_once() {
        let team = leaked();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| each_once(team, 7)));
            }
        });
    }

    fn each_once(team: &'static Team, count: usize) {
        let ran: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        share_by(team, 3, count, |task| {
            ran[task].fetch_add(1, Ordering::Relaxed);
        });
        assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }
}

//! Compilation ahead of time: the code of all launches of a piece of a program, compiled side by side.
//!
//! A launch compiles on a miss, and the launches behind it wait. A program that knows what it is about to do runs it
//! once as a *rehearsal*: its launches on GPUs are noted and not run, then what has no code yet is compiled on all
//! threads, and the launches that follow find it.
//!
//! ```text
//! step             compile a, a, compile b, b, compile c, c
//! compile_ahead    note a, b, c . compile a | b | c         step    a, b, c
//! ```
//!
//! What a rehearsal computes is never there. Memory that lives longer, such as counters that kernels leave at zero,
//! is written by [`launch_at_once`].

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::compile;
use crate::front::Hints;
use crate::front::ast::FnAst;
use crate::ir::DType;
use crate::kernel::{KernelDef, Launch, Request};
use crate::runtime::cuda::Writes;
use crate::runtime::{Queue, Stream, num_threads};

/// A kernel that a launch has no code for.
struct Missing {
    ast: &'static FnAst,
    dtypes: Vec<DType>,
    consts: Vec<i64>,
    hints: Hints,
    stream: Stream,
}

/// What a thread's rehearsal noted.
#[derive(Default)]
struct Noted {
    missing: Vec<Missing>,
    /// The kernel and the hash of the request of each.
    known: BTreeSet<(usize, u64)>,
    /// Where it launched.
    streams: Vec<Stream>,
}

/// Threads that rehearse: launches look at nothing else while there is none.
static REHEARSING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static NOTED: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

/// Rehearses `work`, and compiles the kernels that it would have launched on GPUs, on all threads. Launches on the
/// CPU run.
///
/// What `work` made holds anything; nothing of it may be read. A kernel that does not compile is none of the
/// rehearsal's: its launch says so.
///
/// Gives what `work` gives, and how many kernels were compiled or loaded.
pub fn compile_ahead<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOTED.replace(Some(Noted::default()));
    let rehearsal = Rehearsal::begin(before);
    let result = work();
    let noted = NOTED.take().unwrap_or_default();
    drop(rehearsal);
    // The launches that were noted did not run: what was launched last is not what a queue has last.
    noted.streams.iter().for_each(forget_last);
    compile_all(&noted.missing);
    (result, noted.missing.len())
}

/// Launches for good what is launched in `work`, also in a rehearsal: for what lives longer than that.
pub fn launch_at_once<T>(work: impl FnOnce() -> T) -> T {
    let noted = NOTED.take();
    if let Some(noted) = &noted {
        noted.streams.iter().for_each(forget_last);
    }
    let resumed = Resumed(noted);
    let result = work();
    drop(resumed);
    result
}

/// A thread that rehearses; what it did before goes on when this is dropped.
struct Rehearsal(Option<Noted>);

impl Rehearsal {
    fn begin(before: Option<Noted>) -> Rehearsal {
        REHEARSING.fetch_add(1, Ordering::Relaxed);
        Rehearsal(before)
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        NOTED.set(self.0.take());
        REHEARSING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A rehearsal that launches run in between.
struct Resumed(Option<Noted>);

impl Drop for Resumed {
    fn drop(&mut self) {
        if let Some(noted) = self.0.take() {
            NOTED.set(Some(noted));
        }
    }
}

/// Whether any thread rehearses.
#[inline]
pub(super) fn is_on() -> bool {
    REHEARSING.load(Ordering::Relaxed) != 0
}

/// Notes a launch on a GPU, if this thread rehearses; whether it does.
#[inline]
pub(super) fn note(def: &KernelDef, launch: &Launch<'_>) -> bool {
    is_on() && noted(def, launch)
}

#[cold]
fn noted(def: &KernelDef, launch: &Launch<'_>) -> bool {
    let Queue::Cuda(stream) = launch.stream.queue() else { return false };
    NOTED.with_borrow_mut(|noted| {
        let Some(noted) = noted else { return false };
        let own = launch.stream;
        let is_own = |other: &Stream| (other.device(), other.id()) == (own.device(), own.id());
        if !noted.streams.iter().any(is_own) {
            noted.streams.push(own.clone());
        }
        // What may be asked for before a launch ends, and so its code, follows from the launch ahead.
        stream.note_writes(&Writes::of(launch.args));
        let request = Request::new(launch);
        let key = (std::ptr::from_ref(def) as usize, request.hash());
        if def.cache.find(&request).is_none() && noted.known.insert(key) {
            noted.missing.push(Missing {
                ast: def.ast,
                dtypes: launch.dtypes.to_vec(),
                consts: launch.consts.to_vec(),
                hints: request.hints(),
                stream: own.clone(),
            });
        }
        true
    })
}

fn forget_last(stream: &Stream) {
    if let Queue::Cuda(stream) = stream.queue() {
        stream.note_writes(&Writes::UNKNOWN);
    }
}

/// Compiles each on a thread of its own, as many at a time as there are processors.
fn compile_all(missing: &[Missing]) {
    let next = Mutex::new(missing.iter());
    let work = || {
        while let Some(kernel) = take(&next) {
            // Whoever launches it is told what is wrong with it.
            let _ = kernel.compile();
        }
    };
    let threads = num_threads().min(missing.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where the system has no more threads, those that there are do it.
            let named = std::thread::Builder::new().name("genesis-compile".to_owned());
            let _ = named.spawn_scoped(scope, work);
        }
        work();
    });
}

fn take<'a>(next: &Mutex<std::slice::Iter<'a, Missing>>) -> Option<&'a Missing> {
    next.lock().unwrap_or_else(PoisonError::into_inner).next()
}

impl Missing {
    fn compile(&self) -> Result<(), crate::diag::Error> {
        let kernel = compile::specialize(self.ast, &self.dtypes, &self.consts, &self.hints)?;
        compile::keep_ready(&kernel, &self.stream)
    }
}

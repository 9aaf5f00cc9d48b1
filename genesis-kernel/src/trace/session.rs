//! Recording, from its beginning to its end.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::active::ACTIVE;
use super::event::Trace;
use super::lane::note_memory;
use super::observe::observe;
use super::options::Options;
use super::record;
use super::recorder::Recorder;
use crate::diag::Error;
use crate::runtime::observe::set_observer;
use crate::runtime::set_memory_hook;

/// A recording under way. It ends when it is dropped, on the thread that began it.
///
/// # Examples
/// ```
/// use genesis_kernel::trace::{self, Options, Session};
///
/// let session = Session::start(Options::default())?;
/// session.set_recording(true);
/// drop(trace::range("setting up"));
/// let trace = session.take();
/// assert_eq!(trace.ranges[0].name, "setting up");
/// # Ok::<(), genesis_kernel::Error>(())
/// ```
#[derive(Debug)]
pub struct Session {
    recorder: Arc<Recorder>,
    is_recording: std::cell::Cell<bool>,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Session {
    /// Prepares a recording; nothing is recorded until [`Session::set_recording`].
    ///
    /// # Errors
    /// If this thread has a session, or another one records all threads.
    pub fn start(options: Options) -> Result<Session, Error> {
        set_observer(observe);
        let recorder = Arc::new(Recorder::new(options));
        if !record::install(&recorder) {
            let message = "a profiler is at work already; stop it before another one starts";
            return Err(Error::launch(message));
        }
        Ok(Session { recorder, is_recording: false.into(), _thread: PhantomData })
    }

    /// Begins to record, or pauses. While nobody records, hooks cost one load.
    pub fn set_recording(&self, on: bool) {
        if self.is_recording.replace(on) == on {
            return;
        }
        self.recorder.set_recording(on);
        let count = |counter: &AtomicU32| match on {
            true => counter.fetch_add(1, Ordering::Relaxed),
            false => counter.fetch_sub(1, Ordering::Relaxed) - 1,
        };
        count(&ACTIVE);
        if self.recorder.options.memory && count(&OF_MEMORY) == 0 {
            set_memory_hook(on.then_some(note_memory));
        }
    }

    /// What was recorded so far, which is then forgotten. Waits for the GPUs that ran some of it.
    pub fn take(&self) -> Trace {
        self.recorder.take()
    }
}

/// Recorders that hear of memory.
static OF_MEMORY: AtomicU32 = AtomicU32::new(0);

impl Drop for Session {
    fn drop(&mut self) {
        self.set_recording(false);
        record::remove(&self.recorder);
    }
}

//! Random numbers: Philox 4x32-10, keyed by a seed and indexed by element.
//!
//! A [`Generator`] is a seed and the number of draws made so far. Drawing a tensor of n elements
//! takes the next n indices, or two for each where an element needs more bits, so the same seed gives the
//! same bits on the CPU and on any GPU, and saving the state is saving two numbers.
//!
//! Threads may share a generator: each call takes indices of its own, in the order in which calls come.
//! Where that order must not matter, give each thread a generator, by [`Generator::fork`], or a default
//! generator of its own, by [`thread_rng`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use crate::dispatch::capture;
pub use crate::dispatch::rng_state::RngState;

/// A source of random numbers of its own.
#[derive(Debug)]
pub struct Generator {
    state: Mutex<RngState>,
}

static DEFAULT: Generator = Generator::new(0);

thread_local! {
    /// Where this thread's own default generator stands, if it has one.
    static OWN: Cell<Option<RngState>> = const { Cell::new(None) };
}

impl Generator {
    /// A generator at the start of the draws of `seed`.
    pub const fn new(seed: u64) -> Generator {
        Generator { state: Mutex::new(RngState { seed, offset: 0 }) }
    }

    /// Starts again with another seed.
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(RngState { seed, offset: 0 });
    }

    /// The seed that its draws are of.
    pub fn initial_seed(&self) -> u64 {
        self.state().seed
    }

    /// Another generator, whose seed follows from where this one stands; this one moves on by a draw.
    pub fn fork(&self) -> Generator {
        let RngState { seed, offset } = self.take(1);
        // Steele, Lea and Flood's mixing function of SplitMix64 (OOPSLA 2014).
        let mix = |word: u64| {
            let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        };
        let step = 0x9E37_79B9_7F4A_7C15;
        Generator::new(mix(mix(seed.wrapping_add(step)).wrapping_add(offset).wrapping_add(step)))
    }

    /// Where it stands.
    pub fn state(&self) -> RngState {
        self.change(|_| {})
    }

    /// Continues from a saved state.
    pub fn set_state(&self, state: RngState) {
        self.change(|own| *own = state);
    }

    /// Takes the next `n` draws: gives the state that they begin at.
    pub(crate) fn take(&self, n: usize) -> RngState {
        if !std::ptr::eq(self, &DEFAULT) {
            capture::refuse("a step that is captured draws from the default generator only");
        }
        self.change(|state| state.offset = state.offset.wrapping_add(n as u64))
    }

    /// Changes the state, of the default generator that of the thread's own one if there is one, and gives
    /// what it was.
    fn change(&self, f: impl FnOnce(&mut RngState)) -> RngState {
        if std::ptr::eq(self, &DEFAULT)
            && let Some(mut own) = OWN.get()
        {
            let before = own;
            f(&mut own);
            OWN.set(Some(own));
            return before;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        f(&mut state);
        before
    }
}

/// The generator that is used where none is named.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Starts the default generator again with this seed.
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

/// Where the default generator stands.
pub fn get_rng_state() -> RngState {
    DEFAULT.state()
}

/// Lets the default generator continue from a saved state.
pub fn set_rng_state(state: RngState) {
    DEFAULT.set_state(state);
}

/// Runs `f` and puts the default generator back to where it stood, also if `f` panics.
pub fn fork_rng<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(RngState);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_rng_state(self.0);
        }
    }
    let _restore = Restore(get_rng_state());
    f()
}

/// While it lives the default generator of this thread is the thread's own; see [`thread_rng`].
#[derive(Debug)]
#[must_use = "the thread's own generator is gone with it"]
pub struct ThreadRng {
    before: Option<RngState>,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

/// Gives this thread a default generator of its own, at the start of the draws of `seed`, until the guard
/// is dropped: what other threads draw does not change its numbers, nor it theirs.
///
/// # Examples
/// ```
/// use genesis::random::{get_rng_state, thread_rng};
/// use genesis::{DType, Tensor};
///
/// let draw = || -> genesis::Result<Vec<f32>> {
///     let _own = thread_rng(7);
///     Tensor::randn(&[3], DType::F32)?.to_vec::<f32>()
/// };
/// let before = get_rng_state();
/// assert_eq!(draw()?, draw()?);
/// assert_eq!(get_rng_state(), before);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn thread_rng(seed: u64) -> ThreadRng {
    ThreadRng { before: OWN.replace(Some(RngState { seed, offset: 0 })), _thread: PhantomData }
}

impl Drop for ThreadRng {
    fn drop(&mut self) {
        OWN.set(self.before);
    }
}

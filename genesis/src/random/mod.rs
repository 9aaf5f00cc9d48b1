//! Random numbers: Philox 4x32-10, keyed by a seed and indexed by element.
//!
//! A [`Generator`] is a seed and the number of draws made so far. Drawing a tensor of n elements
//! takes the next n indices, or two for each where an element needs more bits, so the same seed gives the
//! same bits on the CPU and on any GPU, and saving the state is saving two numbers.
//!
//! Threads may share a generator: each call takes indices of its own, in the order in which calls come.
//! Where that order must not matter, give each thread a generator, by [`Generator::fork`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::graph::session;

/// The state of a generator: what to save to continue later with the same draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RngState {
    /// The key.
    pub seed: u64,
    /// The number of draws made so far.
    pub offset: u64,
}

/// A source of random numbers of its own.
#[derive(Debug)]
pub struct Generator {
    state: Mutex<RngState>,
}

static DEFAULT: Generator = Generator::new(0);

impl Generator {
    /// A generator at the start of the draws of `seed`.
    pub const fn new(seed: u64) -> Generator {
        Generator { state: Mutex::new(RngState { seed, offset: 0 }) }
    }

    /// Starts again with another seed.
    pub fn manual_seed(&self, seed: u64) {
        *self.lock() = RngState { seed, offset: 0 };
    }

    /// The seed that its draws are of.
    pub fn initial_seed(&self) -> u64 {
        self.lock().seed
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
        *self.lock()
    }

    /// Continues from a saved state.
    pub fn set_state(&self, state: RngState) {
        *self.lock() = state;
    }

    /// Takes the next `n` draws: gives the state that they begin at.
    pub(crate) fn take(&self, n: usize) -> RngState {
        if !std::ptr::eq(self, &DEFAULT) {
            session::refuse("a step that is captured draws from the default generator only");
        }
        let mut state = self.lock();
        let start = *state;
        state.offset = state.offset.wrapping_add(n as u64);
        start
    }

    fn lock(&self) -> MutexGuard<'_, RngState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

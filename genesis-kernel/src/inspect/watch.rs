//! What the launches of a piece of a program run and cost, counted in the tile IR of each kernel.
//!
//! ```text
//! let (result, launches) = inspect::launches(|| x.softmax(-1));
//! launches: [softmax, 8192 programs, 32768 bytes and 40960 FLOPs each]
//! ```

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::compile::{Cost, launch_cost};
use crate::front::Hints;
use crate::kernel::{KernelDef, Launch};

/// A launch that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launched {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Programs of the grid.
    pub programs: u64,
    /// What the first program costs with every lane on, and so nearly each.
    pub cost: Cost,
}

impl Launched {
    /// Bytes that all programs load and store.
    pub fn bytes(&self) -> u64 {
        self.programs.saturating_mul(self.cost.bytes)
    }

    /// Floating-point operations of all programs.
    pub fn flops(&self) -> u64 {
        self.programs.saturating_mul(self.cost.flops)
    }
}

/// Threads that watch: launches look at nothing else while there is none.
static WATCHING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAUNCHED: RefCell<Option<Vec<Launched>>> = const { RefCell::new(None) };
}

/// Runs `work` and says what this thread launched meanwhile.
pub fn launches<T>(work: impl FnOnce() -> T) -> (T, Vec<Launched>) {
    WATCHING.fetch_add(1, Ordering::Relaxed);
    LAUNCHED.set(Some(Vec::new()));
    let result = work();
    WATCHING.fetch_sub(1, Ordering::Relaxed);
    (result, LAUNCHED.take().unwrap_or_default())
}

/// Whether any thread looks at what it launches.
#[inline]
pub(crate) fn is_on() -> bool {
    WATCHING.load(Ordering::Relaxed) != 0
}

/// Notes a launch, if this thread watches.
#[inline]
pub(crate) fn note(
    def: &KernelDef,
    launch: &Launch<'_>,
    grid: [u32; 3],
    hints: impl FnOnce() -> Hints,
) {
    if is_on() {
        note_watched(def, launch, grid, &hints());
    }
}

#[cold]
fn note_watched(def: &KernelDef, launch: &Launch<'_>, grid: [u32; 3], hints: &Hints) {
    LAUNCHED.with_borrow_mut(|launched| {
        let Some(launched) = launched else { return };
        let special = def.specialize(launch.dtypes, launch.consts, hints);
        let cost = special.map(|special| launch_cost(&special.func, launch.grid, launch.args));
        launched.push(Launched {
            kernel: def.ast.name,
            programs: grid.iter().map(|&n| u64::from(n)).product(),
            // What was launched was compiled, so that it can be again.
            cost: cost.unwrap_or_default(),
        });
    });
}

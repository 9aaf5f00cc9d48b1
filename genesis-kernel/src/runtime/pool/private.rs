//! Private pools: memory that a graph replays on, which nobody else is given while the graph lives.
//!
//! A graph names addresses. What was allocated and freed while it was recorded is written again by each
//! replay, so that it must not go to others in between. A thread that records sets a pool; everything
//! it allocates on that device then comes from the pool, and is reused within the pool only.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::Arena;
use super::ledger::Ledger;

/// Memory of a device apart from all other.
///
/// Blocks that are freed in it are reused in it. When the last handle is gone, what no live buffer
/// holds goes back to the system, the rest as its buffers are dropped.
///
/// # Examples
/// ```
/// use genesis_kernel::runtime::MemoryPool;
/// use genesis_kernel::{Buffer, Device};
///
/// let pool = MemoryPool::new();
/// let stream = Device::Cpu.stream();
/// let first = pool.scope(|| Buffer::uninit(&stream, 100))?;
/// let address = first.address();
/// drop(first);
/// assert_ne!(Buffer::uninit(&stream, 100)?.address(), address);
/// assert_eq!(pool.scope(|| Buffer::uninit(&stream, 100))?.address(), address);
/// # Ok::<(), genesis_kernel::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    id: u64,
    /// Its arenas, one for each stream that it was used with.
    arenas: Mutex<Vec<&'static Arena>>,
}

/// Threads that have a pool set.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The pools that are set, the innermost last; none for a piece of the program outside of them.
    static CURRENT: RefCell<Vec<Option<MemoryPool>>> = const { RefCell::new(Vec::new()) };
}

impl Default for MemoryPool {
    fn default() -> MemoryPool {
        MemoryPool::new()
    }
}

impl MemoryPool {
    /// A pool without memory yet, for any device.
    pub fn new() -> MemoryPool {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        MemoryPool(Arc::new(Pool { id: NEXT.fetch_add(1, Relaxed), arenas: Mutex::default() }))
    }

    /// Its number, as in snapshots.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Runs `f`; what this thread allocates meanwhile comes from the pool.
    pub fn scope<T>(&self, f: impl FnOnce() -> T) -> T {
        within(Some(self.clone()), f)
    }

    /// Runs `f`; what this thread allocates meanwhile comes from no pool, inside of a
    /// [`scope`](MemoryPool::scope) too.
    pub fn outside<T>(f: impl FnOnce() -> T) -> T {
        within(None, f)
    }

    fn arena(&self, ledger: &'static Ledger, stream: u64) -> &'static Arena {
        let mut arenas = self.0.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let fits =
            |arena: &&&Arena| std::ptr::eq(arena.ledger(), ledger) && arena.stream() == stream;
        if let Some(arena) = arenas.iter().find(fits) {
            return arena;
        }
        let arena = ledger.arena_of(stream, Some(self.0.id));
        arenas.push(arena);
        arena
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let arenas = self.arenas.get_mut().unwrap_or_else(PoisonError::into_inner);
        arenas.iter().for_each(|arena| arena.retire());
    }
}

/// Runs `f` with a pool, or without one.
fn within<T>(pool: Option<MemoryPool>, f: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // Not dropped inside of the borrow: the last handle gives memory back.
            let pool = CURRENT.with_borrow_mut(Vec::pop);
            USED.fetch_sub(1, Relaxed);
            drop(pool);
        }
    }
    USED.fetch_add(1, Relaxed);
    CURRENT.with_borrow_mut(|pools| pools.push(pool));
    let _leave = Leave;
    f()
}

/// Where this thread allocates what is for a stream, whose own arena is given.
#[inline]
pub(crate) fn current_arena(own: &'static Arena) -> &'static Arena {
    if USED.load(Relaxed) == 0 { own } else { of_this_thread(own) }
}

#[cold]
fn of_this_thread(own: &'static Arena) -> &'static Arena {
    let pool = CURRENT.with_borrow(|pools| pools.last().cloned().flatten());
    pool.map_or(own, |pool| pool.arena(own.ledger(), own.stream()))
}

/// Whether an arena is of the pool that this thread allocates from.
pub(crate) fn is_current(arena: &Arena) -> bool {
    USED.load(Relaxed) != 0
        && CURRENT.with_borrow(|pools| {
            pools.last().and_then(Option::as_ref).is_some_and(|pool| pool.id() == arena.pool())
        })
}

//! What an atomic orders besides the element that it changes, and for whom.
//!
//! The text of tile IR has the words after the op, each only where it is not the default:
//!
//! ```text
//! %1 = atomic_rmw add %p, %x                      orders by use, for the GPU
//! %2 = atomic_rmw add release %p, %x              what came before is seen by who acquires
//! %3 = atomic_cas acquire system %p, %x, %y       and by the host and other GPUs
//! ```

/// Which of its program's other accesses an atomic orders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum MemoryOrder {
    /// Acquire and release where the old value is used, else relaxed.
    #[default]
    ByUse,
    /// None.
    Relaxed,
    /// What comes after it: that sees what others did before they released.
    Acquire,
    /// What came before it: that is seen by who acquires later.
    Release,
    /// Both.
    AcqRel,
}

/// Among whom an access is atomic and orders others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum MemoryScope {
    /// The program's own threads.
    Block,
    /// The threads of its cluster.
    Cluster,
    /// All programs on the device.
    #[default]
    Gpu,
    /// Those, the host and other devices.
    System,
}

/// The order and the scope of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AtomicOrdering {
    /// Which accesses.
    pub order: MemoryOrder,
    /// Among whom.
    pub scope: MemoryScope,
}

impl MemoryOrder {
    /// The orders that are written.
    pub const WRITTEN: [MemoryOrder; 4] =
        [MemoryOrder::Relaxed, MemoryOrder::Acquire, MemoryOrder::Release, MemoryOrder::AcqRel];

    /// Its word in the text of tile IR; none where nothing is said.
    pub fn name(self) -> Option<&'static str> {
        match self {
            MemoryOrder::ByUse => None,
            MemoryOrder::Relaxed => Some("relaxed"),
            MemoryOrder::Acquire => Some("acquire"),
            MemoryOrder::Release => Some("release"),
            MemoryOrder::AcqRel => Some("acq_rel"),
        }
    }
}

impl MemoryScope {
    /// The scopes that are written; `Gpu` is what nothing says.
    pub const WRITTEN: [MemoryScope; 3] =
        [MemoryScope::Block, MemoryScope::Cluster, MemoryScope::System];

    /// Its word in the text of tile IR; none for the default.
    pub fn name(self) -> Option<&'static str> {
        match self {
            MemoryScope::Block => Some("block"),
            MemoryScope::Cluster => Some("cluster"),
            MemoryScope::Gpu => None,
            MemoryScope::System => Some("system"),
        }
    }
}

impl AtomicOrdering {
    /// Whether what the program did before is seen by who acquires later; `is_used` of the old value.
    pub fn releases(self, is_used: bool) -> bool {
        match self.order {
            MemoryOrder::ByUse => is_used,
            MemoryOrder::Relaxed | MemoryOrder::Acquire => false,
            MemoryOrder::Release | MemoryOrder::AcqRel => true,
        }
    }

    /// Whether what the program does after it sees what others released.
    pub fn acquires(self, is_used: bool) -> bool {
        match self.order {
            MemoryOrder::ByUse => is_used,
            MemoryOrder::Relaxed | MemoryOrder::Release => false,
            MemoryOrder::Acquire | MemoryOrder::AcqRel => true,
        }
    }

    /// Whether it orders anything.
    pub fn orders(self, is_used: bool) -> bool {
        self.releases(is_used) || self.acquires(is_used)
    }
}

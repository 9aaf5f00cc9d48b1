//! The blocks of one stream, behind a lock.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::State;
use super::blocks;
use super::ledger::Ledger;
use super::stream_blocks::{Inner, RETIRED, StreamBlocks, Tag, Trades};
use super::watch::{self, MemoryEventKind, Site};
use super::{Label, User};
use crate::diag::Error;
use crate::knobs;
use crate::runtime::fork;

/// Memory in the order of a stream.
pub(crate) struct Arena {
    ledger: &'static Ledger,
    /// Whether a small block that is freed is kept aside: see [`Inner::hot`].
    has_hot: bool,
    blocks: StreamBlocks,
}

/// Arenas whose pools are gone, for later pools.
static RETIRED_ARENAS: Mutex<Vec<&'static Arena>> = Mutex::new(Vec::new());

/// A block that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    /// Its number, for [`Arena::free`].
    pub(crate) block: u32,
}

fn retired() -> MutexGuard<'static, Vec<&'static Arena>> {
    RETIRED_ARENAS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// The memory of one of the device's streams.
    pub(crate) fn arena(&'static self, stream: u64) -> &'static Arena {
        self.arena_of(stream, None)
    }

    /// The memory of a stream in a private pool. An arena lives as long as the process: buffers point to
    /// it, and what ends a pool leaves it to the next one.
    pub(super) fn arena_of(&'static self, stream: u64, pool: Option<u64>) -> &'static Arena {
        if let Some(pool) = pool {
            let mut retired = retired();
            let fits = |arena: &&'static Arena| {
                std::ptr::eq(arena.ledger, self) && arena.blocks.reuse(stream, pool)
            };
            if let Some(at) = retired.iter().position(fits) {
                return retired.remove(at);
            }
        }
        let arena: &'static Arena = Box::leak(Box::new(Arena::new(self, stream, pool)));
        self.add(&arena.blocks);
        arena
    }
}

impl Arena {
    fn new(ledger: &'static Ledger, stream: u64, pool: Option<u64>) -> Arena {
        let has_hot = pool.is_none() && ledger.keeps() > 0;
        let blocks = StreamBlocks::new(ledger.system.granule_log2(), stream, pool);
        Arena { ledger, has_hot, blocks }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.blocks.lock()
    }

    /// The number of the stream.
    pub(super) fn stream(&self) -> u64 {
        self.blocks.stream()
    }

    /// The private pool that it is of; 0 for none.
    pub(super) fn pool(&self) -> u64 {
        self.blocks.pool()
    }

    /// Says that another stream was given a live block: once it is freed, that is waited for.
    pub(crate) fn record_user(&self, block: u32, user: &'static dyn User) {
        self.blocks.record_user(block, user);
    }

    /// The other streams that were given a live block.
    pub(crate) fn users(&self, block: u32) -> Vec<&'static dyn User> {
        self.blocks.users(block)
    }

    /// The device's account.
    pub(crate) fn ledger(&self) -> &'static Ledger {
        self.ledger
    }

    /// Says that its pool is gone.
    pub(super) fn retire(&'static self) {
        self.blocks.retire();
        self.blocks.drain().into_iter().for_each(|segment| self.release(Some(segment)));
        retired().push(self);
    }

    /// A block of at least so many bytes, which are more than 0.
    ///
    /// # Errors
    /// If there is no more memory, or the device can't be used.
    #[track_caller]
    pub(crate) fn alloc(&self, bytes: usize, label: &Label) -> Result<Allocation, Error> {
        fork::check()?;
        self.ledger.system.check()?;
        let site = watch::site(Location::caller());
        let mut inner = self.lock();
        if !inner.waiting.is_empty() {
            inner.poll();
        }
        match inner.take(bytes) {
            Some(block) => {
                inner.counts.hits += 1;
                Ok(self.hand_out(inner, block, bytes, label, site))
            }
            None => {
                drop(inner);
                self.grow(bytes, label, site)
            }
        }
    }

    fn hand_out(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        block: u32,
        requested: usize,
        label: &Label,
        site: Option<Site>,
    ) -> Allocation {
        let index = block as usize;
        if index >= inner.tags.len() {
            inner.tags.resize(index + 1, Tag::default());
        }
        let tag = &mut inner.tags[index];
        (tag.requested, tag.label, tag.site) = (requested, *label, site);
        inner.counts.allocations += 1;
        inner.counts.requested += requested;
        let (address, bytes) = (inner.blocks.block(block).address, inner.blocks.bytes(block));
        drop(inner);
        self.ledger.note_alloc(bytes);
        self.ledger.tell(MemoryEventKind::Alloc, self.stream(), address, bytes);
        Allocation { address, block }
    }

    /// A block out of a new segment.
    #[cold]
    fn grow(&self, bytes: usize, label: &Label, site: Option<Site>) -> Result<Allocation, Error> {
        let stream = self.stream();
        let Some(least) = self.lock().blocks.rounded(bytes) else {
            return Err(self.ledger.exhausted(bytes, label, stream));
        };
        let wished = blocks::segment_bytes(bytes).filter(|_| knobs::get().pool).unwrap_or(least);
        self.trade(wished)?;
        for is_retry in [false, true] {
            if is_retry {
                self.ledger.make_room()?;
                let mut inner = self.lock();
                inner.poll();
                if let Some(block) = inner.blocks.take(bytes) {
                    return Ok(self.hand_out(inner, block, bytes, label, site));
                }
            }
            for size in [wished, least] {
                let Some(address) = self.ledger.reserve(size, stream)? else { continue };
                let mut inner = self.lock();
                let block = inner.blocks.add(address, size, bytes);
                let block = block.ok_or_else(|| Error::bug("a block larger than its segment"))?;
                return Ok(self.hand_out(inner, block, bytes, label, site));
            }
        }
        Err(self.ledger.exhausted(bytes, label, stream))
    }

    /// Before a device holds more than it ever did, what is free in whole segments goes back for it.
    ///
    /// Sizes that differ from step to step leave segments behind that are too small for the next ones: the
    /// trace of `benches/src/memory.rs` takes 4 % less memory so. A device is waited for, hence [`Trades`].
    fn trade(&self, wished: usize) -> Result<(), Error> {
        if self.blocks.pool() != 0 || !self.ledger.would_be_most(wished) {
            return Ok(());
        }
        let mut inner = self.lock();
        let done = inner.counts.allocations;
        if done < inner.trades.next || inner.blocks.free_bytes() < wished {
            return Ok(());
        }
        let every = 2 * inner.trades.every;
        inner.trades = Trades { next: done + every, every };
        drop(inner);
        self.ledger.release_free()
    }

    /// Takes a block back. Work that was given to the arena's stream may still use it: its next owner
    /// queues behind that. What other streams do with it is waited for.
    pub(crate) fn free(&self, block: u32) {
        // Another thread of the parent may have held the lock.
        if fork::is_child() {
            return;
        }
        let mut inner = self.lock();
        let (address, bytes) = (inner.blocks.block(block).address, inner.blocks.bytes(block));
        let requested = inner.tags[block as usize].requested;
        inner.counts.frees += 1;
        inner.counts.requested -= requested;
        let tag = &mut inner.tags[block as usize];
        let surplus = if tag.graphs > 0 {
            inner.blocks.set_waiting(block);
            None
        } else if tag.users.is_empty() {
            self.put(&mut inner, block, bytes)
        } else {
            let users = std::mem::take(&mut tag.users);
            inner.wait(block, users);
            None
        };
        drop(inner);
        self.ledger.note_free(bytes);
        self.ledger.tell(MemoryEventKind::Free, self.stream(), address, bytes);
        self.release(surplus);
    }

    /// Gives a segment back to the system.
    fn release(&self, segment: Option<(u64, usize)>) {
        if let Some((address, bytes)) = segment {
            // A device that is lost keeps its memory to itself; the next call of it says so.
            let _ = self.ledger.release(address, bytes, self.stream());
        }
    }

    /// Says that a graph names the address of a live block: it is given to nobody before as many calls of
    /// [`Arena::let_go`], however early it is freed.
    pub(crate) fn hold(&self, block: u32) {
        self.lock().tags[block as usize].graphs += 1;
    }

    /// Says that a graph is gone, which was replayed on another stream if one is named.
    pub(crate) fn let_go(&self, block: u32, user: Option<&'static dyn User>) {
        if fork::is_child() {
            return;
        }
        let mut inner = self.lock();
        let tag = &mut inner.tags[block as usize];
        tag.graphs -= 1;
        if let Some(user) = user {
            tag.add_user(user);
        }
        if tag.graphs > 0 || inner.blocks.block(block).state != State::Waiting {
            return;
        }
        let users = std::mem::take(&mut inner.tags[block as usize].users);
        let surplus = if users.is_empty() {
            self.give(&mut inner, block)
        } else {
            inner.wait(block, users);
            None
        };
        drop(inner);
        self.release(surplus);
    }

    /// Keeps a small block aside and frees the one before it, or frees a block; as [`Arena::give`].
    #[inline]
    fn put(&self, inner: &mut Inner, block: u32, bytes: usize) -> Option<(u64, usize)> {
        if !self.has_hot || bytes > blocks::SMALL {
            return self.give(inner, block);
        }
        let (before, _) = inner.hot.replace((block, bytes))?;
        self.give(inner, before)
    }

    /// Frees a block; the segment that is to go back to the system for it, if one is.
    fn give(&self, inner: &mut Inner, block: u32) -> Option<(u64, usize)> {
        let segment = inner.blocks.give(block)?;
        let is_kept = match self.blocks.pool() {
            RETIRED => false,
            0 => inner.blocks.free_bytes() <= self.ledger.keeps(),
            _ => true,
        };
        if is_kept { None } else { inner.blocks.remove(segment) }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("device", &self.ledger.name).finish_non_exhaustive()
    }
}

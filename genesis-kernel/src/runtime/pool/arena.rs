//! The blocks of one stream, behind a lock.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::State;
use super::blocks::{self, Blocks, Kind};
use super::ledger::Ledger;
use super::snapshot::{BlockInfo, BlockState, MemoryStats, SegmentInfo};
use super::watch::{self, MemoryEventKind, Site};
use super::{Fence, Label, User};
use crate::diag::Error;
use crate::knobs;
use crate::runtime::fork;

/// Memory in the order of a stream.
pub(crate) struct Arena {
    ledger: &'static Ledger,
    stream: AtomicU64,
    /// The private pool that it is of; 0 for none, [`RETIRED`] once that is gone.
    pool: AtomicU64,
    /// Whether a small block that is freed is kept aside: see [`Inner::hot`].
    has_hot: bool,
    inner: Mutex<Inner>,
}

/// In place of a pool: it is gone, and segments go back to the system as their blocks are freed.
const RETIRED: u64 = u64::MAX;

struct Inner {
    blocks: Blocks,
    /// What is known of each live block, by its number.
    tags: Vec<Tag>,
    /// Freed blocks that other streams may still use, oldest first.
    waiting: VecDeque<Waiting>,
    counts: Counts,
    /// The small block that was freed last, and its bytes: still live to [`Blocks`], so that the next request
    /// of its size, which is what a loop over an op makes, takes it without cutting and joining.
    hot: Option<(u32, usize)>,
    /// When segments were given back for new ones: see [`Arena::trade`].
    trades: Trades,
}

/// Segments are given back for new ones at most once in so many allocations, twice as many each time: a
/// program that would gain by it again and again does it a few times and then never waits.
#[derive(Clone, Copy)]
struct Trades {
    /// The number of the allocation from which on it may be done.
    next: u64,
    every: u64,
}

impl Default for Trades {
    fn default() -> Trades {
        Trades { next: 256, every: 256 }
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    allocations: u64,
    hits: u64,
    frees: u64,
    /// Bytes of live blocks as they were asked for.
    requested: usize,
}

#[derive(Clone, Default)]
struct Tag {
    requested: usize,
    label: Label,
    site: Option<Site>,
    users: Vec<&'static dyn User>,
}

/// A freed block and the streams that it waits for.
struct Waiting {
    block: u32,
    users: Vec<(&'static dyn User, Mark)>,
}

/// Where a stream stood when the block was freed, once it could say.
type Mark = Option<Box<dyn Fence>>;

/// A block that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    /// Its number, for [`Arena::free`].
    pub(crate) block: u32,
}

impl Arena {
    pub(super) fn new(ledger: &'static Ledger, stream: u64, pool: Option<u64>) -> Arena {
        let inner = Inner {
            blocks: Blocks::new(ledger.system.granule_log2()),
            tags: Vec::new(),
            waiting: VecDeque::new(),
            counts: Counts::default(),
            hot: None,
            trades: Trades::default(),
        };
        let has_hot = pool.is_none() && ledger.keeps() > 0;
        let (stream, pool) = (AtomicU64::new(stream), AtomicU64::new(pool.unwrap_or(0)));
        Arena { ledger, stream, pool, has_hot, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's account.
    pub(crate) fn ledger(&self) -> &'static Ledger {
        self.ledger
    }

    /// The number of the stream.
    pub(super) fn stream(&self) -> u64 {
        self.stream.load(Relaxed)
    }

    /// Whether it is of a private pool, or was.
    pub(crate) fn is_private(&self) -> bool {
        self.pool.load(Relaxed) != 0
    }

    /// Takes a retired arena without memory for another pool; false where it is none.
    pub(super) fn reuse(&self, stream: u64, pool: u64) -> bool {
        let is_empty = self.pool.load(Relaxed) == RETIRED && self.lock().blocks.reserved() == 0;
        if is_empty {
            self.stream.store(stream, Relaxed);
            self.pool.store(pool, Relaxed);
        }
        is_empty
    }

    /// Says that its pool is gone.
    pub(super) fn retire(&self) {
        self.pool.store(RETIRED, Relaxed);
        let segments = self.drain();
        for (address, bytes) in segments {
            // A device that is lost keeps its memory to itself; the next call of it says so.
            let _ = self.ledger.release(address, bytes, self.stream());
        }
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
        if self.pool.load(Relaxed) != 0 || !self.ledger.would_be_most(wished) {
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
        let tag = &mut inner.tags[block as usize];
        let (requested, users) = (tag.requested, std::mem::take(&mut tag.users));
        inner.counts.frees += 1;
        inner.counts.requested -= requested;
        let surplus = if users.is_empty() {
            self.put(&mut inner, block, bytes)
        } else {
            inner.blocks.set_waiting(block);
            let users = users.into_iter().map(|user| (user, None)).collect();
            let mut waiting = Waiting { block, users };
            waiting.mark();
            inner.waiting.push_back(waiting);
            None
        };
        drop(inner);
        self.ledger.note_free(bytes);
        self.ledger.tell(MemoryEventKind::Free, self.stream(), address, bytes);
        if let Some((address, bytes)) = surplus {
            // A device that is lost keeps its memory to itself; the next call of it says so.
            let _ = self.ledger.release(address, bytes, self.stream());
        }
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
        let is_kept = match self.pool.load(Relaxed) {
            RETIRED => false,
            0 => inner.blocks.free_bytes() <= self.ledger.keeps(),
            _ => true,
        };
        if is_kept { None } else { inner.blocks.remove(segment) }
    }

    /// Says that another stream was given a live block: once it is freed, that is waited for.
    pub(crate) fn record_user(&self, block: u32, user: &'static dyn User) {
        let mut inner = self.lock();
        let users = &mut inner.tags[block as usize].users;
        if users.iter().all(|known| known.id() != user.id()) {
            users.push(user);
        }
    }

    /// The other streams that were given a live block.
    pub(crate) fn users(&self, block: u32) -> Vec<&'static dyn User> {
        self.lock().tags[block as usize].users.clone()
    }

    /// Takes out the segments without live blocks; none of a private pool, whose graph names addresses.
    pub(super) fn drain(&self) -> Vec<(u64, usize)> {
        let mut inner = self.lock();
        inner.poll();
        inner.cool();
        match self.pool.load(Relaxed) {
            0 | RETIRED => inner.blocks.drain(),
            _ => Vec::new(),
        }
    }

    /// Adds what it holds to a device's statistics.
    pub(super) fn add_stats(&self, stats: &mut MemoryStats) {
        let mut inner = self.lock();
        inner.cool();
        stats.allocations += inner.counts.allocations;
        stats.hits += inner.counts.hits;
        stats.frees += inner.counts.frees;
        stats.requested += inner.counts.requested;
        stats.free += inner.blocks.free_bytes();
        stats.segments += inner.blocks.segment_count();
        for waiting in &inner.waiting {
            stats.waiting += inner.blocks.bytes(waiting.block);
        }
        for (_, ids) in inner.blocks.walk() {
            for id in ids.iter().filter(|&&id| inner.blocks.block(id).state == State::Free) {
                stats.largest_free = stats.largest_free.max(inner.blocks.bytes(*id));
            }
        }
    }

    /// Its segments and their blocks.
    pub(super) fn snapshot(&self) -> Vec<SegmentInfo> {
        let mut inner = self.lock();
        inner.cool();
        let pool = Some(self.pool.load(Relaxed)).filter(|&pool| pool != 0 && pool != RETIRED);
        let block = |&id: &u32| {
            let block = inner.blocks.block(id);
            let state = match block.state {
                State::Live => BlockState::Live,
                State::Waiting => BlockState::Waiting,
                State::Free | State::Vacant => BlockState::Free,
            };
            let tag = inner.tags.get(id as usize).filter(|_| state == BlockState::Live);
            let tag = tag.cloned().unwrap_or_default();
            BlockInfo {
                address: block.address,
                bytes: inner.blocks.bytes(id),
                requested: tag.requested,
                state,
                label: tag.label,
                site: tag.site,
            }
        };
        let segments = inner.blocks.walk().map(|(segment, ids)| SegmentInfo {
            stream: self.stream(),
            pool,
            address: segment.address,
            bytes: segment.bytes,
            is_small: segment.kind == Kind::Small,
            blocks: ids.iter().map(block).collect(),
        });
        segments.collect()
    }
}

impl Inner {
    /// A live block of at least so many bytes.
    #[inline]
    fn take(&mut self, bytes: usize) -> Option<u32> {
        match self.hot {
            Some((block, size)) if self.blocks.rounded(bytes) == Some(size) => {
                self.hot = None;
                return Some(block);
            }
            Some(_) => self.cool(),
            None => {}
        }
        self.blocks.take(bytes)
    }

    /// Frees the block that is kept aside.
    fn cool(&mut self) {
        if let Some((block, _)) = self.hot.take() {
            self.blocks.give(block);
        }
    }

    /// Frees the blocks that no stream uses any more.
    fn poll(&mut self) {
        while self.waiting.front_mut().is_some_and(Waiting::is_over) {
            if let Some(Waiting { block, .. }) = self.waiting.pop_front() {
                self.blocks.give(block);
            }
        }
    }
}

impl Waiting {
    /// Marks where the streams stand, as far as they can say.
    fn mark(&mut self) {
        for (user, fence) in &mut self.users {
            if fence.is_none() {
                // A stream that is lost never ends: the block waits for ever.
                *fence = user.fence().unwrap_or_default();
            }
        }
    }

    /// Whether all streams have passed. An error is no yes: the device is lost then.
    fn is_over(&mut self) -> bool {
        self.mark();
        let is_reached =
            |fence: &Mark| fence.as_ref().is_some_and(|fence| fence.is_reached().unwrap_or(false));
        self.users.retain(|(_, fence)| !is_reached(fence));
        self.users.is_empty()
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("device", &self.ledger.name).finish_non_exhaustive()
    }
}

//! The blocks of one stream, behind a lock: what is known of each, and those that other streams still use.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::State;
use super::blocks::{Blocks, Kind};
use super::snapshot::{BlockInfo, BlockState, MemoryStats, SegmentInfo};
use super::watch::Site;
use super::{Fence, Label, User};

/// The blocks of a stream.
pub(super) struct StreamBlocks {
    stream: AtomicU64,
    /// The private pool that they are of; 0 for none, [`RETIRED`] once that is gone.
    pool: AtomicU64,
    inner: Mutex<Inner>,
}

/// In place of a pool: it is gone, and segments go back to the system as their blocks are freed.
pub(super) const RETIRED: u64 = u64::MAX;

pub(super) struct Inner {
    pub(super) blocks: Blocks,
    /// What is known of each live block, by its number.
    pub(super) tags: Vec<Tag>,
    /// Freed blocks that other streams may still use, oldest first.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) counts: Counts,
    /// The small block that was freed last, and its bytes: still live to [`Blocks`], so that the next request
    /// of its size, which is what a loop over an op makes, takes it without cutting and joining.
    pub(super) hot: Option<(u32, usize)>,
    /// When segments were given back for new ones: see `Arena::trade`.
    pub(super) trades: Trades,
}

/// Segments are given back for new ones at most once in so many allocations, twice as many each time: a
/// program that would gain by it again and again does it a few times and then never waits.
#[derive(Clone, Copy)]
pub(super) struct Trades {
    /// The number of the allocation from which on it may be done.
    pub(super) next: u64,
    pub(super) every: u64,
}

impl Default for Trades {
    fn default() -> Trades {
        Trades { next: 256, every: 256 }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) allocations: u64,
    pub(super) hits: u64,
    pub(super) frees: u64,
    /// Bytes of live blocks as they were asked for.
    pub(super) requested: usize,
}

#[derive(Clone, Default)]
pub(super) struct Tag {
    pub(super) requested: usize,
    pub(super) label: Label,
    pub(super) site: Option<Site>,
    pub(super) users: Vec<&'static dyn User>,
    /// How many graphs name its address: see `Arena::hold`.
    pub(super) graphs: u32,
}

impl Tag {
    /// Another stream that the block was given to.
    pub(super) fn add_user(&mut self, user: &'static dyn User) {
        if self.users.iter().all(|known| known.id() != user.id()) {
            self.users.push(user);
        }
    }
}

/// A freed block and the streams that it waits for.
pub(super) struct Waiting {
    pub(super) block: u32,
    pub(super) users: Vec<(&'static dyn User, Mark)>,
}

/// Where a stream stood when the block was freed, once it could say.
type Mark = Option<Box<dyn Fence>>;

impl StreamBlocks {
    /// No memory yet; sizes are multiples of `1 << granule_log2` bytes.
    pub(super) fn new(granule_log2: u32, stream: u64, pool: Option<u64>) -> StreamBlocks {
        let inner = Inner {
            blocks: Blocks::new(granule_log2),
            tags: Vec::new(),
            waiting: VecDeque::new(),
            counts: Counts::default(),
            hot: None,
            trades: Trades::default(),
        };
        let (stream, pool) = (AtomicU64::new(stream), AtomicU64::new(pool.unwrap_or(0)));
        StreamBlocks { stream, pool, inner: Mutex::new(inner) }
    }

    /// The private pool; 0 for none, [`RETIRED`] once it is gone.
    pub(super) fn pool(&self) -> u64 {
        self.pool.load(Relaxed)
    }

    /// Says that their pool is gone.
    pub(super) fn retire(&self) {
        self.pool.store(RETIRED, Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the stream.
    pub(super) fn stream(&self) -> u64 {
        self.stream.load(Relaxed)
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

    /// Says that another stream was given a live block: once it is freed, that is waited for.
    pub(super) fn record_user(&self, block: u32, user: &'static dyn User) {
        self.lock().tags[block as usize].add_user(user);
    }

    /// The other streams that were given a live block.
    pub(super) fn users(&self, block: u32) -> Vec<&'static dyn User> {
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
        for id in inner.blocks.walk().flat_map(|(_, ids)| ids) {
            let bytes = inner.blocks.bytes(id);
            match inner.blocks.block(id).state {
                State::Waiting => stats.waiting += bytes,
                State::Free => stats.largest_free = stats.largest_free.max(bytes),
                State::Live | State::Vacant => {}
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
    pub(super) fn take(&mut self, bytes: usize) -> Option<u32> {
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
    pub(super) fn cool(&mut self) {
        if let Some((block, _)) = self.hot.take() {
            self.blocks.give(block);
        }
    }

    /// Keeps a freed block until these streams have passed.
    pub(super) fn wait(&mut self, block: u32, users: Vec<&'static dyn User>) {
        self.blocks.set_waiting(block);
        let users = users.into_iter().map(|user| (user, None)).collect();
        let mut waiting = Waiting { block, users };
        waiting.mark();
        self.waiting.push_back(waiting);
    }

    /// Frees the blocks that no stream uses any more.
    pub(super) fn poll(&mut self) {
        while self.waiting.front_mut().is_some_and(Waiting::is_over) {
            if let Some(Waiting { block, .. }) = self.waiting.pop_front() {
                self.blocks.give(block);
            }
        }
    }
}

impl Waiting {
    /// Marks where the streams stand, as far as they can say.
    pub(super) fn mark(&mut self) {
        for (user, fence) in &mut self.users {
            if fence.is_none() {
                // A stream that is lost never ends: the block waits for ever.
                *fence = user.fence().unwrap_or_default();
            }
        }
    }

    /// Whether all streams have passed. An error is no yes: the device is lost then.
    pub(super) fn is_over(&mut self) -> bool {
        self.mark();
        let is_reached =
            |fence: &Mark| fence.as_ref().is_some_and(|fence| fence.is_reached().unwrap_or(false));
        self.users.retain(|(_, fence)| !is_reached(fence));
        self.users.is_empty()
    }
}

//! Which pages of the cache are whose, and which hold a prefix that others may share.
//!
//! A page that is full never changes again, so that sequences that begin alike share it: a page has a count
//! of the sequences that read it. Full pages are *published* under a key that is the hash of their tokens and
//! of the key of the page before them, and so stands for the whole prefix. A published page that nobody reads
//! any more stays, *idle*, until its memory is needed; the page that is idle for longest goes first, and of a
//! sequence its last page, because a page is of no use without those before it.
//!
//! ```text
//! page_size 2     the cat | sat on | the            key1 = hash(root, the cat)
//!                 page 5    page 9   page 2         key2 = hash(key1, sat on)     page 2 is not full
//! another one     the cat | ran                     shares page 5
//! ```
//!
//! Nothing is ever copied: a page that is not full belongs to one sequence.
//!
//! Page 0 is nobody's. Page tables are padded with it, and what a padded row of a batch writes lands there.

use std::collections::BTreeMap;

/// What a full page holds: the hash of all tokens up to its end.
pub(super) type Key = [u8; 32];

/// The key of a page's tokens, after the page of `parent`.
pub(super) fn key(parent: &Key, tokens: &[u32]) -> Key {
    let mut hash = blake3::Hasher::new();
    hash.update(parent);
    for token in tokens {
        hash.update(&token.to_le_bytes());
    }
    *hash.finalize().as_bytes()
}

/// The key before the first page. Requests with different salts share nothing.
pub(super) fn root(salt: Option<u64>) -> Key {
    let mut root = Key::default();
    if let Some(salt) = salt {
        root[0] = 1;
        root[8..16].copy_from_slice(&salt.to_le_bytes());
    }
    root
}

/// The pages of a cache.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Page>,
    free: Vec<u32>,
    published: BTreeMap<Key, u32>,
    /// Published pages that nobody reads, by when that began.
    idle: BTreeMap<u64, u32>,
    /// The next stamp of `idle`.
    clock: u64,
    /// Whether published pages outlive their readers.
    keeps: bool,
}

#[derive(Clone, Debug, Default)]
struct Page {
    readers: u32,
    key: Option<Key>,
    /// Its stamp in `idle`, when it is there.
    idle_since: u64,
}

impl Pages {
    /// So many pages, page 0 included, all of them free.
    pub(super) fn new(count: usize, keeps: bool) -> Pages {
        let free = (1..count as u32).rev().collect();
        let pages = vec![Page::default(); count];
        let (published, idle) = (BTreeMap::new(), BTreeMap::new());
        Pages { pages, free, published, idle, clock: 0, keeps }
    }

    /// Pages that sequences can get at most, all of them together.
    pub(super) fn capacity(&self) -> usize {
        self.pages.len().saturating_sub(1)
    }

    /// Pages that can be had now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Pages that sequences read.
    pub(super) fn used(&self) -> usize {
        self.capacity() - self.available()
    }

    /// A page for a sequence, the oldest idle one where none is free.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = self.idle.pop_first()?;
                self.withdraw(page);
                page
            }
        };
        self.pages[page as usize].readers = 1;
        Some(page)
    }

    /// Makes a full page known under its key, unless another one is.
    pub(super) fn publish(&mut self, page: u32, key: Key) {
        let slot = &mut self.pages[page as usize];
        debug_assert!(slot.readers > 0, "a page that nobody reads is published");
        if slot.key.is_none() && !self.published.contains_key(&key) {
            slot.key = Some(key);
            self.published.insert(key, page);
        }
    }

    /// The pages of the longest known prefix, with the caller as one more reader.
    pub(super) fn share(&mut self, keys: &[Key]) -> Vec<u32> {
        let known = keys.iter().map_while(|key| self.published.get(key).copied());
        let pages: Vec<u32> = known.collect();
        for &page in &pages {
            let slot = &mut self.pages[page as usize];
            if slot.readers == 0 {
                self.idle.remove(&slot.idle_since);
            }
            slot.readers += 1;
        }
        pages
    }

    /// Takes a reader off each of a sequence's pages, which are in order.
    pub(super) fn release(&mut self, pages: &[u32]) {
        for &page in pages.iter().rev() {
            let slot = &mut self.pages[page as usize];
            debug_assert!(slot.readers > 0, "page {page} is released twice");
            slot.readers -= 1;
            if slot.readers > 0 {
                continue;
            }
            if self.keeps && slot.key.is_some() {
                slot.idle_since = self.clock;
                self.idle.insert(self.clock, page);
                self.clock += 1;
            } else {
                self.withdraw(page);
                self.free.push(page);
            }
        }
    }

    /// Forgets every prefix that nobody reads.
    pub(super) fn forget(&mut self) {
        while let Some((_, page)) = self.idle.pop_first() {
            self.withdraw(page);
            self.free.push(page);
        }
    }

    /// Takes a page's key away.
    fn withdraw(&mut self, page: u32) {
        if let Some(key) = self.pages[page as usize].key.take() {
            self.published.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(tokens: &[u32]) -> Vec<Key> {
        let mut last = root(None);
        let chain = tokens.chunks_exact(2).map(|page| {
            last = key(&last, page);
            last
        });
        chain.collect()
    }

    fn fill(pages: &mut Pages, keys: &[Key]) -> Vec<u32> {
        let took: Vec<u32> =
            keys.iter().map(|_| pages.allocate().expect("there is room")).collect();
        took.iter().zip(keys).for_each(|(&page, &key)| pages.publish(page, key));
        took
    }

    #[test]
    fn page_0_is_never_given_out() {
        let mut pages = Pages::new(4, true);
        let took: Vec<u32> = std::iter::from_fn(|| pages.allocate()).collect();
        assert_eq!(took, [1, 2, 3]);
        assert_eq!((pages.available(), pages.used(), pages.capacity()), (0, 3, 3));
    }

    #[test]
    fn a_common_prefix_is_shared_up_to_where_it_differs() {
        let mut pages = Pages::new(8, true);
        let own = fill(&mut pages, &keys(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(pages.share(&keys(&[1, 2, 3, 4, 9, 9])), own[..2]);
        assert_eq!(pages.share(&keys(&[9, 9, 3, 4])), [] as [u32; 0]);
    }

    #[test]
    fn the_same_tokens_after_another_prefix_are_another_page() {
        assert_ne!(keys(&[1, 2, 7, 7])[1], keys(&[3, 4, 7, 7])[1]);
        assert_ne!(key(&root(None), &[1]), key(&root(Some(0)), &[1]));
    }

    #[test]
    fn idle_prefixes_are_found_until_their_memory_is_needed() {
        let mut pages = Pages::new(4, true);
        let old = keys(&[1, 2, 3, 4, 5, 6]);
        let took = fill(&mut pages, &old);
        pages.release(&took);
        assert_eq!((pages.used(), pages.available()), (0, 3));
        // The last page of the prefix goes first.
        let other = pages.allocate().expect("an idle page is given");
        assert_eq!(other, took[2]);
        let shared = pages.share(&old);
        assert_eq!(shared, took[..2]);
        pages.release(&shared);
        pages.release(&[other]);
        assert_eq!(pages.used(), 0);
    }

    #[test]
    fn a_page_with_readers_is_not_evicted() {
        let mut pages = Pages::new(3, true);
        let shared = keys(&[1, 2]);
        let first = fill(&mut pages, &shared);
        assert_eq!(pages.share(&shared), first);
        pages.release(&first);
        assert!(pages.allocate().is_some());
        assert!(pages.allocate().is_none(), "the other page still has a reader");
    }

    #[test]
    fn without_keeping_a_prefix_ends_with_its_readers() {
        let mut pages = Pages::new(3, false);
        let own = keys(&[1, 2]);
        let took = fill(&mut pages, &own);
        assert_eq!(pages.share(&own), took);
        pages.release(&took);
        pages.release(&took);
        assert!(pages.share(&own).is_empty());
        assert_eq!(pages.available(), 2);
    }

    #[test]
    fn what_is_computed_twice_is_published_once() {
        let mut pages = Pages::new(4, true);
        let own = keys(&[1, 2]);
        let (first, second) = (fill(&mut pages, &own), fill(&mut pages, &own));
        assert_eq!(pages.share(&own), first);
        pages.release(&second);
        assert_eq!(pages.share(&own), first);
    }
}

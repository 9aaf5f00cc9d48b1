//! A list of words on the stack, and the newest of some values that live as long as the program: the two
//! tricks that keep a launch short, each behind a safe face.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

/// At most `N` words, which are not cleared before they are written: clearing a kilobyte is seen in the time
/// of a launch.
pub(crate) struct Words<const N: usize> {
    words: [MaybeUninit<u64>; N],
    /// The words before this one are written.
    len: usize,
}

impl<const N: usize> Words<N> {
    #[inline]
    pub(crate) fn new() -> Words<N> {
        Words { words: [const { MaybeUninit::uninit() }; N], len: 0 }
    }

    /// Adds a word.
    ///
    /// # Panics
    /// If there are `N` already.
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        self.words[self.len].write(word);
        self.len += 1;
    }

    /// The words so far.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u64] {
        let written = &mut self.words[..self.len];
        // SAFETY: `push` wrote each of them.
        unsafe { &mut *(std::ptr::from_mut(written) as *mut [u64]) }
    }
}

/// One of several values that live as long as the program; none at first. Reading it takes no lock.
#[derive(Debug)]
pub(crate) struct Newest<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Newest<T> {
    pub(crate) const fn new() -> Newest<T> {
        Newest(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: it is null, or `set` stored the address of a value that lives as long as the program.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(crate) fn set(&self, value: &'static T) {
        self.0.store(std::ptr::from_ref(value).cast_mut(), Ordering::Release);
    }
}

impl<T: Sync> Default for Newest<T> {
    fn default() -> Newest<T> {
        Newest::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_was_pushed() {
        let mut words = Words::<3>::new();
        assert!(words.as_mut_slice().is_empty());
        words.push(7);
        words.push(8);
        assert_eq!(words.as_mut_slice(), [7, 8]);
    }

    #[test]
    fn the_newest_is_the_last_one_set() {
        static VALUES: [i32; 2] = [1, 2];
        let newest = Newest::new();
        assert_eq!(newest.get(), None);
        VALUES.iter().for_each(|value| newest.set(value));
        assert_eq!(newest.get(), Some(&2));
    }
}

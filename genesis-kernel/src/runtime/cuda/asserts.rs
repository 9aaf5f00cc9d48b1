//! What a failed `device_assert!` leaves behind: a few words in memory that the host can still read once
//! the GPU's context is broken.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::handle::Handle;
use crate::printed::{FAILED_WORDS, Failed};

/// Kernels with assertions in one process; later ones fail without their message.
pub(super) const SLOTS: usize = 1024;

/// Bytes of the words of all kernels.
pub(super) const BYTES: usize = SLOTS * FAILED_WORDS * 8;

/// The words of each kernel that has assertions, and what the numbers mean.
#[derive(Debug, Default)]
pub(super) struct Asserts {
    /// `SLOTS` times `FAILED_WORDS` words in host memory that the GPU writes to, once there is such a
    /// kernel.
    pub(super) memory: Option<Handle<*mut u64>>,
    /// The kernel and the messages of each slot.
    pub(super) kernels: Vec<(String, Vec<String>)>,
}

impl Asserts {
    /// The assertion that failed, as a sentence; none if none did.
    pub(super) fn failed(&self) -> Option<String> {
        let memory = self.memory?.0;
        self.kernels.iter().enumerate().find_map(|(slot, (kernel, messages))| {
            let words: [u64; FAILED_WORDS] = std::array::from_fn(|word| {
                // SAFETY: the memory has `SLOTS` slots of so many words, `add` gives out no more slots
                // than that, and it is never freed. The GPU may write it at any time, hence the atomic.
                let place = unsafe { AtomicU64::from_ptr(memory.add(slot * FAILED_WORDS + word)) };
                place.load(Ordering::Relaxed)
            });
            // The number is of 32 bits.
            let number = words[0] as u32 as usize;
            let message = messages.get(number.checked_sub(1)?)?;
            Some(format!("`{kernel}` asserts: {message}{}", details(&words)))
        })
    }
}

/// What was compared and where, as far as the thread that failed came to write it.
fn details(words: &[u64; FAILED_WORDS]) -> String {
    let word = |which: Failed| words[which as usize];
    let (left, right) = (word(Failed::Left), word(Failed::Right));
    let mut text = match word(Failed::Kind) {
        1 => format!(" ({} and {} were compared)", left as i64, right as i64),
        2 => format!(" ({left} and {right} were compared)"),
        3 => {
            format!(" ({} and {} were compared)", f64::from_bits(left), f64::from_bits(right))
        }
        _ => String::new(),
    };
    let program = [Failed::X, Failed::Y, Failed::Z].map(word);
    let _ = write!(text, ", in program {program:?}");
    if let Some(element) = word(Failed::Element).checked_sub(1) {
        let _ = write!(text, " at element {element} of its tile");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_compared_and_where() {
        let negative = (-3i64) as u64;
        let words = [1, 1, 5, 0, 2, 9, negative, 0];
        assert_eq!(
            details(&words),
            " (-3 and 0 were compared), in program [5, 0, 2] at element 8 of its tile"
        );
        let float = [1, 3, 0, 0, 0, 0, 1.5f64.to_bits(), f64::NAN.to_bits()];
        assert_eq!(details(&float), " (1.5 and NaN were compared), in program [0, 0, 0]");
        assert_eq!(details(&[1, 0, 0, 0, 0, 0, 0, 0]), ", in program [0, 0, 0]");
    }

    #[test]
    fn the_words_of_a_slot_tell_which_assertion_failed() {
        let mut memory = [0u64; 2 * FAILED_WORDS];
        memory[FAILED_WORDS] = 2;
        let kernels =
            ["first", "second"].map(|name| (name.to_owned(), vec!["a".into(), "b".into()]));
        let asserts =
            Asserts { memory: Some(Handle(memory.as_mut_ptr())), kernels: kernels.into() };
        let text = asserts.failed().expect("the second kernel's second assertion failed");
        assert_eq!(text, "`second` asserts: b, in program [0, 0, 0]");
    }
}

//! Which tokens may come next: what makes an answer follow a JSON schema or a grammar.
//!
//! A [`Constraint`] is compiled once and shared by requests; each sample walks it on its own. The sampler asks
//! for a mask before each token and tells which was picked. A draft that the mask rejects is no different from
//! one that the sampler rejects.

use std::fmt;

use crate::error::Result;

/// What the text of an answer must follow.
pub trait Constraint: Send + Sync + fmt::Debug {
    /// A walk from the beginning.
    ///
    /// # Errors
    /// If it can't be walked.
    fn begin(&self) -> Result<Box<dyn ConstraintState>>;
}

/// Where a sample stands in what it must follow.
pub trait ConstraintState: Send {
    /// The tokens that may come next.
    ///
    /// # Errors
    /// If a limit of the grammar is hit.
    fn allowed(&mut self) -> Result<TokenMask>;

    /// Goes on by a token, which was allowed.
    ///
    /// # Errors
    /// If it was not allowed.
    fn accept(&mut self, token: u32) -> Result<()>;

    /// Whether nothing may follow.
    fn is_complete(&self) -> bool;
}

/// A set of tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenMask {
    words: Vec<u32>,
}

impl TokenMask {
    /// No token of a vocabulary.
    pub fn none(vocab_size: usize) -> TokenMask {
        TokenMask { words: vec![0; vocab_size.div_ceil(32)] }
    }

    /// From words of 32 tokens each, the lowest bit first.
    pub fn from_words(words: Vec<u32>) -> TokenMask {
        TokenMask { words }
    }

    /// Adds a token; one out of range is not there.
    pub fn allow(&mut self, token: u32) {
        if let Some(word) = self.words.get_mut(token as usize / 32) {
            *word |= 1 << (token % 32);
        }
    }

    /// Whether a token is in the set.
    pub fn allows(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_what_was_put_in() {
        let mut mask = TokenMask::none(40);
        mask.allow(33);
        mask.allow(1000);
        let found: Vec<u32> = (0..2000).filter(|&token| mask.allows(token)).collect();
        assert_eq!(found, [33]);
    }
}

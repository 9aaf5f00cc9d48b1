//! A tokenizer: text to ids and back, as `transformers` does it.
//!
//! The work is done by the crate `tokenizers`, the library below `transformers`' own tokenizers, so that ids are
//! equal by construction. What is here keeps it to its contract: files are checked before the library sees them
//! (it panics on some), padding and truncation of training days don't apply, and the text of tokens comes
//! piece by piece where it has to.
//!
//! ```no_run
//! use genesis::text::Tokenizer;
//!
//! let tokenizer = Tokenizer::from_file("Qwen2.5-0.5B-Instruct/tokenizer.json")?;
//! let ids = tokenizer.encode("Hello, world!", true)?;
//! assert_eq!(tokenizer.decode(&ids, true)?, "Hello, world!");
//! # Ok::<(), genesis::Error>(())
//! ```

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokenizers::AddedToken;

use super::bytes::{fallback_byte, push_bytes};
use super::decoding::Decoding;
use super::validate::checked;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{MOST_TOKENIZER, read_at_most};

/// Turns text into token ids and ids into text; clones share the vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    decoding: Arc<Decoding>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If the file can't be read, is no tokenizer, or contradicts itself; the error names it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref();
        let bytes = read_at_most(path, MOST_TOKENIZER)?;
        Tokenizer::from_bytes(&bytes).map_err(|e| Error::io(format!("{}: {e}", path.display())))
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// If they are no tokenizer, or it contradicts itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tokenizer> {
        Tokenizer::from_json(checked(bytes)?)
    }

    /// Makes the tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// If the model or the pre-tokenizer is not known, or lists don't fit each other.
    pub fn from_vocabulary(vocabulary: &Vocabulary) -> Result<Tokenizer> {
        Tokenizer::from_json(vocabulary.to_json()?)
    }

    /// A tokenizer of checked JSON.
    fn from_json(json: Value) -> Result<Tokenizer> {
        let inner: tokenizers::Tokenizer = serde_json::from_value(json)
            .map_err(|error| Error::io(format!("is no tokenizer: {error}")))?;
        let decoder = serde_json::to_value(inner.get_decoder())
            .map_err(|error| Error::io(format!("has a decoder that can't be read: {error}")))?;
        let decoding = Arc::new(Decoding::of(&decoder));
        Ok(Tokenizer { inner: Arc::new(inner), decoding })
    }

    /// The same tokenizer with more tokens that are matched before anything else.
    pub(super) fn with_added(&self, tokens: &[AddedToken]) -> Result<Tokenizer> {
        if tokens.is_empty() {
            return Ok(self.clone());
        }
        let mut inner = (*self.inner).clone();
        let (special, ordinary): (Vec<_>, Vec<_>) = tokens.iter().cloned().partition(|t| t.special);
        inner.add_tokens(ordinary).map_err(|error| failed("add tokens", &*error))?;
        inner.add_special_tokens(special).map_err(|error| failed("add tokens", &*error))?;
        Ok(Tokenizer { inner: Arc::new(inner), decoding: self.decoding.clone() })
    }

    /// The ids of a text.
    ///
    /// Special tokens that stand in the text are found, `<|im_end|>` is one id. With `add_special` there are
    /// those too that the model expects around a text, a beginning-of-sequence token for example.
    ///
    /// # Errors
    /// If the vocabulary has no token for a part of it, not even an unknown one.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, add_special);
        Ok(encoding.map_err(|error| failed("encode", &*error))?.get_ids().to_vec())
    }

    /// The ids of a text, and which bytes of it each stands for; special tokens that were added around it stand for none.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_offsets(
        &self,
        text: &str,
        add_special: bool,
    ) -> Result<Vec<(u32, Range<usize>)>> {
        let encoding = self.inner.encode(text, add_special);
        let encoding = encoding.map_err(|error| failed("encode", &*error))?;
        let offsets = encoding.get_offsets().iter().map(|&(start, end)| start..end);
        Ok(encoding.get_ids().iter().copied().zip(offsets).collect())
    }

    /// The text of ids; with `skip_special` without special tokens.
    ///
    /// # Numerics
    /// Bytes that are no UTF-8 become U+FFFD. Ids that are no tokens have no text: models have more logits than
    /// their tokenizer has tokens, for the alignment of the product.
    /// # Errors
    /// If the tokenizer's decoder refuses.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.inner.decode(ids, skip_special).map_err(|error| failed("decode", &*error))
    }

    /// The id of a token as the vocabulary writes it: `Ġhello`, `<|im_end|>`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id as the vocabulary writes it.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Whether the id is a special token, which `skip_special` leaves out.
    pub fn is_special(&self, id: u32) -> bool {
        let token = self.id_to_token(id);
        token.is_some_and(|token| self.inner.get_added_vocabulary().is_special_token(&token))
    }

    /// The bytes that a token stands for inside of a text; none where there is no such token.
    ///
    /// Grammars need them: a token may be a part of a character only.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let mut token = self.decoded_token(id, false)?;
        let mut bytes = Vec::new();
        match self.decoding() {
            Decoding::ByteLevel => push_bytes(&token, &mut bytes),
            Decoding::Chain(chain) => {
                for (from, to) in &chain.replacements {
                    token = token.replace(from, to);
                }
                match fallback_byte(&token).filter(|_| chain.byte_fallback) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(token.as_bytes()),
                }
            }
            Decoding::PerToken | Decoding::Whole => {
                bytes.extend_from_slice(self.decode(&[id], false).ok()?.as_bytes());
            }
        }
        Some(bytes)
    }

    /// A token as the decoder is given it; none where it is left out.
    pub(super) fn decoded_token(&self, id: u32, skip_special: bool) -> Option<String> {
        let added = self.inner.get_added_vocabulary();
        let token = added.simple_id_to_token(id);
        let token = token.or_else(|| tokenizers::Model::id_to_token(self.inner.get_model(), id))?;
        (!skip_special || !added.is_special_token(&token)).then_some(token)
    }

    pub(super) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    pub(super) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish()
    }
}

/// An error of the library in a call of ours.
pub(super) fn failed(call: &str, error: &(impl fmt::Display + ?Sized)) -> Error {
    Error::op("tokenizer", format!("can't {call}: {error}"))
}

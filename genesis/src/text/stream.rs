//! The text of tokens as they come, one by one.
//!
//! A token is not a text: `€` may be the three tokens `E2`, `82` and `AC`, and text behind the first two is
//! neither there nor absent. [`TokenStream`] gives what is certain and keeps the rest. Its pieces joined are what
//! [`Tokenizer::decode`](super::Tokenizer::decode) gives for all tokens, whatever they are, and each token costs
//! its own length: nothing is decoded twice.
//!
//! ```text
//! push E2 -> ""    push 82 -> ""    push AC -> "€"        whole: "€"
//! push E2 -> ""    push 41 -> "\u{FFFD}A"                 whole: "\u{FFFD}A"
//! ```
//!
//! Tokens that name bytes (`<0xE2>`, SentencePiece's) are decoded by the run: a run that is no UTF-8 is one
//! U+FFFD per byte, all of it. So the text of a run comes when the run ends, though parts of it were characters.

use tokenizers::Decoder as _;

use super::bytes::{fallback_byte, push_bytes};
use super::decoding::{Chain, Decoding};
use super::tokenizer::{Tokenizer, failed};
use crate::error::Result;

/// Turns tokens into text one by one; see [`Tokenizer::stream`].
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    state: State,
}

/// What of the tokens so far is not text yet.
#[derive(Clone, Debug)]
enum State {
    /// The bytes of an unfinished character.
    ByteLevel(Vec<u8>),
    /// The bytes of an unfinished run, and how many characters may still be taken off the start.
    Chain { run: Vec<u8>, strip: usize },
    /// Whether a token came before.
    PerToken { is_first: bool },
    /// All ids.
    Whole(Vec<u32>),
}

impl Tokenizer {
    /// A stream that turns ids into text one by one.
    pub fn stream(&self, skip_special: bool) -> TokenStream {
        TokenStream::new(self.clone(), skip_special)
    }
}

impl TokenStream {
    /// A stream at its start.
    fn new(tokenizer: Tokenizer, skip_special: bool) -> TokenStream {
        let state = match tokenizer.decoding() {
            Decoding::ByteLevel => State::ByteLevel(Vec::new()),
            Decoding::Chain(chain) => {
                State::Chain { run: Vec::new(), strip: chain.strip.map_or(0, |(_, count)| count) }
            }
            Decoding::PerToken => State::PerToken { is_first: true },
            Decoding::Whole => State::Whole(Vec::new()),
        };
        TokenStream { tokenizer, skip_special, state }
    }

    /// Takes the next token and gives the text that is certain by now, which may be none.
    ///
    /// # Errors
    /// If the tokenizer's own decoder refuses the token.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if let State::Whole(ids) = &mut self.state {
            ids.push(id);
            return Ok(String::new());
        }
        let Some(token) = self.tokenizer.decoded_token(id, self.skip_special) else {
            return Ok(String::new());
        };
        match (&mut self.state, self.tokenizer.decoding()) {
            (State::ByteLevel(bytes), _) => {
                push_bytes(&token, bytes);
                Ok(take_certain(bytes))
            }
            (State::Chain { run, strip }, Decoding::Chain(chain)) => {
                Ok(push_chain(chain, token, run, strip))
            }
            (State::PerToken { is_first }, _) => {
                one_token(&self.tokenizer, token, std::mem::take(is_first))
            }
            (State::Chain { .. } | State::Whole(_), _) => Ok(String::new()),
        }
    }

    /// The text of what is left: an unfinished character becomes U+FFFD.
    pub fn finish(self) -> String {
        match self.state {
            State::ByteLevel(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            State::Chain { run, mut strip } => match self.tokenizer.decoding() {
                Decoding::Chain(chain) => stripped(run_text(&run), chain, &mut strip),
                _ => String::new(),
            },
            State::PerToken { .. } => String::new(),
            // A decoder that refuses has no text to give.
            State::Whole(ids) => self.tokenizer.decode(&ids, self.skip_special).unwrap_or_default(),
        }
    }
}

/// Takes everything off the bytes that later ones can't change.
fn take_certain(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut certain = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        certain += chunk.valid().len();
        let invalid = chunk.invalid();
        // The last one may be the start of a character; `utf8_chunks` tells by its length alone.
        let is_unfinished = certain + invalid.len() == bytes.len()
            && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if !invalid.is_empty() && !is_unfinished {
            text.push(char::REPLACEMENT_CHARACTER);
            certain += invalid.len();
        }
    }
    bytes.drain(..certain);
    text
}

/// One token of SentencePiece's decoder.
fn push_chain(chain: &Chain, mut token: String, run: &mut Vec<u8>, strip: &mut usize) -> String {
    for (from, to) in &chain.replacements {
        token = token.replace(from, to);
    }
    if let Some(byte) = fallback_byte(&token).filter(|_| chain.byte_fallback) {
        run.push(byte);
        return String::new();
    }
    let mut text = run_text(run);
    run.clear();
    text.push_str(&token);
    stripped(text, chain, strip)
}

/// The text of a run of bytes: all of it, or one U+FFFD per byte.
fn run_text(run: &[u8]) -> String {
    match std::str::from_utf8(run) {
        Ok(text) => text.to_owned(),
        Err(_) => std::iter::repeat_n(char::REPLACEMENT_CHARACTER, run.len()).collect(),
    }
}

/// The text without what is taken off the start, as far as that is not over.
fn stripped(text: String, chain: &Chain, left: &mut usize) -> String {
    let Some((content, _)) = chain.strip.filter(|_| *left > 0 && !text.is_empty()) else {
        return text;
    };
    let mut rest = text.as_str();
    while *left > 0 {
        let Some(next) = rest.strip_prefix(content) else { break };
        rest = next;
        *left -= 1;
    }
    if !rest.is_empty() {
        *left = 0;
    }
    rest.to_owned()
}

/// One token of a decoder that looks at no other, only whether it is the first.
fn one_token(tokenizer: &Tokenizer, token: String, is_first: bool) -> Result<String> {
    let Some(decoder) = tokenizer.inner().get_decoder() else {
        return Ok(if is_first { token } else { format!(" {token}") });
    };
    let mut tokens = vec![token];
    if !is_first {
        tokens.insert(0, String::new());
    }
    let decoded = decoder.decode_chain(tokens).map_err(|error| failed("decode", &error))?;
    Ok(decoded.into_iter().next_back().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_text_is_what_the_whole_would_give() {
        // Every string of three bytes from those that begin, go on and break characters.
        let alphabet = [0x41, 0x80, 0xBF, 0xC2, 0xE2, 0xED, 0xA0, 0xF0, 0x90, 0xF4, 0xFF];
        for n in 0..alphabet.len().pow(4) {
            let bytes: Vec<u8> =
                (0..4).map(|i| alphabet[n / alphabet.len().pow(i) % alphabet.len()]).collect();
            let (mut kept, mut text) = (Vec::new(), String::new());
            for &byte in &bytes {
                kept.push(byte);
                text.push_str(&take_certain(&mut kept));
                assert!(kept.len() < 4);
            }
            text.push_str(&String::from_utf8_lossy(&kept));
            assert_eq!(text, String::from_utf8_lossy(&bytes), "{bytes:X?}");
        }
    }
}

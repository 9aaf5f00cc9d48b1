//! A tokenizer as generation uses it: text that streams, and the bytes of tokens for grammars.

use super::grammar::{Grammars, TokenBytes};
use super::stop::{Detokenizer, TokenText};
use crate::error::Result;
use crate::text::{TokenStream, Tokenizer};

impl Detokenizer for Tokenizer {
    fn stream(&self) -> Box<dyn TokenText + Send> {
        Box::new(Stream(Some(Tokenizer::stream(self, true))))
    }
}

/// A stream until it is finished.
struct Stream(Option<TokenStream>);

impl TokenText for Stream {
    fn push(&mut self, token: u32) -> Result<String> {
        self.0.as_mut().map_or_else(|| Ok(String::new()), |stream| stream.push(token))
    }

    fn finish(&mut self) -> String {
        self.0.take().map_or_else(String::new, TokenStream::finish)
    }
}

impl Grammars {
    /// For the tokens of a tokenizer, as far as a model with so many logits can pick them.
    ///
    /// # Errors
    /// If no token ends a text, or one that does is not there.
    pub fn of_tokenizer(
        tokenizer: &Tokenizer,
        vocab_size: usize,
        end_tokens: &[u32],
    ) -> Result<Grammars> {
        let token = |id: u32| match tokenizer.token_bytes(id) {
            Some(_) if tokenizer.is_special(id) || end_tokens.contains(&id) => {
                TokenBytes::Special(tokenizer.id_to_token(id).unwrap_or_default())
            }
            Some(bytes) => TokenBytes::Text(bytes),
            None => TokenBytes::Unused,
        };
        let ids = 0..u32::try_from(vocab_size).unwrap_or(u32::MAX);
        Grammars::new(&ids.map(token).collect::<Vec<TokenBytes>>(), end_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Vocabulary;

    /// Digits, the two halves of `é`, and a token that ends texts.
    fn tokenizer() -> Tokenizer {
        let digits = (0..10).map(|digit| digit.to_string());
        let others = ["Ã", "©", "<|end|>"].map(str::to_owned);
        let vocabulary = Vocabulary {
            model: "gpt2".to_owned(),
            pre: "gpt-2".to_owned(),
            tokens: digits.chain(others).collect(),
            token_types: [vec![1; 12], vec![3]].concat(),
            eos: Some(12),
            ..Vocabulary::default()
        };
        Tokenizer::from_vocabulary(&vocabulary).expect("the vocabulary is right")
    }

    #[test]
    fn characters_stay_whole_and_special_tokens_are_no_text() {
        let mut stream = Detokenizer::stream(&tokenizer());
        let pieces = [1, 10, 11, 12, 10].map(|id| stream.push(id).expect("it is a token"));
        assert_eq!(pieces, ["1", "", "é", "", ""]);
        assert_eq!(stream.finish(), "\u{FFFD}");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn grammars_know_the_bytes_of_tokens() {
        let grammars = Grammars::of_tokenizer(&tokenizer(), 16, &[12]).expect("it is there");
        let mut state =
            grammars.regex("[0-4]é").and_then(|regex| regex.begin()).expect("it is an expression");
        let mut allowed = || {
            let mask = state.allowed().expect("there is a mask");
            let tokens = (0..16).filter(|&token| mask.allows(token)).collect::<Vec<u32>>();
            state.accept(tokens[0]).expect("it is allowed");
            tokens
        };
        let all = [allowed(), allowed(), allowed()];
        assert_eq!(all, [vec![0, 1, 2, 3, 4], vec![10], vec![11]]);
        assert!(state.is_complete() || state.allowed().is_ok_and(|mask| mask.allows(12)));
    }
}

//! Tokenizers trained on texts: byte-level BPE, the kind of GPT-2, Llama 3 and Qwen.
//!
//! Every text has tokens, since each byte is one; pairs that occur together most often become one, until the vocabulary
//! is full. Conversations are written in ChatML, whose marks are special tokens.
//!
//! ```text
//! <|im_start|>user
//! Hi<|im_end|>
//! <|im_start|>assistant
//! ```
//!
//! # Source
//! arXiv:1508.07909 (BPE); Radford et al., 2019, 2.2 (bytes); the trainer is that of the crate `tokenizers`.

use std::collections::BTreeMap;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer as Inner};

use super::pretrained::Pretrained;
use super::tokenizer::{Tokenizer, failed};
use crate::error::{Error, Result};

/// Ends a text, and fills rows.
const END_OF_TEXT: &str = "<|endoftext|>";
/// Begins and ends what somebody says.
const IM_START: &str = "<|im_start|>";
const IM_END: &str = "<|im_end|>";

/// Writes conversations, and says what of them the model writes.
const CHATML: &str = "\
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
            {{- message['content'] + '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- message['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

/// How a tokenizer is trained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenizerOptions {
    /// The number of tokens, special ones and the 256 bytes included.
    pub vocabulary: usize,
    /// Pairs that occur less often stay two.
    pub min_frequency: u64,
    /// Special tokens beside those of ChatML and the end of a text.
    pub special: Vec<String>,
}

impl Default for TokenizerOptions {
    fn default() -> TokenizerOptions {
        TokenizerOptions { vocabulary: 32_768, min_frequency: 2, special: Vec::new() }
    }
}

impl Pretrained {
    /// Trains a byte-level BPE on texts, with a chat template in ChatML.
    ///
    /// # Errors
    /// If the vocabulary is too small for its bytes and special tokens, or the texts are empty.
    /// # Examples
    /// ```
    /// use genesis::text::{Pretrained, TokenizerOptions};
    ///
    /// let texts = ["the sea is the sea".to_owned(), "the sky is the sky".to_owned()];
    /// let options = TokenizerOptions { vocabulary: 270, ..TokenizerOptions::default() };
    /// let text = Pretrained::train(&texts, &options)?;
    /// let ids = text.tokenizer.encode("the sea", false)?;
    /// assert!(ids.len() < 7);
    /// assert_eq!(text.tokenizer.decode(&ids, true)?, "the sea");
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn train(texts: &[String], options: &TokenizerOptions) -> Result<Pretrained> {
        let mut special: Vec<&str> = vec![END_OF_TEXT, IM_START, IM_END];
        special.extend(options.special.iter().map(String::as_str));
        let least = 256 + special.len();
        if options.vocabulary < least {
            let what = format!(
                "a vocabulary of {} has no room for 256 bytes and {} special tokens",
                options.vocabulary,
                special.len()
            );
            return Err(Error::op("tokenizer", what));
        }
        if texts.iter().all(|text| text.is_empty()) {
            return Err(Error::op("tokenizer", "there is no text to train on"));
        }
        let tokens = special.iter().map(|token| AddedToken::from(*token, true)).collect();
        let trainer = BpeTrainer::builder()
            .vocab_size(options.vocabulary)
            .min_frequency(options.min_frequency)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(tokens)
            .show_progress(false)
            .build();
        let mut inner = Inner::new(BPE::default());
        // Spaces belong to the word behind them, and a text has no space that it was not given.
        inner.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        inner.with_decoder(Some(ByteLevel::default()));
        let pieces = texts.iter().flat_map(|text| text.split_inclusive('\n'));
        let mut trainer = TrainerWrapper::BpeTrainer(trainer);
        inner.train(&mut trainer, pieces).map_err(|error| failed("train", &*error))?;
        let text = inner.to_string(false).map_err(|error| failed("save", &*error))?;
        let tokenizer = Tokenizer::from_bytes(text.as_bytes())?;
        let named = [("eos_token", IM_END), ("pad_token", END_OF_TEXT)];
        let special_tokens: BTreeMap<String, String> =
            named.map(|(name, token)| (name.to_owned(), token.to_owned())).into();
        let ends = [IM_END, END_OF_TEXT].map(|token| tokenizer.token_to_id(token));
        let mut stop_tokens: Vec<u32> = ends.into_iter().flatten().collect();
        stop_tokens.sort_unstable();
        Ok(Pretrained {
            tokenizer,
            special_tokens,
            stop_tokens,
            chat_templates: [("default".to_owned(), CHATML.to_owned())].into(),
            template_files: BTreeMap::new(),
        })
    }
}

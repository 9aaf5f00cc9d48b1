//! Text to tokens and back: tokenizers, their answers piece by piece, and chat templates.
//!
//! A model knows token ids only. What turns text into them is published beside its weights, as `tokenizer.json`
//! in a folder or as the `tokenizer.ggml.*` keys of a GGUF file, and a wrong id is worse than an error: the
//! model still answers, only less well. So everything here does what `transformers` does, to the id and to the
//! byte, and says so where it can't.
//!
//! ```text
//! messages --ChatTemplate--> prompt --Tokenizer::encode--> ids --model--> ids --TokenStream--> text
//! ```

mod bytes;
mod clock;
mod decoding;
mod generation_tags;
mod gguf;
mod gguf_fields;
mod json;
mod pre_tokenizer;
mod pretrained;
mod python;
mod save;
mod stream;
mod template;
mod tokenizer;
mod train;
mod validate;
mod vocabulary;

pub use pretrained::Pretrained;
pub use stream::TokenStream;
pub use template::{ChatTemplate, Conversation};
pub use tokenizer::Tokenizer;
pub use train::TokenizerOptions;
pub use vocabulary::Vocabulary;

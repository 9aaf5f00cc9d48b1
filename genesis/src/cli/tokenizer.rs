//! `genesis tokenizer`

use std::path::PathBuf;

use clap::Subcommand;
use genesis::text::{Pretrained, TokenizerOptions};
use genesis::train::language::{Document, read_documents};
use serde_json::Value;

use super::values::positive;
use super::{Failure, Outcome, say};

/// Make tokenizers.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a byte-level BPE on texts, with a chat template.
    Train(Train),
}

#[derive(clap::Args)]
struct Train {
    /// Texts, or .jsonl as `genesis sft` reads it.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The number of tokens, the 256 bytes and special ones included.
    #[arg(long, default_value_t = 32_768, value_parser = positive)]
    vocab: usize,
    /// Pairs that occur less often stay two tokens.
    #[arg(long, default_value_t = 2)]
    min_frequency: u64,
    /// A special token more; may be given several times.
    #[arg(long)]
    special: Vec<String>,
    /// The folder that the tokenizer is written to.
    #[arg(long)]
    out: PathBuf,
    /// Replace a tokenizer that is there.
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let Command::Train(args) = &args.command;
    if args.out.join("tokenizer.json").exists() && !args.overwrite {
        let out = args.out.display();
        let what = format!("{out} holds a tokenizer; name another folder, or --overwrite it");
        return Err(Failure::Message(what));
    }
    let texts: Vec<String> = read_documents(&args.files)?.into_iter().flat_map(texts).collect();
    let options = TokenizerOptions {
        vocabulary: args.vocab,
        min_frequency: args.min_frequency,
        special: args.special.clone(),
    };
    let text = Pretrained::train(&texts, &options)?;
    text.save(&args.out)?;
    let bytes: usize = texts.iter().map(String::len).sum();
    let mut tokens = 0;
    for text_of in &texts {
        tokens += text.tokenizer.encode(text_of, false)?.len();
    }
    say(format_args!(
        "{} tokens, {:.2} bytes each on these {bytes} bytes, saved in {}",
        text.tokenizer.vocab_size(),
        bytes as f64 / tokens.max(1) as f64,
        args.out.display()
    ))
}

/// The texts of a document.
fn texts(document: Document) -> Vec<String> {
    match document {
        Document::Text(text) => vec![text],
        Document::Completion { prompt, completion } => vec![prompt, completion],
        Document::Conversation { messages, .. } => {
            let content = |message: &Value| message["content"].as_str().map(str::to_owned);
            messages.iter().filter_map(content).collect()
        }
    }
}

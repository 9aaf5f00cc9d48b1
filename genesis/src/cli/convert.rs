//! `genesis convert`

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use genesis::io::{GgmlType, GgufFile};
use genesis::models::{LoadOptions, WeightForm, load, save_gguf};
use genesis::text::Pretrained;
use genesis::{DType, Device};
use serde_json::json;

use super::output::path_text;
use super::{Failure, Outcome, model, say};

/// Write a language model as a GGUF file, which llama.cpp and others load.
///
/// Llama, Mistral, Qwen2 and Qwen3 with byte-level tokenizers are written.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A folder as Hugging Face publishes it or `sft --out` has it, a GGUF file, or a name.
    model: String,
    /// The file to write.
    out: PathBuf,
    /// What matrices are stored in; as they are without it.
    #[arg(long, value_enum)]
    dtype: Option<Stored>,
    /// Write over a file that is there.
    #[arg(long)]
    overwrite: bool,
    /// One JSON value instead of a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stored {
    /// 32 bits.
    F32,
    /// 16 bits, with 10 of them behind the point.
    F16,
    /// 16 bits with the range of f32.
    Bf16,
    /// 8 bits, and a scale for each 32 weights.
    #[value(name = "q8_0")]
    Q8_0,
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.out.exists() && !args.overwrite {
        let what = format!("{} is there already; --overwrite it", args.out.display());
        return Err(Failure::Message(what));
    }
    let files = model::find_named(&args.model)?;
    let path = files.folder().or(files.gguf()).map(Path::to_owned);
    let path = path.ok_or_else(|| Failure::Message(format!("{}: no model", args.model)))?;
    let text = match path.is_dir() {
        true => Pretrained::load(&path)?,
        false => Pretrained::from_gguf(&GgufFile::open(&path)?)?,
    };
    let options =
        LoadOptions { device: Device::Cpu, weights: WeightForm::Whole, ..LoadOptions::default() };
    let loaded = load(&path, &options)?;
    let ty = match (args.dtype, loaded.config.dtype) {
        (Some(Stored::F32), _) => GgmlType::F32,
        (Some(Stored::F16), _) | (None, DType::F16) => GgmlType::F16,
        (Some(Stored::Bf16), _) | (None, DType::BF16) => GgmlType::BF16,
        (Some(Stored::Q8_0), _) => GgmlType::Q8_0,
        (None, _) => GgmlType::F32,
    };
    let fields = text.gguf_fields(loaded.model.vocab_size())?;
    save_gguf(&args.out, &*loaded.model, &loaded.config, ty, fields)?;
    let bytes = std::fs::metadata(&args.out)?.len();
    if args.json {
        let file = path_text(&args.out);
        return say(json!({ "file": file, "dtype": ty.name(), "bytes": bytes }));
    }
    let mib = bytes as f64 / f64::from(1 << 20);
    say(format_args!("saved {}: {ty}, {mib:.1} MiB", args.out.display()))
}

//! Blocks of every GGUF type against the values that the `gguf` package of Python makes of them.
//!
//! The fixture is written by `tests/parity/gguf_blocks.py`: random blocks, and beside them their values.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use genesis::io::{GgmlType, GgufFile};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/read/blocks.gguf")
}

#[test]
fn values_of_all_types_are_those_of_the_gguf_package_bit_for_bit() -> Result<()> {
    let file = GgufFile::open(fixture())?;
    for ty in GgmlType::all().filter(|&ty| ty != GgmlType::F32) {
        let name = ty.name();
        ensure!(file.tensors()[name].ty == ty, "{name} is stored as {}", file.tensors()[name].ty);
        let (found, wanted) = (file.dequantized(name)?, file.dequantized(&format!("{name}.f32"))?);
        ensure!(found.len() == wanted.len() && found.len() >= 16, "{name}: {}", found.len());
        for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let is_equal = found.to_bits() == wanted.to_bits();
            ensure!(is_equal, "{name}: element {index} is {found:e}, not {wanted:e}");
        }
    }
    Ok(())
}

#[test]
fn metadata_of_the_gguf_package_is_read() -> Result<()> {
    let file = GgufFile::open(fixture())?;
    let metadata = file.metadata();
    let tokens = metadata["tokenizer.ggml.tokens"].as_array().context("no array")?;
    ensure!(tokens.strings().context("no strings")?.eq(["a", "é", ""]));
    let scores = metadata["tokenizer.ggml.scores"].as_array().context("no array")?;
    ensure!(scores.floats().context("no floats")?.eq([0.5, -1.0, 0.0]));
    ensure!(metadata["general.architecture"].as_str() == Some("test"));
    ensure!(metadata["test.rope.freq_base"].as_f64() == Some(10000.0));
    ensure!(metadata["tokenizer.ggml.add_bos_token"].as_bool() == Some(true));
    Ok(())
}

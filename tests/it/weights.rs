//! Weights that transformers wrote, and that it reads again after Genesis saved them.
//!
//! `GENESIS_TEST_PYTHON=/path/to/python` runs it, with a Python that has torch and transformers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use genesis::io::{Weights, save_safetensors, save_sharded};
use genesis::{DType, Device, Tensor};

use crate::skipped::tell;

fn python(arguments: &[&Path]) -> Result<bool> {
    let Some(python) = std::env::var_os("GENESIS_TEST_PYTHON") else {
        tell("GENESIS_TEST_PYTHON is not set: files that transformers wrote and reads".to_owned());
        return Ok(false);
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/saved.py");
    let output = Command::new(python).arg(script).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "saved.py: {said}");
    Ok(true)
}

#[test]
fn weights_on_a_gpu_are_those_of_the_cpu() -> Result<()> {
    let Some(gpu) = crate::gpu::gpu("weights") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x.safetensors");
    let values: Vec<f64> = (0..96).map(|i| f64::from(i) / 64.0).collect();
    let x = Tensor::from_f64(&values, &[3, 32], (DType::BF16, Device::Cpu))?;
    save_safetensors(&path, &[("x".to_owned(), x.clone()), ("y".to_owned(), x)].into())?;
    let blocks = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/read/small.gguf");
    for path in [path, blocks] {
        let weights = Weights::open(&path)?;
        for dtype in [DType::BF16, DType::F32] {
            let (there, here) =
                (weights.load_all((dtype, gpu))?, weights.load_all((dtype, Device::Cpu))?);
            for (name, here) in here {
                let there = &there[&name];
                ensure!(there.device() == gpu && there.dtype() == dtype, "{name}");
                let (found, wanted) = (there.to_f64_vec()?, here.to_f64_vec()?);
                ensure!(found == wanted, "{name} as {dtype}: {found:?}, not {wanted:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn transformers_reads_what_was_saved() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    // A model in one file and in shards, as transformers cuts them.
    if !python(&[Path::new("make"), &at("one"), &at("many")])? {
        return Ok(());
    }
    for name in ["one", "many"] {
        let weights = Weights::open(at(name))?;
        let tensors = weights.load_all((DType::F32, Device::Cpu))?;
        for (saved, most) in [("whole", u64::MAX), ("cut", 20_000)] {
            save_sharded(at(saved), &tensors, most)?;
            std::fs::copy(at(name).join("config.json"), at(saved).join("config.json"))?;
            let is_cut = at(saved).join("model.safetensors.index.json").exists();
            ensure!(is_cut == (most < u64::MAX), "{saved}");
            python(&[Path::new("compare"), &at("one"), &at(saved)]).context(saved)?;
        }
    }
    Ok(())
}

//! Language models that several ranks train. `distributed` starts these tests, several processes of each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use genesis::Device;
use genesis::distributed::ProcessGroup;
use genesis::train::language::{
    Event, LayerKeeps, OptimizerKind, Options, Outcome, Session, Start, run,
};

use super::common::{group_of, shared_folder};
use crate::lm_training::{Workplace, written};

/// What ranks train on.
fn device() -> Device {
    if Device::cuda_count() > 0 { Device::Cuda(0) } else { Device::Cpu }
}

/// A run until so many steps of this process are done.
fn train(
    options: &Options,
    group: Option<&ProcessGroup>,
    resume: bool,
    most: usize,
) -> Result<Outcome> {
    let (stop, mut done) = (AtomicBool::new(false), 0);
    let mut start = Start::open(options, None, device())?;
    if let Some(group) = group {
        start = start.on_ranks(group);
    }
    let session = Session { resume, overwrite: false };
    Ok(run(start, options, session, &stop, |event| {
        done += usize::from(matches!(event, Event::Step(_)));
        stop.store(done >= most, Ordering::Relaxed);
    })?)
}

#[test]
#[ignore = "ranks, which `distributed::ranks_train_a_language_model_as_one` starts"]
fn training() -> Result<()> {
    let group = group_of(100, device())?;
    let (rank, size) = (group.rank(), group.size());
    // All ranks read the files of the first.
    let place = (rank == 0).then(Workplace::new).transpose()?;
    let store = group.store().context("a store")?;
    if let Some(place) = &place {
        store.set("files", place.path("").display().to_string().as_bytes())?;
    }
    let files = PathBuf::from(String::from_utf8(store.get("files")?)?);
    let shared = shared_folder();
    let options = |out: Option<&str>, accumulate| Options {
        model: files.join("config.json").display().to_string(),
        tokenizer: Some(files.join("tokenizer")),
        data: vec![files.join("data.jsonl")],
        eval_data: (out != Some("parts")).then(|| files.join("data.jsonl")).into_iter().collect(),
        out: out.map(|out| shared.join(out)),
        steps: Some(2),
        batch_size: 1,
        accumulate,
        sequence_length: 32,
        learning_rate: 5e-3,
        save_every: Some(1),
        ..Options::sft()
    };
    // One rank that takes as many batches a step has the same losses.
    let alone = train(&options(None, size), None, false, 9)?;
    let whole = train(&options(Some("whole"), 1), Some(&group), false, 9)?;
    for (one, all) in alone.losses.iter().zip(&whole.losses) {
        ensure!((one - all).abs() <= 1e-5 * one.abs(), "{one} alone, {all} on {size} ranks");
    }
    let found = [alone.evaluation, whole.evaluation].map(|found| found.context("an evaluation"));
    let [one, all] = found;
    let (one, all) = (one?, all?);
    ensure!(one.tokens == all.tokens && (one.loss - all.loss).abs() < 1e-4, "{one:?} {all:?}");
    ensure!(whole.files.len() == usize::from(rank == 0), "{:?}", whole.files);
    // All stop where one rank is told to, and go on to the same bits.
    let most = if rank == 1 { 1 } else { 9 };
    let first = train(&options(Some("parts"), 1), Some(&group), false, most)?;
    ensure!(first.stopped && first.losses.len() == 1, "{} steps", first.losses.len());
    group.barrier()?;
    let rest = train(&options(Some("parts"), 1), Some(&group), true, 9)?;
    ensure!([first.losses, rest.losses].concat() == whole.losses);
    group.barrier()?;
    ensure!(written(&shared.join("parts"))? == written(&shared.join("whole"))?);
    group.barrier()?;
    // Shared out, the optimizer's state changes no bit, and a run goes on with it whole.
    let zero = Options { zero1: true, ..options(Some("zero"), 1) };
    let first = train(&zero, Some(&group), false, most)?;
    group.barrier()?;
    let rest = train(&options(Some("zero"), 1), Some(&group), true, 9)?;
    ensure!([first.losses, rest.losses].concat() == whole.losses);
    let coded = |zero1| Options { optimizer: OptimizerKind::AdamW8bit, zero1, ..options(None, 1) };
    let [coded, shared_out] =
        [coded(false), coded(true)].map(|of| train(&of, Some(&group), false, 9));
    ensure!(coded?.losses == shared_out?.losses);
    // Layers whose parameters are gathered run again by gathering them again.
    let parts = |checkpoint| Options { fsdp: Some(size), checkpoint, ..options(None, 1) };
    let usual = train(&parts(None), Some(&group), false, 9)?.losses;
    for keeps in [LayerKeeps::Block, LayerKeeps::Products] {
        ensure!(train(&parts(Some(keeps)), Some(&group), false, 9)?.losses == usual, "{keeps:?}");
    }
    group.barrier()?;
    Ok(())
}

//! Language models that ranks train in every way they can share one, and in pairs of these. `distributed` starts these
//! tests, several processes of each; each launch goes through many meshes, since starts and cold kernels are what is dear.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use genesis::distributed::{ProcessGroup, ReduceOp};
use genesis::train::language::{Event, Options, Outcome, Precision, Session, Start, run};
use genesis::{Device, Tensor};
use serde_json::json;

use super::common::{group_of, shared_folder};
use super::ranks::every_collective;
use crate::lm_training::Workplace;

const STEPS: usize = 20;

/// What a mesh changes of the options.
pub(super) type Change = fn(&mut Options);

/// A run until so many steps of this process are done.
pub(super) fn train(
    options: &Options,
    group: Option<&ProcessGroup>,
    resume: bool,
    most: usize,
) -> Result<Outcome> {
    let (stop, mut done) = (AtomicBool::new(false), 0);
    let mut start = Start::open(options, None, Device::Cpu)?;
    if let Some(group) = group {
        start = start.on_ranks(group);
    }
    let session = Session { resume, overwrite: false };
    Ok(run(start, options, session, &stop, |event| {
        done += usize::from(matches!(event, Event::Step(_)));
        stop.store(done >= most, Ordering::Relaxed);
    })?)
}

/// The files of a tiny model, which the first rank makes and all read.
pub(super) struct Place {
    pub(super) files: PathBuf,
    _own: Option<Workplace>,
}

impl Place {
    fn new(group: &ProcessGroup) -> Result<Place> {
        let own = (group.rank() == 0).then(Workplace::new).transpose()?;
        let store = group.store().context("a store")?;
        if let Some(place) = &own {
            Place::configure(&place.path(""))?;
            store.set("files", place.path("").display().to_string().as_bytes())?;
        }
        let files = PathBuf::from(String::from_utf8(store.get("files")?)?);
        Ok(Place { files, _own: own })
    }

    /// Files that other ranks find when these have ended.
    pub(super) fn kept(group: &ProcessGroup) -> Result<Place> {
        let files = shared_folder().join("files");
        if group.rank() == 0 && !files.exists() {
            std::fs::create_dir_all(&files)?;
            Workplace::fill(&files)?;
            Place::configure(&files)?;
        }
        group.barrier()?;
        Ok(Place { files, _own: None })
    }

    fn configure(folder: &Path) -> Result<()> {
        for (name, is_tied) in [("untied.json", false), ("tied.json", true)] {
            let config = json!({
                "model_type": "qwen3", "vocab_size": 320, "hidden_size": 16, "head_dim": 4,
                "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
                "num_key_value_heads": 4, "max_position_embeddings": 64,
                "tie_word_embeddings": is_tied,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            });
            std::fs::write(folder.join(name), config.to_string())?;
        }
        Ok(())
    }

    /// Options of a run whose steps are of so many batches in all.
    pub(super) fn options(&self, accumulate: usize) -> Options {
        Options {
            model: self.files.join("untied.json").display().to_string(),
            tokenizer: Some(self.files.join("tokenizer")),
            data: vec![self.files.join("data.jsonl")],
            steps: Some(STEPS),
            epochs: STEPS,
            batch_size: 1,
            accumulate,
            sequence_length: 32,
            learning_rate: 1e-3,
            ..Options::sft()
        }
    }
}

/// The losses of one rank that takes all batches, computed by the first.
fn alone(options: &Options, group: &ProcessGroup) -> Result<Vec<f64>> {
    let store = group.store().context("a store")?;
    let key = format!("alone/{}/{}", options.accumulate, options.ordered_reductions);
    if group.rank() == 0 && store.get_within(&key, Duration::ZERO)?.is_none() {
        let losses = train(options, None, false, usize::MAX)?.losses;
        store.set(&key, serde_json::to_string(&losses)?.as_bytes())?;
    }
    Ok(serde_json::from_slice(&store.get(&key)?)?)
}

/// How many ranks take other batches.
pub(super) fn data_ranks(options: &Options, ranks: usize) -> usize {
    let parts = [options.tp, options.cp, options.pp].map(|n| n.unwrap_or(1));
    ranks / parts.iter().product::<usize>()
}

/// Runs meshes over all ranks; each must have the losses of one rank that takes as many batches a step.
fn compare(
    group: &ProcessGroup,
    place: &Place,
    cases: &[(&str, Change)],
    limit: f64,
) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, change) in cases {
        let mut options = place.options(1);
        change(&mut options);
        // Stages are for several batches.
        options.accumulate = if options.pp.is_some() { 2 } else { 1 };
        let batches = options.accumulate * data_ranks(&options, group.size());
        let one =
            Options { ordered_reductions: options.ordered_reductions, ..place.options(batches) };
        let wants = alone(&one, group)?;
        ensure!(wants.len() == STEPS, "{} steps", wants.len());
        let begin = Instant::now();
        let found = match train(&options, Some(group), false, usize::MAX) {
            Ok(outcome) => outcome.losses,
            Err(error) => {
                wrong.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let off = wants.iter().zip(&found).map(|(a, b)| (a - b).abs() / a.abs());
        let off = off.fold(0.0, f64::max);
        if group.rank() == 0 {
            println!("{name}: off by {off:.1e}, {:.2} s", begin.elapsed().as_secs_f64());
        }
        if found.len() != STEPS || off.is_nan() || off > limit {
            wrong.push(format!("{name}: {} steps, off by {off}", found.len()));
        }
    }
    ensure!(wrong.is_empty(), "on {} ranks: {}", group.size(), wrong.join("; "));
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::processors_have_collectives_too` starts"]
fn processors() -> Result<()> {
    let group = group_of(60, Device::Cpu)?;
    every_collective(&group)?;
    // More than a value of the store holds.
    let long = Tensor::arange(0.0, 3e6, 1.0, Device::Cpu)?.add_scalar(group.rank() as f64)?;
    group.broadcast(&long, 1)?;
    ensure!(long.select(0, 2_999_999)?.item()? == 3e6);
    let own = group.split(Some((group.rank() % 2) as u32), 0)?.context("a group")?;
    let x = Tensor::ones(&[2], Device::Cpu)?;
    own.all_reduce(&x, ReduceOp::Sum)?;
    ensure!(x.to_vec::<f32>()? == [own.size() as f32; 2]);
    Ok(())
}

/// One axis, that all ranks lie on.
const SINGLES: &[(&str, Change)] = &[
    ("dp", |_| ()),
    ("fsdp", |of| of.fsdp = of_all()),
    ("fsdp that keeps what it gathered", |of| (of.fsdp, of.reshard) = (of_all(), false)),
    ("tp", |of| of.tp = of_all()),
    ("tp with sequence parallel norms", |of| {
        (of.tp, of.sequence_parallel) = (of_all(), true);
    }),
    ("cp", |of| of.cp = of_all()),
    ("pp", |of| of.pp = of_all()),
];

/// With parts that travel in bf16.
const HALVES: &[(&str, Change)] = &[
    ("fsdp in bf16", |of| (of.fsdp, of.dtype) = (of_all(), Precision::Bf16)),
    ("fsdp in bf16, gradients in f32", |of| {
        (of.fsdp, of.dtype, of.reduce_dtype) = (of_all(), Precision::Bf16, Some(Precision::F32));
    }),
    ("fsdp in f32, products in bf16", |of| {
        (of.fsdp, of.dtype, of.param_dtype) = (of_all(), Precision::Bf16, Some(Precision::F32));
    }),
];

/// Two ranks along one axis, the others along another.
const PAIRS: &[(&str, Change)] = &[
    ("dp and fsdp", |of| of.fsdp = Some(2)),
    ("dp and tp", |of| of.tp = Some(2)),
    ("dp and cp", |of| of.cp = Some(2)),
    ("dp and pp", |of| of.pp = Some(2)),
    ("fsdp and tp", |of| (of.fsdp, of.tp) = (Some(2), Some(2))),
    ("fsdp and cp", |of| (of.fsdp, of.cp) = (Some(2), Some(2))),
    ("fsdp and pp", |of| (of.fsdp, of.pp) = (Some(2), Some(2))),
    ("tp and cp", |of| (of.tp, of.cp, of.sequence_parallel) = (Some(2), Some(2), true)),
    ("tp and pp", |of| (of.tp, of.pp) = (Some(2), Some(2))),
    ("cp and pp", |of| (of.cp, of.pp) = (Some(2), Some(2))),
];

/// With sums in the order of ranks.
const AUDITS: &[(&str, Change)] = &[
    ("dp in order", |of| of.ordered_reductions = true),
    ("fsdp in order", |of| (of.fsdp, of.ordered_reductions) = (of_all(), true)),
    ("tp in order", |of| (of.tp, of.ordered_reductions) = (of_all(), true)),
    ("cp in order", |of| (of.cp, of.ordered_reductions) = (of_all(), true)),
    ("pp in order", |of| (of.pp, of.ordered_reductions) = (of_all(), true)),
];

/// Of two axes.
const AUDITED_PAIRS: &[(&str, Change)] = &[
    ("dp and fsdp in order", |of| (of.fsdp, of.ordered_reductions) = (Some(2), true)),
    ("dp and tp in order", |of| (of.tp, of.ordered_reductions) = (Some(2), true)),
    ("fsdp and tp in order", |of| {
        (of.fsdp, of.tp, of.ordered_reductions) = (Some(2), Some(2), true);
    }),
    ("tp and pp in order", |of| {
        (of.tp, of.pp, of.ordered_reductions) = (Some(2), Some(2), true);
    }),
    ("dp and cp in order", |of| (of.cp, of.ordered_reductions) = (Some(2), true)),
    ("fsdp and cp in order", |of| {
        (of.fsdp, of.cp, of.ordered_reductions) = (Some(2), Some(2), true);
    }),
    ("cp and pp in order", |of| {
        (of.cp, of.pp, of.ordered_reductions) = (Some(2), Some(2), true);
    }),
];

/// As many ranks as were started.
fn of_all() -> Option<usize> {
    std::env::var("WORLD_SIZE").ok()?.parse().ok()
}

#[test]
#[ignore = "ranks, which `distributed::every_mesh_trains_as_one_rank` starts"]
fn meshes() -> Result<()> {
    let group = group_of(60, Device::Cpu)?;
    let place = Place::new(&group)?;
    match group.size() {
        2 => {
            compare(&group, &place, SINGLES, 1e-6)?;
            compare(&group, &place, HALVES, 5e-3)?;
        }
        4 => compare(&group, &place, &[SINGLES, PAIRS].concat(), 1e-6)?,
        _ => {
            let three: &[(&str, Change)] =
                &[("dp, fsdp and tp", |of| (of.fsdp, of.tp) = (Some(2), Some(2)))];
            return compare(&group, &place, three, 1e-6);
        }
    }
    compare(&group, &place, AUDITS, 0.0)?;
    if group.size() == 4 {
        compare(&group, &place, AUDITED_PAIRS, 0.0)?;
        going_on(&group, &place)?;
    }
    Ok(())
}

/// The weights of an exported model.
pub(super) fn weights(out: &Path) -> Result<Vec<(String, Vec<f32>)>> {
    let all = genesis::io::load_safetensors(out.join("model/model.safetensors"), Device::Cpu)?;
    all.into_iter().map(|(name, tensor)| Ok((name, tensor.to_vec::<f32>()?))).collect()
}

/// A run whose ranks share the model in another way each time that it goes on.
fn going_on(group: &ProcessGroup, place: &Place) -> Result<()> {
    let shared = shared_folder();
    let options = |out: &str, change: Change| {
        let mut options = place.options(1);
        change(&mut options);
        Options {
            // Its embedding is on the first and the last stage.
            model: place.files.join("tied.json").display().to_string(),
            out: Some(shared.join(out)),
            eval_data: vec![place.files.join("data.jsonl")],
            eval_every: Some(4),
            steps: Some(4),
            save_every: Some(1),
            accumulate: 4 / data_ranks(&options, group.size()),
            ..options
        }
    };
    let meshes: [Change; 4] = [
        |of| (of.fsdp, of.tp) = (Some(2), Some(2)),
        |of| (of.tp, of.pp) = (Some(2), Some(2)),
        |of| (of.fsdp, of.pp) = (Some(2), Some(2)),
        |of| (of.cp, of.pp) = (Some(2), Some(2)),
    ];
    let whole = train(&options("whole", |_| ()), Some(group), false, usize::MAX)?;
    let mut losses = Vec::new();
    let mut last = None;
    for change in meshes {
        group.barrier()?;
        let outcome = train(&options("parts", change), Some(group), !losses.is_empty(), 1)?;
        losses.extend(outcome.losses);
        last = outcome.evaluation;
    }
    group.barrier()?;
    for (a, b) in whole.losses.iter().zip(&losses) {
        ensure!((a - b).abs() <= 1e-6 * a.abs(), "{:?}, not {losses:?}", whole.losses);
    }
    let (one, all) = (whole.evaluation.context("one")?, last.context("another")?);
    ensure!(one.tokens == all.tokens && (one.loss - all.loss).abs() < 1e-5, "{one:?} {all:?}");
    if group.rank() == 0 {
        let (one, all) = (weights(&shared.join("whole"))?, weights(&shared.join("parts"))?);
        ensure!(one.len() == all.len(), "{} tensors, not {}", all.len(), one.len());
        for ((name, a), (other, b)) in one.iter().zip(&all) {
            let off = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            ensure!(name == other && a.len() == b.len() && off < 1e-4, "{name}: off by {off}");
        }
    }
    let refused = options("refused", |of| (of.tp, of.prompts) = (Some(2), vec!["a".to_owned()]));
    let said = train(&refused, Some(group), false, 1).map(drop).unwrap_err().to_string();
    ensure!(said.contains("prompts need the whole model on one rank"), "{said}");
    group.barrier()?;
    Ok(())
}

//! Checkpoints of language models that ranks have parts of. `distributed` starts these tests, several processes of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use genesis::Device;
use genesis::distributed::{ProcessGroup, consolidate_checkpoint};
use genesis::io::{
    SafeTensorsFile, diff_checkpoints, list_checkpoints, load_safetensors, verify_checkpoint,
};
use genesis::train::language::{Event, Options, Session, Start, export_checkpoint, run};

use super::common::{group_of, shared_folder};
use super::parallel::{Change, Place, data_ranks, train, weights};

const STEPS: usize = 4;

/// Options of a run to a folder of this name. A step is of four batches, whatever the ranks are.
fn options(place: &Place, out: &str, ranks: usize, change: Change) -> Options {
    let mut options = place.options(1);
    change(&mut options);
    Options {
        out: Some(shared_folder().join(out)),
        steps: Some(STEPS),
        save_every: Some(1),
        accumulate: 4 / data_ranks(&options, ranks),
        ..options
    }
}

/// The folder of a checkpoint of a run.
fn step(out: &str, step: usize) -> PathBuf {
    shared_folder().join(out).join(format!("checkpoints/step-{step:08}"))
}

fn near(wants: &[f64], found: &[f64]) -> Result<()> {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * a.abs();
    let is_all = wants.len() == found.len() && wants.iter().zip(found).all(is_near);
    ensure!(is_all, "{wants:?}, not {found:?}");
    Ok(())
}

/// Fails unless these ranks have written a file each, of no more than its share of what is trained, and nothing twice.
fn check_files(folder: &Path, (writers, ranks): (&[usize], usize)) -> Result<()> {
    verify_checkpoint(folder)?;
    let mut wants = vec!["manifest.json".to_owned(), "state.json".to_owned()];
    wants.extend(writers.iter().map(|rank| format!("rank-{rank}-of-{ranks}.safetensors")));
    wants.sort();
    let mut found = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    found.sort();
    ensure!(found == wants, "{found:?}, not {wants:?}");
    let count = |file: &SafeTensorsFile, prefix: &str| -> usize {
        let own = file.tensors().filter(|(name, _)| name.starts_with(prefix));
        own.map(|(_, ty)| ty.shape.iter().product::<usize>()).sum()
    };
    let files = writers.iter().map(|rank| format!("rank-{rank}-of-{ranks}.safetensors"));
    let files = files.map(|name| SafeTensorsFile::open(folder.join(name)));
    let files = files.collect::<genesis::Result<Vec<_>>>()?;
    let whole = consolidate_checkpoint(folder)?;
    let whole: usize = whole.values().map(|tensor| tensor.numel()).sum();
    for (prefix, copies) in [("model/", 1), ("optimizer/", 2)] {
        let counts: Vec<usize> = files.iter().map(|file| count(file, prefix)).collect();
        let (sum, most) = (counts.iter().sum::<usize>(), counts.iter().max().copied());
        // Flat parts are padded to one length.
        let limit = whole * copies;
        ensure!(
            (limit..limit + limit / 50).contains(&sum),
            "{sum} elements of {limit}: {counts:?}"
        );
        // Norms are cut by one axis only.
        let share = limit as f64 / files.len() as f64 * 1.2;
        ensure!(most.unwrap_or(0) as f64 <= share, "{counts:?}, {share} at most");
    }
    Ok(())
}

/// Meshes of two ranks, and who writes.
const TWO: &[(&str, &[usize], Change)] = &[
    ("fsdp", &[0, 1], |of| of.fsdp = Some(2)),
    ("tp", &[0, 1], |of| of.tp = Some(2)),
    ("pp", &[0, 1], |of| of.pp = Some(2)),
];

/// Of four.
const FOUR: &[(&str, &[usize], Change)] = &[
    ("fsdp and tp", &[0, 1, 2, 3], |of| (of.fsdp, of.tp) = (Some(2), Some(2))),
    ("dp and fsdp", &[0, 1], |of| of.fsdp = Some(2)),
    ("fsdp and pp", &[0, 1, 2, 3], |of| (of.fsdp, of.pp) = (Some(2), Some(2))),
    ("tp in order", &[0, 1, 2, 3], |of| {
        (of.fsdp, of.tp, of.ordered_reductions) = (Some(2), Some(2), true);
    }),
];

#[test]
#[ignore = "ranks, which `distributed::checkpoints_of_runs_in_parts` starts"]
fn parts() -> Result<()> {
    let group = group_of(60, Device::Cpu)?;
    let place = Place::kept(&group)?;
    let (rank, ranks) = (group.rank(), group.size());
    let of = |out: &str, change| options(&place, out, ranks, change);
    for (name, writers, change) in if ranks == 2 { TWO } else { FOUR } {
        let [whole, broken] = ["whole", "broken"].map(|of| format!("{name}, {of}"));
        let losses = train(&of(&whole, *change), Some(&group), false, usize::MAX)?.losses;
        // The second save waits for the first, and the end of the run for the last.
        let mut parts = train(&of(&broken, *change), Some(&group), false, 2)?.losses;
        group.barrier()?;
        parts.extend(train(&of(&broken, *change), Some(&group), true, usize::MAX)?.losses);
        group.barrier()?;
        ensure!(losses.len() == STEPS && parts == losses, "{name}: {parts:?}, not {losses:?}");
        if rank == 0 {
            check_files(&step(&broken, STEPS), (writers, ranks))?;
            let differs = diff_checkpoints(step(&whole, STEPS), step(&broken, STEPS))?;
            ensure!(differs.is_empty(), "{name}: {differs:?}");
            let [a, b] = [whole, broken].map(|out| weights(&shared_folder().join(out)));
            ensure!(a? == b?, "{name}: exports differ");
        }
        group.barrier()?;
    }
    match ranks {
        2 => failing(&group, &place),
        _ => other_ranks(&group, &place),
    }
}

/// One rank goes on with what several wrote, and the other way round.
fn other_ranks(group: &ProcessGroup, place: &Place) -> Result<()> {
    let both: Change = |of| (of.fsdp, of.tp) = (Some(2), Some(2));
    let (rank, ranks) = (group.rank(), group.size());
    let alone = |out: &str, resume, most| -> Result<Vec<f64>> {
        let losses = match rank {
            0 => train(&options(place, out, 1, |_| ()), None, resume, most)?.losses,
            _ => Vec::new(),
        };
        group.barrier()?;
        Ok(losses)
    };
    let wants = alone("alone", false, usize::MAX)?;
    let mut losses = train(&options(place, "to one", ranks, both), Some(group), false, 2)?.losses;
    group.barrier()?;
    losses.extend(alone("to one", true, usize::MAX)?);
    let mut found = alone("from one", false, 2)?;
    let rest = train(&options(place, "from one", ranks, both), Some(group), true, usize::MAX)?;
    found.extend(rest.losses);
    if rank == 0 {
        near(&wants, &losses)?;
        near(&wants, &found)?;
        // What differs from a checkpoint of one rank is in the last bits.
        for difference in diff_checkpoints(step("alone", STEPS), step("from one", STEPS))? {
            let largest = difference.largest;
            ensure!(largest.is_some_and(|off| off < 1e-4), "{difference:?}");
        }
        // Any checkpoint is exported, with what the run exports at its end.
        let (again, run) = (shared_folder().join("again"), options(place, "from one", ranks, both));
        export_checkpoint(&again, &step("from one", STEPS), &run, None)?;
        let ended = shared_folder().join("from one/model");
        for name in ["model.safetensors", "config.json", "tokenizer.json"] {
            ensure!(std::fs::read(again.join(name))? == std::fs::read(ended.join(name))?, "{name}");
        }
        let model = consolidate_checkpoint(step("from one", STEPS))?;
        let exported = load_safetensors(ended.join("model.safetensors"), Device::Cpu)?;
        let read = |all: BTreeMap<String, genesis::Tensor>| {
            let all = all.into_iter();
            all.map(|(name, x)| Ok((name, x.to_vec::<f32>()?))).collect::<Result<Vec<_>>>()
        };
        ensure!(read(model)? == read(exported)?);
    }
    let zero: Change = |of| of.zero1 = true;
    train(&options(place, "zero", ranks, zero), Some(group), false, usize::MAX)?;
    if rank == 0 {
        let found = std::fs::read_dir(step("zero", STEPS))?.count();
        ensure!(found == ranks + 2, "{found} files");
    }
    group.barrier()?;
    Ok(())
}

/// Where one rank can't write all of them end after the same step, and the checkpoint before stays.
fn failing(group: &ProcessGroup, place: &Place) -> Result<()> {
    let options = options(place, "failing", group.size(), |of| of.fsdp = Some(2));
    let root = shared_folder().join("failing/checkpoints");
    let (is_second, stop) = (group.rank() == 1, AtomicBool::new(false));
    let start = Start::open(&options, None, Device::Cpu)?.on_ranks(group);
    let mut steps = 0;
    let result = run(start, &options, Session::default(), &stop, |event| {
        steps += usize::from(matches!(event, Event::Step(_)));
        if steps == 2 && is_second {
            // A folder is where its next file is to be.
            let taken = root.join(".tmp-ranks-00000002/rank-1-of-2.safetensors/taken");
            std::fs::create_dir_all(taken).expect("it is made");
        }
    });
    let said = result.map(drop).unwrap_err().to_string();
    let wants = if is_second { "rank-1-of-2.safetensors" } else { "rank 1 can't write its part" };
    ensure!(said.contains(wants), "{said}");
    ensure!((2..=3).contains(&steps), "{steps} steps");
    group.barrier()?;
    let found: Vec<u64> = list_checkpoints(&root)?.iter().map(|info| info.step).collect();
    ensure!(found == [1], "{found:?}");
    group.barrier()?;
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::a_rank_that_is_killed_in_a_save_leaves_the_checkpoint_before` starts"]
fn killed() -> Result<()> {
    let group = group_of(60, Device::Cpu)?;
    let place = Place::kept(&group)?;
    let options = options(&place, "killed", 2, |of| of.fsdp = Some(2));
    let start = Start::open(&options, None, Device::Cpu)?.on_ranks(&group);
    let mut steps = 0;
    let stop = AtomicBool::new(false);
    run(start, &options, Session::default(), &stop, |event| {
        steps += usize::from(matches!(event, Event::Step(_)));
        // That of the second step is being written: the other rank waits to hear that it is.
        if steps == 3 && group.rank() == 1 {
            std::process::abort();
        }
        stop.store(false, Ordering::Relaxed);
    })?;
    anyhow::bail!("a rank is gone and the run went on")
}

#[test]
#[ignore = "ranks, which `distributed::a_rank_that_is_killed_in_a_save_leaves_the_checkpoint_before` starts"]
fn after_the_kill() -> Result<()> {
    let group = group_of(60, Device::Cpu)?;
    let place = Place::kept(&group)?;
    let of = |out, ranks, change| options(&place, out, ranks, change);
    let rest = train(&of("killed", 2, |of| of.tp = Some(2)), Some(&group), true, usize::MAX)?;
    if group.rank() == 0 {
        let whole = train(&of("unbroken", 1, |_| ()), None, false, usize::MAX)?.losses;
        near(&whole[1..], &rest.losses)?;
        let root = shared_folder().join("killed/checkpoints");
        for entry in std::fs::read_dir(root)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            ensure!(name.starts_with("step-"), "{name} is left");
        }
    }
    group.barrier()?;
    Ok(())
}

//! Checkpoints: whole or not at all, damage noticed, the best kept, going on bit for bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use genesis::data::LoaderState;
use genesis::io::{
    Best, Checkpoint, Checkpoints, Keep, OnSaveError, diff_checkpoints, list_checkpoints,
    load_safetensors, verify_checkpoint,
};
use genesis::optim::State;
use genesis::random::RngState;
use genesis::{DType, Device, Result, Tensor};
use serde_json::json;

const CPU: Device = Device::Cpu;

fn sample(step: u64, metric: Option<f64>) -> Result<Checkpoint> {
    let w = Tensor::from_f64(&[step as f64, 0.1], &[2], (DType::BF16, CPU))?;
    let moments = Tensor::from_f64(&[1e-9, -0.0], &[2], (DType::F32, CPU))?;
    let optimizer = State {
        tensors: BTreeMap::from([("w/exp_avg".to_owned(), moments)]),
        // A number that a careless reader of decimals gets wrong by a bit, and no number at all.
        numbers: BTreeMap::from([
            ("group.0/lr".to_owned(), 5.0e-324),
            ("w/step".to_owned(), 0.1 + 0.2),
            ("best".to_owned(), f64::INFINITY),
        ]),
    };
    Ok(Checkpoint {
        step,
        model: BTreeMap::from([("w".to_owned(), w)]),
        states: BTreeMap::from([("optimizer".to_owned(), optimizer)]),
        rng: Some(RngState { seed: u64::MAX, offset: 1 << 60 }),
        data: Some(LoaderState { epoch: 3, samples: 17, seed: u64::MAX - 1 }),
        config: json!({ "lr": 0.1, "name": "x" }),
        metric,
    })
}

fn steps(root: &Path) -> Result<Vec<u64>> {
    Ok(list_checkpoints(root)?.iter().map(|info| info.step).collect())
}

#[test]
fn everything_comes_back_bit_for_bit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::open(folder.path().join("new/deep"), Keep::default())?;
    assert!(checkpoints.latest(CPU)?.is_none());
    let saved = sample(42, Some(0.5))?;
    let path = checkpoints.save(&saved)?;
    assert!(path.ends_with("step-00000042"));
    let back = checkpoints.latest(CPU)?.expect("one was saved").checkpoint;
    assert_eq!((back.step, back.metric), (42, Some(0.5)));
    assert_eq!((back.rng, back.data, &back.config), (saved.rng, saved.data, &saved.config));
    let (old, new) = (saved.state("optimizer")?, back.state("optimizer")?);
    let bits = |state: &State| state.numbers.values().map(|n| n.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(old), bits(new));
    let tensor = |state: &State| state.tensors["w/exp_avg"].to_vec::<f32>();
    let float_bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(float_bits(tensor(old)?), float_bits(tensor(new)?));
    assert_eq!(back.model["w"].to_f64_vec()?, saved.model["w"].to_f64_vec()?);
    assert!(back.state("scaler").is_err());
    // Weights are an ordinary file of the format that everybody reads.
    assert_eq!(load_safetensors(path.join("model.safetensors"), CPU)?["w"].dtype(), DType::BF16);
    Ok(())
}

#[test]
fn the_latest_and_the_best_stay() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let keep = Keep { last: 2, best: Some(Best::Largest(1)) };
    let checkpoints = Checkpoints::open(folder.path(), keep)?;
    for (step, metric) in [(1, 0.3), (2, 0.9), (3, 0.5), (4, f64::NAN), (5, 0.1)] {
        checkpoints.save_async(&sample(step, Some(metric))?)?;
    }
    checkpoints.wait()?;
    assert_eq!(steps(folder.path())?, [2, 4, 5]);
    // The same step again takes the other's place.
    checkpoints.save(&sample(5, Some(0.2))?)?;
    assert_eq!(steps(folder.path())?, [2, 4, 5]);
    assert_eq!(checkpoints.list()?[2].metric, Some(0.2));
    let small = Keep { last: 0, best: Some(Best::Smallest(1)) };
    Checkpoints::open(folder.path(), small)?.save(&sample(6, Some(7.0))?)?;
    assert_eq!(steps(folder.path())?, [5, 6]);
    Ok(())
}

#[test]
fn a_damaged_one_is_refused_and_the_one_before_taken() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::open(folder.path(), Keep::default())?;
    checkpoints.save(&sample(1, None)?)?;
    let newest = checkpoints.save(&sample(2, None)?)?;
    verify_checkpoint(&newest)?;
    let names = ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"];
    for name in names {
        let path = newest.join(name);
        let whole = fs::read(&path)?;
        let refused = |bytes: &[u8]| -> Result<()> {
            fs::remove_file(&path)?;
            fs::write(&path, bytes)?;
            let resumed = checkpoints.latest(CPU)?.expect("the first is whole");
            assert_eq!((resumed.checkpoint.step, resumed.refused.len()), (1, 1), "{name}");
            let message = &resumed.refused[0];
            assert!(message.contains("step-00000002") && message.contains(name), "{message}");
            Ok(())
        };
        for at in [0, whole.len() / 3, whole.len() / 2, whole.len() - 2] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&bytes)?;
            refused(&whole[..at])?;
        }
        fs::remove_file(&path)?;
        let resumed = checkpoints.latest(CPU)?.expect("the first is whole");
        assert_eq!(resumed.checkpoint.step, 1, "{name} is gone");
        fs::write(&path, whole)?;
    }
    assert_eq!(checkpoints.latest(CPU)?.expect("mended").checkpoint.step, 2);
    for step in steps(folder.path())? {
        fs::remove_file(folder.path().join(format!("step-{step:08}/state.json")))?;
    }
    let error = checkpoints.latest(CPU).expect_err("none is whole").to_string();
    assert_eq!(error.lines().count(), 2, "{error}");
    Ok(())
}

#[test]
fn what_was_half_written_is_swept_and_never_found() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let half = folder.path().join(".tmp-abc");
    fs::create_dir(&half)?;
    fs::write(half.join("model.safetensors"), "half")?;
    fs::create_dir(folder.path().join("step-00000009"))?;
    let checkpoints = Checkpoints::open(folder.path(), Keep::default())?;
    assert!(!half.exists());
    assert!(steps(folder.path())?.is_empty());
    checkpoints.save(&sample(1, None)?)?;
    assert_eq!(checkpoints.latest(CPU)?.expect("the first is whole").checkpoint.step, 1);
    Ok(())
}

#[test]
fn a_run_killed_between_two_renames_loses_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::open(folder.path(), Keep::default())?;
    let path = checkpoints.save(&sample(3, None)?)?;
    fs::rename(&path, folder.path().join("step-00000003.old"))?;
    assert_eq!(checkpoints.latest(CPU)?.expect("under its old name").checkpoint.step, 3);
    Ok(())
}

#[test]
fn a_write_that_fails_says_so_and_keeps_the_rest() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("run");
    let checkpoints = Checkpoints::open(&root, Keep::default())?;
    checkpoints.save(&sample(1, None)?)?;
    let mut named = sample(2, None)?;
    let state = named.states.remove("optimizer").expect("it has one");
    named.states.insert("../up".to_owned(), state);
    assert!(checkpoints.save(&named).is_err());
    let away = folder.path().join("away");
    fs::rename(&root, &away)?;
    checkpoints.save_async(&sample(2, None)?)?;
    let error = checkpoints.wait().expect_err("the folder is gone").to_string();
    assert!(error.starts_with("can't write "), "{error}");
    fs::rename(&away, &root)?;
    assert_eq!(checkpoints.latest(CPU)?.expect("it stayed").checkpoint.step, 1);
    Ok(())
}

#[test]
fn training_can_go_on_where_a_checkpoint_is_not_written() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("run");
    let checkpoints =
        Checkpoints::open(&root, Keep::default())?.with_on_save_error(OnSaveError::Continue);
    checkpoints.save(&sample(1, None)?)?;
    let away = folder.path().join("away");
    fs::rename(&root, &away)?;
    for step in 2..4 {
        checkpoints.save_async(&sample(step, None)?)?;
    }
    assert_eq!(checkpoints.wait()?, None);
    assert!(checkpoints.save(&sample(4, None)?).is_err(), "who asks for a path gets the error");
    fs::rename(&away, &root)?;
    checkpoints.save_async(&sample(5, None)?)?;
    assert!(checkpoints.wait()?.is_some_and(|path| path.ends_with("step-00000005")));
    let errors = checkpoints.save_errors();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error.to_string().starts_with("can't write ")));
    assert_eq!(checkpoints.latest(CPU)?.expect("two stayed").checkpoint.step, 5);
    Ok(())
}

#[test]
fn what_differs_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let save = |name: &str, checkpoint: &Checkpoint| {
        Checkpoints::open(folder.path().join(name), Keep::default())?.save(checkpoint)
    };
    let first = sample(2, None)?;
    let mut second = first.clone();
    second.model.insert("b".to_owned(), Tensor::ones(&[1], CPU)?);
    second.model.insert("w".to_owned(), Tensor::from_f64(&[2.5, 0.1], &[2], (DType::BF16, CPU))?);
    second.states.insert("scaler".to_owned(), State::default());
    second.data = Some(LoaderState { epoch: 3, samples: 18, seed: u64::MAX - 1 });
    let (a, b) = (save("a", &first)?, save("b", &second)?);
    assert!(diff_checkpoints(&a, &a)?.is_empty());
    let found = diff_checkpoints(&a, &b)?;
    let lines: Vec<String> = found.iter().map(|d| format!("{}: {}", d.name, d.how)).collect();
    assert_eq!(
        lines,
        [
            "model/b: only in the second",
            "model/w: 1 of 2 elements differ, by up to 5.000e-1",
            "scaler: only in the second",
            "state.data.samples: 17 in the first, 18 in the second",
            "state.states.scaler: only in the second",
        ]
    );
    assert!(diff_checkpoints(&a, folder.path()).is_err());
    Ok(())
}

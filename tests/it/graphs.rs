//! Captured steps beside the same steps op by op.

use genesis::nn::{Dropout, Linear, Module};
use genesis::ops::Reduction;
use genesis::optim::{AdamW, AdamWOptions, Muon, MuonOptions, Optimizer, Sgd, SgdOptions};
use genesis::random::{Generator, RngState, get_rng_state, manual_seed};
use genesis::{DType, Device, Result, Tensor, graph, no_grad};

use crate::gpu::gpu;

/// Runs a test of this file in a process of its own, for the default generator is one for a process; true
/// in that process.
fn alone(test: &str) -> bool {
    const CHILD: &str = "GENESIS_TEST_GRAPHS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let name = format!("graphs::{test}");
    let child = command.args([&name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = [&child.stdout[..], &child.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    false
}

struct Model {
    first: Linear,
    second: Linear,
    drop: Dropout,
}

impl Model {
    fn new(device: Device) -> Model {
        let at = (DType::F32, device);
        Model {
            first: Linear::new(12, 16, at).unwrap(),
            second: Linear::new(16, 5, at).unwrap(),
            drop: Dropout::new(0.3),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        [self.first.parameters(), self.second.parameters()].concat()
    }

    fn step(&self, optimizer: &mut impl Optimizer, args: &[Tensor]) -> Result<Vec<Tensor>> {
        optimizer.zero_grad();
        let hidden = self.drop.forward(&self.first.forward(&args[0])?.gelu()?)?;
        let loss = self.second.forward(&hidden)?.cross_entropy(&args[1], Reduction::Mean)?;
        loss.backward()?;
        optimizer.step()?;
        Ok(vec![loss.detach(), hidden.detach()])
    }
}

/// Losses, hidden values and parameters of steps with a falling learning rate, and where the draws end.
fn train(device: Device, steps: usize, captured: bool) -> (Vec<Vec<f32>>, RngState) {
    manual_seed(7);
    let model = Model::new(device);
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
    let mut step = graph(|optimizer: &mut AdamW, args: &[Tensor]| model.step(optimizer, args));
    let mut seen = Vec::new();
    for number in 0..steps {
        let values: Vec<f32> = (0..48).map(|i| ((i * 7 + number * 5) % 13) as f32 / 13.0).collect();
        let x = Tensor::from_slice_on(&values, &[4, 12], device).unwrap();
        let classes: Vec<i64> = (0..4).map(|i| ((i + number) % 5) as i64).collect();
        let y = Tensor::from_slice_on(&classes, &[4], device).unwrap();
        optimizer.set_lrs(&[0.02 / (1.0 + number as f64)]);
        let results = match captured {
            true => step.call(&mut optimizer, &[&x, &y]).unwrap(),
            false => model.step(&mut optimizer, &[x, y]).unwrap(),
        };
        seen.extend(results.iter().map(|t| t.to_vec::<f32>().unwrap()));
    }
    if captured && device != Device::Cpu {
        assert_eq!(step.captures(), 1);
    }
    seen.extend(model.parameters().iter().map(|p| p.to_vec::<f32>().unwrap()));
    (seen, get_rng_state())
}

fn replays_are_steps(device: Device) {
    let (expected, found) = (train(device, 20, false), train(device, 20, true));
    assert_eq!(expected.1, found.1);
    for (number, (a, b)) in expected.0.iter().zip(&found.0).enumerate() {
        let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(a), bits(b), "result {number}");
    }
    // Each step dropped other values.
    assert_ne!(expected.0[7], expected.0[9]);
}

#[test]
fn steps_on_the_cpu_are_what_they_are() {
    if !alone("steps_on_the_cpu_are_what_they_are") {
        return;
    }
    replays_are_steps(Device::Cpu);
}

#[test]
fn replays_on_a_gpu_are_what_the_ops_are() {
    let Some(device) = gpu("graphs") else { return };
    if alone("replays_on_a_gpu_are_what_the_ops_are") {
        replays_are_steps(device);
    }
}

#[test]
fn a_comparison_finds_no_difference_and_names_one() {
    let Some(device) = gpu("graphs") else { return };
    if !alone("a_comparison_finds_no_difference_and_names_one") {
        return;
    }
    let model = Model::new(device);
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
    let x = Tensor::ones(&[4, 12], device).unwrap();
    let y = Tensor::zeros(&[4], (DType::I64, device)).unwrap();
    let mut step =
        graph(|optimizer: &mut AdamW, args: &[Tensor]| model.step(optimizer, args)).compare(true);
    for _ in 0..5 {
        step.call(&mut optimizer, &[&x, &y]).unwrap();
    }
    // A number of the host is as it was.
    let mut calls = 0.0;
    let mut count = graph(|(): &mut (), args: &[Tensor]| {
        calls += 1.0;
        Ok(vec![args[0].add_scalar(calls)?])
    })
    .compare(true);
    let error = (0..4).find_map(|_| count.call(&mut (), &[&x]).err()).unwrap().to_string();
    assert!(error.contains("result 0 is not what the ops come to"), "{error}");
}

#[test]
fn a_step_may_look_up_rows_and_classes() {
    let device = Device::default();
    let table = Tensor::ones(&[7, 3], device).unwrap();
    let mut step = graph(|(): &mut (), args: &[Tensor]| {
        let rows = table.embedding(&args[0])?;
        Ok(vec![rows, table.index_select(0, &args[0])?, args[0].one_hot(7)?])
    });
    let index = Tensor::from_slice_on(&[6i64, 0], &[2], device).unwrap();
    for _ in 0..4 {
        let found = step.call(&mut (), &[&index]).unwrap();
        assert_eq!(found[0].to_vec::<f32>().unwrap(), [1.0; 6]);
        assert_eq!(found[1].to_vec::<f32>().unwrap(), [1.0; 6]);
        assert_eq!(found[2].shape(), [2, 7]);
    }
}

#[test]
fn each_set_of_shapes_is_captured() {
    let device = Device::default();
    let mut double = graph(|(): &mut (), args: &[Tensor]| Ok(vec![args[0].mul_scalar(2.0)?]));
    for round in 0..4 {
        for n in [3, 5] {
            let x = Tensor::full(&[n], f64::from(round), device).unwrap();
            let y = double.call(&mut (), &[&x]).unwrap().remove(0);
            assert_eq!(y.to_vec::<f32>().unwrap(), vec![2.0 * round as f32; n]);
        }
    }
    assert_eq!(double.captures(), if device == Device::Cpu { 0 } else { 2 });
}

#[test]
fn what_other_threads_do_is_not_recorded() {
    let Some(device) = gpu("graphs") else { return };
    // Of the same stream as the step.
    let count = Tensor::zeros(&[3], device).unwrap();
    let others = || {
        count.add_scalar_(1.0)?;
        device.synchronize()?;
        count.to_vec::<f32>()
    };
    let mut counts = Vec::new();
    let mut step = graph(|(): &mut (), args: &[Tensor]| {
        let twice = args[0].mul_scalar(2.0)?;
        counts.push(std::thread::scope(|scope| scope.spawn(others).join().expect("it ends"))?);
        Ok(vec![twice.add_scalar(1.0)?])
    });
    for round in 0..6 {
        let x = Tensor::full(&[5], f64::from(round), device).unwrap();
        let y = step.call(&mut (), &[&x]).unwrap().remove(0);
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0 * round as f32 + 1.0; 5]);
    }
    assert_eq!(step.captures(), 1);
    drop(step);
    // Two steps before the recording, and that; no replay.
    assert_eq!(counts, [[1.0; 3], [2.0; 3], [3.0; 3]]);
    assert_eq!(count.to_vec::<f32>().unwrap(), [3.0; 3]);
}

#[test]
fn a_step_that_panics_is_not_recorded_and_the_device_goes_on() {
    let Some(device) = gpu("graphs") else { return };
    let x = Tensor::ones(&[4], device).unwrap();
    let mut calls = 0;
    let mut step = graph(|(): &mut (), args: &[Tensor]| {
        calls += 1;
        let y = args[0].add_scalar(1.0)?;
        assert!(calls != 3, "the recording");
        Ok(vec![y])
    });
    let mut call = || step.call(&mut (), &[&x]).map(|mut results| results.remove(0));
    assert!((0..2).all(|_| call().is_ok()));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut call));
    assert!(panicked.is_err());
    assert_eq!(x.mul_scalar(3.0).unwrap().to_vec::<f32>().unwrap(), [3.0; 4]);
    for _ in 0..3 {
        assert_eq!(call().unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    }
}

/// Bytes of a device's segments that belong to a private pool.
fn private_bytes(device: Device) -> usize {
    let segments = device.memory_snapshot().unwrap().segments;
    segments.iter().filter(|segment| segment.pool.is_some()).map(|segment| segment.bytes).sum()
}

#[test]
fn recordings_share_memory_that_goes_back_at_the_end() {
    let Some(device) = gpu("graphs") else { return };
    if !alone("recordings_share_memory_that_goes_back_at_the_end") {
        return;
    }
    let mut step = graph(|(): &mut (), args: &[Tensor]| {
        // Ten of 256 KiB fit into no segment of 2 MiB, one after the other they do.
        (0..10).try_for_each(|_| Tensor::empty(&[65_536], device).map(drop))?;
        Ok(vec![args[0].add_scalar(1.0)?])
    });
    for n in [3, 300, 1000] {
        for round in 0..4 {
            let x = Tensor::full(&[n], f64::from(round), device).unwrap();
            let y = step.call(&mut (), &[&x]).unwrap().remove(0);
            assert_eq!(y.to_vec::<f32>().unwrap(), vec![round as f32 + 1.0; n]);
        }
        assert_eq!(private_bytes(device), 2 << 20, "with {} captures", step.captures());
    }
    assert_eq!(step.captures(), 3);
    drop(step);
    assert_eq!(private_bytes(device), 0);
}

#[test]
fn what_a_step_uploads_is_written_over_by_no_replay() {
    let Some(device) = gpu("graphs") else { return };
    let mut step = graph(|(): &mut (), args: &[Tensor]| {
        drop(args[0].add_scalar(5.0)?);
        let table = Tensor::from_slice_on(&[1.0f32, 2.0, 3.0], &[3], device)?;
        let sum = args[0].add(&table)?;
        drop(args[0].mul(&table)?);
        Ok(vec![sum.mul(&table)?])
    });
    for round in 0..5 {
        let x = Tensor::full(&[3], f64::from(round), device).unwrap();
        let y = step.call(&mut (), &[&x]).unwrap().remove(0).to_vec::<f32>().unwrap();
        let value = |table: f32| (round as f32 + table) * table;
        assert_eq!(y, [value(1.0), value(2.0), value(3.0)], "round {round}");
    }
}

fn refusal(mut step: impl FnMut(&Tensor) -> Result<Vec<Tensor>>) -> String {
    let x = Tensor::ones(&[2], (DType::F32, Device::Cpu)).unwrap();
    let mut step = graph(move |(): &mut (), args: &[Tensor]| step(&args[0]));
    step.call(&mut (), &[&x]).unwrap_err().to_string()
}

#[test]
fn what_can_not_be_replayed_is_refused_with_its_line() {
    let line = line!() + 1;
    let read = refusal(|x| Ok(vec![x.mul_scalar(x.sum()?.item()?)?]));
    let place = format!("graph: a value is read on the host at tests/it/graphs.rs:{line}: ");
    assert!(read.starts_with(&place), "{read}");
    let own = Generator::new(3);
    let other = refusal(|_| Ok(vec![own.rand(&[2], Device::Cpu)?]));
    assert_eq!(other, "graph: a step that is captured draws from the default generator only");
    let wants = Tensor::ones(&[2], Device::Cpu).unwrap().requires_grad_(true).unwrap();
    let mut step = graph(|(): &mut (), args: &[Tensor]| Ok(args.to_vec()));
    let error = step.call(&mut (), &[&wants]).unwrap_err().to_string();
    assert!(error.contains("requires a gradient"), "{error}");
    // Nothing of it is left on the thread.
    assert_eq!(wants.to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

#[test]
fn optimizers_with_numbers_in_their_launches_are_refused() {
    let weight = Tensor::ones(&[4, 4], Device::Cpu).unwrap().requires_grad_(true).unwrap();
    let gradient = no_grad(|| weight.mul_scalar(0.5)).unwrap();
    let mut muon = Muon::new(vec![weight.clone()], MuonOptions::default());
    weight.set_grad(Some(gradient.clone()));
    let mut step = graph(|optimizer: &mut Muon, _: &[Tensor]| {
        optimizer.step()?;
        Ok(Vec::new())
    });
    let error = step.call(&mut muon, &[&gradient]).unwrap_err().to_string();
    assert!(error.contains("an optimizer whose numbers"), "{error}");
    let mut sgd = Sgd::new(vec![weight.clone()], SgdOptions { lr: 0.1, ..Default::default() });
    let mut step = graph(|optimizer: &mut Sgd, _: &[Tensor]| {
        optimizer.step()?;
        Ok(Vec::new())
    });
    step.call(&mut sgd, &[&gradient]).unwrap();
    assert_eq!(weight.to_vec::<f32>().unwrap()[0], 1.0 - 0.1 * 0.5);
}

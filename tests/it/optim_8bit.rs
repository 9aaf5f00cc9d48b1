//! AdamW with moments of 8 bits.

use genesis::graph;
use genesis::io::{Checkpoint, Checkpoints, Keep};
use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::optim::{AdamW, AdamW8bit, AdamW8bitOptions, AdamWOptions, Optimizer, State};
use genesis::profiler::{GroupBy, ProfilerOptions, profile};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor};

/// The values of codes, as the paper tells them: `items` of each of seven decades, and what they begin with.
fn decades(items: impl Fn(u32) -> usize) -> Vec<f64> {
    let mut values = vec![0.0];
    for decade in 0..7 {
        let count = items(decade);
        let bound = |i: usize| 0.1 + 0.9 * i as f64 / count as f64;
        let mean = |i| (bound(i) + bound(i + 1)) / 2.0 * 10f64.powi(decade as i32 - 6);
        values.extend((0..count).map(mean));
    }
    values.push(1.0);
    values
}

/// Values of the codes of first moments, and of second ones.
fn books() -> [Vec<f64>; 2] {
    let positive = decades(|decade| 1 << decade);
    let negative = positive[1..128].iter().rev().map(|value| -value);
    let signed: Vec<f64> = negative.chain(positive.iter().copied()).collect();
    let unsigned = decades(|decade| 1 << (decade + 1));
    assert_eq!((signed.len(), unsigned.len()), (256, 256));
    [signed, unsigned]
}

/// The numbers that codes and scales stand for.
fn decoded(state: &State, name: &str, book: &[f64]) -> Result<Vec<f64>> {
    let codes = state.tensors[&format!("w/{name}")].to_vec::<u8>()?;
    let scales = state.tensors[&format!("w/{name}_scale")].to_vec::<f32>()?;
    let value = |(i, code): (usize, &u8)| book[usize::from(*code)] * f64::from(scales[i / 256]);
    Ok(codes.iter().enumerate().map(value).collect())
}

fn gradient(n: usize, device: Device) -> Result<Tensor> {
    // Seven decades of magnitudes, both signs, and zeros.
    let value = |i: usize| match i % 11 {
        0 => 0.0,
        k => (0.3 + (i % 97) as f32 / 97.0) * 10f32.powi(-(k as i32) / 2) * [1.0, -1.0][i % 2],
    };
    Tensor::from_slice_on(&(0..n).map(value).collect::<Vec<f32>>(), &[n], device)
}

#[test]
fn codes_are_the_nearest_and_a_first_step_is_that_of_adamw() -> Result<()> {
    // No whole number of scales, nor of what a program steps.
    const N: usize = 9001;
    for device in crate::gpu::devices("optim_8bit") {
        let dtypes = [DType::F32, DType::BF16];
        for dtype in dtypes {
            let begin = || Tensor::full(&[N], 0.5, (dtype, device))?.requires_grad_(true);
            let (w, whole) = (begin()?, begin()?);
            let named = |w: &Tensor| vec![("w".to_owned(), w.clone())];
            let mut optimizer = AdamW8bit::new(named(&w), AdamW8bitOptions::default());
            let mut other = AdamW::new(named(&whole), AdamWOptions::default());
            let g = gradient(N, device)?.to_dtype(dtype)?;
            w.set_grad(Some(g.clone()));
            whole.set_grad(Some(g.clone()));
            optimizer.step()?;
            other.step()?;
            assert_eq!(w.to_f64_vec()?, whole.to_f64_vec()?, "{dtype} on {device}");
            let (state, exact) = (optimizer.state_dict()?, other.state_dict()?);
            for (name, book) in ["exp_avg", "exp_avg_sq"].into_iter().zip(books()) {
                let found = decoded(&state, name, &book)?;
                let exact = exact.tensors[&format!("w/{name}")].to_f64_vec()?;
                for (block, wanted) in exact.chunks(256).enumerate() {
                    let scale = wanted.iter().fold(0f64, |most, x| most.max(x.abs()));
                    for (i, &x) in wanted.iter().enumerate() {
                        let off = |value: f64| (value * scale - x).abs();
                        let least = book.iter().map(|&value| off(value)).fold(f64::MAX, f64::min);
                        let got = found[block * 256 + i];
                        // A second moment that is positive stays so.
                        let is_kept =
                            name == "exp_avg_sq" && x > 0.0 && got > 0.0 && x < book[1] * scale;
                        let limit = least + 1e-6 * x.abs() + 1e-12 * scale;
                        assert!(is_kept || (got - x).abs() <= limit, "{name} {i}: {got} of {x}");
                        assert!(x == 0.0 || name == "exp_avg" || got > 0.0);
                    }
                }
            }
        }
    }
    Ok(())
}

fn net(device: Device) -> Result<Sequential> {
    let _own = thread_rng(1);
    Ok(Sequential::new()
        .with(Linear::new(64, 128, device)?)
        .with(Relu)
        .with(Linear::new(128, 64, device)?))
}

/// The losses of a network that learns to negate.
fn learn(
    net: &Sequential,
    optimizer: &mut dyn Optimizer,
    steps: std::ops::Range<u64>,
) -> Result<Vec<f64>> {
    let device = net.parameters()[0].device();
    let mut losses = Vec::new();
    for step in steps {
        let _own = thread_rng(100 + step);
        let x = Tensor::randn(&[32, 64], (DType::F32, device))?;
        optimizer.zero_grad();
        let loss = net.forward(&x)?.add(&x)?.square()?.mean()?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}

#[test]
fn a_network_learns_as_with_moments_in_f32() -> Result<()> {
    let whole = net(Device::Cpu)?;
    let of = AdamWOptions { lr: 2e-3, ..Default::default() };
    let whole = learn(&whole, &mut AdamW::new(whole.named_parameters(), of), 0..150)?;
    let coded = net(Device::Cpu)?;
    let of = AdamW8bitOptions { lr: 2e-3, ..Default::default() };
    let coded = learn(&coded, &mut AdamW8bit::new(coded.named_parameters(), of), 0..150)?;
    let mean = |losses: &[f64]| losses[140..].iter().sum::<f64>() / 10.0;
    let (whole_end, coded_end) = (mean(&whole), mean(&coded));
    assert!(whole_end < whole[0] / 5.0, "{whole_end} of {}", whole[0]);
    assert!((coded_end / whole_end - 1.0).abs() < 0.05, "{coded_end}, not {whole_end}");
    assert!(coded != whole, "moments were not rounded");
    Ok(())
}

#[test]
fn state_takes_a_quarter_and_a_run_goes_on_with_the_same_bits() -> Result<()> {
    let make = || -> Result<(Sequential, AdamW8bit)> {
        let net = net(Device::Cpu)?;
        let optimizer = AdamW8bit::new(net.named_parameters(), AdamW8bitOptions::default());
        Ok((net, optimizer))
    };
    let (net, mut optimizer) = make()?;
    let all = learn(&net, &mut optimizer, 0..8)?;
    let state = optimizer.state_dict()?;
    let bytes: usize = state.tensors.values().map(|t| t.numel() * t.dtype().bytes()).sum();
    let elements: usize = net.parameters().iter().map(Tensor::numel).sum();
    assert!(bytes * 100 < elements * 230, "{bytes} bytes of {elements} elements");
    // Biases are short: their moments are as they were.
    assert_eq!(state.tensors["0.bias/exp_avg"].dtype(), DType::F32);
    assert_eq!(state.tensors["0.weight/exp_avg"].dtype(), DType::U8);

    let (begun, mut first) = make()?;
    let mut parts = learn(&begun, &mut first, 0..3)?;
    let folder = tempfile::tempdir()?;
    let keep = Keep { last: 1, best: None };
    let checkpoints = Checkpoints::open(folder.path(), keep)?;
    let saved = Checkpoint {
        model: begun.state_dict(),
        states: [("optimizer".to_owned(), first.state_dict()?)].into(),
        ..Checkpoint::default()
    };
    let path = checkpoints.save(&saved)?;
    let read = Checkpoint::load(&path, Device::Cpu)?;
    let (resumed, mut second) = make()?;
    resumed.load_state_dict(&read.model)?;
    second.load_state_dict(read.state("optimizer")?)?;
    parts.extend(learn(&resumed, &mut second, 3..8)?);
    assert_eq!(parts, all);

    // The state of another optimizer is refused by name, not read as codes.
    let plain = AdamW::new(net.named_parameters(), AdamWOptions::default());
    let error = second.load_state_dict(&plain.state_dict()?).expect_err("it has other options");
    assert!(error.to_string().contains("load_state_dict: missing group.0/least"), "{error}");
    Ok(())
}

#[test]
fn a_step_is_two_launches_and_is_captured() -> Result<()> {
    for device in crate::gpu::devices("optim_8bit") {
        let net = net(device)?;
        let mut optimizer = AdamW8bit::new(net.named_parameters(), AdamW8bitOptions::default());
        learn(&net, &mut optimizer, 0..1)?;
        let (_, profile) = profile(ProfilerOptions::default(), |_| optimizer.step())?;
        let kernels = profile.key_averages(GroupBy::Kernel);
        let launches: u64 = kernels.rows().iter().map(|row| row.calls).sum();
        assert_eq!(launches, 2, "on {device}");
    }
    let Some(device) = crate::gpu::gpu("optim_8bit") else { return Ok(()) };
    let run = |captured: bool| -> Result<Vec<f64>> {
        let net = net(device)?;
        let mut optimizer = AdamW8bit::new(net.named_parameters(), AdamW8bitOptions::default());
        let x = Tensor::ones(&[4, 64], device)?;
        let step = |optimizer: &mut AdamW8bit, args: &[Tensor]| -> Result<Vec<Tensor>> {
            optimizer.zero_grad();
            let loss = net.forward(&args[0])?.add(&args[0])?.square()?.mean()?;
            loss.backward()?;
            optimizer.step()?;
            Ok(vec![loss.detach()])
        };
        if !captured {
            return (0..5)
                .map(|_| step(&mut optimizer, std::slice::from_ref(&x))?[0].item())
                .collect();
        }
        let mut steps = graph(step);
        (0..5).map(|_| steps.call(&mut optimizer, &[&x])?[0].item()).collect()
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}

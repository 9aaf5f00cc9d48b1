//! The loss of a linear layer without all logits in memory, beside the layer and the loss one after the other.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use genesis::amp::autocast;
use genesis::autograd::{BackwardOptions, GradOptions, grad, no_grad};
use genesis::data::SampleRng;
use genesis::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use genesis::nn::{Linear, LinearCrossEntropyLoss};
use genesis::ops::{Classes, LinearCrossEntropy, Reduction};
use genesis::{DType, Device, Tensor};
use genesis_kernel::tuning::Chip;
use genesis_kernel::tuning::logits::logit_rows;

/// A loss: inputs, a weight, perhaps a bias, targets, and what is asked for.
struct Case {
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    target: Tensor,
    options: LinearCrossEntropy,
}

/// The loss and the gradients of inputs, weight and bias, in f64.
type Slopes = Vec<Vec<f64>>;

fn values(rng: &mut SampleRng, shape: &[usize], scale: f64, device: Device) -> Result<Tensor> {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| scale * (2.0 * rng.uniform() - 1.0)).collect();
    Ok(Tensor::from_f64(&values, shape, (DType::F64, device))?)
}

/// What options there are, each with what goes with it.
fn options(rng: &mut SampleRng, v: usize, device: Device) -> Result<Vec<LinearCrossEntropy>> {
    let weight = values(rng, &[v], 0.5, device)?.add_scalar(1.0)?;
    let plain = LinearCrossEntropy::default;
    let of = |classes| LinearCrossEntropy { classes, ..plain() };
    let all = LinearCrossEntropy {
        classes: Classes {
            weight: Some(weight.clone()),
            ignore_index: 1,
            label_smoothing: 0.2,
            ..Classes::default()
        },
        softcap: Some(2.0),
        z_loss: 0.05,
    };
    Ok(vec![
        plain(),
        of(Classes { ignore_index: 0, ..Classes::default() }),
        of(Classes { label_smoothing: 0.1, ..Classes::default() }),
        of(Classes { weight: Some(weight), ..Classes::default() }),
        LinearCrossEntropy { softcap: Some(1.5), ..plain() },
        LinearCrossEntropy { z_loss: 0.1, ..plain() },
        all,
    ])
}

impl Case {
    fn new(
        rng: &mut SampleRng,
        [n, d, v]: [usize; 3],
        has_bias: bool,
        options: LinearCrossEntropy,
        device: Device,
    ) -> Result<Case> {
        let class = |_| match rng.below(4) {
            0 => options.classes.ignore_index,
            _ => rng.below(v) as i64,
        };
        let classes: Vec<i64> = (0..n).map(class).collect();
        Ok(Case {
            target: Tensor::from_slice_on(&classes, &[n], device)?,
            x: values(rng, &[n, d], 1.0, device)?,
            weight: values(rng, &[v, d], 1.0, device)?,
            bias: has_bias.then(|| values(rng, &[v], 1.0, device)).transpose()?,
            options,
        })
    }

    /// Leaves in a dtype, rounded to it.
    fn leaves(&self, dtype: DType) -> Result<Vec<Tensor>> {
        let all = [&self.x, &self.weight].into_iter().chain(&self.bias);
        all.map(|t| Ok(t.to_dtype(dtype)?.detach().requires_grad_(true)?)).collect()
    }

    /// The loss in one call.
    fn fused(&self, leaves: &[Tensor]) -> Result<Tensor> {
        let [x, weight, bias @ ..] = leaves else { anyhow::bail!("two leaves at least") };
        Ok(x.linear_cross_entropy(weight, bias.first(), &self.target, &self.options)?)
    }

    /// The loss by the layer and ops one after the other.
    fn composed(&self, leaves: &[Tensor]) -> Result<Tensor> {
        let LinearCrossEntropy { classes, softcap, z_loss } = &self.options;
        let [x, weight, bias @ ..] = leaves else { anyhow::bail!("two leaves at least") };
        let mut logits = x.matmul(&weight.t()?)?;
        if let Some(bias) = bias.first() {
            logits = logits.add(bias)?;
        }
        if let Some(cap) = *softcap {
            logits = logits.div_scalar(cap)?.tanh()?.mul_scalar(cap)?;
        }
        let loss = logits.cross_entropy_loss(&self.target, classes)?;
        let counts = self.target.ne_scalar(classes.ignore_index as f64)?.to_dtype(DType::F64)?;
        let square = logits.logsumexp(&[-1], false)?.square()?.mul(&counts)?.mul_scalar(*z_loss)?;
        let more = match (classes.reduction, &classes.weight) {
            (Reduction::None, _) => square,
            (Reduction::Sum, _) => square.sum()?,
            (Reduction::Mean, None) => square.sum()?.div(&counts.sum()?)?,
            (Reduction::Mean, Some(weight)) => {
                let safe = self.target.mul(&counts.to_dtype(DType::I64)?)?;
                square.sum()?.div(&weight.index_select(0, &safe)?.mul(&counts)?.sum()?)?
            }
        };
        Ok(loss.add(&more)?)
    }

    fn slopes(&self, loss: &Tensor, leaves: &[Tensor]) -> Result<Slopes> {
        // A slope that is not 1, and for each loss another.
        let dy: Vec<f64> = (0..loss.numel()).map(|i| 0.5 + (i % 7) as f64 / 7.0).collect();
        let dy = Tensor::from_f64(&dy, loss.shape(), (loss.dtype(), loss.device()))?;
        loss.backward_with(Some(&dy), BackwardOptions::default())?;
        let mut all = vec![loss.to_f64_vec()?];
        for leaf in leaves {
            all.push(leaf.grad().context("a gradient")?.to_f64_vec()?);
        }
        Ok(all)
    }

    /// Compares both in a dtype: values may be off by so much, as a share of the largest.
    fn check(&self, dtype: DType, share: f64) -> Result<()> {
        let leaves = self.leaves(dtype)?;
        let got = self.slopes(&self.fused(&leaves)?, &leaves)?;
        // The reference has the rounded values, in f64.
        let wide: Vec<Tensor> = leaves
            .iter()
            .map(|t| Ok(t.detach().to_dtype(DType::F64)?.requires_grad_(true)?))
            .collect::<Result<_>>()?;
        let want = self.slopes(&self.composed(&wide)?, &wide)?;
        for (what, (got, want)) in ["loss", "dx", "dw", "db"].iter().zip(got.iter().zip(&want)) {
            near(got, want, share).with_context(|| {
                let shapes = [self.x.shape(), self.weight.shape()];
                format!("{what} of {shapes:?} in {dtype}, {:?}", self.options)
            })?;
        }
        Ok(())
    }
}

/// Values that are off by no more than a share of the largest.
fn near(got: &[f64], want: &[f64], share: f64) -> Result<()> {
    ensure!(got.len() == want.len(), "{} and not {}", got.len(), want.len());
    let largest = want.iter().fold(1e-3f64, |most, v| most.max(v.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let is_near = (got - want).abs() <= share * largest || got.is_nan() && want.is_nan();
        ensure!(is_near, "element {i} is {got} and not {want}");
    }
    Ok(())
}

const REDUCTIONS: [Reduction; 3] = [Reduction::Mean, Reduction::Sum, Reduction::None];

/// Dtypes, and how far their results may be off.
const DTYPES: [(DType, f64); 4] =
    [(DType::F64, 1e-11), (DType::F32, 1e-5), (DType::BF16, 3e-2), (DType::F16, 4e-3)];

#[test]
fn every_option_in_every_dtype() -> Result<()> {
    for device in crate::gpu::devices("losses of a linear layer") {
        let mut rng = SampleRng::new(7);
        for (at, shape) in [[1, 3, 7], [5, 4, 2], [9, 16, 33], [4, 8, 300]].into_iter().enumerate()
        {
            for (number, options) in options(&mut rng, shape[2], device)?.into_iter().enumerate() {
                for reduction in REDUCTIONS {
                    let classes = Classes { reduction, ..options.classes.clone() };
                    let options = LinearCrossEntropy { classes, ..options.clone() };
                    let has_bias = (at + number) % 2 == 0;
                    let case = Case::new(&mut rng, shape, has_bias, options, device)?;
                    for (dtype, share) in DTYPES {
                        case.check(dtype, share)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Rows of several chunks, the last shorter than the others.
#[test]
fn chunks_give_the_losses_of_the_whole() -> Result<()> {
    let device = Device::Cpu;
    let mut rng = SampleRng::new(8);
    let [n, d, v] = [500, 5, 20_001];
    let rows = logit_rows(&Chip::Cpu, n, v, 4);
    ensure!(rows < n && n % rows != 0, "{rows} rows are a chunk");
    for options in
        [options(&mut rng, v, device)?.remove(0), options(&mut rng, v, device)?.remove(6)]
    {
        for reduction in [Reduction::Mean, Reduction::None] {
            let classes = Classes { reduction, ..options.classes.clone() };
            let options = LinearCrossEntropy { classes, ..options.clone() };
            let case =
                Case::new(&mut rng, [n, d, v], reduction == Reduction::None, options, device)?;
            for (dtype, share) in [DTYPES[1], DTYPES[2]] {
                case.check(dtype, share)?;
            }
        }
    }
    Ok(())
}

/// Products over classes are cut into parts on a GPU, of which the last is shorter.
#[test]
fn classes_are_summed_in_parts() -> Result<()> {
    for device in crate::gpu::devices("losses of a linear layer") {
        let mut rng = SampleRng::new(14);
        let options = LinearCrossEntropy::default();
        let case = Case::new(&mut rng, [3, 8, 2500], false, options, device)?;
        for (dtype, share) in [DTYPES[1], DTYPES[2]] {
            case.check(dtype, share)?;
        }
    }
    Ok(())
}

#[test]
fn rows_that_do_not_count() -> Result<()> {
    for device in crate::gpu::devices("losses of a linear layer") {
        let mut rng = SampleRng::new(9);
        let mut case = Case::new(&mut rng, [3, 4, 5], true, LinearCrossEntropy::default(), device)?;
        case.target = Tensor::from_slice_on(&[-100i64; 3], &[3], device)?;
        for (reduction, want) in [
            (Reduction::Mean, vec![f64::NAN]),
            (Reduction::Sum, vec![0.0]),
            (Reduction::None, vec![0.0; 3]),
        ] {
            case.options.classes.reduction = reduction;
            let leaves = case.leaves(DType::F32)?;
            let got = case.slopes(&case.fused(&leaves)?, &leaves)?;
            near(&got[0], &want, 0.0)?;
            ensure!(got[1..].iter().flatten().all(|&slope| slope == 0.0), "{got:?}");
        }
        // There are none at all.
        let none = Case {
            x: case.x.narrow(0, 0, 0)?,
            target: case.target.narrow(0, 0, 0)?,
            options: LinearCrossEntropy {
                classes: Classes { reduction: Reduction::Sum, ..Classes::default() },
                ..Default::default()
            },
            ..case
        };
        let leaves = none.leaves(DType::F32)?;
        let got = none.slopes(&none.fused(&leaves)?, &leaves)?;
        ensure!(got.iter().flatten().all(|&value| value == 0.0), "{got:?}");
    }
    Ok(())
}

/// A second backward of a graph that is kept computes what the first took away, and what is wanted is all there is.
#[test]
fn a_graph_goes_backward_again() -> Result<()> {
    let mut rng = SampleRng::new(10);
    for reduction in REDUCTIONS {
        let options = LinearCrossEntropy {
            classes: Classes { reduction, ..Classes::default() },
            ..LinearCrossEntropy::default()
        };
        let case = Case::new(&mut rng, [6, 4, 9], true, options, Device::Cpu)?;
        let leaves = case.leaves(DType::F32)?;
        let loss = case.fused(&leaves)?.sum()?;
        let keep = GradOptions { retain_graph: true, ..GradOptions::default() };
        let all: Vec<&Tensor> = leaves.iter().collect();
        let first = grad(&[&loss], &all, keep)?;
        let second = grad(&[&loss], &all[1..], keep)?;
        for (a, b) in first[1..].iter().zip(&second) {
            let [a, b] =
                [a, b].map(|t| t.as_ref().context("a gradient").and_then(|t| Ok(t.to_f64_vec()?)));
            near(&a?, &b?, 1e-6)?;
        }
        // No gradient, no work for one.
        let alone = no_grad(|| case.fused(&leaves))?;
        near(&alone.sum()?.to_f64_vec()?, &loss.to_f64_vec()?, 1e-6)?;
    }
    Ok(())
}

#[test]
fn gradients_have_gradients() -> Result<()> {
    let mut rng = SampleRng::new(11);
    for options in options(&mut rng, 5, Device::Cpu)? {
        for reduction in REDUCTIONS {
            let classes = Classes { reduction, ..options.classes.clone() };
            let options = LinearCrossEntropy { classes, ..options.clone() };
            let case = Case::new(&mut rng, [4, 3, 5], true, options, Device::Cpu)?;
            let second = |loss: &dyn Fn(&[Tensor]) -> Result<Tensor>| -> Result<Vec<Vec<f64>>> {
                let leaves = case.leaves(DType::F64)?;
                let all: Vec<&Tensor> = leaves.iter().collect();
                let create = GradOptions { create_graph: true, ..GradOptions::default() };
                let first = grad(&[&loss(&leaves)?.square()?.sum()?], &all, create)?;
                let squares = first.iter().flatten().map(|g| g.square()?.sum());
                let squares = squares.collect::<genesis::Result<Vec<_>>>()?;
                let sum = Tensor::stack(&squares.iter().collect::<Vec<_>>(), 0)?.sum()?;
                let found = grad(&[&sum], &all, GradOptions::default())?;
                found.iter().flatten().map(|g| Ok(g.to_f64_vec()?)).collect()
            };
            let (got, want) = (second(&|x| case.fused(x))?, second(&|x| case.composed(x))?);
            ensure!(got.len() == 3);
            for (got, want) in got.iter().zip(&want) {
                near(got, want, 1e-9)?;
            }
        }
    }
    Ok(())
}

/// Under autocast logits are in 16 bits, the loss is f32, and the gradient of an f32 weight is summed in f32.
#[test]
fn under_autocast_weights_keep_their_dtype() -> Result<()> {
    for device in crate::gpu::devices("losses of a linear layer") {
        let mut rng = SampleRng::new(12);
        let case = Case::new(&mut rng, [40, 16, 33], true, LinearCrossEntropy::default(), device)?;
        for half in [DType::BF16, DType::F16] {
            let leaves = case.leaves(DType::F32)?;
            let loss = autocast(half, || Ok(case.fused(&leaves)))??;
            ensure!(loss.dtype() == DType::F32, "{}", loss.dtype());
            let got = case.slopes(&loss, &leaves)?;
            ensure!(leaves.iter().all(|leaf| leaf.grad().is_some_and(|g| g.dtype() == DType::F32)));
            let wide = case.leaves(DType::F64)?;
            let want = case.slopes(&case.composed(&wide)?, &wide)?;
            for (got, want) in got.iter().zip(&want) {
                near(got, want, 2e-2)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_layer_is_the_function() -> Result<()> {
    let layer = Linear::new(4, 6, Device::Cpu)?;
    let x = Tensor::randn(&[2, 3, 4], Device::Cpu)?;
    let target = Tensor::from_slice_on(&[0i64, 5, 2, -100, 1, 1], &[2, 3], Device::Cpu)?;
    let mut loss = LinearCrossEntropyLoss::default();
    loss.options.classes.reduction = Reduction::None;
    let got = loss.forward(&x, &layer, &target)?;
    ensure!(got.shape() == [2, 3]);
    let want = layer.forward(&x)?.cross_entropy(&target, Reduction::None)?;
    near(&got.to_f64_vec()?, &want.to_f64_vec()?, 1e-6)
}

/// Extents at which all logits are half a gigabyte.
const LARGE: [usize; 3] = [4096, 8, 32_768];

/// Prints what memory a loss and its gradients take; only in a process of its own.
#[test]
fn measured() -> Result<()> {
    if std::env::var_os("GENESIS_TEST_LOGITS").is_none() {
        return Ok(());
    }
    let mut rng = SampleRng::new(13);
    let case = Case::new(&mut rng, LARGE, false, LinearCrossEntropy::default(), Device::Cpu)?;
    let leaves = case.leaves(DType::F32)?;
    let before = memory_allocated(Device::Cpu)?;
    reset_peak_memory_stats(Device::Cpu)?;
    case.fused(&leaves)?.backward()?;
    println!("\npeak {}", max_memory_allocated(Device::Cpu)? - before);
    Ok(())
}

#[test]
fn logits_are_never_all_in_memory() -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    let arguments =
        ["linear_cross_entropy::measured", "--exact", "--nocapture", "--test-threads=1"];
    let output = command.args(arguments).env("GENESIS_TEST_LOGITS", "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("peak "));
    let peak: usize = line.with_context(|| said.clone())?.parse()?;
    let [n, d, v] = LARGE;
    let rows = logit_rows(&Chip::Cpu, n, v, 4);
    // Logits of a chunk, gradients, and a little for each row.
    let most = 4 * (rows * v + v * d + n * d + 16 * n);
    ensure!(rows * v * 4 <= 32 << 20 && peak <= most, "{peak} bytes, {most} are expected at most");
    Ok(())
}

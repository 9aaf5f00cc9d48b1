//! The ops that are timed: what each has to move, how its buffers are made, how its result is checked.
//!
//! Ours is called as a user calls it, through tensors, so that a faster kernel is measured without a
//! change here. Each result is compared with f64 on the host before anything is timed: all of it where
//! that is quick, else rows or elements spread over it.

mod attention;
mod conv;
mod elementwise;
mod matmul;
mod paged;
mod quantized;
mod reduce;
mod rows;
mod update;

use genesis::{Device, Tensor};
use genesis_kernel::inspect;

use crate::name::CaseName;
use crate::roofline::Work;

/// An op of the table.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// Its name in cases.
    pub(crate) name: &'static str,
    /// What it must move and compute.
    pub(crate) work: fn(&CaseName) -> Work,
    /// Makes it ready; [`Missing`] while the framework lacks the op.
    pub(crate) prepare: fn(&Setup<'_>) -> anyhow::Result<Prepared>,
}

/// The framework has no such op yet: the case is counted and not timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing;

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("missing: the framework has no such op yet")
    }
}

impl std::error::Error for Missing {}

/// Every op.
pub(crate) fn all() -> Vec<Op> {
    let groups = [elementwise::ops(), rows::ops(), reduce::ops(), matmul::ops(), update::ops()];
    [groups.concat(), attention::ops(), paged::ops(), conv::ops(), quantized::ops()].concat()
}

/// What a case is made ready with.
pub(crate) struct Setup<'a> {
    pub(crate) name: &'a CaseName,
    pub(crate) device: Device,
    /// How many sets of buffers take turns.
    pub(crate) sets: usize,
}

impl Setup<'_> {
    /// A tensor of normal values in the case's dtype.
    pub(crate) fn randn(&self, shape: &[usize]) -> genesis::Result<Tensor> {
        let dtype = self.name.dtype();
        if dtype.is_f8() {
            return Tensor::randn(shape, self.device)?.to_dtype(dtype);
        }
        Tensor::randn(shape, (dtype, self.device))
    }

    /// One of what `make` makes for each set.
    pub(crate) fn each<T>(&self, make: impl Fn() -> genesis::Result<T>) -> anyhow::Result<Vec<T>> {
        Ok((0..self.sets).map(|_| make()).collect::<genesis::Result<_>>()?)
    }

    /// The first two extents.
    pub(crate) fn matrix(&self) -> anyhow::Result<(usize, usize)> {
        match self.name.dims[..] {
            [m, n] => Ok((m, n)),
            _ => anyhow::bail!("{} needs a shape such as 64x128", self.name.text),
        }
    }

    /// Three extents.
    pub(crate) fn three(&self) -> anyhow::Result<(usize, usize, usize)> {
        match self.name.dims[..] {
            [a, b, c] => Ok((a, b, c)),
            _ => anyhow::bail!("{} needs three extents", self.name.text),
        }
    }
}

/// Runs an op on one set of buffers.
type Run = Box<dyn FnMut(usize) -> genesis::Result<()>>;

/// A case ready to be timed.
pub(crate) struct Prepared {
    /// Gives one call on the buffers of a set to the device.
    pub(crate) run: Run,
    /// How far the result is from f64, relative to its size.
    pub(crate) error: f64,
}

impl Prepared {
    /// An op on sets of buffers: checked on the first set. Each result lives until its set's next
    /// turn, so that results take turns in memory as operands do.
    pub(crate) fn new<S: 'static, O: 'static>(
        sets: Vec<S>,
        op: impl Fn(&S) -> genesis::Result<O> + 'static,
        check: impl FnOnce(&S, &O) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Prepared> {
        let first = op(&sets[0])?;
        let error = check(&sets[0], &first)?;
        drop(first);
        let mut results: Vec<Option<O>> = sets.iter().map(|_| None).collect();
        let run = move |set: usize| {
            results[set] = Some(op(&sets[set])?);
            Ok(())
        };
        Ok(Prepared { run: Box::new(run), error })
    }

    /// What one call launches, and what its kernels' IR moves and computes.
    pub(crate) fn launched(&mut self) -> anyhow::Result<Launched> {
        let (outcome, launches) = inspect::launches(|| (self.run)(0));
        outcome?;
        Ok(Launched {
            count: launches.len(),
            bytes: launches.iter().map(|one| one.bytes() as f64).sum(),
            flops: launches.iter().map(|one| one.flops() as f64).sum(),
        })
    }
}

/// What one call of an op gives to the device, by the IR of its kernels with every lane on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Launched {
    /// Kernels.
    pub(crate) count: usize,
    /// Bytes loaded and stored, those that are found in the cache among them.
    pub(crate) bytes: f64,
    /// Floating-point operations.
    pub(crate) flops: f64,
}

/// The largest distance between two lists, relative to what is wanted or to `scale`, whichever is
/// larger. What is no number is infinitely far.
pub(crate) fn distance(got: &[f64], want: &[f64], scale: f64) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    let one = |(g, w): (&f64, &f64)| {
        let distance = (g - w).abs() / w.abs().max(scale).max(f64::MIN_POSITIVE);
        if g == w {
            0.0
        } else if distance.is_nan() {
            f64::INFINITY
        } else {
            distance
        }
    };
    got.iter().zip(want).map(one).fold(0.0, f64::max)
}

/// The largest distance that is not an error, given what the result is rounded to.
pub(crate) fn tolerance(precision: &str) -> f64 {
    match precision {
        "bf16" => 1e-2,
        "f16" => 2e-3,
        "tf32" => 4e-3,
        // Rounded to bf16, after sums of 13 bits.
        "f8e4m3" | "f8e5m2" => 2e-2,
        "f64" => 1e-12,
        _ => 2e-5,
    }
}

/// Up to `count` indices below `n`, the first and the last among them, spread unevenly so that they
/// fall on different lanes and tiles.
pub(crate) fn sample(n: usize, count: usize) -> Vec<usize> {
    if n <= count {
        return (0..n).collect();
    }
    let mut picked: Vec<usize> = (0..count).map(|i| (i * n / count + i * 37) % n).collect();
    picked.push(n - 1);
    picked.sort_unstable();
    picked.dedup();
    picked
}

/// Row `index` of a matrix as f64.
pub(crate) fn row(t: &Tensor, index: usize) -> genesis::Result<Vec<f64>> {
    t.narrow(0, index, 1)?.to_f64_vec()
}

/// Column `index` of a matrix as f64.
pub(crate) fn column(t: &Tensor, index: usize) -> genesis::Result<Vec<f64>> {
    t.narrow(1, index, 1)?.to_f64_vec()
}

/// The largest distance over sampled rows of a result; `want` makes a row.
pub(crate) fn check_rows(
    got: &Tensor,
    scale: f64,
    want: impl Fn(usize) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<f64> {
    let mut worst = 0.0f64;
    for index in sample(got.shape()[0], 12) {
        worst = worst.max(distance(&row(got, index)?, &want(index)?, scale));
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small case of every op, and of what its variants do.
    const SMALL: [&str; 50] = [
        "add/f32/33x70",
        "add/bf16/33x70",
        "gelu/bf16/33x70",
        "silu/bf16/33x70",
        "exp/bf16/33x70",
        "add_row/f32/33x70",
        "add_column/f32/33x70",
        "transpose/bf16/33x70",
        "fused_chain/f32/3000",
        "softmax/f32/20x100",
        "softmax/bf16/20x1000",
        "layer_norm/bf16/20x100",
        "layer_norm_bwd/bf16/20x100",
        "layer_norm_bwd/f32/20x100",
        "rms_norm/bf16/20x100",
        "rms_norm_bwd/bf16/20x100",
        "sum/f32/4x12x70/axis=all",
        "sum/f32/4x12x70/axis=-1",
        "sum/f32/4x12x70/axis=0,1",
        "sum/bf16/40x70/axis=0",
        "argmax/f32/20x100",
        "cross_entropy/bf16/20x100/fwd",
        "cross_entropy/f32/20x100/fwd+bwd",
        "matmul/bf16/65/nn",
        "matmul/f16/65/nt",
        "matmul/f32/65/tn",
        "linear/bf16/m5k30n70",
        "linear/bf16/m1k64n70",
        "matmul_bias_gelu/bf16/65",
        "adamw/f32/1000",
        "embedding_bwd/bf16/30x100x20",
        "cumsum/f32/20x100",
        "matmul/tf32/65/nn",
        "matmul/f8e4m3/65/nt",
        "matmul/f8e5m2/65/nn/fast",
        "attention/f32/b2h3s37d24/causal",
        "attention/bf16/b1h4g2s70d16",
        "attention/f32/b4h2s70d16/varlen/causal",
        "paged_attention/f32/b3h4g2n1s70d16",
        "paged_attention/bf16/b2h4g1n20s37d16",
        "attention_bwd/f32/b4h2s70d16/varlen",
        "attention_bwd/f32/b2h3s37d24",
        "attention_bwd/f32/b1h4g2s37d16/causal/deterministic",
        "attention_bwd/bf16/b1h2s70d32/causal/flash",
        "conv2d/bf16/2x4x5x6/3x3",
        "conv2d/f32/2x4x5x6/3x3/dx",
        "conv2d/f32/2x4x5x6/3x3/dw",
        "conv2d/f32/2x4x5x6/3x3/last",
        "quantized_linear/bf16/m3k128n9/int8",
        "quantized_linear/f32/m1k128n9/int4/g32/min",
    ];

    #[test]
    fn every_op_is_right_on_the_cpu() {
        let ops = all();
        for text in SMALL {
            let name = CaseName::parse(text).unwrap();
            let op = ops.iter().find(|op| op.name == name.op).unwrap();
            assert!((op.work)(&name).bytes > 0.0, "{text} moves nothing");
            let setup = Setup { name: &name, device: Device::Cpu, sets: 2 };
            let mut prepared = match (op.prepare)(&setup) {
                Ok(prepared) => prepared,
                Err(error) if error.is::<Missing>() => continue,
                Err(error) => panic!("{text}: {error}"),
            };
            let limit = tolerance(&name.precision);
            assert!(prepared.error <= limit, "{text} is off by {}", prepared.error);
            assert!(prepared.launched().unwrap().bytes >= 0.0);
            for set in [0, 1, 0] {
                (prepared.run)(set).unwrap();
            }
        }
        let untested: Vec<&str> = ops
            .iter()
            .map(|op| op.name)
            .filter(|name| !SMALL.iter().any(|text| text.split('/').next() == Some(name)))
            .collect();
        assert!(untested.is_empty(), "no small case of {untested:?}");
    }

    #[test]
    fn what_streams_moves_by_its_ir_what_it_must() {
        for text in ["add/f32/64x4096", "gelu/bf16/64x4096", "softmax/f32/64x1024"] {
            let name = CaseName::parse(text).unwrap();
            let op = all().into_iter().find(|op| op.name == name.op).unwrap();
            let setup = Setup { name: &name, device: Device::Cpu, sets: 1 };
            let launched = (op.prepare)(&setup).unwrap().launched().unwrap();
            assert_eq!((launched.count, launched.bytes), (1, (op.work)(&name).bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_far() {
        assert_eq!(distance(&[1.0, f64::NAN], &[1.0, 1.0], 0.0), f64::INFINITY);
        assert_eq!(distance(&[1.5], &[1.0], 2.0), 0.25);
        assert_eq!(distance(&[], &[1.0], 1.0), f64::INFINITY);
    }

    #[test]
    fn samples_hold_both_ends() {
        let picked = sample(8192, 12);
        assert!(picked.len() >= 10 && picked[0] == 0 && picked.contains(&8191));
        assert_eq!(sample(3, 12), [0, 1, 2]);
    }
}

//! What an op of the table is, and a case of it that is ready to be timed.

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
        if dtype.bytes() == 1 {
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

//! What follows products of rows in their own launch, as arguments: see [`kernels::epilogue`].

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::linear::{FEW_ROWS, PAIRED};

use super::deferred_norm::{DeferredNorm, Gain};
use super::{number, reduce, turned, view, view_of};
use crate::error::Result;
use crate::tensor::Tensor;

/// The activation of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// `x sigmoid(x)`: SwiGLU.
    Silu,
    /// Exact GELU: GEGLU.
    Gelu,
    /// GELU by tanh, as Gemma has it.
    GeluTanh,
}

/// What is done to a product before it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Epilogue<'t> {
    Nothing,
    /// Adds a dense tensor of the product's shape and dtype.
    Add(&'t Tensor),
    /// The first half of the outputs, opened as a gate, lets the second half through.
    Gate(Gate),
}

impl<'t> Epilogue<'t> {
    /// What is added.
    pub(crate) fn added(&self) -> Option<&'t Tensor> {
        match *self {
            Epilogue::Add(other) => Some(other),
            _ => None,
        }
    }

    /// The function of the gate.
    pub(super) fn gate(&self) -> Option<Gate> {
        match *self {
            Epilogue::Gate(gate) => Some(gate),
            _ => None,
        }
    }
}

/// What is one launch with a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fusion<'t> {
    /// The norm in front, whose weighted rows the product takes.
    pub(crate) norm: Option<&'t DeferredNorm>,
    /// What follows the product.
    pub(crate) then: Epilogue<'t>,
    /// The weights of the norm behind, and where the results times them go.
    pub(crate) next: Option<(Gain<'t>, &'t Tensor)>,
}

impl<'t> Fusion<'t> {
    /// A product and what follows it.
    pub(crate) fn of(then: Epilogue<'t>) -> Fusion<'t> {
        Fusion { norm: None, then, next: None }
    }
}

/// A tile whose outputs are gates and what they let through in turns, and the weight `[2 m, k]` as it reads it: see
/// [`mod@kernels::linear_tiles::linear_tiles_paired`].
pub(super) struct PairedTile {
    /// Bands of a tile: as many gates as lie side by side, and what these let through.
    pub(super) bands: usize,
    /// Gates of a tile.
    pub(super) half: usize,
    pub(super) shape: [usize; 4],
    pub(super) strides: [i64; 4],
}

impl PairedTile {
    /// For tiles of so many outputs of a weight of `m` gates.
    pub(super) fn of(outputs: usize, m: usize, k: usize) -> PairedTile {
        PairedTile {
            bands: outputs / (2 * PAIRED),
            half: outputs / 2,
            shape: [m / PAIRED, 2, PAIRED, k],
            strides: [PAIRED * k, m * k, k, 1].map(|n| n as i64),
        }
    }
}

/// How a product is scaled for the norm in front of it.
pub(super) struct Scaling {
    /// 0 for not at all, 1 by the rows before the norm and 3 by the only one, 2 by what is known of them.
    pub(super) kind: i64,
    /// These rows, and these scales.
    pub(super) views: [Arg; 2],
    pub(super) eps: Arg,
}

impl Scaling {
    /// Of `n` rows: few are summed up by each program for itself.
    pub(super) fn of(norm: Option<&DeferredNorm>, n: usize, x: &Tensor) -> Result<Scaling> {
        let rows = || view(x, &[0, 0], &[1, 1], false);
        let none = Tensor::uninitialized(&[0], (DType::F32, x.device()))?;
        let eps = number(DType::F32, norm.map_or(0.0, DeferredNorm::eps));
        let (kind, views) = match norm {
            None => (0, [rows(), view_of(&none, false)]),
            Some(norm) if n <= FEW_ROWS && norm.known_scales().is_none() => {
                let kind = if n == 1 { 3 } else { 1 };
                (kind, [turned(norm.of(), false), view_of(&none, false)])
            }
            Some(norm) => (2, [rows(), view_of(norm.scales()?, false)]),
        };
        Ok(Scaling { kind, views, eps })
    }
}

/// What is added to a product, and what the norm behind makes of it.
pub(super) struct Additions {
    /// Whether something is added, and whether there is a norm behind.
    pub(super) kinds: [i64; 2],
    pub(super) added: Arg,
    /// The norm's weights.
    pub(super) gain: Arg,
    /// Where the results times them go.
    pub(super) next: Arg,
    pub(super) offset: Arg,
}

impl Additions {
    /// Of a fusion without a gate.
    pub(super) fn of(fusion: &Fusion<'_>, x: &Tensor, y: &Tensor) -> Additions {
        let added = match fusion.then.added() {
            Some(other) => turned(other, false),
            None => view(y, &[0, 0], &[1, 1], false),
        };
        let (gain, next, offset) = match fusion.next {
            Some((gain, next)) => (view_of(gain.weight, false), turned(next, true), gain.offset),
            None => (view(x, &[0], &[1], false), view(y, &[0, 0], &[1, 1], true), 0.0),
        };
        let kinds = [fusion.then.added().is_some(), fusion.next.is_some()].map(i64::from);
        Additions { kinds, added, gain, next, offset: number(DType::F32, offset) }
    }
}

/// Room for the sums of `tiles` of so many numbers, each of which so many programs share, and zeros to count them with.
/// Where nothing is shared, one number each that nobody reads.
pub(super) fn shared_sums(
    on: Device,
    shares: usize,
    tiles: usize,
    numbers: usize,
) -> Result<[Tensor; 2]> {
    let (all, counted) = if shares > 1 { (shares * tiles * numbers, tiles) } else { (1, 1) };
    let sums = Tensor::uninitialized(&[all], (DType::F32, on))?;
    Ok([sums, reduce::counters(on, counted)?])
}

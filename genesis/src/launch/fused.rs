//! Launches of composed kernels: how much a program takes, and the views of the tensors.

use genesis_kernel::compose::Form;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device, PtrArg, ViewArg};
use genesis_kernel::tuning::elementwise::{Flat, Tile};
use genesis_kernel::tuning::reductions::Reduction;

use super::config::chip;
use super::upright::upright_view;
use super::{base, launch_with, own_view};
use crate::error::Result;
use crate::shape::Axes;
use crate::tensor::Tensor;

/// What a composed kernel walks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// How.
    pub(crate) form: Form,
    /// Whether what is reduced by rows lies with the rows beside one another.
    pub(crate) is_turned: bool,
    /// The extents, outermost first, 1 before those there are.
    pub(crate) dims: [usize; 4],
    /// Reductions of what is walked, at least 1.
    pub(crate) folds: usize,
    /// Tensors that are read or written.
    pub(crate) tensors: usize,
    /// Bytes of an element of the widest.
    pub(crate) bytes: usize,
}

/// Constants and grid of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// The kernel's constants.
    pub(crate) consts: Vec<i64>,
    /// Programs, of one part of the rows where those have parts.
    pub(crate) grid: usize,
    /// Programs that share a row: the second axis of the grid, whose number has a sign that the compiler knows.
    pub(crate) parts: usize,
    warps: Option<u32>,
}

/// Elements of one tile of a fused reduction: each is computed before it is added.
const FOLDED: usize = 4096;

impl Walk {
    /// How the walk is cut on a device.
    pub(crate) fn size(&self, device: Device) -> Size {
        let ([d0, d1, rows, cols], chip) = (self.dims, &chip(device));
        // Each reduction keeps a tile.
        let kept = self.folds.next_power_of_two();
        match self.form {
            Form::Flat => {
                let Flat { block, warps } = Flat::of_tensors(chip, self.tensors, self.bytes);
                Size { consts: vec![block as i64], grid: cols.div_ceil(block), parts: 1, warps }
            }
            Form::Matrix | Form::Strided => {
                let programs =
                    |tile: Tile| d0 * d1 * rows.div_ceil(tile.rows) * cols.div_ceil(tile.cols);
                let whole = Tile::of(chip, self.bytes, rows, cols);
                let tile = whole.spread(chip, programs(whole));
                let (grid, Tile { rows: m, cols: n, warps }) = (programs(tile), tile);
                Size { consts: vec![m as i64, n as i64], grid, parts: 1, warps }
            }
            Form::Rows if self.is_turned => {
                // The tile of a sum of columns, and its rows are those.
                let Reduction { rows: n, cols: m, parts, warps } =
                    Reduction::of(chip, [1, cols, rows.max(2)], self.bytes * kept);
                Size { consts: vec![m as i64, n as i64], grid: rows.div_ceil(m), parts, warps }
            }
            Form::Rows => {
                let Reduction { rows: m, cols: n, parts, warps } =
                    Reduction::of(chip, [rows, cols, 1], self.bytes);
                let n = n.min(FOLDED / kept);
                let consts = vec![m as i64, n as i64];
                Size { consts, grid: rows.div_ceil(m), parts, warps }
            }
        }
    }
}

/// A view of one of the tensors at hand.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Which.
    pub(crate) slot: usize,
    /// The first element, counted from the tensor's own.
    pub(crate) offset: i64,
    /// Extents.
    pub(crate) dims: Vec<i64>,
    /// Strides in elements.
    pub(crate) strides: Vec<i64>,
    /// Whether it is written.
    pub(crate) mutable: bool,
}

/// Launches a composed kernel on some of the tensors at hand; the last of the operands is written.
pub(crate) fn composed(
    kernel: &'static KernelDef,
    size: &Size,
    operands: &[Operand],
    tensors: &[Option<Tensor>],
    numbers: &[Arg],
) -> Result<()> {
    let tensor = |operand: &Operand| {
        tensors[operand.slot].as_ref().expect("a tensor is made before it is used")
    };
    let Some(on) = operands.last().map(tensor).filter(|on| on.numel() > 0) else { return Ok(()) };
    let mut args = Vec::with_capacity(operands.len() + numbers.len());
    // The copies stay until the launch.
    let mut copies = Vec::new();
    for operand in operands {
        match upright(tensor(operand), operand)? {
            Some(copy) => {
                args.push(own_view(&copy, false));
                copies.push(copy);
            }
            None => args.push(view(tensor(operand), operand)),
        }
    }
    args.extend_from_slice(numbers);
    launch_with(kernel, on, Grid::xy(size.grid, size.parts), &[], &size.consts, size.warps, &args)
}

/// A copy of an operand that lies across the walk: see [`upright`](super::upright).
fn upright(t: &Tensor, operand: &Operand) -> Result<Option<Tensor>> {
    if operand.mutable || t.device().is_cuda() {
        return Ok(None);
    }
    let first = (t.layout().start() as i64).checked_add(operand.offset);
    let Some(first) = first.and_then(|first| usize::try_from(first).ok()) else { return Ok(None) };
    let dims: Axes<usize> = operand.dims.iter().map(|&extent| extent as usize).collect();
    upright_view(t, &dims, &operand.strides, first)
}

fn view(t: &Tensor, operand: &Operand) -> Arg {
    let PtrArg { device, address, bytes, dtype, .. } = base(t, operand.mutable);
    // An operand counts from the lowest element, which is not the first where a stride is negative.
    let first = (t.layout().offset() - t.layout().start()) as i64;
    let skipped = (operand.offset - first) * dtype.bytes() as i64;
    let address = address.wrapping_add_signed(skipped);
    let bytes = bytes.saturating_sub_signed(skipped);
    let ptr = PtrArg { device, address, bytes, dtype, mutable: operand.mutable };
    let view = ViewArg::new(ptr, &operand.dims, &operand.strides);
    Arg::View(view.expect("a composed kernel's views have at most 4 axes"))
}

//! The smallest of rows without a sort: the positions of `k`, and of one of any rank.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use kernels::radix_select as device;

use super::radix::{Keys, Pairs, ROW, begin, number};
use crate::error::Result;
use crate::launch;
use crate::launch::select_cpu::{self, Wanted};
use crate::ops::index::exclusive;
use crate::tensor::Tensor;

/// Keys of a thread on a GPU: as many as counters of 4 bits count.
const WIDTH: usize = 8;
/// Threads of a program that has a part of a row, and its warps.
const LANES: usize = 256;
const WARPS: u32 = 8;
/// Keys of a part, at most: counters of 16 bits hold them.
const PART: usize = 32_768;
/// Bits that a pass on a GPU counts by.
const COUNTED_BITS: usize = 4;
/// Programs that have a part of a row each, in all.
const PROGRAMS: usize = 2048;
/// Counts of parts that one program adds up at a time.
const COUNTS: usize = 64;

/// The positions of the `k` smallest elements of each row of `x: [rows, n]`, in the order in which they stand: `[rows, k]`.
#[track_caller]
pub(super) fn smallest(x: &Tensor, k: usize, descending: bool) -> Result<Tensor> {
    let wanted = Tensor::full(&[x.shape()[0]], k as f64, (DType::I64, x.device()))?;
    Ok(Selection::new(x, k, descending)?.of(&wanted)?.order)
}

/// Where the element of rank `rank`, from 0, stands in each row of `x: [rows, n]`; of equals those before it come first:
/// `[rows, 1]`.
#[track_caller]
pub(super) fn of_rank(x: &Tensor, rank: usize) -> Result<Tensor> {
    let wanted = Tensor::full(&[x.shape()[0]], (rank + 1) as f64, (DType::I64, x.device()))?;
    Ok(Selection::new(x, 0, false)?.of(&wanted)?.edge)
}

/// [`of_rank`] of a rank for each row: `[rows]` of i64.
#[track_caller]
pub(super) fn of_ranks(x: &Tensor, ranks: &Tensor) -> Result<Tensor> {
    Ok(Selection::new(x, 0, false)?.of(&ranks.add_scalar(1.0)?.contiguous()?)?.edge)
}

/// Rows of which `k` positions are wanted, or none but the last.
struct Selection {
    x: Tensor,
    keys: Keys,
    k: usize,
    /// The positions in the order in which they stand: `[rows, k]`; anything where `k` is 0.
    order: Tensor,
    /// Where the largest of what is chosen stands, of equals the last: `[rows, 1]`.
    edge: Tensor,
}

impl Selection {
    #[track_caller]
    fn new(x: &Tensor, k: usize, descending: bool) -> Result<Selection> {
        let on = (DType::I64, x.device());
        let edge = Tensor::uninitialized(&[x.shape()[0], 1], on)?;
        let order = match k {
            0 => edge.clone(),
            k => Tensor::uninitialized(&[x.shape()[0], k], on)?,
        };
        Ok(Selection { keys: Keys::of(x, descending)?, x: x.contiguous()?, k, order, edge })
    }

    /// Chooses as many of each row as `wanted` says, from 1.
    #[track_caller]
    fn of(self, wanted: &Tensor) -> Result<Selection> {
        match self.x.device() {
            Device::Cpu => self.in_order(wanted)?,
            Device::Cuda(_) if self.x.shape()[1] <= ROW => self.by_rows(wanted)?,
            Device::Cuda(_) => self.by_parts(wanted)?,
        }
        Ok(self)
    }

    /// On the CPU, in one pass over each row.
    #[track_caller]
    fn in_order(&self, wanted: &Tensor) -> Result<()> {
        let pairs = Pairs::like(&self.x, self.keys.dtype, DType::I32)?;
        begin(&self.x, &self.keys, &pairs)?;
        let wanted = Wanted { keys: &pairs.keys, counts: wanted, mask: self.keys.mask() };
        select_cpu::smallest(&wanted, self.k, &self.order, &self.edge);
        Ok(())
    }

    fn kernel(&self, floats: &'static KernelDef, ints: &'static KernelDef) -> &'static KernelDef {
        if self.x.dtype().is_float() { floats } else { ints }
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        (programs, block, warps): (usize, usize, u32),
        args: &[Arg],
    ) -> Result<()> {
        let (dtypes, consts) = ([self.x.dtype(), self.keys.dtype], [block as i64]);
        launch::warped(kernel, &self.edge, Grid::x(programs), &dtypes, &consts, Some(warps), args)
    }

    /// On a GPU, of rows that a program holds.
    #[track_caller]
    fn by_rows(&self, wanted: &Tensor) -> Result<()> {
        let [rows, n] = [self.x.shape()[0], self.x.shape()[1]];
        let block = n.next_power_of_two().max(32 * WIDTH);
        let args = [
            launch::pointer(&self.x, false),
            launch::pointer(wanted, false),
            launch::pointer(&self.order, true),
            launch::pointer(&self.edge, true),
            number(n),
            number(self.k),
            self.keys.scalar(self.keys.zero),
            self.keys.scalar(self.keys.flip),
            number(self.keys.bits),
        ];
        let kernel = self.kernel(
            &device::radix_select_rows_of_floats::KERNEL,
            &device::radix_select_rows_of_ints::KERNEL,
        );
        self.launch(kernel, (rows, block, (block / WIDTH / 32) as u32), &args)
    }

    /// On a GPU, of longer ones: a pass over all parts for each digit.
    #[track_caller]
    fn by_parts(&self, wanted: &Tensor) -> Result<()> {
        let [rows, n] = [self.x.shape()[0], self.x.shape()[1]];
        let on = (DType::I64, self.x.device());
        let most = (PROGRAMS / rows).max(1);
        let part = n.div_ceil(most).next_multiple_of(LANES * WIDTH).min(PART);
        let parts = n.div_ceil(part);
        let state = Tensor::zeros(&[rows, 2], on)?;
        state.select(1, 1)?.copy_(wanted)?;
        self.find(&state, part)?;
        let offsets = Tensor::uninitialized(&[2 * rows, parts], on)?;
        let [x, state] = [&self.x, &state].map(|of| launch::pointer(of, false));
        let [zero, flip] = [self.keys.zero, self.keys.flip].map(|of| self.keys.scalar(of));
        let shape = (rows * parts, LANES * WIDTH, WARPS);
        let tally = self.kernel(
            &device::radix_select_tally_floats::KERNEL,
            &device::radix_select_tally_ints::KERNEL,
        );
        let counted = launch::pointer(&offsets, true);
        let args = [x, state, counted, number(n), number(part), number(rows), zero, flip];
        self.launch(tally, shape, &args)?;
        exclusive(&offsets, &Tensor::uninitialized(&[2 * rows], on)?, 2 * rows)?;
        let write = self.kernel(
            &device::radix_select_write_floats::KERNEL,
            &device::radix_select_write_ints::KERNEL,
        );
        let [order, edge] = [&self.order, &self.edge].map(|of| launch::pointer(of, true));
        let offsets = launch::pointer(&offsets, false);
        let sizes = [n, part, rows, self.k].map(number);
        let args = [&[x, state, offsets, order, edge][..], &sizes, &[zero, flip]].concat();
        self.launch(write, shape, &args)
    }

    /// Finds the edge of each row, and how many of those that equal it are wanted: its `state`.
    #[track_caller]
    fn find(&self, state: &Tensor, part: usize) -> Result<()> {
        let [rows, n] = [self.x.shape()[0], self.x.shape()[1]];
        let (parts, bits) = (n.div_ceil(part), self.keys.bits);
        let counts = Tensor::uninitialized(&[rows, 16, parts], (DType::I64, self.x.device()))?;
        let count = self.kernel(
            &device::radix_select_count_floats::KERNEL,
            &device::radix_select_count_ints::KERNEL,
        );
        for shift in (0..bits).step_by(COUNTED_BITS).rev() {
            // The bits above the digit, of a number that has its sign from the highest of them.
            let known = (u64::MAX >> (64 - (bits - shift))) & !15;
            let known = ((known << (64 - bits)) as i64) >> (64 - bits);
            let args = [
                launch::pointer(&self.x, false),
                launch::pointer(state, false),
                launch::pointer(&counts, true),
                number(n),
                number(part),
                self.keys.scalar(self.keys.zero),
                self.keys.scalar(self.keys.flip),
                self.keys.scalar(shift as i64),
                self.keys.scalar(known),
            ];
            self.launch(count, (rows * parts, LANES, WARPS), &args)?;
            let args =
                [launch::pointer(&counts, false), launch::pointer(state, true), number(parts)];
            let (kernel, consts) = (&device::radix_select_digit::KERNEL, [COUNTS as i64]);
            launch::warped(kernel, state, Grid::x(rows), &[], &consts, None, &args)?;
        }
        Ok(())
    }
}

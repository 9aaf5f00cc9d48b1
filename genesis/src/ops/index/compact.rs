//! Stream compaction: what is found among elements, in order, of which `nonzero` and masks are made.
//!
//! How many there are is known when the counts of all chunks are, so that the host waits for them once. What one chunk
//! has is written without a count, to memory for all of it.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::sorting::{
    COMPACTED, compacted_chunk, compacting_warps, exclusive_scan,
};
use kernels::{compact as device, scan};

use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::tensor::Tensor;

/// Elements, at most, that one program compacts without a count: a few steps.
const FEW: usize = 4 * COMPACTED;

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

/// Where what each chunk of a vector finds begins.
#[derive(Clone)]
pub(in crate::ops) struct Chunks {
    /// Elements of a chunk.
    chunk: usize,
    /// How many chunks there are.
    count: usize,
    /// What the chunks before each found; that of the first is not read.
    offsets: Tensor,
    /// In its last element what all found, or where chunks write where they end.
    ends: Tensor,
}

impl Chunks {
    /// Of `n` elements, before any is counted.
    #[track_caller]
    fn new(n: usize, like: &Tensor) -> Result<Chunks> {
        let chunk = if n <= FEW { n.max(1) } else { compacted_chunk(n) };
        let count = n.div_ceil(chunk);
        let fresh = |len: usize| Tensor::uninitialized(&[len], (DType::I64, like.device()));
        Ok(Chunks { chunk, count, offsets: fresh(count.max(1))?, ends: fresh(count.max(1))? })
    }

    /// Of what is true in a dense mask.
    #[track_caller]
    pub(super) fn of(mask: &Tensor) -> Result<Chunks> {
        let chunks = Chunks::new(mask.numel(), mask)?;
        chunks.counted(&counting(&flat(mask)?))?;
        Ok(chunks)
    }

    /// Counts by a kernel, given where counts of chunks go and how long a chunk is, and adds them up.
    #[track_caller]
    fn counted(&self, count: &dyn Fn(&Chunks, Arg, Arg) -> Result<()>) -> Result<()> {
        let to = |t: &Tensor| count(self, launch::pointer(t, true), number(self.chunk));
        match self.count {
            0 => Ok(()),
            1 => to(&self.ends),
            count => {
                to(&self.offsets)?;
                exclusive(&self.offsets, &self.ends.narrow(0, count - 1, 1)?, 1)
            }
        }
    }

    /// How many were found; waits for the device.
    #[track_caller]
    pub(super) fn total(&self) -> Result<usize> {
        if self.count == 0 {
            return Ok(0);
        }
        let last = self.ends.narrow(0, self.count - 1, 1)?.to_vec::<i64>()?;
        Ok(last.first().map_or(0, |&total| total as usize))
    }

    /// Launches a kernel with a program for each chunk.
    pub(in crate::ops) fn launch(
        &self,
        kernel: &'static KernelDef,
        on: &Tensor,
        dtypes: &[DType],
        consts: &[i64],
        args: &[Arg],
    ) -> Result<()> {
        let consts = [consts, &[COMPACTED as i64]].concat();
        let warps = compacting_warps(&chip(on.device()));
        launch::warped(kernel, on, Grid::x(self.count), dtypes, &consts, warps, args)
    }

    /// As many elements as are found among `n`, each of `width` numbers: `count` counts them, where there is more than one
    /// chunk, given where counts go and how long a chunk is; `write` writes them, given the result, and as
    /// arguments where what each chunk has begins, the result, where each ends, and how long it is. The result is `[found, width]`, the beginning of more where there
    /// is one chunk. Waits for the device.
    #[track_caller]
    pub(in crate::ops) fn found(
        [n, width]: [usize; 2],
        (dtype, like): (DType, &Tensor),
        count: &dyn Fn(&Chunks, Arg, Arg) -> Result<()>,
        write: impl FnOnce(&Chunks, &Tensor, [Arg; 4]) -> Result<()>,
    ) -> Result<(Tensor, Chunks)> {
        let chunks = Chunks::new(n, like)?;
        let fresh = |len: usize| Tensor::uninitialized(&[len, width], (dtype, like.device()));
        let args = |y: &Tensor| {
            let [offsets, ends] = [(&chunks.offsets, false), (&chunks.ends, true)]
                .map(|(t, mutable)| launch::pointer(t, mutable));
            [offsets, launch::pointer(y, true), ends, number(chunks.chunk)]
        };
        if chunks.count == 1 {
            let y = fresh(n)?;
            write(&chunks, &y, args(&y))?;
            return Ok((y.narrow(0, 0, chunks.total()?)?, chunks));
        }
        chunks.counted(count)?;
        let y = fresh(chunks.total()?)?;
        if y.numel() > 0 {
            write(&chunks, &y, args(&y))?;
        }
        Ok((y, chunks))
    }
}

fn flat(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.reshape(&[x.numel()])
}

/// What is compared with zero: bytes of what is no number.
#[track_caller]
fn countable(x: &Tensor) -> Result<Tensor> {
    let x = x.detach();
    flat(&if x.dtype().is_number() { x } else { x.to_bool()? })
}

/// The places in row-major order of the elements that are not zero; waits for the device.
#[track_caller]
pub(super) fn places_of_nonzero(x: &Tensor) -> Result<Tensor> {
    let x = countable(x)?;
    let write = |chunks: &Chunks, _: &Tensor, [offsets, y, ends, chunk]: [Arg; 4]| {
        let args = [launch::view_of(&x, false), offsets, y, ends, chunk];
        chunks.launch(&device::found_places::KERNEL, &x, &[x.dtype()], &[], &args)
    };
    let (places, _) = Chunks::found([x.numel(), 1], (DType::I64, &x), &counting(&x), write)?;
    places.reshape(&[places.numel()])
}

/// The coordinates of the elements that are not zero, of a tensor of 2 to 4 axes; waits for the device.
#[track_caller]
pub(super) fn coordinates_of_nonzero(x: &Tensor) -> Result<Tensor> {
    let (shape, x) = (x.shape(), countable(x)?);
    let rank = shape.len();
    let extents = [1, 2, 3].map(|axis| number(shape.get(axis).copied().unwrap_or(1)));
    let write = |chunks: &Chunks, _: &Tensor, [offsets, y, ends, chunk]: [Arg; 4]| {
        let args = [&[launch::view_of(&x, false), offsets, y, ends, chunk], &extents[..]].concat();
        let kernel = &device::found_coordinates::KERNEL;
        chunks.launch(kernel, &x, &[x.dtype()], &[rank as i64], &args)
    };
    Ok(Chunks::found([x.numel(), rank], (DType::I64, &x), &counting(&x), write)?.0)
}

/// The elements of a dense `x` where a dense mask of its shape is true, and where they are; waits for the device.
#[track_caller]
pub(super) fn values_where(mask: &Tensor, x: &Tensor) -> Result<(Tensor, Chunks)> {
    let (mask, x) = (flat(mask)?, flat(x)?);
    let write = |chunks: &Chunks, _: &Tensor, [offsets, y, ends, chunk]: [Arg; 4]| {
        let read = [&mask, &x].map(|t| launch::view_of(t, false));
        let args = [&read[..], &[offsets, y, ends, chunk]].concat();
        chunks.launch(&device::found_values::KERNEL, &x, &[x.dtype()], &[], &args)
    };
    let found = Chunks::found([x.numel(), 1], (x.dtype(), &x), &counting(&mask), write)?;
    Ok((found.0.reshape(&[found.0.numel()])?, found.1))
}

/// A vector's elements where a dense mask is true; elsewhere those of a dense `x`, or zeros.
#[track_caller]
pub(super) fn spread_where(
    mask: &Tensor,
    x: Option<&Tensor>,
    values: &Tensor,
    chunks: &Chunks,
) -> Result<Tensor> {
    let y = Tensor::uninitialized(mask.shape(), (values.dtype(), values.device()))?;
    if y.numel() == 0 {
        return Ok(y);
    }
    let (mask, out) = (flat(mask)?, flat(&y)?);
    let rest = [
        launch::pointer(values, false),
        launch::pointer(&chunks.offsets, false),
        launch::view_of(&out, true),
        number(chunks.chunk),
    ];
    let mut args = vec![launch::view_of(&mask, false)];
    let kernel = match x {
        Some(_) => &device::replace_found::KERNEL,
        None => &device::spread_found::KERNEL,
    };
    if let Some(x) = x {
        args.push(launch::view_of(&flat(x)?, false));
    }
    args.extend(rest);
    chunks.launch(kernel, &y, &[values.dtype()], &[], &args)?;
    Ok(y)
}

/// Counts what of a vector is not zero.
fn counting(x: &Tensor) -> impl Fn(&Chunks, Arg, Arg) -> Result<()> {
    |chunks, counts, number| {
        let args = [launch::view_of(x, false), counts, number];
        chunks.launch(&device::count_found::KERNEL, x, &[x.dtype()], &[], &args)
    }
}

/// Each number of each of `rows` rows becomes the sum of those before it.
#[track_caller]
pub(in crate::ops) fn exclusive(x: &Tensor, totals: &Tensor, rows: usize) -> Result<()> {
    let n = x.numel() / rows;
    let (cols, warps) = exclusive_scan(&chip(x.device()), n);
    let args = [launch::pointer(x, true), launch::pointer(totals, true), number(n)];
    let kernel = &scan::exclusive_rows::KERNEL;
    launch::warped(kernel, x, Grid::x(rows), &[], &[cols as i64], warps, &args)
}

//! Embedding: rows of a table by index, and the sorted reduction that is its gradient.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::rows::{gathered_columns, row_block};
use genesis_kernel::tuning::sorting::{
    MERGED, MOST_UNORDERED_BYTES, OF_PROGRAM, PIECE, SMALL_TABLE, STARTS, SUMMED_ROWS,
    SUMMED_TOKENS,
};
use kernels::embedding as device;

use super::{flag, unordered};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::order::order_of_places;
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

impl Tensor {
    /// The rows of this table `[V, C]` that `index` names.
    ///
    /// # Shapes
    /// `index: [..]` gives `[.., C]`.
    /// # Errors
    /// If the table is not rank 2, the index is not an integer or is outside `0..V`: on the CPU this call
    /// refuses that, on a GPU the next of the thread that brings values to the host.
    #[track_caller]
    pub fn embedding(&self, index: &Tensor) -> Result<Tensor> {
        let flat = checked(self, index)?;
        let rows = apply(Embedding { vocabulary: self.shape()[0] }, &[self, &flat])?;
        rows.reshape(&[index.shape(), &[self.shape()[1]]].concat())
    }
}

/// An index of rows of a table as a vector of i64; on the CPU each is looked at.
#[track_caller]
pub(super) fn checked(table: &Tensor, index: &Tensor) -> Result<Tensor> {
    if table.rank() != 2 {
        let message = format!("the table must be [V, C], got {:?}", table.shape());
        return Err(Error::op("embedding", message));
    }
    if !index.dtype().is_int() {
        let message = format!("the index must be an integer, got {}", index.dtype());
        return Err(Error::op("embedding", message));
    }
    if index.device() != table.device() {
        let message = format!("devices differ, {} and {}", table.device(), index.device());
        return Err(Error::op("embedding", message));
    }
    let flat = index.detach().to_dtype(DType::I64)?.ravel()?.contiguous()?;
    if flat.device() == Device::Cpu {
        let n = table.shape()[0];
        let is_wrong = |index: &i64| !(0..n as i64).contains(index);
        if let Some(wrong) = flat.indices_to_check()?.into_iter().find(is_wrong) {
            let message = format!("index {wrong} is out of range for {n} rows");
            return Err(Error::op("embedding", message));
        }
    }
    Ok(flat)
}

/// The gradient of a table of `vocabulary` rows, of which an index from 0 named one for each of `dy: [N, C]`.
#[track_caller]
pub(super) fn gradient(dy: &Tensor, index: &Tensor, vocabulary: usize) -> Result<Tensor> {
    apply(Gather { vocabulary, index: index.clone() }, &[dy])
}

struct Embedding {
    vocabulary: usize,
}

/// Columns of one program.
fn block(c: usize) -> i64 {
    row_block(c).min(1024) as i64
}

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (table, index) = (inputs[0], inputs[1]);
        let (n, c) = (index.numel(), table.shape()[1]);
        let y = Tensor::uninitialized(&[n, c], (table.dtype(), table.device()))?;
        let grid = Grid::xy(n, c.div_ceil(block(c) as usize));
        let tensors = [(table, false), (index, false), (&y, true)];
        if y.numel() > 0 {
            let kernel = &device::embedding::KERNEL;
            let flag = flag::args("embedding", table.device(), self.vocabulary)?;
            launch::views(kernel, grid, &[table.dtype()], &[block(c)], &tensors, &flag)?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient(dy, saved.input(1), self.vocabulary)?), None])
    }
}

fn small(index: &Tensor, dy: &Tensor, dtable: &Tensor) -> Result<()> {
    let cols = block(dy.shape()[1]).min(256);
    let grid = Grid::xy(dtable.shape()[0], dy.shape()[1].div_ceil(cols as usize));
    let tensors = [(index, false), (dy, false), (dtable, true)];
    let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
    let kernel = &device::embedding_bwd_small::KERNEL;
    launch::views(kernel, grid, &dtypes, &[16, cols], &tensors, &[])
}

/// The rows of a table of `n` that rows `[N, C]` are added to, by an index.
#[track_caller]
pub(super) fn sum_of_rows(index: &Tensor, rows: &Tensor, n: usize) -> Result<Tensor> {
    let (index, rows) = (index.contiguous()?, rows.contiguous()?);
    let bytes = rows.numel() * rows.dtype().bytes();
    if unordered::is_unordered(&rows) && bytes <= MOST_UNORDERED_BYTES {
        return unordered::add_rows(&index, &rows, n);
    }
    let at = (rows.dtype(), rows.device());
    let sums = Tensor::uninitialized(&[n, rows.shape()[1]], at)?;
    in_order(&index, &rows, &sums)?;
    Ok(sums)
}

/// Sorts the tokens by row; then each row of the table adds up its own.
///
/// The sort merges: pieces of [`PIECE`] keys, then [`MERGED`] at a time, so that its work grows with
/// `n log n` however many tokens a row has.
pub(super) fn in_order(index: &Tensor, dy: &Tensor, dtable: &Tensor) -> Result<()> {
    let n_rows = dtable.shape()[0];
    let (keys, starts) = places_in_order(index, n_rows)?;
    if dy.shape()[1] == 1 && index.numel() / FEW <= n_rows && dy.is_contiguous() {
        return sums_of_few(index, [&keys, &starts, dy], dtable);
    }
    let columns = gathered_columns(&chip(dy.device()), dy.shape()[1], dy.dtype().bytes());
    let args = [
        launch::pointer(&keys, false),
        launch::pointer(&starts, false),
        launch::view_of(dy, false),
        launch::view_of(dtable, true),
        launch::number(DType::I64, scale_of(index) as f64),
    ];
    let grid = Grid::xy(n_rows.div_ceil(SUMMED_ROWS), dy.shape()[1].div_ceil(columns.cols));
    let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
    let consts = [SUMMED_ROWS as i64, SUMMED_TOKENS as i64, columns.cols as i64];
    let kernel = &device::embedding_bwd::KERNEL;
    launch::warped(kernel, dtable, grid, &dtypes, &consts, columns.warps, &args)
}

/// Values for each place, at most, that one lane adds up.
const FEW: usize = 32;

/// [`in_order`] of one column, of places that have few values: each is added up by a lane.
#[track_caller]
fn sums_of_few(index: &Tensor, [keys, starts, dy]: [&Tensor; 3], sums: &Tensor) -> Result<()> {
    const BLOCK: usize = 128;
    let n = sums.shape()[0];
    let args = [
        launch::pointer(keys, false),
        launch::pointer(starts, false),
        launch::pointer(dy, false),
        launch::view_of(&sums.reshape(&[n])?, true),
        launch::number(DType::I64, scale_of(index) as f64),
    ];
    let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
    let (kernel, grid) = (&kernels::index::sum_at::KERNEL, Grid::x(n.div_ceil(BLOCK)));
    launch::warped(kernel, sums, grid, &dtypes, &[BLOCK as i64], None, &args)
}

/// What a row is multiplied by in a key: a power of two above every position of the index.
pub(super) fn scale_of(index: &Tensor) -> usize {
    index.numel().next_power_of_two()
}

/// The sorted keys of an index, and where those of each row begin.
#[track_caller]
pub(super) fn places_in_order(index: &Tensor, n_rows: usize) -> Result<(Tensor, Tensor)> {
    let (n, scale) = (index.numel(), scale_of(index));
    let keys = sorted_keys(index, n_rows, scale)?;
    let number = |value: usize| launch::number(DType::I64, value as f64);
    let starts = Tensor::uninitialized(&[n_rows + 1], (DType::I64, index.device()))?;
    let args = [
        launch::pointer(&keys, false),
        launch::pointer(&starts, true),
        number(n),
        number(n_rows),
        number(scale),
        number(halvings(n)),
    ];
    let grid = Grid::x((n_rows + 1).div_ceil(STARTS));
    let (kernel, warps) = (&device::embedding_starts::KERNEL, searching(index.device(), STARTS));
    launch::warped(kernel, &starts, grid, &[], &[STARTS as i64], warps, &args)?;
    Ok((keys, starts))
}

/// Tokens by row, then by position: `row * scale + token` of each, sorted.
#[track_caller]
fn sorted_keys(index: &Tensor, n_rows: usize, scale: usize) -> Result<Tensor> {
    let n = index.numel();
    if index.device() != Device::Cpu && n > MERGED * PIECE {
        return keys_by_radix(index, n_rows, scale);
    }
    let number = |value: usize| launch::number(DType::I64, value as f64);
    let fresh = || Tensor::uninitialized(&[n], (DType::I64, index.device()));
    let grid = Grid::x(n.div_ceil(OF_PROGRAM));
    let mut keys = fresh()?;
    let args = [
        launch::view_of(index, false),
        launch::pointer(&keys, true),
        number(n_rows),
        number(scale),
    ];
    let kernel = &device::embedding_pieces::KERNEL;
    let (consts, warps) = ([OF_PROGRAM as i64, PIECE as i64], searching(index.device(), 128));
    launch::warped(kernel, &keys, grid, &[], &consts, warps, &args)?;
    let mut len = PIECE;
    while len < n {
        let merged = fresh()?;
        let args = [
            launch::pointer(&keys, false),
            launch::pointer(&merged, true),
            number(n),
            number(len),
            number(halvings(len)),
        ];
        let fan = n.div_ceil(len).next_power_of_two().min(MERGED);
        let consts = [OF_PROGRAM as i64, fan as i64];
        let kernel = &device::embedding_merge::KERNEL;
        let warps = searching(index.device(), OF_PROGRAM * fan);
        launch::warped(kernel, &merged, grid, &[], &consts, warps, &args)?;
        (keys, len) = (merged, len * fan);
    }
    Ok(keys)
}

/// [`sorted_keys`] of more tokens than one merge takes, whose work grows with `n` alone.
#[track_caller]
fn keys_by_radix(index: &Tensor, n_rows: usize, scale: usize) -> Result<Tensor> {
    // A row that is not there is the one behind the last.
    let rows = composite("embedding", &[n_rows as f64], [&index.detach()], |[index], n| {
        let is_row = index.ge_scalar(0.0)?.logical_and(&index.lt_scalar(n[0])?)?;
        is_row.where_(index, &Tensor::full(&[], n[0], (index.dtype(), index.device()))?)
    })?;
    let order = order_of_places(&rows, n_rows)?;
    let sorted = rows.gather(0, &order)?;
    composite("embedding", &[scale as f64], [&sorted, &order], |[row, token], n| {
        row.mul_scalar(n[0])?.add(token)
    })
}

/// Warps for so many searches at once: each is one load after the other, so that a thread has one.
fn searching(on: Device, searches: usize) -> Option<u32> {
    (on != Device::Cpu).then_some((searches / 32).clamp(1, 32) as u32)
}

/// How often `n` places are halved until one is left, and it is known on which side of it to be.
fn halvings(n: usize) -> usize {
    (n + 1).next_power_of_two().trailing_zeros() as usize
}

/// The gradient of a table: rows of `dy` added up by index.
struct Gather {
    vocabulary: usize,
    index: Tensor,
}

impl Gather {
    /// Token after token.
    fn on_host(&self, dy: &Tensor) -> Result<Tensor> {
        let [n, c] = [dy.shape()[0], dy.shape()[1]];
        let wide = launch::accumulate_dtype(dy.dtype());
        let sums = Tensor::zeros(&[1, self.vocabulary, c], (wide, Device::Cpu))?;
        let values = dy.reshape(&[1, n, c])?;
        launch::along::add_slices_in_order((&self.index, None), &values, &sums)?;
        sums.reshape(&[self.vocabulary, c])?.to_dtype(dy.dtype())
    }
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dy = inputs[0];
        let c = dy.shape()[1];
        if dy.numel() == 0 {
            return Tensor::zeros(&[self.vocabulary, c], (dy.dtype(), dy.device()));
        }
        let dtable = Tensor::uninitialized(&[self.vocabulary, c], (dy.dtype(), dy.device()))?;
        if dtable.numel() == 0 {
            return Ok(dtable);
        }
        if dy.device() == Device::Cpu {
            return self.on_host(dy);
        }
        if self.vocabulary <= SMALL_TABLE {
            small(&self.index, dy, &dtable)?;
            return Ok(dtable);
        }
        sum_of_rows(&self.index, dy, self.vocabulary)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.embedding(&self.index)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, FLOATS, Family, OpInfo, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "embedding",
        Family::Exact,
        |x| x[0].embedding(&x[1]),
        |x| {
            let c = x[0].shape[1];
            let rows = x[1].data.iter().flat_map(|&i| x[0].row(i as usize).to_vec());
            Dense { shape: [&x[1].shape[..], &[c]].concat(), data: rows.collect() }
        },
        &[&[&[5, 3], &[4]], &[&[5, 40], &[2, 3]], &[&[6, 2000], &[3]], &[&[5, 3], &[0]]],
    )
    .peer("F.embedding(x[1], x[0])")
    .within(-2.0, 2.0)
    .indexed(&[(1, 5)])
    .of(FLOATS)
    .refusing(&[
        (
            || cpu(&[4], DType::F32)?.embedding(&cpu(&[2], DType::I64)?),
            "embedding: the table must be [V, C], got [4]",
        ),
        (
            || cpu(&[4, 2], DType::F32)?.embedding(&cpu(&[2], DType::F32)?),
            "embedding: the index must be an integer, got f32",
        ),
        (
            || cpu(&[0, 2], DType::F32)?.embedding(&cpu(&[2], DType::I64)?),
            "embedding: index 0 is out of range for 0 rows",
        ),
    ])];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient of a table of one column where token `t` has the gradient `t + 1`.
    fn check(index: &[i64], n_rows: usize) {
        let n = index.len();
        let values: Vec<f64> = (0..n).map(|t| (t + 1) as f64).collect();
        let mut expected = vec![0.0; n_rows];
        for (&row, value) in index.iter().zip(&values) {
            if let Some(sum) = expected.get_mut(row as usize) {
                *sum += value;
            }
        }
        let dy = Tensor::from_slice_on(&values, &[n, 1], Device::Cpu).expect("it fits");
        let index = Tensor::from_slice_on(index, &[n], Device::Cpu).expect("it fits");
        let dtable = Tensor::uninitialized(&[n_rows, 1], (DType::F64, Device::Cpu)).expect("fits");
        in_order(&index, &dy, &dtable).expect("it runs");
        assert_eq!(dtable.to_vec::<f64>().expect("f64"), expected, "{n} tokens");
    }

    #[test]
    fn any_number_of_tokens_is_sorted() {
        // None merged, merged once, merged twice.
        for n in [1, 31, 1024, 1025, 5000, 32_768, 40_000] {
            let scattered: Vec<i64> = (0..n).map(|t| t * 7919 % 1237).collect();
            check(&scattered, 1300);
        }
    }

    #[test]
    fn all_tokens_may_be_of_one_row_or_of_none() {
        check(&vec![77; 3000], 100);
        check(&[-1, 5, i64::MAX, 100, 5, i64::MIN, 99], 100);
    }

    /// Both sorts list the same tokens, with rows that are not there behind the last.
    #[test]
    fn keys_by_radix_are_those_of_the_merge() -> Result<()> {
        for (n, n_rows) in [(1, 1), (700, 3), (5000, 300), (40_000, 70_000)] {
            let row = |i: i64| (i * 7919 + 5) % (n_rows as i64 + 2) - 1;
            let index: Vec<i64> = (0..n as i64).map(row).collect();
            let index = Tensor::from_slice_on(&index, &[n], Device::Cpu)?;
            let scale = scale_of(&index);
            let merged = sorted_keys(&index, n_rows, scale)?.to_vec::<i64>()?;
            assert_eq!(
                keys_by_radix(&index, n_rows, scale)?.to_vec::<i64>()?,
                merged,
                "{n} tokens"
            );
        }
        Ok(())
    }
}

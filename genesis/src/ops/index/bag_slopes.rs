//! Gradients of weighed sums of rows of a table, on GPUs: the gradients of sums are read where they lie, and none is
//! repeated for the rows that it is of.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::rows::{gathered_columns, row_block};
use genesis_kernel::tuning::sorting::{SUMMED_ROWS, SUMMED_TOKENS};
use kernels::embedding as device;

use super::embedding;
use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::tensor::Tensor;

/// Rows and columns, at most, that a program multiplies at a time.
const TOKENS: usize = 16;
const COLUMNS: usize = 128;

/// Sums of rows, and what reaches them.
#[derive(Clone, Copy)]
pub(in crate::ops) struct BagSlopes<'a> {
    /// The row of the table that each of N belongs to, dense; of one that is not there there is no gradient.
    pub(in crate::ops) index: &'a Tensor,
    /// The sum that each goes into, dense, -1 where that is none; absent where every `length` of them make one.
    pub(in crate::ops) bag: Option<&'a Tensor>,
    /// See `bag`; 0 where that is there.
    pub(in crate::ops) length: usize,
    /// The gradient of the sums, as wide as they are added up: `[B, C]`.
    pub(in crate::ops) dy: &'a Tensor,
}

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

impl BagSlopes<'_> {
    /// The gradient of a table of so many rows and this dtype, whose rows had the `weights`, `[N]`.
    #[track_caller]
    pub(in crate::ops) fn of_table(
        &self,
        (rows, dtype): (usize, DType),
        weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (index, dy) = (self.index, self.dy);
        let (n, columns, at) = (index.numel(), dy.shape()[1], (dtype, dy.device()));
        if n * rows * columns == 0 {
            return Tensor::zeros(&[rows, columns], at);
        }
        let dtable = Tensor::uninitialized(&[rows, columns], at)?;
        let weights = weights.map(Tensor::contiguous).transpose()?;
        let (keys, starts) = embedding::places_in_order(index, rows)?;
        let cut = gathered_columns(&chip(dy.device()), columns, dy.dtype().bytes());
        let args = [
            launch::pointer(&keys, false),
            launch::pointer(&starts, false),
            launch::pointer(self.bag.unwrap_or(index), false),
            launch::pointer(weights.as_ref().unwrap_or(dy), false),
            launch::view_of(dy, false),
            launch::view_of(&dtable, true),
            number(embedding::scale_of(index)),
            number(n),
            number(self.length),
        ];
        let grid = Grid::xy(rows.div_ceil(SUMMED_ROWS), columns.div_ceil(cut.cols));
        let tile = [SUMMED_ROWS, SUMMED_TOKENS, cut.cols].map(|extent| extent as i64);
        let consts = [&[i64::from(weights.is_some())], &tile[..]].concat();
        let (kernel, dtypes) = (&device::embedding_bag_bwd::KERNEL, [dtype, dy.dtype()]);
        launch::warped(kernel, &dtable, grid, &dtypes, &consts, cut.warps, &args)?;
        Ok(dtable)
    }

    /// The gradient of the weights of a table's rows, `[N]`.
    #[track_caller]
    pub(in crate::ops) fn of_weights(&self, table: &Tensor) -> Result<Tensor> {
        let (index, dy) = (self.index, self.dy);
        let (n, columns) = (index.numel(), dy.shape()[1]);
        let dweights = Tensor::uninitialized(&[n], (dy.dtype(), dy.device()))?;
        if n == 0 {
            return Ok(dweights);
        }
        let args = [
            launch::view_of(table, false),
            launch::pointer(index, false),
            launch::pointer(self.bag.unwrap_or(index), false),
            launch::view_of(dy, false),
            launch::pointer(&dweights, true),
            number(n),
            number(self.length),
        ];
        let cols = row_block(columns).min(COLUMNS);
        let (kernel, dtypes) = (&device::embedding_bag_dots::KERNEL, [table.dtype(), dy.dtype()]);
        let (grid, consts) = (Grid::x(n.div_ceil(TOKENS)), [TOKENS as i64, cols as i64]);
        launch::warped(kernel, &dweights, grid, &dtypes, &consts, None, &args)?;
        Ok(dweights)
    }
}

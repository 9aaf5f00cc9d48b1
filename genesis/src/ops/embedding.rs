//! Rows of a table by index.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::embedding as device;

use super::launch::config::row_block;
use super::{Op, Saves, apply, launch};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// The rows of this table `[V, C]` that `index` names.
    ///
    /// # Shapes
    /// `index: [..]` gives `[.., C]`. An index outside `0..V` gives a row of zeros.
    /// # Errors
    /// If the table is not rank 2, or the index is not i64.
    pub fn embedding(&self, index: &Tensor) -> Result<Tensor> {
        if self.rank() != 2 {
            let message = format!("the table must be [V, C], got {:?}", self.shape());
            return Err(Error::op("embedding", message));
        }
        if index.dtype() != DType::I64 {
            return Err(Error::op(
                "embedding",
                format!("the index must be i64, got {}", index.dtype()),
            ));
        }
        if index.device() != self.device() {
            let message = format!("devices differ, {} and {}", self.device(), index.device());
            return Err(Error::op("embedding", message));
        }
        let flat = index.detach().reshape(&[index.numel()])?.contiguous()?;
        let rows = apply(Embedding { vocabulary: self.shape()[0] }, &[self, &flat])?;
        rows.reshape(&[index.shape(), &[self.shape()[1]]].concat())
    }
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
            launch::views(kernel, grid, &[table.dtype()], &[block(c)], &tensors, &[])?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let index = saved.input(1).clone();
        Ok(vec![Some(apply(Gather { vocabulary: self.vocabulary, index }, &[dy])?), None])
    }
}

/// Tables of this many rows look for their tokens row by row.
const SMALL: usize = 1024;

fn small(index: &Tensor, dy: &Tensor, dtable: &Tensor) -> Result<()> {
    let cols = block(dy.shape()[1]).min(256);
    let grid = Grid::xy(dtable.shape()[0], dy.shape()[1].div_ceil(cols as usize));
    let tensors = [(index, false), (dy, false), (dtable, true)];
    let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
    let kernel = &device::embedding_bwd_small::KERNEL;
    launch::views(kernel, grid, &dtypes, &[16, cols], &tensors, &[])
}

/// Sorts the tokens by row, then adds up the runs of equal rows into a table of zeros.
pub(super) fn in_order(index: &Tensor, dy: &Tensor, dtable: &Tensor) -> Result<()> {
    const TOKENS: usize = 16;
    let n = index.numel();
    let rows = Tensor::uninitialized(&[n], (DType::I64, dy.device()))?;
    let order = Tensor::uninitialized(&[n], (DType::I64, dy.device()))?;
    let count = launch::number(DType::I64, dtable.shape()[0] as f64);
    let args = [
        launch::view_of(index, false),
        launch::pointer(&rows, true),
        launch::pointer(&order, true),
        count,
    ];
    let grid = Grid::x(n.div_ceil(TOKENS));
    let kernel = &device::embedding_order::KERNEL;
    launch::plain(kernel, &rows, grid, &[], &[TOKENS as i64, 1024], &args)?;
    let cols = block(dy.shape()[1]).min(512);
    let args = [
        launch::pointer(&rows, false),
        launch::pointer(&order, false),
        launch::view_of(dy, false),
        launch::view_of(dtable, true),
    ];
    let grid = Grid::xy(n, dy.shape()[1].div_ceil(cols as usize));
    let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
    launch::plain(&device::embedding_bwd::KERNEL, dtable, grid, &dtypes, &[8, cols], &args)
}

/// The gradient of a table: rows of `dy` added up by index.
struct Gather {
    vocabulary: usize,
    index: Tensor,
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
        let dtable = if self.vocabulary <= SMALL {
            Tensor::uninitialized(&[self.vocabulary, c], (dy.dtype(), dy.device()))?
        } else {
            Tensor::zeros(&[self.vocabulary, c], (dy.dtype(), dy.device()))?
        };
        if dtable.numel() == 0 {
            return Ok(dtable);
        }
        if self.vocabulary <= SMALL {
            small(&self.index, dy, &dtable)?;
        } else {
            in_order(&self.index, dy, &dtable)?;
        }
        Ok(dtable)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.embedding(&self.index)?)])
    }
}

//! Rows of a table by index.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::embedding as device;

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
    launch::row_block(c).min(1024)
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
        let dtable = Tensor::uninitialized(&[self.vocabulary, c], (dy.dtype(), dy.device()))?;
        let cols = block(c).min(256);
        let grid = Grid::xy(self.vocabulary, c.div_ceil(cols as usize));
        let tensors = [(&self.index, false), (dy, false), (&dtable, true)];
        let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
        let kernel = &device::embedding_bwd::KERNEL;
        if dtable.numel() > 0 {
            launch::views(kernel, grid, &dtypes, &[16, cols], &tensors, &[])?;
        }
        Ok(dtable)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.embedding(&self.index)?)])
    }
}

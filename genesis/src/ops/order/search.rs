//! Binary search in sorted rows: `searchsorted`, `bucketize`.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::tuning::sorting::SEARCHED;
use kernels::search as device;

use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{check_pair, promote};
use crate::tensor::Tensor;

impl Tensor {
    /// How many elements of this sorted tensor come before each of `values`: those that are less, or with
    /// `right` those that are not greater. NaN comes after all numbers; i64.
    ///
    /// # Shapes
    /// A vector is searched for values of any shape; else all axes but the last must be those of `values`.
    /// # Errors
    /// If the shapes do not fit or devices differ.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        const NAME: &str = "searchsorted";
        let lead = |t: &Tensor| t.shape()[..t.rank().saturating_sub(1)].to_vec();
        let is_vector = self.rank() == 1;
        let fits = self.rank() == values.rank() && self.rank() > 0 && lead(self) == lead(values);
        if !is_vector && !fits {
            let message = format!(
                "values of {:?} do not fit sorted ones of {:?}",
                values.shape(),
                self.shape()
            );
            return Err(Error::op(NAME, message));
        }
        let (sorted, wanted) = promote::pair(&self.detach(), &values.detach())?;
        let (sorted, wanted) = (sorted.as_countable(), wanted.as_countable());
        check_pair(NAME, &sorted, &wanted)?;
        let n = sorted.dim(-1)?;
        let y = Tensor::uninitialized(values.shape(), (DType::I64, self.device()))?;
        if y.numel() == 0 {
            return Ok(y);
        }
        let (lines, m) = match is_vector {
            true => (1, values.numel()),
            false => (values.numel() / values.dim(-1)?, values.dim(-1)?),
        };
        let sorted = sorted.reshape(&[lines, n])?.contiguous()?;
        let wanted = wanted.reshape(&[lines, m])?.contiguous()?;
        let steps = usize::BITS - n.leading_zeros();
        let args = [
            launch::view_of(&sorted, false),
            launch::view_of(&wanted, false),
            launch::pointer(&y, true),
            launch::number(DType::I64, f64::from(steps)),
            launch::number(DType::I64, f64::from(u8::from(right))),
        ];
        let grid = Grid::x(lines * m.div_ceil(SEARCHED));
        let place = if n < 1 << 31 { DType::I32 } else { DType::I64 };
        let (kernel, dtypes) = (&device::search::KERNEL, [sorted.dtype(), place]);
        launch::warped(kernel, &y, grid, &dtypes, &[SEARCHED as i64], None, &args)?;
        Ok(y)
    }

    /// The bucket of each element: how many of the sorted `boundaries` are less, or with `right` not
    /// greater; i64.
    ///
    /// # Errors
    /// If `boundaries` is no vector or devices differ.
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        if boundaries.rank() != 1 {
            let message = format!("the boundaries must be a vector, got {:?}", boundaries.shape());
            return Err(Error::op("bucketize", message));
        }
        boundaries.searchsorted(self, right)
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, cpu, map};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "searchsorted",
            Family::Exact,
            |x| x[0].sort(0, false)?.0.searchsorted(&x[1], false),
            |x| map(&x[1], |v| x[0].data.iter().filter(|w| **w < v).count() as f64),
            &[&[&[9], &[3, 5]]],
        )
        .peer("torch.searchsorted(x[0].sort(0)[0], x[1])")
        .flat()
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.searchsorted(&cpu(&[3], DType::F32)?, false),
            "searchsorted: values of [3] do not fit sorted ones of [2, 3]",
        )]),
        OpInfo::new(
            "bucketize/right",
            Family::Exact,
            |x| x[1].bucketize(&x[0].sort(0, false)?.0, true),
            |x| map(&x[1], |v| x[0].data.iter().filter(|w| **w <= v).count() as f64),
            &[&[&[9], &[3, 5]]],
        )
        .peer("torch.bucketize(x[1], x[0].sort(0)[0], right=True)")
        .flat(),
    ];
}

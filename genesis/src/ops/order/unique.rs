//! Distinct elements, what each element is equal to, and how often each occurs.
//!
//! Elements are sorted; where one differs from the one before it a new group begins, and a running sum
//! numbers the groups. How many there are is known only when the device is done.

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::ops::index::{put_once, take_at};
use crate::shape;
use crate::tensor::Tensor;

/// What [`Tensor::unique`] finds.
#[derive(Clone, Debug)]
pub struct Unique {
    /// The distinct elements.
    pub values: Tensor,
    /// For each element of the tensor its place among them; i64.
    pub inverse: Tensor,
    /// How often each occurs; i64.
    pub counts: Tensor,
}

impl Tensor {
    /// The distinct elements in order. Each NaN is distinct from all others. Waits for the device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn unique(&self) -> Result<Unique> {
        let x = self.detach().ravel()?;
        let (sorted, order) = x.sort(0, false)?;
        let mut found = groups(&sorted, &differs(&sorted)?)?;
        found.inverse = scattered(&found.inverse, &order)?.reshape(self.shape())?;
        Ok(found)
    }

    /// Without the elements that are equal to the one before them. Waits for the device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn unique_consecutive(&self) -> Result<Unique> {
        let x = self.detach().ravel()?;
        let mut found = groups(&x, &differs(&x)?)?;
        found.inverse = found.inverse.reshape(self.shape())?;
        Ok(found)
    }

    /// The distinct slices along `dim`, in the order of their elements. Waits for the device.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn unique_dim(&self, dim: i64) -> Result<Unique> {
        let axis = shape::axis("unique", dim, self.shape())? as i64;
        let x = self.detach().movedim(&[axis], &[0])?;
        let n = x.shape()[0];
        let rows = x.reshape(&[n, x.numel().checked_div(n).unwrap_or(0)])?;
        // A sort keeps the order of equals, so that sorting by the last column first is by all of them.
        let mut order = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, self.device()))?;
        for column in (0..rows.shape()[1]).rev() {
            let keys = rows.select(1, column)?.index_select(0, &order)?;
            order = order.index_select(0, &keys.argsort(0, false)?)?;
        }
        let sorted = rows.index_select(0, &order)?;
        let mut is_new = Tensor::ones(&[n.min(1)], (DType::Bool, self.device()))?;
        if n > 1 {
            let (high, low) = (sorted.narrow(0, 1, n - 1)?, sorted.narrow(0, 0, n - 1)?);
            let differ = high.ne(&low)?.any_dims(&[1], false)?;
            is_new = Tensor::cat(&[&is_new, &differ], 0)?;
        }
        let mut found = groups(&order, &is_new)?;
        found.inverse = scattered(&found.inverse, &order)?;
        found.values = self.detach().index_select(axis, &found.values)?;
        Ok(found)
    }
}

/// Where an element differs from the one before it; the first does.
#[track_caller]
fn differs(x: &Tensor) -> Result<Tensor> {
    let n = x.numel();
    let first = Tensor::ones(&[n.min(1)], (DType::Bool, x.device()))?;
    if n < 2 {
        return Ok(first);
    }
    Tensor::cat(&[&first, &x.narrow(0, 1, n - 1)?.ne(&x.narrow(0, 0, n - 1)?)?], 0)
}

/// The first of each group, the group of each, and how many each has.
#[track_caller]
fn groups(x: &Tensor, is_new: &Tensor) -> Result<Unique> {
    let group = is_new.cumsum(0)?.sub_scalar(1.0)?;
    let first = is_new.nonzero()?.select(1, 0)?.contiguous()?;
    // Each group ends where the next begins.
    let end = Tensor::full(&[first.numel().min(1)], x.numel() as f64, (DType::I64, x.device()))?;
    let rest = first.narrow(0, first.numel().min(1), first.numel().saturating_sub(1))?;
    let counts = Tensor::cat(&[&rest, &end], 0)?.sub(&first)?;
    Ok(Unique { values: take_at(x, &first)?, inverse: group, counts })
}

/// `y[order[i]] = x[i]`
#[track_caller]
fn scattered(x: &Tensor, order: &Tensor) -> Result<Tensor> {
    put_once(x, order, x.numel())
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, MOVED, OpInfo, map, sorted, vector};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "unique",
            Family::Exact,
            |x| Ok(x[0].unique()?.values),
            |x| {
                let mut values = sorted(&map(&x[0], f64::floor).data);
                values.dedup();
                vector(values)
            },
            &[&[&[5, 4]]],
        )
        .peer("torch.unique(x[0])")
        .whole()
        .of(MOVED)
        .flat(),
        OpInfo::new(
            "unique/inverse",
            Family::Exact,
            |x| {
                let found = x[0].unique()?;
                found.values.take(&found.inverse)
            },
            |x| map(&x[0], f64::floor),
            &[&[&[5, 4]]],
        )
        .peer("torch.take(*torch.unique(x[0], return_inverse=True))")
        .whole()
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique/counts",
            Family::Exact,
            |x| x[0].unique()?.counts.sum(),
            |_| Dense { shape: Vec::new(), data: vec![20.0] },
            &[&[&[5, 4]]],
        )
        .peer("torch.unique(x[0], return_counts=True)[1].sum()")
        .whole()
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique_dim",
            Family::Exact,
            |x| {
                let twice = Tensor::cat(&[&x[0], &x[0]], 0)?;
                let found = twice.unique_dim(0)?;
                found.values.index_select(0, &found.inverse.narrow(0, 0, 3)?)
            },
            |x| x[0].clone(),
            &[&[&[3, 2]]],
        )
        .peer(
            "(u := torch.unique(torch.cat((x[0], x[0])), return_inverse=True, \
             dim=0))[0].index_select(0, u[1][:3])",
        )
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique_consecutive",
            Family::Exact,
            |x| Ok(x[0].unique_consecutive()?.values),
            |x| {
                let mut values: Vec<f64> = x[0].data.iter().map(|v| v.floor()).collect();
                values.dedup();
                vector(values)
            },
            &[&[&[20]]],
        )
        .peer("torch.unique_consecutive(x[0])")
        .whole()
        .within(0.0, 2.0)
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
    ];
}

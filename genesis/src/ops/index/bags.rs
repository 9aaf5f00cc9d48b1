//! Embedding bags: rows of a table, reduced to one vector a bag.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::launch;
use crate::ops::ScatterReduce;
use crate::ops::index::flag::{self, Range};
use crate::tensor::Tensor;

const NAME: &str = "embedding_bag";

/// What becomes of the rows of a bag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest of each column.
    Max,
}

/// How [`Tensor::embedding_bag`] makes and reduces bags.
#[derive(Clone, Debug, Default)]
pub struct Bags {
    /// What becomes of the rows of a bag.
    pub mode: BagMode,
    /// Where each bag begins in an index of one axis, i64, the first at 0.
    pub offsets: Option<Tensor>,
    /// Whether the last offset is where the last bag ends, and begins none.
    pub include_last_offset: bool,
    /// A weight for each index; for sums only.
    pub per_sample_weights: Option<Tensor>,
    /// A row that belongs to no bag.
    pub padding_idx: Option<usize>,
}

impl Tensor {
    /// The rows of this table `[V, C]` that each bag of indices names, reduced to one; zeros for an empty
    /// bag.
    ///
    /// # Shapes
    /// `index: [B, L]` has B bags of L, and gives `[B, C]`; `[N]` has a bag an offset.
    /// # Numerics
    /// Sums of 16-bit tables are in f32.
    /// # Errors
    /// If shapes or offsets do not fit, or weights are given for another mode than sums; for the index as
    /// [`Tensor::embedding`].
    /// # Source
    /// Same conventions as `torch.nn.functional.embedding_bag`.
    #[track_caller]
    pub fn embedding_bag(&self, index: &Tensor, bags: &Bags) -> Result<Tensor> {
        let weights = bags.per_sample_weights.as_ref();
        if let Some(weights) = weights
            && (bags.mode != BagMode::Sum || weights.shape() != index.shape())
        {
            let message = format!(
                "weights are for sums, one an index; they are {:?}, the index {:?}, the mode {:?}",
                weights.shape(),
                index.shape(),
                bags.mode
            );
            return Err(Error::op(NAME, message));
        }
        let (bag, count) = bags.of_each(index)?;
        let flat = index.ravel()?;
        let rows = self.embedding(&flat)?;
        let rows = rows.to_dtype(launch::accumulate_dtype(rows.dtype()))?; // [N, C]
        let rows = match weights {
            Some(weights) => rows.mul(&weights.to_dtype(rows.dtype())?.ravel()?.unsqueeze(-1)?)?,
            None => rows,
        };
        // What belongs to no bag goes into one more, which is left out.
        let bag = match bags.padding_idx {
            Some(padding) => bag.masked_fill(&flat.eq_scalar(padding as f64)?, count as f64)?,
            None => bag,
        };
        let at = (rows.dtype(), rows.device());
        let empty = Tensor::zeros(&[count + 1, rows.dim(1)?], at)?;
        let reduced = match bags.mode {
            BagMode::Sum => empty.index_add(0, &bag, &rows, 1.0)?,
            BagMode::Mean => {
                let ones = Tensor::ones(&[flat.numel(), 1], at)?;
                let members = Tensor::zeros(&[count + 1, 1], at)?.index_add(0, &bag, &ones, 1.0)?;
                empty.index_add(0, &bag, &rows, 1.0)?.div(&members.maximum_scalar(1.0)?)?
            }
            BagMode::Max => {
                let places = bag.unsqueeze(-1)?.broadcast_to(rows.shape())?;
                empty.scatter_reduce(0, &places, &rows, ScatterReduce::Amax, false)?
            }
        };
        reduced.narrow(0, 0, count)?.to_dtype(self.dtype())
    }
}

/// On a GPU: has offsets that do not grow from 0 to at most `n` told by the next read, as indices.
#[track_caller]
fn tell_later(offsets: &Tensor, n: usize) -> Result<()> {
    let resolve = |t: &Tensor, extent: usize| {
        flag::resolve(NAME, t, Range { extent, wraps: false, step: 1 }).map(drop)
    };
    resolve(&offsets.narrow(0, 0, 1)?, 1)?;
    resolve(offsets, n + 1)?;
    match offsets.numel() - 1 {
        0 => Ok(()),
        pairs => resolve(&offsets.narrow(0, 1, pairs)?.sub(&offsets.narrow(0, 0, pairs)?)?, n + 1),
    }
}

impl Bags {
    /// The bag of each index, in order, and how many there are.
    #[track_caller]
    fn of_each(&self, index: &Tensor) -> Result<(Tensor, usize)> {
        let n = index.numel();
        let places = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, index.device()))?;
        let Some(offsets) = &self.offsets else {
            if index.rank() != 2 {
                let message = format!("an index {:?} needs offsets, or 2 axes", index.shape());
                return Err(Error::op(NAME, message));
            }
            let length = index.shape()[1].max(1) as f64;
            return Ok((places.floor_divide_scalar(length)?, index.shape()[0]));
        };
        let least = usize::from(self.include_last_offset);
        if index.rank() != 1 || offsets.rank() != 1 || offsets.numel() < least {
            let message =
                format!("an index {:?} can't have offsets {:?}", index.shape(), offsets.shape());
            return Err(Error::op(NAME, message));
        }
        if offsets.dtype() != DType::I64 {
            return Err(Error::op(NAME, format!("offsets must be i64, got {}", offsets.dtype())));
        }
        if offsets.device() == Device::Cpu {
            let all = offsets.to_vec::<i64>()?;
            let grows = all.windows(2).all(|pair| pair[0] <= pair[1]);
            let fits =
                all.first().is_none_or(|&o| o == 0) && all.last().is_none_or(|&o| o <= n as i64);
            if !grows || !fits {
                let message = format!("offsets must grow from 0 to at most {n}, got {all:?}");
                return Err(Error::op(NAME, message));
            }
        } else if offsets.numel() > 0 {
            tell_later(offsets, n)?;
        }
        let count = offsets.numel() - least;
        // What is behind a last offset that begins no bag belongs to none.
        Ok((offsets.searchsorted(&places, true)?.sub_scalar(1.0)?, count))
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Dense, Family, OpInfo, numel};
    use crate::ops::{BagMode, Bags};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "embedding_bag/mean",
        Family::Softmax,
        |x| x[0].embedding_bag(&x[1], &Bags { mode: BagMode::Mean, ..Bags::default() }),
        |x| {
            Dense::from_fn(&[2, 4], |at| {
                (0..3).map(|i| x[0].at(&[x[1].at(&[at[0], i]) as usize, at[1]])).sum::<f64>() / 3.0
            })
        },
        &[&[&[5, 4], &[2, 3]]],
    )
    .computing(|x, _| 2.0 * numel(&x[1]) * x[0][1] as f64)
    .peer("F.embedding_bag(x[1], x[0], mode='mean')")
    .indexed(&[(1, 5)])];
}

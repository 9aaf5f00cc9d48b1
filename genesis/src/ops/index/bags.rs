//! Embedding bags: rows of a table, reduced to one vector a bag. Sums and means are one launch, whose programs read the
//! rows of a bag; the gradient of the table sorts the indices, and adds the gradients of bags where they lie. The largest,
//! and gradients that are differentiated again, are made of the rows of all bags.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use kernels::embedding as device;

use super::bag_slopes::BagSlopes;
use super::flag::{self, Range};
use super::{along, embedding};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, ScatterReduce, apply};
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
        let count = bags.count(index)?;
        let flat = embedding::checked(self, index)?;
        if bags.mode == BagMode::Max || !self.dtype().is_arithmetic_float() {
            return self.composed(&flat, index, count, bags);
        }
        let (dtype, vocabulary) = (self.dtype(), self.shape()[0]);
        let own =
            Bag { bags: bags.clone(), shape: index.shape().to_vec(), count, dtype, vocabulary };
        let wide = launch::accumulate_dtype(dtype);
        match weights {
            Some(weights) => apply(own, &[self, &flat, &weights.to_dtype(wide)?.ravel()?]),
            None => apply(own, &[self, &flat]),
        }
    }

    /// [`Tensor::embedding_bag`] by the rows of all bags.
    #[track_caller]
    fn composed(&self, flat: &Tensor, index: &Tensor, count: usize, bags: &Bags) -> Result<Tensor> {
        let rows = self.embedding(flat)?;
        let rows = rows.to_dtype(launch::accumulate_dtype(rows.dtype()))?; // [N, C]
        let rows = match &bags.per_sample_weights {
            Some(weights) => rows.mul(&weights.to_dtype(rows.dtype())?.ravel()?.unsqueeze(-1)?)?,
            None => rows,
        };
        // What belongs to no bag goes into one more, which is left out.
        let bag = bags.of_each(index.shape(), flat, count)?;
        let at = (rows.dtype(), rows.device());
        let empty = Tensor::zeros(&[count + 1, rows.dim(1)?], at)?;
        let reduced = match bags.mode {
            BagMode::Sum => empty.index_add(0, &bag, &rows, 1.0)?,
            BagMode::Mean => {
                let members = members(&bag, count + 1, at)?;
                empty.index_add(0, &bag, &rows, 1.0)?.div(&members)?
            }
            BagMode::Max => {
                let places = bag.unsqueeze(-1)?.broadcast_to(rows.shape())?;
                empty.scatter_reduce(0, &places, &rows, ScatterReduce::Amax, false)?
            }
        };
        reduced.narrow(0, 0, count)?.to_dtype(self.dtype())
    }
}

/// How many indices each of `count` bags has, at least 1: `[count, 1]`.
#[track_caller]
fn members(bag: &Tensor, count: usize, at: (DType, Device)) -> Result<Tensor> {
    let ones = Tensor::ones(&[bag.numel(), 1], at)?;
    Tensor::zeros(&[count, 1], at)?.index_add(0, bag, &ones, 1.0)?.maximum_scalar(1.0)
}

/// Sums and means of rows of a table `[V, C]`, an index of N, and perhaps N weights.
struct Bag {
    bags: Bags,
    /// The shape in which the index was given.
    shape: Vec<usize>,
    count: usize,
    /// Of the table.
    dtype: DType,
    vocabulary: usize,
}

impl Bag {
    fn launch(&self, inputs: &[&Tensor], y: &Tensor) -> Result<()> {
        let (table, index) = (inputs[0], inputs[1]);
        let number = |value: i64| Arg::Scalar(Scalar::int(DType::I64, value));
        let offsets = self.bags.offsets.as_ref().map(Tensor::contiguous).transpose()?;
        let wide = launch::accumulate_dtype(table.dtype());
        let weights = match inputs.get(2) {
            Some(weights) => weights.contiguous()?,
            None => Tensor::uninitialized(&[1], (wide, table.device()))?,
        };
        let length = if offsets.is_some() { 0 } else { self.shape[1] };
        let cols = table.shape()[1].next_power_of_two().clamp(16, COLUMNS);
        let args = [
            launch::view_of(table, false),
            launch::pointer(index, false),
            launch::pointer(offsets.as_ref().unwrap_or(index), false),
            launch::pointer(&weights, false),
            launch::view_of(y, true),
            number(index.numel() as i64),
            number(length as i64),
            number(offsets.as_ref().map_or(0, Tensor::numel) as i64),
            number(self.bags.padding_idx.map_or(-1, |padding| padding as i64)),
            number(i64::from(self.bags.mode == BagMode::Mean)),
        ];
        let flag = flag::args("embedding", table.device(), self.vocabulary)?;
        let args = [&args[..], &flag].concat();
        let grid = Grid::xy(self.count, table.shape()[1].div_ceil(cols));
        let dtypes = [table.dtype(), wide];
        let consts = [i64::from(inputs.len() > 2), TOKENS as i64, cols as i64];
        launch::warped(&device::embedding_bag::KERNEL, y, grid, &dtypes, &consts, None, &args)
    }
}

/// Rows that a program reads at once, and columns that it has at most.
const TOKENS: usize = 16;
const COLUMNS: usize = 128;

impl Bag {
    /// How many indices each bag has, and no less than 1, to divide `dy: [B, C]` by.
    fn mean(&self, dy: &Tensor, index: &Tensor) -> Result<Tensor> {
        let (n, at) = (index.numel(), (DType::I64, dy.device()));
        let sizes = match (&self.bags.offsets, self.bags.padding_idx) {
            (None, None) => return dy.div_scalar(self.shape[1].max(1) as f64),
            (Some(offsets), None) if self.count > 0 => {
                let first = offsets.narrow(0, 0, self.count)?;
                let rest = offsets.narrow(0, 1, offsets.numel() - 1)?;
                match self.bags.include_last_offset {
                    true => rest.sub(&first)?,
                    false => {
                        Tensor::cat(&[&rest, &Tensor::full(&[1], n as f64, at)?], 0)?.sub(&first)?
                    }
                }
            }
            _ => {
                let bag = self.bags.of_each(&self.shape, index, self.count)?;
                let ones = Tensor::ones(&[n], at)?;
                let sizes = Tensor::zeros(&[self.count + 1], at)?.index_add(0, &bag, &ones, 1.0)?;
                sizes.narrow(0, 0, self.count)?
            }
        };
        dy.div(&sizes.maximum_scalar(1.0)?.to_dtype(dy.dtype())?.unsqueeze(-1)?)
    }

    /// The bag of each index, -1 of what belongs to none: that has no gradient.
    fn bag_of_each(&self, index: &Tensor) -> Result<Tensor> {
        let bag = self.bags.of_each(&self.shape, index, self.count)?;
        bag.masked_fill(&bag.ge_scalar(self.count as f64)?, -1.0)
    }

    /// The length of all bags, where that says which index is in which.
    fn length(&self) -> Option<usize> {
        let is_even = self.bags.offsets.is_none() && self.bags.padding_idx.is_none();
        is_even.then(|| self.shape[1]).filter(|&length| length > 0)
    }

    /// On the CPU: the gradient of the table. That of each bag is added to the rows of its indices; it is not repeated for
    /// each of them, as there may be many.
    fn gradient_in_order(&self, index: &Tensor, bag: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let [count, columns] = [self.count, dy.shape()[1]];
        let sums = Tensor::zeros(&[1, self.vocabulary, columns], (dy.dtype(), dy.device()))?;
        let dy = dy.reshape(&[1, count, columns])?;
        launch::along::add_slices_in_order((index, Some(bag)), &dy, &sums)?;
        sums.reshape(&[self.vocabulary, columns])?.to_dtype(self.dtype)
    }

    /// The gradients on a GPU, which no row of the table or of `dy` is repeated for.
    fn gradients_on_gpu(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (index, dy) = (saved.input(1), dy.contiguous()?);
        let bag = match self.length() {
            Some(_) => None,
            None => Some(self.bag_of_each(index)?.contiguous()?),
        };
        let length = self.length().unwrap_or(0);
        let slopes = BagSlopes { index, bag: bag.as_ref(), length, dy: &dy };
        let table = (self.vocabulary, self.dtype);
        if self.bags.per_sample_weights.is_none() {
            return Ok(vec![Some(slopes.of_table(table, None)?), None]);
        }
        let weights = saved.input(2);
        let dtable = match saved.wanted[0] {
            true => Some(slopes.of_table(table, Some(weights))?),
            false => None,
        };
        let dweights = match saved.wanted[2] {
            true => Some(slopes.of_weights(saved.input(0))?),
            false => None,
        };
        Ok(vec![dtable, None, dweights])
    }

    /// The gradients by the rows of all bags, each an op that has a gradient itself.
    fn gradients_by_ops(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (index, is_weighted) = (saved.input(1), self.bags.per_sample_weights.is_some());
        let bag = self.bag_of_each(index)?;
        let [count, columns] = [self.count, dy.shape()[1]];
        let drows = along::take_named_slices(&dy.reshape(&[1, count, columns])?, &bag, false)?;
        let drows = drows.reshape(&[index.numel(), columns])?; // [N, C]
        let of_table = |drows: &Tensor| {
            embedding::gradient(&drows.to_dtype(self.dtype)?, index, self.vocabulary)
        };
        if !is_weighted {
            return Ok(vec![Some(of_table(&drows)?), None]);
        }
        let (table, weights) = (saved.input(0), saved.input(2));
        let rows = table.embedding(index)?.to_dtype(dy.dtype())?;
        let dweights = rows.mul(&drows)?.sum_dims(&[1], false)?;
        Ok(vec![Some(of_table(&drows.mul(&weights.unsqueeze(-1)?)?)?), None, Some(dweights)])
    }
}

impl Op for Bag {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let table = inputs[0];
        let at = (table.dtype(), table.device());
        let shape = [self.count, table.shape()[1]];
        if shape[0] * shape[1] == 0 || inputs[1].numel() == 0 {
            return Tensor::zeros(&shape, at);
        }
        let y = Tensor::uninitialized(&shape, at)?;
        self.launch(inputs, &y)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        let is_weighted = self.bags.per_sample_weights.is_some();
        Saves::inputs(if is_weighted { 7 } else { 2 })
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (index, is_weighted) = (saved.input(1), self.bags.per_sample_weights.is_some());
        let dy = dy.to_dtype(launch::accumulate_dtype(dy.dtype()))?;
        let dy = match self.bags.mode {
            BagMode::Mean => self.mean(&dy, index)?,
            _ => dy,
        };
        match dy.device() {
            _ if is_grad_enabled() => self.gradients_by_ops(saved, &dy),
            Device::Cpu if is_weighted => self.gradients_by_ops(saved, &dy),
            Device::Cpu => {
                let dtable = self.gradient_in_order(index, &self.bag_of_each(index)?, &dy)?;
                Ok(vec![Some(dtable), None])
            }
            Device::Cuda(_) => self.gradients_on_gpu(saved, &dy),
        }
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
    /// How many bags there are; refuses what does not fit.
    #[track_caller]
    fn count(&self, index: &Tensor) -> Result<usize> {
        let n = index.numel();
        let Some(offsets) = &self.offsets else {
            if index.rank() != 2 {
                let message = format!("an index {:?} needs offsets, or 2 axes", index.shape());
                return Err(Error::op(NAME, message));
            }
            return Ok(index.shape()[0]);
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
        Ok(offsets.numel() - least)
    }

    /// The bag of each of a vector of indices that came in `shape`; of one that belongs to none `count` or more.
    #[track_caller]
    fn of_each(&self, shape: &[usize], index: &Tensor, count: usize) -> Result<Tensor> {
        let (n, on) = (index.numel(), index.device());
        let places = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, on))?;
        let bag = match &self.offsets {
            // What is behind a last offset that begins no bag belongs to none.
            Some(offsets) => offsets.searchsorted(&places, true)?.sub_scalar(1.0)?,
            None => places.floor_divide_scalar(shape[1].max(1) as f64)?,
        };
        match self.padding_idx {
            Some(padding) => bag.masked_fill(&index.eq_scalar(padding as f64)?, count as f64),
            None => Ok(bag),
        }
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

//! Tensor parallel layers: the weight of one layer lies on several ranks.
//!
//! A [`ColumnParallelLinear`] holds some of the outputs, a [`RowParallelLinear`] some of the inputs: one after
//! the other, with any function of single elements between them, they need one collective in the forward
//! and one in the backward. [`VocabParallelEmbedding`] holds some of the rows of a table, and
//! [`vocab_parallel_cross_entropy`] takes scores of some of the classes.
//!
//! With [`Parallel::Sequence`] what lies between such pairs, such as norms and dropout, is computed by each rank
//! for its part of the sequence: the sum over ranks becomes a reduce-scatter, the copy an all-gather.
//! Parameters that are whole on each rank then see a part of the sequence each:
//! [`sum_gradients`] adds their gradients up.

use super::functional::{
    all_gather, copy_to, gather_from, own_part, reduce_from, reduce_scatter, scatter_to,
};
use super::group::ProcessGroup;
use crate::autograd::{HookHandle, no_grad};
use crate::error::{Error, Result};
use crate::nn::{Cut, Embedding, Linear, Module, Parameter, Shard};
use crate::ops::Reduction;
use crate::tensor::Tensor;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::nccl::ReduceOp;

/// What tensors between two parallel layers are on each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Parallel {
    /// All of them are whole on all ranks.
    #[default]
    Tensor,
    /// Each rank has its part of them along this axis, the sequence.
    Sequence(i64),
}

impl Parallel {
    /// What comes into a layer, as each rank of the group needs it: whole.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather`].
    pub fn enter(self, x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
        match self {
            Parallel::Tensor => copy_to(x, group),
            Parallel::Sequence(axis) => all_gather(x, axis, group),
        }
    }

    /// The sum of what the ranks of a group computed, as the next layer takes it.
    ///
    /// # Errors
    /// If the sequence is not in equal parts, or as [`ProcessGroup::all_reduce`].
    pub fn leave(self, x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
        match self {
            Parallel::Tensor => reduce_from(x, group),
            Parallel::Sequence(axis) => reduce_scatter(x, axis, group),
        }
    }

    /// This rank's part of a tensor that is whole on all ranks, and where it is to be.
    ///
    /// # Errors
    /// If the sequence is not in equal parts.
    pub fn scatter(self, x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
        match self {
            Parallel::Tensor => Ok(x.clone()),
            Parallel::Sequence(axis) => scatter_to(x, axis, group),
        }
    }

    /// The whole tensor on all ranks, of what lies between two layers.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather`].
    pub fn gather(self, x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
        match self {
            Parallel::Tensor => Ok(x.clone()),
            Parallel::Sequence(axis) => gather_from(x, axis, group),
        }
    }
}

/// A part of a parameter that is equal on all ranks of a group: that of rank 0 is taken.
pub(crate) fn shard_parameter(
    whole: &Parameter,
    axis: usize,
    group: &ProcessGroup,
) -> Result<Parameter> {
    let part = no_grad(|| own_part(&equal(whole, group)?, axis as i64, group))?;
    Ok(Parameter::new(part)?.with_shard(Shard {
        whole: whole.shape().to_vec(),
        cut: Cut::Axis(axis),
        index: group.rank(),
        count: group.size(),
        outer: whole.shard().cloned(),
    }))
}

/// A parameter with the values of rank 0.
fn equal(whole: &Parameter, group: &ProcessGroup) -> Result<Tensor> {
    let values = whole.detach().to_device(group.device())?.contiguous()?;
    group.broadcast(&values, 0)?;
    Ok(values)
}

/// A linear layer whose outputs lie on several ranks.
///
/// # Shapes
/// `[.., in]` -> `[.., out / ranks]`, or `[.., out]` where outputs are gathered.
#[derive(Debug, Module)]
pub struct ColumnParallelLinear {
    /// `[out / ranks, in]`
    pub weight: Parameter,
    /// `[out / ranks]`
    pub bias: Option<Parameter>,
    #[module(skip)]
    group: ProcessGroup,
    #[module(skip)]
    between: Parallel,
    #[module(skip)]
    gather_output: bool,
}

impl ColumnParallelLinear {
    /// This rank's part of a layer, whose values are those of rank 0.
    ///
    /// # Errors
    /// If the outputs are not in equal parts.
    pub fn new(layer: Linear, between: Parallel, group: &ProcessGroup) -> Result<Self> {
        let Linear { weight, bias } = layer;
        Ok(ColumnParallelLinear {
            weight: shard_parameter(&weight, 0, group)?,
            bias: bias.map(|bias| shard_parameter(&bias, 0, group)).transpose()?,
            group: group.clone(),
            between,
            gather_output: false,
        })
    }

    /// The same layer with all outputs on all ranks.
    pub fn gathered(mut self) -> Self {
        self.gather_output = true;
        self
    }

    /// This rank's outputs.
    ///
    /// # Errors
    /// If the last extent is not that of the weight, or dtypes or devices differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.between.enter(x, &self.group)?;
        let weight = self.weight.t()?; // [in, out / ranks]
        let y = match &self.bias {
            Some(bias) => x.matmul_bias(&weight, bias)?,
            None => x.matmul(&weight)?,
        };
        if self.gather_output { gather_from(&y, -1, &self.group) } else { Ok(y) }
    }
}

/// A linear layer whose inputs lie on several ranks.
///
/// # Shapes
/// `[.., in / ranks]` -> `[.., out]`
#[derive(Debug, Module)]
pub struct RowParallelLinear {
    /// `[out, in / ranks]`
    pub weight: Parameter,
    /// `[out]`, whole on each rank.
    pub bias: Option<Parameter>,
    #[module(skip)]
    group: ProcessGroup,
    #[module(skip)]
    between: Parallel,
}

impl RowParallelLinear {
    /// This rank's part of a layer, whose values are those of rank 0.
    ///
    /// # Errors
    /// If the inputs are not in equal parts.
    pub fn new(layer: Linear, between: Parallel, group: &ProcessGroup) -> Result<Self> {
        let Linear { weight, bias } = layer;
        let weight = shard_parameter(&weight, 1, group)?;
        let bias = bias.map(|bias| Parameter::new(equal(&bias, group)?)).transpose()?;
        if let (Some(bias), Parallel::Sequence(_)) = (&bias, between) {
            // Each rank adds it to its part of the sequence.
            sum_gradients(&[bias.tensor().clone()], group)?;
        }
        Ok(RowParallelLinear { weight, bias, group: group.clone(), between })
    }

    /// The outputs of the layer.
    ///
    /// # Errors
    /// If the last extent is not that of the weight, or dtypes or devices differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let part = x.matmul(&self.weight.t()?)?; // a sum over this rank's inputs
        let y = self.between.leave(&part, &self.group)?;
        match &self.bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }
}

/// The rows of a table that a rank has.
#[derive(Clone, Copy, Debug)]
struct Rows {
    first: usize,
    count: usize,
}

impl Rows {
    /// Indices within the part, those outside replaced by the first; and which are outside.
    fn local(self, index: &Tensor) -> Result<(Tensor, Tensor)> {
        let local = index.to_dtype(DType::I64)?.add_scalar(-(self.first as f64))?;
        let outside = local.lt_scalar(0.0)?.logical_or(&local.ge_scalar(self.count as f64)?)?;
        Ok((local.masked_fill(&outside, 0.0)?, outside))
    }
}

/// An embedding whose rows lie on several ranks.
///
/// # Shapes
/// `[..]` of integers -> `[.., C]`
#[derive(Debug, Module)]
pub struct VocabParallelEmbedding {
    /// `[V / ranks, C]`
    pub weight: Parameter,
    #[module(skip)]
    group: ProcessGroup,
    #[module(skip)]
    between: Parallel,
}

impl VocabParallelEmbedding {
    /// This rank's part of a table, whose values are those of rank 0.
    ///
    /// # Errors
    /// If the rows are not in equal parts: pad the vocabulary.
    pub fn new(table: Embedding, between: Parallel, group: &ProcessGroup) -> Result<Self> {
        let weight = shard_parameter(&table.weight, 0, group)?;
        Ok(VocabParallelEmbedding { weight, group: group.clone(), between })
    }

    /// The rows of the indices, which are equal on all ranks.
    ///
    /// # Errors
    /// As [`Tensor::embedding`]; an index that no rank has gives a row of zeros.
    pub fn forward(&self, index: &Tensor) -> Result<Tensor> {
        let rows = vocab_parallel_rows(&self.weight, index, &self.group)?;
        self.between.leave(&rows, &self.group)
    }
}

/// Rows of this rank's part of a table by index, zeros for those of other ranks.
pub(crate) fn vocab_parallel_rows(
    part: &Parameter,
    index: &Tensor,
    group: &ProcessGroup,
) -> Result<Tensor> {
    let count = part.shape()[0];
    let (local, outside) = Rows { first: group.rank() * count, count }.local(index)?;
    part.embedding(&local)?.masked_fill(&outside.unsqueeze(-1)?, 0.0)
}

/// The cross entropy of scores whose classes lie on several ranks, without gathering them.
///
/// # Shapes
/// `[N, C / ranks]` and `[N]` of integers, equal on all ranks -> `[]`, or `[N]` without a reduction. A target of
/// -100 does not count.
/// # Numerics
/// Sums are in f32 for 16-bit dtypes.
/// # Errors
/// If the shapes do not fit.
pub fn vocab_parallel_cross_entropy(
    scores: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    group: &ProcessGroup,
) -> Result<Tensor> {
    const IGNORED: f64 = -100.0;
    if scores.rank() != 2 || target.shape() != &scores.shape()[..1] {
        let message = format!(
            "scores are [N, C], targets [N], not {:?}, {:?}",
            scores.shape(),
            target.shape()
        );
        return Err(Error::op("vocab_parallel_cross_entropy", message));
    }
    let scores = match scores.dtype() {
        DType::F16 | DType::BF16 => scores.to_dtype(DType::F32)?,
        _ => scores.clone(),
    };
    let most = no_grad(|| {
        let most = scores.detach().max_dims(&[-1], true)?.contiguous()?;
        group.all_reduce(&most, ReduceOp::Max)?;
        Ok::<_, Error>(most)
    })?;
    let scores = scores.sub(&most)?;
    let sum = reduce_from(&scores.exp()?.sum_dims(&[-1], false)?, group)?;
    let count = scores.shape()[1];
    let (local, outside) = Rows { first: group.rank() * count, count }.local(target)?;
    let own = scores.gather(1, &local.unsqueeze(1)?)?.squeeze(1)?.masked_fill(&outside, 0.0)?;
    let losses = sum.log()?.sub(&reduce_from(&own, group)?)?;
    let ignored = target.to_dtype(DType::I64)?.eq_scalar(IGNORED)?;
    let losses = losses.masked_fill(&ignored, 0.0)?;
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Sum => losses.sum(),
        Reduction::Mean => {
            let counted = ignored.logical_not()?.to_dtype(losses.dtype())?.sum()?;
            losses.sum()?.div(&counted)
        }
    }
}

/// Adds the gradients of parameters up over the ranks of a group, when each is there: for parameters that are
/// whole on each rank, where each computes a part of what they are used for.
///
/// # Errors
/// If a tensor is not a leaf that requires a gradient.
pub fn sum_gradients(parameters: &[Tensor], group: &ProcessGroup) -> Result<Vec<HookHandle>> {
    let hook = |parameter: &Tensor| {
        let group = group.clone();
        parameter.register_hook(move |grad: &Tensor| {
            let sum = no_grad(|| grad.detach().copy()?.contiguous())?;
            group.all_reduce(&sum, ReduceOp::Sum)?;
            Ok(Some(sum))
        })
    };
    parameters.iter().map(hook).collect()
}

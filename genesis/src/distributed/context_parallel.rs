//! Attention over a sequence whose parts lie on several ranks: ring attention.
//!
//! Each rank has the queries, keys and values of its part. Keys and values go round the ranks; what the
//! queries see in each part is joined by the logarithms of its sums. In the backward they go round again,
//! and their gradients with them.
//!
//! Under a causal mask a rank with the last part would have most to do, so each has two: of `2 N` pieces of the
//! sequence rank `r` has number `r` and number `2 N - 1 - r` ([`context_part`]), and all have as much to do.

use super::functional;
use super::group::ProcessGroup;
use crate::autograd::{Context, Function};
use crate::error::{Error, Result};
use crate::ops::{Attention, part_gradients};
use crate::tensor::Tensor;
use genesis_kernel::ir::DType;

const NAME: &str = "context_parallel_attention";

/// This rank's two pieces of a sequence that all ranks have, along an axis: of `2 N` pieces the one of its
/// number from the front, and the one from the back.
///
/// # Errors
/// If the axis is not in equal pieces.
pub fn context_part(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    let (size, rank, extent) = (group.size(), group.rank(), x.dim(axis)?);
    if extent % (2 * size) != 0 {
        let pieces = 2 * size;
        let message = format!("axis {axis} of {:?} is not in {pieces} equal pieces", x.shape());
        return Err(Error::op("context_part", message));
    }
    let piece = extent / (2 * size);
    let of = |number: usize| x.narrow(axis, number * piece, piece);
    Tensor::cat(&[&of(rank)?, &of(2 * size - 1 - rank)?], axis)
}

/// The sequence of the parts of all ranks: what [`context_part`] took apart. All ranks have it, and use it alike.
///
/// # Errors
/// If there is no such axis, or as [`ProcessGroup::all_gather`].
pub fn context_whole(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    let size = group.size();
    let all = functional::gather_from(x, axis, group)?;
    let piece = all.dim(axis)? / (2 * size);
    // Rank `r` brought its pieces as number `2 r` and `2 r + 1`.
    let at = |number: usize| match number < size {
        true => 2 * number,
        false => 2 * (2 * size - 1 - number) + 1,
    };
    let pieces = (0..2 * size).map(|number| all.narrow(axis, at(number) * piece, piece));
    let pieces = pieces.collect::<Result<Vec<_>>>()?;
    Tensor::cat(&pieces.iter().collect::<Vec<_>>(), axis)
}

/// Attention of a sequence of which each rank has a part, as [`context_part`] cuts it.
///
/// # Shapes
/// `q: [B, H, L / ranks, D]`, `k` and `v: [B, G, L / ranks, D]` -> `[B, H, L / ranks, D]`; `H` is a multiple of
/// `G`.
/// # Numerics
/// Parts are joined in f32 (f64), in an order that differs from rank to rank.
/// # Errors
/// If shapes do not fit, or as [`ProcessGroup::exchange`].
/// # Cost
/// Keys and values are sent `ranks - 1` times in the forward; with their gradients as often in the backward.
pub fn context_parallel_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    is_causal: bool,
    group: &ProcessGroup,
) -> Result<Tensor> {
    let options = Attention { is_causal, groups: true, ..Attention::default() };
    context_parallel_attention_with(q, k, v, &options, group)
}

/// [`context_parallel_attention`] with other options: a scale.
///
/// # Errors
/// As of that; if the options have a mask, dropout, a window or a soft cap.
pub fn context_parallel_attention_with(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &Attention,
    group: &ProcessGroup,
) -> Result<Tensor> {
    let fits = [q, k, v].iter().all(|t| t.rank() == 4) && k.shape() == v.shape();
    if !fits || q.dim(2)? != k.dim(2)? || q.dim(2)? % 2 != 0 {
        let message = format!(
            "q is [B, H, L, D], k and v [B, G, L, D] with an even L, not {:?}, {:?}, {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
        return Err(Error::op(NAME, message));
    }
    let Attention { is_causal, scale, .. } = *options;
    let only = Attention { is_causal, scale, groups: true, ..Attention::default() };
    for (name, is_usual) in [
        ("a mask", options.mask.is_none()),
        ("dropout", options.dropout == only.dropout),
        ("a window", options.window == only.window),
        ("a soft cap of scores", options.softcap == only.softcap),
    ] {
        if !is_usual {
            return Err(Error::op(NAME, format!("{name} is not built for parts of a sequence")));
        }
    }
    Ring { is_causal, scale, group: group.clone() }.apply(&[q, k, v])
}

/// Attention around the ranks.
struct Ring {
    is_causal: bool,
    scale: Option<f64>,
    group: ProcessGroup,
}

/// Which queries look at which keys of a part.
#[derive(Clone, Copy)]
struct Look {
    /// The first query; the second piece begins at half.
    query: usize,
    /// How many keys.
    keys: usize,
    is_causal: bool,
}

impl Ring {
    /// How the queries of this rank, `len` of them, look at the part of the rank `from`.
    fn look(&self, from: usize, len: usize) -> Look {
        let own = self.group.rank();
        let all = Look { query: 0, keys: len, is_causal: false };
        match (self.is_causal, from.cmp(&own)) {
            (false, _) => all,
            // Positions rise within a part, as its pieces do.
            (true, std::cmp::Ordering::Equal) => Look { is_causal: true, ..all },
            // Its first piece comes before both of ours, its second after both.
            (true, std::cmp::Ordering::Less) => Look { keys: len / 2, ..all },
            // Both of its pieces lie between ours.
            (true, std::cmp::Ordering::Greater) => Look { query: len / 2, ..all },
        }
    }

    /// The rank whose part is here after so many turns.
    fn source(&self, turn: usize) -> usize {
        let size = self.group.size();
        (self.group.rank() + size - turn) % size
    }

    /// Gives tensors to the next rank and takes those of the one before.
    fn turn(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let (size, rank) = (self.group.size(), self.group.rank());
        let next = (rank + 1) % size;
        let before = (rank + size - 1) % size;
        let gives = tensors.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>()?;
        let taken = gives
            .iter()
            .map(|t| Tensor::empty(t.shape(), (t.dtype(), t.device())))
            .collect::<Result<Vec<_>>>()?;
        let to: Vec<_> = gives.iter().map(|t| (t, next)).collect();
        let from: Vec<_> = taken.iter().map(|t| (t, before)).collect();
        self.group.exchange(&to, &from)?;
        Ok(taken)
    }

    fn options(&self, look: Look) -> Attention {
        let (is_causal, scale) = (look.is_causal, self.scale);
        Attention { is_causal, scale, groups: true, ..Attention::default() }
    }
}

/// Joins a result over some keys with that over others: both weighted by their sums of exponentials.
fn joined(
    (y, lse): (&Tensor, &Tensor),
    (y2, lse2): (&Tensor, &Tensor),
) -> Result<(Tensor, Tensor)> {
    let most = lse.maximum(lse2)?;
    let all = most.add(&lse.sub(&most)?.exp()?.add(&lse2.sub(&most)?.exp()?)?.log()?)?;
    let weigh = |y: &Tensor, lse: &Tensor| y.mul(&lse.sub(&all)?.exp()?.unsqueeze(-1)?);
    Ok((weigh(y, lse)?.add(&weigh(y2, lse2)?)?, all))
}

/// The rows from `start` on replaced.
fn with_rows(x: &Tensor, start: usize, rows: &Tensor, axis: i64) -> Result<Tensor> {
    match start {
        0 => Ok(rows.clone()),
        _ => Tensor::cat(&[&x.narrow(axis, 0, start)?, rows], axis),
    }
}

/// The dtype in which parts are added up.
fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

impl Function for Ring {
    const ONCE_DIFFERENTIABLE: bool = true;

    fn name(&self) -> &str {
        NAME
    }

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let q = inputs[0].detach();
        let mut part: Vec<Tensor> = inputs[1..].iter().map(|t| t.detach()).collect();
        let len = q.dim(2)?;
        let mut all: Option<(Tensor, Tensor)> = None;
        for turn in 0..self.group.size() {
            if turn > 0 {
                part = self.turn(&part)?;
            }
            let look = self.look(self.source(turn), len);
            let queries = q.narrow(2, look.query, len - look.query)?;
            let [k, v] = [&part[0], &part[1]].map(|t| t.narrow(2, 0, look.keys));
            let (y, lse) = queries.attention_with_lse(&k?, &v?, &self.options(look))?;
            let (y, lse) = (wide(&y)?, wide(&lse)?);
            all = Some(match all {
                None => (y, lse),
                Some((sum, before)) => {
                    let count = len - look.query;
                    let own =
                        (&sum.narrow(2, look.query, count)?, &before.narrow(2, look.query, count)?);
                    let (y, lse) = joined(own, (&y, &lse))?;
                    (with_rows(&sum, look.query, &y, 2)?, with_rows(&before, look.query, &lse, 2)?)
                }
            });
        }
        let (y, lse) = all.ok_or_else(|| Error::op(NAME, "a group without ranks"))?;
        let y = y.to_dtype(q.dtype())?;
        ctx.save_for_backward(&[inputs[0], inputs[1], inputs[2], &y, &lse]);
        Ok(vec![y])
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let saved: Vec<Tensor> = ctx.saved_tensors().iter().map(Tensor::detach).collect();
        let [q, k, v, y, lse] = &saved[..] else {
            return Err(Error::op(NAME, "saved other tensors, which is a bug"));
        };
        let (dy, len) = (grads[0].contiguous()?, q.dim(2)?);
        let zeros = |t: &Tensor| wide(t)?.zeros_like();
        let mut dq = zeros(q)?;
        // Keys, values and their gradients, which go round together.
        let mut part = vec![k.clone(), v.clone(), zeros(k)?, zeros(v)?];
        for turn in 0..self.group.size() {
            if turn > 0 {
                part = self.turn(&part)?;
            }
            let look = self.look(self.source(turn), len);
            let rows = |t: &Tensor| t.narrow(2, look.query, len - look.query)?.contiguous();
            let keys = |t: &Tensor| t.narrow(2, 0, look.keys)?.contiguous();
            let inputs = [&rows(q)?, &keys(&part[0])?, &keys(&part[1])?];
            let of = [&rows(y)?, &rows(lse)?];
            let options = self.options(look);
            let [q2, k2, v2] = part_gradients(inputs, (of[0], of[1]), &rows(&dy)?, &options)?;
            dq = with_rows(&dq, look.query, &rows(&dq)?.add(&wide(&q2)?)?, 2)?;
            for (sum, new) in part[2..].iter_mut().zip([k2, v2]) {
                let first = keys(sum)?.add(&wide(&new)?)?;
                *sum = match look.keys == len {
                    true => first,
                    false => {
                        Tensor::cat(&[&first, &sum.narrow(2, look.keys, len - look.keys)?], 2)?
                    }
                };
            }
        }
        // One turn more brings the gradients home.
        let home = if self.group.size() > 1 { self.turn(&part[2..])? } else { part[2..].to_vec() };
        let [dk, dv] = [0, 1].map(|i| home[i].to_dtype(k.dtype()));
        Ok(vec![Some(dq.to_dtype(q.dtype())?), Some(dk?), Some(dv?)])
    }
}

//! FlashAttention: kernels that never materialize the scores, and their gradients.

use std::sync::{Arc, OnceLock};

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::attention::{Features, Heads, Part, Tile};
use kernels::{attention as device, packed as lists};

use super::scores::{NAME, capped, in_reach, weights};
use crate::autograd::{SavedTensors, is_grad_enabled, no_grad};
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::random::{dropout_from, fixed_args, state_args};
use crate::ops::{Op, Saves, result_of};
use crate::random::RngState;
use crate::tensor::Tensor;

/// Attention by one kernel, of `q: [B, H, L, D]`, `k` and `v: [B, G, S, D]`.
#[derive(Clone, Default)]
pub(super) struct Flash {
    pub(super) scale: f64,
    /// How far before and after its own place a query looks.
    pub(super) reach: [i64; 2],
    pub(super) cap: Option<f64>,
    /// What is added to the scores, `[B, H, L, S]`.
    pub(super) bias: Option<Tensor>,
    /// The probability of weights to be dropped, and where their draws begin.
    pub(super) drop: Option<(f64, RngState)>,
    /// Sequences one after the other, in a batch of 1.
    pub(super) packed: Option<Packed>,
    /// The logarithm of each row's sum of exponentials, `[B, H, L]`.
    pub(super) lse: Arc<OnceLock<Tensor>>,
}

/// Where sequences end among rows of queries and keys.
#[derive(Clone)]
pub(super) struct Packed {
    /// Of i64: 0, then the end of each sequence.
    pub(super) ends: [Tensor; 2],
    /// The length of the longest.
    pub(super) longest: [usize; 2],
}

/// Rows that a program sums up, at most.
const ROWS: i64 = 64;
/// Entries of a list that a program makes.
const LISTED: usize = 128;
/// Rows that a program looks at for those in no block.
const CLEARED: usize = 64;

impl Packed {
    /// The list of blocks of `block` rows of queries or keys.
    fn list(&self, part: Part, [q, k]: [&Tensor; 2], block: i64) -> Result<Tensor> {
        let side = usize::from(part.has_keys());
        let rows = [q, k].map(|t| t.shape()[2]);
        let sequences = self.sequences();
        let count = lists::blocks(rows[side], block as usize, sequences);
        let list = Tensor::uninitialized(&[count, lists::ENTRY], (DType::I64, q.device()))?;
        let [ends, others] = [side, 1 - side].map(|side| launch::pointer(&self.ends[side], false));
        let numbers = [count, sequences, rows[side], rows[1 - side], self.longest[side]];
        let args =
            [&[ends, others, launch::pointer(&list, true)], &numbers.map(place)[..]].concat();
        let kernel = &lists::attention_blocks::KERNEL;
        let most = if sequences <= lists::ORDERED { lists::ORDERED as i64 } else { 0 };
        let consts = [LISTED as i64, block, side as i64, most];
        if count > 0 {
            let grid = Grid::x(count.div_ceil(LISTED));
            launch::warped(kernel, q, grid, &[], &consts, None, &args)?;
        }
        Ok(list)
    }

    /// Writes zeros to rows of `y: [rows, cols]` that blocks of `block` rows leave out.
    fn clear(&self, part: Part, y: &Tensor, block: i64) -> Result<()> {
        let side = usize::from(part.has_keys());
        let longest = self.longest[side].next_multiple_of(block as usize);
        let kernel = &lists::attention_unlisted::KERNEL;
        let grid = Grid::x(y.shape()[0].div_ceil(CLEARED));
        let ends = launch::pointer(&self.ends[side], false);
        let numbers = [ends, place(self.sequences()), place(longest)];
        let consts = [CLEARED as i64, 128];
        launch::warped_views(kernel, grid, &[y.dtype()], &consts, None, &[(y, true)], &numbers)
    }

    fn sequences(&self) -> usize {
        self.ends[0].numel().saturating_sub(1)
    }
}

/// A whole number as an argument.
fn place(n: usize) -> Arg {
    Arg::Scalar(genesis_kernel::Scalar::int(DType::I64, n as i64))
}

impl Flash {
    /// Launches a kernel on its tensors, `bias` among them after `q`, `k` and `v`.
    fn launch(&self, part: Part, [q, k, v]: [&Tensor; 3], more: &[(&Tensor, bool)]) -> Result<()> {
        let wide = launch::accumulate_dtype(q.dtype());
        let kernel: &KernelDef = match part {
            Part::Forward => &device::attention::KERNEL,
            Part::Keys | Part::OnlyKeys | Part::OnlyValues => &device::attention_keys::KERNEL,
            Part::Queries => &device::attention_queries::KERNEL,
        };
        let mut tile = self.tile(part, q);
        let is_alone = self.is_alone(&tile, k);
        if is_alone {
            tile = tile.of_all_keys(&chip(q.device()), part, q.shape()[3]);
        }
        let of_rows = if part.has_keys() { k } else { q };
        let (rows, heads) = (of_rows.shape()[2], of_rows.shape()[1]);
        let list = self.packed.as_ref().map(|packed| packed.list(part, [q, k], tile.rows(part)));
        let list = list.transpose()?;
        let blocks = match &list {
            Some(list) => list.shape()[0],
            None => rows.div_ceil(tile.rows(part) as usize),
        };
        let batch = q.shape()[0];
        if blocks * heads * batch == 0 {
            return Ok(());
        }
        let Tile { queries, keys, warps } = tile;
        let head = q.shape()[3].next_power_of_two().max(16) as i64;
        let alone = (part != Part::Forward).then_some(i64::from(is_alone));
        let mut consts = vec![queries, keys, head];
        consts.extend(alone);
        consts.extend(part.only());
        consts.extend(self.features().consts());
        // Without a bias any tensor of four axes stands in its place.
        let mut tensors = vec![(q, false), (k, false), (v, false)];
        tensors.push((self.bias.as_ref().unwrap_or(q), false));
        tensors.extend_from_slice(more);
        let reach = self.reach.map(|n| Arg::Scalar(genesis_kernel::Scalar::int(DType::I64, n)));
        let (p, state) = self.drop.unwrap_or((0.0, RngState { seed: 0, offset: 0 }));
        let [seed, offset] = match self.drop {
            Some(_) => state_args(state)?,
            None => fixed_args(state),
        };
        let mut numbers = vec![list_or_none(list.as_ref(), q)];
        if matches!(part, Part::Forward) {
            numbers.push(place(list.as_ref().map_or(0, |list| list.shape()[0])));
        }
        numbers.push(launch::number(wide, self.scale));
        numbers.extend(reach);
        numbers.extend([
            launch::number(wide, self.cap.unwrap_or(1.0)),
            seed,
            offset,
            launch::number(DType::F32, p),
        ]);
        let grid = match part {
            Part::Forward => Grid::x(blocks * heads * batch),
            _ => Grid::xyz(blocks, heads, batch),
        };
        let dtypes = [q.dtype(), wide];
        launch::warped_views(kernel, grid, &dtypes, &consts, Some(warps), &tensors, &numbers)
    }

    /// What the kernels do beside attention.
    fn features(&self) -> Features {
        Features {
            bias: self.bias.is_some(),
            cap: self.cap.is_some(),
            drop: self.drop.is_some(),
            packed: self.packed.is_some(),
        }
    }

    /// Whether a block of keys holds all of them, and outputs are rounded to 16 bits: then the backward does not
    /// need their products with gradients.
    fn is_alone(&self, tile: &Tile, k: &Tensor) -> bool {
        self.packed.is_none() && k.dtype().bytes() == 2 && k.shape()[2] <= tile.keys as usize
    }

    fn tile(&self, part: Part, q: &Tensor) -> Tile {
        Tile::of(&chip(q.device()), part, heads_of(q), self.features())
    }

    /// Memory for what a kernel writes of the shape of a tensor, `[B, H, L, D]`, whose axes lie as those of the tensor: heads
    /// of one product are joined again without a copy. Of packed sequences in the order of their rows, with zeros in those that
    /// it leaves out.
    fn fresh(&self, part: Part, like: &Tensor) -> Result<Tensor> {
        let options = (like.dtype(), like.device());
        let (Some(packed), &[_, h, l, d]) = (&self.packed, like.shape()) else {
            return result_of(&[like], like.shape(), options);
        };
        let rows = Tensor::uninitialized(&[l, h, d], options)?;
        if l * h * d > 0 {
            packed.clear(part, &rows.reshape(&[l, h * d])?, self.tile(part, like).rows(part))?;
        }
        no_grad(|| rows.transpose(0, 1)?.unsqueeze(0))
    }

    /// The gradients by kernels.
    pub(super) fn by_kernels(
        &self,
        saved: &SavedTensors,
        lse: &Tensor,
        dy: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let inputs = [saved.input(0), saved.input(1), saved.input(2)];
        let (delta, norm) = self.sums_of_rows(saved, dy, lse)?;
        let dq = self.fresh(Part::Queries, inputs[0])?;
        let parts = Part::of_keys(&chip(dy.device()), heads_of(inputs[0]), self.features());
        let [first, last] = [parts[0], parts[parts.len() - 1]];
        let [dk, dv] = [self.fresh(first, inputs[1])?, self.fresh(last, inputs[2])?];
        let read = [(dy, false), (&norm, false), (&delta, false)];
        for &part in parts {
            self.launch(part, inputs, &[&read[..], &[(&dk, true), (&dv, true)]].concat())?;
        }
        self.launch(Part::Queries, inputs, &[&read[..], &[(&dq, true)]].concat())?;
        Ok([dq, dk, dv])
    }

    /// The sum of `y dy` of each row, and what its scores are lessened by.
    fn sums_of_rows(
        &self,
        saved: &SavedTensors,
        dy: &Tensor,
        lse: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let (y, options) = (saved.output(), (lse.dtype(), lse.device()));
        let d = y.shape()[3].next_power_of_two().max(16) as i64;
        let (mut rows, [batch, heads, m]) = (ROWS.min(4096 / d), [0, 1, 2].map(|i| y.shape()[i]));
        let (mut blocks, mut parts, mut list) = (m.div_ceil(rows as usize), 0, None);
        let mut shape = lse.shape().to_vec();
        if let Some(packed) = &self.packed {
            let block = self.tile(Part::Queries, y).rows(Part::Queries);
            rows = rows.min(block);
            parts = block / rows;
            let listed = packed.list(Part::Queries, [y, saved.input(1)], block)?;
            blocks = listed.shape()[0] * parts as usize;
            list = Some(listed);
            shape[2] = lists::line(m, packed.sequences());
        }
        // Places that no listed query has, between packed sequences and past the longest, weigh nothing.
        let (sums, norm) = match list {
            Some(_) => {
                (Tensor::zeros(&shape, options)?, Tensor::full(&shape, f64::INFINITY, options)?)
            }
            None => {
                (Tensor::uninitialized(&shape, options)?, Tensor::uninitialized(&shape, options)?)
            }
        };
        let tensors = [(y, false), (dy, false), (lse, false), (&sums, true), (&norm, true)];
        let (kernel, dtypes) = (&device::attention_delta::KERNEL, [y.dtype(), sums.dtype()]);
        let (grid, consts) = (Grid::xyz(blocks, heads, batch), [rows, d, parts]);
        let numbers = [list_or_none(list.as_ref(), y), launch::number(options.0, self.scale)];
        if blocks > 0 {
            launch::warped_views(kernel, grid, &dtypes, &consts, Some(4), &tensors, &numbers)?;
        }
        Ok((sums, norm))
    }

    /// The gradients by ops, which have gradients themselves.
    #[track_caller]
    fn by_ops(&self, saved: &SavedTensors, dy: &Tensor) -> Result<[Tensor; 3]> {
        let inputs = [saved.input(0), saved.input(1), saved.input(2)];
        let Some(packed) = &self.packed else { return self.composed(inputs, dy) };
        if self.drop.is_some() {
            let message = "dropped weights of packed sequences have no second derivative";
            return Err(Error::op(NAME, message));
        }
        packed.gradients(self, inputs, dy)
    }

    /// The gradients of a batch by ops.
    #[track_caller]
    pub(super) fn composed(&self, inputs: [&Tensor; 3], dy: &Tensor) -> Result<[Tensor; 3]> {
        let dtype = dy.dtype();
        let wide = |t: &Tensor| t.to_dtype(launch::accumulate_dtype(dtype));
        let (q, dy) = (wide(inputs[0])?, wide(dy)?);
        let [b, h, m, d] = [0, 1, 2, 3].map(|axis| q.shape()[axis]);
        let (g, n) = (inputs[1].shape()[1], inputs[1].shape()[2]);
        let heads = |t: &Tensor| wide(t)?.repeat_interleave(h / g, 1);
        let (k, v) = (heads(inputs[1])?, heads(inputs[2])?);
        let s = capped(&q.matmul(&k.t()?)?.mul_scalar(self.scale)?, self.cap)?;
        let biased = match &self.bias {
            Some(bias) => s.add(&wide(bias)?)?,
            None => s.clone(),
        };
        let seen = match (in_reach(self.reach, m, n, q.device())?, &self.bias) {
            // What is -infinity everywhere in a row must not become NaN.
            (None, Some(bias)) => Some(bias.gt_scalar(f64::NEG_INFINITY)?),
            (Some(near), Some(bias)) => {
                Some(near.logical_and(&bias.gt_scalar(f64::NEG_INFINITY)?)?)
            }
            (near, None) => near,
        };
        let w = weights(&biased, seen.as_ref())?;
        let dropped = |t: &Tensor| match self.drop {
            Some((p, state)) => dropout_from(t, p, state),
            None => Ok(t.clone()),
        };
        let dv = dropped(&w)?.t()?.matmul(&dy)?;
        let dw = dropped(&dy.matmul(&v.t()?)?)?;
        let mut ds = w.mul(&dw.sub(&w.mul(&dw)?.sum_dims(&[-1], true)?)?)?;
        if let Some(cap) = self.cap {
            let part = s.mul_scalar(1.0 / cap)?;
            ds = ds.mul(&part.mul(&part)?.neg()?.add_scalar(1.0)?)?;
        }
        let ds = ds.mul_scalar(self.scale)?;
        let summed = |t: &Tensor| t.reshape(&[b, g, h / g, n, d])?.sum_dims(&[2], false);
        let (dq, dk, dv) = (ds.matmul(&k)?, summed(&ds.t()?.matmul(&q)?)?, summed(&dv)?);
        Ok([dq.to_dtype(dtype)?, dk.to_dtype(dtype)?, dv.to_dtype(dtype)?])
    }
}

/// What tiles are chosen for.
fn heads_of(q: &Tensor) -> Heads {
    Heads { queries: q.shape()[2], width: q.shape()[3], bytes: q.dtype().bytes() }
}

/// The list of blocks as an argument.
fn list_or_none(list: Option<&Tensor>, q: &Tensor) -> Arg {
    match list {
        Some(list) => launch::pointer(list, false),
        None => launch::no_pointer(q.device(), DType::I64),
    }
}

impl Op for Flash {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let q = inputs[0];
        let y = self.fresh(Part::Forward, q)?;
        let wide = (launch::accumulate_dtype(q.dtype()), q.device());
        let lse = match self.packed {
            Some(_) => Tensor::zeros(&q.shape()[..3], wide)?,
            None => Tensor::uninitialized(&q.shape()[..3], wide)?,
        };
        let operands = [inputs[0], inputs[1], inputs[2]];
        self.launch(Part::Forward, operands, &[(&y, true), (&lse, true)])?;
        self.lse.get_or_init(|| lse);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 0b111, output: true }
    }

    /// With `w` the weights and `dw = dy v'`: `dv = w' dy`, `ds = w (dw - sum(dy y))`, `dq = scale ds k`,
    /// `dk = scale ds' q`.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let grads = match self.lse.get() {
            Some(lse) if !is_grad_enabled() => self.by_kernels(saved, lse, dy)?,
            _ => self.by_ops(saved, dy)?,
        };
        Ok(grads.map(Some).into())
    }
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::ops::apply;
    use crate::ops::attention::scores::FAR;
    use crate::random::Generator;

    /// Attention with dropped weights, in its definition's words.
    fn dropped(inputs: [&Tensor; 3], scale: f64, p: f64, state: RngState) -> Result<Tensor> {
        let [q, k, v] = inputs;
        let weights = q.matmul(&k.t()?)?.mul_scalar(scale)?.softmax(-1)?;
        dropout_from(&weights, p, state)?.matmul(v)
    }

    #[test]
    fn both_forms_drop_the_same_weights() -> Result<()> {
        let random = Generator::new(7);
        let at = (DType::F64, Device::Cpu);
        let draw = || random.randn(&[2, 2, 37, 8], at)?.requires_grad_(true);
        let inputs = [draw()?, draw()?, draw()?];
        let operands = [&inputs[0], &inputs[1], &inputs[2]];
        let (p, state) = (0.3, RngState { seed: 5, offset: 11 });
        let flash =
            Flash { scale: 0.4, reach: [FAR; 2], drop: Some((p, state)), ..Flash::default() };
        let ours = apply(flash, &operands)?;
        let theirs = dropped(operands, 0.4, p, state)?;
        let dy = random.randn(&[2, 2, 37, 8], at)?;
        let grads = |y: &Tensor| -> Result<Vec<Vec<f64>>> {
            inputs.iter().for_each(Tensor::zero_grad);
            y.backward_with(Some(&dy), crate::autograd::BackwardOptions::default())?;
            inputs.iter().map(|t| t.grad().expect("it was asked for").to_vec()).collect()
        };
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(&ours.to_vec()?, &theirs.to_vec()?));
        for (a, b) in grads(&ours)?.iter().zip(&grads(&theirs)?) {
            assert!(close(a, b), "{a:?}\n{b:?}");
        }
        Ok(())
    }
}

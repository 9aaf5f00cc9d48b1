//! Rotary positions: heads turned by tables of cosines and sines, in one launch each way.
//!
//! # Source
//! arXiv:2104.09864, with the pairs of Hugging Face's `apply_rotary_pos_emb`.

use genesis_kernel::kernel::Grid;
use genesis_kernel::tuning::rows::TurnedHeads;
use kernels::rotary as device;

use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch::{self, accumulate_dtype, config::chip};
use crate::ops::{Op, Saves, apply, unbroadcast, wrong_dtype};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

const NAME: &str = "rotary";

impl Tensor {
    /// Rotary positions: of each head the first R channels turned in pairs, channel `c` with channel `c + R / 2`.
    ///
    /// `y[c] = x[c] cos[c] - x[c + R / 2] sin[c]` and `y[c + R / 2] = x[c + R / 2] cos[c] + x[c] sin[c]`; channels from R
    /// on stay as they are.
    ///
    /// # Shapes
    /// `[.., D]`, with `cos` and `sin: [.., R / 2]` of one shape, whose leading axes broadcast: for `x: [.., tokens, H, D]`
    /// those are `[tokens, 1, R / 2]`.
    /// # Numerics
    /// In f32 for 16-bit dtypes, rounded once; the tables may be of f32 beside them.
    /// # Errors
    /// If there are fewer channels than are turned, the tables do not broadcast to the heads, or a dtype is not a float.
    /// # Examples
    /// ```
    /// # use genesis::Tensor;
    /// // A quarter turn of the second token.
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 1.0, 2.0], &[2, 1, 2])?; // [tokens, H, D]
    /// let cos = Tensor::from_slice(&[1.0f32, 0.0], &[2, 1, 1])?;
    /// let sin = Tensor::from_slice(&[0.0f32, 1.0], &[2, 1, 1])?;
    /// assert_eq!(x.rotary(&cos, &sin)?.to_vec::<f32>()?, [1.0, 2.0, -2.0, 1.0]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn rotary(&self, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        check(self, cos, sin)?;
        let is_trained = cos.requires_grad() || sin.requires_grad();
        apply(Rotary { is_inverse: false, is_trained }, &[self, cos, sin])
    }
}

fn check(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<()> {
    for t in [x, cos, sin] {
        if !t.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", t.dtype()));
        }
        if t.device() != x.device() {
            let message = format!("devices differ, {} and {}", x.device(), t.device());
            return Err(Error::op(NAME, message));
        }
    }
    let wide = accumulate_dtype(x.dtype());
    if cos.dtype() != sin.dtype() || (cos.dtype() != x.dtype() && cos.dtype() != wide) {
        let (x, c, s) = (x.dtype(), cos.dtype(), sin.dtype());
        let message =
            format!("tables of {c} and {s} do not fit {x}: they have its dtype or {wide}");
        return Err(Error::op(NAME, message));
    }
    let fits = || {
        let ((half, lead), (channels, heads)) =
            (cos.shape().split_last()?, x.shape().split_last()?);
        let is_there = 2 * half <= *channels && cos.shape() == sin.shape();
        let is_broadcast = broadcast_shapes(NAME, &[lead, heads]).is_ok_and(|all| all == heads);
        Some(is_there && is_broadcast)
    };
    match fits() {
        Some(true) => Ok(()),
        _ => {
            let (x, cos, sin) = (x.shape(), cos.shape(), sin.shape());
            let message = format!(
                "tables {cos:?} and {sin:?} do not fit {x:?}: they need [.., half of the turned channels]"
            );
            Err(Error::op(NAME, message))
        }
    }
}

/// Extents of `[rows, tokens, heads]` that leading axes are joined to, so that tables are of the tokens alone; none where
/// these are no neighbours.
fn joined(lead: &[usize], table: &[usize]) -> Option<[usize; 3]> {
    let of_tokens = |axis: usize| {
        let own = (axis + table.len()).checked_sub(lead.len()).map_or(1, |at| table[at]);
        own != 1
    };
    let product = |axes: &[usize]| crate::shape::product(axes.iter());
    let Some(first) = (0..lead.len()).find(|&axis| of_tokens(axis)) else {
        return Some([product(lead), 1, 1]);
    };
    let last = (0..lead.len()).rfind(|&axis| of_tokens(axis)).unwrap_or(first);
    let is_dense = (first..=last).all(|axis| of_tokens(axis) || lead[axis] == 1);
    let parts = [&lead[..first], &lead[first..=last], &lead[last + 1..]];
    is_dense.then(|| parts.map(product))
}

/// Heads turned, or turned back.
struct Rotary {
    is_inverse: bool,
    /// Whether the tables want gradients.
    is_trained: bool,
}

impl Rotary {
    fn launch(&self, x: &Tensor, [cos, sin]: [&Tensor; 2], y: &Tensor) -> Result<()> {
        let (&channels, lead) = x.shape().split_last().unwrap_or((&0, &[]));
        let (&half, table) = cos.shape().split_last().unwrap_or((&0, &[]));
        let extents = joined(lead, table);
        // Tables that tokens and other axes share in turns are written out.
        let all = crate::shape::product(lead.iter());
        let [rows, tokens, heads] = extents.unwrap_or([1, all, 1]);
        let tables = [cos, sin].map(|table| match extents {
            Some(_) => table.reshape(&[tokens, half]),
            None => table.broadcast_to(&[lead, &[half]].concat())?.reshape(&[tokens, half]),
        });
        let [cos, sin] = tables;
        let shape = [rows, tokens, heads, channels];
        let (x, y) = (x.reshape(&shape)?, y.reshape(&shape)?);
        let part = |t: &Tensor, start: usize| t.narrow(-1, start, half);
        let rest = channels - 2 * half;
        if rest > 0 {
            launch::cast(&x.narrow(-1, 2 * half, rest)?, &y.narrow(-1, 2 * half, rest)?)?;
        }
        let (cos, sin) = (cos?, sin?);
        let (a, b, first, second) = (part(&x, 0)?, part(&x, half)?, part(&y, 0)?, part(&y, half)?);
        let tile = TurnedHeads::of(&chip(y.device()), tokens, heads, half);
        let programs = rows * tokens.div_ceil(tile.tokens) * heads.div_ceil(tile.heads);
        let grid = Grid::xy(programs, half.div_ceil(tile.cols));
        let dtypes = [x.dtype(), cos.dtype(), accumulate_dtype(x.dtype())];
        let consts = [tile.tokens, tile.heads, tile.cols, usize::from(self.is_inverse)];
        let consts = consts.map(|n| n as i64);
        let tensors = [
            (&a, false),
            (&b, false),
            (&cos, false),
            (&sin, false),
            (&first, true),
            (&second, true),
        ];
        let kernel = &device::rotary::KERNEL;
        launch::warped_views(kernel, grid, &dtypes, &consts, tile.warps, &tensors, &[])
    }

    /// The gradients of the tables: of `cos` what each channel was, times what came, of `sin` what it was turned to.
    fn of_tables(&self, saved: &SavedTensors, dy: &Tensor) -> Result<[Tensor; 2]> {
        let (x, cos) = (saved.input(0), saved.input(1));
        let half = cos.dim(-1)?;
        let wide = accumulate_dtype(x.dtype());
        let part = |t: &Tensor, start: usize| t.narrow(-1, start, half)?.to_dtype(wide);
        let [(a, b), (da, db)] = [x, dy].map(|t| (part(t, 0), part(t, half)));
        let (a, b, da, db) = (a?, b?, da?, db?);
        let of_cos = da.mul(&a)?.add(&db.mul(&b)?)?;
        let of_sin = match self.is_inverse {
            false => db.mul(&a)?.sub(&da.mul(&b)?)?,
            true => da.mul(&b)?.sub(&db.mul(&a)?)?,
        };
        let back = |t: Tensor| unbroadcast(&t, cos.shape())?.to_dtype(cos.dtype());
        Ok([back(of_cos)?, back(of_sin)?])
    }
}

impl Op for Rotary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        match inputs[1].numel() {
            // Nothing is turned.
            0 => launch::cast(x, &y)?,
            _ if x.numel() == 0 => {}
            _ => self.launch(x, [inputs[1], inputs[2]], &y)?,
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(if self.is_trained { 7 } else { 6 })
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dx = match saved.wanted[0] {
            true => {
                let is_inverse = !self.is_inverse;
                let back = Rotary { is_inverse, is_trained: self.is_trained };
                Some(apply(back, &[dy, saved.input(1), saved.input(2)])?)
            }
            false => None,
        };
        if !self.is_trained {
            return Ok(vec![dx, None, None]);
        }
        let [of_cos, of_sin] = self.of_tables(saved, dy)?;
        Ok(vec![dx, Some(of_cos), Some(of_sin)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "rotary",
        Family::Softmax,
        |x| x[0].rotary(&x[1], &x[2]),
        |x| {
            let half = x[1].shape.last().copied().unwrap_or(0);
            Dense::from_fn(&x[0].shape, |at| {
                let (lead, c) = (&at[..at.len() - 1], at[at.len() - 1]);
                let value = |c: usize| x[0].at(&[lead, &[c]].concat());
                let table = |t: &Dense| {
                    let skipped = at.len() - t.shape.len();
                    let place = t.shape.iter().zip(&at[skipped..]);
                    let mut place: Vec<usize> =
                        place.map(|(&extent, &i)| if extent == 1 { 0 } else { i }).collect();
                    place[t.shape.len() - 1] = c % half;
                    t.at(&place)
                };
                match c / half {
                    0 => value(c) * table(&x[1]) - value(c + half) * table(&x[2]),
                    1 => value(c) * table(&x[1]) + value(c - half) * table(&x[2]),
                    _ => value(c),
                }
            })
        },
        &[
            &[&[2, 5, 3, 8], &[5, 1, 4], &[5, 1, 4]],
            &[&[3, 4, 6], &[4, 3], &[4, 3]],
            &[&[2, 3, 4, 10], &[2, 1, 4, 3], &[2, 1, 4, 3]],
        ],
    )
    .peer(
        "torch.cat([x[0][..., :x[1].shape[-1]] * x[1] - x[0][..., x[1].shape[-1]:2 * x[1].shape[-1]] * x[2], \
         x[0][..., x[1].shape[-1]:2 * x[1].shape[-1]] * x[1] + x[0][..., :x[1].shape[-1]] * x[2], \
         x[0][..., 2 * x[1].shape[-1]:]], -1)",
    )
    .within(-2.0, 2.0)
    .refusing(&[(
        || {
            let table = cpu(&[3, 4], DType::F32)?;
            cpu(&[3, 6], DType::F32)?.rotary(&table, &table)
        },
        "rotary: tables [3, 4] and [3, 4] do not fit [3, 6]: they need [.., half of the turned channels]",
    )])];
}

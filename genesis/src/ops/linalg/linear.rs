//! Products of vectors and tensors: `inner`, `tensordot`, `kron`, `cross`, and distances between points.

use super::products::weighed;
use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, check_pair, composite, promote, wrong_dtype};
use crate::shape;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("addbmm", Precision::Half), ("bilinear", Precision::Half), ("cross", Precision::Widest)];

impl Tensor {
    /// The inner product of two vectors; [`Tensor::dot`] for real numbers.
    ///
    /// # Errors
    /// As [`Tensor::dot`].
    #[track_caller]
    pub fn vdot(&self, other: &Tensor) -> Result<Tensor> {
        self.dot(other)
    }

    /// Every product of a row of one and a row of the other, rows being along the last axis.
    ///
    /// # Errors
    /// If the last extents or dtypes differ.
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        check_pair("inner", self, other)?;
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.tensordot(other, &[-1], &[-1])
    }

    /// The sum of products over pairs of axes, `axes[i]` of this tensor with `others[i]` of the other.
    ///
    /// # Shapes
    /// The axes left of this tensor, then those left of the other.
    /// # Errors
    /// If axes are not there, named twice or not as many, or extents or dtypes differ.
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, axes: &[i64], others: &[i64]) -> Result<Tensor> {
        const NAME: &str = "tensordot";
        check_pair(NAME, self, other)?;
        let named = |t: &Tensor, dims: &[i64]| -> Result<(Vec<usize>, Vec<usize>)> {
            let inner: Vec<usize> =
                dims.iter().map(|&d| shape::axis(NAME, d, t.shape())).collect::<Result<_>>()?;
            if inner.iter().enumerate().any(|(i, a)| inner[..i].contains(a)) {
                return Err(Error::op(NAME, format!("{dims:?} names a dimension twice")));
            }
            Ok(((0..t.rank()).filter(|a| !inner.contains(a)).collect(), inner))
        };
        let ((left, from), (right, to)) = (named(self, axes)?, named(other, others)?);
        let extents = |t: &Tensor, axes: &[usize]| -> Vec<usize> {
            axes.iter().map(|&axis| t.shape()[axis]).collect()
        };
        if extents(self, &from) != extents(other, &to) {
            let message = format!(
                "axes {axes:?} of {:?} do not match {others:?} of {:?}",
                self.shape(),
                other.shape()
            );
            return Err(Error::op(NAME, message));
        }
        let order = |first: &[usize], second: &[usize]| -> Vec<i64> {
            first.iter().chain(second).map(|&axis| axis as i64).collect()
        };
        let count = |t: &Tensor, axes: &[usize]| shape::product(extents(t, axes).iter());
        let a = self.permute(&order(&left, &from))?;
        let a = a.reshape(&[count(self, &left), count(self, &from)])?;
        let b = other.permute(&order(&to, &right))?;
        let b = b.reshape(&[count(other, &to), count(other, &right)])?;
        a.matmul(&b)?.reshape(&[extents(self, &left), extents(other, &right)].concat())
    }

    /// Every element of this tensor times the whole other one, as blocks.
    ///
    /// # Errors
    /// If devices differ.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let padded = |t: &Tensor| [&vec![1; rank - t.rank()], t.shape()].concat();
        let (a, b) = (padded(self), padded(other));
        let between = |shape: &[usize], first: bool| -> Vec<usize> {
            shape.iter().flat_map(|&e| if first { [e, 1] } else { [1, e] }).collect()
        };
        let product =
            self.reshape(&between(&a, true))?.mul(&other.reshape(&between(&b, false))?)?;
        product.reshape(&a.iter().zip(&b).map(|(a, b)| a * b).collect::<Vec<_>>())
    }

    /// The cross product of vectors of three elements along `dim`.
    ///
    /// # Errors
    /// If shapes do not broadcast, there is no such dimension, or it has another extent than 3.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, dim: i64) -> Result<Tensor> {
        const NAME: &str = "cross";
        let shape = shape::broadcast_shapes(NAME, &[self.shape(), other.shape()])?;
        let axis = shape::axis(NAME, dim, &shape)? as i64;
        if shape[axis as usize] != 3 {
            let message = format!("dimension {dim} of {shape:?} must have 3 elements");
            return Err(Error::op(NAME, message));
        }
        if let Some(cast) = autocast::cast_inputs(NAME, &[self, other])? {
            return cast[0].cross(&cast[1], dim);
        }
        let (a, b) = promote::pair(self, other)?;
        check_pair(NAME, &a, &b)?;
        if !a.dtype().is_number() {
            return Err(wrong_dtype(NAME, "a number", a.dtype()));
        }
        apply(Cross { axis }, &[&a.broadcast_to(&shape)?, &b.broadcast_to(&shape)?])
    }

    /// `beta * self + alpha * sum of a[i] b[i]`; with `beta` 0 this tensor does not count.
    ///
    /// # Errors
    /// As [`Tensor::baddbmm`].
    #[track_caller]
    pub fn addbmm(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
        let (&[batch, n, k], &[other, inner, m]) = (a.shape(), b.shape()) else {
            return a.bmm(b);
        };
        if (batch, k) != (other, inner) {
            return a.bmm(b);
        }
        // Side by side they are one product, which is rounded once.
        let a = a.permute(&[1, 0, 2])?.reshape(&[n, batch * k])?;
        let product = a.matmul(&b.reshape(&[batch * k, m])?)?;
        self.plus_product("addbmm", &product, alpha, beta)
    }

    /// `beta * self + alpha * a b'` of two vectors, of the dtype that the three promote to; 16-bit floats
    /// are rounded once, and so are the vectors' gradients. With `beta` 0 this tensor does not count.
    ///
    /// # Errors
    /// If they are no vectors, or this tensor does not broadcast to their product.
    #[track_caller]
    pub fn addr(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
        let is_one_kernel = a.rank() == 1
            && b.rank() == 1
            && promote::result_type(&[self, a, b]).is_arithmetic_float()
            && [a, b].iter().all(|t| t.device() == self.device());
        if !is_one_kernel {
            return Tensor::rounded_once([self, a, b], |[x, a, b]| {
                x.plus_product("addr", &a.outer(&b)?, alpha, beta)
            });
        }
        let (column, row) = (a.unsqueeze(1)?, b.unsqueeze(0)?);
        let x = self.broadcast_to(&[a.numel(), b.numel()])?;
        composite("addr", &[alpha, beta], [&x, &column, &row], |[x, a, b], n| {
            Tensor::rounded_once([x, a, b], |[x, a, b]| weighed(&x, a.mul(&b)?, n))
        })
    }

    /// The product of several matrices, in the order that takes the fewest multiplications. The first and
    /// the last may be vectors.
    ///
    /// # Errors
    /// If there are fewer than two, or extents or dtypes differ.
    #[track_caller]
    pub fn multi_dot(tensors: &[&Tensor]) -> Result<Tensor> {
        const NAME: &str = "multi_dot";
        let ([first, .., last], n) = (tensors, tensors.len()) else {
            return Err(Error::op(NAME, "needs at least two tensors"));
        };
        let mut parts: Vec<Tensor> = tensors.iter().map(|&t| t.clone()).collect();
        if first.rank() == 1 {
            parts[0] = first.unsqueeze(0)?;
        }
        if last.rank() == 1 {
            parts[n - 1] = last.unsqueeze(1)?;
        }
        if let Some(wrong) = parts.iter().find(|t| t.rank() != 2) {
            let message = format!("needs matrices, got shape {:?}", wrong.shape());
            return Err(Error::op(NAME, message));
        }
        let mut product = in_best_order(&parts)?;
        if first.rank() == 1 {
            product = product.squeeze(0)?;
        }
        if last.rank() == 1 { product.squeeze(-1) } else { Ok(product) }
    }

    /// How rows vary together: their covariance, with the divisor `n - correction`. Of one row it is a
    /// number without axes.
    ///
    /// # Errors
    /// If there are more than two axes, or the dtype is not a float.
    #[track_caller]
    pub fn cov(&self, correction: f64) -> Result<Tensor> {
        const NAME: &str = "cov";
        if self.rank() > 2 || !self.dtype().is_arithmetic_float() {
            let message = format!("needs a matrix of floats, got {:?}", self.tensor_type());
            return Err(Error::op(NAME, message));
        }
        let x = if self.rank() == 2 { self.clone() } else { self.reshape(&[1, self.numel()])? };
        let n = x.shape()[1] as f64;
        let distance = x.sub(&x.mean_dims(&[1], true)?)?;
        let covariance = distance.matmul(&distance.t()?)?;
        let covariance = covariance.div_scalar((n - correction).max(0.0))?;
        if x.shape()[0] == 1 { covariance.reshape(&[]) } else { Ok(covariance) }
    }

    /// How rows vary together, as a share of how each varies: between -1 and 1.
    ///
    /// # Errors
    /// As [`Tensor::cov`].
    #[track_caller]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let covariance = self.cov(1.0)?;
        if covariance.rank() == 0 {
            return covariance.div(&covariance);
        }
        let deviation = covariance.diagonal(0, 0, 1)?.sqrt()?;
        let share = covariance.div(&deviation.unsqueeze(1)?)?.div(&deviation.unsqueeze(0)?)?;
        share.clamp(-1.0, 1.0)
    }

    /// The norm of order `p` of the difference.
    ///
    /// # Errors
    /// If shapes do not broadcast, devices differ, or the dtype is not a float.
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        let distance = self.sub(other)?;
        distance.vector_norm(p, &distance.all_dims(), false)
    }
}

/// The product of matrices: every way to put brackets is compared by the multiplications it takes.
#[track_caller]
fn in_best_order(parts: &[Tensor]) -> Result<Tensor> {
    let n = parts.len();
    let extent =
        |i: usize| if i < n { parts[i].shape()[0] } else { parts[n - 1].shape()[1] } as f64;
    let mut cost = vec![vec![0.0; n]; n];
    let mut cut = vec![vec![0; n]; n];
    for len in 1..n {
        for i in 0..n - len {
            let j = i + len;
            let of =
                |k: usize| cost[i][k] + cost[k + 1][j] + extent(i) * extent(k + 1) * extent(j + 1);
            let best = (i..j).min_by(|&a, &b| of(a).total_cmp(&of(b))).unwrap_or(i);
            (cost[i][j], cut[i][j]) = (of(best), best);
        }
    }
    product(parts, &cut, 0, n - 1)
}

#[track_caller]
fn product(parts: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(parts[i].clone());
    }
    let k = cut[i][j];
    product(parts, cut, i, k)?.mm(&product(parts, cut, k + 1, j)?)
}

/// The cross product of vectors along an axis, of tensors of one shape and dtype.
struct Cross {
    axis: i64,
}

impl Op for Cross {
    fn name(&self) -> &'static str {
        "cross"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, axis) = (inputs[0], self.axis as usize);
        let inner = shape::product(x.shape()[axis + 1..].iter());
        let outer = shape::product(x.shape()[..axis].iter());
        let vectors = [outer, 3, inner];
        let y = Tensor::uninitialized(&vectors, (x.dtype(), x.device()))?;
        if y.numel() > 0 {
            let (a, b) = (x.reshape(&vectors)?, inputs[1].reshape(&vectors)?);
            let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
            let tensors = [(&a, false), (&b, false), (&y, true)];
            let kernel = &kernels::cross::cross::KERNEL;
            launch::tiled(kernel, [1, outer, inner], &dtypes, &[], &tensors, &[])?;
        }
        y.reshape(x.shape())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// `da = b x dy`, `db = dy x a`.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let slope = |wanted: bool, a: &Tensor, b: &Tensor| {
            wanted.then(|| apply(Cross { axis: self.axis }, &[a, b])).transpose()
        };
        let (a, b) = (saved.input(0), saved.input(1));
        Ok(vec![slope(saved.wanted[0], b, dy)?, slope(saved.wanted[1], dy, a)?])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu, numel, scalar, sum, zip};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "multi_dot",
            Family::Softmax,
            |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]]),
            |x| {
                Dense::from_fn(&[2], |at| {
                    let pairs = (0..3).flat_map(|i| (0..4).map(move |j| (i, j)));
                    pairs.map(|(i, j)| x[0].at(&[at[0], i]) * x[1].at(&[i, j]) * x[2].data[j]).sum()
                })
            },
            &[&[&[2, 3], &[3, 4], &[4]]],
        )
        .computing(|x, _| 2.0 * (numel(&x[0]) + numel(&x[1])))
        .peer("torch.linalg.multi_dot(x)")
        .within(-1.0, 1.0)
        .of(WIDE),
        OpInfo::new(
            "cov",
            Family::Softmax,
            |x| x[0].cov(1.0),
            |x| {
                let mean = |i: usize| (0..5).map(|k| x[0].at(&[i, k])).sum::<f64>() / 5.0;
                let off = |i: usize, k: usize| x[0].at(&[i, k]) - mean(i);
                Dense::from_fn(&[3, 3], |at| {
                    (0..5).map(|k| off(at[0], k) * off(at[1], k)).sum::<f64>() / 4.0
                })
            },
            &[&[&[3, 5]]],
        )
        .computing(|x, y| 2.0 * y * x[0][1] as f64)
        .peer("torch.cov(x[0])")
        .of(WIDE),
        OpInfo::new(
            "tensordot",
            Family::MatMul,
            |x| x[0].tensordot(&x[1], &[0, 2], &[1, 0]),
            |x| {
                Dense::from_fn(&[3, 5], |at| {
                    let pairs = (0..2).flat_map(|i| (0..4).map(move |k| (i, k)));
                    pairs.map(|(i, k)| x[0].at(&[i, at[0], k]) * x[1].at(&[k, i, at[1]])).sum()
                })
            },
            &[&[&[2, 3, 4], &[4, 2, 5]]],
        )
        .computing(|x, y| 2.0 * y * (x[0][0] * x[0][2]) as f64)
        .peer("torch.tensordot(x[0], x[1], ([0, 2], [1, 0]))")
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.tensordot(&cpu(&[4], DType::F32)?, &[1], &[0]),
            "tensordot: axes [1] of [2, 3] do not match [0] of [4]",
        )]),
        OpInfo::new(
            "kron",
            Family::Arithmetic,
            |x| x[0].kron(&x[1]),
            |x| {
                Dense::from_fn(&[4, 6], |at| {
                    x[0].at(&[at[0] / 2, at[1] / 3]) * x[1].at(&[at[0] % 2, at[1] % 3])
                })
            },
            &[&[&[2, 2], &[2, 3]]],
        ),
        OpInfo::new(
            "cross",
            Family::Softmax,
            |x| x[0].cross(&x[1], 0),
            |x| {
                Dense::from_fn(&[3, 2], |at| {
                    let (i, j) = ((at[0] + 1) % 3, (at[0] + 2) % 3);
                    let of = |n: usize, i: usize| x[n].at(&[i, at[1]]);
                    of(0, i) * of(1, j) - of(0, j) * of(1, i)
                })
            },
            &[&[&[3, 2], &[3, 2]]],
        )
        .peer("torch.cross(x[0], x[1], 0)")
        .of(WIDE)
        .refusing(&[(
            || cpu(&[2], DType::F32)?.cross(&cpu(&[2], DType::F32)?, 0),
            "cross: dimension 0 of [2] must have 3 elements",
        )]),
        OpInfo::new(
            "dist/1",
            Family::Softmax,
            |x| x[0].dist(&x[1], 1.0),
            |x| {
                let off = x[0].data.iter().zip(&x[1].data).map(|(a, b)| (a - b).abs());
                Dense { shape: Vec::new(), data: vec![off.sum()] }
            },
            &[&[&[3, 4], &[3, 4]]],
        )
        .peer("torch.dist(x[0], x[1], 1.0)")
        .of(WIDE),
        OpInfo::new(
            "vdot",
            Family::MatMul,
            |x| x[0].vdot(&x[1]),
            |x| scalar(sum(&zip(&x[0], &x[1], |a, b| a * b).data)),
            &[&[&[7], &[7]]],
        ),
        OpInfo::new(
            "inner",
            Family::MatMul,
            |x| x[0].inner(&x[1]),
            |x| {
                Dense::from_fn(&[3, 2], |at| {
                    (0..4).map(|k| x[0].at(&[at[0], k]) * x[1].at(&[at[1], k])).sum()
                })
            },
            &[&[&[3, 4], &[2, 4]]],
        ),
        OpInfo::new(
            "addbmm",
            Family::Softmax,
            |x| x[0].addbmm(&x[1], &x[2], 0.5, 2.0),
            |x| {
                Dense::from_fn(&[3, 5], |at| {
                    let pairs = (0..2).flat_map(|b| (0..4).map(move |k| (b, k)));
                    2.0 * x[0].at(at)
                        + 0.5
                            * pairs
                                .map(|(b, k)| x[1].at(&[b, at[0], k]) * x[2].at(&[b, k, at[1]]))
                                .sum::<f64>()
                })
            },
            &[&[&[3, 5], &[2, 3, 4], &[2, 4, 5]]],
        )
        .computing(|x, y| 2.0 * y * (x[1][0] * x[1][2]) as f64)
        .peer("torch.addbmm(x[0], x[1], x[2], alpha=0.5, beta=2.0)")
        .within(-1.0, 1.0)
        .of(WIDE),
        OpInfo::new(
            "addr",
            Family::Softmax,
            |x| x[0].addr(&x[1], &x[2], 0.5, 2.0),
            |x| {
                Dense::from_fn(&[3, 5], |at| {
                    2.0 * x[0].at(at) + 0.5 * x[1].data[at[0]] * x[2].data[at[1]]
                })
            },
            &[&[&[3, 5], &[3], &[5]]],
        )
        .peer("torch.addr(x[0], x[1], x[2], alpha=0.5, beta=2.0)")
        .of(WIDE),
        OpInfo::new(
            "corrcoef",
            Family::Softmax,
            |x| x[0].corrcoef(),
            |x| {
                let mean = |i: usize| sum(x[0].row(i)) / 5.0;
                let cov = |i: usize, j: usize| {
                    (0..5)
                        .map(|k| (x[0].at(&[i, k]) - mean(i)) * (x[0].at(&[j, k]) - mean(j)))
                        .sum::<f64>()
                };
                Dense::from_fn(&[3, 3], |at| {
                    cov(at[0], at[1]) / (cov(at[0], at[0]) * cov(at[1], at[1])).sqrt()
                })
            },
            &[&[&[3, 5]]],
        )
        .computing(|x, y| 2.0 * y * x[0][1] as f64)
        .of(WIDE)
        .flat(),
    ];
}

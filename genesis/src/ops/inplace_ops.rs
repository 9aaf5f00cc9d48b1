//! Ops with a trailing underscore: each writes the result of the op of that name over its tensor.
//!
//! The dtype stays, so that a result of a higher category is refused: an integer tensor takes no
//! fractions. Where gradients are wanted each is recorded as the op would be.

use super::promote::category;
use super::{Index, ScatterReduce};
use crate::error::{Error, Result};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

macro_rules! unary {
    ($($name:ident = $op:ident,)*) => {
        impl Tensor {
            $(
                #[doc = concat!("[`Tensor::", stringify!($op), "`] in place.")]
                ///
                /// # Errors
                /// As the op, or if the result is of a higher category, or this is a leaf whose gradient is
                /// wanted and recorded.
                #[track_caller]
                pub fn $name(&self) -> Result<()> {
                    self.replace(stringify!($name), &[], Tensor::$op)
                }
            )*
        }
    };
}

unary! {
    neg_ = neg,
    abs_ = abs,
    exp_ = exp,
    exp2_ = exp2,
    expm1_ = expm1,
    log_ = log,
    log2_ = log2,
    log10_ = log10,
    log1p_ = log1p,
    sqrt_ = sqrt,
    rsqrt_ = rsqrt,
    reciprocal_ = reciprocal,
    square_ = square,
    sin_ = sin,
    cos_ = cos,
    tan_ = tan,
    asin_ = asin,
    acos_ = acos,
    atan_ = atan,
    sinh_ = sinh,
    cosh_ = cosh,
    tanh_ = tanh,
    asinh_ = asinh,
    acosh_ = acosh,
    atanh_ = atanh,
    erf_ = erf,
    erfc_ = erfc,
    erfinv_ = erfinv,
    lgamma_ = lgamma,
    digamma_ = digamma,
    sinc_ = sinc,
    sigmoid_ = sigmoid,
    relu_ = relu,
    floor_ = floor,
    ceil_ = ceil,
    round_ = round,
    trunc_ = trunc,
    frac_ = frac,
    sign_ = sign,
    deg2rad_ = deg2rad,
    rad2deg_ = rad2deg,
    logical_not_ = logical_not,
    bitwise_not_ = bitwise_not,
}

macro_rules! with_number {
    ($($name:ident = $op:ident,)*) => {
        impl Tensor {
            $(
                #[doc = concat!("[`Tensor::", stringify!($op), "`] in place.")]
                ///
                /// # Errors
                /// As the op, or if the result is of a higher category, or this is a leaf whose gradient is
                /// wanted and recorded.
                #[track_caller]
                pub fn $name(&self, c: f64) -> Result<()> {
                    self.replace(stringify!($name), &[], |x| x.$op(c))
                }
            )*
        }
    };
}

with_number! {
    add_scalar_ = add_scalar,
    sub_scalar_ = sub_scalar,
    mul_scalar_ = mul_scalar,
    div_scalar_ = div_scalar,
    pow_scalar_ = pow_scalar,
    fmod_scalar_ = fmod_scalar,
    remainder_scalar_ = remainder_scalar,
    floor_divide_scalar_ = floor_divide_scalar,
}

macro_rules! with_tensor {
    ($($name:ident = $op:ident,)*) => {
        impl Tensor {
            $(
                #[doc = concat!("[`Tensor::", stringify!($op), "`] in place; `other` broadcasts to this shape.")]
                ///
                /// # Errors
                /// As the op, or if the result is of a higher category or another shape, or this is a leaf
                /// whose gradient is wanted and recorded.
                #[track_caller]
                pub fn $name(&self, other: &Tensor) -> Result<()> {
                    self.replace_each(stringify!($name), &[other], |x| x.$op(other))
                }
            )*
        }
    };
}

with_tensor! {
    add_ = add,
    sub_ = sub,
    mul_ = mul,
    div_ = div,
    pow_ = pow,
    fmod_ = fmod,
    remainder_ = remainder,
    floor_divide_ = floor_divide,
    atan2_ = atan2,
    hypot_ = hypot,
    xlogy_ = xlogy,
    copysign_ = copysign,
    bitwise_and_ = bitwise_and,
    bitwise_or_ = bitwise_or,
    bitwise_xor_ = bitwise_xor,
    logical_and_ = logical_and,
    logical_or_ = logical_or,
    logical_xor_ = logical_xor,
    clamp_min_ = clamp_min,
    clamp_max_ = clamp_max,
}

impl Tensor {
    /// [`Tensor::clamp`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn clamp_(&self, low: f64, high: f64) -> Result<()> {
        self.replace("clamp_", &[], |x| x.clamp(low, high))
    }

    /// [`Tensor::nan_to_num`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn nan_to_num_(&self, nan: f64, high: Option<f64>, low: Option<f64>) -> Result<()> {
        self.replace("nan_to_num_", &[], |x| x.nan_to_num(nan, high, low))
    }

    /// [`Tensor::lerp`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn lerp_(&self, end: &Tensor, weight: &Tensor) -> Result<()> {
        self.replace_each("lerp_", &[end, weight], |x| x.lerp(end, weight))
    }

    /// [`Tensor::addcmul`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addcmul_(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<()> {
        self.replace_each("addcmul_", &[a, b], |x| x.addcmul(a, b, value))
    }

    /// [`Tensor::addcdiv`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addcdiv_(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<()> {
        self.replace_each("addcdiv_", &[a, b], |x| x.addcdiv(a, b, value))
    }

    /// [`Tensor::addmm`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addmm_(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<()> {
        self.replace("addmm_", &[a, b], |x| x.addmm(a, b, alpha, beta))
    }

    /// [`Tensor::tril`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn tril_(&self, diagonal: i64) -> Result<()> {
        self.replace("tril_", &[], |x| x.tril(diagonal))
    }

    /// [`Tensor::triu`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn triu_(&self, diagonal: i64) -> Result<()> {
        self.replace("triu_", &[], |x| x.triu(diagonal))
    }

    /// One number on the diagonal of a matrix, where both indices are equal.
    ///
    /// # Errors
    /// If this is no matrix, or a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn fill_diagonal_(&self, value: f64) -> Result<()> {
        if self.rank() != 2 {
            let message = format!("needs a matrix, got shape {:?}", self.shape());
            return Err(Error::op("fill_diagonal_", message));
        }
        self.diagonal(0, 0, 1)?.fill_(value)
    }

    /// [`Tensor::masked_fill`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn masked_fill_(&self, mask: &Tensor, value: f64) -> Result<()> {
        self.check_holds("masked_fill_", &[mask])?;
        self.replace("masked_fill_", &[], |x| x.masked_fill(mask, value))
    }

    /// [`Tensor::masked_scatter`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<()> {
        self.check_holds("masked_scatter_", &[mask])?;
        self.replace("masked_scatter_", &[source], |x| x.masked_scatter(mask, source))
    }

    /// [`Tensor::index_fill`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_fill_(&self, dim: i64, index: &Tensor, value: f64) -> Result<()> {
        self.replace("index_fill_", &[], |x| x.index_fill(dim, index, value))
    }

    /// [`Tensor::index_add`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_add_(&self, dim: i64, index: &Tensor, source: &Tensor, alpha: f64) -> Result<()> {
        self.replace("index_add_", &[source], |x| x.index_add(dim, index, source, alpha))
    }

    /// [`Tensor::index_copy`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_copy_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("index_copy_", &[source], |x| x.index_copy(dim, index, source))
    }

    /// [`Tensor::scatter`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("scatter_", &[source], |x| x.scatter(dim, index, source))
    }

    /// [`Tensor::scatter_add`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("scatter_add_", &[source], |x| x.scatter_add(dim, index, source))
    }

    /// [`Tensor::scatter_reduce`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_reduce_(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<()> {
        let op = |x: &Tensor| x.scatter_reduce(dim, index, source, reduce, include_self);
        self.replace("scatter_reduce_", &[source], op)
    }

    /// [`Tensor::put`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<()> {
        self.replace("put_", &[source], |x| x.put(index, source, accumulate))
    }

    /// [`Tensor::index_put`] in place: `values` written at an indexing, or added.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_put_(&self, parts: &[Index], values: &Tensor, accumulate: bool) -> Result<()> {
        self.replace("index_put_", &[values], |x| x.index_put(parts, values, accumulate))
    }

    /// `values` written at an indexing, as `x[parts] = values` in Python. Where no index is a tensor only
    /// what is named is written.
    ///
    /// # Errors
    /// As [`Tensor::index_put_`].
    #[track_caller]
    pub fn set(&self, parts: &[Index], values: &Tensor) -> Result<()> {
        let is_view = !parts.iter().any(|part| matches!(part, Index::Tensor(_)));
        match is_view {
            true => self.index(parts)?.copy_(values),
            false => self.index_put_(parts, values, false),
        }
    }

    /// [`Tensor::replace`] by an op whose operands broadcast.
    #[track_caller]
    fn replace_each(
        &self,
        op: &str,
        others: &[&Tensor],
        new: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        self.check_holds(op, others)?;
        self.replace(op, others, new)
    }

    /// Refuses operands whose result would be larger than this tensor, before it is computed.
    #[track_caller]
    fn check_holds(&self, op: &str, others: &[&Tensor]) -> Result<()> {
        let shapes: Vec<&[usize]> =
            std::iter::once(self).chain(others.iter().copied()).map(Tensor::shape).collect();
        let result = broadcast_shapes(op, &shapes)?;
        if *result == *self.shape() {
            return Ok(());
        }
        let (result, shape) = (&result[..], self.shape());
        let message = format!("a result of shape {result:?} does not fit a tensor of {shape:?}");
        Err(Error::op(op, message))
    }

    /// The result of an op, checked to be one that this tensor can hold, over its values.
    #[track_caller]
    fn replace(
        &self,
        op: &str,
        others: &[&Tensor],
        new: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        self.in_place(op, others, |x| {
            let y = new(x)?;
            if category(y.dtype()) > category(self.dtype()) {
                let message =
                    format!("a result of {} does not fit a tensor of {}", y.dtype(), self.dtype());
                return Err(Error::op(op, message));
            }
            Ok(y)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dtype_stays() -> Result<()> {
        let x = Tensor::from_slice(&[1i64, 2, 3], &[3])?;
        x.add_scalar_(2.0)?;
        assert_eq!(x.to_vec::<i64>()?, [3, 4, 5]);
        let error = x.mul_scalar_(0.5).expect_err("fractions do not fit");
        assert_eq!(error.to_string(), "mul_scalar_: a result of f32 does not fit a tensor of i64");
        let error = x.div_(&x).expect_err("quotients are floats");
        assert_eq!(error.to_string(), "div_: a result of f32 does not fit a tensor of i64");
        assert_eq!(x.to_vec::<i64>()?, [3, 4, 5]);
        assert_eq!(x.version(), 1);
        Ok(())
    }

    /// What is refused is not computed first: 2^40 elements would not fit into memory.
    #[test]
    fn a_result_of_another_shape_is_refused_at_once() -> Result<()> {
        let x = Tensor::from_slice(&[1.0f32], &[1])?;
        let wide = x.broadcast_to(&[1 << 20, 1 << 20])?;
        let mask = x.isnan()?.broadcast_to(wide.shape())?;
        let shapes = "a result of shape [1048576, 1048576] does not fit a tensor of [1]";
        for (op, result) in [
            ("div_", x.div_(&wide)),
            ("lerp_", x.lerp_(&x, &wide)),
            ("addcmul_", x.addcmul_(&x, &wide, 1.0)),
            ("masked_fill_", x.masked_fill_(&mask, 1.0)),
        ] {
            assert_eq!(result.expect_err("too large").to_string(), format!("{op}: {shapes}"));
        }
        Ok(())
    }

    #[test]
    fn what_an_indexing_names_is_written() -> Result<()> {
        let x = Tensor::from_slice(&[0.0f32; 6], &[2, 3])?;
        x.set(
            &[Index::Ellipsis, Index::Range(Some(1), None, 1)],
            &x.full_like(1.0)?.narrow(1, 0, 2)?,
        )?;
        let rows = Tensor::from_slice(&[1i64, 1], &[2])?;
        let ones = Tensor::from_slice(&[1.0f32], &[1])?;
        x.index_put_(&[Index::Tensor(rows)], &ones, true)?;
        assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        x.fill_diagonal_(9.0)?;
        x.masked_fill_(&x.gt_scalar(2.5)?, -1.0)?;
        assert_eq!(x.to_vec::<f32>()?, [-1.0, 1.0, 1.0, 2.0, -1.0, -1.0]);
        Ok(())
    }
}

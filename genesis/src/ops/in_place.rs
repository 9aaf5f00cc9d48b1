//! In-place ops.
//!
//! Each counts a version, which is how a backward notices that something it saved is gone. Each is an
//! ordinary op whose result takes the place of the values, so that where gradients are wanted it is
//! recorded like one; a leaf that wants a gradient, or a view of one, refuses it.

use std::sync::Arc;

use genesis_kernel::ir::Scalar;

use super::promote::category;
use crate::autograd::is_grad_enabled;
use crate::error::{Error, Result};
use crate::launch;
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// The method with a trailing underscore of an op that takes nothing, a number or a tensor beside its own:
/// it writes the op's result over the tensor.
///
/// The dtype stays, so that a result of a higher category is refused: an integer tensor takes no
/// fractions. Where gradients are wanted it is recorded as the op would be.
///
/// An op that may write its result where its operand is says how: what is bound last is where it may, if anywhere.
///
/// ```text
/// in_place!(mul_ = mul(tensor): |x, other, into| binary(&MUL, x, other, into));
/// ```
macro_rules! in_place {
    ($name:ident = $op:ident()) => {
        in_place!($name = $op(): |x, _into| x.$op());
    };
    ($name:ident = $op:ident(number)) => {
        in_place!($name = $op(number): |x, c, _into| x.$op(c));
    };
    ($name:ident = $op:ident(tensor)) => {
        in_place!($name = $op(tensor): |x, other, _into| x.$op(other));
    };
    ($name:ident = $op:ident(): |$x:ident, $into:ident| $made:expr) => {
        impl Tensor {
            #[doc = concat!("[`Tensor::", stringify!($op), "`] in place.")]
            ///
            /// # Errors
            /// As the op, or if the result is of a higher category, or this is a leaf whose gradient is
            /// wanted and recorded.
            #[track_caller]
            pub fn $name(&self) -> Result<()> {
                self.replace_in(stringify!($name), &[], |$x, $into| $made)
            }
        }
    };
    ($name:ident = $op:ident(number): |$x:ident, $c:ident, $into:ident| $made:expr) => {
        impl Tensor {
            #[doc = concat!("[`Tensor::", stringify!($op), "`] in place.")]
            ///
            /// # Errors
            /// As the op, or if the result is of a higher category, or this is a leaf whose gradient is
            /// wanted and recorded.
            #[track_caller]
            pub fn $name(&self, $c: f64) -> Result<()> {
                self.replace_in(stringify!($name), &[], |$x, $into| $made)
            }
        }
    };
    ($name:ident = $op:ident(tensor): |$x:ident, $other:ident, $into:ident| $made:expr) => {
        impl Tensor {
            #[doc = concat!("[`Tensor::", stringify!($op), "`] in place; `other` broadcasts to this shape.")]
            ///
            /// # Errors
            /// As the op, or if the result is of a higher category or another shape, or this is a leaf
            /// whose gradient is wanted and recorded.
            #[track_caller]
            pub fn $name(&self, $other: &Tensor) -> Result<()> {
                self.check_holds(stringify!($name), &[$other])?;
                self.replace_in(stringify!($name), &[$other], |$x, $into| $made)
            }
        }
    };
}

pub(super) use in_place;

impl Tensor {
    /// Replaces the values by those of `source`, broadcast and converted.
    ///
    /// # Errors
    /// If the shape does not broadcast, or the tensor is a leaf whose gradient is wanted and recorded.
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        self.check_in_place("copy_")?;
        let source = source.broadcast_to(self.shape())?.to_device(self.device())?;
        // Elements that are read after they were written would be others.
        let is_shared = Arc::ptr_eq(source.storage(), self.storage());
        let source =
            if is_shared && source.layout() != self.layout() { source.copy()? } else { source };
        if is_grad_enabled() && (self.requires_grad() || source.requires_grad()) {
            return self.overwrite("copy_", source);
        }
        launch::cast(&source.detach(), self)?;
        self.storage().bump_version();
        Ok(())
    }

    /// Replaces every value.
    ///
    /// # Errors
    /// If the tensor is a leaf whose gradient is wanted and recorded.
    pub fn fill_(&self, value: f64) -> Result<()> {
        self.check_in_place("fill_")?;
        if is_grad_enabled() && self.requires_grad() {
            let at = (self.dtype(), self.device());
            return self.overwrite("fill_", Tensor::full(self.shape(), value, at)?);
        }
        let scalar = match self.dtype() {
            dtype if dtype.is_float() => Scalar::float(dtype, value),
            dtype => Scalar::int(dtype, value as i64),
        };
        launch::fill(self, scalar)?;
        self.storage().bump_version();
        Ok(())
    }

    /// Replaces every value by zero.
    ///
    /// # Errors
    /// As [`Tensor::fill_`].
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0.0)
    }

    /// [`Tensor::replace`] by an op whose operands broadcast.
    #[track_caller]
    pub(super) fn replace_each(
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
    pub(super) fn check_holds(&self, op: &str, others: &[&Tensor]) -> Result<()> {
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
    pub(super) fn replace(
        &self,
        op: &str,
        others: &[&Tensor],
        new: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        self.replace_in(op, others, |x, _| new(x))
    }

    /// [`Tensor::replace`] by an op that may write its result over the values that it reads; the second argument
    /// of `new` is where, if it may.
    #[track_caller]
    pub(super) fn replace_in(
        &self,
        op: &str,
        others: &[&Tensor],
        new: impl FnOnce(&Tensor, Option<&Tensor>) -> Result<Tensor>,
    ) -> Result<()> {
        self.in_place(op, others, |x, into| {
            let y = new(x, into)?;
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
    use crate::ops::Index;

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

//! Comparisons element by element.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::compare as device;

use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::{check_pair, promote, result_of, wrong_dtype};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident, $flat:ident = $reference:expr;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Shapes
                /// The operands broadcast, aligned at the last axis; dtypes promote.
                /// # Errors
                /// If shapes do not broadcast, or devices differ.
                #[track_caller]
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    compare(stringify!($name), &device::$name::KERNEL, self, other)
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is for storage only.
                #[track_caller]
                pub fn $scalar(&self, c: f64) -> Result<Tensor> {
                    let kernels = (&device::$scalar::KERNEL, &device::$flat::KERNEL);
                    compare_number(stringify!($name), kernels, self, c)
                }
            )*
        }

        pub(super) const AUTOCAST: Precisions =
            &[$((stringify!($name), Precision::Widest)),*];

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use super::*;
            use crate::ops::info::{
                ELEMENTWISE, ELEMENTWISE2, Family, Method, NUMBERS, OpInfo, broadcast, cpu, map,
            };

            fn truth(of: fn(&f64, &f64) -> bool) -> impl Fn(f64, f64) -> f64 {
                move |a, b| f64::from(u8::from(of(&a.floor(), &b.floor())))
            }

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::Exact,
                    |x| x[0].$name(&x[1]),
                    |x| broadcast(&x[0], &x[1], truth($reference)),
                    ELEMENTWISE2,
                )
                .whole()
                .within(0.0, 4.0)
                .of(NUMBERS)
                .flat()
                .refusing(&[
                    (
                        || cpu(&[2, 3], DType::F32)?.$name(&cpu(&[4], DType::F32)?),
                        concat!(stringify!($name), ": shapes do not broadcast, [2, 3] and [4]"),
                    ),
                    (
                        || cpu(&[2], DType::F8E4M3)?.$name(&cpu(&[2], DType::F8E4M3)?),
                        concat!(
                            stringify!($name), ": needs a number dtype, got f8e4m3, \
                            which is for storage: convert it with `to_dtype`"
                        ),
                    ),
                ]),
                OpInfo::new(
                    stringify!($scalar),
                    Family::Exact,
                    |x| x[0].$scalar(2.0),
                    |x| map(&x[0], |v| truth($reference)(v, 2.0)),
                    ELEMENTWISE,
                )
                .whole()
                .peer(concat!("torch.", stringify!($name), "(x[0], 2.0)"))
                .within(0.0, 4.0)
                .of(NUMBERS)
                .flat(),
            )*
            ];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, y, _| x.$name(y) },
                Method { name: stringify!($scalar), call: |x, _, c| x.$scalar(c) },
            )*];
        }
    };
}

comparisons! {
    /// Where the operands are equal; bool.
    eq, eq_scalar, eq_scalar_flat = f64::eq;
    /// Where the operands differ; bool, true for NaN.
    ne, ne_scalar, ne_scalar_flat = f64::ne;
    /// Where the first operand is less; bool.
    lt, lt_scalar, lt_scalar_flat = f64::lt;
    /// Where the first operand is less or equal; bool.
    le, le_scalar, le_scalar_flat = f64::le;
    /// Where the first operand is greater; bool.
    gt, gt_scalar, gt_scalar_flat = f64::gt;
    /// Where the first operand is greater or equal; bool.
    ge, ge_scalar, ge_scalar_flat = f64::ge;
}

#[track_caller]
fn compare(
    name: &'static str,
    kernel: &'static KernelDef,
    x: &Tensor,
    y: &Tensor,
) -> Result<Tensor> {
    let (x, y) = promote::pair(&x.detach(), &y.detach())?;
    let (x, y) = match x.dtype() {
        DType::Bool => (x.as_bytes(), y.as_bytes()),
        _ => (x, y),
    };
    check_pair(name, &x, &y)?;
    if !x.dtype().is_number() {
        return Err(wrong_dtype(name, "a number", x.dtype()));
    }
    let shape = broadcast_shapes(name, &[x.shape(), y.shape()])?;
    let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
    let z = result_of(&[&x, &y], &shape, (DType::Bool, x.device()))?;
    launch::strided(kernel, &[x.dtype()], &[&x, &y], &z, &[])?;
    Ok(z)
}

/// A tensor and a number, which is an argument of the kernel: one launch.
#[track_caller]
fn compare_number(
    name: &'static str,
    kernels: (&'static KernelDef, &'static KernelDef),
    x: &Tensor,
    c: f64,
) -> Result<Tensor> {
    if x.dtype().is_f8() {
        return Err(wrong_dtype(name, "a number", x.dtype()));
    }
    let x = x.detach().to_dtype(x.dtype_to_compare(c))?;
    let z = result_of(&[&x], x.shape(), (DType::Bool, x.device()))?;
    launch::compare_number(kernels, &x, &z, c)?;
    Ok(z)
}

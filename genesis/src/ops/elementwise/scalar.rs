//! Arithmetic of a tensor and a number, each op a row of a table.

use genesis_kernel::kernel::KernelDef;
use kernels::elementwise as device;

use super::unary::{Domain, check_domain};
use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{Differentiated, Op, Saves, apply, gradients, result_in};
use crate::tensor::Tensor;

/// An elementwise op of a tensor and a number.
struct Scalar {
    name: &'static str,
    kernels: (&'static KernelDef, &'static KernelDef),
    value: f64,
    saves: Saves,
    grad: ScalarGrad,
    /// Where the result may be written, of an op in place.
    into: Option<Tensor>,
}

/// How the gradient of the tensor follows from the number, the saved tensors and `dy`.
type ScalarGrad = fn(f64, &SavedTensors, &Tensor) -> Result<Tensor>;

impl Op for Scalar {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        check_domain(self.name, Domain::Number, x.dtype())?;
        let y = result_in(self.into.as_ref(), &[x], x.shape(), (x.dtype(), x.device()))?;
        launch::scalar_op(self.kernels, x, &y, self.value)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (value, grad) = (self.value, self.grad);
        let op = Differentiated { name: self.name, numbers: &[value], by: grad as usize };
        gradients(&op, saved, dy, move |saved, dy| Ok(vec![Some(grad(value, saved, dy)?)]))
    }
}

macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $name:ident {
        kernel: $kernel:ident, $flat:ident;
        is_quotient: $is_quotient:expr;
        $(autocast: $precision:ident;)?
        grad: $saves:expr, $grad:expr;
        $(in_place: $in_place:ident;)?
        family: $family:ident;
        reference: $reference:expr;
        peer: $peer:literal;
    })*) => {
        pub(super) const AUTOCAST: Precisions =
            &[$($((stringify!($name), Precision::$precision),)?)*];

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// A fraction beside an integer tensor makes it f32, any number beside a bool tensor
                /// makes that i64 or f32.
                ///
                /// # Errors
                /// If the dtype is for storage only, or memory runs out.
                #[track_caller]
                pub fn $name(&self, c: f64) -> Result<Tensor> {
                    called::$name(self, c, None)
                }
            )*
        }

        /// The calls of the rows; the result may be written over `into`.
        mod called {
            use super::*;

            $(
                #[track_caller]
                pub(super) fn $name(x: &Tensor, c: f64, into: Option<&Tensor>) -> Result<Tensor> {
                    let kernels = (&device::$kernel::KERNEL, &device::$flat::KERNEL);
                    let (saves, grad): (Saves, ScalarGrad) = ($saves, $grad);
                    let x = if $is_quotient { x.as_float()? } else { x.beside_number(c)? };
                    let (name, into) = (stringify!($name), into.cloned());
                    apply(Scalar { name, kernels, value: c, saves, grad, into }, &[&x])
                }
            )*
        }

        $($(in_place!($in_place = $name(number): |x, c, into| called::$name(x, c, into));)?)*

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use genesis_kernel::ir::DType;
            use crate::ops::info::{ELEMENTWISE, Family, Method, NUMBERS, OpInfo, cpu, map};

            const C: f64 = 2.0;

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::$family,
                    |x| x[0].$name(C),
                    |x| {
                        let f: fn(f64, f64) -> f64 = $reference;
                        map(&x[0], |v| f(v, C))
                    },
                    ELEMENTWISE,
                )
                .within(1.0, 9.0)
                .of(NUMBERS)
                .peer($peer)
                .refusing(&[(
                    || cpu(&[2], DType::F8E4M3)?.$name(C),
                    concat!(
                        stringify!($name), ": needs a number dtype, got f8e4m3, \
                        which is for storage: convert it with `to_dtype`"
                    ),
                )]),
            )*];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, _, c| x.$name(c) },
                $(Method {
                    name: stringify!($in_place),
                    call: |x, _, c| x.$in_place(c).map(|()| x.clone()),
                },)?
            )*];
        }
    };
}

const X: Saves = Saves::inputs(1);

scalar_ops! {
    /// `x + c`
    add_scalar {
        kernel: add_scalar, add_scalar_flat;
        is_quotient: false;
        grad: Saves::NOTHING, |_, _, dy| Ok(dy.clone());
        in_place: add_scalar_;
        family: Arithmetic;
        reference: |x, c| x + c;
        peer: "x[0] + 2.0";
    }
    /// `x * c`
    mul_scalar {
        kernel: mul_scalar, mul_scalar_flat;
        is_quotient: false;
        grad: Saves::NOTHING, |c, _, dy| dy.mul_scalar(c);
        in_place: mul_scalar_;
        family: Arithmetic;
        reference: |x, c| x * c;
        peer: "x[0] * 2.0";
    }
    /// `x / c`; integers become f32.
    div_scalar {
        kernel: div_scalar, div_scalar_flat;
        is_quotient: true;
        grad: Saves::NOTHING, |c, _, dy| dy.div_scalar(c);
        in_place: div_scalar_;
        family: Arithmetic;
        reference: |x, c| x / c;
        peer: "x[0] / 2.0";
    }
    /// `c / x`; integers become f32.
    rdiv_scalar {
        kernel: rdiv_scalar, rdiv_scalar_flat;
        is_quotient: true;
        autocast: Single;
        grad: X, |c, s, dy| {
            let x = s.input(0);
            // Not through the square, which overflows where the slope is a number.
            dy.mul(&x.rdiv_scalar(-c)?.div(x)?)
        };
        family: Arithmetic;
        reference: |x, c| c / x;
        peer: "2.0 / x[0]";
    }
    /// The larger of x and c; NaN wins. The gradient at c goes to x.
    maximum_scalar {
        kernel: maximum_scalar, maximum_scalar_flat;
        is_quotient: false;
        grad: X, |c, s, dy| dy.mul(&s.input(0).ge_scalar(c)?.to_dtype(dy.dtype())?);
        family: Exact;
        reference: f64::max;
        peer: "torch.clamp_min(x[0], 2.0)";
    }
    /// The smaller of x and c; NaN wins. The gradient at c goes to x.
    minimum_scalar {
        kernel: minimum_scalar, minimum_scalar_flat;
        is_quotient: false;
        grad: X, |c, s, dy| dy.mul(&s.input(0).le_scalar(c)?.to_dtype(dy.dtype())?);
        family: Exact;
        reference: f64::min;
        peer: "torch.clamp_max(x[0], 2.0)";
    }
}

//! Elementwise functions beyond arithmetic, each a row of a table.
//!
//! What a function is computed in is part of its row: f32 where that keeps its result within 4 ULP, else
//! f64. Integers become f32 first, but where the row says otherwise.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::math as device;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{Differentiated, Op, Saves, apply, gradients, result_of, wrong_dtype};
use crate::tensor::Tensor;

/// What a function is computed in, beside f64 for f64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compute {
    /// f32.
    Single,
    /// f32, by so many steps that few elements at a time fit in registers.
    LongSingle,
    /// What the kernel says, which has no parameter for it.
    Fixed,
}

impl Compute {
    /// How much is computed for an element of this dtype.
    pub(super) fn steps(self, dtype: DType) -> launch::Steps {
        match self {
            Compute::Fixed | Compute::LongSingle => launch::Steps::Many,
            _ if self.dtypes(dtype).contains(&DType::F64) => launch::Steps::Many,
            _ => launch::Steps::Few,
        }
    }

    /// The dtypes of a launch on tensors of this one.
    pub(super) fn dtypes(self, dtype: DType) -> Vec<DType> {
        let wide = match self {
            Compute::Fixed => return vec![dtype],
            _ if dtype == DType::F64 => DType::F64,
            Compute::Single | Compute::LongSingle => DType::F32,
        };
        vec![dtype, wide]
    }
}

/// What a function does to integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ints {
    /// They become f32.
    Floats,
    /// They come back as they are.
    Same,
    /// They are refused.
    Refused,
}

/// The function of a row on a tensor of any dtype.
#[track_caller]
pub(super) fn call(row: &'static Function, x: &Tensor) -> Result<Tensor> {
    match row.ints {
        Ints::Same if x.dtype().is_int() => x.copy(),
        Ints::Floats => apply(row, &[&x.as_float()?]),
        _ => apply(row, &[x]),
    }
}

/// An elementwise function of one operand.
pub(super) struct Function {
    /// The name users know it by.
    pub(super) name: &'static str,
    /// Its kernel for any strides, and the one for dense tensors where there is one.
    pub(super) kernels: (&'static KernelDef, Option<&'static KernelDef>),
    /// What it is computed in.
    pub(super) compute: Compute,
    /// What it does to integers.
    pub(super) ints: Ints,
    /// Which tensors its gradient reads.
    pub(super) saves: Saves,
    /// `dx` from the saved tensors and `dy`.
    pub(super) grad: fn(&SavedTensors, &Tensor) -> Result<Tensor>,
}

impl Op for &'static Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(self.name, "a float", x.dtype()));
        }
        let y = result_of(&[x], x.shape(), (x.dtype(), x.device()))?;
        let (steps, dtypes) = (self.compute.steps(x.dtype()), self.compute.dtypes(x.dtype()));
        launch::function(self.kernels, steps, &dtypes, &[x], &y)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (numbers, grad) = (&[][..], self.grad);
        let op = Differentiated { name: self.name, numbers, by: grad as usize };
        gradients(&op, saved, dy, move |saved, dy| Ok(vec![Some(grad(saved, dy)?)]))
    }
}

macro_rules! functions {
    (ints) => { crate::ops::elementwise::math::Ints::Floats };
    (ints $ints:ident) => { crate::ops::elementwise::math::Ints::$ints };
    (flat $device:ident) => { None };
    (flat $device:ident $flat:ident) => { Some(&$device::$flat::KERNEL) };
    (static $table:ident in $device:ident; $($(#[$doc:meta])* $name:ident {
        $(flat: $flat:ident;)?
        compute: $compute:expr;
        $(ints: $ints:ident;)?
        $(autocast: $precision:ident;)?
        grad: $saves:expr, $grad:expr;
        $(in_place: $in_place:ident;)?
        family: $family:ident;
        reference: $reference:expr, $low:expr, $high:expr;
    })*) => {
        static $table: &[&Function] = &[$(&Function {
            name: stringify!($name),
            kernels: (&$device::$name::KERNEL, functions!(flat $device $($flat)?)),
            compute: $compute,
            ints: functions!(ints $($ints)?),
            saves: $saves,
            grad: $grad,
        }),*];

        pub(super) const AUTOCAST: Precisions =
            &[$($((stringify!($name), Precision::$precision),)?)*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum Row { $($name),* }

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is not one the op takes, or memory runs out.
                #[track_caller]
                pub fn $name(&self) -> Result<Tensor> {
                    crate::ops::elementwise::math::call($table[Row::$name as usize], self)
                }
            )*
        }

        $($(in_place!($in_place = $name());)?)*

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use genesis_kernel::ir::DType;

            use crate::ops::elementwise::math::Ints;
            use crate::ops::elementwise::reference;
            use crate::ops::info::{FLOATS, Family, Method, OpInfo, cpu, map};

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::$family,
                    |x| x[0].$name(),
                    |x| map(&x[0], $reference),
                    &[&[&[]], &[&[0, 4]], &[&[2, 3, 33]]],
                )
                .within($low, $high)
                .of(FLOATS)
                .flat_if(matches!(
                    functions!(ints $($ints)?),
                    Ints::Same
                ))
                .refusing(&[(
                    || cpu(&[2], DType::F8E4M3)?.$name(),
                    concat!(
                        stringify!($name), ": needs a float dtype, got f8e4m3, \
                        which is for storage: convert it with `to_dtype`"
                    ),
                )]),
            )*];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, _, _| x.$name() },
                $(Method {
                    name: stringify!($in_place),
                    call: |x, _, _| x.$in_place().map(|()| x.clone()),
                },)?
            )*];
        }
    };
}

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

functions! {
    static FUNCTIONS in device;

    /// The integer next to 0.
    trunc {
        flat: trunc_flat;
        compute: Compute::Single;
        ints: Same;
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        in_place: trunc_;
        family: Exact;
        reference: f64::trunc, -2.5, 2.5;
    }
    /// What [`Tensor::trunc`] takes away; it has the sign of x.
    frac {
        flat: frac_flat;
        compute: Compute::Single;
        ints: Refused;
        grad: Saves::NOTHING, |_, dy| Ok(dy.clone());
        in_place: frac_;
        family: Exact;
        reference: f64::fract, 0.1, 0.9;
    }
    /// `1 / x`
    reciprocal {
        flat: reciprocal_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: Y, |s, dy| dy.mul(&s.output().mul(s.output())?.neg()?);
        in_place: reciprocal_;
        family: Arithmetic;
        reference: |x| 1.0 / x, 0.5, 9.0;
    }
    /// 2 to the power of x.
    exp2 {
        flat: exp2_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: Y, |s, dy| dy.mul(&s.output().mul_scalar(std::f64::consts::LN_2)?);
        in_place: exp2_;
        family: Transcendental;
        reference: f64::exp2, -3.0, 3.0;
    }
    /// `exp(x) - 1`, exact near 0.
    expm1 {
        flat: expm1_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: Y, |s, dy| dy.mul(&s.output().add_scalar(1.0)?);
        in_place: expm1_;
        family: Transcendental;
        reference: f64::exp_m1, -2.0, 2.0;
    }
    /// The logarithm to base 2.
    log2 {
        flat: log2_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_2)?);
        in_place: log2_;
        family: Transcendental;
        reference: f64::log2, 0.1, 9.0;
    }
    /// The logarithm to base 10.
    log10 {
        flat: log10_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_10)?);
        in_place: log10_;
        family: Transcendental;
        reference: f64::log10, 0.1, 9.0;
    }
    /// `log(1 + x)`, exact near 0.
    log1p {
        flat: log1p_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.div(&s.input(0).add_scalar(1.0)?);
        in_place: log1p_;
        family: Transcendental;
        reference: f64::ln_1p, -0.9, 3.0;
    }
    /// The tangent of x in radians.
    tan {
        flat: tan_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: Y, |s, dy| dy.mul(&s.output().square()?.add_scalar(1.0)?);
        in_place: tan_;
        family: Transcendental;
        reference: f64::tan, -1.2, 1.2;
    }
    /// The arc sine; NaN outside -1..1.
    asin {
        flat: asin_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?);
        in_place: asin_;
        family: Transcendental;
        reference: f64::asin, -0.9, 0.9;
    }
    /// The arc cosine; NaN outside -1..1.
    acos {
        flat: acos_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?)?.neg();
        in_place: acos_;
        family: Transcendental;
        reference: f64::acos, -0.9, 0.9;
    }
    /// The arc tangent.
    atan {
        flat: atan_flat;
        compute: Compute::Single;
        grad: X, |s, dy| dy.div(&s.input(0).square()?.add_scalar(1.0)?);
        in_place: atan_;
        family: Transcendental;
        reference: f64::atan, -3.0, 3.0;
    }
    /// The hyperbolic sine.
    sinh {
        flat: sinh_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.mul(&s.input(0).cosh()?);
        in_place: sinh_;
        family: Transcendental;
        reference: f64::sinh, -2.0, 2.0;
    }
    /// The hyperbolic cosine.
    cosh {
        flat: cosh_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.mul(&s.input(0).sinh()?);
        in_place: cosh_;
        family: Transcendental;
        reference: f64::cosh, -2.0, 2.0;
    }
    /// The inverse of the hyperbolic sine.
    asinh {
        flat: asinh_flat;
        compute: Compute::Single;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.add_scalar(1.0)?.rsqrt()?);
        in_place: asinh_;
        family: Transcendental;
        reference: f64::asinh, -3.0, 3.0;
    }
    /// The inverse of the hyperbolic cosine; NaN below 1.
    acosh {
        flat: acosh_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.sub_scalar(1.0)?.rsqrt()?);
        in_place: acosh_;
        family: Transcendental;
        reference: f64::acosh, 1.5, 9.0;
    }
    /// The inverse of the hyperbolic tangent; NaN beyond -1..1.
    atanh {
        flat: atanh_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| dy.div(&s.input(0).square()?.rsub_scalar(1.0)?);
        in_place: atanh_;
        family: Transcendental;
        reference: f64::atanh, -0.9, 0.9;
    }
    /// `1 - erf(x)`, exact far from 0.
    erfc {
        flat: erfc_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: X, |s, dy| {
            let slope = s.input(0).square()?.neg()?.exp()?;
            dy.mul(&slope.mul_scalar(-std::f64::consts::FRAC_2_SQRT_PI)?)
        };
        in_place: erfc_;
        family: Transcendental;
        reference: reference::erfc, -2.0, 4.0;
    }
    /// The logarithm of the magnitude of the gamma function; infinite at 0 and the negative integers. Beside
    /// its zeros below 0 f32 has an absolute error of 3e-6.
    lgamma {
        flat: lgamma_flat;
        compute: Compute::LongSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).digamma()?);
        in_place: lgamma_;
        family: Transcendental;
        reference: reference::lgamma, 5.0, 20.0;
    }
    /// The derivative of [`Tensor::lgamma`]; NaN at the negative integers. Left of 0 f32 has an absolute error beside its
    /// zeros.
    digamma {
        flat: digamma_flat;
        compute: Compute::LongSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).polygamma(1)?);
        in_place: digamma_;
        family: Transcendental;
        reference: reference::digamma, 2.0, 20.0;
    }
    /// What [`Tensor::erf`] gives x for; NaN outside -1..1.
    erfinv {
        flat: erfinv_flat;
        compute: Compute::Single;
        autocast: Single;
        grad: Y, |s, dy| {
            let slope = s.output().square()?.exp()?;
            dy.mul(&slope.mul_scalar(0.5 * std::f64::consts::PI.sqrt())?)
        };
        in_place: erfinv_;
        family: Transcendental;
        reference: reference::erfinv, -0.9, 0.9;
    }
    /// `sin(pi x) / (pi x)`, 1 at 0.
    sinc {
        flat: sinc_flat;
        compute: Compute::Single;
        grad: X, |s, dy| {
            // The two waves cancel where x is small.
            let x = s.input(0).to_dtype(DType::F64)?;
            let wave = x.mul_scalar(std::f64::consts::PI)?.cos()?.sub(&x.sinc()?)?;
            let is_zero = x.eq_scalar(0.0)?;
            let safe = x.masked_fill(&is_zero, 1.0)?;
            let slope = wave.div(&safe)?.masked_fill(&is_zero, 0.0)?;
            dy.mul(&slope.to_dtype(dy.dtype())?)
        };
        in_place: sinc_;
        family: Transcendental;
        reference: |x| (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x), 0.1, 0.9;
    }
}

//! Functions of two operands beyond arithmetic, each a row of a table.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::math as device;

use super::math::Compute;
use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{
    Differentiated, Op, Saves, apply, check_pair, composite, gradients, promote, result_of,
    unbroadcast,
};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// How the gradients of two operands follow, before broadcasting is undone.
type Grads = fn(&SavedTensors, &Tensor) -> Result<[Option<Tensor>; 2]>;

/// An elementwise function of two operands that broadcast.
struct Function2 {
    /// The name users know it by.
    name: &'static str,
    /// The kernels of floats: for any strides, and for dense tensors.
    float: Option<(&'static KernelDef, &'static KernelDef)>,
    compute: Compute,
    int: Option<&'static KernelDef>,
    takes_bool: bool,
    saves: Saves,
    grads: Grads,
}

impl Function2 {
    /// Whether it takes a dtype.
    fn takes(&self, dtype: DType) -> bool {
        match dtype {
            DType::Bool => self.takes_bool,
            dtype if dtype.is_float() => self.float.is_some(),
            _ => self.int.is_some(),
        }
    }
}

struct Function2Call {
    row: &'static Function2,
    shapes: [Vec<usize>; 2],
}

impl Op for Function2Call {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, y) = (inputs[0], inputs[1]);
        check_pair(self.row.name, x, y)?;
        let dtype = x.dtype();
        if !self.row.takes(dtype) {
            return Err(Error::op(self.row.name, format!("does not take {dtype}")));
        }
        let shape = broadcast_shapes(self.row.name, &[x.shape(), y.shape()])?;
        let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        let z = result_of(&[&x, &y], &shape, (dtype, x.device()))?;
        match (dtype, self.row.float, self.row.int) {
            (DType::Bool, _, Some(kernel)) => {
                // A bool is a byte of 0 or 1, and stays one under logic.
                let (x, y, z) = (x.as_bytes(), y.as_bytes(), z.as_bytes());
                launch::strided(kernel, &[DType::U8], &[&x, &y], &z, &[])?;
            }
            (_, Some((any, dense)), _) if dtype.is_float() => {
                let (steps, dtypes) =
                    (self.row.compute.steps(dtype), self.row.compute.dtypes(dtype));
                launch::function((any, Some(dense)), steps, &dtypes, &[&x, &y], &z)?;
            }
            (_, _, Some(kernel)) => launch::strided(kernel, &[dtype], &[&x, &y], &z, &[])?,
            _ => return Err(Error::op(self.row.name, format!("does not take {dtype}"))),
        }
        Ok(z)
    }

    fn saves(&self) -> Saves {
        self.row.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (numbers, formula) = (&[][..], self.row.grads);
        let op = Differentiated { name: self.row.name, numbers, by: formula as usize };
        let grads = gradients(&op, saved, dy, move |saved, dy| Ok(formula(saved, dy)?.into()))?;
        let back = |(grad, shape): (Option<Tensor>, &Vec<usize>)| {
            grad.map(|g| unbroadcast(&g, shape)).transpose()
        };
        grads.into_iter().zip(&self.shapes).map(back).collect()
    }
}

macro_rules! functions2 {
    (of_two $name:ident) => { concat!("torch.", stringify!($name), "(x[0], 2.0)") };
    (of_two $name:ident $call:literal) => { $call };
    ($($(#[$doc:meta])* $name:ident, $scalar:ident {
        kernels: $float:expr, $compute:expr, $int:expr, $takes_bool:expr;
        $(autocast: $precision:ident;)?
        grads: $saves:expr, $grads:expr;
        $(special: $special:ident;)?
        $(in_place: $in_place:ident $(, $in_place_scalar:ident)?;)?
        family: $family:ident;
        reference: $reference:expr, $is_smooth:expr;
        $(peers: $peer:literal, $of_two:literal;)?
        $(refused: $refused:expr;)*
    })*) => {
        static ROWS: &[&Function2] = &[$(&Function2 {
            name: stringify!($name),
            float: $float,
            compute: $compute,
            int: $int,
            takes_bool: $takes_bool,
            saves: $saves,
            grads: $grads,
        }),*];

        pub(super) const AUTOCAST: Precisions =
            &[$($((stringify!($name), Precision::$precision),)?)*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum Row { $($name),* }

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Shapes
                /// The operands broadcast, aligned at the last axis; dtypes promote.
                /// # Errors
                /// If shapes do not broadcast, devices differ, or the dtype is not one the op takes.
                #[track_caller]
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    let row = ROWS[Row::$name as usize];
                    let (x, y) = match row.int {
                        None => promote::float_pair(self, other)?,
                        Some(_) => promote::pair(self, other)?,
                    };
                    let shapes = [x.shape().to_vec(), y.shape().to_vec()];
                    apply(Function2Call { row, shapes }, &[&x, &y])
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is not one the op takes.
                #[track_caller]
                pub fn $scalar(&self, c: f64) -> Result<Tensor> {
                    $(if let Some(special) = $special(self, c) {
                        return special;
                    })?
                    composite(stringify!($name), &[c], [self], |[x], n| {
                        let y = match ROWS[Row::$name as usize].int {
                            None => x.as_float()?.number_beside(n[0])?,
                            Some(_) => x.number_beside(n[0])?,
                        };
                        let is_half = y.dtype().is_float() && y.dtype().bytes() == 2;
                        if !is_half {
                            return x.$name(&y);
                        }
                        // A number is not rounded to 16 bits before it is computed with.
                        let wide = x.to_dtype(DType::F32)?;
                        wide.$name(&wide.number_beside(n[0])?)?.to_dtype(x.dtype())
                    })
                }
            )*
        }

        $($(
            in_place!($in_place = $name(tensor));
            $(in_place!($in_place_scalar = $scalar(number));)?
        )?)*

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use super::*;
            use crate::ops::elementwise::reference;
            use crate::ops::info::{
                FLOATS, Family, INTEGERS, Method, NUMBERS, OpInfo, Sample, broadcast, cpu, map,
            };

            type Kernel = Option<&'static KernelDef>;

            type Kernels = Option<(&'static KernelDef, &'static KernelDef)>;

            const fn dtypes(float: Kernels, int: Kernel) -> &'static [DType] {
                match (float, int) {
                    (Some(_), Some(_)) => NUMBERS,
                    (Some(_), None) => FLOATS,
                    (None, _) => INTEGERS,
                }
            }

            /// What an op says of two tensors of f32.
            fn f32s(op: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
                op(&cpu(&[2], DType::F32)?, &cpu(&[2], DType::F32)?)
            }

            const SAMPLES: &[Sample] = &[&[&[], &[]], &[&[0, 4], &[4]], &[&[2, 3, 33], &[3, 1]]];

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::$family,
                    |x| x[0].$name(&x[1]),
                    |x| broadcast(&x[0], &x[1], $reference),
                    SAMPLES,
                )
                .within(1.0, 6.0)
                .of(dtypes($float, $int))
                .flat_if(!$is_smooth)
                .refusing(&[
                    (
                        || cpu(&[2, 3], DType::I64)?.$name(&cpu(&[4], DType::I64)?),
                        concat!(stringify!($name), ": shapes do not broadcast, [2, 3] and [4]"),
                    ),
                    $($refused,)*
                ])
                $(.peer($peer))?,
                OpInfo::new(
                    concat!(stringify!($scalar), "/of 2"),
                    Family::$family,
                    |x| x[0].$scalar(2.0),
                    |x| {
                        let f: fn(f64, f64) -> f64 = $reference;
                        map(&x[0], |v| f(v, 2.0))
                    },
                    &[&[&[]], &[&[2, 3, 33]]],
                )
                .within(1.0, 6.0)
                .of(dtypes($float, $int))
                .flat_if(!$is_smooth)
                .peer(functions2!(of_two $name $($of_two)?)),
            )*];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, y, _| x.$name(y) },
                Method { name: stringify!($scalar), call: |x, _, c| x.$scalar(c) },
                $(
                    Method {
                        name: stringify!($in_place),
                        call: |x, y, _| x.$in_place(y).map(|()| x.clone()),
                    },
                    $(Method {
                        name: stringify!($in_place_scalar),
                        call: |x, _, c| x.$in_place_scalar(c).map(|()| x.clone()),
                    },)?
                )?
            )*];
        }
    };
}

const XY: Saves = Saves::inputs(3);

functions2! {
    /// `x` to the power of `y`; of a negative number only whole powers are numbers.
    pow, pow_scalar {
        kernels: Some((&device::pow::KERNEL, &device::pow_flat::KERNEL)), Compute::Single, Some(&device::int_pow::KERNEL), false;
        autocast: Single;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            let dx = if s.wanted[0] {
                // Where the power is 0 the result does not depend on x.
                let slope = y.mul(&x.pow(&y.sub_scalar(1.0)?)?)?;
                let slope = y.eq_scalar(0.0)?.where_(&y.zeros_like()?, &slope)?;
                Some(dy.mul(&slope)?)
            } else {
                None
            };
            let dpower = if s.wanted[1] {
                // At x = 0 with a power of at least 0 the result is flat in y.
                let flat = x.eq_scalar(0.0)?.logical_and(&y.ge_scalar(0.0)?)?;
                let slope = s.output().mul(&x.log()?)?;
                Some(dy.mul(&flat.where_(&slope.zeros_like()?, &slope)?)?)
            } else {
                None
            };
            Ok([dx, dpower])
        };
        special: special_power;
        in_place: pow_, pow_scalar_;
        family: Transcendental;
        reference: f64::powf, true;
    }
    /// The angle of the point `(other, self)` from the x axis, between -pi and pi.
    atan2, atan2_scalar {
        kernels: Some((&device::atan2::KERNEL, &device::atan2_flat::KERNEL)), Compute::Single, None, false;
        autocast: Widest;
        grads: XY, |s, dy| {
            let (y, x) = (s.input(0), s.input(1));
            let to_y = Tensor::rounded_once([dy, x, y], |[dy, x, y]| angle_slope(&dy, &x, [&x, &y]))?;
            let to_x = Tensor::rounded_once([dy, x, y], |[dy, x, y]| angle_slope(&dy, &y, [&x, &y])?.neg())?;
            Ok([Some(to_y), Some(to_x)])
        };
        in_place: atan2_;
        family: Transcendental;
        reference: f64::atan2, true;
        peers: "torch.atan2(x[0], x[1])", "torch.atan2(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
    }
    /// The rest of a truncated division; it has the sign of `x`.
    fmod, fmod_scalar {
        kernels: Some((&device::fmod::KERNEL, &device::fmod_flat::KERNEL)), Compute::Single, Some(&device::int_fmod::KERNEL), false;
        autocast: Widest;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.trunc()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        in_place: fmod_, fmod_scalar_;
        family: Arithmetic;
        reference: |x, y| x % y, false;
    }
    /// The rest of a division rounded down; it has the sign of `y`.
    remainder, remainder_scalar {
        kernels: Some((&device::remainder::KERNEL, &device::remainder_flat::KERNEL)), Compute::Single, Some(&device::int_remainder::KERNEL), false;
        autocast: Widest;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.floor()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        in_place: remainder_, remainder_scalar_;
        family: Arithmetic;
        reference: reference::remainder, false;
    }
    /// The quotient rounded down. The gradient is zero.
    floor_divide, floor_divide_scalar {
        kernels: Some((&device::floor_divide::KERNEL, &device::floor_divide_flat::KERNEL)), Compute::Single, Some(&device::int_floor_divide::KERNEL), false;
        autocast: Widest;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        in_place: floor_divide_, floor_divide_scalar_;
        family: Arithmetic;
        reference: |x, y| (x / y).floor(), false;
    }
    /// The quotient, as [`Tensor::div`] rounds it, without its fraction. The gradient is zero.
    trunc_divide, trunc_divide_scalar {
        kernels: Some((&device::trunc_divide::KERNEL, &device::trunc_divide_flat::KERNEL)), Compute::Single, Some(&device::int_trunc_divide::KERNEL), false;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        family: Arithmetic;
        reference: |x, y| (x / y).trunc(), false;
        peers: "torch.div(x[0], x[1], rounding_mode='trunc')", "torch.div(x[0], 2.0, rounding_mode='trunc')";
    }
    /// Bit by bit, set where both are.
    bitwise_and, bitwise_and_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_and::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        in_place: bitwise_and_;
        family: Arithmetic;
        reference: |x, y| (x as i64 & y as i64) as f64, false;
        peers: "torch.bitwise_and(x[0], x[1])", "torch.bitwise_and(x[0], 2)";
        refused: (|| f32s(Tensor::bitwise_and), "bitwise_and: does not take f32");
    }
    /// Bit by bit, set where one is or both.
    bitwise_or, bitwise_or_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_or::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        in_place: bitwise_or_;
        family: Arithmetic;
        reference: |x, y| (x as i64 | y as i64) as f64, false;
        peers: "torch.bitwise_or(x[0], x[1])", "torch.bitwise_or(x[0], 2)";
        refused: (|| f32s(Tensor::bitwise_or), "bitwise_or: does not take f32");
    }
    /// Bit by bit, set where they differ.
    bitwise_xor, bitwise_xor_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_xor::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        in_place: bitwise_xor_;
        family: Arithmetic;
        reference: |x, y| (x as i64 ^ y as i64) as f64, false;
        peers: "torch.bitwise_xor(x[0], x[1])", "torch.bitwise_xor(x[0], 2)";
        refused: (|| f32s(Tensor::bitwise_xor), "bitwise_xor: does not take f32");
    }
    /// The greatest common divisor; that of two zeros is 0.
    gcd, gcd_scalar {
        kernels: None, Compute::Fixed, Some(&device::int_gcd::KERNEL), false;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        family: Arithmetic;
        reference: |x, y| reference::gcd(x as i64, y as i64) as f64, false;
        peers: "torch.gcd(x[0], x[1])", "torch.gcd(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
        refused: (|| f32s(Tensor::gcd), "gcd: does not take f32");
    }
    /// The least common multiple.
    lcm, lcm_scalar {
        kernels: None, Compute::Fixed, Some(&device::int_lcm::KERNEL), false;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        family: Arithmetic;
        reference: |x, y| x * y / reference::gcd(x as i64, y as i64) as f64, false;
        peers: "torch.lcm(x[0], x[1])", "torch.lcm(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
        refused: (|| f32s(Tensor::lcm), "lcm: does not take f32");
    }
    /// The length of the vector of the two, which overflows only where it has to.
    hypot, hypot_scalar {
        kernels: Some((&device::hypot::KERNEL, &device::hypot_flat::KERNEL)), Compute::Single, None, false;
        autocast: Widest;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            // The quotient is at most 1, whatever the length of a small vector is in 16 bits.
            let share = |x: &Tensor| dy.mul(&x.div(s.output())?);
            Ok([Some(share(s.input(0))?), Some(share(s.input(1))?)])
        };
        in_place: hypot_;
        family: Transcendental;
        reference: f64::hypot, true;
        peers: "torch.hypot(x[0], x[1])", "torch.hypot(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
    }
    /// `log(exp(x) + exp(y))`, which does not overflow.
    logaddexp, logaddexp_scalar {
        kernels: Some((&device::logaddexp::KERNEL, &device::logaddexp_flat::KERNEL)), Compute::LongSingle, None, false;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            let share = |x: &Tensor| dy.mul(&x.sub(s.output())?.exp()?);
            Ok([Some(share(s.input(0))?), Some(share(s.input(1))?)])
        };
        family: Transcendental;
        reference: |x, y| x.max(y) + (-(x - y).abs()).exp().ln_1p(), true;
        peers: "torch.logaddexp(x[0], x[1])", "torch.logaddexp(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
    }
    /// `log2(2^x + 2^y)`, which does not overflow.
    logaddexp2, logaddexp2_scalar {
        kernels: Some((&device::logaddexp2::KERNEL, &device::logaddexp2_flat::KERNEL)), Compute::LongSingle, None, false;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            let share = |x: &Tensor| dy.mul(&x.sub(s.output())?.exp2()?);
            Ok([Some(share(s.input(0))?), Some(share(s.input(1))?)])
        };
        family: Transcendental;
        reference: |x, y| x.max(y) + (-(x - y).abs()).exp2().ln_1p() * std::f64::consts::LOG2_E, true;
        peers: "torch.logaddexp2(x[0], x[1])", "torch.logaddexp2(x[0], torch.full((), 2, dtype=x[0].dtype, device=x[0].device))";
    }
    /// `x log(y)`; zero where x is, whatever y but NaN.
    xlogy, xlogy_scalar {
        kernels: Some((&device::xlogy::KERNEL, &device::xlogy_flat::KERNEL)), Compute::Single, None, false;
        grads: XY, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            let is_flat = x.eq_scalar(0.0)?.logical_and(&y.le_scalar(0.0)?)?;
            let dx = dy.mul(&y.masked_fill(&is_flat, 1.0)?.log()?)?;
            Ok([Some(dx), Some(dy.mul(x)?.div(y)?)])
        };
        in_place: xlogy_;
        family: Transcendental;
        reference: |x, y| x * y.ln(), true;
    }
    /// The magnitude of the one with the sign of the other, that of a zero too.
    copysign, copysign_scalar {
        kernels: Some((&device::copysign::KERNEL, &device::copysign_flat::KERNEL)), Compute::Single, None, false;
        autocast: Widest;
        grads: Saves { inputs: 1, output: true }, |s, dy| {
            let (x, z) = (s.input(0).detach(), s.output().detach());
            let is_zero = x.eq_scalar(0.0)?;
            let sign = z.sign()?.mul(&x.sign()?)?.masked_fill(&is_zero, 0.0)?;
            Ok([Some(dy.mul(&sign)?), Some(dy.zeros_like()?)])
        };
        in_place: copysign_;
        family: Exact;
        reference: f64::copysign, true;
    }
}

/// `dy` times a coordinate over the square of a point's distance from the origin: divided twice, since the square is 0
/// or infinite where quotients are not. The angle of the origin has no slope: 0, as in PyTorch.
#[track_caller]
fn angle_slope(dy: &Tensor, coordinate: &Tensor, [x, y]: [&Tensor; 2]) -> Result<Tensor> {
    let is_origin = x.detach().eq_scalar(0.0)?.logical_and(&y.detach().eq_scalar(0.0)?)?;
    let distance = x.masked_fill(&is_origin, 1.0)?.hypot(y)?;
    dy.mul(&coordinate.div(&distance)?)?.div(&distance)
}

/// The power of -0.5: one over the square root, with the slope of a power, which at -0 and minus infinity is another.
struct InverseRoot;

impl Op for InverseRoot {
    fn name(&self) -> &'static str {
        "pow_scalar"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs[0].rsqrt()
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let slope = saved.input(0).pow_scalar(-1.5)?.mul_scalar(-0.5)?;
        Ok(vec![Some(dy.mul(&slope)?)])
    }
}

/// What [`Tensor::pow_scalar`] does otherwise than by logarithms, as PyTorch does: a square, a cube,
/// and square roots, which know no number for minus infinity. Integers have no negative powers.
#[track_caller]
fn special_power(x: &Tensor, c: f64) -> Option<Result<Tensor>> {
    match autocast::cast_inputs("pow_scalar", &[x]) {
        Ok(None) => {}
        Ok(Some(cast)) => return Some(cast[0].pow_scalar(c)),
        Err(error) => return Some(Err(error)),
    }
    if x.dtype().is_float() {
        return match c {
            2.0 => Some(x.square()),
            3.0 => Some(Tensor::rounded_once([x], |[x]| x.square()?.mul(&x))),
            // As in PyTorch: minus infinity to the power of one half is infinite for f16 alone.
            0.5 if x.dtype() != DType::F16 => Some(x.sqrt()),
            -0.5 if x.dtype() != DType::F16 => Some(apply(InverseRoot, &[x])),
            _ => None,
        };
    }
    let message = format!(
        "integers to negative integer powers are not allowed, {} to the power of {c}; convert with to_dtype",
        x.dtype()
    );
    (c < 0.0 && c.fract() == 0.0).then(|| Err(Error::op("pow", message)))
}

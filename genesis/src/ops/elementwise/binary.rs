//! Arithmetic of two operands, each op a row of a table, as in `unary`.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::elementwise as device;

use super::unary::{Domain, check_domain};
use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{
    Differentiated, Op, Saves, apply, check_pair, gradients, promote, result_in, unbroadcast,
};
use crate::shape::{Axes, broadcast_shapes, is_same};
use crate::tensor::Tensor;

/// How the gradients of two operands follow from the saved tensors and `dy`, before broadcasting is
/// undone.
type BinaryGrad = fn(&SavedTensors, &Tensor) -> Result<[Option<Tensor>; 2]>;

/// An elementwise op of two operands that broadcast.
#[derive(Debug)]
struct Binary {
    /// The name users know it by.
    name: &'static str,
    /// The kernel for any strides, and the one for dense tensors.
    kernels: (&'static KernelDef, &'static KernelDef),
    /// The kernels for a matrix with one row, and with one column.
    lines: (&'static KernelDef, &'static KernelDef),
    /// Which tensors its gradients read.
    saves: Saves,
    /// The gradients.
    grad: BinaryGrad,
    /// What it does where both operands are bools or integers.
    ints: Ints,
}

/// What an op of two operands does where neither is a float.
#[derive(Clone, Copy, Debug)]
enum Ints {
    /// Integers as such; bools by this op.
    Logic(fn(&Tensor, &Tensor) -> Result<Tensor>),
    /// Integers as such; bools are refused.
    NoBools,
    /// Both become f32.
    Floats,
}

/// The op of a row on tensors of any dtypes: they promote. The result may be written over `into`.
#[track_caller]
fn binary(row: &'static Binary, x: &Tensor, y: &Tensor, into: Option<&Tensor>) -> Result<Tensor> {
    if x.dtype() == y.dtype() && x.dtype().is_float() && x.device() == y.device() {
        return of_one_dtype(row, x, y, into);
    }
    let dtype = promote::result_type(&[x, y]);
    let is_wider = |t: &Tensor| t.rank() == 0 && t.dtype().is_float() && t.dtype().bytes() > 2;
    if dtype.is_arithmetic_float() && dtype.bytes() == 2 && (is_wider(x) || is_wider(y)) {
        // A number is not rounded to 16 bits before it is computed with.
        let wide = binary(row, &x.to_dtype(DType::F32)?, &y.to_dtype(DType::F32)?, None)?;
        return wide.to_dtype(dtype);
    }
    let (x, y) = match row.ints {
        Ints::Floats => promote::float_pair(x, y)?,
        _ => promote::pair(x, y)?,
    };
    if let (Ints::Logic(logic), DType::Bool) = (row.ints, x.dtype()) {
        return logic(&x, &y);
    }
    of_one_dtype(row, &x, &y, into)
}

/// The op of a row on tensors that need no promotion.
#[track_caller]
#[inline]
fn of_one_dtype(
    row: &'static Binary,
    x: &Tensor,
    y: &Tensor,
    into: Option<&Tensor>,
) -> Result<Tensor> {
    let shapes = [x.shape().into(), y.shape().into()];
    apply(BinaryCall { row, shapes, into: into.cloned() }, &[x, y])
}

/// A binary op in the making: it remembers its operands' shapes for the gradient.
struct BinaryCall {
    row: &'static Binary,
    shapes: [Axes<usize>; 2],
    /// Where the result may be written, of an op in place.
    into: Option<Tensor>,
}

impl Op for BinaryCall {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, y) = (inputs[0], inputs[1]);
        check_pair(self.row.name, x, y)?;
        check_domain(self.row.name, Domain::Number, x.dtype())?;
        if is_same(x.shape(), y.shape()) && x.is_contiguous() && y.is_contiguous() {
            let into = self.into.as_ref();
            let z = result_in(into, &[x, y], x.shape(), (x.dtype(), x.device()))?;
            launch::binary_dense(self.row.kernels, x, y, &z)?;
            return Ok(z);
        }
        let shape = broadcast_shapes(self.row.name, &[x.shape(), y.shape()])?;
        let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        let z = result_in(self.into.as_ref(), &[&x, &y], &shape, (x.dtype(), x.device()))?;
        launch::binary(self.row.kernels, self.row.lines, &x, &y, &z)?;
        Ok(z)
    }

    fn saves(&self) -> Saves {
        self.row.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (numbers, formula) = (&[][..], self.row.grad);
        let op = Differentiated { name: self.row.name, numbers, by: formula as usize };
        let grads = gradients(&op, saved, dy, move |saved, dy| Ok(formula(saved, dy)?.into()))?;
        let back = |(grad, shape): (Option<Tensor>, &Axes<usize>)| {
            grad.map(|g| unbroadcast(&g, shape)).transpose()
        };
        grads.into_iter().zip(&self.shapes).map(back).collect()
    }
}

macro_rules! binary_ops {
    ($($(#[$doc:meta])* $name:ident {
        kernel: $kernel:ident, $flat:ident, $row:ident, $column:ident;
        ints: $ints:expr;
        autocast: $precision:ident;
        grad: $saves:expr, $grad:expr;
        $(in_place: $in_place:ident;)?
        family: $family:ident;
        reference: $reference:expr;
        $(refused: $refused:expr;)*
    })*) => {
        static ROWS: &[&Binary] = &[$(&Binary {
            name: stringify!($name),
            kernels: (&device::$kernel::KERNEL, &device::$flat::KERNEL),
            lines: (&device::$row::KERNEL, &device::$column::KERNEL),
            saves: $saves,
            grad: $grad,
            ints: $ints,
        }),*];

        pub(super) const AUTOCAST: Precisions =
            &[$((stringify!($name), Precision::$precision)),*];

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
                    binary(ROWS[Row::$name as usize], self, other, None)
                }
            )*
        }

        $($(in_place!($in_place = $name(tensor): |x, other, into| {
            binary(ROWS[Row::$name as usize], x, other, into)
        });)?)*

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use super::*;
            use crate::ops::info::{ELEMENTWISE2, Family, Method, NUMBERS, OpInfo, broadcast, cpu};

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::$family,
                    |x| x[0].$name(&x[1]),
                    |x| broadcast(&x[0], &x[1], $reference),
                    ELEMENTWISE2,
                )
                .within(1.0, 9.0)
                .of(NUMBERS)
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
                    $($refused,)*
                ]),
            )*];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, y, _| x.$name(y) },
                $(Method {
                    name: stringify!($in_place),
                    call: |x, y, _| x.$in_place(y).map(|()| x.clone()),
                },)?
            )*];
        }
    };
}

const XY: Saves = Saves::inputs(3);

binary_ops! {
    /// `x + y`; of bools whether one is true.
    add {
        kernel: add, add_flat, add_row, add_column;
        ints: Ints::Logic(Tensor::logical_or);
        autocast: Widest;
        grad: Saves::NOTHING, |_, dy| Ok([Some(dy.clone()), Some(dy.clone())]);
        in_place: add_;
        family: Arithmetic;
        reference: |x, y| x + y;
    }
    /// `x - y`; not of two bools.
    sub {
        kernel: sub, sub_flat, sub_row, sub_column;
        ints: Ints::NoBools;
        autocast: Widest;
        grad: Saves::NOTHING, |s, dy| {
            Ok([Some(dy.clone()), if s.wanted[1] { Some(dy.neg()?) } else { None }])
        };
        in_place: sub_;
        family: Arithmetic;
        reference: |x, y| x - y;
        refused: (
            || cpu(&[2], DType::Bool)?.sub(&cpu(&[2], DType::Bool)?),
            "sub: needs a number dtype, got bool",
        );
    }
    /// `x * y`; of bools whether both are true.
    mul {
        kernel: mul, mul_flat, mul_row, mul_column;
        ints: Ints::Logic(Tensor::logical_and);
        autocast: Widest;
        grad: XY, |s, dy| Ok([
            if s.wanted[0] { Some(dy.mul(s.input(1))?) } else { None },
            if s.wanted[1] { Some(dy.mul(s.input(0))?) } else { None },
        ]);
        in_place: mul_;
        family: Arithmetic;
        reference: |x, y| x * y;
    }
    /// `x / y`; integers become f32. For whole quotients see [`Tensor::div_rounded`].
    div {
        kernel: div, div_flat, div_row, div_column;
        ints: Ints::Floats;
        autocast: Widest;
        grad: XY, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            // The quotient by y first: where x is 0, dy / y may still be infinite.
            let slope = || x.div(y)?.div(y);
            Ok([
                if s.wanted[0] { Some(dy.div(y)?) } else { None },
                if s.wanted[1] { Some(dy.neg()?.mul(&slope()?)?) } else { None },
            ])
        };
        in_place: div_;
        family: Arithmetic;
        reference: |x, y| x / y;
    }
    /// The larger of x and y; NaN wins. Where they are equal each gets half of the gradient, where one is
    /// NaN both all of it.
    maximum {
        kernel: maximum, maximum_flat, maximum_row, maximum_column;
        ints: Ints::Logic(Tensor::logical_or);
        autocast: Widest;
        grad: XY, |s, dy| shared(dy, s.input(0), s.input(1), Tensor::lt);
        family: Exact;
        reference: |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) };
    }
    /// The smaller of x and y; NaN wins. Where they are equal each gets half of the gradient, where one is
    /// NaN both all of it.
    minimum {
        kernel: minimum, minimum_flat, minimum_row, minimum_column;
        ints: Ints::Logic(Tensor::logical_and);
        autocast: Widest;
        grad: XY, |s, dy| shared(dy, s.input(0), s.input(1), Tensor::gt);
        family: Exact;
        reference: |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) };
    }
}

/// `dy` to the operand that does not lose; half to each where they are equal, all of it to both where one
/// is NaN.
#[track_caller]
fn shared(
    dy: &Tensor,
    x: &Tensor,
    y: &Tensor,
    loses: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<[Option<Tensor>; 2]> {
    let share = x.eq(y)?.where_(&dy.mul_scalar(0.5)?, dy)?;
    let part = |lost: Tensor| share.masked_fill(&lost, 0.0).map(Some);
    Ok([part(loses(x, y)?)?, part(loses(y, x)?)?])
}

//! What tests know of sums, means and extremes.

use genesis_kernel::ir::DType;

use crate::ops::info::{
    FLOATS, Family, OpInfo, Sample, cpu, largest, mean, reduced, scalar, smallest, sum,
};

const SAMPLES: &[Sample] = &[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[3, 40, 70]], &[&[2, 5, 1200]]];
const FEW: &[Sample] = &[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[3, 4, 70]]];
const REDUCED: &[DType] =
    &[DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32];
const COMPARED: &[DType] = &[DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64];

/// The row of a reduction over dims, which its reference counts from the first.
macro_rules! over {
    (@keep true) => { "True" };
    (@keep false) => { "False" };
    ($name:literal, $family:ident, $call:ident, $fold:ident, $dtypes:ident, $dims:tt, $axes:tt, $keep:tt, $torch:literal) => {
        OpInfo::new(
            concat!($name, "/dims=", stringify!($dims)),
            Family::$family,
            |x| x[0].$call(&$dims, $keep),
            |x| reduced(&x[0], &$axes, $keep, $fold),
            SAMPLES,
        )
        .within(-3.0, 3.0)
        .of($dtypes)
        .peer(concat!($torch, "(x[0], ", stringify!($dims), ", ", over!(@keep $keep), ")"))
        .refusing(&[
            (
                || cpu(&[2], DType::F32)?.$call(&[1], false),
                concat!($name, ": dimension 1 is out of range for shape [2]"),
            ),
            (
                || cpu(&[2, 2], DType::F32)?.$call(&[0, -2], false),
                concat!($name, ": [0, -2] names a dimension twice"),
            ),
        ])
    };
}

fn argmax(values: &[f64]) -> f64 {
    let best = largest(values);
    values.iter().position(|&v| v == best).unwrap_or(0) as f64
}

fn argmin(values: &[f64]) -> f64 {
    let best = smallest(values);
    values.iter().position(|&v| v == best).unwrap_or(0) as f64
}

/// The row of an index of an extreme along a dimension.
macro_rules! along {
    ($name:literal, $call:ident, $dim:literal) => {
        OpInfo::new(
            concat!($name, "/dim=", $dim),
            Family::Exact,
            |x| x[0].$call($dim),
            |x| reduced(&x[0], &[$dim], false, $call),
            FEW,
        )
        .within(-30.0, 30.0)
        .of(COMPARED)
        .flat()
        .peer(concat!("torch.", $name, "(x[0], ", $dim, ")"))
        .refusing(&[(
            || cpu(&[2, 0], DType::F32)?.$call(1),
            concat!($name, ": has no index over no elements, shape [2, 0]"),
        )])
    };
}

/// The row of a reduction of all elements.
macro_rules! of_all {
    ($name:literal, $family:ident, $call:ident, $fold:ident, $dtypes:ident) => {
        OpInfo::new(
            concat!($name, "/all"),
            Family::$family,
            |x| x[0].$call(),
            |x| scalar($fold(&x[0].data)),
            SAMPLES,
        )
        .within(-3.0, 3.0)
        .of($dtypes)
    };
}

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    over!("sum", Sum, sum_dims, sum, REDUCED, [-1], [2], false, "torch.sum"),
    over!("sum", Sum, sum_dims, sum, REDUCED, [0], [0], true, "torch.sum"),
    over!("sum", Sum, sum_dims, sum, REDUCED, [1], [1], false, "torch.sum"),
    over!("sum", Sum, sum_dims, sum, REDUCED, [0, 2], [0, 2], true, "torch.sum"),
    over!("sum", Sum, sum_dims, sum, REDUCED, [0, 1, 2], [0, 1, 2], false, "torch.sum"),
    of_all!("sum", Sum, sum, sum, REDUCED),
    over!("mean", Mean, mean_dims, mean, FLOATS, [-1], [2], false, "torch.mean"),
    over!("mean", Mean, mean_dims, mean, FLOATS, [0], [0], true, "torch.mean"),
    over!("mean", Mean, mean_dims, mean, FLOATS, [1], [1], false, "torch.mean"),
    over!("mean", Mean, mean_dims, mean, FLOATS, [0, 2], [0, 2], true, "torch.mean"),
    over!("mean", Mean, mean_dims, mean, FLOATS, [0, 1, 2], [0, 1, 2], false, "torch.mean"),
    of_all!("mean", Mean, mean, mean, FLOATS),
    over!("max", Exact, max_dims, largest, REDUCED, [-1], [2], false, "torch.amax"),
    over!("max", Exact, max_dims, largest, REDUCED, [0], [0], true, "torch.amax"),
    over!("max", Exact, max_dims, largest, REDUCED, [1], [1], false, "torch.amax"),
    over!("max", Exact, max_dims, largest, REDUCED, [0, 2], [0, 2], true, "torch.amax"),
    over!("max", Exact, max_dims, largest, REDUCED, [0, 1, 2], [0, 1, 2], false, "torch.amax"),
    of_all!("max", Exact, max, largest, REDUCED),
    over!("min", Exact, min_dims, smallest, REDUCED, [-1], [2], false, "torch.amin"),
    over!("min", Exact, min_dims, smallest, REDUCED, [0], [0], true, "torch.amin"),
    over!("min", Exact, min_dims, smallest, REDUCED, [1], [1], false, "torch.amin"),
    over!("min", Exact, min_dims, smallest, REDUCED, [0, 2], [0, 2], true, "torch.amin"),
    over!("min", Exact, min_dims, smallest, REDUCED, [0, 1, 2], [0, 1, 2], false, "torch.amin"),
    of_all!("min", Exact, min, smallest, REDUCED),
    along!("argmax", argmax, 0),
    along!("argmax", argmax, 1),
    along!("argmax", argmax, 2),
    along!("argmin", argmin, 0),
    along!("argmin", argmin, 1),
    along!("argmin", argmin, 2),
];

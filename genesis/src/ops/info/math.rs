//! Samples and references of the elementwise functions of `math`.

use genesis_kernel::ir::DType;

use super::sample::{Dense, FLOATS, Family, NUMBERS, OpInfo, Sample, cpu, refuse, samples};
use crate::ops::math::{FUNCTIONS, FUNCTIONS2, Function, Function2};
use crate::ops::special::SPECIAL;

pub(super) fn infos() -> Vec<OpInfo> {
    let one = FUNCTIONS.iter().chain(SPECIAL).map(|row| function(row));
    one.chain(FUNCTIONS2.iter().map(|row| function2(row))).collect()
}

fn few(shapes: &[&[&[usize]]], range: (f64, f64)) -> Vec<Sample> {
    samples(shapes, range)
}

fn function(row: &'static Function) -> OpInfo {
    OpInfo {
        name: row.name.to_owned(),
        family: match row.name {
            "trunc" | "frac" => Family::Exact,
            "reciprocal" => Family::Arithmetic,
            _ => Family::Transcendental,
        },
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: !matches!(row.name, "trunc"),
        call: Box::new(|x| (row.call)(&x[0])),
        reference: Box::new(|x| Dense {
            shape: x[0].shape.clone(),
            data: x[0].data.iter().map(|&v| (row.reference)(v)).collect(),
        }),
        samples: few(&[&[&[]], &[&[0, 4]], &[&[2, 3, 33]]], row.range),
        refused: vec![refuse(
            || (row.call)(&cpu(&[2], DType::F8E4M3)?),
            &format!(
                "{}: needs a float dtype, got f8e4m3, which is for storage: convert it with `to_dtype`",
                row.name
            ),
        )],
    }
}

fn function2(row: &'static Function2) -> OpInfo {
    let name = row.name;
    let own = if row.takes(DType::F32) { DType::F32 } else { DType::I64 };
    let mut refused = vec![refuse(
        move || (row.call)(&cpu(&[2, 3], own)?, &cpu(&[4], own)?),
        &format!("{name}: shapes do not broadcast, [2, 3] and [4]"),
    )];
    if !row.takes(DType::F32) {
        refused.push(refuse(
            move || (row.call)(&cpu(&[2], DType::F32)?, &cpu(&[2], DType::F32)?),
            &format!("{name}: does not take f32"),
        ));
    }
    OpInfo {
        name: name.to_owned(),
        family: match name {
            "pow" | "atan2" | "hypot" | "logaddexp" | "xlogy" => Family::Transcendental,
            "copysign" => Family::Exact,
            _ => Family::Arithmetic,
        },
        dtypes: NUMBERS.into_iter().filter(|&dtype| row.takes(dtype)).collect(),
        index_inputs: Vec::new(),
        is_differentiable: row.is_smooth,
        call: Box::new(|x| (row.call)(&x[0], &x[1])),
        reference: Box::new(move |x| {
            let shapes = [&x[0].shape[..], &x[1].shape[..]];
            let shape = crate::shape::broadcast_shapes(name, &shapes).expect("samples broadcast");
            Dense::from_fn(&shape, |at| (row.reference)(x[0].at(at), x[1].at(at)))
        }),
        samples: few(&[&[&[], &[]], &[&[0, 4], &[4]], &[&[2, 3, 33], &[3, 1]]], (1.0, 6.0)),
        refused,
    }
}

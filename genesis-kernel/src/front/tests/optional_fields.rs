//! Optional fields of structs of parameters: a kernel is specialised by which are there, as by optional parameters.

use expect_test::expect;

use super::runs::{assembles, numbers, program_of, view};
use crate::autotune::Problem;
use crate::differential::everywhere;
use crate::front::LaunchOptions;
use crate::ir::{DType, InterpArg, Scalar};
use crate::prelude::*;

/// Rows, and what is done to them where it is there.
#[derive(Clone, Copy, KernelParam)]
struct Rows<T: Float> {
    x: View<T, 2>,
    bias: Option<View<T::Acc, 1>>,
    scale: Option<f32>,
    y: ViewMut<f32, 2>,
    /// Sums of the rows.
    sums: Option<ViewMut<f32, 1>>,
}

#[derive(Clone, Copy, KernelParam)]
struct Plain {
    start: i64,
}

/// A row with the bias, in f32.
#[device]
fn biased<const N: usize, T: Float>(rows: Rows<T>, i: i64) -> Tile1<f32, N> {
    let x = rows.x.load::<1, N>([i, 0]).squeeze(0).to::<f32>();
    if let Some(bias) = rows.bias { x + bias.load::<N>([0]).to::<f32>() } else { x }
}

#[kernel]
fn transform<T: Float, const N: usize>(plain: Plain, rows: Rows<T>, by: Option<f32>, twice: bool) {
    let i = program_id(0) + plain.start;
    let mut y = biased::<N, T>(rows, i);
    if let Some(scale) = rows.scale {
        y *= scale;
    }
    if let Some(by) = by {
        y *= by;
    }
    if rows.bias.is_none() && twice {
        y += y;
    }
    rows.y.store([i, 0], y.row());
    if let Some(sums) = rows.sums {
        sums.store([i], sum(y, 0));
    }
}

fn given(there: [bool; 4]) -> Vec<Vec<u8>> {
    let number = |value| InterpArg::Scalar(Scalar::float(DType::F32, value));
    let args = vec![
        InterpArg::Scalar(Scalar::int(DType::I64, 1)),
        view(&[9.0, 9.0, 1.0, -2.0], &[2, 2], false),
        view(&[0.5, 0.25], &[2], false),
        number(4.0),
        view(&[0.0; 4], &[2, 2], true),
        view(&[0.0; 2], &[2], true),
        number(10.0),
        InterpArg::Scalar(Scalar::int(DType::Bool, 1)),
    ];
    let consts: Vec<i64> = [2].into_iter().chain(there.map(i64::from)).collect();
    assembles(&transform::KERNEL, &[DType::F32], &consts);
    everywhere(program_of(&transform::KERNEL, &[DType::F32], &consts, args))
}

#[test]
fn every_machine_runs_what_is_there() {
    let y = |there| numbers::<f32>(&given(there)[4])[2..].to_vec();
    assert_eq!(y([false; 4]), [2.0, -4.0]);
    assert_eq!(y([true, false, false, false]), [1.5, -1.75]);
    assert_eq!(y([true, true, false, true]), [60.0, -70.0]);
    let all = given([false, true, true, false]);
    assert_eq!(numbers::<f32>(&all[4])[2..], [8.0, -16.0]);
    assert_eq!(numbers::<f32>(&all[5]), [0.0, -8.0]);
}

#[test]
fn constants_say_what_is_there() {
    expect![[
        r#"["N", "rows.bias.is_some", "rows.scale.is_some", "rows.sums.is_some", "by.is_some"]"#
    ]]
    .assert_eq(&format!("{:?}", transform::AST.consts));
    let optional: Vec<bool> = transform::AST.params.iter().map(|param| param.optional).collect();
    assert_eq!(optional, [false, false, true, true, false, true, true, false]);
}

#[test]
fn nothing_is_left_of_what_is_not_there() {
    let of = |rows| {
        let present = transform::Present { plain: (), rows, by: false };
        let consts = transform::Consts { N: 4 };
        transform::specialize::<bf16>(consts, present, &Hints::default()).unwrap().tir()
    };
    let without = of(RowsPresent::default());
    assert!(!without.contains("view_load %rows.bias") && !without.contains("%rows.sums,"));
    let with = of(RowsPresent { bias: true, sums: true, ..Default::default() });
    assert!(with.contains("view_load %rows.bias") && with.contains("view_store %rows.sums"));
}

/// A kernel without optional parameters of its own, that is tuned.
#[autotune(
    key = { n: rows.y.dim(1), sums: rows.sums.dim(0) },
    space = { N: [2, 4] },
    grid = |_t| Grid::x(rows.x.dim(0)),
    heuristic = by_what_is_there,
)]
#[kernel]
fn copied<const N: usize>(rows: Rows<f32>) {
    let y = biased::<N, f32>(rows, program_id(0));
    rows.y.store([program_id(0), 0], y.row());
    if let Some(sums) = rows.sums {
        sums.store([program_id(0)], sum(y, 0));
    }
}

fn by_what_is_there(problem: &Problem<'_>) -> (copied::Consts, LaunchOptions) {
    let [bias, scale, sums] = problem.present[..] else { panic!("{:?}", problem.present) };
    assert_eq!((scale, problem.sizes), (false, &[2, if sums { 3 } else { 1 }][..]));
    (copied::Consts { N: if bias { 2 } else { 4 } }, LaunchOptions::default())
}

#[test]
fn a_launch_takes_some_or_absent() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let (x, bias) = (stream.upload(&[1.0_f32; 6])?, stream.upload(&[0.5_f32, 0.25])?);
    let (mut y, mut sums) = (Array::<f32>::zeros(&stream, 6)?, Array::<f32>::zeros(&stream, 3)?);
    for _ in 0..2 {
        let rows = RowsArg {
            x: x.view([3, 2])?,
            bias: Absent,
            scale: Some(3.0),
            y: y.view_mut([3, 2])?,
            sums: Absent,
        };
        let args = (PlainArg { start: 1 }, rows, Some(2.0), true);
        transform::launch::<f32>(&stream, Grid::x(1), transform::Consts { N: 2 }, args)?;
        assert_eq!(y.to_vec()?[2..4], [12.0; 2]);
        let rows = RowsArg {
            x: x.view([3, 2])?,
            bias: Some(bias.view([2])?),
            scale: Absent,
            y: y.view_mut([3, 2])?,
            sums: Some(sums.view_mut([3])?),
        };
        copied::tuned(&stream, (rows,))?;
        assert_eq!((y.to_vec()?, sums.to_vec()?), ([1.5, 1.25].repeat(3), vec![2.75; 3]));
        let rows = RowsArg {
            x: x.view([3, 2])?,
            bias: Absent,
            scale: Absent,
            y: y.view_mut([3, 2])?,
            sums: Absent,
        };
        copied::tuned(&stream, (rows,))?;
        assert_eq!(y.to_vec()?, [1.0; 6]);
    }
    Ok(())
}

#[test]
fn a_kernel_of_structs_alone_is_specialised_with_them() {
    let (consts, hints) = (copied::Consts { N: 2 }, Hints::default());
    let without = copied::specialize(consts, &hints).unwrap().tir();
    let with = RowsPresent { bias: true, scale: false, sums: false };
    let with = copied::specialize_with(consts, copied::Present { rows: with }, &hints).unwrap();
    assert!(!without.contains("view_load %rows.bias"));
    assert!(with.tir().contains("view_load %rows.bias"));
}

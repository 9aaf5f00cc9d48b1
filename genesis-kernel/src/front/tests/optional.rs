//! Optional parameters, which a kernel is specialised by, and tuples of parameters.

use super::runs::{assembles, numbers, program_of, view};
use crate::differential::everywhere;
use crate::ir::{DType, InterpArg, Scalar};
use crate::prelude::*;

/// What is added to each element: to the left the bias, where there is one.
#[device]
fn biased<const N: usize>(
    x: Tile1<f32, N>,
    bias: Option<View<f32, 1>>,
    by: Option<f32>,
) -> Tile1<f32, N> {
    let x = if let Some(b) = bias { b.load::<N>([0]) + x } else { x };
    if let Some(by) = by { x * by } else { x }
}

#[kernel]
fn linear<const N: usize>(
    x: View<f32, 1>,
    bias: Option<View<f32, 1>>,
    scale: Option<f32>,
    y: ViewMut<f32, 1>,
    signs: Option<ViewMut<f32, 1>>,
) {
    let mut count = 0_i64;
    if bias.is_some() {
        count += 10;
    }
    if scale.is_none() && bias.is_none() {
        count += 1;
    }
    let sum = biased(x.load::<N>([0]), bias, scale);
    if let Some(signs) = signs {
        count += 100;
        signs.store([0], where_(sum < 0.0, -1.0_f32, 1.0));
    }
    y.store([0], sum + count.to::<f32>());
}

fn given(there: [bool; 3]) -> Vec<Vec<u8>> {
    let args = vec![
        view(&[1.0, -2.0], &[2], false),
        view(&[0.5, 0.5], &[2], false),
        InterpArg::Scalar(Scalar::float(DType::F32, 4.0)),
        view(&[0.0; 2], &[2], true),
        view(&[0.0; 2], &[2], true),
    ];
    let consts: Vec<i64> = [2].into_iter().chain(there.map(i64::from)).collect();
    assembles(&linear::KERNEL, &[], &consts);
    everywhere(program_of(&linear::KERNEL, &[], &consts, args))
}

#[test]
fn a_kernel_is_specialised_by_what_is_there() {
    let y = |there| numbers::<f32>(&given(there)[3]);
    assert_eq!(y([false, false, false]), [2.0, -1.0]);
    assert_eq!(y([true, false, false]), [11.5, 8.5]);
    assert_eq!(y([true, true, false]), [16.0, 4.0]);
    assert_eq!(y([true, true, true]), [116.0, 104.0]);
    assert_eq!(numbers::<f32>(&given([false, true, true])[4]), [1.0, -1.0]);
}

#[test]
fn nothing_is_left_of_what_is_not_there() {
    let of = |present| {
        let kernel = linear::specialize(linear::Consts { N: 4 }, present, &Hints::default());
        kernel.unwrap().tir()
    };
    let without = of(linear::Present::default());
    assert!(!without.contains("view_load %bias") && !without.contains("%signs,"), "{without}");
    let with = of(linear::Present { bias: true, scale: true, signs: true });
    assert!(with.contains("view_load %bias") && with.contains("view_store %signs"), "{with}");
}

#[test]
fn a_launch_takes_some_or_absent() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let (x, bias) = (stream.upload(&[1.0_f32, -2.0])?, stream.upload(&[0.5_f32, 0.5])?);
    let (mut y, mut signs) = (Array::<f32>::zeros(&stream, 2)?, Array::<f32>::zeros(&stream, 2)?);
    let consts = linear::Consts { N: 2 };
    for _ in 0..2 {
        let args = (x.view([2])?, Absent, Absent, y.view_mut([2])?, Absent);
        linear::launch(&stream, Grid::x(1), consts, args)?;
        assert_eq!(y.to_vec()?, [2.0, -1.0]);
        let signs = signs.view_mut([2])?;
        let args = (x.view([2])?, Some(bias.view([2])?), Some(4.0), y.view_mut([2])?, Some(signs));
        linear::launch(&stream, Grid::x(1), consts, args)?;
        assert_eq!(y.to_vec()?, [116.0, 104.0]);
        let none: Option<f32> = None;
        let args = (x.view([2])?, Some(bias.view([2])?), none, y.view_mut([2])?, Absent);
        linear::launch(&stream, Grid::x(1), consts, args)?;
        assert_eq!(y.to_vec()?, [11.5, 8.5]);
    }
    assert_eq!(signs.to_vec()?, [1.0, -1.0]);
    Ok(())
}

/// A part of `x` times a factor, by programs for each element.
#[kernel]
fn grouped_parameters(
    (x, by): (View<f32, 1>, f32),
    window: (i64, (i64, Option<i64>)),
    y: ViewMut<f32, 1>,
) {
    let (start, (length, step)) = window;
    let step = if let Some(step) = step { step } else { 1 };
    let part = x.subview([start], [length], [step]);
    y.store([0], part.load::<4>([0]) * by + window.0.to::<f32>());
}

#[test]
fn tuples_are_given_as_tuples() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let mut y: Array<f32> = Array::zeros(&stream, 4)?;
    let args = ((x.view([6])?, 10.0), (1, (3, Absent)), y.view_mut([4])?);
    grouped_parameters::launch(&stream, Grid::x(1), grouped_parameters::Consts {}, args)?;
    assert_eq!(y.to_vec()?, [21.0, 31.0, 41.0, 1.0]);
    let args = ((x.view([6])?, 10.0), (0, (3, Some(2))), y.view_mut([4])?);
    grouped_parameters::launch(&stream, Grid::x(1), grouped_parameters::Consts {}, args)?;
    assert_eq!(y.to_vec()?, [10.0, 30.0, 50.0, 0.0]);
    Ok(())
}

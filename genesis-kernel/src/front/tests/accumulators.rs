//! `T::Acc`, and extents that signatures compute.

use super::runs::{assembles, bytes, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::{Hints, build};
use crate::ir::{DType, InterpArg};
use crate::prelude::*;

#[device]
fn halves<T: Number, const N: usize>(x: Tile1<T, N>) -> (Tile1<T, { N / 2 }>, Tile1<T, { N / 2 }>) {
    split(x.reshape::<2, { N / 2 }>().trans())
}

#[device]
fn doubled<T: Number, S: Shape>(x: Tile<T, S>) -> Tile<T::Acc, S> {
    x.to::<T::Acc>() + x.to::<T::Acc>() * T::Acc::ONE
}

/// The sums of elements half a block apart, twice, in the dtype of their sums.
#[kernel]
fn folded<T: Number, const N: usize>(x: Ptr<T>, y: PtrMut<T::Acc>) {
    let (a, b) = halves::<_, N, { N / 2 }>(doubled(load(x + arange::<N>())));
    store(y + arange::<{ N / 2 }>(), a + b);
}

#[test]
fn sums_are_kept_in_the_dtype_of_sums() {
    let x: Vec<i8> = (0..64).map(|n| 127 - n as i8).collect();
    let args = vec![InterpArg::Buffer(DType::I8, bytes(&x)), written(DType::I32, 32)];
    let memory = everywhere(program_of(&folded::KERNEL, &[DType::I8], &[64], args));
    let expected: Vec<i32> =
        (0..32).map(|n| 2 * (i32::from(x[n]) + i32::from(x[n + 32]))).collect();
    assert_eq!(numbers::<i32>(&memory[1]), expected);
    let pairs = [
        (DType::BF16, DType::F32),
        (DType::F64, DType::F64),
        (DType::U16, DType::I32),
        (DType::U64, DType::U64),
    ];
    for (dtype, sums) in pairs {
        let func = build(folded::KERNEL.ast, &[dtype], &[64], &Hints::default()).unwrap();
        let text = crate::ir::print(&func);
        assert!(text.contains(&format!("%y: *{sums} exclusive")), "{text}");
        assembles(&folded::KERNEL, &[dtype], &[64]);
    }
}

#[test]
fn a_typed_launch_takes_the_dtype_of_sums() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.5_f32, 2.0, 3.0, 4.0].map(bf16::from_f32))?;
    let mut y: Array<f32> = Array::zeros(&stream, 2)?;
    // SAFETY: four elements are read, and two written.
    unsafe { folded::launch::<bf16>(&stream, Grid::x(1), folded::Consts { N: 4 }, (&x, &mut y))? };
    assert_eq!(y.to_vec()?, [9.0, 12.0]);
    Ok(())
}

/// Takes as many as half of the others.
#[device]
fn added<const N: usize>(x: Tile1<f32, N>, y: Tile1<f32, { N / 2 }>) -> Tile1<f32, { N / 2 }> {
    let (a, b) = halves(x);
    a + b + y
}

/// Gives another number of elements than it says.
#[device]
fn lies<const N: usize>(x: Tile1<f32, N>) -> Tile1<f32, { N / 4 }> {
    let (a, _) = halves::<_, N, { N / 4 }>(x);
    a
}

#[kernel]
fn fits<const N: usize, const HALF: usize>(y: PtrMut<f32>) {
    store(y + arange::<HALF>(), added::<N, HALF>(ones::<f32, N>(), ones::<f32, HALF>()));
}

#[kernel]
fn gives<const N: usize>(y: PtrMut<f32>) {
    store(y + arange::<{ N / 4 }>(), lies::<N, { N / 4 }>(ones::<f32, N>()));
}

#[test]
fn an_extent_that_a_signature_computes_is_checked() {
    let of = |half| build(fits::KERNEL.ast, &[], &[16, half], &Hints::default());
    assert!(of(8).is_ok());
    let error = of(4).unwrap_err().to_string();
    assert!(error.contains("`added` takes an extent of 8 here, this has 4"), "{error}");
    let error = build(gives::KERNEL.ast, &[], &[16], &Hints::default()).unwrap_err().to_string();
    assert!(error.contains("is to give an extent of 4 here, this has 8"), "{error}");
}

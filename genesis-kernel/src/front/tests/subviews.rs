//! Stores of views under a mask, views of parts of views, and views made of pointers.

use super::runs::{assembles, int, numbers, program_of, view, written};
use crate::differential::everywhere;
use crate::front::build;
use crate::ir::{DType, InterpArg};
use crate::kernel::ParamHint;
use crate::prelude::*;

/// Writes the even columns of whole rows; of what is past the edge nothing.
#[kernel]
fn even_columns(y: ViewMut<f32, 2>, n: i64) {
    let j = arange::<8>().row();
    let value = full::<f32, 4, 8>(1.0) + j.to::<f32>();
    y.store([0, 0], value, (j % 2 == 0) & (arange::<4>().col() < n));
    y.store_once([4, 0], 9.0, n > 100);
    y.store_kept([4, 1], 7.0, n > 1);
}

#[test]
fn a_mask_leaves_out_elements_of_a_views_tile() {
    let y = view(&[0.0; 5 * 7], &[5, 7], true);
    let memory = everywhere(program_of(&even_columns::KERNEL, &[], &[], vec![y, int(3)]));
    let y = numbers::<f32>(&memory[0]);
    let row = [1.0, 0.0, 3.0, 0.0, 5.0, 0.0, 7.0];
    assert_eq!(&y[..14], [row, row].concat());
    assert_eq!((&y[21..28], &y[28..30]), (&[0.0; 7][..], &[0.0, 7.0][..]));
    assembles(&even_columns::KERNEL, &[], &[]);
}

/// `[rows, 2]` sums of the columns of a part of `x`, by views of its columns and of every second row.
#[device]
fn add_columns<const M: usize, const N: usize>(x: View<f32, 2>) -> Tile1<f32, M> {
    sum(x.load::<M, N>([0, 0]), 1)
}

#[kernel]
fn parts(x: View<f32, 2>, y: ViewMut<f32, 1>, i: i64, m: i64, step: i64) {
    let part = x.subview([i, 1], [m, 3]);
    y.store([0], add_columns::<4, 8>(part));
    let (rows, columns) = (part.dim(0).to::<f32>(), part.dim(1).to::<f32>());
    let apart = x.subview([i, 0], [m, 1], [step, 2]);
    y.store([4], sum(apart.load::<4, 2>([0, 0]), 1));
    let own = y.subview([8], [3]);
    own.store([0], rows.broadcast_to::<1>());
    own.store([1], columns.broadcast_to::<1>());
    own.store([2], apart.dim(0).to::<f32>().broadcast_to::<1>());
    // There is no fourth.
    own.store([3], full::<f32, 4>(-1.0));
}

fn parts_of(i: i64, m: i64, step: i64) -> Vec<f32> {
    let x: Vec<f32> = (0..6 * 5).map(|n| n as f32).collect();
    let y = view(&[-7.0; 12], &[12], true);
    let args = vec![view(&x, &[6, 5], false), y, int(i), int(m), int(step)];
    numbers(&everywhere(program_of(&parts::KERNEL, &[], &[], args))[1])
}

#[test]
fn a_part_of_a_view_ends_where_the_view_does() {
    // Rows 4 and 5, columns 1 to 3; of every second row the fourth.
    let sums = [3.0 * 22.0, 3.0 * 27.0, 0.0, 0.0];
    let apart = [20.0, 0.0, 0.0, 0.0];
    let rest = [2.0, 3.0, 1.0, -7.0];
    assert_eq!(parts_of(4, 100, 2), [&sums[..], &apart, &rest].concat());
    // As many as are asked for: rows 1 and 2, and rows 1 and 4.
    let sums = [3.0 * 7.0, 3.0 * 12.0, 0.0, 0.0];
    let apart = [5.0, 20.0, 0.0, 0.0];
    let rest = [2.0, 3.0, 2.0, -7.0];
    assert_eq!(parts_of(1, 2, 3), [&sums[..], &apart, &rest].concat());
    assembles(&parts::KERNEL, &[], &[]);
}

#[test]
fn a_part_that_begins_outside_or_goes_back_is_empty() {
    for (i, m, step) in
        [(6, 3, 1), (-1, 3, 1), (i64::MAX, 3, 1), (0, -3, 1), (i64::MIN, i64::MAX, 1)]
    {
        let y = parts_of(i, m, step);
        assert_eq!((&y[..8], y[8], y[10]), (&[0.0; 8][..], 0.0, 0.0), "{i} {m} {step}");
    }
    for step in [0, -1, i64::MIN] {
        let y = parts_of(0, 2, step);
        assert_eq!((&y[4..8], y[10]), (&[0.0; 4][..], 0.0), "{step}");
    }
    assert_eq!(parts_of(0, 2, i64::MAX)[10], 1.0);
}

/// `y = x` transposed, of matrices that pointers and extents are given for.
#[kernel]
fn turned(x: Ptr<f32>, y: PtrMut<f32>, m: i64, n: i64) {
    let from = view_of(x, [n, m], [1, n]);
    let to = view_of(y, [n, m], [m, 1]);
    for i in range(0, n, 4) {
        to.store([i, 0], from.load::<4, 8>([i, 0]));
    }
    let none = view_of(y, [m - 100], [1]);
    none.store([0], full::<f32, 2>(-1.0));
}

#[test]
fn a_view_is_made_of_a_pointer() {
    let x: Vec<f32> = (0..5 * 7).map(|n| n as f32).collect();
    let read = InterpArg::Buffer(DType::F32, super::runs::bytes(&x));
    let args = vec![read, written(DType::F32, 35), int(5), int(7)];
    let memory = everywhere(program_of(&turned::KERNEL, &[], &[], args));
    let expected: Vec<f32> = (0..35).map(|n| x[n % 5 * 7 + n / 5]).collect();
    assert_eq!(numbers::<f32>(&memory[1]), expected);
    assembles(&turned::KERNEL, &[], &[]);
}

#[kernel]
fn copied(x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let (from, to) = (x.subview([8, 0], [8, 128]), y.subview([8, 0], [8, 128]));
    to.store([0, 0], from.load::<8, 128>([0, 0]));
}

#[test]
fn a_part_of_a_view_moves_vectors_where_the_view_does() {
    let dense = ParamHint {
        multiple_of: 16,
        unit_stride: true,
        stride_multiple_of: 16,
        narrow: true,
        ..ParamHint::default()
    };
    let hints = Hints { params: vec![dense; 2], ..Hints::default() };
    let kernel = copied::specialize(copied::Consts {}, &hints).unwrap();
    let compiled = kernel.compile(&crate::Target::sm_90a()).unwrap();
    let ptx = compiled.ptx().unwrap();
    assert!(ptx.contains("ld.global") && ptx.contains(".v4"), "{ptx}");
}

#[kernel]
fn chosen(x: View<f32, 1>, y: ViewMut<f32, 1>, n: i64) {
    let part = if n > 3 { x.subview([0], [n]) } else { x };
    y.store([0], part.load::<4>([0]));
}

#[kernel]
fn left(x: View<f32, 1>, y: ViewMut<f32, 1>, n: i64) {
    let mut part = x;
    y.store([0], part.load::<4>([0]));
    if n > 3 {
        return;
    } else {
        part = x.subview([0], [n]);
    }
    y.store([4], part.load::<4>([0]));
    y.store([0], part.load::<4>([0]));
}

#[kernel]
fn carried(x: View<f32, 1>, y: ViewMut<f32, 1>, n: i64) {
    let mut part = x;
    for _ in range(0, n) {
        part = part.subview([1], [n]);
    }
    y.store([0], part.load::<4>([0]));
}

#[test]
fn a_view_stays_where_it_is_made() {
    let error = |kernel: &crate::KernelDef| {
        build(kernel.ast, &[], &[], &Hints::default()).unwrap_err().to_string()
    };
    let (chosen, left, carried) =
        (error(&chosen::KERNEL), error(&left::KERNEL), error(&carried::KERNEL));
    assert!(chosen.contains("the value of the `if` is a view that a branch chooses"), "{chosen}");
    assert!(left.contains("`part` is a view that a branch chooses"), "{left}");
    assert!(carried.contains("`part`"), "{carried}");
}

//! Lists of views: a kernel chooses one by a number, and its table is all that it reads of them.

use expect_test::expect;

use super::runs::{assembles, bytes, numbers, program_of};
use crate::Target;
use crate::differential::everywhere;
use crate::front::{Hints, ParamHint};
use crate::ir::{DType, InterpArg};
use crate::prelude::*;
use crate::runtime::{ArrayView, ArrayViewMut, AsParam, AsView, CheckedArg};

/// The sum of each row of a matrix, added to what is there.
#[device]
fn add_sums<T: Number, const M: usize, const N: usize>(x: Views<T, 2>, y: ViewsMut<T, 1>, i: i64) {
    let (from, to) = (x.at(i), y.at(i));
    let sums = sum(from.load::<M, N>([0, 0]), 1);
    to.store([0], to.load::<M>([0]) + sums);
}

/// Sums of the rows of every second matrix, from `first` on, past the end of the list.
#[kernel]
fn sums<T: Number, const M: usize, const N: usize>(
    first: i64,
    x: Views<T, 2>,
    y: ViewsMut<T, 1>,
    counts: ViewMut<i64, 1>,
) {
    for i in range(first, x.len() + 3, 2) {
        add_sums::<T, M, N>(x, y, i);
        counts.store([i], x.at(i).dim(1));
    }
}

const DTYPES: [DType; 1] = [DType::I32];
const CONSTS: [i64; 2] = [4, 8];

fn table(rows: &[i64], columns: i64) -> InterpArg {
    InterpArg::View {
        dtype: DType::I64,
        data: bytes(rows),
        offset: 0,
        dims: vec![rows.len() as i64 / columns, columns],
        strides: vec![columns, 1],
        writable: false,
    }
}

/// What the views of a list have in common, over the one buffer that all are parts of here.
fn common(data: &[i32], strides: &[i64], writable: bool) -> InterpArg {
    let (dtype, dims) = (DType::I32, vec![0; strides.len()]);
    InterpArg::View {
        dtype,
        data: bytes(data),
        offset: 0,
        dims,
        strides: strides.to_vec(),
        writable,
    }
}

fn arguments(first: i64) -> Vec<InterpArg> {
    let data: Vec<i32> = (0..40).collect();
    vec![
        super::runs::int(first),
        common(&data, &[0, 1], false),
        // Two rows of three; three rows of four that overlap; one of two.
        table(&[0, 2, 3, 3, 1, 10, 3, 4, 2, 1, 30, 1, 2, 0, 1], 5),
        common(&[100; 8], &[1], true),
        table(&[5, 2, 1, 0, 3, 1, 4, 1, 0], 3),
        InterpArg::View {
            dtype: DType::I64,
            data: bytes(&[-1_i64; 6]),
            offset: 0,
            dims: vec![6],
            strides: vec![1],
            writable: true,
        },
    ]
}

#[test]
fn every_machine_chooses_views() {
    assembles(&sums::KERNEL, &DTYPES, &CONSTS);
    let run = |first| {
        let memory = everywhere(program_of(&sums::KERNEL, &DTYPES, &CONSTS, arguments(first)));
        (numbers::<i32>(&memory[3]), numbers::<i64>(&memory[5]))
    };
    // Where there is no view there are no columns, and nothing is written.
    let even = vec![100, 100, 100, 100, 100 + 61, 100 + 3, 100 + 12, 100];
    assert_eq!(run(0), (even.clone(), vec![3, -1, 2, -1, 0, -1]));
    assert_eq!(run(-2), (even, vec![3, -1, 2, -1, 0, -1]));
    let odd = vec![100 + 46, 100 + 54, 100 + 62, 100, 100, 100, 100, 100];
    assert_eq!(run(1), (odd, vec![-1, 4, -1, 0, -1, 0]));
}

/// `y = x` of the first view of a list.
#[kernel]
fn first<const N: usize>(x: Views<f32, 2>, y: ViewMut<f32, 2>) {
    y.store([0, 0], x.at(0).load::<1, N>([0, 0]));
}

#[test]
fn what_a_launch_knows_of_all_holds_for_each() {
    let known = ParamHint {
        multiple_of: 16,
        unit_stride: true,
        stride_multiple_of: 8,
        narrow: true,
        ..ParamHint::default()
    };
    let hints = Hints { params: vec![known], ..Hints::default() };
    let tir = first::specialize(first::Consts { N: 64 }, &hints).unwrap().tir();
    expect![[r#"
        kernel first(%x.views: view<f32,2> readonly multiple_of 16 unit_stride stride_multiple_of 8 narrow, %x.table: view<i64,2> readonly, %y: view<f32,2> exclusive) {
          %0 = const 0 : i64
          %1 = const 0 : i64
          %2 = view_dim 0 %x.table : i64
          %3 = cmp ge %0, %1 : bool
          %4 = cmp lt %0, %2 : bool
          %5 = and %3, %4 : bool
          %6 = const 5 : i64
          %7 = view_ptr %x.table : *i64
          %8 = mul %0, %6 : i64
          %9 = ptr_add %7, %8 : *i64
          %10 = const 0 : i64
          %11 = ptr_add %9, %10 : *i64
          %12 = load %11, %5 : i64
          %13 = multiple_of 4 %12 : i64
          %14 = view_ptr %x.views : *f32
          %15 = ptr_add %14, %13 : *f32
          %16 = const 1 : i64
          %17 = ptr_add %9, %16 : *i64
          %18 = load %17, %5 : i64
          %19 = cast %18 : i32
          %20 = cast %19 : i64
          %21 = const 3 : i64
          %22 = ptr_add %9, %21 : *i64
          %23 = load %22, %5 : i64
          %24 = cast %23 : i32
          %25 = cast %24 : i64
          %26 = multiple_of 8 %25 : i64
          %27 = const 2 : i64
          %28 = ptr_add %9, %27 : *i64
          %29 = load %28, %5 : i64
          %30 = cast %29 : i32
          %31 = cast %30 : i64
          %32 = multiple_of 8 %31 : i64
          %33 = const 1 : i64
          %34 = make_view %15, %20, %32, %26, %33 : view<f32,2>
          %35 = const 0 : i64
          %36 = const 0 : i64
          %37 = view_load %34, %35, %36 : f32[1x64]
          %38 = const 0 : i64
          %39 = const 0 : i64
          view_store %y, %37, %38, %39
          return
        }
    "#]].assert_eq(&tir);
    let ptx = |hints: &Hints| {
        let kernel = first::specialize(first::Consts { N: 128 }, hints).unwrap();
        kernel.compile(&Target::sm_90a()).unwrap().ptx().unwrap().to_owned()
    };
    let is_wide = |line: &str| line.contains("ld.global") && line.contains(".v4.b32");
    let is_wide = |ptx: &str| ptx.lines().any(is_wide);
    assert!(is_wide(&ptx(&hints)) && !is_wide(&ptx(&Hints::default())));
}

/// `c[g] = a[g] b[g]` of one tile each.
#[kernel]
fn products<const M: usize, const K: usize>(
    a: Views<bf16, 2>,
    b: Views<bf16, 2>,
    c: ViewsMut<f32, 2>,
) {
    let g = program_id(0);
    let (a, b, c) = (a.at(g), b.at(g), c.at(g));
    let mut acc = zeros::<f32, M, M>();
    for k in range(0, a.dim(1), K) {
        acc = dot(a.load::<M, K>([0, k]), b.load::<K, M>([k, 0]), acc);
    }
    c.store([0, 0], acc);
}

#[test]
fn products_of_views_run_ahead_on_tensor_cores() {
    let hints = Hints::contiguous(&products::AST);
    let kernel = products::specialize(products::Consts { M: 128, K: 64 }, &hints).unwrap();
    for target in [Target::sm_80(), Target::sm_90a()] {
        let compiled = kernel.compile(&target).unwrap();
        let ptx = compiled.ptx().unwrap();
        let count = |what: &str| ptx.lines().filter(|line| line.contains(what)).count();
        assert!(count("mma.sync") > 0 && count("cp.async.cg") > 0, "{ptx}");
        // None of fewer than 16 bytes.
        assert_eq!(count("cp.async.ca"), 0, "{ptx}");
    }
}

/// Each program doubles a matrix, of any extents.
#[kernel]
fn double<T: Number, const M: usize, const N: usize>(x: Views<T, 2>, y: ViewsMut<T, 2>) {
    let (x, y) = (x.at(program_id(0)), y.at(program_id(0)));
    for i in range(0, x.dim(0), M) {
        for j in range(0, x.dim(1), N) {
            let v = x.load::<M, N>([i, j]);
            y.store([i, j], v + v);
        }
    }
}

#[test]
fn a_launch_takes_lists_of_views() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let (x, z) = (stream.upload(&[1_i32, 2, 3, 4, 5, 6])?, stream.upload(&[7_i32, 8])?);
    let (mut y, mut w) = (Array::<i32>::zeros(&stream, 6)?, Array::<i32>::zeros(&stream, 2)?);
    let consts = double::Consts { M: 2, N: 2 };
    {
        let from = [x.strided(5, [2, 3], [-3, -1])?, z.view([1, 2])?];
        let from = stream.views(&from)?;
        let mut to = [y.view_mut([2, 3])?, w.view_mut([1, 2])?];
        let mut to = stream.views_mut(&mut to)?;
        assert_eq!((from.len(), to.is_empty()), (2, false));
        // A program too many has nothing to do; a list may be given to many launches.
        double::launch(&stream, Grid::x(3), consts, (&from, &mut to))?;
        double::launch(&stream, Grid::x(2), consts, (from, to))?;
    }
    assert_eq!(y.to_vec()?, [12, 10, 8, 6, 4, 2]);
    assert_eq!(w.to_vec()?, [14, 16]);
    let none: [ArrayView<'_, i32, 2>; 0] = [];
    let mut nowhere: [ArrayViewMut<'_, i32, 2>; 0] = [];
    let lists = (stream.views(&none)?, stream.views_mut(&mut nowhere)?);
    double::launch(&stream, Grid::x(2), consts, lists)
}

#[test]
fn a_list_goes_with_its_own_table() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let (x, mut y) = (stream.upload(&[1_i32; 4])?, Array::<i32>::zeros(&stream, 4)?);
    let from = [x.view([2, 2])?];
    let mut to = [y.view_mut([2, 2])?];
    let (from, to) = (stream.views(&from)?, stream.views_mut(&mut to)?);
    let (forged, mut args) = (stream.upload(&[1_i64 << 40, 2, 2, 2, 1])?, Vec::new());
    AsParam::<Views<i32, 2>>::add_to(&from, &mut args);
    AsParam::<ViewsMut<i32, 2>>::add_to(&to, &mut args);
    let launch = |args: &[CheckedArg<'_>]| {
        let (dtypes, consts) = (&[DType::I32], &[2, 2]);
        double::KERNEL.launch_checked_list(&stream, Grid::x(1), dtypes, consts, args)
    };
    launch(&args)?;
    let refused = |args: &[CheckedArg<'_>]| {
        let error = launch(args).unwrap_err().to_string();
        assert_eq!(error, "double: a list of views is without its own table");
    };
    let forged = forged.view([1, 5])?;
    refused(&[args[0], AsView::<i64, 2>::as_arg(&forged), args[2], args[3]]);
    refused(&[args[0], args[3], args[2], args[1]]);
    refused(&args[..3]);
    Ok(())
}

/// What has the fields of a list, and a method that a list has.
#[derive(Clone, Copy, KernelParam)]
struct Forged {
    views: View<f32, 1>,
    table: View<i64, 2>,
}

impl Forged {
    fn at(self, _index: i64) -> View<f32, 1> {
        self.views
    }
}

#[kernel]
fn through_forged(x: Forged, y: ViewMut<f32, 1>) {
    y.store([0], x.at(0).load::<4>([0]));
}

#[test]
fn what_is_like_a_list_is_none() {
    let error = through_forged::specialize(through_forged::Consts {}, &Hints::default());
    let message = "`at` is a method of lists of views, this is a struct of 2";
    assert!(error.unwrap_err().to_string().contains(message));
}

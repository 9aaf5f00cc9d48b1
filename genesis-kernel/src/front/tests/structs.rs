//! Structs as parameters: each field is a parameter of its own, and the body knows the struct.

use expect_test::expect;

use super::runs::{assembles, bytes, numbers, program_of, view};
use crate::autotune::Problem;
use crate::differential::everywhere;
use crate::front::{Hints, LaunchOptions};
use crate::ir::{DType, InterpArg, Scalar, parse, print};
use crate::prelude::*;
use crate::runtime::{AsParam, AsView, AsViewMut};

/// What is read and how it is scaled.
#[derive(Clone, Copy, KernelParam)]
struct Source<T: Float, U: Int> {
    x: View<T, 2>,
    scale: f32,
    /// Where it starts.
    offset: U,
    bias: View<T::Acc, 1>,
}

#[derive(Clone, Copy, KernelParam)]
struct Counts {
    written: PtrMut<i32>,
    n: i64,
}

/// A row of a source, scaled, with the bias.
#[device]
fn row<const N: usize, T: Float>(from: Source<T, i32>, i: i64) -> Tile1<f32, N> {
    let at = from.offset.to::<i64>();
    from.x.load::<1, N>([i, at]).squeeze(0).to::<f32>() * from.scale
        + from.bias.load::<N>([at]).to::<f32>()
}

#[kernel]
unsafe fn rows<V: Float, const N: usize>(
    y: ViewMut<f32, 2>,
    p: Source<V, i32>,
    (q, twice): (Source<bf16, i32>, bool),
    counts: Counts,
    n: i64,
) {
    device_assert!(p.x.dim(0) == y.dim(0), "a row for each row");
    for i in range(0, n) {
        let first = p;
        let mut v = row::<N, V>(first, i);
        if twice {
            v += row::<N, bf16>(q, i) * first.scale;
        }
        y.store([i, 0], v.row());
        store(counts.written + i, (counts.n + i).to::<i32>());
    }
}

const BF16_ONES: [u16; 6] = [0x3f80; 6];

fn arguments(twice: bool) -> Vec<InterpArg> {
    let scalar = |dtype, value| InterpArg::Scalar(Scalar::float(dtype, value));
    let int = |dtype, value| InterpArg::Scalar(Scalar::int(dtype, value));
    let bf16s = InterpArg::View {
        dtype: DType::BF16,
        data: bytes(&BF16_ONES),
        offset: 0,
        dims: vec![2, 3],
        strides: vec![3, 1],
        writable: false,
    };
    vec![
        view(&[0.0; 4], &[2, 2], true),
        view(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], false),
        scalar(DType::F32, 10.0),
        int(DType::I32, 1),
        view(&[0.5, 0.25, 0.125], &[3], false),
        bf16s,
        scalar(DType::F32, 100.0),
        int(DType::I32, 0),
        view(&[7.0, 8.0, 9.0], &[3], false),
        int(DType::Bool, i64::from(twice)),
        InterpArg::BufferMut(DType::I32, vec![0; 8]),
        int(DType::I64, 40),
        int(DType::I64, 2),
    ]
}

#[test]
fn every_machine_reads_fields() {
    assembles(&rows::KERNEL, &[DType::F32], &[2]);
    let of = |twice| everywhere(program_of(&rows::KERNEL, &[DType::F32], &[2], arguments(twice)));
    let once = of(false);
    assert_eq!(numbers::<f32>(&once[0]), [20.25, 30.125, 50.25, 60.125]);
    assert_eq!(numbers::<i32>(&once[10]), [40, 41]);
    assert_eq!(numbers::<f32>(&of(true)[0]), [1090.25, 1110.125, 1120.25, 1140.125]);
}

#[test]
fn fields_are_parameters_by_name() {
    let names: Vec<String> = rows::AST
        .params
        .iter()
        .map(|param| format!("{:?} {:?}", param.pattern, param.ty))
        .collect();
    expect![[r#"
        Name("y") View { dtype: Fixed(F32), rank: 2, mutable: true }
        Name("p.x") View { dtype: Param("V"), rank: 2, mutable: false }
        Name("p.scale") Scalar(Fixed(F32))
        Name("p.offset") Scalar(Fixed(I32))
        Name("p.bias") View { dtype: Sum("V"), rank: 1, mutable: false }
        Name("q.x") View { dtype: Fixed(BF16), rank: 2, mutable: false }
        Name("q.scale") Scalar(Fixed(F32))
        Name("q.offset") Scalar(Fixed(I32))
        Name("q.bias") View { dtype: Fixed(F32), rank: 1, mutable: false }
        Name("twice") Scalar(Fixed(Bool))
        Name("counts.written") Ptr { dtype: Fixed(I32), mutable: true }
        Name("counts.n") Scalar(Fixed(I64))
        Name("n") Scalar(Fixed(I64))"#]]
    .assert_eq(&names.join("\n"));
    let func = rows::specialize::<f32>(rows::Consts { N: 2 }, &Hints::default()).unwrap().tir();
    assert!(func.contains("%p.bias"), "{func}");
    assert_eq!(print(&parse(&func).unwrap()), func);
    assert!(rows::KERNEL.is_unchecked());
}

/// A kernel of views only, whose launch is safe, and that is tuned.
#[derive(KernelParam)]
struct Line<T: Number> {
    x: View<T, 1>,
    y: ViewMut<T, 1>,
    by: T,
}

#[autotune(
    key = { n: line.y.dim(0), more: more },
    space = { BLOCK: [16, 32] },
    grid = |t| Grid::x(line.x.dim(0).max(n).div_ceil(t.BLOCK)),
    heuristic = large,
)]
#[kernel]
fn scale<T: Number, const BLOCK: usize>(start: i64, line: Line<T>, more: i64) {
    let i = program_id(0) * BLOCK + start;
    let v = line.x.load::<BLOCK>([i]);
    if more > 0 {
        line.y.store([i], v * line.by);
    }
}

fn large(problem: &Problem<'_>) -> (scale::Consts, LaunchOptions) {
    assert_eq!(problem.sizes, [40, 3]);
    (scale::Consts { BLOCK: 32 }, LaunchOptions::default())
}

fn line<'a>(
    x: &'a Array<i32>,
    y: &'a mut Array<i32>,
) -> LineArg<impl AsView<i32, 1>, impl AsViewMut<i32, 1>, i32> {
    LineArg { x: x.view([40]).unwrap(), y: y.view_mut([40]).unwrap(), by: 3 }
}

#[test]
fn a_launch_takes_the_struct_of_arguments() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&(0..40).collect::<Vec<i32>>())?;
    let mut y = Array::<i32>::zeros(&stream, 40)?;
    let consts = scale::Consts { BLOCK: 16 };
    scale::launch(&stream, Grid::x(2), consts, (8, line(&x, &mut y), 1))?;
    assert_eq!((y.to_vec()?[7], y.to_vec()?[8], y.to_vec()?[39]), (0, 24, 117));
    scale::tuned(&stream, (0, line(&x, &mut y), 3))?;
    assert_eq!((y.to_vec()?[7], y.to_vec()?[39]), (21, 117));
    let (mut args, options) =
        (vec![], LaunchOptions { num_warps: Some(2), ..LaunchOptions::default() });
    let mut z = Array::<i32>::zeros(&stream, 40)?;
    {
        let line = line(&x, &mut z);
        args.push(crate::runtime::CheckedArg::scalar(Scalar::int(DType::I64, 0)).arg());
        args.extend(line.args());
        args.push(crate::runtime::CheckedArg::scalar(Scalar::int(DType::I64, 1)).arg());
        // SAFETY: the arguments are those of a safe launch, whose arrays outlive it.
        unsafe {
            scale::KERNEL.launch_with(&stream, Grid::x(3), &[DType::I32], &[16], options, &args)?
        };
    }
    assert_eq!(z.to_vec()?, y.to_vec()?);
    Ok(())
}

#[test]
fn messages_name_the_field() {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1_i32; 40]).unwrap();
    // SAFETY: it is refused before anything runs.
    let error = unsafe {
        let args = [&x, &x].map(|x| AsView::<i32, 1>::as_arg(&x).arg());
        let scalar = crate::runtime::CheckedArg::scalar(Scalar::int(DType::I64, 0)).arg();
        let by = crate::runtime::CheckedArg::scalar(Scalar::int(DType::I32, 0)).arg();
        scale::KERNEL.launch(
            &stream,
            Grid::x(1),
            &[DType::I32],
            &[16],
            &[scalar, args[0], args[1], by, scalar],
        )
    };
    assert_eq!(
        error.unwrap_err().to_string(),
        "scale: argument `line.y` is read-only, the kernel writes to it"
    );
}

#[test]
fn a_constraint_of_fields_is_checked_by_the_launch() {
    let stream = Device::Cpu.stream();
    let ones = |n| stream.upload(&vec![1.0_f32; n]).unwrap();
    let (x, bias) = (ones(6), ones(3));
    let of_bf16 = stream.upload(&[bf16::ONE; 6]).unwrap();
    let (mut y, mut written) = (ones(6), Array::<i32>::zeros(&stream, 3).unwrap());
    let p = SourceArg {
        x: x.view([2, 3]).unwrap(),
        scale: 1.0,
        offset: 0,
        bias: bias.view([3]).unwrap(),
    };
    let q = SourceArg {
        x: of_bf16.view([2, 3]).unwrap(),
        scale: 1.0,
        offset: 0,
        bias: bias.view([3]).unwrap(),
    };
    let counts = CountsArg { written: &mut written, n: 3_usize };
    let args = (y.view_mut([3, 2]).unwrap(), p, (q, true), counts, 2);
    // SAFETY: it is refused before anything runs.
    let error = unsafe { rows::launch::<f32>(&stream, Grid::x(1), rows::Consts { N: 2 }, args) };
    assert_eq!(
        error.unwrap_err().to_string(),
        "rows: `p.x` is [2, 3] and `y` is [3, 2]; the kernel ties p.x.dim(0) to y.dim(0)"
    );
}

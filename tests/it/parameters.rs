//! What kernels may take and make, launched on every device: optional parameters, tuples, structs, views that kernels make, and
//! atomics that say what they order.

use genesis::Device;
use genesis_kernel::Error;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::Stream;

type Result<T = ()> = std::result::Result<T, Error>;

/// The CPU, and a GPU where one is.
fn streams() -> Vec<Stream> {
    crate::gpu::devices("parameters of kernels").into_iter().map(Device::stream).collect()
}

/// `scale * x + bias` of a row of numbers, to `y` and where it is asked for to `squares` squared.
#[kernel]
fn affine<const N: usize>(
    (x, y): (View<f32, 1>, ViewMut<f32, 1>),
    bias: Option<View<f32, 1>>,
    scale: Option<f32>,
    squares: Option<ViewMut<f32, 1>>,
) {
    let i = program_id(0) * N;
    let mut v = x.load::<N>([i]);
    if let Some(scale) = scale {
        v *= scale;
    }
    if let Some(bias) = bias {
        v += bias.load::<N>([i]);
    }
    if let Some(squares) = squares {
        squares.store([i], v * v);
    }
    y.store([i], v);
}

#[test]
fn optional_parameters_are_given_or_absent() -> Result {
    for stream in streams() {
        let x: Vec<f32> = (0..100).map(|n| n as f32).collect();
        let (x, bias) = (stream.upload(&x)?, stream.upload(&[0.5_f32; 100])?);
        let (mut y, mut squares) =
            (Array::<f32>::zeros(&stream, 100)?, Array::<f32>::zeros(&stream, 100)?);
        let (grid, consts) = (Grid::x(4), affine::Consts { N: 32 });
        let args = ((x.view([100])?, y.view_mut([100])?), Absent, Absent, Absent);
        affine::launch(&stream, grid, consts, args)?;
        assert_eq!(y.to_vec()?[99], 99.0);
        let all = (Some(bias.view([100])?), Some(2.0), Some(squares.view_mut([100])?));
        let args = ((x.view([100])?, y.view_mut([100])?), all.0, all.1, all.2);
        affine::launch(&stream, grid, consts, args)?;
        assert_eq!((y.to_vec()?[99], squares.to_vec()?[99]), (198.5, 198.5 * 198.5));
    }
    Ok(())
}

/// The operands of a matrix product and what it is scaled by.
#[derive(Clone, Copy, KernelParam)]
struct Product<T: Float> {
    /// `[M, K]`
    a: View<T, 2>,
    /// `[K, N]`
    b: View<T, 2>,
    /// `[M, N]`
    c: ViewMut<f32, 2>,
    /// What the product is scaled by.
    scale: f32,
}

#[kernel]
fn product<T: Float, const B: usize>(p: Product<T>, bias: Option<f32>) {
    device_assert!(p.a.dim(1) == p.b.dim(0), "the inner extents");
    let (i, j) = (program_id(0) * B, program_id(1) * B);
    let mut acc = zeros::<f32, B, B>();
    for k in range(0, p.a.dim(1), B) {
        acc = dot(p.a.load::<B, B>([i, k]), p.b.load::<B, B>([k, j]), acc);
    }
    let mut c = acc * p.scale;
    if let Some(bias) = bias {
        c += bias;
    }
    p.c.store([i, j], c);
}

fn check_product<T: Float>(stream: &Stream, of: impl Fn(f32) -> T) -> Result {
    let (m, n, k) = (20, 33, 40);
    let line =
        |n: usize, by: usize| -> Vec<f32> { (0..n).map(|i| (i * by % 5) as f32 - 2.0).collect() };
    let (a, b) = (line(m * k, 3), line(k * n, 7));
    let expected: Vec<f32> = (0..m * n)
        .map(|at| (0..k).map(|x| a[at / n * k + x] * b[x * n + at % n]).sum::<f32>() * 0.5 + 1.0)
        .collect();
    let upload = |line: &[f32]| stream.upload(&line.iter().map(|&v| of(v)).collect::<Vec<T>>());
    let (a, b) = (upload(&a)?, upload(&b)?);
    let mut c = Array::<f32>::zeros(stream, m * n)?;
    let p =
        ProductArg { a: a.view([m, k])?, b: b.view([k, n])?, c: c.view_mut([m, n])?, scale: 0.5 };
    let consts = product::Consts { B: 16 };
    product::launch::<T>(stream, Grid::xy(2, 3), consts, (p, Some(1.0)))?;
    assert_eq!(c.to_vec()?, expected);
    let wrong =
        ProductArg { a: a.view([m, k])?, b: b.view([n, k])?, c: c.view_mut([m, n])?, scale: 0.5 };
    let error = product::launch::<T>(stream, Grid::xy(2, 3), consts, (wrong, Absent)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "product: `p.a` is [20, 40] and `p.b` is [33, 40]; the kernel ties p.a.dim(1) to p.b.dim(0)"
    );
    Ok(())
}

#[test]
fn structs_are_given_by_their_fields() -> Result {
    for stream in streams() {
        check_product::<f32>(&stream, |v| v)?;
        check_product::<bf16>(&stream, bf16::from_f32)?;
    }
    Ok(())
}

/// Each program writes the positive half of the columns of its rows of `x`, doubled, and counts itself. The last one leaves
/// how many numbers were written by all.
#[kernel]
fn halves(
    x: View<f32, 2>,
    y: ViewMut<f32, 2>,
    (written, done): (PtrMut<i64>, PtrMut<i32>),
    all: PtrMut<i64>,
) {
    let own = program_id(0);
    let (from, to) = (x.subview([own * 4, 16], [4, 16]), y.subview([own * 4, 0], [4, 16]));
    let v = from.load::<4, 16>([0, 0]);
    to.store([0, 0], v * 2.0, v > 0.0);
    let inside = (arange::<4>().col() < from.dim(0)) & (arange::<16>().row() < from.dim(1));
    store(written + own, sum(sum(((v > 0.0) & inside).to::<i64>(), 1), 0));
    if atomic_add::<Release>(done, 1) == num_programs(0).to::<i32>() - 1 {
        atomic_add::<Acquire, System>(done, 0);
        let each = view_of(written, [num_programs(0)], [1]);
        store(all, sum(each.load::<8>([0]), 0));
    }
}

#[test]
fn parts_of_views_and_orders_of_atomics() -> Result {
    for stream in streams() {
        let x: Vec<f32> = (0..10 * 30).map(|n| (n % 7) as f32 - 3.0).collect();
        let expected: Vec<f32> = (0..10 * 16)
            .map(|n| match (n / 16 * 30 + n % 16 + 16, n % 16) {
                (at, ..14) => (x[at] * 2.0).max(0.0),
                _ => 0.0,
            })
            .collect();
        let x = stream.upload(&x)?;
        let (mut y, mut written) =
            (Array::<f32>::zeros(&stream, 160)?, Array::<i64>::zeros(&stream, 3)?);
        let (mut done, mut all) =
            (Array::<i32>::zeros(&stream, 1)?, Array::<i64>::zeros(&stream, 1)?);
        let args = (x.view([10, 30])?, y.view_mut([10, 16])?, (&mut written, &mut done), &mut all);
        // SAFETY: each of the three programs has an element of `written`.
        unsafe { halves::launch(&stream, Grid::x(3), halves::Consts {}, args)? };
        assert_eq!(y.to_vec()?, expected);
        let count = expected.iter().filter(|&&v| v > 0.0).count();
        assert_eq!(all.to_vec()?, [count as i64]);
    }
    Ok(())
}

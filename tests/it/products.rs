//! Products of integers of 8 bits and of f64 on every device: the framework's, of odd extents and in every layout,
//! and those of the language, with operands from memory and from registers. And by which instructions.

use genesis::{DType, Device, Tensor};
use genesis_kernel::kernel::{Grid, Hints, KernelDef};
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Arg, AsView, AsViewMut, HostElement};
use genesis_kernel::target::Target;

/// `c = a b + (a ^ 1) b`, the second product's left operand made in registers.
#[kernel]
fn of_bytes<T: Int8, const M: usize, const N: usize, const K: usize>(
    a: View<T, 2>,
    b: View<T, 2>,
    c: ViewMut<i32, 2>,
) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let mut acc = zeros::<i32, M, N>();
    for p in range(0, a.dim(1), K) {
        let (u, v) = (a.load::<M, K>([i, p]), b.load::<K, N>([p, j]));
        let inside = (p + arange::<K>()).row() < a.dim(1);
        acc = dot(u, v, acc) + dot(where_(inside, u ^ T::ONE, T::ZERO), v);
    }
    c.store([i, j], acc);
}

/// `c = a b`, in tiles.
#[kernel]
fn of_doubles<const M: usize, const N: usize, const K: usize>(
    a: View<f64, 2>,
    b: View<f64, 2>,
    c: ViewMut<f64, 2>,
) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let mut acc = zeros::<f64, M, N>();
    for p in range(0, a.dim(1), K) {
        acc = dot(a.load::<M, K>([i, p]), b.load::<K, N>([p, j]), acc);
    }
    c.store([i, j], acc);
}

/// Whole numbers from -128 to 127, or from 0 to 255, the same in every run.
fn bytes(dtype: DType, shape: &[usize], seed: usize, on: Device) -> genesis::Result<Tensor> {
    let least = if dtype == DType::I8 { 128 } else { 0 };
    let n: usize = shape.iter().product();
    let values: Vec<i64> =
        (0..n).map(|i| ((i * 2_654_435 + seed * 97) >> 5) as i64 % 256 - least).collect();
    Tensor::from_slice_on(&values, shape, on)?.to_dtype(dtype)
}

/// `t` as it is, or as a view of its transpose's copy.
fn laid_out(t: &Tensor, turned: bool) -> genesis::Result<Tensor> {
    if turned { t.t()?.copy()?.t() } else { t.copy() }
}

const LAYOUTS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// Extents `[m, k, n]`: whole tiles, odd ones, rows that begin anywhere, one row, one column.
const SIZES: [[usize; 3]; 6] =
    [[64, 128, 64], [67, 131, 130], [128, 48, 33], [1, 300, 70], [70, 300, 1], [5, 7, 3]];

#[test]
fn integers_in_every_layout() -> genesis::Result<()> {
    for on in crate::gpu::devices("products of bytes") {
        for (dtype, [m, k, n]) in
            [DType::I8, DType::U8].into_iter().flat_map(|dtype| SIZES.map(|size| (dtype, size)))
        {
            let (a, b) = (bytes(dtype, &[m, k], 1, on)?, bytes(dtype, &[k, n], 2, on)?);
            let [x, y] = [&a, &b].map(|t| t.to_dtype(DType::I64)?.to_vec::<i64>());
            let (x, y) = (x?, y?);
            let at = |i: usize| (0..k).map(|p| x[i / n * k + p] * y[p * n + i % n]).sum::<i64>();
            let want: Vec<i64> = (0..m * n).map(at).collect();
            for [turn_a, turn_b] in LAYOUTS {
                let (a, b) = (laid_out(&a, turn_a)?, laid_out(&b, turn_b)?);
                let what = format!("{dtype} {m} {k} {n} {turn_a} {turn_b} on {on}");
                let c = a.int_mm(&b)?;
                assert_eq!((c.dtype(), c.shape()), (DType::I32, &[m, n][..]), "{what}");
                assert_eq!(c.to_dtype(DType::I64)?.to_vec::<i64>()?, want, "{what}");
                let low = |&sum: &i64| {
                    if dtype == DType::I8 { i64::from(sum as i8) } else { i64::from(sum as u8) }
                };
                let c = a.matmul(&b)?.to_dtype(DType::I64)?.to_vec::<i64>()?;
                assert_eq!(c, want.iter().map(low).collect::<Vec<i64>>(), "{what}");
            }
        }
    }
    Ok(())
}

/// Rows of a larger matrix, from an element on that no vector begins at; and a batch.
#[test]
fn integers_in_parts_of_tensors() -> genesis::Result<()> {
    for on in crate::gpu::devices("products of bytes") {
        let all = bytes(DType::I8, &[2, 70, 203], 3, on)?;
        let a = all.narrow(2, 3, 160)?;
        let b = all.narrow(1, 1, 65)?.narrow(2, 7, 160)?.t()?;
        let c = a.matmul(&b)?;
        let [x, y] = [&a, &b].map(|t| t.to_dtype(DType::F64)?.copy());
        let want = x?.matmul(&y?)?.to_f64_vec()?;
        let want: Vec<i8> = want.iter().map(|&sum| sum as i64 as i8).collect();
        assert_eq!((c.shape(), c.to_vec::<i8>()?), (&[2, 70, 65][..], want), "{on}");
    }
    Ok(())
}

#[test]
fn doubles_in_every_layout() -> genesis::Result<()> {
    for on in crate::gpu::devices("products of f64") {
        for [m, k, n] in SIZES {
            let number = |i: usize| ((i * 2_654_435) % 100_003) as f64 / 50_001.5 - 1.0;
            let made = |rows: usize, columns: usize, seed: usize| {
                let values: Vec<f64> = (0..rows * columns).map(|i| number(i + seed)).collect();
                Tensor::from_slice_on(&values, &[rows, columns], on)
            };
            let (a, b) = (made(m, k, 0)?, made(k, n, 1000)?);
            let (x, y) = (a.to_vec::<f64>()?, b.to_vec::<f64>()?);
            for [turn_a, turn_b] in LAYOUTS {
                let c = laid_out(&a, turn_a)?.matmul(&laid_out(&b, turn_b)?)?.to_vec::<f64>()?;
                for (i, &got) in c.iter().enumerate() {
                    let want: f64 = (0..k).map(|p| x[i / n * k + p] * y[p * n + i % n]).sum();
                    let error = (got - want).abs();
                    let allowed = 4.0 * f64::EPSILON * k as f64;
                    assert!(error < allowed, "{m} {k} {n} {turn_a} {turn_b} on {on}: {error}");
                }
            }
        }
    }
    Ok(())
}

type Result<T = ()> = std::result::Result<T, genesis_kernel::Error>;

/// What a kernel of tiles of 32 by 32 by 32 makes of two matrices, and the matrices as i64.
fn product<T: HostElement, O: HostElement>(
    kernel: &KernelDef,
    dtypes: &[DType],
    stream: &Stream,
    [m, k, n]: [usize; 3],
    of: impl Fn(i64) -> T,
) -> Result<(Vec<O>, [Vec<i64>; 2])> {
    let draw = |n: usize, by: i64| (0..n as i64).map(|i| i * by % 19 - 9).collect::<Vec<i64>>();
    let numbers = [draw(m * k, 7), draw(k * n, 11)];
    let [a, b] =
        numbers.clone().map(|all| stream.upload(&all.into_iter().map(&of).collect::<Vec<T>>()));
    let (a, b) = (a?, b?);
    let mut c = Array::<O>::zeros(stream, m * n)?;
    let args: [Arg; 3] = [
        AsView::<T, 2>::as_arg(&a.view([m, k])?).arg(),
        AsView::<T, 2>::as_arg(&b.view([k, n])?).arg(),
        AsViewMut::<O, 2>::as_arg(&c.view_mut([m, n])?).arg(),
    ];
    let grid = Grid::xy(m.div_ceil(32), n.div_ceil(32));
    // SAFETY: the views are over arrays that live, and only `c` is written.
    unsafe { kernel.launch(stream, grid, dtypes, &[32; 3], &args)? };
    Ok((c.to_vec()?, numbers))
}

#[test]
fn tiles_of_the_language() -> Result {
    let size = [70, 83, 45];
    let [m, k, n] = size;
    let sums = |[x, y]: &[Vec<i64>; 2], term: &dyn Fn(i64, i64) -> i64| -> Vec<i64> {
        let at = |i: usize| (0..k).map(|p| term(x[i / n * k + p], y[p * n + i % n])).sum();
        (0..m * n).map(at).collect()
    };
    for device in crate::gpu::devices("tiles of bytes and of f64") {
        let stream = device.stream();
        let (c, numbers) =
            product::<i8, i32>(&of_bytes::KERNEL, &[DType::I8], &stream, size, |n| n as i8)?;
        let want = sums(&numbers, &|a, b| a * b + i64::from(a as i8 ^ 1) * b);
        assert_eq!(c.iter().map(|&n| i64::from(n)).collect::<Vec<_>>(), want, "i8 on {device}");
        let (c, numbers) =
            product::<u8, i32>(&of_bytes::KERNEL, &[DType::U8], &stream, size, |n| n as u8)?;
        let byte = |n: i64| i64::from(n as u8);
        let want = sums(&numbers, &|a, b| (byte(a) + byte(a ^ 1)) * byte(b));
        assert_eq!(c.iter().map(|&n| i64::from(n)).collect::<Vec<_>>(), want, "u8 on {device}");
        let (c, numbers) =
            product::<f64, f64>(&of_doubles::KERNEL, &[], &stream, size, |n| n as f64)?;
        let want = sums(&numbers, &|a, b| a * b);
        assert_eq!(c.iter().map(|&n| n as i64).collect::<Vec<_>>(), want, "f64 on {device}");
    }
    Ok(())
}

/// How often the code of a kernel has these.
fn counts(kernel: &KernelDef, dtypes: &[DType], target: &Target, what: &[&str]) -> Vec<usize> {
    let hints = Hints { num_warps: Some(4), ..Hints::contiguous(kernel.ast) };
    let special = kernel.specialize(dtypes, &[64, 64, 32], &hints).expect("the kernel takes these");
    let compiled = special.compile(target).expect("it compiles");
    let ptx = compiled.ptx().expect("it is for a GPU");
    what.iter().map(|what| ptx.matches(what).count()).collect()
}

#[test]
fn every_gpu_multiplies_by_tensor_cores() {
    let doubles = [
        "mma.sync.aligned.m8n8k4.row.col.f64",
        "mma.sync.aligned.m16n8k8.row.col.f64",
        "fma.rn.f64",
    ];
    // 64 x 64 x 32 of four warps, in steps of 16 x 8 x 8, each of which is four of the smaller ones.
    for (target, want) in [(Target::sm_80(), [4 * 32, 0, 0]), (Target::sm_90a(), [0, 32, 0])] {
        assert_eq!(counts(&of_doubles::KERNEL, &[], &target, &doubles), want, "{target}");
        for dtype in [DType::I8, DType::U8] {
            let letter = if dtype == DType::I8 { 's' } else { 'u' };
            let name = format!("mma.sync.aligned.m16n8k32.row.col.s32.{letter}8.{letter}8.s32");
            let found = counts(&of_bytes::KERNEL, &[dtype], &target, &[&name, "mma"]);
            assert_eq!(found, [16, 16], "{target} {dtype}");
        }
    }
}

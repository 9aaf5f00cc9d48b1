//! The framework's matrix product on every device, in every combination of layouts, against f64.

use genesis::{DType, Device, Tensor};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Array, AsView, AsViewMut, Stream};
use half::bf16;

use crate::gpu::gpu;

type Result<T = ()> = std::result::Result<T, genesis_kernel::Error>;

/// What is multiplied.
#[derive(Clone, Copy, Debug)]
struct Product {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    /// Whether A and B are views of matrices that lie transposed.
    transposed: [bool; 2],
    /// Whether all batches multiply by one B.
    shared: bool,
}

/// Extents of a program's tile, and its warps.
type Tile = ([i64; 3], Option<u32>);

/// Numbers from -1 to 1 that a bf16 holds, the same in every run.
pub(crate) fn draw(n: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bf16::from_f32((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..n).map(|_| next()).collect()
}

impl Product {
    /// Strides of a matrix of a batch of them, `[rows, columns]`.
    fn strides(&self, [rows, columns]: [usize; 2], transposed: bool) -> [i64; 3] {
        let (rows, columns) = (rows as i64, columns as i64);
        if transposed { [rows * columns, 1, rows] } else { [rows * columns, columns, 1] }
    }

    fn expected(&self, a: &[bf16], b: &[bf16]) -> Vec<f64> {
        let Product { batch, m, n, k, transposed: [ta, tb], shared } = *self;
        let dense = |x: &[bf16], [rows, columns]: [usize; 2], transposed: bool| -> Vec<f64> {
            let [_, down, across] = self.strides([rows, columns], transposed);
            let at = |i: usize| i / columns * down as usize + i % columns * across as usize;
            (0..rows * columns).map(|i| x[at(i)].to_f64()).collect()
        };
        let mut out = Vec::with_capacity(batch * m * n);
        for i in 0..batch {
            let at = if shared { 0 } else { i * k * n };
            let (a, b) = (&a[i * m * k..][..m * k], &b[at..][..k * n]);
            let (a, b) = (dense(a, [m, k], ta), dense(b, [k, n], tb));
            for row in a.chunks(k) {
                let mut sums = vec![0.0; n];
                for (x, line) in row.iter().zip(b.chunks(n)) {
                    sums.iter_mut().zip(line).for_each(|(sum, y)| *sum += x * y);
                }
                out.extend(sums);
            }
        }
        out
    }

    fn check(&self, stream: &Stream, tiles: &[Tile]) -> Result {
        self.check_in_clusters(stream, tiles, None)
    }

    fn check_in_clusters(&self, stream: &Stream, tiles: &[Tile], cluster: Option<u32>) -> Result {
        let Product { batch, m, n, k, transposed: [ta, tb], shared } = *self;
        let (x, y) = (draw(batch * m * k, 1), draw(batch * k * n, 2));
        let expected = self.expected(&x, &y);
        let (a, b) = (stream.upload(&x)?, stream.upload(&y)?);
        for &(tile, num_warps) in tiles {
            let mut c = Array::<bf16>::zeros(stream, batch * m * n)?;
            let a = a.strided(0, [batch, m, k], self.strides([m, k], ta))?;
            let [between, down, across] = self.strides([k, n], tb);
            let between = if shared { 0 } else { between };
            let b = b.strided(0, [batch, k, n], [between, down, across])?;
            let args: [Arg; 3] = [
                AsView::<bf16, 3>::as_arg(&a).arg(),
                AsView::<bf16, 3>::as_arg(&b).arg(),
                AsViewMut::<bf16, 3>::as_arg(&c.view_mut([batch, m, n])?).arg(),
            ];
            let programs = batch * m.div_ceil(tile[0] as usize) * n.div_ceil(tile[1] as usize);
            let options = LaunchOptions { num_warps, cluster, ..LaunchOptions::default() };
            for programs in [programs, programs.div_ceil(3)] {
                let (kernel, dtypes) =
                    (&kernels::matmul::matmul::KERNEL, [DType::BF16, DType::F32]);
                let grid = Grid::x(programs);
                // SAFETY: the views are over arrays that live, and only `c` is written.
                unsafe { kernel.launch_with(stream, grid, &dtypes, &tile, options, &args)? };
            }
            self.compare(&c.to_vec()?, &expected, tile);
        }
        Ok(())
    }

    fn compare(&self, got: &[bf16], expected: &[f64], tile: [i64; 3]) {
        assert_eq!(got.len(), expected.len());
        for (index, (got, want)) in got.iter().zip(expected).enumerate() {
            let error = (got.to_f64() - want).abs();
            let at = [index / self.n / self.m, index / self.n % self.m, index % self.n];
            assert!(
                error <= 4e-3 * want.abs() + 1e-4 * (self.k as f64).sqrt(),
                "{self:?} by {tile:?}: element {at:?} is {got}, not {want}"
            );
        }
    }
}

const LAYOUTS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

#[test]
fn on_the_cpu() -> Result {
    let stream = Device::Cpu.stream();
    for transposed in LAYOUTS {
        let product = Product { batch: 2, m: 40, n: 24, k: 35, transposed, shared: false };
        product.check(&stream, &[([16, 16, 16], None), ([16, 32, 8], None)])?;
    }
    Ok(())
}

/// Whole tiles, edges along every axis, batches, and extents that the copy engine does not take.
#[test]
fn on_a_gpu() -> Result {
    if gpu("matrix products").is_none() {
        return Ok(());
    }
    let stream = Device::Cuda(0).stream();
    let tiles: [Tile; 11] = [
        ([128, 256, 64], None),
        ([128, 128, 64], None),
        ([128, 128, 64], Some(4)),
        ([64, 256, 64], Some(4)),
        ([256, 128, 64], Some(8)),
        ([64, 256, 32], Some(4)),
        ([64, 64, 128], None),
        ([64, 16, 64], None),
        ([64, 8, 16], None),
        ([128, 64, 32], Some(4)),
        ([32, 32, 32], None),
    ];
    let sizes = [(1, 128, 256, 64), (1, 256, 512, 512), (3, 200, 264, 104), (2, 100, 70, 50)];
    for (batch, m, n, k) in sizes {
        for transposed in LAYOUTS {
            Product { batch, m, n, k, transposed, shared: false }.check(&stream, &tiles)?;
        }
    }
    let large =
        Product { batch: 1, m: 1000, n: 1032, k: 2056, transposed: [false, true], shared: false };
    large.check(&stream, &tiles[..2])?;
    Product { batch: 3, m: 256, n: 128, k: 128, shared: true, ..large }.check(&stream, &tiles[..2])
}

/// Blocks that bring the right operand for each other: edges, batches, all layouts, turns.
#[test]
fn by_clusters_on_a_gpu() -> Result {
    let target = crate::gpu::gpu("products by clusters").and_then(Device::target);
    if !target.is_some_and(|target| target.features.has_clusters()) {
        return Ok(());
    }
    let stream = Device::Cuda(0).stream();
    let tiles: [Tile; 3] =
        [([256, 128, 64], Some(4)), ([256, 256, 64], Some(8)), ([128, 64, 128], Some(4))];
    for (batch, m, n, k) in [(1, 256, 512, 512), (3, 200, 264, 104)] {
        for transposed in LAYOUTS {
            let product = Product { batch, m, n, k, transposed, shared: false };
            product.check_in_clusters(&stream, &tiles, Some(2))?;
        }
    }
    let four = [([256, 128, 64], Some(4)), ([512, 128, 64], Some(8))];
    let large =
        Product { batch: 1, m: 1000, n: 520, k: 1032, transposed: [false, true], shared: false };
    large.check_in_clusters(&stream, &four, Some(4))
}

/// Few tiles and a long K: the parts of K are products of their own, and their sum is the same each time.
#[test]
fn a_long_k_on_a_gpu() -> std::result::Result<(), genesis::Error> {
    if gpu("matrix products").is_none() {
        return Ok(());
    }
    for (m, n, k) in [(256, 192, 8192), (16, 320, 16384), (64, 72, 4096)] {
        let product = Product { batch: 1, m, n, k, transposed: [false, false], shared: false };
        let (x, y) = (draw(m * k, 3), draw(k * n, 4));
        let expected = product.expected(&x, &y);
        let on_gpu = |values: &[bf16], shape: &[usize]| {
            genesis::Tensor::from_slice(values, shape)?.to_device(Device::Cuda(0))
        };
        let (a, b) = (on_gpu(&x, &[m, k])?, on_gpu(&y, &[k, n])?);
        let bits = |c: &genesis::Tensor| -> std::result::Result<Vec<bf16>, genesis::Error> {
            Ok(c.to_f64_vec()?.into_iter().map(bf16::from_f64).collect())
        };
        let first = bits(&a.matmul(&b)?)?;
        product.compare(&first, &expected, [0; 3]);
        assert_eq!(first, bits(&a.matmul(&b)?)?);
        // The operands as views of their transposes.
        let turned = a.t()?.contiguous()?.t()?.matmul(&b.t()?.contiguous()?.t()?)?;
        product.compare(&bits(&turned)?, &expected, [0; 3]);
    }
    Ok(())
}

/// Batches that broadcast, and sums that do not fit.
#[test]
fn integers_wrap_on_every_device() -> genesis::Result<()> {
    let made = |shape: &[usize], step: usize, dtype: DType, on: Device| {
        let n: usize = shape.iter().product();
        let values: Vec<i64> = (0..n).map(|i| (i * step % 251) as i64 - 100).collect();
        Tensor::from_slice_on(&values, shape, on)?.to_dtype(dtype)
    };
    let wanted = |a: &[i64], b: &[i64], batch: usize, i: usize, j: usize| {
        (0..40)
            .map(|k| a[(batch / 2 * 5 + i) * 40 + k] * b[(batch % 2 * 40 + k) * 3 + j])
            .sum::<i64>()
    };
    for on in crate::gpu::devices("products of integers") {
        for dtype in [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8] {
            let (a, b) = (made(&[2, 1, 5, 40], 37, dtype, on)?, made(&[2, 40, 3], 61, dtype, on)?);
            let c = a.matmul(&b)?;
            assert_eq!((c.shape(), c.dtype()), (&[2, 2, 5, 3][..], dtype));
            let [a, b, c] = [&a, &b, &c].map(|t| t.to_dtype(DType::I64)?.to_vec::<i64>());
            let (a, b, c) = (a?, b?, c?);
            for (at, &got) in c.iter().enumerate() {
                let sum = wanted(&a, &b, at / 15, at / 3 % 5, at % 3);
                let want = match dtype {
                    DType::I16 => i64::from(sum as i16),
                    DType::I8 => i64::from(sum as i8),
                    DType::U8 => i64::from(sum as u8),
                    _ => sum,
                };
                assert_eq!(got, want, "{dtype} on {on}, element {at}");
            }
        }
    }
    Ok(())
}

/// Operands that tensor copies can't bring are copied for a large product: whatever is odd, transposed, broadcast or an
/// integer, the result is that of the processor.
#[test]
fn odd_operands_are_copied_for_large_products() -> genesis::Result<()> {
    agree_where_odd(&[(DType::BF16, [335, 577, 701]), (DType::I8, [129, 127, 131])])
}

/// Apart, for a product that is large for f32 takes an emulator minutes.
#[test]
fn odd_operands_of_f32_are_copied_for_large_products() -> genesis::Result<()> {
    agree_where_odd(&[(DType::F32, [1029, 1031, 2051])])
}

/// Products of these dtypes and extents M, N, K on a GPU and the processor, of operands that lie in every way.
fn agree_where_odd(cases: &[(DType, [usize; 3])]) -> genesis::Result<()> {
    if gpu("large products of odd extents").is_none() {
        return Ok(());
    }
    let whole = |shape: &[usize], step: usize, dtype: DType, device: Device| {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| (i * step % 7) as f64 - 3.0).collect();
        Tensor::from_f64(&values, shape, (dtype, device))
    };
    for &(dtype, [m, n, k]) in cases {
        for [ta, tb] in LAYOUTS {
            let of = |device: Device| -> genesis::Result<Tensor> {
                let a = match ta {
                    true => whole(&[k, m], 5, dtype, device)?.t()?,
                    false => whole(&[m, k], 5, dtype, device)?,
                };
                let b = match tb {
                    true => whole(&[n, k], 3, dtype, device)?.t()?,
                    false => whole(&[k, n], 3, dtype, device)?,
                };
                a.to_dtype(dtype)?.matmul(&b)
            };
            let [got, want] = [Device::Cuda(0), Device::Cpu].map(of);
            assert_eq!(got?.to_f64_vec()?, want?.to_f64_vec()?, "{dtype} {ta} {tb}");
        }
    }
    Ok(())
}

//! Split-K: the kernels against sums of f64, for cuts of few and of many tiles, and the framework's products that use it.

use genesis::{DType, Device, Tensor};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Array, Stream};
use genesis_kernel::tuning::split_k::SplitK;
use half::bf16;
use kernels::split_k::{
    split_k, split_k_add, split_k_add_wide, split_k_sum, split_k_sum_wide, split_k_wide,
};

use crate::gpu::gpu;
use crate::matmul::draw;

type Result<T = ()> = std::result::Result<T, genesis_kernel::Error>;

/// A product of `batch` matrices in tiles of `tile`, the last `split` of them in parts.
#[derive(Clone, Copy, Debug)]
struct Cut {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    tile: [usize; 3],
    split: usize,
    parts: usize,
}

impl Cut {
    /// `a b`, plus `c` where it is added to, in f64.
    fn expected(&self, a: &[bf16], b: &[bf16], c: &[f32], adds: bool) -> Vec<f64> {
        let Cut { batch, m, n, k, .. } = *self;
        let mut out: Vec<f64> = c.iter().map(|&c| if adds { f64::from(c) } else { 0.0 }).collect();
        for i in 0..batch {
            for row in 0..m {
                for p in 0..k {
                    let x = a[(i * m + row) * k + p].to_f64();
                    for column in 0..n {
                        out[(i * m + row) * n + column] += x * b[(i * k + p) * n + column].to_f64();
                    }
                }
            }
        }
        out
    }

    fn check(&self, stream: &Stream) -> Result {
        let Cut { batch, m, n, k, tile: [bm, bn, bk], split, parts } = *self;
        let plan = SplitK::of(split, k.div_ceil(bk), parts);
        let (x, y) = (draw(batch * m * k, 1), draw(batch * k * n, 2));
        let (a, b) = (stream.upload(&x)?, stream.upload(&y)?);
        let start: Vec<f32> = draw(batch * m * n, 3).iter().map(|x| x.to_f32()).collect();
        let tiles = batch * m.div_ceil(bm) * n.div_ceil(bn);
        let units = plan.units() + tiles - split;
        let [split, parts, each] = [plan.split, plan.parts, plan.each].map(|n| n as i64);
        let mut sums = Array::<f32>::zeros(stream, plan.units() * bm * bn)?;
        let room = [plan.units(), bm, bn];
        let rows = bm / 2;
        let below = Grid::x(plan.split * 2);
        for (adds, grid) in [(false, units), (true, units), (false, 3), (true, 1)] {
            let expected = self.expected(&x, &y, &start, adds);
            let narrow: Vec<bf16> = start.iter().map(|&x| bf16::from_f32(x)).collect();
            let mut c = stream.upload(&narrow)?;
            let mut wide = stream.upload(&start)?;
            macro_rules! run {
                ($product:ident, $sum:ident, $c:ident) => {{
                    let consts = $product::Consts { BM: bm, BN: bn, BK: bk };
                    let args = (
                        a.view([batch, m, k])?,
                        b.view([batch, k, n])?,
                        $c.view_mut([batch, m, n])?,
                        sums.view_mut(room)?,
                        split,
                        parts,
                        each,
                    );
                    $product::launch::<bf16, f32>(stream, Grid::x(grid), consts, args)?;
                    let consts = $sum::Consts { BM: bm, BN: bn, ROWS: rows };
                    let args = (sums.view(room)?, $c.view_mut([batch, m, n])?, split, parts);
                    $sum::launch::<bf16, f32>(stream, below, consts, args)?;
                }};
            }
            match adds {
                false => {
                    run!(split_k, split_k_sum, c);
                    run!(split_k_wide, split_k_sum_wide, wide);
                }
                true => {
                    run!(split_k_add, split_k_sum, c);
                    run!(split_k_add_wide, split_k_sum_wide, wide);
                }
            }
            let (c, wide) = (c.to_vec()?, wide.to_vec()?);
            for (at, want) in expected.iter().enumerate() {
                let (c, wide) = (c[at].to_f64(), f64::from(wide[at]));
                let scale = want.abs() + (k as f64).sqrt();
                let is_near =
                    (c - want).abs() <= 5e-3 * scale && (wide - want).abs() <= 1e-5 * scale;
                assert!(is_near, "{self:?} {adds}: {at} is {c} and {wide}, not {want}");
            }
        }
        Ok(())
    }
}

/// Cuts of all tiles and of the last, in parts that come out even and do not, of a batch, and of edges along every axis.
pub(crate) fn run(device: Device) -> Result {
    let stream = device.stream();
    // On a GPU tiles that the copy engine brings, in a ping-pong schedule.
    let (tile, unit) = if device.is_cuda() { ([128, 128, 64], 8) } else { ([16, 32, 16], 1) };
    for (batch, [m, n, k], split, parts) in [
        (1, [32, 32, 160], 1, 5),
        (1, [70, 70, 100], 1, 7),
        (2, [40, 24, 35], 2, 2),
        (3, [48, 64, 48], 3, 3),
        (1, [17, 33, 161], 2, 4),
    ] {
        Cut { batch, m: m * unit, n: n * unit, k: k * unit, tile, split, parts }.check(&stream)?;
    }
    Ok(())
}

#[test]
fn on_the_cpu() -> Result {
    run(Device::Cpu)
}

/// Tiles of other schedules too.
#[test]
fn on_a_gpu() -> Result {
    let Some(device) = gpu("split-K") else { return Ok(()) };
    run(device)?;
    for tile in [[64, 128, 64], [128, 256, 64]] {
        for (batch, [m, n, k], split, parts) in
            [(1, [256, 512, 640], 4, 4), (1, [512, 640, 256], 3, 2), (2, [200, 264, 328], 5, 5)]
        {
            Cut { batch, m, n, k, tile, split, parts }.check(&device.stream())?;
        }
    }
    Ok(())
}

/// Products of the framework that are cut: near f64's, and the same bits each time.
#[test]
fn products_of_uneven_tiles_on_a_gpu() -> genesis::Result<()> {
    let Some(device) = gpu("split-K in the framework") else { return Ok(()) };
    genesis::manual_seed(7);
    for dtype in [DType::BF16, DType::F16] {
        for ([m, k, n], turned) in [
            ([1280, 2048, 896], [false, false]),
            ([896, 8192, 896], [true, false]),
            ([2184, 1160, 904], [false, true]),
        ] {
            let draw = |rows: usize, columns: usize, turned: bool| {
                let shape = if turned { [columns, rows] } else { [rows, columns] };
                let x = Tensor::randn(&shape, (dtype, device))?;
                if turned { x.t() } else { Ok(x) }
            };
            let (a, b) = (draw(m, k, turned[0])?, draw(k, n, turned[1])?);
            let y = a.matmul(&b)?;
            let exact = a.to_dtype(DType::F64)?.matmul(&b.to_dtype(DType::F64)?)?;
            let error = y.to_dtype(DType::F64)?.sub(&exact)?.abs()?.max()?.item()?;
            let bound = 6e-3 * exact.abs()?.max()?.item()?;
            assert!(error < bound, "{dtype} {m} {k} {n}: {error}");
            assert!(y.equal(&a.matmul(&b)?)?, "{dtype} {m} {k} {n}: other bits");
        }
    }
    Ok(())
}

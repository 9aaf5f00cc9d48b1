//! Products whose left operand is made in registers: cast from 8 bits, scaled along K, or left there by
//! another product, as attention has it; against f64 on every device.

use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Arg, AsView, AsViewMut};

/// `y = scale w x` with `w: [m, k]` of 8 bits, `scale: [m]`, `x: [k, n]`, `y: [m, n]`.
#[kernel]
fn dequantized<T: Element, const BM: usize, const BN: usize, const BK: usize>(
    w: View<T, 2>,
    scale: View<f32, 1>,
    x: View<bf16, 2>,
    y: ViewMut<bf16, 2>,
) {
    let (m, n, k) = (y.dim(0), y.dim(1), w.dim(1));
    for tile in persistent(cdiv(m, BM) * cdiv(n, BN)) {
        let (i, j) = grouped(tile, cdiv(m, BM), cdiv(n, BN), 8);
        let mut acc = zeros::<f32, BM, BN>();
        for p in range(0, k, BK) {
            let u = w.load::<BM, BK>([i * BM, p]).to::<bf16>();
            acc = dot(u, x.load::<BK, BN>([p, j * BN]), acc);
        }
        y.store([i * BM, j * BN], (acc * scale.load::<BM>([i * BM]).col()).to::<bf16>());
    }
}

/// The same with a scale for each column of `w`, which has to be multiplied before the sum: `scale: [k]`.
#[kernel]
fn scaled_inside<T: Element, const BM: usize, const BN: usize, const BK: usize>(
    w: View<T, 2>,
    scale: View<f32, 1>,
    x: View<bf16, 2>,
    y: ViewMut<bf16, 2>,
) {
    let (m, n, k) = (y.dim(0), y.dim(1), w.dim(1));
    for tile in persistent(cdiv(m, BM) * cdiv(n, BN)) {
        let (i, j) = grouped(tile, cdiv(m, BM), cdiv(n, BN), 8);
        let mut acc = zeros::<f32, BM, BN>();
        for p in range(0, k, BK) {
            let u = w.load::<BM, BK>([i * BM, p]).to::<f32>() * scale.load::<BK>([p]).row();
            acc = dot(u.to::<bf16>(), x.load::<BK, BN>([p, j * BN]), acc);
        }
        y.store([i * BM, j * BN], acc.to::<bf16>());
    }
}

/// `y = exp2(q k) v` with `q: [m, d]`, `k: [d, t]`, `v: [t, d]`: the first product is the second's operand.
#[kernel]
fn chained<const BM: usize, const BN: usize, const D: usize>(
    q: View<bf16, 2>,
    k: View<bf16, 2>,
    v: View<bf16, 2>,
    y: ViewMut<bf16, 2>,
) {
    let i = program_id(0) * BM;
    let u = q.load::<BM, D>([i, 0]);
    let mut acc = zeros::<f32, BM, D>();
    for p in range(0, k.dim(1), BN) {
        let s = exp2(dot(u, k.load::<D, BN>([0, p])));
        acc = dot(s.to::<bf16>(), v.load::<BN, D>([p, 0]), acc);
    }
    y.store([i, 0], acc.to::<bf16>());
}

type Result<T = ()> = std::result::Result<T, genesis_kernel::Error>;

/// Small multiples of 1/16 from -1 to 1, the same in every run.
fn draw(n: usize, by: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * by + i / 7) % 33) as f32 / 16.0 - 1.0).collect()
}

fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn compare(what: &str, got: &[bf16], want: &[f64], size: f64) {
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got.to_f64() - want).abs();
        assert!(error <= want.abs() / 128.0 + size, "{what}: element {index} is {got}, not {want}");
    }
}

/// The extents of a product and of its tiles.
type Sizes = ([usize; 3], [i64; 3]);

fn check_weights<T: genesis_kernel::runtime::HostElement>(
    stream: &Stream,
    ([m, n, k], tile): Sizes,
    of: impl Fn(f32) -> (T, f64),
) -> Result {
    let weights: Vec<(T, f64)> = draw(m * k, 5).iter().map(|&v| of(v)).collect();
    let values: Vec<f64> = weights.iter().map(|&(_, value)| value).collect();
    let w = stream.upload(&weights.iter().map(|&(w, _)| w).collect::<Vec<T>>())?;
    let inputs = draw(k * n, 11);
    let x = stream.upload(&inputs.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<bf16>>())?;
    for inside in [false, true] {
        let (kernel, count) = match inside {
            true => (&scaled_inside::KERNEL, k),
            false => (&dequantized::KERNEL, m),
        };
        // Powers of two, so that scaling before the sum rounds nothing away.
        let scales: Vec<f32> = (0..count).map(|i| 2f32.powi(i as i32 % 3 - 2)).collect();
        let scaled: Vec<f64> = (0..m * k)
            .map(|at| values[at] * f64::from(scales[if inside { at % k } else { at / k }]))
            .collect();
        let scale = stream.upload(&scales)?;
        let mut y = Array::<bf16>::zeros(stream, m * n)?;
        let args: [Arg; 4] = [
            AsView::<T, 2>::as_arg(&w.view([m, k])?).arg(),
            AsView::<f32, 1>::as_arg(&&scale).arg(),
            AsView::<bf16, 2>::as_arg(&x.view([k, n])?).arg(),
            AsViewMut::<bf16, 2>::as_arg(&y.view_mut([m, n])?).arg(),
        ];
        let grid = Grid::x(m.div_ceil(tile[0] as usize) * n.div_ceil(tile[1] as usize));
        let options = LaunchOptions::default();
        // SAFETY: the views are over arrays that live, and only `y` is written.
        unsafe { kernel.launch_with(stream, grid, &[T::DTYPE], &tile, options, &args)? };
        let want = product(&scaled, &wide(&inputs), [m, n, k]);
        compare(
            &format!("{} {} inside {inside}", T::DTYPE, stream.device()),
            &y.to_vec()?,
            &want,
            1e-3,
        );
    }
    Ok(())
}

fn check_chain(stream: &Stream, [m, t, d]: [usize; 3], tile: [i64; 3]) -> Result {
    let made = |n: usize, by: usize| -> Vec<f32> { draw(n, by).iter().map(|v| v / 4.0).collect() };
    let (q, k, v) = (made(m * d, 3), made(d * t, 7), draw(t * d, 13));
    let upload =
        |x: &[f32]| stream.upload(&x.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<bf16>>());
    let (qs, ks, vs) = (upload(&q)?, upload(&k)?, upload(&v)?);
    let mut y = Array::<bf16>::zeros(stream, m * d)?;
    let args: [Arg; 4] = [
        AsView::<bf16, 2>::as_arg(&qs.view([m, d])?).arg(),
        AsView::<bf16, 2>::as_arg(&ks.view([d, t])?).arg(),
        AsView::<bf16, 2>::as_arg(&vs.view([t, d])?).arg(),
        AsViewMut::<bf16, 2>::as_arg(&y.view_mut([m, d])?).arg(),
    ];
    let grid = Grid::x(m.div_ceil(tile[0] as usize));
    // SAFETY: the views are over arrays that live, and only `y` is written.
    unsafe {
        chained::KERNEL.launch_with(stream, grid, &[], &tile, LaunchOptions::default(), &args)?;
    }
    let weights: Vec<f64> = product(&wide(&q), &wide(&k), [m, t, d])
        .iter()
        .map(|s| bf16::from_f64(s.exp2()).to_f64())
        .collect();
    let want = product(&weights, &wide(&v), [m, d, t]);
    compare(
        &format!("chain on {}", stream.device()),
        &y.to_vec()?,
        &want,
        0.02 * (t as f64).sqrt(),
    );
    Ok(())
}

/// Few of them, with enough steps that every slot of the ring is written again: what the emulator runs.
#[test]
fn slots_are_read_before_they_are_written_again() -> Result {
    let Some(device) = crate::gpu::gpu("left operands in registers") else { return Ok(()) };
    let stream = device.stream();
    let size = ([64, 64, 768], [64, 64, 64]);
    check_weights(&stream, size, |v| ((v * 16.0) as i8, f64::from((v * 16.0) as i8)))?;
    check_weights(&stream, size, |v| ((v * 8.0 + 8.0) as u8, f64::from((v * 8.0 + 8.0) as u8)))?;
    check_weights(&stream, size, |v| (bf16::from_f32(v), f64::from(v)))?;
    check_chain(&stream, [64, 256, 64], [64, 64, 64])
}

#[test]
fn left_operands_of_registers_agree_with_f64() -> Result {
    for device in crate::gpu::devices("left operands in registers") {
        let stream = device.stream();
        let sizes: &[Sizes] = match device.is_cuda() {
            true => &[
                ([128, 128, 256], [128, 128, 64]),
                ([200, 264, 528], [128, 128, 64]),
                ([200, 264, 528], [64, 256, 64]),
                ([320, 144, 1040], [128, 64, 128]),
            ],
            false => &[([40, 24, 48], [16, 16, 32])],
        };
        for &size in sizes {
            check_weights(&stream, size, |v| ((v * 16.0) as i8, f64::from((v * 16.0) as i8)))?;
            check_weights(&stream, size, |v| (f8e4m3::from_f32(v), f8e4m3::from_f32(v).to_f64()))?;
            check_weights(&stream, size, |v| (f8e5m2::from_f32(v), f8e5m2::from_f32(v).to_f64()))?;
            check_weights(&stream, size, |v| (bf16::from_f32(v), f64::from(v)))?;
        }
        let (chain, tile) = match device.is_cuda() {
            true => ([256, 512, 64], [128, 64, 64]),
            false => ([32, 48, 16], [16, 16, 16]),
        };
        check_chain(&stream, chain, tile)?;
    }
    Ok(())
}

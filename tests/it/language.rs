//! The eight kernels that the language was designed by, on every device, against plain f64.

use genesis::Device;
use genesis_kernel::kernel::Grid;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Array, HostElement, Stream};
use half::bf16;

#[path = "../../genesis-kernel/src/lang/eight.rs"]
mod eight;

type Result<T = ()> = std::result::Result<T, genesis_kernel::Error>;

/// The CPU, and a GPU where one is.
fn streams() -> Vec<Stream> {
    crate::gpu::devices("the eight kernels").into_iter().map(Device::stream).collect()
}

/// Numbers near a normal distribution, the same in every run.
fn normal(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| ((0..4).map(|_| uniform()).sum::<f32>() - 2.0) * 1.7).collect()
}

/// A float dtype under test.
trait Real: HostElement + genesis_kernel::lang::Float {
    const EPS: f64;
    fn from_f32(value: f32) -> Self;
    fn to_f64(self) -> f64;
}

impl Real for f32 {
    const EPS: f64 = 1.2e-7;
    fn from_f32(value: f32) -> f32 {
        value
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for bf16 {
    const EPS: f64 = 7.9e-3;
    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
    fn to_f64(self) -> f64 {
        bf16::to_f64(self)
    }
}

fn draw<T: Real>(stream: &Stream, n: usize, seed: u64) -> Result<(Array<T>, Vec<f64>)> {
    let values: Vec<T> = normal(n, seed).into_iter().map(T::from_f32).collect();
    Ok((stream.upload(&values)?, values.iter().map(|v| v.to_f64()).collect()))
}

fn close<T: Real>(what: &str, got: &[T], want: &[f64], limit: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got.to_f64() - want).abs();
        assert!(
            error <= limit * want.abs().max(1.0),
            "{what}: element {index} is {got:?}, not {want}"
        );
    }
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| (v - top).exp() / total).collect()
}

fn check_add<T: Real>(stream: &Stream) -> Result {
    for n in [1, 1023, 1024, 5000] {
        let ((x, xs), (y, ys)) = (draw::<T>(stream, n, 1)?, draw::<T>(stream, n, 2)?);
        let mut out = Array::<T>::zeros(stream, n)?;
        let (grid, consts) = (Grid::x(n.div_ceil(1024)), eight::add::Consts { BLOCK: 1024 });
        // SAFETY: all arrays have `n` elements.
        unsafe { eight::add::launch::<T>(stream, grid, consts, (&x, &y, &mut out, n as i64))? };
        let want: Vec<f64> = xs.iter().zip(&ys).map(|(x, y)| x + y).collect();
        close("add", &out.to_vec()?, &want, T::EPS);
    }
    Ok(())
}

#[test]
fn add() -> Result {
    streams().iter().try_for_each(|s| check_add::<f32>(s).and_then(|()| check_add::<bf16>(s)))
}

/// `fast::exp`, `fast::sigmoid` and `fast::tanh` of `x`, one row each.
#[kernel]
fn fast_functions<const BLOCK: usize>(x: View<f32, 1>, y: ViewMut<f32, 2>) {
    let v = x.load::<BLOCK>([0]);
    y.store([0, 0], fast::exp(v).row());
    y.store([1, 0], fast::sigmoid(v).row());
    y.store([2, 0], fast::tanh(v).row());
}

#[test]
fn fast_functions_are_as_close_as_they_say() -> Result {
    let xs: Vec<f32> = (-400..400).map(|i| i as f32 * 0.21 + 0.01).collect();
    let n = xs.len();
    for stream in streams() {
        let (x, mut y) = (stream.upload(&xs)?, Array::<f32>::zeros(&stream, 3 * n)?);
        let consts = fast_functions::Consts { BLOCK: 1024 };
        fast_functions::launch(&stream, Grid::x(1), consts, (&x, y.view_mut([3, n])?))?;
        let y = y.to_vec()?;
        for (i, &x) in xs.iter().enumerate() {
            let x = f64::from(x);
            let [exp, sigmoid, tanh] = [0, 1, 2].map(|row| f64::from(y[row * n + i]));
            let ulp = 2f64.powi(-23);
            let limit = ulp * (2.0 + x.abs());
            assert!((exp - x.exp()).abs() <= limit * x.exp(), "exp({x}) is {exp}");
            let want = 1.0 / (1.0 + (-x).exp());
            let limit = if x > -1.0 { 4.0 * ulp } else { limit + 2.0 * ulp };
            assert!((sigmoid - want).abs() <= limit * want, "sigmoid({x}) is {sigmoid}");
            assert!((tanh - x.tanh()).abs() <= 4.0 * ulp, "tanh({x}) is {tanh}");
        }
    }
    Ok(())
}

fn check_softmax<T: Real>(stream: &Stream) -> Result {
    for (n, block) in [(1000, 1024), (768, 768), (33, 64)] {
        let rows = 5;
        let (x, xs) = draw::<T>(stream, rows * n, 3)?;
        let mut y = Array::<T>::zeros(stream, rows * n)?;
        let consts = eight::softmax::Consts { BLOCK: block };
        // SAFETY: both arrays have `rows * n` elements.
        unsafe {
            eight::softmax::launch::<T>(stream, Grid::x(rows), consts, (&x, &mut y, n as i64))?
        };
        let want: Vec<f64> = xs.chunks(n).flat_map(softmax_of).collect();
        close("softmax", &y.to_vec()?, &want, T::EPS);
    }
    Ok(())
}

#[test]
fn softmax() -> Result {
    streams()
        .iter()
        .try_for_each(|s| check_softmax::<f32>(s).and_then(|()| check_softmax::<bf16>(s)))
}

fn check_layer_norm<T: Real>(stream: &Stream) -> Result {
    let (rows, n, eps) = (4, 300, 1e-5);
    let (x, xs) = draw::<T>(stream, rows * n, 4)?;
    let ((w, ws), (b, bs)) = (draw::<T>(stream, n, 5)?, draw::<T>(stream, n, 6)?);
    let mut y = Array::<T>::zeros(stream, rows * n)?;
    let mut stats = Array::<f32>::zeros(stream, rows * 2)?;
    let consts = eight::layer_norm::Consts { BLOCK: 512 };
    let args =
        (x.view([rows, n])?, &w, &b, y.view_mut([rows, n])?, stats.view_mut([rows, 2])?, 1e-5f32);
    eight::layer_norm::launch::<T>(stream, Grid::x(rows), consts, args)?;
    let mut want = Vec::new();
    let mut want_stats = Vec::new();
    for row in xs.chunks(n) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        let rstd = 1.0 / (var + eps).sqrt();
        want_stats.extend([mean, rstd]);
        want.extend(
            row.iter().zip(ws.iter().zip(&bs)).map(|(v, (w, b))| (v - mean) * rstd * w + b),
        );
    }
    close("layer_norm", &y.to_vec()?, &want, 4.0 * T::EPS);
    close("layer_norm statistics", &stats.to_vec()?, &want_stats, 1e-6);
    Ok(())
}

#[test]
fn layer_norm() -> Result {
    streams()
        .iter()
        .try_for_each(|s| check_layer_norm::<f32>(s).and_then(|()| check_layer_norm::<bf16>(s)))
}

fn check_matmul<T: Real>(stream: &Stream) -> Result {
    for (m, n, k, consts) in [
        (64, 64, 64, eight::matmul::Consts { BM: 32, BN: 32, BK: 32 }),
        (100, 70, 50, eight::matmul::Consts { BM: 64, BN: 32, BK: 16 }),
        (1, 3, 2, eight::matmul::Consts { BM: 16, BN: 16, BK: 16 }),
    ] {
        let ((a, x), (b, y)) = (draw::<T>(stream, m * k, 7)?, draw::<T>(stream, k * n, 8)?);
        let mut c = Array::<T>::zeros(stream, m * n)?;
        let args = (a.view([m, k])?, b.view([k, n])?, c.view_mut([m, n])?);
        eight::matmul::launch::<T>(stream, Grid::x(2), consts, args)?;
        let at = |i: usize, j: usize| (0..k).map(|p| x[i * k + p] * y[p * n + j]).sum::<f64>();
        let want: Vec<f64> = (0..m * n).map(|index| at(index / n, index % n)).collect();
        close("matmul", &c.to_vec()?, &want, T::EPS.max(1e-5));
    }
    Ok(())
}

#[test]
fn matmul() -> Result {
    streams().iter().try_for_each(|s| check_matmul::<f32>(s).and_then(|()| check_matmul::<bf16>(s)))
}

#[test]
fn gelu() -> Result {
    for stream in &streams() {
        let (x, xs) = draw::<f32>(stream, 3000, 9)?;
        let mut y = Array::<f32>::zeros(stream, 3000)?;
        let consts = eight::gelu_all::Consts { BLOCK: 1024 };
        // SAFETY: both arrays have 3000 elements.
        unsafe {
            eight::gelu_all::launch::<f32>(stream, Grid::x(3), consts, (&x, &mut y, 3000i64))?
        };
        // The error function by its integral, in a thousand steps of Simpson's rule.
        let erf = |v: f64| {
            let (n, h) = (1000, v / 1000.0);
            let f = |i: usize| (-(i as f64 * h) * (i as f64 * h)).exp();
            let inner: f64 = (1..n).map(|i| f(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            (f(0) + inner + f(n)) * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
        };
        let want: Vec<f64> =
            xs.iter().map(|v| 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2))).collect();
        close("gelu", &y.to_vec()?, &want, 5e-7);
    }
    Ok(())
}

#[test]
fn largest_by_pairs() -> Result {
    for stream in &streams() {
        let (rows, n) = (6, 700);
        let mut values = normal(rows * n, 10);
        values[n + 5] = f32::NAN;
        values[2 * n + 9] = 50.0;
        values[2 * n + 300] = 50.0;
        let x = stream.upload(&values)?;
        let mut at = Array::<i64>::zeros(stream, rows)?;
        let consts = eight::largest::Consts { BLOCK: 1024 };
        // SAFETY: `x` has `rows * n` elements and `at` one a row.
        unsafe { eight::largest::launch(stream, Grid::x(rows), consts, (&x, &mut at, n as i64))? };
        let got = at.to_vec()?;
        assert_eq!((got[1], got[2]), (5, 9));
        for row in [0, 3, 4, 5] {
            let slice = &values[row * n..][..n];
            let best = slice.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(slice[got[row] as usize], best);
        }
    }
    Ok(())
}

#[test]
fn dropout() -> Result {
    let mut masks: Vec<Vec<f32>> = Vec::new();
    for stream in &streams() {
        let n = 4000;
        let x = stream.upload(&vec![1.0f32; n])?;
        let mut y = Array::<f32>::zeros(stream, n)?;
        let consts = eight::dropout::Consts { BLOCK: 1024 };
        let args = (&x, &mut y, n as i64, 0.25f32, 7u64);
        // SAFETY: both arrays have `n` elements.
        unsafe { eight::dropout::launch::<f32>(stream, Grid::x(4), consts, args)? };
        let y = y.to_vec()?;
        assert!(y.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
        let zeros = y.iter().filter(|&&v| v == 0.0).count();
        assert!((850..1150).contains(&zeros), "{zeros}");
        masks.push(y);
    }
    assert!(masks.windows(2).all(|pair| pair[0] == pair[1]), "devices draw different masks");
    Ok(())
}

#[test]
fn histogram() -> Result {
    for stream in &streams() {
        let values: Vec<u8> = normal(10_000, 11).iter().map(|v| (v * 20.0 + 100.0) as u8).collect();
        let x = stream.upload(&values)?;
        let mut counts = Array::<i32>::zeros(stream, 256)?;
        let consts = eight::histogram::Consts { BLOCK: 512 };
        // SAFETY: `x` has 10,000 elements and `counts` one for each byte.
        unsafe {
            eight::histogram::launch(stream, Grid::x(20), consts, (&x, &mut counts, 10_000i64))?
        };
        let mut want = vec![0; 256];
        values.iter().for_each(|&v| want[v as usize] += 1);
        assert_eq!(counts.to_vec()?, want);
    }
    Ok(())
}

fn check_attention<T: Real>(stream: &Stream) -> Result {
    let (heads, t, d) = (2, 96, 32);
    let scale = 1.0 / (d as f32).sqrt();
    let draw = |seed| draw::<T>(stream, heads * t * d, seed);
    let ((q, qs), (k, ks), (v, vs)) = (draw(12)?, draw(13)?, draw(14)?);
    let mut o = Array::<T>::zeros(stream, heads * t * d)?;
    let mut lse = Array::<f32>::zeros(stream, heads * t)?;
    let shape = [heads, t, d];
    let args = (
        q.view(shape)?,
        k.view(shape)?,
        v.view(shape)?,
        o.view_mut(shape)?,
        lse.view_mut([heads, t])?,
        scale,
    );
    let consts = eight::attention::Consts { M: 32, N: 32, D: 32 };
    eight::attention::launch::<T>(stream, Grid::xy(t / 32, heads), consts, args)?;
    let at = |x: &[f64], h: usize, i: usize, c: usize| x[(h * t + i) * d + c];
    let mut want = Vec::new();
    for h in 0..heads {
        for i in 0..t {
            let score = |j: usize| (0..d).map(|c| at(&qs, h, i, c) * at(&ks, h, j, c)).sum::<f64>();
            let p = softmax_of(&(0..=i).map(|j| score(j) * f64::from(scale)).collect::<Vec<_>>());
            want.extend(
                (0..d)
                    .map(|c| p.iter().enumerate().map(|(j, p)| p * at(&vs, h, j, c)).sum::<f64>()),
            );
        }
    }
    close("attention", &o.to_vec()?, &want, T::EPS.max(2e-6) * 2.0);
    Ok(())
}

#[test]
fn attention() -> Result {
    streams()
        .iter()
        .try_for_each(|s| check_attention::<f32>(s).and_then(|()| check_attention::<bf16>(s)))
}

/// Negatives and absolute values, seen by what widens, shifts and compares them.
#[kernel]
fn negatives<T: Int, const BLOCK: usize>(x: View<T, 1>, y: ViewMut<i64, 2>) {
    let v = x.load::<BLOCK>([0]);
    let is_less = where_(abs(v) < 0, 1_i64, 0);
    y.store([0, 0], (-v).to::<i64>().row());
    y.store([1, 0], (abs(v) >> 3).to::<i64>().row());
    y.store([2, 0], is_less.row());
    y.store([3, 0], where_(v < 0, -v, v).to::<i64>().row());
}

macro_rules! negatives_of {
    ($stream:expr, $($ty:ident),*) => {$(
        let xs: Vec<$ty> = (-40..40).chain([$ty::MIN, $ty::MIN + 1, $ty::MAX]).collect();
        let n = xs.len();
        let (x, mut y) = ($stream.upload(&xs)?, Array::<i64>::zeros($stream, 4 * n)?);
        let consts = negatives::Consts { BLOCK: 128 };
        negatives::launch::<$ty>($stream, Grid::x(1), consts, (&x, y.view_mut([4, n])?))?;
        let rows: [fn($ty) -> i64; 4] = [
            |x| i64::from(x.wrapping_neg()),
            |x| i64::from(x.wrapping_abs() >> 3),
            |x| i64::from(x.wrapping_abs() < 0),
            |x| i64::from(x.wrapping_abs()),
        ];
        let want: Vec<i64> = rows.iter().flat_map(|f| xs.iter().map(|&x| f(x))).collect();
        assert_eq!(y.to_vec()?, want, "{}", stringify!($ty));
    )*};
}

/// ptxas takes PTX's `neg` and `abs` not to wrap.
#[test]
fn the_least_integer_is_its_own_negative() -> Result<()> {
    for stream in &streams() {
        negatives_of!(stream, i8, i16, i32, i64);
    }
    Ok(())
}

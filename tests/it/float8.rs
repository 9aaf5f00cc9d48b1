//! Floats of 8 bits on every device: every one of them to longer floats, every 16-bit float to them, and
//! products of matrices in every order of the operands.

use genesis::ops::ScaledMatmul;
use genesis::{DType, Device, Tensor};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::prelude::{f8e4m3, f8e5m2};
use genesis_kernel::runtime::{Arg, Array, AsView, AsViewMut, HostElement, Stream};
use half::{bf16, f16};

use crate::gpu::gpu;

const BOTH: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];

fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Compares a tensor's conversion with that of each of its values alone.
fn check_conversion(x: &Tensor, to: DType, one: impl Fn(f64) -> f64) -> genesis::Result<()> {
    let (from, got) = (x.to_f64_vec()?, x.to_dtype(to)?.to_f64_vec()?);
    assert_eq!(from.len(), got.len());
    for (&value, &got) in from.iter().zip(&got) {
        let want = one(value);
        assert!(is_same(got, want), "{value} as {to} on {}: {got}, not {want}", x.device());
    }
    Ok(())
}

fn to_f8(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F8E4M3 => f8e4m3::from_f64(value).to_f64(),
        _ => f8e5m2::from_f64(value).to_f64(),
    }
}

fn every<T: HostElement>(device: Device, of: impl Fn(u16) -> T) -> genesis::Result<Tensor> {
    let values: Vec<T> = (0..=u16::MAX).map(of).collect();
    Tensor::from_slice_on(&values, &[values.len()], device)
}

#[test]
fn conversions_are_exact_or_rounded_once() -> genesis::Result<()> {
    for device in crate::gpu::devices("floats of 8 bits") {
        let e4m3 = every(device, |bits| f8e4m3::from_bits(bits as u8))?;
        let e5m2 = every(device, |bits| f8e5m2::from_bits(bits as u8))?;
        for x in [&e4m3, &e5m2] {
            for to in [DType::F32, DType::F16, DType::BF16, DType::F64] {
                check_conversion(x, to, |value| value)?;
            }
        }
        let halves = every(device, f16::from_bits)?;
        let brains = every(device, bf16::from_bits)?;
        // The lower bits of an f32 decide whether a tie is one.
        let singles = every(device, |bits| f32::from_bits(u32::from(bits) << 16 | 1))?;
        for to in BOTH {
            for x in [&halves, &brains, &singles, &singles.to_dtype(DType::F64)?] {
                check_conversion(x, to, |value| to_f8(to, value))?;
            }
        }
    }
    Ok(())
}

#[test]
fn they_move_like_any_other_dtype() -> genesis::Result<()> {
    for device in crate::gpu::devices("floats of 8 bits") {
        for dtype in BOTH {
            let x = Tensor::arange(0.0, 12.0, 1.0, (dtype, device))?.reshape(&[3, 4])?;
            let turned = x.t()?.copy()?.reshape(&[12])?;
            let want = [0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0];
            let want: Vec<f64> = want.iter().map(|&v| to_f8(dtype, v)).collect();
            assert_eq!(turned.to_f64_vec()?, want);
            let zero = Tensor::zeros(&[3, 4], (dtype, device))?;
            let chosen = x.gt(&zero);
            assert!(chosen.is_err(), "comparisons are of numbers");
        }
    }
    Ok(())
}

/// The largest distance of a product from f64, relative to the root of the inner extent.
fn error_of(c: &[f64], a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> f64 {
    let at = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f64>();
    let rows = (0..m).step_by(7.min(m)).flat_map(|i| (0..n).step_by(5).map(move |j| (i, j)));
    rows.map(|(i, j)| (c[i * n + j] - at(i, j)).abs()).fold(0.0, f64::max) / (k as f64).sqrt()
}

/// How far a product of ours may be off by [`error_of`]. Tensor cores add products of 8-bit floats with
/// 14 bits, a step of 32 products after the other: an H200 is off by 2.5e-3 with all sums so.
fn allowed(fast: bool) -> f64 {
    if fast { 1e-2 } else { 2e-3 }
}

#[test]
fn products_take_any_order_of_operands() -> genesis::Result<()> {
    for device in crate::gpu::devices("products of floats of 8 bits") {
        let size = if device.is_cuda() { [200, 264, 528] } else { [33, 20, 70] };
        let [m, n, k] = size;
        let one = Tensor::ones(&[1], device)?;
        for dtype in BOTH {
            let a = Tensor::randn(&[m, k], device)?.to_dtype(dtype)?;
            let b = Tensor::randn(&[k, n], device)?.to_dtype(dtype)?;
            let (x, y) = (a.to_f64_vec()?, b.to_f64_vec()?);
            for a in [a.clone(), a.t()?.copy()?.t()?] {
                for b in [b.clone(), b.t()?.copy()?.t()?] {
                    for fast in [false, true] {
                        let options = ScaledMatmul { dtype: DType::F32, fast };
                        let c = a.scaled_matmul(&b, &one, &one, options)?.to_f64_vec()?;
                        let error = error_of(&c, &x, &y, size);
                        assert!(error < allowed(fast), "{dtype} {fast} on {device}: {error}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// Each tile that launches choose from, whole and cut off by edges.
fn check_tiles(
    stream: &Stream,
    size: [usize; 3],
    tiles: &[([i64; 3], u32)],
) -> Result<(), genesis_kernel::Error> {
    let [m, n, k] = size;
    let draw = |len: usize, by: usize| -> Vec<f8e4m3> {
        (0..len).map(|i| f8e4m3::from_f32(((i * by) % 31) as f32 / 8.0 - 1.75)).collect()
    };
    let (x, y) = (draw(m * k, 7), draw(k * n, 11));
    let (a, b) = (stream.upload(&x)?, stream.upload(&y)?);
    let scale = stream.upload(&[0.5f32])?;
    // B lies as [N, K].
    let across: Vec<f64> = (0..k * n).map(|i| y[i % n * k + i / n].to_f64()).collect();
    let x: Vec<f64> = x.iter().map(|v| v.to_f64()).collect();
    for &(tile, num_warps) in tiles {
        for kernel in kernels::matmul_f8::KERNELS {
            let mut c = Array::<f32>::zeros(stream, m * n)?;
            let a = a.strided(0, [1, m, k], [(m * k) as i64, k as i64, 1])?;
            let b = b.strided(0, [1, k, n], [(k * n) as i64, 1, k as i64])?;
            let args: [Arg; 5] = [
                AsView::<f8e4m3, 3>::as_arg(&a).arg(),
                AsView::<f8e4m3, 3>::as_arg(&b).arg(),
                AsView::<f32, 1>::as_arg(&&scale).arg(),
                AsView::<f32, 1>::as_arg(&&scale).arg(),
                AsViewMut::<f32, 3>::as_arg(&c.view_mut([1, m, n])?).arg(),
            ];
            let programs = m.div_ceil(tile[0] as usize) * n.div_ceil(tile[1] as usize);
            let options = LaunchOptions { num_warps: Some(num_warps), ..LaunchOptions::default() };
            let dtypes = [DType::F8E4M3, DType::F32];
            // SAFETY: the views are over arrays that live, and only `c` is written.
            unsafe {
                kernel.launch_with(stream, Grid::x(programs), &dtypes, &tile, options, &args)?;
            }
            let c: Vec<f64> = c.to_vec()?.iter().map(|&v| f64::from(v) * 4.0).collect();
            let error = error_of(&c, &x, &across, size);
            // The numbers here are no random ones: more of them have the same sign.
            let allowed = 2.0 * allowed(kernel.name().contains("fast"));
            assert!(error < allowed, "{} {tile:?} {size:?}: {error}", kernel.name());
        }
    }
    Ok(())
}

#[test]
fn tiles_agree_with_f64() -> Result<(), genesis_kernel::Error> {
    check_tiles(&Device::Cpu.stream(), [40, 24, 48], &[([16, 16, 32], 4)])?;
    if gpu("tiles of 8-bit floats").is_none() {
        return Ok(());
    }
    let tiles = [
        ([128, 128, 128], 8),
        ([64, 128, 128], 4),
        ([128, 64, 128], 8),
        ([64, 64, 128], 4),
        ([64, 64, 32], 4),
    ];
    for size in [[128, 128, 256], [200, 272, 1040], [100, 60, 50]] {
        check_tiles(&Device::Cuda(0).stream(), size, &tiles)?;
    }
    Ok(())
}

//! Kernels as programs launch them, on the CPU.

use genesis_kernel::prelude::*;
use genesis_kernel::{DType, Device, Error, Grid, Hints, Target};

/// `out = x + y`
#[kernel]
pub fn add<T: Number, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let mask = i < n;
    store(out + i, load(x + i, mask) + load(y + i, mask), mask);
}

/// `y = 2 x` over a view of any strides.
#[kernel]
pub fn double<T: Float, const M: usize, const N: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let v = x.load::<M, N>([i, j]);
    y.store([i, j], v + v);
}

#[test]
fn adds_on_the_cpu() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let n = 1000;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = x.iter().map(|v| 0.5 * v).collect();
    let (x_gpu, y_gpu) = (stream.upload(&x)?, stream.upload(&y)?);
    let mut out = stream.upload(&vec![-1.0f32; n + 1])?;
    // SAFETY: all three have at least `n` elements.
    unsafe {
        add::launch::<f32, _, _, _, _>(
            &stream,
            Grid::x(n.div_ceil(128)),
            add::Consts { BLOCK: 128 },
            (&x_gpu, &y_gpu, &mut out, n),
        )?;
    }
    let out = out.to_vec()?;
    assert!(out[..n].iter().zip(&x).all(|(o, x)| *o == 1.5 * x));
    assert_eq!(out[n], -1.0);
    Ok(())
}

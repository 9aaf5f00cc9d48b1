//! Results that must not change: kernels whose warps wait for each other, a thousand times each, bit for
//! bit. Run with `GENESIS_DELAYS=1` the warps meet in another order each time.

use genesis::autograd::BackwardOptions;
use genesis::ops::{Attention, AttentionBackend};
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::gpu;

/// How often each op runs.
const REPEATS: usize = 1000;

/// Runs an op again and again and compares every result with the first one.
fn repeat(name: &str, mut run: impl FnMut() -> Result<Tensor>) -> Result<()> {
    let mut bits = || -> Result<Vec<u32>> {
        let floats = run()?.to_dtype(DType::F32)?.to_vec::<f32>()?;
        Ok(floats.into_iter().map(f32::to_bits).collect())
    };
    let first = bits()?;
    for i in 1..REPEATS {
        assert!(bits()? == first, "{name}: run {i} differs from the first");
    }
    Ok(())
}

/// Normal numbers of a dtype.
fn draw(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    Tensor::randn(shape, device)?.to_dtype(dtype)
}

#[test]
fn products_do_not_change() -> Result<()> {
    let Some(device) = gpu("a thousand products") else { return Ok(()) };
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        // Tiles at every edge, and more of them than the GPU takes at once.
        for [m, n, k] in [[1032, 648, 1096], [512, 512, 512]] {
            let (a, b) = (draw(&[m, k], dtype, device)?, draw(&[k, n], dtype, device)?);
            repeat(&format!("{dtype} {m}x{n}x{k}"), || a.matmul(&b))?;
        }
    }
    Ok(())
}

#[test]
fn rows_do_not_change() -> Result<()> {
    let Some(device) = gpu("a thousand softmaxes and sums") else { return Ok(()) };
    for (rows, columns) in [(64, 1000), (16, 8192), (8, 50_000)] {
        let x = draw(&[rows, columns], DType::F32, device)?;
        repeat(&format!("softmax of {rows}x{columns}"), || x.softmax(-1))?;
        repeat(&format!("sum of {rows}x{columns}"), || x.sum())?;
    }
    Ok(())
}

#[test]
fn attention_and_its_gradients_do_not_change() -> Result<()> {
    let Some(device) = gpu("a thousand attentions") else { return Ok(()) };
    for (n, d, is_causal) in [(520, 64, true), (333, 128, false), (384, 128, true)] {
        let of = |heads| draw(&[1, heads, n, d], DType::BF16, device)?.requires_grad_(true);
        let (q, k, v) = (of(4)?, of(2)?, of(2)?);
        let backend = AttentionBackend::Flash;
        let options = Attention { is_causal, groups: true, backend, ..Attention::default() };
        let dy = draw(q.shape(), DType::BF16, device)?;
        repeat(&format!("attention of {n} and {d}"), || {
            let y = q.scaled_dot_product_attention(&k, &v, &options)?;
            y.backward_with(Some(&dy), BackwardOptions::default())?;
            let grads = [&q, &k, &v].map(|t| t.grad().expect("all want a gradient"));
            [&q, &k, &v].into_iter().for_each(Tensor::zero_grad);
            let flat = |t: &Tensor| t.detach().reshape(&[t.numel()]);
            let all = [flat(&y)?, flat(&grads[0])?, flat(&grads[1])?, flat(&grads[2])?];
            Tensor::cat(&all.each_ref(), 0)
        })?;
    }
    Ok(())
}

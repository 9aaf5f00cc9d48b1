//! What steps of language models launch.

use genesis::autograd::no_grad;
use genesis::models::{FeedForwardLayer, GatedMlp, Norm, Projection, Residual};
use genesis::nn::{Module, Parameter, QuantizedEmbedding, QuantizedLinear, Weight};
use genesis::ops::{
    Activation, CacheSlots, Gate, PagedAttention, PagedLayout, Penalties, QuantScheme,
    QuantizedWeight, Rotation, SampleTokens,
};
use genesis::{DType, Device, Result, Tensor};

/// One step of a layer for each dtype; lengths are no multiples of a tile.
pub(super) fn run(device: Device) -> Result<()> {
    for (dtype, head) in [(DType::BF16, 64), (DType::F32, 24)] {
        run_products((dtype, device))?;
        run_cache((dtype, device), head)?;
    }
    run_sampling(device)
}

type At = (DType, Device);

fn randn(shape: &[usize], (dtype, device): At) -> Result<Tensor> {
    Tensor::randn(shape, device)?.to_dtype(dtype)
}

fn whole(values: &[f64], shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::from_f64(values, shape, (DType::I64, device))
}

fn run_products(at: At) -> Result<()> {
    let (weight, bias) = (randn(&[70, 512], at)?, randn(&[70], at)?);
    for rows in [1, 3, 70] {
        let x = randn(&[rows, 512], at)?;
        x.linear_rows(&weight, Some(&bias))?;
        for (bits, zero_points) in [(4, true), (8, false)] {
            let scheme = QuantScheme { bits, group: Some(32), zero_points };
            let layer =
                QuantizedLinear { weight: QuantizedWeight::quantize(&weight, scheme)?, bias: None };
            layer.forward(&x)?;
            let table = QuantizedEmbedding { weight: layer.weight, dtype: at.0 };
            table.forward(&whole(&[0.0, 69.0, 5.0], &[3], at.1)?)?;
        }
        let norm = Norm { weight: Parameter::new(randn(&[512], at)?)?, eps: 1e-6, offset: 0.0 };
        for scheme in [None, Some(QuantScheme::INT8)] {
            let (stream, normed) = no_grad(|| Residual::new(x.clone()).before(&norm, true))?;
            no_grad(|| mlp(at, 512, scheme)?.onto(&normed, stream, Some(&norm))?.whole())?;
        }
        // A long K, of which a program has a part.
        randn(&[rows, 2100], at)?.linear_rows(&randn(&[70, 2100], at)?, None)?;
        let param = randn(&[512], at)?;
        let param = param.requires_grad_(true)?;
        let (sum, y) = x.add_rms_norm(&x, &param, 1e-6)?;
        let (sum, y) = sum.add_layer_norm(&y, &param, &param, 1e-6)?;
        sum.add(&y)?.sum()?.backward()?;
        let both = x.detach().requires_grad_(true)?;
        both.gated(Gate::Silu)?.sum()?.backward()?;
    }
    Ok(())
}

/// A gated layer as generation has it: what follows a product is computed with it.
fn mlp(at: At, width: usize, scheme: Option<QuantScheme>) -> Result<GatedMlp> {
    let product = |shape: [usize; 2]| {
        let weight = randn(&shape, at)?;
        let weight = match scheme {
            Some(scheme) => Weight::Quantized(QuantizedWeight::quantize(&weight, scheme)?),
            None => Parameter::new(weight)?.into(),
        };
        Ok::<_, genesis::Error>(Projection { weight, bias: None })
    };
    let mut mlp = GatedMlp {
        gate_proj: product([96, width])?,
        up_proj: product([96, width])?,
        down_proj: product([width, 96])?,
        activation: Activation::Silu,
        parallel: None,
    };
    mlp.requires_grad_(false)?;
    mlp.pack()?;
    Ok(mlp)
}

/// Five new tokens of two sequences, of 3 and of 700 keys, in pages of 16.
fn run_cache(at: At, head: usize) -> Result<()> {
    let device = at.1;
    let (q, k, v) =
        (randn(&[5, 4, head], at)?, randn(&[5, 2, head], at)?, randn(&[5, 2, head], at)?);
    let (keys, values) = (randn(&[48, 16, 2, head], at)?, randn(&[48, 16, 2, head], at)?);
    let slots = whole(&[0.0, 1.0, 2.0, 700.0, -1.0], &[5], device)?;
    let inv_freq = Tensor::from_f64(&vec![0.5; head / 2], &[head / 2], (DType::F32, device))?;
    let weight = randn(&[head], at)?;
    let positions = whole(&[0.0, 1.0, 2.0, 698.0, 699.0], &[5], device)?;
    let rotation = Rotation {
        positions: &positions,
        inv_freq: &inv_freq,
        scale: 1.0,
        norm: Some((&weight, &weight, 1e-6)),
    };
    let cache = CacheSlots { keys: &keys, values: &values, slots: &slots };
    let q = q.rotate_and_cache(&k, &v, &rotation, &cache)?;
    keys.write_slots_(&k, &slots)?;
    let table: Vec<f64> = (0..88).map(|page| f64::from(page % 48)).collect();
    let layout = PagedLayout {
        query_starts: &whole(&[0.0, 3.0, 5.0], &[3], device)?,
        key_lengths: &whole(&[3.0, 700.0], &[2], device)?,
        pages: &whole(&table, &[2, 44], device)?,
        max_queries: 3,
        max_keys: 700,
    };
    let sinks = Some(randn(&[4], at)?);
    let options = PagedAttention { window: Some(100), softcap: Some(5.0), sinks, scale: None };
    for options in [PagedAttention::default(), options] {
        q.paged_attention(&keys, &values, &layout, &options)?;
    }
    // A decode step.
    let (q, k, v) =
        (randn(&[2, 4, head], at)?, randn(&[2, 2, head], at)?, randn(&[2, 2, head], at)?);
    let layout = PagedLayout {
        query_starts: &whole(&[0.0, 1.0, 2.0], &[3], device)?,
        key_lengths: &whole(&[3.0, 140.0], &[2], device)?,
        pages: &whole(&table[..18], &[2, 9], device)?,
        max_queries: 1,
        max_keys: 140,
    };
    let rotation =
        Rotation { positions: &whole(&[2.0, 139.0], &[2], device)?, norm: None, ..rotation };
    let cache = CacheSlots { slots: &whole(&[2.0, 283.0], &[2], device)?, ..cache };
    q.rotate_and_attend(&k, &v, &rotation, &cache, &layout, &PagedAttention::default())?;
    // A prompt.
    let layout = PagedLayout {
        query_starts: &whole(&[0.0, 70.0], &[2], device)?,
        key_lengths: &whole(&[75.0], &[1], device)?,
        pages: &whole(&table[..5], &[1, 5], device)?,
        max_queries: 70,
        max_keys: 80,
    };
    let q = randn(&[70, 4, head], at)?;
    q.paged_attention(&keys, &values, &layout, &PagedAttention::default())?;
    Ok(())
}

fn run_sampling(device: Device) -> Result<()> {
    let at = (DType::F32, device);
    let logits = randn(&[3, 1000], at)?;
    let of = |value: f64| Tensor::full(&[3], value, at);
    let (half, none) = (of(0.5)?, whole(&[0.0; 3], &[3], device)?);
    let counts = Tensor::ones(&[3, 1000], (DType::I32, device))?;
    let penalties = Penalties {
        repetition: &half,
        presence: &half,
        frequency: &half,
        prompt: &counts,
        output: &counts,
    };
    for penalties in [None, Some(penalties)] {
        logits.sample_tokens(&SampleTokens {
            temperature: &half,
            top_k: &none,
            top_p: &half,
            min_p: &half,
            seed: &none,
            position: &none,
            penalties,
        })?;
    }
    device.stream().synchronize()?;
    Ok(())
}

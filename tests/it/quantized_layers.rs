//! Layers of quantized weights: a product and what is around it are one launch on a GPU, a row's bits are its own, and
//! what comes out is what the ops give one after the other.

use anyhow::{Result, ensure};
use genesis::autograd::no_grad;
use genesis::generate::{Engine, EngineOptions, Request, generate};
use genesis::models::{FeedForwardLayer, LoadOptions, Residual, WeightForm, load};
use genesis::nn::{Weight, observe};
use genesis::ops::{BlockType, Gate, QuantScheme, QuantizedWeight};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::{DType, Device, Tensor};

use crate::gpu::gpu;
use crate::linear_rows::noise;
use crate::models::folder;
use crate::norm_rows::{Layers, bits, error, stream, weights, whole};

/// In which form a layer has its weights.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Bits, weights of a group, and whether there are minimums.
    Rounded(u32, Option<usize>, bool),
    /// Blocks of a GGUF file.
    Blocks(BlockType),
}

/// Each form that kernels tell apart: one scale for a row, steps of one group and of several, minimums.
const FORMS: [Form; 9] = [
    Form::Rounded(8, None, false),
    Form::Rounded(4, Some(128), false),
    Form::Rounded(8, Some(64), false),
    Form::Rounded(4, Some(32), true),
    Form::Rounded(8, Some(128), true),
    Form::Blocks(BlockType::Q4_0),
    Form::Blocks(BlockType::Q8_0),
    Form::Blocks(BlockType::Q4_K),
    Form::Blocks(BlockType::Q6_K),
];

impl Form {
    /// A weight of this form: blocks have numbers of their own, which follow from the first of a row.
    fn weight(self, of: &Tensor) -> Result<QuantizedWeight> {
        let &[m, k] = of.shape() else { anyhow::bail!("{:?} is no matrix", of.shape()) };
        let ty = match self {
            Form::Rounded(bits, group, zero_points) => {
                let scheme = QuantScheme { bits, group, zero_points };
                return Ok(QuantizedWeight::quantize(of, scheme)?);
            }
            Form::Blocks(ty) => ty,
        };
        // Weights and bytes of a block, and where it has factors of f16, so that weights are about 1.
        let (block, bytes, factors): (usize, usize, &[(usize, f32)]) = match ty {
            BlockType::Q4_0 => (32, 18, &[(0, 0.2)]),
            BlockType::Q8_0 => (32, 34, &[(0, 0.013)]),
            BlockType::Q4_K => (256, 144, &[(0, 0.005), (2, 0.0375)]),
            BlockType::Q6_K => (256, 210, &[(208, 0.0008)]),
            other => anyhow::bail!("no test has {other:?}"),
        };
        let values = of.to_f64_vec()?;
        let row = |row: &[f64]| noise(k / block * bytes, (row[0] as f32).to_bits().into());
        let all = values.chunks_exact(k).flat_map(row);
        let mut all: Vec<u8> = all.map(|v| (v * 127.0) as i8 as u8).collect();
        for block in all.chunks_exact_mut(bytes) {
            for &(at, factor) in factors {
                let factor = half::f16::from_f32(factor / (k as f32).sqrt());
                block[at..at + 2].copy_from_slice(&factor.to_le_bytes());
            }
        }
        Ok(QuantizedWeight::from_ggml(&all, ty, [m, k], of.device())?)
    }
}

/// Two layers by the GPU's kernels, and the same in f32.
fn layers(
    weights: &[[Tensor; 4]; 2],
    form: Form,
    device: Device,
    offset: f64,
) -> Result<(Layers, Layers)> {
    let quantized = |t: &Tensor| Ok(Weight::Quantized(form.weight(t)?));
    let rounded = |t: &Tensor| {
        // Of the rounded numbers that the other layers have.
        let t = t.to_dtype(DType::BF16)?;
        whole(&form.weight(&t)?.dequantize(DType::F32)?)
    };
    let own = Layers::new(weights, (DType::BF16, device), offset, &quantized)?;
    Ok((own, Layers::new(weights, (DType::F32, Device::Cpu), offset, &rounded)?))
}

/// What `run` gives where every op is a launch of its own.
fn one_by_one<R>(layers: &Layers, run: impl FnOnce() -> R) -> R {
    observe(&layers.mlps[0], |_| Ok(()), run)
}

/// The stream behind the first layer.
fn first_layer(layers: &Layers, x: &Tensor) -> Result<Tensor> {
    no_grad(|| {
        let (stream, normed) = Residual::new(x.clone()).before(&layers.norms[0], false)?;
        Ok(layers.mlps[0].onto(&normed, stream, None)?.whole()?)
    })
}

/// [`first_layer`], of one product of gates and what they let through.
fn op_by_op(
    [gate, up, down, _]: &[Tensor; 4],
    form: Form,
    layers: &Layers,
    x: &Tensor,
) -> Result<Tensor> {
    let weight = |t: &Tensor| form.weight(&t.to_device(x.device())?);
    let (both, down) = (weight(&Tensor::cat(&[gate, up], 0)?)?, weight(down)?);
    let normed = no_grad(|| layers.norms[0].forward(x))?;
    let hidden = normed.quantized_linear(&both, None)?.gated(Gate::Silu)?;
    Ok(x.add(&hidden.quantized_linear(&down, None)?)?)
}

fn check(shape: [usize; 2], form: Form, device: Device, rows: usize) -> Result<()> {
    let weights = weights(shape[0], shape[1])?;
    let (own, wide) = layers(&weights, form, device, 1.0)?;
    let x = stream(rows, shape[0])?;
    let expected = wide.run(&x.to_dtype(DType::F32)?, false)?;
    let x = x.to_device(device)?;
    let is_gpu = matches!(device, Device::Cuda(_));
    ensure!(no_grad(|| own.mlps[0].defers_norm()) == is_gpu, "{form:?} on {device}");
    let all = own.run(&x, is_gpu)?;
    let fused = error(&all, &expected)?;
    let usual = error(&one_by_one(&own, || own.run(&x, false))?, &expected)?;
    ensure!(usual < 0.05, "{form:?}: off by {usual}");
    ensure!(fused < 1.5 * usual, "{form:?}: off by {fused}, ops of their own by {usual}");
    // Gates and residuals alone are to the bit what ops of their own give.
    let ops = op_by_op(&weights[0], form, &own, &x)?;
    ensure!(bits(&first_layer(&own, &x)?)? == bits(&ops)?, "{form:?}: gates and residuals");
    for count in [1, 2, 8, 9, 17, 64, 100].into_iter().filter(|&count| count < rows) {
        for first in [0, rows - count] {
            let few = own.run(&x.narrow(0, first, count)?, is_gpu)?;
            let same = bits(&few)? == bits(&all.narrow(0, first, count)?)?;
            ensure!(
                same,
                "{form:?} {shape:?}: {count} rows of {rows} from {first} on, on {device}"
            );
        }
    }
    Ok(())
}

/// Channels, of which the hidden ones are gates of half of a tile and more.
const SMALL: [usize; 2] = [256, 768];

#[test]
fn forms_on_processors_are_near_f32() -> Result<()> {
    FORMS.into_iter().try_for_each(|form| check(SMALL, form, Device::Cpu, 20))
}

/// Parts of K that are programs of their own, and that follow each other; one part.
#[test]
fn forms_on_a_gpu_are_near_f32_and_rows_keep_their_bits() -> Result<()> {
    let Some(device) = gpu("layers of quantized weights") else { return Ok(()) };
    for form in FORMS {
        for shape in [[1024, 512], [2048, 256], [256, 4352]] {
            check(shape, form, device, 130)?;
        }
    }
    Ok(())
}

/// As much of it as an emulator does.
#[test]
fn a_few_rows_on_a_gpu_keep_their_bits() -> Result<()> {
    let Some(device) = gpu("layers of quantized weights") else { return Ok(()) };
    for form in [FORMS[0], FORMS[1], FORMS[7]] {
        check(SMALL, form, device, 18)?;
    }
    Ok(())
}

#[test]
fn a_layer_is_two_launches() -> Result<()> {
    let Some(device) = gpu("launches of quantized layers") else { return Ok(()) };
    for form in FORMS {
        let (own, _) = layers(&weights(SMALL[0], SMALL[1])?, form, device, 0.0)?;
        let x = stream(1, SMALL[0])?.to_device(device)?;
        // What is made once for a device.
        own.run(&x, true)?;
        let (y, profile) = profile(ProfilerOptions::default(), |_| Ok(own.run(&x, true)))?;
        y?;
        let events = profile.events();
        // Gates whose rows have one scale each are multiplied together with what they let through.
        let launched = events.launches.iter().map(|launch| launch.kernel);
        let names: Vec<String> = launched.map(|name| name.replace("_paired", "_gated")).collect();
        let layer = ["quantized_tiles_of_codes_gated", "quantized_tiles_of_codes"];
        ensure!(names == [&["rms_of_rows"][..], &layer, &layer].concat(), "{form:?}: {names:?}");
    }
    Ok(())
}

/// The kernels that answer a request, by a model with such weights.
fn kernels_of(weights: WeightForm, device: Device) -> Result<Vec<&'static str>> {
    let options =
        LoadOptions { dtype: Some(DType::BF16), device, weights, ..LoadOptions::default() };
    let model = load(folder("qwen3_tied"), &options)?.model;
    // Recorded steps are no launches.
    let options = EngineOptions {
        page_size: 4,
        pages: Some(64),
        on_device: Some(false),
        prefix_cache: false,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(model, None, options)?;
    let request = Request { prompt: vec![1, 2, 3], max_tokens: 3, ..Request::default() };
    let mut answer = || generate(&mut engine, std::slice::from_ref(&request), &mut |_, _| {});
    answer()?;
    let (_, profile) = profile(ProfilerOptions::default(), |_| answer())?;
    Ok(profile.events().launches.iter().map(|launch| launch.kernel).collect())
}

/// Six for each layer: three products, the rotation, attention, the gated product.
#[test]
fn a_model_of_codes_has_as_many_launches_as_one_of_tensors() -> Result<()> {
    let Some(device) = gpu("launches of quantized models") else { return Ok(()) };
    let whole = kernels_of(WeightForm::Whole, device)?;
    for form in [WeightForm::Int8, WeightForm::Int4] {
        let kernels = kernels_of(form, device)?;
        ensure!(kernels.len() == whole.len(), "{form:?}: {kernels:?}, not as {whole:?}");
        let codes = kernels.iter().filter(|name| name.starts_with("quantized_tiles_of_codes"));
        ensure!(codes.count() > 0, "{form:?}: {kernels:?}");
    }
    Ok(())
}

//! Every kernel of the framework, launched a few times with little work: what to run under
//! `compute-sanitizer`, which slows kernels down a hundred times and reads each one anew.
//!
//! ```text
//! compute-sanitizer --tool memcheck ./tests sanitize::ops
//! compute-sanitizer --tool memcheck ./tests sanitize::gradients
//! compute-sanitizer --tool memcheck ./tests sanitize::updates
//! compute-sanitizer --tool memcheck ./tests sanitize::scalars
//! compute-sanitizer --tool memcheck ./tests sanitize::products
//! compute-sanitizer --tool memcheck ./tests sanitize::draws
//! compute-sanitizer --tool memcheck ./tests sanitize::steps
//! compute-sanitizer --tool memcheck ./tests sanitize::convolutions
//! compute-sanitizer --tool memcheck ./tests sanitize::attention
//! compute-sanitizer --tool memcheck ./tests sanitize::language_models
//! compute-sanitizer --tool memcheck ./tests language
//! ```
//!
//! The same with `--tool racecheck`. [`nothing_is_left_out`] does all of it on the CPU or the GPU and
//! finds the kernels that none of these launches.

mod language_models;

use std::process::Command;

use genesis::amp::{GradScaler, GradScalerOptions};
use genesis::nn::{Dropout, Gelu, LayerNorm, Linear, Module, RmsNorm, Sequential};
use genesis::ops::info::{OpInfo, Sample, all};
use genesis::ops::{Activation, Attention, AttentionBackend, BatchStats, Conv, Reduction, Varlen};
use genesis::optim::{
    Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamW8bit,
    AdamW8bitOptions, AdamWOptions, Ema, Lamb, LambOptions, Lion, LionOptions, Optimizer, RmsProp,
    RmsPropOptions, Sgd, SgdOptions, clip_grad_norm_,
};
use genesis::random::Generator;
use genesis::{DType, Device, Result, ScatterReduce, Tensor};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Array, AsView, AsViewMut};

use crate::gpu::gpu;
use crate::ops::{Lay, check_forward, inputs};

/// The GPU. The CPU does all of it in [`nothing_is_left_out`].
fn wanted() -> Option<Device> {
    gpu("every kernel once")
}

/// The first and the last sample of an op that have elements, and not too many.
fn samples(info: &OpInfo) -> Vec<Sample> {
    let is_small = |sample: &Sample| {
        sample.iter().all(|shape| (1..1 << 16).contains(&shape.iter().product::<usize>()))
    };
    let mut small = info.samples.iter().copied().filter(is_small);
    small.next().into_iter().chain(small.next_back()).collect()
}

/// f32 and bf16 where the op takes them, else the first dtype it takes.
fn dtypes(info: &OpInfo) -> Vec<DType> {
    let usual = [DType::F32, DType::BF16];
    let taken: Vec<DType> = usual.into_iter().filter(|d| info.dtypes.contains(d)).collect();
    if taken.is_empty() { info.dtypes.iter().take(1).copied().collect() } else { taken }
}

#[test]
fn ops_of_every_kind() {
    wanted().into_iter().for_each(run_ops);
}

fn run_ops(device: Device) {
    let mut problems = Vec::new();
    for info in all() {
        let dtypes = dtypes(info);
        for (sample, &dtype) in
            samples(info).into_iter().flat_map(|s| dtypes.iter().map(move |d| (s, d)))
        {
            for lay in [Lay::Contiguous, Lay::Stepped, Lay::Transposed] {
                problems.extend(check_forward(info, sample, dtype, lay, device).err());
            }
        }
        // Integers have kernels of their own.
        if let Some(&sample) = samples(info).first().filter(|_| info.dtypes.contains(&DType::I64)) {
            problems.extend(check_forward(info, sample, DType::I64, Lay::Contiguous, device).err());
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The gradient of the sum of an op's result, in f32.
fn backward(info: &OpInfo, sample: Sample, device: Device) -> Result<()> {
    let (_, tensors) = inputs(info, sample, DType::F32, Lay::Contiguous, device)?;
    let leaves: Vec<Tensor> = tensors
        .into_iter()
        .map(|t| if t.dtype().is_float() { t.requires_grad_(true) } else { Ok(t) })
        .collect::<Result<_>>()?;
    let sum = (info.call)(&leaves)?.sum()?;
    // Steps have no gradient.
    if sum.requires_grad() { sum.backward() } else { Ok(()) }
}

#[test]
fn gradients_of_every_kind() -> Result<()> {
    wanted().into_iter().try_for_each(run_gradients)
}

fn run_gradients(device: Device) -> Result<()> {
    for info in all().iter().filter(|info| info.is_differentiable) {
        for sample in samples(info).into_iter().take(1) {
            backward(info, sample, device)?;
        }
    }
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn updates_and_layers() -> Result<()> {
    wanted().into_iter().try_for_each(run_updates)
}

fn run_updates(device: Device) -> Result<()> {
    let model = Sequential::new()
        .with(Linear::new(32, 48, device)?)
        .with(LayerNorm::new(48, device)?)
        .with(Gelu)
        .with(Dropout::new(0.5))
        .with(RmsNorm::new(48, device)?)
        .with(Linear::new(48, 10, device)?);
    let x = Tensor::randn(&[20, 32], device)?;
    let targets = Tensor::randint(0, 10, &[20], (DType::I64, device))?;
    let momentum = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
    let optimizers: [Box<dyn Optimizer>; 3] = [
        Box::new(Sgd::new(model.parameters(), SgdOptions { lr: 0.1, ..SgdOptions::default() })),
        Box::new(Sgd::new(model.parameters(), momentum)),
        Box::new(AdamW::new(model.parameters(), AdamWOptions::default())),
    ];
    for mut optimizer in optimizers {
        optimizer.zero_grad();
        model.forward(&x)?.cross_entropy(&targets, Reduction::Mean)?.backward()?;
        optimizer.step()?;
    }
    for dtype in [DType::F32, DType::BF16] {
        let noise = Tensor::uniform(&[1000], -1.0, 1.0, (dtype, device))?;
        noise.add(&Tensor::full(&[1000], 2.0, (dtype, device))?)?.to_dtype(DType::F64)?;
    }
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn scalars_and_long_rows() -> Result<()> {
    wanted().into_iter().try_for_each(run_scalars)
}

fn run_scalars(device: Device) -> Result<()> {
    let x = Tensor::randn(&[24, 32], device)?;
    for x in [&x, &x.t()?] {
        x.add_scalar(1.0)?.mul_scalar(2.0)?;
        x.mul_scalar(2.0)?;
        x.div_scalar(3.0)?.rdiv_scalar(1.0)?;
        x.rdiv_scalar(1.0)?;
        x.clamp(-1.0, 1.0)?;
        x.minimum_scalar(0.5)?;
        x.gt_scalar(0.0)?.where_(x, &x.neg()?)?;
    }
    let (row, column) = (Tensor::randn(&[32], device)?, Tensor::randn(&[24, 1], device)?);
    for other in [&row, &column] {
        x.add(other)?.sub(other)?;
        x.mul(other)?.div(other)?;
        x.maximum(other)?.minimum(other)?;
    }
    // More than the host writes by itself.
    Tensor::arange(0.0, 3000.0, 1.0, (DType::F32, device))?;
    Tensor::linspace(0.0, 1.0, 3000, (DType::F32, device))?;
    Tensor::logspace(0.0, 1.0, 3000, 2.0, (DType::F32, device))?;
    // Rows that a program keeps, that a cluster keeps, and that are read twice, of which some begin within a vector.
    for [m, n] in [[2, 20_000], [2, 40_000], [1, 70_001], [2, 70_001]] {
        let rows = Tensor::randn(&[m, n], device)?;
        rows.softmax(-1)?;
        rows.log_softmax(-1)?;
    }
    let leaf = |shape: &[usize]| Tensor::randn(shape, device)?.requires_grad_(true);
    // Slices of the larger values.
    let (table, line) =
        (Tensor::zeros(&[9, 40], device)?, Tensor::zeros(&[5], (DType::I64, device))?);
    let rows = Tensor::ones(&[5, 40], device)?;
    table.index_reduce(0, &line, &rows, ScatterReduce::Amax, true)?;
    // The gradient of `digamma`, which is composed where that is asked for.
    leaf(&[6, 8])?.polygamma(1)?;
    leaf(&[6, 8])?.t()?.narrow(0, 2, 3)?.polygamma(1)?;
    let (x, w, b) = (leaf(&[2, 20_000])?, leaf(&[20_000])?, leaf(&[20_000])?);
    x.layer_norm(&w, &b, 1e-5)?.add(&x.rms_norm(&w, 1e-5)?)?.sum()?.backward()?;
    let index = Tensor::randint(0, 2000, &[3000], (DType::I64, device))?;
    leaf(&[2000, 16])?.embedding(&index)?.sum()?.backward()?;
    // Rows of many pieces, of integers, and of values of 64 bits.
    let rows = Tensor::randn(&[2, 20_000], device)?;
    rows.sort(-1, false)?;
    rows.to_dtype(DType::I32)?.sort(-1, true)?;
    rows.to_dtype(DType::I32)?.narrow(1, 0, 40)?.sort(-1, true)?;
    x.detach().reshape(&[2000, 20])?.index_select(0, &index)?;
    x.detach().narrow(1, 0, 40)?.to_dtype(DType::F64)?.sort(-1, false)?;
    // Distances by products, of points that are far from each other and near.
    let (points, others) = (leaf(&[64, 300])?, leaf(&[60, 300])?);
    points.cdist(&others, 2.0)?.sum()?.backward()?;
    points.add_scalar(100.0)?.cdist(&others.add_scalar(100.0)?, 2.0)?.sum()?.backward()?;
    // Few rows: the operands change places.
    let (few, weight) = (Tensor::randn(&[4, 32], device)?, Tensor::randn(&[32, 48], device)?);
    for activation in [Activation::Relu, Activation::Gelu, Activation::Silu] {
        few.matmul_bias_activation(&weight, &Tensor::randn(&[48], device)?, activation)?;
    }
    // A long K, cut into parts.
    let half = |shape: &[usize]| Tensor::randn(shape, device)?.to_dtype(DType::BF16);
    half(&[128, 4096])?.matmul(&half(&[4096, 128])?)?;
    Tensor::randn(&[20_000, 4], device)?.sum_dims(&[0], false)?;
    Tensor::randn(&[1_000_000], device)?.sum()?;
    Tensor::zeros(&[6, 8], device)?.t()?.narrow(0, 2, 3)?.fill_(1.0)?;
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn products_of_tf32() -> Result<()> {
    wanted().into_iter().try_for_each(run_tf32)
}

/// Products by tensor cores that round to tf32, which the framework takes where a program asks for it, and what is added to
/// others, where those are large.
fn run_tf32(device: Device) -> Result<()> {
    let stream = device.stream();
    let (a, b) = (stream.upload(&[1.0f32; 64 * 64])?, stream.upload(&[2.0f32; 64 * 64])?);
    let mut c = Array::<f32>::zeros(&stream, 64 * 64)?;
    let args: [Arg; 3] = [
        AsView::<f32, 3>::as_arg(&a.view([1, 64, 64])?).arg(),
        AsView::<f32, 3>::as_arg(&b.view([1, 64, 64])?).arg(),
        AsViewMut::<f32, 3>::as_arg(&c.view_mut([1, 64, 64])?).arg(),
    ];
    let products = [
        (&kernels::matmul::matmul_tf32::KERNEL, &[][..]),
        (&kernels::matmul::matmul_add_tf32::KERNEL, &[][..]),
        (&kernels::matmul::matmul_add::KERNEL, &[DType::F32; 2][..]),
        (&kernels::matmul::matmul_add_wide::KERNEL, &[DType::F32; 2][..]),
    ];
    for (kernel, dtypes) in products {
        // SAFETY: the views are over arrays that live, and only `c` is written.
        unsafe { kernel.launch(&stream, Grid::x(1), dtypes, &[64, 64, 32], &args)? };
    }
    assert!(c.to_vec()?.iter().all(|&sum| sum == 4.0 * 128.0));
    Ok(())
}

/// Products whose last tiles are cut along K.
#[test]
fn products_in_parts() -> Result<()> {
    Ok(wanted().into_iter().try_for_each(crate::split_k::run)?)
}

#[test]
fn draws_of_every_kind() -> Result<()> {
    wanted().into_iter().try_for_each(run_draws)
}

fn run_draws(device: Device) -> Result<()> {
    let draws = Generator::new(3);
    let shape = &[1000];
    for dtype in [DType::F32, DType::BF16] {
        let at = (dtype, device);
        draws.uniform(shape, -1.0, 1.0, at)?;
        draws.normal(shape, 0.0, 1.0, at)?;
        draws.log_normal(shape, 0.0, 1.0, at)?;
        draws.truncated_normal(shape, [0.0, 1.0], [-2.0, 2.0], at)?;
        draws.exponential(shape, 1.0, at)?;
        draws.cauchy(shape, 0.0, 1.0, at)?;
        draws.geometric(shape, 0.5, at)?;
        let weights = draws.uniform(&[3, 100], 0.0, 1.0, at)?;
        draws.bernoulli(&weights)?;
        draws.poisson(&weights)?;
        draws.gamma(&weights.add_scalar(0.5)?)?;
        draws.multinomial(&weights, 20, true)?;
        draws.multinomial(&weights, 20, false)?;
        draws.dropout(&weights, 0.5)?;
    }
    draws.uniform(shape, 0.0, 1.0, (DType::F64, device))?;
    draws.randint(0, 100, shape, (DType::I64, device))?;
    draws.randperm(1000, (DType::I64, device))?;
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn steps_of_every_optimizer() -> Result<()> {
    wanted().into_iter().try_for_each(run_steps)
}

/// Steps, clipping, averages and scaled gradients, which write many tensors in one launch.
fn run_steps(device: Device) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        let leaf =
            |shape: &[usize]| Tensor::full(shape, 1.5, (dtype, device))?.requires_grad_(true);
        let weights = vec![leaf(&[40, 30])?, leaf(&[7])?];
        let all = || weights.clone();
        let coded = AdamW8bitOptions { least: 1000.0, ..Default::default() };
        let optimizers: [Box<dyn Optimizer>; 8] = [
            Box::new(Sgd::new(all(), SgdOptions { lr: 0.1, ..Default::default() })),
            Box::new(Adam::new(all(), AdamOptions { amsgrad: true, ..Default::default() })),
            Box::new(RmsProp::new(all(), RmsPropOptions { centered: true, ..Default::default() })),
            Box::new(Adagrad::new(all(), AdagradOptions::default())),
            Box::new(Lion::new(all(), LionOptions::default())),
            Box::new(Lamb::new(all(), LambOptions::default())),
            Box::new(Adafactor::new(all(), AdafactorOptions::default())),
            Box::new(AdamW8bit::new(all(), coded)),
        ];
        let mut averages = Ema::new(weights.clone(), 0.9)?;
        let mut scaler = GradScaler::new(GradScalerOptions::default(), device)?;
        for mut optimizer in optimizers {
            optimizer.zero_grad();
            let sums = weights.iter().map(|w| w.mul(w)?.sum()).collect::<Result<Vec<_>>>()?;
            scaler.scale(&sums[0].add(&sums[1])?)?.backward()?;
            scaler.unscale_(&*optimizer)?;
            clip_grad_norm_(&weights, 1.0, 2.0)?;
            scaler.step(&mut *optimizer)?;
            scaler.update()?;
            averages.update()?;
        }
    }
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn convolutions_of_every_kind() -> Result<()> {
    wanted().into_iter().try_for_each(run_convolutions)
}

/// Windows that move by one over many channels, that skip places, of one element, and of few channels each.
fn run_convolutions(device: Device) -> Result<()> {
    let leaf = |shape: &[usize], dtype: DType| {
        Tensor::full(shape, 0.5, (dtype, device))?.requires_grad_(true)
    };
    let padded = || Conv { padding: vec![[1, 1]; 2], ..Conv::new(2) };
    let cases = [
        ([2, 48, 9, 9], [56, 48, 3, 3], padded()),
        ([2, 16, 4, 4], [24, 16, 1, 1], Conv::new(2)),
        ([2, 16, 9, 9], [8, 16, 3, 3], Conv { stride: vec![2, 2], ..padded() }),
        ([2, 6, 9, 9], [6, 1, 3, 3], Conv { groups: 6, ..padded() }),
    ];
    for (x, weight, conv) in cases {
        for dtype in [DType::F32, DType::BF16] {
            let (x, weight) = (leaf(&x, dtype)?, leaf(&weight, dtype)?);
            let bias = leaf(&weight.shape()[..1], dtype)?;
            x.conv(&weight, Some(&bias), &conv)?.sum()?.backward()?;
        }
    }
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn attention_of_every_form() -> Result<()> {
    wanted().into_iter().try_for_each(run_attention)
}

/// Reductions of rows and of columns, by a program each and by several.
fn run_reductions(device: Device) -> Result<()> {
    for shape in [[3, 40], [1, 9000]] {
        let rows = Tensor::randn(&shape, device)?;
        let columns = rows.unsqueeze(2)?.broadcast_to(&[shape[0], shape[1], 20])?.contiguous()?;
        for x in [rows, columns] {
            let x = x.detach().requires_grad_(true)?;
            x.prod_dim(1, false)?.sum()?.backward()?;
            x.var_dims(&[1], 1.0, false)?.sum()?.backward()?;
            x.std_dims(&[1], 1.0, false)?.sum()?.backward()?;
            let x = x.detach();
            x.std_mean(&[1], 1.0, false)?;
            x.any_dims(&[1], false)?;
            x.all_dims_true(&[1], false)?;
            x.vector_norm(2.0, &[1], false)?;
            x.nansum(&[1], false)?;
            x.aminmax(&[1], false)?;
            x.argmax(1)?;
            x.argmin(1)?;
        }
    }
    // A row that several programs scan, from both ends, and that no tile of a sort holds.
    let x = Tensor::randn(&[40_000], device)?.detach().requires_grad_(true)?;
    x.cumsum(0)?.sum()?.backward()?;
    x.detach().sort(0, false)?;
    x.detach().to_dtype(DType::I32)?.sort(0, true)?;
    // Rows that a tile of a sort holds, and statistics of channels that several parts have.
    let rows = x.detach().narrow(0, 0, 12_000)?.reshape(&[3, 4000])?;
    rows.argsort(1, false)?;
    rows.to_dtype(DType::I32)?.argsort(1, true)?;
    let stats = BatchStats { running: None, training: true, momentum: 0.1, eps: 1e-5 };
    rows.reshape(&[3, 40, 100])?.batch_norm(None, None, &stats)?;
    // The smallest of a row in parts, and of one that a tile holds.
    for row in [x.detach(), x.detach().narrow(0, 0, 2500)?] {
        row.topk(5, 0, true)?;
        row.to_dtype(DType::I32)?.kthvalue(7, 0, false)?;
    }
    let x = Tensor::randn(&[3, 700], device)?.detach().requires_grad_(true)?;
    x.cummax(1)?.0.sum()?.backward()?;
    // Windows of many elements.
    let x = Tensor::randn(&[2, 40, 40], device)?.detach().requires_grad_(true)?;
    x.adaptive_avg_pool(&[3, 2])?.sum()?.backward()?;
    x.adaptive_max_pool(&[3, 2])?.0.sum()?.backward()?;
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn reductions() -> Result<()> {
    wanted().into_iter().try_for_each(run_reductions)
}

/// The flash form and its gradients, on lengths that are no multiples of a block.
fn run_attention(device: Device) -> Result<()> {
    let flash = || Attention { backend: AttentionBackend::Flash, ..Attention::default() };
    let forms = |dtype: DType| -> Result<[Attention; 4]> {
        let bias = Tensor::randn(&[40, 75], device)?.to_dtype(dtype)?;
        Ok([
            flash(),
            Attention { is_causal: true, ..flash() },
            Attention { mask: Some(bias), window: Some((20, 9)), ..flash() },
            Attention { groups: true, dropout: 0.3, softcap: Some(5.0), ..flash() },
        ])
    };
    for (dtype, head) in [(DType::BF16, 64), (DType::F32, 24)] {
        let leaf = |shape: &[usize]| {
            Tensor::randn(shape, device)?.to_dtype(dtype)?.detach().requires_grad_(true)
        };
        for options in forms(dtype)? {
            let heads = if options.groups { 1 } else { 2 };
            let (k, v) = (leaf(&[1, heads, 75, head])?, leaf(&[1, heads, 75, head])?);
            let q = leaf(&[1, 2, 40, head])?;
            q.scaled_dot_product_attention(&k, &v, &options)?.sum()?.backward()?;
            let composed = Attention { backend: AttentionBackend::Composed, ..options };
            q.scaled_dot_product_attention(&k, &v, &composed)?;
        }
        let ends = Tensor::from_f64(&[0.0, 9.0, 75.0], &[3], (DType::I64, device))?;
        let lengths =
            Varlen { cu_seqlens_q: &ends, cu_seqlens_k: &ends, max_seqlen_q: 66, max_seqlen_k: 66 };
        let (q, k, v) = (leaf(&[80, 2, head])?, leaf(&[80, 1, head])?, leaf(&[80, 1, head])?);
        q.varlen_attn(&k, &v, &lengths, &flash())?.sum()?.backward()?;
    }
    device.stream().synchronize()?;
    Ok(())
}

#[test]
fn language_models_step_by_step() -> Result<()> {
    wanted().into_iter().try_for_each(language_models::run)
}

/// Kernels that are launched on GPUs only.
const NOT_ON_THE_CPU: &[&str] = &[
    // A library multiplies matrices and computes convolutions.
    "conv",
    "conv_by_one",
    "conv_by_one_weight",
    "conv_few",
    "conv_few_weight",
    "conv_point_weight",
    "conv_weight",
    "matmul",
    "matmul_add",
    "matmul_add_tf32",
    "matmul_add_wide",
    "matmul_bias",
    "matmul_bias_down",
    "matmul_bias_gelu",
    "matmul_bias_gelu_down",
    "matmul_bias_relu",
    "matmul_bias_relu_down",
    "matmul_bias_silu",
    "matmul_bias_silu_down",
    "matmul_tf32",
    "matmul_wide",
    // Products of few rows go by lanes, not by tiles.
    "linear_tiles",
    "linear_tiles_gated",
    "linear_tiles_paired",
    "quantized_tiles",
    "quantized_tiles_of_codes",
    "quantized_tiles_of_codes_gated",
    "quantized_tiles_of_codes_paired",
    "rms_of_rows",
    // The host walks windows.
    "col2im",
    "im2col",
    "max_pool",
    "max_pool_bwd",
    "max_pool_wide",
    "resample",
    "resample_wide",
    // One program walks through a row, or through what is added, in order.
    "add_at",
    "add_few",
    "add_segments",
    "join_products",
    "join_sums",
    "last_along",
    "merge_rows",
    "multiply_few",
    "multiply_segments",
    "place_words",
    "radix_count_floats",
    "radix_count_ints",
    "radix_scatter_floats",
    "radix_scatter_ints",
    "rank_rows",
    "embedding_bag_bwd",
    "embedding_bag_dots",
    "embedding_bwd",
    "embedding_bwd_small",
    "embedding_merge",
    "embedding_pieces",
    "embedding_starts",
    "prod_at",
    "sum_at",
    "put",
    "radix_count",
    "radix_scatter",
    "radix_scatter_words",
    "radix_select_count_floats",
    "radix_select_count_ints",
    "radix_select_digit",
    "radix_select_rows_of_floats",
    "radix_select_rows_of_ints",
    "radix_select_tally_floats",
    "radix_select_tally_ints",
    "radix_select_write_floats",
    "radix_select_write_ints",
    "radix_sort_rows_of_floats",
    "radix_sort_rows_of_ints",
    "radix_words_of_floats",
    "radix_words_of_ints",
    // On the CPU sums are in order whatever is asked for.
    "add_along",
    "add_rows_unordered",
    "add_unordered",
    "cast_planes",
    // Rows that few programs would have are cut on a GPU.
    "sum_parts",
    "cumsum_parts",
    "cumsum_parts_reverse",
    // Parts, boxes and places are copied by loops of a launch each, which cost little there.
    "copy_parts",
    "pad",
    "pad_around",
    "pad_around_bwd",
    // Made of other ops, composed.
    "join_moments",
    "squares_rows",
    "squares_cols",
    "squares_rows_shared",
    "squares_cols_shared",
    "numbers_rows",
    "numbers_cols",
    "numbers_rows_shared",
    "numbers_cols_shared",
    // Vectors that belong to two rows are no matter there.
    "log_softmax_unaligned",
    "softmax_unaligned",
    // Keys and values of prompts are read where they lie, and a decode step is several launches.
    "paged_decode",
    "paged_gather",
    "paged_prefill",
];

/// Kernels of products of rows on the CPU, which tensor cores multiply on a GPU, and of one element after the other.
const NOT_ON_A_GPU: &[&str] = &[
    "add_in_order",
    "add_named_slices_in_order",
    "add_slices_in_order",
    "extreme_slices_in_order",
    "linear_rows",
    "prod_in_order",
    "put_in_order",
    "quantized_rows",
    "radix_pass_in_order",
    // Of 2^31 elements and more.
    "prod_at",
];

/// Sums, products and distinct elements of more values than are compared each with each.
fn run_places(device: Device) -> Result<()> {
    let (n, on) = (9000, (DType::I64, device));
    let index = Tensor::arange(0.0, n as f64, 1.0, on)?.remainder_scalar(700.0)?;
    let (values, sums) = (Tensor::ones(&[n], device)?, Tensor::zeros(&[700], device)?);
    let total = sums.put(&index, &values, true)?.sum()?.item()?;
    let product = |reduce| sums.add_scalar(1.0)?.scatter_reduce(0, &index, &values, reduce, true);
    assert_eq!((total, product(ScatterReduce::Prod)?.sum()?.item()?), (n as f64, 700.0));
    for x in [&index, &index.to_dtype(DType::F32)?] {
        assert_eq!(x.unique(false, false)?.values.shape(), [700]);
    }
    assert_eq!(index.nonzero()?.shape(), [n - 13, 1]);
    let rows = index.reshape(&[n / 2, 2])?;
    assert_eq!(rows.unique_dim(0, false, false)?.values.shape(), [350, 2]);
    Ok(())
}

#[test]
fn many_values_at_places() -> Result<()> {
    wanted().into_iter().try_for_each(run_places)
}

/// Sums at indices by atomics.
fn run_unordered(device: Device) -> Result<()> {
    genesis::use_deterministic_algorithms(false);
    let index = Tensor::arange(0.0, 3000.0, 1.0, (DType::I64, device))?.remainder_scalar(700.0)?;
    for dtype in [DType::F32, DType::BF16] {
        let values = Tensor::ones(&[3000], (dtype, device))?;
        let sums = Tensor::zeros(&[700], (dtype, device))?.scatter_add(0, &index, &values)?;
        let rows = Tensor::ones(&[3000, 70], (dtype, device))?;
        let table = Tensor::zeros(&[700, 70], (dtype, device))?.index_add(0, &index, &rows, 1.0)?;
        let total = table.to_dtype(DType::F32)?.sum()?.item()?;
        let counts = (sums.min()?.item()?, total / 70.0);
        assert_eq!(counts, (4.0, 3000.0), "{dtype}");
    }
    genesis::use_deterministic_algorithms(true);
    Ok(())
}

#[test]
fn sums_in_any_order() -> Result<()> {
    let Some(device) = gpu("sums at indices by atomics") else { return Ok(()) };
    run_unordered(device)
}

/// The tests above launch every kernel there is. On the CPU in a process of its own: in this one other tests
/// launch kernels too.
#[test]
fn nothing_is_left_out() -> Result<()> {
    const CHILD: &str = "GENESIS_TEST_NOTHING_IS_LEFT_OUT";
    let device = gpu("every kernel once").unwrap_or(Device::Cpu);
    if device == Device::Cpu && std::env::var_os(CHILD).is_none() {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["sanitize::nothing_is_left_out", "--exact"])
            .env(CHILD, "1")
            .output()
            .expect("it starts");
        let text = [&child.stdout[..], &child.stderr[..]].map(String::from_utf8_lossy).concat();
        assert!(child.status.success() && text.contains("1 passed"), "{text}");
        return Ok(());
    }
    run_ops(device);
    run_gradients(device)?;
    run_updates(device)?;
    run_scalars(device)?;
    run_draws(device)?;
    run_steps(device)?;
    run_convolutions(device)?;
    run_reductions(device)?;
    run_attention(device)?;
    language_models::run(device)?;
    run_places(device)?;
    crate::split_k::run(device)?;
    if device.is_cuda() {
        run_unordered(device)?;
        run_tf32(device)?;
    }
    let missed = kernels::all().into_iter().filter(|kernel| kernel.compiled_count() == 0);
    let mut missed: Vec<&str> = missed.map(|kernel| kernel.name()).collect();
    missed.sort_unstable();
    let mut expected = if device.is_cuda() { NOT_ON_A_GPU } else { NOT_ON_THE_CPU }.to_vec();
    expected.sort_unstable();
    assert_eq!(missed, expected, "not launched on {device}, and what should not be");
    Ok(())
}

//! What ranks do that have parts of a sequence or stages of a model, and what they save. `distributed` starts
//! these tests, several processes of each.

use std::path::PathBuf;

use genesis::distributed::{
    ColumnParallelLinear, FullyShard, FullyShardOptions, Parallel, Pipeline, ProcessGroup,
    ReduceOp, ZeroOptimizer, consolidate_checkpoint, consolidate_checkpoint_to,
    context_parallel_attention, context_part, context_whole, convert_sync_batch_norm,
    load_sharded_checkpoint, save_sharded_checkpoint,
};
use genesis::io::load_safetensors;
use genesis::nn::{BatchNorm2d, Layer, Linear, Module};
use genesis::ops::Attention;
use genesis::optim::Optimizer;
use genesis::{DType, Device, Result, Tensor, manual_seed};

use super::common::{adamw, close, grad, group, numbers, read, shared_folder};

#[test]
#[ignore = "ranks, which `distributed::attention_around_the_ranks` starts"]
fn context() -> Result<()> {
    let group = group(60)?;
    let (size, device) = (group.size(), group.device());
    let len = 4 * size;
    let leaf = |shape: &[usize], seed| numbers(shape, seed, device)?.requires_grad_(true);
    for is_causal in [true, false] {
        let q = leaf(&[1, 4, len, 8], 1)?;
        let [k, v] = [leaf(&[1, 2, len, 8], 2)?, leaf(&[1, 2, len, 8], 3)?];
        let dy = numbers(&[1, 4, len, 8], 4, device)?;
        let options = Attention { is_causal, groups: true, ..Attention::default() };
        let wants = q.scaled_dot_product_attention(&k, &v, &options)?;
        wants.mul(&dy)?.sum()?.backward()?;
        let part = |x: &Tensor| context_part(&x.detach(), 2, &group);
        let own = [&q, &k, &v].map(|x| part(x)?.requires_grad_(true));
        let [own_q, own_k, own_v] = own;
        let (own_q, own_k, own_v) = (own_q?, own_k?, own_v?);
        let y = context_parallel_attention(&own_q, &own_k, &own_v, is_causal, &group)?;
        close(&y, &part(&wants)?, 1e-5, "the result")?;
        close(&context_whole(&y.detach(), 2, &group)?, &wants, 1e-5, "all of it")?;
        y.mul(&part(&dy)?)?.sum()?.backward()?;
        for (own, whole, what) in [(&own_q, &q, "dq"), (&own_k, &k, "dk"), (&own_v, &v, "dv")] {
            close(&grad(own), &part(&grad(whole))?, 1e-5, what)?;
        }
    }
    let odd = Tensor::zeros(&[1, 2 * size + 1], device)?;
    let said = context_part(&odd, 1, &group).unwrap_err().to_string();
    assert!(said.contains("equal pieces"), "{said}");
    Ok(())
}

/// Layers of one shape, so that each may be a stage.
fn layers(count: usize, device: Device) -> Result<Vec<Linear>> {
    manual_seed(11);
    (0..count).map(|_| Linear::new(6, 6, device)).collect()
}

#[test]
#[ignore = "ranks, which `distributed::stages_train_as_a_whole_model` starts"]
fn pipeline() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let all = layers(size, device)?;
    let own = layers(size, device)?.swap_remove(rank);
    let named = all.iter().enumerate().flat_map(|(i, layer)| {
        let named = layer.named_parameters();
        named.into_iter().map(move |(name, tensor)| (format!("{i}.{name}"), tensor))
    });
    let mut optimizers = [adamw(named.collect()), adamw(own.named_parameters())];
    let pipeline = Pipeline::new(&group)?;
    // More parts than stages, as many, and fewer.
    for (step, parts) in [5, size, 1, 6].into_iter().enumerate() {
        optimizers.iter_mut().for_each(|optimizer| optimizer.zero_grad());
        let batch = numbers(&[parts, 3, 6], 20 + step as u64, device)?;
        let target = numbers(&[parts, 3, 6], 30 + step as u64, device)?;
        let loss = |y: &Tensor, part: usize| y.sub(&target.select(0, part)?)?.square()?.mean();
        let whole = all.iter().try_fold(batch.clone(), |x, layer| layer.forward(&x)?.tanh())?;
        let wants = (0..parts).map(|part| loss(&whole.select(0, part)?, part));
        let wants = wants.collect::<Result<Vec<_>>>()?;
        let sum = wants.iter().skip(1).try_fold(wants[0].clone(), |sum, loss| sum.add(loss))?;
        sum.div_scalar(parts as f64)?.backward()?;
        let got =
            pipeline.step(parts, |part| batch.select(0, part), |x| own.forward(x)?.tanh(), loss)?;
        assert_eq!(got.len(), if pipeline.is_last() { parts } else { 0 });
        for (got, wants) in got.iter().zip(&wants) {
            close(got, wants, 1e-5, "a loss")?;
        }
        for (a, b) in own.parameters().iter().zip(all[rank].parameters()) {
            close(&grad(a), &grad(&b), 1e-5, &format!("a gradient of {parts} parts"))?;
        }
        optimizers.iter_mut().try_for_each(|optimizer| optimizer.step())?;
    }
    for (a, b) in own.parameters().iter().zip(all[rank].parameters()) {
        close(a, &b, 1e-5, "a parameter")?;
    }
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::batch_norm_over_all_ranks` starts"]
fn batch_norm() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let whole = BatchNorm2d::new(3, device)?;
    let layer = BatchNorm2d::new(3, device)?;
    assert_eq!(convert_sync_batch_norm(&layer, &group), 1);
    // Ranks have batches of different sizes: 1, 2, ..
    let rows = size * (size + 1) / 2;
    let x = numbers(&[rows, 3, 4, 2], 50, device)?.mul_scalar(3.0)?.add_scalar(1.0)?;
    let x = x.requires_grad_(true)?;
    let dy = numbers(&[rows, 3, 4, 2], 51, device)?;
    let wants = whole.forward(&x)?;
    wants.mul(&dy)?.sum()?.backward()?;
    let own = |t: &Tensor| t.detach().narrow(0, rank * (rank + 1) / 2, rank + 1)?.copy();
    let part = own(&x)?.requires_grad_(true)?;
    let y = layer.forward(&part)?;
    close(&y, &own(&wants)?, 1e-5, "the result")?;
    y.mul(&own(&dy)?)?.sum()?.backward()?;
    close(&grad(&part), &own(&grad(&x))?, 1e-5, "dx")?;
    let sum = grad(layer.weight.as_ref().expect("a scale")).copy()?;
    group.all_reduce(&sum, ReduceOp::Sum)?;
    close(&sum, &grad(whole.weight.as_ref().expect("a scale")), 1e-5, "dw")?;
    for (a, b) in layer.named_buffers().iter().zip(whole.named_buffers()) {
        close(&a.1.to_dtype(DType::F32)?, &b.1.to_dtype(DType::F32)?, 1e-5, &a.0)?;
    }
    // Outside of training nothing is summed.
    layer.eval();
    if rank == 0 {
        layer.forward(&part)?;
    }
    Ok(())
}

/// A layer in parts along its outputs, cut again, and one that is whole.
#[derive(Module)]
struct Net {
    up: FullyShard<ColumnParallelLinear>,
    down: Linear,
}

fn net(group: &ProcessGroup) -> Result<Net> {
    let device = group.device();
    manual_seed(13 + group.size() as u64);
    let (up, down) = (Linear::new(5, 12, device)?, Linear::new(12, 3, device)?);
    // Two ranks share the outputs where there are so many: the others have the same.
    let pairs = group.split(Some((group.rank() / 2) as u32), 0)?.expect("a group");
    let lines = group.split(Some((group.rank() % 2) as u32), 0)?.expect("a group");
    let up = ColumnParallelLinear::new(up, Parallel::Tensor, &pairs)?.gathered();
    let up = FullyShard::new(up, &lines, FullyShardOptions::default())?;
    Ok(Net { up, down })
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.up.call(|up| up.forward(x))?.tanh()?)
    }
}

fn folder() -> PathBuf {
    shared_folder().join("saved")
}

#[test]
#[ignore = "ranks, which `distributed::checkpoints_in_parts` starts"]
fn save() -> Result<()> {
    let group = group(60)?;
    let (device, folder) = (group.device(), folder());
    let net = net(&group)?;
    let mut optimizer = adamw(net.named_parameters());
    let x = numbers(&[2, 5], 60, device)?;
    for step in 0..2 {
        optimizer.zero_grad();
        net.forward(&x)?.square()?.mean()?.backward()?;
        optimizer.step()?;
        // The second takes the place of the first.
        save_sharded_checkpoint(&folder, &net, Some(&optimizer), &group)?;
        let files = std::fs::read_dir(&folder).expect("a folder").count();
        group.barrier()?;
        assert_eq!(files, group.size() + 1, "after step {step}");
    }
    let y = net.forward(&x)?;
    if group.rank() == 0 {
        std::fs::write(folder.join("y"), format!("{:?}", read(&y)?)).expect("it is written");
    }
    let saved = consolidate_checkpoint(&folder)?;
    let names: Vec<&str> = saved.keys().map(String::as_str).collect();
    assert_eq!(names, ["down.bias", "down.weight", "up.bias", "up.weight"]);
    assert_eq!(saved["up.weight"].shape(), [12, 5]);
    if group.rank() == 0 {
        // Beside the checkpoint's folder, where another rank counts files.
        let file = folder.with_extension("safetensors");
        consolidate_checkpoint_to(&folder, &file)?;
        let read = load_safetensors(&file, Device::Cpu)?;
        assert_eq!(read.keys().collect::<Vec<_>>(), saved.keys().collect::<Vec<_>>());
        for (name, tensor) in &saved {
            assert_eq!(read[name].shape(), tensor.shape(), "{name}");
            assert_eq!(read[name].to_vec::<f32>()?, tensor.to_vec::<f32>()?, "{name}");
        }
    }
    group.barrier()
}

#[test]
#[ignore = "ranks, which `distributed::checkpoints_in_parts` starts"]
fn load() -> Result<()> {
    let group = group(60)?;
    let (device, folder) = (group.device(), folder());
    let net = net(&group)?;
    let mut optimizer = ZeroOptimizer::new(net.named_parameters(), &group, adamw);
    load_sharded_checkpoint(&folder, &net, Some(&mut optimizer))?;
    let y = net.forward(&numbers(&[2, 5], 60, device)?)?;
    let wants = std::fs::read_to_string(folder.join("y")).expect("it was written");
    let wants: Vec<f32> = wants
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|number| number.parse().expect("a number"))
        .collect();
    close(&y, &Tensor::from_slice_on(&wants, y.shape(), device)?, 1e-6, "the result")?;
    // Moments of this rank's own parameters came too.
    let state = optimizer.state_dict()?;
    let moments = state.tensors.iter().filter(|(name, _)| name.ends_with("/exp_avg"));
    for (name, moment) in moments {
        let most = moment.abs()?.max()?.item()?;
        // The last part of a small parameter may be padding.
        assert!(most > 0.0 || moment.numel() < 8, "{name} is 0");
    }
    Ok(())
}

//! What ranks do that hold parts of a model. `distributed` starts these tests, several processes of each.

use genesis::distributed::functional;
use genesis::distributed::{
    ColumnParallelLinear, DdpOptions, DeviceMesh, DistributedDataParallel, FullyShard,
    FullyShardOptions, Parallel, ProcessGroup, ReduceOp, RowParallelLinear, VocabParallelEmbedding,
    ZeroOptimizer, clip_grad_norm_, sum_gradients, vocab_parallel_cross_entropy,
};
use genesis::nn::{Embedding, Layer, LayerNorm, Linear, Module};
use genesis::ops::{Classes, Reduction};
use genesis::optim::Optimizer;
use genesis::{DType, Device, Result, Tensor, manual_seed, memory};

use super::common::{adamw, close, grad, group, numbers, read};

#[test]
#[ignore = "ranks, which `distributed::gradients_of_collectives` starts"]
fn gradients() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let all = numbers(&[size, 3, 4], 1, device)?;
    let weights = numbers(&[size, 3 * size, 4], 2, device)?;
    let own = || all.select(0, rank)?.copy()?.requires_grad_(true);
    // Each rank weighs the joined tensor in its own way: the loss is the sum over ranks.
    let x = own()?;
    let joined = functional::all_gather(&x, 0, &group)?;
    assert_eq!(read(&joined)?, read(&all.reshape(&[size * 3, 4])?)?);
    joined.mul(&weights.select(0, rank)?)?.sum()?.backward()?;
    let wants = weights.sum_dims(&[0], false)?.narrow(0, 3 * rank, 3)?;
    close(&grad(&x), &wants, 1e-6, "all_gather")?;
    // And the part of a sum.
    let x = weights.select(0, rank)?.copy()?.requires_grad_(true)?;
    let part = functional::reduce_scatter(&x, 0, &group)?;
    close(&part, &wants, 1e-6, "reduce_scatter")?;
    part.mul(&all.select(0, rank)?)?.sum()?.backward()?;
    close(&grad(&x), &all.reshape(&[size * 3, 4])?, 1e-6, "reduce_scatter, backward")?;
    let x = own()?;
    functional::all_reduce(&x, &group)?.mul_scalar((rank + 1) as f64)?.sum()?.backward()?;
    assert_eq!(read(&grad(&x))?[0], (size * (size + 1) / 2) as f32);
    // Conjugate pairs, whose loss all ranks have.
    let x = all.copy()?.requires_grad_(true)?;
    let mine = functional::scatter_to(&functional::copy_to(&x, &group)?, 0, &group)?;
    assert_eq!(read(&mine)?, read(&all.narrow(0, rank, 1)?)?);
    functional::gather_from(&mine, 0, &group)?.square()?.sum()?.backward()?;
    close(&grad(&x), &all.mul_scalar(2.0 * size as f64)?, 1e-6, "scatter and gather")?;
    let x = all.narrow(0, 0, size)?.copy()?.requires_grad_(true)?;
    let swapped = functional::all_to_all(&x, &group)?;
    swapped.mul(&all.narrow(0, rank, 1)?)?.sum()?.backward()?;
    close(&grad(&x), &all, 1e-6, "all_to_all")
}

/// Two layers with an odd number of elements.
#[derive(Module)]
struct Block {
    up: Linear,
    norm: LayerNorm,
    down: Linear,
}

impl Block {
    fn new(device: Device) -> Result<Block> {
        let (up, down) = (Linear::new(6, 13, device)?, Linear::new(13, 6, device)?);
        Ok(Block { up, norm: LayerNorm::new(13, device)?, down })
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.norm.forward(&self.up.forward(x)?.gelu()?)?;
        x.add(&self.down.forward(&h)?)
    }
}

/// Steps of a training: many ranks share the cores of a machine without GPUs.
fn steps(ranks: usize) -> u64 {
    match ranks {
        2 => 20,
        4 => 4,
        _ => 1,
    }
}

/// A model of two blocks, each wrapped by `wrap`.
fn blocks<B>(device: Device, wrap: impl Fn(Block) -> Result<B>) -> Result<Vec<B>> {
    manual_seed(3);
    let plain = (0..2).map(|_| Block::new(device)).collect::<Result<Vec<_>>>()?;
    plain.into_iter().map(wrap).collect()
}

fn loss<B: Layer>(model: &[B], x: &Tensor) -> Result<Tensor> {
    model.iter().try_fold(x.clone(), |x, block| block.forward(&x))?.square()?.mean()
}

fn named<B: Module>(model: &[B]) -> Vec<(String, Tensor)> {
    let of = |(i, block): (usize, &B)| {
        let named = block.named_parameters();
        named.into_iter().map(move |(name, tensor)| (format!("{i}.{name}"), tensor))
    };
    model.iter().enumerate().flat_map(of).collect()
}

#[test]
#[ignore = "ranks, which `distributed::parameters_in_parts_train_as_whole_ones` starts"]
fn fully() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    for reshard_after_forward in [true, false] {
        let options = FullyShardOptions { reshard_after_forward, ..FullyShardOptions::default() };
        let alone = blocks(device, Ok)?;
        let parts = blocks(device, |block| FullyShard::new(block, &group, options))?;
        let (mut own, mut shared) = (adamw(named(&alone)), adamw(named(&parts)));
        // The second time for what differs only.
        for step in 0..if reshard_after_forward { steps(size) } else { 2 } {
            let batch = numbers(&[2 * size, 6], 100 + step, device)?;
            own.zero_grad();
            shared.zero_grad();
            let whole = loss(&alone, &batch)?;
            whole.backward()?;
            let part = loss(&parts, &batch.narrow(0, 2 * rank, 2)?)?;
            part.backward()?;
            let mean = part.detach().copy()?;
            group.all_reduce(&mean, ReduceOp::Avg)?;
            close(&mean, &whole, 2e-6, &format!("the loss of step {step}"))?;
            let norm = genesis::optim::clip_grad_norm_(own.parameters(), 0.05, 2.0)?;
            let squares = parts.iter().try_fold(0.0, |sum, block| {
                Ok::<_, genesis::Error>(sum + clip_grad_norm_(block, 1e9, &group)?.item()?.powi(2))
            })?;
            assert!((squares.sqrt() / norm.item()? - 1.0).abs() < 1e-4);
            let factor = (0.05 / (norm.item()? + 1e-6)).min(1.0);
            for (_, parameter) in named(&parts) {
                parameter.set_grad(Some(grad(&parameter).mul_scalar(factor)?));
            }
            own.step()?;
            shared.step()?;
        }
        for (block, plain) in parts.iter().zip(&alone) {
            for ((name, whole), (_, wants)) in
                block.full_parameters()?.into_iter().zip(plain.named_parameters())
            {
                close(&whole, &wants, 1e-5, &name)?;
            }
        }
        let shards = parts[0].named_parameters();
        assert_eq!(shards[0].0, "up.weight");
        assert_eq!(shards[0].1.shape(), [78usize.div_ceil(size)]);
    }
    half(&group)?;
    nested(&group)
}

/// Parameters of f32 that are used in bf16.
fn half(group: &ProcessGroup) -> Result<()> {
    let param_dtype = Some(DType::BF16);
    let options = FullyShardOptions { param_dtype, ..FullyShardOptions::default() };
    let block = FullyShard::new(Block::new(group.device())?, group, options)?;
    let x = Tensor::ones(&[2, 6], (DType::BF16, group.device()))?;
    let y = block.forward(&x)?;
    assert_eq!(y.dtype(), DType::BF16);
    y.sum()?.backward()?;
    for (name, parameter) in block.named_parameters() {
        assert_eq!(
            (parameter.dtype(), grad(&parameter).dtype()),
            (DType::F32, DType::F32),
            "{name}"
        );
    }
    Ok(())
}

/// Blocks in parts within a model in parts: each gathers its own, the next one's ahead of its use.
#[derive(Module)]
struct Nested {
    first: FullyShard<Block>,
    second: FullyShard<Block>,
    head: Linear,
}

fn nested(group: &ProcessGroup) -> Result<()> {
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let by = FullyShardOptions::default();
    let alone = blocks(device, Ok)?;
    let mut parts = blocks(device, |block| FullyShard::new(block, group, by))?;
    let heads = [Linear::new(6, 2, device)?, Linear::new(6, 2, device)?];
    for (a, b) in heads[1].parameters().iter().zip(heads[0].parameters()) {
        genesis::no_grad(|| a.detach().copy_(&b))?;
    }
    let [plain, head] = heads;
    let (second, first) = (parts.pop().expect("two"), parts.pop().expect("two"));
    first.prefetch(&second);
    let model = FullyShard::new(Nested { first, second, head }, group, by)?;
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name == "second.up.weight"), "{names:?}");
    assert!(names.iter().any(|name| name == "head.weight"), "{names:?}");
    let of_head = plain.named_parameters().into_iter().map(|(name, p)| (format!("h.{name}"), p));
    let mut own = adamw(named(&alone).into_iter().chain(of_head).collect());
    let mut shared = adamw(model.named_parameters());
    for step in 0..2 {
        let batch = numbers(&[2 * size, 6], 200 + step, device)?;
        own.zero_grad();
        shared.zero_grad();
        let x = alone.iter().try_fold(batch.clone(), |x, block| block.forward(&x))?;
        let whole = plain.forward(&x)?.square()?.mean()?;
        whole.backward()?;
        let part = model.call(|model| {
            let x = model.first.forward(&batch.narrow(0, 2 * rank, 2)?)?;
            model.head.forward(&model.second.forward(&x)?)?.square()?.mean()
        })?;
        part.backward()?;
        let mean = part.detach().copy()?;
        group.all_reduce(&mean, ReduceOp::Avg)?;
        close(&mean, &whole, 2e-6, &format!("the nested loss of step {step}"))?;
        own.step()?;
        shared.step()?;
    }
    let wholes = model.full_parameters()?;
    let head = wholes.iter().find(|(name, _)| name == "head.weight").expect("the head");
    close(&head.1, &plain.weight, 1e-5, "the head")
}

#[test]
#[ignore = "ranks, which `distributed::parameters_in_parts_take_their_part_of_the_memory` starts"]
fn memory() -> Result<()> {
    let group = group(60)?;
    let (size, device) = (group.size(), group.device());
    let before = memory::memory_allocated(device)?;
    let model = (0..3)
        .map(|_| FullyShard::new(Linear::new(96, 96, device)?, &group, Default::default()))
        .collect::<Result<Vec<_>>>()?;
    let mut optimizer = adamw(named(&model));
    let whole = 96 * 96 + 96; // elements of a layer
    let x = Tensor::ones(&[1, 96], device)?;
    let held = memory::memory_allocated(device)?;
    let loss = loss(&model, &x)?;
    // Between the forward and the backward no whole parameter is there.
    let grown = memory::memory_allocated(device)? - held;
    assert!(grown < whole * 4, "the forward left {grown} bytes");
    loss.backward()?;
    optimizer.step()?;
    // Parameters, gradients and two moments.
    let state = optimizer.state_dict()?;
    let parameters = optimizer.parameters();
    let grads: Vec<Tensor> = parameters.iter().map(grad).collect();
    let moments = state.tensors.values().filter(|tensor| tensor.rank() > 0);
    let all: Vec<&Tensor> = parameters.iter().chain(&grads).chain(moments).collect();
    let elements: usize = all.iter().map(|tensor| tensor.numel()).sum();
    let share = elements as f64 / (4 * 3 * whole) as f64;
    assert!(share <= 1.02 / size as f64, "{share} of the memory of one rank");
    // On the device too, where each tensor is rounded up.
    drop((loss, x));
    let held = memory::memory_allocated(device)? - before;
    assert!(held <= elements * 4 + 1024 * all.len(), "{held} bytes for {elements} elements");
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::state_in_parts_trains_as_whole_state` starts"]
fn zero() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let alone = blocks(device, Ok)?;
    let shared =
        blocks(device, |block| DistributedDataParallel::new(block, &group, DdpOptions::default()))?;
    let mut own = adamw(named(&alone));
    let mut zero = ZeroOptimizer::new(named(&shared), &group, adamw);
    assert!(zero.local().parameters().len() < zero.parameters().len());
    for step in 0..5 {
        let batch = numbers(&[2 * size, 6], 100 + step, device)?;
        own.zero_grad();
        zero.zero_grad();
        loss(&alone, &batch)?.backward()?;
        let part = batch.narrow(0, 2 * rank, 2)?;
        let x = shared.iter().try_fold(part, |x, block| block.module().forward(&x))?;
        x.square()?.mean()?.backward()?;
        own.step()?;
        zero.step()?;
    }
    for ((name, a), (_, b)) in named(&shared).iter().zip(named(&alone)) {
        close(a, &b, 1e-5, name)?;
    }
    // The state of this rank's parameters, under their names.
    let state = zero.state_dict()?;
    zero.load_state_dict(&state)?;
    let names = state.tensors.keys().filter(|name| name.ends_with("/exp_avg")).count();
    assert_eq!(names, zero.local().parameters().len());
    Ok(())
}

/// An embedding, an MLP between norms, and a head, whole or in parts.
struct Whole {
    table: Embedding,
    norm: LayerNorm,
    up: Linear,
    down: Linear,
    head: Linear,
}

const VOCABULARY: usize = 16;

impl Whole {
    fn new(device: Device) -> Result<Whole> {
        manual_seed(5);
        Ok(Whole {
            table: Embedding::new(VOCABULARY, 8, device)?,
            norm: LayerNorm::new(8, device)?,
            up: Linear::new(8, 24, device)?,
            down: Linear::new(24, 8, device)?,
            head: Linear::without_bias(8, VOCABULARY, device)?,
        })
    }

    fn loss(&self, tokens: &Tensor, target: &Tensor) -> Result<Tensor> {
        let x = self.table.forward(tokens)?;
        let h = self.down.forward(&self.up.forward(&self.norm.forward(&x)?)?.gelu()?)?;
        let scores = self.head.forward(&x.add(&h)?)?.reshape(&[target.numel(), VOCABULARY])?;
        scores.cross_entropy_loss(target, &Classes::default())
    }
}

#[test]
#[ignore = "ranks, which `distributed::layers_on_several_ranks_are_layers` starts"]
fn tensor_parallel() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let tokens = Tensor::from_slice_on(&[0i64, 5, 15, 7, 3, 9, 1, 12], &[2, 4], device)?;
    let target = Tensor::from_slice_on(&[5i64, 15, -100, 3, 9, 1, 12, 8], &[8], device)?;
    for between in [Parallel::Tensor, Parallel::Sequence(1)] {
        let whole = Whole::new(device)?;
        let wants = whole.loss(&tokens, &target)?;
        wants.backward()?;
        let Whole { table, norm, up, down, head } = Whole::new(device)?;
        let table = VocabParallelEmbedding::new(table, between, &group)?;
        let up = ColumnParallelLinear::new(up, between, &group)?;
        let down = RowParallelLinear::new(down, between, &group)?;
        let head = ColumnParallelLinear::new(head, between, &group)?;
        if between != Parallel::Tensor {
            sum_gradients(&norm.parameters(), &group)?;
        }
        let x = table.forward(&tokens)?;
        let h = down.forward(&up.forward(&norm.forward(&x)?)?.gelu()?)?;
        let scores = head.forward(&x.add(&h)?)?.reshape(&[8, VOCABULARY / size])?;
        let loss = vocab_parallel_cross_entropy(&scores, &target, Reduction::Mean, &group)?;
        close(&loss, &wants, 1e-6, "the loss")?;
        loss.backward()?;
        let part = |x: &Tensor, axis: i64| {
            let extent = x.dim(axis)? / size;
            grad(x).narrow(axis, rank * extent, extent)
        };
        let what = format!("{between:?}");
        close(&grad(&table.weight), &part(&whole.table.weight, 0)?, 1e-5, &what)?;
        close(&grad(&up.weight), &part(&whole.up.weight, 0)?, 1e-5, &what)?;
        close(&grad(&down.weight), &part(&whole.down.weight, 1)?, 1e-5, &what)?;
        close(&grad(&head.weight), &part(&whole.head.weight, 0)?, 1e-5, &what)?;
        let bias = |layer: &Option<genesis::nn::Parameter>| grad(layer.as_ref().expect("a bias"));
        close(&bias(&down.bias), &bias(&whole.down.bias), 1e-5, &what)?;
        for (own, wants) in norm.parameters().iter().zip(whole.norm.parameters()) {
            close(&grad(own), &grad(&wants), 1e-5, &what)?;
        }
        let shard = up.weight.shard().expect("a part");
        assert_eq!((shard.whole.as_slice(), shard.index, shard.count), (&[24, 8][..], rank, size));
    }
    let said = ColumnParallelLinear::new(Linear::new(2, 7, device)?, Parallel::Tensor, &group);
    let said = said.unwrap_err().to_string();
    assert!(said.contains("is not in"), "{said}");
    Ok(())
}

/// A parallel MLP whose parts are cut again over the data parallel axis.
#[derive(Module)]
struct Mlp {
    up: ColumnParallelLinear,
    down: RowParallelLinear,
}

impl Layer for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.up.forward(x)?.gelu()?)
    }
}

#[test]
#[ignore = "ranks, which `distributed::tensor_parallel_blocks_in_parts` starts"]
fn two_axes() -> Result<()> {
    let group = group(60)?;
    let device = group.device();
    let mesh = DeviceMesh::new(&group, &[("dp", 2), ("tp", 2)])?;
    let (dp, tp) = (mesh.group("dp")?, mesh.group("tp")?);
    let layers = || {
        manual_seed(9);
        Ok::<_, genesis::Error>((Linear::new(4, 10, device)?, Linear::new(10, 4, device)?))
    };
    let (up, down) = layers()?;
    let mut own = adamw(
        [up.named_parameters(), down.named_parameters()]
            .concat()
            .into_iter()
            .enumerate()
            .map(|(i, (name, t))| (format!("{i}{name}"), t))
            .collect(),
    );
    let (a, b) = layers()?;
    let mlp = Mlp {
        up: ColumnParallelLinear::new(a, Parallel::Tensor, tp)?,
        down: RowParallelLinear::new(b, Parallel::Tensor, tp)?,
    };
    let mlp = FullyShard::new(mlp, dp, FullyShardOptions::default())?;
    let mut shared = adamw(mlp.named_parameters());
    for step in 0..20 {
        let batch = numbers(&[6, 4], 40 + step, device)?;
        own.zero_grad();
        shared.zero_grad();
        let whole = down.forward(&up.forward(&batch)?.gelu()?)?.square()?.mean()?;
        whole.backward()?;
        let part = mlp.forward(&batch.narrow(0, 3 * dp.rank(), 3)?)?.square()?.mean()?;
        part.backward()?;
        let mean = part.detach().copy()?;
        dp.all_reduce(&mean, ReduceOp::Avg)?;
        close(&mean, &whole, 2e-6, &format!("the loss of step {step}"))?;
        own.step()?;
        shared.step()?;
    }
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::sums_in_order_have_the_bits_of_one_rank` starts"]
fn audit() -> Result<()> {
    let group = group(60)?.with_ordered_reductions();
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let alone = blocks(device, Ok)?;
    let ddp =
        blocks(device, |block| DistributedDataParallel::new(block, &group, DdpOptions::default()))?;
    let parts = blocks(device, |block| FullyShard::new(block, &group, Default::default()))?;
    let mut optimizers = [adamw(named(&alone)), adamw(named(&ddp)), adamw(named(&parts))];
    for step in 0..steps(size) {
        optimizers.iter_mut().for_each(|optimizer| optimizer.zero_grad());
        let batch = numbers(&[2 * size, 6], 70 + step, device)?;
        let part = |rank: usize| batch.narrow(0, 2 * rank, 2);
        // One rank takes the parts one after the other.
        let mut losses = Vec::new();
        for of in 0..size {
            let loss = loss(&alone, &part(of)?)?;
            loss.backward()?;
            losses.push(loss.item()?);
        }
        for (_, parameter) in named(&alone) {
            parameter.set_grad(Some(grad(&parameter).div_scalar(size as f64)?));
        }
        let x = ddp.iter().try_fold(part(rank)?, |x, block| block.module().forward(&x))?;
        let shared = x.square()?.mean()?;
        shared.backward()?;
        let sharded = loss(&parts, &part(rank)?)?;
        sharded.backward()?;
        assert_eq!([shared.item()?, sharded.item()?], [losses[rank]; 2], "step {step}");
        optimizers.iter_mut().try_for_each(|optimizer| optimizer.step())?;
        for ((name, a), (_, b)) in named(&alone).iter().zip(named(&ddp)) {
            assert_eq!(read(a)?, read(&b)?, "{name} after step {step}");
        }
        let wholes = parts.iter().map(FullyShard::full_parameters).collect::<Result<Vec<_>>>()?;
        for ((name, a), (_, b)) in named(&alone).iter().zip(wholes.into_iter().flatten()) {
            assert_eq!(read(a)?, read(&b)?, "{name} after step {step}, in parts");
        }
    }
    Ok(())
}

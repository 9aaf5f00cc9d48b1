//! What each rank does. `distributed` starts these tests, several processes of each; cargo alone does not.

use std::time::{Duration, Instant};

use genesis::distributed::{
    DdpOptions, DeviceMesh, DistributedDataParallel, ProcessGroup, ReduceOp, World, init,
    init_world,
};
use genesis::nn::{Linear, Module};
use genesis::optim::{Optimizer, Sgd, SgdOptions};
use genesis::{DType, Device, Result, Tensor, manual_seed};

use super::common::{group, read};

/// What rank `rank` has: numbers that tell it from others.
fn own(rank: usize, dtype: DType, device: Device) -> Result<Tensor> {
    let values: Vec<f32> = (0..6).map(|i| (i + 10 * rank) as f32).collect();
    Tensor::from_slice_on(&values, &[6], device)?.to_dtype(dtype)
}

#[test]
#[ignore = "a rank, which `distributed::a_rank_that_can_not_begin_ends_the_others_with_its_name` starts"]
fn one_can_not_begin() -> Result<()> {
    let world = World::from_env()?;
    let device = if world.rank == 1 { Device::Cuda(99) } else { Device::Cpu };
    init_world(world, device).map(drop)
}

#[test]
#[ignore = "a rank, which `distributed::collectives` starts"]
fn collectives() -> Result<()> {
    let group = group(60)?;
    every_collective(&group)?;
    refusals(&group)
}

/// All collectives of a group, of any device.
pub(super) fn every_collective(group: &ProcessGroup) -> Result<()> {
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    for dtype in [DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8] {
        let sum = |i: usize| (0..size).map(|r| (i + 10 * r) as f32).sum::<f32>();
        let x = own(rank, dtype, device)?;
        group.all_reduce(&x, ReduceOp::Sum)?;
        assert_eq!(read(&x)?, (0..6).map(sum).collect::<Vec<_>>(), "{dtype}");
        let x = own(rank, dtype, device)?;
        group.all_reduce(&x, ReduceOp::Max)?;
        assert_eq!(read(&x)?[0], 10.0 * (size - 1) as f32);
        let x = own(rank, dtype, device)?;
        group.broadcast(&x, size - 1)?;
        assert_eq!(read(&x)?[1], 1.0 + 10.0 * (size - 1) as f32);
        let x = own(rank, dtype, device)?;
        group.reduce(&x, ReduceOp::Sum, 0)?;
        let wants = if rank == 0 { sum(2) } else { (2 + 10 * rank) as f32 };
        assert_eq!(read(&x)?[2], wants);
        let all = group.all_gather(&own(rank, dtype, device)?)?;
        let wants: Vec<f32> =
            (0..size).flat_map(|r| (0..6).map(move |i| (i + 10 * r) as f32)).collect();
        assert_eq!(read(&all)?, wants);
        let part = group.reduce_scatter(&all, ReduceOp::Sum)?;
        let wants: Vec<f32> = (0..6).map(|i| (size * (i + 10 * rank)) as f32).collect();
        assert_eq!(read(&part)?, wants);
        let swapped = group.all_to_all(&all.mul_scalar(1.0)?)?;
        let wants: Vec<f32> =
            (0..size).flat_map(|_| (0..6).map(|i| (i + 10 * rank) as f32)).collect();
        assert_eq!(read(&swapped)?, wants);
    }
    transfers(group)?;
    means(group)
}

fn transfers(group: &ProcessGroup) -> Result<()> {
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    // A ring: each gives to the next and takes from the one before.
    let from = (rank + size - 1) % size;
    let (x, y) = (own(rank, DType::F32, device)?, Tensor::zeros(&[6], device)?);
    group.exchange(&[(&x, (rank + 1) % size)], &[(&y, from)])?;
    assert_eq!(read(&y)?[3], (3 + 10 * from) as f32);
    // More than a pipe of the virtual NCCL holds.
    let long = Tensor::arange(0.0, 100_000.0, 1.0, device)?.add_scalar(rank as f64)?;
    if rank == 0 {
        group.send(&long, 1)?;
    } else if rank == 1 {
        let got = Tensor::zeros(&[100_000], device)?;
        group.receive(&got, 0)?;
        assert_eq!(read(&got)?[99_999], 99_999.0);
    }
    let gives: Vec<usize> = (0..size).map(|to| to + 1).collect();
    let takes = vec![rank + 1; size];
    let rows = Tensor::full(&[gives.iter().sum(), 2], rank as f64, device)?;
    let got = group.all_to_all_counts(&rows, &gives, &takes)?;
    assert_eq!(got.shape(), [size * (rank + 1), 2]);
    assert_eq!(read(&got.select(0, rank + 1)?)?[0], 1.0);
    Ok(())
}

fn means(group: &ProcessGroup) -> Result<()> {
    let x = Tensor::full(&[300_000], group.rank() as f64, group.device())?;
    let work = group.all_reduce_async(&x, ReduceOp::Avg)?;
    let mean = work.wait()?;
    let wants = (group.size() - 1) as f32 / 2.0;
    assert_eq!([read(&mean)?[0], read(&x)?[299_999]], [wants, wants]);
    group.barrier()
}

fn refusals(group: &ProcessGroup) -> Result<()> {
    let device = group.device();
    let error = |result: Result<()>| result.unwrap_err().to_string();
    let x = Tensor::zeros(&[2, 3], device)?;
    let said = error(group.all_reduce(&x.transpose(0, 1)?, ReduceOp::Sum));
    assert!(said.contains("needs a contiguous tensor"), "{said}");
    let said = error(group.all_reduce(&Tensor::zeros(&[2], Device::Cpu)?, ReduceOp::Sum));
    assert!(said.contains("the tensor is on cpu, the group's device is cuda:0"), "{said}");
    let said = error(group.broadcast(&x, 9));
    assert!(said.contains("there is no rank 9 among"), "{said}");
    let said = error(group.reduce_scatter(&Tensor::zeros(&[7], device)?, ReduceOp::Sum).map(drop));
    assert!(said.contains("[7] has no first axis in"), "{said}");
    let integers = Tensor::zeros(&[2], (DType::I64, device))?;
    let said = error(group.all_reduce(&integers, ReduceOp::Avg));
    assert!(said.contains("NCCL does not average i64"), "{said}");
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::groups_of_some_ranks` starts"]
fn groups() -> Result<()> {
    let group = group(60)?;
    let (rank, device) = (group.rank(), group.device());
    let mesh = DeviceMesh::new(&group, &[("dp", 2), ("tp", 2)])?;
    for (axis, wants) in
        [("dp", [rank % 2, rank % 2 + 2]), ("tp", [rank / 2 * 2, rank / 2 * 2 + 1])]
    {
        let line = mesh.group(axis)?;
        assert_eq!(line.ranks(), wants);
        let x = Tensor::full(&[3], rank as f64, device)?;
        line.all_reduce(&x, ReduceOp::Sum)?;
        assert_eq!(read(&x)?[0], (wants[0] + wants[1]) as f32);
    }
    let some = group.subgroup(&[3, 1])?;
    assert_eq!(some.is_some(), matches!(rank, 1 | 3));
    if let Some(some) = some {
        // In the order that was asked for.
        assert_eq!((some.rank(), some.ranks()), (usize::from(rank == 1), &[3, 1][..]));
        let x = Tensor::full(&[3], rank as f64, device)?;
        some.broadcast(&x, 0)?;
        assert_eq!(read(&x)?[0], 3.0);
    }
    Ok(())
}

/// Two layers, of which the second is left out where it is wished.
#[derive(Module)]
struct Net {
    first: Linear,
    second: Linear,
}

impl Net {
    fn new(device: Device) -> Result<Net> {
        manual_seed(1);
        Ok(Net { first: Linear::new(6, 5, device)?, second: Linear::new(5, 5, device)? })
    }

    fn forward(&self, x: &Tensor, both: bool) -> Result<Tensor> {
        let h = self.first.forward(x)?.tanh()?;
        if both { self.second.forward(&h) } else { Ok(h) }
    }
}

fn loss(net: &Net, x: &Tensor) -> Result<Tensor> {
    net.forward(x, true)?.square()?.mean()
}

fn sgd(net: &impl Module) -> Sgd {
    Sgd::new(net.parameters(), SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() })
}

/// A bucket for each few parameters, so that there are several.
const SMALL: DdpOptions = DdpOptions {
    bucket_bytes: 64,
    first_bucket_bytes: 16,
    broadcast_buffers: true,
    compress: None,
};

#[test]
#[ignore = "ranks, which `distributed::training_on_parts_of_a_batch_is_training_on_the_batch` starts"]
fn data_parallel() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let alone = Net::new(device)?;
    let net = Net::new(device)?;
    // Ranks start with the values of the first, whatever theirs were.
    genesis::no_grad(|| net.first.weight.add_scalar_(rank as f64))?;
    let net = DistributedDataParallel::new(net, &group, SMALL)?;
    let mut optimizers = [sgd(&alone), sgd(&net)];
    for step in 0..6 {
        let batch = Tensor::randn(&[4 * size, 6], device)?;
        let part = batch.narrow(0, 4 * rank, 4)?;
        optimizers.iter_mut().for_each(|optimizer| optimizer.zero_grad());
        loss(&alone, &batch)?.backward()?;
        if step % 2 == 0 {
            loss(&net, &part)?.backward()?;
        } else {
            // The same in two parts, of which the first is not reduced on its own.
            let half = |at: usize| loss(&net, &part.narrow(0, at, 2)?)?.mul_scalar(0.5);
            net.no_sync(|| half(0)?.backward())?;
            half(2)?.backward()?;
        }
        for (a, b) in alone.parameters().iter().zip(net.parameters()) {
            let (a, b) = (a.grad().expect("a gradient"), b.grad().expect("a gradient"));
            let off = a.sub(&b)?.abs()?.max()?.item()?;
            assert!(off <= 1e-6, "step {step}: off by {off}");
        }
        optimizers.iter_mut().try_for_each(|optimizer| optimizer.step())?;
    }
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["first.weight", "first.bias", "second.weight", "second.bias"]);
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::parameters_that_a_rank_does_not_use` starts"]
fn unused() -> Result<()> {
    let group = group(60)?;
    let (rank, device) = (group.rank(), group.device());
    let net = DistributedDataParallel::new(Net::new(device)?, &group, SMALL)?;
    let x = Tensor::full(&[2, 6], 1.0 + rank as f64, device)?;
    for _ in 0..2 {
        // Only rank 0 uses the second layer: the others count as 0.
        net.parameters().iter().for_each(Tensor::zero_grad);
        net.forward(&x, rank == 0)?.sum()?.backward()?;
        let grad = net.second.bias.as_ref().expect("a bias").grad().expect("rank 0 has a gradient");
        assert_eq!(read(&grad)?, [1.0; 5]);
        // Nobody uses it.
        net.parameters().iter().for_each(Tensor::zero_grad);
        net.forward(&x, false)?.sum()?.backward()?;
        assert!(net.second.weight.grad().is_none() && net.first.weight.grad().is_some());
    }
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::a_step_that_is_captured` starts"]
fn captured() -> Result<()> {
    let group = group(60)?;
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let (alone, net) = (Net::new(device)?, Net::new(device)?);
    let net = DistributedDataParallel::new(net, &group, SMALL)?;
    let (mut own, mut shared) = (sgd(&alone), sgd(&net));
    let mut step = genesis::graph(|optimizer: &mut Sgd, inputs: &[Tensor]| {
        optimizer.zero_grad();
        let loss = loss(&net, &inputs[0])?;
        loss.backward()?;
        optimizer.step()?;
        Ok(vec![loss.detach()])
    });
    for _ in 0..5 {
        let batch = Tensor::randn(&[2 * size, 6], device)?;
        own.zero_grad();
        loss(&alone, &batch)?.backward()?;
        own.step()?;
        step.call(&mut shared, &[&batch.narrow(0, 2 * rank, 2)?.copy()?])?;
    }
    assert!(step.captures() > 0, "the step was not captured");
    for (a, b) in alone.parameters().iter().zip(net.parameters()) {
        let off = a.sub(&b)?.abs()?.max()?.item()?;
        assert!(off <= 1e-6, "off by {off}");
    }
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::calls_that_differ_are_named` starts"]
fn mismatched() -> Result<()> {
    let group = group(20)?;
    let x = Tensor::zeros(&[2 + group.rank()], group.device())?;
    let said = group.all_reduce(&x, ReduceOp::Sum).unwrap_err().to_string();
    let (own, other) = (group.rank(), 1 - group.rank());
    let wants = format!(
        "collective number 1 of group `world` is all_reduce of [{}] f32 on rank {own}, but all_reduce of \
         [{}] f32 on rank {other}",
        2 + own,
        2 + other
    );
    assert!(said.contains(&wants), "{said}");
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::modules_that_differ_are_named` starts"]
fn modules() -> Result<()> {
    let group = group(20)?;
    let net = Linear::new(4, 3 + group.rank(), group.device())?;
    let said = DistributedDataParallel::new(net, &group, SMALL).unwrap_err().to_string();
    assert!(
        said.contains("rank 1 has weight [4, 4] f32 where rank 0 has weight [3, 4] f32"),
        "{said}"
    );
    Ok(())
}

#[test]
#[ignore = "ranks, which `distributed::calls_in_another_order_are_named` starts"]
fn disordered() -> Result<()> {
    let group = group(20)?;
    let x = Tensor::zeros(&[4], group.device())?;
    let said = match group.rank() {
        0 => group.all_reduce(&x, ReduceOp::Sum).and_then(|()| group.broadcast(&x, 0)),
        _ => group.broadcast(&x, 0).and_then(|()| group.all_reduce(&x, ReduceOp::Sum)),
    };
    let said = said.unwrap_err().to_string();
    assert!(said.contains("collective number 1 of group `world` is "), "{said}");
    for call in ["all_reduce of [4] f32", "broadcast of [4] f32"] {
        assert!(said.contains(call), "{said}");
    }
    Ok(())
}

/// Rank 1 uses the store after rank 0 has nothing more to do. A group that is dropped has no thread left, which would end
/// the communicator while the process ends.
#[test]
#[ignore = "ranks, which `distributed::the_rank_that_holds_the_store_leaves_last` starts"]
fn late() -> Result<()> {
    let group = group(60)?;
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_secs(1));
        let store = group.store().expect("two ranks have a store");
        store.set("late", b"1")?;
        assert_eq!(store.get("late")?, b"1");
    }
    assert!(has_threads("collectives", 1, Duration::from_secs(5)));
    drop(group);
    // Not by itself, which it would look for twice a second.
    assert!(has_threads("collectives", 0, Duration::from_millis(300)));
    Ok(())
}

/// Whether as many threads of this process come to have a name.
fn has_threads(name: &str, count: usize, within: Duration) -> bool {
    let until = Instant::now() + within;
    while threads(name) != count && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    threads(name) == count
}

fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    let names =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|of| of.trim_end() == name).count()
}

/// Rank 1 is stopped, as by a debugger or a machine that swaps.
#[test]
#[ignore = "ranks, which `distributed::a_rank_that_is_stopped_is_named` starts"]
fn halted() -> Result<()> {
    let group = group(4)?;
    let x = Tensor::zeros(&[4], group.device())?;
    group.all_reduce(&x, ReduceOp::Sum)?;
    read(&x)?;
    if group.rank() == 1 {
        let own = std::process::id().to_string();
        std::process::Command::new("kill").args(["-STOP", &own]).status().expect("kill runs");
        // The signal may go to another thread, which stops this one once it is scheduled.
        std::thread::sleep(Duration::from_secs(60));
    }
    group.all_reduce(&x, ReduceOp::Sum)?;
    read(&x).map(drop)
}

/// Ten collectives.
#[test]
#[ignore = "ranks, which `distributed::a_rank_that_dies_is_named` starts"]
fn many() -> Result<()> {
    let group = group(4)?;
    let x = Tensor::zeros(&[4], group.device())?;
    for _ in 0..10 {
        group.all_reduce(&x, ReduceOp::Sum)?;
    }
    read(&x).map(drop)
}

/// Rank 1 does something else after the first collective.
#[test]
#[ignore = "ranks, which `distributed::a_rank_that_does_something_else_is_named` starts"]
fn sleeps() -> Result<()> {
    let group = group(4)?;
    let x = Tensor::zeros(&[4], group.device())?;
    group.all_reduce(&x, ReduceOp::Sum)?;
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_secs(60));
    }
    group.all_reduce(&x, ReduceOp::Sum)?;
    read(&x).map(drop)
}

/// What the launchers' tests start: `init` as any program calls it.
#[test]
#[ignore = "ranks, which a launcher starts"]
fn sum_of_ranks() -> Result<()> {
    let group = init()?;
    let x = Tensor::full(&[1], group.rank() as f64, group.device())?;
    group.all_reduce(&x, ReduceOp::Sum)?;
    println!("rank {} of {}: the sum of ranks is {}", group.rank(), group.size(), x.item()?);
    Ok(())
}

//! What the allocator costs: a block taken and given back, and a random trace on four threads, beside
//! PyTorch's on the same requests.
//!
//! The trace is a walk that both sides draw from the same integers: each of four threads takes a block
//! of one of a hundred sizes, from 512 bytes to 64 MiB, or gives one back, 250,000 times. It is timed with
//! the threads running as they like. How much memory each side held for it at most is a case of its own,
//! in GiB: there the events of the four walks come in an order that both sides draw, for what is live
//! together, and so what must be held, hangs on that more than on the allocator. The figure is the mean of
//! four orders; from one order to the next the ratio of two allocators differs by 4 %.

use std::time::Instant;

use anyhow::Context;
use genesis::{Device, Stream};
use genesis_kernel::Buffer;
use serde_json::json;

use crate::peer::Peer;
use crate::timing::{Times, host_ms};

const SMALL: &str = "alloc/1KiB";
const LARGE: &str = "alloc/64MiB";
const TRACE: &str = "alloc_trace/4t";
/// The most memory held for the trace; its figures are GiB.
const HELD: &str = "alloc_trace/4t/GiB held";

/// The names of the cases.
pub(crate) fn cases() -> Vec<String> {
    [SMALL, LARGE, TRACE, HELD].map(str::to_owned).to_vec()
}

/// The times of a case; none if it is no case of the allocator.
pub(crate) fn time(
    case: &str,
    device: Device,
    peer: Option<&mut Peer>,
) -> anyhow::Result<Option<Times>> {
    let times = match case {
        SMALL => pair(device, 1 << 10, peer),
        LARGE => pair(device, 64 << 20, peer),
        TRACE => trace(device, peer),
        HELD => held(device, peer),
        _ => return Ok(None),
    };
    times.map(Some)
}

/// Blocks taken and given back in a row for one figure.
const PAIRS: usize = 10_000;

fn pair(device: Device, bytes: usize, peer: Option<&mut Peer>) -> anyhow::Result<Times> {
    let stream = device.stream();
    let ours = host_ms(15, || {
        for _ in 0..PAIRS {
            drop(std::hint::black_box(Buffer::uninit(&stream, bytes)?));
        }
        Ok(())
    })?;
    let request = json!({ "do": "alloc", "bytes": bytes, "pairs": PAIRS });
    let peer = of_peer(peer, &request, "ms");
    Ok(Times { ours: ours / PAIRS as f64, peer, from_graphs: false })
}

/// The peer's figure; none where it can't tell.
fn of_peer(
    peer: Option<&mut Peer>,
    request: &serde_json::Value,
    figure: &str,
) -> Option<(String, f64)> {
    let answer = peer?.ask(request).ok()?;
    Some(("torch".to_owned(), answer[figure].as_f64()?))
}

const THREADS: u64 = 4;
const EVENTS: usize = 250_000;
const SIZES: u64 = 100;
/// Live blocks of a thread at most.
const MOST: usize = 64;

/// The generator of both sides.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        let state = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = state.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The hundred sizes in bytes: about as many between any two powers of two.
fn sizes() -> Vec<usize> {
    let mut random = Lcg(1);
    (0..SIZES).map(|i| (64usize << (i * 17 / SIZES)) * (8 + random.below(8)) as usize).collect()
}

/// One of the walks.
struct Walk {
    stream: Stream,
    random: Lcg,
    live: Vec<Buffer>,
}

impl Walk {
    fn new(device: Device, thread: u64) -> Walk {
        Walk { stream: device.stream(), random: Lcg(100 + thread), live: Vec::with_capacity(MOST) }
    }

    /// The next event.
    fn go(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let Walk { stream, random, live } = self;
        if live.is_empty() || (live.len() < MOST && random.below(2) == 0) {
            live.push(Buffer::uninit(stream, sizes[random.below(SIZES) as usize])?);
        } else {
            let at = random.below(live.len() as u64) as usize;
            drop(live.swap_remove(at));
        }
        Ok(())
    }
}

/// What one thread does.
fn walk(device: Device, thread: u64, sizes: &[usize]) -> anyhow::Result<()> {
    let mut walk = Walk::new(device, thread);
    (0..EVENTS).try_for_each(|_| walk.go(sizes))
}

fn trace(device: Device, peer: Option<&mut Peer>) -> anyhow::Result<Times> {
    device.release_memory()?;
    let sizes = &sizes();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let walks: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || walk(device, thread, sizes))).collect();
        walks.into_iter().try_for_each(|walk| walk.join().ok().context("a thread panicked")?)
    })?;
    let ours = start.elapsed().as_secs_f64() * 1e3;
    let peer = of_peer(peer, &json!({ "do": "alloc_trace" }), "ms");
    Ok(Times { ours, peer, from_graphs: false })
}

/// Which walk each event is of: the order of the walks' events is the walks' own, and among each other
/// they come at random.
fn order(seed: u64) -> Vec<usize> {
    let (mut random, mut left) = (Lcg(seed), [EVENTS; THREADS as usize]);
    let mut order = Vec::with_capacity(EVENTS * left.len());
    while order.len() < order.capacity() {
        let walk = random.below(THREADS) as usize;
        if left[walk] > 0 {
            left[walk] -= 1;
            order.push(walk);
        }
    }
    order
}

/// Orders of the figure of memory held.
const ORDERS: u64 = 4;

/// The most memory held for the walks in an [`order`], in GiB: the mean of several.
fn held(device: Device, peer: Option<&mut Peer>) -> anyhow::Result<Times> {
    let each = (1..=ORDERS).map(|seed| held_in(device, &order(seed)));
    let ours = each.sum::<anyhow::Result<f64>>()? / ORDERS as f64;
    let peer = of_peer(peer, &json!({ "do": "alloc_held", "orders": ORDERS }), "gib");
    Ok(Times { ours, peer, from_graphs: false })
}

fn held_in(device: Device, order: &[usize]) -> anyhow::Result<f64> {
    device.release_memory()?;
    device.reset_peak_memory_stats()?;
    let (sizes, mut left) = (&sizes(), [EVENTS; THREADS as usize]);
    let mut walks: Vec<Walk> = (0..THREADS).map(|thread| Walk::new(device, thread)).collect();
    for &at in order {
        walks[at].go(sizes)?;
        left[at] -= 1;
        if left[at] == 0 {
            walks[at].live.clear();
        }
    }
    Ok(device.memory_stats()?.peak_reserved as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_from_512_bytes_to_64_mib() {
        let sizes = sizes();
        assert!(sizes.iter().all(|&bytes| (512..64 << 20).contains(&bytes)), "{sizes:?}");
        assert!(sizes[0] < 1024 && sizes[99] >= 32 << 20, "{sizes:?}");
        // `peer.py` has the same generator; these are its first numbers.
        let mut random = Lcg(1);
        assert_eq!([random.below(8), random.below(8), random.below(100)], [6, 1, 96]);
    }

    #[test]
    fn the_order_has_every_event() {
        let order = order(1);
        let count = |walk: usize| order.iter().filter(|&&of| of == walk).count();
        assert_eq!([0, 1, 2, 3].map(count), [EVENTS; 4]);
        // `peer.py` draws the same.
        assert_eq!(order[..8], [2, 1, 0, 2, 2, 3, 2, 2]);
    }

    #[test]
    fn a_walk_gives_all_back() {
        let before = Device::Cpu.memory_stats().unwrap().allocations;
        walk(Device::Cpu, 0, &[4096; SIZES as usize]).unwrap();
        assert!(Device::Cpu.memory_stats().unwrap().allocations >= before + EVENTS as u64 / 2);
    }
}

//! What collectives cost: latency and bandwidth of links, by NCCL's model of its algorithms.
//!
//! ```text
//! k ranks of a group in each of N nodes, n = k N; S bytes: what an all-reduce sums, what an all-gather gives
//!
//! ring   all-gather, reduce-scatter   base + (n - N) near + (N - 1) far + (n - 1) / n S / B
//!        all-reduce                   twice the steps, twice the bytes
//! tree   all-reduce                   base + 2 ((k - 1) near + log2(N) far) + 2 S / B
//! ```
//!
//! `B` is what one rank sends in a second: the lesser of its own link within the node and of `k` times its share of the
//! node's links, which all rings of a group use side by side. The fastest of algorithms and protocols is taken, as NCCL
//! does: LL moves 8 bytes with their own flag, at a quarter of the bandwidth and a fraction of the latency.

use crate::error::{Error, Result};

/// What lies between nodes. Within a node is NVLink 4 always.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Network {
    /// What it is called: `ib-400`.
    pub name: &'static str,
    /// Bytes/s that NCCL moves each way over a link.
    pub bandwidth: f64,
    /// Whether all GPUs of a node share one link.
    pub is_shared: bool,
    /// Whether a hop is as short as one within a node.
    pub is_near: bool,
}

/// What NCCL moves over NVLink 4, bytes/s: an all-reduce of 1 GiB between two H200, 3.289 ms (PyTorch 2.11, NCCL
/// 2.28). The links themselves are 450 GB/s.
pub const NVLINK: f64 = 326.5e9;

/// The share of a network's line rate that NCCL is taken to reach. An assumption: none was there to be measured.
pub const LINE_SHARE: f64 = 0.9;

impl Network {
    /// NVLink 4 between all GPUs, as in one node.
    pub const NVLINK: Network =
        Network { name: "nvlink", bandwidth: NVLINK, is_shared: false, is_near: true };

    /// InfiniBand of 400 Gb/s for each GPU.
    pub const IB_400: Network =
        Network { name: "ib-400", bandwidth: 50e9 * LINE_SHARE, is_shared: false, is_near: false };

    /// Ethernet of 100 Gb/s for each node.
    pub const ETHERNET_100: Network = Network {
        name: "ethernet-100",
        bandwidth: 12.5e9 * LINE_SHARE,
        is_shared: true,
        is_near: false,
    };

    /// A network by its name, in upper or lower case.
    ///
    /// # Errors
    /// If it is none of nvlink, ib-400 and ethernet-100.
    pub fn named(name: &str) -> Result<Network> {
        let known = [Network::NVLINK, Network::IB_400, Network::ETHERNET_100];
        let found = known.into_iter().find(|network| network.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let message =
                format!("no network is called `{name}`; nvlink, ib-400, ethernet-100 are");
            Error::op("plan", message)
        })
    }

    /// Bytes/s of one GPU's share of a node of so many.
    fn share(&self, gpus_per_node: usize) -> f64 {
        if self.is_shared { self.bandwidth / gpus_per_node as f64 } else { self.bandwidth }
    }
}

/// Where the ranks of a group are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Span {
    /// Ranks in each node, k.
    pub(super) near: usize,
    /// Nodes, N.
    pub(super) nodes: usize,
}

impl Span {
    pub(super) fn size(&self) -> usize {
        self.near * self.nodes
    }
}

/// Nodes of GPUs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cluster {
    pub(super) network: Network,
    pub(super) gpus_per_node: usize,
}

/// An algorithm with a protocol.
struct Algorithm {
    is_tree: bool,
    /// Seconds of the call, of a hop within a node, and of one between nodes.
    base: f64,
    near: f64,
    far: f64,
    /// The share of the bandwidth.
    share: f64,
}

/// Latencies as NCCL's own choice of algorithms has them.
///
/// # Source
/// `baseLat` and `hwLat` of `src/graph/tuning.cc` at NCCL's commit 01afd20: NVLink's and the network's rows.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm { is_tree: false, base: 8.4e-6, near: 3.4e-6, far: 9.6e-6, share: 1.0 },
    Algorithm { is_tree: false, base: 3.6e-6, near: 0.47e-6, far: 2.7e-6, share: 0.25 },
    Algorithm { is_tree: true, base: 0.0, near: 28e-6, far: 50e-6, share: 0.9 },
    Algorithm { is_tree: true, base: 4.4e-6, near: 0.52e-6, far: 5e-6, share: 1.0 / 3.8 },
];

impl Cluster {
    /// Bytes/s that each rank of a group sends.
    fn bandwidth(&self, span: Span) -> f64 {
        match (span.near, span.nodes) {
            (_, 1) => NVLINK,
            (near, _) => {
                let network = near as f64 * self.network.share(self.gpus_per_node);
                // A rank alone in its node sends nothing within it.
                if near > 1 { network.min(NVLINK) } else { network }
            }
        }
    }

    /// Bytes/s of the hop between nodes, of a group of which each node has so many ranks.
    fn hop(&self, near: usize) -> f64 {
        let network = &self.network;
        match network.is_shared {
            true => network.bandwidth.min(near as f64 * network.share(self.gpus_per_node)),
            false => network.bandwidth,
        }
    }

    fn far(&self, of: &Algorithm) -> f64 {
        if self.network.is_near { of.near } else { of.far }
    }

    /// Seconds of an all-gather that gives so many bytes, or a reduce-scatter that takes them.
    pub(super) fn gather(&self, span: Span, bytes: f64) -> f64 {
        self.ring(span, bytes, 1.0)
    }

    /// Seconds of an all-reduce.
    pub(super) fn all_reduce(&self, span: Span, bytes: f64) -> f64 {
        let n = span.size();
        if n < 2 {
            return 0.0;
        }
        let trees = ALGORITHMS.iter().filter(|of| of.is_tree).map(|of| {
            let hops = (span.near - 1) as f64 * of.near + levels(span.nodes) * self.far(of);
            of.base + 2.0 * hops + 2.0 * bytes / (of.share * self.bandwidth(span))
        });
        trees.fold(self.ring(span, bytes, 2.0), f64::min)
    }

    /// The faster ring that goes `rounds` times round.
    fn ring(&self, span: Span, bytes: f64, rounds: f64) -> f64 {
        let (n, nodes) = (span.size() as f64, span.nodes as f64);
        if n < 2.0 {
            return 0.0;
        }
        let moved = (n - 1.0) / n * bytes / self.bandwidth(span);
        let rings = ALGORITHMS.iter().filter(|of| !of.is_tree).map(|of| {
            let hops = (n - nodes) * of.near + (nodes - 1.0) * self.far(of);
            of.base + rounds * (hops + moved / of.share)
        });
        rings.fold(f64::INFINITY, f64::min)
    }

    /// Seconds of a broadcast: a ring whose chunks follow each other.
    pub(super) fn broadcast(&self, span: Span, bytes: f64) -> f64 {
        if span.size() < 2 {
            return 0.0;
        }
        let of = &ALGORITHMS[0];
        let hops =
            (span.size() - span.nodes) as f64 * of.near + (span.nodes - 1) as f64 * self.far(of);
        of.base + hops + bytes / self.bandwidth(span)
    }

    /// Seconds of a message to a neighbour in the group, all of which send at once; the slowest hop is what counts.
    pub(super) fn send(&self, span: Span, bytes: f64) -> f64 {
        if span.size() < 2 {
            return 0.0;
        }
        let of = &ALGORITHMS[0];
        match span.nodes {
            1 => of.base + of.near + bytes / NVLINK,
            // One of its ranks in a node has the hop to the next node; each group of the node has one.
            _ => of.base + self.far(of) + bytes / self.hop(span.near),
        }
    }
}

/// The levels of a binary tree of so many nodes.
fn levels(n: usize) -> f64 {
    f64::from(n.next_power_of_two().ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Cluster = Cluster { network: Network::IB_400, gpus_per_node: 8 };

    fn span(near: usize, nodes: usize) -> Span {
        Span { near, nodes }
    }

    #[test]
    fn collectives_of_one_rank_are_free() {
        for seconds in [
            NODE.gather(span(1, 1), 1e9),
            NODE.all_reduce(span(1, 1), 1e9),
            NODE.send(span(1, 1), 1e9),
            NODE.broadcast(span(1, 1), 1e9),
        ] {
            assert_eq!(seconds, 0.0);
        }
    }

    #[test]
    fn large_ones_are_bandwidth_and_small_ones_latency() {
        let large = NODE.all_reduce(span(8, 1), 100e9);
        let bytes = 2.0 * 7.0 / 8.0 * 100e9 / NVLINK;
        assert!((large / bytes - 1.0).abs() < 1e-3, "{large} {bytes}");
        // An all-gather moves half of what an all-reduce does.
        assert!((large / NODE.gather(span(8, 1), 100e9) - 2.0).abs() < 1e-3);
        let small = NODE.all_reduce(span(8, 1), 4.0);
        // The ring in LL: 14 hops; the tree: 14 hops of 0.52 us.
        assert!((9e-6..12e-6).contains(&small), "{small}");
        // Over nodes the tree's logarithm wins over the ring's length.
        let far = NODE.all_reduce(span(8, 128), 4.0);
        assert!((80e-6..90e-6).contains(&far), "{far}");
    }

    #[test]
    fn all_reduces_of_two_gpus_are_those_that_were_measured() {
        // MiB and ms of f32 sums over two H200: PyTorch 2.11, NCCL 2.28.
        for (mib, ms) in [(1.0, 0.0203), (16.0, 0.0757), (256.0, 0.893), (1024.0, 3.289)] {
            let computed = NODE.all_reduce(span(2, 1), mib * 1_048_576.0) * 1e3;
            let off = computed / ms - 1.0;
            assert!(off.abs() < 0.15, "{mib} MiB: {computed} ms, {off:+.3}");
        }
    }

    #[test]
    fn nodes_with_several_ranks_use_all_links() {
        let bytes = 10e9;
        let seconds = |near, nodes| NODE.all_reduce(span(near, nodes), bytes);
        let one_each = 2.0 * 7.0 / 8.0 * bytes / 45e9;
        assert!((seconds(1, 8) / one_each - 1.0).abs() < 0.01);
        // Eight times 45 GB/s is more than NVLink's.
        assert!(seconds(8, 8) < 1.15 * seconds(8, 1));
        let shared = Cluster { network: Network::ETHERNET_100, gpus_per_node: 8 };
        let whole = 2.0 * 63.0 / 64.0 * bytes / 11.25e9;
        assert!((shared.all_reduce(span(8, 8), bytes) / whole - 1.0).abs() < 0.01);
    }

    #[test]
    fn more_bandwidth_is_never_slower() {
        let mut before = f64::INFINITY;
        for gigabits in [10.0, 100.0, 400.0, 1600.0] {
            let network = Network { bandwidth: gigabits * 1e9 / 8.0, ..Network::IB_400 };
            let cluster = Cluster { network, gpus_per_node: 8 };
            let at = span(8, 16);
            let all = cluster.all_reduce(at, 1e9) + cluster.gather(at, 1e9) + cluster.send(at, 1e9);
            assert!(all <= before, "{gigabits} Gb/s");
            before = all;
        }
    }
}

//! What collectives cost on the virtual clock, by the link that each rank has to the others.
//!
//! ```text
//! n ranks, S bytes: what an all-reduce sums, what an all-gather gives; B bytes/s each way
//!
//! all-gather, reduce-scatter   latency + (n - 1) / n S / B        a ring
//! all-reduce                   latency + 2 (n - 1) / n S / B
//! broadcast, reduce            latency + S / B                    a ring whose chunks follow each other
//! send, receive                latency + S / B                    the longer of all a rank sends and all it receives
//! ```
//!
//! These are the terms of `genesis/src/plan/network.rs` with one latency a call. Calls of a group pay it once.

use crate::kind::Kind;

/// The link of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Link {
    /// Bytes a nanosecond, that is GB/s, each way; bytes take no time without it.
    pub(crate) rate: Option<f64>,
    /// Of a call, in ns.
    pub(crate) latency: u64,
}

/// A call: what it is, and the most bytes that a rank gives it or gets.
pub(crate) type Load = (Kind, usize);

impl Link {
    /// Takes a word of the options; whether it is known.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> bool {
        let Some(number) = value.parse::<f64>().ok().filter(|number| number.is_finite()) else {
            return false;
        };
        match name {
            "link" if number > 0.0 => self.rate = Some(number),
            "latency" if number >= 0.0 => self.latency = (number * 1e3).round() as u64,
            _ => return false,
        }
        true
    }

    /// Nanoseconds of a group of calls between so many ranks, of which this is one.
    pub(crate) fn cost(&self, calls: &[Load], rank: usize, size: usize) -> u64 {
        let (mut moved, mut sent, mut received) = (0.0, 0.0, 0.0);
        let n = size as f64;
        for &(kind, bytes) in calls {
            let bytes = bytes as f64;
            match kind {
                Kind::AllReduce(..) => moved += 2.0 * (n - 1.0) / n * bytes,
                Kind::AllGather | Kind::ReduceScatter(..) => moved += (n - 1.0) / n * bytes,
                Kind::Broadcast(_) | Kind::Reduce(..) => moved += bytes,
                Kind::Send(peer) if peer != rank => sent += bytes,
                Kind::Receive(peer) if peer != rank => received += bytes,
                Kind::Send(_) | Kind::Receive(_) => {}
            }
        }
        if size < 2 {
            return 0;
        }
        let moved: f64 = moved + f64::max(sent, received);
        self.latency + self.rate.map_or(0, |rate| (moved / rate).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

    use super::*;

    const LINK: Link = Link { rate: Some(12.5), latency: 5_000 };
    const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;
    const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

    #[test]
    fn rings_move_each_byte_once_or_twice() {
        let cost = |kind, size| LINK.cost(&[(kind, 100_000)], 0, size);
        assert_eq!(cost(Kind::AllReduce(F32, SUM), 2), 5_000 + 8_000);
        assert_eq!(cost(Kind::AllReduce(F32, SUM), 4), 5_000 + 12_000);
        assert_eq!(cost(Kind::AllGather, 4), 5_000 + 6_000);
        assert_eq!(cost(Kind::ReduceScatter(F32, SUM), 4), 5_000 + 6_000);
        assert_eq!(cost(Kind::Broadcast(3), 4), 5_000 + 8_000);
        assert_eq!(cost(Kind::AllReduce(F32, SUM), 1), 0);
    }

    #[test]
    fn calls_of_a_group_share_the_link() {
        let both = [(Kind::Send(1), 100_000), (Kind::Receive(1), 50_000)];
        assert_eq!(LINK.cost(&both, 0, 2), 5_000 + 8_000);
        // What a rank sends to itself is on no link.
        assert_eq!(LINK.cost(&both, 1, 2), 5_000);
        assert_eq!(LINK.cost(&[(Kind::AllGather, 100_000); 2], 0, 2), 5_000 + 8_000);
    }

    #[test]
    fn a_link_without_a_rate_costs_its_latency() {
        let link = Link { rate: None, latency: 7 };
        assert_eq!(link.cost(&[(Kind::AllGather, 100_000)], 0, 2), 7);
        assert_eq!(Link::default().cost(&[(Kind::AllGather, 100_000)], 0, 2), 0);
    }
}

//! The order of samples: a permutation by seed and epoch, cut into batches.

/// A permutation of `0..n` that depends on the seed and the epoch only.
///
/// Fisher-Yates with SplitMix64, so that the order is the same on every machine.
pub fn shuffled(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut state = seed ^ epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let bound = i as u64 + 1;
        let j = ((u128::from(next(&mut state)) * u128::from(bound)) >> 64) as usize;
        order.swap(i, j);
    }
    order
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Consecutive pieces of an order, each of `size` samples but perhaps the last.
#[derive(Clone, Debug)]
pub struct Batches {
    order: Vec<usize>,
    size: usize,
    at: usize,
}

impl Batches {
    /// Batches of `size`, at least 1, over an order.
    pub fn new(order: Vec<usize>, size: usize) -> Batches {
        Batches { order, size: size.max(1), at: 0 }
    }
}

impl Iterator for Batches {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let end = (self.at + self.size).min(self.order.len());
        let batch = self.order.get(self.at..end).filter(|b| !b.is_empty())?.to_vec();
        self.at = end;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_drawn_once() {
        let mut seen: Vec<usize> = Batches::new(shuffled(103, 7, 1), 10).flatten().collect();
        assert_ne!(seen, (0..103).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..103).collect::<Vec<_>>());
    }

    #[test]
    fn the_order_depends_on_seed_and_epoch_only() {
        assert_eq!(shuffled(50, 1, 2), shuffled(50, 1, 2));
        assert_ne!(shuffled(50, 1, 2), shuffled(50, 1, 3));
        assert_ne!(shuffled(50, 1, 2), shuffled(50, 2, 2));
    }
}

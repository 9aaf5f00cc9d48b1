//! Random numbers of the data side: of an order, and of one sample.
//!
//! They come from SplitMix64 and never from the default generator: a sample's numbers depend on the
//! loader's seed, the epoch and the sample's index only, so that neither the order nor the number of
//! workers changes them.

use crate::error::{Error, Result};
use crate::tensor::host::reserved;

/// The golden ratio's bits, which spread neighbouring seeds.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A small source of random numbers.
///
/// # Source
/// SplitMix64, doi:10.1145/2660193.2660195.
#[derive(Clone, Debug)]
pub struct SampleRng {
    state: u64,
}

impl SampleRng {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> SampleRng {
        SampleRng { state: seed }
    }

    /// The numbers of one sample in one epoch.
    pub fn of_sample(seed: u64, epoch: u64, index: usize) -> SampleRng {
        let mut mixed = SampleRng::new(seed ^ 0x5851_F42D_4C95_7F2D);
        for part in [epoch, index as u64] {
            mixed.state = mixed.next_u64() ^ part.wrapping_mul(GOLDEN);
        }
        mixed
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to but without 1, of 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number from 0 up to but without `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Whether an event of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

/// A permutation of `0..n` that depends on the seed and the epoch only: Fisher-Yates, the same on
/// every machine.
///
/// # Errors
/// If memory has no room for it.
pub fn shuffled(n: usize, seed: u64, epoch: u64) -> Result<Vec<usize>> {
    let mut rng = SampleRng::new(seed ^ epoch.wrapping_mul(GOLDEN));
    let mut order = room(n)?;
    order.extend(0..n);
    for i in (1..n).rev() {
        order.swap(i, rng.below(i + 1));
    }
    Ok(order)
}

/// A list with room for so many samples.
pub(super) fn room<T>(samples: usize) -> Result<Vec<T>> {
    reserved(samples).map_err(|_| too_many(samples))
}

fn too_many(samples: usize) -> Error {
    Error::op("sampler", format!("{samples} samples are more than memory holds"))
}

/// Draws of `count` places by weight.
///
/// Without replacement the places with the largest `u^(1/w)` are taken, which is the same
/// distribution as drawing one after another.
///
/// # Errors
/// If a weight is negative or no number, or too few are positive.
/// # Source
/// doi:10.1016/j.ipl.2005.11.003.
pub(super) fn weighted(
    weights: &[f64],
    count: usize,
    replacement: bool,
    rng: &mut SampleRng,
) -> Result<Vec<usize>> {
    const NAME: &str = "weighted sampler";
    if let Some(place) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        return Err(Error::op(NAME, format!("weight {place} is {}", weights[place])));
    }
    let positive = weights.iter().filter(|&&w| w > 0.0).count();
    let needed = if replacement { count.min(1) } else { count };
    if positive < needed {
        let message = format!("{count} draws from {positive} positive weight(s)");
        return Err(Error::op(NAME, message));
    }
    if !replacement {
        let key = |w: f64, u: f64| {
            if w > 0.0 { u.max(f64::MIN_POSITIVE).ln() / w } else { f64::NEG_INFINITY }
        };
        let mut keyed: Vec<(f64, usize)> = room(weights.len())?;
        keyed.extend(weights.iter().enumerate().map(|(i, &w)| (key(w, rng.uniform()), i)));
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        return Ok(keyed[..count].iter().map(|&(_, i)| i).collect());
    }
    let mut sums: Vec<f64> = room(weights.len())?;
    // Weights whose sum is no number are made smaller together.
    let whole: f64 = weights.iter().sum();
    let scale = if whole.is_finite() { 1.0 } else { f64::MIN_POSITIVE };
    let mut total = 0.0;
    sums.extend(weights.iter().map(|w| {
        total += w * scale;
        total
    }));
    let last = weights.iter().rposition(|&w| w > 0.0).unwrap_or(0);
    let mut draw = || {
        let at = rng.uniform() * total;
        sums.partition_point(|&sum| sum <= at).min(last)
    };
    let mut draws = room(count)?;
    draws.extend((0..count).map(|_| draw()));
    Ok(draws)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_drawn_once() {
        let mut seen = shuffled(103, 7, 1).unwrap();
        assert_ne!(seen, (0..103).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..103).collect::<Vec<_>>());
    }

    #[test]
    fn the_order_depends_on_seed_and_epoch_only() {
        assert_eq!(shuffled(50, 1, 2).unwrap(), shuffled(50, 1, 2).unwrap());
        assert_ne!(shuffled(50, 1, 2).unwrap(), shuffled(50, 1, 3).unwrap());
        assert_ne!(shuffled(50, 1, 2).unwrap(), shuffled(50, 2, 2).unwrap());
    }

    #[test]
    fn neighbouring_samples_draw_apart() {
        let first = |seed, epoch, index| SampleRng::of_sample(seed, epoch, index).next_u64();
        let mut all = vec![];
        for seed in 0..4 {
            for epoch in 0..4 {
                all.extend((0..64).map(|index| first(seed, epoch, index)));
            }
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * 4 * 64);
    }

    #[test]
    fn weights_are_shares() {
        let mut rng = SampleRng::new(3);
        let draws = weighted(&[1.0, 0.0, 3.0, 0.0], 40_000, true, &mut rng).unwrap();
        let of_two = draws.iter().filter(|&&i| i == 2).count() as f64 / 40_000.0;
        assert!((of_two - 0.75).abs() < 0.01, "{of_two}");
        assert!(draws.iter().all(|&i| i == 0 || i == 2));
        let large = weighted(&[f64::MAX, f64::MAX], 1000, true, &mut rng).unwrap();
        assert!((400..600).contains(&large.iter().sum::<usize>()), "{large:?}");
    }

    #[test]
    fn without_replacement_none_comes_twice() {
        let mut rng = SampleRng::new(3);
        let mut first = [0; 3];
        for _ in 0..20_000 {
            let draws = weighted(&[1.0, 2.0, 0.0], 2, false, &mut rng).unwrap();
            assert!(draws == [0, 1] || draws == [1, 0]);
            first[draws[0]] += 1;
        }
        assert!((f64::from(first[1]) / 20_000.0 - 2.0 / 3.0).abs() < 0.02, "{first:?}");
        let error = weighted(&[1.0, 0.0], 2, false, &mut rng).unwrap_err().to_string();
        assert_eq!(error, "weighted sampler: 2 draws from 1 positive weight(s)");
        assert!(weighted(&[1.0, f64::NAN], 1, true, &mut rng).is_err());
    }
}

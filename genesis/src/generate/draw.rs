//! Uniform numbers of a seed and a position, by Philox 4x32-10 as kernels compute it.
//!
//! A draw is a function of the request's seed and of the position of the token that it picks, so that it
//! does not matter which other sequences are in the batch, how often a sequence was preempted, or whether a
//! draft was there: the same request draws the same numbers.
//!
//! The counter is (low half of the position, high half, 0, 0) and the key (low half of the seed, high half),
//! which is what `randint(seed, index)` means in a kernel.
//!
//! # Source
//! Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// A number in [0, 1) of 53 bits.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    let [high, low, ..] = philox(position, seed);
    let bits = u64::from(high) << 21 | u64::from(low >> 11);
    bits as f64 / (1u64 << 53) as f64
}

/// The seed of one of several samples of a request; the first has the request's own.
pub(super) fn seed_of_sample(seed: u64, sample: usize) -> u64 {
    if sample == 0 {
        return seed;
    }
    // The key of the draws must differ from every seed that users choose in a row, which are small: a
    // sample's is what Philox makes of the counter's other half.
    let [high, low, ..] = words([0, 0, sample as u32, 1], seed);
    u64::from(high) << 32 | u64::from(low)
}

fn philox(index: u64, seed: u64) -> [u32; 4] {
    words([index as u32, (index >> 32) as u32, 0, 0], seed)
}

fn words(mut counter: [u32; 4], seed: u64) -> [u32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..ROUNDS {
        let [c0, c1, c2, c3] = counter;
        let first = u64::from(MULTIPLIERS[0]) * u64::from(c0);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(c2);
        counter = [
            (second >> 32) as u32 ^ c1 ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ c3 ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_published_test_vectors() {
        assert_eq!(words([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = [u32::MAX; 4];
        let expected = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(words(ones, u64::MAX), expected);
    }

    #[test]
    fn numbers_are_in_the_unit_interval_and_spread() {
        let numbers: Vec<f64> = (0..4096).map(|position| uniform(7, position)).collect();
        assert!(numbers.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = numbers.iter().sum::<f64>() / 4096.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn samples_of_a_request_draw_differently() {
        let seeds: std::collections::BTreeSet<u64> =
            (0..100).flat_map(|s| (0..100).map(move |sample| seed_of_sample(s, sample))).collect();
        assert_eq!(seeds.len(), 10_000);
        assert_eq!(seed_of_sample(9, 0), 9);
    }
}

//! The rates that kernels hold on a GPU, each from a row that `genesis bench` measured.
//!
//! A kernel takes `start + work / rate`. What a product starts with is seen where it is small: of 2.1 GFLOP, 1024 cubed,
//! an H200 needs 5.6 us, and 3.1 us at the rate that it holds for large ones.
//!
//! ```text
//! n            512    1024   2048   4096   8192   16384
//! measured     3.2    5.6    26.7   198    1,572  12,762 us      mean of nn, nt and tn
//! 2.5 + work   2.9    5.6    27.4   202    1,598  12,763 us      689 TFLOP/s
//! ```

use crate::error::{Error, Result};

/// A GPU as a plan sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gpu {
    /// What it is called: `h200`.
    pub name: &'static str,
    /// Bytes of its memory.
    pub memory: f64,
    /// Dense products of 16-bit floats by the data sheet, FLOP/s: what MFU is a share of.
    pub peak: f64,
    /// What kernels hold.
    pub rates: Rates,
}

/// What kernels hold in a long run; FLOP/s, bytes/s and seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Matrix products of bf16, FLOP/s.
    pub product: f64,
    /// Attention forward and backward of heads of up to 64 channels, FLOP/s; half of the square counts under a causal
    /// mask.
    pub attention_64: [f64; 2],
    /// The same of larger heads.
    pub attention_128: [f64; 2],
    /// Elementwise kernels, bytes/s.
    pub elementwise: f64,
    /// Norms forward and backward, bytes/s.
    pub norm: [f64; 2],
    /// The optimizer's update, bytes/s.
    pub optimizer: f64,
    /// Cross entropy, bytes/s.
    pub cross_entropy: f64,
    /// What a kernel takes beside its work, seconds.
    pub start: f64,
}

/// Where a rate is from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Which rate.
    pub rate: &'static str,
    /// The case in `benches/results/h200.jsonl`.
    pub case: &'static str,
    /// What it is, in FLOP/s or bytes/s.
    pub value: f64,
}

/// Every rate of [`Gpu::H200`] with the row it is from; a product's is the mean of its three rows.
pub const MEASURED: [Measured; 12] = [
    Measured { rate: "product", case: "matmul/bf16/16384/nn", value: 694.6e12 },
    Measured { rate: "product", case: "matmul/bf16/16384/nt", value: 683.5e12 },
    Measured { rate: "product", case: "matmul/bf16/16384/tn", value: 689.7e12 },
    Measured {
        rate: "attention, forward, D = 64",
        case: "attention/bf16/b32h16s1024d64",
        value: H200.attention_64[0],
    },
    Measured {
        rate: "attention, backward, D = 64",
        case: "attention_bwd/bf16/b32h16s1024d64/deterministic",
        value: H200.attention_64[1],
    },
    Measured {
        rate: "attention, forward, D = 128",
        case: "attention/bf16/b4h16s4096d128/causal",
        value: H200.attention_128[0],
    },
    Measured {
        rate: "attention, backward, D = 128",
        case: "attention_bwd/bf16/b4h16s4096d128/causal/deterministic",
        value: H200.attention_128[1],
    },
    Measured { rate: "elementwise", case: "silu/bf16/8192x8192", value: H200.elementwise },
    Measured { rate: "norm, forward", case: "rms_norm/bf16/16384x896", value: H200.norm[0] },
    Measured { rate: "norm, backward", case: "rms_norm_bwd/bf16/16384x896", value: H200.norm[1] },
    Measured { rate: "optimizer", case: "adamw/f32/403M", value: H200.optimizer },
    Measured {
        rate: "cross entropy",
        case: "cross_entropy/bf16/8192x151936/fwd+bwd",
        value: H200.cross_entropy,
    },
];

const H200: Rates = Rates {
    product: 689.3e12,
    attention_64: [443e12, 354e12],
    attention_128: [589e12, 461e12],
    elementwise: 4178e9,
    norm: [3769e9, 2988e9],
    optimizer: 4136e9,
    cross_entropy: 3491e9,
    start: 2.5e-6,
};

/// The share of an H200's bandwidth that an H100 has: `ops/add/f32/large` of `benches/results/h100-ops.jsonl` beside the
/// same sum of 4096 x 4096 on an H200, 2,983 and 4,208 GB/s.
const H100_BANDWIDTH: f64 = 0.709;

impl Gpu {
    /// An H200 SXM: 141 GB. Every rate was measured.
    pub const H200: Gpu =
        Gpu { name: "h200", memory: 143_771.0 * MIB, peak: 989.4e12, rates: H200 };

    /// An H100 SXM: 80 GB. Arithmetic is taken to be that of an H200, which has the same processor; bandwidths are those of
    /// the H200 times one measured ratio.
    pub const H100: Gpu = Gpu {
        name: "h100",
        memory: 81_559.0 * MIB,
        peak: 989.4e12,
        rates: Rates {
            elementwise: H200.elementwise * H100_BANDWIDTH,
            norm: [H200.norm[0] * H100_BANDWIDTH, H200.norm[1] * H100_BANDWIDTH],
            optimizer: H200.optimizer * H100_BANDWIDTH,
            cross_entropy: H200.cross_entropy * H100_BANDWIDTH,
            ..H200
        },
    };

    /// A GPU by its name, in upper or lower case.
    ///
    /// # Errors
    /// If there is no row of that name.
    pub fn named(name: &str) -> Result<Gpu> {
        let known = [Gpu::H200, Gpu::H100];
        let found = known.into_iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            Error::op("plan", format!("no rates of a GPU `{name}` are known; of h200 and h100 are"))
        })
    }

    /// Bytes that a plan may fill: CUDA's context, NCCL's buffers and gaps between blocks have the rest.
    pub fn usable(&self) -> f64 {
        self.memory * USABLE
    }

    /// Seconds of a product of `m x k` and `k x n` in bf16.
    pub(super) fn product(&self, m: f64, k: f64, n: f64) -> f64 {
        let moved = 2.0 * (m * k + k * n + m * n) / self.rates.elementwise;
        self.rates.start + (2.0 * m * k * n / self.rates.product).max(moved)
    }

    /// Seconds of causal attention of `rows` queries to half of `sequence` keys each, and those of its backward, which
    /// does 2.5 times as much. `channels` are those of all heads.
    pub(super) fn attention(&self, rows: f64, sequence: f64, [channels, d]: [f64; 2]) -> [f64; 2] {
        let rates = &self.rates;
        let [forward, backward] = if d > 64.0 { rates.attention_128 } else { rates.attention_64 };
        let flops = 2.0 * rows * sequence * channels;
        [rates.start + flops / forward, rates.start + 2.5 * flops / backward]
    }

    /// Seconds of an elementwise kernel that moves so many bytes.
    pub(super) fn elementwise(&self, bytes: f64) -> f64 {
        self.rates.start + bytes / self.rates.elementwise
    }
}

/// The share of memory that a plan may fill.
const USABLE: f64 = 0.94;

const MIB: f64 = 1_048_576.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest rate of a case in FLOP/s or bytes/s.
    fn recorded(results: &str, case: &str) -> f64 {
        let lines = results.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
        let mut rows = lines.filter(|row: &serde_json::Value| row["case"] == case);
        let row = rows.next().unwrap_or_else(|| panic!("no row of {case}"));
        let is_product = case.starts_with("matmul") || case.starts_with("attention");
        let (key, unit) = if is_product { ("tflops", 1e12) } else { ("gbs", 1e9) };
        row[key].as_f64().unwrap_or_else(|| panic!("{case} has no {key}")) * unit
    }

    #[test]
    fn rates_are_those_that_were_measured() {
        let results = include_str!("../../../benches/results/h200.jsonl");
        for Measured { rate, case, value } in MEASURED {
            let off = value / recorded(results, case) - 1.0;
            assert!(off.abs() < 0.05, "{rate}: {value:e}, {off:+.3} of {case}");
        }
        let products = MEASURED.iter().filter(|row| row.rate == "product").map(|row| row.value);
        assert!((products.sum::<f64>() / 3.0 / H200.product - 1.0).abs() < 1e-3);
    }

    #[test]
    fn small_products_are_those_that_were_measured() {
        let results = include_str!("../../../benches/results/h200.jsonl");
        for n in [512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0] {
            let rate = |form| recorded(results, &format!("matmul/bf16/{n}/{form}"));
            let seconds = |form| 2.0 * n * n * n / rate(form);
            let mean = (seconds("nn") + seconds("nt") + seconds("tn")) / 3.0;
            let off = Gpu::H200.product(n, n, n) / mean - 1.0;
            assert!(off.abs() < 0.12, "{n}: {off:+.3}");
        }
    }

    #[test]
    fn products_of_few_rows_move_their_weights() {
        let seconds = Gpu::H200.product(1.0, 4096.0, 14_336.0);
        // Measured: 28.9 us, linear/bf16/m1k4096n14336.
        assert!((26e-6..32e-6).contains(&seconds), "{seconds}");
    }

    #[test]
    fn unknown_gpus_are_refused() {
        let said = Gpu::named("tpu").unwrap_err().to_string();
        assert_eq!(said, "plan: no rates of a GPU `tpu` are known; of h200 and h100 are");
        assert_eq!(Gpu::named("H100").unwrap(), Gpu::H100);
    }
}

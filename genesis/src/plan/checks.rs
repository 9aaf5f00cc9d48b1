//! What was measured beside what the model of a plan computes: how far plans are to be trusted.
//!
//! No rate was fitted to these rows. Kernels are those of other shapes than the rows that rates are from
//! ([`MEASURED`](super::MEASURED)). Steps are PyTorch's under `torch.compile`, since no step of Genesis was recorded on
//! one H200: the same model, batch and precision, by other kernels. What is added by two ranks is of PyTorch in eager
//! mode, whose host is the limit.

use super::gpu::Gpu;
use super::job::{Job, Strategy};
use super::mesh::Mesh;
use super::network::{Cluster, Network, Span};
use super::shape::ModelShape;
use super::simulate;
use crate::error::Result;

/// One comparison, in seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What was done.
    pub what: &'static str,
    /// What measured it: a case of `benches/results/h200.jsonl`, or a program.
    pub source: &'static str,
    /// How long it took.
    pub measured: f64,
    /// How long a plan says that it takes.
    pub computed: f64,
}

impl Check {
    /// By how much the plan is over what was measured, as a share of that.
    pub fn off(&self) -> f64 {
        self.computed / self.measured - 1.0
    }
}

/// Products `[M, K, N]` in bf16, ms.
const PRODUCTS: [(&str, &str, [f64; 3], f64); 4] = [
    ("product 8192 x 896 x 4864", "linear/bf16/m8192k896n4864", [8192.0, 896.0, 4864.0], 0.1098),
    ("product 8192 x 4864 x 896", "linear/bf16/m8192k4864n896", [8192.0, 4864.0, 896.0], 0.1174),
    (
        "product 8192 x 896 x 151936",
        "linear/bf16/m8192k896n151936",
        [8192.0, 896.0, 151_936.0],
        3.511,
    ),
    (
        "product 8192 x 4096 x 14336",
        "linear/bf16/m8192k4096n14336",
        [8192.0, 4096.0, 14_336.0],
        1.425,
    ),
];

/// An attention: rows, keys that each sees twice over, heads and their channels.
struct Attention {
    what: &'static str,
    source: &'static str,
    rows: f64,
    seen: f64,
    head_dim: f64,
    is_backward: bool,
    ms: f64,
}

/// Sixteen heads each. A mask that is not causal sees all keys, so twice the length.
const ATTENTIONS: [Attention; 4] = [
    Attention {
        what: "attention 4 x 4096, D = 64, no mask",
        source: "attention/bf16/b4h16s4096d64",
        rows: 16_384.0,
        seen: 8192.0,
        head_dim: 64.0,
        is_backward: false,
        ms: 0.5344,
    },
    Attention {
        what: "its backward",
        source: "attention_bwd/bf16/b4h16s4096d64/deterministic",
        rows: 16_384.0,
        seen: 8192.0,
        head_dim: 64.0,
        is_backward: true,
        ms: 1.611,
    },
    Attention {
        what: "attention 1 x 16384, D = 128, causal",
        source: "attention/bf16/b1h16s16384d128/causal",
        rows: 16_384.0,
        seen: 16_384.0,
        head_dim: 128.0,
        is_backward: false,
        ms: 1.616,
    },
    Attention {
        what: "its backward",
        source: "attention_bwd/bf16/b1h16s16384d128/causal/deterministic",
        rows: 16_384.0,
        seen: 16_384.0,
        head_dim: 128.0,
        is_backward: true,
        ms: 4.923,
    },
];

/// All-reduces in f32 between two H200 over NVLink, MiB and ms.
const ALL_REDUCES: [(&str, f64, f64); 4] = [
    ("all-reduce of 1 MiB, 2 GPUs", 1.0, 0.0203),
    ("all-reduce of 16 MiB, 2 GPUs", 16.0, 0.0757),
    ("all-reduce of 256 MiB, 2 GPUs", 256.0, 0.893),
    ("all-reduce of 1 GiB, 2 GPUs", 1024.0, 3.289),
];

/// Who measured them.
const PYTORCH_NCCL: &str = "PyTorch 2.11, NCCL 2.28";
const PYTORCH_COMPILED: &str = "PyTorch 2.11, torch.compile";

/// All comparisons, of one H200 or two.
///
/// # Errors
/// If a step can't be simulated, which is a bug.
pub fn checks() -> Result<Vec<Check>> {
    let gpu = Gpu::H200;
    let mut all = Vec::new();
    let mut add = |what, source, ms: f64, computed| {
        all.push(Check { what, source, measured: ms * 1e-3, computed });
    };
    for (what, source, [m, k, n], ms) in PRODUCTS {
        add(what, source, ms, gpu.product(m, k, n));
    }
    for of in ATTENTIONS {
        let both = gpu.attention(of.rows, of.seen, [16.0 * of.head_dim, of.head_dim]);
        add(of.what, of.source, of.ms, both[usize::from(of.is_backward)]);
    }
    let cluster = Cluster { network: Network::NVLINK, gpus_per_node: 8 };
    for (what, mib, ms) in ALL_REDUCES {
        let two = Span { near: 2, nodes: 1 };
        add(what, PYTORCH_NCCL, ms, cluster.all_reduce(two, mib * 1_048_576.0));
    }
    let qwen = ModelShape::named("Qwen2.5-0.5B").unwrap_or_else(llama_1b);
    let (short, long) = ("step of Qwen2.5-0.5B, 8 x 1024", "step of Qwen2.5-0.5B, 4 x 4096");
    add(short, PYTORCH_COMPILED, 71.1, step(qwen.clone(), [8, 1024], 1)?);
    add(long, PYTORCH_COMPILED, 189.6, step(qwen.clone(), [4, 4096], 1)?);
    let llama = "step of Llama-3.2-1B, 4 x 2048";
    add(llama, PYTORCH_COMPILED, 149.2, step(llama_1b(), [4, 2048], 1)?);
    let added = step(qwen.clone(), [8, 1024], 2)? - step(qwen, [8, 1024], 1)?;
    add("what 2 ranks add to Qwen's 8 x 1024", "PyTorch 2.11, DDP, eager", 6.84, added);
    Ok(all)
}

/// Seconds of a step of data parallel ranks, of so many sequences of so many tokens each.
fn step(model: ModelShape, [microbatch, sequence]: [usize; 2], ranks: usize) -> Result<f64> {
    let job = Job {
        model,
        gpu: Gpu::H200,
        gpus: ranks,
        gpus_per_node: 8,
        network: Network::NVLINK,
        batch: microbatch * ranks,
        sequence,
    };
    let mesh = Mesh { dp: ranks, ..Mesh::default() };
    Ok(simulate(&job, &Strategy { mesh, microbatch, ..Strategy::default() })?.time.seconds)
}

/// The shape of Llama-3.2-1B.
fn llama_1b() -> ModelShape {
    ModelShape {
        name: "Llama-3.2-1B".to_owned(),
        vocabulary: 128_256,
        channels: 2048,
        hidden: 8192,
        layers: 16,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        positions: None,
        has_gate: true,
        has_head_norms: false,
        biases: super::Biases::None,
        is_tied: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far each kind of row may be off, as docs/scaling.md says.
    fn most(check: &Check) -> f64 {
        match check.what {
            what if what.starts_with("product") => 0.1,
            what if what.starts_with("step of Qwen2.5-0.5B, 4") => 0.35,
            what if what.starts_with("step") => 0.2,
            // Of a host that is the limit nothing is computed.
            what if what.starts_with("what 2 ranks") => 0.75,
            _ => 0.25,
        }
    }

    #[test]
    fn plans_are_as_near_to_what_was_measured_as_the_page_says() {
        for check in checks().unwrap() {
            let off = check.off();
            println!("{}: {:.4} ms, {off:+.3}", check.what, check.computed * 1e3);
            assert!(off.abs() < most(&check), "{check:?}: {off:+.3}");
        }
    }

    #[test]
    fn kernels_took_as_long_as_is_recorded() {
        let results = include_str!("../../../benches/results/h200.jsonl");
        let rows: Vec<serde_json::Value> =
            results.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for check in checks().unwrap().iter().filter(|check| check.source.contains("/bf16/")) {
            let row = rows.iter().rfind(|row| row["case"] == check.source).expect(check.source);
            let ms = row["ours_ms"].as_f64().expect("a time");
            assert!((check.measured * 1e3 / ms - 1.0).abs() < 0.05, "{}: {ms}", check.source);
        }
    }
}

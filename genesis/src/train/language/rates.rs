//! Throughput: tokens a second, and model FLOP utilization (MFU).

use std::time::Instant;

use genesis_kernel::runtime::Device;

use super::options::Precision;
use super::start::Start;
use crate::distributed::ProcessGroup;
use crate::profiler::Peaks;

/// Measures steps.
pub(super) struct Rates {
    start: Instant,
    tokens: usize,
    seconds: f64,
    /// Floating-point operations of a token, forward and backward.
    flops: f64,
    /// What the devices can do in a second; none of a processor, which nobody measured.
    peak: Option<f64>,
}

impl Rates {
    /// Of a model that is trained in rows of `length` tokens.
    ///
    /// A product takes 2 operations a weight forward and 4 backward, 2 where the weight is frozen; attention takes
    /// `12 layers heads head_dim length` together, half of that since it is causal.
    ///
    /// # Source
    /// arXiv:2204.02311, appendix B.
    pub(super) fn new(
        Start { model, config, group, .. }: &Start,
        (length, dtype): (usize, Precision),
        device: Device,
    ) -> Rates {
        let weights = |trained: bool| -> f64 {
            let all = model.parameters().into_iter();
            all.filter(|p| p.rank() > 1 && p.requires_grad() == trained)
                .map(|p| p.numel() as f64)
                .sum()
        };
        let shape = model.kv_shape();
        let heads = ["num_attention_heads", "n_head"].map(|key| config.config.get(key)?.as_u64());
        let heads = heads.into_iter().flatten().next().unwrap_or(shape.heads as u64);
        let attention = 6.0 * (shape.layers * shape.head_dim * length) as f64 * heads as f64;
        let peaks = device.is_cuda().then(|| Peaks::of_data_sheet(device).ok()).flatten();
        // Of all devices: tokens are those of all ranks.
        let ranks = group.as_ref().map_or(1, ProcessGroup::size) as f64;
        let peak = peaks.map(|peaks| match dtype {
            Precision::Bf16 => peaks.half_products,
            Precision::F32 => peaks.single_products,
        });
        Rates {
            start: Instant::now(),
            tokens: 0,
            seconds: 0.0,
            flops: 6.0 * weights(true) + 4.0 * weights(false) + attention,
            peak: peak.map(|per_ns| per_ns * 1e9 * ranks),
        }
    }

    /// A step begins.
    pub(super) fn begin(&mut self) {
        self.start = Instant::now();
    }

    /// It is over; gives the tokens a second of it, and the share of the device's products.
    pub(super) fn end(&mut self, tokens: usize) -> (f64, Option<f64>) {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        self.tokens += tokens;
        self.seconds += seconds;
        let rate = tokens as f64 / seconds;
        (rate, self.peak.map(|peak| rate * self.flops / peak))
    }

    /// Seconds of all steps.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Tokens a second of all steps.
    pub(super) fn mean(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

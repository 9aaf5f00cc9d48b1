//! What steps of language models are made of.

use genesis::models::Projection;
use genesis::nn::{
    Adapted, LoraOptions, Parameter, QuantizedEmbedding, QuantizedLinear, Weight, adapt, adapters,
    merge,
};
use genesis::ops::{
    BlockType, CacheSlots, Gate, PagedAttention, PagedLayout, Penalties, QuantScheme,
    QuantizedWeight, Rotation, SampleTokens,
};
use genesis::{Device, Result};

use super::calls::{Row, done};
use super::generate::Gen;

pub(super) fn language_models(rows: &mut Vec<Row>) {
    caches(rows);
    low_rank(rows);
    layers(rows);
    quantized_layers(rows);
    sampling(rows);
}

/// Gates, rotations, norms of sums, and products by rows.
fn layers(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("gated", |g| {
        let gate = g.one(&[Gate::Silu, Gate::Gelu, Gate::GeluTanh]);
        done(g.tensor().gated(gate))
    });
    row("gate", |g| {
        let gate = g.one(&[Gate::Silu, Gate::Gelu, Gate::GeluTanh]);
        done(g.tensor().gate(&g.tensor(), gate))
    });
    row("rotary", |g| {
        let [x, cos, sin] = [(); 3].map(|()| g.tensor());
        done(x.rotary(&cos, &sin))
    });
    row("add_layer_norm", |g| {
        let [x, residual, weight, bias] = [(); 4].map(|()| g.tensor());
        done(x.add_layer_norm(&residual, &weight, &bias, g.v()))
    });
    row("add_rms_norm", |g| {
        let [x, residual, weight] = [(); 3].map(|()| g.tensor());
        done(x.add_rms_norm(&residual, &weight, g.v()))
    });
    row("linear_rows", |g| {
        let [x, weight, bias] = [(); 3].map(|()| g.tensor());
        done(x.linear_rows(&weight, g.v::<bool>().then_some(&bias)))
    });
}

/// Products with weights of few bits.
fn quantized_layers(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("quantized_linear", |g| {
        let weight = quantized(g)?;
        let bias = g.tensor();
        done(g.tensor().quantized_linear(&weight, g.v::<bool>().then_some(&bias)))
    });
    row("Weight", |g| {
        let weight = match g.v() {
            true => Weight::Whole(Parameter::new(g.tensor())?),
            false => Weight::Quantized(quantized(g)?),
        };
        let bias = g.tensor();
        let _ = weight.shape();
        done(weight.product(&g.tensor(), g.v::<bool>().then_some(&bias)))
    });
    row("QuantizedLinear", |g| {
        let bytes: Vec<u8> = (0..g.below(4) * 18).map(|_| g.below(256) as u8).collect();
        let ty = g.one(&[BlockType::Q4_0, BlockType::Q8_0, BlockType::Q4_K, BlockType::Q6_K]);
        let layer = QuantizedLinear::from_ggml(&bytes, ty, [g.v(), g.v()], Device::Cpu)?;
        done(layer.forward(&g.tensor()))
    });
    row("QuantizedEmbedding", |g| {
        let layer = QuantizedEmbedding { weight: quantized(g)?, dtype: g.v() };
        done(layer.forward(&g.tensor()))
    });
}

/// Tokens drawn from logits.
fn sampling(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("sample_tokens", |g| {
        let [x, temperature, top_k, top_p, min_p, seed, position] = [(); 7].map(|()| g.tensor());
        let [prompt, output] = [(); 2].map(|()| g.tensor());
        let penalties = Penalties {
            repetition: &temperature,
            presence: &top_p,
            frequency: &min_p,
            prompt: &prompt,
            output: &output,
        };
        let settings = SampleTokens {
            temperature: &temperature,
            top_k: &top_k,
            top_p: &top_p,
            min_p: &min_p,
            seed: &seed,
            position: &position,
            penalties: g.v::<bool>().then_some(penalties),
        };
        done(x.sample_tokens(&settings))
    });
}

/// Adapters beside weights.
fn low_rank(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("adapt", |g| {
        let weight = match g.v() {
            true => Weight::Whole(Parameter::new(g.tensor())?),
            false => Weight::Quantized(quantized(g)?),
        };
        let mut layer = Projection { weight, bias: None };
        let target = g.one(&["all-linear", "weight", "", "q_proj"]).to_owned();
        let targets = vec![target];
        let options =
            LoraOptions { rank: g.v(), alpha: g.v(), dropout: g.v(), targets, dora: g.v() };
        adapt(&mut layer, &options)?;
        let _ = layer.forward(&g.tensor());
        let found: Vec<(String, Adapted)> = adapters(&layer);
        drop(found);
        merge(&mut layer)?;
        done(layer.forward(&g.tensor()))
    });
}

/// What reads and writes caches of keys and values.
fn caches(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("paged_attention", |g| {
        let [q, keys, values, query_starts, key_lengths, pages, sinks] =
            [(); 7].map(|()| g.tensor());
        let layout = PagedLayout {
            query_starts: &query_starts,
            key_lengths: &key_lengths,
            pages: &pages,
            max_queries: g.v(),
            max_keys: g.v(),
        };
        let sinks = g.v::<bool>().then_some(sinks);
        let options = PagedAttention { scale: g.v(), window: g.v(), softcap: g.v(), sinks };
        done(q.paged_attention(&keys, &values, &layout, &options))
    });
    row("write_slots_", |g| {
        let [cache, rows, slots] = [(); 3].map(|()| g.tensor());
        done(cache.write_slots_(&rows, &slots))
    });
    row("rotate_and_cache", |g| {
        let [q, k, v, positions, inv_freq, keys, values, slots] = [(); 8].map(|()| g.tensor());
        let norm = g.v::<bool>().then_some((&inv_freq, &inv_freq, g.v()));
        let rotation = Rotation { positions: &positions, inv_freq: &inv_freq, scale: g.v(), norm };
        let cache = CacheSlots { keys: &keys, values: &values, slots: &slots };
        done(q.rotate_and_cache(&k, &v, &rotation, &cache))
    });
    row("rotate_and_attend", |g| {
        let [q, k, v, positions, inv_freq, keys, values, slots] = [(); 8].map(|()| g.tensor());
        let norm = g.v::<bool>().then_some((&inv_freq, &inv_freq, g.v()));
        let rotation = Rotation { positions: &positions, inv_freq: &inv_freq, scale: g.v(), norm };
        let cache = CacheSlots { keys: &keys, values: &values, slots: &slots };
        let [query_starts, key_lengths, pages] = [(); 3].map(|()| g.tensor());
        let layout = PagedLayout {
            query_starts: &query_starts,
            key_lengths: &key_lengths,
            pages: &pages,
            max_queries: g.v(),
            max_keys: g.v(),
        };
        let options = PagedAttention { window: g.v(), softcap: g.v(), ..PagedAttention::default() };
        done(q.rotate_and_attend(&k, &v, &rotation, &cache, &layout, &options))
    });
}

fn quantized(g: &mut Gen) -> Result<QuantizedWeight> {
    let scheme = QuantScheme { bits: g.one(&[4, 8, 0]), group: g.v(), zero_points: g.v() };
    QuantizedWeight::quantize(&g.tensor(), scheme)
}

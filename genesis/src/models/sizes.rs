//! What all decoders are told by their configuration.

use super::settings::Settings;
use crate::error::Result;

/// Extents of a decoder.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) vocabulary: usize,
    pub(super) channels: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) max_positions: usize,
    pub(super) eps: f64,
    pub(super) tied: bool,
}

impl Sizes {
    /// Reads what is named alike everywhere; `usual` holds where a key is absent.
    pub(super) fn read(settings: &mut Settings, usual: &Sizes) -> Result<Sizes> {
        let channels = settings.size("hidden_size", usual.channels)?;
        let heads = settings.size("num_attention_heads", usual.heads)?;
        let kv_heads = match settings.has("num_key_value_heads") {
            true => settings.size("num_key_value_heads", heads)?,
            false if usual.kv_heads == 0 => heads,
            false => usual.kv_heads,
        };
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            let what = format!("{heads} heads are no multiple of num_key_value_heads {kv_heads}");
            return Err(settings.refusal(what));
        }
        let head_dim = match settings.size_if("head_dim")? {
            Some(head_dim) => head_dim,
            None if usual.head_dim > 0 => usual.head_dim,
            None if channels.is_multiple_of(heads) => channels / heads,
            None => {
                let what = format!("hidden_size {channels} is no multiple of {heads} heads");
                return Err(settings.refusal(what));
            }
        };
        Ok(Sizes {
            vocabulary: settings.size("vocab_size", usual.vocabulary)?,
            channels,
            hidden: settings.size("intermediate_size", usual.hidden)?,
            layers: settings.size("num_hidden_layers", usual.layers)?,
            heads,
            kv_heads,
            head_dim,
            max_positions: settings.size("max_position_embeddings", usual.max_positions)?,
            eps: settings.epsilon("rms_norm_eps", usual.eps)?,
            tied: settings.flag("tie_word_embeddings", usual.tied)?,
        })
    }

    /// Heads and the most positions, as [`RopeSettings::read`](super::RopeSettings::read) takes them.
    pub(super) fn rotated(&self) -> (usize, usize) {
        (self.head_dim, self.max_positions)
    }

    /// `1 / sqrt(D)`
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }
}

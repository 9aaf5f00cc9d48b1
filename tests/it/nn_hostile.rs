//! Layers made with numbers that no memory holds: an error each, no panic, and no time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use genesis::nn::{
    BatchNorm2d, Bilinear, Conv2d, ConvOptions, ConvPadding, ConvPaddingMode, ConvTranspose2d,
    ConvTransposeOptions, Embedding, EmbeddingBag, GroupNorm, Gru, GruCell, LayerNorm, Linear,
    Lstm, LstmCell, MultiheadAttention, MultiheadAttentionOptions, RecurrentOptions, RmsNorm, Rnn,
    RotaryEmbedding, SwiGlu, Transformer, TransformerDecoder, TransformerEncoder,
    TransformerOptions, init, pack_padded_sequence, pack_sequence,
};
use genesis::{Device, Result, Tensor};

const CPU: Device = Device::Cpu;
const HOSTILE: [usize; 8] =
    [0, 1, 3, 1 << 40, 1 << 62, (1 << 62) + 1, isize::MAX as usize, usize::MAX];

/// Whether a call ends soon with a value or an error. Its name and numbers are for the message.
fn ends<T>(name: &str, numbers: &[usize], call: impl FnOnce() -> Result<T>) -> bool {
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| call().is_ok()));
    let took = start.elapsed();
    assert!(outcome.is_ok(), "{name} of {numbers:?} panics");
    assert!(took < Duration::from_secs(5), "{name} of {numbers:?} took {took:?}");
    outcome.unwrap_or(false)
}

fn pairs() -> impl Iterator<Item = [usize; 2]> {
    HOSTILE.into_iter().flat_map(|a| HOSTILE.into_iter().map(move |b| [a, b]))
}

#[test]
fn constructors_refuse_what_no_memory_holds() {
    let t = TransformerOptions::default();
    for [a, b] in pairs() {
        let mut results = vec![
            ends("Linear", &[a, b], || Linear::new(a, b, CPU)),
            ends("Bilinear", &[a, b], || Bilinear::new([a, b], a, CPU)),
            ends("SwiGlu", &[a, b], || SwiGlu::new(a, b, CPU)),
            ends("Rnn", &[a, b], || Rnn::new(a, b, CPU)),
            ends("Lstm", &[a, b], || Lstm::new(a, b, CPU)),
            ends("Gru", &[a, b], || Gru::new(a, b, CPU)),
            ends("LstmCell", &[a, b], || LstmCell::new(a, b, CPU)),
            ends("GruCell", &[a, b], || GruCell::without_bias(a, b, CPU)),
            ends("RotaryEmbedding", &[a, b], || RotaryEmbedding::new(a, b, 1e4, CPU)),
            ends("Embedding", &[a, b], || Embedding::new(a, b, CPU)),
            ends("EmbeddingBag", &[a, b], || EmbeddingBag::with_padding(a, b, a, CPU)),
            ends("LayerNorm", &[a, b], || LayerNorm::new([a, b], CPU)),
            ends("RmsNorm", &[a, b], || RmsNorm::new([a, b], CPU)),
            ends("GroupNorm", &[a, b], || GroupNorm::new(a, b, CPU)),
            ends("BatchNorm2d", &[a, b], || BatchNorm2d::new(a, CPU)),
            ends("Conv2d", &[a, b], || Conv2d::new([a, b], 3, CPU)),
            ends("Conv2d kernel", &[a, b], || Conv2d::new([1, 1], [a, b], CPU)),
            ends("ConvTranspose2d", &[a, b], || ConvTranspose2d::new([a, b], 3, CPU)),
            ends("ConvTranspose2d kernel", &[a, b], || ConvTranspose2d::new([1, 1], [a, b], CPU)),
            ends("MultiheadAttention", &[a, b], || MultiheadAttention::new(a, b, CPU)),
            ends("TransformerEncoder", &[a, b], || TransformerEncoder::new(a, 4, b, t, CPU)),
            ends("TransformerDecoder", &[a, b], || TransformerDecoder::new(1, a, b, t, CPU)),
            ends("mask", &[a], || Transformer::generate_square_subsequent_mask(a, CPU)),
        ];
        let options = RecurrentOptions { num_layers: a, proj_size: b, ..Default::default() };
        results.push(ends("Lstm layers", &[a, b], || Lstm::with(2, 4, options, CPU)));
        let options = RecurrentOptions { num_layers: 1 << 40, bidirectional: true, ..options };
        assert!(!ends("Rnn layers", &[a, b], || Rnn::with(a, b, options, CPU)));
        let options =
            MultiheadAttentionOptions { kdim: Some(a), vdim: Some(b), ..Default::default() };
        results.push(ends("attention", &[a, b], || MultiheadAttention::with(4, 2, options, CPU)));
        if a.max(b) >= 1 << 62 && a.min(b) > 1 {
            assert!(!results[0] && !results[8] && !results[9], "{a} and {b} fit no memory");
        }
    }
}

#[test]
fn windows_of_any_numbers_end() -> Result<()> {
    let x = Tensor::ones(&[1, 2, 5, 5], CPU)?;
    let modes = [ConvPaddingMode::Zeros, ConvPaddingMode::Reflect, ConvPaddingMode::Circular];
    for [a, b] in pairs() {
        for (padding, padding_mode) in modes.into_iter().flat_map(|mode| {
            [ConvPadding::Both([b, 0]), ConvPadding::Same].map(|padding| (padding, mode))
        }) {
            for options in [
                ConvOptions { stride: [a, 1], padding, padding_mode, ..Default::default() },
                ConvOptions { dilation: [a, 1], padding, padding_mode, ..Default::default() },
                ConvOptions { groups: a, padding, padding_mode, ..Default::default() },
            ] {
                let made = Conv2d::with([2, 2], 3, options, CPU);
                let Ok(conv) = made else { continue };
                ends(&format!("{options:?}"), &[a, b], || conv.forward(&x));
            }
        }
        for options in [
            ConvTransposeOptions { stride: [a, 1], padding: [b, 0], ..Default::default() },
            ConvTransposeOptions { dilation: [a, 1], output_padding: [b, 0], ..Default::default() },
        ] {
            let conv = ConvTranspose2d::with([2, 2], 3, options, CPU)?;
            ends(&format!("{options:?}"), &[a, b], || conv.forward(&x));
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let x = Tensor::ones(&[2, 3, 4], CPU)?;
    let packed = pack_padded_sequence(&x, &[3, 2], true)?;
    for shape in [&[][..], &[4, 4], &[0], &[6]] {
        let error = packed.with_data(Tensor::zeros(shape, CPU)?).err().map(|e| e.to_string());
        let text = format!("packed_sequence: needs 5 elements, got shape {shape:?}");
        assert_eq!(error, Some(text));
    }
    assert!(packed.with_data(Tensor::zeros(&[5, 1], CPU)?).is_ok());
    let spread = Tensor::zeros(&[1, 1, 1], CPU)?.broadcast_to(&[1 << 20, 1 << 20, 1 << 20])?;
    assert!(!ends("dirac_", &[], || init::dirac_(&spread, 1)));
    Ok(())
}

#[test]
fn packing_empty_elements_of_more_times_than_memory_has_numbers_is_refused() -> Result<()> {
    let endless = Tensor::zeros(&[1 << 40, 0], CPU)?;
    assert!(!ends("pack_sequence", &[1 << 40, 0], || pack_sequence(&[&endless])));
    let x = Tensor::zeros(&[1, 1 << 40, 0], CPU)?;
    let pack = || pack_padded_sequence(&x, &[1 << 40], true);
    assert!(!ends("pack_padded_sequence", &[1, 1 << 40, 0], pack));
    Ok(())
}

//! The rows: PyTorch's case and the layer that answers it.

use super::*;
use genesis::nn::{
    Activation, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, Bilinear, ChannelShuffle,
    Embedding, Extents, Flatten, GroupNorm, GruCell, InstanceNorm1d, InstanceNorm2d,
    InstanceNorm3d, LayerNorm, LayerNormOptions, Linear, LstmCell, MultiheadAttentionOptions,
    PRelu, Pad1d, Pad2d, Pad3d, PixelShuffle, PixelUnshuffle, Recurrent, RecurrentOptions, RmsNorm,
    Rnn, RnnCell, RnnGates, RotaryEmbedding, SwiGlu, Transformer, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer, TransformerOptions, Unflatten,
};

pub(super) fn rows() -> Vec<Row> {
    [
        LINEAR,
        ACTIVATIONS,
        NORMS,
        SHAPES,
        ATTENTION,
        TRANSFORMERS,
        RECURRENT,
        LANGUAGE,
        LOSSES,
        RAGGED,
    ]
    .concat()
}

const LINEAR: &[Row] = &[
    ("linear", || layer(Linear::new(5, 3, CPU))),
    ("linear.no_bias", || layer(Linear::without_bias(5, 3, CPU))),
    ("bilinear", || {
        subject(Bilinear::new([3, 4], 2, CPU), |m, x| Ok(vec![m.forward(&x[0], &x[1])?]))
    }),
    ("embedding", || layer(Embedding::new(6, 3, CPU))),
    ("embedding.padding", || layer(Embedding::with_padding(6, 3, 2, CPU))),
    ("embedding.max_norm", || {
        layer(Embedding::new(6, 3, CPU).map(|table| Embedding { max_norm: Some(0.5), ..table }))
    }),
];

const ACTIVATIONS: &[Row] = &[
    ("relu", || layer(Ok(nn::Relu))),
    ("leakyrelu", || layer(Ok(nn::LeakyRelu::default()))),
    ("elu", || layer(Ok(nn::Elu::default()))),
    ("selu", || layer(Ok(nn::Selu))),
    ("celu", || layer(Ok(nn::Celu::default()))),
    ("gelu", || layer(Ok(nn::Gelu))),
    ("gelu.tanh", || layer(Ok(nn::GeluTanh))),
    ("silu", || layer(Ok(nn::Silu))),
    ("mish", || layer(Ok(nn::Mish))),
    ("softplus", || layer(Ok(nn::Softplus::default()))),
    ("softsign", || layer(Ok(nn::Softsign))),
    ("hardtanh", || layer(Ok(nn::Hardtanh::default()))),
    ("hardsigmoid", || layer(Ok(nn::Hardsigmoid))),
    ("hardswish", || layer(Ok(nn::Hardswish))),
    ("relu6", || layer(Ok(nn::Relu6))),
    ("sigmoid", || layer(Ok(nn::Sigmoid))),
    ("logsigmoid", || layer(Ok(nn::LogSigmoid))),
    ("tanh", || layer(Ok(nn::Tanh))),
    ("tanhshrink", || layer(Ok(nn::Tanhshrink))),
    ("hardshrink", || layer(Ok(nn::Hardshrink::default()))),
    ("softshrink", || layer(Ok(nn::Softshrink::default()))),
    ("threshold", || layer(Ok(nn::Threshold { threshold: 0.1, value: 20.0 }))),
    ("softmax", || layer(Ok(nn::Softmax { dim: 1 }))),
    ("softmin", || layer(Ok(nn::Softmin::default()))),
    ("logsoftmax", || layer(Ok(nn::LogSoftmax { dim: 0 }))),
    ("glu", || layer(Ok(nn::Glu { dim: 1 }))),
    ("prelu", || layer(PRelu::new(1, CPU))),
    ("prelu.channels", || layer(PRelu::new(3, CPU))),
];

const CUMULATIVE: BatchNormOptions = BatchNormOptions { momentum: None, ..BatchNormOptions::BATCH };
const PLAIN: BatchNormOptions = BatchNormOptions { affine: false, ..BatchNormOptions::BATCH };
const UNTRACKED: BatchNormOptions =
    BatchNormOptions { track_running_stats: false, ..BatchNormOptions::BATCH };
const TRACKED: BatchNormOptions = BatchNormOptions::BATCH;
const AFFINE: BatchNormOptions = BatchNormOptions { affine: true, ..BatchNormOptions::INSTANCE };

fn layer_norm(extents: impl Into<Extents>, options: LayerNormOptions) -> genesis::Result<Subject> {
    layer(LayerNorm::with(extents, options, CPU))
}

const NORMS: &[Row] = &[
    ("batchnorm1d.2.train", || layer(BatchNorm1d::new(3, CPU))),
    ("batchnorm1d.2.eval", || layer(BatchNorm1d::new(3, CPU))),
    ("batchnorm1d.3.train", || layer(BatchNorm1d::new(3, CPU))),
    ("batchnorm1d.3.eval", || layer(BatchNorm1d::new(3, CPU))),
    ("batchnorm2d.4.train", || layer(BatchNorm2d::new(3, CPU))),
    ("batchnorm2d.4.eval", || layer(BatchNorm2d::new(3, CPU))),
    ("batchnorm3d.5.train", || layer(BatchNorm3d::new(3, CPU))),
    ("batchnorm3d.5.eval", || layer(BatchNorm3d::new(3, CPU))),
    ("batchnorm2d.cumulative.train", || layer(BatchNorm2d::with(3, CUMULATIVE, CPU))),
    ("batchnorm2d.cumulative.eval", || layer(BatchNorm2d::with(3, CUMULATIVE, CPU))),
    ("batchnorm2d.plain.train", || layer(BatchNorm2d::with(3, PLAIN, CPU))),
    ("batchnorm2d.plain.eval", || layer(BatchNorm2d::with(3, PLAIN, CPU))),
    ("batchnorm2d.untracked.train", || layer(BatchNorm2d::with(3, UNTRACKED, CPU))),
    ("batchnorm2d.untracked.eval", || layer(BatchNorm2d::with(3, UNTRACKED, CPU))),
    ("layernorm", || layer(LayerNorm::new(5, CPU))),
    ("layernorm.two", || layer_norm([3, 5], LayerNormOptions { eps: 1e-3, ..Default::default() })),
    ("layernorm.no_bias", || layer_norm(5, LayerNormOptions { bias: false, ..Default::default() })),
    ("layernorm.plain", || {
        layer_norm(5, LayerNormOptions { elementwise_affine: false, ..Default::default() })
    }),
    ("rmsnorm", || layer(RmsNorm::new(5, CPU))),
    ("rmsnorm.eps", || layer(RmsNorm::with_eps([3, 5], 1e-6, CPU))),
    ("groupnorm", || layer(GroupNorm::new(2, 6, CPU))),
    ("instancenorm1d", || layer(InstanceNorm1d::new(3, CPU))),
    ("instancenorm2d.unbatched", || layer(InstanceNorm2d::with(3, AFFINE, CPU))),
    ("instancenorm2d.tracked.train", || layer(InstanceNorm2d::with(3, TRACKED, CPU))),
    ("instancenorm2d.tracked.eval", || layer(InstanceNorm2d::with(3, TRACKED, CPU))),
    ("instancenorm3d", || layer(InstanceNorm3d::new(3, CPU))),
];

const SHAPES: &[Row] = &[
    ("flatten", || layer(Ok(Flatten::new()))),
    ("unflatten", || layer(Ok(Unflatten::new(1, &[2, -1])))),
    ("pixelshuffle", || layer(Ok(PixelShuffle::new(2)))),
    ("pixelunshuffle", || layer(Ok(PixelUnshuffle::new(2)))),
    ("channelshuffle", || layer(Ok(ChannelShuffle::new(2)))),
    ("zeropad2d", || layer(Ok(Pad2d::zeros([1, 2, 0, 1])))),
    ("constantpad1d", || layer(Ok(Pad1d::constant(2, 3.5)))),
    ("reflectionpad2d", || layer(Ok(Pad2d::reflection(1)))),
    ("replicationpad3d", || layer(Ok(Pad3d::replication(1)))),
    ("circularpad1d", || layer(Ok(Pad1d::circular([1, 2])))),
];

/// Both results of attention, where there are both.
fn pair((y, weights): (Tensor, Option<Tensor>)) -> Vec<Tensor> {
    std::iter::once(y).chain(weights).collect()
}

/// A mask of three queries and keys that hides the future, and one that hides the last key of the first
/// of two sequences.
fn masks() -> genesis::Result<(Tensor, Tensor)> {
    let causal = Tensor::ones(&[3, 3], (DType::I64, CPU))?.triu(1)?.to_bool()?;
    let padding = Tensor::from_slice_on(&[0u8, 0, 1, 0, 0, 0], &[2, 3], CPU)?.to_bool()?;
    Ok((causal, padding))
}

fn heads(heads: usize, options: MultiheadAttentionOptions) -> genesis::Result<MultiheadAttention> {
    MultiheadAttention::with(8, heads, options, CPU)
}

/// Self-attention with these masks, with or without the weights.
fn masked(m: &MultiheadAttention, x: &Tensor, masks: [bool; 2], need_weights: bool) -> Outs {
    let (causal, padding) = self::masks()?;
    let attend = Attend {
        attn_mask: masks[0].then_some(&causal),
        key_padding_mask: masks[1].then_some(&padding),
        need_weights,
        ..Attend::default()
    };
    Ok(pair(m.forward(x, x, x, &attend)?))
}

const ATTENTION: &[Row] = &[
    ("attention", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| masked(m, &x[0], [false; 2], true))
    }),
    ("attention.heads", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| {
            let attend = Attend { average_attn_weights: false, ..Attend::default() };
            Ok(pair(m.forward(&x[0], &x[0], &x[0], &attend)?))
        })
    }),
    ("attention.fast", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| masked(m, &x[0], [false; 2], false))
    }),
    ("attention.masked", || {
        let options = MultiheadAttentionOptions { bias: false, ..Default::default() };
        subject(heads(2, options), |m, x| masked(m, &x[0], [true; 2], true))
    }),
    ("attention.masked_fast", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| masked(m, &x[0], [true; 2], false))
    }),
    ("attention.float_mask", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| {
            let attend = Attend { attn_mask: Some(&x[1]), ..Attend::default() };
            Ok(pair(m.forward(&x[0], &x[0], &x[0], &attend)?))
        })
    }),
    ("attention.cross", || {
        let options = MultiheadAttentionOptions {
            batch_first: true,
            kdim: Some(5),
            vdim: Some(6),
            ..Default::default()
        };
        subject(heads(2, options), |m, x| {
            Ok(pair(m.forward(&x[0], &x[1], &x[2], &Attend::default())?))
        })
    }),
    ("attention.memory", || {
        subject(MultiheadAttention::new(8, 4, CPU), |m, x| {
            Ok(pair(m.forward(&x[0], &x[1], &x[1], &Attend::default())?))
        })
    }),
    ("attention.added", || {
        let options = MultiheadAttentionOptions {
            add_bias_kv: true,
            add_zero_attn: true,
            ..Default::default()
        };
        subject(heads(2, options), |m, x| masked(m, &x[0], [false, true], true))
    }),
    ("attention.unbatched", || {
        subject(MultiheadAttention::new(8, 2, CPU), |m, x| masked(m, &x[0], [false; 2], true))
    }),
];

/// What the cases have.
const SMALL: TransformerOptions = TransformerOptions {
    dim_feedforward: 12,
    dropout: 0.0,
    activation: Activation::Relu,
    layer_norm_eps: 1e-5,
    batch_first: true,
    norm_first: false,
    bias: true,
};
const CAUSAL: Masks<'static> = Masks { mask: None, key_padding: None, is_causal: true };
const OPEN: Masks<'static> = Masks { mask: None, key_padding: None, is_causal: false };

fn encoder_layer(options: TransformerOptions, masks: Masks<'static>) -> genesis::Result<Subject> {
    let module = TransformerEncoderLayer::new(8, 2, options, CPU);
    subject(module, move |m, x| Ok(vec![m.forward(&x[0], &masks)?]))
}

fn decoder_layer(options: TransformerOptions, masks: Masks<'static>) -> genesis::Result<Subject> {
    let module = TransformerDecoderLayer::new(8, 2, options, CPU);
    subject(module, move |m, x| Ok(vec![m.forward(&x[0], &x[1], &masks, &OPEN)?]))
}

const TRANSFORMERS: &[Row] = &[
    ("encoderlayer.train", || encoder_layer(SMALL, OPEN)),
    ("encoderlayer.eval", || encoder_layer(SMALL, OPEN)),
    ("encoderlayer.pre", || {
        let options = TransformerOptions {
            activation: Activation::Gelu,
            norm_first: true,
            batch_first: false,
            ..SMALL
        };
        encoder_layer(options, CAUSAL)
    }),
    ("encoderlayer.no_bias", || {
        let options =
            TransformerOptions { bias: false, layer_norm_eps: 1e-3, batch_first: false, ..SMALL };
        encoder_layer(options, OPEN)
    }),
    ("decoderlayer", || decoder_layer(SMALL, CAUSAL)),
    ("decoderlayer.pre", || decoder_layer(TransformerOptions { norm_first: true, ..SMALL }, OPEN)),
    ("encoder", || {
        let mut encoder = TransformerEncoder::new(2, 8, 2, SMALL, CPU)?;
        encoder.norm = Some(LayerNorm::new(8, CPU)?);
        subject(Ok(encoder), |m, x| {
            let (_, padding) = masks()?;
            Ok(vec![m.forward(&x[0], &Masks { key_padding: Some(&padding), ..OPEN })?])
        })
    }),
    ("transformer", || {
        subject(Transformer::new([1, 1], 8, 2, SMALL, CPU), |m, x| {
            Ok(vec![m.forward(&x[0], &x[1], &[OPEN, CAUSAL, OPEN])?])
        })
    }),
];

/// Outputs and states of a network from 3 to 4 channels.
fn network<G: nn::Gates>(options: RecurrentOptions) -> genesis::Result<Subject> {
    subject(Recurrent::<G>::with(3, 4, options, CPU), |m, x| {
        let states = (x.len() > 1).then_some(&x[1..]);
        let (y, last) = m.forward(&x[0], states)?;
        Ok(std::iter::once(y).chain(last).collect())
    })
}

/// Outputs and states of a network of sequences of several lengths.
fn packed<G: nn::Gates>(options: RecurrentOptions) -> genesis::Result<Subject> {
    subject(Recurrent::<G>::with(3, 4, options, CPU), |m, x| {
        let states = (x.len() > 1).then_some(&x[1..]);
        let sequences = nn::pack_padded_sequence(&x[0], &[3, 5, 1, 5], true)?;
        let (y, last) = m.forward_packed(&sequences, states)?;
        let (y, _) = nn::pad_packed_sequence(&y, true, 0.5)?;
        Ok(std::iter::once(y).chain(last).collect())
    })
}

fn first() -> RecurrentOptions {
    RecurrentOptions { batch_first: true, ..RecurrentOptions::default() }
}

const RAGGED: &[Row] = &[
    ("rnn.packed", || packed::<RnnGates>(deep())),
    ("rnn.packed_start", || packed::<RnnGates>(first())),
    ("lstm.packed", || packed::<nn::LstmGates>(deep())),
    ("lstm.packed_start", || packed::<nn::LstmGates>(first())),
    ("gru.packed", || packed::<nn::GruGates>(deep())),
    ("gru.packed_start", || packed::<nn::GruGates>(first())),
    ("lstm.projected", || network::<nn::LstmGates>(RecurrentOptions { proj_size: 2, ..deep() })),
    ("lstm.projected_packed", || {
        packed::<nn::LstmGates>(RecurrentOptions { proj_size: 2, ..deep() })
    }),
    ("lstm.projected_start", || {
        network::<nn::LstmGates>(RecurrentOptions { proj_size: 3, ..no_bias() })
    }),
    ("embeddingbag", || {
        subject(nn::EmbeddingBag::with_padding(5, 3, 2, CPU), |m, x| {
            Ok(vec![m.forward(&x[0], Some(&x[1]), None)?])
        })
    }),
    ("embeddingbag.rows", || {
        let mut bags = nn::EmbeddingBag::new(5, 3, CPU)?;
        bags.mode = genesis::ops::BagMode::Max;
        subject(Ok(bags), |m, x| Ok(vec![m.forward(&x[0], None, None)?]))
    }),
    ("localresponsenorm", || {
        layer(Ok(nn::LocalResponseNorm {
            alpha: 0.2,
            beta: 0.6,
            k: 1.5,
            ..nn::LocalResponseNorm::new(3)
        }))
    }),
];

fn cell<G: nn::Gates>(cell: genesis::Result<nn::RecurrentCell<G>>) -> genesis::Result<Subject> {
    subject(cell, |m, x| m.forward(&x[0], Some(&x[1..])))
}

fn deep() -> RecurrentOptions {
    let options = RecurrentOptions::default();
    RecurrentOptions { num_layers: 2, bidirectional: true, batch_first: true, ..options }
}

fn no_bias() -> RecurrentOptions {
    RecurrentOptions { bias: false, ..RecurrentOptions::default() }
}

const RECURRENT: &[Row] = &[
    ("rnn", || network::<RnnGates>(RecurrentOptions::default())),
    ("rnn.deep", || network::<RnnGates>(deep())),
    ("rnn.start", || network::<RnnGates>(no_bias())),
    ("rnn.unbatched", || network::<RnnGates>(RecurrentOptions::default())),
    ("rnn.relu", || {
        let mut rnn = Rnn::new(3, 4, CPU)?;
        rnn.gates = RnnGates::Relu;
        subject(Ok(rnn), |m, x| {
            let (y, last) = m.forward(&x[0], None)?;
            Ok(std::iter::once(y).chain(last).collect())
        })
    }),
    ("lstm", || network::<nn::LstmGates>(RecurrentOptions::default())),
    ("lstm.deep", || network::<nn::LstmGates>(deep())),
    ("lstm.start", || network::<nn::LstmGates>(no_bias())),
    ("lstm.unbatched", || network::<nn::LstmGates>(RecurrentOptions::default())),
    ("gru", || network::<nn::GruGates>(RecurrentOptions::default())),
    ("gru.deep", || network::<nn::GruGates>(deep())),
    ("gru.start", || network::<nn::GruGates>(no_bias())),
    ("gru.unbatched", || network::<nn::GruGates>(RecurrentOptions::default())),
    ("rnncell", || cell(RnnCell::new(3, 4, CPU))),
    ("grucell", || cell(GruCell::new(3, 4, CPU))),
    ("lstmcell", || cell(LstmCell::new(3, 4, CPU))),
];

const LANGUAGE: &[Row] = &[
    ("rotary", || {
        subject(RotaryEmbedding::new(4, 8, 10_000.0, CPU), |m, x| {
            let y = m.forward(&x[0], 1)?;
            // The same by positions.
            let positions = Tensor::arange(1.0, 4.0, 1.0, (DType::I64, CPU))?;
            let again = no_grad(|| m.forward_at(&x[0], &positions))?;
            assert_eq!(y.to_f64_vec()?, again.to_f64_vec()?);
            Ok(vec![y])
        })
    }),
    ("swiglu", || layer(SwiGlu::new(4, 6, CPU))),
];

fn weight() -> Option<Tensor> {
    Tensor::from_slice_on(&[0.5f32, 1.5, 2.0, 0.7], &[4], CPU).ok()
}

fn cross_entropy(loss: nn::CrossEntropyLoss) -> genesis::Result<Subject> {
    self::loss(move |x| loss.forward(&x[0], &x[1]))
}

fn weighted_cross_entropy(reduction: Reduction) -> genesis::Result<Subject> {
    let weight = weight();
    let (label_smoothing, ignore_index) = (0.1, None);
    cross_entropy(nn::CrossEntropyLoss { weight, label_smoothing, ignore_index, reduction })
}

fn nll(reduction: Reduction) -> genesis::Result<Subject> {
    let weight = weight();
    loss(move |x| {
        let loss = nn::NllLoss { weight: weight.clone(), reduction, ..Default::default() };
        loss.forward(&x[0], &x[1])
    })
}

fn ctc(options: Ctc, inputs: [usize; 3], labels: [usize; 3]) -> genesis::Result<Subject> {
    loss(move |x| {
        let log_probs = x[0].log_softmax(-1)?;
        nn::CtcLoss { options }.forward(&log_probs, &x[1], &inputs, &labels)
    })
}

const LOSSES: &[Row] = &[
    ("crossentropy.mean", || cross_entropy(nn::CrossEntropyLoss::default())),
    ("crossentropy.sum", || {
        let reduction = Reduction::Sum;
        cross_entropy(nn::CrossEntropyLoss { reduction, ..Default::default() })
    }),
    ("crossentropy.none", || {
        let reduction = Reduction::None;
        cross_entropy(nn::CrossEntropyLoss { reduction, ..Default::default() })
    }),
    ("crossentropy.weighted_mean", || weighted_cross_entropy(Reduction::Mean)),
    ("crossentropy.weighted_sum", || weighted_cross_entropy(Reduction::Sum)),
    ("crossentropy.weighted_none", || weighted_cross_entropy(Reduction::None)),
    ("crossentropy.ignore", || {
        cross_entropy(nn::CrossEntropyLoss { ignore_index: Some(1), ..Default::default() })
    }),
    ("crossentropy.images", || cross_entropy(nn::CrossEntropyLoss::default())),
    ("crossentropy.probabilities", || {
        cross_entropy(nn::CrossEntropyLoss { label_smoothing: 0.2, ..Default::default() })
    }),
    ("crossentropy.one", || cross_entropy(nn::CrossEntropyLoss::default())),
    ("nll.mean", || nll(Reduction::Mean)),
    ("nll.sum", || nll(Reduction::Sum)),
    ("nll.none", || nll(Reduction::None)),
    ("bce", || loss(|x| nn::BceLoss::default().forward(&x[0], &x[1]))),
    ("bce.edges", || {
        loss(|x| {
            let loss = nn::BceLoss { reduction: Reduction::Sum, ..Default::default() };
            loss.forward(&x[0], &x[1])
        })
    }),
    ("bce.weighted", || {
        loss(|x| {
            let loss = nn::BceLoss { weight: weight(), reduction: Reduction::Sum };
            loss.forward(&x[0], &x[1])
        })
    }),
    ("bcelogits", || loss(|x| nn::BceWithLogitsLoss::default().forward(&x[0], &x[1]))),
    ("bcelogits.weighted", || {
        loss(|x| {
            let (weight, pos_weight) = (weight(), weight());
            let loss = nn::BceWithLogitsLoss { weight, pos_weight, ..Default::default() };
            loss.forward(&x[0], &x[1])
        })
    }),
    ("mse.mean", || loss(|x| nn::MseLoss::default().forward(&x[0], &x[1]))),
    ("mse.sum", || loss(|x| x[0].mse_loss(&x[1], Reduction::Sum))),
    ("mse.none", || loss(|x| x[0].mse_loss(&x[1], Reduction::None))),
    ("l1", || loss(|x| nn::L1Loss::default().forward(&x[0], &x[1]))),
    ("smoothl1", || {
        loss(|x| nn::SmoothL1Loss { beta: 0.5, ..Default::default() }.forward(&x[0], &x[1]))
    }),
    ("huber", || {
        loss(|x| nn::HuberLoss { delta: 0.7, ..Default::default() }.forward(&x[0], &x[1]))
    }),
    ("kldiv", || {
        loss(|x| nn::KlDivLoss { batch_mean: true, ..Default::default() }.forward(&x[0], &x[1]))
    }),
    ("kldiv.log", || loss(|x| x[0].kl_div(&x[1], true, Reduction::None))),
    ("kldiv.zero", || loss(|x| x[0].kl_div(&x[1], false, Reduction::Sum))),
    ("poisson", || loss(|x| nn::PoissonNllLoss::default().forward(&x[0], &x[1]))),
    ("poisson.full", || {
        loss(|x| {
            let loss = nn::PoissonNllLoss { log_input: false, full: true, ..Default::default() };
            loss.forward(&x[0], &x[1])
        })
    }),
    ("gaussian", || {
        loss(|x| {
            let loss = nn::GaussianNllLoss { full: true, ..Default::default() };
            loss.forward(&x[0], &x[1], &x[2])
        })
    }),
    ("gaussian.row", || {
        loss(|x| x[0].gaussian_nll_loss(&x[1], &x[2], false, 1e-6, Reduction::Sum))
    }),
    ("hinge", || {
        loss(|x| nn::HingeEmbeddingLoss { margin: 0.8, ..Default::default() }.forward(&x[0], &x[1]))
    }),
    ("softmargin", || loss(|x| nn::SoftMarginLoss::default().forward(&x[0], &x[1]))),
    ("ranking", || {
        loss(|x| {
            let loss = nn::MarginRankingLoss { margin: 0.3, ..Default::default() };
            loss.forward(&x[0], &x[1], &x[2])
        })
    }),
    ("cosineembedding", || {
        loss(|x| {
            let loss = nn::CosineEmbeddingLoss { margin: 0.1, ..Default::default() };
            loss.forward(&x[0], &x[1], &x[2])
        })
    }),
    ("triplet", || loss(|x| nn::TripletMarginLoss::default().forward(&x[0], &x[1], &x[2]))),
    ("triplet.swap", || {
        loss(|x| {
            let reduction = Reduction::Sum;
            let options =
                Triplet { margin: 2.0, p: 1.0, swap: true, reduction, ..Triplet::default() };
            nn::TripletMarginLoss { options }.forward(&x[0], &x[1], &x[2])
        })
    }),
    ("cosinesimilarity", || loss(|x| nn::CosineSimilarity::default().forward(&x[0], &x[1]))),
    ("pairwisedistance", || {
        loss(|x| {
            let distance = nn::PairwiseDistance { p: 3.0, keepdim: true, ..Default::default() };
            distance.forward(&x[0], &x[1])
        })
    }),
    ("ctc", || ctc(Ctc::default(), [6, 5, 4], [3, 2, 0])),
    ("ctc.none", || {
        ctc(Ctc { reduction: Reduction::None, ..Ctc::default() }, [6, 5, 4], [3, 2, 0])
    }),
    ("ctc.joined", || {
        let options = Ctc { blank: 3, zero_infinity: true, reduction: Reduction::Sum };
        ctc(options, [6, 2, 6], [3, 3, 1])
    }),
];

//! Layers: made of hostile numbers, given hostile tensors. Every type of `genesis::nn` that can be made and called
//! is here; `tests/it/abuse.rs` looks for those that are not.

use genesis::nn::*;
use genesis::{Result, Tensor};

use super::calls::{Row, done};
use super::generate::{Gen, Value, structures, values};
use super::table::arg;

structures! {
    ConvOptions<N> { stride, padding, dilation, groups, bias, padding_mode }
    ConvTransposeOptions<N> { stride, padding, output_padding, groups, bias, dilation }
    BatchNormOptions { eps, momentum, affine, track_running_stats }
    LayerNormOptions { eps, elementwise_affine, bias }
    MultiheadAttentionOptions { dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first }
    RecurrentOptions { num_layers, bias, batch_first, dropout, bidirectional, proj_size }
    TransformerOptions {
        dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
    }
}

values! {
    ConvPaddingMode: |g| g.one(&[
        ConvPaddingMode::Zeros, ConvPaddingMode::Reflect, ConvPaddingMode::Replicate, ConvPaddingMode::Circular,
    ]);
    init::FanMode: |g| g.one(&[init::FanMode::FanIn, init::FanMode::FanOut]);
    init::Nonlinearity: |g| {
        let slope = f64::draw(g);
        g.one(&[init::Nonlinearity::Relu, init::Nonlinearity::Tanh, init::Nonlinearity::LeakyRelu(slope)])
    };
}

impl<const N: usize> Value for ConvPadding<N> {
    fn draw(g: &mut Gen) -> ConvPadding<N> {
        if g.below(4) == 0 { ConvPadding::Same } else { ConvPadding::Both(Value::draw(g)) }
    }
}

impl<const N: usize> Value for Sizes<N> {
    fn draw(g: &mut Gen) -> Sizes<N> {
        Sizes(Value::draw(g))
    }
}

/// Layers made by a function that gives a result.
macro_rules! made {
    ($rows:ident; $($name:ident::$make:ident($($kind:ident)*) ($($given:ident)*);)*) => {
        $($rows.push(Row::new(
            stringify!($name),
            |g| {
                let layer = $name::$make($(arg!(g $kind)),*)?;
                g.holds(&layer);
                done(layer.forward($(arg!(g $given)),*))
            },
));)*
    };
}

/// Layers made by a function that always gives one.
macro_rules! plain {
    ($rows:ident; $($name:ident::$make:ident($($kind:ident)*) ($($given:ident)*);)*) => {
        $($rows.push(Row::new(
            stringify!($name),
            |g| {
                let layer = $name::$make($(arg!(g $kind)),*);
                done(layer.forward($(arg!(g $given)),*))
            },
));)*
    };
}

/// Layers without numbers.
macro_rules! units {
    ($rows:ident; $($name:ident)*) => {
        $($rows.push(Row::new(stringify!($name), |g| done($name.forward(&g.tensor()))));)*
    };
}

/// Layers whose fields are public.
macro_rules! fields {
    ($rows:ident; $($name:ident { $($field:ident)* } ($($given:ident)*);)*) => {
        $($rows.push(Row::new(
            stringify!($name),
            |g| {
                let layer = $name { $($field: g.v()),* };
                done(layer.forward($(arg!(g $given)),*))
            },
));)*
    };
}

pub(super) fn layers(rows: &mut Vec<Row>) {
    simple(rows);
    losses(rows);
    attention(rows);
    recurrent(rows);
    packed(rows);
    modules(rows);
    init_functions(rows);
}

fn simple(rows: &mut Vec<Row>) {
    made! { rows;
        Linear::new(v v c)(t); Linear::without_bias(v v c)(t); Bilinear::new(v v c)(t t);
        Bilinear::without_bias(v v c)(t t); PRelu::new(v c)(t); Embedding::new(v v c)(t);
        Embedding::with_padding(v v v c)(t); EmbeddingBag::new(v v c)(t ot ot);
        EmbeddingBag::with_padding(v v v c)(t ot ot); GroupNorm::new(v v c)(t); SwiGlu::new(v v c)(t);
        BatchNorm1d::with(v v c)(t); BatchNorm2d::with(v v c)(t); BatchNorm3d::with(v v c)(t);
        BatchNorm2d::new(v c)(t); InstanceNorm2d::new(v c)(t);
        InstanceNorm1d::with(v v c)(t); InstanceNorm2d::with(v v c)(t); InstanceNorm3d::with(v v c)(t);
        Conv1d::with(v sz v c)(t); Conv2d::with(v sz v c)(t); Conv3d::with(v sz v c)(t);
        Conv1d::new(v sz c)(t); Conv2d::new(v sz c)(t); Conv3d::new(v sz c)(t);
        ConvTranspose1d::with(v sz v c)(t); ConvTranspose2d::with(v sz v c)(t);
        ConvTranspose3d::with(v sz v c)(t); ConvTranspose2d::new(v sz c)(t);
        LayerNorm::with(own v c)(t); RmsNorm::with_eps(own v c)(t); LayerNorm::new(own c)(t);
        RmsNorm::new(own c)(t); RotaryEmbedding::new(v v v c)(t v);
    }
    plain! { rows;
        Dropout::new(v)(t); Dropout1d::new(v)(t); Dropout2d::new(v)(t); Dropout3d::new(v)(t);
        AlphaDropout::new(v)(t); FeatureAlphaDropout::new(v)(t); LocalResponseNorm::new(v)(t);
        Unflatten::new(v is)(t); PixelShuffle::new(v)(t); PixelUnshuffle::new(v)(t); ChannelShuffle::new(v)(t);
        MaxPool1d::with(sz sz sz)(t); MaxPool2d::with(sz sz sz)(t); MaxPool3d::with(sz sz sz)(t);
        AvgPool1d::with(sz sz sz)(t); AvgPool2d::with(sz sz sz)(t); AvgPool3d::with(sz sz sz)(t);
        MaxPool2d::new(sz)(t); AvgPool2d::new(sz)(t);
        AdaptiveAvgPool1d::new(sz)(t); AdaptiveAvgPool2d::new(sz)(t); AdaptiveAvgPool3d::new(sz)(t);
        AdaptiveMaxPool1d::new(sz)(t); AdaptiveMaxPool2d::new(sz)(t); AdaptiveMaxPool3d::new(sz)(t);
        Residual::new(relu)(t); Hooked::new(relu)(t);
    }
    units! { rows;
        Identity Relu Relu6 Gelu GeluTanh Silu Mish Selu Tanh Sigmoid LogSigmoid Hardswish Hardsigmoid Softsign
        Tanhshrink
    }
    fields! { rows;
        LeakyRelu { negative_slope } (t); Elu { alpha } (t); Celu { alpha } (t); Softplus { beta threshold } (t);
        Hardtanh { min_val max_val } (t); Hardshrink { lambda } (t); Softshrink { lambda } (t);
        Threshold { threshold value } (t); Glu { dim } (t); Softmax { dim } (t); Softmin { dim } (t);
        LogSoftmax { dim } (t); Flatten { start_dim end_dim } (t);
        Upsample { size scale_factor mode align_corners } (t);
    }
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Pad1d", |g| done(Pad1d::new(g.v::<[i64; 2]>(), g.v()).forward(&g.tensor())));
    row("Pad2d", |g| done(Pad2d::new(g.v::<[i64; 4]>(), g.v()).forward(&g.tensor())));
    row("Pad3d", |g| done(Pad3d::new(g.v::<i64>(), g.v()).forward(&g.tensor())));
    row("forward_with_indices", |g| {
        let layer = MaxPool2d::with(g.v::<Sizes<2>>(), g.v::<Sizes<2>>(), g.v::<Sizes<2>>());
        done(layer.forward_with_indices(&g.tensor()))
    });
    row("forward_at", |g| {
        let layer = RotaryEmbedding::new(g.v(), g.v(), g.v(), g.at())?;
        done(layer.forward_at(&g.tensor(), &g.tensor()))
    });
    row("forward_with", |g| {
        done(Linear::new(g.v(), g.v(), g.at())?.forward_with(&g.tensor(), g.v()))
    });
}

fn losses(rows: &mut Vec<Row>) {
    fields! { rows;
        CrossEntropyLoss { weight ignore_index label_smoothing reduction } (t t);
        NllLoss { weight ignore_index reduction } (t t); BceLoss { weight reduction } (t t);
        BceWithLogitsLoss { weight pos_weight reduction } (t t); MseLoss { reduction } (t t);
        L1Loss { reduction } (t t); SmoothL1Loss { beta reduction } (t t); HuberLoss { delta reduction } (t t);
        PoissonNllLoss { log_input full eps reduction } (t t); GaussianNllLoss { full eps reduction } (t t t);
        HingeEmbeddingLoss { margin reduction } (t t); SoftMarginLoss { reduction } (t t);
        MarginRankingLoss { margin reduction } (t t t); MultiLabelMarginLoss { reduction } (t t);
        CosineEmbeddingLoss { margin reduction } (t t t); MultiMarginLoss { options } (t t);
        MultiLabelSoftMarginLoss { weight reduction } (t t);
        KlDivLoss { log_target batch_mean reduction } (t t); TripletMarginLoss { options } (t t t);
        CtcLoss { options } (t t us us); CosineSimilarity { dim eps } (t t);
        PairwiseDistance { p eps keepdim } (t t);
    }
    rows.push(Row::new("LinearCrossEntropyLoss", |g| {
        let (layer, options) = (Linear::new(g.v(), g.v(), g.at())?, g.v());
        done(LinearCrossEntropyLoss { options }.forward(&g.tensor(), &layer, &g.tensor()))
    }));
}

fn masks<'t>(g: &mut Gen, tensors: &'t [Option<Tensor>; 2]) -> Masks<'t> {
    let [mask, key_padding] = tensors.each_ref().map(Option::as_ref);
    Masks { mask, key_padding, is_causal: g.v() }
}

fn attention(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("MultiheadAttention", |g| {
        let layer = MultiheadAttention::with(g.v(), g.v(), g.v(), g.at())?;
        let masks: [Option<Tensor>; 2] = g.v();
        let attend = Attend {
            key_padding_mask: masks[0].as_ref(),
            attn_mask: masks[1].as_ref(),
            is_causal: g.v(),
            need_weights: g.v(),
            average_attn_weights: g.v(),
        };
        done(layer.forward(&g.tensor(), &g.tensor(), &g.tensor(), &attend))
    });
    row("TransformerEncoderLayer", |g| {
        let layer = TransformerEncoderLayer::new(g.v(), g.v(), g.v(), g.at())?;
        let own = g.v();
        done(layer.forward(&g.tensor(), &masks(g, &own)))
    });
    row("TransformerDecoderLayer", |g| {
        let layer = TransformerDecoderLayer::new(g.v(), g.v(), g.v(), g.at())?;
        let (own, other) = (g.v(), g.v());
        done(layer.forward(&g.tensor(), &g.tensor(), &masks(g, &own), &masks(g, &other)))
    });
    row("TransformerEncoder", |g| {
        let layer = TransformerEncoder::new(g.v(), g.v(), g.v(), g.v(), g.at())?;
        let own = g.v();
        done(layer.forward(&g.tensor(), &masks(g, &own)))
    });
    row("TransformerDecoder", |g| {
        let layer = TransformerDecoder::new(g.v(), g.v(), g.v(), g.v(), g.at())?;
        let (own, other) = (g.v(), g.v());
        done(layer.forward(&g.tensor(), &g.tensor(), &masks(g, &own), &masks(g, &other)))
    });
    row("Transformer", |g| {
        let layer = Transformer::new(g.v(), g.v(), g.v(), g.v(), g.at())?;
        let own: [[Option<Tensor>; 2]; 3] = g.v();
        let all = own.each_ref().map(|own| masks(g, own));
        done(layer.forward(&g.tensor(), &g.tensor(), &all))
    });
    row("generate_square_subsequent_mask", |g| {
        done(Transformer::generate_square_subsequent_mask(g.v(), g.at()))
    });
}

/// What came of a stack, unless its states were drawn as none.
fn run<G: Gates>(g: &mut Gen, layer: &Recurrent<G>) -> Result<Vec<Tensor>> {
    let states: Option<Vec<Tensor>> = g.v();
    if g.below(3) > 0 {
        return done(layer.forward(&g.tensor(), states.as_deref()));
    }
    let x = pack_padded_sequence(&g.tensor(), &g.list::<usize>(), g.v())?;
    done(layer.forward_packed(&x, states.as_deref()).map(|(y, states)| (y.data().clone(), states)))
}

fn recurrent(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Rnn", |g| {
        let layer = Rnn::with(g.v(), g.v(), g.v(), g.at())?;
        run(g, &layer)
    });
    row("Lstm", |g| {
        let layer = Lstm::with(g.v(), g.v(), g.v(), g.at())?;
        run(g, &layer)
    });
    row("Gru", |g| {
        let layer = Gru::with(g.v(), g.v(), g.v(), g.at())?;
        run(g, &layer)
    });
    row("RnnCell", |g| {
        let layer = RnnCell::new(g.v(), g.v(), g.at())?;
        done(layer.forward(&g.tensor(), g.v::<Option<Vec<Tensor>>>().as_deref()))
    });
    row("LstmCell", |g| {
        let layer = LstmCell::new(g.v(), g.v(), g.at())?;
        done(layer.forward(&g.tensor(), g.v::<Option<Vec<Tensor>>>().as_deref()))
    });
    row("GruCell", |g| {
        let layer = GruCell::without_bias(g.v(), g.v(), g.at())?;
        done(layer.forward(&g.tensor(), g.v::<Option<Vec<Tensor>>>().as_deref()))
    });
}

fn packed(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("pack_padded_sequence", |g| {
        let packed = pack_padded_sequence(&g.tensor(), &g.list::<usize>(), g.v())?;
        done(pad_packed_sequence(&packed, g.v(), g.v()).map(|pair| pair.0))
    });
    row("pad_sequence", |g| done(pad_sequence(arg!(g ts), g.v(), g.v())));
    row("pack_sequence", |g| {
        let packed = pack_sequence(arg!(g ts))?;
        let packed = if g.below(3) == 0 { packed.with_data(g.tensor())? } else { packed };
        done(pad_packed_sequence(&packed, g.v(), g.v()))
    });
}

/// What every module can do, and containers.
fn modules(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Sequential", |g| {
        let layer = Sequential::new()
            .with(Linear::new(g.v(), g.v(), g.at())?)
            .with(Gelu)
            .with(Dropout::new(g.v()));
        layer.requires_grad_(g.v())?;
        done(layer.forward(&g.tensor()))
    });
    row("ModuleList", |g| {
        let list = ModuleList(vec![Linear::new(g.v(), g.v(), g.at())?]);
        let mut named = ModuleDict::new().with("a", Linear::new(g.v(), g.v(), g.at())?);
        named.insert("", Linear::new(g.extent(), g.extent(), g.at())?);
        named.load_state_dict_loose(&list.state_dict())?;
        done(Ok(named.state_dict().into_values().collect::<Vec<_>>()))
    });
    row("load_state_dict", |g| {
        let layer = Linear::new(g.extent(), g.extent(), g.at())?;
        let names = ["weight", "bias", "other"].map(str::to_owned);
        let count = g.below(4);
        let state = names.into_iter().take(count).map(|name| (name, g.tensor())).collect();
        let report = layer.check_state_dict(&state);
        let _ = (
            report.is_clean(),
            report.nearest("weight"),
            report.extra_prefix(),
            report.lost_prefix(),
        );
        let _ = layer.load_state_dict_loose(&state);
        done(layer.load_state_dict(&state))
    });
    row("Module::to_dtype", |g| {
        let mut layer = Linear::new(g.extent(), g.extent(), g.at())?;
        layer.to_dtype(g.v())?;
        layer.to_device(g.v())?;
        done(layer.forward(&g.tensor()))
    });
    row("summary_of", |g| {
        let (layer, x) = (Linear::new(g.extent(), g.extent(), g.at())?, g.tensor());
        let summary = layer.summary_of(&mut || layer.forward(&x).map(drop))?;
        done(Ok(summary.to_string()))
    });
    row("Parameter", |g| {
        let mut parameter = Parameter::new(g.tensor())?;
        parameter.set_requires_grad(g.v())?;
        parameter.replace(g.tensor());
        done(Ok(parameter.tensor().clone()))
    });
}

fn init_functions(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("dirac_", |g| done(init::dirac_(&g.tensor(), g.v())));
    row("orthogonal_", |g| done(init::orthogonal_(&g.tensor(), g.v())));
    row("sparse_", |g| done(init::sparse_(&g.tensor(), g.v(), g.v())));
    row("trunc_normal_", |g| done(init::trunc_normal_(&g.tensor(), g.v(), g.v(), g.v())));
    row("xavier_uniform_", |g| done(init::xavier_uniform_(&g.tensor(), g.v())));
    row("xavier_normal_", |g| done(init::xavier_normal_(&g.tensor(), g.v())));
    row("kaiming_uniform_", |g| done(init::kaiming_uniform_(&g.tensor(), g.v(), g.v())));
    row("kaiming_normal_", |g| done(init::kaiming_normal_(&g.tensor(), g.v(), g.v())));
    row("init::uniform_", |g| done(init::uniform_(&g.tensor(), g.v(), g.v())));
    row("init::normal_", |g| done(init::normal_(&g.tensor(), g.v(), g.v())));
    row("constant_", |g| done(init::constant_(&g.tensor(), g.v())));
    row("ones_", |g| done(init::ones_(&g.tensor())));
    row("zeros_", |g| done(init::zeros_(&g.tensor())));
    row("eye_", |g| done(init::eye_(&g.tensor())));
    row("init::uniform", |g| {
        done(init::uniform(&g.sizes(), g.v(), g.v(), g.at()).map(|p| p.tensor().clone()))
    });
    row("init::normal", |g| {
        done(init::normal(&g.sizes(), g.v(), g.v(), g.at()).map(|p| p.tensor().clone()))
    });
    row("init::constant", |g| {
        done(init::constant(&g.sizes(), g.v(), g.at()).map(|p| p.tensor().clone()))
    });
    row("calculate_gain", |g| done(Ok(init::calculate_gain(g.v()))));
}

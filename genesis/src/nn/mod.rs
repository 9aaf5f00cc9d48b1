//! Layers, losses and containers.
//!
//! A layer is a plain struct with public fields; `#[derive(Module)]` makes it a module: names, state,
//! training mode, moves and counts all follow from the fields and their types. Options are plain structs with
//! PyTorch's defaults.

mod activation;
mod attention;
mod batch_norm;
mod batch_norm_across;
mod calls;
mod container;
mod conv;
mod conv_transpose;
mod dropout;
mod embedding;
mod hooked;
pub mod init;
mod kind;
mod layer;
mod linear;
mod lora;
mod loss;
mod module;
mod norm;
mod packed;
mod part;
mod pool;
mod quantized;
mod recurrent;
mod replace;
mod resize;
mod rotary;
mod shape;
mod state;
mod summary;
mod training;
mod transformer;
mod watch;
mod weight;

pub use genesis_macros::Module;

pub use crate::ops::Activation;
pub use crate::parameter::{Buffer, Cut, Parameter, Shard};
pub use activation::{
    Celu, Elu, Gelu, GeluTanh, Glu, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyRelu,
    LogSigmoid, LogSoftmax, Mish, PRelu, Relu, Relu6, Selu, Sigmoid, Silu, Softmax, Softmin,
    Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use attention::{Attend, MultiheadAttention, MultiheadAttentionOptions};
pub use batch_norm::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormNd, BatchNormOptions, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, InstanceNormNd,
};
pub use calls::{Call, count_flops, module_path};
pub(crate) use calls::{flops, is_observed};
pub use container::{ModuleDict, ModuleList, Residual, Sequential};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvNd, ConvOptions, ConvPadding, ConvPaddingMode, Sizes};
pub use conv_transpose::{
    ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeNd, ConvTransposeOptions,
};
pub use dropout::{
    AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, DropoutNd, FeatureAlphaDropout,
};
pub use embedding::{Embedding, EmbeddingBag};
pub use hooked::{ForwardHandle, Hooked};
pub use layer::Layer;
pub use linear::{Bilinear, Identity, Linear};
pub use lora::{LoraOptions, adapt, adapters, merge};
pub use loss::{
    BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, CtcLoss,
    GaussianNllLoss, HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, LinearCrossEntropyLoss,
    MarginRankingLoss, MseLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss,
    NllLoss, PairwiseDistance, PoissonNllLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
};
pub use module::{Module, Part, Visitor, VisitorMut, Walk};
pub(crate) use module::{buffers, handles, saved};
pub use norm::{Extents, GroupNorm, LayerNorm, LayerNormOptions, LocalResponseNorm, RmsNorm};
pub use packed::{
    PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
};
pub use pool::{
    AvgPool1d, AvgPool2d, AvgPool3d, AvgPoolNd, MaxPool1d, MaxPool2d, MaxPool3d, MaxPoolNd,
};
pub use quantized::{QuantizedEmbedding, QuantizedLinear, quantized_numbers};
pub use recurrent::{
    Gates, Gru, GruCell, GruGates, Lstm, LstmCell, LstmGates, Recurrent, RecurrentCell,
    RecurrentOptions, Rnn, RnnCell, RnnGates,
};
pub(crate) use replace::{Named, Replacement, named, replace};
pub use resize::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveAvgPoolNd, AdaptiveMaxPool1d,
    AdaptiveMaxPool2d, AdaptiveMaxPool3d, AdaptiveMaxPoolNd, Upsample,
};
pub use rotary::{RotaryEmbedding, SwiGlu};
pub use shape::{
    ChannelShuffle, Flatten, Pad1d, Pad2d, Pad3d, PadNd, Pads, PixelShuffle, PixelUnshuffle,
    Unflatten,
};
pub(crate) use state::{Given, fill};
pub use state::{LoadReport, Mismatch};
pub use summary::{Summary, SummaryRow};
pub use training::Training;
pub use transformer::{
    Masks, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerOptions,
};
pub(crate) use watch::watch_as;
pub use watch::{observe, watch};
pub use weight::{Adapted, Weight};

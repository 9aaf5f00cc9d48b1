//! Layers: made of hostile numbers, given hostile tensors; and data: samplers, pictures, optimizers' helpers.

use genesis::Tensor;
use genesis::data::{
    Batches, Csv, CsvOptions, DistributedSampler, Image, LoaderOptions, RandomSampler,
    TensorDataset, WeightedRandomSampler, shuffled,
};
use genesis::nn::*;
use genesis::optim;

use super::calls::{Row, done};
use super::table::arg;

/// Layers whose `new` gives a result.
macro_rules! made {
    ($rows:ident; $($name:ident($($kind:ident)*);)*) => {
        $($rows.push(Row {
            name: stringify!($name),
            call: |g| {
                let layer = $name::new($(arg!(g $kind)),*)?;
                done(layer.forward(&g.tensor()))
            },
        });)*
    };
}

/// Layers whose `new` always gives one.
macro_rules! plain {
    ($rows:ident; $($name:ident($($kind:ident)*);)*) => {
        $($rows.push(Row {
            name: stringify!($name),
            call: |g| {
                let layer = $name::new($(arg!(g $kind)),*);
                done(layer.forward(&g.tensor()))
            },
        });)*
    };
}

pub(super) fn layers(rows: &mut Vec<Row>) {
    made! { rows;
        Linear(v v c); PRelu(v c); Embedding(v v c); GroupNorm(v v c); SwiGlu(v v c); BatchNorm1d(v c);
        BatchNorm2d(v c); BatchNorm3d(v c); InstanceNorm1d(v c); InstanceNorm2d(v c); InstanceNorm3d(v c);
    }
    plain! { rows;
        Dropout(v); Dropout1d(v); Dropout2d(v); Dropout3d(v); AlphaDropout(v); FeatureAlphaDropout(v);
        LocalResponseNorm(v); Unflatten(v is); PixelShuffle(v); PixelUnshuffle(v); ChannelShuffle(v);
    }
    let mut row = |name, call| rows.push(Row { name, call });
    row("Conv1d", |g| done(Conv1d::new(g.v(), g.v::<usize>(), g.at())?.forward(&g.tensor())));
    row("Conv2d", |g| done(Conv2d::new(g.v(), g.v::<usize>(), g.at())?.forward(&g.tensor())));
    row("Conv3d", |g| done(Conv3d::new(g.v(), g.v::<usize>(), g.at())?.forward(&g.tensor())));
    row("ConvTranspose2d", |g| {
        done(ConvTranspose2d::new(g.v(), g.v::<usize>(), g.at())?.forward(&g.tensor()))
    });
    row("MaxPool2d", |g| {
        done(MaxPool2d::with(g.v::<usize>(), g.v::<usize>(), g.v::<usize>()).forward(&g.tensor()))
    });
    row("AvgPool2d", |g| {
        done(AvgPool2d::with(g.v::<usize>(), g.v::<usize>(), g.v::<usize>()).forward(&g.tensor()))
    });
    row("PadNd", |g| done(PadNd::<2>::new(g.v::<i64>(), g.v()).forward(&g.tensor())));
    row("LayerNorm", |g| done(LayerNorm::new(g.sizes(), g.at())?.forward(&g.tensor())));
    row("RmsNorm", |g| done(RmsNorm::new(g.sizes(), g.at())?.forward(&g.tensor())));
    row("Upsample", |g| done(Upsample::by(g.v()).forward(&g.tensor())));
    row("RotaryEmbedding", |g| {
        done(RotaryEmbedding::new(g.v(), g.v(), g.v(), g.at())?.forward(&g.tensor(), g.v()))
    });
    row("Bilinear", |g| {
        done(Bilinear::new(g.v(), g.v(), g.at())?.forward(&g.tensor(), &g.tensor()))
    });
    row("MultiheadAttention", |g| {
        let layer = MultiheadAttention::new(g.v(), g.v(), g.at())?;
        done(layer.forward(&g.tensor(), &g.tensor(), &g.tensor(), &Attend::default()))
    });
    row("Rnn", |g| {
        let options = RecurrentOptions {
            num_layers: g.v(),
            bias: g.v(),
            batch_first: g.v(),
            dropout: g.v(),
            bidirectional: g.v(),
            proj_size: g.v(),
        };
        let layer = Rnn::with(g.v(), g.v(), options, g.at())?;
        done(layer.forward(&g.tensor(), Some(&g.list::<Tensor>())))
    });
    row("Lstm", |g| done(Lstm::new(g.v(), g.v(), g.at())?.forward(&g.tensor(), None)));
    row("EmbeddingBag", |g| {
        let layer = EmbeddingBag::new(g.v(), g.v(), g.at())?;
        done(layer.forward(&g.tensor(), g.v::<Option<Tensor>>().as_ref(), None))
    });
    row("TransformerEncoder", |g| {
        let layer =
            TransformerEncoder::new(g.v(), g.v(), g.v(), TransformerOptions::default(), g.at())?;
        done(layer.forward(&g.tensor(), &Masks::default()))
    });
    row("generate_square_subsequent_mask", |g| {
        done(Transformer::generate_square_subsequent_mask(g.v(), g.at()))
    });
    row("pack_padded_sequence", |g| {
        let packed = pack_padded_sequence(&g.tensor(), &g.list::<usize>(), g.v())?;
        done(pad_packed_sequence(&packed, g.v(), g.v()).map(|pair| pair.0))
    });
    row("pad_sequence", |g| done(pad_sequence(arg!(g ts), g.v(), g.v())));
    row("pack_sequence", |g| done(pack_sequence(arg!(g ts)).map(drop)));
    row("dirac_", |g| done(init::dirac_(&g.tensor(), g.v())));
    row("orthogonal_", |g| done(init::orthogonal_(&g.tensor(), g.v())));
    row("sparse_", |g| done(init::sparse_(&g.tensor(), g.v(), g.v())));
    row("trunc_normal_", |g| done(init::trunc_normal_(&g.tensor(), g.v(), g.v(), g.v())));
    row("xavier_uniform_", |g| done(init::xavier_uniform_(&g.tensor(), g.v())));
    row("eye_", |g| done(init::eye_(&g.tensor())));
    row("clip_grad_norm_", |g| done(optim::clip_grad_norm_(&g.list::<Tensor>(), g.v(), g.v())));
    row("clip_grad_value_", |g| done(optim::clip_grad_value_(&g.list::<Tensor>(), g.v())));
    row("Image::new", |g| done(Image::new(g.v(), g.v(), g.v(), vec![0.5; 12])?.to_tensor()));
    row("Image::from_bytes", |g| {
        done(Image::from_bytes(g.v(), g.v(), g.v(), &[7; 12])?.to_tensor())
    });
    row("Image::from_tensor", |g| {
        done(Image::from_tensor(&g.tensor())?.with_channels(g.v())?.to_tensor())
    });
    row("Image::at", |g| {
        done(Ok(Image::new(1, 2, 3, vec![0.5; 6])?.at(g.v(), g.v(), g.v()).map(f64::from)))
    });
    row("Image::grid", |g| {
        let image = Image::new(1, 2, 3, vec![0.5; 6])?;
        done(Image::grid(&vec![image; g.v::<usize>() % 5], g.v())?.to_tensor())
    });
    row("Csv::to_tensor", |g| {
        let csv = Csv::parse("a,b\n1,2\n3,4\n", CsvOptions::default())?;
        let _ = csv.get(g.v(), g.v());
        done(csv.to_tensor(&g.list::<usize>()))
    });
    row("shuffled", |g| done(shuffled(g.v::<usize>(), g.v(), g.v())));
    row("WeightedRandomSampler", |g| {
        done(WeightedRandomSampler::new(&g.list::<f64>(), g.v(), g.v(), g.v()).map(drop))
    });
    row("DistributedSampler", |g| {
        done(DistributedSampler::new(g.v(), g.v(), g.v(), g.v(), g.v()).map(drop))
    });
    row("Batches", |g| {
        done(Batches::new(RandomSampler::new(g.v(), g.v()), g.v(), g.v()).map(drop))
    });
    row("TensorDataset::rows", |g| {
        done(TensorDataset::new((g.tensor(), g.tensor()))?.rows(&g.list::<usize>()))
    });
    row("TensorDataset::loader", |g| {
        let set = TensorDataset::new((g.tensor(), g.tensor()))?;
        let options = LoaderOptions {
            batch_size: g.v(),
            shuffle: g.v(),
            seed: g.v(),
            workers: g.v::<usize>() % 3,
            prefetch: g.v(),
            ..LoaderOptions::default()
        };
        let loader = set.loader(options)?;
        let mut tensors = Vec::new();
        for batch in loader.iter()?.take(3) {
            let (x, y) = batch?;
            tensors.extend([x, y]);
        }
        done(Ok(tensors))
    });
}

//! Calls of everyday models in their own shapes, beside what the op table grows to: a row a call.
//!
//! ```text
//! call("sort/f32/4096x4096", &[f32(&[4096, 4096])], |x| Ok(x[0].sort(-1, false)?.0), "torch.sort(x[0])[0]")
//! ```
//!
//! Names begin with `ops/calls/`; those that end in `/bwd` are the backward alone. They are of a GPU's size.

use genesis::ops::info::Input;
use genesis::ops::{Attention, Classes, Conv, Index, PadMode, Reduction};
use genesis::{DType, Result, Tensor};

use super::call::Call;
use super::kind::Kind;
use super::scope::PREFIX;

/// An input of a row: dtype, extents, and the range of its values.
struct Of {
    dtype: DType,
    shape: &'static [usize],
    range: (f64, f64),
}

impl Of {
    /// Indices below a bound.
    const fn below(shape: &'static [usize], bound: usize) -> Of {
        Of { dtype: DType::I64, shape, range: (0.0, bound as f64) }
    }

    const fn within(self, low: f64, high: f64) -> Of {
        Of { range: (low, high), ..self }
    }
}

const fn f32(shape: &'static [usize]) -> Of {
    Of { dtype: DType::F32, shape, range: (-1.0, 1.0) }
}

const fn bf16(shape: &'static [usize]) -> Of {
    Of { dtype: DType::BF16, shape, range: (-1.0, 1.0) }
}

const fn of(dtype: DType, shape: &'static [usize], low: f64, high: f64) -> Of {
    Of { dtype, shape, range: (low, high) }
}

/// A row: name, inputs, our call, the peer's, and whether its backward is timed too.
struct Row {
    name: &'static str,
    inputs: &'static [Of],
    ours: fn(&[Tensor]) -> Result<Tensor>,
    peer: &'static str,
    has_backward: bool,
}

const fn call(
    name: &'static str,
    inputs: &'static [Of],
    ours: fn(&[Tensor]) -> Result<Tensor>,
    peer: &'static str,
) -> Row {
    Row { name, inputs, ours, peer, has_backward: false }
}

impl Row {
    const fn and_backward(self) -> Row {
        Row { has_backward: true, ..self }
    }
}

/// The calls, by their names.
pub(super) fn all() -> Vec<Call> {
    let each = [PRODUCTS, CONVOLUTIONS, ATTENTION, ORDER, INDEX, ELEMENTS, REDUCTIONS];
    each.into_iter().flatten().flat_map(calls_of).collect()
}

fn calls_of(row: &Row) -> Vec<Call> {
    let input = |of: &Of| Input {
        shape: of.shape.to_vec(),
        dtype: of.dtype,
        low: of.range.0,
        high: of.range.1,
        is_whole: false,
        is_index: of.dtype == DType::I64,
    };
    let parts: &[bool] = if row.has_backward { &[false, true] } else { &[false] };
    let of = |&is_backward: &bool| {
        let part = if is_backward { "/bwd" } else { "" };
        Call {
            name: format!("{}calls/{}{part}", PREFIX, row.name),
            row: row.name,
            run: row.ours,
            peer: Ok(row.peer.to_owned()),
            inputs: row.inputs.iter().map(input).collect(),
            kind: Kind::Large,
            dtype: row.inputs.first().map_or(DType::F32, |input| input.dtype),
            is_backward,
            is_unordered: false,
            info: None,
        }
    };
    parts.iter().map(of).collect()
}

const PRODUCTS: &[Row] = &[
    call("matmul/bf16/4095", &[bf16(&[4095, 4095]), bf16(&[4095, 4095])], product, MATMUL),
    call(
        "matmul/bf16/3000x5000x1000",
        &[bf16(&[3000, 1000]), bf16(&[1000, 5000])],
        product,
        MATMUL,
    ),
    call("linear/bf16/m1k768n50257", &[bf16(&[1, 768]), bf16(&[50257, 768])], linear, LINEAR),
    call("linear/f32/m1k4096n4096", &[f32(&[1, 4096]), f32(&[4096, 4096])], linear, LINEAR),
    call(
        "matmul/f64/4096",
        &[of(DType::F64, &[4096, 4096], -1.0, 1.0), of(DType::F64, &[4096, 4096], -1.0, 1.0)],
        product,
        MATMUL,
    ),
    call("matmul/f32/8192", &[f32(&[8192, 8192]), f32(&[8192, 8192])], product, MATMUL),
    call(
        "matmul/i8/4096",
        &[of(DType::I8, &[4096, 4096], -9.0, 9.0), of(DType::I8, &[4096, 4096], -9.0, 9.0)],
        |x| x[0].int_mm(&x[1]),
        "torch._int_mm(x[0], x[1])",
    ),
    call("bmm/bf16/256x64x64", &[bf16(&[256, 64, 64]), bf16(&[256, 64, 64])], product, MATMUL)
        .and_backward(),
];

const MATMUL: &str = "torch.matmul(x[0], x[1])";
const LINEAR: &str = "F.linear(x[0], x[1])";

fn product(x: &[Tensor]) -> Result<Tensor> {
    x[0].matmul(&x[1])
}

fn linear(x: &[Tensor]) -> Result<Tensor> {
    x[0].matmul(&x[1].t()?)
}

const CONVOLUTIONS: &[Row] = &[
    call(
        "conv2d/bf16/64x3x224x224/7x7/stride=2",
        &[bf16(&[64, 3, 224, 224]), bf16(&[64, 3, 7, 7])],
        |x| conv(x, 2, 3, 1),
        "F.conv2d(x[0], x[1], None, 2, 3)",
    )
    .and_backward(),
    call(
        "conv2d/bf16/64x256x56x56/1x1",
        &[bf16(&[64, 256, 56, 56]), bf16(&[64, 256, 1, 1])],
        |x| conv(x, 1, 0, 1),
        "F.conv2d(x[0], x[1])",
    )
    .and_backward(),
    call(
        "conv2d/bf16/64x512x28x28/3x3",
        &[bf16(&[64, 512, 28, 28]), bf16(&[512, 512, 3, 3])],
        |x| conv(x, 1, 1, 1),
        "F.conv2d(x[0], x[1], None, 1, 1)",
    )
    .and_backward(),
    call(
        "conv2d/bf16/64x256x56x56/3x3/depthwise",
        &[bf16(&[64, 256, 56, 56]), bf16(&[256, 1, 3, 3])],
        |x| conv(x, 1, 1, 256),
        "F.conv2d(x[0], x[1], None, 1, 1, 1, 256)",
    )
    .and_backward(),
    call(
        "conv2d/bf16/64x256x56x56/3x3/groups=32",
        &[bf16(&[64, 256, 56, 56]), bf16(&[256, 8, 3, 3])],
        |x| conv(x, 1, 1, 32),
        "F.conv2d(x[0], x[1], None, 1, 1, 1, 32)",
    )
    .and_backward(),
    call(
        "conv1d/bf16/64x512x4096/3",
        &[bf16(&[64, 512, 4096]), bf16(&[512, 512, 3])],
        |x| conv(x, 1, 1, 1),
        "F.conv1d(x[0], x[1], None, 1, 1)",
    ),
    call(
        "conv3d/bf16/4x64x16x56x56/3x3x3",
        &[bf16(&[4, 64, 16, 56, 56]), bf16(&[64, 64, 3, 3, 3])],
        |x| conv(x, 1, 1, 1),
        "F.conv3d(x[0], x[1], None, 1, 1)",
    ),
    call(
        "conv2d/f32/64x128x28x28/3x3",
        &[f32(&[64, 128, 28, 28]), f32(&[128, 128, 3, 3])],
        |x| conv(x, 1, 1, 1),
        "F.conv2d(x[0], x[1], None, 1, 1)",
    ),
];

fn conv(x: &[Tensor], stride: usize, padding: usize, groups: usize) -> Result<Tensor> {
    let axes = x[0].rank() - 2;
    let plain = Conv::new(axes);
    let padding = vec![[padding; 2]; axes];
    x[0].conv(&x[1], None, &Conv { stride: vec![stride; axes], padding, groups, ..plain })
}

const ATTENTION: &[Row] = &[
    call(
        "attention/bf16/b4h16s4096d256/causal",
        &[bf16(&[4, 16, 4096, 256]), bf16(&[4, 16, 4096, 256]), bf16(&[4, 16, 4096, 256])],
        |x| attend(x, true),
        "F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=True)",
    )
    .and_backward(),
    call(
        "attention/bf16/b64h14g2q1s8192d64",
        &[bf16(&[64, 14, 1, 64]), bf16(&[64, 2, 8192, 64]), bf16(&[64, 2, 8192, 64])],
        |x| attend(x, false),
        "F.scaled_dot_product_attention(x[0], x[1], x[2], enable_gqa=True)",
    ),
    call(
        "attention/bf16/b1h14g2q1s8192d64",
        &[bf16(&[1, 14, 1, 64]), bf16(&[1, 2, 8192, 64]), bf16(&[1, 2, 8192, 64])],
        |x| attend(x, false),
        "F.scaled_dot_product_attention(x[0], x[1], x[2], enable_gqa=True)",
    ),
];

fn attend(x: &[Tensor], is_causal: bool) -> Result<Tensor> {
    let groups = x[0].shape()[1] != x[1].shape()[1];
    let options = Attention { is_causal, groups, ..Attention::default() };
    x[0].scaled_dot_product_attention(&x[1], &x[2], &options)
}

const ORDER: &[Row] = &[
    call("sort/f32/4096x4096", &[f32(&[4096, 4096])], sorted, "torch.sort(x[0])[0]").and_backward(),
    call("sort/f32/16M", &[f32(&[1 << 24])], sorted, "torch.sort(x[0])[0]"),
    call(
        "topk/f32/64x151936/50",
        &[f32(&[64, 151_936])],
        |x| Ok(x[0].topk(50, -1, true)?.0),
        "torch.topk(x[0], 50)[0]",
    ),
    call(
        "unique/i64/1M",
        &[of(DType::I64, &[1 << 20], 0.0, 1e6)],
        |x| Ok(x[0].unique(false, false)?.values),
        "torch.unique(x[0])",
    ),
    call(
        "randperm/1M",
        &[f32(&[1])],
        |x| Tensor::randperm(1 << 20, (DType::I64, x[0].device())),
        "torch.randperm(1 << 20, device=x[0].device)",
    ),
];

fn sorted(x: &[Tensor]) -> Result<Tensor> {
    Ok(x[0].sort(-1, false)?.0)
}

const INDEX: &[Row] = &[
    call(
        "nonzero/u8/8M",
        &[of(DType::U8, &[1 << 23], 0.0, 2.0)],
        |x| x[0].nonzero(),
        "torch.nonzero(x[0])",
    ),
    call(
        "masked_select/f32/64M",
        &[f32(&[1 << 26])],
        |x| x[0].masked_select(&x[0].gt_scalar(0.0)?),
        "torch.masked_select(x[0], x[0] > 0.0)",
    ),
    call(
        "scatter_add/f32/8192x1024",
        &[f32(&[8192, 1024]), Of::below(&[8192, 1024], 8192), f32(&[8192, 1024])],
        |x| x[0].scatter_add(0, &x[1], &x[2]),
        "torch.scatter_add(x[0], 0, x[1], x[2])",
    )
    .and_backward(),
    call(
        "index_add/f32/65536x128/262144",
        &[f32(&[65_536, 128]), Of::below(&[262_144], 65_536), f32(&[262_144, 128])],
        |x| x[0].index_add(0, &x[1], &x[2], 1.0),
        "torch.index_add(x[0], 0, x[1], x[2])",
    )
    .and_backward(),
    call(
        "index_select/f32/65536x128/524288",
        &[f32(&[65_536, 128]), Of::below(&[524_288], 65_536)],
        |x| x[0].index_select(0, &x[1]),
        "torch.index_select(x[0], 0, x[1])",
    )
    .and_backward(),
    call(
        "index/f32/65536x128/524288",
        &[f32(&[65_536, 128]), Of::below(&[524_288], 65_536)],
        |x| x[0].index(&[Index::Tensor(x[1].clone())]),
        "x[0][x[1]]",
    )
    .and_backward(),
];

const ELEMENTS: &[Row] = &[
    call(
        "pow/f32/64M",
        &[f32(&[1 << 26]).within(0.1, 4.0), f32(&[1 << 26])],
        |x| x[0].pow(&x[1]),
        "torch.pow(x[0], x[1])",
    )
    .and_backward(),
    call("erfinv/f32/64M", &[f32(&[1 << 26])], |x| x[0].erfinv(), "torch.erfinv(x[0])"),
    call(
        "atan2/f32/64M",
        &[f32(&[1 << 26]), f32(&[1 << 26])],
        |x| x[0].atan2(&x[1]),
        "torch.atan2(x[0], x[1])",
    ),
    call(
        "gelu_tanh/bf16/64M",
        &[bf16(&[1 << 26])],
        |x| x[0].gelu_tanh(),
        "F.gelu(x[0], approximate='tanh')",
    )
    .and_backward(),
    call(
        "addcmul/f32/64M",
        &[f32(&[1 << 26]), f32(&[1 << 26]), f32(&[1 << 26])],
        |x| x[0].addcmul(&x[1], &x[2], 0.5),
        "torch.addcmul(x[0], x[1], x[2], value=0.5)",
    ),
    call(
        "mul_/f32/64M",
        &[f32(&[1 << 26]), f32(&[1 << 26]).within(0.999, 1.001)],
        |x| x[0].mul_(&x[1]).map(|()| x[0].clone()),
        "x[0].mul_(x[1])",
    ),
    call("dropout/f32/64M", &[f32(&[1 << 26])], |x| x[0].dropout(0.1), "F.dropout(x[0], 0.1)"),
    call("tril/f32/8192x8192", &[f32(&[8192, 8192])], |x| x[0].tril(0), "torch.tril(x[0])"),
    call(
        "pad/f32/8192x8192",
        &[f32(&[8192, 8192])],
        |x| x[0].pad(&[1, 1, 1, 1], PadMode::Constant(0.0)),
        "F.pad(x[0], (1, 1, 1, 1))",
    ),
    call(
        "cat/f32/8x1024x4096",
        &[f32(&[8, 1024, 4096])],
        |x| {
            let parts = x[0].unbind(0)?;
            Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)
        },
        "torch.cat(x[0].unbind(0), 1)",
    ),
    call(
        "randn/f32/64M",
        &[f32(&[1])],
        |x| Tensor::randn(&[1 << 26], x[0].device()),
        "torch.randn(1 << 26, device=x[0].device)",
    ),
    call(
        "rand/f32/64M",
        &[f32(&[1])],
        |x| Tensor::rand(&[1 << 26], x[0].device()),
        "torch.rand(1 << 26, device=x[0].device)",
    ),
];

const REDUCTIONS: &[Row] = &[
    call(
        "var/f32/8192x8192",
        &[f32(&[8192, 8192])],
        |x| x[0].var_dims(&[-1], 1.0, false),
        "torch.var(x[0], -1)",
    )
    .and_backward(),
    call(
        "vector_norm/bf16/8192x8192",
        &[bf16(&[8192, 8192])],
        |x| x[0].vector_norm(2.0, &[0, 1], false),
        "torch.linalg.vector_norm(x[0])",
    ),
    call(
        "amax/f32/8192x8192/axis=0",
        &[f32(&[8192, 8192])],
        |x| x[0].max_dims(&[0], false),
        "torch.amax(x[0], 0)",
    ),
    call(
        "sum/f32/1Mx64/axis=0",
        &[f32(&[1 << 20, 64])],
        |x| x[0].sum_dims(&[0], false),
        "torch.sum(x[0], 0)",
    ),
    call(
        "mse_loss/f32/64M",
        &[f32(&[1 << 26]), f32(&[1 << 26])],
        |x| x[0].mse_loss(&x[1], Reduction::Mean),
        "F.mse_loss(x[0], x[1])",
    )
    .and_backward(),
    call(
        "bce_with_logits/f32/64M",
        &[f32(&[1 << 26]), f32(&[1 << 26]).within(0.0, 1.0)],
        |x| x[0].binary_cross_entropy_with_logits(&x[1], Reduction::Mean),
        "F.binary_cross_entropy_with_logits(x[0], x[1])",
    )
    .and_backward(),
    call(
        "group_norm/bf16/32x256x64x64/32",
        &[bf16(&[32, 256, 64, 64]), bf16(&[256]), bf16(&[256])],
        |x| x[0].group_norm(32, Some(&x[1]), Some(&x[2]), 1e-5),
        "F.group_norm(x[0], 32, x[1], x[2])",
    )
    .and_backward(),
    call(
        "batch_norm/f32/64x256x56x56",
        &[f32(&[64, 256, 56, 56]), f32(&[256]), f32(&[256])],
        |x| {
            let (running, training, momentum, eps) = (None, true, 0.1, 1e-5);
            let stats = genesis::ops::BatchStats { running, training, momentum, eps };
            x[0].batch_norm(Some(&x[1]), Some(&x[2]), &stats)
        },
        "F.batch_norm(x[0], None, None, x[1], x[2], True)",
    )
    .and_backward(),
    call(
        "log_softmax/bf16/8192x50257",
        &[bf16(&[8192, 50_257])],
        |x| x[0].log_softmax(-1),
        "torch.log_softmax(x[0], -1)",
    )
    .and_backward(),
    call(
        "nll_loss/f32/8192x50257",
        &[f32(&[8192, 50_257]), Of::below(&[8192], 50_257)],
        |x| x[0].nll_loss(&x[1], &Classes::default()),
        "F.nll_loss(x[0], x[1])",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_has_a_name_of_its_own_and_inputs_that_fit_on_a_gpu() {
        let calls = all();
        let names: BTreeSet<&String> = calls.iter().map(|call| &call.name).collect();
        assert_eq!(names.len(), calls.len());
        for call in &calls {
            let bytes = |input: &Input| input.shape.iter().product::<usize>() * input.dtype.bytes();
            let total: usize = call.inputs.iter().map(bytes).sum();
            assert!(total < 2 << 30, "{} has {total} bytes", call.name);
        }
    }
}

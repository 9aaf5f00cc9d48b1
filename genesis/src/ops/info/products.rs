//! What is known about matrix products, and about the embedding, a product with rows of 0 and 1.

use genesis_kernel::ir::DType;

use super::sample::{Dense, FLOATS, Family, OpInfo, Sample, cpu, refuse, samples};
use crate::ops::elementwise::erf_reference;
use crate::ops::{Activation, ScaledMatmul};
use crate::tensor::Tensor;

fn matmul_of(a: &Dense, b: &Dense) -> Dense {
    let (ra, rb) = (a.shape.len(), b.shape.len());
    let (m, k, n) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
    let lead = [&a.shape[..ra - 2], &b.shape[..rb - 2]];
    let batch = crate::shape::broadcast_shapes("matmul", &lead).expect("samples broadcast");
    Dense::from_fn(&[&batch[..], &[m, n]].concat(), |at| {
        let (lead, tail) = at.split_at(batch.len());
        let a_at = |p: usize| a.at(&[lead, &[tail[0], p]].concat());
        let b_at = |p: usize| b.at(&[lead, &[p, tail[1]]].concat());
        (0..k).map(|p| a_at(p) * b_at(p)).sum()
    })
}

/// Matrix products, plain, with a bias, scaled; and the embedding, which picks rows.
pub(super) fn products() -> Vec<OpInfo> {
    let matmul = OpInfo {
        name: "matmul".to_owned(),
        family: Family::MatMul,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(|x| x[0].matmul(&x[1])),
        reference: Box::new(|x| matmul_of(&x[0], &x[1])),
        samples: samples(
            &[
                &[&[1, 1], &[1, 1]],
                &[&[3, 4], &[4, 5]],
                &[&[2, 17, 33], &[33, 9]],
                &[&[3, 1, 4, 5], &[2, 5, 6]],
                &[&[70, 100], &[100, 65]],
                &[&[0, 4], &[4, 5]],
                &[&[2, 0], &[0, 3]],
            ],
            (-2.0, 2.0),
        ),
        refused: vec![
            refuse(
                || cpu(&[4, 8], DType::F32)?.matmul(&cpu(&[6, 2], DType::F32)?),
                "matmul: inner extents differ, [4, 8] and [6, 2]",
            ),
            refuse(
                || cpu(&[], DType::F32)?.matmul(&cpu(&[2], DType::F32)?),
                "matmul: needs at least 1 dimension(s), got [] and [2]",
            ),
            refuse(
                || cpu(&[2, 2], DType::Bool)?.matmul(&cpu(&[2, 2], DType::Bool)?),
                "matmul: needs a number dtype, got bool",
            ),
        ],
    };
    let embedding = OpInfo {
        name: "embedding".to_owned(),
        family: Family::Exact,
        dtypes: FLOATS.to_vec(),
        index_inputs: vec![(1, 5)],
        is_differentiable: true,
        call: Box::new(|x| x[0].embedding(&x[1])),
        reference: Box::new(|x| {
            let c = x[0].shape[1];
            let rows = x[1].data.iter().flat_map(|&i| x[0].data[i as usize * c..][..c].to_vec());
            Dense { shape: [&x[1].shape[..], &[c]].concat(), data: rows.collect() }
        }),
        samples: samples(
            &[&[&[5, 3], &[4]], &[&[5, 40], &[2, 3]], &[&[6, 2000], &[3]], &[&[5, 3], &[0]]],
            (-2.0, 2.0),
        ),
        refused: vec![
            refuse(
                || cpu(&[4], DType::F32)?.embedding(&cpu(&[2], DType::I64)?),
                "embedding: the table must be [V, C], got [4]",
            ),
            refuse(
                || cpu(&[4, 2], DType::F32)?.embedding(&cpu(&[2], DType::F32)?),
                "embedding: the index must be an integer, got f32",
            ),
            refuse(
                || cpu(&[0, 2], DType::F32)?.embedding(&cpu(&[2], DType::I64)?),
                "embedding: index 0 is out of range for 0 rows",
            ),
        ],
    };
    let mut infos = vec![matmul];
    infos.extend(affine_products());
    infos.extend([scaled_matmul(), embedding]);
    infos
}

/// The products and their biases.
fn biased(x: &[Dense]) -> Dense {
    let product = matmul_of(&x[0], &x[1]);
    let n = x[2].data.len().max(1);
    let sums = product.data.iter().enumerate().map(|(i, v)| v + x[2].data[i % n]).collect();
    Dense { data: sums, ..product }
}

/// A product with a bias under an activation.
fn affine_under(
    name: &'static str,
    activation: Activation,
    function: fn(f64) -> f64,
    samples: Vec<Sample>,
) -> OpInfo {
    OpInfo {
        name: name.to_owned(),
        family: Family::MatMul,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(move |x| x[0].matmul_bias_activation(&x[1], &x[2], activation)),
        reference: Box::new(move |x| {
            let sums = biased(x);
            Dense { data: sums.data.iter().map(|&v| function(v)).collect(), ..sums }
        }),
        samples,
        refused: vec![refuse(
            move || {
                let (a, b) = (cpu(&[2, 2], DType::I32)?, cpu(&[2, 2], DType::I32)?);
                a.matmul_bias_activation(&b, &cpu(&[2], DType::I32)?, activation)
            },
            &format!("{name}: needs a float dtype, got i32"),
        )],
    }
}

/// Products with a bias, plain and under an activation.
fn affine_products() -> [OpInfo; 4] {
    let shapes: &[&[&[usize]]] = &[
        &[&[1, 1], &[1, 1], &[1]],
        &[&[3, 4], &[4, 5], &[5]],
        &[&[2, 17, 33], &[33, 9], &[9]],
        &[&[3, 1, 4, 5], &[2, 5, 6], &[6]],
        &[&[70, 100], &[100, 65], &[65]],
        &[&[0, 4], &[4, 5], &[5]],
        &[&[2, 0], &[0, 3], &[3]],
    ];
    let plain = OpInfo {
        name: "matmul_bias".to_owned(),
        family: Family::MatMul,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(|x| x[0].matmul_bias(&x[1], &x[2])),
        reference: Box::new(biased),
        samples: samples(shapes, (-2.0, 2.0)),
        refused: vec![
            refuse(
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[8, 2], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[3], DType::F32)?)
                },
                "matmul_bias: the bias is [3], [8, 2] needs [2]",
            ),
            refuse(
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[6, 2], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[2], DType::F32)?)
                },
                "matmul_bias: inner extents differ, [4, 8] and [6, 2]",
            ),
            refuse(
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[8], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[8], DType::F32)?)
                },
                "matmul_bias: needs a row and a matrix, got [4, 8] and [8]",
            ),
        ],
    };
    let gelu = |v| 0.5 * v * (1.0 + erf_reference(v * std::f64::consts::FRAC_1_SQRT_2));
    [
        plain,
        affine_under("matmul_bias_gelu", Activation::Gelu, gelu, samples(shapes, (-1.0, 1.0))),
        affine_under(
            "matmul_bias_relu",
            Activation::Relu,
            |v| v.max(0.0),
            samples(shapes, (-2.0, 2.0)),
        ),
        affine_under(
            "matmul_bias_silu",
            Activation::Silu,
            |v| v / (1.0 + (-v).exp()),
            // Without sums of nothing, which have to be exact.
            samples(&shapes[..6], (-1.0, 1.0)),
        ),
    ]
}

fn scaled_matmul() -> OpInfo {
    let call = |x: &[Tensor], fast: bool| {
        let scale = |value: f64| Tensor::full(&[1], value, (DType::F32, x[0].device()));
        let options = ScaledMatmul { dtype: DType::F32, fast };
        x[0].scaled_matmul(&x[1], &scale(0.5)?, &scale(2.0)?, options)
    };
    OpInfo {
        name: "scaled_matmul".to_owned(),
        family: Family::MatMul,
        dtypes: vec![DType::F8E4M3, DType::F8E5M2],
        index_inputs: Vec::new(),
        is_differentiable: false,
        call: Box::new(move |x| call(x, x[0].numel() % 2 == 0)),
        reference: Box::new(|x| matmul_of(&x[0], &x[1])),
        samples: samples(
            &[
                &[&[1, 1], &[1, 1]],
                &[&[3, 4], &[4, 5]],
                &[&[70, 144], &[144, 80]],
                &[&[65, 256], &[256, 128]],
                &[&[0, 4], &[4, 5]],
                &[&[2, 0], &[0, 3]],
            ],
            (-2.0, 2.0),
        ),
        refused: vec![
            refuse(
                move || call(&[cpu(&[2, 2], DType::BF16)?, cpu(&[2, 2], DType::BF16)?], false),
                "scaled_matmul: needs an 8-bit float dtype, got bf16",
            ),
            refuse(
                move || call(&[cpu(&[2, 3], DType::F8E4M3)?, cpu(&[2, 2], DType::F8E4M3)?], false),
                "scaled_matmul: needs [M, K] and [K, N], got [2, 3] and [2, 2]",
            ),
            refuse(
                || {
                    let [x, scale] = [cpu(&[2, 2], DType::F8E5M2)?, cpu(&[2], DType::F32)?];
                    x.scaled_matmul(&x, &scale, &scale, ScaledMatmul::default())
                },
                "scaled_matmul: a scale is one f32 beside the operands, got [2] f32 cpu",
            ),
            refuse(
                || cpu(&[2, 2], DType::F8E4M3)?.matmul(&cpu(&[2, 2], DType::F8E4M3)?),
                "matmul: needs a float dtype, got f8e4m3, which is for storage: convert it with \
                 `to_dtype`",
            ),
            refuse(
                || cpu(&[2], DType::F8E4M3)?.add(&cpu(&[2], DType::F8E4M3)?),
                "add: needs a number dtype, got f8e4m3, which is for storage: convert it with \
                 `to_dtype`",
            ),
        ],
    }
}

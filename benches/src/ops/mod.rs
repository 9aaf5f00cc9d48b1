//! The ops that are timed: what each has to move, how its buffers are made, how its result is checked.
//!
//! Ours is called as a user calls it, through tensors, so that a faster kernel is measured without a
//! change here. Each result is compared with f64 on the host before anything is timed: all of it where
//! that is quick, else rows or elements spread over it.

mod attention;
mod conv;
mod elementwise;
mod error;
mod linear_loss;
mod matmul;
mod op;
mod paged;
mod quantized;
mod reduce;
mod rows;
mod update;

pub(crate) use error::{check_rows, column, distance, row, sample, tolerance};
pub(crate) use op::{Launched, Missing, Op, Prepared, Setup};

/// Every op.
pub(crate) fn all() -> Vec<Op> {
    let groups = [elementwise::ops(), rows::ops(), reduce::ops(), matmul::ops(), update::ops()];
    let more = [attention::ops(), paged::ops(), conv::ops(), quantized::ops(), linear_loss::ops()];
    [groups.concat(), more.concat()].concat()
}

#[cfg(test)]
mod tests {
    use genesis::Device;

    use super::*;
    use crate::name::CaseName;

    /// A small case of every op, and of what its variants do.
    const SMALL: [&str; 54] = [
        "add/f32/33x70",
        "add/bf16/33x70",
        "gelu/bf16/33x70",
        "silu/bf16/33x70",
        "exp/bf16/33x70",
        "add_row/f32/33x70",
        "add_column/f32/33x70",
        "transpose/bf16/33x70",
        "fused_chain/f32/3000",
        "softmax/f32/20x100",
        "softmax/bf16/20x1000",
        "layer_norm/bf16/20x100",
        "layer_norm_bwd/bf16/20x100",
        "layer_norm_bwd/f32/20x100",
        "rms_norm/bf16/20x100",
        "rms_norm_bwd/bf16/20x100",
        "sum/f32/4x12x70/axis=all",
        "sum/f32/4x12x70/axis=-1",
        "sum/f32/4x12x70/axis=0,1",
        "sum/bf16/40x70/axis=0",
        "argmax/f32/20x100",
        "cross_entropy/bf16/20x100/fwd",
        "cross_entropy/f32/20x100/fwd+bwd",
        "linear_cross_entropy/bf16/m20k16n100/fwd",
        "linear_cross_entropy/f32/m20k16n100/fwd+bwd",
        "matmul/bf16/65/nn",
        "matmul/f16/65/nt",
        "matmul/f32/65/tn",
        "linear/bf16/m5k30n70",
        "linear/bf16/m1k64n70",
        "matmul_bias_gelu/bf16/65",
        "adamw/f32/1000",
        "embedding_bwd/bf16/30x100x20",
        "cumsum/f32/20x100",
        "matmul/tf32/65/nn",
        "matmul/f8e4m3/65/nt",
        "matmul/f8e5m2/65/nn/fast",
        "matmul/f64/65/nn",
        "matmul/i8/65/nn",
        "attention/f32/b2h3s37d24/causal",
        "attention/bf16/b1h4g2s70d16",
        "attention/f32/b4h2s70d16/varlen/causal",
        "paged_attention/f32/b3h4g2n1s70d16",
        "paged_attention/bf16/b2h4g1n20s37d16",
        "attention_bwd/f32/b4h2s70d16/varlen",
        "attention_bwd/f32/b2h3s37d24",
        "attention_bwd/f32/b1h4g2s37d16/causal/deterministic",
        "attention_bwd/bf16/b1h2s70d32/causal/flash",
        "conv2d/bf16/2x4x5x6/3x3",
        "conv2d/f32/2x4x5x6/3x3/dx",
        "conv2d/f32/2x4x5x6/3x3/dw",
        "conv2d/f32/2x4x5x6/3x3/last",
        "quantized_linear/bf16/m3k128n9/int8",
        "quantized_linear/f32/m1k128n9/int4/g32/min",
    ];

    #[test]
    fn every_op_is_right_on_the_cpu() {
        let ops = all();
        for text in SMALL {
            let name = CaseName::parse(text).unwrap();
            let op = ops.iter().find(|op| op.name == name.op).unwrap();
            assert!((op.work)(&name).bytes > 0.0, "{text} moves nothing");
            let setup = Setup { name: &name, device: Device::Cpu, sets: 2 };
            let mut prepared = match (op.prepare)(&setup) {
                Ok(prepared) => prepared,
                Err(error) if error.is::<Missing>() => continue,
                Err(error) => panic!("{text}: {error}"),
            };
            let limit = tolerance(&name.precision);
            assert!(prepared.error <= limit, "{text} is off by {}", prepared.error);
            assert!(prepared.launched().unwrap().bytes >= 0.0);
            for set in [0, 1, 0] {
                (prepared.run)(set).unwrap();
            }
        }
        let untested: Vec<&str> = ops
            .iter()
            .map(|op| op.name)
            .filter(|name| !SMALL.iter().any(|text| text.split('/').next() == Some(name)))
            .collect();
        assert!(untested.is_empty(), "no small case of {untested:?}");
    }

    #[test]
    fn what_streams_moves_by_its_ir_what_it_must() {
        for text in ["add/f32/64x4096", "gelu/bf16/64x4096", "softmax/f32/64x1024"] {
            let name = CaseName::parse(text).unwrap();
            let op = all().into_iter().find(|op| op.name == name.op).unwrap();
            let setup = Setup { name: &name, device: Device::Cpu, sets: 1 };
            let launched = (op.prepare)(&setup).unwrap().launched().unwrap();
            assert_eq!((launched.count, launched.bytes), (1, (op.work)(&name).bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_far() {
        assert_eq!(distance(&[1.0, f64::NAN], &[1.0, 1.0], 0.0), f64::INFINITY);
        assert_eq!(distance(&[1.5], &[1.0], 2.0), 0.25);
        assert_eq!(distance(&[], &[1.0], 1.0), f64::INFINITY);
    }

    #[test]
    fn samples_hold_both_ends() {
        let picked = sample(8192, 12);
        assert!(picked.len() >= 10 && picked[0] == 0 && picked.contains(&8191));
        assert_eq!(sample(3, 12), [0, 1, 2]);
    }
}

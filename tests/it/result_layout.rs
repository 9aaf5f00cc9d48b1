//! Results of elementwise ops lie in memory as their operands do, as in PyTorch.

use genesis::{DType, Device, Result, Tensor, fuse};

use crate::gpu::devices;

/// Different numbers of this shape, dense.
fn dense(shape: &[usize], device: Device) -> Result<Tensor> {
    let n: usize = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 + 11) % 97) as f32 / 31.0 - 1.5).collect();
    Tensor::from_slice_on(&values, shape, device)
}

/// An op's result where its operands lie anyhow has the strides, and the numbers that it has where they are dense.
fn lies(
    what: &str,
    operands: &[&Tensor],
    strides: &[i64],
    op: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    let given: Vec<Tensor> = operands.iter().map(|&t| t.clone()).collect();
    let copies = operands.iter().map(|t| t.contiguous()).collect::<Result<Vec<Tensor>>>()?;
    let (got, wanted) = (op(&given)?, op(&copies)?);
    assert_eq!(got.strides(), strides, "{what}");
    assert_eq!(got.shape(), wanted.shape(), "{what}");
    assert_eq!(got.to_f64_vec()?, wanted.to_f64_vec()?, "{what}");
    Ok(())
}

#[test]
fn results_lie_as_their_operands() -> Result<()> {
    for device in devices("layouts of results") {
        let (x, y) = (dense(&[70, 40], device)?.t()?, dense(&[70, 40], device)?.t()?);
        let row_major = dense(&[40, 70], device)?;
        let bias = dense(&[70], device)?;
        lies("neg", &[&x], &[1, 40], |t| t[0].neg())?;
        lies("add_scalar", &[&x], &[1, 40], |t| t[0].add_scalar(1.0))?;
        lies("sinh", &[&x], &[1, 40], |t| t[0].sinh())?;
        lies("gelu", &[&x], &[1, 40], |t| t[0].gelu())?;
        lies("softsign", &[&x], &[1, 40], |t| t[0].softsign())?;
        lies("to_dtype", &[&x], &[1, 40], |t| t[0].to_dtype(DType::F64))?;
        lies("add", &[&x, &y], &[1, 40], |t| t[0].add(&t[1]))?;
        lies("atan2", &[&x, &y], &[1, 40], |t| t[0].atan2(&t[1]))?;
        lies("lt", &[&x, &y], &[1, 40], |t| t[0].lt(&t[1]))?;
        lies("lt_scalar", &[&x], &[1, 40], |t| t[0].lt_scalar(0.25))?;
        lies("logical_and", &[&x, &y], &[1, 40], |t| t[0].logical_and(&t[1]))?;
        lies("logical_not", &[&x], &[1, 40], |t| t[0].logical_not())?;
        lies("where", &[&x, &y], &[1, 40], |t| t[0].gt(&t[1])?.where_(&t[0], &t[1]))?;
        lies("addcmul", &[&x, &y], &[1, 40], |t| t[0].addcmul(&t[0], &t[1], 0.5))?;
        // The first operand decides; one that is broadcast along an axis tells nothing of it.
        lies("before", &[&x, &row_major], &[1, 40], |t| t[0].mul(&t[1]))?;
        lies("behind", &[&row_major, &x], &[70, 1], |t| t[0].mul(&t[1]))?;
        lies("a bias", &[&x, &bias], &[1, 40], |t| t[0].add(&t[1]))?;
        // Gaps are not kept.
        let part = x.narrow(1, 3, 50)?.narrow(0, 1, 30)?;
        lies("a part", &[&part], &[1, 30], |t| t[0].sinh())?;
        lies("a flipped part", &[&part.flip(&[0])?], &[1, 30], |t| t[0].sinh())?;
        // Images with their channels last in memory.
        let images = dense(&[2, 5, 7, 20], device)?.permute(&[0, 3, 1, 2])?;
        lies("relu", &[&images], images.strides(), |t| t[0].relu())?;
        let scale = dense(&[20, 1, 1], device)?;
        lies("a scale", &[&images, &scale], images.strides(), |t| t[0].mul(&t[1])?.relu())?;
        // More axes than a launch walks where their order is none of theirs.
        let many = dense(&[3, 2, 4, 2, 3, 2], device)?.permute(&[5, 2, 0, 4, 1, 3])?;
        lies("six axes", &[&many], many.strides(), |t| t[0].exp())?;
    }
    Ok(())
}

#[test]
fn gradients_of_operands_that_lie_anyhow_are_those_of_dense_ones() -> Result<()> {
    for device in devices("layouts of results") {
        let slopes = |turned: bool| -> Result<[Vec<f64>; 2]> {
            let leaf = |shape: &[usize]| dense(shape, device)?.requires_grad_(true);
            let (x, bias) = (leaf(&[9, 33])?, leaf(&[9])?);
            let given = if turned { x.t()? } else { x.t()?.contiguous()? };
            let y = given.mul(&given)?.add(&bias)?.softsign()?.to_dtype(DType::F64)?;
            y.mul(&y.t()?.contiguous()?.t()?)?.sum()?.backward()?;
            let of = |t: &Tensor| t.grad().expect("a leaf has a gradient").to_f64_vec();
            Ok([of(&x)?, of(&bias)?])
        };
        let ([x, bias], [dense_x, dense_bias]) = (slopes(true)?, slopes(false)?);
        assert_eq!(x, dense_x, "{device}");
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        assert!(bias.iter().zip(&dense_bias).all(is_near), "{bias:?}, {dense_bias:?}");
    }
    Ok(())
}

#[test]
fn what_is_fused_and_what_is_written_in_place_does_too() -> Result<()> {
    for device in devices("layouts of results") {
        let f = fuse(|args| args[0].mul(&args[1])?.tanh()?.add_scalar(0.5));
        let (x, y) = (dense(&[24, 50], device)?.t()?, dense(&[50, 24], device)?);
        lies("fused", &[&x, &y], &[1, 50], |t| f.call(&[&t[0], &t[1]]))?;
        let own = dense(&[24, 50], device)?;
        let wanted = own.t()?.mul(&y)?.to_vec::<f32>()?;
        own.t()?.mul_(&y)?;
        assert_eq!(own.t()?.to_vec::<f32>()?, wanted, "{device}");
        assert_eq!(own.strides(), [50, 1]);
    }
    Ok(())
}

#[test]
fn operands_that_lie_across_their_rows_give_the_numbers_of_dense_ones() -> Result<()> {
    type Op = fn(&[Tensor]) -> Result<Tensor>;
    // Enough elements for the CPU to copy them first, by tiles that registers transpose.
    let x = dense(&[96, 80], Device::Cpu)?.t()?;
    let stack = x.unsqueeze(0)?.broadcast_to(&[3, 80, 96])?;
    let (weight, bias) = (dense(&[96], Device::Cpu)?, dense(&[96], Device::Cpu)?);
    let ops: [(&str, Op); 9] = [
        ("softmax", |t| t[0].softmax(-1)),
        ("log_softmax", |t| t[0].log_softmax(-1)),
        ("layer_norm", |t| t[0].layer_norm(&t[1], &t[2], 1e-5)),
        ("rms_norm", |t| t[0].rms_norm(&t[1], 1e-5)),
        ("cumsum", |t| t[0].cumsum(-1)),
        ("cummax", |t| Ok(t[0].cummax(-1)?.1)),
        ("tril", |t| t[0].tril(0)),
        ("copy", |t| t[0].copy()),
        ("max", |t| Ok(t[0].max_with_index(-1, false)?.1)),
    ];
    for across in [&x, &stack, &x.narrow(0, 3, 70)?] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let [t, weight, bias] = [across, &weight, &bias].map(|t| t.to_dtype(dtype));
            let across = [t?, weight?, bias?];
            let rows = [across[0].contiguous()?, across[1].clone(), across[2].clone()];
            for (what, op) in ops {
                let numbers = |of: &[Tensor]| op(of)?.to_f64_vec();
                assert_eq!(numbers(&across)?, numbers(&rows)?, "{what} of {dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn images_are_resized_as_they_lie() -> Result<()> {
    let images = dense(&[2, 9, 14, 20], Device::Cpu)?.permute(&[0, 3, 1, 2])?; // [N, C, H, W]
    for size in [[3, 4], [9, 14], [7, 5]] {
        let (got, wanted) =
            (images.adaptive_avg_pool(&size)?, images.contiguous()?.adaptive_avg_pool(&size)?);
        assert_eq!(got.shape(), wanted.shape());
        for (a, b) in got.to_f64_vec()?.into_iter().zip(wanted.to_f64_vec()?) {
            assert!((a - b).abs() < 1e-6, "{size:?}: {a}, of dense images {b}");
        }
        let [_, c, h, w] = got.shape()[..] else { panic!("images have four axes") };
        assert_eq!(got.strides()[1], 1, "{c} channels of {h} by {w} are last");
    }
    Ok(())
}

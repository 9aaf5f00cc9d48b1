//! Initial values: the moments, bounds and shapes that PyTorch's functions promise.

use genesis::nn::init::{self, FanMode, Nonlinearity};
use genesis::nn::{
    BatchNorm2d, Embedding, Linear, Lstm, Module, MultiheadAttention, PRelu, Transformer,
    TransformerOptions,
};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

fn filled(shape: &[usize], fill: impl FnOnce(&Tensor) -> Result<()>) -> Result<Vec<f64>> {
    let _own = thread_rng(7);
    let t = Tensor::zeros(shape, CPU)?.requires_grad_(true)?;
    fill(&t)?;
    t.to_f64_vec()
}

/// Mean, deviation and the largest magnitude.
fn moments(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let var = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    (mean, var.sqrt(), values.iter().fold(0.0, |m, v| m.max(v.abs())))
}

/// A fill of `[64, 32, 3]`, whose fans are 96 and 192, has this deviation and at most this magnitude.
fn check(fill: impl FnOnce(&Tensor) -> Result<()>, std: f64, top: f64) -> Result<()> {
    let (mean, found, largest) = moments(&filled(&[64, 32, 3], fill)?);
    assert!(mean.abs() < 0.06 * std, "mean {mean}");
    assert!((found / std - 1.0).abs() < 0.04, "deviation {found}, not {std}");
    assert!(largest <= top && largest > 0.9 * top.min(3.0 * std), "largest {largest}, bound {top}");
    Ok(())
}

#[test]
fn random_fills_have_their_moments() -> Result<()> {
    let uniform = 1.0 / 3f64.sqrt();
    let far = f64::INFINITY;
    check(|t| init::uniform_(t, -0.5, 0.5), 0.5 * uniform, 0.5)?;
    check(|t| init::normal_(t, 0.0, 0.3), 0.3, far)?;
    let glorot = (6.0f64 / 288.0).sqrt();
    check(|t| init::xavier_uniform_(t, 2.0), 2.0 * glorot * uniform, 2.0 * glorot)?;
    check(|t| init::xavier_normal_(t, 1.0), (2.0f64 / 288.0).sqrt(), far)?;
    let he = (6.0f64 / 96.0).sqrt();
    check(|t| init::kaiming_uniform_(t, FanMode::FanIn, Nonlinearity::Relu), he * uniform, he)?;
    let out = (2.0 / 1.04 / 192.0f64).sqrt();
    check(|t| init::kaiming_normal_(t, FanMode::FanOut, Nonlinearity::LeakyRelu(0.2)), out, far)?;
    // The deviation of a normal cut at one deviation.
    check(|t| init::trunc_normal_(t, 0.0, 0.5, [-0.5, 0.5]), 0.5 * 0.539_560_2, 0.5)
}

#[test]
fn matrices_have_their_structure() -> Result<()> {
    for shape in [[3, 5], [5, 3]] {
        let t = Tensor::zeros(&shape, (DType::F64, CPU))?;
        init::orthogonal_(&t, 2.0)?;
        let gram = if shape[0] < shape[1] { t.matmul(&t.t()?)? } else { t.t()?.matmul(&t)? };
        for (i, v) in gram.to_f64_vec()?.iter().enumerate() {
            let expected = if i % 4 == 0 { 4.0 } else { 0.0 };
            assert!((v - expected).abs() < 1e-6, "{shape:?}: {v}");
        }
    }
    assert_eq!(filled(&[2, 3], init::eye_)?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let dirac = filled(&[4, 2, 3], |t| init::dirac_(t, 2))?;
    let ones: Vec<usize> = (0..24).filter(|&i| dirac[i] == 1.0).collect();
    assert_eq!((ones, dirac.iter().sum::<f64>()), (vec![1, 10, 13, 22], 4.0));
    let sparse = filled(&[10, 4], |t| init::sparse_(t, 0.25, 1.0))?;
    for col in 0..4 {
        assert_eq!((0..10).filter(|row| sparse[row * 4 + col] == 0.0).count(), 3);
    }
    Ok(())
}

#[test]
fn gains_are_pytorchs() {
    let gains = [
        (Nonlinearity::Linear, 1.0),
        (Nonlinearity::Tanh, 5.0 / 3.0),
        (Nonlinearity::Relu, 2f64.sqrt()),
        (Nonlinearity::LeakyRelu(0.01), (2.0f64 / 1.0001).sqrt()),
        (Nonlinearity::Selu, 0.75),
    ];
    for (nonlinearity, gain) in gains {
        assert_eq!(init::calculate_gain(nonlinearity), gain, "{nonlinearity:?}");
    }
}

#[test]
fn wrong_shapes_are_refused() -> Result<()> {
    let line = Tensor::zeros(&[4], CPU)?;
    let refusals = [
        (init::eye_(&line), "eye_: needs a matrix, got shape [4]"),
        (
            init::xavier_normal_(&line, 1.0),
            "xavier_normal_: needs at least 2 dimension(s), got shape [4]",
        ),
        (
            init::orthogonal_(&line, 1.0),
            "orthogonal_: needs at least 2 dimension(s), got shape [4]",
        ),
        (
            init::dirac_(&line, 1),
            "dirac_: needs the weight of a convolution, of rank 3, 4 or 5, got shape [4]",
        ),
        (
            init::trunc_normal_(&line, 0.0, 0.0, [-1.0, 1.0]),
            "trunc_normal_: can't draw from [-1, 1] with a deviation of 0",
        ),
    ];
    for (result, text) in refusals {
        assert_eq!(result.expect_err("it does not fit").to_string(), text);
    }
    Ok(())
}

/// Parameters of a fresh module, by name: mean, deviation, largest magnitude.
fn started(module: &dyn Module, name: &str) -> Result<(f64, f64, f64)> {
    Ok(moments(&module.state_dict()[name].to_f64_vec()?))
}

#[test]
fn layers_start_as_pytorchs_do() -> Result<()> {
    let _own = thread_rng(3);
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.05;
    let third = 1.0 / 3f64.sqrt();
    let linear = Linear::new(100, 80, CPU)?;
    let (_, std, top) = started(&linear, "weight")?;
    assert!(near(std, 0.1 * third) && top <= 0.1, "{std} {top}");
    assert!(started(&linear, "bias")?.2 <= 0.1);
    assert!(near(started(&Embedding::new(50, 40, CPU)?, "weight")?.1, 1.0));
    let lstm = Lstm::new(20, 25, CPU)?;
    for name in ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"] {
        let (_, std, top) = started(&lstm, name)?;
        assert!((std / (0.2 * third) - 1.0).abs() < 0.15 && top <= 0.2, "{name}: {std} {top}");
    }
    let attention = MultiheadAttention::new(32, 4, CPU)?;
    let bound = (6.0f64 / 128.0).sqrt();
    let (_, std, top) = started(&attention, "in_proj_weight")?;
    assert!(near(std, bound * third) && top <= bound, "{std} {top}");
    assert_eq!(started(&attention, "in_proj_bias")?.2, 0.0);
    assert_eq!(started(&attention, "out_proj.bias")?.2, 0.0);
    assert_eq!(started(&PRelu::new(3, CPU)?, "weight")?.0, 0.25);
    let norm = BatchNorm2d::new(3, CPU)?;
    assert_eq!((started(&norm, "weight")?.0, started(&norm, "running_var")?.0), (1.0, 1.0));
    let options = TransformerOptions { dim_feedforward: 64, ..TransformerOptions::default() };
    let transformer = Transformer::new([1, 1], 32, 4, options, CPU)?;
    let bound = (6.0f64 / 96.0).sqrt();
    let (_, std, top) = started(&transformer, "encoder.layers.0.linear1.weight")?;
    assert!(near(std, bound * third) && top <= bound, "{std} {top}");
    Ok(())
}

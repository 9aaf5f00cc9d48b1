//! Norms that are divided behind products: what they give, and that a row's bits are its own.

use anyhow::{Result, ensure};
use genesis::autograd::no_grad;
use genesis::models::{FeedForwardLayer, GatedMlp, Norm, Normed, Projection, Residual};
use genesis::nn::{Parameter, Weight};
use genesis::ops::Activation;
use genesis::{DType, Device, Tensor};

use crate::gpu;

/// Hidden channels.
const HIDDEN: usize = 100;

/// A tensor as a product's weight.
pub(crate) fn whole(weight: &Tensor) -> Result<Weight> {
    Ok(Parameter::new(weight.clone())?.into())
}

/// Two layers with a norm in front of each, of the same numbers everywhere.
pub(crate) struct Layers {
    pub(crate) mlps: Vec<GatedMlp>,
    pub(crate) norms: Vec<Norm>,
}

impl Layers {
    /// Of [`weights`], which `form` makes weights of products of.
    pub(crate) fn new(
        weights: &[[Tensor; 4]; 2],
        at: (DType, Device),
        offset: f64,
        form: &dyn Fn(&Tensor) -> Result<Weight>,
    ) -> Result<Layers> {
        let mut layers = Layers { mlps: Vec::new(), norms: Vec::new() };
        for [gate, up, down, gain] in weights {
            let projection = |weight: &Tensor| -> Result<Projection> {
                let weight = form(&weight.to_dtype(at.0)?.to_device(at.1)?)?;
                Ok(Projection { weight, bias: None })
            };
            let mut mlp = GatedMlp {
                gate_proj: projection(gate)?,
                up_proj: projection(up)?,
                down_proj: projection(down)?,
                activation: Activation::Silu,
                parallel: None,
            };
            GatedMlp::pack(&mut mlp)?;
            layers.mlps.push(mlp);
            let weight = Parameter::new(gain.to_dtype(at.0)?.to_device(at.1)?)?;
            layers.norms.push(Norm { weight, eps: 1e-6, offset });
        }
        Ok(layers)
    }

    /// The stream behind both layers. `defers` is whether products may divide.
    pub(crate) fn run(&self, x: &Tensor, defers: bool) -> Result<Tensor> {
        no_grad(|| {
            let (stream, normed) = Residual::new(x.clone()).before(&self.norms[0], defers)?;
            let next = defers.then_some(&self.norms[1]);
            let stream = self.mlps[0].onto(&normed, stream, next)?;
            let (stream, normed) = stream.before(&self.norms[1], defers)?;
            Ok(self.mlps[1].onto(&normed, stream, None)?.whole()?)
        })
    }
}

/// Gates, what they let through, what leads back, and the norm's weights: of two layers.
pub(crate) fn weights(width: usize, hidden: usize) -> Result<[[Tensor; 4]; 2]> {
    let layer = || -> Result<[Tensor; 4]> {
        let randn = |shape: &[usize], scale: f64| {
            Tensor::randn(shape, Device::Cpu)?.mul_scalar(scale)?.to_dtype(DType::BF16)
        };
        let scale = 1.0 / (width as f64).sqrt();
        Ok([
            randn(&[hidden, width], scale)?,
            randn(&[hidden, width], scale)?,
            randn(&[width, hidden], 3.0 / (hidden as f64).sqrt())?,
            randn(&[width], 0.5)?,
        ])
    };
    Ok([layer()?, layer()?])
}

/// Rows of all sizes, as residual streams are.
pub(crate) fn stream(rows: usize, width: usize) -> Result<Tensor> {
    let size = Tensor::arange(0.0, rows as f64, 1.0, (DType::F32, Device::Cpu))?;
    let size = size.mul_scalar(0.3)?.add_scalar(0.01)?.unsqueeze(1)?;
    Ok(Tensor::randn(&[rows, width], Device::Cpu)?.mul(&size)?.to_dtype(DType::BF16)?)
}

/// How far the worst row is off, for its size.
pub(crate) fn error(y: &Tensor, expected: &Tensor) -> Result<f64> {
    let y = y.to_device(Device::Cpu)?.to_dtype(DType::F32)?;
    let size = expected.square()?.mean_dims(&[1], false)?;
    let off = y.sub(expected)?.square()?.mean_dims(&[1], false)?;
    Ok(off.div(&size)?.max()?.item()?.sqrt())
}

/// The numbers of a tensor, as they are.
pub(crate) fn bits(t: &Tensor) -> Result<Vec<f32>> {
    Ok(t.contiguous()?.to_dtype(DType::F32)?.to_vec::<f32>()?)
}

#[test]
fn a_norm_divided_behind_products_is_the_norm() -> Result<()> {
    for device in gpu::devices("norms divided behind products") {
        is_the_norm_on(device)?;
    }
    Ok(())
}

fn is_the_norm_on(device: Device) -> Result<()> {
    for (width, offset) in [(64, 0.0), (512, 1.0), (896, 0.0), (2100, 0.0), (4096, 1.0)] {
        let weights = weights(width, HIDDEN)?;
        let wide = Layers::new(&weights, (DType::F32, Device::Cpu), offset, &whole)?;
        let own = Layers::new(&weights, (DType::BF16, device), offset, &whole)?;
        let x = stream(130, width)?;
        let expected = wide.run(&x.to_dtype(DType::F32)?, false)?;
        let x = x.to_device(device)?;
        let all = own.run(&x, true)?;
        let deferred = error(&all, &expected)?;
        let usual = error(&own.run(&x, false)?, &expected)?;
        ensure!(deferred < 1.5 * usual, "{width}: off by {deferred}, a norm of its own by {usual}");
        for rows in [1, 2, 7, 8, 9, 16, 17, 64, 100] {
            for first in [0, 130 - rows] {
                let few = own.run(&x.narrow(0, first, rows)?, true)?;
                let same = all.narrow(0, first, rows)?;
                ensure!(bits(&few)? == bits(&same)?, "{rows} rows of {width} from {first} on");
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_no_such_product_takes_the_norm() -> Result<()> {
    let x = Tensor::randn(&[3, 8], Device::Cpu)?;
    let norm = Norm { weight: Parameter::new(x.select(0, 0)?)?, eps: 1e-6, offset: 0.0 };
    let (stream, normed) = Residual::new(x.clone()).before(&norm, true)?;
    let expected = x.rms_norm(&norm.weight, 1e-6)?.to_vec::<f32>()?;
    ensure!(normed.tensor()?.to_vec::<f32>()? == expected);
    ensure!(stream.whole()?.to_vec::<f32>()? == x.to_vec::<f32>()?);
    let plain = Normed::from(x.clone());
    ensure!(plain.tensor()?.to_vec::<f32>()? == x.to_vec::<f32>()?);
    Ok(())
}

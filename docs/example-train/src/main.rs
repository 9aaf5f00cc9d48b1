//! A network with an op of one's own: a gate whose value and gradient are a kernel each.
//!
//! `docs/custom-ops.md` explains it line by line.

use genesis::autograd::{Context, Function, GradCheck, gradcheck};
use genesis::nn::{Linear, Module};
use genesis::optim::{Adam, AdamOptions, Optimizer};
use genesis::{DType, Device, Error, Result, Tensor, manual_seed};
use genesis_kernel::prelude::*;

/// `y = a * sigmoid(a) * b`
#[kernel]
pub fn gate<T: Float, const BLOCK: usize>(a: View<T, 1>, b: View<T, 1>, y: ViewMut<T, 1>) {
    let at = program_id(0) * BLOCK;
    let (a, b) = (a.load::<BLOCK>([at]), b.load::<BLOCK>([at]));
    y.store([at], a * sigmoid(a) * b);
}

/// The gradients of both operands.
#[kernel]
pub fn gate_grad<T: Float, const BLOCK: usize>(
    a: View<T, 1>,
    b: View<T, 1>,
    dy: View<T, 1>,
    da: ViewMut<T, 1>,
    db: ViewMut<T, 1>,
) {
    let at = program_id(0) * BLOCK;
    let (a, b) = (a.load::<BLOCK>([at]), b.load::<BLOCK>([at]));
    let dy = dy.load::<BLOCK>([at]);
    let s = sigmoid(a);
    da.store([at], dy * b * s * (a * (T::ONE - s) + T::ONE));
    db.store([at], dy * a * s);
}

const BLOCK: usize = 1024;

fn launch_gate<T: Float>(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let mut y = a.empty_like()?;
    let (grid, consts) = (Grid::x(a.numel().div_ceil(BLOCK)), gate::Consts { BLOCK });
    gate::launch::<T>(&a.stream(), grid, consts, (a.arg()?, b.arg()?, y.arg_mut()?))?;
    Ok(y)
}

fn launch_gate_grad<T: Float>(a: &Tensor, b: &Tensor, dy: &Tensor) -> Result<[Tensor; 2]> {
    let (mut da, mut db) = (a.empty_like()?, b.empty_like()?);
    let (grid, consts) = (Grid::x(a.numel().div_ceil(BLOCK)), gate_grad::Consts { BLOCK });
    let args = (a.arg()?, b.arg()?, dy.arg()?, da.arg_mut()?, db.arg_mut()?);
    gate_grad::launch::<T>(&a.stream(), grid, consts, args)?;
    Ok([da, db])
}

/// The gate as an op: of tensors of one shape, in f32 or f64.
struct Gate;

/// A tensor in row-major order along one axis.
fn flat(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.reshape(&[x.numel()])
}

fn unfit(dtype: DType) -> Error {
    Error::op("gate", format!("needs f32 or f64, got {dtype}"))
}

impl Function for Gate {
    // The gradient is a kernel, which the tape can't look into.
    const ONCE_DIFFERENTIABLE: bool = true;

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let [a, b] = inputs else { return Err(Error::op("gate", "takes two tensors")) };
        if a.tensor_type() != b.tensor_type() {
            let message = format!("types differ, {:?} and {:?}", a.tensor_type(), b.tensor_type());
            return Err(Error::op("gate", message));
        }
        ctx.save_for_backward(&[a, b]);
        let (flat_a, flat_b) = (flat(a)?, flat(b)?);
        let y = match a.dtype() {
            DType::F32 => launch_gate::<f32>(&flat_a, &flat_b)?,
            DType::F64 => launch_gate::<f64>(&flat_a, &flat_b)?,
            other => return Err(unfit(other)),
        };
        Ok(vec![y.reshape(a.shape())?])
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let [a, b] = ctx.saved_tensors() else { return Err(Error::op("gate", "saved nothing")) };
        let (shape, dtype) = (a.shape(), a.dtype());
        let (a, b, dy) = (flat(a)?, flat(b)?, flat(&grads[0])?);
        let [da, db] = match dtype {
            DType::F32 => launch_gate_grad::<f32>(&a, &b, &dy)?,
            DType::F64 => launch_gate_grad::<f64>(&a, &b, &dy)?,
            other => return Err(unfit(other)),
        };
        Ok(vec![Some(da.reshape(shape)?), Some(db.reshape(shape)?)])
    }
}

/// Two layers with a gate between them.
struct Net {
    gate: Linear,
    value: Linear,
    out: Linear,
}

impl Net {
    fn new(hidden: usize, device: Device) -> Result<Net> {
        let layer = |inputs, outputs| Linear::new(inputs, outputs, device);
        Ok(Net { gate: layer(2, hidden)?, value: layer(2, hidden)?, out: layer(hidden, 1)? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = Gate.apply(&[&self.gate.forward(x)?, &self.value.forward(x)?])?; // [B, hidden]
        self.out.forward(&h) // [B, 1]
    }

    fn parameters(&self) -> Vec<Tensor> {
        [&self.gate, &self.value, &self.out].into_iter().flat_map(Module::parameters).collect()
    }
}

/// The gradient of the gate against differences.
fn check(device: Device) -> Result<()> {
    let leaf = |values: &[f64]| {
        Tensor::from_f64(values, &[2, 2], (DType::F64, device))?.requires_grad_(true)
    };
    let (a, b) = (leaf(&[-1.5, 0.0, 0.3, 4.0])?, leaf(&[0.7, -2.0, 1.1, 0.2])?);
    gradcheck(|x| Ok(vec![Gate.apply(&[&x[0], &x[1]])?]), &[&a, &b], GradCheck::default())
}

/// The loss before and after `steps` steps towards `y = sin(3 u) v`.
fn train(steps: usize, device: Device) -> Result<(f64, f64)> {
    manual_seed(0);
    let net = Net::new(32, device)?;
    let options = AdamOptions { lr: 3e-2, ..AdamOptions::default() };
    let mut optimizer = Adam::new(net.parameters(), options);
    let x = Tensor::uniform(&[256, 2], -1.0, 1.0, device)?;
    let y = (x.narrow(1, 0, 1)? * 3.0)?.sin()?.mul(&x.narrow(1, 1, 1)?)?; // [B, 1]
    let mut losses = Vec::new();
    for _ in 0..=steps {
        let loss = net.forward(&x)?.sub(&y)?.square()?.mean()?;
        losses.push(loss.item()?);
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
    }
    Ok((losses[0], losses[steps]))
}

fn main() -> Result<()> {
    let device = Device::default();
    check(device)?;
    println!("the gradient of the gate agrees with differences on {device}");
    let (first, last) = train(300, device)?;
    println!("loss {first:.4} before training, {last:.4} after");
    assert!(last < 0.25 * first, "it does not learn: {first} to {last}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs() -> genesis::Result<()> {
        super::main()
    }
}

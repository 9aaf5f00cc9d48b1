//! Tensors and gradients.

use genesis::{Device, Tensor, manual_seed};

fn main() -> genesis::Result<()> {
    manual_seed(42);
    let device = Device::default();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?.requires_grad_(true)?;
    let y = Tensor::randn(&[2, 2], device)?;
    let z = x.matmul(&y)?.relu()?;
    println!("z = {z}");
    z.sum()?.backward()?;
    println!("dz/dx = {}", x.grad().expect("x requires a gradient"));
    let row = x.detach().slice(0, 0..1)?;
    println!("first row {row}, its mean {:.3}", row.mean()?.item()?);
    Ok(())
}

//! A classifier on made-up data: module, dropout, AdamW, clipping, a checkpoint.

use genesis::io::{load_safetensors, save_safetensors};
use genesis::nn::{CrossEntropyLoss, Dropout, Linear, Module};
use genesis::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use genesis::{DType, Device, Result, Tensor, manual_seed};

/// 784 - 256 - 10.
#[derive(Module)]
struct SimpleNet {
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl SimpleNet {
    fn new(device: Device) -> Result<SimpleNet> {
        let (fc1, fc2) = (Linear::new(784, 256, device)?, Linear::new(256, 10, device)?);
        Ok(SimpleNet { fc1, dropout: Dropout::new(0.1), fc2 })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.fc1.forward(x)?.relu()?; // [B, 256]
        self.fc2.forward(&self.dropout.forward(&h)?) // [B, 10]
    }
}

fn main() -> Result<()> {
    manual_seed(0);
    let device = Device::default();
    let model = SimpleNet::new(device)?;
    println!("{} parameters", model.num_parameters());
    let options = AdamWOptions { lr: 1e-3, ..AdamWOptions::default() };
    let mut optimizer = AdamW::new(model.named_parameters(), options);
    let (x, target) =
        (Tensor::randn(&[64, 784], device)?, Tensor::randint(0, 10, &[64], (DType::I64, device))?);
    for step in 0..50 {
        let loss = CrossEntropyLoss::default().forward(&model.forward(&x)?, &target)?;
        optimizer.zero_grad();
        loss.backward()?;
        let norm = clip_grad_norm_(optimizer.parameters(), 1.0, 2.0)?;
        optimizer.step()?;
        if step % 10 == 0 {
            println!("step {step} loss {:.4} gradient norm {:.3}", loss.item()?, norm.item()?);
        }
    }
    let path = std::env::temp_dir().join("simple_net.safetensors");
    save_safetensors(&path, &model.state_dict())?;
    let copy = SimpleNet::new(device)?;
    copy.load_state_dict(&load_safetensors(&path, device)?)?;
    model.eval();
    copy.eval();
    assert_eq!(model.forward(&x)?.to_vec::<f32>()?, copy.forward(&x)?.to_vec::<f32>()?);
    println!("saved and loaded {}", path.display());
    Ok(())
}

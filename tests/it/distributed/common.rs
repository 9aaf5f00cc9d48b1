//! What tests of ranks share.

use std::path::PathBuf;
use std::time::Duration;

use genesis::distributed::{ProcessGroup, World, init_world};
use genesis::optim::{AdamW, AdamWOptions};
use genesis::{DType, Device, Result, Tensor, manual_seed};

/// The variable that says how many times as long ranks wait as they would on an idle machine.
pub(super) const SLOWER: &str = "GENESIS_TEST_SLOWER";

/// The variable that names a folder which all ranks share.
pub(super) const FOLDER: &str = "GENESIS_TEST_FOLDER";

pub(super) fn shared_folder() -> PathBuf {
    PathBuf::from(std::env::var(FOLDER).expect("the starter sets it"))
}

/// The group, with a timeout that a test can wait for.
pub(super) fn group(seconds: u64) -> Result<ProcessGroup> {
    group_of(seconds, Device::Cuda(0))
}

/// [`group`] of ranks with another device.
pub(super) fn group_of(seconds: u64, device: Device) -> Result<ProcessGroup> {
    let slower = std::env::var(SLOWER).ok().and_then(|text| text.parse::<u64>().ok());
    // What waits long already has time enough.
    let seconds = if seconds < 10 { seconds * slower.unwrap_or(1) } else { seconds };
    let world = World { timeout: Duration::from_secs(seconds), ..World::from_env()? };
    init_world(world, device)
}

pub(super) fn read(x: &Tensor) -> Result<Vec<f32>> {
    x.detach().to_dtype(DType::F32)?.to_vec::<f32>()
}

/// Fails unless two tensors differ by a share of the largest number of the second at most.
pub(super) fn close(a: &Tensor, b: &Tensor, limit: f64, what: &str) -> Result<()> {
    assert_eq!(a.shape(), b.shape(), "{what}");
    let scale = b.detach().abs()?.max()?.item()?.max(1e-3);
    let off = a.detach().sub(&b.detach())?.abs()?.max()?.item()?;
    assert!(off <= limit * scale, "{what}: off by {off} of {scale}");
    Ok(())
}

pub(super) fn grad(x: &Tensor) -> Tensor {
    x.grad().expect("a gradient")
}

/// Numbers that are the same on all ranks.
pub(super) fn numbers(shape: &[usize], seed: u64, device: Device) -> Result<Tensor> {
    manual_seed(seed);
    Tensor::randn(shape, device)
}

pub(super) fn adamw(parameters: Vec<(String, Tensor)>) -> AdamW {
    AdamW::new(parameters, AdamWOptions { lr: 0.01, ..AdamWOptions::default() })
}

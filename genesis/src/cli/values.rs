//! What values of arguments mean.

use genesis::Device;

use super::failure::Failure;

/// A whole number from 1.
pub(super) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

/// The device with this name, or the default.
pub(super) fn device(name: Option<&str>) -> Result<Device, Failure> {
    let Some(name) = name else { return Ok(Device::default()) };
    let device = Device::from_name(name).ok_or_else(|| {
        Failure::Message(format!("no device is called {name}; there are cpu, cuda, cuda:1"))
    })?;
    match (device.is_cuda(), Device::cuda_problem()) {
        (true, Some(problem)) => Err(problem.into()),
        _ => Ok(device),
    }
}

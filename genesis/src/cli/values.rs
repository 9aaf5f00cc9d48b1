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

/// A number of bytes, with a unit or without.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => 0,
    };
    let count: Option<usize> = digits.trim_end().parse().ok();
    let found = count.and_then(|count| count.checked_mul(unit)).filter(|_| unit > 0);
    found.ok_or_else(|| "must be a whole number of bytes, or of KiB, MiB or GiB".to_owned())
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

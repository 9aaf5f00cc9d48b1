//! The chip of a device, for which launches are shaped: what the choices of [`genesis_kernel::tuning`] are asked with.

use std::sync::OnceLock;

use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::Chip;

/// The chip of a device, asked once; where its GPU can't be used nothing will be launched, and any does.
pub(crate) fn chip(device: Device) -> Chip {
    static GPUS: [OnceLock<Chip>; 16] = [const { OnceLock::new() }; 16];
    let ask = || match (device.gpu_info(), device.target()) {
        (Ok(info), Some(target)) => {
            let multiprocessors = info.multiprocessors as usize;
            Chip::Gpu { multiprocessors, features: target.features }
        }
        _ => Chip::unknown_gpu(),
    };
    match device {
        Device::Cpu => Chip::Cpu,
        Device::Cuda(number) => match GPUS.get(number as usize) {
            Some(known) => *known.get_or_init(ask),
            None => ask(),
        },
    }
}

/// Programs that a device runs at the same time if each takes a multiprocessor.
pub(crate) fn multiprocessors(device: Device) -> usize {
    chip(device).multiprocessors()
}

//! The machine of a device.

use crate::diag::Error;
use crate::runtime::Device;
use crate::tuning::Machine;

impl Machine {
    /// The machine of a device.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn of(device: Device) -> Result<Machine, Error> {
        if !device.is_cuda() {
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            return Ok(Machine::of_cpu(threads));
        }
        let info = device.gpu_info()?;
        let driver = info.driver_version / 1000;
        Ok(Machine::of_gpu(info.name, driver, info.target, info.multiprocessors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Unit;

    #[test]
    fn the_processor_is_a_machine_too() {
        let cpu = Machine::of(Device::Cpu).unwrap();
        assert_eq!((cpu.key().as_str(), cpu.gpu().is_none(), cpu.driver), ("cpu", true, 0));
        assert!(cpu.flops_per_clock(Unit::Single) > 0.0);
    }
}

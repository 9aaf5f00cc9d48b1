//! Modules as a driver gets them: PTX text, parameters as bytes, memory that is the driver's own.

use super::cluster::Launch;
use super::fault::Fault;
use super::machine::Grid;
use super::memory::{Global, GlobalMemory, MAP_BYTES, Tensor};
use super::parse;
use super::program::Program;
use super::warp::LANES;

/// A kernel read from PTX, to be run many times.
#[derive(Clone, Debug)]
pub struct Module {
    program: Program,
}

/// A launch as a driver knows it.
#[derive(Clone, Debug)]
pub struct RawLaunch {
    /// Blocks along each axis, those of a cluster one by one.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// The parameters, each where [`Module::params`] says; tensor maps as [`Tensor::to_bytes`] makes them.
    pub params: Vec<u8>,
}

impl Module {
    /// Reads the one kernel of a module.
    ///
    /// # Errors
    /// If the text has something that is not known.
    pub fn parse(ptx: &str) -> Result<Module, Fault> {
        Ok(Module { program: parse::parse(ptx).map_err(Fault::refused)? })
    }

    /// The kernel's symbol.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Where each parameter lies among their bytes, and how many it has.
    pub fn params(&self) -> impl Iterator<Item = (usize, usize)> {
        self.program.params.iter().map(|slot| (slot.offset as usize, slot.bytes as usize))
    }

    /// Blocks of a cluster along each axis.
    pub fn cluster(&self) -> [u32; 3] {
        self.program.cluster
    }

    /// Runs a grid in some memory.
    ///
    /// # Errors
    /// At the first error of a thread.
    pub fn run(&self, launch: &RawLaunch, memory: &mut dyn GlobalMemory) -> Result<(), Fault> {
        self.run_in(launch, Global::Outside(memory))
    }

    pub(super) fn run_in(&self, launch: &RawLaunch, mut memory: Global<'_>) -> Result<(), Fault> {
        let is_map = |&(_, bytes): &(usize, usize)| bytes == MAP_BYTES;
        let tensor = |(at, bytes)| {
            let map = launch.params.get(at..at + bytes)?;
            Some((at as u64, Tensor::from_bytes(map)?))
        };
        if !(launch.threads as usize).is_multiple_of(LANES) || launch.threads == 0 {
            return Err(Fault::refused(format!("{} threads are no whole warps", launch.threads)));
        }
        let launched = Launch {
            program: &self.program,
            threads: launch.threads,
            shared_bytes: launch.shared_bytes,
            params: launch.params.clone(),
            tensors: self.params().filter(is_map).filter_map(tensor).collect(),
        };
        Grid::new(&launched, memory.reborrow(), launch.blocks).run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultKind;

    /// 64 bytes from an address.
    struct Line(Vec<u8>);

    const START: usize = 0x1000;

    impl Line {
        fn range(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>, String> {
            let start = (address as usize).checked_sub(START).filter(|at| at + bytes <= 64);
            start.map(|at| at..at + bytes).ok_or_else(|| format!("{address:#x} is nowhere"))
        }
    }

    impl GlobalMemory for Line {
        fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), String> {
            to.copy_from_slice(&self.0[self.range(address, to.len())?]);
            Ok(())
        }

        fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
            let range = self.range(address, from.len())?;
            self.0[range].copy_from_slice(from);
            Ok(())
        }
    }

    /// `p[0] = n`
    const STORE: &str = ".visible .entry store(\n\t.param .u64 p,\n\t.param .u32 n\n)\n{\n\
        \tld.param.b64 %rd1, [p];\n\tld.param.b32 %r1, [n];\n\tst.global.b32 [%rd1], %r1;\n\
        \tret;\n}\n";

    fn run(address: u64) -> Result<Vec<u8>, Fault> {
        let module = Module::parse(STORE)?;
        assert_eq!((module.name(), module.cluster()), ("store", [1; 3]));
        assert_eq!(module.params().collect::<Vec<_>>(), [(0, 8), (8, 4)]);
        let params = [&address.to_le_bytes()[..], &7u32.to_le_bytes()].concat();
        let mut memory = Line(vec![0; 64]);
        let launch = RawLaunch { blocks: [1; 3], threads: 32, shared_bytes: 0, params };
        module.run(&launch, &mut memory)?;
        Ok(memory.0)
    }

    #[test]
    fn kernels_run_in_memory_of_others() {
        assert_eq!(run(0x1008).unwrap()[8..12], [7, 0, 0, 0]);
        let fault = run(0x103e).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Misaligned);
        let fault = run(0x1040).unwrap_err();
        assert_eq!((fault.kind, &fault.message[..]), (FaultKind::Address, "0x1040 is nowhere"));
    }
}

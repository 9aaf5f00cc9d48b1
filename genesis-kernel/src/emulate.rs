//! Runs a compiled kernel without a GPU, by the emulator of PTX: see [`genesis_emulator`].

pub use genesis_emulator::{Fault, FaultKind};
use genesis_emulator::{MAP_BYTES, Module, RawLaunch, Tensor};

use crate::codegen::nvptx::GpuKernel;
use crate::ir::{ArgValue, TensorMap};

/// Runs compiled kernels on buffers that it owns.
#[derive(Debug, Default)]
pub struct Emulator {
    machine: genesis_emulator::Emulator,
}

impl Emulator {
    /// An emulator without buffers.
    pub fn new() -> Emulator {
        Emulator::default()
    }

    /// Adds memory and gives its address, for arguments.
    pub fn add_buffer(&mut self, name: impl Into<String>, data: Vec<u8>, writable: bool) -> u64 {
        self.machine.add_buffer(name, data, writable)
    }

    /// What a buffer holds now; empty for an address that is none's.
    pub fn buffer(&self, address: u64) -> &[u8] {
        self.machine.buffer(address)
    }

    /// Runs the programs of a grid, axis 0 fastest. `args` are the kernel's as the user wrote it.
    ///
    /// # Errors
    /// At the first error of a thread; [`genesis_emulator`] lists what errors are.
    pub fn run(
        &mut self,
        kernel: &GpuKernel,
        grid: [u32; 3],
        args: &[ArgValue],
    ) -> Result<(), Fault> {
        let module = Module::parse(&kernel.ptx)?;
        let launch = RawLaunch {
            // A cluster is one program.
            blocks: [grid[0] * kernel.num_blocks, grid[1], grid[2]],
            threads: kernel.threads,
            shared_bytes: kernel.shared_bytes,
            params: params(&module, &kernel.maps, args).map_err(Fault::refused)?,
        };
        self.machine.run(&module, &launch)
    }
}

/// The bytes of a kernel's parameters, as a launch lays them out.
fn params(module: &Module, maps: &[TensorMap], args: &[ArgValue]) -> Result<Vec<u8>, String> {
    let mut words = args.iter().flat_map(words);
    let mut maps = maps.iter();
    let mut params = Vec::new();
    for (at, bytes) in module.params() {
        params.resize(at, 0);
        if bytes == MAP_BYTES {
            let map = maps.next().ok_or("more parameters that are tensor maps than maps")?;
            params.extend(tensor(map, args)?.to_bytes());
        } else {
            // The last parameter, where there are assertions: nobody reads what failed.
            let word: u64 = words.next().unwrap_or(0);
            params.extend(&word.to_le_bytes()[..bytes.min(8)]);
        }
        params.resize(at + bytes, 0);
    }
    match words.next() {
        Some(_) => Err("more arguments than parameters".to_owned()),
        None => Ok(params),
    }
}

/// The parameters that an argument is.
fn words(arg: &ArgValue) -> Vec<u64> {
    match arg {
        ArgValue::Ptr(ptr) => vec![*ptr],
        ArgValue::Scalar(scalar) => vec![scalar.bits],
        ArgValue::View { ptr, dims, strides } => {
            let layout = dims.iter().chain(strides).map(|&n| n as u64);
            std::iter::once(*ptr).chain(layout).collect()
        }
    }
}

/// What a tensor map says of the kernel's argument.
fn tensor(map: &TensorMap, args: &[ArgValue]) -> Result<Tensor, String> {
    let Some(ArgValue::View { ptr, dims, strides }) = args.get(map.param as usize) else {
        return Err(format!("parameter {} of a tensor map is no view", map.param));
    };
    let size = map.dtype.bytes() as i64;
    let pick = |from: &[i64], scale: i64| -> Vec<i64> {
        map.axes.iter().map(|&axis| from.get(axis as usize).map_or(1, |n| n * scale)).collect()
    };
    let extents = pick(dims, 1);
    if let Some(extent) = extents.iter().find(|&&extent| u32::try_from(extent).is_err()) {
        return Err(format!("a tensor map holds no axis of {extent} elements"));
    }
    Ok(Tensor {
        size: size as u32,
        address: *ptr,
        extents,
        strides: pick(strides, size),
        block: map.block.clone(),
        swizzle: map.swizzle,
        tf32: map.tf32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;

    #[test]
    fn maps_have_the_contiguous_axis_first() {
        let map = TensorMap {
            param: 0,
            dtype: DType::BF16,
            axes: vec![1, 0],
            block: vec![4, 2],
            swizzle: 0,
            tf32: false,
        };
        let view = ArgValue::View { ptr: 1000, dims: vec![3, 6], strides: vec![6, 1] };
        let tensor = super::tensor(&map, &[view]).unwrap();
        assert_eq!((tensor.size, tensor.address, &tensor.block[..]), (2, 1000, &[4, 2][..]));
        assert_eq!((&tensor.extents[..], &tensor.strides[..]), (&[6, 3][..], &[2, 12][..]));
        let view = ArgValue::View { ptr: 1000, dims: vec![3, 1 << 32], strides: vec![1 << 32, 1] };
        let refused = super::tensor(&map, &[view]).expect_err("the extent has 33 bits");
        assert_eq!(refused, "a tensor map holds no axis of 4294967296 elements");
    }
}

//! The CUDA driver, loaded when first asked for.

use crate::diag::Error;

/// An open GPU.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    number: u32,
}

/// A mark in a GPU's stream.
#[derive(Debug)]
pub(crate) struct CudaEvent {}

fn missing() -> Error {
    Error::device("no NVIDIA driver was found")
}

pub(crate) fn is_available() -> bool {
    device_count().is_ok()
}

pub(crate) fn device_count() -> Result<u32, Error> {
    Err(missing())
}

pub(crate) fn open(_number: u32) -> Result<&'static CudaDevice, Error> {
    Err(missing())
}

impl CudaEvent {
    pub(crate) fn elapsed_ms(&self, _since: &CudaEvent) -> Result<f64, Error> {
        Err(missing())
    }
}

impl CudaDevice {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        Err(missing())
    }
    pub(crate) fn alloc(&self, _bytes: usize) -> Result<u64, Error> {
        Err(missing())
    }
    pub(crate) fn free(&self, _address: u64, _bytes: usize) {}
    pub(crate) fn fill(&self, _address: u64, _byte: u8, _bytes: usize) -> Result<(), Error> {
        Err(missing())
    }
    pub(crate) fn upload(&self, _address: u64, _source: &[u8]) -> Result<(), Error> {
        Err(missing())
    }
    pub(crate) fn download(&self, _address: u64, _target: &mut [u8]) -> Result<(), Error> {
        Err(missing())
    }
    pub(crate) fn copy(&self, _to: u64, _from: u64, _bytes: usize) -> Result<(), Error> {
        Err(missing())
    }
    pub(crate) fn record_event(&self) -> Result<CudaEvent, Error> {
        Err(missing())
    }
}

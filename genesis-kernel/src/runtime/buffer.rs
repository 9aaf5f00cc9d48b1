//! Raw device memory.
//!
//! Freed memory goes to a pool of its device and stream, so that a training loop asks the system
//! for memory in its first step only.

use super::cuda::CudaDevice;
use super::device::{Device, Queue, Stream};
use super::pool;
use crate::diag::Error;
use crate::trace::{TransferKind, transfer};

/// Bytes on a device; freed when dropped.
///
/// A buffer of 0 bytes has an address that must not be accessed. On the CPU the address is aligned
/// to 64 bytes, on a GPU to 256.
#[derive(Debug)]
pub struct Buffer {
    stream: Stream,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory with arbitrary contents.
    ///
    /// # Errors
    /// If the device has no more memory; see [`Error::is_out_of_memory`].
    pub fn uninit(stream: &Stream, bytes: usize) -> Result<Buffer, Error> {
        let address = match stream.queue() {
            Queue::Cpu => pool::host_alloc(bytes)?,
            Queue::Cuda(device) => device.alloc(bytes)?,
            Queue::Missing(_, error) => return Err(error.clone()),
        };
        Ok(Buffer { stream: stream.clone(), address, bytes })
    }

    /// Memory filled with zero bytes.
    ///
    /// # Errors
    /// As [`Buffer::uninit`].
    pub fn zeroed(stream: &Stream, bytes: usize) -> Result<Buffer, Error> {
        let buffer = Buffer::uninit(stream, bytes)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// A copy of host memory.
    ///
    /// # Errors
    /// As [`Buffer::uninit`].
    pub fn from_bytes(stream: &Stream, bytes: &[u8]) -> Result<Buffer, Error> {
        let buffer = Buffer::uninit(stream, bytes.len())?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        match self.stream.queue() {
            _ if self.bytes == 0 => Ok(()),
            Queue::Cpu => {
                // SAFETY: the buffer owns `bytes` bytes at its address.
                unsafe { std::ptr::write_bytes(self.host_ptr(), byte, self.bytes) };
                Ok(())
            }
            Queue::Cuda(device) => device.fill(self.address, byte, self.bytes),
            Queue::Missing(_, error) => Err(error.clone()),
        }
    }

    /// Copies from the host to byte `offset`; `source` may be reused at once.
    ///
    /// # Errors
    /// If it would write past the end, or the device refuses.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        self.check(offset, source.len())?;
        match self.stream.queue() {
            _ if source.is_empty() => Ok(()),
            Queue::Cpu => {
                // SAFETY: the range is inside the buffer, which overlaps no host slice.
                unsafe {
                    std::ptr::copy(source.as_ptr(), self.host_ptr().add(offset), source.len());
                }
                Ok(())
            }
            Queue::Cuda(device) => {
                let _traced = transfer(TransferKind::HostToDevice, self.device(), source.len());
                device.upload(self.address + offset as u64, source)
            }
            Queue::Missing(_, error) => Err(error.clone()),
        }
    }

    /// Copies from byte `offset` to the host; waits for what was queued before.
    ///
    /// # Errors
    /// If it would read past the end, or the device refuses.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        self.check(offset, target.len())?;
        match self.stream.queue() {
            _ if target.is_empty() => Ok(()),
            Queue::Cpu => {
                // SAFETY: the range is inside the buffer, which overlaps no host slice.
                unsafe {
                    std::ptr::copy(self.host_ptr().add(offset), target.as_mut_ptr(), target.len());
                }
                Ok(())
            }
            Queue::Cuda(device) => {
                let _traced = transfer(TransferKind::DeviceToHost, self.device(), target.len());
                device.download(self.address + offset as u64, target)
            }
            Queue::Missing(_, error) => Err(error.clone()),
        }
    }

    /// All bytes on the host; waits for what was queued before.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies `bytes` bytes from another buffer of any device; the ranges may overlap.
    ///
    /// # Errors
    /// If a range is outside its buffer, or a device refuses.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Buffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<(), Error> {
        self.check(offset, bytes)?;
        source.check(source_offset, bytes)?;
        match (self.stream.queue(), source.stream.queue()) {
            _ if bytes == 0 => Ok(()),
            (Queue::Cpu, Queue::Cpu) => {
                // SAFETY: both ranges are inside their buffers; `copy` allows overlap.
                unsafe {
                    let from = source.host_ptr().add(source_offset);
                    std::ptr::copy(from, self.host_ptr().add(offset), bytes);
                }
                Ok(())
            }
            (Queue::Cuda(to), Queue::Cuda(from)) if to.number() == from.number() => {
                let (to_address, from_address) =
                    (self.address + offset as u64, source.address + source_offset as u64);
                copy_on_gpu(to, to_address, from_address, bytes)
            }
            _ => {
                let mut staged = vec![0; bytes];
                source.read(source_offset, &mut staged)?;
                self.write(offset, &staged)
            }
        }
    }

    /// A copy on a stream of any device.
    pub fn to_stream(&self, stream: &Stream) -> Result<Buffer, Error> {
        let copy = Buffer::uninit(stream, self.bytes)?;
        copy.copy_from(0, self, 0, self.bytes)?;
        Ok(copy)
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.stream.device()
    }

    /// The stream it belongs to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The first byte, on the CPU.
    fn host_ptr(&self) -> *mut u8 {
        self.address as usize as *mut u8
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::launch(format!(
                "{bytes} bytes from byte {offset} are outside a buffer of {} bytes",
                self.bytes
            ))),
        }
    }
}

/// Copies inside one GPU, through a third place where the ranges overlap: the driver leaves that
/// case undefined.
fn copy_on_gpu(device: &'static CudaDevice, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
    if to.abs_diff(from) >= bytes as u64 {
        return device.copy(to, from, bytes);
    }
    let staged = device.alloc(bytes)?;
    let result = device.copy(staged, from, bytes).and_then(|()| device.copy(to, staged, bytes));
    device.free(staged, bytes);
    result
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.stream.queue() {
            Queue::Cpu => pool::host_free(self.address, self.bytes),
            Queue::Cuda(device) => device.free(self.address, self.bytes),
            Queue::Missing(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let stream = Device::Cpu.stream();
        let buffer = Buffer::from_bytes(&stream, &[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(buffer.address() % 64, 0);
        buffer.write(1, &[9, 9]).unwrap();
        assert_eq!(buffer.to_bytes().unwrap(), [1, 9, 9, 4, 5]);
        buffer.copy_from(1, &buffer, 0, 4).unwrap();
        assert_eq!(buffer.to_bytes().unwrap(), [1, 1, 9, 9, 4]);
        assert_eq!(Buffer::zeroed(&stream, 3).unwrap().to_bytes().unwrap(), [0, 0, 0]);
    }

    #[test]
    fn nothing_past_the_end_is_touched() {
        let stream = Device::Cpu.stream();
        let buffer = Buffer::zeroed(&stream, 8).unwrap();
        let error = buffer.write(6, &[0; 3]).unwrap_err().to_string();
        assert_eq!(error, "3 bytes from byte 6 are outside a buffer of 8 bytes");
        assert!(buffer.read(usize::MAX, &mut [0; 2]).is_err());
    }

    #[test]
    fn too_much_memory_is_an_error() {
        let stream = Device::Cpu.stream();
        assert!(Buffer::uninit(&stream, usize::MAX).unwrap_err().is_out_of_memory());
        assert!(Buffer::uninit(&stream, 1 << 60).unwrap_err().is_out_of_memory());
        assert!(Buffer::uninit(&stream, 0).unwrap().to_bytes().unwrap().is_empty());
    }
}

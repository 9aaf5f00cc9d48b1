//! Raw device memory.
//!
//! Freed memory goes to a pool of its device and stream, so that a training loop asks the system
//! for memory in its first step only.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cuda::{self, CudaStream};
use super::device::Device;
use super::event::Event;
use super::observe::{TransferKind, transfer};
use super::pool::{self, Arena, Label};
use super::stream::{self, Queue, Stream};
use crate::diag::Error;

/// Bytes on a device; freed when dropped.
///
/// It belongs to the stream it was made on: that stream's work may use it until it is freed and after,
/// since whoever gets the memory next queues behind. Another stream that is given it is to be named to
/// [`Buffer::record_stream`].
///
/// A buffer of 0 bytes has an address that must not be accessed. On the CPU the address is aligned
/// to 64 bytes, on a GPU to 512.
#[derive(Debug)]
pub struct Buffer {
    stream: Stream,
    /// The allocator's block; none of 0 bytes.
    block: Option<(&'static Arena, u32)>,
    address: u64,
    bytes: usize,
    is_pinned: bool,
    /// Whether other streams were given it.
    is_shared: AtomicBool,
    /// On the host: a copy from a GPU that nobody waited for yet.
    arriving: OnceLock<Event>,
}

/// The address of buffers of 0 bytes.
const NOWHERE: u64 = 512;

impl Buffer {
    /// Memory with arbitrary contents.
    ///
    /// # Errors
    /// If the device has no more memory; see [`Error::is_out_of_memory`].
    #[track_caller]
    pub fn uninit(stream: &Stream, bytes: usize) -> Result<Buffer, Error> {
        Buffer::labeled(stream, bytes, &Label::default())
    }

    /// [`Buffer::uninit`], and what it is for, as snapshots and errors say it.
    ///
    /// # Errors
    /// As [`Buffer::uninit`].
    #[track_caller]
    pub fn labeled(stream: &Stream, bytes: usize, label: &Label) -> Result<Buffer, Error> {
        Buffer::of_arena(stream.arena()?, stream, bytes, label)
    }

    /// Host memory that GPUs copy from and to by themselves, while the host and their kernels go on.
    ///
    /// # Errors
    /// If there is no GPU, or no more such memory.
    #[track_caller]
    pub fn pinned(bytes: usize, label: &Label) -> Result<Buffer, Error> {
        let (arena, stream) = (cuda::pinned_arena()?, Device::Cpu.stream());
        let mut buffer = Buffer::of_arena(arena, &stream, bytes, label)?;
        buffer.is_pinned = true;
        Ok(buffer)
    }

    #[track_caller]
    fn of_arena(
        own: &'static Arena,
        stream: &Stream,
        bytes: usize,
        label: &Label,
    ) -> Result<Buffer, Error> {
        let (block, address) = match bytes {
            0 => (None, NOWHERE),
            _ => {
                let arena = pool::current_arena(own);
                let allocation = arena.alloc(bytes, label)?;
                (Some((arena, allocation.block)), allocation.address)
            }
        };
        let (stream, is_pinned) = (stream.clone(), false);
        let (is_shared, arriving) = (AtomicBool::new(false), OnceLock::new());
        Ok(Buffer { stream, block, address, bytes, is_pinned, is_shared, arriving })
    }

    /// Memory filled with zero bytes.
    ///
    /// # Errors
    /// As [`Buffer::uninit`].
    #[track_caller]
    pub fn zeroed(stream: &Stream, bytes: usize) -> Result<Buffer, Error> {
        let buffer = Buffer::uninit(stream, bytes)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// A copy of host memory.
    ///
    /// # Errors
    /// As [`Buffer::uninit`].
    #[track_caller]
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
            Queue::Cuda(stream) => {
                self.lend(&self.stream);
                stream.fill(self.address, byte, self.bytes)
            }
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }

    /// Copies from the host to byte `offset`; `source` may be reused at once.
    ///
    /// # Errors
    /// If it would write past the end, the device refuses, or this thread records the stream for a graph: a replay would
    /// copy what `source` has become.
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
            Queue::Cuda(stream) => {
                let _observed = transfer(TransferKind::HostToDevice, self.device(), source.len());
                stream.check_not_recorded()?;
                stream.upload(self.address + offset as u64, source)
            }
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }

    /// Copies from byte `offset` to the host; waits for what was queued before, on its own stream and on
    /// others that were given it.
    ///
    /// # Errors
    /// If it would read past the end, or the device refuses.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        self.check(offset, target.len())?;
        match self.stream.queue() {
            _ if target.is_empty() => Ok(()),
            Queue::Cpu => {
                self.wait_arrived()?;
                // SAFETY: the range is inside the buffer, which overlaps no host slice.
                unsafe {
                    std::ptr::copy(self.host_ptr().add(offset), target.as_mut_ptr(), target.len());
                }
                Ok(())
            }
            Queue::Cuda(stream) => {
                let _observed = transfer(TransferKind::DeviceToHost, self.device(), target.len());
                self.wait_users()?;
                stream.download(self.address + offset as u64, target)
            }
            Queue::Missing(_, error) => Err(Error::clone(error)),
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
        self.transfer(offset, source, source_offset, bytes, true)
    }

    /// All bytes of another buffer of the same size. Between pinned host memory and a GPU nobody waits: who
    /// reads the host's side through this type, or launches on it, waits then.
    ///
    /// The host must leave a pinned source as it is until the copy is done; a stream's
    /// [`synchronize`](Stream::synchronize) says so.
    ///
    /// # Errors
    /// If the sizes differ, or a device refuses.
    pub fn copy_from_later(&self, source: &Buffer) -> Result<(), Error> {
        source.check(0, self.bytes)?;
        self.transfer(0, source, 0, self.bytes, false)
    }

    fn transfer(
        &self,
        offset: usize,
        source: &Buffer,
        source_offset: usize,
        bytes: usize,
        wait: bool,
    ) -> Result<(), Error> {
        let (to_address, from_address) =
            (self.address + offset as u64, source.address + source_offset as u64);
        match (self.stream.queue(), source.stream.queue()) {
            _ if bytes == 0 => Ok(()),
            (Queue::Missing(_, error), _) | (_, Queue::Missing(_, error)) => {
                Err(Error::clone(error))
            }
            (Queue::Cpu, Queue::Cpu) => {
                source.wait_arrived()?;
                self.wait_arrived()?;
                // SAFETY: both ranges are inside their buffers; `copy` allows overlap.
                unsafe {
                    let from = source.host_ptr().add(source_offset);
                    std::ptr::copy(from, self.host_ptr().add(offset), bytes);
                }
                Ok(())
            }
            (Queue::Cuda(to), Queue::Cuda(from)) => {
                source.wait_users()?;
                source.lend(&source.stream);
                self.lend(&self.stream);
                copy_on_gpus((to, to_address), (from, from_address), bytes)
            }
            (Queue::Cuda(to), Queue::Cpu) => {
                source.wait_arrived()?;
                // SAFETY: the range is inside the source, which its owner leaves alone meanwhile.
                let host = unsafe {
                    std::slice::from_raw_parts(source.host_ptr().add(source_offset), bytes)
                };
                to.upload(to_address, host)?;
                match (source.is_pinned, wait) {
                    (false, _) => Ok(()),
                    (true, true) => to.synchronize(),
                    (true, false) => {
                        source.record_stream(&self.stream);
                        Ok(())
                    }
                }
            }
            (Queue::Cpu, Queue::Cuda(from)) => {
                self.wait_arrived()?;
                if wait || !self.is_pinned {
                    source.wait_users()?;
                    // SAFETY: the range is inside this buffer, and nobody looks before it is there.
                    let target = unsafe {
                        std::slice::from_raw_parts_mut(self.host_ptr().add(offset), bytes)
                    };
                    return from.download(from_address, target);
                }
                self.download_later(offset, source, from_address, bytes)
            }
        }
    }

    /// A copy to pinned memory on the GPU's current stream. Who looks at it waits.
    fn download_later(
        &self,
        offset: usize,
        source: &Buffer,
        from_address: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        let current = source.device().stream();
        let Queue::Cuda(stream) = current.queue() else { return current.synchronize() };
        source.lend(&current);
        self.lend(&current);
        // SAFETY: the range is inside this buffer; who looks at it waits for the copy, and the allocator
        // gives it to nobody before the stream has passed.
        unsafe {
            stream.download_later(from_address, self.host_ptr().add(offset), bytes)?;
        }
        match self.arriving.set(Event::mark(&current)?) {
            Ok(()) => Ok(()),
            // It was the target of such a copy before.
            Err(_) => current.synchronize(),
        }
    }

    /// Waits until a copy to the host that nobody waited for is done.
    ///
    /// # Errors
    /// If the GPU failed.
    #[inline]
    pub fn wait_arrived(&self) -> Result<(), Error> {
        match self.arriving.get() {
            None => Ok(()),
            Some(event) => event.synchronize(),
        }
    }

    /// Waits until other streams that were given it have passed.
    fn wait_users(&self) -> Result<(), Error> {
        let Some((arena, block)) = self.block.filter(|_| self.is_shared.load(Ordering::Acquire))
        else {
            return Ok(());
        };
        for user in arena.users(block) {
            if let Some(fence) = user.fence()? {
                fence.wait()?;
            }
        }
        Ok(())
    }

    /// Says that what this thread launches now uses the buffer; see [`Buffer::record_stream`].
    #[inline]
    pub fn note_use(&self) {
        if let Queue::Cuda(home) = self.stream.queue()
            && (home.id() != 0 || stream::is_any_chosen())
        {
            self.record_stream(&self.device().stream());
        }
    }

    /// Says that work of another stream uses the buffer: once it is dropped, its memory is given to
    /// nobody before that stream has passed what it was given until then.
    ///
    /// It orders nothing: the stream must wait by itself for what writes the buffer.
    pub fn record_stream(&self, stream: &Stream) {
        if *stream == self.stream {
            return;
        }
        if let (Queue::Cuda(user), Some((arena, block))) = (stream.queue(), self.block) {
            arena.record_user(block, *user);
            self.is_shared.store(true, Ordering::Release);
        }
    }

    /// Lets work that is given to a stream now use the buffer, whenever that runs: once it is dropped, its memory is given
    /// to nobody before the stream has passed, or, while this thread records the stream, before the graph is gone.
    #[inline]
    pub(crate) fn lend(&self, stream: &Stream) {
        self.record_stream(stream);
        if let (Queue::Cuda(user), Some((arena, block))) = (stream.queue(), self.block)
            && user.device().is_capturing()
        {
            let is_elsewhere = *stream != self.stream;
            user.hold(arena, block, is_elsewhere);
        }
    }

    /// A copy on a stream of any device.
    #[track_caller]
    pub fn to_stream(&self, stream: &Stream) -> Result<Buffer, Error> {
        let copy = Buffer::uninit(stream, self.bytes)?;
        copy.copy_from(0, self, 0, self.bytes)?;
        Ok(copy)
    }

    /// The address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is memory of the [`MemoryPool`](super::MemoryPool) that this thread allocates from.
    pub fn is_of_current_pool(&self) -> bool {
        self.block.is_some_and(|(arena, _)| pool::is_current(arena))
    }

    /// Whether it is host memory that GPUs copy from and to by themselves.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// Where it is.
    #[inline]
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

/// Copies between GPUs, or inside of one: after what the source's stream was given so far, and before
/// what it is given later.
fn copy_on_gpus(
    (to, to_address): (&'static CudaStream, u64),
    (from, from_address): (&'static CudaStream, u64),
    bytes: usize,
) -> Result<(), Error> {
    if std::ptr::eq(to, from) {
        return copy_on_stream(to, to_address, from_address, bytes);
    }
    to.wait_event(&from.record_event(false)?)?;
    match to.device().number() == from.device().number() {
        true => to.copy(to_address, from_address, bytes)?,
        false => to.copy_from_peer(to_address, from.device(), from_address, bytes)?,
    }
    from.wait_event(&to.record_event(false)?)
}

/// Copies inside one GPU, through a third place where the ranges overlap: the driver leaves that
/// case undefined.
fn copy_on_stream(
    stream: &'static CudaStream,
    to: u64,
    from: u64,
    bytes: usize,
) -> Result<(), Error> {
    if to.abs_diff(from) >= bytes as u64 {
        return stream.copy(to, from, bytes);
    }
    let staged = Buffer::uninit(&Stream::of(stream), bytes)?;
    staged.lend(&staged.stream);
    stream.copy(staged.address, from, bytes)?;
    stream.copy(to, staged.address, bytes)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((arena, block)) = self.block {
            arena.free(block);
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

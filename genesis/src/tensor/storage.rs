//! Storage: memory that tensors share, with a version counter of in-place writes.
//!
//! Tensors of which each is written by itself may still lie one after the other in one allocation, to be read as one: then
//! each has a storage that is a *part* of another ([`Storage::part`]), with a version of its own. A write to a part is one to
//! the whole, and none to the other parts:
//!
//! ```text
//! whole [q | k | v]   version 3       parts  q: version 2    k: version 0    v: version 1
//! ```

mod borrows;
pub(crate) mod products;
mod slices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Buffer, Device, Graph, Label, MemoryPool};

use crate::error::Result;
use crate::mode::is_inference_mode_enabled;
use crate::shape::Layout;

use self::borrows::Borrows;

/// Device memory with a version counter.
pub(crate) struct Storage {
    memory: Memory,
    version: AtomicU64,
    /// Whether it was made in inference mode.
    is_inference: bool,
    /// Whether a leaf that requires a gradient lies in it.
    is_parameter: AtomicBool,
    /// Whether nobody has written it since all that was ahead on its device had ended.
    is_constant: AtomicBool,
    /// The number of a value of a trace, which has no memory, with the number of its elements; 0 of
    /// memory.
    symbol: (u64, usize),
}

/// Where the bytes of a storage are.
enum Memory {
    /// Its own, and who has elements of it as slices.
    Own(Buffer, Borrows),
    /// Those of another, which is no part itself.
    Of(Arc<Storage>),
}

impl Storage {
    /// A value of a trace: no memory.
    pub(crate) fn symbolic(device: Device, symbol: u64, elements: usize) -> Result<Storage> {
        let mut storage = Storage::from_buffer(Buffer::uninit(&device.stream(), 0)?);
        storage.symbol = (symbol, elements);
        Ok(storage)
    }

    /// Whether it is a value of a trace.
    #[inline]
    pub(crate) fn is_symbol(&self) -> bool {
        self.symbol.0 != 0
    }

    /// The number of a value of a trace; 0 of memory.
    pub(crate) fn symbol(&self) -> u64 {
        self.symbol.0
    }

    /// The elements of a value of a trace.
    pub(crate) fn elements(&self) -> usize {
        self.symbol.1
    }

    /// Whether every element of a tensor of this layout and dtype lies in it.
    #[inline]
    pub(crate) fn holds(&self, layout: &Layout, dtype: DType) -> bool {
        if self.is_symbol() {
            return layout.end() <= self.elements();
        }
        layout.end().checked_mul(dtype.bytes()).is_some_and(|end| end <= self.bytes())
    }

    /// Memory of `bytes` bytes whose contents nobody has written yet, for a tensor of this dtype and shape.
    #[track_caller]
    pub(crate) fn uninitialized(
        device: Device,
        bytes: usize,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Storage> {
        let label = Label::tensor(dtype, shape);
        Ok(Storage::from_buffer(Buffer::labeled(&device.stream(), bytes, &label)?))
    }

    /// The same in host memory that GPUs copy from and to by themselves.
    #[track_caller]
    pub(crate) fn pinned(bytes: usize, dtype: DType, shape: &[usize]) -> Result<Storage> {
        Ok(Storage::from_buffer(Buffer::pinned(bytes, &Label::tensor(dtype, shape))?))
    }

    /// Memory that holds these bytes, of a tensor of this dtype and shape.
    #[track_caller]
    pub(crate) fn from_bytes(
        device: Device,
        bytes: &[u8],
        dtype: DType,
        shape: &[usize],
    ) -> Result<Storage> {
        let storage = Storage::uninitialized(device, bytes.len(), dtype, shape)?;
        storage.buffer().write(0, bytes)?;
        Ok(storage)
    }

    /// The same while a step is recorded: written once and not by each replay, so that it may share no memory
    /// with what is.
    #[track_caller]
    pub(crate) fn from_bytes_beside(
        device: Device,
        bytes: &[u8],
        dtype: DType,
        shape: &[usize],
    ) -> Result<Storage> {
        let make = || Storage::uninitialized(device, bytes.len(), dtype, shape);
        let storage = MemoryPool::outside(make)?;
        Graph::write_beside(storage.buffer(), bytes)?;
        Ok(storage)
    }

    fn from_buffer(buffer: Buffer) -> Storage {
        Storage::over(Memory::Own(buffer, Borrows::default()), is_inference_mode_enabled())
    }

    fn over(memory: Memory, is_inference: bool) -> Storage {
        let [is_parameter, is_constant] = [false; 2].map(AtomicBool::new);
        let version = AtomicU64::new(0);
        Storage { memory, version, is_inference, is_parameter, is_constant, symbol: (0, 0) }
    }

    /// A part of this memory, that counts the writes to itself. Who makes parts sees to it that none is written through
    /// another.
    pub(crate) fn part(self: &Arc<Storage>) -> Storage {
        let whole = self.whole();
        Storage::over(Memory::Of(whole.clone()), whole.is_inference)
    }

    /// Whether it is a part of another.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.memory, Memory::Of(_))
    }

    /// What it is a part of, or itself.
    pub(crate) fn whole(self: &Arc<Storage>) -> &Arc<Storage> {
        match &self.memory {
            Memory::Own(..) => self,
            Memory::Of(whole) => whole,
        }
    }

    /// The memory itself.
    #[inline]
    pub(crate) fn buffer(&self) -> &Buffer {
        match &self.memory {
            Memory::Own(buffer, _) => buffer,
            Memory::Of(whole) => whole.buffer(),
        }
    }

    /// Who has its elements as slices.
    fn borrows(&self) -> &Borrows {
        match &self.memory {
            Memory::Own(_, borrows) => borrows,
            Memory::Of(whole) => whole.borrows(),
        }
    }

    /// Says that what is launched now reads or writes it. Where a copy to it is still on its way from a
    /// GPU, that is waited for; if that GPU failed, [`Storage::wait_arrived`] says so.
    #[inline]
    pub(crate) fn note_use(&self) {
        self.buffer().note_use();
        let _ = self.buffer().wait_arrived();
    }

    /// Waits for a copy to it that nobody waited for yet.
    ///
    /// # Errors
    /// If the GPU that it comes from failed.
    #[inline]
    pub(crate) fn wait_arrived(&self) -> Result<()> {
        Ok(self.buffer().wait_arrived()?)
    }

    /// The first byte's address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.buffer().address()
    }

    /// Where the memory is.
    pub(crate) fn device(&self) -> Device {
        self.buffer().device()
    }

    /// Its length in bytes, of a part that of the whole: layouts count from there.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer().bytes()
    }

    /// Whether its tensors can never be saved for a backward.
    pub(crate) fn is_inference(&self) -> bool {
        self.is_inference
    }

    /// The number of in-place writes so far.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts an in-place write.
    pub(crate) fn bump_version(&self) {
        self.is_constant.store(false, Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
        if let Memory::Of(whole) = &self.memory {
            whole.bump_version();
        }
    }

    /// Whether kernels may read it before those ahead of them on the stream have ended: nobody has written it since
    /// [`Storage::set_constant`].
    pub(crate) fn is_constant(&self) -> bool {
        self.is_constant.load(Ordering::Acquire)
    }

    /// Says that all writes to it have ended: the caller has waited for the device.
    pub(crate) fn set_constant(&self) {
        self.is_constant.store(true, Ordering::Release);
    }

    /// Whether a leaf that requires a gradient lies in it, or did.
    pub(crate) fn is_parameter(&self) -> bool {
        self.is_parameter.load(Ordering::Relaxed)
    }

    /// Says that a leaf that requires a gradient lies in it.
    pub(crate) fn set_parameter(&self) {
        self.is_parameter.store(true, Ordering::Relaxed);
        if let Memory::Of(whole) = &self.memory {
            whole.set_parameter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn a_part_counts_its_own_writes_and_the_whole_all() -> Result<()> {
        let whole = Arc::new(Storage::from_bytes(Device::Cpu, &[0; 8], DType::U8, &[8])?);
        let (a, b) = (Arc::new(whole.part()), Arc::new(whole.part()));
        assert!(Arc::ptr_eq(a.whole(), &whole) && Arc::ptr_eq(whole.whole(), &whole));
        // A part of a part is one of the whole.
        let inner = Arc::new(b.part());
        assert!(Arc::ptr_eq(inner.whole(), &whole) && inner.is_part() && !whole.is_part());
        a.bump_version();
        a.bump_version();
        b.bump_version();
        assert_eq!([&a, &b, &inner, &whole].map(|of| of.version()), [2, 1, 0, 3]);
        assert_eq!((a.address(), a.bytes()), (whole.address(), 8));
        a.set_parameter();
        assert_eq!([&a, &b, &whole].map(|of| of.is_parameter()), [true, false, true]);
        Ok(())
    }

    #[test]
    fn what_is_written_in_place_is_constant_no_more() -> Result<()> {
        let make = || Tensor::from_slice_on(&[1f32, 2.0, 3.0, 4.0], &[2, 2], Device::Cpu);
        let writes: [fn(&Tensor) -> Result<()>; 4] = [
            |t| t.fill_(2.0),
            |t| t.select(0, 1)?.add_(&t.select(0, 0)?).map(drop),
            |t| t.copy_(&t.neg()?),
            |t| t.t()?.zero_(),
        ];
        for write in writes {
            let t = make()?;
            assert!(!t.storage().is_constant(), "nobody has waited for the device");
            t.storage().set_constant();
            assert!(t.t()?.storage().is_constant(), "views share the memory");
            write(&t)?;
            assert!(!t.storage().is_constant());
        }
        Ok(())
    }
}

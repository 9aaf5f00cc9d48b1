//! Moves between devices, and pinned host memory for copies that nobody waits for.
//!
//! A copy between a GPU and ordinary host memory goes through the driver's own pinned pages, and the
//! host waits for it. From and to memory that is pinned itself the GPU copies alone:
//! [`Tensor::pin_memory`] and [`Tensor::to_device_non_blocking`] let the host, and kernels of other
//! streams, go on meanwhile.

use genesis_kernel::runtime::{Device, Stream};

use crate::autograd::SavedTensors;
use crate::dispatch::capture;
use crate::error::Result;
use crate::ops::{Op, apply};
use crate::shape::Layout;
use crate::tensor::{Storage, Tensor};

impl Tensor {
    /// The tensor on another device; the tensor itself where it is already. Waits for the copy where the
    /// host is one of the two.
    ///
    /// # Errors
    /// If there is no such device or its memory runs out.
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        self.moved(device, true)
    }

    /// [`Tensor::to_device`] without waiting, where one side is a GPU and the other pinned host memory or
    /// another GPU: the copy is queued on the GPU's current stream.
    ///
    /// From a GPU to the host the result is pinned, and who reads it through Genesis waits for the copy
    /// then. From pinned memory to a GPU the source must not be written until the copy is done: wait for
    /// the stream first. From ordinary host memory it is the same as `to_device`.
    ///
    /// # Errors
    /// If there is no such device or its memory runs out.
    ///
    /// # Examples
    /// ```
    /// use genesis::{Device, Tensor};
    ///
    /// let batch = Tensor::from_slice_on(&[1.0f32, 2.0], &[2], Device::Cpu)?;
    /// let device = Device::default();
    /// let batch = if device.is_cuda() { batch.pin_memory()? } else { batch };
    /// let there = batch.to_device_non_blocking(device)?;
    /// assert_eq!(there.sum()?.item()?, 3.0);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device_non_blocking(&self, device: Device) -> Result<Tensor> {
        self.moved(device, false)
    }

    #[track_caller]
    fn moved(&self, device: Device, wait: bool) -> Result<Tensor> {
        if device == self.device() {
            return Ok(self.clone());
        }
        capture::check("a tensor is moved to another device")?;
        apply(Move { from: self.device(), to: device, wait }, &[self])
    }

    /// Copies all of another dense tensor of the same shape and dtype here, from another device; nobody waits where its
    /// memory is pinned.
    pub(crate) fn receive(&self, source: &Tensor) -> Result<()> {
        let source = source.detach().packed()?;
        self.storage().buffer().copy_from_later(source.storage().buffer())?;
        self.storage().bump_version();
        Ok(())
    }

    /// A copy in pinned host memory; the tensor itself where it is pinned.
    ///
    /// # Errors
    /// If there is no GPU, or no more such memory.
    #[track_caller]
    pub fn pin_memory(&self) -> Result<Tensor> {
        if self.is_pinned() {
            Ok(self.clone())
        } else {
            apply(Pin { from: self.device() }, &[self])
        }
    }

    /// Whether it is in pinned host memory.
    pub fn is_pinned(&self) -> bool {
        self.storage().buffer().is_pinned()
    }

    /// Says that work of another stream uses the tensor. Genesis says so by itself of every launch; it is
    /// for kernels and libraries that are given the address.
    ///
    /// Memory of a tensor that is dropped is given to nobody before the streams that used it have passed
    /// what they were given until then. It orders nothing: see [`Stream::wait_event`].
    pub fn record_stream(&self, stream: &Stream) {
        self.storage().buffer().record_stream(stream);
    }

    /// The elements in row-major order, from the start of storage of their own size.
    #[track_caller]
    fn packed(&self) -> Result<Tensor> {
        let dense = self.contiguous()?;
        let bytes = dense.numel() * dense.dtype().bytes();
        let is_whole = dense.layout().offset() == 0 && dense.storage().bytes() == bytes;
        if is_whole { Ok(dense) } else { dense.copy() }
    }

    /// Storage of its own for what [`Tensor::packed`] gives.
    fn over(storage: Storage, packed: &Tensor) -> Tensor {
        // Its own strides along axes of extent 1 may be any.
        let layout = Layout::contiguous(packed.shape()).expect("a tensor's elements are counted");
        Tensor::plain(storage.into(), layout, packed.dtype())
    }
}

/// A copy on another device.
struct Move {
    from: Device,
    to: Device,
    wait: bool,
}

impl Op for Move {
    fn name(&self) -> &'static str {
        "to_device"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let source = inputs[0].detach().packed()?;
        let (shape, dtype, bytes) = (source.shape(), source.dtype(), source.storage().bytes());
        let storage = match (self.to, self.wait) {
            (Device::Cpu, false) => Storage::pinned(bytes, dtype, shape)?,
            _ => Storage::uninitialized(self.to, bytes, dtype, shape)?,
        };
        match self.wait {
            true => storage.buffer().copy_from(0, source.storage().buffer(), 0, bytes)?,
            false => storage.buffer().copy_from_later(source.storage().buffer())?,
        }
        if self.wait && self.from != Device::Cpu {
            crate::ops::index::flag::check(self.from)?;
        }
        Ok(Tensor::over(storage, &source))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.to_device(self.from)?)])
    }
}

/// A copy in pinned host memory.
struct Pin {
    from: Device,
}

impl Op for Pin {
    fn name(&self) -> &'static str {
        "pin_memory"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let source = inputs[0].detach().packed()?;
        let (shape, dtype, bytes) = (source.shape(), source.dtype(), source.storage().bytes());
        let storage = Storage::pinned(bytes, dtype, shape)?;
        storage.buffer().copy_from(0, source.storage().buffer(), 0, bytes)?;
        Ok(Tensor::over(storage, &source))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.to_device(self.from)?)])
    }
}

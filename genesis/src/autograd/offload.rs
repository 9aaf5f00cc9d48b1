//! Saved tensors in the memory of the host: copied there while the forward goes on, and back ahead of their use.
//!
//! ```text
//! forward    compute   a b c d ..      what a saves is copied out while b computes
//!            copies      a b c d ..
//! backward   compute   .. d c b a      what b reads is copied in while c goes backward
//!            copies    d c b a
//! ```
//!
//! Memory moves as a whole, so that tensors that share it move once and come back with the layouts that they had: a
//! backward has the bits that it would have had.

use std::sync::{Arc, Mutex, Weak};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Device, Event, Stream, with_stream};

use super::saved::{GivenUp, Kept, Place, Recompute, Saving, lock, saving};
use crate::error::{Error, Result};
use crate::mode::no_grad;
use crate::shape::Layout;
use crate::tensor::{Storage, Tensor};

/// Memory of fewer bytes stays: a copy of it takes longer than it is worth.
const LEAST: usize = 4096;

/// Memory that is copied in ahead of its use.
const AHEAD: usize = 2;

/// Runs `f`, whose saved tensors on GPUs wait for their backward in pinned memory of the host.
///
/// Leaves, such as parameters, stay where they are, and so do tensors in host memory. Copies run beside the compute, on
/// a stream of their own. With [`checkpoint()`](super::checkpoint()) inside it is the inputs of checkpoints that move, and
/// the results that they keep.
///
/// # Numerics
/// Gradients are those without it, bit for bit.
/// # Errors
/// If `f` refuses, there is no more pinned memory, or a step is captured as a graph.
/// # Cost
/// Each saved byte goes over the bus twice.
///
/// # Source
/// As `torch.autograd.graph.save_on_cpu(pin_memory=True)`, and beside the compute.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::autograd::save_on_cpu;
///
/// let x = Tensor::ones(&[64, 64], ())?.requires_grad_(true)?;
/// let y = save_on_cpu(|| x.exp()?.sin()?.sum())?;
/// y.backward()?; // what was saved comes back as it is read
/// assert!(x.grad().is_some());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn save_on_cpu<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let (result, _) = saving(Saving::GiveUp(Arc::new(Host::default())), f);
    result
}

/// What a forward moved to the host.
#[derive(Default)]
struct Host {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The stream of copies of each GPU.
    streams: Vec<(Device, Stream)>,
    /// In the order of saving.
    moved: Vec<Known>,
}

/// Memory that was moved, and that of the device while it lives.
struct Known {
    source: Weak<Storage>,
    version: u64,
    moved: Weak<Moved>,
}

/// A copy of memory in the host.
struct Moved {
    host: Arc<Host>,
    /// Its number among what was moved.
    number: usize,
    copy: Tensor,
    device: Device,
    stream: Stream,
    /// The tensors that lie in it.
    places: Mutex<Vec<Place>>,
    back: Mutex<Back>,
}

/// The way back to the device.
#[derive(Default)]
enum Back {
    #[default]
    Away,
    /// Under way.
    Coming(Tensor, Event),
    Here(Tensor),
    /// Here for as long as somebody reads it.
    Borrowed(Weak<Storage>),
}

impl GivenUp for Host {
    fn claim(self: Arc<Self>, kept: &Kept) -> Result<Option<(Arc<dyn Recompute>, usize)>> {
        let (storage, version) = kept.memory();
        let stays = storage.device() == Device::Cpu
            || storage.is_symbol()
            || storage.is_parameter()
            || storage.bytes() < LEAST;
        if stays {
            return Ok(None);
        }
        let moved = match self.known(storage, version) {
            Some(moved) => moved,
            None => self.take(storage, version)?,
        };
        let mut places = lock(&moved.places);
        places.push(kept.place());
        let index = places.len() - 1;
        drop(places);
        Ok(Some((moved, index)))
    }
}

impl Host {
    /// The copy of this memory, if there is one.
    fn known(&self, storage: &Arc<Storage>, version: u64) -> Option<Arc<Moved>> {
        let state = lock(&self.state);
        let is_same = |known: &&Known| {
            known.version == version && std::ptr::eq(known.source.as_ptr(), Arc::as_ptr(storage))
        };
        // While somebody has a weak handle the address is nobody else's.
        state.moved.iter().rev().find(is_same)?.moved.upgrade()
    }

    /// Copies memory to the host.
    fn take(self: &Arc<Self>, storage: &Arc<Storage>, version: u64) -> Result<Arc<Moved>> {
        let device = storage.device();
        let stream = self.stream(device)?;
        let whole = whole(storage)?;
        stream.wait_stream(&device.stream())?;
        let copy = with_stream(&stream, || no_grad(|| whole.to_device_non_blocking(Device::Cpu)))?;
        let mut state = lock(&self.state);
        let (host, number) = (self.clone(), state.moved.len());
        let (places, back) = (Mutex::default(), Mutex::default());
        let moved = Arc::new(Moved { host, number, copy, device, stream, places, back });
        let (source, weak) = (Arc::downgrade(storage), Arc::downgrade(&moved));
        state.moved.push(Known { source, version, moved: weak });
        Ok(moved)
    }

    fn stream(&self, device: Device) -> Result<Stream> {
        let mut state = lock(&self.state);
        if let Some((_, stream)) = state.streams.iter().find(|(of, _)| *of == device) {
            return Ok(stream.clone());
        }
        let stream = Stream::new(device)?;
        state.streams.push((device, stream.clone()));
        Ok(stream)
    }

    /// Begins to bring back what was saved before number `number`: a backward reads it next.
    fn begin_before(&self, number: usize) -> Result<()> {
        let next: Vec<Arc<Moved>> = {
            let state = lock(&self.state);
            let before = state.moved[..number].iter().rev();
            before.filter_map(|known| known.moved.upgrade()).take(AHEAD).collect()
        };
        next.iter().try_for_each(|moved| moved.begin())
    }
}

/// All bytes of memory.
fn whole(storage: &Arc<Storage>) -> Result<Tensor> {
    let layout = Layout::contiguous(&[storage.bytes()]);
    let layout =
        layout.ok_or_else(|| Error::op("save_on_cpu", "memory has more bytes than count"))?;
    Ok(Tensor::plain(storage.clone(), layout, DType::U8))
}

impl Moved {
    /// Begins the copy back to the device, unless it is there or under way.
    fn begin(&self) -> Result<()> {
        let mut back = lock(&self.back);
        if matches!(*back, Back::Away) {
            *back = self.coming()?;
        }
        Ok(())
    }

    fn coming(&self) -> Result<Back> {
        let there = with_stream(&self.stream, || {
            no_grad(|| self.copy.to_device_non_blocking(self.device))
        })?;
        let event = Event::record(&self.stream)?;
        Ok(Back::Coming(there, event))
    }

    /// The memory on the device, which the current stream waits for.
    fn here(&self, keep: bool) -> Result<Tensor> {
        let mut back = lock(&self.back);
        if let Back::Borrowed(memory) = &*back {
            match memory.upgrade() {
                Some(storage) => return whole(&storage),
                None => *back = Back::Away,
            }
        }
        if matches!(*back, Back::Away) {
            *back = self.coming()?;
        }
        let there = match std::mem::take(&mut *back) {
            Back::Coming(there, event) => {
                self.device.stream().wait_event(&event)?;
                there
            }
            Back::Here(there) => there,
            Back::Away | Back::Borrowed(_) => {
                return Err(Error::op("save_on_cpu", "nothing came back, which is a bug"));
            }
        };
        *back = match keep {
            true => Back::Borrowed(Arc::downgrade(there.storage())),
            false => Back::Here(there.clone()),
        };
        Ok(there)
    }
}

impl Recompute for Moved {
    fn value(self: Arc<Self>, index: usize, keep: bool) -> Result<Kept> {
        let there = self.here(keep)?;
        self.host.begin_before(self.number)?;
        let places = lock(&self.places);
        let place = places.get(index);
        let missing = || Error::op("save_on_cpu", "nothing was moved under this number, a bug");
        Ok(place.ok_or_else(missing)?.within(&there))
    }
}

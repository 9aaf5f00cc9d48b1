//! Process groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use genesis_kernel::runtime::nccl::{Communicator, UniqueId, nccl_version};
use genesis_kernel::runtime::{Device, Stream};

use super::host::Host;
use super::meeting::{meet, open};
use super::recorder::Recorder;
use super::shared::{Backend, Shared};
use super::store::Store;
use super::watch::Watchdog;
use super::world::World;
use crate::error::{Error, Result};

/// A group of processes that call collectives together. A clone is the same group.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    pub(super) shared: Arc<Shared>,
    /// Whether this handle adds in the order of ranks.
    pub(super) is_ordered: bool,
    /// What waits when the last handle goes.
    _last: Arc<Last>,
}

/// Waits, when the last handle of a group is dropped, until what the group was given has ended: a process that ends
/// in the middle of a collective leaves the other ranks waiting. The watchdog holds the group too, now and
/// then, but not this, which ends it.
#[derive(Debug)]
struct Last {
    shared: Arc<Shared>,
    /// None where there is one process.
    watchdog: Option<Watchdog>,
}

/// The rank that holds the store waits so long for the others, which may read in it still, or connect to it for a group of
/// which it is no member.
const PATIENCE: Duration = Duration::from_secs(10);

impl Drop for Last {
    fn drop(&mut self) {
        let shared = &self.shared;
        if let Backend::Nccl(_) = &shared.backend {
            // If the device failed there is nothing to wait for.
            let _ = shared.device.stream().synchronize();
            let _ = shared.stream.synchronize();
        }
        let patience = PATIENCE.min(shared.world.timeout);
        // Parts of the world end before it does.
        if shared.ranks.len() == shared.world.size {
            shared.leave(patience);
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.end(patience);
        }
    }
}

/// Joins the group of all processes, as their launcher numbers them; each takes the GPU of its local rank.
///
/// A program that no launcher started is a group of one, on any device, and needs no NCCL: the same code
/// runs on a laptop.
///
/// # Errors
/// If what the launcher says makes no sense, the machine has fewer GPUs than ranks, NCCL is missing, another rank
/// can't begin, or one does not come within ten minutes.
pub fn init() -> Result<ProcessGroup> {
    let world = World::from_env()?;
    let device = match world.launcher {
        None => Ok(Device::default()),
        Some(_) => own_gpu(&world),
    };
    begin(world, device)
}

/// [`init`] for a world and a device of one's own choice. Several ranks may be of processors: their collectives, over the
/// store, are for small models.
///
/// # Errors
/// As [`init`].
pub fn init_world(world: World, device: Device) -> Result<ProcessGroup> {
    begin(world, Ok(device))
}

/// Joins the group of all, with a device or by telling the others why there is none.
fn begin(world: World, device: Result<Device>) -> Result<ProcessGroup> {
    let is_alone =
        |device: Device| world.size == 1 && (world.launcher.is_none() || !device.is_cuda());
    let (device, backend, store) = match device {
        Ok(device) if is_alone(device) => (device, Backend::Alone, None),
        Err(error) if world.size == 1 => return Err(error),
        device => {
            let device = device.and_then(usable);
            let (store, device) = meet(&world, device)?;
            let backend = match device.is_cuda() {
                true => Backend::Nccl(open(&world, || join(&world, &store, device))?),
                false => Backend::Host(Host::new(&world, "world", (world.rank, world.size))?),
            };
            (device, backend, Some(Arc::new(store)))
        }
    };
    let (ranks, rank) = ((0..world.size).collect(), world.rank);
    ProcessGroup::over(world, "world".to_owned(), (ranks, rank), device, backend, store)
}

/// A device that is there; of a GPU NCCL too.
fn usable(device: Device) -> Result<Device> {
    if let Device::Cuda(number) = device {
        let count = Device::cuda_count();
        if number >= count {
            let message = format!("there is no {device}, the machine has {count} GPUs");
            return Err(Error::op("distributed", message));
        }
        nccl_version()?;
    }
    Ok(device)
}

/// The GPU of a local rank; the only one where the launcher shows each rank no other.
fn own_gpu(world: &World) -> Result<Device> {
    let count = Device::cuda_count() as usize;
    let number = if count == 1 { 0 } else { world.local_rank };
    if number < count {
        return Ok(Device::Cuda(number as u32));
    }
    let (rank, local) = (world.rank, world.local_rank);
    let message = match count {
        0 => format!("rank {rank} finds no GPU: several processes need one each"),
        _ => format!("rank {rank} has local rank {local}, but the machine has {count} GPUs"),
    };
    Err(Error::op("distributed", message))
}

/// Makes the communicator of all ranks.
fn join(world: &World, store: &Store, device: Device) -> Result<Communicator> {
    const KEY: &str = "nccl";
    let id = if world.rank == 0 {
        let id = UniqueId::new()?;
        store.set(KEY, id.as_bytes())?;
        id
    } else {
        let bytes = store.get(KEY)?.try_into();
        UniqueId::from_bytes(bytes.map_err(|_| {
            Error::op("distributed", "rank 0 runs another program, or another version of this one")
        })?)
    };
    Ok(Communicator::new(&id, world.rank, world.size, device, world.timeout)?)
}

impl ProcessGroup {
    fn over(
        world: World,
        name: String,
        (ranks, rank): (Vec<usize>, usize),
        device: Device,
        backend: Backend,
        store: Option<Arc<Store>>,
    ) -> Result<ProcessGroup> {
        // What other ranks wait for comes first.
        const URGENT: i32 = -1;
        let stream = match backend {
            Backend::Alone | Backend::Host(_) => device.stream(),
            Backend::Nccl(_) => Stream::with_priority(device, URGENT)?,
        };
        let (recorder, splits) = (Recorder::default(), AtomicU64::new(0));
        let shared =
            Shared { world, name, ranks, rank, device, backend, store, recorder, stream, splits };
        let shared = Arc::new(shared);
        let watchdog = match shared.store {
            Some(_) => {
                let started = Watchdog::start(&shared, Store::again(&shared.world)?);
                Some(started.map_err(|why| {
                    Error::op("distributed", format!("no thread to watch collectives: {why}"))
                })?)
            }
            None => None,
        };
        let last = Arc::new(Last { shared: shared.clone(), watchdog });
        // Processors add in the order of ranks, and in no other.
        let is_ordered = matches!(shared.backend, Backend::Host(_));
        Ok(ProcessGroup { shared, is_ordered, _last: last })
    }

    /// This process in the group.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many processes the group has.
    pub fn size(&self) -> usize {
        self.shared.ranks.len()
    }

    /// The processes of the group, as the world numbers them.
    pub fn ranks(&self) -> &[usize] {
        &self.shared.ranks
    }

    /// The device of this process.
    pub fn device(&self) -> Device {
        self.shared.device
    }

    /// The world that the group is of.
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// The store of the world; none where there is one process.
    pub fn store(&self) -> Option<&Store> {
        self.shared.store.as_deref()
    }

    /// The groups of processes that name the same color, each in the order of `key`, then of this group's
    /// ranks; none for a process that names no color. All processes of this group call it.
    ///
    /// # Errors
    /// If other ranks do not call it in time.
    pub fn split(&self, color: Option<u32>, key: usize) -> Result<Option<ProcessGroup>> {
        let number = self.shared.splits.fetch_add(1, Ordering::Relaxed);
        let members = self.members(number, color, key)?;
        let name = |color| format!("{}.{number}.{color}", self.shared.name);
        let place = members.iter().position(|&member| member == self.rank());
        let split = match &self.shared.backend {
            Backend::Alone => color.map(|_| Backend::Alone),
            Backend::Host(_) => match (color, place) {
                (Some(_), Some(_)) if members.len() == 1 => Some(Backend::Alone),
                (Some(color), Some(place)) => {
                    let of = (place, members.len());
                    Some(Backend::Host(Host::new(&self.shared.world, &name(color), of)?))
                }
                _ => None,
            },
            Backend::Nccl(communicator) => {
                let place = (place.unwrap_or(0), members.len());
                communicator.split(color, place.0, place)?.map(Backend::Nccl)
            }
        };
        let (Some(color), Some(backend), Some(rank)) = (color, split, place) else {
            return Ok(None);
        };
        let ranks = members.iter().map(|&member| self.shared.ranks[member]).collect();
        let (world, store) = (self.shared.world.clone(), self.shared.store.clone());
        let (name, device) = (name(color), self.device());
        let group = ProcessGroup::over(world, name, (ranks, rank), device, backend, store)?;
        Ok(Some(ProcessGroup { is_ordered: self.is_ordered, ..group }))
    }

    /// The group of these ranks of this group; none for a process that is not among them. All processes of
    /// this group call it.
    ///
    /// # Errors
    /// As [`ProcessGroup::split`], or if there is no such rank.
    pub fn subgroup(&self, ranks: &[usize]) -> Result<Option<ProcessGroup>> {
        if let Some(rank) = ranks.iter().find(|&&rank| rank >= self.size()) {
            let message = format!("there is no rank {rank} among {}", self.size());
            return Err(Error::op("subgroup", message));
        }
        let place = ranks.iter().position(|&rank| rank == self.rank());
        self.split(place.map(|_| 0), place.unwrap_or(0))
    }

    /// The ranks that name this color in a split, in their order there.
    fn members(&self, number: u64, color: Option<u32>, key: usize) -> Result<Vec<usize>> {
        let Some(store) = &self.shared.store else { return Ok(vec![0]) };
        let of = |rank: usize| self.shared.key(&format!("split/{number}/{rank}"));
        let own = format!("{} {key}", color.map_or_else(|| "-".to_owned(), |c| c.to_string()));
        store.set(&of(self.rank()), own.as_bytes())?;
        let mut members = Vec::new();
        for rank in 0..self.size() {
            let said = String::from_utf8_lossy(&store.get(&of(rank))?).into_owned();
            let (other, key) = said.split_once(' ').unwrap_or((&said, "0"));
            if other.parse().ok() == color {
                members.push((key.parse::<usize>().unwrap_or(0), rank));
            }
        }
        members.sort_unstable();
        Ok(members.into_iter().map(|(_, rank)| rank).collect())
    }
}

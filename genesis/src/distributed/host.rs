//! Collectives of processors, over the store: for ranks without GPUs, such as those of tests and of a laptop.
//!
//! The store of rank 0 gathers what all ranks have, and hands on what one sends another, so that all values go through that
//! process: it is for small models. Sums are made by each rank in the order of ranks (see `ordered`), so that the
//! only primitives are a gather and transfers between two ranks. The host waits for each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::store::Store;
use super::world::World;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The most bytes of a value of the store.
const MOST: usize = 8 << 20;

/// A rank's end of a group without GPUs.
#[derive(Debug)]
pub(super) struct Host {
    store: Store,
    /// The group's.
    name: String,
    rank: usize,
    size: usize,
    timeout: Duration,
    gathers: AtomicU64,
    /// Transfers so far, by their ranks.
    transfers: Mutex<BTreeMap<(usize, usize), u64>>,
}

impl Host {
    /// Rank number `rank` of `size` of a group of this name.
    ///
    /// # Errors
    /// If rank 0 of the world does not answer.
    pub(super) fn new(world: &World, name: &str, (rank, size): (usize, usize)) -> Result<Host> {
        let (store, timeout) = (Store::again(world)?, world.timeout);
        let (gathers, transfers) = (AtomicU64::new(0), Mutex::default());
        Ok(Host { store, name: name.to_owned(), rank, size, timeout, gathers, transfers })
    }

    /// The bytes of all ranks, as many of each, in their order.
    fn gather(&self, own: &[u8]) -> Result<Vec<u8>> {
        let most = (Store::MOST_GATHERED / self.size).max(1);
        let mut parts = vec![Vec::with_capacity(own.len()); self.size];
        let chunks = own.len().div_ceil(most).max(1);
        for chunk in 0..chunks {
            let number = self.gathers.fetch_add(1, Ordering::Relaxed);
            let range = (chunk * most).min(own.len())..((chunk + 1) * most).min(own.len());
            let key = format!("{}/gather/{number}", self.name);
            let place = (self.rank, self.size);
            let all = self.store.gather_within(&key, place, &own[range.clone()], self.timeout)?;
            let all = all.ok_or_else(|| {
                self.missing(&format!("a rank has not called collective number {number}"))
            })?;
            if all.len() != range.len() * self.size {
                let message = format!("ranks gathered {} bytes, not {}", all.len(), range.len());
                return Err(Error::op("distributed", message));
            }
            let each = range.len().max(1);
            parts.iter_mut().zip(all.chunks(each)).for_each(|(part, more)| part.extend(more));
        }
        Ok(parts.concat())
    }

    /// Joins the tensors of all ranks into one, in their order.
    pub(super) fn all_gather(&self, x: &Tensor, all: &Tensor) -> Result<()> {
        write(all, &self.gather(&read(x)?)?)
    }

    /// Gives all ranks the values of one.
    pub(super) fn broadcast(&self, x: &Tensor, root: usize) -> Result<()> {
        let all = self.gather(&read(x)?)?;
        let size = all.len() / self.size;
        match self.rank == root {
            true => Ok(()),
            false => write(x, &all[root * size..(root + 1) * size]),
        }
    }

    /// Gives tensors to ranks and takes others from ranks, this one included.
    pub(super) fn exchange(
        &self,
        gives: &[(&Tensor, usize)],
        takes: &[(&Tensor, usize)],
    ) -> Result<()> {
        for &(x, to) in gives {
            self.put(&self.transfer(self.rank, to), &read(x)?)?;
        }
        for &(x, from) in takes {
            let key = self.transfer(from, self.rank);
            write(x, &self.take(&key, from)?)?;
        }
        Ok(())
    }

    /// The key of the next transfer between two ranks; one with itself is counted by both of its ends.
    fn transfer(&self, from: usize, to: usize) -> String {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = transfers.entry((from, to)).or_default();
        let number = if from == to { *count / 2 } else { *count };
        *count += 1;
        format!("{}/transfer/{from}/{to}/{number}", self.name)
    }

    /// Puts bytes into the store: how many values they are, and these.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let chunks: Vec<&[u8]> = bytes.chunks(MOST).collect();
        for (at, chunk) in chunks.iter().enumerate().skip(1) {
            self.store.set(&format!("{key}/{at}"), chunk)?;
        }
        let first = chunks.first().copied().unwrap_or_default();
        let count = (chunks.len() as u64).to_le_bytes();
        self.store.set(key, &[&count, first].concat())
    }

    /// Takes bytes that a rank puts into the store.
    fn take(&self, key: &str, from: usize) -> Result<Vec<u8>> {
        let missing =
            || self.missing(&format!("rank {from} has not sent what rank {} waits for", self.rank));
        let first = self.store.take_within(key, self.timeout)?.ok_or_else(missing)?;
        let Some((count, bytes)) = first.split_first_chunk::<8>() else { return Err(missing()) };
        let mut bytes = bytes.to_vec();
        for at in 1..u64::from_le_bytes(*count) {
            let more = self.store.take_within(&format!("{key}/{at}"), self.timeout)?;
            bytes.extend(more.ok_or_else(missing)?);
        }
        Ok(bytes)
    }

    /// The error of what did not come.
    fn missing(&self, what: &str) -> Error {
        let waited = self.timeout.as_secs_f64();
        let message = format!("{what} of group `{}` within {waited:.0} s", self.name);
        Error::op("distributed", message)
    }
}

/// The bytes of a contiguous tensor.
fn read(x: &Tensor) -> Result<Vec<u8>> {
    let x = x.detach().contiguous()?;
    let mut bytes = vec![0; x.numel() * x.dtype().bytes()];
    x.storage().wait_arrived()?;
    x.storage().buffer().read(x.layout().offset() * x.dtype().bytes(), &mut bytes)?;
    Ok(bytes)
}

/// Writes the bytes of a contiguous tensor.
fn write(x: &Tensor, bytes: &[u8]) -> Result<()> {
    let size = x.numel() * x.dtype().bytes();
    if bytes.len() != size {
        let message = format!("{} bytes came for a tensor of {size}", bytes.len());
        return Err(Error::op("distributed", message));
    }
    x.storage().wait_arrived()?;
    x.storage().buffer().write(x.layout().offset() * x.dtype().bytes(), bytes)?;
    x.storage().bump_version();
    Ok(())
}

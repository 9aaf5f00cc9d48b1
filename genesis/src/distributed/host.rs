//! Collectives of processors, over the store: for ranks without GPUs, such as those of tests and of a laptop.
//!
//! Each rank puts what it has into the store and takes what others put there, so that a value crosses the network twice: it is
//! for small models. Sums are made by each rank in the order of ranks (see `ordered`), so that the only primitives
//! are a gather and transfers between two ranks. The host waits for each.
//!
//! What a rank put into the store for a gather goes when it has seen the next one of all ranks: then all have read it.

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

    /// The bytes of all ranks, in their order.
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let number = self.gathers.fetch_add(1, Ordering::Relaxed);
        let key = |number: u64, rank: usize| format!("{}/gather/{number}/{rank}", self.name);
        self.put(&key(number, self.rank), &own)?;
        let all = (0..self.size).map(|rank| match rank == self.rank {
            true => Ok(own.clone()),
            false => self.get(&key(number, rank), false, || {
                format!("rank {rank} has not called collective number {number}")
            }),
        });
        let all = all.collect::<Result<Vec<_>>>()?;
        if let Some(before) = number.checked_sub(1) {
            self.forget(&key(before, self.rank))?;
        }
        Ok(all)
    }

    /// Joins the tensors of all ranks into one, in their order.
    pub(super) fn all_gather(&self, x: &Tensor, all: &Tensor) -> Result<()> {
        let parts = self.gather(read(x)?)?;
        write(all, &parts.concat())
    }

    /// Gives all ranks the values of one.
    pub(super) fn broadcast(&self, x: &Tensor, root: usize) -> Result<()> {
        let own = if self.rank == root { read(x)? } else { Vec::new() };
        let mut parts = self.gather(own)?;
        match self.rank == root {
            true => Ok(()),
            false => write(x, &parts.swap_remove(root)),
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
            let why = || format!("rank {from} has not sent what rank {} waits for", self.rank);
            write(x, &self.get(&key, true, why)?)?;
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

    /// Takes bytes that a rank puts into the store; `why` says what did not come.
    fn get(&self, key: &str, is_last: bool, why: impl Fn() -> String) -> Result<Vec<u8>> {
        let missing = || {
            let waited = self.timeout.as_secs_f64();
            let message = format!("{} of group `{}` within {waited:.0} s", why(), self.name);
            Error::op("distributed", message)
        };
        let first = self.store.get_within(key, self.timeout)?.ok_or_else(missing)?;
        let Some((count, bytes)) = first.split_first_chunk::<8>() else { return Err(missing()) };
        let mut bytes = bytes.to_vec();
        for at in 1..u64::from_le_bytes(*count) {
            bytes.extend(self.store.get(&format!("{key}/{at}"))?);
        }
        if is_last {
            self.forget(key)?;
        }
        Ok(bytes)
    }

    /// Removes what was put into the store.
    fn forget(&self, key: &str) -> Result<()> {
        let first = self.store.remove(key)?.unwrap_or_default();
        let count =
            first.split_first_chunk::<8>().map_or(0, |(count, _)| u64::from_le_bytes(*count));
        (1..count).try_for_each(|at| self.store.remove(&format!("{key}/{at}")).map(drop))
    }

    /// Says that this rank leaves; the one that holds the store waits for the others, for a while.
    pub(super) fn leave(&self, patience: Duration) {
        let key = |rank: usize| format!("{}/left/{rank}", self.name);
        if self.store.set(&key(self.rank), b"").is_err() || self.rank != 0 {
            return;
        }
        let until = std::time::Instant::now() + patience;
        for rank in 1..self.size {
            let left = until.saturating_duration_since(std::time::Instant::now());
            // One that was killed says nothing.
            let _ = self.store.get_within(&key(rank), left);
        }
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

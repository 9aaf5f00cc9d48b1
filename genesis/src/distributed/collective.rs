//! The collectives of a group.

use std::panic::Location;
use std::time::{Duration, Instant};

use genesis_kernel::runtime::nccl::{Communicator, ReduceOp, Span, Transfer};
use genesis_kernel::runtime::{Event, Stream};

use super::group::ProcessGroup;
use super::recorder::Call;
use super::shared::Backend;
use super::store::Store;
use super::work::Work;
use crate::dispatch::{capture, trace};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A rank that ends with an error waits so long for others to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// The tensors of a collective.
struct Operands<'a> {
    name: &'static str,
    reads: &'a [&'a Tensor],
    writes: &'a [&'a Tensor],
}

impl ProcessGroup {
    /// Joins the values of all ranks, in place on each.
    ///
    /// It runs in the order of the current stream; the host does not wait for it.
    ///
    /// # Errors
    /// If the tensor is not contiguous, not on the group's device, may not be written in place, or NCCL
    /// does not reduce its dtype.
    #[track_caller]
    pub fn all_reduce(&self, x: &Tensor, op: ReduceOp) -> Result<()> {
        if self.is_ordered && self.size() > 1 {
            return self.all_reduce_in_order(x, op);
        }
        let operands = Operands { name: "all_reduce", reads: &[], writes: &[x] };
        let op = self.cheapest(x, op);
        self.run(&operands, |of, stream| Ok(of.all_reduce(span(x)?, span(x)?, op, stream)?))
    }

    /// The operation with the same result that costs least: of one rank the mean is the sum, for which NCCL touches no
    /// memory, where it scales all of it for the mean.
    fn cheapest(&self, x: &Tensor, op: ReduceOp) -> ReduceOp {
        let is_mean_of_one = op == ReduceOp::Avg && self.size() == 1 && x.dtype().is_float();
        if is_mean_of_one { ReduceOp::Sum } else { op }
    }

    /// [`ProcessGroup::all_reduce`] beside what the current stream is given meanwhile.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`].
    #[track_caller]
    pub fn all_reduce_async(&self, x: &Tensor, op: ReduceOp) -> Result<Work> {
        if self.is_ordered && self.size() > 1 {
            self.all_reduce_in_order(x, op)?;
            return Ok(Work::done(vec![x.clone()]));
        }
        let operands = Operands { name: "all_reduce", reads: &[], writes: &[x] };
        let op = self.cheapest(x, op);
        self.run_beside(&operands, |of, stream| {
            Ok(of.all_reduce(span(x)?, span(x)?, op, stream)?)
        })
    }

    /// Joins the values of all ranks in place on the rank `root`; on the others they stay as they are.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`], or if there is no such rank.
    #[track_caller]
    pub fn reduce(&self, x: &Tensor, op: ReduceOp, root: usize) -> Result<()> {
        self.check_rank("reduce", root)?;
        if matches!(self.shared.backend, Backend::Host(_)) {
            let sum = x.detach().copy()?.contiguous()?;
            self.all_reduce_in_order(&sum, op)?;
            return if self.rank() == root { x.copy_(&sum) } else { Ok(()) };
        }
        let operands = Operands { name: "reduce", reads: &[], writes: &[x] };
        self.run(&operands, |of, stream| Ok(of.reduce(span(x)?, span(x)?, op, root, stream)?))
    }

    /// Replaces the values by those of the rank `root`.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`], of any dtype, or if there is no such rank.
    #[track_caller]
    pub fn broadcast(&self, x: &Tensor, root: usize) -> Result<()> {
        self.check_rank("broadcast", root)?;
        let operands = Operands { name: "broadcast", reads: &[], writes: &[x] };
        if let Backend::Host(host) = &self.shared.backend {
            self.check(&operands)?;
            return host.broadcast(x, root);
        }
        self.run(&operands, |of, stream| Ok(of.broadcast(span(x)?, root, stream)?))
    }

    /// The tensors of all ranks, joined along the first axis; numbers without axes become a vector.
    ///
    /// # Errors
    /// If the tensor is not on the group's device.
    #[track_caller]
    pub fn all_gather(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = if x.rank() == 0 { vec![1] } else { x.shape().to_vec() };
        shape[0] *= self.size();
        let all = Tensor::empty(&shape, (x.dtype(), x.device()))?;
        self.all_gather_into(x, &all)?;
        Ok(all)
    }

    /// [`ProcessGroup::all_gather`] into memory that is there.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather`]; if `all` is not contiguous, of another dtype, or not as long.
    #[track_caller]
    pub fn all_gather_into(&self, x: &Tensor, all: &Tensor) -> Result<()> {
        let x = &x.detach().contiguous()?;
        self.check_parts("all_gather", x, all)?;
        let operands = Operands { name: "all_gather", reads: &[x], writes: &[all] };
        match &self.shared.backend {
            Backend::Alone => return all.copy_(&x.reshape(all.shape())?),
            Backend::Host(host) => {
                self.check(&operands)?;
                return host.all_gather(x, all);
            }
            Backend::Nccl(_) => {}
        }
        self.run(&operands, |of, stream| Ok(of.all_gather(span(x)?, span(all)?, stream)?))
    }

    /// [`ProcessGroup::all_gather`] beside what the current stream is given meanwhile.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather`].
    #[track_caller]
    pub fn all_gather_async(&self, x: &Tensor) -> Result<Work> {
        if matches!(self.shared.backend, Backend::Alone | Backend::Host(_)) {
            return Ok(Work::done(vec![self.all_gather(x)?]));
        }
        let x = &x.detach().contiguous()?;
        let mut shape = if x.rank() == 0 { vec![1] } else { x.shape().to_vec() };
        shape[0] *= self.size();
        let all = Tensor::empty(&shape, (x.dtype(), x.device()))?;
        let operands = Operands { name: "all_gather", reads: &[x], writes: &[&all] };
        self.run_beside(&operands, |of, stream| Ok(of.all_gather(span(x)?, span(&all)?, stream)?))
    }

    /// Joins the tensors of all ranks, and gives each rank its part along the first axis.
    ///
    /// # Errors
    /// If the first extent is not a multiple of the number of ranks, the tensor is not on the group's
    /// device, or NCCL does not reduce its dtype.
    #[track_caller]
    pub fn reduce_scatter(&self, x: &Tensor, op: ReduceOp) -> Result<Tensor> {
        let mut shape = x.shape().to_vec();
        match shape.first_mut() {
            Some(extent) if *extent % self.size() == 0 => *extent /= self.size(),
            _ => {
                let (size, shape) = (self.size(), x.shape());
                let message = format!("{shape:?} has no first axis in {size} equal parts");
                return Err(Error::op("reduce_scatter", message));
            }
        }
        let part = Tensor::empty(&shape, (x.dtype(), x.device()))?;
        self.reduce_scatter_into(x, &part, op)?;
        Ok(part)
    }

    /// [`ProcessGroup::reduce_scatter`] into memory that is there.
    ///
    /// # Errors
    /// As [`ProcessGroup::reduce_scatter`]; if `part` is not contiguous, of another dtype, or not as long.
    #[track_caller]
    pub fn reduce_scatter_into(&self, x: &Tensor, part: &Tensor, op: ReduceOp) -> Result<()> {
        let x = &x.detach().contiguous()?;
        self.check_parts("reduce_scatter", part, x)?;
        if matches!(self.shared.backend, Backend::Alone) {
            return part.copy_(&x.reshape(part.shape())?);
        }
        if self.is_ordered {
            return self.reduce_scatter_in_order(x, part, op);
        }
        let operands = Operands { name: "reduce_scatter", reads: &[x], writes: &[part] };
        self.run(&operands, |of, stream| {
            Ok(of.reduce_scatter(span(x)?, span(part)?, op, stream)?)
        })
    }

    /// Gives each rank its part of this rank's tensor along the first axis; the result is what the others
    /// gave, in the order of ranks.
    ///
    /// # Errors
    /// If the first extent is not a multiple of the number of ranks, or the tensor is not on the group's
    /// device.
    #[track_caller]
    pub fn all_to_all(&self, x: &Tensor) -> Result<Tensor> {
        let size = self.size();
        let Some(rows) = x.shape().first().filter(|&&extent| extent % size == 0) else {
            let message = format!("{:?} has no first axis in {size} equal parts", x.shape());
            return Err(Error::op("all_to_all", message));
        };
        let counts = vec![rows / size; size];
        self.all_to_all_counts(x, &counts, &counts)
    }

    /// [`ProcessGroup::all_to_all`] of parts of any length: `gives` rows go to each rank, `takes` come.
    ///
    /// # Errors
    /// If there are not as many counts as ranks, or the rows are not as many as `gives` says together.
    #[track_caller]
    pub fn all_to_all_counts(
        &self,
        x: &Tensor,
        gives: &[usize],
        takes: &[usize],
    ) -> Result<Tensor> {
        let rows = x.shape().first().copied().unwrap_or(0);
        let all: usize = gives.iter().sum();
        if gives.len() != self.size() || takes.len() != self.size() || all != rows || x.rank() == 0
        {
            let (size, shape) = (self.size(), x.shape());
            let message =
                format!("{shape:?} in parts of {gives:?}, {takes:?} to come, for {size} ranks");
            return Err(Error::op("all_to_all", message));
        }
        let mut shape = x.shape().to_vec();
        shape[0] = takes.iter().sum();
        let x = &x.detach().contiguous()?;
        let out = &Tensor::empty(&shape, (x.dtype(), x.device()))?;
        if matches!(self.shared.backend, Backend::Alone) {
            return x.copy();
        }
        let operands = Operands { name: "all_to_all", reads: &[x], writes: &[out] };
        if let Backend::Host(host) = &self.shared.backend {
            self.check(&operands)?;
            let (from, to) = (parts(x, gives)?, parts(out, takes)?);
            let gives: Vec<_> = from.iter().enumerate().map(|(rank, part)| (part, rank)).collect();
            let takes: Vec<_> = to.iter().enumerate().map(|(rank, part)| (part, rank)).collect();
            host.exchange(&gives, &takes)?;
            return Ok(out.clone());
        }
        self.run(&operands, |of, stream| {
            let (from, to) = (parts(x, gives)?, parts(out, takes)?);
            let sends =
                from.iter().enumerate().map(|(rank, part)| Ok(Transfer::Send(span(part)?, rank)));
            let receives =
                to.iter().enumerate().map(|(rank, part)| Ok(Transfer::Receive(span(part)?, rank)));
            let transfers = sends.chain(receives).collect::<Result<Vec<_>>>()?;
            Ok(of.exchange(&transfers, stream)?)
        })?;
        Ok(out.clone())
    }

    /// Sends a tensor to a rank, which receives it.
    ///
    /// # Errors
    /// If there is no such rank beside this one, or the tensor is not on the group's device.
    #[track_caller]
    pub fn send(&self, x: &Tensor, to: usize) -> Result<()> {
        self.check_peer("send", to)?;
        let x = &x.detach().contiguous()?;
        let operands = Operands { name: "send", reads: &[x], writes: &[] };
        if let Backend::Host(host) = &self.shared.backend {
            self.check(&operands)?;
            return host.exchange(&[(x, to)], &[]);
        }
        self.run(&operands, |of, stream| Ok(of.exchange(&[Transfer::Send(span(x)?, to)], stream)?))
    }

    /// Receives into a tensor what a rank sends, of as many bytes.
    ///
    /// # Errors
    /// If there is no such rank beside this one, or the tensor is not contiguous, not on the group's device,
    /// or may not be written in place.
    #[track_caller]
    pub fn receive(&self, x: &Tensor, from: usize) -> Result<()> {
        self.check_peer("receive", from)?;
        let operands = Operands { name: "receive", reads: &[], writes: &[x] };
        if let Backend::Host(host) = &self.shared.backend {
            self.check(&operands)?;
            return host.exchange(&[], &[(x, from)]);
        }
        self.run(&operands, |of, stream| {
            Ok(of.exchange(&[Transfer::Receive(span(x)?, from)], stream)?)
        })
    }

    /// Sends and receives at once, as rings need it: `gives` go to ranks, `takes` come from ranks.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`] and [`ProcessGroup::receive`].
    #[track_caller]
    pub fn exchange(&self, gives: &[(&Tensor, usize)], takes: &[(&Tensor, usize)]) -> Result<()> {
        for (_, rank) in gives.iter().chain(takes) {
            self.check_peer("exchange", *rank)?;
        }
        let reads =
            gives.iter().map(|(x, _)| x.detach().contiguous()).collect::<Result<Vec<_>>>()?;
        let reads: Vec<&Tensor> = reads.iter().collect();
        let writes: Vec<&Tensor> = takes.iter().map(|(x, _)| *x).collect();
        let operands = Operands { name: "exchange", reads: &reads, writes: &writes };
        if let Backend::Host(host) = &self.shared.backend {
            self.check(&operands)?;
            let gives: Vec<_> = reads.iter().zip(gives).map(|(x, (_, to))| (*x, *to)).collect();
            return host.exchange(&gives, takes);
        }
        self.run(&operands, |of, stream| {
            let sends =
                reads.iter().zip(gives).map(|(x, (_, to))| Ok(Transfer::Send(span(x)?, *to)));
            let receives = takes.iter().map(|(x, from)| Ok(Transfer::Receive(span(x)?, *from)));
            let transfers = sends.chain(receives).collect::<Result<Vec<_>>>()?;
            Ok(of.exchange(&transfers, stream)?)
        })
    }

    /// Waits until all ranks have come here, and their streams too.
    ///
    /// # Errors
    /// If a rank's device failed.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        let here = Tensor::zeros(&[1], (genesis_kernel::ir::DType::F32, self.device()))?;
        if matches!(self.shared.backend, Backend::Host(_)) {
            return self.all_reduce_in_order(&here, ReduceOp::Sum);
        }
        let operands = Operands { name: "barrier", reads: &[], writes: &[&here] };
        self.run(&operands, |of, stream| {
            Ok(of.all_reduce(span(&here)?, span(&here)?, ReduceOp::Sum, stream)?)
        })?;
        Ok(self.device().stream().synchronize()?)
    }

    /// Runs a collective in the order of the current stream.
    #[track_caller]
    fn run(
        &self,
        operands: &Operands<'_>,
        call: impl FnOnce(&Communicator, &Stream) -> Result<()>,
    ) -> Result<()> {
        self.check(operands)?;
        match &self.shared.backend {
            Backend::Alone => Ok(()),
            Backend::Host(_) => {
                let message = "is not built for processors";
                Err(Error::op(operands.name, message))
            }
            Backend::Nccl(of) => {
                self.note(operands, &self.device().stream(), |stream| call(of, stream))
            }
        }
    }

    /// Runs a collective on the group's stream, after what the current one was given so far.
    #[track_caller]
    fn run_beside(
        &self,
        operands: &Operands<'_>,
        call: impl FnOnce(&Communicator, &Stream) -> Result<()>,
    ) -> Result<Work> {
        self.check(operands)?;
        let tensors: Vec<Tensor> =
            operands.writes.iter().chain(operands.reads).map(|&t| t.clone()).collect();
        let Backend::Nccl(of) = &self.shared.backend else { return Ok(Work::done(tensors)) };
        let stream = &self.shared.stream;
        stream.wait_stream(&self.device().stream())?;
        self.note(operands, stream, |stream| call(of, stream))?;
        Ok(Work::until(Event::record(stream)?, tensors))
    }

    /// Calls NCCL, with a record of it.
    #[track_caller]
    fn note(
        &self,
        operands: &Operands<'_>,
        stream: &Stream,
        call: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        let first = operands.writes.iter().chain(operands.reads).next();
        let description = Call {
            op: operands.name.to_owned(),
            shape: first.map_or_else(Vec::new, |t| t.shape().to_vec()),
            dtype: first.map_or(genesis_kernel::ir::DType::U8, |t| t.dtype()),
        };
        let recorder = &self.shared.recorder;
        let number = recorder.begin(description.clone(), Location::caller());
        if genesis_kernel::knobs::get().check_collectives && !capture::is_recording() {
            self.compare(number, &description)?;
        }
        for tensor in operands.writes.iter().chain(operands.reads) {
            tensor.storage().wait_arrived()?;
            capture::hold(tensor.storage());
        }
        call(stream)?;
        operands.writes.iter().for_each(|tensor| tensor.storage().bump_version());
        // A mark in a graph that is recorded can't be asked: only what the graph itself waits for.
        let watched = if capture::is_recording() { None } else { Some(Event::record(stream)?) };
        recorder.given(number, watched);
        Ok(())
    }

    /// Whether all ranks make the same call: each says what it is about to do, and reads what the first does.
    fn compare(&self, number: u64, call: &Call) -> Result<()> {
        let Some(store) = &self.shared.store else { return Ok(()) };
        // Transfers between two ranks are theirs alone.
        if matches!(call.op.as_str(), "send" | "receive" | "exchange") {
            return Ok(());
        }
        let key = |rank: usize| self.shared.key(&format!("check/{number}/{rank}"));
        let own = call.to_string();
        store.set(&key(self.rank()), own.as_bytes())?;
        for rank in 0..self.size() {
            let other = store.get(&key(rank))?;
            if other != own.as_bytes() {
                let other = String::from_utf8_lossy(&other);
                let message = format!(
                    "collective number {number} of group `{}` is {own} on rank {}, but {other} on rank {rank}",
                    self.shared.name,
                    self.rank()
                );
                self.let_others_read(store, &format!("check/{number}"));
                return Err(Error::op(call.op.clone(), message));
            }
        }
        Ok(())
    }

    /// Waits a moment until all ranks have read what is in the store: it ends with the process of the rank that holds it.
    pub(super) fn let_others_read(&self, store: &Store, what: &str) {
        let key = |rank: usize| self.shared.key(&format!("{what}/read/{rank}"));
        let until = Instant::now() + FAREWELL;
        let mut answers = store.set(&key(self.rank()), b"read").is_ok();
        for rank in 0..self.size() {
            let left = until.saturating_duration_since(Instant::now());
            answers = answers && store.get_within(&key(rank), left).is_ok();
        }
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let name = operands.name;
        trace::check_real(name, operands.reads)?;
        trace::check_real(name, operands.writes)?;
        for tensor in operands.writes {
            tensor.check_in_place(name)?;
            if !tensor.is_contiguous() {
                let message = "writes in place, and needs a contiguous tensor";
                return Err(Error::op(name, message));
            }
        }
        for tensor in operands.reads.iter().chain(operands.writes) {
            if tensor.device() != self.device() {
                let (own, other) = (self.device(), tensor.device());
                let message = format!("the tensor is on {other}, the group's device is {own}");
                return Err(Error::op(name, message));
            }
        }
        Ok(())
    }

    fn check_rank(&self, name: &'static str, rank: usize) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        Err(Error::op(name, format!("there is no rank {rank} among {}", self.size())))
    }

    fn check_peer(&self, name: &'static str, rank: usize) -> Result<()> {
        self.check_rank(name, rank)?;
        if rank != self.rank() {
            return Ok(());
        }
        Err(Error::op(name, format!("rank {rank} is this one")))
    }

    /// Whether `whole` has as many elements as `part` of all ranks, of the same dtype.
    fn check_parts(&self, name: &'static str, part: &Tensor, whole: &Tensor) -> Result<()> {
        let size = self.size();
        if part.dtype() == whole.dtype() && part.numel() * size == whole.numel() {
            return Ok(());
        }
        let message = format!(
            "{:?} {} of {size} ranks is not {:?} {}",
            part.shape(),
            part.dtype(),
            whole.shape(),
            whole.dtype()
        );
        Err(Error::op(name, message))
    }
}

/// A contiguous tensor as NCCL takes it.
fn span(x: &Tensor) -> Result<Span<'_>> {
    let offset = x.layout().offset() * x.dtype().bytes();
    Ok(Span::new(x.storage().buffer(), offset, x.numel(), x.dtype())?)
}

/// Rows of a tensor, side by side.
fn parts(x: &Tensor, counts: &[usize]) -> Result<Vec<Tensor>> {
    let mut start = 0;
    counts
        .iter()
        .map(|&count| {
            let part = x.narrow(0, start, count);
            start += count;
            part
        })
        .collect()
}

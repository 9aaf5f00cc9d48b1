//! The collectives.

use std::ffi::{c_int, c_void};

use cudarc::nccl::sys::ncclComm_t;

use super::communicator::Communicator;
use super::library::{IN_PROGRESS, Library, SUCCESS, Status};
use super::span::{ReduceOp, Span, reduced};
use crate::diag::Error;
use crate::runtime::{Queue, Stream};

/// One side of a transfer between two ranks.
#[derive(Clone, Copy, Debug)]
pub enum Transfer<'a> {
    /// These elements go to a rank.
    Send(Span<'a>, usize),
    /// These elements come from a rank.
    Receive(Span<'a>, usize),
}

/// What a call of NCCL is given beside its operands.
struct Site<'a> {
    library: &'a Library,
    communicator: ncclComm_t,
    stream: *mut c_void,
}

impl Communicator {
    /// Joins `from` of all ranks into `to` of each; the two may be the same span.
    ///
    /// It runs on the stream, as all that follow do; the host does not wait for it. A rank whose elements
    /// are fewer than the others' waits for ever, and so do they.
    ///
    /// # Errors
    /// If a span is not on this rank's GPU, the two differ in length or dtype, NCCL does not reduce the
    /// dtype, or it refuses.
    pub fn all_reduce(
        &self,
        from: Span<'_>,
        to: Span<'_>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.check_lengths("all_reduce", from, to, (1, 1))?;
        let dtype = reduced(from.dtype(), op, self.library.version)?;
        self.enqueue("ncclAllReduce", &[from, to], stream, |at| unsafe {
            // SAFETY: the spans are alive on this device, and are kept for the stream.
            (at.library.all_reduce)(
                from.address(),
                to.address(),
                from.elements(),
                dtype,
                op.code(),
                at.communicator,
                at.stream,
            )
        })
    }

    /// As [`Communicator::all_reduce`], into `to` of the rank `root` alone.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], or if there is no such rank.
    pub fn reduce(
        &self,
        from: Span<'_>,
        to: Span<'_>,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.check_lengths("reduce", from, to, (1, 1))?;
        let (dtype, root) = (reduced(from.dtype(), op, self.library.version)?, self.peer(root)?);
        self.enqueue("ncclReduce", &[from, to], stream, |at| unsafe {
            // SAFETY: the spans are alive on this device, and are kept for the stream.
            (at.library.reduce)(
                from.address(),
                to.address(),
                from.elements(),
                dtype,
                op.code(),
                root,
                at.communicator,
                at.stream,
            )
        })
    }

    /// Copies `values` of the rank `root` to all others.
    ///
    /// # Errors
    /// If the span is not on this rank's GPU, there is no such rank, or NCCL refuses.
    pub fn broadcast(&self, values: Span<'_>, root: usize, stream: &Stream) -> Result<(), Error> {
        let ((count, dtype), root) = (values.moved(), self.peer(root)?);
        self.enqueue("ncclBroadcast", &[values], stream, |at| unsafe {
            // SAFETY: the span is alive on this device, and is kept for the stream.
            (at.library.broadcast)(
                values.address(),
                values.address(),
                count,
                dtype,
                root,
                at.communicator,
                at.stream,
            )
        })
    }

    /// Puts `from` of all ranks into `to` of each, one behind the other; `from` may be this rank's part
    /// of `to`.
    ///
    /// # Errors
    /// If a span is not on this rank's GPU, `to` is not as many times as long as there are ranks, or NCCL
    /// refuses.
    pub fn all_gather(&self, from: Span<'_>, to: Span<'_>, stream: &Stream) -> Result<(), Error> {
        self.check_lengths("all_gather", from, to, (self.size(), 1))?;
        let (count, dtype) = from.moved();
        self.enqueue("ncclAllGather", &[from, to], stream, |at| unsafe {
            // SAFETY: the spans are alive on this device, and are kept for the stream.
            (at.library.all_gather)(
                from.address(),
                to.address(),
                count,
                dtype,
                at.communicator,
                at.stream,
            )
        })
    }

    /// Joins `from` of all ranks, and gives each its part; `to` may be that part of `from`.
    ///
    /// # Errors
    /// If a span is not on this rank's GPU, `from` is not as many times as long as there are ranks, NCCL
    /// does not reduce the dtype, or it refuses.
    pub fn reduce_scatter(
        &self,
        from: Span<'_>,
        to: Span<'_>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.check_lengths("reduce_scatter", from, to, (1, self.size()))?;
        let dtype = reduced(from.dtype(), op, self.library.version)?;
        self.enqueue("ncclReduceScatter", &[from, to], stream, |at| unsafe {
            // SAFETY: the spans are alive on this device, and are kept for the stream.
            (at.library.reduce_scatter)(
                from.address(),
                to.address(),
                to.elements(),
                dtype,
                op.code(),
                at.communicator,
                at.stream,
            )
        })
    }

    /// Transfers between pairs of ranks, all at once: each send needs its receive on the other rank, in
    /// the same order for each pair.
    ///
    /// # Errors
    /// If a span is not on this rank's GPU, there is no such rank, or NCCL refuses.
    pub fn exchange(&self, transfers: &[Transfer<'_>], stream: &Stream) -> Result<(), Error> {
        let spans: Vec<Span<'_>> = transfers
            .iter()
            .map(|transfer| match *transfer {
                Transfer::Send(span, _) | Transfer::Receive(span, _) => span,
            })
            .collect();
        for transfer in transfers {
            let (Transfer::Send(_, peer) | Transfer::Receive(_, peer)) = *transfer;
            self.peer(peer)?;
        }
        self.enqueue("ncclGroupEnd", &spans, stream, |at| {
            // SAFETY: the group is ended below, whatever is refused in it.
            let mut status = unsafe { (at.library.group_start)() };
            for transfer in transfers {
                let refused = transfer_one(&at, transfer);
                status = if matches!(status, SUCCESS | IN_PROGRESS) { refused } else { status };
            }
            // SAFETY: the group was started above.
            let ended = unsafe { (at.library.group_end)() };
            if matches!(status, SUCCESS | IN_PROGRESS) { ended } else { status }
        })
    }

    /// Gives a call to NCCL and waits until it has taken it.
    fn enqueue(
        &self,
        call: &str,
        spans: &[Span<'_>],
        stream: &Stream,
        run: impl FnOnce(Site<'_>) -> Status,
    ) -> Result<(), Error> {
        let queue = match stream.queue() {
            Queue::Cuda(queue) if stream.device() == self.device => *queue,
            _ => {
                let (own, other) = (self.device, stream.device());
                return Err(Error::launch(format!(
                    "NCCL: {call}: a stream of {other}, not of {own}"
                )));
            }
        };
        for span in spans {
            let device = span.buffer().device();
            if device != self.device {
                let own = self.device;
                return Err(Error::launch(format!(
                    "NCCL: {call}: values on {device}, not on {own}"
                )));
            }
            span.buffer().lend(stream);
        }
        queue.device().enter()?;
        let mut handle = self.lock();
        let communicator = self.own(&handle)?;
        let site = Site { library: self.library, communicator, stream: queue.raw().cast() };
        let status = run(site);
        queue.forget_last_launch();
        self.settle(call, &mut handle, status)
    }

    /// Whether `from` and `to` are of one dtype, and `to * times.1` as long as `from * times.0`.
    fn check_lengths(
        &self,
        name: &str,
        from: Span<'_>,
        to: Span<'_>,
        times: (usize, usize),
    ) -> Result<(), Error> {
        let fits = from.elements().checked_mul(times.0) == to.elements().checked_mul(times.1);
        if from.dtype() == to.dtype() && fits {
            return Ok(());
        }
        Err(Error::launch(format!(
            "{name} of {} elements of {} into {} of {}, among {} ranks",
            from.elements(),
            from.dtype(),
            to.elements(),
            to.dtype(),
            self.size()
        )))
    }

    fn peer(&self, rank: usize) -> Result<c_int, Error> {
        if rank < self.size() {
            return Ok(rank as c_int);
        }
        Err(Error::launch(format!("there is no rank {rank} among {}", self.size())))
    }
}

fn transfer_one(at: &Site<'_>, transfer: &Transfer<'_>) -> Status {
    match *transfer {
        Transfer::Send(span, peer) => {
            let (count, dtype) = span.moved();
            // SAFETY: the span is alive on this device, and is kept for the stream.
            unsafe {
                let (address, peer) = (span.address(), peer as c_int);
                (at.library.send)(address, count, dtype, peer, at.communicator, at.stream)
            }
        }
        Transfer::Receive(span, peer) => {
            let (count, dtype) = span.moved();
            // SAFETY: as above.
            unsafe {
                let (address, peer) = (span.address(), peer as c_int);
                (at.library.receive)(address, count, dtype, peer, at.communicator, at.stream)
            }
        }
    }
}

//! Steps captured once and replayed as one launch: [`graph()`].
//!
//! A step of a small model is a hundred launches of a few microseconds, and the host's part of each is
//! longer than the device's. A graph is recorded at the third step of a set of shapes and replayed from
//! then on. What would stand still in a recording lies in device memory: the arguments, which are
//! copied in; where random draws begin; the numbers of optimizers, with learning rates and counters.
//!
//! What the thread notes while a step runs is in `dispatch::capture`; what the step changes on the host is a
//! [`State`].

mod state;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Device, Graph as Recorded, MemoryPool};

pub use self::state::State;
use crate::dispatch::capture::{self, Mode, Origin, Session};
use crate::error::{Error, Result};
use crate::mode::no_grad;
use crate::random::{RngState, default_generator};
use crate::tensor::{Storage, Tensor};

/// Steps of a set of shapes that run as they are before one is recorded, where nothing else is said: they compile
/// the kernels, and make what lives longer than a step.
const WARM_UP: usize = 2;

/// Makes a step that is captured as a graph, once for each set of shapes, and replayed.
///
/// `step` takes what it changes on the host (see [`State`]) and the arguments of [`Graph::call`], and
/// gives tensors. On the CPU, which has no graphs, it runs at each call; its promises are the same.
///
/// What the step may not do: read a value on the host, move a tensor from one device to another, or draw
/// random numbers from another than the default generator. A branch on the host is taken as it was when
/// the step was captured.
///
/// # Examples
/// ```
/// use genesis::nn::{Linear, Module};
/// use genesis::optim::{AdamW, AdamWOptions, Optimizer};
/// use genesis::ops::Reduction;
/// use genesis::{Tensor, graph};
///
/// let model = Linear::new(8, 3, ())?;
/// let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
/// let mut step = graph(|optimizer: &mut AdamW, args| {
///     optimizer.zero_grad();
///     let loss = model.forward(&args[0])?.cross_entropy(&args[1], Reduction::Mean)?;
///     loss.backward()?;
///     optimizer.step()?;
///     Ok(vec![loss.detach()])
/// });
/// let mut losses = Vec::new();
/// for number in 0..4 {
///     let x = Tensor::full(&[5, 8], 0.1, ())?;
///     let y = Tensor::from_slice(&[0i64, 1, 2, 0, 1], &[5])?;
///     optimizer.set_lrs(&[0.01 / (1.0 + f64::from(number))]);
///     losses.push(step.call(&mut optimizer, &[&x, &y])?.remove(0).item()?);
/// }
/// assert!(losses[3] < losses[0]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn graph<S, F>(step: F) -> Graph<S, F>
where
    S: State,
    F: FnMut(&mut S, &[Tensor]) -> Result<Vec<Tensor>>,
{
    let (buckets, pool) = (Vec::new(), MemoryPool::new());
    let (warm_up, most, calls) = (WARM_UP, usize::MAX, 0);
    let (compares, lends, device, state) = (false, false, None, PhantomData);
    Graph { step, buckets, compares, lends, warm_up, most, device, calls, state, pool }
}

/// A step made by [`graph()`].
pub struct Graph<S, F> {
    step: F,
    buckets: Vec<Bucket>,
    compares: bool,
    lends: bool,
    /// Steps of a set of shapes that run as they are.
    warm_up: usize,
    /// The most recordings that are kept.
    most: usize,
    /// The device that arguments of the host are for.
    device: Option<Device>,
    /// Calls so far.
    calls: u64,
    state: PhantomData<fn(&mut S)>,
    /// What the recordings allocate comes from here: what one frees, it and the others use again. It is
    /// given back after them.
    pool: MemoryPool,
}

/// What is known of one set of shapes.
struct Bucket {
    signature: Vec<(Vec<usize>, DType)>,
    device: Device,
    runs: usize,
    /// The number of the last call.
    last: u64,
    cells: Option<Tensor>,
    capture: Option<Capture>,
}

/// A recording and what it points to.
struct Capture {
    graph: Recorded,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    origins: Vec<Origin>,
    /// Draws of one step.
    draws: u64,
    _held: Vec<Arc<Storage>>,
}

impl<S, F> fmt::Debug for Graph<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("captures", &self.captures()).finish_non_exhaustive()
    }
}

impl<S, F> Graph<S, F> {
    /// How many sets of shapes are captured.
    pub fn captures(&self) -> usize {
        self.buckets.iter().filter(|bucket| bucket.capture.is_some()).count()
    }

    /// Has each replay compared with the step run op by op, for finding out what a step does that a
    /// graph can't: from the same tensors (those of the [`State`]) and random draws both must come to
    /// the same bits.
    pub fn compare(mut self, compares: bool) -> Graph<S, F> {
        self.compares = compares;
        self
    }

    /// Has calls give the recording's own results in the place of copies: the next call of the same shapes
    /// writes over them.
    pub(crate) fn lend(mut self, lends: bool) -> Graph<S, F> {
        self.lends = lends;
        self
    }

    /// Has so many steps of each set of shapes run as they are: one is enough for what has no optimizer.
    pub(crate) fn warm_up(mut self, steps: usize) -> Graph<S, F> {
        self.warm_up = steps;
        self
    }

    /// Has no more than so many recordings kept, those that were called last.
    pub(crate) fn keep(mut self, most: usize) -> Graph<S, F> {
        self.most = most;
        self
    }

    /// Has arguments come from memory of the host to a device: a replay copies them to where it reads them, which spares
    /// a launch for each.
    pub(crate) fn fed_by_host(mut self, device: Device) -> Graph<S, F> {
        self.device = Some(device);
        self
    }

    /// Whether no call had arguments of such shapes and dtypes.
    pub(crate) fn is_new(&self, args: &[(&[usize], DType)]) -> bool {
        !self.buckets.iter().any(|bucket| bucket.is_of(args.iter().copied()))
    }

    /// Forgets the recordings that were called longest ago, so that there is room for one more.
    fn make_room(&mut self) {
        while self.captures() >= self.most.max(1) {
            let captured = self.buckets.iter_mut().filter(|bucket| bucket.capture.is_some());
            let Some(oldest) = captured.min_by_key(|bucket| bucket.last) else { return };
            oldest.capture = None;
        }
    }
}

impl Bucket {
    /// Whether it is that of arguments of such shapes and dtypes.
    fn is_of<'a>(&self, mut args: impl Iterator<Item = (&'a [usize], DType)>) -> bool {
        let is_own =
            |(shape, dtype): &(Vec<usize>, DType)| args.next() == Some((&shape[..], *dtype));
        self.signature.iter().all(is_own) && args.next().is_none()
    }
}

impl<S, F> Graph<S, F>
where
    S: State,
    F: FnMut(&mut S, &[Tensor]) -> Result<Vec<Tensor>>,
{
    /// Runs the step, or replays it. What it gives is the caller's: no later replay writes to it.
    ///
    /// # Errors
    /// As the step; if it does what can't be captured, with the place where it does; or where a
    /// comparison fails.
    pub fn call(&mut self, state: &mut S, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let bucket = self.bucket(args)?;
        self.calls += 1;
        let warm_up = self.warm_up;
        let Bucket { device, runs, .. } = self.buckets[bucket];
        self.buckets[bucket].runs += 1;
        self.buckets[bucket].last = self.calls;
        if runs >= warm_up && device == Device::Cpu {
            return self.run(Mode::Plain, bucket, state, args);
        }
        if runs < warm_up {
            return self.run(Mode::Warm, bucket, state, args);
        }
        if self.buckets[bucket].capture.is_none() {
            self.make_room();
            let values = self.capture(bucket, state, args)?;
            return self.replay(bucket, args, &values);
        }
        if self.compares {
            return self.replay_and_compare(bucket, state, args);
        }
        let values = self.next_values(bucket, state)?;
        self.replay(bucket, args, &values)
    }

    fn bucket(&mut self, args: &[&Tensor]) -> Result<usize> {
        let first = args.first().map_or_else(Device::default, |t| t.device());
        let device = self.device.unwrap_or(first);
        if let Some(other) = args.iter().find(|t| t.device() != first) {
            let message = format!("arguments are on {first} and {}", other.device());
            return Err(Error::op("graph", message));
        }
        if args.iter().any(|t| t.requires_grad()) {
            let message = "an argument requires a gradient, which would go to a copy of it";
            return Err(Error::op("graph", message));
        }
        let is_own = |bucket: &Bucket| {
            bucket.device == device && bucket.is_of(args.iter().map(|t| (t.shape(), t.dtype())))
        };
        if let Some(index) = self.buckets.iter().position(is_own) {
            return Ok(index);
        }
        let signature = args.iter().map(|t| (t.shape().to_vec(), t.dtype())).collect();
        self.buckets.push(Bucket {
            signature,
            device,
            runs: 0,
            last: 0,
            cells: None,
            capture: None,
        });
        Ok(self.buckets.len() - 1)
    }

    /// Runs the step with arguments of these shapes in a rehearsal: see [`genesis_kernel::compile_ahead`].
    pub(crate) fn rehearse(&mut self, state: &mut S, args: &[&Tensor]) -> Result<()> {
        let bucket = self.bucket(args)?;
        genesis_kernel::launch_at_once(|| self.cells(bucket))?;
        self.run(Mode::Warm, bucket, state, args).map(drop)
    }

    /// Runs the step as it is.
    fn run(
        &mut self,
        mode: Mode,
        bucket: usize,
        state: &mut S,
        args: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let cells = self.cells(bucket)?;
        let device = self.buckets[bucket].device;
        let own = args.iter().map(|t| t.detach().to_device_non_blocking(device));
        let own = own.collect::<Result<Vec<Tensor>>>()?;
        let start = default_generator().state();
        Ok(capture::run(mode, Some(&cells), start, || (self.step)(state, &own))?.1)
    }

    fn cells(&mut self, bucket: usize) -> Result<Tensor> {
        let Bucket { cells, device, .. } = &mut self.buckets[bucket];
        match cells {
            Some(cells) => Ok(cells.clone()),
            None => {
                Ok(cells.insert(Tensor::zeros(&[capture::CELLS], (DType::I64, *device))?).clone())
            }
        }
    }

    /// Records the step; gives the values of its first replay.
    fn capture(&mut self, bucket: usize, state: &mut S, args: &[&Tensor]) -> Result<Vec<u64>> {
        let cells = self.cells(bucket)?;
        let device = self.buckets[bucket].device;
        let copy = |t: &&Tensor| Tensor::empty(t.shape(), (t.dtype(), device));
        let inputs = args.iter().map(copy).collect::<Result<Vec<_>>>()?;
        let stream = device.stream();
        // The launches of the step have made what they keep; nothing may be waited for from here on.
        stream.synchronize()?;
        let start = default_generator().state();
        let mut noted: Option<(Session, Vec<Tensor>)> = None;
        let graph = Recorded::capture(&stream, || {
            let step = || (self.step)(state, &inputs);
            let run = || capture::run(Mode::Record, Some(&cells), start, step);
            noted = Some(self.pool.scope(run)?);
            Ok::<(), Error>(())
        })?;
        let (session, outputs) = noted.expect("a capture that succeeds ran its step");
        let draws = default_generator().state().offset.wrapping_sub(start.offset);
        let Session { origins, values, held: _held, .. } = session;
        self.buckets[bucket].capture =
            Some(Capture { graph, inputs, outputs, origins, draws, _held });
        Ok(values)
    }

    /// What the cells hold in the next replay: the optimizers count a step, the generator moves on.
    fn next_values(&mut self, bucket: usize, state: &mut S) -> Result<Vec<u64>> {
        let capture = self.buckets[bucket].capture.as_ref().expect("it was captured");
        let start = default_generator().take(capture.draws as usize);
        let (numbers, ()) =
            capture::run(Mode::Replay, None, start, || no_grad(|| state.advance()))?;
        values(&capture.origins, start, &numbers)
    }

    fn replay(&mut self, bucket: usize, args: &[&Tensor], values: &[u64]) -> Result<Vec<Tensor>> {
        let cells = self.cells(bucket)?;
        let capture = self.buckets[bucket].capture.as_ref().expect("it was captured");
        no_grad(|| {
            if !values.is_empty() {
                capture::write(&cells, values)?;
            }
            for (own, given) in capture.inputs.iter().zip(args) {
                match given.device() == own.device() {
                    true => own.copy_(&given.detach())?,
                    false => own.receive(given)?,
                }
            }
            // SAFETY: the capture holds every storage that its work uses, and only this replays it.
            unsafe { capture.graph.launch()? };
            let own = |t: &Tensor| if self.lends { Ok(t.detach()) } else { t.detach().copy() };
            capture.outputs.iter().map(own).collect()
        })
    }

    fn replay_and_compare(
        &mut self,
        bucket: usize,
        state: &mut S,
        args: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let copies = |state: &S| no_grad(|| state.tensors().iter().map(Tensor::copy).collect());
        let (before, rng): (Result<Vec<Tensor>>, RngState) =
            (copies(state), default_generator().state());
        let before = before?;
        let values = self.next_values(bucket, state)?;
        let replayed = self.replay(bucket, args, &values)?;
        let after: Vec<Tensor> = copies(state)?;
        no_grad(|| state.tensors().iter().zip(&before).try_for_each(|(t, old)| t.copy_(old)))?;
        state.rewind();
        default_generator().set_state(rng);
        let expected = self.run(Mode::Plain, bucket, state, args)?;
        for (number, (own, wanted)) in replayed.iter().zip(&expected).enumerate() {
            same(&format!("result {number}"), own, wanted)?;
        }
        for (number, (own, wanted)) in after.iter().zip(state.tensors()).enumerate() {
            same(&format!("tensor {number} of the state"), own, &wanted)?;
        }
        Ok(replayed)
    }
}

/// The values of a replay's cells.
fn values(origins: &[Origin], start: RngState, numbers: &Session) -> Result<Vec<u64>> {
    let mut used = vec![false; numbers.values.len()];
    let mut value = |origin: &Origin| match *origin {
        Origin::Seed => Ok(start.seed),
        Origin::Draw(draws) => Ok(start.offset.wrapping_add(draws)),
        Origin::Optimizer(_) => {
            let next = (0..used.len()).find(|&i| !used[i] && numbers.origins[i] == *origin);
            let Some(next) = next else {
                let message = "an optimizer of the step is not in the state that the call was given, \
                               or steps other parameters than when it was captured";
                return Err(Error::op("graph", message));
            };
            used[next] = true;
            Ok(numbers.values[next])
        }
    };
    let values = origins.iter().map(&mut value).collect::<Result<Vec<_>>>()?;
    if used.iter().all(|&used| used) {
        return Ok(values);
    }
    let message = "the state has an optimizer that the captured step does not step";
    Err(Error::op("graph", message))
}

/// Refuses tensors of other bits.
fn same(what: &str, replayed: &Tensor, expected: &Tensor) -> Result<()> {
    let (own, wanted) = (replayed.to_bytes()?, expected.to_bytes()?);
    if own == wanted {
        return Ok(());
    }
    let bytes = replayed.dtype().bytes();
    let differs = |(a, b): (&[u8], &[u8])| a != b;
    let place = own.chunks(bytes).zip(wanted.chunks(bytes)).position(differs).unwrap_or(0);
    let at = |t: &Tensor| t.to_f64_vec().map(|values| values.get(place).copied());
    let (a, b) = (at(replayed)?.unwrap_or(f64::NAN), at(expected)?.unwrap_or(f64::NAN));
    let message = format!(
        "{what} is not what the ops come to: element {place} is {a} in the replay and {b} op by op"
    );
    Err(Error::op("graph", message))
}

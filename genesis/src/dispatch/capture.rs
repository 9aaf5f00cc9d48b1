//! Graph capture: what a thread records while a step is captured, or replayed.
//!
//! Numbers that change from step to step, such as a learning rate or where random draws begin, can't be
//! arguments of launches that are recorded: they lie in *cells*, eight bytes of device memory each, which
//! kernels read. Each is listed with whom to ask for its next value.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::Arc;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::{Arg, PtrArg};

use super::rng_state::RngState;
use crate::error::{Error, Result};
use crate::tensor::{Storage, Tensor};

/// Cells of one graph.
pub(crate) const CELLS: usize = 4096;

/// How a step runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// As it would anyway, but that it may not read on the host.
    Plain,
    /// With its numbers in cells, which are written as they are used.
    Warm,
    /// Not at all: it is recorded.
    Record,
    /// Only optimizers run, for their numbers.
    Replay,
}

/// Who knows a cell's next value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The default generator: its seed.
    Seed,
    /// The default generator: so many draws after the step's first.
    Draw(u64),
    /// The optimizer of this number, in the order in which it gives them.
    Optimizer(u64),
}

/// What was noted.
pub(crate) struct Session {
    mode: Mode,
    start: RngState,
    cells: Option<Tensor>,
    pub(crate) origins: Vec<Origin>,
    /// The cells' bits; of a replay, those of the optimizers alone.
    pub(crate) values: Vec<u64>,
    /// What the recorded launches point to outside of the graph's own memory.
    pub(crate) held: Vec<Arc<Storage>>,
    /// Their addresses.
    known: BTreeSet<*const Storage>,
    problem: Option<Error>,
}

thread_local! {
    static MODE: Cell<Option<Mode>> = const { Cell::new(None) };
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Runs a step in a mode; gives what was noted.
pub(crate) fn run<T>(
    mode: Mode,
    cells: Option<&Tensor>,
    start: RngState,
    f: impl FnOnce() -> Result<T>,
) -> Result<(Session, T)> {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            MODE.set(None);
            SESSION.set(None);
        }
    }
    if MODE.get().is_some() {
        return Err(Error::op("graph", "a graph is called in the step of another"));
    }
    let cells = cells.cloned();
    let (origins, values) = (Vec::new(), Vec::new());
    let (held, known, problem) = (Vec::new(), BTreeSet::new(), None);
    let session = Session { mode, start, cells, origins, values, held, known, problem };
    SESSION.set(Some(session));
    MODE.set(Some(mode));
    let _off = Off;
    let result = f();
    let session = SESSION.take().expect("nothing ends the session but this");
    match session.problem {
        // It is the cause of what the step says.
        Some(problem) => Err(problem),
        None => Ok((session, result?)),
    }
}

/// Whether numbers go to cells.
#[inline]
pub(crate) fn has_cells() -> bool {
    matches!(MODE.get(), Some(Mode::Warm | Mode::Record))
}

/// Whether launches are recorded.
#[inline]
pub(crate) fn is_recording() -> bool {
    MODE.get() == Some(Mode::Record)
}

fn with<T>(f: impl FnOnce(&mut Session) -> T) -> Option<T> {
    SESSION.with_borrow_mut(|session| session.as_mut().map(f))
}

/// Keeps memory that a recorded launch points to. The graph's own is kept by its pool, where others use it
/// once it is freed, as they did when it was recorded.
#[inline]
pub(crate) fn hold(storage: &Arc<Storage>) {
    if is_recording() {
        hold_outside(storage);
    }
}

#[cold]
fn hold_outside(storage: &Arc<Storage>) {
    if storage.buffer().is_of_current_pool() {
        return;
    }
    with(|session| {
        if session.known.insert(Arc::as_ptr(storage)) {
            session.held.push(storage.clone());
        }
    });
}

/// Refuses what the host may not do in a step that is to be replayed.
#[track_caller]
pub(crate) fn check(what: &str) -> Result<()> {
    if MODE.get().is_none() {
        return Ok(());
    }
    let at = Location::caller();
    Err(Error::op(
        "graph",
        format!(
            "{what} at {}:{}: a step that is captured runs on the device alone; do it outside of \
             the step, on what the step gives back",
            at.file(),
            at.line()
        ),
    ))
}

/// Refuses something that is only noticed where no error can be given.
pub(crate) fn refuse(message: &str) {
    if has_cells() {
        let error = Error::op("graph", message);
        with(|session| {
            session.problem.get_or_insert(error);
        });
    }
}

/// Numbers of an optimizer: in cells where they have to be; none where nothing is launched, for only
/// the numbers are asked for.
pub(crate) fn numbers(owner: u64, args: Vec<Arg>) -> Result<Option<Vec<Arg>>> {
    match MODE.get() {
        None | Some(Mode::Plain) => Ok(Some(args)),
        Some(Mode::Replay) => {
            with(|session| {
                for arg in &args {
                    if let Arg::Scalar(scalar) = arg {
                        session.origins.push(Origin::Optimizer(owner));
                        session.values.push(scalar.bits);
                    }
                }
            });
            Ok(None)
        }
        Some(Mode::Warm | Mode::Record) => {
            let place = |arg: Arg| match arg {
                Arg::Scalar(scalar) => cell(Origin::Optimizer(owner), scalar),
                Arg::Ptr(_) | Arg::View(_) | Arg::Views(_) => Ok(arg),
            };
            args.into_iter().map(place).collect::<Result<_>>().map(Some)
        }
    }
}

/// Seed and offset of a draw, in cells.
pub(crate) fn draw(state: RngState) -> Result<[Arg; 2]> {
    let start = with(|session| session.start).unwrap_or(state);
    if start.seed != state.seed || state.offset < start.offset {
        let message = "a random draw that was prepared before the step is made in it";
        return Err(Error::op("graph", message));
    }
    let seed = Scalar { dtype: DType::U64, bits: state.seed };
    let offset = Scalar { dtype: DType::I64, bits: state.offset };
    let draws = state.offset - start.offset;
    Ok([cell(Origin::Seed, seed)?, cell(Origin::Draw(draws), offset)?])
}

/// A new cell with a value.
fn cell(origin: Origin, value: Scalar) -> Result<Arg> {
    let made = with(|session| {
        let index = session.values.len();
        let Some(cells) = session.cells.clone().filter(|_| index < CELLS) else {
            let message = format!("a step has more than {CELLS} numbers that change");
            return Err(Error::op("graph", message));
        };
        session.origins.push(origin);
        session.values.push(value.bits);
        Ok((cells, index, session.mode))
    });
    let (cells, index, mode) =
        made.unwrap_or_else(|| Err(Error::op("graph", "a cell is asked for outside of a step")))?;
    if mode == Mode::Warm {
        cells.storage().buffer().write(8 * index, &value.bits.to_le_bytes())?;
    }
    let address = cells.address() + 8 * index as u64;
    let (device, dtype) = (cells.device(), value.dtype);
    Ok(Arg::Ptr(PtrArg { device, address, bytes: 8, dtype, mutable: false }))
}

/// Writes the values of a replay to the cells.
pub(crate) fn write(cells: &Tensor, values: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(cells.storage().buffer().write(0, &bytes)?)
}

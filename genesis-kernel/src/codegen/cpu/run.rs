//! Running a compiled kernel: programs of a launch as tasks on the threads of the CPU.

use super::super::llvm::Jit;
use super::lower::SYMBOL;
use crate::Error;
use crate::ir::{ArgValue, DType, Elem, Func, OpKind, Param, TileType, Type, Value};
use crate::runtime::cpu::{Failed, HostCode, Print};
use crate::runtime::threads_here;

/// Work of one task, in estimated nanoseconds, below which handing it to another thread costs more than
/// it gives. A program of plain arithmetic takes about a quarter of its estimate.
const TASK_NANOS: u64 = 12_000;

/// Work of one task, in estimated nanoseconds, from which on a thread has more tasks than one.
const FINE_TASK_NANOS: u64 = 200_000;

/// The most tasks for each thread, so that a slow one does not keep the others waiting.
const TASKS_PER_THREAD: u64 = 8;

/// A kernel's machine code before it is linked: all that its compilation leaves behind.
pub(crate) struct CpuObject {
    /// The object file.
    pub(crate) code: Vec<u8>,
    /// Memory that each thread needs for it.
    pub(crate) scratch_bytes: u64,
    /// What one program takes, as estimated.
    pub(crate) nanos: u64,
    /// What assertions say, by their numbers.
    pub(crate) messages: Vec<String>,
    /// Print ops by their numbers.
    pub(crate) prints: Vec<Print>,
}

impl CpuObject {
    pub(super) fn new(func: &Func, code: Vec<u8>, scratch_bytes: u64) -> CpuObject {
        let (mut messages, mut prints) = (Vec::new(), Vec::new());
        for op in func.walk() {
            let data = func.op(op);
            match &data.kind {
                OpKind::Assert { message } => {
                    let place = data.loc.map(|l| format!("{}:{}: ", l.file, l.line));
                    messages.push(format!("{}{message}", place.unwrap_or_default()));
                }
                OpKind::Print { format } => prints.push(Print {
                    format: format.clone(),
                    operands: data.operands.iter().map(|&v| func.tile(v)).collect(),
                }),
                _ => {}
            }
        }
        CpuObject { code, scratch_bytes, nanos: estimate(func), messages, prints }
    }
}

/// A kernel as machine code of this processor. It can be run from several threads at once.
pub struct CpuKernel {
    name: String,
    /// The words of each parameter, which its name stands beside.
    params: Vec<(String, Slot)>,
    code: HostCode,
    nanos: u64,
    messages: Vec<String>,
    /// What owns the code.
    _jit: Jit,
}

impl std::fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CpuKernel {
    /// Links the machine code of a function into this process. `func` may be the function before or after its
    /// passes: a view has the same words as the parameters that a pass makes of it.
    ///
    /// # Errors
    /// If the object is not one of this processor.
    pub(crate) fn link(func: &Func, object: CpuObject) -> Result<CpuKernel, Error> {
        let jit = Jit::link(&object.code)?;
        let code = jit.kernel(SYMBOL, object.scratch_bytes as usize, object.prints)?;
        let slots = |p: &Param| {
            let name = p.name.to_string();
            slots_of(func.ty(p.value)).into_iter().map(move |slot| (name.clone(), slot))
        };
        let params = func.params.iter().flat_map(slots).collect();
        let (nanos, messages) = (object.nanos, object.messages);
        Ok(CpuKernel { name: func.name.clone(), params, code, nanos, messages, _jit: jit })
    }

    /// Bytes of scratch memory that each thread keeps for this kernel.
    pub fn scratch_bytes(&self) -> usize {
        self.code.scratch_bytes()
    }

    /// Runs one program for each point of the grid and waits for all of them.
    ///
    /// # Safety
    /// Addresses in `args` must be valid for what the kernel reads and writes there, views must lie inside
    /// memory, and no other code may use it meanwhile.
    /// # Errors
    /// If the arguments do not fit the parameters, or a `device_assert` failed.
    pub unsafe fn run(&self, args: &[ArgValue], grid: [u32; 3]) -> Result<(), Error> {
        // SAFETY: the slots match the parameters; the caller's promise is the same.
        unsafe { self.run_slots(&self.slots(args)?, grid) }
    }

    /// As [`CpuKernel::run`], with one word for each flattened parameter.
    ///
    /// # Safety
    /// As [`CpuKernel::run`]; the words must be the parameters in order.
    /// # Errors
    /// If a `device_assert` failed.
    pub(crate) unsafe fn run_slots(&self, slots: &[u64], grid: [u32; 3]) -> Result<(), Error> {
        let total = grid.iter().map(|&n| u128::from(n)).product::<u128>();
        let total = i64::try_from(total)
            .map_err(|_| Error::launch(format!("{}: the grid is too large", self.name)))?;
        if total == 0 {
            return Ok(());
        }
        let per_task = self.programs_per_task(total);
        // SAFETY: the code lives as long as this; the caller's promise is the same.
        let failed = unsafe { self.code.run(slots, grid, (total, per_task))? };
        self.report(failed)
    }

    fn programs_per_task(&self, total: i64) -> i64 {
        let threads = threads_here() as u64;
        if threads == 1 {
            return total;
        }
        let nanos = (total as u64).saturating_mul(self.nanos);
        let tasks = tasks(nanos, threads);
        i64::try_from((total as u64).div_ceil(tasks)).unwrap_or(total)
    }

    fn report(&self, failed: Failed) -> Result<(), Error> {
        match failed {
            None => Ok(()),
            Some((number, program)) => {
                let message = self.messages.get(number as usize).map_or("", String::as_str);
                let name = &self.name;
                Err(Error::launch(format!(
                    "{name}: assertion failed in program {program}: {message}"
                )))
            }
        }
    }

    /// The arguments as generated code reads them. A view stands for its address, extents and strides,
    /// also where a pass has made those parameters of their own.
    fn slots(&self, args: &[ArgValue]) -> Result<Vec<u64>, Error> {
        let (name, wanted) = (&self.name, &self.params);
        let given: Vec<(Slot, u64)> = args.iter().flat_map(words_of).collect();
        if wanted.len() != given.len() {
            let (wanted, given) = (wanted.len(), given.len());
            return Err(Error::launch(format!(
                "{name}: the arguments have {given} parts, the parameters {wanted}"
            )));
        }
        let wrong = wanted.iter().zip(&given).find(|((_, wanted), (given, _))| wanted != given);
        match wrong {
            None => Ok(given.into_iter().map(|(_, word)| word).collect()),
            Some(((param, wanted), (given, _))) => Err(Error::launch(format!(
                "{name}: argument `{param}` should be {wanted}, it is {given}"
            ))),
        }
    }
}

/// The tasks to cut a launch of so many estimated nanoseconds into: as many as pay, where these are few;
/// the same number for each thread, where they are more.
///
/// Each thread costs the caller about as much as a task is worth, for it is woken and the memory moves to its
/// core. `k` threads need `nanos / k + k * TASK_NANOS`, which is least at a square root: on 16 cores a chain of
/// ops of 64K elements takes 0.13 ms; with a thread for every task that pays alone it would be 0.16 ms.
fn tasks(nanos: u64, threads: u64) -> u64 {
    let alone = nanos / TASK_NANOS;
    let that_pay = alone.isqrt().max(alone.clamp(1, 2));
    if that_pay <= threads {
        return that_pay;
    }
    threads * (nanos / FINE_TASK_NANOS / threads).clamp(1, TASKS_PER_THREAD)
}

/// What one 8-byte slot of the arguments holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Address,
    Number(DType),
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Slot::Address => f.write_str("an address"),
            Slot::Number(dtype) => dtype.fmt(f),
        }
    }
}

fn slots_of(ty: Type) -> Vec<Slot> {
    match ty {
        Type::Tile(TileType { elem: Elem::Ptr(_), .. }) => vec![Slot::Address],
        Type::Tile(TileType { elem: Elem::Data(dtype), .. }) => vec![Slot::Number(dtype)],
        Type::View { rank, .. } => {
            let numbers = [Slot::Number(DType::I64)].into_iter().cycle().take(2 * rank as usize);
            [Slot::Address].into_iter().chain(numbers).collect()
        }
    }
}

fn words_of(arg: &ArgValue) -> Vec<(Slot, u64)> {
    match arg {
        ArgValue::Ptr(address) => vec![(Slot::Address, *address)],
        ArgValue::Scalar(scalar) => vec![(Slot::Number(scalar.dtype), scalar.bits)],
        ArgValue::View { ptr, dims, strides } => {
            let numbers = dims.iter().chain(strides);
            let numbers = numbers.map(|&n| (Slot::Number(DType::I64), n as u64));
            [(Slot::Address, *ptr)].into_iter().chain(numbers).collect()
        }
    }
}

/// A guess of what one program takes, in nanoseconds: elements of all tiles, a vector at a time; loops
/// count as a few iterations.
fn estimate(func: &Func) -> u64 {
    let numel = |v: Value| func.ty(v).as_tile().map_or(1, |t| t.shape.numel() as u64);
    let mut ops = 20;
    let mut nested = 0;
    for op in func.walk() {
        let data = func.op(op);
        let size = data.operands.iter().chain(&data.results).map(|&v| numel(v)).max();
        let mut work = size.unwrap_or(1).div_ceil(8);
        if let OpKind::Dot { .. } = data.kind {
            work *= func.tile(data.operands[0]).shape.extents().last().map_or(1, |&k| k as u64);
        }
        nested += u64::from(data.kind.is_loop());
        ops += work;
    }
    (ops / 4 * (1 + 7 * nested)).max(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_launches_stay_whole_and_larger_ones_are_cut_evenly() {
        assert_eq!(tasks(10, 4), 1);
        assert_eq!(tasks(2 * TASK_NANOS - 1, 4), 1);
        assert_eq!(tasks(2 * TASK_NANOS, 4), 2);
        assert_eq!(tasks(8 * TASK_NANOS, 4), 2);
        assert_eq!(tasks(9 * TASK_NANOS, 4), 3);
        assert_eq!(tasks(25 * TASK_NANOS, 4), 4);
        assert_eq!(tasks(13 * FINE_TASK_NANOS, 4), 12);
        assert_eq!(tasks(u64::MAX, 4), 4 * TASKS_PER_THREAD);
    }
}

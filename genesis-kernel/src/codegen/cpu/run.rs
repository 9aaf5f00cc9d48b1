//! Running a compiled kernel: programs of a launch as tasks on the threads of the CPU.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::super::llvm::Jit;
use super::{OptLevel, SYMBOL};
use crate::Error;
use crate::ir::{DType, Elem, Func, OpKind, Scalar, TileType, Type, Value};
use crate::kernel::ArgValue;
use crate::runtime::{share, threads_here};

/// Work of one task, in estimated nanoseconds, below which handing it to another thread costs more than
/// it gives. A program of plain arithmetic takes about a quarter of its estimate.
const TASK_NANOS: u64 = 12_000;

/// Work of one task, in estimated nanoseconds, from which on a thread has more tasks than one.
const FINE_TASK_NANOS: u64 = 200_000;

/// The most tasks for each thread, so that a slow one does not keep the others waiting.
const TASKS_PER_THREAD: u64 = 8;

type Entry = unsafe extern "C" fn(*const u64, *const i64, i64, i64, *mut u8);

/// A kernel as machine code of this processor. It can be run from several threads at once.
pub struct CpuKernel {
    func: Func,
    opt: OptLevel,
    entry: Entry,
    scratch_bytes: usize,
    nanos: u64,
    messages: Vec<String>,
    prints: Vec<Print>,
    _jit: Jit,
}

/// A print op: its text and what its operands are.
struct Print {
    format: String,
    operands: Vec<TileType>,
}

impl std::fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuKernel").field("name", &self.func.name).finish_non_exhaustive()
    }
}

/// What generated code calls back to. The functions stand first: code finds them by offset.
#[repr(C)]
pub(super) struct Host<'k> {
    assert: unsafe extern "C" fn(*const Host<'_>, i64, i64),
    print: unsafe extern "C" fn(*const Host<'_>, i64, i64, *const *const u8),
    kernel: &'k CpuKernel,
    failed: Mutex<Option<(i64, i64)>>,
}

unsafe extern "C" fn on_assert(host: *const Host<'_>, number: i64, program: i64) {
    // SAFETY: code gets the address from `run`, which keeps the host alive.
    let host = unsafe { &*host };
    let mut failed = host.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if failed.is_none_or(|(_, first)| program < first) {
        *failed = Some((number, program));
    }
}

unsafe extern "C" fn on_print(
    host: *const Host<'_>,
    number: i64,
    _program: i64,
    list: *const *const u8,
) {
    // SAFETY: code gets the address from `run`, which keeps the host alive.
    let host = unsafe { &*host };
    let Some(print) = host.kernel.prints.get(number as usize) else { return };
    let mut text = print.format.clone();
    for (i, &tile) in print.operands.iter().enumerate() {
        // SAFETY: the list has one address for each operand, of all of its elements.
        let shown = unsafe { show(tile, *list.add(i)) };
        text = text.replacen("{}", &shown, 1);
    }
    println!("{text}");
}

/// The elements of a printed operand: a scalar as it is, a tile in brackets.
///
/// # Safety
/// `data` has all elements of the tile.
unsafe fn show(tile: TileType, data: *const u8) -> String {
    let bytes = if tile.is_ptr() { 8 } else { tile.dtype().bytes() };
    let element = |i: usize| {
        // SAFETY: `i` is below the number of elements.
        let raw = unsafe { std::slice::from_raw_parts(data.add(i * bytes), bytes) };
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(raw);
        let bits = u64::from_le_bytes(word);
        match tile.dtype() {
            _ if tile.is_ptr() => format!("{bits:#x}"),
            DType::Bool => (bits != 0).to_string(),
            dtype if dtype.is_float() => Scalar { dtype, bits }.to_f64().to_string(),
            DType::U64 => bits.to_string(),
            dtype => Scalar::int(dtype, bits as i64).to_i64().to_string(),
        }
    };
    if tile.shape.is_scalar() {
        return element(0);
    }
    let all: Vec<String> = (0..tile.shape.numel()).map(element).collect();
    format!("[{}]", all.join(", "))
}

/// Memory of one thread, which grows and is kept; 64-byte aligned.
struct Scratch {
    start: NonNull<u8>,
    layout: Layout,
}

impl Scratch {
    fn new(bytes: usize) -> Result<Scratch, Error> {
        let layout = Layout::from_size_align(bytes.max(64), 64)
            .map_err(|_| Error::out_of_memory(format!("{bytes} bytes of scratch")))?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or_else(|| Error::out_of_memory(format!("{bytes} bytes of scratch")))?;
        Ok(Scratch { start, layout })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Runs `body` with this thread's scratch of at least so many bytes.
fn with_scratch(bytes: usize, body: impl FnOnce(*mut u8)) -> Result<(), Error> {
    // Taken out while it is used, so that a kernel that runs inside another's callback gets its own.
    let kept = SCRATCH.with(|slot| slot.borrow_mut().take());
    let scratch = match kept {
        Some(scratch) if scratch.layout.size() >= bytes => scratch,
        _ => Scratch::new(bytes)?,
    };
    body(scratch.start.as_ptr());
    SCRATCH.with(|slot| *slot.borrow_mut() = Some(scratch));
    Ok(())
}

impl CpuKernel {
    pub(super) fn new(
        func: &Func,
        opt: OptLevel,
        jit: Jit,
        scratch_bytes: u64,
    ) -> Result<CpuKernel, Error> {
        let address = jit.address(SYMBOL)?;
        // SAFETY: `lower` wrote the function with this signature.
        let entry = unsafe { std::mem::transmute::<usize, Entry>(address as usize) };
        let mut messages = Vec::new();
        let mut prints = Vec::new();
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
        Ok(CpuKernel {
            nanos: estimate(func),
            func: func.clone(),
            opt,
            entry,
            scratch_bytes: scratch_bytes as usize,
            messages,
            prints,
            _jit: jit,
        })
    }

    /// LLVM IR as it was handed to LLVM's passes, made again from the tile IR.
    ///
    /// # Errors
    /// Only for bugs.
    pub fn llvm_ir(&self) -> Result<String, Error> {
        super::llvm_ir(&self.func, self.opt)
    }

    /// The processor's assembly, made again from the tile IR.
    ///
    /// # Errors
    /// Only for bugs.
    pub fn assembly(&self) -> Result<String, Error> {
        super::assembly(&self.func, self.opt)
    }

    /// Bytes of scratch memory that each thread keeps for this kernel.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Runs one program for each point of the grid and waits for all of them.
    ///
    /// The caller promises what the kernel's own accesses need: that addresses in `args` are valid for
    /// them, and that no other code uses the memory meanwhile.
    ///
    /// # Errors
    /// If the arguments do not fit the parameters, or a `device_assert` failed.
    pub fn run(&self, args: &[ArgValue], grid: [u32; 3]) -> Result<(), Error> {
        self.run_slots(&self.slots(args)?, grid)
    }

    /// As [`CpuKernel::run`], with one word for each flattened parameter, which the caller checked.
    ///
    /// # Errors
    /// If a `device_assert` failed.
    pub(crate) fn run_slots(&self, slots: &[u64], grid: [u32; 3]) -> Result<(), Error> {
        let total = grid.iter().map(|&n| u128::from(n)).product::<u128>();
        let total = i64::try_from(total)
            .map_err(|_| Error::launch(format!("{}: the grid is too large", self.func.name)))?;
        if total == 0 {
            return Ok(());
        }
        let host =
            Host { assert: on_assert, print: on_print, kernel: self, failed: Mutex::new(None) };
        let [x, y, z] = grid.map(i64::from);
        let words = [x, y, z, &raw const host as i64, 0];
        let task = |begin: i64, end: i64| {
            with_scratch(self.scratch_bytes, |scratch| {
                // SAFETY: the slots match the parameters, scratch is as large as the code asked for,
                // and the host outlives the call.
                unsafe { (self.entry)(slots.as_ptr(), words.as_ptr(), begin, end, scratch) }
            })
        };
        let per_task = self.programs_per_task(total);
        if per_task >= total {
            task(0, total)?;
        } else {
            let n_tasks = (total + per_task - 1) / per_task;
            let one = |i| {
                let begin = i as i64 * per_task;
                task(begin, (begin + per_task).min(total))
            };
            let refused = Mutex::new(None);
            share(n_tasks as usize, |i| {
                if let Err(error) = one(i) {
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
            if let Some(error) = refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
        }
        self.report(&host)
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

    fn report(&self, host: &Host<'_>) -> Result<(), Error> {
        let failed = *host.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match failed {
            None => Ok(()),
            Some((number, program)) => {
                let message = self.messages.get(number as usize).map_or("", String::as_str);
                let name = &self.func.name;
                Err(Error::launch(format!(
                    "{name}: assertion failed in program {program}: {message}"
                )))
            }
        }
    }

    /// The arguments as generated code reads them. A view stands for its address, extents and strides,
    /// also where a pass has made those parameters of their own.
    fn slots(&self, args: &[ArgValue]) -> Result<Vec<u64>, Error> {
        let name = &self.func.name;
        let wanted: Vec<(&str, Slot)> = self
            .func
            .params
            .iter()
            .flat_map(|p| slots_of(self.func.ty(p.value)).into_iter().map(|s| (&*p.name, s)))
            .collect();
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
        nested += u64::from(matches!(data.kind, OpKind::For(_) | OpKind::While));
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

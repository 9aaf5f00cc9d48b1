//! Machine code of this processor: how it is called, and what it calls back.
//!
//! All that is unsafe about running a kernel on the CPU is here. Code is a function over words: one for each
//! flattened parameter, the grid and the host's record, a range of programs, and memory of the thread.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::share;
use crate::diag::Error;
use crate::ir::{DType, Scalar, TileType};
use crate::printed;

/// The function that generated code is: parameters, words of the launch, the first program and the one
/// behind the last, scratch memory.
pub(crate) type Entry = unsafe extern "C" fn(*const u64, *const i64, i64, i64, *mut u8);

/// Code with what it needs to run. It can be run from several threads at once.
pub(crate) struct HostCode {
    entry: Entry,
    scratch_bytes: usize,
    prints: Vec<Print>,
}

/// A print op: its text and what its operands are.
pub(crate) struct Print {
    pub(crate) format: String,
    pub(crate) operands: Vec<TileType>,
}

/// An assertion that failed: its number, and the first program of those in which it did.
pub(crate) type Failed = Option<(i64, i64)>;

/// What generated code calls back to. The functions stand first: code finds them by offset.
#[repr(C)]
struct Host<'k> {
    assert: unsafe extern "C" fn(*const Host<'_>, i64, i64),
    print: unsafe extern "C" fn(*const Host<'_>, i64, i64, *const *const u8),
    prints: &'k [Print],
    failed: Mutex<Failed>,
}

unsafe extern "C" fn on_assert(host: *const Host<'_>, number: i64, program: i64) {
    // SAFETY: code gets the address from `run`, which keeps the host alive.
    let host = unsafe { &*host };
    let mut failed = host.failed.lock().unwrap_or_else(PoisonError::into_inner);
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
    let Some(print) = host.prints.get(number as usize) else { return };
    // SAFETY: the list has one address for each operand, of all of its elements.
    let shown = |(i, &tile): (usize, &TileType)| unsafe { show(tile, *list.add(i)) };
    let shown: Vec<String> = print.operands.iter().enumerate().map(shown).collect();
    printed::line(&printed::text(&print.format, &shown));
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

impl HostCode {
    /// # Safety
    /// The function takes what [`Entry`] says, of so many bytes of scratch memory; it prints by the numbers
    /// of `prints`, whose operands these are.
    pub(crate) unsafe fn new(entry: Entry, scratch_bytes: usize, prints: Vec<Print>) -> HostCode {
        HostCode { entry, scratch_bytes, prints }
    }

    /// Bytes of scratch memory that each thread keeps for it.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Runs `total` programs of a grid, so many in a task, and waits for all of them.
    ///
    /// # Safety
    /// The code must be there still, the words be what it takes, and addresses among them valid for what it
    /// does.
    /// # Errors
    /// If there is no scratch memory.
    pub(crate) unsafe fn run(
        &self,
        words: &[u64],
        grid: [u32; 3],
        (total, per_task): (i64, i64),
    ) -> Result<Failed, Error> {
        let prints = &self.prints[..];
        let host = Host { assert: on_assert, print: on_print, prints, failed: Mutex::new(None) };
        let [x, y, z] = grid.map(i64::from);
        let launch = [x, y, z, &raw const host as i64, 0];
        let task = |begin: i64, end: i64| {
            with_scratch(self.scratch_bytes, |scratch| {
                // SAFETY: the words match the parameters, as the caller says; scratch is as large as the
                // code asked for, and the host outlives the call.
                unsafe { (self.entry)(words.as_ptr(), launch.as_ptr(), begin, end, scratch) }
            })
        };
        if per_task >= total {
            task(0, total)?;
        } else {
            let n_tasks = (total + per_task - 1) / per_task;
            let refused = Mutex::new(None);
            share(n_tasks as usize, |i| {
                let begin = i as i64 * per_task;
                if let Err(error) = task(begin, (begin + per_task).min(total)) {
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
            if let Some(error) = refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
        }
        Ok(host.failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Copies bytes of this process's memory.
///
/// # Safety
/// As many bytes must be there, and nobody write them meanwhile.
pub(crate) unsafe fn read_host(address: u64, target: &mut [u8]) {
    let source = address as usize as *const u8;
    // SAFETY: the caller's promise is the same.
    unsafe { std::ptr::copy(source, target.as_mut_ptr(), target.len()) }
}

/// Overwrites bytes of this process's memory.
///
/// # Safety
/// As many bytes must be there, and nobody use them meanwhile.
pub(crate) unsafe fn write_host(address: u64, source: &[u8]) {
    let target = address as usize as *mut u8;
    // SAFETY: the caller's promise is the same.
    unsafe { std::ptr::copy(source.as_ptr(), target, source.len()) }
}

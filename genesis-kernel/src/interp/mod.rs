//! The interpreter of tile IR: what a kernel means, and the oracle for both back ends.
//!
//! It runs programs one after the other, element by element, with the scalar semantics of
//! [`crate::ir::scalar`], and stops at what the language calls an error, with the program, the user's
//! line, the buffer and the index:
//!
//! * an access outside its buffer, a misaligned one, a write to a read-only buffer, a read of memory
//!   that nothing has written (where a buffer is marked so);
//! * a race between programs: two touch one element, one of them writes, and not both are atomic;
//! * a race within one: two lanes of one store write different values to one element (equal values are
//!   fine, and so is all that other ops of the program do: its accesses keep program order);
//! * a false `device_assert!`, a false promise (`multiple_of`), a loop that does not end.
//!
//! Addresses are made up: each buffer lies in the middle of its own 2^40 bytes, so that an index that
//! runs off one buffer never lands in another.
//!
//! Orders that change bits are fixed, and the CPU back end keeps them too: a reduction along the last
//! axis by an op goes over `L = min(64, largest power of two <= n)` lanes, lane `j` taking elements
//! `j, j + L, ..` in order, then lanes `i` and `i + L/2` until one is left; every other reduction and
//! every scan goes element by element from index 0 (a reverse scan from the end); `dot` is
//! `acc = fma(a_k, b_k, acc)` for k in order, in the accumulator's dtype.
//!
//! ```
//! use genesis_kernel::interp::{InterpArg, run_func};
//! use genesis_kernel::ir::{DType, parse};
//!
//! let func = parse("kernel twice(%x: *i32) {
//!     %0 = program_id 0 : i64
//!     %1 = ptr_add %x, %0 : *i32
//!     %2 = load %1 : i32
//!     %3 = add %2, %2 : i32
//!     store %1, %3
//!     return
//! }")?;
//! let x = [1_i32, 2, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
//! let after = run_func(&func, [3, 1, 1], vec![InterpArg::BufferMut(DType::I32, x)])?;
//! assert_eq!(after[0][4..8], 4_i32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod combine;
mod elementwise;
mod error;
mod machine;
mod memory;
mod run_func;
#[cfg(test)]
mod tests;
mod tiles;

pub use error::{InterpError, InterpErrorKind};
pub use run_func::run_func;

pub use crate::ir::InterpArg;

use crate::ir::{ArgValue, DType, Func, Param, ParamAttrs, Scalar, Type, verify};
pub(crate) use machine::Machine;
use machine::Slot;
#[cfg(test)]
pub(crate) use machine::stepwise::Elements;
use memory::Memory;

/// Op executions that a program may use before a loop counts as endless.
const DEFAULT_FUEL: u64 = 1 << 26;

/// Runs one function over buffers that it owns.
#[derive(Debug)]
pub struct Interpreter<'f> {
    func: &'f Func,
    verified: Result<(), String>,
    memory: Memory,
    fuel: u64,
    prints: Vec<String>,
}

impl<'f> Interpreter<'f> {
    /// An interpreter without buffers.
    pub fn new(func: &'f Func) -> Interpreter<'f> {
        Interpreter {
            func,
            verified: verify(func),
            memory: Memory::default(),
            fuel: DEFAULT_FUEL,
            prints: Vec::new(),
        }
    }

    /// Adds memory and gives its address, for arguments.
    pub fn add_buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        data: Vec<u8>,
        writable: bool,
    ) -> u64 {
        self.memory.add(name.into(), dtype, data, writable)
    }

    /// Makes reads of a buffer errors until something is written there.
    pub fn mark_uninitialised(&mut self, ptr: u64) {
        self.memory.mark_uninitialised(ptr);
    }

    /// What a buffer holds now; empty for an address that is no buffer's start.
    pub fn buffer(&self, ptr: u64) -> &[u8] {
        self.memory.bytes(ptr)
    }

    /// Limits the op executions of each program.
    pub fn set_fuel(&mut self, fuel: u64) {
        self.fuel = fuel;
    }

    /// What `device_print!` wrote so far, a line each.
    pub fn prints(&self) -> &[String] {
        &self.prints
    }

    /// Runs the programs of a grid, axis 0 fastest.
    ///
    /// # Errors
    /// If arguments do not fit the parameters or break their promises, or at the first error of a
    /// program; see the top of this module.
    pub fn run(&mut self, grid: [u32; 3], args: &[ArgValue]) -> Result<(), InterpError> {
        self.verified.clone().map_err(|e| InterpErrorKind::Invalid(e).before_any_program())?;
        let slots = self.slots(args).map_err(InterpErrorKind::before_any_program)?;
        let programs = grid.iter().map(|&n| u128::from(n)).product::<u128>();
        if programs >= u128::from(u32::MAX) {
            let message = format!("a grid of {grid:?} is more than the interpreter runs");
            return Err(InterpErrorKind::Argument(message).before_any_program());
        }
        self.memory.start_run();
        let mut machine =
            Machine::new(self.func, &mut self.memory, &mut self.prints, self.fuel, grid);
        for program in 0..programs as u32 {
            machine.run_program(program, &slots)?;
        }
        Ok(())
    }

    fn slots(&self, args: &[ArgValue]) -> Result<Vec<Slot>, InterpErrorKind> {
        let params = &self.func.params;
        if args.len() != params.len() {
            let message = format!("{} arguments for {} parameters", args.len(), params.len());
            return Err(InterpErrorKind::Argument(message));
        }
        params.iter().zip(args).map(|(param, arg)| self.slot(param, arg)).collect()
    }

    fn slot(&self, param: &Param, arg: &ArgValue) -> Result<Slot, InterpErrorKind> {
        let ty = self.func.ty(param.value);
        let promise = check_promises(&param.attrs, arg);
        let slot = match (ty, arg) {
            (Type::Tile(ty), ArgValue::Ptr(ptr)) if ty.is_ptr() => Some(Slot::scalar(*ptr)),
            (Type::Tile(ty), ArgValue::Scalar(Scalar { dtype, bits }))
                if !ty.is_ptr() && ty.dtype() == *dtype =>
            {
                Some(Slot::scalar(*bits))
            }
            (Type::View { rank, .. }, ArgValue::View { ptr, dims, strides })
                if dims.len() == rank as usize && strides.len() == rank as usize =>
            {
                Some(Slot::view(*ptr, dims, strides))
            }
            _ => None,
        };
        let Some(slot) = slot else {
            let message = format!("`{}` is {ty}, the argument is {arg:?}", param.name);
            return Err(InterpErrorKind::Argument(message));
        };
        promise.map_err(|e| InterpErrorKind::Argument(format!("`{}` {e}", param.name)))?;
        Ok(slot)
    }
}

/// Whether an argument is what the attributes say; a kernel compiled for them relies on it.
fn check_promises(attrs: &ParamAttrs, arg: &ArgValue) -> Result<(), String> {
    let multiple = |what: &str, value: u64, n: u64| {
        let holds = n <= 1 || value.is_multiple_of(n);
        if holds { Ok(()) } else { Err(format!("has {what} {value:#x}, no multiple of {n}")) }
    };
    match arg {
        ArgValue::Ptr(ptr) => multiple("the address", *ptr, attrs.multiple_of),
        ArgValue::Scalar(scalar) if scalar.dtype.is_float() => Ok(()),
        ArgValue::Scalar(scalar) => {
            let magnitude = if scalar.dtype.is_signed_int() {
                scalar.to_i64().unsigned_abs()
            } else {
                scalar.bits
            };
            multiple("the value", magnitude, attrs.multiple_of)
        }
        ArgValue::View { ptr, dims, strides } => {
            multiple("the address", *ptr, attrs.multiple_of)?;
            let Some(last) = strides.len().checked_sub(1) else { return Ok(()) };
            // The stride of an axis of extent 1 is only ever multiplied by 0.
            if attrs.unit_stride && strides[last] != 1 && dims[last] > 1 {
                return Err(format!("has the stride {} along the last axis, not 1", strides[last]));
            }
            let is_zero = |axis: Option<usize>| axis.is_none_or(|axis| strides[axis] == 0);
            let zeros =
                [(attrs.zero_stride, Some(last)), (attrs.zero_row_stride, last.checked_sub(1))];
            if zeros.into_iter().any(|(promised, axis)| promised && !is_zero(axis)) {
                return Err(format!("has the strides {strides:?}, not 0 where that was promised"));
            }
            let fits = |n: i64, bits: u32| (0..1 << bits).contains(&n);
            let is_narrow =
                dims.iter().all(|&n| fits(n, 30)) && strides.iter().all(|&n| fits(n, 31));
            if attrs.narrow && !is_narrow {
                return Err(format!(
                    "has {dims:?} elements, not all in 0..2^30, in steps of {strides:?}, not all in 0..2^31"
                ));
            }
            let unit = attrs.unit_axis.map_or(last, usize::from);
            if attrs.unit_axis.is_some() && strides.get(unit) != Some(&1) {
                return Err(format!("has the strides {strides:?}, not 1 along axis {unit}"));
            }
            let mut others =
                strides.iter().enumerate().filter(|&(axis, _)| axis != unit && dims[axis] > 1);
            others.try_for_each(|(_, s)| {
                multiple("a stride", s.unsigned_abs(), attrs.stride_multiple_of)
            })
        }
    }
}

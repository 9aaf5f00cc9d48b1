//! One op at a time, for interpreters of lower IRs, which say themselves what runs when.

use std::rc::Rc;

use super::{Machine, Slot};
use crate::interp::{InterpErrorKind, Interpreter};
use crate::ir::{DType, Func, Op, Value};

/// Elements of a tile, row-major.
pub(crate) type Elements = Rc<Vec<u64>>;

impl<'f> Interpreter<'f> {
    /// Runs ops of a function over the buffers that were added.
    pub(crate) fn stepwise<'r>(&'r mut self, func: &'r Func, grid: [u32; 3]) -> Machine<'r> {
        Machine::new(func, &mut self.memory, &mut self.prints, self.fuel, grid)
    }
}

impl Machine<'_> {
    /// Begins a program, with one number for each parameter.
    pub(crate) fn begin(&mut self, program: u32, slots: &[u64]) {
        self.program = program;
        self.memory.start_program();
        for (param, &bits) in self.func.params.iter().zip(slots) {
            self.values[param.value.index()] = Some(Slot::scalar(bits));
        }
    }

    /// Runs an op that is no control flow.
    pub(crate) fn run_op(&mut self, op: Op) -> Result<(), String> {
        let data = self.func.op(op);
        if let Some(missing) = data.operands.iter().find(|&&v| self.elements(v).is_none()) {
            return Err(format!("%{} is not known yet", missing.0));
        }
        self.current = Some(op);
        let results = self.plain(&data.kind, data).map_err(|kind| self.error(kind).to_string())?;
        self.set_all(&data.results, results.into_iter().map(Rc::new));
        Ok(())
    }

    /// A tile's elements, if it has some.
    pub(crate) fn elements(&self, value: Value) -> Option<Elements> {
        match &self.values[value.index()] {
            Some(Slot::Tile(bits)) => Some(bits.clone()),
            _ => None,
        }
    }

    /// Gives a tile its elements.
    pub(crate) fn set_elements(&mut self, value: Value, elements: Elements) {
        self.set(value, elements);
    }

    /// Reads an element of global memory.
    pub(crate) fn read(&mut self, address: u64, dtype: DType) -> Result<u64, String> {
        let read = self.memory.load(address, dtype, self.program);
        read.map_err(|kind: InterpErrorKind| self.error(kind).to_string())
    }

    /// Writes an element of global memory.
    pub(crate) fn write(&mut self, address: u64, dtype: DType, bits: u64) -> Result<(), String> {
        self.memory.start_store();
        let written = self.memory.store(address, dtype, bits, self.program);
        written.map_err(|kind: InterpErrorKind| self.error(kind).to_string())
    }

    /// Makes reads of these buffers errors, or right again.
    pub(crate) fn hide(&mut self, buffers: &[u64], hidden: bool) {
        for &buffer in buffers {
            match hidden {
                true => self.memory.mark_uninitialised(buffer),
                false => self.memory.mark_initialised(buffer),
            }
        }
    }
}

//! One launch for many tensors; what the kernels are told is in [`kernels::many`].

use std::collections::VecDeque;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::knobs;
use genesis_kernel::runtime::{Arg, Device, PtrArg};
use genesis_kernel::tuning::elementwise::Flat;
use kernels::many::ROW;

use super::config::chip;
use super::{base, launch_with, pointer};
use crate::error::Result;
use crate::tensor::Tensor;

/// Blocks that a program works on, one after the other.
const BLOCKS: usize = 4;
/// Neighbours that may be accessed at once where all tensors lie well.
const WIDTH: i64 = 8;
/// Tables that are kept. Those of the groups of an optimizer come back in every step.
const KEPT: usize = 64;

/// How tensors are cut into the shares of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    block: usize,
    chunk: usize,
    warps: Option<u32>,
}

impl Cut {
    /// For tensors whose widest elements have this many bytes.
    pub(crate) fn new(device: Device, bytes: usize) -> Cut {
        let Flat { block, warps } = Flat::of_many(&chip(device), bytes);
        Cut { block, chunk: BLOCKS * block, warps }
    }

    /// Elements that a program works on at a time.
    pub(crate) fn block(self) -> usize {
        self.block
    }

    /// Where the programs of each tensor begin, and how many there are.
    pub(crate) fn starts(self, tensors: &[Tensor]) -> Vec<i64> {
        let mut starts = vec![0];
        for tensor in tensors {
            let last = starts[starts.len() - 1];
            starts.push(last + tensor.numel().div_ceil(self.chunk) as i64);
        }
        starts
    }

    /// The programs of all tensors.
    pub(crate) fn programs(self, tensors: &[Tensor]) -> usize {
        tensors.iter().map(|tensor| tensor.numel().div_ceil(self.chunk)).sum()
    }

    /// Which tensor program number `program` works on.
    pub(crate) fn row(self, tensors: &[Tensor], program: usize) -> usize {
        let starts = self.starts(tensors);
        starts.iter().rposition(|&start| start <= program as i64).unwrap_or(0)
    }

    /// The row and the first element of each program.
    fn chunks(self, tensors: &[Tensor]) -> Vec<i64> {
        let mut chunks = Vec::new();
        for (row, tensor) in tensors.iter().enumerate() {
            for first in (0..tensor.numel()).step_by(self.chunk) {
                chunks.extend([row as i64, first as i64]);
            }
        }
        chunks
    }
}

/// One operand of a kernel: that of every tensor, or nothing where the kernel's constants leave it out.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'t> {
    Read(&'t [Tensor]),
    Write(&'t [Tensor]),
    Absent(DType),
}

impl<'t> Operand<'t> {
    fn tensors(self) -> Option<&'t [Tensor]> {
        match self {
            Operand::Read(tensors) | Operand::Write(tensors) => Some(tensors),
            Operand::Absent(_) => None,
        }
    }

    /// The operand of tensor number `index` alone.
    fn only(self, index: usize) -> Operand<'t> {
        match self {
            Operand::Read(tensors) => Operand::Read(&tensors[index..=index]),
            Operand::Write(tensors) => Operand::Write(&tensors[index..=index]),
            Operand::Absent(dtype) => Operand::Absent(dtype),
        }
    }
}

/// Tables in device memory that were used lately, so that one that did not change is not sent again.
#[derive(Debug)]
pub(crate) struct Tables {
    kept: VecDeque<(Device, Vec<i64>, Tensor)>,
}

impl Tables {
    /// None yet.
    pub(crate) const fn new() -> Tables {
        Tables { kept: VecDeque::new() }
    }

    /// The tensor that `make` gives the values of, where `key` says what they are.
    pub(crate) fn get(
        &mut self,
        device: Device,
        key: Vec<i64>,
        make: impl FnOnce(&[i64]) -> Vec<i64>,
    ) -> Result<Tensor> {
        let is_known = |(at, known, _): &(Device, Vec<i64>, Tensor)| *at == device && *known == key;
        if let Some((_, _, table)) = self.kept.iter().find(|&entry| is_known(entry)) {
            return Ok(table.clone());
        }
        let values = make(&key);
        let table = Tensor::from_slice_on(&values, &[values.len()], device)?;
        self.kept.push_front((device, key, table.clone()));
        self.kept.truncate(KEPT);
        Ok(table)
    }
}

/// A launch over many tensors.
pub(crate) struct Many<'t> {
    pub(crate) kernel: &'static KernelDef,
    pub(crate) dtypes: &'t [DType],
    /// The constants after `BLOCK` and `WIDTH`.
    pub(crate) consts: &'t [i64],
    pub(crate) cut: Cut,
    /// Each dense, all of one device; the first is there and says how many elements the others have.
    pub(crate) operands: &'t [Operand<'t>],
    /// A number of each tensor's own, behind its distances in the table; none where the kernel reads none.
    pub(crate) numbers: &'t [i64],
    /// The arguments after the tables; the first program's number is given.
    pub(crate) rest: &'t dyn Fn(usize) -> Result<Vec<Arg>>,
}

impl Many<'_> {
    /// Launches, and counts the writes.
    pub(crate) fn run(&self, tables: &mut Tables) -> Result<()> {
        let tensors = self.operands[0].tensors().unwrap_or_default();
        if knobs::get().check_bounds {
            // The interpreter knows the memory of the arguments themselves only.
            for index in 0..tensors.len() {
                let operands: Vec<Operand> = self.operands.iter().map(|o| o.only(index)).collect();
                let numbers = self.numbers.get(index..=index).unwrap_or_default();
                self.launch(tables, &operands, numbers, self.cut.programs(&tensors[..index]))?;
            }
        } else {
            self.launch(tables, self.operands, self.numbers, 0)?;
        }
        for operand in self.operands {
            if let Operand::Write(tensors) = operand {
                tensors.iter().for_each(|tensor| tensor.storage().bump_version());
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        tables: &mut Tables,
        operands: &[Operand<'_>],
        numbers: &[i64],
        first: usize,
    ) -> Result<()> {
        let tensors = operands[0].tensors().unwrap_or_default();
        let programs = self.cut.programs(tensors);
        if programs == 0 {
            return Ok(());
        }
        let device = tensors[0].device();
        let sizes = [self.cut.chunk as i64].into_iter();
        let sizes = sizes.chain(tensors.iter().map(|tensor| tensor.numel() as i64)).collect();
        let chunks = tables.get(device, sizes, |_| self.cut.chunks(tensors))?;
        let (values, width) = rows(operands, numbers);
        let rows = tables.get(device, values, <[i64]>::to_vec)?;
        let argument = |operand: &Operand<'_>| match operand {
            Operand::Read(tensors) => pointer(&tensors[0], false),
            Operand::Write(tensors) => pointer(&tensors[0], true),
            Operand::Absent(dtype) => absent(&chunks, *dtype),
        };
        let mut args: Vec<Arg> = operands.iter().map(argument).collect();
        let chunk = Arg::Scalar(Scalar::int(DType::I64, self.cut.chunk as i64));
        args.extend([pointer(&chunks, false), pointer(&rows, false), chunk]);
        args.extend((self.rest)(first)?);
        let consts = [&[self.cut.block as i64, width], self.consts].concat();
        let (grid, warps) = (Grid::x(programs), self.cut.warps);
        launch_with(self.kernel, &tensors[0], grid, self.dtypes, &consts, warps, &args)
    }
}

/// A number of things as an argument.
pub(crate) fn count(n: usize) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, n as i64))
}

/// A pointer that is not followed.
pub(crate) fn absent(near: &Tensor, dtype: DType) -> Arg {
    Arg::Ptr(PtrArg { bytes: 0, dtype, mutable: true, ..base(near, true) })
}

/// The table of distances, and what they are all multiples of.
fn rows(operands: &[Operand<'_>], numbers: &[i64]) -> (Vec<i64>, i64) {
    let tensors = operands[0].tensors().unwrap_or_default();
    let (mut values, mut width) = (Vec::with_capacity(tensors.len() * ROW), WIDTH);
    for (index, tensor) in tensors.iter().enumerate() {
        values.push(tensor.numel() as i64);
        for operand in operands {
            let of = operand.tensors().map_or(0, |all| distance(&all[0], &all[index]));
            if of % width != 0 {
                width = 1;
            }
            values.push(of);
        }
        values.extend(numbers.get(index));
        values.resize((index + 1) * ROW, 0);
    }
    (values, width)
}

/// Elements from one tensor to another of its dtype, which may lie before it.
fn distance(from: &Tensor, to: &Tensor) -> i64 {
    (to.address().wrapping_sub(from.address()) as i64) / from.dtype().bytes() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_program() -> Result<()> {
        let cut = Cut { block: 2, chunk: 8, warps: None };
        let of = |n: usize| Tensor::zeros(&[n], (DType::F32, Device::Cpu));
        let tensors = [of(9)?, of(0)?, of(8)?];
        assert_eq!(cut.chunks(&tensors), [0, 0, 0, 8, 2, 0]);
        assert_eq!(cut.starts(&tensors), [0, 2, 2, 3]);
        assert_eq!(cut.programs(&tensors), 3);
        Ok(())
    }

    #[test]
    fn distances_count_elements() -> Result<()> {
        let flat = Tensor::zeros(&[32], (DType::F32, Device::Cpu))?;
        let parts = [flat.narrow(0, 16, 4)?, flat.narrow(0, 0, 4)?, flat.narrow(0, 17, 4)?];
        let (values, width) =
            rows(&[Operand::Write(&parts), Operand::Absent(DType::F32)], &[5, 6, 7]);
        assert_eq!(width, 1);
        assert_eq!(values[ROW..ROW + 3], [4, -16, 0]);
        assert_eq!(values[2 * ROW..2 * ROW + 5], [4, 1, 0, 7, 0]);
        assert_eq!(rows(&[Operand::Write(&parts[..2])], &[]).1, WIDTH);
        Ok(())
    }
}

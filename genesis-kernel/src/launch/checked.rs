//! `GENESIS_CHECK=bounds`: a launch goes through the interpreter, over copies of the arguments'
//! memory, and is an error where a kernel leaves that memory, where its programs or the lanes of one
//! store race (see [`crate::interp`]), or where a program runs many more ops than its arguments give it to
//! do. On a GPU too: the copies come from its memory, and what changed goes back there.

use std::ops::Range;

use crate::compile::Specialized;
use crate::diag::Error;
use crate::interp::{InterpErrorKind, Interpreter};
use crate::ir::{ArgValue, DType, Func, Value};
use crate::runtime::cpu::{read_host, write_host};
use crate::runtime::list::{bytes_of, row_len};
use crate::runtime::{Arg, PtrArg, Queue, ViewArg, from_bytes};
use crate::{knobs, printed};

/// How often a program may run each op of its kernel, whatever its arguments are.
const ITERATIONS: u64 = 1 << 16;

/// How often more for each element of the arguments and each unit of their integers.
const ITERATIONS_EACH: u64 = 4;

/// An integer above this is no count of iterations.
const MOST_COUNTED: u64 = 1 << 28;

/// Changed runs of bytes that are copied to a GPU one by one; more go back as one piece.
const MOST_RUNS: usize = 64;

/// Memory of an argument, and its copy.
struct Copied {
    ptr: PtrArg,
    /// Where the copy is in the interpreter.
    start: u64,
    /// What it was, where the kernel may write.
    before: Vec<u8>,
}

/// Runs a kernel and writes back what it wrote, if nothing was wrong.
///
/// # Safety
/// The arguments must be of the kinds that the kernel takes, on the queue's device, and the bytes that
/// they say they have must be there and not be used meanwhile.
pub(super) unsafe fn run(
    kernel: &Specialized,
    queue: &Queue,
    args: &[Arg],
    grid: [u32; 3],
) -> Result<(), Error> {
    let mut interpreter = kernel.interpreter();
    let fuel = knobs::get().check_ops.unwrap_or_else(|| allowance(&kernel.func, args));
    interpreter.set_fuel(fuel);
    let mut given = Given { queue, copies: Vec::new(), values: Vec::new(), list: None };
    for (i, (param, arg)) in kernel.func.params.iter().zip(args).enumerate() {
        // SAFETY: the caller says that the bytes are there.
        unsafe { given.add(&mut interpreter, &param.name, arg, args.get(i + 1))? };
    }
    let Given { copies, values, .. } = given;
    let result = interpreter.run(grid, &values);
    interpreter.prints().iter().for_each(|line| printed::line(line));
    result.map_err(|error| {
        let more = match error.kind {
            InterpErrorKind::Fuel { .. } => "; GENESIS_CHECK_OPS=NUMBER lets it run more",
            _ => "",
        };
        Error::launch(format!("{}: {error}{more}", kernel.func.name))
    })?;
    for Copied { ptr, start, before } in copies.iter().filter(|copied| copied.ptr.mutable) {
        // SAFETY: the caller says that the bytes are there, and that nobody uses them meanwhile.
        unsafe { write(queue, *ptr, before, interpreter.buffer(*start))? };
    }
    Ok(())
}

/// The arguments as the interpreter takes them.
struct Given<'q> {
    queue: &'q Queue,
    copies: Vec<Copied>,
    values: Vec<ArgValue>,
    /// The list whose table comes next.
    list: Option<Moved>,
}

/// Where the copies of a list's views are.
struct Moved {
    /// What their table counts from.
    from: u64,
    /// The first element of each.
    starts: Vec<u64>,
    size: usize,
}

impl Given<'_> {
    /// # Safety
    /// The bytes of the argument must be there, and those of the next one.
    unsafe fn add(
        &mut self,
        interpreter: &mut Interpreter<'_>,
        name: &str,
        arg: &Arg,
        next: Option<&Arg>,
    ) -> Result<(), Error> {
        let value = match (arg, self.list.take()) {
            (Arg::Scalar(scalar), _) => ArgValue::Scalar(*scalar),
            // SAFETY: the caller's promise is the same.
            (Arg::Ptr(ptr), _) => ArgValue::Ptr(unsafe { self.copy(interpreter, name, *ptr)? }),
            (Arg::View(table), Some(moved)) => {
                // SAFETY: as above.
                let bytes = moved.table(unsafe { read(self.queue, table.ptr)? }, table);
                of_view(interpreter.add_buffer(name, DType::I64, bytes, false), table)
            }
            (Arg::View(view), None) => {
                // SAFETY: as above.
                of_view(unsafe { self.copy_view(interpreter, name, view)? }, view)
            }
            (Arg::Views(all), _) => {
                let mut starts = Vec::new();
                // SAFETY: as above.
                let views = unsafe { views_of(self.queue, all, next)? };
                for (i, view) in views.iter().enumerate() {
                    let name = format!("{}[{i}]", name.trim_end_matches(".views"));
                    // SAFETY: the views of a list that is there are there.
                    starts.push(unsafe { self.copy_view(interpreter, &name, view)? });
                }
                let from = interpreter.add_buffer(name, all.ptr.dtype, Vec::new(), false);
                self.list = Some(Moved { from, starts, size: all.ptr.dtype.bytes() });
                of_view(from, all)
            }
        };
        self.values.push(value);
        Ok(())
    }

    /// Where the copy of an argument's memory starts.
    ///
    /// # Safety
    /// Its bytes must be there.
    unsafe fn copy(
        &mut self,
        interpreter: &mut Interpreter<'_>,
        name: &str,
        ptr: PtrArg,
    ) -> Result<u64, Error> {
        // SAFETY: the caller says so.
        let bytes = unsafe { read(self.queue, ptr)? };
        let before = if ptr.mutable { bytes.clone() } else { Vec::new() };
        let start = interpreter.add_buffer(name, ptr.dtype, bytes, ptr.mutable);
        self.copies.push(Copied { ptr, start, before });
        Ok(start)
    }

    /// Where the first element of a view is in the copy of its memory.
    ///
    /// # Safety
    /// Its bytes must be there.
    unsafe fn copy_view(
        &mut self,
        interpreter: &mut Interpreter<'_>,
        name: &str,
        view: &ViewArg,
    ) -> Result<u64, Error> {
        let back = bytes_before(view);
        let (address, bytes) = (view.ptr.address - back, view.ptr.bytes + back);
        // SAFETY: the caller says so.
        let start = unsafe { self.copy(interpreter, name, PtrArg { address, bytes, ..view.ptr })? };
        Ok(start + back)
    }
}

fn of_view(ptr: u64, view: &ViewArg) -> ArgValue {
    ArgValue::View { ptr, dims: view.dims().to_vec(), strides: view.strides().to_vec() }
}

impl Moved {
    /// The list's table for where its views are now.
    fn table(&self, mut bytes: Vec<u8>, table: &ViewArg) -> Vec<u8> {
        let row_bytes = table.dims()[1] as usize * DType::I64.bytes();
        for (row, &start) in bytes.chunks_exact_mut(row_bytes).zip(&self.starts) {
            let distance = start.wrapping_sub(self.from) as i64 / self.size as i64;
            row[..DType::I64.bytes()].copy_from_slice(&distance.to_le_bytes());
        }
        bytes
    }
}

/// The views of a list, by the table that is the argument behind what they have in common.
///
/// # Safety
/// The table must be there.
unsafe fn views_of(
    queue: &Queue,
    all: &ViewArg,
    table: Option<&Arg>,
) -> Result<Vec<ViewArg>, Error> {
    let Some(Arg::View(table)) = table else { return Err(Error::bug("a list has no table")) };
    // SAFETY: the caller's promise is the same.
    let numbers: Vec<i64> = from_bytes(unsafe { read(queue, table.ptr)? });
    let rank = usize::from(all.rank);
    let view = |row: &[i64]| {
        let distance = row[0].wrapping_mul(all.ptr.dtype.bytes() as i64);
        let ptr = PtrArg { address: all.ptr.address.wrapping_add_signed(distance), ..all.ptr };
        let (dims, strides) = row[1..].split_at(rank);
        let mut view = ViewArg::new(ptr, dims, strides)?;
        let end = bytes_of(&view).map_or(ptr.address, |(_, end)| end);
        view.ptr.bytes = end - ptr.address;
        Some(view)
    };
    let views = numbers.chunks_exact(row_len(rank)).map(view).collect::<Option<_>>();
    views.ok_or_else(|| Error::bug("a list's table has rows of another length"))
}

/// Bytes of a view before its first element: those that negative strides lead to.
fn bytes_before(view: &ViewArg) -> u64 {
    if view.dims().contains(&0) {
        return 0;
    }
    let axes = view.dims().iter().zip(view.strides());
    let back = axes.map(|(&dim, &stride)| (dim - 1) as u64 * stride.min(0).unsigned_abs());
    back.sum::<u64>() * view.ptr.dtype.bytes() as u64
}

/// Ops that one program may run: in proportion to what the kernel has to work on.
fn allowance(func: &Func, args: &[Arg]) -> u64 {
    let elements = |ptr: &PtrArg| ptr.bytes / ptr.dtype.bytes() as u64;
    let work = |arg: &Arg| match arg {
        Arg::Ptr(ptr) => elements(ptr),
        // A view may show one element many times.
        Arg::View(view) => {
            let all = view.dims().iter().fold(1u64, |n, &dim| n.saturating_mul(dim as u64));
            elements(&view.ptr).max(all.min(MOST_COUNTED))
        }
        Arg::Views(all) => elements(&all.ptr),
        Arg::Scalar(scalar) if scalar.dtype.is_int() => {
            scalar.to_i64().unsigned_abs().min(MOST_COUNTED)
        }
        Arg::Scalar(_) => 0,
    };
    let tile = |value: &Value| func.ty(*value).as_tile().map_or(1, |tile| tile.shape.numel());
    let ops = func.walk();
    // A region that reduces runs for each element.
    let largest = ops.iter().flat_map(|&op| &func.op(op).operands).map(tile).max().unwrap_or(1);
    let work = args.iter().map(work).fold(largest as u64, u64::saturating_add);
    let iterations = ITERATIONS.saturating_add(work.saturating_mul(ITERATIONS_EACH));
    iterations.saturating_mul(ops.len() as u64)
}

/// Where `after` differs from `before`.
fn changes(before: &[u8], after: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in before.iter().zip(after).enumerate().filter(|(_, (a, b))| a != b) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// # Safety
/// The bytes of the argument must be there.
unsafe fn read(queue: &Queue, ptr: PtrArg) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; usize::try_from(ptr.bytes).unwrap_or(0)];
    if ptr.is_nothing() {
        return Ok(bytes);
    }
    match queue {
        Queue::Cuda(stream) => stream.download(ptr.address, &mut bytes)?,
        // SAFETY: the caller says that the bytes are there.
        Queue::Cpu => unsafe { read_host(ptr.address, &mut bytes) },
        Queue::Missing(_, error) => return Err(Error::clone(error)),
    }
    Ok(bytes)
}

/// Writes what changed, and nothing else: arguments may be parts of one memory.
///
/// # Safety
/// The bytes of the argument must be there, as many as are written, and nobody may use them.
unsafe fn write(queue: &Queue, ptr: PtrArg, before: &[u8], after: &[u8]) -> Result<(), Error> {
    let runs = changes(before, after);
    match queue {
        Queue::Cuda(stream) if runs.len() <= MOST_RUNS => runs
            .into_iter()
            .try_for_each(|run| stream.upload(ptr.address + run.start as u64, &after[run])),
        Queue::Cuda(stream) => {
            // SAFETY: the caller's promise is the same.
            let mut bytes = unsafe { read(queue, ptr)? };
            runs.into_iter().for_each(|run| bytes[run.clone()].copy_from_slice(&after[run]));
            stream.upload(ptr.address, &bytes)
        }
        Queue::Cpu => {
            for run in runs {
                // SAFETY: the caller's promise is the same, and a run is inside the argument.
                unsafe { write_host(ptr.address + run.start as u64, &after[run]) };
            }
            Ok(())
        }
        Queue::Missing(_, error) => Err(Error::clone(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Hints;
    use crate::interp::InterpErrorKind;
    use crate::ir::parse;
    use crate::prelude::{Views, ViewsMut, kernel};
    use crate::runtime::{AsParam, AsPtrMut, AsView, AsViewMut, Device};

    fn kernel() -> Specialized {
        let func = parse::parse(
            "kernel twice(%x: *i32) {
                %0 = program_id 0 : i64
                %1 = ptr_add %x, %0 : *i32
                %2 = load %1 : i32
                %3 = add %2, %2 : i32
                store %1, %3
                return
            }",
        );
        Specialized::new(func.unwrap(), &[], &[], &Hints::default())
    }

    #[test]
    fn writes_come_back_and_stray_ones_are_errors() {
        let mut x = Device::Cpu.stream().upload(&[1, 2, 3]).unwrap();
        let arg = AsPtrMut::<i32>::as_arg(&&mut x).arg();
        // SAFETY: the argument is the array's.
        unsafe { run(&kernel(), &Queue::Cpu, &[arg], [3, 1, 1]).unwrap() };
        assert_eq!(x.to_vec().unwrap(), [2, 4, 6]);
        // SAFETY: as above; the fourth program is stopped before it leaves the array.
        let error =
            unsafe { run(&kernel(), &Queue::Cpu, &[arg], [4, 1, 1]) }.unwrap_err().to_string();
        let kind = InterpErrorKind::OutOfBounds { buffer: Some("x".into()), index: 3, extent: 3 };
        assert!(error.starts_with("twice: ") && error.contains(&kind.to_string()), "{error}");
        assert_eq!(x.to_vec().unwrap(), [2, 4, 6]);
    }

    fn parsed(text: &str) -> Specialized {
        Specialized::new(parse::parse(text).unwrap(), &[], &[], &Hints::default())
    }

    /// A kernel of one program over these arguments on the CPU.
    fn run_cpu(kernel: &Specialized, args: &[Arg]) -> Result<(), Error> {
        // SAFETY: the tests' arguments are those of arrays that live longer.
        unsafe { run(kernel, &Queue::Cpu, args, [1, 1, 1]) }
    }

    #[test]
    fn a_view_may_step_backwards() {
        let kernel = parsed(
            "kernel turn(%x: view<i32,2>, %y: view<i32,2>) {
                %0 = const 0 : i64
                %1 = view_load %x, %0, %0 : i32[2x3]
                view_store %y, %1, %0, %0
                return
            }",
        );
        let x = Device::Cpu.stream().upload(&[0, 1, 2, 3, 4, 5]).unwrap();
        let mut y = Device::Cpu.stream().upload(&[9; 7]).unwrap();
        let from = AsView::<i32, 2>::as_arg(&x.strided(5, [2, 3], [-3, -1]).unwrap()).arg();
        let to = AsViewMut::<i32, 2>::as_arg(&y.strided_mut(4, [2, 3], [-3, 1]).unwrap()).arg();
        run_cpu(&kernel, &[from, to]).unwrap();
        assert_eq!(y.to_vec().unwrap(), [9, 2, 1, 0, 5, 4, 3]);
    }

    /// `y = 2 x` of each view of a list, one element further where it is told to.
    #[kernel]
    fn double(x: Views<i32, 1>, y: ViewsMut<i32, 1>, ahead: i64) {
        let (from, to) = (x.at(program_id(0)), y.at(program_id(0)));
        let v = load(from.ptr() + ahead);
        to.store([0], v + v);
    }

    #[test]
    fn each_view_of_a_list_has_its_own_bounds() {
        let kernel = double::specialize(double::Consts {}, &Hints::default()).unwrap();
        let stream = Device::Cpu.stream();
        let all = stream.upload(&[1, 2, 3, 4]).unwrap();
        let (mut y, mut z) = (stream.upload(&[0; 3]).unwrap(), stream.upload(&[0; 2]).unwrap());
        let mut double = |ahead: i64| {
            let from = [all.strided(0, [2], [1]).unwrap(), all.strided(3, [2], [-1]).unwrap()];
            let mut to = [y.view_mut([3]).unwrap(), z.view_mut([2]).unwrap()];
            let (from, to) = (stream.views(&from).unwrap(), stream.views_mut(&mut to).unwrap());
            let mut args = [from.args(), AsParam::<ViewsMut<i32, 1>>::args(&to)].concat();
            args.push(Arg::Scalar(crate::ir::Scalar::int(DType::I64, ahead)));
            // SAFETY: the arguments are those of arrays that live longer.
            unsafe { run(&kernel, &Queue::Cpu, &args, [2, 1, 1]) }
        };
        double(0).unwrap();
        // The array goes on behind the first view, and the list does not.
        let error = double(2).unwrap_err().to_string();
        let kind =
            InterpErrorKind::OutOfBounds { buffer: Some("x[0]".into()), index: 2, extent: 2 };
        assert!(error.contains(&kind.to_string()), "{error}");
        assert_eq!((y.to_vec().unwrap(), z.to_vec().unwrap()), (vec![2, 0, 0], vec![8, 0]));
    }

    #[test]
    fn views_of_one_memory_keep_what_the_others_write() {
        let kernel = parsed(
            "kernel both(%x: view<i32,1>, %y: view<i32,1>) {
                %0 = const 0 : i64
                %1 = iota : i64[3]
                %2 = cast %1 : i32[3]
                %3 = neg %2 : i32[3]
                view_store %x, %2, %0
                view_store %y, %3, %0
                return
            }",
        );
        let mut all = Device::Cpu.stream().upload(&[7; 6]).unwrap();
        let even = AsViewMut::<i32, 1>::as_arg(&all.strided_mut(0, [3], [2]).unwrap()).arg();
        let odd = AsViewMut::<i32, 1>::as_arg(&all.strided_mut(1, [3], [2]).unwrap()).arg();
        run_cpu(&kernel, &[even, odd]).unwrap();
        assert_eq!(all.to_vec().unwrap(), [0, 0, 1, -1, 2, -2]);
    }

    #[test]
    fn an_endless_program_is_an_error() {
        let kernel = parsed(
            "kernel endless(%x: *i32) {
                %0 = const true : bool
                while { yield %0 } do () { yield }
                return
            }",
        );
        let mut x = Device::Cpu.stream().upload(&[1, 2, 3]).unwrap();
        let arg = AsPtrMut::<i32>::as_arg(&&mut x).arg();
        let error = run_cpu(&kernel, &[arg]).unwrap_err().to_string();
        let ops = 5 * (ITERATIONS + ITERATIONS_EACH * 4);
        let why = format!("the program does not seem to end: it ran {ops} ops; GENESIS_CHECK_OPS=");
        assert!(error.contains(&why), "{error}");
    }

    #[test]
    fn a_long_loop_that_its_arguments_ask_for_ends() {
        let kernel = parsed(
            "kernel count(%x: *i64, %n: i64) {
                %0 = const 0 : i64
                %1 = const 1 : i64
                %2 = for %3 = %0 to %n step %1 carry (%4 = %0) {
                    %5 = add %4, %1 : i64
                    yield %5
                } : i64
                store %x, %2
                return
            }",
        );
        let mut x = Device::Cpu.stream().upload(&[0i64]).unwrap();
        let n = Arg::Scalar(crate::ir::Scalar::int(crate::ir::DType::I64, 200_000));
        let arg = AsPtrMut::<i64>::as_arg(&&mut x).arg();
        run_cpu(&kernel, &[arg, n]).unwrap();
        assert_eq!(x.to_vec().unwrap(), [200_000]);
    }

    #[test]
    fn lanes_that_race_are_named() {
        let kernel = parsed(
            "kernel meet(%x: *i32) {
                %0 = iota : i64[2]
                %1 = cast %0 : i32[2]
                %2 = broadcast %x : *i32[2]
                store %2, %1
                return
            }",
        );
        let mut x = Device::Cpu.stream().upload(&[5]).unwrap();
        let arg = AsPtrMut::<i32>::as_arg(&&mut x).arg();
        let error = run_cpu(&kernel, &[arg]).unwrap_err().to_string();
        let why = "a race: two lanes of this store write different values to index 0 of `x`";
        assert_eq!(error, format!("meet: `store` in program [0, 0, 0]: {why}"));
        assert_eq!(x.to_vec().unwrap(), [5]);
    }
}

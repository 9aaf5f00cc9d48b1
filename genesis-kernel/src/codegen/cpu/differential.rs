//! The same kernel on the interpreter and as machine code at both levels: equal memory, bit for bit.

use super::{OptLevel, linked};
use crate::interp::Interpreter;
use crate::ir::{ArgValue, DType, Func, Scalar, print};
use crate::passes;

/// An argument with its memory.
#[derive(Clone, Debug)]
pub(crate) enum TestArg {
    /// Memory behind a pointer.
    Buffer {
        /// What it holds.
        dtype: DType,
        /// Its bytes.
        data: Vec<u8>,
        /// Whether the kernel may write it.
        writable: bool,
    },
    /// A number.
    Number(Scalar),
    /// A tensor.
    View {
        /// What it holds.
        dtype: DType,
        /// Its bytes.
        data: Vec<u8>,
        /// Whether the kernel may write it.
        writable: bool,
        /// Extents.
        dims: Vec<i64>,
        /// Strides in elements.
        strides: Vec<i64>,
    },
}

/// Memory between and around buffers that no kernel may touch, filled with a pattern.
const GUARD: usize = 256;

fn pieces(args: &[TestArg]) -> Vec<(DType, Vec<u8>, bool)> {
    args.iter()
        .filter_map(|arg| match arg {
            TestArg::Buffer { dtype, data, writable }
            | TestArg::View { dtype, data, writable, .. } => {
                Some((*dtype, data.clone(), *writable))
            }
            TestArg::Number(_) => None,
        })
        .collect()
}

fn values(args: &[TestArg], addresses: &[u64]) -> Vec<ArgValue> {
    let mut next = addresses.iter().copied();
    let mut address = || next.next().expect("one address for each buffer");
    args.iter()
        .map(|arg| match arg {
            TestArg::Buffer { .. } => ArgValue::Ptr(address()),
            TestArg::Number(scalar) => ArgValue::Scalar(*scalar),
            TestArg::View { dims, strides, .. } => {
                ArgValue::View { ptr: address(), dims: dims.clone(), strides: strides.clone() }
            }
        })
        .collect()
}

/// Views as the parameters that passes make of them.
fn flat(args: Vec<ArgValue>) -> Vec<ArgValue> {
    let number = |&n: &i64| ArgValue::Scalar(Scalar::int(DType::I64, n));
    args.into_iter()
        .flat_map(|arg| match arg {
            ArgValue::View { ptr, dims, strides } => {
                let numbers = dims.iter().chain(&strides).map(number);
                [ArgValue::Ptr(ptr)].into_iter().chain(numbers).collect()
            }
            other => vec![other],
        })
        .collect()
}

fn interpret(func: &Func, args: &[TestArg], grid: [u32; 3]) -> Result<Vec<Vec<u8>>, String> {
    let mut interpreter = Interpreter::new(func);
    let addresses: Vec<u64> = (0..)
        .zip(pieces(args))
        .map(|(i, (dtype, data, writable)): (usize, _)| {
            interpreter.add_buffer(format!("b{i}"), dtype, data, writable)
        })
        .collect();
    interpreter.run(grid, &flat(values(args, &addresses))).map_err(|error| error.to_string())?;
    Ok(addresses.iter().map(|&a| interpreter.buffer(a).to_vec()).collect())
}

fn execute(
    func: &Func,
    args: &[TestArg],
    grid: [u32; 3],
    opt: OptLevel,
) -> Result<Vec<Vec<u8>>, String> {
    let kernel = linked(func, opt).map_err(|error| error.to_string())?;
    let mut memory: Vec<Vec<u64>> = Vec::new();
    let mut addresses = Vec::new();
    let pieces = pieces(args);
    for (_, data, _) in &pieces {
        let mut words = vec![0xa5a5_a5a5_a5a5_a5a5_u64; (data.len() + 2 * GUARD).div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        bytes[GUARD..GUARD + data.len()].copy_from_slice(data);
        addresses.push(bytes[GUARD..].as_mut_ptr() as u64);
        memory.push(words);
    }
    // SAFETY: the interpreter ran the same over memory of this size without an error.
    unsafe { kernel.run(&values(args, &addresses), grid) }.map_err(|error| error.to_string())?;
    let mut after = Vec::new();
    for (words, (_, data, _)) in memory.iter().zip(&pieces) {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let (before, rest) = bytes.split_at(GUARD);
        let (inside, behind) = rest.split_at(data.len());
        let is_untouched = before.iter().chain(behind).all(|&b| b == 0xa5);
        assert!(
            is_untouched,
            "{}: wrote outside of a buffer at {opt:?}\n{}",
            func.name,
            print::print(func)
        );
        after.push(inside.to_vec());
    }
    Ok(after)
}

/// Whether two elements have the same bits, or are both NaN.
fn is_equal(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let read = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Scalar { dtype, bits: u64::from_le_bytes(word) }
    };
    a == b || dtype.is_float() && read(a).to_f64().is_nan() && read(b).to_f64().is_nan()
}

/// Runs a function all three ways after the passes of the CPU, and says where they differ.
pub(crate) fn compare(func: &Func, args: &[TestArg], grid: [u32; 3]) -> Result<(), String> {
    let mut func = passes::views::run(func).map_err(|error| error.to_string())?;
    passes::run(&mut func, passes::PIPELINE);
    passes::run(&mut func, passes::EXACT);
    let wanted = interpret(&func, args, grid)?;
    let pieces = pieces(args);
    for opt in [OptLevel::O0, OptLevel::O3] {
        let got = execute(&func, args, grid, opt)?;
        for (b, ((got, wanted), (dtype, ..))) in got.iter().zip(&wanted).zip(&pieces).enumerate() {
            let width = dtype.bytes();
            let pairs = got.chunks(width).zip(wanted.chunks(width)).enumerate();
            for (i, (got, wanted)) in pairs {
                if !is_equal(*dtype, got, wanted) {
                    let text = print::print(&func);
                    return Err(format!(
                        "{opt:?}: buffer {b} element {i} of {dtype}: {got:x?}, not {wanted:x?}\n{text}"
                    ));
                }
            }
        }
    }
    Ok(())
}

//! One call that runs a function over given data; what tests use.

use super::Interpreter;
use super::error::{InterpError, InterpErrorKind};
use crate::ir::{ArgValue, Func, InterpArg};

/// Runs a function once; gives what the memory of each argument holds afterwards, empty for a number.
///
/// # Errors
/// As [`Interpreter::run`].
pub fn run_func(
    func: &Func,
    grid: [u32; 3],
    args: Vec<InterpArg>,
) -> Result<Vec<Vec<u8>>, InterpError> {
    if args.len() != func.params.len() {
        let (n, expected) = (args.len(), func.params.len());
        let message = format!("{n} arguments for {expected} parameters");
        return Err(InterpErrorKind::Argument(message).before_any_program());
    }
    let mut interpreter = Interpreter::new(func);
    let mut starts = Vec::new();
    let mut values = Vec::new();
    for (param, arg) in func.params.iter().zip(args) {
        let (start, value) = add(&mut interpreter, &param.name, arg);
        starts.push(start);
        values.push(value);
    }
    interpreter.run(grid, &values)?;
    Ok(starts.into_iter().map(|start| interpreter.buffer(start).to_vec()).collect())
}

/// The start of the argument's memory, 0 where it has none, and the argument.
fn add(interpreter: &mut Interpreter<'_>, name: &str, arg: InterpArg) -> (u64, ArgValue) {
    match arg {
        InterpArg::Buffer(dtype, data) => {
            let start = interpreter.add_buffer(name, dtype, data, false);
            (start, ArgValue::Ptr(start))
        }
        InterpArg::BufferMut(dtype, data) => {
            let start = interpreter.add_buffer(name, dtype, data, true);
            (start, ArgValue::Ptr(start))
        }
        InterpArg::Scalar(scalar) => (0, ArgValue::Scalar(scalar)),
        InterpArg::View { dtype, data, offset, dims, strides, writable } => {
            let start = interpreter.add_buffer(name, dtype, data, writable);
            let ptr = start + (offset * dtype.bytes()) as u64;
            (start, ArgValue::View { ptr, dims, strides })
        }
    }
}

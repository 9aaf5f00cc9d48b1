//! A launch over memory of its own: how random programs run on the CPU and on GPUs.
//!
//! The memory of each argument lies between guards, which must be what they were afterwards: a stray
//! write nearby is an error here and not a surprise elsewhere.

use super::flatten;
use crate::compile::Executable;
use crate::diag::Error;
use crate::front::ast::{BlockAst, FnAst, Span};
use crate::ir::InterpArg;
use crate::runtime::cuda::Writes;
use crate::runtime::words::Words;
use crate::runtime::{Arg, Buffer, PtrArg, Queue, Stream, ViewArg};

/// Bytes on each side of an argument's memory, and what they hold.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

/// What errors call the kernel.
static RANDOM: FnAst = FnAst {
    name: "random",
    module: "genesis_kernel",
    file: "random",
    span: Span { line: 1, column: 1, end_column: 2 },
    doc: "",
    dtypes: &[],
    consts: &[],
    params: &[],
    body: &BlockAst { stmts: &[], value: None },
    contract: false,
    ret: None,
};

/// Runs code over copies of the arguments' memory; gives what each holds afterwards, empty for a number.
///
/// # Safety
/// The code must be of a function that takes these arguments, and one that the interpreter ran with them
/// without an error.
/// # Errors
/// If the device refuses, an assertion fails, or memory beside an argument's was written.
pub(crate) unsafe fn run(
    code: &Executable,
    stream: &Stream,
    grid: [u32; 3],
    args: &[InterpArg],
) -> Result<Vec<Vec<u8>>, Error> {
    let buffers = args.iter().map(|arg| guarded(stream, arg)).collect::<Result<Vec<_>, _>>()?;
    let args: Vec<Arg> = args.iter().zip(&buffers).map(|(arg, b)| placed(stream, arg, b)).collect();
    let mut words = Words::new();
    flatten(&args, &mut words);
    let slots = words.as_mut_slice();
    match (code, stream.queue()) {
        // SAFETY: the caller promises that the code takes these, and that it stays inside them.
        (Executable::Cpu(kernel), Queue::Cpu) => unsafe { kernel.run_slots(slots, grid)? },
        (Executable::Cuda(kernel), Queue::Cuda(queue)) => {
            let maps = match kernel.takes_maps() {
                true => kernel.encode_maps(&args).ok_or_else(|| Error::launch("no tensor map"))?,
                false => Default::default(),
            };
            // SAFETY: as above; the memory lives until the stream was waited for below.
            unsafe { queue.launch(kernel, &RANDOM, grid, slots, &maps, &Writes::UNKNOWN)? };
            stream.synchronize()?;
        }
        _ => return Err(Error::bug("code of another device")),
    }
    buffers.iter().map(data).collect()
}

/// The argument's memory on the device, between guards; none for a number.
fn guarded(stream: &Stream, arg: &InterpArg) -> Result<Option<Buffer>, Error> {
    if matches!(arg, InterpArg::Scalar(_)) {
        return Ok(None);
    }
    let guard = [GUARD_BYTE; GUARD];
    let bytes = [&guard[..], arg.data(), &guard[..]].concat();
    Buffer::from_bytes(stream, &bytes).map(Some)
}

/// The argument as a launch takes it.
fn placed(stream: &Stream, arg: &InterpArg, buffer: &Option<Buffer>) -> Arg {
    let ptr = |dtype, offset: usize, mutable| PtrArg {
        device: stream.device(),
        address: buffer.as_ref().map_or(0, Buffer::address) + (GUARD + offset) as u64,
        bytes: (arg.data().len() - offset) as u64,
        dtype,
        mutable,
    };
    match arg {
        InterpArg::Scalar(scalar) => Arg::Scalar(*scalar),
        InterpArg::Buffer(dtype, _) => Arg::Ptr(ptr(*dtype, 0, false)),
        InterpArg::BufferMut(dtype, _) => Arg::Ptr(ptr(*dtype, 0, true)),
        InterpArg::View { dtype, offset, dims, strides, writable, .. } => {
            let ptr = ptr(*dtype, offset * dtype.bytes(), *writable);
            Arg::View(ViewArg::new(ptr, dims, strides).expect("a view has at most 5 axes"))
        }
    }
}

/// The memory without its guards, if they stand.
fn data(buffer: &Option<Buffer>) -> Result<Vec<u8>, Error> {
    let Some(buffer) = buffer else { return Ok(Vec::new()) };
    let mut bytes = buffer.to_bytes()?;
    let end = bytes.len() - GUARD;
    let stands = |guard: &[u8]| guard.iter().all(|&byte| byte == GUARD_BYTE);
    if !stands(&bytes[..GUARD]) || !stands(&bytes[end..]) {
        return Err(Error::bug("memory beside an argument's was written"));
    }
    bytes.truncate(end);
    Ok(bytes.split_off(GUARD))
}

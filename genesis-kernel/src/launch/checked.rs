//! `GENESIS_CHECK=bounds`: a launch goes through the interpreter, over copies of the arguments'
//! memory, and is an error where a kernel leaves that memory or its programs race. On a GPU too: the
//! copies come from its memory and go back there.

use crate::diag::Error;
use crate::kernel::{ArgValue, Specialized};
use crate::runtime::{Arg, PtrArg, Queue};

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
    interpreter.set_fuel(u64::MAX);
    let mut buffers: Vec<(PtrArg, u64)> = Vec::new();
    let mut values = Vec::new();
    for (param, arg) in kernel.func.params.iter().zip(args) {
        let mut buffer = |ptr: PtrArg| -> Result<u64, Error> {
            // SAFETY: the caller says that the bytes are there.
            let bytes = unsafe { read(queue, ptr)? };
            let start = interpreter.add_buffer(&param.name, ptr.dtype, bytes, ptr.mutable);
            buffers.push((ptr, start));
            Ok(start)
        };
        values.push(match arg {
            Arg::Scalar(scalar) => ArgValue::Scalar(*scalar),
            Arg::Ptr(ptr) => ArgValue::Ptr(buffer(*ptr)?),
            Arg::View(view) => ArgValue::View {
                ptr: buffer(view.ptr)?,
                dims: view.dims().to_vec(),
                strides: view.strides().to_vec(),
            },
        });
    }
    let result = interpreter.run(grid, &values);
    interpreter.prints().iter().for_each(|line| println!("{line}"));
    result.map_err(|error| Error::launch(format!("{}: {error}", kernel.func.name)))?;
    for (ptr, start) in buffers.iter().filter(|(ptr, _)| ptr.mutable) {
        // SAFETY: the caller says that the bytes are there, and that nobody uses them meanwhile.
        unsafe { write(queue, *ptr, interpreter.buffer(*start))? };
    }
    Ok(())
}

/// # Safety
/// The bytes of the argument must be there.
unsafe fn read(queue: &Queue, ptr: PtrArg) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; usize::try_from(ptr.bytes).unwrap_or(0)];
    match queue {
        Queue::Cuda(stream) => stream.download(ptr.address, &mut bytes)?,
        // SAFETY: the caller says that the bytes are there.
        Queue::Cpu => unsafe {
            let source = ptr.address as usize as *const u8;
            std::ptr::copy(source, bytes.as_mut_ptr(), bytes.len());
        },
        Queue::Missing(_, error) => return Err(Error::clone(error)),
    }
    Ok(bytes)
}

/// # Safety
/// The bytes of the argument must be there, as many as are written, and nobody may use them.
unsafe fn write(queue: &Queue, ptr: PtrArg, bytes: &[u8]) -> Result<(), Error> {
    match queue {
        Queue::Cuda(stream) => stream.upload(ptr.address, bytes),
        Queue::Cpu => {
            let target = ptr.address as usize as *mut u8;
            // SAFETY: the caller's promise is the same.
            unsafe { std::ptr::copy(bytes.as_ptr(), target, bytes.len()) };
            Ok(())
        }
        Queue::Missing(_, error) => Err(Error::clone(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::InterpErrorKind;
    use crate::ir::parse;
    use crate::kernel::Hints;
    use crate::runtime::{AsPtrMut, Device};

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
        let arg = AsPtrMut::<i32>::as_arg(&&mut x);
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
}

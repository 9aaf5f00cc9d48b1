//! `GENESIS_CHECK=bounds`: a launch on the CPU goes through the interpreter, over copies of the
//! arguments' memory, and is an error where a kernel leaves that memory or its programs race.

use crate::diag::Error;
use crate::kernel::{ArgValue, Specialized};
use crate::runtime::{Arg, PtrArg};

/// Runs a kernel and writes back what it wrote, if nothing was wrong.
///
/// # Safety
/// The arguments must be of the kinds that the kernel takes, on the CPU, and the bytes that they say
/// they have must be there and not be used meanwhile.
pub(super) unsafe fn run(kernel: &Specialized, args: &[Arg], grid: [u32; 3]) -> Result<(), Error> {
    let mut interpreter = kernel.interpreter();
    interpreter.set_fuel(u64::MAX);
    let mut buffers: Vec<(PtrArg, u64)> = Vec::new();
    let mut values = Vec::new();
    for (param, arg) in kernel.func.params.iter().zip(args) {
        let mut buffer = |ptr: PtrArg| {
            let len = usize::try_from(ptr.bytes).unwrap_or(0);
            let mut bytes = vec![0; len];
            // SAFETY: the caller says that the bytes are there.
            unsafe {
                std::ptr::copy(ptr.address as usize as *const u8, bytes.as_mut_ptr(), len);
            }
            let start = interpreter.add_buffer(&param.name, ptr.dtype, bytes, ptr.mutable);
            buffers.push((ptr, start));
            start
        };
        values.push(match arg {
            Arg::Scalar(scalar) => ArgValue::Scalar(*scalar),
            Arg::Ptr(ptr) => ArgValue::Ptr(buffer(*ptr)),
            Arg::View(view) => ArgValue::View {
                ptr: buffer(view.ptr),
                dims: view.dims().to_vec(),
                strides: view.strides().to_vec(),
            },
        });
    }
    let result = interpreter.run(grid, &values);
    interpreter.prints().iter().for_each(|line| println!("{line}"));
    result.map_err(|error| Error::launch(format!("{}: {error}", kernel.func.name)))?;
    for (ptr, start) in buffers.iter().filter(|(ptr, _)| ptr.mutable) {
        let bytes = interpreter.buffer(*start);
        // SAFETY: the caller says that the bytes are there, and that nobody uses them meanwhile.
        unsafe {
            std::ptr::copy(bytes.as_ptr(), ptr.address as usize as *mut u8, bytes.len());
        }
    }
    Ok(())
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
        unsafe { run(&kernel(), &[arg], [3, 1, 1]).unwrap() };
        assert_eq!(x.to_vec().unwrap(), [2, 4, 6]);
        // SAFETY: as above; the fourth program is stopped before it leaves the array.
        let error = unsafe { run(&kernel(), &[arg], [4, 1, 1]).unwrap_err().to_string() };
        let kind = InterpErrorKind::OutOfBounds { buffer: Some("x".into()), index: 3, extent: 3 };
        assert!(error.starts_with("twice: ") && error.contains(&kind.to_string()), "{error}");
        assert_eq!(x.to_vec().unwrap(), [2, 4, 6]);
    }
}

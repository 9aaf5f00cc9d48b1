//! What a launch costs with nothing of ours around it, by each way that the driver offers: the floor
//! of the launch benchmark, and the data by which the runtime's way was chosen.

use std::ffi::{CString, c_void};

use cudarc::driver::sys;

use crate::way::Way;

/// A kernel of four parameters that does nothing, and one without parameters.
const EMPTY: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }
.visible .entry bare() { ret; }
";

/// How a kernel is handed to the driver.
#[derive(Clone, Copy)]
enum Call {
    /// `cuLaunchKernel` with the address of each parameter, as the runtime does it.
    Kernel,
    /// `cuLaunchKernel` with one buffer that holds all parameters.
    Packed,
    /// `cuLaunchKernelEx`, its configuration made once.
    Ex,
    /// `cuLaunchKernel` of a kernel without parameters.
    Bare,
}

/// Every way that is timed: its name, the call, and how the stream is made.
const VARIANTS: [(&str, Call, Queue); 7] = [
    ("kernel", Call::Kernel, Queue::NonBlocking),
    ("packed", Call::Packed, Queue::NonBlocking),
    ("ex", Call::Ex, Queue::NonBlocking),
    ("no parameters", Call::Bare, Queue::NonBlocking),
    ("blocking stream", Call::Kernel, Queue::Blocking),
    ("null stream", Call::Kernel, Queue::Null),
    ("stream of the thread", Call::Kernel, Queue::Thread),
];

/// Which stream is launched on.
#[derive(Clone, Copy)]
enum Queue {
    NonBlocking,
    Blocking,
    Null,
    Thread,
}

fn check(result: sys::CUresult) -> anyhow::Result<()> {
    anyhow::ensure!(result == sys::CUresult::CUDA_SUCCESS, "the driver says {result:?}");
    Ok(())
}

/// The functions of [`EMPTY`].
struct Functions {
    empty: sys::CUfunction,
    bare: sys::CUfunction,
}

fn load() -> anyhow::Result<Functions> {
    let text = CString::new(EMPTY)?;
    let mut module = std::ptr::null_mut();
    // SAFETY: a context is current, the text is PTX that ends in a zero, the out pointer is ours.
    check(unsafe { sys::cuModuleLoadData(&mut module, text.as_ptr().cast()) })?;
    let function = |name: &std::ffi::CStr| {
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the out pointer is ours.
        check(unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) })?;
        anyhow::Ok(function)
    };
    Ok(Functions { empty: function(c"empty")?, bare: function(c"bare")? })
}

fn open(queue: Queue) -> anyhow::Result<sys::CUstream> {
    let flags = match queue {
        Queue::NonBlocking => sys::CUstream_flags::CU_STREAM_NON_BLOCKING,
        Queue::Blocking => sys::CUstream_flags::CU_STREAM_DEFAULT,
        Queue::Null => return Ok(std::ptr::null_mut()),
        // `CU_STREAM_PER_THREAD`, a handle that is a number.
        Queue::Thread => return Ok(std::ptr::without_provenance_mut(2)),
    };
    let mut stream = std::ptr::null_mut();
    // SAFETY: a context is current, the out pointer is ours.
    check(unsafe { sys::cuStreamCreate(&mut stream, flags as u32) })?;
    Ok(stream)
}

/// The names of the ways.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VARIANTS.iter().map(|&(name, ..)| name)
}

/// One of the ways. A context must be current here, which it is once something was launched.
pub(crate) fn way(name: &str) -> anyhow::Result<Way<'static>> {
    let found = VARIANTS.into_iter().find(|&(known, ..)| known == name);
    let (_, call, queue) = found.ok_or_else(|| anyhow::anyhow!("no way is called {name}"))?;
    let (functions, stream) = (load()?, open(queue)?);
    let mut number = 0;
    Ok(Way {
        // SAFETY: the stream is open and stays so.
        wait: Box::new(move || check(unsafe { sys::cuStreamSynchronize(stream) })),
        launch: Box::new(move || launch(call, &functions, stream, &mut number)),
    })
}

/// One launch, with parameters that change from one to the next.
fn launch(
    call: Call,
    functions: &Functions,
    stream: sys::CUstream,
    number: &mut u64,
) -> anyhow::Result<()> {
    *number += 1;
    let mut values = [*number, 2, 3, 4];
    let null = std::ptr::null_mut::<*mut c_void>();
    let mut each = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
    let each = each.as_mut_ptr();
    let plain = |function, params, extra| {
        // SAFETY: the function's parameters are what `params` or `extra` has, which the driver copies
        // before it returns.
        check(unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, stream, params, extra)
        })
    };
    match call {
        Call::Kernel => plain(functions.empty, each, null),
        Call::Bare => plain(functions.bare, null, null),
        Call::Packed => {
            let mut bytes = size_of_val(&values);
            // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `.._BUFFER_SIZE` and `.._END`.
            let [pointer, size, end] = [1, 2, 0].map(std::ptr::without_provenance_mut::<c_void>);
            let values = values.as_mut_ptr().cast();
            let mut extra = [pointer, values, size, std::ptr::from_mut(&mut bytes).cast(), end];
            plain(functions.empty, null, extra.as_mut_ptr())
        }
        Call::Ex => {
            let config = sys::CUlaunchConfig {
                gridDimX: 1,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 128,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream,
                attrs: std::ptr::null_mut(),
                numAttrs: 0,
            };
            // SAFETY: as above.
            check(unsafe { sys::cuLaunchKernelEx(&config, functions.empty, each, null) })
        }
    }
}

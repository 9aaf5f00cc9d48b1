//! The driver's calls on a real GPU; each test says so and passes where there is none.

use std::time::Instant;

use super::*;
use crate::front::ast::{BlockAst, Span};
use crate::runtime::{Buffer, Device, Event};

/// `p[i] += 1` for `i < n`; and a kernel that writes to an address that is not there.
const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 p, .param .u32 n) {
  .reg .pred %q;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %q, %r2, %r1;
  @%q bra DONE;
  cvta.to.global.u64 %rd1, %rd1;
  mad.wide.u32 %rd2, %r2, 4, %rd1;
  ld.global.u32 %r5, [%rd2];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd2], %r5;
DONE:
  ret;
}
.visible .entry write_nowhere(.param .u64 p, .param .u32 n) {
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
";

static AST: FnAst = FnAst {
    name: "add_one",
    module: "test",
    file: "test.rs",
    span: Span { line: 1, column: 1, end_column: 2 },
    doc: "",
    dtypes: &[],
    consts: &[],
    params: &[],
    body: &BlockAst { stmts: &[], value: None },
    contract: false,
    ret: None,
};

fn gpu() -> Option<&'static CudaDevice> {
    match open(0) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn kernel(device: &CudaDevice, name: &str) -> CudaKernel {
    let cubin = device.assemble(PTX).unwrap();
    let entry = EntryPoint {
        name,
        threads: 128,
        dynamic_shared_bytes: 0,
        is_persistent: false,
        maps: &[],
        asserts: &[],
    };
    device.load(&cubin, &entry).unwrap()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn bytes_come_back_from_the_gpu() {
    let Some(device) = gpu() else { return };
    let stream = Device::Cuda(device.number()).stream();
    let buffer = Buffer::from_bytes(&stream, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(buffer.address() % 256, 0);
    buffer.copy_from(2, &buffer, 0, 6).unwrap();
    assert_eq!(buffer.to_bytes().unwrap(), [1, 2, 1, 2, 3, 4, 5, 6]);
    let host = buffer.to_stream(&Device::Cpu.stream()).unwrap();
    assert_eq!(host.to_bytes().unwrap(), [1, 2, 1, 2, 3, 4, 5, 6]);
    buffer.fill(7).unwrap();
    assert_eq!(buffer.to_bytes().unwrap(), [7; 8]);
}

#[test]
fn a_kernel_runs_and_launches_are_cheap() {
    let Some(device) = gpu() else { return };
    let kernel = kernel(device, "add_one");
    assert!(kernel.registers > 0 && kernel.local_bytes == 0);
    let stream = Device::Cuda(device.number()).stream();
    let buffer = Buffer::from_bytes(&stream, &words(&[10, 20, 30])).unwrap();
    let launch = || {
        let mut slots = [buffer.address(), 2];
        // SAFETY: the kernel takes an address and a count, and writes below the count.
        unsafe { device.launch(&kernel, &AST, [1, 1, 1], &mut slots, &[]).unwrap() };
    };
    launch();
    assert_eq!(buffer.to_bytes().unwrap(), words(&[11, 21, 30]));
    let start = Event::record(&stream).unwrap();
    let host = Instant::now();
    // Fewer than the driver queues before it makes the host wait.
    (0..500).for_each(|_| launch());
    let us = host.elapsed().as_secs_f64() * 1e6 / 500.0;
    let end = Event::record(&stream).unwrap();
    let gpu_us = end.elapsed_ms(&start).unwrap() * 1e3 / 500.0;
    eprintln!("a launch takes {us:.2} us of the host, {gpu_us:.2} us of the GPU");
    assert_eq!(buffer.to_bytes().unwrap(), words(&[511, 521, 30]));
}

#[test]
fn running_out_of_gpu_memory_is_not_the_end() {
    let Some(device) = gpu() else { return };
    let stream = Device::Cuda(device.number()).stream();
    let error = Buffer::uninit(&stream, 1 << 50).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("asked cuda:0 for 1073741824.0 MiB"), "{error}");
    assert_eq!(Buffer::zeroed(&stream, 4).unwrap().to_bytes().unwrap(), [0; 4]);
}

#[test]
fn the_assembler_says_what_is_wrong() {
    let Some(device) = gpu() else { return };
    let error = device.assemble(".version 8.0\n.target sm_80\nnonsense\n").unwrap_err();
    assert!(error.to_string().contains("the driver's assembler refuses our PTX"), "{error}");
}

/// Breaking a context is for the rest of the process, so that another process does it.
#[test]
fn a_bad_address_breaks_the_device_for_good() {
    const CHILD: &str = "breaks-the-gpu";
    if std::env::args().any(|arg| arg == CHILD) {
        let device = open(0).unwrap();
        let kernel = kernel(device, "write_nowhere");
        // SAFETY: the access it makes is what the test is about; this process ends with it.
        unsafe { device.launch(&kernel, &AST, [1, 1, 1], &mut [0, 0], &[]).unwrap() };
        let error = device.synchronize().unwrap_err();
        assert!(error.is_device_lost() && error.to_string().contains("`add_one`"), "{error}");
        let stream = Device::Cuda(0).stream();
        assert!(Buffer::uninit(&stream, 4).unwrap_err().is_device_lost());
        assert!(stream.is_lost() && stream.synchronize().unwrap_err().is_device_lost());
        return;
    }
    if gpu().is_none() {
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["runtime::cuda::tests::a_bad_address_breaks_the_device_for_good", "--exact", CHILD])
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

//! Code that a launch runs: from the disk where an earlier program has compiled the same, else compiled and kept.
//!
//! An entry is found by its key: tile IR with its lines, options, target and compiler. The compiler is named by a hash
//! of its sources, so that a program which is built again finds its kernels.

use super::kept::{disk, keep};
use super::{Specialized, compile_cpu, compile_gpu, ready, tir_text, warnings};
use crate::analysis::is_persistent;
use crate::cache::{CompiledEntry, HostEntry, Key};
use crate::codegen::cpu::{CpuKernel, CpuObject, host_cpu};
use crate::codegen::nvptx;
use crate::diag::{Error, has_source};
use crate::front::Hints;
use crate::ir::Func;
use crate::knobs;
use crate::runtime::cuda::{CudaDevice, CudaKernel, EntryPoint};
use crate::runtime::{Queue, Stream};

/// Code that a launch can run.
#[derive(Debug)]
pub(crate) enum Executable {
    /// On the processor.
    Cpu(CpuKernel),
    /// On a GPU.
    Cuda(CudaKernel),
    /// In the interpreter, where `GENESIS_CHECK` asks for it.
    Checked(Box<Specialized>),
}

/// Code for the device of a stream.
pub(crate) fn executable(kernel: &Specialized, stream: &Stream) -> Result<Executable, Error> {
    match stream.queue() {
        Queue::Missing(_, error) => Err(Error::clone(error)),
        _ if knobs::get().check_bounds => Ok(Executable::Checked(Box::new(kernel.clone()))),
        Queue::Cpu => Ok(Executable::Cpu(cpu(kernel)?)),
        Queue::Cuda(stream) => Ok(Executable::Cuda(cuda(kernel, stream.device())?)),
    }
}

/// Loads code for the GPU of a stream ahead of the launch that asks for it; nothing for the CPU.
///
/// # Errors
/// As [`executable`].
pub(crate) fn keep_ready(kernel: &Specialized, stream: &Stream) -> Result<(), Error> {
    let Queue::Cuda(stream) = stream.queue() else { return Ok(()) };
    let device = stream.device();
    let key = cache_key(kernel, device);
    if !knobs::get().check_bounds && !ready::has(device.number(), key) {
        ready::put(device.number(), key, load_keyed(kernel, device, key)?);
    }
    Ok(())
}

/// Machine code for a GPU: what is ready, else from the disk, else compiled, assembled by the driver and kept.
fn cuda(kernel: &Specialized, device: &'static CudaDevice) -> Result<CudaKernel, Error> {
    let key = cache_key(kernel, device);
    match ready::take(device.number(), key) {
        Some(code) => Ok(code),
        None => load_keyed(kernel, device, key),
    }
}

fn load_keyed(
    kernel: &Specialized,
    device: &'static CudaDevice,
    key: Key,
) -> Result<CudaKernel, Error> {
    let disk = disk();
    let cached = disk.and_then(|disk| CompiledEntry::from_bytes(&disk.get(&key)?));
    if let Some(entry) = cached
        && let Ok(code) = load_entry(&entry, device)
    {
        return Ok(code);
    }
    let (entry, code) = load_compiled(kernel, device)?;
    if let Some(disk) = disk {
        keep(disk, &key, &entry.to_bytes());
    }
    Ok(code)
}

/// Machine code of this processor: from the disk, else compiled and kept.
fn cpu(kernel: &Specialized) -> Result<CpuKernel, Error> {
    let (disk, func) = (disk(), &kernel.func);
    let key = disk.map(|_| host_key(func));
    if let (Some(disk), Some(key)) = (disk, &key)
        && let Some(entry) = disk.get(key).and_then(|bytes| HostEntry::from_bytes(&bytes))
        && let Ok(code) = CpuKernel::link(func, object_of(entry))
    {
        return Ok(code);
    }
    let (_, object) = compile_cpu(func)?;
    // What prints keeps the tiles that it prints too, which an entry has no words for; it is for a look only.
    if let (Some(disk), Some(key), []) = (disk, &key, &object.prints[..]) {
        keep(disk, key, &entry_of(&object).to_bytes());
    }
    CpuKernel::link(func, object)
}

fn entry_of(object: &CpuObject) -> HostEntry {
    let CpuObject { code, scratch_bytes, nanos, messages, .. } = object;
    let (code, messages) = (code.clone(), messages.clone());
    HostEntry { code, scratch_bytes: *scratch_bytes, nanos: *nanos, messages }
}

fn object_of(entry: HostEntry) -> CpuObject {
    let HostEntry { code, scratch_bytes, nanos, messages } = entry;
    CpuObject { code, scratch_bytes, nanos, messages, prints: Vec::new() }
}

/// Machine code for the GPU of a stream that no cache has or gets.
///
/// # Errors
/// As [`executable`]; also where the stream has no GPU.
pub(crate) fn load_anew(kernel: &Specialized, stream: &Stream) -> Result<CudaKernel, Error> {
    match stream.queue() {
        Queue::Cuda(stream) => Ok(load_compiled(kernel, stream.device())?.1),
        Queue::Missing(_, error) => Err(Error::clone(error)),
        Queue::Cpu => Err(Error::bug("code of a GPU for the CPU")),
    }
}

fn load_compiled(
    kernel: &Specialized,
    device: &'static CudaDevice,
) -> Result<(CompiledEntry, CudaKernel), Error> {
    let (lir, code) = compile_gpu(kernel, &device.target())?;
    // What a tuner or a framework chose for the launch is not the reader's to mend.
    for warning in warnings::of_options(&kernel.func, &Hints::default(), &lir) {
        let is_here = warning.diagnostic().loc.is_some_and(has_source);
        warnings::tell(&warning, is_here);
    }
    let entry = CompiledEntry {
        ptx: code.ptx,
        name: code.name,
        threads: code.threads,
        cluster: code.num_blocks,
        shared_bytes: code.shared_bytes,
        is_persistent: is_persistent(&kernel.func) && kernel.hints.persistent != Some(false),
        maps: code.maps,
        asserts: code.asserts,
    };
    let code = load_entry(&entry, device)?;
    Ok((entry, code))
}

fn load_entry(entry: &CompiledEntry, device: &CudaDevice) -> Result<CudaKernel, Error> {
    let point = EntryPoint {
        name: &entry.name,
        threads: entry.threads,
        cluster: entry.cluster,
        dynamic_shared_bytes: entry.shared_bytes,
        is_persistent: entry.is_persistent,
        dependent_launch: nvptx::waits_for_grid(&entry.ptx),
        maps: &entry.maps,
        asserts: &entry.asserts,
    };
    device.load(&entry.ptx, &point)
}

/// Everything that the machine code follows from.
fn cache_key(kernel: &Specialized, device: &CudaDevice) -> Key {
    let info = device.info();
    let options = format!(
        "{:?} tma {} {} {} {:?}",
        kernel.hints.options(),
        knobs::get().tma,
        knobs::get().all_barriers,
        knobs::get().delays,
        knobs::get().streaming
    );
    let target = device.target();
    let machine = format!("{target:?} {} {}", info.driver_version, info.multiprocessors);
    Key::of(&[
        // Loads and stores of equal text at other lines differ in their line tables.
        tir_text(&kernel.func).as_bytes(),
        locations(&kernel.func).as_bytes(),
        options.as_bytes(),
        machine.as_bytes(),
        compiler().as_bytes(),
    ])
}

/// Everything that the machine code of this processor follows from.
fn host_key(func: &Func) -> Key {
    let (cpu, features) = host_cpu();
    Key::of(&[
        tir_text(func).as_bytes(),
        // Messages of assertions name their lines.
        locations(func).as_bytes(),
        b"cpu",
        cpu.as_bytes(),
        features.as_bytes(),
        compiler().as_bytes(),
    ])
}

/// The compiler by its sources: the same in every program that it is part of, and in every build of it.
const fn compiler() -> &'static str {
    concat!("genesis ", env!("CARGO_PKG_VERSION"), ", LLVM 22.1, ", env!("GENESIS_COMPILER"))
}

fn locations(func: &Func) -> String {
    let place =
        |op| func.op(op).loc.map(|loc| format!("{}:{}:{};", loc.file, loc.line, loc.column));
    func.walk().into_iter().filter_map(place).collect()
}

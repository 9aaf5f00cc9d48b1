//! From PTX to a function on the GPU, and its launch.

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;

use cudarc::driver::sys::{
    self, CUfunction_attribute_enum as Attribute, CUjit_option as JitOption, CUjitInputType,
    CUtensorMap,
};

use super::handle::Handle;
use super::tensor_map::{Encoded, MAX_MAPS, TensorMaps};
use super::{CudaDevice, CudaStream, Writes};
use crate::diag::Error;
use crate::front::ast::FnAst;
use crate::ir::TensorMap;
use crate::knobs;
use crate::runtime::Arg;

/// A kernel on a GPU, ready to launch.
#[derive(Debug)]
pub(crate) struct CudaKernel {
    function: Handle<sys::CUfunction>,
    threads: u32,
    /// Blocks of one program.
    cluster: u32,
    dynamic_shared_bytes: u32,
    /// Programs that the device runs at once, where more of them do no more work.
    most_programs: Option<u32>,
    /// Whether it may be set up before the kernel ahead of it on the stream has ended.
    dependent_launch: bool,
    /// What the copy engine must know of its views.
    tensor_maps: TensorMaps,
    /// The last parameter of a kernel with assertions: where the number of a failed one goes.
    assert_address: Option<u64>,
    /// Registers of one thread.
    pub(crate) registers: u32,
    /// Shared memory of one program, in bytes.
    pub(crate) shared_bytes: u32,
    /// Local memory of one thread, in bytes.
    pub(crate) local_bytes: u32,
}

/// What a launch must know about a kernel beside its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EntryPoint<'a> {
    /// The symbol.
    pub(crate) name: &'a str,
    /// Threads of one block.
    pub(crate) threads: u32,
    /// Blocks of one program: a cluster, where there is more than one.
    pub(crate) cluster: u32,
    /// Shared memory that the launch provides, in bytes.
    pub(crate) dynamic_shared_bytes: u32,
    /// Whether fewer programs than the grid has do the same work.
    pub(crate) is_persistent: bool,
    /// Whether the kernel waits by itself for the one ahead of it on the stream.
    pub(crate) dependent_launch: bool,
    /// Tensor maps that the kernel takes after its own parameters.
    pub(crate) maps: &'a [TensorMap],
    /// Messages of assertions. Where there are any, the kernel takes one more parameter.
    pub(crate) asserts: &'a [String],
}

/// The largest cluster that every GPU which has any runs; more must be allowed.
const PORTABLE_CLUSTER: u32 = 8;

/// The shared memory that a launch gets without asking.
const SHARED_WITHOUT_OPT_IN: u32 = 48 << 10;

/// Bytes of the assembler's messages that are kept.
const LOG_BYTES: usize = 16 << 10;

impl CudaKernel {
    /// Whether it takes tensor maps.
    pub(crate) fn takes_maps(&self) -> bool {
        !self.tensor_maps.is_empty()
    }

    /// The tensor maps that it takes for a launch's arguments; none where the copy engine can't
    /// address one of its views.
    pub(crate) fn encode_maps(&self, args: &[Arg]) -> Option<Encoded> {
        self.tensor_maps.encode(args)
    }
}

impl CudaDevice {
    /// Machine code from PTX, by the driver's linker: to look at.
    ///
    /// It is not what [`CudaDevice::load`] makes of the same PTX: the linker assembles each piece so
    /// that it could call others, which keeps `wgmma` from overlapping (a product of bf16 4096x4096
    /// takes 1.1 times as long) and `setmaxnreg` from having any effect.
    pub(crate) fn assemble(&self, ptx: &str) -> Result<Vec<u8>, Error> {
        self.enter()?;
        let source = CString::new(ptx).map_err(|_| Error::bug("PTX with a nul byte in it"))?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = assembler_options();
        let mut values = assembler_values(&mut log);
        let mut link = Link(std::ptr::null_mut());
        // SAFETY: both arrays have three entries, and they and the log outlive the link.
        let result = unsafe {
            sys::cuLinkCreate_v2(3, options.as_mut_ptr(), values.as_mut_ptr(), &mut link.0)
        };
        self.check("cuLinkCreate", result)?;
        let bytes = source.as_bytes_with_nul();
        // SAFETY: the link is ours, the source outlives the call and is only read.
        let result = unsafe {
            sys::cuLinkAddData_v2(
                link.0,
                CUjitInputType::CU_JIT_INPUT_PTX,
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                c"kernel.ptx".as_ptr(),
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        self.check_assembly(result, &log)?;
        let (mut cubin, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the link is ours, the out pointers too.
        let result = unsafe { sys::cuLinkComplete(link.0, &mut cubin, &mut len) };
        self.check_assembly(result, &log)?;
        // SAFETY: the driver owns `len` bytes there until the link is destroyed, below.
        Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), len) }.to_vec())
    }

    fn check_assembly(&self, result: sys::CUresult, log: &[u8]) -> Result<(), Error> {
        self.check("assembling PTX", result).map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            if error.is_device_lost() || log.trim().is_empty() {
                return error;
            }
            Error::bug(format!("the driver's assembler refuses our PTX: {}", log.trim()))
        })
    }

    /// Assembles PTX and loads it. It stays loaded as long as the process lives; the driver keeps what
    /// it assembled on disk for other processes.
    pub(crate) fn load(&self, ptx: &str, entry: &EntryPoint<'_>) -> Result<CudaKernel, Error> {
        self.enter()?;
        let source = CString::new(ptx).map_err(|_| Error::bug("PTX with a nul byte in it"))?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = assembler_options();
        let mut values = assembler_values(&mut log);
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends in a nul, both arrays have as many entries as is said, and they and
        // the log outlive the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                source.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        self.check_assembly(result, &log)?;
        let name = CString::new(entry.name)
            .map_err(|_| Error::bug("a kernel's symbol with a nul byte in it"))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in a nul, the out pointer is ours.
        let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", result)?;
        if entry.dynamic_shared_bytes > SHARED_WITHOUT_OPT_IN {
            self.allow_shared(function, entry.dynamic_shared_bytes)?;
        }
        if entry.cluster > PORTABLE_CLUSTER {
            let which = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            self.set_function_attribute(function, which, 1)?;
        }
        if entry.cluster > 1 && self.clusters_at_once(function, entry)? == 0 {
            let name = &self.info.name;
            return Err(Error::launch(format!(
                "{}: {name} has no room for a cluster of {} blocks of {} threads",
                entry.name, entry.cluster, entry.threads
            )));
        }
        let assert_address = match entry.asserts {
            [] => None,
            messages => Some(self.assert_address(entry.name, messages)?),
        };
        let most_programs = match entry.is_persistent {
            true => Some(self.programs_at_once(function, entry)?),
            false => None,
        };
        let attribute = |which| self.function_attribute(function, which);
        Ok(CudaKernel {
            function: Handle(function),
            threads: entry.threads,
            cluster: entry.cluster,
            dynamic_shared_bytes: entry.dynamic_shared_bytes,
            most_programs,
            dependent_launch: entry.dependent_launch && self.can_launch_dependents(),
            tensor_maps: TensorMaps::new(entry.maps),
            assert_address,
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?
                + entry.dynamic_shared_bytes,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        })
    }

    fn can_launch_dependents(&self) -> bool {
        self.info.driver_version >= PDL_DRIVER_VERSION && knobs::get().overlap
    }

    /// Programs of a kernel that fit on the device together.
    fn programs_at_once(
        &self,
        function: sys::CUfunction,
        entry: &EntryPoint<'_>,
    ) -> Result<u32, Error> {
        if entry.cluster > 1 {
            return self.clusters_at_once(function, entry);
        }
        let mut each = 0;
        // SAFETY: the function is of a loaded module, the out pointer is ours.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut each,
                function,
                entry.threads as i32,
                entry.dynamic_shared_bytes as usize,
            )
        };
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(self.info.multiprocessors * each.unsigned_abs().max(1))
    }

    /// Clusters of a kernel that fit on the device together.
    fn clusters_at_once(
        &self,
        function: sys::CUfunction,
        entry: &EntryPoint<'_>,
    ) -> Result<u32, Error> {
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            // SAFETY: all bytes zero is a value of this union of numbers and addresses.
            ..unsafe { std::mem::zeroed() }
        };
        attribute.value.clusterDim.x = entry.cluster;
        attribute.value.clusterDim.y = 1;
        attribute.value.clusterDim.z = 1;
        let config = sys::CUlaunchConfig {
            gridDimX: entry.cluster * self.info.multiprocessors,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: entry.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: entry.dynamic_shared_bytes,
            hStream: std::ptr::null_mut(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        let mut clusters = 0;
        // SAFETY: the function is of a loaded module; the configuration and its one attribute outlive
        // the call, and the out pointer is ours.
        let result = unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, function, &config) };
        self.check("cuOccupancyMaxActiveClusters", result)?;
        Ok(clusters.unsigned_abs())
    }

    fn allow_shared(&self, function: sys::CUfunction, bytes: u32) -> Result<(), Error> {
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.set_function_attribute(function, which, bytes as i32)
    }

    fn set_function_attribute(
        &self,
        function: sys::CUfunction,
        which: Attribute,
        value: i32,
    ) -> Result<(), Error> {
        // SAFETY: the function is of a loaded module.
        let result = unsafe { sys::cuFuncSetAttribute(function, which, value) };
        self.check("cuFuncSetAttribute", result)
    }

    fn function_attribute(
        &self,
        function: sys::CUfunction,
        which: Attribute,
    ) -> Result<u32, Error> {
        let mut value = 0;
        // SAFETY: the function is of a loaded module, the out pointer is ours.
        let result = unsafe { sys::cuFuncGetAttribute(&mut value, which, function) };
        self.check("cuFuncGetAttribute", result)?;
        Ok(value.unsigned_abs())
    }
}

impl CudaStream {
    /// Queues a kernel; `slots` has its flattened parameters in order, eight bytes each, and `maps`
    /// what [`CudaKernel::encode_maps`] gave, `writes` what it may write.
    ///
    /// # Safety
    /// The slots and maps must be those of the kernel's parameters, and pointers among them valid for
    /// what the kernel does with them, until the stream has run it.
    #[inline]
    pub(crate) unsafe fn launch(
        &self,
        kernel: &CudaKernel,
        ast: &'static FnAst,
        grid: [u32; 3],
        slots: &mut [u64],
        maps: &[CUtensorMap],
        writes: &Writes,
    ) -> Result<(), Error> {
        self.device().enter()?;
        let n_slots = slots.len();
        if n_slots > MAX_SLOTS || maps.len() > MAX_MAPS {
            return Err(Error::launch(format!("{}: too many parameters", ast.name)));
        }
        // Left as they are until written, as many as the kernel has parameters.
        let mut pointers = [MaybeUninit::<*mut c_void>::uninit(); MAX_SLOTS + MAX_MAPS + 1];
        for (pointer, slot) in pointers.iter_mut().zip(slots) {
            // A parameter narrower than its slot lies in the slot's first bytes.
            pointer.write(std::ptr::from_mut(slot).cast());
        }
        for (pointer, map) in pointers[n_slots..].iter_mut().zip(maps) {
            // The driver only reads it.
            pointer.write(std::ptr::from_ref(map).cast_mut().cast());
        }
        let mut assert_address = kernel.assert_address;
        if let Some(address) = &mut assert_address {
            pointers[n_slots + maps.len()].write(std::ptr::from_mut(address).cast());
        }
        let programs = grid[0].min(kernel.most_programs.unwrap_or(u32::MAX));
        let Some(blocks) = programs.checked_mul(kernel.cluster).filter(|&n| n <= MAX_BLOCKS) else {
            let name = ast.name;
            return Err(Error::launch(format!("{name}: too many programs for their clusters")));
        };
        self.device().recent.note(ast.name, grid);
        let mut early = set_up_early();
        let config = sys::CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: kernel.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: kernel.dynamic_shared_bytes,
            hStream: self.raw(),
            attrs: &raw mut early,
            numAttrs: u32::from(kernel.dependent_launch),
        };
        // Held meanwhile: what is noted last was queued last.
        let mut last = self.last_launch();
        last.set(config.hStream, writes);
        // SAFETY: the function is loaded in this context; the pointers are to as many slots as it has
        // parameters, and the attributes to as many as is said; the driver copies all of them before
        // it returns.
        let result = unsafe {
            sys::cuLaunchKernelEx(
                &config,
                kernel.function.0,
                pointers.as_mut_ptr().cast(),
                std::ptr::null_mut(),
            )
        };
        drop(last);
        self.device().check("cuLaunchKernel", result)
    }
}

/// The first driver, as its version number, that records early launches in graphs.
const PDL_DRIVER_VERSION: u32 = 12_030;

/// That a kernel may be set up before the one ahead of it on the stream has ended.
fn set_up_early() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

/// The most blocks along the first axis of a grid.
const MAX_BLOCKS: u32 = i32::MAX as u32;

/// The most flattened parameters of a kernel.
pub(crate) const MAX_SLOTS: usize = 128;

/// What the assembler is told, each with an entry of [`assembler_values`].
fn assembler_options() -> [JitOption; 3] {
    [
        JitOption::CU_JIT_ERROR_LOG_BUFFER,
        JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        JitOption::CU_JIT_GENERATE_LINE_INFO,
    ]
}

/// The values of [`assembler_options`], of which the driver reads numbers from the pointers themselves.
fn assembler_values(log: &mut [u8]) -> [*mut c_void; 3] {
    let number = std::ptr::without_provenance_mut::<c_void>;
    [log.as_mut_ptr().cast(), number(log.len()), number(1)]
}

/// A link in progress.
struct Link(sys::CUlinkState);

impl Drop for Link {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the link is ours and used no more; a failure leaks it and nothing else.
            let _ = unsafe { sys::cuLinkDestroy(self.0) };
        }
    }
}

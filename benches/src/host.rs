//! What the host does: launches, and the compilation of kernels, beside their peers.

use genesis::{DType, Device};
use genesis_kernel::kernel::{Hints, KernelDef};
use genesis_kernel::target::Target;

use crate::peer::Peer;
use crate::step;
use crate::table::{COMPILE_MATMUL, Case};
use crate::timing::{Times, host_ms};
use crate::{cpu, launch, memory};

/// A kernel whose cold compilation is timed.
struct Compilation {
    case: &'static str,
    kernel: &'static KernelDef,
    dtypes: [DType; 2],
    consts: &'static [usize],
    /// Whether operands may have any strides, so that each element has an address of its own.
    any_strides: bool,
    num_warps: Option<u32>,
}

fn compilations() -> Vec<Compilation> {
    let add = Compilation {
        case: "compile/add/f32/1024/sm_90a",
        kernel: &kernels::elementwise::add_flat::KERNEL,
        dtypes: [DType::F32; 2],
        consts: &[1024],
        any_strides: false,
        num_warps: None,
    };
    let softmax = Compilation {
        case: "compile/softmax/f32/4096/sm_90a",
        kernel: &kernels::softmax::softmax::KERNEL,
        consts: &[1, 4096],
        ..add
    };
    let matmul = Compilation {
        case: COMPILE_MATMUL,
        kernel: &kernels::matmul::matmul::KERNEL,
        dtypes: [DType::BF16, DType::F32],
        consts: &[128, 256, 64],
        num_warps: Some(8),
        ..add
    };
    let strided = |case, of: &Compilation| Compilation { case, any_strides: true, ..*of };
    let strided_add = strided("compile/add/f32/1024/sm_90a/strided", &add);
    let strided_softmax = strided("compile/softmax/f32/4096/sm_90a/strided", &softmax);
    vec![add, strided_add, softmax, strided_softmax, matmul]
}

/// Whether a case means the same on a machine without a GPU: the CPU's own, and compilation.
pub(crate) fn needs_no_gpu(case: &str) -> bool {
    case.starts_with("cpu/") || case.starts_with("compile/")
}

/// Cases of the host.
pub(crate) fn cases() -> Vec<Case> {
    let compile = compilations().into_iter().map(|c| c.case.to_owned());
    let compile = compile.filter(|case| case != COMPILE_MATMUL);
    let names = launch::cases().into_iter().chain(memory::cases()).chain(compile);
    let plain = names.map(|name| Case { name, must: None, aim: None });
    step::cases().into_iter().chain(cpu::cases()).chain(plain).collect()
}

/// The times of a case of the host; none if it is a case of the GPU.
pub(crate) fn time(
    case: &str,
    device: Device,
    peer: Option<&mut Peer>,
) -> anyhow::Result<Option<Times>> {
    if case.starts_with("launch/") {
        return launch::time(case, device).map(Some);
    }
    if case.starts_with("alloc") {
        return memory::time(case, device, peer);
    }
    let mut peer = peer;
    if let Some(times) = cpu::time(case, peer.as_deref_mut())? {
        return Ok(Some(times));
    }
    if let Some(times) = step::time(case, device, peer.as_deref_mut())? {
        return Ok(Some(times));
    }
    let found = compilations().into_iter().find(|compilation| compilation.case == case);
    found.map(|compilation| compile(&compilation, peer)).transpose()
}

/// Cold compilation from a kernel's source to PTX, on one core.
fn compile(what: &Compilation, peer: Option<&mut Peer>) -> anyhow::Result<Times> {
    let consts: Vec<i64> = what.consts.iter().map(|&value| value as i64).collect();
    let known =
        if what.any_strides { Hints::default() } else { Hints::contiguous(what.kernel.ast) };
    let hints = Hints { num_warps: what.num_warps, ..known };
    let target = Target::sm_90a();
    let ours = host_ms(7, || {
        what.kernel.specialize(&what.dtypes, &consts, &hints)?.compile(&target)?;
        Ok(())
    })?;
    let peer = match peer {
        // Without Triton there is our time alone.
        Some(peer) if what.case == COMPILE_MATMUL => {
            peer.compile(what.consts).ok().map(|ms| ("triton".to_owned(), ms))
        }
        _ => None,
    };
    Ok(Times { ours, peer, from_graphs: false })
}

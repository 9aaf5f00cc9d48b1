//! What the host does: a launch, and the compilation of a kernel, beside their peers.

use genesis::{DType, Device};
use genesis_kernel::kernel::Hints;
use genesis_kernel::target::Target;

use crate::name::CaseName;
use crate::peer::Peer;
use crate::table::Case;
use crate::timing::{Times, host_ms};

/// Launches in one burst of the launch's case.
const LAUNCHES: usize = 100;

/// Cases of the host that have no bar.
pub(crate) fn cases() -> Vec<Case> {
    let names = ["launch/f32/4/arguments", "compile/f32/1024/add", "compile/f32/4096/softmax"];
    names.map(|name| Case { name: name.to_owned(), must: None, aim: None }).into()
}

/// The times of a case of the host; none if it is a case of the GPU.
pub(crate) fn time(
    name: &CaseName,
    device: Device,
    peer: Option<&mut Peer>,
) -> anyhow::Result<Option<Times>> {
    Ok(match name.op.as_str() {
        "launch" => Some(launch(device)?),
        "compile" => Some(compile(name, peer)?),
        _ => None,
    })
}

/// Host time of a cached launch with four arguments, beside the driver alone.
fn launch(device: Device) -> anyhow::Result<Times> {
    let stream = device.stream();
    let launch = crate::kernels::Add::new(&stream)?;
    let ours = host_ms(50, || {
        (0..LAUNCHES).try_for_each(|_| launch.run())?;
        Ok(())
    })?;
    stream.synchronize()?;
    let peer = match device {
        Device::Cuda(_) => Some(("driver alone".to_owned(), crate::driver::launch_ms(&stream)?)),
        Device::Cpu => None,
    };
    Ok(Times { ours: ours / LAUNCHES as f64, peer, from_graphs: false })
}

/// Cold compilation from a kernel's source to PTX, on one core.
fn compile(name: &CaseName, peer: Option<&mut Peer>) -> anyhow::Result<Times> {
    let (kernel, dtypes) = match name.variant.as_str() {
        "add" => (&kernels::elementwise::add_flat::KERNEL, [DType::F32; 2]),
        "softmax" => (&kernels::softmax::softmax::KERNEL, [DType::F32; 2]),
        "matmul" => (&kernels::matmul::matmul::KERNEL, [name.dtype(), DType::F32]),
        other => anyhow::bail!("there are add, softmax and matmul, not {other}"),
    };
    let consts: Vec<i64> = name.dims.iter().map(|&dim| dim as i64).collect();
    let hints = match name.variant.as_str() {
        "matmul" => Hints { num_warps: Some(8), ..Hints::contiguous(kernel.ast) },
        _ => Hints::contiguous(kernel.ast),
    };
    let target = Target::sm_90a();
    let ours = host_ms(7, || {
        kernel.specialize(&dtypes, &consts, &hints)?.compile(&target)?;
        Ok(())
    })?;
    let peer = match peer {
        Some(peer) if name.variant == "matmul" => {
            Some(("triton".to_owned(), peer.compile(&name.dims)?))
        }
        _ => None,
    };
    Ok(Times { ours, peer, from_graphs: false })
}

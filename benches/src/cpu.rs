//! Chains of elementwise ops on the CPU, op by op and as one kernel, beside PyTorch's ops on as many
//! threads.
//!
//! They run on the CPU whatever the device of the other cases.

use std::time::Instant;

use genesis::{DType, Device, Result, Tensor, fuse, no_grad, num_threads};

use crate::peer::Peer;
use crate::table::{Aim, Case};
use crate::timing::{Times, host_turns};

/// The cases and their elements, with what the ratio to the peer's time must be and should be.
const CASES: [(&str, usize, f64, f64); 4] = [
    ("cpu/chain/f32/64K", 64 << 10, 1.0, 1.5),
    ("cpu/chain/f32/64K/fused", 64 << 10, 1.5, 3.0),
    ("cpu/chain/f32/4M", 4 << 20, 1.0, 1.5),
    ("cpu/chain/f32/4M/fused", 4 << 20, 2.0, 4.0),
];

/// Elements that a turn goes through.
const ELEMENTS: usize = 32 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |&(name, _, must, aim): &(&str, usize, f64, f64)| {
        let (name, aim) = (name.to_owned(), Some(Aim::Ratio(aim)));
        Case { name, must: Some(must), aim }
    };
    CASES.iter().map(case).collect()
}

/// The times of a case; none if it is another's.
pub(crate) fn time(case: &str, peer: Option<&mut Peer>) -> anyhow::Result<Option<Times>> {
    let Some((_, n, ..)) = CASES.iter().find(|(name, ..)| *name == case) else { return Ok(None) };
    let run = chain_of(*n, case.ends_with("/fused"))?;
    let repeats = ELEMENTS / n;
    run()?;
    let ours = || {
        let start = Instant::now();
        for _ in 0..repeats {
            run()?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3 / repeats as f64)
    };
    let theirs = |peer: &mut Peer| peer.cpu_chain(*n, repeats, num_threads());
    host_turns(peer, ours, theirs).map(Some)
}

/// What runs the chain once on `n` elements.
fn chain_of(n: usize, is_fused: bool) -> Result<Box<dyn Fn() -> Result<Tensor>>> {
    let at = (DType::F32, Device::Cpu);
    let (x, y) = (Tensor::randn(&[n], at)?, Tensor::randn(&[n], at)?);
    if !is_fused {
        return Ok(Box::new(move || no_grad(|| chain(&x, &y))));
    }
    let fused = fuse(|args| chain(&args[0], &args[1]));
    Ok(Box::new(move || no_grad(|| fused.call(&[&x, &y]))))
}

/// Ten ops; `cpu_chain` of peer.py is the same. Each result is dropped once it was read, as Python does: in a
/// chain of methods all live to the end of the statement, which would be 3 MB of 64K elements.
fn chain(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let mut z = x.mul(y)?;
    z = z.add(x)?;
    z = z.mul_scalar(0.5)?;
    z = z.tanh()?;
    z = z.mul(y)?;
    z = z.sub(x)?;
    z = z.sigmoid()?;
    z = z.mul(x)?;
    z = z.add_scalar(1.0)?;
    z.relu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kernel_gives_what_ops_give() -> Result<()> {
        for is_fused in [false, true] {
            let x = Tensor::from_slice_on(&[1.0f32, -2.0], &[2], Device::Cpu)?;
            let y = Tensor::from_slice_on(&[0.5f32, 3.0], &[2], Device::Cpu)?;
            let fused = fuse(|args| chain(&args[0], &args[1]));
            let z = if is_fused { fused.call(&[&x, &y])? } else { chain(&x, &y)? };
            let exact = |x: f64, y: f64| {
                let z = (0.5 * (x * y + x)).tanh() * y - x;
                (x / (1.0 + (-z).exp()) + 1.0).max(0.0)
            };
            let want = [exact(1.0, 0.5), exact(-2.0, 3.0)];
            for (z, want) in z.to_f64_vec()?.into_iter().zip(want) {
                assert!((z - want).abs() < 1e-5, "{z} and {want}");
            }
        }
        Ok(())
    }
}

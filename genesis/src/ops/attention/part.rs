//! Gradients of attention over a part of the keys, of which the result over all of them is known.

use super::dot_product::{Attention, AttentionBackend, Call};
use super::flash::Flash;
use super::scores::in_reach;
use crate::autograd::{SavedTensors, no_grad};
use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

/// What the keys and values of one part, `[B, G, S, D]`, add to the gradients of queries `[B, H, L, D]`, and
/// their own gradients.
///
/// `y` and `lse: [B, H, L]` are the result and the logarithms of sums of exponentials over *all* parts:
/// with them the weights of a part are `exp(s - lse)`, and parts need nothing of each other.
pub(crate) fn part_gradients(
    [q, k, v]: [&Tensor; 3],
    (y, lse): (&Tensor, &Tensor),
    dy: &Tensor,
    options: &Attention,
) -> Result<[Tensor; 3]> {
    let call = Call { q, k, v, options, place: 0 };
    no_grad(|| match call.pick()?.0 {
        AttentionBackend::Flash => {
            let flash = Flash { scale: call.scale(), reach: call.reach(), ..Flash::default() };
            let saved = SavedTensors::of(&[q, k, v], y);
            flash.by_kernels(&saved, lse, dy)
        }
        _ => by_ops(&call, (y, lse), dy),
    })
}

/// With `w = exp(s - lse)` and `delta` the sums of `y dy`: `dv = w' dy`, `ds = w (dy v' - delta)`.
fn by_ops(call: &Call<'_>, (y, lse): (&Tensor, &Tensor), dy: &Tensor) -> Result<[Tensor; 3]> {
    let dtype = launch::accumulate_dtype(dy.dtype());
    let wide = |t: &Tensor| t.to_dtype(dtype);
    let [b, h, m, _] = [0, 1, 2, 3].map(|axis| call.q.shape()[axis]);
    let [g, n, d] = [1, 2, 3].map(|axis| call.k.shape()[axis]);
    let heads = |t: &Tensor| wide(t)?.repeat_interleave(h / g, 1);
    let (q, k, v, dy) = (wide(call.q)?, heads(call.k)?, heads(call.v)?, wide(dy)?);
    let s = q.matmul(&k.t()?)?.mul_scalar(call.scale())?;
    let mut w = s.sub(&wide(lse)?.unsqueeze(-1)?)?.exp()?;
    if let Some(seen) = in_reach(call.reach(), m, n, q.device())? {
        w = w.masked_fill(&seen.logical_not()?, 0.0)?;
    }
    let delta = wide(y)?.mul(&dy)?.sum_dims(&[-1], true)?;
    let dw = dy.matmul(&v.t()?)?;
    let ds = w.mul(&dw.sub(&delta)?)?.mul_scalar(call.scale())?;
    let summed = |t: &Tensor| t.reshape(&[b, g, h / g, n, d])?.sum_dims(&[2], false);
    Ok([ds.matmul(&k)?, summed(&ds.t()?.matmul(&q)?)?, summed(&w.t()?.matmul(&dy)?)?])
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::autograd::{GradOptions, grad};

    #[test]
    fn gradients_of_all_keys_are_those_of_attention() -> Result<()> {
        let make = |shape: &[usize]| Tensor::randn(shape, Device::Cpu)?.requires_grad_(true);
        let (q, k, v) = (make(&[2, 4, 5, 8])?, make(&[2, 2, 5, 8])?, make(&[2, 2, 5, 8])?);
        for is_causal in [false, true] {
            let options = Attention { is_causal, groups: true, ..Attention::default() };
            let (y, lse) = q.attention_with_lse(&k, &v, &options)?;
            let dy = y.detach().mul_scalar(0.5)?;
            let given = [Some(&dy)];
            let seeds = GradOptions { grad_outputs: &given, ..GradOptions::default() };
            let wants = grad(&[&y], &[&q, &k, &v], seeds)?;
            let got = part_gradients([&q, &k, &v], (&y, &lse), &dy, &options)?;
            for (got, wants) in got.iter().zip(wants) {
                let wants = wants.expect("a gradient");
                assert!(got.sub(&wants)?.abs()?.max()?.item()? < 1e-5);
            }
        }
        Ok(())
    }
}

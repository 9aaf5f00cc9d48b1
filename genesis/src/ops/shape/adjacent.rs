//! Adjacent tensors in one storage, as one view.

use crate::autograd::no_grad;
use crate::error::Result;
use crate::shape::Layout;
use crate::tensor::Tensor;

impl Tensor {
    /// Tensors that differ in their first extent alone as one, `[sum of the first extents, ..]`, without
    /// history; none where one does not begin in memory where the one before ends.
    pub(crate) fn adjacent(parts: &[&Tensor]) -> Option<Tensor> {
        let (first, others) = parts.split_first()?;
        let (&rows, inner) = first.shape().split_first()?;
        let (mut rows, mut end) = (rows, end_of(first)?);
        for part in others {
            let is_next = std::sync::Arc::ptr_eq(first.storage(), part.storage())
                && part.dtype() == first.dtype()
                && part.layout().offset() == end;
            let (&own, own_inner) = part.shape().split_first()?;
            if !is_next || own_inner != inner {
                return None;
            }
            (rows, end) = (rows.checked_add(own)?, end_of(part)?);
        }
        let shape = [&[rows], inner].concat();
        let layout = Layout::contiguous(&shape)?.at(first.layout().offset())?;
        Some(Tensor::plain(first.storage().clone(), layout, first.dtype()))
    }

    /// Copies of tensors that differ in their first extent alone, each beginning in memory where the one before
    /// ends: what [`Tensor::adjacent`] takes. They have no history.
    pub(crate) fn pack(parts: &[&Tensor]) -> Result<Vec<Tensor>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let all = no_grad(|| Tensor::cat(parts, 0))?;
        let mut start = 0;
        let part = |part: &&Tensor| {
            let rows = part.dim(0)?;
            start += rows;
            Ok(all.narrow(0, start - rows, rows)?.detach())
        };
        parts.iter().map(part).collect()
    }
}

/// The offset behind a dense tensor.
fn end_of(tensor: &Tensor) -> Option<usize> {
    tensor.is_contiguous().then(|| tensor.layout().offset() + tensor.numel())
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;

    #[test]
    fn parts_of_one_tensor_are_it_again() -> crate::Result<()> {
        let whole = Tensor::randn(&[6, 4], Device::Cpu)?;
        let part = |start, len| whole.narrow(0, start, len);
        let packed = Tensor::pack(&[&part(2, 1)?, &part(0, 2)?])?;
        let again = Tensor::adjacent(&packed.iter().collect::<Vec<_>>()).expect("they are");
        assert_eq!(again.narrow(0, 1, 2)?.to_vec::<f32>()?, part(0, 2)?.to_vec::<f32>()?);
        let (a, b, c) = (part(0, 1)?, part(1, 3)?, part(4, 2)?);
        let all = Tensor::adjacent(&[&a, &b, &c]).expect("they are");
        assert_eq!(all.to_vec::<f32>()?, whole.to_vec::<f32>()?);
        let two = Tensor::adjacent(&[&b, &c]).expect("they are");
        assert_eq!(two.to_vec::<f32>()?, part(1, 5)?.to_vec::<f32>()?);
        Ok(())
    }

    #[test]
    fn others_are_not() -> crate::Result<()> {
        let whole = Tensor::randn(&[6, 4], Device::Cpu)?;
        let (a, b) = (whole.narrow(0, 0, 2)?, whole.narrow(0, 2, 2)?);
        let none = |parts: &[&Tensor]| assert!(Tensor::adjacent(parts).is_none(), "{parts:?}");
        none(&[&b, &a]);
        none(&[&a, &a]);
        none(&[&a, &whole.narrow(0, 3, 1)?]);
        none(&[&a, &b.copy()?]);
        none(&[&a.t()?, &b.t()?]);
        none(&[&a, &whole.narrow(0, 2, 2)?.reshape(&[2, 2, 2])?]);
        none(&[]);
        Ok(())
    }
}

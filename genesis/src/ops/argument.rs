//! Tensors as arguments of kernels: how a custom op launches one of its own.
//!
//! A kernel is compiled for dtypes and ranks, a tensor has them at run time: [`Tensor::arg`] and
//! [`Tensor::arg_mut`] are where the two are compared. What they give is passed to the `launch` that
//! `#[kernel]` writes, for a `View<T, RANK>` or a `Ptr<T>`; the launch keeps the order of all other
//! work on the tensor's [`stream`](Tensor::stream).

use std::marker::PhantomData;

use genesis_kernel::runtime::{
    AsPtr, AsPtrMut, AsView, AsViewMut, CheckedArg, HostElement, Stream,
};

use crate::dispatch::capture;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use genesis_kernel::ir::MAX_RANK;

/// A tensor that a kernel reads, with elements `T` and `RANK` axes.
#[derive(Clone, Copy, Debug)]
pub struct TensorArg<'a, T, const RANK: usize> {
    view: CheckedArg<'a>,
    of: PhantomData<(&'a Tensor, T)>,
}

/// A tensor that a kernel reads and writes, with elements `T` and `RANK` axes.
#[derive(Debug)]
pub struct TensorArgMut<'a, T, const RANK: usize> {
    view: CheckedArg<'a>,
    of: PhantomData<(&'a mut Tensor, T)>,
}

impl Tensor {
    /// The current stream of its device, where work on this tensor is to run.
    pub fn stream(&self) -> Stream {
        self.device().stream()
    }

    /// This tensor as what a kernel reads: a `View<T, RANK>` with its strides, or a `Ptr<T>` to its
    /// first element.
    ///
    /// # Errors
    /// If it has another dtype or another number of axes; `reshape` and `contiguous` change those.
    pub fn arg<T: HostElement, const RANK: usize>(&self) -> Result<TensorArg<'_, T, RANK>> {
        Ok(TensorArg { view: self.kernel_view::<T, RANK>("arg", false)?, of: PhantomData })
    }

    /// This tensor as what a kernel writes: a `ViewMut<T, RANK>` or a `PtrMut<T>`.
    ///
    /// It counts as a write in place: saved for a backward before, the tensor is not fit for it any
    /// more. The kernel's own gradient is for [`Function`](crate::autograd::Function) to say. A safe launch
    /// refuses two arguments that share elements of which it writes one; parts of one tensor that share
    /// none, such as some of its columns and the others, are fine.
    ///
    /// # Errors
    /// As [`Tensor::arg`]; also if the tensor is a leaf whose gradient is wanted and recorded, or several
    /// elements share one place.
    pub fn arg_mut<T: HostElement, const RANK: usize>(
        &mut self,
    ) -> Result<TensorArgMut<'_, T, RANK>> {
        self.check_in_place("arg_mut")?;
        let view = self.kernel_view::<T, RANK>("arg_mut", true)?;
        self.storage().bump_version();
        Ok(TensorArgMut { view, of: PhantomData })
    }

    fn kernel_view<T: HostElement, const RANK: usize>(
        &self,
        op: &str,
        mutable: bool,
    ) -> Result<CheckedArg<'_>> {
        const { assert!(RANK <= MAX_RANK, "a kernel takes no view of so many axes") }
        if self.dtype() != T::DTYPE {
            let message = format!("the tensor is {}, asked for {}", self.dtype(), T::DTYPE);
            return Err(Error::op(op, message));
        }
        if self.rank() != RANK {
            let message = format!("needs {RANK} axes, the shape is {:?}", self.shape());
            return Err(Error::op(op, message));
        }
        self.storage().wait_arrived()?;
        self.storage().note_use();
        capture::hold(self.storage());
        let dims: Vec<i64> = self.shape().iter().map(|&extent| extent as i64).collect();
        let (buffer, layout) = (self.storage().buffer(), (&dims[..], self.strides()));
        Ok(CheckedArg::view(buffer, self.layout().offset(), self.dtype(), layout, mutable)?)
    }
}

impl<T: HostElement, const RANK: usize> AsView<T, RANK> for TensorArg<'_, T, RANK> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.view
    }
}

impl<T: HostElement, const RANK: usize> AsViewMut<T, RANK> for TensorArgMut<'_, T, RANK> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.view
    }
}

impl<T: HostElement, const RANK: usize> AsPtr<T> for TensorArg<'_, T, RANK> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.view.as_ptr()
    }
}

impl<T: HostElement, const RANK: usize> AsPtrMut<T> for TensorArgMut<'_, T, RANK> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.view.as_ptr()
    }
}

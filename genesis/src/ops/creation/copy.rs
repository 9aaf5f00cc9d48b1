//! Values back to the host, copies, and moves between dtypes.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::{Device, HostElement, from_bytes};

use crate::autograd::SavedTensors;
use crate::dispatch::capture;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::index::flag;
use crate::ops::{Op, apply, composite, result_of};
use crate::tensor::{Tensor, host};

impl Tensor {
    /// The elements in row-major order, as bytes. Waits for the device.
    #[track_caller]
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        capture::check("a value is read on the host")?;
        self.read()
    }

    /// The indices of a tensor of i64 on the CPU, for the check of an op. A GPU's kernel does the same by itself, so
    /// that a captured step is not refused for it, wherever it runs.
    #[track_caller]
    pub(crate) fn indices_to_check(&self) -> Result<Vec<i64>> {
        Ok(from_bytes(self.read()?))
    }

    #[track_caller]
    fn read(&self) -> Result<Vec<u8>> {
        trace::check_read(self)?;
        let dense = self.detach().contiguous()?;
        let start = dense.layout().offset() * dense.dtype().bytes();
        let len = dense.numel() * dense.dtype().bytes();
        let mut bytes = host::zeroed("to_vec", len)?;
        // A view of nothing may begin past the end of its storage.
        if len > 0 {
            dense.storage().buffer().read(start, &mut bytes)?;
        }
        if self.device() != Device::Cpu {
            flag::check(self.device())?;
        }
        Ok(bytes)
    }

    /// The elements in row-major order. Waits for the device.
    ///
    /// # Errors
    /// If `T` is not this tensor's dtype.
    #[track_caller]
    pub fn to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let message = format!("the tensor is {}, asked for {}", self.dtype(), T::DTYPE);
            return Err(Error::op("to_vec", message));
        }
        Ok(from_bytes(self.to_bytes()?))
    }

    /// The elements in row-major order as f64, whatever the dtype. Waits for the device.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        let (dtype, bytes) = (self.dtype(), self.to_bytes()?);
        let element = |chunk: &[u8]| {
            let mut bits = [0; 8];
            bits[..chunk.len()].copy_from_slice(chunk);
            let raw = Scalar { dtype, bits: u64::from_le_bytes(bits) };
            if dtype.is_float() { raw.to_f64() } else { Scalar::int(dtype, raw.to_i64()).to_f64() }
        };
        let mut values = host::reserve("to_f64_vec", self.numel())?;
        values.extend(bytes.chunks_exact(dtype.bytes()).map(element));
        Ok(values)
    }

    /// The only element as f64. Waits for the device.
    ///
    /// # Errors
    /// If there is not exactly one element.
    #[track_caller]
    pub fn item(&self) -> Result<f64> {
        match self.to_f64_vec()?[..] {
            [value] => Ok(value),
            _ => {
                let message = format!("needs one element, the shape is {:?}", self.shape());
                Err(Error::op("item", message))
            }
        }
    }

    /// The only element, of the tensor's own dtype: an i64 beyond 2^53 keeps all its digits. Waits for the
    /// device.
    ///
    /// # Errors
    /// If there is not exactly one element, or `T` is not this tensor's dtype.
    #[track_caller]
    pub fn item_as<T: HostElement>(&self) -> Result<T> {
        match self.to_vec::<T>()?[..] {
            [value] => Ok(value),
            _ => {
                let message = format!("needs one element, the shape is {:?}", self.shape());
                Err(Error::op("item", message))
            }
        }
    }

    /// The same values in row-major order without gaps; the tensor itself where they are already.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }

    /// A copy in fresh memory.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        apply(Cast { from: self.dtype(), to: self.dtype(), keeps_order: false }, &[self])
    }

    /// [`Tensor::copy`] with the axes in the order in which this tensor's lie in memory.
    #[track_caller]
    pub(in crate::ops) fn copy_in_order(&self) -> Result<Tensor> {
        apply(Cast { from: self.dtype(), to: self.dtype(), keeps_order: true }, &[self])
    }

    /// The values in another dtype; the tensor itself where they have it already.
    ///
    /// Floats round to nearest, ties to even; float to int truncates and saturates, NaN gives 0.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        apply(Cast { from: self.dtype(), to: dtype, keeps_order: true }, &[self])
    }
}

/// A copy in fresh memory: dense of the same dtype, of another one in the order of the operand's axes.
struct Cast {
    from: DType,
    to: DType,
    /// Whether the axes of the result lie in the order of the operand's, else row by row.
    keeps_order: bool,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        "to_dtype"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, at) = (inputs[0], (self.to, inputs[0].device()));
        let result = match self.keeps_order {
            true => result_of(&[x], x.shape(), at)?,
            false => Tensor::uninitialized(x.shape(), at)?,
        };
        launch::cast(inputs[0], &result)?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.to_dtype(self.from)?)])
    }

    fn converts_from(&self) -> Option<DType> {
        (self.from != self.to).then_some(self.from)
    }

    fn adds_to(&self) -> Option<usize> {
        (self.from != self.to).then_some(0)
    }

    fn backward_onto(
        &self,
        _: &SavedTensors,
        dy: &Tensor,
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let sum =
            composite("add", &[], [onto, dy], |[sum, dy], _| sum.add(&dy.to_dtype(sum.dtype())?))?;
        Ok(vec![Some(sum)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, NUMBERS, OpInfo, Sample};

    const SAMPLES: &[Sample] = &[&[&[2, 3]]];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "contiguous",
            Family::Exact,
            |x| x[0].t()?.contiguous(),
            |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], at[0]])),
            SAMPLES,
        )
        .peer("x[0].t().contiguous()")
        .of(NUMBERS),
        OpInfo::new("copy", Family::Exact, |x| x[0].copy(), |x| x[0].clone(), SAMPLES)
            .peer("x[0].clone(memory_format=torch.contiguous_format)")
            .of(NUMBERS),
        OpInfo::new(
            "to_dtype",
            Family::Exact,
            |x| x[0].to_dtype(DType::F64),
            |x| x[0].clone(),
            SAMPLES,
        )
        .peer("x[0].to(torch.float64)")
        .of(NUMBERS),
    ];
}

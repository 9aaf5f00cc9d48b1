//! Tensors from values: `zeros`, `full`, `arange`, from slices.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::{Device, HostElement, bytes_of};

use crate::dispatch::capture;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::memory;
use crate::shape::{self, Layout};
use crate::tensor::{Creation, Storage, Tensor, host};

impl Tensor {
    /// A tensor over fresh memory with arbitrary contents.
    #[track_caller]
    pub(crate) fn uninitialized(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        let Creation { dtype, device } = at.into();
        let layout = dense("empty", shape)?;
        if trace::is_on() {
            return trace::symbolic(layout, dtype, device);
        }
        let bytes = checked_bytes("empty", &layout, dtype)?;
        let make = || Storage::uninitialized(device, bytes, dtype, shape);
        let storage = memory::made_at(Location::caller(), make)?.into();
        Ok(Tensor::plain(storage, layout, dtype))
    }

    /// A tensor filled with one value, rounded or wrapped to the dtype.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn full(shape: &[usize], value: f64, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        let scalar = match at.dtype {
            dtype if dtype.is_float() => Scalar::float(dtype, value),
            dtype => Scalar::int(dtype, value as i64),
        };
        let result = Tensor::uninitialized(shape, at)?;
        launch::fill(&result, scalar)?;
        Ok(result)
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn zeros(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::full(shape, 0.0, at)
    }

    /// A tensor of ones.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn ones(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::full(shape, 1.0, at)
    }

    /// A tensor whose elements nobody has chosen: what the memory held before, on the CPU zeros or old
    /// values.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn empty(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::uninitialized(shape, at)
    }

    /// [`Tensor::empty`] of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn empty_like(&self) -> Result<Tensor> {
        Tensor::empty(self.shape(), (self.dtype(), self.device()))
    }

    /// One value in this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn full_like(&self, value: f64) -> Result<Tensor> {
        Tensor::full(self.shape(), value, (self.dtype(), self.device()))
    }

    /// A tensor without axes.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn scalar(value: f64, at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::full(&[], value, at)
    }

    /// Zeros of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(self.shape(), (self.dtype(), self.device()))
    }

    /// Ones of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(self.shape(), (self.dtype(), self.device()))
    }

    /// `start, start + step, ..` up to but without `end`.
    ///
    /// # Errors
    /// If `step` is zero or leads away from `end`.
    #[track_caller]
    pub fn arange(start: f64, end: f64, step: f64, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        let n = ((end - start) / step).ceil();
        let is_away = (step > 0.0 && end < start) || (step < 0.0 && end > start);
        if !n.is_finite() || is_away {
            let message = format!("no way from {start} to {end} in steps of {step}");
            return Err(Error::op("arange", message));
        }
        let n = n as usize;
        if !at.dtype.is_number() || n <= FEW && at.device == Device::Cpu {
            return Tensor::from_fn("arange", n, |i| start + i as f64 * step, at);
        }
        checked_bytes("arange", &dense("arange", &[n])?, at.dtype)?;
        let y = Tensor::uninitialized(&[n], (at.dtype, at.device))?;
        launch::arange(&y, start, step)?;
        Ok(y)
    }

    /// `base` to the powers of `count` numbers from `start` to `end`, both included, at equal distances.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn logspace(
        start: f64,
        end: f64,
        count: usize,
        base: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        if !at.dtype.is_number() || count <= FEW && at.device == Device::Cpu {
            let power = evenly(start, end, count);
            return Tensor::from_fn("logspace", count, |i| base.powf(power(i)), at);
        }
        checked_bytes("logspace", &dense("logspace", &[count])?, at.dtype)?;
        let y = Tensor::uninitialized(&[count], (at.dtype, at.device))?;
        launch::logspace(&y, [start, end, distance(start, end, count)], base)?;
        Ok(y)
    }

    /// `count` numbers from `start` to `end`, both included, at equal distances.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, count: usize, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        if !at.dtype.is_number() || count <= FEW && at.device == Device::Cpu {
            return Tensor::from_fn("linspace", count, evenly(start, end, count), at);
        }
        checked_bytes("linspace", &dense("linspace", &[count])?, at.dtype)?;
        let y = Tensor::uninitialized(&[count], (at.dtype, at.device))?;
        launch::linspace(&y, start, end, distance(start, end, count))?;
        Ok(y)
    }

    /// A vector of these values on the default device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn from_vec<T: HostElement>(values: Vec<T>) -> Result<Tensor> {
        Tensor::from_slice(&values, &[values.len()])
    }

    /// The first `n` values of a sequence, or an error where memory can't hold them.
    pub(crate) fn host_values(op: &str, n: usize, f: impl Fn(usize) -> f64) -> Result<Vec<f64>> {
        let mut values = host::reserve(op, n)?;
        values.extend((0..n).map(f));
        Ok(values)
    }

    /// A tensor of these values, in row-major order, on the default device.
    ///
    /// # Errors
    /// If the number of values is not that of `shape`.
    ///
    /// # Examples
    /// ```
    /// # use genesis::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.sum()?.item()?, 10.0);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn from_slice<T: HostElement>(values: &[T], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice_on(values, shape, Device::default())
    }

    /// A tensor of these values, in row-major order, on a device.
    ///
    /// # Errors
    /// If the number of values is not that of `shape`.
    #[track_caller]
    pub fn from_slice_on<T: HostElement>(
        values: &[T],
        shape: &[usize],
        device: Device,
    ) -> Result<Tensor> {
        check_fills("from_slice", values.len(), shape)?;
        Tensor::from_bytes(bytes_of(values), shape, (T::DTYPE, device))
    }

    /// A tensor of elements given as bytes in memory order.
    #[track_caller]
    pub(crate) fn from_bytes(
        bytes: &[u8],
        shape: &[usize],
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let Creation { dtype, device } = at.into();
        let layout = dense("from_bytes", shape)?;
        if Some(bytes.len()) != layout.numel().checked_mul(dtype.bytes()) {
            let message = format!("{} bytes do not fill shape {shape:?} of {dtype}", bytes.len());
            return Err(Error::op("from_bytes", message));
        }
        let make = || match capture::is_recording() {
            true => Storage::from_bytes_beside(device, bytes, dtype, shape),
            false => Storage::from_bytes(device, bytes, dtype, shape),
        };
        let storage = memory::made_at(Location::caller(), make)?.into();
        capture::hold(&storage);
        Ok(Tensor::plain(storage, layout, dtype))
    }

    /// A tensor whose bytes the host fills in, in memory order. For a GPU they are filled into pinned
    /// memory, from which it copies while the host goes on; where there is no more of that, into ordinary.
    #[track_caller]
    pub(crate) fn filled(
        shape: &[usize],
        at: impl Into<Creation>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let at = at.into();
        Tensor::filled_for(shape, at, fill)?.to_device_non_blocking(at.device)
    }

    /// The same still on the host, on its way to the device.
    #[track_caller]
    pub(crate) fn filled_for(
        shape: &[usize],
        at: impl Into<Creation>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let Creation { dtype, device } = at.into();
        let layout = dense("filled", shape)?;
        let bytes = checked_bytes("filled", &layout, dtype)?;
        let plain = || Storage::uninitialized(Device::Cpu, bytes, dtype, shape);
        let make = || match device {
            Device::Cpu => plain(),
            Device::Cuda(_) => Storage::pinned(bytes, dtype, shape).or_else(|_| plain()),
        };
        let storage = memory::made_at(Location::caller(), make)?.into();
        let host = Tensor::plain(storage, layout, dtype);
        fill(&mut host.bytes_mut())?;
        Ok(host)
    }

    /// A tensor of these values, rounded or wrapped to the dtype.
    ///
    /// # Errors
    /// If the number of values is not that of `shape`.
    #[track_caller]
    pub fn from_f64(values: &[f64], shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        check_fills("from_f64", values.len(), shape)?;
        let bytes = packed("from_f64", 0..values.len(), |i| values[i], at.dtype)?;
        Tensor::from_bytes(&bytes, shape, at)
    }

    /// A vector of the first `n` values of a sequence.
    #[track_caller]
    pub(crate) fn from_fn(
        op: &str,
        n: usize,
        value: impl Fn(usize) -> f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let Creation { dtype, device } = at.into();
        let layout = dense(op, &[n])?;
        if n <= CHUNK || capture::is_recording() {
            return Tensor::from_bytes(&packed(op, 0..n, value, dtype)?, &[n], (dtype, device));
        }
        // Memory comes first: where there is none for the values, none is computed.
        let bytes = checked_bytes(op, &layout, dtype)?;
        let make = || Storage::uninitialized(device, bytes, dtype, &[n]);
        let storage: Arc<Storage> = memory::made_at(Location::caller(), make)?.into();
        for first in (0..n).step_by(CHUNK) {
            let part = packed(op, first..n.min(first + CHUNK), &value, dtype)?;
            storage.buffer().write(first * dtype.bytes(), &part)?;
        }
        Ok(Tensor::plain(storage, layout, dtype))
    }
}

/// Values that are computed before they are written.
const CHUNK: usize = 1 << 20;

/// Numbers that the host writes by itself where the CPU is the device: for so few nothing is compiled.
const FEW: usize = 1 << 10;

/// The layout of a new tensor.
fn dense(op: &str, shape: &[usize]) -> Result<Layout> {
    Layout::contiguous(shape).ok_or_else(|| shape::uncountable(op, shape))
}

/// What the elements of a new tensor take.
fn checked_bytes(op: &str, layout: &Layout, dtype: DType) -> Result<usize> {
    let bytes = layout.numel().checked_mul(dtype.bytes());
    bytes.filter(|&n| n <= isize::MAX as usize).ok_or_else(|| {
        let shape = layout.shape();
        Error::op(op, format!("shape {shape:?} of {dtype} is larger than memory can be"))
    })
}

fn check_fills(op: &str, values: usize, shape: &[usize]) -> Result<()> {
    if shape::numel(op, shape)? != values {
        return Err(Error::op(op, format!("{values} values do not fill shape {shape:?}")));
    }
    Ok(())
}

/// The bytes of these values of a sequence, rounded or wrapped to the dtype.
fn packed(
    op: &str,
    range: Range<usize>,
    value: impl Fn(usize) -> f64,
    dtype: DType,
) -> Result<Vec<u8>> {
    let mut bytes = host::reserve(op, range.len().saturating_mul(dtype.bytes()))?;
    for i in range {
        let scalar = match dtype.is_float() {
            true => Scalar::float(dtype, value(i)),
            false => Scalar::int(dtype, value(i) as i64),
        };
        bytes.extend_from_slice(&scalar.bits.to_le_bytes()[..dtype.bytes()]);
    }
    Ok(bytes)
}

/// How far numbers are from each other that are `count` from `start` to `end`.
fn distance(start: f64, end: f64, count: usize) -> f64 {
    if count > 1 { (end - start) / (count - 1) as f64 } else { 0.0 }
}

/// `count` numbers from `start` to `end`, from both ends, so that the last is exact.
fn evenly(start: f64, end: f64, count: usize) -> impl Fn(usize) -> f64 {
    let step = distance(start, end, count);
    move |i| match i < count.div_ceil(2) {
        true => start + step * i as f64,
        false => end - step * (count - 1 - i) as f64,
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Dense, FLOATS, Family, NUMBERS, OpInfo, WIDE, map, vector};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "linspace",
            Family::Arithmetic,
            |x| Tensor::linspace(1.0, 2.0, x[0].numel(), (x[0].dtype(), x[0].device())),
            |_| vector(vec![1.0, 1.25, 1.5, 1.75, 2.0]),
            &[&[&[5]]],
        )
        .peer("torch.linspace(1.0, 2.0, x[0].numel(), dtype=x[0].dtype, device=x[0].device)")
        .flat(),
        OpInfo::new(
            "logspace",
            Family::Transcendental,
            |x| Tensor::logspace(0.0, 2.0, x[0].numel(), 10.0, (x[0].dtype(), x[0].device())),
            |_| vector(vec![1.0, 10.0, 100.0]),
            &[&[&[3]]],
        )
        .peer("torch.logspace(0.0, 2.0, x[0].numel(), dtype=x[0].dtype, device=x[0].device)")
        .of(WIDE)
        .flat(),
        OpInfo::new(
            "arange",
            Family::Exact,
            |x| {
                let end = 1.0 + 0.5 * x[0].numel() as f64;
                Tensor::arange(1.0, end, 0.5, (x[0].dtype(), x[0].device()))
            },
            |_| vector(vec![1.0, 1.5, 2.0, 2.5, 3.0, 3.5]),
            &[&[&[6]]],
        )
        .peer(
            "torch.arange(1.0, 1.0 + 0.5 * x[0].numel(), 0.5, dtype=x[0].dtype, \
             device=x[0].device)",
        )
        .of(FLOATS)
        .flat(),
        OpInfo::new(
            "full",
            Family::Exact,
            |x| Tensor::full(x[0].shape(), 7.0, (x[0].dtype(), x[0].device())),
            |x| map(&x[0], |_| 7.0),
            &[&[&[2, 3]]],
        )
        .peer("torch.full(x[0].shape, 7.0, dtype=x[0].dtype, device=x[0].device)")
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "zeros",
            Family::Exact,
            |x| Tensor::zeros(x[0].shape(), (x[0].dtype(), x[0].device())),
            |x| map(&x[0], |_| 0.0),
            &[&[&[2, 3]]],
        )
        .peer("torch.zeros(x[0].shape, dtype=x[0].dtype, device=x[0].device)")
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "ones",
            Family::Exact,
            |x| Tensor::ones(x[0].shape(), (x[0].dtype(), x[0].device())),
            |x| map(&x[0], |_| 1.0),
            &[&[&[2, 3]]],
        )
        .peer("torch.ones(x[0].shape, dtype=x[0].dtype, device=x[0].device)")
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "full_like",
            Family::Exact,
            |x| x[0].full_like(7.0),
            |x| map(&x[0], |_| 7.0),
            &[&[&[2, 3]]],
        )
        .peer("torch.full_like(x[0], 7.0)")
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "zeros_like",
            Family::Exact,
            |x| x[0].zeros_like(),
            |x| map(&x[0], |_| 0.0),
            &[&[&[2, 3]]],
        )
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "ones_like",
            Family::Exact,
            |x| x[0].ones_like(),
            |x| map(&x[0], |_| 1.0),
            &[&[&[2, 3]]],
        )
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "from_f64",
            Family::Exact,
            |x| Tensor::from_f64(&[1.0, 2.0], &[2], (x[0].dtype(), x[0].device())),
            |_| vector(vec![1.0, 2.0]),
            &[&[&[1]]],
        )
        .peer("torch.tensor([1.0, 2.0], dtype=x[0].dtype, device=x[0].device)")
        .of(NUMBERS)
        .flat(),
        OpInfo::new(
            "scalar",
            Family::Exact,
            |x| Tensor::scalar(7.0, (x[0].dtype(), x[0].device())),
            |_| Dense { shape: Vec::new(), data: vec![7.0] },
            &[&[&[1]]],
        )
        .peer("torch.tensor(7.0, dtype=x[0].dtype, device=x[0].device)")
        .of(NUMBERS)
        .flat(),
    ];
}

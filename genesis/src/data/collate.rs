//! From samples to batches.
//!
//! Tensors of one shape are stacked, numbers become a tensor, tuples and maps are batched part by
//! part. A type of one's own implements [`Sample`], or the loader is given a function.

use std::collections::BTreeMap;

use genesis_kernel::runtime::{Device, HostElement, bytes_of};

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::host::reserved;

/// What a data set gives, and what several of it become.
pub trait Sample: Send + Sized + 'static {
    /// Several samples together.
    type Batch: Batch;

    /// Puts samples together, in order.
    ///
    /// # Errors
    /// If they do not fit together.
    fn collate(samples: Vec<Self>) -> Result<Self::Batch>;
}

/// Samples put together.
pub trait Batch: Send + Sized + 'static {
    /// The same with every tensor on a device.
    ///
    /// # Errors
    /// If its memory runs out.
    fn to_device(self, device: Device) -> Result<Self>;

    /// The same with every tensor in pinned host memory. What is not a tensor stays as it is.
    ///
    /// # Errors
    /// If there is no more such memory.
    fn pin_memory(self) -> Result<Self> {
        Ok(self)
    }
}

impl Batch for Tensor {
    fn to_device(self, device: Device) -> Result<Tensor> {
        Tensor::to_device(&self, device)
    }

    fn pin_memory(self) -> Result<Tensor> {
        Tensor::pin_memory(&self)
    }
}

impl Batch for String {
    fn to_device(self, _: Device) -> Result<String> {
        Ok(self)
    }
}

impl<B: Batch> Batch for Vec<B> {
    fn to_device(self, device: Device) -> Result<Vec<B>> {
        self.into_iter().map(|part| part.to_device(device)).collect()
    }

    fn pin_memory(self) -> Result<Vec<B>> {
        self.into_iter().map(B::pin_memory).collect()
    }
}

impl<B: Batch> Batch for BTreeMap<String, B> {
    fn to_device(self, device: Device) -> Result<BTreeMap<String, B>> {
        self.into_iter().map(|(name, part)| Ok((name, part.to_device(device)?))).collect()
    }

    fn pin_memory(self) -> Result<BTreeMap<String, B>> {
        self.into_iter().map(|(name, part)| Ok((name, part.pin_memory()?))).collect()
    }
}

impl Sample for Tensor {
    type Batch = Tensor;

    /// A new first axis; shapes and dtypes must be equal.
    fn collate(samples: Vec<Tensor>) -> Result<Tensor> {
        let Some(first) = samples.first() else { return Err(Error::op(NAME, "no samples")) };
        if let Some(at) = samples.iter().position(|s| s.tensor_type() != first.tensor_type()) {
            let message = format!(
                "sample {at} of the batch is {} {:?}, the first is {} {:?}",
                samples[at].dtype(),
                samples[at].shape(),
                first.dtype(),
                first.shape()
            );
            return Err(Error::op(NAME, message));
        }
        if samples.iter().any(|sample| sample.device() != Device::Cpu) {
            return Tensor::stack(&samples.iter().collect::<Vec<_>>(), 0);
        }
        // On the host a batch is its samples' bytes one after another; no op is launched.
        let size = first.dtype().bytes().checked_mul(first.numel());
        let size = size.and_then(|size| size.checked_mul(samples.len())).unwrap_or(usize::MAX);
        let mut bytes = reserved(size).map_err(|what| Error::op(NAME, what))?;
        for sample in &samples {
            bytes.extend_from_slice(&sample.to_bytes()?);
        }
        let shape = [&[samples.len()], first.shape()].concat();
        Tensor::from_bytes(&bytes, &shape, (first.dtype(), Device::Cpu))
    }
}

const NAME: &str = "collate";

fn line<T: HostElement>(samples: &[T]) -> Result<Tensor> {
    Tensor::from_bytes(bytes_of(samples), &[samples.len()], (T::DTYPE, Device::Cpu))
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Sample for $ty {
            type Batch = Tensor;

            /// A tensor of one axis.
            fn collate(samples: Vec<$ty>) -> Result<Tensor> {
                line(&samples)
            }
        }
    )*};
}
numbers!(bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Sample for String {
    type Batch = Vec<String>;

    fn collate(samples: Vec<String>) -> Result<Vec<String>> {
        Ok(samples)
    }
}

impl<T: Sample> Sample for Vec<T> {
    type Batch = Vec<T::Batch>;

    /// A batch for each place; the lists must be of one length.
    fn collate(samples: Vec<Vec<T>>) -> Result<Vec<T::Batch>> {
        let len = samples.first().map_or(0, Vec::len);
        if let Some(at) = samples.iter().position(|sample| sample.len() != len) {
            let message = format!(
                "sample {at} of the batch has {} parts, the first {len}",
                samples[at].len()
            );
            return Err(Error::op(NAME, message));
        }
        let mut columns: Vec<Vec<T>> = (0..len).map(|_| Vec::new()).collect();
        for sample in samples {
            sample.into_iter().zip(&mut columns).for_each(|(part, column)| column.push(part));
        }
        columns.into_iter().map(T::collate).collect()
    }
}

impl<T: Sample> Sample for BTreeMap<String, T> {
    type Batch = BTreeMap<String, T::Batch>;

    /// A batch for each name; all samples must have the same names.
    fn collate(samples: Vec<BTreeMap<String, T>>) -> Result<BTreeMap<String, T::Batch>> {
        let mut columns: BTreeMap<String, Vec<T>> = BTreeMap::new();
        let count = samples.len();
        for sample in samples {
            for (name, part) in sample {
                columns.entry(name).or_default().push(part);
            }
        }
        if let Some((name, parts)) = columns.iter().find(|(_, parts)| parts.len() != count) {
            let message = format!("{name} is in {} of {count} samples of the batch", parts.len());
            return Err(Error::op(NAME, message));
        }
        columns.into_iter().map(|(name, parts)| Ok((name, T::collate(parts)?))).collect()
    }
}

macro_rules! tuples {
    ($($name:ident $part:ident $column:ident),*) => {
        impl<$($name: Batch),*> Batch for ($($name,)*) {
            fn to_device(self, device: Device) -> Result<Self> {
                let ($($part,)*) = self;
                Ok(($($part.to_device(device)?,)*))
            }

            fn pin_memory(self) -> Result<Self> {
                let ($($part,)*) = self;
                Ok(($($part.pin_memory()?,)*))
            }
        }

        impl<$($name: Sample),*> Sample for ($($name,)*) {
            type Batch = ($($name::Batch,)*);

            fn collate(samples: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $column = Vec::with_capacity(samples.len());)*
                for ($($part,)*) in samples {
                    $($column.push($part);)*
                }
                Ok(($($name::collate($column)?,)*))
            }
        }
    };
}
tuples!(A a xs);
tuples!(A a xs, B b ys);
tuples!(A a xs, B b ys, C c zs);
tuples!(A a xs, B b ys, C c zs, D d ws);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f32]) -> Tensor {
        Tensor::from_slice_on(values, &[values.len()], Device::Cpu).unwrap()
    }

    #[test]
    fn tuples_are_batched_part_by_part() {
        let (x, y) =
            <(Tensor, i64)>::collate(vec![(row(&[1.0, 2.0]), 3), (row(&[4.0, 5.0]), 6)]).unwrap();
        assert_eq!((x.shape(), y.shape()), (&[2, 2][..], &[2][..]));
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(y.to_vec::<i64>().unwrap(), [3, 6]);
    }

    #[test]
    fn names_are_kept() {
        let sample =
            |v: f32| BTreeMap::from([("x".to_owned(), row(&[v])), ("y".to_owned(), row(&[]))]);
        let batch = BTreeMap::collate(vec![sample(1.0), sample(2.0)]).unwrap();
        assert_eq!(batch["x"].shape(), [2, 1]);
        assert_eq!(batch["y"].shape(), [2, 0]);
        let mut odd = sample(3.0);
        odd.remove("x");
        let error = BTreeMap::collate(vec![sample(1.0), odd]).unwrap_err().to_string();
        assert_eq!(error, "collate: x is in 1 of 2 samples of the batch");
    }

    #[test]
    fn shapes_must_agree() {
        let error = Tensor::collate(vec![row(&[1.0]), row(&[1.0, 2.0])]).unwrap_err().to_string();
        assert_eq!(error, "collate: sample 1 of the batch is f32 [2], the first is f32 [1]");
        let lists = vec![vec![1i64, 2], vec![3]];
        let error = Vec::collate(lists).unwrap_err().to_string();
        assert_eq!(error, "collate: sample 1 of the batch has 1 parts, the first 2");
    }
}

//! Data sets of tensors in memory.

use genesis_kernel::runtime::Device;

use super::collate::Batch;
use super::dataset::{Dataset, no_sample};
use super::loader::{DataLoader, LoaderOptions};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::host::reserved;

/// One tensor, a tuple or a list of them, whose first axes count the same samples.
pub trait Tensors: Batch + Sync + Clone {
    /// All tensors.
    fn parts(&self) -> Vec<&Tensor>;

    /// The same with each tensor changed.
    ///
    /// # Errors
    /// If a change fails.
    fn each(&self, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self>;
}

impl Tensors for Tensor {
    fn parts(&self) -> Vec<&Tensor> {
        vec![self]
    }

    fn each(&self, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        change(self)
    }
}

impl Tensors for Vec<Tensor> {
    fn parts(&self) -> Vec<&Tensor> {
        self.iter().collect()
    }

    fn each(&self, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        self.iter().map(change).collect()
    }
}

impl Tensors for (Tensor, Tensor) {
    fn parts(&self) -> Vec<&Tensor> {
        vec![&self.0, &self.1]
    }

    fn each(&self, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<(Tensor, Tensor)> {
        Ok((change(&self.0)?, change(&self.1)?))
    }
}

impl Tensors for (Tensor, Tensor, Tensor) {
    fn parts(&self) -> Vec<&Tensor> {
        vec![&self.0, &self.1, &self.2]
    }

    fn each(&self, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok((change(&self.0)?, change(&self.1)?, change(&self.2)?))
    }
}

/// Samples that are rows of tensors.
#[derive(Clone, Debug)]
pub struct TensorDataset<T> {
    tensors: T,
    len: usize,
}

impl<T: Tensors> TensorDataset<T> {
    /// The rows of these tensors.
    ///
    /// # Errors
    /// If a tensor has no axis, or first axes differ.
    pub fn new(tensors: T) -> Result<TensorDataset<T>> {
        let shapes: Vec<&[usize]> = tensors.parts().iter().map(|part| part.shape()).collect();
        let len = shapes.first().and_then(|shape| shape.first()).copied().unwrap_or(0);
        if shapes.is_empty() || shapes.iter().any(|shape| shape.first() != Some(&len)) {
            let message = format!("shapes {shapes:?} do not begin with one number of samples");
            return Err(Error::op("tensor dataset", message));
        }
        let tensors = tensors.each(&|part| part.detach().contiguous())?;
        Ok(TensorDataset { tensors, len })
    }

    /// The tensors.
    pub fn tensors(&self) -> &T {
        &self.tensors
    }

    /// Some rows together, in this order.
    ///
    /// # Errors
    /// If one is not there.
    pub fn rows(&self, indices: &[usize]) -> Result<T> {
        if let Some(&index) = indices.iter().find(|&&index| index >= self.len) {
            return Err(no_sample("tensor dataset", index, self.len));
        }
        self.tensors.each(&|part| rows_of(part, indices))
    }

    /// A loader that takes all rows of a batch at once: on a GPU one gather a tensor.
    ///
    /// # Errors
    /// If the batch size is 0.
    pub fn loader(self, options: LoaderOptions) -> Result<DataLoader<T>> {
        DataLoader::with_fetch(self.len, options, move |indices, _| {
            let batch = self.rows(indices)?;
            match options.device {
                Some(device) => batch.to_device(device),
                None => Ok(batch),
            }
        })
    }
}

fn rows_of(tensor: &Tensor, indices: &[usize]) -> Result<Tensor> {
    let shape = [&[indices.len()], &tensor.shape()[1..]].concat();
    if tensor.device() == Device::Cpu {
        let bytes = tensor.host_rows(indices)?;
        return Tensor::from_bytes(&bytes, &shape, (tensor.dtype(), Device::Cpu));
    }
    let at: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    tensor.index_select(0, &Tensor::from_slice_on(&at, &[at.len()], tensor.device())?)
}

impl Tensor {
    /// The bytes of rows of a dense tensor on the CPU, one after another.
    fn host_rows(&self, indices: &[usize]) -> Result<Vec<u8>> {
        let rows = self.shape()[0].max(1);
        let row = self.numel() / rows * self.dtype().bytes();
        let first = self.layout().offset() * self.dtype().bytes();
        let size = row.saturating_mul(indices.len());
        let mut bytes = reserved(size).map_err(|what| Error::op("tensor dataset", what))?;
        bytes.resize(size, 0);
        if row > 0 {
            for (&index, target) in indices.iter().zip(bytes.chunks_exact_mut(row)) {
                self.storage().buffer().read(first + index * row, target)?;
            }
        }
        Ok(bytes)
    }
}

impl<T: Tensors> Dataset for TensorDataset<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<T> {
        if index >= self.len {
            return Err(no_sample("tensor dataset", index, self.len));
        }
        self.tensors.each(&|part| part.select(0, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> TensorDataset<(Tensor, Tensor)> {
        let x = Tensor::arange(0.0, 6.0, 1.0, Device::Cpu).unwrap().reshape(&[3, 2]).unwrap();
        let y = Tensor::from_slice_on(&[7i64, 8, 9], &[3], Device::Cpu).unwrap();
        TensorDataset::new((x, y)).unwrap()
    }

    #[test]
    fn rows_come_in_the_order_asked_for() {
        let (x, y) = data().rows(&[2, 0]).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [4.0, 5.0, 0.0, 1.0]);
        assert_eq!(y.to_vec::<i64>().unwrap(), [9, 7]);
        let (x, y) = data().get(1).unwrap();
        assert_eq!((x.shape(), y.shape()), (&[2][..], &[][..]));
        assert!(data().rows(&[3]).is_err());
    }

    #[test]
    fn all_parts_need_as_many_rows() {
        let x = Tensor::zeros(&[3, 2], Device::Cpu).unwrap();
        let error = TensorDataset::new((x.clone(), Tensor::zeros(&[2], Device::Cpu).unwrap()));
        let text = "tensor dataset: shapes [[3, 2], [2]] do not begin with one number of samples";
        assert_eq!(error.unwrap_err().to_string(), text);
        assert!(TensorDataset::new(Vec::<Tensor>::new()).is_err());
    }
}

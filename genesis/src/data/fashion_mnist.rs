//! Fashion-MNIST as Debian ships it: gzipped IDX files.
//!
//! # Source
//! arXiv:1708.07747; Debian's package `dataset-fashion-mnist`.

use std::path::Path;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::idx::read_idx_bytes;
use super::tensors::TensorDataset;
use crate::error::{Error, Result};
use crate::files::ReadLimits;
use crate::tensor::Tensor;

/// Where Debian's package puts the files.
const DEBIAN: &str = "/usr/share/datasets/fashion-mnist";

/// 28x28 images of ten kinds of clothes.
#[derive(Clone, Debug)]
pub struct FashionMnist {
    /// 784 pixels an image, row-major, 0 to 1.
    pub images: Vec<f32>,
    /// 0 to 9.
    pub labels: Vec<i64>,
}

impl FashionMnist {
    /// Pixels of one image.
    pub const PIXELS: usize = 784;

    /// The 60,000 images to train on.
    ///
    /// # Errors
    /// If the files are not there or damaged.
    pub fn train(folder: Option<&Path>) -> Result<FashionMnist> {
        FashionMnist::load(folder, "train")
    }

    /// The 10,000 images to test on.
    ///
    /// # Errors
    /// If the files are not there or damaged.
    pub fn test(folder: Option<&Path>) -> Result<FashionMnist> {
        FashionMnist::load(folder, "t10k")
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The images as f32 `[n, 1, 28, 28]` and the labels as i64 `[n]`, on a device.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn tensors(&self, device: Device) -> Result<TensorDataset<(Tensor, Tensor)>> {
        let n = self.len();
        let images = Tensor::from_slice_on(&self.images, &[n, 1, 28, 28], device)?;
        TensorDataset::new((images, Tensor::from_slice_on(&self.labels, &[n], device)?))
    }

    fn load(folder: Option<&Path>, part: &str) -> Result<FashionMnist> {
        let folder = folder.unwrap_or(Path::new(DEBIAN));
        let read = |rest: &str| {
            let zipped = folder.join(format!("{part}-{rest}.gz"));
            let path = if zipped.exists() { zipped } else { folder.join(format!("{part}-{rest}")) };
            if !path.exists() {
                let message = format!(
                    "{} is not there; install Debian's package dataset-fashion-mnist, or name a \
                     folder with --data",
                    path.display()
                );
                return Err(Error::io(message));
            }
            read_idx_bytes(&path, &ReadLimits::default())
        };
        let (image_shape, image_dtype, pixels) = read("images-idx3-ubyte")?;
        let (label_shape, label_dtype, labels) = read("labels-idx1-ubyte")?;
        let fits = image_shape.get(1..) == Some(&[28, 28]) && label_shape == image_shape[..1];
        if !fits || [image_dtype, label_dtype] != [DType::U8; 2] || labels.iter().any(|&l| l > 9) {
            let message = format!(
                "{}: images are {image_shape:?} and labels {label_shape:?}, expected bytes [n, 28, \
                 28] and [n], labels from 0 to 9",
                folder.display()
            );
            return Err(Error::io(message));
        }
        Ok(FashionMnist {
            images: pixels.iter().map(|&p| f32::from(p) / 255.0).collect(),
            labels: labels.iter().map(|&l| i64::from(l)).collect(),
        })
    }
}

//! Fashion-MNIST as Debian ships it: gzipped IDX files.
//!
//! # Source
//! arXiv:1708.07747; Debian's package `dataset-fashion-mnist`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::error::{Error, Result};

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

    fn load(folder: Option<&Path>, part: &str) -> Result<FashionMnist> {
        let folder = folder.unwrap_or(Path::new(DEBIAN));
        let (image_shape, pixels) = read_idx(&folder.join(format!("{part}-images-idx3-ubyte.gz")))?;
        let (label_shape, labels) = read_idx(&folder.join(format!("{part}-labels-idx1-ubyte.gz")))?;
        if image_shape.get(1..) != Some(&[28, 28]) || label_shape != image_shape[..1] {
            let message = format!(
                "{}: images are {image_shape:?} and labels {label_shape:?}, expected [n, 28, 28] and [n]",
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

/// The extents and bytes of a gzipped IDX file of unsigned bytes.
fn read_idx(path: &PathBuf) -> Result<(Vec<usize>, Vec<u8>)> {
    let problem = |what: String| Error::io(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| {
        let help = "install Debian's package dataset-fashion-mnist, or name a folder with --data";
        problem(format!("{error}; {help}"))
    })?;
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).map_err(|e| problem(e.to_string()))?;
    let damaged = || problem("is not an IDX file of bytes".to_owned());
    let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let [0, 0, 8, rank @ 1..=4] = *magic else { return Err(damaged()) };
    let (header, data) = rest.split_at_checked(4 * rank as usize).ok_or_else(damaged)?;
    let extents =
        header.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]) as usize);
    let shape: Vec<usize> = extents.collect();
    let numel = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
    if numel != Some(data.len()) {
        return Err(problem(format!("holds {} bytes, its header says {shape:?}", data.len())));
    }
    Ok((shape, data.to_vec()))
}

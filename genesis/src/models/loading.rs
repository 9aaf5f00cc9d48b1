//! Weights put into a model by name, one tensor at a time.
//!
//! A model is built of parameters without memory; here each is replaced by the tensor of its name, in the
//! model's dtype and on its device. So a model is in memory once, and the dtype that it is stored in never is
//! beside it as a whole. Names that files have and models lack, or the other way, are all in one error.

use std::collections::BTreeSet;
use std::path::Path;

use super::naming::{Fix, Naming};
use crate::error::{Error, Result};
use crate::io::SafeTensorsFile;
use crate::nn::{LoadReport, Mismatch, Module};
use crate::tensor::{Creation, Tensor};

/// Tensors by name, as a file has them.
pub(super) trait Source {
    /// All names.
    fn names(&self) -> Vec<String>;

    /// The shape of a tensor, outermost extent first.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// A tensor of that name in this dtype on this device.
    fn tensor(&self, name: &str, at: Creation) -> Result<Tensor>;
}

impl Source for SafeTensorsFile {
    fn names(&self) -> Vec<String> {
        self.tensors().map(|(name, _)| name.to_owned()).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors().find(|(own, _)| *own == name).map(|(_, ty)| ty.shape.clone())
    }

    fn tensor(&self, name: &str, at: Creation) -> Result<Tensor> {
        SafeTensorsFile::tensor(self, name, at)?.to_dtype(at.dtype)
    }
}

//! Weights put into a model by name, one tensor at a time.
//!
//! A model is built of parameters without memory; here each is replaced by the tensor of its name, in the
//! model's dtype and on its device. So a model is in memory once, and the dtype that it is stored in never is
//! beside it as a whole. Names that files have and models lack, or the other way, are all in one error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::naming::{Fix, Naming};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::io::{GgufFile, SafeTensorsFile};
use crate::nn::{LoadReport, Mismatch, Module, Named, named, replace};
use crate::tensor::{Creation, Tensor};

/// Tensors by name, as a file has them.
pub(super) trait Source {
    /// All names with their shapes, outermost extent first.
    fn shapes(&self) -> BTreeMap<String, Vec<usize>>;

    /// A tensor in this dtype on this device.
    fn tensor(&self, name: &str, at: Creation) -> Result<Tensor>;
}

impl Source for SafeTensorsFile {
    fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.tensors().map(|(name, ty)| (name.to_owned(), ty.shape.clone())).collect()
    }

    fn tensor(&self, name: &str, at: Creation) -> Result<Tensor> {
        SafeTensorsFile::tensor(self, name, at)?.to_dtype(at.dtype)
    }
}

impl Source for GgufFile {
    fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.tensors().iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect()
    }

    fn tensor(&self, name: &str, at: Creation) -> Result<Tensor> {
        let values = self.dequantized(name)?;
        Tensor::from_slice_on(&values, &self.tensors()[name].shape, at.device)?.to_dtype(at.dtype)
    }
}

/// Where a tensor of the model is found.
struct Found {
    own: Named,
    name: String,
    fix: Fix,
}

/// What of a model is where in a file, and what is not.
struct Matched {
    found: Vec<Found>,
    report: LoadReport,
}

/// Gives a model its weights; `origin` is named in errors.
pub(super) fn fill(
    model: &mut dyn Module,
    source: &dyn Source,
    naming: &Naming,
    at: Creation,
    origin: impl Display,
) -> Result<()> {
    let Matched { found, report } = matched(model, &source.shapes(), naming);
    if !report.is_clean() {
        return Err(Error::io(format!("{origin}: {report}")));
    }
    let mut pairs = Vec::with_capacity(found.len());
    for Found { own, name, fix } in found {
        let about = |error: Error| Error::io(format!("{origin}: {name}: {error}"));
        let read = || fix.apply(source.tensor(&name, at)?);
        let trained = own.tensor.requires_grad();
        let tensor = no_grad(read).and_then(|t| t.detach().requires_grad_(trained));
        pairs.push((own.tensor, tensor.map_err(about)?));
    }
    replace(model, &pairs);
    Ok(())
}

fn matched(
    model: &dyn Module,
    shapes: &BTreeMap<String, Vec<usize>>,
    naming: &Naming,
) -> Matched {
    let (mut found, mut report) = (Vec::new(), LoadReport::default());
    let mut used: BTreeSet<&String> = BTreeSet::new();
    for own in named(model) {
        let candidates = own.names.iter().flat_map(|name| naming.candidates(name));
        let there = |(name, fix)| Some((shapes.get_key_value(&name)?, fix));
        let there: Vec<((&String, &Vec<usize>), Fix)> = candidates.filter_map(there).collect();
        used.extend(there.iter().map(|((name, _), _)| *name));
        let Some(&((name, shape), fix)) = there.first() else {
            report.missing.push(own.names[0].clone());
            continue;
        };
        let needed = own.tensor.shape();
        if fix.shape(shape).as_deref() != Some(needed) {
            let (found, needed) = (shape.clone(), needed.to_vec());
            report.mismatched.push(Mismatch { name: name.clone(), found, needed });
            continue;
        }
        found.push(Found { own, name: name.clone(), fix });
    }
    let is_unexpected = |name: &&String| !used.contains(name) && !naming.ignores(name);
    report.unexpected = shapes.keys().filter(is_unexpected).cloned().collect();
    Matched { found, report }
}

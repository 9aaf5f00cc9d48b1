//! Weights put into a model by name, one tensor at a time.
//!
//! A model is built of parameters without memory; here each is replaced by the tensor of its name, in the
//! model's dtype and on its device. So a model is in memory once, and the dtype that it is stored in never is
//! beside it as a whole. Names that files have and models lack, or the other way, are all in one error.

use std::collections::{BTreeMap, BTreeSet};

use super::fix::Fix;
use super::naming::Naming;
use super::weight_form::WeightForm;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::io::Weights;
use crate::nn::{LoadReport, Mismatch, Module, Named, Replacement, named, replace};
use crate::tensor::Creation;

/// The shapes of all tensors, by name.
pub(super) fn shapes(weights: &Weights) -> Result<BTreeMap<String, Vec<usize>>> {
    let shape = |name: &str| Ok((name.to_owned(), weights.shape(name)?.to_vec()));
    weights.names().into_iter().map(shape).collect()
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

/// Gives a model its weights.
pub(super) fn fill(
    model: &mut dyn Module,
    weights: &Weights,
    naming: &Naming,
    form: WeightForm,
    at: Creation,
) -> Result<()> {
    let origin = weights.path().display();
    let Matched { found, report } = matched(model, &shapes(weights)?, naming);
    if !report.is_clean() {
        return Err(Error::io(format!("{origin}: {report}")));
    }
    let mut all = Vec::with_capacity(found.len());
    for Found { own, name, fix } in found {
        let about = |error: Error| Error::io(format!("{origin}: {name}: {error}"));
        let read = || {
            let quantized = match own.in_products {
                true => form.of(weights, (&name, fix), &own, at)?,
                false => None,
            };
            let whole = match own.elsewhere || quantized.is_none() {
                true => Some(fix.apply(weights.tensor(&name, at)?)?),
                false => None,
            };
            Ok((whole, quantized))
        };
        let (whole, quantized) = no_grad(read).map_err(about)?;
        let trained = own.tensor.requires_grad();
        let whole = whole.map(|whole| whole.detach().requires_grad_(trained)).transpose()?;
        all.push(Replacement { old: own.tensor, whole, quantized });
    }
    replace(model, &all);
    Ok(())
}

fn matched(model: &dyn Module, shapes: &BTreeMap<String, Vec<usize>>, naming: &Naming) -> Matched {
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

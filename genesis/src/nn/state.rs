//! A module's values by name: taken out, and put back in with a clear word about all that does not fit.
//!
//! ```text
//! load_state_dict: missing `fc1.weight` (there is `fc.weight`); unexpected `fc.weight`; `fc2.bias` has
//! shape [3], the module needs [2]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What a state and a module do not share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    /// Names of the module that the state lacks.
    pub missing: Vec<String>,
    /// Names of the state that the module lacks.
    pub unexpected: Vec<String>,
    /// Names of both whose shapes differ.
    pub mismatched: Vec<Mismatch>,
    /// Pairs of names that are one parameter in the module and have different values in the state.
    pub conflicting: Vec<(String, String)>,
}

/// A tensor of another shape than the module needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Its name.
    pub name: String,
    /// Its shape in the state.
    pub found: Vec<usize>,
    /// Its shape in the module.
    pub needed: Vec<usize>,
}

impl LoadReport {
    /// Whether everything fits.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.fits()
    }

    /// Whether what is on both sides fits.
    fn fits(&self) -> bool {
        self.mismatched.is_empty() && self.conflicting.is_empty()
    }

    /// The unexpected name that is nearest to a missing one, if one is near.
    pub fn nearest(&self, missing: &str) -> Option<&str> {
        let (len, limit) = (missing.chars().count(), (missing.len() / 3).max(2));
        // Names of a file may be of any length; one that is much longer is not near.
        let alike =
            self.unexpected.iter().filter(|name| name.chars().count().abs_diff(len) <= limit);
        let (distance, name) = alike.map(|name| (distance(missing, name), name)).min()?;
        (distance <= limit).then_some(name)
    }

    /// The first part that all unexpected names have in front of missing ones, `module.`.
    pub fn extra_prefix(&self) -> Option<&str> {
        prefix(&self.unexpected, &self.missing)
    }

    /// The first part that all missing names have in front of unexpected ones.
    pub fn lost_prefix(&self) -> Option<&str> {
        prefix(&self.missing, &self.unexpected)
    }
}

/// The first part of `long`, with its dot, without which each of them is one of `short`.
fn prefix<'n>(long: &'n [String], short: &[String]) -> Option<&'n str> {
    let first = long.first()?;
    let prefix = &first[..=first.find('.')?];
    let short: BTreeSet<&str> = short.iter().map(String::as_str).collect();
    let fits = |name: &String| name.strip_prefix(prefix).is_some_and(|rest| short.contains(rest));
    long.iter().all(fits).then_some(prefix)
}

/// How many names of a kind are shown.
const SHOWN: usize = 10;

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(prefix) = self.extra_prefix() {
            parts.push(format!("all unexpected names begin with `{prefix}`: take it away"));
        } else if let Some(prefix) = self.lost_prefix() {
            parts
                .push(format!("all missing names begin with `{prefix}`: put it before the others"));
        }
        listed(&mut parts, "missing", &self.missing, |name| match self.nearest(name) {
            Some(near) => format!("missing `{name}` (there is `{near}`)"),
            None => format!("missing `{name}`"),
        });
        listed(
            &mut parts,
            "of another shape",
            &self.mismatched,
            |Mismatch { name, found, needed }| {
                format!("`{name}` has shape {found:?}, the module needs {needed:?}")
            },
        );
        listed(&mut parts, "tied", &self.conflicting, |(a, b)| {
            format!("`{a}` and `{b}` are one parameter and have different values")
        });
        listed(&mut parts, "unexpected", &self.unexpected, |name| format!("unexpected `{name}`"));
        match parts.is_empty() {
            true => f.write_str("everything fits"),
            false => f.write_str(&parts.join("; ")),
        }
    }
}

fn listed<T>(parts: &mut Vec<String>, kind: &str, all: &[T], show: impl Fn(&T) -> String) {
    parts.extend(all.iter().take(SHOWN).map(show));
    if all.len() > SHOWN {
        parts.push(format!("{} more {kind}", all.len() - SHOWN));
    }
}

/// The number of letters to insert, remove or exchange between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let (mut corner, mut left) = (i, i + 1);
        row[0] = left;
        for (j, &y) in b.iter().enumerate() {
            let up = row[j + 1];
            left = (corner + usize::from(x != y)).min(left + 1).min(up + 1);
            (corner, row[j + 1]) = (up, left);
        }
    }
    row[b.len()]
}

/// A tensor that is saved, with all its names.
pub(crate) struct Saved {
    pub(super) tensor: Tensor,
    pub(super) names: Vec<String>,
}

/// Every tensor that is saved, by its first name.
pub(super) fn of(saved: Vec<Saved>) -> BTreeMap<String, Tensor> {
    let first = |mut saved: Saved| (saved.names.swap_remove(0), saved.tensor.detach());
    saved.into_iter().map(first).collect()
}

pub(super) fn check(own: &[Saved], state: &BTreeMap<String, Tensor>) -> LoadReport {
    compare(own, &Given { shapes: shapes(state), is_equal: &|a, b| equal(state, a, b) })
}

/// A state that a module may be loaded from, wherever its values are.
pub(crate) struct Given<'s> {
    /// Every name with its shape.
    pub(crate) shapes: BTreeMap<&'s str, &'s [usize]>,
    /// Whether two names of equal shape have the same values.
    pub(crate) is_equal: &'s dyn Fn(&str, &str) -> bool,
}

impl Given<'_> {
    fn named<'n>(&self, names: &'n [String]) -> Option<&'n String> {
        names.iter().find(|name| self.shapes.contains_key(name.as_str()))
    }
}

fn shapes(state: &BTreeMap<String, Tensor>) -> BTreeMap<&str, &[usize]> {
    state.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect()
}

fn compare(own: &[Saved], given: &Given<'_>) -> LoadReport {
    let mut report = LoadReport::default();
    let mut known = BTreeSet::new();
    for Saved { tensor, names } in own {
        known.extend(names.iter().map(String::as_str));
        let found: Vec<(&String, &[usize])> = names
            .iter()
            .filter_map(|name| Some((name, *given.shapes.get(name.as_str())?)))
            .collect();
        if found.is_empty() {
            report.missing.push(names[0].clone());
        }
        for (name, shape) in &found {
            if *shape != tensor.shape() {
                report.mismatched.push(Mismatch {
                    name: (*name).clone(),
                    found: shape.to_vec(),
                    needed: tensor.shape().to_vec(),
                });
            }
        }
        for pair in found.windows(2) {
            // Those of different shape are told of anyway.
            if pair[0].1 == pair[1].1 && !(given.is_equal)(pair[0].0, pair[1].0) {
                report.conflicting.push((pair[0].0.clone(), pair[1].0.clone()));
            }
        }
    }
    let unexpected = given.shapes.keys().filter(|name| !known.contains(**name));
    report.unexpected = unexpected.map(|&name| name.to_owned()).collect();
    report
}

/// Whether two tensors of a state have the same values.
fn equal(state: &BTreeMap<String, Tensor>, a: &str, b: &str) -> bool {
    let (a, b) = (&state[a], &state[b]);
    let same = || Ok::<bool, Error>(a.to_bytes()? == b.to_bytes()?);
    a.dtype() == b.dtype() && same().unwrap_or(false)
}

/// Copies values in if everything fits, or, where not `strict`, if what is on both sides fits.
pub(super) fn load(
    own: &[Saved],
    state: &BTreeMap<String, Tensor>,
    strict: bool,
) -> Result<LoadReport> {
    let given = Given { shapes: shapes(state), is_equal: &|a, b| equal(state, a, b) };
    fill(own, &given, strict, |name, _| Ok(state[name].clone()))
}

/// [`load`] from a state whose tensors are read when their turn comes, by name and for the tensor that
/// takes the values; each goes before the next is read.
pub(crate) fn fill(
    own: &[Saved],
    given: &Given<'_>,
    strict: bool,
    read: impl Fn(&str, &Tensor) -> Result<Tensor>,
) -> Result<LoadReport> {
    let report = compare(own, given);
    if !(report.is_clean() || !strict && report.fits()) {
        return Err(Error::op("load_state_dict", report.to_string()));
    }
    no_grad(|| {
        for Saved { tensor, names } in own {
            if let Some(name) = given.named(names) {
                tensor.detach().copy_(&read(name, tensor)?)?;
            }
        }
        Ok(report)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        for (a, b, n) in [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("kitten", "sitting", 3)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (n, n), "{a} {b}");
        }
    }
}

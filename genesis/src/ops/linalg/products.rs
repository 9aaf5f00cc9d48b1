//! Matrix products by other names: `mm`, `bmm`, `mv`, `dot`, `outer`, `addmm`, `einsum`, and attention.

use std::collections::BTreeMap;

use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::ops::{check_pair, composite};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("addmm", Precision::Half),
    ("addmv", Precision::Half),
    ("baddbmm", Precision::Half),
    ("bmm", Precision::Half),
    ("mm", Precision::Half),
    ("mv", Precision::Half),
    ("dot", Precision::Widest),
    ("einsum", Precision::Half),
];

fn check_ranks(op: &str, x: &Tensor, y: &Tensor, ranks: (usize, usize)) -> Result<()> {
    check_pair(op, x, y)?;
    if (x.rank(), y.rank()) == ranks {
        return Ok(());
    }
    let message = format!(
        "needs tensors of {} and {} axes, got {:?} and {:?}",
        ranks.0,
        ranks.1,
        x.shape(),
        y.shape()
    );
    Err(Error::op(op, message))
}

impl Tensor {
    /// The product of two matrices.
    ///
    /// # Errors
    /// If they are no matrices, or inner extents or dtypes differ.
    #[track_caller]
    pub fn mm(&self, other: &Tensor) -> Result<Tensor> {
        check_ranks("mm", self, other, (2, 2))?;
        self.matmul(other)
    }

    /// The products of two batches of matrices.
    ///
    /// # Errors
    /// If they are no batches of one size, or inner extents or dtypes differ.
    #[track_caller]
    pub fn bmm(&self, other: &Tensor) -> Result<Tensor> {
        check_ranks("bmm", self, other, (3, 3))?;
        if self.shape()[0] != other.shape()[0] {
            let message = format!("batches differ, {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::op("bmm", message));
        }
        self.matmul(other)
    }

    /// The product of a matrix and a vector.
    ///
    /// # Errors
    /// If they are not, or inner extents or dtypes differ.
    #[track_caller]
    pub fn mv(&self, other: &Tensor) -> Result<Tensor> {
        check_ranks("mv", self, other, (2, 1))?;
        self.matmul(other)
    }

    /// The inner product of two vectors.
    ///
    /// # Errors
    /// If they are not, or lengths or dtypes differ.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        check_ranks("dot", self, other, (1, 1))?;
        if let Some(cast) = autocast::cast_inputs("dot", &[self, other])? {
            return cast[0].dot(&cast[1]);
        }
        if !self.dtype().is_arithmetic_float() || self.shape() != other.shape() {
            return autocast::without_autocast(|| self.matmul(other));
        }
        composite("dot", &[], [self, other], |of, _| {
            Tensor::rounded_once(of, |[x, y]| x.mul(&y)?.sum())
        })
    }

    /// Every product of an element of one vector and one of the other.
    ///
    /// # Errors
    /// If they are no vectors.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || other.rank() != 1 {
            let message = format!("needs vectors, got {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::op("outer", message));
        }
        self.unsqueeze(1)?.mul(other)
    }

    /// `beta * self + alpha * a b`; with `beta` 0 this tensor does not count.
    ///
    /// # Errors
    /// If the product can't be made or this tensor does not broadcast to it.
    #[track_caller]
    pub fn addmm(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
        self.plus_product("addmm", &a.mm(b)?, alpha, beta)
    }

    /// [`Tensor::addmm`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addmm_(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<()> {
        self.replace("addmm_", &[a, b], |x| x.addmm(a, b, alpha, beta))
    }

    /// `beta * self + alpha * a b` of batches; with `beta` 0 this tensor does not count.
    ///
    /// # Errors
    /// If the products can't be made or this tensor does not broadcast to them.
    #[track_caller]
    pub fn baddbmm(&self, a: &Tensor, b: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
        self.plus_product("baddbmm", &a.bmm(b)?, alpha, beta)
    }

    /// `beta * self + alpha * a v`; with `beta` 0 this tensor does not count.
    ///
    /// # Errors
    /// If the product can't be made or this tensor does not broadcast to it.
    #[track_caller]
    pub fn addmv(&self, a: &Tensor, v: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
        self.plus_product("addmv", &a.mv(v)?, alpha, beta)
    }

    #[track_caller]
    pub(super) fn plus_product(
        &self,
        op: &str,
        product: &Tensor,
        alpha: f64,
        beta: f64,
    ) -> Result<Tensor> {
        // The product came in 16 bits where autocast says so: what it is added to does, too.
        let cast = autocast::cast_inputs(op, &[self])?;
        let own = cast.as_ref().map_or(self, |cast| &cast[0]);
        check_pair(op, own, product)?;
        let fractional = alpha.fract() != 0.0 || beta.fract() != 0.0;
        if fractional && !product.dtype().is_float() {
            let message = format!(
                "alpha and beta of {} tensors must be integers, got {alpha} and {beta}",
                product.dtype()
            );
            return Err(Error::op(op, message));
        }
        let x = own.broadcast_to(product.shape())?;
        if (alpha, beta) == (1.0, 1.0) {
            return x.add(product);
        }
        composite("plus_product", &[alpha, beta], [&x, product], |[x, product], n| {
            Tensor::rounded_once([x, product], |[x, product]| weighed(&x, product, n))
        })
    }
}

/// `beta * x + alpha * product` of the numbers `[alpha, beta]`.
#[track_caller]
pub(super) fn weighed(x: &Tensor, product: Tensor, n: &[f64]) -> Result<Tensor> {
    let scaled = |t: &Tensor, by: f64| if by == 1.0 { Ok(t.clone()) } else { t.mul_scalar(by) };
    let product = scaled(&product, n[0])?;
    if n[1] != 0.0 {
        return scaled(x, n[1])?.add(&product);
    }
    // Not even NaN goes into the result, but a gradient of zero goes back.
    let nothing = Tensor::zeros(&[], (genesis_kernel::ir::DType::Bool, x.device()))?;
    let zero = Tensor::zeros(&[], (x.dtype(), x.device()))?;
    nothing.where_(x, &zero)?.add(&product)
}

/// A tensor whose axes have labels.
struct Labeled {
    tensor: Tensor,
    labels: Vec<char>,
}

impl Tensor {
    /// Einstein's summation: `einsum("bij,bjk->bik", &[a, b])`.
    ///
    /// # Errors
    /// If the formula does not fit the operands.
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Tensor]) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs("einsum", operands)? {
            return Tensor::einsum(formula, &cast.iter().collect::<Vec<_>>());
        }
        let refuse = |why: &str| Error::op("einsum", format!("{why}, in `{formula}`"));
        let text: String = formula.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != operands.len() || operands.is_empty() {
            return Err(refuse(&format!("{} operands for {} terms", operands.len(), terms.len())));
        }
        let mut named = Vec::new();
        for (term, tensor) in terms.iter().zip(operands) {
            let labels = labels_of(term, Some(tensor.rank())).ok_or_else(|| {
                refuse(&format!("`{term}` does not fit shape {:?}", tensor.shape()))
            })?;
            named.push(diagonals(tensor, labels)?);
        }
        let dots = named.iter().flat_map(|n| &n.labels).filter(|&&c| is_dot(c));
        let dots = dots.copied().max().map_or(0, |top| top as usize - DOT as usize + 1);
        let wanted: Vec<char> = match right {
            Some(right) => labels_of(right, None)
                .map(|labels| expand_dots(labels, dots))
                .ok_or_else(|| refuse("the result is no list of labels"))?,
            None => implicit(&named, left, dots),
        };
        let mut extents: BTreeMap<char, usize> = BTreeMap::new();
        for n in &named {
            for (&label, &extent) in n.labels.iter().zip(n.tensor.shape()) {
                let known = extents.entry(label).or_insert(extent);
                match (*known, extent) {
                    (a, b) if a == b || b == 1 => {}
                    (1, b) => *known = b,
                    (a, b) => return Err(refuse(&format!("`{label}` is {a} and {b}"))),
                }
            }
        }
        if wanted.iter().any(|label| !extents.contains_key(label)) {
            return Err(refuse("the result has a label of no operand"));
        }
        contract_all(named, &wanted, &extents)
    }
}

/// Labels of the axes that `...` stands for, counted from the last.
const DOT: char = '\u{E000}';

fn is_dot(label: char) -> bool {
    ('\u{E000}'..'\u{E040}').contains(&label)
}

fn dot(index: usize) -> char {
    char::from_u32(DOT as u32 + index as u32).unwrap_or(DOT)
}

/// The labels of a term; `...` becomes a label an axis that is left, or one for all of them where the
/// rank is not known.
fn labels_of(term: &str, rank: Option<usize>) -> Option<Vec<char>> {
    let (head, tail) = match term.split_once("...") {
        Some((head, tail)) => (head, Some(tail)),
        None => (term, None),
    };
    let is_label = |c: char| c.is_ascii_alphabetic();
    if !head.chars().all(is_label) || !tail.unwrap_or("").chars().all(is_label) {
        return None;
    }
    let named = head.len() + tail.map_or(0, str::len);
    let hidden = match (rank, tail) {
        (Some(rank), Some(_)) => rank.checked_sub(named)?,
        (Some(rank), None) if rank != named => return None,
        (_, None) => 0,
        (None, Some(_)) => 1,
    };
    let dots = (0..hidden).rev().map(dot);
    Some(head.chars().chain(dots).chain(tail.unwrap_or("").chars()).collect())
}

/// The single label of a hidden `...` as all of them.
fn expand_dots(labels: Vec<char>, count: usize) -> Vec<char> {
    let expand = |label: char| match is_dot(label) {
        true => (0..count).rev().map(dot).collect::<Vec<_>>(),
        false => vec![label],
    };
    labels.into_iter().flat_map(expand).collect()
}

/// Without an arrow: the hidden axes, then every label that occurs once, by the alphabet.
fn implicit(named: &[Labeled], left: &str, dots: usize) -> Vec<char> {
    let mut once: Vec<char> = named.iter().flat_map(|n| n.labels.clone()).collect();
    once.retain(|&c| !is_dot(c) && left.matches(c).count() == 1);
    once.sort_unstable();
    (0..dots).rev().map(dot).chain(once).collect()
}

/// The diagonal of axes that have one label.
fn diagonals(tensor: &Tensor, labels: Vec<char>) -> Result<Labeled> {
    let (mut tensor, mut labels) = (tensor.clone(), labels);
    while let Some((a, b)) = (0..labels.len())
        .flat_map(|a| (a + 1..labels.len()).map(move |b| (a, b)))
        .find(|&(a, b)| labels[a] == labels[b])
    {
        tensor = tensor.diagonal(0, a as i64, b as i64)?;
        let label = labels[a];
        labels.remove(b);
        labels.remove(a);
        labels.push(label);
    }
    Ok(Labeled { tensor, labels })
}

#[track_caller]
fn contract_all(
    named: Vec<Labeled>,
    wanted: &[char],
    extents: &BTreeMap<char, usize>,
) -> Result<Tensor> {
    let mut queue = named.into_iter();
    let Some(mut sum) = queue.next() else {
        return Err(Error::op("einsum", "needs at least one operand"));
    };
    let rest: Vec<Labeled> = queue.collect();
    for (index, next) in rest.iter().enumerate() {
        let later: Vec<char> = rest[index + 1..]
            .iter()
            .flat_map(|n| n.labels.iter().copied())
            .chain(wanted.iter().copied())
            .collect();
        sum = contract(&sum, next, &later, extents)?;
    }
    let sum = without(sum, |label| wanted.contains(&label))?;
    let place = |label: &char| sum.labels.iter().position(|l| l == label).map_or(0, |p| p as i64);
    let order: Vec<i64> = wanted.iter().map(place).collect();
    let full: Vec<usize> = wanted.iter().map(|label| extents[label]).collect();
    sum.tensor.permute(&order)?.broadcast_to(&full)
}

/// Sums over the axes whose label is not kept.
fn without(x: Labeled, keep: impl Fn(char) -> bool) -> Result<Labeled> {
    let gone: Vec<i64> =
        (0..x.labels.len()).filter(|&a| !keep(x.labels[a])).map(|a| a as i64).collect();
    if gone.is_empty() {
        return Ok(x);
    }
    let labels = x.labels.iter().copied().filter(|&label| keep(label)).collect();
    Ok(Labeled { tensor: x.tensor.sum_dims(&gone, false)?, labels })
}

/// The product of two, summed over the labels that only they have.
fn contract(
    a: &Labeled,
    b: &Labeled,
    later: &[char],
    extents: &BTreeMap<char, usize>,
) -> Result<Labeled> {
    let own = |x: &Labeled, other: &Labeled| {
        let labels = other.labels.clone();
        let same = Labeled { tensor: x.tensor.clone(), labels: x.labels.clone() };
        without(same, |label| labels.contains(&label) || later.contains(&label))
    };
    let (a, b) = (own(a, b)?, own(b, a)?);
    let common = |keep: bool| -> Vec<char> {
        let both = a.labels.iter().filter(|l| b.labels.contains(l));
        both.filter(|l| later.contains(l) == keep).copied().collect()
    };
    let (batch, inner) = (common(true), common(false));
    let only = |x: &Labeled, other: &Labeled| -> Vec<char> {
        x.labels.iter().filter(|l| !other.labels.contains(l)).copied().collect()
    };
    let (left, right) = (only(&a, &b), only(&b, &a));
    let extent = |labels: &[char]| crate::shape::product(labels.iter().map(|l| extents[l]));
    let arranged = |x: &Labeled, groups: [&[char]; 3]| {
        let labels = groups.concat();
        let place = |label: &char| x.labels.iter().position(|l| l == label).map_or(0, |p| p as i64);
        let t = x.tensor.permute(&labels.iter().map(place).collect::<Vec<_>>())?;
        let full: Vec<usize> = labels.iter().map(|label| extents[label]).collect();
        t.broadcast_to(&full)?.reshape(&groups.map(extent))
    };
    let product =
        arranged(&a, [&batch, &left, &inner])?.matmul(&arranged(&b, [&batch, &inner, &right])?)?;
    let labels = [batch, left, right].concat();
    let shape: Vec<usize> = labels.iter().map(|l| extents[l]).collect();
    Ok(Labeled { tensor: product.reshape(&shape)?, labels })
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::linalg::reference::product_of;
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu, scalar, sum, zip};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "einsum",
            Family::MatMul,
            |x| Tensor::einsum("bij,kj->kbi", &[&x[0], &x[1]]),
            |x| {
                Dense::from_fn(&[5, 2, 3], |at| {
                    (0..4).map(|j| x[0].at(&[at[1], at[2], j]) * x[1].at(&[at[0], j])).sum()
                })
            },
            &[&[&[2, 3, 4], &[5, 4]]],
        )
        .peer("torch.einsum('bij,kj->kbi', x[0], x[1])")
        .refusing(&[(
            || Tensor::einsum("ij->ik", &[&cpu(&[2, 3], DType::F32)?]),
            "einsum: the result has a label of no operand, in `ij->ik`",
        )]),
        OpInfo::new(
            "mm",
            Family::MatMul,
            |x| x[0].mm(&x[1]),
            |x| product_of(&x[0], &x[1]),
            &[&[&[3, 4], &[4, 5]]],
        )
        .refusing(&[(
            || cpu(&[2], DType::F32)?.mm(&cpu(&[2, 2], DType::F32)?),
            "mm: needs tensors of 2 and 2 axes, got [2] and [2, 2]",
        )]),
        OpInfo::new(
            "bmm",
            Family::MatMul,
            |x| x[0].bmm(&x[1]),
            |x| product_of(&x[0], &x[1]),
            &[&[&[2, 3, 4], &[2, 4, 5]]],
        ),
        OpInfo::new(
            "mv",
            Family::MatMul,
            |x| x[0].mv(&x[1]),
            |x| {
                Dense::from_fn(&[3], |at| (0..4).map(|k| x[0].at(&[at[0], k]) * x[1].data[k]).sum())
            },
            &[&[&[3, 4], &[4]]],
        ),
        OpInfo::new(
            "dot",
            Family::MatMul,
            |x| x[0].dot(&x[1]),
            |x| scalar(sum(&zip(&x[0], &x[1], |a, b| a * b).data)),
            &[&[&[7], &[7]]],
        ),
        OpInfo::new(
            "outer",
            Family::Arithmetic,
            |x| x[0].outer(&x[1]),
            |x| Dense::from_fn(&[3, 4], |at| x[0].data[at[0]] * x[1].data[at[1]]),
            &[&[&[3], &[4]]],
        ),
        OpInfo::new(
            "addmm",
            Family::Softmax,
            |x| x[0].addmm(&x[1], &x[2], 0.5, 2.0),
            |x| {
                let y = product_of(&x[1], &x[2]);
                Dense::from_fn(&[3, 5], |at| 2.0 * x[0].at(at) + 0.5 * y.at(at))
            },
            &[&[&[5], &[3, 4], &[4, 5]]],
        )
        .computing(|x, y| 2.0 * y * x[1][1] as f64)
        .peer("torch.addmm(x[0], x[1], x[2], alpha=0.5, beta=2.0)")
        .within(-1.0, 1.0)
        .of(WIDE),
        OpInfo::new(
            "baddbmm",
            Family::Softmax,
            |x| x[0].baddbmm(&x[1], &x[2], 0.5, 2.0),
            |x| {
                let y = product_of(&x[1], &x[2]);
                Dense::from_fn(&[2, 3, 5], |at| 2.0 * x[0].at(at) + 0.5 * y.at(at))
            },
            &[&[&[3, 5], &[2, 3, 4], &[2, 4, 5]]],
        )
        .computing(|x, y| 2.0 * y * x[1][2] as f64)
        .peer("torch.baddbmm(x[0], x[1], x[2], alpha=0.5, beta=2.0)")
        .within(-1.0, 1.0)
        .of(WIDE),
        OpInfo::new(
            "addmv",
            Family::Softmax,
            |x| x[0].addmv(&x[1], &x[2], 0.5, 2.0),
            |x| {
                Dense::from_fn(&[3], |at| {
                    2.0 * x[0].at(at)
                        + 0.5 * (0..4).map(|k| x[1].at(&[at[0], k]) * x[2].data[k]).sum::<f64>()
                })
            },
            &[&[&[3], &[3, 4], &[4]]],
        )
        .computing(|x, y| 2.0 * y * x[1][1] as f64)
        .peer("torch.addmv(x[0], x[1], x[2], alpha=0.5, beta=2.0)")
        .within(-1.0, 1.0)
        .of(WIDE),
    ];
}

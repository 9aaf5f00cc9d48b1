//! Sums, the largest element's index, running sums.

use genesis::Tensor;
use rayon::prelude::*;

use super::{Op, Prepared, Setup, check_rows, column, distance, row, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    let once = |name: &CaseName| Work::elements(name, name.numel());
    let twice = |name: &CaseName| Work::elements(name, 2 * name.numel());
    vec![
        Op { name: "sum", work: once, prepare: sum },
        Op { name: "argmax", work: once, prepare: argmax },
        Op { name: "cumsum", work: twice, prepare: cumsum },
    ]
}

/// The sum over `axis=all`, `axis=-1`, or leading axes such as `axis=0,1`.
fn sum(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let dims = setup.name.dims.clone();
    let sets = setup.each(|| setup.randn(&dims))?;
    let axes = match setup.name.variant.strip_prefix("axis=") {
        Some("all") => Vec::new(),
        Some(list) => list.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>()?,
        None => anyhow::bail!("{} needs a variant such as axis=-1", setup.name.text),
    };
    let columns = dims.last().copied().unwrap_or(1);
    let rows = dims.iter().product::<usize>() / columns.max(1);
    let leading: Vec<i64> = (0..dims.len() as i64 - 1).collect();
    let over = axes.clone();
    let op = move |x: &Tensor| if over.is_empty() { x.sum() } else { x.sum_dims(&over, false) };
    Prepared::new(sets, op, |x, y| {
        let (x, got) = (x.reshape(&[rows, columns])?, y.to_f64_vec()?);
        if axes.is_empty() {
            let want: f64 = x.to_f64_vec()?.par_iter().sum();
            return Ok(distance(&got, &[want], ((rows * columns) as f64).sqrt()));
        }
        let mut worst = 0.0f64;
        let (is_last, is_leading) = (axes == [-1], axes == leading);
        anyhow::ensure!(is_last || is_leading, "the last axis or all others can be checked");
        let (count, added) = if is_last { (rows, columns) } else { (columns, rows) };
        for i in sample(count, 16) {
            let line = if is_last { row(&x, i)? } else { column(&x, i)? };
            let want: f64 = line.iter().sum();
            worst = worst.max(distance(&got[i..=i], &[want], (added as f64).sqrt()));
        }
        Ok(worst)
    })
}

/// Running sums along the rows.
fn cumsum(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = |x: &Tensor| x.cumsum(-1);
    Prepared::new(sets, op, |x, y| {
        check_rows(y, (n as f64).sqrt(), |i| {
            let mut total = 0.0;
            let mut next = |x: f64| {
                total += x;
                total
            };
            Ok(row(x, i)?.into_iter().map(&mut next).collect())
        })
    })
}

fn argmax(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = |x: &Tensor| x.argmax(-1);
    Prepared::new(sets, op, |x, y| {
        let got = y.to_f64_vec()?;
        let mut worst = 0.0f64;
        for i in sample(m, 64) {
            let x = row(x, i)?;
            let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // Of equal ones any may be named.
            let named = x.get(got[i] as usize).copied().unwrap_or(f64::NAN);
            worst = worst.max(distance(&[named], &[top], 0.0));
        }
        Ok(worst)
    })
}

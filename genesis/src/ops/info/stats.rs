//! Samples and references of statistics, running extremes and searches.

use genesis_kernel::ir::DType;

use super::case::{Case, MOVED, WIDE, columns, folded, map, sorted, vector};
use super::sample::{Dense, Family, cpu, refuse};

/// The running fold of a column.
fn running(column: &[f64], f: fn(f64, f64) -> f64) -> Vec<f64> {
    let mut kept = f64::NAN;
    let step = |(index, &v): (usize, &f64)| {
        kept = if index == 0 { v } else { f(kept, v) };
        kept
    };
    column.iter().enumerate().map(step).collect()
}

const INDEXED: &[DType] = &[DType::F32, DType::BF16, DType::I64];

pub(super) static CASES: &[Case] = &[
    Case::new(
        "median_dim",
        Family::Exact,
        |x| Ok(x[0].median_dim(0, false)?.0),
        |x| folded(&x[0], |c| sorted(c)[(c.len() - 1) / 2]),
        &[&[8, 3]],
    )
    .refusing(|| {
        vec![refuse(
            || Ok(cpu(&[2, 0], DType::F32)?.median_dim(1, false)?.0),
            "median: has no value over no elements, shape [2, 0]",
        )]
    }),
    Case::new(
        "nanmedian",
        Family::Exact,
        |x| Ok(x[0].nanmedian_dim(0, false)?.0),
        |x| folded(&x[0], |c| sorted(c)[(c.len() - 1) / 2]),
        &[&[8, 3]],
    )
    .of(WIDE),
    Case::new(
        "kthvalue",
        Family::Exact,
        |x| Ok(x[0].kthvalue(2, 0, true)?.0),
        |x| columns(&x[0], |c| vec![sorted(c)[1]]),
        &[&[7, 3]],
    )
    .refusing(|| {
        vec![refuse(
            || Ok(cpu(&[2], DType::F32)?.kthvalue(3, 0, false)?.0),
            "kthvalue: has no 3 of 2 elements, shape [2]",
        )]
    }),
    Case::new(
        "mode",
        Family::Exact,
        |x| Ok(x[0].floor()?.mode(0, false)?.0),
        |x| {
            folded(&x[0], |c| {
                let count = |v: f64| c.iter().filter(|w| w.floor() == v).count();
                let mut best = f64::NAN;
                for v in sorted(c).iter().map(|v| v.floor()) {
                    if best.is_nan() || count(v) > count(best) {
                        best = v;
                    }
                }
                best
            })
        },
        &[&[9, 3]],
    )
    .of(&[DType::F32, DType::I64])
    .flat(),
    Case::new(
        "quantile",
        Family::Softmax,
        |x| x[0].quantile(0.3, 0, false),
        |x| {
            folded(&x[0], |c| {
                let (order, place) = (sorted(c), 0.3 * (c.len() - 1) as f64);
                let (low, high) = (order[place.floor() as usize], order[place.ceil() as usize]);
                low + (high - low) * place.fract()
            })
        },
        &[&[8, 3]],
    )
    .of(WIDE),
    Case::new(
        "cummax",
        Family::Exact,
        |x| Ok(x[0].cummax(0)?.0),
        |x| columns(&x[0], |c| running(c, f64::max)),
        &[&[40, 3]],
    ),
    Case::new(
        "cummin/index",
        Family::Exact,
        |x| Ok(x[0].cummin(0)?.1),
        |x| {
            columns(&x[0], |c| {
                let low = running(c, f64::min);
                let last = |j: usize| (0..=j).rev().find(|&i| c[i] == low[j]).unwrap_or(0);
                (0..c.len()).map(|j| last(j) as f64).collect()
            })
        },
        &[&[9, 3]],
    )
    .of(INDEXED)
    .flat(),
    Case::new(
        "logcumsumexp",
        Family::Softmax,
        |x| x[0].logcumsumexp(0),
        |x| columns(&x[0], |c| running(c, |a, b| (a.exp() + b.exp()).ln())),
        &[&[20, 3]],
    )
    .within(-3.0, 3.0)
    .refusing(|| {
        vec![refuse(
            || cpu(&[2], DType::I64)?.logcumsumexp(0),
            "logcumsumexp: needs a float dtype, got i64",
        )]
    }),
    Case::new(
        "count_nonzero",
        Family::Exact,
        |x| x[0].floor()?.count_nonzero(&[0]),
        |x| folded(&x[0], |c| c.iter().filter(|v| v.floor() != 0.0).count() as f64),
        &[&[9, 3]],
    )
    .flat(),
    Case::new(
        "nansum",
        Family::Sum,
        |x| x[0].log()?.nansum(&[0], false),
        |x| folded(&x[0], |c| c.iter().filter(|v| **v > 0.0).map(|v| v.ln()).sum()),
        &[&[9, 3]],
    )
    .within(-1.0, 3.0)
    .of(WIDE)
    .flat(),
    Case::new(
        "nanmean",
        Family::Softmax,
        |x| x[0].nanmean(&[0], false),
        |x| folded(&x[0], |c| c.iter().sum::<f64>() / c.len() as f64),
        &[&[9, 3]],
    ),
    Case::new(
        "histc",
        Family::Exact,
        |x| x[0].histc(4, 0.0, 4.0),
        |x| {
            vector(
                (0..4)
                    .map(|bin| {
                        x[0].data.iter().filter(|v| v.floor() == f64::from(bin)).count() as f64
                    })
                    .collect(),
            )
        },
        &[&[30]],
    )
    .of(WIDE)
    .flat(),
    Case::new(
        "bincount",
        Family::Exact,
        |x| x[0].bincount(None, 6),
        |x| {
            vector(
                (0..6)
                    .map(|n| x[0].data.iter().filter(|v| **v == f64::from(n)).count() as f64)
                    .collect(),
            )
        },
        &[&[30]],
    )
    .of(&[DType::I64, DType::U8])
    .flat()
    .refusing(|| {
        vec![
            refuse(
                || cpu(&[2], DType::F32)?.bincount(None, 0),
                "bincount: needs a vector of integers, got TensorType { shape: [2], dtype: F32 }",
            ),
            refuse(
                || cpu(&[2], DType::I64)?.sub_scalar(1.0)?.bincount(None, 0),
                "bincount: counts no negative numbers, got -1",
            ),
        ]
    }),
    Case::new(
        "unique",
        Family::Exact,
        |x| Ok(x[0].floor()?.unique()?.values),
        |x| {
            let mut values = sorted(&map(&x[0], f64::floor).data);
            values.dedup();
            vector(values)
        },
        &[&[5, 4]],
    )
    .of(MOVED)
    .flat(),
    Case::new(
        "unique/inverse",
        Family::Exact,
        |x| {
            let found = x[0].floor()?.unique()?;
            found.values.take(&found.inverse)
        },
        |x| map(&x[0], f64::floor),
        &[&[5, 4]],
    )
    .of(INDEXED)
    .flat(),
    Case::new(
        "unique/counts",
        Family::Exact,
        |x| x[0].floor()?.unique()?.counts.sum(),
        |_| Dense { shape: Vec::new(), data: vec![20.0] },
        &[&[5, 4]],
    )
    .of(INDEXED)
    .flat(),
    Case::new(
        "unique_dim",
        Family::Exact,
        |x| {
            let twice = crate::Tensor::cat(&[&x[0], &x[0]], 0)?;
            let found = twice.unique_dim(0)?;
            found.values.index_select(0, &found.inverse.narrow(0, 0, 3)?)
        },
        |x| x[0].clone(),
        &[&[3, 2]],
    )
    .of(INDEXED)
    .flat(),
    Case::new(
        "searchsorted",
        Family::Exact,
        |x| x[0].sort(0, false)?.0.searchsorted(&x[1], false),
        |x| map(&x[1], |v| x[0].data.iter().filter(|w| **w < v).count() as f64),
        &[&[9], &[3, 5]],
    )
    .flat()
    .refusing(|| {
        vec![refuse(
            || cpu(&[2, 3], DType::F32)?.searchsorted(&cpu(&[3], DType::F32)?, false),
            "searchsorted: values of [3] do not fit sorted ones of [2, 3]",
        )]
    }),
    Case::new(
        "bucketize/right",
        Family::Exact,
        |x| x[1].bucketize(&x[0].sort(0, false)?.0, true),
        |x| map(&x[1], |v| x[0].data.iter().filter(|w| **w <= v).count() as f64),
        &[&[9], &[3, 5]],
    )
    .flat(),
    Case::new(
        "std_mean",
        Family::Softmax,
        |x| x[0].std_mean(&[0], 0.0, false)?.0.add(&x[0].var_mean(&[0], 0.0, false)?.1),
        |x| {
            folded(&x[0], |c| {
                let mean = c.iter().sum::<f64>() / c.len() as f64;
                let var = c.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / c.len() as f64;
                var.sqrt() + mean
            })
        },
        &[&[9, 3]],
    )
    .of(WIDE),
];

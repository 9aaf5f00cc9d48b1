//! Products with quantized weights.

use genesis::Tensor;
use genesis::ops::{QuantScheme, QuantizedWeight};

use super::{Op, Prepared, Setup, distance, row, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![Op { name: "quantized_linear", work, prepare: quantized_linear }]
}

/// `int8` has a scale for each row, `int4` for each 128 codes; `/g32` has one for each 32, and `/min` minimums.
fn scheme(variant: &str) -> anyhow::Result<QuantScheme> {
    let mut parts = variant.split('/');
    let mut scheme = match parts.next() {
        Some("int8") => QuantScheme::INT8,
        Some("int4") => QuantScheme::INT4,
        other => anyhow::bail!("there are int8 and int4, not {other:?}"),
    };
    for part in parts {
        match part.strip_prefix('g') {
            Some(group) => scheme.group = Some(group.parse()?),
            None if part == "min" => scheme.zero_points = true,
            None => anyhow::bail!("{part} is no group and not min"),
        }
    }
    Ok(scheme)
}

/// The codes, the scales and minimums, and rows of the case's dtype.
fn work(name: &CaseName) -> Work {
    let (&[m, k, n], Ok(scheme)) = (&name.dims[..], scheme(&name.variant)) else {
        return Work::default();
    };
    let numbers = n * scheme.group.map_or(1, |group| k / group.max(1));
    let each = if scheme.zero_points { 8 } else { 4 };
    let bytes = (n * k * scheme.bits as usize / 8 + numbers * each) as f64;
    let rows = Work::elements(name, m * k + m * n);
    Work { bytes: bytes + rows.bytes, flops: 2.0 * (m * n * k) as f64 }
}

fn quantized_linear(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, k, n) = setup.three()?;
    let scheme = scheme(&setup.name.variant)?;
    let sets = setup.each(|| {
        let weight = QuantizedWeight::quantize(&setup.randn(&[n, k])?, scheme)?;
        Ok((setup.randn(&[m, k])?, weight))
    })?;
    let op = |(x, w): &(Tensor, QuantizedWeight)| x.quantized_linear(w, None);
    Prepared::new(sets, op, |(x, w), y| {
        let w = w.dequantize(genesis::DType::F32)?;
        let outputs = sample(n, 24);
        let rows: Vec<Vec<f64>> =
            outputs.iter().map(|&j| row(&w, j)).collect::<genesis::Result<_>>()?;
        let mut worst = 0.0f64;
        for i in sample(m, 24) {
            let (x, got) = (row(x, i)?, row(y, i)?);
            for (&j, w) in outputs.iter().zip(&rows) {
                let dot: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                worst = worst.max(distance(&got[j..=j], &[dot], (k as f64).sqrt()));
            }
        }
        Ok(worst)
    })
}

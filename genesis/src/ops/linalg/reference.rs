//! f64 references of products.

use crate::ops::info::Dense;

/// The product in f64: one sum for each element.
pub(in crate::ops) fn product_of(a: &Dense, b: &Dense) -> Dense {
    let (ra, rb) = (a.shape.len(), b.shape.len());
    let (m, k, n) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
    let lead = [&a.shape[..ra - 2], &b.shape[..rb - 2]];
    let batch = crate::shape::broadcast_shapes("matmul", &lead).expect("samples broadcast");
    Dense::from_fn(&[&batch[..], &[m, n]].concat(), |at| {
        let (lead, tail) = at.split_at(batch.len());
        let a_at = |p: usize| a.at(&[lead, &[tail[0], p]].concat());
        let b_at = |p: usize| b.at(&[lead, &[p, tail[1]]].concat());
        (0..k).map(|p| a_at(p) * b_at(p)).sum()
    })
}

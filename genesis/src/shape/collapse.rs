//! Coalescing of neighbouring axes whose strides are those of one.

/// Joins neighbouring axes of a shape that can be counted, where all of these strides walk them as one, and drops
/// axes of extent 1. Gives the joined shape and the strides.
pub(crate) fn collapse_strides(extents: &[usize], along: &[&[i64]]) -> (Vec<usize>, Vec<Vec<i64>>) {
    let mut shape: Vec<usize> = Vec::new();
    let mut strides: Vec<Vec<i64>> = vec![Vec::new(); along.len()];
    for (axis, &extent) in extents.iter().enumerate() {
        if extent == 1 {
            continue;
        }
        let continues = |(all, own): (&&[i64], &Vec<i64>)| {
            all[axis].checked_mul(extent as i64) == own.last().copied()
        };
        let joins = !shape.is_empty() && along.iter().zip(&strides).all(continues);
        match shape.last_mut().filter(|_| joins) {
            Some(last) => *last *= extent,
            None => shape.push(extent),
        }
        for (all, own) in along.iter().zip(&mut strides) {
            if joins {
                own.pop();
            }
            own.push(all[axis]);
        }
    }
    (shape, strides)
}

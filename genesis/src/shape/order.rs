//! The order in which axes lie in memory.

use super::Axes;

/// The axes of a shape from the outermost in memory to the innermost, where operands of these strides are walked; none
/// where that is row-major order.
///
/// The first operand whose strides tell two axes apart decides which of them is the outer one, so that a result which
/// takes this order lies as its operands do: `x.t() + 1` as `x.t()`. An axis that an operand broadcasts tells nothing,
/// nor does an axis of extent 1.
pub(crate) fn memory_order(shape: &[usize], along: &[&[i64]]) -> Option<Axes<usize>> {
    let is_inside = |a: usize, b: usize| -> Option<bool> {
        if shape[a] == 1 || shape[b] == 1 {
            return None;
        }
        along.iter().find_map(|strides| {
            let (a, b) = (strides[a].unsigned_abs(), strides[b].unsigned_abs());
            (a != 0 && b != 0 && a != b).then_some(a < b)
        })
    };
    let mut order: Axes<usize> = (0..shape.len()).collect();
    for next in 1..shape.len() {
        let mut at = next;
        // Past axes that no operand compares with this one, to one that is inside of it.
        for before in (0..next).rev() {
            match is_inside(order[before], order[at]) {
                Some(true) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    let is_row_major = order.iter().enumerate().all(|(place, &axis)| place == axis);
    (!is_row_major).then_some(order)
}

/// The order that undoes an order of axes.
pub(crate) fn inverse(order: &[usize]) -> Axes<usize> {
    let mut back: Axes<usize> = order.iter().copied().collect();
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    back
}

/// What belongs to each axis, in another order of the axes.
pub(crate) fn reordered<T: Copy>(of: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&axis| of[axis]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(shape: &[usize], along: &[&[i64]]) -> Vec<usize> {
        let given = memory_order(shape, along);
        given.map_or_else(|| (0..shape.len()).collect(), |order| order.to_vec())
    }

    #[test]
    fn axes_come_as_they_lie_in_memory() {
        assert!(memory_order(&[], &[&[]]).is_none());
        assert!(memory_order(&[3, 4], &[&[4, 1]]).is_none());
        assert_eq!(order(&[3, 4], &[&[1, 3]]), [1, 0]);
        assert_eq!(order(&[3, 4], &[&[-1, -3]]), [1, 0]);
        // Images whose channels are last in memory.
        assert_eq!(order(&[2, 3, 5, 7], &[&[105, 1, 21, 3]]), [0, 2, 3, 1]);
        assert_eq!(order(&[4, 2, 3], &[&[1, 12, 4]]), [1, 2, 0]);
    }

    #[test]
    fn the_first_operand_that_tells_axes_apart_decides() {
        assert_eq!(order(&[3, 4], &[&[4, 1], &[1, 3]]), [0, 1]);
        assert_eq!(order(&[3, 4], &[&[1, 3], &[4, 1]]), [1, 0]);
        assert_eq!(order(&[3, 4], &[&[0, 1], &[1, 3]]), [1, 0]);
        assert_eq!(order(&[3, 4], &[&[0, 0]]), [0, 1]);
        assert_eq!(order(&[1, 4], &[&[1, 7]]), [0, 1]);
    }

    #[test]
    fn an_order_is_undone() {
        assert_eq!(inverse(&[0, 2, 3, 1]).to_vec(), [0, 3, 1, 2]);
        assert_eq!(reordered(&[2, 3, 5, 7], &[0, 2, 3, 1]), [2, 5, 7, 3]);
    }
}

//! The order of axes for transposing tiles: brings the axis along which an operand is dense next to the last.

/// Brings the axis along which an operand runs next to the last one, if it does not run along that;
/// whether there is such an operand. The last of the tensors is the result.
pub(super) fn face(shape: &mut Vec<usize>, strides: &mut [Vec<i64>]) -> bool {
    let Some(last) = shape.len().checked_sub(1).filter(|&last| shape[last] >= 16) else {
        return false;
    };
    let Some((result, operands)) = strides.split_last() else { return false };
    let runs = |of: &Vec<i64>| (0..last).find(|&axis| of[axis] == 1 && shape[axis] >= 16);
    let across = operands.iter().filter(|of| of[last] > 1).find_map(runs);
    let (1, Some(axis)) = (result[last], across) else { return false };
    let extent = shape.remove(axis);
    shape.insert(last - 1, extent);
    for of in strides {
        let stride = of.remove(axis);
        of.insert(last - 1, stride);
    }
    true
}

/// An extent that fills few of the rows of a tile.
const SHORT: usize = 32;

/// Brings the longest of the other axes next to the last one, where the axis that is there would leave most of a tile
/// empty.
pub(super) fn heighten(shape: &mut Vec<usize>, strides: &mut [Vec<i64>]) {
    let Some(before) = shape.len().checked_sub(2).filter(|&before| shape[before] < SHORT) else {
        return;
    };
    let longest = (0..before).max_by_key(|&axis| shape[axis]);
    let Some(longest) = longest.filter(|&axis| shape[axis] > shape[before]) else { return };
    let extent = shape.remove(longest);
    shape.insert(before, extent);
    for of in strides {
        let stride = of.remove(longest);
        of.insert(before, stride);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_of_an_operand_comes_next_to_the_last() {
        let mut shape = vec![32, 20, 64];
        let mut strides = vec![vec![1, 32, 640], vec![1280, 64, 1]];
        assert!(face(&mut shape, &mut strides));
        assert_eq!((shape, strides), (vec![20, 32, 64], vec![vec![32, 1, 640], vec![64, 1280, 1]]));
        assert!(!face(&mut vec![32, 64], &mut [vec![1, 0], vec![64, 1]]));
    }

    #[test]
    fn the_longest_axis_takes_the_place_of_a_short_one() {
        let (mut shape, mut strides) = (vec![9, 500, 3, 4], vec![vec![0, 12, 4, 1]]);
        heighten(&mut shape, &mut strides);
        assert_eq!((shape, strides), (vec![9, 3, 500, 4], vec![vec![0, 4, 12, 1]]));
    }
}

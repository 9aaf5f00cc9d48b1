//! How windows move, for references.

/// How windows move along every axis: stride, padding, dilation.
pub(super) type Moves = (usize, usize, usize);

/// Where element `k` of window `o` looks among `n` elements.
pub(super) fn look(
    o: usize,
    k: usize,
    (stride, padding, dilation): Moves,
    n: usize,
) -> Option<usize> {
    (o * stride + k * dilation).checked_sub(padding).filter(|&at| at < n)
}

//! Sequences of several lengths in one tensor, time by time, so that nothing is computed for padding.
//!
//! ```text
//! a b c      data: a d f  b e  c
//! d e    ->  batch_sizes:  3    2    1
//! f
//! ```

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::tensor::{Tensor, host};

/// Sequences of several lengths, the longest first: what [`pack_padded_sequence`] gives.
#[derive(Clone, Debug)]
pub struct PackedSequence {
    data: Tensor,
    batch_sizes: Vec<usize>,
    /// Which sequence stands at each place, where they were not in order.
    sorted: Option<Vec<usize>>,
}

impl PackedSequence {
    /// The elements, `[sum of the lengths, ..]`: those of the first time, then of the second, and so on.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// How many sequences there are at each time.
    pub fn batch_sizes(&self) -> &[usize] {
        &self.batch_sizes
    }

    /// Which sequence stands at each place, if they were not given in order.
    pub fn sorted_indices(&self) -> Option<&[usize]> {
        self.sorted.as_deref()
    }

    /// The same sequences with other elements, such as those of an op on [`PackedSequence::data`].
    ///
    /// # Errors
    /// If there are not as many.
    pub fn with_data(&self, data: Tensor) -> Result<PackedSequence> {
        let total: usize = self.batch_sizes.iter().sum();
        if data.shape().first() != Some(&total) {
            let message = format!("needs {total} elements, got shape {:?}", data.shape());
            return Err(Error::op("packed_sequence", message));
        }
        Ok(PackedSequence { data, ..self.clone() })
    }

    /// How long each sequence is, in the order in which they were given.
    pub fn lengths(&self) -> Vec<usize> {
        let n = self.batch_sizes.first().copied().unwrap_or(0);
        let length = |place: usize| self.batch_sizes.iter().filter(|&&size| size > place).count();
        let mut lengths = vec![0; n];
        (0..n).for_each(|place| lengths[self.sequence_at(place)] = length(place));
        lengths
    }

    fn sequence_at(&self, place: usize) -> usize {
        self.sorted.as_ref().map_or(place, |sorted| sorted[place])
    }

    /// The slices of a tensor along `dim`, one a sequence, in the order of the places.
    pub(crate) fn in_order_of_places(&self, x: &Tensor, dim: i64) -> Result<Tensor> {
        match &self.sorted {
            Some(sorted) => x.index_select(dim, &indices(sorted, x)?),
            None => Ok(x.clone()),
        }
    }

    /// Slices in the order of the places, in that of the sequences.
    pub(crate) fn out_of_order(&self, x: &Tensor, dim: i64) -> Result<Tensor> {
        let Some(sorted) = &self.sorted else { return Ok(x.clone()) };
        let mut places = vec![0; sorted.len()];
        sorted.iter().enumerate().for_each(|(place, &sequence)| places[sequence] = place);
        x.index_select(dim, &indices(&places, x)?)
    }
}

/// Indices for a tensor, on its device.
fn indices(values: &[usize], like: &Tensor) -> Result<Tensor> {
    let at = (DType::I64, like.device());
    Tensor::from_fn("packed_sequence", values.len(), |i| values[i] as f64, at)
}

fn batch_first(x: &Tensor, is_first: bool) -> Result<Tensor> {
    if is_first { Ok(x.clone()) } else { x.transpose(0, 1) }
}

/// Packs padded sequences: only the first `lengths[i]` elements of the i-th count.
///
/// # Shapes
/// `x: [T, N, ..]`, or `[N, T, ..]` with `is_batch_first`.
/// # Errors
/// If there are not as many lengths as sequences, or one is 0 or above T.
/// # Examples
/// ```
/// use genesis::{DType, Tensor};
/// use genesis::nn::{pack_padded_sequence, pad_packed_sequence};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 0.0, 3.0, 4.0, 5.0], &[2, 3])?;
/// let packed = pack_padded_sequence(&x, &[2, 3], true)?;
/// assert_eq!(packed.batch_sizes(), [2, 2, 1]);
/// assert_eq!(packed.data().to_vec::<f32>()?, [3.0, 1.0, 4.0, 2.0, 5.0]);
/// let (y, lengths) = pad_packed_sequence(&packed, true, 0.0)?;
/// assert_eq!((y.to_vec::<f32>()?, lengths), (x.to_vec::<f32>()?, vec![2, 3]));
/// # Ok::<(), genesis::Error>(())
/// ```
/// # Source
/// `torch.nn.utils.rnn.pack_padded_sequence` with `enforce_sorted=False`.
pub fn pack_padded_sequence(
    x: &Tensor,
    lengths: &[usize],
    is_batch_first: bool,
) -> Result<PackedSequence> {
    const NAME: &str = "pack_padded_sequence";
    if x.rank() < 2 {
        return Err(Error::op(NAME, format!("needs sequences and times, got {:?}", x.shape())));
    }
    let x = batch_first(x, is_batch_first)?; // [N, T, ..]
    let (n, t) = (x.shape()[0], x.shape()[1]);
    let fits = lengths.iter().all(|&length| (1..=t).contains(&length));
    if lengths.len() != n || n == 0 || !fits {
        let message = format!("lengths {lengths:?} do not fit {n} sequences of {t}");
        return Err(Error::op(NAME, message));
    }
    let mut order: Vec<usize> = host::reserve(NAME, n)?;
    order.extend(0..n);
    order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
    let is_sorted = order.iter().enumerate().all(|(place, &sequence)| place == sequence);
    let longest = lengths[order[0]];
    let size = |time: usize| lengths.iter().filter(|&&length| length > time).count();
    // Where elements are empty, times may be more than memory holds numbers of.
    let mut batch_sizes: Vec<usize> = host::reserve(NAME, longest)?;
    batch_sizes.extend((0..longest).map(size));
    let place = |time: usize| order[..batch_sizes[time]].iter().map(move |&s| s * t + time);
    let total = lengths.iter().fold(0_usize, |sum, &length| sum.saturating_add(length));
    let mut places: Vec<usize> = host::reserve(NAME, total)?;
    places.extend((0..longest).flat_map(place));
    let flat = x.reshape(&[&[n * t], &x.shape()[2..]].concat())?;
    let data = flat.index_select(0, &indices(&places, &flat)?)?;
    Ok(PackedSequence { data, batch_sizes, sorted: (!is_sorted).then_some(order) })
}

/// Packed sequences as padded ones, and how long each is.
///
/// # Shapes
/// `[T, N, ..]` with the longest length T, or `[N, T, ..]` with `is_batch_first`.
/// # Errors
/// If memory runs out.
/// # Source
/// Same conventions as `torch.nn.utils.rnn.pad_packed_sequence`.
pub fn pad_packed_sequence(
    packed: &PackedSequence,
    is_batch_first: bool,
    padding: f64,
) -> Result<(Tensor, Vec<usize>)> {
    let (data, lengths) = (packed.data(), packed.lengths());
    let (n, t) = (lengths.len(), packed.batch_sizes.len());
    // Where each element of the padded tensor lies in the data; padding has a place of its own behind it.
    let total = data.shape()[0];
    let mut places: Vec<usize> = host::reserve("pad_packed_sequence", n.saturating_mul(t))?;
    places.resize(n * t, total);
    let mut next = 0;
    for (time, &size) in packed.batch_sizes.iter().enumerate() {
        for place in 0..size {
            places[packed.sequence_at(place) * t + time] = next + place;
        }
        next += size;
    }
    let rest = &data.shape()[1..];
    let last = Tensor::full(&[&[1], rest].concat(), padding, (data.dtype(), data.device()))?;
    let all = Tensor::cat(&[data, &last], 0)?.index_select(0, &indices(&places, data)?)?;
    let all = all.reshape(&[&[n, t], rest].concat())?;
    Ok((batch_first(&all, is_batch_first)?, lengths))
}

/// Sequences `[T_i, ..]` as one tensor, the shorter ones padded behind.
///
/// # Shapes
/// `[T, N, ..]` with the longest length T, or `[N, T, ..]` with `is_batch_first`.
/// # Errors
/// If there is no sequence, or their other extents, dtypes or devices differ.
/// # Source
/// Same conventions as `torch.nn.utils.rnn.pad_sequence`.
pub fn pad_sequence(sequences: &[&Tensor], is_batch_first: bool, padding: f64) -> Result<Tensor> {
    const NAME: &str = "pad_sequence";
    let lengths: Vec<usize> = sequences.iter().filter_map(|x| x.shape().first().copied()).collect();
    let Some(&longest) = lengths.iter().max().filter(|_| lengths.len() == sequences.len()) else {
        return Err(Error::op(NAME, "needs sequences, each with an axis of times"));
    };
    let padded = |x: &&Tensor| {
        let missing = longest - x.shape()[0];
        let rest = Tensor::full(
            &[&[missing], &x.shape()[1..]].concat(),
            padding,
            (x.dtype(), x.device()),
        )?;
        Tensor::cat(&[x, &rest], 0)
    };
    let padded: Vec<Tensor> = sequences.iter().map(padded).collect::<Result<_>>()?;
    let dim = if is_batch_first { 0 } else { 1 };
    Tensor::stack(&padded.iter().collect::<Vec<_>>(), dim)
}

/// Packs sequences `[T_i, ..]`.
///
/// # Errors
/// As [`pad_sequence`], or if one is empty.
/// # Source
/// `torch.nn.utils.rnn.pack_sequence` with `enforce_sorted=False`.
pub fn pack_sequence(sequences: &[&Tensor]) -> Result<PackedSequence> {
    let lengths: Vec<usize> = sequences.iter().filter_map(|x| x.shape().first().copied()).collect();
    pack_padded_sequence(&pad_sequence(sequences, true, 0.0)?, &lengths, true)
}

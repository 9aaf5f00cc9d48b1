//! The corpus: tokens of all documents, cut into samples that fit a row.
//!
//! A sample is a run of tokens: each but the last is an input, each but the first is what the one before it is to
//! predict. A text is cut into runs that share a token, so that every token is predicted once; a conversation that is
//! longer than a row loses its end.
//!
//! ```text
//! text of 8, rows of 3    a b c d e f g h      samples [a b c d] [d e f g] [g h]
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::document::Document;
use super::encoder::{Encoded, Encoder};
use super::packing::pack;
use crate::error::{Error, Result};

/// Tokens, and the samples that they are learned in.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    tokens: Vec<u32>,
    is_learned: Vec<bool>,
    samples: Vec<Range<usize>>,
    /// Conversations that lost their end.
    pub truncated: usize,
    /// Documents without a token to learn.
    pub dropped: usize,
}

/// A sample: inputs, and what each of them is to predict; none where that is not learned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The tokens that the model reads.
    pub inputs: Vec<u32>,
    /// The token after each.
    pub targets: Vec<Option<u32>>,
}

impl Sample {
    /// What fits into `length` inputs of a document that is one sample.
    pub(super) fn of(encoded: &Encoded, length: usize) -> Sample {
        let count = encoded.tokens.len().min(length + 1);
        let inputs = encoded.tokens[..count.saturating_sub(1)].to_vec();
        let target = |at: usize| encoded.is_learned[at].then_some(encoded.tokens[at]);
        Sample { inputs, targets: (1..count).map(target).collect() }
    }

    /// The number of tokens that are learned.
    pub(super) fn learned(&self) -> usize {
        self.targets.iter().flatten().count()
    }
}

impl Corpus {
    /// The samples of documents, of at most `length` inputs each.
    ///
    /// # Errors
    /// If a document can't be encoded, with its number, or nothing is left to learn.
    pub fn new(documents: &[Document], encoder: &Encoder, length: usize) -> Result<Corpus> {
        let encode = |(index, document): (usize, &Document)| {
            let numbered = |error: Error| Error::io(format!("document {}: {error}", index + 1));
            encoder.encode(document).map_err(numbered)
        };
        // Of several errors the first is told, whichever thread was faster.
        let encoded: Vec<Result<Encoded>> = documents.par_iter().enumerate().map(encode).collect();
        let encoded: Vec<Encoded> = encoded.into_iter().collect::<Result<_>>()?;
        let mut corpus = Corpus::default();
        encoded.into_iter().for_each(|encoded| corpus.push(encoded, length));
        match corpus.samples.is_empty() {
            true => {
                let what = format!("none of {} documents has a token to learn", documents.len());
                Err(Error::op("training data", what))
            }
            false => Ok(corpus),
        }
    }

    fn push(&mut self, encoded: Encoded, length: usize) {
        let (start, count) = (self.tokens.len(), encoded.tokens.len());
        let is_long = count > length + 1;
        let ranges: Vec<Range<usize>> = match encoded.is_divisible {
            true => (0..count.saturating_sub(1))
                .step_by(length.max(1))
                .map(|first| first..(first + length + 1).min(count))
                .collect(),
            false => std::iter::once(0..count.min(length + 1)).collect(),
        };
        self.truncated += usize::from(is_long && !encoded.is_divisible);
        let is_used = |range: &Range<usize>| {
            range.len() > 1 && encoded.is_learned[range.start + 1..range.end].contains(&true)
        };
        let used: Vec<Range<usize>> = ranges.into_iter().filter(is_used).collect();
        let Some(end) = used.last().map(|range| range.end) else {
            self.dropped += 1;
            return;
        };
        self.tokens.extend(&encoded.tokens[..end]);
        self.is_learned.extend(&encoded.is_learned[..end]);
        self.samples.extend(used.into_iter().map(|range| start + range.start..start + range.end));
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The number of inputs of all samples.
    pub fn inputs(&self) -> usize {
        self.samples.iter().map(|range| range.len() - 1).sum()
    }

    /// The number of tokens that are learned.
    pub fn learned(&self) -> usize {
        let of = |range: &Range<usize>| {
            self.is_learned[range.start + 1..range.end].iter().filter(|&&is| is).count()
        };
        self.samples.iter().map(of).sum()
    }

    /// The inputs of a sample.
    pub(super) fn length(&self, index: usize) -> usize {
        self.samples.get(index).map_or(0, |range| range.len() - 1)
    }

    /// A sample; an empty one where there is none of this number.
    pub fn sample(&self, index: usize) -> Sample {
        let Range { start, end } = self.samples.get(index).cloned().unwrap_or(0..1);
        let inputs = self.tokens.get(start..end.saturating_sub(1)).unwrap_or_default().to_vec();
        let target = |at: usize| self.is_learned[at].then_some(self.tokens[at]);
        let targets = (start + 1..start + 1 + inputs.len()).map(target).collect();
        Sample { inputs, targets }
    }

    /// The samples of each row of `capacity` inputs; a sample a row without packing.
    pub fn rows(&self, capacity: usize, packing: bool) -> Vec<Vec<usize>> {
        let lengths: Vec<usize> = self.samples.iter().map(|range| range.len() - 1).collect();
        match packing {
            true => pack(&lengths, capacity),
            false => (0..lengths.len()).map(|sample| vec![sample]).collect(),
        }
    }

    /// The largest token.
    pub fn largest(&self) -> u32 {
        self.tokens.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(count: u32, learned: Range<usize>, is_divisible: bool) -> Corpus {
        let mut corpus = Corpus::default();
        let is_learned = (0..count as usize).map(|i| learned.contains(&i)).collect();
        corpus.push(Encoded { tokens: (0..count).collect(), is_learned, is_divisible }, 3);
        corpus
    }

    #[test]
    fn texts_are_cut_and_every_token_is_predicted_once() {
        let corpus = pushed(8, 0..8, true);
        let inputs: Vec<Vec<u32>> = (0..3).map(|i| corpus.sample(i).inputs).collect();
        assert_eq!(inputs, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
        assert_eq!(corpus.sample(1).targets, [Some(4), Some(5), Some(6)]);
        assert_eq!((corpus.len(), corpus.inputs(), corpus.learned()), (3, 7, 7));
        assert_eq!(pushed(7, 0..7, true).len(), 2);
        assert!(pushed(1, 0..1, true).is_empty());
    }

    #[test]
    fn conversations_lose_their_end() {
        let corpus = pushed(6, 2..6, false);
        assert_eq!(corpus.sample(0).targets, [None, Some(2), Some(3)]);
        assert_eq!((corpus.truncated, corpus.dropped), (1, 0));
        let nothing = pushed(6, 4..6, false);
        assert_eq!((nothing.len(), nothing.dropped), (0, 1));
        assert_eq!(corpus.rows(3, true), corpus.rows(3, false));
    }
}

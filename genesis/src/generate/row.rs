//! The rows of a step: what each computes, and how its token is drawn.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::ops::SampleTokens;
use crate::shape::Layout;
use crate::tensor::Tensor;

/// What one sequence computes in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// The position of its new token.
    pub(super) position: usize,
    /// Its pages, as many as its tokens fill or more.
    pub(super) pages: &'a [u32],
    /// How the token after it is drawn.
    pub(super) draw: Draw,
}

/// What a row's token is drawn by.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Draw {
    pub(super) temperature: f32,
    pub(super) top_p: f32,
    pub(super) min_p: f32,
    /// 0 keeps all.
    pub(super) top_k: i64,
    pub(super) seed: i64,
    /// Where the token will stand.
    pub(super) position: i64,
}

/// Settings of rows in two tensors, a line for each.
pub(super) struct Draws {
    /// Temperature, top-p, min-p: `[3, R]`, f32.
    pub(super) numbers: Tensor,
    /// Top-k, seed, position: `[3, R]`, i64.
    pub(super) wholes: Tensor,
}

/// The lines of [`Draws::numbers`].
pub(super) fn numbers(draws: &[Draw]) -> Vec<f32> {
    lines(draws, [|draw| draw.temperature, |draw| draw.top_p, |draw| draw.min_p])
}

/// The lines of [`Draws::wholes`].
pub(super) fn wholes(draws: &[Draw]) -> Vec<i64> {
    lines(draws, [|draw| draw.top_k, |draw| draw.seed, |draw| draw.position])
}

fn lines<T>(draws: &[Draw], of: [fn(&Draw) -> T; 3]) -> Vec<T> {
    of.into_iter().flat_map(|of| draws.iter().map(of)).collect()
}

/// Numbers of 32 bits as words of 64, the lower half of each word first.
pub(super) fn paired(numbers: &[f32]) -> impl Iterator<Item = i64> + '_ {
    numbers.chunks(2).map(|pair| {
        let [low, high] = [0, 1].map(|half| pair.get(half).map_or(0, |number| number.to_bits()));
        (u64::from(high) << 32 | u64::from(low)).cast_signed()
    })
}

/// What [`paired`] made of numbers, from the word `first` on, as numbers again.
pub(super) fn halves(words: &Tensor, first: usize, shape: &[usize]) -> Tensor {
    let start = 2 * (words.layout().offset() + first);
    let layout = Layout::contiguous(shape).and_then(|layout| layout.at(start));
    let layout = layout.expect("the words have room for them");
    Tensor::plain(words.storage().clone(), layout, DType::F32)
}

impl Draws {
    pub(super) fn new(draws: &[Draw], device: Device) -> Result<Draws> {
        let shape = [3, draws.len()];
        Ok(Draws {
            numbers: Tensor::from_slice_on(&numbers(draws), &shape, device)?,
            wholes: Tensor::from_slice_on(&wholes(draws), &shape, device)?,
        })
    }

    /// The token of each row, `[R]`, i64; -1 where the largest logit is infinite.
    pub(super) fn pick(&self, logits: &Tensor) -> Result<Tensor> {
        let rows = logits.shape()[0];
        let tokens = Tensor::uninitialized(&[rows], (DType::I64, logits.device()))?;
        self.pick_into(logits, &tokens)?;
        Ok(tokens)
    }

    /// The same, written to `tokens`.
    pub(super) fn pick_into(&self, logits: &Tensor, tokens: &Tensor) -> Result<()> {
        let [temperature, top_p, min_p] = [0, 1, 2].map(|line| self.numbers.select(0, line));
        let [top_k, seed, position] = [0, 1, 2].map(|line| self.wholes.select(0, line));
        let settings = SampleTokens {
            temperature: &temperature?,
            top_k: &top_k?,
            top_p: &top_p?,
            min_p: &min_p?,
            seed: &seed?,
            position: &position?,
            penalties: None,
        };
        logits.sample_tokens_into(&settings, tokens).map(drop)
    }
}

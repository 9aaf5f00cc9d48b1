//! Token sampling: the next token of each row of logits, on the device and without a synchronization.
//!
//! The order is that of Hugging Face's `generate`: penalties, temperature, top-k, top-p over what top-k kept,
//! then min-p. vLLM has the same order but for min-p, which comes before top-k there; without top-p or
//! without min-p both keep the same tokens, because min-p is relative to the most probable one.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::sorting::Sampled;
use kernels::sample as device;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::wrong_dtype;
use crate::tensor::Tensor;

const NAME: &str = "sample_tokens";

/// Tokens among which a threshold is found without going through the whole row.
const MAX_LISTED: usize = 16384;

/// What the tokens of each row are drawn by; every tensor has one number for each row.
#[derive(Clone, Copy, Debug)]
pub struct SampleTokens<'a> {
    /// What logits are divided by, f32; 0 takes the most probable token.
    pub temperature: &'a Tensor,
    /// How many of the most probable tokens are kept, i64; 0 keeps all.
    pub top_k: &'a Tensor,
    /// The least mass that is kept of the most probable tokens, f32; 1 keeps all.
    pub top_p: &'a Tensor,
    /// The least probability that is kept, relative to the largest, f32; 0 keeps all.
    pub min_p: &'a Tensor,
    /// i64.
    pub seed: &'a Tensor,
    /// The number of the draw, i64: the same seed and position draw the same, in any row and batch.
    pub position: &'a Tensor,
    /// What is held against tokens that occurred.
    pub penalties: Option<Penalties<'a>>,
}

/// Penalties of tokens that occurred.
#[derive(Clone, Copy, Debug)]
pub struct Penalties<'a> {
    /// Logits above 0 of tokens of the prompt and the output are divided by it, those below multiplied:
    /// `[R]`, f32; 1 is none.
    pub repetition: &'a Tensor,
    /// Subtracted of tokens of the output: `[R]`, f32.
    pub presence: &'a Tensor,
    /// Subtracted for each time that the output has the token: `[R]`, f32.
    pub frequency: &'a Tensor,
    /// How often the prompt has each token: `[R, V]`, i32.
    pub prompt: &'a Tensor,
    /// How often the output has each token: `[R, V]`, i32.
    pub output: &'a Tensor,
}

impl Tensor {
    /// Draws a token of each row of logits, and gives the logarithm of its probability before anything was
    /// changed.
    ///
    /// # Shapes
    /// `[R, V]` gives `[R]` of i64 and `[R]` of f32.
    /// # Numerics
    /// Probabilities are rounded to multiples of 2^-38 of the largest, by which top-p and the draw are exact:
    /// top-k keeps exactly `k`, top-p the fewest whose mass is enough, and of equal tokens those that come
    /// first. The draw is a function of the row's logits, settings, seed and position. NaN counts as
    /// -infinity. A row whose largest logit is infinite gives -1 and no meaningful logarithm, so that nobody has to
    /// wait for a check.
    /// # Errors
    /// If shapes, dtypes or devices do not fit.
    /// # Source
    /// arXiv:1904.09751 (top-p), arXiv:2407.01082 (min-p), arXiv:1909.05858 (repetition).
    /// # Examples
    /// ```
    /// use genesis::ops::SampleTokens;
    /// use genesis::{DType, Tensor};
    ///
    /// # fn main() -> genesis::Result<()> {
    /// let logits = Tensor::from_slice(&[0.5f32, 3.0, 3.0, 1.0], &[1, 4])?;
    /// let (zero, none) = (Tensor::zeros(&[1], DType::F32)?, Tensor::zeros(&[1], DType::I64)?);
    /// let greedy = SampleTokens {
    ///     temperature: &zero,
    ///     top_k: &none,
    ///     top_p: &zero,
    ///     min_p: &zero,
    ///     seed: &none,
    ///     position: &none,
    ///     penalties: None,
    /// };
    /// assert_eq!(logits.sample_tokens(&greedy)?.0.to_vec::<i64>()?, [1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn sample_tokens(&self, settings: &SampleTokens<'_>) -> Result<(Tensor, Tensor)> {
        let rows = self.shape().first().copied().unwrap_or(0);
        let token = Tensor::uninitialized(&[rows], (DType::I64, self.device()))?;
        let logprob = self.sample_tokens_into(settings, &token)?;
        Ok((token, logprob))
    }

    /// [`Tensor::sample_tokens`] with the tokens written to memory of the caller's, `[R]` of i64; gives the logarithms.
    #[track_caller]
    pub(crate) fn sample_tokens_into(
        &self,
        settings: &SampleTokens<'_>,
        token: &Tensor,
    ) -> Result<Tensor> {
        let &[_, n] = self.shape() else {
            return Err(Error::op(NAME, format!("needs logits [R, V], got {:?}", self.shape())));
        };
        if !matches!(self.dtype(), DType::F32 | DType::F16 | DType::BF16) {
            return Err(wrong_dtype(NAME, "a float of 16 or 32 bits", self.dtype()));
        }
        if n == 0 || n >= 1 << 24 {
            return Err(Error::op(NAME, format!("{n} tokens are not 1 to 2^24 - 1")));
        }
        no_grad(|| draw(&self.detach(), settings, token))
    }
}

/// A line of one number for each row.
fn line(logits: &Tensor, name: &str, t: &Tensor, dtype: DType) -> Result<Tensor> {
    let rows = logits.shape()[0];
    if t.dtype() != dtype || t.shape() != [rows] || t.device() != logits.device() {
        let (on, of, shape, at) = (logits.device(), t.dtype(), t.shape(), t.device());
        let message =
            format!("{name} must be {dtype} [{rows}] on {on}, got {of} {shape:?} on {at}");
        return Err(Error::op(NAME, message));
    }
    Ok(t.detach())
}

fn counts(logits: &Tensor, name: &str, t: &Tensor) -> Result<Tensor> {
    if t.dtype() != DType::I32 || t.shape() != logits.shape() || t.device() != logits.device() {
        let (wanted, of, shape) = (logits.shape(), t.dtype(), t.shape());
        return Err(Error::op(NAME, format!("{name} must be i32 {wanted:?}, got {of} {shape:?}")));
    }
    Ok(t.detach())
}

/// Draws into `token`; gives the logarithms of probabilities.
fn draw(logits: &Tensor, settings: &SampleTokens<'_>, token: &Tensor) -> Result<Tensor> {
    let (rows, n, on) = (logits.shape()[0], logits.shape()[1], logits.device());
    let number = |name, t| line(logits, name, t, DType::F32);
    let whole = |name, t| line(logits, name, t, DType::I64);
    let wholes = [
        whole("top_k", settings.top_k)?,
        whole("seed", settings.seed)?,
        whole("position", settings.position)?,
    ];
    let mut numbers = vec![
        number("temperature", settings.temperature)?,
        number("top_p", settings.top_p)?,
        number("min_p", settings.min_p)?,
    ];
    let mut seen = None;
    if let Some(penalties) = settings.penalties {
        numbers.push(number("repetition", penalties.repetition)?);
        numbers.push(number("presence", penalties.presence)?);
        numbers.push(number("frequency", penalties.frequency)?);
        let prompt = counts(logits, "prompt", penalties.prompt)?;
        seen = Some([prompt, counts(logits, "output", penalties.output)?]);
    }
    let logprob = Tensor::uninitialized(&[rows], (DType::F32, on))?;
    if rows == 0 {
        return Ok(logprob);
    }
    let is_penalized = seen.is_some();
    let none = || Tensor::uninitialized(&[0, 0], (DType::I32, on));
    let [prompt, output] = match seen {
        Some(seen) => seen,
        None => [none()?, none()?],
    };
    let Sampled { group: size, cols, warps, bins } = Sampled::of(&chip(on), n);
    let chunks = n.div_ceil(cols);
    let groups = chunks * (cols / size);
    let work = device::HEAD as usize + bins + device::PER_GROUP * groups + chunks;
    let work = Tensor::uninitialized(&[rows, work], (DType::I64, on))?;
    let listed = Tensor::uninitialized(&[rows, n.min(MAX_LISTED)], (DType::I32, on))?;
    // Where there are no penalties the temperatures stand in their places.
    let of = |index: usize| launch::view_of(numbers.get(index).unwrap_or(&numbers[0]), false);
    let [top_k, seed, position] = wholes.each_ref().map(|t| launch::view_of(t, false));
    let views = [logits, &prompt, &output].map(|t| launch::view_of(t, false));
    let [work, listed] = [&work, &listed].map(|t| launch::view_of(t, true));
    let results = [launch::view_of(token, true), launch::view_of(&logprob, true)];
    let numbers = [0, 1, 2, 3, 4, 5].map(of);
    let [temperature, top_p, _, repetition, presence, frequency] = numbers;
    let own = [temperature, top_p, repetition, presence, frequency, top_k, work];
    let all = [&views[..], &numbers, &[top_k, seed, position, work]].concat();
    let run = |kernel, consts: &[i64], args: &[Arg]| {
        let grid = Grid::x(rows * chunks);
        launch::warped(kernel, logits, grid, &[logits.dtype()], consts, warps, args)
    };
    let lanes = |count: usize, most| count.next_power_of_two().clamp(32, most) as i64;
    let (keys, lanes, penalty) = (lanes(groups, 1024), lanes(chunks, 256), is_penalized.into());
    let [cols, each, size, bins] = [cols, cols / size, size, bins].map(|count| count as i64);
    let consts = [cols, each, size, bins, penalty];
    run(&device::sample_groups::KERNEL, &consts, &[&views[..], &own].concat())?;
    let consts = [cols, each, keys, lanes, bins, penalty];
    run(&device::sample_weights::KERNEL, &consts, &[&all[..], &results].concat())?;
    run(&device::sample_filtered::KERNEL, &consts, &[&all[..], &[listed], &results].concat())?;
    Ok(logprob)
}

//! Random tensors and dropout.
//!
//! Every distribution is a method of a [`Generator`], which draws from it, and one of [`Tensor`] that
//! draws from the default generator.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use kernels::random as device;

use crate::autograd::{SavedTensors, no_grad};
use crate::dispatch::capture;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, apply, wrong_dtype};
use crate::random::{Generator, RngState, default_generator};
use crate::tensor::{Creation, Tensor};

/// Samples of one program where they are picked from running sums.
const PICKED: usize = 256;

/// Draws of an element of a distribution that rejects some.
const DRAWS: usize = 64;
/// Elements of such a distribution of one program.
const AT_ONCE: usize = 128;

fn f32_args<const N: usize>(numbers: [f64; N]) -> [Arg; N] {
    numbers.map(|value| launch::number(DType::F32, value))
}

/// Seed and offset as a kernel takes them.
pub(in crate::ops) fn state_args(state: RngState) -> Result<[Arg; 2]> {
    if capture::has_cells() { capture::draw(state) } else { Ok(fixed_args(state)) }
}

/// Seed and offset that stay as they are when a graph replays.
pub(in crate::ops) fn fixed_args(state: RngState) -> [Arg; 2] {
    let seed = Scalar { dtype: DType::U64, bits: state.seed };
    [Arg::Scalar(seed), Arg::Scalar(Scalar { dtype: DType::I64, bits: state.offset })]
}

fn check_float(name: &str, at: Creation) -> Result<()> {
    if at.dtype.is_arithmetic_float() {
        return Ok(());
    }
    Err(wrong_dtype(name, "a float", at.dtype))
}

/// The bits of an f32 in [0, 1) that a dtype keeps, so that none is rounded up to 1.
fn kept_bits(dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => 0xFFFF_0000,
        DType::F16 => 0xFFFF_E000,
        _ => u32::MAX,
    }
}

/// The probability that a standard normal number is below `x`.
fn normal_cdf(x: f64) -> f64 {
    // Simpson's rule from 0, where the integrand is smooth; beyond 8 nothing is left in f32.
    let end = x.clamp(-8.0, 8.0);
    let (n, density) = (400, |t: f64| (-0.5 * t * t).exp());
    let h = end / f64::from(n);
    let inner: f64 =
        (1..n).map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    0.5 + (density(0.0) + inner + density(end)) * h / 3.0 / std::f64::consts::TAU.sqrt()
}

impl Generator {
    fn draw(
        &self,
        kernel: &'static KernelDef,
        shape: &[usize],
        at: Creation,
        numbers: &[Arg],
    ) -> Result<Tensor> {
        let y = Tensor::uninitialized(shape, at)?;
        let args = [&state_args(self.take(y.numel()))?, numbers].concat();
        launch::dense(kernel, &[at.dtype], &[], &[(&y, true)], &args)?;
        Ok(y)
    }

    /// Uniform in `[0, 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn rand(&self, shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        self.uniform(shape, 0.0, 1.0, at)
    }

    /// Uniform in `[low, high)`.
    ///
    /// # Numerics
    /// 24 random bits, in f64 53; 16-bit floats are rounded down, so that `high` is never drawn.
    /// # Errors
    /// If the dtype is not a float, or `low` is above `high`.
    pub fn uniform(
        &self,
        shape: &[usize],
        low: f64,
        high: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("uniform", at)?;
        if low.is_nan() || high.is_nan() || low > high {
            return Err(Error::op("uniform", format!("the range {low}..{high} is none")));
        }
        if at.dtype == DType::F64 {
            let y = Tensor::uninitialized(shape, at)?;
            let state = state_args(self.take(2 * y.numel()))?;
            let range = [low, high].map(|value| launch::number(DType::F64, value));
            let args = [state, range].concat();
            launch::dense(&device::uniform_wide::KERNEL, &[], &[], &[(&y, true)], &args)?;
            return Ok(y);
        }
        let mask = Arg::Scalar(Scalar::int(DType::U32, i64::from(kept_bits(at.dtype))));
        let [low, high] = f32_args([low, high]);
        self.draw(&device::uniform::KERNEL, shape, at, &[low, high, mask])
    }

    /// Normal with mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn randn(&self, shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        self.normal(shape, 0.0, 1.0, at)
    }

    /// Normal with this mean and standard deviation.
    ///
    /// # Numerics
    /// Drawn in f32: at most 5.77 deviations from the mean.
    /// # Errors
    /// If the dtype is not a float, or `std` is negative.
    pub fn normal(
        &self,
        shape: &[usize],
        mean: f64,
        std: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("normal", at)?;
        check_deviation("normal", std)?;
        self.draw(&device::normal::KERNEL, shape, at, &f32_args([mean, std]))
    }

    /// e to the power of a normal number of this mean and standard deviation.
    ///
    /// # Errors
    /// If the dtype is not a float, or `std` is negative.
    pub fn log_normal(
        &self,
        shape: &[usize],
        mean: f64,
        std: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("log_normal", at)?;
        check_deviation("log_normal", std)?;
        self.draw(&device::log_normal::KERNEL, shape, at, &f32_args([mean, std]))
    }

    /// Normal with this mean and standard deviation, of what lies in `low..=high`.
    ///
    /// # Errors
    /// If the dtype is not a float, `std` is not above 0, or `low` is not below `high`.
    /// # Source
    /// Same conventions as `torch.nn.init.trunc_normal_`.
    pub fn truncated_normal(
        &self,
        shape: &[usize],
        [mean, std]: [f64; 2],
        [low, high]: [f64; 2],
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        const NAME: &str = "truncated_normal";
        let at = at.into();
        check_float(NAME, at)?;
        if std.is_nan() || std <= 0.0 || low.is_nan() || high.is_nan() || low >= high {
            let message = format!("needs std > 0 and low < high, got {std} and {low}..{high}");
            return Err(Error::op(NAME, message));
        }
        let share = |x: f64| 2.0 * normal_cdf((x - mean) / std) - 1.0;
        // The largest f32 below 1, where the inverse is finite.
        let inside = |y: f64| y.clamp(-0.999_999_94, 0.999_999_94);
        let numbers = f32_args([mean, std, low, high, inside(share(low)), inside(share(high))]);
        self.draw(&device::truncated_normal::KERNEL, shape, at, &numbers)
    }

    /// Exponential with this rate; never 0.
    ///
    /// # Errors
    /// If the dtype is not a float, or the rate is not above 0.
    pub fn exponential(
        &self,
        shape: &[usize],
        rate: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("exponential", at)?;
        if rate.is_nan() || rate <= 0.0 {
            return Err(Error::op("exponential", format!("the rate must be above 0, got {rate}")));
        }
        self.draw(&device::exponential::KERNEL, shape, at, &f32_args([rate]))
    }

    /// Of Cauchy's distribution.
    ///
    /// # Errors
    /// If the dtype is not a float, or `sigma` is not above 0.
    pub fn cauchy(
        &self,
        shape: &[usize],
        median: f64,
        sigma: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("cauchy", at)?;
        if sigma.is_nan() || sigma <= 0.0 {
            return Err(Error::op("cauchy", format!("sigma must be above 0, got {sigma}")));
        }
        self.draw(&device::cauchy::KERNEL, shape, at, &f32_args([median, sigma]))
    }

    /// The number of trials until one of probability `p` succeeds, from 1.
    ///
    /// # Errors
    /// If the dtype is bool, or `p` is not in `(0, 1)`.
    pub fn geometric(&self, shape: &[usize], p: f64, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        if !at.dtype.is_number() {
            return Err(wrong_dtype("geometric", "a number", at.dtype));
        }
        if !(p > 0.0 && p < 1.0) {
            return Err(Error::op("geometric", format!("p must be in (0, 1), got {p}")));
        }
        self.draw(&device::geometric::KERNEL, shape, at, &f32_args([(-p).ln_1p()]))
    }

    /// Of the gamma distribution of each element of `alpha`, with rate 1; of its shape and dtype. For
    /// another rate divide by it. There is no gradient.
    ///
    /// # Errors
    /// If `alpha` is not a float or, on the CPU, has an element that is not above 0; a GPU does not wait to
    /// look, and gives NaN or 0 there.
    /// # Examples
    /// ```
    /// # use genesis::{Tensor, random::Generator};
    /// let alpha = Tensor::full(&[3], 2.5, genesis::DType::F32)?;
    /// assert!(Generator::new(1).gamma(&alpha)?.to_vec::<f32>()?.iter().all(|&x| x > 0.0));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    /// # Source
    /// The distribution of `torch.distributions.Gamma(alpha, 1)`.
    pub fn gamma(&self, alpha: &Tensor) -> Result<Tensor> {
        self.by_element("gamma", &device::gamma::KERNEL, alpha, |x| x > 0.0)
    }

    /// Counts of the Poisson distribution of each element of `rate`; of its shape and dtype.
    ///
    /// # Errors
    /// If `rate` is not a float or, on the CPU, has a negative element; a GPU gives NaN there.
    /// # Source
    /// Same conventions as `torch.poisson`.
    pub fn poisson(&self, rate: &Tensor) -> Result<Tensor> {
        self.by_element("poisson", &device::poisson::KERNEL, rate, |x| x >= 0.0)
    }

    /// An element of a distribution for each element of what it depends on.
    fn by_element(
        &self,
        name: &'static str,
        kernel: &'static KernelDef,
        x: &Tensor,
        is_right: fn(f64) -> bool,
    ) -> Result<Tensor> {
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(name, "a float", x.dtype()));
        }
        let x = no_grad(|| x.detach().contiguous())?;
        if x.device() == Device::Cpu
            && let Some(wrong) = x.to_f64_vec()?.into_iter().find(|&value| !is_right(value))
        {
            return Err(Error::op(name, format!("has no distribution of {wrong}")));
        }
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let state = state_args(self.take(DRAWS * x.numel()))?;
        if x.numel() > 0 {
            // One a thread: a sample keeps many numbers until it is found.
            let (x, y) = (x.reshape(&[x.numel()])?, y.reshape(&[x.numel()])?);
            let grid = Grid::x(x.numel().div_ceil(AT_ONCE));
            let tensors = [(&x, false), (&y, true)];
            let warps = (x.device() != Device::Cpu).then_some(AT_ONCE as u32 / 32);
            let (dtypes, consts) = ([x.dtype()], [AT_ONCE as i64]);
            launch::warped_views(kernel, grid, &dtypes, &consts, warps, &tensors, &state)?;
        }
        Ok(y)
    }

    /// Uniform among the integers `low..high`.
    ///
    /// # Errors
    /// If the range is empty or longer than 2^32, or the dtype is bool.
    pub fn randint(
        &self,
        low: i64,
        high: i64,
        shape: &[usize],
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        if high <= low || high.checked_sub(low).is_none_or(|n| n > 1 << 32) {
            let message = format!("the range {low}..{high} must hold between 1 and 2^32 integers");
            return Err(Error::op("randint", message));
        }
        if !at.dtype.is_number() {
            return Err(wrong_dtype("randint", "a number", at.dtype));
        }
        let range = [low, high].map(|value| Arg::Scalar(Scalar::int(DType::I64, value)));
        self.draw(&device::integers::KERNEL, shape, at, &range)
    }

    /// The integers below `n` in a random order; i64 unless another dtype is asked for.
    ///
    /// # Errors
    /// If the dtype is bool, or memory runs out.
    /// # Cost
    /// A sort of `n` numbers.
    pub fn randperm(&self, n: usize, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        if !at.dtype.is_number() {
            return Err(wrong_dtype("randperm", "a number", at.dtype));
        }
        let keys = Tensor::uninitialized(&[n], (DType::I64, at.device))?;
        let state = state_args(self.take(2 * n))?;
        launch::dense(&device::long_integers::KERNEL, &[], &[], &[(&keys, true)], &state)?;
        no_grad(|| keys.argsort(-1, false)?.to_dtype(at.dtype))
    }

    /// 1 with the probability that each element of `p` is, else 0; of its dtype.
    ///
    /// # Errors
    /// If `p` is not a float. A probability outside of `[0, 1]` counts as the nearer end.
    pub fn bernoulli(&self, p: &Tensor) -> Result<Tensor> {
        if !p.dtype().is_arithmetic_float() {
            return Err(wrong_dtype("bernoulli", "a float", p.dtype()));
        }
        let p = no_grad(|| p.detach().contiguous())?;
        let y = Tensor::uninitialized(p.shape(), (p.dtype(), p.device()))?;
        let state = state_args(self.take(p.numel()))?;
        let tensors = [(&p, false), (&y, true)];
        launch::dense(&device::bernoulli::KERNEL, &[p.dtype()], &[], &tensors, &state)?;
        Ok(y)
    }

    /// Categories drawn by weights that need not add up to 1: `[C]` gives `[n]`, `[M, C]` gives
    /// `[M, n]`, in i64.
    ///
    /// # Numerics
    /// With replacement weights count in steps of 2^-38 of the largest of their row; without, in f32.
    /// # Errors
    /// If the weights are no vector or matrix of floats, there are no categories, `n` is 0, or above
    /// their number without replacement. On the CPU, also where a weight is negative, infinite or NaN,
    /// or too few are above 0; a GPU does not wait to look, and draws any category then.
    /// # Source
    /// Same conventions as `torch.multinomial`.
    pub fn multinomial(&self, weights: &Tensor, n: usize, replacement: bool) -> Result<Tensor> {
        const NAME: &str = "multinomial";
        let (shape, dtype) = (weights.shape(), weights.dtype());
        if !dtype.is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", dtype));
        }
        if !(1..=2).contains(&shape.len()) || shape[shape.len() - 1] == 0 {
            let message = format!("needs weights [C] or [M, C] with a category, got {shape:?}");
            return Err(Error::op(NAME, message));
        }
        let c = shape[shape.len() - 1];
        if n == 0 || (!replacement && n > c) {
            return Err(Error::op(NAME, format!("can't draw {n} of {c} categories")));
        }
        no_grad(|| {
            let rows = weights
                .detach()
                .contiguous()?
                .reshape(&[crate::shape::product(shape[..shape.len() - 1].iter()), c])?;
            if rows.device() == Device::Cpu {
                check_weights(&rows, if replacement { 1 } else { n })?;
            }
            let drawn =
                if replacement { self.with_replacement(&rows, n) } else { self.without(&rows, n) };
            drawn?.reshape(&[&shape[..shape.len() - 1], &[n]].concat())
        })
    }

    fn with_replacement(&self, rows: &Tensor, n: usize) -> Result<Tensor> {
        let (m, c) = (rows.shape()[0], rows.shape()[1]);
        let result = Tensor::uninitialized(&[m, n], (DType::I64, rows.device()))?;
        let state = state_args(self.take(2 * m * n))?;
        if m == 0 {
            return Ok(result);
        }
        let top = rows.max_dims(&[-1], true)?;
        let whole = Tensor::uninitialized(&[m, c], (DType::I64, rows.device()))?;
        let (tile, cut) = ([1, 1024], [m, c.div_ceil(1024)]);
        let tensors = [(rows, false), (&top, false), (&whole, true)];
        let grid = Grid::xy(cut[0], cut[1]);
        launch::views(&device::weights::KERNEL, grid, &[rows.dtype()], &tile, &tensors, &[])?;
        let sums = whole.cumsum(-1)?;
        let steps = i64::from(usize::BITS - (c - 1).leading_zeros());
        let number = |value: i64| Arg::Scalar(Scalar::int(DType::I64, value));
        let [seed, offset] = state;
        let args = [
            launch::pointer(&sums, false),
            launch::view_of(&result, true),
            seed,
            offset,
            number(c as i64),
            number(steps),
        ];
        let (kernel, grid) = (&device::pick::KERNEL, Grid::xy(m, n.div_ceil(PICKED)));
        launch::warped(kernel, &result, grid, &[], &[PICKED as i64], None, &args)?;
        Ok(result)
    }

    fn without(&self, rows: &Tensor, n: usize) -> Result<Tensor> {
        let scores = Tensor::uninitialized(rows.shape(), (DType::F32, rows.device()))?;
        let state = state_args(self.take(rows.numel()))?;
        let tensors = [(rows, false), (&scores, true)];
        launch::dense(&device::race::KERNEL, &[rows.dtype()], &[], &tensors, &state)?;
        Ok(scores.topk(n, -1, true)?.1)
    }

    /// [`Tensor::dropout`] with the mask of this generator.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]`, or the dtype is not a float.
    pub fn dropout(&self, x: &Tensor, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::op("dropout", format!("p must be in [0, 1], got {p}")));
        }
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype("dropout", "a float", x.dtype()));
        }
        if p == 0.0 {
            return Ok(x.clone());
        }
        if p == 1.0 {
            return x.mul_scalar(0.0);
        }
        apply(Dropout { p, state: self.take(x.numel()), kernel: &device::dropout::KERNEL }, &[x])
    }
}

fn check_deviation(name: &str, std: f64) -> Result<()> {
    if std.is_nan() || std < 0.0 {
        return Err(Error::op(name, format!("std must not be negative, got {std}")));
    }
    Ok(())
}

fn check_weights(rows: &Tensor, n: usize) -> Result<()> {
    let values = rows.to_f64_vec()?;
    if values.iter().any(|w| !w.is_finite() || *w < 0.0) {
        let message = "a weight is negative, infinite or NaN";
        return Err(Error::op("multinomial", message));
    }
    let c = rows.shape()[1];
    if values.chunks(c).any(|row| row.iter().filter(|&&w| w > 0.0).count() < n) {
        let message = format!("needs {n} weights above 0 in each row");
        return Err(Error::op("multinomial", message));
    }
    Ok(())
}

impl Tensor {
    /// Uniform in `[0, 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn rand(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        default_generator().rand(shape, at)
    }

    /// Uniform in `[low, high)`; see [`Generator::uniform`].
    ///
    /// # Errors
    /// If the dtype is not a float, or `low` is above `high`.
    #[track_caller]
    pub fn uniform(
        shape: &[usize],
        low: f64,
        high: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        default_generator().uniform(shape, low, high, at)
    }

    /// Normal with mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn randn(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        default_generator().randn(shape, at)
    }

    /// Normal with this mean and standard deviation; see [`Generator::normal`].
    ///
    /// # Errors
    /// If the dtype is not a float, or `std` is negative.
    #[track_caller]
    pub fn normal(shape: &[usize], mean: f64, std: f64, at: impl Into<Creation>) -> Result<Tensor> {
        default_generator().normal(shape, mean, std, at)
    }

    /// Uniform among the integers `low..high`.
    ///
    /// # Errors
    /// If the range is empty or longer than 2^32, or the dtype is bool.
    #[track_caller]
    pub fn randint(
        low: i64,
        high: i64,
        shape: &[usize],
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        default_generator().randint(low, high, shape, at)
    }

    /// The integers below `n` in a random order.
    ///
    /// # Errors
    /// If the dtype is bool, or memory runs out.
    #[track_caller]
    pub fn randperm(n: usize, at: impl Into<Creation>) -> Result<Tensor> {
        default_generator().randperm(n, at)
    }

    /// 1 with the probability that each element is, else 0.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn bernoulli(&self) -> Result<Tensor> {
        default_generator().bernoulli(self)
    }

    /// Of the gamma distribution of each element; see [`Generator::gamma`].
    ///
    /// # Errors
    /// As [`Generator::gamma`].
    #[track_caller]
    pub fn gamma(&self) -> Result<Tensor> {
        default_generator().gamma(self)
    }

    /// Counts of the Poisson distribution of each element as the rate; see [`Generator::poisson`].
    ///
    /// # Errors
    /// As [`Generator::poisson`].
    #[track_caller]
    pub fn poisson(&self) -> Result<Tensor> {
        default_generator().poisson(self)
    }

    /// Categories drawn by these weights; see [`Generator::multinomial`].
    ///
    /// # Errors
    /// As [`Generator::multinomial`].
    #[track_caller]
    pub fn multinomial(&self, n: usize, replacement: bool) -> Result<Tensor> {
        default_generator().multinomial(self, n, replacement)
    }

    /// Zeroes each element with probability `p` and scales the others by `1 / (1 - p)`.
    ///
    /// The mask is a function of the generator's state and the element, so nothing is kept for the
    /// backward but two numbers.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]`, or the dtype is not a float.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        default_generator().dropout(self, p)
    }
}

/// [`Tensor::dropout`] with the draws from a state on, which are those of attention's kernels.
#[track_caller]
pub(in crate::ops) fn dropout_from(x: &Tensor, p: f64, state: RngState) -> Result<Tensor> {
    match p {
        1.0 => x.mul_scalar(0.0),
        _ => apply(Dropout { p, state, kernel: &device::dropout_by_element::KERNEL }, &[x]),
    }
}

struct Dropout {
    p: f64,
    state: RngState,
    kernel: &'static KernelDef,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0].contiguous()?;
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let [seed, offset] = state_args(self.state)?;
        let numbers = [seed, offset, launch::number(DType::F32, self.p)];
        let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
        launch::dense(self.kernel, &dtypes, &[], &[(&x, false), (&y, true)], &numbers)?;
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Dropout { p, state, kernel } = *self;
        Ok(vec![Some(apply(Dropout { p, state, kernel }, &[dy])?)])
    }
}

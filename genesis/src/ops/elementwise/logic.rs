//! Logic, what kind of number an element is, and blends: choices and means of tensors element by element.

use genesis_kernel::ir::DType;

use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{composite, promote};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("lerp", Precision::Widest), ("pow_scalar", Precision::Single)];

type Compare = fn(&Tensor, &Tensor) -> Result<Tensor>;

in_place!(logical_and_ = logical_and(tensor));
in_place!(logical_or_ = logical_or(tensor));
in_place!(logical_xor_ = logical_xor(tensor));
in_place!(logical_not_ = logical_not());
in_place!(bitwise_not_ = bitwise_not());
in_place!(clamp_min_ = clamp_min(tensor));
in_place!(clamp_max_ = clamp_max(tensor));

impl Tensor {
    /// The same bytes of bools as numbers 0 and 1, without a copy.
    pub(in crate::ops) fn as_bytes(&self) -> Tensor {
        let (storage, layout) = (self.storage().clone(), self.layout().clone());
        Tensor::plain(storage, layout, DType::U8)
    }

    /// The same bytes of 0 and 1 as bools, without a copy.
    pub(in crate::ops) fn as_bools(&self) -> Tensor {
        let (storage, layout) = (self.storage().clone(), self.layout().clone());
        Tensor::plain(storage, layout, DType::Bool)
    }

    /// Where elements are not zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn to_bool(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.detach()) } else { self.ne_scalar(0.0) }
    }

    /// Where both are not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        composite("logical_and", &[], [self, other], |[x, y], _| {
            x.to_bool()?.bitwise_and(&y.to_bool()?)
        })
    }

    /// Where one is not zero or both; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        composite("logical_or", &[], [self, other], |[x, y], _| {
            x.to_bool()?.bitwise_or(&y.to_bool()?)
        })
    }

    /// Where exactly one is not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        composite("logical_xor", &[], [self, other], |[x, y], _| {
            x.to_bool()?.bitwise_xor(&y.to_bool()?)
        })
    }

    /// Where elements are zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        composite("logical_not", &[], [self], |[x], _| {
            x.to_bool()?.bitwise_xor(&Tensor::ones(&[], (DType::Bool, x.device()))?)
        })
    }

    /// Every bit the other way; of a bool its opposite.
    ///
    /// # Errors
    /// If the dtype is a float.
    #[track_caller]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.logical_not();
        }
        composite("bitwise_not", &[], [self], |[x], _| {
            x.bitwise_xor(&Tensor::zeros(&[], (x.dtype(), x.device()))?.sub_scalar(1.0)?)
        })
    }

    /// Where elements are not numbers; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isnan(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::zeros(self.shape(), (DType::Bool, self.device()));
        }
        self.ne(self)
    }

    /// Where elements are infinite; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isinf(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::zeros(self.shape(), (DType::Bool, self.device()));
        }
        composite("isinf", &[], [self], |[x], _| x.detach().abs()?.eq_scalar(f64::INFINITY))
    }

    /// Where elements are numbers and not infinite; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::ones(self.shape(), (DType::Bool, self.device()));
        }
        composite("isfinite", &[], [self], |[x], _| x.detach().abs()?.lt_scalar(f64::INFINITY))
    }

    /// NaN and infinities replaced by numbers; where none is given by 0 and the dtype's extremes.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, high: Option<f64>, low: Option<f64>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.copy();
        }
        let largest = match self.dtype() {
            DType::F16 => 65504.0,
            DType::BF16 => f64::from(half::bf16::MAX),
            DType::F32 => f64::from(f32::MAX),
            _ => f64::MAX,
        };
        let numbers = [nan, high.unwrap_or(largest), low.unwrap_or(-largest)];
        composite("nan_to_num", &numbers, [self], |[x], n| {
            let number = |c: f64| Tensor::full(&[], c, (x.dtype(), x.device()));
            let y = x.isnan()?.where_(&number(n[0])?, x)?;
            let y = x.eq_scalar(f64::INFINITY)?.where_(&number(n[1])?, &y)?;
            x.eq_scalar(f64::NEG_INFINITY)?.where_(&number(n[2])?, &y)
        })
    }

    /// [`Tensor::nan_to_num`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn nan_to_num_(&self, nan: f64, high: Option<f64>, low: Option<f64>) -> Result<()> {
        self.replace("nan_to_num_", &[], |x| x.nan_to_num(nan, high, low))
    }

    /// `self + weight * (end - self)`, exact at both ends; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        composite("lerp", &[], [self, end, weight], |of, _| {
            Tensor::rounded_once(of, |[start, end, weight]| blend(&start, &end, &weight))
        })
    }

    /// [`Tensor::lerp`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn lerp_(&self, end: &Tensor, weight: &Tensor) -> Result<()> {
        self.replace_each("lerp_", &[end, weight], |x| x.lerp(end, weight))
    }

    /// [`Tensor::lerp`] by one number, which is not rounded to 16 bits; a fraction makes integers f32.
    ///
    /// # Errors
    /// As [`Tensor::lerp`].
    #[track_caller]
    pub fn lerp_scalar(&self, end: &Tensor, weight: f64) -> Result<Tensor> {
        composite("lerp", &[weight], [self, end], |of, n| {
            Tensor::rounded_once(of, |[start, end]| {
                start.beside_number(n[0])?.lerp(&end, &start.number_beside(n[0])?)
            })
        })
    }

    /// `self + value * a * b`, of the dtype that the three promote to; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        composite("addcmul", &[value], [self, a, b], |of, n| {
            Tensor::rounded_once(of, |[x, a, b]| {
                let product = a.mul(&b)?;
                x.add(&if n[0] == 1.0 { product } else { product.mul_scalar(n[0])? })
            })
        })
    }

    /// [`Tensor::addcmul`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addcmul_(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<()> {
        self.replace_each("addcmul_", &[a, b], |x| x.addcmul(a, b, value))
    }

    /// `self + value * a / b`, of the dtype that the three promote to; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        composite("addcdiv", &[value], [self, a, b], |of, n| {
            Tensor::rounded_once(of, |[x, a, b]| x.add(&a.mul_scalar(n[0])?.div(&b)?))
        })
    }

    /// [`Tensor::addcdiv`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn addcdiv_(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<()> {
        self.replace_each("addcdiv_", &[a, b], |x| x.addcdiv(a, b, value))
    }

    /// What `compute` makes of tensors brought to the dtype they promote to, 16-bit floats as f32 until
    /// the end.
    ///
    /// Every elementwise op that is made of others goes through this, so that it rounds like one kernel.
    #[track_caller]
    pub(in crate::ops) fn rounded_once<const N: usize>(
        tensors: [&Tensor; N],
        compute: impl FnOnce([Tensor; N]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dtype = promote::result_type(&tensors);
        let wide = launch::accumulate_dtype(dtype);
        let mut of = tensors.map(Tensor::clone);
        for t in &mut of {
            *t = t.to_dtype(wide)?;
        }
        let y = compute(of)?;
        if wide == dtype { Ok(y) } else { y.to_dtype(dtype) }
    }

    /// `c` where the mask is true, this tensor elsewhere; integers take no fraction of it.
    ///
    /// # Errors
    /// If the mask is not bool or does not broadcast.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, c: f64) -> Result<Tensor> {
        composite("masked_fill", &[c], [self, mask], |[x, mask], n| {
            mask.where_(&Tensor::full(&[], n[0], (x.dtype(), x.device()))?, x)
        })
    }

    /// [`Tensor::masked_fill`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn masked_fill_(&self, mask: &Tensor, value: f64) -> Result<()> {
        self.check_holds("masked_fill_", &[mask])?;
        self.replace("masked_fill_", &[], |x| x.masked_fill(mask, value))
    }

    /// No element below `low`; NaN stays. At `low` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn clamp_min(&self, low: &Tensor) -> Result<Tensor> {
        composite("clamp_min", &[], [self, low], |[x, low], _| {
            clamped(x, low, Tensor::ge, Tensor::lt)
        })
    }

    /// No element above `high`; NaN stays. At `high` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn clamp_max(&self, high: &Tensor) -> Result<Tensor> {
        composite("clamp_max", &[], [self, high], |[x, high], _| {
            clamped(x, high, Tensor::le, Tensor::gt)
        })
    }

    /// The nearest number with `decimals` digits after the point, ties to even; digits before the
    /// point where negative. The gradient is zero.
    ///
    /// # Numerics
    /// `round(x * 10^decimals) / 10^decimals`, as PyTorch computes it: in f32 where `10^decimals` is an f32, to 10 digits, and
    /// else in f64. Numbers that have no such digits stay.
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if !self.dtype().is_float() || decimals == 0 {
            return if self.dtype().is_float() { self.round() } else { self.copy() };
        }
        let scale = 10f64.powi(decimals.saturating_abs());
        let is_fraction = if decimals > 0 { 1.0 } else { 0.0 };
        composite("round", &[scale, is_fraction], [self], |[x], n| {
            let is_single = x.dtype() != DType::F64 && n[0] <= LARGEST_POWER;
            let wide = x.to_dtype(if is_single { DType::F32 } else { DType::F64 })?;
            let rounded = match n[1] > 0.0 {
                true => {
                    let rounded = wide.mul_scalar(n[0])?.round()?.div_scalar(n[0])?;
                    // Whole numbers, whose product might be infinite.
                    let whole = if is_single { 2f64.powi(23) } else { 2f64.powi(52) };
                    wide.abs()?.ge_scalar(whole)?.where_(&wide, &rounded)?
                }
                false => wide.div_scalar(n[0])?.round()?.mul_scalar(n[0])?,
            };
            rounded.to_dtype(x.dtype())
        })
    }
}

/// The largest power of ten that f32 has.
const LARGEST_POWER: f64 = 1e10;

/// `start + weight * (end - start)`, from the end that is nearer.
fn blend(start: &Tensor, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let way = end.sub(start)?;
    let near = start.add(&weight.mul(&way)?)?;
    let far = end.sub(&way.mul(&weight.rsub_scalar(1.0)?)?)?;
    weight.detach().abs()?.lt_scalar(0.5)?.where_(&near, &far)
}

/// x on the inner side of a bound, else the bound. NaN of either stays, and has no gradient.
fn clamped(x: &Tensor, bound: &Tensor, inside: Compare, outside: Compare) -> Result<Tensor> {
    let (x, bound) = promote::pair(x, bound)?;
    if !x.dtype().is_float() {
        return inside(&x, &bound)?.where_(&x, &bound);
    }
    let nan = x.isnan()?.where_(&x.detach(), &bound.detach())?;
    inside(&x, &bound)?.where_(&x, &outside(&x, &bound)?.where_(&bound, &nan)?)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, FLOATS, Family, OpInfo, Sample, WIDE, cpu, map, zip};

    fn truth(is_true: bool) -> f64 {
        f64::from(u8::from(is_true))
    }

    const ONE: &[Sample] = &[&[&[7, 5]]];
    const PAIR: &[Sample] = &[&[&[3, 5], &[3, 5]]];
    const THREE: &[Sample] = &[&[&[3, 5], &[3, 5], &[5]]];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "logical_and",
            Family::Exact,
            |x| x[0].logical_and(&x[1]),
            |x| zip(&x[0], &x[1], |a, b| truth(a >= 1.0 && b >= 1.0)),
            PAIR,
        )
        .peer("torch.logical_and(x[0], x[1])")
        .whole()
        .within(0.0, 2.0)
        .flat(),
        OpInfo::new(
            "logical_or",
            Family::Exact,
            |x| x[0].logical_or(&x[1]),
            |x| zip(&x[0], &x[1], |a, b| truth(a >= 1.0 || b >= 1.0)),
            PAIR,
        )
        .peer("torch.logical_or(x[0], x[1])")
        .whole()
        .within(0.0, 2.0)
        .flat(),
        OpInfo::new(
            "logical_xor",
            Family::Exact,
            |x| x[0].logical_xor(&x[1]),
            |x| zip(&x[0], &x[1], |a, b| truth((a >= 1.0) != (b >= 1.0))),
            PAIR,
        )
        .peer("torch.logical_xor(x[0], x[1])")
        .whole()
        .within(0.0, 2.0)
        .flat(),
        OpInfo::new(
            "logical_not",
            Family::Exact,
            |x| x[0].logical_not(),
            |x| map(&x[0], |v| truth(v < 1.0)),
            ONE,
        )
        .peer("torch.logical_not(x[0])")
        .whole()
        .within(0.0, 2.0)
        .flat(),
        OpInfo::new(
            "to_bool",
            Family::Exact,
            |x| x[0].to_bool(),
            |x| map(&x[0], |v| truth(v >= 1.0)),
            ONE,
        )
        .peer("x[0].to(torch.bool)")
        .whole()
        .within(0.0, 2.0)
        .flat(),
        OpInfo::new(
            "bitwise_not",
            Family::Exact,
            |x| x[0].bitwise_not(),
            |x| map(&x[0], |v| -1.0 - v),
            ONE,
        )
        .of(&[DType::I64, DType::I32, DType::I8])
        .flat()
        .refusing(&[(|| cpu(&[2], DType::F32)?.bitwise_not(), "bitwise_xor: does not take f32")]),
        OpInfo::new(
            "isnan",
            Family::Exact,
            |x| x[0].log()?.isnan(),
            |x| map(&x[0], |v| truth(v < 0.0)),
            ONE,
        )
        .peer("torch.isnan(x[0].log())")
        .within(-1.0, 1.0)
        .of(FLOATS)
        .flat(),
        OpInfo::new(
            "isinf",
            Family::Exact,
            |x| x[0].floor()?.log()?.isinf(),
            |x| map(&x[0], |v| truth(v < 1.0)),
            ONE,
        )
        .peer("torch.isinf(x[0].floor().log())")
        .within(0.0, 2.0)
        .of(FLOATS)
        .flat(),
        OpInfo::new(
            "isfinite",
            Family::Exact,
            |x| x[0].floor()?.log()?.isfinite(),
            |x| map(&x[0], |v| truth(v >= 1.0)),
            ONE,
        )
        .peer("torch.isfinite(x[0].floor().log())")
        .within(-1.0, 2.0)
        .of(FLOATS)
        .flat(),
        OpInfo::new(
            "nan_to_num",
            Family::Exact,
            |x| x[0].div(&x[0].floor()?)?.floor()?.nan_to_num(3.0, Some(5.0), None),
            |x| map(&x[0], |v| if v < 1.0 { 5.0 } else { (v / v.floor()).floor() }),
            ONE,
        )
        .peer("torch.nan_to_num((x[0] / x[0].floor()).floor(), 3.0, 5.0)")
        .within(0.1, 3.0)
        .of(WIDE)
        .flat(),
        OpInfo::new(
            "lerp",
            Family::Softmax,
            |x| x[0].lerp(&x[1], &x[2]),
            |x| {
                Dense::from_fn(&x[0].shape, |at| {
                    let (a, b) = (x[0].at(at), x[1].at(at));
                    a + x[2].at(at) * (b - a)
                })
            },
            &[&[&[3, 5], &[3, 5], &[5]]],
        )
        .of(WIDE),
        OpInfo::new(
            "lerp_scalar",
            Family::Softmax,
            |x| x[0].lerp_scalar(&x[1], 0.3),
            |x| zip(&x[0], &x[1], |a, b| a + 0.3 * (b - a)),
            PAIR,
        )
        .peer("torch.lerp(x[0], x[1], 0.3)")
        .of(WIDE),
        OpInfo::new(
            "addcmul",
            Family::Softmax,
            |x| x[0].addcmul(&x[1], &x[2], 0.7),
            |x| Dense::from_fn(&x[0].shape, |at| x[0].at(at) + 0.7 * x[1].at(at) * x[2].at(at)),
            THREE,
        )
        .peer("torch.addcmul(x[0], x[1], x[2], value=0.7)")
        .of(WIDE),
        OpInfo::new(
            "addcdiv",
            Family::Softmax,
            |x| x[0].addcdiv(&x[1], &x[2], 0.7),
            |x| Dense::from_fn(&x[0].shape, |at| x[0].at(at) + 0.7 * x[1].at(at) / x[2].at(at)),
            THREE,
        )
        .peer("torch.addcdiv(x[0], x[1], x[2], value=0.7)")
        .within(0.5, 5.0)
        .of(WIDE),
        OpInfo::new(
            "masked_fill",
            Family::Exact,
            |x| x[0].masked_fill(&x[0].detach().gt_scalar(2.0)?, 7.0),
            |x| map(&x[0], |v| if v > 2.0 { 7.0 } else { v }),
            ONE,
        )
        .peer("x[0].masked_fill(x[0].detach() > 2.0, 7.0)"),
        OpInfo::new(
            "clamp_min",
            Family::Exact,
            |x| x[0].clamp_min(&x[1]),
            |x| zip(&x[0], &x[1], f64::max),
            PAIR,
        )
        .of(FLOATS),
        OpInfo::new(
            "clamp_max",
            Family::Exact,
            |x| x[0].clamp_max(&x[1]),
            |x| zip(&x[0], &x[1], f64::min),
            PAIR,
        )
        .of(FLOATS),
        OpInfo::new(
            "round_decimals",
            Family::Transcendental,
            |x| x[0].round_decimals(-1),
            |x| map(&x[0], |v| (v / 10.0).round_ties_even() * 10.0),
            ONE,
        )
        .peer("torch.round(x[0], decimals=-1)")
        .within(1.0, 99.0)
        .of(WIDE)
        .flat(),
    ];
}

//! How far a result may lie from PyTorch's, by rule and dtype.
//!
//! | rule | f32 | bf16, f16 | f64 |
//! |---|---|---|---|
//! | `exact`: views, choices, comparisons, integers | every bit | every bit | every bit |
//! | `choice`: maxima, clamps | every bit, but zeros of both signs are equal: which of two equal operands PyTorch takes depends on its vector width | same | same |
//! | `arith`: one operation | correctly rounded | 1 ULP | correctly rounded |
//! | `func`: one function | 4 ULP | 1 ULP | 8 ULP of PyTorch's |
//! | `sum`: many operations | 1.3e-6 relative, 1e-5 absolute | 1.6e-2, 1e-3 relative | 1e-7 |
//! | `gradient` | as a sum | five roundings (2e-2, 2.4e-3 relative), 1e-5 absolute | as a sum |
//!
//! A 16-bit function of which the result would be subnormal in f32 may be 0: GPUs compute it by fewer
//! instructions.
//!
//! A `sum` or a `gradient` that is farther off is still right if its root mean square error is at most
//! twice PyTorch's own (f32, f64), or three times (16-bit).

use genesis::DType;

/// What a result is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// Every bit, but for the sign and the payload of NaN.
    Exact,
    /// Every bit, with no sign of zero.
    Choice,
    /// One operation.
    Arithmetic,
    /// One function.
    Function,
    /// Many operations.
    Sum,
    /// A gradient.
    Gradient,
}

impl Rule {
    /// The rule of a name in a manifest.
    pub(super) fn named(name: &str) -> Option<Rule> {
        Some(match name {
            "exact" => Rule::Exact,
            "choice" => Rule::Choice,
            "arith" => Rule::Arithmetic,
            "func" => Rule::Function,
            "sum" => Rule::Sum,
            "gradient" => Rule::Gradient,
            _ => return None,
        })
    }

    /// Whether values are equal to the bit or wrong.
    pub(super) fn is_exact(self) -> bool {
        matches!(self, Rule::Exact | Rule::Choice)
    }

    /// Whether a root mean square error near PyTorch's is enough.
    pub(super) fn forgives(self) -> bool {
        matches!(self, Rule::Sum | Rule::Gradient)
    }

    /// The error that one element of this size may have.
    pub(super) fn allowed(self, dtype: DType, truth: f64) -> f64 {
        let is_half = matches!(dtype, DType::F16 | DType::BF16);
        let one = ulp(dtype, truth);
        match self {
            Rule::Exact | Rule::Choice => 0.0,
            Rule::Arithmetic if is_half => one,
            Rule::Arithmetic => 0.5 * one,
            Rule::Function if is_half && truth.abs() < f64::from(f32::MIN_POSITIVE) => {
                truth.abs().max(one)
            }
            Rule::Function if is_half => one,
            Rule::Function if dtype == DType::F64 => 8.0 * one,
            Rule::Function => 4.0 * one,
            // A gradient is a chain of ops here, each of which rounds to 16 bits: to 2^-8 or 2^-11.
            Rule::Gradient if is_half => {
                let rounding = if dtype == DType::BF16 { 0.5f64.powi(8) } else { 0.5f64.powi(11) };
                1e-5 + 5.0 * rounding * truth.abs()
            }
            Rule::Sum | Rule::Gradient => {
                let (relative, absolute) = default_tolerance(dtype);
                absolute + relative * truth.abs()
            }
        }
    }
}

/// PyTorch's default tolerance: relative and absolute.
pub(super) fn default_tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (1e-7, 1e-7),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F16 => (1e-3, 1e-5),
        _ => (1.6e-2, 1e-5),
    }
}

/// How many times PyTorch's root mean square error a result may have.
pub(super) fn factor(dtype: DType) -> f64 {
    if matches!(dtype, DType::F16 | DType::BF16) { 3.0 } else { 2.0 }
}

/// The distance from one number of a dtype to the next at this size.
fn ulp(dtype: DType, value: f64) -> f64 {
    let (bits, least) = match dtype {
        DType::F16 => (10, -24),
        DType::BF16 => (7, -133),
        DType::F32 => (23, -149),
        _ => (52, -1074),
    };
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    match (exponent - bits).max(least) {
        // A power of which the inverse is infinite.
        small @ ..-1022 => f64::from_bits(1 << (small + 1074)),
        power => 2f64.powi(power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_an_ulp_apart() {
        for value in [1.0f32, 1.5, 3.0, 1e-3, 7e20, 1e-40] {
            let next = f32::from_bits(value.to_bits() + 1);
            assert_eq!(ulp(DType::F32, f64::from(value)), f64::from(next) - f64::from(value));
        }
        for value in [0.0f64, 1e-310, 1e-307, 2e-292, 1.0] {
            let next = f64::from_bits(value.to_bits() + 1);
            assert_eq!(ulp(DType::F64, value), next - value);
        }
        assert_eq!(ulp(DType::F16, 0.0), 2f64.powi(-24));
    }
}

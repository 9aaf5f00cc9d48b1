//! How a tensor prints: values as PyTorch prints them, then shape, dtype and device.
//!
//! ```text
//! [[1.0000, 0.5000],
//!  [2.0000, 0.2500]]
//! Tensor([2, 2], f32, cpu)
//! ```
//!
//! Of more than [`SUMMARIZED`] elements the ends of each axis are printed, and only they leave the device.

use std::fmt;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Tensors of more elements are printed as the ends of their axes.
const SUMMARIZED: usize = 1000;
/// The most values that are printed: of many short axes all have only ends.
const MOST: usize = 1 << 17;
/// How many values stand at each end of a long axis.
const EDGE: usize = 3;
/// Columns of a line.
const LINE: usize = 80;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.numel() == 0 {
            // An axis beside one of extent 0 may be as long as it likes.
            return write!(f, "[]\n{self:?}");
        }
        let is_short = self.numel() > SUMMARIZED;
        let shown = if is_short { no_grad(|| ends(self)) } else { Ok(self.clone()) };
        let shown = shown.and_then(|shown| match shown.numel() > MOST {
            true => Err(Error::op("show", format!("{} values are too many", shown.numel()))),
            false => shown.to_f64_vec(),
        });
        let values = match shown {
            Ok(values) => values,
            // Whoever shows a tensor learns what of it is known: a panic, which an error of a formatter
            // becomes in `format!`, would hide the error that made them look.
            Err(error) => return write!(f, "[{error}]\n{self:?}"),
        };
        let style = Style::of(&values, self.dtype().is_float());
        let texts: Vec<String> = values.iter().map(|&v| style.text(v)).collect();
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        let page = Page { width, is_short };
        page.write(f, self.shape(), &texts, 1)?;
        write!(f, "\n{self:?}")
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {}, {}", self.shape(), self.dtype(), self.device())?;
        if self.requires_grad() {
            f.write_str(", requires_grad")?;
        }
        f.write_str(")")
    }
}

/// The first and the last elements along every axis that is too long.
#[track_caller]
fn ends(x: &Tensor) -> Result<Tensor> {
    let mut x = x.detach();
    for axis in 0..x.rank() {
        let extent = x.shape()[axis];
        if extent > 2 * EDGE {
            let dim = axis as i64;
            let (head, tail) = (x.narrow(dim, 0, EDGE)?, x.narrow(dim, extent - EDGE, EDGE)?);
            x = Tensor::cat(&[&head, &tail], dim)?;
        }
    }
    Ok(x)
}

/// How numbers are written: all of a tensor in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// Integers and bools.
    Integer,
    /// Floats that are all whole: `2.`
    Whole,
    /// Four digits after the point.
    Fixed,
    /// Four digits and an exponent, where sizes differ too much for one place of the point.
    Scientific,
}

impl Style {
    fn of(values: &[f64], is_float: bool) -> Style {
        if !is_float {
            return Style::Integer;
        }
        let sizes = values.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = sizes.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        if values.iter().all(|v| !v.is_finite() || v.fract() == 0.0) {
            return if high >= 1e8 { Style::Scientific } else { Style::Whole };
        }
        match high / low > 1000.0 || high > 1e8 || low < 1e-4 {
            true => Style::Scientific,
            false => Style::Fixed,
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
            Style::Integer => format!("{value}"),
            Style::Whole => format!("{value:.0}."),
            Style::Fixed => format!("{value:.4}"),
            Style::Scientific => scientific(value),
        }
    }
}

/// An exponent has a sign and two digits at least.
fn scientific(value: f64) -> String {
    let text = format!("{value:.4e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

/// What is the same all over a printed tensor.
struct Page {
    /// Columns of a number.
    width: usize,
    /// Whether long axes are left out but for their ends.
    is_short: bool,
}

impl Page {
    /// One axis, `depth` columns from the left; `texts` holds what is shown of it.
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        shape: &[usize],
        texts: &[String],
        depth: usize,
    ) -> fmt::Result {
        let Some((&extent, inner)) = shape.split_first() else {
            return f.write_str(&texts[0]);
        };
        f.write_str("[")?;
        let shown = self.shown(extent);
        let step: usize = crate::shape::product(inner.iter().map(|&e| self.shown(e)));
        let is_cut = shown < extent;
        let new_line = || "\n".repeat(inner.len().max(1)) + &" ".repeat(depth);
        let a_line = ((LINE - depth.min(LINE / 2)) / (self.width + 2)).max(1);
        let mut column = 0;
        for index in 0..shown {
            if index > 0 {
                f.write_str(",")?;
                column += 1;
                let is_full = !inner.is_empty() || column % a_line == 0;
                f.write_str(&if is_full { new_line() } else { " ".to_owned() })?;
            }
            if is_cut && index == EDGE {
                let text = if inner.is_empty() {
                    " ..., ".to_owned()
                } else {
                    "...,".to_owned() + &new_line()
                };
                f.write_str(&text)?;
            }
            if inner.is_empty() {
                write!(f, "{:>width$}", texts[index], width = self.width)?;
            } else {
                self.write(f, inner, &texts[index * step..(index + 1) * step], depth + 1)?;
            }
        }
        f.write_str("]")
    }

    fn shown(&self, extent: usize) -> usize {
        if self.is_short { extent.min(2 * EDGE) } else { extent }
    }
}

#[cfg(test)]
mod tests {
    use genesis_kernel::ir::DType;
    use genesis_kernel::runtime::Device;

    use super::*;

    fn check(values: &[f64], shape: &[usize], dtype: DType, want: &str) {
        let x =
            Tensor::from_f64(values, shape, (dtype, Device::Cpu)).expect("values fill the shape");
        let text = x.to_string();
        let (shown, _) = text.rsplit_once('\n').expect("the last line is the type");
        assert_eq!(shown, want);
    }

    /// The texts are PyTorch's, without `tensor(` and its indent.
    #[test]
    fn values_stand_as_in_pytorch() {
        check(
            &[1.0, 0.5, 2.0, -0.25],
            &[2, 2],
            DType::F32,
            "[[ 1.0000,  0.5000],\n [ 2.0000, -0.2500]]",
        );
        check(&[1.0, 20.0], &[2], DType::F32, "[ 1., 20.]");
        check(&[1.0, -20.0], &[2], DType::I64, "[  1, -20]");
        check(&[1e-5, 2.0], &[2], DType::F32, "[1.0000e-05, 2.0000e+00]");
        check(&[f64::NAN, 1.5, f64::INFINITY], &[3], DType::F32, "[   nan, 1.5000,    inf]");
        check(&[3.0], &[], DType::F32, "3.");
        check(&[], &[0], DType::F32, "[]");
        check(&[], &[2, 0], DType::F32, "[]");
        check(&[], &[1 << 40, 0], DType::F32, "[]");
    }

    #[test]
    fn long_axes_are_left_out_but_for_their_ends() {
        let values: Vec<f64> = (0..2000).map(f64::from).collect();
        check(&values, &[2000], DType::I64, "[   0,    1,    2,  ..., 1997, 1998, 1999]");
        let rows = "[[   0,    1],\n [   2,    3],\n [   4,    5],\n ...,\n [1994, 1995],\n [1996, 1997],\n [1998, 1999]]";
        check(&values, &[1000, 2], DType::I64, rows);
    }
}

//! How a tensor prints: values, then shape, dtype and device.

use std::fmt;

use super::Tensor;

/// Axes longer than this are printed as their first and last few values.
const SUMMARIZE_OVER: usize = 8;
/// How many values stand at each end of a long axis.
const EDGE: usize = 3;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.to_f64_vec().map_err(|_| fmt::Error)?;
        write_axis(f, self.shape(), &values, self.dtype().is_float(), 0)?;
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

fn write_axis(
    f: &mut fmt::Formatter<'_>,
    shape: &[usize],
    values: &[f64],
    is_float: bool,
    depth: usize,
) -> fmt::Result {
    let Some((&extent, inner)) = shape.split_first() else {
        return if is_float { write!(f, "{:.4}", values[0]) } else { write!(f, "{}", values[0]) };
    };
    let step: usize = inner.iter().product();
    let separator =
        if inner.is_empty() { ", ".to_owned() } else { format!(",\n{}", " ".repeat(depth + 1)) };
    f.write_str("[")?;
    for index in 0..extent {
        if extent > SUMMARIZE_OVER && (EDGE..extent - EDGE).contains(&index) {
            if index == EDGE {
                write!(f, "{separator}...")?;
            }
            continue;
        }
        if index > 0 {
            f.write_str(&separator)?;
        }
        write_axis(f, inner, &values[index * step..(index + 1) * step], is_float, depth + 1)?;
    }
    f.write_str("]")
}

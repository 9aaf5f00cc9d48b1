//! Names of cases: `<op>/<dtype>/<shape>[/<variant>]`, such as `sum/f32/4x512x896/axis=-1`.
//!
//! The numbers of the shape are all that an op knows of its size, so that any name of a known op is a
//! case, in the table or not: `softmax/bf16/100x3000`.

use genesis::DType;

/// A case's name and what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CaseName {
    /// The whole name.
    pub(crate) text: String,
    /// The op.
    pub(crate) op: String,
    /// The dtype as it is written: `tf32` is a way to multiply f32.
    pub(crate) precision: String,
    /// The numbers in the shape: `m8192k896n4864` has three; `403M` is 403 million.
    pub(crate) dims: Vec<usize>,
    /// What stands after the shape, or nothing.
    pub(crate) variant: String,
}

impl CaseName {
    /// The name's parts; none if it is not one.
    pub(crate) fn parse(text: &str) -> Option<CaseName> {
        let mut parts = text.splitn(4, '/');
        let (op, precision, shape) = (parts.next()?, parts.next()?, parts.next()?);
        let dims = numbers(shape)?;
        let is_known = precision == "tf32" || DType::from_name(precision).is_some();
        (is_known && !dims.is_empty()).then(|| CaseName {
            text: text.to_owned(),
            op: op.to_owned(),
            precision: precision.to_owned(),
            dims,
            variant: parts.next().unwrap_or_default().to_owned(),
        })
    }

    /// The dtype of the elements.
    pub(crate) fn dtype(&self) -> DType {
        DType::from_name(&self.precision).unwrap_or(DType::F32)
    }

    /// The product of the extents.
    pub(crate) fn numel(&self) -> usize {
        self.dims.iter().product()
    }
}

/// The numbers in a shape, in order.
fn numbers(shape: &str) -> Option<Vec<usize>> {
    let mut dims = Vec::new();
    let mut rest = shape;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let tail = &rest[start..];
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let unit = if tail[end..].starts_with('M') { 1_000_000 } else { 1 };
        dims.push(tail[..end].parse::<usize>().ok()?.checked_mul(unit)?);
        rest = &tail[end..];
    }
    Some(dims)
}

/// Whether a name matches a pattern in which `*` stands for any text and `?` for one character.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    let mut tails = name.char_indices().map(|(at, _)| &name[at..]).chain([""]);
    match first {
        '*' => tails.any(|tail| matches(rest, tail)),
        _ => name
            .chars()
            .next()
            .is_some_and(|c| (c == first || first == '?') && matches(rest, &name[c.len_utf8()..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_op_dtype_and_extents() {
        let name = CaseName::parse("linear/bf16/m8192k896n4864").unwrap();
        assert_eq!((name.op.as_str(), name.dtype()), ("linear", DType::BF16));
        assert_eq!((name.dims, name.variant.as_str()), (vec![8192, 896, 4864], ""));
        let name = CaseName::parse("sum/f32/4x512x896/axis=-1").unwrap();
        assert_eq!((name.dims, name.variant.as_str()), (vec![4, 512, 896], "axis=-1"));
        assert_eq!(CaseName::parse("adamw/f32/403M").unwrap().dims, [403_000_000]);
        assert_eq!(CaseName::parse("matmul/tf32/4096/nn").unwrap().dtype(), DType::F32);
        assert_eq!(CaseName::parse("softmax/*"), None);
    }

    #[test]
    fn stars_match_across_slashes() {
        assert!(matches("softmax/*", "softmax/bf16/8192x8192"));
        assert!(matches("*/8192x????/*", "sum/f32/8192x8192/axis=0"));
        assert!(!matches("softmax/*", "log_softmax/bf16/8x8"));
        assert!(!matches("add", "add/bf16/8x8"));
    }
}

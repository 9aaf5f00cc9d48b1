//! The names of ops in text, both ways.
//!
//! One table for printing, parsing and messages, so that they can't differ.

use super::ops::{AtomicOp, BinaryOp, DotPrecision, Predicate, UnaryOp};

macro_rules! names {
    ($($ty:ident { $($variant:ident $name:literal),* $(,)? })*) => {$(
        impl $ty {
            /// Every one, in order.
            pub const ALL: &'static [$ty] = &[$($ty::$variant),*];

            /// Its name in text.
            pub fn name(self) -> &'static str {
                match self {
                    $($ty::$variant => $name,)*
                }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<$ty> {
                match name {
                    $($name => Some($ty::$variant),)*
                    _ => None,
                }
            }
        }
    )*};
}

names! {
    UnaryOp {
        Neg "neg", Not "not", Abs "abs", Sqrt "sqrt", Rsqrt "rsqrt", Exp "exp", Exp2 "exp2",
        Log "log", Log2 "log2", Sin "sin", Cos "cos", Tanh "tanh", Erf "erf", Sigmoid "sigmoid",
        Floor "floor", Ceil "ceil", Round "round", Trunc "trunc", PopCount "popcount", LeadingZeros "clz", Exp2Approx "exp2_approx",
        Exp2Flush "exp2_flush", RecipApprox "recip_approx", SinFar "sin_far", CosFar "cos_far", TanFar "tan_far",
        Log2Approx "log2_approx", Log2Flush "log2_flush", SqrtApprox "sqrt_approx", Log1p "log1p", Tan "tan",
    }
    BinaryOp {
        Add "add", Sub "sub", Mul "mul", Div "div", Rem "rem", And "and", Or "or", Xor "xor",
        Shl "shl", Shr "shr", Min "min", Max "max", MinNum "min_num", MaxNum "max_num",
        MulHi "mul_hi", Short "short",
    }
    Predicate { Eq "eq", Ne "ne", Lt "lt", Le "le", Gt "gt", Ge "ge" }
    AtomicOp {
        Add "add", Max "max", Min "min", And "and", Or "or", Xor "xor", Exchange "exchange",
    }
    DotPrecision { Ieee "ieee", Tf32 "tf32", Tf32x3 "tf32x3", Fast "fast" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        assert!(UnaryOp::ALL.iter().all(|&op| UnaryOp::from_name(op.name()) == Some(op)));
        assert!(BinaryOp::ALL.iter().all(|&op| BinaryOp::from_name(op.name()) == Some(op)));
        assert_eq!(BinaryOp::from_name("neg"), None);
    }

    #[test]
    fn a_name_means_a_unary_or_a_binary_op_never_both() {
        assert!(UnaryOp::ALL.iter().all(|op| BinaryOp::from_name(op.name()).is_none()));
    }
}

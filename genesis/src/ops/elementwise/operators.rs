//! `+ - * / %`, `& | ^ !` and unary minus on tensors, references, results and numbers.
//!
//! An operator gives a `Result`, and takes one on its right, so that expressions chain:
//! `(&x * &y + &b)?` reads `x.mul(&y)` and hands its result on.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! operator {
    ($trait:ident, $method:ident, $scalar:ident) => {
        operator!($trait, $method, $scalar, $method);
    };
    ($trait:ident, $method:ident, $scalar:ident, $operator:ident) => {
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }
        impl $trait<Tensor> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(self, &other)
            }
        }
        impl $trait<&Tensor> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&self, other)
            }
        }
        impl $trait<Tensor> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&self, &other)
            }
        }
        impl $trait<Result<Tensor>> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: Result<Tensor>) -> Result<Tensor> {
                Tensor::$method(self, &other?)
            }
        }
        impl $trait<Result<Tensor>> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: Result<Tensor>) -> Result<Tensor> {
                Tensor::$method(&self, &other?)
            }
        }
        impl $trait<f64> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: f64) -> Result<Tensor> {
                self.$scalar(other)
            }
        }
        impl $trait<f64> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $operator(self, other: f64) -> Result<Tensor> {
                self.$scalar(other)
            }
        }
    };
}

operator!(Add, add, add_scalar);
operator!(Sub, sub, sub_scalar);
operator!(Mul, mul, mul_scalar);
operator!(Div, div, div_scalar);
// As in Python the rest has the sign of the divisor.
operator!(Rem, remainder, remainder_scalar, rem);
operator!(BitAnd, bitwise_and, bitwise_and_scalar, bitand);
operator!(BitOr, bitwise_or, bitwise_or_scalar, bitor);
operator!(BitXor, bitwise_xor, bitwise_xor_scalar, bitxor);

macro_rules! number_on_the_left {
    ($trait:ident, $method:ident, |$c:ident, $x:ident| $body:expr) => {
        impl $trait<&Tensor> for f64 {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: &Tensor) -> Result<Tensor> {
                let $c = self;
                $body
            }
        }
        impl $trait<Tensor> for f64 {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: Tensor) -> Result<Tensor> {
                let $c = self;
                $body
            }
        }
    };
}

number_on_the_left!(Add, add, |c, x| x.add_scalar(c));
number_on_the_left!(Sub, sub, |c, x| x.neg()?.add_scalar(c));
number_on_the_left!(Mul, mul, |c, x| x.mul_scalar(c));
number_on_the_left!(Div, div, |c, x| x.rdiv_scalar(c));

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

impl Not for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn not(self) -> Result<Tensor> {
        self.bitwise_not()
    }
}

impl Not for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn not(self) -> Result<Tensor> {
        self.bitwise_not()
    }
}

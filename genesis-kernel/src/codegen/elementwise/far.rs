//! Code that is rarely needed, behind a branch: remainders with large quotients, sines of large arguments.
//!
//! Each is a function of its own that LLVM inlines, so that whoever lowers an op need not know of its
//! blocks. Vectors take the long way together as soon as one lane needs it.

use super::super::llvm::{Block, Emitter, FloatPred, Function, IntPred, Ty, Val};
use super::integer::mul_hi;
use super::target::Target;
use crate::ir::DType;
use crate::ir::far::{self, Steps};

/// The bits of a float type.
struct Format {
    /// Of the stored fraction.
    fraction: u32,
    /// Of the whole number.
    bits: u32,
    /// As many binary digits can be appended to a significand in 64 bits.
    room: i64,
}

impl Format {
    fn of(dtype: DType) -> Format {
        match dtype {
            DType::F64 => Format { fraction: 52, bits: 64, room: 11 },
            _ => Format { fraction: 23, bits: 32, room: 40 },
        }
    }
}

fn name_of(e: &Emitter, what: &str, dtype: DType, ty: Ty) -> String {
    format!("genesis.{what}.{dtype}.{}", e.lanes(ty))
}

/// `a - trunc(a / b) b`, exact, with the sign of `a`; of f32 or f64.
///
/// While the quotient is a number that the dtype holds with its neighbors, the division rounds to it or to
/// the next one, and a fused multiply-add leaves the rest, or what that lacks, without rounding.
pub(super) fn remainder(e: &Emitter, target: Target, dtype: DType, a: Val, b: Val) -> Val {
    let ty = e.type_of(a);
    let function = e.helper(&name_of(e, "rem", dtype, ty), ty, &[ty, ty], |function| {
        let [a, b] = [0, 1].map(|i| e.param(function, i));
        let fabs = |x| e.intrinsic("llvm.fabs", &[ty], &[x]);
        let (x, y) = (fabs(a), fabs(b));
        let quotient = e.intrinsic("llvm.trunc", &[ty], &[e.fdiv(x, y)]);
        let rest = e.intrinsic("llvm.fma", &[ty], &[e.fneg(quotient), y, x]);
        let is_over = e.fcmp(FloatPred::Olt, rest, e.zero(ty));
        let rest = e.select(is_over, e.fadd(rest, y), rest);
        let is_less = e.fcmp(FloatPred::Olt, x, y);
        let near = e.select(is_less, x, rest);
        let near = e.intrinsic("llvm.copysign", &[ty], &[near, a]);
        let exact = 2f64.powi(Format::of(dtype).fraction as i32 + 1);
        let is_small = e.fcmp(FloatPred::Olt, quotient, e.float(ty, exact));
        let is_near = e.or(is_less, is_small);
        let is_far = any(e, e.not(is_near));
        rarely(e, is_far, near, || match target {
            // The host's C library divides digit by digit.
            Target::Host => e.frem(a, b),
            Target::Nvptx => long_remainder(e, dtype, a, b),
        })
    });
    e.call(function, &[a, b])
}

/// The remainder by long division of the significands, as many digits at once as fit; of scalars.
fn long_remainder(e: &Emitter, dtype: DType, a: Val, b: Val) -> Val {
    let format = Format::of(dtype);
    let (ty, word, own) = (e.type_of(a), e.i64(), e.int_ty(format.bits));
    let int = |value: i64| e.int(word, value);
    let one = 1i64 << format.fraction;
    let digits = |x: Val| {
        let bits = e.bitcast(x, own);
        let bits = if format.bits == 64 { bits } else { e.zext(bits, word) };
        let fraction = e.and(bits, int(one - 1));
        let exponent = e.lshr(bits, int(format.fraction.into()));
        let exponent = e.and(exponent, int((1 << (format.bits - 1 - format.fraction)) - 1));
        let is_subnormal = e.icmp(IntPred::Eq, exponent, int(0));
        let m = e.select(is_subnormal, fraction, e.or(fraction, int(one)));
        (m, e.select(is_subnormal, int(1), exponent))
    };
    let (x, y) = (digits(a), digits(b));
    // Of a divisor of zero the result is not used.
    let divisor = e.select(e.icmp(IntPred::Eq, y.0, int(0)), int(1), y.0);
    let start = e.urem(x.0, divisor);
    let left = e.sub(x.1, y.1);
    let (body, done) = (e.block("digits"), e.block("done"));
    let before = e.current_block();
    e.cond_br(e.icmp(IntPred::Sgt, left, int(0)), body, done);
    e.position(body);
    let rest = e.phi(word, &[(start, before)]);
    let at = e.phi(word, &[(left, before)]);
    let by = e.intrinsic("llvm.smin", &[word], &[at, int(format.room)]);
    let next = e.urem(e.shl(rest, by), divisor);
    let still = e.sub(at, by);
    e.add_incoming(rest, next, body);
    e.add_incoming(at, still, body);
    let back = e.cond_br(e.icmp(IntPred::Sgt, still, int(0)), body, done);
    e.set_no_unroll(back);
    e.position(done);
    let rest = e.phi(word, &[(start, before), (next, body)]);

    // A whole number of the divisor's last digits, as a float.
    let zeros = e.intrinsic("llvm.ctlz", &[word], &[rest, e.bool(false)]);
    let zeros = e.sub(zeros, int(63 - i64::from(format.fraction)));
    let below = e.sub(y.1, int(1));
    let up = e.intrinsic("llvm.umin", &[word], &[zeros, below]);
    let exponent = e.sub(below, up);
    let bits = e.add(e.shl(rest, up), e.shl(exponent, int(format.fraction.into())));
    let bits = e.select(e.icmp(IntPred::Eq, rest, int(0)), int(0), bits);
    let bits = if format.bits == 64 { bits } else { e.trunc(bits, own) };
    let result = e.intrinsic("llvm.copysign", &[ty], &[e.bitcast(bits, ty), a]);

    let size = e.intrinsic("llvm.fabs", &[ty], &[a]);
    let is_finite = e.fcmp(FloatPred::Olt, size, e.float(ty, f64::INFINITY));
    let divides = e.fcmp(FloatPred::One, b, e.zero(ty));
    e.select(e.and(is_finite, divides), result, e.float(ty, f64::NAN))
}

/// A function of an angle.
#[derive(Clone, Copy)]
pub(super) enum Turned {
    Sine,
    Cosine,
    /// The quotient of the two.
    Tangent,
}

/// The function where the argument is beyond [`far::limit`], else zero.
pub(super) fn turned(e: &Emitter, target: Target, dtype: DType, x: Val, of: Turned) -> Val {
    let ty = e.type_of(x);
    let what = match of {
        Turned::Sine => "sin_far",
        Turned::Cosine => "cos_far",
        Turned::Tangent => "tan_far",
    };
    let function = e.helper(&name_of(e, what, dtype, ty), ty, &[ty], |function| {
        let x = e.param(function, 0);
        let size = e.intrinsic("llvm.fabs", &[ty], &[x]);
        let is_far = e.fcmp(FloatPred::Ogt, size, e.float(ty, far::limit(dtype)));
        rarely(e, any(e, is_far), e.zero(ty), || {
            let lane = |i| {
                let x = e.extract(x, i);
                let sine = |quarters| match target {
                    Target::Host => e.call(long_sine(e, dtype, quarters), &[x]),
                    Target::Nvptx => long_sine_of(e, dtype, x, quarters),
                };
                match of {
                    Turned::Sine => sine(0),
                    Turned::Cosine => sine(1),
                    Turned::Tangent => e.fdiv(sine(0), sine(1)),
                }
            };
            let lanes = (0..e.lanes(ty)).map(|i| {
                // A branch each, so that registers are needed for one at a time.
                rarely(e, e.extract(is_far, i), e.zero(e.element_ty(ty)), || lane(i))
            });
            let lanes: Vec<Val> = lanes.collect();
            e.build_vec(&lanes)
        })
    });
    e.call(function, &[x])
}

/// The sine after as many more quarter turns: one function for all lanes.
fn long_sine(e: &Emitter, dtype: DType, quarters: u64) -> Function {
    let ty = e.register_ty(dtype);
    let what = if quarters == 0 { "sin_long" } else { "cos_long" };
    e.routine(&name_of(e, what, dtype, ty), ty, &[ty], |function| {
        long_sine_of(e, dtype, e.param(function, 0), quarters)
    })
}

fn long_sine_of(e: &Emitter, dtype: DType, x: Val, quarters: u64) -> Val {
    let wide = if dtype == DType::F64 { x } else { e.fpext(x, e.f64()) };
    let value = far::sine(e, wide, quarters);
    if dtype == DType::F64 { value } else { e.fptrunc(value, e.type_of(x)) }
}

/// Whether one of the lanes is true.
fn any(e: &Emitter, lanes: Val) -> Val {
    let ty = e.type_of(lanes);
    if e.lanes(ty) == 1 {
        return lanes;
    }
    e.intrinsic("llvm.vector.reduce.or", &[ty], &[lanes])
}

/// What `long` gives where the condition holds, which is seldom.
fn rarely(e: &Emitter, cond: Val, usual: Val, long: impl FnOnce() -> Val) -> Val {
    let (rare, done): (Block, Block) = (e.block("rare"), e.block("usual"));
    let before = e.current_block();
    let cond = e.intrinsic("llvm.expect", &[e.i1()], &[cond, e.bool(false)]);
    e.cond_br(cond, rare, done);
    e.position(rare);
    let value = long();
    let from = e.current_block();
    e.br(done);
    e.position(done);
    e.phi(e.type_of(usual), &[(usual, before), (value, from)])
}

impl Steps for Emitter {
    type Word = Val;
    type Float = Val;
    type Cond = Val;

    fn word(&self, value: u64) -> Val {
        self.int(self.i64(), value as i64)
    }
    fn float(&self, value: f64) -> Val {
        Emitter::float(self, self.f64(), value)
    }
    fn add(&self, a: Val, b: Val) -> Val {
        Emitter::add(self, a, b)
    }
    fn sub(&self, a: Val, b: Val) -> Val {
        Emitter::sub(self, a, b)
    }
    fn mul(&self, a: Val, b: Val) -> Val {
        Emitter::mul(self, a, b)
    }
    fn mul_hi(&self, a: Val, b: Val) -> Val {
        mul_hi(self, false, a, b)
    }
    fn and(&self, a: Val, b: Val) -> Val {
        Emitter::and(self, a, b)
    }
    fn or(&self, a: Val, b: Val) -> Val {
        Emitter::or(self, a, b)
    }
    fn xor(&self, a: Val, b: Val) -> Val {
        Emitter::xor(self, a, b)
    }
    fn shl(&self, a: Val, by: Val) -> Val {
        Emitter::shl(self, a, Emitter::and(self, by, self.word(63)))
    }
    fn shr(&self, a: Val, by: Val) -> Val {
        self.lshr(a, Emitter::and(self, by, self.word(63)))
    }
    fn leading_zeros(&self, a: Val) -> Val {
        self.intrinsic("llvm.ctlz", &[self.i64()], &[a, self.bool(false)])
    }
    fn less(&self, a: Val, b: Val) -> Val {
        self.icmp(IntPred::Ult, a, b)
    }
    fn choose(&self, cond: Val, a: Val, b: Val) -> Val {
        self.select(cond, a, b)
    }
    fn rounded(&self, a: Val) -> Val {
        self.uitofp(a, self.f64())
    }
    fn of_bits(&self, a: Val) -> Val {
        self.bitcast(a, self.f64())
    }
    fn bits(&self, a: Val) -> Val {
        self.bitcast(a, self.i64())
    }
    fn times(&self, a: Val, b: Val) -> Val {
        self.fmul(a, b)
    }
    fn fma(&self, a: Val, b: Val, c: Val) -> Val {
        self.intrinsic("llvm.fma", &[self.f64()], &[a, b, c])
    }
}

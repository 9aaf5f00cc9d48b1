//! `erf`: an odd polynomial to 1, then `1 - 2^-Q` with a polynomial for the logarithm of the rest.

use super::Math;
use super::exp::exp2_normal;
use crate::ir::{Predicate, Value};
use std::f64::consts::FRAC_2_SQRT_PI;

/// `erf x = x P(x^2)` for `|x| <= 1`: 2^-24.2 and 2^-56.
const NEAR_F32: &[f64] = &[
    1.128379107e+00,
    -3.761229515e-01,
    1.128000990e-01,
    -2.670747787e-02,
    4.913758952e-03,
    -5.617740098e-04,
];
const NEAR_F64: &[f64] = &[
    FRAC_2_SQRT_PI,
    -0.37612638903183593,
    0.1128379167095017,
    -0.02686617064441295,
    0.005223977619567217,
    -0.0008548326723725199,
    0.00012055322877606622,
    -1.4925417860838408e-05,
    1.6458409753664854e-06,
    -1.6325019841344415e-07,
    1.4501697123814546e-08,
    -1.080100150910447e-09,
    5.046563198585206e-11,
];

/// `erf x = 1 - 2^-Q(x)` from 1 to 4, where it is 1 as f32: 2^-34.
const FAR_F32: &[f64] = &[
    -2.733232977e-04,
    1.629646301e+00,
    9.135260582e-01,
    1.564325392e-01,
    -3.637846559e-02,
    6.069688592e-03,
    -6.374491495e-04,
    3.134753933e-05,
];
/// `erf x = 1 - 2^-Q(x - 1)` from 1 to 6, where it is 1 as f64: 2^-57.
const FAR_F64: &[f64] = &[
    2.6684166967815997,
    3.8072253458535985,
    1.2163466576863555,
    0.05995999003570159,
    -0.014475750080571873,
    0.0028535100661820803,
    -0.00034238336118532533,
    -3.791256679965952e-05,
    3.918539072738509e-05,
    -1.3867044402697544e-05,
    2.9761741995371795e-06,
    -2.097130020606309e-07,
    -1.386111745909045e-07,
    7.414292711038188e-08,
    -2.121321621907664e-08,
    4.063763406897889e-09,
    -5.208783390083145e-10,
    4.062265915535567e-11,
    -1.4598611341632134e-12,
];

pub(super) fn erf(m: &mut Math<'_, '_>, x: Value) -> Value {
    let magnitude = m.abs(x);
    let bounded = m.at_most(magnitude, m.pick(4.0, 6.0));
    let q = if m.is_f32() {
        m.poly(bounded, FAR_F32)
    } else {
        let one = m.c(1.0);
        let u = m.sub(bounded, one);
        m.poly(u, FAR_F64)
    };
    let minus = m.neg(q);
    let rest = exp2_normal(m, minus);
    let one = m.c(1.0);
    let far = m.sub(one, rest);
    let far = m.copy_sign(far, x);

    let t = m.mul(x, x);
    let p = m.poly(t, m.pick(NEAR_F32, NEAR_F64));
    let near = m.mul(x, p);
    let is_near = m.compare(Predicate::Lt, magnitude, 1.0);
    m.select(is_near, near, far)
}

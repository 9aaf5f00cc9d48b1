//! Every function and method of the language, typed by rustc and built by the front end: the two
//! must agree about what is well formed.

use crate::front::Hints;
use crate::prelude::*;

const WIDTH: usize = 4;
const HALF: f32 = 0.5;

#[device]
fn add_up<T: Number>(a: T, b: T) -> T {
    a + b
}

#[device]
fn square<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    x * x
}

#[device]
fn scale<T: Float>(x: T, by: f32) -> T {
    let factor = T::from(by);
    return x * factor;
}

#[device]
fn mean<T: Float, const N: usize>(x: Tile1<T, N>) -> T::Acc {
    let total: T::Acc = sum(x.to::<T::Acc>(), 0);
    total / T::Acc::from(N as f32)
}

/// The two halves of a line.
#[device]
fn halves<T: Number, const N: usize>(x: Tile1<T, N>) -> (Tile1<T, { N / 2 }>, Tile1<T, { N / 2 }>) {
    let (a, b) = split(x.reshape::<2, { N / 2 }>().trans());
    (a, b)
}

#[device]
fn add_halves<const N: usize>(x: Tile1<f32, N>, y: Tile1<f32, { N / 2 }>) -> Tile1<f32, { N / 2 }> {
    let (a, b) = halves(x);
    a + b + y
}

#[kernel]
fn sums<T: Float, const N: usize>(x: View<T, 1>, out: ViewMut<T::Acc, 1>, by: T::Acc) {
    let v = x.load::<N>([0]);
    let least: T::Acc = 0.5;
    let (a, b) = halves::<_, N, { N / 2 }>(v.to::<T::Acc>());
    let both: Tile1<T::Acc, { N / 2 }> = add_up(sum(a, 0), T::Acc::ONE) + b * mean(v) * by;
    out.store([0], maximum(both, least));
    let c = add_halves(v.to::<f32>(), zeros::<f32, { N / 2 }>());
    out.store([0], c.to::<T::Acc>());
}

#[kernel]
fn making<const M: usize, const N: usize>(out: PtrMut<f32>, ids: PtrMut<i64>) {
    let i = arange::<M>();
    let a = zeros::<f32, M, N>() + ones::<f32, M, N>() * full::<f32, M, N>(2.0);
    let b = full::<f32, M, 1>(HALF) + full_like(zeros_like(a), 3);
    let at = i.col() * N + arange::<N>().row();
    store(out + at, broadcast_to::<M, N>(b + 0.0 * a));
    store(ids + i, full::<i64, M>(num_programs(1) + program_id(2) + WIDTH));
}

#[kernel]
fn shapes<const M: usize, const N: usize>(x: View<f32, 2>, out: ViewMut<f32, 2>) {
    let a = x.load_once::<M, N>([0, 0]);
    let part = out.subview([1, 0], [2, 2]).subview([0, 0], [2, 2], [2, 1]);
    part.store([0, 0], a, a > 0.0);
    part.store_once([0, 0], 1.0, true);
    out.store_kept([0, 0], x.load_kept::<M, N>([0, 0]) + out.load_once::<M, N>([1, 0]));
    let b = expand_dims(a, 0).squeeze(0).expand_dims(2).squeeze(2);
    let c = trans(b).trans();
    let d = permute(c, [1, 0]).permute([1, 0]);
    let e = d.reshape::<N, M>().reshape::<M, N>();
    let f = reshape::<M, N>(squeeze(expand_dims(e, 1), 1));
    let (g, h) = split(join(f, f));
    let k = sum(g, 1).col().broadcast_to::<M, N>() + sum(h, 0).row();
    let bits = bitcast::<f32>(bitcast::<i32>(k));
    out.store([0, 0], cast::<f32>(bits.to::<f64>()));
}

#[kernel]
fn memory<T: Number, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i64, sums: PtrMut<i32>) {
    let i = multiple_of(program_id(0) * N, 16) + arange::<N>();
    let mask = (i < n) & !(i == 3) | (i >= n - 1);
    let v = load(x + i, mask, 1);
    store(out + i, v + load(out + i, mask, T::ONE) + load(x) * T::MAX, mask);
    store(out, T::MIN);
    store_once(out + i, load_once(x + i, mask) + load_kept(x + i, mask, 2) * load_once(x));
    store_kept(out + i, load_kept(x), mask);
    let old = atomic_add(sums + i, 1, mask) + atomic_max(sums + i, 2) + atomic_min(sums + i, 3);
    let bits = atomic_and(sums, 7) | atomic_or(sums, 1) ^ atomic_xor(sums, 3);
    atomic_xchg(sums + i, old);
    atomic_add::<Relaxed>(sums, 1);
    atomic_xchg::<AcqRel, Block>(sums, bits, n > 0);
    atomic_cas::<System>(sums, 0, bits);
    atomic_cas(sums + i, old, 3, mask);
    view_of(out, [n, 2], [2, 1]).store([0, 0], T::ONE);
    store(out - 1 + n, T::ZERO);
}

#[kernel]
fn reductions<const M: usize, const N: usize>(
    x: View<f32, 2>,
    out: ViewMut<f32, 1>,
    at: PtrMut<i64>,
) {
    let v = x.load::<M, N>([0, 0]);
    let a = sum(v, 1) + prod(v, 1) + max(v, 1) + min(v, 1) + max_num(v, 1) + min_num(v, 1);
    let b = max(argmax(v, 1) + argmin(v, 1), 0);
    let c = reduce(v, 1, add_up) + sum(associative_scan(v, 0, add_up), 1);
    let d = sum(cumsum(v, 1) + cumsum(v, 1, true) + cumprod(v, 0), 1);
    let e = associative_scan(v, 1, add_up, true);
    if any(a > 0.0, 0) && !all(c > 0.0, 0) || xor_sum(argmax(e, 0), 0) == 0 {
        store(at, b);
    }
    let best = gather(v, argmax(v, 1).col(), 1).squeeze(1);
    let best = best + element(v, [program_id(0), 1]) * element(best, [0]);
    let v = scatter(v, argsort(v, 1), 1);
    let first = gather(v, arange::<3>().row().to::<u8>().broadcast_to::<M, 3>(), 1);
    out.store([0], a + c + d + best + sum(first, 1) + sum(softmax(v, 1), 1));
}

#[kernel]
fn math<const N: usize>(x: View<f32, 1>, out: ViewMut<f32, 1>, k: i64) {
    let v = x.load::<N>([0]);
    let a = exp(v) + exp2(v) + log(v) + log2(v) + sqrt(v) + rsqrt(v) + sin(v) + cos(v) + tanh(v);
    let b = erf(a)
        + sigmoid(a)
        + fast::exp(a)
        + fast::exp2(a)
        + fast::recip(a)
        + fast::sqrt(a)
        + fast::log2(a)
        + fast::demanded(a, v)
        + log1p(a)
        + abs(a)
        + floor(a)
        + ceil(a)
        + round(a)
        + trunc(a);
    let c = fma(a, b, 1.0) + minimum(a, 0.0) + maximum(1.0, b) + minimum_num(a, b);
    let d = maximum_num(c, 2) + clamp(c, 0.0, 6.0) - v % 3.0;
    let e = where_(is_nan(d) | is_inf(d), 0.0, d) + where_(is_finite(v), v, -1.0);
    let n = umulhi(cdiv(k, 3) << 2 >> 1, 5) & 255 | ffs(k) ^ brev(k);
    let e = where_(signbit(e), ldexp(e, 2), ldexp(v, arange::<N>())) + ldexp(2.0_f32, n);
    let f = where_(k > 3, e, n as f32) + square(v) + scale(2.5_f32, 0.5);
    let g = inline_asm!("add.f32 $0, $1, $2;", "=f,f,f", f, a, f + a) * 0.0;
    let f = f + g + erfcx(f) + erfcinv(f) + normcdf(f) + normcdfinv(f);
    let f =
        f + bessel_j0(f) + bessel_j1(f) + bessel_y0(f) + bessel_y1(f) + bessel_i0(f) + bessel_i1(f);
    out.store([0], -f / (f + 1.0) + exp(1.0_f32) + f32::EPSILON + f32::MIN_POSITIVE * PI);
}

#[kernel]
fn control<const N: usize>(x: View<f32, 1>, out: ViewMut<f32, 1>, n: i64, flag: bool) {
    static_assert!(N % 4 == 0, "N must be a multiple of 4");
    let mut acc = zeros::<f32, N>();
    let (mut steps, mut left) = (0_i64, n);
    for i in range(0, n, N).stages(3).unroll(2) {
        acc += x.load::<N>([i]);
        steps += 1;
    }
    for i in 0..4 {
        acc = acc + i as f32;
    }
    for i in static_range(0, WIDTH, 2) {
        acc *= i as f32;
    }
    while left > 0 && !flag {
        left = left / 2;
        if left == 7 {
            acc = acc * 2.0;
        } else if left == 3 {
            acc = acc - 1.0;
        } else {
            (steps, left) = (steps + 1, left - 1);
        }
    }
    if steps > 100 {
        return;
    }
    let bias = if flag { 1.0 } else { steps as f32 };
    device_assert!(acc < 1e30, "too large");
    device_print!("steps = {}, acc = {}", steps, acc);
    out.store(
        [0],
        acc + {
            let twice = bias * 2.0;
            twice
        },
    );
}

#[kernel]
fn random<const N: usize>(out: ViewMut<f32, 1>, seed: u64) {
    for tile in persistent(10) {
        let (i, j) = grouped(tile, 5, 2, 8);
        let at = (i * 2 + j) * N + arange::<N>();
        let bits = randint(seed, at).to::<f32>() + randint(7, at, 0, 10).to::<f32>();
        let (a, b, c, d) = randint4x(seed, at);
        let bits = bits + (a ^ b ^ c ^ d).to::<f32>();
        out.store([tile * N], rand(seed, at) + randn(seed, at) + bits);
    }
}

#[kernel]
fn products<T: Float, const M: usize, const N: usize>(x: View<T, 2>, out: ViewMut<f32, 2>) {
    let a = x.load::<M, N>([0, 0]);
    let b = load(x.ptr()).to::<f32>() + x.stride(0) as f32 + x.dim(1) as f32;
    let c = dot(a, a.trans()) + dot(a, a.trans(), zeros::<f32, M, M>());
    let one: T = 1.0;
    let d = dot_tf32((a * one).to::<f32>(), a.to::<f32>().trans());
    let e = dot_tf32x3(a.to::<f32>(), a.to::<f32>().trans(), d);
    out.store([0, 0], (c + e) * b * T::from(2).to::<f32>());
}

#[test]
fn the_front_end_builds_what_rustc_accepts() -> Result<(), Error> {
    let hints = Hints::default();
    making::specialize(making::Consts { M: 8, N: 16 }, &hints)?;
    shapes::specialize(shapes::Consts { M: 8, N: 16 }, &hints)?;
    memory::specialize::<f32>(memory::Consts { N: 16 }, &hints)?;
    memory::specialize::<i32>(memory::Consts { N: 16 }, &hints)?;
    memory::specialize::<bf16>(memory::Consts { N: 16 }, &hints)?;
    reductions::specialize(reductions::Consts { M: 8, N: 16 }, &hints)?;
    math::specialize(math::Consts { N: 16 }, &hints)?;
    control::specialize(control::Consts { N: 16 }, &hints)?;
    random::specialize(random::Consts { N: 16 }, &hints)?;
    for (text, acc) in [
        (sums::specialize::<f16>(sums::Consts { N: 16 }, &hints)?.tir(), "f32"),
        (sums::specialize::<f64>(sums::Consts { N: 16 }, &hints)?.tir(), "f64"),
    ] {
        assert!(text.contains(&format!("%out: view<{acc},1>")), "{text}");
    }
    products::specialize::<f32>(products::Consts { M: 16, N: 32 }, &hints)?;
    products::specialize::<f16>(products::Consts { M: 16, N: 32 }, &hints)?;
    Ok(())
}

//! Attention of packed sequences beside that of each sequence alone, and the logarithms of sums.

use genesis::autograd::{BackwardOptions, GradCheck, gradcheck, gradgradcheck};
use genesis::ops::{Attention, AttentionBackend, Varlen};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// Lengths of queries and keys, some of which are 0.
const LENGTHS: ([usize; 5], [usize; 5]) = ([5, 0, 40, 1, 33], [7, 3, 40, 0, 20]);

/// Rows after the last sequence.
const REST: usize = 3;

fn ends(lengths: &[usize], on: Device) -> Result<Tensor> {
    let mut all = vec![0.0];
    lengths.iter().for_each(|&len| all.push(all[all.len() - 1] + len as f64));
    Tensor::from_f64(&all, &[all.len()], (DType::I32, on))
}

fn total(lengths: &[usize]) -> usize {
    lengths.iter().sum::<usize>() + REST
}

/// Queries, keys, values and the gradient of the result.
struct Inputs([Tensor; 4]);

impl Inputs {
    fn new(heads: [usize; 2], d: usize, dtype: DType) -> Result<Inputs> {
        let random = Generator::new(17);
        let (m, n) = (total(&LENGTHS.0), total(&LENGTHS.1));
        let draw = |len, h| random.randn(&[len, h, d], Device::Cpu)?.to_dtype(dtype);
        let [h, g] = heads;
        Ok(Inputs([draw(m, h)?, draw(n, g)?, draw(n, g)?, draw(m, h)?]))
    }

    fn at(&self, dtype: DType, on: Device) -> Result<[Tensor; 4]> {
        let [q, k, v, dy] = self.0.each_ref().map(|t| t.to_dtype(dtype)?.to_device(on));
        let own = |t: Result<Tensor>| t?.detach().requires_grad_(true);
        Ok([own(q)?, own(k)?, own(v)?, dy?])
    }

    /// Result, gradients and logarithms by one call.
    fn packed(&self, dtype: DType, on: Device, options: &Attention) -> Result<Vec<Vec<f64>>> {
        let [q, k, v, dy] = self.at(dtype, on)?;
        let (ends_q, ends_k) = (&ends(&LENGTHS.0, on)?, &ends(&LENGTHS.1, on)?);
        let lengths = Varlen {
            cu_seqlens_q: ends_q,
            cu_seqlens_k: ends_k,
            max_seqlen_q: 40,
            max_seqlen_k: 40,
        };
        let (y, lse) = q.varlen_attn_with_lse(&k, &v, &lengths, options)?;
        y.backward_with(Some(&dy), BackwardOptions::default())?;
        let grads = [&q, &k, &v].map(|t| t.grad().expect("all want a gradient").to_f64_vec());
        [y.detach().to_f64_vec(), lse.t()?.to_f64_vec()].into_iter().chain(grads).collect()
    }

    /// The same, a sequence at a time by the definition in f64.
    fn alone(&self, options: &Attention) -> Result<Vec<Vec<f64>>> {
        let inputs = self.at(DType::F64, Device::Cpu)?;
        let (heads, d) = (inputs[0].shape()[1], inputs[0].shape()[2]);
        let mut y = vec![0.0; total(&LENGTHS.0) * heads * d];
        let mut lse = vec![0.0; total(&LENGTHS.0) * heads];
        let (mut row, mut key) = (0, 0);
        for (&m, &n) in LENGTHS.0.iter().zip(&LENGTHS.1) {
            let part = |t: &Tensor, first, len| t.narrow(0, first, len)?.transpose(0, 1);
            let [q, k, v, dy] = &inputs;
            let (q, k, v) = (part(q, row, m)?, part(k, key, n)?, part(v, key, n)?);
            let (k, v) = (
                k.repeat_interleave(heads / k.shape()[0], 0)?,
                v.repeat_interleave(heads / v.shape()[0], 0)?,
            );
            if m * n > 0 {
                let (out, sums) = definition(&q, &k, &v, options)?;
                out.backward_with(Some(&part(dy, row, m)?), BackwardOptions::default())?;
                let out = out.detach().transpose(0, 1)?.to_f64_vec()?;
                y[row * heads * d..][..out.len()].copy_from_slice(&out);
                lse[row * heads..][..m * heads].copy_from_slice(&sums.t()?.to_f64_vec()?);
            } else {
                lse[row * heads..][..m * heads].fill(f64::NEG_INFINITY);
            }
            (row, key) = (row + m, key + n);
        }
        let grads = inputs[..3].iter().map(|t| t.grad().expect("all want one").to_f64_vec());
        Ok([y, lse].into_iter().chain(grads.collect::<Result<Vec<_>>>()?).collect())
    }
}

/// Attention whose last query stands where the last key does, and the logarithms.
fn definition(q: &Tensor, k: &Tensor, v: &Tensor, options: &Attention) -> Result<(Tensor, Tensor)> {
    let (m, n) = (q.shape()[1] as i64, k.shape()[1] as i64);
    let scale = 1.0 / (q.shape()[2] as f64).sqrt();
    let scores = q.matmul(&k.t()?)?.mul_scalar(scale)?;
    let ones = Tensor::ones(&[m as usize, n as usize], (DType::F64, Device::Cpu))?;
    let (left, right) = options.window.map_or((100, 100), |(l, r)| (l as i64, r as i64));
    let right = if options.is_causal { 0 } else { right };
    let seen = ones.tril(n - m + right)?.triu(n - m - left)?.to_bool()?;
    let never = Tensor::full(&[], f64::NEG_INFINITY, (DType::F64, Device::Cpu))?;
    let scores = seen.where_(&scores, &never)?;
    let none = seen.logical_not()?.all_dims_true(&[-1], true)?;
    let weights = scores.softmax(-1)?.masked_fill(&none, 0.0)?;
    Ok((weights.matmul(v)?, scores.detach().logsumexp(&[-1], false)?))
}

fn options() -> [Attention; 3] {
    let usual = Attention::default();
    [
        usual.clone(),
        Attention { is_causal: true, ..usual.clone() },
        Attention { window: Some((6, 2)), ..usual },
    ]
}

#[track_caller]
fn compare(what: &str, ours: &[Vec<f64>], theirs: &[Vec<f64>], within: f64) {
    for (name, (a, b)) in ["y", "lse", "dq", "dk", "dv"].iter().zip(ours.iter().zip(theirs)) {
        assert_eq!(a.len(), b.len(), "{what}: {name}");
        let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= within * (1.0 + b.abs());
        if let Some(i) = a.iter().zip(b).position(|pair| !close(pair)) {
            panic!("{what}: {name}[{i}] is {}, not {}", a[i], b[i]);
        }
    }
}

#[test]
fn packed_sequences_are_as_each_alone() -> Result<()> {
    use AttentionBackend::{Composed, Flash};
    for on in devices("packed attention") {
        for (heads, d, dtype, within) in
            [([4, 2], 24, DType::F32, 1e-4), ([2, 2], 64, DType::BF16, 0.06)]
        {
            let inputs = Inputs::new(heads, d, dtype)?;
            for options in options() {
                let theirs = inputs.alone(&options)?;
                for backend in [Flash, Composed] {
                    let options = Attention { backend, ..options.clone() };
                    let what = format!("{on} {dtype} {options:?}");
                    compare(&what, &inputs.packed(dtype, on, &options)?, &theirs, within);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rows_of_no_sequence_are_zero() -> Result<()> {
    for on in devices("packed attention beside nothing") {
        let inputs = Inputs::new([2, 1], 16, DType::F32)?;
        let options = Attention { backend: AttentionBackend::Flash, ..Attention::default() };
        let all = inputs.packed(DType::F32, on, &options)?;
        for (of, heads) in [(&all[0], 2), (&all[2], 2), (&all[3], 1), (&all[4], 1)] {
            assert!(of[of.len() - REST * heads * 16..].iter().all(|&x| x == 0.0));
            assert!(of.iter().all(|x| x.is_finite()));
        }
    }
    Ok(())
}

#[test]
fn lengths_out_of_bounds_touch_nothing_else() -> Result<()> {
    for on in devices("packed attention of wrong lengths") {
        let x = Generator::new(4).randn(&[10, 1, 16], Device::Cpu)?.to_device(on)?;
        let wrong = Tensor::from_f64(&[-5.0, 4.0, 400.0], &[3], (DType::I32, on))?;
        let lengths = Varlen {
            cu_seqlens_q: &wrong,
            cu_seqlens_k: &wrong,
            max_seqlen_q: 900,
            max_seqlen_k: 900,
        };
        let options = Attention { backend: AttentionBackend::Flash, ..Attention::default() };
        let y = x.varlen_attn(&x, &x, &lengths, &options)?;
        let right = Tensor::from_f64(&[0.0, 4.0, 10.0], &[3], (DType::I32, on))?;
        let lengths = Varlen { cu_seqlens_q: &right, cu_seqlens_k: &right, ..lengths };
        assert_eq!(y.to_f64_vec()?, x.varlen_attn(&x, &x, &lengths, &options)?.to_f64_vec()?);
    }
    Ok(())
}

#[test]
fn derivatives_of_packed_sequences_agree_with_differences() -> Result<()> {
    let random = Generator::new(2);
    let draw = |n: usize, h: usize| {
        random.randn(&[n, h, 4], (DType::F64, Device::Cpu))?.requires_grad_(true)
    };
    let (q, k, v) = (draw(5, 2)?, draw(6, 1)?, draw(6, 1)?);
    let ends = |at: &[f64]| Tensor::from_f64(at, &[at.len()], (DType::I64, Device::Cpu));
    let (ends_q, ends_k) = (ends(&[0.0, 2.0, 5.0])?, ends(&[0.0, 3.0, 6.0])?);
    let lengths =
        Varlen { cu_seqlens_q: &ends_q, cu_seqlens_k: &ends_k, max_seqlen_q: 3, max_seqlen_k: 3 };
    let options =
        Attention { is_causal: true, backend: AttentionBackend::Flash, ..Attention::default() };
    let f = |x: &[Tensor]| Ok(vec![x[0].varlen_attn(&x[1], &x[2], &lengths, &options)?]);
    gradcheck(f, &[&q, &k, &v], GradCheck::default())?;
    gradgradcheck(f, &[&q, &k, &v], GradCheck::default())
}

#[test]
fn dropped_weights_of_packed_sequences_are_drawn_again() -> Result<()> {
    // With one key and one value of 1, a result is its weight, and so are gradients of values.
    let lengths = [4, 9, 3];
    for on in devices("packed attention with dropout") {
        let rows = lengths.iter().sum::<usize>();
        let q = Generator::new(6).randn(&[rows, 2, 16], Device::Cpu)?.to_device(on)?;
        let ones = Tensor::ones(&[3, 2, 16], on)?.requires_grad_(true)?;
        let (ends_q, ends_k) = (ends(&lengths, on)?, ends(&[1, 1, 1], on)?);
        let lengths = Varlen {
            cu_seqlens_q: &ends_q,
            cu_seqlens_k: &ends_k,
            max_seqlen_q: 9,
            max_seqlen_k: 1,
        };
        let options =
            Attention { dropout: 0.5, backend: AttentionBackend::Flash, ..Attention::default() };
        let y = q.varlen_attn(&ones.detach(), &ones, &lengths, &options)?;
        y.backward_with(Some(&Tensor::ones(&[rows, 2, 16], on)?), BackwardOptions::default())?;
        let y = y.detach().to_f64_vec()?;
        let kept = y.iter().filter(|&&x| (x - 2.0).abs() < 1e-5).count();
        let dropped = y.iter().filter(|&&x| x == 0.0).count();
        assert!(kept + dropped == y.len() && kept > 0 && dropped > 0, "{y:?}");
        let sums = ones.grad().expect("it was asked for").sum()?.item()?;
        assert!((sums - 2.0 * kept as f64).abs() < 1e-3, "{sums}");
    }
    Ok(())
}

#[test]
fn logarithms_are_those_of_both_forms() -> Result<()> {
    for on in devices("attention with logarithms") {
        let random = Generator::new(8);
        let draw = |n: usize| random.randn(&[2, 3, n, 16], Device::Cpu)?.to_device(on);
        let (q, k) = (draw(9)?, draw(21)?);
        // The first queries see nothing.
        let mask = Tensor::ones(&[9, 21], (DType::Bool, on))?.tril(-2)?;
        for mask in [None, Some(mask)] {
            let run = |backend| {
                let options = Attention { mask: mask.clone(), backend, ..Attention::default() };
                q.attention_with_lse(&k, &k, &options)
            };
            let (flash, composed) =
                (run(AttentionBackend::Flash)?, run(AttentionBackend::Composed)?);
            assert_eq!(flash.1.shape(), [2, 3, 9]);
            let nothing = mask.is_some();
            let lists = |(y, lse): (Tensor, Tensor)| -> Result<Vec<Vec<f64>>> {
                let lse = lse.to_f64_vec()?;
                assert_eq!(lse[0] == f64::NEG_INFINITY, nothing);
                Ok(vec![y.to_f64_vec()?, lse])
            };
            compare(&format!("{on}"), &lists(flash)?, &lists(composed)?, 1e-4);
        }
    }
    Ok(())
}

#[test]
fn packed_sequences_are_refused_with_a_reason() -> Result<()> {
    let x = Tensor::zeros(&[6, 2, 8], Device::Cpu)?;
    let (two, one) = (ends(&[2, 4], Device::Cpu)?, ends(&[6], Device::Cpu)?);
    let refused = |ends_k: &Tensor, options: &Attention| {
        let lengths =
            Varlen { cu_seqlens_q: &two, cu_seqlens_k: ends_k, max_seqlen_q: 4, max_seqlen_k: 4 };
        x.varlen_attn(&x, &x, &lengths, options).unwrap_err().to_string()
    };
    let usual = Attention::default();
    let text = "scaled_dot_product_attention: cu_seqlens have 3 and 2 numbers, not one more than sequences";
    assert_eq!(refused(&one, &usual), text);
    let masked = Attention { mask: Some(Tensor::zeros(&[6, 6], Device::Cpu)?), ..usual };
    let text = "scaled_dot_product_attention: packed sequences take no mask";
    assert_eq!(refused(&two, &masked), text);
    Ok(())
}

/// Up to 128 sequences are put in order of their lengths, more stay as they are: both give the same.
#[test]
fn many_sequences_give_what_few_of_them_give() -> Result<()> {
    for on in devices("packed attention of many sequences") {
        let lengths: Vec<usize> = (0..200).map(|i| [3, 70, 0, 1, 33][i % 5]).collect();
        let random = Generator::new(23);
        let draw = |n| random.randn(&[n, 2, 16], Device::Cpu)?.to_device(on);
        let run = |x: &Tensor, lengths: &[usize]| -> Result<[Vec<f64>; 2]> {
            let x = x.detach().requires_grad_(true)?;
            let ends = &ends(lengths, on)?;
            let lengths = Varlen {
                cu_seqlens_q: ends,
                cu_seqlens_k: ends,
                max_seqlen_q: 70,
                max_seqlen_k: 70,
            };
            let usual = Attention { backend: AttentionBackend::Flash, ..Attention::default() };
            let options = Attention { is_causal: true, ..usual };
            let y = x.varlen_attn(&x, &x, &lengths, &options)?;
            y.sum()?.backward()?;
            let dx = x.grad().expect("it wants one").to_f64_vec()?;
            Ok([y.detach().to_f64_vec()?, dx])
        };
        let rows: usize = lengths.iter().sum();
        let x = draw(rows)?;
        let all = run(&x, &lengths)?;
        let mut first = 0;
        for few in lengths.chunks(50) {
            let len: usize = few.iter().sum();
            let part = run(&x.narrow(0, first, len)?.copy()?, few)?;
            for (all, part) in all.iter().zip(&part) {
                let of_these = &all[first * 32..][..part.len()];
                let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
                assert!(of_these.iter().zip(part).all(is_close), "{on} from row {first}");
            }
            first += len;
        }
    }
    Ok(())
}

/// Queries past the longest that was promised give 0, and add nothing to gradients of keys.
#[test]
fn queries_past_the_longest_add_nothing() -> Result<()> {
    for on in devices("packed attention of longer sequences than promised") {
        let random = Generator::new(29);
        let draw = || random.randn(&[130, 2, 16], Device::Cpu)?.to_device(on);
        let (q, k, v, dy) = (draw()?, draw()?, draw()?, draw()?);
        let keys = &ends(&[130], on)?;
        let run = |rows: usize| -> Result<[Vec<f64>; 3]> {
            let part = |t: &Tensor| t.narrow(0, 0, rows)?.copy();
            let [k, v] = [&k, &v].map(|t| t.detach().requires_grad_(true));
            let (k, v) = (k?, v?);
            let lengths = Varlen {
                cu_seqlens_q: &ends(&[rows], on)?,
                cu_seqlens_k: keys,
                max_seqlen_q: 64,
                max_seqlen_k: 130,
            };
            let options = Attention { backend: AttentionBackend::Flash, ..Attention::default() };
            let y = part(&q)?.varlen_attn(&k, &v, &lengths, &options)?;
            y.backward_with(Some(&part(&dy)?), BackwardOptions::default())?;
            let [dk, dv] = [&k, &v].map(|t| t.grad().expect("it wants one").to_f64_vec());
            Ok([y.detach().to_f64_vec()?, dk?, dv?])
        };
        let (ours, theirs) = (run(130)?, run(64)?);
        assert!(ours[0][64 * 32..].iter().all(|&y| y == 0.0), "{on}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
            assert!(ours.iter().zip(theirs).all(is_close), "{on}");
        }
    }
    Ok(())
}

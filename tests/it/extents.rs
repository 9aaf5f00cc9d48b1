//! Extents, counts and steps at the ends of what numbers can say: each call gives what it should or an error,
//! at once, and no tensor reaches beyond its storage.

use std::time::{Duration, Instant};

use genesis::ops::{PadMode, ScaledMatmul, Window};
use genesis::{DType, Device, Error, GridOrder, Index, Result, Tensor};

const HUGE: usize = 1 << 62;

fn numbers(n: usize) -> Result<Tensor> {
    Tensor::arange(0.0, n as f64, 1.0, (DType::F32, Device::Cpu))
}

fn zeros(shape: &[usize]) -> Result<Tensor> {
    Tensor::zeros(shape, (DType::F32, Device::Cpu))
}

#[track_caller]
fn refuses<T>(made: Result<T>, op: &str) {
    match made {
        Ok(_) => panic!("{op} was not refused"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(&format!("{op}: ")), "{text}");
        }
    }
}

#[track_caller]
fn finds_no_memory<T>(made: Result<T>) {
    let text = made.err().map(|error| error.to_string());
    assert!(text.is_some_and(|text| text.starts_with("out of memory: ")));
}

/// Shapes whose products wrap: what they would have named lies in the memory of others.
#[test]
fn shapes_that_wrap_are_refused() -> Result<()> {
    let wraps = [HUGE + 1, 4];
    refuses(Tensor::from_slice_on(&[1f32; 4], &wraps, Device::Cpu), "from_slice");
    refuses(Tensor::from_f64(&[1.0; 4], &wraps, (DType::F32, Device::Cpu)), "from_f64");
    let x = numbers(4)?;
    refuses(x.reshape(&wraps), "reshape");
    refuses(x.view(&[(HUGE + 1) as i64, 4]), "view");
    refuses(x.view(&[(HUGE + 1) as i64, 4, -1]), "view");
    refuses(x.unflatten(0, &[(HUGE + 1) as i64, 4]), "unflatten");
    refuses(x.unflatten(0, &[(HUGE + 1) as i64, -1]), "unflatten");
    refuses(x.broadcast_to(&[HUGE, 4]), "broadcast_to");
    refuses(zeros(&wraps), "empty");
    // Of no elements too: their strides would be no numbers.
    for shape in [&[HUGE, 4, 0][..], &[0, usize::MAX], &[0, HUGE, HUGE]] {
        refuses(zeros(shape), "empty");
        refuses(zeros(&[0])?.reshape(shape), "reshape");
        refuses(Tensor::from_slice_on::<f32>(&[], shape, Device::Cpu), "from_slice");
    }
    assert_eq!(zeros(&[0, HUGE])?.shape(), [0, HUGE]);
    assert_eq!(zeros(&[HUGE, 0])?.reshape(&[0, 7])?.shape(), [0, 7]);
    let which = Tensor::zeros(&[1, 1, 2], (DType::I64, Device::Cpu))?;
    refuses(zeros(&[1, 1, 2])?.max_unpool(&which, &[HUGE * 2]), "max_unpool");
    refuses(zeros(&[1, 0, 2, 2])?.pixel_shuffle(1 << 32), "pixel_shuffle");
    refuses(zeros(&[1, 0, 1, HUGE])?.pixel_shuffle(4), "pixel_shuffle");
    refuses(zeros(&[1, 2, 0, 0])?.pixel_unshuffle(1 << 32), "pixel_unshuffle");
    refuses(zeros(&[2, 0])?.repeat(&[usize::MAX, 2]), "repeat");
    refuses(zeros(&[2])?.repeat_interleave(usize::MAX, 0), "repeat_interleave");
    refuses(zeros(&[2])?.diag_embed(i64::MIN, 0, 1), "diag_embed");
    refuses(zeros(&[2])?.diag_embed(i64::MAX, 0, 1), "diag_embed");
    let wide = zeros(&[1])?.broadcast_to(&[1, HUGE])?;
    refuses(Tensor::cat(&[&wide; 4], 1), "cat");
    refuses(Tensor::block_diag(&[&wide; 4]), "block_diag");
    refuses(wide.split_sizes(&[usize::MAX, HUGE + 1], 1), "split");
    Ok(())
}

/// The call of the report that overwrote four other tensors.
#[test]
fn no_view_reaches_the_memory_of_others() -> Result<()> {
    let others: Vec<Tensor> = (0..4).map(|_| zeros(&[64])).collect::<Result<_>>()?;
    let hostile = || -> Result<()> {
        let x = Tensor::from_slice_on(&[1f32; 4], &[HUGE + 1, 4], Device::Cpu)?;
        x.flip(&[0])?.narrow(0, 0, 64)?.fill_(7777.0)
    };
    refuses(hostile(), "from_slice");
    for other in others {
        assert!(other.to_f64_vec()?.iter().all(|&value| value == 0.0));
    }
    Ok(())
}

#[test]
fn views_at_the_ends_of_numbers() -> Result<()> {
    let x = numbers(12)?.reshape(&[3, 4])?;
    for dim in [i64::MIN, i64::MAX, -3, 2] {
        refuses(x.narrow(dim, 0, 1), "narrow");
        refuses(x.slice(dim, 0..1), "slice");
        refuses(x.unsqueeze(dim.saturating_add(dim.signum())), "unsqueeze");
        refuses(x.flip(&[dim]), "flip");
    }
    refuses(x.slice(0, 0..=usize::MAX), "slice");
    refuses(
        x.slice(0, (std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded)),
        "slice",
    );
    refuses(x.narrow(0, usize::MAX, 2), "narrow");
    refuses(x.narrow(0, 2, usize::MAX), "narrow");
    refuses(x.select(0, usize::MAX), "narrow");
    refuses(x.diagonal(i64::MIN, 0, 1), "diagonal");
    assert_eq!(x.diagonal(i64::MAX, 0, 1)?.shape(), [0]);
    assert_eq!(x.diagonal(-i64::MAX, 0, 1)?.shape(), [0]);
    assert_eq!(x.step(0, usize::MAX)?.to_f64_vec()?, [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(x.unfold(0, 2, usize::MAX)?.shape(), [1, 4, 2]);
    refuses(x.unfold(0, usize::MAX, 1), "unfold");
    refuses(zeros(&[1])?.broadcast_to(&[HUGE])?.unfold(0, 1 << 40, 1), "unfold");
    let flipped = x.flip(&[0, 1])?;
    assert_eq!(flipped.narrow(0, 3, 0)?.narrow(1, 4, 0)?.shape(), [0, 0]);
    refuses(x.as_strided(&[1], &[0], usize::MAX), "as_strided");
    refuses(x.as_strided(&[3], &[i64::MIN], 0), "as_strided");
    refuses(x.as_strided(&[3], &[i64::MAX], 0), "as_strided");
    refuses(x.as_strided(&[HUGE, HUGE], &[0, 0], 0), "as_strided");
    refuses(flipped.as_strided(&[2], &[1], 0), "as_strided");
    refuses(x.expand(&[i64::MAX, 3, 4]), "broadcast_to");
    refuses(x.permute(&[0, 0]), "permute");
    assert_eq!(zeros(&[1; 100])?.flip(&[99])?.sum()?.item()?, 0.0);
    for shift in [i64::MIN, i64::MAX] {
        assert_eq!(x.roll(shift, 0)?.shape(), [3, 4]);
    }
    for diagonal in [i64::MIN, i64::MAX] {
        assert_eq!(x.tril(diagonal)?.shape(), [3, 4]);
    }
    assert_eq!(zeros(&[HUGE, 0])?.triu(0)?.shape(), [HUGE, 0]);
    Ok(())
}

#[test]
fn slices_go_backwards() -> Result<()> {
    let x = numbers(6)?;
    let check = |start: Option<i64>, end: Option<i64>, step: i64, want: &[f64]| -> Result<()> {
        assert_eq!(
            x.slice_step(0, start, end, step)?.to_f64_vec()?,
            want,
            "{start:?} {end:?} {step}"
        );
        let part = [Index::Range(start, end, step)];
        assert_eq!(x.index(&part)?.to_f64_vec()?, want);
        Ok(())
    };
    // As lists of Python.
    check(None, None, -1, &[5.0, 4.0, 3.0, 2.0, 1.0, 0.0])?;
    check(None, None, -2, &[5.0, 3.0, 1.0])?;
    check(Some(4), Some(1), -1, &[4.0, 3.0, 2.0])?;
    check(Some(-2), Some(0), -3, &[4.0, 1.0])?;
    check(Some(99), Some(-99), -5, &[5.0, 0.0])?;
    check(Some(1), Some(4), -1, &[])?;
    check(Some(-99), None, -1, &[])?;
    check(Some(i64::MIN), Some(i64::MAX), 4, &[0.0, 4.0])?;
    check(Some(i64::MAX), Some(i64::MIN), i64::MIN, &[5.0])?;
    check(None, None, i64::MAX, &[0.0])?;
    refuses(x.slice_step(0, None, None, 0), "slice");
    let back = [Index::Range(None, None, -1)];
    let turned = x.index_put(&back, &numbers(6)?, false)?;
    assert_eq!(turned.to_f64_vec()?, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
    let leaf = numbers(6)?.requires_grad_(true)?;
    (leaf.slice_step(0, Some(4), None, -2)? * numbers(3)?)?.sum()?.backward()?;
    let gradient = leaf.grad().expect("a leaf has one").to_f64_vec()?;
    assert_eq!(gradient, [2.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let none = zeros(&[0])?;
    assert_eq!(none.slice_step(0, None, None, -1)?.shape(), [0]);
    Ok(())
}

#[test]
fn an_index_has_one_ellipsis() -> Result<()> {
    let x = numbers(4)?.reshape(&[2, 2])?;
    let twice = [Index::Ellipsis, Index::Ellipsis];
    refuses(x.index(&twice), "index");
    refuses(x.index_put(&twice, &x, true), "index");
    refuses(x.with_index(&twice, &x), "index");
    refuses(x.set(&twice, &x), "index");
    refuses(x.index(&[Index::Ellipsis, Index::At(0), Index::Ellipsis]), "index");
    Ok(())
}

#[test]
fn parts_and_lists_are_as_many_as_can_be() -> Result<()> {
    let x = numbers(6)?;
    refuses(x.tensor_split(usize::MAX, 0), "tensor_split");
    refuses(zeros(&[0])?.chunk(usize::MAX, 0), "chunk");
    assert_eq!(x.chunk(usize::MAX, 0)?.len(), 6);
    let endless = zeros(&[1])?.broadcast_to(&[HUGE])?;
    refuses(endless.unbind(0), "unbind");
    refuses(endless.split(1, 0), "split");
    refuses(endless.tensor_split(HUGE, 0), "tensor_split");
    refuses(x.combinations(1 << 40, true), "combinations");
    refuses(numbers(64)?.combinations(32, false), "combinations");
    assert_eq!(x.combinations(1 << 40, false)?.shape(), [0, 1 << 40]);
    refuses(x.combinations(usize::MAX, false), "combinations");
    assert_eq!(zeros(&[0])?.combinations(1 << 40, true)?.numel(), 0);
    refuses(zeros(&[1])?.combinations(usize::MAX, true), "combinations");
    let pairs = numbers(3)?.combinations(2, true)?.to_f64_vec()?;
    assert_eq!(pairs, [0., 0., 0., 1., 0., 2., 1., 1., 1., 2., 2., 2.]);
    let pairs = numbers(4)?.combinations(3, false)?.to_f64_vec()?;
    assert_eq!(pairs, [0., 1., 2., 0., 1., 3., 0., 2., 3., 1., 2., 3.]);
    for counts in [&[1 << 40][..], &[1 << 40, 1 << 20], &[usize::MAX]] {
        assert!(x.tile(counts).is_err());
        assert!(x.repeat(counts).is_err());
    }
    assert_eq!(zeros(&[0])?.tile(&[1 << 40])?.shape(), [0]);
    assert_eq!(zeros(&[HUGE, 0])?.diff(usize::MAX, 0)?.shape(), [0, 0]);
    assert_eq!(x.diff(usize::MAX, 0)?.shape(), [0]);
    refuses(Tensor::meshgrid(&[&endless, &endless], GridOrder::Ij), "broadcast_to");
    Ok(())
}

#[test]
fn numbers_in_a_row_are_counted_first() -> Result<()> {
    let at = (DType::F32, Device::Cpu);
    for (start, end, step) in [
        (0.0, 5.0, -1.0),
        (5.0, 0.0, 1.0),
        (0.0, -0.5, 1.0),
        (0.0, 1.0, 0.0),
        (0.0, f64::NAN, 1.0),
        (0.0, f64::INFINITY, 1.0),
        (0.0, 1e300, 1.0),
        (-1e308, 1e308, 1e308),
    ] {
        refuses(Tensor::arange(start, end, step, at).and_then(|t| t.sum()), "arange");
    }
    finds_no_memory(Tensor::arange(0.0, 1e15, 1.0, at));
    finds_no_memory(Tensor::linspace(0.0, 1.0, 1 << 50, at));
    finds_no_memory(Tensor::logspace(0.0, 1.0, 1 << 50, 10.0, at));
    assert_eq!(Tensor::arange(3.0, 3.0, -1.0, at)?.numel(), 0);
    assert_eq!(Tensor::arange(3.0, 0.0, -2.0, at)?.to_f64_vec()?, [3.0, 1.0]);
    refuses(Tensor::linspace(0.0, 1.0, usize::MAX, at), "linspace");
    assert_eq!(Tensor::eye(1 << 40, 0, at)?.shape(), [1 << 40, 0]);
    refuses(Tensor::eye(HUGE, 4, at), "eye");
    refuses(Tensor::tril_indices(1 << 40, 1 << 40, 0, DType::I64), "tril_indices");
    refuses(Tensor::triu_indices(usize::MAX, usize::MAX, i64::MIN, DType::I64), "triu_indices");
    let at = (DType::I64, Device::Cpu);
    refuses(Tensor::tril_indices(usize::MAX, usize::MAX, i64::MIN, at), "tril_indices");
    assert_eq!(Tensor::tril_indices(1 << 40, usize::MAX, i64::MIN, at)?.numel(), 0);
    assert_eq!(Tensor::triu_indices(1 << 40, 1 << 40, i64::MAX, at)?.numel(), 0);
    assert_eq!(Tensor::tril_indices(1 << 40, 0, 0, at)?.numel(), 0);
    let corner = Tensor::triu_indices(1 << 40, 1 << 40, (1 << 40) - 1, at)?;
    assert_eq!(corner.to_vec::<i64>()?, [0, (1 << 40) - 1]);
    for (rows, cols) in [(3, 4), (4, 3), (1, 5), (5, 1)] {
        for offset in -6..=6 {
            let list = |is_in: fn(i64, i64) -> bool| {
                let all = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
                let (down, across): (Vec<i64>, Vec<i64>) =
                    all.filter(|&(row, col)| is_in(col, row + offset)).unzip();
                [down, across].concat()
            };
            let (m, n) = (rows as usize, cols as usize);
            let lower = Tensor::tril_indices(m, n, offset, at)?.to_vec::<i64>()?;
            assert_eq!(lower, list(|col, limit| col <= limit), "{rows} {cols} {offset}");
            let upper = Tensor::triu_indices(m, n, offset, at)?.to_vec::<i64>()?;
            assert_eq!(upper, list(|col, limit| col >= limit), "{rows} {cols} {offset}");
        }
    }
    Ok(())
}

#[test]
fn pads_of_any_size() -> Result<()> {
    let x = numbers(5)?;
    let check = |pads: [i64; 2], mode: PadMode, want: &[f64]| -> Result<()> {
        assert_eq!(x.pad(&pads, mode)?.to_f64_vec()?, want, "{pads:?} {mode:?}");
        Ok(())
    };
    // What a negative pad crops does not come around.
    check([2, -1], PadMode::Circular, &[2.0, 3.0, 0.0, 1.0, 2.0, 3.0])?;
    check([-2, 3], PadMode::Circular, &[2.0, 3.0, 4.0, 2.0, 3.0, 4.0])?;
    check([-2, -1], PadMode::Circular, &[2.0, 3.0])?;
    check(
        [5, 5],
        PadMode::Circular,
        &[0., 1., 2., 3., 4., 0., 1., 2., 3., 4., 0., 1., 2., 3., 4.],
    )?;
    refuses(x.pad(&[4, -2], PadMode::Circular), "pad");
    check([-1, 2], PadMode::Reflect, &[1.0, 2.0, 3.0, 4.0, 3.0, 2.0])?;
    check([-7, 4], PadMode::Reflect, &[1.0, 0.0])?;
    check([-6, 3], PadMode::Replicate, &[4.0, 4.0])?;
    check([-2, 1], PadMode::Constant(9.0), &[2.0, 3.0, 4.0, 9.0])?;
    refuses(x.pad(&[-8, 4], PadMode::Constant(0.0)), "pad");
    let modes = [PadMode::Constant(0.0), PadMode::Reflect, PadMode::Replicate, PadMode::Circular];
    for mode in modes {
        for pads in [[i64::MAX, i64::MAX], [i64::MIN, 0], [0, i64::MIN], [i64::MIN, i64::MAX]] {
            refuses(x.pad(&pads, mode), "pad");
        }
        refuses(zeros(&[0])?.pad(&[-1, 0], mode), "pad");
    }
    refuses(zeros(&[0])?.pad(&[1, 0], PadMode::Replicate), "pad");
    refuses(zeros(&[0])?.pad(&[1, 0], PadMode::Circular), "pad");
    let none = Tensor::zeros(&[0], (DType::I64, Device::Cpu))?;
    assert_eq!(none.one_hot(1 << 40)?.shape(), [0, 1 << 40]);
    Ok(())
}

#[test]
fn nothing_beside_nothing() -> Result<()> {
    let (none, some) = (zeros(&[0])?, zeros(&[2, 3])?);
    for dim in [0, -1, -2, 1] {
        assert_eq!(Tensor::cat(&[&none, &none], dim)?.shape(), [0]);
    }
    assert_eq!(Tensor::cat(&[&none, &some], -2)?.shape(), [2, 3]);
    refuses(Tensor::cat(&[&none, &some], 2), "cat");
    refuses(Tensor::cat(&[&zeros(&[0, 3])?, &zeros(&[0, 3])?], 2), "cat");
    Ok(())
}

#[test]
fn windows_of_any_size() -> Result<()> {
    let x = zeros(&[1, 1, 4])?;
    for size in [usize::MAX, HUGE, 1 << 40] {
        assert!(x.adaptive_avg_pool(&[size]).is_err());
        assert!(x.adaptive_max_pool(&[size]).is_err());
        let window = Window::new(&[size]);
        assert!(x.max_pool(&window).is_err());
        assert!(x.avg_pool(&window, true, None).is_err());
        assert!(x.lp_pool(2.0, &window).is_err());
        assert!(zeros(&[1, 1, 4, 4])?.im2col(&Window::new(&[size, size])).is_err());
        assert!(zeros(&[1, 4, 4])?.col2im(&Window::new(&[2, 2]), &[size, size]).is_err());
        assert!(zeros(&[1, 4, 4])?.col2im(&Window::new(&[size, size]), &[4, 4]).is_err());
    }
    let even = numbers(7)?.reshape(&[1, 1, 7])?.adaptive_avg_pool(&[3])?.to_f64_vec()?;
    assert_eq!(even, [1.0, 3.0, 5.0]);
    Ok(())
}

/// Also of no elements, of many short axes, and of long ones that repeat.
#[test]
fn whatever_there_is_can_be_shown() -> Result<()> {
    let begun = Instant::now();
    assert!(zeros(&[1 << 40, 0])?.to_string().starts_with("[]\n"));
    assert!(zeros(&[0, 1 << 40])?.to_string().starts_with("[]\n"));
    assert!(zeros(&[1])?.broadcast_to(&[HUGE])?.to_string().contains("..."));
    assert!(zeros(&[1])?.broadcast_to(&[2; 40])?.to_string().contains("too many"));
    assert!(zeros(&[1; 100])?.to_string().contains('0'));
    assert!(begun.elapsed() < Duration::from_secs(10));
    Ok(())
}

#[test]
fn errors_say_what_is_wrong() {
    let text = |made: Result<Tensor>| made.map_err(|error: Error| error.to_string()).err();
    let counted = "empty: shape [4611686018427387905, 4] has more elements than can be counted";
    assert_eq!(text(zeros(&[HUGE + 1, 4])).as_deref(), Some(counted));
    let away = Tensor::arange(0.0, 5.0, -1.0, (DType::F32, Device::Cpu));
    assert_eq!(text(away).as_deref(), Some("arange: no way from 0 to 5 in steps of -1"));
}

#[test]
fn products_of_nothing_may_be_of_any_extent() -> Result<()> {
    let (long, wide) = (zeros(&[1, HUGE, 0])?, zeros(&[64, 0, 3])?);
    refuses(long.matmul(&wide), "matmul");
    let (scale, none) = (Tensor::ones(&[1], Device::Cpu)?, (DType::F8E4M3, Device::Cpu));
    let (long, wide) = (Tensor::zeros(&[HUGE, 0], none)?, Tensor::zeros(&[0, 8], none)?);
    refuses(long.scaled_matmul(&wide, &scale, &scale, ScaledMatmul::default()), "empty");
    assert_eq!(zeros(&[0, HUGE, 1])?.matmul(&zeros(&[0, 1, 1])?)?.shape(), [0, HUGE, 1]);
    Ok(())
}

fn mask(shape: [usize; 2], set: &[[usize; 2]]) -> Result<Index> {
    let is_set = |place| f64::from(u8::from(set.contains(&[place / shape[1], place % shape[1]])));
    let values: Vec<f64> = (0..shape[0] * shape[1]).map(is_set).collect();
    Ok(Index::Tensor(Tensor::from_f64(&values, &shape, (DType::Bool, Device::Cpu))?))
}

#[test]
fn a_mask_stands_for_all_of_its_axes() -> Result<()> {
    let at = |[i, j, k, l]: [usize; 4]| (((i * 3 + j) * 4 + k) * 5 + l) as f64;
    let all = || Index::Range(None, None, 1);
    let x = numbers(120)?.reshape(&[2, 3, 4, 5])?.requires_grad_(true)?;
    // Between other axes, where what it finds stays.
    let parts = [all(), mask([3, 4], &[[0, 1], [2, 3]])?, Index::At(4)];
    let y = x.index(&parts)?;
    assert_eq!(y.shape(), [2, 2]);
    let want = [[0, 0, 1, 4], [0, 2, 3, 4], [1, 0, 1, 4], [1, 2, 3, 4]].map(at);
    assert_eq!(y.to_f64_vec()?, want);
    // Apart from another index, so that both come first.
    let last = Index::Tensor(Tensor::from_slice_on(&[4_i64, 0], &[2], Device::Cpu)?);
    let y = x.index(&[mask([2, 3], &[[0, 2], [1, 1]])?, all(), last])?;
    assert_eq!(y.shape(), [2, 4]);
    let want = [[0, 2, 0, 4], [0, 2, 1, 4], [0, 2, 2, 4], [0, 2, 3, 4]].into_iter();
    let want = want.chain([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 2, 0], [1, 1, 3, 0]]);
    assert_eq!(y.to_f64_vec()?, want.map(at).collect::<Vec<_>>());
    y.sum()?.backward()?;
    let slopes = x.grad().expect("of a leaf").to_f64_vec()?;
    assert_eq!(slopes.iter().sum::<f64>(), 8.0);
    assert!(
        [at([0, 2, 3, 4]), at([1, 1, 0, 0])].iter().all(|&place| slopes[place as usize] == 1.0)
    );
    // Of a transposed tensor, and written to.
    let turned = x.detach().permute(&[3, 2, 1, 0])?;
    let parts = [all(), mask([4, 3], &[[3, 2], [1, 0]])?, Index::At(1)];
    let y = turned.index_put(&parts, &Tensor::scalar(-1.0, (DType::F32, Device::Cpu))?, false)?;
    assert_eq!(y.index(&parts)?.to_f64_vec()?, [-1.0; 10]);
    assert_eq!(y.lt_scalar(0.0)?.count_nonzero(&[0, 1, 2, 3])?.item()?, 10.0);
    // Integers are no mask, though they can be indices.
    refuses(x.masked_select(&Tensor::zeros(&[5], (DType::I64, Device::Cpu))?), "masked_select");
    let nothing = zeros(&[1, 0, HUGE])?;
    assert_eq!(nothing.masked_select(&nothing.eq_scalar(0.0)?)?.numel(), 0);
    Ok(())
}

#[test]
fn places_of_what_is_not_zero() -> Result<()> {
    let x = Tensor::from_f64(&[0.0, f64::NAN, -0.0, 2.0], &[2, 1, 2], DType::F64)?;
    assert_eq!(x.nonzero()?.to_vec::<i64>()?, [0, 0, 1, 1, 0, 1]);
    assert_eq!(Tensor::scalar(1.0, DType::I8)?.nonzero()?.shape(), [1, 0]);
    assert_eq!(Tensor::scalar(0.0, DType::I8)?.nonzero()?.shape(), [0, 0]);
    assert_eq!(zeros(&[1, 0, HUGE])?.nonzero()?.shape(), [0, 3]);
    Ok(())
}

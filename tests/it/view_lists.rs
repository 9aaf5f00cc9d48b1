//! Lists of views as arguments: products of matrices of any extents and layouts by one launch, and what a launch refuses.

use genesis::{DType, Device, Tensor};
use genesis_kernel::Error;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::Stream;

type Result<T = ()> = std::result::Result<T, Error>;

/// The CPU, and a GPU where one is.
fn streams() -> Vec<Stream> {
    crate::gpu::devices("lists of views").into_iter().map(Device::stream).collect()
}

/// `c[g] = a[g] b[g]` for each `g`. Programs take the tiles of all products in turns.
#[kernel]
fn grouped_products<T: Float, const M: usize, const N: usize, const K: usize>(
    a: Views<T, 2>,
    b: Views<T, 2>,
    c: ViewsMut<T, 2>,
) {
    // This program's next tile, counted from the first one of the product at hand.
    let mut tile = program_id(0);
    for g in range(0, c.len()) {
        let (a, b, c) = (a.at(g), b.at(g), c.at(g));
        let columns = cdiv(c.dim(1), N);
        let tiles = cdiv(c.dim(0), M) * columns;
        while tile < tiles {
            let (i, j) = (tile / columns * M, tile % columns * N);
            let mut acc = zeros::<f32, M, N>();
            for k in range(0, a.dim(1), K) {
                acc = dot(a.load::<M, K>([i, k]), b.load::<K, N>([k, j]), acc);
            }
            c.store([i, j], acc.to::<T>());
            tile += num_programs(0);
        }
        tile -= tiles;
    }
}

/// Whole numbers from -2 to 2, whose products are exact in every dtype.
fn numbers<T>(n: usize, by: usize, of: impl Fn(f32) -> T) -> Vec<T> {
    (0..n).map(|i| of((i * by % 5) as f32 - 2.0)).collect()
}

/// Extents `[m, n, k]` of the products, whether rows of `b` are its columns in memory, and what `a` starts behind.
const PRODUCTS: [([usize; 3], bool, usize); 5] = [
    ([33, 20, 40], false, 0),
    ([1, 1, 1], true, 3),
    ([16, 0, 8], false, 0),
    ([48, 70, 17], true, 1),
    ([5, 64, 0], false, 0),
];

fn check_products<T: Float>(
    stream: &Stream,
    products: &[([usize; 3], bool, usize)],
    of: impl Fn(f32) -> T + Copy,
) -> Result {
    let (mut a, mut b, mut c, mut expected) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for &([m, n, k], turned, behind) in products {
        let (x, y) = (numbers(behind + m * k, 3, |v| v), numbers(k * n, 7, |v| v));
        let at = |p: usize, j: usize| if turned { j * k + p } else { p * n + j };
        let product = |i: usize, j: usize| -> f32 {
            (0..k).map(|p| x[behind + i * k + p] * y[at(p, j)]).sum()
        };
        expected.push((0..m * n).map(|e| of(product(e / n, e % n))).collect::<Vec<T>>());
        a.push(stream.upload(&x.iter().map(|&v| of(v)).collect::<Vec<T>>())?);
        b.push(stream.upload(&y.iter().map(|&v| of(v)).collect::<Vec<T>>())?);
        c.push(Array::<T>::zeros(stream, m * n)?);
    }
    {
        let (mut a_views, mut b_views, mut c_views) = (Vec::new(), Vec::new(), Vec::new());
        let operands = a.iter().zip(&b).zip(&mut c);
        for (((a, b), c), &([m, n, k], turned, behind)) in operands.zip(products) {
            a_views.push(a.strided(behind, [m, k], [k as i64, 1])?);
            let strides = if turned { [1, k as i64] } else { [n as i64, 1] };
            b_views.push(b.strided(0, [k, n], strides)?);
            c_views.push(c.view_mut([m, n])?);
        }
        let lists = (stream.views(&a_views)?, stream.views(&b_views)?);
        let consts = grouped_products::Consts { M: 32, N: 32, K: 16 };
        let args = (lists.0, lists.1, stream.views_mut(&mut c_views)?);
        grouped_products::launch::<T>(stream, Grid::x(3), consts, args)?;
    }
    for (c, expected) in c.iter().zip(expected) {
        assert!(c.to_vec()? == expected);
    }
    Ok(())
}

#[test]
fn products_of_any_extents_are_one_launch() -> Result {
    for stream in streams() {
        check_products::<f32>(&stream, &PRODUCTS, |v| v)?;
        check_products::<bf16>(&stream, &PRODUCTS, bf16::from_f32)?;
        // Those of which the launch knows strides and alignment, and none.
        let aligned = [([64, 64, 48], false, 0), ([16, 128, 32], false, 0)];
        check_products::<bf16>(&stream, &aligned, bf16::from_f32)?;
        check_products::<bf16>(&stream, &[], bf16::from_f32)?;
    }
    Ok(())
}

/// `y += x` of each view, by a program each.
#[kernel]
fn add_each<const N: usize>(x: Views<f32, 1>, y: ViewsMut<f32, 1>) {
    let (x, y) = (x.at(program_id(0)), y.at(program_id(0)));
    for i in range(0, y.dim(0), N) {
        y.store([i], y.load::<N>([i]) + x.load::<N>([i]));
    }
}

#[test]
fn tensors_are_views_of_a_list() -> anyhow::Result<()> {
    for device in crate::gpu::devices("lists of views") {
        let x = Tensor::arange(0.0, 12.0, 1.0, (DType::F32, device))?.reshape(&[3, 4])?;
        let (column, row) = (x.select(1, 2)?, x.select(0, 1)?);
        let from = [column.arg::<f32, 1>()?, row.arg::<f32, 1>()?];
        let stream = column.stream();
        let (mut y, mut z) =
            (Tensor::ones(&[3], (DType::F32, device))?, Tensor::ones(&[4], (DType::F32, device))?);
        let mut to = [y.arg_mut::<f32, 1>()?, z.arg_mut::<f32, 1>()?];
        let lists = (stream.views(&from)?, stream.views_mut(&mut to)?);
        add_each::launch(&stream, Grid::x(2), add_each::Consts { N: 4 }, lists)?;
        assert_eq!(y.to_vec::<f32>()?, [3.0, 7.0, 11.0]);
        assert_eq!(z.to_vec::<f32>()?, [5.0, 6.0, 7.0, 8.0]);
    }
    Ok(())
}

#[test]
fn what_is_written_is_in_no_other_argument() -> anyhow::Result<()> {
    let x = Tensor::arange(0.0, 12.0, 1.0, (DType::F32, Device::Cpu))?.reshape(&[3, 4])?;
    let stream = x.stream();
    let (first, mut second, mut third) = (x.select(1, 0)?, x.select(1, 1)?, x.select(0, 1)?);
    // Columns take turns in memory, and are apart; a row meets each column.
    let from = [first.arg::<f32, 1>()?];
    {
        let mut to = [second.arg_mut::<f32, 1>()?];
        let lists = (stream.views(&from)?, stream.views_mut(&mut to)?);
        add_each::launch(&stream, Grid::x(1), add_each::Consts { N: 4 }, lists)?;
    }
    {
        let mut to = [third.arg_mut::<f32, 1>()?];
        let lists = (stream.views(&from)?, stream.views_mut(&mut to)?);
        let error = add_each::launch(&stream, Grid::x(1), add_each::Consts { N: 4 }, lists);
        assert_eq!(
            error.unwrap_err().to_string(),
            "add_each: arguments `x.views` and `y.views` share memory, and the kernel writes `y.views`"
        );
    }
    let mut to = [second.arg_mut::<f32, 1>()?, third.arg_mut::<f32, 1>()?];
    let error = stream.views_mut(&mut to).unwrap_err();
    assert_eq!(error.to_string(), "views_mut: views 0 and 1 of the list share memory");
    Ok(())
}

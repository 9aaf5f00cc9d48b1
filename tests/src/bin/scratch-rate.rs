//! scratch
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::print_stdout, clippy::unwrap_used)]
use std::time::Instant;

use genesis::ops::Index;
use genesis::{DType, Device, Tensor};

fn time(name: &str, filter: &[String], f: &mut dyn FnMut() -> genesis::Result<()>) {
    if !filter.is_empty() && !filter.iter().any(|x| name.contains(x.as_str())) {
        return;
    }
    if let Err(e) = f() {
        println!("{name}\tERR {e}");
        return;
    }
    f().unwrap();
    let begin = Instant::now();
    let mut best = f64::MAX;
    let mut runs = 0;
    while runs < 3 || (begin.elapsed().as_secs_f64() < 0.5 && runs < 200) {
        let t = Instant::now();
        f().unwrap();
        best = best.min(t.elapsed().as_secs_f64());
        runs += 1;
    }
    println!("{name}\t{:.4}", best * 1e3);
}

fn ints(shape: &[usize], high: i64) -> Tensor {
    let n: usize = shape.iter().product();
    let mut s = 0x9e3779b97f4a7c15u64;
    let v: Vec<i64> = (0..n)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            ((s >> 20) % high as u64) as i64
        })
        .collect();
    Tensor::from_slice_on(&v, shape, Device::Cpu).unwrap()
}

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).collect();
    let f = &filter;
    let randn = |s: &[usize]| Tensor::randn(s, Device::Cpu).unwrap();
    macro_rules! t {
        ($name:expr, $e:expr) => {
            time($name, f, &mut || {
                let _r = $e;
                Ok(())
            })
        };
    }
    let x1m = randn(&[1 << 20]);
    let x1k = randn(&[1024, 1024]);
    let i1m = ints(&[1 << 20], 1 << 30);
    let s1m = ints(&[1 << 20], 1000);
    t!("sort 1M", x1m.sort(0, false)?);
    t!("argsort 1M", x1m.argsort(0, false)?);
    t!("sort 1024x1024", x1k.sort(-1, false)?);
    t!("sort 1024x1024 dim0", x1k.sort(0, false)?);
    t!("sort i64 1M", i1m.sort(0, false)?);
    t!("sort i64 small 1M", s1m.sort(0, false)?);
    let x64 = randn(&[16384, 64]);
    t!("sort 16384x64", x64.sort(-1, false)?);
    let x1000 = randn(&[1000]);
    t!("sort 1000", x1000.sort(0, false)?);
    let b1m = x1m.to_dtype(DType::BF16).unwrap();
    t!("sort bf16 1M", b1m.sort(0, false)?);
    let d1m = x1m.to_dtype(DType::F64).unwrap();
    t!("sort f64 1M", d1m.sort(0, false)?);
    let xv = randn(&[8, 50000]);
    t!("topk 50 of 8x50000", xv.topk(50, -1, true)?);
    t!("topk 10 of 1024x1024", x1k.topk(10, -1, true)?);
    t!("topk 8 of 4096x64", randn_c(&x64)?.topk(8, -1, true)?);
    t!("kthvalue 1024x1024", x1k.kthvalue(512, -1, false)?);
    t!("median 1024x1024", x1k.median_dim(-1, false)?);
    t!("median 1M", x1m.median()?);
    t!("mode 256x1024", s1m.narrow(0, 0, 262144)?.reshape(&[256, 1024])?.mode(-1, false)?);
    t!("quantile 1M", x1m.quantile(0.3, 0, false)?);
    t!("unique i64 1M", i1m.unique()?);
    t!("unique small 1M", s1m.unique()?);
    t!("unique_consecutive 1M", s1m.unique_consecutive()?);
    let mask = x1m.gt_scalar(0.0).unwrap();
    t!("nonzero 1M", mask.nonzero()?);
    t!("nonzero 1024x1024", x1k.gt_scalar(0.0)?.nonzero()?);
    t!("masked_select 1M", x1m.masked_select(&mask)?);
    t!("masked_fill 1M", x1m.masked_fill(&mask, 0.0)?);
    t!("masked_scatter 1M", x1m.masked_scatter(&mask, &x1m)?);
    t!("cumsum 1M", x1m.cumsum(0)?);
    t!("cumsum 1024x1024", x1k.cumsum(-1)?);
    t!("cumsum 1024x1024 dim0", x1k.cumsum(0)?);
    t!("cummax 1024x1024", x1k.cummax(-1)?);
    t!("logcumsumexp 1024x1024", x1k.logcumsumexp(-1)?);
    t!("cumprod 1024x1024", x1k.cumprod(-1)?);
    let idx = ints(&[10000], 1000);
    let src = randn(&[10000, 128]);
    let dst = randn(&[1000, 128]);
    t!("index_add 10000x128 into 1000", dst.index_add(0, &idx, &src, 1.0)?);
    let dst2 = randn(&[16384, 64]);
    let idx2 = ints(&[16384], 16384);
    t!("index_add 16384x64 into 16384", dst2.index_add(0, &idx2, &x64, 1.0)?);
    t!("index_add dim1", x1k.index_add(1, &ints(&[1024], 1024), &x1k, 1.0)?);
    let sidx = ints(&[1024, 1024], 1024);
    t!("scatter_add 1024x1024 dim1", x1k.scatter_add(1, &sidx, &x1k)?);
    t!("scatter_add 1024x1024 dim0", x1k.scatter_add(0, &sidx, &x1k)?);
    let s100k = ints(&[100000], 1000);
    let v100k = randn(&[100000]);
    let z1000 = randn(&[1000]);
    t!("scatter_add 100k into 1000", z1000.scatter_add(0, &s100k, &v100k)?);
    t!("scatter 1024x1024 dim1", x1k.scatter(1, &sidx, &x1k)?);
    t!(
        "scatter_reduce amax",
        x1k.scatter_reduce(1, &sidx, &x1k, genesis::ops::ScatterReduce::Amax, true)?
    );
    t!(
        "scatter_reduce mean",
        x1k.scatter_reduce(1, &sidx, &x1k, genesis::ops::ScatterReduce::Mean, true)?
    );
    t!("gather 1024x1024 dim1", x1k.gather(1, &sidx)?);
    t!("gather 1024x1024 dim0", x1k.gather(0, &sidx)?);
    t!("take_along_dim", x1k.take_along_dim(&sidx, 1)?);
    t!("take 1M", x1m.take(&ints1m()?)?);
    t!("index_select 10000x128", src.index_select(0, &idx2.remainder_scalar(10000.0)?)?);
    t!("index_select dim1", x1k.index_select(1, &ints(&[1024], 1024))?);
    t!("index_copy", dst2.index_copy(0, &idx2, &x64)?);
    t!("index_put acc", dst.index_put(&[Index::Tensor(idx.clone())], &src, true)?);
    t!("index_put", dst.index_put(&[Index::Tensor(idx.clone())], &src, false)?);
    t!("index x[idx]", src.index(&[Index::Tensor(idx.clone())])?);
    t!("index x[i,j]", x1k.index(&[Index::Tensor(idx.clone()), Index::Tensor(idx.clone())])?);
    t!("index x[mask]", x1k.index(&[Index::Tensor(mask.reshape(&[1024, 1024])?)])?);
    t!("embedding 16384 of 1000x128", dst.embedding(&idx2.remainder_scalar(1000.0)?)?);
    {
        let table = randn(&[1000, 128]).requires_grad_(true).unwrap();
        let i = ints(&[16384], 1000);
        t!("embedding fwd+bwd 1000x128", table.embedding(&i)?.sum()?.backward()?);
        let table = randn(&[50257, 128]).requires_grad_(true).unwrap();
        let i = ints(&[4096], 50257);
        t!("embedding fwd+bwd 50257x128", table.embedding(&i)?.sum()?.backward()?);
        let g = randn(&[1024, 1024]).requires_grad_(true).unwrap();
        t!("gather fwd+bwd", g.gather(1, &sidx)?.sum()?.backward()?);
        let g = randn(&[10000, 128]).requires_grad_(true).unwrap();
        t!("index_select fwd+bwd", g.index_select(0, &idx)?.sum()?.backward()?);
        let g = randn(&[1024, 1024]).requires_grad_(true).unwrap();
        t!("sort fwd+bwd", g.sort(-1, false)?.0.sum()?.backward()?);
    }
    t!("bincount 1M", s1m.bincount(None, 0)?);
    t!("histc 1M", x1m.histc(100, 0.0, 0.0)?);
    let sorted = x1m.sort(0, false).unwrap().0;
    t!("searchsorted 100k in 1M", sorted.searchsorted(&v100k, false)?);
    t!("bucketize 1M in 100", x1m.bucketize(&randn(&[100]).sort(0, false)?.0, false)?);
    t!("repeat_interleave 1000x1000", z1000.repeat_interleave(1000, 0)?);
    t!("randperm 1M", Tensor::randperm(1 << 20, Device::Cpu)?);
    t!("one_hot 10000 1000", idx.one_hot(1000)?);
    t!("isin", s1m.isin(&idx.narrow(0, 0, 100)?)?);
    t!("flip 1M", x1k.flip(&[1])?);
    t!("roll 1M", x1k.roll(3, 1)?);
    t!("tril 1024", x1k.tril(0)?);
    t!("erfinv 1M", x1m.erfinv()?);
    let u = x1m.abs().unwrap();
    t!("pow 1M", u.pow(&x1m)?);
    t!("lgamma 1M", u.lgamma()?);
    t!("digamma 1M", u.digamma()?);
    t!("atan2 1M", x1m.atan2(&u)?);
    t!("exp 1M", x1m.exp()?);
    t!("erf 1M", x1m.erf()?);
    t!("tan 1M", x1m.tan()?);
    t!("asin 1M", x1m.asin()?);
    t!("gelu 1M", x1m.gelu()?);
    t!("softplus 1M", x1m.softplus(1.0, 20.0)?);
    t!("randn 1M", Tensor::randn(&[1 << 20], Device::Cpu)?);
    let (a, b) = (x1k.to_dtype(DType::BF16).unwrap(), x1k.to_dtype(DType::BF16).unwrap());
    let (a5, b5) = (
        a.narrow(0, 0, 512).unwrap().narrow(1, 0, 512).unwrap().contiguous().unwrap(),
        b.narrow(0, 0, 512).unwrap().narrow(1, 0, 512).unwrap().contiguous().unwrap(),
    );
    t!("matmul bf16 512", a5.matmul(&b5)?);
    t!("matmul bf16 1024", a.matmul(&b)?);
    let w = randn(&[4096, 4096]);
    let row = randn(&[1, 4096]);
    t!("row x 4096x4096", row.matmul(&w)?);
    t!("row x 4096x4096^T", row.linear_rows(&w, None)?);
    t!("matmul f32 1024", x1k.matmul(&x1k)?);
}

fn randn_c(x: &Tensor) -> genesis::Result<Tensor> {
    x.narrow(0, 0, 4096)
}

fn ints1m() -> genesis::Result<Tensor> {
    thread_local!(static T: Tensor = ints(&[1 << 20], 1 << 20));
    T.with(|t| Ok(t.clone()))
}

//! Random programs of ops, views and writes in place: gradients agree with differences, or the backward
//! says that something it needs was changed.

use genesis::autograd::{GradCheck, enable_grad, gradcheck};
use genesis::{DType, Device, Result, Tensor};

use super::leaf;

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// A view of a tensor, chosen at random.
fn view(x: &Tensor, draw: &mut Draw) -> Result<Tensor> {
    let (n, rank) = (x.numel(), x.rank());
    if rank == 0 || n < 2 {
        return x.reshape(&[1, n]);
    }
    let axis = draw.below(rank);
    let extent = x.shape()[axis];
    match draw.below(7) {
        0 => x.reshape(&[n]),
        1 if n.is_multiple_of(2) => x.reshape(&[2, n / 2]),
        2 if rank > 1 => x.t(),
        3 => x.narrow(axis as i64, draw.below(extent), 1),
        4 => x.select(axis as i64, draw.below(extent)),
        5 => x.step(axis as i64, 2),
        _ => x.flip(&[axis as i64]),
    }
}

/// Something that broadcasts to `x`, made of `other`.
fn fit(other: &Tensor, x: &Tensor) -> Result<Tensor> {
    if other.numel() == x.numel() { other.reshape(x.shape()) } else { other.mean() }
}

/// A write to a tensor, chosen at random.
fn write(x: &Tensor, other: &Tensor, draw: &mut Draw) -> Result<()> {
    let other = fit(other, x)?;
    match draw.below(6) {
        0 => x.add_(&other),
        1 => x.mul_(&other),
        2 => x.copy_(&other),
        3 => x.fill_(0.5),
        4 => x.sub_(&other),
        _ => x.mul_(x),
    }
}

/// Runs a program on an input; gives one number that depends on everything it made.
fn program(seed: u64, x: &Tensor) -> Result<Tensor> {
    let mut draw = Draw(seed);
    draw.below(1);
    let mut made = vec![(x * 1.0)?];
    for _ in 0..4 + draw.below(10) {
        let at = draw.below(made.len());
        let (x, other) = (made[at].clone(), made[draw.below(made.len())].clone());
        match draw.below(8) {
            0 => made.push(x.sin()?),
            1 => made.push(x.mul(&fit(&other, &x)?)?),
            2 => made.push(x.tanh()?),
            3 | 4 => made.push(view(&x, &mut draw)?),
            5 => made.push(x.unsqueeze(0)?.broadcast_to(&[&[2], x.shape()].concat())?),
            // A write to what is spread out is refused, in every run alike.
            _ => drop(write(&x, &other, &mut draw)),
        }
    }
    let weigh = |(i, t): (usize, &Tensor)| {
        let values: Vec<f64> = (0..t.numel()).map(|j| 0.1 + ((i * 7 + j * 3) % 5) as f64).collect();
        t.mul(&Tensor::from_f64(&values, t.shape(), (DType::F64, Device::Cpu))?)?.sum()
    };
    let mut sum = weigh((0, &made[0]))?;
    for pair in made.iter().enumerate().skip(1) {
        sum = (sum + weigh(pair)?)?;
    }
    Ok(sum)
}

#[test]
fn random_programs_have_the_right_gradient_or_say_why_not() {
    let x = leaf(&[0.3, -0.8, 1.1, 0.6, -0.2, 0.9]);
    let (mut right, mut changed) = (0, 0);
    for seed in 0..400 {
        let f = |x: &[Tensor]| Ok(vec![enable_grad(|| program(seed, &x[0]))?]);
        match gradcheck(f, &[&x], GradCheck::default()) {
            Ok(()) => right += 1,
            Err(error) if error.to_string().contains("was changed in place since") => changed += 1,
            Err(error) => panic!("program {seed}: {error}"),
        }
    }
    println!("{right} gradients, {changed} refusals");
    assert!(right > 150 && changed > 20, "{right} gradients, {changed} refusals");
}

//! Graphs of 100,000 ops in a row, on the small stack of a test's thread: nothing recurses.

use genesis::autograd::{BackwardOptions, GradOptions, checkpoint, grad};
use genesis::{Result, Tensor};

use super::{leaf, slope, values};

const OPS: usize = 100_000;

fn chain(x: &Tensor, n: usize) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..n {
        y = y.neg()?;
    }
    Ok(y)
}

#[test]
fn forward_backward_and_drop() -> Result<()> {
    let x = leaf(&[1.0]);
    chain(&x, OPS)?.sum()?.backward()?;
    assert_eq!(slope(&x), [1.0]);
    drop(chain(&x, OPS)?);
    Ok(())
}

#[test]
fn with_a_graph_of_the_backward() -> Result<()> {
    let x = leaf(&[2.0]);
    let y = chain(&(&x * &x)?, OPS)?;
    let create = GradOptions { create_graph: true, ..GradOptions::default() };
    let first = grad(&[&y], &[&x], create)?.remove(0).expect("y depends on x");
    let second = grad(&[&first], &[&x], GradOptions::default())?.remove(0);
    assert_eq!(values(&first), [4.0]);
    assert_eq!(values(&second.expect("the slope depends on x")), [2.0]);
    Ok(())
}

#[test]
fn through_one_checkpoint_and_through_many() -> Result<()> {
    let x = leaf(&[1.0]);
    checkpoint(|x| chain(&x[0], OPS)?.sum(), &[&x])?.backward()?;
    assert_eq!(slope(&x), [1.0]);
    x.zero_grad();
    let mut y = x.clone();
    for _ in 0..OPS / 10 {
        // What is saved hangs on the checkpoint before.
        y = checkpoint(|x| x[0].relu(), &[&y])?;
    }
    y.sum()?.backward()?;
    assert_eq!(slope(&x), [1.0]);
    Ok(())
}

#[test]
fn of_views_and_writes_in_place() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = (&x * 1.0)?;
    for _ in 0..OPS / 50 {
        y.narrow(0, 0, 1)?.add_(&y.narrow(0, 1, 1)?)?;
    }
    y.sum()?.backward()?;
    assert_eq!(slope(&x), [1.0, 1.0 + (OPS / 50) as f64]);
    Ok(())
}

#[test]
fn kept_and_walked_again() -> Result<()> {
    let x = leaf(&[1.0]);
    let y = chain(&x, OPS)?;
    y.backward_with(None, BackwardOptions { retain_graph: true, ..Default::default() })?;
    y.backward()?;
    assert_eq!(slope(&x), [2.0]);
    Ok(())
}

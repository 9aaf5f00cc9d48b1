//! Backwards of several threads at once.

use genesis::autograd::{BackwardOptions, GradOptions, grad};
use genesis::{Result, Tensor};

use super::{leaf, slope, values};

fn together<T: Send>(n: usize, f: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..n).map(|i| scope.spawn(move || f(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

#[test]
fn graphs_of_their_own_that_end_in_one_leaf() -> Result<()> {
    let w = leaf(&[1.0]);
    together(4, |i| {
        for _ in 0..50 {
            (&w * (i as f64 + 1.0))?.sum()?.backward()?;
        }
        Ok(())
    })?;
    assert_eq!(slope(&w), [50.0 * (1.0 + 2.0 + 3.0 + 4.0)]);
    Ok(())
}

#[test]
fn one_graph_that_is_retained() -> Result<()> {
    let w = leaf(&[3.0]);
    let y: Tensor = (&w * &w)?.sum()?;
    let keep = BackwardOptions { retain_graph: true, ..Default::default() };
    together(4, |_| (0..20).try_for_each(|_| y.backward_with(None, keep)))?;
    assert_eq!(slope(&w), [80.0 * 6.0]);
    let options = GradOptions { retain_graph: true, ..GradOptions::default() };
    for grads in together(4, |_| grad(&[&y], &[&w], options))? {
        assert_eq!(values(grads[0].as_ref().expect("y depends on w")), [6.0]);
    }
    Ok(())
}

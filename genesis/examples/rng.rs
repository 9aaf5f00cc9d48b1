//! Seeds, saved states and forks of the random generator.

use genesis::random::{fork_rng, get_rng_state, set_rng_state};
use genesis::{Device, Result, Tensor, manual_seed};

fn draw() -> Result<Vec<f32>> {
    Tensor::rand(&[3], Device::default())?.to_vec::<f32>()
}

fn main() -> Result<()> {
    manual_seed(42);
    println!("first {:?}", draw()?);
    let state = get_rng_state();
    let second = draw()?;
    set_rng_state(state);
    assert_eq!(second, draw()?);
    println!("second, twice {second:?}");
    let forked = fork_rng(draw)?;
    assert_eq!(forked, draw()?);
    println!("a fork draws what comes next, and leaves it there {forked:?}");
    Ok(())
}

//! Seeds and states of the random generator.

use std::sync::Mutex;

use genesis::random::{fork_rng, get_rng_state, set_rng_state};
use genesis::{DType, Device, Result, Tensor, manual_seed};

/// The default generator is shared, so these tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const CPU: Device = Device::Cpu;

fn draw() -> Result<Vec<f32>> {
    Tensor::randn(&[100], CPU)?.to_vec::<f32>()
}

#[test]
fn the_same_seed_draws_the_same() -> Result<()> {
    let _turn = TURN.lock();
    manual_seed(7);
    let first = draw()?;
    let second = draw()?;
    assert_ne!(first, second);
    manual_seed(7);
    assert_eq!(first, draw()?);
    let state = get_rng_state();
    let third = draw()?;
    set_rng_state(state);
    assert_eq!(third, draw()?);
    let forked = fork_rng(draw)?;
    assert_eq!(forked, draw()?);
    Ok(())
}

#[test]
fn uniform_and_normal_have_their_moments() -> Result<()> {
    let _turn = TURN.lock();
    manual_seed(3);
    let n = 200_000;
    let uniform = Tensor::rand(&[n], CPU)?;
    assert!((uniform.mean()?.item()? - 0.5).abs() < 0.005);
    assert!(uniform.min()?.item()? >= 0.0 && uniform.max()?.item()? < 1.0);
    let normal = Tensor::randn(&[n], (DType::F64, CPU))?;
    let mean = normal.mean()?.item()?;
    let variance = normal.square()?.mean()?.item()? - mean * mean;
    assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    let integers = Tensor::randint(-3, 4, &[n], (DType::I64, CPU))?;
    assert_eq!(integers.min()?.item()?, -3.0);
    assert_eq!(integers.max()?.item()?, 3.0);
    Ok(())
}

#[test]
fn dropout_draws_its_mask_again_in_the_backward() -> Result<()> {
    let _turn = TURN.lock();
    manual_seed(5);
    let x = Tensor::ones(&[1000], CPU)?.requires_grad_(true)?;
    let y = x.dropout(0.25)?;
    y.sum()?.backward()?;
    let (y, dx) = (y.to_vec::<f32>()?, x.grad().expect("x has one").to_vec::<f32>()?);
    assert_eq!(y, dx);
    let zeros = y.iter().filter(|&&v| v == 0.0).count();
    assert!((200..300).contains(&zeros), "{zeros}");
    assert!(y.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    Ok(())
}

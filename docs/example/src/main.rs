//! A kernel of one's own: launched, then printed as PTX.

use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
use genesis_kernel::kernel::Grid;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Array, Device};
use genesis_kernel::target::Target;

/// `y = a * x + y`
#[kernel]
pub fn axpy<const BLOCK: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>, a: f32) {
    let i = program_id(0) * BLOCK;
    y.store([i], x.load::<BLOCK>([i]) * a + y.load::<BLOCK>([i]));
}

fn main() -> Result<(), genesis_kernel::Error> {
    let stream = Device::default().stream();
    let n = 100_000;
    let x = stream.upload(&vec![2.0f32; n])?;
    let mut y: Array<f32> = stream.upload(&vec![1.0f32; n])?;
    let consts = axpy::Consts { BLOCK: 1024 };
    axpy::launch(
        &stream,
        Grid::x(n.div_ceil(1024)),
        consts,
        (x.view([n])?, y.view_mut([n])?, 3.0f32),
    )?;
    assert!(y.to_vec()?.iter().all(|&v| v == 7.0));
    println!("3 * 2 + 1 = 7, {n} times, on {}", Device::default());

    let request =
        InspectRequest::new(&axpy::KERNEL, Target::sm_90a(), Emit::Ptx).set("BLOCK", 1024);
    println!("{}", inspect(&axpy::KERNEL, &request)?.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs() -> Result<(), genesis_kernel::Error> {
        super::main()
    }
}

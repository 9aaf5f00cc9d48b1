//! What the producer of a warp-specialised kernel runs.
//!
//! Loads by the copy engine are given to one thread of a warpgroup of its own, which runs the same
//! control flow as the consumers with nothing but those loads in it. Both walk the same slots of the
//! same rings, so they meet in barriers and need no other message.
//!
//! ```text
//! %4 = for %5 = .. carry (%6 = %3) {             for %5 = .. {
//!   %7 = tma_load 0, ..                            %7 = tma_load 0, ..
//!   %8 = tma_load 1, ..                 ->         %8 = tma_load 1, ..
//!   %9 = dot ieee %7, %8, %6                       yield
//!   yield %9                                     }
//! }
//! store %p, %4
//! ```

use crate::ir::{Func, OpKind};
use crate::passes::dce;

/// The function with nothing in it but loads by the copy engine, the control flow around them and
/// what they need.
///
/// # Errors
/// If they need what one thread can't compute: tiles, or memory that the consumers may change.
pub fn producer(func: &Func) -> Result<Func, String> {
    let mut producer = func.clone();
    dce::keep(&mut producer, |kind| matches!(kind, OpKind::TmaLoad(_) | OpKind::Return));
    for op in producer.walk() {
        let data = producer.op(op);
        if matches!(data.kind, OpKind::TmaLoad(_)) {
            continue;
        }
        let flows = matches!(
            data.kind,
            OpKind::For(_) | OpKind::While | OpKind::If | OpKind::Yield | OpKind::Return
        );
        if !flows && !data.kind.is_pure() {
            return Err(format!("a load by the copy engine depends on {:?}", data.kind));
        }
        let args = data.regions.iter().flat_map(|&region| &producer.region(region).args);
        for &value in data.results.iter().chain(args) {
            let scalar = producer.ty(value).as_tile().is_some_and(|tile| tile.shape.is_scalar());
            if !scalar {
                return Err(format!("a load by the copy engine depends on {:?}", data.kind));
            }
        }
    }
    Ok(producer)
}

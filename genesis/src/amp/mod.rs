//! Mixed precision: [`autocast`] computes in 16 bits where that is safe, [`GradScaler`] keeps gradients in
//! f16 from vanishing.
//!
//! Weights stay in f32. Inside [`autocast`] the ops that tensor cores speed up take their operands in
//! bf16 or f16, those that need range or digits take them in f32, and the others take them as they come;
//! which is which is a table, [`OPS`]. Gradients arrive in the dtype of what they are of: that of a weight in f32 is the sums
//! of its product, which are in f32, and was never rounded to 16 bits.
//!
//! ```
//! use genesis::amp::autocast;
//! use genesis::{DType, Tensor};
//!
//! let w = Tensor::ones(&[3, 2], ())?.requires_grad_(true)?;
//! let x = Tensor::ones(&[4, 3], ())?;
//! let y = autocast(DType::BF16, || x.matmul(&w))?;
//! assert_eq!(y.dtype(), DType::BF16);
//! y.to_dtype(DType::F32)?.sum()?.backward()?;
//! assert_eq!(w.grad().expect("w requires a gradient").dtype(), DType::F32);
//! # Ok::<(), genesis::Error>(())
//! ```

mod autocast;
mod cache;
mod scaler;
mod table;

pub use crate::dispatch::autocast::{autocast_dtype, is_autocast_enabled, without_autocast};
pub use autocast::{Autocast, autocast, cast_arguments};
pub use scaler::{GradScaler, GradScalerOptions};
pub use table::{OPS, Precision};

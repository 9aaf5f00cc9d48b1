//! Data sets and the order in which batches are drawn.

mod fashion_mnist;
mod loader;

pub use fashion_mnist::FashionMnist;
pub use loader::{Batches, shuffled};

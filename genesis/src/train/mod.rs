//! Training runs that the `genesis` command offers.

pub mod fashion_mnist;

//! Data sets, readers, transforms, and the loader that makes batches of them.
//!
//! A [`Dataset`] gives samples by number, a [`DataLoader`] makes batches of them ahead of their use.
//! Order, random choices and where to go on later are pure functions of a seed, an epoch and a
//! place, so the number of workers never changes what a model sees, and a run that was killed goes on
//! with the very batch that would have come next.

mod bible;
mod collate;
mod csv;
mod dataset;
mod fashion_mnist;
mod idx;
mod image;
mod image_folder;
mod loader;
mod prefetch;
mod rng;
mod sampler;
mod tensors;
mod text;
mod transform;

pub use bible::bible_text;
pub use collate::{Batch, Sample};
pub use csv::{Csv, CsvOptions};
pub use dataset::{ConcatDataset, Dataset, IterableDataset, Map, Subset, random_split};
pub use fashion_mnist::FashionMnist;
pub use idx::{read_idx, read_idx_with};
pub use image::Image;
pub use image_folder::ImageFolder;
pub use loader::{DataLoader, Epoch, LoaderOptions, LoaderState};
pub use rng::{SampleRng, shuffled};
pub use sampler::{
    BatchSampler, Batches, DistributedSampler, RandomSampler, Sampler, SequentialSampler,
    SubsetRandomSampler, WeightedRandomSampler,
};
pub use tensors::{TensorDataset, Tensors};
pub use text::{TextFile, TokenShards, TokenWidth, TokenWindows, Tokens};
pub use transform::{
    CenterCrop, Compose, Normalize, RandomCrop, RandomHorizontalFlip, RandomRotation,
    RandomVerticalFlip, Resize, Transform,
};

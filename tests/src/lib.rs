//! The code in the documentation, compiled and run as documentation tests, and the conformance runner.

pub mod abuse;
pub mod conform;
pub mod gguf_writer;
pub mod heap;
pub mod mutate;
pub mod mutate_models;
pub mod mutate_text;

/// README.md
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// The tutorial's first step.
#[doc = include_str!("../../docs/1-vector-add.md")]
pub mod vector_add {}

/// The tutorial's second step.
#[doc = include_str!("../../docs/2-softmax.md")]
pub mod softmax {}

/// The tutorial's third step.
#[doc = include_str!("../../docs/3-matmul.md")]
pub mod matmul {}

/// The tutorial's step about attention.
#[doc = include_str!("../../docs/5-attention.md")]
pub mod attention_tutorial {}

/// The reference of the kernel language.
#[doc = include_str!("../../docs/language.md")]
pub mod language {}

/// Who sees which write of a kernel.
#[doc = include_str!("../../docs/memory-model.md")]
pub mod memory_model {}

/// What to do with a wrong kernel.
#[doc = include_str!("../../docs/debugging-kernels.md")]
pub mod debugging_kernels {}

/// Kernels brought over from Triton.
#[doc = include_str!("../../docs/from-triton.md")]
pub mod from_triton {}

/// The page about attention.
#[doc = include_str!("../../docs/attention.md")]
pub mod attention {}

/// The page about gradients.
#[doc = include_str!("../../docs/autograd.md")]
pub mod autograd {}

/// The page about ops of the user.
#[doc = include_str!("../../docs/custom-ops.md")]
pub mod custom_ops {}

/// Dtypes and their promotion.
#[doc = include_str!("../../docs/dtypes.md")]
pub mod dtypes {}

/// Tensors: making, indexing, reducing.
#[doc = include_str!("../../docs/tensors.md")]
pub mod tensors {}

/// Language models and what they are made of.
#[doc = include_str!("../../docs/models.md")]
pub mod models {}

/// Fine-tuning and training of language models.
#[doc = include_str!("../../docs/train-language-models.md")]
pub mod train_language_models {}

/// Weights of 4 and 8 bits.
#[doc = include_str!("../../docs/quantization.md")]
pub mod quantization {}

/// Data sets, loaders, readers, transforms.
#[doc = include_str!("../../docs/data.md")]
pub mod data {}

/// Memory, streams and events.
#[doc = include_str!("../../docs/memory.md")]
pub mod memory {}

/// Weights and checkpoints.
#[doc = include_str!("../../docs/checkpoints.md")]
pub mod checkpoints {}

/// Elementwise ops as one kernel.
#[doc = include_str!("../../docs/fusion.md")]
pub mod fusion {}

/// Steps captured and replayed.
#[doc = include_str!("../../docs/graphs.md")]
pub mod graphs {}

/// Modules, layers and losses.
#[doc = include_str!("../../docs/nn.md")]
pub mod nn {}

/// The samples of `genesis train`.
#[doc = include_str!("../../docs/samples.md")]
pub mod samples {}

/// Optimizers and schedules.
#[doc = include_str!("../../docs/optim.md")]
pub mod optim {}

/// Mixed precision.
#[doc = include_str!("../../docs/amp.md")]
pub mod amp {}

/// Random numbers.
#[doc = include_str!("../../docs/random.md")]
pub mod random {}

/// Convolutions, pools and resizing.
#[doc = include_str!("../../docs/windows.md")]
pub mod windows {}

/// The profiler.
#[doc = include_str!("../../docs/profiler.md")]
pub mod profiler {}

/// The names of PyTorch.
#[doc = include_str!("../../docs/pytorch.md")]
pub mod pytorch {}

/// What changes for users of the Python original.
#[doc = include_str!("../../docs/migration.md")]
pub mod migration {}

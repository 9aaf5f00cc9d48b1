//! Integration tests of Genesis: one binary.

#![allow(missing_docs, reason = "tests")]

/// Hostile calls and damaged files.
mod abuse;
/// Mixed precision.
mod amp;
/// Every kernel of the framework through the assembler.
mod assemble;
/// Attention's two forms.
mod attention;
/// Gradients by the tape: order, freeing, in-place misuse.
mod autograd;
/// Prompts alone, in batches, in chunks and behind prefixes that are cached.
mod batch_invariance;
/// Where the copy engine may start.
mod bulk_copies;
/// Checkpoints: written whole, checked, resumed.
mod checkpoint;
/// Programs that are clusters of blocks.
mod cluster;
/// Calls whose answers PyTorch gave.
mod conform;
/// Convolutions against the definition.
mod conv;
/// Loaders of batches.
mod data;
/// Random programs everywhere.
mod differential;
/// Several processes that call collectives and train together.
mod distributed;
/// What every kernel compiles to, in counts.
mod emulate;
/// The program outside the workspace, as a module.
#[path = "../../docs/example/src/main.rs"]
mod example;
/// The one that trains a network with a kernel of its own.
#[path = "../../docs/example-train/src/main.rs"]
mod example_train;
/// Processes that end while their threads work.
mod exits;
mod extents;
mod facts;
/// How many launches ops of small tensors take.
mod few_launches;
mod float8;
mod fuse;
/// What a request generates, whatever happens around it.
mod generate;
mod generate_ahead;
mod generate_device;
/// Blocks of GGUF files against what Python's package makes of them.
mod gguf;
/// Whether there is a GPU, said aloud where there is none.
mod gpu;
/// Gradients of every op of the table.
mod gradients;
mod graphs;
mod grid_wait;
mod growth;
/// Matrix products for an sm_90a GPU through the assembler.
mod hopper;
mod kernel_cache;
/// The eight kernels of the language on every device.
mod language;
/// Which modules use which, and that none do so in circles.
mod layers;
/// Losses of linear layers without all logits in memory.
mod linear_cross_entropy;
/// Products of rows that keep their bits.
mod linear_rows;
/// Adapters whose rows have magnitudes.
mod lm_dora;
/// GGUF files of models and tokenizers.
mod lm_export;
mod lm_gradients;
/// Products of the same inputs as one in training.
mod lm_joined;
/// What memory a step takes.
mod lm_keeping;
mod lm_memory;
/// Learning from pairs of answers.
mod lm_preferences;
/// Events as TensorBoard reads them.
mod lm_tensorboard;
mod lm_training;
/// The framework's matrix product in every combination of layouts.
mod matmul;
/// What memory is used for, and what happens when there is no more.
mod memory;
mod methods;
mod mixed;
/// What products of models are computed from.
mod model_weights;
/// Models against `transformers`.
mod models;
/// The page of PyTorch's names.
mod names;
/// Layers and their state.
mod nn;
/// What dropout zeroes and keeps.
mod nn_dropout;
/// Layers made with hostile numbers.
mod nn_hostile;
/// How parameters start.
mod nn_init;
/// Linear layers and the activations after them.
mod nn_joined;
/// Layers and losses beside PyTorch's.
mod nn_layers;
/// What modules are made of, and what all of them can do.
mod nn_module;
/// One rounding, NaN, signs of zeros.
mod norm_rows;
mod numerics;
/// The page of ops, docs/ops.md.
mod op_page;
/// Every op of the table against its f64 reference, on every dtype and layout.
mod ops;
/// Optimizers beside PyTorch's.
mod optim;
mod optim_8bit;
mod optim_in_backward;
mod optim_schedule;
mod order;
/// The manifest of the program outside the workspace.
mod outside;
/// Attention to a cache in pages.
mod paged;
mod paged_decode;
/// What kernels may take and make.
mod parameters;
/// Calls of every op against PyTorch.
mod parity;
/// What a program spends its time on.
mod peers;
mod places;
/// Plans of one GPU beside dry runs.
mod plan;
/// Products of integers and of f64 by tensor cores.
mod products;
mod profiler;
/// Weights of 4 and 8 bits.
mod quantized;
/// The code of products with them.
mod quantized_code;
/// Layers of them.
mod quantized_layers;
/// Seeds and states of the random generator.
mod ragged;
mod random;
/// Damaged and hostile files.
mod readers;
/// The reference of the language against the compiler's tables.
mod reference;
/// Where results of elementwise ops lie in memory.
mod result_layout;
/// What stands between a layer's products.
mod rotate;
/// The runtime on a real GPU.
mod runtime;
/// Tokens drawn on the device.
mod sample_tokens;
/// The samples of `genesis train`, and runs that are killed.
mod samples;
/// Every kernel a few times, for compute-sanitizer.
mod sanitize;
/// The server of language models.
mod serve;
/// What this machine lacks, said aloud.
mod skipped;
/// NaN, infinities, zeros of both signs, scalars and tensors of nothing.
mod special;
/// Kernels a thousand times, bit for bit.
mod split_k;
mod stream_norms;
mod stress;
/// Tokenizers and chat templates, against transformers.
mod text;
/// What a machine can check of the code itself.
mod tidy;
/// Losses beside PyTorch's, step by step.
mod training;
/// Configurations that launches pick where nothing was measured.
mod tuning;
/// What users read when a kernel is wrong.
mod ui;
/// Block sizes and warps of streaming kernels, timed.
mod variants;
/// Attention of packed sequences.
mod varlen;
mod view_lists;
/// The tests of the GPU on one that is emulated.
mod virtual_gpu;
/// What was wrong with the framework before this one.
mod weaknesses;
/// Folders of models beside transformers.
mod weights;

/// What `crate::prelude` is inside genesis-kernel, for the kernels taken from its sources.
mod prelude {
    pub(crate) use genesis_kernel::prelude::*;
}

//! Several processes, each with a GPU of its own, that train one model.
//!
//! ```no_run
//! use genesis::distributed::{self, DistributedDataParallel};
//! use genesis::nn::{Linear, Module};
//! use genesis::optim::{AdamW, AdamWOptions, Optimizer};
//! use genesis::Tensor;
//!
//! let group = distributed::init()?; // what torchrun, srun, mpirun or `genesis run` say
//! let model = Linear::new(512, 10, group.device())?;
//! let model = DistributedDataParallel::new(model, &group, Default::default())?;
//! let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
//! let x = Tensor::randn(&[64, 512], group.device())?; // this rank's part of the batch
//! model.forward(&x)?.square()?.mean()?.backward()?; // gradients are means over all ranks
//! optimizer.step()?;
//! # Ok::<(), genesis::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `world` | which process this is, by the variables of launchers |
//! | `store` | keys and values that rank 0 holds, over TCP |
//! | `meeting` | ranks wait for each other before they open communicators; one that can't says why |
//! | `group`, `shared`, `collective` | a process group and its collectives: NCCL's on GPUs; a group of one process needs none |
//! | `host` | collectives of processors, over the store |
//! | `work` | a collective that runs beside what the current stream is given |
//! | `recorder`, `watch` | the last collectives of each rank, and who is missing when one does not end |
//! | `mesh` | ranks along named axes |
//! | `ddp`, `buckets` | data parallel training |
//! | `zero`, `fully_shard`, `unit`, `clip` | the same with the optimizer's state, or all, in parts on the ranks |
//! | [`functional`], `tensor_parallel` | collectives with gradients, and layers in parts on several ranks |
//! | `context_parallel` | ring attention over parts of a sequence |
//! | `pipeline` | layers on several ranks, one after the other: 1F1B |
//! | `sync_batch_norm` | batch norm over the batches of all ranks |
//! | `parts` | the whole of a tensor's parts |
//! | `checkpoint` | checkpoints in parts, read by any number of ranks |
//! | `collected` | tensors of all ranks on the first |
//! | `ordered` | sums in the order of ranks, for audits |
//! | `uncounted` | forwards of ranks that have nothing to add |
//!
//! Collectives are called by all ranks of a group in the same order with equal shapes; with
//! `GENESIS_CHECK_COLLECTIVES=1` that is checked before each, and the ranks that differ are named.

mod buckets;
mod checkpoint;
mod clip;
mod collected;
mod collective;
mod context_parallel;
mod ddp;
mod fully_shard;
pub mod functional;
mod group;
mod host;
mod meeting;
mod mesh;
mod ordered;
mod parts;
mod pipeline;
mod recorder;
mod shared;
mod store;
mod sync_batch_norm;
mod tensor_parallel;
mod uncounted;
mod unit;
mod watch;
mod work;
mod world;
mod zero;

pub use checkpoint::{
    consolidate_checkpoint, consolidate_checkpoint_to, load_sharded_checkpoint,
    save_sharded_checkpoint,
};
pub(crate) use checkpoint::{part_of_state, rank_part};
pub use clip::clip_grad_norm_;
pub(crate) use collected::{Collected, collect};
pub use context_parallel::{
    context_parallel_attention, context_parallel_attention_with, context_part, context_whole,
};
pub use ddp::{DdpOptions, DistributedDataParallel};
pub use fully_shard::{FullyShard, FullyShardOptions, Sharding};
pub use genesis_kernel::runtime::nccl::{ReduceOp, nccl_version};
pub use group::{ProcessGroup, init, init_world};
pub use mesh::DeviceMesh;
pub(crate) use parts::{PartGroups, whole_of};
pub use pipeline::Pipeline;
pub use store::Store;
pub use sync_batch_norm::convert_sync_batch_norm;
pub use tensor_parallel::{
    ColumnParallelLinear, Parallel, RowParallelLinear, VocabParallelEmbedding, sum_gradients,
    vocab_parallel_cross_entropy,
};
pub(crate) use tensor_parallel::{shard_parameter, vocab_parallel_rows};
pub(crate) use uncounted::uncounted;
pub use work::Work;
pub use world::World;
pub use zero::ZeroOptimizer;

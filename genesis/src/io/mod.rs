//! Files: safetensors, GGUF, NumPy's formats, and checkpoints. A file appears whole or not at all.

mod checkpoint;
mod diff;
mod folder;
mod gguf;
mod joint;
mod manifest;
mod npy;
mod number;
mod rank_files;
mod runs;
mod safetensors;
mod sharded;
mod weights;
mod whole;
mod zip;

pub use crate::files::{Mapped, ReadLimits};
pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::SavedCheckpoint;
pub use diff::{Difference, diff_checkpoints};
pub use folder::{Best, Checkpoints, Keep, OnSaveError, Resumed};
pub use gguf::{
    GgmlType, GgufArray, GgufEntry, GgufField, GgufFile, GgufTensor, GgufType, GgufValue,
    write_gguf,
};
pub(crate) use joint::{Writing, complete, write_part};
pub use manifest::{CheckpointInfo, list_checkpoints, verify_checkpoint};
pub(crate) use manifest::{Entry, candidates, verify_share};
pub use npy::{load_npy, load_npz, load_npz_with, save_npy, save_npz};
pub(crate) use rank_files::{MODEL, OPTIMIZER, Place, RankFiles, RankPart, file_of};
pub(crate) use runs::{outermost, part_shape};
pub(crate) use safetensors::write_one_by_one;
pub use safetensors::{SafeTensorsFile, load_safetensors, save_safetensors, save_safetensors_with};
pub(crate) use sharded::save_sharded_by;
pub use sharded::{save_sharded, shard_names};
pub use weights::{Stored, Weights};
pub(crate) use whole::write_file;

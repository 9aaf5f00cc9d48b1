//! Files: safetensors, GGUF, NumPy's formats, and checkpoints. A file appears whole or not at all.

mod checkpoint;
mod diff;
mod folder;
mod gguf;
mod limits;
mod manifest;
mod mapped;
mod npy;
mod number;
mod safetensors;
mod sharded;
mod weights;
mod whole;
mod zip;

pub use checkpoint::Checkpoint;
pub use diff::{Difference, diff_checkpoints};
pub use folder::{Best, Checkpoints, Keep, OnSaveError, Resumed};
pub use gguf::{GgmlType, GgufArray, GgufFile, GgufTensor, GgufType, GgufValue};
pub use limits::ReadLimits;
pub(crate) use limits::{
    MOST_CONFIG, MOST_TOKENIZER, can_inflate, open_regular, read_at_most, read_bytes, read_regular,
    read_regular_text, read_text_at_most, shape_bytes,
};
pub use manifest::{CheckpointInfo, list_checkpoints, verify_checkpoint};
pub use mapped::Mapped;
pub use npy::{load_npy, load_npz, load_npz_with, save_npy, save_npz};
pub use safetensors::{SafeTensorsFile, load_safetensors, save_safetensors, save_safetensors_with};
pub use sharded::{save_sharded, shard_names};
pub use weights::{Stored, Weights};

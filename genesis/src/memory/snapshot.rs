//! Snapshots of memory: each live block with its tensor and the line that made it, as JSON.

use std::path::Path;

use genesis_kernel::runtime::{
    BlockInfo, BlockState, Device, MemorySnapshot, pinned_memory_snapshot,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A snapshot file: the memory of every device that was used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// The version of the format.
    pub version: u32,
    /// The devices.
    pub devices: Vec<DeviceRecord>,
}

/// The memory of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cpu`, `cuda:0`, `pinned host memory`.
    pub device: String,
    /// Bytes of live blocks.
    pub allocated: usize,
    /// The most of them at once.
    pub peak_allocated: usize,
    /// Bytes held from the system.
    pub reserved: usize,
    /// The most of them at once.
    pub peak_reserved: usize,
    /// The segments.
    pub segments: Vec<SegmentRecord>,
}

/// Memory that the system gave in one piece.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SegmentRecord {
    /// The number of the stream in whose order it is used; 0 is the default one.
    pub stream: u64,
    /// The private pool of a graph that it is of.
    pub pool: Option<u64>,
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
    /// Its blocks, in order.
    pub blocks: Vec<BlockRecord>,
}

/// A piece of a segment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
    /// What was asked for; 0 of a block that is not live.
    pub requested: usize,
    /// `live`, `free`, or `waiting` for a stream.
    pub state: String,
    /// The dtype of the tensor in it.
    pub dtype: Option<String>,
    /// The shape of the tensor in it.
    pub shape: Vec<u64>,
    /// The line that made it, where lines were recorded.
    pub line: Option<String>,
}

/// The version of the format that is written, and read.
const VERSION: u32 = 1;

/// Every segment and block of a device, now.
///
/// # Errors
/// If the device can't be used.
pub fn memory_snapshot(device: Device) -> Result<DeviceRecord> {
    Ok(record(&device.memory_snapshot()?))
}

/// Writes a snapshot of every device that this process used to a file; `genesis mem view` makes a page
/// of it.
///
/// # Errors
/// If the file can't be written.
///
/// # Examples
/// ```
/// use genesis::{Device, Tensor, memory};
///
/// memory::record_memory_history(true);
/// let weight = Tensor::zeros(&[300, 20], Device::Cpu)?;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("memory.json");
/// memory::dump_snapshot(&path)?;
/// let cpu = &memory::SnapshotFile::read(&path)?.devices[0];
/// let mut blocks = cpu.segments.iter().flat_map(|segment| &segment.blocks);
/// assert!(blocks.any(|block| block.shape == [300, 20] && block.line.is_some()));
/// # drop(weight);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dump_snapshot(path: impl AsRef<Path>) -> Result<()> {
    let mut devices = vec![memory_snapshot(Device::Cpu)?];
    for number in 0..Device::cuda_count() {
        devices.push(memory_snapshot(Device::Cuda(number))?);
    }
    devices.extend(pinned_memory_snapshot().map(|snapshot| record(&snapshot)));
    // A device that was not used has nothing to show.
    devices.retain(|device| device.device == "cpu" || !device.segments.is_empty());
    let file = SnapshotFile { version: VERSION, devices };
    let text = serde_json::to_string(&file).map_err(|error| Error::io(error.to_string()))?;
    let path = path.as_ref();
    std::fs::write(path, text).map_err(|error| named(path, &error))
}

impl SnapshotFile {
    /// Reads what [`dump_snapshot`] wrote.
    ///
    /// # Errors
    /// If there is no such file, or it is something else.
    pub fn read(path: impl AsRef<Path>) -> Result<SnapshotFile> {
        let path = path.as_ref();
        let text = crate::files::read_regular_text(path)?;
        let file: SnapshotFile = serde_json::from_str(&text).map_err(|error| {
            Error::io(format!("{}: no snapshot of memory: {error}", path.display()))
        })?;
        if file.version != VERSION {
            let message = format!(
                "{}: a snapshot of version {}, this program reads {VERSION}",
                path.display(),
                file.version
            );
            return Err(Error::io(message));
        }
        Ok(file)
    }
}

fn named(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("{}: {error}", path.display()))
}

fn record(snapshot: &MemorySnapshot) -> DeviceRecord {
    let segments = snapshot.segments.iter().map(|segment| SegmentRecord {
        stream: segment.stream,
        pool: segment.pool,
        address: segment.address,
        bytes: segment.bytes,
        blocks: segment.blocks.iter().map(block_record).collect(),
    });
    DeviceRecord {
        device: snapshot.device.clone(),
        allocated: snapshot.stats.allocated,
        peak_allocated: snapshot.stats.peak,
        reserved: snapshot.stats.reserved,
        peak_reserved: snapshot.stats.peak_reserved,
        segments: segments.collect(),
    }
}

fn block_record(block: &BlockInfo) -> BlockRecord {
    let state = match block.state {
        BlockState::Live => "live",
        BlockState::Free => "free",
        BlockState::Waiting => "waiting",
    };
    BlockRecord {
        address: block.address,
        bytes: block.bytes,
        requested: block.requested,
        state: state.to_owned(),
        dtype: block.label.dtype().map(|dtype| dtype.to_string()),
        shape: block.label.shape().to_vec(),
        line: block.site.as_ref().map(ToString::to_string),
    }
}

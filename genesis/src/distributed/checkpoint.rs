//! Checkpoints of models whose parameters lie in parts on several ranks.
//!
//! | file | what |
//! |---|---|
//! | `NUMBER-rank-R-of-N.safetensors` | the parameters, buffers and optimizer's state of a rank; which parts they are stands in the header |
//! | `manifest.json` | which files belong together; written last, by one rename |
//!
//! A save over an older one writes files of the next number, then the manifest, then removes the old files:
//! whatever moment a rank dies at, the folder has one whole checkpoint. A checkpoint is read by any number of
//! ranks: each copies what it needs out of the parts that there are, one tensor at a time.
//!
//! The files are those of a training run's checkpoint (`io::checkpoint`) whose ranks have parts: what reads one reads the
//! other, and the checkpoint of one rank too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::io::{
    MODEL, OPTIMIZER, Place, RankFiles, RankPart, SavedCheckpoint, file_of, outermost, part_shape,
    save_safetensors_with, write_file, write_one_by_one,
};
use crate::nn::{Module, Shard, handles};
use crate::optim::{Optimizer, State};
use crate::tensor::{Tensor, TensorType};
use genesis_kernel::runtime::Device;

const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "genesis-sharded-1";

/// Saves a module, and an optimizer if there is one, of which each rank has its part. All ranks of the group
/// call it, with a folder that all of them see.
///
/// # Errors
/// If a file can't be written; the checkpoint before it, if there is one, stays whole then.
pub fn save_sharded_checkpoint(
    folder: impl AsRef<Path>,
    module: &dyn Module,
    optimizer: Option<&dyn Optimizer>,
    group: &ProcessGroup,
) -> Result<()> {
    let folder = folder.as_ref();
    std::fs::create_dir_all(folder).map_err(|why| problem(folder, &why))?;
    let old = Manifest::read(folder).ok();
    let number = old.as_ref().map_or(0, |old| old.number + 1);
    let state = optimizer.map(|optimizer| optimizer.state_dict()).transpose()?.unwrap_or_default();
    let is_first = group.rank() == 0;
    // What is whole is the same on all ranks, but for the state, of which a rank may keep some parameters' only.
    let writes = |name: &str, shard: Option<&Shard>| {
        shard.is_some() || is_first || name.starts_with(OPTIMIZER)
    };
    let part = rank_part(module.state_dict(), &shards(module), state, &writes);
    let name = file_name(number, (group.rank(), group.size()));
    save_safetensors_with(folder.join(name), &part.tensors, &part.header())?;
    // Nobody goes on before all files are there, and nobody reads before the manifest is.
    group.barrier()?;
    if is_first {
        let manifest = json!({"format": FORMAT, "number": number, "ranks": group.size()});
        write_file(&folder.join(MANIFEST), &[format!("{manifest:#}\n").as_bytes()])?;
        for file in old.iter().flat_map(|old| old.files(folder)) {
            // What is left takes room and is in no manifest.
            let _ = std::fs::remove_file(file);
        }
    }
    group.barrier()
}

/// Reads a checkpoint of any number of ranks into a module and an optimizer. Each rank calls it, and reads what it needs;
/// checkpoints of [`Checkpoints`](crate::io::Checkpoints) are read too.
///
/// # Errors
/// If a file is missing or damaged, a tensor is missing or has another shape; what was read before stays.
pub fn load_sharded_checkpoint(
    folder: impl AsRef<Path>,
    module: &dyn Module,
    optimizer: Option<&mut dyn Optimizer>,
) -> Result<()> {
    let (files, numbers) = open(folder.as_ref())?;
    let shards = shards(module);
    for (name, tensor) in module.state_dict() {
        let shard = shards.get(&name).map(|shard| &**shard);
        let part = files.part(&format!("{MODEL}{name}"), shard, tensor.device())?;
        if part.shape() != tensor.shape() {
            let (saved, own) = (part.shape(), tensor.shape());
            let message = format!("`{name}` is {saved:?} in it, {own:?} here");
            return Err(Error::op("load_sharded_checkpoint", message));
        }
        no_grad(|| tensor.detach().copy_(&part.to_dtype(tensor.dtype())?))?;
    }
    let Some(optimizer) = optimizer else { return Ok(()) };
    let device = optimizer.parameters().first().map_or(Device::Cpu, Tensor::device);
    let tensors = part_of_state(&files, &shards, |_| true, device)?;
    optimizer.load_state_dict(&State { tensors, numbers })
}

/// The whole parameters and buffers of a checkpoint, on the CPU: for export.
///
/// # Errors
/// If a file is missing or damaged.
pub fn consolidate_checkpoint(folder: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    let (files, _) = open(folder.as_ref())?;
    let whole = |name: String| Ok((name.clone(), files.whole(&format!("{MODEL}{name}"))?));
    files.names(MODEL).into_iter().map(whole).collect()
}

/// Writes the whole parameters and buffers of a checkpoint to a safetensors file, one tensor at a time: a model that no
/// machine's memory holds can be put together. Any process does it by itself, while none writes to the folder.
///
/// # Errors
/// If a file is missing or damaged, or the new one can't be written.
/// # Cost
/// Memory for the largest tensor, twice.
pub fn consolidate_checkpoint_to(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<()> {
    let (files, _) = open(folder.as_ref())?;
    let names = files.names(MODEL).into_iter();
    let types = names.map(|name| {
        let ty = files.type_of(&format!("{MODEL}{name}"))?;
        Ok((name, ty))
    });
    let types = types.collect::<Result<BTreeMap<String, TensorType>>>()?;
    let listed = types.iter().map(|(name, ty)| (name.as_str(), ty)).collect();
    let whole = |name: &str| files.whole(&format!("{MODEL}{name}"));
    write_one_by_one(file.as_ref(), listed, &BTreeMap::new(), whole)
}

/// The parts of parameters that a module has, by name.
fn shards(module: &dyn Module) -> BTreeMap<String, Arc<Shard>> {
    let all = handles(module).into_iter();
    all.filter_map(|(name, parameter)| Some((name, parameter.shard()?.clone()))).collect()
}

/// What a rank writes of its tensors and its optimizer's state: that of which `writes` says so, by its name behind [`MODEL`] or
/// [`OPTIMIZER`] and the part that it is.
pub(crate) fn rank_part(
    model: BTreeMap<String, Tensor>,
    shards: &BTreeMap<String, Arc<Shard>>,
    state: State,
    writes: &dyn Fn(&str, Option<&Shard>) -> bool,
) -> RankPart {
    let mut part = RankPart { numbers: state.numbers, ..RankPart::default() };
    let mut put = |name: String, tensor: Tensor, shard: Option<&Arc<Shard>>| {
        if writes(&name, shard.map(|shard| &**shard)) {
            part.shards.extend(shard.map(|shard| (name.clone(), shard.clone())));
            part.tensors.insert(name, tensor.detach());
        }
    };
    for (name, tensor) in model {
        let shard = shards.get(&name);
        put(format!("{MODEL}{name}"), tensor, shard);
    }
    for (name, tensor) in state.tensors {
        // What is as long as a part is of the part; a number of a parameter is whole on each rank.
        let is_part = |shard: &&Arc<Shard>| tensor.shape() == part_shape(shard);
        let shard = shards.get(owner(&name)).filter(is_part);
        put(format!("{OPTIMIZER}{name}"), tensor, shard);
    }
    part
}

/// Of an optimizer's tensors those of the parameters that a rank has, cut as these are.
pub(crate) fn part_of_state(
    files: &RankFiles,
    shards: &BTreeMap<String, Arc<Shard>>,
    is_own: impl Fn(&str) -> bool,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for name in files.names(OPTIMIZER).into_iter().filter(|name| is_own(owner(name))) {
        let saved = format!("{OPTIMIZER}{name}");
        let ty = files.type_of(&saved)?;
        let shard = shards.get(owner(&name)).filter(|shard| outermost(shard).whole == ty.shape);
        let part = files.part(&saved, shard.map(|shard| &**shard), device)?;
        tensors.insert(name, part);
    }
    Ok(tensors)
}

/// The parameter whose state has this name.
fn owner(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(owner, _)| owner)
}

/// The files of a checkpoint, and the optimizer's numbers.
fn open(folder: &Path) -> Result<(RankFiles, BTreeMap<String, f64>)> {
    match Manifest::read(folder) {
        Ok(manifest) => {
            let mut files = RankFiles::open(&manifest.files(folder))?;
            let numbers = std::mem::take(&mut files.numbers);
            Ok((files, numbers))
        }
        // One of a run has another manifest.
        Err(error) => {
            let saved = SavedCheckpoint::open(folder).map_err(|_| error)?;
            let numbers = saved.numbers().cloned().unwrap_or_default();
            Ok((saved.tensors, numbers))
        }
    }
}

/// Which files belong together.
struct Manifest {
    number: u64,
    ranks: usize,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let bytes = crate::files::read_at_most(&path, 1 << 20)?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|why| problem(&path, &format!("is no JSON: {why}")))?;
        let number = |name: &str| value[name].as_u64();
        match (value["format"].as_str(), number("number"), number("ranks")) {
            (Some(FORMAT), Some(number), Some(ranks @ 1..=1_000_000)) => {
                Ok(Manifest { number, ranks: ranks as usize })
            }
            _ => Err(problem(&path, "is not of a checkpoint in parts")),
        }
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        let place = |rank| (rank, self.ranks);
        (0..self.ranks).map(|rank| folder.join(file_name(self.number, place(rank)))).collect()
    }
}

fn file_name(number: u64, place: Place) -> String {
    format!("{number}-{}", file_of(place))
}

fn problem(path: &Path, why: &(impl std::fmt::Display + ?Sized)) -> Error {
    Error::io(format!("{}: {why}", path.display()))
}

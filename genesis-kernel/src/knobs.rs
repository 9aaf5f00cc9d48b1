//! Every environment variable that Genesis reads.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::runtime::Device;

/// The values of the environment variables, read once.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// `GENESIS_DEVICE`: the default device.
    pub device: Option<Device>,
    /// `GENESIS_CACHE_DIR`: where compiled kernels are kept.
    pub cache_dir: Option<PathBuf>,
    /// `GENESIS_PTXAS`: the assembler of PTX, where it is in no usual place.
    pub ptxas: Option<PathBuf>,
}

/// The knobs of this process.
pub fn get() -> &'static Knobs {
    static KNOBS: OnceLock<Knobs> = OnceLock::new();
    KNOBS.get_or_init(|| Knobs {
        device: std::env::var("GENESIS_DEVICE").ok().and_then(|name| Device::from_name(&name)),
        cache_dir: std::env::var_os("GENESIS_CACHE_DIR").map(PathBuf::from),
        ptxas: std::env::var_os("GENESIS_PTXAS").map(PathBuf::from),
    })
}

//! What is recorded.

/// Which launches on a GPU are put between two of its time stamps.
///
/// Two time stamps cost the host about as much as a launch, and keep a kernel from being set up before the
/// one ahead of it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceTimes {
    /// None.
    Off,
    /// Of each kind of launch - the same code, grid and sizes - the first two, and then ever fewer. The
    /// others have the mean of those, and are marked: [`Launch::is_estimated`](super::Launch::is_estimated).
    #[default]
    Sampled,
    /// Each.
    All,
}

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Dtypes and shapes of what goes into ops.
    pub shapes: bool,
    /// What launches move and compute.
    pub work: bool,
    /// When GPUs begin and end kernels.
    pub device_times: DeviceTimes,
    /// Changes of memory in use.
    pub memory: bool,
    /// Ranges for NVIDIA's own profilers too, where `libnvToolsExt` is installed.
    pub nvtx: bool,
    /// What names the layer at work.
    pub module: Option<fn() -> Option<String>>,
    /// Every thread of the process, instead of the one that begins the session.
    pub all_threads: bool,
    /// Events that are kept; later ones are counted only.
    pub max_events: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            shapes: false,
            work: true,
            device_times: DeviceTimes::Sampled,
            memory: false,
            nvtx: false,
            module: None,
            all_threads: false,
            max_events: 1_000_000,
        }
    }
}

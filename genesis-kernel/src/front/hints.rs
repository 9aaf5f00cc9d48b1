//! What is known of a launch before it is there: promises about arguments, and choices that change its
//! speed.

/// What is known about the arguments before they are there. The default is nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hints {
    /// One for each parameter, in order; missing ones say nothing.
    pub params: Vec<ParamHint>,
    /// Warps that compute in one program on a GPU; the compiler chooses where absent.
    pub num_warps: Option<u32>,
    /// Iterations of loads in flight in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// Whether a program takes more than one point of the grid; the compiler decides where absent.
    pub persistent: Option<bool>,
    /// Blocks of threads that are one program on a GPU; one where absent.
    pub cluster: Option<u32>,
    /// Parameters, by bit, as of [`LaunchOptions::constant`].
    pub constant: u32,
}

/// What is known about one argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ParamHint {
    /// An integer is a multiple of this; a pointer, or a view's base, is aligned to this many bytes.
    /// 0 and 1 say nothing.
    pub multiple_of: u64,
    /// An integer that is 1.
    pub equals_one: bool,
    /// A view whose stride along the last axis is 1.
    pub unit_stride: bool,
    /// A view whose stride along this axis, another than the last, is 1.
    pub unit_axis: Option<u8>,
    /// A view whose stride along the last axis is 0: each row repeats one element.
    pub zero_stride: bool,
    /// A view whose stride along the axis before the last is 0: all rows are one.
    pub zero_row_stride: bool,
    /// A view whose strides along the axes but that of stride 1 (the last one where none is known),
    /// and whose extent along that one, are multiples of this many elements. 0 and 1 say nothing.
    pub stride_multiple_of: u64,
    /// A view whose extents are all in `0 .. 2^30` and whose strides are in `0 .. 2^31`.
    pub narrow: bool,
}

impl Hints {
    /// The choices among the hints.
    pub fn options(&self) -> LaunchOptions {
        let Hints { num_warps, num_stages, persistent, cluster, constant, .. } = *self;
        LaunchOptions { num_warps, num_stages, persistent, cluster, constant }
    }

    /// These hints with other choices.
    pub fn with_options(mut self, options: LaunchOptions) -> Hints {
        let LaunchOptions { num_warps, num_stages, persistent, cluster, constant } = options;
        (self.num_warps, self.num_stages) = (num_warps, num_stages);
        (self.persistent, self.cluster) = (persistent, cluster);
        self.constant = constant;
        self
    }
}

/// Choices about a launch that change its speed, not its results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LaunchOptions {
    /// Warps that compute in one program on a GPU, or in each block of its cluster; the compiler chooses
    /// where absent, and adds those that only load.
    pub num_warps: Option<u32>,
    /// Iterations of loads in flight in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// Whether as many programs run as the device holds at once and each takes several points of the
    /// grid, so that the loads of the next overlap the stores of the last. The compiler decides where
    /// absent.
    pub persistent: Option<bool>,
    /// Blocks of threads that are one program on a GPU of sm_90 or newer: 1, 2, 4, 8 or 16; one where
    /// absent. Each block holds a part of every tile, `num_warps` are those of one block, and sums over
    /// all parts go through the blocks' shared memory. It is for rows that one multiprocessor's
    /// registers can't hold, and for products on Hopper, of which blocks share an operand. The CPU has no
    /// use for it.
    pub cluster: Option<u32>,
    /// Arguments for reading, by bit, whose memory the kernel right ahead on the stream does not write, and the launch
    /// itself only through another argument, and no byte that it reads. Weights of a model that only answers are
    /// such. From sm_90 on a kernel may ask for them before the kernel ahead has ended. A launch that names one that
    /// is written may read what was there before.
    pub constant: u32,
}

impl LaunchOptions {
    /// Makes a choice by its name, such as `num_warps`; `persistent` is 0 or 1. False, and nothing changes,
    /// if there is none of the name or the number does not fit `u32`.
    pub fn set(&mut self, name: &str, value: i64) -> bool {
        let Ok(number) = u32::try_from(value) else { return false };
        match name {
            "num_warps" => self.num_warps = Some(number),
            "num_stages" => self.num_stages = Some(number),
            "persistent" => self.persistent = Some(number != 0),
            "cluster" => self.cluster = Some(number),
            _ => return false,
        }
        true
    }
}

//! PTX as the emulator runs it: registers by number, operands decoded, labels as positions.

/// A register of a thread, by its number in the program.
pub(super) type Reg = u32;

/// What an instruction takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arg {
    /// A register.
    Reg(Reg),
    /// A constant, or the address of something that is at the same place in every block.
    Imm(u64),
    /// An offset in the shared memory of the thread's block.
    Shared(u64),
}

/// An address: a base and an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Addr {
    pub(super) base: Arg,
    pub(super) offset: i64,
}

/// The type of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ty {
    Pred,
    B(u32),
    U(u32),
    S(u32),
    F16,
    Bf16,
    F32,
    F64,
    Tf32,
    /// Two of these in 32 bits.
    F16x2,
    Bf16x2,
    U16x2,
    S16x2,
    /// Two of these in 64 bits.
    F32x2,
    /// Two bytes each.
    E4m3x2,
    E5m2x2,
}

impl Ty {
    /// Its bits in a register.
    pub(super) fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B(bits) | Ty::U(bits) | Ty::S(bits) => bits,
            Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 16,
            Ty::F32 | Ty::Tf32 | Ty::F16x2 | Ty::Bf16x2 | Ty::U16x2 | Ty::S16x2 => 32,
            Ty::F64 | Ty::F32x2 => 64,
        }
    }

    /// Its bytes in memory.
    pub(super) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub(super) fn from_name(name: &str) -> Option<Ty> {
        let sized =
            |rest: &str| rest.parse().ok().filter(|bits| [8, 16, 32, 64, 128].contains(bits));
        Some(match name {
            "pred" => Ty::Pred,
            "f16" => Ty::F16,
            "bf16" => Ty::Bf16,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "tf32" => Ty::Tf32,
            "f16x2" => Ty::F16x2,
            "bf16x2" => Ty::Bf16x2,
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            "f32x2" => Ty::F32x2,
            "e4m3x2" => Ty::E4m3x2,
            "e5m2x2" => Ty::E5m2x2,
            _ => match name.split_at_checked(1)? {
                ("b", rest) => Ty::B(sized(rest)?),
                ("u", rest) => Ty::U(sized(rest)?),
                ("s", rest) => Ty::S(sized(rest)?),
                _ => return None,
            },
        })
    }
}

/// A comparison; `or_nan` makes it true where an operand is NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compare {
    Eq { or_nan: bool },
    Ne { or_nan: bool },
    Lt { or_nan: bool },
    Le { or_nan: bool },
    Gt { or_nan: bool },
    Ge { or_nan: bool },
    Num,
    Nan,
}

/// To which number a conversion or sum goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
    /// To nearest, halves away from zero.
    Away,
    /// To a whole number that is nearest.
    NearestInt,
    ZeroInt,
    DownInt,
    UpInt,
}

/// What a lane computes of at most three operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alu {
    Mov,
    Add,
    Sub,
    Mul,
    MulHigh,
    /// Twice as wide as its operands.
    MulWide,
    MadWide,
    Fma,
    Div,
    Rem,
    Min {
        nan: bool,
    },
    Max {
        nan: bool,
    },
    Abs,
    Neg,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    Select,
    Compare(Compare),
    Sqrt,
    Rsqrt,
    Rcp,
    /// With zeros in the place of numbers that are not normal.
    RcpFlush,
    /// The same.
    Ex2Flush,
    Ex2,
    Lg2,
    Tanh,
    Sin,
    Cos,
    CopySign,
    /// From the type given, saturated to 0 and 1 or not.
    Convert {
        from: Ty,
        round: Round,
        saturate: bool,
    },
    /// The first operand to the upper half.
    ConvertPair {
        saturate: bool,
    },
    Permute,
    BitField,
    FunnelLeft,
    FunnelRight,
    Population,
    LeadingZeros,
    Reverse,
    /// Any function of three bits, by its table.
    Logic(u8),
}

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Space {
    Generic,
    Global,
    Shared,
    Param,
    Local,
}

/// A number that only the machine knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Special {
    Thread(u8),
    Threads(u8),
    Block(u8),
    Blocks(u8),
    ClusterBlock(u8),
    ClusterBlocks(u8),
    ClusterRank,
    ClusterSize,
    Cluster(u8),
    Clusters(u8),
    Lane,
    Zero,
}

/// Who hands a value to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shuffle {
    Xor,
    Index,
    Up,
    Down,
}

/// What a fence orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fence {
    /// Accesses of threads.
    Threads,
    /// Accesses of threads, for the copy engine and the tensor cores.
    Proxy,
    /// Barriers made, for the copy engine and the cluster.
    BarrierInit,
}

/// What is done to a barrier in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnBarrier {
    Init {
        count: Arg,
    },
    Invalidate,
    Arrive {
        state: Option<Reg>,
        count: Arg,
        bytes: Option<Arg>,
    },
    ExpectBytes {
        bytes: Arg,
    },
    /// Whether the phase of a parity is over; a waiting one only comes back when it is.
    Test {
        over: Reg,
        parity: Arg,
        waits: bool,
    },
}

/// A copy of a box of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TensorCopy {
    pub(super) shared: Addr,
    pub(super) map: Addr,
    pub(super) coordinates: Vec<Arg>,
    /// The barrier that a load's bytes are counted by; none for a store.
    pub(super) barrier: Option<Addr>,
    /// The blocks of the cluster that a load goes to.
    pub(super) multicast: Option<Arg>,
    /// Whether a store adds.
    pub(super) adds: bool,
}

/// A product of the tensor cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Product {
    pub(super) columns: u32,
    pub(super) depth: u32,
    pub(super) types: [Element; 2],
    pub(super) sum: Sum,
    pub(super) sums: Vec<Reg>,
    /// The sums before; the registers themselves for `wgmma`.
    pub(super) before: Vec<Arg>,
    pub(super) a: Vec<Arg>,
    pub(super) b: Vec<Arg>,
    /// `wgmma`: whether it adds, factors, and which operands are transposed.
    pub(super) adds: Option<Arg>,
    pub(super) negates: [bool; 2],
    pub(super) transposed: [bool; 2],
}

/// An element that tensor cores multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
    F64,
}

/// What products are added in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sum {
    F32,
    /// Sums that wrap.
    S32,
    F64,
}

impl Element {
    /// How many share a register.
    pub(super) fn in_register(self) -> usize {
        (4 / self.bytes()).max(1) as usize
    }

    pub(super) fn bytes(self) -> u32 {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::Tf32 => 4,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 1,
            Element::F64 => 8,
        }
    }
}

/// Gives the old value. Of a swap, the first value is what memory must hold; several values to compute with go to places
/// side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Atomic {
    pub(super) what: Rmw,
    pub(super) space: Space,
    pub(super) ty: Ty,
    pub(super) to: Option<Reg>,
    pub(super) at: Addr,
    pub(super) args: Vec<Arg>,
}

/// What an instruction does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Alu {
        what: Alu,
        ty: Ty,
        to: Reg,
        args: [Arg; 3],
    },
    Pack {
        to: Reg,
        parts: Vec<Arg>,
        bits: u32,
    },
    Unpack {
        to: Vec<Option<Reg>>,
        from: Arg,
        bits: u32,
    },
    Special {
        to: Reg,
        what: Special,
    },
    Load {
        space: Space,
        ty: Ty,
        to: Vec<Option<Reg>>,
        at: Addr,
    },
    Store {
        space: Space,
        ty: Ty,
        from: Vec<Arg>,
        at: Addr,
    },
    /// A store whose bytes a barrier of the same block counts.
    Send {
        ty: Ty,
        from: Vec<Arg>,
        at: Addr,
        barrier: Addr,
    },
    Atomic(Atomic),
    Branch(usize),
    End,
    Trap,
    Nothing,
    Barrier {
        number: Arg,
        threads: Option<Arg>,
        waits: bool,
    },
    WarpBarrier,
    /// A relaxed one tells nothing of what its thread did.
    ClusterArrive {
        relaxed: bool,
    },
    ClusterWait,
    /// The address of the same place in another block of the cluster.
    MapRank {
        to: Reg,
        address: Arg,
        rank: Arg,
    },
    Shuffle {
        how: Shuffle,
        to: Reg,
        valid: Option<Reg>,
        from: Arg,
        by: Arg,
        clamp: Arg,
    },
    Vote {
        how: Vote,
        to: Reg,
        from: Arg,
        negated: bool,
    },
    Elect {
        to: Reg,
    },
    WarpReduce {
        what: Alu,
        ty: Ty,
        to: Reg,
        from: Arg,
    },
    Fence(Fence),
    Copy {
        to: Addr,
        from: Addr,
        bytes: u32,
        taken: Option<Arg>,
    },
    CopyCommit,
    CopyWait {
        pending: Option<u32>,
    },
    OnBarrier {
        what: OnBarrier,
        at: Addr,
    },
    TensorCopy(Box<TensorCopy>),
    BulkCommit,
    BulkWait {
        pending: u32,
    },
    LoadMatrix {
        to: Vec<Reg>,
        at: Addr,
        transposed: bool,
    },
    StoreMatrix {
        from: Vec<Arg>,
        at: Addr,
        transposed: bool,
    },
    WarpProduct(Box<Product>),
    GroupProduct(Box<Product>),
    ProductCommit,
    ProductWait {
        pending: u32,
    },
    /// `vprintf`: where its format is, and where the values it prints.
    Print {
        format: Arg,
        values: Arg,
    },
}

/// What an atomic does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rmw {
    Exchange,
    CompareSwap,
    Do(Alu),
}

/// What a vote tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vote {
    All,
    Any,
    Ballot,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inst {
    /// Lanes where this predicate is true, or false, do it.
    pub(super) guard: Option<(Reg, bool)>,
    pub(super) action: Action,
    /// Its line in the PTX, from 1.
    pub(super) line: u32,
    /// File, line and column of the kernel's source, where the PTX says them.
    pub(super) source: Option<(u32, u32, u32)>,
}

/// A parameter of the entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ParamSlot {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// An entry point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Program {
    /// Its symbol.
    pub(super) name: String,
    pub(super) insts: Vec<Inst>,
    pub(super) n_regs: usize,
    pub(super) params: Vec<ParamSlot>,
    /// Blocks of a cluster along x, y and z.
    pub(super) cluster: [u32; 3],
    /// Source files by number.
    pub(super) files: Vec<(u32, String)>,
    /// Texts, by their addresses.
    pub(super) texts: Vec<(u64, String)>,
    /// Bytes of a thread's own memory.
    pub(super) local_bytes: usize,
}

/// Addresses of texts start here.
pub(super) const TEXT_BASE: u64 = 1 << 59;
/// Addresses of a thread's own memory start here.
pub(super) const LOCAL_BASE: u64 = 1 << 58;
/// Addresses of parameters start here.
pub(super) const PARAM_BASE: u64 = 1 << 57;
/// What generic addresses of shared memory are above the shared ones.
pub(super) const SHARED_BASE: u64 = 1 << 56;
/// The shared memory of the next block of a cluster is this much further.
pub(super) const RANK_SHIFT: u32 = 24;

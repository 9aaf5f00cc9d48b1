//! Types of tile IR: dtypes, shapes, tiles and views.
//!
//! A value is a *tile*: an element type and up to five extents. A scalar is a tile of rank 0, so that
//! one set of ops serves both. Extents are the ones the user wrote: the passes of a back end that
//! wants powers of two pad and mask, the interpreter and the CPU take any extent as it is.
//!
//! Printed: `f32` (scalar), `bf16[128x64]`, `*f32[1024]` (a tile of pointers), `view<f32,2>`.

use std::fmt;

/// The type of one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DType {
    /// True or false, one byte in memory.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits; the type of indices.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// 8 bits, 4 of them the exponent; no infinity. For storage: see [`super::float8`].
    F8E4M3,
    /// 8 bits, 5 of them the exponent. For storage: see [`super::float8`].
    F8E5M2,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl DType {
    /// Every dtype, in order.
    pub const ALL: [DType; 15] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// The name users write: `f32`, `bool`, ...
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes of one element in memory.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Bits of the value: 1 for bool, else 8 times the bytes.
    pub fn bits(self) -> u32 {
        if self == DType::Bool { 1 } else { self.bytes() as u32 * 8 }
    }

    /// Whether its bits are a float's: f8e4m3, f8e5m2, f16, bf16, f32 or f64.
    pub const fn is_float(self) -> bool {
        self.is_f8() || matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether it is a float of 8 bits, with which nothing is computed but products of tiles.
    pub const fn is_f8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// Whether it is a float that arithmetic knows: f16, bf16, f32 or f64.
    pub fn is_arithmetic_float(self) -> bool {
        self.is_float() && !self.is_f8()
    }

    /// Whether arithmetic knows it: the integers, and the floats but those of 8 bits.
    pub fn is_number(self) -> bool {
        self != DType::Bool && !self.is_f8()
    }

    /// The dtype in which `dot` adds products of this one; none where it multiplies no such tiles.
    ///
    /// ```
    /// # use genesis_kernel::ir::DType;
    /// assert_eq!(DType::BF16.accumulator(), Some(DType::F32));
    /// assert_eq!(DType::I8.accumulator(), Some(DType::I32));
    /// assert_eq!(DType::I64.accumulator(), None);
    /// ```
    pub const fn accumulator(self) -> Option<DType> {
        match self {
            DType::F64 => Some(DType::F64),
            DType::I8 | DType::U8 => Some(DType::I32),
            _ if self.is_float() => Some(DType::F32),
            _ => None,
        }
    }

    /// The dtype in which sums of this one are kept, `T::Acc` of the language: f32, f64 for f64, i32 for integers of 8 and
    /// 16 bits, and other integers themselves. None for bool.
    ///
    /// ```
    /// # use genesis_kernel::ir::DType;
    /// assert_eq!(DType::F8E4M3.sums_in(), Some(DType::F32));
    /// assert_eq!(DType::U16.sums_in(), Some(DType::I32));
    /// assert_eq!(DType::U64.sums_in(), Some(DType::U64));
    /// ```
    pub const fn sums_in(self) -> Option<DType> {
        match self {
            DType::I16 | DType::U16 => Some(DType::I32),
            dtype if dtype.accumulator().is_some() => dtype.accumulator(),
            dtype if dtype.is_int() => Some(dtype),
            _ => None,
        }
    }

    /// Whether it is an integer, signed or not; bool is not.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// Whether it is a signed integer.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// The unsigned integer of as many bits as an integer.
    pub fn unsigned(self) -> DType {
        match self {
            DType::I8 => DType::U8,
            DType::I16 => DType::U16,
            DType::I32 => DType::U32,
            DType::I64 => DType::U64,
            dtype => dtype,
        }
    }

    /// Whether it is an unsigned integer.
    pub fn is_unsigned_int(self) -> bool {
        self.is_int() && !self.is_signed_int()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The largest rank of a tile.
pub const MAX_RANK: usize = 5;

/// Extents of a tile, outermost first. Rank 0 is a scalar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Shape {
    rank: u8,
    extents: [u32; MAX_RANK],
}

impl Shape {
    /// The shape of a scalar.
    pub const SCALAR: Shape = Shape { rank: 0, extents: [0; MAX_RANK] };

    /// A shape with these extents.
    ///
    /// # Panics
    /// If there are more than [`MAX_RANK`] extents; front ends refuse that before they build a shape.
    pub fn new(extents: &[usize]) -> Shape {
        assert!(extents.len() <= MAX_RANK, "rank {} is over {MAX_RANK}", extents.len());
        let mut shape = Shape { rank: extents.len() as u8, ..Shape::SCALAR };
        for (slot, &extent) in shape.extents.iter_mut().zip(extents) {
            *slot =
                u32::try_from(extent).expect("an extent is at most 2^20, checked by the front end");
        }
        shape
    }

    /// The number of axes.
    pub fn rank(self) -> usize {
        self.rank as usize
    }

    /// Whether it is a scalar's shape.
    pub fn is_scalar(self) -> bool {
        self.rank == 0
    }

    /// The extent along `axis`.
    pub fn extent(self, axis: usize) -> usize {
        self.extents[..self.rank()][axis] as usize
    }

    /// All extents, outermost first.
    pub fn extents(self) -> Vec<usize> {
        self.extents[..self.rank()].iter().map(|&e| e as usize).collect()
    }

    /// The number of elements; 1 for a scalar.
    pub fn numel(self) -> usize {
        self.extents[..self.rank()].iter().map(|&e| e as usize).product()
    }

    /// The shape without `axis`.
    pub fn without(self, axis: usize) -> Shape {
        let mut extents = self.extents();
        extents.remove(axis);
        Shape::new(&extents)
    }

    /// The shape with `extent` inserted before `axis`.
    pub fn with(self, axis: usize, extent: usize) -> Shape {
        let mut extents = self.extents();
        extents.insert(axis, extent);
        Shape::new(&extents)
    }

    /// The shape both broadcast to: equal ranks with extents equal or 1, or one of them a scalar.
    pub fn broadcast(self, other: Shape) -> Option<Shape> {
        if self.is_scalar() {
            return Some(other);
        }
        if other.is_scalar() {
            return Some(self);
        }
        if self.rank != other.rank {
            return None;
        }
        let pairs = self.extents().into_iter().zip(other.extents());
        let extents: Option<Vec<usize>> = pairs
            .map(|(a, b)| match (a, b) {
                _ if a == b => Some(a),
                (1, n) | (n, 1) => Some(n),
                _ => None,
            })
            .collect();
        extents.map(|e| Shape::new(&e))
    }

    /// Whether a tile of this shape can be reshaped: on a GPU extents are padded to powers of two, and the
    /// elements have to stay where they belong.
    ///
    /// The axes are cut in the smallest groups of equal size on both sides. In a group of one axis on
    /// each side nothing moves; in another the flat order is kept if only the first axis has padding.
    pub(crate) fn reshapes_in_order(self, to: Shape) -> bool {
        let wide =
            |shape: Shape| shape.extents().into_iter().filter(|&e| e != 1).collect::<Vec<_>>();
        let (from, to) = (wide(self), wide(to));
        let plain = |group: &[usize]| group[1..].iter().all(|e| e.is_power_of_two());
        let (mut i, mut j) = (0, 0);
        while i < from.len() && j < to.len() {
            let (start_i, start_j) = (i, j);
            let (mut a, mut b) = (from[i], to[j]);
            (i, j) = (i + 1, j + 1);
            while a != b {
                if a < b {
                    a *= from[i];
                    i += 1;
                } else {
                    b *= to[j];
                    j += 1;
                }
            }
            if !plain(&from[start_i..i]) || !plain(&to[start_j..j]) {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `[128, 64]`, as a person writes it; `[]` for a scalar.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.extents[..self.rank()])
    }
}

/// What one element of a tile is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Elem {
    /// A number.
    Data(DType),
    /// The address of a number in global memory.
    Ptr(DType),
}

/// A tile: an element type and a shape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TileType {
    /// What each element is.
    pub elem: Elem,
    /// How many there are along each axis.
    pub shape: Shape,
}

impl TileType {
    /// A tile of numbers.
    pub fn data(dtype: DType, shape: Shape) -> TileType {
        TileType { elem: Elem::Data(dtype), shape }
    }

    /// A tile of addresses.
    pub fn ptr(dtype: DType, shape: Shape) -> TileType {
        TileType { elem: Elem::Ptr(dtype), shape }
    }

    /// The same element type with another shape.
    pub fn with_shape(self, shape: Shape) -> TileType {
        TileType { shape, ..self }
    }

    /// The same shape with numbers of another dtype.
    pub fn with_dtype(self, dtype: DType) -> TileType {
        TileType { elem: Elem::Data(dtype), ..self }
    }

    /// The dtype of the numbers, or of what the addresses point to.
    pub fn dtype(self) -> DType {
        match self.elem {
            Elem::Data(dtype) | Elem::Ptr(dtype) => dtype,
        }
    }

    /// Whether the elements are addresses.
    pub fn is_ptr(self) -> bool {
        matches!(self.elem, Elem::Ptr(_))
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elem {
            Elem::Data(dtype) => write!(f, "{dtype}")?,
            Elem::Ptr(dtype) => write!(f, "*{dtype}")?,
        }
        if self.shape.is_scalar() {
            return Ok(());
        }
        let extents: Vec<String> = self.shape.extents().iter().map(usize::to_string).collect();
        write!(f, "[{}]", extents.join("x"))
    }
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Type {
    /// A tile; a scalar is a tile of rank 0.
    Tile(TileType),
    /// A tensor in global memory with run-time extents and strides, loaded and stored by coordinates.
    View {
        /// The dtype of its elements.
        dtype: DType,
        /// The number of axes.
        rank: u8,
    },
}

impl Type {
    /// A scalar of this dtype.
    pub fn scalar(dtype: DType) -> Type {
        Type::tile(dtype, Shape::SCALAR)
    }

    /// A tile of numbers.
    pub fn tile(dtype: DType, shape: Shape) -> Type {
        Type::Tile(TileType::data(dtype, shape))
    }

    /// The tile type, where it is one.
    pub fn as_tile(self) -> Option<TileType> {
        match self {
            Type::Tile(tile) => Some(tile),
            Type::View { .. } => None,
        }
    }
}

impl From<TileType> for Type {
    fn from(tile: TileType) -> Type {
        Type::Tile(tile)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tile(tile) => tile.fmt(f),
            Type::View { dtype, rank } => write!(f, "view<{dtype},{rank}>"),
        }
    }
}

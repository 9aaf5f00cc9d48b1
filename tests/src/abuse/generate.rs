//! Arguments that callers should not give, and some that they should: a call of nothing but nonsense is refused at
//! its first check.

use std::fmt::{Arguments, Debug};

use genesis::data::SampleRng;
use genesis::nn::Module;
use genesis::ops::{
    Activation, Attention, AttentionBackend, BagMode, Bags, Classes, Conv, Ctc, GridMode,
    GridPadding, GridSample, Interpolation, LinearCrossEntropy, MultiMargin, PadMode, Reduction,
    Resize, ScaledMatmul, Triplet, Window,
};
use genesis::{
    Creation, DType, Device, GridOrder, Index, Result, RoundingMode, ScatterReduce, Tensor,
    Tolerance,
};

/// Where the integers end, and sizes that no memory holds.
const INTEGERS: [i64; 26] = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    33,
    64,
    255,
    1000,
    -1,
    -2,
    -3,
    -7,
    i32::MAX as i64,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
    -(1 << 40),
];
const SIZES: [usize; 8] = [
    usize::MAX,
    usize::MAX - 1,
    usize::MAX / 2,
    usize::MAX / 2 + 1,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
];
const FLOATS: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    0.5,
    -1.0,
    2.0,
    3.0,
    1e-8,
    1e20,
    -1e20,
    1e308,
    -1e308,
    5e-324,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    9.3e18,
    0.1,
];
const DTYPES: [DType; 16] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::I64,
    DType::I64,
    DType::Bool,
    DType::BF16,
    DType::F16,
    DType::I32,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::U32,
    DType::U64,
];

/// Draws the arguments of one call.
pub struct Gen {
    rng: SampleRng,
    /// The shape that tensors of this call tend to have, so that operands fit each other.
    shape: Vec<usize>,
    /// The dtype that they tend to have.
    dtype: DType,
    /// Whether most numbers are harmless, so that a call of many of them gets behind its checks.
    is_mild: bool,
    /// Whether what is drawn is printed, as soon as it is: a call may never return.
    is_told: bool,
    /// Bytes of the tensors drawn.
    pub bytes: usize,
    joint: Joint,
}

/// What the tensors drawn broadcast to, as far as they do.
struct Joint {
    shape: Vec<usize>,
    /// The most elements that it had.
    elements: usize,
    /// How many tensors have as many, one that requires a gradient twice.
    operands: usize,
}

impl Joint {
    fn add(&mut self, x: &Tensor) {
        self.operands += if x.requires_grad() { 2 } else { 1 };
        let extent = |shape: &[usize], from_last: usize| {
            shape.len().checked_sub(from_last + 1).map_or(1, |axis| shape[axis])
        };
        let joint = (0..self.shape.len().max(x.rank())).rev().map(|axis| {
            match [extent(&self.shape, axis), extent(x.shape(), axis)] {
                [1, n] | [n, 1] => Some(n),
                [m, n] => (m == n).then_some(n),
            }
        });
        if let Some(shape) = joint.collect::<Option<Vec<_>>>() {
            let elements = shape.iter().fold(1_usize, |all, &n| all.saturating_mul(n));
            self.elements = elements.max(self.elements);
            self.shape = shape;
        }
    }
}

/// A value that can be drawn.
pub trait Value: Debug + Sized {
    /// Draws one.
    fn draw(g: &mut Gen) -> Self;
}

impl Gen {
    /// The arguments of call `number`.
    pub fn new(number: u64, is_told: bool) -> Gen {
        let mut rng = SampleRng::new(number);
        let rank = if rng.below(40) == 0 { [5, 6, 8, 64, 100][rng.below(5)] } else { rng.below(5) };
        let extents = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 17];
        let shape: Vec<usize> = (0..rank)
            .map(|axis| if axis > 4 { 1 } else { extents[rng.below(extents.len())] })
            .collect();
        let dtype = DTYPES[rng.below(DTYPES.len())];
        let is_mild = rng.below(2) == 0;
        let joint = Joint { shape: Vec::new(), elements: 0, operands: 0 };
        Gen { rng, shape, dtype, is_mild, is_told, bytes: 0, joint }
    }

    /// Prints an argument, where the call is to be told.
    pub fn tell(&self, what: Arguments<'_>) {
        if self.is_told {
            println!("  {what}");
        }
    }

    /// Whether the next number is to be one that callers give.
    fn is_harmless(&mut self) -> bool {
        self.is_mild && self.below(16) > 0
    }

    /// An extent of the call's tensors, or another that layers have.
    pub fn extent(&mut self) -> usize {
        match self.shape.len() {
            n if n > 0 && self.below(3) > 0 => self.shape[self.rng.below(n)],
            _ => self.below(5),
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.below(n)
    }

    /// One of these.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len())].clone()
    }

    /// A value of the type that the call wants.
    pub fn v<T: Value>(&mut self) -> T {
        let value = T::draw(self);
        self.tell(format_args!("{value:?}"));
        value
    }

    /// A few of them, seldom many.
    pub fn list<T: Value>(&mut self) -> Vec<T> {
        let count = if self.below(30) == 0 { self.one(&[9, 64, 100]) } else { self.below(5) };
        let list: Vec<T> = (0..count).map(|_| T::draw(self)).collect();
        self.tell(format_args!("{list:?}"));
        list
    }

    /// The elements that the tensors drawn have once they are broadcast together.
    pub fn joint_elements(&self) -> usize {
        self.joint.elements
    }

    /// The bytes of the tensors drawn once they are broadcast together, and of gradients of that shape: what
    /// works element by element makes them, however small its result is.
    pub fn joint_bytes(&self) -> usize {
        let Joint { elements, operands, .. } = self.joint;
        if operands > 1 { elements.saturating_mul(8).saturating_mul(operands) } else { 0 }
    }

    /// Counts what a layer holds.
    pub fn holds(&mut self, layer: &dyn Module) {
        let all =
            layer.parameters().into_iter().chain(layer.named_buffers().into_iter().map(|b| b.1));
        self.bytes += all.map(|t| t.numel() * t.dtype().bytes()).sum::<usize>();
    }

    /// Extents: those of the call's tensors, or some that say more than memory holds.
    pub fn sizes(&mut self) -> Vec<usize> {
        match self.below(4) {
            0 => {
                let mut shape = self.shape.clone();
                if self.below(2) == 0 {
                    shape.reverse();
                }
                self.tell(format_args!("{shape:?}"));
                shape
            }
            1 => (0..self.below(4)).map(|_| self.below(5)).collect(),
            _ => self.list(),
        }
    }

    /// Where a tensor is made.
    pub fn at(&mut self) -> Creation {
        let dtype: DType = self.v();
        Creation { dtype, device: Device::Cpu }
    }

    /// A tensor, strided in every way that views come in.
    pub fn tensor(&mut self) -> Tensor {
        let tensor = self
            .try_tensor()
            .unwrap_or_else(|error| panic!("the harness can't make a tensor: {error}"));
        self.bytes += tensor.numel().saturating_mul(8).min(1 << 24);
        self.joint.add(&tensor);
        let (dtype, shape, strides) = (tensor.dtype(), tensor.shape(), tensor.strides());
        let offset = tensor.layout().offset();
        self.tell(format_args!("{dtype}{shape:?} by {strides:?} at {offset}"));
        tensor
    }

    fn try_tensor(&mut self) -> Result<Tensor> {
        let dtype = if self.below(3) > 0 { self.dtype } else { self.one(&DTYPES) };
        let mut shape = self.shape.clone();
        match self.below(8) {
            0 => shape.reverse(),
            1 => shape = (0..self.below(5)).map(|_| self.below(5)).collect(),
            2 if !shape.is_empty() => {
                let at = self.below(shape.len());
                shape[at] = self.below(4);
            }
            3 if self.below(4) == 0 => {
                // Nothing beside much.
                shape = vec![self.one(&[1 << 40, 1 << 62, 3]), 0, 1];
                let turn = self.below(3);
                shape.rotate_left(turn);
                return Tensor::zeros(&shape, dtype);
            }
            _ => {}
        }
        let count: usize = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.element()).collect();
        let x = Tensor::from_f64(&values, &shape, Creation { dtype, device: Device::Cpu })?;
        let rank = shape.len().max(1);
        let axis = self.below(rank) as i64;
        let x = match self.below(10) {
            0 if !shape.is_empty() => x.flip(&[axis])?,
            1 if !shape.is_empty() => x.transpose(axis, 0)?,
            2 if !shape.is_empty() => x.step(axis, 2)?,
            3 => {
                let mut wide = vec![self.one(&[2, 3, 64])];
                wide.extend(&shape);
                x.broadcast_to(&wide)?
            }
            4 if shape.first().is_some_and(|&n| n > 1) => x.narrow(0, 1, shape[0] - 1)?,
            _ => x,
        };
        if dtype.is_float() && self.below(6) == 0 {
            return x.detach().requires_grad_(true);
        }
        Ok(x)
    }

    /// Mostly numbers that are indices of something.
    fn element(&mut self) -> f64 {
        match self.below(12) {
            0 => self.one(&FLOATS),
            1 => self.one(&INTEGERS) as f64,
            _ => self.below(7) as f64 - 2.0,
        }
    }
}

/// Values drawn by an expression.
macro_rules! values {
    ($($type:ty: |$g:ident| $draw:expr;)*) => {
        $(impl Value for $type {
            fn draw($g: &mut Gen) -> $type {
                $draw
            }
        })*
    };
}

/// Structures whose fields are drawn.
macro_rules! structures {
    ($($type:ident $(<$n:ident>)? { $($field:ident),* $(,)? })*) => {
        $(impl$(<const $n: usize>)? Value for $type$(<$n>)? {
            fn draw(g: &mut Gen) -> Self {
                $type { $($field: Value::draw(g)),* }
            }
        })*
    };
}

pub(super) use {structures, values};

values! {
    i64: |g| if g.is_harmless() || g.below(2) == 0 { g.below(5) as i64 - 1 } else { g.one(&INTEGERS) };
    i32: |g| i64::draw(g) as i32;
    u32: |g| i64::draw(g) as u32;
    u64: |g| i64::draw(g) as u64;
    usize: |g| match g.below(5) {
        _ if g.is_harmless() => g.extent(),
        0 | 1 => g.below(5),
        2 => g.one(&SIZES),
        _ => i64::draw(g) as usize,
    };
    f32: |g| f64::draw(g) as f32;
    f64: |g| if g.is_harmless() || g.below(2) == 0 { g.below(9) as f64 / 4.0 } else { g.one(&FLOATS) };
    bool: |g| g.below(2) == 0;
    DType: |g| g.one(&DTYPES);
    Device: |g| if g.below(8) == 0 { Device::Cuda(u32::draw(g)) } else { Device::Cpu };
    Tensor: |g| g.tensor();
    Reduction: |g| g.one(&[Reduction::None, Reduction::Mean, Reduction::Sum]);
    RoundingMode: |g| g.one(&[RoundingMode::Trunc, RoundingMode::Floor]);
    GridOrder: |g| g.one(&[GridOrder::Ij, GridOrder::Xy]);
    AttentionBackend: |g| g.one(&[AttentionBackend::Auto, AttentionBackend::Flash, AttentionBackend::Composed]);
    BagMode: |g| g.one(&[BagMode::Sum, BagMode::Mean, BagMode::Max]);
    GridMode: |g| g.one(&[GridMode::Linear, GridMode::Nearest, GridMode::Cubic]);
    GridPadding: |g| g.one(&[GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection]);
    Activation: |g| g.one(&[Activation::Identity, Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu]);
    PadMode: |g| {
        let value = f64::draw(g);
        g.one(&[PadMode::Constant(value), PadMode::Reflect, PadMode::Replicate, PadMode::Circular])
    };
    ScatterReduce: |g| g.one(&[
        ScatterReduce::Sum, ScatterReduce::Prod, ScatterReduce::Mean, ScatterReduce::Amax, ScatterReduce::Amin,
    ]);
    Interpolation: |g| g.one(&[
        Interpolation::Nearest, Interpolation::NearestExact, Interpolation::Linear, Interpolation::Cubic,
        Interpolation::Area,
    ]);
    Resize: |g| if g.below(2) == 0 { Resize::To(g.sizes()) } else { Resize::By(g.list()) };
    Index: |g| match g.below(6) {
        0 | 1 => Index::At(i64::draw(g)),
        2 => Index::Range(Value::draw(g), Value::draw(g), i64::draw(g)),
        3 => Index::NewAxis,
        4 => Index::Ellipsis,
        _ => Index::Tensor(g.tensor()),
    };
    (usize, usize): |g| (Value::draw(g), Value::draw(g));
    (f64, f64): |g| (Value::draw(g), Value::draw(g));
    (f64, f64, f64): |g| (Value::draw(g), Value::draw(g), Value::draw(g));
    char: |g| g.one(&[',', ';', '\t', '"', '\n', '\0', '\u{1F600}', 'a', '1']);
}

impl<T: Value, const N: usize> Value for [T; N] {
    fn draw(g: &mut Gen) -> [T; N] {
        std::array::from_fn(|_| T::draw(g))
    }
}

impl<T: Value> Value for Option<T> {
    fn draw(g: &mut Gen) -> Option<T> {
        (g.below(2) == 0).then(|| T::draw(g))
    }
}

impl<T: Value> Value for Vec<T> {
    fn draw(g: &mut Gen) -> Vec<T> {
        g.list()
    }
}

structures! {
    Tolerance { relative, absolute, equal_nan }
    Conv { stride, padding, dilation, groups }
    Window { kernel, stride, padding, dilation, ceil }
    Classes { weight, ignore_index, label_smoothing, reduction }
    LinearCrossEntropy { classes, softcap, z_loss }
    MultiMargin { p, margin, weight, reduction }
    Triplet { margin, p, eps, swap, reduction }
    Ctc { blank, zero_infinity, reduction }
    GridSample { mode, padding, align_corners }
    Bags { mode, offsets, include_last_offset, per_sample_weights, padding_idx }
    ScaledMatmul { dtype, fast }
    Attention { mask, is_causal, dropout, scale, groups, window, softcap, backend }
}

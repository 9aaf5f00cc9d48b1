//! Code compiled so far, found by what a launch has in common with earlier ones.

use std::sync::{PoisonError, RwLock};

use super::args::ParamKind;
use super::request::{DenseLaunch, Launch, MAX_DENSE_OPERANDS};
use super::shape_constraints::ShapeConstraint;
use crate::compile::Executable;
use crate::front::{Hints, LaunchOptions, ParamHint};
use crate::ir::DType;
use crate::runtime::words::Newest;
use crate::runtime::{Arg, Device, ViewArg};

/// Arguments whose hints are looked at; the rest of a longer list gets none.
const MAX_HINTED: usize = 32;

/// What decides which code a launch runs.
pub(crate) struct Request<'a> {
    device: Device,
    dtypes: &'a [DType],
    consts: &'a [i64],
    options: LaunchOptions,
    /// One code for each argument: which promises hold for it.
    codes: [u8; MAX_HINTED],
    n_args: usize,
    /// Every extent and stride is in `0 .. 2^31`.
    narrow: bool,
}

/// Code with its key, and the kernel's parameters.
#[derive(Debug)]
pub(crate) struct Entry {
    hash: u64,
    device: Device,
    dtypes: Box<[DType]>,
    consts: Box<[i64]>,
    options: LaunchOptions,
    codes: [u8; MAX_HINTED],
    n_args: usize,
    narrow: bool,
    pub(crate) params: Vec<ParamKind>,
    pub(crate) shape_constraints: Vec<ShapeConstraint>,
    pub(crate) code: Executable,
}

/// The code of one kernel. A kernel is a static, and its code lives as long as the program: an entry is
/// found without a lock or a count of who holds it.
#[derive(Debug, Default)]
pub(crate) struct LaunchCache {
    /// Sorted by hash.
    entries: RwLock<Vec<&'static Entry>>,
    /// The entry found last, which most launches want again.
    last: Newest<Entry>,
}

// The bits of an argument's code.
const ALIGNED: u8 = 1;
const IS_ONE: u8 = 2;
const UNIT_STRIDE: u8 = 2;
const STRIDE_SHIFT: u8 = 2;
/// What the other strides are multiples of, by the two bits of the code.
const STRIDE_MULTIPLES: [u64; 4] = [0, 4, 8, 16];
/// Bytes of an aligned address, and what an integer is a multiple of.
const ALIGNMENT: u64 = 16;
/// The bit that says the code is a view's.
const IS_VIEW: u8 = 16;
/// The bit that says the code is an integer's.
const IS_INT: u8 = 32;
/// The bit that says a view's last stride is 0; an integer has another use for it.
const REPEATED: u8 = 32;
/// Where a view's axis of stride 1 is, if it is another than the last: its number plus 1. Where it is
/// the last, 1 if the stride before it is 0.
const AXIS_SHIFT: u8 = 6;

impl<'a> Request<'a> {
    #[inline]
    pub(crate) fn new(launch: &Launch<'a>) -> Request<'a> {
        let device = launch.stream.device();
        // The CPU's code is the same for any alignment: it compiles once for all.
        let aligned = if device.is_cuda() { ALIGNED } else { 0 };
        let mut codes = [0; MAX_HINTED];
        for (code, arg) in codes.iter_mut().zip(launch.args) {
            *code = arg_code(arg, aligned);
        }
        Request {
            device,
            dtypes: launch.dtypes,
            consts: launch.consts,
            options: launch.options,
            codes,
            n_args: launch.args.len(),
            narrow: device.is_cuda() && launch.args.iter().all(is_narrow),
        }
    }

    /// The same launch with no promise about addresses and strides, which all code holds for.
    pub(crate) fn unaligned(mut self) -> Request<'a> {
        self.codes.iter_mut().for_each(|code| *code &= !ALIGNED);
        self
    }

    /// Multiplies and folds a word at a time; the keys come from a program, not from an attacker.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let device = match self.device {
            Device::Cpu => 0,
            Device::Cuda(number) => u64::from(number) + 1,
        };
        let warps = u64::from(self.options.num_warps.map_or(0, |n| n + 1));
        let stages = u64::from(self.options.num_stages.map_or(0, |n| n + 1));
        let persistent = self.options.persistent.map_or(0, |is| u64::from(is) + 1);
        let cluster = u64::from(self.options.cluster.map_or(0, |n| n + 1));
        let mut hash = mix(
            device ^ u64::from(self.options.constant) << 32,
            warps << 48 | cluster << 32 | stages << 2 | persistent,
        );
        for &dtype in self.dtypes {
            hash = mix(hash, dtype as u64);
        }
        for &value in self.consts {
            hash = mix(hash, value as u64);
        }
        let hinted = self.n_args.min(MAX_HINTED).next_multiple_of(8);
        for codes in self.codes[..hinted].chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(codes);
            hash = mix(hash, u64::from_le_bytes(word));
        }
        mix(hash, (self.n_args as u64) << 1 | u64::from(self.narrow))
    }

    fn is_for(&self, entry: &Entry) -> bool {
        self.device == entry.device
            && self.n_args == entry.n_args
            && self.narrow == entry.narrow
            && self.codes == entry.codes
            && self.options == entry.options
            && *self.dtypes == *entry.dtypes
            && *self.consts == *entry.consts
    }

    /// What the codes promise.
    pub(crate) fn hints(&self) -> Hints {
        let n_hinted = self.n_args.min(MAX_HINTED);
        let hint = |&code: &u8| ParamHint {
            narrow: self.narrow && code & IS_VIEW != 0,
            ..param_hint(code)
        };
        let params = self.codes[..n_hinted].iter().map(hint).collect();
        Hints { params, ..Hints::default() }.with_options(self.options)
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// Whether a view's extents are all in `0 .. 2^30` and its strides in `0 .. 2^31`.
#[inline]
fn is_narrow(arg: &Arg) -> bool {
    let (Arg::View(view) | Arg::Views(view)) = arg else { return true };
    let numbers = view.dims().iter().zip(view.strides());
    numbers.fold(0, |all, (&dim, &stride)| all | dim | dim << 1 | stride) >> 31 == 0
}

#[inline]
fn arg_code(arg: &Arg, aligned: u8) -> u8 {
    match arg {
        Arg::Ptr(ptr) if ptr.address.is_multiple_of(ALIGNMENT) => aligned,
        Arg::Ptr(_) => 0,
        Arg::Scalar(scalar) => match scalar.dtype {
            DType::I32 | DType::I64 | DType::U32 | DType::U64 => match scalar.bits {
                1 => IS_INT | IS_ONE,
                bits if bits.is_multiple_of(ALIGNMENT) => IS_INT | aligned,
                _ => IS_INT,
            },
            _ => 0,
        },
        Arg::View(view) => view_code(view, aligned),
        // Check mode lays the memory of each view where it likes, but for what lies before the first element.
        Arg::Views(all) if all.strides().iter().any(|&stride| stride < 0) => view_code(all, 0),
        Arg::Views(all) => view_code(all, aligned),
    }
}

#[inline]
fn view_code(view: &ViewArg, aligned: u8) -> u8 {
    let mut code = IS_VIEW;
    if view.ptr.address.is_multiple_of(ALIGNMENT) {
        code |= aligned;
    }
    // What most views are: dense elements.
    if view.rank == 1 && view.strides[0] == 1 && view.dims[0] > 1 {
        return code | UNIT_STRIDE | multiple_code(view.dims[0] as u64, aligned);
    }
    // The stride of an axis of extent 1 is never multiplied by anything but 0: it may count as 1, but
    // an axis along which elements do follow each other says more.
    let (dims, strides) = (view.dims(), view.strides());
    let last = usize::from(view.rank).saturating_sub(1);
    let is_unit = |&axis: &usize| strides[axis] == 1 && dims[axis] > 1;
    let mut unit = last;
    let is_zero = |axis: usize| strides[axis] == 0 && dims[axis] > 1;
    if last < dims.len() && is_unit(&last) {
        code |= UNIT_STRIDE;
        if last > 0 && is_zero(last - 1) {
            code |= 1 << AXIS_SHIFT;
        }
    } else {
        if last < dims.len() && is_zero(last) {
            code |= REPEATED;
        }
        if let Some(axis) = (0..last.min(3)).rev().find(is_unit) {
            unit = axis;
            code |= (axis as u8 + 1) << AXIS_SHIFT;
        } else if last < dims.len() && dims[last] <= 1 {
            code |= UNIT_STRIDE;
        }
    }
    let mut multiples = 0;
    for (axis, (&dim, &stride)) in dims.iter().zip(strides).enumerate() {
        if axis == unit {
            multiples |= dim as u64;
        } else if dim > 1 {
            multiples |= stride as u64;
        }
    }
    code | multiple_code(multiples, aligned)
}

/// What strides are multiples of, as the two bits of the code.
#[inline]
fn multiple_code(multiples: u64, aligned: u8) -> u8 {
    match multiples.trailing_zeros() {
        _ if aligned == 0 => 0,
        0 | 1 => 0,
        zeros => (zeros.min(4) as u8 - 1) << STRIDE_SHIFT,
    }
}

fn param_hint(code: u8) -> ParamHint {
    let multiple_of = if code & ALIGNED != 0 { ALIGNMENT } else { 0 };
    if code & IS_VIEW != 0 {
        let (unit_stride, axis) = (code & UNIT_STRIDE != 0, code >> AXIS_SHIFT);
        ParamHint {
            multiple_of,
            equals_one: false,
            unit_stride,
            unit_axis: if unit_stride { None } else { axis.checked_sub(1) },
            zero_stride: code & REPEATED != 0,
            zero_row_stride: unit_stride && axis == 1,
            narrow: false,
            stride_multiple_of: STRIDE_MULTIPLES[(code >> STRIDE_SHIFT & 3) as usize],
        }
    } else {
        let equals_one = code & (IS_INT | IS_ONE) == IS_INT | IS_ONE;
        ParamHint { multiple_of, equals_one, ..ParamHint::default() }
    }
}

impl Entry {
    /// Whether it is code for dense operands of one length, each of which fits its parameter.
    #[inline]
    pub(crate) fn is_for_dense(&self, device: Device, dense: &DenseLaunch<'_>) -> bool {
        let (n, count) = (dense.len as u64, dense.operands.len());
        if !(2..1 << 31).contains(&n) || count > MAX_DENSE_OPERANDS || count != self.n_args {
            return false;
        }
        // What `view_code` says of each.
        let code = IS_VIEW | UNIT_STRIDE | ALIGNED | multiple_code(n, ALIGNED);
        let mut given = [0; MAX_DENSE_OPERANDS];
        given.copy_from_slice(&self.codes[..MAX_DENSE_OPERANDS]);
        let is_code = |(i, &given): (usize, &u8)| given == if i < count { code } else { 0 };
        self.narrow
            && self.device == device
            && given.iter().enumerate().all(is_code)
            && self.options == dense.options
            && *self.dtypes == *dense.dtypes
            && *self.consts == *dense.consts
            && self.params.iter().zip(dense.operands).all(|(p, ptr)| p.takes_dense(ptr, n, device))
    }
}

impl LaunchCache {
    pub(crate) const fn new() -> LaunchCache {
        LaunchCache { entries: RwLock::new(Vec::new()), last: Newest::new() }
    }

    /// The code for a request, if it was compiled before.
    #[inline]
    pub(crate) fn find(&self, request: &Request<'_>) -> Option<&'static Entry> {
        self.newest().filter(|entry| request.is_for(entry)).or_else(|| self.search(request))
    }

    /// The code that was found last.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&'static Entry> {
        self.last.get()
    }

    fn search(&self, request: &Request<'_>) -> Option<&'static Entry> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let hash = request.hash();
        let first = entries.partition_point(|entry| entry.hash < hash);
        let same_hash = entries[first..].iter().take_while(|entry| entry.hash == hash);
        let found = same_hash.copied().find(|entry| request.is_for(entry))?;
        self.last.set(found);
        Some(found)
    }

    /// Adds code for a request; where another thread was first, that one's is used.
    pub(crate) fn insert(
        &self,
        request: &Request<'_>,
        (params, shape_constraints): (Vec<ParamKind>, Vec<ShapeConstraint>),
        code: Executable,
    ) -> &'static Entry {
        if let Some(entry) = self.find(request) {
            return entry;
        }
        let entry: &Entry = Box::leak(Box::new(Entry {
            hash: request.hash(),
            device: request.device,
            dtypes: request.dtypes.into(),
            consts: request.consts.into(),
            options: request.options,
            codes: request.codes,
            n_args: request.n_args,
            narrow: request.narrow,
            params,
            shape_constraints,
            code,
        }));
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let position = entries.partition_point(|other| other.hash < entry.hash);
        entries.insert(position, entry);
        entry
    }

    /// How many specialisations have code.
    pub(crate) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Scalar;
    use crate::runtime::{Grid, PtrArg, Stream};

    fn ptr(address: u64) -> PtrArg {
        PtrArg { device: Device::Cpu, address, bytes: 1 << 20, dtype: DType::F32, mutable: true }
    }

    fn view(dims: &[i64], strides: &[i64]) -> Arg {
        Arg::View(ViewArg::new(ptr(64), dims, strides).unwrap())
    }

    fn hint(arg: Arg, aligned: u8) -> ParamHint {
        param_hint(arg_code(&arg, aligned))
    }

    #[test]
    fn promises_follow_from_the_arguments() {
        let none = ParamHint::default();
        let aligned = ParamHint { multiple_of: 16, ..none };
        assert_eq!(hint(Arg::Ptr(ptr(64)), ALIGNED), aligned);
        assert_eq!(hint(Arg::Ptr(ptr(72)), ALIGNED), none);
        let int = |value| hint(Arg::Scalar(Scalar::int(DType::I64, value)), ALIGNED);
        assert_eq!(int(48), aligned);
        assert_eq!((int(7), int(-1)), (none, none));
        assert_eq!(int(1), ParamHint { equals_one: true, ..none });
        assert_eq!(hint(Arg::Scalar(Scalar::float(DType::F32, 1.0)), ALIGNED), none);
    }

    #[test]
    fn a_view_is_narrow_up_to_31_bits() {
        let (most, limit) = ((1 << 30) - 1, i64::from(i32::MAX));
        let is = |dim, stride| is_narrow(&view(&[2, dim], &[stride, 1]));
        assert!(is(most, 1) && is(3, limit) && is(0, 0));
        assert!(
            !is(most + 1, 1)
                && !is(i64::MAX, 1)
                && !is(1 << 62, 1)
                && !is(3, limit + 1)
                && !is(3, -1)
                && !is(1 << 32, 1)
        );
        assert!(is_narrow(&Arg::Scalar(Scalar::int(DType::I64, 1 << 40))));
    }

    #[test]
    fn promises_follow_from_strides() {
        let unit = ParamHint { multiple_of: 16, unit_stride: true, ..ParamHint::default() };
        assert_eq!(hint(view(&[8, 5], &[5, 1]), ALIGNED), unit);
        assert_eq!(hint(view(&[8, 5], &[16, 1]), ALIGNED), unit);
        let rows_of = |n| hint(view(&[8, n], &[n, 1]), ALIGNED).stride_multiple_of;
        assert_eq!([2, 4, 8, 16, 32].map(rows_of), [0, 4, 8, 16, 16]);
        let columns = hint(view(&[8, 4], &[1, 8]), ALIGNED);
        assert!(!columns.unit_stride);
        assert_eq!((columns.unit_axis, columns.stride_multiple_of), (Some(0), 8));
        assert_eq!(hint(view(&[3, 8, 4], &[32, 1, 8]), ALIGNED).unit_axis, Some(1));
        assert_eq!(hint(view(&[8, 4], &[2, 16]), ALIGNED).unit_axis, None);
        assert!(hint(view(&[8, 1], &[3, 7]), ALIGNED).unit_stride);
        let column = hint(view(&[8, 5], &[1, 0]), ALIGNED);
        assert_eq!((column.unit_axis, column.zero_stride), (Some(0), true));
        let row = hint(view(&[8, 5], &[0, 1]), ALIGNED);
        assert!(row.unit_stride && row.zero_row_stride && row.unit_axis.is_none());
        assert!(!row.zero_stride && !unit.zero_row_stride);
        assert_eq!(hint(view(&[1, 16], &[3, 1]), ALIGNED).stride_multiple_of, 16);
        assert_eq!(hint(view(&[5], &[1]), ALIGNED), unit);
        assert_eq!(hint(view(&[24], &[1]), ALIGNED).stride_multiple_of, 8);
    }

    #[test]
    fn the_cpu_promises_no_alignment() {
        assert_eq!(hint(Arg::Ptr(ptr(64)), 0), ParamHint::default());
        let unit = ParamHint { unit_stride: true, ..ParamHint::default() };
        assert_eq!(hint(view(&[8, 16], &[16, 1]), 0), unit);
    }

    fn hash(consts: &[i64], dtypes: &[DType], args: &[Arg]) -> u64 {
        hash_with(LaunchOptions::default(), consts, dtypes, args)
    }

    fn hash_with(options: LaunchOptions, consts: &[i64], dtypes: &[DType], args: &[Arg]) -> u64 {
        let stream: Stream = Device::Cpu.stream();
        let grid = Grid::x(1);
        Request::new(&Launch { stream: &stream, grid, dtypes, consts, options, args }).hash()
    }

    #[test]
    fn what_differs_hashes_differently() {
        let with = |num_warps, num_stages, persistent| LaunchOptions {
            num_warps,
            num_stages,
            persistent,
            cluster: None,
            constant: 0,
        };
        let cluster = |n| LaunchOptions { cluster: Some(n), ..LaunchOptions::default() };
        let one = Arg::Scalar(Scalar::int(DType::I64, 1));
        let two = Arg::Scalar(Scalar::int(DType::I64, 2));
        let hashes = [
            hash(&[], &[], &[]),
            hash(&[0], &[], &[]),
            hash(&[1], &[], &[]),
            hash(&[1], &[DType::F32], &[]),
            hash(&[1], &[DType::BF16], &[]),
            hash(&[1], &[DType::BF16], &[one]),
            hash(&[1], &[DType::BF16], &[two]),
            hash(&[1], &[DType::BF16], &[two, two]),
            hash_with(with(Some(4), None, None), &[], &[], &[]),
            hash_with(with(None, Some(4), None), &[], &[], &[]),
            hash_with(with(None, None, Some(false)), &[], &[], &[]),
            hash_with(with(None, None, Some(true)), &[], &[], &[]),
            hash_with(cluster(1), &[], &[], &[]),
            hash_with(cluster(2), &[], &[], &[]),
        ];
        let mut distinct = hashes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), hashes.len());
        let three = Arg::Scalar(Scalar::int(DType::I64, 3));
        assert_eq!(hash(&[1], &[], &[two]), hash(&[1], &[], &[three]));
    }
}

//! Loads and stores of global memory.
//!
//! A vector of registers is one access of up to 16 bytes. Without a mask it is a plain LLVM vector load
//! or store; with one it is a predicated instruction as inline assembly, so that all loads of an op
//! are issued back to back, with no branch between them:
//!
//! ```text
//! @p ld.global.v4.b32 {a, b, c, d}, [address];      a, b, c, d keep `other` where p is false
//! ```
//!
//! `load_once` and its like name a policy of the second-level cache, as Triton's eviction hints do:
//!
//! ```text
//! createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
//! ld.global.L1::evict_first.L2::cache_hint.v4.b32 {a, b, c, d}, [address], policy;
//! ```
//!
//! Where threads hold copies of an element, all load it and one of them stores it.

use super::super::elementwise::{from_memory, to_memory};
use super::super::llvm::{Emitter, Ty, Val};
use super::lowering::Lowering;
use super::thread::in_block_of_rank;
use crate::Error;
use crate::ir::{Cache, DType, Elem, Op, Type, Value};
use crate::layout::Access;
use crate::machine::{self, Guard};

/// A vector of elements in memory as the words that one instruction moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Words {
    /// Elements of the vector.
    elements: u32,
    /// How many words.
    count: u32,
    /// Bits of a word.
    bits: u32,
    /// The letter of inline assembly for a register of the word.
    letter: char,
}

impl Words {
    fn new(dtype: DType, elements: u32) -> Words {
        let bytes = elements * dtype.bytes() as u32;
        let (bits, letter) = match (dtype, bytes) {
            (DType::F32, _) => (32, 'f'),
            (DType::F64, _) => (64, 'd'),
            (_, 1) => (8, 'r'),
            (_, 2) => (16, 'h'),
            _ if dtype.bytes() == 8 => (64, 'l'),
            _ => (32, 'r'),
        };
        Words { elements, count: (bytes * 8 / bits).max(1), bits, letter }
    }

    /// The LLVM type of a word in a register.
    fn ty(self, e: &Emitter) -> Ty {
        match (self.letter, self.bits) {
            ('f', _) => e.f32(),
            ('d', _) => e.f64(),
            // The smallest register that assembly knows for a byte.
            (_, 8) => e.i32(),
            (_, bits) => e.int_ty(bits),
        }
    }

    /// `v4.b32`
    fn suffix(self) -> String {
        let bits = self.bits;
        if self.count == 1 { format!("b{bits}") } else { format!("v{}.b{bits}", self.count) }
    }

    /// Elements as memory holds them, to words.
    fn pack(self, e: &Emitter, elements: &[Val]) -> Vec<Val> {
        if self.bits == 8 {
            return vec![e.zext(elements[0], e.i32())];
        }
        let each = elements.len() / self.count as usize;
        elements.chunks(each).map(|part| e.bitcast(e.build_vec(part), self.ty(e))).collect()
    }

    /// Words to elements as memory holds them.
    fn unpack(self, e: &Emitter, words: &[Val], element: Ty) -> Vec<Val> {
        if self.bits == 8 {
            return vec![e.trunc(words[0], element)];
        }
        let each = self.elements / self.count;
        let parts = words.iter().flat_map(|&word| {
            let vector = e.bitcast(word, e.vec(element, each));
            (0..each).map(move |i| (vector, i))
        });
        parts.map(|(vector, i)| e.extract(vector, i)).collect()
    }
}

/// `{$0, $1}`, or `$0` alone.
pub(super) fn operand_list(first: u32, count: u32) -> String {
    let all: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    if count == 1 { all.concat() } else { format!("{{{}}}", all.join(", ")) }
}

/// How an access treats the caches: what its instruction says, and the policy that it names.
#[derive(Clone, Copy, Default)]
pub(super) struct Cached {
    /// `.nc`: non-coherent.
    nc: bool,
    modifiers: &'static str,
    policy: Option<Val>,
    /// A load needs no order beside other accesses.
    readonly: bool,
}

impl Cached {
    /// A load with nothing said but what machine IR has selected.
    pub(super) fn usual(selected: machine::Cached) -> Cached {
        let machine::Cached { readonly, nc, streaming } = selected;
        let modifiers = if streaming { ".L1::no_allocate" } else { "" };
        Cached { nc, modifiers, policy: None, readonly }
    }
}

/// What the hints are to the first-level cache, with a policy for the second-level one.
const fn modifiers(cache: Cache) -> &'static str {
    match cache {
        Cache::Usual => "",
        Cache::Once => ".L1::evict_first.L2::cache_hint",
        Cache::Kept => ".L1::evict_last.L2::cache_hint",
    }
}

impl Lowering<'_> {
    /// How a load or store treats the caches: as its hint says, else as machine IR has selected.
    fn cached(&self, cache: Cache, selected: machine::Cached) -> Cached {
        let policy = |which: &str| {
            let text = format!("createpolicy.fractional.L2::{which}.b64 $0, 1.0;");
            self.e.inline_asm(self.e.i64(), &text, "=l", &[], false)
        };
        let policy = match cache {
            Cache::Usual => return Cached::usual(selected),
            Cache::Once => Some(policy("evict_first")),
            Cache::Kept => Some(policy("evict_last")),
        };
        Cached { modifiers: modifiers(cache), policy, ..Cached::usual(selected) }
    }

    pub(super) fn load(&mut self, op: Op) -> Result<(), Error> {
        self.load_where(op, None)
    }

    /// A load that is done where a condition holds, which all threads agree on; elsewhere it gives anything.
    pub(super) fn load_where(&mut self, op: Op, condition: Option<Val>) -> Result<(), Error> {
        let data = self.func.op(op);
        let operands = self.operands(op)?;
        let (ptr, mask, other) = (&operands[0], operands.get(1), operands.get(2));
        let selected = self.cached_by(op);
        let dtype = self.dtype(data.results[0]);
        let access = self.lir.access(op);
        let hint = data.cache;
        let cached = self.cached(hint, selected);
        let is_plain = mask.is_none() && condition.is_none() && cached.modifiers.is_empty();
        let mut registers: Vec<Option<Val>> = vec![None; ptr.len()];
        for (number, group) in access.groups.iter().enumerate() {
            let leader = group[0] as usize;
            let guard = self.guard(op, number);
            if guard == Guard::Never {
                let none = self.e.zero(self.e.register_ty(dtype));
                for &reg in group {
                    registers[reg as usize] = Some(other.map_or(none, |o| o[reg as usize]));
                }
                continue;
            }
            let vector = if !is_plain {
                let other: Option<Vec<Val>> =
                    other.map(|o| group.iter().map(|&reg| o[reg as usize]).collect());
                let on = mask.map(|mask| mask[leader]).filter(|_| guard == Guard::Masked);
                // LLVM's builder folds the condition where a loop's bounds are constants.
                let condition = condition.filter(|&on| on != self.e.bool(true));
                let on = match (on, condition) {
                    (Some(on), Some(condition)) => Some(self.e.and(on, condition)),
                    (one, other) => one.or(other),
                };
                self.load_asm(dtype, group.len(), ptr[leader], cached, (on, other))
            } else {
                self.load_plain(dtype, group.len(), ptr[leader], access.alignment, selected.nc)
            };
            for (&reg, value) in group.iter().zip(vector) {
                registers[reg as usize] = Some(value);
            }
        }
        let registers: Option<Vec<Val>> = registers.into_iter().collect();
        self.result(op, registers.ok_or_else(|| Error::bug("a load leaves registers out"))?)
    }

    pub(super) fn store(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let operands = self.operands(op)?;
        let (ptr, value, mask) = (&operands[0], &operands[1], operands.get(2));
        let dtype = self.dtype(data.operands[1]);
        let access = self.lir.access(op);
        let streaming = self.cached_by(op).streaming;
        let cached = self.cached(data.cache, machine::Cached::default());
        let space = if streaming { "global.cs" } else { "global" };
        let is_plain = !streaming && data.cache == Cache::Usual;
        for (number, group) in access.groups.iter().enumerate() {
            let leader = group[0] as usize;
            let guard = self.guard(op, number);
            if guard == Guard::Never {
                continue;
            }
            let mask = mask.map(|mask| mask[leader]).filter(|_| guard == Guard::Masked);
            let values: Vec<Val> =
                group.iter().map(|&reg| to_memory(self.e, dtype, value[reg as usize])).collect();
            match self.predicate(&access, mask) {
                None if is_plain => {
                    let vector = self.e.build_vec(&values);
                    self.e.store_aligned(vector, ptr[leader], access.alignment);
                }
                on => self.store_asm((space, cached), dtype, &values, ptr[leader], on),
            }
        }
        Ok(())
    }

    /// In which threads an access with a mask is done, as machine IR has selected.
    pub(super) fn guard(&self, op: Op, group: usize) -> Guard {
        self.facts.code.selection.masks.guard(op, group)
    }

    /// Whether this thread does an access that must be done once: its mask where it has one, and that it does not hold
    /// a copy. None where every thread does.
    pub(super) fn predicate(&mut self, access: &Access, mask: Option<Val>) -> Option<Val> {
        let Access { lane_copies, warp_copies, block_copies, .. } = *access;
        let first = self.threads.is_first(self.e, lane_copies, warp_copies, block_copies);
        match (mask, first) {
            (Some(mask), Some(first)) => Some(self.e.and(mask, first)),
            (one, other) => one.or(other),
        }
    }

    /// How an access treats the caches, as machine IR has selected.
    pub(super) fn cached_by(&self, op: Op) -> machine::Cached {
        self.facts.code.selection.cached.get(&op).copied().unwrap_or_default()
    }

    fn load_plain(
        &self,
        dtype: DType,
        elements: usize,
        ptr: Val,
        alignment: u32,
        nc: bool,
    ) -> Vec<Val> {
        let e = self.e;
        let ty = e.vec(e.memory_ty(dtype), elements as u32);
        let vector = e.load_aligned(ty, ptr, alignment);
        if nc {
            // Of global memory LLVM loads what is invariant by `ld.global.nc`.
            e.set_metadata(vector, "invariant.load", None);
        }
        let element = |i| from_memory(e, dtype, e.extract(vector, i));
        (0..elements as u32).map(element).collect()
    }

    /// A load as an instruction of its own: `cached` says how, `on` in which threads, and `other` is
    /// what stands where it is not done.
    pub(super) fn load_asm(
        &self,
        dtype: DType,
        elements: usize,
        ptr: Val,
        cached: Cached,
        (on, other): (Option<Val>, Option<Vec<Val>>),
    ) -> Vec<Val> {
        let e = self.e;
        let element = e.memory_ty(dtype);
        let words = Words::new(dtype, elements as u32);
        let other: Vec<Val> = match other {
            Some(other) => other.into_iter().map(|x| to_memory(e, dtype, x)).collect(),
            None => vec![e.zero(element); elements],
        };
        let n = words.count;
        let mut constraints: Vec<String> = vec![format!("={}", words.letter); n as usize];
        let (list, suffix) = (operand_list(0, n), words.suffix());
        let Cached { nc, modifiers, policy, readonly } = cached;
        let nc = if nc { ".nc" } else { "" };
        let (mut args, mut text) = match on {
            Some(on) => {
                constraints.extend((0..n).map(|i| i.to_string()));
                constraints.push("b".to_owned());
                let mut args = words.pack(e, &other);
                args.extend([on, ptr]);
                let (predicate, address) = (2 * n, 2 * n + 1);
                let text =
                    format!("@${predicate} ld.global{nc}{modifiers}.{suffix} {list}, [${address}]");
                (args, text)
            }
            None => (vec![ptr], format!("ld.global{nc}{modifiers}.{suffix} {list}, [${n}]")),
        };
        constraints.push("l".to_owned());
        if let Some(policy) = policy {
            // The words that stand for `other` share the numbers of the results.
            text += &format!(", ${}", args.len() + n as usize);
            args.push(policy);
            constraints.push("l".to_owned());
        }
        text.push(';');
        let ty = words.ty(e);
        let result = if n == 1 { ty } else { e.structure(&vec![ty; n as usize]) };
        let loaded = e.inline_asm(result, &text, &constraints.join(","), &args, !readonly);
        let loaded: Vec<Val> = match n {
            1 => vec![loaded],
            _ => (0..n).map(|i| e.extract_value(loaded, i)).collect(),
        };
        let elements = words.unpack(e, &loaded, element).into_iter();
        elements.map(|x| from_memory(e, dtype, x)).collect()
    }

    /// Writes one vector to shared memory, in the threads where `on` is true.
    pub(super) fn write_shared(
        &self,
        value: Value,
        registers: &[Val],
        address: Val,
        on: Option<Val>,
    ) {
        let e = self.e;
        let (dtype, parts): (DType, Vec<Val>) = match (self.is_ptr(value), self.dtype(value)) {
            (true, _) => (DType::I64, registers.iter().map(|&p| e.ptrtoint(p, e.i64())).collect()),
            (_, dtype) => (dtype, registers.iter().map(|&x| to_memory(e, dtype, x)).collect()),
        };
        match on {
            Some(_) => {
                self.store_asm(("shared", Cached::default()), dtype, &parts, address, on);
            }
            None => {
                let bytes = (dtype.bytes() * parts.len()) as u32;
                e.store_aligned(e.build_vec(&parts), address, bytes);
            }
        }
    }

    /// Writes one element to an address of shared memory in the block of a rank, in the threads where
    /// `on` is true.
    pub(super) fn store_dsmem(
        &self,
        value: Value,
        register: Val,
        (address, rank): (Val, Val),
        on: Option<Val>,
    ) {
        let e = self.e;
        let (dtype, part) = match (self.is_ptr(value), self.dtype(value)) {
            (true, _) => (DType::I64, e.ptrtoint(register, e.i64())),
            (_, dtype) => (dtype, to_memory(e, dtype, register)),
        };
        let address = in_block_of_rank(e, address, rank);
        self.store_asm(("shared::cluster", Cached::default()), dtype, &[part], address, on);
    }

    /// A store as an instruction of its own, in the threads where `on` is true.
    fn store_asm(
        &self,
        (space, cached): (&str, Cached),
        dtype: DType,
        values: &[Val],
        ptr: Val,
        on: Option<Val>,
    ) {
        let e = self.e;
        let words = Words::new(dtype, values.len() as u32);
        let n = words.count;
        let mut args = vec![ptr];
        args.extend(words.pack(e, values));
        args.extend(cached.policy);
        args.extend(on);
        let (suffix, list) = (words.suffix(), operand_list(1, n));
        let policy = cached.policy.map_or(String::new(), |_| format!(", ${}", n + 1));
        let guard = on.map_or(String::new(), |_| format!("@${} ", args.len() - 1));
        let modifiers = cached.modifiers;
        let text = format!("{guard}st.{space}{modifiers}.{suffix} [$0], {list}{policy};");
        let mut constraints = vec!["l".to_owned()];
        constraints.extend(vec![words.letter.to_string(); n as usize]);
        constraints.extend(cached.policy.map(|_| "l".to_owned()));
        constraints.extend(on.map(|_| "b".to_owned()));
        constraints.push("~{memory}".to_owned());
        e.inline_asm(e.void(), &text, &constraints.join(","), &args, true);
    }

    /// Whether a value is a tile of addresses.
    pub(super) fn is_ptr(&self, value: Value) -> bool {
        matches!(self.func.ty(value), Type::Tile(tile) if matches!(tile.elem, Elem::Ptr(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ptxas;
    use super::*;
    use crate::ir::{parse, print};
    use crate::prelude::*;
    use crate::target::Target;

    #[kernel]
    fn hinted<const N: usize>(x: View<f32, 1>, w: Ptr<f32>, y: ViewMut<f32, 1>) {
        let at = program_id(0) * N;
        let scale = load_kept(w + arange::<N>());
        y.store_once([at], x.load_once::<N>([at]) * scale);
        y.store_kept([at], y.load::<N>([at]) + load(w));
    }

    #[test]
    fn hints_reach_the_instructions() {
        let special =
            hinted::KERNEL.specialize(&[], &[512], &Hints::contiguous(hinted::KERNEL.ast));
        let special = special.expect("it is well formed");
        let tir = special.tir();
        for what in
            ["= load kept %", "= view_load once %", "view_store once %", "view_store kept %"]
        {
            assert!(tir.contains(what), "{what}: {tir}");
        }
        assert_eq!(print(&parse(&tir).expect("it reads back")), tir);
        for target in [Target::sm_80(), Target::sm_90a()] {
            let Target::Gpu(gpu) = &target else { continue };
            let compiled = special.compile(&target).expect("it compiles");
            let ptx = compiled.ptx().expect("a GPU's");
            let nc = if gpu.features.pdl { "" } else { ".nc" };
            for what in [
                &format!("ld.global{nc}.L1::evict_first.L2::cache_hint.v4.b32"),
                &format!("ld.global{nc}.L1::evict_last.L2::cache_hint.v4.b32"),
                "st.global.L1::evict_first.L2::cache_hint.v4.b32",
                "st.global.L1::evict_last.L2::cache_hint.v4.b32",
                "createpolicy.fractional.L2::evict_first.b64",
                "createpolicy.fractional.L2::evict_last.b64",
            ] {
                assert!(ptx.contains(what), "{what}: {ptx}");
            }
            // What says nothing is as it was.
            let last = format!("ld.global{nc}.b32");
            assert!(ptx.contains("ld.global.v4.b32") && ptx.contains(&last), "{ptx}");
            if let Some(assembler) = ptxas::find_or_skip() {
                ptxas::assemble(&assembler, ptx, gpu.name()).expect("it assembles");
            }
        }
        special.compile(&Target::Cpu).expect("other targets pass over hints");
    }

    #[test]
    fn vectors_become_words() {
        let words = |dtype, n| {
            let words = Words::new(dtype, n);
            (words.suffix(), words.letter)
        };
        assert_eq!(words(DType::F32, 4), ("v4.b32".into(), 'f'));
        assert_eq!(words(DType::BF16, 8), ("v4.b32".into(), 'r'));
        assert_eq!(words(DType::BF16, 2), ("b32".into(), 'r'));
        assert_eq!(words(DType::BF16, 1), ("b16".into(), 'h'));
        assert_eq!(words(DType::U8, 16), ("v4.b32".into(), 'r'));
        assert_eq!(words(DType::Bool, 1), ("b8".into(), 'r'));
        assert_eq!(words(DType::I8, 2), ("b16".into(), 'h'));
        assert_eq!(words(DType::I64, 2), ("v2.b64".into(), 'l'));
        assert_eq!(words(DType::F64, 1), ("b64".into(), 'd'));
        assert_eq!(words(DType::I32, 2), ("v2.b32".into(), 'r'));
    }

    #[test]
    fn lists_of_operands() {
        assert_eq!(operand_list(0, 1), "$0");
        assert_eq!(operand_list(2, 2), "{$2, $3}");
    }
}

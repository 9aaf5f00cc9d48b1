//! Alias analysis of global memory: which parameter a pointer comes from, and which accesses may meet.
//!
//! Accesses through different parameters never alias, since writable parameters are exclusive; those through one pointer
//! tile by the same threads stay in order by themselves.

use std::collections::BTreeMap;

use crate::ir::{Def, Func, Op, OpKind, Region, Value};
use crate::layout::LayoutIr;

/// Where an access to global memory goes, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryLocation {
    /// The parameter behind the pointer; none where it is not known.
    pub(crate) param: Option<u32>,
    /// The pointers, where each thread accesses only elements no other thread accesses through them.
    pub(crate) own: Option<Value>,
}

impl MemoryLocation {
    pub(crate) fn may_alias(self, other: MemoryLocation) -> bool {
        let apart = matches!((self.param, other.param), (Some(a), Some(b)) if a != b);
        let same_thread = self.own.is_some() && self.own == other.own;
        !apart && !same_thread
    }
}

/// An access to global memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GlobalAccess {
    pub(crate) location: MemoryLocation,
    pub(crate) writes: bool,
}

impl GlobalAccess {
    /// Notes the parameters of two accesses that may alias, of which one writes; all of them where it is not
    /// known which.
    pub(crate) fn note_aliasing(&self, other: &GlobalAccess, params: &mut [bool]) {
        if !(self.writes || other.writes) || !self.location.may_alias(other.location) {
            return;
        }
        for location in [self.location, other.location] {
            match location.param {
                Some(param) => params[param as usize] = true,
                None => params.fill(true),
            }
        }
    }
}

/// Which parameters the pointers of a function come from.
pub(crate) struct PointsTo<'a> {
    lir: &'a LayoutIr,
    /// The op that owns each region.
    owners: BTreeMap<Region, Op>,
}

impl<'a> PointsTo<'a> {
    pub(crate) fn new(lir: &'a LayoutIr) -> PointsTo<'a> {
        PointsTo { lir, owners: owners(&lir.func) }
    }

    /// What an access through these pointers may meet.
    pub(crate) fn location(&self, ptr: Value) -> MemoryLocation {
        let mut seen = Vec::new();
        let mut param = None;
        let known = self.find_param(ptr, &mut seen, &mut param);
        let copies = self
            .lir
            .layout(ptr)
            .is_none_or(|l| l.free_lanes() | l.free_warps() | l.free_blocks() != 0);
        MemoryLocation { param: param.filter(|_| known), own: (!copies).then_some(ptr) }
    }

    /// Finds the one parameter that pointers come from; false where there may be another.
    fn find_param(&self, ptr: Value, seen: &mut Vec<Value>, param: &mut Option<u32>) -> bool {
        if seen.contains(&ptr) {
            return true;
        }
        seen.push(ptr);
        if let Some(index) = self.lir.func.params.iter().position(|p| p.value == ptr) {
            let index = index as u32;
            return *param.get_or_insert(index) == index;
        }
        let sources = match self.lir.func.value(ptr).def {
            Def::Result(op, number) => self.sources_of_result(op, number as usize),
            Def::Argument(region, number) => self.sources_of_argument(region, number as usize),
        };
        sources.is_some_and(|all| all.into_iter().all(|v| self.find_param(v, seen, param)))
    }

    fn sources_of_result(&self, op: Op, number: usize) -> Option<Vec<Value>> {
        let data = self.lir.func.op(op);
        let yielded = |region: usize| {
            let last = self.lir.func.region(data.regions[region]).ops.last()?;
            let last = self.lir.func.op(*last);
            matches!(last.kind, OpKind::Yield).then(|| last.operands[number])
        };
        match &data.kind {
            kind if kind.is_view() => Some(vec![data.operands[0]]),
            OpKind::PtrAdd
            | OpKind::Split
            | OpKind::MultipleOf(_)
            | OpKind::ConvertLayout
            | OpKind::ViewPtr => Some(vec![data.operands[0]]),
            OpKind::Join => Some(data.operands.clone()),
            OpKind::Select => Some(data.operands[1..].to_vec()),
            OpKind::If => Some((0..2).filter_map(yielded).collect()),
            OpKind::For(_) => {
                Some([data.operands[3 + number]].into_iter().chain(yielded(0)).collect())
            }
            OpKind::While => Some([data.operands[number]].into_iter().chain(yielded(1)).collect()),
            _ => None,
        }
    }

    fn sources_of_argument(&self, region: Region, number: usize) -> Option<Vec<Value>> {
        let owner = self.owners.get(&region)?;
        match self.lir.func.op(*owner).kind {
            OpKind::For(_) => self.sources_of_result(*owner, number.checked_sub(1)?),
            OpKind::While => self.sources_of_result(*owner, number),
            _ => None,
        }
    }

    /// Whether threads see each other's stores through each parameter: two accesses of it may meet, and
    /// one writes. LLVM must not take such memory for one thread's own (`noalias`): no barrier would keep
    /// the accesses in order, since nobody else could know the memory.
    pub(crate) fn handed_on(&self) -> Vec<bool> {
        let mut shared = vec![false; self.lir.func.params.len()];
        self.hand_on(self.lir.func.body, false, &mut Vec::new(), &mut shared);
        shared
    }

    /// Goes through a region after the accesses `before` it, and adds those in it. In a loop, pointers are
    /// others in each iteration; outside of one, only one branch of an `if` runs.
    fn hand_on(
        &self,
        region: Region,
        in_loop: bool,
        before: &mut Vec<GlobalAccess>,
        shared: &mut [bool],
    ) {
        for &op in &self.lir.func.region(region).ops {
            let data = self.lir.func.op(op);
            if data.kind.is_pointer_access() {
                let writes = data.kind.is_pointer_write();
                let location = self.location(data.operands[0]);
                let own = location.own.filter(|_| !in_loop);
                let touch = GlobalAccess { location: MemoryLocation { own, ..location }, writes };
                before.iter().for_each(|earlier| touch.note_aliasing(earlier, shared));
                before.push(touch);
            }
            let in_loop = in_loop || data.kind.is_loop();
            let is_choice = matches!(data.kind, OpKind::If) && !in_loop;
            let n_before = before.len();
            let mut others = Vec::new();
            for &inner in &data.regions {
                self.hand_on(inner, in_loop, before, shared);
                if is_choice {
                    others.extend(before.drain(n_before..));
                }
            }
            before.append(&mut others);
        }
    }
}

fn owners(func: &Func) -> BTreeMap<Region, Op> {
    let ops = func.walk().into_iter();
    ops.flat_map(|op| func.op(op).regions.iter().map(move |&region| (region, op))).collect()
}

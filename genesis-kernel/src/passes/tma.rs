//! Tiles that tensor cores multiply come through the copy engine of an sm_90 GPU (TMA).
//!
//! A load of a view in a loop that only a `dot` uses, or that its left operand is computed from, becomes a `tma_load`: its tile goes to a slot of
//! a ring in shared memory and never to registers, and the `dot` reads it there. A store of what such
//! a `dot` made becomes a `tma_store`, where nothing reads the view later. What the copy engine asks of a view is known by its
//! parameter's promises, and that a tile starts at a multiple of 16 bytes along the contiguous axis by
//! the coordinate's divisor; where one is missing, the loads stay what they are.
//!
//! A tile that several products of a loop read is copied once, and a line that is loaded beside them comes
//! in their slots.
//!
//! ```text
//! %1 = view_load %a, %b, %i, %p : bf16[1x128x64]      %1 = tma_load 0, %b, %i, %p : bf16[128x64]
//! %2 = reshape %1 : bf16[128x64]                      %2 = tma_load 1, %b, %p, %j : bf16[64x256]
//! %3 = view_load %b, %b, %p, %j : bf16[1x64x256]  ->  %3 = dot ieee %1, %2, %acc : f32[128x256]
//! %4 = reshape %3 : bf16[64x256]
//! %5 = dot ieee %2, %4, %acc : f32[128x256]
//! ```

mod lines;
mod operand;
mod order;
mod plan;
mod registers;
mod source;
#[cfg(test)]
mod tests;

pub use self::plan::Options;
use self::plan::{Plan, TmaOperand};
use super::rebuild::{Rebuild, Rewrite};
use crate::diag::Diagnostic;
use crate::ir::{Func, Op, OpKind, Region, Value};
use crate::layout::warp_specialization;

/// The function with its loads and stores through the copy engine where that can be.
pub fn run(func: &Func, options: &Options) -> Func {
    rewritten(func, options).unwrap_or_else(|| func.clone())
}

/// Whether something reads every tile that the copy engine brings. Only who reads a slot frees it for the
/// next tile: it must hold of what code is made of.
pub fn every_tile_is_read(func: &Func) -> bool {
    let uses = func.count_uses();
    func.walk().into_iter().all(|op| {
        let data = func.op(op);
        !matches!(data.kind, OpKind::TmaLoad(_)) || uses[data.results[0].index()] > 0
    })
}

fn rewritten(func: &Func, options: &Options) -> Option<Func> {
    let mut plan = Plan::of(func, options)?;
    let mut rebuild = Rebuild::new(func);
    rebuild.new.tma = std::mem::take(&mut plan.tma);
    rebuild.copy_params();
    rebuild.body(&mut plan).ok()?;
    let is_separable = warp_specialization::producer(&rebuild.new).is_ok();
    is_separable.then_some(rebuild.new)
}

impl Rewrite for Plan {
    fn op(&mut self, rebuild: &mut Rebuild<'_>, op: Op, region: Region) -> Result<(), Diagnostic> {
        let old = rebuild.old;
        let data = old.op(op);
        if let Some(loads) = self.loads.get(&op).cloned() {
            self.load(rebuild, (op, region), &loads)?;
        } else if matches!(data.kind, OpKind::Dot { .. }) {
            self.product(rebuild, op, region)?;
        } else if let Some(&(n, tile)) = self.stores.get(&op) {
            let operands = [tile].into_iter().chain(data.operands[2..].iter().copied());
            let operands: Vec<_> = operands.map(|v| rebuild.get(v)).collect();
            rebuild.at(op, region).push(OpKind::TmaStore(n), &operands, &[], &[]);
        } else if !self.gone.contains(&op) {
            rebuild.copy(self, op, region)?;
        }
        Ok(())
    }
}

impl Plan {
    /// The loads that stand for one of the old function; that one too where others read it, until
    /// nothing does.
    fn load(
        &mut self,
        rebuild: &mut Rebuild<'_>,
        (op, region): (Op, Region),
        loads: &[TmaOperand],
    ) -> Result<(), Diagnostic> {
        let old = rebuild.old;
        if loads.iter().any(|load| load.only_for.is_some()) {
            rebuild.copy(self, op, region)?;
        }
        let coords: Vec<_> = old.op(op).operands[1..].iter().map(|&v| rebuild.get(v)).collect();
        for &brought in loads {
            let (kind, ty) = (OpKind::TmaLoad(brought.number), old.ty(brought.tile));
            let load = rebuild.at(op, region).push(kind, &coords, &[ty], &[]);
            let result = rebuild.new.op(load).results[0];
            match brought.only_for {
                Some(_) => self.shared.push((brought, result)),
                None => rebuild.set(brought.tile, result),
            }
        }
        Ok(())
    }

    /// A product, with the operands that were brought for it alone.
    fn product(
        &mut self,
        rebuild: &mut Rebuild<'_>,
        op: Op,
        region: Region,
    ) -> Result<(), Diagnostic> {
        let is_own = |(brought, _): &&(TmaOperand, Value)| brought.only_for == Some(op);
        let own: Vec<(TmaOperand, Value)> = self.shared.iter().filter(is_own).copied().collect();
        let others: Vec<Value> = own.iter().map(|(own, _)| rebuild.get(own.tile)).collect();
        for &(brought, result) in &own {
            rebuild.set(brought.tile, result);
        }
        rebuild.copy(self, op, region)?;
        for ((brought, _), other) in own.into_iter().zip(others) {
            rebuild.set(brought.tile, other);
        }
        Ok(())
    }
}

//! Which loads and stores of global memory pass by the caches.
//!
//! A load of memory that this kernel does not write may move. Where nobody else writes it either while the kernel runs, it
//! goes through the read-only path (`ld.global.nc`): a dependent kernel of programmatic dependent launch runs already
//! while its primary grid still writes, so there only `constant` memory does. The assembler would be free to move any
//! other load above `griddepcontrol.wait`, and did: the first rows of `min_cols` in tiles of 4 x 1024, which then had what
//! their memory held before.
//!
//! Where each address is used by one thread and at one time, in whole vectors and without a loop, a line that stays in
//! the first-level cache takes the place of one that is used again:
//!
//! ```text
//! %3 = load %x : f32[1024]       select 3 cache readonly streaming     ld.global.L1::no_allocate.v4.b32
//! %5 = load %table : f32[1024]   select 5 cache readonly nc            ld.global.nc.v4.b32
//! store %y, %3                   select 4 cache streaming              st.global.cs.v4.b32
//! ```
//!
//! What the kernel says itself (`load_once`, `load_kept`) goes before that. `GENESIS_STREAMING` switches streaming.

use super::selection::Cached;
use super::{Code, PointsTo};
use crate::ir::{Cache, Op, OpKind};
use crate::knobs::{self, Streaming};
use crate::layout::{LayoutIr, WIDEST_ACCESS};

/// Selects how each load and store treats the caches.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    choose(code, lir, knobs::get().streaming);
}

fn choose(code: &mut Code, lir: &LayoutIr, streams: Streaming) {
    let func = &lir.func;
    let points_to = PointsTo::new(lir);
    let walk = func.walk();
    let has_loops = walk.iter().any(|&op| func.op(op).kind.is_loop());
    for op in walk {
        let data = func.op(op);
        let is_load = match data.kind {
            OpKind::Load => true,
            OpKind::Store => false,
            _ => continue,
        };
        let is_once = || data.cache == Cache::Usual && !has_loops && is_streaming(lir, op);
        let param = points_to.location(data.operands[0]).param;
        let attrs = param.map(|param| &func.params[param as usize].attrs);
        let readonly =
            is_load && attrs.is_some_and(|attrs| attrs.readonly && !code.grid_wait.orders(attrs));
        let streaming = match is_load {
            true => readonly && streams.loads && is_once(),
            false => streams.stores && is_once(),
        };
        let nc = readonly && attrs.is_some_and(|attrs| !code.grid_wait.overlaps_writes(attrs));
        let cached = Cached { readonly, nc, streaming };
        if cached != Cached::default() {
            code.selection.cached.insert(op, cached);
        }
    }
}

/// Whether each address is used by one thread, in whole vectors.
fn is_streaming(lir: &LayoutIr, op: Op) -> bool {
    let access = lir.access(op);
    let dtype = lir.func.tile(lir.func.op(op).operands[0]).dtype();
    access.lane_copies | access.warp_copies | access.block_copies == 0
        && access.vector() * dtype.bytes() as u32 == WIDEST_ACCESS
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes, selected};

    /// A copy of a tile, and of its first elements once more.
    const COPY: &str = "
kernel copy(%x: *f32 readonly multiple_of 16, %y: *f32 exclusive multiple_of 16) {
  %0 = iota : i64[1024]
  %1 = broadcast %x : *f32[1024]
  %2 = ptr_add %1, %0 : *f32[1024]
  %3 = load %2 : f32[1024]
  %4 = load %x : f32
  %5 = broadcast %4 : f32[1024]
  %6 = add %3, %5 : f32[1024]
  %7 = broadcast %y : *f32[1024]
  %8 = ptr_add %7, %0 : *f32[1024]
  store %8, %6
  return
}
";

    #[test]
    fn what_nobody_writes_is_readonly() {
        let lir = assigned(COPY, 4);
        expect![[r#"
              ..
              return 10                               // return
            + select 3 cache readonly                 // load
            + select 4 cache readonly                 // load
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "cache_policy"));
    }

    #[test]
    fn what_a_primary_grid_may_write_is_not_read_through_the_read_only_path() {
        let count = |text: &str| {
            let selection = selected(&assigned(text, 4), RunBy::Block);
            selection.cached.values().filter(|cached| cached.nc).count()
        };
        assert_eq!(count(COPY), 0);
        let constant =
            COPY.replace("%x: *f32 readonly", "%w: *f32 readonly, %x: *f32 readonly constant");
        // Loads of constant memory that come before the wait keep their place, those behind it need not.
        assert_eq!(count(&constant), 0);
        let behind = constant.replace("  %0 = iota", "  %20 = load %w : f32\n  %0 = iota");
        assert_eq!(count(&behind), 2);
    }

    #[test]
    fn whole_vectors_of_one_thread_stream_where_that_is_wanted() {
        let lir = assigned(COPY, 4);
        let mut code = crate::machine::golden::begun(&lir);
        choose(&mut code, &lir, Streaming { loads: true, stores: true });
        expect![[r#"
            select 3 cache readonly streaming       // load
            select 4 cache readonly                 // load
            select 9 cache streaming                // store
        "#]]
        .assert_eq(&code.selection.text(&lir.func));
        assert_eq!(selected(&lir, RunBy::Block).cached.len(), 2);
    }
}

//! Ping-pong schedules: each warpgroup issues its MMAs while the other computes.
//!
//! **Over tiles**, two consumers alternate: see [`crate::layout::ping_pong`]. A consumer waits for its turn ahead of its main
//! loop, and says that it has ended; in a tile of the other one it only advances the pipeline state. What stands ahead of the
//! main loop, such as loads of the tile that is added to, runs beside the other one's, like the epilogue.
//!
//! **In a main loop with two MMAs**, the warpgroups of a tile issue their MMAs in order. Without it all warpgroups would
//! multiply at one time and compute (softmax) at another. A warpgroup waits at an order barrier before it issues the first
//! MMA, and arrives at the next warpgroup's after the last, as FlashAttention-3 schedules its warpgroups:
//!
//! ```text
//! group 0    wait  s = q k, o += w v issue  arrive  max, exp2 of s ...          wait ...
//! group 1                                   wait    s, o += w v issue   arrive  max, exp2 of s
//! ```
//!
//! An order barrier is a named barrier of the warpgroup's own threads, which wait, and those of the one before, which
//! arrive. All warpgroups run every iteration, as a loop's bounds are uniform over the block, so the order is
//! round-robin. The last warpgroup arrives once more at the end, for a wait that never comes.
//!
//! On an H200 attention of heads of 128 in two groups takes 1 to 2 % less time by it; four groups, of heads of 64, take
//! 1 to 2 % more, and have none.

use super::tma_pipeline::skip_loads;
use super::{Block, Code, Inst, MmaWait, SharedMemory, expand, producer_ir};
use crate::ir::{Func, Op, OpKind, Region};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::ping_pong_loop;

/// Warpgroups whose MMAs are issued in order.
const GROUPS: u32 = 2;

/// Adds the turns of a ping-pong schedule, over tiles or in the main loop.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, memory: &SharedMemory) {
    match ping_pong_loop(lir) {
        Some(shared) => over_tiles(code, lir, memory, shared),
        None => {
            for [first, last] in pairs(lir) {
                issue_in_order(first, last, &mut code.body);
            }
        }
    }
}

/// Whether the warpgroups of a tile issue their MMAs in turns.
pub(crate) fn has_turns(lir: &LayoutIr) -> bool {
    ping_pong_loop(lir).is_none() && !pairs(lir).is_empty()
}

/// Two consumers alternate over the iterations of a loop.
fn over_tiles(code: &mut Code, lir: &LayoutIr, memory: &SharedMemory, shared: Op) {
    let Some(producer) = &lir.producer else { return };
    let producer = producer_ir(producer, lir);
    let skipped = loop_body(&expand::run(&producer, memory).body, shared).map(|mut block| {
        skip_loads(&producer, &mut block);
        block
    });
    let [first, last] = main_loop(&lir.func, shared);
    for inst in &mut code.body {
        let Inst::For(inner) = inst else { continue };
        if inner.op != shared {
            continue;
        }
        let passes = |inst: &Inst| inst.op() == Some(last);
        if let Some(at) = inner.body.iter().rposition(passes) {
            let after = |inst: &&Inst| {
                matches!(
                    inst,
                    Inst::WaitMma { .. } | Inst::Release { .. } | Inst::ReleaseResident(_)
                ) || matches!(inst, Inst::SchedulingBarrier(_))
            };
            let at = at + 1 + inner.body[at + 1..].iter().take_while(after).count();
            inner.body.insert(at, Inst::PassTile);
        }
        let begins = |inst: &Inst| inst.op() == Some(first);
        let at = inner.body.iter().position(begins).unwrap_or(0);
        inner.body.insert(at, Inst::AwaitTile);
        inner.other = skipped;
        return;
    }
}

/// The body of a loop that stands in a block itself.
fn loop_body(block: &Block, op: Op) -> Option<Block> {
    block.iter().find_map(|inst| match inst {
        Inst::For(inner) if inner.op == op => Some(inner.body.clone()),
        _ => None,
    })
}

/// The ops of a loop's body that begin and end the main loop: no stage is read outside of them.
fn main_loop(func: &Func, shared: Op) -> [Op; 2] {
    let body = &func.region(func.op(shared).regions[0]).ops;
    let is_load = |op: Op| matches!(func.op(op).kind, OpKind::TmaLoad(_));
    let loads = |&op: &Op| {
        let mut inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
        is_load(op) || inside.any(is_load)
    };
    [body.iter().copied().find(loads), body.iter().copied().rfind(loads)]
        .map(|op| op.unwrap_or(shared))
}

/// Marks the first MMA of a pair, before which a warpgroup waits for its turn, and the last, after which it passes it on.
fn issue_in_order(first: Op, last: Op, block: &mut Block) {
    for inst in block {
        if let Inst::Mma(mma) = inst {
            mma.awaits_turn |= mma.op == first;
            mma.passes_turn |= mma.op == last;
        }
        inst.blocks_mut().into_iter().for_each(|block| issue_in_order(first, last, block));
    }
}

/// The pairs of MMAs of a kernel's loops; none where there is one warpgroup, or more than two.
fn pairs(lir: &LayoutIr) -> Vec<[Op; 2]> {
    if lir.num_warps / 4 != GROUPS {
        return Vec::new();
    }
    let loops =
        lir.func.walk().into_iter().filter(|&op| matches!(lir.func.op(op).kind, OpKind::For(_)));
    loops.filter_map(|op| pair(lir, lir.func.op(op).regions[0])).collect()
}

/// The two MMAs of a loop's body, if these are all and nothing between them depends on the first.
fn pair(lir: &LayoutIr, body: Region) -> Option<[Op; 2]> {
    let ops = &lir.func.region(body).ops;
    let dots: Vec<Op> = ops.iter().copied().filter(|op| lir.dots.contains_key(op)).collect();
    let &[first, last] = &dots[..] else { return None };
    let are_async = [first, last]
        .iter()
        .all(|op| lir.dots.get(op).and_then(MmaWait::of) == Some(MmaWait::Iteration));
    let sums = lir.func.op(first).results[0];
    let needs = |&op: &Op| {
        let data = lir.func.op(op);
        !data.regions.is_empty() || data.operands.contains(&sums)
    };
    let between = ops.iter().skip_while(|&&op| op != first).take_while(|&&op| op != last);
    (are_async && !between.skip(1).any(needs)).then_some([first, last])
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{attend, changes, on_hopper, tiles};

    #[test]
    fn two_consumers_alternate_over_tiles() {
        let lir = on_hopper(&tiles::KERNEL, &[64, 256, 64], 4);
        expect![[r#"
              ..
                exec 7                                // mul
            +   await.tile
                for 8 {
              ..
                }
            +   pass.tile
                exec 13                               // cast
              ..
                yield 15                              // yield
            + } other {
            +   exec 7                                // mul
            +   for 8 {
            +     advance 0
            +     yield 12                            // yield
            +   }
            +   yield 15                              // yield
              }
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "ping_pong"));
    }

    #[test]
    fn warpgroups_issue_pairs_of_mmas_in_turns() {
        let lir = on_hopper(&attend::KERNEL, &[128, 64, 64], 8);
        expect![[r#"
              ..
                  wait.full 1
            -     mma 28 takes 1                      // dot
            +     mma 28 takes 1 awaits.turn          // dot
                  exec 29                             // tma_load
                  wait.full 2
            -     mma 30 takes 2                      // dot
            +     mma 30 takes 2 passes.turn          // dot
                  wait.mma 28 pending 1
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "ping_pong"));
    }
}

//! The body of an entry point: one role for all threads, or a producer beside the warps that compute.
//!
//! With a producer, thread 0 makes the barriers of the rings, all threads meet, and each warp takes its
//! way. The producer's warpgroup comes after the others, so that thread numbers and layouts need no
//! shift; one of its threads runs `LayoutIr::producer`, and its registers go to those that compute.
//!
//! ```text
//! entry      barriers, meet
//! producer   give registers away     one thread: copies      exit
//! consumer   take registers          the function            panels have left, exit
//! ```
//!
//! The blocks of a cluster meet once they have made their barriers, since each arrives at those of the
//! others, and once more before they exit.

use std::collections::BTreeMap;

use super::super::elementwise::from_memory;
use super::super::llvm::{Block, Emitter, IntPred, Val};
use super::WARPGROUP;
use super::ahead::ahead;
use super::arena::{Arena, BARRIER_BYTES};
use super::lower::{Frame, Lowering};
use super::message;
use super::overlap;
use super::ping_pong::PingPong;
use super::pipeline::{Constant, Copies, Ring, Role, ends};
use super::reduce;
use super::schedule::Step;
use super::thread::{self, Threads, uniform_warp};
use super::turns::Turns;
use crate::Error;
use crate::ir::{DType, Elem, Func, Op, OpKind, Type};
use crate::layout::LayoutIr;
use crate::layout::turns::{computing_warps, turns};
use crate::target::GpuTarget;

/// Registers of a thread of the producer, and of those that compute, where there are two warpgroups of
/// these: all that the block begins with, 168 for each of its 384 threads. One warpgroup has enough
/// without asking.
const REGISTERS: [i64; 2] = [24, 240];
/// The same where the producer loads in a loop what copies depend on: it has more to keep.
const LOADING: [i64; 2] = [40, 232];
/// Both where four warpgroups compute: each of the 640 threads begins with 96 registers.
const OF_FOUR: [[i64; 2]; 2] = [[24, 112], [40, 104]];
// More than there are would be waited for without end.
const _: () = assert!(128 * REGISTERS[0] + 256 * REGISTERS[1] <= 384 * 168);
const _: () = assert!(128 * LOADING[0] + 256 * LOADING[1] <= 384 * 168);
const _: () = assert!(128 * OF_FOUR[0][0] + 512 * OF_FOUR[0][1] <= 640 * 96);
const _: () = assert!(128 * OF_FOUR[1][0] + 512 * OF_FOUR[1][1] <= 640 * 96);

/// What an entry point is called with.
pub(super) struct Args {
    /// LLVM's parameters, in the order of the kernel's.
    pub(super) values: Vec<Val>,
    /// How many of them each parameter of the kernel has.
    pub(super) counts: Vec<usize>,
    /// Addresses of tensor maps.
    pub(super) maps: Vec<Val>,
    /// Where a failed assertion leaves its number.
    pub(super) status: Option<Val>,
    /// Dynamic shared memory.
    pub(super) shared: Val,
}

/// What there is to know about an entry point that was written.
pub(super) struct Written {
    /// What its threads do with shared memory.
    pub(super) steps: Vec<Step>,
    /// Words of packed floats that a thread keeps; see [`super::fresh`].
    pub(super) kept_words: u32,
    /// Parameters through which threads see each other's stores.
    pub(super) handed_on: Vec<bool>,
}

/// What all roles are written from.
struct Kernel<'a> {
    e: &'a Emitter,
    lir: &'a LayoutIr,
    gpu: &'a GpuTarget,
    arena: Arena,
    args: Args,
    asserts: BTreeMap<Op, usize>,
    tid: Val,
    exit: Block,
}

/// Writes the body of the entry point, in whose first block the builder stands.
pub(super) fn write(
    e: &Emitter,
    lir: &LayoutIr,
    gpu: &GpuTarget,
    arena: Arena,
    asserts: BTreeMap<Op, usize>,
    args: Args,
) -> Result<Written, Error> {
    let tid = Threads::new(e).tid;
    let exit = e.block("exit");
    let kernel = Kernel { e, lir, gpu, arena, args, asserts, tid, exit };
    let written = match &lir.producer {
        None => kernel.role(lir, None, exit)?,
        Some(producer) => kernel.two_roles(producer)?,
    };
    e.position(exit);
    if lir.producer.is_some() && lir.num_blocks > 1 {
        thread::leave_cluster(e);
    }
    e.ret_void();
    Ok(written)
}

impl Kernel<'_> {
    /// A function as the threads run it that come to the block where the builder stands. Gives what
    /// they do with shared memory.
    fn role(&self, lir: &LayoutIr, copies: Option<Copies>, exit: Block) -> Result<Written, Error> {
        let e = self.e;
        message::prepare(e, lir, &self.arena.places, [self.tid, self.args.shared]);
        let entry = e.current_block();
        let body = e.block("body");
        let is_producer = copies.as_ref().is_some_and(|copies| copies.role == Role::Producer);
        let asserts = if is_producer { BTreeMap::new() } else { self.asserts.clone() };
        let awaits_peers = lir.func.walk().iter().any(|&op| reduce::pushes(lir, op));
        if awaits_peers {
            thread::arrive_in_cluster_first(e);
        }
        let frame = Frame {
            exit,
            shared: self.args.shared,
            status: self.args.status,
            threads: Threads::of(e, self.numbered(copies.as_ref())),
            awaits_peers,
            places: self.arena.places.clone(),
            asserts,
            copies,
        };
        let mut lowering = Lowering::new(e, lir, self.gpu, frame);
        bind_params(&mut lowering, &self.args);
        e.position(body);
        if lowering.region(lir.func.body)?.is_some() {
            e.br(exit);
        }
        if !is_producer && !lir.func.tma.stores.is_empty() {
            e.position(exit);
            lowering.drain_stores()?;
            e.br(self.exit);
        }
        // The entry block filled up while the body was written.
        e.position(entry);
        e.br(body);
        let kept_words = lowering.kept_words();
        let handed_on = lowering.handed_on();
        Ok(Written { steps: lowering.recorder.finish(), kept_words, handed_on })
    }

    fn two_roles(&self, producer: &Func) -> Result<Written, Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let rings: Vec<Ring> =
            self.arena.rings.iter().map(|&place| Ring::reserve(e, place)).collect();
        let shared = turns(self.lir);
        let taken_in_turns =
            shared.map(|op| Turns::reserve(e, op, &self.lir.func, self.arena.turns));
        let num_warps = computing_warps(self.lir);
        self.init_barriers();
        match self.lir.num_blocks {
            1 => thread::barrier(e),
            // Other blocks arrive at these barriers, and send copies to them.
            _ => {
                thread::arrive_in_cluster(e);
                thread::await_cluster(e);
            }
        }
        let is_alone = 2 * self.arena.bytes > self.gpu.features.max_shared_bytes;
        let is_wide = !self.lir.func.tma.stores.is_empty();
        let ahead = ahead(self.lir, self.gpu);
        if ahead.is_none() {
            overlap::wait_behind_setup(e, is_alone && is_wide);
        }
        let warp = uniform_warp(e, self.tid);
        let produces = e.icmp(IntPred::Uge, warp, int(num_warps));
        let (feed, compute) = (e.block("producer"), e.block("consumer"));
        let group = e.lshr(warp, int(2));
        e.cond_br(produces, feed, compute);

        let has_stores = !self.lir.func.tma.stores.is_empty();
        let before = &producer.region(producer.body).ops;
        let is_load = |op: &Op| producer.op(*op).kind == OpKind::Load && !before.contains(op);
        let loads = producer.walk().iter().any(is_load);
        let registers = match num_warps {
            16 => OF_FOUR[usize::from(loads)],
            _ if loads => LOADING,
            _ => REGISTERS,
        };
        let [given, taken] = registers.map(|n| e.int(e.i32(), n));
        let moves_registers = self.gpu.features.setmaxnreg && 32 * num_warps > WARPGROUP;
        e.position(feed);
        if moves_registers {
            e.intrinsic("llvm.nvvm.setmaxnreg.dec.sync.aligned.u32", &[], &[given]);
        }
        let one = e.block("producer.thread");
        let is_first = e.icmp(IntPred::Eq, self.tid, int(32 * num_warps));
        e.cond_br(is_first, one, self.exit);
        e.position(one);
        let mut constant = Constant::InTurn;
        if let Some(ahead) = &ahead {
            let mut copies = self.copies(Role::Producer, &rings, group, ahead);
            copies.constant = Constant::Ahead;
            let waits = e.block("producer.waits");
            self.role(&alone(ahead, self.lir), Some(copies), waits)?;
            e.position(waits);
            overlap::wait_and_let_go(e);
            constant = Constant::Begun;
        }
        let mut copies = self.copies(Role::Producer, &rings, group, producer);
        copies.constant = constant;
        self.role(&alone(producer, self.lir), Some(copies), self.exit)?;

        e.position(compute);
        if ahead.is_some() {
            overlap::wait_and_let_go(e);
        }
        if moves_registers {
            e.intrinsic("llvm.nvvm.setmaxnreg.inc.sync.aligned.u32", &[], &[taken]);
        }
        let mut copies = self.copies(Role::Consumer, &rings, group, &self.lir.func);
        match taken_in_turns {
            Some(turns) => {
                copies.turns = Some(turns.begin(e, group));
                copies.group = int(0);
            }
            None => {
                copies.ping_pong = PingPong::of(self.lir);
                copies.ping_pong.begin(e, group);
            }
        }
        let exit = if has_stores { e.block("drain") } else { self.exit };
        self.role(self.lir, Some(copies), exit)
    }

    /// The number that layouts know a thread by: that in its set, where there are two.
    fn numbered(&self, copies: Option<&Copies>) -> Val {
        let e = self.e;
        match copies.is_some_and(|copies| copies.turns.is_some()) {
            true => e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP - 1))),
            false => self.tid,
        }
    }

    /// Thread 0 makes the barriers of all rings, which the copy engine must see.
    fn init_barriers(&self) {
        let e = self.e;
        let (inside, done) = (e.block("init"), e.block("ready"));
        let is_first = e.icmp(IntPred::Eq, self.tid, e.int(e.i32(), 0));
        e.cond_br(is_first, inside, done);
        e.position(inside);
        for &map in &self.args.maps {
            e.inline_asm(e.void(), "prefetch.tensormap [$0];", "l", &[map], true);
        }
        let make = |at: u32, arrivals: u32| {
            let barrier = e.gep(e.i8(), self.args.shared, e.int(e.i32(), i64::from(at)));
            let arrivals = e.int(e.i32(), i64::from(arrivals));
            e.intrinsic("llvm.nvvm.mbarrier.init.shared", &[], &[barrier, arrivals]);
        };
        for ring in &self.arena.rings {
            let readers = self.lir.num_warps / 4 * self.lir.num_blocks;
            for (first, arrivals) in [(ring.full, 1), (ring.empty, readers)] {
                for slot in 0..ring.stages {
                    make(first + slot * BARRIER_BYTES, arrivals);
                }
            }
        }
        if turns(self.lir).is_some() {
            for set in 0..2 {
                make(self.arena.turns + set * BARRIER_BYTES, WARPGROUP);
            }
        }
        e.intrinsic("llvm.nvvm.fence.mbarrier_init.release.cluster", &[], &[]);
        e.br(done);
        e.position(done);
    }

    /// What a role knows when it begins, where the builder stands.
    fn copies(&self, role: Role, rings: &[Ring], group: Val, func: &Func) -> Copies {
        let e = self.e;
        rings.iter().for_each(|ring| ring.begin(e, role));
        let in_group = e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP - 1)));
        let leads = e.icmp(IntPred::Eq, in_group, e.int(e.i32(), 0));
        let [firsts, lasts] = ends(func);
        let (maps, staging) = (self.args.maps.clone(), self.arena.staging);
        let (unit, turns, ping_pong) = (group, None, PingPong::default());
        let rings = rings.to_vec();
        Copies {
            role,
            rings,
            maps,
            staging,
            group,
            unit,
            turns,
            ping_pong,
            leads,
            constant: Constant::InTurn,
            firsts,
            lasts,
        }
    }
}

/// A producer as layout IR: its tiles stay in shared memory, so that nothing has a layout.
fn alone(producer: &Func, whole: &LayoutIr) -> LayoutIr {
    LayoutIr {
        layouts: vec![None; producer.n_values()],
        func: producer.clone(),
        num_warps: whole.num_warps,
        num_blocks: whole.num_blocks,
        accesses: BTreeMap::new(),
        dots: BTreeMap::new(),
        rings: BTreeMap::new(),
        producer: None,
    }
}

fn bind_params(lowering: &mut Lowering<'_>, args: &Args) {
    let func = lowering.func;
    let mut next = 0;
    for (param, &count) in func.params.iter().zip(&args.counts) {
        let mut registers = args.values[next..next + count].to_vec();
        next += count;
        if let Type::Tile(tile) = func.ty(param.value)
            && tile.elem == Elem::Data(DType::Bool)
        {
            registers[0] = from_memory(lowering.e, DType::Bool, registers[0]);
        }
        lowering.set(param.value, registers);
    }
}

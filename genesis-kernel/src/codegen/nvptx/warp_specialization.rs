//! Warp specialization: the body of an entry point, for all threads or as a producer and consumer warpgroups.
//!
//! With a producer, thread 0 initializes the pipeline's mbarriers, a block barrier follows, and each warp branches to its
//! role. The producer's warpgroup comes after the consumers, so that layouts index consumer threads from 0; one of its
//! threads runs `LayoutIr::producer`, and `setmaxnreg` moves its registers to the consumers.
//!
//! ```text
//! entry      init mbarriers, bar.sync
//! producer   setmaxnreg.dec     one thread: TMA copies     exit
//! consumer   setmaxnreg.inc     the function               drain TMA stores, exit
//! ```
//!
//! The blocks of a cluster synchronize after mbarrier initialization, since each arrives at those of the others, and once
//! more before they exit.

use std::collections::BTreeMap;

use super::super::elementwise::from_memory;
use super::super::llvm::{Block as LlvmBlock, Emitter, IntPred, Val};
use super::WARPGROUP;
use super::dsmem_store;
use super::lower::{Frame, Lowering};
use super::ping_pong_tiles::{PingPongTiles, first_turn};
use super::programmatic_dependent_launch;
use super::thread::{self, Threads, uniform_warp};
use super::tma_pipeline::{Copies, Pipeline, Role};
use crate::Error;
use crate::ir::{DType, Elem, Func, Op, OpKind, Type};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::{computing_warps, ping_pong_loop};
use crate::machine::producer_prologue::producer_prologue;
use crate::machine::{
    self, BARRIER_BYTES, Code, Constant, RunBy, SharedMemory, cluster, producer_ir,
};
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
    /// Packed words of 16-bit floats that a thread keeps live; see [`super::rematerialize_rows`].
    pub(super) packed_words: u32,
    /// Parameters through which threads see each other's stores.
    pub(super) handed_on: Vec<bool>,
}

/// What the code of each role is generated from.
struct Kernel<'a> {
    e: &'a Emitter,
    lir: &'a LayoutIr,
    gpu: &'a GpuTarget,
    memory: SharedMemory,
    args: Args,
    asserts: BTreeMap<Op, usize>,
    tid: Val,
    exit: LlvmBlock,
}

/// Writes the body of the entry point, in whose first block the builder stands.
pub(super) fn write(
    e: &Emitter,
    lir: &LayoutIr,
    gpu: &GpuTarget,
    memory: SharedMemory,
    asserts: BTreeMap<Op, usize>,
    args: Args,
) -> Result<Written, Error> {
    let tid = Threads::new(e).tid;
    let exit = e.block("exit");
    let kernel = Kernel { e, lir, gpu, memory, args, asserts, tid, exit };
    let written = match &lir.producer {
        None => kernel.role(lir, (RunBy::Block, None), exit)?,
        Some(producer) => kernel.warp_specialized(producer)?,
    };
    e.position(exit);
    if lir.producer.is_some() && lir.num_blocks > 1 {
        thread::leave_cluster(e);
    }
    e.ret_void();
    Ok(written)
}

impl Kernel<'_> {
    /// The code of one role at the builder's position. Gives what its threads do with shared memory.
    fn role(
        &self,
        lir: &LayoutIr,
        (by, copies): (RunBy, Option<Copies>),
        exit: LlvmBlock,
    ) -> Result<Written, Error> {
        let e = self.e;
        dsmem_store::init_barriers(e, lir, &self.memory, [self.tid, self.args.shared]);
        let entry = e.current_block();
        let body = e.block("body");
        let is_producer = copies.as_ref().is_some_and(|copies| copies.role == Role::Producer);
        let code = machine::lower(lir, &self.memory, self.gpu, by);
        check(&lir.func, &code)?;
        let asserts = if is_producer { BTreeMap::new() } else { self.asserts.clone() };
        if cluster::arrives(lir) {
            thread::arrive_in_cluster_first(e);
        }
        let frame = Frame {
            exit,
            shared: self.args.shared,
            status: self.args.status,
            threads: Threads::of(e, self.numbered(copies.as_ref())),
            memory: &self.memory,
            code: &code,
            asserts,
            copies,
        };
        let mut lowering = Lowering::new(e, lir, self.gpu, frame);
        bind_params(&mut lowering, &self.args);
        e.position(body);
        if lowering.region(lir.func.body, &code.body)?.is_some() {
            e.br(exit);
        }
        if !is_producer && !lir.func.tma.stores.is_empty() {
            e.position(exit);
            lowering.drain_stores()?;
            e.br(self.exit);
        }
        // The entry block grew while the body was written.
        e.position(entry);
        e.br(body);
        let packed_words = lowering.packed_words();
        let handed_on = lowering.points_to.handed_on();
        Ok(Written { packed_words, handed_on })
    }

    fn warp_specialized(&self, producer: &Func) -> Result<Written, Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let pipelines: Vec<Pipeline> =
            self.memory.pipelines.iter().map(|&layout| Pipeline::reserve(e, layout)).collect();
        let shared = ping_pong_loop(self.lir);
        let ping_pong_tiles = shared.map(|_| PingPongTiles::reserve(e, self.memory.order_barriers));
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
        let is_alone = 2 * self.memory.bytes > self.gpu.features.max_shared_bytes;
        let is_wide = !self.lir.func.tma.stores.is_empty();
        let prologue = producer_prologue(self.lir, self.gpu);
        if prologue.is_none() {
            programmatic_dependent_launch::wait_after_setup(e, is_alone && is_wide);
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
        let mut constant = Constant::All;
        if let Some(prologue) = &prologue {
            let copies = self.copies(Role::Producer, &pipelines, group);
            let waits = e.block("producer.waits");
            let by = RunBy::Producer(Constant::Prefetch);
            self.role(&producer_ir(prologue, self.lir), (by, Some(copies)), waits)?;
            e.position(waits);
            programmatic_dependent_launch::wait_for_grid(e);
            programmatic_dependent_launch::launch_dependents(e);
            constant = Constant::Prefetched;
        }
        let copies = self.copies(Role::Producer, &pipelines, group);
        let by = RunBy::Producer(constant);
        self.role(&producer_ir(producer, self.lir), (by, Some(copies)), self.exit)?;

        e.position(compute);
        if prologue.is_some() {
            programmatic_dependent_launch::wait_for_grid(e);
            programmatic_dependent_launch::launch_dependents(e);
        }
        if moves_registers {
            e.intrinsic("llvm.nvvm.setmaxnreg.inc.sync.aligned.u32", &[], &[taken]);
        }
        let mut copies = self.copies(Role::Consumer, &pipelines, group);
        match ping_pong_tiles {
            Some(ping_pong) => {
                copies.ping_pong_tiles = Some(ping_pong.begin(e, group));
                copies.group = int(0);
            }
            None if machine::ping_pong::has_turns(self.lir) => first_turn(e, group),
            None => {}
        }
        let exit = if has_stores { e.block("drain") } else { self.exit };
        self.role(self.lir, (RunBy::Consumers, Some(copies)), exit)
    }

    /// The number that layouts know a thread by: that in its set, where there are two.
    fn numbered(&self, copies: Option<&Copies>) -> Val {
        let e = self.e;
        match copies.is_some_and(|copies| copies.ping_pong_tiles.is_some()) {
            true => e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP - 1))),
            false => self.tid,
        }
    }

    /// Thread 0 initializes the mbarriers of all pipelines, and fences them for the copy engine.
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
        for pipeline in &self.memory.pipelines {
            let readers = self.lir.num_warps / 4 * self.lir.num_blocks;
            for (first, arrivals) in [(pipeline.full, 1), (pipeline.empty, readers)] {
                for slot in 0..pipeline.stages {
                    make(first + slot * BARRIER_BYTES, arrivals);
                }
            }
        }
        if ping_pong_loop(self.lir).is_some() {
            for set in 0..2 {
                make(self.memory.order_barriers + set * BARRIER_BYTES, WARPGROUP);
            }
        }
        e.intrinsic("llvm.nvvm.fence.mbarrier_init.release.cluster", &[], &[]);
        e.br(done);
        e.position(done);
    }

    /// The state of a role at its start, at the builder's position.
    fn copies(&self, role: Role, pipelines: &[Pipeline], group: Val) -> Copies {
        let e = self.e;
        pipelines.iter().for_each(|pipeline| pipeline.begin(e, role));
        let in_group = e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP - 1)));
        let leads = e.icmp(IntPred::Eq, in_group, e.int(e.i32(), 0));
        let (maps, staging) = (self.args.maps.clone(), self.memory.staging);
        let (unit, ping_pong_tiles) = (group, None);
        let pipelines = pipelines.to_vec();
        Copies { role, pipelines, maps, staging, group, unit, ping_pong_tiles, leads }
    }
}

/// In debug builds, whether threads meet in shared memory.
fn check(func: &Func, code: &Code) -> Result<(), Error> {
    let Some(race) = cfg!(debug_assertions).then(|| machine::verify(&code.body).err()).flatten()
    else {
        return Ok(());
    };
    let name = |op: Op| {
        let data = func.op(op);
        let at = data.loc.map(|loc| format!(" at {}:{}", loc.file, loc.line));
        format!("{:?}{}", data.kind, at.unwrap_or_default())
    };
    let (earlier, later) = (name(race.earlier), name(race.later));
    let byte = race.byte;
    Err(Error::bug(format!("{earlier} and {later} race for byte {byte} of shared memory")))
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

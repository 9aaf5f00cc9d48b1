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
use super::lowering::{Facts, Frame, Lowering};
use super::pipeline_state::{Copies, PingPongTiles, Pipeline, Role};
use super::setup::Setup;
use super::thread::{Threads, uniform_warp};
use crate::Error;
use crate::ir::{DType, Elem, Func, Op};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::{computing_warps, ping_pong_loop};
use crate::machine::{self, Code, Program, SharedMemory, WarpSpecialized};
use crate::target::GpuTarget;
use crate::tuning::multiprocessor::WARPGROUP_THREADS;

/// What an entry point is called with.
pub(super) struct Args {
    /// The kernel's parameters, in their order.
    pub(super) values: Vec<Val>,
    /// Addresses of tensor maps.
    pub(super) maps: Vec<Val>,
    /// Where a failed assertion leaves its number.
    pub(super) status: Option<Val>,
    /// Dynamic shared memory.
    pub(super) shared: Val,
}

/// What there is to know about an entry point that was written.
pub(super) struct Written {
    /// Blocks of a multiprocessor that the assembler leaves registers for.
    pub(super) min_blocks: u32,
    /// Whether 16-bit floats are computed with in pairs.
    pub(super) packed_arithmetic: bool,
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
    let program = Program::of(lir, &memory, gpu);
    if cfg!(debug_assertions) {
        machine::verify_program(&program, lir, &memory).map_err(Error::bug)?;
    }
    let kernel = Kernel { e, lir, gpu, memory, args, asserts, tid, exit };
    let written = match &program {
        Program::Uniform(code) => {
            kernel.setup(None).write(&code.entry)?;
            kernel.body(lir, code, None, exit)?
        }
        Program::WarpSpecialized(roles) => kernel.warp_specialized(roles)?,
    };
    e.position(exit);
    if let Program::WarpSpecialized(roles) = &program {
        kernel.setup(None).write(&roles.teardown)?;
    }
    e.ret_void();
    Ok(written)
}

impl Kernel<'_> {
    fn setup(&self, group: Option<Val>) -> Setup<'_> {
        let Args { shared, ref maps, .. } = self.args;
        Setup { e: self.e, tid: self.tid, shared, maps, group }
    }

    /// What one role computes, at the builder's position; control leaves to `exit`. Gives what its threads do with shared
    /// memory.
    fn body(
        &self,
        lir: &LayoutIr,
        code: &Code,
        copies: Option<Copies>,
        exit: LlvmBlock,
    ) -> Result<Written, Error> {
        let e = self.e;
        let entry = e.current_block();
        let body = e.block("body");
        check(&lir.func, code)?;
        let is_producer = copies.as_ref().is_some_and(|copies| copies.role == Role::Producer);
        let facts = Facts::of(lir, self.gpu, &self.memory, code);
        let frame = Frame {
            exit,
            shared: self.args.shared,
            status: self.args.status,
            asserts: if is_producer { BTreeMap::new() } else { self.asserts.clone() },
            vprintf: None,
        };
        let threads = Threads::of(e, self.numbered(copies.as_ref()));
        let mut lowering = Lowering::new(e, lir, facts, frame, (threads, copies));
        bind_params(&mut lowering, &self.args);
        e.position(body);
        if lowering.region(&code.body)?.is_some() {
            e.br(exit);
        }
        // The entry block grew while the body was written.
        e.position(entry);
        e.br(body);
        let min_blocks = code.selection.min_blocks.unwrap_or(1);
        let packed_arithmetic = code.selection.packed_arithmetic;
        Ok(Written { min_blocks, packed_arithmetic })
    }

    fn warp_specialized(&self, roles: &WarpSpecialized) -> Result<Written, Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let pipelines: Vec<Pipeline> =
            self.memory.pipelines.iter().map(|&layout| Pipeline::reserve(e, layout)).collect();
        let shared = ping_pong_loop(self.lir);
        let ping_pong_tiles = shared.map(|_| PingPongTiles::reserve(e, self.memory.order_barriers));
        let num_warps = computing_warps(self.lir);
        self.setup(None).write(&roles.setup)?;
        let warp = uniform_warp(e, self.tid);
        let produces = e.icmp(IntPred::Uge, warp, int(num_warps));
        let (feed, compute) = (e.block("producer"), e.block("consumer"));
        let group = e.lshr(warp, int(2));
        e.cond_br(produces, feed, compute);

        e.position(feed);
        self.setup(Some(group)).write(&roles.producer_entry)?;
        let one = e.block("producer.thread");
        let is_first = e.icmp(IntPred::Eq, self.tid, int(32 * num_warps));
        e.cond_br(is_first, one, self.exit);
        e.position(one);
        self.producer(roles, &pipelines, group)?;

        e.position(compute);
        self.setup(Some(group)).write(&roles.consumers.entry)?;
        let mut copies = self.copies(Role::Consumer, &pipelines, group);
        if let Some(ping_pong) = ping_pong_tiles {
            copies.ping_pong_tiles = Some(ping_pong.begin(e, group));
            copies.group = int(0);
        }
        self.body(self.lir, &roles.consumers, Some(copies), self.exit)
    }

    /// The parts of the producer, one after the other.
    fn producer(
        &self,
        roles: &WarpSpecialized,
        pipelines: &[Pipeline],
        group: Val,
    ) -> Result<(), Error> {
        let e = self.e;
        for (i, part) in roles.producer.iter().enumerate() {
            let is_last = i + 1 == roles.producer.len();
            let next = if is_last { self.exit } else { e.block("producer.part") };
            self.setup(Some(group)).write(&part.code.entry)?;
            let copies = self.copies(Role::Producer, pipelines, group);
            self.body(&part.lir, &part.code, Some(copies), next)?;
            if !is_last {
                e.position(next);
            }
        }
        Ok(())
    }

    /// The number that layouts know a thread by: that in its set, where there are two.
    fn numbered(&self, copies: Option<&Copies>) -> Val {
        let e = self.e;
        match copies.is_some_and(|copies| copies.ping_pong_tiles.is_some()) {
            true => e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP_THREADS - 1))),
            false => self.tid,
        }
    }

    /// The state of a role at its start, at the builder's position.
    fn copies(&self, role: Role, pipelines: &[Pipeline], group: Val) -> Copies {
        let e = self.e;
        pipelines.iter().for_each(|pipeline| pipeline.begin(e, role));
        let in_group = e.and(self.tid, e.int(e.i32(), i64::from(WARPGROUP_THREADS - 1)));
        let leads = e.icmp(IntPred::Eq, in_group, e.int(e.i32(), 0));
        let (maps, staging) = (self.args.maps.clone(), self.memory.staging);
        let (unit, ping_pong_tiles) = (group, None);
        let pipelines = pipelines.to_vec();
        let taken = BTreeMap::new();
        Copies { role, pipelines, maps, staging, group, unit, ping_pong_tiles, leads, taken }
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
    for (param, &value) in func.params.iter().zip(&args.values) {
        let is_bool =
            func.ty(param.value).as_tile().is_some_and(|tile| tile.elem == Elem::Data(DType::Bool));
        let register = match is_bool {
            true => from_memory(lowering.e, DType::Bool, value),
            false => value,
        };
        lowering.set(param.value, vec![register]);
    }
}

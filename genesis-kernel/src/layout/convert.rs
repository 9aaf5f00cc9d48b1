//! Moving a tile from one layout to another: by renaming registers, by shuffles, or through memory.
//!
//! The source's place of each element that a thread of the destination wants is again a linear map,
//! so the cheapest way is read off its bases: registers of the same thread, another lane of the same
//! warp, or another warp.
//!
//! ```text
//! tile [64], reg [1] lane [2, 4, 8, 16, 32]  ->  reg [32] lane [1, 2, 4, 8, 16]
//! destination register bit (32) is in source lane bit 4, lane bit 0 (1) in source register bit 0:
//! a shuffle; lane l takes register l & 1 of lane l >> 1 (+ 16 for its register 1). Lanes 2 i and
//! 2 i + 1 both read lane i, so the odd ones begin with their register 1, and read lane i + 16.
//! ```

use super::f2;
use super::linear::{HwIndex, LANE_BITS, LinearLayout};
use super::scratch::SharedPlan;
use crate::ir::OpKind;

/// How a tile goes from one layout to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// Within each thread: register `i` of the result is register `.0[i]` of the operand.
    Registers(Vec<u32>),
    /// Within each warp.
    Shuffle(ShufflePlan),
    /// Through shared memory, with a barrier between.
    Shared(SharedPlan),
}

/// A conversion within warps by `shfl.idx`, one shuffle for each register of the result.
///
/// In round `t` a lane sends its register `sent[t] ^ combine(sends, lane)` and gets what lane
/// `lane_of[t] ^ combine(lanes, lane)` sends, which is its register `t ^ combine(places, lane)` of the
/// result. Every lane sends to one lane in every round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShufflePlan {
    /// Per round, what is XORed to the source lane.
    pub lane_of: Vec<u32>,
    /// Per round, what is XORed to the register that is sent.
    pub sent: Vec<u32>,
    /// The source lane as a linear map of the lane.
    pub lanes: [u32; LANE_BITS],
    /// The register that is sent as a linear map of the lane that sends.
    pub sends: [u32; LANE_BITS],
    /// The register that is got as a linear map of the lane that gets.
    pub places: [u32; LANE_BITS],
}

impl ShufflePlan {
    /// The number of shuffles of 32 bits for elements of `bits` bits.
    pub fn shuffles(&self, bits: u32) -> usize {
        self.sent.len() * bits.div_ceil(32) as usize
    }

    /// Twice the time of the plan in shuffles of 32 bits, for elements of `bits` bits: a select for
    /// each register and step of an exchange takes half of a shuffle.
    fn cost(&self, bits: u32) -> usize {
        let steps = exchange_steps(&self.sends).len() + exchange_steps(&self.places).len();
        self.shuffles(bits) * (2 + steps)
    }
}

/// The steps in which each lane exchanges its registers `r` and `r ^ combine(map, lane)`: what is XORed
/// to the register where an odd number of these lane bits is set.
pub fn exchange_steps(map: &[u32; LANE_BITS]) -> Vec<(u32, u32)> {
    let mut steps: Vec<(u32, u32)> = Vec::new();
    for (bit, &register) in map.iter().enumerate() {
        let known: Vec<u32> = steps.iter().map(|&(register, _)| register).collect();
        match f2::Echelon::new(&known).solve(register) {
            Some(sum) => {
                (0..steps.len()).filter(|i| sum >> i & 1 == 1).for_each(|i| steps[i].1 |= 1 << bit)
            }
            None => steps.push((register, 1 << bit)),
        }
    }
    steps
}

/// What a register of the result may cost before shared memory is cheaper, in halves of a shuffle.
const COST_PER_REGISTER: usize = 6;

/// The cheapest way from one layout to another, for elements of `bits` bits.
///
/// # Panics
/// If the layouts differ in shape, warps or blocks; both are of one value.
pub fn plan(from: &LinearLayout, to: &LinearLayout, bits: u32) -> Conversion {
    let of = |layout: &LinearLayout| (layout.shape, layout.warp.len(), layout.block.len());
    assert_eq!(of(from), of(to), "one value has one shape");
    if let Some(map) = register_map(from, to, |flat| flat) {
        return Conversion::Registers(map);
    }
    match shuffle(from, to) {
        Some(plan) if plan.cost(bits) <= COST_PER_REGISTER * plan.sent.len() => {
            Conversion::Shuffle(plan)
        }
        _ => Conversion::Shared(SharedPlan::new(from, to, bits)),
    }
}

/// Whether each block of a cluster holds all that it is to have in the other layout: for each bit of
/// the rank the source has copies, or the same part of the tile.
pub fn stays_in_block(from: &LinearLayout, to: &LinearLayout) -> bool {
    from.block.iter().zip(&to.block).all(|(&a, &b)| a == 0 || a == b)
}

/// For each register of an op's result, the register of its operand in the same thread that holds
/// the same element; none if some element is in another thread, or the op computes.
///
/// For `broadcast`, `expand_dims`, `reshape`, `transpose` and `convert_layout`. A scalar operand has
/// no layout: every register of the result is the one value.
pub fn view_registers(
    kind: &OpKind,
    operand: &LinearLayout,
    result: &LinearLayout,
) -> Option<Vec<u32>> {
    let shape = operand.shape;
    match kind {
        OpKind::ExpandDims { .. } | OpKind::Reshape | OpKind::ConvertLayout => {
            register_map(operand, result, |flat| flat)
        }
        OpKind::Broadcast => register_map(operand, result, |flat| result.project_flat(shape, flat)),
        OpKind::Transpose { perm } => register_map(operand, &result.untranspose(perm), |flat| flat),
        _ => None,
    }
}

/// For each register of `to`, the register of `from` in the same thread that holds the element that
/// `element`, a linear map, makes of it.
fn register_map(
    from: &LinearLayout,
    to: &LinearLayout,
    element: impl Fn(u32) -> u32,
) -> Option<Vec<u32>> {
    let equal = |a: &[u32], b: &[u32]| a.iter().zip(b).all(|(&a, &b)| a == element(b));
    let same_thread = equal(&from.lane, &to.lane) && equal(&from.warp, &to.warp);
    if !same_thread || !equal(&from.block, &to.block) {
        return None;
    }
    let echelon = f2::Echelon::new(&from.reg);
    let bases: Option<Vec<u32>> =
        to.reg.iter().map(|&basis| echelon.solve(element(basis))).collect();
    let bases = bases?;
    Some((0..to.num_regs()).map(|reg| f2::combine(&bases, reg)).collect())
}

/// A plan within warps, if no element changes its warp.
fn shuffle(from: &LinearLayout, to: &LinearLayout) -> Option<ShufflePlan> {
    if (&from.warp, &from.block) != (&to.warp, &to.block) {
        return None;
    }
    let place = |basis: u32| from.solve(basis).filter(|at| (at.warp, at.block) == (0, 0));
    let regs: Option<Vec<HwIndex>> = to.reg.iter().map(|&basis| place(basis)).collect();
    let lanes: Option<Vec<HwIndex>> = to.lane.iter().map(|&basis| place(basis)).collect();
    let (regs, lanes) = (regs?, lanes?);
    let (reg_lanes, reg_regs): (Vec<u32>, Vec<u32>) =
        regs.iter().map(|at| (at.lane, at.reg)).unzip();
    // Where the source replicates a lane bit, a lane reads its own copy.
    let own = |i: usize| from.free_lanes() & 1 << i;
    let mut lane_lanes: Vec<u32> =
        lanes.iter().enumerate().map(|(i, at)| at.lane | own(i)).collect();
    let places = spread(&mut lane_lanes, &reg_lanes, from.free_lanes())?;
    // What a lane gets in round 0, as the register of the lane that sends it.
    let wanted: Vec<u32> = lanes
        .iter()
        .zip(&places)
        .map(|(at, &place)| at.reg ^ f2::combine(&reg_regs, place))
        .collect();
    let receivers = f2::Echelon::new(&lane_lanes);
    let sends: Option<Vec<u32>> = (0..LANE_BITS)
        .map(|i| receivers.solve(1 << i).map(|lane| f2::combine(&wanted, lane)))
        .collect();
    let sends = sends?;
    let lane_of: Vec<u32> = (0..to.num_regs()).map(|t| f2::combine(&reg_lanes, t)).collect();
    let sent = |(t, &lane): (u32, &u32)| f2::combine(&reg_regs, t) ^ f2::combine(&sends, lane);
    Some(ShufflePlan {
        sent: (0..).zip(&lane_of).map(sent).collect(),
        lane_of,
        lanes: lane_lanes.try_into().ok()?,
        sends: sends.try_into().ok()?,
        places,
    })
}

/// Makes the map from lanes to the lanes they read one to one: lanes that would read the same lane take
/// different registers in a round, or read different copies. Gives the register of each lane bit.
fn spread(lanes: &mut [u32], reg_lanes: &[u32], free: u32) -> Option<[u32; LANE_BITS]> {
    let mut places = [0; LANE_BITS];
    let mut echelon = f2::Echelon::default();
    let same: Vec<usize> =
        (0..lanes.len()).filter(|&i| !echelon.insert(lanes[i], 1 << i)).collect();
    for i in same {
        if let Some(register) = (0..reg_lanes.len()).find(|&r| echelon.insert(reg_lanes[r], 0)) {
            places[i] = 1 << register;
            lanes[i] ^= reg_lanes[register];
            continue;
        }
        let copies = (0..LANE_BITS).map(|bit| 1 << bit).filter(|bit| free & bit != 0);
        lanes[i] ^= copies.into_iter().find(|&copy| echelon.insert(copy, 0))?;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::blocked::{Blocked, blocked};
    use crate::layout::linear::LANES;

    fn layout(shape: &[usize], reg: &[u32], lane: [u32; 5], warp: &[u32]) -> LinearLayout {
        let layout = LinearLayout {
            block: vec![],
            shape: Shape::new(shape),
            reg: reg.to_vec(),
            lane: lane.to_vec(),
            warp: warp.to_vec(),
        };
        layout.check().unwrap();
        layout
    }

    /// Runs a plan on the flat indices themselves.
    fn run(from: &LinearLayout, to: &LinearLayout, bits: u32) -> Conversion {
        let plan = plan(from, to, bits);
        for warp in 0..to.num_warps() {
            for lane in 0..LANES {
                for reg in 0..to.num_regs() {
                    let want = to.apply(HwIndex { reg, lane, warp, block: 0 });
                    let got = match &plan {
                        Conversion::Registers(map) => {
                            from.apply(HwIndex { reg: map[reg as usize], lane, warp, block: 0 })
                        }
                        Conversion::Shuffle(plan) => {
                            let round = (reg ^ f2::combine(&plan.places, lane)) as usize;
                            let source = plan.lane_of[round] ^ f2::combine(&plan.lanes, lane);
                            let sent = plan.sent[round] ^ f2::combine(&plan.sends, source);
                            from.apply(HwIndex { reg: sent, lane: source, warp, block: 0 })
                        }
                        Conversion::Shared(plan) => plan.check_element(from, to, want),
                    };
                    assert_eq!(got, want, "{from:?} -> {to:?} at {reg} {lane} {warp}");
                }
            }
        }
        plan
    }

    #[test]
    fn equal_threads_need_registers_only() {
        let a = layout(&[4, 32], &[32, 64], [1, 2, 4, 8, 16], &[]);
        let b = layout(&[4, 32], &[64, 32], [1, 2, 4, 8, 16], &[]);
        assert_eq!(run(&a, &b, 32), Conversion::Registers(vec![0, 2, 1, 3]));
    }

    #[test]
    fn lanes_move_by_shuffles() {
        let a = layout(&[64], &[1], [2, 4, 8, 16, 32], &[]);
        let b = layout(&[64], &[32], [1, 2, 4, 8, 16], &[]);
        assert!(matches!(run(&a, &b, 32), Conversion::Shuffle(_)));
        assert!(matches!(run(&b, &a, 32), Conversion::Shuffle(_)));
    }

    #[test]
    fn replicated_lanes_read_their_own_copy() {
        let a = layout(&[8], &[1], [2, 4, 0, 0, 0], &[]);
        let b = layout(&[8], &[], [1, 2, 4, 0, 0], &[]);
        let Conversion::Shuffle(plan) = run(&a, &b, 32) else { panic!("a shuffle") };
        assert_eq!(plan.lanes[3..], [8, 16]);
        assert_eq!(plan.sent.len(), 1);
        assert!(matches!(run(&b, &a, 32), Conversion::Shuffle(_)));
    }

    #[test]
    fn a_transpose_within_a_warp_takes_one_shuffle_a_register() {
        let a = layout(&[4, 32], &[1, 2], [4, 8, 16, 32, 64], &[]);
        let b = layout(&[4, 32], &[32, 64], [1, 2, 4, 8, 16], &[]);
        let Conversion::Shuffle(plan) = run(&a, &b, 32) else { panic!("a shuffle") };
        assert_eq!(plan.sent.len(), 4);
        // Two bits change sides: two steps of selects before the shuffles and two after.
        assert_eq!(exchange_steps(&plan.sends).len(), 2);
        assert_eq!(exchange_steps(&plan.places).len(), 2);
        assert!(matches!(run(&b, &a, 32), Conversion::Shuffle(_)));
        assert!(matches!(run(&b, &a, 64), Conversion::Shared(_)));
    }

    #[test]
    fn steps_exchange_what_the_map_says() {
        for map in [[0; 5], [1, 2, 4, 0, 0], [3, 3, 1, 2, 0], [7, 1, 6, 6, 7]] {
            let steps = exchange_steps(&map);
            for lane in 0..LANES {
                let odd = |mask: u32| (mask & lane).count_ones() % 2 == 1;
                let sum = steps.iter().filter(|(_, mask)| odd(*mask)).fold(0, |s, (r, _)| s ^ r);
                assert_eq!(sum, f2::combine(&map, lane), "{map:?}");
            }
        }
    }

    #[test]
    fn warps_move_through_shared_memory() {
        let a = layout(&[128], &[1], [2, 4, 8, 16, 32], &[64]);
        let b = layout(&[128], &[64], [1, 2, 4, 8, 16], &[32]);
        assert!(matches!(run(&a, &b, 32), Conversion::Shared(_)));
        assert!(matches!(run(&a, &b, 16), Conversion::Shared(_)));
        assert!(matches!(run(&a, &b, 8), Conversion::Shared(_)));
    }

    #[test]
    fn broadcasts_and_transposes_stay_in_registers() {
        let result = blocked(Shape::new(&[64, 64]), &Blocked::rows(4, 8, 4));
        let row = result.project(Shape::new(&[1, 64]));
        let map = view_registers(&OpKind::Broadcast, &row, &result).unwrap();
        for (reg, &source) in map.iter().enumerate() {
            let at = HwIndex { reg: reg as u32, lane: 5, warp: 1, block: 0 };
            let wanted = result.coords(result.apply(at))[1];
            assert_eq!(row.apply(HwIndex { reg: source, ..at }), wanted);
        }
        let swapped = result.transpose(&[1, 0]);
        let kind = OpKind::Transpose { perm: vec![1, 0] };
        let map = view_registers(&kind, &result, &swapped).unwrap();
        assert!(map.iter().enumerate().all(|(i, &r)| i as u32 == r));
        assert_eq!(view_registers(&kind, &result, &result), None);
    }
}

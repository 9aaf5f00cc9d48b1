//! How the ranks of a run share its work, and the groups that follow from it.
//!
//! ```text
//! rank = (((pp * DP + dp) * FSDP + fsdp) * CP + cp) * TP + tp
//! ```
//!
//! Ranks that differ in `dp` or `fsdp` take other batches, those that differ in `cp` other parts of each sequence: over all
//! three gradients are summed. Ranks that differ in `tp` or `pp` have other parts of the model.

use super::options::{OptimizerKind, Options};
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};

const NAME: &str = "train";

/// The axes in the order of ranks, the one that changes slowest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Axis {
    Pipeline,
    Data,
    Shard,
    Context,
    Tensor,
}

const AXES: [Axis; 5] = [Axis::Pipeline, Axis::Data, Axis::Shard, Axis::Context, Axis::Tensor];

/// How many ranks there are along each axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout([usize; 5]);

impl Layout {
    /// What options ask for on so many ranks; `dp` is what is left over where it is not named.
    ///
    /// # Errors
    /// If the ranks do not multiply up, or a combination is not built.
    pub(super) fn of(options: &Options, ranks: usize) -> Result<Layout> {
        let named = [
            ("fsdp", options.fsdp),
            ("tp", options.tp),
            ("cp", options.cp),
            ("pp", options.pp),
            ("dp", options.dp),
        ];
        let refuse = |what: String| Err(Error::op(NAME, what));
        if let Some((name, _)) = named.iter().find(|(_, count)| *count == Some(0)) {
            return refuse(format!("{name} is 0, there must be at least 1"));
        }
        let told: Vec<String> = named
            .iter()
            .filter_map(|(name, count)| count.map(|count| format!("{name} {count}")))
            .collect();
        let [fsdp, tp, cp, pp, dp] = named.map(|(_, count)| count);
        let [fsdp, tp, cp, pp] = [fsdp, tp, cp, pp].map(|count| count.unwrap_or(1));
        let parts = [fsdp, tp, cp, pp].iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        let whole = parts.and_then(|parts| parts.checked_mul(dp.unwrap_or(1)));
        let fits = match (dp, whole) {
            (_, None) => false,
            (Some(_), Some(whole)) => whole == ranks,
            (None, Some(whole)) => ranks.is_multiple_of(whole),
        };
        if !fits {
            let product = whole.map_or("too many".to_owned(), |whole| whole.to_string());
            let needed = match dp {
                Some(_) => format!("{product} ranks are needed"),
                None => format!("a multiple of {product} ranks is needed"),
            };
            return refuse(format!("{}: {needed}, {ranks} were started", told.join(", ")));
        }
        let dp = ranks / parts.unwrap_or(1).max(1);
        let layout = Layout([pp, dp, fsdp, cp, tp]);
        layout.check(options)?;
        Ok(layout)
    }

    /// Refuses what is not built.
    fn check(self, options: &Options) -> Result<()> {
        let has = |axis| self.along(axis) > 1;
        let parts = [("fsdp", Axis::Shard), ("tp", Axis::Tensor), ("pp", Axis::Pipeline)];
        let part = parts.into_iter().find(|(_, axis)| has(*axis)).map(|(name, _)| name);
        let any = part.or(has(Axis::Context).then_some("cp"));
        let reason = match (part, any) {
            (_, Some(name)) if options.beta.is_some() => {
                format!("{name} is not built for pairs of answers: `genesis dpo` takes dp")
            }
            (Some(name), _) if options.lora_rank.is_some() => {
                format!("{name} is not built for adapters, which cut no weight: take dp or cp")
            }
            (Some(name), _) if !options.prompts.is_empty() => {
                format!("prompts need the whole model on one rank, which {name} does not leave")
            }
            _ if options.has_transit() && !has(Axis::Shard) => {
                "param_dtype, reduce_dtype and reshard are of fully sharded ranks: they need an fsdp above 1"
                    .to_owned()
            }
            (Some(name), _) if options.optimizer != OptimizerKind::AdamW => {
                format!("{name} is not built for moments of 8 bits, which lie in blocks of whole parameters")
            }
            (Some(name), _) if options.zero1 => {
                format!("zero1 shares out the state of whole parameters, of which {name} leaves none")
            }
            _ if options.zero1 && !has(Axis::Data) => "zero1 needs a dp above 1".to_owned(),
            _ if options.sequence_parallel && !has(Axis::Tensor) => {
                "sequence_parallel is of tensor parallel ranks: it needs a tp above 1".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::op(NAME, reason))
    }

    /// How many ranks there are along an axis.
    pub(super) fn along(self, axis: Axis) -> usize {
        self.0[axis as usize]
    }

    /// How many ranks take other batches.
    pub(super) fn data(self) -> usize {
        self.along(Axis::Data) * self.along(Axis::Shard)
    }
}

impl Options {
    /// Refuses numbers of ranks that do not multiply up to those that were started, and combinations that are not built.
    ///
    /// # Errors
    /// That names the numbers, or what is not built and why.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        Layout::of(self, ranks).map(drop)
    }

    /// The ranks that its keys name in all; 1 where they name none.
    pub fn ranks_named(&self) -> usize {
        let named = [self.dp, self.fsdp, self.tp, self.cp, self.pp].into_iter().flatten();
        named.fold(1, usize::saturating_mul)
    }

    /// Whether it says how parameters in parts travel.
    fn has_transit(&self) -> bool {
        self.param_dtype.is_some() || self.reduce_dtype.is_some() || !self.reshard
    }

    /// Whether ranks have parts of the model: it is loaded into the memory of the host then, and each rank's device gets what
    /// it has.
    pub fn has_parts(&self) -> bool {
        [self.fsdp, self.tp, self.pp].into_iter().flatten().any(|count| count > 1)
    }
}

/// A rank's place among all, and its groups.
#[derive(Debug)]
pub(super) struct Mesh {
    pub(super) world: ProcessGroup,
    pub(super) layout: Layout,
    place: [usize; 5],
    /// The ranks whose gradients are summed; none where this one is alone, as with all groups here.
    pub(super) reduce: Option<ProcessGroup>,
    /// The ranks that have the same parts of the same parameters.
    pub(super) replicas: Option<ProcessGroup>,
    pub(super) shards: Option<ProcessGroup>,
    /// How many ranks of these, next to each other, take the same batches.
    pub(super) alike: usize,
    pub(super) tensor: Option<ProcessGroup>,
    pub(super) context: Option<ProcessGroup>,
    pub(super) stages: Option<ProcessGroup>,
}

impl Mesh {
    /// The mesh of all ranks of a group, all of which call it.
    ///
    /// # Errors
    /// If other ranks do not come in time.
    pub(super) fn new(layout: Layout, world: &ProcessGroup) -> Result<Mesh> {
        let mut rest = world.rank();
        let mut place = [0; 5];
        for axis in AXES.iter().rev() {
            place[*axis as usize] = rest % layout.along(*axis);
            rest /= layout.along(*axis);
        }
        let line = |axes: &[Axis]| -> Result<Option<ProcessGroup>> {
            if axes.iter().all(|&axis| layout.along(axis) == 1) {
                return Ok(None);
            }
            let others = AXES.iter().filter(|axis| !axes.contains(axis));
            let color =
                others.fold(0, |color, &axis| color * layout.along(axis) + place[axis as usize]);
            world.split(Some(color as u32), world.rank())
        };
        // A sum over the tokens of a sequence or the channels of a product has one order, that of one rank: with ordered
        // reductions each rank of a sequence takes all of it, and each of a product gathers the parts of its weight.
        let whole = world.has_ordered_reductions();
        let summed = |axes: &[Axis]| match whole {
            true => line(axes),
            false => line(&[axes, &[Axis::Context]].concat()),
        };
        let gathered = if whole { &[Axis::Shard, Axis::Tensor][..] } else { &[Axis::Shard] };
        Ok(Mesh {
            reduce: summed(&[Axis::Data, Axis::Shard])?,
            replicas: summed(&[Axis::Data])?,
            shards: line(gathered)?,
            alike: if whole { layout.along(Axis::Tensor) } else { 1 },
            tensor: if whole { None } else { line(&[Axis::Tensor])? },
            context: if whole { None } else { line(&[Axis::Context])? },
            stages: line(&[Axis::Pipeline])?,
            world: world.clone(),
            layout,
            place,
        })
    }

    /// This rank's place along an axis.
    pub(super) fn at(&self, axis: Axis) -> usize {
        self.place[axis as usize]
    }

    /// Which of the batches are this rank's: every so many, from this one on.
    pub(super) fn batches(&self) -> (usize, usize) {
        let own = self.at(Axis::Data) * self.layout.along(Axis::Shard) + self.at(Axis::Shard);
        (own, self.layout.data())
    }

    /// Whether parameters lie in parts.
    pub(super) fn has_parts(&self) -> bool {
        self.shards.is_some() || self.tensor.is_some() || self.stages.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ranks: usize, change: impl Fn(&mut Options)) -> std::result::Result<Layout, String> {
        let mut options = Options::sft();
        change(&mut options);
        Layout::of(&options, ranks).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_over_is_data_parallel() {
        assert_eq!(
            layout(8, |of| (of.tp, of.pp) = (Some(2), Some(2))),
            Ok(Layout([2, 2, 1, 1, 2]))
        );
        assert_eq!(layout(3, |_| ()), Ok(Layout([1, 3, 1, 1, 1])));
        assert_eq!(layout(4, |of| (of.dp, of.fsdp) = (Some(2), Some(2))).unwrap().data(), 4);
    }

    #[test]
    fn numbers_that_do_not_multiply_up_are_named() {
        let said = layout(8, |of| (of.fsdp, of.tp) = (Some(2), Some(3))).unwrap_err();
        assert_eq!(said, "train: fsdp 2, tp 3: a multiple of 6 ranks is needed, 8 were started");
        let said = layout(4, |of| (of.dp, of.cp) = (Some(1), Some(2))).unwrap_err();
        assert_eq!(said, "train: cp 2, dp 1: 2 ranks are needed, 4 were started");
        let said = layout(1, |of| of.pp = Some(0)).unwrap_err();
        assert!(said.contains("pp is 0"), "{said}");
        let most = Some(usize::MAX);
        assert!(layout(1, |of| (of.tp, of.cp) = (most, most)).is_err());
    }

    #[test]
    fn what_is_not_built_is_named() {
        let said = layout(2, |of| (of.tp, of.lora_rank) = (Some(2), Some(4))).unwrap_err();
        assert!(said.contains("tp is not built for adapters"), "{said}");
        let said = layout(2, |of| (of.cp, of.beta) = (Some(2), Some(0.1))).unwrap_err();
        assert!(said.contains("cp is not built for pairs of answers"), "{said}");
        let said = layout(2, |of| of.sequence_parallel = true).unwrap_err();
        assert!(said.contains("needs a tp above 1"), "{said}");
        let said = layout(2, |of| of.reshard = false).unwrap_err();
        assert!(said.contains("need an fsdp above 1"), "{said}");
        layout(2, |of| (of.fsdp, of.reshard) = (Some(2), false)).expect("it is built");
    }
}

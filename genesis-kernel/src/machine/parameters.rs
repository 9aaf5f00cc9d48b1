//! What an entry point promises of the memory behind its parameters: LLVM's `readonly`, `noalias` and `align`.
//!
//! A parameter that is declared so keeps the promise as long as one thread alone sees its memory. Where threads see each
//! other's stores through it, or programs wait for each other's, it is not `noalias`: no barrier would keep the accesses in
//! order, since nobody else could know the memory. Nor is memory that the primary grid may still write, where loads come
//! before `griddepcontrol.wait` or after it by choice.
//!
//! ```text
//! param 0 readonly noalias align 16       a row that is loaded
//! param 1 noalias                         what is stored, each element by one thread
//! param 2                                 a counter that programs hand on
//! ```

use std::fmt;

use super::{GridWait, PointsTo, grid_wait};
use crate::ir::{Func, Param, ParamAttrs};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// LLVM knows no larger alignment than this power of two, of which a pointer could make use.
const MAX_ALIGNMENT_BITS: u32 = 12;

/// What is promised of the memory behind a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Promise {
    /// Nothing writes it during the launch. Of what is `noalias` too, LLVM makes every load an `ld.global.nc`.
    pub(crate) readonly: bool,
    /// A thread reaches it through this parameter only, and no other thread writes what it reads.
    pub(crate) noalias: bool,
    /// Bytes that its address is a multiple of.
    pub(crate) align: Option<u64>,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [(self.readonly, " readonly"), (self.noalias, " noalias")];
        flags.iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, word)| f.write_str(word))?;
        self.align.map_or(Ok(()), |bytes| write!(f, " align {bytes}"))
    }
}

/// The promises of a kernel's parameters, in their order; of numbers there are none.
pub(crate) fn promises(lir: &LayoutIr, gpu: &GpuTarget) -> Vec<Promise> {
    let wait = grid_wait(lir, gpu);
    let is_ordered = is_ordered(&lir.func);
    let handed_on = PointsTo::new(lir).handed_on();
    let of = |(param, handed_on): (&Param, bool)| {
        let is_address = lir.func.ty(param.value).as_tile().is_some_and(|tile| tile.is_ptr());
        match is_address {
            true => promise(&param.attrs, wait, handed_on || is_ordered),
            false => Promise::default(),
        }
    };
    lir.func.params.iter().zip(handed_on).map(of).collect()
}

fn promise(attrs: &ParamAttrs, wait: GridWait, is_shared: bool) -> Promise {
    let (is_written, aligned) = (wait.orders(attrs), attrs.multiple_of > 1);
    Promise {
        readonly: attrs.readonly && !is_written && !wait.overlaps_writes(attrs),
        noalias: (attrs.readonly || attrs.exclusive && !is_shared) && !is_written,
        align: aligned.then(|| 1 << attrs.multiple_of.trailing_zeros().min(MAX_ALIGNMENT_BITS)),
    }
}

/// Whether programs wait for each other's stores: then memory changes under a program's hands, however
/// exclusive its parameters are.
fn is_ordered(func: &Func) -> bool {
    let uses = func.count_uses();
    func.walk().into_iter().any(|op| {
        let data = func.op(op);
        let is_used = || data.results.iter().any(|result| uses[result.index()] > 0);
        data.kind.ordering().is_some_and(|ordering| ordering.orders(is_used()))
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::machine::golden::{assigned, row_sum};

    fn text(lir: &LayoutIr) -> String {
        let all = promises(lir, &GpuTarget::SM_90A);
        let line = |(number, promise): (usize, Promise)| format!("param {number}{promise}\n");
        all.into_iter().enumerate().map(line).collect()
    }

    #[test]
    fn a_row_is_read_and_its_sum_stored() {
        expect![[r#"
            param 0 noalias align 16
            param 1 noalias
        "#]]
        .assert_eq(&text(&row_sum(2048, None)));
    }

    #[test]
    fn a_counter_is_shared_by_programs() {
        let counted = "
kernel count(%n: *i32 exclusive multiple_of 4, %y: *i32 exclusive) {
  %0 = const 1 : i32
  %1 = atomic_rmw add %n, %0 : i32
  store %y, %1
  return
}
";
        expect![[r#"
            param 0 align 4
            param 1
        "#]]
        .assert_eq(&text(&assigned(counted, 1)));
    }
}

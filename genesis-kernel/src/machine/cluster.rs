//! Clusters: before the first DSMEM store a block waits until the other blocks run.
//!
//! Every block of a cluster says that it runs as it begins (`barrier.cluster.arrive`); shared memory of a block that does
//! not run yet may not be written to. The wait comes as late as it can, so that it overlaps the first loads.
//!
//! ```text
//! exec 4                load
//! wait.cluster
//! store.cluster 6.0     the first partial results
//! ```

use super::exchange::stores_dsmem;
use super::{Code, Inst};
use crate::layout::LayoutIr;

/// Whether some op of a function stores to other blocks, so that the blocks say when they begin.
pub(crate) fn arrives(lir: &LayoutIr) -> bool {
    lir.func.walk().iter().any(|&op| stores_dsmem(lir, op))
}

pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let stores = |inst: &Inst| inst.op().is_some_and(|op| stores_dsmem(lir, op));
    if let Some(first) = code.body.iter().position(stores) {
        code.body.insert(first, Inst::ClusterWait);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, in_cluster};

    #[test]
    fn a_block_waits_for_the_others_before_it_stores_to_them() {
        let lir = in_cluster();
        expect![[r#"
              ..
              exec 3                                  // load
            + wait.cluster
              store.cluster 4.0 0..48                 // reduce
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "cluster"));
    }
}

//! `where`: select element by element.

use genesis_kernel::ir::DType;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{
    Differentiated, Op, Saves, apply, check_pair, gradients, promote, result_of, unbroadcast,
};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("where", Precision::Widest)];

impl Tensor {
    /// `x` where this bool tensor is true, `y` elsewhere; all three broadcast, the dtypes of the two
    /// promote.
    ///
    /// # Errors
    /// If this is not bool, shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn where_(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let (x, y) = promote::pair(x, y)?;
        let shapes = [x.shape().to_vec(), y.shape().to_vec()];
        apply(Where { shapes }, &[self, &x, &y])
    }
}

/// The gradients of the operands by what was saved and `dy`.
type Formula = fn(&SavedTensors, &Tensor) -> Result<Vec<Option<Tensor>>>;

struct Where {
    shapes: [Vec<usize>; 2],
}

impl Op for Where {
    fn name(&self) -> &'static str {
        "where"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (cond, x, y) = (inputs[0], inputs[1], inputs[2]);
        if cond.dtype() != DType::Bool {
            return Err(Error::op(
                "where",
                format!("the condition must be bool, got {}", cond.dtype()),
            ));
        }
        check_pair("where", x, y)?;
        if cond.device() != x.device() {
            let message = format!("devices differ, {} and {}", cond.device(), x.device());
            return Err(Error::op("where", message));
        }
        let shape = broadcast_shapes("where", &[cond.shape(), x.shape(), y.shape()])?;
        let (c, x, y) =
            (cond.broadcast_to(&shape)?, x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        let z = result_of(&[&c, &x, &y], &shape, (x.dtype(), x.device()))?;
        launch::strided(
            &kernels::select::where_cond::KERNEL,
            &[x.dtype()],
            &[&c, &x, &y],
            &z,
            &[],
        )?;
        Ok(z)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let formula: Formula = sides;
        let op = Differentiated { name: self.name(), numbers: &[], by: formula as usize };
        let grads = gradients(&op, saved, dy, formula)?;
        let shapes = [&[][..], &self.shapes[0], &self.shapes[1]];
        let back = |(grad, shape): (Option<Tensor>, &[usize])| {
            grad.map(|g| unbroadcast(&g, shape)).transpose()
        };
        grads.into_iter().zip(shapes).map(back).collect()
    }
}

/// `dy` to the side that was taken, 0 to the other.
fn sides(saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let cond = saved.input(0);
    let zero = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
    let side = |wanted: bool, x: &Tensor, y: &Tensor| wanted.then(|| cond.where_(x, y)).transpose();
    Ok(vec![None, side(saved.wanted[1], dy, &zero)?, side(saved.wanted[2], &zero, dy)?])
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] =
        &[OpInfo::new(
            "where",
            Family::Exact,
            |x| x[0].detach().gt_scalar(2.0)?.where_(&x[1], &x[2]),
            |x| {
                Dense::from_fn(&[2, 3, 5], |at| {
                    if x[0].at(at) > 2.0 { x[1].at(at) } else { x[2].at(at) }
                })
            },
            &[&[&[3, 5], &[2, 3, 5], &[5]]],
        )
        .peer("torch.where(x[0].detach() > 2.0, x[1], x[2])")
        .within(0.0, 4.0)
        .refusing(&[(
            || {
                let x = cpu(&[2], DType::F32)?;
                x.where_(&x, &x)
            },
            "where: the condition must be bool, got f32",
        )])];
}

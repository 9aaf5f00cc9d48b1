//! In-place writes and the tape: version counters, and views that are rebased.
//!
//! A write in place is an ordinary op whose result is then copied over the tensor: [`Tensor::in_place`].
//! What remains is to say where the gradient of the tensor goes now. A tensor of its own takes the
//! history of the result. A view is a part of its base, so it is the base that gets a history:
//!
//! ```text
//! base ----------> overwrite ---> base from now on ---> every view, made anew when asked for
//! new values ------^
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use genesis_kernel::ir::DType;

use super::apply::apply;
use super::hooks::move_retain;
use super::op::{Backward, Op, SavedTensors, Single};
use super::saved::{Parts, Recorded};
use super::tape::{Edge, Node, View};
use crate::error::{Error, Result};
use crate::launch;
use crate::mode::{enable_grad, is_grad_enabled, is_inference_mode_enabled};
use crate::shape::Layout;
use crate::tensor::Tensor;

impl Tensor {
    /// Notes that this is a view of `parent`, if it lies in its memory.
    pub(crate) fn note_view(&self, parent: &Tensor) {
        if Arc::ptr_eq(self.storage(), parent.storage()) && !self.is_same(parent) {
            self.meta().set_view(base_of(parent), is_grad_enabled());
        }
    }

    /// Notes that this shares memory with `parent` in a way that writes to it can't be recorded.
    pub(super) fn note_unrecorded_view(&self, parent: &Tensor) {
        if Arc::ptr_eq(self.storage(), parent.storage()) && !self.is_same(parent) {
            self.meta().set_view(base_of(parent), false);
        }
    }

    /// Brings the history of a view up to date after a write to its base.
    pub(super) fn refresh(&self) {
        let Some(view) = self.meta().view() else { return };
        let rewrites = view.base.meta().rewrites();
        if view.seen.load(Ordering::Acquire) == rewrites {
            return;
        }
        view.seen.store(rewrites, Ordering::Release);
        let history = match view.base.requires_grad() {
            true => Some(history_of(self, view)),
            false => None,
        };
        self.meta().set_history(history);
    }

    /// Whether a write in place may happen.
    pub(crate) fn check_in_place(&self, op: &str) -> Result<()> {
        if self.strides().iter().zip(self.shape()).any(|(&s, &e)| s == 0 && e > 1) {
            return Err(Error::op(op, "several elements share one place in memory; copy it first"));
        }
        if self.is_inference() && !is_inference_mode_enabled() {
            let message = "an inference tensor can't be changed in place outside of inference mode; \
                           copy it first";
            return Err(Error::op(op, message));
        }
        if !is_grad_enabled() {
            return Ok(());
        }
        let is_wanting_leaf = |tensor: &Tensor| tensor.requires_grad() && tensor.is_leaf();
        let what = if is_wanting_leaf(self) {
            "this tensor"
        } else if self.meta().view().is_some_and(|view| is_wanting_leaf(&view.base)) {
            "the leaf that this is a view of"
        } else {
            return Ok(());
        };
        let message = format!(
            "{what} requires a gradient, so an in-place write would lose it; \
             write inside no_grad, or use the form that returns a new tensor"
        );
        Err(Error::op(op, message))
    }

    /// Replaces the values by those that `new` computes from them, and records that where gradients
    /// are wanted. `others` are what `new` reads beside.
    ///
    /// This is how every op with a trailing underscore is made:
    /// `self.in_place("clamp_", &[], |x, _| x.clamp(low, high))`. The second argument of `new` is a tensor whose values
    /// it may write over: one launch then, and no copy.
    ///
    /// # Errors
    /// If `new` refuses or gives another shape, or the tensor may not be written.
    pub(crate) fn in_place(
        &self,
        op: &str,
        others: &[&Tensor],
        new: impl FnOnce(&Tensor, Option<&Tensor>) -> Result<Tensor>,
    ) -> Result<()> {
        self.check_in_place(op)?;
        let wanted = is_grad_enabled()
            && (self.requires_grad() || others.iter().any(|other| other.requires_grad()));
        if !wanted {
            let own = self.detach();
            let new = new(&own, Some(&own))?;
            self.check_castable(op, &new)?;
            return self.write(op, &new);
        }
        // The op may save the old values for its backward, and they are about to be written over.
        let old = self.detach().copy()?;
        if self.requires_grad() {
            old.meta().set_history(self.meta().history());
        }
        let new = new(&old, None)?;
        drop(old);
        self.check_castable(op, &new)?;
        self.overwrite(op, new)
    }

    /// A result may be rounded to this tensor's dtype, but not lose what kind of number it is.
    fn check_castable(&self, op: &str, new: &Tensor) -> Result<()> {
        let kind = |dtype: DType| match dtype {
            DType::Bool => 0,
            dtype if dtype.is_float() => 2,
            _ => 1,
        };
        if kind(new.dtype()) <= kind(self.dtype()) {
            return Ok(());
        }
        let message = format!("a result of {} can't be written into {}", new.dtype(), self.dtype());
        Err(Error::op(op, message))
    }

    /// Replaces the values by those of `new`, of the same shape, and records that where gradients are
    /// wanted.
    pub(crate) fn overwrite(&self, op: &str, new: Tensor) -> Result<()> {
        if !is_grad_enabled() || !(self.requires_grad() || new.requires_grad()) {
            return self.write(op, &new);
        }
        if !self.dtype().is_arithmetic_float() {
            let message = format!("a tensor of {} has no gradient to record", self.dtype());
            return Err(Error::op(op, message));
        }
        let new = if new.dtype() == self.dtype() { new } else { new.to_dtype(self.dtype())? };
        if let Some(view) = self.meta().view() {
            check_view(op, self, view)?;
        }
        self.write(op, &new)?;
        match self.meta().view() {
            Some(view) => rewrite_base(self, view, &new),
            None => {
                let history = match (new.edge(), self.edge()) {
                    (Some(Edge::Node(node, slot)), _) if new.is_sole_handle() => (node, slot),
                    // What was copied goes on being a tensor with a gradient of its own.
                    (Some(edge), _) => (identity(edge, false), 0),
                    (None, Some(old)) => (identity(old, true), 0),
                    (None, None) => return Ok(()),
                };
                rewrite(self, history);
            }
        }
        Ok(())
    }

    /// Writes values without a record.
    fn write(&self, op: &str, new: &Tensor) -> Result<()> {
        if new.shape() != self.shape() {
            let message =
                format!("{:?} can't be written into shape {:?}", new.shape(), self.shape());
            return Err(Error::op(op, message));
        }
        let is_there = Arc::ptr_eq(new.storage(), self.storage())
            && new.layout() == self.layout()
            && new.dtype() == self.dtype();
        if !is_there {
            launch::cast(&new.detach(), self)?;
        }
        self.storage().bump_version();
        Ok(())
    }
}

/// What a view of this tensor is a view of.
fn base_of(tensor: &Tensor) -> Tensor {
    tensor.meta().view().map_or(tensor, |view| &view.base).clone()
}

fn rewrite(tensor: &Tensor, history: (Arc<Node>, u32)) {
    let meta = tensor.shared_meta();
    if let Some((old, _)) = meta.history() {
        move_retain(&meta, &old, (&history.0, history.1));
    }
    meta.rewrite(Some(history));
}

fn check_view(op: &str, tensor: &Tensor, view: &View) -> Result<()> {
    let why = if !view.recorded.load(Ordering::Relaxed) {
        "this view was made where nothing is recorded"
    } else if dense_order(view.base.layout()).is_none() {
        "the memory that this is a view of has gaps"
    } else if tensor.layout().may_overlap() {
        "elements of this view share places in memory"
    } else {
        return Ok(());
    };
    let message = format!(
        "{why}, so the write to it of shape {:?} can't be recorded; write inside no_grad, or copy it first",
        tensor.shape()
    );
    Err(Error::op(op, message))
}

/// The order of axes in which a layout has no gaps.
fn dense_order(layout: &Layout) -> Option<Vec<i64>> {
    let mut order: Vec<usize> = (0..layout.rank()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse((layout.strides()[axis], layout.shape()[axis])));
    layout.permute(&order)?.is_contiguous().then(|| order.iter().map(|&a| a as i64).collect())
}

/// Where a view lies in its base: the base's axes in the order of its memory, and the layout of the view
/// over that.
#[derive(Clone)]
struct Part {
    order: Vec<i64>,
    layout: Layout,
}

impl Part {
    fn of(tensor: &Tensor, view: &View) -> Option<Part> {
        let order = dense_order(view.base.layout())?;
        let offset = tensor.layout().offset().checked_sub(view.base.layout().offset())?;
        Some(Part { order, layout: tensor.layout().at(offset)? })
    }

    /// The part of a whole.
    fn take(&self, whole: &Tensor) -> Result<Tensor> {
        let whole = whole.permute(&self.order)?.contiguous()?;
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        if self.layout.may_overlap() {
            // Elements of one place sum their gradients.
            return whole.as_strided(shape, strides, self.layout.offset());
        }
        whole.strided_view("view", |dense| self.layout.at(dense.offset() + self.layout.offset()))
    }

    /// A copy of the whole with the part replaced.
    fn put(&self, whole: &Tensor, part: &Tensor) -> Result<Tensor> {
        apply(Overwrite { part: self.clone() }, &[whole, part])
    }
}

/// The history of a view, made from its base.
fn history_of(tensor: &Tensor, view: &View) -> (Arc<Node>, u32) {
    let lost = || {
        let edges = vec![view.base.edge()];
        (node(Lost, edges), 0)
    };
    let Some(part) = Part::of(tensor, view) else { return lost() };
    match enable_grad(|| part.take(&view.base)).map(|made| made.edge()) {
        Ok(Some(Edge::Node(node, slot))) => (node, slot),
        _ => lost(),
    }
}

fn node(op: impl Backward + 'static, edges: Vec<Option<Edge>>) -> Arc<Node> {
    Node::new(Recorded::new(op, Parts::default()), 1, edges)
}

fn rewrite_base(tensor: &Tensor, view: &View, new: &Tensor) {
    let edges = vec![view.base.edge(), new.edge()];
    let node = match Part::of(tensor, view) {
        Some(part) => node(Single(Overwrite { part }), edges),
        None => node(Lost, edges),
    };
    rewrite(&view.base, (node, 0));
    tensor.refresh();
}

/// A copy of the first operand with a part of it replaced by the second.
struct Overwrite {
    part: Part,
}

impl Op for Overwrite {
    fn name(&self) -> &'static str {
        "copy_"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let whole = inputs[0].permute(&self.part.order)?.copy()?;
        let layout = self.part.layout.clone();
        let part = Tensor::plain(whole.storage().clone(), layout, whole.dtype());
        launch::cast(inputs[1], &part)?;
        whole.permute(&inverse(&self.part.order))
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let at = (dy.dtype(), dy.device());
        let old = || self.part.put(dy, &Tensor::zeros(self.part.layout.shape(), at)?);
        Ok(vec![
            saved.wanted[0].then(old).transpose()?,
            saved.wanted[1].then(|| self.part.take(dy)).transpose()?,
        ])
    }
}

fn inverse(order: &[i64]) -> Vec<i64> {
    let mut inverse = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from as usize] = to as i64;
    }
    inverse
}

/// Values that were copied from elsewhere, or that depend on nothing any more.
struct Identity {
    is_zero: bool,
}

fn identity(edge: Edge, is_zero: bool) -> Arc<Node> {
    node(Single(Identity { is_zero }), vec![Some(edge)])
}

impl Op for Identity {
    fn name(&self) -> &'static str {
        "copy_"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        if self.is_zero { inputs[0].zeros_like() } else { inputs[0].copy() }
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(if self.is_zero { dy.zeros_like()? } else { dy.clone() })])
    }
}

/// A view whose base was changed, and whose place in it has no simple form.
struct Lost;

impl Backward for Lost {
    fn name(&self) -> &str {
        "view"
    }

    fn label(&self) -> &'static str {
        "view"
    }

    fn backward(&self, _: &SavedTensors, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let message = "its base, whose memory has gaps, was changed in place after it was made; \
                       make the view again after the change";
        Err(Error::op("view", message))
    }
}

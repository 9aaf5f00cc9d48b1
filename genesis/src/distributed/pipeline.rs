//! Pipeline parallel training: each rank has some of the layers.
//!
//! A batch goes through the stages in parts. The schedule is 1F1B: once a stage has as many parts under way
//! as stages follow it, it takes a part back for each that it sends on, so that it keeps the activations of
//! so many parts and no more.

use std::cell::OnceCell;
use std::collections::VecDeque;

use super::group::ProcessGroup;
use crate::autograd::{BackwardOptions, no_grad};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, TensorType};
use genesis_kernel::ir::DType;

const NAME: &str = "Pipeline";

/// The stages of a model on the ranks of a group, the first stage on the first rank.
///
/// # Examples
/// One stage, where there is one rank:
/// ```
/// use genesis::distributed::{Pipeline, init};
/// use genesis::nn::Linear;
/// use genesis::Tensor;
///
/// let group = init()?;
/// let layer = Linear::new(8, 8, group.device())?; // this rank's part of the model
/// let pipeline = Pipeline::new(&group)?;
/// let batch = Tensor::randn(&[4, 2, 8], group.device())?; // four parts of two rows
/// let losses = pipeline.step(
///     4,
///     |part| batch.select(0, part),
///     |x| layer.forward(x),
///     |y, _| y.square()?.mean(),
/// )?;
/// assert_eq!(losses.len(), 4); // on the last rank
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct Pipeline {
    group: ProcessGroup,
    /// Where stages say what they send.
    key: String,
    /// What comes from the stage before; it is told once.
    comes: OnceCell<TensorType>,
    /// What goes to the next.
    goes: OnceCell<TensorType>,
}

/// What a stage does with a part.
struct Stage<'a> {
    input: &'a dyn Fn(usize) -> Result<Tensor>,
    forward: &'a dyn Fn(&Tensor) -> Result<Tensor>,
    loss: &'a dyn Fn(&Tensor, usize) -> Result<Tensor>,
}

/// A part under way: what came in and what went out.
struct Under {
    x: Tensor,
    y: Tensor,
}

impl Pipeline {
    /// A pipeline over a group. All its ranks call it.
    ///
    /// # Errors
    /// If the store of the group does not answer.
    pub fn new(group: &ProcessGroup) -> Result<Pipeline> {
        let number = match group.store() {
            Some(store) => store.add(&group.shared.key(&format!("pp/{}", group.rank())), 1)?,
            None => 0,
        };
        let key = format!("pp/{number}");
        Ok(Pipeline { group: group.clone(), key, comes: OnceCell::new(), goes: OnceCell::new() })
    }

    /// Whether this rank has the first stage.
    pub fn is_first(&self) -> bool {
        self.group.rank() == 0
    }

    /// Whether this rank has the last stage.
    pub fn is_last(&self) -> bool {
        self.group.rank() + 1 == self.group.size()
    }

    /// The forward and backward of a batch in `parts` parts; all ranks call it with the same number.
    ///
    /// `input` gives part number `n` on the first rank, `forward` is this rank's stage, `loss` is that of part
    /// number `n` on the last rank. Gradients are those of the mean of all losses. Gives the losses of the parts on
    /// the last rank, nothing on the others.
    ///
    /// # Errors
    /// If a stage refuses, parts differ in shape, or a rank does not answer.
    pub fn step(
        &self,
        parts: usize,
        input: impl Fn(usize) -> Result<Tensor>,
        forward: impl Fn(&Tensor) -> Result<Tensor>,
        loss: impl Fn(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let share = 1.0 / parts as f64;
        let mean = |y: &Tensor, number: usize| loss(y, number)?.mul_scalar(share);
        let losses = self.step_sum(parts, input, forward, mean)?;
        losses.iter().map(|loss| loss.mul_scalar(parts as f64)).collect()
    }

    /// [`Pipeline::step`] with gradients of the sum of all losses.
    ///
    /// # Errors
    /// As of that.
    pub fn step_sum(
        &self,
        parts: usize,
        input: impl Fn(usize) -> Result<Tensor>,
        forward: impl Fn(&Tensor) -> Result<Tensor>,
        loss: impl Fn(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let stage = Stage { input: &input, forward: &forward, loss: &loss };
        let behind = self.group.size() - self.group.rank() - 1;
        let warmup = behind.min(parts);
        let (mut under, mut losses) = (VecDeque::new(), Vec::new());
        let (mut begun, mut x) = (0, None);
        let mut enter = |x: Option<Tensor>, under: &mut VecDeque<Under>| {
            let part = self.forward(&stage, begun, x)?;
            if self.is_last() {
                losses.push(part.y.detach());
            }
            begun += 1;
            under.push_back(part);
            Ok::<(), Error>(())
        };
        for _ in 0..warmup {
            let came = self.transfer(None, Comes::Forward)?.0;
            enter(came, &mut under)?;
            self.send_on(&under)?;
        }
        let steady = parts - warmup;
        if steady > 0 {
            x = self.transfer(None, Comes::Forward)?.0;
        }
        for turn in 0..steady {
            enter(x.take(), &mut under)?;
            let sent = under.back().map(|part| part.y.detach());
            let dy = self.transfer(sent.as_ref(), Comes::Backward)?.1;
            let dx = self.backward(under.pop_front(), dy)?;
            let wants = if turn + 1 < steady { Comes::Forward } else { Comes::Nothing };
            x = self.give_back(dx.as_ref(), wants)?;
        }
        for _ in 0..warmup {
            let dy = self.transfer(None, Comes::Backward)?.1;
            let dx = self.backward(under.pop_front(), dy)?;
            self.give_back(dx.as_ref(), Comes::Nothing)?;
        }
        Ok(losses)
    }

    /// The forward of a batch in `parts` parts, without gradients; else as [`Pipeline::step`].
    ///
    /// # Errors
    /// As of that.
    pub fn infer(
        &self,
        parts: usize,
        input: impl Fn(usize) -> Result<Tensor>,
        forward: impl Fn(&Tensor) -> Result<Tensor>,
        loss: impl Fn(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        no_grad(|| {
            let stage = Stage { input: &input, forward: &forward, loss: &loss };
            let mut losses = Vec::new();
            for number in 0..parts {
                let came = self.transfer(None, Comes::Forward)?.0;
                let Under { y, .. } = self.forward(&stage, number, came)?;
                match self.is_last() {
                    true => losses.push(y),
                    false => drop(self.transfer(Some(&y), Comes::Nothing)?),
                }
            }
            Ok(losses)
        })
    }

    fn forward(&self, stage: &Stage<'_>, number: usize, x: Option<Tensor>) -> Result<Under> {
        let x = match x {
            Some(x) => x,
            None => (stage.input)(number)?,
        };
        let y = (stage.forward)(&x)?;
        let y = match self.is_last() {
            true => (stage.loss)(&y, number)?,
            false => y,
        };
        Ok(Under { x, y })
    }

    /// The backward of the oldest part; the gradient of what came in, where a stage sent it.
    fn backward(&self, part: Option<Under>, dy: Option<Tensor>) -> Result<Option<Tensor>> {
        let Under { x, y } = part.ok_or_else(|| Error::op(NAME, "no part is under way"))?;
        y.backward_with(dy.as_ref(), BackwardOptions::default())?;
        if self.is_first() {
            return Ok(None);
        }
        let dx = match x.grad() {
            Some(dx) => dx.detach().contiguous()?,
            None => x.detach().zeros_like()?,
        };
        Ok(Some(dx))
    }

    /// Sends the newest part on.
    fn send_on(&self, under: &VecDeque<Under>) -> Result<()> {
        let sent = under.back().map(|part| part.y.detach());
        self.transfer(sent.as_ref(), Comes::Nothing).map(drop)
    }

    /// Transfers with neighbours: a result to the next stage, and what comes: the next part from the stage
    /// before, or a gradient from the next.
    fn transfer(
        &self,
        sent: Option<&Tensor>,
        wants: Comes,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let rank = self.group.rank();
        let mut gives = Vec::new();
        if let Some(y) = sent.filter(|_| !self.is_last()) {
            self.announce(y)?;
            gives.push((y.contiguous()?, rank + 1));
        }
        let x = match wants {
            Comes::Forward if !self.is_first() => Some(self.room(self.told()?)?),
            _ => None,
        };
        let dy = match (wants, self.goes.get()) {
            (Comes::Backward, Some(ty)) if !self.is_last() => Some(self.room(ty)?),
            _ => None,
        };
        let gives: Vec<_> = gives.iter().map(|(t, to)| (t, *to)).collect();
        let takes: Vec<_> =
            x.iter().map(|t| (t, rank - 1)).chain(dy.iter().map(|t| (t, rank + 1))).collect();
        if !gives.is_empty() || !takes.is_empty() {
            self.group.exchange(&gives, &takes)?;
        }
        Ok((x.map(|x| x.requires_grad_(true)).transpose()?, dy))
    }

    /// Gives a gradient to the stage before, and takes the next part from it.
    fn give_back(&self, dx: Option<&Tensor>, wants: Comes) -> Result<Option<Tensor>> {
        if self.is_first() {
            return Ok(None);
        }
        let before = self.group.rank() - 1;
        let x = match wants {
            Comes::Forward => Some(self.room(self.told()?)?),
            _ => None,
        };
        let gives: Vec<_> = dx.iter().map(|&t| (t, before)).collect();
        let takes: Vec<_> = x.iter().map(|t| (t, before)).collect();
        self.group.exchange(&gives, &takes)?;
        x.map(|x| x.requires_grad_(true)).transpose()
    }

    fn room(&self, ty: &TensorType) -> Result<Tensor> {
        no_grad(|| Tensor::empty(&ty.shape, (ty.dtype, self.group.device())))
    }

    /// Says what the next stage will get; all parts are alike.
    fn announce(&self, y: &Tensor) -> Result<()> {
        let ty = y.tensor_type();
        if let Some(first) = self.goes.get() {
            if *first == ty {
                return Ok(());
            }
            let message = format!(
                "a part gave {:?} {}, the first one {:?} {}: parts have one shape",
                ty.shape, ty.dtype, first.shape, first.dtype
            );
            return Err(Error::op(NAME, message));
        }
        if !ty.dtype.is_arithmetic_float() {
            let message = format!("a stage gave {}, which has no gradient", ty.dtype);
            return Err(Error::op(NAME, message));
        }
        if let Some(store) = self.group.store() {
            let extents: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
            let text = format!("{} {}", ty.dtype, extents.join(" "));
            store.set(&self.key_of(self.group.rank()), text.as_bytes())?;
        }
        self.goes.get_or_init(|| ty);
        Ok(())
    }

    /// What the stage before sends.
    fn told(&self) -> Result<&TensorType> {
        if let Some(ty) = self.comes.get() {
            return Ok(ty);
        }
        let store = self.group.store().ok_or_else(|| Error::op(NAME, "there is no store"))?;
        let bytes = store.get(&self.key_of(self.group.rank() - 1))?;
        let text = String::from_utf8_lossy(&bytes);
        let mut words = text.split_whitespace();
        let dtypes = [DType::F32, DType::F64, DType::BF16, DType::F16];
        let dtype = words
            .next()
            .and_then(|word| dtypes.into_iter().find(|dtype| dtype.to_string() == word));
        let shape = words.map(str::parse).collect::<std::result::Result<Vec<usize>, _>>();
        match (dtype, shape) {
            (Some(dtype), Ok(shape)) => Ok(self.comes.get_or_init(|| TensorType { shape, dtype })),
            _ => Err(Error::op(NAME, format!("the stage before said `{text}`"))),
        }
    }

    fn key_of(&self, rank: usize) -> String {
        self.group.shared.key(&format!("{}/{rank}", self.key))
    }
}

/// What a stage waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    Nothing,
    /// The next part, from the stage before.
    Forward,
    /// A gradient, from the next stage.
    Backward,
}

//! Recurrent networks: RNN, LSTM and GRU of several layers and both directions, and their cells.
//!
//! What differs between them is one step from gates to states ([`Gates`]). The products of the inputs are
//! made for all times at once; those of the states one time after the other.

use super::packed::PackedSequence;
use super::watch::watch_as;
use super::{Module, Parameter, Training, Visitor, VisitorMut, count_flops, flops, init};
use crate::error::{Error, Result};
use crate::tensor::{Creation, Tensor};

/// A kind of recurrent network.
pub trait Gates: Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// Its name, `LSTM`.
    const NAME: &'static str;
    /// How many times the hidden size its weights are high.
    const GATES: usize;
    /// How many states it has: 2 for LSTM.
    const STATES: usize;

    /// The new states, the output first, from what the input and the hidden state give, `[N, gates * H]`
    /// each, and the old states, `[N, H]` each.
    ///
    /// # Errors
    /// If a launch fails.
    fn step(&self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// A plain recurrent network: `h' = tanh(W x + b + U h + c)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RnnGates {
    /// With the hyperbolic tangent.
    #[default]
    Tanh,
    /// With ReLU.
    Relu,
}

/// The gates of an LSTM: input, forget, cell, output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LstmGates;

/// The gates of a GRU: reset, update, new.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GruGates;

impl Gates for RnnGates {
    const NAME: &'static str = "RNN";
    const GATES: usize = 1;
    const STATES: usize = 1;

    fn step(&self, input: &Tensor, hidden: &Tensor, _: &[Tensor]) -> Result<Vec<Tensor>> {
        let sum = input.add(hidden)?;
        Ok(vec![match self {
            RnnGates::Tanh => sum.tanh()?,
            RnnGates::Relu => sum.relu()?,
        }])
    }
}

impl Gates for LstmGates {
    const NAME: &'static str = "LSTM";
    const GATES: usize = 4;
    const STATES: usize = 2;

    fn step(&self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        let gates = input.add(hidden)?.chunk(4, -1)?;
        let (i, f) = (gates[0].sigmoid()?, gates[1].sigmoid()?);
        let (g, o) = (gates[2].tanh()?, gates[3].sigmoid()?);
        let cell = f.mul(&states[1])?.add(&i.mul(&g)?)?;
        Ok(vec![o.mul(&cell.tanh()?)?, cell])
    }
}

impl Gates for GruGates {
    const NAME: &'static str = "GRU";
    const GATES: usize = 3;
    const STATES: usize = 1;

    fn step(&self, input: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        let (x, h) = (input.chunk(3, -1)?, hidden.chunk(3, -1)?);
        let reset = x[0].add(&h[0])?.sigmoid()?;
        let update = x[1].add(&h[1])?.sigmoid()?;
        let new = x[2].add(&reset.mul(&h[2])?)?.tanh()?;
        // (1 - update) * new + update * old
        Ok(vec![new.add(&update.mul(&states[0].sub(&new)?)?)?])
    }
}

/// The weights of one layer in one direction, or of a cell.
#[derive(Debug)]
struct Weights {
    ih: Parameter,
    hh: Parameter,
    biases: Option<[Parameter; 2]>,
    /// Makes the hidden state shorter, `[P, H]`.
    hr: Option<Parameter>,
}

impl Weights {
    /// All uniform in `±1 / sqrt(H)`; without a projection for one of 0.
    fn new<G: Gates>(
        inputs: usize,
        [hidden, projection]: [usize; 2],
        bias: bool,
        at: Creation,
    ) -> Result<Weights> {
        let bound = 1.0 / (hidden.max(1) as f64).sqrt();
        let rows = init::extent(G::NAME, &[G::GATES, hidden])?;
        let uniform = |shape: &[usize]| init::uniform(shape, -bound, bound, at);
        let outputs = if projection == 0 { hidden } else { projection };
        let (ih, hh) = (uniform(&[rows, inputs])?, uniform(&[rows, outputs])?);
        let biases = if bias { Some([uniform(&[rows])?, uniform(&[rows])?]) } else { None };
        let hr = if projection == 0 { None } else { Some(uniform(&[projection, hidden])?) };
        Ok(Weights { ih, hh, biases, hr })
    }

    /// The new states, of which the first is what the layer gives.
    fn step<G: Gates>(&self, gates: G, input: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut states = gates.step(input, &self.hidden(&states[0])?, states)?;
        if let Some(hr) = &self.hr {
            states[0] = affine(&states[0], hr, None)?;
        }
        Ok(states)
    }

    fn bias(&self, index: usize) -> Option<&Tensor> {
        self.biases.as_ref().map(|biases| biases[index].tensor())
    }

    fn input(&self, x: &Tensor) -> Result<Tensor> {
        affine(x, &self.ih, self.bias(0))
    }

    fn hidden(&self, h: &Tensor) -> Result<Tensor> {
        affine(h, &self.hh, self.bias(1))
    }

    fn visit<'a>(&'a self, suffix: &str, visitor: &mut Visitor<'a, '_>) {
        visitor.part(&format!("weight_ih{suffix}"), &self.ih);
        visitor.part(&format!("weight_hh{suffix}"), &self.hh);
        if let Some([ih, hh]) = &self.biases {
            visitor.part(&format!("bias_ih{suffix}"), ih);
            visitor.part(&format!("bias_hh{suffix}"), hh);
        }
        if let Some(hr) = &self.hr {
            visitor.part(&format!("weight_hr{suffix}"), hr);
        }
    }

    fn visit_mut(&mut self, suffix: &str, visitor: &mut VisitorMut<'_>) {
        visitor.part(&format!("weight_ih{suffix}"), &mut self.ih);
        visitor.part(&format!("weight_hh{suffix}"), &mut self.hh);
        if let Some([ih, hh]) = &mut self.biases {
            visitor.part(&format!("bias_ih{suffix}"), ih);
            visitor.part(&format!("bias_hh{suffix}"), hh);
        }
        if let Some(hr) = &mut self.hr {
            visitor.part(&format!("weight_hr{suffix}"), hr);
        }
    }
}

fn affine(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    count_flops(|| flops(&[2, x.numel(), weight.shape()[0]]));
    match bias {
        Some(bias) => x.matmul_bias(&weight.t()?, bias),
        None => x.matmul(&weight.t()?),
    }
}

/// What a recurrent network is made with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecurrentOptions {
    /// Layers, each over the outputs of the one before it.
    pub num_layers: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// Whether tensors are `[N, T, C]` and not `[T, N, C]`.
    pub batch_first: bool,
    /// The probability of dropout between layers.
    pub dropout: f64,
    /// Whether each layer also reads from the end.
    pub bidirectional: bool,
    /// The extent that the hidden state of an LSTM is projected to; 0 for none.
    pub proj_size: usize,
}

impl Default for RecurrentOptions {
    fn default() -> RecurrentOptions {
        RecurrentOptions {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            proj_size: 0,
        }
    }
}

/// A recurrent network of several layers: [`Rnn`], [`Lstm`] or [`Gru`].
///
/// Its parameters are named as in PyTorch: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
/// `weight_ih_l0_reverse`, and so on.
///
/// # Shapes
/// `x: [T, N, C]` -> `[T, N, D H]` with `D` directions, and states `[layers * D, N, H]`; with
/// `batch_first` `N` is the first axis of `x` and of the output; without a batch there is no `N`. With
/// `proj_size` P outputs and hidden states have P in the place of H, the cell's keep H.
#[derive(Debug)]
pub struct Recurrent<G: Gates> {
    /// The extent of the input.
    pub input_size: usize,
    /// The extent of a state.
    pub hidden_size: usize,
    /// What it was made with.
    pub options: RecurrentOptions,
    /// Its kind.
    pub gates: G,
    /// Whether it is training.
    pub training: Training,
    /// By layer, then by direction.
    weights: Vec<Weights>,
}

/// [`Recurrent`] with one state and no gates.
pub type Rnn = Recurrent<RnnGates>;
/// [`Recurrent`] with a hidden state and a cell state.
pub type Lstm = Recurrent<LstmGates>;
/// [`Recurrent`] with a reset and an update gate.
pub type Gru = Recurrent<GruGates>;

impl<G: Gates> Recurrent<G> {
    /// A network of one layer.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        input_size: usize,
        hidden_size: usize,
        at: impl Into<Creation>,
    ) -> Result<Recurrent<G>> {
        Recurrent::with(input_size, hidden_size, RecurrentOptions::default(), at)
    }

    /// A network with other options.
    ///
    /// # Errors
    /// If there is no layer, more than 4096 or no state; there is a `proj_size` that is not below the hidden size, or in a kind that has no cell state, or
    /// memory runs out.
    pub fn with(
        input_size: usize,
        hidden_size: usize,
        options: RecurrentOptions,
        at: impl Into<Creation>,
    ) -> Result<Recurrent<G>> {
        let projection = options.proj_size;
        if projection > 0 && (G::STATES < 2 || projection >= hidden_size) {
            let message =
                format!("proj_size {projection} must be below {hidden_size}, and is for LSTM only");
            return Err(Error::op(G::NAME, message));
        }
        let (at, directions) = (at.into(), 1 + usize::from(options.bidirectional));
        let outputs = if projection == 0 { hidden_size } else { projection };
        init::check_layers(G::NAME, options.num_layers)?;
        if options.num_layers == 0 || hidden_size == 0 {
            let message = "needs a layer and a state of at least 1";
            return Err(Error::op(G::NAME, message));
        }
        let both = init::extent(G::NAME, &[directions, outputs])?;
        let weights = |index: usize| {
            let inputs = if index < directions { input_size } else { both };
            Weights::new::<G>(inputs, [hidden_size, projection], options.bias, at)
        };
        let weights = (0..options.num_layers * directions).map(weights).collect::<Result<_>>()?;
        let (gates, training) = (G::default(), Training::default());
        Ok(Recurrent { input_size, hidden_size, options, gates, training, weights })
    }

    fn directions(&self) -> usize {
        1 + usize::from(self.options.bidirectional)
    }

    /// What the names of the weights at a place end in.
    fn suffix(&self, index: usize) -> String {
        let reverse = if index % self.directions() == 1 { "_reverse" } else { "" };
        format!("_l{}{reverse}", index / self.directions())
    }

    /// The outputs of the last layer, and the last states: the hidden one, and for LSTM the cell's.
    ///
    /// States start as zeros where none are given.
    ///
    /// # Errors
    /// If shapes do not fit, or there is no time.
    pub fn forward(&self, x: &Tensor, states: Option<&[Tensor]>) -> Result<(Tensor, Vec<Tensor>)> {
        if x.rank() == 2 {
            let axis = if self.options.batch_first { 0 } else { 1 };
            let states: Option<Vec<Tensor>> =
                states.map(|all| all.iter().map(|s| s.unsqueeze(1)).collect()).transpose()?;
            let (y, last) = self.forward(&x.unsqueeze(axis)?, states.as_deref())?;
            let last = last.iter().map(|s| s.squeeze(1)).collect::<Result<_>>()?;
            return Ok((y.squeeze(axis)?, last));
        }
        let turned = |t: &Tensor| match self.options.batch_first {
            true => t.transpose(0, 1),
            false => Ok(t.clone()),
        };
        if x.rank() != 3 || x.shape()[2] != self.input_size {
            let message = format!("needs [.., {}], got shape {:?}", self.input_size, x.shape());
            return Err(Error::op(G::NAME, message));
        }
        watch_as(
            self,
            |(output, _)| output,
            || {
                let x = turned(x)?;
                if x.shape()[0] == 0 {
                    return Err(Error::op(G::NAME, "there is no time"));
                }
                let states = self.start(states, &x, x.shape()[1])?;
                let (y, last) = self.layers(x, &states, None)?;
                Ok((turned(&y)?, last))
            },
        )
    }

    /// [`Recurrent::forward`] of sequences of several lengths: each ends where it ends, and its last states
    /// are those of its own end. Outputs and states are in the order of the sequences.
    ///
    /// # Errors
    /// If shapes do not fit.
    /// # Source
    /// Same conventions as `torch.nn.LSTM` on a `PackedSequence`.
    pub fn forward_packed(
        &self,
        x: &PackedSequence,
        states: Option<&[Tensor]>,
    ) -> Result<(PackedSequence, Vec<Tensor>)> {
        if x.data().rank() != 2 || x.data().shape()[1] != self.input_size {
            let message = format!("needs [.., {}], got {:?}", self.input_size, x.data().shape());
            return Err(Error::op(G::NAME, message));
        }
        watch_as(
            self,
            |(output, _): &(PackedSequence, Vec<Tensor>)| output.data(),
            || {
                let states = self.start(states, x.data(), x.batch_sizes()[0])?;
                let states: Vec<Tensor> =
                    states.iter().map(|s| x.in_order_of_places(s, 1)).collect::<Result<_>>()?;
                let (y, last) = self.layers(x.data().clone(), &states, Some(x.batch_sizes()))?;
                let last = last.iter().map(|s| x.out_of_order(s, 1)).collect::<Result<_>>()?;
                Ok((x.with_data(y)?, last))
            },
        )
    }

    /// The states `[layers * D, N, H]` of `n` sequences to start from.
    fn start(&self, given: Option<&[Tensor]>, x: &Tensor, n: usize) -> Result<Vec<Tensor>> {
        let projected = match self.options.proj_size {
            0 => self.hidden_size,
            projection => projection,
        };
        let extent = |state: usize| if state == 0 { projected } else { self.hidden_size };
        let shapes: Vec<[usize; 3]> =
            (0..G::STATES).map(|state| [self.weights.len(), n, extent(state)]).collect();
        match given {
            None => {
                shapes.iter().map(|shape| Tensor::zeros(shape, (x.dtype(), x.device()))).collect()
            }
            Some(all) if all.iter().map(Tensor::shape).eq(shapes.iter()) => Ok(all.to_vec()),
            Some(all) => {
                let found: Vec<&[usize]> = all.iter().map(Tensor::shape).collect();
                Err(Error::op(G::NAME, format!("needs states of {shapes:?}, got {found:?}")))
            }
        }
    }

    /// All layers; `sizes` says how many sequences each time of packed ones has.
    fn layers(
        &self,
        x: Tensor,
        states: &[Tensor],
        sizes: Option<&[usize]>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let directions = self.directions();
        let (mut x, mut last) = (x, vec![Vec::new(); G::STATES]);
        for layer in 0..self.options.num_layers {
            let mut outputs = Vec::new();
            for direction in 0..directions {
                let index = layer * directions + direction;
                let own: Vec<Tensor> =
                    states.iter().map(|s| s.select(0, index)).collect::<Result<_>>()?;
                let weights = &self.weights[index];
                let (y, end) = match sizes {
                    Some(sizes) => self.run_packed(weights, &x, own, (sizes, direction == 1))?,
                    None => self.run(weights, &x, own, direction == 1)?,
                };
                outputs.push(y);
                for (all, state) in last.iter_mut().zip(end) {
                    all.push(state);
                }
            }
            x = Tensor::cat(&outputs.iter().collect::<Vec<_>>(), -1)?; // [T, N, D H]
            let is_last = layer + 1 == self.options.num_layers;
            if !is_last && self.training.is_on() && self.options.dropout > 0.0 {
                x = x.dropout(self.options.dropout)?;
            }
        }
        let stack = |all: &Vec<Tensor>| Tensor::stack(&all.iter().collect::<Vec<_>>(), 0);
        Ok((x, last.iter().map(stack).collect::<Result<_>>()?))
    }

    /// One layer in one direction: outputs `[T, N, H]` and the last states.
    fn run(
        &self,
        weights: &Weights,
        x: &Tensor,
        mut states: Vec<Tensor>,
        from_end: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let mut inputs = weights.input(x)?.unbind(0)?; // T of [N, gates * H]
        if from_end {
            inputs.reverse();
        }
        let mut outputs = Vec::with_capacity(inputs.len());
        for input in &inputs {
            states = weights.step(self.gates, input, &states)?;
            outputs.push(states[0].clone());
        }
        if from_end {
            outputs.reverse();
        }
        Ok((Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 0)?, states))
    }

    /// [`Recurrent::run`] of packed sequences `[S, C]`, the longest first: from the end sequences join
    /// where they end, from the start they leave there.
    fn run_packed(
        &self,
        weights: &Weights,
        x: &Tensor,
        start: Vec<Tensor>,
        (sizes, from_end): (&[usize], bool),
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let mut inputs = weights.input(x)?.split_sizes(sizes, 0)?; // T of [n, gates * H]
        if from_end {
            inputs.reverse();
        }
        let part = |states: &[Tensor], from: usize, to: usize| -> Result<Vec<Tensor>> {
            states.iter().map(|s| s.narrow(0, from, to - from)).collect()
        };
        let join = |first: &[Tensor], then: &[Tensor]| -> Result<Vec<Tensor>> {
            first.iter().zip(then).map(|(a, b)| Tensor::cat(&[a, b], 0)).collect()
        };
        let mut active = inputs.first().map_or(0, |input| input.shape()[0]);
        let mut states = part(&start, 0, active)?;
        let (mut outputs, mut ended) = (Vec::with_capacity(inputs.len()), Vec::new());
        for input in &inputs {
            let n = input.shape()[0];
            if n < active {
                ended.push(part(&states, n, active)?);
                states = part(&states, 0, n)?;
            } else if n > active {
                states = join(&states, &part(&start, active, n)?)?;
            }
            active = n;
            states = weights.step(self.gates, input, &states)?;
            outputs.push(states[0].clone());
        }
        for gone in ended.iter().rev() {
            states = join(&states, gone)?;
        }
        if from_end {
            outputs.reverse();
        }
        Ok((Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)?, states))
    }
}

impl<G: Gates> Module for Recurrent<G> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        for (index, weights) in self.weights.iter().enumerate() {
            weights.visit(&self.suffix(index), visitor);
        }
        visitor.part("training", &self.training);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        for index in 0..self.weights.len() {
            let suffix = self.suffix(index);
            self.weights[index].visit_mut(&suffix, visitor);
        }
    }

    fn as_module(&self) -> &dyn Module {
        self
    }

    fn kind(&self) -> String {
        G::NAME.to_owned()
    }
}

/// One step of a recurrent network: [`RnnCell`], [`LstmCell`] or [`GruCell`].
///
/// # Shapes
/// `x: [N, C]` and states `[N, H]` -> states `[N, H]`; or all without `N`.
#[derive(Debug)]
pub struct RecurrentCell<G: Gates> {
    /// The extent of the input.
    pub input_size: usize,
    /// The extent of a state.
    pub hidden_size: usize,
    /// Its kind.
    pub gates: G,
    weights: Weights,
}

/// [`RecurrentCell`] with one state and no gates.
pub type RnnCell = RecurrentCell<RnnGates>;
/// [`RecurrentCell`] with a hidden state and a cell state.
pub type LstmCell = RecurrentCell<LstmGates>;
/// [`RecurrentCell`] with a reset and an update gate.
pub type GruCell = RecurrentCell<GruGates>;

impl<G: Gates> RecurrentCell<G> {
    /// A cell with biases.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        input_size: usize,
        hidden_size: usize,
        at: impl Into<Creation>,
    ) -> Result<RecurrentCell<G>> {
        let weights = Weights::new::<G>(input_size, [hidden_size, 0], true, at.into())?;
        Ok(RecurrentCell { input_size, hidden_size, gates: G::default(), weights })
    }

    /// A cell without biases.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn without_bias(
        input_size: usize,
        hidden_size: usize,
        at: impl Into<Creation>,
    ) -> Result<RecurrentCell<G>> {
        let weights = Weights::new::<G>(input_size, [hidden_size, 0], false, at.into())?;
        Ok(RecurrentCell { input_size, hidden_size, gates: G::default(), weights })
    }

    /// The new states, the hidden one first; they start as zeros where none are given.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, x: &Tensor, states: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
        if x.rank() == 1 {
            let states: Option<Vec<Tensor>> =
                states.map(|all| all.iter().map(|s| s.unsqueeze(0)).collect()).transpose()?;
            let new = self.forward(&x.unsqueeze(0)?, states.as_deref())?;
            return new.iter().map(|s| s.squeeze(0)).collect();
        }
        let shape = [x.shape().first().copied().unwrap_or(0), self.hidden_size];
        let fits = |s: &Tensor| s.shape() == shape;
        let is_fit = x.rank() == 2
            && x.shape()[1] == self.input_size
            && states.is_none_or(|all| all.len() == G::STATES && all.iter().all(fits));
        if !is_fit {
            let message = format!("shape {:?} or its states do not fit {shape:?}", x.shape());
            return Err(Error::op(G::NAME, message));
        }
        watch_as(
            self,
            |states: &Vec<Tensor>| &states[0],
            || {
                let zeros = || Tensor::zeros(&shape, (x.dtype(), x.device()));
                let states = match states {
                    Some(states) => states.to_vec(),
                    None => (0..G::STATES).map(|_| zeros()).collect::<Result<_>>()?,
                };
                let (input, hidden) = (self.weights.input(x)?, self.weights.hidden(&states[0])?);
                self.gates.step(&input, &hidden, &states)
            },
        )
    }
}

impl<G: Gates> Module for RecurrentCell<G> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.weights.visit("", visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.weights.visit_mut("", visitor);
    }

    fn as_module(&self) -> &dyn Module {
        self
    }

    fn kind(&self) -> String {
        format!("{}Cell", G::NAME)
    }
}

//! Anomaly detection: the op that made the first NaN or infinity.
//!
//! While it is on, every result and every gradient is looked at on the host, which is slow. A value that
//! is not finite is an op's fault where all that went into the op was finite. Where the op was called is
//! known from the caller's location; inside of the library itself, where a layer calls an op, it
//! comes from the stack.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Looking {
    /// Nothing is done.
    Off,
    /// Results are looked at.
    On,
    /// The ops of a backward run: what they make is looked at as a whole.
    Inside,
}

thread_local! {
    static LOOKING: Cell<Looking> = Cell::new(at_first());
    static STATE: RefCell<State> = const {
        RefCell::new(State {
            inf: true,
            names: Vec::new(),
            module: None,
            last: None,
            parent: None,
        })
    };
}

/// What a thread begins with: `GENESIS_ANOMALY` looks everywhere.
fn at_first() -> Looking {
    if genesis_kernel::knobs::get().anomaly { Looking::On } else { Looking::Off }
}

/// Tells the path of the layer at work, once a layer has said how.
static LAYER: OnceLock<fn() -> Option<String>> = OnceLock::new();

struct State {
    inf: bool,
    names: Vec<(String, Tensor)>,
    /// Where the last op ran: in a module, or after one.
    module: Option<Arc<str>>,
    /// The module whose parameter was read last.
    last: Option<String>,
    /// The node whose backward runs.
    parent: Option<Arc<Origin>>,
}

/// Where an op ran.
pub(crate) struct Origin {
    location: &'static Location<'static>,
    module: Option<Arc<str>>,
    /// Taken where the location is inside of the library.
    stack: Option<Backtrace>,
}

impl Origin {
    /// The place of the caller, in anomaly mode.
    #[track_caller]
    pub(super) fn here() -> Option<Arc<Origin>> {
        match LOOKING.get() {
            Looking::Off => None,
            Looking::On => {
                let module = STATE.with_borrow(|state| state.module.clone());
                Some(Arc::new(Origin::at(Location::caller(), module)))
            }
            Looking::Inside => STATE.with_borrow(|state| state.parent.clone()),
        }
    }

    fn at(location: &'static Location<'static>, module: Option<Arc<str>>) -> Origin {
        let stack = is_inside(location.file()).then(Backtrace::force_capture);
        Origin { location, module, stack }
    }

    fn describe(&self) -> String {
        let stack = self.stack.as_ref().and_then(|stack| caller_in(&stack.to_string()));
        let place = stack.unwrap_or_else(|| self.location.to_string());
        match &self.module {
            Some(module) => format!("at {place}, {module}"),
            None => format!("at {place}"),
        }
    }
}

/// Whether a source file is one of this library.
fn is_inside(file: &str) -> bool {
    file!().strip_suffix("autograd/anomaly.rs").is_some_and(|root| file.starts_with(root))
}

/// The first frame of a printed stack that is neither this library's nor the language's. A function
/// that was inlined has a short name, so its file is looked at too.
fn caller_in(stack: &str) -> Option<String> {
    const NAMES: [&str; 6] =
        ["genesis::", "genesis_kernel::", "std::", "core::", "alloc::", "__rust"];
    const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "-kernel/src/");
    const FILES: [&str; 3] = ["/rustc/", HERE, KERNELS];
    let mut lines = stack.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some((number, symbol)) = line.split_once(": ") else { continue };
        if number.parse::<usize>().is_err() {
            continue;
        }
        let at = lines.next_if(|line| line.starts_with("at ")).map(|at| &at["at ".len()..]);
        let name = symbol.trim_start_matches(['<', '&', '*', '(', ' ']);
        let is_ours = NAMES.iter().any(|ours| name.starts_with(ours))
            || at.is_some_and(|at| FILES.iter().any(|ours| at.starts_with(ours)));
        if !is_ours {
            return Some(at.unwrap_or(symbol).to_owned());
        }
    }
    None
}

/// What to look for, and how to name what is found.
#[derive(Clone, Debug, Default)]
pub struct Anomaly {
    /// Lets infinities pass: only NaN is an anomaly.
    pub nan_only: bool,
    /// Parameters by name, such as `model.named_parameters()`: an op that reads one is said to be in its
    /// module. Other ops are named by the layer that runs them.
    pub names: Vec<(String, Tensor)>,
}

impl Anomaly {
    /// Runs `f`, in which the first op that makes a NaN or an infinity of finite inputs is an error:
    /// in a forward, and in a backward. A property of the thread.
    ///
    /// # Examples
    /// ```
    /// use genesis::Tensor;
    /// use genesis::autograd::Anomaly;
    ///
    /// let head = Tensor::from_slice(&[0.0f32, 1.0], &[2])?.requires_grad_(true)?;
    /// let names = vec![("head.weight".to_owned(), head.clone())];
    /// let error = Anomaly { names, ..Anomaly::default() }
    ///     .detect(|| head.sqrt()?.sum()?.backward())
    ///     .expect_err("the slope of the root is infinite at 0");
    /// let text = error.to_string();
    /// assert!(text.starts_with("sqrt: its backward made inf at [0]"), "{text}");
    /// assert!(text.contains("module `head`"), "{text}");
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn detect<T>(self, f: impl FnOnce() -> T) -> T {
        struct Restore(Looking, Option<State>);
        impl Drop for Restore {
            fn drop(&mut self) {
                LOOKING.set(self.0);
                let old = self.1.take().map(|state| STATE.replace(state));
                drop(old);
            }
        }
        let Anomaly { nan_only, names } = self;
        let state = State { inf: !nan_only, names, module: None, last: None, parent: None };
        let _restore = Restore(LOOKING.replace(Looking::On), Some(STATE.replace(state)));
        f()
    }
}

/// Runs `f`, in which the first op that makes a NaN or an infinity of finite inputs is an error that
/// says which op, where in the result, and where it was called. [`Anomaly`] has more to choose.
///
/// # Cost
/// Every result is copied to the host: this is for finding out, not for training.
///
/// # Examples
/// ```
/// use genesis::{Tensor, autograd::detect_anomaly};
///
/// let x = Tensor::from_slice(&[1.0f32, 0.0], &[2])?;
/// let error = detect_anomaly(|| x.log()?.exp()).expect_err("the logarithm of 0 is infinite");
/// assert!(error.to_string().starts_with("log: made -inf at [1]"), "{error}");
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn detect_anomaly<T>(f: impl FnOnce() -> T) -> T {
    Anomaly::default().detect(f)
}

/// Whether results are to be shown to [`check_forward`].
pub(crate) fn is_on() -> bool {
    LOOKING.get() == Looking::On
}

/// Runs `f` without looking at what ops make in it.
fn aside<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(Looking);
    impl Drop for Restore {
        fn drop(&mut self) {
            LOOKING.set(self.0);
        }
    }
    let _restore = Restore(LOOKING.replace(Looking::Off));
    f()
}

/// A value that is not finite.
struct Bad {
    value: f64,
    index: Vec<usize>,
    count: usize,
}

impl Bad {
    fn describe(&self) -> String {
        let Bad { value, index, count } = self;
        let first = if *count > 1 { format!(", the first of {count},") } else { String::new() };
        format!(
            "{} at {index:?}{first}",
            if value.is_nan() { "NaN".into() } else { value.to_string() }
        )
    }
}

fn find(tensor: &Tensor, inf: bool) -> Result<Option<Bad>> {
    if !tensor.dtype().is_float() {
        return Ok(None);
    }
    let values = aside(|| tensor.to_f64_vec())?;
    let is_bad = |value: &&f64| value.is_nan() || (inf && value.is_infinite());
    let Some(at) = values.iter().position(|value| is_bad(&value)) else { return Ok(None) };
    let mut rest = at;
    let mut index = vec![0; tensor.rank()];
    for (coordinate, &extent) in index.iter_mut().zip(tensor.shape()).rev() {
        *coordinate = rest % extent;
        rest /= extent;
    }
    let count = values.iter().filter(is_bad).count();
    Ok(Some(Bad { value: values[at], index, count }))
}

/// Refuses a result that is not finite though all inputs were.
#[track_caller]
pub(crate) fn check_forward(op: &str, inputs: &[&Tensor], result: &Tensor) -> Result<()> {
    let location = Location::caller();
    let (inf, module) = STATE.with_borrow_mut(|state| {
        state.module = state.place(inputs).map(Arc::from);
        (state.inf, state.module.clone())
    });
    let Some(bad) = find(result, inf)? else { return Ok(()) };
    for input in inputs {
        if find(input, inf)?.is_some() {
            return Ok(());
        }
    }
    let origin = Origin::at(location, module);
    let message = format!(
        "made {} of its result of shape {:?} from finite inputs, {}",
        bad.describe(),
        result.shape(),
        origin.describe()
    );
    Err(Error::op(op, message))
}

impl State {
    /// Where an op runs: in the module whose parameter it reads, else in the layer at work, else after
    /// the last module of which that is known.
    fn place(&mut self, inputs: &[&Tensor]) -> Option<String> {
        if let Some(module) = module_of(&self.names, inputs) {
            let place = format!("in module `{module}`");
            self.last = Some(module);
            return Some(place);
        }
        match LAYER.get().and_then(|layer| layer()) {
            Some(layer) => Some(format!("in module `{layer}`")),
            None => self.last.as_ref().map(|last| format!("after module `{last}`")),
        }
    }
}

/// Lets anomalies be found in layers: `path` tells which is at work.
pub(crate) fn name_layers_by(path: fn() -> Option<String>) {
    LAYER.get_or_init(|| path);
}

/// The module of the first input that is a parameter, or a view of one.
fn module_of(names: &[(String, Tensor)], inputs: &[&Tensor]) -> Option<String> {
    let is_own = |own: &Tensor, input: &Tensor| own.is_base_of(input);
    let find = |input: &&Tensor| names.iter().find(|(_, own)| is_own(own, input));
    let (name, _) = inputs.iter().find_map(find)?;
    Some(name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module).to_owned())
}

/// Runs the backward of an op that ran at `origin`, and refuses gradients that are not finite though what came
/// was.
pub(super) fn watch(
    op: &str,
    origin: &Option<Arc<Origin>>,
    dys: &[Option<Tensor>],
    backward: impl FnOnce(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
) -> Result<Vec<Option<Tensor>>> {
    if LOOKING.get() != Looking::On {
        return backward(dys);
    }
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            LOOKING.set(Looking::On);
            STATE.with_borrow_mut(|state| state.parent = None);
        }
    }
    LOOKING.set(Looking::Inside);
    STATE.with_borrow_mut(|state| state.parent = origin.clone());
    let restore = Restore;
    let grads = backward(dys)?;
    drop(restore);
    let inf = STATE.with_borrow(|state| state.inf);
    for (input, grad) in grads.iter().enumerate() {
        let Some(grad) = grad else { continue };
        let Some(bad) = find(grad, inf)? else { continue };
        for dy in dys.iter().flatten() {
            if find(dy, inf)?.is_some() {
                return Ok(grads);
            }
        }
        let place = match origin {
            Some(origin) => format!("its forward ran {}", origin.describe()),
            None => "its forward ran where anomalies were not looked for".to_owned(),
        };
        let message = format!(
            "its backward made {} of the gradient of input {input}, of shape {:?}; {place}",
            bad.describe(),
            grad.shape()
        );
        return Err(Error::op(op, message));
    }
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_the_first_frame_of_someone_else() {
        let stack = "   0: std::backtrace::Backtrace::create\n             at /rustc/x/backtrace.rs:331:13\n   \
                     1: genesis::ops::apply\n             at ./genesis/src/ops/mod.rs:97:5\n   \
                     2: <genesis::nn::Linear as genesis::nn::Module>::forward\n   \
                     3: call_once<train::model::{closure#0}>\n             at /rustc/x/function.rs:250:5\n   \
                     4: train::model::Block::forward\n             at ./src/model.rs:12:9\n   \
                     5: train::main\n";
        assert_eq!(caller_in(stack).as_deref(), Some("./src/model.rs:12:9"));
        assert_eq!(
            caller_in("   0: genesis::ops::apply\n   1: train::main\n").as_deref(),
            Some("train::main")
        );
        assert_eq!(caller_in("   0: genesis::ops::apply\n"), None);
    }
}
